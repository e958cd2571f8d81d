//! The functions `taut_net_*` and `taut_socket_*` of the header, and what they take.
#![expect(unsafe_code, reason = "functions of C: what they may do with memory is in their documentation")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules of pointers once, at its top")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use libc::{EFAULT, EINVAL, ETIMEDOUT, SOCK_NONBLOCK, sockaddr, socklen_t, ssize_t};

use super::net::{Config, Link, build};
use super::socket::Socket;
use crate::address;
use crate::border::{
    Answer, Errno, Sized0, bytes, bytes_mut, door, door_len, door_unit, given, object, sized, text,
    write_some,
};

/// The socket at taut_net_config.fd carries Ethernet frames, and not IP packets.
pub const TAUT_NET_ETHERNET: u32 = 1;

/// How a running stack begins. A field that is 0 or NULL has its default, so that a program can set all
/// bytes to zero, then `size`, then some fields.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TautNetConfig {
    /// sizeof(struct taut_net_config).
    pub size: usize,
    /// Addresses of the stack with the lengths of their prefixes, separated by spaces: "10.9.0.2/24
    /// fd09::2/64".
    pub addresses: *const c_char,
    /// The TUN interface to open, and to create if it is missing (needs CAP_NET_ADMIN). NULL: `fd` is the
    /// link.
    pub tun: *const c_char,
    /// Addresses for the kernel's side of the TUN interface, as above. May be NULL.
    pub host_addresses: *const c_char,
    /// Without `tun`: a TUN or TAP that another program has opened, or one end of a Unix socket on which
    /// each message is a packet. It is duplicated, and stays the caller's.
    pub fd: c_int,
    /// The link's MTU in bytes; 0: 1500.
    pub mtu: u16,
    /// 0, or TAUT_NET_ETHERNET.
    pub flags: u32,
    /// Where to make the socket at which `taut ss` and `taut explain` see this stack. NULL: none.
    pub control: *const c_char,
}

// SAFETY: numbers and pointers.
unsafe impl Sized0 for TautNetConfig {
    const FIRST: usize = offset_of!(Self, control) + size_of::<*const c_char>();
}

/// A running stack: a link, and a thread that serves it. Any thread may use it, several at the same time;
/// but no call may be under way, or come later, when taut_net_free() is called. After fork(2), only the
/// parent may use it, or free it.
pub struct TautNet(taut::Stack);

/// A TCP connection, a listener or a UDP socket of a running stack. Any thread may use it, several at the
/// same time; but no call may be under way, or come later, when taut_socket_close() or taut_socket_abort()
/// is called. A thread that waits in taut_socket_read() or taut_socket_write() is woken by
/// taut_socket_shutdown().
///
/// With SOCK_NONBLOCK in `flags`, a call that would wait returns -EAGAIN. When the stack was freed, calls
/// return -ENOTCONN; when its link is gone, -ENETDOWN.
pub struct TautSocket(Socket);

/// Makes a running stack and stores it at `net`; taut_net_free() ends it. On Ethernet this takes some
/// seconds, in which the addresses are checked.
///
/// Returns 0; -EINVAL if something in the configuration cannot be used; -E2BIG if it has something that
/// this version of the library does not have; -EPERM or -EACCES without the right to open the interface;
/// -EBUSY if another program has it; -EADDRNOTAVAIL if another station has the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_net_new(
    config: *const TautNetConfig,
    net: Option<&mut MaybeUninit<Option<Box<TautNet>>>>,
) -> c_int {
    door_unit(|| {
        let config = unsafe { sized(config)? };
        let out = given(net)?;
        if config.flags & !TAUT_NET_ETHERNET != 0 {
            return Err(Errno(EINVAL));
        }
        let link = match unsafe { text(config.tun)? } {
            Some(name) => Link::Tun(name),
            None => Link::Fd { fd: unsafe { duplicate(config.fd)? }, ethernet: config.flags != 0 },
        };
        let stack = build(Config {
            addresses: given(unsafe { text(config.addresses)? })?,
            host_addresses: unsafe { text(config.host_addresses)? }.unwrap_or_default(),
            link,
            mtu: config.mtu,
            control: unsafe { text(config.control)? },
        })?;
        out.write(Some(Box::new(TautNet(stack))));
        Ok(())
    })
}

