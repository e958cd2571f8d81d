//! The Internet checksum (RFC 1071), summed piece by piece.
//!
//! A packet is rarely one slice: the pseudo-header is nowhere in memory, and the payload may lie in several
//! buffers. [`Sum`] takes the pieces in order, of any length, odd ones included. TCP, ICMP and the IPv4
//! header use it. Words are added in little-endian order, which ordinary loads give, and swapped once at the
//! end: the sum does not depend on byte order (RFC 1071 §2(B)).

use core::net::IpAddr;

#[cfg(test)]
mod tests;

/// Headers are this short; setting up the lanes of [`sum_long`] would cost more than it saves.
const SHORT_MAX_BYTES: usize = 40;

/// One step of [`sum_long`]: enough independent lanes to hide the latency of the additions.
const BLOCK_BYTES: usize = 64;

/// A partial ones' complement sum over the bytes added so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Congruent to the little-endian word sum modulo 0xffff; zero only if every byte was. Below 2^43.
    words: u64,
    /// An odd number of bytes has been added, so the next byte is the second of its word.
    odd: bool,
}

impl Sum {
    /// The empty sum.
    pub const ZERO: Sum = Sum { words: 0, odd: false };

    /// Adds the next bytes of the message.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Sum {
        let words = if bytes.len() <= SHORT_MAX_BYTES { sum_short(bytes) } else { sum_long(bytes) };
        self.append(words, bytes.len() % 2 == 1)
    }

    /// Adds the two bytes of `value` in network order.
    #[inline]
    #[must_use]
    pub fn add_u16(self, value: u16) -> Sum {
        self.append(u64::from(value.swap_bytes()), false)
    }

    /// Adds the four bytes of `value` in network order.
    #[inline]
    #[must_use]
    pub fn add_u32(self, value: u32) -> Sum {
        self.append(u64::from(value.swap_bytes()), false)
    }

    /// The sum folded to 16 bits and not complemented: the value from which a device completes a checksum.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        let below_2_33 = halve(self.words);
        let below_2_18 = (below_2_33 & 0xffff) + (below_2_33 >> 16 & 0xffff) + (below_2_33 >> 32);
        let below_2_17 = (below_2_18 & 0xffff) + (below_2_18 >> 16);
        let folded = (below_2_17 & 0xffff) + (below_2_17 >> 16);
        (folded as u16).swap_bytes()
    }

    /// The checksum as it stands in a header: the complement of [`fold`](Sum::fold). Zero over a message that
    /// includes its own correct checksum.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    #[inline]
    fn append(self, words: u64, odd: bool) -> Sum {
        // RFC 1071 §2(B): a piece that starts in the middle of a word counts byte-swapped, and a byte swap
        // is a multiplication by 2^8 modulo 0xffff.
        let piece = halve(words) << if self.odd { 8 } else { 0 };
        Sum { words: halve(self.words) + piece, odd: self.odd ^ odd }
    }
}

/// The sum over the pseudo-header of IPv4 (RFC 9293 §3.1) or IPv6 (RFC 8200 §8.1), from which the checksum of
/// the upper layer continues. `len` is the length of the upper layer's header and payload in bytes.
///
/// Both layouts add up the same words, so the family is not an argument; `src` and `dst` are of the same one.
#[inline]
#[must_use]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: u32) -> Sum {
    let words = address_words(&src) + address_words(&dst);
    Sum::ZERO.append(words, false).append((u64::from(protocol) << 8) + u64::from(len.swap_bytes()), false)
}

#[inline]
fn address_words(address: &IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => u64::from(u32::from_le_bytes(v4.octets())),
        IpAddr::V6(v6) => {
            let bits = u128::from_le_bytes(v6.octets());
            halve(bits as u64) + halve((bits >> 64) as u64)
        }
    }
}

/// The two 32-bit halves added: the same value modulo 0xffff, below 2^33.
#[inline]
fn halve(words: u64) -> u64 {
    (words & 0xffff_ffff) + (words >> 32)
}

#[inline]
fn sum_short(bytes: &[u8]) -> u64 {
    let (quads, tail) = bytes.as_chunks::<4>();
    let mut sum = 0;
    for quad in quads {
        sum += u64::from(u32::from_le_bytes(*quad));
    }
    // RFC 1071 §4.1: an odd last byte is padded with a zero, which in little-endian order is the high half.
    sum + match *tail {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        _ => 0,
    }
}

/// Written so that the compiler turns the lanes into vector registers. A lane takes 2^31 blocks before it
/// could overflow, which is a slice of 128 GiB.
fn sum_long(bytes: &[u8]) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<BLOCK_BYTES>();
    let mut lanes = [0_u64; BLOCK_BYTES / 8];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += halve(u64::from_le_bytes(*word));
        }
    }
    // Halved before they are added, since eight full lanes would not fit in one.
    lanes.into_iter().map(halve).sum::<u64>() + sum_short(tail)
}
