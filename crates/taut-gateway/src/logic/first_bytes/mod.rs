//! The name that a connection's first bytes say: the server name of a TLS ClientHello (RFC 6066 §3), or the
//! `Host` of an HTTP request. A rule that allows a name is checked against it (`admission.rs`): several names
//! often share an address, and the guest may want one that no rule allows.
//!
//! ```text
//!   push ─▶ held ─▶ next ── More                            the name is not there yet
//!                       ├── Name   ── take: the bytes that may pass; the next ones are looked at again
//!                       ├── Free   ── take_all: what follows says no name
//!                       └── Wrong  ── there will be no name
//! ```
//!
//! **A second ClientHello** follows where a server of TLS 1.3 sends a HelloRetryRequest (RFC 8446 §4.1.4). It
//! is looked at like the first one, or a guest could say another name there.
//!
//! **Other protocols** say no name in front. At [`STRICT`] ports they do not pass; elsewhere they do.

mod client_hello;
mod request_head;

use client_hello::Parsed;

/// Bytes that are held at most. A ClientHello with keys of ML-KEM has 2 KB, a head of HTTP 8 KB at most at
/// most servers.
const LONGEST: usize = 16 << 10;
/// Nothing but TLS and HTTP passes there.
const STRICT: [u16; 2] = [80, 443];

/// The result of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet.
    More,
    /// A name, in small letters.
    Name {
        name: String,
        /// There is another name, which is encrypted (ECH).
        is_hidden: bool,
    },
    /// No name, from here on.
    Free,
    /// Not what it must be.
    Wrong(&'static str),
}

/// Whether a connection whose first bytes are checked continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Further {
    /// Further bytes of the guest must be checked.
    Watch,
    /// None must.
    Free,
    /// The connection ends: both sides are reset.
    Refuse,
}

/// The first bytes of a connection's guest.
#[derive(Debug)]
pub struct FirstBytes {
    held: Vec<u8>,
    is_strict: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    First,
    /// So many bytes belong to a name that was found, and what follows them is this.
    Named(usize, AfterName),
    /// A ClientHello has passed that may have to be repeated.
    MayRepeat,
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterName {
    Free,
    MayRepeat,
}

impl FirstBytes {
    /// Of a connection to this port.
    pub(crate) fn new(port: u16) -> Self {
        Self { held: Vec::new(), is_strict: STRICT.contains(&port), stage: Stage::First }
    }

    /// Whether only TLS and HTTP pass, so a server does not speak first.
    pub(crate) const fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Whether the guest has said nothing yet.
    pub(crate) const fn is_silent(&self) -> bool {
        self.held.is_empty() && matches!(self.stage, Stage::First)
    }

    /// The guest has ended its half: bytes that wait for what follows them never say a name.
    #[must_use]
    pub const fn guest_ended(&self) -> Further {
        if self.held.is_empty() { Further::Free } else { Further::Refuse }
    }

    /// The guest has sent these.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Looks at the bytes that are held.
    pub(crate) fn next(&mut self) -> Found {
        let found = match self.stage {
            Stage::First => self.first(),
            Stage::MayRepeat => self.repeated(),
            Stage::Free => return Found::Free,
            Stage::Named(..) => return Found::More,
        };
        match found {
            Found::More if self.held.len() > LONGEST => Found::Wrong("its first bytes say no name"),
            found => found,
        }
    }

    /// The bytes with the name that was found, which may pass.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let Stage::Named(len, then) = self.stage else { return Vec::new() };
        self.stage = match then {
            AfterName::Free => Stage::Free,
            AfterName::MayRepeat => Stage::MayRepeat,
        };
        let rest = self.held.split_off(len);
        std::mem::replace(&mut self.held, rest)
    }

    /// All that is held: nothing is looked at any more.
    pub(crate) fn take_all(&mut self) -> Vec<u8> {
        self.stage = Stage::Free;
        std::mem::take(&mut self.held)
    }

    fn first(&mut self) -> Found {
        match &self.held[..] {
            [] | [client_hello::HANDSHAKE] => Found::More,
            [client_hello::HANDSHAKE, 3, ..] => self.hello(0),
            other => match (self.is_strict, request_head::is_one(other)) {
                (true, _) | (false, Some(true)) => self.head(),
                (false, Some(false)) => Found::Free,
                (false, None) => Found::More,
            },
        }
    }

    /// The ClientHello behind so many bytes, which pass with it.
    fn hello(&mut self, before: usize) -> Found {
        let hello = match client_hello::parse(&self.held[before..], LONGEST) {
            Parsed::More => return Found::More,
            Parsed::Wrong(why) => return Found::Wrong(why),
            Parsed::Hello(hello) => hello,
        };
        let Some(name) = hello.name else { return Found::Wrong("its ClientHello names no server") };
        let then = if hello.may_repeat { AfterName::MayRepeat } else { AfterName::Free };
        self.stage = Stage::Named(before + hello.len, then);
        Found::Name { name, is_hidden: hello.is_hidden }
    }

    fn head(&mut self) -> Found {
        match request_head::host(&self.held) {
            Ok(None) => Found::More,
            Ok(Some((name, len))) => {
                self.stage = Stage::Named(len, AfterName::Free);
                Found::Name { name, is_hidden: false }
            }
            Err(why) => Found::Wrong(why),
        }
    }

    /// A second ClientHello, perhaps behind a ChangeCipherSpec (RFC 8446 §D.4), or anything else.
    fn repeated(&mut self) -> Found {
        match client_hello::follows(&self.held) {
            None => Found::More,
            Some((_, false)) => Found::Free,
            Some((before, true)) => self.hello(before),
        }
    }
}

/// A host name in small letters, without the dot at its end; `None` if it is none.
fn host_name(text: &[u8]) -> Option<String> {
    let text = text.strip_suffix(b".").unwrap_or(text).to_ascii_lowercase();
    let is_letter = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let is_name = !text.is_empty() && text.len() <= 255 && text.iter().all(is_letter);
    String::from_utf8(text).ok().filter(|_| is_name)
}

#[cfg(test)]
pub(crate) mod tests;
