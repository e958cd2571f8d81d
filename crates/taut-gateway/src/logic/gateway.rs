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
//! Addresses are checked here once more after names have been resolved: a flow has an address, and the rules
//! see it together with all names that the guest has been told for it (`names.rs`). The gateway's own address
//! means the host's loopback, and passes the same rules as `127.0.0.1`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use taut::{FlowKind, Refusal};

use crate::logic::counters::Counters;
use crate::logic::dns::{self, Asked, GATEWAY_NAME, HOST_NAME};
use crate::logic::event::Event;
use crate::logic::flow::{DNS_PORT, End, EventKind, Failure, Flow, NextStep, Side, Stage};
pub use crate::logic::flows::FlowId;
use crate::logic::flows::Flows;
use crate::logic::guests::{Counted, Guest, Guests};
use crate::logic::idle::Idle;
use crate::logic::limits::{Amounts, LEAST_GRANT, Limits, Timeouts};
use crate::logic::names::Names;
use crate::logic::rules::{Action, Rules, UdpFilter};

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
}

/// How many events wait for the log.
const MAX_EVENTS: usize = 256;

/// How often the log has a line about descriptors, ports or memory that this host has no more of.
const RESOURCES_EVERY: Duration = Duration::from_secs(1);

/// A question that was sent to a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionId(u64);

/// Whether a guest's new flow is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may go to this address.
    Dial(FlowId, SocketAddr),
    /// It asks the gateway's name server: each message is a [`Gateway::question`].
    Questions(FlowId),
    /// It is refused.
    Refuse(Refusal),
    /// It is not answered.
    Silent,
}

/// The answer to a guest's question, or where it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A name server must be asked.
    Forward(QuestionId),
    /// This is the answer.
    Answer(Vec<u8>),
    /// It is no question.
    Ignore,
}

#[derive(Debug)]
struct Pending {
    guest: Guest,
    asked: Asked,
    deadline: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Flow(FlowId),
    Question(QuestionId),
}

/// The state machine.
#[derive(Debug, Default)]
pub struct Gateway {
    settings: Settings,
    pub(crate) flows: Flows<Flow>,
    pending: BTreeMap<QuestionId, Pending>,
    guests: Guests,
    names: Names,
    deadlines: BTreeSet<(Duration, Due)>,
    idle: Idle,
    over: VecDeque<(FlowId, NextStep)>,
    events: VecDeque<Event>,
    counters: Counters,
    questions: u64,
    /// When the log last had a line about what this host has no more of.
    said_no_resources: Option<Duration>,
}

impl Gateway {
    /// A gateway without flows.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Changes limits, times and rules; flows that exist stay, within the new times.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// How it behaves.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A guest begins a flow.
    pub fn admit(&mut self, now: Duration, kind: FlowKind, from: SocketAddr, to: SocketAddr) -> Admission {
        let guest = Guest::of(from.ip());
        self.count_kind(kind);
        let is_own = self.settings.own.contains(&to.ip());
        let is_question = is_own && kind != FlowKind::Echo && to.port() == DNS_PORT;
        let target = if is_own { SocketAddr::new(loopback(to.ip()), to.port()) } else { to };
        if !is_question {
            let names = self.names.of(now, guest, to.ip());
            let verdict = self.settings.rules.check(kind, target, names);
            if verdict.action != Action::Allow {
                let (rule, action) = (verdict.rule.to_string(), verdict.action);
                self.counters.denied += 1;
                self.note(Event::Denied { guest: from, kind, to, rule });
                return match action {
                    Action::Drop => Admission::Silent,
                    _ => Admission::Refuse(Refusal::Prohibited),
                };
            }
        }
        match self.begin(now, kind, from.ip(), target) {
            None => Admission::Refuse(Refusal::Prohibited),
            Some(id) if is_question => {
                if let Some(flow) = self.flows.get_mut(id) {
                    flow.is_question = true;
                }
                Admission::Questions(id)
            }
            Some(id) => Admission::Dial(id, target),
        }
    }

    /// Somebody outside begins a flow to a guest, at a port that the host forwards. The guest is the side
    /// that must be [`reached`](Self::reached). `None` if there is no room.
    pub fn forward(&mut self, now: Duration, kind: FlowKind, guest: SocketAddr) -> Option<FlowId> {
        self.counters.forwarded += 1;
        self.begin(now, kind, guest.ip(), guest)
    }

    /// Somebody outside sends to a port that this guest has there. `is_known`: the guest has sent to this
    /// address. Returns also where the guest sees it come from. `None`: the datagram is dropped.
    pub fn from_outside(
        &mut self,
        now: Duration,
        guest: SocketAddr,
        from: SocketAddr,
        is_known: bool,
    ) -> Option<(FlowId, SocketAddr)> {
        let who = Guest::of(guest.ip());
        let is_own = |own: &&IpAddr| own.is_ipv4() == from.is_ipv4();
        let seen = match from.ip().is_loopback() {
            true => self.settings.own.iter().find(is_own).map(|own| SocketAddr::new(*own, from.port())),
            false => Some(from),
        };
        let rules = &self.settings.rules;
        let verdict = rules.check(FlowKind::Udp, from, self.names.of(now, who, from.ip()));
        let is_allowed = verdict.action == Action::Allow;
        let is_let_in = is_allowed
            && (is_known || self.settings.udp_filter == UdpFilter::Any)
            && self.guests.has_room(&self.settings.limits, who, Counted::DatagramFlows);
        let Some(seen) = seen.filter(|_| is_let_in) else {
            self.counters.filtered += 1;
            return None;
        };
        let id = self.begin(now, FlowKind::Udp, guest.ip(), from)?;
        if let Some(flow) = self.flows.get_mut(id) {
            flow.is_from_outside = true;
        }
        Some((id, seen))
    }

