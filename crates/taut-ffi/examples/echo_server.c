/*
 * An echo server on a TUN: one thread, poll(2), any number of connections, and UDP at the same port. The kernel is
 * 10.9.0.1 on the interface, the server 10.9.0.2; needs the right to make one (root).
 *
 *   cc echo_server.c $(pkg-config --cflags --libs taut) -o echo_server && ./echo_server taut0
 *   nc 10.9.0.2 7
 *
 * With a second argument, it ends when so many connections have ended.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <taut.h>

#define MOST 1024

/* A listener, a UDP socket or a connection, and what is to be sent on it. */
struct client {
	struct taut_socket *socket;
	size_t begin, end;
	char bytes[16384];
};

static void check(const char *what, int result)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror(-result));
		exit(1);
	}
}

/* Copies what can be copied. Returns what to wait for, or 0 at the end. */
static int echo(struct client *client)
{
	for (;;) {
		ssize_t count;

		while (client->begin < client->end) {
			count = taut_socket_write(client->socket, client->bytes + client->begin,
						  client->end - client->begin);
			if (count == -EAGAIN)
				return POLLOUT;
			if (count < 0)
				return 0;
			client->begin += (size_t)count;
		}
		count = taut_socket_read(client->socket, client->bytes, sizeof client->bytes);
		if (count == -EAGAIN)
			return POLLIN;
		if (count <= 0)
			return 0;
		client->begin = 0;
		client->end = (size_t)count;
	}
}

static int echo_datagrams(struct taut_socket *udp)
{
	struct sockaddr_storage from;
	char bytes[65536];
	ssize_t count;

	for (;;) {
		socklen_t len = sizeof from;

		count = taut_socket_recvfrom(udp, bytes, sizeof bytes, (struct sockaddr *)&from, &len);
		if (count < 0)
			return POLLIN;
		/* One that finds no room is lost, as UDP's may be. */
		taut_socket_sendto(udp, bytes, (size_t)count, (struct sockaddr *)&from, len);
	}
}

int main(int argc, char **argv)
{
	static struct client *clients[MOST];
	static struct pollfd fds[MOST];
	struct taut_net_config config = {
		.size = sizeof config,
		.addresses = "10.9.0.2/24 fd09::2/64",
		.host_addresses = "10.9.0.1/24 fd09::1/64",
		.tun = argc > 1 ? argv[1] : "taut%d",
	};
	struct taut_net *net;
	struct taut_socket *listener, *udp;
	struct sockaddr_storage address;
	socklen_t len = sizeof address;
	long ended = 0, most = argc > 2 ? atol(argv[2]) : 0;
	size_t count = 2;

	check("taut_net_new", taut_net_new(&config, &net));
	check("address", taut_address("[::]:7", (struct sockaddr *)&address, &len));
	check("listen",
	      taut_socket_listen(net, (struct sockaddr *)&address, len, 128, SOCK_NONBLOCK, &listener));
	check("udp", taut_socket_udp(net, (struct sockaddr *)&address, len, SOCK_NONBLOCK, &udp));
	fds[0] = (struct pollfd){ .fd = taut_socket_fd(listener), .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = taut_socket_fd(udp), .events = POLLIN };
	printf("listening at 10.9.0.2 and fd09::2, port 7\n");
	fflush(stdout);

	while (most == 0 || ended < most) {
		if (poll(fds, (nfds_t)count, -1) < 0 && errno != EINTR)
			check("poll", -errno);
		while (fds[0].revents && count < MOST && taut_socket_poll(listener, POLLIN) > 0) {
			struct client *client = calloc(1, sizeof *client);

			if (client && taut_socket_accept(listener, NULL, NULL, SOCK_NONBLOCK, &client->socket) == 0) {
				clients[count] = client;
				fds[count] = (struct pollfd){ .fd = taut_socket_fd(client->socket), .events = POLLIN };
				fds[count++].revents = POLLIN;
			} else {
				free(client);
				break;
			}
		}
		while (fds[1].revents && taut_socket_poll(udp, POLLIN) > 0)
			echo_datagrams(udp);
		for (size_t i = 2; i < count; i++) {
			int wanted = POLLIN;

			/* Until nothing can be done, so that the descriptor is unreadable. */
			while (fds[i].revents && (wanted = echo(clients[i])) != 0 &&
			       taut_socket_poll(clients[i]->socket, wanted) > 0)
				;
			if (wanted == 0) {
				taut_socket_close(clients[i]->socket);
				free(clients[i]);
				clients[i] = clients[--count];
				fds[i--] = fds[count];
				ended++;
			}
		}
	}
	taut_socket_close(udp);
	taut_socket_close(listener);
	/* What was echoed last is on its way. */
	taut_net_drain(net, 10000);
	taut_net_free(net);
	return 0;
}
