//! Every byte handed out is accounted for: tickets come back in any order, late, or with a refusal, at any moment.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use support::{A, B, Rng, config, pattern};
use taut_core::{
    ConnId, ConnOptions, Duration, Frame, Instant, LinkCaps, ListenOptions, RxChecksum, RxPacket, Stack,
    TxTicket,
};

/// A packet on its way.
struct Packet {
    bytes: Vec<u8>,
    gso_size: u16,
}

/// Two stacks whose device completes, delays and refuses as it likes.
struct Rig {
    rng: Rng,
    now: Instant,
    stacks: [Stack; 2],
    conns: [Option<ConnId>; 2],
    tickets: [Vec<TxTicket>; 2],
    wires: [Vec<Packet>; 2],
    read: u64,
    refused: u32,
}

const TO: &str = "10.0.0.2:80";

impl Rig {
    fn new(seed: u64, refusing: bool) -> (Self, u64) {
        let caps = if seed.is_multiple_of(2) { LinkCaps::plain(1_500) } else { LinkCaps::offloading(1_500) };
        let stack = |address, salt| Stack::new(Arc::new(config(address)), caps, [salt; 32]);
        let mut rig = Self {
            rng: Rng::new(seed),
            now: Instant::from_nanos(1_000_000_000),
            stacks: [stack(A, 3), stack(B, 4)],
            conns: [None; 2],
            tickets: [Vec::new(), Vec::new()],
            wires: [Vec::new(), Vec::new()],
            read: 0,
            refused: 0,
        };
        let to: SocketAddr = TO.parse().unwrap();
        let listener = rig.stacks[1].listen(to, ListenOptions::default()).unwrap();
        rig.conns[0] = Some(rig.stacks[0].connect(rig.now, to, &ConnOptions::default()).unwrap());
        for _ in 0..10_000 {
            if rig.conns[1].is_some() {
                break;
            }
            rig.transmit(0, refusing);
            rig.transmit(1, refusing);
            rig.deliver(0);
            rig.deliver(1);
            rig.conns[1] = rig.conns[1].or_else(|| rig.stacks[1].accept(listener).map(|(id, _)| id));
            rig.pass();
        }
        assert!(rig.conns[1].is_some(), "the handshake completes");
        (rig, seed)
    }

    /// What the connection says is below it is what we hold.
    #[track_caller]
    fn check(&mut self, side: usize) {
        let now = self.now;
        if let Some(conn) = self.conns[side].and_then(|id| self.stacks[side].conn_mut(id)) {
            let held: u32 = self.tickets[side].iter().map(TxTicket::truesize).sum();
            assert_eq!(held, conn.info(now).wmem_alloc);
        }
    }

    /// Asks for packets, some of which the device refuses.
    fn transmit(&mut self, side: usize, refusing: bool) {
        for _ in 0..1 + self.rng.below(20) {
            let Some(transmit) = self.stacks[side].poll_transmit(self.now) else { break };
            let mut bytes = transmit.header.to_vec();
            bytes.extend(transmit.payload.slices().concat());
            let gso_size = match transmit.offload {
                taut_core::Offload::Segment { mss, .. } => mss,
                _ => 0,
            };
            let ticket = transmit.ticket;
            if refusing && self.rng.chance(250) {
                // The device is full: nothing is asked for until there is room.
                self.stacks[side].handle_tx_refused(self.now, ticket);
                self.refused += 1;
                self.check(side);
                break;
            }
            self.tickets[side].push(ticket);
            self.check(side);
            self.wires[1 - side].push(Packet { bytes, gso_size });
        }
    }

    /// Brings some tickets back, in any order.
    fn complete(&mut self, side: usize) {
        for _ in 0..self.rng.below(10) {
            if self.tickets[side].is_empty() {
                break;
            }
            let pick = self.rng.below(self.tickets[side].len() as u64) as usize;
            let ticket = self.tickets[side].swap_remove(pick);
            self.stacks[side].handle_tx_completion(self.now, ticket);
            self.check(side);
        }
    }

    /// Packets arrive, mostly in order.
    fn deliver(&mut self, side: usize) {
        for _ in 0..self.rng.below(10) {
            if self.wires[side].is_empty() {
                break;
            }
            let pick =
                if self.rng.chance(50) { self.rng.below(self.wires[side].len() as u64) as usize } else { 0 };
            let packet = self.wires[side].remove(pick);
            if self.rng.chance(20) {
                continue;
            }
            let frame = Frame::Slice(&packet.bytes);
            let checksum = RxChecksum::Verified;
            self.stacks[side]
                .handle_packet(self.now, RxPacket { frame, checksum, gso_size: packet.gso_size });
            self.check(side);
        }
    }

    fn pass(&mut self) {
        self.now += Duration::from_micros(self.rng.below(3_000));
        for side in [0, 1] {
            self.stacks[side].handle_timeout(self.now);
            self.check(side);
        }
    }

