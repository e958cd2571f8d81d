//! A running gateway: the logic, the clock and the waits of its flows.
//!
//! The gateway is behind a lock that is held for the length of one call. One timer waits for its earliest
//! deadline. A flow's task has a [`Handle`]; when it is dropped, whatever the reason, the flow counts no
//! more.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use taut::device::frames::{LeaseTable, Ports as LinkPorts};
use taut::device::{Leased, PortId};
use taut::taut_control::rooms::FlowRooms;
use taut::{FlowKind, IncomingFlow, StackBuilder};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::logic::admission::{Admission, Passage};
use crate::logic::event::Event;
use crate::logic::first_bytes::{FirstBytes, Further};
use crate::logic::flow::{End, Failure, NextStep, Side};
use crate::logic::flows::{FlowId, Stops};
use crate::logic::gateway::{Gateway, Settings};
use crate::logic::live::hosts::Hosts;
use crate::logic::questions::{Question, QuestionId};
use crate::logic::rules::Rule;
use crate::logic::rules::rate::Taken;
use crate::out::way_out::Upstream;
use crate::run::looks::Looks;
use crate::run::ports::Ports;
use crate::run::resolver::{NameService, Resolver};

/// Is called with each event.
pub type Log = Box<dyn Fn(&Event) + Send + Sync>;

/// Takes a guest's connection.
pub(crate) type TakeCaller = Box<dyn Fn(IncomingFlow, Handle) + Send + Sync>;

/// How long a client of a control socket waits for the answers of connections. One that is later is left out.
const LOOK_PATIENCE: Duration = Duration::from_millis(500);

/// A running gateway, to look at and to change. Clones are handles to the same one.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    inner: Mutex<Inner>,
    began: Instant,
    /// An earlier deadline is there than the timer waits for.
    earlier: Notify,
    names: NameService,
    ports: Ports,
    /// Where clients of a proxy come.
    listeners: Mutex<Vec<SocketAddr>>,
    /// The links of machines.
    machines: Mutex<Vec<(LinkPorts, LeaseTable)>>,
    /// Takes the guests' connections to the gateway's own API.
    callers: OnceLock<TakeCaller>,
    log: Log,
}

struct Inner {
    gateway: Gateway,
    stops: Stops,
    looks: Looks,
    /// What the timer waits for.
    armed: Option<Duration>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// A gateway that asks `resolver` for names. Must be called in a tokio runtime.
    #[must_use]
    pub fn new(settings: Settings, resolver: Resolver, log: Log) -> Self {
        Self::of(settings, NameService::new(resolver), log)
    }

    /// A server for the host itself: without rules, and by the host's own name servers.
    pub(crate) fn of_host(&self) -> Self {
        Self::of(Settings::default(), self.names().of_host(), Box::new(|_| ()))
    }

    fn of(settings: Settings, names: NameService, log: Log) -> Self {
        let inner = Inner {
            gateway: Gateway::new(settings),
            stops: Stops::default(),
            looks: Looks::default(),
            armed: None,
        };
        let (inner, began, earlier) = (Mutex::new(inner), Instant::now(), Notify::new());
        Self(Arc::new(Shared {
            inner,
            began,
            earlier,
            names,
            ports: Ports::default(),
            listeners: Mutex::default(),
            machines: Mutex::default(),
            callers: OnceLock::new(),
            log,
        }))
    }

    /// Looks at the gateway.
    pub fn look<R>(&self, look: impl FnOnce(&Gateway) -> R) -> R {
        look(&self.0.lock().gateway)
    }

