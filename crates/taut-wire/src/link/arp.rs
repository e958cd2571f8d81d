//! ARP for IPv4 over Ethernet (RFC 826): which station has an address. Called by `taut-ethernet`.

use core::net::Ipv4Addr;

use crate::{Mac, ParseError};

/// Bytes of a packet for IPv4 over Ethernet.
pub const LEN: usize = 28;

/// Hardware type 1, protocol type 0x0800, lengths 6 and 4.
const START: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// A request or a reply; one of any other operation is not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// A request, not a reply.
    pub is_request: bool,
    /// The station that sends it.
    pub sender_mac: Mac,
    /// Its address; unspecified in a probe (RFC 5227 §1.1).
    pub sender: Ipv4Addr,
    /// The station that is told; zero in a request.
    pub target_mac: Mac,
    /// In a request, the address whose station is wanted.
    pub target: Ipv4Addr,
}

impl Arp {
    /// Parses the payload of an Ethernet frame; padding after the packet is ignored.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], or [`ParseError::Unsupported`] for other networks and operations.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let packet = payload.first_chunk::<LEN>().ok_or(ParseError::Truncated)?;
        let mac = |at: usize| Mac([0, 1, 2, 3, 4, 5].map(|i| packet[at + i]));
        let ip = |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|i| packet[at + i]));
        let operation = u16::from_be_bytes([packet[6], packet[7]]);
        if packet[..6] != START || ![REQUEST, REPLY].contains(&operation) {
            return Err(ParseError::Unsupported);
        }
        Ok(Self {
            is_request: operation == REQUEST,
            sender_mac: mac(8),
            sender: ip(14),
            target_mac: mac(18),
            target: ip(24),
        })
    }

    /// The packet as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; LEN] {
        let mut packet = [0; LEN];
        packet[..6].copy_from_slice(&START);
        packet[6..8].copy_from_slice(&if self.is_request { REQUEST } else { REPLY }.to_be_bytes());
        packet[8..14].copy_from_slice(&self.sender_mac.0);
        packet[14..18].copy_from_slice(&self.sender.octets());
        packet[18..24].copy_from_slice(&self.target_mac.0);
        packet[24..].copy_from_slice(&self.target.octets());
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 826, "Packet format", field by field.
    const PACKET: [u8; LEN] = [
        0, 1, 8, 0, 6, 4, 0, 1, // Ethernet, IPv4, their lengths, a request
        2, 0, 0, 0, 0, 1, 10, 9, 0, 1, // from
        0, 0, 0, 0, 0, 0, 10, 9, 0, 2, // for
    ];

    #[test]
    fn layout() {
        let request = Arp {
            is_request: true,
            sender_mac: Mac([2, 0, 0, 0, 0, 1]),
            sender: Ipv4Addr::new(10, 9, 0, 1),
            target_mac: Mac::default(),
            target: Ipv4Addr::new(10, 9, 0, 2),
        };
        assert_eq!((request.emit(), Arp::parse(&PACKET)), (PACKET, Ok(request)));
    }

    #[test]
    fn others_are_refused() {
        for len in 0..LEN {
            assert_eq!(Arp::parse(&PACKET[..len]), Err(ParseError::Truncated));
        }
        for at in 0..8 {
            let mut other = PACKET;
            other[at] ^= 4;
            assert_eq!(Arp::parse(&other), Err(ParseError::Unsupported), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_emitted_alike(bytes in proptest::collection::vec(any::<u8>(), 0..64), reply: bool) {
            let mut bytes = bytes;
            for (byte, start) in bytes.iter_mut().zip([0, 1, 8, 0, 6, 4, 0, 1 + u8::from(reply)]) {
                *byte = start;
            }
            if let Ok(arp) = Arp::parse(&bytes) {
                prop_assert_eq!(&arp.emit()[..], &bytes[..LEN]);
            }
        }
    }
}
