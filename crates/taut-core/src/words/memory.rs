//! Memory that may outlive the queue it is in. It is reference-counted, so that a packet that waits below TCP
//! needs no copy of its payload. taut's own; Linux counts the pages of an `sk_buff`. Held by the chunks of a
//! queue and by a [`KeptPacket`](super::KeptPacket); the pool takes it back from the last holder.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// A piece of initialised memory. Its holders read it; it can be written only while there is one holder.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Arc<Vec<u8>>);

impl Memory {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }

    pub(crate) fn zeroed(len: usize) -> Self {
        Self::new(vec![0; len])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The memory, to be written; `None` while a packet still holds it.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        Arc::get_mut(&mut self.0)
    }
}
