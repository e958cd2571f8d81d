//! A queue of our own in front of the device, and a wire behind it: what a driver puts where the path below is slower
//! than the device, so that packets wait where they can be counted. Called by [`Shard`](crate::Shard).
//!
//! ```text
//!   poll_transmit ─▶ copy ─▶ queue (taut_link::Qdisc) ─▶ wire (Delay) ─▶ device
//!                              │            └─▶ handle_tx_completion, or a little later, many at a time
//!                              └─▶ handle_tx_dropped, handle_tx_congested
//! ```
//!
//! A packet is copied once, since the write queue it lies in may move on before it leaves. Its ticket comes back when it
//! leaves the queue: what is on the wire has left the host. Where there is no wire that is when the device has taken it;
//! a device without room keeps it here, first in line. Nothing is sent from within a completion: the stack only notes
//! it, and is asked for packets afterwards.

use std::io;

use taut_core::{
    ConnOptions, Duration, Gather, Instant, LinkCaps, Offload, Stack, StackConfig, Transmit, TxTicket,
};
use taut_device::Device;
use taut_link::{Delay, LinkSpec, Packet, Qdisc, QdiscStats, Spread, Verdict};

/// Most packets that the queue may refuse before the stack is left alone until something has left.
const REFUSALS_AT_ONCE: usize = 64;

/// Most memory kept in buffers that hold no packet.
const SPARE_MAX_BYTES: usize = 4 << 20;

/// Bits that the sums of [`flow`] are spread with: the golden ratio, as in Fibonacci hashing.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What can be known of a queue in front of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkReport {
    /// As it was configured.
    pub spec: LinkSpec,
    /// Bytes that wait, headers included.
    pub backlog_bytes: u64,
    /// Packets that wait, a super-packet being one.
    pub backlog_packets: usize,
    /// How long the packet that left last had waited.
    pub sojourn: Duration,
    /// Packets on the wire behind the queue.
    pub wire_packets: usize,
    /// Counts, as `tc -s qdisc` has them.
    pub stats: QdiscStats,
    /// `backlog_bytes` as each packet that was taken made it.
    pub backlogs: Spread,
    /// How long each packet waited, in nanoseconds.
    pub sojourns: Spread,
}

/// The queue, the wire, and the packets in them.
pub(crate) struct Front {
    spec: LinkSpec,
    queue: Box<dyn Qdisc<Slot> + Send>,
    wire: Option<Delay<Slot>>,
    frames: Frames,
    /// Next for the device, which had no room for it.
    stuck: Option<Packet<Slot>>,
    /// Tickets of packets that have left, of which the stack is told at `tell_at`.
    left: Vec<TxTicket>,
    tell_at: Option<Instant>,
    /// Goes along to the device with packets whose own ticket came back before.
    spare_ticket: Option<TxTicket>,
    requeues: u64,
    sojourn: Duration,
    backlogs: Spread,
    sojourns: Spread,
}

impl Front {
    pub(crate) fn new(spec: LinkSpec) -> Box<Self> {
        Self::over(spec, Box::new(spec.shaper()))
    }

    fn over(spec: LinkSpec, queue: Box<dyn Qdisc<Slot> + Send>) -> Box<Self> {
        let wire = spec.wire();
        Box::new(Self {
            spec,
            queue,
            spare_ticket: wire.as_ref().and_then(|_| spare_ticket()),
            wire,
            frames: Frames::default(),
            stuck: None,
            left: Vec::new(),
            tell_at: None,
            requeues: 0,
            sojourn: Duration::ZERO,
            backlogs: Spread::default(),
            sojourns: Spread::default(),
        })
    }

    pub(crate) fn report(&self) -> LinkReport {
        let mut stats = self.queue.stats();
        stats.requeues += self.requeues;
        let stuck = self.stuck.as_ref().filter(|_| self.wire.is_none());
        LinkReport {
            spec: self.spec,
            backlog_bytes: self.queue.backlog_bytes() + stuck.map_or(0, |packet| u64::from(packet.len)),
            backlog_packets: self.queue.backlog_packets() + usize::from(stuck.is_some()),
            sojourn: self.sojourn,
            wire_packets: self
                .wire
                .as_ref()
                .map_or(0, |wire| wire.backlog_packets() + usize::from(self.stuck.is_some())),
            stats,
            backlogs: self.backlogs.clone(),
            sojourns: self.sojourns.clone(),
        }
    }

