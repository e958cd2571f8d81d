//! The Ethernet header (RFC 894, RFC 2464 §3), and the addresses of Ethernet stations. Called by whoever
//! carries IP packets over Ethernet, and by `arp.rs` and `ndp.rs`.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use crate::ParseError;

/// Bytes of the header: destination, source, type.
pub const HEADER_LEN: usize = 14;

/// What follows the header (IANA "EtherType").
pub mod ether_type {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
}

/// The address of an Ethernet station, or of a group of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Every station.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it stands for more than one station: a group, or all.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether one station can have it: not a group, and not zero.
    #[must_use]
    pub fn is_station(self) -> bool {
        !self.is_group() && self != Self::default()
    }

    /// The group of an IPv6 multicast address. RFC 2464 §7.
    #[must_use]
    pub const fn of_multicast(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }

    /// The group of an IPv4 multicast address. RFC 1112 §6.4.
    #[must_use]
    pub const fn of_multicast_v4(group: Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is not an Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacError;

impl fmt::Display for MacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an Ethernet address has six bytes in hexadecimal, such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for MacError {}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|part| (1..=2).contains(&part.len())).ok_or(MacError)?;
            if !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Self(octets)) }
    }
}

/// The header of an Ethernet frame without a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// The station or group it is for.
    pub dst: Mac,
    /// The station that sent it.
    pub src: Mac,
    /// What follows: [`ether_type`].
    pub ether_type: u16,
}

impl EthernetHeader {
    /// Parses the header at the start of a frame.
    ///
    /// # Errors
    /// [`ParseError::Truncated`].
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, high, low] =
            frame.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        Ok(Self {
            dst: Mac([d0, d1, d2, d3, d4, d5]),
            src: Mac([s0, s1, s2, s3, s4, s5]),
            ether_type: u16::from_be_bytes([high, low]),
        })
    }

    /// The header as bytes.
    #[inline]
    #[must_use]
    pub const fn emit(&self) -> [u8; HEADER_LEN] {
        let ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]) = (self.dst.0, self.src.0);
        let [high, low] = self.ether_type.to_be_bytes();
        [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn layout() {
        let header = EthernetHeader {
            dst: Mac([1, 2, 3, 4, 5, 6]),
            src: Mac([7, 8, 9, 10, 11, 12]),
            ether_type: ether_type::IPV6,
        };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd];
        assert_eq!((header.emit(), EthernetHeader::parse(&bytes)), (bytes, Ok(header)));
        for len in 0..HEADER_LEN {
            assert_eq!(EthernetHeader::parse(&bytes[..len]), Err(ParseError::Truncated));
        }
    }

    #[test]
    fn groups() {
        // RFC 2464 §7: 33-33 and the last four octets. RFC 1112 §6.4: 01-00-5E and the last 23 bits.
        assert_eq!(Mac::of_multicast("ff02::1:ff00:2".parse().unwrap()).to_string(), "33:33:ff:00:00:02");
        assert_eq!(Mac::of_multicast_v4(Ipv4Addr::new(224, 129, 2, 3)).to_string(), "01:00:5e:01:02:03");
        assert!(Mac::BROADCAST.is_group() && !Mac([2, 0, 0, 0, 0, 1]).is_group());
        assert!(Mac([2, 0, 0, 0, 0, 1]).is_station() && !Mac::default().is_station());
        assert!(!Mac::BROADCAST.is_station());
    }

    #[test]
    fn text() {
        assert_eq!("2:0:ff:0:0:1".parse(), Ok(Mac([2, 0, 255, 0, 0, 1])));
        for wrong in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "02:00:00:00:00:1g",
            "02-00-00-00-00-01",
            "+2:0:0:0:0:1",
        ] {
            assert_eq!(wrong.parse::<Mac>(), Err(MacError), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_back(octets: [u8; 6]) {
            prop_assert_eq!(Mac(octets).to_string().parse(), Ok(Mac(octets)));
        }
    }
}
