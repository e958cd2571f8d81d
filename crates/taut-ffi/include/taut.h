/*
 * taut.h - a TCP/IP stack in userspace
 *
 * Two forms, which share options, addresses and errors:
 *
 *   struct taut_stack    the bare machine: no clock, no I/O, no thread. The program gives it packets and the time, and
 *                        gets packets by a callback, events, and the next deadline.
 *   struct taut_net      a running stack on a TUN or a descriptor, with a thread of its own;
 *   struct taut_socket   its sockets, which wait or do not, each with a descriptor for poll(2).
 *
 * Errors    A function returns 0 or more, or a negative number of errno.h. Any may return -EFAULT (a pointer that it
 *           needs is NULL) and -EINVAL (an argument that makes no sense); these are not listed at each function.
 *           -ENOTRECOVERABLE is a bug of the library: no panic of Rust leaves a function. A struct taut_stack then
 *           returns nothing else, and a struct taut_net has ended; both can be freed.
 * Memory    Arguments are copied, or used until the function returns, and stay the caller's. An object that is stored
 *           through a pointer to a pointer is the library's, until the caller frees it by the function for that.
 * Structs   The first field of a struct is its size, which the caller sets (sizeof) before a call. A library that has
 *           more fields takes those as 0; one that has fewer returns -E2BIG if one of the others is not 0.
 * Threads   At struct taut_stack, struct taut_net, struct taut_socket. There is no global state. The library
 *           raises no signal, and its threads run no handler of the program's.
 *
 * Link with `pkg-config --cflags --libs taut`.
 */


#ifndef TAUT_H
#define TAUT_H

/* Made by cbindgen of the sources of taut-ffi: change those. */

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

// The packet has left the host, or was copied to where it does not wait. Its ticket is over.
#define TAUT_LEFT 0

// The packet waits in the device; taut_stack_complete() gives its ticket back.
#define TAUT_KEPT 1

// A connection that taut_stack_connect() began is open.
#define TAUT_EVENT_CONNECTED 1

// Data, the end of the stream, a datagram or an error waits.
#define TAUT_EVENT_READABLE 2

// There is room, after a write that returned -EAGAIN.
#define TAUT_EVENT_WRITABLE 3

// A connection is over, or did not open: `error` says why. It is still to be closed.
#define TAUT_EVENT_CLOSED 4

// A connection waits at a listener: taut_stack_accept() until -EAGAIN.
#define TAUT_EVENT_ACCEPT 5

// The device cuts packets of up to 64 KB into segments (TSO): taut_packet.gso_size.
#define TAUT_DEVICE_SEGMENTS 1

// The device completes checksums: taut_packet.csum_offset.
#define TAUT_DEVICE_CHECKSUMS 2

// The device holds packets until taut_packet.departure_ns.
#define TAUT_DEVICE_PACES 4

// taut_stack_complete() is called when a packet has left the host, and not as soon as the device has it:
// the queue below is then kept as short as completions show to be enough.
#define TAUT_DEVICE_COMPLETES 8

// The checksum of the transport header is known to be right.
#define TAUT_INPUT_CHECKED 1

// No deadline, as taut_stack_poll() returns it.
#define TAUT_NEVER 9223372036854775807

// The socket at taut_net_config.fd carries Ethernet frames, and not IP packets.
#define TAUT_NET_ETHERNET 1

// A running stack: a link, and a thread that serves it. Any thread may use it, several at the same time;
// but no call may be under way, or come later, when taut_net_free() is called. After fork(2), only the
// parent may use it, or free it.
struct taut_net;

// A TCP connection, a listener or a UDP socket of a running stack. Any thread may use it, several at the
// same time; but no call may be under way, or come later, when taut_socket_close() or taut_socket_abort()
// is called. A thread that waits in taut_socket_read() or taut_socket_write() is woken by
// taut_socket_shutdown().
//
// With SOCK_NONBLOCK in `flags`, a call that would wait returns -EAGAIN. When the stack was freed, calls
// return -ENOTCONN; when its link is gone, -ENETDOWN.
struct taut_socket;

