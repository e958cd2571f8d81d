/*
 * A device that completes packets late, as a network card or a tunnel's worker does: 10 Mbit/s, and each ticket comes
 * back when its packet's last bit has left, in pairs, the later one first. Sends 1 MB over it in virtual time, and
 * prints how much of it was below TCP at most: TCP Small Queues allow a millisecond of the line's rate or two packets,
 * though the connection's window is much larger.
 *
 *   cc late.c $(pkg-config --cflags --libs taut) -o late && ./late
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <taut.h>

#define TOTAL 1000000
#define NS_PER_BYTE 800 /* 10 Mbit/s */
#define DELAY_NS 10000000

struct packet {
	int64_t left_ns;
	uint64_t ticket;
	size_t len;
	unsigned char bytes[1500];
};

/* One direction of the link: packets in the order in which they leave. */
struct line {
	struct packet packets[4096];
	size_t first, completed, end;
	size_t below, most_below;
	int64_t free_ns;
};

static struct taut_stack *stacks[2];
static struct line lines[2];
static int64_t now_ns;
/* Something was completed or delivered: there may be more to send now. */
static int moved;

static void check(const char *what, int64_t result)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror((int)-result));
		exit(1);
	}
}

static int transmit(void *user, const struct taut_packet *packet, uint64_t ticket)
{
	struct line *line = user;
	struct packet *kept;

	if (line->end - line->first == 4096)
		return -EAGAIN; /* main() polls again when one has left */
	kept = &line->packets[line->end++ % 4096];
	kept->len = 0;
	kept->ticket = ticket;
	for (int i = 0; i < packet->iovcnt; i++) {
		memcpy(kept->bytes + kept->len, packet->iov[i].iov_base, packet->iov[i].iov_len);
		kept->len += packet->iov[i].iov_len;
	}
	line->free_ns = (line->free_ns > now_ns ? line->free_ns : now_ns) + (int64_t)kept->len * NS_PER_BYTE;
	kept->left_ns = line->free_ns;
	line->below += kept->len;
	if (line->below > line->most_below)
		line->most_below = line->below;
	return TAUT_KEPT;
}

/* Gives tickets back, delivers what has arrived, and returns when the next of both is due. */
static int64_t run(int from)
{
	struct line *line = &lines[from];
	int64_t next = TAUT_NEVER;

	while (line->completed < line->end) {
		/* The last one of a pair first; one that is alone goes alone. */
		struct packet *one = &line->packets[line->completed % 4096];
		struct packet *two = &line->packets[(line->completed + 1) % 4096];
		int pair = line->completed + 1 < line->end;

		if ((pair ? two : one)->left_ns > now_ns) {
			next = (pair ? two : one)->left_ns;
			break;
		}
		if (pair) {
			check("complete", taut_stack_complete(stacks[from], now_ns, two->ticket));
			line->below -= two->len;
		}
		check("complete", taut_stack_complete(stacks[from], now_ns, one->ticket));
		line->below -= one->len;
		line->completed += pair ? 2 : 1;
		moved = 1;
	}
	for (; line->first < line->completed; line->first++) {
		struct packet *packet = &line->packets[line->first % 4096];

		if (packet->left_ns + DELAY_NS > now_ns) {
			if (packet->left_ns + DELAY_NS < next)
				next = packet->left_ns + DELAY_NS;
			break;
		}
		check("input", taut_stack_input(stacks[!from], now_ns, packet->bytes, packet->len, 0, 0));
		moved = 1;
	}
	return next;
}

int main(void)
{
	struct taut_stack_config config = { .size = sizeof config, .transmit = transmit };
	struct sockaddr_storage address;
	socklen_t len = sizeof address;
	static unsigned char data[65536];
	uint64_t listener, conn, accepted = 0;
	size_t sent = 0, got = 0;

	for (int i = 0; i < 2; i++) {
		config.addresses = i ? "fd00::2/64" : "fd00::1/64";
		config.user = &lines[i];
		check("new", taut_stack_new(&config, &stacks[i]));
	}
	check("address", taut_address("[fd00::2]:5001", (struct sockaddr *)&address, &len));
	check("listen", taut_stack_listen(stacks[1], (struct sockaddr *)&address, len, 1, &listener));
	check("connect", taut_stack_connect(stacks[0], now_ns, (struct sockaddr *)&address, len, &conn));

	while (got < TOTAL) {
		int64_t next = TAUT_NEVER, due[4];
		ssize_t count = 0;

		moved = 0;
		/* Tries instead of events: each call says whether there is something to do. */
		while (sent < TOTAL && count >= 0) {
			size_t rest = TOTAL - sent;

			count = taut_stack_write(stacks[0], now_ns, conn, data, rest < sizeof data ? rest : sizeof data);
			sent += count > 0 ? (size_t)count : 0;
		}
		if (count < 0 && count != -EAGAIN)
			check("write", count);
		if (!accepted)
			taut_stack_accept(stacks[1], listener, NULL, NULL, &accepted);
		while (accepted && (count = taut_stack_read(stacks[1], now_ns, accepted, data, sizeof data)) > 0)
			got += (size_t)count;

		due[0] = taut_stack_poll(stacks[0], now_ns);
		due[1] = taut_stack_poll(stacks[1], now_ns);
		due[2] = run(0);
		due[3] = run(1);
		for (int i = 0; i < 4; i++) {
			check("poll", due[i]);
			next = due[i] < next ? due[i] : next;
		}
		if (moved || got >= TOTAL)
			continue;
		if (next == TAUT_NEVER) {
			fprintf(stderr, "nothing more happens after %zu bytes\n", got);
			return 1;
		}
		now_ns = next > now_ns ? next : now_ns;
	}
	printf("%zu bytes in %.2f s; below TCP at most %zu bytes\n", got, (double)now_ns / 1e9, lines[0].most_below);
	taut_stack_free(stacks[0]);
	taut_stack_free(stacks[1]);
	return 0;
}
