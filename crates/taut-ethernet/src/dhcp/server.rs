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
//! | addresses | 64 at most | ours |
//!
//! **A client is its station.** An identifier (RFC 2132 §9.14) is returned (RFC 6842) and not used: the
//! firmware of a virtual machine, the installer and the system that it installs have different ones, and
//! would get three addresses. RFC 2131 §4.2 has it the other way round.
//!
//! **What a hostile client can do**: take all addresses with as many stations, and its link has none left
//! until their times are over. Each message is answered once at most, and changes one place in a table of a
//! fixed size.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use taut_wire::{DhcpAnswer, DhcpAsked, DhcpKind, Mac};

use taut_core::{Duration, Instant, Network};

/// Addresses of one server at most.
pub(crate) const ADDRESSES_MAX: u8 = 64;
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
#[derive(Clone, Copy, Debug)]
struct Place {
    last: Option<(Mac, Use)>,
    until: Instant,
}

/// An address that a client has leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The address.
    pub address: Ipv4Addr,
    /// The client's station.
    pub station: Mac,
    /// How long until it is over, unless it is renewed.
    pub ends_in: Duration,
}

#[derive(Debug)]
pub(crate) struct LeaseServer {
    own: Network,
    first: Ipv4Addr,
    lease: Duration,
    places: Vec<Place>,
}

impl LeaseServer {
    /// A server at this address and network, which leases so many addresses, or as many as the network has,
    /// from `first` on.
    pub(crate) fn new(own: Network, first: Ipv4Addr, count: u8, lease: Duration) -> Self {
        let is_usable = |at: u8| {
            let address = add(first, at).into();
            own.contains(address) && address != own.address && own.broadcast() != Some(address)
        };
        let count = (0..count.min(ADDRESSES_MAX)).take_while(|at| is_usable(*at)).count();
        Self { own, first, lease, places: alloc::vec![Place { last: None, until: Instant::ZERO }; count] }
    }

    /// A client has said something.
    pub(crate) fn on_message(&mut self, now: Instant, asked: &DhcpAsked<'_>) -> Option<Verdict> {
        // Nothing here is behind a relay.
        if !asked.station.is_station() || !asked.relay.is_unspecified() {
            return None;
        }
        let is_ours = asked.server.is_none_or(|server| self.own.address == server);
        match asked.kind {
            DhcpKind::Discover => self.on_discover(now, asked),
            // §4.3.2: another server's offer was taken.
            DhcpKind::Request if !is_ours => {
                self.take_back(now, asked.station, Use::Offered);
                None
            }
            DhcpKind::Request => self.on_request(now, asked),
            DhcpKind::Decline if is_ours => {
                let at =
                    self.index_of(asked.requested?).filter(|at| self.is_held(*at, asked.station, now))?;
                let until = now + DECLINED_FOR;
                self.places[at] = Place { last: Some((asked.station, Use::Declined)), until };
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
    fn on_discover(&mut self, now: Instant, asked: &DhcpAsked<'_>) -> Option<Verdict> {
        let at = self.choose(now, asked.station, asked.requested)?;
        let place = &mut self.places[at];
        let is_its_lease = place.last == Some((asked.station, Use::Leased)) && now < place.until;
        if !is_its_lease {
            *place = Place { last: Some((asked.station, Use::Offered)), until: now + OFFERED_FOR };
        }
        Some(self.granted(DhcpAnswer::Offer, at, asked))
    }

    /// §4.3.2. Which of its four reasons a client has, is not asked: it gets the address that it names if it
    /// may have it.
    fn on_request(&mut self, now: Instant, asked: &DhcpAsked<'_>) -> Option<Verdict> {
        let wanted = asked.requested.or((!asked.address.is_unspecified()).then_some(asked.address))?;
        let free = |at: &usize| self.is_held(*at, asked.station, now) || self.is_free(*at, now);
        let Some(at) = self.index_of(wanted).filter(free) else { return Some(refused()) };
        self.take_back(now, asked.station, Use::Offered);
        self.take_back(now, asked.station, Use::Leased);
        self.places[at] = Place { last: Some((asked.station, Use::Leased)), until: now + self.lease };
        Some(self.granted(DhcpAnswer::Ack, at, asked))
    }

    fn granted(&self, answer: DhcpAnswer, at: usize, asked: &DhcpAsked<'_>) -> Verdict {
        let address = add(self.first, at as u8);
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
    fn choose(&self, now: Instant, station: Mac, wanted: Option<Ipv4Addr>) -> Option<usize> {
        let all = || 0..self.places.len();
        let of_station = |at: &usize| {
            let place = &self.places[*at];
            place
                .last
                .is_some_and(|(mac, use_)| mac == station && (use_ != Use::Declined || now >= place.until))
        };
        let free = |at: &usize| self.is_free(*at, now);
        all()
            .find(of_station)
            .or_else(|| wanted.and_then(|wanted| self.index_of(wanted)).filter(free))
            .or_else(|| all().find(|at| self.places[*at].last.is_none()))
            .or_else(|| all().filter(free).min_by_key(|at| self.places[*at].until))
    }

    /// The addresses that clients have now.
    pub(crate) fn leased(&self, now: Instant) -> impl Iterator<Item = Leased> {
        let leased = move |(at, place): (usize, &Place)| match place.last {
            Some((station, Use::Leased)) if now < place.until => {
                Some(Leased { address: add(self.first, at as u8), station, ends_in: place.until.since(now) })
            }
            _ => None,
        };
        self.places.iter().enumerate().filter_map(leased)
    }

    /// Ends what a station has in this way.
    fn take_back(&mut self, now: Instant, station: Mac, kind: Use) {
        for place in &mut self.places {
            if place.last == Some((station, kind)) {
                place.until = place.until.min(now);
            }
        }
    }

    fn is_free(&self, at: usize, now: Instant) -> bool {
        now >= self.places[at].until
    }

    fn is_held(&self, at: usize, station: Mac, now: Instant) -> bool {
        let place = &self.places[at];
        now < place.until && place.last.is_some_and(|(mac, use_)| mac == station && use_ != Use::Declined)
    }

    fn index_of(&self, address: Ipv4Addr) -> Option<usize> {
        let at = address.to_bits().checked_sub(self.first.to_bits())?;
        usize::try_from(at).ok().filter(|at| *at < self.places.len())
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

fn add(first: Ipv4Addr, at: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(first.to_bits().saturating_add(at.into()))
}
