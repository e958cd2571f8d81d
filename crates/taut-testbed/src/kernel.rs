//! The kernel's TCP in a network namespace of its own: its settings, the links that end in it, and the
//! programs and threads that run in it.
//!
//! See `network_namespaces(7)`. Called by code that needs a peer for a stack.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use taut_device::{Cidr, Interface, Namespace, Tun, TunOptions, netns};

use crate::Subnet;

/// The name of a TUN in its namespace.
const TUN: &str = "taut0";
/// How long a link may take until packets pass.
const CARRIER_WAIT: Duration = Duration::from_millis(500);
/// The name of each end of a veth pair.
const VETH: &str = "veth0";

/// The kernel as seen by the threads in one namespace.
#[derive(Debug)]
pub struct Kernel {
    /// The namespace.
    pub namespace: Namespace,
}

impl Kernel {
    /// A kernel in a new namespace, with only the loopback interface, which is up.
    ///
    /// # Errors
    /// Those of [`Namespace::new`].
    pub fn new() -> io::Result<Self> {
        Namespace::new().map(|namespace| Self { namespace })
    }

    /// Runs a closure in the namespace and waits for it; sockets and devices opened there stay there.
    ///
    /// # Errors
    /// Those of [`Namespace::enter`].
    pub fn enter<R: Send>(&self, run: impl FnOnce() -> R + Send) -> io::Result<R> {
        self.namespace.enter(run)
    }

    /// Starts a thread that stays in the namespace and keeps it alive.
    ///
    /// # Errors
    /// Those of [`Namespace::enter`], or when the thread cannot be started.
    pub fn thread<R: Send + 'static>(
        &self,
        name: &str,
        run: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<JoinHandle<R>> {
        // A thread inherits the namespace of the thread that starts it.
        self.enter(|| thread::Builder::new().name(name.to_owned()).spawn(run))?
    }

    /// Runs a program in the namespace to its end and returns its output. Words of `line` are separated by
    /// spaces.
    ///
    /// # Errors
    /// When there is no such program, or when it fails; the error then has its message.
    pub fn run(&self, line: &str) -> io::Result<String> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |why: &str| io::Error::other(format!("{line}: {why}"));
        let child = self.namespace.spawn(&mut command).map_err(|error| failed(&error.to_string()))?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Changes a setting of the namespace, by `sysctl`'s name; `net.ipv4.` may be left out.
    ///
    /// # Errors
    /// When this kernel has no such setting, not in a namespace, or does not allow the value.
    pub fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let full = if name.contains('.') { name.to_owned() } else { format!("net.ipv4.{name}") };
        self.enter(|| fs::write(format!("/proc/sys/{}", full.replace('.', "/")), value))?
    }

    /// Gives an interface an address, which takes packets from now on.
    ///
    /// # Errors
    /// When it is no address with a prefix, or there is no such interface.
    pub fn add_address(&self, interface: &str, address: &str) -> io::Result<()> {
        let address = address.parse().map_err(io::Error::other)?;
        self.enter(|| Interface::open(interface)?.add_address(address))?
    }

    /// Opens a TUN, `taut0`. The kernel's side of it is in the namespace and has these addresses.
    ///
    /// # Errors
    /// Those of [`Tun::open`].
    pub fn tun(&self, addresses: &[Cidr], options: &TunOptions) -> io::Result<Tun> {
        self.enter(|| {
            let tun = Tun::open(TUN, options)?;
            let interface = tun.interface()?;
            addresses.iter().try_for_each(|&address| interface.add_address(address))?;
            Ok(tun)
        })?
    }

    /// Joins this kernel, as the near end, to another by a pair of Ethernet interfaces, `veth0` in both.
    ///
    /// # Errors
    /// When the kernel does not support such interfaces, or one with that name already exists.
    pub fn veth(&self, far: &Self, subnet: Subnet, mtu: u16) -> io::Result<()> {
        let (here, there) = self.namespace.connect(VETH, &far.namespace, VETH)?;
        for interface in [&here, &there] {
            interface.set_mtu(u32::from(mtu))?;
            interface.set_up()?;
        }
        for (interface, addresses) in [(here, subnet.near()), (there, subnet.far())] {
            interface.wait_until_running(CARRIER_WAIT)?;
            addresses.into_iter().try_for_each(|address| interface.add_address(address))?;
        }
        Ok(())
    }
}

/// Does nothing as root; otherwise becomes root in a user namespace, if the kernel lets users make one. Only
/// a process with one thread can do that: call it at the start of `main`.
///
/// # Errors
/// When neither is possible; the error names the requirements.
pub fn allow_namespaces() -> io::Result<()> {
    match Namespace::new() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        other => return other.map(drop),
    }
    // The thread that tried has been joined, but the kernel may still count it for a moment.
    let mut result = netns::become_root_in_user_namespace();
    for _ in 0..50 {
        if !result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        result = netns::become_root_in_user_namespace();
    }
    result.map_err(|error| {
        let message = format!("{error} (needed: root, or a kernel that lets users make user namespaces)");
        io::Error::new(error.kind(), message)
    })
}
