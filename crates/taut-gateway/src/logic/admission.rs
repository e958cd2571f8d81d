//! Which flows may begin: the source must be a guest's, the rules must allow the destination, and there must
//! be room.
//!
//! Addresses are checked here once more after names have been resolved: a flow has an address, and the rules
//! see it together with all names that the gateway has resolved to it for the guest (`names.rs`). The
//! gateway's own address means the host's loopback, and passes the same rules as `127.0.0.1`. A connection
//! that a rule allows by a name must then say that name (`first_bytes/`). Part of `gateway.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use taut::{FlowKind, Refusal};

use crate::logic::event::{Decision, Event};
use crate::logic::first_bytes::{FirstBytes, Found, Further};
use crate::logic::flow::{DNS_PORT, EventKind, Flow};
use crate::logic::gateway::{FlowId, Gateway, Settings};
use crate::logic::guests::{Counted, Guest};
use crate::logic::rules::{Action, Rule, UdpFilter};

/// The port of the gateway's own API, as gvproxy has it.
const API_PORT: u16 = 80;
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

/// Whether a flow's first bytes must be checked, the rule that decides, and the decision.
type Decided = (bool, Arc<Rule>, Box<Decision>);

/// The answer to a name, or to its absence.
enum Judged {
    Named,
    Free,
    /// With the reason.
    Refused(String),
}

/// The answer to a connection's first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// These leave; further ones must be checked.
    Watch(Vec<u8>),
    /// These leave, and all that follow.
    Free(Vec<u8>),
    /// None leaves, and the connection ends.
    Refuse,
}

impl Gateway {
    /// A guest begins a flow.
    pub fn admit(&mut self, now: Duration, kind: FlowKind, from: SocketAddr, to: SocketAddr) -> Admission {
        self.count_kind(kind);
        let (is_own, target) = self.target(to);
        let has_names = is_own && !self.settings.nameless.contains(&to.ip());
        let is_question = has_names && kind != FlowKind::Echo && to.port() == DNS_PORT;
        if !self.is_of_guest(from.ip()) {
            return self.deny((kind, from, to), Action::Deny, FOREIGN.into());
        }
        if is_question {
            return match self.begin(now, kind, from, target) {
                None => Admission::Refuse(Refusal::Prohibited),
                Some(id) => {
                    self.change(id, |flow| flow.is_question = true);
                    Admission::Questions(id)
                }
            };
        }
        let (must_say_name, rule, decision) = match self.decide(now, (kind, from, to), target) {
            Ok(decided) => decided,
            Err((action, rule)) => return self.deny((kind, from, to), action, rule),
        };
        match self.begin(now, kind, from, target) {
            None => Admission::Refuse(Refusal::Prohibited),
            Some(id) => {
                self.change(id, |flow| {
                    (flow.must_say_name, flow.rule, flow.decision) =
                        (must_say_name, Some(rule), Some(decision));
                });
                Admission::Dial(id, target)
            }
        }
    }