/// # Safety
/// The descriptor stays open during the call, if it is open.
unsafe fn duplicate(fd: c_int) -> Answer<std::os::fd::OwnedFd> {
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    Ok(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?)
}

/// Waits until no connection is left, or for `timeout_ms`: those whose sockets were closed have then
/// delivered what was written. Before taut_net_free().
///
/// Returns 0; -ETIMEDOUT if some are left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_net_drain(net: *mut TautNet, timeout_ms: u32) -> c_int {
    door_unit(|| {
        let timeout = Duration::from_millis(timeout_ms.into());
        if unsafe { object(net)? }.0.drain(timeout) { Ok(()) } else { Err(Errno(ETIMEDOUT)) }
    })
}

/// Ends a running stack at once. Its sockets stay to be closed; their calls return -ENOTCONN, and threads
/// that wait in them are woken. Bytes that were written and not delivered are lost. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn taut_net_free(net: Option<Box<TautNet>>) {
    door_unit(|| {
        drop(net);
        Ok(())
    });
}

/// Sets one of the stack's settings by Linux's name, such as "net.ipv4.tcp_congestion_control" to "bbr":
/// for connections that begin later, mostly.
///
/// Returns 0; -ENOENT if there is no such setting; -EINVAL if it cannot have this value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_net_sysctl(
    net: *mut TautNet,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    door_unit(|| {
        let (name, value) = unsafe { (given(text(name)?)?, given(text(value)?)?) };
        Ok(unsafe { object(net)? }.0.set_sysctl(name, value)?)
    })
}

/// Whether calls of a socket with these flags do not wait.
fn nonblocking(flags: c_int) -> Answer<bool> {
    if flags & !SOCK_NONBLOCK == 0 { Ok(flags != 0) } else { Err(Errno(EINVAL)) }
}

fn boxed(socket: Socket) -> Option<Box<TautSocket>> {
    Some(Box::new(TautSocket(socket)))
}

/// Connects to `address` by TCP, and stores the connection at `socket`; taut_socket_close() frees it. Waits
/// for the end of the handshake, unless `flags` has SOCK_NONBLOCK: then it polls writable when it is
/// connected or has failed, and SO_ERROR says which.
///
/// Returns 0; -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, -ENETUNREACH, -EADDRNOTAVAIL, -EADDRINUSE;
/// -ENOTCONN if the stack has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_connect(
    net: *mut TautNet,
    address: *const sockaddr,
    len: socklen_t,
    flags: c_int,
    socket: Option<&mut MaybeUninit<Option<Box<TautSocket>>>>,
) -> c_int {
    door_unit(|| {
        let (net, to, out) = unsafe { (object(net)?, address::read(address, len)?, given(socket)?) };
        out.write(boxed(Socket::connect(&net.0, to, nonblocking(flags)?)?));
        Ok(())
    })
}

/// Listens for TCP connections at `address`, and stores the listener at `socket`. Port 0 picks a free port;
/// an unspecified address is every one of the stack, and :: those of IPv4, too. At most `backlog`
/// connections wait to be accepted.
///
/// Returns 0; -EADDRINUSE; -EADDRNOTAVAIL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_listen(
    net: *mut TautNet,
    address: *const sockaddr,
    len: socklen_t,
    backlog: u32,
    flags: c_int,
    socket: Option<&mut MaybeUninit<Option<Box<TautSocket>>>>,
) -> c_int {
    door_unit(|| {
        let (net, at, out) = unsafe { (object(net)?, address::read(address, len)?, given(socket)?) };
        out.write(boxed(Socket::listen(&net.0, at, backlog, nonblocking(flags)?)?));
        Ok(())
    })
}

