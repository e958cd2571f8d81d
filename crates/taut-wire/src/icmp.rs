//! ICMP for IPv4 (RFC 792) and IPv6 (RFC 4443): the messages that a TCP host must understand, and the few
//! that it sends.
//!
//! Both versions parse to one [`Icmp`], since TCP reacts to the meaning and not to the numbers. Errors carry
//! the packet they complain about; [`Quoted`](crate::Quoted) reads it.

use crate::checksum::{self, Sum};
use crate::{ParseError, protocol};
use core::net::{IpAddr, Ipv6Addr};

#[cfg(test)]
mod tests;

/// Type, code, checksum and four bytes whose meaning depends on the type.
pub const HEADER_LEN: usize = 8;

/// RFC 1812 §4.3.2.3: an error packet does not exceed 576 bytes, its IPv4 header included.
const V4_QUOTED_MAX_BYTES: usize = 576 - 20 - HEADER_LEN;

/// RFC 4443 §2.4(c): an error packet does not exceed the minimum IPv6 MTU.
const V6_QUOTED_MAX_BYTES: usize = 1280 - 40 - HEADER_LEN;

/// RFC 792 message types.
mod v4 {
    pub(super) const ECHO_REPLY: u8 = 0;
    pub(super) const UNREACHABLE: u8 = 3;
    pub(super) const ECHO_REQUEST: u8 = 8;
    pub(super) const TIME_EXCEEDED: u8 = 11;
    pub(super) const PARAMETER_PROBLEM: u8 = 12;
}

/// RFC 4443 message types.
mod v6 {
    pub(super) const UNREACHABLE: u8 = 1;
    pub(super) const PACKET_TOO_BIG: u8 = 2;
    pub(super) const TIME_EXCEEDED: u8 = 3;
    pub(super) const PARAMETER_PROBLEM: u8 = 4;
    pub(super) const ECHO_REQUEST: u8 = 128;
    pub(super) const ECHO_REPLY: u8 = 129;
}

/// Why a destination cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unreachable {
    /// No route to the network.
    Network,
    /// The host does not answer.
    Host,
    /// The host does not speak the protocol; IPv4 only.
    Protocol,
    /// Nothing listens on the port.
    Port,
    /// The packet exceeds the next link and may not be fragmented; IPv4 only. IPv6 has
    /// [`Icmp::PacketTooBig`].
    FragmentationNeeded {
        /// MTU of the next hop in bytes; 0 from a router older than RFC 1191.
        mtu: u32,
    },
    /// Forbidden by policy.
    Prohibited,
    /// Any other code, in the numbering of the IP version.
    Other(u8),
}

impl Unreachable {
    /// RFC 792, RFC 1122 §3.2.2.1 and RFC 1812 §5.2.7.1.
    fn from_v4(code: u8, mtu: u16) -> Unreachable {
        match code {
            0 | 6 | 11 => Unreachable::Network,
            1 | 7 | 12 => Unreachable::Host,
            2 => Unreachable::Protocol,
            3 => Unreachable::Port,
            4 => Unreachable::FragmentationNeeded { mtu: mtu.into() },
            9 | 10 | 13 => Unreachable::Prohibited,
            other => Unreachable::Other(other),
        }
    }

    /// RFC 4443 §3.1.
    fn from_v6(code: u8) -> Unreachable {
        match code {
            0 => Unreachable::Network,
            1 | 5 | 6 => Unreachable::Prohibited,
            3 => Unreachable::Host,
            4 => Unreachable::Port,
            other => Unreachable::Other(other),
        }
    }
}

