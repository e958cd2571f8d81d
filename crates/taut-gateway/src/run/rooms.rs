//! How many bytes of a connection may wait in each room of its way out.
//!
//! ```text
//!   near side ── window ──▶ relay ── piece ──▶ far side's socket ── unsent ──▶ its way out
//! ```
//!
//! **Problem.** A relay ends the sender's connection at its own side: the sender's kernel sees a link of
//! microseconds and fills every buffer up to the slow link, where a byte then waits for a second.
//!
//! **Rule.** A room holds what the way out drains in [`DRAINED_IN`], and two segments at least, so that
//! whole ones leave. The window for the near side is as large, and larger by what that side needs for its own
//! round trips. So the bytes stay with the sender, which has its own bounds for them.
//!
//! **When.** A way out that never makes the relay wait has no such bound, and costs nothing. One that does is
//! looked at, once in [`LOOK_EVERY`] at most. Its rate is the sender's own figure (`tcpi_delivery_rate`),
//! which a pause of the application does not lower.
//!
//! **State.** The rates of the last looks, and the one in use.

use std::net::SocketAddr;
use std::ops::Add;
use std::time::Duration;

use taut::ConnOptions;
use tokio::time::Instant;

use crate::out::sockets::NOTSENT_LOWAT;
use crate::out::way_out::{Path, Upstream};

/// A room holds no more than leaves in this time.
const DRAINED_IN: Duration = Duration::from_millis(4);
/// Segments that a room holds in any case.
const SEGMENTS: u32 = 2;
/// Bytes that a room holds at most.
const ROOM_MAX: u64 = NOTSENT_LOWAT as u64;
/// How often a side that makes the relay wait is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A rate that differs by less than this part of it changes nothing.
const PART: u64 = 8;

/// The longest segment from and to a guest: four fill a super-packet. A room for a guest holds two segments,
/// and at an MTU of 65,520 two would be 52 ms of 20 Mbit/s.
const SEGMENT_MAX: u16 = (65_520 - 40) / 4;

/// The options of a connection to a guest.
#[must_use]
pub fn near(bind: Option<SocketAddr>) -> ConnOptions {
    ConnOptions {
        bind,
        nodelay: true,
        notsent_lowat: NOTSENT_LOWAT,
        maxseg: Some(SEGMENT_MAX),
        ..ConnOptions::default()
    }
}

/// The rooms of one way of a connection. `T` is the time of its runner.
#[derive(Debug)]
pub struct Rooms<T = Instant> {
    /// Nothing before the way out makes the relay wait.
    state: Option<Box<State<T>>>,
    /// Bytes taken, at most [`KNOWN_AFTER`].
    taken: u32,
}

impl<T> Default for Rooms<T> {
    fn default() -> Self {
        Self { state: None, taken: 0 }
    }
}

/// A way out that is slow has made the relay wait by then: it may hold [`NOTSENT_LOWAT`] unsent, and a
/// window.
const KNOWN_AFTER: u32 = 512 << 10;

#[derive(Debug)]
struct State<T> {
    looked: T,
    /// Bytes a second at the last looks: of these the least counts, as ACKs that come together look like a
    /// faster line.
    last: [u64; 4],
    /// Bytes a second at the last change; 0 before.
    rate: u64,
    /// The most that the relay takes at once; 0 stands for as much as it can.
    piece: u32,
}

/// Bytes of a room.
fn room(far: &Path) -> u64 {
    let segments = SEGMENTS * far.snd_mss;
    drained(far.rate, DRAINED_IN).min(ROOM_MAX).max(segments.into())
}

/// Bytes that the near side may have sent and that are not read: a room, and what it needs for its own round
/// trips. Its segments may have the length of ours, whatever it has sent so far: into a window of less than
/// one, Linux sends only when its timer of 200 ms probes it.
fn window(far: &Path, near: &Path) -> u64 {
    let segments = SEGMENTS * near.rcv_mss.max(near.snd_mss);
    (room(far) + drained(far.rate, 2 * near.min_rtt)).max(segments.into())
}

/// Bytes that leave in this time.
fn drained(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX / 2)
}

/// The bound of a way of a connection.
pub(crate) trait Bound: Default {
    /// The most that the relay takes at once, of `most`.
    fn piece(&self, most: usize) -> usize;

    /// The far side has made the relay wait.
    fn waited(&mut self, far: &impl Upstream, near: &impl Upstream);

