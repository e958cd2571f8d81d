//! Where a byte is copied between the host's socket and the guest's link, and how bytes are cut into pieces
//! and packets: GW-79 and 87 of `docs/spec/gateway.md`.
//!
//! ```text
//!   down   host's kernel ─ recv ─▶ one block ───────────────────────────▶ the packet that the device gets
//!   up     device ─ recv ─▶ its buffer ───────────────────────────────▶ the pieces that the host's socket gets
//! ```
//!
//! A watcher at both ends notes at which address each byte of the stream lies. The kernel's two copies, in
//! and out of this process, are not seen here.
#![cfg(target_os = "linux")]

use crate::support::one_server;

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use taut::device::{self, Device, News, Received, RxDevice, Sent, TxDevice, TxPacket, TxTicket};
use taut::{Bytes, Stack};
use taut_core::LinkCaps;
use taut_gateway::{Resolver, Server, Settings, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use one_server::OneServer;

const LEN: usize = 8 << 20;
/// What the server says first.
const BANNER: usize = 64 << 10;
/// Payload of this length is handed on where it was read.
const LONG: usize = 16 << 10;
const GUEST: &str = "10.0.2.15";

/// Where bytes of one direction were when they came in, by their place in the stream, and what was found of
/// them when they went out.
#[derive(Debug, Default)]
struct Way {
    /// The sequence number of the first byte.
    first: u32,
    /// Place, address and length, of long pieces.
    came: Vec<(usize, usize, usize)>,
    received: usize,
    long: usize,
    sent: usize,
    /// Of long pieces, at the address where they came in, and elsewhere.
    same: usize,
    elsewhere: usize,
    /// Place and length of what was taken at once, and of what packets carry.
    pieces: Vec<(usize, usize)>,
    packets: Vec<(usize, usize)>,
}

impl Way {
    /// Bytes of this place come in. What was there before comes again, and is not used.
    fn comes(&mut self, place: usize, bytes: &[u8]) {
        if bytes.is_empty() || place < self.received {
            return;
        }
        if bytes.len() >= LONG {
            self.came.push((place, bytes.as_ptr() as usize, bytes.len()));
            self.long += bytes.len();
        }
        self.received = place + bytes.len();
    }

    /// Bytes of this place go out.
    fn goes(&mut self, place: usize, bytes: &[u8]) {
        if bytes.is_empty() || place < self.sent {
            return;
        }
        let (address, end) = (bytes.as_ptr() as usize, place + bytes.len());
        for &(start, from, len) in &self.came {
            let (first, last) = (place.max(start), end.min(start + len));
            if first < last {
                let is_same = address + (first - place) == from + (first - start);
                *(if is_same { &mut self.same } else { &mut self.elsewhere }) += last - first;
            }
        }
        self.sent = end;
        self.came.retain(|(start, _, len)| start + len > end);
    }

    /// The place of a segment, by its headers (IPv4, TCP), and the length of these.
    fn place(&mut self, packet: &[u8]) -> (usize, usize) {
        let number = u32::from_be_bytes(packet[24..28].try_into().unwrap());
        let is_syn = packet[20 + 13] & 2 != 0;
        if is_syn {
            self.first = number.wrapping_add(1);
        }
        let place = if is_syn { 0 } else { number.wrapping_sub(self.first) as usize };
        (place, 20 + usize::from(packet[20 + 12] >> 4) * 4)
    }
}

type Watch = Arc<Mutex<[Way; 2]>>;
const UP: usize = 0;
const DOWN: usize = 1;

/// The gateway's end of the guest's link.
struct WatchedTx(Box<dyn TxDevice>, Watch);
struct WatchedRx(Box<dyn RxDevice>, Watch);

impl TxDevice for WatchedTx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.news(waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let mut watch = self.1.lock().unwrap();
        let (mut place, _) = watch[DOWN].place(packet.header);
        let payload: usize = packet.payload.slices().iter().map(|piece| piece.len()).sum();
        // One that is sent again may be cut elsewhere.
        if place >= watch[DOWN].sent {
            watch[DOWN].packets.push((place, payload));
        }
        for piece in packet.payload.slices() {
            watch[DOWN].goes(place, piece);
            place += piece.len();
        }
        drop(watch);
        self.0.send(packet, ticket)
    }
}

impl RxDevice for WatchedRx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.news(waker)
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let received = self.0.recv(buffer)?;
        if let Some(received) = &received {
            let packet = &buffer[received.range.clone()];
            let mut watch = self.1.lock().unwrap();
            let (place, headers) = watch[UP].place(packet);
            watch[UP].comes(place, &packet[headers..]);
        }
        Ok(received)
    }
}

struct WatchedStream(tokio::net::TcpStream, Watch);

impl Upstream for WatchedStream {
    async fn readable(&self) -> io::Result<()> {
        Upstream::readable(&self.0).await
    }

