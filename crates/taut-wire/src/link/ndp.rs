//! Neighbour solicitations and advertisements (RFC 4861 §4.3, §4.4): which station has an IPv6 address.
//! Called by `taut-ethernet`. Routers' messages and redirects are not read.

use core::net::{IpAddr, Ipv6Addr};

use crate::checksum::pseudo_header;
use crate::{IpHeader, Mac, ParseError, Sum, protocol};

/// ICMPv6 types.
const SOLICIT: u8 = 135;
const ADVERTISE: u8 = 136;
/// Options: source and target link-layer address (§4.6.1).
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;
/// Type, code, checksum, flags, target.
const FIXED_LEN: usize = 24;
/// With the option of an Ethernet address.
pub const LEN: usize = FIXED_LEN + 8;
/// A packet from another link has a smaller one, because routers decrement it (§7.1).
pub const HOP_LIMIT: u8 = 255;

const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// A message about one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ndp {
    /// Which station has the address?
    Solicit {
        /// The address.
        target: Ipv6Addr,
        /// The station that asks, if it says so.
        source_mac: Option<Mac>,
    },
    /// A station has the address.
    Advertise {
        /// The address.
        target: Ipv6Addr,
        /// The sender is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It takes the place of what is known.
        overrides: bool,
        /// The station; an answer to a unicast solicitation may leave it out.
        target_mac: Option<Mac>,
    },
}

/// The group of which every host with this address is a member (RFC 4291 §2.7.1).
#[must_use]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, (b as u16) << 8 | c as u16)
}

/// Whether an ICMPv6 message is one of the two.
#[must_use]
pub fn is_neighbour_message(message: &[u8]) -> bool {
    matches!(message.first(), Some(&(SOLICIT | ADVERTISE)))
}

impl Ndp {
    /// Parses the payload of the packet that `ip` is the header of, with the checks of RFC 4861 §7.1.
    ///
    /// # Errors
    /// [`ParseError::Unsupported`] for other messages; [`ParseError::NotFromLink`] for one that a router has
    /// forwarded.
    pub fn parse(ip: &IpHeader, message: &[u8]) -> Result<Self, ParseError> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else { return Err(ParseError::Version) };
        if ip.hop_limit != HOP_LIMIT {
            return Err(ParseError::NotFromLink);
        }
        let (fixed, options) = message.split_first_chunk::<FIXED_LEN>().ok_or(ParseError::Truncated)?;
        let sum = pseudo_header(ip.src, ip.dst, protocol::ICMPV6, message.len() as u32);
        if sum.add_bytes(message).finish() != 0 {
            return Err(ParseError::Checksum);
        }
        let &[kind, code, _, _, flags, _, _, _, ..] = fixed;
        let target = fixed.last_chunk().map(|octets| Ipv6Addr::from(*octets)).ok_or(ParseError::Truncated)?;
        if code != 0 || target.is_multicast() {
            return Err(ParseError::Unsupported);
        }
        match kind {
            SOLICIT => {
                let source_mac = mac_option(options, SOURCE_MAC)?;
                // §7.1.1: one that looks for its own address goes to the group of the address, and says no
                // station.
                if src.is_unspecified() && (dst != solicited_node(target) || source_mac.is_some()) {
                    return Err(ParseError::Unsupported);
                }
                Ok(Self::Solicit { target, source_mac })
            }
            ADVERTISE => {
                let solicited = flags & SOLICITED != 0;
                // §7.1.2.
                if dst.is_multicast() && solicited {
                    return Err(ParseError::Unsupported);
                }
                let target_mac = mac_option(options, TARGET_MAC)?;
                let (router, overrides) = (flags & ROUTER != 0, flags & OVERRIDE != 0);
                Ok(Self::Advertise { target, router, solicited, overrides, target_mac })
            }
            _ => Err(ParseError::Unsupported),
        }
    }

    /// Writes the message, for a packet between these addresses, to the start of `buf`, and returns its
    /// length: at most [`LEN`].
    ///
    /// # Panics
    /// If `buf` is shorter than that.
    pub fn emit(&self, buf: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) -> usize {
        let (kind, flags, target, option, mac) = match *self {
            Self::Solicit { target, source_mac } => (SOLICIT, 0, target, SOURCE_MAC, source_mac),
            Self::Advertise { target, router, solicited, overrides, target_mac } => {
                let flag = |on, bit| if on { bit } else { 0 };
                let flags = flag(router, ROUTER) | flag(solicited, SOLICITED) | flag(overrides, OVERRIDE);
                (ADVERTISE, flags, target, TARGET_MAC, target_mac)
            }
        };
        let message = &mut buf[..if mac.is_some() { LEN } else { FIXED_LEN }];
        message[..8].copy_from_slice(&[kind, 0, 0, 0, flags, 0, 0, 0]);
        message[8..FIXED_LEN].copy_from_slice(&target.octets());
        if let Some(Mac(octets)) = mac {
            message[FIXED_LEN..FIXED_LEN + 2].copy_from_slice(&[option, 1]);
            message[FIXED_LEN + 2..].copy_from_slice(&octets);
        }
        let sum: Sum = pseudo_header(src.into(), dst.into(), protocol::ICMPV6, message.len() as u32);
        let checksum = sum.add_bytes(message).finish();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message.len()
    }
}

