//! The process outside of a confined gateway: it has no flow and no byte of a guest's. It passes on signals,
//! waits for the guest's command, opens the few files that a gateway reads again, and makes its control
//! socket.
//!
//! ```text
//!   process outside                                      gateway, its child
//!     TERM, INT, HUP, the command has ended ─ orders ──▶ a byte; HUP's with the file of rules, open
//!     resolv.conf, hosts: has one changed?  ◀─ calls ─── a byte
//!       the file, open for reading          ──────────▶
//!     the control socket                    ◀─ calls ─── a byte
//!       listening, or connected             ──────────▶
//!     the service manager gets READY=1      ◀─ calls ─── a byte
//! ```
//!
//! A request is one of six bytes, so a gateway that was taken over gets no other file. The process is the
//! one that the caller has started: its number, its exit code, its signals. If it ends, the gateway ends; if
//! the gateway ends, so does it. Called by the commands through [`Outside::split`].

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal as Number, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitOptions, wait};
use rustix::thread::set_no_new_privs;
use taut::device::sys::{Forked, exit_now, fork_alone};
use taut::taut_control::place::{self, Bound, SocketFile};
use tokio::io::Interest;

use super::calls::{self, Side};
use super::descriptors::{receive, send};
use super::notify::Notify;
use super::{CapabilitySet, close_files, drop_capabilities, root};

/// How long the gateway waits for an answer. A process outside that is stopped answers later.
const PATIENCE: Duration = Duration::from_secs(5);

/// The work of the process outside.
#[derive(Debug, Default)]
pub struct Tasks {
    /// The guest's command: its end is the gateway's, its exit code this process's.
    pub command: Option<Pid>,
    /// The file that HUP reads again.
    pub config: Option<PathBuf>,
    /// The control socket's place: none, the default one, or a path.
    pub control: Option<Option<PathBuf>>,
    /// HUP is left alone, for `nohup`.
    pub ignores_hangup: bool,
    /// The way to the service manager, for which it reports that the gateway serves and ends.
    pub notify: Option<Notify>,
    /// The gateway keeps capabilities of the host's, which would be void in a user namespace.
    pub has_rights: bool,
}

/// An order of the process outside.
#[derive(Debug)]
pub enum Order {
    /// End.
    End,
    /// The guest's command has ended; this process's exit code does not matter any more.
    CommandEnded,
    /// Read this file again.
    Reload(io::Result<File>),
}

const END: u8 = b'e';
const ENDED: u8 = b'c';
const RELOAD: u8 = b'r';

/// A file that a gateway reads again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    ResolvConf,
    Hosts,
}

const BIND: u8 = b'b';
const UNBIND: u8 = b'u';
const CONNECT: u8 = b'd';
const READY: u8 = b'y';

impl Known {
    const ALL: [Self; 2] = [Self::ResolvConf, Self::Hosts];

    const fn path(self) -> &'static str {
        match self {
            Self::ResolvConf => "/etc/resolv.conf",
            Self::Hosts => "/etc/hosts",
        }
    }
}

/// The gateway's ends of both ways.
#[derive(Debug)]
pub struct Outside {
    orders: UnixStream,
    calls: Caller,
}

/// Requests to the process outside.
#[derive(Debug)]
pub struct Caller {
    stream: Mutex<UnixStream>,
    /// Control sockets so far.
    bound: AtomicU32,
}

/// Receives what the process outside says.
#[derive(Debug)]
pub struct Orders(tokio::net::UnixStream);

