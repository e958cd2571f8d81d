//! Guests that connect to port 80 of the gateway's own address, for a program that serves an API there. Each
//! counts as a connection of its guest, and has a minute.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use taut::{IncomingFlow, TcpStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Sleep;

use crate::doors::live::Live;
use crate::logic::flow::NextStep;
use crate::run::server::Handle;

/// Connections that wait until they are taken.
const WAITING_MAX: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

/// The connections of guests, one after the other.
#[derive(Debug)]
pub struct Callers(Mutex<mpsc::Receiver<Caller>>);

/// A guest's connection.
pub struct Caller {
    stream: TcpStream,
    address: IpAddr,
    guest: IpAddr,
    over: Pin<Box<Sleep>>,
    /// While it is there, the connection counts.
    _flow: Handle,
}

impl Live {
    /// From now on guests may connect to port 80 of the gateway's own address, whatever the rules say of this
    /// host's loopback. For one caller: `None` if there is one already.
    #[must_use]
    pub fn callers(&self) -> Option<Callers> {
        let (to, callers) = mpsc::channel(WAITING_MAX);
        let take = Box::new(move |incoming, flow| drop(tokio::spawn(call(incoming, flow, to.clone()))));
        self.server().takes_callers(take).then(|| Callers(Mutex::new(callers)))
    }
}

impl Callers {
    /// The next one. Cancel safe.
    pub async fn next(&self) -> Caller {
        match self.0.lock().await.recv().await {
            Some(caller) => caller,
            // The gateway has ended.
            None => std::future::pending().await,
        }
    }
}

impl Caller {
    /// The address from which it comes.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The address by which the guest is listed: one for all that it has.
    #[must_use]
    pub const fn guest(&self) -> IpAddr {
        self.guest
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.over.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A guest has begun this flow, which the gateway has admitted.
async fn call(incoming: IncomingFlow, flow: Handle, to: mpsc::Sender<Caller>) {
    let address = incoming.peer_addr().ip();
    if flow.reached() != NextStep::Accept {
        return;
    }
    let answered = tokio::select! {
        guest = incoming.accept() => guest.ok(),
        () = flow.stopped() => None,
    };
    let Some(stream) = answered else { return };
    flow.answered();
    let over = Box::pin(tokio::time::sleep(PATIENCE));
    // One for which there is no place is closed.
    let guest = flow.server().look(|gateway| gateway.listed_as(address));
    _ = to.try_send(Caller { stream, address, guest, over, _flow: flow });
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_over(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Caller {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_over(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_over(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_over(cx)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
