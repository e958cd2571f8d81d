//! Memory, bounded as memory: docs/spec/reliability.md, MEM-4 to 16, but 10 is in `size.rs`. MEM-1 to 3 are
//! in `src/buffers/budget.rs`.

use crate::support;

use support::trace::{Got, Offer, Seg, Trace};
use support::{Faults, World, transfer};
use taut_core::config::{MemoryLimits, MemoryUse};
use taut_core::{ConnId, ConnOptions, Duration, Event, LinkCaps, ListenOptions, StackConfig, WriteError};

/// Between `pressure` (256 MiB) and `high` (384 MiB), and above both.
const PRESSURE: MemoryUse = MemoryUse { bytes: 300 << 20, connections: 1 };
const EXCESS: MemoryUse = MemoryUse { bytes: 400 << 20, connections: 1 };

/// What the peer of a full read queue may send: the window in the last packet of the stack.
fn window_after_reads(elsewhere: MemoryUse) -> u16 {
    let mut t = Trace::new();
    let conn = ConnOptions { rcvbuf: Some(32_768), ..ConnOptions::default() };
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    for n in 0..65 {
        inject!(t, ".", seq(1 + 1_000 * n), len(1_000));
    }
    t.wait_s(1);
    t.out.clear();
    t.stack.set_memory_elsewhere(elsewhere);
    t.read(20_000);
    t.poll();
    t.out.pop_back().expect("the window has opened").win
}

#[test]
fn mem_04_a_half_full_buffer_takes_four_segments_under_pressure() {
    // A buffer of 65,536 bytes, of which 45,000 stay unread: less than half is free.
    assert_eq!(window_after_reads(MemoryUse::default()), 20_536);
    assert_eq!(window_after_reads(PRESSURE), 4_000);
}

#[test]
fn mem_05_buffers_do_not_grow_under_pressure() {
    let sizes = |elsewhere: MemoryUse| {
        let mut world = World::new(1);
        world.faults(Faults { delay: Duration::from_millis(20), rate: 12_500_000, ..Faults::default() });
        for stack in &mut world.stacks {
            stack.set_memory_elsewhere(elsewhere);
        }
        transfer(&mut world, 10_000_000, Duration::from_secs(100));
        let server = world.stacks[1].conn_ids().next().unwrap();
        let client = world.stacks[0].conn_ids().next().unwrap();
        let now = world.now;
        (
            world.stacks[0].conn(client).unwrap().info(now).sndbuf,
            world.stacks[1].conn(server).unwrap().info(now).rcvbuf,
        )
    };
    let (sndbuf, rcvbuf) = sizes(MemoryUse::default());
    assert!(sndbuf > 1 << 20 && rcvbuf > 1 << 20, "{sndbuf} {rcvbuf}");
    // Linux: what ten segments of 1448 bytes take at establishment, 2 · 10 · (2048 + 256); and the second
    // number of tcp_rmem.
    assert_eq!(sizes(PRESSURE), (46_080, 131_072));
}

#[test]
fn mem_06_data_out_of_order_gives_way_to_data_that_is_needed_first() {
    let mut t = Trace::accepted(Offer::EASY);
    t.stack.set_memory_elsewhere(EXCESS);
    // A segment of 1,000 bytes takes 1,216. Until 4,096 are held, another may come.
    for n in [10, 20, 30, 40, 50] {
        inject!(t, ".", seq(1 + 1_000 * n), len(1_000));
    }
    let dropped = |t: &Trace| {
        let counters = t.stack.counters();
        let [called, ofo, rcv] = [counters.prune_called, counters.ofo_pruned, counters.rcv_pruned];
        (called, ofo, rcv, counters.tcp_rcvq_drop, counters.tcp_ofo_drop)
    };
    assert_eq!((t.info().rcv_ooo_bytes, t.stack.memory_use().bytes), (4_000, 4 * 1_216));
    assert_eq!(dropped(&t), (1, 0, 1, 0, 1));
    // Closer to the hole: what lies behind it goes, an eighth of the buffer at a time.
    inject!(t, ".", seq(15_001), len(1_000));
    assert_eq!((t.info().rcv_ooo_bytes, dropped(&t)), (2_000, (2, 1, 1, 0, 1)));
    // What is next replaces all of it, when the minimum is full.
    inject!(t, ".", seq(20_001), len(1_000));
    inject!(t, ".", seq(25_001), len(1_000));
    assert_eq!((t.info().rcv_ooo_bytes, dropped(&t)), (4_000, (2, 1, 1, 0, 1)));
    t.out.clear();
    inject!(t, ".", seq(1), len(1_000));
    expect!(t, ".", ack(1_001), sack(&[]));
    assert_eq!((t.info().rcv_ooo_bytes, dropped(&t)), (0, (3, 2, 1, 0, 1)));
    // And when the minimum is full, it is dropped itself, until the application reads. 1,000 bytes fit into
    // 1,024 and 3,000 more into 2,048 and 4,096.
    for n in 1..4 {
        inject!(t, ".", seq(1 + 1_000 * n), len(1_000));
    }
    let held = t.info().rcv_queue_bytes;
    assert_eq!(held, 4_000);
    assert!(t.stack.memory_use().bytes > 4_096);
    t.out.clear();
    inject!(t, ".", seq(4_001), len(1_000));
    expect!(t, ".", ack(4_001));
    assert_eq!(dropped(&t), (4, 2, 2, 1, 1));
    t.read(4_000);
    inject!(t, ".", seq(4_001), len(1_000));
    assert_eq!(t.info().rcv_queue_bytes, 1_000);
}

