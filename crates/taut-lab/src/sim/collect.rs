//! Observes a simulated run: distributions, points of a time-sequence graph, rows for each ACK, and, for runs
//! that are kept, events and packets. A probe of the world; `sim.rs` reads it when the run is over.

use std::collections::{BTreeMap, VecDeque};

use taut_core::{ConnId, ConnInfo, Duration, Instant};
use taut_sim::{BEGIN, HostId, Interest, PacketView, Place, Probe, ProbeEvent};
use taut_wire::tcp::Flags;

use crate::data::{AckRow, PacketPoint, PointKind};
use crate::output::capture::Capture;
use crate::output::events::EventLog;
use crate::stats::{Tally, Thinned};
use crate::view;

use super::plan::{Source, Traffic};
use super::points::Points;

/// Largest number of flows with points and rows.
pub(super) const FLOWS_MAX: usize = 8;
/// Largest number of connections with distributions of their own. More than are reported: which ones are the
/// first flows is known at the end, and flows do not connect in the order of their numbers.
const OWN_MAX: usize = 1_000;
/// Largest number of rows for ACKs, of all flows.
const ACKS_MAX: usize = 20_000;

/// Identifies a connection: its sender's host and both ports.
pub(super) type Key = (u32, u16, u16);

/// The state of a connection, known from its packets.
#[derive(Debug, Default)]
struct Track {
    /// Sequence number on the wire of the first byte of payload.
    first: Option<u32>,
    /// The other end's window scale.
    shift: u8,
    /// Position of the first byte never sent.
    next: u64,
    acked: u64,
    window: u64,
    /// When the stack handed out the last packet with payload, and when it left.
    left: Option<(Instant, Instant)>,
    /// End positions of unacknowledged data, and when its stack handed it out; no time for retransmitted
    /// data.
    sent: VecDeque<(u64, Option<Instant>)>,
    /// The last round-trip time.
    rtt: Option<Duration>,
    own: Option<Box<Own>>,
}

/// Distributions of one connection.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) rtt_ns: Tally,
    pub(super) gap_ns: Tally,
}

impl Track {
    /// Position in the stream of a sequence number on the wire.
    fn place(&self, wire: u32) -> u64 {
        let first = self.first.unwrap_or(wire);
        let ahead = wire.wrapping_sub(first).wrapping_sub(self.next as u32) as i32;
        self.next.saturating_add_signed(ahead.into())
    }
}

/// Bytes that a sender's host has below its stack.
#[derive(Debug)]
struct Below {
    bytes: u64,
    since: Instant,
    max: u64,
    leaving: VecDeque<(Instant, u32)>,
    last_sent: Instant,
    run: u64,
}

/// One of the first flows of the scenario, which have points and rows.
#[derive(Debug)]
struct First {
    from: HostId,
    source: Source,
    /// Its connection, from the SYN-ACK on: flows do not connect in the order of their numbers.
    key: Option<Key>,
}

/// The probe.
#[derive(Debug)]
pub(super) struct Collector {
    /// When measuring begins.
    from: Instant,
    /// Nanoseconds per byte on each sender's NIC and extra bytes per packet, by host; `None` for hosts that
    /// do not send.
    senders: Vec<Option<(f64, u32)>>,
    names: Vec<String>,
    below: BTreeMap<u32, Below>,
    tracks: BTreeMap<Key, Track>,
    pub(super) device_ns: Tally,
    pub(super) device_bytes: Tally,
    pub(super) rtt_ns: Tally,
    pub(super) burst: Tally,
    pub(super) gap_ns: Tally,
    pub(super) flow_gap_ns: Tally,
    pub(super) super_packet: Tally,
    pub(super) network_drops: u64,
    /// Connections that packets were sent for.
    conns: usize,
    first: Vec<First>,
    pub(super) acks: Option<Thinned<(Key, AckRow)>>,
    pub(super) points: Points,
    pub(super) events: Option<EventLog>,
    pub(super) capture: Option<Capture>,
    is_kept: bool,
}

/// Seconds since the world began.
pub(super) fn seconds(at: Instant) -> f64 {
    view::seconds(at.since(BEGIN))
}

