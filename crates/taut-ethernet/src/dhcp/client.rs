//! The client of DHCP: which message is due, and what an answer means. RFC 2131 §4.4. Pure: it returns the
//! next step, and `lease.rs` takes it.
//!
//! ```text
//!            Offer               Ack                 nobody has it          T1             T2
//!   Init ──▶ Selecting ──▶ Requesting ──▶ Checking ──────────────▶ Bound ──────▶ Renewing ──▶ Rebinding
//!    ▲          ▲  │ Nak, 60 s   │            │ another has it: Decline  ▲            │ Ack         │ Ack
//!    │ 1 to 2 s └──┼─────────────┘            ▼ 10 s                     └────────────┴─────────────┘
//!    └─────────────┴──────────────────────── Init ◀── Nak, or the lease is over: the address is gone
//! ```
//!
//! | constant | value | from |
//! |---|---|---|
//! | the first message | within 1 s | RFC 4861 §10, as for routers; RFC 2131 §4.4.1 asks for 1 to 10 s |
//! | retransmissions | 4, 8, 16, 32, 64, 64 … s, each ± 1 s | RFC 2131 §4.1 |
//! | requests before it begins anew | 4, which is 60 s | RFC 2131 §3.1 (5) |
//! | retransmissions of a renewal | half of what is left, 60 s at least | RFC 2131 §4.4.5 |
//! | T1 | up to a sixteenth earlier | RFC 2131 §4.4.5: "some random fuzz" |
//! | after a Decline | 10 s | RFC 2131 §3.1 (5) |
//! | after a Nak | 1 to 2 s | ours: a server that refuses all does not keep the client busy |
//!
//! **What a stranger can do** who does not hear the client: guess a number of 32 bits, which changes with
//! each exchange. One who hears it can answer as a server does; what the answer says is checked (`terms.rs`),
//! and so is whether another station has the address (`own.rs`).

use core::net::Ipv4Addr;

use taut_wire::{DhcpAnswer, DhcpKind, DhcpMessage, DhcpReply, Mac};

use super::terms::Terms;
use crate::random::Random;
use taut_core::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// Retransmissions begin at 4 s and end at 64 s, 4 doubled so often.
const RESEND: Duration = Duration::from_secs(4);
const DOUBLINGS_MAX: u8 = 4;
const REQUESTS_MAX: u8 = 4;
const RENEW_EVERY_MIN: Duration = Duration::from_secs(60);
const AFTER_DECLINE: Duration = Duration::from_secs(10);
/// T1 is earlier by a random part of this share.
const FUZZ_SHARE: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Init,
    Selecting,
    /// A server has offered this address.
    Requesting {
        address: Ipv4Addr,
        server: Ipv4Addr,
    },
    /// The lease is ours, and whether another station has the address is being looked for.
    Checking,
    Bound,
    Renewing,
    Rebinding,
    /// The owner has removed the address.
    Stopped,
}

/// A lease. Its times count from when it was asked for (RFC 2131 §4.4.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) terms: Terms,
    /// The station that the server's answer came from.
    pub(crate) station: Mac,
    /// T1, T2 and the end.
    pub(crate) renew_at: Instant,
    rebind_at: Instant,
    pub(crate) ends_at: Instant,
}

/// The next step of the link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// To everybody, from the address in the message.
    Broadcast(DhcpMessage),
    /// To the server of the lease.
    ToServer(DhcpMessage),
    /// There is a lease: look whether another station has the address.
    Check(Terms),
    /// The lease goes on; before, its terms were these.
    Renewed(Terms),
    /// The lease is over.
    Lost(Terms),
    /// A server refused: nothing, and later all again.
    Refused,
}

/// The client.
#[derive(Debug)]
pub(crate) struct Client {
    phase: Phase,
    station: Mac,
    /// The MTU of the device.
    mtu: u16,
    /// When something is due.
    at: Instant,
    /// The exchange: its number, when it began, how many messages were sent, when the first request was.
    xid: u32,
    begun: Instant,
    sent: u8,
    asked: Instant,
    /// What the last Discover said: a Request says the same (RFC 2131 §3.1 (3)).
    secs: u16,
    /// The address that it had last, and asks for again.
    last: Option<Ipv4Addr>,
    lease: Option<Lease>,
    random: Random,
}

