//! Lists and changes of a running gateway, by `doors/live/`: flows, rules, and names that the gateway answers
//! itself. Part of `gateway.rs`.
//!
//! **A changed rule holds for flows that begin after it.** Those that run stay, as when the file of rules is
//! read again. A connection that has yet to say its name (`first_bytes/`) is judged by the present rules.

pub(crate) mod hosts;
pub(crate) mod zones;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use taut::FlowKind;

use crate::logic::flow::{Flow, Stage};
use crate::logic::flows::FlowId;
use crate::logic::gateway::Gateway;
use crate::logic::live::hosts::Hosts;
use crate::logic::live::zones::{Zone, ZoneError, Zones};
use crate::logic::rules::{PlaceError, Rule};

/// A flow in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) kind: FlowKind,
    /// The guest's end.
    pub(crate) guest: SocketAddr,
    /// The other end, as the rules see it.
    pub(crate) peer: SocketAddr,
    /// The other end began it.
    pub(crate) is_inward: bool,
    /// The name that it said, or the first that was resolved to its address.
    pub(crate) name: Option<String>,
    /// The rule that decided; none of flows from outside, and of those to the name server.
    pub(crate) rule: Option<Arc<str>>,
    /// From the guest, and to it.
    pub(crate) bytes: [u64; 2],
    pub(crate) age: Duration,
}

impl Listed {
    fn of(flow: &Flow, now: Duration) -> Self {
        let (guest, peer) = if flow.is_forwarded { (flow.to, flow.from) } else { (flow.from, flow.to) };
        let decision = flow.decision.as_deref();
        Self {
            kind: flow.kind,
            guest,
            peer,
            is_inward: flow.is_forwarded || flow.is_from_outside,
            name: decision.and_then(|decision| decision.name.clone()),
            rule: decision.map(|decision| Arc::clone(&decision.rule)),
            bytes: flow.bytes,
            age: now.saturating_sub(flow.began),
        }
    }
}

impl Gateway {
    /// At most `count` flows from this place of the table on, and the place of the next list, if there is
    /// one: a long list is made in parts.
    pub(crate) fn list(&self, now: Duration, from: usize, count: usize) -> (Vec<Listed>, Option<usize>) {
        let mut found = self.flows.at(from).filter(|(_, flow)| flow.stage != Stage::Done).peekable();
        let listed = found.by_ref().take(count).map(|(_, flow)| Listed::of(flow, now)).collect();
        (listed, found.peek().map(|(place, _)| *place))
    }

    /// This client began a flow to a forwarded port.
    pub(crate) fn comes_from(&mut self, id: FlowId, client: SocketAddr) {
        if let Some(flow) = self.flows.get_mut(id) {
            (flow.from, flow.is_forwarded) = (client, true);
        }
    }

    /// Puts a rule at this place of the list.
    pub(crate) fn insert_rule(&mut self, at: usize, rule: Rule) -> Result<(), PlaceError> {
        if self.settings.by_stack && rule.has_class() {
            return Err(PlaceError::Class);
        }
        self.settings.rules.insert(at, rule)
    }

    /// Takes a rule out.
    pub(crate) fn remove_rule(&mut self, at: usize) -> Result<(), PlaceError> {
        self.settings.rules.remove(at).map(drop)
    }

    /// Answers the names of this zone from now on.
    pub(crate) fn add_zone(&mut self, zone: Zone) -> Result<(), ZoneError> {
        self.zones.add(zone)
    }

    /// The machines of the link have these names now.
    pub(crate) fn set_hosts(&mut self, hosts: Hosts) {
        self.hosts = hosts;
    }

    /// This address is of the machine at this port.
    pub(crate) fn learn_machine(&mut self, address: IpAddr, port: u32) {
        self.machines.learn(address, port);
    }

    /// The address by which the guest with this source is listed.
    pub(crate) fn listed_as(&self, source: IpAddr) -> IpAddr {
        self.machines.guest(source).address()
    }

    /// The machine at this port is gone. Returns its flows.
    pub(crate) fn forget_machine(&mut self, port: u32) -> Vec<FlowId> {
        let Some(gone) = self.machines.forget(port) else { return Vec::new() };
        self.flows.iter().filter(|(_, flow)| flow.guest == gone).map(|(id, _)| id).collect()
    }

