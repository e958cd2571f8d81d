//! Connections: the other side first, then the guest's answer, then bytes both ways, and each end as it
//! came. The logic decides (`taut-gateway`, `logic/flow.rs`); this does it, whenever the caller's loop
//! comes by.
//!
//! ```text
//!   up    guest ── the stack's receive queue ──▶ send(2)      bytes without room stay in the queue
//!   down  recv(2) ──▶ the stack's send queue ── guest         bytes without room wait here, 64 KiB at most
//! ```

mod beginning;
mod rooms;
mod row;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use slab::Slab;
use taut_core::{ConnError, ConnId, Event, FlowInfo, ReadError, Refusal, SetOption};
use taut_gateway::{End, Failure, FlowId, NextStep, Rooms, Side};

use crate::core::{AT_ONCE, Core, Key, Waited, interest, near, waits};
use crate::service::Far;
use beginning::Beginning;

/// How often a guest that waits for its connection is probed. As in the gateway.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Pieces of one way before the other has its turn.
const TURN: usize = 16;

/// The guest's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guest {
    /// Its SYN is not answered yet.
    Asks(taut_core::FlowId),
    /// The stack has the connection.
    Conn(ConnId),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The other side has not answered.
    Dialling,
    /// The guest's handshake is under way.
    Answering,
    Open,
}

/// One connection.
struct Connection {
    flow: FlowId,
    guest: Guest,
    far: Far,
    stage: Stage,
    from: SocketAddr,
    to: SocketAddr,
    /// Taken from the far side, and the guest has no room for it.
    down: Bytes,
    /// Bytes that the gateway counts as held.
    held: usize,
    /// The far side has no room.
    is_full: bool,
    /// How much may wait before the far side.
    rooms: Rooms<Duration>,
    /// The guest's first bytes are checked.
    beginning: Option<Box<Beginning>>,
    /// The far side has ended, the guest has.
    ended: [bool; 2],
    /// Both halves of the far side are over, and there is nothing to wait for.
    is_hung_up: bool,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Connections {
    all: Slab<Connection>,
    of_conn: BTreeMap<ConnId, usize>,
    of_asking: BTreeMap<taut_core::FlowId, usize>,
    of_flow: BTreeMap<FlowId, usize>,
    asks_at: Duration,
}

impl Connections {
    // ---- beginnings ----

    /// A guest's SYN, whose far side is being dialled.
    pub(crate) fn admit(&mut self, core: &mut Core, info: &FlowInfo, flow: FlowId, far: io::Result<Far>) {
        let guest = Guest::Asks(info.id);
        match far {
            Ok(far) => {
                let at = self.insert(core, flow, guest, far, (info.peer, info.local));
                self.on_dialled(core, at);
            }
            Err(error) => {
                refuse(core, info.id, flow, taut_gateway::failure(&error));
                core.closed(flow);
            }
        }
    }

    /// A client of a forwarded port: the guest is dialled.
    pub(crate) fn forward(
        &mut self,
        core: &mut Core,
        flow: FlowId,
        far: Far,
        (from, shown): (SocketAddr, Option<SocketAddr>),
        to: SocketAddr,
    ) {
        let mut options = near(shown);
        let mut conn = core.stack.connect(core.now, to, &options);
        if conn.is_err() {
            // The client has another connection to this service, or the guest could not answer it.
            options.bind = None;
            conn = core.stack.connect(core.now, to, &options);
        }
        match conn {
            Ok(conn) => _ = self.insert(core, flow, Guest::Conn(conn), far, (from, to)),
            Err(_) => {
                far.abort();
                core.closed(flow);
            }
        }
    }

    fn insert(
        &mut self,
        core: &mut Core,
        flow: FlowId,
        guest: Guest,
        far: Far,
        (from, to): (SocketAddr, SocketAddr),
    ) -> usize {
        let at = self.all.insert(Connection {
            flow,
            guest,
            far,
            stage: Stage::Dialling,
            from,
            to,
            down: Bytes::new(),
            held: 0,
            is_full: false,
            rooms: Rooms::default(),
            beginning: None,
            ended: [false; 2],
            is_hung_up: false,
        });
        match guest {
            Guest::Asks(id) => drop(self.of_asking.insert(id, at)),
            Guest::Conn(id) => drop(self.of_conn.insert(id, at)),
        }
        self.of_flow.insert(flow, at);
        core.is_changed = true;
        at
    }

