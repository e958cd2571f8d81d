//! Captures of the newer form (draft-ietf-opsawg-pcapng): read by `trace.rs`. `taut-wire` writes them.

use taut_wire::pcapng::{ENHANCED_PACKET, IF_TSRESOL, INTERFACE, LINKTYPE_ETHERNET, SECTION_HEADER};
pub use taut_wire::pcapng::{LINKTYPE_RAW, begin, interface, packet};

/// Whether a file is a capture.
#[must_use]
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&SECTION_HEADER.to_le_bytes())
}

/// An interface of a capture that is read: the header in front of IP, and how many of its units are a second.
#[derive(Clone, Copy)]
struct Interface {
    link_bytes: u32,
    per_second: u64,
}

/// Times, in nanoseconds, and IP bytes of all packets of a capture, in the order of the file.
///
/// # Errors
/// When it is damaged, or of a kind of link that has no IP.
pub(crate) fn arrivals(bytes: &[u8]) -> Result<Vec<(u64, u32)>, String> {
    let (mut packets, mut interfaces) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    let mut big = false;
    while rest.len() >= 12 {
        let at = bytes.len() - rest.len();
        let damaged = || format!("the block at byte {at} is damaged");
        // Its magic number says in which order of bytes a section is.
        if is_one(rest) {
            big = match word(rest, 8, false) {
                Some(0x1a2b_3c4d) => false,
                Some(0x4d3c_2b1a) => true,
                _ => return Err(damaged()),
            };
            interfaces.clear();
        }
        let (Some(kind), Some(len)) = (word(rest, 0, big), word(rest, 4, big)) else { return Err(damaged()) };
        let len = len as usize;
        if len < 12 || !len.is_multiple_of(4) || len > rest.len() {
            return Err(damaged());
        }
        let body = rest.get(8..len - 4).ok_or_else(damaged)?;
        match kind {
            INTERFACE => interfaces.push(described(body, big)?),
            ENHANCED_PACKET => {
                let field = |at| word(body, at, big).ok_or_else(damaged);
                let of = interfaces.get(field(0)? as usize).ok_or_else(damaged)?;
                let Interface { link_bytes, per_second } = *of;
                let time = u128::from(field(4)?) << 32 | u128::from(field(8)?);
                let ns = time * 1_000_000_000 / u128::from(per_second);
                packets
                    .push((u64::try_from(ns).map_err(|_| damaged())?, field(16)?.saturating_sub(link_bytes)));
            }
            _ => {}
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    Ok(packets)
}

/// The bytes in front of IP on a link of this type.
pub(crate) fn link_bytes(link_type: u16) -> Result<u32, String> {
    match link_type {
        // Ethernet, Linux's cooked form and its second version, IP without a header.
        LINKTYPE_ETHERNET => Ok(14),
        113 => Ok(16),
        276 => Ok(20),
        LINKTYPE_RAW | 12 | 14 | 228 | 229 => Ok(0),
        other => Err(format!("captures of link type {other} are not known; Ethernet and IP are")),
    }
}

fn described(body: &[u8], big: bool) -> Result<Interface, String> {
    let link_bytes = link_bytes(half(body, 0, big).ok_or("an interface's block is damaged")?)?;
    // Without an option, microseconds.
    let mut per_second = 1_000_000_u64;
    let mut rest = body.get(8..).unwrap_or_default();
    while let (Some(code @ 1..), Some(len)) = (half(rest, 0, big), half(rest, 2, big)) {
        if let (IF_TSRESOL, Some(&unit)) = (code, rest.get(4)) {
            let base: u64 = if unit & 0x80 == 0 { 10 } else { 2 };
            let power = base.checked_pow(u32::from(unit & 0x7f));
            per_second = power.ok_or("an interface's unit of time is too small")?;
        }
        rest = rest.get(4 + usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Interface { link_bytes, per_second })
}

/// Four bytes as a number.
pub(crate) fn word(bytes: &[u8], at: usize, big: bool) -> Option<u32> {
    let bytes: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

fn half(bytes: &[u8], at: usize, big: bool) -> Option<u16> {
    let bytes: [u8; 2] = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}