    /// When there is something to do here, other than wait for the device.
    pub(crate) fn next(&self) -> Option<Instant> {
        let has_room = self.stuck.is_none();
        let wire = self.wire.as_ref().filter(|_| has_room).and_then(Qdisc::next);
        let queue = (has_room || self.wire.is_some()).then(|| self.queue.next()).flatten();
        [queue, wire, self.tell_at].into_iter().flatten().min()
    }

    /// Takes what the stack has.
    pub(crate) fn take(&mut self, now: Instant, stack: &mut Stack) {
        let mut refusals = 0;
        while refusals < REFUSALS_AT_ONCE {
            let Some(transmit) = stack.poll_transmit(now) else { return };
            let packet = self.frames.put(now, transmit);
            let slot = packet.item;
            match self.queue.enqueue(now, packet) {
                Verdict::Taken => self.backlogs.record(self.queue.backlog_bytes()),
                Verdict::Congested => {
                    self.backlogs.record(self.queue.backlog_bytes());
                    if let Some(ticket) = self.frames.ticket(slot) {
                        stack.handle_tx_congested(now, ticket);
                    }
                }
                Verdict::Dropped(packet) => {
                    refusals += 1;
                    if let Some(ticket) = self.frames.take_ticket(packet.item) {
                        stack.handle_tx_dropped(now, ticket);
                    }
                    self.frames.free(packet.item);
                }
            }
            self.throw_out(now, stack);
        }
    }

    /// Lets go what is due: from the queue to the wire and, if it `has_room`, from there to the device. Says whether
    /// anything moved.
    ///
    /// # Errors
    /// That of a device without room. The packet stays here; offer again when it has some.
    pub(crate) fn release<D: Device>(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        device: &mut D,
        has_room: bool,
    ) -> io::Result<bool> {
        let moved = self.fill_wire(now, stack);
        if !has_room {
            return Ok(moved);
        }
        Ok(self.offer(now, stack, device)? || moved)
    }

    /// From the queue to the wire, if there is one.
    fn fill_wire(&mut self, now: Instant, stack: &mut Stack) -> bool {
        let Some(mut wire) = self.wire.take() else { return false };
        let mut moved = false;
        while let Some(packet) = self.dequeue(now, stack) {
            moved = true;
            if let Some(ticket) = self.frames.take_ticket(packet.item) {
                self.complete(now, stack, ticket);
            }
            if let Verdict::Dropped(packet) = wire.enqueue(now, packet) {
                self.frames.free(packet.item);
            }
        }
        self.wire = Some(wire);
        moved
    }

    /// From the wire, or the queue where there is none, to the device.
    fn offer<D: Device>(&mut self, now: Instant, stack: &mut Stack, device: &mut D) -> io::Result<bool> {
        let mut moved = false;
        loop {
            let next = self.stuck.take().or_else(|| match &mut self.wire {
                Some(wire) => wire.dequeue(now),
                None => self.dequeue(now, stack),
            });
            let Some(packet) = next else { return Ok(moved) };
            let own = self.frames.take_ticket(packet.item);
            let Some(ticket) = own.or_else(|| self.spare_ticket.take()) else {
                self.frames.free(packet.item);
                continue;
            };
            let transmit = self.frames.get(packet.item, ticket);
            let sent = device.send(&transmit);
            let ticket = transmit.ticket;
            let refused = sent.err().filter(is_congestion);
            if self.wire.is_some() {
                self.spare_ticket = Some(ticket);
            } else if refused.is_some() {
                self.frames.put_back(packet.item, ticket);
            } else {
                // A packet that the device will never take is lost like any other.
                self.complete(now, stack, ticket);
            }
            if let Some(error) = refused {
                self.requeues += 1;
                self.stuck = Some(packet);
                return Err(error);
            }
            self.frames.free(packet.item);
            moved = true;
        }
    }

    /// Tells the stack of packets that have left, if it is time to.
    pub(crate) fn tell(&mut self, now: Instant, stack: &mut Stack) {
        if self.tell_at.take_if(|at| *at <= now).is_some() {
            for ticket in self.left.drain(..) {
                stack.handle_tx_completion(now, ticket);
            }
        }
    }

