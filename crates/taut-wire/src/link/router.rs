//! Router solicitations and advertisements (RFC 4861 §4.1, §4.2): which routers a link has, and which
//! prefixes its addresses. Called by `taut-ethernet`. A host's half; that of a router is in `advertising.rs`.

mod advertising;

use core::net::{IpAddr, Ipv6Addr};

use crate::checksum::pseudo_header;
use crate::link::ndp;
use crate::{IpHeader, Mac, ParseError, protocol};

pub use advertising::{Advertising, RouterSolicitation, is_solicitation};

/// ICMPv6 types.
const SOLICIT: u8 = 133;
const ADVERTISE: u8 = 134;
/// Options (§4.6; RFC 4861, RFC 4191).
const SOURCE_MAC: u8 = 1;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
/// Type, code, checksum, hop limit, flags, lifetime, reachable time, retransmission timer.
const FIXED_LEN: usize = 16;
/// A solicitation with a station.
pub const SOLICITATION_LEN: usize = 16;
/// Every router on the link (RFC 4291 §2.7.1).
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// What a router says of itself; its options say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterAdvertisement<'a> {
    /// The hop limit that hosts should use; 0 if it does not say.
    pub hop_limit: u8,
    /// For how many seconds it is a default router; 0 if it is none.
    pub lifetime_s: u16,
    /// Checked: each has a length.
    options: &'a [u8],
}

/// An option of an advertisement that hosts need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterOption {
    /// The router's station.
    SourceMac(Mac),
    /// A prefix of the link's addresses.
    Prefix(PrefixInformation),
    /// The MTU that all nodes of the link should use.
    Mtu(u32),
}

/// A prefix (§4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// The prefix; bits beyond its length mean nothing.
    pub prefix: Ipv6Addr,
    /// Its bits, 128 at most.
    pub len: u8,
    /// Its addresses are on the link.
    pub on_link: bool,
    /// Hosts may make addresses of it.
    pub autonomous: bool,
    /// Seconds for which it is valid; all ones is for ever.
    pub valid_s: u32,
    /// Seconds for which its addresses are preferred; all ones is for ever.
    pub preferred_s: u32,
}

/// Whether an ICMPv6 message is an advertisement.
#[must_use]
pub fn is_advertisement(message: &[u8]) -> bool {
    message.first() == Some(&ADVERTISE)
}

impl<'a> RouterAdvertisement<'a> {
    /// Parses the payload of the packet that `ip` is the header of, with the checks of RFC 4861 §6.1.2.
    ///
    /// # Errors
    /// [`ParseError::NotFromLink`] for one that a router has forwarded, or whose sender is not of the link.
    pub fn parse(ip: &IpHeader, message: &'a [u8]) -> Result<Self, ParseError> {
        let IpAddr::V6(src) = ip.src else { return Err(ParseError::Version) };
        if ip.hop_limit != ndp::HOP_LIMIT || !src.is_unicast_link_local() {
            return Err(ParseError::NotFromLink);
        }
        let (fixed, options) = message.split_first_chunk::<FIXED_LEN>().ok_or(ParseError::Truncated)?;
        let sum = pseudo_header(ip.src, ip.dst, protocol::ICMPV6, message.len() as u32);
        if sum.add_bytes(message).finish() != 0 {
            return Err(ParseError::Checksum);
        }
        let &[kind, code, _, _, hop_limit, _, high, low, ..] = fixed;
        if kind != ADVERTISE || code != 0 {
            return Err(ParseError::Unsupported);
        }
        let mut rest = options;
        while !rest.is_empty() {
            rest = next_option(rest).ok_or(ParseError::OptionLength)?.1;
        }
        Ok(Self { hop_limit, lifetime_s: u16::from_be_bytes([high, low]), options })
    }

    /// The options that hosts need, in their order. Those of a wrong length are left out.
    pub fn options(&self) -> impl Iterator<Item = RouterOption> + 'a {
        let mut rest = self.options;
        core::iter::from_fn(move || {
            let (option, behind) = next_option(rest)?;
            rest = behind;
            Some(RouterOption::parse(option))
        })
        .flatten()
    }
}

