//! Bytes of a stream that have not been passed on: finds where each frame begins and ends. Called by `rx.rs`.
//!
//! **Problem.** A read brings what there is: a part of a frame, or many. A read for each frame costs a call
//! each, a read into a place of its own a copy of every byte, and a read that finds nothing a call for
//! nothing, once for each time that the peer sends.
//!
//! **Rule.** After a short frame, a read fills the stage, and each frame is copied out of it. After a long
//! one, a read begins in the driver's own buffer and goes on in the stage: the next frame is where it
//! belongs, and what follows it is copied.
//!
//! ```text
//!   driver's buffer │length│ a long frame ... │ what follows │         stage │ HEAD ... │ more that there was │
//!                                                   └──────── copied to the end of HEAD ────┘
//! ```
//!
//! A read that brings less than there was room for has taken everything. So nothing is read any more in this
//! batch: the next frame is announced, because it comes after that read. A peer that passes descriptors
//! (`SCM_RIGHTS`) or urgent bytes ends reads early; what is behind them comes with the frame after.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use taut_core::BUFFER_BYTES;

use super::carrier::{Carrier, FRAME_MAX, Heard, LENGTH};

/// Bytes taken from a stream at a time: as many frames of the usual size as the driver handles in a batch.
const STAGE: usize = 128 << 10;
/// Room in the stage for what follows a frame in the driver's buffer.
const HEAD: usize = BUFFER_BYTES;
/// From so many bytes on, a frame is long: there are few others behind it in a buffer of 64 KB.
const LONG: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Stage {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The driver tells when batches begin.
    has_batches: bool,
    /// The last read of this batch took all that there was.
    took_all: bool,
    /// The last frame was long.
    is_long: bool,
}

/// What [`Stage::next`] has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Staged {
    /// A frame, at this place of the buffer.
    Frame(Range<usize>),
    /// No whole frame now.
    Nothing,
    /// The peer has gone for good.
    End,
}

/// The length of the frame that begins here, if its length has come.
fn announced(bytes: &[u8], most: usize) -> io::Result<Option<usize>> {
    let Some(length) = bytes.first_chunk::<LENGTH>() else { return Ok(None) };
    let len = u32::from_be_bytes(*length) as usize;
    if len > FRAME_MAX.min(most) {
        let message = format!(
            "it announced a frame of {len} bytes: it does not put a length of four bytes in front of each"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(Some(len))
}

impl Stage {
    /// See [`RxDevice::begin_batch`](taut_driver::RxDevice::begin_batch).
    pub(super) const fn begin_batch(&mut self) {
        self.has_batches = true;
        self.took_all = false;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// A whole frame is staged.
    pub(super) fn has_frame(&self) -> bool {
        let waiting = &self.bytes[self.start..self.end];
        matches!(announced(waiting, FRAME_MAX), Ok(Some(len)) if waiting.len() >= LENGTH + len)
    }

    /// The next frame, in the buffer.
    pub(super) fn next(&mut self, carrier: &Carrier, buffer: &mut [u8]) -> io::Result<Staged> {
        loop {
            let waiting = &self.bytes[self.start..self.end];
            if let Some(len) = announced(waiting, buffer.len())?
                && let Some(frame) = waiting.get(LENGTH..LENGTH + len)
            {
                buffer[..len].copy_from_slice(frame);
                self.start += LENGTH + len;
                self.is_long = len >= LONG;
                return Ok(Staged::Frame(0..len));
            }
            if std::mem::take(&mut self.took_all) {
                return Ok(Staged::Nothing);
            }
            if self.bytes.is_empty() {
                self.bytes = vec![0; STAGE + LENGTH + FRAME_MAX];
            }
            let head = if self.is_long && self.is_empty() { HEAD.min(buffer.len()) } else { 0 };
            let (room, found) = if head > 0 {
                let mut buffers =
                    [IoSliceMut::new(&mut buffer[..head]), IoSliceMut::new(&mut self.bytes[HEAD..])];
                let room = buffers.iter().map(|buffer| buffer.len()).sum();
                (room, carrier.recv_bytes(&mut buffers)?)
            } else {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                let free = &mut self.bytes[self.end..];
                (free.len(), carrier.recv(free)?)
            };
            let len = match found {
                Heard::Bytes(len) => len,
                Heard::Nothing => return Ok(Staged::Nothing),
                Heard::End => return Ok(Staged::End),
            };
            self.took_all = self.has_batches && len < room;
            if head == 0 {
                self.end += len;
            } else if let Some(frame) = self.divide(&buffer[..head], len)? {
                return Ok(Staged::Frame(frame));
            }
        }
    }

    /// So many bytes have come, the first of them in this buffer, the others behind the [head](HEAD). Returns
    /// the place of the first frame if it is whole; the rest is in the stage then.
    fn divide(&mut self, buffer: &[u8], len: usize) -> io::Result<Option<Range<usize>>> {
        let (here, beyond) = (len.min(buffer.len()), len.saturating_sub(buffer.len()));
        let whole = announced(&buffer[..here], buffer.len())?.map(|len| LENGTH..LENGTH + len);
        let whole = whole.filter(|frame| frame.end <= here);
        let rest = &buffer[whole.as_ref().map_or(0, |frame| frame.end)..here];
        self.is_long = whole.as_ref().is_none_or(|frame| frame.len() >= LONG);
        (self.start, self.end) = (HEAD - rest.len(), HEAD + beyond);
        self.bytes[self.start..HEAD].copy_from_slice(rest);
        Ok(whole)
    }
}
