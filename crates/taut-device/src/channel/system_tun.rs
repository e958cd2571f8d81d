//! The TUN of macOS (`utun`) and of Windows (`wintun`), by the crate `tun-rs`. `make check-portable` compiles
//! it; no test runs it.
//!
//! ```text
//!   stack ── a channel ── its far end ─┬─ a thread: recv ─▶ send ─┬─ the system's interface
//!                                      └─ a thread: put ◀── recv ─┘
//! ```
//!
//! A packet has left when the system has taken it. When the interface is gone, the device ends with the next
//! packet that the stack sends.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use taut_core::{BUFFER_BYTES, LinkCaps, TxPacket};
use taut_driver::Device;
use tun_rs::{DeviceBuilder, InterruptEvent, SyncDevice};

use super::{FarEnd, channel};
use crate::Cidr;

/// In front of the interface's name.
#[cfg(target_os = "macos")]
const PREFIX: &str = "utun:";
#[cfg(windows)]
const PREFIX: &str = "wintun:";

/// The name of an interface whose caller gave none: macOS picks the next free number.
#[cfg(windows)]
const DEFAULT_NAME: &str = "taut";

/// Bytes that may wait in each direction.
const WAITING_MAX: usize = 1 << 20;

/// An interface of this system whose other end is a stack. It is removed when the stack ends.
pub struct SystemTun {
    device: Device,
    name: String,
}

impl SystemTun {
    /// Creates an interface: `utun:` or `utun:utun7` on macOS, `wintun:` or `wintun:NAME` on Windows, where
    /// `wintun.dll` must be beside the program. The system's side has the addresses of `host`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for another name, [`io::ErrorKind::PermissionDenied`] without an
    /// administrator's rights, and the system's errors.
    pub fn open(device: &str, host: &[Cidr], mtu: u16) -> io::Result<Self> {
        let Some(name) = device.strip_prefix(PREFIX) else {
            let message = format!("{device:?} is no device of this system: use {PREFIX} or {PREFIX}NAME");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        let mut builder = DeviceBuilder::new().mtu(mtu);
        #[cfg(windows)]
        let name = if name.is_empty() { DEFAULT_NAME } else { name };
        if !name.is_empty() {
            builder = builder.name(name);
        }
        for own in host {
            builder = match own.address() {
                IpAddr::V4(ip) => builder.ipv4(ip, own.prefix(), None),
                IpAddr::V6(ip) => builder.ipv6(ip, own.prefix()),
            };
        }
        let tun = builder.build_sync()?;
        #[cfg(unix)]
        tun.set_nonblocking(true)?;
        let name = tun.name()?;
        let (device, far) = channel(LinkCaps::plain(mtu), WAITING_MAX);
        Shared { tun, far, ended: InterruptEvent::new()?, is_over: AtomicBool::new(false) }.start(&name)?;
        Ok(Self { device, name })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for SystemTun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemTun").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<SystemTun> for Device {
    fn from(tun: SystemTun) -> Self {
        tun.device
    }
}

/// State of the two threads.
struct Shared {
    tun: SyncDevice,
    far: FarEnd,
    /// Wakes the thread that receives.
    ended: InterruptEvent,
    /// The stack has ended, or the interface is gone.
    is_over: AtomicBool,
}

impl Shared {
    fn start(self, name: &str) -> io::Result<()> {
        let sender = Arc::new(self);
        let receiver = Arc::clone(&sender);
        thread::Builder::new().name(format!("{name}-rx")).spawn(move || receiver.receive())?;
        let ends = Arc::clone(&sender);
        let started = thread::Builder::new().name(format!("{name}-tx")).spawn(move || sender.send());
        started.map(drop).inspect_err(|_| ends.end())
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        _ = self.ended.trigger();
    }

    fn send(&self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(parcel) = self.far.recv() {
            if self.is_over.load(Ordering::Acquire) {
                break;
            }
            if let Some(len) = parcel.copy_to(&mut buffer) {
                // One that the system refuses is lost, as on any link.
                _ = self.tun.send(&buffer[..len]);
            }
        }
        self.end();
    }

    fn receive(&self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match self.tun.recv_intr(&mut buffer, &self.ended) {
                // Without room it is lost, as in a full queue of the system.
                Ok(len) => _ = self.far.put(&TxPacket::whole(&buffer[..len])),
                // A signal.
                Err(error)
                    if error.kind() == io::ErrorKind::Interrupted
                        && !self.is_over.load(Ordering::Acquire) => {}
                Err(_) => break,
            }
        }
        self.end();
    }
}
