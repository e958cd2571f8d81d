//! What the two halves of a device of frames share: the carrier, the neighbours, and a timer. Called by
//! `tx.rs` and `rx.rs`.
//!
//! **The timer** is in the set of descriptors on which the receiving half announces packets. It is armed when
//! a neighbour is to be asked again; while frames wait for the peer to read them, because a socket does not
//! tell when it does; and at once, when the receiving half has more than it could give, or has learnt where
//! waiting packets go.
//!
//! **Room** is announced by the same set, after a frame that the carrier had no room for, and only then: else
//! each frame that the peer reads would wake the driver.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use taut_core::Instant;
use taut_driver::sys::{Epoll, Interest, TimerFd, monotonic_ns};
use taut_ethernet::{Ethernet, FRAME_MAX};
use taut_wire::VnetHeader;

use super::carrier::Carrier;
use crate::capture::CaptureFile;
pub(super) use crate::packet::line::Parcel;

/// The key of the carrier's room in the set.
pub(super) const ROOM: u64 = 2;

/// Both halves of the device.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) carrier: Carrier,
    /// There is a virtio-net header in front of each frame.
    pub(super) vnet_header: bool,
    /// What the device is, for messages.
    pub(super) name: String,
    /// Gets the frames, as those of this type of link.
    capture: Option<(CaptureFile, u16)>,
    /// The carrier, the timer, and the carrier once more while it is full.
    pub(super) news: Epoll,
    /// The carrier, to wait for its room.
    room: OwnedFd,
    timer: TimerFd,
    line: Mutex<Line>,
}

/// The neighbours, and what the timer is for.
#[derive(Debug)]
pub(super) struct Line {
    /// `None` on a link that carries IP packets.
    pub(super) ethernet: Option<Ethernet<Parcel>>,
    /// When what the peer has not read yet must be looked at.
    pub(super) look_at: Instant,
    /// The receiving half has more.
    pub(super) has_more: bool,
    /// The carrier had no room, and its room is waited for.
    watches_room: bool,
    /// What the timer is armed for.
    armed: Instant,
}

/// The time of this host. The contract of devices has no time, and only devices of the kernel need it.
pub(super) fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

impl Shared {
    pub(super) fn new(
        carrier: Carrier,
        vnet_header: bool,
        name: String,
        ethernet: Option<Ethernet<Parcel>>,
        capture: Option<(CaptureFile, u16)>,
    ) -> io::Result<Self> {
        let (news, timer) = (Epoll::new()?, TimerFd::new()?);
        news.add(carrier.as_fd(), 0, Interest::Readable)?;
        news.add(timer.as_fd(), 1, Interest::Readable)?;
        let room = carrier.as_fd().try_clone_to_owned()?;
        news.add(room.as_fd(), ROOM, Interest::Nothing)?;
        let never = Instant::NEVER;
        let (has_more, watches_room) = (false, false);
        let line = Mutex::new(Line { ethernet, look_at: never, has_more, watches_room, armed: never });
        Ok(Self { carrier, vnet_header, name, capture, news, room, timer, line })
    }

    /// The descriptor that is readable when frames have come or the timer has expired.
    pub(super) fn news(&self) -> io::Result<OwnedFd> {
        self.news.as_fd().try_clone_to_owned()
    }

    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes in front of a frame.
    pub(super) const fn vnet_len(&self) -> usize {
        if self.vnet_header { VnetHeader::LEN } else { 0 }
    }

    /// A frame without its virtio-net header goes to the capture, if there is one.
    pub(super) fn record<'a>(&self, frame: impl Iterator<Item = &'a [u8]> + Clone) {
        if let Some((capture, link_type)) = &self.capture {
            capture.record(*link_type, frame);
        }
    }

    /// Sends what neighbours ask each other, and arms the timer: at the end of each use of the line.
    pub(super) fn settle(&self, line: &mut Line) {
        let vnet_header = [0; VnetHeader::LEN];
        let mut frame = [0; FRAME_MAX];
        while let Some(len) = line.ethernet.as_mut().and_then(|ethernet| ethernet.poll_frame(&mut frame)) {
            let vnet_header = &vnet_header[..self.vnet_len()];
            let message = frame.get(..len).unwrap_or_default();
            let mut pieces = [&[][..], vnet_header, message].map(IoSlice::new);
            // One that cannot be sent is lost, as on the wire, and asked again.
            if self.carrier.send(&mut pieces, vnet_header.len() + len).is_ok() {
                self.record(std::iter::once(message));
            }
        }
        let at = match &line.ethernet {
            _ if line.has_more => Instant::ZERO,
            Some(ethernet) if ethernet.has_resolved() => Instant::ZERO,
            Some(ethernet) => line.look_at.min(ethernet.poll_timeout()),
            None => line.look_at,
        };
        if at != line.armed {
            match at {
                Instant::NEVER => self.timer.disarm(),
                at => self.timer.arm(at.as_nanos()),
            }
            line.armed = at;
        }
    }

    /// The carrier had no room: announces it when it has some.
    pub(super) fn watch_room(&self) {
        let mut line = self.line();
        line.watches_room = true;
        self.await_room(Interest::Writable);
    }

    fn await_room(&self, interest: Interest) {
        // Cannot fail: it is in the set.
        let _ = self.news.modify(self.room.as_fd(), ROOM, interest);
    }

    /// Nothing has come: handles what the neighbours' timers ask for.
    pub(super) fn handle_timeout(&self) {
        let mut line = self.line();
        if std::mem::take(&mut line.watches_room) {
            // The driver is awake, and tries again.
            self.await_room(Interest::Nothing);
        }
        if line.armed == Instant::NEVER {
            return;
        }
        let now = now();
        if let Some(ethernet) = &mut line.ethernet
            && ethernet.poll_timeout() <= now
        {
            ethernet.handle_timeout(now);
        }
        line.has_more = false;
        self.settle(&mut line);
    }
}
