//! DHCP for IPv4 (RFC 2131, RFC 2132): messages of clients and of servers. Called by `taut-ethernet`.
//!
//! ```text
//!   client ── Discover, Request, Decline, Release ──▶ server        DhcpMessage::emit   DhcpAsked::parse
//!          ◀──────────── Offer, Ack, Nak ────────────               DhcpReply::parse    DhcpGrant::emit
//!                                                                    here                serving.rs
//! ```
//!
//! **Problem.** Options are a list that its sender writes: of any length, in any order, said twice, and
//! continued in two fields of the header that were meant for names (option overload). **Rule.** Each of the
//! three fields is read once, in the order of RFC 2132 §9.3; of options that are there twice, the first
//! counts; one of a wrong length is left out, and one that ends behind its field makes the message unusable.

mod serving;

use core::net::Ipv4Addr;

use crate::{Mac, ParseError};

pub use serving::{DhcpAsked, DhcpGrant, DhcpTerms, REPLY_MAX};

/// The ports of UDP (RFC 2131 §4.1).
pub const SERVER_PORT: u16 = 67;
/// The client's.
pub const CLIENT_PORT: u16 = 68;
/// Every message of a client: the least that relays pass on (RFC 1542 §2.1).
pub const MESSAGE_LEN: usize = 300;

/// Fields of the header, by their places (RFC 2131 §2).
const XID: usize = 4;
const SECS: usize = 8;
const CIADDR: usize = 12;
const YIADDR: usize = 16;
const CHADDR: usize = 28;
const SNAME: core::ops::Range<usize> = 44..108;
const FILE: core::ops::Range<usize> = 108..236;
const COOKIE_AT: usize = 236;
const OPTIONS_AT: usize = 240;
/// RFC 2131 §3.
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
/// Hardware type and length of an address: Ethernet.
const ETHERNET: [u8; 2] = [1, 6];

/// Options (RFC 2132, by section).
mod option {
    /// §3.1 and §3.2.
    pub(crate) const PAD: u8 = 0;
    pub(crate) const END: u8 = 255;
    /// §3.3, §3.5, §3.8.
    pub(crate) const MASK: u8 = 1;
    pub(crate) const ROUTERS: u8 = 3;
    pub(crate) const NAME_SERVERS: u8 = 6;
    /// §3.14, §3.17.
    pub(crate) const HOST_NAME: u8 = 12;
    pub(crate) const DOMAIN: u8 = 15;
    /// §5.1.
    pub(crate) const MTU: u8 = 26;
    /// §9.1 to §9.3, §9.6 to §9.8, §9.10 to §9.12, §9.14.
    pub(crate) const REQUESTED: u8 = 50;
    pub(crate) const LEASE: u8 = 51;
    pub(crate) const OVERLOAD: u8 = 52;
    pub(crate) const KIND: u8 = 53;
    pub(crate) const SERVER: u8 = 54;
    pub(crate) const PARAMETERS: u8 = 55;
    pub(crate) const LARGEST: u8 = 57;
    pub(crate) const RENEW: u8 = 58;
    pub(crate) const REBIND: u8 = 59;
    pub(crate) const CLIENT: u8 = 61;
    /// RFC 3397 §2.
    pub(crate) const SEARCH: u8 = 119;
}

/// What a client asks a server to say.
const WANTED: [u8; 6] =
    [option::MASK, option::ROUTERS, option::NAME_SERVERS, option::MTU, option::RENEW, option::REBIND];
/// The longest message that a client takes: what every host must be able to (RFC 2131 §2).
const LARGEST: u16 = 576;

/// What a client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhcpKind {
    /// Who has an address for me?
    Discover,
    /// I want this address, or to keep it.
    Request,
    /// Another station has the address.
    Decline,
    /// I do not need the address any more.
    Release,
    /// I have an address: tell me the rest.
    Inform,
}

