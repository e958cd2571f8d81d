//! Specifications that are read, printed, refused and built.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use taut_core::Instant;

use super::*;
use crate::disciplines::netem::{NetemRate, NetemSlot};
use crate::disciplines::tree::QdiscDetails;
use crate::qdisc::{Qdisc, Verdict};
use crate::tests::packet;

fn spec(text: &str) -> QdiscSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    text.parse::<QdiscSpec>().expect_err(text).to_string()
}

fn percent(percent: f64) -> Chance {
    Chance::from_share(percent / 100.0)
}

#[test]
fn every_kind_is_read() {
    assert_eq!(spec("pfifo"), QdiscSpec::Pfifo { limit: 1_000 });
    assert_eq!(spec("pfifo limit 10"), QdiscSpec::Pfifo { limit: 10 });
    assert_eq!(spec("bfifo"), QdiscSpec::Bfifo { limit: 1_514_000 });
    assert_eq!(spec("bfifo limit 64kb"), QdiscSpec::Bfifo { limit: 65_536 });
    assert_eq!(spec(" pfifo_fast "), QdiscSpec::PfifoFast);
    assert_eq!(spec("fq"), QdiscSpec::Fq(FqSpec::default()));
    assert_eq!(spec("fq_codel"), QdiscSpec::FqCodel(FqCodelSpec::default()));
    assert_eq!(spec("netem"), QdiscSpec::Netem(Box::default(), None));
    let tbf = |limit| TbfSpec { rate: "100mbit".parse().unwrap(), burst_bytes: 32 << 10, limit: Some(limit) };
    assert_eq!(
        spec("tbf rate 100mbit burst 32kb limit 64kb"),
        QdiscSpec::Tbf(tbf(TbfLimit::Bytes(65_536)), None)
    );
    let latency = tbf(TbfLimit::Latency(Duration::from_millis(50)));
    assert_eq!(spec("tbf latency 50ms rate 100mbit buffer 32kb"), QdiscSpec::Tbf(latency, None));
    // 50 ms of 12.5 MB/s, and the burst.
    assert_eq!(latency.limit_bytes(), 625_000 + 32_768);
}

#[test]
fn every_option_of_fq_is_read() {
    let all = "fq limit 1 flow_limit 2 buckets 3 orphan_mask 4 nopacing quantum 5 initial_quantum 6 maxrate 7mbit \
               low_rate_threshold 8kbit refill_delay 9ms timer_slack 10us horizon 11s horizon_cap ce_threshold 12ms";
    let expected = FqSpec {
        limit: 1,
        flow_limit: 2,
        buckets: 3,
        orphan_mask: 4,
        pacing: false,
        quantum_bytes: 5,
        initial_quantum_bytes: 6,
        maxrate: Rate::from_bits_per_second(7_000_000),
        low_rate_threshold: Rate::from_bits_per_second(8_000),
        refill_delay: Duration::from_millis(9),
        timer_slack: Duration::from_micros(10),
        horizon: Duration::from_secs(11),
        horizon_cap: true,
        ce_threshold: Some(Duration::from_millis(12)),
    };
    assert_eq!(spec(all), QdiscSpec::Fq(expected));
    assert_eq!(spec("fq pacing horizon_drop quantum 3028"), QdiscSpec::Fq(FqSpec::default()));
}

#[test]
fn every_option_of_fq_codel_is_read() {
    let all = "fq_codel limit 1 flows 2 quantum 3 target 4ms interval 5ms ce_threshold 6ms memory_limit 7kb ecn drop_batch 8";
    let expected = FqCodelSpec {
        limit: 1,
        flows: 2,
        quantum_bytes: 3,
        target: Duration::from_millis(4),
        interval: Duration::from_millis(5),
        ce_threshold: Some(Duration::from_millis(6)),
        memory_limit_bytes: 7_168,
        ecn: true,
        drop_batch: 8,
    };
    assert_eq!(spec(all), QdiscSpec::FqCodel(expected));
}

#[test]
fn every_option_of_netem_is_read() {
    let all = "netem limit 7 delay 50ms 5ms 25% distribution normal loss gemodel 1% 10% 70% 0.1% ecn duplicate 1% 10% \
               corrupt 0.1% reorder 25% 50% gap 5 rate 1mbit 20 100 -5 slot 1ms 5ms packets 10 bytes 1000 seed 3";
    let share = |chance, correlation| Share { chance: percent(chance), correlation: percent(correlation) };
    let rate = Rate::from_bits_per_second(1_000_000).unwrap();
    let ms = Duration::from_millis;
    let expected = NetemSpec {
        limit: 7,
        delay: ms(50),
        jitter: ms(5),
        delay_correlation: percent(25.0),
        distribution: Distribution::Normal,
        loss: Loss::Gemodel { p: percent(1.0), r: percent(10.0), bad: percent(70.0), good: percent(0.1) },
        ecn: true,
        duplicate: share(1.0, 10.0),
        corrupt: share(0.1, 0.0),
        reorder: share(25.0, 50.0),
        gap: 5,
        rate: Some(NetemRate { rate, packet_overhead: 20, cell_bytes: 100, cell_overhead: -5 }),
        slot: Some(NetemSlot { min_delay: ms(1), max_delay: ms(5), packets: 10, bytes: 1_000 }),
        seed: Some(3),
    };
    assert_eq!(spec(all), QdiscSpec::Netem(Box::new(expected), None));
}

