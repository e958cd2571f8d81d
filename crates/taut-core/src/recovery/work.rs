//! No ACK costs more than a bounded number of steps, whatever a peer sends: docs/spec/send-path.md, "Bounded
//! work". RFC 6675 and 8985 leave the work open; CVE-2018-5390 and CVE-2019-11477 to 11479 are what became of
//! that elsewhere.
//!
//! Each test plays a pattern against `SEGS` segments in flight, and against four times as many. A step is a
//! record that is visited or moved (`words/steps.rs`).

#![allow(clippy::single_range_in_vec_init, reason = "one SACK block is a list of one range")]

extern crate std;

use alloc::vec::Vec;
use core::ops::Range;

use super::*;
use crate::congestion::{Algorithm, Congestion};
use crate::words::{SendKind, take_steps};

/// The least that Linux sends, and taut too (`TCP_MIN_SND_MSS`).
const MSS: u64 = 48;
const FIRST: u64 = 1 << 32;
const SEGS: u64 = 8_000;

struct Attack {
    now: Instant,
    nxt: u64,
    rec: Recovery,
    cc: Congestion,
    cfg: RecoveryConfig,
    acks: u64,
    sends: u64,
    steps: u64,
    undone: u64,
}

const fn seg(n: u64) -> u64 {
    FIRST + n * MSS
}

impl Attack {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut rec = Recovery::new(now, FIRST, true);
        let cfg = RecoveryConfig::default();
        rec.seed_rtt(now, Duration::from_millis(100), &cfg);
        let cc = Congestion::new(Algorithm::reno());
        Self { now, nxt: FIRST, rec, cc, cfg, acks: 0, sends: 0, steps: 0, undone: 0 }
    }

    /// `packets` packets of `segs` segments, the last of which is `short` bytes short.
    fn send(&mut self, packets: u64, segs: u64, short: u64) {
        for _ in 0..packets {
            let range = self.nxt..self.nxt + segs * MSS - short;
            self.nxt = range.end;
            self.rec.on_transmit(self.now, range.clone(), MSS as u32, SendKind::New, &self.cfg);
            self.rec.on_tx_completed(&range);
        }
        self.cc.set_cwnd(u32::MAX / 2);
        take_steps();
    }

    fn ack(&mut self, ack: u64, sack: &[Range<u64>], echo: Option<Duration>) {
        take_steps();
        let input = AckInput {
            ack,
            sack,
            timestamp_echo_rtt: echo,
            carries_data: false,
            window_changed: false,
            may_send_new: false,
            marks: Feedback::None,
        };
        let outcome = self.rec.on_ack(self.now, &mut self.cc, &input, &self.cfg);
        self.undone += u64::from(outcome.undone.is_some());
        // The send path asks for what to retransmit next several times for each ACK.
        let range = self.rec.next_retransmit(u32::MAX / 2, 1_365, u64::MAX);
        let _ = range.is_some_and(|range| self.rec.in_device(&range));
        self.acks += 1;
        self.steps += take_steps();
    }

    /// Retransmits up to `packets` packets of `segs` segments.
    fn resend(&mut self, packets: u64, segs: u32) {
        take_steps();
        for _ in 0..packets {
            let Some(range) = self.rec.next_retransmit(u32::MAX / 2, segs, u64::MAX) else { break };
            let _ = self.rec.in_device(&range);
            self.rec.on_transmit(self.now, range.clone(), MSS as u32, SendKind::Retransmit, &self.cfg);
            self.rec.on_tx_completed(&range);
            self.sends += 1;
        }
        self.steps += take_steps();
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn check(self) -> f64 {
        self.rec.log().expect("data is in flight").invariants();
        self.steps as f64 / (self.acks + self.sends) as f64
    }
}

/// Plays `pattern` against two sizes of flight: neither may take more than `bound` steps for an ACK or a
/// retransmission on average, nor the large one notably more than the small one.
fn bounded(bound: f64, pattern: impl Fn(&mut Attack, u64)) {
    let steps: Vec<f64> = [SEGS, 4 * SEGS]
        .map(|segs| {
            let mut attack = Attack::new();
            pattern(&mut attack, segs);
            assert!(attack.acks >= segs / 16, "the pattern sends {} ACKs", attack.acks);
            std::eprintln!("{} ACKs, {} of them undid something", attack.acks, attack.undone);
            attack.check()
        })
        .into();
    std::eprintln!("steps an ACK: {steps:.1?}");
    assert!(steps.iter().all(|&steps| steps <= bound), "{steps:.1?} steps an ACK");
    // A bisection of four times as many takes two more, of which an ACK makes a few.
    assert!(steps[1] <= steps[0] * 1.25 + 10.0, "{steps:.1?} steps an ACK");
}

