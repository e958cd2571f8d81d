//! A tunnel's configuration as any text, and a tunnel's socket with any datagrams. Nothing panics, no error
//! has a secret, and no datagram of a stranger gives the stack a packet.
#![no_main]

use std::net::UdpSocket;
use std::sync::{LazyLock, Mutex};
use std::task::Waker;

use libfuzzer_sys::fuzz_target;
use taut_core::BUFFER_BYTES;
use taut_driver::Device;
use taut_fuzz::Input;
use taut_wireguard::{Config, WireGuard};

/// A secret that errors must not have.
const SECRET: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const PEER: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

struct Tunnel {
    device: Device,
    stranger: UdpSocket,
    buffer: Vec<u8>,
}

static TUNNEL: LazyLock<Mutex<Tunnel>> = LazyLock::new(|| {
    let text =
        format!("[Interface]\nPrivateKey = {SECRET}\nAddress = 10.0.0.1\n[Peer]\nPublicKey = {PEER}\nAllowedIPs = ::/0");
    let tunnel = WireGuard::open(&text.parse().unwrap()).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(("127.0.0.1", tunnel.port().unwrap())).unwrap();
    let mut device = Device::from(tunnel);
    device.tx.news(Waker::noop()).unwrap();
    device.rx.news(Waker::noop()).unwrap();
    Mutex::new(Tunnel { device, stranger, buffer: vec![0; BUFFER_BYTES] })
});

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    if input.byte().is_none_or(|kind| kind % 2 == 0) {
        let text = String::from_utf8_lossy(input.0).into_owned();
        // In the place of an address it is no secret, and the error quotes it.
        if text.contains(SECRET) {
            return;
        }
        let text = format!("[Interface]\nPrivateKey = {SECRET}\n{text}");
        match text.parse::<Config>() {
            Ok(config) => assert!(!format!("{config:?}").contains(SECRET)),
            Err(error) => assert!(!error.to_string().contains(SECRET)),
        }
        return;
    }
    let tunnel = &mut *TUNNEL.lock().unwrap();
    tunnel.device.rx.begin_batch();
    for datagram in input.0.chunks(160) {
        _ = tunnel.stranger.send(datagram);
    }
    assert_eq!(tunnel.device.rx.recv(&mut tunnel.buffer).unwrap(), None);
});
