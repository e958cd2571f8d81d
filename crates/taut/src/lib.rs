//! TCP in userspace: a TCP/IP stack inside your program, over a TUN interface or any other device, with
//! familiar sockets.
//!
//! **Connect.** A stack has an address on an interface; a stream connects over it. The sockets work like
//! those of `tokio::net`, with the stack as the first argument; [`blocking`] has those of `std::net`.
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
//! **Accept.** [`TcpListener`] accepts connections to the stack's own addresses. [`IncomingFlows`] yields
//! every new connection to any address before it is answered, which a gateway needs; [`relay`] joins each to
//! a socket beyond.
//!
//! ```no_run
//! # #[cfg(feature = "tokio")]
//! # async fn example(stack: &taut::Stack) -> std::io::Result<()> {
//! let listener = taut::TcpListener::bind(stack, "10.0.0.2:7").await?;
//! loop {
//!     let (stream, _from) = listener.accept().await?;
//!     tokio::spawn(async move {
//!         let (mut reader, mut writer) = tokio::io::split(stream);
//!         tokio::io::copy(&mut reader, &mut writer).await
//!     });
//! }
//! # }
//! ```
//!
//! **Give it a device.** [`StackBuilder::device`] takes any: a [`channel`](device::channel()) to your own
//! code, a [`pipe`](device::pipe()) to another stack, an Ethernet interface, or your own implementation.
//!
//! ```no_run
//! # fn example() -> std::io::Result<()> {
//! let (device, far_end) = taut::device::channel(taut::device::LinkCaps::plain(1_420), 1 << 20);
//! let stack = taut::Stack::builder().device(device).address("10.0.0.2/24").build()?;
//! while let Some(parcel) = far_end.recv() {
//!     println!("{} bytes to send", parcel.packet().len()); // the other way: far_end.put(…)
//! }
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `control` | yes | [`StackBuilder::control`]: a socket at which `taut ss` and its like read and change the stack; [`taut_control`] |
//! | `observe` | no | [`Stack::snapshot`]: what `taut ss` shows, inside the program; `control` has it, too |
//! | `tokio` | yes | asynchronous sockets, [`relay`], [`StackBuilder::build_tokio`]; `blocking` needs no feature |
//! | `axum` | no | [`TcpListener`] is a listener of `axum::serve` |
//! | `hyper` | no | `Connector` for the clients of hyper-util and tonic, a tower service; hyper's traits on [`TcpStream`] |
//! | `dns` | no | names are looked up over the stack: [`StackBuilder::resolver`] |
//! | `tracing` | no | events of stacks, tunnels and a gateway's flows for `tracing` |
//! | `xdp` | no | Ethernet interfaces by AF_XDP, as a device |
//!
//! # Modules
//!
//! | module | has |
//! |---|---|
//! | the root | [`Stack`], its builder, asynchronous sockets, options |
//! | [`blocking`] | the same sockets for threads; both kinds can be used on one stack |
//! | [`device`] | devices, and the traits to implement for one of your own |
//! | [`dns`] | where names are looked up |
//! | [`relay`] | joins an incoming flow to a socket beyond |
//! | [`network`] | addresses and routes of a running stack |
//! | [`qdisc`] | queue disciplines in front of the device |
//! | [`config`] | the stack's configuration, and its [`Duration`](config::Duration), which converts from and into that of `std` |
//! | [`congestion`] | congestion controls, and the trait for one of your own |
//! | [`observe`] | what a stack and its sockets report |
//! | [`zero_copy`] | sending and receiving without a copy |
//! | [`taut_control`] | the client of the control socket |
//!
//! Any executor may poll the asynchronous sockets: the stack has a thread of its own unless
//! [`StackBuilder::build_tokio`] makes it a task of a runtime. Options have Linux's names. An error is an
//! [`std::io::Error`] of the kind that a kernel socket would return, with the stack's own error as its
//! source.
#![forbid(unsafe_code)]

