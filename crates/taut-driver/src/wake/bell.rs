//! A call to the driver by devices that have no descriptor: they ring it from any thread, and it stays rung
//! until the driver has checked them. Given to devices as a waker by `announce.rs`.

use std::sync::Arc;
use std::task::Wake;

use crate::sync::{AtomicU8, Ordering};
use crate::wake::call::{Call, Ear};

/// Not rung, and not readable.
const SILENT: u8 = 0;
/// A device is about to make it readable.
const RINGING: u8 = 1;
/// Rung, and readable.
const RUNG: u8 = 2;

/// The bell. Ringing a rung bell and silencing a silent one cost no system call.
#[derive(Debug, Default)]
pub(crate) struct Bell<E = Call> {
    event: E,
    state: AtomicU8,
}

/// What a bell makes readable. A test runs code between two steps.
pub(crate) trait Readable {
    /// Makes it readable and calls `rung`: in this order if it stays readable until it is drained. A waker is
    /// heard only once, and whoever hears it must find the bell rung.
    fn signal(&self, rung: impl FnOnce());
    fn drain(&self);
    /// Waits for one that has begun to make it readable.
    fn settle(&self) {}
}

impl Readable for Call {
    fn signal(&self, rung: impl FnOnce()) {
        self.signal_and(rung);
    }

    fn drain(&self) {
        Self::drain(self);
    }

    fn settle(&self) {
        Self::settle(self);
    }
}

impl Bell {
    /// The driver listens from now on, and hears what was rung before.
    pub(crate) fn listen(&self, ear: Ear) {
        self.event.listen(ear);
    }

    /// For models, with what stays readable: whether it was readable.
    #[cfg(all(test, loom))]
    pub(crate) fn is_shown(&self) -> bool {
        self.event.drain()
    }
}

