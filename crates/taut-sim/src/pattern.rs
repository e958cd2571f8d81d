//! What applications write, so that who reads can tell whether it is what was written: a stream of bytes of which every
//! place is known. Called by the applications.
//!
//! The bytes repeat after a prime, 65,521, which no segment size divides: a piece that is missing, doubled or out of
//! place shows. Every stream begins at a place of its own in the pattern, so that bytes of another stream show, too.

use std::sync::OnceLock;

use crate::rng::Rng;

/// After which the pattern repeats.
const PERIOD: usize = 65_521;

/// Bytes that lie together from any place on.
pub(crate) const RUN: usize = 65_536;

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut rng = Rng::new(0);
        let period: Vec<u8> = (0..PERIOD).map(|_| rng.next() as u8).collect();
        period.iter().copied().cycle().take(PERIOD + RUN).collect()
    })
}

/// A stream, at some place of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Place in the table of the next byte.
    at: usize,
    /// Bytes passed.
    passed: u64,
}

impl Pattern {
    /// The stream of a number, at its beginning.
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

    /// So many bytes were used.
    pub fn pass(&mut self, count: usize) {
        self.at = (self.at + count) % PERIOD;
        self.passed += count as u64;
    }

    /// Whether the stream goes on with `bytes`; passes them.
    pub fn check(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(RUN));
            if piece != self.bytes(piece.len()) {
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
