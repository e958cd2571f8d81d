/* A caller of libslirp in C: the whole life of an instance, by the interface as libslirp.h has it. tests/it/c_program.rs
 * compiles it with all warnings as errors, and runs it under valgrind; asan.sh, with AddressSanitizer and a number, that of
 * random and damaged frames. It says the line of what failed. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

typedef struct Slirp Slirp;
typedef ssize_t (*ReadCb)(void *, size_t, void *);
typedef ssize_t (*WriteCb)(const void *, size_t, void *);
typedef void (*TimerCb)(void *);

typedef struct {
    WriteCb send_packet;
    void (*guest_error)(const char *, void *);
    int64_t (*clock_get_ns)(void *);
    void *(*timer_new)(TimerCb, void *, void *);
    void (*timer_free)(void *, void *);
    void (*timer_mod)(void *, int64_t, void *);
    void (*register_poll_fd)(int, void *);
    void (*unregister_poll_fd)(int, void *);
    void (*notify)(void *);
} Callbacks; /* as of configuration version 1: two fields end it later */

typedef struct {
    uint32_t version;
    int restricted;
    bool in_enabled;
    struct in_addr vnetwork, vnetmask, vhost;
    bool in6_enabled;
    struct in6_addr vprefix_addr6;
    uint8_t vprefix_len;
    struct in6_addr vhost6;
    const char *vhostname, *tftp_server_name, *tftp_path, *bootfile;
    struct in_addr vdhcp_start, vnameserver;
    struct in6_addr vnameserver6;
    const char **vdnssearch;
    const char *vdomainname;
    size_t if_mtu, if_mru;
    bool disable_host_loopback, enable_emu;
} Config;

Slirp *slirp_new(const Config *, const Callbacks *, void *);
void slirp_cleanup(Slirp *);
void slirp_pollfds_fill(Slirp *, uint32_t *, int (*)(int, int, void *), void *);
void slirp_pollfds_fill_socket(Slirp *, uint32_t *, int (*)(int, int, void *), void *);
void slirp_pollfds_poll(Slirp *, int, int (*)(int, void *), void *);
void slirp_input(Slirp *, const uint8_t *, int);
int slirp_add_hostfwd(Slirp *, int, struct in_addr, int, struct in_addr, int);
int slirp_remove_hostfwd(Slirp *, int, struct in_addr, int);
int slirp_add_exec(Slirp *, const char *, struct in_addr *, int);
int slirp_add_unix(Slirp *, const char *, struct in_addr *, int);
int slirp_add_guestfwd(Slirp *, WriteCb, void *, struct in_addr *, int);
int slirp_remove_guestfwd(Slirp *, struct in_addr, int);
size_t slirp_socket_can_recv(Slirp *, struct in_addr, int);
void slirp_socket_recv(Slirp *, struct in_addr, int, const uint8_t *, int);
char *slirp_connection_info(Slirp *);
char *slirp_neighbor_info(Slirp *);
int slirp_state_save(Slirp *, WriteCb, void *);
int slirp_state_version(void);
int slirp_state_load(Slirp *, int, ReadCb, void *);
const char *slirp_version_string(void);

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

struct caller {
    int frames, arps, leases, syns, errors, timers;
    int64_t timer_ms;
    TimerCb on_timer;
    void *timer_argument;
    struct pollfd fds[64];
    int count;
    uint8_t saved[4096];
    size_t saved_len, loaded;
};

