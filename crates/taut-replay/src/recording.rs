//! Reads a recording: its frames, and the inputs in them one after the other. Called by `player.rs`.
//!
//! Nothing in a file is trusted. A file that was cut can be read up to the cut; one in which a byte was
//! changed, up to the frame with that byte.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use taut_core::Instant;
use taut_core::congestion::Registry;
use thiserror::Error;

use crate::codec::{Cursor, Trouble};
use crate::frame::{self, FrameKind, HEAD_BYTES, Head, MAGIC, PREFACE_BYTES, VERSION};
use crate::header::Header;
use crate::input::{Input, Kind};
use crate::tape::{ENDED, HELD_BIT, KIND_BITS, LOST_BIT, NUMBER_BITS, TIME_BIT};

/// Why a recording cannot be read, or not further.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no recording.
    #[error("this is not a recording of taut: it does not begin with TAUTREC")]
    NotOurs,
    /// It has another version.
    #[error(
        "this recording has version {found} of the format, and this program reads version {VERSION}; use the program that recorded it"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// It was cut within the header.
    #[error("the recording ends within its header: the program was stopped as it began")]
    NoHeader,
    /// Its stack cannot be made again.
    #[error("the recorded stack cannot be made again: {0}")]
    Config(String),
    /// A checksum or a value is wrong.
    #[error(
        "the recording is damaged at byte {offset}: {what}; what comes before can be replayed with --to {inputs}"
    )]
    Damaged {
        /// Where the frame begins.
        offset: u64,
        /// What is wrong.
        what: String,
        /// The inputs before.
        inputs: u64,
    },
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordEnd {
    /// With its stack.
    Whole,
    /// The disk was too slow, and the stack went on without it.
    TooSlow,
    /// Without a mark: the program was killed, or the disk was full.
    Cut,
}

/// An input as it was recorded.
#[derive(Debug)]
pub(crate) struct Recorded<'a> {
    /// 1 for the first.
    pub(crate) number: u64,
    pub(crate) now: Instant,
    pub(crate) input: Input<'a>,
    /// What the call returned, if it did.
    pub(crate) outcome: Option<u64>,
    /// The questions to the witness that were answered with yes.
    pub(crate) held: &'a [u32],
}

/// A recording that is being read.
#[derive(Debug)]
pub(crate) struct Recording<R = File> {
    file: R,
    /// Bytes read.
    offset: u64,
    /// Where the last frame begins.
    frame_at: u64,
    pub(crate) header: Header,
    pub(crate) registry: Registry,
    /// Inputs that were read from the file, from `at` on.
    stream: Vec<u8>,
    at: usize,
    held: Vec<u32>,
    now: Instant,
    count: u64,
    end: Option<RecordEnd>,
}

impl Recording {
    pub(crate) fn open(path: &Path, registry: &Registry) -> Result<Self, RecordingError> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Self::new(File::open(path).map_err(named)?, registry)
    }
}

