//! Futures that wait for a shard. Called by the asynchronous sockets and by `stack.rs`.

use std::future::poll_fn;
use std::io;
use std::task::Context;

use taut_driver::{Access, Interest, Shard, WaitKey};

use crate::common::socket::Attempt;

/// Waits until `attempt` is ready.
pub(crate) async fn until<T>(
    shard: &Shard,
    interest: Interest,
    mut attempt: impl FnMut(&mut Access<'_>) -> Attempt<T>,
) -> io::Result<T> {
    let mut waiting = Waiting::new(shard, interest);
    poll_fn(|cx| waiting.poll(cx, &mut attempt)).await
}

/// The registration of one waiting future; removed when this is dropped.
pub(crate) struct Waiting<'a> {
    shard: &'a Shard,
    interest: Interest,
    key: Option<WaitKey>,
}

impl<'a> Waiting<'a> {
    pub(crate) const fn new(shard: &'a Shard, interest: Interest) -> Self {
        Self { shard, interest, key: None }
    }

    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: &mut impl FnMut(&mut Access<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        let key = *self.key.get_or_insert_with(WaitKey::unique);
        let result = self.shard.poll(self.interest, key, cx.waker(), attempt);
        if result.is_ready() {
            // No longer registered.
            self.key = None;
        }
        result
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shard.cancel(self.interest, key);
        }
    }
}
