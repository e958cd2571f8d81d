//! Names of connections, listeners, flows and datagram sockets: a slot, and a generation so that an old name
//! finds nothing. taut's own; issued by the stack's tables and kept by the application.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub(crate) slot: u32,
            pub(crate) generation: u32,
        }

        impl $name {
            /// The name as a number, for a file.
            #[must_use]
            pub const fn to_bits(self) -> u64 {
                (self.generation as u64) << 32 | self.slot as u64
            }

            /// The name with this number. One that was never issued finds nothing.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self { slot: bits as u32, generation: (bits >> 32) as u32 }
            }

            /// A small index, unique among those of its kind that are live, for the caller's own tables.
            #[must_use]
            pub const fn slot(self) -> usize {
                self.slot as usize
            }
        }
    )* };
}

ids! {
    /// Names a connection for as long as the application holds it; never reused for another.
    ConnId
    /// Names a flow that the application has not decided about; never reused for another.
    FlowId
    /// Names a datagram socket for as long as the application holds it; never reused for another.
    DatagramId
    /// Names a listener, or a filter of incoming flows.
    ListenerId
}

impl ListenerId {
    /// Names no listener.
    pub(crate) const NONE: Self = Self { slot: u32::MAX, generation: 0 };
}
