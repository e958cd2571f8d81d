//! When a peer's timers must be looked at, so that nothing ticks while it is idle. WireGuard §6; the
//! constants are those of §6.1. Pure; called by `peer.rs`.
//!
//! **Problem.** `boringtun` has the timers of the protocol, and expects to be called all the time. It does
//! not say when the next one is due.
//!
//! **Rule.** Deadlines are noted as packets come and go, and [`next`](Deadlines::next) is the earliest. Two
//! timers need no deadline: a key that is too old is replaced when it is used, before the packet.

use taut_core::{Duration, Instant};

/// A handshake that was not answered is begun again (`REKEY_TIMEOUT`).
pub(crate) const RETRY: Duration = Duration::from_secs(5);
/// A peer that is silent for so long after it was sent data gets a handshake (`KEEPALIVE_TIMEOUT +
/// REKEY_TIMEOUT`).
const SILENCE: Duration = Duration::from_secs(15);
/// A peer that has sent data gets an empty packet after so long, if nothing else (`KEEPALIVE_TIMEOUT`).
const KEEPALIVE: Duration = Duration::from_secs(10);
/// All keys are wiped (`REJECT_AFTER_TIME * 3`).
const WIPE: Duration = Duration::from_secs(540);

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first of a handshake.
    Initiation,
    /// The second.
    Response,
    /// A peer under load demands a proof of the address.
    Cookie,
    /// A packet.
    Data,
    /// An empty packet.
    Keepalive,
}

/// The times at which a peer's timers may be due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// A handshake was begun and not answered.
    retry_at: Instant,
    /// Data was sent, and nothing has come since.
    silence_at: Instant,
    /// Data has come, and nothing was sent since.
    keepalive_at: Instant,
    wipe_at: Instant,
    /// PersistentKeepalive.
    every: Option<Duration>,
    persistent_at: Instant,
}

impl Deadlines {
    /// A peer with a persistent keepalive is due at once: this side begins its handshake.
    pub(crate) fn new(now: Instant, every: Option<Duration>) -> Self {
        let never = Instant::NEVER;
        let persistent_at = if every.is_some() { now } else { never };
        Self { retry_at: never, silence_at: never, keepalive_at: never, wipe_at: never, every, persistent_at }
    }

    /// The earliest.
    pub(crate) fn next(&self) -> Instant {
        let all = [self.silence_at, self.keepalive_at, self.wipe_at, self.persistent_at];
        all.into_iter().fold(self.retry_at, Instant::min)
    }

    /// How often the peer is kept alive.
    pub(crate) const fn every(&self) -> Option<Duration> {
        self.every
    }

    /// Whether a persistent keepalive is due.
    pub(crate) fn is_persistent_due(&self, now: Instant) -> bool {
        self.persistent_at <= now
    }

    fn crossed(&mut self, now: Instant) {
        if let Some(every) = self.every {
            self.persistent_at = now + every;
        }
    }

    pub(crate) fn sent(&mut self, now: Instant, kind: Kind) {
        self.crossed(now);
        match kind {
            Kind::Initiation => self.retry_at = now + RETRY,
            Kind::Data => {
                self.keepalive_at = Instant::NEVER;
                self.silence_at = self.silence_at.min(now + SILENCE);
            }
            Kind::Keepalive => self.keepalive_at = Instant::NEVER,
            Kind::Response => {
                self.keepalive_at = Instant::NEVER;
                self.wipe_at = now + WIPE;
            }
            Kind::Cookie => {}
        }
    }

    /// An authentic message has come.
    pub(crate) fn received(&mut self, now: Instant, kind: Kind) {
        self.crossed(now);
        if kind != Kind::Cookie {
            self.silence_at = Instant::NEVER;
        }
        match kind {
            Kind::Response => {
                self.retry_at = Instant::NEVER;
                self.wipe_at = now + WIPE;
            }
            Kind::Data => self.keepalive_at = self.keepalive_at.min(now + KEEPALIVE),
            Kind::Initiation | Kind::Keepalive | Kind::Cookie => {}
        }
    }

    /// The timers were looked at: what was due is over. Messages that were sent meanwhile are noted
    /// afterwards.
    pub(crate) fn fired(&mut self, now: Instant) {
        for at in [&mut self.retry_at, &mut self.silence_at, &mut self.keepalive_at, &mut self.wipe_at] {
            if *at <= now {
                *at = Instant::NEVER;
            }
        }
        if self.persistent_at <= now {
            self.crossed(now);
        }
    }

    /// The peer has not answered for so long that the handshake was given up.
    pub(crate) fn gave_up(&mut self) {
        (self.retry_at, self.silence_at, self.keepalive_at) =
            (Instant::NEVER, Instant::NEVER, Instant::NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn wg_9_deadlines_are_those_of_the_protocol() {
        let mut due = Deadlines::new(at(1), None);
        assert_eq!(due.next(), Instant::NEVER, "an idle peer has none");
        due.sent(at(1), Kind::Initiation);
        assert_eq!(due.next(), at(6), "REKEY_TIMEOUT");
        due.received(at(2), Kind::Response);
        assert_eq!(due.next(), at(542), "REJECT_AFTER_TIME * 3");
        due.sent(at(3), Kind::Data);
        due.sent(at(4), Kind::Data);
        assert_eq!(due.next(), at(18), "KEEPALIVE_TIMEOUT + REKEY_TIMEOUT after the first");
        due.received(at(5), Kind::Data);
        due.received(at(6), Kind::Data);
        assert_eq!(due.next(), at(15), "KEEPALIVE_TIMEOUT after the first");
        due.sent(at(7), Kind::Keepalive);
        assert_eq!(due.next(), at(542));
        due.fired(at(542));
        assert_eq!(due.next(), Instant::NEVER);
    }

    #[test]
    fn wg_10_a_persistent_keepalive_follows_the_last_packet() {
        let mut due = Deadlines::new(at(1), Some(Duration::from_secs(25)));
        assert!(due.is_persistent_due(at(1)), "the handshake is begun at once");
        due.fired(at(1));
        assert_eq!(due.next(), at(26));
        due.received(at(20), Kind::Keepalive);
        assert_eq!(due.next(), at(45));
    }
}
