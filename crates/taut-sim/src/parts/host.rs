//! A host: the real stack, its root queue discipline, a NIC, a core and applications. Called by the world's
//! loop.
//!
//! ```text
//!   apps ─▶ Stack ─▶ pool ─▶ root queue ─▶ NIC ─▶ line ─▶ wire
//!    ▲        ▲                              │
//!    └ events ┴─ GRO ◀─ received ◀─ wire     └─▶ completions: tickets go back, nothing is sent from in there
//! ```
//!
//! The root queue gives out packets only while the NIC has room, and the NIC has room again when the host has
//! been notified of sent packets. The host's work at one time is one turn: completions, received packets,
//! timers, then everything that the stack has to send, then the applications. The turn is in this file;
//! `host/up.rs` and `host/down.rs` are the paths of packets.

mod down;
mod returns;
mod tickets;
mod up;

use std::collections::BTreeMap;
use std::net::IpAddr;

use taut_core::{Blocked, ConnId, Duration, Fate, Instant, LinkCaps, Stack, StackConfig};
use taut_link::{Arrival, Nic, NicSpec, Qdisc, QdiscSpec, Rate, Tree};
use taut_wire::{Flags, raw};

use crate::app::{AppCx, AppEvent, Apps};
use crate::event::AlarmId;
use crate::ids::{AppId, HostId, WireId};
use crate::packet::{Claim, PacketId};
use crate::parts::cpu::{Counts, Cpu, CpuModel, Phase};
use crate::parts::fabric::Fabric;
use crate::probe::{PacketView, Place, ProbeEvent};
use crate::rng::Rng;
use returns::LateReturns;
use tickets::Tickets;

/// The parts of a host.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Settings of its stack. An address is added if there is none.
    pub config: StackConfig,
    /// Its NIC.
    pub nic: NicSpec,
    /// The queue discipline between stack and NIC.
    pub qdisc: QdiscSpec,
    /// How long its work takes.
    pub cpu: CpuModel,
    /// Largest IP packet on its link.
    pub mtu: u16,
    /// Whether its stack is told that the queue discipline honours departure times, if it does.
    pub delegate_pacing: bool,
    /// `LinkCaps::pacing_shift`.
    pub pacing_shift: u8,
    /// Whether the stack sends only after all packets of an interrupt, or where [`Stack::must_answer`]
    /// requires it, as taut's driver does, so that the ACKs become one. Otherwise it sends after each packet,
    /// as in Linux.
    pub batched: bool,
    /// How its device gives tickets back.
    pub returns: Returns,
    /// `LinkCaps::completes_on_departure`, which is true of this host's tickets unless its queue discipline
    /// stands for the path. Small queues are then measured, by default.
    pub tells_departures: bool,
}

/// How a device gives tickets back. The default is a NIC's way: all in order, when it interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Returns {
    /// Each ticket comes back up to this later than the NIC's interrupt, and so in any order.
    pub late: Duration,
    /// Probability that a ticket never comes back.
    pub never: f64,
    /// Probability that the device has no room for a packet. It has room again within a millisecond.
    pub refuse: f64,
}

impl HostSpec {
    /// A present-day host with a NIC of this rate: `pfifo_fast`, and a core that takes no time.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            config: StackConfig::default(),
            nic: NicSpec::new(rate),
            qdisc: QdiscSpec::PfifoFast,
            cpu: CpuModel::default(),
            mtu: 1_500,
            delegate_pacing: true,
            pacing_shift: 10,
            batched: true,
            returns: Returns::default(),
            tells_departures: true,
        }
    }

    pub(crate) fn caps(&self) -> LinkCaps {
        let caps = if self.nic.tso { LinkCaps::offloading(self.mtu) } else { LinkCaps::plain(self.mtu) };
        LinkCaps {
            tx_checksum: true,
            paces: self.qdisc.paces() && self.delegate_pacing,
            pacing_shift: self.pacing_shift,
            // A queue that stands for the path reports packets at once; one that paces, when they were due.
            completes_on_departure: self.tells_departures
                && !self.qdisc.build::<Claim>(0).orphans()
                && !self.qdisc.paces(),
            ..caps
        }
    }
}

/// The times that a host waits for.
#[derive(Debug)]
pub(crate) struct Alarms {
    pub(crate) stack: AlarmId,
    pub(crate) root: AlarmId,
    pub(crate) sent: AlarmId,
    pub(crate) received: AlarmId,
    pub(crate) core: AlarmId,
    /// For the core that takes back sent packets, if there is another one.
    pub(crate) apart: AlarmId,
    /// Tickets that come back late, and a device that has room again.
    pub(crate) returns: AlarmId,
}

