//! A connection that another stack has opened continues in this one. Linux: `TCP_REPAIR`. Called by the owner
//! of a stack whose state is saved and loaded, such as the network of a virtual machine.
//!
//! **Rule.** The peer sees a pause: numbers, agreed terms and timestamps continue. If the peer has ended its
//! half, the end is what there is to read. Bytes that were not acknowledged are the caller's to write again.
//! As many of them leave at once as were in flight: the peer may have received them, and an ACK beyond what
//! was sent is not acceptable (RFC 9293 §3.10.7.4). The congestion window is otherwise that of a new
//! connection; the round-trip time and the timers begin as after a handshake.

use crate::conn::Conn;
use crate::conn::handshake::{Birth, Resumed};
use crate::settings::options::ConnOptions;
use crate::stack::Stack;
use crate::words::{ConnId, ConnectError, Endpoint, Instant, Tuple};

impl Stack {
    /// Continues a connection of another stack, or of this one at an earlier time. It is open at once,
    /// without an event; what is written to it begins at [`Resumed::snd_una`].
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]; after an error nothing has been started.
    pub fn resume(
        &mut self,
        now: Instant,
        from: &Resumed,
        options: &ConnOptions,
    ) -> Result<ConnId, ConnectError> {
        let [local, peer] =
            [from.local, from.peer].map(|at| Endpoint::new(at.ip().to_canonical(), at.port()));
        if local.port() == 0 || peer.port() == 0 || peer.ip().is_unspecified() || peer.ip().is_multicast() {
            return Err(ConnectError::InvalidPeer);
        }
        if !self.is_own(local.ip()) || local.is_ipv4() != peer.is_ipv4() {
            return Err(ConnectError::AddrNotAvailable);
        }
        if self.is_full() {
            return Err(ConnectError::TooManyConnections);
        }
        let (tuple, _) = self.claim(now, Tuple { local, peer }).ok_or(ConnectError::AddrInUse)?;
        let isn = from.snd_una.wrapping_sub(1);
        Ok(self.open(now, tuple, Some(isn), options, |cx, birth| {
            let offset = from.timestamps.map(|(next, _)| next.wrapping_sub(now.as_millis() as u32));
            let timestamp_offset = offset.unwrap_or(birth.timestamp_offset);
            Conn::resume(cx, &Birth { timestamp_offset, ..*birth }, from)
        }))
    }
}
