//! A link that configures itself: what comes of checked addresses, claims of others and advertisements of
//! routers, and the changes that the stack is told. RFC 5227, RFC 4861 §6.3, RFC 4862 §5. Part of
//! [`Ethernet`]; `own.rs` and `routers.rs` keep the times.
//!
//! ```text
//!   begin ─▶ link-local address checked ─▶ routers asked (3 times, 4 s apart) ─▶ advertisement
//!                                                                                 ├─▶ default route, prefix on the link, MTU
//!                                                                                 └─▶ address of the prefix ─▶ checked ─▶ used
//!   each change ─▶ poll_change() ─▶ Stack::change_network
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_wire::{Arp, Mac, Ndp, PrefixInformation, RouterAdvertisement, RouterOption, ndp};

use crate::cache::Word;
use crate::ethernet::{Ethernet, Outgoing};
use crate::own::{Act, Conflict, Lifetime};
use crate::routers::{self, LINK_LOCAL, News};
use taut_core::is_host;
use taut_core::{Duration, Instant, Network, NetworkChange, Route};

/// While so many changes wait for the stack, advertisements are lost, as on the wire: 46 prefixes fit into
/// one.
pub(crate) const CHANGES_MAX: usize = 256;
/// MAX_RTR_SOLICITATION_DELAY, RFC 4861 §10.
const SOLICIT_WITHIN: Duration = Duration::from_secs(1);
/// Addresses that are made of prefixes. Linux: `max_addresses`.
const AUTOS_MAX: usize = 16;
/// The least MTU that a router is believed (RFC 8200 §5).
const MTU_MIN: u32 = 1_280;

pub(crate) const fn default_route(via: IpAddr) -> Route {
    Route { to: Network { address: via, prefix: 0 }, via: Some(via), source: None }
}

pub(crate) const fn on_link(to: Network) -> Route {
    Route { to, via: None, source: None }
}

