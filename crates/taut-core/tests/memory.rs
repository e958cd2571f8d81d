//! Memory, bounded as memory: docs/reliability.md, MEM-4 to 10. MEM-1 to 3 are in `src/buffers/budget.rs`.

#[macro_use]
mod support;

use support::trace::{Offer, Trace};
use support::{Faults, World, transfer};
use taut_core::config::{MemoryLimits, MemoryUse};
use taut_core::{ConnOptions, Duration, Event, ListenOptions, StackConfig, WriteError};

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
    // Linux: what ten segments of 1448 bytes take at establishment, 2 · 10 · (2048 + 256); and the second number of tcp_rmem.
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
    // And when the minimum is full, it is dropped itself, until the application reads. 1,000 bytes fit into 1,024 and 3,000
    // more into 2,048 and 4,096.
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
        // Whole segments of 1,000 bytes, while fewer than 4,608 are queued (Linux: SOCK_MIN_SNDBUF, which is above the first
        // number of tcp_wmem).
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
        // The pressure ends, and the buffer is as large as it was: at least 46,080 bytes, of which a segment takes 2,024.
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
    // The minimum of each, and the chunk that exceeds it: a chunk is at most twice as long as the ones before.
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
    // Every other byte: 704 each. Twice the receive buffer and a device's buffer: 2 · 131,072 + 65,536 and what such a buffer
    // has for headers.
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
