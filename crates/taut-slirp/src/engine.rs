//! Joins the parts: a turn handles times, then events, then collects frames, until there is nothing to do.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use taut_core::{
    Event, Fate, FlowFilter, FlowInfo, FlowKind, IncomingOptions, Instant, LinkCaps, ListenError, Network,
    Refusal, Stack, StackConfig,
};
use taut_gateway::{Admission, FlowId, Gateway, NameServers, NextStep, incoming_options};

use crate::boot::tftp::Tftp;
use crate::config::Config;
use crate::core::{AT_ONCE, Call, Core, Key, Waited, near};
use crate::forward::{At, Forwards};
use crate::link::{BATCH, Frames, Link};
use crate::names::Names;
use crate::ping::Pings;
use crate::saved::Saved;
use crate::service::{Conversation, Far};
use crate::settings::Settings;
use crate::tcp::Connections;
use crate::udp::Ports;

/// Turns at once: what a turn leaves is for the next call.
const TURNS: usize = 8;
/// Turns of the caller's loop in a row with exactly one frame, which show that more of them are queued.
const QUEUED: usize = 4;
/// The longest MTU at which frames are held back. Known callers with a longer one write to a TAP, which does
/// not block.
const SHORT: u16 = 1_500;

/// A service that the guest reaches at an address of the link.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    Program {
        name: String,
        arguments: Vec<String>,
    },
    Unix(String),
    /// The caller has it.
    Caller,
}

/// One instance of the library.
pub(crate) struct Engine {
    pub(crate) core: Core,
    pub(crate) link: Link,
    pub(crate) tcp: Connections,
    pub(crate) udp: Ports,
    pub(crate) pings: Pings,
    names: Names,
    pub(crate) forwards: Forwards,
    services: Vec<(SocketAddr, Service)>,
    tftp: Tftp,
    settings: Settings,
    /// The caller's clock, and by how much the time is ahead of it.
    clock: Instant,
    ahead_ns: u64,
    /// For whom the caller's loop waits, each with the place that the caller gave it.
    pub(crate) waited: Vec<(Key, i32)>,
    /// The time at the last [`wait`](Self::wait).
    waited_at: Instant,
    /// The latest time at which the caller's loop wakes.
    wakes_at: Option<Instant>,
    /// The last call has left something to do.
    pub(crate) is_behind: bool,
    /// Frames of the guest's in this turn of the caller's loop, and turns before it, in a row, with one.
    inputs: usize,
    single_turns: usize,
}

impl Engine {
    /// An instance, or why there can be none.
    pub(crate) fn new(config: Config, settings: Settings, now: Instant) -> Result<Self, String> {
        let rules = config.rules(&settings.rules).map_err(|error| error.to_string())?;
        let gateway = taut_gateway::Settings {
            rules,
            limits: settings.limits,
            own: config.own(),
            nameless: config.nameless(),
            ..taut_gateway::Settings::default()
        };
        let mut stack = StackConfig::default().with(|stack| {
            stack.addresses = config.own();
            stack.any_address = true;
            // Pings of this host's addresses are flows like others.
            stack.icmp_echo = false;
        });
        for (name, value) in &settings.sysctls {
            stack.set_sysctl(name, value).map_err(|error| format!("{name}: {error}"))?;
        }
        let mut seed = [0; 48];
        getrandom::fill(&mut seed).map_err(|error| error.to_string())?;
        let (of_stack, of_link) = seed.split_at(32);
        let of_stack = of_stack.try_into().unwrap_or([0; 32]);
        let mut stack = Stack::new(Arc::new(stack), LinkCaps::plain(config.mtu()), of_stack);
        let filter = FlowFilter::any().kinds([FlowKind::Tcp, FlowKind::Udp, FlowKind::Echo]);
        let options = IncomingOptions { conn: near(None), ..incoming_options(&gateway) };
        stack.incoming(filter, options).map_err(|error: ListenError| error.to_string())?;
        Ok(Self {
            link: Link::new(&config, of_link.try_into().unwrap_or([0; 16])),
            tftp: Tftp::new(config.tftp_path.clone()),
            core: Core {
                stack,
                gateway: Gateway::new(gateway),
                config,
                named_servers: settings.name_servers.clone(),
                host_servers: NameServers::of("/etc/resolv.conf".into()),
                now,
                calls: VecDeque::new(),
                questions: VecDeque::new(),
                answers: VecDeque::new(),
                is_changed: false,
                scratch: vec![0; AT_ONCE],
            },
            tcp: Connections::default(),
            udp: Ports::default(),
            pings: Pings::default(),
            names: Names::default(),
            forwards: Forwards::default(),
            services: Vec::new(),
            settings,
            clock: now,
            ahead_ns: 0,
            waited: Vec::new(),
            waited_at: Instant::NEVER,
            wakes_at: None,
            is_behind: false,
            inputs: 0,
            single_turns: 0,
        })
    }

