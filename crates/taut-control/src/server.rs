//! The thread that answers: one `poll` over the socket and its clients.
//!
//! No client can hold up the stack: the thread takes the lock only to copy a batch of numbers, never while it
//! waits for a client; the number of clients, the length of a request and its time are bounded; and no
//! further replies are made for a client that does not read.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use taut_core::{Duration, Instant, NetworkChange};
use taut_replay::Taped;

use crate::gateway::{GatewayItem, GatewayVerb};
use crate::place::{self, Bound};
use crate::protocol::{DeviceReport, Fault, Identity, Reply, ReplyLine};
use crate::qdisc::QdiscSnapshot;
use crate::rooms::FlowRooms;
use crate::session::Session;

/// The most clients at a time; further ones are refused with an error.
pub const CLIENTS_MAX: usize = 16;

/// How long to accept no clients after accepting failed for lack of a descriptor or of memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server's access to the stack.
pub trait Source: Send + 'static {
    /// The time by the stack's clock.
    fn now(&self) -> Instant;

    /// Calls `use_stack` once with the stack and the time, under the stack's lock, and sends the packets that
    /// this causes. Returns `false`, without a call, when the stack has ended.
    fn with_stack(&self, use_stack: &mut dyn FnMut(&mut Taped, Instant)) -> bool;

    /// The number of stacks that share the device and appear as one to their users.
    /// [`with_stack`](Self::with_stack) uses the first of them.
    fn shards(&self) -> usize {
        1
    }

    /// [`with_stack`](Self::with_stack) for one of several.
    fn with_shard(&self, shard: usize, use_stack: &mut dyn FnMut(&mut Taped, Instant)) -> bool {
        shard == 0 && self.with_stack(use_stack)
    }

    /// The reason why the device last did not take a packet. `None` unless the program knows of one.
    fn device_error(&self) -> Option<String> {
        None
    }

    /// Where the bytes of each relayed connection wait. Empty unless the program relays connections.
    fn rooms(&self) -> Vec<FlowRooms> {
        Vec::new()
    }

    /// Lists what a gateway has, or changes it, and returns the new list.
    ///
    /// # Errors
    /// Why not: this program is no gateway, for one.
    fn gateway(&self, verb: &GatewayVerb) -> Result<Vec<GatewayItem>, String> {
        _ = verb;
        Err("this program is no gateway".to_owned())
    }

    /// The state of the device. Empty unless it has one of its own.
    fn device(&self) -> DeviceReport {
        DeviceReport::default()
    }

    /// The queue disciplines in front of the stack's device, the root first. Empty unless the program has
    /// any.
    fn qdiscs(&self) -> Vec<QdiscSnapshot> {
        Vec::new()
    }

    /// Replaces them by those that `spec` describes; with `None`, by the original ones.
    ///
    /// # Errors
    /// The mistake in `spec`, or the reason why this program supports no queue disciplines.
    fn set_qdisc(&self, spec: Option<&str>) -> Result<(), String> {
        _ = spec;
        Err("this program puts no queue in front of its device".to_owned())
    }

    /// Changes addresses, routes or the MTU, of the stack and of the link below it.
    ///
    /// # Errors
    /// The reason, or that this program does not allow it.
    fn change_network(&self, change: NetworkChange) -> Result<(), String> {
        _ = change;
        Err("this program does not let its addresses, routes and MTU be changed from outside".to_owned())
    }
}

/// Facts about a stack that only its program knows.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The device that the stack sends over, such as the name of a TUN interface.
    pub device: String,
    /// Its addresses, with the length of the prefix where it is known.
    pub addresses: Vec<String>,
}

/// A running server. The socket is removed when this is dropped.
pub struct Server {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Server {
    /// Answers at the default place, `PID.sock` in [`place::default_directory`].
    ///
    /// # Errors
    /// As for [`place::default_directory`]; also when the socket or the thread cannot be made.
    pub fn at_default(about: About, source: impl Source) -> io::Result<Self> {
        Self::start(Bound::at_default()?, about, source)
    }

    /// Answers at a path. A socket left there by a dead process is replaced.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another file is there; also when the socket or the thread cannot be
    /// made.
    pub fn at(path: &Path, about: About, source: impl Source) -> io::Result<Self> {
        Self::start(Bound::at(path)?, about, source)
    }

