//! Replays a recording: makes each call again, and compares what it returns with what was recorded. Called by
//! `taut replay`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use taut_core::congestion::Registry;
use taut_core::{Instant, Stack};

use crate::answers::{Answers, Given};
use crate::input::{Arrived, Input, Kind, Room, apply};
use crate::recording::{RecordEnd, Recording, RecordingError};

/// A packet that the replayed stack received or handed out.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// When.
    pub at: Instant,
    /// Whether the stack handed it out.
    pub is_sent: bool,
    /// The packet from its IP header on: all of one that was received, the headers of one that was sent.
    pub bytes: &'a [u8],
    /// Its length.
    pub len: usize,
}

/// The first call that did not do what it had done when it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The number of the input, 1 for the first.
    pub input: u64,
    /// What kind of input it is.
    pub kind: Kind,
    /// Its time.
    pub at: Instant,
    /// What the recording has, as a number: 0 for nothing, a count, or a checksum.
    pub recorded: u64,
    /// What the replay did, in words.
    pub replayed: String,
}

/// What came of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Played {
    /// The same as when it was recorded.
    Same,
    /// Something else. The stack is not the recorded one any more.
    Different(Difference),
    /// Its call had not returned: the program panicked in it. The replayed call returned.
    Lost(u64),
}

/// A recorded stack that runs again.
#[derive(Debug)]
pub struct Player<R = File> {
    recording: Recording<R>,
    stack: Stack,
    answers: Arc<Answers>,
    room: Room,
    /// The first time in the recording.
    begin: Option<Instant>,
    now: Instant,
    inputs: u64,
}

impl Player {
    /// The recorded stack, before its first input. Names of congestion controls mean those of `registry`.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording that this program understands.
    pub fn open(path: &Path, registry: &Registry) -> Result<Self, RecordingError> {
        Self::of(Recording::open(path, registry)?)
    }
}

impl<R: Read> Player<R> {
    /// [`open`](Player::open) for a recording that is not a file.
    ///
    /// # Errors
    /// As there.
    pub fn new(recording: R, registry: &Registry) -> Result<Self, RecordingError> {
        Self::of(Recording::new(recording, registry)?)
    }

    fn of(recording: Recording<R>) -> Result<Self, RecordingError> {
        let mut stack = recording.header.stack(&recording.registry).map_err(RecordingError::Config)?;
        let answers = Arc::default();
        stack.set_witness(Box::new(Given(Arc::clone(&answers))));
        let room = Room::default();
        Ok(Self { recording, stack, answers, room, begin: None, now: Instant::ZERO, inputs: 0 })
    }

    /// The stack as it is now.
    #[must_use]
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The time of the last input.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The first time in the recording.
    #[must_use]
    pub fn begin(&self) -> Instant {
        self.begin.unwrap_or(self.now)
    }

    /// How many inputs were replayed.
    #[must_use]
    pub const fn inputs(&self) -> u64 {
        self.inputs
    }

    /// How many questions the last input's answers were yes to.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.answers.count()
    }

    /// How many bytes of the recording were read.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.recording.offset()
    }

    /// The version of the program that recorded.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.recording.header.program
    }

    /// The number of the recorded shard, and how many there were.
    #[must_use]
    pub const fn shard(&self) -> (u16, u16) {
        self.recording.header.shard
    }

    /// How the recording ends, once it was replayed to the end.
    #[must_use]
    pub const fn end(&self) -> Option<RecordEnd> {
        self.recording.end()
    }

    /// Replays the next input if its time is at most `until`. `None` at the end of the recording, and for an
    /// input that is later, which ends the replay: it is not kept. `watch` sees each packet.
    ///
    /// # Errors
    /// The recording cannot be read further.
    pub fn step(
        &mut self,
        until: Instant,
        watch: &mut dyn FnMut(Seen<'_>),
    ) -> Result<Option<Played>, RecordingError> {
        let Some(next) = self.recording.next()?.filter(|next| next.now <= until) else { return Ok(None) };
        let now = next.now;
        self.now = now;
        // Inputs before the first with a time, such as settings, have none.
        if self.begin.is_none() && now > Instant::ZERO {
            self.begin = Some(now);
        }
        self.inputs = next.number;
        self.answers.begin(next.held);
        let kind = next.input.kind();
        if let Input::Packet { packet: Arrived { bytes, .. } } = next.input {
            watch(Seen { at: now, is_sent: false, bytes, len: bytes.len() });
        }
        let mut emitted = |transmit: &taut_core::Transmit<'_>| {
            let packet = &transmit.packet;
            let at = packet.departure.max(now);
            watch(Seen { at, is_sent: true, bytes: packet.header, len: packet.len() });
        };
        let recorded = next.outcome.unwrap_or(0);
        let played = apply(&mut self.stack, now, next.input, recorded, &mut self.room, &mut emitted);
        Ok(Some(match (next.outcome, played) {
            (None, _) => Played::Lost(next.number),
            (Some(_), Ok(())) => Played::Same,
            (Some(recorded), Err(replayed)) => {
                Played::Different(Difference { input: next.number, kind, at: now, recorded, replayed })
            }
        }))
    }
}