// A bare machine: a TCP/IP stack without clock, I/O, thread or global state. The program calls it in
// turns: taut_stack_input() for each received packet, commands such as taut_stack_write() at any time,
// then taut_stack_poll(), which hands packets to the callback and returns the next deadline, then
// taut_stack_event() until it returns 0.
//
// Threads: a stack may move between threads, and be used by one at a time. A call while another is under
// way returns -EBUSY. Different stacks are independent.
//
// Time: `now_ns` is in nanoseconds since any point that the program chose, such as CLOCK_MONOTONIC's, not
// negative. A time before the latest one counts as the latest.
//
// Ids name connections, listeners and UDP sockets. They are 64 bits and never 0; one that was closed is
// not used again: any function may return -EBADF, and -EOPNOTSUPP for an id of another kind. No pointer is
// kept after a call, except `transmit` and `user`.
struct taut_stack;

// A packet to send, from its IP header on. It and its memory last until the callback returns.
struct taut_packet {
  // Bytes of this struct, as the library has it.
  size_t size;
  // The packet's bytes in order: headers, then pieces of the payload, as writev(2) takes them.
  const struct iovec *iov;
  // How many pieces; at most 9.
  int iovcnt;
  // 0, or the payload bytes of each segment into which the device must cut the packet. Only with
  // TAUT_DEVICE_SEGMENTS.
  uint16_t gso_size;
  // Length of the IP header, where the checksum of the transport header begins.
  uint16_t csum_start;
  // Bytes from there to the checksum, which the device must complete; 0: the packet is complete. Only
  // with TAUT_DEVICE_CHECKSUMS.
  uint16_t csum_offset;
  // Bytes in all.
  size_t len;
  // When it may leave, in nanoseconds. Later than now only with TAUT_DEVICE_PACES.
  int64_t departure_ns;
};

// Takes a packet for the link.
//
// Called only by taut_stack_poll(), on its thread. `user` is that of the configuration. It must return:
// neither longjmp() nor a C++ exception may leave it. It must not call a function on the same stack, which
// would return -EBUSY; other stacks may be called, such as taut_stack_input() of the one at the other end.
//
// Returns TAUT_LEFT; TAUT_KEPT, then the program copies what it needs, and calls taut_stack_complete()
// when the packet has left the host: until then its bytes count as below TCP, and the connection sends no
// more than keeps the device busy; -EAGAIN if there is no room, then taut_stack_poll() ends, and the
// packet is offered again by a later one, which the program calls when there is room; another negative
// number if the packet was dropped, then its connection slows down and sends the bytes again.
typedef int (*taut_transmit)(void *user, const struct taut_packet *packet, uint64_t ticket);

// How a bare machine begins. A field that is 0 or NULL has its default, so that a program can set all
// bytes to zero, then `size`, then some fields.
struct taut_stack_config {
  // sizeof(struct taut_stack_config).
  size_t size;
  // Addresses with the lengths of their prefixes, separated by spaces: "10.0.0.1/24 fd00::1/64".
  const char *addresses;
  // Takes packets for the link. Must be set.
  taut_transmit transmit;
  // Is passed to `transmit`. May be NULL.
  void *user;
  // 32 random bytes, from which sequence numbers, ports and hash keys are derived; the same seed and the
  // same calls give the same packets. NULL: those of getrandom(2).
  const uint8_t *seed;
  // The link's MTU in bytes, at least 68, and 1280 for IPv6; 0: 1500.
  uint16_t mtu;
  // Abilities of the device: TAUT_DEVICE_..., or 0.
  uint32_t device;
};

// Something that became possible, or ended. Events are edges: each comes once, until it happens again.
struct taut_event {
  // sizeof(struct taut_event), set by the caller.
  size_t size;
  // The connection, listener or UDP socket.
  uint64_t id;
  // TAUT_EVENT_...
  uint32_t kind;
  // Of TAUT_EVENT_CLOSED: 0 if both sides ended their streams, else a negative error such as
  // -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT.
  int error;
};

