//! Names that clients of a proxy give: PX-21 to 26 of `docs/spec/proxy.md`. The world is that of `proxy.rs`,
//! with both families or one.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use taut::Stack;
use taut_gateway::{Resolver, Rules, Settings};
use taut_testbed::{Kernel, PATIENCE, Scratch, eventually, live};

use crate::proxy::{PORT, World, link};

const V4: &str = "10.50.0.1";
const V6: &str = "2001:db8:50::1";
const SILENT_V4: &str = "10.53.0.1";
const SILENT_V6: &str = "2001:db8:53::1";

const A: u8 = 1;
const AAAA: u8 = 28;

/// A proxy whose stack has these addresses, beside those of the far kernel.
fn world(own: &[(&str, &str)], rules: &[&str], resolver: Resolver, near: Kernel) -> World {
    let far = Kernel::new().unwrap();
    for line in [
        "ip route add local 10.50.0.0/16 dev lo",
        "ip route add blackhole 10.53.0.0/16",
        "ip -6 route add blackhole 2001:db8:53::/48",
    ] {
        far.run(line).unwrap();
    }
    far.add_address("lo", "2001:db8:50::1/128").unwrap();
    far.set_sysctl("ip_forward", "1").unwrap();
    let stack = far.enter(|| {
        let builder = Stack::builder().tun("taut0");
        let both = own.iter().fold(builder, |all, (own, host)| all.address(own).host_address(host));
        both.build()
    });
    let way = link(&stack.unwrap().unwrap());
    let listener = near.enter(|| TcpListener::bind(("127.0.0.1", PORT))).unwrap().unwrap();
    let clients = move || {
        listener.set_nonblocking(true).unwrap();
        tokio::net::TcpListener::from_std(listener).unwrap()
    };
    let settings = Settings { rules: Rules::parse(rules.iter().copied()).unwrap(), ..Settings::default() };
    World::by(near, far, settings, resolver, clients, way, None)
}

/// A port of servers that speak first.
const GREETS: u16 = 7;
const BOTH: [(&str, &str); 2] = [("10.7.0.2/24", "10.7.0.1/24"), ("2001:db8:7::2/64", "2001:db8:7::1/64")];

fn near() -> Option<Kernel> {
    live::ready(&["ip"]).then(|| Kernel::new().unwrap())
}

/// The first label of a question's name, and its type.
fn name_and_kind(question: &[u8]) -> (String, u8) {
    let first = usize::from(question[12]);
    let name = String::from_utf8_lossy(&question[13..13 + first]).to_ascii_lowercase();
    (name, question[question.len() - 3])
}

/// An answer with these addresses of the type that is in the question.
fn answer(question: &[u8], addresses: &[&str]) -> Vec<u8> {
    let (_, kind) = name_and_kind(question);
    let mut answer = question.to_vec();
    (answer[2], answer[3]) = (0x81, 0x80);
    let mut count = 0;
    for ip in addresses.iter().map(|text| text.parse::<IpAddr>().unwrap()) {
        let octets = match ip {
            IpAddr::V4(v4) if kind == A => v4.octets().to_vec(),
            IpAddr::V6(v6) if kind == AAAA => v6.octets().to_vec(),
            _ => continue,
        };
        count += 1;
        answer.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, octets.len() as u8]);
        answer.extend_from_slice(&octets);
    }
    answer[6..8].copy_from_slice(&u16::to_be_bytes(count));
    answer
}

/// A name server of the near kernel, until the test ends. It answers with what `serve` returns.
fn name_server(
    near: &Kernel,
    mut serve: impl FnMut(&[u8], SocketAddr) -> Vec<(Vec<u8>, SocketAddr)> + Send + 'static,
) -> SocketAddr {
    let socket = near.enter(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut message = [0; 4_096];
        while let Ok((len, from)) = socket.recv_from(&mut message) {
            for (answer, to) in serve(&message[..len], from) {
                socket.send_to(&answer, to).unwrap();
            }
        }
    });
    address
}

fn listener(world: &World, address: &str) -> TcpListener {
    world.far.enter(|| TcpListener::bind((address, GREETS))).unwrap().unwrap()
}

/// Where a client that names `name` arrives: the code of SOCKS5, or what the server sends.
fn reached(world: &World, name: &str) -> Result<char, u8> {
    let (code, mut client) = world.named(name, GREETS);
    if code != 0 {
        return Err(code);
    }
    let mut first = [0];
    client.read_exact(&mut first).unwrap();
    Ok(first[0].into())
}

/// Sends each client a letter.
fn greet(listener: TcpListener, letter: u8) {
    std::thread::spawn(move || {
        listener.incoming().map_while(Result::ok).for_each(|mut stream| stream.write_all(&[letter]).unwrap());
    });
}

/// Addresses by the first label of a name.
fn zone(name: &str) -> &'static [&'static str] {
    match name {
        "four" => &[V4],
        "both" => &[V4, V6],
        "six" => &[V6],
        "six-dead" => &[SILENT_V6, V4],
        "four-dead" => &[SILENT_V4, V6],
        "many-dead" => &["10.53.0.1", "10.53.0.2", "10.53.0.3", "10.53.0.4", "10.53.0.5", V4],
        _ => &[],
    }
}

