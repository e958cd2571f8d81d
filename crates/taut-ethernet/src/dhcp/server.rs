//! The server of DHCP: which address a client gets, and for how long. RFC 2131 §4.3. Pure: it returns the
//! answer, and `serving.rs` sends it.
//!
//! ```text
//!            Discover            Request: Ack              its time is over, Release
//!   Free ──────────────▶ Offered ───────────────▶ Leased ────────────────────────────▶ Free, remembered for its station
//!    ▲      60 s, the client asks another server │  ▲ Request: Ack                         │
//!    └───────────────────────────────────────────┘  └──────────── the station comes back ──┘
//!                                  Decline, of either: nobody gets it for 10 minutes
//! ```
//!
//! | constant | value | from |
//! |---|---|---|
//! | an offer is kept | 60 s | the four Requests of a client take that long (RFC 2131 §4.1) |
//! | a lease | a day | dhcpd's and dnsmasq's order of magnitude; the times of renewal are the client's (RFC 2131 §4.4.5) |
//! | a declined address | 10 min | ours |
//! | addresses | 240 at most, and those that are given by station | ours |
//!
//! **A client is its station.** An identifier (RFC 2132 §9.14) is returned (RFC 6842) and not used: the
//! firmware of a virtual machine, the installer and the system that it installs have different ones, and
//! would get three addresses. RFC 2131 §4.2 has it the other way round.
//!
//! **A client's name** (RFC 2132 §3.14) is its host's, up to the first dot, if that is a label of a host
//! name. It belongs to the first station that says it, while that has its address; one that is given by
//! station belongs to no other.
//!
//! **What a hostile client can do**: take all addresses with as many stations, and its link has none left
//! until their times are over. Each message is answered once at most, and changes one place in a table of a
//! fixed size.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use taut_wire::{DhcpAnswer, DhcpAsked, DhcpKind, Mac};

use taut_core::{Duration, Instant, Network};

/// Addresses of one server at most.
pub(crate) const ADDRESSES_MAX: u8 = 240;
/// Those that are given by station.
const FIXED_MAX: usize = 64;
/// A label of a name (RFC 1035 §2.3.4).
const LABEL_MAX: usize = 63;
const OFFERED_FOR: Duration = Duration::from_secs(60);
const DECLINED_FOR: Duration = Duration::from_secs(600);

/// The server's answer. Where it goes: RFC 2131 §4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) answer: DhcpAnswer,
    /// The client's address; unspecified if it gets none.
    pub(crate) address: Ipv4Addr,
    /// Whether it has the address for a time, or had it by itself.
    pub(crate) is_leased: bool,
    /// To this station, at this address.
    pub(crate) to: (Mac, Ipv4Addr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Offered,
    Leased,
    Declined,
}

/// An address: who has or had it, and until when.
#[derive(Clone, Debug)]
struct Place {
    address: Ipv4Addr,
    /// The only station that gets it.
    fixed: Option<Mac>,
    last: Option<(Mac, Use)>,
    until: Instant,
    /// The name that the only station has, whatever it says.
    given: Option<String>,
    /// The name of the station that has leased it.
    name: Option<String>,
}

impl Place {
    const fn free(address: Ipv4Addr) -> Self {
        Self { address, fixed: None, last: None, until: Instant::ZERO, given: None, name: None }
    }

    /// The station that has leased it now.
    fn lessee(&self, now: Instant) -> Option<Mac> {
        let leased = self.last.filter(|(_, use_)| *use_ == Use::Leased && now < self.until);
        leased.map(|(station, _)| station)
    }
}

/// An address that one station gets, and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedLease {
    /// The station.
    pub station: Mac,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its name, whatever it says.
    pub name: Option<String>,
}

impl FixedLease {
    /// Whether a text can be a [`name`](Self::name).
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        label(text.as_bytes()).is_some_and(|name| name == text.to_ascii_lowercase())
    }
}

/// An address that a client has leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The address.
    pub address: Ipv4Addr,
    /// The client's station.
    pub station: Mac,
    /// How long until it is over, unless it is renewed.
    pub ends_in: Duration,
    /// Its host's name, in small letters, which no other lease has.
    pub name: Option<String>,
    /// The address of IPv6 that the station has by DHCP, once it has used it.
    pub address_v6: Option<Ipv6Addr>,
}

#[derive(Debug)]
pub(crate) struct LeaseServer {
    own: Network,
    lease: Duration,
    places: Vec<Place>,
}

