//! The lead: whoever comes and goes, somebody watches the device.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use taut_core::Instant;

use crate::lead::{Lead, Leave, Sleeper};

/// The driver thread's view of the device, as an epoll set shows it.
struct View {
    masked: AtomicBool,
    checks: AtomicBool,
}

impl Sleeper for Arc<View> {
    fn mask(&self, mask: bool) {
        self.masked.store(mask, Ordering::SeqCst);
    }

    fn check_at(&self, at: Option<Instant>) {
        self.checks.store(at.is_some(), Ordering::SeqCst);
    }
}

fn lead() -> (Arc<Lead<Arc<View>>>, Arc<View>) {
    let view = Arc::new(View { masked: AtomicBool::new(false), checks: AtomicBool::new(false) });
    (Arc::new(Lead::new(Arc::clone(&view), false)), view)
}

/// Somebody watches the device: the driver thread, which sees it, or which will check.
#[track_caller]
fn assert_watched(view: &View) {
    let (masked, checks) = (view.masked.load(Ordering::SeqCst), view.checks.load(Ordering::SeqCst));
    assert!(!masked || checks, "the device is masked, and nothing will end that");
}

const fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

/// Leaders come and go while the timer fires and a deadline comes near: in the end the device is watched.
#[test]
fn the_device_is_always_watched() {
    loom::model(|| {
        let (lead, view) = lead();
        let leader = |lead: Arc<Lead<Arc<View>>>| {
            move || {
                if lead.try_lead(at(10)) {
                    lead.leave(Leave::InGrace { now: at(10), others_wait: false });
                }
            }
        };
        let other = thread::spawn(leader(Arc::clone(&lead)));
        let driver = {
            let lead = Arc::clone(&lead);
            thread::spawn(move || {
                lead.hand_back(at(400));
                lead.end_grace();
            })
        };
        leader(Arc::clone(&lead))();
        other.join().unwrap();
        driver.join().unwrap();
        assert_watched(&view);
    });
}

/// The same with a thread that writes again and again.
#[test]
fn a_writer_leaves_the_device_watched() {
    loom::model(|| {
        let (lead, view) = lead();
        let driver = {
            let lead = Arc::clone(&lead);
            thread::spawn(move || {
                lead.hand_back(at(700));
                lead.end_grace();
            })
        };
        let leader = {
            let lead = Arc::clone(&lead);
            thread::spawn(move || {
                if lead.try_lead(at(10)) {
                    lead.leave(Leave::ToDriver);
                }
            })
        };
        lead.write_serves(at(1), true);
        lead.write_serves(at(2), true);
        driver.join().unwrap();
        leader.join().unwrap();
        assert_watched(&view);
    });
}
