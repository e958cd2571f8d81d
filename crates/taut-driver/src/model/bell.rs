//! A device's bell: no news is overlooked, and a bell that was silenced is silent.

use std::sync::Arc;
use std::task::Waker;

use loom::thread;

use super::{check, here, sleep};
use crate::sync::{Mutex, lock};
use crate::wake::bell::Bell;
use crate::wake::call::Ear;

/// What the driver looks for: in a device, it is behind a lock.
type News = Arc<Mutex<u32>>;

/// Two devices have one piece of news each, note it and ring.
fn devices(bell: &Arc<Bell>, news: &News) -> [thread::JoinHandle<()>; 2] {
    [1, 2].map(|_| {
        let (waker, news) = (Waker::from(Arc::clone(bell)), Arc::clone(news));
        thread::spawn(move || {
            *lock(&news) += 1;
            waker.wake_by_ref();
        })
    })
}

/// A driver with a waker, which hears each call once.
#[test]
fn a_driver_that_sleeps_hears_all_news() {
    check(3, || {
        let (bell, news) = (Arc::new(Bell::default()), News::default());
        let devices = devices(&bell, &news);
        let (me, waker) = here();
        bell.listen(Ear::Waker(waker));
        while *lock(&news) < 2 {
            sleep(&me);
            // As a turn does: it looks again only if the bell was rung.
            while bell.silence() && *lock(&news) < 2 {}
        }
        devices.into_iter().for_each(|device| device.join().unwrap());
    });
}

/// A driver whose call stays until it is drained, as a descriptor does: afterwards, news that it has not seen
/// is rung, and the bell is rung if and only if the descriptor shows it.
#[test]
fn news_after_the_driver_has_looked_is_rung() {
    check(3, || {
        let (bell, news) = (Arc::new(Bell::default()), News::default());
        let devices = devices(&bell, &news);
        let mut seen = 0;
        for _ in 0..2 {
            if bell.silence() {
                seen = *lock(&news);
            }
        }
        devices.into_iter().for_each(|device| device.join().unwrap());
        let shown = bell.is_shown();
        assert!(seen == 2 || shown, "{seen} of 2 pieces of news seen, and silent");
        assert_eq!(bell.silence(), shown, "rung, and shown");
    });
}
