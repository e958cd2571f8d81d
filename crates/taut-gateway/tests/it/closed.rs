//! Destinations and sources that are closed to a guest by default: GW-170 to 174 and 196 of
//! `docs/spec/gateway.md`.

use std::net::IpAddr;

use taut::FlowKind::{self, Echo, Tcp, Udp};
use taut::Refusal;
use taut::network::IpPrefix;
use taut_gateway::{Action, Admission, Event, Gateway, HOST_NAME, Question, Rules, Settings};

use crate::rules::{address, asks, goes, resolves, secs, with};

#[test]
fn gw_170_a_source_outside_the_guests_networks_is_refused() {
    let network = |text: &str, len| IpPrefix::new(text.parse().unwrap(), len).unwrap();
    let own = vec!["10.0.2.2".parse().unwrap()];
    let sources = vec![network("10.0.2.15", 24), network("fd74:6175:7400::15", 64)];
    let mut gateway = Gateway::new(Settings { own, sources, ..Settings::default() });
    let mut goes = |kind: FlowKind, from: &str, port| {
        let from = address(from, 4_000);
        let to = if port == 53 { "10.0.2.2" } else { "198.51.100.1" };
        !matches!(
            gateway.admit(secs(0), kind, from, address(to, port)),
            Admission::Refuse(Refusal::Prohibited)
        )
    };
    for kind in [Tcp, Udp, Echo] {
        for from in ["10.0.2.0", "10.0.2.255", "fd74:6175:7400::", "fd74:6175:7400:0:ffff::1"] {
            assert!(goes(kind, from, 80), "{kind:?} {from}");
        }
        for from in
            ["10.0.1.255", "10.0.3.0", "127.0.0.1", "192.0.2.1", "fd74:6175:7401::1", "fe80::1", "::1"]
        {
            assert!(!goes(kind, from, 80), "{kind:?} {from}");
        }
    }
    // The name server, too.
    assert!(goes(Udp, "10.0.2.15", 53) && !goes(Udp, "10.0.3.15", 53));
    let event = gateway.poll_event();
    assert!(matches!(&event, Some(Event::Denied { rule, .. }) if rule.contains("--guest")), "{event:?}");
}

#[test]
fn gw_171_the_metadata_services_of_clouds_are_closed() {
    let services = [
        "169.254.169.254",
        "169.254.170.2",
        "168.63.129.16",
        "100.100.100.200",
        "fd00:ec2::254",
        "fd20:ce::254",
    ];
    let mut gateway = with(&[]);
    for ip in services.into_iter().chain(["fe80::a9fe:a9fe"]) {
        assert_eq!(goes(&mut gateway, secs(0), Tcp, ip, 80), Action::Deny, "{ip}");
    }
    for ip in ["168.63.129.15", "168.63.129.17", "100.100.100.199", "fd00:ec2::253", "fd20:ce::253"] {
        assert_eq!(goes(&mut gateway, secs(0), Tcp, ip, 80), Action::Allow, "{ip}");
    }
    // An allowed name does not open them, and a rule for the address does.
    let mut gateway = with(&["allow 168.63.129.16 port 53", "allow *.example.com", "deny any"]);
    resolves(&mut gateway, secs(0), "a.example.com", &services, 400);
    for ip in services {
        assert_eq!(goes(&mut gateway, secs(1), Tcp, ip, 80), Action::Deny, "{ip}");
    }
    assert_eq!(goes(&mut gateway, secs(1), Udp, "168.63.129.16", 53), Action::Allow);
}

#[test]
fn gw_172_private_networks_are_closed_by_choice_behind_the_users_rules() {
    let rules: Vec<&str> = ["allow tcp 10.1.0.0/16 port 443"].into_iter().chain(Rules::NO_PRIVATE).collect();
    let mut gateway = with(&rules);
    for (ip, port, expected) in [
        ("10.1.2.3", 443, Action::Allow),
        ("10.1.2.3", 80, Action::Deny),
        ("10.0.0.0", 80, Action::Deny),
        ("10.255.255.255", 80, Action::Deny),
        ("172.15.255.255", 80, Action::Allow),
        ("172.16.0.0", 80, Action::Deny),
        ("172.31.255.255", 80, Action::Deny),
        ("172.32.0.0", 80, Action::Allow),
        ("192.168.255.255", 80, Action::Deny),
        ("100.64.0.0", 80, Action::Deny),
        ("100.128.0.0", 80, Action::Allow),
        ("fbff::1", 80, Action::Allow),
        ("fc00::", 80, Action::Deny),
        ("fdff::1", 80, Action::Deny),
        ("::ffff:192.168.0.1", 80, Action::Deny),
    ] {
        assert_eq!(goes(&mut gateway, secs(0), Tcp, ip, port), expected, "{ip} {port}");
    }
}

