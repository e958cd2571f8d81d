//! A proxy: clients ask for a connection by SOCKS or HTTP (`request.rs`), or are sent here by the kernel
//! (TPROXY), and the gateway makes it, by its rules and within its limits. One of the two ends is on a stack
//! of taut's, so taut is the sender towards a long link: clients come from the host and go out by a link, or
//! come over a link and go out by the host.
//!
//! A client's name is looked up in the host's file of names, else by the same name service as a guest's
//! question (`resolver.rs`): so the rules see names and addresses, and a name leads to no special address.
//! Its addresses are raced (`dial.rs`).
//!
//! A client that leaves while it waits ends the dialling: by a reset, or by a FIN if it has asked and sent
//! nothing since. One that has sent something may have ended its half, and waits for the other.
//!
//! A client has ten seconds to ask, and 1,024 clients may be about to ask. From then on it counts as a flow
//! of its address.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use taut::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::oneshot;

use crate::doors::dial::Unreached;
use crate::doors::request::{self, Asked, Destination, Login, Request};
use crate::logic::flow::{End, NextStep, Side};
use crate::out::host_sockets::prepare_listener;
use crate::out::sockets::prepare;
use crate::out::way_out::{Upstream, WayOut, write_all};
use crate::run::first_bytes::say_name;
use crate::run::relay::{relay, relay_by_stack};
use crate::run::server::{Handle, Server};

/// How long a client may take to say what it wants.
const TO_ASK: Duration = Duration::from_secs(10);
/// Clients that have not said it yet.
const ASKING: usize = 1_024;

/// Where clients come from.
pub trait Clients: Send + Sync + 'static {
    /// The client's connection.
    type Stream: Client;

    /// Waits for a client. It has an address for a destination if it need not be asked.
    fn accept(
        &self,
    ) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr, Option<SocketAddr>)>> + Send;

    /// Sets what clients see of the listener, before the first one comes.
    #[doc(hidden)]
    fn prepare(&self) {}

    /// Where it listens.
    ///
    /// # Errors
    /// It does not any more.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A client's connection.
pub trait Client: Upstream + AsyncRead + AsyncWrite + Unpin {
    /// Waits until the client has sent something, which stays where it is, or has ended its half: 0.
    fn peek_one(&self) -> impl Future<Output = io::Result<usize>> + Send;

    /// Waits until the client is gone: it has reset its connection or, `by_fin`, ended it and sent nothing.
    fn left(&self, by_fin: bool) -> impl Future<Output = ()> + Send {
        async move {
            match self.peek_one().await {
                Ok(0) if by_fin => {}
                Ok(_) => self.broken().await,
                Err(_) => {}
            }
        }
    }
}

impl Client for tokio::net::TcpStream {
    async fn peek_one(&self) -> io::Result<usize> {
        self.peek(&mut [0]).await
    }
}

impl Client for TcpStream {
    async fn peek_one(&self) -> io::Result<usize> {
        self.peek(&mut [0]).await
    }
}

/// A client and its upstream, at least one of them on a stack.
pub trait JoinUpstream<U>: Client {
    /// Passes bytes between the two until the connection is over.
    #[doc(hidden)]
    fn join(&self, upstream: &U, flow: &Flow<'_>) -> impl Future<Output = NextStep> + Send;
}

/// A connection that is passed on.
pub struct Flow<'a>(&'a Handle);

impl std::fmt::Debug for Flow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow").finish_non_exhaustive()
    }
}

impl JoinUpstream<TcpStream> for tokio::net::TcpStream {
    async fn join(&self, upstream: &TcpStream, flow: &Flow<'_>) -> NextStep {
        relay_by_stack(self, upstream, flow.0).await
    }
}

impl<U: Upstream> JoinUpstream<U> for TcpStream {
    async fn join(&self, upstream: &U, flow: &Flow<'_>) -> NextStep {
        relay(self, upstream, flow.0).await
    }
}

impl Clients for tokio::net::TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<(Self::Stream, SocketAddr, Option<SocketAddr>)> {
        let (stream, from) = Self::accept(self).await?;
        // A client that is gone by now is noticed when it is read from.
        _ = prepare(&socket2::SockRef::from(&stream));
        if !from.ip().to_canonical().is_loopback() {
            // A small window would be slow over a longer round trip.
            stream.offer_freely();
        }
        Ok((stream, from, None))
    }

    fn prepare(&self) {
        // Without it, clients' buffers are larger.
        _ = prepare_listener(&socket2::SockRef::from(self));
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl Clients for taut::TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, Option<SocketAddr>)> {
        let (stream, from) = Self::accept(self).await?;
        Ok((stream, from, None))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

/// Connections that the kernel hands over although they are for others (`IP_TRANSPARENT`, with a rule of
/// netfilter's TPROXY): each is for the address at which it arrives.
#[derive(Debug)]
pub struct Transparent(tokio::net::TcpListener);

impl Transparent {
    /// Listens. Needs `CAP_NET_ADMIN`, and a tokio runtime.
    ///
    /// # Errors
    /// Without the capability, or when the port is in use.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(at);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        if at.is_ipv4() {
            socket.set_ip_transparent_v4(true)?;
        } else {
            socket.set_only_v6(true)?;
            socket.set_ip_transparent_v6(true)?;
        }
        socket.bind(&at.into())?;
        socket.listen(1_024)?;
        Ok(Self(tokio::net::TcpListener::from_std(socket.into())?))
    }
}

