//! Socket calls of the tool: C's values to those of `taut-script`, whose sockets do the work. Errors go to `errno`.

#![expect(
    unsafe_code,
    reason = "the tool passes pointers to its buffers, as the C library's calls have them"
)]

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::slice;

use libc::{
    cmsghdr, epoll_event, iovec, linger, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, sockaddr_in,
    sockaddr_in6, socklen_t, ssize_t,
};
use taut_core::{Duration, Instant};
use taut_script::sockets::{Called, EpollItem, OptValue, PollFd, Read, Stop, ZeroCopy};
use taut_script::{Errno, option_name};

use crate::clock::{Shared, until_done, with};
use crate::settings;
use crate::table::User;

/// The result of a call as C has it.
#[expect(clippy::needless_pass_by_value, reason = "a result is used up by returning it")]
fn result(called: Option<Called<i64>>) -> i64 {
    let errno = match called {
        Some(Ok(value)) => return value,
        Some(Err(Stop::Fails(errno))) => errno.number(),
        Some(Err(Stop::Blocks)) => libc::EAGAIN,
        Some(Err(Stop::Unsupported(_))) => libc::EOPNOTSUPP,
        None => libc::EBADF,
    };
    // SAFETY: the location belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn int(called: Option<Called<i64>>) -> c_int {
    result(called) as c_int
}

fn done(called: Option<Called<()>>) -> c_int {
    int(called.map(|called| called.map(|()| 0)))
}

fn invalid<T>() -> Called<T> {
    Err(Stop::Fails(Errno("EINVAL")))
}

/// The address behind a pointer.
fn address(at: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if at.is_null() || (len as usize) < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: the tool passes an address of this length; both kinds are read only if they fit.
    unsafe {
        match c_int::from((*at).sa_family) {
            libc::AF_INET => {
                let at = at.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(at.sin_addr.s_addr));
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(at.sin_port)))
            }
            libc::AF_INET6 if len as usize >= size_of::<sockaddr_in6>() => {
                let at = at.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(at.sin6_addr.s6_addr).to_canonical();
                Some(SocketAddr::new(ip, u16::from_be(at.sin6_port)))
            }
            _ => None,
        }
    }
}

/// Writes an address, cut to the room that there is.
fn put_address(addr: SocketAddr, at: *mut sockaddr, len: *mut socklen_t) {
    if at.is_null() || len.is_null() {
        return;
    }
    // SAFETY: the tool passes room for `len` bytes; all-zero addresses are valid.
    unsafe {
        let (bytes, size) = match addr {
            SocketAddr::V4(addr) => {
                let mut c: sockaddr_in = std::mem::zeroed();
                c.sin_family = libc::AF_INET as _;
                c.sin_port = addr.port().to_be();
                c.sin_addr.s_addr = u32::from(*addr.ip()).to_be();
                (
                    slice::from_raw_parts((&raw const c).cast::<u8>(), size_of_val(&c)).to_vec(),
                    size_of_val(&c),
                )
            }
            SocketAddr::V6(addr) => {
                let mut c: sockaddr_in6 = std::mem::zeroed();
                c.sin6_family = libc::AF_INET6 as _;
                c.sin6_port = addr.port().to_be();
                c.sin6_addr.s6_addr = addr.ip().octets();
                (
                    slice::from_raw_parts((&raw const c).cast::<u8>(), size_of_val(&c)).to_vec(),
                    size_of_val(&c),
                )
            }
        };
        let room = (*len as usize).min(size);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), room);
        *len = size as socklen_t;
    }
}

/// The pieces of memory of a call.
///
/// # Safety
/// `iov` points to `count` pieces.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> &'a [iovec] {
    if iov.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { slice::from_raw_parts(iov, count) }
}

fn total(pieces: &[iovec]) -> usize {
    pieces.iter().map(|piece| piece.iov_len).sum()
}

/// Fills memory with received bytes: zeros.
///
/// # Safety
/// `at` is null, or points to `len` bytes.
unsafe fn fill(at: *mut c_void, len: usize) {
    if !at.is_null() {
        // SAFETY: as the caller says.
        unsafe { at.cast::<u8>().write_bytes(0, len) };
    }
}

