//! The gateway's logic, without clock, sockets or threads: which flows may begin, what becomes of them, and
//! when they end.
//!
//! ```text
//!   runner ── admit ─▶ Dial, Question, Refuse, Silent        ── ended, passed ─▶ Finish, Reset, Close
//!          ── reached, failed ─▶ Accept, Refuse, Silence     ── handle_timeout, then poll_end: whose time is over
//!          ── closed: nothing of the flow is left            ── poll_event: lines for the log
//! ```
//!
//! The runner calls; the gateway answers with what to do (`flow.rs` has the table). A flow counts until the
//! runner says [`closed`](Gateway::closed). Time is an argument: how long the gateway has been running. The
//! same calls with the same times give the same answers.
//!
//! `admission.rs` has which flows may begin, `questions.rs` the name server's part, `live/` what others list
//! and change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use taut::FlowKind;
use taut::network::IpPrefix;

use crate::logic::counters::Counters;
use crate::logic::event::{Ended, Event};
use crate::logic::flow::{End, EventKind, Failure, Flow, NextStep, Side, Stage};
pub use crate::logic::flows::FlowId;
use crate::logic::flows::Flows;
use crate::logic::guests::{Counted, Guest, Guests, Machines};
use crate::logic::idle::Idle;
use crate::logic::limits::{Amounts, LEAST_GRANT, Limits, Timeouts};
use crate::logic::live::hosts::Hosts;
use crate::logic::live::zones::Zones;
use crate::logic::names::Names;
use crate::logic::questions::{Pending, QuestionId};
use crate::logic::rules::{Rule, Rules, UdpFilter};

/// How a gateway behaves.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How much there may be at once.
    pub limits: Limits,
    /// How long a flow may be idle.
    pub timeouts: Timeouts,
    /// Where guests may go.
    pub rules: Rules,
    /// The senders whose datagrams reach a guest's UDP port.
    pub udp_filter: UdpFilter,
    /// The gateway's own addresses: name server of the guests, and the host's loopback for them.
    pub own: Vec<IpAddr>,
    /// Further addresses at which the gateway's name server answers guests.
    pub dns_at: Vec<IpAddr>,
    /// Addresses that guests see, and those of this host that they stand for.
    pub mapped: Vec<(IpAddr, IpAddr)>,
    /// Flows that have ended are events.
    pub decisions: bool,
    /// Rules that deny, but for the defaults, are only logged, with the flows that they would deny.
    pub dry_run: bool,
    /// The networks in which guests are: a flow from another source is refused. Any if there is none.
    pub sources: Vec<IpPrefix>,
    /// Own addresses without a name service: port 53 leads to the host's loopback there, too.
    pub nameless: Vec<IpAddr>,
    /// Flows leave by a stack, whose packets have no class: a rule with one is refused while it runs.
    pub by_stack: bool,
}

/// How many events wait for the log.
const MAX_EVENTS: usize = 256;

/// How often the log has a line about descriptors, ports or memory that this host has no more of.
const RESOURCES_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Flow(FlowId),
    Question(QuestionId),
}

/// The state machine.
#[derive(Debug, Default)]
pub struct Gateway {
    pub(super) settings: Settings,
    pub(crate) flows: Flows<Flow>,
    pub(super) pending: BTreeMap<QuestionId, Pending>,
    pub(super) guests: Guests,
    pub(super) names: Names,
    pub(super) deadlines: BTreeSet<(Duration, Due)>,
    idle: Idle,
    over: VecDeque<(FlowId, NextStep)>,
    events: VecDeque<Event>,
    pub(super) counters: Counters,
    pub(super) questions: u64,
    /// When the log last had a line about what this host has no more of.
    said_no_resources: Option<Duration>,
    pub(super) zones: Zones,
    pub(super) hosts: Hosts,
    pub(super) machines: Machines,
}

impl Gateway {
    /// A gateway without flows.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Changes limits, times and rules; flows that exist stay, within the new times.
    pub fn set(&mut self, mut settings: Settings) {
        settings.rules.keep_rates(&self.settings.rules);
        self.settings = settings;
    }

    /// How it behaves.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Somebody outside begins a flow to a guest, at a port that the host forwards. The guest is the side
    /// that must be [`reached`](Self::reached). `None` if there is no room.
    pub fn forward(&mut self, now: Duration, kind: FlowKind, guest: SocketAddr) -> Option<FlowId> {
        self.counters.forwarded += 1;
        self.begin(now, kind, guest, guest)
    }

