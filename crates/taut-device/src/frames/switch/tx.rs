//! The half of a switch that sends, and gives tickets back when the machine has read the frames: as
//! `../tx.rs`, for each port. Called by the driver.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use taut_core::{Duration, Instant, TxPacket, TxTicket};
use taut_driver::{News, Sent, TxDevice};
use taut_ethernet::Hop;
use taut_wire::Mac;

use super::super::line::{Parcel, now};
use super::{Hub, Port};
use crate::packet::no_route;

/// How often is looked at what machines have not read.
const LOOK_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct SwitchTx {
    hub: Arc<Hub>,
    /// All, as of this change.
    ports: (u32, Vec<Arc<Port>>),
    /// Tickets to give back.
    done: VecDeque<TxTicket>,
}

impl SwitchTx {
    pub(super) const fn new(hub: Arc<Hub>) -> Self {
        Self { hub, ports: (0, Vec::new()), done: VecDeque::new() }
    }

    /// Sends a packet with this header of the link, whose ticket comes back now or later.
    fn transmit(&self, header: &[u8; 14], packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let [a, b, c, d, e, f, ..] = *header;
        let station = Mac([a, b, c, d, e, f]);
        let mut line = self.hub.line();
        if station.is_group() {
            let frame = [&header[..], &packet.to_vec()].concat();
            self.hub.pass(&line, station, &frame);
            return Sent::Left(ticket);
        }
        // One for a station that no machine has is lost.
        let Some(port) = line.towards(station).next().cloned() else { return Sent::Left(ticket) };
        let must_look = line.look_at == Instant::NEVER;
        if must_look {
            line.look_at = now() + LOOK_EVERY;
        }
        drop(line);
        let sent = port.send(&self.hub.news, header, packet, ticket);
        if matches!(sent, Sent::Left(_) | Sent::Kept) {
            self.hub.record(std::iter::once(&header[..]).chain(packet.pieces()));
        }
        if must_look {
            let mut line = self.hub.line();
            if !matches!(sent, Sent::Kept) {
                line.look_at = Instant::NEVER;
            }
            self.hub.settle(&mut line);
        }
        sent
    }

    /// Sends what has waited for a neighbour.
    fn send_resolved(&mut self) {
        loop {
            let resolved = self.hub.line().ethernet.poll_resolved();
            let Some(resolved) = resolved else { return };
            let ticket =
                Parcel::resolved(resolved, |header, packet, ticket| self.transmit(header, packet, ticket));
            self.done.extend(ticket);
        }
    }

    /// Looks at what has left.
    fn look(&mut self) {
        self.send_resolved();
        let changes = self.hub.changes.load(Ordering::Acquire);
        if self.ports.0 != changes {
            self.ports = (changes, self.hub.line().ports.clone());
        }
        let mut is_busy = false;
        for port in &self.ports.1 {
            is_busy |= port.look(&self.hub.news, &mut self.done);
        }
        let mut line = self.hub.line();
        self.done.extend(line.orphans.drain(..));
        let (look_at, now) = (line.look_at, now());
        let is_over = look_at <= now;
        if is_over || is_busy != (look_at != Instant::NEVER) || line.ethernet.has_resolved() {
            line.look_at = if is_busy { now + LOOK_EVERY } else { Instant::NEVER };
            self.hub.settle(&mut line);
        }
    }
}

impl TxDevice for SwitchTx {
    /// Room and tickets are announced with the packets, by the descriptor of the receiving half.
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Waker)
    }

    /// A system call.
    fn is_slow(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        // Those that have waited were made before this one.
        self.send_resolved();
        let mut line = self.hub.line();
        match line.ethernet.next_hop(now(), packet.header) {
            Hop::Ready(header) => {
                drop(line);
                self.transmit(&header, packet, ticket)
            }
            Hop::Wait(neighbour) => {
                let parcel = Parcel { packet: packet.keep(), ticket };
                if let Some(Parcel { ticket, .. }) = line.ethernet.wait(neighbour, parcel) {
                    self.done.push_back(ticket);
                    // So that it is collected.
                    line.look_at = Instant::ZERO;
                }
                self.hub.settle(&mut line);
                Sent::Kept
            }
            Hop::NoRoute => Sent::Never(ticket, no_route(packet.header)),
        }
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        if self.done.is_empty() {
            self.look();
        }
        self.done.pop_front()
    }
}
