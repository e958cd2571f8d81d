//! What the two halves of a packet device share: the sockets, the neighbours, and a timer. Called by `tx.rs`
//! and `rx.rs`, and by those of the device `xdp`, which has one packet socket for both.
//!
//! **The timer** is in the set of descriptors on which the receiving half announces packets. It is armed when
//! a neighbour is to be asked again; when packets below must be looked at, because one that a queue drops is
//! never reported; at once, when the receiving half has learnt where waiting packets go, because the sending
//! half sends them; at once, too, when there are changes of the network, because the driver must take them;
//! and while the interface is down, because the kernel does not report that one that is down has been
//! deleted.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
#[cfg(feature = "xdp")]
use std::task::Waker;

use rustix::net::netdevice;
use taut_core::{Duration, Instant, KeptPacket, NetworkChange, TxPacket, TxTicket};
use taut_driver::Sent;
use taut_driver::sys::{Epoll, Interest, TimerFd, monotonic_ns};
use taut_ethernet::{Ethernet, FRAME_MAX, Hop, Resolved};
use taut_wire::{Mac, VnetHeader, ndp};

use super::no_route;
use crate::sys::packet_socket::{self, Along};

/// How often an interface that is down is looked for.
const LOOK_FOR_IT_EVERY: Duration = Duration::from_millis(100);

/// A packet that waits for its neighbour.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) packet: KeptPacket,
    pub(crate) ticket: TxTicket,
}

impl Parcel {
    /// Its neighbour is known, or will never be: sends it by `transmit`, and returns its ticket if that comes
    /// back now. The device has taken the ticket already, so a packet for which there is no room is lost.
    pub(crate) fn resolved(
        resolved: Resolved<Self>,
        transmit: impl FnOnce(&[u8; 14], &TxPacket<'_>, TxTicket) -> Sent,
    ) -> Option<TxTicket> {
        let sent = match resolved {
            Resolved::Lost(Self { ticket, .. }) => return Some(ticket),
            Resolved::Ready(header, Self { packet, ticket }) => transmit(&header, &packet.packet(), ticket),
        };
        match sent {
            Sent::Kept => None,
            Sent::Left(ticket) | Sent::Full(ticket) | Sent::Dropped(ticket) | Sent::Never(ticket, _) => {
                Some(ticket)
            }
        }
    }
}

/// Both halves of the device.
#[derive(Debug)]
pub(crate) struct Shared {
    name: String,
    index: u32,
    pub(crate) send: OwnedFd,
    pub(crate) receive: OwnedFd,
    /// The receiving socket and the timer.
    news: Epoll,
    timer: TimerFd,
    line: Mutex<Line>,
    /// The interface was down when last heard of: the sockets report it once for each change.
    is_down: AtomicBool,
    /// It is gone for good.
    is_gone: AtomicBool,
    /// The other queues of this host on the interface.
    others: OnceLock<Vec<Weak<Self>>>,
    /// Held while they are told of a lease, so that all hear of changes in the same order. No line is locked
    /// when it is taken.
    telling: Mutex<()>,
}

/// The neighbours, and what the timer is for.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) ethernet: Ethernet<Parcel>,
    /// When packets below must be looked at.
    pub(crate) look_at: Instant,
    /// When the interface, which is down, must be looked for.
    look_for_it_at: Instant,
    /// What the timer is armed for.
    armed: Instant,
    /// To be called when `look_at` has come, by a device whose sending half has no descriptor.
    #[cfg(feature = "xdp")]
    pub(crate) waker: Option<Waker>,
}

/// The time of this host. The contract of devices has no time, and only devices of the kernel need it.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

