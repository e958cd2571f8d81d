//! The interface that a workload needs: listen, connect, and streams to read and write.
//!
//! The kernel's sockets and taut's blocking sockets both implement it, so that the demo runs the same code over both.
//! Called by `workload.rs` and `demo.rs`.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use taut::blocking;

/// A connected byte stream.
pub trait Stream: Read + Write + Send {
    /// Switches Nagle's algorithm off.
    fn set_nodelay(&self) -> io::Result<()>;
    /// Makes reads and writes fail after this time, so that nothing waits forever for a peer that is gone.
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
}

/// A listening socket.
pub trait Listen: Send {
    /// The type of accepted connections.
    type Stream: Stream;
    /// Waits for the next connection.
    fn accept(&self) -> io::Result<Self::Stream>;
    /// The address at which it listens.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A TCP at one end of a link.
pub trait Transport: Send + Sync + 'static {
    /// The type of its connections.
    type Stream: Stream;
    /// The type of its listeners.
    type Listener: Listen<Stream = Self::Stream>;

    /// Runs `work` in the environment of this transport's sockets: for the kernel's, in its network namespace.
    fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R>;
    /// Connects. Called within [`Transport::within`].
    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream>;
    /// Listens. Called within [`Transport::within`].
    fn listen(&self, at: SocketAddr) -> io::Result<Self::Listener>;
}

/// The kernel's sockets and taut's blocking ones have the same methods, and no trait in common.
macro_rules! sockets {
    ($stream:ty, $listener:ty) => {
        impl Stream for $stream {
            fn set_nodelay(&self) -> io::Result<()> {
                Self::set_nodelay(self, true)
            }

            fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(timeout))?;
                self.set_write_timeout(Some(timeout))
            }
        }

        impl Listen for $listener {
            type Stream = $stream;

            fn accept(&self) -> io::Result<Self::Stream> {
                Self::accept(self).map(|(stream, _)| stream)
            }

            fn local_addr(&self) -> io::Result<SocketAddr> {
                Self::local_addr(self)
            }
        }
    };
}

sockets!(std::net::TcpStream, std::net::TcpListener);
sockets!(blocking::TcpStream, blocking::TcpListener);

/// The kernel's TCP, in a namespace of its own or in that of the command.
#[derive(Debug)]
pub struct Kernel(pub Option<taut_testbed::Kernel>);

impl Transport for Kernel {
    type Stream = std::net::TcpStream;
    type Listener = std::net::TcpListener;

    fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        match &self.0 {
            Some(kernel) => kernel.enter(work),
            None => Ok(work()),
        }
    }

    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream> {
        std::net::TcpStream::connect(to)
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Self::Listener> {
        std::net::TcpListener::bind(at)
    }
}

/// taut's blocking sockets.
pub struct Taut(pub taut::Stack);

impl Transport for Taut {
    type Stream = blocking::TcpStream;
    type Listener = blocking::TcpListener;

    fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        Ok(work())
    }

    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream> {
        blocking::TcpStream::connect(&self.0, to)
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Self::Listener> {
        blocking::TcpListener::bind(&self.0, at)
    }
}