    fn dequeue(&mut self, now: Instant, stack: &mut Stack) -> Option<Packet<Slot>> {
        let packet = self.queue.dequeue(now);
        self.throw_out(now, stack);
        let packet = packet?;
        self.sojourn = now.since(self.frames.entered(packet.item));
        self.sojourns.record(self.sojourn.as_nanos());
        Some(packet)
    }

    /// A packet has left the host.
    fn complete(&mut self, now: Instant, stack: &mut Stack, ticket: TxTicket) {
        if self.spec.completion_delay.is_zero() {
            stack.handle_tx_completion(now, ticket);
        } else {
            self.left.push(ticket);
            self.tell_at.get_or_insert(now + self.spec.completion_delay);
        }
    }

    /// The queue threw a packet out that it had taken: lost, like any other on its way.
    fn throw_out(&mut self, now: Instant, stack: &mut Stack) {
        while let Some(packet) = self.queue.poll_dropped() {
            if let Some(ticket) = self.frames.take_ticket(packet.item) {
                stack.handle_tx_completion(now, ticket);
            }
            self.frames.free(packet.item);
        }
    }
}

/// The device is full, as opposed to: the packet is impossible.
pub(crate) fn is_congestion(error: &io::Error) -> bool {
    // ENOBUFS has no ErrorKind of its own.
    const ENOBUFS: i32 = 105;
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
        || error.raw_os_error() == Some(ENOBUFS)
}

/// A ticket that nobody waits for: a [`Transmit`] has one, also when its packet's own came back already. Only a stack
/// makes tickets, so one is taken from a stack that is thrown away.
fn spare_ticket() -> Option<TxTicket> {
    let config = StackConfig { addresses: vec![[127, 0, 0, 1].into()], ..StackConfig::default() };
    let mut stack = Stack::new(config.into(), LinkCaps::plain(1500), [0; 32]);
    let now = Instant::from_nanos(1);
    stack.connect(now, ([127, 0, 0, 2], 1).into(), &ConnOptions::default()).ok()?;
    stack.poll_transmit(now).map(|transmit| transmit.ticket)
}

/// A packet's place in [`Frames`].
type Slot = u32;

/// Packets by slot. A slot keeps its buffer, so that nothing is allocated once packets flow.
#[derive(Default)]
struct Frames {
    slots: Vec<Frame>,
    free: Vec<Slot>,
    /// Capacity of the buffers of free slots.
    spare_bytes: usize,
}

#[derive(Default)]
struct Frame {
    buffer: Vec<u8>,
    header_len: usize,
    offload: Option<Offload>,
    departure: Instant,
    entered: Instant,
    ticket: Option<TxTicket>,
}

impl Frames {
    fn put(&mut self, now: Instant, transmit: Transmit<'_>) -> Packet<Slot> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Frame::default());
            (self.slots.len() - 1) as Slot
        });
        let Transmit { header, payload, offload, departure, ticket } = transmit;
        let frame = &mut self.slots[slot as usize];
        self.spare_bytes -= frame.buffer.capacity();
        frame.buffer.clear();
        frame.buffer.reserve(header.len() + payload.len());
        frame.buffer.extend_from_slice(header);
        payload.slices().iter().for_each(|piece| frame.buffer.extend_from_slice(piece));
        (frame.header_len, frame.offload) = (header.len(), Some(offload));
        (frame.departure, frame.entered, frame.ticket) = (departure, now, Some(ticket));
        let segs = match offload {
            Offload::Segment { mss, .. } => payload.len().div_ceil(usize::from(mss.max(1))).max(1),
            Offload::None | Offload::Checksum { .. } => 1,
        };
        let len = u32::try_from(payload.len() + segs * header.len()).unwrap_or(u32::MAX);
        let segs = u16::try_from(segs).unwrap_or(u16::MAX);
        Packet { segs, departure, flow: flow(header), ..Packet::new(len, slot) }
    }

    fn get(&self, slot: Slot, ticket: TxTicket) -> Transmit<'_> {
        let frame = &self.slots[slot as usize];
        let (header, payload) = frame.buffer.split_at(frame.header_len);
        let offload = frame.offload.unwrap_or(Offload::None);
        Transmit { header, payload: Gather::from(payload), offload, departure: frame.departure, ticket }
    }

    fn entered(&self, slot: Slot) -> Instant {
        self.slots[slot as usize].entered
    }

    fn ticket(&self, slot: Slot) -> Option<&TxTicket> {
        self.slots[slot as usize].ticket.as_ref()
    }

    fn take_ticket(&mut self, slot: Slot) -> Option<TxTicket> {
        self.slots[slot as usize].ticket.take()
    }

    fn put_back(&mut self, slot: Slot, ticket: TxTicket) {
        self.slots[slot as usize].ticket = Some(ticket);
    }

    fn free(&mut self, slot: Slot) {
        let frame = &mut self.slots[slot as usize];
        if self.spare_bytes + frame.buffer.capacity() > SPARE_MAX_BYTES {
            frame.buffer = Vec::new();
        }
        self.spare_bytes += frame.buffer.capacity();
        self.free.push(slot);
    }
}