impl Shared {
    /// The header that leads a packet to its neighbour, if that is known. Else it waits, and a packet that
    /// gives way to it is done.
    pub(crate) fn direct(
        &self,
        packet: &TxPacket<'_>,
        ticket: TxTicket,
        done: &mut VecDeque<TxTicket>,
    ) -> Result<([u8; 14], TxTicket), Sent> {
        let mut line = self.line();
        match line.ethernet.next_hop(now(), packet.header) {
            Hop::Ready(header) => Ok((header, ticket)),
            Hop::Wait(neighbour) => {
                let lost = line.ethernet.wait(neighbour, Parcel { packet: packet.keep(), ticket });
                if let Some(Parcel { ticket, .. }) = lost {
                    done.push_back(ticket);
                    // So that it is collected.
                    line.look_at = Instant::ZERO;
                }
                self.settle(&mut line);
                Err(Sent::Kept)
            }
            Hop::NoRoute => Err(Sent::Never(ticket, no_route(packet.header))),
        }
    }

    pub(crate) fn new(
        name: &str,
        index: u32,
        send: OwnedFd,
        receive: OwnedFd,
        ethernet: Ethernet<Parcel>,
    ) -> io::Result<Self> {
        let (news, timer) = (Epoll::new()?, TimerFd::new()?);
        news.add(receive.as_fd(), 0, Interest::Readable)?;
        news.add(timer.as_fd(), 1, Interest::Readable)?;
        let never = Instant::NEVER;
        let line = Mutex::new(Line {
            ethernet,
            look_at: never,
            look_for_it_at: never,
            armed: never,
            #[cfg(feature = "xdp")]
            waker: None,
        });
        let name = name.to_owned();
        let (is_down, is_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        let (others, telling) = (OnceLock::new(), Mutex::new(()));
        Ok(Self { name, index, send, receive, news, timer, line, is_down, is_gone, others, telling })
    }

    /// These queues of the same host get a part of the packets each. To be called once.
    pub(crate) fn set_others(&self, others: Vec<Weak<Self>>) {
        let set = self.others.set(others);
        debug_assert!(set.is_ok());
    }

    /// A message between neighbours has come to this queue, which answers it. The others send to the same
    /// neighbours. The caller has no line locked.
    pub(crate) fn pass_on(&self, frame: &[u8]) {
        for other in self.others.get().into_iter().flatten().filter_map(Weak::upgrade) {
            let mut line = other.line();
            line.ethernet.overhear(now(), frame);
            other.settle(&mut line);
            drop(line);
            other.tell();
        }
    }

    /// Tells the other queues what a server has changed, if anything. The caller has no line locked.
    pub(crate) fn tell(&self) {
        let Some(others) = self.others.get() else { return };
        let _in_order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<_> = others.iter().filter_map(Weak::upgrade).collect();
        while others.iter().all(|other| other.line().ethernet.can_follow()) {
            let Some(change) = self.line().ethernet.poll_shared() else { return };
            for other in &others {
                let mut line = other.line();
                line.ethernet.follow(change);
                other.settle(&mut line);
            }
        }
    }

    /// The stack's owner changes the network. Returns whether the stack may be told at once.
    pub(crate) fn change_network(&self, change: NetworkChange) -> bool {
        if let NetworkChange::AddAddress(own) = change {
            self.join(own.address);
        }
        let is_now = {
            let mut line = self.line();
            let is_now = line.ethernet.change_network(now(), change);
            self.settle(&mut line);
            is_now
        };
        self.tell();
        is_now
    }

    /// The next change that the stack must be told.
    pub(crate) fn poll_change(&self) -> Option<NetworkChange> {
        let mut line = self.line();
        let change = line.ethernet.poll_change();
        if change.is_none() && line.armed == Instant::ZERO {
            // It had been armed for the changes.
            self.settle(&mut line);
        }
        change
    }

    /// Packets come by this socket, too.
    #[cfg(feature = "xdp")]
    pub(crate) fn watch(&self, socket: &OwnedFd) -> io::Result<()> {
        self.news.add(socket.as_fd(), 2, Interest::Readable)
    }

    /// Whether the interface was found to be gone.
    #[cfg(feature = "xdp")]
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The interface accepts what is sent to the neighbours of this address from now on.
    fn join(&self, own: IpAddr) {
        if let IpAddr::V6(v6) = own {
            let group = Mac::of_multicast(ndp::solicited_node(v6));
            // Without it, neighbours find the address only if the interface hears every group anyway.
            _ = packet_socket::accept(&self.receive, self.index, group);
        }
    }

    /// The interface accepts what is sent to this group of multicast from now on.
    pub(super) fn join_group(&self, group: IpAddr) {
        let station = match group {
            IpAddr::V4(v4) => Mac::of_multicast_v4(v4),
            IpAddr::V6(v6) => Mac::of_multicast(v6),
        };
        // Without it, the group is heard only if the interface hears every group anyway.
        _ = packet_socket::accept(&self.receive, self.index, station);
    }

    /// The descriptor that is readable when packets have come or the timer has expired.
    pub(crate) fn news(&self) -> io::Result<OwnedFd> {
        self.news.as_fd().try_clone_to_owned()
    }

    pub(crate) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what neighbours ask each other, and arms the timer: at the end of each use of the line.
    pub(crate) fn settle(&self, line: &mut Line) {
        let mut frame = [0; FRAME_MAX];
        while let Some(len) = line.ethernet.poll_frame(&mut frame) {
            let pieces =
                [IoSlice::new(&[0; VnetHeader::LEN]), IoSlice::new(frame.get(..len).unwrap_or_default())];
            // One that cannot be sent is lost, as on the wire, and asked again.
            let _ = packet_socket::send(&self.receive, &pieces, Along::default());
        }
        let at = if line.ethernet.has_resolved() || line.ethernet.has_changes() {
            Instant::ZERO
        } else {
            line.look_at.min(line.look_for_it_at).min(line.ethernet.poll_timeout())
        };
        if at != line.armed {
            match at {
                Instant::NEVER => self.timer.disarm(),
                at => self.timer.arm(at.as_nanos()),
            }
            line.armed = at;
        }
    }

    /// Nothing has come: handles what the neighbours' timers ask for, and looks for an interface that is
    /// down. Returns why it is gone, if it is.
    pub(crate) fn handle_timeout(&self) -> io::Result<()> {
        let mut line = self.line();
        if line.armed == Instant::NEVER {
            return Ok(());
        }
        let now = now();
        if line.look_for_it_at <= now {
            line.look_for_it_at = Instant::NEVER;
            if self.is_down.load(Ordering::Relaxed) {
                self.must_exist()?;
                line.look_for_it_at = now + LOOK_FOR_IT_EVERY;
            }
            self.settle(&mut line);
        }
        if line.ethernet.poll_timeout() <= now {
            line.ethernet.handle_timeout(now);
            self.settle(&mut line);
            drop(line);
            self.tell();
        }
        Ok(())
    }

    /// The interface has changed its state. Returns why it is gone, if it is.
    ///
    /// The kernel reports a change by an error of each socket, which stays until it is read; a socket with an
    /// error would keep the driver awake.
    pub(crate) fn handle_down(&self) -> io::Result<()> {
        self.is_down.store(true, Ordering::Relaxed);
        packet_socket::take_error(&self.send);
        self.must_exist()?;
        // When it is deleted, it goes down first.
        let mut line = self.line();
        line.look_for_it_at = now() + LOOK_FOR_IT_EVERY;
        self.settle(&mut line);
        Ok(())
    }

    fn must_exist(&self) -> io::Result<()> {
        if netdevice::index_to_name(&self.receive, self.index).is_err() {
            self.is_gone.store(true, Ordering::Relaxed);
            let message = format!("the interface {} was deleted, or moved to another namespace", self.name);
            return Err(io::Error::new(io::ErrorKind::NetworkDown, message));
        }
        Ok(())
    }

    /// Clears an error that came after the one that was handled.
    pub(crate) fn clear_errors(&self) {
        if self.is_down.load(Ordering::Relaxed) {
            packet_socket::take_error(&self.send);
        }
    }

    /// A packet has come or left: the interface is up.
    pub(crate) fn note_up(&self) {
        if self.is_down.load(Ordering::Relaxed) {
            self.is_down.store(false, Ordering::Relaxed);
        }
    }
}
