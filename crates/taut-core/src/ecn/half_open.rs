//! ECN of a handshake that a listener has not completed: what the SYN requested, in four bytes. RFC 9768
//! §3.1.5; called by `conn/half_open.rs`. The state of an open connection is made from it
//! ([`HalfAgreed::ecn`]), and so is each answer to the peer, so the rules stand once.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn as Mark, TcpHeader};

use super::accurate::Accurate;
use super::echo::Echo;
use super::negotiate::{self, Mode};
use super::{Ecn, EcnConfig, Scheme, Stamp};
use crate::congestion::EcnUse;
use crate::words::Instant;

/// The terms of ECN that a SYN and our SYN-ACK have set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfAgreed {
    mode: Mode,
    /// See [`Ecn`]: a setting may change before the SYN comes again.
    knew_accurate: bool,
    /// The mark of the latest SYN.
    syn: Mark,
    /// Our packets will not be marked, because the path or the peer has given ECN up.
    unmarked: bool,
}

impl HalfAgreed {
    /// A SYN arrived in a packet marked `mark`.
    pub(crate) fn on_syn(config: &EcnConfig, wanted: EcnUse, syn: &TcpHeader, mark: Mark) -> Self {
        Self {
            mode: negotiate::on_syn(config, wanted, syn.flags, mark),
            knew_accurate: negotiate::accepts_accurate(config, wanted),
            syn: mark,
            unmarked: false,
        }
    }

    /// The state of the connection, if it uses ECN.
    pub(crate) fn ecn(self) -> Option<Ecn> {
        let scheme = match self.mode {
            Mode::Off => return None,
            Mode::Classic => Scheme::Echo(Echo::new(false)),
            Mode::Dctcp => Scheme::Echo(Echo::new(true)),
            Mode::Accurate => Scheme::Accurate(Accurate::resumed_server(self.syn, self.unmarked)),
        };
        Some(Ecn { scheme, knew_accurate: self.knew_accurate, ..Ecn::OFF })
    }

    /// The SYN arrived again. Returns false when it requests another kind of ECN than the first.
    #[must_use]
    pub(crate) fn on_repeated_syn(&mut self, flags: TcpFlags, mark: Mark) -> bool {
        let Some(mut ecn) = self.ecn() else { return true };
        let agrees = ecn.on_repeated_syn(flags, mark);
        self.remember(&ecn);
        agrees
    }

    /// The flags, option and mark of our SYN-ACK after `retries` timeouts; `again`: a SYN-ACK has left
    /// before.
    pub(crate) fn stamp_syn_ack(
        &mut self,
        config: &EcnConfig,
        now: Instant,
        retries: u8,
        again: bool,
    ) -> Stamp {
        let Some(mut ecn) = self.ecn() else { return Stamp::NONE };
        ecn.before_packet(config, now, None);
        let stamp = ecn.stamp_syn_ack(config, retries, again);
        self.remember(&ecn);
        stamp
    }

    fn remember(&mut self, ecn: &Ecn) {
        if let Some(accurate) = ecn.accurate() {
            (self.syn, self.unmarked) = accurate.handshake();
        }
    }
}
