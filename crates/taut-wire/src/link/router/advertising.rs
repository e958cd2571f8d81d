//! A router's half: solicitations, read; advertisements, written, with the link's prefixes, its MTU, and name
//! servers (RFC 8106). Called by `taut-ethernet`.

use core::net::{IpAddr, Ipv6Addr};

use super::{ADVERTISE, FIXED_LEN, MTU, PREFIX, PrefixInformation, SOLICIT, SOURCE_MAC, next_option};
use crate::checksum::pseudo_header;
use crate::link::ndp;
use crate::{IpHeader, Mac, ParseError, protocol};

/// RFC 8106 §5.1, §5.2.
const NAME_SERVERS: u8 = 25;
const SEARCH: u8 = 31;
/// RFC 4861 §4.2: addresses by DHCP, and all else.
const MANAGED: u8 = 0xc0;
/// Type, code, checksum, reserved.
const SOLICITATION_FIXED_LEN: usize = 8;

/// Whether an ICMPv6 message is a solicitation.
#[must_use]
pub fn is_solicitation(message: &[u8]) -> bool {
    message.first() == Some(&SOLICIT)
}

/// A host asks for routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterSolicitation {
    /// The host's station, if it says so.
    pub source_mac: Option<Mac>,
}

impl RouterSolicitation {
    /// Parses the payload of the packet that `ip` is the header of, with the checks of RFC 4861 §6.1.1.
    ///
    /// # Errors
    /// [`ParseError::NotFromLink`] for one that a router has forwarded, and the errors of the form.
    pub fn parse(ip: &IpHeader, message: &[u8]) -> Result<Self, ParseError> {
        let IpAddr::V6(src) = ip.src else { return Err(ParseError::Version) };
        if ip.hop_limit != ndp::HOP_LIMIT {
            return Err(ParseError::NotFromLink);
        }
        let (fixed, mut rest) =
            message.split_first_chunk::<SOLICITATION_FIXED_LEN>().ok_or(ParseError::Truncated)?;
        let sum = pseudo_header(ip.src, ip.dst, protocol::ICMPV6, message.len() as u32);
        if sum.add_bytes(message).finish() != 0 {
            return Err(ParseError::Checksum);
        }
        if fixed[..2] != [SOLICIT, 0] {
            return Err(ParseError::Unsupported);
        }
        let mut source_mac = None;
        while !rest.is_empty() {
            let (option, behind) = next_option(rest).ok_or(ParseError::OptionLength)?;
            if let &[SOURCE_MAC, _, a, b, c, d, e, f] = option {
                source_mac = source_mac.or(Some(Mac([a, b, c, d, e, f])));
            }
            rest = behind;
        }
        if src.is_unspecified() && source_mac.is_some() {
            return Err(ParseError::Unsupported);
        }
        Ok(Self { source_mac })
    }
}

/// What a router says of itself and of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertising<'a> {
    /// The hop limit that hosts should use.
    pub hop_limit: u8,
    /// Whether addresses and all else come by DHCP, too (the flags M and O).
    pub managed: bool,
    /// For how many seconds it is a default router.
    pub lifetime_s: u16,
    /// Its station.
    pub mac: Mac,
    /// The MTU that all nodes of the link should use.
    pub mtu: Option<u32>,
    /// Prefixes of the link's addresses.
    pub prefixes: &'a [PrefixInformation],
    /// Name servers, the best first.
    pub name_servers: &'a [Ipv6Addr],
    /// Domains to search, as [`domain::emit`](crate::link::domain::emit) writes names, one behind the other.
    pub search: &'a [u8],
    /// For how many seconds name servers and domains are good.
    pub names_s: u32,
}

