//! Attacks on the sandbox from within, as code that has taken a gateway over would make them: a table of
//! calls, each of which must be refused. Only with the feature `hostile`, for CONF-1 of
//! `docs/spec/confinement.md`; `raw` makes a system call of any number.

use std::fmt::Write as _;

/// A system call: number and arguments.
pub type Raw = fn(libc::c_long, [usize; 6]) -> isize;

/// The outcome of an attempt.
#[derive(Debug)]
pub struct Attempt {
    /// Its name in the table.
    pub name: &'static str,
    /// The call's result: an error as a negative number.
    pub result: isize,
}

/// Data that outlives a call.
fn at(text: &'static [u8]) -> usize {
    text.as_ptr() as usize
}

/// A file that every user may read.
const PASSWD: &[u8] = b"/etc/passwd\0";
const ROOT: &[u8] = b"/\0";
const EMPTY: &[u8] = b"\0";
const TMP: &[u8] = b"/tmp/taut-hostile\0";
const OTHER: &[u8] = b"/tmp/taut-hostile-2\0";
const TMPFS: &[u8] = b"tmpfs\0";
const KEY: &[u8] = b"user\0";

const fn number(value: i32) -> usize {
    value as usize
}

type Row = (&'static str, libc::c_long, Vec<usize>);

/// Memory for calls to read, of zeros, and to write.
struct Room {
    blank: usize,
    into: usize,
    /// A process outside.
    victim: usize,
}

/// Tries everything. `outside` is the number of a process outside, as the host counts.
#[must_use]
pub fn attack(raw: Raw, outside: i32) -> Vec<Attempt> {
    let (zeros, mut written) = ([0_u8; 512], [0_u8; 512]);
    let (blank, into) = (zeros.as_ptr() as usize, written.as_mut_ptr() as usize);
    let room = Room { blank, into, victim: number(outside) };
    let table = [
        files(&room),
        processes(&room),
        namespaces(),
        rights(&room),
        sockets(&room),
        kernel(&room),
        shared(),
        open(&room),
    ]
    .concat();
    let mut attempts = Vec::with_capacity(table.len());
    for (name, call, arguments) in table {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(&arguments);
        let result = raw(call, all);
        if matches!(call, libc::SYS_clone | libc::SYS_clone3) && result == 0 {
            // A child that should not be.
            raw(libc::SYS_exit_group, [0; 6]);
        }
        attempts.push(Attempt { name, result });
    }
    attempts
}

/// Files.
fn files(room: &Room) -> Vec<Row> {
    let cwd = number(libc::AT_FDCWD);
    let Room { blank, into, .. } = *room;
    vec![
        ("open /etc/passwd", libc::SYS_openat, vec![cwd, at(PASSWD), 0]),
        ("open /", libc::SYS_openat, vec![cwd, at(ROOT), number(libc::O_PATH)]),
        ("make a file", libc::SYS_openat, vec![cwd, at(TMP), number(libc::O_CREAT | libc::O_WRONLY), 0o600]),
        ("open /proc/1/environ", libc::SYS_openat, vec![cwd, at(b"/proc/1/environ\0"), 0]),
        ("open /proc/self/mem", libc::SYS_openat, vec![cwd, at(b"/proc/self/mem\0"), 2]),
        ("open /dev/mem", libc::SYS_openat, vec![cwd, at(b"/dev/mem\0"), 0]),
        ("openat2", libc::SYS_openat2, vec![cwd, at(PASSWD), blank, 24]),
        ("open by a handle", libc::SYS_open_by_handle_at, vec![2, blank, 0]),
        ("stat /etc/passwd", libc::SYS_newfstatat, vec![cwd, at(PASSWD), into, 0]),
        ("readlink /proc/self/exe", libc::SYS_readlinkat, vec![cwd, at(b"/proc/self/exe\0"), into, 100]),
        ("mkdir", libc::SYS_mkdirat, vec![cwd, at(TMP), 0o700]),
        ("unlink", libc::SYS_unlinkat, vec![cwd, at(TMP), 0]),
        ("rename", libc::SYS_renameat2, vec![cwd, at(TMP), cwd, at(OTHER), 0]),
        ("a link", libc::SYS_linkat, vec![cwd, at(PASSWD), cwd, at(TMP), 0]),
        ("mknod", libc::SYS_mknodat, vec![cwd, at(TMP), 0o20_600, 0x103]),
        ("chmod", libc::SYS_fchmodat, vec![cwd, at(TMP), 0o777]),
        ("truncate", libc::SYS_truncate, vec![at(TMP), 0]),
        ("inotify", libc::SYS_inotify_init1, vec![0]),
        ("fanotify", libc::SYS_fanotify_init, vec![0, 0]),
        ("memfd_create", libc::SYS_memfd_create, vec![at(TMPFS), 0]),
    ]
}

/// Programs and processes.
fn processes(room: &Room) -> Vec<Row> {
    static NEW_PROCESS: [u64; 8] = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    let cwd = number(libc::AT_FDCWD);
    let Room { blank, victim, .. } = *room;
    vec![
        ("execve", libc::SYS_execve, vec![at(b"/bin/true\0"), 0, 0]),
        ("execveat", libc::SYS_execveat, vec![cwd, at(b"/bin/true\0"), 0, 0, 0]),
        ("fork", libc::SYS_clone, vec![number(libc::SIGCHLD), 0, 0, 0, 0]),
        ("clone3", libc::SYS_clone3, vec![NEW_PROCESS.as_ptr() as usize, 64]),
        ("kill -0 -1", libc::SYS_kill, vec![usize::MAX, 0]),
        ("kill a process outside", libc::SYS_kill, vec![victim, 15]),
        ("tkill", libc::SYS_tkill, vec![victim, 15]),
        ("tgkill another", libc::SYS_tgkill, vec![victim, victim, 15]),
        ("sigqueue", libc::SYS_rt_sigqueueinfo, vec![victim, 15, blank]),
        ("pidfd_open", libc::SYS_pidfd_open, vec![victim, 0]),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal, vec![2, 15, 0, 0]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, vec![2, 0, 0]),
        ("ptrace", libc::SYS_ptrace, vec![number(libc::PTRACE_SEIZE.cast_signed()), victim, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, vec![victim, blank, 0, blank, 0, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, vec![victim, blank, 0, blank, 0, 0]),
        ("kcmp", libc::SYS_kcmp, vec![victim, victim, 0, 0, 0]),
        ("prlimit of another", libc::SYS_prlimit64, vec![victim, 7, blank, 0]),
        ("own limit", libc::SYS_prlimit64, vec![0, 4, blank, 0]),
        ("setpriority of another", libc::SYS_setpriority, vec![0, victim, 19]),
        ("scheduler of another", libc::SYS_sched_setscheduler, vec![victim, 0, blank]),
        ("affinity of another", libc::SYS_sched_setaffinity, vec![victim, 8, blank]),
    ]
}

/// Namespaces, mounts, roots.
fn namespaces() -> Vec<Row> {
    // struct clone_args with the flags alone.
    static CLONE_ARGS: [u64; 8] = [libc::CLONE_NEWUSER as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    let cwd = number(libc::AT_FDCWD);
    vec![
        ("unshare user", libc::SYS_unshare, vec![number(libc::CLONE_NEWUSER)]),
        ("unshare net", libc::SYS_unshare, vec![number(libc::CLONE_NEWNET)]),
        (
            "clone into a user namespace",
            libc::SYS_clone,
            vec![number(libc::CLONE_NEWUSER | libc::SIGCHLD), 0],
        ),
        (
            "a thread into a network namespace",
            libc::SYS_clone,
            vec![number(libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_NEWNET), 0],
        ),
        ("clone3 into a user namespace", libc::SYS_clone3, vec![CLONE_ARGS.as_ptr() as usize, 64]),
        ("setns", libc::SYS_setns, vec![2, 0]),
        ("mount", libc::SYS_mount, vec![at(TMPFS), at(ROOT), at(TMPFS), 0, 0]),
        ("umount", libc::SYS_umount2, vec![at(ROOT), number(libc::MNT_DETACH)]),
        ("open_tree", libc::SYS_open_tree, vec![cwd, at(ROOT), 1]),
        ("fsopen", libc::SYS_fsopen, vec![at(TMPFS), 0]),
        ("move_mount", libc::SYS_move_mount, vec![cwd, at(ROOT), cwd, at(ROOT), 0]),
        ("pivot_root", libc::SYS_pivot_root, vec![at(ROOT), at(ROOT)]),
        ("chroot", libc::SYS_chroot, vec![at(ROOT)]),
    ]
}

/// Rights.
fn rights(room: &Room) -> Vec<Row> {
    let Room { blank, .. } = *room;
    vec![
        ("setuid 0", libc::SYS_setuid, vec![0]),
        ("setresuid 0", libc::SYS_setresuid, vec![0, 0, 0]),
        ("setgroups", libc::SYS_setgroups, vec![0, 0]),
        ("capset", libc::SYS_capset, vec![blank, blank]),
        ("prctl dumpable", libc::SYS_prctl, vec![number(libc::PR_SET_DUMPABLE), 1]),
        ("prctl ptracer", libc::SYS_prctl, vec![number(libc::PR_SET_PTRACER), usize::MAX]),
        ("seccomp off", libc::SYS_prctl, vec![number(libc::PR_SET_SECCOMP), 0]),
        ("personality", libc::SYS_personality, vec![0]),
    ]
}

/// Sockets.
fn sockets(room: &Room) -> Vec<Row> {
    let Room { into, .. } = *room;
    let unix = number(libc::AF_UNIX);
    let (stream, dgram) = (number(libc::SOCK_STREAM), number(libc::SOCK_DGRAM));
    vec![
        ("socket unix stream", libc::SYS_socket, vec![unix, stream, 0]),
        ("socket unix datagrams", libc::SYS_socket, vec![unix, dgram, 0]),
        ("socketpair of datagrams", libc::SYS_socketpair, vec![unix, dgram, 0, into]),
        ("socket netlink", libc::SYS_socket, vec![number(libc::AF_NETLINK), number(libc::SOCK_RAW), 0]),
        ("socket packet", libc::SYS_socket, vec![number(libc::AF_PACKET), number(libc::SOCK_RAW), 0x300]),
        ("socket raw", libc::SYS_socket, vec![number(libc::AF_INET), number(libc::SOCK_RAW), 255]),
        ("socket SCTP", libc::SYS_socket, vec![number(libc::AF_INET), stream, 132]),
        ("socket vsock", libc::SYS_socket, vec![number(libc::AF_VSOCK), stream, 0]),
        ("socket alg", libc::SYS_socket, vec![number(libc::AF_ALG), number(libc::SOCK_SEQPACKET), 0]),
        ("socket bluetooth", libc::SYS_socket, vec![number(libc::AF_BLUETOOTH), number(libc::SOCK_RAW), 1]),
    ]
}

/// The kernel.
fn kernel(room: &Room) -> Vec<Row> {
    let Room { blank, into, .. } = *room;
    vec![
        ("bpf", libc::SYS_bpf, vec![0, blank, 64]),
        ("perf_event_open", libc::SYS_perf_event_open, vec![blank, 0, usize::MAX, usize::MAX, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, vec![1]),
        ("io_uring_setup", libc::SYS_io_uring_setup, vec![1, into]),
        ("io_uring_enter", libc::SYS_io_uring_enter, vec![2, 0, 0, 0, 0, 0]),
        ("add_key", libc::SYS_add_key, vec![at(KEY), at(KEY), at(KEY), 4, usize::MAX - 2]),
        ("request_key", libc::SYS_request_key, vec![at(KEY), at(KEY), 0, usize::MAX - 2]),
        ("keyctl", libc::SYS_keyctl, vec![0, usize::MAX - 2, 1]),
        ("init_module", libc::SYS_init_module, vec![blank, 512, at(EMPTY)]),
        ("finit_module", libc::SYS_finit_module, vec![2, at(EMPTY), 0]),
        ("kexec_load", libc::SYS_kexec_load, vec![0, 0, 0, 0]),
        ("reboot", libc::SYS_reboot, vec![0xfee1_dead, 672_274_793, 0, 0]),
        ("swapon", libc::SYS_swapon, vec![at(TMP), 0]),
        ("settimeofday", libc::SYS_settimeofday, vec![0, 0]),
        ("sethostname", libc::SYS_sethostname, vec![at(KEY), 4]),
        ("syslog", libc::SYS_syslog, vec![10, 0, 0]),
        ("acct", libc::SYS_acct, vec![0]),
        ("quotactl", libc::SYS_quotactl, vec![0, at(ROOT), 0, 0]),
    ]
}

/// System V, queues, shared memory.
fn shared() -> Vec<Row> {
    vec![
        ("shmget", libc::SYS_shmget, vec![0, 4_096, 0o1_600]),
        ("semget", libc::SYS_semget, vec![0, 1, 0o1_600]),
        ("msgget", libc::SYS_msgget, vec![0, 0o1_600]),
        ("mq_open", libc::SYS_mq_open, vec![at(KEY), number(libc::O_CREAT | libc::O_RDWR), 0o600, 0]),
    ]
}

/// Descriptors that are open, and memory.
fn open(room: &Room) -> Vec<Row> {
    let cwd = number(libc::AT_FDCWD);
    let Room { blank, into, victim, .. } = *room;
    vec![
        ("ioctl TIOCSTI", libc::SYS_ioctl, vec![0, number(libc::TIOCSTI as i32), at(KEY)]),
        ("ioctl TIOCSCTTY", libc::SYS_ioctl, vec![0, number(libc::TIOCSCTTY as i32), 1]),
        ("signals by fcntl", libc::SYS_fcntl, vec![2, number(libc::F_SETOWN), victim]),
        ("code by mmap", libc::SYS_mmap, vec![0, 4_096, 7, 0x22, usize::MAX, 0]),
        ("code by mprotect", libc::SYS_mprotect, vec![blank & !4_095, 4_096, 7]),
        ("splice", libc::SYS_splice, vec![0, 0, 1, 0, 1, 0]),
        ("name_to_handle_at", libc::SYS_name_to_handle_at, vec![cwd, at(PASSWD), into, into, 0]),
        ("landlock", libc::SYS_landlock_create_ruleset, vec![blank, 8, 0]),
    ]
}

/// A line for each attempt: its name, and `refused` with the error or `DONE`.
#[must_use]
pub fn report(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for Attempt { name, result } in attempts {
        let outcome = if *result < 0 {
            format!("refused {}", std::io::Error::from_raw_os_error(-*result as i32))
        } else {
            format!("DONE {result}")
        };
        _ = writeln!(text, "hostile: {name}: {outcome}");
    }
    text
}