/// The same over several pieces.
///
/// # Safety
/// Each piece is memory that may be written.
unsafe fn fill_pieces(pieces: &[iovec], mut len: usize) {
    for piece in pieces {
        let part = piece.iov_len.min(len);
        // SAFETY: as the caller says.
        unsafe { fill(piece.iov_base, part) };
        len -= part;
    }
}

// ---- how sockets begin and end ----

pub(crate) extern "C" fn socket(_: User, _domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if kind & 0xf != libc::SOCK_STREAM || !matches!(protocol, 0 | libc::IPPROTO_TCP) {
        return int(Some(Err(Stop::Unsupported("TCP only".to_owned()))));
    }
    int(with(|shared| {
        if shared.reads_sysctls {
            settings::read_sysctls(&mut shared.sockets.host);
        }
        let fd = shared.next_fd;
        shared.next_fd += 1;
        shared.sockets.socket(fd, kind & libc::SOCK_NONBLOCK != 0).map(|()| fd.into())
    }))
}

pub(crate) extern "C" fn bind(_: User, fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    done(with(|shared| match address(at, len) {
        Some(at) => shared.sockets.bind(fd, at),
        None => invalid(),
    }))
}

pub(crate) extern "C" fn listen(_: User, fd: c_int, backlog: c_int) -> c_int {
    done(with(|shared| shared.sockets.listen(fd, backlog.max(0) as u32)))
}

pub(crate) extern "C" fn accept(_: User, fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    int(until_done(|shared, _| {
        let new = shared.next_fd;
        let peer = shared.sockets.accept(fd, new)?;
        shared.next_fd += 1;
        put_address(peer, at, len);
        Ok(new.into())
    }))
}

pub(crate) extern "C" fn connect(_: User, fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    let mut again = false;
    done(until_done(|shared, _| match address(at, len) {
        Some(to) => shared.sockets.connect(fd, to, std::mem::replace(&mut again, true)),
        None => invalid(),
    }))
}

pub(crate) extern "C" fn close(_: User, fd: c_int) -> c_int {
    done(with(|shared| shared.sockets.close(fd)))
}

pub(crate) extern "C" fn shutdown(_: User, fd: c_int, how: c_int) -> c_int {
    done(with(|shared| shared.sockets.shutdown(fd, how.into())))
}

// ---- data ----

/// Reads, waiting if need be.
fn receive(fd: c_int, len: usize, flags: c_int) -> Option<Called<Read>> {
    until_done(|shared, _| shared.sockets.read(fd, len, flags.into()))
}

fn receive_into(fd: c_int, buffer: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    let read = receive(fd, len, flags);
    if let Some(Ok(read)) = &read {
        // SAFETY: the tool passes room for `len` bytes, and no more were read.
        unsafe { fill(buffer, read.len.min(len)) };
    }
    result(read.map(|read| read.map(|read| read.len as i64))) as ssize_t
}

pub(crate) extern "C" fn read(_: User, fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    receive_into(fd, buffer, len, 0)
}

pub(crate) extern "C" fn recv(_: User, fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    receive_into(fd, buffer, len, flags)
}

pub(crate) extern "C" fn recvfrom(
    _: User,
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    _from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let len = receive_into(fd, buffer, len, flags);
    // A connected socket reports no address.
    if len >= 0 && !from_len.is_null() {
        // SAFETY: the tool passes a number.
        unsafe { *from_len = 0 };
    }
    len
}

pub(crate) extern "C" fn readv(_: User, fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the tool passes as many pieces.
    let pieces = unsafe { pieces(iov, count.max(0) as usize) };
    let read = receive(fd, total(pieces), 0);
    if let Some(Ok(read)) = &read {
        // SAFETY: the pieces are the tool's buffers.
        unsafe { fill_pieces(pieces, read.len) };
    }
    result(read.map(|read| read.map(|read| read.len as i64))) as ssize_t
}

