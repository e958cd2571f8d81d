//! What must hold in every random world, beside the invariants of `check.rs`. Called by the runner: while a
//! world runs, when it ends, and when the last connection must be gone.
//!
//! - A connection holds no more than its buffers' limits.
//! - The bytes in its queues are those written and not acknowledged.
//! - Loops whose length a peer decides take no more steps than [WORK-1 to 9](crate) allow for the packets
//!   that came.
//! - A reader that sees the end has read every byte that its peer wrote. (Each byte is compared when it is
//!   read.)
//! - A polite conversation ends without an error, and in time; a rude one ends.
//! - At the end no connection, no packet, no ticket and no deadline is left.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use taut_core::{ConnId, ConnInfo, State};

use super::plan::Plan;
use super::talk::{Ending, Fate, Ledger};
use crate::failure::{Failure, Kind};
use crate::ids::HostId;
use crate::world::World;

/// The most steps of a packet or a call, on average: a segment out of order takes 1,020 (WORK-9), an ACK 300
/// (WORK-1 to 8).
const STEPS_PER_CALL: u64 = 1_020;
/// And so many at once, before the average counts.
const STEPS_AT_ONCE: u64 = 100_000;

/// A send buffer takes another buffer while it is not full, as Linux's takes another `sk_buff`; and the last
/// one takes more while its beginning leaves, so that what is in flight may exceed the limit as far as the
/// windows let it.
const OVERSHOOT: u64 = 65_536 + 256;

/// Watches one world.
pub(super) struct Judge {
    plan: Rc<Plan>,
    hosts: Vec<HostId>,
    ledger: Ledger,
    /// The largest limits of each connection's buffers so far: a limit that shrinks takes nothing back.
    limits: BTreeMap<(usize, ConnId), (u64, u64)>,
    steps: u64,
}

impl Judge {
    pub(super) fn new(plan: Rc<Plan>, hosts: Vec<HostId>) -> Self {
        let ledger = Rc::new(RefCell::new(vec![[Fate::default(); 2]; plan.talks.len()]));
        Self { plan, hosts, ledger, limits: BTreeMap::new(), steps: 0 }
    }

    pub(super) fn ledger(&self) -> Ledger {
        Rc::clone(&self.ledger)
    }

    /// Checks what must hold at any time.
    pub(super) fn during(&mut self, world: &World) -> Result<(), Failure> {
        let fail = |kind, why| Err(Failure::new(world.now(), kind, why));
        self.steps += taut_core::steps_taken().unwrap_or(0);
        let calls: u64 = self
            .hosts
            .iter()
            .map(|&id| world.counts(id))
            .map(|counts| counts.segments_in + counts.segments_out + counts.syscalls + counts.timer_events)
            .sum();
        if self.steps > STEPS_AT_ONCE + STEPS_PER_CALL * calls {
            return fail(Kind::Work, format!("{} steps for {calls} packets and calls", self.steps));
        }
        for number in 0..self.hosts.len() {
            let stack = world.host_ref(self.hosts[number]).stack();
            let ids: Vec<ConnId> = stack.conn_ids().collect();
            for id in ids {
                let Some(conn) = stack.conn(id) else { continue };
                let info = conn.info(world.now());
                let queues = conn.report(world.now()).queues.map(|queue| queue.bytes);
                if let Some(why) = self.over_limit(number, id, &info, queues) {
                    return fail(
                        Kind::Memory,
                        format!("host {number}, {} -> {}: {why}", info.local, info.peer),
                    );
                }
                if let Some(why) = self.unbalanced(number, id, &info, queues) {
                    return fail(
                        Kind::Ledger,
                        format!("host {number}, {} -> {}: {why}", info.local, info.peer),
                    );
                }
            }
        }
        Ok(())
    }

    fn over_limit(&mut self, host: usize, id: ConnId, info: &ConnInfo, queues: [u64; 3]) -> Option<String> {
        let first = &self.plan.hosts[host].config;
        let set = self.fate(host, id).map_or((0, 0), |fate| (fate.rcvbuf, fate.sndbuf));
        let (rcvbuf, sndbuf) = self
            .limits
            .entry((host, id))
            .or_insert((first.receive.rmem.initial.into(), first.send.wmem.initial.into()));
        *rcvbuf = (*rcvbuf).max(info.rcvbuf.max(set.0).into());
        *sndbuf = (*sndbuf).max(info.sndbuf.max(set.1).into());
        let received = info.rcv_queue_bytes + info.rcv_ooo_bytes;
        // A window is rounded up to what its scale can say.
        if received > *rcvbuf + (1 << info.rcv_wscale.unwrap_or(0)) {
            return Some(format!("{received} bytes received and not read, of a limit of {rcvbuf}"));
        }
        let [unsent, _, in_flight] = queues;
        let queued = unsent + in_flight;
        (queued > *sndbuf + OVERSHOOT && unsent > OVERSHOOT)
            .then(|| format!("{queued} bytes queued, of a limit of {sndbuf}"))
    }

