//! UDP, ping, and flows of datagrams. Only the files of this folder reach the datagram sockets of a stack,
//! whose types are in [`crate::datagram`]. Called by the application and by the stack.
//!
//! ```text
//!   sockets.rs   calls of the application           link.rs     what arrives and what leaves
//!   groups.rs    datagrams to groups of multicast   flows.rs    flows that a filter takes
//! ```

mod flows;
mod groups;
mod link;
mod sockets;

use alloc::collections::BTreeSet;

use super::opening::secrets::Secrets;
use crate::datagram::groups::Groups;
use crate::datagram::outbox::{Leaving, Outbox};
use crate::datagram::table::Table;
use crate::ip::icmp::Limit;
use crate::ip::path_mtu::PathMtus;
use crate::ip::reassembly::Reassembly;
use crate::words::{ConnId, DatagramId, Instant, Output, TxTicket};

/// In place of a socket: an ICMP message of the stack itself.
const NO_SOCKET: u32 = u32::MAX;

/// The state of a stack for UDP, ping, and flows of datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    table: Table,
    paths: PathMtus,
    pub(super) reassembly: Reassembly,
    pub(super) icmp_limit: Limit,
    /// The packet that was handed out last: its device may refuse it.
    leaving: Option<Leaving>,
    /// Its number.
    leaving_serial: u64,
    /// When sockets may send again that must wait for that.
    departures: BTreeSet<(Instant, u32)>,
    /// When to look whether accepted flows were idle.
    idle: BTreeSet<(Instant, u32)>,
    /// Of multicast, that sockets have joined.
    groups: Groups,
    /// Sockets of which a call waits for room.
    awaited: u32,
    ports: u32,
    idents: u32,
}

impl Datagrams {
    pub(super) fn new(secrets: &Secrets) -> Self {
        let [sockets, peers] = secrets.table_keys();
        Self {
            table: Table::new(sockets),
            paths: PathMtus::default(),
            reassembly: Reassembly::default(),
            icmp_limit: Limit::new(peers),
            leaving: None,
            leaving_serial: 0,
            departures: BTreeSet::new(),
            idle: BTreeSet::new(),
            groups: Groups::default(),
            awaited: 0,
            ports: 0,
            idents: 0,
        }
    }

    /// Uses the outbox of a socket, and counts the socket while a call waits for room in it.
    fn outbox<R>(&mut self, id: DatagramId, f: impl FnOnce(&mut Outbox) -> R) -> Option<R> {
        let outbox = &mut self.table.get_mut(id)?.outbox;
        self.awaited -= u32::from(outbox.is_awaited());
        let result = f(outbox);
        self.awaited += u32::from(outbox.is_awaited());
        Some(result)
    }

    /// Whether a call waits for a ticket to come back.
    pub(super) const fn awaits_tickets(&self) -> bool {
        self.awaited > 0
    }

    /// The ticket of an ICMP message of the stack itself, which is offered again if the device refuses it.
    pub(super) fn message_ticket(&mut self, now: Instant) -> TxTicket {
        self.leaving = None;
        self.leaving_serial += 1;
        let conn = Some(ConnId { slot: NO_SOCKET, generation: 0 });
        let start = self.leaving_serial;
        TxTicket { conn, start, handed: now, output: Output::Datagram, ..TxTicket::blank() }
    }
}