static int64_t now_ns(void *opaque) {
    struct timespec now;
    (void)opaque;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static ssize_t on_frame(const void *bytes, size_t len, void *opaque) {
    struct caller *caller = opaque;
    const uint8_t *frame = bytes;
    caller->frames++;
    CHECK(len >= 14);
    if (frame[12] == 8 && frame[13] == 6) caller->arps++;
    if (frame[12] == 8 && frame[13] == 0 && frame[23] == 17 && frame[37] == 68) caller->leases++;
    if (frame[12] == 8 && frame[13] == 0 && frame[23] == 6 && frame[47] == 2) caller->syns++;
    return (ssize_t)len;
}

static void on_error(const char *message, void *opaque) {
    fprintf(stderr, "error: %s\n", message);
    ((struct caller *)opaque)->errors++;
}

static void *timer_new(TimerCb on_timer, void *argument, void *opaque) {
    struct caller *caller = opaque;
    caller->on_timer = on_timer;
    caller->timer_argument = argument;
    caller->timer_ms = INT64_MAX;
    caller->timers++;
    return malloc(1);
}

static void timer_free(void *timer, void *opaque) {
    ((struct caller *)opaque)->timers--;
    free(timer);
}

static void timer_mod(void *timer, int64_t at_ms, void *opaque) {
    (void)timer;
    ((struct caller *)opaque)->timer_ms = at_ms;
}

static void on_fd(int fd, void *opaque) {
    (void)fd;
    (void)opaque;
}

static void notify(void *opaque) {
    (void)opaque;
}

static int add_poll(int fd, int events, void *opaque) {
    struct caller *caller = opaque;
    CHECK(caller->count < 64);
    struct pollfd *one = &caller->fds[caller->count];
    one->fd = fd;
    one->events = (short)((events & 1 ? POLLIN : 0) | (events & 2 ? POLLOUT : 0) | (events & 4 ? POLLPRI : 0));
    return caller->count++;
}

static int get_revents(int at, void *opaque) {
    short seen = ((struct caller *)opaque)->fds[at].revents;
    return (seen & POLLIN ? 1 : 0) | (seen & POLLOUT ? 2 : 0) | (seen & POLLPRI ? 4 : 0) | (seen & POLLERR ? 8 : 0) |
           (seen & POLLHUP ? 16 : 0);
}

static void turn(Slirp *slirp, struct caller *caller, bool by_socket, uint32_t most_ms) {
    uint32_t timeout = most_ms;
    caller->count = 0;
    (by_socket ? slirp_pollfds_fill_socket : slirp_pollfds_fill)(slirp, &timeout, add_poll, caller);
    CHECK(timeout <= most_ms);
    int seen = poll(caller->fds, (nfds_t)caller->count, (int)timeout);
    slirp_pollfds_poll(slirp, seen < 0, get_revents, caller);
    if (caller->timer_ms <= now_ns(NULL) / 1000000) {
        caller->timer_ms = INT64_MAX;
        caller->on_timer(caller->timer_argument);
    }
}

static ssize_t save(const void *bytes, size_t len, void *opaque) {
    struct caller *caller = opaque;
    memcpy(caller->saved + caller->saved_len, bytes, len);
    caller->saved_len += len;
    return (ssize_t)len;
}

static ssize_t load(void *into, size_t len, void *opaque) {
    struct caller *caller = opaque;
    size_t left = caller->saved_len - caller->loaded;
    if (len > left) len = left;
    memcpy(into, caller->saved + caller->loaded, len);
    caller->loaded += len;
    return (ssize_t)len;
}

static struct in_addr ip(const char *text) {
    struct in_addr address;
    inet_aton(text, &address);
    return address;
}

/* RFC 826: 10.0.2.15 asks for 10.0.2.2. */
static const uint8_t arp[42] = {
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 1, 2, 3, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1,
    0x52, 0x54, 0, 1, 2, 3, 10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2,
};

/* RFC 2131: a Discover, without a checksum of UDP. */
static int discover(uint8_t *frame) {
    static const uint8_t head[] = {
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 1, 2, 3, 8, 0, 0x45, 0, 1, 16, 0, 0, 0, 0, 64, 17, 0x79, 0xde,
        0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 68, 0, 67, 0, 252, 0, 0, 1, 1, 6, 0, 1, 2, 3, 4,
    };
    static const uint8_t options[] = {99, 130, 83, 99, 53, 1, 1, 255};
    memset(frame, 0, 286);
    memcpy(frame, head, sizeof head);
    memcpy(frame + 42 + 28, frame + 6, 6);
    memcpy(frame + 42 + 236, options, sizeof options);
    return 286;
}

static const char *domains[] = {"example", NULL};

static Slirp *make(struct caller *caller, bool restricted) {
    Callbacks callbacks = {on_frame, on_error, now_ns, timer_new, timer_free, timer_mod, on_fd, on_fd, notify};
    Config config = {
        .restricted = restricted,
        .version = 1,
        .in_enabled = true,
        .vnetwork = ip("10.0.2.0"),
        .vnetmask = ip("255.255.255.0"),
        .vhost = ip("10.0.2.2"),
        .in6_enabled = true,
        .vprefix_len = 64,
        .vhostname = "guest",
        .tftp_path = "/etc",
        .bootfile = "pxe.0",
        .vdhcp_start = ip("10.0.2.15"),
        .vnameserver = ip("10.0.2.3"),
        .vdnssearch = domains,
    };
    inet_pton(AF_INET6, "fec0::", &config.vprefix_addr6);
    inet_pton(AF_INET6, "fec0::2", &config.vhost6);
    inet_pton(AF_INET6, "fec0::3", &config.vnameserver6);
    return slirp_new(&config, &callbacks, caller);
}

static void life(int round) {
    struct caller caller = {0};
    Slirp *slirp = make(&caller, false);
    CHECK(slirp && caller.timers == 1);

    slirp_input(slirp, arp, sizeof arp);
    CHECK(caller.arps == 1);
    uint8_t frame[1500];
    slirp_input(slirp, frame, discover(frame));
    CHECK(caller.leases == 1);
    slirp_input(slirp, NULL, 5);
    slirp_input(slirp, frame, -1);
    slirp_input(slirp, frame, 0);

    /* A port of the host, and a client. */
    int port = 40000 + getpid() % 20000;
    while (slirp_add_hostfwd(slirp, 0, ip("127.0.0.1"), port, ip("0.0.0.0"), 22)) port++;
    CHECK(slirp_add_hostfwd(slirp, 0, ip("127.0.0.1"), port, ip("0.0.0.0"), 22) == -1 && errno == EADDRINUSE);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = ip("127.0.0.1"), .sin_port = htons((uint16_t)port)};
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!connect(client, (struct sockaddr *)&at, sizeof at));
    for (int i = 0; i < 20; i++) turn(slirp, &caller, i % 2, 20);
    CHECK(caller.syns >= 1);

    struct in_addr service = ip("10.0.2.100"), chosen = {0};
    CHECK(!slirp_add_exec(slirp, "cat", &service, 7));
    CHECK(!slirp_add_unix(slirp, "/nowhere", &chosen, 8) && chosen.s_addr == ip("10.0.2.4").s_addr);
    CHECK(!slirp_add_guestfwd(slirp, save, &caller, &service, 9));
    CHECK(slirp_add_guestfwd(slirp, save, &caller, &service, 9) == -1);
    CHECK(slirp_socket_can_recv(slirp, service, 9) == 0);
    slirp_socket_recv(slirp, service, 9, frame, 10);
    char *connections = slirp_connection_info(slirp), *neighbors = slirp_neighbor_info(slirp);
    CHECK(strstr(connections, "TCP[HOST_FORWARD]") && strstr(neighbors, "10.0.2.15"));
    if (!round) printf("%s\n%s%s", slirp_version_string(), connections, neighbors);
    free(connections);
    free(neighbors);

    CHECK(slirp_state_save(slirp, save, &caller) == 0);
    CHECK(slirp_state_load(slirp, slirp_state_version() + 1, load, &caller) == -EINVAL && !caller.loaded);
    CHECK(slirp_state_load(slirp, slirp_state_version(), load, &caller) == 0);
    CHECK(slirp_state_load(slirp, slirp_state_version(), load, &caller) == -EINVAL);
    CHECK(!slirp_remove_guestfwd(slirp, service, 9) && slirp_remove_guestfwd(slirp, service, 9) == -1);
    CHECK(!slirp_remove_hostfwd(slirp, 0, ip("127.0.0.1"), port));
    CHECK(slirp_remove_hostfwd(slirp, 0, ip("127.0.0.1"), port) == -1);
    turn(slirp, &caller, false, 20);
    close(client);
    slirp_cleanup(slirp);
    CHECK(caller.timers == 0 && caller.errors == 0);
}