/// The same number for every packet of a connection: addresses and ports, mixed. `header` begins with the IP header.
fn flow(header: &[u8]) -> u64 {
    let (addresses, ports) = match header.first().map(|first| first >> 4) {
        Some(4) => {
            let ports = usize::from(header[0] & 15) * 4;
            (12..20, ports..ports + 4)
        }
        Some(6) => (8..40, 40..44),
        _ => return 0,
    };
    let words = [addresses, ports]
        .into_iter()
        .filter_map(|range| header.get(range))
        .flat_map(|bytes| bytes.chunks(4));
    words.fold(0, |sum: u64, word| {
        let word = word.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        (sum.rotate_left(5) ^ word).wrapping_mul(SPREAD)
    })
}

#[cfg(test)]
mod tests {
    use taut_core::{ConnId, Event, Frame as RxFrame, RxPacket};
    use taut_device::{BUFFER_LEN, Pipe, pipe};

    use super::*;

    /// Takes everything and says each time that it is too much.
    #[derive(Debug)]
    struct Complaining(taut_link::Fifo<Slot>);

    impl Qdisc<Slot> for Complaining {
        fn enqueue(&mut self, now: Instant, packet: Packet<Slot>) -> Verdict<Slot> {
            match self.0.enqueue(now, packet) {
                Verdict::Taken => Verdict::Congested,
                verdict => verdict,
            }
        }
        fn dequeue(&mut self, now: Instant) -> Option<Packet<Slot>> {
            self.0.dequeue(now)
        }
        fn next(&self) -> Option<Instant> {
            self.0.next()
        }
        fn evict(&mut self) -> Option<Packet<Slot>> {
            self.0.evict()
        }
        fn backlog_bytes(&self) -> u64 {
            self.0.backlog_bytes()
        }
        fn backlog_packets(&self) -> usize {
            self.0.backlog_packets()
        }
        fn stats(&self) -> QdiscStats {
            self.0.stats()
        }
    }

    /// A sender behind a front, and a receiver, over a pipe.
    struct World {
        now: Instant,
        front: Box<Front>,
        sender: Stack,
        receiver: Stack,
        ends: (Pipe, Pipe),
        has_room: bool,
        conn: ConnId,
        accepted: Option<ConnId>,
        sent: Vec<u8>,
        got: Vec<u8>,
    }

    impl World {
        fn new(front: Box<Front>, pipe_bytes: usize) -> Self {
            let stack = |ip: [u8; 4]| {
                let config = StackConfig { addresses: vec![ip.into()], ..StackConfig::default() };
                Stack::new(config.into(), LinkCaps::offloading(1500), [3; 32])
            };
            let (mut sender, mut receiver) = (stack([10, 0, 0, 1]), stack([10, 0, 0, 2]));
            let now = Instant::from_nanos(1_000_000_000);
            receiver.listen(([10, 0, 0, 2], 7).into(), Default::default()).unwrap();
            let conn = sender.connect(now, ([10, 0, 0, 2], 7).into(), &ConnOptions::default()).unwrap();
            let ends = pipe(LinkCaps::offloading(1500), pipe_bytes).unwrap();
            let (sent, got) = (Vec::new(), Vec::new());
            let mut world =
                Self { now, front, sender, receiver, ends, has_room: true, conn, accepted: None, sent, got };
            world.run_until(|world| world.accepted.is_some());
            world
        }

        fn write(&mut self, len: usize) {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
            let mut at = 0;
            while at < len {
                let wrote =
                    self.sender.conn_mut(self.conn).unwrap().write(self.now, &data[at..]).unwrap_or(0);
                at += wrote;
                if wrote == 0 {
                    self.advance();
                }
            }
            self.sent.extend(data);
        }

