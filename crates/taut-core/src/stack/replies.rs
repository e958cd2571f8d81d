//! Packets that no connection sends: RST for segments without a connection, ACKs of TIME-WAIT, ICMP echo.
//! RFC 9293 §3.10.7.1; queued by the stack's input, sent before anything else, bounded.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{TcpHeader, icmp};

use crate::ip::outgoing::IpOut;

/// Bounds the answers to a flood of invalid packets; further answers are dropped, as a link may drop any
/// packet.
const REPLIES_MAX: usize = 256;
/// The longest payload of an echo request that is answered: a reply is never fragmented.
const ECHO_MAX: usize = 65_535 - 40 - 8;

/// One answer.
#[derive(Debug)]
pub(crate) enum Reply {
    Tcp {
        src: IpAddr,
        dst: IpAddr,
        header: TcpHeader,
    },
    /// A whole IP packet.
    Icmp(Vec<u8>),
}

/// Answers that wait for the link.
#[derive(Debug, Default)]
pub(crate) struct Replies(VecDeque<Reply>);

impl Replies {
    /// Adds an answer unless there are too many; returns whether it was added.
    pub(crate) fn push(&mut self, reply: Reply) -> bool {
        let room = self.0.len() < REPLIES_MAX;
        if room {
            self.0.push_back(reply);
        }
        room
    }

    /// Whether so many more answers may wait.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.0.len() + count <= REPLIES_MAX
    }

    /// Puts an answer back that the device refused.
    pub(crate) fn put_back(&mut self, reply: Reply) {
        self.0.push_front(reply);
    }

    pub(crate) fn pop(&mut self) -> Option<Reply> {
        self.0.pop_front()
    }
}

/// RST for a segment without a connection; `len` is its sequence space. A RST is never answered.
pub(crate) fn reset(header: &TcpHeader, len: u32) -> Option<TcpHeader> {
    if header.flags.contains(TcpFlags::RST) {
        return None;
    }
    let (seq, ack, flags) = if header.flags.contains(TcpFlags::ACK) {
        (header.ack, 0, TcpFlags::RST)
    } else {
        (0, header.seq.wrapping_add(len), TcpFlags::RST | TcpFlags::ACK)
    };
    Some(TcpHeader {
        src_port: header.dst_port,
        dst_port: header.src_port,
        seq,
        ack,
        flags,
        ..TcpHeader::default()
    })
}

/// The reply to an echo request, which leaves in the packet of `ip`.
pub(crate) fn echo(ip: &IpOut, ident: u16, seq: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let write = |buf: &mut [u8]| icmp::emit_echo_reply(buf, ip.src, ip.dst, ident, seq, payload);
    (payload.len() <= ECHO_MAX).then(|| ip.packet(icmp::HEADER_LEN + payload.len(), write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_follow_the_rfc() {
        let stray = TcpHeader { src_port: 1, dst_port: 2, seq: 100, ack: 7, ..TcpHeader::default() };
        let with = |flags| TcpHeader { flags, ..stray };
        // <SEQ=SEG.ACK><CTL=RST>
        let answer = reset(&with(TcpFlags::ACK), 10).unwrap();
        assert_eq!((answer.seq, answer.flags), (7, TcpFlags::RST));
        assert_eq!((answer.src_port, answer.dst_port), (2, 1));
        // <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>
        let answer = reset(&with(TcpFlags::SYN), 1).unwrap();
        assert_eq!((answer.seq, answer.ack, answer.flags), (0, 101, TcpFlags::RST | TcpFlags::ACK));
        assert_eq!(reset(&with(TcpFlags::RST | TcpFlags::ACK), 0), None);
    }
}