/// An option, and what follows it. A length, in units of eight bytes, is not 0 (§4.6).
fn next_option(options: &[u8]) -> Option<(&[u8], &[u8])> {
    let &[_, units] = options.first_chunk()?;
    if units == 0 {
        return None;
    }
    options.split_at_checked(usize::from(units) * 8)
}

impl RouterOption {
    fn parse(option: &[u8]) -> Option<Self> {
        let word = |at: usize| option.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        match (option.first()?, option.len()) {
            (&SOURCE_MAC, 8) => {
                let octets = option.last_chunk::<6>()?;
                Some(Self::SourceMac(Mac(*octets)))
            }
            (&MTU, 8) => word(4).map(Self::Mtu),
            (&PREFIX, 32) => {
                const ON_LINK: u8 = 0x80;
                const AUTONOMOUS: u8 = 0x40;
                let (len, flags) = (*option.get(2)?, *option.get(3)?);
                let prefix = Ipv6Addr::from(*option.last_chunk::<16>()?);
                (len <= 128).then_some(Self::Prefix(PrefixInformation {
                    prefix,
                    len,
                    on_link: flags & ON_LINK != 0,
                    autonomous: flags & AUTONOMOUS != 0,
                    valid_s: word(4)?,
                    preferred_s: word(8)?,
                }))
            }
            _ => None,
        }
    }
}

