//! The server's half of DHCP: requests are read, answers written. Called by `taut-ethernet`.
//!
//! **Problem.** The options of an answer have no fixed length: a client's identifier has up to 255 bytes, a
//! list of domains more, and a message that every client takes has room for 308 (RFC 2131 §2). **Rule.** They
//! are written in the order of what a client can least do without, and one that has no room is left out.

use core::net::Ipv4Addr;

use super::{
    BOOT_REPLY, BOOT_REQUEST, CHADDR, CIADDR, COOKIE, COOKIE_AT, DhcpAnswer, DhcpKind, ETHERNET, FILE,
    OPTIONS_AT, SNAME, XID, YIADDR, byte, each_option, first, long, option,
};
use crate::link::domain;
use crate::{Mac, ParseError};

/// The longest answer: what every client takes (RFC 2131 §2), without the headers of IP and UDP.
pub const REPLY_MAX: usize = 576 - 20 - 8;
/// The shortest, as a client's: the least that a BOOTP client takes (RFC 1542 §2.1).
const REPLY_MIN: usize = 300;
/// RFC 2131 §2, figure 2: the client cannot take an answer to an address that it does not have yet.
const FLAGS: usize = 10;
const BROADCAST: u8 = 0x80;
/// The address of the server from which a client boots.
const SIADDR: usize = 20;
/// The address of a relay.
const GIADDR: usize = 24;

/// What a client says, as a server reads it. It is not checked here, apart from its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DhcpAsked<'a> {
    /// What it says.
    pub kind: DhcpKind,
    /// The number of the exchange.
    pub xid: u32,
    /// Answers must go to everybody.
    pub broadcast: bool,
    /// The client's station.
    pub station: Mac,
    /// The client's address, if it has one and may use it.
    pub address: Ipv4Addr,
    /// The relay that has passed the message on; unspecified if none has.
    pub relay: Ipv4Addr,
    /// The address that it wants, or declines.
    pub requested: Option<Ipv4Addr>,
    /// The server that it speaks to.
    pub server: Option<Ipv4Addr>,
    /// Its identifier; empty if it does not say.
    pub client: &'a [u8],
    /// Its host's name, as it was sent; empty if it does not say.
    pub name: &'a [u8],
}

impl<'a> DhcpAsked<'a> {
    /// Parses the payload of a datagram.
    ///
    /// # Errors
    /// [`ParseError::Unsupported`] for what is no message of a client on Ethernet;
    /// [`ParseError::OptionLength`].
    pub fn parse(message: &'a [u8]) -> Result<Self, ParseError> {
        let header = message.first_chunk::<OPTIONS_AT>().ok_or(ParseError::Truncated)?;
        if header[0] != BOOT_REQUEST || header[1..3] != ETHERNET || header[COOKIE_AT..] != COOKIE {
            return Err(ParseError::Unsupported);
        }
        let (mut kind, mut overload, mut requested, mut server) = (None, None, None, None);
        let (mut client, mut name) = (None, None);
        let mut note = |code: u8, data: &'a [u8]| match code {
            option::KIND => first(&mut kind, byte(data)),
            option::OVERLOAD => first(&mut overload, byte(data)),
            option::REQUESTED => first(&mut requested, long(data)),
            option::SERVER => first(&mut server, long(data)),
            option::CLIENT => first(&mut client, (data.len() >= 2).then_some(data)),
            option::HOST_NAME => first(&mut name, Some(data)),
            _ => {}
        };
        each_option(&message[OPTIONS_AT..], &mut note)?;
        // RFC 2132 §9.3: only the options say whether the fields are read, too.
        let fields = overload.unwrap_or(0);
        let mut note = |code: u8, data: &'a [u8]| match code {
            option::KIND => first(&mut kind, byte(data)),
            option::REQUESTED => first(&mut requested, long(data)),
            option::SERVER => first(&mut server, long(data)),
            option::CLIENT => first(&mut client, (data.len() >= 2).then_some(data)),
            option::HOST_NAME => first(&mut name, Some(data)),
            _ => {}
        };
        if fields & 1 != 0 {
            each_option(&message[FILE], &mut note)?;
        }
        if fields & 2 != 0 {
            each_option(&message[SNAME], &mut note)?;
        }
        let word = |at: usize| [0, 1, 2, 3].map(|i| header[at + i]);
        Ok(Self {
            kind: kind.and_then(DhcpKind::of).ok_or(ParseError::Unsupported)?,
            xid: u32::from_be_bytes(word(XID)),
            broadcast: header[FLAGS] & BROADCAST != 0,
            station: Mac([0, 1, 2, 3, 4, 5].map(|i| header[CHADDR + i])),
            address: word(CIADDR).into(),
            relay: word(GIADDR).into(),
            requested: requested.map(Ipv4Addr::from_bits),
            server: server.map(Ipv4Addr::from_bits),
            client: client.unwrap_or_default(),
            name: name.unwrap_or_default(),
        })
    }
}