    /// One more flow of a guest's, if there is room for it.
    pub(super) fn begin(
        &mut self,
        now: Duration,
        kind: FlowKind,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<FlowId> {
        let (source, guest) = (from.ip(), self.machines.guest(from.ip()));
        let wanted = match kind {
            FlowKind::Tcp => &[Counted::Connections, Counted::HalfOpen][..],
            FlowKind::Udp | FlowKind::Echo => &[Counted::DatagramFlows],
        };
        let limits = self.settings.limits;
        let full =
            |guests: &Guests| wanted.iter().copied().find(|what| !guests.has_room(&limits, guest, *what));
        let replaces =
            kind != FlowKind::Tcp && full(&self.guests).is_some() && self.make_room(now, source, None);
        self.counters.replaced += u64::from(replaces);
        if let Some(what) = full(&self.guests) {
            self.counters.over_limit += 1;
            self.note(Event::OverLimit { guest: source, what });
            return None;
        }
        wanted.iter().for_each(|what| self.guests.add(guest, *what));
        let deadline = now + self.settings.timeouts.half_open;
        let id = self.flows.insert(Flow { deadline, guest, ..Flow::new(now, kind, from, to) });
        self.deadlines.insert((deadline, Due::Flow(id)));
        if kind != FlowKind::Tcp {
            self.idle.insert(guest, now, id);
        }
        Some(id)
    }

    /// Ends the guest's flow of UDP or ping that has been idle for longest, for another one of the guest's:
    /// [`poll_end`](Self::poll_end) has it. Returns whether there was one.
    pub fn make_room(&mut self, now: Duration, source: IpAddr, other: Option<FlowId>) -> bool {
        let guest = self.machines.guest(source);
        while let Some((at, id)) = self.idle.first(guest).filter(|(_, id)| Some(*id) != other) {
            self.idle.remove(guest, at, id);
            let Some(flow) = self.flows.get_mut(id) else { continue };
            if flow.moved_at > at {
                flow.idle_at = flow.moved_at;
                self.idle.insert(guest, flow.idle_at, id);
                continue;
            }
            let then = self.happen(now, id, EventKind::Expired);
            self.over.push_back((id, then));
            return true;
        }
        false
    }

    /// The upstream of a flow is there.
    pub fn reached(&mut self, now: Duration, id: FlowId) -> NextStep {
        let then = self.happen(now, id, EventKind::Reached);
        self.counters.reached += u64::from(then == NextStep::Accept);
        then
    }

    /// The upstream of a flow cannot be had.
    pub fn failed(&mut self, now: Duration, id: FlowId, why: Failure) -> NextStep {
        let then = self.happen(now, id, EventKind::Failed(why));
        match (then, why) {
            (NextStep::Wait, _) => {}
            (_, Failure::NoResources) => {
                self.counters.no_resources += 1;
                if let Some(flow) = self.flows.get(id) {
                    let to = flow.to;
                    self.note_resources(now, Event::NoResources { to });
                }
            }
            (NextStep::Silence, _) => self.counters.silent += 1,
            _ => self.counters.refused += 1,
        }
        then
    }

    /// The client of a flow has gone before its upstream was there, which is not wanted any more.
    pub fn left(&mut self, now: Duration, id: FlowId, client: SocketAddr) -> NextStep {
        let then = self.happen(now, id, EventKind::Ended(Side::Guest, End::Reset));
        if then == NextStep::Silence
            && let Some(flow) = self.flows.get(id)
        {
            let to = flow.to;
            self.counters.left += 1;
            self.note(Event::Left { client, to });
        }
        then
    }

    /// Clients of this address cannot be accepted, because this host has no descriptor or memory.
    pub fn cannot_accept(&mut self, now: Duration, at: SocketAddr) {
        self.counters.no_resources += 1;
        self.note_resources(now, Event::CannotAccept { at });
    }

    /// The guest's handshake is complete.
    pub fn answered(&mut self, now: Duration, id: FlowId) -> NextStep {
        self.happen(now, id, EventKind::Answered)
    }

    /// A side of a flow has ended.
    pub fn ended(&mut self, now: Duration, id: FlowId, side: Side, how: End) -> NextStep {
        let then = self.happen(now, id, EventKind::Ended(side, how));
        match then {
            NextStep::Close => self.counters.finished += 1,
            NextStep::Reset(_) => self.counters.reset += 1,
            _ => {}
        }
        then
    }

    /// How many bytes a connection may take from one side before the other has them: at most `wanted`, and
    /// always [`LEAST_GRANT`] of them. They are held until [`passed`](Self::passed).
    pub fn hold(&mut self, id: FlowId, wanted: usize) -> usize {
        let Some(flow) = self.flows.get_mut(id) else { return 0 };
        let granted = self.guests.grant(&self.settings.limits, flow.guest, wanted as u64);
        let granted = granted.max(wanted.min(LEAST_GRANT) as u64);
        flow.held += granted;
        self.guests.add_bytes(flow.guest, granted);
        granted as usize
    }

    /// So many bytes of a flow are not held any more.
    pub fn give_back(&mut self, id: FlowId, held: usize) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let held = (held as u64).min(flow.held);
        flow.held -= held;
        self.guests.remove_bytes(flow.guest, held);
    }