    /// Whether a write must not be longer than the room of the far side is now.
    fn is_narrow(&self) -> bool;

    /// The relay has taken so many bytes of this side.
    fn taken(&mut self, bytes: usize, near: &impl Upstream);
}

/// The way to the near side.
#[derive(Debug, Default)]
pub(crate) struct Unbound;

impl Bound for Unbound {
    fn piece(&self, most: usize) -> usize {
        most
    }

    fn waited(&mut self, _: &impl Upstream, _: &impl Upstream) {}

    fn is_narrow(&self) -> bool {
        false
    }

    fn taken(&mut self, _: usize, _: &impl Upstream) {}
}

impl<T: Copy + PartialOrd + Add<Duration, Output = T>> Rooms<T> {
    /// The most that the relay takes at once, of `most`.
    #[must_use]
    pub fn piece(&self, most: usize) -> usize {
        match &self.state {
            Some(state) if state.piece > 0 => most.min(state.piece as usize),
            _ => most,
        }
    }

    /// Whether a write must not be longer than the room of the far side is now.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.piece > 0)
    }

    /// The far side has made the relay wait at this time. `paths` looks at both sides, the far one first.
    /// Returns the bytes that the far side may hold unsent, and the window of the near side, if they change.
    pub fn waited(&mut self, looked: T, paths: impl FnOnce() -> Option<(Path, Path)>) -> Option<(u32, u32)> {
        let state = match &mut self.state {
            Some(state) if looked < state.looked + LOOK_EVERY => return None,
            Some(state) => state,
            none => none.insert(Box::new(State { looked, last: [u64::MAX; 4], rate: 0, piece: 0 })),
        };
        state.looked = looked;
        let (mut to, from) = paths()?;
        if to.rate > 0 {
            state.last.rotate_right(1);
            state.last[0] = to.rate;
            to.rate = state.last.into_iter().min().unwrap_or(to.rate);
        }
        if to.rate == 0 || to.rate.abs_diff(state.rate) < state.rate / PART {
            return None;
        }
        let room = room(&to);
        if state.rate == 0 && room == ROOM_MAX {
            return None;
        }
        let of = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
        (state.rate, state.piece) = (to.rate, of(room));
        Some((of(room), of(window(&to, &from))))
    }
}

impl Bound for Rooms {
    fn piece(&self, most: usize) -> usize {
        self.piece(most)
    }

    fn is_narrow(&self) -> bool {
        self.is_narrow()
    }

    fn taken(&mut self, bytes: usize, near: &impl Upstream) {
        near.acknowledge();
        if self.taken < KNOWN_AFTER {
            self.taken =
                KNOWN_AFTER.min(self.taken.saturating_add(u32::try_from(bytes).unwrap_or(KNOWN_AFTER)));
            if self.taken == KNOWN_AFTER && !self.is_narrow() {
                near.offer_freely();
            }
        }
    }

    fn waited(&mut self, far: &impl Upstream, near: &impl Upstream) {
        let paths = || far.path().zip(near.path());
        if let Some((room, window)) = self.waited(Instant::now(), paths) {
            far.hold_unsent(room);
            near.offer(window);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_98_a_room_holds_four_milliseconds_of_the_rate_and_two_segments() {
        let near =
            |rcv_mss, rtt_us| Path { rcv_mss, min_rtt: Duration::from_micros(rtt_us), ..Path::default() };
        let (guest, machine) = (near(65_468, 100), near(1_448, 100));
        for (bits, near, expected) in [
            // 1 ms of 1 Mbit/s is 125 bytes.
            (2_000_000, machine, (2_896, 2_946)),
            (20_000_000, machine, (10_000, 10_500)),
            (20_000_000, guest, (10_000, 130_936)),
            // A client behind a long line of its own.
            (20_000_000, near(1_448, 100_000), (10_000, 510_000)),
            (10_000_000_000, guest, (131_072, 381_072)),
            // A guest that has sent short segments.
            (20_000_000, Path { snd_mss: 16_370, ..near(536, 100) }, (10_000, 32_740)),
        ] {
            let far = Path { rate: bits / 8, snd_mss: 1_448, ..Path::default() };
            assert_eq!((room(&far), window(&far, &near)), expected, "{bits} {near:?}");
        }
        let all = Path { rate: u64::MAX, snd_mss: 1_448, ..near(1_448, 1_000_000_000) };
        assert_eq!(room(&all), 131_072);
        assert!(window(&all, &all) > u64::from(u32::MAX));
    }
}
