//! `taut gateway --out WAY`: where flows go.
//!
//! Called by `gateway.rs`.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, mpsc};

use anyhow::Context as _;
use taut::device::Cidr;
use taut::{ConnOptions, Stack, StackBuilder};
use taut_gateway::{HostNames, HostSockets, HttpConnect, Link, Live, NOTSENT_LOWAT, Server, Socks5};
use taut_wireguard::Monitor;

use crate::args::tunnel::{Shown, Tunnel};
use crate::stack::over_tunnel;

/// Where flows go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    Socks5(Socks5),
    Http(HttpConnect),
    Tun(String),
    WireGuard(Tunnel),
}

impl FromStr for Out {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text} is not socks5://HOST:PORT, http://HOST:PORT, tun:NAME or wireguard:FILE");
        if let Some(name) = text.strip_prefix("tun:") {
            return if name.is_empty() { Err(wrong()) } else { Ok(Self::Tun(name.to_owned())) };
        }
        if let Some(path) = text.strip_prefix("wireguard:") {
            return Tunnel::read(path).map(Self::WireGuard);
        }
        let resolve = |place: &str| {
            let place = place.strip_suffix('/').unwrap_or(place);
            let mut found = place.to_socket_addrs().map_err(|error| format!("{place}: {error}"))?;
            found.next().ok_or_else(wrong)
        };
        if let Some(place) = text.strip_prefix("socks5://") {
            if place.contains('@') {
                return Err("a login on the command line can be read by every user of this machine; \
                            write NAME:PASSWORD into a file, and name it with --out-login"
                    .to_owned());
            }
            return Ok(Self::Socks5(Socks5 { proxy: resolve(place)?, login: None }));
        }
        let place = text.strip_prefix("http://").ok_or_else(wrong)?;
        Ok(Self::Http(HttpConnect { proxy: resolve(place)? }))
    }
}

impl Out {
    /// The description of another stack, in this namespace, whose device is open; none for a proxy.
    ///
    /// # Errors
    /// The interface or the tunnel cannot be opened.
    pub(crate) fn open(&self, addresses: &[Cidr]) -> anyhow::Result<Option<Opened>> {
        let mut tunnel = None;
        let builder = match self {
            Self::Tun(name) => {
                let builder = addresses
                    .iter()
                    .fold(Stack::builder().tun(name), |builder, own| builder.address(&own.to_string()));
                builder.open().with_context(|| format!("--out tun:{name}"))?
            }
            Self::WireGuard(file) => {
                let device = file.open(None)?;
                tunnel = Some(file.shown(&device));
                over_tunnel(Stack::builder(), file, device)
            }
            Self::Socks5(_) | Self::Http(_) => return Ok(None),
        };
        Ok(Some(Opened { builder, tunnel }))
    }
}

/// The description of a stack by which flows leave, and its tunnel.
pub(crate) struct Opened {
    pub(crate) builder: StackBuilder,
    pub(crate) tunnel: Option<Shown>,
}

/// Gives a guest's stack the flows of the gateway and its tunnel, for `taut explain` and `taut wg show`.
pub(crate) fn observed(live: &Live, tunnel: Option<&Shown>, builder: StackBuilder) -> StackBuilder {
    let builder = live.observed(builder);
    match tunnel {
        Some(tunnel) => tunnel.clone().on(builder),
        None => builder,
    }
}

/// Has the names of a tunnel's endpoints looked up by the gateway, outside of the tunnel: in the sandbox, the
/// system's resolver can open none of its files. In the runtime that serves.
pub(crate) fn resolve_by(server: &Server, tunnel: &Monitor) {
    let (names, runtime) = (HostNames::of(server), tokio::runtime::Handle::current());
    tunnel.resolve_by(move |endpoint| {
        let (names, host, (to, found)) = (names.clone(), endpoint.host().to_owned(), mpsc::channel());
        // The thread that calls this has no runtime, and the gateway may end meanwhile.
        runtime.spawn(async move { to.send(names.addresses(&host).await) });
        let ended = |_| io::Error::other("the gateway has ended");
        let found = found.recv().map_err(ended)??;
        let first = found.first().ok_or(io::ErrorKind::NotFound)?;
        Ok(SocketAddr::new(*first, endpoint.port()))
    });
}

/// An open way.
pub(crate) enum Way {
    Host(HostSockets),
    Socks5(Socks5),
    Http(HttpConnect),
    Link(Link, Option<Shown>),
}

/// A way that carries flows until the stack ends.
type Serving = Pin<Box<dyn Future<Output = io::Error> + Send>>;

impl Way {
    /// Carries the flows of `stack`.
    ///
    /// # Errors
    /// Those of [`Server::serve`].
    pub(crate) fn serve(self, server: &Server, stack: &Stack) -> io::Result<Serving> {
        Ok(match self {
            Self::Host(way) => Box::pin(server.serve(stack, Arc::new(way))?),
            Self::Socks5(way) => Box::pin(server.serve(stack, Arc::new(way))?),
            Self::Http(way) => Box::pin(server.serve(stack, Arc::new(way))?),
            Self::Link(way, _) => Box::pin(server.serve(stack, Arc::new(way))?),
        })
    }

    /// The tunnel by which flows leave.
    pub(crate) const fn tunnel(&self) -> Option<&Shown> {
        match self {
            Self::Link(_, tunnel) => tunnel.as_ref(),
            Self::Host(_) | Self::Socks5(_) | Self::Http(_) => None,
        }
    }
}

/// Another stack, in this namespace.
///
/// # Errors
/// The stack cannot be built, or has no such congestion control.
pub(crate) fn link(builder: StackBuilder, congestion: &str) -> anyhow::Result<Link> {
    let stack = builder.build_tokio()?;
    let congestion = stack.algorithm(congestion).context("--congestion")?;
    let options = ConnOptions {
        congestion: Some(congestion),
        nodelay: true,
        notsent_lowat: NOTSENT_LOWAT,
        ..ConnOptions::default()
    };
    Ok(Link { stack, options })
}
