//! The half of a packet device that sends, and gives tickets back when packets have left. Called by the
//! driver, through `taut_driver`'s outbox.
//!
//! **When a packet has left.** After each call, the kernel is asked how many bytes it holds (`SIOCOUTQ`, 0.2
//! µs beside the 5 µs of a super-packet). If it holds none, the packet has left: so it is on a virtual link
//! without a queue. Otherwise its ticket waits, and the next messages carry names by which the kernel reports
//! their packets ([`Names`]), until [`PROMPT_AGAIN`] calls in a row have left nothing below. The packets that
//! were sent before the first name come back by their bytes (`below.rs`).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use rustix::io::Errno;
use taut_core::{Duration, GATHER_MAX, Instant, Offload, TxPacket, TxTicket};
use taut_driver::{News, Sent, TxDevice};
use taut_wire::{IpHeader, ethernet};

use super::Naming;
use super::below::Below;
use super::line::{Parcel, Shared, now};
use crate::sys::packet_socket::{self, Along, Report};
use crate::vnet;

/// Calls in a row that left nothing below, after which packets are not named any more.
const PROMPT_AGAIN: u32 = 64;
/// How often packets below are looked at if nothing is reported: without names, which tell when to look; and
/// with names, for those that a queue has dropped.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOK_EVERY_NAMED: Duration = Duration::from_millis(10);
/// Reports in a row after which the counter's reports are relied on. A card that leaves the cutting of
/// super-packets to the kernel loses some of them: the kernel takes the number for a sequence number.
const REPORTS_COME: u32 = 64;

#[derive(Debug)]
pub(super) struct PacketTx {
    shared: Arc<Shared>,
    below: Below<TxTicket>,
    /// Tickets to give back.
    done: VecDeque<TxTicket>,
    naming: Naming,
    /// The interface's queue discipline honours departure times.
    paces: bool,
    /// How many calls in a row have left nothing below.
    prompt: u32,
    names: Names,
    counter: Counter,
    /// Packets with a name that came back without a report of it.
    unreported: u64,
    /// Reports in a row, without such a packet.
    reported: u32,
}

/// How a packet was taken.
enum Put {
    /// It has left.
    Left,
    /// It is below.
    Below { name: Option<u32> },
}

/// Names for packets.
///
/// A queue that cuts super-packets, such as `tbf`, leaves the report to the first of the segments that ends
/// behind the name, taken as a sequence number of TCP, or to none (Linux: `tcp_gso_tstamp`, 6.18). So a
/// super-packet's name is a sequence number in its last segment: then it is reported when all of it has left.
/// Other packets have any name.
#[derive(Debug, Default)]
struct Names {
    next: u32,
}

impl Names {
    /// Names that a packet may have, the best first.
    fn of(&mut self, packet: &TxPacket<'_>) -> impl Iterator<Item = u32> + use<> {
        /// Packets below that may have the same name: retransmissions, and those of other connections.
        const TRIES: u32 = 16;
        let len = packet.payload.len() as u32;
        let (first, last) = match (packet.offload, sequence(packet)) {
            (Offload::Segment { mss, .. }, Some(seq)) if len > 0 => {
                let in_last = match len % u32::from(mss.max(1)) {
                    0 => u32::from(mss),
                    rest => rest,
                };
                (seq.wrapping_add(len).wrapping_sub(in_last.min(TRIES)), seq.wrapping_add(len))
            }
            _ => {
                self.next = self.next.wrapping_add(1);
                (self.next, self.next.wrapping_add(TRIES))
            }
        };
        (0..last.wrapping_sub(first)).map(move |at| last.wrapping_sub(1).wrapping_sub(at))
    }
}