impl<P> Ethernet<P> {
    /// The neighbours whose station is known, in no order that means anything.
    pub fn stations(&self) -> impl Iterator<Item = (IpAddr, Mac)> + '_ {
        self.cache.stations()
    }

    /// A neighbour's station from an earlier time, unless the table has one.
    pub fn remember(&mut self, now: Instant, ip: IpAddr, station: Mac) {
        if self.cache.state_of(ip).is_none() {
            self.cache.hear(now, ip, station);
        }
    }

    /// From now on this host has one more address, unchecked, as those of its configuration. Without a place
    /// for it, nothing happens.
    pub fn adopt(&mut self, network: Network) {
        self.own.adopt(network);
    }

    /// The next change that the stack must be told.
    pub fn poll_change(&mut self) -> Option<NetworkChange> {
        self.changes.pop_front()
    }

    /// Whether there are any.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The stack's owner changes the network. Returns whether the stack may be told at once: an address is
    /// checked first, and [`poll_change`](Self::poll_change) tells when it may be used. If another station
    /// has it, nothing more is heard of it but [`duplicates`](crate::EthernetStats::duplicates).
    pub fn change_network(&mut self, now: Instant, change: NetworkChange) -> bool {
        match change {
            NetworkChange::AddAddress(own) if !self.own.knows(own.address) => {
                // What makes no sense is refused by the stack.
                if !is_host(own.address) || self.routes.add(on_link(own)).is_err() {
                    return true;
                }
                let is_checked = self.own.check(now, own, Lifetime::FOREVER, false);
                self.report_groups(now);
                return !is_checked;
            }
            NetworkChange::RemoveAddress(address) => {
                if let Some(own) = self.own.remove(address) {
                    self.disconnect(own);
                    self.on_address_removed(now, address);
                }
            }
            // The stack checks them by the same rules, and reports errors.
            NetworkChange::AddRoute(route) => _ = self.routes.add(route),
            NetworkChange::RemoveRoute(route) => _ = self.routes.remove(&route),
            NetworkChange::JoinGroup(group) => self.change_group(now, group, true),
            NetworkChange::LeaveGroup(group) => self.change_group(now, group, false),
            // A known address, its preference, the MTU, name servers and the lease are the stack's alone.
            _ => {}
        }
        self.report_groups(now);
        true
    }

    /// The network of an address is on the link no more, unless another address is in it.
    fn disconnect(&mut self, gone: Network) {
        if !self.own.used().any(|own| own.is_same_prefix(gone)) {
            _ = self.routes.remove(&on_link(gone));
        }
    }

    /// Begins, checks addresses, asks for routers, and forgets what is over.
    pub(crate) fn configure(&mut self, now: Instant) {
        if !self.has_begun {
            self.has_begun = true;
            if self.routers.is_some() {
                let own = routers::address_in(link_local_prefix(), self.config.mac);
                self.own.check(now, own, Lifetime::FOREVER, false);
            }
            if let Some(client) = self.dhcp() {
                client.begin(now);
            }
        }
        while let Some(act) = self.own.handle_timeout(now) {
            self.on_act(now, act);
        }
        while let Some(act) = self.dhcp().and_then(|client| client.handle_timeout(now)) {
            self.on_dhcp(now, act);
        }
        let wants = self.routers.as_mut().is_some_and(|routers| routers.wants_solicitation(now));
        let link_local = self.own.used().find(|own| LINK_LOCAL.contains(own.address));
        if let (true, Some(IpAddr::V6(src))) = (wants, link_local.map(|own| own.address)) {
            self.say(Outgoing::RouterSolicitation { src });
        }
        while let Some(news) = self.routers.as_mut().and_then(|routers| routers.expire(now)) {
            self.on_news(news);
        }
    }

    fn on_act(&mut self, now: Instant, act: Act) {
        let sender_mac = self.config.mac;
        let arp = |sender, target| {
            let arp = Arp { is_request: true, sender_mac, sender, target_mac: Mac::default(), target };
            Outgoing::Arp { to: Mac::BROADCAST, arp }
        };
        match act {
            // RFC 5227 §1.1: from nobody, so that no cache is changed.
            Act::Probe(IpAddr::V4(target)) => self.say(arp(Ipv4Addr::UNSPECIFIED, target)),
            Act::Announce(IpAddr::V4(own)) => self.say(arp(own, own)),
            // RFC 4862 §5.4.2.
            Act::Probe(IpAddr::V6(target)) => {
                let (src, dst) = (Ipv6Addr::UNSPECIFIED, ndp::solicited_node(target));
                let message = Ndp::Solicit { target, source_mac: None };
                self.say(Outgoing::Ndp { to: Mac::of_multicast(dst), src, dst, message });
            }
            Act::Announce(IpAddr::V6(_)) => {}
            Act::Ready(own) => {
                self.changes.push_back(NetworkChange::AddAddress(own));
                self.on_address_checked(now, own.address);
                if LINK_LOCAL.contains(own.address) && self.routers.is_some() {
                    self.changes.push_back(NetworkChange::AddRoute(on_link(LINK_LOCAL)));
                    let at = now + self.own.random(SOLICIT_WITHIN);
                    self.routers.iter_mut().for_each(|routers| routers.solicit(at));
                }
            }
            Act::Deprecate(address, deprecated) => {
                self.changes.push_back(NetworkChange::Deprecate { address, deprecated });
            }
            Act::Gone(own) => self.lose(own),
        }
    }

    /// The stack has this address no more.
    fn lose(&mut self, own: Network) {
        self.changes.push_back(NetworkChange::RemoveAddress(own.address));
        if own.address.is_ipv4() {
            self.disconnect(own);
        }
    }

    /// Another station says that it has an address of this host, or wants it.
    pub(crate) fn on_claim(&mut self, now: Instant, ip: IpAddr) {
        self.stats.conflicts += 1;
        match self.own.conflict(now, ip) {
            Conflict::None | Conflict::Counted => {}
            Conflict::Taken(own) => {
                self.stats.duplicates += 1;
                if own.address.is_ipv4() {
                    self.disconnect(own);
                }
                self.on_address_taken(now, own.address, false);
                // RFC 4862 §5.4.5: two stations with the same number on a link cannot both speak IPv6.
                if LINK_LOCAL.contains(own.address) {
                    self.routers = None;
                }
            }
            Conflict::Defend => self.on_act(now, Act::Announce(ip)),
            Conflict::GivenUp(own) => {
                self.lose(own);
                self.on_address_taken(now, own.address, true);
            }
        }
    }

    /// A router advertises. What it says has passed the checks of RFC 4861 §6.1.2.
    pub(crate) fn on_advertisement(
        &mut self,
        now: Instant,
        src: Ipv6Addr,
        message: &RouterAdvertisement<'_>,
    ) {
        if self.changes.len() >= CHANGES_MAX {
            return;
        }
        let Some(routers) = &mut self.routers else { return };
        if let Some(news) = routers.on_router(now, src, message.lifetime_s) {
            self.on_news(news);
        }
        for option in message.options() {
            match option {
                RouterOption::SourceMac(mac) => {
                    let word = Word { mac: Some(mac), solicited: false, overrides: true };
                    self.learn(now, src.into(), word, true);
                }
                RouterOption::Mtu(mtu) if (MTU_MIN..=self.config.mtu.into()).contains(&mtu) => {
                    self.changes.push_back(NetworkChange::SetMtu(mtu as u16));
                }
                RouterOption::Mtu(_) => {}
                RouterOption::Prefix(info) => {
                    let news = self.routers.as_mut().and_then(|routers| routers.on_prefix(now, &info));
                    news.into_iter().for_each(|news| self.on_news(news));
                    self.on_autonomous_prefix(now, &info);
                }
            }
        }
        // An address may be preferred again.
        self.configure(now);
    }

    fn on_news(&mut self, news: News) {
        let (route, is_new) = match news {
            News::Router(router, is_new) => (default_route(router.into()), is_new),
            News::OnLink(prefix, is_new) => (on_link(prefix), is_new),
        };
        // A full table is the stack's, too.
        let changed = if is_new { self.routes.add(route) } else { self.routes.remove(&route) };
        if changed.is_ok() {
            let change = if is_new { NetworkChange::AddRoute } else { NetworkChange::RemoveRoute };
            self.changes.push_back(change(route));
        }
    }

    /// RFC 4862 §5.5.3.
    fn on_autonomous_prefix(&mut self, now: Instant, info: &PrefixInformation) {
        let is_over = info.autonomous && info.valid_s == 0;
        if !routers::makes_address(info) && !is_over {
            return;
        }
        let own = routers::address_in(info.prefix, self.config.mac);
        let preferred = routers::until(now, info.preferred_s.min(info.valid_s));
        let valid = routers::until(now, info.valid_s);
        match self.own.life_of_auto(own.address) {
            Some(old) => {
                let life = Lifetime { preferred, valid: routers::prolonged(now, old.valid, valid) };
                self.own.prolong(own.address, life);
            }
            None if is_over || self.own.autos() >= AUTOS_MAX => {}
            None => _ = self.own.check(now, own, Lifetime { preferred, valid }, true),
        }
    }
}

const fn link_local_prefix() -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)
}
