/*
 * An HTTP GET between two bare machines of one process, in virtual time: the program is the link, and its clock
 * goes from deadline to deadline. Prints the page.
 *
 *   cc http_get.c $(pkg-config --cflags --libs taut) -o http_get && ./http_get
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <taut.h>

struct host {
	struct taut_stack *stack;
	struct host *peer;
};

static int64_t now_ns;
static int moved;

static void check(const char *what, int64_t result)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror((int)-result));
		exit(1);
	}
}

/* The link: a packet arrives at once. */
static int transmit(void *user, const struct taut_packet *packet, uint64_t ticket)
{
	const struct host *host = user;
	unsigned char bytes[1500];
	size_t len = 0;

	(void)ticket;
	for (int i = 0; i < packet->iovcnt; i++) {
		memcpy(bytes + len, packet->iov[i].iov_base, packet->iov[i].iov_len);
		len += packet->iov[i].iov_len;
	}
	check("input", taut_stack_input(host->peer->stack, now_ns, bytes, len, 0, 0));
	moved = 1;
	return TAUT_LEFT;
}

static void start(struct host *host, struct host *peer, const char *addresses)
{
	struct taut_stack_config config = {
		.size = sizeof config, .addresses = addresses, .transmit = transmit, .user = host,
	};
	host->peer = peer;
	check("new", taut_stack_new(&config, &host->stack));
}

/* Answers a request on each connection. */
static void serve(struct host *host, const struct taut_event *event)
{
	static const char page[] = "HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nHello\n";
	char request[1024];
	uint64_t conn;

	if (event->kind == TAUT_EVENT_ACCEPT) {
		while (taut_stack_accept(host->stack, event->id, NULL, NULL, &conn) == 0)
			;
	} else if (event->kind == TAUT_EVENT_READABLE) {
		ssize_t len = taut_stack_read(host->stack, now_ns, event->id, request, sizeof request);
		if (len > 4 && memcmp(request + len - 4, "\r\n\r\n", 4) == 0) {
			check("write", taut_stack_write(host->stack, now_ns, event->id, page, sizeof page - 1));
			check("close", taut_stack_close(host->stack, now_ns, event->id));
		}
	}
}

/* Sends the request, and prints what comes. Returns 1 at the end of the page. */
static int fetch(struct host *host, const struct taut_event *event)
{
	static const char request[] = "GET / HTTP/1.0\r\n\r\n";
	char page[1024];
	ssize_t len;

	if (event->kind == TAUT_EVENT_CONNECTED) {
		check("write", taut_stack_write(host->stack, now_ns, event->id, request, sizeof request - 1));
	} else if (event->kind == TAUT_EVENT_CLOSED) {
		check("connection", event->error);
	} else if (event->kind == TAUT_EVENT_READABLE) {
		while ((len = taut_stack_read(host->stack, now_ns, event->id, page, sizeof page)) > 0)
			fwrite(page, 1, (size_t)len, stdout);
		if (len == 0)
			return 1;
		if (len != -EAGAIN)
			check("read", len);
	}
	return 0;
}

int main(void)
{
	struct host client, server;
	struct sockaddr_storage address;
	socklen_t len = sizeof address;
	struct taut_event event = { .size = sizeof event };
	uint64_t listener, conn;
	int done = 0;

	start(&client, &server, "10.0.0.1/24");
	start(&server, &client, "10.0.0.2/24");
	check("address", taut_address("10.0.0.2:80", (struct sockaddr *)&address, &len));
	check("listen", taut_stack_listen(server.stack, (struct sockaddr *)&address, len, 16, &listener));
	check("connect", taut_stack_connect(client.stack, now_ns, (struct sockaddr *)&address, len, &conn));

	while (!done) {
		int64_t due, first;
		do {
			moved = 0;
			due = taut_stack_poll(client.stack, now_ns);
			first = taut_stack_poll(server.stack, now_ns);
			check("poll", due < first ? due : first);
			while (taut_stack_event(server.stack, &event) == 1)
				serve(&server, &event), moved = 1;
			while (taut_stack_event(client.stack, &event) == 1)
				done |= fetch(&client, &event), moved = 1;
		} while (moved);
		if (due < first)
			first = due;
		if (!done && first == TAUT_NEVER) {
			fprintf(stderr, "nothing more happens\n");
			return 1;
		}
		if (first > now_ns)
			now_ns = first;
	}
	check("close", taut_stack_close(client.stack, now_ns, conn));
	taut_stack_free(client.stack);
	taut_stack_free(server.stack);
	return 0;
}
