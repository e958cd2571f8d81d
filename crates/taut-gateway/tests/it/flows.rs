//! Flows, limits and times of the gateway's state machine, in virtual time: GW-1 to 9, 20, 71, 76, 142, 144,
//! 145 and 148 of `docs/spec/gateway.md`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use taut::{FlowKind, Refusal};
use taut_gateway::{
    Admission, Amounts, End, Event, EventKind, Failure, FlowId, Gateway, LEAST_GRANT, Limits, NextStep,
    Rules, Settings, Side, Stage,
};

const KINDS: [FlowKind; 3] = [FlowKind::Tcp, FlowKind::Udp, FlowKind::Echo];
const SERVER: &str = "203.0.113.7:80";

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn guest(number: u32) -> SocketAddr {
    let [_, b, c, d] = number.to_be_bytes();
    SocketAddr::new(IpAddr::from([10, b, c, d]), 40_000)
}

fn begin(gateway: &mut Gateway, now: Duration, kind: FlowKind, from: SocketAddr) -> Option<FlowId> {
    match gateway.admit(now, kind, from, SERVER.parse().unwrap()) {
        Admission::Dial(id, to) => {
            assert_eq!(to, SERVER.parse().unwrap());
            Some(id)
        }
        Admission::Refuse(Refusal::Prohibited) => None,
        other => panic!("{other:?}"),
    }
}

/// An open flow of a new gateway.
fn open(kind: FlowKind) -> (Gateway, FlowId) {
    let mut gateway = Gateway::default();
    let id = begin(&mut gateway, secs(0), kind, guest(1)).unwrap();
    assert_eq!(gateway.reached(secs(0), id), NextStep::Accept);
    gateway.answered(secs(0), id);
    (gateway, id)
}

fn limited(connections: u32, half_open: u32, datagram_flows: u32, bytes: u64) -> Gateway {
    let limits = Limits::of(Amounts { connections, half_open, datagram_flows, bytes, questions: 4 });
    Gateway::new(Settings { limits, ..Settings::default() })
}

/// What the table says, written down a second time: by what happens, then by stage.
fn expected(stage: Stage, kind: FlowKind, happened: EventKind) -> (Stage, NextStep) {
    use Stage::{Answering, Connecting, Done, Open};
    let tcp = kind == FlowKind::Tcp;
    let stays = (stage, NextStep::Wait);
    match happened {
        EventKind::Reached if stage == Connecting => {
            (if tcp { Answering } else { Open([false, false]) }, NextStep::Accept)
        }
        EventKind::Failed(Failure::TimedOut) if stage == Connecting => (Done, NextStep::Silence),
        EventKind::Failed(why) if stage == Connecting => (Done, NextStep::Refuse(heard(why, kind))),
        EventKind::Answered if stage == Answering => (Open([false, false]), NextStep::Wait),
        EventKind::Ended(..) if stage == Connecting => (Done, NextStep::Silence),
        EventKind::Ended(Side::Guest, End::Reset) if matches!(stage, Answering | Open(_)) => {
            (Done, NextStep::Reset(Side::Upstream))
        }
        EventKind::Ended(Side::Upstream, End::Reset) if matches!(stage, Answering | Open(_)) => {
            (Done, NextStep::Reset(Side::Guest))
        }
        EventKind::Ended(side, End::Fin) if tcp => match (side, stage) {
            (Side::Guest, Open([false, false])) => (Open([true, false]), NextStep::Finish(Side::Upstream)),
            (Side::Upstream, Open([false, false])) => (Open([false, true]), NextStep::Finish(Side::Guest)),
            (Side::Guest, Open([false, true])) | (Side::Upstream, Open([true, false])) => {
                (Done, NextStep::Close)
            }
            _ => stays,
        },
        EventKind::Expired if stage == Connecting => (Done, NextStep::Silence),
        EventKind::Expired if tcp && matches!(stage, Answering | Open(_)) => (Done, NextStep::ResetBoth),
        EventKind::Expired if matches!(stage, Open(_)) => (Done, NextStep::Close),
        _ => stays,
    }
}