#[test]
fn mem_07_a_writer_waits_and_always_gets_on() {
    for sndbuf in [None, Some(1 << 20)] {
        let mut t = Trace::new();
        let conn = ConnOptions { sndbuf, nodelay: true, ..ConnOptions::default() };
        t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
        t.stack.set_memory_elsewhere(EXCESS);
        t.events.clear();
        let now = t.now;
        // Whole segments of 1,000 bytes, while fewer than 4,608 are queued (Linux: SOCK_MIN_SNDBUF, which is
        // above the first number of tcp_wmem).
        assert_eq!(t.conn().write(now, &[1; 100_000]), Ok(5_000));
        assert_eq!(t.conn().write(now, b"x"), Err(WriteError::WouldBlock));
        assert!(!t.conn().writable(now));
        assert_eq!(t.event(), None);
        // A writer that is told that there is room finds some.
        let mut acked = 0;
        for round in 1..5 {
            acked += 5_000;
            t.poll();
            inject!(t, ".", ack(1 + acked));
            assert!(matches!(t.event(), Some(Event::Writable(_))), "round {round}");
            let now = t.now;
            assert!(t.conn().writable(now));
            assert_eq!(t.conn().write(now, &[1; 100_000]), Ok(5_000));
        }
        // The pressure ends, and the buffer is as large as it was: at least 46,080 bytes, of which a segment
        // takes 2,024.
        t.stack.set_memory_elsewhere(MemoryUse::default());
        let now = t.now;
        assert!(t.conn().write(now, &[1; 30_000]).unwrap() >= 17_000);
    }
}

/// A hundred peers send as much as their window allows, and no application reads.
fn hoarded(limits: MemoryLimits) -> Trace {
    let mut t = Trace::with(StackConfig::default().with(|config| config.mem = limits));
    let listener = t.listen();
    for port in 1_000..1_100 {
        inject!(t, "S", seq(0), mss(1_000), sackok(), port(port));
        t.out.clear();
        inject!(t, ".", seq(1), ack(1), port(port));
        assert!(t.stack.accept(listener).is_some());
        for n in 0..65 {
            inject!(t, ".", seq(1 + 1_000 * n), len(1_000), port(port));
        }
        t.out.clear();
    }
    t
}

#[test]
fn mem_08_all_connections_together_stay_below_high_and_their_minima() {
    // 64, 128 and 256 KiB.
    let t = hoarded(MemoryLimits { low: 16, pressure: 32, high: 64 });
    let held = t.stack.memory_use();
    // The minimum of each, and the chunk that exceeds it: a chunk is at most twice as long as the ones
    // before.
    let minima = 100 * (4_096 + 4_096 + 192);
    assert!(held.bytes <= 256 * 1_024 + minima, "{held:?}");
    assert_eq!((held.connections, t.stack.counters().tcp_memory_pressures), (100, 1));
    // Everybody has something to read, and without limits it would be 65 KB for each.
    let ids: Vec<_> = t.stack.conn_ids().collect();
    let unread = |t: &Trace, id| t.stack.conn(id).unwrap().info(t.now).rcv_queue_bytes;
    assert!(ids.iter().all(|&id| unread(&t, id) >= 3_000));
    let t = hoarded(MemoryLimits::default());
    assert!(t.stack.memory_use().bytes > 6_500_000);
    assert_eq!(t.stack.counters().tcp_memory_pressures, 0);
}

