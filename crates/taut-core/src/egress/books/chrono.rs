//! Three clocks of a sender: busy, limited by the peer's window, limited by its own send buffer.
//! Linux 4.10 (05b055e89121, `tcp_chrono_start`), shown by `ss -ti` as `busy`, `rwnd_limited` and
//! `sndbuf_limited`; kept by the send path through its [`ledger`](super::ledger).
//!
//! **Problem.** "It is slow" has four causes that look alike from outside: the network, the receiver, a send
//! buffer that is too small, an application that has nothing to send. **Rule.** One clock runs at a time, the
//! most specific: while anything is unacknowledged or unsent the connection is busy; while the peer's window
//! holds a segment back, it is limited by the receiver; when everything was sent, the congestion window has
//! room and the application was refused, it is limited by its buffer. The rest of busy is the network's
//! share. The shares by [`Blocked`](crate::egress::Blocked) say the same in more detail; existing tools read
//! these three.

use crate::words::{Duration, Instant};

/// What a clock measures; a more specific one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Nothing to do.
    Idle,
    Busy,
    PeerWindow,
    SendBuffer,
}

/// The clocks of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chrono {
    kind: Kind,
    since: Instant,
    spent: [Duration; 3],
}

impl Chrono {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { kind: Kind::Idle, since: now, spent: [Duration::ZERO; 3] }
    }

    /// A reason begins; it replaces only a less specific one.
    pub(crate) fn start(&mut self, now: Instant, kind: Kind) {
        if kind > self.kind {
            self.switch(now, kind);
        }
    }

    /// A reason ends, if its clock is the one that runs. `empty`: nothing is unsent or unacknowledged.
    pub(crate) fn stop(&mut self, now: Instant, kind: Kind, empty: bool) {
        if kind != self.kind && !empty {
            return;
        }
        if empty {
            self.switch(now, Kind::Idle);
        } else if self.kind > Kind::Busy {
            self.switch(now, Kind::Busy);
        }
    }

    fn switch(&mut self, now: Instant, kind: Kind) {
        self.spent = self.spent_until(now);
        self.since = now;
        self.kind = kind;
    }

    /// Time of each until `now`: busy alone, peer's window, send buffer.
    pub(crate) fn spent_until(&self, now: Instant) -> [Duration; 3] {
        let mut spent = self.spent;
        let running = match self.kind {
            Kind::Idle => None,
            Kind::Busy => spent.get_mut(0),
            Kind::PeerWindow => spent.get_mut(1),
            Kind::SendBuffer => spent.get_mut(2),
        };
        if let Some(running) = running {
            *running += now.since(self.since);
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_more_specific_clock_runs() {
        let ms = Duration::from_millis;
        let mut chrono = Chrono::new(at(0));
        chrono.start(at(10), Kind::Busy);
        chrono.start(at(15), Kind::PeerWindow);
        chrono.start(at(17), Kind::Busy);
        assert_eq!(chrono.spent_until(at(20)), [ms(5), ms(5), ms(0)]);
        chrono.start(at(20), Kind::SendBuffer);
        chrono.start(at(22), Kind::PeerWindow);
        // Not the running clock: nothing happens.
        chrono.stop(at(23), Kind::PeerWindow, false);
        chrono.stop(at(24), Kind::SendBuffer, false);
        assert_eq!(chrono.spent_until(at(30)), [ms(11), ms(5), ms(4)]);
        chrono.stop(at(31), Kind::Busy, true);
        assert_eq!(chrono.spent_until(at(99)), [ms(12), ms(5), ms(4)]);
    }
}
