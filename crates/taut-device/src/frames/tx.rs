//! The half of a device of frames that sends, and gives tickets back when the peer has read the frames.
//! Called by the driver.
//!
//! **When a packet has left.** A Unix socket counts the memory of what its peer has not read (`SIOCOUTQ`). If
//! there is none after a call, the packet has left. Otherwise its ticket waits, and comes back by bytes
//! ([`below.rs`](../packet/below.rs)), at the next call, the next packet from the peer, or a millisecond
//! later. On a TAP it has left when the write returns.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::Waker;

use rustix::io::Errno;
use taut_core::{Duration, GATHER_MAX, Instant, TxPacket, TxTicket};
use taut_driver::{News, Sent, TxDevice};
use taut_ethernet::{Ethernet, Hop};

use super::line::{Parcel, Shared, now};
use crate::packet::below::{Below, Gone};
use crate::packet::no_route;
use crate::vnet;

/// How often is looked at what the peer has not read.
const LOOK_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct FramesTx {
    shared: Arc<Shared>,
    below: Below<TxTicket>,
    /// Tickets to give back.
    done: VecDeque<TxTicket>,
}

impl FramesTx {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, below: Below::new(), done: VecDeque::new() }
    }

    /// Sends a packet with this header of the link, whose ticket comes back now or later.
    fn transmit(&mut self, header: &[u8], packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let vnet_header = vnet::for_transmit(packet.header, packet.offload);
        let vnet_header = vnet::behind(header.len() as u16, vnet_header).emit();
        let vnet_header = &vnet_header[..self.shared.vnet_len()];
        // The first piece is the place of a length.
        let mut pieces = [IoSlice::new(&[]); 4 + GATHER_MAX];
        let mut count = 1;
        for piece in [vnet_header, header].into_iter().chain(packet.pieces()) {
            pieces[count] = IoSlice::new(piece);
            count += 1;
        }
        let len = header.len() + packet.len();
        let sent = self.shared.carrier.send(&mut pieces[..count], vnet_header.len() + len);
        if sent.is_ok() {
            self.shared.record(std::iter::once(header).chain(packet.pieces()));
        }
        match sent {
            Ok(()) if self.below.is_empty() && self.shared.carrier.bytes_below() == 0 => Sent::Left(ticket),
            Ok(()) => {
                let was_empty = self.below.is_empty();
                self.below.put(ticket, len, None);
                if was_empty {
                    self.look_later();
                }
                Sent::Kept
            }
            Err(error) => {
                let sent = failed(error, ticket);
                if matches!(sent, Sent::Full(_)) {
                    self.shared.watch_room();
                }
                sent
            }
        }
    }

    fn look_later(&self) {
        let mut line = self.shared.line();
        let is_idle = self.below.is_empty() && !self.shared.carrier.push_rest();
        line.look_at = if is_idle { Instant::NEVER } else { now() + LOOK_EVERY };
        self.shared.settle(&mut line);
    }

    /// Sends what has waited for a neighbour.
    fn send_resolved(&mut self) {
        loop {
            let resolved = self.shared.line().ethernet.as_mut().and_then(Ethernet::poll_resolved);
            let Some(resolved) = resolved else { return };
            let ticket =
                Parcel::resolved(resolved, |header, packet, ticket| self.transmit(header, packet, ticket));
            self.done.extend(ticket);
        }
    }

    /// Looks at what has left.
    fn look(&mut self) {
        self.send_resolved();
        let has_rest = self.shared.carrier.push_rest();
        // The rest of a frame is not counted by the kernel yet.
        if !self.below.is_empty() && !has_rest {
            let bytes = self.shared.carrier.bytes_below();
            while let Some(Gone { ticket, .. }) = self.below.gone(bytes) {
                self.done.push_back(ticket);
            }
        }
        let is_armed_in_vain = {
            let line = self.shared.line();
            (line.look_at != Instant::NEVER
                && ((self.below.is_empty() && !has_rest) || line.look_at <= now()))
                || line.ethernet.as_ref().is_some_and(Ethernet::has_resolved)
        };
        if is_armed_in_vain {
            self.look_later();
        }
    }
}

/// The fate of a packet that the descriptor did not take.
///
/// - `EAGAIN`: no room. It is announced when there is some again.
/// - `ENOBUFS`, `ENOMEM`: no memory, and nothing announces memory: a drop in this host.
/// - Any other error concerns this packet alone, or the receiving half reports it, too.
fn failed(error: io::Error, ticket: TxTicket) -> Sent {
    match Errno::from_io_error(&error) {
        Some(Errno::NOBUFS | Errno::NOMEM) => Sent::Dropped(ticket),
        _ if error.kind() == io::ErrorKind::WouldBlock => Sent::Full(ticket),
        _ => Sent::Never(ticket, error),
    }
}

impl TxDevice for FramesTx {
    /// Room and tickets are announced with the packets, by the descriptor of the receiving half: see
    /// `line.rs`.
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Waker)
    }

    /// A system call; on a TAP it runs the receive path of the kernel.
    fn is_slow(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        // What has waited was made before this one.
        self.send_resolved();
        let shared = Arc::clone(&self.shared);
        let mut line = shared.line();
        let Some(ethernet) = &mut line.ethernet else {
            drop(line);
            return self.transmit(&[], packet, ticket);
        };
        match ethernet.next_hop(now(), packet.header) {
            Hop::Ready(header) => {
                drop(line);
                self.transmit(&header, packet, ticket)
            }
            Hop::Wait(neighbour) => {
                if let Some(Parcel { ticket, .. }) =
                    ethernet.wait(neighbour, Parcel { packet: packet.keep(), ticket })
                {
                    self.done.push_back(ticket);
                    // So that it is collected.
                    line.look_at = Instant::ZERO;
                }
                shared.settle(&mut line);
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