impl Advertising<'_> {
    /// Bytes of the message.
    #[must_use]
    pub const fn message_len(&self) -> usize {
        let mtu = if self.mtu.is_some() { 8 } else { 0 };
        let servers = match self.name_servers.len() {
            0 => 0,
            count => 8 + 16 * count,
        };
        let search = match self.search.len() {
            0 => 0,
            len => 8 + len.next_multiple_of(8),
        };
        FIXED_LEN + 8 + mtu + 32 * self.prefixes.len() + servers + search
    }

    /// Writes the message, for a packet between these addresses, to the start of `buf`, and returns its
    /// length: [`message_len`](Self::message_len).
    ///
    /// # Panics
    /// If `buf` is shorter than that, or a list is longer than its option can say (127 servers, 2 KB of
    /// names).
    pub fn emit(&self, buf: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) -> usize {
        let message = &mut buf[..self.message_len()];
        message.fill(0);
        message[0] = ADVERTISE;
        message[4] = self.hop_limit;
        message[5] = if self.managed { MANAGED } else { 0 };
        message[6..8].copy_from_slice(&self.lifetime_s.to_be_bytes());
        let mut rest = &mut message[FIXED_LEN..];
        let mut option = |kind: u8, len: usize| {
            let (option, behind) = core::mem::take(&mut rest).split_at_mut(len);
            rest = behind;
            assert!(len / 8 <= u8::MAX.into(), "an option of {len} bytes");
            option[..2].copy_from_slice(&[kind, (len / 8) as u8]);
            option
        };
        option(SOURCE_MAC, 8)[2..].copy_from_slice(&self.mac.0);
        if let Some(mtu) = self.mtu {
            option(MTU, 8)[4..].copy_from_slice(&mtu.to_be_bytes());
        }
        for info in self.prefixes {
            let place = option(PREFIX, 32);
            let flag = |on, bit| if on { bit } else { 0 };
            place[2] = info.len;
            place[3] = flag(info.on_link, 0x80) | flag(info.autonomous, 0x40);
            place[4..8].copy_from_slice(&info.valid_s.to_be_bytes());
            place[8..12].copy_from_slice(&info.preferred_s.to_be_bytes());
            place[16..].copy_from_slice(&info.prefix.octets());
        }
        if !self.name_servers.is_empty() {
            let place = option(NAME_SERVERS, 8 + 16 * self.name_servers.len());
            place[4..8].copy_from_slice(&self.names_s.to_be_bytes());
            for (place, server) in place[8..].as_chunks_mut::<16>().0.iter_mut().zip(self.name_servers) {
                *place = server.octets();
            }
        }
        if !self.search.is_empty() {
            let place = option(SEARCH, 8 + self.search.len().next_multiple_of(8));
            place[4..8].copy_from_slice(&self.names_s.to_be_bytes());
            place[8..8 + self.search.len()].copy_from_slice(self.search);
        }
        let sum = pseudo_header(src.into(), dst.into(), protocol::ICMPV6, message.len() as u32);
        let checksum = sum.add_bytes(message).finish();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RouterAdvertisement, RouterOption, emit_solicitation};
    use super::*;
    use crate::Ecn;
    use proptest::prelude::*;
    use std::vec::Vec;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn ip(src: &str, dst: &str, hop_limit: u8, payload_len: usize) -> IpHeader {
        let (src, dst) = (v6(src).into(), v6(dst).into());
        IpHeader {
            src,
            dst,
            protocol: protocol::ICMPV6,
            hop_limit,
            ecn: Ecn::NotEct,
            header_len: 40,
            payload_len,
        }
    }

    /// RFC 4861 §4.2, §4.6; RFC 8106 §5.1, §5.2.
    #[test]
    fn vm_10_an_advertisement_byte_for_byte() {
        let info = PrefixInformation {
            prefix: v6("fd74:6175:7400::"),
            len: 64,
            on_link: true,
            autonomous: true,
            valid_s: 86_400,
            preferred_s: 14_400,
        };
        let advertising = Advertising {
            managed: true,
            hop_limit: 64,
            lifetime_s: 1_800,
            mac: MAC,
            mtu: Some(65_520),
            prefixes: &[info],
            name_servers: &[v6("fd74:6175:7400::2")],
            search: b"\x04home\x04arpa\0",
            names_s: 1_800,
        };
        let mut buf = [0xaa; 113];
        let (src, dst) = ("fe80::1", "ff02::1");
        assert_eq!(advertising.emit(&mut buf, v6(src), v6(dst)), 112);
        let options = [
            &[1, 1, 2, 0, 0, 0, 0, 1][..],
            &[5, 1, 0, 0, 0, 0, 0xff, 0xf0],
            &[3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0, 0, 0x38, 0x40, 0, 0, 0, 0],
            &[0xfd, 0x74, 0x61, 0x75, 0x74, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[25, 3, 0, 0, 0, 0, 7, 8],
            &[0xfd, 0x74, 0x61, 0x75, 0x74, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            &[31, 3, 0, 0, 0, 0, 7, 8],
            b"\x04home\x04arpa\0\0\0\0\0\0",
        ]
        .concat();
        assert_eq!(buf[..2], [134, 0]);
        assert_eq!(buf[4..16], [64, 0xc0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(buf[16..112], options[..]);
        assert_eq!(buf[112], 0xaa);
        // The half that a host reads, and the checksum.
        let header = ip(src, dst, 255, 112);
        let read = RouterAdvertisement::parse(&header, &buf[..112]).unwrap();
        assert_eq!((read.hop_limit, read.lifetime_s), (64, 1_800));
        let expected = [RouterOption::SourceMac(MAC), RouterOption::Mtu(65_520), RouterOption::Prefix(info)];
        assert_eq!(read.options().collect::<Vec<_>>(), expected);
        // With nothing to say but the router.
        let bare = Advertising {
            managed: false,
            mtu: None,
            prefixes: &[],
            name_servers: &[],
            search: &[],
            ..advertising
        };
        assert_eq!((bare.emit(&mut buf, v6(src), v6(dst)), buf[5]), (24, 0));
    }

    fn solicitation(src: &str, code: u8, options: &[u8]) -> (IpHeader, Vec<u8>) {
        let mut message = [&[133, code, 0, 0, 0, 0, 0, 0][..], options].concat();
        let header = ip(src, "ff02::2", 255, message.len());
        let sum = pseudo_header(header.src, header.dst, protocol::ICMPV6, message.len() as u32);
        let checksum = sum.add_bytes(&message).finish();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        (header, message)
    }

    /// RFC 4861 §6.1.1, check by check.
    #[test]
    fn vm_11_bogus_solicitations_are_refused() {
        let option = [1, 1, 2, 0, 0, 0, 0, 1];
        let parse = |src: &str, options: &[u8]| {
            let (header, message) = solicitation(src, 0, options);
            RouterSolicitation::parse(&header, &message)
        };
        assert_eq!(parse("fe80::2", &option), Ok(RouterSolicitation { source_mac: Some(MAC) }));
        assert_eq!(parse("fe80::2", &[]), Ok(RouterSolicitation { source_mac: None }));
        assert_eq!(parse("::", &[]), Ok(RouterSolicitation { source_mac: None }));
        assert_eq!(parse("::", &option), Err(ParseError::Unsupported), "nobody has no station");
        for wrong in [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[1, 2, 0, 0, 0, 0, 0, 0], &[14]] {
            assert_eq!(parse("fe80::2", wrong), Err(ParseError::OptionLength), "{wrong:?}");
        }
        let (header, message) = solicitation("fe80::2", 0, &option);
        let forwarded = IpHeader { hop_limit: 254, ..header };
        assert_eq!(RouterSolicitation::parse(&forwarded, &message), Err(ParseError::NotFromLink));
        assert_eq!(RouterSolicitation::parse(&header, &message[..7]), Err(ParseError::Truncated));
        let mut broken = message.clone();
        broken[9] ^= 1;
        assert_eq!(RouterSolicitation::parse(&header, &broken), Err(ParseError::Checksum));
        let (header, message) = solicitation("fe80::2", 1, &option);
        assert_eq!(RouterSolicitation::parse(&header, &message), Err(ParseError::Unsupported), "a code");
        // What a host of ours says.
        let mut buf = [0; 16];
        let len = emit_solicitation(&mut buf, v6("fe80::2"), Some(MAC));
        assert_eq!(
            RouterSolicitation::parse(&ip("fe80::2", "ff02::2", 255, len), &buf[..len]),
            parse("fe80::2", &option)
        );
    }

    proptest! {
        #[test]
        fn any_options_give_a_value_or_an_error(options in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (header, message) = solicitation("fe80::2", 0, &options);
            let _ = RouterSolicitation::parse(&header, &message);
        }
    }
}