impl Collector {
    /// `senders`: for each sending host, nanoseconds per byte and extra bytes per packet on its line.
    pub(super) fn new(
        from: Instant,
        senders: Vec<Option<(f64, u32)>>,
        names: Vec<String>,
        traffic: &[Traffic],
        is_kept: bool,
    ) -> Self {
        let first = |flow: &Traffic| First { from: flow.from, source: flow.source.clone(), key: None };
        Self {
            from,
            senders,
            below: BTreeMap::new(),
            tracks: BTreeMap::new(),
            device_ns: Tally::default(),
            device_bytes: Tally::default(),
            rtt_ns: Tally::default(),
            burst: Tally::default(),
            gap_ns: Tally::default(),
            flow_gap_ns: Tally::default(),
            super_packet: Tally::default(),
            network_drops: 0,
            conns: 0,
            first: traffic.iter().take(FLOWS_MAX).map(first).collect(),
            acks: is_kept.then(|| Thinned::new(ACKS_MAX)),
            points: Points::new(),
            events: is_kept.then(EventLog::new),
            capture: is_kept.then(|| Capture::new(&names)),
            names,
            is_kept,
        }
    }

    fn is_sender(&self, host: HostId) -> bool {
        self.senders.get(host.index()).is_some_and(Option::is_some)
    }

    /// The most bytes that a host had below its stack since the last call.
    pub(super) fn take_max(&mut self, host: HostId, now: Instant) -> u64 {
        let from = self.from;
        let Some(below) = self.below.get_mut(&(host.index() as u32)) else { return 0 };
        below.pass(now, from, &mut self.device_bytes);
        std::mem::replace(&mut below.max, below.bytes)
    }

    fn handed(&mut self, now: Instant, host: HostId, packet: &PacketView<'_>) {
        if !self.is_sender(host) {
            return;
        }
        let from = self.from;
        let below = self.below.entry(host.index() as u32).or_insert_with(|| Below::new(now));
        below.pass(now, from, &mut self.device_bytes);
        below.bytes += u64::from(packet.len());
        below.max = below.max.max(below.bytes);
        if now >= from && packet.payload_len() > 0 {
            self.super_packet.add(packet.segs().into());
        }
    }

    fn sent(&mut self, now: Instant, host: HostId, packet: &PacketView<'_>, at: Instant) {
        let Some(Some((byte_ns, overhead))) = self.senders.get(host.index()).copied() else { return };
        let from = self.from;
        let below = self.below.entry(host.index() as u32).or_insert_with(|| Below::new(now));
        below.pass(now, from, &mut self.device_bytes);
        below.leaving.push_back((at, packet.len()));
        let is_measured = at >= from;
        let has_data = packet.payload_len() > 0;
        if is_measured && has_data {
            self.device_ns.add(at.since(packet.handed()).as_nanos());
            let line_ns = f64::from(packet.len() + overhead) * byte_ns;
            let gap = at.since(below.last_sent).as_nanos();
            if below.run > 0 {
                self.gap_ns.add(gap);
                // One nanosecond of tolerance for rounding.
                if gap as f64 > line_ns + 1.0 {
                    self.burst.add(std::mem::take(&mut below.run));
                }
            }
            below.run += 1;
            below.last_sent = at;
        }
        let (Some(tcp), true) = (packet.tcp(), packet.to() != host) else { return };
        let key = (host.index() as u32, tcp.src_port, tcp.dst_port);
        let track = match self.tracks.get_mut(&key) {
            Some(track) => track,
            None => {
                let own = (self.conns < OWN_MAX).then(Box::default);
                self.conns += 1;
                self.tracks.entry(key).or_insert(Track { own, ..Track::default() })
            }
        };
        if tcp.flags.contains(Flags::SYN) {
            track.first = Some(tcp.seq.wrapping_add(1));
        }
        if !has_data {
            return;
        }
        // Segments handed out together are one packet.
        match track.left {
            Some((handed, _)) if handed == packet.handed() => {}
            last => {
                if let Some((_, left)) = last.filter(|_| is_measured) {
                    let gap = at.since(left).as_nanos();
                    self.flow_gap_ns.add(gap);
                    if let Some(own) = &mut track.own {
                        own.gap_ns.add(gap);
                    }
                }
                track.left = Some((packet.handed(), at));
            }
        }
        let (seq, len) = (track.place(tcp.seq), packet.payload_len());
        let end = seq + u64::from(len);
        let kind = if seq < track.next { PointKind::Retransmit } else { PointKind::Data };
        if kind == PointKind::Data {
            track.next = end;
            track.sent.push_back((end, Some(packet.handed())));
        } else {
            // After a retransmission, the ACK cannot be attributed to one of the copies (Karn).
            for (other, handed) in &mut track.sent {
                if *other > seq {
                    *handed = None;
                }
                if *other >= end {
                    break;
                }
            }
        }
        self.point(key, PacketPoint { t_s: seconds(at), flow: 0, seq, len, kind });
    }

