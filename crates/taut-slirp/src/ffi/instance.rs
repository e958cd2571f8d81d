//! An instance, as the caller has it: when it is borrowed, and when the caller is called.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use taut_core::Instant;

use super::callbacks::{Callbacks, WriteCb};
use super::doors::on_timer;
use super::values::TIMER_RA;
use crate::core::Call;
use crate::engine::Engine;
use crate::link::Frames;

/// Turns of one call. A caller that answers each frame at once may leave more to do: its loop does the rest.
const ROUNDS: usize = 1_024;

/// An instance, as the caller has it.
pub struct Slirp {
    pub(super) engine: RefCell<Option<Engine>>,
    pub(super) callbacks: Callbacks,
    /// The caller's timer, and the time in milliseconds for which it is set.
    pub(super) timer: Cell<*mut c_void>,
    pub(super) armed_ms: Cell<i64>,
    /// Memory for frames that is not in use.
    pub(super) spare: RefCell<Frames>,
    pub(super) services: RefCell<Vec<CallerService>>,
    /// Whether the caller's loop is between its two calls, or may be.
    pub(super) is_polling: Cell<bool>,
    /// Whether frames and calls are being handed out.
    pub(super) is_finishing: Cell<bool>,
}

/// A service of the caller's own.
#[derive(Clone, Copy)]
pub(super) struct CallerService {
    pub(super) at: SocketAddr,
    pub(super) write: WriteCb,
    pub(super) opaque: *mut c_void,
}

impl Slirp {
    /// Uses the engine. `None` if it is gone, after a panic, or in use.
    pub(super) fn with<R>(&self, call: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        let mut engine = self.engine.try_borrow_mut().ok()?;
        engine.as_mut().map(call)
    }

    /// The same at the caller's time, with all that follows: turns, frames, calls.
    pub(super) fn act<R>(&self, call: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        let now = self.callbacks.now();
        let result = self.with(|engine| {
            engine.set_time(now);
            call(engine)
        });
        self.finish();
        result
    }

    /// Takes turns, and gives the caller what came of them, until nothing does. A call back in leaves what
    /// comes of it to the call around it: a caller that answers each frame at once would go deeper with each.
    pub(super) fn finish(&self) {
        if self.is_finishing.replace(true) {
            return;
        }
        let is_quiet = (0..ROUNDS).any(|_| self.hand_out());
        self.is_finishing.set(false);
        self.with(|engine| engine.is_behind = !is_quiet || engine.link.is_spent());
        self.arm();
        if !self.is_polling.get()
            && self.with(Engine::must_notify) == Some(true)
            && let Some(notify) = self.callbacks.notify
        {
            // SAFETY: the callback is the caller's, for this argument.
            unsafe { notify(self.callbacks.opaque) };
        }
    }

    /// Takes a turn, and gives the caller what came of it. Returns whether that was nothing.
    fn hand_out(&self) -> bool {
        let empty = self.spare.take();
        let taken = self.with(|engine| {
            engine.turn();
            (engine.take_frames(empty), engine.take_calls())
        });
        let Some((mut frames, calls)) = taken else { return true };
        let is_quiet = frames.is_empty() && calls.is_empty();
        for frame in frames.iter() {
            self.send(frame);
        }
        calls.iter().for_each(|call| self.call(call));
        frames.clear();
        self.spare.replace(frames);
        is_quiet
    }

    pub(super) fn send(&self, frame: &[u8]) {
        if let Some(send) = self.callbacks.send_packet {
            // SAFETY: the frame lives until the call returns. One that has no room is lost, as on a wire.
            _ = unsafe { send(frame.as_ptr().cast(), frame.len(), self.callbacks.opaque) };
        }
    }

    /// Gives the caller's service what its guest has sent.
    pub(super) fn call(&self, call: &Call) {
        let service = self.services.borrow().iter().find(|service| service.at == call.at).copied();
        if let Some(CallerService { write: Some(write), opaque, .. }) = service {
            // SAFETY: the callback is the caller's, for this argument; the bytes live until it returns.
            _ = unsafe { write(call.bytes.as_ptr().cast(), call.bytes.len(), opaque) };
        }
    }

    /// Makes the timer by the caller's callbacks; only IPv6 needs one.
    pub(super) fn make_timer(&self) {
        let this = ptr::from_ref(self).cast_mut().cast::<c_void>();
        let Callbacks { timer_new, timer_new_opaque, opaque, .. } = self.callbacks;
        // SAFETY: the callbacks are the caller's. The argument of the timer is this instance, which
        // outlives it.
        let timer = unsafe {
            match (timer_new_opaque, timer_new) {
                (Some(new), _) => new(TIMER_RA, ptr::null_mut(), opaque),
                (None, Some(new)) => new(on_timer, this, opaque),
                (None, None) => ptr::null_mut(),
            }
        };
        self.timer.set(timer);
    }

    /// Sets the caller's timer for what the link says by itself.
    pub(super) fn arm(&self) {
        let timer = self.timer.get();
        let (Some(modify), false) = (self.callbacks.timer_mod, timer.is_null()) else { return };
        let Some(at) = self.with(|engine| engine.link_deadline()).filter(|at| *at < Instant::NEVER) else {
            return;
        };
        let at_ms = i64::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        if self.armed_ms.replace(at_ms) != at_ms {
            // SAFETY: the timer is the caller's own, made in `make_timer` and not freed before
            // `slirp_cleanup`.
            unsafe { modify(timer, at_ms, self.callbacks.opaque) };
        }
    }
}

/// The caller has the instance from now on.
pub(super) fn begin(engine: Engine, callbacks: Callbacks, has_v6: bool) -> *mut Slirp {
    let slirp = Box::into_raw(Box::new(Slirp {
        engine: RefCell::new(Some(engine)),
        callbacks,
        timer: Cell::new(ptr::null_mut()),
        armed_ms: Cell::new(i64::MIN),
        spare: RefCell::default(),
        services: RefCell::default(),
        is_polling: Cell::new(true),
        is_finishing: Cell::new(false),
    }));
    if let Some(completed) = callbacks.init_completed {
        // SAFETY: the callback is the caller's, for this argument.
        unsafe { completed(slirp, callbacks.opaque) };
    }
    // SAFETY: it was made just now.
    if let (true, Some(slirp)) = (has_v6, unsafe { instance(slirp) }) {
        slirp.make_timer();
        slirp.arm();
    }
    slirp
}

/// A door: what panics inside returns `otherwise`, and the instance does nothing more.
pub(super) fn door<R>(slirp: Option<&Slirp>, otherwise: R, inside: impl FnOnce() -> R) -> R {
    if let Ok(result) = catch_unwind(AssertUnwindSafe(inside)) {
        return result;
    }
    if let Some(slirp) = slirp {
        let gone = slirp.engine.try_borrow_mut().map(|mut engine| engine.take());
        // The drop may panic, too.
        _ = catch_unwind(AssertUnwindSafe(|| drop(gone)));
        slirp.callbacks.guest_error("slirp: an internal error; the network is off");
    }
    otherwise
}

/// # Safety
/// `slirp` is null or an instance that was not freed.
pub(super) const unsafe fn instance<'a>(slirp: *const Slirp) -> Option<&'a Slirp> {
    // SAFETY: by the contract of this function.
    unsafe { slirp.as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slirp_26_no_panic_leaves_a_door() {
        assert_eq!(door(None, 7, || 1), 1);
        assert_eq!(door(None, 7, || panic!("for the test")), 7);
    }
}
