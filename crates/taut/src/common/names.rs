//! Names of calls, looked up: by the system, or by questions to name servers over the stack (RFC 1035, over
//! TCP by RFC 7766). Called by the sockets that take a [`Target`].
//!
//! Each server gets the questions from a socket of their own, with a port and numbers that are random (RFC
//! 5452 §9.2, §4.5), and an answer counts if it comes from that server and repeats number and question.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::dns::{Kind, Resolver, Target, first_of};
use crate::stack::Stack;

#[cfg(feature = "dns")]
mod lookup;

impl Stack {
    /// The addresses for a name with a port, which [`resolver`](Self::resolver) looks up. Waits for that.
    ///
    /// # Errors
    /// The text is no name with a port; there is no such name; no name server answers.
    pub fn look_up(&self, target: impl Into<Target>) -> io::Result<Vec<SocketAddr>> {
        target.into().look_up(self)
    }
}

impl Target {
    /// The addresses; looks a name up, and waits for that.
    pub(crate) fn look_up(self, stack: &Stack) -> io::Result<Vec<SocketAddr>> {
        match self.0 {
            Kind::Address(address) => Ok(vec![address]),
            Kind::Addresses(addresses) => Ok(addresses),
            Kind::Name(host, port) => of_name(stack, &host, port),
            Kind::Wrong(text) => {
                let message =
                    format!("{text:?} is no address and no name with a port, such as example.com:80");
                Err(io::Error::new(io::ErrorKind::InvalidInput, message))
            }
        }
    }

    /// The first of them. A single address needs neither a stack nor memory.
    pub(crate) fn first(self, stack: impl FnOnce() -> io::Result<Stack>) -> io::Result<SocketAddr> {
        match self.0 {
            Kind::Address(address) => Ok(address),
            _ => first_of(self.look_up(&stack()?)?, Ok),
        }
    }

    /// [`look_up`](Self::look_up) without blocking the thread: names are looked up on another one.
    #[cfg(feature = "tokio")]
    pub(crate) async fn found(self, stack: &Stack) -> io::Result<Vec<SocketAddr>> {
        let stack = stack.clone();
        self.apart(move |target| target.look_up(&stack)).await
    }

    /// [`first`](Self::first) without blocking the thread.
    #[cfg(feature = "tokio")]
    pub(crate) async fn found_first(
        self,
        stack: impl FnOnce() -> io::Result<Stack>,
    ) -> io::Result<SocketAddr> {
        match self.0 {
            Kind::Address(address) => Ok(address),
            _ => {
                let stack = stack()?;
                self.apart(move |target| target.first(|| Ok(stack))).await
            }
        }
    }

    #[cfg(feature = "tokio")]
    async fn apart<T: Send + 'static>(
        self,
        look_up: impl FnOnce(Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if !matches!(self.0, Kind::Name(..)) {
            return look_up(self);
        }
        let found = ::tokio::task::spawn_blocking(move || look_up(self));
        found.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

fn of_name(stack: &Stack, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match stack.resolver() {
        Resolver::System => (host, port).to_socket_addrs().map(Iterator::collect),
        #[cfg(feature = "dns")]
        Resolver::Servers(servers) => {
            let told =
                || stack.name_servers().into_iter().map(|server| SocketAddr::new(server, 53)).collect();
            let servers = if servers.is_empty() { told() } else { servers.clone() };
            let found = lookup::addresses(stack, &servers, host)?;
            Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
        }
        Resolver::Nowhere => {
            let message = format!("{host:?} is a name, and this stack looks none up: give an address");
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}
