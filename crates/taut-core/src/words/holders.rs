//! The one thing a stack learns that no call tells it: whether somebody else still holds memory that it
//! shared. taut's own; kept by the pool of buffers, set through
//! [`Stack::set_witness`](crate::Stack::set_witness).
//!
//! **Problem.** A packet that waits in a device holds the memory of its payload, and an application holds
//! what it read or lent without a copy. They drop it on any thread, at any time. Two decisions depend on
//! that: whether the last chunk of a queue takes more bytes, and whether a lent write is complete. So a run
//! is not quite determined by its calls.
//!
//! **Rule.** Every such decision asks here. Without a witness the answer is the truth. A witness that records
//! a run notes the truth; one that replays it answers what was noted.

use alloc::boxed::Box;
use core::fmt::Debug;

/// Hears each question whether memory has another holder, and may answer it.
pub trait Witness: Debug + Send + Sync {
    /// The truth is `is_held`. Returns what the stack is to believe. It does not write to memory that is
    /// really held, whatever the answer.
    fn is_held(&mut self, is_held: bool) -> bool;
}

/// The stack's witness; usually none.
#[derive(Debug, Default)]
pub(crate) struct Holders(Option<Box<dyn Witness>>);

impl Holders {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    pub(crate) fn set_witness(&mut self, witness: Box<dyn Witness>) {
        self.0 = Some(witness);
    }

    /// Whether there is a witness to ask.
    #[inline]
    pub(crate) const fn are_watched(&self) -> bool {
        self.0.is_some()
    }

    /// The answer to a question whose true answer is `is_held`.
    #[inline]
    pub(crate) fn answer(&mut self, is_held: bool) -> bool {
        match &mut self.0 {
            None => is_held,
            Some(witness) => witness.is_held(is_held),
        }
    }
}