        /// The sender's driver, once.
        fn transmit(&mut self) {
            loop {
                self.front.tell(self.now, &mut self.sender);
                self.front.take(self.now, &mut self.sender);
                let (front, device) = (&mut self.front, &mut self.ends.0);
                match front.release(self.now, &mut self.sender, device, self.has_room) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(_) => return self.has_room = false,
                }
            }
        }

        /// The rest of the world, once. Whether anything happened.
        fn receive(&mut self) -> bool {
            let mut any = false;
            let mut buffer = vec![0; BUFFER_LEN];
            let now = self.now;
            let mut take = |end: &mut Pipe, stack: &mut Stack| {
                while let Ok(received) = end.recv(&mut buffer) {
                    any = true;
                    let frame = RxFrame::Slice(&buffer[received.range]);
                    let packet = RxPacket { frame, checksum: received.checksum, gso_size: received.gso_size };
                    stack.handle_packet(now, packet);
                }
            };
            take(&mut self.ends.1, &mut self.receiver);
            while let Some(event) = self.receiver.poll_event() {
                if let Event::Incoming(listener) = event {
                    self.accepted = self.receiver.accept(listener).map(|(id, _)| id);
                }
            }
            if let Some(mut conn) = self.accepted.and_then(|id| self.receiver.conn_mut(id)) {
                let mut some = [0; 4096];
                while let Ok(count @ 1..) = conn.read(self.now, &mut some) {
                    self.got.extend_from_slice(&some[..count]);
                }
            }
            while let Some(transmit) = self.receiver.poll_transmit(self.now) {
                self.ends.1.send(&transmit).unwrap();
                let ticket = transmit.ticket;
                self.receiver.handle_tx_completion(self.now, ticket);
            }
            take(&mut self.ends.0, &mut self.sender);
            self.has_room = true;
            any
        }

        /// Packets go to and fro, at this time.
        fn exchange(&mut self) {
            loop {
                self.transmit();
                if !self.receive() {
                    return;
                }
            }
        }

        /// To whatever comes next.
        fn advance(&mut self) {
            self.exchange();
            let next = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
            let next = next.into_iter().flatten().map(|(at, _)| at).chain(self.front.next()).min();
            self.now = next.unwrap_or(self.now).max(self.now + Duration::from_nanos(1));
            self.sender.handle_timeout(self.now);
            self.receiver.handle_timeout(self.now);
            self.exchange();
        }

        fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
            for _ in 0..1_000_000 {
                if done(self) {
                    return;
                }
                self.advance();
            }
            panic!("it never came to pass");
        }

        fn wmem_alloc(&mut self) -> u32 {
            self.sender.conn_mut(self.conn).unwrap().info(self.now).wmem_alloc
        }

        /// All bytes arrive as they were sent, and nothing stays charged or kept.
        fn finish(mut self) -> Self {
            self.run_until(|world| world.got.len() >= world.sent.len() && world.front.next().is_none());
            assert!(self.got == self.sent, "bytes intact and in order");
            assert_eq!(self.wmem_alloc(), 0);
            assert_eq!(self.front.frames.free.len(), self.front.frames.slots.len(), "no packet is kept");
            assert!(self.front.frames.spare_bytes <= SPARE_MAX_BYTES);
            let report = self.front.report();
            assert_eq!((report.backlog_bytes, report.backlog_packets, report.wire_packets), (0, 0, 0));
            self
        }
    }

    fn spec(text: &str) -> LinkSpec {
        text.parse().unwrap()
    }

    #[test]
    fn a_line_carries_its_rate_and_no_more() {
        let mut world = World::new(Front::new(spec("rate 100mbit burst 0")), usize::MAX);
        let (start, before) = (world.now, world.front.report().stats.sent_bytes);
        world.write(5_000_000);
        let world = world.finish();
        let bytes = world.front.report().stats.sent_bytes - before;
        // Each segment of up to 1448 bytes has 52 of headers.
        assert!(bytes >= 5_000_000 + 5_000_000 / 1448 * 52, "{bytes}");
        let (took, least) = (world.now.since(start), spec("rate 100mbit").rate.unwrap().time_for(bytes));
        assert!(took >= least, "{took:?} for {bytes} bytes");
        assert!(
            took.as_nanos() < least.as_nanos() * 105 / 100,
            "the line was kept busy: {took:?}, {least:?}"
        );
        assert_eq!(world.front.report().stats.dropped, 0);
    }

    #[test]
    fn a_device_without_room_keeps_packets_here_in_order() {
        // The pipe takes one packet at a time.
        for text in ["", "delay 3ms"] {
            let mut world = World::new(Front::new(spec(text)), 1);
            world.write(1_000_000);
            let world = world.finish();
            assert!(world.front.report().stats.requeues > 10, "{:?}", world.front.report());
        }
    }

    #[test]
    fn a_packet_that_the_device_refused_is_not_completed() {
        let mut world = World::new(Front::new(spec("")), 1);
        world.write(30_000);
        world.transmit();
        assert!(!world.has_room);
        let report = world.front.report();
        assert!(report.backlog_packets > 0 && report.backlog_bytes > 1_000, "{report:?}");
        assert!(world.wmem_alloc() > 1_000);
        assert_eq!(world.front.next(), None, "nothing to do before the device has room");
        world.finish();
    }

    #[test]
    fn a_ticket_comes_back_when_the_packet_is_on_the_wire() {
        let mut world = World::new(Front::new(spec("rate 8gbit delay 20ms")), usize::MAX);
        world.run_until(|world| world.front.next().is_none());
        world.write(1_000);
        let sent_at = world.now;
        world.exchange();
        assert_eq!((world.front.report().wire_packets, world.wmem_alloc()), (1, 0));
        assert!(world.got.is_empty());
        world.run_until(|world| !world.got.is_empty());
        assert_eq!(world.now.since(sent_at).as_millis(), 20);
        world.finish();
    }

    #[test]
    fn completions_are_collected() {
        let mut world = World::new(Front::new(spec("tx-usecs 16us")), usize::MAX);
        world.run_until(|world| world.front.next().is_none());
        world.write(1_000);
        let sent_at = world.now;
        world.transmit();
        assert!(world.wmem_alloc() > 1_000, "it has left, but nobody said so");
        assert_eq!(world.front.next(), Some(sent_at + Duration::from_micros(16)));
        world.now = sent_at + Duration::from_micros(16);
        world.transmit();
        assert_eq!(world.wmem_alloc(), 0);
        world.finish();
    }

    #[test]
    fn what_the_queue_refuses_is_sent_again() {
        let mut world = World::new(Front::new(spec("rate 10mbit limit 9000b")), usize::MAX);
        world.write(1_000_000);
        let world = world.finish();
        assert!(world.front.report().stats.dropped > 0);
        assert_eq!(world.sender.counters().retrans_segs, 0, "what was refused here was never sent");
    }

    #[test]
    fn a_queue_that_complains_has_the_packet_all_the_same() {
        let queue = Box::new(Complaining(taut_link::Fifo::packets(100)));
        let mut world = World::new(Front::over(spec(""), queue), usize::MAX);
        let window = |world: &mut World| world.sender.conn_mut(world.conn).unwrap().info(world.now).snd_cwnd;
        let before = window(&mut world);
        world.write(1_000_000);
        let mut world = world.finish();
        assert_eq!(world.sender.counters().retrans_segs, 0);
        assert!(window(&mut world) < before, "the sender slowed down");
    }

    #[test]
    fn wire_lengths_count_the_headers_of_every_segment() {
        let mut world = World::new(Front::new(spec("rate 8mbit")), usize::MAX);
        world.run_until(|world| world.front.next().is_none());
        let before = world.front.report().stats;
        world.write(1448 * 3);
        let world = world.finish();
        let after = world.front.report().stats;
        assert_eq!(after.sent_packets - before.sent_packets, 3);
        assert_eq!(after.sent_bytes - before.sent_bytes, 3 * 1_500);
    }

    #[test]
    fn a_flow_is_told_by_addresses_and_ports() {
        let v4 = |port: u8| {
            let mut header = [0; 40];
            (header[0], header[15], header[19], header[21]) = (0x45, 1, 2, port);
            flow(&header)
        };
        assert_eq!(v4(1), v4(1));
        assert_ne!(v4(1), v4(2));
        let v6 = |port: u8| {
            let mut header = [0; 60];
            (header[0], header[23], header[41]) = (0x60, 1, port);
            flow(&header)
        };
        assert_eq!(v6(1), v6(1));
        assert_ne!(v6(1), v6(2));
        assert_eq!(flow(&[]), 0);
    }

    #[test]
    fn the_spare_ticket_is_there() {
        assert!(spare_ticket().is_some());
    }
}
