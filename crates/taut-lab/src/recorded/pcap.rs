//! Captures of the older form (draft-ietf-opsawg-pcap), which `tcpdump -w` writes: read by `trace.rs`.
//!
//! A file is a header of 24 bytes, and for each packet its time, two lengths, and its bytes. The first four
//! bytes say in which order the bytes of all numbers are, and whether times have microseconds or nanoseconds.

use crate::recorded::pcapng::{link_bytes, word};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const HEADER_BYTES: usize = 24;
/// In front of each packet.
const RECORD_BYTES: usize = 16;

/// Whether numbers are big-endian, and how many nanoseconds the units of times are.
fn kind(bytes: &[u8]) -> Option<(bool, u64)> {
    let unit = |big| match word(bytes, 0, big)? {
        MICROSECONDS => Some((big, 1_000)),
        NANOSECONDS => Some((big, 1)),
        _ => None,
    };
    unit(false).or_else(|| unit(true))
}

/// Whether a file is a capture of this form.
#[must_use]
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    kind(bytes).is_some()
}

/// Times, in nanoseconds, and IP bytes of all packets of a capture, in the order of the file.
///
/// # Errors
/// When it is cut off, or of a kind of link that has no IP.
pub(crate) fn arrivals(bytes: &[u8]) -> Result<Vec<(u64, u32)>, String> {
    let header = || "the file's header is damaged".to_owned();
    let (big, unit_ns) = kind(bytes).ok_or_else(header)?;
    // The upper half is about the frame's checksum.
    let link = link_bytes(word(bytes, 20, big).ok_or_else(header)? as u16)?;
    let mut packets = Vec::new();
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let damaged = || format!("the packet at byte {at} is damaged or cut off");
        let field = |place| word(bytes, at + place, big).map(u64::from).ok_or_else(damaged);
        let (seconds, rest, kept, len) = (field(0)?, field(4)?, field(8)? as usize, field(12)?);
        packets.push((seconds * 1_000_000_000 + rest * unit_ns, (len as u32).saturating_sub(link)));
        let end = at.saturating_add(RECORD_BYTES).saturating_add(kept);
        at = if end <= bytes.len() { end } else { return Err(damaged()) };
    }
    Ok(packets)
}
