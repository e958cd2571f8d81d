//! Hostile guests of a gateway, in virtual time: flows that begin, fail, end and move bytes in any order,
//! questions of any bytes, answers of any bytes to them, rules of any text. Nothing panics or spins, no guest
//! and not all of them together have more than their limits, and when all is over nothing is left.
#![no_main]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use taut::FlowKind;
use taut_fuzz::Input;
use taut_gateway::{
    Admission, Amounts, End, Failure, FlowId, Gateway, LEAST_GRANT, Limits, Question, QuestionId, Rules,
    Settings, Side,
};

const LIMITS: Amounts =
    Amounts { connections: 8, half_open: 4, datagram_flows: 6, bytes: 100_000, questions: 4 };
const FAILURES: [Failure; 6] = [
    Failure::Refused,
    Failure::HostUnreachable,
    Failure::NetworkUnreachable,
    Failure::Prohibited,
    Failure::NoResources,
    Failure::TimedOut,
];

fn address(number: u8) -> IpAddr {
    match number % 4 {
        0 => [10, 0, 2, number].into(),
        1 => Ipv6Addr::new(0xfd00, 0, 0, number.into(), 0, 0, 0, 1).into(),
        2 => [127, 0, 0, 1].into(),
        _ => [203, 0, 113, number].into(),
    }
}

fn check(gateway: &Gateway) {
    let (all, mut sum) = (gateway.in_use(), Amounts::default());
    // A connection may always hold a little.
    let least = |connections: u32| LEAST_GRANT as u64 * u64::from(connections);
    for (_, of) in gateway.guests() {
        assert!(
            of.connections <= 6 && of.half_open <= 3 && of.datagram_flows <= 5 && of.questions <= 3,
            "{of:?}"
        );
        assert!(of.bytes <= 75_000 + least(of.connections + of.datagram_flows) * 4, "{of:?}");
        sum.connections += of.connections;
        sum.half_open += of.half_open;
        sum.datagram_flows += of.datagram_flows;
        sum.bytes += of.bytes;
        sum.questions += of.questions;
    }
    assert_eq!(all, sum);
    assert!(
        all.connections <= 8 && all.half_open <= 4 && all.datagram_flows <= 6 && all.questions <= 4,
        "{all:?}"
    );
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let settings = |rules| Settings {
        limits: Limits::of(LIMITS),
        rules,
        own: vec![[10, 0, 2, 2].into()],
        ..Settings::default()
    };
    let mut gateway = Gateway::new(settings(Rules::default()));
    let (mut flows, mut asked): (Vec<FlowId>, Vec<QuestionId>) = (Vec::new(), Vec::new());
    let mut now = Duration::ZERO;
    while let Some(verb) = input.byte() {
        let which = input.byte().unwrap_or(0);
        let flow = flows.get(usize::from(which) % flows.len().max(1)).copied();
        match (verb % 12, flow) {
            (0, _) => {
                let kind = [FlowKind::Tcp, FlowKind::Udp, FlowKind::Echo][usize::from(which) % 3];
                let from = SocketAddr::new(address(which & !2), 4_000);
                let to =
                    SocketAddr::new(address(input.byte().unwrap_or(0)), if which > 200 { 53 } else { 80 });
                if let Admission::Dial(id, _) | Admission::Questions(id) = gateway.admit(now, kind, from, to)
                {
                    flows.push(id);
                }
            }
            (1, _) => flows.extend(gateway.forward(now, FlowKind::Tcp, SocketAddr::new(address(which), 80))),
            (2, Some(id)) => _ = gateway.reached(now, id),
            (3, Some(id)) => _ = gateway.failed(now, id, FAILURES[usize::from(which) % 6]),
            (4, Some(id)) => _ = gateway.answered(now, id),
            (5, Some(id)) => {
                let side = if which % 2 == 0 { Side::Guest } else { Side::Upstream };
                _ = gateway.ended(now, id, side, if which % 4 < 2 { End::Fin } else { End::Reset });
            }
            (6, Some(id)) => {
                // The runner asks for a piece at a time, and passes it on before it asks for the next.
                let granted = gateway.hold(id, usize::from(which) * 300);
                assert!(granted <= usize::from(which) * 300);
                gateway.passed(
                    now,
                    id,
                    Side::Guest,
                    granted,
                    granted / 2 + granted % 2 * usize::from(which % 2),
                );
                gateway.passed(now, id, Side::Upstream, 0, granted);
            }
            (7, Some(id)) => {
                gateway.closed(id);
                flows.retain(|other| *other != id);
            }
            (8, _) => match gateway.question(now, address(which & !2), &input.bytes(which.into())) {
                Question::Forward(id) => asked.push(id),
                Question::Answer(answer) => assert!(answer.len() <= 65_535),
                Question::Ignore => {}
            },
            (9, _) => {
                if let Some(id) = asked.get(usize::from(which) % asked.len().max(1)).copied() {
                    if which >= 250 {
                        gateway.give_up(id);
                    } else {
                        _ = gateway.reply(now, id, &input.bytes(which.into()));
                    }
                }
            }
            (10, _) => {
                let text = String::from_utf8_lossy(&input.bytes(which.into())).into_owned();
                if let Ok(rules) = Rules::parse(text.lines()) {
                    for rule in rules.iter() {
                        let again = rule.to_string();
                        assert_eq!(
                            Rules::parse([again.as_str()])
                                .map(|rules| rules.iter().next().map(ToString::to_string))
                                .ok()
                                .flatten(),
                            Some(again)
                        );
                    }
                    gateway.set(settings(rules));
                }
            }
            (11, _) => {
                now += Duration::from_secs(u64::from(which));
                let mut steps = 0;
                while gateway.poll_timeout().is_some_and(|at| at <= now) {
                    gateway.handle_timeout(now);
                    steps += 1;
                    assert!(steps < 100, "it spins");
                }
                while gateway.poll_end().is_some() {}
                while gateway.poll_event().is_some() {}
            }
            _ => {}
        }
        check(&gateway);
    }
    flows.into_iter().for_each(|id| gateway.closed(id));
    asked.into_iter().for_each(|id| gateway.give_up(id));
    assert_eq!(gateway.in_use(), Amounts::default());
    assert_eq!((gateway.guests().count(), gateway.poll_timeout()), (0, None));
});