impl Client {
    pub(crate) const fn new(station: Mac, mtu: u16, keys: (u64, u64)) -> Self {
        Self {
            phase: Phase::Init,
            station,
            mtu,
            at: Instant::NEVER,
            xid: 0,
            begun: Instant::ZERO,
            sent: 0,
            asked: Instant::ZERO,
            secs: 0,
            last: None,
            lease: None,
            random: Random::new(keys),
        }
    }

    /// Asks for an address from soon on.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.restart(now, Duration::ZERO);
    }

    /// When something is due.
    pub(crate) const fn next(&self) -> Instant {
        self.at
    }

    pub(crate) const fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Whether the lease's address may be used: it was checked.
    const fn is_used(&self) -> bool {
        matches!(self.phase, Phase::Bound | Phase::Renewing | Phase::Rebinding)
    }

    /// Handles what is due now.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Act> {
        if self.at > now {
            return None;
        }
        match (self.phase, self.lease) {
            (Phase::Selecting, _) => Some(self.discover(now)),
            (Phase::Requesting { .. }, _) if self.sent < REQUESTS_MAX => Some(self.request(now)),
            (Phase::Init | Phase::Requesting { .. }, _) => {
                self.new_exchange(now);
                self.phase = Phase::Selecting;
                Some(self.discover(now))
            }
            (Phase::Checking | Phase::Bound | Phase::Renewing | Phase::Rebinding, Some(lease)) => {
                Some(self.prolong(now, &lease))
            }
            _ => {
                self.at = Instant::NEVER;
                None
            }
        }
    }

    /// A time of the lease has come.
    fn prolong(&mut self, now: Instant, lease: &Lease) -> Act {
        if now >= lease.ends_at {
            self.lease = None;
            self.restart(now, Duration::ZERO);
            return Act::Lost(lease.terms);
        }
        let (phase, until) = if now >= lease.rebind_at {
            (Phase::Rebinding, lease.ends_at)
        } else {
            (Phase::Renewing, lease.rebind_at)
        };
        if self.phase != phase {
            self.phase = phase;
            self.new_exchange(now);
            self.asked = now;
        }
        let wait = (until.since(now) / 2).max(RENEW_EVERY_MIN);
        self.at = (now + wait).min(until);
        let message = DhcpMessage {
            address: lease.terms.address,
            secs: seconds(now.since(self.begun)),
            ..self.message(DhcpKind::Request)
        };
        if phase == Phase::Renewing { Act::ToServer(message) } else { Act::Broadcast(message) }
    }

    fn new_exchange(&mut self, now: Instant) {
        self.xid = self.random.bits() as u32;
        (self.begun, self.sent) = (now, 0);
    }

    const fn message(&self, kind: DhcpKind) -> DhcpMessage {
        let address = Ipv4Addr::UNSPECIFIED;
        let (xid, secs, station) = (self.xid, self.secs, self.station);
        DhcpMessage { kind, xid, secs, station, address, requested: None, server: None }
    }

    /// When the next message is due after this one (RFC 2131 §4.1).
    fn sent_one(&mut self, now: Instant) {
        let doubled = RESEND * (1 << self.sent.min(DOUBLINGS_MAX));
        self.sent = self.sent.saturating_add(1);
        self.at = now + (doubled - SECOND) + self.random.span(SECOND * 2);
    }

    fn discover(&mut self, now: Instant) -> Act {
        self.secs = seconds(now.since(self.begun));
        self.sent_one(now);
        Act::Broadcast(DhcpMessage { requested: self.last, ..self.message(DhcpKind::Discover) })
    }

    fn request(&mut self, now: Instant) -> Act {
        let Phase::Requesting { address, server } = self.phase else { return self.discover(now) };
        self.sent_one(now);
        let (requested, server) = (Some(address), Some(server));
        Act::Broadcast(DhcpMessage { requested, server, ..self.message(DhcpKind::Request) })
    }

    /// Begins anew, within a second after so long a pause.
    fn restart(&mut self, now: Instant, pause: Duration) {
        self.phase = Phase::Init;
        self.at = now + pause + self.random.span(SECOND);
    }

    /// A server's message that has come from this station. `is_ours` tells whether the host has an address
    /// already. Returns `None` if it is of no use.
    pub(crate) fn on_reply(
        &mut self,
        now: Instant,
        reply: &DhcpReply,
        station: Mac,
        is_ours: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Act> {
        if reply.xid != self.xid || reply.station != self.station {
            return None;
        }
        let own = self.lease.filter(|_| self.is_used());
        match (self.phase, reply.answer, own) {
            (Phase::Selecting, DhcpAnswer::Offer, _) => {
                let terms = Terms::of(reply, self.mtu).filter(|terms| !is_ours(terms.address))?;
                self.phase = Phase::Requesting { address: terms.address, server: terms.server };
                (self.sent, self.asked) = (0, now);
                Some(self.request(now))
            }
            (Phase::Requesting { address, server }, DhcpAnswer::Ack, _) => {
                let terms = Terms::of(reply, self.mtu)?;
                if (terms.address, terms.server) != (address, server) || is_ours(address) {
                    return None;
                }
                self.hold(terms, station);
                self.phase = Phase::Checking;
                self.at = self.lease.map_or(Instant::NEVER, |lease| lease.ends_at);
                Some(Act::Check(terms))
            }
            (Phase::Requesting { server, .. }, DhcpAnswer::Nak, _) if reply.server == Some(server) => {
                self.restart(now, SECOND);
                Some(Act::Refused)
            }
            (Phase::Renewing | Phase::Rebinding, DhcpAnswer::Ack, Some(old)) => {
                let terms = Terms::of(reply, self.mtu).filter(|terms| terms.address == old.terms.address)?;
                if self.phase == Phase::Renewing && terms.server != old.terms.server {
                    return None;
                }
                self.hold(terms, station);
                self.bind();
                Some(Act::Renewed(old.terms))
            }
            (Phase::Renewing | Phase::Rebinding, DhcpAnswer::Nak, Some(old))
                if self.phase == Phase::Rebinding || reply.server == Some(old.terms.server) =>
            {
                self.lease = None;
                self.restart(now, SECOND);
                Some(Act::Lost(old.terms))
            }
            _ => None,
        }
    }

    fn hold(&mut self, terms: Terms, station: Mac) {
        let asked = self.asked;
        let (renew_at, rebind_at, ends_at) = match terms.times {
            None => (Instant::NEVER, Instant::NEVER, Instant::NEVER),
            Some(times) => {
                let fuzz = self.random.span(times.renew / FUZZ_SHARE);
                (asked + times.renew.saturating_sub(fuzz), asked + times.rebind, asked + times.end)
            }
        };
        self.last = Some(terms.address);
        self.lease = Some(Lease { terms, station, renew_at, rebind_at, ends_at });
    }

    fn bind(&mut self) {
        self.phase = Phase::Bound;
        self.at = self.lease.map_or(Instant::NEVER, |lease| lease.renew_at);
    }

    /// Nobody has this address. Returns the lease, if it is that of the lease.
    pub(crate) fn on_checked(&mut self, address: Ipv4Addr) -> Option<Lease> {
        let lease = self.lease.filter(|lease| lease.terms.address == address)?;
        if self.phase != Phase::Checking {
            return None;
        }
        self.bind();
        Some(lease)
    }

    /// Another station has this address. If it is that of the lease, returns what to tell the server, and the
    /// lease that is no more.
    pub(crate) fn on_taken(&mut self, now: Instant, address: Ipv4Addr) -> Option<(DhcpMessage, Terms)> {
        let lease = self.lease.filter(|lease| lease.terms.address == address)?;
        (self.lease, self.last) = (None, None);
        self.new_exchange(now);
        let decline = DhcpMessage {
            requested: Some(address),
            server: Some(lease.terms.server),
            ..self.message(DhcpKind::Decline)
        };
        self.restart(now, AFTER_DECLINE);
        Some((decline, lease.terms))
    }

    /// The owner has removed this address. If it is that of the lease, the client ends; returns what to tell
    /// the server, and the lease that is no more.
    pub(crate) fn on_removed(&mut self, now: Instant, address: Ipv4Addr) -> Option<(DhcpMessage, Lease)> {
        let lease = self.lease.filter(|lease| lease.terms.address == address)?;
        self.lease = None;
        (self.phase, self.at) = (Phase::Stopped, Instant::NEVER);
        self.new_exchange(now);
        let server = Some(lease.terms.server);
        Some((DhcpMessage { address, server, secs: 0, ..self.message(DhcpKind::Release) }, lease))
    }
}

/// Whole seconds, as many as a field of 16 bits can say.
fn seconds(span: Duration) -> u16 {
    u16::try_from(span.as_nanos() / SECOND.as_nanos()).unwrap_or(u16::MAX)
}
