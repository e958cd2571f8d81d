//! One testbed for a stack and the kernel's TCP: links in network namespaces, the kernel at their far ends
//! (and, for comparison, at the near end), the kernel's sockets with the same options as a stack's, and the
//! kernel's facts about them. `taut compare`, the lab's live runs, the benchmarks and the tests of several
//! crates are built on it.
//!
//! ```text
//!        near: the tested end                      far: Kernel, a namespace of its own
//!        a stack ── Tun ──────── Kernel::tun ────▶ the kernel's TCP ── Peer: sink, source, echo, respond
//!        Kernel ──────────────── Kernel::veth ───▶ the kernel's TCP ── Peer
//!        Subnet::near                              Subnet::far
//!        10.9.0.2, fd09::2                         10.9.0.1, fd09::1
//! ```
//!
//! | file | has |
//! |---|---|
//! | `kernel.rs` | [`Kernel`]: a namespace, its settings, the links that end in it, programs and threads in it |
//! | `subnet.rs` | [`Subnet`]: the addresses of a link's ends, of both families |
//! | `socket.rs` | [`socket`], [`listen`], [`connect`]: the kernel's sockets, with the options of a stack's; its congestion controls |
//! | `emulator.rs` | [`Emulator`]: a path with rates, delays, losses; at its ends TUNs, stacks, or several of them |
//! | `peer.rs` | [`Peer`]: a thread that answers, over any number of connections |
//! | `patience.rs` | [`eventually`], [`now`], [`Raise`]: how long a test waits, and what runs beside it |
//! | `payload.rs` | [`Noise`]: bytes to send; [`Meter`]: their number and SHA-256 |
//! | `tcp_info.rs` | [`TcpInfo`], [`SocketMemory`]: the state of one of the kernel's connections |
//! | `counters.rs` | `nstat`'s counters of a namespace |
//! | `guest.rs` | [`Guest`]: a virtual machine with another kernel, and its clock of its own |
//! | `qdisc.rs` | a rate for an interface, and the size of its queue |
//! | `live.rs` | whether a test can use all this; otherwise it is skipped with the reason |
//! | `scratch.rs` | [`Scratch`]: a directory that is removed when its test ends |
//!
//! Namespaces have no names: each ends with the last handle, thread or socket in it, at the latest with the
//! process, so nothing is left behind even if the process is killed. The testbed needs root, or a kernel that
//! lets users make user namespaces ([`allow_namespaces`]), and `/dev/net/tun` if a TUN is used.
//!
//! # Example
//!
//! The kernel sends a megabyte to itself, from one namespace to another, with CUBIC and a small send buffer:
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use taut_core::ConnOptions;
//! use taut_testbed::{Kernel, Peer, Service, Subnet, TcpInfo, allow_namespaces, connect};
//!
//! # fn main() -> std::io::Result<()> {
//! allow_namespaces()?;
//! let (near, far) = (Kernel::new()?, Kernel::new()?);
//! let net = Subnet(8);
//! near.veth(&far, net, 1500)?;
//! let peer = Peer::start(&far, &[(7001, Service::Sink)])?;
//!
//! let options = ConnOptions { sndbuf: Some(65_536), ..ConnOptions::default() };
//! let to = (net.far_v4(), 7001).into();
//! let mut stream = near.enter(|| connect(to, &options, Some("cubic")))??;
//! stream.write_all(&[0; 1_000_000])?;
//! stream.shutdown(std::net::Shutdown::Write)?;
//! // The sink closes when it has read the end.
//! assert_eq!(stream.read(&mut [0])?, 0);
//! assert_eq!(peer.taken(), 1_000_000);
//! println!("{} µs of round-trip time", TcpInfo::of(&stream)?.rtt_us());
//! println!("{:?}", near.counters()?.get("TcpOutSegs"));
//! # Ok(())
//! # }
//! ```

mod by_hand;
mod counters;
mod emulator;
pub mod guest;
mod kernel;
pub mod live;
mod patience;
mod payload;
mod peer;
mod qdisc;
mod scratch;
mod socket;
mod subnet;
mod tcp_info;

pub use by_hand::ByHand;
pub use emulator::{Emulator, Port, Switch, Taken, Watch, Watcher, Ways};
pub use guest::Guest;
pub use kernel::{Kernel, allow_namespaces};
pub use patience::{PATIENCE, Raise, eventually, now};
pub use payload::{Digest, Meter, Noise, sha256};
pub use peer::{Peer, Service};
pub use qdisc::has_qdisc;
pub use scratch::Scratch;
pub use socket::{available_congestion, connect, default_congestion, listen, socket};
pub use subnet::Subnet;
pub use tcp_info::{AccurateEcn, SocketMemory, TcpInfo};
