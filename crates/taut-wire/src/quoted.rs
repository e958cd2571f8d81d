//! The packet an ICMP error complains about, as far as it was quoted.
//!
//! RFC 792 promises the IP header and 8 bytes more: for TCP the ports and the sequence number, enough to find
//! the connection and to tell whether the error is about something in flight (RFC 5927 §4.1).

use crate::{IpHeader, ParseError};
use core::net::SocketAddr;

#[cfg(test)]
mod tests;

/// The start of a packet quoted in an ICMP error. `src` is the end that sent it: this host, if the error is
/// about one of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quoted {
    /// Sender of the quoted packet. The port means something for TCP and UDP only.
    pub src: SocketAddr,
    /// Receiver of the quoted packet. The port means something for TCP and UDP only.
    pub dst: SocketAddr,
    /// Its upper-layer protocol.
    pub protocol: u8,
    /// Its sequence number; means something for TCP only.
    pub seq: u32,
}

impl Quoted {
    /// Reads the quoted IP header and 8 bytes beyond. The quote may end there whatever length its IP header
    /// claims, and its header checksum is not verified, since routers on the way have changed the header.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] with fewer bytes, [`ParseError::Fragment`] when the quote is of a later
    /// fragment, else as [`IpHeader::parse`].
    pub fn parse(quoted: &[u8]) -> Result<Quoted, ParseError> {
        let ip = IpHeader::parse_quoted(quoted)?;
        let upper = quoted.get(ip.header_len..).and_then(|upper| upper.first_chunk::<8>());
        let upper = upper.ok_or(ParseError::Truncated)?;
        Ok(Quoted {
            src: SocketAddr::new(ip.src, u16::from_be_bytes([upper[0], upper[1]])),
            dst: SocketAddr::new(ip.dst, u16::from_be_bytes([upper[2], upper[3]])),
            protocol: ip.protocol,
            seq: u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]]),
        })
    }
}
