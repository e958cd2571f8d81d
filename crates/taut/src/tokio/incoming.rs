//! The asynchronous [`IncomingFlows`].

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use taut_core::{ConnOptions, FlowFilter, IncomingOptions};
use taut_driver::WaitKey;

use crate::common::acceptor::Acceptor;
use crate::common::flow::{Flow, flow_methods};
use crate::stack::Stack;
use crate::tokio::stream::TcpStream;
use crate::tokio::udp::{EchoSocket, UdpSocket};
use crate::wait::until;

/// Every new connection to the addresses and ports of a filter, before it is answered; and every flow of UDP
/// and of echo requests, if the filter says so. The addresses need not be the stack's own. A listener or
/// socket at the same address and port has precedence.
///
/// ```no_run
/// # async fn example(stack: taut::Stack) -> std::io::Result<()> {
/// use taut::{FlowFilter, IncomingFlows, Refusal};
///
/// let flows = IncomingFlows::open(&stack, FlowFilter::any())?;
/// loop {
///     let flow = flows.accept().await?;
///     tokio::spawn(async move {
///         match tokio::net::TcpStream::connect(flow.local_addr()).await {
///             Ok(mut upstream) => {
///                 let mut client = flow.accept().await?;
///                 tokio::io::copy_bidirectional(&mut client, &mut upstream).await?;
///             }
///             Err(_) => flow.refuse(Refusal::Reset),
///         }
///         std::io::Result::Ok(())
///     });
/// }
/// # }
/// ```
///
/// Dropping it closes the filter: flows that are not decided are forgotten, connections stay.
#[derive(Debug)]
pub struct IncomingFlows {
    acceptor: Acceptor,
}

impl IncomingFlows {
    /// Yields the flows of `filter`, with the default limits.
    ///
    /// # Errors
    /// [`io::ErrorKind::QuotaExceeded`] if sixteen filters are open; the stack was shut down.
    pub fn open(stack: &Stack, filter: FlowFilter) -> io::Result<Self> {
        Self::open_with(stack, filter, IncomingOptions::default())
    }

    /// Yields the flows of `filter`, with other limits, and options for their connections. With several
    /// shards, limits are for each.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    #[expect(clippy::needless_pass_by_value, reason = "like the options of a listener")]
    pub fn open_with(stack: &Stack, filter: FlowFilter, options: IncomingOptions) -> io::Result<Self> {
        Acceptor::filter(stack.shards(), &filter, &options).map(|acceptor| Self { acceptor })
    }

    /// Waits for a flow. The future is cancel safe: no flow is lost when it is dropped.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn accept(&self) -> io::Result<IncomingFlow> {
        let acceptor = &self.acceptor;
        let flow = match acceptor.only_listener() {
            Some(listener) => {
                until(&listener.shard, listener.interest(), |access| Flow::next(acceptor, listener, access))
                    .await?
            }
            None => {
                let waiting = Waiting { acceptor, key: WaitKey::unique() };
                poll_fn(|cx| {
                    acceptor.poll(waiting.key, cx.waker(), |listener, access| {
                        Flow::next(acceptor, listener, access)
                    })
                })
                .await?
            }
        };
        Ok(IncomingFlow { flow })
    }

    /// [`accept`](Self::accept) as a poll function. If several tasks poll, only the last one is woken.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<IncomingFlow>> {
        let acceptor = &self.acceptor;
        let next = acceptor
            .poll(WaitKey::POLL, cx.waker(), |listener, access| Flow::next(acceptor, listener, access));
        next.map_ok(|flow| IncomingFlow { flow })
    }
}

/// The registration of a waiting future in every shard; removed when this is dropped.
struct Waiting<'a> {
    acceptor: &'a Acceptor,
    key: WaitKey,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.acceptor.cancel(self.key);
    }
}

/// A connection that a client wants, and that is not answered yet; or the first datagrams from one address
/// and port to another.
///
/// Dropping it without a decision drops the flow: the client gets no answer, now or to a repeated SYN or a
/// further datagram, as from a host that is silent.
///
/// ```no_run
/// # async fn example(flow: taut::IncomingFlow) -> std::io::Result<()> {
/// println!("{} wants to reach {}", flow.peer_addr(), flow.local_addr());
/// if flow.local_addr().port() == 25 {
///     flow.refuse(taut::Refusal::Prohibited);
/// } else {
///     let client: taut::TcpStream = flow.accept().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct IncomingFlow {
    flow: Flow,
}

impl IncomingFlow {
    flow_methods!();

    /// Waits until the flow [is gone](Self::is_gone), so that what is done for it can end. The client may
    /// have to be [asked](Self::probe). Cancel safe.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn gone(&self) -> io::Result<()> {
        self.flow.gone().await
    }

    /// Accepts it: the client's SYN is answered. Waits for the end of the handshake. Dropping the future
    /// closes the connection as dropping a stream does.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it is not a connection; it is dropped then.
    /// [`io::ErrorKind::ConnectionAborted`] if the flow [is gone](Self::is_gone),
    /// [`io::ErrorKind::QuotaExceeded`] if there are too many connections; or why the handshake failed, such
    /// as [`io::ErrorKind::TimedOut`].
    pub async fn accept(self) -> io::Result<TcpStream> {
        self.accept_as(None).await
    }

    /// [`accept`](Self::accept) with options for the connection, instead of those of the filter.
    ///
    /// # Errors
    /// Those of [`accept`](Self::accept).
    pub async fn accept_with(self, options: &ConnOptions) -> io::Result<TcpStream> {
        self.accept_as(Some(options)).await
    }

    async fn accept_as(self, options: Option<&ConnOptions>) -> io::Result<TcpStream> {
        let socket = self.flow.accept(options)?;
        until(&socket.shard, socket.write_interest(), |access| socket.connected(access)).await?;
        Ok(TcpStream { socket })
    }
}