fn heard(why: Failure, kind: FlowKind) -> Refusal {
    match why {
        Failure::Refused if kind == FlowKind::Tcp => Refusal::Reset,
        Failure::Refused => Refusal::PortUnreachable,
        Failure::HostUnreachable => Refusal::HostUnreachable,
        Failure::NetworkUnreachable => Refusal::NetworkUnreachable,
        Failure::Prohibited | Failure::NoResources => Refusal::Prohibited,
        Failure::TimedOut => panic!("silence"),
    }
}

const FAILURES: [Failure; 6] = [
    Failure::Refused,
    Failure::HostUnreachable,
    Failure::NetworkUnreachable,
    Failure::Prohibited,
    Failure::TimedOut,
    Failure::NoResources,
];

#[test]
fn gw_01_the_table_of_stages_is_complete() {
    let stages = [
        Stage::Connecting,
        Stage::Answering,
        Stage::Open([false, false]),
        Stage::Open([true, false]),
        Stage::Open([false, true]),
        Stage::Done,
    ];
    let ends = [Side::Guest, Side::Upstream]
        .into_iter()
        .flat_map(|side| [End::Fin, End::Reset].map(|end| EventKind::Ended(side, end)));
    let happenings: Vec<EventKind> = [EventKind::Reached, EventKind::Answered, EventKind::Expired]
        .into_iter()
        .chain(FAILURES.map(EventKind::Failed))
        .chain(ends)
        .collect();
    let mut pairs = 0;
    for kind in KINDS {
        for stage in stages {
            for &happened in &happenings {
                let (found, wanted) = (stage.after(kind, happened), expected(stage, kind, happened));
                assert_eq!(found, wanted, "{kind:?}, {stage:?}, {happened:?}");
                pairs += 1;
            }
        }
    }
    assert_eq!(pairs, 3 * 6 * 13);
}

#[test]
fn gw_02_a_guest_hears_what_the_upstream_said() {
    for kind in KINDS {
        for why in FAILURES {
            let mut gateway = Gateway::default();
            let id = begin(&mut gateway, secs(0), kind, guest(1)).unwrap();
            let wanted =
                if why == Failure::TimedOut { NextStep::Silence } else { NextStep::Refuse(heard(why, kind)) };
            assert_eq!(gateway.failed(secs(1), id, why), wanted, "{kind:?}, {why:?}");
            let counters = *gateway.counters();
            let [refused, silent, none] = [counters.refused, counters.silent, counters.no_resources];
            let expected = match why {
                Failure::TimedOut => [0, 1, 0],
                Failure::NoResources => [0, 0, 1],
                _ => [1, 0, 0],
            };
            assert_eq!([refused, silent, none], expected, "{why:?}");
            // It is said once.
            assert_eq!(gateway.failed(secs(1), id, why), NextStep::Wait);
            assert_eq!(gateway.reached(secs(1), id), NextStep::Wait);
            let is_told = matches!(gateway.poll_event(), Some(Event::NoResources { .. }));
            assert_eq!(is_told, why == Failure::NoResources);
        }
    }
}

#[test]
fn gw_03_each_half_ends_by_itself() {
    for (first, second) in [(Side::Guest, Side::Upstream), (Side::Upstream, Side::Guest)] {
        let (mut gateway, id) = open(FlowKind::Tcp);
        assert_eq!(gateway.ended(secs(1), id, first, End::Fin), NextStep::Finish(second));
        // The other half goes on: bytes count, and nothing ends.
        gateway.passed(secs(2), id, second, 1_000_000, 0);
        assert!(gateway.stage(id).unwrap().is_half_closed());
        assert_eq!(gateway.ended(secs(3), id, second, End::Fin), NextStep::Close);
        assert_eq!(gateway.counters().finished, 1);
        gateway.closed(id);
        assert_eq!((gateway.in_use(), gateway.poll_timeout()), (Amounts::default(), None));
    }
}

