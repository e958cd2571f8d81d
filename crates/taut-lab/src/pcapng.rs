//! The form of captures (draft-ietf-opsawg-pcapng), for tshark and similar programs. Called by `capture.rs` and
//! `taut replay --capture`.
//!
//! A file is a sequence of blocks: a section header, a block for each interface, and a block for each packet, with its time
//! in nanoseconds. A block begins and ends with its length; all values are little-endian and padded to four bytes.

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// IP packets without a link-layer header.
const LINKTYPE_RAW: u16 = 101;
/// Options, by their numbers in the draft.
const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;

/// The beginning of a file: interfaces with these names, numbered from 0.
#[must_use]
pub fn begin(interfaces: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Byte order, version 1.0, length unknown.
    let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend(u64::MAX.to_le_bytes());
    block(&mut bytes, SECTION_HEADER, &body);
    for name in interfaces {
        let mut body = LINKTYPE_RAW.to_le_bytes().to_vec();
        body.extend([0; 2]);
        // No limit: truncated packets show in their lengths.
        body.extend([0; 4]);
        option(&mut body, IF_NAME, name.as_bytes());
        // 10⁻⁹ s.
        option(&mut body, IF_TSRESOL, &[9]);
        body.extend([0; 4]);
        block(&mut bytes, INTERFACE, &body);
    }
    bytes
}

/// A packet that began with the bytes `captured`, of which `left_out` more are not in the file.
pub fn packet(
    out: &mut Vec<u8>,
    interface: u32,
    ns: u64,
    captured: &[u8],
    left_out: u32,
    comment: Option<&str>,
) {
    let len = captured.len() as u32;
    let mut body = interface.to_le_bytes().to_vec();
    body.extend(((ns >> 32) as u32).to_le_bytes());
    body.extend((ns as u32).to_le_bytes());
    body.extend(len.to_le_bytes());
    body.extend((len + left_out).to_le_bytes());
    body.extend(captured);
    pad(&mut body);
    if let Some(comment) = comment {
        option(&mut body, OPT_COMMENT, comment.as_bytes());
        body.extend([0; 4]);
    }
    block(out, ENHANCED_PACKET, &body);
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = (body.len() as u32 + 12).to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(len);
    out.extend(body);
    out.extend(len);
}
