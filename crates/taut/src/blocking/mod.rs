//! Blocking sockets, with the interface of [`std::net`].
//!
//! While a thread waits here, it drives the stack itself, unless another thread already does. So a reply
//! reaches it without passing through another thread.
//!
//! ```no_run
//! use std::io::{Read, Write};
//! # fn main() -> std::io::Result<()> {
//! let stack = taut::Stack::builder().tun("taut0").address("10.0.0.2/24").build()?;
//! let listener = taut::blocking::TcpListener::bind(&stack, "10.0.0.2:7")?;
//! for stream in listener.incoming() {
//!     let mut stream = stream?;
//!     let mut buffer = [0; 1024];
//!     let count = stream.read(&mut buffer)?;
//!     stream.write_all(&buffer[..count])?;
//! }
//! # Ok(()) }
//! ```

mod incoming;
mod listener;
mod reader;
mod stream;
mod udp;

pub use incoming::{IncomingFlow, IncomingFlows};
pub use listener::{Incoming, TcpListener};
pub use reader::Reader;
pub use stream::TcpStream;
pub use udp::{EchoSocket, PingSocket, UdpSocket};