    /// The caller's clock is at this time. If it goes back, as a machine's does when a snapshot is loaded,
    /// time continues from where it was.
    pub(crate) fn set_time(&mut self, clock: Instant) {
        let back = self.clock.as_nanos().saturating_sub(clock.as_nanos());
        self.ahead_ns = self.ahead_ns.saturating_add(back);
        self.clock = clock;
        self.core.now = Instant::from_nanos(clock.as_nanos().saturating_add(self.ahead_ns));
    }

    /// A frame of the guest's.
    pub(crate) fn input(&mut self, frame: &[u8]) {
        self.inputs += 1;
        self.link.input(self.core.now, frame, &mut self.core.stack);
    }

    // ---- turns ----

    /// Handles all that is due now, and its consequences.
    pub(crate) fn turn(&mut self) {
        let Self { core, .. } = self;
        if core.stack.poll_timeout().is_some_and(|(at, _)| at <= core.now) {
            core.stack.handle_timeout(core.now);
        }
        core.gateway.handle_timeout(core.time());
        self.names.handle_timeout(core);
        self.tftp.handle_timeout(core);
        self.tcp.ask(core);
        for _ in 0..TURNS {
            while let Some((flow, step)) = self.core.gateway.poll_end() {
                self.expire(flow, step);
            }
            let mut is_quiet = true;
            while let Some(event) = self.core.stack.poll_event() {
                is_quiet = false;
                self.on_event(event);
            }
            self.names.take_questions(&mut self.core);
            while let Some((flow, answer)) = self.core.answers.pop_front() {
                is_quiet = false;
                self.tcp.answer(&mut self.core, flow, &answer);
            }
            self.link.output(self.core.now, &mut self.core.stack);
            if is_quiet {
                break;
            }
        }
        while let Some(event) = self.core.gateway.poll_event() {
            self.settings.log(&event);
        }
    }

    fn expire(&mut self, flow: FlowId, step: NextStep) {
        let core = &mut self.core;
        _ = self.tcp.expire(core, flow, step)
            || self.udp.expire(core, flow)
            || self.pings.expire(core, flow)
            || self.names.expire(core, flow)
            || self.forwards.expire(core, flow);
    }

    fn on_event(&mut self, event: Event) {
        let core = &mut self.core;
        match event {
            Event::Incoming(filter) => {
                while let Some(info) = self.core.stack.next_flow(filter) {
                    self.admit(&info);
                }
            }
            Event::DatagramReadable(id) => {
                _ = self.udp.up(core, id)
                    || self.names.up(core, id)
                    || self.pings.up(core, id)
                    || self.forwards.up(core, id)
                    || self.tftp.up(core, id);
            }
            event => self.tcp.on_event(core, event),
        }
    }

    /// A new flow of the guest's.
    fn admit(&mut self, info: &FlowInfo) {
        let core = &mut self.core;
        let (kind, to) = (info.kind, info.local);
        if kind == FlowKind::Udp && self.tftp.is_at(core, to) {
            return self.tftp.admit(core, info);
        }
        if kind == FlowKind::Tcp
            && let Some((_, service)) = self.services.iter().find(|(at, _)| *at == to)
        {
            let service = service.clone();
            return self.admit_to_service(info, &service);
        }
        if core.config.restricted {
            // As libslirp: a reset, or nothing.
            return match kind {
                FlowKind::Tcp => _ = core.stack.refuse_flow(core.now, info.id, Refusal::Reset),
                FlowKind::Echo if core.config.own().contains(&to.ip()) => self.admit_by_rules(info),
                _ => _ = core.stack.drop_flow(core.now, info.id),
            };
        }
        self.admit_by_rules(info);
    }

