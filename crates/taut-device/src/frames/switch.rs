//! A stream socket for each of several machines at one link, whose stack is their router: they reach it, and
//! each other. The frames are as [`Frames::stream`](super::Frames::stream) has them.
//!
//! ```text
//!   stack ── tx.rs ─┐                        ┌─ port.rs: a queue, the socket of a machine
//!                   ├─ line: the link layer, ├─ port.rs
//!         ── rx.rs ─┘  who is at which port ─┴─ …
//!                       taut-ethernet/src/switch.rs
//! ```
//!
//! **A machine that does not read** has a queue of its own, which is bounded, and stops no other: packets
//! beyond are dropped, as by a switch. A connection has no more in it than its small queue lets it.
//!
//! **A machine that floods** takes its turn: eight frames of a port at a time. Its frames for another machine
//! take a bounded part of that one's queue.

mod port;
mod rx;
mod tx;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use taut_core::{Instant, LinkCaps, TxTicket};
use taut_driver::Device;
use taut_driver::sys::{Epoll, Interest, TimerFd};
use taut_ethernet::{Ethernet, FRAME_MAX, Leased, PortId, Refused};
use taut_wire::{Mac, pcapng};

use super::line::{Parcel, now};
use super::{FramesOptions, LeaseTable, Leasing, check_mtu, link_layer, of_whole_pages};
use crate::capture::CaptureFile;
use crate::cidr::Cidr;
use port::Port;

/// How many ports there have been, of all links.
static PORTS: AtomicU32 = AtomicU32::new(1);

/// News of a port.
#[derive(Debug)]
pub enum PortNews {
    /// Its machine is gone, for this reason.
    Gone(PortId, io::Error),
    /// It has sent what another one has: a station, an address. Once for each of the two.
    Refused(PortId, Refused),
}

/// Whom they are reported to, by the thread that drives the device.
pub type PortLog = Box<dyn Fn(PortNews) + Send + Sync>;

/// A link with ports. Machines are plugged in while a stack has it ([`Ports::plug`]).
#[derive(Debug)]
pub struct Switch {
    hub: Arc<Hub>,
    caps: LinkCaps,
}

/// The ports of a [`Switch`], also while a stack has it. They do not keep the link open.
#[derive(Clone, Debug)]
pub struct Ports(Weak<Hub>);

/// Shared by both halves.
struct Hub {
    news: Epoll,
    timer: TimerFd,
    line: Mutex<Line>,
    /// How often the list of ports has changed.
    changes: AtomicU32,
    log: PortLog,
    capture: Option<CaptureFile>,
}

/// The link layer, the ports, and what the timer is for.
#[derive(Debug)]
struct Line {
    ethernet: Ethernet<Parcel>,
    ports: Vec<Arc<Port>>,
    /// When frames that machines have not read yet must be looked at.
    look_at: Instant,
    /// The receiving half has more.
    has_more: bool,
    /// When the timer expires.
    armed: Instant,
    /// Of packets for ports that are gone.
    orphans: Vec<TxTicket>,
}

impl Switch {
    /// A link without machines.
    ///
    /// # Errors
    /// Those of [`Frames::stream`](super::Frames::stream); [`io::ErrorKind::InvalidInput`] for frames without
    /// Ethernet, or with a virtio-net header.
    pub fn new(addresses: &[Cidr], options: &FramesOptions, log: PortLog) -> io::Result<Self> {
        check_mtu(addresses, options)?;
        if !options.ethernet || options.vnet_header == Some(true) {
            return Err(super::invalid("a switch carries plain frames of Ethernet".to_owned()));
        }
        let (ethernet, _) = link_layer(addresses, options)?;
        let (news, timer, never) = (Epoll::new()?, TimerFd::new()?, Instant::NEVER);
        news.add(timer.as_fd(), 0, Interest::Readable)?;
        let line = Line {
            ethernet,
            ports: Vec::new(),
            look_at: never,
            has_more: false,
            armed: never,
            orphans: Vec::new(),
        };
        let (line, changes) = (Mutex::new(line), AtomicU32::new(0));
        let hub = Hub { news, timer, line, changes, log, capture: options.capture.clone() };
        Ok(Self { hub: Arc::new(hub), caps: LinkCaps::plain(of_whole_pages(options.mtu)) })
    }

    /// Its ports.
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports(Arc::downgrade(&self.hub))
    }

    /// See [`Frames::leases`](super::Frames::leases).
    #[must_use]
    pub fn leases(&self) -> LeaseTable {
        let hub: Arc<dyn Leasing> = Arc::<Hub>::clone(&self.hub);
        LeaseTable(Arc::downgrade(&hub))
    }
}

