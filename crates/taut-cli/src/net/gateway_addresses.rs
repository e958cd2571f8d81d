//! The addresses of `taut gateway`: its guest's, and its own on the same networks. Called by `gateway.rs`.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use taut::device::Cidr;
use taut_gateway::{Resolver, name_server};

/// Addresses of the guest and of the gateway, in pairs, with the defaults for what is not given.
///
/// # Errors
/// Two guests of a family, except behind a TUN; a network without room for the gateway.
pub(crate) fn pairs(guests: &[Cidr], gateways: &[IpAddr], is_tun: bool) -> anyhow::Result<Vec<(Cidr, Cidr)>> {
    let mut guests = guests.to_vec();
    if guests.is_empty() {
        let all = ["10.0.2.15/24", "fd74:6175:7400::15/64"];
        let count = if has_ipv6() { 2 } else { 1 };
        guests = all[..count].iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    }
    if let [first, second, ..] = guests[..]
        && first.address().is_ipv4() == second.address().is_ipv4()
        && !is_tun
    {
        bail!("--guest {first} and {second} are of the same family; give one for IPv4 and one for IPv6");
    }
    // Behind a TUN there may be several networks, of which the first has the gateway's address.
    let (mut v4, mut v6) = (0, 0);
    guests.retain(|guest| {
        let count = if guest.address().is_ipv4() { &mut v4 } else { &mut v6 };
        *count += 1;
        *count == 1
    });
    let pair = |guest: &Cidr| {
        let network = guest.network();
        let given =
            gateways.iter().find(|own| Cidr::new(**own, guest.prefix()).map(Cidr::network) == Some(network));
        let second = || match network.address() {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() | 2).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() | 2).into()),
        };
        let own = given.copied().unwrap_or_else(second);
        let own = Cidr::new(own, guest.prefix())
            .filter(|own| own.network() == network && own.address() != guest.address());
        let own = own.with_context(|| {
            format!("the network of --guest {guest} has no address for the gateway; use --gateway")
        })?;
        Ok((*guest, own))
    };
    guests.iter().map(pair).collect()
}

/// The name servers that `--dns` gives, or those of the host.
pub(crate) fn name_servers(given: &[String]) -> anyhow::Result<Resolver> {
    let server = |text: &String| {
        name_server(text).with_context(|| {
            format!("--dns {text} is not an address, such as 192.0.2.53, 192.0.2.53:5353 or fe80::1%eth0")
        })
    };
    let servers = given.iter().map(server).collect::<anyhow::Result<_>>()?;
    Ok(Resolver { servers, ..Resolver::default() })
}

/// Whether this host has a route to the IPv6 Internet: connecting a socket for datagrams sends nothing.
fn has_ipv6() -> bool {
    std::net::UdpSocket::bind("[::]:0").is_ok_and(|socket| socket.connect("[2000::1]:9").is_ok())
}

/// The gateway's addresses, for its log.
pub(crate) fn own_names(pairs: &[(Cidr, Cidr)]) -> String {
    pairs.iter().map(|(_, own)| own.address().to_string()).collect::<Vec<_>>().join(" and ")
}
