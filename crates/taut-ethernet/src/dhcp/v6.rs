//! The server of DHCP for IPv6: addresses (IA_NA), name servers, domains to search, and the file to boot
//! from. RFC 8415, RFC 3646, RFC 5970. Pure: it returns the answer, and `serving.rs` sends it.
//!
//! **An address is its station's**: the link's prefix, a mark, and the station. So there is no table that
//! clients could fill, the same machine gets the same address while the prefix is the same, and two never
//! get one. Times are those of the router's advertisement, and T1 and T2 are 0.5 and 0.8 of the preferred
//! one (§21.4).
//!
//! | answered | how |
//! |---|---|
//! | Solicit | Advertise; without an IA_NA NoAddrsAvail (§18.3.9) |
//! | Request, Renew, Rebind | Reply with the address; others that the client names are given no time (§18.3.4) |
//! | Confirm | Success if all addresses are of the prefix, else NotOnLink (§18.3.3) |
//! | Release, Decline | Success; the address stays its station's (§18.3.7, §18.3.8) |
//! | Information-request | name servers, domains, file |
//!
//! Not served: prefixes, temporary addresses, Rapid Commit, relays, messages to one server's own address
//! (§16).

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use taut_wire::Mac;

/// §7.2: all servers on the link.
pub(crate) const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// The longest answer: what is left of a frame of this link.
pub(crate) const REPLY_MAX: usize = super::bootp::FRAME_LEN - 14 - 40 - 8;
/// Between the prefix and the station: of no address that a host makes by itself (RFC 4291 appendix A has
/// `fffe` in the middle).
const MARK: u16 = 0x0dc6;
/// §11.1.
const DUID_MAX: usize = 130;
/// Addresses of a client that are answered.
const NAMED_MAX: usize = 4;

/// Messages (§7.3).
mod kind {
    pub(super) const SOLICIT: u8 = 1;
    pub(super) const ADVERTISE: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const CONFIRM: u8 = 4;
    pub(super) const RENEW: u8 = 5;
    pub(super) const REBIND: u8 = 6;
    pub(super) const REPLY: u8 = 7;
    pub(super) const RELEASE: u8 = 8;
    pub(super) const DECLINE: u8 = 9;
    pub(super) const INFORMATION_REQUEST: u8 = 11;
}

/// Options (§21; RFC 3646 §3, §4; RFC 5970 §3.1).
mod option {
    pub(super) const CLIENT_ID: u16 = 1;
    pub(super) const SERVER_ID: u16 = 2;
    pub(super) const IA_NA: u16 = 3;
    pub(super) const IA_TA: u16 = 4;
    pub(super) const ADDRESS: u16 = 5;
    pub(super) const ASKED: u16 = 6;
    pub(super) const STATUS: u16 = 13;
    pub(super) const NAME_SERVERS: u16 = 23;
    pub(super) const SEARCH: u16 = 24;
    pub(super) const IA_PD: u16 = 25;
    pub(super) const BOOT_FILE: u16 = 59;
}

/// §21.13.
const SUCCESS: u16 = 0;
const NO_ADDRESSES: u16 = 2;
const NOT_ON_LINK: u16 = 4;

/// A server's data for its clients.
pub(crate) struct Server<'a> {
    pub(crate) station: Mac,
    /// The prefix of 64 bits of which clients get addresses; none if they get none.
    pub(crate) prefix: Option<Ipv6Addr>,
    /// Preferred and valid time of an address, in seconds.
    pub(crate) times: (u32, u32),
    pub(crate) name_servers: &'a [Ipv6Addr],
    /// As [`DhcpTerms::search`](taut_wire::DhcpTerms::search).
    pub(crate) search: &'a [u8],
    /// The file from which a client boots, as a URL; empty if there is none.
    pub(crate) boot: &'a [u8],
}

