//! Questions to name servers over the stack. Called by `names.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, ResourceRecord, TYPE};
use taut_core::{ConnOptions, DatagramKind, DatagramOptions, Instant, SendMeta};
use taut_driver::{Access, Interest, Shard};

use crate::common::{datagram, socket};
use crate::stack::Stack;
use crate::wait::Attempt;

/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(2);
/// So often the questions go to all servers.
const ROUNDS: usize = 2;
/// The longest answer.
const LARGEST: usize = 65_535;

/// The answer for one family.
#[derive(Clone)]
enum Said {
    Addresses(Vec<IpAddr>),
    /// The answer is longer than a datagram.
    Longer,
    /// It cannot or will not answer.
    Nothing,
}

/// The addresses of a name, of the families that the stack has, those of IPv6 first (RFC 6724 §2.1).
pub(super) fn addresses(stack: &Stack, servers: &[SocketAddr], host: &str) -> io::Result<Vec<IpAddr>> {
    let none = |text: String| io::Error::new(io::ErrorKind::NotFound, text);
    let mut last = none(format!("no name server to ask for {host:?}"));
    for server in (0..ROUNDS).flat_map(|_| servers) {
        match (Lookup { stack, server: *server, until: now(stack) + SILENCE.into() }).ask(host) {
            Ok(found) if found.is_empty() => return Err(none(format!("{host:?} has no address"))),
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => last = error,
            done => return done,
        }
    }
    Err(last)
}

fn now(stack: &Stack) -> Instant {
    stack.shards()[0].clock().now()
}

/// Questions to one server, until a time.
struct Lookup<'a> {
    stack: &'a Stack,
    server: SocketAddr,
    until: Instant,
}

impl Lookup<'_> {
    /// An error is a reason to ask another server, unless the text is no name.
    fn ask(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let questions = self.kinds().map(|kind| Asked::new(host, kind)).collect::<io::Result<Vec<_>>>()?;
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let options = DatagramOptions::default();
        let socket = datagram::Socket::bind(self.stack, DatagramKind::Udp, (any, 0).into(), &options)?;
        socket.connect(Some(self.server))?;
        for question in &questions {
            socket.now(|access| socket.send(access, None, &question.bytes, &SendMeta::default()))?;
        }
        let (mut said, mut buffer) = (vec![None; questions.len()], vec![0; LARGEST]);
        let silent = loop {
            if said.iter().all(Option::is_some) {
                break None;
            }
            let recv = |access: &mut Access<'_>| socket.recv(access, &mut buffer, false);
            let len = match self.wait(&socket.shard, socket.recv_interest(), recv) {
                Err(error) => break Some(error),
                Ok(received) => received.len,
            };
            for (question, said) in questions.iter().zip(&mut said) {
                if let Some(answer) = question.said(&buffer[..len]) {
                    *said = Some(answer);
                }
            }
        };
        self.together(&questions, said, silent)
    }

    /// Addresses of one family are enough, whatever becomes of the other.
    fn together(
        &self,
        questions: &[Asked],
        said: Vec<Option<Said>>,
        silent: Option<io::Error>,
    ) -> io::Result<Vec<IpAddr>> {
        let (mut found, mut failed) = (Vec::new(), silent);
        for (question, said) in questions.iter().zip(said) {
            match said {
                Some(Said::Addresses(addresses)) => found.extend(addresses),
                Some(Said::Longer) => match self.over_tcp(question) {
                    Ok(addresses) => found.extend(addresses),
                    Err(error) => failed = Some(error),
                },
                Some(Said::Nothing) => failed = Some(self.refused()),
                None => {}
            }
        }
        match failed {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    fn kinds(&self) -> impl Iterator<Item = TYPE> {
        let networks = self.stack.networks();
        let has_v4 = networks.iter().any(|network| network.address.is_ipv4());
        let beyond_link = |v6: Ipv6Addr| !v6.is_unicast_link_local();
        let has_v6 =
            networks.iter().any(|network| matches!(network.address, IpAddr::V6(v6) if beyond_link(v6)));
        [(has_v6, TYPE::AAAA), (has_v4, TYPE::A)].into_iter().filter(|kind| kind.0).map(|kind| kind.1)
    }

    /// Waits until the attempt is ready, or the server was silent for too long.
    fn wait<T>(
        &self,
        shard: &Shard,
        interest: Interest,
        attempt: impl FnMut(&mut Access<'_>) -> Attempt<T>,
    ) -> io::Result<T> {
        shard.wait(interest, Some(self.until), attempt).unwrap_or_else(|| Err(self.silent()))
    }

    fn silent(&self) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, format!("name server {} does not answer", self.server))
    }

    fn refused(&self) -> io::Error {
        io::Error::other(format!("name server {} cannot answer or refuses to", self.server))
    }

    /// The whole of an answer that is longer than a datagram.
    fn over_tcp(&self, question: &Asked) -> io::Result<Vec<IpAddr>> {
        let stream = socket::Socket::connect(self.stack, self.server, &ConnOptions::default())?;
        let shard = &stream.shard;
        self.wait(shard, stream.write_interest(), |access| stream.connected(access))?;
        let asked = [&(question.bytes.len() as u16).to_be_bytes()[..], &question.bytes].concat();
        self.wait(shard, stream.write_interest(), |access| stream.write(access, &asked))?;
        let (mut answer, mut len) = (vec![0; 2 + LARGEST], 0);
        // Its length, in two bytes, and the message.
        while len < 2 || len < 2 + usize::from(u16::from_be_bytes([answer[0], answer[1]])) {
            let read = |access: &mut Access<'_>| stream.read(access, &mut answer[len..]);
            match self.wait(shard, stream.read_interest(), read)? {
                0 => return Err(self.refused()),
                count => len += count,
            }
        }
        match question.said(&answer[2..len]) {
            Some(Said::Addresses(addresses)) => Ok(addresses),
            _ => Err(self.refused()),
        }
    }
}

