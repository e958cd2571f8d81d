//! Doors to a running gateway (`taut_gateway::Live`): `taut gateway ctl`, by the control socket, and the API
//! of slirp4netns, at a Unix socket of its own. Called by `gateway.rs`.

pub(crate) mod ctl;

use std::io;
use std::os::unix::net::UnixListener;

use taut_gateway::Live;

use crate::net::drop_in::api::Api;

/// The sockets of the APIs, which listen.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) slirp4netns: Option<UnixListener>,
}

impl Doors {
    /// Serves them while it is polled, in a tokio runtime.
    pub(crate) async fn serve(self, live: Live) -> io::Error {
        let listener = |socket: UnixListener| {
            socket.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(socket)
        };
        match self.slirp4netns.map(listener).transpose() {
            Ok(socket) => match Api::new(live).serve(socket).await {},
            Err(error) => error,
        }
    }
}
