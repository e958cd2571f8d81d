//! Doors to a running gateway (`taut_gateway::Live`): `taut gateway ctl`, by the control socket, and the APIs
//! of gvproxy (`--api`) and of slirp4netns, at Unix sockets of their own. Called by `gateway.rs`.

pub(crate) mod ctl;
mod gvproxy;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use taut_gateway::{Live, listen_at};

use crate::net::drop_in::api::Api;

/// Clients that may wait until one is accepted.
const BACKLOG: i32 = 128;

/// Options of doors.
#[derive(Args, Debug)]
pub(crate) struct LiveArgs {
    /// Serve gvproxy's HTTP API at this socket, for this user
    #[arg(help_heading = "Control", long, value_name = "unix:PATH", value_parser = place)]
    api: Option<PathBuf>,
    /// Let guests expose their ports by it, at the gateway's port 80
    #[arg(help_heading = "Control", long)]
    guest_api: bool,
}

/// `unix:PATH`, and as gvproxy has it, `unix://PATH`.
fn place(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
    let path = path.filter(|path| !path.is_empty()).map(PathBuf::from);
    path.ok_or_else(|| format!("{text} is not unix:PATH, such as unix:/tmp/gateway.sock"))
}

/// The sockets of the APIs, which listen.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    gvproxy: Option<UnixListener>,
    /// gvproxy's API is at the gateway's own address, too.
    guests: bool,
    slirp4netns: Option<UnixListener>,
}

impl LiveArgs {
    /// Opens the doors, before the sandbox closes; `slirp4netns` is open already.
    ///
    /// # Errors
    /// The place, and why there is no socket.
    pub(crate) fn open(&self, slirp4netns: Option<UnixListener>) -> anyhow::Result<Doors> {
        let open = |path: &PathBuf| listen_at(path, BACKLOG).context("--api");
        let gvproxy = self.api.as_ref().map(open).transpose()?;
        Ok(Doors { gvproxy, guests: self.guest_api, slirp4netns })
    }
}

impl Doors {
    /// Serves them while it is polled, in a tokio runtime.
    pub(crate) async fn serve(self, live: Live) -> io::Error {
        let callers = if self.guests { gvproxy::callers(&live) } else { None };
        let [gvproxy, slirp4netns] = match self.listeners() {
            Ok(listeners) => listeners,
            Err(error) => return error,
        };
        let http = gvproxy::serve(gvproxy, live.clone());
        let (guests, json) = (gvproxy::serve(callers, live.clone()), Api::new(live).serve(slirp4netns));
        tokio::select! {
            never = http => match never {},
            never = guests => match never {},
            never = json => match never {},
        }
    }

    fn listeners(self) -> io::Result<[Option<tokio::net::UnixListener>; 2]> {
        let listener = |socket: UnixListener| {
            socket.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(socket)
        };
        Ok([self.gvproxy.map(listener).transpose()?, self.slirp4netns.map(listener).transpose()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_240_the_place_of_the_api() {
        assert_eq!(place("unix:/tmp/x").unwrap(), PathBuf::from("/tmp/x"));
        assert_eq!(place("unix:///tmp/x").unwrap(), PathBuf::from("/tmp/x"));
        for wrong in ["", "/tmp/x", "unix:", "unix://", "tcp://127.0.0.1:80"] {
            assert!(place(wrong).unwrap_err().contains("unix:PATH"), "{wrong}");
        }
    }
}
