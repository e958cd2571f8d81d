//! The descriptors that a tokio task waits on: those of the device, on Unix, and a fine timer, on Linux.
//! Called by `tokio.rs`.
//!
//! tokio reports a descriptor once for each event, so what was heard is cleared only after turns that left
//! nothing.

#[cfg(unix)]
pub(super) use unix::{Heard, Sources};
#[cfg(not(unix))]
pub(super) use without_descriptors::{Heard, Sources};

use std::io;

use crate::wake::announce::FineTimer;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod fine {
    use std::io;
    use std::sync::Arc;

    use crate::sys::TimerFd;
    use crate::wake::announce::FineTimer;

    /// To wait on a fine timer that others arm.
    pub(crate) type Handle = Arc<TimerFd>;

    pub(crate) fn timer() -> io::Result<Option<FineTimer>> {
        FineTimer::new().map(Some)
    }

    pub(crate) fn handle(fine: &FineTimer) -> Handle {
        Arc::clone(&fine.timer)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod fine {
    use std::io;

    use crate::wake::announce::FineTimer;

    /// There is nothing to wait on.
    pub(crate) type Handle = std::convert::Infallible;

    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    pub(crate) fn timer() -> io::Result<Option<FineTimer>> {
        Ok(None)
    }

    pub(crate) fn handle(fine: &FineTimer) -> Handle {
        match *fine {}
    }
}

/// The fine timer of this system, if it has one.
pub(super) fn fine_timer() -> io::Result<Option<FineTimer>> {
    fine::timer()
}

/// What to wait on for this timer.
pub(super) fn handle(timer: Option<&FineTimer>) -> Option<fine::Handle> {
    timer.map(fine::handle)
}

#[cfg(unix)]
mod unix {
    use std::future::{Future as _, pending, poll_fn};
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::pin::pin;
    use std::task::Poll;

    use tokio::io::Interest;
    use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

    use super::fine::Handle;
    use crate::wake::announce::Announcer;

    pub(crate) struct Sources<'a> {
        rx: Option<AsyncFd<BorrowedFd<'a>>>,
        tx: Option<AsyncFd<BorrowedFd<'a>>>,
        #[cfg(any(target_os = "linux", target_os = "android"))]
        fine: Option<AsyncFd<Handle>>,
    }

    /// The descriptors that were ready.
    #[derive(Default)]
    pub(crate) struct Heard<'a> {
        device: [Option<AsyncFdReadyGuard<'a, BorrowedFd<'a>>>; 2],
        #[cfg(any(target_os = "linux", target_os = "android"))]
        fine: Option<AsyncFdReadyGuard<'a, Handle>>,
    }

    impl<'a> Sources<'a> {
        /// Registers the descriptors with the current runtime.
        pub(crate) fn new(announcer: &'a Announcer, fine: Option<Handle>) -> io::Result<Self> {
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            let None = fine;
            let news = announcer.news();
            // Errors are reported in any case. To name them would make tokio report what can be read, too:
            // each packet that arrives at a descriptor of both halves, twice.
            Ok(Self {
                rx: news.rx().map(|fd| registered(fd, Interest::READABLE)).transpose()?,
                tx: news.tx().map(|fd| registered(fd, Interest::WRITABLE)).transpose()?,
                #[cfg(any(target_os = "linux", target_os = "android"))]
                fine: fine.map(|timer| registered(timer, Interest::READABLE)).transpose()?,
            })
        }

        /// Waits until one of them is ready: there is something to receive, or an error to read there;
        /// tickets in the sending half's error queue, or, with `watch_room`, room; the fine timer.
        pub(crate) async fn heard(&self, watch_room: bool) -> io::Result<Heard<'_>> {
            let room = if watch_room { Interest::WRITABLE | Interest::ERROR } else { Interest::ERROR };
            let mut rx = pin!(ready(self.rx.as_ref(), Interest::READABLE | Interest::ERROR));
            let mut tx = pin!(ready(self.tx.as_ref(), room));
            #[cfg(any(target_os = "linux", target_os = "android"))]
            let mut fine = pin!(ready(self.fine.as_ref(), Interest::READABLE));
            poll_fn(|cx| {
                let (mut heard, mut any) = (Heard::default(), false);
                let [from_rx, from_tx] = &mut heard.device;
                for (place, polled) in [(from_rx, rx.as_mut().poll(cx)), (from_tx, tx.as_mut().poll(cx))] {
                    if let Poll::Ready(guard) = polled {
                        *place = Some(guard?);
                        any = true;
                    }
                }
                #[cfg(any(target_os = "linux", target_os = "android"))]
                if let Poll::Ready(guard) = fine.as_mut().poll(cx) {
                    heard.fine = Some(guard?);
                    any = true;
                }
                if any { Poll::Ready(Ok(heard)) } else { Poll::Pending }
            })
            .await
        }
    }

    impl Heard<'_> {
        /// The turns left nothing of it. Events since they began make the descriptors ready again.
        pub(crate) fn clear(self) {
            self.device.into_iter().flatten().for_each(|mut guard| guard.clear_ready());
            #[cfg(any(target_os = "linux", target_os = "android"))]
            self.fine.into_iter().for_each(|mut guard| guard.clear_ready());
        }
    }

    async fn ready<T: AsRawFd>(
        fd: Option<&AsyncFd<T>>,
        interest: Interest,
    ) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        match fd {
            Some(fd) => fd.ready(interest).await,
            None => pending().await,
        }
    }

    fn registered<T: AsRawFd>(fd: T, interest: Interest) -> io::Result<AsyncFd<T>> {
        #[expect(deprecated, reason = "these keep their descriptor for life; the successor is unsafe")]
        AsyncFd::with_interest(fd, interest)
    }
}

#[cfg(not(unix))]
mod without_descriptors {
    use std::future::pending;
    use std::io;
    use std::marker::PhantomData;

    use super::fine::Handle;
    use crate::wake::announce::Announcer;

    /// No device has a descriptor.
    pub(crate) struct Sources<'a>(PhantomData<&'a ()>);

    /// Never made by waiting.
    #[derive(Default)]
    pub(crate) struct Heard<'a>(PhantomData<&'a ()>);

    impl<'a> Sources<'a> {
        #[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
        pub(crate) fn new(_: &'a Announcer, fine: Option<Handle>) -> io::Result<Self> {
            let None = fine;
            Ok(Self(PhantomData))
        }

        pub(crate) async fn heard(&self, _watch_room: bool) -> io::Result<Heard<'_>> {
            pending().await
        }
    }

    impl Heard<'_> {
        pub(crate) fn clear(self) {}
    }
}