impl DhcpKind {
    /// The message type (RFC 2132 §9.6).
    const fn code(self) -> u8 {
        match self {
            Self::Discover => 1,
            Self::Request => 3,
            Self::Decline => 4,
            Self::Release => 7,
            Self::Inform => 8,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Discover,
            3 => Self::Request,
            4 => Self::Decline,
            7 => Self::Release,
            8 => Self::Inform,
            _ => return None,
        })
    }
}

/// A message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DhcpMessage {
    /// What it says.
    pub kind: DhcpKind,
    /// The number of the exchange, which answers repeat.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The client's station, which is its name, too.
    pub station: Mac,
    /// The client's address, if it has one and may use it.
    pub address: Ipv4Addr,
    /// The address that it wants, or declines.
    pub requested: Option<Ipv4Addr>,
    /// The server that it speaks to.
    pub server: Option<Ipv4Addr>,
}

impl DhcpMessage {
    /// Writes the message to the start of `buf`, and returns its length: [`MESSAGE_LEN`].
    ///
    /// # Panics
    /// If `buf` is shorter than that.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let message = &mut buf[..MESSAGE_LEN];
        message.fill(0);
        message[..3].copy_from_slice(&[BOOT_REQUEST, ETHERNET[0], ETHERNET[1]]);
        message[XID..XID + 4].copy_from_slice(&self.xid.to_be_bytes());
        message[SECS..SECS + 2].copy_from_slice(&self.secs.to_be_bytes());
        message[CIADDR..CIADDR + 4].copy_from_slice(&self.address.octets());
        message[CHADDR..CHADDR + 6].copy_from_slice(&self.station.0);
        message[COOKIE_AT..OPTIONS_AT].copy_from_slice(&COOKIE);
        let mut at = OPTIONS_AT;
        let mut put = |code: u8, data: &[&[u8]]| {
            let len: usize = data.iter().map(|piece| piece.len()).sum();
            message[at..at + 2].copy_from_slice(&[code, len as u8]);
            at += 2;
            for piece in data {
                message[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
        };
        put(option::KIND, &[&[self.kind.code()]]);
        put(option::CLIENT, &[&ETHERNET[..1], &self.station.0]);
        if let Some(requested) = self.requested {
            put(option::REQUESTED, &[&requested.octets()]);
        }
        if let Some(server) = self.server {
            put(option::SERVER, &[&server.octets()]);
        }
        if matches!(self.kind, DhcpKind::Discover | DhcpKind::Request) {
            put(option::LARGEST, &[&LARGEST.to_be_bytes()]);
            put(option::PARAMETERS, &[&WANTED]);
        }
        message[at] = option::END;
        MESSAGE_LEN
    }
}

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhcpAnswer {
    /// An address that the client may have.
    Offer,
    /// The client has it.
    Ack,
    /// The client must not use it.
    Nak,
}

/// The first addresses of a list that may be longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FewAddresses {
    list: [Option<Ipv4Addr>; FewAddresses::MAX],
}

impl FewAddresses {
    /// So many are kept.
    pub const MAX: usize = 4;

    /// The addresses, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.list.iter().copied().flatten()
    }
}

impl FromIterator<Ipv4Addr> for FewAddresses {
    fn from_iter<I: IntoIterator<Item = Ipv4Addr>>(all: I) -> Self {
        let mut few = Self::default();
        for (place, address) in few.list.iter_mut().zip(all) {
            *place = Some(address);
        }
        few
    }
}

/// A message of a server. What it says is not checked here, apart from its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DhcpReply {
    /// What it says.
    pub answer: DhcpAnswer,
    /// The number of the exchange.
    pub xid: u32,
    /// The client's station.
    pub station: Mac,
    /// The client's address.
    pub address: Ipv4Addr,
    /// The server.
    pub server: Option<Ipv4Addr>,
    /// The mask of the link's network.
    pub mask: Option<Ipv4Addr>,
    /// Default routers, the best first.
    pub routers: FewAddresses,
    /// Name servers, the best first.
    pub name_servers: FewAddresses,
    /// The link's MTU.
    pub mtu: Option<u16>,
    /// For how many seconds the client has the address; all ones is for ever.
    pub lease_s: Option<u32>,
    /// After how many seconds it should ask its server again (T1).
    pub renew_s: Option<u32>,
    /// After how many it should ask all servers (T2).
    pub rebind_s: Option<u32>,
}

