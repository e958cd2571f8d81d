//! A guest with processes of its own: PID, IPC and UTS namespaces (`pid_namespaces(7)`), a `/proc` with its
//! processes and a `/sys` with its network. Called by `inside.rs`, with `--isolate`.
//!
//! ```text
//!   gateway's process ── this process ── process 1 of the namespace ── the guest's command
//!       a signal ───────▶ passes it on ──▶ passes it on; reaps ────────▶
//!       the exit code ◀── the same ◀────── the command's, as a shell has it
//! ```
//!
//! Process 1 ends with the command, and with the gateway; the kernel then ends all others of the namespace.
//! It is a copy of the gateway's process, so the guest's programs cannot look into it. A root inside can
//! unmount both and see the host's below: names of processes and interfaces, without more rights to them.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::mount::{MountFlags, mount};
use rustix::process::{DumpableBehavior, Pid, WaitOptions, set_dumpable_behavior, setpgid, wait};
use taut::device::sys::{Forked, exit_now, fork_alone};

use super::DONE;
use crate::sandbox::descriptors::send;
use crate::sandbox::outside::shell_code;

/// The signals that are passed on.
const PASSED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Makes the namespaces, and reports it to the gateway. Returns in the process that is to become the command;
/// an error returns in another one, before there is such a process.
pub(super) fn isolate(gateway: &UnixStream) -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let own = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    unshare(own).map_err(|error| refused("namespaces of its own", error))?;
    let (before, mut all) = (SigSet::thread_get_mask()?, SigSet::from_iter(PASSED));
    all.add(Signal::SIGCHLD);
    all.thread_block()?;
    let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    if let Forked::Parent(first) = fork_alone()? {
        let code = follow(first, &signals, None);
        // It may have ended before it reported.
        _ = gateway.shutdown(Shutdown::Both);
        exit_now(code.unwrap_or(1))
    }
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys")] {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let flags = if kind == "sysfs" { flags | MountFlags::RDONLY } else { flags };
        mount(kind, place, kind, flags, None).map_err(|error| refused(&format!("a new {place}"), error))?;
    }
    send(gateway, &[DONE], &[])?;
    if let Forked::Parent(command) = fork_alone()? {
        exit_now(follow(command, &signals, Some(gateway)).unwrap_or(1))
    }
    Ok(before.thread_set_mask()?)
}

fn refused(what: &str, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    let advice = "a container that masks its /proc refuses this: run without --isolate there";
    io::Error::new(error.kind(), format!("--isolate: {what}: {error}; {advice}"))
}

/// Passes signals on to a child until it ends, and reaps others; returns its exit code. Ends with the
/// gateway, if that is given.
fn follow(child: Pid, signals: &SignalFd, gateway: Option<&UnixStream>) -> io::Result<i32> {
    // The signals of a terminal reach the command, which stays in its group.
    setpgid(None, None)?;
    loop {
        while let Some((pid, status)) = wait(WaitOptions::NOHANG)? {
            if pid == child {
                return Ok(shell_code(ExitStatus::from_raw(status.as_raw())));
            }
        }
        let mut ends = vec![PollFd::new(signals, PollFlags::IN)];
        ends.extend(gateway.map(|gateway| PollFd::new(gateway, PollFlags::RDHUP)));
        retry_on_intr(|| poll(&mut ends, None))?;
        if ends.get(1).is_some_and(|end| !end.revents().is_empty()) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        while let Some(signal) = signals.read_signal()? {
            let number = Signal::try_from(signal.ssi_signo.cast_signed());
            if let Some(signal) = number.ok().filter(|number| PASSED.contains(number)) {
                // It may have ended just now.
                _ = kill(nix::unistd::Pid::from_raw(child.as_raw_pid()), signal);
            }
        }
    }
}
