//! Packets on their way to a slow device: none is left in the outbox.

use std::task::Waker;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use taut_core::{TxPacket, TxTicket};

use crate::below::losses::Counted;
use crate::below::outbox::Outbox;
use crate::device::{News, Sent, TxDevice};

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

/// Two threads put packets in under one lock, as the shard's, and serve without it: all packets leave, in
/// order.
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
