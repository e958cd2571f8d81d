//! One connection with round numbers, so that a test reads as the RFC's example would:
//!
//! ```text
//!   let mut r = Rig::open(Setup::default());       a round trip of 100 ms was measured; cwnd is 10 segments of 1000 bytes
//!   r.send(5);                                     segments 0 to 4 leave now, at 0 ms
//!   r.at(100);                                     the clock; timers fire when they are due
//!   r.ack(1, &[(2, 5)]);                           the peer: all below 1 arrived, and 2 to 4
//!   assert_eq!(r.sent(), [1]);                     the segments that left since the last call
//!   assert_eq!(r.told.acks(), …);                  what congestion control was told
//! ```

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

use taut_core::congestion::{AckEvent, Controller, Definition, LostPacket, RateSample, Signal, Window};
use taut_core::{Algorithm, ConnError, Duration, Event, Instant, ListenOptions, SetOption, StackConfig};

use crate::support::trace::{Offer, Seg, Trace};

/// Payload bytes of a segment.
pub(crate) const MSS: u32 = 1_000;

/// How a connection begins.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) config: StackConfig,
    /// What the handshake measures.
    pub(crate) rtt_ms: u64,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    /// The window grows as Reno's does. Otherwise it is ten segments until a reduction halves it.
    pub(crate) grows: bool,
}

impl Default for Setup {
    /// Without tail loss probes and F-RTO, unless the test is about these.
    fn default() -> Self {
        let config = StackConfig::default().with(|config| {
            config.recovery.tail_loss_probes = false;
            config.recovery.frto = false;
            // Room for everything that a test writes.
            config.send.notsent_lowat = u32::MAX;
            config.send.wmem.initial = config.send.wmem.max;
        });
        Self { config, rtt_ms: 100, sack: true, timestamps: false, grows: false }
    }
}

impl Setup {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut StackConfig)) -> Self {
        change(&mut self.config);
        self
    }

    pub(crate) fn with_probes() -> Self {
        Self::default().with(|config| config.recovery.tail_loss_probes = true)
    }

    pub(crate) fn with_frto() -> Self {
        Self::default().with(|config| config.recovery.frto = true)
    }

    pub(crate) fn without_sack() -> Self {
        Self { sack: false, ..Self::default() }
    }

    pub(crate) fn with_timestamps() -> Self {
        Self { timestamps: true, ..Self::default() }
    }
}

/// What congestion control is told by an ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    pub(crate) acked: u32,
    pub(crate) newly_lost: u32,
    pub(crate) prior_in_flight: u32,
    pub(crate) in_flight: u32,
    pub(crate) rtt: Option<Duration>,
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) rate: Option<RateSample>,
}

/// The notes of the congestion control.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub(crate) acks: Vec<Acked>,
    pub(crate) lost: Vec<LostPacket>,
    /// Reductions begun, ended, undone, and timeouts.
    pub(crate) reductions: Vec<Signal>,
    pub(crate) ended: u32,
    pub(crate) undone: u32,
    pub(crate) timeouts: u32,
}

/// A congestion control that halves the window and takes notes.
#[derive(Debug)]
struct Observer {
    notes: Arc<Mutex<Notes>>,
    grows: bool,
}

impl Controller for Observer {
    fn observe(&mut self, ack: &AckEvent<'_>) {
        self.notes.lock().unwrap().acks.push(Acked {
            acked: ack.acked,
            newly_lost: ack.newly_lost,
            prior_in_flight: ack.prior_in_flight,
            in_flight: ack.in_flight,
            rtt: ack.rtt,
            min_rtt: ack.min_rtt,
            rate: ack.rate.copied(),
        });
    }

    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        if self.grows {
            let rest = window.slow_start(ack.acked);
            if rest > 0 {
                window.additive(window.cwnd(), rest);
            }
        }
    }

    fn reduce(&mut self, window: &Window, why: Signal, _now: Instant) -> u32 {
        self.notes.lock().unwrap().reductions.push(why);
        window.cwnd() / 2
    }

    fn on_lost(&mut self, packet: &LostPacket) {
        self.notes.lock().unwrap().lost.push(*packet);
    }

    fn on_timeout(&mut self, _window: &mut Window) {
        self.notes.lock().unwrap().timeouts += 1;
    }

    fn on_recovery_end(&mut self, _window: &mut Window) {
        self.notes.lock().unwrap().ended += 1;
    }

    fn undo(&mut self, _window: &mut Window, _now: Instant) {
        self.notes.lock().unwrap().undone += 1;
    }
}