    fn admit_by_rules(&mut self, info: &FlowInfo) {
        let core = &mut self.core;
        if info.kind == FlowKind::Echo && core.config.own().contains(&info.local.ip()) {
            // Whether the host's loopback may be reached is another question.
            return match core.gateway.forward(core.time(), FlowKind::Echo, info.peer) {
                Some(flow) => {
                    self.pings.admit(core, info, flow, SocketAddr::new(loopback(info.local.ip()), 0));
                }
                None => _ = core.stack.drop_flow(core.now, info.id),
            };
        }
        match core.gateway.admit(core.time(), info.kind, info.peer, info.local) {
            Admission::Refuse(how) => _ = core.stack.refuse_flow(core.now, info.id, how),
            Admission::Silent => _ = core.stack.drop_flow(core.now, info.id),
            Admission::Questions(flow) if info.kind == FlowKind::Tcp => {
                self.tcp.admit(core, info, flow, Ok(Far::Names(Conversation::default())));
            }
            Admission::Questions(flow) => self.names.admit(core, info, flow),
            Admission::Dial(flow, to) => match info.kind {
                FlowKind::Tcp => {
                    let far = core.connect(to).map(Far::Socket);
                    self.tcp.admit(core, info, flow, far);
                }
                FlowKind::Udp => self.udp.admit(core, info, flow, to),
                FlowKind::Echo => self.pings.admit(core, info, flow, to),
            },
        }
    }

    fn admit_to_service(&mut self, info: &FlowInfo, service: &Service) {
        let core = &mut self.core;
        let Some(flow) = core.gateway.forward(core.time(), FlowKind::Tcp, info.peer) else {
            core.stack.refuse_flow(core.now, info.id, Refusal::Reset);
            return;
        };
        let far = match service {
            Service::Caller if !self.tcp.free_service(core, info.local) => {
                Err(io::ErrorKind::ConnectionRefused.into())
            }
            Service::Caller => Ok(Far::Caller { at: info.local, said: VecDeque::new() }),
            Service::Unix(path) => Far::unix(path),
            Service::Program { name, arguments } => Far::program(name, arguments),
        };
        self.tcp.admit(core, info, flow, far);
    }

    // ---- the caller's loop ----

    /// The files that the caller's loop is to wait for, and the most milliseconds.
    pub(crate) fn wait(&mut self, timeout_ms: u32) -> (Vec<Waited>, u32) {
        let mut all = Vec::with_capacity(self.waited.len() + 8);
        self.tcp.wait(&mut all, &mut self.core);
        self.udp.wait(&mut all);
        self.pings.wait(&mut all);
        self.names.wait(&mut all);
        self.forwards.wait(&mut all, self.core.time());
        self.core.is_changed = false;
        let is_stopped = self.waited_at == self.core.now;
        self.waited_at = self.core.now;
        self.wakes_at = self.deadline();
        if std::mem::take(&mut self.is_behind) {
            return (all, 0);
        }
        let mut timeout = timeout_ms;
        if let Some(at) = self.wakes_at {
            let left_ms = at.since(self.core.now).as_nanos().div_ceil(1_000_000);
            timeout = timeout.min(u32::try_from(left_ms).unwrap_or(u32::MAX));
        }
        // The clock of a machine that was stopped stands still, and what is due stays due.
        (all, if is_stopped { timeout.max(timeout_ms.min(STOPPED_MS)) } else { timeout })
    }

    /// The caller's loop has come round. libvdeslirp and vde_plug exchange frames over a pair of sockets:
    /// each reads one in a turn, and blocks while the other's queue is full. If more frames left than came,
    /// both would block and stay so. After four turns in a row with exactly one frame, one leaves in a turn.
    pub(crate) fn begin_turn(&mut self) {
        self.single_turns =
            if self.inputs == 1 && self.core.config.mtu() <= SHORT { self.single_turns + 1 } else { 0 };
        self.link.begin_turn(if self.single_turns >= QUEUED { 1 } else { BATCH });
        self.inputs = 0;
    }

    /// When something is due.
    fn deadline(&self) -> Option<Instant> {
        let at = |time: Duration| Instant::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let stack = self.core.stack.poll_timeout().map(|(at, _)| at);
        let link = Some(self.link.deadline()).filter(|at| *at < Instant::NEVER);
        let others = [
            self.core.gateway.poll_timeout(),
            self.names.deadline(),
            self.tcp.deadline(),
            self.tftp.deadline(),
            self.forwards.deadline(),
        ];
        stack.into_iter().chain(link).chain(others.into_iter().flatten().map(at)).min()
    }

