//! Which of several stacks on one link a packet belongs to: the same for every packet of a connection, and
//! the same in every shard. taut's own; Linux leaves this to receive-side scaling and looks sockets up in one
//! table. Called by the driver for every packet when there are several shards, and by `connect` to choose its
//! local port.
//!
//! A connection belongs, for its whole life, to the shard that a keyed hash of its four-tuple selects. So no
//! table of connections is shared: a shard that receives a packet of another shard finds the owner from the
//! packet alone. A shard that opens a connection takes a local port with which the connection is its own.

use core::net::SocketAddr;

use siphasher::sip::SipHasher13;
use taut_wire::{Icmp, IpHeader, Quoted, protocol};

use crate::words::Endpoint;

/// One shard's view of the rule. All shards of a stack have the same key.
#[derive(Clone, Debug)]
pub struct Steering {
    hasher: SipHasher13,
    index: u16,
    shards: u16,
}

impl Steering {
    /// Shard `index` of `shards`. `seed` is the same for all of them, and random: an attacker who knows it
    /// can put all load on one shard.
    #[must_use]
    pub fn new(seed: &[u8; 32], index: u16, shards: u16) -> Self {
        let key = seed.first_chunk::<16>().copied().unwrap_or_default();
        // A key that nothing else derived from the seed uses.
        let hasher = SipHasher13::new_with_key(&key);
        let (k0, k1) = (hasher.hash(b"taut steering 0"), hasher.hash(b"taut steering 1"));
        Self { hasher: SipHasher13::new_with_keys(k0, k1), index, shards: shards.max(1) }
    }

