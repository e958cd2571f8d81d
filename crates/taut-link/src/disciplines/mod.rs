//! Queue disciplines, what describes them in the words of `tc`, and trees of them.

pub(crate) mod codel;
pub(crate) mod fifo;
pub(crate) mod fq;
pub(crate) mod fq_codel;
pub(crate) mod netem;
pub(crate) mod pfifo_fast;
pub(crate) mod spec;
pub(crate) mod tbf;
pub(crate) mod tree;
