//! Names that the gateway answers itself: zones, each with records, in the manner of gvproxy.
//!
//! A name below a zone is answered here, whatever its records: with the addresses of its record, with the
//! zone's default address, or as a name that does not exist. So no question for it leaves. The zone with the
//! longest name decides. Rules do not deny such a name, as they do not deny `host.home.arpa`. They decide
//! where the guest may go, and a rule with the name allows its addresses.

use std::net::IpAddr;

/// Zones and records at most.
const ZONES_MAX: usize = 64;
const RECORDS_MAX: usize = 1_024;
/// Addresses in an answer: it has no more than 512 bytes then (RFC 1035 §2.3.4).
const ADDRESSES_MAX: usize = 8;
/// RFC 1035 §2.3.4.
const NAME_MAX: usize = 253;

/// The names below one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Its name, with a dot at the end or without.
    pub name: String,
    /// Names without that of the zone, and their addresses. A name may have several.
    pub records: Vec<(String, IpAddr)>,
    /// The address of all other names.
    pub default: Option<IpAddr>,
}

/// The zone cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// The text is not a name.
    #[error("{0:?} is not a name, such as containers.internal")]
    Name(String),
    /// There is no room for it.
    #[error("the gateway has room for {} zones and {} records", ZONES_MAX, RECORDS_MAX)]
    Full,
}

/// All zones. Names are in small letters, without a dot at the end.
#[derive(Debug, Default)]
pub(crate) struct Zones(Vec<Zone>);

impl Zones {
    /// Adds a zone. If there is one of this name, its default is replaced, and the records of the names that
    /// are added; the others stay.
    pub(crate) fn add(&mut self, zone: Zone) -> Result<(), ZoneError> {
        let records = zone.records.into_iter().map(|(name, address)| Ok((known(&name)?, address)));
        let records = records.collect::<Result<Vec<_>, ZoneError>>()?;
        let mut zone = Zone { name: known(&zone.name)?, records, ..zone };
        let before = self.0.iter().position(|other| other.name == zone.name);
        if let Some(before) = before {
            let is_kept = |(name, _): &&(String, IpAddr)| !zone.records.iter().any(|(new, _)| new == name);
            let kept: Vec<_> = self.0[before].records.iter().filter(is_kept).cloned().collect();
            zone.records.extend(kept);
        }
        let others = self.0.iter().filter(|other| other.name != zone.name);
        let (zones, records) = others.fold((1, zone.records.len()), |(zones, records), other| {
            (zones + 1, records + other.records.len())
        });
        if zones > ZONES_MAX || records > RECORDS_MAX {
            return Err(ZoneError::Full);
        }
        match before {
            Some(before) => self.0[before] = zone,
            None => self.0.push(zone),
        }
        Ok(())
    }

    /// In the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Zone> {
        self.0.iter()
    }

    /// The addresses of a name, in small letters, that is below a zone: none if it does not exist.
    pub(crate) fn find(&self, name: &str) -> Option<Vec<IpAddr>> {
        let below = |zone: &'_ Zone| name.strip_suffix(&zone.name)?.strip_suffix('.').map(str::len);
        let zones = self.0.iter().filter_map(|zone| Some((below(zone)?, zone)));
        let (len, zone) = zones.min_by_key(|(len, _)| *len)?;
        let records = zone.records.iter().filter(|(own, _)| *own == name[..len]);
        let found: Vec<IpAddr> = records.map(|(_, address)| *address).take(ADDRESSES_MAX).collect();
        Some(if found.is_empty() { zone.default.into_iter().collect() } else { found })
    }
}

