//! One neighbour: what is known of it, and what happens next. RFC 4861 §7.3.2, and the same for ARP, for
//! which RFC 1122 §2.3.2.1 only asks for a limit of a request a second and for entries that do not stay for
//! ever. Called by `cache.rs`.
//!
//! ```text
//!              answer              30 s, then used        5 s                       3 s without an answer
//!   Incomplete ─────▶ Reachable ───────────────────▶ Delay ───▶ Probe ──────────────────────────────────▶ gone
//!     │ 3 s without one  ▲  ▲                          │          │
//!     ▼                  │  └──────── answer ──────────┴──────────┘
//!   gone               Stale ── used ──▶ Delay            a stranger's word, or another station: ▶ Stale
//! ```

use taut_wire::Mac;

use taut_core::{Duration, Instant};

/// RETRANS_TIMER, RFC 4861 §10; RFC 1122 §2.3.2.1 allows one ARP request a second for each address.
pub(crate) const RETRANS: Duration = Duration::from_secs(1);
/// MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT, RFC 4861 §10.
pub(crate) const SOLICITS_MAX: u8 = 3;
/// REACHABLE_TIME, RFC 4861 §10; without the factor between a half and one and a half, which keeps routers
/// apart.
const REACHABLE: Duration = Duration::from_secs(30);
/// DELAY_FIRST_PROBE_TIME, RFC 4861 §10.
const DELAY: Duration = Duration::from_secs(5);
/// For so long after an answer, no other station's answer is believed: of two that claim an address, the
/// first wins, and an address that moves has moved a second later. Linux: `locktime` of ARP.
const LOCKED: Duration = Duration::from_secs(1);

/// How much is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// Its station has been asked for, and packets wait.
    Incomplete,
    /// It has answered within the last 30 seconds.
    Reachable,
    /// It was heard of, but not by an answer, or not lately. It is not asked before it is used.
    Stale,
    /// It has been used since; it will be asked soon.
    Delay,
    /// It is asked whether it is still there, and packets go to it meanwhile.
    Probe,
}

/// What came of a question or of a word that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The station, unless it is left as it was.
    pub(crate) mac: Option<Mac>,
    /// It answers a question of ours.
    pub(crate) solicited: bool,
    /// It takes the place of what is known. Always so for ARP.
    pub(crate) overrides: bool,
}

/// What is to be done after a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Ask everybody.
    AskAll,
    /// Ask the station that is known.
    AskOne(Mac),
    /// It does not answer.
    Gone,
}

/// What is known of one neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    state: NeighbourState,
    mac: Mac,
    /// Solicitations sent without an answer.
    asked: u8,
    /// When something is due; until when it is reachable, in that state.
    at: Instant,
    /// When its station was last confirmed or changed.
    told: Instant,
    /// When a packet was last sent to it; `None` if it has only been heard of.
    used: Option<Instant>,
}

impl Entry {
    /// A packet wants to go there, and it has been asked for.
    pub(crate) fn asked(now: Instant) -> Self {
        Self {
            state: NeighbourState::Incomplete,
            mac: Mac::default(),
            asked: 1,
            at: now + RETRANS,
            told: now,
            used: Some(now),
        }
    }

    /// It asked for us, and said who it is.
    pub(crate) const fn heard(now: Instant, mac: Mac) -> Self {
        Self { state: NeighbourState::Stale, mac, asked: 0, at: Instant::NEVER, told: now, used: None }
    }

    pub(crate) const fn state(&self) -> NeighbourState {
        self.state
    }

    /// Its station, if it is known.
    pub(crate) fn mac(&self) -> Option<Mac> {
        (self.state != NeighbourState::Incomplete).then_some(self.mac)
    }

    /// When something is due.
    pub(crate) fn deadline(&self) -> Instant {
        match self.state {
            NeighbourState::Reachable | NeighbourState::Stale => Instant::NEVER,
            _ => self.at,
        }
    }

    /// The order in which entries give way to others: those that have only been heard of first, then those
    /// that have not been used for longest.
    pub(crate) fn rank(&self) -> (Option<Instant>, Instant) {
        (self.used, self.told)
    }

    /// A packet wants to go there. Returns the station, or `None` while it is not known.
    pub(crate) fn use_at(&mut self, now: Instant) -> Option<Mac> {
        self.used = Some(now);
        match self.state {
            NeighbourState::Incomplete => return None,
            NeighbourState::Reachable if now < self.at => {}
            NeighbourState::Reachable | NeighbourState::Stale => {
                (self.state, self.at) = (NeighbourState::Delay, now + DELAY);
            }
            NeighbourState::Delay | NeighbourState::Probe => {}
        }
        Some(self.mac)
    }

    /// Something was said about it. RFC 4861 §7.2.5, which ARP follows here, too.
    pub(crate) fn tell(&mut self, now: Instant, word: Word) {
        let is_known = self.state != NeighbourState::Incomplete;
        let mac = match word.mac {
            Some(mac) => mac,
            None if is_known => self.mac,
            // It does not say who it is, and that was the question.
            None => return,
        };
        let is_other = is_known && mac != self.mac;
        if is_other {
            if !word.overrides {
                // "If the state is REACHABLE, set it to STALE": it will be asked when it is used.
                if self.state == NeighbourState::Reachable {
                    self.state = NeighbourState::Stale;
                }
                return;
            }
            if now.since(self.told) < LOCKED {
                return;
            }
        }
        // Only the answer to a question that is open says that packets arrive there.
        let was_asked = matches!(self.state, NeighbourState::Incomplete | NeighbourState::Probe);
        if word.solicited && (was_asked || !is_other) && self.asked > 0 {
            (self.state, self.at, self.asked) = (NeighbourState::Reachable, now + REACHABLE, 0);
            (self.mac, self.told) = (mac, now);
        } else if is_other || !is_known {
            (self.state, self.mac, self.told, self.asked) = (NeighbourState::Stale, mac, now, 0);
        }
    }

    /// Its deadline may have come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Due {
        if self.deadline() > now {
            return Due::Nothing;
        }
        let is_first = self.state == NeighbourState::Delay;
        if is_first {
            (self.state, self.asked) = (NeighbourState::Probe, 0);
        }
        if self.asked >= SOLICITS_MAX {
            return Due::Gone;
        }
        self.asked += 1;
        self.at = now + RETRANS;
        if self.state == NeighbourState::Incomplete { Due::AskAll } else { Due::AskOne(self.mac) }
    }
}
