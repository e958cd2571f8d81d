//! Builds the world of a scenario: hosts, a cable, a dumbbell or a parking lot, applications. Called by
//! `sim.rs`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use taut_core::{ConnId, Duration, Instant, ListenOptions};
use taut_link::{BqlSpec, NicSpec, Rate, Trace};
use taut_sim::app::{
    Bulk, BulkStats, Pause, Request, Responder, RrStats, Sink, Stream, StreamStats, Web, WebServer, WebStats,
};
use taut_sim::{
    BEGIN, CpuModel, Faults, GilbertElliott, HostId, HostSpec, LostWakeup, PortSpec, Rng, RouterId, Wakeups,
    WireId, World,
};

use super::machine::{self, Machine, Machines};
use crate::scenario::value::{BqlText, Bytes, Text};
use crate::scenario::{
    AppKind, BurstSpec, CpuText, FaultSpec, FlowSpec, HostText, Kind, Scenario, WakeupsText,
};

/// Port of sinks. The ports of responders, which differ in request size, follow.
const SINK: u16 = 5001;
const RESPONDER: u16 = 6001;
const WEB: u16 = 8080;

/// Separates the stream of starts from the world's.
const STARTS: u64 = 0x7374_6172_7473;

/// Largest number of flows whose received bytes are compared with the written ones.
const CHECKED_MAX: u32 = 100;

/// The results of a flow's application.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Bulk(Rc<RefCell<BulkStats>>),
    Stream(Rc<RefCell<StreamStats>>),
    Rr(Rc<RefCell<RrStats>>),
    Web(Rc<RefCell<WebStats>>),
}

impl Source {
    /// Its connection, if it has a single one.
    pub(super) fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Bulk(stats) => stats.borrow().conn,
            Self::Stream(stats) => stats.borrow().conn,
            Self::Rr(stats) => stats.borrow().conn,
            Self::Web(_) => None,
        }
    }

    pub(super) fn connected(&self) -> Option<Instant> {
        match self {
            Self::Bulk(stats) => stats.borrow().connected,
            Self::Stream(stats) => stats.borrow().connected,
            Self::Rr(_) | Self::Web(_) => None,
        }
    }

    pub(super) fn ended(&self) -> Option<Instant> {
        match self {
            Self::Bulk(stats) => stats.borrow().closed,
            _ => None,
        }
    }

    /// The bytes written, if all of them arrived and the connection is closed.
    pub(super) fn finished_bytes(&self) -> Option<u64> {
        match self {
            Self::Bulk(stats) => stats.borrow().closed.map(|_| stats.borrow().written),
            _ => None,
        }
    }

    /// The duration and payload of a closed connection.
    pub(super) fn elapsed(&self) -> Option<(Duration, u64)> {
        Some((self.ended()?.since(self.connected()?), self.finished_bytes()?))
    }
}

/// A flow.
pub(super) struct Traffic {
    pub(super) name: String,
    /// Which of the scenario's `[[flows]]` it is of.
    pub(super) group: usize,
    /// Not measured.
    pub(super) is_beside: bool,
    pub(super) from: HostId,
    pub(super) to: HostId,
    pub(super) source: Source,
}

/// The parts of a world.
pub(super) struct Net {
    pub(super) senders: Vec<HostId>,
    pub(super) receivers: Vec<HostId>,
    /// Senders of flows beside the others.
    beside: Vec<HostId>,
    pub(super) traffic: Vec<Traffic>,
    /// Routers and ports that have queues; empty for a pair.
    bottlenecks: Vec<(RouterId, usize)>,
    /// Of the senders' NICs: nanoseconds per byte, and extra bytes per packet.
    line: (f64, u32),
}