pub(crate) extern "C" fn recvmsg(_: User, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if message.is_null() {
        return result(Some(invalid())) as ssize_t;
    }
    // SAFETY: the tool passes a message.
    let message = unsafe { &mut *message };
    if flags & libc::MSG_ERRQUEUE != 0 {
        let found = with(|shared| shared.sockets.completion(fd));
        if let Some(Ok(found)) = &found {
            put_completion(message, *found, is_v6(fd));
        }
        return result(found.map(|found| found.map(|_| 0))) as ssize_t;
    }
    // SAFETY: the message has as many pieces.
    let pieces = unsafe { pieces(message.msg_iov, message.msg_iovlen) };
    let read = receive(fd, total(pieces), flags);
    if let Some(Ok(read)) = &read {
        // SAFETY: the pieces are the tool's buffers.
        unsafe { fill_pieces(pieces, read.len) };
        message.msg_namelen = 0;
        message.msg_flags = 0;
        match read.inq {
            Some(inq) => put_control(message, libc::SOL_TCP, libc::TCP_CM_INQ, &(inq as c_int).to_ne_bytes()),
            None => message.msg_controllen = 0,
        }
    }
    result(read.map(|read| read.map(|read| read.len as i64))) as ssize_t
}

fn is_v6(fd: c_int) -> bool {
    with(|shared| shared.sockets.info(fd).is_some_and(|info| info.local.is_ipv6())).unwrap_or(false)
}

/// `struct sock_extended_err` about zero-copy writes, as `MSG_ERRQUEUE` has it.
fn put_completion(message: &mut msghdr, done: ZeroCopy, v6: bool) {
    const ORIGIN_ZEROCOPY: u8 = 5;
    let mut error = Vec::from(0_u32.to_ne_bytes());
    error.extend([ORIGIN_ZEROCOPY, 0, done.copied.into(), 0]);
    error.extend(done.first.to_ne_bytes());
    error.extend(done.last.to_ne_bytes());
    let (level, kind) =
        if v6 { (libc::SOL_IPV6, libc::IPV6_RECVERR) } else { (libc::SOL_IP, libc::IP_RECVERR) };
    message.msg_flags = libc::MSG_ERRQUEUE;
    put_control(message, level, kind, &error);
}

/// The one control message of a call, if there is room for it.
fn put_control(message: &mut msghdr, level: c_int, kind: c_int, data: &[u8]) {
    // SAFETY: the macros of C compute sizes; the room is the message's own.
    unsafe {
        let space = libc::CMSG_SPACE(data.len() as c_uint) as usize;
        if message.msg_control.is_null() || message.msg_controllen < space {
            message.msg_flags |= libc::MSG_CTRUNC;
            message.msg_controllen = 0;
            return;
        }
        message.msg_control.cast::<u8>().write_bytes(0, space);
        let header = message.msg_control.cast::<cmsghdr>();
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(data.len() as c_uint) as _;
        std::ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(header), data.len());
        message.msg_controllen = space as _;
    }
}

/// `to` counts only with `MSG_FASTOPEN`.
fn transmit(fd: c_int, to: Option<SocketAddr>, len: usize, flags: c_int) -> ssize_t {
    let (mut written, mut again) = (0, false);
    let called = until_done(|shared, _| {
        let again = std::mem::replace(&mut again, true);
        shared.sockets.send_to(fd, to, len, flags.into(), &mut written, again)
    });
    result(called.map(|called| called.map(|len| len as i64))) as ssize_t
}

pub(crate) extern "C" fn write(_: User, fd: c_int, _buffer: *const c_void, len: size_t) -> ssize_t {
    transmit(fd, None, len, 0)
}

pub(crate) extern "C" fn send(
    _: User,
    fd: c_int,
    _buffer: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    transmit(fd, None, len, flags)
}

pub(crate) extern "C" fn sendto(
    _: User,
    fd: c_int,
    _buffer: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    transmit(fd, address(to, to_len), len, flags)
}

pub(crate) extern "C" fn writev(_: User, fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the tool passes as many pieces.
    transmit(fd, None, total(unsafe { pieces(iov, count.max(0) as usize) }), 0)
}

pub(crate) extern "C" fn sendmsg(_: User, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if message.is_null() {
        return result(Some(invalid())) as ssize_t;
    }
    // SAFETY: the tool passes a message with as many pieces as it says.
    let (len, to) = unsafe {
        let message = &*message;
        (
            total(pieces(message.msg_iov, message.msg_iovlen)),
            address(message.msg_name.cast(), message.msg_namelen),
        )
    };
    transmit(fd, to, len, flags)
}