    /// Where the bytes of each open connection wait. The connections' tasks are woken and answer by
    /// themselves; one that has not within this time is left out. Blocks: not for a thread that runs tasks.
    #[must_use]
    pub fn rooms(&self, patience: Duration) -> Vec<FlowRooms> {
        let until = self.0.began.elapsed() + patience;
        let ((serial, answers), wakers) = {
            let inner = &mut *self.0.lock();
            let relayed = inner.gateway.flows.iter().filter(|(_, flow)| flow.is_relayed());
            let queried: BTreeSet<FlowId> = relayed.map(|(id, _)| id).collect();
            let wakers: Vec<Waker> = queried.iter().filter_map(|id| inner.stops.waker(*id)).collect();
            (inner.looks.begin(queried), wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
        let left = || until.saturating_sub(self.0.began.elapsed());
        let found = std::iter::from_fn(|| answers.recv_timeout(left()).ok()).collect();
        self.0.lock().looks.give_up(serial);
        found
    }

    /// The control socket of the stack, whose flows are served here, has them for `taut explain`.
    #[must_use]
    pub fn observed(&self, builder: StackBuilder) -> StackBuilder {
        let server = self.clone();
        builder.control_rooms(move || server.rooms(LOOK_PATIENCE))
    }

    /// Changes limits, times and rules; flows stay.
    pub fn set(&self, settings: Settings) {
        self.with(|gateway, _| gateway.set(settings));
    }

    /// Ends every flow: its guest is gone. Further ones may come.
    pub(crate) fn end_all(&self) {
        let ended = self.0.lock().stops.end_all();
        ended.into_iter().for_each(Waker::wake);
    }

    /// Guests' connections to the gateway's own API go here; returns whether they went nowhere before.
    pub(crate) fn takes_callers(&self, take: TakeCaller) -> bool {
        self.0.callers.set(take).is_ok()
    }

    /// The decision about a guest's connection to the gateway's own API, and what takes it.
    pub(crate) fn caller(&self, from: SocketAddr, to: SocketAddr) -> Option<(Admission, &TakeCaller)> {
        let take = self.0.callers.get()?;
        Some((self.with_machine(from.ip(), |gateway, now| gateway.admit_caller(now, from, to))?, take))
    }

    /// Machines at this link are guests.
    pub(crate) fn serves_machines(&self, ports: LinkPorts, leases: LeaseTable) {
        self.machines().push((ports, leases));
    }

    fn machines(&self) -> MutexGuard<'_, Vec<(LinkPorts, LeaseTable)>> {
        self.0.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether several machines may be there.
    pub(crate) fn has_machines(&self) -> bool {
        !self.machines().is_empty()
    }

    /// A machine is gone: ends its flows.
    pub(crate) fn end_machine(&self, port: PortId) {
        let ended: Vec<Waker> = {
            let Inner { gateway, stops, .. } = &mut *self.0.lock();
            gateway.forget_machine(port.0).into_iter().filter_map(|id| stops.end(id)).collect()
        };
        ended.into_iter().for_each(Waker::wake);
    }

    /// Calls the gateway, after it has learnt which machine has this address.
    fn with_machine<R>(&self, address: IpAddr, call: impl FnOnce(&mut Gateway, Duration) -> R) -> R {
        let port = self.machines().iter().find_map(|(ports, _)| ports.owner(address));
        self.with(|gateway, now| {
            if let Some(PortId(port)) = port {
                gateway.learn_machine(address, port);
            }
            call(gateway, now)
        })
    }

    /// The decision about a new flow.
    pub(crate) fn admission(&self, kind: FlowKind, from: SocketAddr, to: SocketAddr) -> Admission {
        let decided = self.with_machine(from.ip(), |gateway, now| gateway.admit(now, kind, from, to));
        #[cfg(feature = "tracing")]
        match decided {
            Admission::Dial(flow, _) | Admission::Questions(flow) => {
                tracing::debug!(?flow, ?kind, %from, %to, "flow opened");
            }
            Admission::Refuse(_) | Admission::Silent => tracing::debug!(?kind, %from, %to, "flow refused"),
        }
        decided
    }

    /// A flow of this client to a guest, if there is room for it.
    pub(crate) fn forward(&self, kind: FlowKind, guest: SocketAddr, client: SocketAddr) -> Option<Handle> {
        let id = self.with_machine(guest.ip(), |gateway, now| {
            let id = gateway.forward(now, kind, guest)?;
            gateway.comes_from(id, client);
            Some(id)
        })?;
        #[cfg(feature = "tracing")]
        tracing::debug!(flow = ?id, ?kind, to = %guest, "flow opened");
        Some(self.handle(id))
    }

    pub(crate) fn handle(&self, id: FlowId) -> Handle {
        self.0.lock().stops.begin(id);
        Handle { server: self.clone(), id }
    }

    /// Calls the gateway and handles its events, ends the flows that must end, and wakes the timer if it must
    /// be earlier.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Gateway, Duration) -> R) -> R {
        let now = self.0.began.elapsed();
        let mut inner = self.0.lock();
        let result = call(&mut inner.gateway, now);
        let next = inner.gateway.poll_timeout();
        let is_earlier = next.is_some_and(|next| inner.armed.is_none_or(|armed| next < armed));
        let Inner { gateway, stops, .. } = &mut *inner;
        let events: Vec<Event> = std::iter::from_fn(|| gateway.poll_event()).collect();
        let mut ended = Vec::new();
        while let Some((id, _)) = gateway.poll_end() {
            // A flow that has ended by itself meanwhile has left its place to another one.
            if gateway.stage(id).is_some() {
                ended.extend(stops.end(id));
            }
        }
        drop(inner);
        ended.into_iter().for_each(Waker::wake);
        if is_earlier {
            self.0.earlier.notify_one();
        }
        events.iter().for_each(&self.0.log);
        result
    }

    /// Ends flows whose time is over, for as long as it is polled.
    pub(crate) async fn watch_time(&self) -> Infallible {
        loop {
            let next = {
                let mut inner = self.0.lock();
                inner.armed = inner.gateway.poll_timeout();
                inner.armed
            };
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(self.0.began + at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.0.earlier.notified() => continue,
            }
            self.with(Gateway::handle_timeout);
        }
    }

    /// Clients of a proxy come here from now on.
    pub(crate) fn listens_at(&self, at: SocketAddr) {
        self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(at);
    }

    pub(crate) fn listeners(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.0.ports
    }

    pub(crate) fn names(&self) -> &NameService {
        &self.0.names
    }

    pub(crate) fn question(&self, from: IpAddr, message: &[u8]) -> Question {
        let leases: Vec<Leased> = self.machines().iter().flat_map(|(_, leases)| leases.get()).collect();
        self.with_machine(from, |gateway, now| {
            let named = leases.into_iter().flat_map(|lease| {
                let all = [Some(lease.address.into()), lease.address_v6.map(IpAddr::from)];
                let name = lease.name;
                all.into_iter().flatten().filter_map(move |address| Some((name.clone()?, address)))
            });
            gateway.set_hosts(named.collect::<Hosts>());
            gateway.question(now, from, message)
        })
    }

    pub(crate) fn reply(&self, id: QuestionId, message: &[u8]) -> bool {
        self.with(|gateway, now| gateway.reply(now, id, message))
    }

    pub(crate) fn give_up(&self, id: QuestionId) {
        self.with(|gateway, _| gateway.give_up(id));
    }
}

impl Shared {
    /// A thread that panicked while it had the lock has left the gateway between two of its steps at worst:
    /// flows are counted a little wrong, and the others live on.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flow, as its task sees it: what happened, and what to do.
pub(crate) struct Handle {
    server: Server,
    id: FlowId,
}

impl Handle {
    pub(crate) fn reached(&self) -> NextStep {
        self.server.with(|gateway, now| gateway.reached(now, self.id))
    }

