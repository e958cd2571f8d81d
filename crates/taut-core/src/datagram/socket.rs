//! One datagram socket: where it is bound and connected, what waits in both directions, and the error that
//! its next call returns. Held by `table.rs`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::flow::{FlowPart, Stage};
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::{
    BUFFER_DEFAULT_BYTES, DatagramError, DatagramInfo, DatagramKind, DatagramOption, DatagramOptions,
    IcmpReport, RCVBUF_MIN_BYTES, SNDBUF_MIN_BYTES, Told,
};
use crate::words::{DatagramId, Endpoint};

/// ICMP errors that wait for a socket with `IP_RECVERR`; further ones are dropped.
const REPORTS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) generation: u32,
    pub(crate) kind: DatagramKind,
    /// The address may be unspecified.
    pub(crate) bound: Endpoint,
    /// Where packets come from since it is connected; before, as `bound`.
    pub(crate) local: Endpoint,
    pub(crate) peer: Option<Endpoint>,
    pub(crate) options: DatagramOptions,
    /// Of a socket that a filter made.
    pub(crate) flow: Option<Box<FlowPart>>,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    error: Option<DatagramError>,
    reports: VecDeque<IcmpReport>,
    pub(crate) news: News,
    /// It is in the stack's list of those with something to send.
    pub(crate) is_ready: bool,
    /// Bytes that it may still send in its turn.
    pub(crate) turn_bytes: u32,
}

/// What the application is told next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) is_queued: bool,
}

impl Socket {
    pub(crate) fn new(kind: DatagramKind, bound: Endpoint, options: &DatagramOptions) -> Self {
        let mut socket = Self {
            generation: 0,
            kind,
            bound,
            local: bound,
            peer: None,
            options: *options,
            flow: None,
            inbox: Inbox::new(BUFFER_DEFAULT_BYTES),
            outbox: Outbox::new(BUFFER_DEFAULT_BYTES, options.max_pacing_rate),
            error: None,
            reports: VecDeque::new(),
            news: News::default(),
            is_ready: false,
            turn_bytes: 0,
        };
        socket.set_buffers();
        socket
    }

    /// The socket of a flow from `peer` to `local` that is not decided. Its queue takes so many bytes.
    pub(crate) fn of_flow(
        kind: DatagramKind,
        (local, peer): (Endpoint, Endpoint),
        flow: FlowPart,
        pending_bytes: u32,
    ) -> Self {
        let mut socket = Self::new(kind, local, &DatagramOptions::default());
        socket.peer = Some(peer);
        socket.flow = Some(Box::new(flow));
        socket.inbox.set_limit(pending_bytes);
        socket
    }

    /// The application accepts the flow, and has the socket from now on.
    pub(crate) fn accept(&mut self, options: &DatagramOptions) {
        self.options = *options;
        self.outbox.set_rate(options.max_pacing_rate);
        self.inbox.set_limit(BUFFER_DEFAULT_BYTES);
        self.set_buffers();
    }

    fn set_buffers(&mut self) {
        if let Some(bytes) = self.options.rcvbuf {
            self.set(DatagramOption::Rcvbuf(bytes));
        }
        if let Some(bytes) = self.options.sndbuf {
            self.set(DatagramOption::Sndbuf(bytes));
        }
    }

    /// Whether the application may name it.
    pub(crate) fn is_held(&self) -> bool {
        self.flow.as_ref().is_none_or(|flow| flow.is_held())
    }

    /// Whether it is of a flow that was idle for too long.
    pub(crate) fn is_over(&self) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.stage == Stage::Over)
    }

    pub(crate) const fn set(&mut self, option: DatagramOption) {
        /// The most of a buffer: lengths are counted in 32 bits.
        const MOST: u32 = 1 << 30;
        const fn doubled(bytes: u32, least: u32) -> u32 {
            let bytes = bytes.saturating_mul(2);
            if bytes < least {
                least
            } else if bytes > MOST {
                MOST
            } else {
                bytes
            }
        }
        match option {
            DatagramOption::Sndbuf(bytes) => self.outbox.set_limit(doubled(bytes, SNDBUF_MIN_BYTES)),
            DatagramOption::Rcvbuf(bytes) => self.inbox.set_limit(doubled(bytes, RCVBUF_MIN_BYTES)),
            DatagramOption::Ttl(ttl) => self.options.ttl = if ttl == 0 { None } else { Some(ttl) },
            DatagramOption::Tos(tos) => self.options.tos = tos,
            DatagramOption::MtuDiscovery(discovery) => self.options.mtu_discovery = discovery,
            DatagramOption::MaxPacingRate(rate) => {
                self.options.max_pacing_rate = rate;
                self.outbox.set_rate(rate);
            }
            DatagramOption::Gro(gro) => self.options.gro = gro,
            DatagramOption::RecvErrors(on) => self.options.recv_errors = on,
            DatagramOption::MulticastTtl(ttl) => self.options.multicast_ttl = Some(ttl),
            // Of the stack's table.
            DatagramOption::JoinGroup(_) | DatagramOption::LeaveGroup(_) => {}
        }
    }

    /// ICMP says something about a packet of this socket. Returns whether the application is to be told.
    pub(crate) fn on_icmp(&mut self, told: Told, report: IcmpReport) -> bool {
        let discovers = self.options.mtu_discovery != super::MtuDiscovery::Dont;
        if told.error == DatagramError::TooLong && !discovers && !self.options.recv_errors {
            return false;
        }
        if self.options.recv_errors {
            if self.reports.len() < REPORTS_MAX {
                self.reports.push_back(report);
            }
        } else if self.peer.is_none() || !told.is_hard {
            return false;
        }
        self.error = Some(told.error);
        true
    }

    pub(crate) const fn take_error(&mut self) -> Option<DatagramError> {
        self.error.take()
    }

    pub(crate) const fn has_error(&self) -> bool {
        self.error.is_some()
    }

    pub(crate) fn take_report(&mut self) -> Option<IcmpReport> {
        self.reports.pop_front()
    }

    pub(crate) fn info(&self, slot: u32) -> DatagramInfo {
        DatagramInfo {
            id: DatagramId { slot, generation: self.generation },
            kind: self.kind,
            local: self.local.socket_addr(),
            peer: self.peer.map(Endpoint::socket_addr),
            recv_queue: u32::try_from(self.inbox.memory()).unwrap_or(u32::MAX),
            send_queue: self.outbox.charged(),
            rcvbuf: self.inbox.limit(),
            sndbuf: self.outbox.limit(),
            drops: self.inbox.drops(),
        }
    }
}
