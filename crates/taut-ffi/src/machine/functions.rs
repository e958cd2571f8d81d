//! The functions `taut_stack_*` of the header, and what they take.
#![expect(unsafe_code, reason = "functions of C: what they may do with memory is in their documentation")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules of pointers once, at its top")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::sync::{Arc, Mutex, TryLockError};

use libc::{EBUSY, EINVAL, sockaddr, socklen_t, ssize_t};
use taut::device::{Cidr, LinkCaps};
use taut_core::{Instant, Network, NetworkChange, Stack, StackConfig};

use super::device::{Device, TautTransmit};
use super::event::TautEvent;
use super::state::Machine;
use crate::address;
use crate::border::{
    Answer, Errno, Sized0, bytes, bytes_mut, door, door_len, door_unit, enter, given, room, sized, text,
    write_sized, write_some,
};

/// The device cuts packets of up to 64 KB into segments (TSO): taut_packet.gso_size.
pub const TAUT_DEVICE_SEGMENTS: u32 = 1;
/// The device completes checksums: taut_packet.csum_offset.
pub const TAUT_DEVICE_CHECKSUMS: u32 = 2;
/// The device holds packets until taut_packet.departure_ns.
pub const TAUT_DEVICE_PACES: u32 = 4;
/// taut_stack_complete() is called when a packet has left the host, and not as soon as the device has it:
/// the queue below is then kept as short as completions show to be enough.
pub const TAUT_DEVICE_COMPLETES: u32 = 8;

/// The checksum of the transport header is known to be right.
pub const TAUT_INPUT_CHECKED: u32 = 1;

/// How a bare machine begins. A field that is 0 or NULL has its default, so that a program can set all
/// bytes to zero, then `size`, then some fields.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TautStackConfig {
    /// sizeof(struct taut_stack_config).
    pub size: usize,
    /// Addresses with the lengths of their prefixes, separated by spaces: "10.0.0.1/24 fd00::1/64".
    pub addresses: *const c_char,
    /// Takes packets for the link. Must be set.
    pub transmit: TautTransmit,
    /// Is passed to `transmit`. May be NULL.
    pub user: *mut c_void,
    /// 32 random bytes, from which sequence numbers, ports and hash keys are derived; the same seed and the
    /// same calls give the same packets. NULL: those of getrandom(2).
    pub seed: *const u8,
    /// The link's MTU in bytes, at least 68, and 1280 for IPv6; 0: 1500.
    pub mtu: u16,
    /// Abilities of the device: TAUT_DEVICE_..., or 0.
    pub device: u32,
}

// SAFETY: numbers, pointers and an optional function.
unsafe impl Sized0 for TautStackConfig {
    const FIRST: usize = offset_of!(Self, device) + size_of::<u32>();
}

/// A bare machine: a TCP/IP stack without clock, I/O, thread or global state. The program calls it in
/// turns: taut_stack_input() for each received packet, commands such as taut_stack_write() at any time,
/// then taut_stack_poll(), which hands packets to the callback and returns the next deadline, then
/// taut_stack_event() until it returns 0.
///
/// Threads: a stack may move between threads, and be used by one at a time. A call while another is under
/// way returns -EBUSY. Different stacks are independent.
///
/// Time: `now_ns` is in nanoseconds since any point that the program chose, such as CLOCK_MONOTONIC's, not
/// negative. A time before the latest one counts as the latest.
///
/// Ids name connections, listeners and UDP sockets. They are 64 bits and never 0; one that was closed is
/// not used again: any function may return -EBADF, and -EOPNOTSUPP for an id of another kind. No pointer is
/// kept after a call, except `transmit` and `user`.
pub struct TautStack(Mutex<Machine>);

/// # Safety
/// `stack` is NULL, or was made by [`taut_stack_new`] and is not freed during the call.
unsafe fn lock<'a>(stack: *mut TautStack) -> Option<&'a Mutex<Machine>> {
    unsafe { stack.as_ref() }.map(|stack| &stack.0)
}