#[test]
fn gw_04_a_reset_of_one_side_is_a_reset_of_the_other() {
    for side in [Side::Guest, Side::Upstream] {
        // While bytes pass, with one half ended, and while the guest is being answered.
        for ended in [None, Some(side), Some(side.other())] {
            let (mut gateway, id) = open(FlowKind::Tcp);
            if let Some(ended) = ended {
                gateway.ended(secs(1), id, ended, End::Fin);
            }
            assert_eq!(gateway.ended(secs(2), id, side, End::Reset), NextStep::Reset(side.other()));
            assert_eq!(gateway.ended(secs(2), id, side.other(), End::Reset), NextStep::Wait);
            assert_eq!((gateway.counters().reset, gateway.stage(id)), (1, Some(Stage::Done)));
        }
        let mut gateway = Gateway::default();
        let id = begin(&mut gateway, secs(0), FlowKind::Tcp, guest(1)).unwrap();
        gateway.reached(secs(1), id);
        assert_eq!(gateway.ended(secs(2), id, side, End::Reset), NextStep::Reset(side.other()));
        assert_eq!(gateway.in_use().half_open, 0);
    }
}

#[test]
fn gw_05_silence_is_answered_by_silence() {
    for kind in KINDS {
        let mut gateway = Gateway::default();
        let id = begin(&mut gateway, secs(5), kind, guest(1)).unwrap();
        // A kernel's last SYN leaves 67 s after its first.
        assert_eq!(gateway.poll_timeout(), Some(secs(5 + 130)));
        gateway.handle_timeout(secs(134));
        assert_eq!(gateway.poll_end(), None);
        gateway.handle_timeout(secs(135));
        assert_eq!(gateway.poll_end(), Some((id, NextStep::Silence)));
        // Whoever answers now is late.
        assert_eq!(gateway.reached(secs(136), id), NextStep::Wait);
        assert_eq!((gateway.counters().silent, gateway.counters().reached), (1, 0));
    }
}

#[test]
fn gw_06_what_is_idle_for_too_long_ends() {
    // RFC 5382 §5, RFC 4787 §4.3, RFC 5508 §3.2.
    for (kind, half_closed, limit, then) in [
        (FlowKind::Tcp, false, 2 * 3_600 + 4 * 60, NextStep::ResetBoth),
        (FlowKind::Tcp, true, 4 * 60, NextStep::ResetBoth),
        (FlowKind::Udp, false, 2 * 60, NextStep::Close),
        (FlowKind::Echo, false, 60, NextStep::Close),
    ] {
        for from in [Side::Guest, Side::Upstream] {
            let (mut gateway, id) = open(kind);
            if half_closed {
                gateway.ended(secs(0), id, from.other(), End::Fin);
            }
            // As long as something passes, it stays.
            let mut now = secs(0);
            for _ in 0..5 {
                now += secs(limit - 1);
                gateway.handle_timeout(now);
                assert_eq!(gateway.poll_end(), None, "{kind:?} at {now:?}");
                gateway.passed(now, id, from, 1, 0);
            }
            while let Some(at) = gateway.poll_timeout().filter(|at| *at < now + secs(limit)) {
                gateway.handle_timeout(at);
            }
            assert_eq!(gateway.poll_end(), None);
            assert_eq!(gateway.poll_timeout(), Some(now + secs(limit)), "{kind:?}");
            gateway.handle_timeout(now + secs(limit));
            assert_eq!(gateway.poll_end(), Some((id, then)));
            if kind == FlowKind::Tcp {
                assert_eq!(gateway.due(now + secs(limit), id, secs(0)), then);
            }
            assert_eq!(gateway.counters().idle, 1);
        }
    }
}