/// The sequence number of a TCP segment.
fn sequence(packet: &TxPacket<'_>) -> Option<u32> {
    let Offload::Segment { start, .. } = packet.offload else { return None };
    packet.header.get(usize::from(start) + 4..)?.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

/// The kernel's counter of the packets of a socket that are to be reported, as of Linux before 6.13: the next
/// number is known as long as it is known which packets the kernel has counted. It counts a packet before the
/// queue discipline takes or drops it.
#[derive(Debug, Default)]
struct Counter {
    next: u32,
    /// A packet was refused, maybe after it was counted.
    is_unsure: bool,
}

impl Counter {
    /// The number of the next packet, unless it is not known. It is known again once nothing is below: then
    /// the counter begins anew.
    fn next(&mut self, socket: &OwnedFd, nothing_is_below: bool) -> Option<u32> {
        if self.is_unsure && nothing_is_below && packet_socket::enable_timestamps(socket).is_ok() {
            // Reports by the old numbers.
            while packet_socket::next_report(socket).is_some() {}
            *self = Self::default();
        }
        (!self.is_unsure).then_some(self.next)
    }

    fn note(&mut self, sent: &io::Result<()>) {
        match sent {
            Ok(()) => self.next = self.next.wrapping_add(1),
            // No room at the socket, for which the kernel looks first.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.is_unsure = true,
        }
    }
}

impl PacketTx {
    pub(super) fn new(shared: Arc<Shared>, naming: Naming, paces: bool) -> Self {
        Self {
            shared,
            below: Below::new(),
            done: VecDeque::new(),
            naming,
            paces,
            prompt: PROMPT_AGAIN,
            names: Names::default(),
            counter: Counter::default(),
            unreported: 0,
            reported: REPORTS_COME,
        }
    }

    /// How the kernel is to report the next packet, and the name by which it does.
    fn name(&mut self, packet: &TxPacket<'_>) -> (Option<u32>, Report) {
        if self.prompt >= PROMPT_AGAIN {
            return (None, Report::No);
        }
        match self.naming {
            Naming::ByMessage => {
                let names = self.names.of(packet);
                let name = self.below.free_name(names);
                (name, name.map_or(Report::No, Report::By))
            }
            Naming::ByCounter => {
                let name = self.counter.next(&self.shared.send, self.below.is_empty());
                name.map_or((None, Report::No), |name| (Some(name), Report::Counted))
            }
            Naming::ByBytes => (None, Report::No),
        }
    }

    /// Hands a packet to the kernel.
    fn put(&mut self, header: &[u8; ethernet::HEADER_LEN], packet: &TxPacket<'_>) -> io::Result<Put> {
        let vnet =
            vnet::behind(header.len() as u16, vnet::for_transmit(packet.header, packet.offload)).emit();
        let mut pieces = [IoSlice::new(&[]); 3 + GATHER_MAX];
        let mut count = 0;
        for piece in [&vnet[..], &header[..]].into_iter().chain(packet.pieces()) {
            pieces[count] = IoSlice::new(piece);
            count += 1;
        }
        let (name, report) = self.name(packet);
        let departure_ns =
            (self.paces && packet.departure > Instant::ZERO).then(|| packet.departure.as_nanos());
        let along = Along { report, departure_ns };
        let send = || packet_socket::send(&self.shared.send, &pieces[..count], along);
        let sent = match send() {
            // An error from before, such as that the interface was down: it says nothing about this packet.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NETDOWN) => send(),
            other => other,
        };
        if report == Report::Counted {
            self.counter.note(&sent);
        }
        sent?;
        let is_prompt = packet_socket::bytes_below(&self.shared.send)? == 0;
        self.prompt = if is_prompt { self.prompt.saturating_add(1) } else { 0 };
        Ok(if is_prompt && name.is_none() && self.below.is_empty() { Put::Left } else { Put::Below { name } })
    }

    /// Sends a packet, whose ticket comes back now or later.
    fn transmit(
        &mut self,
        header: &[u8; ethernet::HEADER_LEN],
        packet: &TxPacket<'_>,
        ticket: TxTicket,
    ) -> Sent {
        match self.put(header, packet) {
            Ok(Put::Left) => Sent::Left(ticket),
            Ok(Put::Below { name }) => {
                let was_empty = self.below.is_empty();
                self.below.put(ticket, header.len() + packet.len(), name);
                if was_empty {
                    self.look_later();
                }
                Sent::Kept
            }
            Err(error) => self.failed(error, ticket),
        }
    }

    /// The fate of a packet that the kernel did not take. Linux: `packet_snd`.
    ///
    /// - `EAGAIN`: as much is below as the socket may have there. It polls writable when there is room again.
    /// - `ENOBUFS`, `ENOMEM`: the queue discipline dropped it, or there was no memory: a drop in this host.
    /// - Any other error concerns this packet alone, or the receiving half reports it, too: the interface is
    ///   gone.
    fn failed(&self, error: io::Error, ticket: TxTicket) -> Sent {
        match Errno::from_io_error(&error) {
            Some(Errno::AGAIN) => Sent::Full(ticket),
            Some(Errno::NOBUFS | Errno::NOMEM) => Sent::Dropped(ticket),
            Some(errno) => Sent::Never(ticket, explain(self.shared.name(), errno)),
            None => Sent::Never(ticket, error),
        }
    }

    fn look_later(&self) {
        let reports_come = match self.naming {
            Naming::ByMessage => true,
            Naming::ByCounter => self.reported >= REPORTS_COME,
            Naming::ByBytes => false,
        };
        let every = if reports_come { LOOK_EVERY_NAMED } else { LOOK_EVERY };
        let mut line = self.shared.line();
        line.look_at = if self.below.is_empty() { Instant::NEVER } else { now() + every };
        self.shared.settle(&mut line);
    }

    /// Sends what has waited for a neighbour.
    fn send_resolved(&mut self) {
        loop {
            let resolved = self.shared.line().ethernet.poll_resolved();
            let Some(resolved) = resolved else { return };
            let ticket =
                Parcel::resolved(resolved, |header, packet, ticket| self.transmit(header, packet, ticket));
            self.done.extend(ticket);
        }
    }

    /// Looks at what has left.
    fn look(&mut self) {
        self.send_resolved();
        if !self.below.is_empty() {
            // Bytes before names: whoever is not counted any more is in the error queue then, unless it was
            // dropped.
            let bytes = packet_socket::bytes_below(&self.shared.send).unwrap_or(0);
            while let Some(name) = packet_socket::next_report(&self.shared.send) {
                let ticket = self.below.left(name);
                self.reported = self.reported.saturating_add(u32::from(ticket.is_some()));
                self.done.extend(ticket);
            }
            while let Some(gone) = self.below.gone(bytes) {
                if gone.was_named {
                    self.unreported += 1;
                    self.reported = 0;
                }
                self.done.push_back(gone.ticket);
            }
        }
        let is_armed_in_vain = {
            let line = self.shared.line();
            (line.look_at != Instant::NEVER && (self.below.is_empty() || line.look_at <= now()))
                || line.ethernet.has_resolved()
        };
        if is_armed_in_vain {
            self.look_later();
        }
    }
}

impl TxDevice for PacketTx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Fd(self.shared.send.as_fd().try_clone_to_owned()?))
    }

    /// A packet on a virtual link is received by the peer before the call returns.
    fn is_slow(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        // What has waited was made before this one.
        self.send_resolved();
        match self.shared.direct(packet, ticket, &mut self.done) {
            Ok((header, ticket)) => self.transmit(&header, packet, ticket),
            Err(sent) => sent,
        }
    }

    fn take_unreported(&mut self) -> u64 {
        std::mem::take(&mut self.unreported)
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        if self.done.is_empty() {
            self.look();
        }
        self.done.pop_front()
    }
}

pub(crate) fn no_route(header: &[u8]) -> io::Error {
    let to: Option<IpAddr> = IpHeader::parse_prefix(header, usize::MAX).ok().map(|ip| ip.dst);
    let to = to.map_or_else(|| "its destination".to_owned(), |to| to.to_string());
    let message =
        format!("{to} is not on the link, and there is no gateway: give the stack one of its family");
    io::Error::new(io::ErrorKind::HostUnreachable, message)
}

fn explain(name: &str, errno: Errno) -> io::Error {
    let why = match errno {
        Errno::NETDOWN => "it is down; bring it up with: ip link set dev NAME up",
        Errno::NXIO | Errno::NODEV => "it was deleted, or moved to another namespace",
        Errno::MSGSIZE => "its MTU is smaller than when the stack was started; start the stack anew",
        _ => return io::Error::from(errno),
    };
    io::Error::new(
        io::Error::from(errno).kind(),
        format!("the interface {name}: {}", why.replace("NAME", name)),
    )
}

#[cfg(test)]
mod tests;