/// Makes a bare machine and stores it at `stack`; taut_stack_free() frees it.
///
/// Returns 0; -EINVAL if an address, the MTU or a flag cannot be used; -E2BIG if the configuration has
/// something that this version of the library does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_new(
    config: *const TautStackConfig,
    stack: Option<&mut MaybeUninit<Option<Box<TautStack>>>>,
) -> c_int {
    door_unit(|| {
        let config = unsafe { sized(config)? };
        let out = given(stack)?;
        let device = given(Device::new(config.transmit, config.user))?;
        let addresses = given(unsafe { text(config.addresses)? })?;
        let mut seed = [0; 32];
        if config.seed.is_null() {
            fill_random(&mut seed)?;
        } else {
            seed.copy_from_slice(unsafe { bytes(config.seed.cast(), 32)? });
        }
        let mut stack = Stack::new(Arc::new(StackConfig::default()), caps(config.device, config.mtu)?, seed);
        for word in addresses.split_whitespace() {
            let own: Cidr = word.parse().map_err(|_| Errno(EINVAL))?;
            let own = Network { address: own.address(), prefix: own.prefix() };
            stack.change_network(Instant::ZERO, NetworkChange::AddAddress(own))?;
        }
        out.write(Some(Box::new(TautStack(Mutex::new(Machine::new(stack, device))))));
        Ok(())
    })
}

fn caps(flags: u32, mtu: u16) -> Answer<LinkCaps> {
    let all = TAUT_DEVICE_SEGMENTS | TAUT_DEVICE_CHECKSUMS | TAUT_DEVICE_PACES | TAUT_DEVICE_COMPLETES;
    let mtu = if mtu == 0 { 1500 } else { mtu };
    // A packet that is cut gets new checksums.
    let is_segments_alone = flags & (TAUT_DEVICE_SEGMENTS | TAUT_DEVICE_CHECKSUMS) == TAUT_DEVICE_SEGMENTS;
    if flags & !all != 0 || mtu < 68 || is_segments_alone {
        return Err(Errno(EINVAL));
    }
    let link =
        if flags & TAUT_DEVICE_SEGMENTS == 0 { LinkCaps::plain(mtu) } else { LinkCaps::offloading(mtu) };
    Ok(LinkCaps {
        tx_checksum: flags & TAUT_DEVICE_CHECKSUMS != 0,
        paces: flags & TAUT_DEVICE_PACES != 0,
        completes_on_departure: flags & TAUT_DEVICE_COMPLETES != 0,
        ..link
    })
}

fn fill_random(seed: &mut [u8; 32]) -> Answer<()> {
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    if got == seed.len() as isize { Ok(()) } else { Err(Errno(libc::EIO)) }
}

/// Frees a bare machine, its connections and its tickets, without a packet. NULL does nothing.
///
/// Returns 0; -EBUSY inside `transmit`, and then nothing is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_free(stack: *mut TautStack) -> c_int {
    door_unit(|| {
        let Some(lock) = (unsafe { lock(stack) }) else { return Ok(()) };
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Errno(EBUSY));
        }
        drop(unsafe { Box::from_raw(stack) });
        Ok(())
    })
}

/// Takes in a packet of `len` bytes from the link, from its IP header on. Its content is not trusted.
///
/// `gso_size` is 0, or the payload bytes of each segment that was merged into this packet. `flags` is 0 or
/// TAUT_INPUT_CHECKED.
///
/// Returns 0; 1 if taut_stack_poll() should be called before the next packet: an acknowledgement is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_input(
    stack: *mut TautStack,
    now_ns: i64,
    packet: *const c_void,
    len: usize,
    gso_size: u16,
    flags: u32,
) -> c_int {
    door(|| {
        if flags & !TAUT_INPUT_CHECKED != 0 {
            return Err(Errno(EINVAL));
        }
        let packet = unsafe { bytes(packet, len)? };
        let input = |machine: &mut Machine| machine.input(now_ns, packet, gso_size, flags != 0);
        enter(unsafe { lock(stack) }, input).map(i64::from)
    }) as c_int
}

/// Handles the deadlines that have passed and hands packets to `transmit`, until there are none or the
/// device has no room. Call it after input and commands, when the deadline has passed, and when a device
/// that had no room has some.
///
/// Returns the next deadline in nanoseconds, which may have passed already; TAUT_NEVER if there is none; or
/// a negative error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_poll(stack: *mut TautStack, now_ns: i64) -> i64 {
    door(|| enter(unsafe { lock(stack) }, |machine| machine.poll(now_ns)))
}