#[test]
fn gw_07_a_guest_has_its_share_and_no_more() {
    let mut gateway = limited(40, 8, 16, 0);
    let now = secs(0);
    let [first, second] = [guest(1), guest(2)];
    // Three quarters of eight half-open ones; another guest still has room.
    let half_open: Vec<_> = (0..6).map(|_| begin(&mut gateway, now, FlowKind::Tcp, first).unwrap()).collect();
    assert_eq!(begin(&mut gateway, now, FlowKind::Tcp, first), None);
    assert!(matches!(gateway.poll_event(), Some(Event::OverLimit { guest, .. }) if guest == first.ip()));
    let others: Vec<_> = (0..2).map(|_| begin(&mut gateway, now, FlowKind::Tcp, second).unwrap()).collect();
    assert_eq!(begin(&mut gateway, now, FlowKind::Tcp, second), None);
    // UDP and pings are counted apart, and have more than their share one after the other only.
    assert!((0..13).all(|at| begin(&mut gateway, now, KINDS[1 + at % 2], first).is_some()));
    assert_eq!((gateway.in_use().datagram_flows, gateway.poll_end().is_some()), (12, true));
    // An answered one makes room among the half-open ones, a closed one among all.
    for &id in half_open.iter().chain(&others) {
        gateway.reached(now, id);
        gateway.answered(now, id);
    }
    let mut more = Vec::new();
    while let Some(id) = begin(&mut gateway, now, FlowKind::Tcp, first) {
        gateway.reached(now, id);
        gateway.answered(now, id);
        more.push(id);
    }
    assert_eq!((half_open.len() + more.len(), gateway.in_use().connections), (30, 32));
    gateway.closed(more[0]);
    assert!(begin(&mut gateway, now, FlowKind::Tcp, first).is_some());
    assert_eq!(gateway.counters().over_limit, 3);
}

#[test]
fn gw_07_one_network_of_ipv6_is_one_guest() {
    let mut gateway = limited(8, 8, 8, 0);
    let from = |text: &str| text.parse::<SocketAddr>().unwrap();
    for number in 0..6 {
        let own = from(&format!("[fd00::{number}]:9"));
        assert!(begin(&mut gateway, secs(0), FlowKind::Tcp, own).is_some());
    }
    assert_eq!(begin(&mut gateway, secs(0), FlowKind::Tcp, from("[fd00::ffff:0:0:1]:9")), None);
    assert!(begin(&mut gateway, secs(0), FlowKind::Tcp, from("[fd00:0:0:1::1]:9")).is_some());
}