/// The address that a station gets.
pub(crate) fn address_of(prefix: Ipv6Addr, station: Mac) -> Ipv6Addr {
    let own = station.0.iter().fold(u128::from(MARK), |bits, byte| bits << 8 | u128::from(*byte));
    Ipv6Addr::from_bits(prefix.to_bits() >> 64 << 64 | own)
}

/// The station that gets an address of this prefix.
pub(crate) fn station_of(prefix: Ipv6Addr, address: Ipv6Addr) -> Option<Mac> {
    let [.., a, b, c, d, e, f] = address.octets();
    let station = Mac([a, b, c, d, e, f]);
    (address_of(prefix, station) == address).then_some(station)
}

/// A client's message.
#[derive(Default)]
struct Asked<'a> {
    kind: u8,
    exchange: [u8; 3],
    client: &'a [u8],
    server: Option<&'a [u8]>,
    /// The numbers of its IA_NA, the first one first, and the addresses in them.
    associations: Vec<[u8; 4]>,
    addresses: Vec<Ipv6Addr>,
    has_others: bool,
    /// Codes of options.
    wanted: &'a [u8],
}

impl<'a> Asked<'a> {
    /// `None` for what is no message of a client.
    fn parse(message: &'a [u8]) -> Option<Self> {
        let (&[kind, a, b, c], options) = message.split_first_chunk()?;
        let mut asked = Self { kind, exchange: [a, b, c], ..Self::default() };
        let mut is_whole = true;
        each_option(options, |code, data| match code {
            option::CLIENT_ID => {
                is_whole &= (1..=DUID_MAX).contains(&data.len());
                asked.client = data;
            }
            option::SERVER_ID => asked.server = Some(data),
            option::ASKED => asked.wanted = data,
            option::IA_NA => {
                // §21.4: a number, T1, T2, options.
                let Some((number, rest)) = data.split_first_chunk::<4>() else { return is_whole = false };
                if asked.associations.len() < NAMED_MAX {
                    asked.associations.push(*number);
                }
                let addresses = &mut asked.addresses;
                let found = each_option(rest.get(8..).unwrap_or_default(), |code, data| {
                    if let (option::ADDRESS, Some(octets), true) =
                        (code, data.first_chunk::<16>(), addresses.len() < NAMED_MAX)
                    {
                        addresses.push(Ipv6Addr::from(*octets));
                    }
                });
                is_whole &= found.is_some();
            }
            option::IA_TA | option::IA_PD => asked.has_others = true,
            _ => {}
        })?;
        is_whole.then_some(asked)
    }

    fn wants(&self, code: u16) -> bool {
        self.wanted.as_chunks::<2>().0.contains(&code.to_be_bytes())
    }
}

/// Calls `note` with each option; `None` if one ends behind the message.
fn each_option<'a>(mut rest: &'a [u8], mut note: impl FnMut(u16, &'a [u8])) -> Option<()> {
    while let Some((head, behind)) = rest.split_first_chunk::<4>() {
        let (code, len) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
        let (data, behind) = behind.split_at_checked(len.into())?;
        note(code, data);
        rest = behind;
    }
    rest.is_empty().then_some(())
}