// How a running stack begins. A field that is 0 or NULL has its default, so that a program can set all
// bytes to zero, then `size`, then some fields.
struct taut_net_config {
  // sizeof(struct taut_net_config).
  size_t size;
  // Addresses of the stack with the lengths of their prefixes, separated by spaces: "10.9.0.2/24
  // fd09::2/64".
  const char *addresses;
  // The TUN interface to open, and to create if it is missing (needs CAP_NET_ADMIN). NULL: `fd` is the
  // link.
  const char *tun;
  // Addresses for the kernel's side of the TUN interface, as above. May be NULL.
  const char *host_addresses;
  // Without `tun`: a TUN or TAP that another program has opened, or one end of a Unix socket on which
  // each message is a packet. It is duplicated, and stays the caller's.
  int fd;
  // The link's MTU in bytes; 0: 1500.
  uint16_t mtu;
  // 0, or TAUT_NET_ETHERNET.
  uint32_t flags;
  // Where to make the socket at which `taut ss` and `taut explain` see this stack. NULL: none.
  const char *control;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Reads an address and a port, `10.0.0.1:80` or `[fd00::1]:80`, into `address`. No names are looked up.
//
// `len` is the room at `address`, 28 bytes or more; then the address's length. From any thread.
//
// Returns 0; -EINVAL if the text is something else, or there is no room.
int taut_address(const char *text,
                 struct sockaddr *address,
                 socklen_t *len);

// Makes a bare machine and stores it at `stack`; taut_stack_free() frees it.
//
// Returns 0; -EINVAL if an address, the MTU or a flag cannot be used; -E2BIG if the configuration has
// something that this version of the library does not have.
int taut_stack_new(const struct taut_stack_config *config,
                   struct taut_stack **stack);

// Frees a bare machine, its connections and its tickets, without a packet. NULL does nothing.
//
// Returns 0; -EBUSY inside `transmit`, and then nothing is freed.
int taut_stack_free(struct taut_stack *stack);

// Takes in a packet of `len` bytes from the link, from its IP header on. Its content is not trusted.
//
// `gso_size` is 0, or the payload bytes of each segment that was merged into this packet. `flags` is 0 or
// TAUT_INPUT_CHECKED.
//
// Returns 0; 1 if taut_stack_poll() should be called before the next packet: an acknowledgement is due.
int taut_stack_input(struct taut_stack *stack,
                     int64_t now_ns,
                     const void *packet,
                     size_t len,
                     uint16_t gso_size,
                     uint32_t flags);

// Handles the deadlines that have passed and hands packets to `transmit`, until there are none or the
// device has no room. Call it after input and commands, when the deadline has passed, and when a device
// that had no room has some.
//
// Returns the next deadline in nanoseconds, which may have passed already; TAUT_NEVER if there is none; or
// a negative error.
int64_t taut_stack_poll(struct taut_stack *stack,
                        int64_t now_ns);

// Gives back the ticket of a packet for which `transmit` returned TAUT_KEPT: its bytes have left the host,
// or were lost. In any order, each once; then call taut_stack_poll().
//
// Returns 0; -ENOENT if there is no such ticket, or it was given back.
int taut_stack_complete(struct taut_stack *stack,
                        int64_t now_ns,
                        uint64_t ticket);

// Takes the next event. `event->size` must be set.
//
// Returns 1, or 0 if there is none.
int taut_stack_event(struct taut_stack *stack, struct taut_event *event);

// Sets one of the stack's settings by Linux's name, such as "net.ipv4.tcp_congestion_control" to "bbr":
// for connections that begin later, mostly.
//
// Returns 0; -ENOENT if there is no such setting; -EINVAL if it cannot have this value.
int taut_stack_sysctl(struct taut_stack *stack,
                      const char *name,
                      const char *value);

// Begins a TCP connection to `address`, and stores its id at `conn`. TAUT_EVENT_CONNECTED or
// TAUT_EVENT_CLOSED follows. taut_stack_close() releases it in any case.
//
// Returns 0; -EADDRNOTAVAIL, -ENETUNREACH if the stack has no address or no route for it; -EADDRINUSE if
// no port is left; -EMFILE if there are too many connections.
int taut_stack_connect(struct taut_stack *stack,
                       int64_t now_ns,
                       const struct sockaddr *address,
                       socklen_t len,
                       uint64_t *conn);

// Listens for TCP connections at `address`, and stores the listener's id at `listener`. Port 0 picks a
// free port; an unspecified address is every one of the stack, and :: those of IPv4, too. At most
// `backlog` connections wait to be accepted.
//
// Returns 0; -EADDRINUSE; -EADDRNOTAVAIL.
int taut_stack_listen(struct taut_stack *stack,
                      const struct sockaddr *address,
                      socklen_t len,
                      uint32_t backlog,
                      uint64_t *listener);

// Takes the connection that has waited longest at a listener, and stores its id at `conn`, and its peer's
// address, if `address` is not NULL, as accept(2) does: `len` is the room there, then the address's
// length.
//
// Returns 0; -EAGAIN if none waits: TAUT_EVENT_ACCEPT follows.
int taut_stack_accept(struct taut_stack *stack,
                      uint64_t listener,
                      struct sockaddr *address,
                      socklen_t *len,
                      uint64_t *conn);

// Opens a UDP socket at `address`, and stores its id at `udp`. Port 0 picks a free port.
//
// Returns 0; -EADDRINUSE; -EADDRNOTAVAIL.
int taut_stack_udp(struct taut_stack *stack,
                   const struct sockaddr *address,
                   socklen_t len,
                   uint64_t *udp);

// Moves received bytes of a connection to `data`, at most `len`.
//
// Returns their number; 0 at the end of the stream; -EAGAIN if there are none: TAUT_EVENT_READABLE
// follows; or the error that ended the connection, such as -ECONNRESET.
ssize_t taut_stack_read(struct taut_stack *stack,
                        int64_t now_ns,
                        uint64_t conn,
                        void *data,
                        size_t len);

// Queues bytes of `data` on a connection, as many as there is room for. taut_stack_poll() sends them.
//
// Returns their number; -EAGAIN if there is no room: TAUT_EVENT_WRITABLE follows; -EPIPE after
// taut_stack_shutdown(); or the error that ended the connection.
ssize_t taut_stack_write(struct taut_stack *stack,
                         int64_t now_ns,
                         uint64_t conn,
                         const void *data,
                         size_t len);

// Sends a datagram to `address`: all of it, or nothing. taut_stack_poll() sends it.
//
// Returns `len`; -EAGAIN if there is no room: TAUT_EVENT_WRITABLE follows; -EMSGSIZE; -ENETUNREACH;
// -EADDRNOTAVAIL.
ssize_t taut_stack_sendto(struct taut_stack *stack,
                          int64_t now_ns,
                          uint64_t udp,
                          const void *data,
                          size_t len,
                          const struct sockaddr *address,
                          socklen_t address_len);

// Takes the oldest datagram that waits; what does not fit into `data` is lost. Its sender is stored at
// `address`, if that is not NULL: `address_len` is the room there, then the address's length.
//
// Returns the number of bytes stored; -EAGAIN if none waits: TAUT_EVENT_READABLE follows.
ssize_t taut_stack_recvfrom(struct taut_stack *stack,
                            uint64_t udp,
                            void *data,
                            size_t len,
                            struct sockaddr *address,
                            socklen_t *address_len);

// Ends reading (SHUT_RD), writing (SHUT_WR) or both (SHUT_RDWR) on a connection. After writing, the peer
// reads the end of the stream behind all that was queued.
//
// Returns 0; -EAGAIN while it is not open yet; or the error that ended the connection.
int taut_stack_shutdown(struct taut_stack *stack,
                        int64_t now_ns,
                        uint64_t conn,
                        int how);

// Sets an option of a connection or a UDP socket, by the numbers and in the units of Linux's headers.
//
// Connections: SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE, SO_MAX_PACING_RATE (-1: none), TCP_NODELAY, TCP_CORK,
// TCP_QUICKACK, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT (these three after SO_KEEPALIVE),
// TCP_NOTSENT_LOWAT, TCP_USER_TIMEOUT, IP_TOS, IPV6_TCLASS. UDP: SO_SNDBUF, SO_RCVBUF, SO_MAX_PACING_RATE,
// IP_TTL, IP_MULTICAST_TTL, IP_TOS, IP_MTU_DISCOVER, and these four of IPV6.
//
// Returns 0; -ENOPROTOOPT if there is no such option; -EINVAL if it cannot have this value.
int taut_stack_setsockopt(struct taut_stack *stack,
                          int64_t now_ns,
                          uint64_t id,
                          int level,
                          int name,
                          int64_t value);

// Stores the present value of an option at `value`: SO_ERROR (a positive number of errno.h, or 0),
// SO_SNDBUF, SO_RCVBUF; of connections also SO_MAX_PACING_RATE, TCP_MAXSEG, TCP_NOTSENT_LOWAT, TCP_INQ,
// IP_TOS, IPV6_TCLASS. TCP_INFO and TCP_CONGESTION: taut_stack_getsockopt_bytes().
//
// Returns 0; -ENOPROTOOPT if it cannot be read.
int taut_stack_getsockopt(struct taut_stack *stack,
                          int64_t now_ns,
                          uint64_t id,
                          int level,
                          int name,
                          int64_t *value);

// Sets an option of a connection whose value is no number, by the numbers of Linux's headers:
// TCP_CONGESTION, to the name of a congestion control, which ends at `len` or at a zero byte. It may have
// parameters, "mine:gain=2.5".
//
// Returns 0; -ENOENT if there is no congestion control of this name; -EINVAL if it has no such parameter;
// -ENOPROTOOPT if there is no such option.
int taut_stack_setsockopt_bytes(struct taut_stack *stack,
                                int64_t now_ns,
                                uint64_t conn,
                                int level,
                                int name,
                                const void *value,
                                socklen_t len);

// Stores the present value of an option of a connection that is no number at `value`, as getsockopt(2) does:
// `len` is the room there, then the number of bytes stored, which are the first ones of a longer value.
//
// TCP_CONGESTION: the name of the congestion control, in 16 bytes, the last of which are zero.
//
// TCP_INFO: struct tcp_info of <linux/tcp.h>, in the order and the units of Linux 6.12, 248 bytes. These
// fields are 0: tcpi_fackets and tcpi_last_ack_sent, as in Linux; tcpi_rcv_ssthresh, tcpi_rehash,
// tcpi_total_rto_recoveries, tcpi_total_rto_time. Counters of bytes and of delivered segments have no SYN.
//
// Returns 0; -ENOPROTOOPT if there is no such option.
int taut_stack_getsockopt_bytes(struct taut_stack *stack,
                                int64_t now_ns,
                                uint64_t conn,
                                int level,
                                int name,
                                void *value,
                                socklen_t *len);

// Stores the address and port of a connection's near end, a listener or a UDP socket at `address`; `len`
// is the room there, then the address's length.
//
// Returns 0.
int taut_stack_getsockname(struct taut_stack *stack,
                           uint64_t id,
                           struct sockaddr *address,
                           socklen_t *len);

// Releases a connection, a listener or a UDP socket. A connection still delivers what was queued, then
// ends its stream; if received bytes were not read, the peer gets a reset. Connections that wait at a
// listener are reset.
//
// Returns 0.
int taut_stack_close(struct taut_stack *stack,
                     int64_t now_ns,
                     uint64_t id);

// Releases a connection with a reset: the peer sees an error, and what was queued is lost.
//
// Returns 0.
int taut_stack_abort(struct taut_stack *stack, int64_t now_ns, uint64_t conn);

// Makes a running stack and stores it at `net`; taut_net_free() ends it. On Ethernet this takes some
// seconds, in which the addresses are checked.
//
// Returns 0; -EINVAL if something in the configuration cannot be used; -E2BIG if it has something that
// this version of the library does not have; -EPERM or -EACCES without the right to open the interface;
// -EBUSY if another program has it; -EADDRNOTAVAIL if another station has the address.
int taut_net_new(const struct taut_net_config *config,
                 struct taut_net **net);

// Waits until no connection is left, or for `timeout_ms`: those whose sockets were closed have then
// delivered what was written. Before taut_net_free().
//
// Returns 0; -ETIMEDOUT if some are left.
int taut_net_drain(struct taut_net *net, uint32_t timeout_ms);

// Ends a running stack at once. Its sockets stay to be closed; their calls return -ENOTCONN, and threads
// that wait in them are woken. Bytes that were written and not delivered are lost. NULL does nothing.
void taut_net_free(struct taut_net *net);

// Sets one of the stack's settings by Linux's name, such as "net.ipv4.tcp_congestion_control" to "bbr":
// for connections that begin later, mostly.
//
// Returns 0; -ENOENT if there is no such setting; -EINVAL if it cannot have this value.
int taut_net_sysctl(struct taut_net *net,
                    const char *name,
                    const char *value);

// Connects to `address` by TCP, and stores the connection at `socket`; taut_socket_close() frees it. Waits
// for the end of the handshake, unless `flags` has SOCK_NONBLOCK: then it polls writable when it is
// connected or has failed, and SO_ERROR says which.
//
// Returns 0; -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, -ENETUNREACH, -EADDRNOTAVAIL, -EADDRINUSE;
// -ENOTCONN if the stack has ended.
int taut_socket_connect(struct taut_net *net,
                        const struct sockaddr *address,
                        socklen_t len,
                        int flags,
                        struct taut_socket **socket);

// Listens for TCP connections at `address`, and stores the listener at `socket`. Port 0 picks a free port;
// an unspecified address is every one of the stack, and :: those of IPv4, too. At most `backlog`
// connections wait to be accepted.
//
// Returns 0; -EADDRINUSE; -EADDRNOTAVAIL.
int taut_socket_listen(struct taut_net *net,
                       const struct sockaddr *address,
                       socklen_t len,
                       uint32_t backlog,
                       int flags,
                       struct taut_socket **socket);

// Takes the next connection of a listener, and stores it at `socket`, and its peer's address, if `address`
// is not NULL: `len` is the room there, then the address's length. `flags` are those of the connection.
//
// Returns 0; -EAGAIN if none waits and the listener has SOCK_NONBLOCK; -ENOTCONN if the stack has ended.
int taut_socket_accept(struct taut_socket *listener,
                       struct sockaddr *address,
                       socklen_t *len,
                       int flags,
                       struct taut_socket **socket);

// Opens a UDP socket at `address`, and stores it at `socket`. Port 0 picks a free port.
//
// Returns 0; -EADDRINUSE; -EADDRNOTAVAIL.
int taut_socket_udp(struct taut_net *net,
                    const struct sockaddr *address,
                    socklen_t len,
                    int flags,
                    struct taut_socket **socket);

// Reads from a connection what there is, at most `len` bytes, and waits for the first.
//
// Returns their number; 0 at the end of the stream; -EAGAIN; or the error that ended the connection, such
// as -ECONNRESET.
ssize_t taut_socket_read(struct taut_socket *socket,
                         void *data,
                         size_t len);

// Writes bytes to a connection, as many as there is room for, and waits for room for the first.
//
// Returns their number; -EAGAIN; -EPIPE after taut_socket_shutdown(); or the error that ended the
// connection. There is no signal.
ssize_t taut_socket_write(struct taut_socket *socket, const void *data, size_t len);

// Sends a datagram to `address`: all of it, or nothing.
//
// Returns `len`; -EAGAIN; -EMSGSIZE; -ENETUNREACH; -EADDRNOTAVAIL.
ssize_t taut_socket_sendto(struct taut_socket *socket,
                           const void *data,
                           size_t len,
                           const struct sockaddr *address,
                           socklen_t address_len);

// Receives a datagram; what does not fit into `data` is lost. Its sender is stored at `address`, if that
// is not NULL: `address_len` is the room there, then the address's length.
//
// Returns the number of bytes stored; -EAGAIN; -ENOTCONN if the stack has ended.
ssize_t taut_socket_recvfrom(struct taut_socket *socket,
                             void *data,
                             size_t len,
                             struct sockaddr *address,
                             socklen_t *address_len);

// Ends reading (SHUT_RD), writing (SHUT_WR) or both (SHUT_RDWR) on a connection. After writing, the peer
// reads the end of the stream behind all that was written.
//
// Returns 0; or the error that ended the connection.
int taut_socket_shutdown(struct taut_socket *socket,
                         int how);

// Sets an option: those of taut_stack_setsockopt(). A listener has none.
//
// Returns 0; -ENOPROTOOPT if there is no such option; -EINVAL if it cannot have this value.
int taut_socket_setsockopt(struct taut_socket *socket, int level, int name, int64_t value);

// Stores the present value of an option at `value`: those of taut_stack_getsockopt(). SO_ERROR is reported
// once.
//
// Returns 0; -ENOPROTOOPT if it cannot be read.
int taut_socket_getsockopt(struct taut_socket *socket,
                           int level,
                           int name,
                           int64_t *value);

// Sets an option of a connection whose value is no number: those of taut_stack_setsockopt_bytes().
//
// Returns 0; -ENOENT if there is no congestion control of this name; -EINVAL if it has no such parameter;
// -ENOPROTOOPT if there is no such option; -EOPNOTSUPP if it is no connection.
int taut_socket_setsockopt_bytes(struct taut_socket *socket,
                                 int level,
                                 int name,
                                 const void *value,
                                 socklen_t len);

// Stores the present value of an option of a connection that is no number at `value`: those of
// taut_stack_getsockopt_bytes(), with `len` as there.
//
// Returns 0; -ENOPROTOOPT if there is no such option; -EOPNOTSUPP if it is no connection.
int taut_socket_getsockopt_bytes(struct taut_socket *socket,
                                 int level,
                                 int name,
                                 void *value,
                                 socklen_t *len);

// Stores the address and port of the near end at `address`; `len` is the room there, then the address's
// length.
//
// Returns 0.
int taut_socket_getsockname(struct taut_socket *socket,
                            struct sockaddr *address,
                            socklen_t *len);

// The socket's descriptor, for poll(2) and its like: it polls readable (POLLIN, whatever is waited for)
// when taut_socket_poll() has something to say. It is the socket's: use it for nothing else, and until the
// socket is closed.
//
// Returns the descriptor; -EMFILE, -ENFILE.
int taut_socket_fd(struct taut_socket *socket);

// Which of `events`, POLLIN and POLLOUT, hold now: something to read or to accept; room to write, or a
// connection that is open or has failed. If none does, the socket's descriptor polls unreadable until one
// does; if one does, it stays readable. So an event loop calls this when the descriptor polls readable,
// and before it waits for other events. For one thread at a time.
//
// Returns the events that hold, or 0.
int taut_socket_poll(struct taut_socket *socket,
                     int events);

// Closes a socket and frees it. A connection still delivers in the background what was written, then ends
// its stream; if received bytes were not read, the peer gets a reset. Never waits. NULL does nothing.
void taut_socket_close(struct taut_socket *socket);

// taut_socket_close() with a reset: the peer sees an error, and what was written and not delivered is
// lost.
void taut_socket_abort(struct taut_socket *socket);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAUT_H */
