//! SHA-256 of transferred bytes, and the pseudo-random bytes that are sent.
//!
//! Called by the workloads and by `send`, `recv` and `get`.

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// SHA-256 of one buffer.
pub fn sha256(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// SHA-256 of a stream of buffers, with their total length.
#[derive(Default)]
pub struct Meter {
    hash: Sha256,
    bytes: u64,
}

impl Meter {
    /// Counts and hashes the next bytes.
    pub fn update(&mut self, chunk: &[u8]) {
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest of everything.
    pub fn finish(self) -> Digest {
        self.hash.finalize().into()
    }
}

/// `len` bytes that do not compress and do not repeat, the same for the same seed (SplitMix64).
pub fn pseudo_random(len: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; len];
    let mut state = seed;
    for chunk in out.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::hex;

    #[test]
    fn the_digest_is_sha256() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&sha256(b"abc")), expected);
        let mut meter = Meter::default();
        meter.update(b"a");
        meter.update(b"bc");
        assert_eq!(meter.bytes(), 3);
        assert_eq!(hex(&meter.finish()), expected);
    }

    #[test]
    fn pseudo_random_bytes_are_reproducible_at_any_length() {
        let long = pseudo_random(1001, 7);
        assert_eq!(pseudo_random(13, 7), long[..13]);
        assert_ne!(pseudo_random(13, 8), long[..13]);
    }
}
