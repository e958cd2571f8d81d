//! A connection's payload bytes below TCP, on a device whose completions are measured, and its place in the
//! line.

/// The bytes of a connection below TCP whose completions are measured, and its place in the line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Metered {
    /// The payload bytes below four flags: four bytes in all, since every idle connection has them.
    pub(super) bits: u32,
}

/// The connection waits for its turn, and is counted as waiting.
pub(super) const WAITS: u32 = 1 << 31;

/// The small queue's own flag, of every mode: the next completion resumes the connection.
const THROTTLED: u32 = 1 << 30;

/// It is the connection's turn.
pub(super) const TURN: u32 = 1 << 29;

/// The stack's line has an entry of the connection.
pub(super) const IN_LINE: u32 = 1 << 28;

/// The most payload bytes that are counted.
pub(super) const MOST: u32 = IN_LINE - 1;

impl Metered {
    /// Payload bytes.
    pub(crate) const fn bytes(self) -> u32 {
        self.bits & MOST
    }

    pub(super) const fn has(self, flag: u32) -> bool {
        self.bits & flag != 0
    }

    /// Sets or clears a flag. Returns what it was.
    pub(super) const fn set(&mut self, flag: u32, on: bool) -> bool {
        let was = self.has(flag);
        self.bits = if on { self.bits | flag } else { self.bits & !flag };
        was
    }

    pub(crate) const fn throttled(self) -> bool {
        self.has(THROTTLED)
    }

    /// Sets or clears the flag. Returns what it was.
    pub(crate) const fn throttle(&mut self, on: bool) -> bool {
        self.set(THROTTLED, on)
    }

    /// Whether the connection waits for its turn.
    pub(crate) const fn waits(self) -> bool {
        self.has(WAITS)
    }

    /// Whether it must get a place in the line; it has one from now on.
    pub(crate) const fn joins(&mut self) -> bool {
        self.waits() && !self.set(IN_LINE, true)
    }
}