impl Outside {
    /// Splits this process, which must have one thread. It returns in the child, which is to [`confine`]
    /// itself; this one does the tasks, and ends with the child.
    ///
    /// [`confine`]: super::confine
    ///
    /// # Errors
    /// There is a second thread, or the kernel refuses a process.
    pub fn split(tasks: Tasks) -> io::Result<(Self, bool)> {
        // Its number is the one that others know.
        place::process();
        _ = place::directories();
        let ((theirs, orders), (answers, calls)) = (UnixStream::pair()?, UnixStream::pair()?);
        let signals = tasks.signals();
        signals.thread_block()?;
        let has_own_number = root::prepare(tasks.has_rights).is_ok();
        match fork_alone()? {
            Forked::Child => {
                drop((theirs, answers));
                // The signals stay blocked: those of a terminal come to both.
                calls.set_read_timeout(Some(PATIENCE))?;
                orders.set_nonblocking(true)?;
                Ok((
                    Self { orders, calls: Caller { stream: Mutex::new(calls), bound: AtomicU32::new(0) } },
                    has_own_number,
                ))
            }
            Forked::Parent(worker) => {
                drop((orders, calls));
                let done = Supervisor::new(tasks, &signals, theirs, answers);
                exit_now(done.and_then(|mut outside| outside.run(worker)).unwrap_or_else(|error| {
                    eprintln!("taut: the process outside the sandbox: {error}");
                    1
                }))
            }
        }
    }

    /// Both ways apart.
    #[must_use]
    pub fn into_parts(self) -> (UnixStream, Caller) {
        (self.orders, self.calls)
    }
}

impl Orders {
    /// Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The runtime takes no socket.
    pub fn new(orders: UnixStream) -> io::Result<Self> {
        tokio::net::UnixStream::from_std(orders).map(Self)
    }

    /// The next order. The end of the process outside is one to end, too. May be dropped and called again.
    pub async fn next(&self) -> Order {
        loop {
            let mut byte = [0];
            let received = self.0.async_io(Interest::READABLE, || receive(&self.0, &mut byte)).await;
            match received {
                Ok((1, [file, ..])) if byte == [RELOAD] => {
                    let gone = || io::Error::new(io::ErrorKind::NotFound, "it cannot be opened");
                    return Order::Reload(file.map(File::from).ok_or_else(gone));
                }
                Ok((1, _)) if byte == [ENDED] => return Order::CommandEnded,
                Ok((1, _)) if byte == [END] => return Order::End,
                Ok((1, _)) => {}
                Ok(_) | Err(_) => return Order::End,
            }
        }
    }
}

impl Caller {
    /// The file, if it is another one than at the last call.
    pub(crate) fn look(&self, file: Known) -> Option<File> {
        self.call(file as u8).ok().flatten().map(File::from)
    }

    /// A control socket, which listens. One that was made before is removed.
    ///
    /// # Errors
    /// Why there is none.
    pub fn control_socket(self: &Arc<Self>) -> io::Result<Option<Bound>> {
        let (caller, serial) = (Arc::clone(self), self.bound.fetch_add(1, Ordering::AcqRel) + 1);
        let remove = move || {
            // The next stack's may be there already. Without the process outside, it is gone.
            if caller.bound.load(Ordering::Acquire) == serial {
                _ = caller.call(UNBIND);
            }
        };
        Ok(self.call(BIND)?.map(|socket| Bound::from_outside(socket, remove)))
    }

    /// A connection to the own control socket.
    ///
    /// # Errors
    /// There is none.
    pub fn connect_control(&self) -> io::Result<OwnedFd> {
        self.call(CONNECT)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Reports to the service manager, if there is one, that the gateway serves.
    pub fn ready(&self) {
        _ = self.call(READY);
    }

    fn call(&self, what: u8) -> io::Result<Option<OwnedFd>> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        send(&*stream, &[what], &[])?;
        let mut answer = [0; 512];
        match retry_on_timeout(|| receive(&*stream, &mut answer))? {
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (1, [descriptor, ..]) => Ok(descriptor),
            (len, _) => Err(io::Error::other(String::from_utf8_lossy(&answer[1..len]).into_owned())),
        }
    }
}

