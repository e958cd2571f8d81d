//! What a gateway may not do once it runs: so that a guest that takes it over gains little more than its
//! sockets.
//!
//! - **Files** (landlock): it reads where `resolv.conf` lies or may lie later, writes where its control
//!   socket lies, and opens nothing else.
//! - **System calls** (seccomp): it starts no program, looks into no other process, and changes no mounts,
//!   namespaces, kernel modules, keys or clocks. Such a call fails with `EPERM`. What is listed is denied and
//!   all else allowed: a list of what is allowed would depend on the C library and break with its next
//!   version.
//! - **Capabilities** ([`drop_capabilities`]): none, but for what it opens later.
//!
//! All hold for the calling thread and those that it starts from then on: call [`confine`] when the guest
//! runs and before the runtime does.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub use rustix::thread::CapabilitySet;

use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
    path_beneath_rules,
};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// The limits that this kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    /// Files are closed: landlock is there (Linux 5.13) and switched on.
    pub files: bool,
    /// System calls are denied.
    pub calls: bool,
}

/// System calls that a gateway never needs.
const DENIED: &[libc::c_long] = &[
    // Other programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Namespaces, mounts, roots.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Clocks and names.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
];

/// Gives up all that a gateway does not need; only these directories stay open, and `/etc` for reading.
///
/// # Errors
/// The kernel refuses what it claims to have.
pub fn confine(read: &[PathBuf], write: &[PathBuf]) -> io::Result<Confined> {
    let files = close_files(read, write).map_err(io::Error::other)?;
    let calls = deny_calls().map_err(io::Error::other)?;
    Ok(Confined { files, calls })
}

/// Gives up all capabilities but these, for the calling thread and those that it starts from then on.
///
/// # Errors
/// The kernel refuses it.
pub fn drop_capabilities(keep: CapabilitySet) -> io::Result<()> {
    let own = capabilities(None)?;
    let kept = CapabilitySets {
        effective: own.effective & keep,
        permitted: own.permitted & keep,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}

/// Where `resolv.conf` lies, followed to where it leads, and where a link in its place may lead later.
#[must_use]
pub fn directories_of_resolver() -> Vec<PathBuf> {
    let real = std::fs::canonicalize("/etc/resolv.conf").ok();
    let real = real.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let others = ["/etc", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf"];
    real.into_iter().chain(others.map(PathBuf::from)).collect()
}

fn close_files(read: &[PathBuf], write: &[PathBuf]) -> Result<bool, landlock::RulesetError> {
    // Older kernels enforce the part of it that they know.
    let all = AccessFs::from_all(ABI::V5);
    let status = Ruleset::default()
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(read, AccessFs::ReadFile | AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(write, all))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

fn deny_calls() -> Result<bool, seccompiler::Error> {
    let Ok(processor) = std::env::consts::ARCH.try_into() else { return Ok(false) };
    let rules: BTreeMap<_, _> = DENIED.iter().map(|call| ((*call), Vec::new())).collect();
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let program: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, denied, processor)?.try_into()?;
    apply_filter(&program)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd as _;
    use std::process::Command;

    use super::*;

    /// On a thread, so that the test's other threads stay as they are.
    #[test]
    fn gw_33_a_confined_thread_has_its_sockets_and_little_else() {
        let own = std::env::temp_dir().join(format!("taut-sandbox-{}", std::process::id()));
        std::fs::create_dir_all(&own).unwrap();
        let (write, program) = (own.clone(), std::env::current_exe().unwrap());
        let confined = std::thread::spawn(move || {
            let confined = confine(&directories_of_resolver(), std::slice::from_ref(&write)).unwrap();
            // Programs, and the namespaces of others.
            let started = Command::new("/bin/true").status().unwrap_err();
            assert_eq!(started.kind(), ErrorKind::PermissionDenied);
            let network = std::fs::File::open("/proc/self/ns/net");
            if confined.files {
                for closed in ["/bin/true", "/proc/self/status", "/", "/home", program.to_str().unwrap()] {
                    let error = std::fs::File::open(closed).unwrap_err();
                    assert!(
                        matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound),
                        "{closed}"
                    );
                }
                assert_eq!(
                    std::fs::write("/etc/taut-test", "").unwrap_err().kind(),
                    ErrorKind::PermissionDenied
                );
            }
            // A namespace is no file to landlock, but entering it is a call.
            let entered = rustix::thread::move_into_link_name_space(network.unwrap().as_fd(), None);
            assert_eq!(entered.unwrap_err(), rustix::io::Errno::PERM);
            // A running gateway still has what it needs.
            std::fs::read_to_string("/etc/resolv.conf").unwrap();
            std::fs::write(write.join("socket"), "x").unwrap();
            std::fs::remove_file(write.join("socket")).unwrap();
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
        std::fs::remove_dir_all(&own).unwrap();
        assert!(confined.calls);
        // Nobody else is confined.
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
}