/// Every second segment arrives, each with an ACK of its own that ends a loss; nothing is retransmitted.
#[test]
fn work_01_every_second_segment() {
    bounded(200.0, |attack, segs| {
        attack.send(segs, 1, 0);
        attack.pass(100);
        for n in (1..segs).step_by(2) {
            attack.ack(FIRST, &[seg(n)..seg(n + 1)], None);
        }
    });
    // The same in super-packets, which SACK cuts to pieces; from the end.
    bounded(200.0, |attack, segs| {
        attack.send(segs / 40, 40, 0);
        attack.pass(100);
        for n in (1..segs).rev().step_by(2) {
            attack.ack(FIRST, &[seg(n)..seg(n + 1)], None);
        }
    });
}

/// The same, in an order that no cursor follows, and every loss is retransmitted at once.
#[test]
fn work_02_jumping_blocks_and_retransmissions() {
    bounded(300.0, |attack, segs| {
        attack.send(segs, 1, 0);
        attack.pass(100);
        let mut n = 1;
        for _ in 0..segs / 2 {
            n = (n + segs / 2 + 7) % segs;
            let m = (n * 5 + 3) % segs;
            attack.ack(FIRST, &[seg(n)..seg(n + 1), seg(m)..seg(m + 1)], None);
            attack.resend(1, 1);
        }
    });
}

/// Blocks that cover everything known, each with another start, so that no memory of the last one helps. The
/// packets end in short segments, as an application's small writes do.
#[test]
fn work_03_moving_starts() {
    for short in [0, 7] {
        bounded(200.0, |attack, segs| {
            attack.send(segs, 1, short);
            attack.pass(100);
            let at = |n: u64| FIRST + n * (MSS - short);
            // Every second one is known; then they are covered by blocks that begin ever later.
            for n in (1..segs).step_by(2) {
                attack.ack(FIRST, &[at(n)..at(n + 1)], None);
            }
            for n in 2..segs {
                attack.ack(FIRST, &[at(n)..at(segs)], None);
            }
        });
    }
}

/// A peer that pretends, with old timestamps, that nothing was lost, whenever something is found lost: each
/// ACK that advances undoes the recovery that the one before began.
#[test]
fn work_04_undo_with_every_second_ack() {
    bounded(300.0, |attack, segs| {
        attack.send(segs, 1, 0);
        attack.pass(200);
        for n in 0..segs / 8 {
            attack.ack(seg(n), &[seg(segs - 4 - n)..seg(segs)], None);
            attack.resend(1, 1);
            attack.pass(60);
            attack.ack(seg(n + 1), &[], Some(Duration::from_secs(1)));
        }
    });
}

/// The same by D-SACK: each retransmission is reported as received twice.
#[test]
fn work_05_undo_by_d_sack() {
    bounded(300.0, |attack, segs| {
        attack.send(segs, 1, 0);
        attack.pass(200);
        for n in 0..segs / 8 {
            attack.ack(seg(n), &[seg(segs - 4 - n)..seg(segs)], None);
            let resent = attack.rec.next_retransmit(u32::MAX / 2, 1, u64::MAX);
            attack.resend(1, 1);
            attack.pass(60);
            if let Some(range) = resent {
                attack.ack(seg(n + 1), &[range], None);
            }
        }
    });
}

/// Everything is found lost, and the segments come one by one.
#[test]
fn work_06_partial_acks() {
    bounded(100.0, |attack, segs| {
        attack.send(segs, 1, 0);
        attack.pass(200);
        attack.ack(FIRST, &[seg(segs - 1)..seg(segs)], None);
        for n in 1..segs - 1 {
            attack.resend(1, 1);
            attack.pass(1);
            attack.ack(seg(n), &[seg(segs - 1)..seg(segs)], None);
        }
    });
}

/// The first segment's retransmission is lost again and again, and everything else was retransmitted: the
/// next one to retransmit is at the other end.
#[test]
fn work_07_a_retransmission_that_is_lost_again() {
    bounded(200.0, |attack, segs| {
        let unacked = segs / 2;
        attack.send(segs, 1, 0);
        attack.pass(200);
        // Lost: the first half.
        attack.ack(FIRST, &[seg(unacked)..seg(unacked + 4)], None);
        attack.resend(unacked - 100, 1);
        attack.pass(200);
        for n in 0..segs / 8 {
            // What was retransmitted last arrives, so the first one is lost again.
            attack.resend(2, 1);
            attack.pass(150);
            let m = unacked - 101 - n % (unacked - 200);
            attack.ack(FIRST, &[seg(m)..seg(m + 1), seg(unacked)..seg(unacked + 4)], None);
        }
    });
}

/// Retransmissions in super-packets of a thousand segments, of which every second one then arrives, so that
/// the others are lost again one by one.
#[test]
fn work_08_pieces_of_a_retransmission() {
    bounded(200.0, |attack, segs| {
        attack.send(segs / 1_000, 1_000, 0);
        attack.pass(200);
        // Three above a hole show its loss at once.
        attack.ack(FIRST, &[seg(segs - 4)..seg(segs)], None);
        attack.resend(segs, 1_000);
        assert!(attack.sends >= segs / 1_000, "all is retransmitted");
        attack.pass(200);
        for n in (1..segs - 64).step_by(2) {
            attack.ack(FIRST, &[seg(n)..seg(n + 1), seg(segs - 4)..seg(segs)], None);
        }
    });
}