/// Reads as many bytes as there are. Returns how many.
fn fill(file: &mut impl Read, mut into: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while !into.is_empty() {
        match file.read(into) {
            Ok(0) => break,
            Ok(read) => {
                count += read;
                into = &mut into[read..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

impl<R: Read> Recording<R> {
    pub(crate) fn new(mut file: R, registry: &Registry) -> Result<Self, RecordingError> {
        let mut preface = [0; PREFACE_BYTES];
        let count = fill(&mut file, &mut preface)?;
        if count < MAGIC.len() || preface[..MAGIC.len()] != MAGIC {
            return Err(RecordingError::NotOurs);
        }
        let [.., a, b, c, d] = preface;
        let found = u32::from_le_bytes([a, b, c, d]);
        if count == PREFACE_BYTES && preface != frame::preface() {
            return Err(RecordingError::Version { found });
        }
        let mut offset = count as u64;
        let damaged = |what: &str| RecordingError::Damaged {
            offset: PREFACE_BYTES as u64,
            what: what.to_owned(),
            inputs: 0,
        };
        let mut content = Vec::new();
        let header = match read_frame(&mut file, &mut offset, &mut content)? {
            Frame::Whole(FrameKind::Header) => {
                Header::get(&mut Cursor::new(&content, registry)).map_err(|_| damaged("a wrong header"))?
            }
            Frame::Whole(_) => return Err(damaged("there is no header")),
            Frame::Wrong(what) => return Err(damaged(what)),
            Frame::Cut => return Err(RecordingError::NoHeader),
        };
        Ok(Self {
            file,
            offset,
            frame_at: PREFACE_BYTES as u64,
            header,
            registry: registry.clone(),
            stream: Vec::new(),
            at: 0,
            held: Vec::new(),
            now: Instant::ZERO,
            count: 0,
            end: None,
        })
    }

    /// How many bytes of the file were read.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// How it ends, once that was read.
    pub(crate) const fn end(&self) -> Option<RecordEnd> {
        self.end
    }

    fn damaged(&self, what: impl Into<String>) -> RecordingError {
        RecordingError::Damaged { offset: self.frame_at, what: what.into(), inputs: self.count }
    }

    /// The next input; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Recorded<'_>>, RecordingError> {
        // In two steps, because an input that is incomplete borrows the stream, too.
        loop {
            let mut cursor = Cursor::new(&self.stream[self.at..], &self.registry);
            match parse(&mut cursor, self.now, &mut self.held) {
                Ok(_) => break,
                Err(Trouble::Short) => {}
                Err(Trouble::Wrong(what)) => return Err(self.damaged(what)),
            }
            if self.end.is_some() || !self.read_more()? {
                return Ok(None);
            }
        }
        let mut cursor = Cursor::new(&self.stream[self.at..], &self.registry);
        let Ok((now, input, outcome)) = parse(&mut cursor, self.now, &mut self.held) else { return Ok(None) };
        self.at += cursor.at();
        self.now = now;
        self.count += 1;
        Ok(Some(Recorded { number: self.count, now, input, outcome, held: &self.held }))
    }

    /// Reads a frame of inputs. False at the end.
    fn read_more(&mut self) -> Result<bool, RecordingError> {
        self.stream.drain(..self.at);
        self.at = 0;
        self.frame_at = self.offset;
        let mut content = Vec::new();
        match read_frame(&mut self.file, &mut self.offset, &mut content)? {
            Frame::Whole(FrameKind::Inputs) => {
                self.stream.extend_from_slice(&content);
                Ok(true)
            }
            Frame::Whole(FrameKind::End) => {
                let whole = content.first() == Some(&ENDED);
                self.end = Some(if whole { RecordEnd::Whole } else { RecordEnd::TooSlow });
                Ok(false)
            }
            Frame::Whole(FrameKind::Header) => Err(self.damaged("a second header")),
            Frame::Wrong(what) => Err(self.damaged(what)),
            Frame::Cut => {
                self.end = Some(RecordEnd::Cut);
                Ok(false)
            }
        }
    }
}

enum Frame {
    Whole(FrameKind),
    Wrong(&'static str),
    /// The file ends before it does.
    Cut,
}

fn read_frame(file: &mut impl Read, offset: &mut u64, content: &mut Vec<u8>) -> io::Result<Frame> {
    let mut head = [0; HEAD_BYTES];
    let count = fill(file, &mut head)?;
    *offset += count as u64;
    if count < HEAD_BYTES {
        return Ok(Frame::Cut);
    }
    let Some(head) = Head::get(&head) else { return Ok(Frame::Wrong("a frame of impossible length")) };
    content.resize(head.len, 0);
    let count = fill(file, content)?;
    *offset += count as u64;
    if count < head.len {
        return Ok(Frame::Cut);
    }
    Ok(head.check(content).map_or(Frame::Wrong("a wrong checksum"), Frame::Whole))
}

/// An input, its time, and what its call returned.
type Parsed<'a> = (Instant, Input<'a>, Option<u64>);

fn parse<'a>(cursor: &mut Cursor<'a>, last: Instant, held: &mut Vec<u32>) -> Result<Parsed<'a>, Trouble> {
    let first = cursor.byte()?;
    let number = first & KIND_BITS;
    let Some(kind) = Kind::of(number) else {
        return Trouble::wrong(format!("an input of the unknown kind {number}"));
    };
    let step = if first & TIME_BIT != 0 { cursor.signed()? } else { 0 };
    let now = Instant::from_nanos(last.as_nanos().wrapping_add_signed(step));
    let input = Input::get(kind, cursor)?;
    let flags = cursor.byte()?;
    if flags & LOST_BIT != 0 {
        held.clear();
        return Ok((now, input, None));
    }
    let len = usize::from(flags & NUMBER_BITS);
    if len > 8 {
        return Trouble::wrong("an outcome of more than 64 bits");
    }
    let mut bytes = [0; 8];
    bytes[..len].copy_from_slice(cursor.take(len)?);
    held.clear();
    if flags & HELD_BIT != 0 {
        for _ in 0..cursor.small::<u32>()? {
            held.push(cursor.small()?);
        }
    }
    Ok((now, input, Some(u64::from_le_bytes(bytes))))
}
