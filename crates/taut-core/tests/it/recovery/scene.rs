//! The initial state of the traces: a round trip of 100 ms was measured, ten segments of 1000 bytes are in
//! flight, more wait.

use taut_core::{ListenOptions, StackConfig};
use taut_wire::Ecn;

use crate::support::trace::{Offer, Seg, Trace};

/// Ten segments in flight since 100 ms; thirteen more are written.
pub(crate) fn in_flight() -> Trace {
    in_flight_with(StackConfig::default(), Offer::EASY, false)
}

/// The same; `hold` keeps the tickets of all packets, like a device that has not sent them yet.
pub(crate) fn in_flight_with(config: StackConfig, offer: Offer, hold: bool) -> Trace {
    let mut t = established(config, offer);
    t.hold_tickets = hold;
    t.write(23_000);
    let sent = sent(&mut t);
    assert_eq!(sent, (0..10).map(|n| 1 + n * 1_000).collect::<Vec<_>>());
    t.wait_ms(100);
    t
}

/// A connection that measured 100 ms in its handshake.
pub(crate) fn established(config: StackConfig, offer: Offer) -> Trace {
    let mut t = Trace::with(config);
    let listener = t.listen_with(ListenOptions::default());
    t.syn(offer);
    t.expect(&Seg::new("S.").seq(0).ack(1));
    t.wait_ms(100);
    t.inject(&Seg::new(".").seq(1).ack(1).win(offer.win));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t
}

/// Takes what was sent: the sequence number of each packet, all of them full segments.
#[track_caller]
pub(crate) fn sent(t: &mut Trace) -> Vec<u32> {
    t.poll();
    t.out
        .drain(..)
        .map(|got| {
            assert_eq!(got.payload.len(), 1_000, "{got:?}");
            got.seq
        })
        .collect()
}

/// The peer sends forty segments of 100 bytes from `seq` on, capable of ECN and with these `flags`: the quick
/// ACKs of the beginning are used up, and ACKs are delayed from now on. Returns what comes next.
pub(crate) fn use_up_quick_acks(t: &mut Trace, flags: &str, seq: u32) -> u32 {
    for n in 0..40 {
        t.inject(&Seg::new(flags).seq(seq + n * 100).len(100).ecn(Ecn::Ect0));
    }
    t.wait_ms(50);
    t.out.clear();
    seq + 4_000
}

/// Retransmitted segments, timeouts and probes.
pub(crate) fn repairs(t: &Trace) -> (u64, u64, u64) {
    let counters = t.stack.counters();
    (counters.retrans_segs, counters.tcp_timeouts, counters.tcp_loss_probes)
}
