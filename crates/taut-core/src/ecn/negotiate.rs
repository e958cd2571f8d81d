//! The negotiation of ECN: the request in a SYN, the answer in a SYN-ACK, and the kind of ECN that results.
//! RFC 3168 §6.1.1 with Linux's `tcp_ecn` and `tcp_ecn_fallback`; RFC 9768 §3.1.
//! Called by `ecn/mod.rs` during the handshake. These are rules without state.
//!
//! ```text
//!   AE CWR ECE   in a SYN             in a SYN-ACK
//!    0   0   0   no ECN               no ECN
//!    0   0   1   RFC 9768, or later   RFC 3168
//!    0   1   1   RFC 3168             RFC 9768
//!    1   1   1   RFC 9768             no ECN: the SYN's flags, reflected
//!    others      RFC 9768, or later   RFC 9768
//! ```
//!
//! RFC 9768's answer is the code of the mark with which the SYN arrived (`ace.rs`). A peer that knows only
//! RFC 3168 sees CWR and ECE in an accurate SYN, which request RFC 3168.

use taut_wire::Ecn as Mark;
use taut_wire::tcp::Flags as TcpFlags;

use super::ace;
use super::config::{EcnConfig, EcnPolicy};
use super::segment::Stamp;
use crate::congestion::EcnUse;

/// SYNs with the request, before one is sent without it. RFC 9768 §3.1.4.1: two; Linux, for RFC 3168: one.
const TRIES_ACCURATE: u8 = 2;
const TRIES: u8 = 1;
/// The flags of a SYN that requests RFC 3168.
const ASKS: TcpFlags = TcpFlags::ECE.union(TcpFlags::CWR);
const ASKS_ACE: u32 = 0b011;
/// The flags of a SYN that requests RFC 9768. §3.1.1.
const ASKS_ACCURATE: TcpFlags = ace::ALL;
const ASKS_ACCURATE_ACE: u32 = 0b111;

/// The kind of ECN that both ends agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// No ECN, or nothing agreed yet.
    #[default]
    Off,
    /// RFC 3168: a mark is echoed until the sender answers with CWR.
    Classic,
    /// RFC 8257: the ECE flag of each ACK says whether the data that it acknowledges was marked.
    Dctcp,
    /// RFC 9768: both ends count.
    Accurate,
}

impl Mode {
    /// The result of RFC 3168's handshake.
    const fn of(wanted: EcnUse) -> Self {
        match wanted {
            EcnUse::Classic => Self::Classic,
            EcnUse::Precise => Self::Dctcp,
            // A sender that reduces by the share of marks must know that share (RFC 9331 §4.2).
            EcnUse::L4s => Self::Off,
        }
    }
}

/// The request of our SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Request {
    /// No ECN.
    #[default]
    Nothing,
    /// RFC 3168.
    Classic,
    /// RFC 9768, or RFC 3168 if the peer does not know RFC 9768.
    Accurate,
}

impl Request {
    /// The request of our first SYN.
    pub(crate) fn of(config: &EcnConfig, wanted: EcnUse) -> Self {
        match config.policy {
            _ if wanted == EcnUse::L4s => Self::Accurate,
            EcnPolicy::AskAccurate => Self::Accurate,
            policy if policy.asks_classic() || wanted == EcnUse::Precise => Self::Classic,
            _ => Self::Nothing,
        }
    }

    /// What is left of the first SYN's request at its `retries`-th retransmission. RFC 3168 §6.1.1, RFC 9768
    /// §3.1.4.1.
    ///
    /// A path that drops such a SYN may let one without ECN pass. The fallback is never another kind of ECN
    /// (RFC 9768 §3.1.5), whatever has become of the setting.
    pub(crate) fn repeated(self, config: &EcnConfig, retries: u8) -> Self {
        let tries = if self == Self::Accurate { TRIES_ACCURATE } else { TRIES };
        if config.fallback && retries >= tries { Self::Nothing } else { self }
    }

    /// The flags and mark of our SYN. DCTCP's SYN is marked as ECN-capable, like all its packets (Linux).
    pub(crate) fn stamp(self, wanted: EcnUse) -> Stamp {
        match self {
            Self::Nothing => Stamp::NONE,
            Self::Classic if wanted == EcnUse::Precise => {
                Stamp { flags: ASKS, mark: Mark::Ect0, ..Stamp::NONE }
            }
            Self::Classic => Stamp { flags: ASKS, ..Stamp::NONE },
            Self::Accurate => Stamp { flags: ASKS_ACCURATE, ..Stamp::NONE },
        }
    }

