//! One connection: the upstream first, then the guest's answer, then bytes both ways. The guest sees a
//! refusal as a refusal, and silence as silence.

use std::net::SocketAddr;

use taut::IncomingFlow;

use crate::flow::{End, Side, Then};
use crate::relay::relay;
use crate::serve::Handle;
use crate::way_out::{Upstream, WayOut, failure};

pub(crate) async fn tcp<W: WayOut>(incoming: IncomingFlow, to: SocketAddr, way: &W, flow: Handle) {
    let dialled = tokio::select! {
        dialled = way.connect(to) => dialled,
        // Dropped without an answer: the host is silent, and so is the gateway.
        () = flow.stopped() => return,
    };
    let upstream = match dialled {
        Ok(upstream) => upstream,
        Err(error) => {
            if let Then::Refuse(how) = flow.failed(failure(&error)) {
                incoming.refuse(how);
            }
            return;
        }
    };
    if flow.reached() != Then::Accept {
        return;
    }
    let answered = tokio::select! {
        guest = incoming.accept() => guest.ok(),
        () = flow.stopped() => None,
    };
    let Some(guest) = answered else {
        flow.ended(Side::Guest, End::Reset);
        return upstream.abort();
    };
    flow.answered();
    let then = relay(&guest, &upstream, &flow).await;
    if matches!(then, Then::ResetBoth | Then::Reset(Side::Guest)) {
        guest.abort();
    }
    if matches!(then, Then::ResetBoth | Then::Reset(Side::Upstream)) {
        upstream.abort();
    }
}
