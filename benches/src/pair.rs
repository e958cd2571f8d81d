//! Two stacks back to back in one thread, no device, no system call: the cost of the protocol alone.
//! The application copies its bytes in at one end and out at the other, as it would through sockets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, bail};
use smoltcp::iface::{Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, PacketMeta};
use smoltcp::socket::tcp;
use taut_core::{
    ConnId, Fate, Frame, Instant, LinkCaps, ListenOptions, Offload, RxChecksum, RxPacket, Transmit, TxPacket,
};
use taut_device::sys::monotonic_ns;

use crate::net::{LOCAL, MTU, PEER, PORT};
use crate::peer::CHUNK;
use crate::stacks::smoltcp::{capabilities, interface, socket};
use crate::stacks::{Stack, Tuning, taut_loop};

/// A packet's memory, of full size and reused, and how much of it the packet uses.
struct Packet {
    memory: Box<[u8]>,
    len: usize,
}

impl Packet {
    fn new() -> Self {
        Self { memory: vec![0; 65_536].into_boxed_slice(), len: 0 }
    }
}

/// One end of a wire in memory. Packets are reused, so in the steady state nothing is allocated or zeroed.
#[derive(Default)]
struct Wire {
    incoming: VecDeque<Packet>,
    outgoing: VecDeque<Packet>,
    /// Shared by both ends.
    spare: Rc<RefCell<Vec<Packet>>>,
}

impl Device for Wire {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        let packet = self.incoming.pop_front()?;
        let reply = TxToken { outgoing: &mut self.outgoing, spare: &self.spare };
        Some((RxToken { packet, spare: &self.spare }, reply))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<TxToken<'_>> {
        Some(TxToken { outgoing: &mut self.outgoing, spare: &self.spare })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut caps = capabilities();
        // Nothing on this wire checks the IP header's sum either.
        caps.checksum.ipv4 = phy::Checksum::None;
        caps
    }
}

struct RxToken<'a> {
    packet: Packet,
    spare: &'a RefCell<Vec<Packet>>,
}

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.packet.memory[..self.packet.len]);
        self.spare.borrow_mut().push(self.packet);
        result
    }
}

struct TxToken<'a> {
    outgoing: &'a mut VecDeque<Packet>,
    spare: &'a RefCell<Vec<Packet>>,
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = self.spare.borrow_mut().pop().unwrap_or_else(Packet::new);
        packet.len = len;
        let result = f(&mut packet.memory[..len]);
        self.outgoing.push_back(packet);
        result
    }

    fn set_meta(&mut self, _: PacketMeta) {}
}

/// One of the two smoltcp stacks.
struct SmoltcpEnd {
    wire: Wire,
    iface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl SmoltcpEnd {
    fn new(socket: tcp::Socket<'static>, address: Ipv4Addr, spare: &Rc<RefCell<Vec<Packet>>>) -> Self {
        let mut wire = Wire { spare: Rc::clone(spare), ..Wire::default() };
        let iface = interface(&mut wire, address, 1);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self { wire, iface, sockets, handle }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn take_in(&mut self, now: smoltcp::time::Instant) {
        let Self { wire, iface, sockets, .. } = self;
        while iface.poll_ingress_single(now, wire, sockets) != PollIngressSingleResult::None {}
    }

    fn put_out(&mut self, now: smoltcp::time::Instant) {
        let Self { wire, iface, sockets, .. } = self;
        while iface.poll_egress(now, wire, sockets) == PollResult::SocketStateChanged {}
    }
}

/// Two smoltcp stacks, one sending to the other. A round is the methods from [`write`](Self::write) to
/// [`ack_in`](Self::ack_in), in their order.
pub struct SmoltcpPair {
    from: SmoltcpEnd,
    to: SmoltcpEnd,
    now: smoltcp::time::Instant,
}

impl SmoltcpPair {
    /// Connected, with socket buffers of `bytes` at the busy ends.
    pub fn new(bytes: usize) -> Result<Self> {
        let spare = Rc::default();
        let mut to = SmoltcpEnd::new(socket(bytes, 4 << 10), PEER, &spare);
        let mut from = SmoltcpEnd::new(socket(4 << 10, bytes), LOCAL, &spare);
        to.socket().listen(PORT).map_err(io::Error::other)?;
        let SmoltcpEnd { iface, sockets, handle, .. } = &mut from;
        let connecting = sockets.get_mut::<tcp::Socket>(*handle);
        connecting.connect(iface.context(), (PEER, PORT), 40_000).map_err(io::Error::other)?;
        let mut pair = Self { from, to, now: smoltcp::time::Instant::ZERO };
        for _ in 0..10 {
            pair.packets_out();
            pair.packets_in();
            pair.ack_out();
            pair.ack_in();
        }
        if !pair.from.socket().may_send() {
            bail!("the two smoltcp stacks did not connect");
        }
        Ok(pair)
    }

    /// The time from here on.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now = smoltcp::time::Instant::from_micros((now_ns / 1_000) as i64);
    }

    /// The application writes; returns the bytes taken.
    pub fn write(&mut self, data: &[u8]) -> Result<usize> {
        Ok(self.from.socket().send_slice(data).map_err(io::Error::other)?)
    }

    /// The sender makes its packets.
    pub fn packets_out(&mut self) {
        self.from.put_out(self.now);
    }

    /// Packets on their way to the receiver, or ACKs on their way back.
    pub fn under_way(&self) -> usize {
        self.from.wire.outgoing.len() + self.to.wire.outgoing.len()
    }

    /// The receiver takes them in.
    pub fn packets_in(&mut self) {
        self.to.wire.incoming.append(&mut self.from.wire.outgoing);
        self.to.take_in(self.now);
    }

    /// The application reads; returns the bytes got.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let socket = self.to.socket();
        let mut got = 0;
        while socket.can_recv() {
            got += socket.recv_slice(into).map_err(io::Error::other)?;
        }
        Ok(got)
    }

