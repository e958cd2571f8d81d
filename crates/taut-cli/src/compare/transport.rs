//! The interface that a workload needs: listen, connect, and streams to read and write.
//!
//! The kernel's sockets and taut's blocking sockets both implement it, so that the comparison runs the same
//! code over both. Called by `workload.rs` and `mod.rs`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use taut::blocking;
use taut_core::ConnOptions;

/// A connected byte stream.
pub(crate) trait Stream: Read + Write + Send {
    /// Switches Nagle's algorithm off.
    fn set_nodelay(&self) -> io::Result<()>;
    /// Makes reads and writes fail after this time, so that nothing waits forever for a peer that is gone.
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
    /// Writes all of it from memory that the stack may keep: without a copy, where the stack can do that.
    fn lend(&mut self, data: Bytes) -> io::Result<()>;
}

/// A listening socket.
pub(crate) trait Listen: Send {
    /// The type of accepted connections.
    type Stream: Stream;
    /// Waits for the next connection.
    fn accept(&self) -> io::Result<Self::Stream>;
    /// The address at which it listens.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A TCP at one end of a link.
pub(crate) trait Transport: Send + Sync + 'static {
    /// The type of its connections.
    type Stream: Stream;
    /// The type of its listeners.
    type Listener: Listen<Stream = Self::Stream>;

    /// Runs `work` in the environment of this transport's sockets: for the kernel's, in its network
    /// namespace.
    fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R>;
    /// Connects. Called within [`Transport::within`].
    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream>;
    /// Listens. Called within [`Transport::within`].
    fn listen(&self, at: SocketAddr) -> io::Result<Self::Listener>;
}

/// The kernel's sockets and taut's blocking ones have the same methods, and no trait in common.
macro_rules! sockets {
    ($stream:ty, $listener:ty, $lend:expr) => {
        impl Stream for $stream {
            fn set_nodelay(&self) -> io::Result<()> {
                Self::set_nodelay(self, true)
            }

            fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(timeout))?;
                self.set_write_timeout(Some(timeout))
            }

            fn lend(&mut self, data: Bytes) -> io::Result<()> {
                $lend(self, data)
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

sockets!(std::net::TcpStream, std::net::TcpListener, |stream: &mut Self, data: Bytes| stream
    .write_all(&data));
sockets!(blocking::TcpStream, blocking::TcpListener, |stream: &Self, data| stream.write_all_bytes(data));

/// The kernel's TCP, in a namespace of its own or in that of the command.
#[derive(Debug)]
pub(crate) struct Kernel {
    namespace: Option<taut_testbed::Kernel>,
    /// What each socket has to ask for; nothing when it is the kernel's default.
    congestion: Option<String>,
}

impl Kernel {
    /// In this namespace, or without one in that of the command. All its sockets have this congestion
    /// control.
    ///
    /// # Errors
    /// When it has none of that name, or does not allow it.
    pub(crate) fn new(namespace: Option<taut_testbed::Kernel>, congestion: &str) -> io::Result<Self> {
        let ask = Self { namespace, congestion: Some(congestion.to_owned()) };
        let (asked, default) = ask.within(|| {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            let asked = taut_testbed::socket(any, &ConnOptions::default(), Some(congestion));
            (asked.map(drop), taut_testbed::default_congestion())
        })?;
        asked?;
        // A system call less for each connection, as taut's need none.
        let is_default = default.is_ok_and(|default| default == congestion);
        Ok(if is_default { Self { congestion: None, ..ask } } else { ask })
    }
}

impl Transport for Kernel {
    type Stream = std::net::TcpStream;
    type Listener = std::net::TcpListener;

    fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        match &self.namespace {
            Some(kernel) => kernel.enter(work),
            None => Ok(work()),
        }
    }

    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream> {
        taut_testbed::connect(to, &ConnOptions::default(), self.congestion.as_deref())
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Self::Listener> {
        taut_testbed::listen(at, self.congestion.as_deref())
    }
}

/// taut's blocking sockets.
pub(crate) struct Taut(pub taut::Stack);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_kernels_connections_have_the_congestion_control() {
        // Every kernel has reno, and few have it as their default; theirs needs no asking.
        let default = taut_testbed::default_congestion().unwrap();
        for (name, asked) in [("reno", default != "reno"), (&default, false)] {
            let kernel = Kernel::new(None, name).unwrap();
            assert_eq!(kernel.congestion.is_some(), asked);
            let listener = kernel.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let near = kernel.connect(listener.local_addr().unwrap()).unwrap();
            let far = Listen::accept(&listener).unwrap();
            for end in [&near, &far] {
                let has = socket2::SockRef::from(end).tcp_congestion().unwrap();
                // The kernel pads the name with zeros.
                assert_eq!(String::from_utf8_lossy(&has).trim_end_matches('\0'), name);
            }
        }
        assert_eq!(Kernel::new(None, "no_such_control").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
