//! Memory that may outlive the queue it is in. It is reference-counted, so that a packet that waits below TCP
//! needs no copy of its payload. taut's own; Linux counts the pages of an `sk_buff`. Held by the chunks of a
//! queue, by a [`KeptPacket`](super::KeptPacket), and by what an application read without a copy; the pool
//! takes it back from the last holder. Memory that an application lent is its own again when the last holder
//! has dropped it.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use bytes::Bytes;

/// A piece of initialised memory. Its holders read it; only the stack's own can be written, while it has one
/// holder.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Arc<Store>);

#[derive(Debug)]
enum Store {
    /// The stack's, normally from its pool.
    Own(Vec<u8>),
    /// An application's, with a receipt. That is dropped after the bytes, so it never says too early that
    /// they are free. Or nobody's, without one: bytes that are known ([`Known`](super::Known)). These share a
    /// variant, since a third one would make each piece larger.
    Others { bytes: Bytes, receipt: Option<Arc<()>> },
}

/// Tells whether memory that an application lent still has a holder.
#[derive(Debug)]
pub(crate) struct Receipt(Arc<()>);

impl Receipt {
    /// Whether every holder has dropped the memory.
    pub(crate) fn is_free(&mut self) -> bool {
        // Unlike `strong_count`, this sees everything that the last holder did before.
        Arc::get_mut(&mut self.0).is_some()
    }
}

impl Memory {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Store::Own(bytes)))
    }

    pub(crate) fn zeroed(len: usize) -> Self {
        Self::new(vec![0; len])
    }

    /// An application's memory, and the receipt that tells when it is free.
    pub(crate) fn lent(bytes: Bytes) -> (Self, Receipt) {
        let receipt = Arc::new(());
        (Self(Arc::new(Store::Others { bytes, receipt: Some(Arc::clone(&receipt)) })), Receipt(receipt))
    }

    /// Known bytes, in the place of memory of the same length.
    pub(crate) fn known(bytes: &'static [u8]) -> Self {
        Self(Arc::new(Store::Others { bytes: Bytes::from_static(bytes), receipt: None }))
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &*self.0 {
            Store::Own(bytes) => bytes,
            Store::Others { bytes, .. } => bytes,
        }
    }

    /// Whether nobody's memory stands for known bytes.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        matches!(*self.0, Store::Others { receipt: None, .. })
    }

    /// Whether more may not be written behind what it has: it has another holder, or is an application's.
    #[inline]
    pub(crate) fn is_held(&mut self) -> bool {
        matches!(Arc::get_mut(&mut self.0), None | Some(Store::Others { receipt: Some(_), .. }))
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether it is an application's.
    #[inline]
    pub(crate) fn is_lent(&self) -> bool {
        matches!(*self.0, Store::Others { receipt: Some(_), .. })
    }

    /// Whether both are the same piece.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The memory, to be written; `None` while it has another holder, or if it is not the stack's own.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        match Arc::get_mut(&mut self.0)? {
            Store::Own(bytes) => Some(bytes),
            Store::Others { .. } => None,
        }
    }

    /// The bytes in `range`, for an application that may hold them as long as it likes.
    pub(crate) fn share(&self, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Part { memory: self.clone(), range })
    }
}

/// The owner of bytes that an application read.
struct Part {
    memory: Memory,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes().get(self.range.clone()).unwrap_or_default()
    }
}
