//! The gateway's name service between a guest and several name servers: GW-120 to 125 of
//! `docs/spec/gateway.md`. The world is that of `live.rs`.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use taut_gateway::{Resolver, Settings};
use taut_testbed::{Kernel, PATIENCE, Scratch, eventually};

use crate::live::{GATEWAY, SERVER, World, again, answers, asks, at};

/// The end of the code in an answer's header.
const SILENT: u8 = 9;
const LATE: u8 = 8;
const SECOND: u8 = 7;

fn world(resolver: Resolver) -> Option<World> {
    World::new(Settings::default(), resolver, &[])
}

/// Serves until the test ends.
fn serve(kernel: &Kernel, at: SocketAddr, mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>> + Send + 'static) {
    let socket = kernel.enter(|| UdpSocket::bind(at)).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut message = [0; 4_096];
        loop {
            let Ok((len, from)) = again(|| socket.recv_from(&mut message)) else { return };
            if let Some(answer) = answer(&message[..len]) {
                _ = socket.send_to(&answer, from);
            }
        }
    });
}

/// The answers of a server: a name begins with a number for each server, which is the code of RFC 1035
/// §4.1.1, or one of the constants above.
fn by_name(place: usize) -> impl FnMut(&[u8]) -> Option<Vec<u8>> + Send + 'static {
    let mut before = Vec::new();
    move |question| {
        let code = question[13 + 2 * place] - b'0';
        let is_again = before == question;
        before = question.to_vec();
        match code {
            SILENT => return None,
            SECOND if !is_again => return None,
            LATE => std::thread::sleep(Duration::from_millis(1_500)),
            _ => {}
        }
        let mut answer = answers(question);
        // The last byte of the address is the place of the server.
        *answer.last_mut().unwrap() = place as u8;
        if code < SECOND && code > 0 {
            answer.truncate(question.len());
            (answer[3], answer[7]) = (0x80 | code, 0);
        }
        Some(answer)
    }
}

/// The code of the answer, and the last byte of its address.
fn asked(world: &World, name: &str) -> (u8, Option<u8>) {
    let (socket, mut message) = (world.udp(at(GATEWAY, 53)), [0; 4_096]);
    socket.send(&asks(name)).unwrap();
    let len = again(|| socket.recv(&mut message)).unwrap();
    let code = message[3] & 15;
    (code, (message[7] > 0).then(|| message[len - 1]))
}

#[test]
fn gw_120_the_next_server_answers_if_one_cannot() {
    let servers = vec![at(SERVER, 5_361), at(SERVER, 5_362), at(SERVER, 5_363)];
    let Some(world) = world(Resolver { servers: servers.clone(), ..Resolver::default() }) else { return };
    for (place, at) in servers.into_iter().enumerate() {
        serve(&world.far, at, by_name(place));
    }
    for (name, expected) in [
        // SERVFAIL, NOTIMP, REFUSED; a name that does not exist is an answer.
        ("2-0-0.example.com", (0, Some(1))),
        ("4-0-0.example.com", (0, Some(1))),
        ("5-2-0.example.com", (0, Some(2))),
        ("3-0-0.example.com", (3, None)),
        // None is better: the last one.
        ("2-5-4.example.com", (4, None)),
        ("5-5-2.example.com", (2, None)),
    ] {
        assert_eq!(asked(&world, name), expected, "{name}");
    }
    assert_eq!(world.server.look(|gateway| gateway.in_use().questions), 0);
    assert_eq!(world.server.look(|gateway| gateway.counters().unanswered), 2);
}

#[test]
fn gw_121_the_next_server_gets_the_question_if_one_is_silent() {
    let servers = vec![at(SERVER, 5_361), at(SERVER, 5_362), at(SERVER, 5_363)];
    let Some(world) = world(Resolver { servers: servers.clone(), ..Resolver::default() }) else { return };
    for (place, at) in servers.into_iter().enumerate() {
        serve(&world.far, at, by_name(place));
    }
    for (name, expected) in [
        ("9-9-0.example.com", (0, Some(2))),
        // An answer that comes when the next server has the question, and a datagram that is lost.
        ("8-9-9.example.com", (0, Some(0))),
        ("7-9-9.example.com", (0, Some(0))),
        // A refusal does not end the wait for the one before.
        ("8-5-5.example.com", (0, Some(0))),
        ("9-9-9.example.com", (2, None)),
    ] {
        assert_eq!(asked(&world, name), expected, "{name}");
    }
    assert_eq!(world.server.look(|gateway| gateway.in_use().questions), 0);
}

