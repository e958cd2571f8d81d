//! Messages of DNS, as far as a gateway must read them: which name a question asks for, whether an answer
//! belongs to it, and which addresses it has. RFC 1035 §4.1.
//!
//! A question and an answer pass through as they are, byte for byte: EDNS, cookies and DNSSEC go on between
//! the guest and the host's resolver. An answer belongs to a question if it comes from the server that was
//! asked, to the port that asked, and repeats number and question (RFC 5452 §9.1). Records are read by the
//! crate simple-dns; an answer that it cannot read is passed on, and nothing is learnt from it. Called by
//! `gateway.rs`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use simple_dns::Packet;
use simple_dns::rdata::RData;

/// The names that the gateway answers for itself: RFC 8375's `home.arpa` is for networks without a name of
/// their own.
pub(crate) const GATEWAY_NAME: &str = "gateway.home.arpa";
/// The same for the host.
pub const HOST_NAME: &str = "host.home.arpa";

/// How long servers are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long a server may be silent before the next one gets the question, too.
    pub next: Duration,
    /// When a server gets the same datagram again.
    pub again: Duration,
    /// For all servers together. The C library's resolver in a guest waits for five seconds.
    pub in_all: Duration,
}

/// That of the gateway's name service.
pub const PATIENCE: Patience = Patience {
    next: Duration::from_secs(1),
    again: Duration::from_secs(2),
    in_all: Duration::from_millis(4_500),
};

const HEADER: usize = 12;
/// RFC 1035 §3.1.
const MAX_NAME: usize = 255;

/// What a guest has asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    id: [u8; 2],
    /// In small letters, without the dot at its end.
    pub(crate) name: Arc<str>,
    /// Name, type and class as in the message.
    section: Vec<u8>,
}

/// Why a question gets no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A rule: REFUSED.
    Policy = 5,
    /// No room, or no server answers: SERVFAIL.
    Failure = 2,
    /// A zone of the gateway's own does not have it: NXDOMAIN.
    NoName = 3,
}

/// The question in a message; `None` if it is not a standard query with one question.
pub(crate) fn question(message: &[u8]) -> Option<Asked> {
    let header = message.get(..HEADER)?;
    // QR 0, opcode 0; exactly one question.
    if header[2] & 0xf8 != 0 || header[4..6] != [0, 1] {
        return None;
    }
    let (name, section) = section(message)?;
    Some(Asked { id: [header[0], header[1]], name: name.into(), section: section.to_vec() })
}

/// The name of the first question, and its bytes with type and class.
fn section(message: &[u8]) -> Option<(String, &[u8])> {
    let (mut name, mut at) = (String::new(), HEADER);
    loop {
        let len = usize::from(*message.get(at)?);
        at += 1;
        // Above 63 is a pointer, and nothing is in front of the first name to point at.
        if len > 63 || at + len - HEADER > MAX_NAME {
            return None;
        }
        if len == 0 {
            break;
        }
        if !name.is_empty() {
            name.push('.');
        }
        // A dot or a strange byte within a label must not look like another name.
        let letter = |byte: &u8| match byte.to_ascii_lowercase() {
            byte @ (b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') => byte as char,
            _ => '?',
        };
        name.extend(message.get(at..at + len)?.iter().map(letter));
        at += len;
    }
    Some((name, message.get(HEADER..at + 4)?))
}

/// The addresses in an answer, with the time for which they are good; `None` if it is not an answer to the
/// question.
pub(crate) fn answer(message: &[u8], asked: &Asked) -> Option<Vec<(IpAddr, Duration)>> {
    let header = message.get(..HEADER)?;
    let (_, section) = section(message)?;
    let is_reply = header[2] & 0x80 != 0 && header[4..6] == [0, 1];
    if header[..2] != asked.id || !is_reply || !section.eq_ignore_ascii_case(&asked.section) {
        return None;
    }
    let Ok(packet) = Packet::parse(message) else { return Some(Vec::new()) };
    let addresses = packet.answers.iter().filter_map(|record| {
        let address: IpAddr = match &record.rdata {
            RData::A(v4) => std::net::Ipv4Addr::from(v4.address).into(),
            RData::AAAA(v6) => std::net::Ipv6Addr::from(v6.address).into(),
            _ => return None,
        };
        Some((address, Duration::from_secs(record.ttl.into())))
    });
    Some(addresses.collect())
}

/// The type of a record with an IPv4 address.
pub(crate) const A: u16 = 1;
/// The type of one with an IPv6 address (RFC 3596).
pub(crate) const AAAA: u16 = 28;

/// A question for the records of one type that a name has, class IN, recursion desired; `None` if the text
/// is no name. A name beyond ASCII must have been encoded by whoever asks for it.
pub(crate) fn ask(id: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    message.extend_from_slice(&id.to_be_bytes());
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let len = u8::try_from(label.len()).ok().filter(|len| (1..=63).contains(len))?;
        if !label.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        message.push(len);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    if message.len() - HEADER > MAX_NAME {
        return None;
    }
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    Some(message)
}

/// Whether an answer says that a rule denies the name.
pub(crate) fn is_refused(answer: &[u8]) -> bool {
    answer.get(3).is_some_and(|code| code & 0x0f == Refused::Policy as u8)
}

/// Whether a server says that it cannot or will not answer, and another one may: SERVFAIL, NOTIMP, REFUSED.
pub(crate) fn is_poor(answer: &[u8]) -> bool {
    answer.get(3).is_some_and(|code| matches!(code & 0x0f, 2 | 4 | 5))
}

/// Whether an answer was longer than a datagram may be (TC).
pub(crate) fn is_truncated(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & 2 != 0)
}