impl Net {
    pub(super) fn new(world: &mut World, scenario: &Scenario, seed: u64) -> Result<Self, String> {
        let pairs = scenario.pairs();
        let link_rate = scenario.link.rate.value;
        let ten_times = Rate::from_bits_per_second(link_rate.bits_per_second().saturating_mul(10));
        let nic_rate = match (scenario.topology.kind, &scenario.topology.access) {
            (Kind::Pair | Kind::Direct, _) => link_rate,
            (_, Some(access)) => access.value,
            (_, None) => ten_times.unwrap_or(link_rate),
        };
        let host = |text, machine| host_spec(text, machine, nic_rate, scenario);
        let machines = Machines::of(scenario.host);
        let sender = host(&scenario.hosts.sender, machines.sender);
        let receiver = host(&scenario.hosts.receiver, machines.receiver);
        let overhead = sender.nic.overhead_bytes;
        let line = (1e9 / nic_rate.bytes_per_second() as f64, overhead);
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        let (mut bottlenecks, mut lines) = (Vec::new(), Vec::new());
        if scenario.topology.kind.is_pair() {
            let (a, b) = (world.host(sender), world.host(receiver));
            lines.push(world.cable(a, b, scenario.link.delay()));
            senders.push(a);
            receivers.push(b);
        } else {
            let hops = if scenario.topology.kind == Kind::Dumbbell { 1 } else { pairs as usize - 1 };
            let routers: Vec<RouterId> = (0..=hops).map(|_| world.router()).collect();
            let port = |rate, steps: Vec<(Duration, Rate)>, trace: &Option<Arc<Trace>>, policer| PortSpec {
                rate: Some(rate),
                qdisc: scenario.bottleneck_queue(),
                steps: steps.into_iter().map(|(after, rate)| (BEGIN + after, rate)).collect(),
                trace: trace.clone().map(|trace| (BEGIN, trace)),
                policer,
            };
            let [steps, back_steps] = scenario.link.steps();
            let there = port(link_rate, steps, &scenario.link.recorded, scenario.link.policer());
            let back = port(scenario.link.back_rate(), back_steps, &scenario.link.back_recorded, None);
            let access = PortSpec::fifo(nic_rate, 1_000);
            for (hop, ends) in routers.windows(2).enumerate() {
                lines.push(world.join(ends[0], ends[1], &there, &back, scenario.link.delay()));
                // All routers but the first have a port back to the previous one.
                bottlenecks.push((ends[0], usize::from(hop > 0)));
            }
            for pair in 0..pairs as usize {
                let delays = &scenario.topology.delays;
                let delay =
                    pair.checked_rem(delays.len()).map_or(Duration::ZERO, |index| delays[index].value);
                let (a, b) = (world.host(sender.clone()), world.host(receiver.clone()));
                // In a parking lot the first pair crosses all lines, each other pair one.
                let (from, to) = if hops == 1 || pair == 0 { (0, hops) } else { (pair - 1, pair) };
                world.attach(a, routers[from], &access, delay);
                world.attach(b, routers[to], &access, Duration::ZERO);
                senders.push(a);
                receivers.push(b);
            }
        }
        for (there, back) in lines {
            set_faults(world, there, &scenario.link.faults);
            set_faults(world, back, &scenario.link.back_faults);
        }
        for (ids, text) in [(&senders, &scenario.hosts.sender), (&receivers, &scenario.hosts.receiver)] {
            for &id in ids {
                for (name, value) in &text.sysctls.0 {
                    world.stack_mut(id).set_sysctl(name, value).map_err(|error| error.to_string())?;
                }
            }
        }
        let mut net = Self { senders, receivers, beside: Vec::new(), traffic: Vec::new(), bottlenecks, line };
        // A stream of its own: what a flow's start costs is drawn from no other.
        net.populate(world, scenario, &mut Rng::new(seed ^ STARTS))?;
        Ok(net)
    }

    fn populate(&mut self, world: &mut World, scenario: &Scenario, rng: &mut Rng) -> Result<(), String> {
        // Bytes are checked if there are not too many flows.
        let is_small = scenario.flows.iter().map(|flow| flow.count).sum::<u32>() <= CHECKED_MAX;
        for &id in &self.receivers {
            let sink = Sink::new(SINK);
            world.app(id, if is_small { sink } else { sink.trusting() });
        }
        if scenario.flows.iter().any(|flow| flow.app == AppKind::Web) {
            // Pages are served from the senders' side.
            self.senders.iter().for_each(|&id| {
                world.app(id, WebServer::new(WEB));
            });
        }
        for (index, spec) in scenario.flows.iter().enumerate() {
            let port = RESPONDER + index as u16;
            let size = |bytes: &Option<Text<Bytes>>| bytes.as_ref().map_or(1, |text| text.value.0 as usize);
            let (request, response) = (size(&spec.request), size(&spec.response));
            if spec.app == AppKind::Rr {
                for &id in &self.receivers {
                    // A socket option for one end of a conversation applies to the other end as well.
                    let options = ListenOptions { conn: spec.options.options(), ..ListenOptions::default() };
                    world.app(id, Responder::new(port).sizes(request, response).options(options));
                }
            }
            for copy in 0..spec.count {
                let pair = spec.pair.unwrap_or(copy) as usize % self.senders.len();
                let phase = spec.phase.as_ref().map_or(machine::phase(scenario), |text| text.value);
                let late = rng.below_time(phase);
                let traffic =
                    self.flow(world, spec, (index, copy), (pair, late), port, (request, response))?;
                if spec.beside && !self.beside.contains(&traffic.from) {
                    self.beside.push(traffic.from);
                }
                self.traffic.push(traffic);
            }
        }
        Ok(())
    }

