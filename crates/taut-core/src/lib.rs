//! A TCP/IP stack whose send path keeps the queues below it short: sans-IO, `no_std`, no clock.
//!
//! ```text
//!         app                                                                        peer
//!          │ write()                                                                   ▲
//!          ▼                                                                           │
//!    ┌─────────────┐   ┌──────────────────────────────┐   ┌────────┐   ┌────────┐   ┌──┴───┐
//!    │ write queue │──▶│ segment: nagle, cork,        │──▶│ pacing │──▶│ small  │──▶│ link │
//!    │ lowat       │   │ autocork, autosize           │   │        │   │ queue  │   │device│
//!    └─────────────┘   └──────────────────────────────┘   └────────┘   └───▲────┘   └──┬───┘
//!          ▲ Event::Writable                                               └───────────┘ TxTicket comes back
//!          │
//!    read queue ◀── reassembly ◀── ACK ─▶ recovery ─▶ congestion control ─▶ cwnd, pacing rate
//! ```
//!
//! A [`Stack`] is driven by calls and calls nothing back. The contract, in the order of one turn:
//!
//! 1. [`Stack::handle_packet`] for each received packet, until [`Stack::must_answer`] returns true;
//!    [`Stack::handle_timeout`] when [`Stack::poll_timeout`] is due; commands ([`Stack::connect`],
//!    [`ConnMut::write`] …) whenever the application wants.
//! 2. [`Stack::poll_transmit`] until it returns nothing: put each [`TxPacket`] on the link and give its
//!    [`TxTicket`] back with its [`Fate`] ([`Stack::handle_tx`]) when the bytes have left the host, or
//!    immediately if the link does not take them.
//! 3. [`Stack::poll_event`] until it returns nothing: notify the application.
//! 4. Sleep until the next input or [`Stack::poll_timeout`].
//!
//! Time is the `now` of every call and must not go backwards; all randomness comes from the seed. So the same
//! calls always give the same packets.
//!
//! ```
//! use std::sync::Arc;
//! use taut_core::{
//!     ConnOptions, Duration, Fate, Frame, Instant, LinkCaps, RxChecksum, RxPacket, Stack, StackConfig, Transmit,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let at = |ip: &str| -> Result<Stack, std::net::AddrParseError> {
//!     let ip = ip.parse()?;
//!     let config = StackConfig::default().with(|config| config.addresses.push(ip));
//!     Ok(Stack::new(Arc::new(config), LinkCaps::plain(1500), [7; 32]))
//! };
//! let (mut client, mut server) = (at("10.0.0.1")?, at("10.0.0.2")?);
//! let mut now = Instant::ZERO;
//! let listener = server.listen("10.0.0.2:80".parse()?, Default::default())?;
//! let conn = client.connect(now, "10.0.0.2:80".parse()?, &ConnOptions::default())?;
//!
//! /// Carries packets both ways until both stacks are silent.
//! fn run(now: Instant, a: &mut Stack, b: &mut Stack) {
//!     let mut carry = |from: &mut Stack, to: &mut Stack| {
//!         let Some(Transmit { packet, ticket }) = from.poll_transmit(now) else { return false };
//!         let frame = Frame::Gather { header: packet.header, payload: packet.payload };
//!         to.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
//!         from.handle_tx(now, ticket, Fate::Left);
//!         true
//!     };
//!     while carry(a, b) | carry(b, a) {}
//! }
//! run(now, &mut client, &mut server);
//!
//! client.conn_mut(conn).unwrap().write(now, b"hello")?;
//! run(now, &mut client, &mut server);
//!
//! let (accepted, _) = server.accept(listener).unwrap();
//! let mut bytes = [0; 16];
//! let count = server.conn_mut(accepted).unwrap().read(now, &mut bytes)?;
//! assert_eq!(&bytes[..count], b"hello");
//! # Ok(())
//! # }
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod buffers;
pub mod congestion;
mod conn;
mod datagram;
mod ecn;
mod egress;
mod fast_open;
mod ingress;
mod ip;
mod recovery;
mod settings;
mod stack;
mod stats;
mod words;

pub use bytes::Bytes;
pub use congestion::Algorithm;
pub use conn::handshake::Resumed;
pub use conn::info::ConnInfo;
pub use conn::report::{QueueReport, Report};
pub use conn::state::State;
pub use datagram::{
    DatagramError, DatagramInfo, DatagramKind, DatagramOption, DatagramOptions, IcmpReport, MtuDiscovery,
    Received, SendMeta,
};
pub use egress::{
    AutocorkMode, AutosizeMode, Blocked, Completion, Gate, LowatMode, PacingMode, TsqMode, WriteFlags,
};
pub use fast_open::{FastOpenFail, FastOpenKeys};
pub use ip::{Routes, is_host};
pub use settings::config::{self, StackConfig, SynCookies};
pub use settings::options::{ConnOptions, FastOpenListen, Keepalive, ListenOptions, SetOption};
pub use settings::sysctl::SysctlError;
pub use stack::{
    ConnMut, ConnRef, DatagramFlowOptions, FlowFilter, FlowInfo, FlowKind, FlowState, IncomingOptions,
    IpPrefix, ListenerInfo, Refusal, Stack, Steering, SynInfo, Timer,
};
pub use stats::{Counters, Histogram, Lateness};
pub use words::{
    BUFFER_BYTES, BufferSizes, ConnError, ConnId, ConnectError, DatagramId, Duration, Event, Fate, FlowError,
    FlowId, Frame, GATHER_MAX, Gather, Instant, KeptPacket, Known, Lease, LinkCaps, ListenError, ListenerId,
    Network, NetworkChange, NetworkError, Offload, OptionError, ReadError, Route, RxChecksum, RxPacket,
    Transmit, TxPacket, TxTicket, Witness, WriteError, steps_taken,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