impl Server<'_> {
    /// The answer to a message of this station, [`REPLY_MAX`] long at most.
    pub(crate) fn answer(&self, station: Mac, message: &[u8]) -> Option<Vec<u8>> {
        let asked = Asked::parse(message)?;
        // §11.4: DUID-LL of Ethernet.
        let own = [&[0, 3, 0, 1][..], &self.station.0].concat();
        let (is_named, is_ours) = (asked.server.is_some(), asked.server == Some(&own[..]));
        let has_client = !asked.client.is_empty();
        if asked.kind == kind::INFORMATION_REQUEST {
            // §16.12.
            let is_for_others = is_named && !is_ours || !asked.associations.is_empty() || asked.has_others;
            return (!is_for_others).then(|| self.reply(kind::REPLY, &own, &asked).bytes);
        }
        let prefix = self.prefix.filter(|_| has_client)?;
        let address = address_of(prefix, station);
        match (asked.kind, is_named, is_ours) {
            // §16.2, §16.4 to §16.7.
            (kind::SOLICIT, false, _) => {
                let mut reply = self.reply(kind::ADVERTISE, &own, &asked);
                reply.grant(self.times, address, &asked);
                Some(reply.bytes)
            }
            (kind::REQUEST | kind::RENEW, _, true) | (kind::REBIND, false, _) => {
                let mut reply = self.reply(kind::REPLY, &own, &asked);
                reply.grant(self.times, address, &asked);
                Some(reply.bytes)
            }
            (kind::CONFIRM, false, _) if !asked.addresses.is_empty() => {
                let is_on_link = |own: &Ipv6Addr| own.to_bits() >> 64 == prefix.to_bits() >> 64;
                let code = if asked.addresses.iter().all(is_on_link) { SUCCESS } else { NOT_ON_LINK };
                Some(self.reply(kind::REPLY, &own, &asked).status(code))
            }
            (kind::RELEASE | kind::DECLINE, _, true) => {
                Some(self.reply(kind::REPLY, &own, &asked).status(SUCCESS))
            }
            _ => None,
        }
    }

    fn reply(&self, kind: u8, own: &[u8], asked: &Asked<'_>) -> Reply {
        let [a, b, c] = asked.exchange;
        let mut reply = Reply { bytes: alloc::vec![kind, a, b, c] };
        reply.put(option::CLIENT_ID, asked.client);
        reply.put(option::SERVER_ID, own);
        if asked.wants(option::NAME_SERVERS) {
            let octets: Vec<u8> = self.name_servers.iter().flat_map(Ipv6Addr::octets).collect();
            reply.put(option::NAME_SERVERS, &octets);
        }
        if asked.wants(option::SEARCH) {
            reply.put(option::SEARCH, self.search);
        }
        if asked.wants(option::BOOT_FILE) {
            reply.put(option::BOOT_FILE, self.boot);
        }
        reply
    }
}

struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// An option that has a value, if there is room for it.
    fn put(&mut self, code: u16, data: &[u8]) {
        let len = u16::try_from(data.len()).ok().filter(|len| *len > 0);
        let Some(len) = len.filter(|_| self.bytes.len() + 4 + data.len() <= REPLY_MAX) else { return };
        self.bytes.extend(code.to_be_bytes());
        self.bytes.extend(len.to_be_bytes());
        self.bytes.extend(data);
    }

    fn status(mut self, code: u16) -> Vec<u8> {
        self.put(option::STATUS, &code.to_be_bytes());
        self.bytes
    }

    /// The address, in the first of a client's associations. A further one gets none.
    fn grant(&mut self, (preferred, valid): (u32, u32), address: Ipv6Addr, asked: &Asked<'_>) {
        let mut numbers = asked.associations.iter();
        let Some(first) = numbers.next() else {
            return self.put(option::STATUS, &NO_ADDRESSES.to_be_bytes());
        };
        let own = Some((address, preferred, valid));
        let others = asked.addresses.iter().filter(|other| **other != address).map(|other| (*other, 0, 0));
        let mut content =
            [&first[..], &(preferred / 2).to_be_bytes(), &(preferred / 5 * 4).to_be_bytes()].concat();
        for (address, preferred, valid) in own.into_iter().chain(others) {
            let times = [preferred.to_be_bytes(), valid.to_be_bytes()].concat();
            content
                .extend([&option::ADDRESS.to_be_bytes()[..], &[0, 24], &address.octets(), &times].concat());
        }
        self.put(option::IA_NA, &content);
        for number in numbers {
            let status = [&option::STATUS.to_be_bytes()[..], &[0, 2], &NO_ADDRESSES.to_be_bytes()].concat();
            self.put(option::IA_NA, &[&number[..], &[0; 8], &status].concat());
        }
    }
}
