//! Rules, names and questions, in virtual time: GW-10 to 19 of `docs/spec/gateway.md`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use taut::{FlowKind, Refusal};
use taut_gateway::{
    Action, Admission, Amounts, Event, Gateway, HOST_NAME, Limits, Question, QuestionId, Rule, Rules,
    Settings, is_special,
};

use FlowKind::{Echo, Tcp, Udp};

pub(crate) const GUEST: &str = "10.0.2.15:40000";
const GATEWAY: &str = "10.0.2.2";

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn with(rules: &[&str]) -> Gateway {
    let own = vec![GATEWAY.parse().unwrap(), "fd00::2".parse().unwrap()];
    let rules = Rules::parse(rules.iter().copied()).unwrap();
    Gateway::new(Settings { rules, own, ..Settings::default() })
}

pub(crate) fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

pub(crate) fn goes(gateway: &mut Gateway, now: Duration, kind: FlowKind, ip: &str, port: u16) -> Action {
    match gateway.admit(now, kind, GUEST.parse().unwrap(), address(ip, port)) {
        Admission::Dial(..) | Admission::Questions(_) => Action::Allow,
        Admission::Refuse(Refusal::Prohibited) => Action::Deny,
        Admission::Silent => Action::Drop,
        other => panic!("{other:?}"),
    }
}

#[test]
fn gw_10_the_first_rule_that_matches_decides() {
    let rules = [
        "allow tcp 10.1.2.0/23 port 443,8000-8080",
        "drop udp any port 1900",
        "deny 10.0.0.0/8",
        "deny ping 192.0.2.0/24",
        "allow 10.1.2.3",
        "deny tcp any port 25",
    ];
    for (kind, ip, port, expected) in [
        (Tcp, "10.1.2.0", 443, Action::Allow),
        (Tcp, "10.1.3.255", 443, Action::Allow),
        (Tcp, "10.1.4.0", 443, Action::Deny),
        (Tcp, "10.1.1.255", 443, Action::Deny),
        (Tcp, "10.1.2.3", 7_999, Action::Deny),
        (Tcp, "10.1.2.3", 8_000, Action::Allow),
        (Tcp, "10.1.2.3", 8_080, Action::Allow),
        (Tcp, "10.1.2.3", 8_081, Action::Deny),
        (Udp, "10.1.2.3", 443, Action::Deny),
        (Udp, "10.1.2.3", 1_900, Action::Drop),
        (Udp, "198.51.100.1", 1_900, Action::Drop),
        (Tcp, "198.51.100.1", 1_900, Action::Allow),
        (Echo, "192.0.2.9", 77, Action::Deny),
        (Udp, "192.0.2.9", 77, Action::Allow),
        (Tcp, "2001:db8::1", 25, Action::Deny),
        (Tcp, "2001:db8::1", 26, Action::Allow),
        // An identifier of a ping is not a port.
        (Echo, "198.51.100.1", 1_900, Action::Allow),
    ] {
        assert_eq!(goes(&mut with(&rules), secs(0), kind, ip, port), expected, "{kind:?} {ip} {port}");
    }
}

#[test]
fn gw_11_the_hosts_loopback_and_link_local_addresses_are_closed_by_default() {
    let mut gateway = with(&[]);
    for kind in [Tcp, Udp, Echo] {
        for ip in ["127.0.0.1", "127.255.255.255", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1"] {
            assert_eq!(goes(&mut gateway, secs(0), kind, ip, 80), Action::Deny, "{kind:?} {ip}");
        }
        for ip in
            ["126.255.255.255", "128.0.0.0", "2001:db8::2", "192.168.1.1", "10.0.0.1", "169.253.255.255"]
        {
            assert_eq!(goes(&mut gateway, secs(0), kind, ip, 80), Action::Allow, "{kind:?} {ip}");
        }
    }
    // The gateway's address is the host's loopback; only its name server is open.
    for ip in [GATEWAY, "fd00::2"] {
        assert_eq!(goes(&mut gateway, secs(0), Tcp, ip, 80), Action::Deny);
        for kind in [Tcp, Udp] {
            let asks = gateway.admit(secs(0), kind, GUEST.parse().unwrap(), address(ip, 53));
            assert!(matches!(asks, Admission::Questions(_)), "{asks:?}");
        }
    }
    // By choice.
    let mut open = with(&["allow tcp 127.0.0.1 port 8080"]);
    let to = open.admit(secs(0), Tcp, GUEST.parse().unwrap(), address(GATEWAY, 8_080));
    assert!(matches!(to, Admission::Dial(_, to) if to == address("127.0.0.1", 8_080)), "{to:?}");
    assert_eq!(goes(&mut open, secs(0), Tcp, GATEWAY, 8_081), Action::Deny);
    assert_eq!(goes(&mut open, secs(0), Udp, GATEWAY, 8_080), Action::Deny);
    assert_eq!(goes(&mut open, secs(0), Tcp, "fd00::2", 8_080), Action::Deny);
}