#[cfg(any(feature = "axum", feature = "hyper"))]
mod adapters;
pub mod blocking;
mod builder;
mod common;
#[cfg(all(feature = "control", target_os = "linux"))]
mod control;
pub mod dns;
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
/// Shared bytes, which are written and read without a copy.
///
/// ```no_run
/// # fn example(stream: &taut::blocking::TcpStream) -> std::io::Result<()> {
/// stream.write_all_bytes(taut::Bytes::from_static(b"hello"))?;
/// let answer: taut::Bytes = stream.read_chunk(1 << 16)?;
/// # Ok(()) }
/// ```
pub use bytes::Bytes;
pub use common::datagram::{EchoRequest, PingReply};
pub use stack::Stack;

/// The control socket: [`StackBuilder::control`] opens one, and another process connects to it.
///
/// ```no_run
/// # fn main() -> Result<(), taut::taut_control::ClientError> {
/// for stack in taut::taut_control::place::running()? {
///     let mut client = taut::taut_control::Client::connect(&stack.path)?;
///     println!("{} connections", client.connections()?.len());
/// }
/// # Ok(()) }
/// ```
#[cfg(all(feature = "control", target_os = "linux"))]
pub use taut_control;
/// A congestion control: [`SetOption::Congestion`], [`ConnOptions::congestion`].
///
/// ```no_run
/// # fn example(stack: &taut::Stack) -> Result<(), Box<dyn std::error::Error>> {
/// use taut::{Algorithm, ConnOptions, blocking::TcpStream};
///
/// let bbr = ConnOptions { congestion: Some(Algorithm::bbr()), ..ConnOptions::default() };
/// let stream = TcpStream::connect_with(stack, "10.0.0.1:80".parse()?, &bbr, None)?;
/// // By name, which may be one of your own, with its parameters.
/// stream.set_option(taut::SetOption::Congestion(stack.algorithm("cubic")?))?;
/// # Ok(()) }
/// ```
pub use taut_core::Algorithm;
/// Why a connection ended: the source of the [`std::io::Error`] of a stream.
///
/// ```no_run
/// # fn example(stream: &taut::blocking::TcpStream) {
/// use taut::ConnError;
///
/// let why = stream.peek(&mut [0]).unwrap_err();
/// let conn = why.get_ref().and_then(|source| source.downcast_ref::<ConnError>());
/// assert_eq!(conn, Some(&ConnError::Reset));
/// # }
/// ```
pub use taut_core::ConnError;
/// The options with which a connection starts.
///
/// ```no_run
/// # fn example(stack: &taut::Stack) -> Result<(), Box<dyn std::error::Error>> {
/// use taut::{ConnOptions, blocking::TcpStream};
///
/// let options = ConnOptions { nodelay: true, notsent_lowat: 16 << 10, ..ConnOptions::default() };
/// let stream = TcpStream::connect_with(stack, "10.0.0.1:80".parse()?, &options, None)?;
/// # Ok(()) }
/// ```
pub use taut_core::ConnOptions;
/// Why a call of a datagram socket failed: the source of its [`std::io::Error`].
///
/// ```no_run
/// # fn example(socket: &taut::blocking::UdpSocket) {
/// use taut::DatagramError;
///
/// let why = socket.send(&[0; 65_536]).unwrap_err();
/// let error = why.get_ref().and_then(|source| source.downcast_ref::<DatagramError>());
/// assert_eq!(error, Some(&DatagramError::TooLong));
/// # }
/// ```
pub use taut_core::DatagramError;
/// Limits of the UDP and echo flows of a filter, in [`IncomingOptions::datagrams`].
///
/// ```
/// use std::time::Duration;
/// use taut::{DatagramFlowOptions, IncomingOptions};
///
/// let idle_timeout = Duration::from_secs(300).into();
/// let datagrams = DatagramFlowOptions { max_flows: 1_000, idle_timeout, ..Default::default() };
/// let options = IncomingOptions { datagrams, ..Default::default() };
/// # drop(options);
/// ```
pub use taut_core::DatagramFlowOptions;
/// An option of an open datagram socket: [`set_option`](blocking::UdpSocket::set_option).
///
/// ```no_run
/// # fn example(socket: &taut::blocking::UdpSocket) -> std::io::Result<()> {
/// use taut::DatagramOption;
///
/// socket.set_option(DatagramOption::Gro(true))?;
/// socket.set_option(DatagramOption::MulticastTtl(4))?;
/// # Ok(()) }
/// ```
pub use taut_core::DatagramOption;
/// The options with which a datagram socket starts.
///
/// ```no_run
/// # fn example(stack: &taut::Stack) -> Result<(), Box<dyn std::error::Error>> {
/// use taut::{DatagramOptions, blocking::UdpSocket};
///
/// let options = DatagramOptions { rcvbuf: Some(1 << 20), recv_errors: true, ..Default::default() };
/// let socket = UdpSocket::bind_with(stack, "0.0.0.0:53".parse()?, &options)?;
/// # Ok(()) }
/// ```
pub use taut_core::DatagramOptions;
/// The keys of the cookies of TCP Fast Open, of the stack or of one listener.
///
/// ```
/// use taut::{FastOpenKeys, FastOpenListen, ListenOptions};
///
/// // As in net.ipv4.tcp_fastopen_key; the second one is the backup.
/// let text = "00010203-04050607-08090a0b-0c0d0e0f,10111213-14151617-18191a1b-1c1d1e1f";
/// let keys: FastOpenKeys = text.parse().unwrap();
/// let fast_open = FastOpenListen { pending_max: 64, keys: Some(keys), ..Default::default() };
/// let options = ListenOptions { fast_open, ..Default::default() };
/// # drop(options);
/// ```
pub use taut_core::FastOpenKeys;
/// TCP Fast Open at a listener, in [`ListenOptions::fast_open`].
///
/// ```no_run
/// # fn example(stack: &taut::Stack) -> Result<(), Box<dyn std::error::Error>> {
/// use taut::{FastOpenListen, ListenOptions, blocking::TcpListener};
///
/// stack.set_sysctl("tcp_fastopen", "2")?;
/// let fast_open = FastOpenListen { pending_max: 64, ..Default::default() };
/// let options = ListenOptions { fast_open, ..Default::default() };
/// let listener = TcpListener::bind_with(stack, "10.0.0.2:80".parse()?, options)?;
/// # Ok(()) }
/// ```
pub use taut_core::FastOpenListen;
/// The new flows that [`IncomingFlows`](blocking::IncomingFlows) yields.
///
/// ```no_run
/// # fn example(stack: &taut::Stack) -> std::io::Result<()> {
/// use taut::{FlowFilter, FlowKind, blocking::IncomingFlows};
///
/// let web = IncomingFlows::open(stack, FlowFilter::any().ports(80..=80).ports(443..=443))?;
/// let pings = IncomingFlows::open(stack, FlowFilter::any().kinds([FlowKind::Echo]))?;
/// # Ok(()) }
/// ```
pub use taut_core::FlowFilter;
/// The protocol of a flow that came in.
///
/// ```no_run
/// # fn example(flow: taut::blocking::IncomingFlow) -> std::io::Result<()> {
/// use taut::FlowKind;
///
/// match flow.kind() {
///     FlowKind::Tcp => drop(flow.accept()?),
///     FlowKind::Udp => drop(flow.accept_udp()?),
///     FlowKind::Echo => drop(flow.accept_echo()?),
/// }
/// # Ok(()) }
/// ```
pub use taut_core::FlowKind;
/// An ICMP error about a datagram that was sent.
///
/// ```no_run
/// # fn example(socket: &taut::blocking::UdpSocket) -> std::io::Result<()> {
/// // The socket has `recv_errors`.
/// while let Some(taut::IcmpReport { error, router, to, .. }) = socket.recv_error()? {
///     println!("{router} about the datagram to {to}: {error}");
/// }
/// # Ok(()) }
/// ```
pub use taut_core::IcmpReport;
/// Limits and defaults of the flows of a filter.
///
/// ```no_run
/// # fn example(stack: &taut::Stack) -> std::io::Result<()> {
/// use taut::{FlowFilter, IncomingOptions, blocking::IncomingFlows};
///
/// let options = IncomingOptions { max_connections: 10_000, max_per_peer: 100, ..Default::default() };
/// let flows = IncomingFlows::open_with(stack, FlowFilter::any(), options)?;
/// # Ok(()) }
/// ```
pub use taut_core::IncomingOptions;
/// TCP keepalive of a connection.
///
/// ```no_run
/// # fn example(stream: &taut::blocking::TcpStream) -> std::io::Result<()> {
/// use std::time::Duration;
/// use taut::Keepalive;
///
/// let (idle, interval) = (Duration::from_secs(60).into(), Duration::from_secs(10).into());
/// stream.set_keepalive(Some(Keepalive { idle, interval, count: 5 }))?;
/// # Ok(()) }
/// ```
pub use taut_core::Keepalive;
/// The options of a listening socket.
///
/// ```no_run
/// # fn example(stack: &taut::Stack) -> Result<(), Box<dyn std::error::Error>> {
/// use taut::{ListenOptions, blocking::TcpListener};
///
/// let options = ListenOptions { max_connections: 10_000, max_per_peer: 100, ..Default::default() };
/// let listener = TcpListener::bind_with(stack, "10.0.0.2:80".parse()?, options)?;
/// # Ok(()) }
/// ```
pub use taut_core::ListenOptions;
/// What happens to a datagram that is larger than the path's MTU.
///
/// ```no_run
/// # fn example(socket: &taut::blocking::UdpSocket) -> std::io::Result<()> {
/// use taut::{DatagramOption, MtuDiscovery};
///
/// // A protocol that finds the MTU by itself, such as QUIC.
/// socket.set_option(DatagramOption::MtuDiscovery(MtuDiscovery::Probe))?;
/// # Ok(()) }
/// ```
pub use taut_core::MtuDiscovery;
/// Why an option was not set: the source of the [`std::io::Error`].
///
/// ```no_run
/// # fn example(stream: &taut::blocking::TcpStream) {
/// use taut::{OptionError, SetOption};
///
/// let why = stream.set_option(SetOption::MaxPacingRate(0)).unwrap_err();
/// let source = why.get_ref().and_then(|source| source.downcast_ref::<OptionError>());
/// assert_eq!(source, Some(&OptionError::OutOfRange("SO_MAX_PACING_RATE")));
/// # }
/// ```
pub use taut_core::OptionError;
/// A datagram that was received, with its ancillary data.
///
/// ```no_run
/// # fn example(socket: &taut::blocking::UdpSocket) -> std::io::Result<()> {
/// let mut buffer = [0; 2048];
/// let taut::Received { len, whole, from, ttl, .. } = socket.recv_with(&mut buffer)?;
/// println!("{len} of {whole} bytes from {from}, time to live {ttl}: {:?}", &buffer[..len]);
/// # Ok(()) }
/// ```
pub use taut_core::Received;
/// How a flow is refused.
///
/// ```no_run
/// # fn example(flow: taut::blocking::IncomingFlow) {
/// use taut::Refusal;
///
/// let is_allowed = flow.local_addr().port() == 443;
/// flow.refuse(if is_allowed { Refusal::HostUnreachable } else { Refusal::Prohibited });
/// # }
/// ```
pub use taut_core::Refusal;
/// Ancillary data of a datagram that is sent.
///
/// ```no_run
/// # fn example(socket: &taut::blocking::UdpSocket) -> std::io::Result<()> {
/// use taut::SendMeta;
///
/// // Ten datagrams of 1,200 bytes in one call.
/// let meta = SendMeta { segment: Some(1_200), ttl: Some(3), ..SendMeta::default() };
/// socket.send_with(&[0; 12_000], None, &meta)?;
/// # Ok(()) }
/// ```
pub use taut_core::SendMeta;
/// An option of an open connection; each has a method of its own, such as
/// [`set_cork`](blocking::TcpStream::set_cork), too.
///
/// ```no_run
/// # fn example(stream: &taut::blocking::TcpStream) -> std::io::Result<()> {
/// use taut::SetOption;
///
/// for option in [SetOption::Nodelay(true), SetOption::MaxPacingRate(1 << 20), SetOption::Tos(0x28)] {
///     stream.set_option(option)?;
/// }
/// # Ok(()) }
/// ```
pub use taut_core::SetOption;
/// What the SYN of a flow said.
///
/// ```no_run
/// # fn example(flow: &taut::blocking::IncomingFlow) {
/// if let Some(taut::SynInfo { mss, window, sack, .. }) = flow.syn() {
///     println!("MSS {mss:?}, window {window}, selective acknowledgements: {sack}");
/// }
/// # }
/// ```
pub use taut_core::SynInfo;
/// The flags of a write, like those of `send(2)`.
///
/// ```no_run
/// # fn example(stream: &taut::blocking::TcpStream) -> std::io::Result<()> {
/// use taut::WriteFlags;
///
/// // A partial segment waits for the body, once.
/// stream.try_write_with(b"HTTP/1.1 200 OK\r\n", WriteFlags { more: true, ..WriteFlags::default() })?;
/// stream.try_write_with(b"\r\n", WriteFlags::default())?;
/// # Ok(()) }
/// ```
pub use taut_core::WriteFlags;
/// Congestion control: the algorithms, their parameters, and the trait for one of your own.
///
/// ```
/// use taut::congestion::{Algorithm, Registry};
///
/// let names: Vec<_> = Algorithm::built_in().iter().map(|built_in| built_in.name().to_owned()).collect();
/// assert_eq!(names, ["reno", "cubic", "bbr", "dctcp", "prague"]);
/// assert!(Registry::default().algorithm("vegas").is_err());
/// ```
pub use taut_core::congestion;