/* SplitMix64. */
static uint64_t next(uint64_t *seed) {
    uint64_t mixed = *seed += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

/* The checksum of a header of IPv4 (RFC 1071), for a frame that may have one. */
static void sum(uint8_t *frame, size_t len) {
    uint32_t sum = 0;
    if (len < 34 || frame[12] != 8 || frame[13] != 0) return;
    frame[24] = frame[25] = 0;
    for (size_t at = 14; at < 34; at += 2) sum += (uint32_t)frame[at] << 8 | frame[at + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    frame[24] = (uint8_t)(~sum >> 8);
    frame[25] = (uint8_t)~sum;
}

struct frame {
    size_t len;
    uint8_t bytes[300];
};

/* Of IPv4, to the host or to an address of nobody's, with this behind the header. */
static struct frame v4(uint8_t protocol, uint8_t to, uint8_t more, const void *payload, size_t len) {
    struct frame frame = {
        34 + len, {0x52, 0x55, 10, 0, 2, 2, 0x52, 0x54, 0, 1, 2, 3, 8, 0, 0x45, 0, 0, (uint8_t)(20 + len), 0, 7, more, 0, 64,
                   protocol, 0, 0, 10, 0, 2, 15, 10, 0, 2, to}};
    memcpy(frame.bytes + 34, payload, len);
    sum(frame.bytes, frame.len);
    return frame;
}

static struct frame v6(uint8_t next, const void *payload, size_t len) {
    struct frame frame = {
        54 + len, {0x33, 0x33, 0, 0, 0, 2, 0x52, 0x54, 0, 1, 2, 3, 0x86, 0xdd, 0x60, 0, 0, 0, 0, (uint8_t)len, next, 255}};
    frame.bytes[22] = 0xfe, frame.bytes[23] = 0x80, frame.bytes[37] = 9;
    frame.bytes[38] = 0xff, frame.bytes[39] = 2, frame.bytes[53] = 2;
    memcpy(frame.bytes + 54, payload, len);
    return frame;
}

/* Frames of the guest's, damaged; each in memory of its own, so that a byte behind its end is found. The guest is restricted:
 * nothing leaves this host. */
static void flood(long frames, uint64_t seed) {
    static const uint8_t syn[] = {0x9c, 0x40, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 5, 0xb4};
    static const uint8_t data[40] = {0x9c, 0x40, 0, 9, 0, 0, 0, 2, 0, 0, 0, 2, 0x50, 0x18, 0xff, 0xff};
    static const char tftp[] = "\x03\xe7\0\x45\0\x1e\0\0\0\x01passwd\0octet\0blksize\0" "1400";
    static const char dns[] = "\x03\xe7\0\x35\0\x25\0\0\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07gateway\x04home\x04" "arpa\0\0\x01\0\x01";
    static const uint8_t echo[] = {8, 0, 0xf0, 0xf6, 0, 1, 0, 1, 7, 7}, solicit[] = {133, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t fragment[] = {17, 0, 0, 1, 0, 0, 0, 1, 7, 7}, options[48] = {6};
    static const uint8_t inform[] = {2, 0x22, 2, 0x23, 0, 18, 0, 0, 11, 1, 2, 3, 0, 6, 0, 2, 0, 23};
    struct frame honest[] = {
        {sizeof arp, {0}}, {0, {0}}, v4(6, 99, 0x40, syn, sizeof syn), v4(6, 99, 0x40, data, sizeof data),
        v4(17, 2, 0, tftp, sizeof tftp), v4(17, 3, 0, dns, sizeof dns), v4(1, 2, 0, echo, sizeof echo),
        v4(17, 2, 0x20, data, sizeof data), v6(58, solicit, sizeof solicit), v6(44, fragment, sizeof fragment),
        v6(0, options, sizeof options), v6(17, inform, sizeof inform)};
    struct caller caller = {0};
    Slirp *slirp = make(&caller, true);
    memcpy(honest[0].bytes, arp, sizeof arp);
    honest[1].len = (size_t)discover(honest[1].bytes);
    for (long i = 0; i < frames; i++) {
        const struct frame *whole = &honest[next(&seed) % (sizeof honest / sizeof *honest)];
        size_t len = whole->len;
        if (next(&seed) % 4 == 0) len = 1 + next(&seed) % len;
        uint8_t *frame = malloc(len);
        CHECK(frame);
        memcpy(frame, whole->bytes, len);
        /* Any protocol, in an eighth of the frames. */
        if (len > 23 && next(&seed) % 8 == 0) frame[12] = next(&seed) % 2 ? 8 : 0x86, frame[13] = (uint8_t)next(&seed), frame[23] = (uint8_t)next(&seed);
        for (uint64_t left = next(&seed) % 8; left > 0; left--) frame[next(&seed) % len] = (uint8_t)next(&seed);
        if (next(&seed) % 2) sum(frame, len);
        slirp_input(slirp, frame, (int)len);
        free(frame);
        if (i % 1000 == 0) turn(slirp, &caller, i % 2000 == 0, 0);
    }
    int before = caller.arps;
    slirp_input(slirp, arp, sizeof arp);
    CHECK(caller.arps > before);
    slirp_cleanup(slirp);
    printf("%ld frames, %d answers\n", frames, caller.frames);
}

int main(int count, char **arguments) {
    for (int round = 0; round < 3; round++) life(round);
    if (count > 1) flood(atol(arguments[1]), count > 2 ? (uint64_t)atol(arguments[2]) : 1);
    return 0;
}
