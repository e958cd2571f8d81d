//! Two stacks and a line that loses packets, in virtual time; the client is recorded. Packets and data that
//! was read are held for a while, as devices and applications hold them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use taut_core::{
    BUFFER_BYTES, ConnId, ConnOptions, Duration, Fate, Frame, Instant, KeptPacket, LinkCaps, ListenOptions,
    Network, NetworkChange, Offload, Route, RxChecksum, RxPacket, SetOption, Stack, StackConfig, Transmit,
    TxTicket, WriteFlags,
};

use crate::{RecordHandle, Taped, record};

pub(super) const BEGIN: Instant = Instant::from_nanos(1_000_000_000_000);

/// Knuth's MMIX generator; the upper half of its state.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// The stream that the client of a run sends.
fn data(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// The beginning of that stream.
pub(super) fn first_bytes(seed: u64) -> Vec<u8> {
    data(seed, 32)
}

/// What a stack shows.
pub(super) fn look(stack: &Stack, now: Instant) -> String {
    let conns: Vec<_> = stack.conn_ids().filter_map(|id| stack.conn(id)).collect();
    let infos: Vec<_> =
        conns.iter().map(|conn| (conn.info(now), conn.report(now), conn.congestion())).collect();
    format!("{infos:?} {:?} {:?} {:?}", stack.report(now), stack.counters(), stack.memory_use())
}

/// What became of a run.
pub(super) struct Run {
    pub(super) handle: RecordHandle,
    pub(super) lost: u32,
    pub(super) kept: u32,
    /// What the client showed after so many inputs.
    pub(super) looks: Vec<(u64, String)>,
}

/// A stack with what is below and above it.
struct End {
    stack: Taped,
    buffer: Vec<u8>,
    arriving: VecDeque<(Vec<u8>, u16)>,
    /// Tickets that come back later, and packets and data that are held.
    tickets: Vec<TxTicket>,
    packets: Vec<KeptPacket>,
    read: Vec<Bytes>,
    conn: Option<ConnId>,
    written: usize,
}

impl End {
    fn new(stack: Taped) -> Self {
        let (buffer, arriving) = (vec![0; BUFFER_BYTES], VecDeque::new());
        Self {
            stack,
            buffer,
            arriving,
            tickets: vec![],
            packets: vec![],
            read: vec![],
            conn: None,
            written: 0,
        }
    }

    fn receive(&mut self, now: Instant, random: &mut Random) {
        for (packet, gso_size) in std::mem::take(&mut self.arriving) {
            let frame = if random.one_in(8) {
                Frame::Slice(&packet)
            } else {
                let start = random.below(40);
                self.buffer[start..start + packet.len()].copy_from_slice(&packet);
                Frame::Lend { buffer: &mut self.buffer, range: start..start + packet.len() }
            };
            let packet = RxPacket { frame, checksum: RxChecksum::Verified, gso_size };
            self.stack.handle_packet(now, packet);
            if self.buffer.is_empty() {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        }
    }

    /// Sends what there is. Returns how many packets were lost and kept.
    fn send(&mut self, now: Instant, to: &mut Self, random: &mut Random) -> (u32, u32) {
        let (mut lost, mut kept) = (0, 0);
        while self.tickets.len() > 3 || (!self.tickets.is_empty() && random.one_in(2)) {
            let ticket = self.tickets.swap_remove(random.below(self.tickets.len()));
            self.stack.handle_tx(now, ticket, Fate::Left);
        }
        while let Some(Transmit { packet, ticket }) = self.stack.poll_transmit(now) {
            let gso_size = match packet.offload {
                Offload::Segment { mss, .. } => mss,
                _ => 0,
            };
            if random.one_in(2) {
                self.packets.push(packet.keep());
                kept += 1;
            }
            if random.one_in(40) {
                lost += 1;
            } else if random.one_in(50) {
                self.stack.handle_tx(
                    now,
                    ticket,
                    if random.one_in(2) { Fate::Refused } else { Fate::Dropped },
                );
                break;
            } else {
                to.arriving.push_back((packet.to_vec(), gso_size));
            }
            if random.one_in(3) {
                self.tickets.push(ticket);
            } else {
                self.stack.handle_tx(now, ticket, Fate::Left);
            }
        }
        while self.packets.len() > 12 {
            self.packets.swap_remove(random.below(self.packets.len()));
        }
        (lost, kept)
    }

    /// Writes some of the rest of `data`, sometimes with an option set; ends the stream after all of it.
    fn write(&mut self, now: Instant, data: &[u8], random: &mut Random) {
        let Some(mut conn) = self.conn.and_then(|id| self.stack.conn_mut(id)) else { return };
        assert_eq!(conn.as_ref().error(), None);
        self.written += write(&mut conn, now, &data[self.written..], random);
        if random.one_in(60) {
            conn.set_option(now, SetOption::Cork(random.one_in(2))).unwrap();
        }
        if self.written == data.len() && conn.as_ref().state().is_synchronized() {
            conn.set_option(now, SetOption::Cork(false)).unwrap();
            conn.shutdown_write(now).unwrap();
        }
    }

    /// Closes when everything was written, and the peer's stream was read to its end.
    fn close_if_done(&mut self, now: Instant, len: usize) {
        let Some(mut conn) = self.conn.and_then(|id| self.stack.conn_mut(id)) else { return };
        if self.written == len && conn.readable() && conn.chunk().is_ok_and(<[u8]>::is_empty) {
            conn.close(now);
            self.conn = None;
        }
    }

    /// Takes all events, and reads what there is.
    fn read(&mut self, now: Instant, random: &mut Random) {
        while self.stack.poll_event().is_some() {}
        let Some(mut conn) = self.conn.and_then(|id| self.stack.conn_mut(id)) else { return };
        let mut into = [0; 20_000];
        while if random.one_in(2) {
            conn.read(now, &mut into).is_ok_and(|count| count > 0)
        } else {
            let read = conn.read_chunk(now, 1 + random.below(40_000)).unwrap_or_default();
            let any = !read.is_empty();
            self.read.push(read);
            any
        } {}
        self.read.truncate(20);
    }
}

/// Each end sends `len` bytes to the other; the run of the client is recorded at `path`.
pub(super) fn run(path: &Path, seed: u64, len: usize) -> Run {
    let mut random = Random(seed ^ 0x5555);
    let caps = if seed.is_multiple_of(3) { LinkCaps::plain(1_500) } else { LinkCaps::offloading(1_500) };
    let config = |address: &str| {
        let address = address.parse().unwrap();
        Arc::new(StackConfig::default().with(|config| config.addresses.push(address)))
    };
    let (client, handle) = record(path, config("10.0.0.1"), caps, [seed as u8; 32], (0, 1)).unwrap();
    let far = Stack::new(config("10.0.0.2"), caps, [!seed as u8; 32]);
    let (mut near, mut far) = (End::new(client), End::new(far.into()));
    let mut now = BEGIN;
    let listener = far.stack.listen("10.0.0.2:7".parse().unwrap(), ListenOptions::default()).unwrap();
    near.stack.set_sysctl("tcp_ecn", "1").unwrap();
    let options = ConnOptions { nodelay: seed.is_multiple_of(2), ..ConnOptions::default() };
    let conn = near.stack.connect(now, "10.0.0.2:7".parse().unwrap(), &options).unwrap();
    near.conn = Some(conn);
    let data = data(seed, len);
    let (mut lost, mut kept, mut looks) = (0, 0, Vec::new());
    let mut steps = 0_u32;
    // Until both ends have everything and have closed.
    while near.conn.is_some() || near.stack.connections() > 0 {
        steps += 1;
        assert!(steps < 200_000, "the run does not end: {} bytes written", near.written);
        now += Duration::from_micros(50 + random.below(400) as u64);
        near.receive(now, &mut random);
        far.receive(now, &mut random);
        for end in [&mut near, &mut far] {
            if end.stack.poll_timeout().is_some_and(|(at, _)| at <= now) {
                end.stack.handle_timeout(now);
            }
        }
        if far.conn.is_none() {
            far.conn = far.stack.accept(listener).map(|(id, _)| id);
        }
        if steps.is_multiple_of(23) {
            near.stack.change_network(now, change(steps / 23 - 1)).unwrap();
        }
        for end in [&mut near, &mut far] {
            end.write(now, &data, &mut random);
        }
        near.read(now, &mut random);
        far.read(now, &mut random);
        for end in [&mut near, &mut far] {
            end.close_if_done(now, data.len());
        }
        let (more_lost, more_kept) = near.send(now, &mut far, &mut random);
        far.send(now, &mut near, &mut random);
        (lost, kept) = (lost + more_lost, kept + more_kept);
        if random.one_in(5) {
            looks.push((handle.report().inputs, look(&near.stack, now)));
        }
    }
    Run { handle, lost, kept, looks }
}

/// Changes of the network, one after the other; none touches the connection's address.
fn change(number: u32) -> NetworkChange {
    let other = Network { address: "10.0.0.9".parse().unwrap(), prefix: 24 };
    let route = Route { to: other, via: None, source: None };
    match number % 6 {
        0 => NetworkChange::AddAddress(other),
        1 => NetworkChange::AddRoute(route),
        2 => NetworkChange::SetMtu(1_000 + (number % 500) as u16),
        3 => NetworkChange::Deprecate { address: other.address, deprecated: true },
        4 => NetworkChange::RemoveRoute(route),
        _ => NetworkChange::RemoveAddress(other.address),
    }
}

/// A connection to a server that has received 100 bytes. Returns its name, and the packet that acknowledges
/// them, which has not arrived.
pub(super) fn established(client: &mut Taped, now: Instant) -> (ConnId, Vec<u8>) {
    let config = StackConfig::default().with(|config| config.addresses.push("10.0.0.2".parse().unwrap()));
    let mut server = Stack::new(Arc::new(config), LinkCaps::plain(1_500), [2; 32]);
    server.listen("10.0.0.2:7".parse().unwrap(), ListenOptions::default()).unwrap();
    let conn = client.connect(now, "10.0.0.2:7".parse().unwrap(), &ConnOptions::default()).unwrap();
    let mut answer = Vec::new();
    for round in 0..3 {
        if round == 1 {
            client.handle_packet(now, arriving(&answer));
            client.conn_mut(conn).unwrap().write(now, &[1; 100]).unwrap();
        }
        while let Some(Transmit { packet, ticket }) = client.poll_transmit(now) {
            let packet = packet.to_vec();
            client.handle_tx(now, ticket, Fate::Left);
            server.handle_packet(now, arriving(&packet));
        }
        // Its ACK may wait for more data.
        let later = now + Duration::from_millis(300);
        server.handle_timeout(if round == 1 { later } else { now });
        while let Some(Transmit { packet, ticket }) = server.poll_transmit(later) {
            answer = packet.to_vec();
            server.handle_tx(later, ticket, Fate::Left);
        }
    }
    (conn, answer)
}

/// A packet as it comes from a device.
pub(super) fn arriving(packet: &[u8]) -> RxPacket<'_> {
    RxPacket { frame: Frame::Slice(packet), checksum: RxChecksum::Verified, gso_size: 0 }
}

/// Writes some of `data`, in one of the ways there are. Returns how much.
fn write(conn: &mut crate::TapedConn<'_>, now: Instant, data: &[u8], random: &mut Random) -> usize {
    if !conn.writable(now) || data.is_empty() {
        return 0;
    }
    let piece = &data[..data.len().min([700, 5_000, 30_000, 200_000][random.below(4)])];
    let flags = WriteFlags { more: random.one_in(5), eor: random.one_in(9) };
    if random.one_in(3) {
        let mut lent = Bytes::copy_from_slice(piece);
        let written = conn.write_bytes_with(now, &mut lent, flags).map(|_| piece.len() - lent.len());
        _ = conn.poll_free(now);
        return written.unwrap_or(0);
    }
    conn.write_with(now, piece, flags).unwrap_or(0)
}