pub(crate) extern "C" fn pipe(_: User, fds: *mut c_int) -> c_int {
    done(with(|shared| {
        let out = shared.next_fd;
        shared.next_fd += 2;
        shared.sockets.pipe(out, out + 1);
        if fds.is_null() {
            return invalid();
        }
        // SAFETY: the tool passes room for two numbers.
        unsafe {
            *fds = out;
            *fds.add(1) = out + 1;
        }
        Ok(())
    }))
}

pub(crate) extern "C" fn splice(
    _: User,
    from: c_int,
    _from_offset: *mut loff_t,
    to: c_int,
    _to_offset: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let called = until_done(|shared, _| shared.sockets.splice(from, to, len, flags.into()));
    result(called.map(|called| called.map(|len| len as i64))) as ssize_t
}

// ---- options ----

pub(crate) extern "C" fn fcntl(_: User, fd: c_int, command: c_int, argument: c_long) -> c_int {
    int(with(|shared| match command {
        _ if !shared.sockets.is_open(fd) => Err(Stop::Fails(Errno("EBADF"))),
        libc::F_GETFD | libc::F_SETFD => Ok(0),
        libc::F_GETFL if shared.sockets.is_nonblocking(fd) => Ok((libc::O_RDWR | libc::O_NONBLOCK).into()),
        libc::F_GETFL => Ok(libc::O_RDWR.into()),
        libc::F_SETFL => {
            let on = argument & c_long::from(libc::O_NONBLOCK) != 0;
            shared.sockets.set_nonblocking(fd, on).map(|()| 0)
        }
        _ => invalid(),
    }))
}

/// Linux's number of `SIOCOUTQNSD`: bytes that were not sent.
const SIOCOUTQNSD: c_ulong = 0x894b;

pub(crate) extern "C" fn ioctl(_: User, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let name = match request {
        libc::FIONREAD => "SIOCINQ",
        libc::TIOCOUTQ => "SIOCOUTQ",
        SIOCOUTQNSD => "SIOCOUTQNSD",
        libc::FIONBIO => "FIONBIO",
        _ => "",
    };
    let argument = argument.cast::<c_int>();
    done(with(|shared| {
        if argument.is_null() {
            return invalid();
        }
        // SAFETY: these requests take a number.
        let given = unsafe { argument.read_unaligned() };
        let value = shared.sockets.ioctl(fd, name, given.into())?;
        // SAFETY: as above.
        unsafe { argument.write_unaligned(value as c_int) };
        Ok(())
    }))
}

pub(crate) extern "C" fn setsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    done(with(|shared| set_option(shared, fd, (level, option), value, len as usize)))
}

fn set_option(
    shared: &mut Shared,
    fd: c_int,
    (level, option): (c_int, c_int),
    value: *const c_void,
    len: usize,
) -> Called<()> {
    let name = option_name(level, option.into()).ok_or(Stop::Fails(Errno("ENOPROTOOPT")))?;
    if value.is_null() {
        return invalid();
    }
    // SAFETY: the tool passes a value of `len` bytes; each kind is read only if it fits.
    let given = unsafe {
        if name == "TCP_CONGESTION" {
            let bytes = slice::from_raw_parts(value.cast::<u8>(), len);
            let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
            OptValue::Text(String::from_utf8_lossy(text).into_owned())
        } else if name == "SO_LINGER" && len >= size_of::<linger>() {
            let given = value.cast::<linger>().read_unaligned();
            OptValue::Linger(given.l_onoff.into(), given.l_linger.into())
        } else if name == "SO_MAX_PACING_RATE" && len >= 8 {
            OptValue::Int(value.cast::<i64>().read_unaligned())
        } else if len >= size_of::<c_int>() {
            OptValue::Int(value.cast::<c_int>().read_unaligned().into())
        } else {
            return invalid();
        }
    };
    shared.sockets.set_option(fd, name, &given)
}

