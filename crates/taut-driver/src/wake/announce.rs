//! How a driver learns that a shard has something to do: the device has news, a deadline has come, another
//! shard has handed something over, or the shard has ended. Owned by `shard.rs`; the drivers wait on it.
//!
//! A driver says what it waits with when it comes, and hears then what came before:
//!
//! - [descriptors](Announcer::descriptors), on Linux: one set to wait on, and a timer that any thread moves
//!   without waking another. The driver thread (`thread.rs`) has these.
//! - a [waker](Announcer::attach), everywhere: called for all that is not a descriptor of the device. The
//!   driver sleeps until the [next deadline](Announcer::sleep) by means of its own; a deadline that becomes
//!   earlier meanwhile wakes it. The tokio task (`tokio.rs`) and the portable thread (`park.rs`) have this.

use std::io;
#[cfg(all(unix, feature = "tokio"))]
use std::os::fd::BorrowedFd;
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use taut_core::Instant;

use crate::device::{News, RxDevice, TxDevice};
use crate::sync::{Mutex, MutexGuard, lock};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::sys::{Epoll, EventFd, Interest as Readiness, TimerFd};
use crate::wake::bell::Bell;
use crate::wake::call::{Call, Ear};

/// What the set of descriptors contains, besides what a driver adds.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod key {
    pub(crate) const RX: u64 = 0;
    pub(crate) const TX: u64 = 1;
    pub(crate) const BELL: u64 = 2;
    pub(crate) const TIMER: u64 = 3;
    pub(crate) const INBOX: u64 = 4;
}

/// The announcements of one shard.
#[derive(Debug)]
pub(crate) struct Announcer {
    /// Makes the driver check whether the shard is closed.
    pub(crate) notify: Call,
    /// Another shard has handed something over.
    inbox: Arc<Call>,
    /// Rung by a device whose news is a waker.
    bell: Option<Arc<Bell>>,
    #[cfg(unix)]
    news: Descriptors,
    schedule: Mutex<Schedule>,
}

/// Those by which the device announces news.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Descriptors {
    rx: Option<OwnedFd>,
    tx: Option<OwnedFd>,
}

#[derive(Debug)]
struct Schedule {
    /// When the stack has something to do next.
    deadline: Instant,
    /// A device without room announces that it has room again.
    watch_room: bool,
    driver: Driver,
}

#[derive(Debug)]
enum Driver {
    Nobody,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Descriptors {
        ready: Arc<Epoll>,
        timer: TimerFd,
    },
    Waker(Sleeper),
}

/// A driver that sleeps by itself.
#[derive(Debug)]
struct Sleeper {
    waker: Waker,
    /// While it sleeps, when it wakes up by itself at the latest; [`Instant::ZERO`] while it is awake and
    /// will look at the deadline before it sleeps again.
    asleep_until: Instant,
    fine: Option<FineTimer>,
}

/// A timer to the nanosecond. tokio's are exact only to a millisecond.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
pub(crate) struct FineTimer {
    pub(crate) timer: Arc<TimerFd>,
    armed: Instant,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl FineTimer {
    #[cfg(any(all(test, not(loom)), feature = "tokio"))]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { timer: Arc::new(TimerFd::new()?), armed: Instant::NEVER })
    }

    fn arm(&mut self, at: Instant) {
        if self.armed != at {
            self.timer.arm(at.as_nanos());
            self.armed = at;
        }
    }
}

/// Elsewhere there is none.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[derive(Debug)]
pub(crate) enum FineTimer {}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl FineTimer {
    fn arm(&mut self, _: Instant) {
        match *self {}
    }
}

/// How a driver sleeps that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    /// Until then at the latest, and until it is woken; forever for [`Instant::NEVER`].
    pub(crate) until: Instant,
    /// Room in the device wakes it, too.
    pub(crate) watch_room: bool,
}

impl Announcer {
    /// Asks the two halves of a device how they announce their news.
    pub(crate) fn new(tx: &mut dyn TxDevice, rx: &mut dyn RxDevice) -> io::Result<Self> {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let (rx, tx) = (rx.news(&waker)?, tx.news(&waker)?);
        let rings = matches!(rx, News::Waker) || matches!(tx, News::Waker);
        Ok(Self {
            notify: Call::default(),
            inbox: Arc::default(),
            bell: rings.then_some(bell),
            #[cfg(unix)]
            news: Descriptors { rx: descriptor(rx), tx: descriptor(tx) },
            schedule: Mutex::new(Schedule {
                deadline: Instant::NEVER,
                watch_room: false,
                driver: Driver::Nobody,
            }),
        })
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }

    /// For models: what a device gets to call the driver.
    #[cfg(all(test, loom))]
    pub(crate) fn waker_of_bell(&self) -> Option<Waker> {
        self.bell.clone().map(Waker::from)
    }

    /// The call with which the shard's inbox announces packets.
    pub(crate) fn inbox_event(&self) -> io::Result<Arc<Call>> {
        Ok(Arc::clone(&self.inbox))
    }

    /// Announces `at`, in place of an earlier or later time.
    pub(crate) fn arm(&self, at: Instant) {
        let mut schedule = self.schedule();
        schedule.deadline = at;
        match &mut schedule.driver {
            Driver::Nobody => {}
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Driver::Descriptors { timer, .. } => timer.arm(at.as_nanos()),
            Driver::Waker(sleeper) => sleeper.wake_before(at),
        }
    }

    /// No deadline is announced.
    pub(crate) fn disarm(&self) {
        let mut schedule = self.schedule();
        schedule.deadline = Instant::NEVER;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Driver::Descriptors { timer, .. } = &schedule.driver {
            timer.disarm();
        }
    }

    /// Whether a device without room announces that it has room again. A device that rings the bell always
    /// does.
    pub(crate) fn watch_room(&self, watch: bool) {
        let mut schedule = self.schedule();
        schedule.watch_room = watch;
        match &mut schedule.driver {
            Driver::Nobody => {}
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Driver::Descriptors { ready, .. } => self.news.watch_room(ready, watch),
            Driver::Waker(sleeper) if watch => sleeper.wake(),
            Driver::Waker(_) => {}
        }
    }

    /// Silences a device's bell, and returns whether it was rung. The caller must check for news afterwards.
    #[must_use]
    pub(crate) fn silence(&self) -> bool {
        self.bell.as_ref().is_some_and(|bell| bell.silence())
    }

    /// Makes the driver check whether the shard is closed.
    pub(crate) fn notify(&self) {
        self.notify.signal();
    }

    /// A driver comes that waits on descriptors. Returns a set that is readable when there is something for
    /// it to do: the device has news, the deadline has come, other shards have handed something over.
    /// `notify` becomes readable, in `outer` with this key, when it must check whether the shard is closed.
    ///
    /// # Errors
    /// No descriptors left, or [`io::ErrorKind::InvalidInput`] when there is a driver.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn descriptors(&self, outer: &Epoll, notify: u64) -> io::Result<Arc<Epoll>> {
        let mut schedule = self.schedule();
        schedule.expect_nobody()?;
        let (ready, timer) = (Arc::new(Epoll::new()?), TimerFd::new()?);
        ready.add(timer.as_fd(), key::TIMER, Readiness::Readable)?;
        if let Some(fd) = &self.news.rx {
            ready.add(fd.as_fd(), key::RX, Readiness::Readable)?;
        }
        if let Some(fd) = &self.news.tx {
            // Errors are reported in any case: tickets in a socket's error queue.
            ready.add(fd.as_fd(), key::TX, Readiness::Nothing)?;
        }
        self.news.watch_room(&ready, schedule.watch_room);
        // The set knows the open file, whoever holds the descriptor later.
        let event = |set: &Epoll, key| -> io::Result<_> {
            let event = EventFd::new()?;
            set.add(event.as_fd(), key, Readiness::Readable)?;
            Ok(Ear::Event(event))
        };
        let (to_notify, to_inbox) = (event(outer, notify)?, event(&ready, key::INBOX)?);
        if let Some(bell) = &self.bell {
            bell.listen(event(&ready, key::BELL)?);
        }
        self.notify.listen(to_notify);
        self.inbox.listen(to_inbox);
        if schedule.deadline != Instant::NEVER {
            timer.arm(schedule.deadline.as_nanos());
        }
        schedule.driver = Driver::Descriptors { ready: Arc::clone(&ready), timer };
        Ok(ready)
    }

    /// A driver comes that is woken by `waker`, and waits for the device's [descriptors](Self::news) and for
    /// the fine timer, if it has one, by itself.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when there is a driver.
    pub(crate) fn attach(&self, waker: &Waker, fine: Option<FineTimer>) -> io::Result<()> {
        let mut schedule = self.schedule();
        schedule.expect_nobody()?;
        let ear = || Ear::Waker(waker.clone());
        self.notify.listen(ear());
        self.inbox.listen(ear());
        if let Some(bell) = &self.bell {
            bell.listen(ear());
        }
        let sleeper = Sleeper { waker: waker.clone(), asleep_until: Instant::ZERO, fine };
        schedule.driver = Driver::Waker(sleeper);
        Ok(())
    }

    /// The descriptors by which the device announces news.
    #[cfg(unix)]
    pub(crate) const fn news(&self) -> &Descriptors {
        &self.news
    }

    /// The driver, which was [attached](Self::attach), is going to sleep: from now on an earlier deadline
    /// wakes it. `None` when the deadline has come.
    pub(crate) fn sleep(&self, now: Instant) -> Option<Sleep> {
        let mut schedule = self.schedule();
        let Schedule { deadline, watch_room, .. } = *schedule;
        let until = match &mut schedule.driver {
            Driver::Waker(sleeper) if deadline > now => sleeper.sleep(deadline),
            _ => return None,
        };
        Some(Sleep { until, watch_room })
    }

    /// The driver is awake: it will look at the deadline before it sleeps again, and no one needs to wake it
    /// for that.
    pub(crate) fn awake(&self) {
        if let Driver::Waker(sleeper) = &mut self.schedule().driver {
            sleeper.asleep_until = Instant::ZERO;
        }
    }
}