    /// Bytes from one side have reached the other, and `held` ones are not held any more.
    pub fn passed(&mut self, now: Duration, id: FlowId, from: Side, bytes: usize, held: usize) {
        self.give_back(id, held);
        let Some(flow) = self.flows.get_mut(id).filter(|_| bytes > 0) else { return };
        flow.moved_at = now;
        flow.bytes[from.index()] += bytes as u64;
        self.counters.count_bytes(from, bytes);
    }

    /// The rule of this flow, if it bounds the rate.
    pub(crate) fn paced_by(&self, id: FlowId) -> Option<Arc<Rule>> {
        self.flows.get(id)?.rule.as_ref().filter(|rule| rule.has_rate()).cloned()
    }

    /// Whether a datagram of this length may pass from this side: one beyond the rate of the flow's rule is
    /// dropped.
    pub(crate) fn may_pass(&mut self, now: Duration, id: FlowId, from: Side, len: usize) -> bool {
        let rule = self.paced_by(id);
        let pace = rule.as_deref().and_then(Rule::pace);
        let may = pace.is_none_or(|pace| pace.passes(now, from, len));
        self.counters.over_rate += u64::from(!may);
        may
    }

    /// So many datagrams of a flow, with so many bytes, have passed from this side.
    pub fn datagrams_passed(&mut self, now: Duration, id: FlowId, from: Side, count: usize, bytes: usize) {
        self.counters.count_bytes(from, bytes);
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.moved_at = now;
        flow.bytes[from.index()] += bytes as u64;
        let passed = &mut flow.datagrams[from.index()];
        *passed = passed.saturating_add(count.min(255) as u8);
        self.note_end(id);
    }

    /// The end of a flow may be earlier than its deadline: one that comes later is found when the present one
    /// is due.
    fn note_end(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let end = flow.end(&self.settings.timeouts);
        if end < flow.deadline {
            self.deadlines.remove(&(flow.deadline, Due::Flow(id)));
            flow.deadline = end;
            self.deadlines.insert((end, Due::Flow(id)));
        }
    }

