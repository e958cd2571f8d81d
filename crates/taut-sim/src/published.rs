//! The five published results, as experiments: what the Linux commits that introduced the mechanisms measured, with the
//! mechanism as it was before and after. Called by whoever prints them beside the published figures.
//!
//! Each function builds a network as the commit describes it, runs it for a while of virtual time, and returns plain
//! numbers. What a simulator cannot know (a machine's own service times, the threads of a kernel) is in the parameters,
//! and said so.

mod autocork;
mod autosize;
mod lowat;
mod pacing;
mod tsq;

pub use autocork::{AutocorkCase, AutocorkResult, autocork};
pub use autosize::{AutosizeCase, AutosizeResult, autosize};
pub use lowat::{LowatCase, LowatResult, lowat};
pub use pacing::{PacingCase, PacingResult, Spacer, pacing};
pub use tsq::{TsqCase, TsqResult, tsq};

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use taut_core::Duration;

use crate::check::Failure;
use crate::world::{HostId, World};

/// A place at a host.
fn at(world: &World, host: HostId, port: u16) -> SocketAddr {
    let address = world.host_ref(host).address().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    SocketAddr::new(address, port)
}

/// A number a second.
fn per_second(count: u64, span: Duration) -> f64 {
    count as f64 * 1e9 / span.as_nanos() as f64
}

/// Bits a second, in millions.
fn mbit(bytes: u64, span: Duration) -> f64 {
    per_second(bytes, span) * 8e-6
}

/// Milliseconds, with their fraction.
fn ms(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}

/// Runs in steps of `step` and lets `f` look after each.
fn sample(
    world: &mut World,
    span: Duration,
    step: Duration,
    mut f: impl FnMut(&World),
) -> Result<(), Failure> {
    let end = world.now() + span;
    while world.now() < end {
        let left = end.since(world.now());
        world.run_for(left.min(step))?;
        f(world);
    }
    Ok(())
}
