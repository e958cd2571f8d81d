//! Two stacks of this process, 10.0.0.1 and 10.0.0.2, on a link in memory; and a clock for bounds that hold
//! on a busy machine too.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use taut::device::LinkCaps;
use taut::{Stack, StackBuilder};

/// A stack that the test configures with `near`, and its peer.
pub fn pair(near: impl FnOnce(StackBuilder) -> StackBuilder) -> (Stack, Stack) {
    pair_over(LinkCaps::offloading(1500), near)
}

/// Like [`pair`], on a link with these capabilities.
pub fn pair_over(caps: LinkCaps, near: impl FnOnce(StackBuilder) -> StackBuilder) -> (Stack, Stack) {
    let (here, there) = taut::device::pipe(caps, 4 << 20).unwrap();
    let near = near(Stack::builder().device(here).address("10.0.0.1/24")).build().unwrap();
    (near, Stack::builder().device(there).address("10.0.0.2/24").build().unwrap())
}
