//! The ClientHello of TLS 1.0 to 1.3: which server it names. RFC 8446 §4.1.2, §5.1; RFC 6066 §3; ECH:
//! RFC 9849 §5. A hello may be cut into records, and those into segments, anywhere. One that a server would
//! refuse, or that two servers could read differently, is wrong here. Called by `mod.rs`.

use super::host_name;

/// The type of a record with handshake messages.
pub(super) const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;
const CLIENT_HELLO: u8 = 1;
/// The longest content of a record.
const RECORD: usize = 1 << 14;
/// The longest message that servers take for a ClientHello: OpenSSL's limit is 131,396 bytes.
const MESSAGE: usize = 0x2_0400;

const SERVER_NAME: u16 = 0;
const SUPPORTED_VERSIONS: u16 = 43;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const TLS_1_3: [u8; 2] = [3, 4];

pub(super) struct Hello {
    pub(super) name: Option<String>,
    /// It has an encrypted ClientHello within, or pretends to.
    pub(super) is_hidden: bool,
    /// It offers TLS 1.3, so the server may ask for another one.
    pub(super) may_repeat: bool,
    /// With its records.
    pub(super) len: usize,
}

pub(super) enum Parsed {
    More,
    Hello(Hello),
    Wrong(&'static str),
}

const BROKEN: Parsed = Parsed::Wrong("its ClientHello is broken");

/// The hello at the beginning of these bytes.
pub(super) fn parse(bytes: &[u8], longest: usize) -> Parsed {
    let (mut message, mut rest) = (Vec::new(), bytes);
    loop {
        let [kind, major, _, high, low, after @ ..] = rest else { return Parsed::More };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        if (*kind, *major) != (HANDSHAKE, 3) || !(1..=RECORD).contains(&len) {
            return BROKEN;
        }
        let Some((content, next)) = after.split_at_checked(len) else { return Parsed::More };
        message.extend_from_slice(content);
        rest = next;
        let [kind, a, b, c, ..] = message[..] else { continue };
        let wanted = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
        if kind != CLIENT_HELLO || wanted > longest || message.len() > wanted {
            return BROKEN;
        }
        if message.len() == wanted {
            break;
        }
    }
    let hello = hello(&message[4..]);
    hello.map_or(BROKEN, |hello| Parsed::Hello(Hello { len: bytes.len() - rest.len(), ..hello }))
}

/// How many bytes of ChangeCipherSpec are behind a ClientHello, and whether another ClientHello follows them;
/// `None` if more must come.
pub(super) fn follows(bytes: &[u8]) -> Option<(usize, bool)> {
    let mut before = 0;
    while let [CHANGE_CIPHER_SPEC, _, _, 0, 1, _, ..] = bytes[before..] {
        before += 6;
    }
    let is_hello = match &bytes[before..] {
        [] => return None,
        [CHANGE_CIPHER_SPEC | HANDSHAKE, rest @ ..] if rest.len() < 5 => return None,
        // A record so short is a part of a hello.
        [HANDSHAKE, _, _, 0, 1..=3, CLIENT_HELLO, ..] => true,
        // If its length is none, it is a message of TLS 1.2 that is encrypted.
        [HANDSHAKE, _, _, _, _, CLIENT_HELLO, a, b, c, ..] => {
            u32::from_be_bytes([0, *a, *b, *c]) as usize <= MESSAGE
        }
        [HANDSHAKE, _, _, _, _, CLIENT_HELLO, ..] => return None,
        _ => false,
    };
    Some((before, is_hello))
}

/// Bytes that are read one after the other.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn number(&mut self, len: usize) -> Option<usize> {
        Some(self.take(len)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    }

    /// A vector whose length is in front, in so many bytes.
    fn vector(&mut self, of: usize) -> Option<Self> {
        let len = self.number(of)?;
        self.take(len).map(Bytes)
    }
}

fn hello(message: &[u8]) -> Option<Hello> {
    let mut body = Bytes(message);
    // Version, random; session, ciphers, compression.
    body.take(2 + 32)?;
    body.vector(1)?;
    body.vector(2)?;
    body.vector(1)?;
    let mut hello = Hello { name: None, is_hidden: false, may_repeat: false, len: 0 };
    if body.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = body.vector(2)?;
    let mut has_name = false;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)? as u16;
        let mut data = extensions.vector(2)?;
        match kind {
            // Two of them, or names of two kinds, would be understood in two ways.
            SERVER_NAME if has_name => return None,
            SERVER_NAME => {
                has_name = true;
                let mut list = data.vector(2)?;
                let is_host = list.number(1)? == 0;
                let name = list.vector(2)?;
                if !is_host || !list.0.is_empty() || !data.0.is_empty() {
                    return None;
                }
                hello.name = Some(host_name(name.0)?);
            }
            SUPPORTED_VERSIONS => {
                let versions = data.vector(1)?;
                hello.may_repeat = versions.0.chunks(2).any(|version| version == TLS_1_3);
            }
            ENCRYPTED_CLIENT_HELLO => hello.is_hidden = true,
            _ => {}
        }
    }
    body.0.is_empty().then_some(hello)
}
