//! An example of every value that a run can leave, as JSON: for authors of readers, and to notice when the
//! format changes. `TAUT_BLESS=1 cargo test -p taut-lab --test it example` rewrites it.

use std::collections::BTreeMap;
use std::path::Path;

use taut_lab::data::*;

/// Two variants of an invented scenario: the figures have realistic sizes but no meaning.
fn example() -> RunSet {
    let columns =
        ["before", "after"].map(|variant| Column { variant: variant.into(), engine: Engine::Sim, runs: 3 });
    let cell = |mean: f64| {
        Some(Cell { mean, ci95: Some(mean / 50.0), values: vec![mean * 0.99, mean, mean * 1.01] })
    };
    let published = |before: &str, after: &str| {
        BTreeMap::from([("before".to_owned(), before.to_owned()), ("after".to_owned(), after.to_owned())])
    };
    let row = |metric: &str, label: &str, unit: &str, (before, after), (one, other)| Row {
        case: String::new(),
        metric: metric.into(),
        label: label.into(),
        unit: unit.into(),
        published: published(before, after),
        cells: vec![cell(one), cell(other)],
    };
    RunSet {
        schema: SCHEMA,
        scenario: "example".into(),
        title: "An example <of> a scenario & its report".into(),
        about: "Figures made up.\n\nA second paragraph.".into(),
        source: Some("Linux 3.6, 46d3ceabd8d9".into()),
        table: Table {
            columns: columns.to_vec(),
            rows: vec![
                row("goodput", "goodput", "Mbit/s", ("", ""), (941.2, 941.1)),
                row("device_time", "queue in the device", "ms", ("50", "< 1"), (48.3, 0.9)),
                Row {
                    cells: vec![None, cell(12.0)],
                    ..row("none", "in one variant only", "", ("", ""), (0.0, 0.0))
                },
            ],
        },
        runs: vec![run("before", 1, 4.0), run("after", 1, 1.0)],
    }
}

