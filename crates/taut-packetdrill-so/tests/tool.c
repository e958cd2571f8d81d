/*
 * Plays packetdrill: loads the shared object, and calls each of its 32 functions the way that tool does, from two
 * threads. One connection is accepted and one opened; packets are made by hand.
 *
 *   tool PATH-OF-THE-SHARED-OBJECT
 *
 * Prints "32 functions" and returns 0 if all went well; else it prints the line of the check that failed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

struct table {
	void *user;
	void (*free)(void *);
	int (*socket)(void *, int, int, int);
	int (*bind)(void *, int, const struct sockaddr *, socklen_t);
	int (*listen)(void *, int, int);
	int (*accept)(void *, int, struct sockaddr *, socklen_t *);
	int (*connect)(void *, int, const struct sockaddr *, socklen_t);
	ssize_t (*read)(void *, int, void *, size_t);
	ssize_t (*readv)(void *, int, const struct iovec *, int);
	ssize_t (*recv)(void *, int, void *, size_t, int);
	ssize_t (*recvfrom)(void *, int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t (*recvmsg)(void *, int, struct msghdr *, int);
	ssize_t (*write)(void *, int, const void *, size_t);
	ssize_t (*writev)(void *, int, const struct iovec *, int);
	ssize_t (*send)(void *, int, const void *, size_t, int);
	ssize_t (*sendto)(void *, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(void *, int, const struct msghdr *, int);
	int (*fcntl)(void *, int, int, ...);
	int (*ioctl)(void *, int, unsigned long, ...);
	int (*close)(void *, int);
	int (*shutdown)(void *, int, int);
	int (*getsockopt)(void *, int, int, int, void *, socklen_t *);
	int (*setsockopt)(void *, int, int, int, const void *, socklen_t);
	int (*poll)(void *, struct pollfd *, nfds_t, int);
	int (*netdev_send)(void *, const void *, size_t);
	int (*netdev_receive)(void *, void *, size_t *, long long *);
	int (*usleep)(void *, useconds_t);
	int (*gettimeofday)(void *, struct timeval *, struct timezone *);
	int (*epoll_create)(void *, int);
	int (*epoll_ctl)(void *, int, int, int, struct epoll_event *);
	int (*epoll_wait)(void *, int, struct epoll_event *, int, int);
	int (*pipe)(void *, int[2]);
	ssize_t (*splice)(void *, int, loff_t *, int, loff_t *, size_t, unsigned);
};

static struct table t;

#define CHECK(what)                                                                   \
	do {                                                                          \
		if (!(what)) {                                                        \
			printf("line %d: %s (errno %d)\n", __LINE__, #what, errno);   \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };

static const char *LOCAL = "192.168.0.1", *REMOTE = "192.0.2.1";

static uint32_t add(uint32_t sum, const uint8_t *at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? at[i] : at[i] << 8;
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void put16(uint8_t *at, uint16_t value) { at[0] = value >> 8; at[1] = value & 255; }
static void put32(uint8_t *at, uint32_t value) { put16(at, value >> 16); put16(at + 2, value & 65535); }
static uint32_t get32(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

/* A segment from the peer; a SYN has an MSS of 1000. */
static void inject(int from, int to, int flags, uint32_t seq, uint32_t ack, size_t len)
{
	uint8_t p[2000] = { 0 };
	size_t options = flags & SYN ? 4 : 0, tcp = 20 + options, total = 20 + tcp + len;
	p[0] = 0x45;
	put16(p + 2, total);
	p[8] = 64;
	p[9] = 6;
	CHECK(inet_pton(AF_INET, REMOTE, p + 12) == 1 && inet_pton(AF_INET, LOCAL, p + 16) == 1);
	put16(p + 10, fold(add(0, p, 20)));
	uint8_t *s = p + 20;
	put16(s, from);
	put16(s + 2, to);
	put32(s + 4, seq);
	put32(s + 8, ack);
	s[12] = tcp / 4 << 4;
	s[13] = flags;
	put16(s + 14, 30000);
	if (options) {
		s[20] = 2;
		s[21] = 4;
		put16(s + 22, 1000);
	}
	uint32_t sum = add(6 + tcp + len, p + 12, 8);
	put16(s + 16, fold(add(sum, s, tcp + len)));
	CHECK(t.netdev_send(t.user, p, total) == 0);
}

/* The next packet of the stack: flags, number, payload. Returns its time. */
static long long packet(int *flags, uint32_t *seq, size_t *len)
{
	uint8_t p[65536];
	size_t count = sizeof p;
	long long at = 0;
	CHECK(t.netdev_receive(t.user, p, &count, &at) == 0 && count >= 40);
	CHECK(fold(add(0, p, 20)) == 0);
	*flags = p[33];
	*seq = get32(p + 24);
	*len = count - 20 - (p[32] >> 4) * 4;
	return at;
}