#[test]
fn losses_have_the_defaults_of_the_manual() {
    let loss = |text: &str| match spec(&format!("netem loss {text}")) {
        QdiscSpec::Netem(spec, _) => spec.loss,
        other => panic!("{other}"),
    };
    let random = Loss::Random(Share { chance: percent(0.3), correlation: percent(25.0) });
    assert_eq!(loss("0.3% 25%"), random);
    assert_eq!(loss("random 0.3 25"), random, "the sign may be left out");
    // "r=1-p, 1-h=1 and 1-k=0".
    let bernoulli =
        Loss::Gemodel { p: percent(2.0), r: percent(98.0), bad: Chance::ALWAYS, good: Chance::NEVER };
    assert_eq!(loss("gemodel 2%"), bernoulli);
    let state = Loss::State {
        p13: percent(1.0),
        p31: percent(99.0),
        p32: Chance::NEVER,
        p23: Chance::ALWAYS,
        p14: Chance::NEVER,
    };
    assert_eq!(loss("state 1%"), state);
    assert_eq!(loss("pattern 1,4-6,9"), Loss::Pattern(vec![1, 4, 5, 6, 9]));
}

#[test]
fn children_stand_behind_a_bar() {
    let tree = spec("netem delay 50ms | tbf rate 10mbit burst 2kb | fq maxrate 1mbit");
    assert_eq!(tree.kind(), "netem");
    assert_eq!(tree.child().map(QdiscSpec::kind), Some("tbf"));
    assert_eq!(tree.child().and_then(QdiscSpec::child).map(QdiscSpec::kind), Some("fq"));
    assert_eq!(error("fq | fq_codel"), "fq cannot have a discipline behind it: only tbf and netem can");
    assert!(error("netem |").starts_with("no queue discipline given"));
    assert!(error("| fq").starts_with("no queue discipline given"));
}

#[test]
fn what_is_printed_reads_back() {
    for text in [
        "pfifo limit 1000",
        "bfifo limit 65536b",
        "pfifo_fast",
        "fq",
        "fq limit 1 flow_limit 50 nopacing quantum 3029b maxrate 10mbit low_rate_threshold 0bit horizon_cap ce_threshold 4ms",
        "fq_codel limit 1024 flows 12 noecn drop_batch 9",
        "tbf rate 100mbit burst 32768b limit 65536b",
        "tbf rate 100mbit burst 32768b latency 50ms | fq_codel",
        "netem limit 7 delay 50ms 5ms 25% distribution pareto loss 1% duplicate 1% 10% reorder 25% 50% gap 5 corrupt 0.1% \
         rate 1mbit 20 100 -5 slot 1ms 5ms packets 10 bytes 1000 seed 18446744073709551615",
        "netem loss gemodel 1% 10% 70% 0.1% ecn | fq",
        "netem delay 1500us loss state 1.5% 99% 0.25% 33.3% 0.01%",
        "netem delay 0ns 7ns loss pattern 1-3,7,9-10 rate 8bit 0 48",
    ] {
        assert_eq!(spec(text).to_string(), text);
    }
    assert_eq!(spec("netem loss 33.333333333%").to_string().parse(), Ok(spec("netem loss 33.333333333%")));
    // A correlation of no jitter means nothing.
    assert_eq!(spec("netem delay 5ms 0ms 50%"), spec("netem delay 5ms"));
}

