//! Observers: they receive events and cannot change anything. Called by every part of the world.
//!
//! A probe says which events it is interested in, and events that no probe wants are not even assembled: a
//! world without probes only tests a flag.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use taut_core::{Blocked, ConnId, ConnInfo, Instant};
use taut_wire::TcpHeader;

use crate::ids::{AppId, HostId, RouterId};
use crate::packet::{PacketId, Pool};

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The root queue discipline of a host.
    Root(HostId),
    /// The NIC of a host.
    Nic(HostId),
    /// A port of a router, by its number; `usize::MAX` when there was no route to the host.
    Port(RouterId, usize),
    /// A wire, by its number.
    Wire(u32),
}

/// The events that a probe wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Packets: [`ProbeEvent::Handed`], [`Sent`](ProbeEvent::Sent), [`Delivered`](ProbeEvent::Delivered) and
    /// [`Dropped`](ProbeEvent::Dropped).
    pub packets: bool,
    /// [`ProbeEvent::Ack`].
    pub acks: bool,
    /// [`ProbeEvent::Wrote`], [`Read`](ProbeEvent::Read) and [`Woken`](ProbeEvent::Woken).
    pub apps: bool,
    /// [`ProbeEvent::Interrupt`] and [`Timer`](ProbeEvent::Timer).
    pub interrupts: bool,
    /// [`ProbeEvent::Blocked`].
    pub blocked: bool,
}

impl Interest {
    /// All events.
    pub const ALL: Self = Self { packets: true, acks: true, apps: true, interrupts: true, blocked: true };
}

/// A packet, for a probe to look at.
#[derive(Clone, Copy)]
pub struct PacketView<'a> {
    pool: &'a Pool,
    id: &'a PacketId,
}

impl fmt::Debug for PacketView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} to {:?}, {} bytes in {}: {:?}",
            self.from(),
            self.to(),
            self.len(),
            self.segs(),
            self.tcp()
        )
    }
}

impl<'a> PacketView<'a> {
    pub(crate) fn new(pool: &'a Pool, id: &'a PacketId) -> Self {
        Self { pool, id }
    }

    /// The host whose stack made it.
    #[must_use]
    pub fn from(&self) -> HostId {
        self.pool.get(self.id).from
    }

    /// The host that it is for.
    #[must_use]
    pub fn to(&self) -> HostId {
        self.pool.get(self.id).to
    }

    /// A number that is equal for all packets of a connection in one direction.
    #[must_use]
    pub fn flow(&self) -> u64 {
        self.pool.get(self.id).flow
    }

    /// Segments that it makes on the wire.
    #[must_use]
    pub fn segs(&self) -> u32 {
        self.pool.segs(self.id)
    }

    /// Bytes of those segments, as IP packets.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.pool.len(self.id)
    }

    /// Never true: a packet has headers. It complements [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes behind the headers.
    #[must_use]
    pub fn payload_len(&self) -> u32 {
        self.pool.payload_len(self.id)
    }

    /// When its stack handed it out.
    #[must_use]
    pub fn handed(&self) -> Instant {
        self.pool.get(self.id).handed
    }

    /// Its IP and TCP headers. Checksums left to the NIC may be missing from a packet that no fault has
    /// changed.
    #[must_use]
    pub fn header(&self) -> &'a [u8] {
        self.pool.header(self.id)
    }

    /// Its TCP header, if complete.
    #[must_use]
    pub fn tcp(&self) -> Option<TcpHeader> {
        self.pool.get(self.id).tcp()
    }
}