    /// What became of an end so far.
    fn fate(&self, host: usize, id: ConnId) -> Option<Fate> {
        let ledger = self.ledger.borrow();
        ledger.iter().zip(&self.plan.talks).find_map(|(fates, talk)| {
            let hosts = [talk.client, talk.server];
            fates
                .iter()
                .zip(hosts)
                .find(|(fate, at)| *at == host && fate.conn == Some(id))
                .map(|(fate, _)| *fate)
        })
    }

    /// Written, but neither acknowledged nor in one of the queues; `queues` are unsent, device and in flight.
    fn unbalanced(&self, host: usize, id: ConnId, info: &ConnInfo, queues: [u64; 3]) -> Option<String> {
        if matches!(info.state, State::Closed | State::SynSent | State::SynReceived) {
            return None;
        }
        let fate = self.fate(host, id)?;
        let open = fate.written.checked_sub(info.bytes_acked)?;
        let [unsent, device, in_flight] = queues;
        // Bytes whose packet is still in the device may be acknowledged already.
        let is_right = unsent + in_flight <= open && open <= unsent + device + in_flight;
        (!is_right).then(|| {
            format!(
                "{} written, {} acknowledged; {unsent} unsent, {device} in the device, {in_flight} in flight",
                fate.written, info.bytes_acked
            )
        })
    }

    /// Checks how the conversations went.
    pub(super) fn at_end(&self, world: &World) -> Result<(), Failure> {
        for (number, (fates, talk)) in self.ledger.borrow().iter().zip(&self.plan.talks).enumerate() {
            let fail = |why: String| {
                let why =
                    format!("conversation {number}: {why}; client {:?}, server {:?}", fates[0], fates[1]);
                Err(Failure::new(world.now(), Kind::Lost, why))
            };
            let lies = self.plan.lies(talk);
            for side in 0..2 {
                let (writer, reader) = (&fates[side], &fates[1 - side]);
                let is_deaf = matches!(talk.scripts[1 - side].ending, Ending::Deaf { .. });
                if reader.read > writer.written && !lies {
                    return fail(format!("end {} read more than was written", 1 - side));
                }
                if reader.eof && !is_deaf && !lies && reader.read != writer.written {
                    return fail(format!("end {} saw the end, but not every byte", 1 - side));
                }
            }
            if self.plan.may_fail(talk) {
                continue;
            }
            for (side, (fate, script)) in fates.iter().zip(&talk.scripts).enumerate() {
                if let Some(error) = fate.error {
                    return fail(format!("end {side} was polite, and so was its peer, and it got: {error}"));
                }
                if fate.written != script.bytes || !fate.eof || !fate.released {
                    return fail(format!("end {side} has not finished with its {} bytes", script.bytes));
                }
            }
        }
        Ok(())
    }

    /// Checks that nothing is left.
    pub(super) fn nothing_left(&self, world: &World) -> Result<(), Failure> {
        let fail = |why| Err(Failure::new(world.now(), Kind::Left, why));
        for (number, &id) in self.hosts.iter().enumerate() {
            let host = world.host_ref(id);
            let stack = host.stack();
            if stack.connections() > 0 {
                let states: Vec<_> =
                    stack.conn_ids().filter_map(|id| stack.conn(id)).map(|conn| conn.state()).collect();
                return fail(format!("host {number} still has connections: {states:?}"));
            }
            if stack.time_waits() > 0 {
                return fail(format!("host {number} has {} connections in TIME-WAIT", stack.time_waits()));
            }
            if let Some((at, timer)) = stack.poll_timeout() {
                return fail(format!("host {number} waits for {at:?} ({timer:?}) without a connection"));
            }
            if stack.awaits_tickets() {
                return fail(format!("host {number} waits for tickets without a connection"));
            }
            let tickets = host.tickets.iter().count();
            if tickets > 0 && self.plan.hosts[number].returns.never == 0.0 {
                return fail(format!("{tickets} tickets of host {number} have not come back"));
            }
        }
        if world.packets_live() > 0 {
            return fail(format!("{} packets are somewhere", world.packets_live()));
        }
        Ok(())
    }
}
