//! Sequence numbers that never wrap. RFC 9293 §3.4 has 32 bits that do.
//!
//! Inside the stack a sequence number is a `u64` position in the stream, and its low 32 bits go on the wire.
//! Comparisons are then plain `<`, ranges are `Range<u64>`, and wrapping is dealt with once, here, when a
//! packet comes in. [`FIRST`] keeps positions away from zero, so that a stray old packet expands to a
//! position below the window instead of underflowing.

/// Added to every initial sequence number, one whole turn of the 32-bit circle.
pub(crate) const FIRST: u64 = 1 << 32;

/// The position nearest to `reference` whose low 32 bits are `wire` (at most 2³¹ away).
#[must_use]
pub(crate) const fn expand(reference: u64, wire: u32) -> u64 {
    let ahead = wire.wrapping_sub(reference as u32) as i32;
    reference.wrapping_add(ahead as i64 as u64)
}

/// The sequence number on the wire for a position.
#[must_use]
pub(crate) const fn wire(position: u64) -> u32 {
    position as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_forwards_and_backwards_across_the_wrap() {
        let near_wrap = FIRST + 0xffff_fff0;
        assert_eq!(expand(near_wrap, 0xffff_fff8), near_wrap + 8);
        assert_eq!(expand(near_wrap, 0x10), near_wrap + 0x20);
        assert_eq!(expand(near_wrap + 0x20, 0xffff_fff0), near_wrap);
        assert_eq!(wire(near_wrap + 0x20), 0x10);
    }
}