/// What a server tells all its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DhcpTerms<'a> {
    /// The mask of the link's network.
    pub mask: Option<Ipv4Addr>,
    /// The default router.
    pub router: Option<Ipv4Addr>,
    /// Name servers, the best first.
    pub name_servers: &'a [Ipv4Addr],
    /// The link's MTU.
    pub mtu: Option<u16>,
    /// Domains to search, as [`domain::emit`] writes names, one behind the other. The first is the client's
    /// own.
    pub search: &'a [u8],
    /// Further options, by their codes (RFC 2132). A domain here takes the place of the first one to search.
    pub more: &'a [(u8, &'a [u8])],
    /// The file from which a client boots, which it fetches from this server; empty if there is none (RFC 951
    /// §3).
    pub file: &'a [u8],
}

/// An answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DhcpGrant<'a> {
    /// What it says.
    pub answer: DhcpAnswer,
    /// The number of the exchange.
    pub xid: u32,
    /// The client cannot take answers to an address that it does not have yet.
    pub broadcast: bool,
    /// The client's station.
    pub station: Mac,
    /// What the client calls itself: it is returned (RFC 6842).
    pub client: &'a [u8],
    /// The client's address as it has said it; of an Ack only.
    pub had: Ipv4Addr,
    /// The client's address; unspecified if it gets none.
    pub address: Ipv4Addr,
    /// This server.
    pub server: Ipv4Addr,
    /// For how many seconds the client has the address.
    pub lease_s: Option<u32>,
    /// All else; of a Nak nothing (RFC 2131, table 3).
    pub terms: DhcpTerms<'a>,
}

impl DhcpGrant<'_> {
    /// Writes the answer to the start of `buf`, and returns its length: at most [`REPLY_MAX`].
    ///
    /// # Panics
    /// If `buf` is shorter than that.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let message = &mut buf[..REPLY_MAX];
        message.fill(0);
        message[..3].copy_from_slice(&[BOOT_REPLY, ETHERNET[0], ETHERNET[1]]);
        message[XID..XID + 4].copy_from_slice(&self.xid.to_be_bytes());
        message[FLAGS] = if self.broadcast { BROADCAST } else { 0 };
        message[CIADDR..CIADDR + 4].copy_from_slice(&self.had.octets());
        message[YIADDR..YIADDR + 4].copy_from_slice(&self.address.octets());
        message[CHADDR..CHADDR + 6].copy_from_slice(&self.station.0);
        message[COOKIE_AT..OPTIONS_AT].copy_from_slice(&COOKIE);
        // With room for the zero at its end.
        let file = Some(self.terms.file).filter(|file| !file.is_empty() && file.len() < FILE.len());
        if let Some(file) = file.filter(|_| self.answer != DhcpAnswer::Nak) {
            message[SIADDR..SIADDR + 4].copy_from_slice(&self.server.octets());
            message[FILE][..file.len()].copy_from_slice(file);
        }
        let mut options = Options { message, at: OPTIONS_AT };
        let kind = match self.answer {
            DhcpAnswer::Offer => 2,
            DhcpAnswer::Ack => 5,
            DhcpAnswer::Nak => 6,
        };
        options.put(option::KIND, &[kind]);
        options.put(option::SERVER, &self.server.octets());
        if let Some(seconds) = self.lease_s {
            options.put(option::LEASE, &seconds.to_be_bytes());
        }
        if self.answer != DhcpAnswer::Nak {
            self.terms.emit(&mut options);
        }
        options.put(option::CLIENT, self.client);
        if self.answer != DhcpAnswer::Nak {
            options.put(option::SEARCH, self.terms.search);
        }
        options.end().max(REPLY_MIN)
    }
}