    fn flow(
        &self,
        world: &mut World,
        spec: &FlowSpec,
        (index, copy): (usize, u32),
        (pair, late): (usize, Duration),
        port: u16,
        (request, response): (usize, usize),
    ) -> Result<Traffic, String> {
        let (from, to) = (self.senders[pair], self.receivers[pair]);
        let address = |id: HostId| world.host_ref(id).address().ok_or("a host without an address");
        let (here, there) = (address(from)?, address(to)?);
        let time = |text: &Option<Text<Duration>>| text.as_ref().map_or(Duration::ZERO, |text| text.value);
        let at = BEGIN + time(&spec.start) + time(&spec.stagger) * u64::from(copy) + late;
        let options = spec.options.options();
        let write = spec.write.as_ref().map(|text| text.value.0 as usize);
        let (name, source) = match spec.app {
            AppKind::Bulk => {
                let mut app = Bulk::new((there, SINK).into()).options(options);
                if let Some(total) = &spec.total {
                    app = app.total(total.value.0);
                }
                if let Some(write) = write {
                    app = app.write_size(write);
                }
                if let Some(every) = &spec.every {
                    app = app.every(every.value);
                }
                if spec.on.is_some() {
                    app = app.pause(Pause { on: time(&spec.on), off: time(&spec.off) });
                }
                let source = Source::Bulk(app.stats());
                world.app_at(from, at, app);
                ("bulk", source)
            }
            AppKind::Stream => {
                let mut app = Stream::new((there, SINK).into()).options(options);
                if let Some(write) = write {
                    app = app.write_size(write);
                }
                let source = Source::Stream(app.stats());
                world.app_at(from, at, app);
                ("stream", source)
            }
            AppKind::Rr => {
                let app = Request::new((there, port).into())
                    .options(options)
                    .sizes(request, response)
                    .count(spec.transactions.unwrap_or(u64::MAX))
                    .think(time(&spec.think));
                let source = Source::Rr(app.stats());
                world.app_at(from, at, app);
                ("rr", source)
            }
            AppKind::Web => {
                let bytes =
                    |text: &Option<Text<Bytes>>, default| text.as_ref().map_or(default, |text| text.value.0);
                let mut app = Web::new((here, WEB).into())
                    .sizes(bytes(&spec.least, 2_000), bytes(&spec.most, 2_000_000));
                if let Some(think) = &spec.think {
                    app = app.think(think.value);
                }
                let source = Source::Web(app.stats());
                world.app_at(to, at, app);
                ("web", source)
            }
        };
        let name = if spec.count > 1 { format!("{name} {index}.{copy}") } else { format!("{name} {index}") };
        Ok(Traffic { name, group: index, is_beside: spec.beside, from, to, source })
    }

    /// All hosts.
    pub(super) fn all_hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.senders.iter().chain(&self.receivers).copied()
    }

    /// The senders that are measured: those of flows beside the others are not.
    pub(super) fn measured_senders(&self) -> impl Iterator<Item = HostId> + '_ {
        self.senders.iter().copied().filter(|id| !self.beside.contains(id))
    }

    /// A host's name.
    pub(super) fn name(&self, id: HostId) -> String {
        let of = |ids: &[HostId], word: &str| {
            let index = ids.iter().position(|other| *other == id)?;
            Some(if ids.len() > 1 { format!("{word}{index}") } else { word.to_owned() })
        };
        of(&self.senders, "sender").or_else(|| of(&self.receivers, "receiver")).unwrap_or_default()
    }

    pub(super) fn named_hosts(&self) -> impl Iterator<Item = (HostId, String)> + '_ {
        self.all_hosts().map(|id| (id, self.name(id)))
    }

    /// Names by number of the host.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.senders.len() + self.receivers.len()];
        for (id, name) in self.named_hosts() {
            names[id.index()] = name;
        }
        names
    }

    /// The lines of the senders that are measured, by number of the host.
    pub(super) fn lines(&self) -> Vec<Option<(f64, u32)>> {
        let mut lines = vec![None; self.senders.len() + self.receivers.len()];
        for id in self.measured_senders() {
            lines[id.index()] = Some(self.line);
        }
        lines
    }

    /// Bytes in the queues in the middle.
    pub(super) fn bottleneck_bytes(&self, world: &World) -> Option<u64> {
        let waiting = |&(router, port): &(RouterId, usize)| {
            world.port_state(router, port).map(|port| port.backlog_bytes)
        };
        self.bottlenecks.iter().map(waiting).sum::<Option<u64>>().filter(|_| !self.bottlenecks.is_empty())
    }
}

