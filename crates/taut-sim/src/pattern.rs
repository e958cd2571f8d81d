//! The bytes that applications write: a stream in which the byte at every position is known, so that the
//! reader can check it. Called by the applications.
//!
//! The bytes repeat after a prime, 65,521, which no segment size divides: a missing, duplicated or misplaced
//! piece is detected. Every stream begins at a different position in the pattern, so bytes of another stream
//! are detected too.
//!
//! In a world that [carries lengths only](crate::World::lengths_only), stacks and wires hold pieces of this
//! table, and nothing is copied or compared: whether a piece is the right one is seen by its place in the
//! table.

use std::sync::OnceLock;

use taut_core::{BUFFER_BYTES, Known};

use crate::rng::Rng;

/// Length after which the pattern repeats.
const PERIOD: usize = 65_521;

/// Number of contiguous bytes available from any position.
pub(crate) const RUN: usize = 65_536;

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut rng = Rng::new(0);
        let period: Vec<u8> = (0..PERIOD).map(|_| rng.next() as u8).collect();
        period.iter().copied().cycle().take(PERIOD + RUN.max(BUFFER_BYTES)).collect()
    })
}

/// The table, for those who need not store what they know.
pub(crate) fn known() -> Option<Known> {
    static KNOWN: OnceLock<Option<Known>> = OnceLock::new();
    *KNOWN.get_or_init(|| Known::new(table(), PERIOD))
}

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Position of the next byte in the table.
    at: usize,
    /// Bytes passed.
    passed: u64,
}

impl Pattern {
    /// The stream with this number, at its beginning.
    #[must_use]
    pub fn new(stream: u64) -> Self {
        Self { at: (Rng::new(stream).next() % PERIOD as u64) as usize, passed: 0 }
    }

    /// Bytes passed so far.
    #[must_use]
    pub const fn passed(&self) -> u64 {
        self.passed
    }

    /// The next bytes, at most `len` and at most 64 KiB.
    #[must_use]
    pub fn bytes(&self, len: usize) -> &'static [u8] {
        &table()[self.at..self.at + len.min(RUN)]
    }

    /// Notes that `count` bytes were used.
    pub fn pass(&mut self, count: usize) {
        self.at = (self.at + count) % PERIOD;
        self.passed += count as u64;
    }

    /// Whether the stream continues with `bytes`; passes them.
    pub fn check(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(RUN));
            // A piece of the table is known by its place.
            let is_right = match known().and_then(|known| known.place(piece)) {
                Some(place) => place == self.at,
                None => piece == self.bytes(piece.len()),
            };
            if !is_right {
                return false;
            }
            self.pass(piece.len());
            bytes = rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_checks_itself_and_nothing_else() {
        let mut writer = Pattern::new(7);
        let mut stream = Vec::new();
        while stream.len() < 200_000 {
            let piece = writer.bytes(1_448);
            stream.extend_from_slice(piece);
            writer.pass(piece.len());
        }
        assert!(Pattern::new(7).check(&stream));
        assert!(!Pattern::new(8).check(&stream), "another stream");
        assert!(!Pattern::new(7).check(&stream[1_448..]), "a segment is missing");
        let mut damaged = stream.clone();
        damaged[100_000] ^= 1;
        assert!(!Pattern::new(7).check(&damaged));
    }
}