impl DhcpTerms<'_> {
    fn emit(&self, options: &mut Options<'_>) {
        for (code, address) in [(option::MASK, self.mask), (option::ROUTERS, self.router)] {
            options.put(code, address.map(|address| address.octets()).as_ref().map_or(&[], |octets| octets));
        }
        let mut octets = [0; 4 * NAME_SERVERS_MAX];
        let count = self.name_servers.len().min(NAME_SERVERS_MAX);
        for (place, server) in octets.as_chunks_mut::<4>().0.iter_mut().zip(self.name_servers) {
            *place = server.octets();
        }
        options.put(option::NAME_SERVERS, &octets[..4 * count]);
        if let Some(mtu) = self.mtu {
            options.put(option::MTU, &mtu.to_be_bytes());
        }
        for (code, data) in self.more {
            options.put(*code, data);
        }
        if self.more.iter().any(|(code, _)| *code == option::DOMAIN) {
            return;
        }
        let (mut name, mut len) = ([0; domain::NAME_MAX], 0);
        for label in domain::first_labels(self.search) {
            let end = len + label.len();
            name[len..end].copy_from_slice(label);
            // A dot takes the place of the next label's length.
            name[end] = b'.';
            len = end + 1;
        }
        options.put(option::DOMAIN, &name[..len.saturating_sub(1)]);
    }
}

/// More are not told: a C library asks three (`resolv.conf(5)`).
const NAME_SERVERS_MAX: usize = 3;

/// The place for options, and how far it is filled.
struct Options<'a> {
    message: &'a mut [u8],
    at: usize,
}

