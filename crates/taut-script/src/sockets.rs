//! Sockets as POSIX has them, over the stack's connections: descriptors, errors by Linux's names, blocking
//! and not, epoll, pipes. A call returns at once; one that would block says so ([`Stop::Blocks`]) and is made
//! again by its caller when something has happened.
//!
//! | file | has |
//! |---|---|
//! | `sockets/open.rs` | socket, bind, listen, accept, connect, shutdown, close |
//! | `sockets/data.rs` | read, write, splice, completions of zero-copy writes |
//! | `sockets/fast_open.rs` | data in a SYN: `MSG_FASTOPEN`, `TCP_FASTOPEN_CONNECT`, a listener's options |
//! | `sockets/options.rs` | setsockopt, getsockopt, ioctl, fcntl |
//! | `sockets/poll.rs` | poll and epoll |
//!
//! The caller chooses the numbers of new descriptors. Called by the runner, for scripts.

mod data;
mod fast_open;
mod open;
mod options;
mod poll;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use taut_core::{
    Completion, ConnId, ConnOptions, Duration, Event, FastOpenListen, Instant, ListenerId, SetOption,
};

use crate::errno::Errno;
use crate::host::Host;

pub(crate) use options::OptValue;
pub(crate) use poll::{EpollItem, PollFd};

/// Why a call did not return a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It failed.
    Fails(Errno),
    /// It would block, and the descriptor is a blocking one.
    Blocks,
    /// The sockets here do not have this.
    Unsupported(String),
}

pub(crate) const fn fails<T>(name: &'static str) -> Result<T, Stop> {
    Err(Stop::Fails(Errno(name)))
}

/// The result of a call.
pub(crate) type Called<T> = Result<T, Stop>;

/// The stack with its sockets.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// The stack, its device, and the time.
    pub host: Host,
    files: BTreeMap<i32, File>,
    pipes: Vec<u64>,
}

#[derive(Debug)]
enum File {
    Socket(Box<Socket>),
    Epoll(poll::Epoll),
    /// The reading end of a pipe, by its number, and whether it blocks.
    PipeOut {
        pipe: usize,
        nonblocking: bool,
    },
    PipeIn {
        pipe: usize,
        nonblocking: bool,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    New,
    Listening(ListenerId),
    Conn(ConnId),
}

/// `SO_KEEPALIVE` and its parameters; those that are not set follow the stack's.
#[derive(Clone, Copy, Debug, Default)]
struct Keep {
    on: bool,
    idle: Option<Duration>,
    interval: Option<Duration>,
    count: Option<u8>,
}

#[derive(Clone, Debug, Default)]
struct Socket {
    kind: Kind,
    nonblocking: bool,
    bound: Option<SocketAddr>,
    /// Options with which a connection begins.
    begin: ConnOptions,
    /// What it does about data in SYNs when it listens.
    fast_open: FastOpenListen,
    /// Options that a connection gets once it exists.
    then: Vec<SetOption>,
    keep: Keep,
    /// `SO_LINGER`: seconds, if on.
    linger: Option<u32>,
    inq: bool,
    zero_copy: bool,
    /// Values that are kept for `getsockopt` and have no effect.
    kept: BTreeMap<&'static str, i64>,
    /// `connect` has begun and was not reported yet.
    connecting: bool,
    /// The connection's error was reported: Linux reports an error once.
    error_taken: bool,
    /// Completions of zero-copy writes that wait to be read.
    completions: VecDeque<Completion>,
}

impl Sockets {
    /// Sockets over a host.
    #[must_use]
    pub(crate) const fn new(host: Host) -> Self {
        Self { host, files: BTreeMap::new(), pipes: Vec::new() }
    }

    /// Whether a descriptor is in use.
    #[must_use]
    pub(crate) fn is_open(&self, fd: i32) -> bool {
        self.files.contains_key(&fd)
    }

    fn now(&self) -> Instant {
        self.host.now()
    }

    fn socket_ref(&self, fd: i32) -> Called<&Socket> {
        match self.files.get(&fd) {
            Some(File::Socket(socket)) => Ok(socket),
            Some(_) => fails("ENOTSOCK"),
            None => fails("EBADF"),
        }
    }

    fn socket_mut(&mut self, fd: i32) -> Called<&mut Socket> {
        match self.files.get_mut(&fd) {
            Some(File::Socket(socket)) => Ok(socket),
            Some(_) => fails("ENOTSOCK"),
            None => fails("EBADF"),
        }
    }

    /// The connection of a socket.
    #[must_use]
    pub(crate) fn conn(&self, fd: i32) -> Option<ConnId> {
        match self.socket_ref(fd).ok()?.kind {
            Kind::Conn(id) => Some(id),
            _ => None,
        }
    }

    /// The listener of a socket.
    #[must_use]
    pub(crate) fn listener(&self, fd: i32) -> Option<ListenerId> {
        match self.socket_ref(fd).ok()?.kind {
            Kind::Listening(id) => Some(id),
            _ => None,
        }
    }

    /// The connection's error, if it was not reported yet; it is reported now.
    fn take_error(&mut self, fd: i32) -> Option<Errno> {
        let id = self.conn(fd)?;
        let error = self.host.stack.conn(id)?.error()?;
        let socket = self.socket_mut(fd).ok()?;
        if std::mem::replace(&mut socket.error_taken, true) { None } else { Some(Errno::of(error)) }
    }

    /// Passes on the stack's news: to epoll, and to sockets with zero-copy writes. Call after anything has
    /// happened.
    pub(crate) fn settle(&mut self) {
        self.host.turn();
        let events = self.host.take_events();
        self.collect_completions();
        for event in events {
            let fd = match event {
                Event::Incoming(listener) => self.find(|socket| socket.kind == Kind::Listening(listener)),
                Event::Connected(id)
                | Event::Readable(id)
                | Event::Writable(id)
                | Event::Failed(id, _)
                | Event::Closed(id) => self.find(|socket| socket.kind == Kind::Conn(id)),
                _ => None,
            };
            if let Some(fd) = fd {
                self.wake(fd);
            }
        }
    }

    fn find(&self, is: impl Fn(&Socket) -> bool) -> Option<i32> {
        self.files.iter().find_map(|(&fd, file)| match file {
            File::Socket(socket) if is(socket) => Some(fd),
            _ => None,
        })
    }
}
