//! The use of each guest, beside its limits. A guest without flows takes no memory. Called by `gateway.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::logic::limits::{Amounts, Limits};

/// A guest, told apart by its source: an IPv4 address, or the first 64 bits of an IPv6 address. A machine at
/// a port of its own is one guest with all its addresses (`Machines`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guest(IpAddr);

impl Guest {
    /// The guest with this source address.
    #[must_use]
    pub const fn of(source: IpAddr) -> Self {
        match source {
            IpAddr::V4(_) => Self(source),
            IpAddr::V6(v6) => Self(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64))),
        }
    }

    pub(crate) const fn address(self) -> IpAddr {
        self.0
    }
}

/// Which addresses are of one machine. The runner, whose link has ports, says so before it begins a flow or
/// passes a question on.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    /// The address by which a machine is listed: the first one that was seen of it.
    guests: BTreeMap<u32, Guest>,
    ports: BTreeMap<IpAddr, u32>,
}

/// Addresses that are remembered: more than all ports have. Beyond, they are learnt again.
const ADDRESSES_MAX: usize = 1_024;

impl Machines {
    /// The machine at this port has this address now.
    pub(crate) fn learn(&mut self, address: IpAddr, port: u32) {
        if self.ports.len() >= ADDRESSES_MAX && !self.ports.contains_key(&address) {
            self.ports.clear();
        }
        self.ports.insert(address, port);
        self.guests.entry(port).or_insert(Guest(address));
    }

    /// The guest with this source address.
    pub(crate) fn guest(&self, source: IpAddr) -> Guest {
        let port = self.ports.get(&source);
        port.and_then(|port| self.guests.get(port)).copied().unwrap_or(Guest::of(source))
    }

    /// A machine is gone.
    pub(crate) fn forget(&mut self, port: u32) -> Option<Guest> {
        self.ports.retain(|_, known| *known != port);
        self.guests.remove(&port)
    }
}

/// An amount that is counted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// [`Amounts::connections`].
    Connections,
    /// [`Amounts::half_open`].
    HalfOpen,
    /// [`Amounts::datagram_flows`].
    DatagramFlows,
    /// [`Amounts::questions`].
    Questions,
}

impl Counted {
    /// The words of a log line.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::HalfOpen => "half-open connections",
            Self::DatagramFlows => "flows of UDP and pings",
            Self::Questions => "questions to name servers",
        }
    }

    const fn of(self, amounts: &Amounts) -> u32 {
        match self {
            Self::Connections => amounts.connections,
            Self::HalfOpen => amounts.half_open,
            Self::DatagramFlows => amounts.datagram_flows,
            Self::Questions => amounts.questions,
        }
    }

    const fn of_mut(self, amounts: &mut Amounts) -> &mut u32 {
        match self {
            Self::Connections => &mut amounts.connections,
            Self::HalfOpen => &mut amounts.half_open,
            Self::DatagramFlows => &mut amounts.datagram_flows,
            Self::Questions => &mut amounts.questions,
        }
    }
}

/// The guests that have something.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    all: Amounts,
    each: BTreeMap<Guest, Amounts>,
}

impl Guests {
    pub(crate) const fn all(&self) -> Amounts {
        self.all
    }

    pub(crate) fn of(&self, guest: Guest) -> Amounts {
        self.each.get(&guest).copied().unwrap_or_default()
    }

