/* TCP_INFO and TCP_CONGESTION, by the struct of <linux/tcp.h>, which does not go together with <netinet/tcp.h>. */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* include/net/tcp_states.h */
enum { ESTABLISHED = 1, FIN_WAIT2 = 5, CLOSE_WAIT = 8 };

#define MS 1000000LL
/* 1500 - 20 - 20 - 12 for timestamps */
#define MSS 1448

/* ---- two machines, whose packets arrive at once: the test decides when each one sends ---- */

static struct taut_stack *stacks[2];
static int64_t now_ns;

static int transmit(void *user, const struct taut_packet *packet, uint64_t ticket)
{
	struct taut_stack *peer = user ? stacks[0] : stacks[1];
	unsigned char bytes[1500];
	size_t len = 0;

	(void)ticket;
	for (int i = 0; i < packet->iovcnt; i++) {
		memcpy(bytes + len, packet->iov[i].iov_base, packet->iov[i].iov_len);
		len += packet->iov[i].iov_len;
	}
	EXPECT(taut_stack_input(peer, now_ns, bytes, len, 0, 0) >= 0, 1);
	return TAUT_LEFT;
}

/* Connects the first to the second: 30 ms between its SYN and the SYN-ACK, 20 ms from there to its ACK. */
static void join(uint64_t *conn, uint64_t *accepted)
{
	struct sockaddr_storage at;
	socklen_t len = address("10.0.0.2:80", &at);
	uint64_t listener;

	for (int i = 0; i < 2; i++) {
		struct taut_stack_config config = {
			.size = sizeof config, .transmit = transmit, .user = i ? &stacks[1] : NULL,
			.addresses = i ? "10.0.0.2/24" : "10.0.0.1/24",
		};
		EXPECT(taut_stack_new(&config, &stacks[i]), 0);
	}
	EXPECT(taut_stack_listen(stacks[1], (struct sockaddr *)&at, len, 1, &listener), 0);
	EXPECT(taut_stack_connect(stacks[0], now_ns, (struct sockaddr *)&at, len, conn), 0);
	taut_stack_poll(stacks[0], now_ns);
	now_ns += 30 * MS;
	taut_stack_poll(stacks[1], now_ns);
	now_ns += 20 * MS;
	taut_stack_poll(stacks[0], now_ns);
	EXPECT(taut_stack_accept(stacks[1], listener, NULL, NULL, accepted), 0);
}

static void stop(void)
{
	EXPECT(taut_stack_free(stacks[0]), 0);
	EXPECT(taut_stack_free(stacks[1]), 0);
}

static struct tcp_info info_of(int which, uint64_t conn)
{
	struct tcp_info info;
	socklen_t len = sizeof info;