/// The kernel's work that is due.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    timer: bool,
    root: bool,
    sent: bool,
    received: bool,
}

impl Due {
    fn any(self) -> bool {
        self.timer || self.root || self.sent || self.received
    }
}

/// A machine with one link.
pub struct Host {
    pub(crate) id: HostId,
    pub(crate) stack: Stack,
    pub(crate) root: Tree<Claim>,
    /// Packets that arrived, and slots of `tickets`.
    pub(crate) nic: Nic<PacketId, u32>,
    pub(crate) wire: Option<WireId>,
    pub(crate) tickets: Tickets,
    pub(crate) cpu: Cpu,
    pub(crate) counts: Counts,
    pub(crate) apps: Apps,
    alarms: Alarms,
    due: Due,
    /// The work that the core is doing.
    doing: Due,
    /// Destination of the last packet: packets come in trains.
    latest_to: Option<(IpAddr, HostId)>,
    batch: Vec<PacketId>,
    scratch: Vec<u8>,
    /// Connections by the flow number of their incoming packets; kept only for probes.
    by_flow: BTreeMap<u64, ConnId>,
    /// The gate of each connection as last reported to probes.
    gates: BTreeMap<ConnId, &'static str>,
    /// The most bytes that the root queue and the NIC held together.
    peak_below: u64,
    /// When a write was last held for a completion.
    held_since: Option<Instant>,
    /// See [`HostSpec::batched`].
    batched: bool,
    /// See [`HostSpec::returns`].
    returns: LateReturns,
}

impl Host {
    pub(crate) fn new(id: HostId, spec: &HostSpec, stack: Stack, alarms: Alarms, mut rng: Rng) -> Self {
        let returns = LateReturns::new(spec.returns, Rng::new(rng.clone().next()));
        Self {
            id,
            stack,
            root: spec.qdisc.build(rng.next()),
            nic: Nic::new(spec.nic),
            wire: None,
            tickets: Tickets::default(),
            cpu: Cpu::new(spec.cpu, rng.fork()),
            counts: Counts::default(),
            apps: Apps::default(),
            alarms,
            due: Due::default(),
            doing: Due::default(),
            latest_to: None,
            batch: Vec::new(),
            scratch: Vec::new(),
            by_flow: BTreeMap::new(),
            gates: BTreeMap::new(),
            peak_below: 0,
            held_since: None,
            batched: spec.batched,
            returns,
        }
    }

