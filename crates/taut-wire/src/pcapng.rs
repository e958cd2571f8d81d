//! Files of captured packets for tshark and similar programs (draft-ietf-opsawg-pcapng), written. Called by
//! `capture.rs` of `taut-device`, `taut replay`, and `taut-lab`, which also reads them.
//!
//! A file is a sequence of blocks: a section header, a block for each interface, and a block for each packet,
//! with its time in nanoseconds. A block begins and ends with its length; all values are little-endian and
//! padded to four bytes.

/// The first four bytes of a file.
pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
/// A block that describes an interface.
pub const INTERFACE: u32 = 1;
/// A block with a packet.
pub const ENHANCED_PACKET: u32 = 6;
/// Frames of Ethernet.
pub const LINKTYPE_ETHERNET: u16 = 1;
/// IP packets without a link-layer header.
pub const LINKTYPE_RAW: u16 = 101;
/// The option of an interface that has its unit of time.
pub const IF_TSRESOL: u16 = 9;

/// Other options, by their numbers in the draft.
const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
/// The end of a list of options.
const END_OF_OPTIONS: [u8; 4] = [0; 4];
/// Type and both lengths of a block.
const AROUND: usize = 12;

/// Memory that grows, such as a `Vec<u8>`.
pub trait Bytes: for<'a> Extend<&'a u8> {}

impl<B: for<'a> Extend<&'a u8>> Bytes for B {}

/// The beginning of a file.
pub fn begin(out: &mut impl Bytes) {
    let block = Block::begin(out, SECTION_HEADER, 16);
    // Byte order, version 1.0, length unknown.
    out.extend(&0x1a2b_3c4d_u32.to_le_bytes());
    out.extend(&[1, 0, 0, 0]);
    out.extend(&u64::MAX.to_le_bytes());
    block.end(out);
}

/// An interface. They are numbered from 0 in the order of the file, and stand before their packets.
pub fn interface(out: &mut impl Bytes, link_type: u16, name: &str) {
    let options = option_len(name.len()) + option_len(1) + END_OF_OPTIONS.len();
    let block = Block::begin(out, INTERFACE, 8 + options);
    out.extend(&link_type.to_le_bytes());
    // Reserved; no limit: truncated packets show in their lengths.
    out.extend(&[0; 6]);
    option(out, IF_NAME, name.as_bytes());
    // 10⁻⁹ s.
    option(out, IF_TSRESOL, &[9]);
    out.extend(&END_OF_OPTIONS);
    block.end(out);
}

/// A packet that began with the bytes of `captured`, of which `left_out` more are not in the file.
pub fn packet<'a>(
    out: &mut impl Bytes,
    interface: u32,
    ns: u64,
    captured: impl Iterator<Item = &'a [u8]> + Clone,
    left_out: u32,
    comment: Option<&str>,
) {
    let len = captured.clone().map(<[u8]>::len).sum::<usize>();
    let options = comment.map_or(0, |comment| option_len(comment.len()) + END_OF_OPTIONS.len());
    let block = Block::begin(out, ENHANCED_PACKET, 20 + len.next_multiple_of(4) + options);
    let times = [(ns >> 32) as u32, ns as u32];
    for word in [interface, times[0], times[1], len as u32, len as u32 + left_out] {
        out.extend(&word.to_le_bytes());
    }
    captured.for_each(|piece| out.extend(piece));
    pad(out, len);
    if let Some(comment) = comment {
        option(out, OPT_COMMENT, comment.as_bytes());
        out.extend(&END_OF_OPTIONS);
    }
    block.end(out);
}

/// A block that has begun.
struct Block(u32);

impl Block {
    fn begin(out: &mut impl Bytes, kind: u32, body: usize) -> Self {
        let len = (AROUND + body) as u32;
        out.extend(&kind.to_le_bytes());
        out.extend(&len.to_le_bytes());
        Self(len)
    }

    fn end(self, out: &mut impl Bytes) {
        out.extend(&self.0.to_le_bytes());
    }
}

fn pad(out: &mut impl Bytes, len: usize) {
    out.extend(&[0; 3][..len.next_multiple_of(4) - len]);
}

const fn option_len(value: usize) -> usize {
    4 + value.next_multiple_of(4)
}

fn option(out: &mut impl Bytes, code: u16, value: &[u8]) {
    out.extend(&code.to_le_bytes());
    out.extend(&(value.len() as u16).to_le_bytes());
    out.extend(value);
    pad(out, value.len());
}