	EXPECT(taut_stack_getsockopt_bytes(stacks[which], now_ns, conn, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	EXPECT(len, sizeof info);
	return info;
}

static void machine(void)
{
	uint64_t conn, accepted;
	struct tcp_info info, other;
	unsigned char raw[300];
	static char bytes[3 * MSS];
	socklen_t len = sizeof raw;
	uint32_t word;

	join(&conn, &accepted);
	info = info_of(0, conn);
	EXPECT(info.tcpi_state, ESTABLISHED);
	EXPECT(info.tcpi_ca_state, TCP_CA_Open);
	EXPECT(info.tcpi_options, TCPI_OPT_TIMESTAMPS | TCPI_OPT_SACK | TCPI_OPT_WSCALE);
	/* RFC 6298 2.2: the first sample and half of it; RTO = SRTT + max(4 * RTTVAR, 200 ms), as in Linux. */
	EXPECT(info.tcpi_rtt, 30000);
	EXPECT(info.tcpi_rttvar, 15000);
	EXPECT(info.tcpi_min_rtt, 30000);
	EXPECT(info.tcpi_rto, 230000);
	EXPECT(info.tcpi_snd_mss, MSS);
	EXPECT(info.tcpi_advmss, MSS);
	EXPECT(info.tcpi_pmtu, 1500);
	EXPECT(info.tcpi_rcv_mss, 536); /* Linux: TCP_MSS_DEFAULT, until data has arrived */
	EXPECT(info.tcpi_snd_cwnd, 10); /* RFC 6928 */
	EXPECT(info.tcpi_snd_ssthresh, 0x7fffffff); /* Linux: TCP_INFINITE_SSTHRESH */
	EXPECT(info.tcpi_reordering, 3);
	EXPECT(info.tcpi_segs_out, 2); /* SYN, ACK */
	EXPECT(info.tcpi_segs_in, 1); /* SYN-ACK */
	EXPECT(info.tcpi_max_pacing_rate == UINT64_MAX, 1);
	other = info_of(1, accepted);
	EXPECT(other.tcpi_rtt, 20000);
	EXPECT(info.tcpi_snd_wscale, other.tcpi_rcv_wscale);
	EXPECT(info.tcpi_rcv_wscale, other.tcpi_snd_wscale);
	/* Three segments, not acknowledged; 250 ms pass. */
	EXPECT(taut_stack_write(stacks[0], now_ns, conn, bytes, sizeof bytes), sizeof bytes);
	taut_stack_poll(stacks[0], now_ns);
	info = info_of(0, conn);
	EXPECT(info.tcpi_unacked, 3);
	EXPECT(info.tcpi_data_segs_out, 3);
	EXPECT(info.tcpi_bytes_sent, sizeof bytes);
	EXPECT(info.tcpi_bytes_acked, 0);
	EXPECT(info.tcpi_notsent_bytes, 0);
	other = info_of(1, accepted);
	EXPECT(other.tcpi_data_segs_in, 3);
	EXPECT(other.tcpi_bytes_received, sizeof bytes);
	EXPECT(other.tcpi_rcv_mss, MSS);
	taut_stack_poll(stacks[1], now_ns);
	now_ns += 250 * MS;
	info = info_of(0, conn);
	EXPECT(info.tcpi_unacked, 0);
	EXPECT(info.tcpi_bytes_acked, sizeof bytes);
	EXPECT(info.tcpi_delivered, 3);
	EXPECT(info.tcpi_last_data_sent, 250);
	EXPECT(info.tcpi_last_ack_recv, 250);
	EXPECT(info_of(1, accepted).tcpi_last_data_recv, 250);
	/* A limit of the rate, in bytes per second. */
	EXPECT(taut_stack_setsockopt(stacks[0], now_ns, conn, SOL_SOCKET, SO_MAX_PACING_RATE, 125000), 0);
	EXPECT(info_of(0, conn).tcpi_max_pacing_rate, 125000);
	/* The end of one half. */
	EXPECT(taut_stack_shutdown(stacks[0], now_ns, conn, SHUT_WR), 0);
	taut_stack_poll(stacks[0], now_ns);
	now_ns += 200 * MS; /* a delayed ACK is there */
	taut_stack_poll(stacks[1], now_ns);
	EXPECT(info_of(0, conn).tcpi_state, FIN_WAIT2);
	EXPECT(info_of(1, accepted).tcpi_state, CLOSE_WAIT);
	/* Linux 6.12: 248 bytes, tcpi_rcv_wnd behind tcpi_snd_wnd; fewer for those who have less room. */
	EXPECT(taut_stack_getsockopt_bytes(stacks[0], now_ns, conn, IPPROTO_TCP, TCP_INFO, raw, &len), 0);
	EXPECT(len, 248);
	info = info_of(0, conn);
	EXPECT(memcmp(raw, &info, offsetof(struct tcp_info, tcpi_snd_wnd) + 4), 0);
	memcpy(&word, raw + offsetof(struct tcp_info, tcpi_snd_wnd) + 4, 4);
	EXPECT(word, info_of(1, accepted).tcpi_snd_wnd); /* what one offers, the other has */
	len = 7;
	memset(raw, 0xee, sizeof raw);
	EXPECT(taut_stack_getsockopt_bytes(stacks[0], now_ns, conn, IPPROTO_TCP, TCP_INFO, raw, &len), 0);
	EXPECT(len, 7);
	EXPECT(raw[0], FIN_WAIT2);
	EXPECT(raw[7], 0xee);
	EXPECT(taut_stack_getsockopt_bytes(stacks[0], now_ns, conn, IPPROTO_TCP, TCP_INFO, raw, NULL), -EFAULT);
	EXPECT(taut_stack_getsockopt_bytes(stacks[0], now_ns, conn, IPPROTO_TCP, TCP_NODELAY, raw, &len), -ENOPROTOOPT);
	EXPECT(taut_stack_getsockopt_bytes(stacks[0], now_ns, 0, IPPROTO_TCP, TCP_INFO, raw, &len), -EBADF);
	stop();
}

/* ---- sockets: of taut, and of the kernel at its loopback ---- */

static struct taut_net *nets[2];
/* A connection of each, and its other end. */
static struct taut_socket *own, *own_peer, *own_listener;
static int kernels, kernels_peer;

static void start_sockets(void)
{
	struct sockaddr_in loopback = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_storage at;
	socklen_t len = address("10.0.0.2:7", &at), loopback_len = sizeof loopback;
	int fds[2], listener;

	EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	for (int i = 0; i < 2; i++) {
		struct taut_net_config config = {
			.size = sizeof config, .fd = fds[i], .addresses = i ? "10.0.0.2/24" : "10.0.0.1/24",
		};
		EXPECT(taut_net_new(&config, &nets[i]), 0);
		EXPECT(close(fds[i]), 0);
	}
	EXPECT(taut_socket_listen(nets[1], (struct sockaddr *)&at, len, 1, 0, &own_listener), 0);
	EXPECT(taut_socket_connect(nets[0], (struct sockaddr *)&at, len, 0, &own), 0);
	EXPECT(taut_socket_accept(own_listener, NULL, NULL, 0, &own_peer), 0);

	EXPECT((listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0, 1);
	EXPECT(bind(listener, (struct sockaddr *)&loopback, sizeof loopback), 0);
	EXPECT(listen(listener, 1), 0);
	EXPECT(getsockname(listener, (struct sockaddr *)&loopback, &loopback_len), 0);
	EXPECT((kernels = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0, 1);
	EXPECT(connect(kernels, (struct sockaddr *)&loopback, sizeof loopback), 0);
	EXPECT((kernels_peer = accept(listener, NULL, NULL)) >= 0, 1);
	EXPECT(close(listener), 0);
}

static void stop_sockets(void)
{
	taut_socket_close(own);
	taut_socket_close(own_peer);
	taut_socket_close(own_listener);
	taut_net_free(nets[0]);
	taut_net_free(nets[1]);
	EXPECT(close(kernels), 0);
	EXPECT(close(kernels_peer), 0);
}

static int kernel_set(int name, const void *value, socklen_t len)
{
	return setsockopt(kernels, IPPROTO_TCP, name, value, len) ? -errno : 0;
}

static int kernel_get(int name, void *value, socklen_t *len)
{
	return getsockopt(kernels, IPPROTO_TCP, name, value, len) ? -errno : 0;
}

/* Sets it at taut's socket and at the kernel's, which return the same. */
static int set_both(int name, const void *value, socklen_t len)
{
	int result = taut_socket_setsockopt_bytes(own, IPPROTO_TCP, name, value, len);

	EXPECT(result, kernel_set(name, value, len));
	return result;
}

/* The name of the congestion control, which is the same at both: as many bytes as there is room for. */
static const char *name_of_both(socklen_t room)
{
	static char name[32], kernels_name[32];
	socklen_t len = room, kernels_len = room;

	memset(name, 'x', sizeof name);
	memset(kernels_name, 'x', sizeof kernels_name);
	EXPECT(taut_socket_getsockopt_bytes(own, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
	EXPECT(kernel_get(TCP_CONGESTION, kernels_name, &kernels_len), 0);
	EXPECT(len, kernels_len);
	EXPECT(memcmp(name, kernels_name, sizeof name), 0);
	return name;
}

static void congestion(void)
{
	char name[32];
	socklen_t len = sizeof name;
	uint64_t conn, accepted;

	start_sockets();
	EXPECT(taut_socket_getsockopt_bytes(own, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
	EXPECT(len, 16);
	EXPECT(strcmp(name, "cubic"), 0);
	EXPECT(set_both(TCP_CONGESTION, "reno", 4), 0);
	EXPECT(strcmp(name_of_both(sizeof name), "reno"), 0);
	EXPECT(memcmp(name_of_both(3), "renx", 4), 0);
	/* A zero byte ends the name. */
	EXPECT(set_both(TCP_CONGESTION, "reno\0and more", 13), 0);
	EXPECT(set_both(TCP_CONGESTION, "no-such-control", 15), -ENOENT);
	EXPECT(set_both(TCP_CONGESTION, "", 1), -ENOENT);
	EXPECT(set_both(TCP_CONGESTION, "reno", 0), -EINVAL);
	EXPECT(strcmp(name_of_both(sizeof name), "reno"), 0);
	/* taut's own: with parameters; not as a number; not of other kinds of sockets. */
	EXPECT(taut_socket_setsockopt_bytes(own, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3), 0);
	EXPECT(taut_socket_setsockopt_bytes(own, IPPROTO_TCP, TCP_CONGESTION, "bbr:none=1", 10), -EINVAL);
	EXPECT(taut_socket_setsockopt(own, IPPROTO_TCP, TCP_CONGESTION, 1), -ENOPROTOOPT);
	EXPECT(taut_socket_setsockopt_bytes(own, IPPROTO_TCP, TCP_INFO, name, 4), -ENOPROTOOPT);
	EXPECT(taut_socket_setsockopt_bytes(own_listener, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3), -EOPNOTSUPP);
	EXPECT(taut_socket_setsockopt_bytes(own, IPPROTO_TCP, TCP_CONGESTION, NULL, 3), -EFAULT);
	len = sizeof name;
	EXPECT(taut_socket_getsockopt_bytes(own, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
	EXPECT(strcmp(name, "bbr"), 0);
	stop_sockets();

	join(&conn, &accepted);
	EXPECT(taut_stack_setsockopt_bytes(stacks[0], now_ns, conn, IPPROTO_TCP, TCP_CONGESTION, "dctcp", 5), 0);
	EXPECT(taut_stack_setsockopt_bytes(stacks[0], now_ns, conn, IPPROTO_TCP, TCP_CONGESTION, "none", 4), -ENOENT);
	len = sizeof name;
	EXPECT(taut_stack_getsockopt_bytes(stacks[0], now_ns, conn, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
	EXPECT(len, 16);
	EXPECT(strcmp(name, "dctcp"), 0);
	stop();
}

/* Fields that do not depend on a path are the kernel's. */
static void sockets(void)
{
	struct tcp_info info, kernels_info;
	socklen_t len = sizeof info, kernels_len = sizeof kernels_info;
	static char bytes[10000];

	start_sockets();
	EXPECT(taut_socket_write(own, bytes, sizeof bytes), sizeof bytes);
	EXPECT(write(kernels, bytes, sizeof bytes), sizeof bytes);
	for (ssize_t got = 0, more; got < (ssize_t)sizeof bytes; got += more)
		EXPECT((more = taut_socket_read(own_peer, bytes, sizeof bytes - (size_t)got)) > 0, 1);
	EXPECT(recv(kernels_peer, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
	EXPECT(taut_socket_getsockopt_bytes(own, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	EXPECT(kernel_get(TCP_INFO, &kernels_info, &kernels_len), 0);
	EXPECT(len, kernels_len);
	EXPECT(info.tcpi_state, kernels_info.tcpi_state);
	EXPECT(info.tcpi_ca_state, kernels_info.tcpi_ca_state);
	EXPECT(info.tcpi_snd_ssthresh, kernels_info.tcpi_snd_ssthresh);
	EXPECT(info.tcpi_rcv_mss, kernels_info.tcpi_rcv_mss);
	EXPECT(info.tcpi_reordering, kernels_info.tcpi_reordering);
	EXPECT(info.tcpi_bytes_sent, kernels_info.tcpi_bytes_sent);
	EXPECT(info.tcpi_bytes_retrans, kernels_info.tcpi_bytes_retrans);
	EXPECT(info.tcpi_max_pacing_rate == kernels_info.tcpi_max_pacing_rate, 1);
	EXPECT(info.tcpi_notsent_bytes, kernels_info.tcpi_notsent_bytes);
	EXPECT(info.tcpi_snd_mss, MSS);
	/* The other end has got all. */
	len = sizeof info;
	EXPECT(taut_socket_getsockopt_bytes(own_peer, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	EXPECT(info.tcpi_bytes_received, sizeof bytes);
	EXPECT(info.tcpi_rcv_mss, MSS);
	EXPECT(taut_socket_getsockopt_bytes(own_listener, IPPROTO_TCP, TCP_INFO, &info, &len), -EOPNOTSUPP);
	stop_sockets();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "machine", machine }, { "congestion", congestion }, { "sockets", sockets } };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (argc == 2 && strcmp(argv[1], cases[i].name) == 0)
			return cases[i].run(), printf("%s: as promised\n", argv[1]), 0;
	return 2;
}