    /// Whether the caller's loop, which may be waiting on another thread, must look again: a time is
    /// earlier than it waits for, or files are others.
    pub(crate) fn must_notify(&mut self) -> bool {
        let deadline = self.deadline();
        let is_earlier = match (deadline, self.wakes_at) {
            (Some(at), Some(known)) => at < known,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_earlier {
            self.wakes_at = deadline;
        }
        std::mem::take(&mut self.core.is_changed) || is_earlier || self.is_behind
    }

    /// Events that the caller's loop has seen.
    pub(crate) fn on_ready(&mut self, seen: &[(Key, i32)]) {
        let core = &mut self.core;
        for &(key, seen) in seen.iter().filter(|(_, seen)| *seen != 0) {
            match key {
                Key::Connection(at) => self.tcp.on_ready(core, at, seen),
                Key::Port(guest) => self.udp.on_ready(core, guest),
                Key::Ping(at) => self.pings.on_ready(core, at),
                Key::Asked(at) => self.names.on_ready(core, at),
                Key::Forward(at) => self.forwards.on_ready(core, &mut self.tcp, at),
            }
        }
    }

    /// Frames for the guest, in exchange for memory to put further ones into.
    pub(crate) fn take_frames(&mut self, empty: Frames) -> Frames {
        self.link.take(empty)
    }

    pub(crate) fn take_calls(&mut self) -> VecDeque<Call> {
        std::mem::take(&mut self.core.calls)
    }

    // ---- the caller's commands ----

    pub(crate) fn add_forward(&mut self, at: At, only_v6: bool, guest: SocketAddr) -> io::Result<()> {
        self.forwards.add(at, only_v6, self.guest(guest))
    }

    pub(crate) fn remove_forward(&mut self, at: &At) -> bool {
        self.forwards.remove(&mut self.core, at)
    }

    /// A guest without an address is the first one that has leased one.
    fn guest(&self, guest: SocketAddr) -> SocketAddr {
        match (guest.ip(), self.core.config.v4) {
            (IpAddr::V4(ip), Some(v4)) if ip.is_unspecified() => {
                SocketAddr::new(v4.guest.into(), guest.port())
            }
            _ => guest,
        }
    }

    /// Whether there can be a service at this address.
    pub(crate) fn may_serve(&self, at: SocketAddr) -> bool {
        let is_in = match at.ip() {
            IpAddr::V4(ip) => self.core.config.v4.is_some_and(|v4| v4.contains(ip)),
            IpAddr::V6(_) => false,
        };
        is_in
            && !self.core.config.own().contains(&at.ip())
            && !self.services.iter().any(|(known, _)| *known == at)
    }

    pub(crate) fn add_service(&mut self, at: SocketAddr, service: Service) {
        self.services.push((at, service));
        self.stand_in(at.ip(), true);
    }

    /// Returns whether there was one.
    pub(crate) fn remove_service(&mut self, at: SocketAddr) -> bool {
        let before = self.services.len();
        self.services.retain(|(known, _)| *known != at);
        if self.services.len() == before {
            return false;
        }
        self.tcp.end_service(&mut self.core, at);
        if !self.services.iter().any(|(known, _)| known.ip() == at.ip()) {
            self.stand_in(at.ip(), false);
        }
        true
    }

    fn stand_in(&mut self, address: IpAddr, is_there: bool) {
        let prefix = self.core.config.v4.map_or(32, |v4| v4.prefix_len());
        self.link.stand_in(self.core.now, Network { address, prefix }, is_there);
    }

    pub(crate) fn service_room(&self, at: SocketAddr) -> usize {
        self.tcp.room(at)
    }

    pub(crate) fn serve(&mut self, at: SocketAddr, bytes: &[u8]) {
        self.tcp.serve(&mut self.core, at, bytes);
    }

    /// The state of the guest's connections.
    pub(crate) fn save(&self) -> Vec<Saved> {
        let (mut all, stations) = (self.tcp.save(&self.core), self.link.stations());
        for one in &mut all {
            let of_guest = stations.iter().find(|(ip, _)| *ip == one.conn.peer.ip());
            one.station = of_guest.map(|(_, station)| *station);
        }
        all
    }

    /// The guest is another one now, or the same at another time: it has these connections. Forwarded ports
    /// and services stay. As with libslirp, a service that a connection needs must be there: returns whether
    /// it is.
    pub(crate) fn load(&mut self, saved: Vec<Saved>) -> bool {
        let is_caller = |at: SocketAddr| {
            self.services.iter().any(|(known, service)| *known == at && matches!(service, Service::Caller))
        };
        if saved.iter().any(|one| one.continues && !is_caller(one.conn.local)) {
            return false;
        }
        self.end_flows();
        let core = &mut self.core;
        // Packets that are about to leave are for the guest that was.
        while let Some(transmit) = core.stack.poll_transmit(core.now) {
            let ticket = transmit.ticket;
            core.stack.handle_tx(core.now, ticket, Fate::Left);
        }
        for one in saved {
            if let Some(station) = one.station {
                self.link.remember(self.core.now, one.conn.peer.ip(), station);
            }
            self.resume(one);
        }
        true
    }

    /// A connection to a service continues; any other is reset.
    fn resume(&mut self, mut one: Saved) {
        let core = &mut self.core;
        let continues = one.continues && self.tcp.free_service(core, one.conn.local);
        let (local, peer) = (one.conn.local, one.conn.peer);
        let flow = continues.then(|| core.gateway.forward(core.time(), FlowKind::Tcp, peer)).flatten();
        if flow.is_none() {
            // RFC 5961 §3.2: the guest takes a reset with the number that it expects, and questions one that
            // is near.
            one.conn.snd_una = one.conn.snd_nxt;
        }
        match (core.stack.resume(core.now, &one.conn, &near(None)), flow) {
            (Ok(id), Some(flow)) => {
                if !one.up.is_empty() {
                    core.calls.push_back(Call { at: local, bytes: one.up });
                }
                let far = Far::Caller { at: local, said: one.down.into() };
                self.tcp.resume(core, flow, id, far, (peer, local));
            }
            (Ok(id), None) => {
                if let Some(conn) = core.stack.conn_mut(id) {
                    conn.abort(core.now);
                }
            }
            (Err(_), Some(flow)) => core.closed(flow),
            (Err(_), None) => {}
        }
    }

    fn end_flows(&mut self) {
        self.tcp.end_all(&mut self.core);
        self.udp.end_all(&mut self.core);
        self.pings.end_all(&mut self.core);
        self.names.end_all(&mut self.core);
        self.tftp.end_all(&mut self.core);
        self.forwards.end_all(&mut self.core);
    }

    /// When the link has something to say by itself, by the caller's clock.
    pub(crate) fn link_deadline(&self) -> Instant {
        match self.link.deadline() {
            Instant::NEVER => Instant::NEVER,
            at => Instant::from_nanos(at.as_nanos().saturating_sub(self.ahead_ns)),
        }
    }
}

/// How long a loop waits while the caller's clock stands still.
const STOPPED_MS: u32 = 50;

const fn loopback(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::V6;

    #[test]
    fn slirp_24_what_is_due_stays_due_in_a_stopped_machine() {
        let [prefix, host, dns] = ["fec0::", "fec0::2", "fec0::3"].map(|text| text.parse().unwrap());
        let config = Config { v6: Some(V6 { prefix, len: 64, host, dns }), ..Config::default() };
        let now = Instant::from_nanos(7);
        let mut engine = Engine::new(config, Settings::default(), now).unwrap();
        // The router's first advertisement is due, and no turn sends it.
        assert_eq!([1_000, 1_000, 20].map(|most| engine.wait(most).1), [0, 50, 20]);
        engine.set_time(Instant::from_nanos(8));
        assert_eq!(engine.wait(1_000).1, 0);
    }

    #[test]
    fn slirp_34_time_continues_when_the_clock_goes_back() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let [prefix, host, dns] = ["fec0::", "fec0::2", "fec0::3"].map(|text| text.parse().unwrap());
        let config = Config { v6: Some(V6 { prefix, len: 64, host, dns }), ..Config::default() };
        let mut engine = Engine::new(config, Settings::default(), at(0)).unwrap();
        engine.set_time(at(3_600));
        engine.turn();
        // A snapshot of the machine's first minute.
        for (clock, time) in [(60, 3_600), (61, 3_601), (30, 3_601), (100, 3_671)] {
            engine.set_time(at(clock));
            assert_eq!(engine.core.now, at(time), "{clock}");
        }
        // RFC 4861 §6.2.1: the next advertisement, by the clock of the caller's timer.
        engine.turn();
        let due = engine.link_deadline();
        assert!(at(100) < due && due < at(100 + 1_800), "{due:?}");
        // A clock that jumps between its ends.
        for clock in [u64::MAX, 0, u64::MAX, 0, u64::MAX].map(Instant::from_nanos) {
            let before = engine.core.now;
            engine.set_time(clock);
            engine.turn();
            assert!(engine.core.now >= before);
        }
    }
}