    /// The server reads what there is. True at the end of the stream.
    fn drain(&mut self) -> bool {
        let Some(mut conn) = self.conns[1].and_then(|id| self.stacks[1].conn_mut(id)) else { return true };
        let mut buffer = [0; 4_000];
        loop {
            match conn.read(self.now, &mut buffer) {
                Ok(0) => return true,
                Ok(count) => {
                    for &byte in &buffer[..count] {
                        assert_eq!(byte, pattern(self.read), "byte {}", self.read);
                        self.read += 1;
                    }
                }
                Err(_) => return false,
            }
        }
    }

    /// Whatever is left goes away with time, and with it everything.
    fn end(&mut self, label: u64) {
        for side in [0, 1] {
            if let Some(conn) = self.conns[side].and_then(|id| self.stacks[side].conn_mut(id)) {
                conn.close(self.now);
            }
        }
        for _ in 0..5_000 {
            for side in [0, 1] {
                self.transmit(side, false);
                self.complete(side);
                self.deliver(side);
            }
            self.now += Duration::from_millis(500);
            for side in [0, 1] {
                self.stacks[side].handle_timeout(self.now);
            }
        }
        for side in [0, 1] {
            for ticket in std::mem::take(&mut self.tickets[side]) {
                self.stacks[side].handle_tx_completion(self.now, ticket);
            }
            let stack = &self.stacks[side];
            assert_eq!((stack.connections(), stack.time_waits()), (0, 0), "seed {label}, side {side}");
        }
    }
}

#[test]
fn random_completions_acks_and_refusals_lose_and_repeat_nothing() {
    const LEN: u64 = 200_000;
    let mut refused = 0;
    for seed in 0..60 {
        let (mut rig, seed) = Rig::new(seed, true);
        let (mut written, mut shut, mut turns) = (0, false, 0);
        loop {
            turns += 1;
            assert!(turns < 40_000, "seed {seed} stalls after {} of {written} bytes", rig.read);
            let now = rig.now;
            let mut conn = rig.stacks[0].conn_mut(rig.conns[0].unwrap()).unwrap();
            while written < LEN {
                let len = (1 + rig.rng.below(9_000)).min(LEN - written);
                let piece: Vec<u8> = (written..written + len).map(pattern).collect();
                match conn.write(now, &piece) {
                    Ok(count) => written += count as u64,
                    Err(_) => break,
                }
            }
            if written == LEN && !shut {
                conn.shutdown_write(now).unwrap();
                shut = true;
            }
            rig.check(0);
            for side in [0, 1] {
                rig.transmit(side, true);
                rig.complete(side);
                rig.deliver(side);
            }
            if rig.rng.chance(700) && rig.drain() {
                break;
            }
            rig.pass();
        }
        assert_eq!(rig.read, LEN);
        refused += rig.refused;
        rig.end(seed);
    }
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn close_and_abort_with_tickets_outstanding() {
    for seed in 100..300 {
        let (mut rig, seed) = Rig::new(seed, false);
        let mut written = 0;
        for _ in 0..rig.rng.below(60) {
            let now = rig.now;
            if let Some(mut conn) = rig.conns[0].and_then(|id| rig.stacks[0].conn_mut(id)) {
                let piece: Vec<u8> = (written..written + 5_000).map(pattern).collect();
                written += conn.write(now, &piece).unwrap_or(0) as u64;
            }
            for side in [0, 1] {
                rig.transmit(side, true);
                rig.complete(side);
                rig.deliver(side);
            }
            rig.drain();
            rig.pass();
            let side = rig.rng.below(2) as usize;
            if rig.rng.chance(60)
                && let Some(conn) = rig.conns[side].take().and_then(|id| rig.stacks[side].conn_mut(id))
            {
                if seed.is_multiple_of(3) { conn.abort(rig.now) } else { conn.close(rig.now) }
            }
        }
        rig.end(seed);
    }
}

#[test]
fn a_refusal_is_as_if_nothing_had_been_handed_out() {
    for caps in [LinkCaps::plain(1_500), LinkCaps::offloading(1_500)] {
        let mut world = support::World::with(1, config(A), config(B), caps);
        let (client, _) = world.pair();
        let (mut written, now) = (0, world.now);
        support::pump(&mut world, 0, client, &mut written, 20_000);
        let stack = &mut world.stacks[0];
        let facts = |stack: &mut Stack| {
            let info = stack.conn_mut(client).unwrap().info(now);
            let counts = [info.bytes_sent, info.bytes_retrans, info.data_segs_out, info.notsent_bytes];
            (counts, info.unacked, info.wmem_alloc, info.retrans, info.lost, *stack.counters())
        };
        let before = facts(stack);
        let mut first = None;
        for _ in 0..5 {
            let transmit = stack.poll_transmit(now).unwrap();
            let packet = (transmit.header.to_vec(), transmit.payload.slices().concat());
            assert_eq!(*first.get_or_insert(packet.clone()), packet, "the same packet again");
            let ticket = transmit.ticket;
            assert_ne!(facts(stack), before);
            stack.handle_tx_refused(now, ticket);
            let mut after = facts(stack);
            // Gates are asked each time, and may count that.
            (after.5.tso_deferred, after.5.tsq_throttled) = (before.5.tso_deferred, before.5.tsq_throttled);
            assert_eq!(after, before);
        }
    }
}
