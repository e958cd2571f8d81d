//! Why bytes were not accepted as a packet.
//!
//! Every variant is the fault of the sender or of the network, never the caller's: count it and drop the
//! packet.

use core::fmt;

/// Why a parser refused its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the header, or before the length the header claims.
    Truncated,
    /// The IP version is neither 4 nor 6.
    Version,
    /// A header-length field is smaller than the fixed header.
    HeaderLength,
    /// The IP length field is smaller than the headers it should cover.
    TotalLength,
    /// The checksum does not match.
    Checksum,
    /// A fragment, which only a reassembler can use.
    Fragment,
    /// An IPv6 extension header that may not be skipped.
    UnsupportedExtension,
    /// An option of TCP or of neighbour discovery has an impossible length: too short, or past the end.
    OptionLength,
    /// A neighbour's message whose hop limit shows that a router forwarded it: only a station of this link
    /// may send one.
    NotFromLink,
    /// A message of a kind, or with a content, that is of no use here.
    Unsupported,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Truncated => "packet is truncated",
            ParseError::Version => "IP version is neither 4 nor 6",
            ParseError::HeaderLength => "header length is smaller than the fixed header",
            ParseError::TotalLength => "IP length does not cover its own headers",
            ParseError::Checksum => "checksum does not match",
            ParseError::Fragment => "packet is a fragment",
            ParseError::UnsupportedExtension => "IPv6 extension header may not be skipped",
            ParseError::OptionLength => "option has an impossible length",
            ParseError::NotFromLink => "neighbour's message was forwarded by a router",
            ParseError::Unsupported => "message is of no use here",
        })
    }
}

impl core::error::Error for ParseError {}