    /// The receiver acknowledges.
    pub fn ack_out(&mut self) {
        self.to.put_out(self.now);
    }

    /// The sender takes the ACK in.
    pub fn ack_in(&mut self) {
        self.from.wire.incoming.append(&mut self.to.wire.outgoing);
        self.from.take_in(self.now);
    }
}

/// Two taut stacks, one sending to the other; a super-packet passes as header and slices.
pub struct TautPair {
    pub from: taut_core::Stack,
    pub to: taut_core::Stack,
    pub sender: ConnId,
    pub receiver: ConnId,
}

impl TautPair {
    /// Connected, at the time given.
    pub fn new(now: Instant) -> Result<Self> {
        let caps = LinkCaps::offloading(MTU);
        let (mut from, mut to) = (taut_loop::stack(LOCAL, caps), taut_loop::stack(PEER, caps));
        let listener = to.listen((PEER, PORT).into(), ListenOptions::default())?;
        let sender = from.connect(now, (PEER, PORT).into(), &taut_loop::nodelay())?;
        for _ in 0..10 {
            carry(&mut from, &mut to, now);
            carry(&mut to, &mut from, now);
        }
        let Some((receiver, _)) = to.accept(listener) else { bail!("the two taut stacks did not connect") };
        Ok(Self { from, to, sender, receiver })
    }

    /// Writes, carries, reads, carries the ACKs back; returns the bytes read.
    fn round(&mut self, now: Instant, data: &[u8], into: &mut [u8]) -> Result<usize> {
        taut_loop::write(&mut self.from, self.sender, now, data)?;
        carry(&mut self.from, &mut self.to, now);
        let got = taut_loop::read(&mut self.to, self.receiver, now, into)?;
        carry(&mut self.to, &mut self.from, now);
        self.housekeeping(now);
        Ok(got)
    }

    /// Handles due timers and events, as a driver would.
    pub fn housekeeping(&mut self, now: Instant) {
        for stack in [&mut self.from, &mut self.to] {
            if let Some((at, _)) = stack.poll_timeout()
                && at <= now
            {
                stack.handle_timeout(now);
            }
            while stack.poll_event().is_some() {}
        }
    }
}

/// A packet as its receiver gets it on a wire that verifies checksums and keeps super-packets whole.
pub fn received<'a>(packet: &TxPacket<'a>) -> RxPacket<'a> {
    let gso_size = match packet.offload {
        Offload::Segment { mss, .. } => mss,
        _ => 0,
    };
    let frame = Frame::Gather { header: packet.header, payload: packet.payload };
    RxPacket { frame, checksum: RxChecksum::Verified, gso_size }
}

/// Passes all packets that `from` has to send to `to`.
fn carry(from: &mut taut_core::Stack, to: &mut taut_core::Stack, now: Instant) {
    while let Some(Transmit { packet, ticket }) = from.poll_transmit(now) {
        to.handle_packet(now, received(&packet));
        from.handle_tx(now, ticket, Fate::Left);
    }
}

/// Gbit/s of payload through `round`, which says how many bytes it moved.
fn gbit_per_s(span: Duration, mut round: impl FnMut() -> Result<usize>) -> Result<f64> {
    let mut run = |span_ns: u64| -> Result<f64> {
        let begun = monotonic_ns();
        let mut bytes = 0;
        while monotonic_ns() - begun < span_ns {
            bytes += round()?;
        }
        Ok(bytes as f64 * 8.0 / (monotonic_ns() - begun) as f64)
    };
    let span_ns = span.as_nanos() as u64;
    run(span_ns / 8)?;
    let rate = run(span_ns)?;
    if rate == 0.0 {
        bail!("nothing moved");
    }
    Ok(rate)
}

/// Runs the stack against itself; `None` for a stack that needs a device.
pub fn run(stack: Stack, tuning: &Tuning, span: Duration) -> Result<Option<f64>> {
    crate::cpu::within_pinned(0, || {
        let (data, mut into) = (vec![0x5a; CHUNK], vec![0; CHUNK]);
        match stack {
            Stack::Kernel | Stack::TautBlocking | Stack::TautTokio => Ok(None),
            Stack::Smoltcp => {
                let mut pair = SmoltcpPair::new(tuning.smoltcp_buffer_bytes)?;
                let round = || {
                    pair.set_now(monotonic_ns());
                    pair.write(&data)?;
                    pair.packets_out();
                    pair.packets_in();
                    let got = pair.read(&mut into)?;
                    pair.ack_out();
                    pair.ack_in();
                    Ok(got)
                };
                gbit_per_s(span, round).map(Some)
            }
            Stack::TautLoop => {
                let now = || Instant::from_nanos(monotonic_ns());
                let mut pair = TautPair::new(now())?;
                gbit_per_s(span, || pair.round(now(), &data, &mut into)).map(Some)
            }
        }
    })
}