/// A question that was sent.
struct Asked {
    id: u16,
    name: String,
    kind: TYPE,
    bytes: Vec<u8>,
}

impl Asked {
    fn new(host: &str, kind: TYPE) -> io::Result<Self> {
        let wrong = |error| {
            let message = format!("{host:?} is no name for a name server: {error}");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        };
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let (id, name) = (u16::from_be_bytes(random), host.strip_suffix('.').unwrap_or(host).to_owned());
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let (qname, class) = (Name::new(&name).map_err(wrong)?, CLASS::IN.into());
        packet.questions.push(Question::new(qname, kind.into(), class, false));
        let bytes = packet.build_bytes_vec().map_err(wrong)?;
        Ok(Self { id, name, kind, bytes })
    }

    /// The answer in a message; `None` if it is not one to this question.
    fn said(&self, message: &[u8]) -> Option<Said> {
        let packet = Packet::parse(message).ok()?;
        let [question] = &packet.questions[..] else { return None };
        let is_answer = packet.id() == self.id
            && packet.has_flags(PacketFlag::RESPONSE)
            && question.qtype == self.kind.into()
            && question.qname.to_string().eq_ignore_ascii_case(&self.name);
        if !is_answer {
            return None;
        }
        if packet.has_flags(PacketFlag::TRUNCATION) {
            return Some(Said::Longer);
        }
        Some(match packet.rcode() {
            RCODE::NoError => Said::Addresses(packet.answers.iter().filter_map(address).collect()),
            RCODE::NameError => Said::Addresses(Vec::new()),
            _ => Said::Nothing,
        })
    }
}

fn address(record: &ResourceRecord<'_>) -> Option<IpAddr> {
    match &record.rdata {
        RData::A(v4) => Some(Ipv4Addr::from(v4.address).into()),
        RData::AAAA(v6) => Some(Ipv6Addr::from(v6.address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_2_only_the_answer_to_a_question_counts() {
        let asked = Asked::new("www.Example.com.", TYPE::A).unwrap();
        // RFC 1035 §4.1: number, RD; one question; labels with their lengths; type, class.
        let tail =
            [&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x03www\x07Example\x03com\0", &[0, 1, 0, 1]].concat();
        assert_eq!(asked.bytes, [&asked.id.to_be_bytes()[..], &tail].concat());
        // QR, RD, RA; the name by a pointer; class IN, a minute, 192.0.2.1.
        let answer = |id: u16, flags: [u8; 2], question: &[u8], records: &[u8]| {
            let counts = [0, 1, 0, u8::from(!records.is_empty()), 0, 0, 0, 0];
            [&id.to_be_bytes()[..], &flags, &counts, question, records].concat()
        };
        let (question, id) = (&asked.bytes[12..], asked.id);
        let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1];
        let good = answer(id, [0x81, 0x80], &question.to_ascii_lowercase(), &record);
        let found = |message: &[u8]| match asked.said(message) {
            Some(Said::Addresses(addresses)) => Some(addresses),
            _ => None,
        };
        assert_eq!(found(&good), Some(vec![IpAddr::from([192, 0, 2, 1])]));
        assert_eq!(found(&answer(id, [0x81, 0x83], question, &[])), Some(Vec::new()), "no such name");
        for (flags, longer) in [([0x83, 0x80], true), ([0x81, 0x82], false), ([0x81, 0x85], false)] {
            let said = asked.said(&answer(id, flags, question, &[]));
            assert_eq!(matches!(said, Some(Said::Longer)), longer, "{flags:?}");
            assert_eq!(matches!(said, Some(Said::Nothing)), !longer, "{flags:?}");
        }
        // Another number, another name, another type; a question; damaged.
        let other = Asked::new("www.example.org", TYPE::A).unwrap();
        let kind = Asked::new("www.example.com", TYPE::AAAA).unwrap();
        for wrong in [
            answer(id ^ 1, [0x81, 0x80], question, &record),
            answer(id, [0x81, 0x80], &other.bytes[12..], &record),
            answer(id, [0x81, 0x80], &kind.bytes[12..], &record),
            answer(id, [0x01, 0x00], question, &record),
        ] {
            assert!(asked.said(&wrong).is_none());
        }
        for len in 0..good.len() {
            assert_eq!(found(&good[..len]), None, "{len}");
        }
    }
}
