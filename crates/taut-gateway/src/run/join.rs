//! Bytes of a connection both of whose ends are sockets of the host's kernel, and its end as it came: a
//! forwarded port whose service is at the guest's loopback (`doors/loopback.rs`). As in `relay.rs`, a way
//! takes bytes when the other side has room, and holds what a connection may hold in any case. Only
//! bytes count against its idle time: the kernel answers keepalives itself. No stack has such a connection,
//! so `taut explain` does not show it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::time::Duration;

use bytes::Buf as _;

use crate::logic::flow::{End, NextStep, Side};
use crate::logic::limits::LEAST_GRANT;
use crate::out::way_out::Upstream;
use crate::run::server::Handle;

/// Passes bytes until the connection is over, and returns how to end it.
pub(crate) async fn join(guest: &impl Upstream, client: &impl Upstream, flow: &Handle) -> NextStep {
    let (mut up, mut down) =
        (pin!(way(guest, client, Side::Guest, flow)), pin!(way(client, guest, Side::Upstream, flow)));
    let finish = |side| match side {
        Side::Guest => guest.finish(),
        Side::Upstream => client.finish(),
    };
    let (mut up_goes, mut down_goes) = (true, true);
    loop {
        let (side, how) = tokio::select! {
            biased;
            end = &mut up, if up_goes => { up_goes = false; end.map_or_else(reset, |()| (Side::Guest, End::Fin)) }
            end = &mut down, if down_goes => {
                down_goes = false;
                end.map_or_else(reset, |()| (Side::Upstream, End::Fin))
            }
            // While the other side makes it wait.
            () = guest.broken() => reset(Side::Guest),
            () = client.broken() => reset(Side::Upstream),
            () = poll_fn(|cx| flow.poll_due(cx, || Duration::MAX, || None)) => return NextStep::ResetBoth,
        };
        match flow.ended(side, how) {
            NextStep::Finish(side) if finish(side).is_err() => return flow.ended(side, End::Reset),
            NextStep::Finish(_) => {}
            NextStep::Close => {
                // A side that is gone by now does not miss it.
                _ = finish(side.other());
                return NextStep::Close;
            }
            // Its time is over at this moment.
            NextStep::Wait => return NextStep::ResetBoth,
            then => return then,
        }
    }
}

const fn reset(side: Side) -> (Side, End) {
    (side, End::Reset)
}

/// One way, to its FIN; or the side that was reset.
async fn way(from: &impl Upstream, to: &impl Upstream, side: Side, flow: &Handle) -> Result<(), Side> {
    let other = |_| side.other();
    loop {
        to.writable().await.map_err(other)?;
        from.readable().await.map_err(|_| side)?;
        let mut bytes = match from.try_take(LEAST_GRANT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            taken => taken.map_err(|_| side)?,
        };
        let count = bytes.len();
        if count == 0 {
            return Ok(());
        }
        while !bytes.is_empty() {
            match to.try_write_vectored(&[IoSlice::new(&bytes)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    to.writable().await.map_err(other)?;
                }
                written => bytes.advance(written.map_err(other)?),
            }
        }
        flow.passed(side, count, 0);
    }
}
