//! Accurate ECN between two stacks, over a router that marks: the sender counts exactly the packets that the
//! router marked. RFC 9768. The queue marks packets that waited longer than a threshold, as RFC 8257 §4.1
//! requires of a switch.

use taut_core::congestion::Registry;
use taut_core::{Algorithm, ConnOptions, Duration, ListenOptions, StackConfig};
use taut_link::FqCodelSpec;
use taut_sim::app::{Request, Responder};
use taut_sim::{Checks, Dumbbell, DumbbellSpec, PortSpec, QdiscSpec, World};

const RATE: &str = "50mbit";
/// The largest goodput as a share of the line: 1448 of 1500 bytes, plus Ethernet's 14.
const EFFICIENCY: f64 = 1_448.0 / 1_514.0;

struct Outcome {
    /// Share of the link's capacity, after a third of the time.
    share: f64,
    /// Mean queue in milliseconds.
    backlog: f64,
    /// Packets that arrived marked, and marked packets reported to the sender.
    marked: u64,
    told: u64,
    retransmitted: u64,
}

/// Pairs of hosts, and a queue that all senders share.
fn network(pairs: usize, tcp_ecn: u8, codel: FqCodelSpec, delay: Duration) -> (World, Dumbbell) {
    let mut world = World::new(1);
    let line = PortSpec {
        rate: Some(RATE.parse().unwrap()),
        qdisc: QdiscSpec::FqCodel(codel),
        steps: Vec::new(),
        trace: None,
        policer: None,
    };
    let mut spec = DumbbellSpec::new(pairs, "1gbit".parse().unwrap(), line, delay);
    spec.host.config = StackConfig::default().with(|c| {
        c.set_sysctl("tcp_ecn", &tcp_ecn.to_string()).unwrap();
        c.send.wmem_max = 4_000_000;
    });
    let net = Dumbbell::new(&mut world, &spec);
    (world, net)
}

/// One pair, and a queue that marks packets that wait longer than `threshold`.
fn world(tcp_ecn: u8, threshold: Duration) -> (World, Dumbbell) {
    let mut codel = FqCodelSpec::default();
    codel.ce_threshold = Some(threshold);
    // Only the threshold marks.
    codel.target = Duration::from_millis(500);
    network(1, tcp_ecn, codel, Duration::from_millis(10))
}

fn named(algorithm: &str) -> Algorithm {
    Registry::default().algorithm(algorithm).unwrap()
}

fn run(algorithm: &str, tcp_ecn: u8, threshold: Duration, seconds: u64) -> Outcome {
    let (mut world, net) = world(tcp_ecn, threshold);
    let link = RATE.parse::<taut_link::Rate>().unwrap().bytes_per_second() as f64;
    let (a, b) = (net.left[0], net.right[0]);
    let options = ConnOptions { congestion: Some(named(algorithm)), ..ConnOptions::default() };
    let begin = world.now();
    let read = net.transfer(&mut world, 0, begin, options);
    world.run_for(Duration::from_millis(seconds * 1_000 / 3)).unwrap();
    let before = read.borrow().bytes;
    let (steps, mut backlog) = (seconds * 1_000 * 2 / 3 / 10, 0);
    for _ in 0..steps {
        world.run_for(Duration::from_millis(10)).unwrap();
        backlog += net.backlog_bytes(&world);
    }
    let measured = steps as f64 / 100.0 * link * EFFICIENCY;
    Outcome {
        share: (read.borrow().bytes - before) as f64 / measured,
        backlog: backlog as f64 / steps as f64 / link * 1e3,
        marked: world.host_ref(b).stack().counters().in_ce_pkts,
        told: world.host_ref(a).stack().counters().tcp_delivered_ce,
        retransmitted: world.host_ref(a).stack().counters().retrans_segs,
    }
}

#[test]
fn accecn_37_every_mark_is_reported_and_no_other() {
    // GRO, delayed ACKs and super-packets are all on, so the three-bit counter wraps often.
    for algorithm in ["cubic", "dctcp", "prague"] {
        let got = run(algorithm, 3, Duration::from_millis(2), 9);
        assert!(got.marked > 100, "{algorithm}: {}", got.marked);
        // Those of the last round trip are still in flight: 20 ms of 50 Mbit/s are 83 packets.
        assert!(
            got.told <= got.marked && got.told + 83 >= got.marked,
            "{algorithm}: {} of {}",
            got.told,
            got.marked
        );
        assert_eq!(got.retransmitted, 0, "{algorithm}");
    }
}