impl Schedule {
    fn expect_nobody(&self) -> io::Result<()> {
        match self.driver {
            Driver::Nobody => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the shard already has a driver")),
        }
    }
}

impl Sleeper {
    /// Until when it sleeps by its own means: forever if the fine timer wakes it.
    fn sleep(&mut self, deadline: Instant) -> Instant {
        self.asleep_until = deadline;
        match &mut self.fine {
            Some(fine) => {
                if deadline != Instant::NEVER {
                    fine.arm(deadline);
                }
                Instant::NEVER
            }
            None => deadline,
        }
    }

    /// Makes sure that it is awake at `at`.
    fn wake_before(&mut self, at: Instant) {
        if at >= self.asleep_until {
            return;
        }
        match &mut self.fine {
            // The timer wakes it in time, and not before.
            Some(fine) => {
                fine.arm(at);
                self.asleep_until = at;
            }
            None => self.wake(),
        }
    }

    fn wake(&mut self) {
        if self.asleep_until != Instant::ZERO {
            self.asleep_until = Instant::ZERO;
            self.waker.wake_by_ref();
        }
    }
}

#[cfg(unix)]
impl Descriptors {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn watch_room(&self, set: &Epoll, watch: bool) {
        if let Some(fd) = &self.tx {
            let readiness = if watch { Readiness::Writable } else { Readiness::Nothing };
            // Cannot fail: the descriptor is in the set.
            let _ = set.modify(fd.as_fd(), key::TX, readiness);
        }
    }

