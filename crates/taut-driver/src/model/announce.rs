//! What a driver that sleeps by itself is woken by: a deadline that becomes earlier, room, a call before it
//! came.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use loom::thread;
use taut_core::{Instant, TxPacket, TxTicket};

use super::{check, here};
use crate::device::{News, Received, RxDevice, Sent, TxDevice};
use crate::wake::announce::Announcer;

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

fn announcer() -> Arc<Announcer> {
    Arc::new(Announcer::new(&mut Silent, &mut Silent).unwrap())
}

const fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

/// Goes to sleep as drivers do, over and over, until `enough` of what it learns when it does.
fn sleep_until(announcer: &Announcer, enough: impl Fn(Instant, bool) -> bool) {
    let (me, waker) = here();
    announcer.attach(&waker, None).unwrap();
    let mut is_enough = false;
    while !is_enough {
        me.sleep(|| {
            let sleep = announcer.sleep(at(0))?;
            is_enough = enough(sleep.until, sleep.watch_room);
            (!is_enough).then_some(None)
        });
        announcer.awake();
    }
}

/// Threads make the deadline earlier while the driver comes and goes to sleep: it does not sleep beyond the
/// last one.
#[test]
fn no_deadline_is_overslept() {
    check(3, || {
        let announcer = announcer();
        let others = {
            let announcer = Arc::clone(&announcer);
            thread::spawn(move || [at(900), at(500), at(100)].into_iter().for_each(|at| announcer.arm(at)))
        };
        sleep_until(&announcer, |until, _| until == at(100));
        others.join().unwrap();
    });
}

/// The driver learns that it must watch for room before it sleeps, or is woken.
#[test]
fn room_is_watched_for() {
    check(3, || {
        let announcer = announcer();
        let writer = {
            let announcer = Arc::clone(&announcer);
            thread::spawn(move || announcer.watch_room(true))
        };
        sleep_until(&announcer, |_, watch_room| watch_room);
        writer.join().unwrap();
    });
}

/// A call while the driver comes, by any of the three ways, is heard.
#[test]
fn a_call_is_heard_by_a_driver_that_comes_meanwhile() {
    for way in 0..3 {
        check(3, move || {
            let announcer = announcer();
            let caller = {
                let announcer = Arc::clone(&announcer);
                thread::spawn(move || match way {
                    0 => announcer.notify(),
                    1 => announcer.inbox_event().unwrap().signal(),
                    _ => announcer.waker_of_bell().unwrap().wake(),
                })
            };
            let (me, waker) = here();
            announcer.attach(&waker, None).unwrap();
            super::sleep(&me);
            assert_eq!(announcer.silence(), way == 2);
            caller.join().unwrap();
        });
    }
}