impl LeaseServer {
    /// A server at this address and network, which leases so many addresses, or as many as the network has,
    /// from `first` on, and those that are given by station.
    pub(crate) fn new(
        own: Network,
        (first, count): (Ipv4Addr, u8),
        fixed: Vec<FixedLease>,
        lease: Duration,
    ) -> Self {
        let mut server = Self { own, lease, places: Vec::new() };
        let all = (0..count.min(ADDRESSES_MAX)).map(|at| first.to_bits().saturating_add(at.into()).into());
        let usable = all.take_while(|address| server.is_on_link(*address));
        let places: Vec<Place> = usable.map(Place::free).collect();
        server.places = places;
        for FixedLease { station, address, name } in fixed.into_iter().take(FIXED_MAX) {
            let known = server.index_of(address);
            let at = known.unwrap_or(server.places.len());
            if known.is_none() {
                server.places.push(Place::free(address));
            }
            let given = name.and_then(|name| label(name.as_bytes()));
            server.places[at] = Place { fixed: Some(station), given, ..Place::free(address) };
        }
        server
    }

    /// A client has said something. Other stations use addresses that are `taken` without a lease.
    pub(crate) fn on_message(
        &mut self,
        now: Instant,
        asked: &DhcpAsked<'_>,
        taken: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Verdict> {
        // Nothing here is behind a relay.
        if !asked.station.is_station() || !asked.relay.is_unspecified() {
            return None;
        }
        let is_ours = asked.server.is_none_or(|server| self.own.address == server);
        match asked.kind {
            DhcpKind::Discover => self.on_discover(now, asked, taken),
            // §4.3.2: another server's offer was taken.
            DhcpKind::Request if !is_ours => {
                self.take_back(now, asked.station, Use::Offered);
                None
            }
            DhcpKind::Request => self.on_request(now, asked, taken),
            DhcpKind::Decline if is_ours => {
                let at =
                    self.index_of(asked.requested?).filter(|at| self.is_held(*at, asked.station, now))?;
                let until = now + DECLINED_FOR;
                let last = Some((asked.station, Use::Declined));
                (self.places[at].last, self.places[at].until) = (last, until);
                None
            }
            DhcpKind::Release if is_ours => {
                let at = self.index_of(asked.address).filter(|at| self.is_held(*at, asked.station, now))?;
                self.places[at].until = now;
                None
            }
            DhcpKind::Decline | DhcpKind::Release => None,
            // §4.3.5.
            DhcpKind::Inform => self.is_on_link(asked.address).then_some(Verdict {
                answer: DhcpAnswer::Ack,
                address: Ipv4Addr::UNSPECIFIED,
                is_leased: false,
                to: (asked.station, asked.address),
            }),
        }
    }

    /// §4.3.1.
    fn on_discover(
        &mut self,
        now: Instant,
        asked: &DhcpAsked<'_>,
        taken: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Verdict> {
        let at = self.choose(now, asked.station, asked.requested, taken)?;
        let place = &mut self.places[at];
        let is_its_lease = place.last == Some((asked.station, Use::Leased)) && now < place.until;
        if !is_its_lease {
            (place.last, place.until) = (Some((asked.station, Use::Offered)), now + OFFERED_FOR);
        }
        Some(self.granted(DhcpAnswer::Offer, at, asked))
    }

    /// §4.3.2. Which of its four reasons a client has, is not asked: it gets the address that it names if it
    /// may have it.
    fn on_request(
        &mut self,
        now: Instant,
        asked: &DhcpAsked<'_>,
        taken: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Verdict> {
        let wanted = asked.requested.or((!asked.address.is_unspecified()).then_some(asked.address))?;
        let station = asked.station;
        let own = self.fixed_of(station);
        let free = |at: &usize| {
            let is_free = self.is_free(*at, station, now) && !taken(wanted);
            own.is_none_or(|own| own == *at) && (self.is_held(*at, station, now) || is_free)
        };
        let Some(at) = self.index_of(wanted).filter(free) else { return Some(refused()) };
        self.take_back(now, station, Use::Offered);
        self.take_back(now, station, Use::Leased);
        let name = self.name_for(now, at, station, asked.name);
        let place = &mut self.places[at];
        (place.last, place.until, place.name) = (Some((station, Use::Leased)), now + self.lease, name);
        Some(self.granted(DhcpAnswer::Ack, at, asked))
    }

    /// The name of a station that has this address from now on.
    fn name_for(&self, now: Instant, at: usize, station: Mac, said: &[u8]) -> Option<String> {
        if let Some(given) = &self.places[at].given {
            return Some(given.clone());
        }
        let wanted = label(said);
        let has = |other: &Place| {
            let is_another = other.lessee(now).is_some_and(|lessee| lessee != station);
            other.given == wanted || is_another && other.name == wanted
        };
        wanted.clone().filter(|_| !self.places.iter().any(has))
    }

    fn granted(&self, answer: DhcpAnswer, at: usize, asked: &DhcpAsked<'_>) -> Verdict {
        let address = self.places[at].address;
        // §4.1.
        let to = if asked.address == address {
            (asked.station, address)
        } else if asked.broadcast {
            (Mac::BROADCAST, Ipv4Addr::BROADCAST)
        } else {
            (asked.station, address)
        };
        Verdict { answer, address, is_leased: true, to }
    }

    /// §4.3.1: the client's own, the one that it wants, one that nobody has had, the one whose time was
    /// over first.
    fn choose(
        &self,
        now: Instant,
        station: Mac,
        wanted: Option<Ipv4Addr>,
        taken: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<usize> {
        if let Some(fixed) = self.fixed_of(station) {
            return Some(fixed);
        }
        let all = || 0..self.places.len();
        let of_station = |at: &usize| {
            let place = &self.places[*at];
            let is_last = place
                .last
                .is_some_and(|(mac, use_)| mac == station && (use_ != Use::Declined || now >= place.until));
            is_last && place.fixed.is_none() && (now < place.until || !taken(place.address))
        };
        let free = |at: &usize| self.is_free(*at, station, now) && !taken(self.places[*at].address);
        all()
            .filter(of_station)
            .max_by_key(|at| self.places[*at].until)
            .or_else(|| wanted.and_then(|wanted| self.index_of(wanted)).filter(free))
            .or_else(|| all().filter(free).find(|at| self.places[*at].last.is_none()))
            .or_else(|| all().filter(free).min_by_key(|at| self.places[*at].until))
    }

    /// The addresses that clients have now.
    pub(crate) fn leased(&self, now: Instant) -> impl Iterator<Item = Leased> {
        let leased = move |place: &Place| {
            let (station, name) = (place.lessee(now)?, place.name.clone());
            let (address, ends_in) = (place.address, place.until.since(now));
            Some(Leased { address, station, ends_in, name, address_v6: None })
        };
        self.places.iter().filter_map(leased)
    }

    /// The station that has leased an address, or is the only one that gets it.
    pub(crate) fn holder(&self, now: Instant, address: Ipv4Addr) -> Option<Mac> {
        let place = &self.places[self.index_of(address)?];
        place.fixed.or(place.lessee(now))
    }

    /// A station is gone: its time is over, and its address is remembered for it.
    pub(crate) fn forget(&mut self, now: Instant, station: Mac) {
        self.take_back(now, station, Use::Offered);
        self.take_back(now, station, Use::Leased);
    }

    fn fixed_of(&self, station: Mac) -> Option<usize> {
        self.places.iter().position(|place| place.fixed == Some(station))
    }

    /// Ends what a station has in this way.
    fn take_back(&mut self, now: Instant, station: Mac, kind: Use) {
        for place in &mut self.places {
            if place.last == Some((station, kind)) {
                place.until = place.until.min(now);
            }
        }
    }

    fn is_free(&self, at: usize, station: Mac, now: Instant) -> bool {
        let place = &self.places[at];
        place.fixed.is_none_or(|fixed| fixed == station) && now >= place.until
    }

    fn is_held(&self, at: usize, station: Mac, now: Instant) -> bool {
        let place = &self.places[at];
        now < place.until && place.last.is_some_and(|(mac, use_)| mac == station && use_ != Use::Declined)
    }

    fn index_of(&self, address: Ipv4Addr) -> Option<usize> {
        self.places.iter().position(|place| place.address == address)
    }

    fn is_on_link(&self, address: Ipv4Addr) -> bool {
        let address = address.into();
        self.own.contains(address) && address != self.own.address && self.own.broadcast() != Some(address)
    }
}

/// §4.3.2: to everybody, because the client may be wrong about its network.
const fn refused() -> Verdict {
    Verdict {
        answer: DhcpAnswer::Nak,
        address: Ipv4Addr::UNSPECIFIED,
        is_leased: false,
        to: (Mac::BROADCAST, Ipv4Addr::BROADCAST),
    }
}

/// The first label of a host's name (RFC 1123 §2.1), in small letters; none if that is no name, or a number.
pub(crate) fn label(text: &[u8]) -> Option<String> {
    let first = text.split(|byte| [b'.', 0].contains(byte)).next()?;
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let has_edge = [first.first(), first.last()].contains(&Some(&b'-'));
    let is_label = (1..=LABEL_MAX).contains(&first.len()) && first.iter().all(is_letter) && !has_edge;
    let is_number = first.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(first).ok().filter(|_| is_label && !is_number)?;
    Some(text.to_ascii_lowercase())
}
