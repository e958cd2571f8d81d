/* What taut.h promises of the bare machine, a case for each argument. tests/it/programs.rs runs them. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "check.h"

struct host {
	struct taut_stack *stack;
	struct host *peer;
	/* What transmit() returns for the next packets, and how many it has been given. */
	int answer, sent;
	uint64_t ticket;
};

static struct host hosts[2];
static int64_t now_ns;

static int transmit(void *user, const struct taut_packet *packet, uint64_t ticket)
{
	struct host *host = user;
	unsigned char bytes[1500];
	size_t len = 0;

	EXPECT(packet->size, sizeof *packet);
	host->sent++;
	host->ticket = ticket;
	if (host->answer < 0)
		return host->answer;
	for (int i = 0; i < packet->iovcnt; i++) {
		memcpy(bytes + len, packet->iov[i].iov_base, packet->iov[i].iov_len);
		len += packet->iov[i].iov_len;
	}
	EXPECT(len, packet->len);
	EXPECT(taut_stack_input(host->peer->stack, now_ns, bytes, len, 0, 0) >= 0, 1);
	return host->answer;
}

static void start(void)
{
	for (int i = 0; i < 2; i++) {
		struct taut_stack_config config = {
			.size = sizeof config, .transmit = transmit, .user = &hosts[i],
			.addresses = i ? "10.0.0.2/24 fd00::2/64" : "10.0.0.1/24 fd00::1/64",
		};
		EXPECT(taut_stack_new(&config, &hosts[i].stack), 0);
		hosts[i].peer = &hosts[!i];
	}
}

static void stop(void)
{
	EXPECT(taut_stack_free(hosts[0].stack), 0);
	EXPECT(taut_stack_free(hosts[1].stack), 0);
}

/* Polls both until neither sends. Returns the next deadline. */
static int64_t settle(void)
{
	int64_t due[2];
	int before;

	do {
		before = hosts[0].sent + hosts[1].sent;
		due[0] = taut_stack_poll(hosts[0].stack, now_ns);
		due[1] = taut_stack_poll(hosts[1].stack, now_ns);
		EXPECT(due[0] >= 0 && due[1] >= 0, 1);
	} while (hosts[0].sent + hosts[1].sent != before);
	return due[0] < due[1] ? due[0] : due[1];
}

/* Takes events until one of this kind; returns its id. */
static uint64_t await(struct host *host, uint32_t kind, int error)
{
	struct taut_event event = { .size = sizeof event };

	while (taut_stack_event(host->stack, &event) == 1) {
		if (event.kind == kind) {
			EXPECT(event.error, error);
			return event.id;
		}
	}
	fprintf(stderr, "no event %u\n", kind);
	exit(1);
}

/* Connects hosts[0] to hosts[1]. */
static void join(const char *text, uint64_t *conn, uint64_t *accepted)
{
	struct sockaddr_storage at, from;
	socklen_t len = address(text, &at), from_len = sizeof from;
	uint64_t listener;

	EXPECT(taut_stack_listen(hosts[1].stack, (struct sockaddr *)&at, len, 1, &listener), 0);
	EXPECT(taut_stack_accept(hosts[1].stack, listener, NULL, NULL, accepted), -EAGAIN);
	EXPECT(taut_stack_connect(hosts[0].stack, now_ns, (struct sockaddr *)&at, len, conn), 0);
	settle();
	EXPECT(await(&hosts[0], TAUT_EVENT_CONNECTED, 0), *conn);
	EXPECT(await(&hosts[1], TAUT_EVENT_ACCEPT, 0), listener);
	EXPECT(taut_stack_accept(hosts[1].stack, listener, (struct sockaddr *)&from, &from_len, accepted), 0);
	EXPECT(from_len, len);
	EXPECT(from.ss_family, at.ss_family);
}

