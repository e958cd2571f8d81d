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

#[cfg(feature = "tokio")]
pub use self::tokio::incoming::{IncomingFlow, IncomingFlows};
#[cfg(feature = "tokio")]
pub use self::tokio::listener::{Incoming, TcpListener};
#[cfg(feature = "tokio")]
pub use self::tokio::reader::{Chunks, Reader};
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
    Algorithm, Blocked, Completion, ConnError, ConnInfo, ConnOptions, Counters, DatagramError,
    DatagramFlowOptions, DatagramInfo, DatagramOption, DatagramOptions, FastOpenFail, FastOpenKeys,
    FastOpenListen, FlowFilter, FlowKind, Gate, Histogram, IcmpReport, IncomingOptions, IpPrefix, Keepalive,
    Lateness, Lease, ListenOptions, MtuDiscovery, Network, NetworkChange, NetworkError, OptionError,
    QueueReport, Received, Refusal, Report, Route, SendMeta, SetOption, StackConfig, State, SynInfo,
    SysctlError, WriteFlags,
};

#[cfg(target_os = "linux")]
pub use taut_device::Priority;
pub use taut_replay::RecordReport;

/// Devices, and the traits to implement for one of your own: a sending half ([`TxDevice`](device::TxDevice)) and a
/// receiving half ([`RxDevice`](device::RxDevice)).
pub mod device {
    pub use taut_core::{BUFFER_BYTES, Gather, KeptPacket, Offload, RxChecksum, TxPacket, TxTicket};
    pub use taut_device::*;
    pub use taut_driver::{Device, News, Received, RxDevice, Sent, TxDevice};
}

/// The types that describe a queue in front of the device.
pub mod link {
    pub use taut_driver::{LinkReport, QdiscEntry, QdiscHandle};
    pub use taut_link::{
        Chance, Distribution, FqCodelSpec, FqCodelStats, FqSpec, FqStats, Loss, NetemRate, NetemSlot,
        NetemSpec, QdiscDetails, QdiscReport, QdiscSpec, QdiscSpecError, Share, TbfLimit, TbfSpec,
    };
    pub use taut_link::{
        Limit, LinkSpec, QdiscStats, QuantityError, Rate, SpecError, Spread, TimeText, parse_size, parse_time,
    };
}

/// The core's types for configuration.
pub mod config {
    pub use taut_core::{AutocorkMode, AutosizeMode, BufferSizes, Duration, LowatMode, PacingMode, TsqMode};
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
