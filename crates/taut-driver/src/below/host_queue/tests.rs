//! A sender behind a queue: the effects of the queue, its wire and its device, and that replacing them loses
//! nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use taut_core::{
    ConnOptions, Event, Fate, Frame, LinkCaps, Offload, RxChecksum, RxPacket, Stack, StackConfig, Transmit,
};
use taut_link::{Fifo, Packet, Qdisc, Verdict};

use super::store::PacketRef;
use super::waiting::Queue;
use super::*;

/// Takes every packet, and reports each time that it is congested.
#[derive(Debug)]
struct Complaining(Fifo<PacketRef>);

impl Qdisc<PacketRef> for Complaining {
    fn enqueue(&mut self, now: Instant, packet: Packet<PacketRef>) -> Verdict<PacketRef> {
        match self.0.enqueue(now, packet) {
            Verdict::Taken => Verdict::Congested,
            verdict => verdict,
        }
    }
    fn dequeue(&mut self, now: Instant) -> Option<Packet<PacketRef>> {
        self.0.dequeue(now)
    }
    fn next(&self) -> Option<Instant> {
        self.0.next()
    }
    fn evict(&mut self) -> Option<Packet<PacketRef>> {
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

impl Queue for Complaining {
    fn reports(&self) -> Vec<QdiscReport> {
        Vec::new()
    }
}

/// A packet's bytes, whether its checksum is left out, payload bytes a segment.
type OnLine = (Vec<u8>, RxChecksum, u16);

/// One direction of a line in memory, and the device that sends on it. Packets wait in it until they are
/// taken.
#[derive(Clone)]
struct Line {
    packets: Arc<Mutex<VecDeque<OnLine>>>,
    /// It takes packets while it holds fewer bytes than this.
    limit_bytes: usize,
}

impl Line {
    fn new(limit_bytes: usize) -> Self {
        Self { packets: Arc::default(), limit_bytes }
    }

    fn take(&self) -> Option<(Vec<u8>, RxChecksum, u16)> {
        self.packets.lock().unwrap().pop_front()
    }
}

impl TxDevice for Line {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let mut packets = self.packets.lock().unwrap();
        if packets.iter().map(|(bytes, ..)| bytes.len()).sum::<usize>() >= self.limit_bytes {
            return Sent::Full(ticket);
        }
        let (checksum, gso_size) = match packet.offload {
            Offload::None => (RxChecksum::Unverified, 0),
            Offload::Checksum { .. } => (RxChecksum::Verified, 0),
            Offload::Segment { mss, .. } => (RxChecksum::Verified, mss),
        };
        packets.push_back((packet.to_vec(), checksum, gso_size));
        Sent::Left(ticket)
    }
}

/// A sender behind a queue, and a receiver.
struct World {
    now: Instant,
    queue: HostQueue,
    sender: Stack,
    receiver: Stack,
    there: Line,
    back: Line,
    conn: ConnId,
    accepted: Option<ConnId>,
    sent: Vec<u8>,
    got: Vec<u8>,
    /// The highest sequence number that came to the receiver, and packets that came behind it.
    last_seq: u32,
    turned_around: u32,
}

impl World {
    /// A sender behind a discipline in the syntax of `tc`.
    fn behind(qdisc: &str) -> Self {
        Self::new(Waiting::of(&qdisc.parse().unwrap(), 5), usize::MAX)
    }

    fn replace(&mut self, qdisc: &str) {
        self.queue.set_now(self.now);
        self.queue.set_qdisc(Some(&qdisc.parse().unwrap()), 5);
    }

    fn new(waiting: Box<Waiting>, line_bytes: usize) -> Self {
        let stack = |ip: [u8; 4]| {
            let config = StackConfig::default().with(|config| config.addresses.push(ip.into()));
            Stack::new(config.into(), LinkCaps::offloading(1500), [3; 32])
        };
        let (mut sender, mut receiver) = (stack([10, 0, 0, 1]), stack([10, 0, 0, 2]));
        let now = Instant::from_nanos(1_000_000_000);
        receiver.listen(([10, 0, 0, 2], 7).into(), Default::default()).unwrap();
        let conn = sender.connect(now, ([10, 0, 0, 2], 7).into(), &ConnOptions::default()).unwrap();
        let (there, back) = (Line::new(line_bytes), Line::new(usize::MAX));
        let queue = HostQueue::over(Box::new(there.clone()), LinkCaps::plain(1_500), Some(waiting));
        let (sent, got) = (Vec::new(), Vec::new());
        let mut world = Self {
            now,
            queue,
            sender,
            receiver,
            there,
            back,
            conn,
            accepted: None,
            sent,
            got,
            last_seq: 0,
            turned_around: 0,
        };
        world.run_until(|world| world.accepted.is_some());
        world
    }