static void tcp(void)
{
	uint64_t conn, accepted;
	char bytes[16];

	start();
	join("[fd00::2]:80", &conn, &accepted);
	EXPECT(taut_stack_read(hosts[1].stack, now_ns, accepted, bytes, sizeof bytes), -EAGAIN);
	EXPECT(taut_stack_write(hosts[0].stack, now_ns, conn, "hello", 5), 5);
	EXPECT(taut_stack_shutdown(hosts[0].stack, now_ns, conn, SHUT_WR), 0);
	EXPECT(taut_stack_write(hosts[0].stack, now_ns, conn, "hello", 5), -EPIPE);
	settle();
	EXPECT(await(&hosts[1], TAUT_EVENT_READABLE, 0), accepted);
	EXPECT(taut_stack_read(hosts[1].stack, now_ns, accepted, bytes, sizeof bytes), 5);
	EXPECT(memcmp(bytes, "hello", 5), 0);
	EXPECT(taut_stack_read(hosts[1].stack, now_ns, accepted, bytes, sizeof bytes), 0);
	/* A reset, and what the peer learns of it. */
	EXPECT(taut_stack_abort(hosts[1].stack, now_ns, accepted), 0);
	settle();
	EXPECT(await(&hosts[0], TAUT_EVENT_CLOSED, -ECONNRESET), conn);
	EXPECT(taut_stack_read(hosts[0].stack, now_ns, conn, bytes, sizeof bytes), -ECONNRESET);
	EXPECT(taut_stack_close(hosts[0].stack, now_ns, conn), 0);
	stop();
}

static void refusal(void)
{
	struct sockaddr_storage at;
	socklen_t len = address("10.0.0.2:9", &at);
	uint64_t conn;
	int64_t error = 0;

	start();
	EXPECT(taut_stack_connect(hosts[0].stack, now_ns, (struct sockaddr *)&at, len, &conn), 0);
	settle();
	EXPECT(await(&hosts[0], TAUT_EVENT_CLOSED, -ECONNREFUSED), conn);
	EXPECT(taut_stack_getsockopt(hosts[0].stack, now_ns, conn, SOL_SOCKET, SO_ERROR, &error), 0);
	EXPECT(error, ECONNREFUSED);
	len = address("[fd01::1]:0", &at);
	EXPECT(taut_stack_listen(hosts[0].stack, (struct sockaddr *)&at, len, 1, &conn), -EADDRNOTAVAIL);
	stop();
}

static void udp(void)
{
	struct sockaddr_storage at, from;
	socklen_t len = address("10.0.0.2:53", &at), from_len = sizeof from;
	uint64_t client, server;
	char bytes[16];

	start();
	EXPECT(taut_stack_udp(hosts[1].stack, (struct sockaddr *)&at, len, &server), 0);
	len = address("10.0.0.1:0", &at);
	EXPECT(taut_stack_udp(hosts[0].stack, (struct sockaddr *)&at, len, &client), 0);
	len = address("10.0.0.2:53", &at);
	EXPECT(taut_stack_sendto(hosts[0].stack, now_ns, client, "question", 8, (struct sockaddr *)&at, len), 8);
	settle();
	EXPECT(await(&hosts[1], TAUT_EVENT_READABLE, 0), server);
	EXPECT(taut_stack_recvfrom(hosts[1].stack, server, bytes, 4, (struct sockaddr *)&from, &from_len), 4);
	EXPECT(taut_stack_recvfrom(hosts[1].stack, server, bytes, 4, NULL, NULL), -EAGAIN);
	EXPECT(taut_stack_sendto(hosts[1].stack, now_ns, server, "", 0, (struct sockaddr *)&from, from_len), 0);
	settle();
	EXPECT(await(&hosts[0], TAUT_EVENT_READABLE, 0), client);
	EXPECT(taut_stack_recvfrom(hosts[0].stack, client, bytes, sizeof bytes, (struct sockaddr *)&from, &from_len), 0);
	EXPECT(memcmp(&from, &at, sizeof(struct sockaddr_in)), 0);
	EXPECT(taut_stack_sendto(hosts[0].stack, now_ns, client, &at, 65508, (struct sockaddr *)&at, 0), -EINVAL);
	EXPECT(taut_stack_close(hosts[0].stack, now_ns, client), 0);
	EXPECT(taut_stack_recvfrom(hosts[0].stack, client, bytes, sizeof bytes, NULL, NULL), -EBADF);
	stop();
}

