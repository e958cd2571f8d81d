//! The peer of a datagram socket that takes whoever sends: `unix(7)`. Called by `carrier.rs` for each frame,
//! and by the owner of the device from time to time.
//!
//! **Problem.** A socket that is connected takes datagrams of its peer alone, and nothing tells that the peer
//! is gone, until something is sent to it. So the next program that uses the socket would be refused, perhaps
//! for minutes. **Rule.** The socket is connected once more, to the same address. If the peer is there, that
//! changes nothing; if another program has this address now, it is the peer; and if nobody has, the socket is
//! connected to nobody, and the next program that sends a frame is the peer.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::net::{SocketAddrUnix, connect, connect_unspec};

/// The peer of a socket ([`Frames::to_sender`](super::Frames::to_sender)).
#[derive(Debug)]
pub struct Peer {
    socket: OwnedFd,
    address: Mutex<Option<SocketAddrUnix>>,
}

impl Peer {
    pub(super) const fn nobody(socket: OwnedFd) -> Self {
        Self { socket, address: Mutex::new(None) }
    }

    /// A frame has come from this address. One without a name cannot be answered, and changes nothing.
    pub(super) fn heard(&self, from: SocketAddrUnix) {
        let mut address = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unnamed = from.is_unnamed();
        if is_unnamed || address.as_ref() == Some(&from) {
            return;
        }
        // It may have gone already.
        if connect(&self.socket, &from).is_ok() {
            *address = Some(from);
        }
    }

    /// Whether there is one now: call it from time to time.
    ///
    /// # Errors
    /// The socket cannot be disconnected.
    pub fn is_there(&self) -> io::Result<bool> {
        let mut address = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = &*address else { return Ok(false) };
        if connect(&self.socket, known).is_ok() {
            return Ok(true);
        }
        *address = None;
        connect_unspec(&self.socket)?;
        Ok(false)
    }
}