fn retry_on_timeout<R>(mut read: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// An exit code as a shell has it.
pub(crate) fn shell_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

impl Tasks {
    fn signals(&self) -> SigSet {
        let mut all: SigSet = [Number::SIGINT, Number::SIGTERM, Number::SIGCHLD].into_iter().collect();
        if self.command.is_some() {
            all.extend([Number::SIGQUIT, Number::SIGUSR1, Number::SIGUSR2, Number::SIGWINCH]);
        }
        if !self.ignores_hangup {
            all.add(Number::SIGHUP);
        }
        all
    }
}

struct Supervisor {
    tasks: Tasks,
    signals: SignalFd,
    orders: UnixStream,
    calls: Option<UnixStream>,
    bound: Option<SocketFile>,
    seen: Seen,
    command: Option<ExitStatus>,
}

impl Supervisor {
    fn new(tasks: Tasks, signals: &SigSet, orders: UnixStream, calls: UnixStream) -> io::Result<Self> {
        let signals = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        // It has no guest's byte, and still needs few rights.
        drop_capabilities(CapabilitySet::empty())?;
        set_no_new_privs(true)?;
        // A kernel without landlock leaves it its user's files.
        _ = close_files(true, false);
        calls::limit(Side::Outside { command: tasks.command }).map_err(io::Error::other)?;
        Ok(Self {
            tasks,
            signals,
            orders,
            calls: Some(calls),
            bound: None,
            seen: Seen::new(Known::ALL.map(Known::path)),
            command: None,
        })
    }

    /// Until the gateway has ended; returns the exit code.
    fn run(&mut self, worker: Pid) -> io::Result<i32> {
        loop {
            while let Some((pid, status)) = wait(WaitOptions::NOHANG)? {
                let status = ExitStatus::from_raw(status.as_raw());
                if pid == worker {
                    return Ok(self.code(status));
                }
                if Some(pid) == self.tasks.command {
                    self.command = Some(status);
                    self.order(ENDED, None);
                }
            }
            let mut ends = vec![PollFd::new(&self.signals, PollFlags::IN)];
            ends.extend(self.calls.as_ref().map(|calls| PollFd::new(calls, PollFlags::IN)));
            retry_on_intr(|| poll(&mut ends, None))?;
            let is_called = ends.get(1).is_some_and(|end| !end.revents().is_empty());
            while let Some(signal) = self.signals.read_signal()? {
                // The codes of signals that processes send are not above 0 (sigaction(2)).
                self.signal(signal.ssi_signo, signal.ssi_code > 0);
            }
            if is_called && !self.answer() {
                self.calls = None;
            }
        }
    }

    fn code(&self, worker: ExitStatus) -> i32 {
        if let Some(signal) = worker.signal()
            && self.command.is_none()
        {
            let why = match signal {
                libc::SIGSYS => {
                    "by a system call that it must not make; --no-sandbox runs without the sandbox"
                }
                _ => "by a signal",
            };
            eprintln!("taut: the gateway ended {why} ({signal})");
        }
        match self.command {
            Some(command) if worker.success() => shell_code(command),
            _ => shell_code(worker),
        }
    }

    fn signal(&self, number: u32, is_of_kernel: bool) {
        match (Number::try_from(number.cast_signed()), self.tasks.command) {
            (Ok(Number::SIGHUP), _) if self.tasks.config.is_some() => {
                let file = self.tasks.config.as_ref().and_then(|path| File::open(path).ok());
                self.order(RELOAD, file.as_ref());
            }
            // A terminal's go to the command, too.
            (Ok(Number::SIGINT | Number::SIGQUIT | Number::SIGWINCH), Some(_)) if is_of_kernel => {}
            (Ok(Number::SIGCHLD) | Err(_), _) => {}
            (Ok(other), Some(command)) => {
                let sent = kill(nix::unistd::Pid::from_raw(command.as_raw_pid()), other);
                // It has become another user. Otherwise it may have ended just now.
                if sent == Err(Errno::EPERM) && other == Number::SIGTERM {
                    self.order(END, None);
                }
            }
            (Ok(_), None) => self.order(END, None),
        }
    }

    fn order(&self, what: u8, file: Option<&File>) {
        if what != RELOAD {
            self.tasks.notify.iter().for_each(Notify::stopping);
        }
        let descriptors: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        // The gateway is ending, or so far behind that one more matters little.
        _ = send(&self.orders, &[what], &descriptors);
    }

    /// Answers a request; `false` if there will be none any more.
    fn answer(&mut self) -> bool {
        let Some(mut calls) = self.calls.as_ref() else { return false };
        let mut what = [0];
        if !matches!(calls.read(&mut what), Ok(1)) {
            return false;
        }
        let found = match what[0] {
            BIND => self.bind(),
            UNBIND => {
                self.bound = None;
                Ok(None)
            }
            READY => {
                self.tasks.notify.iter().for_each(Notify::ready);
                Ok(None)
            }
            CONNECT => match self.bound.as_ref().and_then(SocketFile::path) {
                Some(path) => place::connect(path).map(Some).map_err(io::Error::from),
                None => Ok(None),
            },
            file => Ok(Known::ALL.get(usize::from(file)).and_then(|file| self.seen.changed(*file))),
        };
        let Some(calls) = &self.calls else { return false };
        let sent = match found {
            Ok(None) => send(calls, &[0], &[]),
            Ok(Some(descriptor)) => send(calls, &[0], &[descriptor.as_fd()]),
            Err(error) => send(calls, format!(" {error}").as_bytes(), &[]),
        };
        sent.is_ok()
    }

    fn bind(&mut self) -> io::Result<Option<OwnedFd>> {
        // The one of a machine that has gone.
        self.bound = None;
        let bound = match &self.tasks.control {
            None => return Ok(None),
            Some(None) => Bound::at_default()?,
            Some(Some(path)) => Bound::at(path)?,
        };
        // The gateway alone listens: clients are refused when its stack has ended.
        let (listener, file) = bound.into_parts();
        self.bound = Some(file);
        Ok(Some(listener))
    }
}

/// Device, inode, time of change and length of a file.
type Version = (u64, u64, i64, i64, u64);

/// The files, and the version of each that was sent last.
struct Seen {
    paths: [&'static str; 2],
    last: [Option<Version>; 2],
}

impl Seen {
    const fn new(paths: [&'static str; 2]) -> Self {
        Self { paths, last: [None; 2] }
    }

    /// The file, open for reading, if it is another one than the last time.
    fn changed(&mut self, file: Known) -> Option<OwnedFd> {
        let opened = File::open(self.paths[file as usize]).ok()?;
        let now = opened.metadata().ok()?;
        let now = (now.dev(), now.ino(), now.ctime(), now.ctime_nsec(), now.len());
        let last = &mut self.last[file as usize];
        (*last != Some(now)).then(|| {
            *last = Some(now);
            opened.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conf_06_a_file_is_sent_when_it_is_another_one() {
        let place = std::env::temp_dir().join(format!("taut-outside-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let path: &'static str = Box::leak(place.join("resolv.conf").display().to_string().into_boxed_str());
        let mut seen = Seen::new([path, "/nonexistent"]);
        let mut read = |file| seen.changed(file).map(|open| io::read_to_string(File::from(open)).unwrap());
        assert_eq!(read(Known::ResolvConf), None);
        std::fs::write(path, "first").unwrap();
        assert_eq!(read(Known::ResolvConf).as_deref(), Some("first"));
        assert_eq!(read(Known::ResolvConf), None);
        // By rename, as daemons do it.
        std::fs::write(place.join("next"), "other").unwrap();
        std::fs::rename(place.join("next"), path).unwrap();
        assert_eq!(read(Known::ResolvConf).as_deref(), Some("other"));
        assert_eq!(read(Known::Hosts), None);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
