//! Namespaces of its own and an empty root, in the manner of pasta and bubblewrap: no file of the host has a
//! name any more, and no process outside has a number. Called by `outside.rs` on both sides of its fork.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid, setgroups, setresgid, setresuid};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{chdir, pivot_root};
use rustix::thread::{CapabilitySet, set_keep_capabilities};

/// `nobody` and its group, the kernel's `overflowuid` (proc_sys_kernel(5)).
const NOBODY: u32 = 65_534;

/// Where the empty root is mounted first. Every system has one of them.
const PLACES: [&str; 3] = ["/tmp", "/mnt", "/run"];

/// The next child is the first process of a new PID namespace. An ordinary user needs a user namespace for
/// that, in which the user's number stays the same.
pub(super) fn prepare(has_rights: bool) -> io::Result<()> {
    // A kernel that refuses root this may still give it a user namespace.
    if geteuid().is_root() || has_rights {
        let made = unshare(CloneFlags::CLONE_NEWPID);
        if made.is_ok() || has_rights {
            return Ok(made?);
        }
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Moves into namespaces of its own. Root becomes `nobody`; only with capabilities to keep, which would be
/// void in a user namespace, does it stay in the host's.
pub(super) fn leave(keep: CapabilitySet, is_root: bool) -> io::Result<()> {
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    if !is_root {
        return Ok(unshare(own)?);
    }
    if keep.is_empty() {
        become_nobody()?;
        return Ok(unshare(own | CloneFlags::CLONE_NEWUSER)?);
    }
    unshare(own)?;
    Ok(())
}

/// Root's number and groups are given up; capabilities too, but for those that are kept on purpose.
pub(super) fn become_nobody() -> io::Result<()> {
    set_keep_capabilities(true)?;
    setgroups(&[])?;
    setresgid(NOBODY.into(), NOBODY.into(), NOBODY.into())?;
    Ok(setresuid(NOBODY.into(), NOBODY.into(), NOBODY.into())?)
}

/// Puts an empty directory, which cannot be written, in place of all files.
pub(super) fn empty() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let tmpfs = |place: &str| mount("tmpfs", place, "tmpfs", flags, c"nr_inodes=1,nr_blocks=1,mode=0555");
    let place = PLACES.into_iter().find(|place| tmpfs(place).is_ok()).ok_or(io::ErrorKind::NotFound)?;
    chdir(place)?;
    // The old root lies over the new one, and is taken away (pivot_root(2), NOTES).
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}
