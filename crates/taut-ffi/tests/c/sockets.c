/* What taut.h promises of sockets, between two stacks on a Unix socket: a case for each argument. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static struct taut_net *nets[2];

static void start(void)
{
	int fds[2];

	EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	for (int i = 0; i < 2; i++) {
		struct taut_net_config config = {
			.size = sizeof config, .fd = fds[i],
			.addresses = i ? "10.0.0.2/24 fd00::2/64" : "10.0.0.1/24 fd00::1/64",
		};
		EXPECT(taut_net_new(&config, &nets[i]), 0);
		EXPECT(close(fds[i]), 0); /* the stack has a duplicate */
	}
}

static void stop(void)
{
	taut_net_free(nets[0]);
	taut_net_free(nets[1]);
}

static struct taut_socket *listen_at(const char *text, int flags)
{
	struct sockaddr_storage at;
	socklen_t len = address(text, &at);
	struct taut_socket *listener;

	EXPECT(taut_socket_listen(nets[1], (struct sockaddr *)&at, len, 16, flags, &listener), 0);
	return listener;
}

static struct taut_socket *connect_to(const char *text, int flags)
{
	struct sockaddr_storage at;
	socklen_t len = address(text, &at);
	struct taut_socket *conn;

	EXPECT(taut_socket_connect(nets[0], (struct sockaddr *)&at, len, flags, &conn), 0);
	return conn;
}

/* Waits by poll(2) until one of these events holds; returns which. */
static int await(struct taut_socket *socket, int events)
{
	struct pollfd fd = { .fd = taut_socket_fd(socket), .events = POLLIN };
	int ready;

	while ((ready = taut_socket_poll(socket, events)) == 0)
		while (poll(&fd, 1, -1) < 0)
			EXPECT(errno, EINTR);
	EXPECT(ready > 0, 1);
	return ready;
}

static void *echo(void *listener)
{
	struct taut_socket *conn;
	struct sockaddr_storage from;
	socklen_t len = sizeof from;
	char bytes[4096];
	ssize_t count;

	EXPECT(taut_socket_accept(listener, (struct sockaddr *)&from, &len, 0, &conn), 0);
	EXPECT(from.ss_family, AF_INET6);
	while ((count = taut_socket_read(conn, bytes, sizeof bytes)) > 0)
		for (ssize_t done = 0, more; done < count; done += more)
			EXPECT((more = taut_socket_write(conn, bytes + done, (size_t)(count - done))) > 0, 1);
	EXPECT(count, 0);
	taut_socket_close(conn);
	return NULL;
}

/* Threads that wait. */
static void blocking(void)
{
	struct taut_socket *listener, *conn;
	pthread_t thread;
	char bytes[4096], sent[4096];
	size_t got = 0;
	ssize_t count;

	start();
	listener = listen_at("[fd00::2]:7", 0);
	EXPECT(pthread_create(&thread, NULL, echo, listener), 0);
	conn = connect_to("[fd00::2]:7", 0);
	memset(sent, 7, sizeof sent);
	for (int i = 0; i < 16; i++) {
		EXPECT(taut_socket_write(conn, sent, sizeof sent), sizeof sent);
		for (got = 0; got < sizeof sent; got += (size_t)count)
			EXPECT((count = taut_socket_read(conn, bytes, sizeof bytes)) > 0, 1);
		EXPECT(got, sizeof sent);
	}
	EXPECT(taut_socket_shutdown(conn, SHUT_WR), 0);
	EXPECT(taut_socket_write(conn, sent, 1), -EPIPE);
	EXPECT(taut_socket_read(conn, bytes, sizeof bytes), 0);
	EXPECT(pthread_join(thread, NULL), 0);
	taut_socket_close(conn);
	taut_socket_close(listener);
	stop();
}

