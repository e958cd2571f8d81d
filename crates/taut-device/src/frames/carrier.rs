//! How a frame becomes bytes in a descriptor, and which of them the peer has not read yet. Called by `tx.rs`,
//! `rx.rs` and `line.rs`.
//!
//! **Problem.** A stream has no borders, so each frame has its length in front of it, and a stream that has
//! room for half of a frame takes half of it. The rest must go before anything else does: a frame that is cut
//! off would make noise of all that follow.
//!
//! **Rule.** The rest is kept, at most one frame. Until it has gone, the carrier is full.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix};

use super::peer::Peer;
use crate::sys::bytes_below;

/// Bytes of the length in front of each frame of a stream: QEMU's `-netdev stream`, passt.
pub(super) const LENGTH: usize = 4;
/// The longest frame that a stream may announce: QEMU's own limit (`NET_BUFSIZE`: 4 KB and 64 KB).
pub(super) const FRAME_MAX: usize = (4 << 10) + (64 << 10);

/// A descriptor that carries frames.
#[derive(Debug)]
pub(super) enum Carrier {
    /// A queue of a TAP interface: a frame for each read and write.
    Tap(File),
    /// A Unix stream socket: a length in front of each frame. With the rest of a frame that it had no room
    /// for.
    Stream(OwnedFd, Mutex<Vec<u8>>),
    /// A Unix socket that keeps borders: a frame is a datagram. Whether the end of the peer is seen.
    Datagrams(OwnedFd, Connected),
}

/// Whether a socket notices that its peer is gone.
#[derive(Debug)]
pub(super) enum Connected {
    /// `SOCK_SEQPACKET`: an empty packet is the end.
    ForLife,
    /// `SOCK_DGRAM`: another program may take the peer's place.
    Loosely,
    /// `SOCK_DGRAM`: a program that sends takes it.
    ToSender(Arc<Peer>),
}

/// What a call to receive has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The peer has gone for good.
    End,
}

impl Carrier {
    pub(super) fn stream(socket: OwnedFd) -> Self {
        Self::Stream(socket, Mutex::new(Vec::new()))
    }

    /// Sends the pieces as one frame of `len` bytes. The first piece is empty: a stream's length takes its
    /// place.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is no room; the descriptor polls writable when there is
    /// again.
    pub(super) fn send(&self, pieces: &mut [IoSlice<'_>], len: usize) -> io::Result<()> {
        match self {
            Self::Tap(file) => {
                let mut file = file;
                file.write_vectored(&pieces[1..]).map(drop)
            }
            Self::Datagrams(socket, _) => put(socket, &pieces[1..]).map(drop),
            Self::Stream(socket, rest) => {
                let mut rest = lock(rest);
                push(socket, &mut rest)?;
                if !rest.is_empty() {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let announced = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
                let (first, others) = pieces.split_first().expect("the place of the length");
                debug_assert!(first.is_empty());
                let mut all = [IoSlice::new(&[]); 8 + taut_core::GATHER_MAX];
                all[0] = IoSlice::new(&announced);
                all[1..=others.len()].copy_from_slice(others);
                let all = &all[..=others.len()];
                let mut gone = put(socket, all)?;
                for piece in all {
                    let skipped = gone.min(piece.len());
                    gone -= skipped;
                    rest.extend_from_slice(&piece[skipped..]);
                }
                Ok(())
            }
        }
    }

    /// Sends the rest of a frame. Returns whether there is still one.
    pub(super) fn push_rest(&self) -> bool {
        let Self::Stream(socket, rest) = self else { return false };
        let mut rest = lock(rest);
        // If the peer is gone, the receiving half says so.
        let _ = push(socket, &mut rest);
        !rest.is_empty()
    }

    /// Bytes of memory of frames that the peer has not read yet, the kernel's own included: 0 for a TAP,
    /// where a write runs the whole receive path of the kernel.
    pub(super) fn bytes_below(&self) -> u64 {
        match self {
            Self::Tap(_) => 0,
            Self::Stream(socket, _) | Self::Datagrams(socket, _) => bytes_below(socket.as_fd()).unwrap_or(0),
        }
    }

    /// Receives from a stream as many bytes as there are, into one buffer after the other.
    ///
    /// # Errors
    /// The device is gone.
    pub(super) fn recv_bytes(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Heard> {
        heard(rustix::io::readv(self.as_fd(), buffers).map_err(Into::into), true)
    }

    /// Receives one frame.
    ///
    /// # Errors
    /// The device is gone.
    pub(super) fn recv(&self, buffer: &mut [u8]) -> io::Result<Heard> {
        let (len, ends) = match self {
            Self::Tap(file) => {
                let mut file = file;
                (file.read(buffer), false)
            }
            Self::Stream(..) => return self.recv_bytes(&mut [IoSliceMut::new(buffer)]),
            Self::Datagrams(socket, Connected::ToSender(peer)) => (get_from(socket, peer, buffer), false),
            Self::Datagrams(socket, connected) => {
                (get(socket, buffer), matches!(connected, Connected::ForLife))
            }
        };
        heard(len, ends)
    }
}

/// What a read has found. `ends`: the socket sees when its peer has gone, by a read of nothing.
fn heard(len: io::Result<usize>, ends: bool) -> io::Result<Heard> {
    match len {
        Ok(0) if ends => Ok(Heard::End),
        Ok(len) => Ok(Heard::Bytes(len)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NOBUFS) => Ok(Heard::Nothing),
            Some(Errno::CONNRESET | Errno::CONNREFUSED | Errno::PIPE | Errno::NOTCONN) => {
                Ok(if ends { Heard::End } else { Heard::Nothing })
            }
            _ => Err(error),
        },
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tap(file) => file.as_fd(),
            Self::Stream(socket, _) | Self::Datagrams(socket, _) => socket.as_fd(),
        }
    }
}

/// Receives, and has the sender as its peer from then on.
fn get_from(socket: &OwnedFd, peer: &Peer, buffer: &mut [u8]) -> io::Result<usize> {
    let (len, _, from) = rustix::net::recvfrom(socket, buffer, RecvFlags::DONTWAIT)?;
    if let Some(from) = from.and_then(|from| SocketAddrUnix::try_from(from).ok()) {
        peer.heard(from);
    }
    Ok(len)
}

fn lock(rest: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends as much of the rest as there is room for.
fn push(socket: &OwnedFd, rest: &mut Vec<u8>) -> io::Result<()> {
    if rest.is_empty() {
        return Ok(());
    }
    let gone = match put(socket, &[IoSlice::new(rest)]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        other => other?,
    };
    rest.drain(..gone);
    Ok(())
}

fn put(socket: &OwnedFd, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::net::sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), flags)?)
}

fn get(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT)?.0)
}
