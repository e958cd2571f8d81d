//! The system calls of a running gateway or proxy, and of the process outside: a list of what is allowed. All
//! else fails with `EPERM`; what a library tries first and can do without fails with `ENOSYS`. In a debug
//! build, a call that is on neither list ends the process by SIGSYS, so that every test is a test of these
//! lists. Called by `mod.rs` and `outside.rs`.

use std::collections::BTreeMap;

use libc::c_long;
use rustix::process::Pid;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

/// Both processes need: memory, time, threads' waits, descriptors that are open.
const COMMON: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    // musl's names for the same on this processor.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The gateway needs beside these: sockets, waits for them, threads.
const INSIDE: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_dup,
    // A recording.
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
];

/// The process outside needs: its files, its children, its control socket.
const OUTSIDE: &[c_long] = &[
    libc::SYS_openat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_wait4,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_connect,
    libc::SYS_getsockopt,
    libc::SYS_fchmod,
    libc::SYS_flock,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_fcntl,
];

/// The gateway's libraries try these and can do without.
const TRIED: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    // About the guest's process, which is another one's child.
    libc::SYS_kill,
    libc::SYS_wait4,
    // musl's `raise`.
    libc::SYS_tkill,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
];

/// Requests of `ioctl(2)`: bytes in a socket, its interface's number, the header of a TUN that is open.
const REQUESTS: &[u32] = &[
    libc::FIONBIO as u32,
    libc::FIONREAD as u32,
    libc::TIOCOUTQ as u32,
    libc::SIOCGIFINDEX as u32,
    libc::SIOCGIFNAME as u32,
    libc::SIOCGIFMTU as u32,
    libc::TUNGETIFF as u32,
    libc::TUNGETFEATURES as u32,
    libc::TUNSETOFFLOAD as u32,
    libc::TUNGETVNETHDRSZ as u32,
    libc::TUNSETVNETHDRSZ as u32,
    // `SIOCOUTQNSD`, which libc does not have.
    0x894b,
];

/// Which of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The gateway; its threads may get a priority.
    Inside { may_rank: bool },
    /// The process outside, which sends signals to one other.
    Outside { command: Option<Pid> },
}

/// Denies this thread, and those that it starts, all but what is listed.
pub(super) fn limit(side: Side) -> Result<bool, Error> {
    let Ok(processor) = std::env::consts::ARCH.try_into() else { return Ok(false) };
    let apply = |rules, other, listed| {
        let program: BpfProgram = SeccompFilter::new(rules, other, listed, processor)?.try_into()?;
        apply_filter(&program)
    };
    if matches!(side, Side::Inside { .. }) {
        let tried = TRIED.iter().map(|call| (*call, Vec::new())).collect();
        apply(tried, SeccompAction::Allow, errno(libc::ENOSYS))?;
    }
    let is_strict = cfg!(debug_assertions) && !cfg!(any(test, feature = "hostile"));
    let other = if is_strict { SeccompAction::KillProcess } else { errno(libc::EPERM) };
    apply(allowed(side)?, other, SeccompAction::Allow)?;
    Ok(true)
}

const fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn allowed(side: Side) -> Result<Rules, Error> {
    let own: &[&[c_long]] = match side {
        Side::Inside { .. } => &[COMMON, INSIDE, TRIED],
        Side::Outside { .. } => &[COMMON, OUTSIDE],
    };
    let mut rules: Rules = own.iter().flat_map(|list| list.iter()).map(|call| (*call, Vec::new())).collect();
    // Memory is never written and executed.
    let no_code = || one(&[(2, MaskedEq(libc::PROT_EXEC as u64), 0)]);
    rules.insert(libc::SYS_mmap, vec![no_code()?]);
    rules.insert(libc::SYS_mprotect, vec![no_code()?]);
    // To itself alone: `abort`, and a panic's.
    rules.insert(libc::SYS_tgkill, vec![one(&[(0, Eq, u64::from(std::process::id()))])?]);
    let may_rank = match side {
        Side::Inside { may_rank } => may_rank,
        Side::Outside { command } => {
            rules.insert(libc::SYS_socket, vec![one(&[(0, Eq, libc::AF_UNIX as u64)])?]);
            let command = command.map(|pid| pid.as_raw_nonzero().get() as u64);
            rules.extend(
                command
                    .map(|pid| Ok::<_, Error>((libc::SYS_kill, vec![one(&[(0, Eq, pid)])?])))
                    .transpose()?,
            );
            return Ok(rules);
        }
    };
    rules.insert(libc::SYS_socket, sockets()?);
    let stream = MaskedEq(0xf);
    let pair = [(0, Eq, libc::AF_UNIX as u64), (1, stream, libc::SOCK_STREAM as u64)];
    rules.insert(libc::SYS_socketpair, vec![one(&pair)?]);
    // A thread: no process, and no namespace.
    let kinds = libc::CLONE_THREAD | libc::CLONE_VM | NEW_NAMESPACES;
    let thread = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;
    rules.insert(libc::SYS_clone, vec![one(&[(0, MaskedEq(kinds as u64), thread)])?]);
    // The C libraries give them different types, of which 32 bits count.
    let requests: Vec<u64> = REQUESTS.iter().map(|request| u64::from(*request)).collect();
    rules.insert(libc::SYS_ioctl, each(1, &requests)?);
    let commands = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];
    rules.insert(libc::SYS_fcntl, each(1, &commands.map(|command| command as u64))?);
    // Its own limits are read, and not changed.
    let none = SeccompCondition::new(2, Qword, Eq, 0)?;
    let own = SeccompCondition::new(0, Dword, Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![own, none])?]);
    // Names of threads and of memory.
    rules.insert(libc::SYS_prctl, each(0, &[libc::PR_SET_NAME as u64, PR_SET_VMA])?);
    if may_rank {
        // Of threads of its own.
        rules.insert(libc::SYS_setpriority, each(1, &[0])?);
        rules.insert(libc::SYS_sched_setscheduler, each(0, &[0])?);
        rules.insert(libc::SYS_sched_setattr, each(0, &[0])?);
    }
    Ok(rules)
}

const NEW_NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;
/// `PR_SET_VMA`, by which the C library names its memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// The sockets that a gateway makes: TCP, UDP and pings, of both families. Without Unix sockets, none of the
/// host's is in reach, by path or abstract name.
fn sockets() -> Result<Vec<SeccompRule>, Error> {
    let kinds = [
        (libc::SOCK_STREAM, [0, libc::IPPROTO_TCP]),
        (libc::SOCK_DGRAM, [0, libc::IPPROTO_UDP]),
        (libc::SOCK_DGRAM, [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6]),
    ];
    let families = [libc::AF_INET, libc::AF_INET6];
    let mut rules = Vec::new();
    for (family, (kind, protocols)) in
        families.into_iter().flat_map(|family| kinds.map(|kind| (family, kind)))
    {
        for protocol in protocols {
            rules.push(one(&[
                (0, Eq, family as u64),
                (1, MaskedEq(0xf), kind as u64),
                (2, Eq, protocol as u64),
            ])?);
        }
    }
    Ok(rules)
}

/// A call with these low halves of arguments.
fn one(conditions: &[(u8, seccompiler::SeccompCmpOp, u64)]) -> Result<SeccompRule, Error> {
    let all =
        conditions.iter().map(|(at, how, value)| SeccompCondition::new(*at, Dword, how.clone(), *value));
    Ok(SeccompRule::new(all.collect::<Result<_, _>>()?)?)
}

fn each(at: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
    values.iter().map(|value| one(&[(at, Eq, *value)])).collect()
}
