//! Two ends of a tunnel, and a relay between them that a test may make a bad network.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use taut::Stack;
use taut::blocking::{TcpListener, TcpStream};
use taut_wireguard::{Config, Monitor, PrivateKey, WireGuard};

/// An end that is not open yet.
pub(crate) struct End {
    pub(crate) key: PrivateKey,
    /// Lines of `[Interface]`.
    pub(crate) own: String,
    /// `[Peer]` sections.
    pub(crate) peers: String,
}

impl End {
    pub(crate) fn new(own: &str) -> Self {
        Self { key: PrivateKey::generate().unwrap(), own: own.to_owned(), peers: String::new() }
    }

    /// Adds a peer.
    pub(crate) fn trusts(&mut self, other: &PrivateKey, lines: &str) {
        self.peers += &format!("[Peer]\nPublicKey = {}\n{lines}\n", other.public());
    }

    pub(crate) fn config(&self) -> Config {
        let key = self.key.to_text();
        format!("[Interface]\nPrivateKey = {}\n{}\n{}", key.as_str(), self.own, self.peers).parse().unwrap()
    }

    pub(crate) fn open(&self) -> (WireGuard, Monitor) {
        let device = WireGuard::open(&self.config()).unwrap();
        let monitor = device.monitor();
        (device, monitor)
    }
}

/// A stack over a tunnel.
pub(crate) struct Host {
    pub(crate) stack: Stack,
    pub(crate) monitor: Monitor,
}

impl Host {
    pub(crate) fn of(device: WireGuard) -> Self {
        let monitor = device.monitor();
        let addresses: Vec<String> = device.addresses().iter().map(ToString::to_string).collect();
        let builder = Stack::builder().device(device);
        let stack = addresses.iter().fold(builder, |builder, own| builder.address(own)).build().unwrap();
        Self { stack, monitor }
    }
}

pub(crate) const ADDRESSES: [&str; 2] =
    ["Address = 10.77.0.1/24, fd77::1/64", "Address = 10.77.0.2/24, fd77::2/64"];
pub(crate) const ALLOWED: [&str; 2] = ["AllowedIPs = 10.77.0.1, fd77::1", "AllowedIPs = 10.77.0.2, fd77::2"];

/// Two ends; the first has the address of the second, by way of `between`.
pub(crate) fn pair(more: [&str; 2], between: impl FnOnce(SocketAddr) -> SocketAddr) -> [Host; 2] {
    let mut ends = [0, 1].map(|at| End::new(ADDRESSES[at]));
    let keys = [ends[0].key.clone(), ends[1].key.clone()];
    ends[1].trusts(&keys[0], &format!("{}\n{}", ALLOWED[0], more[1]));
    let (second, _) = ends[1].open();
    let at = between(SocketAddr::from(([127, 0, 0, 1], second.port().unwrap())));
    ends[0].trusts(&keys[1], &format!("{}\nEndpoint = {at}\n{}", ALLOWED[1], more[0]));
    [Host::of(ends[0].open().0), Host::of(second)]
}

/// Sends `bytes` from one stack to another, where they are compared, and back as one byte.
pub(crate) fn transfer(from: &Stack, to: &Stack, address: &str, bytes: usize) {
    let listener = TcpListener::bind(to, address).unwrap();
    let at = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut buffer, mut at) = (vec![0; 256 << 10], 0_usize);
            loop {
                let count = stream.read(&mut buffer).unwrap();
                assert!(
                    buffer[..count].iter().enumerate().all(|(i, byte)| *byte == pattern(at + i)),
                    "at {at}"
                );
                at += count;
                if at == bytes {
                    break stream.write_all(&[1]).unwrap();
                }
                assert_ne!(count, 0, "ended at {at}");
            }
        });
        let mut stream = TcpStream::connect(from, at).unwrap();
        let data: Vec<u8> = (0..bytes).map(pattern).collect();
        stream.write_all(&data).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        // All has left the host, and every ticket has come back.
        until("tickets", || stream.info().unwrap().wmem_alloc == 0);
    });
}

fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 13) as u8
}

/// Waits for `what`, for 20 seconds at most.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{what}: not in 20 s");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The fate of a datagram: those that are sent on in its place.
pub(crate) type Fate = Box<dyn FnMut(&[u8]) -> Vec<Vec<u8>> + Send>;

/// A relay between a client and a server.
pub(crate) struct Relay {
    pub(crate) at: SocketAddr,
    is_over: Arc<AtomicBool>,
    /// From now on the server sees another port.
    pub(crate) moves: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Datagrams to the server go through the first fate, those to the client through the second.
    pub(crate) fn new(server: SocketAddr, fates: [Fate; 2]) -> Self {
        Self::marking(server, fates, usize::MAX)
    }

    /// The same, which marks datagrams of at least so many bytes.
    pub(crate) fn marking(server: SocketAddr, mut fates: [Fate; 2], marked: usize) -> Self {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = near.local_addr().unwrap();
        let (is_over, moves) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (over, moving) = (Arc::clone(&is_over), Arc::clone(&moves));
        let far_socket = || {
            let far = UdpSocket::bind("127.0.0.1:0").unwrap();
            far.set_nonblocking(true).unwrap();
            far
        };
        let mut far = far_socket();
        near.set_nonblocking(true).unwrap();
        let thread = thread::spawn(move || {
            let (mut client, mut buffer) = (None, vec![0; 65_536]);
            while !over.load(Ordering::Relaxed) {
                if moving.swap(false, Ordering::Relaxed) {
                    far = far_socket();
                }
                let mut idle = true;
                if let Ok((len, from)) = near.recv_from(&mut buffer) {
                    (client, idle) = (Some(from), false);
                    for datagram in fates[0](&buffer[..len]) {
                        let tos = if datagram.len() >= marked { 3 } else { 0 };
                        _ = socket2::SockRef::from(&far).set_tos_v4(tos);
                        _ = far.send_to(&datagram, server);
                    }
                }
                if let (Ok((len, _)), Some(client)) = (far.recv_from(&mut buffer), client) {
                    idle = false;
                    for datagram in fates[1](&buffer[..len]) {
                        _ = near.send_to(&datagram, client);
                    }
                }
                if idle {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { at, is_over, moves, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// A good network.
pub(crate) fn same() -> Fate {
    Box::new(|datagram| vec![datagram.to_vec()])
}