fn run(variant: &str, seed: u64, factor: f64) -> RunData {
    let step = 0.1;
    let points = (1_u32..=40).map(|i| {
        let phase = f64::from(i % 10) / 10.0;
        let cwnd = (40_000.0 * factor * (1.0 + phase)) as u64;
        let mut blocked_s = vec![0.0; GATES.len()];
        blocked_s[3] = step * phase;
        blocked_s[9] = step * (1.0 - phase);
        Interval {
            t_s: f64::from(i) * step,
            unsent_bytes: (100_000.0 * factor * phase) as u64,
            below_tcp_bytes: Some((30_000.0 * factor) as u64),
            qdisc_bytes: (20_000.0 * factor * phase) as u64,
            ring_bytes: 9_000,
            device_bytes: (20_000.0 * factor * phase) as u64 + 9_000,
            bottleneck_bytes: Some((15_000.0 * phase) as u64),
            in_flight_bytes: cwnd - 10_000,
            cwnd_bytes: cwnd,
            ssthresh_bytes: (i > 10).then_some(60_000),
            peer_window_bytes: 400_000,
            pacing_bps: (i > 2).then_some(120e6),
            delivery_bps: 95e6,
            goodput_bps: 94e6 + 1e6 * phase,
            srtt_s: (i > 1).then_some(0.010 + 0.002 * factor * phase),
            blocked_s,
        }
    });
    let acks = (1_u32..=60).map(|i| AckRow {
        t_s: f64::from(i) * 0.06,
        flow: 0,
        acked_bytes: u64::from(i) * 14_480,
        in_flight_bytes: 43_440,
        unsent_bytes: 10_000,
        below_tcp_bytes: 4_608,
        cwnd_bytes: 14_480 + u64::from(i % 20) * 1_448,
        ssthresh_bytes: (i > 20).then_some(28_960),
        peer_window_bytes: 400_000,
        srtt_s: Some(0.0102),
        min_rtt_s: Some(0.0100),
        pacing_bps: Some(120e6),
        delivery_bps: 95e6,
        ca_state: if i % 20 == 0 { "recovery" } else { "open" }.into(),
        blocked: if i % 2 == 0 { "cwnd" } else { "small-queue" }.into(),
    });
    let shares = (1_u32..=40).map(|i| SharePoint {
        t_s: f64::from(i) * step,
        flows: u64::from(i > 1),
        goodput_bps: 94e6 + f64::from(i) * 1e4,
        fairness: (i > 1).then_some(1.0),
        fairness_of: std::array::from_fn(|group| (i > 1 && group == 0).then_some(1.0)),
    });
    let mut packets = Vec::new();
    for i in 0_u32..80 {
        let (t_s, seq) = (f64::from(i) * 0.0012, u64::from(i) * 1_448);
        let mut put =
            |t_s: f64, seq: u64, len: u32, kind| packets.push(PacketPoint { t_s, flow: 0, seq, len, kind });
        put(t_s, seq, 1_448, PointKind::Data);
        put(t_s + 0.010, seq.saturating_sub(1_448), 0, PointKind::Ack);
        if i % 8 == 0 {
            put(t_s + 0.010, seq + 60_000, 0, PointKind::Window);
        }
        if i == 30 {
            put(t_s + 0.005, seq, 1_448, PointKind::Drop);
            put(t_s + 0.012, seq + 1_448, 4_344, PointKind::Sack);
            put(t_s + 0.0125, seq, 1_448, PointKind::Retransmit);
        }
    }
    packets.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
    let histogram = |name: &str, unit: &str, first: f64| Histogram {
        name: name.into(),
        unit: unit.into(),
        buckets: (0_i32..8)
            .map(|i| Bucket {
                from: first * libm::exp2(f64::from(i)),
                to: first * libm::exp2(f64::from(i + 1)),
                count: [2, 30, 400, 900, 350, 40, 5, 1][i as usize],
            })
            .collect(),
        count: 1_728,
        mean: first * 11.0,
        stddev: first * 6.0,
        min: first * 1.2,
        max: first * 200.0,
        p50: first * 10.0,
        p99: first * 50.0,
    };
    RunData {
        meta: Meta {
            schema: SCHEMA,
            scenario: "example".into(),
            case: String::new(),
            variant: variant.into(),
            engine: Engine::Sim,
            seed,
            versions: BTreeMap::from([("taut".into(), "0.1.0".into())]),
            command: "taut lab run example".into(),
            parameters: BTreeMap::from([
                ("link.delay".into(), "5ms".into()),
                ("link.rate".into(), "100mbit".into()),
            ]),
            duration_s: 4.0,
            warm_up_s: 0.5,
            interval_s: step,
            digest: Some("00000000000000aa".into()),
            events: Some(123_456),
            began: None,
            took_s: None,
        },
        metrics: BTreeMap::from([("goodput".into(), 941.0), ("device_time".into(), 12.0 * factor)]),
        flows: vec![Flow {
            id: 0,
            name: "bulk".into(),
            group: 0,
            beside: false,
            from: "client".into(),
            to: "server".into(),
            local: "10.0.0.1:32768".into(),
            peer: "10.0.0.2:5001".into(),
            connected_s: Some(0.01),
            ended_s: None,
            acked_bytes: 47_000_000,
            retransmitted_bytes: 1_448,
            goodput_bps: 94e6,
            srtt_s: Some(0.0104),
            min_rtt_s: Some(0.0100),
            blocked: vec![
                Share { name: "cwnd".into(), seconds: 1.5 },
                Share { name: "small-queue".into(), seconds: 2.4 },
            ],
            sojourn: vec![histogram("unsent", "us", 32.0), histogram("device", "us", 32.0)],
            distributions: vec![histogram("rtt", "us", 1_000.0), histogram("flow_gap", "us", 4.0)],
        }],
        series: vec![Series { flow: 0, points: points.collect() }],
        acks: acks.collect(),
        packets,
        traced: Traced {
            whole_until_s: Some(0.0948),
            losses: 2,
            windows: vec![LossWindow { flow: 0, t_s: 0.041, from_s: 0.031, to_s: 0.071, losses: 2 }],
        },
        shares: Shares {
            points: shares.collect(),
            lines: vec![ShareLine {
                flow: 0,
                goodput_bps: (1_u32..=40).map(|i| (i > 1).then(|| 94e6 + f64::from(i) * 1e4)).collect(),
            }],
        },
        histograms: vec![
            histogram("burst", "segments", 1.0),
            histogram("gap", "us", 4.0),
            histogram("rtt", "us", 1_000.0),
        ],
        counters: BTreeMap::from([("TcpOutSegs".into(), 32_460), ("TcpRetransSegs".into(), 1)]),
        hosts: vec![HostCounts {
            name: "client".into(),
            counts: BTreeMap::from([("packets_out".into(), 1_728), ("tx_interrupts".into(), 900)]),
        }],
        left_out: BTreeMap::from([("packets".into(), 31_000)]),
    }
}

#[test]
fn the_example_is_what_a_reader_expects() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/example.json");
    let text = serde_json::to_string(&example()).unwrap() + "\n";
    if std::env::var_os("TAUT_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    assert!(
        stored == text,
        "tests/example.json does not have the format of src/data.rs: see the top of this test"
    );
    assert_eq!(serde_json::from_str::<RunSet>(&stored).unwrap(), example());
}
