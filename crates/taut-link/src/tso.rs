//! Segmentation: a super-packet becomes packets of the path's size, by the NIC (TSO) or, where it cannot, just above it
//! (GSO). Called by [`Nic`](crate::Nic).
//!
//! **Problem.** A stack that makes one packet of 1448 bytes at a time spends more on walking its layers than on the bytes.
//!
//! **Rule.** It makes one of up to 64 KB, and the layers see that. On the wire it is `segs` packets, each with its own
//! copy of the headers; all but the last are of one size. Queues above see [`len`](crate::Packet::len), which counts
//! those headers already, so a super-packet costs what its segments will.
//!
//! **History.** TSO came with gigabit NICs around 2002, GSO with Linux 2.6.18: cutting as late as possible pays even
//! without hardware. A super-packet is also a burst: `tso_autosize.rs` in the core chooses how large it may be.

/// What can be cut. What a segment is only the item knows: a range of its bytes, or nothing at all in a model.
pub trait Cut: Sized {
    /// Segment `index` of `segs`, and its bytes, IP header included. Together they have the packet's `len` bytes.
    fn cut(&self, index: u16, segs: u16, len: u32) -> (Self, u32);
}

/// The bytes of segment `index` when `len` bytes are cut into `segs` of equal size but for the last. For items that do
/// not know better.
#[must_use]
pub fn even_cut(index: u16, segs: u16, len: u32) -> u32 {
    let size = len.div_ceil(u32::from(segs.max(1)));
    let before = size.saturating_mul(u32::from(index)).min(len);
    if index + 1 >= segs { len - before } else { size.min(len - before) }
}

/// For models that count and tell packets apart, no more: every segment is the same.
impl Cut for u32 {
    fn cut(&self, index: u16, segs: u16, len: u32) -> (Self, u32) {
        (*self, even_cut(index, segs, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_cuts_add_up() {
        assert_eq!([0, 1, 2].map(|index| even_cut(index, 3, 4_000)), [1_334, 1_334, 1_332]);
        for (segs, len) in [(1, 0), (1, 65_000), (7, 6), (44, 66_000), (45, 65_537)] {
            assert_eq!(
                (0..segs).map(|index| even_cut(index, segs, len)).sum::<u32>(),
                len,
                "{segs} of {len}"
            );
        }
    }
}