#[test]
fn gw_08_what_waits_is_bounded_and_nobody_stands_still() {
    const WANTED: usize = 256 << 10;
    let bytes = 1 << 20;
    let mut gateway = limited(1_000, 1_000, 0, bytes);
    let ids: Vec<_> =
        (0..100).map(|at| begin(&mut gateway, secs(0), FlowKind::Tcp, guest(1 + at / 50)).unwrap()).collect();
    let held: Vec<usize> = ids.iter().map(|&id| gateway.hold(id, WANTED)).collect();
    assert_eq!(held[0], WANTED);
    // One guest has three quarters of 1 MiB; beyond that each connection has its least.
    assert_eq!(held.iter().filter(|bytes| **bytes == WANTED).count(), 3);
    assert!(held.iter().all(|bytes| *bytes >= LEAST_GRANT));
    let total: usize = held.iter().sum();
    assert_eq!(gateway.in_use().bytes, total as u64);
    assert!(total as u64 <= bytes + 100 * LEAST_GRANT as u64, "{total}");
    // A wish below the least is granted as it is.
    assert_eq!(gateway.hold(ids[0], 10), 10);
    gateway.passed(secs(1), ids[0], Side::Guest, 10, 10);
    for (&id, &bytes) in ids.iter().zip(&held) {
        gateway.passed(secs(1), id, Side::Guest, bytes, bytes);
    }
    assert_eq!((gateway.in_use().bytes, gateway.counters().bytes_up), (0, total as u64 + 10));
    // What a closed flow held comes back, too, and nothing can be given back twice.
    gateway.hold(ids[1], WANTED);
    gateway.closed(ids[1]);
    gateway.passed(secs(1), ids[1], Side::Guest, 1, WANTED);
    gateway.passed(secs(1), ids[2], Side::Guest, 1, WANTED);
    assert_eq!(gateway.in_use().bytes, 0);
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Any calls in any order, on flows that exist and on some that do not: nothing is counted twice, no limit is
/// passed, and when the last flow is closed nothing is left.
#[test]
fn gw_09_nothing_is_left_whatever_happens() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut gateway = limited(30, 12, 10, 200_000);
        let (mut now, mut ids) = (secs(0), Vec::new());
        for _ in 0..2_000 {
            now += Duration::from_millis(random.below(3_000));
            let kind = KINDS[random.below(3) as usize];
            let known =
                if ids.is_empty() { None } else { Some(ids[random.below(ids.len() as u64) as usize]) };
            let side = [Side::Guest, Side::Upstream][random.below(2) as usize];
            match (random.below(10), known) {
                (0 | 1, _) | (_, None) => {
                    ids.extend(begin(&mut gateway, now, kind, guest(random.below(4) as u32)));
                }
                (2, Some(id)) => _ = gateway.reached(now, id),
                (3, Some(id)) => _ = gateway.answered(now, id),
                (4, Some(id)) => _ = gateway.failed(now, id, FAILURES[random.below(6) as usize]),
                (5, Some(id)) => {
                    _ = gateway.ended(now, id, side, [End::Fin, End::Reset][random.below(2) as usize]);
                }
                (6, Some(id)) => _ = gateway.hold(id, random.below(50_000) as usize),
                (7, Some(id)) if kind == FlowKind::Udp => {
                    gateway.datagrams_passed(now, id, side, random.below(3) as usize, 100);
                }
                (7, Some(id)) => {
                    gateway.passed(
                        now,
                        id,
                        side,
                        random.below(50_000) as usize,
                        random.below(50_000) as usize,
                    );
                }
                (8, Some(id)) => {
                    gateway.closed(id);
                    // Some are named once more.
                    if random.below(4) > 0 {
                        ids.retain(|own| *own != id);
                    }
                }
                (_, Some(_)) => gateway.handle_timeout(now),
            }
            let used = gateway.in_use();
            assert!(used.connections <= 30 && used.half_open <= 12 && used.datagram_flows <= 10, "{used:?}");
            assert!(used.half_open <= used.connections);
            let each = gateway.guests().fold(Amounts::default(), |sum, (_, amounts)| Amounts {
                connections: sum.connections + amounts.connections,
                half_open: sum.half_open + amounts.half_open,
                datagram_flows: sum.datagram_flows + amounts.datagram_flows,
                bytes: sum.bytes + amounts.bytes,
                questions: sum.questions + amounts.questions,
            });
            assert_eq!(each, used, "seed {seed}");
            while gateway.poll_end().is_some() || gateway.poll_event().is_some() {}
        }
        for id in ids {
            gateway.closed(id);
        }
        assert_eq!(gateway.in_use(), Amounts::default(), "seed {seed}");
        assert_eq!((gateway.guests().count(), gateway.poll_timeout()), (0, None), "seed {seed}");
    }
}

#[test]
fn gw_76_a_client_that_leaves_makes_room_at_once() {
    for kind in KINDS {
        let mut gateway = limited(4, 4, 4, 1 << 20);
        let ids: Vec<_> = (0..3).map(|_| begin(&mut gateway, secs(0), kind, guest(1)).unwrap()).collect();
        if kind == FlowKind::Tcp {
            assert_eq!(begin(&mut gateway, secs(0), kind, guest(1)), None);
            assert!(matches!(gateway.poll_event(), Some(Event::OverLimit { .. })));
        }
        assert_eq!(gateway.left(secs(1), ids[0], guest(1)), NextStep::Silence);
        let left = Event::Left { client: guest(1), to: SERVER.parse().unwrap() };
        assert_eq!((gateway.poll_event(), gateway.poll_event()), (Some(left), None));
        // Once, and whatever comes of the upstream afterwards changes nothing.
        assert_eq!(gateway.left(secs(1), ids[0], guest(1)), NextStep::Wait);
        assert_eq!(gateway.reached(secs(1), ids[0]), NextStep::Wait);
        gateway.closed(ids[0]);
        assert!(begin(&mut gateway, secs(1), kind, guest(1)).is_some());
        // One whose upstream is there is not one that left.
        gateway.reached(secs(2), ids[1]);
        gateway.answered(secs(2), ids[1]);
        assert_ne!(gateway.left(secs(2), ids[1], guest(1)), NextStep::Silence);
        assert_eq!((gateway.poll_event(), gateway.counters().left), (None, 1));
    }
}