/* One thread, poll(2). */
static void polling(void)
{
	struct taut_socket *listener, *conn, *accepted;
	struct pollfd fd;
	char bytes[65536];
	size_t filled = 0, got = 0;
	ssize_t count;
	int64_t error = -1;

	start();
	listener = listen_at("10.0.0.2:7", SOCK_NONBLOCK);
	EXPECT(taut_socket_accept(listener, NULL, NULL, SOCK_NONBLOCK, &accepted), -EAGAIN);
	EXPECT(taut_socket_poll(listener, POLLIN), 0);
	conn = connect_to("10.0.0.2:7", SOCK_NONBLOCK);
	EXPECT(await(conn, POLLOUT), POLLOUT);
	EXPECT(taut_socket_getsockopt(conn, SOL_SOCKET, SO_ERROR, &error), 0);
	EXPECT(error, 0);
	EXPECT(await(listener, POLLIN), POLLIN);
	EXPECT(taut_socket_accept(listener, NULL, NULL, SOCK_NONBLOCK, &accepted), 0);
	EXPECT(taut_socket_read(accepted, bytes, sizeof bytes), -EAGAIN);
	/* The descriptor is unreadable until something is there, and readable as long as it is. */
	EXPECT(taut_socket_poll(accepted, POLLIN), 0);
	fd = (struct pollfd){ .fd = taut_socket_fd(accepted), .events = POLLIN };
	EXPECT(poll(&fd, 1, 0), 0);
	EXPECT(taut_socket_write(conn, "hello", 5), 5);
	EXPECT(poll(&fd, 1, -1), 1);
	EXPECT(taut_socket_poll(accepted, POLLIN), POLLIN);
	EXPECT(poll(&fd, 1, 0), 1);
	EXPECT(taut_socket_read(accepted, bytes, sizeof bytes), 5);
	EXPECT(taut_socket_poll(accepted, POLLIN), 0);
	EXPECT(poll(&fd, 1, 0), 0);
	EXPECT(taut_socket_poll(accepted, POLLIN | POLLOUT), POLLOUT);
	EXPECT(taut_socket_poll(accepted, POLLPRI), -EINVAL);
	/* Until there is no room; then there is, when the other end reads. */
	memset(bytes, 7, sizeof bytes);
	while ((count = taut_socket_write(conn, bytes, sizeof bytes)) > 0)
		filled += (size_t)count;
	EXPECT(count, -EAGAIN);
	while (taut_socket_poll(conn, POLLOUT) == 0) {
		EXPECT(await(accepted, POLLIN), POLLIN);
		EXPECT((count = taut_socket_read(accepted, bytes, sizeof bytes)) > 0, 1);
		got += (size_t)count;
	}
	EXPECT(taut_socket_shutdown(conn, SHUT_WR), 0);
	for (;;) {
		EXPECT(await(accepted, POLLIN), POLLIN);
		count = taut_socket_read(accepted, bytes, sizeof bytes);
		if (count == 0)
			break;
		EXPECT(count > 0, 1);
		got += (size_t)count;
	}
	EXPECT(got, filled);
	taut_socket_abort(accepted);
	EXPECT(await(conn, POLLIN), POLLIN);
	EXPECT(taut_socket_read(conn, bytes, sizeof bytes), -ECONNRESET);
	taut_socket_close(conn);
	/* The next connection is news again. */
	for (int i = 0; i < 3; i++) {
		EXPECT(taut_socket_poll(listener, POLLIN), 0);
		conn = connect_to("10.0.0.2:7", SOCK_NONBLOCK);
		EXPECT(await(listener, POLLIN), POLLIN);
		EXPECT(taut_socket_accept(listener, NULL, NULL, SOCK_NONBLOCK, &accepted), 0);
		EXPECT(taut_socket_poll(accepted, POLLIN), 0);
		fd.fd = taut_socket_fd(accepted);
		taut_socket_close(accepted);
		EXPECT(fcntl(fd.fd, F_GETFD), -1);
		taut_socket_close(conn);
	}
	taut_socket_close(listener);
	stop();
}