    /// The far side may be there now.
    fn on_dialled(&mut self, core: &mut Core, at: usize) {
        let Some(one) = self.all.get_mut(at) else { return };
        let Guest::Asks(asking) = one.guest else { return };
        match one.far.is_there() {
            Ok(false) => {}
            Ok(true) => {
                if core.gateway.reached(core.time(), one.flow) != NextStep::Accept {
                    return self.forget(core, at);
                }
                let Ok(conn) = core.stack.accept_flow(core.now, asking, None) else {
                    core.gateway.ended(core.time(), one.flow, Side::Guest, End::Reset);
                    return self.forget(core, at);
                };
                (one.guest, one.stage) = (Guest::Conn(conn), Stage::Answering);
                self.of_asking.remove(&asking);
                self.of_conn.insert(conn, at);
            }
            Err(error) => {
                refuse(core, asking, one.flow, taut_gateway::failure(&error));
                self.forget(core, at);
            }
        }
    }

    // ---- events of the stack ----

    /// An event, if it is of a connection here.
    pub(crate) fn on_event(&mut self, core: &mut Core, event: Event) {
        let of = |id: ConnId| self.of_conn.get(&id).copied();
        match event {
            Event::Connected(id) => {
                if let Some(at) = of(id) {
                    self.on_answered(core, at);
                }
            }
            Event::Readable(id) => {
                if let Some(at) = of(id) {
                    self.up(core, at);
                }
            }
            Event::Writable(id) => {
                if let Some(at) = of(id) {
                    core.is_changed = true;
                    self.down(core, at);
                }
            }
            Event::Failed(id, why) => {
                if let Some(at) = of(id) {
                    self.on_failed(core, at, why);
                }
            }
            Event::FlowGone(id) => {
                if let Some(&at) = self.of_asking.get(&id) {
                    let one = &self.all[at];
                    core.gateway.left(core.time(), one.flow, one.from);
                    self.forget(core, at);
                }
            }
            _ => {}
        }
    }

    fn on_answered(&mut self, core: &mut Core, at: usize) {
        let one = &mut self.all[at];
        if one.stage == Stage::Dialling {
            core.gateway.reached(core.time(), one.flow);
        }
        core.gateway.answered(core.time(), one.flow);
        one.stage = Stage::Open;
        one.beginning = core.gateway.must_say_name(one.flow).map(|first| Box::new(Beginning::new(first)));
        if let Guest::Conn(id) = one.guest
            && let Some(mut conn) = core.stack.conn_mut(id)
        {
            // A delayed ACK would hold a request's second write, by Nagle's rule.
            _ = conn.set_option(core.now, SetOption::Quickack(true));
        }
        core.is_changed = true;
        self.up(core, at);
        self.down(core, at);
    }

    fn on_failed(&mut self, core: &mut Core, at: usize, why: ConnError) {
        let one = &self.all[at];
        if one.stage == Stage::Dialling {
            let why = match why {
                ConnError::Refused | ConnError::Reset => Failure::Refused,
                ConnError::TimedOut => Failure::TimedOut,
                _ => Failure::HostUnreachable,
            };
            core.gateway.failed(core.time(), one.flow, why);
            return self.end(core, at, NextStep::ResetBoth);
        }
        self.reset(core, at, Side::Guest);
    }

    // ---- bytes ----