/// Gives back the ticket of a packet for which `transmit` returned TAUT_KEPT: its bytes have left the host,
/// or were lost. In any order, each once; then call taut_stack_poll().
///
/// Returns 0; -ENOENT if there is no such ticket, or it was given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_complete(stack: *mut TautStack, now_ns: i64, ticket: u64) -> c_int {
    door_unit(|| enter(unsafe { lock(stack) }, |machine| machine.complete(now_ns, ticket)))
}

/// Takes the next event. `event->size` must be set.
///
/// Returns 1, or 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_event(stack: *mut TautStack, event: *mut TautEvent) -> c_int {
    door(|| {
        // Before an event is taken.
        unsafe { room(event)? };
        let Some(news) = enter(unsafe { lock(stack) }, |machine| Ok(machine.event()))? else { return Ok(0) };
        unsafe { write_sized(event, &news)? };
        Ok(1)
    }) as c_int
}

/// Sets one of the stack's settings by Linux's name, such as "net.ipv4.tcp_congestion_control" to "bbr":
/// for connections that begin later, mostly.
///
/// Returns 0; -ENOENT if there is no such setting; -EINVAL if it cannot have this value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_sysctl(
    stack: *mut TautStack,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    door_unit(|| {
        let (name, value) = unsafe { (given(text(name)?)?, given(text(value)?)?) };
        enter(unsafe { lock(stack) }, |machine| machine.set_sysctl(name, value))
    })
}

/// Begins a TCP connection to `address`, and stores its id at `conn`. TAUT_EVENT_CONNECTED or
/// TAUT_EVENT_CLOSED follows. taut_stack_close() releases it in any case.
///
/// Returns 0; -EADDRNOTAVAIL, -ENETUNREACH if the stack has no address or no route for it; -EADDRINUSE if
/// no port is left; -EMFILE if there are too many connections.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_connect(
    stack: *mut TautStack,
    now_ns: i64,
    address: *const sockaddr,
    len: socklen_t,
    conn: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    door_unit(|| {
        let (to, out) = (unsafe { address::read(address, len)? }, given(conn)?);
        out.write(enter(unsafe { lock(stack) }, |machine| machine.connect(now_ns, to))?);
        Ok(())
    })
}

/// Listens for TCP connections at `address`, and stores the listener's id at `listener`. Port 0 picks a
/// free port; an unspecified address is every one of the stack, and :: those of IPv4, too. At most
/// `backlog` connections wait to be accepted.
///
/// Returns 0; -EADDRINUSE; -EADDRNOTAVAIL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_listen(
    stack: *mut TautStack,
    address: *const sockaddr,
    len: socklen_t,
    backlog: u32,
    listener: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    door_unit(|| {
        let (at, out) = (unsafe { address::read(address, len)? }, given(listener)?);
        out.write(enter(unsafe { lock(stack) }, |machine| machine.listen(at, backlog))?);
        Ok(())
    })
}

/// Takes the connection that has waited longest at a listener, and stores its id at `conn`, and its peer's
/// address, if `address` is not NULL, as accept(2) does: `len` is the room there, then the address's
/// length.
///
/// Returns 0; -EAGAIN if none waits: TAUT_EVENT_ACCEPT follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_accept(
    stack: *mut TautStack,
    listener: u64,
    address: *mut sockaddr,
    len: Option<&mut socklen_t>,
    conn: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    door_unit(|| {
        let out = given(conn)?;
        if !address.is_null() && len.is_none() {
            return Err(Errno(libc::EFAULT));
        }
        let (id, peer) = enter(unsafe { lock(stack) }, |machine| machine.accept(listener))?;
        out.write(id);
        unsafe { address::write(peer, address, len) }
    })
}

/// Opens a UDP socket at `address`, and stores its id at `udp`. Port 0 picks a free port.
///
/// Returns 0; -EADDRINUSE; -EADDRNOTAVAIL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_udp(
    stack: *mut TautStack,
    address: *const sockaddr,
    len: socklen_t,
    udp: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    door_unit(|| {
        let (at, out) = (unsafe { address::read(address, len)? }, given(udp)?);
        out.write(enter(unsafe { lock(stack) }, |machine| machine.udp(at))?);
        Ok(())
    })
}