    /// A guest's connection to the gateway's own API; `None` if it is none.
    pub(crate) fn admit_caller(
        &mut self,
        now: Duration,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<Admission> {
        if to.port() != API_PORT || !self.settings.own.contains(&to.ip()) || !self.is_of_guest(from.ip()) {
            return None;
        }
        self.count_kind(FlowKind::Tcp);
        let id = self.begin(now, FlowKind::Tcp, from, to);
        Some(id.map_or(Admission::Refuse(Refusal::Prohibited), |id| Admission::Dial(id, to)))
    }

    /// By the rules: whether a flow's first bytes must be checked, and the decision; or what to do with it,
    /// and the rule that denies it.
    fn decide(
        &self,
        now: Duration,
        (kind, guest, to): (FlowKind, SocketAddr, SocketAddr),
        target: SocketAddr,
    ) -> Result<Decided, (Action, Arc<str>)> {
        let Settings { rules, dry_run, .. } = &self.settings;
        let mut names = self.names.of(now, self.machines.guest(guest.ip()), to.ip());
        let verdict = rules.check(kind, target, names.clone());
        let would_deny = *dry_run && verdict.action != Action::Allow;
        let judged = if would_deny { rules.check_defaults(kind, target) } else { verdict };
        if judged.action != Action::Allow {
            return Err((judged.action, judged.rule.text()));
        }
        let name = names.next().map(str::to_owned);
        let is_by_name = verdict.rule.allows_names() || *dry_run && name.is_some();
        let rule = Arc::clone(verdict.rule);
        let decision = Box::new(Decision { guest, name, rule: rule.text(), would_deny });
        Ok((kind == FlowKind::Tcp && is_by_name, rule, decision))
    }

    fn change(&mut self, id: FlowId, change: impl FnOnce(&mut Flow)) {
        self.flows.get_mut(id).map(change);
    }

    /// The first bytes of a connection, if they must be checked before one of them leaves
    /// ([`first_bytes`](Self::first_bytes)).
    #[must_use]
    pub fn must_say_name(&self, id: FlowId) -> Option<FirstBytes> {
        let flow = self.flows.get(id).filter(|flow| flow.must_say_name)?;
        // A dry run lets any protocol pass.
        Some(if self.settings.dry_run { FirstBytes::new(0) } else { FirstBytes::new(flow.to.port()) })
    }

    /// The guest `from` has sent these bytes of its connection, the next of the first ones.
    pub fn first_bytes(
        &mut self,
        now: Duration,
        (id, from): (FlowId, SocketAddr),
        first: &mut FirstBytes,
        bytes: &[u8],
    ) -> Passage {
        first.push(bytes);
        let mut pass = Vec::new();
        loop {
            let found = first.next();
            if found == Found::More {
                return Passage::Watch(pass);
            }
            let judged = self.judge(now, id, self.machines.guest(from.ip()), &found);
            match self.dry(id, &found, judged) {
                Judged::Named => pass.append(&mut first.take()),
                Judged::Free => {
                    pass.append(&mut first.take_all());
                    return Passage::Free(pass);
                }
                Judged::Refused(why) => {
                    self.refuse_connection(now, (id, from), why.into());
                    return Passage::Refuse;
                }
            }
        }
    }

    /// Notes the name that a connection says, and the rule that allows it; in a dry run, it passes
    /// whatever was judged.
    fn dry(&mut self, id: FlowId, found: &Found, (judged, rule): (Judged, Option<Arc<Rule>>)) -> Judged {
        let is_dry = self.settings.dry_run;
        let Some(flow) = self.flows.get_mut(id) else { return judged };
        if let Some(decision) = &mut flow.decision {
            if let Found::Name { name, .. } = found
                && (is_dry || matches!(judged, Judged::Named))
            {
                decision.name = Some(name.clone());
            }
            match (&judged, rule) {
                (Judged::Refused(why), _) if is_dry => {
                    (decision.would_deny, decision.rule) = (true, why.as_str().into());
                }
                (Judged::Named | Judged::Free, Some(rule)) if !decision.would_deny => {
                    (decision.rule, flow.rule) = (rule.text(), Some(rule));
                }
                _ => {}
            }
        }
        match (judged, found) {
            (Judged::Refused(_), Found::Name { .. }) if is_dry => Judged::Named,
            (Judged::Refused(_), _) if is_dry => Judged::Free,
            (judged, _) => judged,
        }
    }

    /// Whether a connection may pass that says this, and the rule that allows it, if one must.
    fn judge(&self, now: Duration, id: FlowId, guest: Guest, found: &Found) -> (Judged, Option<Arc<Rule>>) {
        let (name, is_hidden) = match found {
            Found::Free | Found::More => return (Judged::Free, None),
            Found::Name { name, is_hidden } => (Some(name.as_str()), *is_hidden),
            Found::Wrong(_) => (None, false),
        };
        let Some(flow) = self.flows.get(id) else { return (Judged::Refused(String::new()), None) };
        let mut told = self.names.of(now, guest, self.seen_by_guest(flow.to).ip());
        let name = name.filter(|name| told.any(|told| told == *name));
        let verdict = self.settings.rules.check(flow.kind, flow.to, name.into_iter());
        let by_name = verdict.rule.allows_names();
        let judged = match found {
            // Another rule allows the address, whatever its name.
            _ if verdict.action == Action::Allow && !by_name => Judged::Free,
            _ if verdict.action == Action::Allow && is_hidden && !verdict.rule.allows_ech() => {
                let why = "it may have another name, encrypted (ECH); browsers need `ech` at the rule's end";
                Judged::Refused(format!("{}: {why}", verdict.rule))
            }
            _ if verdict.action == Action::Allow => Judged::Named,
            Found::Name { name, .. } => Judged::Refused(format!("{}: it is for {name}", verdict.rule)),
            Found::Wrong(why) => Judged::Refused(format!("{}: {why}", verdict.rule)),
            Found::Free | Found::More => Judged::Free,
        };
        (judged, Some(Arc::clone(verdict.rule)))
    }

    /// The server of a connection whose first bytes are checked has sent something, or ended its half. Where
    /// the guest must say a name, it must say it first.
    pub fn server_said(
        &mut self,
        now: Duration,
        (id, from): (FlowId, SocketAddr),
        first: &FirstBytes,
        is_end: bool,
    ) -> Further {
        match (first.is_silent(), first.is_strict()) {
            // A protocol whose server speaks first says no name.
            (true, false) => Further::Free,
            (true, true) => {
                self.refuse_connection(now, (id, from), "its server speaks first".into());
                Further::Refuse
            }
            (false, _) if is_end => first.guest_ended(),
            (false, _) => Further::Watch,
        }
    }

    fn refuse_connection(&mut self, now: Duration, (id, guest): (FlowId, SocketAddr), rule: Arc<str>) {
        let Some(flow) = self.flows.get(id) else { return };
        let (kind, to) = (flow.kind, self.seen_by_guest(flow.to));
        self.counters.denied += 1;
        self.note(Event::Denied { guest, kind, to, rule });
        // Both sides are reset.
        self.happen(now, id, EventKind::Expired);
    }

    /// Whether a destination is the gateway itself, and where it is: the gateway's addresses are the host's
    /// loopback, and others may stand for addresses of the host's.
    fn target(&self, to: SocketAddr) -> (bool, SocketAddr) {
        let Settings { own, dns_at, mapped, .. } = &self.settings;
        let is_own = own.iter().chain(dns_at).any(|own| *own == to.ip());
        let mapped = mapped.iter().find(|(seen, _)| *seen == to.ip()).map_or(to.ip(), |(_, real)| *real);
        let ip = if is_own { loopback(to.ip()) } else { mapped };
        (is_own, SocketAddr::new(ip, to.port()))
    }

    /// Where the guest sees this destination: the host's loopback is at the gateway's address.
    fn seen_by_guest(&self, to: SocketAddr) -> SocketAddr {
        let is_own = |own: &&IpAddr| own.is_ipv4() == to.is_ipv4();
        match to.ip().is_loopback() {
            true => self.settings.own.iter().find(is_own).map_or(to, |own| SocketAddr::new(*own, to.port())),
            false => to,
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
        rule: Arc<str>,
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
        let who = self.machines.guest(guest.ip());
        let is_own = |own: &&IpAddr| own.is_ipv4() == from.is_ipv4();
        let seen = match from.ip().is_loopback() {
            true => self.settings.own.iter().find(is_own).map(|own| SocketAddr::new(*own, from.port())),
            false => Some(from),
        };
        let rules = &self.settings.rules;
        let verdict = rules.check(FlowKind::Udp, from, self.names.of(now, who, from.ip()));
        let rule = Arc::clone(verdict.rule);
        let is_allowed = verdict.action == Action::Allow;
        let is_let_in = is_allowed
            && (is_known || self.settings.udp_filter == UdpFilter::Any)
            && self.guests.has_room(&self.settings.limits, who, Counted::DatagramFlows);
        let Some(seen) = seen.filter(|_| is_let_in) else {
            self.counters.filtered += 1;
            return None;
        };
        let id = self.begin(now, FlowKind::Udp, guest, from)?;
        self.change(id, |flow| (flow.is_from_outside, flow.rule) = (true, Some(rule)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::event::Ended;
    use crate::logic::first_bytes::tests::{extension, hello, message, records, server_name};
    use crate::logic::flow::{End, Side};
    use crate::logic::limits::Amounts;
    use crate::logic::rules::Rules;

    const SITE: [u8; 4] = [198, 51, 100, 7];
    const RULES: [&str; 4] =
        ["deny bad.example.com", "allow *.example.com port 80,443,8080", "allow ech.test ech", "deny any"];

    fn from() -> SocketAddr {
        SocketAddr::from(([10, 0, 2, 15], 40_000))
    }

    /// A gateway that has resolved these names to one address.
    fn gateway(rules: &[&str]) -> Gateway {
        let rules = Rules::parse(rules.iter().copied()).unwrap();
        let mut gateway = Gateway::new(Settings { rules, ..Settings::default() });
        for name in ["a.example.com", "b.example.com", "ech.test", "bad.test"] {
            let guest = Guest::of(from().ip());
            gateway.names.learn(
                Duration::ZERO,
                guest,
                &Arc::from(name),
                SITE.into(),
                Duration::from_secs(600),
            );
        }
        gateway
    }

    /// The answer to a connection whose guest sends these bytes.
    fn passage(gateway: &mut Gateway, port: u16, bytes: &[u8]) -> Passage {
        let to = SocketAddr::from((SITE, port));
        let Admission::Dial(id, _) = gateway.admit(Duration::ZERO, FlowKind::Tcp, from(), to) else {
            panic!("{port}")
        };
        gateway.reached(Duration::ZERO, id);
        gateway.answered(Duration::ZERO, id);
        let Some(mut first) = gateway.must_say_name(id) else { return Passage::Free(bytes.to_vec()) };
        let passage = gateway.first_bytes(Duration::ZERO, (id, from()), &mut first, bytes);
        gateway.closed(id);
        assert_eq!(gateway.in_use(), Amounts::default());
        passage
    }

    fn request(host: &str) -> Vec<u8> {
        format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
    }

    fn ech(name: &str) -> Vec<u8> {
        records(&message(&[server_name(name), extension(0xfe0d, &[0; 40])].concat()), 1 << 14)
    }

    #[test]
    fn gw_180_a_connection_that_a_name_allows_must_be_for_that_name() {
        let mut gateway = gateway(&RULES);
        for (port, bytes, passes) in [
            (443, hello("a.example.com"), true),
            (443, hello("B.example.com"), true),
            // Not told for this address, denied, of no rule, and none.
            (443, hello("c.example.com"), false),
            (443, hello("bad.example.com"), false),
            (443, hello("bad.test"), false),
            (443, hello("198.51.100.7"), false),
            (443, records(&message(&[]), 1 << 14), false),
            (443, b"SSH-2.0-x\r\n".to_vec(), false),
            (80, request("a.example.com"), true),
            (80, request("bad.test"), false),
            (80, request("c.example.com:80"), false),
            (8_080, request("bad.test"), false),
            (8_080, hello("bad.test"), false),
            (8_080, b"SSH-2.0-x\r\n".to_vec(), true),
            // Encrypted, where one rule allows that and the other does not.
            (443, ech("a.example.com"), false),
            (443, ech("ech.test"), true),
        ] {
            let denied = gateway.counters().denied;
            let expected = if passes { Passage::Free(bytes.clone()) } else { Passage::Refuse };
            assert_eq!(passage(&mut gateway, port, &bytes), expected, "{port} {bytes:?}");
            assert_eq!(gateway.counters().denied, denied + u64::from(!passes));
        }
        let events: Vec<Event> = std::iter::from_fn(|| gateway.poll_event()).collect();
        let rule = |text: &str| {
            events.iter().any(|event| matches!(event, Event::Denied { rule, .. } if rule.contains(text)))
        };
        assert!(rule("it is for bad.test") && rule("(ECH)") && rule("neither TLS nor HTTP"), "{events:?}");
    }

    #[test]
    fn gw_180_nothing_leaves_before_the_name_is_there() {
        let mut gateway = gateway(&RULES);
        let (bytes, to) = (hello("a.example.com"), SocketAddr::from((SITE, 443)));
        let Admission::Dial(id, _) = gateway.admit(Duration::ZERO, FlowKind::Tcp, from(), to) else {
            panic!()
        };
        let mut first = gateway.must_say_name(id).unwrap();
        for byte in &bytes[..bytes.len() - 1] {
            let passage = gateway.first_bytes(Duration::ZERO, (id, from()), &mut first, &[*byte]);
            assert_eq!(passage, Passage::Watch(Vec::new()));
        }
        let last = &bytes[bytes.len() - 1..];
        let passage = gateway.first_bytes(Duration::ZERO, (id, from()), &mut first, last);
        assert_eq!(passage, Passage::Free(bytes));
    }

    #[test]
    fn gw_180_where_another_rule_allows_the_address_any_name_passes() {
        let bytes = hello("bad.test");
        for rules in
            [&["allow *.example.com", "allow 198.51.100.0/24", "deny any"][..], &["allow *.example.com"]]
        {
            assert_eq!(passage(&mut gateway(rules), 443, &bytes), Passage::Free(bytes.clone()), "{rules:?}");
        }
        // One that is no name's need not say any.
        let bytes = b"anything".to_vec();
        assert_eq!(passage(&mut gateway(&["allow any"]), 443, &bytes), Passage::Free(bytes));
    }

    #[test]
    fn gw_246_the_rule_of_the_name_that_is_said_decides() {
        let rules = ["allow a.example.com rate 1mbit", "allow b.example.com rate 2mbit", "deny any"];
        let (mut gateway, to) = (logging(&rules, false), SocketAddr::from((SITE, 443)));
        let admission = gateway.admit(Duration::ZERO, FlowKind::Tcp, from(), to);
        let Admission::Dial(id, _) = admission else { panic!() };
        let rule = |gateway: &Gateway| gateway.paced_by(id).unwrap().to_string();
        assert_eq!(rule(&gateway), rules[0]);
        let mut first = gateway.must_say_name(id).unwrap();
        gateway.first_bytes(Duration::ZERO, (id, from()), &mut first, &hello("b.example.com"));
        assert_eq!(rule(&gateway), rules[1]);
        gateway.closed(id);
        assert_eq!(&*ended(&mut gateway).decision.rule, rules[1]);
    }

    #[test]
    fn gw_181_quic_is_not_allowed_by_a_name_alone() {
        let goes = |rules: &[&str], port| {
            let to = SocketAddr::from((SITE, port));
            let admission = gateway(rules).admit(Duration::ZERO, FlowKind::Udp, from(), to);
            matches!(admission, Admission::Dial(..))
        };
        assert!(!goes(&["allow *.example.com", "deny any"], 443));
        assert!(!goes(&["allow *.example.com port 443", "deny any"], 443));
        assert!(goes(&["allow *.example.com", "deny any"], 53));
        assert!(goes(&["allow udp *.example.com port 443", "deny any"], 443));
        assert!(goes(&["allow *.example.com", "allow udp 198.51.100.0/24", "deny any"], 443));
    }

    /// The same gateway, which logs decisions.
    fn logging(rules: &[&str], dry_run: bool) -> Gateway {
        let mut gateway = gateway(rules);
        let settings = gateway.settings().clone();
        gateway.set(Settings { decisions: true, dry_run, ..settings });
        gateway
    }

    fn ended(gateway: &mut Gateway) -> Ended {
        match std::iter::from_fn(|| gateway.poll_event()).last() {
            Some(Event::Ended(flow)) => flow,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn gw_200_a_flow_that_has_ended_is_an_event_with_its_decision() {
        let (mut gateway, to) = (logging(&RULES, false), SocketAddr::from((SITE, 443)));
        let at = Duration::from_secs;
        let Admission::Dial(id, _) = gateway.admit(at(10), FlowKind::Tcp, from(), to) else { panic!() };
        gateway.reached(at(11), id);
        gateway.answered(at(11), id);
        let mut first = gateway.must_say_name(id).unwrap();
        gateway.first_bytes(at(11), (id, from()), &mut first, &hello("b.example.com"));
        gateway.passed(at(12), id, Side::Guest, 100, 0);
        gateway.passed(at(13), id, Side::Upstream, 4_000, 0);
        gateway.passed(at(14), id, Side::Upstream, 1_000, 0);
        gateway.ended(at(15), id, Side::Guest, End::Fin);
        gateway.ended(at(17), id, Side::Upstream, End::Fin);
        gateway.closed(id);
        let flow = ended(&mut gateway);
        assert_eq!((flow.kind, flow.to, flow.bytes, flow.time), (FlowKind::Tcp, to, [100, 5_000], at(7)));
        let Decision { guest, name, rule, would_deny } = flow.decision;
        let expected = ("b.example.com", "allow *.example.com port 80,443,8080", false);
        assert_eq!((name.as_deref().unwrap(), &*rule, would_deny), expected);
        assert_eq!(guest, from());
        // Datagrams are counted alike, and a denied flow is an event of its own.
        let mut gateway = logging(&["allow udp 198.51.100.0/24", "deny any"], false);
        let Admission::Dial(id, _) = gateway.admit(at(1), FlowKind::Udp, from(), to) else { panic!() };
        gateway.reached(at(1), id);
        gateway.datagrams_passed(at(2), id, Side::Guest, 3, 30);
        gateway.datagrams_passed(at(3), id, Side::Upstream, 1, 70);
        gateway.closed(id);
        let flow = ended(&mut gateway);
        assert_eq!((flow.bytes, flow.time, flow.decision.would_deny), ([30, 70], at(2), false));
        gateway.admit(at(4), FlowKind::Tcp, from(), to);
        assert!(matches!(gateway.poll_event(), Some(Event::Denied { .. })));
        // Without a log of decisions, there is none.
        let mut gateway = super::tests::gateway(&[]);
        let Admission::Dial(id, _) = gateway.admit(at(1), FlowKind::Udp, from(), to) else { panic!() };
        gateway.closed(id);
        assert_eq!(gateway.poll_event(), None);
    }

    #[test]
    fn gw_201_a_dry_run_allows_what_the_rules_deny_but_not_what_the_defaults_do() {
        let mut gateway = logging(&RULES, true);
        let goes = |gateway: &mut Gateway, kind, to: &str| {
            let to = to.parse().unwrap();
            match gateway.admit(Duration::ZERO, kind, from(), to) {
                Admission::Dial(id, _) => {
                    gateway.closed(id);
                    Some(ended(gateway))
                }
                _ => None,
            }
        };
        let flow = goes(&mut gateway, FlowKind::Udp, "203.0.113.5:53").unwrap();
        assert_eq!((flow.decision.would_deny, &*flow.decision.rule), (true, "deny any"));
        for closed in ["127.0.0.1:22", "169.254.169.254:80", "[fe80::1]:80", "168.63.129.16:80"] {
            assert!(goes(&mut gateway, FlowKind::Tcp, closed).is_none(), "{closed}");
        }
        while gateway.poll_event().is_some() {}
        // Another name passes, and is the flow's; so does a connection without one.
        for (port, bytes, name, would_deny) in [
            (443, hello("b.example.com"), "b.example.com", false),
            (443, hello("bad.test"), "bad.test", true),
            (443, hello("c.example.com"), "c.example.com", true),
            (443, ech("a.example.com"), "a.example.com", true),
            (443, b"SSH-2.0-x\r\n".to_vec(), "a.example.com", false),
            (22, b"SSH-2.0-x\r\n".to_vec(), "a.example.com", false),
        ] {
            assert_eq!(passage(&mut gateway, port, &bytes), Passage::Free(bytes.clone()), "{bytes:?}");
            let decision = ended(&mut gateway).decision;
            assert_eq!(
                (decision.name.as_deref(), decision.would_deny),
                (Some(name), would_deny),
                "{bytes:?}"
            );
        }
        // A name that the rules deny is resolved, and logged.
        let question = crate::logic::dns::ask(7, "stranger.test", 1).unwrap();
        let answer = gateway.question(Duration::ZERO, from().ip(), &question);
        assert!(matches!(answer, crate::logic::questions::Question::Forward(_)));
        let event = gateway.poll_event();
        assert!(matches!(event, Some(Event::NameDenied { is_dry: true, .. })), "{event:?}");
    }
}
