//! The tables of a stack: who a packet belongs to, and what is due when.
//!
//! ```text
//!   owners.rs        all tables in which a four-tuple may be
//!   demux.rs         from a four-tuple to its owner      table.rs   all connections, by slot
//!   time_wait.rs     connections in TIME-WAIT            lists.rs   entries in the order of their arrival
//!   timer_queue.rs   one deadline for each connection
//! ```

pub(crate) mod demux;
pub(crate) mod lists;
pub(crate) mod owners;
pub(crate) mod table;
pub(crate) mod time_wait;
pub(crate) mod timer_queue;