/// A connection, seen from its peer.
pub(crate) struct Rig {
    trace: Trace,
    notes: Arc<Mutex<Notes>>,
    opened: Instant,
    /// Segments.
    written: u32,
}

impl Deref for Rig {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        &self.trace
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }
}

impl Rig {
    /// An established connection whose handshake took `rtt_ms`.
    pub(crate) fn open(setup: Setup) -> Self {
        let notes = Arc::new(Mutex::new(Notes::default()));
        let Setup { mut config, rtt_ms, sack, timestamps, grows } = setup;
        let for_controller = notes.clone();
        let observer =
            Definition::new("observer", move |_| Observer { notes: for_controller.clone(), grows });
        config.congestion.control = Algorithm::new(observer).expect("its name is a word");
        let mss = if timestamps { 1_012 } else { 1_000 };
        let offer = Offer { sackok: sack, ts: timestamps, mss: Some(mss), ..Offer::EASY };
        let mut trace = Trace::with(config);
        let listener = trace.listen_with(ListenOptions::default());
        trace.syn(offer);
        trace.expect(&Seg::new("S.").seq(0).ack(1));
        trace.wait_ms(rtt_ms);
        trace.inject(&Seg::new(".").seq(1).ack(1));
        trace.id = Some(trace.stack.accept(listener).expect("the handshake is complete").0);
        let opened = trace.now;
        Self { trace, notes, opened, written: 0 }
    }

    /// The same on a link that holds packets until their departure. Ten segments, which are not spaced, left
    /// at 0 and were acknowledged after one round trip, which is now. The next segment departs at 500 ms, and
    /// those after it `gap_ms` apart.
    pub(crate) fn paced(setup: Setup, gap_ms: u64) -> Self {
        let rtt_ms = setup.rtt_ms;
        let mut r = Self::open(setup);
        r.stack.set_link_paces(true);
        r.limit_rate(u64::from(MSS) * 1_000 / 500);
        r.send(10);
        // A higher rate holds from the next ACK on.
        r.limit_rate(u64::from(MSS) * 1_000 / gap_ms);
        r.at(rtt_ms);
        r.ack(10, &[]);
        r
    }

    /// Sets a maximum rate, in bytes per second.
    pub(crate) fn limit_rate(&mut self, rate: u64) {
        let now = self.trace.now;
        self.trace.conn().set_option(now, SetOption::MaxPacingRate(rate)).unwrap();
    }

    /// The position of segment `n` on the wire.
    pub(crate) fn pos(n: u32) -> u32 {
        1 + n * MSS
    }

    /// Writes `segs` segments, which all leave now.
    #[track_caller]
    pub(crate) fn send(&mut self, segs: u32) {
        let first = self.written;
        self.queue(segs);
        assert_eq!(self.sent(), (first..first + segs).collect::<Vec<_>>(), "all leave at once");
    }

    /// Writes `segs` segments.
    #[track_caller]
    pub(crate) fn queue(&mut self, segs: u32) {
        self.trace.write((segs * MSS) as usize);
        self.written += segs;
        self.trace.poll();
    }

