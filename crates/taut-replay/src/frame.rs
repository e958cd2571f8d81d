//! The form of a recording: a preface, then frames. Called by `tape.rs`, which writes it, and `recording.rs`,
//! which reads it.
//!
//! ```text
//!   preface   "TAUTREC\n", version (4 bytes)
//!   frame     kind (1 byte), length (4), checksum of kind and content (8), content; numbers are little-endian
//!
//!   kinds     0  the header, the first frame
//!             1  a part of the stream of inputs; an input may begin in one frame and end in a later one
//!             2  the end: a reason (0 the stack ended, 1 the disk was too slow), the number of inputs begun
//! ```
//!
//! A frame that a killed process did not finish is noticed by its length, a changed one by its checksum. What
//! comes before it can be read.

use crate::digest::Digest;

/// The first bytes of every recording.
pub(crate) const MAGIC: [u8; 8] = *b"TAUTREC\n";

/// The version of the form, and of the numbers of inputs and outcomes.
pub(crate) const VERSION: u32 = 2;

/// Of the preface.
pub(crate) const PREFACE_BYTES: usize = 12;

/// Of the part of a frame before its content.
pub(crate) const HEAD_BYTES: usize = 13;

/// The most content of a frame.
pub(crate) const CONTENT_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    Header = 0,
    Inputs = 1,
    End = 2,
}

impl FrameKind {
    fn of(number: u8) -> Option<Self> {
        [Self::Header, Self::Inputs, Self::End].into_iter().find(|kind| *kind as u8 == number)
    }
}

fn checksum(kind: u8, content: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.add(content);
    digest.add(&[kind]);
    digest.finish()
}

pub(crate) fn preface() -> [u8; PREFACE_BYTES] {
    let mut preface = [0; PREFACE_BYTES];
    preface[..8].copy_from_slice(&MAGIC);
    preface[8..].copy_from_slice(&VERSION.to_le_bytes());
    preface
}

/// The head of a frame with this content.
pub(crate) fn head(kind: FrameKind, content: &[u8]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[0] = kind as u8;
    head[1..5].copy_from_slice(&(content.len() as u32).to_le_bytes());
    head[5..].copy_from_slice(&checksum(kind as u8, content).to_le_bytes());
    head
}

/// The head of a frame whose content was not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    kind: u8,
    pub(crate) len: usize,
    checksum: u64,
}

impl Head {
    /// `None` if this cannot be one.
    pub(crate) fn get(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let [kind, a, b, c, d, checksum @ ..] = *bytes;
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        (len <= CONTENT_MAX).then_some(Self { kind, len, checksum: u64::from_le_bytes(checksum) })
    }

    /// The kind of the frame, if this is its content.
    pub(crate) fn check(self, content: &[u8]) -> Option<FrameKind> {
        FrameKind::of(self.kind).filter(|_| checksum(self.kind, content) == self.checksum)
    }
}