    /// Nothing of a flow is left: it counts no more. One of UDP or ping counts until it is over.
    pub fn closed(&mut self, id: FlowId) {
        let Some(flow) = self.flows.remove(id) else { return };
        self.deadlines.remove(&(flow.deadline, Due::Flow(id)));
        self.guests.remove_bytes(flow.guest, flow.held);
        if let Some(decision) = flow.decision.filter(|_| self.settings.decisions) {
            let time = flow.moved_at.saturating_sub(flow.began);
            let (kind, to, bytes) = (flow.kind, flow.to, flow.bytes);
            self.note(Event::Ended(Ended { kind, to, decision: *decision, bytes, time }));
        }
        match flow.kind {
            FlowKind::Tcp => {
                self.guests.remove(flow.guest, Counted::Connections);
                if flow.stage.is_half_open() {
                    self.guests.remove(flow.guest, Counted::HalfOpen);
                }
            }
            FlowKind::Udp | FlowKind::Echo if flow.stage == Stage::Done => {}
            FlowKind::Udp | FlowKind::Echo => {
                self.idle.remove(flow.guest, flow.idle_at, id);
                self.guests.remove(flow.guest, Counted::DatagramFlows);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Ends what has taken too long: [`poll_end`](Self::poll_end) has it.
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some(&(at, due)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            match due {
                Due::Question(id) => self.give_up(id),
                Due::Flow(id) => self.check_time(now, id),
            }
        }
    }

    /// A flow whose time is over, and what to do with it.
    pub fn poll_end(&mut self) -> Option<(FlowId, NextStep)> {
        self.over.pop_front()
    }

    /// A line for the log.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counts since the gateway began.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The use of all guests together.
    #[must_use]
    pub const fn in_use(&self) -> Amounts {
        self.guests.all()
    }

    /// The guests that have something in use, and what.
    pub fn guests(&self) -> impl Iterator<Item = (Guest, Amounts)> {
        self.guests.iter()
    }

    /// Where a flow stands.
    #[must_use]
    pub fn stage(&self, id: FlowId) -> Option<Stage> {
        self.flows.get(id).map(|flow| flow.stage)
    }

    pub(super) fn happen(&mut self, now: Duration, id: FlowId, happened: EventKind) -> NextStep {
        let Some(flow) = self.flows.get_mut(id) else { return NextStep::Wait };
        let was = flow.stage;
        let (stage, then) = was.after(flow.kind, happened);
        if stage == was {
            return then;
        }
        (flow.stage, flow.moved_at) = (stage, now);
        if flow.kind == FlowKind::Tcp && was.is_half_open() && !stage.is_half_open() {
            self.guests.remove(flow.guest, Counted::HalfOpen);
        }
        if stage != Stage::Done {
            self.note_end(id);
            return then;
        }
        self.deadlines.remove(&(flow.deadline, Due::Flow(id)));
        if flow.kind != FlowKind::Tcp {
            self.idle.remove(flow.guest, flow.idle_at, id);
            self.guests.remove(flow.guest, Counted::DatagramFlows);
        }
        then
    }

    fn check_time(&mut self, now: Duration, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let end = flow.end(&self.settings.timeouts);
        if end > now {
            flow.deadline = end;
            self.deadlines.insert((end, Due::Flow(id)));
            return;
        }
        if matches!((flow.kind, flow.stage), (FlowKind::Tcp, Stage::Open(_))) {
            flow.is_due = true;
            let (_, then) = flow.stage.after(flow.kind, EventKind::Expired);
            return self.over.push_back((id, then));
        }
        let then = self.expire(now, id);
        if then != NextStep::Wait {
            self.over.push_back((id, then));
        }
    }

    /// The time of a connection that [`poll_end`](Self::poll_end) named is over, unless its guest was heard
    /// then: keepalives count as traffic (RFC 5382 §5, REQ-5) and are not passed on. Returns what to do;
    /// [`NextStep::Wait`]: it continues.
    pub fn due(&mut self, now: Duration, id: FlowId, heard: Duration) -> NextStep {
        let Some(flow) = self.flows.get_mut(id) else { return NextStep::Wait };
        if !std::mem::take(&mut flow.is_due) {
            return NextStep::ResetBoth;
        }
        flow.moved_at = flow.moved_at.max(heard);
        let end = flow.end(&self.settings.timeouts);
        if end > now {
            flow.deadline = end;
            self.deadlines.insert((end, Due::Flow(id)));
            return NextStep::Wait;
        }
        self.expire(now, id)
    }

    fn expire(&mut self, now: Duration, id: FlowId) -> NextStep {
        let was_connecting = self.stage(id) == Some(Stage::Connecting);
        let then = self.happen(now, id, EventKind::Expired);
        match (then, was_connecting) {
            (NextStep::Wait, _) => {}
            (_, true) => self.counters.silent += 1,
            (_, false) => self.counters.idle += 1,
        }
        then
    }

    pub(crate) fn note(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        } else {
            self.counters.events_left_out += 1;
        }
    }

    /// Each flow fails then, which must not fill the log.
    fn note_resources(&mut self, now: Duration, event: Event) {
        if self.said_no_resources.is_some_and(|at| now < at + RESOURCES_EVERY) {
            self.counters.events_left_out += 1;
        } else {
            self.said_no_resources = Some(now);
            self.note(event);
        }
    }
}