    /// The guests that have something.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Guest, Amounts)> {
        self.each.iter().map(|(guest, amounts)| (*guest, *amounts))
    }

    /// Whether one more is within the limits.
    pub(crate) fn has_room(&self, limits: &Limits, guest: Guest, what: Counted) -> bool {
        what.of(&self.all) < what.of(&limits.all) && what.of(&self.of(guest)) < what.of(&limits.guest)
    }

    pub(crate) fn add(&mut self, guest: Guest, what: Counted) {
        *what.of_mut(&mut self.all) += 1;
        *what.of_mut(self.each.entry(guest).or_default()) += 1;
    }

    pub(crate) fn remove(&mut self, guest: Guest, what: Counted) {
        *what.of_mut(&mut self.all) -= 1;
        if let Some(amounts) = self.each.get_mut(&guest) {
            *what.of_mut(amounts) -= 1;
        }
        self.forget_if_empty(guest);
    }

    /// How many of the wanted bytes a flow may hold.
    pub(crate) fn grant(&self, limits: &Limits, guest: Guest, wanted: u64) -> u64 {
        let left = limits.all.bytes.saturating_sub(self.all.bytes);
        let own = limits.guest.bytes.saturating_sub(self.of(guest).bytes);
        wanted.min(left).min(own)
    }

    pub(crate) fn add_bytes(&mut self, guest: Guest, bytes: u64) {
        self.all.bytes += bytes;
        self.each.entry(guest).or_default().bytes += bytes;
    }

    pub(crate) fn remove_bytes(&mut self, guest: Guest, bytes: u64) {
        self.all.bytes -= bytes;
        if let Some(amounts) = self.each.get_mut(&guest) {
            amounts.bytes -= bytes;
        }
        self.forget_if_empty(guest);
    }

    fn forget_if_empty(&mut self, guest: Guest) {
        if self.of(guest) == Amounts::default() {
            self.each.remove(&guest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use taut::FlowKind;

    use super::*;
    use crate::logic::admission::Admission;
    use crate::logic::gateway::{Gateway, Settings};

    #[test]
    fn gw_264_a_machine_is_one_guest_with_all_its_addresses() {
        let all = Amounts { connections: 100, half_open: 100, ..Amounts::default() };
        let mut gateway = Gateway::new(Settings { limits: Limits::of(all), ..Settings::default() });
        let first =
            ["10.0.2.15", "fd00::a", "fd00::b", "10.0.2.99"].map(|text| text.parse::<IpAddr>().unwrap());
        let second = ["fd00::c", "10.0.2.16"].map(|text| text.parse::<IpAddr>().unwrap());
        first.iter().for_each(|own| gateway.learn_machine(*own, 1));
        second.iter().for_each(|own| gateway.learn_machine(*own, 2));
        let to: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let mut begin = |gateway: &mut Gateway, from: IpAddr, port| {
            let from = SocketAddr::new(from, port);
            matches!(gateway.admit(Duration::ZERO, FlowKind::Tcp, from, to), Admission::Dial(..))
        };
        let ports = 1_000..1_100;
        let began = |gateway: &mut Gateway,
                     all: &[IpAddr],
                     begin: &mut dyn FnMut(&mut Gateway, IpAddr, u16) -> bool| {
            let each = ports.clone().flat_map(|port| all.iter().map(move |from| (*from, port)));
            each.filter(|(from, port)| begin(gateway, *from, *port)).count()
        };
        // Three quarters, whatever it is called; the rest is the other's, of both families.
        assert_eq!(began(&mut gateway, &first, &mut begin), 75);
        assert_eq!(began(&mut gateway, &second, &mut begin), 25);
        let listed: Vec<IpAddr> = gateway.guests().map(|(guest, _)| guest.address()).collect();
        assert_eq!(listed, [first[0], second[0]]);
        // Its flows are its own; a port that has gone is none.
        assert_eq!((gateway.forget_machine(1).len(), gateway.forget_machine(1).len()), (75, 0));
        // An address may be another machine's later.
        gateway.learn_machine(first[0], 2);
        assert_eq!(
            (gateway.machines.guest(first[0]), gateway.machines.guest(first[1])),
            (gateway.machines.guest(second[0]), Guest::of(first[1]),)
        );
    }

    #[test]
    fn gw_264_addresses_without_end_take_no_memory() {
        let mut machines = Machines::default();
        for number in 0..100_000_u128 {
            machines.learn(Ipv6Addr::from_bits(number).into(), 1);
            assert!(machines.ports.len() <= ADDRESSES_MAX);
        }
        assert_eq!(machines.guest(Ipv6Addr::from_bits(99_999).into()), Guest(Ipv6Addr::from_bits(0).into()));
    }
}