    /// The kind of ECN after the peer's answer to this request, a SYN-ACK with these flags.
    pub(super) fn on_syn_ack(self, wanted: EcnUse, flags: TcpFlags) -> Mode {
        match self {
            Self::Nothing => Mode::Off,
            // Both flags: reflected by a host that does not know them.
            Self::Classic if flags.contains(TcpFlags::ECE) && !flags.contains(TcpFlags::CWR) => {
                Mode::of(wanted)
            }
            Self::Classic => Mode::Off,
            // RFC 9768 table 2; 101 is reserved for the future, and counts as agreement (§3.1.3).
            Self::Accurate => match ace::of(flags) {
                0b000 | 0b111 => Mode::Off,
                0b001 => Mode::of(wanted),
                _ => Mode::Accurate,
            },
        }
    }
}

/// The kind of ECN after the peer's SYN, which arrived in a packet marked `mark`. RFC 3168 §6.1.1, RFC 9768
/// table 2.
pub(super) fn on_syn(config: &EcnConfig, wanted: EcnUse, flags: TcpFlags, mark: Mark) -> Mode {
    // RFC 9768 §3.1.3: all flags except none and RFC 3168's request accurate ECN, or a future extension that
    // includes it.
    if accepts_accurate(config, wanted) && !matches!(ace::of(flags), 0b000 | ASKS_ACE) {
        return Mode::Accurate;
    }
    let asks = flags.contains(ASKS);
    // A SYN must not be marked as ECN-capable; if it is, the path has changed it, or it is DCTCP's.
    let accepts = config.policy.accepts() && mark == Mark::NotEct;
    if asks && (accepts || wanted == EcnUse::Precise) { Mode::of(wanted) } else { Mode::Off }
}

/// Whether a SYN that requests accurate ECN gets it.
pub(super) fn accepts_accurate(config: &EcnConfig, wanted: EcnUse) -> bool {
    config.policy.accepts_accurate() || wanted == EcnUse::L4s
}