static void expect(int flags, size_t len)
{
	int f;
	uint32_t seq;
	size_t l;
	packet(&f, &seq, &l);
	if (f != flags || l != len)
		printf("expected flags %d and %zu bytes, got %d and %zu\n", flags, len, f, l);
	CHECK(f == flags && l == len);
}

static long long now(void)
{
	struct timeval tv;
	CHECK(t.gettimeofday(t.user, &tv, NULL) == 0);
	return tv.tv_sec * 1000000LL + tv.tv_usec;
}

static struct sockaddr_in addr(const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, ip, &a.sin_addr) == 1);
	return a;
}

/* What the second thread does, and what came of it. */
static struct {
	int fd;
	ssize_t result;
	long long end;
} job;

static void *blocking_accept(void *unused)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	job.result = t.accept(t.user, job.fd, (struct sockaddr *)&peer, &len);
	job.end = now();
	CHECK(len == sizeof peer && peer.sin_port == htons(5000));
	return unused;
}

static void *blocking_read(void *unused)
{
	char buffer[1000];
	job.result = t.read(t.user, job.fd, buffer, sizeof buffer);
	job.end = now();
	return unused;
}

static void *blocking_connect(void *unused)
{
	struct sockaddr_in to = addr(REMOTE, 8081);
	job.result = t.connect(t.user, job.fd, (struct sockaddr *)&to, sizeof to);
	job.end = now();
	return unused;
}

static void *blocking_poll(void *unused)
{
	struct pollfd p = { .fd = job.fd, .events = POLLIN };
	job.result = t.poll(t.user, &p, 1, 30);
	job.end = now();
	return unused;
}

