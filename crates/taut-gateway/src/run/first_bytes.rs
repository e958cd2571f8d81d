//! The beginning of a connection that a rule allows by a name: the guest's bytes wait until the gateway has
//! found an allowed name in them, and the server's pass meanwhile. Then `relay.rs` has it. Called by `tcp.rs`
//! and `doors/proxy.rs`.

use std::io;
use std::net::SocketAddr;

use crate::logic::admission::Passage;
use crate::logic::first_bytes::{FirstBytes, Further};
use crate::logic::flow::Side;
use crate::logic::limits::LEAST_GRANT;
use crate::out::way_out::{Upstream, write_all};
use crate::run::server::Handle;

/// Passes bytes until those of the guest, whose address is in `first`, need no check any more; `head` are the
/// first of them. `false`: the connection must be reset on both sides.
pub(crate) async fn say_name(
    guest: &impl Upstream,
    upstream: &impl Upstream,
    flow: &Handle,
    first: (SocketAddr, FirstBytes),
    head: &[u8],
) -> bool {
    let passing = pass(guest, upstream, flow, first, head);
    tokio::select! {
        passed = passing => passed.unwrap_or(false),
        () = flow.stopped() => false,
    }
}

async fn pass(
    guest: &impl Upstream,
    upstream: &impl Upstream,
    flow: &Handle,
    (from, mut first): (SocketAddr, FirstBytes),
    head: &[u8],
) -> io::Result<bool> {
    let mut next = Some(head.to_vec());
    loop {
        if let Some(bytes) = next.take().filter(|bytes| !bytes.is_empty()) {
            let (may_pass, is_over) = match flow.first_bytes(from, &mut first, &bytes) {
                Passage::Watch(bytes) => (bytes, false),
                Passage::Free(bytes) => (bytes, true),
                Passage::Refuse => return Ok(false),
            };
            flow.pay(Side::Guest, may_pass.len()).await;
            write_all(upstream, &may_pass).await?;
            flow.passed(Side::Guest, may_pass.len(), 0);
            if is_over {
                return Ok(true);
            }
        }
        tokio::select! {
            biased;
            ready = guest.readable() => {
                ready?;
                match take(guest)? {
                    None => {}
                    // The relay finds the same end; nothing follows it.
                    Some(bytes) if bytes.is_empty() => return Ok(first.guest_ended() == Further::Free),
                    bytes => next = bytes,
                }
            }
            ready = upstream.readable() => {
                ready?;
                let Some(bytes) = take(upstream)? else { continue };
                let further = flow.server_said(from, &first, bytes.is_empty());
                if further == Further::Refuse {
                    return Ok(false);
                }
                if !bytes.is_empty() {
                    flow.pay(Side::Upstream, bytes.len()).await;
                    write_all(guest, &bytes).await?;
                    flow.passed(Side::Upstream, bytes.len(), 0);
                }
                if further == Further::Free {
                    return Ok(true);
                }
            }
        }
    }
}

/// Takes the bytes that are there; none at the end.
fn take(from: &impl Upstream) -> io::Result<Option<Vec<u8>>> {
    match from.try_take(LEAST_GRANT) {
        Ok(bytes) => Ok(Some(bytes.to_vec())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