    /// From the guest, until one side has no more or the other no room.
    pub(crate) fn up(&mut self, core: &mut Core, at: usize) {
        if !self.begin(core, at) {
            return;
        }
        let Some(one) = self.all.get_mut(at) else { return };
        let (Guest::Conn(id), Stage::Open) = (one.guest, one.stage) else { return };
        if one.ended[Side::Guest as usize] {
            return;
        }
        loop {
            let Some(mut conn) = core.stack.conn_mut(id) else { return };
            let sent = match conn.chunk() {
                Ok([]) => return self.fin(core, at, Side::Guest),
                Ok(_) if one.rooms.is_narrow() && !one.far.has_room() => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Ok(bytes) => {
                    let piece = one.rooms.piece(bytes.len());
                    one.far.send(&bytes[..piece], &mut core.calls)
                }
                Err(ReadError::WouldBlock) => return,
                Err(_) => return self.reset(core, at, Side::Guest),
            };
            match sent {
                Ok(count) => {
                    conn.consume(core.now, count);
                    one.is_full = false;
                    core.gateway.passed(core.time(), one.flow, Side::Guest, count, 0);
                    if let Some(question) = one.far.question() {
                        core.questions.push_back((one.flow, one.from.ip(), question));
                    }
                }
                Err(error) if waits(&error) => {
                    core.is_changed |= !std::mem::replace(&mut one.is_full, true);
                    return one.look_at_rooms(core, id);
                }
                Err(_) => return self.reset(core, at, Side::Upstream),
            }
        }
    }

    /// To the guest.
    pub(crate) fn down(&mut self, core: &mut Core, at: usize) {
        for _ in 0..TURN {
            let Some(one) = self.all.get_mut(at) else { return };
            let (Guest::Conn(id), Stage::Open) = (one.guest, one.stage) else { return };
            if !one.down.is_empty() && !one.put(core, id) {
                return;
            }
            let is_ready = core.stack.conn_mut(id).is_some_and(|mut conn| conn.writable(core.now));
            if one.ended[Side::Upstream as usize] || !is_ready {
                return;
            }
            let held = core.gateway.hold(one.flow, AT_ONCE);
            let received = one.far.recv(&mut core.scratch[..held.min(AT_ONCE)]);
            if let Ok(count) = received
                && one.beginning.is_some()
                && !self.server_said(core, at, count == 0)
            {
                return;
            }
            let Some(one) = self.all.get_mut(at) else { return };
            match received {
                Ok(0) => {
                    core.gateway.give_back(one.flow, held);
                    return self.fin(core, at, Side::Upstream);
                }
                Ok(count) => {
                    one.held = held;
                    let is_all = count < held;
                    one.down = Bytes::copy_from_slice(&core.scratch[..count]);
                    if !one.put(core, id) || is_all {
                        return;
                    }
                }
                Err(error) => {
                    core.gateway.give_back(one.flow, held);
                    if !waits(&error) {
                        self.reset(core, at, Side::Upstream);
                    }
                    return;
                }
            }
        }
    }

    // ---- ends ----

    fn fin(&mut self, core: &mut Core, at: usize, side: Side) {
        let Some(one) = self.all.get_mut(at) else { return };
        one.ended[side as usize] = true;
        let step = core.gateway.ended(core.time(), one.flow, side, End::Fin);
        self.end(core, at, step);
        // A far side without a file has no event of its own.
        self.down(core, at);
    }

    fn reset(&mut self, core: &mut Core, at: usize, side: Side) {
        let Some(one) = self.all.get(at) else { return };
        let step = core.gateway.ended(core.time(), one.flow, side, End::Reset);
        self.end(core, at, step);
    }

    /// Does what the logic has decided.
    fn end(&mut self, core: &mut Core, at: usize, step: NextStep) {
        let Some(one) = self.all.get_mut(at) else { return };
        match step {
            NextStep::Wait | NextStep::Accept => return,
            NextStep::Finish(side) => return one.finish(core, side),
            NextStep::Close | NextStep::Refuse(_) | NextStep::Silence => {}
            NextStep::Reset(Side::Upstream) => one.far.abort_now(),
            NextStep::Reset(Side::Guest) => one.abort_guest(core),
            NextStep::ResetBoth => {
                one.far.abort_now();
                one.abort_guest(core);
            }
        }
        self.forget(core, at);
    }

    /// Nothing of it is left. A guest with a connection gets its rest; a SYN gets no answer.
    fn forget(&mut self, core: &mut Core, at: usize) {
        let Some(one) = self.all.try_remove(at) else { return };
        match one.guest {
            Guest::Asks(id) => {
                self.of_asking.remove(&id);
                core.stack.drop_flow(core.now, id);
            }
            Guest::Conn(id) => {
                self.of_conn.remove(&id);
                if let Some(conn) = core.stack.conn_mut(id) {
                    conn.close(core.now);
                }
            }
        }
        self.of_flow.remove(&one.flow);
        core.closed(one.flow);
    }

