//! Private network namespaces: a whole network for an experiment, gone when it is over. `network_namespaces(7)`.
//!
//! A namespace here has no name in the file system. It lives as long as its descriptor, a thread, a process, or a
//! socket in it does, so a program that crashes leaves nothing behind.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::thread;

use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::interface::Interface;
use crate::netlink::Netlink;
use crate::sys::unshare;

const SELF: &str = "/proc/thread-self/ns/net";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// A new one, with its loopback interface up and nothing else in it.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] without `CAP_SYS_ADMIN`; see [`become_root_in_user_namespace`] for how
    /// to do without.
    pub fn new() -> io::Result<Self> {
        // A thread of its own, so that this one stays where it is.
        on_a_thread(|| {
            unshare::new_network().map_err(explain)?;
            Interface::open("lo")?.set_up()?;
            Self::current()
        })
    }

    /// The one that this thread is in.
    ///
    /// # Errors
    /// Without `/proc`.
    pub fn current() -> io::Result<Self> {
        Ok(Self(File::open(SELF)?.into()))
    }

    /// Runs a closure in the namespace, on a thread of its own, and waits for it. Sockets and devices opened
    /// there stay in the namespace wherever they are used afterwards.
    ///
    /// # Errors
    /// Without `CAP_SYS_ADMIN`.
    ///
    /// # Panics
    /// If the closure does.
    pub fn enter<R: Send>(&self, run: impl FnOnce() -> R + Send) -> io::Result<R> {
        on_a_thread(|| {
            move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(run())
        })
    }

    /// Starts a program in the namespace.
    ///
    /// # Errors
    /// Without `CAP_SYS_ADMIN`, or those of [`Command::spawn`].
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // A child starts in the namespaces of the thread that starts it.
        self.enter(|| command.spawn())?
    }

    /// Joins two namespaces by a pair of Ethernet interfaces, one in each, still down and without addresses.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or when a name is taken.
    pub fn connect(&self, name: &str, other: &Self, other_name: &str) -> io::Result<(Interface, Interface)> {
        let mine = self.enter(|| {
            Netlink::open()?.create_veth(name, other_name, other.0.as_fd())?;
            Interface::open(name)
        })??;
        let others = other.enter(|| Interface::open(other_name))??;
        Ok((mine, others))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes an ordinary user root in new user and network namespaces of this process, where the kernel lets users
/// do that. The loopback interface is up. What [`Namespace`] and [`Tun`](crate::Tun) need follows, apart from
/// access to `/dev/net/tun`.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] when the process has a second thread already: call it first thing in `main`.
/// [`io::ErrorKind::PermissionDenied`] when users may have no user namespaces.
pub fn become_root_in_user_namespace() -> io::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    unshare::new_user_and_network().map_err(explain)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    Interface::open("lo")?.set_up()
}

fn on_a_thread<R: Send>(run: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, run)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn explain(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let message = format!("new network namespace: {error}; it needs CAP_SYS_ADMIN, or a user namespace");
        return io::Error::new(error.kind(), message);
    }
    error
}