/// Devices, and the traits to implement for one of your own: a sending half ([`TxDevice`](device::TxDevice))
/// and a receiving half ([`RxDevice`](device::RxDevice)).
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

/// Queue disciplines in front of the device: [`StackBuilder::link`], [`Stack::set_qdisc`] and
/// [`Stack::qdiscs`].
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

/// Reports of a stack and its sockets: `info` and `report` of a stream, [`Stack::counters`],
/// [`Stack::report`], and of all sockets at once [`Stack::snapshot`].
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
    #[cfg(feature = "observe")]
    pub use taut_control::{
        protocol::Counter,
        snapshot::{
            ConnReportSnapshot, ConnSnapshot, DatagramSnapshot, FlowSnapshot, Interval, ListenerSnapshot,
            QueueSnapshot, ReportSnapshot, Share, TsqSnapshot,
        },
        whole::StackSnapshot,
    };
    pub use taut_core::{
        Blocked, ConnInfo, Counters, DatagramInfo, FastOpenFail, Gate, Histogram, Lateness, QueueReport,
        Report, State,
    };
    pub use taut_replay::{RecordHandle, RecordReport};
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

/// Sending and receiving without a copy: `write_bytes`, `next_completion`, `read_chunk` and `buffered` of a
/// stream.
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
#[doc = include_str!("../../../docs/guide/embed.md")]
#[doc = include_str!("../../../docs/guide/machine.md")]
struct Guide;

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct ReadmeOfThisCrate;