/// Moves received bytes of a connection to `data`, at most `len`.
///
/// Returns their number; 0 at the end of the stream; -EAGAIN if there are none: TAUT_EVENT_READABLE
/// follows; or the error that ended the connection, such as -ECONNRESET.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_read(
    stack: *mut TautStack,
    now_ns: i64,
    conn: u64,
    data: *mut c_void,
    len: usize,
) -> ssize_t {
    door_len(|| {
        let data = unsafe { bytes_mut(data, len)? };
        enter(unsafe { lock(stack) }, |machine| machine.read(now_ns, conn, data))
    })
}

/// Queues bytes of `data` on a connection, as many as there is room for. taut_stack_poll() sends them.
///
/// Returns their number; -EAGAIN if there is no room: TAUT_EVENT_WRITABLE follows; -EPIPE after
/// taut_stack_shutdown(); or the error that ended the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_write(
    stack: *mut TautStack,
    now_ns: i64,
    conn: u64,
    data: *const c_void,
    len: usize,
) -> ssize_t {
    door_len(|| {
        let data = unsafe { bytes(data, len)? };
        enter(unsafe { lock(stack) }, |machine| machine.write(now_ns, conn, data))
    })
}

/// Sends a datagram to `address`: all of it, or nothing. taut_stack_poll() sends it.
///
/// Returns `len`; -EAGAIN if there is no room: TAUT_EVENT_WRITABLE follows; -EMSGSIZE; -ENETUNREACH;
/// -EADDRNOTAVAIL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_sendto(
    stack: *mut TautStack,
    now_ns: i64,
    udp: u64,
    data: *const c_void,
    len: usize,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    door_len(|| {
        let (data, to) = unsafe { (bytes(data, len)?, address::read(address, address_len)?) };
        enter(unsafe { lock(stack) }, |machine| machine.send_to(now_ns, udp, data, to))
    })
}

/// Takes the oldest datagram that waits; what does not fit into `data` is lost. Its sender is stored at
/// `address`, if that is not NULL: `address_len` is the room there, then the address's length.
///
/// Returns the number of bytes stored; -EAGAIN if none waits: TAUT_EVENT_READABLE follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_recvfrom(
    stack: *mut TautStack,
    udp: u64,
    data: *mut c_void,
    len: usize,
    address: *mut sockaddr,
    address_len: Option<&mut socklen_t>,
) -> ssize_t {
    door_len(|| {
        let data = unsafe { bytes_mut(data, len)? };
        if !address.is_null() && address_len.is_none() {
            return Err(Errno(libc::EFAULT));
        }
        let (len, from) = enter(unsafe { lock(stack) }, |machine| machine.recv_from(udp, data))?;
        unsafe { address::write(from, address, address_len)? };
        Ok(len)
    })
}

/// Ends reading (SHUT_RD), writing (SHUT_WR) or both (SHUT_RDWR) on a connection. After writing, the peer
/// reads the end of the stream behind all that was queued.
///
/// Returns 0; -EAGAIN while it is not open yet; or the error that ended the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_shutdown(
    stack: *mut TautStack,
    now_ns: i64,
    conn: u64,
    how: c_int,
) -> c_int {
    door_unit(|| enter(unsafe { lock(stack) }, |machine| machine.shutdown(now_ns, conn, how)))
}

/// Sets an option of a connection or a UDP socket, by the numbers and in the units of Linux's headers.
///
/// Connections: SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE, SO_MAX_PACING_RATE (-1: none), TCP_NODELAY, TCP_CORK,
/// TCP_QUICKACK, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT (these three after SO_KEEPALIVE),
/// TCP_NOTSENT_LOWAT, TCP_USER_TIMEOUT, IP_TOS, IPV6_TCLASS. UDP: SO_SNDBUF, SO_RCVBUF, SO_MAX_PACING_RATE,
/// IP_TTL, IP_MULTICAST_TTL, IP_TOS, IP_MTU_DISCOVER, and these four of IPV6.
///
/// Returns 0; -ENOPROTOOPT if there is no such option; -EINVAL if it cannot have this value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_setsockopt(
    stack: *mut TautStack,
    now_ns: i64,
    id: u64,
    level: c_int,
    name: c_int,
    value: i64,
) -> c_int {
    door_unit(|| {
        enter(unsafe { lock(stack) }, |machine| machine.set_option(now_ns, id, (level, name, value)))
    })
}

