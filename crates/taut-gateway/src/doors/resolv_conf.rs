//! The `resolv.conf` of a guest that shares the host's files: a file of its own lies over the host's.
//!
//! Linux removes such a mount when the host removes the file below or puts another one in its place by
//! `rename`, as every daemon does that configures a network (`detach_mounts`, fs/namespace.c). The guest
//! would then use the host's name servers, past the rules, or none. So a process in the guest's namespaces
//! looks once a second, and mounts the file again, with the host's new domains and options. It is no child of
//! the command, which may wait for all of its children, and ends with the gateway. Called by `inside.rs`.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{DumpableBehavior, WaitOptions, set_dumpable_behavior, setsid, waitpid};
use taut::device::sys::{Forked, exit_now, fork_alone};

use crate::run::host_files::ResolvConf;

pub(crate) const RESOLV_CONF: &str = "/etc/resolv.conf";

const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Puts a file of this mount namespace's own over `resolv.conf`. It lies in a file system that nothing else
/// refers to, whose number is returned.
pub(crate) fn give(server: IpAddr, search: &[String]) -> io::Result<u64> {
    let of_host = fs::read(RESOLV_CONF).unwrap_or_default();
    let text = ResolvConf::read(&String::from_utf8_lossy(&of_host)).for_guest(server, search);
    // For a moment; a command that runs already uses this place less than the other.
    let place = Path::new(if Path::new("/mnt").is_dir() { "/mnt" } else { "/tmp" });
    mount("tmpfs", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=64k")?;
    let file = place.join("resolv.conf");
    // Every user of the guest's reads it, whatever the mask of the gateway's caller.
    let written =
        fs::write(&file, text).and_then(|()| fs::set_permissions(&file, Permissions::from_mode(0o644)));
    let mounted = written.and_then(|()| Ok(mount_bind(&file, RESOLV_CONF)?));
    let number = fs::metadata(&file).map(|file| file.dev());
    unmount(place, UnmountFlags::DETACH)?;
    mounted.and(number)
}

/// Starts the process that puts the file back, until the gateway closes its end of the socket.
pub(crate) fn keep(gateway: &UnixStream, own: u64, server: IpAddr, search: &[String]) -> io::Result<()> {
    if let Forked::Parent(pid) = fork_alone()? {
        waitpid(Some(pid), WaitOptions::empty())?;
        return Ok(());
    }
    // It is a copy of the gateway's process, in the same user namespace as the guest's programs.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok()
        && let Ok(Forked::Child) = fork_alone()
    {
        _ = watch(gateway, own, server, search);
    }
    exit_now(0)
}

/// Neither the terminal's signals nor the ends of the command's pipes depend on this process any more.
pub(crate) fn leave_streams() -> io::Result<()> {
    setsid()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}

fn watch(gateway: &UnixStream, mut own: u64, server: IpAddr, search: &[String]) -> io::Result<()> {
    leave_streams()?;
    loop {
        let mut ends = [PollFd::from_borrowed_fd(gateway.as_fd(), PollFlags::RDHUP)];
        if poll(&mut ends, Some(&LOOK_EVERY))? > 0 {
            return Ok(());
        }
        // While the host has no such file, there is nothing to mount at.
        if fs::metadata(RESOLV_CONF).is_ok_and(|now| now.dev() != own) {
            own = give(server, search).unwrap_or(own);
        }
    }
}
