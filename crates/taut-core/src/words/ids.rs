//! Names of connections and listeners: a slot, and a generation so that an old name finds nothing.
//! taut's own; issued by the stack's tables and kept by the application.

/// Names a connection for as long as the application holds it; never reused for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// A small index, unique among live connections, for the caller's own tables.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Names a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ListenerId {
    /// Names no listener.
    pub(crate) const NONE: Self = Self { slot: u32::MAX, generation: 0 };

    /// A small index, unique among live listeners, for the caller's own tables.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}
