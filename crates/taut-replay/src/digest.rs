//! Checksums of what a stack emits and of the parts of a file. Called for every packet of a run that is
//! recorded.
//!
//! **Problem.** A recording has to notice one wrong bit in gigabytes, and may not cost more than a copy of
//! them.
//!
//! **Rule.** Sixteen bytes at a time are multiplied to 128 bits, whose halves are added: the step of wyhash.
//! It is no protection against somebody who forges a file.

/// Odd constants with as many ones as zeros, from the digits of wyhash's.
const SECRET: [u64; 2] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn word(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

/// A checksum of bytes that come in pieces of any length.
#[derive(Clone, Debug)]
pub(crate) struct Digest {
    state: u64,
    len: u64,
    /// Bytes that do not fill sixteen yet.
    rest: [u8; 16],
    rest_len: usize,
}

impl Digest {
    pub(crate) const fn new() -> Self {
        Self { state: SECRET[1], len: 0, rest: [0; 16], rest_len: 0 }
    }

    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::new();
        digest.add(bytes);
        digest.finish()
    }

    fn step(&mut self, sixteen: &[u8]) {
        let (low, high) = sixteen.split_at(8);
        self.state = mix(word(low) ^ SECRET[0], word(high) ^ self.state);
    }

    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        if self.rest_len > 0 {
            let take = bytes.len().min(16 - self.rest_len);
            self.rest[self.rest_len..self.rest_len + take].copy_from_slice(&bytes[..take]);
            self.rest_len += take;
            bytes = &bytes[take..];
            if self.rest_len < 16 {
                return;
            }
            let rest = self.rest;
            self.step(&rest);
            self.rest_len = 0;
        }
        let whole = bytes.chunks_exact(16);
        let rest = whole.remainder();
        whole.for_each(|sixteen| self.step(sixteen));
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_len = rest.len();
    }

    pub(crate) fn add_number(&mut self, number: u64) {
        self.add(&number.to_le_bytes());
    }

    /// The checksum; never 0, which means that nothing was emitted.
    pub(crate) fn finish(mut self) -> u64 {
        self.rest[self.rest_len..].fill(0);
        let rest = self.rest;
        self.step(&rest);
        mix(self.state ^ SECRET[1], self.len ^ SECRET[0]).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter_and_every_bit_does() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        let whole = Digest::of(&bytes);
        for piece in [1, 3, 15, 16, 17, 999] {
            let mut digest = Digest::new();
            bytes.chunks(piece).for_each(|piece| digest.add(piece));
            assert_eq!(digest.finish(), whole, "pieces of {piece}");
        }
        for bit in 0..8_000 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Digest::of(&other), whole, "bit {bit}");
        }
        // Zeros at the end are not the same as nothing.
        assert_ne!(Digest::of(&[0; 3]), Digest::of(&[0; 4]));
        assert_ne!(Digest::of(&[]), 0);
    }
}
