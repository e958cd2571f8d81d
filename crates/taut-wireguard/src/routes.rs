//! Which peer an inner address belongs to: the one with the longest prefix among all AllowedIPs (WireGuard
//! §2, "cryptokey routing"). Called for each packet, in both directions.

use std::net::IpAddr;

use ip_network::IpNetwork;
use ip_network_table::IpNetworkTable;
use taut_device::Cidr;

/// AllowedIPs of all peers. A network that two peers have belongs to the later one, as with `wg`.
pub(crate) struct Routes(IpNetworkTable<usize>);

impl Routes {
    /// The networks of the peers with the numbers 0, 1, …
    pub(crate) fn new<'a>(peers: impl IntoIterator<Item = &'a [Cidr]>) -> Self {
        let mut table = IpNetworkTable::new();
        for (peer, networks) in peers.into_iter().enumerate() {
            for network in networks {
                // The host bits are zero and the prefix fits: a `Cidr`.
                if let Ok(to) = IpNetwork::new_truncate(network.address(), network.prefix()) {
                    table.insert(to, peer);
                }
            }
        }
        Self(table)
    }

    /// The number of the peer behind which `address` is.
    pub(crate) fn peer_of(&self, address: IpAddr) -> Option<usize> {
        self.0.longest_match(address).map(|(_, peer)| *peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wg_7_the_longest_prefix_decides() {
        let list = |text: &str| text.split(' ').map(|part| part.parse().unwrap()).collect::<Vec<Cidr>>();
        let peers = [
            list("0.0.0.0/0 ::/0"),
            list("10.1.2.3/8 fd00::/8"),
            list("10.9.0.0/16 10.9.9.9"),
            list("10.9.0.0/16"),
        ];
        let routes = Routes::new(peers.iter().map(Vec::as_slice));
        for (address, peer) in [
            ("192.0.2.1", 0),
            ("10.255.0.1", 1),
            ("10.9.1.1", 3),
            ("10.9.9.9", 2),
            ("2001:db8::1", 0),
            ("fd12::1", 1),
        ] {
            assert_eq!(routes.peer_of(address.parse().unwrap()), Some(peer), "{address}");
        }
        assert_eq!(Routes::new([&peers[1][..]]).peer_of("11.0.0.1".parse().unwrap()), None);
    }
}
