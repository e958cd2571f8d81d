//! What is asked for and accepted: Linux's sysctls. A part of [`StackConfig`](crate::StackConfig).

/// Which ECN to ask for in our SYNs, and which to accept in the peer's. "Classic" is RFC 3168, "accurate" RFC
/// 9768; who accepts accurate ECN also accepts classic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnPolicy {
    /// None.
    Off,
    /// Classic, asked for and accepted.
    Ask,
    /// Classic, accepted.
    Accept,
    /// Accurate, asked for and accepted.
    AskAccurate,
    /// Accurate accepted, classic asked for.
    AcceptAccurateAskClassic,
    /// Accurate, accepted.
    AcceptAccurate,
}

impl EcnPolicy {
    pub(super) const fn accepts(self) -> bool {
        !matches!(self, Self::Off)
    }

    pub(super) const fn accepts_accurate(self) -> bool {
        matches!(self, Self::AskAccurate | Self::AcceptAccurateAskClassic | Self::AcceptAccurate)
    }

    pub(super) const fn asks_classic(self) -> bool {
        matches!(self, Self::Ask | Self::AcceptAccurateAskClassic)
    }
}

/// When accurate ECN's option is sent, which counts marked bytes (RFC 9768 §3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnOptionUse {
    /// Never.
    Never,
    /// Where a count changes its kind, where marks come, and as a beacon.
    Sparing,
    /// With every ACK of something new.
    Usual,
    /// The same even if packets that carry it seem to be lost.
    Persistent,
}

/// Explicit congestion notification.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EcnConfig {
    /// What to ask for and what to accept. Linux: `tcp_ecn`.
    pub policy: EcnPolicy,
    /// A SYN that asks for ECN and is not answered is repeated without (RFC 3168 §6.1.1.1). Linux:
    /// `tcp_ecn_fallback`.
    pub fallback: bool,
    /// When the option is sent. Linux: `tcp_ecn_option`; its 2 is with every segment, and 6.18 has no 3.
    pub option: EcnOptionUse,
    /// How often in a round trip the option is sent at least where it is sent sparingly, 0 for never. Linux:
    /// `tcp_ecn_option_beacon`.
    pub option_beacon: u8,
}

impl Default for EcnConfig {
    fn default() -> Self {
        Self { policy: EcnPolicy::Accept, fallback: true, option: EcnOptionUse::Usual, option_beacon: 3 }
    }
}
