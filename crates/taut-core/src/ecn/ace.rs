//! The ACE field: the flags AE, CWR and ECE, read as one number of three bits. RFC 9768 §3.2.2, with its
//! tables 2 to 4. Called by `negotiate.rs`, for requests and answers, and by `accurate.rs` and `feedback.rs`,
//! to which it is the code of a mark during the handshake and a count afterwards.

use taut_wire::Ecn as Mark;
use taut_wire::tcp::Flags as TcpFlags;

/// All three flags.
pub(super) const ALL: TcpFlags = TcpFlags::AE.union(TcpFlags::CWR).union(TcpFlags::ECE);
/// The field holds a count modulo this.
pub(super) const MODULUS: u32 = 8;
/// First value of the count of marked packets, in both directions. §3.2.1.
pub(super) const FIRST_COUNT: u32 = 5;

/// The field of a segment.
pub(super) fn of(flags: TcpFlags) -> u32 {
    let bit = |flag, value| if flags.contains(flag) { value } else { 0 };
    bit(TcpFlags::AE, 4) | bit(TcpFlags::CWR, 2) | bit(TcpFlags::ECE, 1)
}

/// The flags that hold the low three bits of a number.
pub(super) fn flags(number: u32) -> TcpFlags {
    let bit = |flag, value| if number & value != 0 { flag } else { TcpFlags::NONE };
    bit(TcpFlags::AE, 4) | bit(TcpFlags::CWR, 2) | bit(TcpFlags::ECE, 1)
}

/// The code that reports the mark of a SYN or SYN-ACK. Tables 2 and 3.
pub(super) const fn code(mark: Mark) -> u32 {
    match mark {
        Mark::NotEct => 0b010,
        Mark::Ect1 => 0b011,
        Mark::Ect0 => 0b100,
        Mark::Ce => 0b110,
    }
}

/// The code of a mark by a queue. §3.2.2.2.
pub(super) const MARKED: u32 = code(Mark::Ce);

/// Whether a code says that our SYN or SYN-ACK arrived as it left, not ECN-capable. A path that changed that
/// field may also change it on data (§3.2.2.3). Undefined codes say nothing (§3.1.3, table 4).
pub(super) const fn is_intact(code: u32) -> bool {
    !matches!(code, 0b011 | 0b100 | 0b110)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accecn_36_the_first_flag_is_the_highest_bit() {
        // RFC 9768 figure 2: AE, CWR, ECE from left to right.
        assert_eq!([TcpFlags::AE, TcpFlags::CWR, TcpFlags::ECE].map(of), [4, 2, 1]);
        for number in 0..MODULUS {
            assert_eq!(of(flags(number) | TcpFlags::ACK | TcpFlags::SYN), number);
            assert_eq!(flags(number + MODULUS), flags(number), "a count wraps");
        }
    }

    #[test]
    fn accecn_04_only_a_mark_that_was_changed_is_not_intact() {
        // Table 3: of the four codes one says Not-ECT, the mark with which SYNs leave.
        let intact = [Mark::NotEct, Mark::Ect1, Mark::Ect0, Mark::Ce].map(|mark| is_intact(code(mark)));
        assert_eq!(intact, [true, false, false, false]);
        assert!([0b000, 0b001, 0b101, 0b111].into_iter().all(is_intact));
    }
}