/// Whether the peer's retransmitted SYN requests another kind of ECN than was agreed on: neither end could
/// know which one is in force, and the connection must be reset (RFC 9768 §3.1.5). `accurate`: RFC 9768 was
/// agreed on; `knew`: it would have been, had the first SYN requested it. Without it, both requests are RFC
/// 3168's.
pub(super) fn contradicts(accurate: bool, knew: bool, flags: TcpFlags) -> bool {
    match ace::of(flags) {
        ASKS_ACE => accurate,
        ASKS_ACCURATE_ACE => !accurate && knew,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(policy: EcnPolicy) -> EcnConfig {
        EcnConfig { policy, ..EcnConfig::default() }
    }

    #[test]
    fn ecn_14_requests_and_acceptance_by_setting() {
        use Request::{Accurate, Classic, Nothing};
        // Linux, ip-sysctl, by `tcp_ecn`: 0 neither, 1 both, 2 accepts; 3 to 5 accept accurate ECN too and
        // request accurate ECN, RFC 3168, or nothing. A host that does not know accurate ECN takes its SYN
        // for one of RFC 3168 (RFC 9768 table 2).
        let (off, classic, accurate) = (Mode::Off, Mode::Classic, Mode::Accurate);
        for (policy, request, of_classic, of_accurate) in [
            (EcnPolicy::Off, Nothing, off, off),
            (EcnPolicy::Ask, Classic, classic, classic),
            (EcnPolicy::Accept, Nothing, classic, classic),
            (EcnPolicy::AskAccurate, Accurate, classic, accurate),
            (EcnPolicy::AcceptAccurateAskClassic, Classic, classic, accurate),
            (EcnPolicy::AcceptAccurate, Nothing, classic, accurate),
        ] {
            let config = config(policy);
            assert_eq!(Request::of(&config, EcnUse::Classic), request, "{policy:?}");
            let answer = |flags| on_syn(&config, EcnUse::Classic, flags, Mark::NotEct);
            assert_eq!(answer(ASKS), of_classic, "{policy:?}");
            assert_eq!(answer(ASKS_ACCURATE), of_accurate, "{policy:?}");
            assert_eq!(answer(TcpFlags::NONE), off, "{policy:?}");
        }
        let [neither, asks, asks_accurate] =
            [EcnPolicy::Off, EcnPolicy::Ask, EcnPolicy::AskAccurate].map(config);
        // A SYN without a request, or one that was marked as ECN-capable on its way.
        for (flags, mark) in
            [(TcpFlags::ECE, Mark::NotEct), (TcpFlags::CWR, Mark::NotEct), (ASKS, Mark::Ect0)]
        {
            assert_eq!(on_syn(&asks, EcnUse::Classic, flags, mark), off);
        }
        // RFC 9768 §3.1.3: all codes except 000 and 011 count as 111, however the packet is marked.
        for flags in [TcpFlags::ECE, TcpFlags::CWR, TcpFlags::AE, TcpFlags::AE | TcpFlags::CWR] {
            assert_eq!(on_syn(&asks_accurate, EcnUse::Classic, flags, Mark::Ce), accurate, "{flags}");
        }
        // DCTCP requests and accepts ECN whatever the setting.
        assert_eq!(Request::of(&neither, EcnUse::Precise), Classic);
        assert_eq!(on_syn(&neither, EcnUse::Precise, ASKS, Mark::Ect0), Mode::Dctcp);
        assert_eq!(Request::of(&asks_accurate, EcnUse::Precise), Accurate);
        // RFC 9331 §4.2: L4S needs accurate feedback, and uses no ECN without it.
        assert_eq!(Request::of(&neither, EcnUse::L4s), Accurate);
        assert_eq!(on_syn(&neither, EcnUse::L4s, ASKS_ACCURATE, Mark::NotEct), accurate);
        assert_eq!(on_syn(&config(EcnPolicy::Accept), EcnUse::L4s, ASKS, Mark::NotEct), off);
        assert_eq!(Accurate.on_syn_ack(EcnUse::L4s, TcpFlags::ECE), off);
        assert_eq!(Accurate.on_syn_ack(EcnUse::L4s, TcpFlags::CWR), accurate);
        // A retransmitted SYN has no request (Linux: from the first retransmission; RFC 9768 §3.1.4.1: from
        // the second).
        let [first, first_accurate] =
            [asks, asks_accurate].map(|config| Request::of(&config, EcnUse::Classic));
        assert_eq!(first.repeated(&asks, 1), Nothing);
        assert_eq!(first_accurate.repeated(&asks_accurate, 1), Accurate);
        assert_eq!(first_accurate.repeated(&asks_accurate, 2), Nothing);
        let stubborn = |config| EcnConfig { fallback: false, ..config };
        assert_eq!(first.repeated(&stubborn(asks), 1), Classic);
        assert_eq!(first_accurate.repeated(&stubborn(asks_accurate), 5), Accurate);
    }

    #[test]
    fn ecn_02_every_answer_to_a_request() {
        // RFC 3168 §6.1.1: ECE without CWR is the only ECN-setup SYN-ACK.
        for (flags, mode) in [
            (TcpFlags::NONE, Mode::Off),
            (TcpFlags::ECE, Mode::Classic),
            (TcpFlags::CWR, Mode::Off),
            (ASKS, Mode::Off),
        ] {
            assert_eq!(Request::Classic.on_syn_ack(EcnUse::Classic, flags), mode, "{flags}");
            assert_eq!(Request::Nothing.on_syn_ack(EcnUse::Classic, flags), Mode::Off, "unasked");
        }
    }

    #[test]
    fn accecn_08_a_repeated_syn_may_not_request_another_kind() {
        // RFC 9768 §3.1.5: a change from one kind to the other is a reset; a change to no ECN is the client's
        // fallback.
        assert!(contradicts(true, true, ASKS));
        assert!(contradicts(false, true, ASKS_ACCURATE));
        assert!(!contradicts(true, true, ASKS_ACCURATE) && !contradicts(false, true, ASKS));
        assert!(!contradicts(false, false, ASKS_ACCURATE), "which is RFC 3168's to us");
        for accurate in [true, false] {
            assert!(!contradicts(accurate, true, TcpFlags::NONE));
        }
    }
}
