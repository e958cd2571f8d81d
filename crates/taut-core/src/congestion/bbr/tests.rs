//! BBR's statements in docs/spec/congestion.md, one ACK at a time. The scene: segments of 1000 bytes, a least
//! round-trip time of 40 ms and a bandwidth of 2500 segments a second, so that the bandwidth-delay product is
//! 100.

mod control;
mod cycle;
mod loss;
mod measure;
mod probe_rtt;
mod startup;
mod undo;

use alloc::vec::Vec;

use super::*;
use crate::congestion::RateSample;

const LEAST: Duration = Duration::from_millis(40);
const MSS: u32 = 1_000;
/// An RTT that shows a queue, so that loss is not taken for the path's own (`ambient.rs`).
const QUEUE: Duration = Duration::from_millis(50);
/// In flight: more than the bandwidth-delay product; as much.
const FULL: u32 = 150;
const DRAINED: u32 = 100;

/// An ACK, and the sample of the delivery rate that it gives.
#[derive(Clone, Copy)]
struct Ack {
    /// Time since the ACK before.
    after: Duration,
    acked: u32,
    /// It is for data sent after the last round ended, so it ends another.
    ends_round: bool,
    in_flight: u32,
    rtt: Duration,
    cwnd_limited: bool,
    recovering: bool,
    /// The sample: segments, and the time in which they were delivered; `None` for no sample.
    segs: Option<u32>,
    interval: Duration,
    app_limited: bool,
    /// In flight when the newest segment was sent, and segments lost since.
    tx_in_flight: u32,
    lost: u32,
}

/// It ends a round, at the path's rate.
const ACK: Ack = Ack {
    after: LEAST,
    acked: 1,
    ends_round: true,
    in_flight: FULL,
    rtt: LEAST,
    cwnd_limited: false,
    recovering: false,
    segs: Some(100),
    interval: LEAST,
    app_limited: false,
    tx_in_flight: 100,
    lost: 0,
};

/// It belongs to the round that has begun.
const WITHIN: Ack = Ack { ends_round: false, after: Duration::from_millis(1), ..ACK };

/// A connection.
struct Flow {
    bbr: Bbr,
    window: Window,
    now: Instant,
    delivered: u64,
    lost: u32,
    round_from: u64,
    seed: u64,
}

impl Flow {
    fn new() -> Self {
        Self::seeded(1)
    }

    fn seeded(seed: u64) -> Self {
        Self {
            bbr: Bbr::new(),
            window: Window::new(10),
            now: Instant::from_nanos(1_000_000_000),
            delivered: 0,
            lost: 0,
            round_from: 0,
            seed,
        }
    }

    fn ack(&mut self, ack: Ack) {
        self.now += ack.after;
        // What was delivered when the newest segment was sent: everything, or less than when the round began.
        let prior_delivered = if ack.ends_round { self.delivered } else { self.round_from.saturating_sub(1) };
        self.delivered += u64::from(ack.acked);
        if ack.ends_round {
            self.round_from = self.delivered;
        }
        let rate = ack.segs.map(|delivered| RateSample {
            delivered,
            interval: ack.interval,
            is_app_limited: ack.app_limited,
            prior_in_flight: ack.in_flight,
            tx_in_flight: ack.tx_in_flight,
            prior_delivered,
            lost: ack.lost,
            losses: 0,
            acked_sacked: ack.acked,
        });
        let mut event = AckEvent::new(self.now, MSS, ack.acked);
        (event.total_delivered, event.total_lost) = (self.delivered, self.lost);
        (event.in_flight, event.cwnd_limited) = (ack.in_flight, ack.cwnd_limited);
        (event.rtt, event.srtt, event.min_rtt) = (Some(ack.rtt), Some(LEAST), Some(LEAST));
        (event.rate, event.recovering, event.seed) = (rate.as_ref(), ack.recovering, self.seed);
        self.bbr.on_ack(&mut self.window, &event);
    }

    fn acks(&mut self, count: u32, ack: Ack) {
        (0..count).for_each(|_| self.ack(ack));
    }

    /// `count` segments are found lost, each sent when `tx_in_flight` were in flight.
    fn lose(&mut self, count: u32, tx_in_flight: u32) {
        for lost in 1..=count {
            self.lose_packet(LostPacket {
                segs: 1,
                tx_in_flight,
                lost,
                total_delivered: self.delivered,
                is_app_limited: false,
            });
        }
    }

    fn lose_packet(&mut self, packet: LostPacket) {
        self.lost += packet.segs;
        self.bbr.on_lost(&packet);
    }

    /// Loss recovery begins.
    fn recover(&mut self) {
        self.bbr.reduce(&self.window, Signal::Loss, self.now);
    }

    fn state(&self) -> State {
        self.bbr.cycle.state
    }

    fn cwnd(&self) -> u32 {
        self.window.cwnd()
    }

    /// Segments a second.
    fn bw(&self) -> u64 {
        self.bbr.bw.bytes_per_sec(1)
    }

    // ---- the way through the states ----

    /// At the end of Startup: the pipe is full, its queue is not empty.
    fn drain() -> Self {
        Self::drain_seeded(1)
    }

    fn drain_seeded(seed: u64) -> Self {
        let mut flow = Self::seeded(seed);
        flow.acks(4, ACK);
        assert_eq!(flow.state(), State::Drain);
        // Far enough for the window to have its full size.
        flow.set_cwnd(200);
        flow
    }

    fn down() -> Self {
        Self::down_seeded(1)
    }

    fn down_seeded(seed: u64) -> Self {
        let mut flow = Self::drain_seeded(seed);
        // The queue did not go away.
        flow.acks(4, ACK);
        assert_eq!(flow.state(), State::Down);
        flow
    }

    fn cruise() -> Self {
        let mut flow = Self::down();
        // The last ACKs of the probe have come, and the queue is gone.
        flow.ack(ACK);
        flow.ack(Ack { in_flight: DRAINED, ..WITHIN });
        assert_eq!(flow.state(), State::Cruise);
        flow
    }

    fn refill() -> Self {
        let mut flow = Self::cruise();
        flow.probe_now();
        flow
    }

    fn up() -> Self {
        let mut flow = Self::refill();
        flow.ack(ACK);
        assert_eq!(flow.state(), State::Up);
        flow
    }

    /// Short rounds until the next probe begins: 63 at most.
    fn probe_now(&mut self) {
        for _ in 0..64 {
            self.ack(Ack { after: Duration::from_millis(1), in_flight: DRAINED, ..ACK });
            if self.state() == State::Refill {
                return;
            }
        }
        panic!("no probe");
    }

    /// cwnd was set by somebody else, and BBR has seen it.
    fn set_cwnd(&mut self, cwnd: u32) {
        self.window.set_cwnd(cwnd);
        self.bbr.cwnd = cwnd;
    }

    /// From Up through Down, Cruise and Refill to the next Up. `down` is the ACK that ends the feedback.
    fn next_up(&mut self, down: Ack) {
        assert_eq!(self.state(), State::Down);
        self.ack(down);
        self.probe_now();
        self.ack(ACK);
        assert_eq!(self.state(), State::Up);
    }
}