impl Options<'_> {
    /// An option that has a value, and for which there is room before the end's one byte.
    fn put(&mut self, code: u8, data: &[u8]) {
        let end = self.at + 2 + data.len();
        if data.is_empty() || data.len() > 255 || end + 1 > self.message.len() {
            return;
        }
        self.message[self.at..self.at + 2].copy_from_slice(&[code, data.len() as u8]);
        self.message[self.at + 2..end].copy_from_slice(data);
        self.at = end;
    }

    fn end(self) -> usize {
        self.message[self.at] = option::END;
        self.at + 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DhcpMessage, DhcpReply, MESSAGE_LEN};
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const STATION: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn v4(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    /// A client's message: the header of RFC 2131 §2 field by field, then options.
    fn message(options: &[u8]) -> Vec<u8> {
        let mut message = std::vec![1, 1, 6, 0, 0x12, 0x34, 0x56, 0x78, 0, 3, 0x80, 0];
        message.extend([10, 0, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 9, 9]);
        message.extend(STATION.0);
        message.resize(236, 0);
        message.extend([99, 130, 83, 99]);
        message.extend(options);
        message
    }

    #[test]
    fn vm_01_a_clients_message_read() {
        let bytes = message(&[
            53, 1, 3, 50, 4, 10, 0, 2, 15, 54, 4, 10, 0, 2, 2, 61, 3, 255, 1, 2, 12, 2, 104, 105, 255, 53, 1,
            1,
        ]);
        let expected = DhcpAsked {
            kind: DhcpKind::Request,
            xid: 0x1234_5678,
            broadcast: true,
            station: STATION,
            address: v4("10.0.2.7"),
            relay: v4("10.0.9.9"),
            requested: Some(v4("10.0.2.15")),
            server: Some(v4("10.0.2.2")),
            client: &[255, 1, 2],
            name: b"hi",
        };
        assert_eq!(DhcpAsked::parse(&bytes), Ok(expected));
        for (code, kind) in [
            (1, DhcpKind::Discover),
            (3, DhcpKind::Request),
            (4, DhcpKind::Decline),
            (7, DhcpKind::Release),
            (8, DhcpKind::Inform),
        ] {
            assert_eq!(DhcpAsked::parse(&message(&[53, 1, code, 255])).unwrap().kind, kind);
        }
        // What a client of ours says is what a server of ours reads.
        let said = DhcpMessage {
            kind: DhcpKind::Release,
            xid: 7,
            secs: 9,
            station: STATION,
            address: v4("10.0.2.16"),
            requested: None,
            server: Some(v4("10.0.2.2")),
        };
        let mut buf = [0; MESSAGE_LEN];
        said.emit(&mut buf);
        let read = DhcpAsked::parse(&buf).unwrap();
        assert_eq!((read.kind, read.address, read.server), (said.kind, said.address, said.server));
        assert_eq!(read.client, [1, 2, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn vm_02_what_is_no_message_of_a_client_is_refused() {
        let good = message(&[53, 1, 1, 255]);
        assert!(DhcpAsked::parse(&good).is_ok());
        for (at, value) in [(0, 2), (1, 6), (2, 8), (236, 0)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(DhcpAsked::parse(&bytes), Err(ParseError::Unsupported), "byte {at}");
        }
        assert_eq!(DhcpAsked::parse(&good[..239]), Err(ParseError::Truncated));
        for options in [&[255][..], &[53, 2, 1, 1], &[53, 1, 2, 255], &[53, 1, 0]] {
            assert_eq!(DhcpAsked::parse(&message(options)), Err(ParseError::Unsupported), "{options:?}");
        }
        for options in [&[53, 1][..], &[53, 1, 1, 61, 200, 1], &[53]] {
            assert_eq!(DhcpAsked::parse(&message(options)), Err(ParseError::OptionLength), "{options:?}");
        }
        // Options go on in `file` and `sname`, which say nothing of further fields.
        let mut bytes = message(&[53, 1, 1, 52, 1, 3, 255]);
        bytes[108..118].copy_from_slice(&[52, 1, 0, 50, 4, 10, 0, 2, 16, 255]);
        bytes[44..52].copy_from_slice(&[54, 4, 10, 0, 2, 2, 255, 0]);
        let read = DhcpAsked::parse(&bytes).unwrap();
        assert_eq!((read.requested, read.server), (Some(v4("10.0.2.16")), Some(v4("10.0.2.2"))));
    }

    fn grant<'a>(client: &'a [u8], search: &'a [u8], name_servers: &'a [Ipv4Addr]) -> DhcpGrant<'a> {
        DhcpGrant {
            answer: DhcpAnswer::Ack,
            xid: 0x1234_5678,
            broadcast: true,
            station: STATION,
            client,
            had: v4("10.0.2.7"),
            address: v4("10.0.2.15"),
            server: v4("10.0.2.2"),
            lease_s: Some(86_400),
            terms: DhcpTerms {
                mask: Some(v4("255.255.255.0")),
                router: Some(v4("10.0.2.2")),
                name_servers,
                mtu: Some(65_520),
                search,
                more: &[],
                file: &[],
            },
        }
    }

    /// RFC 2131 §2; RFC 2132 §9.6, §9.7, §9.2, §3.3, §3.5, §3.8, §5.1, §3.17; RFC 6842; RFC 3397.
    #[test]
    fn vm_01_an_answer_byte_for_byte() {
        let mut buf = [0xaa; REPLY_MAX + 1];
        let servers = [v4("10.0.2.2")];
        let all = grant(&[1, 2, 0, 0, 0, 0, 9], b"\x04home\x04arpa\0\x01x\0", &servers);
        assert_eq!(all.emit(&mut buf), 314);
        let mut expected = std::vec![2, 1, 6, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0x80, 0];
        expected.extend([10, 0, 2, 7, 10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(STATION.0);
        expected.resize(236, 0);
        expected.extend([99, 130, 83, 99, 53, 1, 5, 54, 4, 10, 0, 2, 2, 51, 4, 0, 1, 0x51, 0x80]);
        expected.extend([1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 2, 2, 6, 4, 10, 0, 2, 2, 26, 2, 0xff, 0xf0]);
        expected.extend(b"\x0f\x09home.arpa");
        expected.extend([61, 7, 1, 2, 0, 0, 0, 0, 9]);
        expected.extend(b"\x77\x0e\x04home\x04arpa\0\x01x\0\xff");
        assert_eq!(buf[..314], expected[..]);
        assert_eq!(buf[REPLY_MAX], 0xaa);
        // RFC 2131, table 3: a Nak says nothing but the server and the client.
        let nak = DhcpGrant { answer: DhcpAnswer::Nak, address: v4("0.0.0.0"), lease_s: None, ..all };
        assert_eq!(nak.emit(&mut buf), 300);
        assert_eq!(buf[240..259], [53, 1, 6, 54, 4, 10, 0, 2, 2, 61, 7, 1, 2, 0, 0, 0, 0, 9, 255]);
    }

    /// RFC 951 §3 (siaddr, file); RFC 2132 §3.14, §3.17, §9.4.
    #[test]
    fn vm_22_what_a_machine_boots_from_byte_for_byte() {
        let mut buf = [0; REPLY_MAX];
        let more = [(12, &b"guest"[..]), (15, &b"corp"[..]), (66, &b"files"[..])];
        let mut all = grant(&[1, 2], b"\x04home\0", &[]);
        (all.terms.more, all.terms.file) = (&more, b"pxe.0");
        let len = all.emit(&mut buf);
        assert_eq!((&buf[20..24], &buf[108..114]), (&[10, 0, 2, 2][..], &b"pxe.0\0"[..]));
        let mut options: Vec<(u8, Vec<u8>)> = Vec::new();
        each_option(&buf[OPTIONS_AT..len], &mut |code, data: &[u8]| options.push((code, data.to_vec())))
            .unwrap();
        let of = |wanted: u8| -> Vec<&[u8]> {
            options.iter().filter(|(code, _)| *code == wanted).map(|(_, data)| &data[..]).collect()
        };
        assert_eq!([of(12), of(15), of(66)], [[&b"guest"[..]], [&b"corp"[..]], [&b"files"[..]]]);
        // The list to search stays.
        assert_eq!(of(119), [b"\x04home\0"]);
        let nak = DhcpGrant { answer: DhcpAnswer::Nak, ..all };
        nak.emit(&mut buf);
        assert_eq!((&buf[20..24], buf[108]), (&[0; 4][..], 0));
        // A name has 127 bytes and a zero at most.
        let long = [b'x'; 128];
        all.terms.file = &long;
        all.emit(&mut buf);
        assert_eq!((&buf[20..24], buf[108]), (&[0; 4][..], 0));
        all.terms.file = &long[..127];
        all.emit(&mut buf);
        assert_eq!((buf[234], buf[235]), (b'x', 0));
    }

    #[test]
    fn vm_01_our_client_reads_what_our_server_writes_and_what_has_no_room_is_left_out() {
        let mut buf = [0; REPLY_MAX];
        let servers = [1, 2, 3, 4].map(|last| Ipv4Addr::new(10, 0, 2, last));
        let (client, search) = ([7; 255], [&[63][..], &[b'x'; 63], &[0]].concat());
        let len = grant(&client, &search, &servers).emit(&mut buf);
        assert!(len <= REPLY_MAX);
        let reply = DhcpReply::parse(&buf[..len]).unwrap();
        assert_eq!((reply.address, reply.mtu, reply.lease_s), (v4("10.0.2.15"), Some(65_520), Some(86_400)));
        assert_eq!(reply.mask, Some(v4("255.255.255.0")));
        assert_eq!(reply.routers.iter().collect::<Vec<_>>(), [v4("10.0.2.2")]);
        // The three that a client asks.
        assert_eq!(reply.name_servers.iter().collect::<Vec<_>>(), servers[..3]);
        let has = |wanted: u8| {
            let mut found = false;
            each_option(&buf[OPTIONS_AT..len], &mut |code, _| found |= code == wanted).unwrap();
            found
        };
        // 3 + 6 + 6 + 6 + 6 + 14 + 4 + 65 are 110, and the identifier's 257 are more than 308.
        assert_eq!((has(option::DOMAIN), has(option::CLIENT), has(option::SEARCH)), (true, false, true));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(options in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = DhcpAsked::parse(&message(&options));
            let _ = DhcpAsked::parse(&options);
        }
    }
}
