//! Packets and time: the functions by which the tool plays the network.

#![expect(unsafe_code, reason = "the tool passes pointers to its buffers")]

use std::ffi::{c_int, c_longlong, c_uint, c_void};

use libc::{size_t, timeval, timezone};

use crate::clock;
use crate::table::User;

/// A packet arrives at the stack.
pub(crate) extern "C" fn netdev_send(_: User, packet: *const c_void, len: size_t) -> c_int {
    if packet.is_null() || len == 0 {
        return -1;
    }
    // SAFETY: the tool passes a packet of this length.
    let packet = unsafe { std::slice::from_raw_parts(packet.cast::<u8>(), len) };
    clock::with(|shared| shared.sockets.host.deliver(packet)).map_or(-1, |()| 0)
}

/// The next packet that the stack sends, cut to the buffer, and the time at which it left. With nothing more to come,
/// its length is 0, which ends the tool.
pub(crate) extern "C" fn netdev_receive(
    _: User,
    buffer: *mut c_void,
    count: *mut size_t,
    time_usecs: *mut c_longlong,
) -> c_int {
    if buffer.is_null() || count.is_null() || time_usecs.is_null() {
        return -1;
    }
    let (packet, at) = clock::receive().unwrap_or_default();
    // SAFETY: the tool passes the length of its buffer in `count`, and room for two numbers.
    unsafe {
        let len = packet.len().min(*count);
        std::ptr::copy_nonoverlapping(packet.as_ptr(), buffer.cast::<u8>(), len);
        *count = len;
        *time_usecs = at as c_longlong;
    }
    0
}

/// Time passes.
pub(crate) extern "C" fn usleep(_: User, usecs: c_uint) -> c_int {
    clock::sleep_us(usecs.into());
    0
}

/// What time it is.
pub(crate) extern "C" fn gettimeofday(_: User, time: *mut timeval, _: *mut timezone) -> c_int {
    let us = clock::look();
    if !time.is_null() {
        let value = timeval { tv_sec: (us / 1_000_000) as _, tv_usec: (us % 1_000_000) as _ };
        // SAFETY: the tool passes room for it.
        unsafe { time.write(value) };
    }
    0
}