#[test]
fn gw_20_new_settings_are_for_flows_to_come() {
    let (mut gateway, id) = open(FlowKind::Tcp);
    let rules = Rules::parse(["deny 203.0.113.0/24"]).unwrap();
    gateway.set(Settings { rules, ..Settings::default() });
    gateway.passed(secs(1), id, Side::Guest, 5, 0);
    assert_eq!(gateway.stage(id), Some(Stage::Open([false, false])));
    assert_eq!(begin(&mut gateway, secs(1), FlowKind::Tcp, guest(1)), None);
    gateway.set(Settings::default());
    assert!(begin(&mut gateway, secs(1), FlowKind::Tcp, guest(1)).is_some());
}

#[test]
fn gw_71_what_the_host_has_no_more_of_is_a_line_a_second() {
    let mut gateway = Gateway::new(Settings::default());
    let mut lines = 0;
    for at in 0..10_000 {
        let now = Duration::from_millis(at);
        if at % 2 == 0 {
            let id = begin(&mut gateway, now, FlowKind::Tcp, guest(1)).unwrap();
            assert_eq!(gateway.failed(now, id, Failure::NoResources), NextStep::Refuse(Refusal::Prohibited));
            gateway.closed(id);
        } else {
            gateway.cannot_accept(now, guest(2));
        }
        lines += std::iter::from_fn(|| gateway.poll_event()).count();
    }
    let counters = gateway.counters();
    assert_eq!((lines, counters.no_resources, counters.events_left_out), (10, 10_000, 9_990));
}

/// A guest's flow to this place that has passed so many datagrams each way.
fn exchanged(gateway: &mut Gateway, now: Duration, to: &str, up: usize, down: usize) -> FlowId {
    let Admission::Dial(id, _) = gateway.admit(now, FlowKind::Udp, guest(1), to.parse().unwrap()) else {
        panic!("{to} is not dialled");
    };
    gateway.reached(now, id);
    gateway.datagrams_passed(now, id, Side::Guest, up, 40 * up);
    gateway.datagrams_passed(now, id, Side::Upstream, down, 80 * down);
    id
}

#[test]
fn gw_144_one_question_and_its_answer_are_over_soon_at_port_53_only() {
    // RFC 4787 §4.3, REQ-5: not less than two minutes; a), except for a well-known port's own application.
    for (to, up, down, limit) in [
        ("203.0.113.7:53", 1, 1, 5),
        ("203.0.113.7:53", 2, 2, 5),
        // No answer yet; more than a question for each family.
        ("203.0.113.7:53", 1, 0, 120),
        ("203.0.113.7:53", 3, 1, 120),
        ("203.0.113.7:53", 1, 3, 120),
        // STUN: the peer comes later.
        ("203.0.113.7:3478", 1, 1, 120),
        ("203.0.113.7:5353", 1, 1, 120),
    ] {
        let mut gateway = Gateway::default();
        let id = exchanged(&mut gateway, secs(10), to, up, down);
        // The deadline before was later.
        while let Some(at) = gateway.poll_timeout().filter(|at| *at < secs(10 + limit)) {
            gateway.handle_timeout(at);
        }
        assert_eq!(gateway.poll_end(), None, "{to} {up} {down}");
        gateway.handle_timeout(secs(10 + limit));
        assert_eq!(gateway.poll_end(), Some((id, NextStep::Close)), "{to} {up} {down}");
        assert_eq!(gateway.in_use(), Amounts::default());
    }
    // The gateway's own name server forgets a question after ten seconds.
    let own = vec!["10.0.2.2".parse().unwrap()];
    let mut gateway = Gateway::new(Settings { own, ..Settings::default() });
    let question = gateway.admit(secs(0), FlowKind::Udp, guest(1), "10.0.2.2:53".parse().unwrap());
    let Admission::Questions(id) = question else { panic!("{question:?}") };
    gateway.reached(secs(0), id);
    gateway.passed(secs(5), id, Side::Guest, 40, 0);
    gateway.handle_timeout(secs(14));
    assert_eq!(gateway.poll_end(), None);
    gateway.handle_timeout(secs(15));
    assert_eq!(gateway.poll_end(), Some((id, NextStep::Close)));
}

