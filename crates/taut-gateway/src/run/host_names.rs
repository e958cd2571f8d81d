//! Names that the host itself looks up in a sandbox, where the C library's resolver can open none of its
//! files: the host's hosts file and name servers, by the host's own sockets. Rules for guests do not apply.
//! Used by the commands for the endpoints of a tunnel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::logic::dns;
use crate::logic::order::rank;
use crate::out::host_sockets::HostSockets;
use crate::out::way_out::WayOut as _;
use crate::run::resolver;
use crate::run::server::Server;

/// The host's own names.
#[derive(Clone, Debug)]
pub struct HostNames(Server);

impl HostNames {
    /// The names of the host of `server`, which keep neither it nor its stack and flows.
    #[must_use]
    pub fn of(server: &Server) -> Self {
        Self(server.of_host())
    }

    /// The addresses of a name, those to try first in front (RFC 6724). In a tokio runtime.
    ///
    /// # Errors
    /// The name is unknown, or no name server answers.
    pub async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let of = |kind| resolver::addresses(self.0.clone(), Ipv4Addr::LOCALHOST.into(), name.into(), kind);
        let (v6, v4) = tokio::join!(of(dns::AAAA), of(dns::A));
        let mut found: Vec<IpAddr> = [v6, v4].into_iter().flatten().flatten().collect();
        // Any port will do.
        found.sort_by_key(|ip| rank(*ip, HostSockets::default().source(SocketAddr::new(*ip, 9))));
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("no address of {name} was found")));
        }
        Ok(found)
    }
}
