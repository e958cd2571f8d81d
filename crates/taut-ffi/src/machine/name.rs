//! The number by which C names a connection, a listener or a UDP socket: the stack's name, with its kind in
//! two bits. A number that was closed finds nothing (-EBADF) and is not given out again.

use taut_core::{ConnId, DatagramId, ListenerId};

use crate::border::{Answer, Errno};

/// The object that a number names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Conn(ConnId),
    Listener(ListenerId),
    Udp(DatagramId),
}

/// Slots are smaller: the stack's own tables use these bits.
const KIND_SHIFT: u32 = 30;
const KIND_MASK: u64 = 3 << KIND_SHIFT;

impl Name {
    /// Never 0.
    pub(super) const fn to_bits(self) -> u64 {
        let (kind, bits) = match self {
            Self::Conn(id) => (1, id.to_bits()),
            Self::Listener(id) => (2, id.to_bits()),
            Self::Udp(id) => (3, id.to_bits()),
        };
        bits & !KIND_MASK | kind << KIND_SHIFT
    }

    pub(super) const fn from_bits(bits: u64) -> Answer<Self> {
        let rest = bits & !KIND_MASK;
        match (bits & KIND_MASK) >> KIND_SHIFT {
            1 => Ok(Self::Conn(ConnId::from_bits(rest))),
            2 => Ok(Self::Listener(ListenerId::from_bits(rest))),
            3 => Ok(Self::Udp(DatagramId::from_bits(rest))),
            _ => Err(Errno(libc::EBADF)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_kind_and_every_generation() {
        for bits in [0, 7, 7 << 32, u64::MAX << 32 | 7] {
            for name in [
                Name::Conn(ConnId::from_bits(bits)),
                Name::Listener(ListenerId::from_bits(bits)),
                Name::Udp(DatagramId::from_bits(bits)),
            ] {
                assert_ne!(name.to_bits(), 0);
                assert_eq!(Name::from_bits(name.to_bits()), Ok(name));
            }
        }
        assert_eq!(Name::from_bits(0), Err(Errno(libc::EBADF)));
    }
}