/* Fates of packets, and tickets. */
static void device(void)
{
	uint64_t conn, accepted, ticket;
	int sent;
	char bytes[16];

	start();
	join("10.0.0.2:80", &conn, &accepted);
	/* No room: offered again by a later poll, and not by this one. */
	hosts[0].answer = -EAGAIN;
	EXPECT(taut_stack_write(hosts[0].stack, now_ns, conn, "hello", 5), 5);
	sent = hosts[0].sent;
	taut_stack_poll(hosts[0].stack, now_ns);
	EXPECT(hosts[0].sent, sent + 1);
	hosts[0].answer = TAUT_KEPT;
	taut_stack_poll(hosts[0].stack, now_ns);
	EXPECT(hosts[0].sent, sent + 2);
	EXPECT(taut_stack_read(hosts[1].stack, now_ns, accepted, bytes, sizeof bytes), 5);
	/* Its ticket, once. */
	ticket = hosts[0].ticket;
	EXPECT(taut_stack_complete(hosts[0].stack, now_ns, ticket + 1), -ENOENT);
	EXPECT(taut_stack_complete(hosts[0].stack, now_ns, ticket), 0);
	EXPECT(taut_stack_complete(hosts[0].stack, now_ns, ticket), -ENOENT);
	/* Dropped: sent again later. */
	settle();
	hosts[0].answer = -ENOBUFS;
	EXPECT(taut_stack_write(hosts[0].stack, now_ns, conn, "again", 5), 5);
	taut_stack_poll(hosts[0].stack, now_ns);
	EXPECT(taut_stack_read(hosts[1].stack, now_ns, accepted, bytes, sizeof bytes), -EAGAIN);
	hosts[0].answer = TAUT_LEFT;
	for (int tries = 0; tries < 100; tries++) {
		int64_t due = settle();
		now_ns = due == TAUT_NEVER || due < now_ns ? now_ns : due;
	}
	EXPECT(taut_stack_read(hosts[1].stack, now_ns, accepted, bytes, sizeof bytes), 5);
	/* Freed with tickets out. */
	hosts[0].answer = TAUT_KEPT;
	EXPECT(taut_stack_write(hosts[0].stack, now_ns, conn, "hello", 5), 5);
	taut_stack_poll(hosts[0].stack, now_ns);
	stop();
}

static int calls_back(void *user, const struct taut_packet *packet, uint64_t ticket)
{
	struct host *host = user;
	struct taut_event event = { .size = sizeof event };
	char byte = 0;

	(void)packet;
	EXPECT(taut_stack_poll(host->stack, 0), -EBUSY);
	EXPECT(taut_stack_complete(host->stack, 0, ticket), -EBUSY);
	EXPECT(taut_stack_input(host->stack, 0, &byte, 1, 0, 0), -EBUSY);
	EXPECT(taut_stack_event(host->stack, &event), -EBUSY);
	EXPECT(taut_stack_close(host->stack, 0, 1 << 30), -EBUSY);
	EXPECT(taut_stack_free(host->stack), -EBUSY);
	host->sent++;
	return TAUT_LEFT;
}

static void reentry(void)
{
	struct taut_stack_config config = {
		.size = sizeof config, .addresses = "10.0.0.1/24", .transmit = calls_back, .user = &hosts[0],
	};
	struct sockaddr_storage at;
	socklen_t len = address("10.0.0.2:9", &at);
	uint64_t conn;

	EXPECT(taut_stack_new(&config, &hosts[0].stack), 0);
	EXPECT(taut_stack_connect(hosts[0].stack, 0, (struct sockaddr *)&at, len, &conn), 0);
	EXPECT(taut_stack_poll(hosts[0].stack, 0) > 0, 1);
	EXPECT(hosts[0].sent, 1);
	EXPECT(taut_stack_free(hosts[0].stack), 0);
}