    pub(crate) fn failed(&self, why: Failure) -> NextStep {
        self.server.with(|gateway, now| gateway.failed(now, self.id, why))
    }

    pub(crate) fn left(&self, client: SocketAddr) {
        self.server.with(|gateway, now| gateway.left(now, self.id, client));
    }

    pub(crate) fn answered(&self) -> NextStep {
        self.server.with(|gateway, now| gateway.answered(now, self.id))
    }

    pub(crate) fn must_say_name(&self) -> Option<FirstBytes> {
        self.server.look(|gateway| gateway.must_say_name(self.id))
    }

    pub(crate) fn first_bytes(&self, from: SocketAddr, first: &mut FirstBytes, bytes: &[u8]) -> Passage {
        self.server.with(|gateway, now| gateway.first_bytes(now, (self.id, from), first, bytes))
    }

    pub(crate) fn server_said(&self, from: SocketAddr, first: &FirstBytes, is_end: bool) -> Further {
        self.server.with(|gateway, now| gateway.server_said(now, (self.id, from), first, is_end))
    }

    pub(crate) fn ended(&self, side: Side, how: End) -> NextStep {
        self.server.with(|gateway, now| gateway.ended(now, self.id, side, how))
    }

    pub(crate) fn hold(&self, wanted: usize) -> usize {
        self.server.0.lock().gateway.hold(self.id, wanted)
    }

    pub(crate) fn passed(&self, from: Side, bytes: usize, held: usize) {
        let now = self.server.0.began.elapsed();
        self.server.0.lock().gateway.passed(now, self.id, from, bytes, held);
    }

    pub(crate) fn datagrams_passed(&self, from: Side, count: usize, bytes: usize) {
        let now = self.server.0.began.elapsed();
        let mut inner = self.server.0.lock();
        inner.gateway.datagrams_passed(now, self.id, from, count, bytes);
        let next = inner.gateway.poll_timeout();
        let is_earlier = next.is_some_and(|next| inner.armed.is_none_or(|armed| next < armed));
        drop(inner);
        if is_earlier {
            self.server.0.earlier.notify_one();
        }
    }

    /// Whether a rule bounds the rate of the flow.
    pub(crate) fn is_paced(&self) -> bool {
        self.server.look(|gateway| gateway.paced_by(self.id).is_some())
    }

    /// Gives the flow's connection the priority of its rule, if it has a class.
    pub(crate) fn prefer(&self, upstream: &impl Upstream) {
        let class = self.server.look(|gateway| gateway.flows.get(self.id)?.rule.as_ref()?.class());
        class.into_iter().for_each(|class| upstream.set_priority(class.priority()));
    }