/// Whether a question is for a zone, whole or its changes: AXFR, IXFR (RFC 5936, RFC 1995).
pub(crate) fn is_transfer(question: &[u8]) -> bool {
    let kind = section(question).and_then(|(_, section)| section.last_chunk::<4>());
    matches!(kind, Some([0, 251 | 252, ..]))
}

/// The addresses in the answer to a question that [`ask`] made.
pub(crate) fn addresses(message: &[u8], asked: &[u8]) -> Vec<IpAddr> {
    let found = question(asked).and_then(|asked| answer(message, &asked));
    found.unwrap_or_default().into_iter().map(|(address, _)| address).collect()
}

/// An answer without records to a question that [`question`] has read.
pub(crate) fn refusal(message: &[u8], why: Refused) -> Vec<u8> {
    reply(message, why as u8, &[])
}

/// How long an answer of the gateway's own is good.
pub(crate) const OWN_FOR: Duration = Duration::from_secs(60);

/// The answer for a name of the gateway's own: its addresses of the family that is asked for.
pub(crate) fn own(message: &[u8], addresses: &[IpAddr]) -> Vec<u8> {
    let kind =
        section(message).and_then(|(_, section)| section.last_chunk::<4>().map(|end| [end[0], end[1]]));
    let is_asked = |ip: &&IpAddr| match kind {
        Some([0, 1]) => ip.is_ipv4(),
        Some([0, 28]) => ip.is_ipv6(),
        _ => false,
    };
    let asked: Vec<IpAddr> = addresses.iter().filter(is_asked).copied().collect();
    reply(message, 0, &asked)
}

fn reply(message: &[u8], code: u8, addresses: &[IpAddr]) -> Vec<u8> {
    let Some((_, section)) = section(message) else { return Vec::new() };
    let mut reply = Vec::with_capacity(HEADER + section.len() + 28 * addresses.len());
    reply.extend_from_slice(&message[..2]);
    // QR, opcode and RD as asked; RA.
    let [high, low] = (addresses.len() as u16).to_be_bytes();
    reply.extend_from_slice(&[0x80 | message[2] & 0x79, 0x80 | code, 0, 1, high, low, 0, 0, 0, 0]);
    reply.extend_from_slice(section);
    for address in addresses {
        // The name of the question, by a pointer; class IN.
        let mut record = |kind: u8, octets: &[u8]| {
            let (ttl, len) = (OWN_FOR.as_secs() as u8, octets.len() as u8);
            reply.extend_from_slice(&[0xc0, HEADER as u8, 0, kind, 0, 1, 0, 0, 0, ttl, 0, len]);
            reply.extend_from_slice(octets);
        };
        match address {
            IpAddr::V4(v4) => record(1, &v4.octets()),
            IpAddr::V6(v6) => record(28, &v6.octets()),
        }
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn px_5_questions_for_names() {
        let asked = ask(0x1234, "www.Example.com.", AAAA).unwrap();
        // RFC 1035 §4.1.1, 4.1.2: number, RD, one question; labels with their lengths; type, class.
        let expected =
            [&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x03www\x07Example\x03com\0", &[0, 28, 0, 1]];
        assert_eq!(asked, expected.concat());
        assert_eq!(&*question(&asked).unwrap().name, "www.example.com");
        let label = "a".repeat(63);
        assert!(ask(1, &format!("{label}.{label}.{label}.{}", "a".repeat(61)), A).is_some());
        for wrong in [
            "",
            ".",
            "a..b",
            ".a",
            "a b",
            "a\0b",
            "ä.de",
            &format!("{label}a"),
            &format!("{label}.{label}.{label}.{}", "a".repeat(62)),
        ] {
            assert_eq!(ask(1, wrong, A), None, "{wrong}");
        }
    }

    #[test]
    fn px_6_answers_to_them() {
        let asked = ask(7, "example.com", A).unwrap();
        let own = ["192.0.2.1", "2001:db8::1", "192.0.2.2"].map(|text| text.parse().unwrap());
        assert_eq!(addresses(&super::own(&asked, &own), &asked), [own[0], own[2]]);
        // To another question; a refusal; damaged.
        assert!(addresses(&super::own(&asked, &own), &ask(8, "example.com", A).unwrap()).is_empty());
        assert!(is_refused(&refusal(&asked, Refused::Policy)));
        assert!(!is_refused(&refusal(&asked, Refused::Failure)) && !is_refused(&[]));
        let answer = super::own(&asked, &own);
        for len in 0..answer.len() {
            assert!(addresses(&answer[..len], &asked).is_empty());
        }
    }
}
