//! ICMP errors about our packets: too big, or unreachable.
//! RFC 1191, RFC 8201, RFC 5461, RFC 5927; called by the stack for ICMP errors that quote a segment of ours.

use super::state::State;
use super::{Conn, StackCx};
use crate::words::{ConnError, seq};

impl Conn {
    /// Whether the error quotes a segment in flight: an attacker would have to guess one (RFC 5927 §4.1).
    fn is_in_flight(&self, wire_seq: u32) -> bool {
        let una = self.tx.una();
        match self.state {
            State::SynSent | State::SynReceived => wire_seq == seq::wire(self.handshake.first() - 1),
            _ => {
                let seq = seq::expand(una, wire_seq);
                una <= seq && seq < self.tx.nxt()
            }
        }
    }

    /// Why a router did not deliver data that is still in flight, if one said so.
    pub(crate) fn soft_error(&self) -> Option<ConnError> {
        self.extras.as_ref().and_then(|extras| extras.soft_error)
    }

    /// Something was delivered: what a router said about it no longer holds.
    pub(super) fn forget_soft_error(&mut self) {
        if let Some(extras) = &mut self.extras {
            extras.soft_error = None;
        }
    }

    /// A router could not forward a packet of ours because of its size: segments are smaller from now on, and
    /// larger ones in flight are retransmitted.
    pub(crate) fn on_too_big(&mut self, cx: &mut StackCx<'_>, wire_seq: u32, mtu: u32) {
        // A SYN is never too big.
        if self.state.is_synchronized() && self.state != State::Closed && self.is_in_flight(wire_seq) {
            self.on_reported_mtu(cx, mtu);
        }
    }

    /// The destination is unreachable. This is fatal while connecting; later the error may be temporary: the
    /// timeouts decide, and the application may ask (RFC 9293 §3.9.2.2). Linux: `sk_err_soft`.
    pub(crate) fn on_unreachable(&mut self, cx: &mut StackCx<'_>, wire_seq: u32, error: ConnError) {
        // A connection that a SYN opened may be in use already.
        let begins = matches!(self.state, State::SynSent | State::SynReceived) && !self.is_fast_child();
        if !self.is_in_flight(wire_seq) {
            return;
        }
        if begins {
            self.fail(cx, error);
        } else {
            self.extras_mut().soft_error = Some(error);
        }
    }
}
