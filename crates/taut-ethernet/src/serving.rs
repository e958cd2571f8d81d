//! A host serves the others on its link: it leases them addresses (DHCP), and is their router, which
//! advertises itself, prefixes and name servers. Part of [`Ethernet`]; `lease_server.rs` and
//! `advertiser.rs` decide.
//!
//! ```text
//!   Discover, Request … ─▶ take_question ─▶ LeaseServer ─▶ answers, 16 at most ──┐
//!   the same of IPv6 ─▶ take_question_v6 ─▶ dhcp::v6 ────────────────────────────┤
//!   router solicitation ─▶ on_solicitation ─▶ Advertiser ── time ─▶ due ─────────┴─▶ poll_service: a frame
//! ```

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_wire::{
    Advertising, DhcpAnswer, DhcpAsked, DhcpGrant, DhcpTerms, Mac, PrefixInformation, domain, ethernet,
    protocol, udp,
};

use crate::advertiser::{Advertiser, EVERY_MAX};
use crate::dhcp::bootp::{self, Ports};
use crate::dhcp::server::{FixedLease, LeaseServer, Leased, Verdict};
use crate::dhcp::v6;
use crate::ethernet::{ALL_NODES, Ethernet, FRAME_MAX};
use crate::frame_v6::{self, emit_icmpv6};
use crate::switch::Switch;
use taut_core::{Duration, Instant, Network};

const HOP_LIMIT: u8 = 64;
/// Answers that wait to be sent; a device takes them with each batch.
const ANSWERS_MAX: usize = 16;
/// A router is one for three times as long as it is silent at most (RFC 4861 §6.2.1, AdvDefaultLifetime); so
/// are its name servers (RFC 8106 §5.1).
const ROUTER_S: u16 = 3 * (EVERY_MAX.as_millis() / 1_000) as u16;
/// A prefix is valid for a day and preferred for four hours from its last advertisement, as radvd has it.
const VALID_S: u32 = 86_400;
const PREFERRED_S: u32 = 14_400;
/// Bytes of domains at most: then an advertisement has room for all else.
const SEARCH_MAX: usize = 200;
/// More are not told: a C library asks three (`resolv.conf(5)`).
const NAME_SERVERS_MAX: usize = 3;
const PREFIXES_MAX: usize = 2;
/// Further options of a lease.
const OPTIONS_MAX: usize = 4;

const _: () = {
    let fixed = ethernet::HEADER_LEN + 40 + 16 + 8 + 8;
    let lists = 32 * PREFIXES_MAX + 8 + 16 * NAME_SERVERS_MAX + 8 + SEARCH_MAX;
    assert!(fixed + lists <= FRAME_MAX);
};

/// Domains that hosts are told to search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchDomains(Vec<u8>);

/// A text is no name of a domain, or there is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchDomainError;

impl fmt::Display for SearchDomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no name of a domain, or more than {SEARCH_MAX} bytes of domains")
    }
}

impl core::error::Error for SearchDomainError {}

impl SearchDomains {
    /// One more, which is searched after the others.
    ///
    /// # Errors
    /// See [`SearchDomainError`].
    pub fn push(&mut self, name: &str) -> Result<(), SearchDomainError> {
        let mut buf = [0; domain::NAME_MAX];
        let len = domain::emit(&mut buf, name).ok_or(SearchDomainError)?;
        if self.0.len() + len > SEARCH_MAX {
            return Err(SearchDomainError);
        }
        self.0.extend_from_slice(&buf[..len]);
        Ok(())
    }
}

/// How a host serves the others on its link. Name servers beyond three and prefixes beyond two are not told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// Addresses of IPv4 (RFC 2131).
    pub leases: Option<Leases>,
    /// Addresses of IPv4 that are given by station, in the network of the others: 64 at most.
    pub fixed: Vec<FixedLease>,
    /// The router of IPv6 (RFC 4861 §6.2). Its address must be among those of the host, and be link-local.
    pub router: Option<Ipv6Addr>,
    /// The prefixes of the link, of 64 bits, of which hosts make their addresses (RFC 4862).
    pub prefixes: Vec<Network>,
    /// Name servers of both families.
    pub name_servers: Vec<IpAddr>,
    /// The link's MTU, if it is not what everybody has.
    pub mtu: Option<u16>,
    /// Domains to search.
    pub search: SearchDomains,
    /// Further terms of a lease.
    pub boot: Boot,
    /// Whether clients of IPv6 get addresses of the first prefix by DHCP (RFC 8415), beside those that hosts
    /// make by themselves. The router says so. Name servers and domains they get in any case.
    pub managed: bool,
    /// Whether a lease has no router and no name servers: its client reaches the link alone.
    pub is_isolated: bool,
}

