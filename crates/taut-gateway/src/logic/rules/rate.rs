//! The rate of a rule (`allow any rate 20mbit`): how many bytes the flows that it decides may move now, all
//! together, in each direction, and when the next ones may. A token bucket, kept as a time as in the generic
//! cell rate algorithm (ITU-T I.371). Called by the runner and by `gateway.rs`.
//!
//! ```text
//!   a connection   take: so many bytes, at this time ──▶ waits ──▶ reads, and gives back the rest
//!   a datagram     passes now, or is dropped
//! ```
//!
//! **Rule.** Within a time `t` at most `rate × t` bytes pass, and a burst: the bytes of the time [`BURST`],
//! at least two full packets. Bytes are paid for in the order in which they are requested, so connections
//! take turns, and each sleeps until its own. The bytes wait with their senders meanwhile. Bytes that are
//! given back may move in addition once, while others wait for the turns that they have.
//!
//! **Numbers.** tokio's timers end up to a millisecond late. A turn that is late by less than [`BURST`] loses
//! nothing, so the rate is reached nevertheless. A connection takes at most half of a burst at a time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use taut::qdisc::Rate;

use crate::logic::flow::Side;

/// As many bytes as the rate carries in this time may pass at once.
const BURST: Duration = Duration::from_millis(4);
/// Bytes that may pass at once in any case: two packets of an Ethernet.
const PACKETS: u64 = 2 * 1_500;

/// A rate, and the time until which the bytes of each direction are paid for.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Rate,
    /// In nanoseconds; ahead of the present time by a burst at most, and by what is taken for later.
    paid: [AtomicU64; 2],
}

/// Bytes that may move at a time.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) count: usize,
    pub(crate) at: Duration,
    /// Until when they are paid for.
    paid: u64,
}

impl Pace {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, paid: Default::default() }
    }

    pub(crate) const fn rate(&self) -> Rate {
        self.rate
    }

    /// The time that a burst takes.
    fn burst(&self) -> u64 {
        nanos(BURST).max(self.rate.time_for(PACKETS).as_nanos())
    }

    /// Takes at most `wanted` bytes of this side, for now or for later.
    pub(crate) fn take(&self, now: Duration, from: Side, wanted: usize) -> Taken {
        let burst = self.burst();
        let most = self.rate.bytes_in(Duration::from_nanos(burst / 2).into());
        let count = wanted.min(usize::try_from(most).unwrap_or(usize::MAX));
        let paid = self.pay(now, from, count, |_, _| true).unwrap_or(u64::MAX);
        Taken { count, at: Duration::from_nanos(paid.saturating_sub(burst)), paid }
    }

    /// So many of these bytes are not moved. The time that has passed since they were due is not given back.
    pub(crate) fn give_back(&self, now: Duration, from: Side, taken: &Taken, count: usize) {
        // A cost is rounded up, so this is rounded down.
        let time = count as u128 * 1_000_000_000 / u128::from(self.rate.bytes_per_second());
        let time = u64::try_from(time).unwrap_or(u64::MAX).min(taken.paid.saturating_sub(nanos(now)));
        self.paid[from.index()].fetch_sub(time, Relaxed);
    }

    /// Whether a datagram of this length passes now. One that is longer than a burst passes where a whole
    /// burst would.
    pub(crate) fn passes(&self, now: Duration, from: Side, len: usize) -> bool {
        let most = nanos(now).saturating_add(self.burst());
        self.pay(now, from, len, |before, paid| paid <= most || before <= nanos(now)).is_some()
    }

    /// Pays for so many bytes, if `may` agrees to the times before and after.
    fn pay(&self, now: Duration, from: Side, count: usize, may: impl Fn(u64, u64) -> bool) -> Option<u64> {
        let cost = self.rate.time_for(count as u64).as_nanos();
        let paid = |before: u64| before.max(nanos(now)).saturating_add(cost);
        let next = |before| Some(paid(before)).filter(|paid| may(before, *paid));
        self.paid[from.index()].fetch_update(Relaxed, Relaxed, next).ok().map(paid)
    }
}

/// Two rules with one rate are equal, whatever has passed.
impl PartialEq for Pace {
    fn eq(&self, other: &Self) -> bool {
        self.rate == other.rate
    }
}

impl Eq for Pace {}