/// An ICMP message of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Icmp<'a> {
    /// A ping.
    EchoRequest {
        /// Identifier.
        ident: u16,
        /// Sequence number.
        seq: u16,
        /// Data to return.
        payload: &'a [u8],
    },
    /// The answer to a ping.
    EchoReply {
        /// Identifier.
        ident: u16,
        /// Sequence number.
        seq: u16,
        /// Data returned.
        payload: &'a [u8],
    },
    /// The packet could not be delivered.
    DestinationUnreachable {
        /// Why.
        code: Unreachable,
        /// The packet, cut short.
        quoted: &'a [u8],
    },
    /// The packet exceeds a link on the path; IPv6 only.
    PacketTooBig {
        /// MTU of that link in bytes.
        mtu: u32,
        /// The packet, cut short.
        quoted: &'a [u8],
    },
    /// The packet ran out of hops, or of time for reassembly.
    TimeExceeded {
        /// The packet, cut short.
        quoted: &'a [u8],
    },
    /// Something in the packet's headers was not understood.
    ParameterProblem {
        /// The offset of the problem, in bytes from the start of the packet.
        pointer: u32,
        /// The packet, cut short.
        quoted: &'a [u8],
    },
    /// A message that does not concern TCP.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
}

impl<'a> Icmp<'a> {
    /// Parses an ICMPv4 message: the payload of the IP packet, no more.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] or [`ParseError::Checksum`].
    pub fn parse_v4(message: &'a [u8]) -> Result<Icmp<'a>, ParseError> {
        let ([kind, code, _, _, a, b, c, d], rest) = split(message, Sum::ZERO)?;
        Ok(match kind {
            v4::ECHO_REQUEST => Icmp::EchoRequest { ident: be16(a, b), seq: be16(c, d), payload: rest },
            v4::ECHO_REPLY => Icmp::EchoReply { ident: be16(a, b), seq: be16(c, d), payload: rest },
            v4::UNREACHABLE => {
                // RFC 1191 §4: the next-hop MTU is in the low half of the unused word.
                Icmp::DestinationUnreachable { code: Unreachable::from_v4(code, be16(c, d)), quoted: rest }
            }
            v4::TIME_EXCEEDED => Icmp::TimeExceeded { quoted: rest },
            v4::PARAMETER_PROBLEM => Icmp::ParameterProblem { pointer: a.into(), quoted: rest },
            _ => Icmp::Other { kind, code },
        })
    }

    /// Parses an ICMPv6 message: the payload of the IP packet, no more. The checksum covers the addresses.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] or [`ParseError::Checksum`].
    pub fn parse_v6(src: Ipv6Addr, dst: Ipv6Addr, message: &'a [u8]) -> Result<Icmp<'a>, ParseError> {
        let ([kind, code, _, _, a, b, c, d], rest) =
            split(message, pseudo_header(src.into(), dst.into(), message.len()))?;
        let word = u32::from_be_bytes([a, b, c, d]);
        Ok(match kind {
            v6::ECHO_REQUEST => Icmp::EchoRequest { ident: be16(a, b), seq: be16(c, d), payload: rest },
            v6::ECHO_REPLY => Icmp::EchoReply { ident: be16(a, b), seq: be16(c, d), payload: rest },
            v6::UNREACHABLE => {
                Icmp::DestinationUnreachable { code: Unreachable::from_v6(code), quoted: rest }
            }
            v6::PACKET_TOO_BIG => Icmp::PacketTooBig { mtu: word, quoted: rest },
            v6::TIME_EXCEEDED => Icmp::TimeExceeded { quoted: rest },
            v6::PARAMETER_PROBLEM => Icmp::ParameterProblem { pointer: word, quoted: rest },
            _ => Icmp::Other { kind, code },
        })
    }
}

/// What an error says happened to a packet, as far as the sender of that packet is concerned, beside
/// [`Unreachable`](Icmp::DestinationUnreachable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trouble {
    /// It ran out of hops.
    HopLimit,
    /// Its fragments did not all arrive in time.
    Reassembly,
    /// This byte of it, counted from its start, makes no sense.
    Parameter {
        /// Offset of that byte.
        pointer: u32,
    },
}

/// Writes a time-exceeded or parameter-problem error about the packet `quoted` into `buf`, as
/// [`emit_unreachable`] does.
///
/// # Panics
/// If `buf` is shorter than [`HEADER_LEN`].
pub fn emit_trouble(buf: &mut [u8], src: IpAddr, dst: IpAddr, trouble: Trouble, quoted: &[u8]) -> usize {
    let is_v4 = src.is_ipv4();
    let exceeded = if is_v4 { v4::TIME_EXCEEDED } else { v6::TIME_EXCEEDED };
    let (start, max) = match (trouble, is_v4) {
        (Trouble::HopLimit, _) => ([exceeded, 0, 0, 0, 0, 0], is_v4),
        (Trouble::Reassembly, _) => ([exceeded, 1, 0, 0, 0, 0], is_v4),
        // RFC 792: one byte; RFC 4443 §3.4: four.
        (Trouble::Parameter { pointer }, true) => {
            ([v4::PARAMETER_PROBLEM, 0, u8::try_from(pointer).unwrap_or(u8::MAX), 0, 0, 0], true)
        }
        (Trouble::Parameter { pointer }, false) => {
            let [a, b, c, d] = pointer.to_be_bytes();
            ([v6::PARAMETER_PROBLEM, 0, a, b, c, d], false)
        }
    };
    let max = if max { V4_QUOTED_MAX_BYTES } else { V6_QUOTED_MAX_BYTES };
    let len = quoted.len().min(max).min(buf.len().saturating_sub(HEADER_LEN));
    emit(buf, src, dst, start, &quoted[..len])
}

/// Bytes that an error message about `quoted` has at most, its IP header not counted.
#[must_use]
pub fn error_len(is_v4: bool, quoted: &[u8]) -> usize {
    HEADER_LEN + quoted.len().min(if is_v4 { V4_QUOTED_MAX_BYTES } else { V6_QUOTED_MAX_BYTES })
}

/// Whether a message of this type is an error, which no error answers (RFC 1122 §3.2.2, RFC 4443 §2.4(e)).
#[must_use]
pub const fn is_error(is_v4: bool, kind: u8) -> bool {
    if is_v4 { matches!(kind, 3 | 4 | 5 | 11 | 12) } else { kind < 128 }
}

/// Turns a message into an echo request with this identifier, and completes its checksum; what else it says
/// stays. Returns false, and changes nothing, if it is not an echo request of the version of `src`, or too
/// short.
pub fn finish_echo_request(message: &mut [u8], src: IpAddr, dst: IpAddr, ident: u16) -> bool {
    let kind = if src.is_ipv4() { v4::ECHO_REQUEST } else { v6::ECHO_REQUEST };
    if message.len() < HEADER_LEN || message[0] != kind || message[1] != 0 {
        return false;
    }
    finish_echo(message, src, dst, ident);
    true
}

/// Turns an echo request or reply into a reply with this identifier, and completes its checksum; what else it
/// says stays. Returns false, and changes nothing, if it is neither of the version of `src`, or too short.
pub fn finish_echo_reply(message: &mut [u8], src: IpAddr, dst: IpAddr, ident: u16) -> bool {
    let (request, reply) =
        if src.is_ipv4() { (v4::ECHO_REQUEST, v4::ECHO_REPLY) } else { (v6::ECHO_REQUEST, v6::ECHO_REPLY) };
    if message.len() < HEADER_LEN || message[0] != request && message[0] != reply || message[1] != 0 {
        return false;
    }
    message[0] = reply;
    finish_echo(message, src, dst, ident);
    true
}

fn finish_echo(message: &mut [u8], src: IpAddr, dst: IpAddr, ident: u16) {
    message[2..4].fill(0);
    message[4..6].copy_from_slice(&ident.to_be_bytes());
    let sum = if src.is_ipv4() { Sum::ZERO } else { pseudo_header(src, dst, message.len()) };
    let checksum = sum.add_bytes(message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes the start of an echo request: type, code, and the sequence number. The rest is
/// [finished](finish_echo_request) by who knows the addresses.
#[must_use]
pub const fn echo_request(is_v4: bool, seq: u16) -> [u8; HEADER_LEN] {
    let [a, b] = seq.to_be_bytes();
    [if is_v4 { v4::ECHO_REQUEST } else { v6::ECHO_REQUEST }, 0, 0, 0, 0, 0, a, b]
}

/// Writes the answer to a ping from `dst` to `src` into `buf`; returns its length, `HEADER_LEN` and the
/// payload's. The addresses are those of the packet being written and choose the version.
///
/// # Panics
/// If `buf` is shorter than that.
pub fn emit_echo_reply(
    buf: &mut [u8],
    src: IpAddr,
    dst: IpAddr,
    ident: u16,
    seq: u16,
    payload: &[u8],
) -> usize {
    let kind = if src.is_ipv4() { v4::ECHO_REPLY } else { v6::ECHO_REPLY };
    let ([a, b], [c, d]) = (ident.to_be_bytes(), seq.to_be_bytes());
    emit(buf, src, dst, [kind, 0, a, b, c, d], payload)
}

/// Writes a destination-unreachable error about the packet `quoted`, its IP header first, into `buf`; returns
/// its length. The addresses are those of the packet being written and choose the version. The quote is cut
/// to what the version allows and what `buf` holds: at most 556 bytes in all for IPv4, 1240 for IPv6.
///
/// Where IPv6 has another message for the same reason, that one is written: packet too big for
/// [`Unreachable::FragmentationNeeded`], and parameter problem for [`Unreachable::Protocol`] (RFC 4443 §3.4),
/// pointing at the next-header field of the fixed header.
///
/// # Panics
/// If `buf` is shorter than [`HEADER_LEN`].
pub fn emit_unreachable(buf: &mut [u8], src: IpAddr, dst: IpAddr, code: Unreachable, quoted: &[u8]) -> usize {
    let (start, quoted_max_bytes) = match src {
        IpAddr::V4(_) => (unreachable_v4(code), V4_QUOTED_MAX_BYTES),
        IpAddr::V6(_) => (unreachable_v6(code), V6_QUOTED_MAX_BYTES),
    };
    let quoted_len = quoted.len().min(quoted_max_bytes).min(buf.len().saturating_sub(HEADER_LEN));
    emit(buf, src, dst, start, &quoted[..quoted_len])
}

/// Type, code and the four bytes after the checksum.
fn unreachable_v4(code: Unreachable) -> [u8; 6] {
    let number = match code {
        Unreachable::Network => 0,
        Unreachable::Host => 1,
        Unreachable::Protocol => 2,
        Unreachable::Port => 3,
        Unreachable::FragmentationNeeded { mtu } => {
            let [high, low] = u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes();
            return [v4::UNREACHABLE, 4, 0, 0, high, low];
        }
        Unreachable::Prohibited => 13,
        Unreachable::Other(number) => number,
    };
    [v4::UNREACHABLE, number, 0, 0, 0, 0]
}

/// Type, code and the four bytes after the checksum.
fn unreachable_v6(code: Unreachable) -> [u8; 6] {
    let number = match code {
        Unreachable::Network => 0,
        Unreachable::Prohibited => 1,
        Unreachable::Host => 3,
        Unreachable::Port => 4,
        Unreachable::Other(number) => number,
        Unreachable::FragmentationNeeded { mtu } => {
            let [a, b, c, d] = mtu.to_be_bytes();
            return [v6::PACKET_TOO_BIG, 0, a, b, c, d];
        }
        Unreachable::Protocol => return [v6::PARAMETER_PROBLEM, 1, 0, 0, 0, 6],
    };
    [v6::UNREACHABLE, number, 0, 0, 0, 0]
}

fn emit(buf: &mut [u8], src: IpAddr, dst: IpAddr, start: [u8; 6], body: &[u8]) -> usize {
    let message = &mut buf[..HEADER_LEN + body.len()];
    let [kind, code, a, b, c, d] = start;
    message[..HEADER_LEN].copy_from_slice(&[kind, code, 0, 0, a, b, c, d]);
    message[HEADER_LEN..].copy_from_slice(body);
    // RFC 4443 §2.3: the checksum of ICMPv6 covers the pseudo-header; that of RFC 792 does not.
    let sum = if src.is_ipv4() { Sum::ZERO } else { pseudo_header(src, dst, message.len()) };
    let checksum = sum.add_bytes(message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message.len()
}

fn split(message: &[u8], sum: Sum) -> Result<([u8; HEADER_LEN], &[u8]), ParseError> {
    let (header, rest) = message.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
    if sum.add_bytes(message).finish() != 0 {
        return Err(ParseError::Checksum);
    }
    Ok((*header, rest))
}

fn pseudo_header(src: IpAddr, dst: IpAddr, len: usize) -> Sum {
    checksum::pseudo_header(src, dst, protocol::ICMPV6, len as u32)
}

fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
