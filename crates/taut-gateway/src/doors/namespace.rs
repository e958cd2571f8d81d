//! A guest in a namespace, from outside: starts the child that opens the TUN inside (`inside.rs`), and makes
//! the TUN a device.

use std::io;
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use taut::device::sys::{Forked, exit_now, fork_alone};
use taut::device::{CaptureFile, Cidr, FramesOptions, from_descriptor};
use taut::{FlowKind, Stack, StackBuilder};

use crate::doors::inside::{LONGEST, Plan, forked, go, is_done};
use crate::doors::listening::Listening;
use crate::doors::loopback::Loopback;
use crate::sandbox::descriptors::{receive, send};

/// A guest whose TUN is open. Its command waits.
#[derive(Debug)]
pub struct Namespace {
    tun: OwnedFd,
    /// Where the kernel is asked for the guest's UDP sockets.
    sockets: Option<OwnedFd>,
    /// The kernel looks up one socket at the first; the second leads to a process that makes sockets.
    loopback: Option<(OwnedFd, OwnedFd)>,
    process: GuestProcess,
    control: UnixStream,
    mtu: u16,
    warnings: Vec<String>,
}

/// The process of a guest: the command, when it has begun.
#[derive(Debug)]
pub struct GuestProcess {
    pid: Pid,
    /// While it is open, the guest keeps its `resolv.conf`.
    _control: Option<UnixStream>,
}

impl GuestProcess {
    /// Its number.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Somebody else has waited for it.
    pub fn wait(self) -> io::Result<ExitStatus> {
        let ended = retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()))?;
        let (_, status) = ended.ok_or_else(|| io::Error::other("it runs on"))?;
        Ok(ExitStatus::from_raw(status.as_raw()))
    }

    fn kill(self) -> io::Result<()> {
        _ = kill_process(self.pid, Signal::KILL);
        self.wait().map(drop)
    }
}

/// A guest whose process opens the TUN, while this one may prepare to serve it.
#[derive(Debug)]
#[must_use]
pub struct Opening {
    process: GuestProcess,
    control: UnixStream,
    mtu: u16,
    isolates: bool,
}

impl Opening {
    /// Waits until the TUN is open.
    ///
    /// # Errors
    /// Errors of the child: no user namespaces, no `/dev/net/tun`, no such process; with
    /// [`Plan::isolate`], a `/proc` that this process may not show alone.
    pub fn wait(self) -> io::Result<Namespace> {
        let Self { process, control, mtu, isolates } = self;
        match Namespace::tun(&control, isolates) {
            Ok((tun, [sockets, lookups, maker], warnings)) => {
                let loopback = lookups.zip(maker);
                Ok(Namespace { tun, sockets, loopback, process, control, mtu, warnings })
            }
            Err(error) => {
                // In a sandbox it is another process's child, which ends by itself.
                _ = process.kill();
                Err(error)
            }
        }
    }

    /// The process that becomes the command.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.process.pid()
    }
}

impl Namespace {
    /// Opens the namespace in a second process, which becomes `command` or, without one, ends when the TUN is
    /// handed over. A command that cannot be executed has the exit code that a shell would give it. To be
    /// called before this process starts threads; [`open`](Self::open) can be called at any time.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if this process has other threads, and what the kernel refuses.
    pub fn fork(plan: &Plan, command: &[String]) -> io::Result<Opening> {
        let (control, theirs) = UnixStream::pair()?;
        match fork_alone()? {
            Forked::Child => {
                // It would not see the end of the gateway.
                drop(control);
                exit_now(forked(theirs, plan, command))
            }
            Forked::Parent(pid) => {
                // As the gateway would not see the child's.
                drop(theirs);
                Ok(Opening {
                    process: GuestProcess { pid, _control: None },
                    control,
                    mtu: plan.mtu,
                    isolates: plan.isolates(),
                })
            }
        }
    }

    /// Starts `program`, which must call [`inside`](crate::doors::inside::inside) with the same plan and
    /// command.
    ///
    /// # Errors
    /// Errors of the child: no user namespaces, no `/dev/net/tun`, no such process.
    pub fn open(mut program: Command, plan: &Plan) -> io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let child = program.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
        // The child's end must not stay open here, or its death would not be seen.
        drop(program);
        let process = GuestProcess { pid: Pid::from_child(&child), _control: None };
        if let Err(error) = send(&control, &[0], &[io::stdin().as_fd()]) {
            process.kill()?;
            return Err(error);
        }
        Opening { process, control, mtu: plan.mtu, isolates: plan.isolates() }.wait()
    }

    fn tun(control: &UnixStream, isolates: bool) -> io::Result<(OwnedFd, [Option<OwnedFd>; 3], Vec<String>)> {
        let ([tun, others @ ..], warnings) = Self::answer(control)?;
        if isolates {
            Self::answer(control)?;
        }
        Ok((tun.ok_or(io::ErrorKind::InvalidData)?, others, warnings))
    }

    /// The descriptors and lines of a message, or the error that it brings.
    fn answer(control: &UnixStream) -> io::Result<([Option<OwnedFd>; 4], Vec<String>)> {
        let mut message = [0; LONGEST];
        let (len, descriptors) = receive(control, &mut message)?;
        let (first, text) = message[..len]
            .split_first()
            .ok_or_else(|| io::Error::other("the child ended before it opened the interface"))?;
        let text = String::from_utf8_lossy(text);
        if is_done(*first) {
            return Ok((descriptors, text.lines().map(str::to_owned).collect()));
        }
        Err(io::Error::other(text.trim().to_owned()))
    }

    /// The process that becomes the command.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Sentences about parts of the namespace that do not work.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Builds a stack on the interface. Must be called in a tokio runtime, whose task the stack is. `own` are
    /// the addresses by which the guest finds it on the link, if the interface is a TAP. `capture` gets all
    /// that passes over it.
    ///
    /// # Errors
    /// Those of [`StackBuilder::build_tokio`].
    pub fn stack(
        &self,
        builder: StackBuilder,
        own: &[Cidr],
        capture: Option<CaptureFile>,
    ) -> io::Result<Stack> {
        let options = FramesOptions { mtu: self.mtu, capture, ..FramesOptions::default() };
        builder.device(from_descriptor(self.tun.try_clone()?, own, &options)?).build_tokio()
    }

    /// The TCP or UDP ports at which the guest will listen, to be read while it runs. UDP's are had once.
    ///
    /// # Errors
    /// The child is gone, or its kernel does not list sockets.
    pub fn listening(&mut self, kind: FlowKind) -> io::Result<Listening> {
        if kind == FlowKind::Tcp {
            return Listening::tcp(self.process.pid().as_raw_nonzero().get().unsigned_abs());
        }
        let missing =
            || io::Error::new(io::ErrorKind::Unsupported, "the kernel does not list sockets (sock_diag)");
        Ok(Listening::udp(self.sockets.take().ok_or_else(missing)?))
    }

    /// The guest's own loopback addresses, if the plan has them and the kernel lists sockets; `None` the
    /// second time. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The runtime takes no socket.
    pub fn loopback(&mut self) -> io::Result<Option<Loopback>> {
        self.loopback.take().map(|(lookups, maker)| Loopback::new(lookups, maker)).transpose()
    }

    /// Lets the command begin, when the gateway serves its stack. The child is the command from now on.
    ///
    /// # Errors
    /// The child is gone.
    pub fn start(self) -> io::Result<GuestProcess> {
        go(&self.control)?;
        Ok(GuestProcess { _control: Some(self.control), ..self.process })
    }
}
