//! One connection: the upstream first, then the guest's answer, then bytes both ways. The guest sees a
//! refusal as a refusal, and silence as silence. A guest that leaves meanwhile ends the dialling.
//!
//! **Memory.** A connection is idle for most of its life. Its task is as large as its largest moment, so the
//! opening has memory of its own, which is freed when the connection is open.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use taut::{IncomingFlow, TcpStream};

use crate::logic::flow::{End, NextStep, Side};
use crate::out::way_out::{Upstream, WayOut, failure};
use crate::run::first_bytes::say_name;
use crate::run::relay::relay;
use crate::run::server::Handle;

/// How often a guest that waits for its connection is asked whether it is still there. Most connections are
/// there before that; one for which the host repeats its SYN, after a second, is not.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The life of a connection, from a guest's SYN on.
pub(crate) fn tcp<W: WayOut>(
    incoming: IncomingFlow,
    to: SocketAddr,
    way: Arc<W>,
    flow: Handle,
) -> impl Future<Output = ()> + Send {
    let opening = Box::pin(open(incoming, to, way, flow));
    async move {
        let Some(open) = opening.await else { return };
        let then = relay(&open.guest, &open.upstream, &open.flow).await;
        if matches!(then, NextStep::ResetBoth | NextStep::Reset(Side::Guest)) {
            open.guest.abort();
        }
        if matches!(then, NextStep::ResetBoth | NextStep::Reset(Side::Upstream)) {
            open.upstream.abort();
        }
    }
}

/// Both ends are there.
struct Open<U> {
    guest: TcpStream,
    upstream: U,
    flow: Handle,
}

async fn open<W: WayOut>(
    incoming: IncomingFlow,
    to: SocketAddr,
    way: Arc<W>,
    flow: Handle,
) -> Option<Open<W::Stream>> {
    let from = incoming.peer_addr();
    let dialled = tokio::select! {
        dialled = way.connect(to) => dialled,
        end = left(&incoming) => {
            // Without the stack there is nobody to leave.
            if end.is_ok() {
                flow.left(from);
            }
            return None;
        }
        // Dropped without an answer: the host is silent, and so is the gateway.
        () = flow.stopped() => return None,
    };
    let upstream = match dialled {
        Ok(upstream) => upstream,
        Err(error) => {
            if let NextStep::Refuse(how) = flow.failed(failure(&error)) {
                incoming.refuse(how);
            }
            return None;
        }
    };
    if flow.reached() != NextStep::Accept {
        return None;
    }
    let answered = tokio::select! {
        guest = incoming.accept() => guest.ok(),
        () = flow.stopped() => None,
    };
    let Some(guest) = answered else {
        flow.ended(Side::Guest, End::Reset);
        upstream.abort();
        return None;
    };
    flow.answered();
    // A delayed ACK would hold a request's second write, by Nagle's rule.
    _ = guest.set_quickack(true);
    if let Some(first) = flow.must_say_name()
        && !say_name(&guest, &upstream, &flow, (from, first), &[]).await
    {
        guest.abort();
        upstream.abort();
        return None;
    }
    flow.prefer(&upstream);
    Some(Open { guest, upstream, flow })
}

/// Waits until the guest does not want its connection any more. One that closes a socket whose SYN is not
/// answered sends nothing; so it is asked.
async fn left(incoming: &IncomingFlow) -> io::Result<()> {
    let mut gone = pin!(incoming.gone());
    loop {
        tokio::select! {
            end = &mut gone => return end,
            () = tokio::time::sleep(ASK_EVERY) => { incoming.probe(); }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::host_sockets::HostSockets;

    fn size<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn gw_72_an_idle_connection_has_a_small_task() {
        let task = size(|(incoming, way, flow)| {
            tcp::<HostSockets>(incoming, SocketAddr::from(([0; 4], 0)), way, flow)
        });
        // With what tokio adds, 104 bytes, three lines of 128, in which it allocates.
        assert!(task <= 280, "{task} bytes");
    }
}
