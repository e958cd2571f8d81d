//! The kernel's TCP in a network namespace of its own: its settings, the links that end in it, and what runs
//! in it.
//!
//! See `network_namespaces(7)`. Called by everything that needs a peer for a stack.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use taut_device::{Cidr, Namespace, Tun, TunOptions, netns};

use crate::Subnet;

/// A TUN's name in its namespace.
const TUN: &str = "taut0";
/// The name of each end of a veth pair.
const VETH: &str = "veth0";

/// The kernel, as the threads in one namespace see it.
#[derive(Debug)]
pub struct Kernel {
    /// Where it is.
    pub namespace: Namespace,
}

impl Kernel {
    /// In a new namespace, with the loopback interface up and nothing else.
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

    /// Starts a thread that stays in the namespace, and keeps it.
    ///
    /// # Errors
    /// Those of [`Namespace::enter`], or no thread left.
    pub fn thread<R: Send + 'static>(
        &self,
        name: &str,
        run: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<JoinHandle<R>> {
        // A thread inherits the namespace of the one that starts it.
        self.enter(|| thread::Builder::new().name(name.to_owned()).spawn(run))?
    }

    /// Runs a program in the namespace to its end; what it printed. Words are separated by spaces.
    ///
    /// # Errors
    /// When there is no such program, or with what it said when it failed.
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
    /// When this kernel has no such setting, or not in a namespace, or not that value.
    pub fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let full = if name.contains('.') { name.to_owned() } else { format!("net.ipv4.{name}") };
        self.enter(|| fs::write(format!("/proc/sys/{}", full.replace('.', "/")), value))?
    }

    /// Opens a TUN, `taut0`, whose kernel's side is in the namespace and has these addresses.
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
    /// When there are no such interfaces, or one of that name is there already.
    pub fn veth(&self, far: &Self, subnet: Subnet, mtu: u16) -> io::Result<()> {
        let (here, there) = self.namespace.connect(VETH, &far.namespace, VETH)?;
        for (interface, addresses) in [(here, subnet.near()), (there, subnet.far())] {
            interface.set_mtu(u32::from(mtu))?;
            interface.set_up()?;
            addresses.into_iter().try_for_each(|address| interface.add_address(address))?;
        }
        Ok(())
    }
}

/// As root, nothing; otherwise becomes root in a user namespace, where the kernel lets users have one. Only a
/// process with one thread can do that: call it first thing.
///
/// # Errors
/// When neither is possible, and what would be needed.
pub fn allow_namespaces() -> io::Result<()> {
    match Namespace::new() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        other => return other.map(drop),
    }
    // The thread that tried is joined, but the kernel may need a moment to see it gone.
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
