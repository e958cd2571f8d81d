//! Driving from a task of a tokio runtime.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use taut_device::Device;
use taut_device::sys::async_fd;
use tokio::io::Interest;

use crate::shard::{Shard, wake};

/// Turns that follow each other while input keeps coming, before other tasks get to run.
const TURNS_BEFORE_YIELD: usize = 4;

/// Drives `shard` until it is closed. Needs a runtime with its IO driver enabled. When the future is dropped the
/// shard is closed.
///
/// # Errors
/// No descriptors left.
pub async fn run<D: Device>(shard: Arc<Shard<D>>) -> io::Result<()> {
    let _closer = CloseOnExit(&shard);
    let both = Interest::READABLE | Interest::WRITABLE;
    let device = async_fd(shard.device_fd.as_fd(), both)?;
    let timer = async_fd(shard.timer.as_fd(), Interest::READABLE)?;
    let notify = async_fd(shard.notify.as_fd(), Interest::READABLE)?;
    let inbox = async_fd(shard.inbox.as_fd(), Interest::READABLE)?;
    let mut wakers = Vec::new();
    while !shard.is_closed() {
        let (mut readable, mut writable, mut due, mut notified, mut handed) = (None, None, None, None, None);
        std::future::poll_fn(|cx| {
            use std::task::Poll::{Pending, Ready};
            if let Ready(guard) = device.poll_read_ready(cx) {
                readable = Some(guard);
            }
            if shard.wants_writable()
                && let Ready(guard) = device.poll_write_ready(cx)
            {
                writable = Some(guard);
            }
            if let Ready(guard) = timer.poll_read_ready(cx) {
                due = Some(guard);
            }
            if let Ready(guard) = notify.poll_read_ready(cx) {
                notified = Some(guard);
            }
            if let Ready(guard) = inbox.poll_read_ready(cx) {
                handed = Some(guard);
            }
            let any = readable.is_some()
                || writable.is_some()
                || due.is_some()
                || notified.is_some()
                || handed.is_some();
            if any { Ready(()) } else { Pending }
        })
        .await;
        // Cleared before the turn: what happens during the turn shows again. For the device, only a turn that
        // found it empty or full may clear, since its readiness is told by edges.
        if let Some(guard) = notified {
            guard?.clear_ready();
            shard.notify.drain();
        }
        if let Some(guard) = due {
            guard?.clear_ready();
        }
        if let Some(guard) = handed {
            guard?.clear_ready();
        }
        let more = (0..TURNS_BEFORE_YIELD).all(|_| {
            let turned = shard.turn(&mut wakers);
            wake(&mut wakers);
            turned.more
        });
        if let Some(guard) = readable {
            let mut guard = guard?;
            if !more {
                guard.clear_ready();
            }
        }
        if let Some(guard) = writable {
            let mut guard = guard?;
            if shard.wants_writable() {
                guard.clear_ready();
            }
        }
        if more {
            yield_now().await;
        }
    }
    Ok(())
}

async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

struct CloseOnExit<'a, D: Device>(&'a Shard<D>);

impl<D: Device> Drop for CloseOnExit<'_, D> {
    fn drop(&mut self) {
        self.0.close();
    }
}
