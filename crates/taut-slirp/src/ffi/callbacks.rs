//! The caller's functions, as libslirp.h has them, and how they are called.

use std::ffi::{c_char, c_int, c_void};

use libc::{size_t, ssize_t};
use taut_core::Instant;

use super::instance::Slirp;

pub type ReadCb = Option<unsafe extern "C" fn(*mut c_void, size_t, *mut c_void) -> ssize_t>;
pub type WriteCb = Option<unsafe extern "C" fn(*const c_void, size_t, *mut c_void) -> ssize_t>;
pub type TimerCb = unsafe extern "C" fn(*mut c_void);
pub type AddPollCb = Option<unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int>;
pub type GetREventsCb = Option<unsafe extern "C" fn(c_int, *mut c_void) -> c_int>;

/// `SlirpCb` of libslirp.h.
#[repr(C)]
#[derive(Debug)]
pub struct SlirpCb {
    pub send_packet: WriteCb,
    pub guest_error: Option<unsafe extern "C" fn(*const c_char, *mut c_void)>,
    pub clock_get_ns: Option<unsafe extern "C" fn(*mut c_void) -> i64>,
    pub timer_new: Option<unsafe extern "C" fn(TimerCb, *mut c_void, *mut c_void) -> *mut c_void>,
    pub timer_free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub timer_mod: Option<unsafe extern "C" fn(*mut c_void, i64, *mut c_void)>,
    pub register_poll_fd: Option<unsafe extern "C" fn(c_int, *mut c_void)>,
    pub unregister_poll_fd: Option<unsafe extern "C" fn(c_int, *mut c_void)>,
    pub notify: Option<unsafe extern "C" fn(*mut c_void)>,
    // Since version 4 of a configuration.
    pub init_completed: Option<unsafe extern "C" fn(*mut Slirp, *mut c_void)>,
    pub timer_new_opaque: Option<unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) -> *mut c_void>,
}

/// The caller's functions.
#[derive(Clone, Copy)]
pub(super) struct Callbacks {
    pub(super) send_packet: WriteCb,
    pub(super) guest_error: Option<unsafe extern "C" fn(*const c_char, *mut c_void)>,
    pub(super) clock_get_ns: Option<unsafe extern "C" fn(*mut c_void) -> i64>,
    pub(super) timer_new: Option<unsafe extern "C" fn(TimerCb, *mut c_void, *mut c_void) -> *mut c_void>,
    pub(super) timer_free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub(super) timer_mod: Option<unsafe extern "C" fn(*mut c_void, i64, *mut c_void)>,
    pub(super) notify: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(super) init_completed: Option<unsafe extern "C" fn(*mut Slirp, *mut c_void)>,
    pub(super) timer_new_opaque: Option<unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) -> *mut c_void>,
    pub(super) opaque: *mut c_void,
}

impl Callbacks {
    /// # Safety
    /// `from` points to a `SlirpCb` of this version.
    pub(super) unsafe fn read(from: *const SlirpCb, version: u32, opaque: *mut c_void) -> Self {
        // SAFETY: of the fields that every version has, by the contract of this function.
        let mut read = unsafe {
            Self {
                send_packet: (&raw const (*from).send_packet).read(),
                guest_error: (&raw const (*from).guest_error).read(),
                clock_get_ns: (&raw const (*from).clock_get_ns).read(),
                timer_new: (&raw const (*from).timer_new).read(),
                timer_free: (&raw const (*from).timer_free).read(),
                timer_mod: (&raw const (*from).timer_mod).read(),
                notify: (&raw const (*from).notify).read(),
                init_completed: None,
                timer_new_opaque: None,
                opaque,
            }
        };
        if version >= 4 {
            // SAFETY: since this version there are these, too.
            unsafe {
                read.init_completed = (&raw const (*from).init_completed).read();
                read.timer_new_opaque = (&raw const (*from).timer_new_opaque).read();
            }
        }
        read
    }

    /// The caller's clock.
    pub(super) fn now(&self) -> Instant {
        // SAFETY: the callback is the caller's, for this argument.
        let ns = self.clock_get_ns.map_or(0, |clock| unsafe { clock(self.opaque) });
        Instant::from_nanos(u64::try_from(ns).unwrap_or(0))
    }

    pub(super) fn guest_error(&self, message: &str) {
        let Some(report) = self.guest_error else { return };
        let message = message.replace('\0', " ");
        if let Ok(message) = std::ffi::CString::new(message) {
            // SAFETY: the text lives until the call returns, and a caller may not use it after that.
            unsafe { report(message.as_ptr(), self.opaque) };
        }
    }
}