/// Writes a solicitation from `src` to all routers to the start of `buf`, and returns its length: at most
/// [`SOLICITATION_LEN`]. A host without an address leaves its station out (§4.1).
///
/// # Panics
/// If `buf` is shorter than that.
pub fn emit_solicitation(buf: &mut [u8], src: Ipv6Addr, station: Option<Mac>) -> usize {
    let message = &mut buf[..if station.is_some() { SOLICITATION_LEN } else { 8 }];
    message[..8].copy_from_slice(&[SOLICIT, 0, 0, 0, 0, 0, 0, 0]);
    if let Some(Mac(octets)) = station {
        message[8..10].copy_from_slice(&[SOURCE_MAC, 1]);
        message[10..].copy_from_slice(&octets);
    }
    let sum = pseudo_header(src.into(), ALL_ROUTERS.into(), protocol::ICMPV6, message.len() as u32);
    let checksum = sum.add_bytes(message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn ip(src: &str, hop_limit: u8, payload_len: usize) -> IpHeader {
        IpHeader {
            src: v6(src).into(),
            dst: v6("ff02::1").into(),
            protocol: protocol::ICMPV6,
            hop_limit,
            ecn: Ecn::NotEct,
            header_len: 40,
            payload_len,
        }
    }

    /// An advertisement from fe80::1 with a right checksum.
    fn advertisement(fixed: [u8; 16], options: &[u8]) -> Vec<u8> {
        let mut message = [&fixed[..], options].concat();
        message[2..4].fill(0);
        let ip = ip("fe80::1", 255, message.len());
        let sum = pseudo_header(ip.src, ip.dst, protocol::ICMPV6, message.len() as u32);
        let checksum = sum.add_bytes(&message).finish();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message
    }

    /// Hop limit 64, flag M, 1800 s, reachable time 30,000 ms.
    const FIXED: [u8; 16] = [134, 0, 0, 0, 64, 0x80, 7, 8, 0, 0, 0x75, 0x30, 0, 0, 0, 0];
    /// 2001:db8::/64, on the link and autonomous, 2,592,000 s and 604,800 s (the defaults of RFC 4861
    /// §6.2.1).
    const PREFIX_64: [u8; 32] = [
        3, 4, 64, 0xc0, 0, 0x27, 0x8d, 0, 0, 9, 0x3a, 0x80, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn slaac_01_layout() {
        let (mac, mtu) = ([1, 1, 2, 0, 0, 0, 0, 1], [5, 1, 0, 0, 0, 0, 5, 0xdc]);
        let other = [25, 3, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let message = advertisement(FIXED, &[&mac[..], &other, &mtu, &PREFIX_64].concat());
        let parsed = RouterAdvertisement::parse(&ip("fe80::1", 255, message.len()), &message).unwrap();
        assert_eq!((parsed.hop_limit, parsed.lifetime_s), (64, 1_800));
        let prefix = PrefixInformation {
            prefix: v6("2001:db8::"),
            len: 64,
            on_link: true,
            autonomous: true,
            valid_s: 2_592_000,
            preferred_s: 604_800,
        };
        let expected = [
            RouterOption::SourceMac(Mac([2, 0, 0, 0, 0, 1])),
            RouterOption::Mtu(1_500),
            RouterOption::Prefix(prefix),
        ];
        assert_eq!(parsed.options().collect::<Vec<_>>(), expected);
    }

    /// RFC 4861 §6.1.2, check by check.
    #[test]
    fn slaac_02_bogus_advertisements_are_refused() {
        let message = advertisement(FIXED, &PREFIX_64);
        let parse = |ip: IpHeader, message: &[u8]| RouterAdvertisement::parse(&ip, message).map(|_| ());
        let len = message.len();
        assert_eq!(parse(ip("fe80::1", 255, len), &message), Ok(()));
        assert_eq!(parse(ip("fe80::1", 254, len), &message), Err(ParseError::NotFromLink), "forwarded");
        assert_eq!(
            parse(ip("2001:db8::1", 255, len), &message),
            Err(ParseError::NotFromLink),
            "a global sender"
        );
        assert_eq!(parse(ip("::", 255, len), &message), Err(ParseError::NotFromLink), "nobody");
        let mut broken = message.clone();
        broken[20] ^= 1;
        assert_eq!(parse(ip("fe80::1", 255, len), &broken), Err(ParseError::Checksum));
        let with_code = advertisement([134, 1, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
        assert_eq!(parse(ip("fe80::1", 255, 16), &with_code), Err(ParseError::Unsupported));
        for wrong in [&[3, 0, 0, 0, 0, 0, 0, 0][..], &[3, 5, 64, 0xc0], &[5]] {
            let message = advertisement(FIXED, wrong);
            let parsed = parse(ip("fe80::1", 255, message.len()), &message);
            assert_eq!(parsed, Err(ParseError::OptionLength), "{wrong:?}");
        }
        // A prefix of 129 bits, and one with too few bytes, are no prefixes; the rest counts.
        let mut long = PREFIX_64;
        long[2] = 129;
        let message = advertisement(FIXED, &[&long[..], &[3, 1, 64, 0xc0, 0, 0, 0, 1], &PREFIX_64].concat());
        let parsed = RouterAdvertisement::parse(&ip("fe80::1", 255, message.len()), &message).unwrap();
        assert_eq!(parsed.options().count(), 1);
    }

    #[test]
    fn slaac_03_a_solicitation_byte_for_byte() {
        // RFC 4861 §4.1; the checksum is summed by hand: fe80::2 and ff02::2, 16 + 58, and the message.
        let mut buf = [0xaa; SOLICITATION_LEN];
        assert_eq!(emit_solicitation(&mut buf, v6("fe80::2"), Some(Mac([2, 0, 0, 0, 0, 2]))), 16);
        let sum = [0xfe80, 2, 0xff02, 2, 16, 58, 0x8500, 0x0101, 0x0200, 0, 2_u32].iter().sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        let [high, low] = (!(folded as u16)).to_be_bytes();
        assert_eq!(buf, [133, 0, high, low, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 2]);
        assert_eq!(emit_solicitation(&mut buf, Ipv6Addr::UNSPECIFIED, None), 8);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(options in proptest::collection::vec(any::<u8>(), 0..200)) {
            let message = advertisement(FIXED, &options);
            if let Ok(parsed) = RouterAdvertisement::parse(&ip("fe80::1", 255, message.len()), &message) {
                prop_assert!(parsed.options().count() <= options.len() / 8);
            }
        }
    }
}