    /// One more flow, if there is room for it.
    fn begin(&mut self, now: Duration, kind: FlowKind, source: IpAddr, to: SocketAddr) -> Option<FlowId> {
        let guest = Guest::of(source);
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
        let id = self.flows.insert(Flow { deadline, ..Flow::new(now, kind, guest, to) });
        self.deadlines.insert((deadline, Due::Flow(id)));
        if kind != FlowKind::Tcp {
            self.idle.insert(guest, now, id);
        }
        Some(id)
    }

    /// Ends the guest's flow of UDP or ping that has been idle for longest, for another one of the guest's:
    /// [`poll_end`](Self::poll_end) has it. Returns whether there was one.
    pub fn make_room(&mut self, now: Duration, source: IpAddr, other: Option<FlowId>) -> bool {
        let guest = Guest::of(source);
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
    /// always
    /// [`LEAST_GRANT`] of them. They are held until [`passed`](Self::passed).
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
        self.counters.count_bytes(from, bytes);
    }

    /// So many datagrams of a flow, with so many bytes, have passed from this side.
    pub fn datagrams_passed(&mut self, now: Duration, id: FlowId, from: Side, count: usize, bytes: usize) {
        self.counters.count_bytes(from, bytes);
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.moved_at = now;
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

    /// A guest asks the gateway's name server.
    pub fn question(&mut self, now: Duration, from: IpAddr, message: &[u8]) -> Question {
        let guest = Guest::of(from);
        let Some(asked) = dns::question(message) else { return Question::Ignore };
        self.counters.questions += 1;
        if let Some(denied) = self.settings.rules.check_name(&asked.name) {
            let (name, rule) = (asked.name.to_string(), denied.rule.to_string());
            self.counters.answered_here += 1;
            self.note(Event::NameDenied { guest: from, name, rule });
            return Question::Answer(dns::refusal(message, dns::Refused::Policy));
        }
        if [GATEWAY_NAME, HOST_NAME].contains(&&*asked.name) {
            self.counters.answered_here += 1;
            return Question::Answer(dns::own(message, &self.settings.own));
        }
        if !self.guests.has_room(&self.settings.limits, guest, Counted::Questions) {
            self.counters.over_limit += 1;
            self.note(Event::OverLimit { guest: from, what: Counted::Questions });
            return Question::Answer(dns::refusal(message, dns::Refused::Failure));
        }
        self.guests.add(guest, Counted::Questions);
        self.questions += 1;
        let id = QuestionId(self.questions);
        let deadline = now + self.settings.timeouts.question;
        self.deadlines.insert((deadline, Due::Question(id)));
        self.pending.insert(id, Pending { guest, asked, deadline });
        Question::Forward(id)
    }

    /// A name server has answered. Returns whether the answer belongs to the question and is in time; if so,
    /// the guest gets it. The question stays if the answer is SERVFAIL, NOTIMP or REFUSED: another server may
    /// have a better one. If none has, [`give_up`](Self::give_up) ends it.
    pub fn reply(&mut self, now: Duration, id: QuestionId, message: &[u8]) -> bool {
        let Some(pending) = self.pending.get(&id) else { return false };
        let Some(answer) = dns::answer(message, &pending.asked) else { return false };
        if dns::is_poor(message) {
            return true;
        }
        let guest = pending.guest;
        let name = Arc::clone(&pending.asked.name);
        for (address, ttl) in answer {
            self.names.learn(now, guest, &name, address, ttl);
        }
        self.forget_question(id);
        true
    }

    /// No name server has answered well, or the guest does not wait any more.
    pub fn give_up(&mut self, id: QuestionId) {
        self.counters.unanswered += u64::from(self.pending.contains_key(&id));
        self.forget_question(id);
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

    fn happen(&mut self, now: Duration, id: FlowId, happened: EventKind) -> NextStep {
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

    /// The time of a connection that [`poll_end`](Self::poll_end) named is over, unless its guest was heard then:
    /// keepalives count as traffic (RFC 5382 §5, REQ-5) and are not passed on. Returns what to do;
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

    fn forget_question(&mut self, id: QuestionId) {
        let Some(pending) = self.pending.remove(&id) else { return };
        self.deadlines.remove(&(pending.deadline, Due::Question(id)));
        self.guests.remove(pending.guest, Counted::Questions);
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

    const fn count_kind(&mut self, kind: FlowKind) {
        match kind {
            FlowKind::Tcp => self.counters.connections += 1,
            FlowKind::Udp => self.counters.udp_flows += 1,
            FlowKind::Echo => self.counters.pings += 1,
        }
    }
}

/// The loopback address of the same family.
const fn loopback(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}