/// Terms of a lease beside addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// The file from which a client boots, which it fetches from this host; empty if there is none.
    pub file: Vec<u8>,
    /// The same for a client of IPv6, as a URL (RFC 5970).
    pub url: Vec<u8>,
    /// Options by their codes (RFC 2132): four at most.
    pub options: Vec<(u8, Vec<u8>)>,
}

/// Addresses that are leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    /// The host's own address in their network: it is server and router.
    pub own: Network,
    /// The first address.
    pub first: Ipv4Addr,
    /// How many there are: 240 at most.
    pub count: u8,
    /// For how many seconds a client has its address: a minute at least.
    pub time_s: u32,
}

/// The services of a host that has some.
#[derive(Debug)]
pub(crate) struct Serving {
    config: Services,
    leases: Option<LeaseServer>,
    advertiser: Option<Advertiser>,
    answers: VecDeque<Answer>,
    advertises_now: bool,
}

/// An answer that waits to be sent.
#[derive(Debug)]
enum Answer {
    V4(AnswerV4),
    /// To this station and address.
    V6(Mac, Ipv6Addr, Vec<u8>),
}

#[derive(Debug)]
struct AnswerV4 {
    verdict: Verdict,
    xid: u32,
    broadcast: bool,
    station: Mac,
    had: Ipv4Addr,
    client: Vec<u8>,
}

impl Serving {
    pub(crate) fn new(mut config: Services, keys: (u64, u64)) -> Box<Self> {
        config.prefixes.truncate(PREFIXES_MAX);
        if let Some(leases) = &mut config.leases {
            leases.time_s = leases.time_s.max(60);
        }
        let fixed = core::mem::take(&mut config.fixed);
        let server = |leases: Leases| {
            let time = Duration::from_secs(leases.time_s.into());
            LeaseServer::new(leases.own, (leases.first, leases.count), fixed, time)
        };
        let leases = config.leases.map(server);
        let advertiser = config.router.map(|_| Advertiser::new(keys));
        Box::new(Self { config, leases, advertiser, answers: VecDeque::new(), advertises_now: false })
    }

    pub(crate) fn next(&self) -> Instant {
        self.advertiser.as_ref().map_or(Instant::NEVER, Advertiser::next)
    }

    pub(crate) const fn is_router(&self) -> bool {
        self.advertiser.is_some()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.advertiser.as_mut().is_some_and(|advertiser| advertiser.is_due(now)) {
            self.advertises_now = true;
        }
    }

    pub(crate) fn on_solicitation(&mut self, now: Instant) {
        if let Some(advertiser) = &mut self.advertiser {
            advertiser.on_solicitation(now);
        }
    }

    /// See [`LeaseServer::holder`].
    pub(crate) fn holder(&self, now: Instant, address: IpAddr) -> Option<Mac> {
        match address {
            IpAddr::V4(address) => self.leases.as_ref()?.holder(now, address),
            IpAddr::V6(address) => v6::station_of(self.managed_prefix()?, address),
        }
    }

    /// See [`LeaseServer::forget`].
    pub(crate) fn forget(&mut self, now: Instant, station: Mac) {
        if let Some(leases) = &mut self.leases {
            leases.forget(now, station);
        }
    }

    fn has_room(&self) -> bool {
        self.answers.len() < ANSWERS_MAX
    }

    /// A client's message; returns whether it is answered.
    fn on_message(&mut self, now: Instant, asked: &DhcpAsked<'_>, switch: &Switch) -> bool {
        if !self.has_room() {
            return false;
        }
        let taken = |address: Ipv4Addr| {
            let owner = switch.owner(address.into());
            owner.is_some_and(|owner| switch.port_of(asked.station) != Some(owner))
        };
        let verdict = self.leases.as_mut().and_then(|leases| leases.on_message(now, asked, taken));
        let Some(verdict) = verdict else { return false };
        self.answers.push_back(Answer::V4(AnswerV4 {
            verdict,
            xid: asked.xid,
            broadcast: asked.broadcast,
            station: asked.station,
            // RFC 2131, table 3.
            had: if verdict.answer == DhcpAnswer::Ack { asked.address } else { Ipv4Addr::UNSPECIFIED },
            client: asked.client.to_vec(),
        }));
        true
    }

