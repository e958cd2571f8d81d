//! Models of what threads share in this crate, run by loom through every order of their steps: `make model`.

use std::task::Waker;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use taut_core::{Instant, TxPacket, TxTicket};

use crate::device::{News, Sent, TxDevice};
use crate::lead::{Lead, Leave, Sleeper};
use crate::losses::Counted;
use crate::outbox::Outbox;

/// A device that notes the packets that it gets, and may have no room.
struct Wire {
    sent: Arc<AtomicUsize>,
    /// Packets for which it has room.
    room: Arc<AtomicUsize>,
    /// It refused a packet, and has announced no room since.
    refused: Arc<AtomicBool>,
}

impl TxDevice for Wire {
    fn news(&mut self, _: &Waker) -> std::io::Result<News> {
        Ok(News::Waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let room = self.room.load(Ordering::SeqCst);
        if room == 0 {
            self.refused.store(true, Ordering::SeqCst);
            return Sent::Full(ticket);
        }
        self.room.fetch_sub(1, Ordering::SeqCst);
        // In the order in which they were put in: each packet is one digit.
        let before = self.sent.load(Ordering::SeqCst);
        self.sent.store(before * 10 + usize::from(packet.header[0]), Ordering::SeqCst);
        Sent::Left(ticket)
    }
}

/// An outbox, and the digits of the packets that its device got.
fn outbox(room: usize) -> (Arc<Outbox>, Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let room = Arc::new(AtomicUsize::new(room));
    let refused = Arc::new(AtomicBool::new(false));
    let wire = Wire { sent: Arc::clone(&sent), room: Arc::clone(&room), refused: Arc::clone(&refused) };
    (Arc::new(Outbox::new(Counted::new(Box::new(wire)))), sent, room, refused)
}

fn put(outbox: &Outbox, digit: u8) {
    assert!(matches!(outbox.put(&TxPacket::whole(&[digit]), TxTicket::blank()), Sent::Kept));
}

/// Two threads put packets in under one lock, as the shard's, and serve without it: all packets leave, in order.
#[test]
fn no_packet_is_left_behind() {
    loom::model(|| {
        let (outbox, sent, ..) = outbox(9);
        let shard = Arc::new(loom::sync::Mutex::new(0_u8));
        let write = |outbox: Arc<Outbox>, shard: Arc<loom::sync::Mutex<u8>>| {
            move || {
                let mut next = shard.lock().unwrap();
                *next += 1;
                put(&outbox, *next);
                drop(next);
                assert!(!outbox.serve(|_| ()));
            }
        };
        let other = thread::spawn(write(Arc::clone(&outbox), Arc::clone(&shard)));
        write(Arc::clone(&outbox), shard)();
        other.join().unwrap();
        assert_eq!(sent.load(Ordering::SeqCst), 12);
    });
}

/// Room is announced at any moment of a refusal: the packet leaves.
#[test]
fn no_room_is_overlooked() {
    loom::model(|| {
        let (outbox, sent, room, refused) = outbox(0);
        let driver = {
            let outbox = Arc::clone(&outbox);
            thread::spawn(move || {
                // The device announces room only after it has refused a packet, and once.
                room.store(1, Ordering::SeqCst);
                if refused.load(Ordering::SeqCst) {
                    outbox.note_news();
                    let _ = outbox.serve(|_| ());
                    return true;
                }
                false
            })
        };
        put(&outbox, 1);
        let _ = outbox.serve(|_| ());
        let announced = driver.join().unwrap();
        if announced {
            assert_eq!(sent.load(Ordering::SeqCst), 1, "room was announced, and the packet is still there");
        }
    });
}

/// Two threads meet a full outbox: at least one of them is told to ask the stack again.
#[test]
fn a_refused_stack_is_asked_again() {
    loom::model(|| {
        let (outbox, ..) = outbox(99);
        for _ in 0..32 {
            put(&outbox, 0);
        }
        let server = {
            let outbox = Arc::clone(&outbox);
            thread::spawn(move || outbox.serve(|_| ()))
        };
        let was_refused = matches!(outbox.put(&TxPacket::whole(&[1]), TxTicket::blank()), Sent::Full(_));
        let again = outbox.serve(|_| ());
        let other = server.join().unwrap();
        assert!(!was_refused || again || other, "the stack was refused, and nobody asks it again");
    });
}

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
                if lead.try_lead() {
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
                if lead.try_lead() {
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