    pub(crate) const fn zones(&self) -> &Zones {
        &self.zones
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::admission::Admission;
    use crate::logic::flow::Side;
    use crate::logic::gateway::Settings;
    use crate::logic::rules::Rules;

    const fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn gateway(rules: &[&str]) -> Gateway {
        let rules = Rules::parse(rules.iter().copied()).unwrap();
        let own = vec!["10.0.2.2".parse().unwrap()];
        Gateway::new(Settings { rules, own, ..Settings::default() })
    }

    fn goes(gateway: &mut Gateway, second: u64, to: &str) -> Option<FlowId> {
        let (from, to) = ("10.0.2.15:40000".parse().unwrap(), to.parse().unwrap());
        match gateway.admit(at(second), FlowKind::Tcp, from, to) {
            Admission::Dial(id, _) | Admission::Questions(id) => Some(id),
            _ => None,
        }
    }

    #[test]
    fn gw_231_flows_are_listed_with_their_rule_bytes_and_age() {
        let mut gateway = gateway(&["allow 192.0.2.0/24", "deny any"]);
        let out = goes(&mut gateway, 10, "192.0.2.1:443").unwrap();
        gateway.reached(at(11), out);
        gateway.answered(at(11), out);
        gateway.passed(at(12), out, Side::Guest, 100, 0);
        gateway.passed(at(13), out, Side::Upstream, 5_000, 0);
        assert!(goes(&mut gateway, 14, "198.51.100.1:443").is_none());
        goes(&mut gateway, 15, "10.0.2.2:53").unwrap();
        let guest = "10.0.2.15:80".parse().unwrap();
        let forwarded = gateway.forward(at(16), FlowKind::Tcp, guest).unwrap();
        gateway.comes_from(forwarded, "203.0.113.9:50000".parse().unwrap());
        gateway.passed(at(17), forwarded, Side::Guest, 7, 0);
        let (listed, more) = gateway.list(at(20), 0, 10);
        let lines = listed.iter().map(|flow| {
            let [up, down] = flow.bytes;
            let (arrow, rule) = (if flow.is_inward { "<" } else { ">" }, flow.rule.as_deref().unwrap_or("-"));
            format!("{} {arrow} {} {rule} {up} {down} {}", flow.guest, flow.peer, flow.age.as_secs())
        });
        let expected = [
            "10.0.2.15:40000 > 192.0.2.1:443 allow 192.0.2.0/24 100 5000 10",
            "10.0.2.15:40000 > 127.0.0.1:53 - 0 0 5",
            "10.0.2.15:80 < 203.0.113.9:50000 - 7 0 4",
        ];
        assert_eq!((lines.collect::<Vec<_>>(), more), (expected.map(str::to_owned).to_vec(), None));
        // In parts; one that has ended is in none.
        gateway.closed(out);
        let (first, more) = gateway.list(at(20), 0, 1);
        let (second, end) = gateway.list(at(20), more.unwrap(), 1);
        assert_eq!((&first[0], &second[0], end), (&listed[1], &listed[2], None));
    }

    #[test]
    fn gw_232_a_changed_rule_holds_for_flows_that_begin_after_it() {
        let mut gateway = gateway(&["allow 192.0.2.0/24", "deny any"]);
        let rules = |gateway: &Gateway| {
            let rules = &gateway.settings().rules;
            rules.iter().take(rules.own()).map(ToString::to_string).collect::<Vec<_>>()
        };
        let runs = goes(&mut gateway, 0, "192.0.2.1:443").unwrap();
        gateway.insert_rule(1, "deny 192.0.2.1".parse().unwrap()).unwrap();
        assert!(gateway.stage(runs).is_some() && goes(&mut gateway, 1, "192.0.2.1:443").is_none());
        assert!(goes(&mut gateway, 1, "192.0.2.2:443").is_some());
        // Between two, and behind the last of the user's.
        gateway.insert_rule(3, "allow 198.51.100.1".parse().unwrap()).unwrap();
        gateway.insert_rule(5, "allow 198.51.100.2".parse().unwrap()).unwrap();
        let all =
            ["deny 192.0.2.1", "allow 192.0.2.0/24", "allow 198.51.100.1", "deny any", "allow 198.51.100.2"];
        assert_eq!(rules(&gateway), all);
        assert!(goes(&mut gateway, 1, "198.51.100.1:1").is_some());
        assert!(goes(&mut gateway, 1, "198.51.100.2:1").is_none());
        gateway.remove_rule(1).unwrap();
        assert!(goes(&mut gateway, 2, "192.0.2.1:443").is_some());
        // Places that are none, and the defaults.
        let rule = || -> Rule { "deny any".parse().unwrap() };
        for at in [0, 6, usize::MAX] {
            assert_eq!(gateway.insert_rule(at, rule()), Err(PlaceError::Nowhere { at, defaults: 5 }));
        }
        assert_eq!(gateway.remove_rule(5), Err(PlaceError::Default(5)));
        for at in [0, 5 + Rules::DEFAULTS.len()] {
            assert_eq!(gateway.remove_rule(at), Err(PlaceError::Nowhere { at, defaults: 5 }));
        }
        for _ in 4..1_024 {
            gateway.insert_rule(1, rule()).unwrap();
        }
        assert_eq!(gateway.insert_rule(1, rule()), Err(PlaceError::Full));
        // A dry run keeps the defaults apart.
        let settings = Settings { dry_run: true, ..gateway.settings().clone() };
        gateway.set(settings);
        assert!(
            goes(&mut gateway, 3, "192.0.2.1:443").is_some()
                && goes(&mut gateway, 3, "169.254.1.1:1").is_none()
        );
    }
}