fn set_faults(world: &mut World, wire: WireId, spec: &FaultSpec) {
    if *spec == FaultSpec::default() {
        return;
    }
    let time = |text: &Option<Text<Duration>>| text.as_ref().map_or(Duration::ZERO, |text| text.value);
    let faults = Faults {
        loss: spec.loss,
        bursts: spec.bursts.map(|BurstSpec { p, r, bad, good }| GilbertElliott { p, r, bad, good }),
        duplicate: spec.duplicate,
        corrupt: spec.corrupt,
        reorder: spec.reorder,
        reorder_delay: time(&spec.reorder_delay),
        jitter: time(&spec.jitter),
        in_order: spec.in_order,
        ..Faults::default()
    };
    world.set_faults(wire, faults);
}

fn host_spec(text: &HostText, machine: Machine, rate: Rate, scenario: &Scenario) -> HostSpec {
    let mut spec = HostSpec { config: scenario.stack_config(), ..HostSpec::new(rate) };
    // As live, where only the link between two hosts is a queue of the stack's own.
    spec.tells_departures = scenario.topology.kind == Kind::Direct;
    let nic: &mut NicSpec = &mut spec.nic;
    let given = &text.nic;
    nic.tso = given.tso.unwrap_or(nic.tso);
    nic.gro = given.gro.unwrap_or(nic.gro);
    nic.ring = given.tx.map_or(nic.ring, |n| n as usize);
    nic.rx_ring = given.rx.map_or(nic.rx_ring, |n| n as usize);
    let us = |n: u32| Duration::from_micros(n.into());
    nic.tx_usecs = given.tx_usecs.map_or(nic.tx_usecs, us);
    nic.rx_usecs = us(given.rx_usecs.unwrap_or(machine.rx_usecs));
    nic.tx_frames = given.tx_frames.unwrap_or(nic.tx_frames);
    nic.rx_frames = given.rx_frames.unwrap_or(nic.rx_frames);
    nic.bql = match given.bql.as_ref().map(|text| text.value) {
        None => nic.bql,
        Some(BqlText::On) => Some(BqlSpec::default()),
        Some(BqlText::Off) => None,
        Some(BqlText::Fixed(bytes)) => Some(BqlSpec::fixed(bytes)),
    };
    if let Some(text) = &text.qdisc {
        spec.qdisc = text.value.clone();
    }
    spec.delegate_pacing = text.delegate_pacing.unwrap_or(spec.delegate_pacing);
    spec.pacing_shift = text.pacing_shift.unwrap_or(spec.pacing_shift);
    spec.mtu = text.mtu.unwrap_or(spec.mtu);
    spec.batched = text.batched.unwrap_or(spec.batched);
    spec.cpu = cpu(&text.cpu, machine);
    spec.returns.late = given.tx_late.map_or(spec.returns.late, us);
    spec
}

fn cpu(text: &CpuText, machine: Machine) -> CpuModel {
    let time = |text: &Option<Text<Duration>>| text.as_ref().map_or(Duration::ZERO, |text| text.value);
    CpuModel {
        interrupt: time(&text.interrupt),
        rx_packet: text.rx_packet.as_ref().map_or(machine.rx_packet, |text| text.value),
        rx_segment: time(&text.rx_segment),
        tx_packet: time(&text.tx_packet),
        completion: time(&text.completion),
        timer: time(&text.timer),
        context_switch: time(&text.context_switch),
        syscall: time(&text.syscall),
        jitter: text.jitter.unwrap_or(0.0),
        completions_apart: text.completions_apart.unwrap_or(machine.completions_apart),
        lost_wakeup: text.lost_wakeup.as_ref().map(|text| LostWakeup { window: text.value }),
        wakeups: match text.wakeups {
            None => machine.wakeups,
            Some(WakeupsText::Exact) => Wakeups::Exact,
            Some(WakeupsText::Quiet) => Wakeups::Quiet,
            Some(WakeupsText::Busy) => Wakeups::Busy,
        },
    }
}
