//! Events of the feature `tracing`, counted by a subscriber: a gateway behind a tunnel, and its guest. API-2
//! of `docs/spec/sockets.md`. A binary of its own, because the subscriber is that of the process.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "tests")]

use std::fmt::{Debug, Write as _};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use taut::blocking::TcpStream;
use taut::device::{Device, LinkCaps, News, Sent, TxDevice, TxPacket, TxTicket, pipe};
use taut::{Stack, StackBuilder};
use taut_gateway::{HostSockets, Resolver, Rules, Server, Settings};
use taut_testbed::eventually;
use taut_wireguard::{Config, PrivateKey, WireGuard};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the events of taut's crates: each the text of its fields.
struct Kept;

static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Kept {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target().starts_with("taut")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        EVENTS.lock().unwrap().push(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// How many events have all of these texts.
fn count(texts: &[&str]) -> usize {
    let has_all = |event: &&String| texts.iter().all(|text| event.contains(text));
    EVENTS.lock().unwrap().iter().filter(has_all).count()
}

/// The end of a tunnel with this address, and its peer with these lines.
fn end(own: &PrivateKey, address: &str, peer: &PrivateKey, lines: &str) -> WireGuard {
    let (own, peer) = (own.to_text(), peer.public());
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = {address}\n[Peer]\nPublicKey = {peer}\n{lines}\n",
        own.as_str()
    );
    WireGuard::open(&text.parse::<Config>().unwrap()).unwrap()
}

fn over(device: impl Into<Device>, address: &str) -> StackBuilder {
    Stack::builder().device(device).address(address)
}

/// Takes no packet.
struct Broken(Box<dyn TxDevice>);

impl TxDevice for Broken {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.news(waker)
    }

    fn send(&mut self, _: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        Sent::Never(ticket, io::Error::other("unplugged"))
    }
}

#[test]
fn api_02_a_subscriber_counts_what_happens_to_a_vpn() {
    tracing::subscriber::set_global_default(Kept).unwrap();
    let [near_key, far_key] = [(); 2].map(|()| PrivateKey::generate().unwrap());
    let (near_name, far_name) = (near_key.public().to_string(), far_key.public().to_string());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();

    // A gateway behind the far end, which has one open port.
    let far = end(&far_key, "10.98.0.1/24", &near_key, "AllowedIPs = 10.98.0.2");
    let at = SocketAddr::from(([127, 0, 0, 1], far.port().unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let entered = runtime.enter();
    let stack = over(far, "10.98.0.1/24").build().unwrap();
    let rules = Rules::parse([&*format!("allow 127.0.0.1 port {port}")]).unwrap();
    let settings = Settings { own: vec!["10.98.0.1".parse().unwrap()], rules, ..Settings::default() };
    let server = Server::new(settings, Resolver::default(), Box::new(|_| ()));
    runtime.spawn(server.serve(&stack, Arc::new(HostSockets::default())).unwrap());
    drop(entered);

    // A guest, which comes back from another port of this host.
    let guest = || {
        let lines = format!("AllowedIPs = 10.98.0.1\nEndpoint = {at}");
        over(end(&near_key, "10.98.0.2/24", &far_key, &lines), "10.98.0.2/24").build().unwrap()
    };
    for round in 1..=2 {
        let guest = guest();
        let mut stream = TcpStream::connect(&guest, ("10.98.0.1", port)).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        stream.write_all(b"x").unwrap();
        served.read_exact(&mut [0]).unwrap();
        assert!(TcpStream::connect(&guest, "10.98.0.1:9").is_err());
        drop((stream, served));
        eventually("the flow is closed", || count(&["flow closed"]) == round);
    }
    // An endpoint that has moved: its name is looked up three handshakes later.
    let lines = "AllowedIPs = 10.98.0.1\nEndpoint = localhost:9\nPersistentKeepalive = 1";
    let lost = end(&PrivateKey::generate().unwrap(), "10.97.0.2/24", &far_key, lines);
    lost.monitor().resolve_by(move |endpoint| {
        assert_eq!((endpoint.host(), endpoint.port()), ("localhost", 9));
        Ok(at)
    });
    let lost = over(lost, "10.97.0.2/24").build().unwrap();
    eventually("the name is resolved again", || count(&["endpoint resolved again", &at.to_string()]) >= 1);
    // A device that takes no packet.
    let (broken, _other) = pipe(LinkCaps::plain(1_500), 1 << 20).unwrap();
    let mut broken = Device::from(broken);
    broken.tx = Box::new(Broken(broken.tx));
    let broken = over(broken, "10.99.0.2/24").build().unwrap();
    let to = "10.99.0.1:80".parse().unwrap();
    assert!(TcpStream::connect_timeout(&broken, &to, std::time::Duration::from_secs(3)).is_err());
    assert!(broken.counters().device_errors >= 2);

    assert_eq!(count(&["stack built", "10.98.0.2"]), 2);
    assert_eq!(count(&["stack built"]), 5);
    assert_eq!(count(&["handshake", &format!("peer={far_name}")]), 2, "the guests'");
    assert_eq!(count(&["handshake", &format!("peer={near_name}")]), 2, "the gateway's");
    assert_eq!(count(&["endpoint roamed", &format!("peer={near_name}")]), 1);
    let to = format!("to=10.98.0.1:{port}");
    assert_eq!((count(&["flow opened", &to]), count(&["flow opened"])), (2, 2));
    assert_eq!((count(&["flow refused", "to=10.98.0.1:9"]), count(&["flow refused"])), (2, 2));
    assert_eq!(count(&["device error", "unplugged"]), 1, "of one kind, once");
    assert_eq!(count(&["stack ended"]), 2, "the guests'");
    drop((lost, broken));
    assert_eq!(count(&["stack ended", "shut down"]), 4);
}
