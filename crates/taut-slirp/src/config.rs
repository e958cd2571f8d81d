//! The configuration of a caller of libslirp, as values of this crate. `ffi/values.rs` reads them from a
//! `SlirpConfig`; libslirp.h has their meaning.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::path::PathBuf;

use taut_core::Network;
use taut_ethernet::{Boot, EthernetConfig, Leases, SearchDomains, Services};
use taut_gateway::{RuleError, Rules};
use taut_wire::Mac;

/// libslirp's `IF_MTU_DEFAULT`, `IF_MTU_MIN`, `IF_MTU_MAX`.
const MTU: u16 = 1_500;
const MTU_MIN: usize = 68;
const MTU_MAX: usize = 65_521;
/// RFC 8200 §5.
const MTU_MIN_V6: u16 = 1_280;
/// Stations that get an address. libslirp: `NB_BOOTP_CLIENTS`.
const LEASES: u8 = 16;
/// libslirp: `LEASE_TIME`.
const LEASE_S: u32 = 86_400;
/// This host as a router.
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
/// RFC 2132 §3.14, §3.17, §9.4, §9.5.
const HOST_NAME: u8 = 12;
const DOMAIN: u8 = 15;
const TFTP_SERVER: u8 = 66;
const BOOT_FILE: u8 = 67;

/// The link between host and guest.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The guest reaches forwarded services alone.
    pub(crate) restricted: bool,
    pub(crate) v4: Option<V4>,
    pub(crate) v6: Option<V6>,
    pub(crate) host_name: Option<String>,
    pub(crate) tftp_server_name: Option<String>,
    pub(crate) tftp_path: Option<PathBuf>,
    pub(crate) boot_file: Option<String>,
    pub(crate) search: Vec<String>,
    pub(crate) domain: Option<String>,
    /// The longest packet to the guest and from it; 0 stands for the default.
    pub(crate) mtu: usize,
    pub(crate) mru: usize,
    pub(crate) has_host_loopback: bool,
    /// Where connections of the host come from.
    pub(crate) outbound: Option<SocketAddrV4>,
    pub(crate) outbound_v6: Option<SocketAddrV6>,
    pub(crate) has_dns: bool,
    pub(crate) has_dhcp: bool,
}

/// Addresses of IPv4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct V4 {
    pub(crate) network: Ipv4Addr,
    pub(crate) mask: Ipv4Addr,
    pub(crate) host: Ipv4Addr,
    /// The first address that is leased: that of the guest, for a forwarded port that names none.
    pub(crate) guest: Ipv4Addr,
    pub(crate) dns: Ipv4Addr,
}

/// Addresses of IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct V6 {
    pub(crate) prefix: Ipv6Addr,
    pub(crate) len: u8,
    pub(crate) host: Ipv6Addr,
    pub(crate) dns: Ipv6Addr,
}

impl V4 {
    pub(crate) const fn prefix_len(&self) -> u8 {
        self.mask.to_bits().count_ones() as u8
    }

    pub(crate) const fn contains(&self, ip: Ipv4Addr) -> bool {
        (ip.to_bits() ^ self.network.to_bits()) & self.mask.to_bits() == 0
    }

    /// The address of a service that names none. libslirp: host 4 of the network.
    pub(crate) const fn usual_service(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() | 0x0204 & !self.mask.to_bits())
    }
}

impl Config {
    /// Whether a link can be like this.
    pub(crate) fn is_possible(&self) -> bool {
        let is_mtu = |mtu| mtu == 0 || (MTU_MIN..=MTU_MAX).contains(&mtu);
        let is_v4 = self.v4.is_none_or(|v4| {
            let hosts = !v4.mask.to_bits();
            hosts & hosts.wrapping_add(1) == 0 && v4.contains(v4.host)
        });
        is_mtu(self.mtu) && is_mtu(self.mru) && is_v4 && self.v6.is_none_or(|v6| v6.len <= 126)
    }

    /// The longest packet either way: what is announced to the guest bounds what it sends.
    pub(crate) fn mtu(&self) -> u16 {
        let of = |mtu: usize| u16::try_from(mtu).ok().filter(|mtu| *mtu > 0).unwrap_or(MTU);
        let least = if self.v6.is_some() { MTU_MIN_V6 } else { MTU_MIN as u16 };
        of(self.mtu).min(of(self.mru)).max(least)
    }

    /// libslirp's: 52:55, and the address of the host.
    pub(crate) fn station(&self) -> Mac {
        let [a, b, c, d] = self.v4.map_or([10, 0, 2, 2], |v4| v4.host.octets());
        Mac([0x52, 0x55, a, b, c, d])
    }