#[test]
fn px_21_a_name_is_reached_if_one_address_is() {
    let only_v4 = [("four", Ok('4')), ("both", Ok('4')), ("six-dead", Ok('4')), ("many-dead", Ok('4'))];
    let only_v6 = [("six", Ok('6')), ("both", Ok('6')), ("four-dead", Ok('6'))];
    let rest = [("four-dead", Ok('6')), ("six", Ok('6')), ("none", Err(4))];
    // RFC 6724 prefers IPv6 here.
    let both = [&only_v4[..1], &only_v4[2..], &only_v6[1..2], &rest].concat();
    for (own, names) in [
        (&BOTH[..], &both[..]),
        (&BOTH[1..], &[&only_v6[..], &[("four", Err(4))]].concat()),
        (&BOTH[..1], &[&only_v4[..], &[("six", Err(4))]].concat()),
    ] {
        let Some(near) = near() else { return };
        let servers = vec![name_server(&near, |question, from| {
            vec![(answer(question, zone(&name_and_kind(question).0)), from)]
        })];
        let world = world(own, &[], Resolver { servers, ..Resolver::default() }, near);
        greet(listener(&world, V4), b'4');
        greet(listener(&world, V6), b'6');
        for (name, expected) in names {
            assert_eq!(reached(&world, &format!("{name}.example.com")), *expected, "{name} by {own:?}");
        }
    }
}

#[test]
fn px_22_both_families_are_looked_up_at_once() {
    let Some(near) = near() else { return };
    // It answers when it has both questions.
    let mut waits = Vec::new();
    let servers = vec![name_server(&near, move |question, from| {
        let new = (answer(question, &[V4]), from, name_and_kind(question).1);
        waits.retain(|(_, _, kind)| *kind != new.2);
        waits.push(new);
        if waits.len() < 2 {
            return Vec::new();
        }
        waits.drain(..).map(|(answer, from, _)| (answer, from)).collect()
    })];
    let world = world(&BOTH, &[], Resolver { servers, ..Resolver::default() }, near);
    greet(listener(&world, V4), b'4');
    assert_eq!(reached(&world, "www.example.com"), Ok('4'));
}

#[test]
fn px_23_the_hosts_own_names_come_first_and_pass_the_rules() {
    let Some(near) = near() else { return };
    let scratch = Scratch::new("proxy-hosts");
    let hosts = scratch.join("hosts");
    fs::write(&hosts, format!("{V4} db.corp db\n{V4} denied.corp\n{SILENT_V4} elsewhere.corp\n")).unwrap();
    let servers = vec![name_server(&near, |question, from| vec![(answer(question, &[SILENT_V4]), from)])];
    let rules =
        ["deny denied.corp", "allow *.corp within 10.50.0.0/16", "allow db within 10.0.0.0/8", "deny any"];
    let world = world(&BOTH, &rules, Resolver { servers, hosts, ..Resolver::default() }, near);
    greet(listener(&world, V4), b'4');
    for (name, expected) in [
        ("db.corp", Ok('4')),
        ("DB.", Ok('4')),
        ("denied.corp", Err(2)),
        // Outside of what its rule allows.
        ("elsewhere.corp", Err(2)),
    ] {
        assert_eq!(reached(&world, name), expected, "{name}");
    }
}

#[test]
fn px_24_an_answer_that_was_cut_off_is_fetched_whole() {
    let Some(near) = near() else { return };
    // Without a record, or with one that does not help.
    let dns = name_server(&near, |question, from| {
        let (name, _) = name_and_kind(question);
        let mut answer = answer(question, if name == "some" { &[SILENT_V4] } else { &[] });
        answer[2] |= 2;
        vec![(answer, from)]
    });
    let over_tcp = near.enter(|| TcpListener::bind(dns)).unwrap().unwrap();
    std::thread::spawn(move || {
        for mut stream in over_tcp.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut len = [0; 2];
            stream.read_exact(&mut len).unwrap();
            let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
            stream.read_exact(&mut question).unwrap();
            let answer = answer(&question, &[V4; 60]);
            stream.write_all(&[&(answer.len() as u16).to_be_bytes()[..], &answer].concat()).unwrap();
        }
    });
    let world = world(&BOTH, &[], Resolver { servers: vec![dns], ..Resolver::default() }, near);
    greet(listener(&world, V4), b'4');
    for name in ["big.example.com", "some.example.com"] {
        assert_eq!(reached(&world, name), Ok('4'), "{name}");
    }
}

#[test]
fn px_25_a_refusal_of_the_name_servers_is_no_rule_of_the_proxy() {
    let Some(near) = near() else { return };
    let servers = vec![name_server(&near, |question, from| {
        let mut answer = answer(question, &[]);
        answer[3] |= 5;
        vec![(answer, from)]
    })];
    let rules = ["deny denied.example.com"];
    let world = world(&BOTH, &rules, Resolver { servers, ..Resolver::default() }, near);
    assert_eq!(reached(&world, "www.example.com"), Err(4));
    assert_eq!(reached(&world, "denied.example.com"), Err(2));
}

#[test]
fn px_26_a_client_that_leaves_ends_all_attempts() {
    let Some(near) = near() else { return };
    let servers =
        vec![name_server(&near, |question, from| vec![(answer(question, &[SILENT_V4, SILENT_V6]), from)])];
    let world = world(&BOTH, &[], Resolver { servers, ..Resolver::default() }, near);
    let mut client: TcpStream = world.client();
    client.write_all(b"CONNECT www.example.com:80 HTTP/1.1\r\n\r\n").unwrap();
    eventually("both are dialled", || world.counters().connections == 2);
    drop(client);
    world.nothing_is_left();
    assert_eq!(world.counters().left, 1);
}