impl Clients for Transparent {
    type Stream = tokio::net::TcpStream;

    fn prepare(&self) {
        Clients::prepare(&self.0);
    }

    async fn accept(&self) -> io::Result<(Self::Stream, SocketAddr, Option<SocketAddr>)> {
        let (stream, from) = self.0.accept().await?;
        _ = prepare(&socket2::SockRef::from(&stream));
        let to = stream.local_addr()?;
        // Who connects to the proxy itself would have the proxy connect to itself.
        let own = self.0.local_addr()?;
        if to.port() == own.port() && (to.ip() == own.ip() || to.ip().is_loopback()) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok((stream, from, Some(to)))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// The most silent clients: a quarter of the descriptors.
fn most_that_ask() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 4).unwrap_or(ASKING).clamp(1, ASKING)
}

impl Server {
    /// Serves clients by this way out; a `login` is asked of those that ask. What is returned must be polled,
    /// and ends when no more clients can be accepted, with the reason.
    pub fn proxy<C: Clients, W: WayOut>(
        &self,
        clients: C,
        way: Arc<W>,
        login: Option<Login>,
    ) -> impl Future<Output = io::Error> + Send + use<C, W>
    where
        C::Stream: JoinUpstream<W::Stream>,
    {
        let (server, login) = (self.clone(), login.map(Arc::new));
        async move {
            tokio::select! {
                end = server.accept_clients(clients, way, login) => end,
                never = server.watch_time() => match never {},
            }
        }
    }

    async fn accept_clients<C: Clients, W: WayOut>(
        &self,
        clients: C,
        way: Arc<W>,
        login: Option<Arc<Login>>,
    ) -> io::Error
    where
        C::Stream: JoinUpstream<W::Stream>,
    {
        let at = match clients.local_addr() {
            Ok(at) => at,
            Err(error) => return error,
        };
        clients.prepare();
        self.listens_at(at);
        // The silent ones, the oldest first.
        let (mut asking, most) = (VecDeque::<oneshot::Sender<Infallible>>::new(), most_that_ask());
        loop {
            let (mut client, from, to) = match clients.accept().await {
                Ok(accepted) => accepted,
                Err(error) if self.may_accept_again(&error, at).await => continue,
                Err(error) => return error,
            };
            asking.retain(|place| !place.is_closed());
            if asking.len() >= most {
                // Its connection ends.
                asking.pop_front();
            }
            let (place, displaced) = oneshot::channel();
            asking.push_back(place);
            let (server, way, login) = (self.clone(), Arc::clone(&way), login.clone());
            tokio::spawn(async move {
                let asked = match to {
                    Some(to) => Ok(Request::new(Asked::Transparent, Destination::Address(to))),
                    None => tokio::select! {
                        asked = request::read(&mut client, login.as_deref()) => asked,
                        () = tokio::time::sleep(TO_ASK) => Err(io::ErrorKind::TimedOut.into()),
                        _ = displaced => Err(io::ErrorKind::TimedOut.into()),
                    },
                };
                if let Ok(request) = asked {
                    server.client(client, from, request, &way).await;
                }
            });
        }
    }

    /// One client, from its request to its end.
    async fn client<C: JoinUpstream<W::Stream>, W: WayOut>(
        &self,
        mut client: C,
        from: SocketAddr,
        Request { asked, to, head }: Request,
        way: &Arc<W>,
    ) {
        // One that asked waits for the answer before it ends its half; a client of the kernel's need not.
        let by_fin = asked != Asked::Transparent;
        // A task that lives for longer does not keep the size of a race.
        let (upstream, flow) = match Box::pin(self.reach((&client, by_fin), from, to, way)).await {
            Ok(reached) => reached,
            Err(Unreached::Left) => return,
            Err(Unreached::Failed(why)) => {
                // One that asked hears the reason; one that did not sees what its own connection would have
                // seen.
                _ = client.write_all(&request::answer(asked, Err(why))).await;
                if asked == Asked::Transparent {
                    client.abort();
                } else {
                    _ = client.shutdown().await;
                }
                return;
            }
        };
        if client.write_all(&request::answer(asked, Ok(()))).await.is_err() {
            flow.ended(Side::Guest, End::Reset);
            return upstream.abort();
        }
        flow.answered();
        if let Some(first) = flow.must_say_name() {
            if !Box::pin(say_name(&client, &upstream, &flow, (from, first), &head)).await {
                client.abort();
                return upstream.abort();
            }
        } else {
            flow.pay(Side::Guest, head.len()).await;
            if write_all(&upstream, &head).await.is_err() {
                flow.ended(Side::Upstream, End::Reset);
                return client.abort();
            }
        }
        flow.prefer(&upstream);
        let then = client.join(&upstream, &Flow(&flow)).await;
        if matches!(then, NextStep::ResetBoth | NextStep::Reset(Side::Guest)) {
            client.abort();
        }
        if matches!(then, NextStep::ResetBoth | NextStep::Reset(Side::Upstream)) {
            upstream.abort();
        }
    }
}