static void refusal(void)
{
	struct sockaddr_storage at;
	socklen_t len;
	struct taut_socket *conn;
	int64_t error = 0;

	start();
	len = address("10.0.0.2:9", &at);
	EXPECT(taut_socket_connect(nets[0], (struct sockaddr *)&at, len, 0, &conn), -ECONNREFUSED);
	conn = connect_to("10.0.0.2:9", SOCK_NONBLOCK);
	EXPECT(await(conn, POLLOUT), POLLOUT);
	EXPECT(taut_socket_getsockopt(conn, SOL_SOCKET, SO_ERROR, &error), 0);
	EXPECT(error, ECONNREFUSED);
	EXPECT(taut_socket_getsockopt(conn, SOL_SOCKET, SO_ERROR, &error), 0);
	EXPECT(error, 0);
	taut_socket_close(conn);
	len = address("10.0.0.9:80", &at);
	EXPECT(taut_socket_listen(nets[0], (struct sockaddr *)&at, len, 1, 0, &conn), -EADDRNOTAVAIL);
	EXPECT(taut_socket_listen(nets[0], (struct sockaddr *)&at, len, 1, 1, &conn), -EINVAL);
	stop();
}

static void udp(void)
{
	struct sockaddr_storage at, from;
	socklen_t len = address("[fd00::2]:53", &at), from_len = sizeof from;
	struct taut_socket *client, *server;
	char bytes[16];
	int fd;

	start();
	EXPECT(taut_socket_udp(nets[1], (struct sockaddr *)&at, len, 0, &server), 0);
	len = address("[::]:0", &from);
	EXPECT(taut_socket_udp(nets[0], (struct sockaddr *)&from, len, SOCK_NONBLOCK, &client), 0);
	EXPECT(taut_socket_recvfrom(client, bytes, sizeof bytes, NULL, NULL), -EAGAIN);
	EXPECT(taut_socket_sendto(client, "question", 8, (struct sockaddr *)&at, len), 8);
	EXPECT(taut_socket_recvfrom(server, bytes, sizeof bytes, (struct sockaddr *)&from, &from_len), 8);
	EXPECT(taut_socket_sendto(server, "answer", 6, (struct sockaddr *)&from, from_len), 6);
	EXPECT(await(client, POLLIN), POLLIN);
	EXPECT(taut_socket_recvfrom(client, bytes, 3, (struct sockaddr *)&from, &from_len), 3);
	EXPECT(memcmp(bytes, "ans", 3), 0);
	EXPECT(memcmp(&from, &at, sizeof(struct sockaddr_in6)), 0);
	EXPECT(taut_socket_read(client, bytes, 1), -EOPNOTSUPP);
	EXPECT(taut_socket_setsockopt(client, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 3), 0);
	/* A descriptor ends with its socket, even if it was waited for. */
	EXPECT(taut_socket_poll(client, POLLIN), 0);
	fd = taut_socket_fd(client);
	taut_socket_close(client);
	EXPECT(fcntl(fd, F_GETFD), -1);
	taut_socket_close(server);
	stop();
}

static void *wait_for_end(void *conn)
{
	char byte;

	return (void *)(intptr_t)taut_socket_read(conn, &byte, 1);
}

/* What was written arrives, although the socket is closed and the stack about to end. */
static void drain(void)
{
	int64_t inq = 0;
	struct taut_socket *listener, *conn, *accepted;
	static char bytes[65536];
	size_t got = 0;
	ssize_t count;

	start();
	listener = listen_at("10.0.0.2:7", 0);
	conn = connect_to("10.0.0.2:7", 0);
	EXPECT(taut_socket_accept(listener, NULL, NULL, 0, &accepted), 0);
	for (size_t sent = 0; sent < sizeof bytes; sent += (size_t)count)
		EXPECT((count = taut_socket_write(conn, bytes, sizeof bytes - sent)) > 0, 1);
	/* The connection is open while it is held. */
	EXPECT(taut_net_drain(nets[0], 10), -ETIMEDOUT);
	taut_socket_close(conn);
	EXPECT(taut_socket_shutdown(accepted, SHUT_WR), 0);
	EXPECT(taut_net_drain(nets[0], 60000), 0);
	/* The peer has all of it. */
	EXPECT(taut_socket_getsockopt(accepted, IPPROTO_TCP, TCP_INQ, &inq), 0);
	EXPECT(inq, sizeof bytes);
	while ((count = taut_socket_read(accepted, bytes, sizeof bytes)) > 0)
		got += (size_t)count;
	EXPECT(count, 0);
	EXPECT(got, sizeof bytes);
	taut_socket_close(accepted);
	taut_socket_close(listener);
	stop();
}

