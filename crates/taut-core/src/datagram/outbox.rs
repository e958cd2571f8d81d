//! Packets of a socket that wait for the link, and the bytes of those that are below the stack.
//! Linux: `sk_wmem_alloc`, `sock_wait_for_wmem`, `sock_writeable`. Owned by a socket.
//!
//! **Rule.** A packet counts from the call that sent it until its ticket comes back. A call finds room while
//! less than `SO_SNDBUF` counts. One that found none is told when half of it is free: a wake-up for each
//! packet would cost more than the packet.

use alloc::collections::VecDeque;
use core::net::IpAddr;
use core::ops::Range;

use super::OVERHEAD_BYTES;
use crate::words::{Duration, Endpoint, Instant, Memory};

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// UDP; its bytes are the payload. With a segment size, the device cuts it.
    Udp { segment: u16 },
    /// Its bytes are the payload of the IP packet.
    Message,
    /// Its bytes are a part of that, from `offset` on.
    Fragment { offset: usize, more: bool },
}

/// One packet.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) memory: Memory,
    pub(crate) range: Range<usize>,
    pub(crate) src: IpAddr,
    pub(crate) src_port: u16,
    pub(crate) to: Endpoint,
    pub(crate) class: u8,
    pub(crate) hops: u8,
    pub(crate) form: Form,
    /// What the IP packet says it carries.
    pub(crate) protocol: u8,
    /// The identification, of a packet that may be fragmented or is a fragment.
    pub(crate) ident: Option<u32>,
    /// The earliest that the application wants it to leave.
    pub(crate) departure: Instant,
}

impl Outgoing {
    pub(crate) fn truesize(&self) -> u32 {
        (self.range.len() + OVERHEAD_BYTES) as u32
    }

    pub(crate) const fn segs(&self) -> u16 {
        match self.form {
            Form::Udp { segment } if segment > 0 => {
                let len = self.range.end - self.range.start;
                len.div_ceil(segment as usize) as u16
            }
            _ => 1,
        }
    }
}

/// A packet that leaves.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) outgoing: Outgoing,
    pub(crate) departure: Instant,
    /// When it might have left by the socket's rate.
    pub(crate) prior: Instant,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    queue: VecDeque<Outgoing>,
    /// Of those in the queue and those below the stack.
    charged: u32,
    limit: u32,
    /// A call found no room.
    is_awaited: bool,
    /// `SO_MAX_PACING_RATE`, and when the next packet may leave by it.
    rate: Option<u64>,
    next_departure: Instant,
}

impl Outbox {
    pub(crate) const fn new(limit: u32, rate: Option<u64>) -> Self {
        Self {
            queue: VecDeque::new(),
            charged: 0,
            limit,
            is_awaited: false,
            rate,
            next_departure: Instant::ZERO,
        }
    }

    pub(crate) const fn set_limit(&mut self, bytes: u32) {
        self.limit = bytes;
    }

    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) const fn set_rate(&mut self, rate: Option<u64>) {
        self.rate = rate;
    }

    pub(crate) const fn charged(&self) -> u32 {
        self.charged
    }

    /// Whether there is room for a call; one that finds none is told later.
    pub(crate) const fn has_room(&mut self) -> bool {
        let has_room = self.charged < self.limit;
        self.is_awaited |= !has_room;
        has_room
    }

    /// Whether a call waits for room.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Whether half is free: a poll for room succeeds. Else it is told later.
    pub(crate) const fn is_writable(&mut self) -> bool {
        let is_writable = self.charged <= self.limit / 2;
        self.is_awaited |= !is_writable;
        is_writable
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.charged += outgoing.truesize();
        self.queue.push_back(outgoing);
    }

    /// When the first packet may leave.
    pub(crate) fn due(&self) -> Option<Instant> {
        let first = self.queue.front()?;
        Some(if self.rate.is_some() { first.departure.max(self.next_departure) } else { first.departure })
    }

    /// Takes the first packet. It stays charged.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Leaving> {
        let prior = self.next_departure;
        let departure = self.due()?.max(now);
        let outgoing = self.queue.pop_front()?;
        if let Some(rate) = self.rate {
            // As `fq` counts: the packet's bytes with its IP header.
            let bytes = outgoing.range.len() as u64 + 28;
            let gap_ns = bytes.saturating_mul(1_000_000_000) / rate.max(1);
            self.next_departure = departure + Duration::from_nanos(gap_ns);
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        Some(Leaving { outgoing, departure, prior })
    }

    /// Puts back a packet that the device refused, and the time from before it left.
    pub(crate) fn put_back(&mut self, leaving: Leaving) {
        self.next_departure = leaving.prior;
        self.queue.push_front(leaving.outgoing);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// A ticket came back. Returns whether a call that waits has room now.
    pub(crate) const fn release(&mut self, truesize: u32) -> bool {
        self.charged = self.charged.saturating_sub(truesize);
        if self.is_awaited && self.charged <= self.limit / 2 {
            self.is_awaited = false;
            return true;
        }
        false
    }
}
