//! The address by which a service in the guest sees a forwarded port's client: the client's own where the
//! guest would answer it through the gateway, else the gateway's; or a header of the PROXY protocol
//! (version 2) before the first byte.

use std::net::{IpAddr, SocketAddr};

use taut::network::IpPrefix;

/// How a client of a forwarded port is shown to the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// By its own address and port, where the guest can route them; else as the gateway.
    #[default]
    Keep,
    /// As the gateway.
    Hide,
    /// As the gateway, and by a header of the PROXY protocol version 2. TCP only.
    ProxyProtocol,
}

impl ClientAddress {
    /// All of them, by the names that the command has for them.
    pub const NAMES: [(&'static str, Self); 3] =
        [("keep", Self::Keep), ("hide", Self::Hide), ("proxy-protocol", Self::ProxyProtocol)];
}

/// The client, if the guest sends what is for it to the gateway: an address of the guest's family that is
/// neither the guest's link's nor one that no router passes.
#[must_use]
pub fn routable(client: SocketAddr, guest: IpAddr, link: &[IpPrefix]) -> Option<SocketAddr> {
    let ip = client.ip().to_canonical();
    let is_special = ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || match ip {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
    let is_routed = ip.is_ipv4() == guest.is_ipv4() && !link.iter().any(|network| network.contains(ip));
    (is_routed && !is_special).then_some(SocketAddr::new(ip, client.port()))
}

/// The header of a connection from `client` to `at` (haproxy.org, "The PROXY protocol", §2.2).
pub(crate) fn proxy_header(client: SocketAddr, at: SocketAddr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    match (client.ip().to_canonical(), at.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend_from_slice(&[0x11, 0, 12]);
            header.extend_from_slice(&[from.octets(), to.octets()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            header.extend_from_slice(&[0x21, 0, 36]);
            header.extend_from_slice(&[from.octets(), to.octets()].concat());
        }
        // A socket has one family.
        _ => {
            header.extend_from_slice(&[0, 0, 0]);
            return header;
        }
    }
    header.extend_from_slice(&[client.port().to_be_bytes(), at.port().to_be_bytes()].concat());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_104_clients_that_a_guest_can_route() {
        let link = [("10.0.2.0", 24), ("fd74:6175:7400::", 64)]
            .map(|(address, len)| IpPrefix::new(address.parse().unwrap(), len).unwrap());
        let [v4, v6] = ["10.0.2.15", "fd74:6175:7400::15"].map(|guest| guest.parse::<IpAddr>().unwrap());
        for (client, guest, is_shown) in [
            ("192.0.2.7:999", v4, true),
            ("[::ffff:192.0.2.7]:999", v4, true),
            ("10.0.3.1:999", v4, true),
            ("[2001:db8::1]:999", v6, true),
            // Its answer would stay on the guest's link.
            ("10.0.2.15:999", v4, false),
            ("10.0.2.99:999", v4, false),
            ("[fd74:6175:7400::9]:999", v6, false),
            ("127.0.0.1:999", v4, false),
            ("169.254.0.1:999", v4, false),
            ("[::1]:999", v6, false),
            ("[fe80::1]:999", v6, false),
            ("[2001:db8::1]:999", v4, false),
            ("192.0.2.7:999", v6, false),
        ] {
            let shown = routable(client.parse().unwrap(), guest, &link);
            assert_eq!(shown.is_some(), is_shown, "{client} {guest}");
            assert!(shown.is_none_or(|shown| shown.port() == 999 && shown.ip() == shown.ip().to_canonical()));
        }
    }

    /// Bytes as in the text of the protocol, §2.2: signature, version 2 and PROXY, family, length, addresses.
    #[test]
    fn gw_105_the_header_of_the_proxy_protocol() {
        let of = |client: &str, at: &str| proxy_header(client.parse().unwrap(), at.parse().unwrap());
        let signature = [0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21];
        let v4 = [0x11, 0, 12, 192, 0, 2, 7, 198, 51, 100, 1, 0x03, 0xe7, 0, 80];
        assert_eq!(of("192.0.2.7:999", "198.51.100.1:80"), [&signature[..], &v4].concat());
        assert_eq!(of("[::ffff:192.0.2.7]:999", "[::ffff:198.51.100.1]:80"), [&signature[..], &v4].concat());
        let v6 = of("[2001:db8::7]:999", "[2001:db8::1]:80");
        assert_eq!((v6.len(), &v6[13..16]), (16 + 36, &[0x21, 0, 36][..]));
        assert_eq!(v6[16..18], [0x20, 0x01]);
        assert_eq!(v6[48..], [0x03, 0xe7, 0, 80]);
    }
}
