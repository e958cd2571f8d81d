//! The settings of ECN: Linux's sysctls. A part of [`StackConfig`](crate::StackConfig).

/// Which ECN to request in our SYNs, and which to accept in the peer's. "Classic" is RFC 3168, "accurate" RFC
/// 9768; each policy that accepts accurate ECN also accepts classic ECN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnPolicy {
    /// None.
    Off,
    /// Classic, requested and accepted.
    Ask,
    /// Classic, accepted.
    Accept,
    /// Accurate, requested and accepted.
    AskAccurate,
    /// Accurate accepted, classic requested.
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

/// When the AccECN option, which counts marked bytes, is sent (RFC 9768 §3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnOptionUse {
    /// Never.
    Never,
    /// When a different counter moves, while marks arrive, and as a beacon.
    Sparing,
    /// With every ACK of new data.
    Usual,
    /// The same even if packets that carry it seem to be lost.
    Persistent,
}

/// Explicit congestion notification.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EcnConfig {
    /// What to request and what to accept. Linux: `tcp_ecn`.
    pub policy: EcnPolicy,
    /// A SYN that requests ECN and is not answered is retransmitted without the request (RFC 3168 §6.1.1.1).
    /// Linux: `tcp_ecn_fallback`.
    pub fallback: bool,
    /// When the option is sent. Linux: `tcp_ecn_option`; there, 2 means with every segment, and 6.18 has no
    /// 3.
    pub option: EcnOptionUse,
    /// With [`EcnOptionUse::Sparing`]: how often per round trip the option is sent at least; 0 for never.
    /// Linux: `tcp_ecn_option_beacon`.
    pub option_beacon: u8,
}

impl Default for EcnConfig {
    fn default() -> Self {
        Self { policy: EcnPolicy::Accept, fallback: true, option: EcnOptionUse::Usual, option_beacon: 3 }
    }
}
