//! One question at one name server, by a datagram or on a connection (RFC 1035 §4.2). Called by `names.rs`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use taut_gateway::PATIENCE;

use crate::core::{any_port, begun, interest, waits};

/// See the top of the file.
pub(crate) struct Exchange {
    socket: Socket,
    again_at: Duration,
    stream: Option<Stream>,
}

/// The rest of the question, and what there is of the answer; each begins with its length.
struct Stream {
    left: Vec<u8>,
    got: Vec<u8>,
}

/// RFC 1035 §4.2.2: over TCP, two bytes with its length are in front of a message.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes()[..], message].concat()
}

/// The first whole message of such bytes, and how many of them it takes.
pub(crate) fn first_of(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    let len = usize::from(u16::from_be_bytes(*len));
    Some((rest.get(..len)?, 2 + len))
}

impl Exchange {
    /// Sends the question, or begins to.
    pub(crate) fn begin(
        server: SocketAddr,
        question: &[u8],
        over_tcp: bool,
        time: Duration,
    ) -> io::Result<Self> {
        let (kind, protocol) =
            if over_tcp { (Type::STREAM, Protocol::TCP) } else { (Type::DGRAM, Protocol::UDP) };
        let socket = Socket::new(Domain::for_address(server), kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        let again_at = time + PATIENCE.again;
        if over_tcp {
            begun(socket.connect(&server.into()))?;
            let stream = Stream { left: framed(question), got: Vec::new() };
            return Ok(Self { socket, again_at: Duration::MAX, stream: Some(stream) });
        }
        socket.bind(&any_port(server).into())?;
        socket.connect(&server.into())?;
        socket.send(question)?;
        Ok(Self { socket, again_at, stream: None })
    }

    /// Sends a datagram again that is due.
    pub(crate) fn repeat(&mut self, question: &[u8], time: Duration) {
        if self.again_at <= time {
            self.again_at = time + PATIENCE.again;
            _ = self.socket.send(question);
        }
    }

    /// When it is due.
    pub(crate) const fn again_at(&self) -> Duration {
        self.again_at
    }

    /// The server's next message, if it is there. An error: the server is gone.
    pub(crate) fn poll(&mut self, scratch: &mut [u8]) -> io::Result<Option<Vec<u8>>> {
        let pending = |error: io::Error| if waits(&error) { Ok(None) } else { Err(error) };
        let Some(stream) = &mut self.stream else {
            return match io::Read::read(&mut &self.socket, scratch) {
                Ok(len) => Ok(Some(scratch[..len].to_vec())),
                Err(error) => pending(error),
            };
        };
        while !stream.left.is_empty() {
            match self.socket.send_with_flags(&stream.left, libc::MSG_NOSIGNAL) {
                Ok(count) => drop(stream.left.drain(..count)),
                // Not connected yet.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(None),
                Err(error) => return pending(error),
            }
        }
        loop {
            if let Some((message, _)) = first_of(&stream.got) {
                return Ok(Some(message.to_vec()));
            }
            match io::Read::read(&mut &self.socket, scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => stream.got.extend_from_slice(&scratch[..len]),
                Err(error) => return pending(error),
            }
        }
    }

    /// Whether it is one message long.
    pub(crate) const fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn interest(&self) -> i32 {
        let writes = self.stream.as_ref().is_some_and(|stream| !stream.left.is_empty());
        if writes { interest::OUT } else { interest::IN }
    }
}
