//! Limits of a running gateway or proxy: a guest that takes it over gains little more than its sockets.
//!
//! ```text
//!   process outside (outside.rs)                gateway, confined
//!     signals, the command's end ─────────────▶ orders
//!     resolv.conf, hosts, the rules' file ────▶ open for reading, when they have changed
//!     the control socket ─────────────────────▶ listening
//! ```
//!
//! - **Namespaces** (`root.rs`): user, mount, PID, IPC, UTS and cgroup namespaces of its own, an empty root;
//!   root becomes `nobody`. The network namespace stays: its sockets are the host's.
//! - **Files** (landlock): it opens none, also without namespaces, and it reaches no abstract
//!   Unix socket and no process by a signal.
//! - **System calls** (seccomp, `calls.rs`): those of a list. No program, no process, no Unix socket, no
//!   netlink.
//! - **Rights**: no capability but for what it opens later, no new ones, no core, no message queues.
//!
//! All hold for the calling thread and those that it starts from then on: call [`Outside::split`] and
//! [`confine`] before there is a second thread.

mod calls;
pub(crate) mod descriptors;
#[cfg(feature = "hostile")]
pub mod hostile;
pub(crate) mod notify;
pub mod outside;
mod root;

use std::io;

pub use rustix::thread::CapabilitySet;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use nix::unistd::geteuid;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use calls::Side;
pub use notify::Notify;
pub use outside::{Caller, Order, Orders, Outside, Tasks};

/// The limits that this kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    /// Namespaces of its own and an empty root.
    pub namespaces: bool,
    /// Files are closed: landlock is there (Linux 5.13) and switched on.
    pub files: bool,
    /// System calls are denied.
    pub calls: bool,
}

/// The rights that a gateway needs while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Capabilities.
    pub keep: CapabilitySet,
    /// Its datagram socket connects to paths of the host's: the root and the user stay.
    pub paths: bool,
    /// Its threads get a priority.
    pub may_rank: bool,
}

impl Default for Needs {
    fn default() -> Self {
        Self { keep: CapabilitySet::empty(), paths: false, may_rank: false }
    }
}

/// Gives up all that a gateway does not need.
///
/// # Errors
/// The kernel refuses what it claims to have.
pub fn confine(needs: Needs) -> io::Result<Confined> {
    let Needs { keep, paths, may_rank } = needs;
    let namespaces = if paths { Ok(()) } else { leave(keep) };
    limit_resources(may_rank)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    drop_capabilities(keep)?;
    set_no_new_privs(true)?;
    let files = close_files(false, true).map_err(io::Error::other)?;
    let calls = calls::limit(Side::Inside { may_rank }).map_err(io::Error::other)?;
    Ok(Confined { namespaces: namespaces.is_ok(), files, calls })
}

/// The namespaces, the root and the user.
fn leave(keep: CapabilitySet) -> io::Result<()> {
    let is_root = geteuid().is_root();
    let left = root::leave(keep, is_root).and_then(|()| root::empty());
    if is_root && (!keep.is_empty() || left.is_err()) && geteuid().is_root() {
        root::become_nobody()?;
    }
    left
}

/// The capabilities of this process.
///
/// # Errors
/// The kernel does not tell.
pub fn own_capabilities() -> io::Result<CapabilitySet> {
    Ok(capabilities(None)?.permitted)
}

/// Gives up all capabilities but these, for the calling thread and those that it starts from then on.
///
/// # Errors
/// The kernel refuses it.
pub fn drop_capabilities(keep: CapabilitySet) -> io::Result<()> {
    let own = capabilities(None)?;
    // Without the right to, the set matters to no program: it starts none.
    for each in (CapabilitySet::all() - keep).iter() {
        _ = remove_capability_from_bounding_set(each);
    }
    let kept = CapabilitySets {
        effective: own.permitted & keep,
        permitted: own.permitted & keep,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}

/// The number of descriptors stays. That of processes does not count here: the calls leave threads alone.
fn limit_resources(may_rank: bool) -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let ranks: &[Resource] = if may_rank { &[] } else { &[Resource::Nice, Resource::Rtprio] };
    for resource in [Resource::Core, Resource::Msgqueue].iter().chain(ranks) {
        setrlimit(*resource, none)?;
    }
    Ok(())
}

/// Opens no file from now on, or reads only; and reaches neither abstract sockets nor processes outside.
fn close_files(may_read: bool, is_alone: bool) -> Result<bool, RulesetError> {
    // Older kernels enforce the part of it that they know.
    let all = AccessFs::from_all(ABI::V6);
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(all)?;
    if is_alone {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    let mut ruleset = ruleset.create()?;
    if may_read {
        // Its control socket is made and removed.
        let own =
            AccessFs::from_read(ABI::V6) | AccessFs::MakeSock | AccessFs::MakeDir | AccessFs::RemoveFile;
        ruleset = ruleset.add_rules(path_beneath_rules(["/"], own & !AccessFs::Execute))?;
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use super::*;

    /// On a thread, so that the test's other threads stay as they are. Without namespaces, which need a
    /// process of one thread.
    #[test]
    fn gw_33_a_confined_thread_has_its_sockets_and_little_else() {
        let own = std::env::temp_dir().join(format!("taut-sandbox-{}", std::process::id()));
        std::fs::write(&own, "").unwrap();
        let place = own.clone();
        let confined = std::thread::spawn(move || {
            let confined = confine(Needs { paths: true, ..Needs::default() }).unwrap();
            let started = Command::new("/bin/true").status().unwrap_err();
            assert!(matches!(started.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported));
            for closed in ["/bin/true", "/proc/self/status", "/", "/etc/resolv.conf", place.to_str().unwrap()]
            {
                assert!(File::open(closed).is_err(), "{closed}");
            }
            assert!(UnixDatagram::unbound().is_err());
            // A running gateway still has what it needs.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            listener.accept().unwrap().0.write_all(b"hello").unwrap();
            let mut hello = String::new();
            client.read_to_string(&mut hello).unwrap();
            assert_eq!(hello, "hello");
            UdpSocket::bind("127.0.0.1:0").unwrap();
            std::thread::spawn(|| ()).join().unwrap();
            confined
        });
        let confined = confined.join().unwrap();
        std::fs::remove_file(&own).unwrap();
        assert!(confined.calls);
        // Other threads are not confined.
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
}