    /// The host's addresses on the link, with their networks.
    pub(crate) fn networks(&self) -> Vec<Network> {
        let of = |address, prefix| Network { address, prefix };
        let mut all = Vec::new();
        if let Some(v4) = self.v4 {
            all.push(of(IpAddr::V4(v4.host), v4.prefix_len()));
            if v4.contains(v4.dns) && v4.dns != v4.host {
                all.push(of(v4.dns.into(), v4.prefix_len()));
            }
        }
        if let Some(v6) = self.v6 {
            all.push(of(IpAddr::V6(v6.host), v6.len));
            if v6.dns != v6.host {
                all.push(of(v6.dns.into(), v6.len));
            }
            all.push(of(ROUTER.into(), 64));
        }
        all
    }

    /// The host as a gateway: its addresses, at which is the host's loopback or the name service.
    pub(crate) fn own(&self) -> Vec<IpAddr> {
        self.networks().into_iter().map(|own| own.address).filter(|own| *own != IpAddr::V6(ROUTER)).collect()
    }

    /// Own addresses without names.
    pub(crate) fn nameless(&self) -> Vec<IpAddr> {
        let servers = self.name_servers();
        self.own().into_iter().filter(|own| !servers.contains(own)).collect()
    }

    fn name_servers(&self) -> Vec<IpAddr> {
        let v4 = self.v4.map(|v4| v4.dns.into());
        let v6 = self.v6.map(|v6| v6.dns.into());
        if self.has_dns { v4.into_iter().chain(v6).collect() } else { Vec::new() }
    }

    /// The rules of the caller's configuration, behind those of the user. libslirp has one limit, the
    /// host's loopback.
    pub(crate) fn rules(&self, user: &[String]) -> Result<Rules, RuleError> {
        let loopback = if self.has_host_loopback {
            ["allow 127.0.0.0/8", "allow ::1"]
        } else {
            ["deny 127.0.0.0/8", "deny ::1"]
        };
        let texts = user.iter().map(String::as_str).chain(loopback).chain(["allow 169.254.0.0/16"]);
        Rules::parse(texts)
    }

    /// How the link layer is set up.
    pub(crate) fn ethernet(&self) -> EthernetConfig {
        EthernetConfig {
            mac: self.station(),
            networks: self.networks(),
            mtu: self.mtu(),
            services: self.services(),
            ..EthernetConfig::default()
        }
    }

    fn services(&self) -> Services {
        let leases = self.v4.filter(|_| self.has_dhcp).map(|v4| Leases {
            own: Network { address: v4.host.into(), prefix: v4.prefix_len() },
            first: v4.guest,
            count: LEASES,
            time_s: LEASE_S,
        });
        Services {
            leases,
            router: self.v6.map(|_| ROUTER),
            prefixes: self
                .v6
                .map(|v6| Network { address: v6.prefix.into(), prefix: v6.len })
                .into_iter()
                .collect(),
            name_servers: self.name_servers(),
            mtu: (self.mtu() != MTU).then(|| self.mtu()),
            search: self.search_domains(),
            boot: self.boot(),
            is_isolated: self.restricted,
            ..Services::default()
        }
    }

    /// Texts that are no names of domains are left out.
    pub(crate) fn search_domains(&self) -> SearchDomains {
        let mut domains = SearchDomains::default();
        for name in &self.search {
            _ = domains.push(name);
        }
        domains
    }

    fn boot(&self) -> Boot {
        let options = [
            (HOST_NAME, &self.host_name),
            (DOMAIN, &self.domain),
            (TFTP_SERVER, &self.tftp_server_name),
            (BOOT_FILE, &self.boot_file),
        ];
        let told = |(code, text): (u8, &Option<String>)| Some((code, text.clone()?.into_bytes()));
        let file = self.boot_file.clone().unwrap_or_default().into_bytes();
        let url = self.v6.zip(self.boot_file.as_ref());
        let url = url.map(|(v6, file)| format!("tftp://[{}]/{file}", v6.host).into_bytes());
        Boot { file, url: url.unwrap_or_default(), options: options.into_iter().filter_map(told).collect() }
    }
}

#[cfg(test)]
impl Default for Config {
    /// QEMU's.
    fn default() -> Self {
        Self {
            restricted: false,
            v4: Some(V4 {
                network: [10, 0, 2, 0].into(),
                mask: [255, 255, 255, 0].into(),
                host: [10, 0, 2, 2].into(),
                guest: [10, 0, 2, 15].into(),
                dns: [10, 0, 2, 3].into(),
            }),
            v6: None,
            host_name: None,
            tftp_server_name: None,
            tftp_path: None,
            boot_file: None,
            search: Vec::new(),
            domain: None,
            mtu: 0,
            mru: 0,
            has_host_loopback: true,
            outbound: None,
            outbound_v6: None,
            has_dns: true,
            has_dhcp: true,
        }
    }
}