    fn report(&self) -> LinkReport {
        self.queue.report().unwrap()
    }

    /// Something waits in the queue, on the wire, or for the device.
    fn keeps_packets(&self) -> bool {
        self.queue.waiting.as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    fn write(&mut self, len: usize) {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut at = 0;
        while at < len {
            let wrote = self.sender.conn_mut(self.conn).unwrap().write(self.now, &data[at..]).unwrap_or(0);
            at += wrote;
            if wrote == 0 {
                self.advance();
            }
        }
        self.sent.extend(data);
    }

    /// The sender's driver, once.
    fn transmit(&mut self) {
        let Self { now, queue, sender, .. } = self;
        let now = *now;
        queue.set_now(now);
        loop {
            while queue.has_room() {
                let Some(Transmit { packet, ticket }) = sender.poll_transmit(now) else { break };
                match queue.send(&packet, ticket) {
                    Sent::Left(ticket) | Sent::Never(ticket, _) => sender.handle_tx(now, ticket, Fate::Left),
                    Sent::Kept => {}
                    Sent::Full(ticket) => sender.handle_tx(now, ticket, Fate::Refused),
                    Sent::Dropped(ticket) => sender.handle_tx(now, ticket, Fate::Dropped),
                }
                while let Some(conn) = queue.poll_congested() {
                    sender.handle_tx_congestion(now, conn);
                }
            }
            let mut moved = queue.release();
            while let Some(ticket) = queue.poll_done() {
                sender.handle_tx(now, ticket, Fate::Left);
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    /// The rest of the world, once. Whether anything happened.
    fn receive(&mut self) -> bool {
        let mut any = false;
        let now = self.now;
        let (last_seq, turned_around) = (&mut self.last_seq, &mut self.turned_around);
        let mut take = |line: &Line, stack: &mut Stack, to_receiver: bool| {
            while let Some((bytes, checksum, gso_size)) = line.take() {
                any = true;
                let tcp = &bytes[20..];
                let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
                if to_receiver {
                    *turned_around += u32::from(seq.wrapping_sub(*last_seq) > u32::MAX / 2 && *last_seq != 0);
                    *last_seq = seq;
                }
                stack.handle_packet(now, RxPacket { frame: Frame::Slice(&bytes), checksum, gso_size });
            }
        };
        take(&self.there, &mut self.receiver, true);
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
        while let Some(Transmit { packet, ticket }) = self.receiver.poll_transmit(self.now) {
            let Sent::Left(ticket) = self.back.send(&packet, ticket) else { panic!("the line has room") };
            self.receiver.handle_tx(self.now, ticket, Fate::Left);
        }
        take(&self.back, &mut self.sender, false);
        self.queue.retry();
        any
    }

    /// Exchanges packets in both directions, at this time.
    fn exchange(&mut self) {
        loop {
            self.transmit();
            if !self.receive() {
                return;
            }
        }
    }

    /// Advances to the next event.
    fn advance(&mut self) {
        self.exchange();
        let next = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
        let next = next.into_iter().flatten().map(|(at, _)| at).chain(self.queue.next()).min();
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
        panic!("the condition never became true");
    }

    fn wmem_alloc(&mut self) -> u32 {
        self.sender.conn(self.conn).unwrap().info(self.now).wmem_alloc
    }

    /// All bytes arrive as they were sent, and nothing stays charged or kept.
    fn finish(mut self) -> Self {
        self.run_until(|world| world.got.len() >= world.sent.len() && world.queue.next().is_none());
        assert!(self.got == self.sent, "bytes intact and in order");
        assert_eq!(self.wmem_alloc(), 0);
        assert!(!self.keeps_packets(), "no packet is kept");
        if let Some(report) = self.queue.report() {
            assert_eq!((report.backlog_bytes, report.backlog_packets, report.wire_packets), (0, 0, 0));
        }
        self
    }
}

fn spec(text: &str) -> LinkSpec {
    text.parse().unwrap()
}

#[test]
fn a_line_carries_its_rate_and_no_more() {
    let mut world = World::new(Waiting::behind(spec("rate 100mbit burst 0")), usize::MAX);
    let (start, before) = (world.now, world.report().stats.sent_bytes);
    world.write(5_000_000);
    let world = world.finish();
    let bytes = world.report().stats.sent_bytes - before;
    // Each segment of up to 1448 bytes has 52 of headers.
    assert!(bytes >= 5_000_000 + 5_000_000 / 1448 * 52, "{bytes}");
    let (took, least) = (world.now.since(start), spec("rate 100mbit").rate.unwrap().time_for(bytes));
    assert!(took >= least, "{took:?} for {bytes} bytes");
    assert!(took.as_nanos() < least.as_nanos() * 105 / 100, "the line was kept busy: {took:?}, {least:?}");
    assert_eq!(world.report().stats.dropped, 0);
}

#[test]
fn a_device_without_room_keeps_packets_here_in_order() {
    // The line takes one packet at a time.
    for text in ["", "delay 3ms"] {
        let mut world = World::new(Waiting::behind(spec(text)), 1);
        world.write(1_000_000);
        let world = world.finish();
        assert!(world.report().stats.requeues > 10, "{:?}", world.report());
    }
}

#[test]
fn a_packet_that_the_device_refused_is_not_completed() {
    let mut world = World::new(Waiting::behind(spec("")), 1);
    world.write(30_000);
    world.transmit();
    assert!(world.queue.is_full());
    let report = world.report();
    assert!(report.backlog_packets > 0 && report.backlog_bytes > 1_000, "{report:?}");
    assert!(world.wmem_alloc() > 1_000);
    assert_eq!(world.queue.next(), None, "nothing to do before the device has room");
    world.finish();
}

/// Without a queue: a device that was full is offered nothing before it has announced room.
#[test]
fn a_full_device_is_left_alone_until_it_has_room() {
    let line = Line::new(1);
    let mut queue = HostQueue::new(Box::new(line.clone()), LinkCaps::plain(1_500), None);
    let packet = TxPacket::whole(&[0; 60]);
    assert!(matches!(queue.send(&packet, TxTicket::blank()), Sent::Left(_)));
    assert!(queue.has_room() && !queue.is_full());
    assert!(matches!(queue.send(&packet, TxTicket::blank()), Sent::Full(_)));
    line.take().unwrap();
    for _ in 0..3 {
        // Time passes, and the driver does what it does after every use of the stack.
        assert!(!queue.release());
        assert!(!queue.has_room() && queue.is_full());
    }
    queue.retry();
    assert!(queue.has_room() && !queue.is_full());
    assert!(matches!(queue.send(&packet, TxTicket::blank()), Sent::Left(_)));
}

#[test]
fn a_ticket_comes_back_when_the_packet_is_on_the_wire() {
    let mut world = World::new(Waiting::behind(spec("rate 8gbit delay 20ms")), usize::MAX);
    world.run_until(|world| world.queue.next().is_none());
    world.write(1_000);
    let sent_at = world.now;
    world.exchange();
    assert_eq!((world.report().wire_packets, world.wmem_alloc()), (1, 0));
    assert!(world.got.is_empty());
    world.run_until(|world| !world.got.is_empty());
    assert_eq!(world.now.since(sent_at).as_millis(), 20);
    world.finish();
}

#[test]
fn completions_are_collected() {
    let mut world = World::new(Waiting::behind(spec("tx-usecs 16us")), usize::MAX);
    world.run_until(|world| world.queue.next().is_none());
    world.write(1_000);
    let sent_at = world.now;
    world.transmit();
    assert!(world.wmem_alloc() > 1_000, "it has left, but that was not reported");
    assert_eq!(world.queue.next(), Some(sent_at + Duration::from_micros(16)));
    world.now = sent_at + Duration::from_micros(16);
    world.transmit();
    assert_eq!(world.wmem_alloc(), 0);
    world.finish();
}

#[test]
fn what_the_queue_refuses_is_sent_again() {
    let mut world = World::new(Waiting::behind(spec("rate 10mbit limit 9000b")), usize::MAX);
    world.write(1_000_000);
    let world = world.finish();
    assert!(world.report().stats.dropped > 0);
    assert_eq!(world.sender.counters().retrans_segs, 0, "what was refused here was never sent");
}

#[test]
fn a_queue_that_complains_has_the_packet_all_the_same() {
    let queue = Box::new(Complaining(taut_link::Fifo::packets(100)));
    let mut world = World::new(Waiting::over(spec(""), queue), usize::MAX);
    let window = |world: &mut World| world.sender.conn(world.conn).unwrap().info(world.now).snd_cwnd;
    let before = window(&mut world);
    world.write(1_000_000);
    let mut world = world.finish();
    assert_eq!(world.sender.counters().retrans_segs, 0);
    assert!(window(&mut world) < before, "the sender slowed down");
}

#[test]
fn wire_lengths_count_the_headers_of_every_segment() {
    let mut world = World::new(Waiting::behind(spec("rate 8mbit")), usize::MAX);
    world.run_until(|world| world.queue.next().is_none());
    let before = world.report().stats;
    world.write(1448 * 3);
    let world = world.finish();
    let after = world.report().stats;
    assert_eq!(after.sent_packets - before.sent_packets, 3);
    assert_eq!(after.sent_bytes - before.sent_bytes, 3 * 1_500);
}

#[test]
fn a_queue_is_replaced_while_it_is_full_and_nothing_is_lost_or_turned_around() {
    let mut world = World::behind("tbf rate 50mbit burst 0 limit 1mb");
    let start = world.queue.qdiscs()[0].handle;
    assert_eq!(start.to_string(), "8001:");
    let mut most = 0;
    let kinds = [
        "fq",
        "netem delay 5ms rate 50mbit limit 5000",
        "pfifo limit 3",
        "fq_codel",
        "tbf rate 20mbit burst 0 | fq flow_limit 2",
        "netem delay 20ms | pfifo_fast",
        "bfifo limit 70kb",
        "fq maxrate 20mbit",
    ];
    for (round, kind) in kinds.iter().cycle().take(40).enumerate() {
        world.write(100_000);
        world.exchange();
        let before = world.report();
        world.replace(kind);
        let after = world.report();
        most = most.max(after.backlog_packets);
        assert_eq!(
            (after.backlog_bytes, after.backlog_packets, after.stats.dropped),
            (before.backlog_bytes, before.backlog_packets, 0),
            "{round}: {kind}"
        );
        world.write(100_000);
    }
    assert!(most > 5, "there was something to carry over: {most}");
    let world = world.finish();
    assert!(world.queue.qdiscs()[0].handle > start);
    assert_eq!(world.turned_around, 0);
    assert_eq!(world.sender.counters().retrans_segs, 0);
}

#[test]
fn without_a_queue_what_waited_still_leaves() {
    let mut world = World::behind("netem delay 5ms rate 10mbit");
    world.write(100_000);
    assert!(world.report().backlog_packets > 0);
    world.queue.set_now(world.now);
    world.queue.set_qdisc(None, 5);
    assert!(world.queue.qdiscs().is_empty());
    assert!(world.keeps_packets(), "it is still to leave");
    world.exchange();
    assert!(world.queue.waiting.is_none());
    world.finish();
}

#[test]
fn a_link_has_its_own_queue_again() {
    let mut world = World::new(Waiting::behind(spec("rate 10mbit limit 9000b delay 3ms")), usize::MAX);
    let kind = |world: &World| world.queue.qdiscs()[0].report.spec.to_string();
    assert_eq!(kind(&world), "tbf rate 10mbit burst 1514b limit 9000b");
    world.replace("fq");
    assert_eq!(kind(&world), "fq");
    world.queue.set_now(world.now);
    world.queue.set_qdisc(None, 5);
    world.exchange();
    assert_eq!(kind(&world), "tbf rate 10mbit burst 1514b limit 9000b");
}

#[test]
fn a_path_that_delays_holds_nothing_back_that_small_queues_count() {
    let mut world = World::behind("netem delay 50ms");
    world.write(10_000);
    world.transmit();
    assert_eq!(world.wmem_alloc(), 0, "it is on its way");
    assert!(world.report().backlog_packets > 0);
    world.finish();
}

#[test]
fn a_bad_path_is_survived() {
    let bad = "netem delay 2ms 1ms loss gemodel 1% 20% duplicate 3% corrupt 2% reorder 5% limit 10000";
    let mut world = World::behind(bad);
    world.write(3_000_000);
    let world = world.finish();
    assert!(world.report().stats.dropped > 0);
    assert!(world.sender.counters().retrans_segs > 0);
}

#[test]
fn damage_is_noticed() {
    // Without offload, every packet is damaged rather than dropped.
    let mut world = World::behind("netem corrupt 20% limit 10000");
    world.write(200_000);
    let world = world.finish();
    assert_eq!(world.report().stats.dropped, 0);
    let count = |name| {
        let mut counters = world.receiver.counters().iter();
        counters.find(|(known, _)| *known == name).map(|(_, count)| count).unwrap()
    };
    let noticed = count("TcpInErrs") + count("IpInHdrErrors");
    assert!(noticed > 0 && world.sender.counters().retrans_segs > 0, "{noticed}");
}

#[test]
fn what_a_child_throws_out_is_sent_again() {
    let mut world = World::behind("tbf rate 10mbit burst 2kb | fq_codel target 1ms interval 20ms");
    // With small queues there would be nothing to drop.
    world.sender.set_sysctl("taut.tsq", "off").unwrap();
    world.write(2_000_000);
    let world = world.finish();
    let entries = world.queue.qdiscs();
    assert_eq!(entries[1].parent, Some(entries[0].handle));
    assert!(entries[1].report.stats.dropped > 0, "{:?}", entries[1].report.details);
    assert_eq!(entries[0].report.stats.dropped, entries[1].report.stats.dropped);
    assert!(world.sender.counters().retrans_segs > 0);
}
