//! The life of one flow, as a table of stages. Pure: a stage and what happened give the next stage and what
//! to do.
//!
//! ```text
//!   TCP        dial               accept              an end of one side      of the other
//!   admitted ───────▶ Connecting ───────▶ Answering ───────▶ Open ──────────▶ half closed ─────────▶ done
//!                         │                   │               └─ a reset of one side is a reset of the other ─▶ done
//!                         └ refused, silent   └ the guest gives up: the upstream is reset
//!   UDP, ping  Connecting ─▶ Open ─▶ done, when nothing has passed for the idle time
//! ```
//!
//! The upstream comes first and the guest's answer second, so a guest sees a refusal as a refusal and silence
//! as silence. Called by `gateway.rs`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use taut::{FlowKind, Refusal};

use crate::logic::event::Decision;
use crate::logic::guests::Guest;
use crate::logic::limits::Timeouts;
use crate::logic::rules::Rule;

pub(crate) const DNS_PORT: u16 = 53;

/// One of the two ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Whoever began it.
    Guest,
    /// Where it goes.
    Upstream,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Guest => Self::Upstream,
            Self::Upstream => Self::Guest,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// How one side of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It says nothing more, and still listens: a FIN.
    Fin,
    /// It is gone: a reset, or a time-out.
    Reset,
}

/// Why an upstream could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens there: a reset, or ICMP port unreachable.
    Refused,
    /// ICMP host unreachable.
    HostUnreachable,
    /// ICMP network unreachable, or this host has no route.
    NetworkUnreachable,
    /// A firewall, a proxy or this host's policy forbids it.
    Prohibited,
    /// No answer.
    TimedOut,
    /// This host has no descriptor, port or memory left.
    NoResources,
}

impl Failure {
    /// What the guest hears; `None` is silence, which answers silence.
    #[must_use]
    pub const fn refusal(self, kind: FlowKind) -> Option<Refusal> {
        match (self, kind) {
            (Self::Refused, FlowKind::Tcp) => Some(Refusal::Reset),
            (Self::Refused, _) => Some(Refusal::PortUnreachable),
            (Self::HostUnreachable, _) => Some(Refusal::HostUnreachable),
            (Self::NetworkUnreachable, _) => Some(Refusal::NetworkUnreachable),
            // A gateway that has no room forbids the flow: it did not hear a refusal, and must not invent
            // one.
            (Self::Prohibited | Self::NoResources, _) => Some(Refusal::Prohibited),
            (Self::TimedOut, _) => None,
        }
    }
}

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The upstream is asked for; the guest has no answer yet.
    Connecting,
    /// The upstream is there, and the guest's handshake goes on.
    Answering,
    /// Bytes or datagrams pass. For each side, whether it has ended its half.
    Open([bool; 2]),
    /// Over: nothing is left to do but to forget it.
    Done,
}

/// An event of a flow, as the runner saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The upstream is there.
    Reached,
    /// It is not.
    Failed(Failure),
    /// The guest's handshake is complete.
    Answered,
    /// A side has ended.
    Ended(Side, End),
    /// Its time is over.
    Expired,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Nothing.
    Wait,
    /// Answer the guest: accept its flow.
    Accept,
    /// Refuse the guest's flow.
    Refuse(Refusal),
    /// Drop the guest's flow without an answer.
    Silence,
    /// End the half towards this side: a FIN.
    Finish(Side),
    /// Reset the connection of this side.
    Reset(Side),
    /// Reset both.
    ResetBoth,
    /// Both halves have ended: close.
    Close,
}

impl Stage {
    /// The next stage, and what to do. What cannot happen in a stage changes nothing.
    #[must_use]
    pub const fn after(self, kind: FlowKind, happened: EventKind) -> (Self, NextStep) {
        let is_tcp = matches!(kind, FlowKind::Tcp);
        match (self, happened) {
            (Self::Connecting, EventKind::Reached) if is_tcp => (Self::Answering, NextStep::Accept),
            (Self::Connecting, EventKind::Reached) => (Self::Open([false; 2]), NextStep::Accept),
            (Self::Connecting, EventKind::Failed(why)) => match why.refusal(kind) {
                Some(how) => (Self::Done, NextStep::Refuse(how)),
                None => (Self::Done, NextStep::Silence),
            },
            // The guest has given up; whoever was asked for is not wanted any more.
            (Self::Connecting, EventKind::Ended(..) | EventKind::Expired) => (Self::Done, NextStep::Silence),
            (Self::Answering, EventKind::Answered) => (Self::Open([false; 2]), NextStep::Wait),
            (Self::Answering, EventKind::Ended(side, End::Reset)) => {
                (Self::Done, NextStep::Reset(side.other()))
            }
            (Self::Open(_), EventKind::Ended(side, End::Reset)) => {
                (Self::Done, NextStep::Reset(side.other()))
            }
            (Self::Open(mut ended), EventKind::Ended(side, End::Fin)) if is_tcp => {
                if ended[side.index()] {
                    return (self, NextStep::Wait);
                }
                ended[side.index()] = true;
                if ended[side.other().index()] {
                    (Self::Done, NextStep::Close)
                } else {
                    (Self::Open(ended), NextStep::Finish(side.other()))
                }
            }
            (Self::Answering | Self::Open(_), EventKind::Expired) if is_tcp => {
                (Self::Done, NextStep::ResetBoth)
            }
            (Self::Open(_), EventKind::Expired) => (Self::Done, NextStep::Close),
            _ => (self, NextStep::Wait),
        }
    }