    /// The time of a flow is over, if it is one of these. Returns whether it is.
    pub(crate) fn expire(&mut self, core: &mut Core, flow: FlowId, step: NextStep) -> bool {
        let Some(&at) = self.of_flow.get(&flow) else { return false };
        let one = &self.all[at];
        let step = match (one.guest, one.stage) {
            (Guest::Conn(id), Stage::Open) => {
                let heard = core.stack.conn(id).map(|conn| conn.info(core.now).last_ack_recv.into());
                let heard = core.time().saturating_sub(heard.unwrap_or(Duration::MAX));
                core.gateway.due(core.time(), flow, heard)
            }
            _ => step,
        };
        self.end(core, at, step);
        true
    }

    /// All end: the guests' by a reset.
    pub(crate) fn end_all(&mut self, core: &mut Core) {
        for id in self.of_asking.keys() {
            // Nothing is remembered: a repeated SYN begins a new flow.
            core.stack.refuse_flow(core.now, *id, Refusal::Reset);
        }
        let all: Vec<usize> = self.all.iter().map(|(at, _)| at).collect();
        all.into_iter().for_each(|at| self.end(core, at, NextStep::ResetBoth));
    }

    /// Probes the guests whose connections are not there yet: one that has given up resets its flow.
    pub(crate) fn ask(&mut self, core: &mut Core) {
        if self.of_asking.is_empty() || core.time() < self.asks_at {
            return;
        }
        self.asks_at = core.time() + ASK_EVERY;
        for id in self.of_asking.keys() {
            core.stack.probe_flow(*id);
        }
    }

    /// When they are probed.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        (!self.of_asking.is_empty()).then_some(self.asks_at)
    }

    // ---- the caller's loop ----

    pub(crate) fn wait(&self, all: &mut Vec<Waited>, core: &mut Core) {
        for (at, one) in &self.all {
            let Some(fd) = one.far.fd() else { continue };
            let interest = match (one.stage, one.guest) {
                (Stage::Dialling, Guest::Asks(_)) => interest::OUT,
                (Stage::Dialling | Stage::Answering, _) => interest::PRI,
                (Stage::Open, Guest::Conn(id)) => {
                    let reads = if one.has_room(core, id) { interest::IN } else { 0 };
                    let writes = if one.is_full { interest::OUT } else { 0 };
                    // An error is announced in any case.
                    if reads | writes == 0 { interest::PRI } else { reads | writes }
                }
                (Stage::Open, Guest::Asks(_)) => continue,
            };
            if interest != interest::PRI || !one.is_hung_up {
                all.push(Waited { fd, interest, key: Key::Connection(at) });
            }
        }
    }

    /// The caller's loop has seen this of a connection's file.
    pub(crate) fn on_ready(&mut self, core: &mut Core, at: usize, seen: i32) {
        let Some(one) = self.all.get_mut(at) else { return };
        match one.stage {
            Stage::Dialling if matches!(one.guest, Guest::Asks(_)) => return self.on_dialled(core, at),
            Stage::Dialling | Stage::Answering => {
                if seen & (interest::ERR | interest::HUP) != 0 {
                    one.is_hung_up = true;
                    if one.far.error().is_some() {
                        core.gateway.left(core.time(), one.flow, one.from);
                        self.end(core, at, NextStep::ResetBoth);
                    }
                }
                return;
            }
            Stage::Open => {}
        }
        if seen & interest::HUP != 0 && seen & (interest::IN | interest::OUT) == 0 {
            one.is_hung_up = true;
        }
        // With room, reading finds the error.
        if let (true, Guest::Conn(id)) = (seen & interest::ERR != 0, one.guest)
            && !one.has_room(core, id)
            && one.far.error().is_some()
        {
            return self.reset(core, at, Side::Upstream);
        }
        if seen & (interest::OUT | interest::ERR | interest::HUP) != 0 {
            self.up(core, at);
        }
        self.down(core, at);
    }