    /// Answers at a socket that listens already.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub fn start(bound: Bound, about: About, source: impl Source) -> io::Result<Self> {
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let path = bound.path.clone();
        let identity = Identity {
            pid: place::process(),
            program: program_name(),
            device: about.device,
            addresses: about.addresses,
            started_ns: source.now().as_nanos(),
            uptime_ns: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device_error: None,
        };
        let mut loop_ =
            Loop { bound, stop: Arc::clone(&stop), identity, source, sessions: Vec::new(), accept_at: None };
        let thread =
            std::thread::Builder::new().name("taut-control".to_owned()).spawn(move || loop_.run())?;
        Ok(Self { stop, thread: Some(thread), path })
    }

    /// Where it answers.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Cannot fail: the counter is far from its maximum.
        _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A server dropped by its own thread, inside a batch, would wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                _ = thread.join();
            }
        }
    }
}

/// The name that `ps` shows, without characters that a terminal might take for a command.
fn program_name() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

struct Loop<S> {
    /// Dropped with the thread, even when that panics, so that the file is removed.
    bound: Bound,
    stop: Arc<OwnedFd>,
    identity: Identity,
    source: S,
    sessions: Vec<Session>,
    /// When to accept again, after a failure.
    accept_at: Option<Instant>,
}

impl<S: Source> Loop<S> {
    fn run(&mut self) {
        loop {
            let now = self.source.now();
            self.sessions.retain(|session| !session.is_over(now));
            let Ok(ready) = self.wait(now) else { return };
            if ready.stop {
                return;
            }
            for (session, ready) in self.sessions.iter_mut().zip(&ready.sessions) {
                if *ready {
                    session.serve(&self.source, &self.identity);
                }
            }
            if ready.listener {
                // Clients that have just left make room.
                self.sessions.retain(|session| !session.is_over(now));
                self.accept(now);
            }
        }
    }

    fn wait(&self, now: Instant) -> Result<Ready, Errno> {
        let accept_at = self.accept_at.filter(|&at| at > now);
        let deadline = self.sessions.iter().map(Session::deadline).chain(accept_at).min();
        let timeout = deadline.map(|deadline| timespec(deadline.since(now)));
        // A client that cannot be accepted now would end every wait immediately.
        let incoming = if accept_at.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds =
            vec![PollFd::new(&*self.stop, PollFlags::IN), PollFd::new(&self.bound.listener, incoming)];
        for session in &self.sessions {
            let wanted = if session.wants_to_write() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(session.as_fd(), wanted));
        }
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || ready.next().unwrap_or(false);
        Ok(Ready { stop: next(), listener: next(), sessions: ready.collect() })
    }

    /// Accepts one waiting client: the next one only after all others had their turn, and those that left
    /// have made room. A client beyond the limit, or of another user, gets an error with the reason and is
    /// disconnected.
    fn accept(&mut self, now: Instant) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        self.accept_at = None;
        let socket = match rustix::net::accept_with(self.bound.listener.as_fd(), flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(_) => {
                self.accept_at = Some(now + ACCEPT_PAUSE);
                return;
            }
        };
        let refusal = match self.bound.serves(&socket) {
            true if self.sessions.len() < CLIENTS_MAX => None,
            true => {
                Some((Fault::Busy, format!("{CLIENTS_MAX} clients are already connected; try again later")))
            }
            false => Some((
                Fault::Permission,
                "the stack belongs to another user; try as that user, or as root".to_owned(),
            )),
        };
        match refusal {
            None => self.sessions.push(Session::new(socket, self.source.now())),
            Some((fault, message)) => {
                let line = ReplyLine::last(Reply::Error { fault, message }).to_bytes();
                // It fits into the empty buffer of a new connection.
                _ = rustix::net::send(&socket, &line, rustix::net::SendFlags::NOSIGNAL);
            }
        }
    }
}

struct Ready {
    stop: bool,
    listener: bool,
    sessions: Vec<bool>,
}

fn timespec(span: Duration) -> Timespec {
    // Rounded up, so that the deadline has passed when the wait is over.
    let ms = span.as_nanos().div_ceil(1_000_000);
    Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: ((ms % 1000) * 1_000_000) as i64 }
}