impl DhcpReply {
    /// Parses the payload of a datagram.
    ///
    /// # Errors
    /// [`ParseError::Unsupported`] for what is not a server's answer to a client on Ethernet;
    /// [`ParseError::OptionLength`].
    pub fn parse(message: &[u8]) -> Result<Self, ParseError> {
        let header = message.first_chunk::<OPTIONS_AT>().ok_or(ParseError::Truncated)?;
        if header[0] != BOOT_REPLY || header[1..3] != ETHERNET || header[COOKIE_AT..] != COOKIE {
            return Err(ParseError::Unsupported);
        }
        let word = |at: usize| [0, 1, 2, 3].map(|i| header[at + i]);
        let mut said = Said::default();
        said.read(&message[OPTIONS_AT..])?;
        // RFC 2132 §9.3. What the fields say of further fields is ignored.
        let overload = said.overload.unwrap_or(0);
        if overload & 1 != 0 {
            said.read(&header[FILE])?;
        }
        if overload & 2 != 0 {
            said.read(&header[SNAME])?;
        }
        let answer = match said.kind {
            Some(2) => DhcpAnswer::Offer,
            Some(5) => DhcpAnswer::Ack,
            Some(6) => DhcpAnswer::Nak,
            _ => return Err(ParseError::Unsupported),
        };
        Ok(Self {
            answer,
            xid: u32::from_be_bytes(word(XID)),
            station: Mac([0, 1, 2, 3, 4, 5].map(|i| header[CHADDR + i])),
            address: word(YIADDR).into(),
            server: said.server.map(Ipv4Addr::from_bits),
            mask: said.mask.map(Ipv4Addr::from_bits),
            routers: said.routers.unwrap_or_default(),
            name_servers: said.name_servers.unwrap_or_default(),
            mtu: said.mtu,
            lease_s: said.lease,
            renew_s: said.renew,
            rebind_s: said.rebind,
        })
    }
}

/// What the options said so far.
#[derive(Default)]
struct Said {
    kind: Option<u8>,
    overload: Option<u8>,
    server: Option<u32>,
    mask: Option<u32>,
    routers: Option<FewAddresses>,
    name_servers: Option<FewAddresses>,
    mtu: Option<u16>,
    lease: Option<u32>,
    renew: Option<u32>,
    rebind: Option<u32>,
}

impl Said {
    /// Reads the options of a field, up to its end.
    fn read(&mut self, field: &[u8]) -> Result<(), ParseError> {
        each_option(field, &mut |code, data| self.note(code, data))
    }

    fn note(&mut self, code: u8, data: &[u8]) {
        match code {
            option::KIND => first(&mut self.kind, byte(data)),
            option::OVERLOAD => first(&mut self.overload, byte(data)),
            option::SERVER => first(&mut self.server, long(data)),
            option::MASK => first(&mut self.mask, long(data)),
            option::ROUTERS => first(&mut self.routers, few(data)),
            option::NAME_SERVERS => first(&mut self.name_servers, few(data)),
            option::MTU => first(&mut self.mtu, data.try_into().ok().map(u16::from_be_bytes)),
            option::LEASE => first(&mut self.lease, long(data)),
            option::RENEW => first(&mut self.renew, long(data)),
            option::REBIND => first(&mut self.rebind, long(data)),
            _ => {}
        }
    }
}

/// Names each option of a field, up to its end.
fn each_option<'a>(mut field: &'a [u8], note: &mut impl FnMut(u8, &'a [u8])) -> Result<(), ParseError> {
    while let Some((&code, rest)) = field.split_first() {
        field = match code {
            option::PAD => rest,
            option::END => return Ok(()),
            _ => {
                let (&len, rest) = rest.split_first().ok_or(ParseError::OptionLength)?;
                let (data, rest) = rest.split_at_checked(len.into()).ok_or(ParseError::OptionLength)?;
                note(code, data);
                rest
            }
        };
    }
    Ok(())
}