impl<E: Readable> Bell<E> {
    pub(crate) fn ring(&self) {
        let (from, to) = (SILENT, RINGING);
        if self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.event.signal(|| self.state.store(RUNG, Ordering::SeqCst));
        }
    }

    /// Makes it unreadable, and returns whether it was rung. The caller must check for news after this call,
    /// not before: a device that found it rung has not made it readable again.
    ///
    /// A device that rings may lose its processor to the very driver that it wakes, when the bell is readable
    /// and not yet rung. The driver waits for it: if it did not, it would find the bell readable again and
    /// again.
    #[must_use]
    pub(crate) fn silence(&self) -> bool {
        let is_ringing = match self.state.load(Ordering::SeqCst) {
            SILENT => return false,
            RINGING => {
                self.event.settle();
                self.state.load(Ordering::SeqCst) == RINGING
            }
            _ => false,
        };
        // If a device has not even begun to make it readable, it is silenced after that.
        if !is_ringing {
            // Unreadable first. In the other order, a device could ring in between, and its signal would be
            // lost.
            self.event.drain();
            self.state.store(SILENT, Ordering::SeqCst);
        }
        true
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::os::fd::AsFd;
    use std::rc::Rc;
    use std::sync::atomic::AtomicU64;
    use std::sync::{Condvar, Mutex};
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::sys::{Epoll, EventFd, Interest};

    /// A bell that rings in a set of descriptors.
    fn bell() -> (Arc<Bell>, Epoll) {
        let (bell, epoll, event) =
            (Arc::new(Bell::default()), Epoll::new().unwrap(), EventFd::new().unwrap());
        epoll.add(event.as_fd(), 1, Interest::Readable).unwrap();
        bell.listen(Ear::Event(event));
        (bell, epoll)
    }

    fn is_readable(epoll: &Epoll) -> bool {
        epoll.wait(Some(Duration::ZERO)).unwrap().contains(1)
    }

    #[test]
    fn rings_until_it_is_silenced() {
        let (bell, epoll) = bell();
        let waker = Waker::from(Arc::clone(&bell));
        for _ in 0..3 {
            assert!(!is_readable(&epoll));
            waker.wake_by_ref();
            waker.wake_by_ref();
            assert!(is_readable(&epoll));
            assert!(bell.silence());
            assert!(!bell.silence());
        }
    }

    /// A readable that runs code of a test before and after each `signal` and `drain`, as if from another
    /// thread.
    #[derive(Default)]
    struct Interrupted {
        is_readable: Cell<bool>,
        between: RefCell<Vec<Option<Act>>>,
    }

    type Act = Box<dyn Fn()>;

    impl Interrupted {
        fn set(&self, readable: bool) {
            let mut between = self.between.take().into_iter();
            between.next().flatten().into_iter().for_each(|act| act());
            self.is_readable.set(readable);
            between.next().flatten().into_iter().for_each(|act| act());
        }
    }

    impl Readable for Interrupted {
        fn signal(&self, rung: impl FnOnce()) {
            self.set(true);
            rung();
        }

        fn drain(&self) {
            self.set(false);
        }
    }

    /// The bell must be both rung and readable, or neither. If it were only rung, the driver would never
    /// look; if it were only readable, the driver would spin.
    #[track_caller]
    fn assert_consistent(bell: &Bell<Interrupted>) {
        let is_rung = bell.state.load(Ordering::SeqCst) != SILENT;
        assert_eq!(is_rung, bell.event.is_readable.get(), "rung, and readable");
    }

    /// The order of the state and the descriptor, step by step: the driver runs between the steps of a device
    /// that rings, and a device runs between those of a driver that silences.
    #[test]
    fn state_and_descriptor_agree_at_every_step() {
        for step in [0, 1] {
            let bell = Rc::new(Bell::<Interrupted>::default());
            let come_in = |act: Act| {
                let mut between = vec![None, None];
                between[step] = Some(act);
                *bell.event.between.borrow_mut() = between;
            };
            let driver = Rc::clone(&bell);
            // The driver must look for news now: all announced news came before.
            come_in(Box::new(move || assert!(driver.silence(), "rung in step {step}")));
            bell.ring();
            assert_consistent(&bell);
            bell.ring();
            assert_consistent(&bell);
            let device = Rc::clone(&bell);
            come_in(Box::new(move || device.ring()));
            assert!(bell.silence());
            assert_consistent(&bell);
            bell.ring();
            assert_consistent(&bell);
            assert!(bell.silence() && !bell.silence());
            assert_consistent(&bell);
        }
    }

    /// A device that loses its processor in the middle of ringing: a driver that finds the bell readable
    /// waits, and leaves it unreadable.
    #[test]
    fn a_driver_waits_for_one_that_rings() {
        #[derive(Default)]
        struct Slow {
            is_readable: Mutex<bool>,
            shown: Condvar,
            /// Held by one that makes it readable, until it is rung.
            busy: Mutex<()>,
        }

        impl Readable for Slow {
            fn signal(&self, rung: impl FnOnce()) {
                let _busy = self.busy.lock().unwrap();
                *self.is_readable.lock().unwrap() = true;
                self.shown.notify_all();
                std::thread::sleep(Duration::from_millis(20));
                rung();
            }

            fn drain(&self) {
                *self.is_readable.lock().unwrap() = false;
            }

            fn settle(&self) {
                drop(self.busy.lock().unwrap());
            }
        }

        let bell = Arc::new(Bell::<Slow>::default());
        let device = Arc::clone(&bell);
        let device = std::thread::spawn(move || device.ring());
        let shown = bell.event.is_readable.lock().unwrap();
        drop(bell.event.shown.wait_while(shown, |is_readable| !*is_readable).unwrap());
        assert!(bell.silence());
        assert!(!*bell.event.is_readable.lock().unwrap(), "it would be found readable again");
        assert!(!bell.silence());
        device.join().unwrap();
    }

    /// A driver that is woken may run before the device's call of the waker returns. It must be able to
    /// silence the bell then: the device calls the waker no second time.
    #[test]
    fn a_woken_driver_finds_the_bell_rung() {
        struct Driver {
            bell: Mutex<Option<Arc<Bell>>>,
            heard: AtomicU64,
        }

        impl Wake for Driver {
            fn wake(self: Arc<Self>) {
                self.heard.fetch_add(1, Ordering::SeqCst);
                let bell = self.bell.lock().unwrap().clone().unwrap();
                assert_eq!(bell.state.load(Ordering::SeqCst), RUNG);
            }
        }

        let (bell, driver) = (
            Arc::new(Bell::default()),
            Arc::new(Driver { bell: Mutex::default(), heard: AtomicU64::new(0) }),
        );
        *driver.bell.lock().unwrap() = Some(Arc::clone(&bell));
        bell.listen(Ear::Waker(Waker::from(Arc::clone(&driver))));
        for times in 1..4 {
            bell.ring();
            assert_eq!(driver.heard.load(Ordering::SeqCst), times);
            assert!(bell.silence() && !bell.silence());
        }
    }

    /// Whatever a device does at the same time, none of its announcements is overlooked; otherwise this test
    /// hangs.
    #[test]
    fn no_news_is_overlooked() {
        const NEWS: u64 = 200_000;
        let ((bell, epoll), news) = (bell(), Arc::new(AtomicU64::new(0)));
        let (waker, theirs) = (Waker::from(Arc::clone(&bell)), Arc::clone(&news));
        let device = std::thread::spawn(move || {
            for _ in 0..NEWS {
                theirs.fetch_add(1, Ordering::SeqCst);
                waker.wake_by_ref();
            }
        });
        let mut seen = 0;
        while seen < NEWS {
            assert!(epoll.wait(Some(Duration::from_secs(60))).unwrap().contains(1), "{seen} of {NEWS}");
            assert!(bell.silence(), "readable, so it was rung");
            let now = news.load(Ordering::SeqCst);
            assert!(now >= seen);
            seen = now;
        }
        device.join().unwrap();
    }
}