pub(crate) extern "C" fn getsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    done(with(|shared| {
        let name = option_name(level, option.into()).ok_or(Stop::Fails(Errno("ENOPROTOOPT")))?;
        let found = shared.sockets.option(fd, name)?;
        if value.is_null() || len.is_null() {
            return invalid();
        }
        // SAFETY: the tool passes a number.
        let room = unsafe { *len } as usize;
        let bytes = match found {
            OptValue::Int(found) if room >= 8 && name == "SO_MAX_PACING_RATE" => found.to_ne_bytes().to_vec(),
            OptValue::Int(found) => {
                (found.clamp(i32::MIN.into(), u32::MAX.into()) as c_int).to_ne_bytes().to_vec()
            }
            OptValue::Text(text) => [text.as_bytes(), b"\0"].concat(),
            OptValue::Linger(on, seconds) => {
                [(on as c_int).to_ne_bytes(), (seconds as c_int).to_ne_bytes()].concat()
            }
        };
        let fits = bytes.len().min(room);
        // SAFETY: no more is written than there is room for.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), fits);
            *len = fits as socklen_t;
        }
        Ok(())
    }))
}

// ---- readiness ----

/// When a call with a timeout in milliseconds gives up; the first call sets it.
fn give_up(shared: &Shared, deadline: &mut Option<Instant>, timeout_ms: c_int) -> Instant {
    *deadline.get_or_insert_with(|| match u64::try_from(timeout_ms) {
        Ok(ms) => shared.sockets.host.now() + Duration::from_millis(ms),
        Err(_) => Instant::NEVER,
    })
}

pub(crate) extern "C" fn poll(_: User, fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the tool passes as many entries.
    let entries: &mut [pollfd] =
        if fds.is_null() { &mut [] } else { unsafe { slice::from_raw_parts_mut(fds, count as usize) } };
    let mut deadline = None;
    int(until_done(|shared, wakes_at| {
        *wakes_at = give_up(shared, &mut deadline, timeout);
        let polled = |entry: &pollfd| PollFd { fd: entry.fd, events: entry.events.into(), revents: 0 };
        let mut list: Vec<PollFd> = entries.iter().map(polled).collect();
        let called = match shared.sockets.poll(&mut list) {
            Err(Stop::Blocks) if shared.sockets.host.now() >= *wakes_at => Ok(0),
            called => called,
        };
        for (entry, polled) in entries.iter_mut().zip(&list) {
            entry.revents = polled.revents as _;
        }
        called
    }))
}

pub(crate) extern "C" fn epoll_create(_: User, size: c_int) -> c_int {
    int(with(|shared| {
        if size <= 0 {
            return invalid();
        }
        let fd = shared.next_fd;
        shared.next_fd += 1;
        shared.sockets.epoll_create(fd);
        Ok(fd.into())
    }))
}

pub(crate) extern "C" fn epoll_ctl(
    _: User,
    epoll: c_int,
    action: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    done(with(|shared| {
        let item = if event.is_null() {
            EpollItem { data: 0, events: 0 }
        } else {
            // SAFETY: the tool passes an event, which C does not align.
            let event = unsafe { event.read_unaligned() };
            EpollItem { data: event.u64 as i64, events: event.events.into() }
        };
        shared.sockets.epoll_ctl(epoll, action.into(), fd, item)
    }))
}

pub(crate) extern "C" fn epoll_wait(
    _: User,
    epoll: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    let mut deadline = None;
    int(until_done(|shared, wakes_at| {
        let Some(max) = usize::try_from(max).ok().filter(|&max| max > 0 && !events.is_null()) else {
            return invalid();
        };
        *wakes_at = give_up(shared, &mut deadline, timeout);
        let found = match shared.sockets.epoll_wait(epoll, max) {
            Err(Stop::Blocks) if shared.sockets.host.now() >= *wakes_at => Vec::new(),
            found => found?,
        };
        for (at, item) in found.iter().enumerate() {
            let event = epoll_event { events: item.events as u32, u64: item.data as u64 };
            // SAFETY: the tool passes room for `max` events, and no more were found.
            unsafe { events.add(at).write_unaligned(event) };
        }
        Ok(found.len() as i64)
    }))
}
