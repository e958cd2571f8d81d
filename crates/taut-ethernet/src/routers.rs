//! What routers advertise: themselves, prefixes of the link, its MTU. RFC 4861 §6.3, RFC 4862 §5.5. Pure: it
//! keeps the times and says what changes; `ethernet.rs` hands it advertisements that have passed all checks,
//! and `own.rs` checks the addresses.
//!
//! **What a stranger can do.** Anybody on the link can be a router, and no protocol here can prevent that.
//! But at most eight routers and sixteen prefixes are remembered, those that came first; an address is never
//! taken away by an advertisement before two hours are over; and an MTU is believed between 1280 and the
//! device's.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use taut_wire::{Mac, PrefixInformation};

use taut_core::{Duration, Instant, Network};

/// MAX_RTR_SOLICITATIONS and RTR_SOLICITATION_INTERVAL, RFC 4861 §10.
const SOLICITATIONS: u8 = 3;
const SOLICIT_EVERY: Duration = Duration::from_secs(4);
/// RFC 4861 §6.3.4 asks for two routers at least.
const ROUTERS_MAX: usize = 8;
/// Linux: `max_addresses`, 16 of an interface.
const PREFIXES_MAX: usize = 16;
/// RFC 4862 §5.5.3 (e): less than that of a valid lifetime is not taken away by an advertisement that nobody
/// signed.
const TWO_HOURS: Duration = Duration::from_secs(7_200);
/// Bits of an interface's part of an address on Ethernet (RFC 2464 §4).
const INTERFACE_BITS: u8 = 64;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A default router, or no more.
    Router(Ipv6Addr, bool),
    /// A prefix is on the link, or no more.
    OnLink(Network, bool),
}

#[derive(Debug, Default)]
pub(crate) struct Routers {
    /// Default routers, and until when.
    routers: Vec<(Ipv6Addr, Instant)>,
    /// Prefixes on the link, and until when.
    prefixes: Vec<(Network, Instant)>,
    /// Solicitations that were sent, and when the next one is due.
    sent: u8,
    solicit_at: Option<Instant>,
}

/// Seconds of an advertisement as a point in time; all ones is for ever (RFC 4861 §4.6.2).
pub(crate) fn until(now: Instant, seconds: u32) -> Instant {
    if seconds == u32::MAX { Instant::NEVER } else { now + Duration::from_secs(seconds.into()) }
}

/// fe80::/10 (RFC 4291 §2.5.6).
pub(crate) const LINK_LOCAL: Network =
    Network { address: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), prefix: 10 };

/// The address that a station makes of a prefix of 64 bits (RFC 4291 appendix A, RFC 2464 §4).
pub(crate) fn address_in(prefix: Ipv6Addr, Mac([a, b, c, d, e, f]): Mac) -> Network {
    let interface = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    let bits = prefix.to_bits() >> 64 << 64 | u128::from(interface);
    Network { address: Ipv6Addr::from_bits(bits).into(), prefix: 64 }
}

/// Whether a host makes an address of it (RFC 4862 §5.5.3 (a) to (d)).
pub(crate) fn makes_address(info: &PrefixInformation) -> bool {
    info.autonomous
        && info.len == 128 - INTERFACE_BITS
        && info.valid_s > 0
        && info.preferred_s <= info.valid_s
        && is_prefix(info)
}

/// Whether it is one that a router may advertise: not link-local, no group, not everything.
fn is_prefix(info: &PrefixInformation) -> bool {
    !info.prefix.is_unicast_link_local() && !info.prefix.is_multicast() && info.len > 0
}

/// When an address is to end that has been advertised again (RFC 4862 §5.5.3 (e)).
pub(crate) fn prolonged(now: Instant, old: Instant, advertised: Instant) -> Instant {
    let least = now + TWO_HOURS;
    if advertised > least || advertised >= old {
        advertised
    } else if old <= least {
        old
    } else {
        least
    }
}

impl Routers {
    /// Asks for routers from now on.
    pub(crate) const fn solicit(&mut self, now: Instant) {
        (self.sent, self.solicit_at) = (0, Some(now));
    }

    /// Whether a solicitation is to be sent now.
    pub(crate) fn wants_solicitation(&mut self, now: Instant) -> bool {
        if self.solicit_at.is_none_or(|at| at > now) {
            return false;
        }
        self.sent += 1;
        self.solicit_at = (self.sent < SOLICITATIONS).then(|| now + SOLICIT_EVERY);
        true
    }

    /// A router says that it is one for so many seconds. Nobody is asked any more (RFC 4861 §6.3.7).
    pub(crate) fn on_router(&mut self, now: Instant, router: Ipv6Addr, seconds: u16) -> Option<News> {
        let known = self.routers.iter().position(|(other, _)| *other == router);
        if seconds > 0 {
            self.solicit_at = None;
        }
        match (known, seconds) {
            (Some(at), 0) => {
                self.routers.remove(at);
                Some(News::Router(router, false))
            }
            (Some(at), _) => {
                self.routers[at].1 = until(now, seconds.into());
                None
            }
            (None, 1..) if self.routers.len() < ROUTERS_MAX => {
                self.routers.push((router, until(now, seconds.into())));
                Some(News::Router(router, true))
            }
            (None, _) => None,
        }
    }

    /// A prefix is on the link (RFC 4861 §6.3.4).
    pub(crate) fn on_prefix(&mut self, now: Instant, info: &PrefixInformation) -> Option<News> {
        if !info.on_link || !is_prefix(info) {
            return None;
        }
        let prefix = Network { address: info.prefix.into(), prefix: info.len };
        let known = self.prefixes.iter().position(|(other, _)| other.is_same_prefix(prefix));
        match (known, info.valid_s) {
            (Some(at), 0) => Some(News::OnLink(self.prefixes.remove(at).0, false)),
            (Some(at), seconds) => {
                self.prefixes[at].1 = until(now, seconds);
                None
            }
            (None, 1..) if self.prefixes.len() < PREFIXES_MAX => {
                self.prefixes.push((prefix, until(now, info.valid_s)));
                Some(News::OnLink(prefix, true))
            }
            (None, _) => None,
        }
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Instant {
        let routers = self.routers.iter().map(|(_, until)| *until);
        let prefixes = self.prefixes.iter().map(|(_, until)| *until);
        routers.chain(prefixes).chain(self.solicit_at).min().unwrap_or(Instant::NEVER)
    }

    /// A router or prefix whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<News> {
        if let Some(at) = self.routers.iter().position(|(_, until)| *until <= now) {
            return Some(News::Router(self.routers.remove(at).0, false));
        }
        let at = self.prefixes.iter().position(|(_, until)| *until <= now)?;
        Some(News::OnLink(self.prefixes.remove(at).0, false))
    }
}