    /// Writes a frame of the server's answer.
    fn emit_answer(&self, buf: &mut [u8; FRAME_MAX], mac: Mac, answer: &AnswerV4) -> Option<usize> {
        let leases = self.config.leases?;
        let IpAddr::V4(own) = leases.own.address else { return None };
        let mut name_servers = [Ipv4Addr::UNSPECIFIED; NAME_SERVERS_MAX];
        let known = self.config.name_servers.iter().filter_map(|server| match server {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        let is_isolated = self.config.is_isolated;
        let count = if is_isolated { 0 } else { fill(&mut name_servers, known) };
        let boot = &self.config.boot;
        let mut more = [(0, &[][..]); OPTIONS_MAX];
        let more_count = fill(&mut more, boot.options.iter().map(|(code, data)| (*code, &data[..])));
        let hosts = u32::MAX.checked_shr(leases.own.prefix.into()).unwrap_or(0);
        let grant = DhcpGrant {
            answer: answer.verdict.answer,
            xid: answer.xid,
            broadcast: answer.broadcast,
            station: answer.station,
            client: &answer.client,
            had: answer.had,
            address: answer.verdict.address,
            server: own,
            lease_s: answer.verdict.is_leased.then_some(leases.time_s),
            terms: DhcpTerms {
                mask: Some(Ipv4Addr::from_bits(!hosts)),
                router: (!is_isolated).then_some(own),
                name_servers: &name_servers[..count],
                mtu: self.config.mtu,
                search: &self.config.search.0,
                more: &more[..more_count],
                file: &boot.file,
            },
        };
        let (station, dst) = answer.verdict.to;
        Some(bootp::emit(buf, (mac, station), (own, dst), Ports::OF_SERVER, |buf| grant.emit(buf)))
    }

    /// The prefix of the addresses that clients of IPv6 get.
    fn managed_prefix(&self) -> Option<Ipv6Addr> {
        let first = self.config.prefixes.first().filter(|first| self.config.managed && first.prefix == 64)?;
        match first.address {
            IpAddr::V6(prefix) => Some(prefix),
            IpAddr::V4(_) => None,
        }
    }

    /// The name servers of IPv6, and how many there are.
    fn name_servers_v6(&self) -> ([Ipv6Addr; NAME_SERVERS_MAX], usize) {
        let mut name_servers = [Ipv6Addr::UNSPECIFIED; NAME_SERVERS_MAX];
        let known = self.config.name_servers.iter().filter_map(|server| match server {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        });
        let count = fill(&mut name_servers, known);
        (name_servers, count)
    }

    /// A message of a client of IPv6; returns whether it is answered.
    fn on_message_v6(&mut self, own: Mac, (station, from): (Mac, Ipv6Addr), message: &[u8]) -> bool {
        if !self.has_room() {
            return false;
        }
        let (name_servers, count) = self.name_servers_v6();
        let server = v6::Server {
            station: own,
            prefix: self.managed_prefix(),
            times: (PREFERRED_S, VALID_S),
            name_servers: &name_servers[..count],
            search: &self.config.search.0,
            boot: &self.config.boot.url,
        };
        let answer = server.answer(station, message);
        let is_answered = answer.is_some();
        self.answers.extend(answer.map(|answer| Answer::V6(station, from, answer)));
        is_answered
    }

    /// Writes a frame of an answer to a client of IPv6.
    fn emit_answer_v6(
        &self,
        buf: &mut [u8; FRAME_MAX],
        stations: (Mac, Mac),
        to: Ipv6Addr,
        message: &[u8],
    ) -> Option<usize> {
        let from = self.config.router?;
        Some(frame_v6::emit(buf, stations, (from, to), protocol::UDP, |datagram| {
            datagram[udp::HEADER_LEN..][..message.len()].copy_from_slice(message);
            bootp::finish(datagram, (from.into(), to.into()), Ports::OF_SERVER_V6, message.len())
        }))
    }

    /// Writes a frame of the advertisement.
    fn emit_advertisement(&self, buf: &mut [u8; FRAME_MAX], mac: Mac) -> Option<usize> {
        let src = self.config.router?;
        let nothing = PrefixInformation {
            prefix: Ipv6Addr::UNSPECIFIED,
            len: 0,
            on_link: true,
            autonomous: true,
            valid_s: VALID_S,
            preferred_s: PREFERRED_S,
        };
        let mut prefixes = [nothing; PREFIXES_MAX];
        let known = self.config.prefixes.iter().filter_map(|network| match network.address {
            IpAddr::V6(v6) => {
                let hosts = u128::MAX.checked_shr(network.prefix.into()).unwrap_or(0);
                let prefix = Ipv6Addr::from_bits(v6.to_bits() & !hosts);
                Some(PrefixInformation { prefix, len: network.prefix, ..nothing })
            }
            IpAddr::V4(_) => None,
        });
        let prefix_count = fill(&mut prefixes, known);
        let (name_servers, server_count) = self.name_servers_v6();
        let message = Advertising {
            managed: self.managed_prefix().is_some(),
            hop_limit: HOP_LIMIT,
            lifetime_s: ROUTER_S,
            mac,
            mtu: self.config.mtu.map(u32::from),
            prefixes: &prefixes[..prefix_count],
            name_servers: &name_servers[..server_count],
            search: &self.config.search.0,
            names_s: ROUTER_S.into(),
        };
        let to = (mac, Mac::of_multicast(ALL_NODES));
        Some(emit_icmpv6(buf, to, (src, ALL_NODES), |buf| message.emit(buf, src, ALL_NODES)))
    }
}

impl<P> Ethernet<P> {
    /// The services, if there are some.
    pub(crate) fn serving(&mut self) -> Option<&mut Serving> {
        if cfg!(feature = "dhcp") { self.serving.as_deref_mut() } else { None }
    }

    /// The addresses that clients on the link have leased from this host.
    #[must_use]
    pub fn leases(&self, now: Instant) -> Vec<Leased> {
        let Some((serving, server)) =
            self.serving.as_ref().and_then(|serving| Some((serving, serving.leases.as_ref()?)))
        else {
            return Vec::new();
        };
        let prefix = serving.managed_prefix();
        let address_v6 = |station: Mac| {
            let address = v6::address_of(prefix?, station);
            let port = self.switch.owner(address.into())?;
            (self.switch.port_of(station) == Some(port)).then_some(address)
        };
        server.leased(now).map(|lease| Leased { address_v6: address_v6(lease.station), ..lease }).collect()
    }

    /// Takes a packet of IPv4 that is a client's message for this host. Others are left to the stack.
    pub(crate) fn take_question(&mut self, now: Instant, packet: &[u8]) -> bool {
        let Some(Serving { config: Services { leases: Some(leases), .. }, .. }) = self.serving() else {
            return false;
        };
        let own = leases.own.address;
        let is_for_us = |dst| dst == own || dst == IpAddr::V4(Ipv4Addr::BROADCAST);
        let message = bootp::message_of(packet, Ports::OF_CLIENT, is_for_us);
        let Some(message) = message else { return false };
        let asked = message.and_then(|message| DhcpAsked::parse(message).ok());
        let (serving, switch) = (self.serving.as_deref_mut(), &self.switch);
        let is_answered =
            asked.zip(serving).is_some_and(|(asked, serving)| serving.on_message(now, &asked, switch));
        if is_answered {
            self.stats.answered += 1;
        } else {
            self.stats.ignored += 1;
        }
        true
    }

    /// Takes a packet of IPv6 from this station that is a client's message for all servers.
    pub(crate) fn take_question_v6(&mut self, station: Mac, packet: &[u8]) -> bool {
        const NEXT_HEADER: usize = 6;
        let mac = self.config.mac;
        let Some(serving) = self.serving().filter(|serving| serving.is_router()) else { return false };
        if packet.get(NEXT_HEADER) != Some(&protocol::UDP) {
            return false;
        }
        let message = bootp::message_of(packet, Ports::OF_CLIENT_V6, |dst| dst == IpAddr::V6(v6::SERVERS));
        let Some(message) = message else { return false };
        let src = packet.get(8..24).and_then(|octets| octets.first_chunk::<16>());
        let from = src.map(|octets| Ipv6Addr::from(*octets)).filter(Ipv6Addr::is_unicast_link_local);
        let asked = message.zip(from);
        let is_answered =
            asked.is_some_and(|(message, from)| serving.on_message_v6(mac, (station, from), message));
        if is_answered {
            self.stats.answered += 1;
        } else {
            self.stats.ignored += 1;
        }
        true
    }

    /// Writes the next answer or advertisement, and returns the length of its frame.
    pub(crate) fn poll_service(&mut self, buf: &mut [u8; FRAME_MAX]) -> Option<usize> {
        let mac = self.config.mac;
        let serving = self.serving()?;
        match serving.answers.pop_front() {
            Some(Answer::V4(answer)) => return serving.emit_answer(buf, mac, &answer),
            Some(Answer::V6(station, to, message)) => {
                return serving.emit_answer_v6(buf, (mac, station), to, &message);
            }
            None => {}
        }
        if core::mem::take(&mut serving.advertises_now) {
            return serving.emit_advertisement(buf, mac);
        }
        None
    }
}

/// Puts as many as there is room for; returns how many.
fn fill<T>(places: &mut [T], all: impl Iterator<Item = T>) -> usize {
    places.iter_mut().zip(all).map(|(place, one)| *place = one).count()
}
