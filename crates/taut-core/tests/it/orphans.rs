//! Connections that their application has released end in bounded time, and are bounded in number:
//! docs/spec/reliability.md, ORPH-1 to 8.

use crate::support;

use support::trace::{Offer, Trace};
use taut_core::config::MemoryUse;
use taut_core::{Duration, ListenOptions, StackConfig, State};

/// The only connection's state; `None` once it is gone.
fn state(t: &Trace) -> Option<State> {
    t.stack.conn_ids().next().map(|id| t.stack.conn(id).unwrap().state())
}

/// Lets time pass until nothing is left of the connection, for a day at most; returns the milliseconds.
fn lifetime(t: &mut Trace, mut answer: impl FnMut(&mut Trace)) -> u64 {
    let begun = t.now;
    let limit = t.now + Duration::from_secs(86_400);
    while t.stack.connections() > 0 && t.step(limit) {
        if !t.out.is_empty() {
            t.out.clear();
            answer(t);
        }
    }
    assert_eq!((t.stack.connections(), t.stack.orphans()), (0, 0));
    t.now.since(begun).as_millis()
}

fn with_retries(retries: u8) -> StackConfig {
    StackConfig::default().with(|config| config.tcp.orphan_retries = retries)
}

/// A connection whose RTO is the least, 200 ms, with `len` bytes written, released.
fn released(config: StackConfig, len: usize, window: u16) -> Trace {
    let mut t = Trace::with(config);
    t.accept(Offer::EASY);
    inject!(t, ".", win(window));
    if len > 0 {
        t.write(len);
    }
    t.close();
    t.poll();
    t.out.clear();
    assert_eq!(t.stack.orphans(), 1);
    t
}

#[test]
fn orph_01_a_silent_peer_ends_after_eight_retries() {
    // Nine timeouts of 200 ms, each twice as long as the one before: 0.2 · (2⁹ − 1). A tail loss probe goes
    // before the first, 40 ms after the data (RFC 8985 §7.2: an RTT of 0, and 2 ms at least, without more
    // than one segment WCDelAckT), and the timeout counts from there.
    for (retries, timeouts) in [(0, 9), (3, 4)] {
        let mut t = released(with_retries(retries), 100, 65_535);
        let ms = lifetime(&mut t, |_| {});
        let least = 200 * ((1 << timeouts) - 1);
        assert!((least..least + 300).contains(&ms), "{retries}: {ms} ms");
        assert_eq!(t.stack.counters().tcp_abort_on_timeout, 1);
        assert_eq!(t.stack.counters().out_rsts, 0);
    }
    // While the application holds it, tcp_retries2 counts.
    let mut t = Trace::accepted(Offer::EASY);
    t.write(100);
    t.wait_s(900);
    assert_eq!(t.state(), State::Established);
}

#[test]
fn orph_02_a_peer_that_keeps_its_window_closed_and_answers_ends() {
    // Probes after 0.2 s, 0.4 s … 102.4 s: 0.2 · (2¹⁰ − 1) = 204.6 s, and then 120 s, the longest wait.
    // Answers reset the count of attempts, so `tcp_orphan_retries` matters only then.
    for retries in [0, 3] {
        let mut t = released(with_retries(retries), 100, 0);
        let ms = lifetime(&mut t, |t| inject!(t, ".", win(0)));
        // The RTO is 200 ms and a microsecond, because a round trip of 0 counts as one.
        assert!((324_600..324_610).contains(&ms), "{retries}: {ms}");
        assert_eq!(t.stack.counters().tcp_abort_on_timeout, 1);
    }
    // An application that holds it may wait for ever (RFC 9293 §3.8.6.1).
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, ".", win(0));
    t.write(100);
    for _ in 0..1_000 {
        t.wait_s(10);
        inject!(t, ".", win(0));
    }
    assert_eq!(t.state(), State::Established);
}

#[test]
fn orph_03_a_silent_peer_with_a_closed_window_ends_after_eight_probes() {
    for (retries, probes) in [(0, 9), (2, 3)] {
        let mut t = released(with_retries(retries), 100, 0);
        assert_eq!(lifetime(&mut t, |_| {}), 200 * ((1 << probes) - 1), "{retries}");
    }
}

#[test]
fn orph_04_a_window_that_closes_in_front_of_data_in_flight_is_no_excuse() {
    let mut t = released(StackConfig::default(), 100, 65_535);
    inject!(t, ".", win(0));
    // The peer answers every retransmission, and takes none.
    let ms = lifetime(&mut t, |t| inject!(t, ".", win(0)));
    assert!(ms <= 325_000, "{ms}");
    let mut t = Trace::accepted(Offer::EASY);
    t.write(100);
    inject!(t, ".", win(0));
    for _ in 0..200 {
        t.wait_s(10);
        inject!(t, ".", win(0));
    }
    assert_eq!(t.state(), State::Established);
}

