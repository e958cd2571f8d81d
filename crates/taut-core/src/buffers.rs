//! Payload memory: a pool of buffers of [`BUFFER_BYTES`](crate::BUFFER_BYTES), and queues of chunks cut from
//! it. Origin: taut's own; Linux keeps payload in page fragments of `sk_buff`s, taut in plain byte vectors.
//! Called by the write queue, the read queue and reassembly; the pool itself is one per stack.
//!
//! ```text
//!   pool.rs    memory that is not in use, by size, and where it goes when it is given back
//!   chunk.rs   a run of bytes in a piece of memory, who else may hold it, and what it counts as
//!   queue.rs   chunks in a row, from which packets are gathered
//!   budget.rs  how much all connections may hold: tcp_mem
//!   tuning.rs  how far one buffer may grow by itself
//! ```

mod budget;
mod chunk;
mod pool;
mod queue;
mod tuning;

pub(crate) use budget::{CHUNK_OVERHEAD, Spare};
pub use budget::{MemoryLimits, MemoryUse};
pub(crate) use chunk::Chunk;
pub(crate) use pool::{BufferPool, CHUNK_MIN};
pub(crate) use queue::ChunkQueue;
pub use tuning::BufferTuning;
pub(crate) use tuning::{Growth, tuned_max};