/// A name as it is compared (RFC 4343).
fn known(text: &str) -> Result<String, ZoneError> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_letter);
    if name.len() <= NAME_MAX && name.split('.').all(is_label) {
        Ok(name)
    } else {
        Err(ZoneError::Name(text.chars().take(2 * NAME_MAX).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use taut::FlowKind;

    use super::*;
    use crate::logic::admission::Admission;
    use crate::logic::dns::{self, A, AAAA};
    use crate::logic::gateway::{Gateway, Settings};
    use crate::logic::questions::Question;
    use crate::logic::rules::Rules;

    const GUEST: [u8; 4] = [10, 0, 2, 15];

    fn zone(name: &str, records: &[(&str, &str)], default: Option<&str>) -> Zone {
        let record = |(name, address): &(&str, &str)| ((*name).to_owned(), address.parse().unwrap());
        Zone {
            name: name.to_owned(),
            records: records.iter().map(record).collect(),
            default: default.map(|text| text.parse().unwrap()),
        }
    }

    /// The answer's code, and its addresses; none if the question is sent on.
    fn answer(gateway: &mut Gateway, name: &str, kind: u16) -> Option<(u8, Vec<String>)> {
        let question = dns::ask(7, name, kind).unwrap();
        match gateway.question(Duration::ZERO, GUEST.into(), &question) {
            Question::Answer(answer) => {
                let found = dns::addresses(&answer, &question).iter().map(ToString::to_string).collect();
                assert!(answer.len() <= 512);
                Some((answer[3] & 0x0f, found))
            }
            _ => None,
        }
    }

    #[test]
    fn gw_233_names_of_a_zone_are_answered_here() {
        // A name that has no rule is not resolved otherwise.
        let rules = Rules::parse(["allow host.internal.test", "deny any"]).unwrap();
        let mut gateway = Gateway::new(Settings { rules, ..Settings::default() });
        let records = [("Host", "192.0.2.1"), ("host", "2001:db8::1"), ("a.b", "192.0.2.2")];
        gateway.add_zone(zone("Internal.Test.", &records, None)).unwrap();
        gateway.add_zone(zone("deep.internal.test", &[], Some("192.0.2.9"))).unwrap();
        let found =
            |addresses: &[&str]| Some((0, addresses.iter().map(ToString::to_string).collect::<Vec<_>>()));
        for (name, kind, expected) in [
            ("host.internal.test", A, found(&["192.0.2.1"])),
            ("HOST.internal.TEST", AAAA, found(&["2001:db8::1"])),
            ("a.b.internal.test", A, found(&["192.0.2.2"])),
            // It exists, and has no address of this family (RFC 2308 §2.2).
            ("a.b.internal.test", AAAA, found(&[])),
            ("x.deep.internal.test", A, found(&["192.0.2.9"])),
            // NXDOMAIN (RFC 1035 §4.1.1).
            ("b.internal.test", A, Some((3, Vec::new()))),
            ("xhost.internal.test", A, Some((3, Vec::new()))),
            // The zone itself, and others: by the rules, which deny them.
            ("internal.test", A, Some((5, Vec::new()))),
            ("xinternal.test", A, Some((5, Vec::new()))),
        ] {
            assert_eq!(answer(&mut gateway, name, kind), expected, "{name} {kind}");
        }
        // The rules know whose address it is.
        let to = "192.0.2.1:80".parse().unwrap();
        let admitted = gateway.admit(Duration::ZERO, FlowKind::Udp, (GUEST, 40_000).into(), to);
        assert!(matches!(admitted, Admission::Dial(..)), "{admitted:?}");
        // A record that comes again replaces those of its name.
        gateway.add_zone(zone("internal.test", &[("host", "192.0.2.5")], Some("192.0.2.6"))).unwrap();
        assert_eq!(answer(&mut gateway, "host.internal.test", A), found(&["192.0.2.5"]));
        assert_eq!(answer(&mut gateway, "a.b.internal.test", A), found(&["192.0.2.2"]));
        assert_eq!(answer(&mut gateway, "b.internal.test", A), found(&["192.0.2.6"]));
        assert_eq!(gateway.zones().iter().count(), 2);
    }

    #[test]
    fn gw_234_zones_are_bounded_and_have_names() {
        let mut zones = Zones::default();
        let long = "a".repeat(64);
        let longer = "a.".repeat(128);
        for wrong in ["", ".", "a..b", ".a", "a b", "ä", "*", &long, &longer] {
            assert_eq!(zones.add(zone(wrong, &[], None)), Err(ZoneError::Name(wrong.to_owned())), "{wrong}");
            let error = zones.add(zone("test", &[(wrong, "192.0.2.1")], None));
            assert_eq!(error, Err(ZoneError::Name(wrong.to_owned())), "{wrong}");
        }
        let names: Vec<String> = (0..1_025).map(|number| format!("n{number}")).collect();
        let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "192.0.2.1")).collect();
        assert_eq!(zones.add(zone("test", &all, None)), Err(ZoneError::Full));
        zones.add(zone("test", &all[..1_024], None)).unwrap();
        // The same once more takes no room; others have none.
        zones.add(zone("test", &all[..1_024], None)).unwrap();
        assert_eq!(zones.add(zone("other", &all[..1], None)), Err(ZoneError::Full));
        for name in &names[..63] {
            zones.add(zone(name, &[], None)).unwrap();
        }
        assert_eq!(zones.add(zone("more", &[], None)), Err(ZoneError::Full));
        // As many addresses as an answer has room for.
        let mut many = Zones::default();
        many.add(zone("test", &[("a", "2001:db8::1"); 100], None)).unwrap();
        assert_eq!(many.find("a.test").unwrap().len(), 8);
    }
}
