//! Comparison with `tc`'s output.

use taut_control::protocol::Counter;

use super::*;

fn root(text: &str) -> QdiscSnapshot {
    let spec: QdiscSpec = text.parse().unwrap();
    QdiscSnapshot {
        kind: spec.kind().to_owned(),
        handle: 0x8001,
        spec: spec.to_string(),
        ..QdiscSnapshot::default()
    }
}

fn line(of: &str) -> String {
    text(Some(&root(of)), None, false).unwrap()
}

// The output of iproute2 6.1's tc for the same commands, if the kernel supports the kind.
#[test]
fn lines_are_those_of_tc() {
    assert_eq!(
        line("pfifo_fast"),
        "qdisc pfifo_fast 8001: root refcnt 2 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1\n"
    );
    assert_eq!(line("pfifo limit 1000"), "qdisc pfifo 8001: root refcnt 2 limit 1000p\n");
    assert_eq!(line("bfifo limit 64kb"), "qdisc bfifo 8001: root refcnt 2 limit 64Kb\n");
    assert_eq!(
        line("tbf rate 100mbit burst 32kb limit 64kb"),
        "qdisc tbf 8001: root refcnt 2 rate 100Mbit burst 32Kb lat 2.62ms \n"
    );
    assert_eq!(
        line("tbf rate 100mbit burst 32kb latency 50ms"),
        "qdisc tbf 8001: root refcnt 2 rate 100Mbit burst 32Kb lat 50ms \n"
    );
}

// After tc-fq(8) and tc-fq_codel(8), and the sources of iproute2 for the options that came later.
#[test]
fn lines_of_other_kinds_have_every_option() {
    assert_eq!(
        line("fq"),
        "qdisc fq 8001: root refcnt 2 limit 10000p flow_limit 100p buckets 1024 orphan_mask 1023 quantum 3028b \
         initial_quantum 15140b low_rate_threshold 550Kbit refill_delay 40ms timer_slack 10us horizon 10s horizon_drop\n"
    );
    assert!(line("fq maxrate 10mbit nopacing ce_threshold 4ms").contains(" nopacing quantum 3028b "));
    assert_eq!(
        line("fq_codel ecn"),
        "qdisc fq_codel 8001: root refcnt 2 limit 10240p flows 1024 quantum 1514 target 5ms interval 100ms \
         memory_limit 32Mb ecn drop_batch 64\n"
    );
    assert_eq!(
        line("netem delay 50ms 5ms 25% loss 1% rate 1500kbit 20 limit 10"),
        "qdisc netem 8001: root refcnt 2 limit 10 delay 50ms  5ms 25% loss 1% rate 1500Kbit packetoverhead 20\n"
    );
    assert_eq!(
        line("netem loss gemodel 1% 10% 70% 0.1% duplicate 1% 10%"),
        "qdisc netem 8001: root refcnt 2 limit 1000 loss gemodel p 1% r 10% 1-h 70% 1-k 0.1% duplicate 1% 10%\n"
    );
    assert!(line("netem loss pattern 1,4-6").ends_with(" limit 1000 loss pattern 1,4-6\n"));
}

#[test]
fn places_are_told() {
    let child = QdiscSnapshot { parent: Some(0x8001), handle: 0x8002, ..root("pfifo") };
    assert_eq!(
        text(Some(&child), Some("taut0"), false).unwrap(),
        "qdisc pfifo 8002: dev taut0 parent 8001: limit 1000p\n"
    );
    assert_eq!(text(None, Some("taut0"), false).unwrap(), "qdisc noqueue 0: dev taut0 root refcnt 2 \n");
    let none = serde_json::to_string(&json(None, Some("taut0"), false).unwrap()).unwrap();
    assert_eq!(none, r#"{"kind":"noqueue","handle":"0:","dev":"taut0","root":true,"refcnt":2,"options":{}}"#);
}

#[test]
fn statistics_are_those_of_tc() {
    let counters = |of: &[(&str, u64)]| {
        of.iter().map(|(name, value)| Counter { name: (*name).to_owned(), value: *value }).collect()
    };
    let pfifo = QdiscSnapshot {
        bytes: 3,
        packets: 2,
        drops: 1,
        overlimits: 4,
        requeues: 5,
        backlog: 4096,
        qlen: 7,
        ..root("pfifo")
    };
    assert_eq!(
        text(Some(&pfifo), None, true).unwrap().lines().skip(1).collect::<Vec<_>>(),
        [" Sent 3 bytes 2 pkt (dropped 1, overlimits 4 requeues 5) ", " backlog 4Kb 7p requeues 5"]
    );
    let details =
        counters(&[("flows", 34), ("inactive", 17), ("gc", 1), ("throttled_total", 9), ("ce_mark", 2)]);
    let fq = QdiscSnapshot { details, ..root("fq") };
    assert_eq!(
        text(Some(&fq), None, true).unwrap().lines().skip(3).collect::<Vec<_>>(),
        [
            "  flows 34 (inactive 17 throttled 0)",
            "  band0_pkts 0 band1_pkts 0 band2_pkts 0",
            "  gc 1 highprio 0 fastpath 0 throttled 9 ce_mark 2"
        ]
    );
    let codel =
        QdiscSnapshot { details: counters(&[("maxpacket", 256), ("old_flows_len", 3)]), ..root("fq_codel") };
    assert_eq!(
        text(Some(&codel), None, true).unwrap().lines().skip(3).collect::<Vec<_>>(),
        ["  maxpacket 256 drop_overlimit 0 new_flow_count 0 ecn_mark 0", "  new_flows_len 0 old_flows_len 3"]
    );
}

#[test]
fn json_is_that_of_tc() {
    let printed = |text: &str| serde_json::to_string(&json(Some(&root(text)), None, true).unwrap()).unwrap();
    // From tc -j -s of iproute2 6.1; its burst has lost 6 bytes to the kernel's clock.
    assert_eq!(
        printed("tbf rate 100mbit burst 32kb limit 64kb"),
        r#"{"kind":"tbf","handle":"8001:","root":true,"refcnt":2,"options":{"rate":12500000,"burst":32768,"lat":2621},"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}"#
    );
    assert_eq!(
        printed("pfifo_fast"),
        r#"{"kind":"pfifo_fast","handle":"8001:","root":true,"refcnt":2,"options":{"bands":3,"priomap":[1,2,2,2,1,2,0,0,1,1,1,1,1,1,1,1],"multiqueue":false},"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}"#
    );
    assert!(printed("netem delay 50ms 5ms loss 1%").contains(
        r#""options":{"limit":1000,"delay":{"delay":0.05,"jitter":0.005,"correlation":0.0},"loss-random":"#
    ));
}

#[test]
fn numbers_are_rounded_as_tc_does() {
    assert_eq!(
        ["0", "1023", "1500", "2048", "32762", "1048576"].map(|text| size(text.parse().unwrap())),
        ["0b", "1023b", "1500b", "2Kb", "32Kb", "1Mb"]
    );
    assert_eq!(
        [8, 1_000, 1_500_000, 100_000_000, 1_234_567_890].map(rate),
        ["8bit", "1Kbit", "1500Kbit", "100Mbit", "1234Mbit"]
    );
    let ns = |ns| time(Duration::from_nanos(ns));
    assert_eq!(
        [7, 1_500, 2_621_440, 50_000_000, 10_000_000_000].map(ns),
        ["7ns", "1.5us", "2.62ms", "50ms", "10s"]
    );
    assert_eq!(
        (significant(0.0, 3), significant(999.5, 3), significant(33.333_333, 6)),
        ("0".into(), "1000".into(), "33.3333".into())
    );
}
