//! The addresses of this host on an Ethernet: checked before they are used, announced, defended, and given up
//! when their time is over. RFC 5227 (IPv4), RFC 4862 §5.4 and §5.5.4 (IPv6). Pure: it returns the next step,
//! and `ethernet.rs` takes it.
//!
//! ```text
//!              nobody answers                        announced
//!   Tentative ────────────────▶ (Ready) ▶ Announcing ──────────▶ Used ── preferred time over ▶ deprecated ── valid time over ▶ gone
//!     │ another has it                        └────── another claims it: defended once in 10 s, else given up ──▶ gone
//!     ▼
//!   gone
//! ```
//!
//! An address that an administrator gives the stack at its beginning is not checked, as Linux does not check
//! those of IPv4; others' claims to it are counted.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::random::Random;
use taut_core::{Duration, Instant, Network};

/// PROBE_WAIT of RFC 5227 §1.1 and MAX_RTR_SOLICITATION_DELAY of RFC 4861 §10: checks begin within a second,
/// so that hosts that were switched on together do not all speak at once.
const BEGIN_WITHIN: Duration = Duration::from_secs(1);
/// PROBE_NUM, RFC 5227 §1.1; DupAddrDetectTransmits, RFC 4862 §5.1.
const PROBES_V4: u8 = 3;
const PROBES_V6: u8 = 1;
/// PROBE_MIN, and PROBE_MAX less that, RFC 5227 §1.1.
const PROBE_EVERY: Duration = Duration::from_secs(1);
const PROBE_SPREAD: Duration = Duration::from_secs(1);
/// ANNOUNCE_WAIT, ANNOUNCE_NUM and ANNOUNCE_INTERVAL, RFC 5227 §1.1.
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
/// RETRANS_TIMER, RFC 4861 §10: how long an answer to the last probe of IPv6 is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// DEFEND_INTERVAL, RFC 5227 §1.1.
const DEFEND_EVERY: Duration = Duration::from_secs(10);
/// The most addresses on a link: four times what the routers of a link may ask for.
const ADDRESSES_MAX: usize = 64;

/// Until when an address may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// New connections come from another one after that.
    pub(crate) preferred: Instant,
    /// It is gone after that.
    pub(crate) valid: Instant,
}

impl Lifetime {
    pub(crate) const FOREVER: Self = Self { preferred: Instant::NEVER, valid: Instant::NEVER };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being checked; so many probes were sent.
    Tentative(u8),
    /// It is used; so many announcements were sent.
    Announcing(u8),
    Used,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    network: Network,
    state: State,
    /// When the next probe, announcement or verdict is due.
    at: Instant,
    /// It was checked, so it is defended, and given up if that does not help.
    is_checked: bool,
    /// It was made of a router's prefix.
    is_auto: bool,
    defended: Option<Instant>,
    life: Lifetime,
    is_deprecated: bool,
}

impl Own {
    /// It is used at once.
    const fn fixed(network: Network) -> Self {
        Self {
            network,
            state: State::Used,
            at: Instant::NEVER,
            is_checked: false,
            is_auto: false,
            defended: None,
            life: Lifetime::FOREVER,
            is_deprecated: false,
        }
    }
}

/// The next step for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Ask whether anybody has it.
    Probe(IpAddr),
    /// Nobody has it: it is used from now on.
    Ready(Network),
    /// Tell everybody that this host has it.
    Announce(IpAddr),
    /// Its preferred time is over, or has begun again.
    Deprecate(IpAddr, bool),
    /// It is not used any more: its time is over, or another host has it.
    Gone(Network),
}

/// The result of another station's claim to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// It is not an address of this host.
    None,
    /// It was being checked, and is not used.
    Taken(Network),
    /// Tell everybody that this host has it.
    Defend,
    /// It was used, and is given up.
    GivenUp(Network),
    /// Nothing can be done.
    Counted,
}

#[derive(Debug)]
pub(crate) struct OwnAddresses {
    list: Vec<Own>,
    random: Random,
}

impl OwnAddresses {
    /// Addresses that are used at once.
    pub(crate) fn new(fixed: &[Network], keys: (u64, u64)) -> Self {
        Self { list: fixed.iter().copied().map(Own::fixed).collect(), random: Random::new(keys) }
    }

    /// A span below `most`, which others cannot guess.
    pub(crate) fn random(&mut self, most: Duration) -> Duration {
        self.random.span(most)
    }

    fn find(&self, ip: IpAddr) -> Option<usize> {
        self.list.iter().position(|own| own.network.address == ip)
    }

