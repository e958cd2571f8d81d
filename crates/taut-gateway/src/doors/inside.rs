//! The part of the gateway that runs inside a guest's namespace: it makes the namespace or enters it, opens a
//! TUN there, hands it to the gateway outside, and becomes the guest's command.
//!
//! ```text
//!   gateway (namespace.rs)                           this program, a child with one thread
//!     a socket between the two
//!                                                    user, network, mount namespace; lo; TUN, addresses, routes
//!     TUN, or the reason why there is none ◀─────────
//!     sockets that tell of the namespace's ◀─────────
//!     one that leads to a maker of sockets ◀───────── (loopback.rs)
//!     meanwhile it prepares to serve                 resolv.conf (resolv_conf.rs)
//!     "go", when the gateway serves it ────────────▶ exec COMMAND
//! ```
//!
//! The child has one thread because only such a process may enter a user namespace. It is a fork of the
//! gateway's process if that has one thread, too, which saves loading a program; or a program of its own,
//! whose standard input is the socket, and which gets the real one through it ([`inside`]). The command keeps
//! the process, so its exit code and signals are those that the gateway's own caller sees. If the gateway
//! dies, the command gets SIGTERM. With `--isolate`, the command has other namespaces, too, and another
//! process passes these on (`inside/first.rs`).

mod first;
mod ids;

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use taut::device::{Cidr, Interface, Tun, TunOptions, open_tap};

use crate::doors::loopback;
use crate::doors::resolv_conf::{self, RESOLV_CONF};
use crate::doors::sock_diag;
use crate::sandbox::descriptors::{receive, send};
use crate::sandbox::notify;

/// The largest MTU that a TUN may have here: an IPv4 packet with a virtio-net header in front is at most
/// 65,535 bytes long.
pub const MAX_MTU: u16 = 65_520;

const NOTSENT_LOWAT: &str = "/proc/sys/net/ipv4/tcp_notsent_lowat";

/// The byte with which a message begins that brings the TUN, or says that the command is isolated; anything
/// else is the text of an error.
const DONE: u8 = 0;
/// The longest message.
pub(crate) const LONGEST: usize = 1_024;

/// Which namespace the guest is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enter {
    /// A new one, in which this user is root or [keeps its number](Plan::keep_user).
    New,
    /// That of a process, and its user namespace.
    Process(u32),
    /// The one that this file stands for.
    Path(String),
}

/// The interface and the addresses in the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which namespace.
    pub enter: Enter,
    /// The interface's name.
    pub interface: String,
    /// Its MTU, 68..=65,520, and at least 1280 where IPv6 is used.
    pub mtu: u16,
    /// The guest's addresses. For the family of each there is a default route.
    pub guest: Vec<Cidr>,
    /// The guest's name server; a new namespace gets a `resolv.conf` with it, and with the host's options.
    pub name_server: Option<IpAddr>,
    /// `tcp_notsent_lowat` of the namespace, unless one is set there; 0 leaves it. Without it, a guest's
    /// socket takes a second of a slow line.
    pub notsent_lowat: u32,
    /// The domains that the guest searches; without any, the host's.
    pub search: Vec<String>,
    /// Ports may lead to the guest's own loopback addresses
    /// ([`Namespace::loopback`](crate::Namespace::loopback)).
    pub loopback: bool,
    /// A new namespace has processes, IPC and a host name of its own, a `/proc` and a `/sys` that show no
    /// others. It ends with the command and with the gateway.
    pub isolate: bool,
    /// In a new namespace, the user and group keep their numbers, and the command has no capability.
    pub keep_user: bool,
    /// The file of the user namespace that is entered before another's network namespace; without one, that
    /// of the process.
    pub user: Option<String>,
}