/* Ends that wake those that wait; and sockets that outlive their stack. */
static void ends(void)
{
	struct taut_socket *listener, *conn, *accepted;
	pthread_t thread;
	void *result;
	char byte;

	start();
	listener = listen_at("10.0.0.2:7", 0);
	conn = connect_to("10.0.0.2:7", 0);
	EXPECT(taut_socket_accept(listener, NULL, NULL, 0, &accepted), 0);
	EXPECT(pthread_create(&thread, NULL, wait_for_end, conn), 0);
	EXPECT(taut_socket_shutdown(conn, SHUT_RD), 0);
	EXPECT(pthread_join(thread, &result), 0);
	EXPECT((intptr_t)result, 0);
	EXPECT(pthread_create(&thread, NULL, wait_for_end, accepted), 0);
	stop();
	EXPECT(pthread_join(thread, &result), 0);
	EXPECT((intptr_t)result < 0, 1);
	EXPECT(taut_socket_read(conn, &byte, 1), -ENOTCONN);
	EXPECT(taut_socket_poll(conn, POLLIN), POLLIN);
	EXPECT(taut_socket_setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, 1), -ENOTCONN);
	taut_socket_close(conn);
	taut_socket_close(accepted);
	taut_socket_close(listener);
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
	handled = number;
}

/* A handler runs on a thread of the program. */
static void signals(void)
{
	struct sigaction action = { .sa_handler = handle };
	struct timespec pause = { .tv_nsec = 50000000 };
	sigset_t one, before, after;
	int number = 0;

	EXPECT(sigaction(SIGUSR1, &action, NULL), 0);
	EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
	start();
	EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
	for (int i = 1; i < 32; i++)
		EXPECT(sigismember(&after, i), sigismember(&before, i));
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	/* The only thread of the program takes none, and the stacks' threads neither. */
	EXPECT(pthread_sigmask(SIG_BLOCK, &one, NULL), 0);
	EXPECT(kill(getpid(), SIGUSR1), 0);
	nanosleep(&pause, NULL);
	EXPECT(handled, 0);
	EXPECT(sigwait(&one, &number), 0);
	EXPECT(number, SIGUSR1);
	stop();
}

/* What makes no sense is an error. */
static void misuse(void)
{
	struct taut_net_config config = { .size = sizeof config, .addresses = "10.0.0.1/24", .fd = -1 };
	struct sockaddr_storage at;
	struct taut_net *net;
	struct taut_socket *listener;
	char byte;

	EXPECT(taut_net_new(&config, &net), -EBADF);
	config.fd = 0;
	config.addresses = "10.0.0.1/33";
	EXPECT(taut_net_new(&config, &net), -EINVAL);
	config.flags = 2;
	EXPECT(taut_net_new(&config, &net), -EINVAL);
	EXPECT(taut_net_new(NULL, &net), -EFAULT);
	start();
	listener = listen_at("10.0.0.2:7", 0);
	EXPECT(taut_socket_read(NULL, &byte, 1), -EFAULT);
	EXPECT(taut_socket_read(listener, &byte, 1), -EOPNOTSUPP);
	EXPECT(taut_socket_setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, 1), -ENOPROTOOPT);
	EXPECT(taut_socket_connect(nets[0], (struct sockaddr *)&at, 1, 0, &listener), -EINVAL);
	EXPECT(taut_net_sysctl(nets[0], "tcp_none", "1"), -ENOENT);
	EXPECT(taut_net_sysctl(nets[0], "net.ipv4.tcp_congestion_control", "bbr"), 0);
	taut_socket_close(listener);
	taut_socket_close(NULL);
	stop();
	taut_net_free(NULL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "blocking", blocking }, { "polling", polling }, { "refusal", refusal },
		      { "udp", udp },           { "drain", drain },     { "ends", ends },
		      { "signals", signals },   { "misuse", misuse } };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (argc == 2 && strcmp(argv[1], cases[i].name) == 0)
			return cases[i].run(), printf("%s: as promised\n", argv[1]), 0;
	return 2;
}