    /// Those that the host uses, or may soon.
    pub(crate) fn all(&self) -> impl Iterator<Item = Network> + '_ {
        self.list.iter().map(|own| own.network)
    }

    /// Whether the host uses this address.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.used().any(|own| own.address == ip)
    }

    /// Whether it uses it, or may soon.
    pub(crate) fn knows(&self, ip: IpAddr) -> bool {
        self.find(ip).is_some()
    }

    /// The addresses that are used.
    pub(crate) fn used(&self) -> impl Iterator<Item = Network> + '_ {
        let is_used = |own: &&Own| !matches!(own.state, State::Tentative(_));
        self.list.iter().filter(is_used).map(|own| own.network)
    }

    /// Until when an address may be used that was made of a router's prefix.
    pub(crate) fn life_of_auto(&self, ip: IpAddr) -> Option<Lifetime> {
        let own = &self.list[self.find(ip)?];
        own.is_auto.then_some(own.life)
    }

    /// How many addresses were made of routers' prefixes.
    pub(crate) fn autos(&self) -> usize {
        self.list.iter().filter(|own| own.is_auto).count()
    }

    /// Its time begins anew.
    pub(crate) fn prolong(&mut self, ip: IpAddr, life: Lifetime) {
        if let Some(at) = self.find(ip) {
            self.list[at].life = life;
        }
    }

    /// The network of an address has another length.
    pub(crate) fn change_prefix(&mut self, network: Network) {
        if let Some(at) = self.find(network.address) {
            self.list[at].network = network;
        }
    }

    /// Uses an address at once, as another queue of this host does; or its network has another length.
    pub(crate) fn adopt(&mut self, network: Network) {
        match self.find(network.address) {
            Some(at) => self.list[at].network = network,
            None if self.list.len() < ADDRESSES_MAX => self.list.push(Own::fixed(network)),
            None => {}
        }
    }

    /// Checks an address, and uses it if nobody has it. Returns whether there is a place for it.
    pub(crate) fn check(&mut self, now: Instant, network: Network, life: Lifetime, is_auto: bool) -> bool {
        if self.list.len() >= ADDRESSES_MAX || self.knows(network.address) {
            return false;
        }
        let at = now + self.random(BEGIN_WITHIN);
        let (state, defended) = (State::Tentative(0), None);
        let (is_checked, is_deprecated) = (true, false);
        self.list.push(Own { network, state, at, is_checked, is_auto, defended, life, is_deprecated });
        true
    }

    /// Returns what it was, if the host used it or was about to.
    pub(crate) fn remove(&mut self, ip: IpAddr) -> Option<Network> {
        Some(self.list.remove(self.find(ip)?).network)
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Instant {
        let due = |own: &Own| {
            let waits = own.is_deprecated || matches!(own.state, State::Tentative(_));
            let preferred = if waits { Instant::NEVER } else { own.life.preferred };
            own.at.min(preferred).min(own.life.valid)
        };
        self.list.iter().map(due).min().unwrap_or(Instant::NEVER)
    }

    /// Handles one deadline until now.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Act> {
        // Nobody has heard of these.
        self.list.retain(|own| own.life.valid > now || !matches!(own.state, State::Tentative(_)));
        for at in 0..self.list.len() {
            let Own { network, state, at: due, life, is_deprecated, .. } = self.list[at];
            if life.valid <= now {
                self.list.remove(at);
                return Some(Act::Gone(network));
            }
            let is_used = !matches!(state, State::Tentative(_));
            if is_used && (life.preferred <= now) != is_deprecated {
                self.list[at].is_deprecated = !is_deprecated;
                return Some(Act::Deprecate(network.address, !is_deprecated));
            }
            if due <= now {
                return Some(self.on_due(now, at));
            }
        }
        None
    }

    fn on_due(&mut self, now: Instant, at: usize) -> Act {
        let Network { address, .. } = self.list[at].network;
        let probes = if address.is_ipv4() { PROBES_V4 } else { PROBES_V6 };
        let (state, wait, act) = match self.list[at].state {
            State::Tentative(sent) if sent < probes => {
                let wait = match (address, sent + 1 == probes) {
                    (IpAddr::V4(_), false) => PROBE_EVERY + self.random(PROBE_SPREAD),
                    (IpAddr::V4(_), true) => ANNOUNCE_WAIT,
                    (IpAddr::V6(_), _) => ANSWER_WITHIN,
                };
                (State::Tentative(sent + 1), Some(wait), Act::Probe(address))
            }
            // Neighbours of IPv6 are not told: they ask.
            State::Tentative(_) if address.is_ipv6() => {
                (State::Used, None, Act::Ready(self.list[at].network))
            }
            State::Tentative(_) => {
                (State::Announcing(0), Some(Duration::ZERO), Act::Ready(self.list[at].network))
            }
            State::Announcing(sent) if sent + 1 < ANNOUNCEMENTS => {
                (State::Announcing(sent + 1), Some(ANNOUNCE_EVERY), Act::Announce(address))
            }
            State::Announcing(_) | State::Used => (State::Used, None, Act::Announce(address)),
        };
        let own = &mut self.list[at];
        (own.state, own.at) = (state, wait.map_or(Instant::NEVER, |wait| now + wait));
        act
    }

    /// Another station says that it has this address, or asks for it as one that wants to have it.
    pub(crate) fn conflict(&mut self, now: Instant, ip: IpAddr) -> Conflict {
        let Some(at) = self.find(ip) else { return Conflict::None };
        let Own { network, state, is_checked, defended, .. } = self.list[at];
        if matches!(state, State::Tentative(_)) {
            self.list.remove(at);
            return Conflict::Taken(network);
        }
        if !is_checked || ip.is_ipv6() {
            return Conflict::Counted;
        }
        // RFC 5227 §2.4 (b).
        if defended.is_some_and(|defended| now.since(defended) < DEFEND_EVERY) {
            self.list.remove(at);
            return Conflict::GivenUp(network);
        }
        self.list[at].defended = Some(now);
        Conflict::Defend
    }
}