#[test]
fn mem_09_single_bytes_out_of_order_cost_a_bounded_amount() {
    // Every other byte: 704 each. Twice the receive buffer and a device's buffer: 2 · 131,072 + 65,536 and
    // what such a buffer has for headers.
    let most = 2 * 131_072 + taut_core::BUFFER_BYTES as u64;
    let mut t = Trace::accepted(Offer::EASY);
    for n in 1..2_000 {
        inject!(t, ".", seq(1 + 2 * n), len(1));
        t.out.clear();
    }
    let held = t.stack.memory_use().bytes;
    assert_eq!(t.info().rcv_ooo_bytes, most / 704);
    assert!(held <= most && held > most - 704, "{held}");
    assert!(t.stack.counters().tcp_ofo_drop > 1_000);
    // In reverse order they touch, and share chunks: 704 bytes for 512.
    let mut t = Trace::accepted(Offer::EASY);
    for n in (1..20_000).rev() {
        inject!(t, ".", seq(1 + n), len(1));
        t.out.clear();
    }
    assert_eq!(t.info().rcv_ooo_bytes, 19_999);
    assert_eq!(t.stack.memory_use().bytes, 704 * 19_999_u64.div_ceil(512));
    // With the smallest buffer.
    let mut t = Trace::new();
    let conn = ConnOptions { rcvbuf: Some(1), ..ConnOptions::default() };
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    for n in 1..1_000 {
        inject!(t, ".", seq(1 + 2 * n), len(1));
    }
    assert!(t.stack.memory_use().bytes <= 2 * 2_304 + taut_core::BUFFER_BYTES as u64);
}

/// A connection from a peer 10 ms away, with timestamps and a large window. Returns also the first timestamp
/// that the peer saw.
fn ten_ms_away() -> (Trace, u32) {
    let mut t = Trace::new();
    let listener = t.listen();
    t.syn(Offer::ALL);
    expect!(t, "S.");
    let first = t.last_tsval;
    t.wait_ms(10);
    inject!(t, ".", seq(1), ack(1), win(65_535));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    (t, first)
}

#[test]
fn mem_11_an_echo_measures_no_more_than_the_time_since_the_data_was_sent() {
    let (mut t, first) = ten_ms_away();
    t.wait_s(1_000);
    t.write(100);
    t.poll();
    // It is retransmitted after a tail loss probe's and an RTO's time, then the peer claims that 1,000 s
    // passed.
    t.wait_ms(900);
    assert!(t.info().total_retrans >= 2);
    inject!(t, ".", ack(101), ts(t.peer_clock(), first));
    assert_eq!(t.info().unacked, 0);
    assert_eq!(t.info().rtt, Some(Duration::from_millis(10)), "an echo of 1,000 s is not plausible");
    // One of the time that did pass is.
    t.write(100);
    t.poll();
    let sent = t.last_tsval;
    t.wait_ms(900);
    inject!(t, ".", ack(201), ts(t.peer_clock(), sent));
    // RFC 6298: 7/8 of 10 ms and 1/8 of 900.
    let ms = t.info().rtt.unwrap().as_millis();
    assert!((121..=122).contains(&ms), "{ms}");
}