/// An event.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProbeEvent<'a> {
    /// A stack handed a packet down; its root queue holds `backlog_bytes` with it.
    Handed {
        /// The stack's host.
        host: HostId,
        /// The packet, or super-packet.
        packet: PacketView<'a>,
        /// Bytes in the root queue, this packet's included.
        backlog_bytes: u64,
    },
    /// A line began to send a packet.
    Sent {
        /// The line.
        place: Place,
        /// The packet; from a NIC, each segment separately.
        packet: PacketView<'a>,
        /// When its last bit goes out.
        at: Instant,
    },
    /// A packet arrived at a host's NIC.
    Delivered {
        /// The host.
        host: HostId,
        /// The packet.
        packet: PacketView<'a>,
    },
    /// A packet was dropped.
    Dropped {
        /// Where it was dropped.
        place: Place,
        /// The packet.
        packet: PacketView<'a>,
    },
    /// A stack has processed packets that brought ACKs for a connection.
    Ack {
        /// The stack's host.
        host: HostId,
        /// The connection.
        conn: ConnId,
        /// Its state now.
        info: &'a ConnInfo,
    },
    /// An application wrote.
    Wrote {
        /// The host.
        host: HostId,
        /// The application.
        app: AppId,
        /// The connection.
        conn: ConnId,
        /// Bytes accepted.
        bytes: u64,
    },
    /// An application read.
    Read {
        /// The host.
        host: HostId,
        /// The application.
        app: AppId,
        /// The connection.
        conn: ConnId,
        /// Bytes read.
        bytes: u64,
    },
    /// An application was woken.
    Woken {
        /// The host.
        host: HostId,
        /// The application.
        app: AppId,
    },
    /// A NIC raised an interrupt.
    Interrupt {
        /// The NIC's host.
        host: HostId,
        /// True for sent packets, false for received ones.
        transmit: bool,
        /// Number of packets that it announces.
        frames: u32,
    },
    /// A stack's timer fired.
    Timer {
        /// The stack's host.
        host: HostId,
    },
    /// A connection is held back by another gate than before.
    Blocked {
        /// The stack's host.
        host: HostId,
        /// The connection.
        conn: ConnId,
        /// The gate.
        gate: Blocked,
    },
}

/// An observer.
pub trait Probe {
    /// The events that it wants; asked when it is added, and again whenever the world is run.
    fn interest(&self) -> Interest {
        Interest::ALL
    }

    /// An event happened at `now`.
    fn on(&mut self, now: Instant, what: &ProbeEvent<'_>);
}

impl<P: Probe + ?Sized> Probe for Rc<RefCell<P>> {
    fn interest(&self) -> Interest {
        self.borrow().interest()
    }

    fn on(&mut self, now: Instant, what: &ProbeEvent<'_>) {
        self.borrow_mut().on(now, what);
    }
}

/// All observers of a world.
#[derive(Default)]
pub(crate) struct Probes {
    all: Vec<(Interest, Box<dyn Probe>)>,
    /// The events that any of them wants.
    pub(crate) want: Interest,
}

impl Probes {
    pub(crate) fn add(&mut self, probe: Box<dyn Probe>) {
        self.all.push((Interest::default(), probe));
        self.ask();
    }

    /// Asks all probes what they want now.
    pub(crate) fn ask(&mut self) {
        self.want = Interest::default();
        for (interest, probe) in &mut self.all {
            *interest = probe.interest();
            self.want.packets |= interest.packets;
            self.want.acks |= interest.acks;
            self.want.apps |= interest.apps;
            self.want.interrupts |= interest.interrupts;
            self.want.blocked |= interest.blocked;
        }
    }

    pub(crate) fn tell(&mut self, now: Instant, what: &ProbeEvent<'_>) {
        for (interest, probe) in &mut self.all {
            let wanted = match what {
                ProbeEvent::Handed { .. }
                | ProbeEvent::Sent { .. }
                | ProbeEvent::Delivered { .. }
                | ProbeEvent::Dropped { .. } => interest.packets,
                ProbeEvent::Ack { .. } => interest.acks,
                ProbeEvent::Wrote { .. } | ProbeEvent::Read { .. } | ProbeEvent::Woken { .. } => {
                    interest.apps
                }
                ProbeEvent::Interrupt { .. } | ProbeEvent::Timer { .. } => interest.interrupts,
                ProbeEvent::Blocked { .. } => interest.blocked,
            };
            if wanted {
                probe.on(now, what);
            }
        }
    }
}
