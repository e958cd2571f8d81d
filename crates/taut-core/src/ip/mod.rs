//! What every protocol over IP shares: packets put together from fragments, what is known about paths, where
//! packets go and which address they come from.
//!
//! ```text
//!   reassembly.rs   fragments become packets        path_mtu.rs   the largest packet to a destination
//!   addresses.rs    the addresses of a host, and the choice of a source        routes.rs   its routers
//!   icmp.rs         how many errors are sent        outgoing.rs   the header of outgoing packets
//! ```

pub(crate) mod addresses;
pub(crate) mod icmp;
pub(crate) mod outgoing;
pub(crate) mod path_mtu;
pub(crate) mod reassembly;
pub(crate) mod routes;

pub use addresses::is_host;
pub use reassembly::FragmentConfig;
pub use routes::Routes;