/// What a connection can be made to hold by echoes of old timestamps: the peer lets our SYN-ACK and our data
/// be retransmitted, so that only an echo measures them, and claims 1,000 s; then it sends 600 kB/s with
/// echoes of `lag_s` seconds ago. In the end the application stops reading, and the peer fills the window.
/// Returns the receive buffer and the memory held.
fn hoarded_by_echoes(lag_s: u32) -> (u32, u64) {
    let mut t = Trace::new();
    let listener = t.listen();
    t.syn(Offer::ALL);
    let first = expect!(t, "S.").options.timestamps.unwrap().value;
    t.wait_ms(1_500);
    inject!(t, ".", seq(1), ack(1), win(65_535));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.wait_s(1_000);
    t.write(100);
    t.wait_ms(3_500);
    assert!(t.info().total_retrans >= 1);
    inject!(t, ".", ack(101), ts(t.peer_clock(), first));
    let (mut next, mut buffer) = (1, vec![0; 1 << 20]);
    let mut send = |t: &mut Trace, most: u32| {
        let edge = next + t.info().rcv_wnd;
        let (end, clock) = (edge.min(next.saturating_add(most)), t.peer_clock());
        let echo = first.wrapping_add((t.now.as_millis() - 5_000) as u32 - lag_s * 1_000);
        while next + 1_448 <= end {
            t.inject_unpolled(&Seg::new(".").seq(next).ack(101).len(1_448).ts(clock, echo));
            next += 1_448;
        }
    };
    for _ in 0..2_000 {
        t.wait_ms(100);
        send(&mut t, 60_000);
        let now = t.now;
        while t.conn().read(now, &mut buffer).is_ok() {}
        t.poll();
        t.out.clear();
    }
    for _ in 0..10 {
        send(&mut t, u32::MAX);
        t.poll();
        t.out.clear();
    }
    (t.info().rcvbuf, t.stack.memory_use().bytes)
}

#[test]
fn mem_12_echoes_of_old_timestamps_do_not_make_a_receive_buffer_exceed_linuxs_maximum() {
    for lag_s in [1, 10, 60] {
        let (rcvbuf, held) = hoarded_by_echoes(lag_s);
        assert!(rcvbuf <= 6 << 20, "{lag_s} s: {rcvbuf}");
        // Twice the buffer and one of a device; the window was filled.
        assert!(held <= 2 * u64::from(rcvbuf) + taut_core::BUFFER_BYTES as u64, "{lag_s} s: {held}");
        assert!(held >= u64::from(rcvbuf) - 1_448, "{lag_s} s: {held} of {rcvbuf}");
    }
}

/// The peer acknowledges each millisecond what left this host in it, as if the path took none, while a device
/// of 1 Gbit/s sends and the application writes; then it stops. Returns the send buffer and the memory held.
fn hoarded_by_optimistic_acks(tsq: &str) -> (u32, u64) {
    let (mut t, _) = ten_ms_away();
    t.stack.set_sysctl("taut.tsq", tsq).unwrap();
    t.hold_tickets = true;
    let (mut sent, mut left) = (0, 0_usize);
    let data = vec![0; 1 << 20];
    for ms in 0..3_000_u64 {
        let now = t.now;
        while t.conn().write(now, &data).is_ok() {}
        // 125,000 bytes leave in a millisecond.
        left = (left + 125_000).min(250_000);
        while left >= 1_500 {
            if t.tickets.is_empty() {
                t.poll();
            }
            let Some(ticket) = t.tickets.pop_front() else { break };
            let Some(got) = t.out.pop_front() else { break };
            sent = sent.max(got.seq.wrapping_add(got.payload.len() as u32).wrapping_sub(1));
            left -= got.bytes.len();
            t.stack.handle_tx(now, ticket, taut_core::Fate::Left);
        }
        t.wait_ms(1);
        if ms < 2_000 {
            t.inject_unpolled(&Seg::new(".").seq(1).ack(1 + sent).win(65_535));
        }
    }
    assert!(sent > 100_000_000, "{sent} bytes of 250 MB");
    (t.info().sndbuf, t.stack.memory_use().bytes)
}

#[test]
fn mem_13_optimistic_acks_do_not_make_a_send_buffer_exceed_linuxs_maximum() {
    // Also where a queue of the device takes what the window allows.
    for tsq in ["delivered", "off"] {
        let (sndbuf, held) = hoarded_by_optimistic_acks(tsq);
        assert!(sndbuf <= 4 << 20, "{tsq}: {sndbuf}");
        assert!(held <= 4 << 20, "{tsq}: {held}");
    }
}

/// A peer among several, by its port.
struct Peer {
    port: u16,
    id: ConnId,
    iss: u32,
    /// Bytes that were sent to it, at the end of each millisecond, and those that it has acknowledged.
    sent: Vec<u32>,
    acked: u32,
}

/// The packets of the next millisecond, in which a device takes `line` bytes; without, all that there are.
fn leave(t: &mut Trace, line: Option<usize>) -> Vec<Got> {
    let Some(line) = line else {
        t.wait_ms(1);
        return t.out.drain(..).collect();
    };
    let (mut gone, mut left) = (Vec::new(), line);
    while left >= 65_536 {
        if t.tickets.is_empty() {
            t.poll();
        }
        let Some(ticket) = t.tickets.pop_front() else { break };
        t.stack.handle_tx(t.now, ticket, taut_core::Fate::Left);
        gone.extend(t.out.pop_front());
        left -= gone.last().unwrap().bytes.len();
    }
    t.wait_ms(1);
    gone
}

