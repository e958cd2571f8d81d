//! A user's own congestion control, by name on sockets and for a whole stack.

use crate::pair;

use std::io::{Read, Write};

use pair::pair;
use taut::blocking::{TcpListener, TcpStream};
use taut::congestion::{AckEvent, Controller, Definition, Signal, Window};
use taut::{ConnOptions, Stack};
use taut_core::Instant;

/// Always the same window.
#[derive(Debug)]
struct Fixed(u32);

impl Controller for Fixed {
    fn on_ack(&mut self, window: &mut Window, _ack: &AckEvent<'_>) {
        window.set_cwnd(self.0);
    }

    fn reduce(&mut self, window: &Window, _why: Signal, _now: Instant) -> u32 {
        window.cwnd()
    }

    fn owns_cwnd(&self) -> bool {
        true
    }
}

fn fixed() -> Definition {
    Definition::new("fixed", |params| Fixed(params.get("cwnd") as u32)).param(
        "cwnd",
        20.0,
        2.0..=1e4,
        "segments in flight",
    )
}

/// Name and congestion window of a connection after an exchange.
fn used(stream: &mut TcpStream, peer: &TcpListener) -> (String, u32) {
    let (mut accepted, _) = peer.accept().unwrap();
    stream.write_all(b"hello").unwrap();
    accepted.read_exact(&mut [0; 5]).unwrap();
    accepted.write_all(b"there").unwrap();
    // The answer has the ACK.
    stream.read_exact(&mut [0; 5]).unwrap();
    let info = stream.info().unwrap();
    (info.congestion.to_string(), info.snd_cwnd)
}

#[test]
fn a_stack_gives_its_users_controller_by_name() {
    let (near, far) = pair(|builder| builder.controller(fixed()));
    let listener = TcpListener::bind(&far, "10.0.0.2:7").unwrap();
    let is = |text: &str, cwnd| (text.to_owned(), cwnd);
    assert_eq!(
        near.sysctl("net.ipv4.tcp_available_congestion_control").unwrap(),
        "reno cubic bbr dctcp prague fixed"
    );

    let mut stream = TcpStream::connect(&near, "10.0.0.2:7").unwrap();
    stream.set_congestion("fixed:cwnd=30").unwrap();
    assert_eq!(used(&mut stream, &listener), is("fixed:cwnd=30", 30));

    let congestion = Some(near.algorithm("fixed").unwrap());
    let options = ConnOptions { congestion, ..ConnOptions::default() };
    let mut stream = TcpStream::connect_with(&near, listener.local_addr().unwrap(), &options, None).unwrap();
    assert_eq!(used(&mut stream, &listener), is("fixed", 20));

    near.set_sysctl("net.ipv4.tcp_congestion_control", "fixed:cwnd=40").unwrap();
    let mut stream = TcpStream::connect(&near, "10.0.0.2:7").unwrap();
    assert_eq!(used(&mut stream, &listener), is("fixed:cwnd=40", 40));
    stream.set_congestion("cubic").unwrap();
    assert_eq!(stream.info().unwrap().congestion.name(), "cubic");

    let error = stream.set_congestion("vegas").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().ends_with("choose one of reno, cubic, bbr, dctcp, prague, fixed"), "{error}");
    // The other stack was not given it.
    assert!(far.algorithm("fixed").is_err());
}

#[test]
fn a_builder_takes_settings_by_name_and_by_field() {
    let (near, _far) = pair(|builder| {
        let named = builder.controller(fixed()).set_sysctl("tcp_congestion_control", "fixed:cwnd=40");
        named.configure(|config| config.send.notsent_lowat = 20_000)
    });
    assert_eq!(near.sysctl("net.ipv4.tcp_congestion_control").unwrap(), "fixed:cwnd=40");
    assert_eq!(near.sysctl("net.ipv4.tcp_notsent_lowat").unwrap(), "20000");
}

#[test]
fn the_first_mistake_fails_the_build() {
    let taken = Definition::new("bbr", |_| Fixed(1));
    for (builder, says) in [
        (Stack::builder().controller(taken).shards(0), "the name is taken"),
        (
            Stack::builder().set_sysctl("tcp_congestion_control", "vegas"),
            "unknown congestion control vegas; choose one of reno,",
        ),
        (Stack::builder().set_sysctl("tcp_moon", "1").address("10.0.0.1/24"), "tcp_moon"),
        (Stack::builder().shards(0), "0 shards: the number must be from 1 to 256"),
        (Stack::builder().address("10.0.0.300/24"), "10.0.0.300"),
        (Stack::builder().link_from("rate 3parsec"), "3parsec"),
        (Stack::builder().qdisc("pfifo_slow"), "pfifo_slow"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(says), "{error}");
    }
}