impl Plan {
    /// The arguments from which [`from_arguments`](Self::from_arguments) makes the same plan.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let enter = match &self.enter {
            Enter::New => "new".to_owned(),
            Enter::Process(pid) => format!("pid={pid}"),
            Enter::Path(path) => format!("path={path}"),
        };
        let mut arguments = vec![enter, format!("interface={}", self.interface), format!("mtu={}", self.mtu)];
        arguments.extend(self.guest.iter().map(|own| format!("guest={own}")));
        arguments.extend(self.name_server.map(|server| format!("name-server={server}")));
        arguments.push(format!("notsent-lowat={}", self.notsent_lowat));
        arguments.extend(self.search.iter().map(|domain| format!("search={domain}")));
        arguments.extend(self.user.iter().map(|path| format!("user={path}")));
        let flags = [(self.loopback, "loopback"), (self.isolate, "isolate"), (self.keep_user, "keep-user")];
        for (is_set, word) in flags {
            arguments.extend(is_set.then(|| word.to_owned()));
        }
        arguments
    }

    /// Only a new namespace has mounts of its own.
    pub(crate) fn isolates(&self) -> bool {
        self.isolate && self.enter == Enter::New
    }

    /// # Errors
    /// The first argument that is not one.
    pub fn from_arguments(arguments: &[String]) -> io::Result<Self> {
        let mut plan = Self {
            enter: Enter::New,
            interface: String::new(),
            mtu: 0,
            guest: Vec::new(),
            name_server: None,
            notsent_lowat: 0,
            search: Vec::new(),
            loopback: false,
            isolate: false,
            keep_user: false,
            user: None,
        };
        for argument in arguments {
            match argument.split_once('=') {
                None if argument == "new" => {}
                None if argument == "loopback" => plan.loopback = true,
                None if argument == "isolate" => plan.isolate = true,
                None if argument == "keep-user" => plan.keep_user = true,
                Some(("pid", pid)) => plan.enter = Enter::Process(pid.parse().map_err(|_| wrong(argument))?),
                Some(("path", path)) => plan.enter = Enter::Path(path.to_owned()),
                Some(("user", path)) => plan.user = Some(path.to_owned()),
                Some(("interface", name)) => name.clone_into(&mut plan.interface),
                Some(("mtu", mtu)) => plan.mtu = mtu.parse().map_err(|_| wrong(argument))?,
                Some(("guest", own)) => plan.guest.push(own.parse().map_err(|_| wrong(argument))?),
                Some(("notsent-lowat", bytes)) => {
                    plan.notsent_lowat = bytes.parse().map_err(|_| wrong(argument))?;
                }
                Some(("name-server", server)) => {
                    plan.name_server = Some(server.parse().map_err(|_| wrong(argument))?);
                }
                Some(("search", domain)) => plan.search.push(domain.to_owned()),
                _ => return Err(wrong(argument)),
            }
        }
        Ok(plan)
    }
}

fn wrong(argument: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{argument:?} is no part of a plan"))
}

/// The child's whole work. Returns only with an error; without a command, when the TUN is handed over; and
/// when the gateway is gone before the command begins.
/// Call it at the start of `main`, in a process with one thread whose standard input is the gateway's socket.
///
/// # Errors
/// The command cannot be started. What goes wrong before is reported to the gateway.
pub fn inside(plan: &Plan, command: &[String]) -> io::Result<Option<Infallible>> {
    let gateway = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (_, [stdin, ..]) = receive(&gateway, &mut [0])?;
    become_guest(gateway, stdin.map_or_else(Stdio::null, Stdio::from), plan, command)
}

/// The exit code of a command that was not found, and of one that cannot be executed, as shells have it.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// The whole work of a child that is a fork. Returns its exit code if it does not become the command, with
/// the reason on standard error.
pub(crate) fn forked(gateway: UnixStream, plan: &Plan, command: &[String]) -> i32 {
    match become_guest(gateway, Stdio::inherit(), plan, command) {
        Ok(None) => 0,
        Ok(Some(never)) => match never {},
        Err(error) => {
            eprintln!("taut: {error}");
            if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
        }
    }
}

fn become_guest(
    mut gateway: UnixStream,
    stdin: Stdio,
    plan: &Plan,
    command: &[String],
) -> io::Result<Option<Infallible>> {
    let mut warnings = Vec::new();
    let tun = match build(plan, &mut warnings) {
        Ok(tun) => tun,
        Err(error) => return refuse(&gateway, &error),
    };
    let names = give_names(plan, &mut warnings);
    // The gateway prepares meanwhile. If it fails, it prints the reason, and this process prints none.
    let handed = match hand_over(&gateway, plan, tun, &warnings) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(None),
        handed => handed?,
    };
    if let Some(maker) = handed {
        gateway = loopback::start(maker, gateway);
    }
    if let Some((server, own)) = names {
        // Without it all works until the host has another file.
        _ = resolv_conf::keep(&gateway, own, server, &plan.search);
    }
    // The processes above stay outside.
    if plan.isolates()
        && let Err(error) = first::isolate(&gateway)
    {
        return refuse(&gateway, &error);
    }
    let is_served = gateway.read_exact(&mut [0]).is_ok();
    let Some((program, arguments)) = command.split_first().filter(|_| is_served) else { return Ok(None) };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(stdin).env_remove(notify::VARIABLE);
    let error = command.exec();
    Err(io::Error::new(error.kind(), format!("{program}: {error}")))
}

/// A `resolv.conf` of the guest's own, in a new namespace, with the number of its file system.
fn give_names(plan: &Plan, warnings: &mut Vec<String>) -> Option<(IpAddr, u64)> {
    let server = plan.name_server.filter(|_| plan.enter == Enter::New)?;
    match resolv_conf::give(server, &plan.search) {
        Ok(own) => Some((server, own)),
        Err(error) => {
            // A program with an address of its own for names may not need it.
            warnings.push(format!("{RESOLV_CONF} stays as it is: {error}"));
            None
        }
    }
}

