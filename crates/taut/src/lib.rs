//! TCP in userspace: a TCP/IP stack inside your program, over a TUN interface or any other device, with familiar
//! sockets.
//!
//! ```no_run
//! # #[cfg(feature = "tokio")]
//! # async fn example() -> std::io::Result<()> {
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! // The interface taut0: this stack is 10.0.0.2 on it, the kernel 10.0.0.1.
//! let stack = taut::Stack::builder().tun("taut0").address("10.0.0.2/24").host_address("10.0.0.1/24").build()?;
//! let mut stream = taut::TcpStream::connect(&stack, "10.0.0.1:80").await?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
//! let mut page = Vec::new();
//! stream.read_to_end(&mut page).await?;
//! # Ok(()) }
//! ```
//!
//! [`TcpStream`], [`TcpListener`] and [`UdpSocket`] work like those of `tokio::net` (feature `tokio`, on by default), with the
//! stack as the first argument; [`blocking`] has those of `std::net`. Both kinds can be used on one stack, and any
//! runtime may poll the asynchronous ones: the stack has a thread of its own unless [`StackBuilder::build_tokio`]
//! makes it a task of a runtime.
//!
//! ```text
//!   TcpStream  TcpListener  UdpSocket (stream.rs, split.rs, listener.rs, udp.rs)   blocking::{TcpStream, …}
//!   IncomingFlows (incoming.rs, flow.rs)                                           blocking::IncomingFlows
//!                     └──────────── Socket, Acceptor (socket.rs, datagram.rs) ────────────┘
//!                                         │
//!                       Stack (stack.rs) ─┴▶ taut_driver::Shard ─▶ taut_core::Stack, taut_device
//! ```
//!
//! [`IncomingFlows`] yields every new connection to any address before it is answered: what a gateway needs;
//! `relay` joins each to a socket beyond.
//!
//! [`TcpStream::write_bytes`] and [`TcpStream::read_chunk`] copy nothing. With the feature `axum`, [`TcpListener`] is a
//! listener of `axum::serve`; with `hyper`, [`TcpStream`] has hyper's traits, and `Connector` connects the clients of
//! hyper-util and tonic.
//!
//! Options have Linux's names. An error is an [`std::io::Error`] of the kind that a kernel socket would return,
//! with the stack's own error as its source.
#![forbid(unsafe_code)]

#[cfg(any(feature = "axum", feature = "hyper"))]
mod adapters;
pub mod blocking;
mod builder;
mod common;
#[cfg(all(feature = "control", target_os = "linux"))]
mod control;
mod error;
#[cfg(feature = "tokio")]
pub mod relay;
mod stack;
#[cfg(feature = "tokio")]
mod tokio;
mod wait;

#[cfg(feature = "tokio")]
pub use self::tokio::incoming::{IncomingFlow, IncomingFlows};
#[cfg(feature = "tokio")]
pub use self::tokio::listener::{Incoming, TcpListener};
#[cfg(feature = "tokio")]
pub use self::tokio::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
#[cfg(feature = "tokio")]
pub use self::tokio::stream::TcpStream;
#[cfg(feature = "tokio")]
pub use self::tokio::udp::{EchoSocket, PingSocket, UdpSocket};
#[cfg(feature = "hyper")]
pub use adapters::hyper::Connector;
pub use builder::StackBuilder;
pub use bytes::Bytes;
pub use common::datagram::{EchoRequest, PingReply};
pub use stack::Stack;

#[cfg(all(feature = "control", target_os = "linux"))]
pub use taut_control;
pub use taut_core::congestion;
pub use taut_core::{
    Algorithm, ConnError, ConnOptions, DatagramError, DatagramFlowOptions, DatagramOption, DatagramOptions,
    FastOpenKeys, FastOpenListen, FlowFilter, FlowKind, IcmpReport, IncomingOptions, Keepalive,
    ListenOptions, MtuDiscovery, OptionError, Received, Refusal, SendMeta, SetOption, SynInfo, WriteFlags,
};

/// Devices, and the traits to implement for one of your own: a sending half ([`TxDevice`](device::TxDevice)) and a
/// receiving half ([`RxDevice`](device::RxDevice)).
///
/// ```
/// use taut::device::{LinkCaps, pipe};
///
/// let (near, far) = pipe(LinkCaps::offloading(1500), 1 << 20)?;
/// let near = taut::Stack::builder().device(near).address("10.0.0.1/24").build()?;
/// let far = taut::Stack::builder().device(far).address("10.0.0.2/24").build()?;
/// # drop((near, far));
/// # Ok::<(), std::io::Error>(())
/// ```
pub mod device {
    pub use taut_core::{BUFFER_BYTES, Gather, KeptPacket, Offload, RxChecksum, TxPacket, TxTicket};
    pub use taut_device::*;
    pub use taut_driver::{Device, News, Received, RxDevice, Sent, TxDevice};
}