    fn point(&mut self, key: Key, point: PacketPoint) {
        if !self.is_kept || !self.is_first(&key) {
            return;
        }
        let rtt = self.tracks.get(&key).and_then(|track| track.rtt);
        self.points.push(key, point, rtt);
    }

    fn delivered(&mut self, now: Instant, host: HostId, packet: &PacketView<'_>) {
        if !self.is_sender(host) {
            return;
        }
        let Some(tcp) = packet.tcp() else { return };
        let key = (host.index() as u32, tcp.dst_port, tcp.src_port);
        let Some(track) = self.tracks.get_mut(&key) else { return };
        if tcp.flags.contains(Flags::SYN) {
            track.shift = tcp.options.window_scale.unwrap_or(0).min(14);
            return;
        }
        if !tcp.flags.contains(Flags::ACK) {
            return;
        }
        let acked = track.place(tcp.ack);
        let mut newest = None;
        while let Some(&(_, handed)) = track.sent.front().filter(|(end, _)| *end <= acked) {
            newest = handed.or(newest);
            track.sent.pop_front();
        }
        if let Some(handed) = newest {
            let rtt = now.since(handed);
            track.rtt = Some(rtt);
            if now >= self.from {
                self.rtt_ns.add(rtt.as_nanos());
                if let Some(own) = &mut track.own {
                    own.rtt_ns.add(rtt.as_nanos());
                }
            }
        }
        let window = acked + (u64::from(tcp.window) << track.shift);
        let is_news = acked > track.acked || newest.is_some();
        let grew = window != track.window;
        (track.acked, track.window) = (track.acked.max(acked), window);
        if !self.is_kept {
            return;
        }
        let blocks: Vec<(u64, u64)> =
            tcp.options.sack.iter().map(|(left, right)| (track.place(left), track.place(right))).collect();
        let t_s = seconds(now);
        if is_news || !blocks.is_empty() {
            self.point(key, PacketPoint { t_s, flow: 0, seq: acked, len: 0, kind: PointKind::Ack });
        }
        for (left, right) in blocks {
            let len = right.saturating_sub(left) as u32;
            self.point(key, PacketPoint { t_s, flow: 0, seq: left, len, kind: PointKind::Sack });
        }
        if grew {
            self.point(key, PacketPoint { t_s, flow: 0, seq: window, len: 0, kind: PointKind::Window });
        }
    }

    fn dropped(&mut self, now: Instant, place: Place, packet: &PacketView<'_>) {
        let sender = packet.from();
        if let Place::Root(host) = place {
            let from = self.from;
            if let Some(below) = self.below.get_mut(&(host.index() as u32)) {
                below.pass(now, from, &mut self.device_bytes);
                below.bytes = below.bytes.saturating_sub(packet.len().into());
            }
        } else if now >= self.from {
            self.network_drops += 1;
        }
        let Some(tcp) = packet.tcp().filter(|_| packet.payload_len() > 0) else { return };
        let key = (sender.index() as u32, tcp.src_port, tcp.dst_port);
        let Some(track) = self.tracks.get(&key) else { return };
        let seq = track.place(tcp.seq);
        let point =
            PacketPoint { t_s: seconds(now), flow: 0, seq, len: packet.payload_len(), kind: PointKind::Drop };
        self.point(key, point);
    }

    /// Whether a connection is one of the first flows'.
    fn is_first(&self, key: &Key) -> bool {
        self.first.iter().any(|flow| flow.key.as_ref() == Some(key))
    }

    fn acked(&mut self, now: Instant, host: HostId, conn: ConnId, info: &ConnInfo) {
        if let Some(capture) = &mut self.capture {
            capture.comment(now, host.index(), info);
        }
        let key = (host.index() as u32, info.local.port(), info.peer.port());
        let is_its = |flow: &First| flow.from == host && flow.source.conn() == Some(conn);
        if let Some(flow) = self.first.iter_mut().find(|flow| flow.key.is_none() && is_its(flow)) {
            flow.key = Some(key);
        }
        let is_first = self.is_first(&key);
        if let Some(acks) = self.acks.as_mut().filter(|_| is_first) {
            acks.push((key, ack_row(now, info)));
        }
    }

