//! How large segments may be, from reports of routers, results of probes and suspected black holes. RFC 1191,
//! RFC 8201, RFC 5927 §7, RFC 8899; the rules are in [`path_mtu`](crate::egress::size::path_mtu). Called
//! after an ICMP error, an ACK or a timeout, and before data leaves.

use super::state::State;
use super::{Conn, StackCx};
use crate::egress::{MtuProbing, PathMtu, TimedOut};
use crate::recovery::MtuProbeFate;

/// Every link that carries IPv6 carries packets of this size (RFC 8200 §5).
const MTU_MIN_V6: u32 = 1_280;
/// Every IPv4 link carries packets of this size (RFC 791).
const MTU_MIN_V4: u32 = 68;

impl Conn {
    /// The state of the path's MTU; made when first needed.
    fn path(&mut self) -> &mut PathMtu {
        let least = if self.tuple.local.is_ipv4() { MTU_MIN_V4 } else { MTU_MIN_V6 };
        let floor = least.saturating_sub(self.agreed.headers_len()) as u16;
        let agreed = self.agreed.mss();
        let extras = self.extras.get_or_insert_default();
        extras.path.get_or_insert_with(|| PathMtu::new(agreed, floor.min(agreed)))
    }

    /// The path's MTU, if anything is known about it.
    pub(super) fn known_path(&self) -> Option<PathMtu> {
        self.extras.as_ref().and_then(|extras| extras.path)
    }

    /// A probe of `size` bytes left.
    pub(super) fn note_mtu_probe(&mut self, cx: &StackCx<'_>, size: u32) {
        self.path().on_sent(cx.now, size, &cx.config.mtu);
    }

    /// A router reports that packets may have at most `mtu` bytes, and quotes a packet in flight.
    pub(super) fn on_reported_mtu(&mut self, cx: &mut StackCx<'_>, mtu: u32) {
        let mtu = if self.tuple.local.is_ipv4() {
            // Routers older than RFC 1191 report 0; an MTU below that of any real link is an attack.
            mtu.max(cx.config.mtu.min_pmtu.into())
        } else if mtu < MTU_MIN_V6 {
            // RFC 8201 §4: discarded.
            return;
        } else {
            mtu
        };
        let mss = mtu.saturating_sub(self.agreed.headers_len());
        if mss >= u32::from(self.agreed.mss()) {
            return;
        }
        let (now, expires) = (cx.now, cx.config.mtu.expires);
        if self.path().on_report(now, mss as u16, expires) {
            self.follow_path();
        }
    }

    /// The link carries packets of this size from now on. Segments become smaller at once, and larger again
    /// if they had been agreed on. Linux: `tcp_current_mss`.
    pub(crate) fn on_link_mtu(&mut self, mtu: u16) {
        if self.state == State::Closed {
            return;
        }
        let before = u32::from(self.agreed.mss());
        if !self.state.is_synchronized() {
            self.agreed.limit(mtu);
            let mss = u32::from(self.agreed.mss());
            if mss < before {
                self.tx.on_mss_shrunk(mss);
            }
            return;
        }
        let mss = self.agreed.mss_within(mtu);
        if self.known_path().is_none() && u32::from(mss) >= before {
            return;
        }
        self.path().on_link(mss);
        self.follow_path();
        let after = u32::from(self.agreed.mss());
        if after > before {
            self.tx.on_mss_grown(before, after);
        }
    }

    /// From now on segments have the size that the path is known to carry; larger segments in flight are
    /// retransmitted.
    fn follow_path(&mut self) {
        let Some(path) = self.known_path() else { return };
        let mss = path.mss();
        let smaller = mss < self.agreed.mss();
        self.agreed.set_mss(mss);
        if smaller {
            self.tx.on_mss_shrunk(mss.into());
        }
    }

    /// Before data leaves: forgets expired reports of routers, and begins a search if the settings require
    /// one.
    pub(super) fn update_path(&mut self, cx: &StackCx<'_>) {
        let always = cx.config.mtu.probing == MtuProbing::Always;
        if self.known_path().is_none() && !always {
            return;
        }
        let now = cx.now;
        let path = self.path();
        let grows = path.expire(now);
        if always {
            path.search(now, &cx.config.mtu);
        }
        if grows || always {
            self.follow_path();
        }
    }

    /// After an ACK or a timeout: acts on the fate of the probe, if it is known.
    pub(super) fn judge_mtu_probe(&mut self, cx: &mut StackCx<'_>) {
        if self.known_path().is_none() {
            return;
        }
        let Some(fate) = self.tx.take_mtu_probe_fate() else { return };
        match fate {
            MtuProbeFate::Arrived => cx.counters.tcp_mtup_success += 1,
            MtuProbeFate::Lost => cx.counters.tcp_mtup_fail += 1,
            MtuProbeFate::Unknown => {}
        }
        let before = u32::from(self.agreed.mss());
        if self.path().on_probe_fate(fate) {
            self.follow_path();
            self.tx.on_mss_grown(before, self.agreed.mss().into());
        }
    }

    /// A timeout: the path may silently drop large segments. An outage is as long on any path, so what counts
    /// is the time that `tcp_retries1` retransmissions take with an RTO of 200 ms.
    pub(super) fn suspect_black_hole(&mut self, cx: &mut StackCx<'_>, timed_out: TimedOut) {
        let config = cx.config;
        if config.mtu.probing == MtuProbing::Off
            || !timed_out.has_lasted(cx.now, config.tcp.retries1, &config.recovery)
            || !self.state.is_synchronized()
        {
            return;
        }
        let (now, segment) = (cx.now, self.tx.recovery().head_segment());
        if self.path().on_black_hole(now, segment, &config.mtu) {
            cx.counters.mtu_black_holes += 1;
            self.follow_path();
        }
    }
}
