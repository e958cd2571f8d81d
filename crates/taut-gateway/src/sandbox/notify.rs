//! Reports to a service manager that a gateway serves, and that it ends: `sd_notify(3)`, datagrams to the
//! socket that `NOTIFY_SOCKET` names. A manager takes them from the process that it has started, so
//! `outside.rs` sends them; without a sandbox, the gateway does.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The name of the variable. The guest's command does not get it.
pub(crate) const VARIABLE: &str = "NOTIFY_SOCKET";

/// A manager that does not read for so long gets no report.
const PATIENCE: Duration = Duration::from_secs(5);

/// The way to the service manager.
#[derive(Debug)]
pub struct Notify(UnixDatagram);

impl Notify {
    /// The way that the environment names, if it is open. To be called before the sandbox closes.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let place = std::env::var_os(VARIABLE)?;
        let socket = UnixDatagram::unbound().ok()?;
        match place.as_encoded_bytes().strip_prefix(b"@") {
            Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()?,
            None => socket.connect(place).ok()?,
        }
        socket.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(Self(socket))
    }

    /// The gateway serves.
    pub fn ready(&self) {
        _ = self.0.send(b"READY=1");
    }

    /// It ends.
    pub fn stopping(&self) {
        _ = self.0.send(b"STOPPING=1");
    }
}