/* What makes no sense is an error. */
static void misuse(void)
{
	struct sockaddr_storage at;
	socklen_t len = address("10.0.0.2:80", &at), small = 8;
	struct taut_event event = { .size = 1 };
	uint64_t conn, accepted, gone;
	int64_t value;
	struct {
		struct taut_stack_config config;
		uint64_t unknown;
	} newer = { .config = { .size = sizeof newer, .addresses = "10.0.0.1/24", .transmit = transmit } };

	start();
	join("10.0.0.2:80", &conn, &accepted);
	EXPECT(taut_stack_read(NULL, 0, conn, &at, 1), -EFAULT);
	EXPECT(taut_stack_read(hosts[0].stack, 0, conn, NULL, 1), -EFAULT);
	EXPECT(taut_stack_read(hosts[0].stack, 0, conn, NULL, 0), 0);
	EXPECT(taut_stack_read(hosts[0].stack, -1, conn, &at, 1), -EINVAL);
	EXPECT(taut_stack_read(hosts[0].stack, 0, 0, &at, 1), -EBADF);
	EXPECT(taut_stack_read(hosts[0].stack, 0, conn + 1, &at, 1), -EBADF);
	EXPECT(taut_stack_accept(hosts[0].stack, conn, NULL, NULL, &gone), -EINVAL);
	EXPECT(taut_stack_recvfrom(hosts[0].stack, conn, &at, 1, NULL, NULL), -EOPNOTSUPP);
	EXPECT(taut_stack_shutdown(hosts[0].stack, 0, conn, 7), -EINVAL);
	EXPECT(taut_stack_event(hosts[0].stack, &event), -EINVAL);
	EXPECT(taut_stack_input(hosts[0].stack, 0, &at, sizeof at, 0, 2), -EINVAL);
	EXPECT(taut_stack_input(hosts[0].stack, 0, &at, sizeof at, 0, 0), 0);
	EXPECT(taut_address("example.com:80", (struct sockaddr *)&at, &len), -EINVAL);
	EXPECT(taut_address("10.0.0.2:80", (struct sockaddr *)&at, &small), -EINVAL);
	at.ss_family = AF_UNIX;
	EXPECT(taut_stack_connect(hosts[0].stack, 0, (struct sockaddr *)&at, sizeof at, &gone), -EAFNOSUPPORT);
	EXPECT(taut_stack_sysctl(hosts[0].stack, "tcp_none", "1"), -ENOENT);
	EXPECT(taut_stack_sysctl(hosts[0].stack, "net.ipv4.tcp_congestion_control", "none"), -EINVAL);
	EXPECT(taut_stack_sysctl(hosts[0].stack, "net.ipv4.tcp_congestion_control", "bbr"), 0);
	/* Options. */
	EXPECT(taut_stack_setsockopt(hosts[0].stack, 0, conn, IPPROTO_TCP, TCP_NODELAY, 1), 0);
	EXPECT(taut_stack_setsockopt(hosts[0].stack, 0, conn, SOL_SOCKET, SO_SNDBUF, 65536), 0);
	EXPECT(taut_stack_getsockopt(hosts[0].stack, 0, conn, SOL_SOCKET, SO_SNDBUF, &value), 0);
	EXPECT(value, 131072); /* socket(7): doubled */
	EXPECT(taut_stack_getsockopt(hosts[0].stack, 0, conn, IPPROTO_TCP, TCP_MAXSEG, &value), 0);
	EXPECT(value, 1448); /* 1500 - 20 - 20 - 12 for timestamps */
	EXPECT(taut_stack_setsockopt(hosts[0].stack, 0, conn, SOL_SOCKET, SO_SNDBUF, -1), -EINVAL);
	EXPECT(taut_stack_setsockopt(hosts[0].stack, 0, conn, 9999, 1, 1), -ENOPROTOOPT);
	/* An id that was closed stays so. */
	EXPECT(taut_stack_abort(hosts[0].stack, 0, conn), 0);
	settle();
	gone = conn;
	EXPECT(taut_stack_connect(hosts[0].stack, 0, (struct sockaddr *)&at, 0, &conn), -EINVAL);
	len = address("10.0.0.2:80", &at);
	EXPECT(taut_stack_connect(hosts[0].stack, 0, (struct sockaddr *)&at, len, &conn), 0);
	EXPECT(conn != gone, 1);
	EXPECT(taut_stack_write(hosts[0].stack, 0, gone, &at, 1), -EBADF);
	EXPECT(taut_stack_close(hosts[0].stack, 0, gone), -EBADF);
	stop();
	/* Structs of another version. */
	EXPECT(taut_stack_new(&newer.config, &hosts[0].stack), 0);
	EXPECT(taut_stack_free(hosts[0].stack), 0);
	newer.unknown = 1;
	EXPECT(taut_stack_new(&newer.config, &hosts[0].stack), -E2BIG);
	newer.config.size = 8;
	EXPECT(taut_stack_new(&newer.config, &hosts[0].stack), -EINVAL);
	newer.config.size = sizeof newer.config;
	newer.config.transmit = NULL;
	EXPECT(taut_stack_new(&newer.config, &hosts[0].stack), -EFAULT);
	EXPECT(taut_stack_free(NULL), 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "tcp", tcp },         { "refusal", refusal }, { "udp", udp },
		      { "device", device }, { "reentry", reentry }, { "misuse", misuse } };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (argc == 2 && strcmp(argv[1], cases[i].name) == 0)
			return cases[i].run(), printf("%s: as promised\n", argv[1]), 0;
	return 2;
}