/// Stores the present value of an option at `value`: SO_ERROR (a positive number of errno.h, or 0),
/// SO_SNDBUF, SO_RCVBUF; of connections also SO_MAX_PACING_RATE, TCP_MAXSEG, TCP_NOTSENT_LOWAT, TCP_INQ,
/// IP_TOS, IPV6_TCLASS. TCP_INFO and TCP_CONGESTION: taut_stack_getsockopt_bytes().
///
/// Returns 0; -ENOPROTOOPT if it cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_getsockopt(
    stack: *mut TautStack,
    now_ns: i64,
    id: u64,
    level: c_int,
    name: c_int,
    value: Option<&mut MaybeUninit<i64>>,
) -> c_int {
    door_unit(|| {
        let out = given(value)?;
        out.write(enter(unsafe { lock(stack) }, |machine| machine.option(now_ns, id, level, name))?);
        Ok(())
    })
}

/// Sets an option of a connection whose value is no number, by the numbers of Linux's headers:
/// TCP_CONGESTION, to the name of a congestion control, which ends at `len` or at a zero byte. It may have
/// parameters, "mine:gain=2.5".
///
/// Returns 0; -ENOENT if there is no congestion control of this name; -EINVAL if it has no such parameter;
/// -ENOPROTOOPT if there is no such option.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_setsockopt_bytes(
    stack: *mut TautStack,
    now_ns: i64,
    conn: u64,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    door_unit(|| {
        let value = unsafe { bytes(value, len as usize)? };
        let set = |machine: &mut Machine| machine.set_option_bytes(now_ns, conn, (level, name, value));
        enter(unsafe { lock(stack) }, set)
    })
}

/// Stores the present value of an option of a connection that is no number at `value`, as getsockopt(2) does:
/// `len` is the room there, then the number of bytes stored, which are the first ones of a longer value.
///
/// TCP_CONGESTION: the name of the congestion control, in 16 bytes, the last of which are zero.
///
/// TCP_INFO: struct tcp_info of <linux/tcp.h>, in the order and the units of Linux 6.12, 248 bytes. These
/// fields are 0: tcpi_fackets and tcpi_last_ack_sent, as in Linux; tcpi_rcv_ssthresh, tcpi_rehash,
/// tcpi_total_rto_recoveries, tcpi_total_rto_time. Counters of bytes and of delivered segments have no SYN.
///
/// Returns 0; -ENOPROTOOPT if there is no such option.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_getsockopt_bytes(
    stack: *mut TautStack,
    now_ns: i64,
    conn: u64,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: Option<&mut socklen_t>,
) -> c_int {
    door_unit(|| {
        let read = |machine: &mut Machine| machine.option_bytes(now_ns, conn, level, name);
        let found = enter(unsafe { lock(stack) }, read)?;
        unsafe { write_some(&found, value, len) }
    })
}

/// Stores the address and port of a connection's near end, a listener or a UDP socket at `address`; `len`
/// is the room there, then the address's length.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_getsockname(
    stack: *mut TautStack,
    id: u64,
    address: *mut sockaddr,
    len: Option<&mut socklen_t>,
) -> c_int {
    door_unit(|| {
        let own = enter(unsafe { lock(stack) }, |machine| machine.local_addr(id))?;
        unsafe { address::write(own, given((!address.is_null()).then_some(address))?, len) }
    })
}

/// Releases a connection, a listener or a UDP socket. A connection still delivers what was queued, then
/// ends its stream; if received bytes were not read, the peer gets a reset. Connections that wait at a
/// listener are reset.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_close(stack: *mut TautStack, now_ns: i64, id: u64) -> c_int {
    door_unit(|| enter(unsafe { lock(stack) }, |machine| machine.close(now_ns, id)))
}

/// Releases a connection with a reset: the peer sees an error, and what was queued is lost.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_stack_abort(stack: *mut TautStack, now_ns: i64, conn: u64) -> c_int {
    door_unit(|| enter(unsafe { lock(stack) }, |machine| machine.abort(now_ns, conn)))
}