/// Queue disciplines in front of the device: [`StackBuilder::link`], [`Stack::set_qdisc`] and [`Stack::qdiscs`].
///
/// ```
/// // In the syntax of tc.
/// let slow: taut::qdisc::QdiscSpec = "netem delay 40ms".parse()?;
/// assert_eq!(slow.to_string(), "netem delay 40ms");
/// # Ok::<(), taut::qdisc::QdiscSpecError>(())
/// ```
pub mod qdisc {
    pub use taut_driver::{LinkReport, QdiscEntry, QdiscHandle};
    pub use taut_link::{
        Chance, Distribution, FqCodelSpec, FqCodelStats, FqSpec, FqStats, Loss, NetemRate, NetemSlot,
        NetemSpec, QdiscDetails, QdiscReport, QdiscSpec, QdiscSpecError, Share, TbfLimit, TbfSpec,
    };
    pub use taut_link::{
        Limit, LinkSpec, QdiscStats, QuantityError, Rate, SpecError, Spread, TimeText, parse_size, parse_time,
    };
}

/// The stack's configuration: [`StackBuilder::configure`], [`Stack::config`] and [`Stack::sysctl`].
///
/// ```no_run
/// let stack = taut::Stack::builder().tun("taut0").configure(|config| config.send.autocorking = true).build()?;
/// assert_eq!(stack.sysctl("tcp_autocorking").unwrap(), "1");
/// # Ok::<(), std::io::Error>(())
/// ```
pub mod config {
    pub use taut_core::{
        AutocorkMode, AutosizeMode, BufferSizes, Duration, LowatMode, PacingMode, StackConfig, SysctlError,
        TsqMode,
    };
}

/// What a stack and its sockets report: `info` and `report` of a stream, [`Stack::counters`], [`Stack::report`].
///
/// ```no_run
/// # fn example(stack: &taut::Stack, stream: &taut::blocking::TcpStream) -> std::io::Result<()> {
/// use taut::observe::{ConnInfo, Report, State};
///
/// let info: ConnInfo = stream.info()?;
/// println!("open: {}, smoothed round trip: {:?}", info.state == State::Established, info.rtt);
/// let report: Report = stream.report()?;
/// for (gate, time) in report.shares {
///     println!("{} held it back for {} µs", gate.name(), time.as_micros());
/// }
/// println!("{} segments again", stack.counters().retrans_segs);
/// # Ok(()) }
/// ```
pub mod observe {
    pub use taut_core::{
        Blocked, ConnInfo, Counters, DatagramInfo, FastOpenFail, Gate, Histogram, Lateness, QueueReport,
        Report, State,
    };
    pub use taut_replay::RecordReport;
}

/// Addresses and routes of a stack: [`Stack::change_network`], [`Stack::networks`], [`Stack::routes`].
///
/// ```no_run
/// # fn example(stack: &taut::Stack) -> Result<(), taut::network::NetworkError> {
/// use taut::network::{Network, NetworkChange};
///
/// let own = Network { address: "10.0.0.3".parse().unwrap(), prefix: 24 };
/// stack.change_network(NetworkChange::AddAddress(own))?;
/// assert!(stack.networks().contains(&own));
/// # Ok(()) }
/// ```
pub mod network {
    pub use taut_core::{IpPrefix, Lease, Network, NetworkChange, NetworkError, Route};
}

/// Sending and receiving without a copy: `write_bytes`, `next_completion`, `read_chunk` and `buffered` of a stream.
///
/// ```no_run
/// # fn example(stream: &taut::blocking::TcpStream, mut data: taut::Bytes) -> std::io::Result<()> {
/// let number = stream.write_bytes(&mut data)?;
/// // Later, when the peer has acknowledged the bytes, nobody holds their memory.
/// let done: Option<taut::zero_copy::Completion> = stream.next_completion()?;
/// # Ok(()) }
/// ```
pub mod zero_copy {
    #[cfg(feature = "tokio")]
    pub use crate::tokio::reader::{Chunks, Reader};
    pub use taut_core::Completion;
}

#[cfg(all(doctest, feature = "tokio", target_os = "linux"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct ReadmeOfThisCrate;