/// Takes the next connection of a listener, and stores it at `socket`, and its peer's address, if `address`
/// is not NULL: `len` is the room there, then the address's length. `flags` are those of the connection.
///
/// Returns 0; -EAGAIN if none waits and the listener has SOCK_NONBLOCK; -ENOTCONN if the stack has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_accept(
    listener: *mut TautSocket,
    address: *mut sockaddr,
    len: Option<&mut socklen_t>,
    flags: c_int,
    socket: Option<&mut MaybeUninit<Option<Box<TautSocket>>>>,
) -> c_int {
    door_unit(|| {
        let (listener, out) = (unsafe { object(listener)? }, given(socket)?);
        if !address.is_null() && len.is_none() {
            return Err(Errno(EFAULT));
        }
        let (accepted, peer) = listener.0.accept(nonblocking(flags)?)?;
        out.write(boxed(accepted));
        unsafe { address::write(peer, address, len) }
    })
}

/// Opens a UDP socket at `address`, and stores it at `socket`. Port 0 picks a free port.
///
/// Returns 0; -EADDRINUSE; -EADDRNOTAVAIL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_udp(
    net: *mut TautNet,
    address: *const sockaddr,
    len: socklen_t,
    flags: c_int,
    socket: Option<&mut MaybeUninit<Option<Box<TautSocket>>>>,
) -> c_int {
    door_unit(|| {
        let (net, at, out) = unsafe { (object(net)?, address::read(address, len)?, given(socket)?) };
        out.write(boxed(Socket::udp(&net.0, at, nonblocking(flags)?)?));
        Ok(())
    })
}

/// Reads from a connection what there is, at most `len` bytes, and waits for the first.
///
/// Returns their number; 0 at the end of the stream; -EAGAIN; or the error that ended the connection, such
/// as -ECONNRESET.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_read(socket: *mut TautSocket, data: *mut c_void, len: usize) -> ssize_t {
    door_len(|| unsafe { object(socket)? }.0.read(unsafe { bytes_mut(data, len)? }))
}

/// Writes bytes to a connection, as many as there is room for, and waits for room for the first.
///
/// Returns their number; -EAGAIN; -EPIPE after taut_socket_shutdown(); or the error that ended the
/// connection. There is no signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_write(
    socket: *mut TautSocket,
    data: *const c_void,
    len: usize,
) -> ssize_t {
    door_len(|| unsafe { object(socket)? }.0.write(unsafe { bytes(data, len)? }))
}

/// Sends a datagram to `address`: all of it, or nothing.
///
/// Returns `len`; -EAGAIN; -EMSGSIZE; -ENETUNREACH; -EADDRNOTAVAIL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_sendto(
    socket: *mut TautSocket,
    data: *const c_void,
    len: usize,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    door_len(|| {
        let (data, to) = unsafe { (bytes(data, len)?, address::read(address, address_len)?) };
        unsafe { object(socket)? }.0.send_to(data, to)
    })
}

/// Receives a datagram; what does not fit into `data` is lost. Its sender is stored at `address`, if that
/// is not NULL: `address_len` is the room there, then the address's length.
///
/// Returns the number of bytes stored; -EAGAIN; -ENOTCONN if the stack has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_recvfrom(
    socket: *mut TautSocket,
    data: *mut c_void,
    len: usize,
    address: *mut sockaddr,
    address_len: Option<&mut socklen_t>,
) -> ssize_t {
    door_len(|| {
        if !address.is_null() && address_len.is_none() {
            return Err(Errno(EFAULT));
        }
        let (len, from) = unsafe { object(socket)? }.0.recv_from(unsafe { bytes_mut(data, len)? })?;
        unsafe { address::write(from, address, address_len)? };
        Ok(len)
    })
}

/// Ends reading (SHUT_RD), writing (SHUT_WR) or both (SHUT_RDWR) on a connection. After writing, the peer
/// reads the end of the stream behind all that was written.
///
/// Returns 0; or the error that ended the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_shutdown(socket: *mut TautSocket, how: c_int) -> c_int {
    door_unit(|| unsafe { object(socket)? }.0.shutdown(how))
}