#[test]
fn dctcp_13_it_fills_the_link_above_a_short_queue() {
    // RFC 8257 §3: the window changes with the share of marks around the threshold, here a tenth of the round
    // trip. The other end runs CUBIC, since any receiver counts marks.
    let dctcp = run("dctcp", 3, Duration::from_millis(2), 9);
    assert!(dctcp.share > 0.97, "{}", dctcp.share);
    assert!(dctcp.backlog < 4.0, "{} ms", dctcp.backlog);
    // A sender that reduces by three tenths for any mark leaves the link idle: 0.7 of 22 ms is less than the
    // 20 ms of the path.
    let cubic = run("cubic", 3, Duration::from_millis(2), 9);
    assert!(cubic.share < 0.9, "{}", cubic.share);
    // Without accurate ECN there is no feedback of marks: by RFC 3168 §6.1.1, DCTCP's marked SYN is not a
    // request for ECN.
    let alone = run("dctcp", 2, Duration::from_millis(2), 3);
    assert_eq!(alone.told, 0);
}

#[test]
fn prague_fills_the_link_above_a_shorter_queue() {
    // Marked above one millisecond, as an L4S queue does (Linux: `step_thresh` of `dualpi2`).
    let prague = run("prague", 3, Duration::from_millis(1), 12);
    assert!(prague.share > 0.9, "{}", prague.share);
    assert!(prague.backlog < 3.0, "{} ms", prague.backlog);
    assert_eq!(prague.retransmitted, 0);
    assert!(prague.told > 100, "{}", prague.told);
}

/// The shares of a link of 50 Mbit/s after ten seconds, of two flows that start together and share a queue.
fn shares(algorithms: [&str; 2], codel: FqCodelSpec, delay: Duration) -> [f64; 2] {
    let (mut world, net) = network(2, 3, codel, delay);
    let begin = world.now();
    let reads = [0, 1].map(|pair| {
        let congestion = Some(named(algorithms[pair]));
        net.transfer(&mut world, pair, begin, ConnOptions { congestion, ..ConnOptions::default() })
    });
    world.run_for(Duration::from_secs(10)).unwrap();
    let before: Vec<u64> = reads.iter().map(|read| read.borrow().bytes).collect();
    world.run_for(Duration::from_secs(30)).unwrap();
    let link = RATE.parse::<taut_link::Rate>().unwrap().bytes_per_second() as f64 * EFFICIENCY * 30.0;
    [0, 1].map(|index| (reads[index].borrow().bytes - before[index]) as f64 / link)
}

#[test]
fn prague_leaves_others_their_share_of_a_queue_that_is_not_l4s() {
    // RFC 9331 §4.3. One CoDel queue for all: 5 ms as in RFC 8289, and an occasional mark. If Prague followed
    // only its share of marks, it would take 91 % and leave 7 %.
    let mut codel = FqCodelSpec::default();
    codel.flows = 1;
    for delay in [5, 10, 20, 40] {
        let [prague, cubic] = shares(["prague", "cubic"], codel, Duration::from_millis(delay));
        assert!(prague + cubic > 0.85, "{delay} ms: {prague} and {cubic}");
        assert!(prague < 2.0 * cubic && cubic < 3.0 * prague, "{delay} ms: {prague} and {cubic}");
    }
}

#[test]
fn accecn_38_counts_ride_on_data_of_the_other_direction() {
    // Requests and responses of one connection, ten windows each: the response carries the counts of the
    // request, and sometimes the bit that segmentation would mistake for CWR.
    let (mut world, net) = world(3, Duration::from_millis(1));
    world.check(Checks { every: 100 });
    let (a, b) = (net.left[0], net.right[0]);
    // One request is one write.
    let conn = ConnOptions { sndbuf: Some(4_000_000), ..ConnOptions::default() };
    let listen = ListenOptions { conn: conn.clone(), ..ListenOptions::default() };
    world.app(b, Responder::new(7).options(listen).sizes(1_000_000, 1_000_000));
    let to = (world.host_ref(b).address().unwrap(), 7).into();
    let app = Request::new(to).options(conn).sizes(1_000_000, 1_000_000).count(10);
    let stats = app.stats();
    world.app(a, app);
    world.run_for(Duration::from_secs(20)).unwrap();
    assert_eq!(stats.borrow().latencies.len(), 10);
    let (marked, told) = (
        world.host_ref(b).stack().counters().in_ce_pkts,
        world.host_ref(a).stack().counters().tcp_delivered_ce,
    );
    // The sender hears of all: the response that follows a request acknowledges its end.
    assert!(marked > 20, "{marked}");
    assert_eq!(told, marked);
    assert_eq!(world.host_ref(a).stack().counters().retrans_segs, 0);
}
