//! The next step when nothing can listen at an address. Called by `proxy`, `metrics` and `dash`.

use std::io;
use std::net::SocketAddr;

/// Why nothing listens at this address of the host, and the next step; `place` is how another one is given.
pub(crate) fn cannot_listen(at: SocketAddr, place: &str, error: io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("choose another port with {place}; `ss -ltnp` shows who has this one")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("choose an address of this host with {place}; `ip addr` lists them")
        }
        io::ErrorKind::PermissionDenied => {
            format!("choose a port from 1024 with {place}, or run it as root (CAP_NET_BIND_SERVICE)")
        }
        _ => return anyhow::Error::new(error).context(format!("cannot listen on {at}")),
    };
    anyhow::anyhow!("cannot listen on {at}: {error}\n  Next: {advice}.")
}
