//! The networks that this host is in, by the addresses of its interfaces. Called by the command for rules
//! that close them and for the address that flows leave from, before the sandbox does not let it look any
//! more.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use taut::network::IpPrefix;

/// The network of each address of this host, but for loopback and link-local ones.
///
/// # Errors
/// The kernel does not list addresses.
pub fn host_networks() -> io::Result<Vec<IpPrefix>> {
    let mut all = Vec::new();
    for interface in getifaddrs()? {
        let [address, mask] = [interface.address, interface.netmask].map(|one| one.and_then(|one| ip(&one)));
        all.extend(address.zip(mask).and_then(|(address, mask)| network(address, mask)));
    }
    all.dedup();
    Ok(all)
}

/// The first address of this host's interface with this name, but for link-local ones.
///
/// # Errors
/// The kernel does not list addresses.
pub fn interface_address(name: &str, is_v4: bool) -> io::Result<Option<IpAddr>> {
    let own = getifaddrs()?.filter(|interface| interface.interface_name == name);
    let mut all = own.filter_map(|interface| ip(&interface.address?));
    let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    Ok(all.find(|ip| ip.is_ipv4() == is_v4 && !is_local(ip)))
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

fn network(address: IpAddr, mask: IpAddr) -> Option<IpPrefix> {
    let network: IpAddr = match (address, mask) {
        (IpAddr::V4(own), IpAddr::V4(mask)) if !own.is_loopback() && !own.is_link_local() => {
            (own & mask).into()
        }
        (IpAddr::V6(own), IpAddr::V6(mask)) if !own.is_loopback() && !own.is_unicast_link_local() => {
            (own & mask).into()
        }
        _ => return None,
    };
    let len = match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    };
    IpPrefix::new(network, u8::try_from(len).ok()?).filter(|network| network.prefix_len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_172_a_hosts_networks_are_those_of_its_addresses() {
        for (address, mask, expected) in [
            ("192.0.2.130", "255.255.255.128", Some(("192.0.2.128", 25))),
            ("203.0.113.9", "255.255.255.255", Some(("203.0.113.9", 32))),
            ("2001:db8:1:2::5", "ffff:ffff:ffff:ffff::", Some(("2001:db8:1:2::", 64))),
            ("127.0.0.1", "255.0.0.0", None),
            ("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None),
            ("fe80::5", "ffff:ffff:ffff:ffff::", None),
            ("169.254.3.4", "255.255.0.0", None),
            ("192.0.2.1", "0.0.0.0", None),
        ] {
            let found = network(address.parse().unwrap(), mask.parse().unwrap());
            let expected = expected.and_then(|(network, len)| IpPrefix::new(network.parse().unwrap(), len));
            assert_eq!(found, expected, "{address}");
        }
    }
}