/// Of a gateway that has been running for this time: 584 years at most.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    use taut::FlowKind;

    use super::*;
    use crate::logic::admission::Admission;
    use crate::logic::flows::FlowId;
    use crate::logic::gateway::{Gateway, Settings};
    use crate::logic::rules::{Rule, Rules};

    const fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    fn pace(rate: &str) -> Pace {
        Pace::new(rate.parse().unwrap())
    }

    #[test]
    fn gw_243_a_rule_has_a_rate_and_a_class() {
        for (text, shown) in [
            ("allow any rate 20mbit", "allow any rate 20mbit"),
            ("allow any rate 2.5mbps port 80,443", "allow any port 80,443 rate 20mbit"),
            (
                "allow tcp x.test within 10.0.0.0/8 class bulk rate 64kbit ech port 1",
                "allow tcp x.test within 10.0.0.0/8 port 1 ech rate 64kbit class bulk",
            ),
            ("allow tcp any class interactive", "allow tcp any class interactive"),
            ("allow ping any rate 8bit", "allow ping any rate 8bit"),
        ] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), shown);
            assert_eq!(shown.parse::<Rule>().unwrap(), rule);
        }
        for (wrong, why) in [
            ("deny any rate 1mbit", "rate does not belong there"),
            ("drop any rate 1mbit", "rate does not belong there"),
            ("allow any rate", "nothing follows rate"),
            ("allow any rate 0", "write a number above 0 with bit, kbit"),
            ("allow any rate 20mb", "is not a rate"),
            ("allow any rate 1mbit rate 1mbit", "rate does not belong there"),
            ("allow tcp any class", "nothing follows class"),
            ("allow tcp any class urgent", "interactive or bulk"),
            ("allow any class bulk", "for allow tcp"),
            ("allow udp any class bulk", "for allow tcp"),
            ("deny tcp any class bulk", "for allow tcp"),
        ] {
            let error = wrong.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    /// A number from a sequence that looks random (Knuth's MMIX).
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    /// The bytes of five connections that take turns until two seconds are over: from 0.1 s on one, later
    /// all, of which one pauses at times. Each is late by so many microseconds at most, and uses a third of
    /// one turn in `unused`.
    fn passes(rate: &str, late_us: u64, unused: u64) -> Vec<(Duration, u64)> {
        let (pace, mut random, mut passed) = (pace(rate), 7, Vec::new());
        let mut due: BTreeSet<_> = (0..5).map(|number| (us(100_000 + 300_000 * number), number)).collect();
        let mut taken = [const { None }; 5];
        while let Some((now, number)) = due.pop_first().filter(|(at, _)| *at < us(2_000_000)) {
            if let Some(turn) = taken[number as usize].take() {
                let Taken { count, .. } = turn;
                let used = if next(&mut random).is_multiple_of(unused) { count / 3 } else { count };
                pace.give_back(now, Side::Guest, &turn, count - used);
                passed.push((now, used as u64));
                if number == 4 && next(&mut random).is_multiple_of(8) {
                    due.insert((now + us(30_000), number));
                    continue;
                }
            }
            let turn = pace.take(now, Side::Guest, 1 + next(&mut random) as usize % 200_000);
            due.insert((turn.at.max(now) + us(next(&mut random) % (late_us + 1)), number));
            taken[number as usize] = Some(turn);
        }
        passed
    }

    #[test]
    fn gw_244_what_passes_is_the_rate_and_a_burst() {
        // Bytes a second, and the burst: 4 ms, 3,000 bytes at least; one for what is rounded.
        for (rate, bytes, burst) in [
            ("20mbit", 2_500_000, 10_001),
            ("1mbit", 125_000, 3_001),
            ("1gbit", 125_000_000, 500_001),
            ("100kbps", 100_000, 3_001),
        ] {
            // In any time, where each moves when it is its turn.
            let passed = passes(rate, 0, u64::MAX);
            for (at, (first, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (then, count) in &passed[at..] {
                    sum += count;
                    let time = (*then - *first).as_nanos() as u64;
                    assert!(sum <= bytes * time / 1_000_000_000 + burst, "{rate}: {sum} in {time} ns");
                }
            }
            // From the beginning on, whatever is late or not used.
            for (late, unused) in [(0, u64::MAX), (1_000, u64::MAX), (700, 4)] {
                let (passed, mut sum) = (passes(rate, late, unused), 0);
                for (then, count) in &passed {
                    sum += count;
                    assert!(sum <= bytes * then.as_nanos() as u64 / 1_000_000_000 + burst, "{rate} {sum}");
                }
                // The rate is reached, but for the turns that are to come: five of half a burst.
                assert!(sum + 3 * burst >= bytes * 19 / 10, "{rate}, late {late}: {sum}");
            }
        }
    }

    #[test]
    fn gw_245_datagrams_beyond_the_rate_do_not_pass() {
        // 4 ms of 20 Mbit/s are 10,000 bytes; 1,250 take 500 µs.
        let limit = pace("20mbit");
        let mut now = us(7);
        assert_eq!((0..20).filter(|_| limit.passes(now, Side::Guest, 1_250)).count(), 8);
        assert!(!limit.passes(now + us(499), Side::Guest, 1_250));
        assert!(limit.passes(now + us(500), Side::Guest, 1_250));
        // Each direction by itself.
        assert!(limit.passes(now, Side::Upstream, 10_000) && !limit.passes(now, Side::Upstream, 1));
        // Two full packets at least: 3,000 bytes take 24 ms of 1 Mbit/s.
        let limit = pace("1mbit");
        assert_eq!((0..20).filter(|_| limit.passes(now, Side::Guest, 1_500)).count(), 2);
        assert!(!limit.passes(now + us(11_999), Side::Guest, 1_500));
        // One that is longer than a burst passes where a burst would, and is paid for: 9,000 take 72 ms.
        assert!(!limit.passes(now + us(23_999), Side::Guest, 9_000));
        now += us(24_000);
        assert!(limit.passes(now, Side::Guest, 9_000));
        assert!(!limit.passes(now + us(59_999), Side::Guest, 1_500));
        assert!(limit.passes(now + us(60_000), Side::Guest, 1_500));
    }

    fn settings(rules: &[&str]) -> Settings {
        Settings { rules: Rules::parse(rules.iter().copied()).unwrap(), ..Settings::default() }
    }

    fn flow(gateway: &mut Gateway, guest: u8, port: u16) -> FlowId {
        let from = SocketAddr::from(([10, 0, 2, guest], 4_000));
        let to = SocketAddr::from(([192, 0, 2, 1], port));
        let Admission::Dial(id, _) = gateway.admit(us(0), FlowKind::Udp, from, to) else { panic!() };
        id
    }

    #[test]
    fn gw_246_flows_of_one_rule_share_its_rate_also_when_rules_are_read_again() {
        let rules = ["allow any port 1-2 rate 1mbit", "allow any port 3 rate 1mbit"];
        let mut gateway = Gateway::new(settings(&rules));
        let flows = [(15, 1), (16, 2), (15, 3), (15, 4)].map(|(guest, port)| flow(&mut gateway, guest, port));
        let passing = |gateway: &mut Gateway, id| {
            (0..5).filter(|_| gateway.may_pass(us(1), id, Side::Guest, 1_500)).count()
        };
        // Two packets for both of the first rule, two for the second one, and all without one.
        assert_eq!(flows.map(|id| passing(&mut gateway, id)), [2, 0, 2, 5]);
        assert_eq!(gateway.counters().over_rate, 3 + 5 + 3);
        // The other direction, also of what begins outside.
        let (guest, from) = (SocketAddr::from(([10, 0, 2, 15], 4_000)), ([192, 0, 2, 1], 2).into());
        let (inward, _) = gateway.from_outside(us(1), guest, from, true).unwrap();
        let mut down = |id| gateway.may_pass(us(1), id, Side::Upstream, 1_500);
        assert_eq!([down(flows[0]), down(inward), down(inward)], [true, true, false]);
        // Read again: one is the same, one is another.
        gateway.set(settings(&["deny any port 9", rules[0], "allow any port 3 rate 2mbit"]));
        let again = [1, 3].map(|port| flow(&mut gateway, 17, port));
        assert_eq!(again.map(|id| passing(&mut gateway, id)), [0, 2]);
        // A flow to a forwarded port has no rule.
        let forwarded = gateway.forward(us(1), FlowKind::Udp, guest).unwrap();
        assert_eq!(passing(&mut gateway, forwarded), 5);
    }

    #[test]
    fn gw_248_a_class_is_refused_where_packets_have_none() {
        let rule = || -> Rule { "allow tcp any class bulk".parse().unwrap() };
        let mut gateway = Gateway::default();
        gateway.insert_rule(1, rule()).unwrap();
        gateway.set(Settings { by_stack: true, ..Settings::default() });
        let error = gateway.insert_rule(1, rule()).unwrap_err().to_string();
        assert!(error.contains("leave the class out"), "{error}");
        gateway.insert_rule(1, "allow any rate 1mbit".parse().unwrap()).unwrap();
    }
}