fn first<T>(place: &mut Option<T>, value: Option<T>) {
    if place.is_none() {
        *place = value;
    }
}

fn byte(data: &[u8]) -> Option<u8> {
    <[u8; 1]>::try_from(data).ok().map(|[byte]| byte)
}

fn long(data: &[u8]) -> Option<u32> {
    data.try_into().ok().map(u32::from_be_bytes)
}

/// A list of addresses: one at least (RFC 2132 §3.5).
fn few(data: &[u8]) -> Option<FewAddresses> {
    let (addresses, rest) = data.as_chunks::<4>();
    (rest.is_empty() && !addresses.is_empty())
        .then(|| addresses.iter().map(|octets| Ipv4Addr::from(*octets)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const STATION: Mac = Mac([2, 0, 0, 0, 0, 2]);

    /// A server's message: the header of RFC 2131 §2 field by field, then options.
    fn reply(options: &[u8]) -> Vec<u8> {
        let mut message = vec![2, 1, 6, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0];
        message.extend([10, 9, 0, 2, 10, 9, 0, 1, 0, 0, 0, 0]);
        message.extend([2, 0, 0, 0, 0, 2]);
        message.resize(236, 0);
        message.extend([99, 130, 83, 99]);
        message.extend(options);
        message
    }

    fn v4(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    /// RFC 2131 §2, figure 1, and RFC 2132 §9.6, §9.14, §9.1, §9.7, §9.10, §9.8.
    #[test]
    fn dhcp_01_messages_byte_for_byte() {
        let message = DhcpMessage {
            kind: DhcpKind::Request,
            xid: 0x1234_5678,
            secs: 0x0102,
            station: STATION,
            address: v4("10.9.0.9"),
            requested: Some(v4("10.9.0.2")),
            server: Some(v4("10.9.0.1")),
        };
        let mut buf = [0xaa; MESSAGE_LEN + 1];
        assert_eq!(message.emit(&mut buf), 300);
        let mut expected = vec![1, 1, 6, 0, 0x12, 0x34, 0x56, 0x78, 1, 2, 0, 0, 10, 9, 0, 9];
        expected.resize(28, 0);
        expected.extend([2, 0, 0, 0, 0, 2]);
        expected.resize(236, 0);
        expected.extend([99, 130, 83, 99, 53, 1, 3, 61, 7, 1, 2, 0, 0, 0, 0, 2]);
        expected.extend([50, 4, 10, 9, 0, 2, 54, 4, 10, 9, 0, 1]);
        expected.extend([57, 2, 2, 64, 55, 6, 1, 3, 6, 26, 58, 59, 255]);
        expected.resize(300, 0);
        expected.push(0xaa);
        assert_eq!(buf[..], expected[..]);
        for (kind, code) in [(DhcpKind::Discover, 1), (DhcpKind::Decline, 4), (DhcpKind::Release, 7)] {
            DhcpMessage { kind, ..message }.emit(&mut buf);
            assert_eq!(buf[240..243], [53, 1, code]);
        }
    }

    #[test]
    fn dhcp_01_an_answer_with_all_that_a_client_needs() {
        let mut options = vec![0, 53, 1, 5, 54, 4, 10, 9, 0, 1, 51, 4, 0, 0, 14, 16, 58, 4, 0, 0, 7, 8];
        options
            .extend([59, 4, 0, 0, 12, 78, 1, 4, 255, 255, 255, 0, 26, 2, 5, 0x78, 12, 3, b'a', b'b', b'c']);
        options.extend([3, 8, 10, 9, 0, 1, 10, 9, 0, 3]);
        options.extend([6, 20, 9, 9, 9, 1, 9, 9, 9, 2, 9, 9, 9, 3, 9, 9, 9, 4, 9, 9, 9, 5, 255, 53, 1, 6]);
        let parsed = DhcpReply::parse(&reply(&options)).unwrap();
        let expected = DhcpReply {
            answer: DhcpAnswer::Ack,
            xid: 0x1234_5678,
            station: STATION,
            address: v4("10.9.0.2"),
            server: Some(v4("10.9.0.1")),
            mask: Some(v4("255.255.255.0")),
            routers: [v4("10.9.0.1"), v4("10.9.0.3")].into_iter().collect(),
            name_servers: [1, 2, 3, 4].map(|n| Ipv4Addr::new(9, 9, 9, n)).into_iter().collect(),
            mtu: Some(1_400),
            lease_s: Some(3_600),
            renew_s: Some(1_800),
            rebind_s: Some(3_150),
        };
        assert_eq!(parsed, expected);
    }

    #[test]
    fn dhcp_02_what_is_no_answer_is_refused() {
        let good = reply(&[53, 1, 2, 255]);
        assert!(DhcpReply::parse(&good).is_ok());
        // A request, another kind of link, another length of addresses, no cookie.
        for (at, value) in [(0, 1), (1, 6), (2, 8), (236, 0)] {
            let mut message = good.clone();
            message[at] = value;
            assert_eq!(DhcpReply::parse(&message), Err(ParseError::Unsupported), "{at}");
        }
        for len in 0..240 {
            assert_eq!(DhcpReply::parse(&good[..len]), Err(ParseError::Truncated));
        }
        // No type, a client's type, a type of two bytes; options that end behind the message.
        for options in [&[255][..], &[53, 1, 3], &[53, 2, 2, 2]] {
            assert_eq!(DhcpReply::parse(&reply(options)), Err(ParseError::Unsupported), "{options:?}");
        }
        for options in [&[53, 1, 2, 51][..], &[53, 1, 2, 51, 4, 0, 0, 0], &[53, 1, 2, 1, 255]] {
            assert_eq!(DhcpReply::parse(&reply(options)), Err(ParseError::OptionLength), "{options:?}");
        }
    }

    /// RFC 2132 §9.3: the fields for names may have options, each field is read once, and says nothing of
    /// others.
    #[test]
    fn dhcp_02_options_in_other_fields_and_said_twice() {
        let with = |overload: u8, file: &[u8], sname: &[u8]| {
            let mut message = reply(&[52, 1, overload, 51, 4, 0, 0, 0, 60, 51, 4, 0, 0, 0, 90, 255]);
            message[108..108 + file.len()].copy_from_slice(file);
            message[44..44 + sname.len()].copy_from_slice(sname);
            DhcpReply::parse(&message)
        };
        let offer = [53, 1, 2, 255];
        assert_eq!(with(1, &offer, &[]).unwrap().lease_s, Some(60), "the first counts");
        assert_eq!(with(2, &[], &offer).unwrap().answer, DhcpAnswer::Offer);
        assert_eq!(
            with(3, &[53, 1, 5, 255], &offer).unwrap().answer,
            DhcpAnswer::Ack,
            "the file's are first"
        );
        assert_eq!(with(2, &offer, &[]), Err(ParseError::Unsupported), "not said to have options");
        assert_eq!(
            with(1, &[52, 1, 2, 255], &offer),
            Err(ParseError::Unsupported),
            "one field refers to another"
        );
        // Wrong lengths of lists and numbers: left out.
        let parsed =
            DhcpReply::parse(&reply(&[53, 1, 2, 3, 5, 1, 2, 3, 4, 5, 6, 0, 26, 1, 5, 1, 3, 1, 1, 1]));
        let parsed = parsed.unwrap();
        assert_eq!((parsed.routers, parsed.name_servers), Default::default());
        assert_eq!((parsed.mtu, parsed.mask), (None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(options in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut whole = vec![53, 1, 2];
            whole.extend(&options);
            _ = DhcpReply::parse(&reply(&whole));
            _ = DhcpReply::parse(&options);
        }
    }
}
