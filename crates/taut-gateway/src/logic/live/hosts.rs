//! Names of the machines at one link, which the gateway answers itself: `NAME`, and `NAME.home.arpa`.
//!
//! A machine chooses its name, so a name that means something else is never a machine's: those of the gateway
//! and its host, those by which programs find services and credentials, names of zones, which are answered
//! before, and each name that a rule is for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::logic::rules::Rules;

/// RFC 8375: for networks without a name of their own.
const DOMAIN: &str = ".home.arpa";
/// RFC 6761 §6.3; the gateway's; the metadata services of clouds; where programs look for a proxy and for a
/// tunnel (RFC 5214 §8.3).
const RESERVED: [&str; 8] =
    ["localhost", "gateway", "host", "metadata", "instance-data", "wpad", "isatap", "broadcasthost"];

/// Names in small letters, without a domain, and their addresses.
#[derive(Debug, Default)]
pub(crate) struct Hosts(BTreeMap<String, Vec<IpAddr>>);

impl FromIterator<(String, IpAddr)> for Hosts {
    fn from_iter<T: IntoIterator<Item = (String, IpAddr)>>(all: T) -> Self {
        let mut hosts = Self::default();
        for (name, address) in all {
            if !RESERVED.contains(&&*name) {
                hosts.0.entry(name).or_default().push(address);
            }
        }
        hosts
    }
}

impl Hosts {
    /// The addresses of a name, in small letters, if it is a machine's.
    pub(crate) fn find(&self, name: &str, rules: &Rules) -> Option<&[IpAddr]> {
        let addresses = self.0.get(name.strip_suffix(DOMAIN).unwrap_or(name))?;
        (!rules.mentions(name)).then_some(addresses)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::logic::dns::{self, A, AAAA};
    use crate::logic::gateway::{Gateway, Settings};
    use crate::logic::live::zones::Zone;
    use crate::logic::questions::Question;

    /// The answer's code, and its addresses; none if the question is sent on.
    fn answer(gateway: &mut Gateway, name: &str, kind: u16) -> Option<(u8, Vec<String>)> {
        let question = dns::ask(7, name, kind).unwrap();
        match gateway.question(Duration::ZERO, [10, 0, 2, 15].into(), &question) {
            Question::Answer(answer) => {
                let found = dns::addresses(&answer, &question).iter().map(ToString::to_string).collect();
                Some((answer[3] & 0x0f, found))
            }
            _ => None,
        }
    }

    #[test]
    fn gw_263_machines_have_names_that_are_nobody_elses() {
        let rules = ["allow api", "allow *.corp.home.arpa", "allow registry.home.arpa", "allow any"];
        let rules = Rules::parse(rules).unwrap();
        let mut gateway =
            Gateway::new(Settings { rules, own: vec![[10, 0, 2, 2].into()], ..Settings::default() });
        let record = ("db".to_owned(), [192, 0, 2, 9].into());
        gateway
            .add_zone(Zone { name: "home.arpa".to_owned(), records: vec![record], default: None })
            .unwrap();
        let taken = ["gateway", "host", "localhost", "metadata", "instance-data", "wpad", "isatap"];
        let all = ["web", "db", "api", "registry"].iter().chain(&taken).enumerate();
        let all = all.map(|(number, name)| ((*name).to_owned(), [10, 0, 2, 15 + number as u8].into()));
        gateway.set_hosts(all.collect());
        let found = |address: &str| Some((0, vec![address.to_owned()]));
        assert_eq!(answer(&mut gateway, "web", A), found("10.0.2.15"));
        assert_eq!(answer(&mut gateway, "WEB", A), found("10.0.2.15"));
        // It exists, and has no address of this family (RFC 2308 §2.2).
        assert_eq!(answer(&mut gateway, "web", AAAA), Some((0, Vec::new())));
        // A zone's names are the zone's, a rule's the network's; no other domain is the machines'.
        assert_eq!(answer(&mut gateway, "db.home.arpa", A), found("192.0.2.9"));
        for sent in ["api", "web.example", "web.home", "x.web", "home.arpa"] {
            assert_eq!(answer(&mut gateway, sent, A), None, "{sent}");
        }
        assert_eq!(answer(&mut gateway, "gateway.home.arpa", A), found("10.0.2.2"));
        for sent in taken {
            assert_eq!(answer(&mut gateway, sent, A), None, "{sent}");
        }
        // Without the zone.
        let mut gateway = Gateway::new(gateway.settings().clone());
        let all = ["web", "registry", "host"].map(|name| (name.to_owned(), [10, 0, 2, 15].into()));
        gateway.set_hosts(all.into_iter().collect());
        assert_eq!(answer(&mut gateway, "web.home.arpa", A), found("10.0.2.15"));
        assert_eq!(answer(&mut gateway, "registry", A), found("10.0.2.15"));
        assert_eq!(answer(&mut gateway, "registry.home.arpa", A), None);
        assert_eq!(answer(&mut gateway, "host.home.arpa", A), found("10.0.2.2"));
        // A machine that is gone.
        gateway.set_hosts(Hosts::default());
        assert_eq!(answer(&mut gateway, "web", A), None);
    }
}