#[test]
fn gw_145_a_new_flow_has_the_place_of_the_guests_own_oldest_one() {
    for kind in [FlowKind::Udp, FlowKind::Echo] {
        let mut gateway = limited(4, 4, 8, 0);
        let others: Vec<_> = (0..2).map(|_| begin(&mut gateway, secs(0), kind, guest(2)).unwrap()).collect();
        let ids: Vec<_> = (1..7).map(|at| begin(&mut gateway, secs(at), kind, guest(1)).unwrap()).collect();
        for id in ids.iter().chain(&others) {
            gateway.reached(secs(7), *id);
        }
        // In this order: the fourth and the fifth have had nothing since.
        for (at, place) in [(8, 0), (9, 5), (10, 2), (11, 1)] {
            gateway.passed(secs(at), ids[place], Side::Upstream, 1, 0);
        }
        for (at, oldest) in [3, 4, 0, 5, 2, 1].into_iter().enumerate() {
            assert_eq!(gateway.poll_end(), None);
            assert!(begin(&mut gateway, secs(20), kind, guest(1)).is_some());
            assert_eq!(gateway.poll_end(), Some((ids[oldest], NextStep::Close)), "{at}");
            // Its place counts for the new one, before its task has ended and afterwards.
            assert_eq!(gateway.in_use().datagram_flows, 8);
            gateway.closed(ids[oldest]);
            assert_eq!((gateway.in_use().datagram_flows, gateway.counters().replaced), (8, at as u64 + 1));
        }
        // A guest without a flow has no place to give, and others keep theirs.
        assert_eq!(begin(&mut gateway, secs(20), kind, guest(3)), None);
        assert_eq!(begin(&mut gateway, secs(20), kind, guest(0)), None);
        assert!(others.iter().all(|id| gateway.stage(*id) == Some(Stage::Open([false; 2]))));
        // A flow does not give up its own place.
        gateway.closed(others[0]);
        let first = begin(&mut gateway, secs(21), kind, guest(3)).unwrap();
        assert!(!gateway.make_room(secs(21), guest(3).ip(), Some(first)));
        assert!(gateway.make_room(secs(21), guest(3).ip(), None));
    }
}

#[test]
fn gw_142_the_filter_the_rules_and_the_room_let_in_what_comes_from_outside() {
    use taut_gateway::UdpFilter;
    let from: SocketAddr = "198.51.100.9:9999".parse().unwrap();
    let from_outside = |filter, rules: &[&str], is_known, flows| {
        let mut gateway = limited(4, 4, 8, 0);
        let rules = Rules::parse(rules.iter().copied()).unwrap();
        let own = vec!["10.0.2.2".parse().unwrap()];
        let limits = gateway.settings().limits;
        gateway.set(Settings { rules, own, limits, udp_filter: filter, ..Settings::default() });
        (0..flows).for_each(|_| _ = begin(&mut gateway, secs(0), FlowKind::Udp, guest(1)).unwrap());
        let let_in = gateway.from_outside(secs(1), guest(1), from, is_known);
        let used = gateway.in_use().datagram_flows;
        assert_eq!(
            (used, gateway.counters().filtered),
            match let_in {
                Some(_) => (flows + 1, 0),
                None => (flows, 1),
            }
        );
        assert_eq!((gateway.poll_event(), gateway.poll_end()), (None, None));
        let_in.map(|(_, seen)| seen)
    };
    // RFC 4787 §5, REQ-8.
    assert_eq!(from_outside(UdpFilter::Address, &[], true, 1), Some(from));
    assert_eq!(from_outside(UdpFilter::Address, &[], false, 1), None);
    assert_eq!(from_outside(UdpFilter::Any, &[], false, 1), Some(from));
    // A denied destination may not send to the guest either.
    assert_eq!(from_outside(UdpFilter::Any, &["deny udp 198.51.100.0/24 port 9999"], true, 1), None);
    // No host outside takes the place of a flow of the guest's.
    assert_eq!(from_outside(UdpFilter::Any, &[], true, 5), Some(from));
    assert_eq!(from_outside(UdpFilter::Any, &[], true, 6), None);
}