    /// Whether there are any.
    pub(crate) const fn any(&self) -> bool {
        self.rx.is_some() || self.tx.is_some()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn rx(&self) -> Option<BorrowedFd<'_>> {
        self.rx.as_ref().map(AsFd::as_fd)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn tx(&self) -> Option<BorrowedFd<'_>> {
        self.tx.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(unix)]
fn descriptor(news: News) -> Option<OwnedFd> {
    match news {
        News::Fd(fd) => Some(fd),
        News::Waker => None,
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use taut_core::{TxPacket, TxTicket};

    use taut_core::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::device::{Received, Sent};

    /// A device that never has any.
    struct Silent;

    impl TxDevice for Silent {
        fn news(&mut self, _: &Waker) -> io::Result<News> {
            Ok(News::Waker)
        }

        fn send(&mut self, _: &TxPacket<'_>, ticket: TxTicket) -> Sent {
            Sent::Left(ticket)
        }
    }

    impl RxDevice for Silent {
        fn news(&mut self, _: &Waker) -> io::Result<News> {
            Ok(News::Waker)
        }

        fn recv(&mut self, _: &mut Vec<u8>) -> io::Result<Option<Received>> {
            Ok(None)
        }
    }

    /// A driver that counts how often it was woken.
    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Count {
        fn take(&self) -> u32 {
            self.0.swap(0, Ordering::SeqCst)
        }
    }

    fn attached(fine: Option<FineTimer>) -> (Announcer, Arc<Count>) {
        let (announcer, count) =
            (Announcer::new(&mut Silent, &mut Silent).unwrap(), Arc::new(Count::default()));
        announcer.attach(&Waker::from(Arc::clone(&count)), fine).unwrap();
        (announcer, count)
    }

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn only_an_earlier_deadline_wakes_and_only_one_that_sleeps() {
        let (announcer, count) = attached(None);
        announcer.arm(at(500));
        assert_eq!(count.take(), 0, "it is awake, and will look at the deadline");
        assert_eq!(announcer.sleep(at(100)).unwrap().until, at(500));
        announcer.arm(at(600));
        assert_eq!(count.take(), 0, "it wakes up before");
        announcer.arm(at(400));
        announcer.arm(at(300));
        assert_eq!(count.take(), 1, "once is enough");
        announcer.awake();
        assert_eq!(announcer.sleep(at(200)).unwrap().until, at(300));
        announcer.awake();
        announcer.arm(at(250));
        assert_eq!(count.take(), 0);
        assert_eq!(announcer.sleep(at(250)), None, "the deadline has come");
        announcer.disarm();
        assert_eq!(announcer.sleep(at(260)).unwrap().until, Instant::NEVER);
        announcer.arm(at(u64::MAX - 1));
        assert_eq!(count.take(), 1);
    }

    #[test]
    fn room_wakes_one_that_sleeps_without_waiting_for_it() {
        let (announcer, count) = attached(None);
        assert!(!announcer.sleep(at(1)).unwrap().watch_room);
        announcer.watch_room(true);
        assert_eq!(count.take(), 1);
        assert!(announcer.sleep(at(2)).unwrap().watch_room);
        announcer.watch_room(false);
        assert_eq!(count.take(), 0);
        assert!(!announcer.sleep(at(3)).unwrap().watch_room);
    }

    #[test]
    fn a_fine_timer_wakes_the_driver_by_itself() {
        let (announcer, count) = attached(Some(FineTimer::new().unwrap()));
        let now = Clock.now();
        let armed = |announcer: &Announcer| match &announcer.schedule().driver {
            Driver::Waker(sleeper) => sleeper.fine.as_ref().unwrap().armed,
            _ => unreachable!("it was attached"),
        };
        let far = now + Duration::from_secs(60);
        announcer.arm(far);
        assert_eq!(announcer.sleep(now).unwrap().until, Instant::NEVER);
        assert_eq!(armed(&announcer), far);
        // An earlier deadline moves the timer, and wakes nobody.
        let near = now + Duration::from_micros(100);
        announcer.arm(near);
        assert_eq!((count.take(), armed(&announcer)), (0, near));
        announcer.awake();
        announcer.disarm();
        assert_eq!(announcer.sleep(now).unwrap().until, Instant::NEVER);
    }

    /// A driver that comes late finds the deadline, a call, and what a device rang.
    #[test]
    fn a_driver_hears_what_came_before_it() {
        for call in [0, 1, 2] {
            let announcer = Announcer::new(&mut Silent, &mut Silent).unwrap();
            announcer.arm(at(5));
            let inbox = announcer.inbox_event().unwrap();
            match call {
                0 => announcer.notify(),
                1 => inbox.signal(),
                _ => Waker::from(Arc::clone(announcer.bell.as_ref().unwrap())).wake(),
            }
            let count = Arc::new(Count::default());
            let waker = Waker::from(Arc::clone(&count));
            announcer.attach(&waker, None).unwrap();
            assert_eq!(count.take(), 1);
            assert_eq!(announcer.sleep(at(1)).unwrap().until, at(5));
            assert_eq!(announcer.silence(), call == 2);
        }
    }

    #[test]
    fn descriptors_show_what_came_before_them() {
        const NOTIFY: u64 = 9;
        let announcer = Announcer::new(&mut Silent, &mut Silent).unwrap();
        let shows = |set: &Epoll, key| set.wait(Some(std::time::Duration::ZERO)).unwrap().contains(key);
        announcer.arm(at(5));
        announcer.notify();
        let inbox = announcer.inbox_event().unwrap();
        inbox.signal();
        let outer = Epoll::new().unwrap();
        let ready = announcer.descriptors(&outer, NOTIFY).unwrap();
        assert!(shows(&outer, NOTIFY) && shows(&ready, key::TIMER) && shows(&ready, key::INBOX));
        announcer.disarm();
        assert!(announcer.notify.drain() && inbox.drain());
        assert!(!shows(&outer, NOTIFY) && !shows(&ready, key::TIMER) && !shows(&ready, key::INBOX));
    }

    #[test]
    fn there_is_one_driver() {
        let (announcer, _) = attached(None);
        let second = announcer.attach(Waker::noop(), None).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::InvalidInput);
        let third = announcer.descriptors(&Epoll::new().unwrap(), 0).unwrap_err();
        assert_eq!(third.kind(), io::ErrorKind::InvalidInput);
    }
}
