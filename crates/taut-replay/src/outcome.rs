//! What a call returns, as one number: 0 for nothing, as most calls do, else a count or a checksum. A
//! recording keeps the number, a replay compares it. Called by `taped.rs` and `input.rs`.

use std::fmt::{self, Debug, Write};
use std::net::SocketAddr;
use std::task::Poll;

use bytes::Bytes;
use taut_core::{
    Completion, ConnError, ConnId, ConnectError, DatagramError, DatagramId, Event, FlowError, FlowInfo,
    IcmpReport, ListenError, ListenerId, NetworkError, Offload, OptionError, ReadError, Received,
    SysctlError, Transmit, WriteError,
};

use crate::digest::Digest;

/// A type that calls return.
pub(crate) trait Outcome {
    fn number(&self) -> u64;

    /// In words, for the report of a difference.
    fn text(&self) -> String;

    /// Compares it with the recorded number.
    ///
    /// # Errors
    /// What it is instead, in words.
    fn must_be(&self, recorded: u64) -> Result<(), String> {
        if self.number() == recorded { Ok(()) } else { Err(self.text()) }
    }
}

/// The checksum of a value's name, for values that are rare.
fn of_debug(value: &impl Debug) -> u64 {
    struct Into(Digest);

    impl Write for Into {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.add(text.as_bytes());
            Ok(())
        }
    }

    let mut digest = Into(Digest::new());
    // `Into` takes everything.
    _ = write!(digest, "{value:?}");
    digest.0.finish()
}

/// Outcomes that are nothing but their names.
macro_rules! by_name {
    ($($type:ty),*) => {
        $(impl Outcome for $type {
            fn number(&self) -> u64 {
                of_debug(self)
            }

            fn text(&self) -> String {
                format!("{self:?}")
            }
        })*
    };
}

by_name!(
    ConnError,
    ConnectError,
    ListenError,
    NetworkError,
    OptionError,
    SysctlError,
    Completion,
    ConnId,
    FlowError,
    FlowInfo,
    ListenerId,
    DatagramId,
    IcmpReport,
    (ConnId, SocketAddr)
);

impl Outcome for () {
    fn number(&self) -> u64 {
        0
    }

    fn text(&self) -> String {
        "nothing".to_owned()
    }
}

impl Outcome for bool {
    fn number(&self) -> u64 {
        (*self).into()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Outcome for usize {
    fn number(&self) -> u64 {
        *self as u64
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Outcome for u32 {
    fn number(&self) -> u64 {
        u64::from(*self) + 1
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Outcome for &[u8] {
    fn number(&self) -> u64 {
        Digest::of(self)
    }

    fn text(&self) -> String {
        format!("{} bytes with the checksum {:x}", self.len(), self.number())
    }
}

impl Outcome for Bytes {
    fn number(&self) -> u64 {
        (&**self).number()
    }

    fn text(&self) -> String {
        (&**self).text()
    }
}

impl Outcome for DatagramError {
    fn number(&self) -> u64 {
        if *self == Self::WouldBlock { 0 } else { of_debug(self) }
    }

    fn text(&self) -> String {
        format!("{self:?}")
    }
}

/// A datagram that was read: what is known of it, and its bytes.
pub(crate) struct Read<'a>(pub(crate) Received, pub(crate) &'a [u8]);

impl Outcome for Read<'_> {
    fn number(&self) -> u64 {
        of_debug(&self.0) ^ self.1.number().rotate_left(1)
    }

    fn text(&self) -> String {
        format!("{:?} with {}", self.0, self.1.text())
    }
}

// A caller that finds nothing asks again and again, so this is short in a file.
impl Outcome for ReadError {
    fn number(&self) -> u64 {
        if *self == Self::WouldBlock { 0 } else { of_debug(self) }
    }

    fn text(&self) -> String {
        format!("{self:?}")
    }
}

impl Outcome for WriteError {
    fn number(&self) -> u64 {
        if *self == Self::WouldBlock { 0 } else { of_debug(self) }
    }

    fn text(&self) -> String {
        format!("{self:?}")
    }
}

impl Outcome for Event {
    fn number(&self) -> u64 {
        let (kind, id) = match *self {
            Self::Incoming(id) => (1, id.to_bits()),
            Self::Connected(id) => (2, id.to_bits()),
            Self::Readable(id) => (3, id.to_bits()),
            Self::Writable(id) => (4, id.to_bits()),
            Self::Closed(id) => (5, id.to_bits()),
            Self::DatagramReadable(id) => (6, id.to_bits()),
            Self::DatagramWritable(id) => (7, id.to_bits()),
            _ => return of_debug(self),
        };
        // Short in a file while slots and generations are small.
        kind | (id & 0xffff_ffff) << 3 ^ (id >> 32).rotate_left(35)
    }

    fn text(&self) -> String {
        format!("{self:?}")
    }
}

impl Outcome for Transmit<'_> {
    fn number(&self) -> u64 {
        let mut digest = Digest::new();
        self.packet.pieces().for_each(|piece| digest.add(piece));
        let offload = match self.packet.offload {
            Offload::None => 0,
            Offload::Checksum { start, offset } => 1 | u64::from(start) << 16 | u64::from(offset) << 32,
            Offload::Segment { mss, start, offset, ipv6 } => {
                2 | u64::from(ipv6) << 8
                    | u64::from(start) << 16
                    | u64::from(offset) << 32
                    | u64::from(mss) << 48
            }
        };
        digest.add_number(offload);
        digest.add_number(self.packet.departure.as_nanos());
        digest.add_number(self.ticket.fingerprint());
        digest.finish()
    }

    fn text(&self) -> String {
        let header: String = self.packet.header.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("a packet of {} bytes with the header {header}", self.packet.len())
    }
}

impl<T: Outcome> Outcome for Option<T> {
    fn number(&self) -> u64 {
        self.as_ref().map_or(0, Outcome::number)
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "nothing".to_owned(), Outcome::text)
    }
}

impl<T: Outcome> Outcome for Poll<T> {
    fn number(&self) -> u64 {
        match self {
            Self::Ready(value) => value.number().wrapping_add(1),
            Self::Pending => 0,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Ready(value) => value.text(),
            Self::Pending => "pending".to_owned(),
        }
    }
}

impl<T: Outcome, E: Outcome> Outcome for Result<T, E> {
    fn number(&self) -> u64 {
        match self {
            Ok(value) => value.number(),
            Err(error) => error.number(),
        }
    }

    fn text(&self) -> String {
        match self {
            Ok(value) => value.text(),
            Err(error) => format!("the error {}", error.text()),
        }
    }
}