#[test]
fn gw_123_another_resolv_conf_is_noticed() {
    let scratch = Scratch::new("names-replaced");
    let file = scratch.join("resolv.conf");
    fs::write(&file, "nameserver fe80::1%lo\n").unwrap();
    let Some(world) = world(Resolver { resolv_conf: file.clone(), ..Resolver::default() }) else { return };
    // A datagram of a socket that is connected before the address has its route is lost, and so are the next.
    world.far.add_address("lo", "fe80::1/64").unwrap();
    for (address, place) in [("[fe80::1%1]:53", 0), ("10.50.0.2:53", 1), ("10.50.0.3:53", 2)] {
        serve(&world.far, address.parse().unwrap(), by_name(place));
    }
    let asked = || asked(&world, "0-0-0.example.com");
    assert_eq!(asked(), (0, Some(0)));
    // Replaced by rename, and then written in place.
    let other = scratch.join("other");
    fs::write(&other, "nameserver 10.50.0.2\n").unwrap();
    fs::rename(other, &file).unwrap();
    eventually("another file is noticed", || asked() == (0, Some(1)));
    fs::write(&file, "nameserver 10.50.0.3\n").unwrap();
    eventually("a change is noticed", || asked() == (0, Some(2)));
    // While there is none, the servers stay.
    fs::remove_file(&file).unwrap();
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(asked(), (0, Some(2)));
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn next(stream: &mut TcpStream) -> Vec<u8> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).unwrap();
    let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut message).unwrap();
    message
}

/// A question for a whole zone, and three messages of the answer: one, one with 60,000 bytes, one.
fn zone() -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut question = asks("example.com");
    let kind = question.len() - 3;
    question[kind] = 252;
    let message = |count: usize| {
        let mut answer = answers(&question);
        let record = answer[question.len()..].to_vec();
        (1..count).for_each(|_| answer.extend_from_slice(&record));
        answer[6..8].copy_from_slice(&(count as u16).to_be_bytes());
        answer
    };
    let messages = vec![message(1), message(3_750), message(2)];
    (question, messages)
}

#[test]
fn gw_125_zone_transfers_and_long_answers_pass_whole() {
    let dns = at(SERVER, 5_364);
    let Some(world) = world(Resolver { servers: vec![dns], ..Resolver::default() }) else { return };
    let listener = world.far.enter(|| TcpListener::bind(dns)).unwrap().unwrap();
    let (transfer, messages) = zone();
    let long = asks("long.example.com");
    let (expected, long_answer) = (messages.clone(), [answers(&long), vec![7; 60_000]].concat());
    let (of_transfer, of_long) = (messages, long_answer.clone());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            if next(&mut stream)[12] == 4 {
                stream.write_all(&framed(&of_long)).unwrap();
                continue;
            }
            // Later messages come later; the last connection ends before the last message.
            for message in &of_transfer[..if number < 3 { 3 } else { 2 }] {
                stream.write_all(&framed(message)).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
            if number == 0 {
                // As servers do, which wait for the next question.
                std::thread::spawn(move || stream.read(&mut [0]));
            }
        }
    });
    let mut stream = world.connect(at(GATEWAY, 53)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&framed(&transfer)).unwrap();
    let all: Vec<_> = (0..3).map(|_| next(&mut stream)).collect();
    assert!(all == expected);
    // The connection stays for other questions, and for one that does not wait for the transfer's end.
    stream.write_all(&framed(&long)).unwrap();
    assert!(next(&mut stream) == long_answer);
    stream.write_all(&[framed(&transfer), framed(&long)].concat()).unwrap();
    let all: Vec<_> = (0..3).map(|_| next(&mut stream)).collect();
    assert!(all == expected);
    drop(stream);
    // A server that ends in the middle ends the guest's connection.
    let mut stream = world.connect(at(GATEWAY, 53)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&framed(&transfer)).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest == expected[..2].iter().flat_map(|message| framed(message)).collect::<Vec<_>>());
}