    /// Its stack.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.stack.config().addresses.first().copied()
    }

    /// Bytes of IP packets in its root queue, and bytes in its NIC's ring that are not yet completed.
    #[must_use]
    pub fn below(&self) -> (u64, u64) {
        (self.root.backlog_bytes(), self.nic.bytes())
    }

    /// The most bytes that both held together.
    #[must_use]
    pub const fn peak_below(&self) -> u64 {
        self.peak_below
    }

    // ---- events from the world ----

    /// A packet arrived at the NIC.
    pub(crate) fn receive(&mut self, fabric: &mut Fabric, packet: PacketId) {
        let now = fabric.now;
        fabric.note(fabric.pool.get(&packet).fingerprint());
        self.counts.segments_in += 1;
        self.counts.bytes_in += u64::from(fabric.pool.len(&packet));
        if fabric.probes.want.packets {
            let what =
                ProbeEvent::Delivered { host: self.id, packet: PacketView::new(&fabric.pool, &packet) };
            fabric.probes.tell(now, &what);
        }
        match self.nic.receive(now, packet) {
            Arrival::Interrupt => self.on_received(fabric),
            Arrival::InterruptAt(at) => fabric.agenda.set(self.alarms.received, Some(at)),
            Arrival::Quiet => {}
            Arrival::Dropped(packet) => {
                self.counts.rx_dropped += 1;
                fabric.lose(Place::Nic(self.id), packet);
            }
        }
    }

    /// The NIC interrupts for received packets.
    fn on_received(&mut self, fabric: &mut Fabric) {
        if !self.nic.spec().rx_usecs.is_zero() {
            fabric.agenda.set(self.alarms.received, None);
        }
        self.due.received = true;
        self.counts.rx_interrupts += 1;
        if fabric.probes.want.interrupts {
            let frames = self.nic.received() as u32;
            fabric.probes.tell(fabric.now, &ProbeEvent::Interrupt { host: self.id, transmit: false, frames });
        }
        self.poke(fabric);
    }

    pub(crate) fn on_received_alarm(&mut self, fabric: &mut Fabric) {
        if self.nic.interrupt() {
            self.on_received(fabric);
        }
    }

    pub(crate) fn on_sent_alarm(&mut self, fabric: &mut Fabric) {
        self.counts.tx_interrupts += 1;
        if self.cpu.model.completions_apart {
            let model = self.cpu.model;
            let cost = model.interrupt + model.completion * self.nic.sent(fabric.now) as u64;
            let done = fabric.now + self.cpu.with_jitter(cost);
            return fabric.agenda.set(self.alarms.apart, Some(done));
        }
        self.due.sent = true;
        self.poke(fabric);
    }

    /// Another core has taken the interrupt, whatever its cause.
    pub(crate) fn on_apart_alarm(&mut self, fabric: &mut Fabric) {
        let held = self.held_since.take();
        self.complete(fabric);
        let window = self.cpu.model.lost_wakeup.map(|race| race.window);
        let is_lost = held.zip(window).is_some_and(|(since, window)| fabric.now.since(since) < window);
        if is_lost {
            // The sender had looked but not yet asked. The resumed connection is found at the next event.
            self.counts.lost_wakeups += 1;
        } else {
            self.feed(fabric);
            self.pump(fabric);
            self.collect(fabric);
        }
        self.rearm(fabric);
        self.poke(fabric);
    }

    /// Late tickets are back, or the device has room again.
    pub(crate) fn on_returns_alarm(&mut self, fabric: &mut Fabric) {
        let now = fabric.now;
        while let Some(slot) = self.returns.take(now) {
            if let Some(ticket) = self.tickets.take(slot) {
                self.stack.handle_tx(now, ticket, Fate::Left);
            }
        }
        self.pump(fabric);
        self.collect(fabric);
        self.rearm(fabric);
        self.poke(fabric);
    }

    /// Called after a write: notes whether it was held for a completion, which may come too soon.
    pub(crate) fn note_held(&mut self, now: Instant, conn: ConnId) {
        if self.cpu.model.lost_wakeup.is_some() {
            let gate = self.stack.conn(conn).map(|conn| conn.blocked());
            self.held_since = (gate == Some(Blocked::Autocork)).then_some(now);
        }
    }

    pub(crate) fn on_stack_alarm(&mut self, fabric: &mut Fabric) {
        self.due.timer = true;
        self.poke(fabric);
    }

    pub(crate) fn on_root_alarm(&mut self, fabric: &mut Fabric) {
        self.due.root = true;
        self.counts.qdisc_timers += 1;
        self.poke(fabric);
    }

    pub(crate) fn on_app_alarm(&mut self, fabric: &mut Fabric, app: u32) {
        self.apps.on_alarm(fabric, app);
        self.poke(fabric);
    }

    pub(crate) fn on_core_alarm(&mut self, fabric: &mut Fabric) {
        let phase = std::mem::replace(&mut self.cpu.phase, Phase::Idle);
        match phase {
            Phase::Kernel => {
                let doing = std::mem::take(&mut self.doing);
                self.kernel(fabric, doing);
            }
            Phase::Apps => self.run_apps(fabric),
            Phase::Waking if self.cpu.free => self.work(fabric),
            Phase::Idle | Phase::Waking | Phase::Cooling => {}
        }
        self.begin(fabric, phase);
        self.rearm(fabric);
    }

    pub(crate) fn add_app(
        &mut self,
        fabric: &mut Fabric,
        at: Instant,
        app: Box<dyn crate::app::App>,
    ) -> AppId {
        self.apps.add(fabric, self.id, at, app)
    }

    // ---- the core ----

    /// Notifies the core that there is work.
    pub(crate) fn poke(&mut self, fabric: &mut Fabric) {
        if self.cpu.sleeps() {
            if self.cpu.phase == Phase::Idle && (self.due.any() || self.apps.has_work()) {
                self.cpu.phase = Phase::Waking;
                let awake = self.cpu.wake(fabric.now);
                fabric.agenda.set(self.alarms.core, Some(awake));
            }
        } else if self.cpu.free {
            self.work(fabric);
            self.rearm(fabric);
        } else if self.cpu.phase == Phase::Idle {
            self.begin(fabric, Phase::Idle);
        }
    }

    /// Does all work at once.
    fn work(&mut self, fabric: &mut Fabric) {
        loop {
            if self.due.any() {
                let due = std::mem::take(&mut self.due);
                self.kernel(fabric, due);
            } else if self.apps.has_work() {
                self.run_apps(fabric);
            } else {
                break;
            }
        }
    }

    /// Starts the next piece of work after a phase, if there is any.
    fn begin(&mut self, fabric: &mut Fabric, after: Phase) {
        let model = self.cpu.model;
        let apps_first = after == Phase::Kernel && self.apps.has_work();
        let (phase, cost) = if self.due.any() && !apps_first {
            self.doing = std::mem::take(&mut self.due);
            let mut cost = model.timer * (u64::from(self.doing.timer) + u64::from(self.doing.root));
            if self.doing.sent {
                cost += model.interrupt + model.completion * self.nic.sent(fabric.now) as u64;
            }
            if self.doing.received {
                self.cpu.reckoned = self.nic.received() as u64;
                cost += model.interrupt + model.rx_packet + model.rx_segment * self.cpu.reckoned;
            }
            (Phase::Kernel, cost)
        } else if self.apps.has_work() {
            (Phase::Apps, model.context_switch)
        } else if !self.cpu.owed.is_zero() {
            (Phase::Cooling, taut_core::Duration::ZERO)
        } else {
            return;
        };
        self.cpu.phase = phase;
        let done = self.cpu.pay(fabric.now, cost, &mut self.counts);
        fabric.agenda.set(self.alarms.core, Some(done));
    }

    /// Does all work that was due.
    fn kernel(&mut self, fabric: &mut Fabric, due: Due) {
        let now = fabric.now;
        if due.sent {
            self.complete(fabric);
        }
        if due.received {
            self.take_received(fabric);
        }
        if due.timer {
            self.counts.timer_events += 1;
            self.stack.handle_timeout(now);
            if fabric.probes.want.interrupts {
                fabric.probes.tell(now, &ProbeEvent::Timer { host: self.id });
            }
        }
        if due.sent || due.root {
            // The NIC has room, or a packet's time has come.
            self.feed(fabric);
        }
        self.pump(fabric);
        self.collect(fabric);
    }

    /// Runs the applications that received events.
    fn run_apps(&mut self, fabric: &mut Fabric) {
        let mut running = AppId::NONE;
        while let Some((id, event)) = self.apps.next_event() {
            if id != running {
                running = id;
                self.counts.wakeups += 1;
                self.counts.context_switches += 1;
                self.cpu.owe(self.cpu.model.context_switch, 1);
                if fabric.probes.want.apps {
                    fabric.probes.tell(fabric.now, &ProbeEvent::Woken { host: self.id, app: id });
                }
            }
            let Some(mut app) = self.apps.take(id) else { continue };
            let mut cx = AppCx::new(self, fabric, id);
            match event {
                AppEvent::Start => app.start(&mut cx),
                AppEvent::Timer(token) => app.on_timer(&mut cx, token),
                AppEvent::Net(event) => app.on_event(&mut cx, event),
            }
            self.apps.put_back(id, app);
            self.apps.arm(fabric, id);
        }
        // Switch back to the idle thread.
        self.counts.context_switches += 1;
        self.pump(fabric);
        self.collect(fabric);
    }

    /// Sets the alarms to the times that the host waits for.
    fn rearm(&mut self, fabric: &mut Fabric) {
        let now = fabric.now;
        let stack = self.stack.poll_timeout().map(|(at, _)| at.max(now));
        fabric.agenda.set(self.alarms.stack, stack.filter(|_| !self.due.timer && !self.doing.timer));
        let root = self
            .root
            .next()
            .filter(|_| self.nic.room() && !self.due.root && !self.doing.root)
            .map(|at| at.max(now));
        fabric.agenda.set(self.alarms.root, root);
        let apart = fabric.agenda.is_set(self.alarms.apart);
        let sent = self
            .nic
            .next_interrupt()
            .filter(|_| !self.due.sent && !self.doing.sent && !apart)
            .map(|at| at.max(now));
        fabric.agenda.set(self.alarms.sent, sent);
        fabric.agenda.set(self.alarms.returns, self.returns.next().map(|at| at.max(now)));
    }

    /// Whether its device takes no packets now, so that its connections are not asked.
    pub(crate) const fn is_refusing(&self) -> bool {
        self.returns.is_full()
    }

    /// Whether all due work is done, so that the events that the stack waits for must be on their way.
    pub(crate) fn is_settled(&self) -> bool {
        !self.due.any() && !self.apps.has_work() && self.cpu.phase == Phase::Idle
    }
}

/// Whether a packet is a pure ACK.
#[inline]
fn is_pure_ack(fabric: &Fabric, id: &PacketId) -> bool {
    if fabric.pool.payload_len(id) > 0 {
        return false;
    }
    let flags = raw::tcp_flags(fabric.pool.header(id));
    flags.contains(Flags::ACK) && !flags.intersects(Flags::SYN | Flags::FIN | Flags::RST)
}