/// RFC 4291 §2.5.5, RFC 6052 §2.2 with its examples of §2.4, RFC 8215, RFC 3056.
#[test]
fn gw_173_an_address_is_judged_by_the_one_that_it_embeds() {
    let mut gateway = with(&["deny 192.0.2.33"]);
    for ip in [
        "192.0.2.33",
        "::192.0.2.33",
        "::ffff:192.0.2.33",
        "64:ff9b::192.0.2.33",
        // Prefixes of 48, 56, 64 and 96 bits.
        "64:ff9b:1:c000:2:2100::",
        "64:ff9b:1:c0:0:221::",
        "64:ff9b:1:0:c0:2:2100:0",
        "64:ff9b:1::192.0.2.33",
        "64:ff9b:1:ffff::192.0.2.33",
        "2002:c000:221::1",
    ] {
        assert_eq!(goes(&mut gateway, secs(0), Tcp, ip, 80), Action::Deny, "{ip}");
    }
    for ip in [
        "::192.0.2.34",
        "64:ff9b::192.0.2.34",
        "64:ff9b:1:c000:2:2200::",
        "64:ff9b:1::192.0.2.34",
        "64:ff9b:2::192.0.2.33",
        "2002:c000:222::1",
        "2001:db8::192.0.2.33",
    ] {
        assert_eq!(goes(&mut gateway, secs(0), Tcp, ip, 80), Action::Allow, "{ip}");
    }
    // The loopback by default.
    for ip in ["::127.0.0.1", "64:ff9b:1:7f00:0:100::", "64:ff9b:1::127.0.0.1", "2002:7f00:1::"] {
        assert_eq!(goes(&mut with(&[]), secs(0), Tcp, ip, 80), Action::Deny, "{ip}");
    }
}

#[test]
fn gw_174_a_question_for_a_name_that_no_rule_allows_is_refused() {
    let confined = [
        "deny bad.example.com",
        "allow *.example.com port 443",
        "allow db.corp within 10.2.0.0/16",
        "deny any",
    ];
    let lists: [(&[&str], &[&str], &[&str]); 5] = [
        (
            &confined,
            &["www.example.com", "a.b.example.com", "db.corp", HOST_NAME],
            &["example.com", "bad.example.com", "x.stranger.test", "corp", "9.9.9.9.in-addr.arpa"],
        ),
        // A network mentions no name; `allow any` mentions each.
        (&["allow 10.0.0.0/8", "drop any"], &[], &["www.example.com"]),
        (&["allow udp any port 123", "deny any"], &["www.example.com"], &[]),
        // A rule that denies a part of the destinations denies no name, but for one that it mentions.
        (&["deny tcp any", "deny any port 1-1023", "deny ads.test"], &["www.example.com"], &["ads.test"]),
        (&["allow tcp ads.test port 443", "deny ads.test"], &["ads.test"], &[]),
    ];
    for (rules, sent, refused) in lists {
        let mut gateway = with(rules);
        let mut code =
            |name: &str, kind| match gateway.question(secs(0), [10, 0, 2, 15].into(), &asks(name, kind)) {
                Question::Forward(_) => None,
                Question::Answer(answer) => Some(answer[3] & 15),
                Question::Ignore => panic!("{name}"),
            };
        // A, AAAA, TXT.
        for kind in [1, 28, 16] {
            for name in sent {
                assert_ne!(code(name, kind), Some(5), "{rules:?} {name}");
            }
            for name in refused {
                assert_eq!(code(name, kind), Some(5), "{rules:?} {name}");
            }
        }
    }
    let mut gateway = with(&confined);
    let question = asks("secret.stranger.test", 16);
    assert!(matches!(gateway.question(secs(0), [10, 0, 2, 15].into(), &question), Question::Answer(_)));
    let event = gateway.poll_event();
    assert!(
        matches!(&event, Some(Event::NameDenied { name, rule, .. })
            if name == "secret.stranger.test" && **rule == *"deny any"),
        "{event:?}"
    );
    assert_eq!(gateway.in_use().questions, 0);
}

#[test]
fn gw_196_further_addresses_of_the_name_server_and_of_this_host() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let mut gateway = Gateway::new(Settings {
        own: vec![ip("10.0.2.2")],
        dns_at: vec![ip("169.254.1.1")],
        mapped: vec![(ip("169.254.1.2"), ip("198.51.100.9")), (ip("169.254.1.3"), ip("127.0.0.1"))],
        ..Settings::default()
    });
    let mut admitted =
        |kind, to, port| gateway.admit(secs(0), kind, address("10.0.2.15", 4_000), address(to, port));
    for kind in [Tcp, Udp] {
        assert!(matches!(admitted(kind, "169.254.1.1", 53), Admission::Questions(_)));
        // The same rules as for the address that it stands for.
        let there = admitted(kind, "169.254.1.2", 80);
        assert!(matches!(there, Admission::Dial(_, to) if to == address("198.51.100.9", 80)), "{there:?}");
        for (to, port) in [("169.254.1.1", 80), ("169.254.1.3", 80), ("169.254.1.4", 53)] {
            assert_eq!(admitted(kind, to, port), Admission::Refuse(Refusal::Prohibited), "{to}");
        }
    }
    assert_eq!(admitted(Echo, "169.254.1.1", 53), Admission::Refuse(Refusal::Prohibited));
}
