//! An attacker elsewhere, who knows the addresses and ports of a connection, and guesses its numbers. Called
//! by the runner.
//!
//! A number out of the air meets a window of 64 KB once in 65,536 packets, so that what comes after the check
//! of the window would hardly ever be reached. Every other SYN is a lucky guess: its number is near that of
//! the packet that arrived last. It is never believed whatever its number is (RFC 5961 §4.2), so the judge
//! need not excuse anything. A lucky RST would be right now and then, and so would data: those stay blind.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use taut_core::{Instant, State};
use taut_wire::{Ecn, Flags, IpHeader, TcpHeader, protocol};

use crate::ids::HostId;
use crate::mutate;
use crate::probe::{Interest, Probe, ProbeEvent};
use crate::rng::Rng;
use crate::world::World;

/// How far from the last packet a lucky guess is, at most.
const NEAR: u64 = 65_536;

pub(super) struct Attacker {
    rng: Rng,
    arrived: Rc<RefCell<Arrived>>,
}

/// The packet that arrived last at each host.
#[derive(Default)]
struct Arrived(Vec<Option<Last>>);

#[derive(Clone, Copy)]
struct Last {
    from: HostId,
    ports: (u16, u16),
    seq: u32,
}

impl Probe for Arrived {
    fn interest(&self) -> Interest {
        Interest { packets: true, ..Interest::default() }
    }

    fn on(&mut self, _: Instant, what: &ProbeEvent<'_>) {
        let ProbeEvent::Delivered { host, packet } = what else { return };
        // The attacker's own are of no host.
        let Some(tcp) = packet.tcp().filter(|_| packet.from() != *host) else { return };
        if self.0.len() <= host.index() {
            self.0.resize(host.index() + 1, None);
        }
        let ports = (tcp.src_port, tcp.dst_port);
        self.0[host.index()] = Some(Last { from: packet.from(), ports, seq: tcp.seq });
    }
}

impl Attacker {
    /// Watches a world that has just been built.
    pub(super) fn new(seed: u64, world: &mut World) -> Self {
        let arrived = Rc::<RefCell<Arrived>>::default();
        world.probe(Rc::clone(&arrived));
        Self { rng: Rng::new(seed ^ 0xb11d), arrived }
    }

    /// Sends so many packets, each to any connection of any host.
    pub(super) fn shoot(&mut self, world: &mut World, hosts: &[HostId], packets: u32) {
        for _ in 0..packets {
            let host = hosts[self.rng.below(hosts.len() as u64) as usize];
            if let Some((from, to)) = self.target(world, host) {
                let last = self.arrived.borrow().0.get(host.index()).copied().flatten();
                let near = last.filter(|last| {
                    let address = world.host_ref(last.from).address();
                    last.ports == (from.port(), to.port()) && address == Some(from.ip().to_canonical())
                });
                let bytes = self.forged(from, to, near.map(|last| last.seq));
                world.inject(host, &bytes);
            }
        }
    }

    /// The ends of a connection of this host, the other one first.
    fn target(&mut self, world: &World, host: HostId) -> Option<(SocketAddr, SocketAddr)> {
        let stack = world.host_ref(host).stack();
        let conns: Vec<_> = stack.conn_ids().collect();
        if conns.is_empty() {
            return None;
        }
        let conn = stack.conn(conns[self.rng.below(conns.len() as u64) as usize])?;
        // A SYN for one that has sent its own begins a simultaneous open, which no number protects (RFC 9293
        // §3.5).
        (conn.state() != State::SynSent).then(|| (conn.peer_addr(), conn.local_addr()))
    }

    /// A segment with numbers out of the air, or a SYN near `last`.
    fn forged(&mut self, from: SocketAddr, to: SocketAddr, last: Option<u32>) -> Vec<u8> {
        let rng = &mut self.rng;
        let flags = match rng.below(6) {
            0 => Flags::RST,
            1 => Flags::SYN,
            2 => Flags::SYN | Flags::ACK,
            3 => Flags::RST | Flags::ACK,
            4 => Flags::FIN | Flags::ACK,
            _ => Flags::PSH | Flags::ACK,
        };
        let mut seq = rng.next() as u32;
        if flags.contains(Flags::SYN)
            && rng.chance(0.5)
            && let Some(last) = last
        {
            seq = last.wrapping_add(1 + rng.below(NEAR - 1) as u32);
        }
        let tcp = TcpHeader {
            src_port: from.port(),
            dst_port: to.port(),
            seq,
            ack: rng.next() as u32,
            flags,
            window: rng.next() as u16,
            ..TcpHeader::default()
        };
        let ip = IpHeader {
            src: from.ip().to_canonical(),
            dst: to.ip().to_canonical(),
            protocol: protocol::TCP,
            hop_limit: 64,
            ecn: Ecn::NotEct,
            header_len: 0,
            payload_len: 0,
        };
        mutate::emit(&ip, &tcp, &vec![b'!'; rng.below(100) as usize])
    }
}