    /// The segments that left since the last call, by number.
    #[track_caller]
    pub(crate) fn sent(&mut self) -> Vec<u32> {
        self.trace.poll();
        let whole = |len: usize| len == MSS as usize;
        let out = self.trace.out.drain(..).filter(|got| !got.payload.is_empty());
        out.inspect(|got| assert!(whole(got.payload.len()), "{got:?}"))
            .map(|got| (got.seq - 1) / MSS)
            .collect()
    }

    /// Milliseconds since the connection opened.
    pub(crate) fn now_ms(&self) -> u64 {
        self.trace.now.since(self.opened).as_millis()
    }

    /// Goes to this time; timers fire on the way.
    #[track_caller]
    pub(crate) fn at(&mut self, ms: u64) {
        let now = self.now_ms();
        assert!(now <= ms, "it is {now} ms already");
        self.trace.wait_ms(ms - now);
    }

    /// Goes to this instant; timers fire on the way, and what they make due is not taken yet.
    pub(crate) fn trace_to(&mut self, at: Instant) {
        self.trace.now = at;
        self.trace.stack.handle_timeout(at);
    }

    /// Goes to the next packet that leaves because of a timer: its number, and the time.
    #[track_caller]
    pub(crate) fn next_sent(&mut self) -> (u32, u64) {
        assert_eq!(self.sent(), [], "already sent");
        let limit = self.trace.now + Duration::from_secs(1_000);
        while self.trace.out.is_empty() && self.trace.step(limit) {}
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "one packet: {sent:?}");
        (sent[0], self.now_ms())
    }

    /// The number of the next segment that is written.
    pub(crate) const fn next_segment(&self) -> u32 {
        self.written
    }

    /// The peer has everything below segment `upto`, and these segments above: first and the one after the
    /// last.
    pub(crate) fn ack(&mut self, upto: u32, sack: &[(u32, u32)]) {
        self.trace.inject(&Self::ack_of(upto, sack));
    }

    /// The same, echoing another timestamp than the last.
    pub(crate) fn ack_echo(&mut self, upto: u32, sack: &[(u32, u32)], echo: u32) {
        let clock = self.trace.peer_clock();
        self.trace.inject(&Self::ack_of(upto, sack).ts(clock, echo));
    }

    pub(crate) fn ack_of(upto: u32, sack: &[(u32, u32)]) -> Seg {
        let blocks: Vec<_> = sack.iter().map(|&(from, to)| (Self::pos(from), Self::pos(to))).collect();
        let seg = Seg::new(".").seq(1).ack(Self::pos(upto));
        if blocks.is_empty() { seg } else { seg.sack(&blocks) }
    }

    /// What congestion control was told so far.
    pub(crate) fn notes(&self) -> Notes {
        self.notes.lock().unwrap().clone()
    }

    /// What it was told by the last ACK.
    #[track_caller]
    pub(crate) fn last(&self) -> Acked {
        *self.notes.lock().unwrap().acks.last().expect("an ACK that delivered something")
    }

    /// Smoothed round trip, variation and timeout, in microseconds.
    pub(crate) fn times_us(&mut self) -> (u64, u64, u64) {
        let info = self.trace.info();
        (info.rtt.expect("measured").as_micros(), info.rttvar.as_micros(), info.rto.as_micros())
    }

    /// The connection was given up.
    pub(crate) fn has_failed(&self) -> bool {
        self.trace.events.iter().any(|event| matches!(event, Event::Failed(_, ConnError::TimedOut)))
    }

    /// Retransmitted segments, timeouts and tail loss probes.
    pub(crate) fn repairs(&self) -> (u64, u64, u64) {
        let counters = self.trace.stack.counters();
        (counters.retrans_segs, counters.tcp_timeouts, counters.tcp_loss_probes)
    }
}

/// `is` within a few microseconds of `should`: times are kept in eighths and quarters of a microsecond.
#[track_caller]
pub(crate) fn assert_us(is: u64, should_ms: f64, what: &str) {
    let should = should_ms * 1_000.0;
    assert!((is as f64 - should).abs() <= 4.0, "{what}: {is} µs instead of {should}");
}