    /// Waits until bytes of this side may move, at most so many; without a rule's rate, all of them may now.
    pub(crate) async fn turn(&self, from: Side, wanted: usize) -> Turn<'_> {
        let mut turn = Turn { flow: self, from, rule: None, left: wanted };
        turn.rule = self.server.look(|gateway| gateway.paced_by(self.id)).and_then(|rule| {
            let taken = rule.pace()?.take(self.server.0.began.elapsed(), from, wanted);
            turn.left = taken.count;
            Some((rule, taken))
        });
        if let Some((_, taken)) = &turn.rule {
            tokio::time::sleep_until(self.server.0.began + taken.at).await;
        }
        turn
    }

    /// Waits until as many bytes of this side, which are here already, may move, or the flow's time is over.
    pub(crate) async fn pay(&self, from: Side, bytes: usize) {
        let paid = async {
            let mut left = bytes;
            while left > 0 {
                let mut turn = self.turn(from, left).await;
                left -= turn.left();
                turn.moved(turn.left());
            }
        };
        tokio::select! { () = paid => {}, () = self.stopped() => {} }
    }

    /// Whether a datagram of this length may pass.
    pub(crate) fn may_pass(&self, from: Side, len: usize) -> bool {
        let now = self.server.0.began.elapsed();
        self.server.0.lock().gateway.may_pass(now, self.id, from, len)
    }

    pub(crate) const fn server(&self) -> &Server {
        &self.server
    }

    /// Another flow of UDP or ping of this guest's ends, if there is one, so that this one can have what it
    /// had.
    pub(crate) fn make_room(&self, guest: IpAddr) -> bool {
        self.server.with(|gateway, now| gateway.make_room(now, guest, Some(self.id)))
    }

    /// Wakes the flow's task, which has something else to do.
    pub(crate) fn look(&self) {
        let waker = self.server.0.lock().stops.waker(self.id);
        waker.into_iter().for_each(Waker::wake);
    }

    /// What was to be held is not, and no bytes passed. It needs no look at the clock.
    pub(crate) fn give_back(&self, held: usize) {
        self.server.0.lock().gateway.give_back(self.id, held);
    }

    /// Waits until the flow's time is over.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> {
        poll_fn(|cx| self.poll_stopped(cx))
    }

    /// The same for a connection, whose guest has been silent for so long. Answers the looks at it.
    pub(crate) fn poll_due(
        &self,
        cx: &Context<'_>,
        silence: impl FnOnce() -> Duration,
        rooms: impl FnOnce() -> Option<FlowRooms>,
    ) -> Poll<()> {
        let (over, replaced, waiting) = {
            let inner = &mut *self.server.0.lock();
            let (over, replaced) = inner.stops.poll(self.id, cx.waker());
            (over, replaced, inner.looks.answer(self.id))
        };
        drop(replaced);
        if !waiting.is_empty()
            && let Some(rooms) = rooms()
        {
            // One that has waited for too long is gone.
            for to in waiting {
                _ = to.send(rooms);
            }
        }
        if over.is_pending() {
            return Poll::Pending;
        }
        let silence = silence();
        let then = self.server.with(|gateway, now| gateway.due(now, self.id, now.saturating_sub(silence)));
        if then != NextStep::Wait {
            return Poll::Ready(());
        }
        self.server.0.lock().stops.continues(self.id, cx.waker());
        Poll::Pending
    }

    pub(crate) fn poll_stopped(&self, cx: &Context<'_>) -> Poll<()> {
        let (over, replaced) = self.server.0.lock().stops.poll(self.id, cx.waker());
        // Without the lock.
        drop(replaced);
        over
    }
}

/// Bytes of one side of a flow that may move now. Those that do not are given back.
pub(crate) struct Turn<'a> {
    flow: &'a Handle,
    from: Side,
    /// None if no rule bounds the rate.
    rule: Option<(Arc<Rule>, Taken)>,
    left: usize,
}

impl Turn<'_> {
    /// The most that may move.
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// So many have moved.
    pub(crate) const fn moved(&mut self, bytes: usize) {
        self.left -= bytes;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some((rule, taken)) = &self.rule
            && let Some(pace) = rule.pace()
        {
            pace.give_back(self.flow.server.0.began.elapsed(), self.from, taken, self.left);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut inner = self.server.0.lock();
        let waker = inner.stops.remove(self.id);
        inner.looks.answer(self.id);
        inner.gateway.closed(self.id);
        let events: Vec<Event> = std::iter::from_fn(|| inner.gateway.poll_event()).collect();
        drop(inner);
        drop(waker);
        events.iter().for_each(&self.server.0.log);
        #[cfg(feature = "tracing")]
        tracing::debug!(flow = ?self.id, "flow closed");
    }
}