#[test]
fn gw_142_this_hosts_loopback_is_the_gateway_for_a_guest() {
    let own = vec!["fd00::2".parse().unwrap(), "10.0.2.2".parse().unwrap()];
    let rules = Rules::parse(["allow 127.0.0.0/8"]).unwrap();
    let mut gateway = Gateway::new(Settings { own, rules, ..Settings::default() });
    let from = "127.0.0.1:4000".parse().unwrap();
    let seen = gateway.from_outside(secs(0), guest(1), from, true).map(|(_, seen)| seen);
    assert_eq!(seen, Some("10.0.2.2:4000".parse().unwrap()));
    // Closed by default.
    gateway.set(Settings::default());
    assert_eq!(gateway.from_outside(secs(0), guest(1), from, true), None);
}

#[test]
fn gw_142_what_a_guest_does_not_answer_is_over_soon() {
    let mut gateway = Gateway::default();
    let from = "198.51.100.9:9999".parse().unwrap();
    let mut ids = [0, 1].map(|_| gateway.from_outside(secs(0), guest(1), from, true).unwrap().0);
    for id in ids {
        gateway.reached(secs(0), id);
        gateway.datagrams_passed(secs(1), id, Side::Upstream, 7, 700);
    }
    gateway.datagrams_passed(secs(2), ids[1], Side::Guest, 1, 10);
    for at in [5, 6, 121, 122] {
        gateway.handle_timeout(secs(at));
        let expected = [6, 122].contains(&at).then_some(ids[usize::from(at == 122)]);
        assert_eq!(gateway.poll_end(), expected.map(|id| (id, NextStep::Close)), "at {at} s");
    }
    ids.reverse();
    ids.into_iter().for_each(|id| gateway.closed(id));
    assert_eq!((gateway.in_use(), gateway.poll_timeout()), (Amounts::default(), None));
}

#[test]
fn gw_148_a_guest_that_was_heard_keeps_its_connection() {
    // RFC 5382 §5, REQ-5.
    let limit = 2 * 3_600 + 4 * 60;
    let (mut gateway, id) = open(FlowKind::Tcp);
    let mut end = secs(limit);
    for heard in [secs(1), secs(7_000), secs(14_000)] {
        gateway.handle_timeout(end);
        assert_eq!(gateway.poll_end(), Some((id, NextStep::ResetBoth)));
        assert_eq!(gateway.due(end, id, heard), NextStep::Wait);
        assert_eq!((gateway.stage(id), gateway.counters().idle), (Some(Stage::Open([false; 2])), 0));
        // As if it had passed bytes then.
        end = heard + secs(limit);
        assert_eq!(gateway.poll_timeout(), Some(end));
    }
    gateway.handle_timeout(end);
    assert_eq!(gateway.poll_end(), Some((id, NextStep::ResetBoth)));
    assert_eq!(gateway.due(end, id, secs(14_000)), NextStep::ResetBoth);
    assert_eq!((gateway.stage(id), gateway.counters().idle), (Some(Stage::Done), 1));
    // All flows must end: it ends.
    let (mut gateway, id) = open(FlowKind::Tcp);
    assert_eq!(gateway.due(secs(1), id, secs(1)), NextStep::ResetBoth);
}

#[test]
fn gw_166_an_own_address_may_have_no_name_service() {
    let (own, nameless) =
        (vec!["10.0.2.2".parse().unwrap(), "10.0.2.3".parse().unwrap()], vec!["10.0.2.2".parse().unwrap()]);
    let rules = Rules::parse(["allow 127.0.0.0/8"]).unwrap();
    let mut gateway = Gateway::new(Settings { own, nameless, rules, ..Settings::default() });
    for kind in [FlowKind::Tcp, FlowKind::Udp] {
        let mut admit = |to: &str| gateway.admit(secs(0), kind, guest(1), to.parse().unwrap());
        let loopback = "127.0.0.1:53".parse().unwrap();
        assert!(matches!(admit("10.0.2.2:53"), Admission::Dial(_, to) if to == loopback));
        assert!(matches!(admit("10.0.2.3:53"), Admission::Questions(_)));
    }
}