/// Twenty peers with 100 Mbit/s, 10 ms away, and `optimists` that acknowledge each millisecond what left in
/// it, as if the path took all, for 16 ms; then these are silent. All applications write for 150 ms.
fn crowd(optimists: u16, line: Option<usize>) -> (Trace, Vec<Peer>) {
    let mem = MemoryLimits { low: 24_576, pressure: 32_768, high: 49_152 };
    let config = StackConfig::default().with(|config| config.mem = mem);
    let mut t = Trace::on(config, LinkCaps::offloading(1_500), "192.0.2.1", "192.0.2.2");
    let listener = t.listen();
    let mut peers = Vec::new();
    for port in 0..20 + optimists {
        t.peer.set_port(1_000 + port);
        t.syn(Offer { ts: false, wscale: Some(14), ..Offer::ALL });
        expect!(t, "S.");
        t.wait_ms(if port < 20 { 10 } else { 1 });
        inject!(t, ".", seq(1), ack(1), win(65_535));
        let (id, _) = t.stack.accept(listener).unwrap();
        peers.push(Peer { port: t.peer.port(), id, iss: t.iss, sent: vec![0; 10], acked: 0 });
    }
    t.hold_tickets = line.is_some();
    let data = vec![0; 1 << 20];
    for ms in 0..150 {
        let now = t.now;
        for peer in &mut peers {
            while t.stack.conn_mut(peer.id).unwrap().write(now, &data).is_ok() {}
            peer.sent.push(*peer.sent.last().unwrap());
        }
        for got in leave(&mut t, line) {
            let peer = peers.iter_mut().find(|peer| peer.port == got.dst.port()).unwrap();
            let end = got.wire.seq.wrapping_sub(peer.iss) - 1 + got.payload.len() as u32;
            let sent = peer.sent.last_mut().unwrap();
            *sent = (*sent).max(end);
        }
        for (number, peer) in peers.iter_mut().enumerate() {
            let arrived = peer.sent.len() - if number < 20 { 10 } else { 1 };
            let line = if number < 20 { peer.acked + 12_500 } else { u32::MAX };
            let acked = peer.sent[arrived].min(line);
            if acked > peer.acked && (number < 20 || ms < 16) {
                peer.acked = acked;
                t.peer.set_port(peer.port);
                t.iss = peer.iss;
                t.inject_unpolled(&Seg::new(".").seq(1).ack(1 + acked).win(65_535));
            }
        }
    }
    (t, peers)
}

/// The bytes that three optimistic peers hold, beside which the others keep so many percent of their buffers
/// and rates.
fn held_by_optimists(line: Option<usize>, kept: u64) -> u64 {
    let ((alone, peers), (beside, all)) = (crowd(0, line), crowd(3, line));
    for (peer, other) in peers.iter().zip(&all) {
        let info = |t: &Trace, id| t.stack.conn(id).unwrap().info(t.now);
        let (before, after) = (info(&alone, peer.id), info(&beside, other.id));
        for (before, after) in [(before.sndbuf, after.sndbuf), (peer.acked, other.acked)] {
            assert!(u64::from(after) * 100 >= u64::from(before) * kept, "{after} of {before}");
        }
        assert!(other.acked > 1_000_000, "{}", other.acked);
    }
    assert_eq!(beside.stack.counters().tcp_memory_pressures, 0);
    beside.stack.memory_use().bytes - alone.stack.memory_use().bytes
}

#[test]
fn mem_16_optimistic_peers_leave_the_others_their_buffers() {
    // Three that would take everything have three fifths of 128 MiB, and what one write adds.
    let held = held_by_optimists(None, 100);
    assert!((36 << 20..=96 << 20).contains(&held), "{held}");
}

#[test]
fn mem_16_they_hold_no_more_than_linuxs_maximum_before_a_device_with_a_rate() {
    // 10 Gbit/s: in their round trip, 1 ms, 1.25 MB leave for all. Four times a third of that is less than
    // 4 MiB.
    let held = held_by_optimists(Some(1_250_000), 95);
    assert!(held <= 3 * (4 << 20), "{held}");
}
