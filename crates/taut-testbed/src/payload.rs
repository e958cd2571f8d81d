//! Bytes to send, and the SHA-256 of transferred bytes: in tests and in the transfers of `taut`.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// SHA-256 of one buffer.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// SHA-256 of a stream of buffers, with their total length.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    hash: Sha256,
    bytes: u64,
}

impl Meter {
    /// Reads to the end, and returns the total length and the digest.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn of(mut from: impl Read) -> io::Result<Self> {
        let (mut meter, mut buffer) = (Self::default(), vec![0; 1 << 18]);
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(meter),
                Ok(count) => meter.update(&buffer[..count]),
                // After a signal, from a socket with a time limit: signal(7).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds bytes to the count and to the hash.
    pub fn update(&mut self, chunk: &[u8]) {
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest of everything.
    #[must_use]
    pub fn finish(self) -> Digest {
        self.hash.finalize().into()
    }
}

/// Pseudo-random bytes, so that a misplaced segment is always noticed; the same for the same seed
/// (SplitMix64).
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// The stream of bytes for a seed, from its beginning.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next bytes.
    pub fn fill(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
        }
    }

    /// The next bytes, in a buffer of their own.
    #[must_use]
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that is interrupted before each part.
    struct Interrupted(&'static [u8], bool);

    impl Read for Interrupted {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { self.0.read(into) }
        }
    }

    #[test]
    fn a_signal_is_no_end() {
        assert_eq!(Meter::of(Interrupted(b"abc", false)).unwrap().bytes(), 3);
    }

    fn hex(digest: Digest) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_digest_is_sha256() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(sha256(b"abc")), expected);
        let mut meter = Meter::of(&b"a"[..]).unwrap();
        meter.update(b"bc");
        assert_eq!(meter.bytes(), 3);
        assert_eq!(hex(meter.finish()), expected);
    }

    #[test]
    fn noise_is_reproducible_at_any_length() {
        let long = Noise::new(7).bytes(1001);
        assert_eq!(Noise::new(7).bytes(13), long[..13]);
        assert_ne!(Noise::new(8).bytes(13), long[..13]);
        let mut parts = Noise::new(7);
        assert_eq!([parts.bytes(16), parts.bytes(985)].concat(), long);
    }
}