#[test]
fn mistakes_name_their_option() {
    assert_eq!(
        error("red limit 5"),
        "\"red\" is not a queue discipline; use one of pfifo, bfifo, pfifo_fast, fq, fq_codel, tbf, netem"
    );
    assert!(
        error("fq speed 5").starts_with("fq has no option \"speed\"; its options are limit, flow_limit, ")
    );
    assert_eq!(error("fq priomap 1"), "fq: priomap is a Linux option that is not supported here");
    assert_eq!(error("fq limit"), "fq: limit needs a value: a number of packets from 1 to 4294967295");
    assert_eq!(error("fq limit 0"), "fq: limit \"0\" is not a number of packets from 1 to 4294967295");
    assert_eq!(error("fq limit 5 limit 6"), "fq: limit was given twice");
    assert_eq!(error("fq pacing nopacing"), "fq: pacing was given twice");
    assert_eq!(error("fq quantum 0"), "fq: quantum \"0\" is not a size from 1b to 1mb");
    assert!(error("fq maxrate 10parsec").starts_with("fq: maxrate: \"10parsec\" is not a rate: write"));
    assert_eq!(error("fq_codel flows 70000"), "fq_codel: flows \"70000\" is not a number from 1 to 65536");
    assert_eq!(error("tbf burst 5kb limit 5kb"), "tbf needs rate");
    assert_eq!(error("tbf rate 5mbit limit 5kb"), "tbf needs burst");
    assert_eq!(error("tbf rate 5mbit burst 5kb"), "tbf needs limit or latency, or a discipline behind it");
    assert_eq!(
        error("tbf rate 1mbit burst 5kb limit 5kb latency 5ms"),
        "tbf: limit or latency was given twice"
    );
    assert!(error("tbf rate 1mbit peakrate 2mbit").starts_with("tbf: peakrate is a Linux option"));
    assert!(error("netem delay 5parsec").starts_with("netem: delay: \"5parsec\" is not a time"));
    assert!(error("netem dleay 5ms").starts_with("netem has no option \"dleay\""));
    assert_eq!(error("netem loss 101%"), "netem: loss \"101%\" is not a percentage from 0% to 100%");
    assert_eq!(error("netem loss -1%"), "netem: loss \"-1%\" is not a percentage from 0% to 100%");
    assert_eq!(
        error("netem loss nan%"),
        "netem: loss \"nan%\" is not a percentage, or random, gemodel, state or pattern"
    );
    assert_eq!(error("netem loss gemodel"), "netem: loss needs a value: a percentage, as in 1%");
    assert!(error("netem loss pattern 3,2").contains("ascending"));
    assert!(error("netem loss pattern 1-99999999999").contains("ascending"));
    assert_eq!(error("netem reorder 25%"), "netem needs a delay that reordered packets can skip");
    assert_eq!(error("netem delay 5ms gap 5"), "netem needs reorder for a gap");
    assert_eq!(
        error("netem delay 5ms distribution normal"),
        "netem needs a delay with jitter for its distribution"
    );
    assert_eq!(
        error("netem delay 5ms 1ms distribution odd"),
        "netem: distribution \"odd\" is not one of uniform, normal, pareto, paretonormal"
    );
    assert_eq!(error("netem ecn"), "netem needs loss for ecn");
    assert!(error("netem slot 5ms 1ms").contains("no shorter"));
    assert!(
        error("pfifo_fast limit 5").starts_with("pfifo_fast has no option \"limit\"; its options are none")
    );
    for nothing in ["", "  ", "|"] {
        assert!(error(nothing).starts_with("no queue discipline given"));
    }
}

#[test]
fn only_fq_paces() {
    let paces = |text: &str| spec(text).paces();
    assert!(paces("fq") && paces("tbf rate 1mbit burst 2kb | fq"));
    // Packets that are delayed before fq would leave it too late.
    assert!(
        !paces("netem delay 1ms | fq") && !paces("fq_codel") && !paces("tbf rate 1mbit burst 2kb limit 5kb")
    );
}

#[test]
fn what_is_built_is_what_was_said() {
    let now = Instant::from_nanos(1_000_000_000);
    let room = |text: &str| {
        let mut queue = spec(text).build(1);
        (0..20_000).take_while(|&i| queue.enqueue(now, packet(i, 1_000)) == Verdict::Taken).count()
    };
    assert_eq!(room("pfifo limit 7"), 7);
    assert_eq!(room("bfifo limit 7500"), 7);
    assert_eq!(room("pfifo_fast"), 1_000);
    assert_eq!(room("fq"), 108, "a flow's, and the fast path's");
    assert_eq!(room("fq_codel limit 70"), 70);
    assert_eq!(room("tbf rate 8mbit burst 1000b limit 7kb"), 7);
    assert_eq!(room("tbf rate 8mbit burst 1000b | pfifo limit 7"), 8, "one waits at the head");
    assert_eq!(room("netem limit 7 delay 1ms"), 7);

    let mut queue = spec("netem delay 5ms | tbf rate 8mbit burst 0 | fq").build(1);
    for i in 0..3 {
        assert_eq!(queue.enqueue(now, packet(i, 1_000)), Verdict::Taken);
    }
    let mut times = vec![];
    while let Some(at) = queue.next() {
        times.extend(queue.dequeue(at).map(|packet| (at.since(now).as_micros(), packet.item)));
    }
    assert_eq!(times, [(6_000, 0), (7_000, 1), (8_000, 2)]);
    let reports = queue.reports();
    assert_eq!(
        reports.iter().map(|report| report.spec.kind()).collect::<vec::Vec<_>>(),
        ["netem", "tbf", "fq"]
    );
    assert!(reports.iter().all(|report| report.stats.sent_packets == 3 && report.backlog_packets == 0));
    assert!(matches!(reports[2].details, QdiscDetails::Fq(stats) if stats.fastpath == 3));
    assert_eq!(spec("tbf rate 8mbit burst 1kb limit 7kb").build::<u32>(1).reports().len(), 1);
}