    async fn writable(&self) -> io::Result<()> {
        Upstream::writable(&self.0).await
    }

    async fn broken(&self) {
        self.0.broken().await;
    }

    fn try_take(&self, max: usize) -> io::Result<Bytes> {
        let bytes = self.0.try_take(max)?;
        let way = &mut self.1.lock().unwrap()[DOWN];
        way.pieces.push((way.received, bytes.len()));
        way.comes(way.received, &bytes);
        Ok(bytes)
    }

    fn try_write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut count = Upstream::try_write_vectored(&self.0, data)?;
        let (all, mut watch) = (count, self.1.lock().unwrap());
        for piece in data {
            let taken = piece.len().min(count);
            let place = watch[UP].sent;
            watch[UP].goes(place, &piece[..taken]);
            count -= taken;
        }
        Ok(all)
    }

    fn finish(&self) -> io::Result<()> {
        self.0.finish()
    }

    fn abort(self) {
        self.0.abort();
    }
}

/// Carries bytes from a guest behind a link with this MTU to a server, and back, when the server has said
/// something.
fn carry(mtu: u16) -> [Way; 2] {
    let bytes: Vec<u8> = (0..LEN as u32).map(|at| (at * 31 % 251) as u8).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sent = bytes.clone();
    // Takes all, and sends as much.
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&sent[..BANNER]).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert!(all == sent);
        stream.write_all(&sent).unwrap();
    });
    let watch = Watch::default();
    let (near, far) = device::pipe(LinkCaps::offloading(mtu), 1 << 20).unwrap();
    let Device { caps, tx, rx } = Device::from(near);
    let (tx, rx) = (WatchedTx(tx, Arc::clone(&watch)), WatchedRx(rx, Arc::clone(&watch)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let own = Stack::builder().address("10.0.2.2/24").device(Device::new(caps, tx, rx));
        let stack = own.build_tokio().unwrap();
        // As the kernel's: its window is 64 KiB at first.
        let guest = Stack::builder().set_sysctl("tcp_rmem", "4096 65536 6291456");
        let guest = guest.address(&format!("{GUEST}/24")).device(far).build_tokio().unwrap();
        let gateway = Server::new(Settings::default(), Resolver::default(), Box::new(|_| {}));
        let of_host = Arc::clone(&watch);
        let way = Arc::new(OneServer(address, move |stream| WatchedStream(stream, Arc::clone(&of_host))));
        tokio::spawn(gateway.serve(&stack, way).unwrap());
        let mut client = taut::TcpStream::connect(&guest, "203.0.113.7:80").await.unwrap();
        let mut said = vec![0; BANNER];
        client.read_exact(&mut said).await.unwrap();
        assert!(said == bytes[..BANNER]);
        client.write_all(&bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).await.unwrap();
        assert!(back == bytes);
    });
    server.join().unwrap();
    std::mem::take(&mut *watch.lock().unwrap())
}

#[test]
fn gw_79_long_pieces_are_not_copied_between_host_and_guest() {
    for ((name, len), way) in [("up", LEN), ("down", BANNER + LEN)].into_iter().zip(carry(1_500)) {
        assert_eq!((way.received, way.sent), (len, len), "{name}");
        // Most of it came in long pieces, and went out where it was, but for ends that were cut off: of what
        // is taken at once, one that would hold more than eight times its memory (`TcpStream::read_chunk`);
        // of what is written, one of less than 4 KiB (`write_bytes`).
        assert!(way.long > LEN / 2, "{name}: {} bytes", way.long);
        assert_eq!(way.same + way.elsewhere, way.long, "{name}");
        assert!(way.elsewhere <= way.long / 8, "{name}: {} bytes of {}", way.elsewhere, way.long);
    }
}

#[test]
fn gw_87_long_pieces_for_the_guest_are_whole_segments() {
    for mtu in [1_500, 9_000, 65_520] {
        // IPv4, TCP, timestamps; a quarter of a super-packet at most, and half of the guest's largest window,
        // which is small while the server says its first.
        let segment = (usize::from(mtu) - 20 - 20).min(65_480 / 4) - 12;
        let [_, way] = carry(mtu);
        let later = |all: &[(usize, usize)]| -> Vec<usize> {
            all.iter().filter(|(place, _)| *place > LEN / 2).map(|(_, len)| *len).collect()
        };
        let (pieces, packets) = (later(&way.pieces), later(&way.packets));
        assert_eq!(pieces.iter().max(), Some(&(131_072 / segment * segment)), "MTU {mtu}");
        // A packet ends within a segment where a piece does.
        let broken = |lengths: &[usize]| lengths.iter().filter(|len| *len % segment > 0).count();
        let (pieces, packets) = (broken(&pieces), broken(&packets));
        // The first may belong to a piece from before.
        assert!(packets <= pieces + 1, "MTU {mtu}: {packets} packets, {pieces} pieces");
    }
}
