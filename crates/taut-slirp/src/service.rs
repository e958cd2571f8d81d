//! The far side of a connection: a socket of the host's, a program, or a service of the caller's own.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_gateway::{Path, sockets};

use crate::core::{AT_ONCE, Call};
use crate::detached;
use crate::exchange::{first_of, framed};

/// See the top of the file.
pub(crate) enum Far {
    /// A socket of TCP or Unix: of a server, or of a program at its standard input and output.
    Socket(Socket),
    /// The caller has the service at this address; bytes that it said and the guest has not got yet.
    Caller { at: SocketAddr, said: VecDeque<u8> },
    /// The name service.
    Names(Conversation),
}

/// Questions on one connection, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// The question, as far as it has come.
    question: Vec<u8>,
    /// It is whole, and has no answer yet.
    is_whole: bool,
    said: VecDeque<u8>,
    /// The guest has no more questions.
    is_over: bool,
}

/// Reads all that there is room for. By itself, a ring reads to its memory's end, and fewer bytes than there
/// is room for mean that no more is there.
fn read(from: &mut VecDeque<u8>, into: &mut [u8]) -> io::Result<usize> {
    from.make_contiguous();
    io::Read::read(from, into)
}

/// A question is a name and a few options; a longer one is no question.
const LONGEST_QUESTION: usize = 4_096;

impl Conversation {
    /// Takes bytes of one question.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_whole || !self.said.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut count = 0;
        while count < bytes.len() && !self.is_whole {
            self.question.push(bytes[count]);
            count += 1;
            self.is_whole = first_of(&self.question).is_some();
            if self.question.len() > LONGEST_QUESTION {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(count)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.said.is_empty() {
            true if self.is_over && !self.is_whole => Ok(0),
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => read(&mut self.said, into),
        }
    }
}

impl Far {
    /// A program, as `add_exec` names it.
    pub(crate) fn program(name: &str, arguments: &[String]) -> io::Result<Self> {
        let (own, other) = UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let output = OwnedFd::from(other.try_clone()?);
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::from(OwnedFd::from(other))).stdout(Stdio::from(output));
        detached::spawn(&mut command)?;
        Ok(Self::Socket(Socket::from(OwnedFd::from(own))))
    }

    /// A Unix socket, as `add_unix` names it.
    pub(crate) fn unix(path: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(Self::Socket(socket))
    }

    const fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Socket(socket) => Some(socket),
            Self::Caller { .. } | Self::Names(_) => None,
        }
    }

    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.socket().map(std::os::fd::AsRawFd::as_raw_fd)
    }

    pub(crate) const fn is_caller(&self) -> bool {
        matches!(self, Self::Caller { .. })
    }

    /// Bytes of the caller's service that wait here.
    pub(crate) fn said(&self) -> Option<Vec<u8>> {
        match self {
            Self::Caller { said, .. } => Some(said.iter().copied().collect()),
            Self::Socket(_) | Self::Names(_) => None,
        }
    }

    /// Whether it is connected.
    pub(crate) fn is_there(&self) -> io::Result<bool> {
        let Some(socket) = self.socket() else { return Ok(true) };
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        Ok(socket.peer_addr().is_ok())
    }

    /// Why it is over, if it is. Told once.
    pub(crate) fn error(&self) -> Option<io::Error> {
        self.socket().and_then(|socket| socket.take_error().unwrap_or_else(Some))
    }

    /// Whether there is room for a write of any length. For a write, the kernel looks for room only where a
    /// new piece of its memory begins; for `poll`, always.
    pub(crate) fn has_room(&self) -> bool {
        let Some(socket) = self.socket() else { return true };
        let mut wanted = [PollFd::new(socket, PollFlags::OUT)];
        !matches!(poll(&mut wanted, Some(&Timespec::default())), Ok(0))
    }

    /// The rate of its connection and its round trip.
    pub(crate) fn path(&self) -> Option<Path> {
        sockets::path(self.socket()?)
    }

    /// From now on there is room only while fewer bytes than this are unsent.
    pub(crate) fn hold_unsent(&self, bytes: u32) {
        if let Some(socket) = self.socket() {
            // A connection that is over has nothing unsent.
            _ = socket.set_tcp_notsent_lowat(bytes);
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], calls: &mut VecDeque<Call>) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.send_with_flags(bytes, libc::MSG_NOSIGNAL),
            // It takes all that comes: the guest's window bounds it.
            Self::Caller { at, .. } => {
                calls.push_back(Call { at: *at, bytes: bytes.to_vec() });
                Ok(bytes.len())
            }
            Self::Names(names) => names.take(bytes),
        }
    }

    pub(crate) fn recv(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => io::Read::read(&mut &*socket, into),
            Self::Caller { said, .. } if said.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            Self::Caller { said, .. } => read(said, into),
            Self::Names(names) => names.read(into),
        }
    }

    /// How much more the caller's service may say.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Caller { said, .. } => AT_ONCE.saturating_sub(said.len()),
            Self::Socket(_) | Self::Names(_) => 0,
        }
    }

    /// A question that is whole now: it is handed out once.
    pub(crate) fn question(&mut self) -> Option<Vec<u8>> {
        let Self::Names(names) = self else { return None };
        let question = names.is_whole.then(|| std::mem::take(&mut names.question))?;
        question.get(2..).map(<[u8]>::to_vec)
    }

    /// The answer to the question; an empty one is none.
    pub(crate) fn answer(&mut self, answer: &[u8]) {
        if let Self::Names(names) = self {
            names.is_whole = false;
            if !answer.is_empty() {
                names.said.extend(framed(answer));
            }
        }
    }

    /// Bytes of the caller's service; beyond its room they are lost.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let room = self.room();
        if let Self::Caller { said, .. } = self {
            said.extend(&bytes[..bytes.len().min(room)]);
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Self::Names(names) = self {
            names.is_over = true;
        }
        if let Some(socket) = self.socket() {
            // One that is gone by now does not miss it.
            _ = socket.shutdown(Shutdown::Write);
        }
    }

    /// Dropping it will be a reset.
    pub(crate) fn abort_now(&self) {
        if let Some(socket) = self.socket() {
            _ = socket.set_linger(Some(Duration::ZERO));
        }
    }

    pub(crate) fn abort(self) {
        self.abort_now();
    }
}
