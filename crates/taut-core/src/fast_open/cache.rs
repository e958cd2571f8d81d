//! What a client remembers: a cookie and a segment size for each server, and that a path drops data in SYNs.
//! RFC 7413 §4.1.3 and §4.1.3.1; the rules about black holes are Linux's (6.18). Called by connect, and after
//! a handshake.
//!
//! Numbers: [`ENTRIES_MAX`] servers; the oldest entry gives way to a new one. A black hole disables Fast Open
//! for all servers, for `black_hole_timeout`, and for twice as long each time after that, up to 64 times as
//! long.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

use taut_wire::FastOpen;

use super::FastOpenConfig;
use crate::words::{Duration, Instant};

/// Servers that are remembered: some 80 KB.
const ENTRIES_MAX: usize = 1_024;
/// The disabled time doubles so often.
const DOUBLINGS_MAX: u32 = 6;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// As without Fast Open.
    Plain,
    /// Its SYN asks for a cookie.
    Ask(FastOpen),
    /// Its SYN waits for the first write, and carries its data and this option.
    Data {
        option: Option<FastOpen>,
        /// The segment size that the server announced.
        mss: Option<u16>,
    },
}

/// What a handshake taught about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lesson {
    /// The segment size that it announced, if it did.
    pub(crate) mss: Option<u16>,
    /// Its option.
    pub(crate) answer: Option<FastOpen>,
    /// What our SYN asked: a cookie, in the experimental form or not. It was not retransmitted, and had no
    /// data.
    pub(crate) asked: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    mss: Option<u16>,
    cookie: Option<FastOpen>,
    form: Form,
}

/// In which form to ask for a cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Standard,
    /// The server did not answer the standard form.
    Experimental,
    /// Nor the experimental one: from now on again the standard form.
    Neither,
}

/// Servers by our address and theirs, and black holes.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: BTreeMap<(IpAddr, IpAddr), Entry>,
    /// Oldest first.
    by_age: VecDeque<(IpAddr, IpAddr)>,
    /// Black holes since Fast Open last worked.
    black_holes: u32,
    /// When the last one was found.
    black_hole_at: Instant,
}

impl Cache {
    /// How a connection to a server begins. `no_cookie`: it sends its data even without a cookie.
    pub(crate) fn attempt(
        &self,
        now: Instant,
        config: &FastOpenConfig,
        no_cookie: bool,
        (own, server): (IpAddr, IpAddr),
    ) -> Attempt {
        if !config.client || self.is_disabled(now, config) {
            return Attempt::Plain;
        }
        let entry = self.entries.get(&(own, server)).copied().unwrap_or_default();
        if no_cookie || config.client_no_cookie {
            return Attempt::Data { option: None, mss: entry.mss };
        }
        match entry.cookie {
            Some(cookie) => Attempt::Data { option: Some(cookie), mss: entry.mss },
            None => Attempt::Ask(FastOpen { cookie: None, experimental: entry.form == Form::Experimental }),
        }
    }

    /// A handshake is complete.
    pub(crate) fn learn(&mut self, (own, server): (IpAddr, IpAddr), lesson: &Lesson) {
        let key = (own, server);
        if !self.entries.contains_key(&key) {
            if self.entries.len() >= ENTRIES_MAX
                && let Some(oldest) = self.by_age.pop_front()
            {
                self.entries.remove(&oldest);
            }
            self.by_age.push_back(key);
        }
        let entry = self.entries.entry(key).or_default();
        entry.mss = lesson.mss.or(entry.mss);
        match lesson.answer {
            Some(FastOpen { cookie: Some(_), .. }) => entry.cookie = lesson.answer,
            _ if entry.cookie.is_some() => {}
            _ => match lesson.asked {
                Some(false) if entry.form == Form::Standard => entry.form = Form::Experimental,
                Some(true) => entry.form = Form::Neither,
                _ => {}
            },
        }
    }

    /// Whether Fast Open pauses because of a black hole.
    fn is_disabled(&self, now: Instant, config: &FastOpenConfig) -> bool {
        if self.black_holes == 0 || config.black_hole_timeout.is_zero() {
            return false;
        }
        let doublings = (self.black_holes - 1).min(DOUBLINGS_MAX);
        now < self.black_hole_at + config.black_hole_timeout * (1 << doublings)
    }

    /// A path seems to drop data in SYNs, or what follows it. Returns whether that counts.
    pub(crate) fn note_black_hole(&mut self, now: Instant, timeout: Duration) -> bool {
        if timeout.is_zero() {
            return false;
        }
        self.black_holes = self.black_holes.saturating_add(1);
        self.black_hole_at = now;
        true
    }

    /// A connection whose SYN had the option has received data: there is no black hole. Does not end a pause,
    /// because the connection may have begun before that.
    pub(crate) fn note_worked(&mut self, now: Instant, config: &FastOpenConfig) {
        if !self.is_disabled(now, config) {
            self.black_holes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taut_wire::Cookie;

    fn pair(server: u32) -> (IpAddr, IpAddr) {
        (IpAddr::from([10, 0, 0, 1]), IpAddr::from(server.to_be_bytes()))
    }

    fn cookie(byte: u8) -> Option<FastOpen> {
        Some(FastOpen { cookie: Cookie::new(&[byte; 8]), experimental: false })
    }

    #[test]
    fn tfo_12_the_oldest_of_1024_servers_is_forgotten() {
        let mut cache = Cache::default();
        for server in 0..1_025 {
            let lesson = Lesson { mss: Some(1_000), answer: cookie(1), asked: Some(false) };
            cache.learn(pair(server), &lesson);
            cache.learn(pair(server), &Lesson { answer: cookie(2), ..lesson });
        }
        let known = |server| cache.attempt(Instant::ZERO, &FastOpenConfig::default(), false, pair(server));
        assert_eq!(known(0), Attempt::Ask(FastOpen::default()));
        assert_eq!(
            known(1),
            Attempt::Data { option: cookie(2), mss: Some(1_000) },
            "the newest cookie counts"
        );
        assert_eq!((cache.entries.len(), cache.by_age.len()), (1_024, 1_024));
    }
}
