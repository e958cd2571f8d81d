//! What the benchmark programs share. Not an API: nothing outside this package uses it.

pub mod alloc;
pub mod cpu;
pub mod instructions;
pub mod measure;
pub mod net;
pub mod pair;
pub mod peer;
pub mod probe;
pub mod report;
pub mod server;
pub mod stacks;
pub mod tap;
