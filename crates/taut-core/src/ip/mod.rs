//! What every protocol over IP shares: packets put together from fragments, and what is known about paths.
//!
//! ```text
//!   reassembly.rs   fragments become packets        path_mtu.rs   the largest packet to a destination
//! ```

pub(crate) mod path_mtu;
pub(crate) mod reassembly;

pub use reassembly::FragmentConfig;