    // ---- services without a file ----

    /// The answer to a question on a connection; an empty one is none.
    pub(crate) fn answer(&mut self, core: &mut Core, flow: FlowId, answer: &[u8]) {
        if let Some(&at) = self.of_flow.get(&flow) {
            self.all[at].far.answer(answer);
            self.down(core, at);
            self.up(core, at);
        }
    }

    /// The connection of a guest to this service, if it is open.
    fn to_service(&self, service: SocketAddr) -> Option<usize> {
        let is = |one: &Connection| one.to == service && one.stage == Stage::Open && one.far.is_caller();
        self.all.iter().find(|(_, one)| is(one)).map(|(at, _)| at)
    }

    /// How many bytes the guest can take from this service.
    pub(crate) fn room(&self, service: SocketAddr) -> usize {
        let room = |at: usize| self.all[at].far.room();
        self.to_service(service).map_or(0, room)
    }

    /// Bytes of this service for its guest.
    pub(crate) fn serve(&mut self, core: &mut Core, service: SocketAddr, bytes: &[u8]) {
        if let Some(at) = self.to_service(service) {
            self.all[at].far.put(bytes);
            self.down(core, at);
        }
    }

    /// Ends the connections to a service that is no more.
    pub(crate) fn end_service(&mut self, core: &mut Core, service: SocketAddr) {
        let of = |(at, one): (usize, &Connection)| (one.to == service).then_some(at);
        let all: Vec<usize> = self.all.iter().filter_map(of).collect();
        all.into_iter().for_each(|at| self.end(core, at, NextStep::ResetBoth));
    }

    /// Whether this service has no connection. One whose guest has ended its half makes room: the service
    /// does not learn of that, and would never end the other.
    pub(crate) fn free_service(&mut self, core: &mut Core, service: SocketAddr) -> bool {
        let is_its = |one: &Connection| one.to == service && one.ended[Side::Guest as usize];
        let over = self.all.iter().find(|(_, one)| is_its(one)).map(|(at, _)| at);
        if let Some(at) = over {
            self.end(core, at, NextStep::ResetBoth);
        }
        !self.all.iter().any(|(_, one)| one.to == service)
    }
}

impl Connection {
    /// Whether the far side's bytes are taken now.
    fn has_room(&self, core: &mut Core, id: ConnId) -> bool {
        self.down.is_empty()
            && !self.ended[Side::Upstream as usize]
            && core.stack.conn_mut(id).is_some_and(|mut conn| conn.writable(core.now))
    }

    /// Gives the guest what waits for it. Returns whether it took all.
    fn put(&mut self, core: &mut Core, id: ConnId) -> bool {
        let Some(mut conn) = core.stack.conn_mut(id) else { return false };
        let before = self.down.len();
        _ = conn.write_bytes(core.now, &mut self.down);
        let written = before - self.down.len();
        let is_all = self.down.is_empty();
        let held = if is_all { std::mem::take(&mut self.held) } else { 0 };
        if !is_all {
            // An event follows when there is room.
            _ = conn.writable(core.now);
        }
        core.gateway.passed(core.time(), self.flow, Side::Upstream, written, held);
        is_all
    }

    /// Ends the half towards this side.
    fn finish(&mut self, core: &mut Core, side: Side) {
        match (side, self.guest) {
            (Side::Upstream, _) => self.far.finish(),
            (Side::Guest, Guest::Conn(id)) => {
                if let Some(mut conn) = core.stack.conn_mut(id) {
                    _ = conn.shutdown_write(core.now);
                }
            }
            (Side::Guest, Guest::Asks(_)) => {}
        }
    }

    fn abort_guest(&mut self, core: &mut Core) {
        if let Guest::Conn(id) = self.guest
            && let Some(conn) = core.stack.conn_mut(id)
        {
            conn.abort(core.now);
        }
    }
}

/// The guest's SYN is refused, or stays without an answer.
fn refuse(core: &mut Core, asking: taut_core::FlowId, flow: FlowId, why: Failure) {
    if let NextStep::Refuse(how) = core.gateway.failed(core.time(), flow, why) {
        core.stack.refuse_flow(core.now, asking, how);
    }
}
