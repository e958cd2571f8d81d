//! The table of functions. Its order is the interface; each function but `free` gets `userdata` first, which nothing here
//! needs, because there is one stack.

#![expect(unsafe_code, reason = "the interface is C's: its caller passes a pointer to the table")]

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};

use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
    timezone,
};

use crate::{calls, clock, device};

pub(crate) type User = *mut c_void;

/// `struct packetdrill_interface`: 264 bytes where pointers have 8.
#[repr(C)]
pub(crate) struct Interface {
    userdata: User,
    free: extern "C" fn(User),
    socket: extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    bind: extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    listen: extern "C" fn(User, c_int, c_int) -> c_int,
    accept: extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    connect: extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    read: extern "C" fn(User, c_int, *mut c_void, size_t) -> ssize_t,
    readv: extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    recv: extern "C" fn(User, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    recvfrom:
        extern "C" fn(User, c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
    recvmsg: extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    write: extern "C" fn(User, c_int, *const c_void, size_t) -> ssize_t,
    writev: extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    send: extern "C" fn(User, c_int, *const c_void, size_t, c_int) -> ssize_t,
    sendto: extern "C" fn(User, c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t,
    sendmsg: extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    fcntl: extern "C" fn(User, c_int, c_int, c_long) -> c_int,
    ioctl: extern "C" fn(User, c_int, c_ulong, *mut c_void) -> c_int,
    close: extern "C" fn(User, c_int) -> c_int,
    shutdown: extern "C" fn(User, c_int, c_int) -> c_int,
    getsockopt: extern "C" fn(User, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    setsockopt: extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    poll: extern "C" fn(User, *mut pollfd, nfds_t, c_int) -> c_int,
    netdev_send: extern "C" fn(User, *const c_void, size_t) -> c_int,
    netdev_receive: extern "C" fn(User, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    usleep: extern "C" fn(User, c_uint) -> c_int,
    gettimeofday: extern "C" fn(User, *mut timeval, *mut timezone) -> c_int,
    epoll_create: extern "C" fn(User, c_int) -> c_int,
    epoll_ctl: extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    epoll_wait: extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pipe: extern "C" fn(User, *mut c_int) -> c_int,
    splice: extern "C" fn(User, c_int, *mut loff_t, c_int, *mut loff_t, size_t, c_uint) -> ssize_t,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Interface>() == 264);

/// The stack is not needed any more.
extern "C" fn free(_: User) {
    clock::drop_stack();
}

/// Makes the stack, and fills the table.
///
/// # Safety
/// `flags` is null or a C string, and `table` points to a table that may be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, table: *mut Interface) {
    let flags = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: the caller says that it is a C string.
        unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
    };
    if let Err(error) = clock::make_stack(&flags) {
        eprintln!("taut-packetdrill-so: {error}");
        std::process::exit(2);
    }
    let filled = Interface {
        userdata: std::ptr::null_mut(),
        free,
        socket: calls::socket,
        bind: calls::bind,
        listen: calls::listen,
        accept: calls::accept,
        connect: calls::connect,
        read: calls::read,
        readv: calls::readv,
        recv: calls::recv,
        recvfrom: calls::recvfrom,
        recvmsg: calls::recvmsg,
        write: calls::write,
        writev: calls::writev,
        send: calls::send,
        sendto: calls::sendto,
        sendmsg: calls::sendmsg,
        fcntl: calls::fcntl,
        ioctl: calls::ioctl,
        close: calls::close,
        shutdown: calls::shutdown,
        getsockopt: calls::getsockopt,
        setsockopt: calls::setsockopt,
        poll: calls::poll,
        netdev_send: device::netdev_send,
        netdev_receive: device::netdev_receive,
        usleep: device::usleep,
        gettimeofday: device::gettimeofday,
        epoll_create: calls::epoll_create,
        epoll_ctl: calls::epoll_ctl,
        epoll_wait: calls::epoll_wait,
        pipe: calls::pipe,
        splice: calls::splice,
    };
    // SAFETY: the caller says that it may be written.
    unsafe { table.write(filled) };
}
