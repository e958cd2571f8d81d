//! Which flows may begin: the source must be a guest's, the rules must allow the destination, and there must
//! be room.
//!
//! Addresses are checked here once more after names have been resolved: a flow has an address, and the rules
//! see it together with all names that the gateway has resolved to it for the guest (`names.rs`). The
//! gateway's own address means the host's loopback, and passes the same rules as `127.0.0.1`.
//! Part of `gateway.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use taut::{FlowKind, Refusal};

use crate::logic::event::Event;
use crate::logic::flow::DNS_PORT;
use crate::logic::gateway::{FlowId, Gateway};
use crate::logic::guests::{Counted, Guest};
use crate::logic::rules::{Action, UdpFilter};

/// In place of a rule, about a flow whose source is in none of the guests' networks (RFC 2827).
const FOREIGN: &str = "its source is outside --guest";

/// Whether a guest's new flow is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may go to this address.
    Dial(FlowId, SocketAddr),
    /// It goes to the gateway's name server: each message is a [`Gateway::question`].
    Questions(FlowId),
    /// It is refused.
    Refuse(Refusal),
    /// It is not answered.
    Silent,
}

impl Gateway {
    /// A guest begins a flow.
    pub fn admit(&mut self, now: Duration, kind: FlowKind, from: SocketAddr, to: SocketAddr) -> Admission {
        let guest = Guest::of(from.ip());
        self.count_kind(kind);
        let is_own = self.settings.own.contains(&to.ip());
        let is_question = is_own && kind != FlowKind::Echo && to.port() == DNS_PORT;
        let target = if is_own { SocketAddr::new(loopback(to.ip()), to.port()) } else { to };
        if !self.is_of_guest(from.ip()) {
            return self.deny((kind, from, to), Action::Deny, FOREIGN.to_owned());
        }
        if !is_question {
            let verdict = self.settings.rules.check(kind, target, self.names.of(now, guest, to.ip()));
            if verdict.action != Action::Allow {
                let (action, rule) = (verdict.action, verdict.rule.to_string());
                return self.deny((kind, from, to), action, rule);
            }
        }
        match self.begin(now, kind, from.ip(), target) {
            None => Admission::Refuse(Refusal::Prohibited),
            Some(id) if is_question => {
                if let Some(flow) = self.flows.get_mut(id) {
                    flow.is_question = true;
                }
                Admission::Questions(id)
            }
            Some(id) => Admission::Dial(id, target),
        }
    }

    /// Whether a guest may have this source.
    fn is_of_guest(&self, source: IpAddr) -> bool {
        let networks = &self.settings.sources;
        networks.is_empty() || networks.iter().any(|network| network.contains(source))
    }

    fn deny(
        &mut self,
        (kind, guest, to): (FlowKind, SocketAddr, SocketAddr),
        action: Action,
        rule: String,
    ) -> Admission {
        self.counters.denied += 1;
        self.note(Event::Denied { guest, kind, to, rule });
        match action {
            Action::Drop => Admission::Silent,
            _ => Admission::Refuse(Refusal::Prohibited),
        }
    }

    /// A host outside sends to a port that this guest has there. `is_known`: the guest has sent to this
    /// address. Returns also where the guest sees it come from. `None`: the datagram is dropped.
    pub fn from_outside(
        &mut self,
        now: Duration,
        guest: SocketAddr,
        from: SocketAddr,
        is_known: bool,
    ) -> Option<(FlowId, SocketAddr)> {
        let who = Guest::of(guest.ip());
        let is_own = |own: &&IpAddr| own.is_ipv4() == from.is_ipv4();
        let seen = match from.ip().is_loopback() {
            true => self.settings.own.iter().find(is_own).map(|own| SocketAddr::new(*own, from.port())),
            false => Some(from),
        };
        let rules = &self.settings.rules;
        let verdict = rules.check(FlowKind::Udp, from, self.names.of(now, who, from.ip()));
        let is_allowed = verdict.action == Action::Allow;
        let is_let_in = is_allowed
            && (is_known || self.settings.udp_filter == UdpFilter::Any)
            && self.guests.has_room(&self.settings.limits, who, Counted::DatagramFlows);
        let Some(seen) = seen.filter(|_| is_let_in) else {
            self.counters.filtered += 1;
            return None;
        };
        let id = self.begin(now, FlowKind::Udp, guest.ip(), from)?;
        if let Some(flow) = self.flows.get_mut(id) {
            flow.is_from_outside = true;
        }
        Some((id, seen))
    }

    const fn count_kind(&mut self, kind: FlowKind) {
        match kind {
            FlowKind::Tcp => self.counters.connections += 1,
            FlowKind::Udp => self.counters.udp_flows += 1,
            FlowKind::Echo => self.counters.pings += 1,
        }
    }
}

/// The loopback address of the same family.
const fn loopback(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}