impl From<Switch> for Device {
    fn from(Switch { hub, caps }: Switch) -> Self {
        Self::new(caps, tx::SwitchTx::new(Arc::clone(&hub)), rx::SwitchRx::new(hub))
    }
}

impl Ports {
    /// A machine is at the other end of this connected socket. `None` if there is no room for it, or the link
    /// is gone.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn plug(&self, socket: UnixStream) -> io::Result<Option<PortId>> {
        let Some(hub) = self.0.upgrade() else { return Ok(None) };
        socket.set_nonblocking(true)?;
        let id = PortId(PORTS.fetch_add(1, Ordering::Relaxed));
        let port = Port::new(id, socket, &hub.news)?;
        let mut line = hub.line();
        if !line.ethernet.plug(id) {
            return Ok(None);
        }
        line.ports.push(Arc::new(port));
        hub.changes.fetch_add(1, Ordering::Release);
        Ok(Some(id))
    }

    /// Its machine is gone.
    pub fn unplug(&self, id: PortId) {
        if let Some(hub) = self.0.upgrade() {
            hub.unplug(id);
        }
    }

    /// The port that has this address.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<PortId> {
        self.0.upgrade()?.line().ethernet.owner(address)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("line", &self.line).finish_non_exhaustive()
    }
}

impl Leasing for Hub {
    fn leased(&self) -> Vec<Leased> {
        self.line().ethernet.leases(now())
    }
}

impl Line {
    /// The ports that a frame for this station goes to.
    fn towards(&self, station: Mac) -> impl Iterator<Item = &Arc<Port>> {
        let is_group = station.is_group();
        let to = if is_group { None } else { self.ethernet.port_of(station) };
        self.ports.iter().filter(move |port| is_group || to == Some(port.id))
    }
}

impl Line {
    /// Packets with these tickets are lost: the sending half collects them.
    fn orphan(&mut self, tickets: impl IntoIterator<Item = TxTicket>) {
        let before = self.orphans.len();
        self.orphans.extend(tickets);
        if self.orphans.len() > before {
            self.look_at = Instant::ZERO;
        }
    }
}

impl Hub {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor that is readable when frames have come, there is room, or the timer has expired.
    fn news(&self) -> io::Result<OwnedFd> {
        self.news.as_fd().try_clone_to_owned()
    }

    /// A frame goes to the capture, if there is one.
    fn record<'a>(&self, frame: impl Iterator<Item = &'a [u8]> + Clone) {
        if let Some(capture) = &self.capture {
            capture.record(pcapng::LINKTYPE_ETHERNET, frame);
        }
    }

    /// Sends a frame of this host's to the ports that it goes to.
    fn pass(&self, line: &Line, station: Mac, frame: &[u8]) {
        let mut to = line.towards(station).peekable();
        if to.peek().is_some() {
            self.record(std::iter::once(frame));
        }
        to.for_each(|port| port.pass(&self.news, frame));
    }

    /// Closes a port; returns whether there was one.
    fn unplug(&self, id: PortId) -> bool {
        let mut line = self.line();
        let Some(at) = line.ports.iter().position(|port| port.id == id) else { return false };
        let port = line.ports.remove(at);
        line.ethernet.unplug(now(), id);
        line.orphan(port.close());
        self.changes.fetch_add(1, Ordering::Release);
        self.settle(&mut line);
        true
    }

    /// Sends what the link layer has to say, and arms the timer: at the end of each use of the line.
    fn settle(&self, line: &mut Line) {
        let mut frame = [0; FRAME_MAX];
        while let Some(len) = line.ethernet.poll_frame(&mut frame) {
            let message = frame.get(..len).unwrap_or_default();
            let Some(station) = message.first_chunk() else { continue };
            self.pass(line, Mac(*station), message);
        }
        let at = match () {
            () if line.has_more || line.ethernet.has_resolved() => Instant::ZERO,
            () => line.look_at.min(line.ethernet.poll_timeout()),
        };
        if at != line.armed {
            match at {
                Instant::NEVER => self.timer.disarm(),
                at => self.timer.arm(at.as_nanos()),
            }
            line.armed = at;
        }
    }

    /// Nothing has come: handles what the link layer's timers ask for.
    fn handle_timeout(&self) {
        let mut line = self.line();
        if line.armed == Instant::NEVER {
            return;
        }
        let now = now();
        if line.ethernet.poll_timeout() <= now {
            line.ethernet.handle_timeout(now);
        }
        line.has_more = false;
        self.settle(&mut line);
    }
}
