//! Private network namespaces without names, and the two kinds of link: a TUN and a veth pair.
//!
//! A namespace lives as long as a descriptor or a thread holds it, so nothing is left behind however the run
//! ends: by success, by failure, by Ctrl-C or by SIGKILL.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The kernel peer's address.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
/// The measured stack's address.
pub const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
/// The port of whichever side listens.
pub const PORT: u16 = 5001;
/// Of every link.
pub const MTU: u16 = 1500;

/// A network namespace.
pub struct NetNs(File);

impl NetNs {
    /// A new one with its loopback up.
    pub fn new() -> Result<Self> {
        let file = std::thread::spawn(|| -> Result<File> {
            // SAFETY: affects this thread only, which ends here.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                bail!("cannot make a network namespace ({}); run as root", io::Error::last_os_error());
            }
            ip("link set lo up")?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        })
        .join()
        .map_err(|_| anyhow::anyhow!("namespace thread panicked"))??;
        Ok(Self(file))
    }

    /// Another handle to the same one.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Moves the calling thread in.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: a descriptor that we own.
        if unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            bail!("setns: {}", io::Error::last_os_error());
        }
        Ok(())
    }

    /// Runs `f` inside, on a thread of its own.
    pub fn within<T: Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                f()
            });
            thread.join().map_err(|_| anyhow::anyhow!("thread in the namespace panicked"))?
        })
    }
}

/// Runs `ip` with the words of `line`, in the calling thread's namespace.
fn ip(line: &str) -> Result<()> {
    let out =
        Command::new("ip").args(line.split(' ')).output().context("cannot run `ip`; install iproute2")?;
    if !out.status.success() {
        bail!("ip {line}: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

/// Two namespaces joined by a veth pair: `local` with [`LOCAL`], `peer` with [`PEER`].
pub struct Veth {
    pub local: NetNs,
    pub peer: NetNs,
}

impl Veth {
    pub fn new() -> Result<Self> {
        let (local, peer) = (NetNs::new()?, NetNs::new()?);
        let peer_path = format!("/proc/{}/fd/{}", std::process::id(), peer.0.as_raw_fd());
        local.within(|| {
            ip(&format!("link add near type veth peer name far netns {peer_path}"))?;
            ip(&format!("addr add {LOCAL}/24 dev near"))?;
            ip(&format!("link set near mtu {MTU} txqueuelen 10000 up"))
        })?;
        peer.within(|| {
            ip(&format!("addr add {PEER}/24 dev far"))?;
            ip(&format!("link set far mtu {MTU} txqueuelen 10000 up"))
        })?;
        Ok(Self { local, peer })
    }
}

/// A TUN in a namespace of its own; the kernel has [`PEER`] on it, whoever holds `fd` is [`LOCAL`].
pub struct Tun {
    pub peer: NetNs,
    pub fd: OwnedFd,
}

/// `struct virtio_net_hdr`: what precedes each packet.
pub const VNET_HDR_LEN: usize = 10;
pub const VNET_NEEDS_CSUM: u8 = 1;
pub const VNET_GSO_TCPV4: u8 = 1;

const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;

impl Tun {
    pub fn new() -> Result<Self> {
        let peer = NetNs::new()?;
        let fd = peer.within(|| {
            let fd = open_tun("bench0")?;
            Self::configure("bench0")?;
            Ok(fd)
        })?;
        Ok(Self { peer, fd })
    }

    /// Gives the TUN called `name` the kernel's address, in the calling thread's namespace.
    pub fn configure(name: &str) -> Result<()> {
        ip(&format!("addr add {PEER}/24 dev {name}"))?;
        // The stock queue of 500 packets overflows under a window of several megabytes; a drop would measure loss
        // recovery instead of speed.
        ip(&format!("link set {name} mtu {MTU} txqueuelen 10000 up"))
    }
}

fn open_tun(name: &str) -> Result<OwnedFd> {
    // SAFETY: plain system calls on a descriptor that we own; `request` is a zeroed `struct ifreq` with its name
    // and flags filled in, which is what TUNSETIFF reads.
    unsafe {
        let fd = libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC);
        if fd < 0 {
            bail!("/dev/net/tun: {}", io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
        if libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &request) != 0 {
            bail!("TUNSETIFF: {}", io::Error::last_os_error());
        }
        let offload = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
        if libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offload)) != 0 {
            bail!("TUNSETOFFLOAD: {}", io::Error::last_os_error());
        }
        Ok(fd)
    }
}

/// Waits until `fd` is readable, or until the timeout is over; `None` waits 100 ms, so that a stop is noticed.
pub fn wait_readable(fd: i32, timeout: Option<std::time::Duration>) {
    let longest = std::time::Duration::from_millis(100);
    let timeout = timeout.unwrap_or(longest).min(longest);
    let span = libc::timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as libc::c_long };
    let mut waited = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd and one timespec, both alive during the call.
    unsafe { libc::ppoll(&mut waited, 1, &span, std::ptr::null()) };
}