/// Sets an option: those of taut_stack_setsockopt(). A listener has none.
///
/// Returns 0; -ENOPROTOOPT if there is no such option; -EINVAL if it cannot have this value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_setsockopt(
    socket: *mut TautSocket,
    level: c_int,
    name: c_int,
    value: i64,
) -> c_int {
    door_unit(|| unsafe { object(socket)? }.0.set_option(level, name, value))
}

/// Stores the present value of an option at `value`: those of taut_stack_getsockopt(). SO_ERROR is reported
/// once.
///
/// Returns 0; -ENOPROTOOPT if it cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_getsockopt(
    socket: *mut TautSocket,
    level: c_int,
    name: c_int,
    value: Option<&mut MaybeUninit<i64>>,
) -> c_int {
    door_unit(|| {
        let out = given(value)?;
        out.write(unsafe { object(socket)? }.0.option(level, name)?);
        Ok(())
    })
}

/// Sets an option of a connection whose value is no number: those of taut_stack_setsockopt_bytes().
///
/// Returns 0; -ENOENT if there is no congestion control of this name; -EINVAL if it has no such parameter;
/// -ENOPROTOOPT if there is no such option; -EOPNOTSUPP if it is no connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_setsockopt_bytes(
    socket: *mut TautSocket,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    door_unit(|| {
        let value = unsafe { bytes(value, len as usize)? };
        unsafe { object(socket)? }.0.set_option_bytes(level, name, value)
    })
}

/// Stores the present value of an option of a connection that is no number at `value`: those of
/// taut_stack_getsockopt_bytes(), with `len` as there.
///
/// Returns 0; -ENOPROTOOPT if there is no such option; -EOPNOTSUPP if it is no connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_getsockopt_bytes(
    socket: *mut TautSocket,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: Option<&mut socklen_t>,
) -> c_int {
    door_unit(|| {
        let found = unsafe { object(socket)? }.0.option_bytes(level, name)?;
        unsafe { write_some(&found, value, len) }
    })
}

/// Stores the address and port of the near end at `address`; `len` is the room there, then the address's
/// length.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_getsockname(
    socket: *mut TautSocket,
    address: *mut sockaddr,
    len: Option<&mut socklen_t>,
) -> c_int {
    door_unit(|| {
        let own = unsafe { object(socket)? }.0.local_addr()?;
        unsafe { address::write(own, given((!address.is_null()).then_some(address))?, len) }
    })
}

/// The socket's descriptor, for poll(2) and its like: it polls readable (POLLIN, whatever is waited for)
/// when taut_socket_poll() has something to say. It is the socket's: use it for nothing else, and until the
/// socket is closed.
///
/// Returns the descriptor; -EMFILE, -ENFILE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_fd(socket: *mut TautSocket) -> c_int {
    door(|| unsafe { object(socket)? }.0.fd().map(i64::from)) as c_int
}

/// Which of `events`, POLLIN and POLLOUT, hold now: something to read or to accept; room to write, or a
/// connection that is open or has failed. If none does, the socket's descriptor polls unreadable until one
/// does; if one does, it stays readable. So an event loop calls this when the descriptor polls readable,
/// and before it waits for other events. For one thread at a time.
///
/// Returns the events that hold, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_poll(socket: *mut TautSocket, events: c_int) -> c_int {
    door(|| unsafe { object(socket)? }.0.poll(events).map(i64::from)) as c_int
}

/// Closes a socket and frees it. A connection still delivers in the background what was written, then ends
/// its stream; if received bytes were not read, the peer gets a reset. Never waits. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn taut_socket_close(socket: Option<Box<TautSocket>>) {
    door_unit(|| {
        drop(socket);
        Ok(())
    });
}

/// taut_socket_close() with a reset: the peer sees an error, and what was written and not delivered is
/// lost.
#[unsafe(no_mangle)]
pub extern "C" fn taut_socket_abort(socket: Option<Box<TautSocket>>) {
    door_unit(|| {
        let socket = given(socket)?;
        // A listener or a UDP socket is closed.
        _ = socket.0.reset_on_close();
        Ok(())
    });
}