/* Starts a job and waits until it sleeps, as the tool does. */
static pthread_t start(void *(*run)(void *))
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	usleep(20000);
	return thread;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && sizeof(struct table) == 264);
	void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_DEEPBIND);
	if (!so)
		printf("%s\n", dlerror());
	CHECK(so != NULL);
	void (*init)(const char *, struct table *);
	*(void **)&init = dlsym(so, "packetdrill_interface_init");
	CHECK(init != NULL);
	init("sysctls=no net.ipv4.tcp_ecn=0 net.ipv4.tcp_early_retrans=0", &t);

	/* Time. */
	long long begin = now();
	CHECK(t.usleep(t.user, 1000000) == 0);
	long long later = now();
	CHECK(later >= begin + 1000000 && later < begin + 1000100);

	/* A listener, and a call that blocks until a handshake is complete. */
	int listener = t.socket(t.user, AF_INET, SOCK_STREAM, IPPROTO_TCP);
	CHECK(listener > 1000);
	int on = 1, value = 0;
	socklen_t size = sizeof value;
	CHECK(t.setsockopt(t.user, listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
	CHECK(t.getsockopt(t.user, listener, SOL_SOCKET, SO_REUSEADDR, &value, &size) == 0 && value == 1);
	struct sockaddr_in local = addr(LOCAL, 8080);
	CHECK(t.bind(t.user, listener, (struct sockaddr *)&local, sizeof local) == 0);
	CHECK(t.listen(t.user, listener, 5) == 0);
	job.fd = listener;
	pthread_t thread = start(blocking_accept);
	int flags;
	uint32_t seq;
	size_t len;
	inject(5000, 8080, SYN, 1000, 0, 0);
	packet(&flags, &seq, &len);
	CHECK(flags == (SYN | ACK) && len == 0);
	uint32_t first = seq + 1;
	CHECK(t.usleep(t.user, 100000) == 0);
	long long before = now();
	inject(5000, 8080, ACK, 1001, first, 0);
	CHECK(t.usleep(t.user, 100000) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	int fd = job.result;
	CHECK(fd > listener);
	/* It returned when the ACK came, although time has passed since. */
	CHECK(job.end >= before && job.end < before + 1000);

	/* Writes in every form. Each is acknowledged, so that nothing is held back. */
	char buffer[1000] = { 0 };
	struct iovec iov[2] = { { buffer, 100 }, { buffer, 200 } };
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = 2 };
	CHECK(t.write(t.user, fd, buffer, 100) == 100);
	expect(PSH | ACK, 100);
	inject(5000, 8080, ACK, 1001, first += 100, 0);
	CHECK(t.writev(t.user, fd, iov, 2) == 300);
	expect(PSH | ACK, 300);
	inject(5000, 8080, ACK, 1001, first += 300, 0);
	CHECK(t.send(t.user, fd, buffer, 10, 0) == 10);
	expect(PSH | ACK, 10);
	inject(5000, 8080, ACK, 1001, first += 10, 0);
	CHECK(t.sendto(t.user, fd, buffer, 20, 0, NULL, 0) == 20);
	expect(PSH | ACK, 20);
	inject(5000, 8080, ACK, 1001, first += 20, 0);
	CHECK(t.sendmsg(t.user, fd, &message, 0) == 300);
	expect(PSH | ACK, 300);
	CHECK(t.ioctl(t.user, fd, TIOCOUTQ, &value) == 0 && value == 300);
	inject(5000, 8080, ACK, 1001, first += 300, 0);

	/* Reads in every form; the first one blocks on the other thread. */
	job.fd = fd;
	thread = start(blocking_read);
	CHECK(t.usleep(t.user, 50000) == 0);
	before = now();
	inject(5000, 8080, PSH | ACK, 1001, first, 1000);
	expect(ACK, 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(job.result == 1000 && job.end >= before && job.end < before + 1000);
	inject(5000, 8080, PSH | ACK, 2001, first, 1000);
	expect(ACK, 0);
	CHECK(t.ioctl(t.user, fd, FIONREAD, &value) == 0 && value == 1000);
	memset(buffer, 1, sizeof buffer);
	CHECK(t.recv(t.user, fd, buffer, 100, MSG_PEEK) == 100 && buffer[99] == 0 && buffer[100] == 1);
	CHECK(t.recv(t.user, fd, buffer, 100, 0) == 100);
	CHECK(t.recvfrom(t.user, fd, buffer, 100, 0, NULL, NULL) == 100);
	CHECK(t.readv(t.user, fd, iov, 2) == 300);
	CHECK(t.recvmsg(t.user, fd, &message, 0) == 300);
	CHECK(t.recv(t.user, fd, buffer, 1000, 0) == 200);
	CHECK(t.recv(t.user, fd, buffer, 100, MSG_DONTWAIT) == -1 && errno == EAGAIN);

	/* Readiness. A poll that gives up returns at its time. */
	thread = start(blocking_poll);
	before = now();
	CHECK(t.usleep(t.user, 100000) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(job.result == 0 && job.end >= before + 29000 && job.end < before + 31000);
	struct pollfd polled = { .fd = fd, .events = POLLIN | POLLOUT };
	CHECK(t.poll(t.user, &polled, 1, 0) == 1 && polled.revents == POLLOUT);
	int epoll = t.epoll_create(t.user, 1);
	struct epoll_event event = { .events = EPOLLOUT, .data.u64 = 77 };
	CHECK(epoll > 0 && t.epoll_ctl(t.user, epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	memset(&event, 0, sizeof event);
	CHECK(t.epoll_wait(t.user, epoll, &event, 1, 0) == 1 && event.events == EPOLLOUT && event.data.u64 == 77);

	/* Data that goes through a pipe and back. */
	int ends[2];
	CHECK(t.pipe(t.user, ends) == 0);
	inject(5000, 8080, PSH | ACK, 3001, first, 500);
	expect(ACK, 0);
	CHECK(t.splice(t.user, fd, NULL, ends[1], NULL, 500, 0) == 500);
	CHECK(t.splice(t.user, ends[0], NULL, fd, NULL, 500, 0) == 500);
	expect(PSH | ACK, 500);

	/* What is not acknowledged is sent again, and time passes until then. */
	before = now();
	long long at = packet(&flags, &seq, &len);
	CHECK(seq == first && len == 500 && at > before + 150000 && at < before + 1500000);
	inject(5000, 8080, ACK, 3501, first += 500, 0);

	/* The end. */
	CHECK(t.fcntl(t.user, fd, F_GETFL, 0L) == O_RDWR);
	CHECK(t.fcntl(t.user, fd, F_SETFL, (long)(O_RDWR | O_NONBLOCK)) == 0);
	CHECK(t.fcntl(t.user, fd, F_GETFL, 0L) == (O_RDWR | O_NONBLOCK));
	CHECK(t.shutdown(t.user, fd, SHUT_WR) == 0);
	expect(FIN | ACK, 0);
	inject(5000, 8080, FIN | ACK, 3501, first + 1, 0);
	expect(ACK, 0);
	CHECK(t.read(t.user, fd, buffer, 100) == 0);
	CHECK(t.close(t.user, fd) == 0);
	CHECK(t.close(t.user, fd) == -1 && errno == EBADF);

	/* An active open, and a peer that refuses. */
	int client = t.socket(t.user, AF_INET, SOCK_STREAM, IPPROTO_TCP);
	job.fd = client;
	thread = start(blocking_connect);
	uint8_t p[65536];
	size_t count = sizeof p;
	CHECK(t.netdev_receive(t.user, p, &count, &at) == 0 && p[33] == SYN);
	CHECK(memcmp(p + 12, &local.sin_addr, 4) == 0);
	inject(8081, p[20] << 8 | p[21], RST | ACK, 0, get32(p + 24) + 1, 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(job.result == -1);
	CHECK(t.socket(t.user, AF_INET, SOCK_DGRAM, 0) == -1 && errno == EOPNOTSUPP);

	/* TIME-WAIT ends; then nothing more will come. */
	count = sizeof p;
	CHECK(t.netdev_receive(t.user, p, &count, &at) == 0 && count == 0);
	t.free(t.user);
	CHECK(t.socket(t.user, AF_INET, SOCK_STREAM, 0) == -1);
	printf("32 functions\n");
	return 0;
}