#[test]
fn orph_05_fin_wait_2_ends_after_tcp_fin_timeout() {
    for seconds in [60, 5] {
        let config = StackConfig::default().with(|config| {
            config.tcp.fin_timeout = Duration::from_secs(seconds);
        });
        let mut t = released(config, 0, 65_535);
        inject!(t, ".", ack(2));
        assert_eq!(state(&t), Some(State::FinWait2));
        // What the peer says meanwhile does not put it off.
        t.wait_ms(3_000);
        inject!(t, ".", ack(2), win(1_000));
        assert_eq!(lifetime(&mut t, |_| {}), seconds * 1_000 - 3_000);
    }
    // Held, it waits: the application reads.
    let mut t = Trace::accepted(Offer::EASY);
    t.shutdown();
    t.poll();
    inject!(t, ".", ack(2));
    t.wait_s(3_600);
    assert_eq!(t.state(), State::FinWait2);
}

/// Connections from ports 1,000 on, established and accepted; each has `len` bytes unacknowledged.
fn many(t: &mut Trace, count: u16, len: usize) -> Vec<taut_core::ConnId> {
    let listener = t.listen_with(ListenOptions::default());
    let mut ids = Vec::new();
    for port in 1_000..1_000 + count {
        inject!(t, "S", seq(0), mss(1_000), port(port));
        inject!(t, ".", seq(1), ack(1), port(port));
        let (id, _) = t.stack.accept(listener).unwrap();
        let now = t.now;
        if len > 0 {
            t.stack.conn_mut(id).unwrap().write(now, &vec![0; len]).unwrap();
        }
        t.poll();
        t.out.clear();
        ids.push(id);
    }
    ids
}

#[test]
fn orph_06_more_than_tcp_max_orphans_are_reset() {
    let mut t = Trace::with(StackConfig::default().with(|config| config.max_orphans = 10));
    for (n, id) in many(&mut t, 15, 100).into_iter().enumerate() {
        let now = t.now;
        t.stack.conn_mut(id).unwrap().close(now);
        t.poll();
        let got = t.out.pop_back().unwrap();
        assert_eq!(got.has("R"), n >= 10, "number {n}: {got:?}");
        t.out.clear();
    }
    assert_eq!((t.stack.orphans(), t.stack.counters().tcp_abort_on_memory), (10, 5));
    assert_eq!(t.stack.connections(), 10);
    // A lower limit applies at the next timeout of each.
    t.stack.set_sysctl("tcp_max_orphans", "4").unwrap();
    t.wait_s(1);
    assert_eq!((t.stack.orphans(), t.stack.counters().tcp_abort_on_memory), (4, 11));
}

/// The same where the window is closed: probes have a timer of their own.
#[test]
fn orph_06_a_lower_limit_applies_at_the_next_probe() {
    let mut t = released(StackConfig::default(), 100, 0);
    t.stack.set_sysctl("tcp_max_orphans", "0").unwrap();
    t.wait_ms(199);
    assert_eq!((t.stack.orphans(), t.out.len()), (1, 0));
    t.wait_ms(2);
    expect!(t, "R.", seq(1));
    t.expect_gone();
    assert_eq!((t.stack.counters().tcp_abort_on_memory, t.stack.counters().tcp_win_probe), (1, 0));
}

#[test]
fn orph_07_without_memory_one_with_data_is_reset() {
    let mut t = Trace::new();
    let mut ids = many(&mut t, 2, 5_000);
    ids.extend(many_more(&mut t, 100));
    t.stack.set_memory_elsewhere(MemoryUse { bytes: 400 << 20, connections: 1 });
    let mut resets = 0;
    for id in ids {
        let now = t.now;
        t.stack.conn_mut(id).unwrap().close(now);
        t.poll();
        resets += usize::from(t.out.drain(..).any(|got| got.has("R")));
    }
    // 5,000 bytes are more than 4,608, 100 are not.
    assert_eq!((resets, t.stack.orphans(), t.stack.counters().tcp_abort_on_memory), (2, 1, 2));
}

/// One more, with `len` bytes.
fn many_more(t: &mut Trace, len: usize) -> Vec<taut_core::ConnId> {
    let listener = t.listener.unwrap();
    inject!(t, "S", seq(0), mss(1_000), port(3_000));
    inject!(t, ".", seq(1), ack(1), port(3_000));
    let (id, _) = t.stack.accept(listener).unwrap();
    let now = t.now;
    t.stack.conn_mut(id).unwrap().write(now, &vec![0; len]).unwrap();
    t.poll();
    t.out.clear();
    vec![id]
}

#[test]
fn orph_08_one_that_ends_well_is_no_orphan_any_more() {
    let mut t = released(StackConfig::default(), 100, 65_535);
    inject!(t, ".", ack(102));
    assert_eq!((state(&t), t.stack.orphans()), (Some(State::FinWait2), 1));
    inject!(t, "F.", seq(1), ack(102));
    assert_eq!((t.stack.orphans(), t.stack.connections(), t.stack.time_waits()), (0, 0, 1));
    // Released with data unread: reset at once, and data after that, too.
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, "P.", seq(1), ack(1), len(10));
    t.close();
    t.poll();
    assert_eq!((t.stack.orphans(), t.stack.counters().tcp_abort_on_close), (0, 1));
    let mut t = released(StackConfig::default(), 0, 65_535);
    inject!(t, "P.", seq(1), ack(2), len(10));
    assert_eq!((t.stack.orphans(), t.stack.counters().tcp_abort_on_data), (0, 1));
}
