//! Private network namespaces: a whole network for an experiment, which disappears afterwards.
//! `network_namespaces(7)`.
//!
//! These namespaces have no name in the file system. A namespace lives as long as its descriptor, or a
//! thread, process or socket in it, so a program that crashes leaves nothing behind.

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
    /// A new namespace, with only the loopback interface, which is up.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] without `CAP_SYS_ADMIN`; [`become_root_in_user_namespace`] is a
    /// way to get it.
    pub fn new() -> io::Result<Self> {
        // On another thread, so that this one stays in its namespace.
        on_a_thread(|| {
            unshare::new_network().map_err(explain)?;
            Interface::open("lo")?.set_up()?;
            Self::current()
        })
    }

    /// The namespace of this thread.
    ///
    /// # Errors
    /// If `/proc` is missing.
    pub fn current() -> io::Result<Self> {
        Ok(Self(File::open(SELF)?.into()))
    }

    /// Runs a closure in the namespace, on a new thread, and waits for it. Sockets and devices opened there
    /// stay in the namespace, whichever thread uses them afterwards.
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

/// Moves this process into new user and network namespaces, in which an ordinary user is root, if the kernel
/// lets users do that. The loopback interface is up. [`Namespace`] and [`Tun`](crate::Tun) then have the
/// capabilities that they need; access to `/dev/net/tun` is needed in addition.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] when the process already has a second thread: call it at the start of
/// `main`. [`io::ErrorKind::PermissionDenied`] when users may not make user namespaces.
pub fn become_root_in_user_namespace() -> io::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    unshare::new_user_and_network().map_err(explain)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    Interface::open("lo")?.set_up()
}

/// [`become_root_in_user_namespace`] with a mount namespace, too: what is mounted from then on, no other
/// process sees. `map` gives the namespace its users and groups; this process has all capabilities already.
///
/// # Errors
/// Those of [`become_root_in_user_namespace`], and of `map`.
pub fn become_owner(map: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    unshare::new_user_network_and_mounts().map_err(explain)?;
    map()?;
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
