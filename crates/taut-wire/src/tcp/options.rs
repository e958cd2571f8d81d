//! TCP options: MSS (RFC 9293 §3.7.1), window scale and timestamps (RFC 7323), SACK (RFC 2018), accurate ECN
//! (RFC 9768 §3.2.3).
//!
//! Unknown options are skipped by their length. A known option of a wrong length is ignored, as if unknown; a
//! segment with an impossible length (0, 1, or past the end) is refused (RFC 9293 §3.1, MUST-7).

use crate::ParseError;

#[cfg(test)]
mod tests;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const ACCECN0: u8 = 172;
const ACCECN1: u8 = 174;

/// The timestamps option (RFC 7323 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// The sender's clock, TSval.
    pub value: u32,
    /// The receiver's clock as last seen by the sender, TSecr; significant with ACK.
    pub echo: u32,
}

impl Timestamps {
    /// Bytes that they take of a segment: ten, and two that align them (RFC 7323 appendix A).
    pub const LEN: usize = 12;
}

/// Up to four SACK blocks, each from its left edge to just past its right (RFC 2018 §3).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SackBlocks {
    /// Those from `len` on are zero, so that equal lists compare equal.
    blocks: [(u32, u32); SackBlocks::MAX],
    len: u8,
}

impl SackBlocks {
    /// As many as fit in the option space when there is no other option.
    pub const MAX: usize = 4;

    /// No blocks.
    pub const EMPTY: SackBlocks = SackBlocks { blocks: [(0, 0); SackBlocks::MAX], len: 0 };

    /// Appends the block from `left` to just past `right`. Returns false, and drops it, when full.
    #[inline]
    pub const fn push(&mut self, left: u32, right: u32) -> bool {
        if self.len() == SackBlocks::MAX {
            return false;
        }
        self.blocks[self.len as usize] = (left, right);
        self.len += 1;
        true
    }

    /// The blocks in the order sent: the first is the most recently received (RFC 2018 §4).
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        self.blocks.get(..self.len()).unwrap_or(&self.blocks)
    }

    /// The blocks as `(left, right)` in the order sent.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + DoubleEndedIterator + Clone + '_ {
        self.as_slice().iter().copied()
    }

    /// The number of blocks.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no blocks.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl FromIterator<(u32, u32)> for SackBlocks {
    /// The first four blocks.
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(blocks: I) -> SackBlocks {
        let mut list = SackBlocks::EMPTY;
        for (left, right) in blocks.into_iter().take(SackBlocks::MAX) {
            list.push(left, right);
        }
        list
    }
}

/// The AccECN option (RFC 9768 §3.2.3): the low 24 bits of the receiver's byte counters. Fields may be
/// missing at the end only, and ECEB always stands second; so the order, 0 with EE0B first or 1 with EE1B
/// first, follows from the fields that are present. Combinations that neither order can express (ECEB alone,
/// or the other two without it) are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccEcn {
    /// Payload bytes received as ECT(0).
    pub ee0b: Option<u32>,
    /// Payload bytes received as CE.
    pub eceb: Option<u32>,
    /// Payload bytes received as ECT(1).
    pub ee1b: Option<u32>,
}

impl AccEcn {
    /// Counters are sent modulo this.
    pub const MODULUS: u32 = 1 << 24;

    /// The fields of `value`, three bytes each; the bytes left over are padding (§3.2.3).
    fn parse(kind: u8, value: &[u8]) -> AccEcn {
        let (fields, _) = value.as_chunks::<3>();
        let field = |n: usize| fields.get(n).map(|&[a, b, c]| u32::from_be_bytes([0, a, b, c]));
        let (first, eceb, last) = (field(0), field(1), field(2));
        if kind == ACCECN0 {
            AccEcn { ee0b: first, eceb, ee1b: last }
        } else {
            AccEcn { ee0b: last, eceb, ee1b: first }
        }
    }

    /// The kind, and the fields in its order; fields from the first missing one on are not sent.
    const fn in_order(self) -> (u8, [Option<u32>; 3]) {
        if self.ee0b.is_none() && self.ee1b.is_some() {
            (ACCECN1, [self.ee1b, self.eceb, self.ee0b])
        } else {
            (ACCECN0, [self.ee0b, self.eceb, self.ee1b])
        }
    }

    /// How many fields are sent.
    const fn fields(self) -> usize {
        match self.in_order().1 {
            [Some(_), Some(_), Some(_)] => 3,
            [Some(_), Some(_), None] => 2,
            [Some(_), None, _] => 1,
            [None, ..] => 0,
        }
    }

    /// Its length among the options, with the NOPs before it.
    #[inline]
    #[must_use]
    pub const fn emitted_len(self) -> usize {
        (2 + 3 * self.fields()).next_multiple_of(4)
    }

    /// Writes it to `buf`, which is [`emitted_len`](AccEcn::emitted_len) long.
    fn emit(self, buf: &mut [u8]) {
        let (kind, fields) = self.in_order();
        let len = 2 + 3 * self.fields();
        let (padding, option) = buf.split_at_mut(self.emitted_len() - len);
        padding.fill(NOP);
        option[0] = kind;
        // At most 11.
        option[1] = len as u8;
        for (place, field) in option[2..].chunks_exact_mut(3).zip(fields) {
            place.copy_from_slice(&field.unwrap_or(0).to_be_bytes()[1..]);
        }
    }
}

/// The options of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpOptions {
    /// Maximum segment size; on SYN only.
    pub mss: Option<u16>,
    /// Window scale shift as sent; on SYN only. A value above 14 is kept as received: RFC 7323 §2.3 says to
    /// use 14 in its place.
    pub window_scale: Option<u8>,
    /// SACK permitted; on SYN only.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// Accurate ECN.
    pub accecn: Option<AccEcn>,
}