    /// The index of this shard.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index.into()
    }

    /// The owner of the connection between these addresses.
    #[must_use]
    pub fn owner(&self, local: SocketAddr, peer: SocketAddr) -> usize {
        self.owner_of(local.into(), peer.into())
    }

    pub(crate) fn owner_of(&self, local: Endpoint, peer: Endpoint) -> usize {
        let mut bytes = [0; 36];
        for (half, end) in bytes.chunks_exact_mut(18).zip([local, peer]) {
            let (ip, port) = half.split_at_mut(16);
            ip.copy_from_slice(end.ip_bytes());
            port.copy_from_slice(&end.port().to_be_bytes());
        }
        // The upper half scaled to the range: no division, and no bias that matters.
        let hash = self.hasher.hash(&bytes) >> 32;
        ((hash * u64::from(self.shards)) >> 32) as usize
    }

    pub(crate) fn is_own(&self, local: Endpoint, peer: Endpoint) -> bool {
        self.owner_of(local, peer) == usize::from(self.index)
    }

    /// The owner of datagram sockets at this port, whatever their peers are.
    pub(crate) fn owner_of_port(&self, port: u16) -> usize {
        let any = Endpoint::new(core::net::Ipv4Addr::UNSPECIFIED.into(), port);
        self.owner_of(any, any)
    }

    pub(crate) fn is_own_port(&self, port: u16) -> bool {
        self.owner_of_port(port) == usize::from(self.index)
    }

    /// The owner of a received packet (from its IP header on); `None` when it concerns no connection and any
    /// shard may handle it.
    #[must_use]
    pub fn owner_of_packet(&self, packet: &[u8]) -> Option<usize> {
        let ip = IpHeader::parse_prefix(packet, packet.len()).ok()?;
        let payload = packet.get(ip.header_len..)?;
        let payload = payload.get(..ip.payload_len).unwrap_or(payload);
        match ip.protocol {
            protocol::TCP => {
                let port = |at| Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?));
                let local = Endpoint::new(ip.dst, port(2)?);
                Some(self.owner_of(local, Endpoint::new(ip.src, port(0)?)))
            }
            // An error quotes a packet of ours: from us, to the peer. Its owner checks whether it is intact.
            protocol::ICMP | protocol::ICMPV6 => {
                let quoted = match (ip.src, ip.dst) {
                    (core::net::IpAddr::V6(src), core::net::IpAddr::V6(dst)) => {
                        Icmp::parse_v6(src, dst, payload)
                    }
                    _ => Icmp::parse_v4(payload),
                };
                let quoted = match quoted {
                    Ok(
                        Icmp::DestinationUnreachable { quoted, .. }
                        | Icmp::PacketTooBig { quoted, .. }
                        | Icmp::TimeExceeded { quoted }
                        | Icmp::ParameterProblem { quoted, .. },
                    ) => Quoted::parse(quoted).ok()?,
                    Ok(Icmp::EchoReply { ident, .. } | Icmp::EchoRequest { ident, .. }) => {
                        return Some(self.owner_of_port(ident));
                    }
                    _ => return None,
                };
                match quoted.protocol {
                    protocol::TCP => Some(self.owner_of(quoted.src.into(), quoted.dst.into())),
                    protocol::UDP => Some(self.owner_of_port(quoted.src.port())),
                    protocol::ICMP | protocol::ICMPV6 => Some(self.owner_of_port((quoted.seq >> 16) as u16)),
                    _ => None,
                }
            }
            protocol::UDP => Some(self.owner_of_port(u16::from_be_bytes(*payload.get(2..)?.first_chunk()?))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use taut_wire::{Ecn, Unreachable};

    use super::*;

    fn pair(port: u16) -> (SocketAddr, SocketAddr) {
        (SocketAddr::from(([10, 0, 0, 2], 80)), SocketAddr::from(([10, 0, 0, 1], port)))
    }

    #[test]
    fn all_shards_agree_and_share_evenly() {
        let shards: Vec<_> = (0..4).map(|index| Steering::new(&[7; 32], index, 4)).collect();
        let mut counts = [0; 4];
        for port in 0..10_000 {
            let (local, peer) = pair(port);
            let owner = shards[0].owner(local, peer);
            assert!(shards.iter().all(|shard| shard.owner(local, peer) == owner));
            counts[owner] += 1;
        }
        // 2500 each; six standard deviations are 260.
        assert!(counts.iter().all(|count| (2_240..2_760).contains(count)), "{counts:?}");
    }

    #[test]
    fn another_key_is_another_order() {
        let [one, two] = [[1; 32], [2; 32]].map(|seed| Steering::new(&seed, 0, 2));
        let differ = (0..1_000).filter(|&port| {
            let (local, peer) = pair(port);
            one.owner(local, peer) != two.owner(local, peer)
        });
        assert!((400..600).contains(&differ.count()));
    }

    /// A packet with this payload after its IP header; the peer's packets and our own differ only in source
    /// and destination.
    fn packet(src: SocketAddr, dst: SocketAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (src, dst) = (src.ip(), dst.ip());
        let header_len = if src.is_ipv4() { 20 } else { 40 };
        let payload_len = payload.len();
        let ip = IpHeader { src, dst, protocol, hop_limit: 64, ecn: Ecn::NotEct, header_len, payload_len };
        let mut bytes = vec![0; header_len];
        ip.emit(&mut bytes, 0);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn segment(src: SocketAddr, dst: SocketAddr) -> Vec<u8> {
        let mut tcp = [0; 20];
        tcp[..2].copy_from_slice(&src.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&dst.port().to_be_bytes());
        tcp[12] = 0x50;
        packet(src, dst, protocol::TCP, &tcp)
    }

    #[test]
    fn a_segment_and_an_error_about_its_answer_have_one_owner() {
        let steering = Steering::new(&[3; 32], 0, 1_000);
        for (local, peer, router) in [
            ("10.0.0.2:80", "10.0.0.1:40000", "10.9.9.9:0"),
            ("[fd00::2]:80", "[fd00::1]:40000", "[fd00::9]:0"),
        ] {
            let [local, peer, router]: [SocketAddr; 3] = [local, peer, router].map(|at| at.parse().unwrap());
            let owner = Some(steering.owner(local, peer));
            assert_eq!(steering.owner_of_packet(&segment(peer, local)), owner);
            assert_ne!(steering.owner_of_packet(&segment(local, peer)), owner, "of a thousand");
            // Each kind quotes what we sent.
            let quoted = segment(local, peer);
            for code in [Unreachable::Host, Unreachable::FragmentationNeeded { mtu: 1_300 }] {
                let mut icmp = vec![0; 200];
                let len =
                    taut_wire::icmp::emit_unreachable(&mut icmp, router.ip(), local.ip(), code, &quoted);
                let protocol = if local.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
                let error = packet(router, local, protocol, &icmp[..len]);
                assert_eq!(steering.owner_of_packet(&error), owner, "{code:?}");
            }
        }
    }

    #[test]
    fn nonsense_is_anybodys() {
        let steering = Steering::new(&[1; 32], 0, 2);
        assert_eq!(steering.owner_of_packet(&[]), None);
        assert_eq!(steering.owner_of_packet(&[0x45; 19]), None);
        assert_eq!(steering.owner_of_packet(&[0x60; 60]), None);
    }
}