/// The station in the first option of a kind. Every option has a length, in units of eight bytes, that is not
/// 0 (§4.6).
fn mac_option(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, ParseError> {
    let mut found = None;
    while let Some(&[kind, units]) = options.first_chunk() {
        let len = usize::from(units) * 8;
        if len == 0 {
            return Err(ParseError::OptionLength);
        }
        let (option, rest) = options.split_at_checked(len).ok_or(ParseError::OptionLength)?;
        if kind == wanted
            && let &[_, _, a, b, c, d, e, f] = option
        {
            found = found.or(Some(Mac([a, b, c, d, e, f])));
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(ParseError::OptionLength) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use proptest::prelude::*;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn ip(src: Ipv6Addr, dst: Ipv6Addr, payload_len: usize) -> IpHeader {
        IpHeader {
            src: src.into(),
            dst: dst.into(),
            protocol: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            ecn: Ecn::NotEct,
            header_len: 40,
            payload_len,
        }
    }

    fn reparsed(message: Ndp, src: Ipv6Addr, dst: Ipv6Addr) -> Result<Ndp, ParseError> {
        let mut buf = [0xaa; LEN];
        let len = message.emit(&mut buf, src, dst);
        Ndp::parse(&ip(src, dst, len), &buf[..len])
    }

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    #[test]
    fn layout() {
        // RFC 4861 §4.3 and §4.6.1, RFC 2464 §6; the checksum is summed by hand: fd09::1 and ff02::1:ff00:2
        // (0xfd09+1, 0xff02+1+0xff00+2), 32 + 58, and the message.
        let (src, dst, target) = (v6("fd09::1"), v6("ff02::1:ff00:2"), v6("fd09::2"));
        let solicit = Ndp::Solicit { target, source_mac: Some(MAC) };
        let mut buf = [0; LEN];
        assert_eq!(solicit.emit(&mut buf, src, dst), LEN);
        let words =
            [0xfd09, 1, 0xff02, 1, 0xff00, 2, 32, 58, 0x8700, 0xfd09, 2, 0x0101, 0x0200, 0, 0x0001u32];
        let sum = words.iter().sum::<u32>();
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let mut expected = [0; LEN];
        expected[0] = 135;
        expected[2..4].copy_from_slice(&checksum.to_be_bytes());
        expected[8..24].copy_from_slice(&target.octets());
        expected[24..].copy_from_slice(&[1, 1, 2, 0, 0, 0, 0, 1]);
        assert_eq!(buf, expected);
        assert_eq!(Ndp::parse(&ip(src, dst, LEN), &buf), Ok(solicit));
        assert_eq!(solicited_node(v6("fd09::ab12:cdef")), v6("ff02::1:ff12:cdef"));
    }

    #[test]
    fn the_checks_of_rfc_4861() {
        let (src, dst, target) = (v6("fd09::1"), v6("fd09::2"), v6("fd09::2"));
        let solicit = |source_mac| Ndp::Solicit { target, source_mac };
        let advertise = |solicited| Ndp::Advertise {
            target,
            router: false,
            solicited,
            overrides: true,
            target_mac: Some(MAC),
        };
        let mut buf = [0; LEN];
        let len = solicit(Some(MAC)).emit(&mut buf, src, dst);
        let forwarded = IpHeader { hop_limit: 254, ..ip(src, dst, len) };
        assert_eq!(Ndp::parse(&forwarded, &buf), Err(ParseError::NotFromLink));
        buf[20] ^= 1;
        assert_eq!(Ndp::parse(&ip(src, dst, len), &buf), Err(ParseError::Checksum));
        // §7.1.1: from nobody, to the group of the address and without a station.
        let nobody = Ipv6Addr::UNSPECIFIED;
        assert_eq!(reparsed(solicit(None), nobody, solicited_node(target)), Ok(solicit(None)));
        assert_eq!(reparsed(solicit(None), nobody, dst), Err(ParseError::Unsupported));
        assert_eq!(
            reparsed(solicit(Some(MAC)), nobody, solicited_node(target)),
            Err(ParseError::Unsupported)
        );
        // §7.1.2: a group solicits nothing.
        assert_eq!(reparsed(advertise(true), src, v6("ff02::1")), Err(ParseError::Unsupported));
        assert_eq!(reparsed(advertise(false), src, v6("ff02::1")), Ok(advertise(false)));
        // A group is no target.
        let group = Ndp::Solicit { target: v6("ff02::1"), source_mac: None };
        assert_eq!(reparsed(group, src, dst), Err(ParseError::Unsupported));
    }

    /// Appends options to a solicitation, with a right checksum.
    fn with_options(options: &[u8]) -> Result<Ndp, ParseError> {
        let (src, dst) = (v6("fd09::1"), v6("fd09::2"));
        let mut message = std::vec![0; FIXED_LEN];
        Ndp::Solicit { target: dst, source_mac: None }.emit(&mut message, src, dst);
        message.extend_from_slice(options);
        message[2..4].fill(0);
        let sum = pseudo_header(src.into(), dst.into(), protocol::ICMPV6, message.len() as u32);
        let checksum = sum.add_bytes(&message).finish();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        Ndp::parse(&ip(src, dst, message.len()), &message)
    }

    #[test]
    fn options() {
        let target = v6("fd09::2");
        let nonce = [14, 1, 0, 0, 0, 0, 0, 0];
        let mac = [1, 1, 2, 0, 0, 0, 0, 1];
        assert_eq!(with_options(&[nonce, mac].concat()), Ok(Ndp::Solicit { target, source_mac: Some(MAC) }));
        // Of another kind of link: two units long.
        assert_eq!(
            with_options(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Ok(Ndp::Solicit { target, source_mac: None })
        );
        for wrong in [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[1, 2, 0, 0, 0, 0, 0, 0], &[1]] {
            assert_eq!(with_options(wrong), Err(ParseError::OptionLength), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_options_give_a_value_or_an_error(options in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = with_options(&options);
        }
    }
}