    /// Whether one half of a connection has ended, and the other goes on.
    #[must_use]
    pub const fn is_half_closed(self) -> bool {
        matches!(self, Self::Open([true, false] | [false, true]))
    }

    /// Whether the guest has no connection yet.
    #[must_use]
    pub const fn is_half_open(self) -> bool {
        matches!(self, Self::Connecting | Self::Answering)
    }
}

/// The state of a flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) kind: FlowKind,
    pub(crate) guest: Guest,
    /// The guest's end; at a forwarded port, the client.
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) stage: Stage,
    pub(crate) began: Duration,
    /// When something passed, or the stage changed.
    pub(crate) moved_at: Duration,
    /// The entry in `deadlines`, which may be earlier than the time is over.
    pub(crate) deadline: Duration,
    pub(crate) held: u64,
    /// Of datagrams: the entry in `idle`.
    pub(crate) idle_at: Duration,
    /// Datagrams that passed from each side, up to 255.
    pub(crate) datagrams: [u8; 2],
    /// Its time is over, unless something came meanwhile that was not passed on.
    pub(crate) is_due: bool,
    /// It goes to the gateway's own name server.
    pub(crate) is_question: bool,
    /// A host outside began it, at a port that the guest has there.
    pub(crate) is_from_outside: bool,
    /// A client began it, at a port that the host forwards.
    pub(crate) is_forwarded: bool,
    /// A rule with a name allowed it, so its first bytes must say a name that a rule allows.
    pub(crate) must_say_name: bool,
    /// Bytes from each side.
    pub(crate) bytes: [u64; 2],
    /// That decided about it; none of flows to forwarded ports and to the name server.
    pub(crate) rule: Option<Arc<Rule>>,
    /// For the list, and for the log when it has ended.
    pub(crate) decision: Option<Box<Decision>>,
}

impl Flow {
    /// A connection whose task passes bytes.
    pub(crate) fn is_relayed(&self) -> bool {
        self.kind == FlowKind::Tcp && matches!(self.stage, Stage::Open(_)) && !self.is_question
    }

    pub(crate) const fn new(now: Duration, kind: FlowKind, from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            kind,
            guest: Guest::of(from.ip()),
            from,
            to,
            stage: Stage::Connecting,
            began: now,
            moved_at: now,
            deadline: now,
            held: 0,
            idle_at: now,
            datagrams: [0; 2],
            is_due: false,
            is_question: false,
            is_from_outside: false,
            is_forwarded: false,
            must_say_name: false,
            bytes: [0; 2],
            rule: None,
            decision: None,
        }
    }

    /// When its time is over, if nothing passes.
    pub(crate) const fn end(&self, timeouts: &Timeouts) -> Duration {
        let time = match (self.stage, self.kind) {
            (Stage::Connecting | Stage::Answering, _) => timeouts.half_open,
            (Stage::Done, _) => Duration::MAX,
            (_, FlowKind::Udp) if self.is_question => timeouts.question,
            (_, FlowKind::Udp) if self.is_one_exchange() => timeouts.exchange,
            (_, FlowKind::Udp) => timeouts.datagrams,
            (_, FlowKind::Echo) => timeouts.ping,
            (stage, FlowKind::Tcp) if stage.is_half_closed() => timeouts.half_closed,
            (_, FlowKind::Tcp) => timeouts.idle,
        };
        self.moved_at.saturating_add(time)
    }

    /// See [`Timeouts::exchange`].
    const fn is_one_exchange(&self) -> bool {
        match self.datagrams {
            [0, _] => self.is_from_outside,
            [1..=2, 1..=2] => self.to.port() == DNS_PORT && !self.is_from_outside,
            _ => false,
        }
    }
}