    /// The name of a packet's place.
    fn place_name(&self, place: Place) -> String {
        let host = |id: HostId| self.names.get(id.index()).map_or("?", String::as_str);
        match place {
            Place::Root(id) => format!("{} qdisc", host(id)),
            Place::Nic(id) => format!("{} nic", host(id)),
            Place::Port(_, port) => format!("port {port}"),
            Place::Wire(number) => format!("wire {number}"),
        }
    }

    fn log(&mut self, now: Instant, what: &ProbeEvent<'_>) {
        let Some(mut events) = self.events.take() else { return };
        events.log(now, what, &self.names, |place| self.place_name(place));
        self.events = Some(events);
    }

    /// The distributions of a connection.
    pub(super) fn take_own(&mut self, key: &Key) -> Option<Box<Own>> {
        self.tracks.get_mut(key)?.own.take()
    }

    /// Closes the bursts and lists that are still open.
    pub(super) fn finish(&mut self, now: Instant) {
        let from = self.from;
        for below in self.below.values_mut() {
            below.pass(now, from, &mut self.device_bytes);
            if below.run > 0 {
                self.burst.add(std::mem::take(&mut below.run));
            }
        }
    }
}

impl Below {
    fn new(now: Instant) -> Self {
        Self { bytes: 0, since: now, max: 0, leaving: VecDeque::new(), last_sent: now, run: 0 }
    }

    /// Removes the bytes that are on the wire by now.
    fn pass(&mut self, now: Instant, from: Instant, bytes: &mut Tally) {
        while let Some(&(at, len)) = self.leaving.front().filter(|(at, _)| *at <= now) {
            self.leaving.pop_front();
            self.weigh(at, from, bytes);
            self.bytes = self.bytes.saturating_sub(len.into());
        }
        self.weigh(now, from, bytes);
    }

    fn weigh(&mut self, now: Instant, from: Instant, bytes: &mut Tally) {
        if now > from {
            bytes.add_times(self.bytes, now.since(self.since.max(from)).as_nanos());
        }
        self.since = self.since.max(now);
    }
}

fn ack_row(now: Instant, info: &ConnInfo) -> AckRow {
    let point = view::point(info);
    AckRow {
        t_s: seconds(now),
        flow: 0,
        acked_bytes: info.bytes_acked,
        in_flight_bytes: u64::from(info.unacked) * u64::from(info.snd_mss),
        unsent_bytes: point.unsent_bytes,
        below_tcp_bytes: info.wmem_alloc.into(),
        cwnd_bytes: point.cwnd_bytes,
        ssthresh_bytes: point.ssthresh_bytes,
        peer_window_bytes: point.peer_window_bytes,
        srtt_s: point.srtt_s,
        min_rtt_s: info.min_rtt.map(view::seconds),
        pacing_bps: point.pacing_bps,
        delivery_bps: point.delivery_bps,
        ca_state: info.ca_state.into(),
        blocked: info.blocked.name().into(),
    }
}

impl Probe for Collector {
    fn interest(&self) -> Interest {
        // Only the log needs the other events, and reading gates is expensive: all connections are examined
        // after every event.
        let logs = self.events.as_ref().is_some_and(EventLog::has_room);
        Interest { packets: true, acks: self.is_kept, apps: logs, interrupts: logs, blocked: logs }
    }

    fn on(&mut self, now: Instant, what: &ProbeEvent<'_>) {
        match what {
            ProbeEvent::Handed { host, packet, .. } => self.handed(now, *host, packet),
            ProbeEvent::Sent { place: Place::Nic(host), packet, at } => {
                self.sent(now, *host, packet, *at);
                if let Some(capture) = self.capture.as_mut().filter(|_| self.senders[host.index()].is_some())
                {
                    capture.packet(*at, host.index(), packet.header(), packet.payload_len());
                }
            }
            ProbeEvent::Delivered { host, packet } => {
                self.delivered(now, *host, packet);
                let is_sender = self.is_sender(*host);
                if let Some(capture) = self.capture.as_mut().filter(|_| is_sender) {
                    capture.packet(now, host.index(), packet.header(), packet.payload_len());
                }
            }
            ProbeEvent::Dropped { place, packet } => self.dropped(now, *place, packet),
            ProbeEvent::Ack { host, conn, info } if self.is_sender(*host) => {
                self.acked(now, *host, *conn, info);
            }
            _ => {}
        }
        self.log(now, what);
    }
}
