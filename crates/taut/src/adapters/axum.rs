//! `axum::serve(listener, app)` with taut's [`TcpListener`].

use std::io;
use std::net::SocketAddr;

use ::axum::serve::Listener;

use crate::tokio::listener::TcpListener;
use crate::tokio::stream::TcpStream;

/// Only the end of the stack makes `accept` fail. Then there is nothing more to accept, and `serve` waits for
/// ever, as the trait has no error: to notice the end, wait for
/// [`Stack::until_closed`](crate::Stack::until_closed), too.
impl Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match Self::accept(self).await {
            Ok(accepted) => accepted,
            Err(_) => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}
