//! What the application has written: where it is kept, what was lent, and how much there may be.

pub(crate) mod loans;
pub(crate) mod notsent_lowat;
pub(crate) mod sndbuf;
pub(crate) mod write_queue;