impl TcpOptions {
    /// The most bytes that the data offset leaves for options.
    pub const MAX_LEN: usize = 40;

    /// No options.
    pub const NONE: TcpOptions = TcpOptions {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: SackBlocks::EMPTY,
        accecn: None,
    };

    /// Parses the bytes between the fixed header and the data offset. Of an option given twice, the last one
    /// counts.
    ///
    /// # Errors
    /// [`ParseError::OptionLength`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<TcpOptions, ParseError> {
        let mut options = TcpOptions::NONE;
        options.read(bytes)?;
        Ok(options)
    }

    /// [`parse`](TcpOptions::parse) in place, which saves copies of the SACK blocks.
    #[inline]
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        // RFC 7323 appendix A: the layout of nearly every segment with data.
        if let &[NOP, NOP, TIMESTAMPS, 10, ref value @ ..] = bytes
            && value.len() == 8
        {
            self.take(TIMESTAMPS, value);
            return Ok(());
        }
        self.read_any(bytes)
    }

    fn read_any(&mut self, mut bytes: &[u8]) -> Result<(), ParseError> {
        loop {
            bytes = match *bytes {
                [] | [END, ..] => return Ok(()),
                [NOP, ref rest @ ..] => rest,
                [kind, len, ..] if len >= 2 => {
                    let (option, rest) =
                        bytes.split_at_checked(usize::from(len)).ok_or(ParseError::OptionLength)?;
                    self.take(kind, &option[2..]);
                    rest
                }
                _ => return Err(ParseError::OptionLength),
            };
        }
    }

    /// Reads one option; `value` is its content after kind and length.
    #[inline]
    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([v0, v1, v2, v3]),
                    echo: u32::from_be_bytes([e0, e1, e2, e3]),
                });
            }
            (SACK, value) => {
                if let (blocks, []) = value.as_chunks::<8>() {
                    self.sack = blocks
                        .iter()
                        .map(|&[l0, l1, l2, l3, r0, r1, r2, r3]| {
                            (u32::from_be_bytes([l0, l1, l2, l3]), u32::from_be_bytes([r0, r1, r2, r3]))
                        })
                        .collect();
                }
            }
            (ACCECN0 | ACCECN1, value) => self.accecn = Some(AccEcn::parse(kind, value)),
            _ => {}
        }
    }

    /// The length without SACK blocks, padding included.
    const fn fixed_len(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        // SACK permitted takes the place of the two NOPs that align the timestamps.
        let timestamps = match (self.timestamps, self.sack_permitted) {
            (Some(_), _) => Timestamps::LEN,
            (None, true) => 4,
            (None, false) => 0,
        };
        let window_scale = if self.window_scale.is_some() { 4 } else { 0 };
        let accecn = match self.accecn {
            Some(accecn) => accecn.emitted_len(),
            None => 0,
        };
        mss + timestamps + window_scale + accecn
    }

    /// How many of the SACK blocks [`emit`](TcpOptions::emit) writes: those that fit, four alone and three
    /// with timestamps (RFC 2018 §3).
    #[inline]
    #[must_use]
    pub const fn sack_blocks_that_fit(&self) -> usize {
        // At most 32 bytes are taken by the others, so this cannot go below zero.
        let room = (TcpOptions::MAX_LEN - self.fixed_len() - 4) / 8;
        if self.sack.len() < room { self.sack.len() } else { room }
    }

    /// The length [`emit`](TcpOptions::emit) writes: a multiple of four, at most 40.
    #[inline]
    #[must_use]
    pub const fn emitted_len(&self) -> usize {
        match self.sack_blocks_that_fit() {
            0 => self.fixed_len(),
            blocks => self.fixed_len() + 4 + 8 * blocks,
        }
    }

    /// Writes the options to the start of `buf`, each aligned to four bytes by NOPs before it, and returns
    /// their length.
    ///
    /// # Panics
    /// If `buf` is shorter than [`emitted_len`](TcpOptions::emitted_len).
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let len = self.emitted_len();
        let mut at = 0;
        let mut put = |word: [u8; 4]| {
            buf[at..at + 4].copy_from_slice(&word);
            at += 4;
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put([MSS, 4, high, low]);
        }
        match (self.timestamps, self.sack_permitted) {
            (Some(timestamps), sack_permitted) => {
                put(if sack_permitted {
                    [SACK_PERMITTED, 2, TIMESTAMPS, 10]
                } else {
                    [NOP, NOP, TIMESTAMPS, 10]
                });
                put(timestamps.value.to_be_bytes());
                put(timestamps.echo.to_be_bytes());
            }
            (None, true) => put([NOP, NOP, SACK_PERMITTED, 2]),
            (None, false) => {}
        }
        if let Some(shift) = self.window_scale {
            put([NOP, WINDOW_SCALE, 3, shift]);
        }
        if let Some(accecn) = self.accecn {
            let end = at + accecn.emitted_len();
            accecn.emit(&mut buf[at..end]);
            at = end;
        }
        let mut put = |word: [u8; 4]| {
            buf[at..at + 4].copy_from_slice(&word);
            at += 4;
        };
        let blocks = self.sack_blocks_that_fit();
        if blocks > 0 {
            // At most 2 + 8 * 4.
            put([NOP, NOP, SACK, 2 + 8 * blocks as u8]);
            for (left, right) in self.sack.iter().take(blocks) {
                put(left.to_be_bytes());
                put(right.to_be_bytes());
            }
        }
        len
    }
}