/// Sends the gateway the TUN, sockets and warnings, and closes them here. Returns the end of the process that
/// makes sockets.
fn hand_over(
    gateway: &UnixStream,
    plan: &Plan,
    tun: OwnedFd,
    warnings: &[String],
) -> io::Result<Option<UnixStream>> {
    // Without the first there is no `-u auto`, without both no way to the guest's loopback, and all else
    // works.
    let sockets: Vec<OwnedFd> = [(); 2].iter().map_while(|()| sock_diag::open().ok()).collect();
    let maker = if plan.loopback && sockets.len() == 2 { UnixStream::pair().ok() } else { None };
    let mut descriptors = vec![tun.as_fd()];
    descriptors.extend(sockets.iter().map(OwnedFd::as_fd));
    descriptors.extend(maker.as_ref().map(|(theirs, _)| theirs.as_fd()));
    let message = [&[DONE], warnings.join("\n").as_bytes()].concat();
    send(gateway, &message[..message.len().min(LONGEST)], &descriptors)?;
    drop(tun);
    Ok(maker.map(|(_, own)| own))
}

fn refuse(gateway: &UnixStream, why: &io::Error) -> io::Result<Option<Infallible>> {
    send(gateway, format!(" {why}").as_bytes(), &[])?;
    Ok(None)
}

fn build(plan: &Plan, warnings: &mut Vec<String>) -> io::Result<OwnedFd> {
    match &plan.enter {
        Enter::New => {
            let missing = ids::become_owner(plan.keep_user)?;
            warnings.extend(missing.map(|why| format!("the guest has no other users: {why}")));
        }
        Enter::Process(pid) => {
            let file = |kind: &str| open(&format!("/proc/{pid}/ns/{kind}"));
            let (user, network) = (file("user")?, file("net")?);
            match &plan.user {
                Some(path) => enter_user(path)?,
                // Refused if it is this one already.
                None => _ = move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User)),
            }
            enter(&network, &format!("the namespace of process {pid}"))?;
        }
        Enter::Path(path) => {
            let network = open(path)?;
            plan.user.as_deref().map_or(Ok(()), enter_user)?;
            enter(&network, path)?;
        }
    }
    // A namespace that another program has made may have left it down.
    Interface::open("lo")?.set_up()?;
    let descriptor = open_interface(plan)?;
    if plan.notsent_lowat > 0
        && let Err(error) = limit_unsent(plan.notsent_lowat)
    {
        // Then blocks of a bulk sender wait for longer, and all else works.
        warnings.push(format!("{NOTSENT_LOWAT} stays as it is: {error}"));
    }
    Ok(descriptor)
}

/// Makes the TUN, with its addresses and routes. A TAP that is there is opened as it is: the program that has
/// made it, such as rootlesskit, configures it, too.
fn open_interface(plan: &Plan) -> io::Result<OwnedFd> {
    let options = TunOptions { mtu: plan.mtu, ..TunOptions::default() };
    let tun = match Tun::open(&plan.interface, &options) {
        Ok(tun) => tun,
        Err(error) => {
            let in_use =
                |of_tap: io::Error| if of_tap.kind() == io::ErrorKind::ResourceBusy { of_tap } else { error };
            return open_tap(&plan.interface).map_err(in_use);
        }
    };
    let interface = Interface::open(tun.name())?;
    for &own in &plan.guest {
        interface.add_address(own)?;
        let all = if own.address().is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        interface.add_route(all.parse().map_err(io::Error::other)?, None)?;
    }
    tun.as_fd().try_clone_to_owned()
}

/// Sets the namespace's `tcp_notsent_lowat` unless one is set.
fn limit_unsent(bytes: u32) -> io::Result<()> {
    let is_set = fs::read_to_string(NOTSENT_LOWAT)?.trim() != u32::MAX.to_string();
    if is_set { Ok(()) } else { fs::write(NOTSENT_LOWAT, bytes.to_string()) }
}

fn open(path: &str) -> io::Result<File> {
    File::open(path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

fn enter(network: &File, name: &str) -> io::Result<()> {
    let entered = move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network));
    entered.map_err(|error| cannot_enter(name, error))
}

/// Enters this user namespace, unless it is this one already: the kernel would refuse that.
fn enter_user(path: &str) -> io::Result<()> {
    let (user, own) = (open(path)?, open("/proc/self/ns/user")?);
    let place = |file: &File| file.metadata().map(|file| (file.dev(), file.ino()));
    if place(&user)? == place(&own)? {
        return Ok(());
    }
    let entered = move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User));
    entered.map_err(|error| cannot_enter(path, error))
}

fn cannot_enter(name: &str, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("cannot enter {name}: {error}"))
}

/// Says that the command may begin.
pub(crate) fn go(mut to: &UnixStream) -> io::Result<()> {
    to.write_all(&[0])
}

pub(crate) const fn is_done(first: u8) -> bool {
    first == DONE
}