/// A question of type A or AAAA, as RFC 1035 §4.1 has it.
pub(crate) fn asks(name: &str, kind: u8) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, kind, 0, 1]);
    message
}

/// The answer of a name server: a CNAME first, as from a content network, and then these addresses.
pub(crate) fn answers(question: &[u8], addresses: &[&str], ttl: u32) -> Vec<u8> {
    let mut message = question.to_vec();
    (message[2], message[3], message[7]) = (0x81, 0x80, addresses.len() as u8 + 1);
    let mut record = |name: &[u8], kind: u8, data: &[u8]| {
        message.extend_from_slice(name);
        message.extend_from_slice(&[0, kind, 0, 1]);
        message.extend_from_slice(&ttl.to_be_bytes());
        message.extend_from_slice(&(data.len() as u16).to_be_bytes());
        message.extend_from_slice(data);
    };
    record(&[0xc0, 12], 5, b"\x03cdn\x04test\x00");
    for address in addresses {
        match address.parse().unwrap() {
            IpAddr::V4(v4) => record(b"\x03cdn\x04test\x00", 1, &v4.octets()),
            IpAddr::V6(v6) => record(b"\x03cdn\x04test\x00", 28, &v6.octets()),
        }
    }
    message
}

pub(crate) fn forwarded(gateway: &mut Gateway, now: Duration, message: &[u8]) -> QuestionId {
    match gateway.question(now, GUEST.parse::<SocketAddr>().unwrap().ip(), message) {
        Question::Forward(id) => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn resolves(gateway: &mut Gateway, now: Duration, name: &str, addresses: &[&str], ttl: u32) {
    let message = asks(name, 1);
    let id = forwarded(gateway, now, &message);
    assert!(gateway.reply(now, id, &answers(&message, addresses, ttl)));
}

const LIST: [&str; 4] =
    ["allow *.example.com port 443", "allow db.corp within 10.2.0.0/16", "deny tcp bad.test", "deny any"];

#[test]
fn gw_12_a_name_is_allowed_at_the_addresses_that_the_guest_was_told() {
    let mut gateway = with(&LIST);
    let site = "198.51.100.7";
    assert_eq!(goes(&mut gateway, secs(0), Tcp, site, 443), Action::Deny);
    resolves(&mut gateway, secs(0), "WWW.Example.COM", &[site, "198.51.100.8", "2001:db8::7"], 400);
    for ip in [site, "198.51.100.8", "2001:db8::7"] {
        assert_eq!(goes(&mut gateway, secs(1), Tcp, ip, 443), Action::Allow, "{ip}");
        assert_eq!(goes(&mut gateway, secs(1), Tcp, ip, 80), Action::Deny);
    }
    assert_eq!(goes(&mut gateway, secs(1), Tcp, "198.51.100.9", 443), Action::Deny);
    // Another guest was not told.
    let other = gateway.admit(secs(1), Tcp, address("10.0.2.16", 9), address(site, 443));
    assert_eq!(other, Admission::Refuse(Refusal::Prohibited));
    // For as long as the record lives; five minutes at least, a day at most.
    assert_eq!(goes(&mut gateway, secs(399), Tcp, site, 443), Action::Allow);
    assert_eq!(goes(&mut gateway, secs(400), Tcp, site, 443), Action::Deny);
    for (ttl, last) in [(0, 299), (86_401, 86_399)] {
        let mut gateway = with(&LIST);
        resolves(&mut gateway, secs(0), "a.example.com", &[site], ttl);
        assert_eq!(goes(&mut gateway, secs(last), Tcp, site, 443), Action::Allow);
        assert_eq!(goes(&mut gateway, secs(last + 1), Tcp, site, 443), Action::Deny);
    }
    // `*.` is for names below, and not for others that end alike.
    for name in ["example.com", "badexample.com", "example.com.test"] {
        let mut gateway = with(&LIST[..3]);
        resolves(&mut gateway, secs(0), name, &[site], 400);
        gateway.set(with(&LIST).settings().clone());
        assert_eq!(goes(&mut gateway, secs(1), Tcp, site, 443), Action::Deny, "{name}");
    }
}

#[test]
fn gw_13_a_name_does_not_lead_to_an_address_that_is_special() {
    let special = [
        "127.0.0.1",
        "10.2.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "169.254.169.254",
        "100.127.0.1",
        "0.0.0.0",
        GATEWAY,
        "::1",
        "fd00::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ];
    let mut gateway = with(&LIST);
    resolves(&mut gateway, secs(0), "rebind.example.com", &special, 400);
    for ip in special {
        assert!(is_special(ip.parse().unwrap()), "{ip}");
        assert_eq!(goes(&mut gateway, secs(1), Tcp, ip, 443), Action::Deny, "{ip}");
    }
    for ip in ["172.32.0.0", "100.128.0.0", "11.0.0.0", "2001:db8::1", "64:ff9b::808:808", "2002:808:808::"] {
        assert!(!is_special(ip.parse().unwrap()), "{ip}");
    }
    // `within` says which ones are meant.
    resolves(&mut gateway, secs(0), "db.corp", &["10.2.3.4", "10.3.0.1"], 400);
    assert_eq!(goes(&mut gateway, secs(1), Tcp, "10.2.3.4", 5_432), Action::Allow);
    assert_eq!(goes(&mut gateway, secs(1), Tcp, "10.3.0.1", 5_432), Action::Deny);
    // A denied name is denied wherever it leads.
    let mut gateway = with(&["deny tcp bad.test"]);
    resolves(&mut gateway, secs(0), "bad.test", &["198.51.100.7"], 400);
    assert_eq!(goes(&mut gateway, secs(1), Tcp, "198.51.100.7", 80), Action::Deny);
    assert_eq!(goes(&mut gateway, secs(1), Udp, "198.51.100.7", 80), Action::Allow);
}

#[test]
fn gw_13_a_denied_network_is_denied_behind_ipv6_too() {
    let mut gateway = with(&["deny 192.168.0.0/16"]);
    for ip in ["192.168.1.1", "::ffff:192.168.1.1", "64:ff9b::c0a8:101", "2002:c0a8:101::1"] {
        assert_eq!(goes(&mut gateway, secs(0), Tcp, ip, 80), Action::Deny, "{ip}");
    }
    for ip in ["64:ff9b::c0a7:101", "2002:c0a9:101::1", "2001:db8::c0a8:101"] {
        assert_eq!(goes(&mut gateway, secs(0), Tcp, ip, 80), Action::Allow, "{ip}");
    }
    // What is allowed is allowed as it is written.
    let mut gateway = with(&["allow 192.168.0.0/16", "deny any"]);
    assert_eq!(goes(&mut gateway, secs(0), Tcp, "64:ff9b::c0a8:101", 80), Action::Deny);
}

#[test]
fn gw_14_rules_are_written_as_they_are_read_and_mistakes_are_refused() {
    for text in [
        "allow any",
        "deny tcp 10.0.0.0/8 port 25,80-90",
        "drop udp any port 1900",
        "allow ping 192.0.2.1",
        "deny fe80::/10",
        "allow *.example.com port 443",
        "allow db.corp within 10.2.0.0/16 port 5432",
        "allow *.example.com port 443 ech",
    ] {
        assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
    }
    assert_eq!("deny  TEST.example. ".parse::<Rule>().unwrap().to_string(), "deny test.example");
    for (text, why) in [
        ("", "begins with allow, deny or drop"),
        ("permit any", "begins with allow, deny or drop"),
        ("deny", "has no destination"),
        ("deny tcp", "has no destination"),
        ("deny 10.0.0.0/33", "is no network and no name"),
        ("deny 10.0.0", "is no network and no name"),
        ("deny 10.0.0.256", "is no network and no name"),
        ("deny a..b", "is no network and no name"),
        ("deny *", "is no network and no name"),
        ("deny any port", "nothing follows port"),
        ("deny any port 90-80", "are no ports"),
        ("deny any port 65536", "are no ports"),
        ("deny ping any port 1", "port does not belong there"),
        ("deny any port 1 port 2", "port does not belong there"),
        ("deny any within 10.0.0.0/8", "within does not belong there"),
        ("deny a.test within b", "is no network"),
        ("deny any to 1", "to does not belong there"),
        ("deny a.test ech x", "ech does not belong there"),
        ("allow any ech x", "ech does not belong there"),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    // The defaults are shown with the rest.
    let all: Vec<String> =
        Rules::parse(["deny 192.0.2.0/24"]).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(all[0], "deny 192.0.2.0/24");
    assert_eq!(all[1..], Rules::DEFAULTS);
}

#[test]
fn gw_15_denials_are_logged_with_their_rule() {
    let mut gateway = with(&["deny tcp 192.0.2.0/24 port 25"]);
    goes(&mut gateway, secs(0), Tcp, "192.0.2.9", 25);
    let event = Event::Denied {
        guest: GUEST.parse().unwrap(),
        kind: Tcp,
        to: address("192.0.2.9", 25),
        rule: "deny tcp 192.0.2.0/24 port 25".into(),
    };
    assert_eq!((gateway.poll_event(), gateway.poll_event()), (Some(event), None));
    // Nobody reads the log: it does not grow.
    for _ in 0..1_000 {
        goes(&mut gateway, secs(0), Tcp, "192.0.2.9", 25);
    }
    let kept = std::iter::from_fn(|| gateway.poll_event()).count();
    assert_eq!((kept, gateway.counters().events_left_out, gateway.counters().denied), (256, 744, 1_001));
}

#[test]
fn gw_16_an_answer_belongs_to_its_question() {
    let mut gateway = with(&[]);
    let message = asks("www.example.com", 1);
    let good = answers(&message, &["198.51.100.7"], 60);
    let changed = |at: usize, byte: u8| {
        let mut other = good.clone();
        other[at] = byte;
        other
    };
    let id = forwarded(&mut gateway, secs(0), &message);
    // RFC 5452 §9.1: another number, a question, another name, another type; and what is too short.
    let end = message.len();
    for wrong in
        [changed(1, 0x35), changed(2, 0x01), changed(13, b'v'), changed(end - 3, 28), good[..20].to_vec()]
    {
        assert!(!gateway.reply(secs(1), id, &wrong), "{wrong:?}");
    }
    // Letters may differ in size, and records that cannot be read are the guest's affair.
    let broken = good[..good.len() - 2].to_vec();
    assert!(gateway.reply(secs(1), id, &changed(13, b'W')));
    assert!(!gateway.reply(secs(1), id, &good), "it is answered once");
    let id = forwarded(&mut gateway, secs(0), &message);
    assert!(gateway.reply(secs(1), id, &broken));
    assert_eq!(gateway.in_use().questions, 0);
}

#[test]
fn gw_17_own_names_denied_names_and_what_is_no_question() {
    let mut gateway = with(&["deny *.ads.test", "deny tcp other.test"]);
    let from = "10.0.2.15".parse().unwrap();
    let mut answer = |message: &[u8]| match gateway.question(secs(0), from, message) {
        Question::Answer(answer) => Some(answer),
        Question::Ignore => None,
        Question::Forward(_) => panic!("forwarded"),
    };
    // RFC 1035 §4.1: number, QR and RD and RA, one question, one answer; a pointer to the name, A, IN, 60 s,
    // four bytes.
    let question = asks(HOST_NAME, 1);
    let mut expected = question.clone();
    expected[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1]);
    expected.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 2, 2]);
    assert_eq!(answer(&question), Some(expected));
    let v6 = answer(&asks("Gateway.Home.ARPA", 28)).unwrap();
    assert_eq!(v6[v6.len() - 16..], "fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    // No address of another type: an answer without records.
    let none = answer(&asks(HOST_NAME, 16)).unwrap();
    assert_eq!((none[3] & 0x0f, &none[6..8]), (0, &[0, 0][..]));
    // REFUSED.
    let refused = answer(&asks("x.ads.test", 1)).unwrap();
    assert_eq!((refused[2] & 0x80, refused[3] & 0x0f, &refused[6..8]), (0x80, 5, &[0, 0][..]));
    for wrong in [
        &b""[..],
        &question[..11],
        &question[..question.len() - 1],
        &[&question[..2], &[0x81], &question[3..]].concat(),
        &[&question[..4], &[0, 2], &question[6..]].concat(),
        &[&question[..12], &[0xc0, 12, 0, 1, 0, 1]].concat(),
        &asks(&["a"; 130].join("."), 1),
    ] {
        assert_eq!(answer(wrong), None, "{wrong:?}");
    }
    let event = gateway.poll_event();
    assert!(matches!(event, Some(Event::NameDenied { name, .. }) if name == "x.ads.test"));
    // A name that is denied for TCP only may be asked for.
    forwarded(&mut gateway, secs(0), &asks("other.test", 1));
}

/// Any bytes: no panic, and no answer that is shorter than its header.
#[test]
fn gw_17_any_bytes_as_a_question() {
    let mut gateway = with(&["deny *.ads.test"]);
    let mut random = 7_u64;
    let mut byte = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    };
    let question = asks("www.ads.test", 1);
    let from = "10.0.2.15".parse().unwrap();
    for _ in 0..50_000 {
        let mut message = question.clone();
        for _ in 0..1 + byte() % 4 {
            let at = usize::from(byte()) % message.len();
            message[at] = byte();
        }
        message.truncate(usize::from(byte()) % 64);
        match gateway.question(secs(0), from, &message) {
            Question::Answer(answer) => assert!(answer.len() >= 12),
            Question::Forward(id) => {
                let answer: Vec<u8> = (0..byte()).map(|_| byte()).collect();
                gateway.reply(secs(0), id, &[&message[..], &answer[..]].concat());
                gateway.give_up(id);
            }
            Question::Ignore => {}
        }
    }
    assert_eq!(gateway.in_use(), Amounts::default());
}

#[test]
fn gw_18_questions_are_bounded_and_forgotten_in_time() {
    let limits = Limits::of(Amounts { questions: 8, ..Limits::default().all });
    let mut gateway = Gateway::new(Settings { limits, ..Settings::default() });
    let message = asks("www.example.com", 1);
    let ids: Vec<_> = (0..6).map(|_| forwarded(&mut gateway, secs(0), &message)).collect();
    // SERVFAIL, so that the guest need not wait.
    let full = gateway.question(secs(0), "10.0.2.15".parse().unwrap(), &message);
    assert!(matches!(full, Question::Answer(answer) if answer[3] & 0x0f == 2));
    assert!(matches!(
        gateway.question(secs(0), "10.0.2.16".parse().unwrap(), &message),
        Question::Forward(_)
    ));
    assert_eq!(gateway.poll_timeout(), Some(secs(10)));
    gateway.handle_timeout(secs(10));
    assert_eq!((gateway.in_use().questions, gateway.counters().unanswered), (0, 7));
    assert!(!gateway.reply(secs(10), ids[0], &answers(&message, &["198.51.100.7"], 60)));
}

#[test]
fn gw_19_what_is_known_of_names_is_bounded() {
    let mut gateway = with(&["allow *.example.com", "deny any"]);
    let address = |number: u32| IpAddr::from((0xc633_6400 + number).to_be_bytes()).to_string();
    for number in 0..5_000 {
        resolves(&mut gateway, secs(0), &format!("n{number}.example.com"), &[&address(number)], 300 + number);
    }
    // 1,024 pairs for each guest: those that live longest.
    let known = (0..5_000).filter(|number| {
        let to = address(*number);
        let kind = if number % 2 == 0 { Tcp } else { Udp };
        goes(&mut gateway, secs(1), kind, &to, 80) == Action::Allow
    });
    let known: Vec<u32> = known.collect();
    assert_eq!((known.len(), known[0]), (1_024, 5_000 - 1_024));
}
