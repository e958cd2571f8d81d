//! The time of a link layer that a test holds.
#![allow(unreachable_pub, reason = "tests")]

use taut_core::{Duration, Instant};
use taut_ethernet::Ethernet;

/// Lets so much time pass, deadline by deadline: `parts` finds the link and its clock in `own`, and `collect`
/// takes what the link has after each deadline.
pub fn pass<T>(
    own: &mut T,
    span: Duration,
    parts: impl Fn(&mut T) -> (&mut Ethernet<u32>, &mut Instant),
    collect: impl Fn(&mut T),
) {
    let end = *parts(own).1 + span;
    for _ in 0..10_000 {
        let (link, now) = parts(own);
        if link.poll_timeout() > end {
            *now = end;
            return;
        }
        *now = link.poll_timeout().max(*now);
        link.handle_timeout(*now);
        collect(own);
    }
    panic!("it spins");
}
