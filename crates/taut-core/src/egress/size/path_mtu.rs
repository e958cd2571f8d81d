//! How large a segment may be: reports of routers (RFC 1191, RFC 8201), and a search where routers are silent
//! (RFC 4821, RFC 8899). Linux 6.12: `tcp_mtu_probing`, `tcp_mtu_probe`. Consulted before new data leaves;
//! updated by ICMP errors, acknowledgements, losses and timeouts.
//!
//! **Problem.** A router drops a packet that is too large for the next link, and reports it by ICMP. Many
//! firewalls drop that message. Small packets then pass and large ones never do: a connection opens, and
//! hangs as soon as it sends a full window. Such a path is a *black hole*.
//!
//! **Rule.** A router's report takes effect immediately and holds for ten minutes; then a larger packet is
//! tried again. When timeouts for a segment larger than `tcp_base_mss` go on for the time
//! that `tcp_retries1` retransmissions take with an RTO of 200 ms (3 s), a black hole is suspected:
//! segments shrink to that size, and to half of it with each further timeout. From then on (or from the
//! beginning, with `tcp_mtu_probing` = 2) the stack searches for the largest size that arrives, between
//! `low`, which does, and `high`, which may not. A *probe* is new data in one segment larger than the others.
//! If it arrives, `low` rises to its size. If it is the only segment lost, `high` falls below its size; that
//! was not congestion, so the window stays. Any other outcome says nothing. The search ends when the interval
//! is smaller than `tcp_probe_threshold`, and begins again after `tcp_probe_interval`.
//!
//! A probe leaves only when the segments behind it would reveal its loss, and when the loss would cost
//! little: state Open, cwnd of 11 segments or more, and room for the probe and for enough segments behind it
//! that three arrive after it. The first probe of a search has the largest size, because the suspected black
//! hole may only have been an outage; after that, each probe halves the interval.
//!
//! Sizes here are payloads of a segment, timestamps already deducted, as in `snd_mss`; the connection adds
//! the headers.

use crate::egress::{MtuConfig, MtuProbing};
use crate::recovery::MtuProbeFate;
use crate::words::{Duration, Instant};

/// No probe with a smaller window: its loss would cost too much. Linux.
const CWND_MIN: u32 = 11;
/// Segments that must be able to follow a probe, so that its loss is found without a timeout. Linux:
/// reordering + 1.
const FOLLOWERS: u32 = 4;
/// The smallest segment. Linux: `TCP_MIN_SND_MSS`, 48, less the options of a segment.
const MSS_MIN: u16 = 36;

/// What is known about the path's MTU beyond the handshake. Most connections have none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    /// As agreed in the handshake; never exceeded.
    agreed: u16,
    /// The largest segment that the link carries, if its MTU has changed since the handshake; never exceeded.
    link: u16,
    /// Every path carries this; segments are never smaller.
    floor: u16,
    /// The size that a router reported, and until when it is believed.
    reported: Option<(u16, Instant)>,
    search: Option<Search>,
}

/// The search of RFC 4821 §7.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// The largest size thought to arrive.
    low: u16,
    /// The largest size that may arrive.
    high: u16,
    /// Size of the probe in flight; 0 for none.
    probing: u16,
    /// No size above `low` has been tried since the search began.
    fresh: bool,
    began: Instant,
}

/// The inputs of a decision about a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Segment size for ordinary data, now.
    pub(crate) mss: u32,
    /// The state is Open: nothing is lost or out of order, and no reduction is under way.
    pub(crate) open: bool,
    pub(crate) cwnd: u32,
    /// Segments in the network.
    pub(crate) in_flight: u32,
    /// Unsent bytes, up to the end of the record.
    pub(crate) unsent: u64,
    /// Bytes that the peer's window has room for.
    pub(crate) window_room: u32,
    /// Bytes of the peer's whole window.
    pub(crate) window: u32,
}

/// Whether a probe leaves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// No: ordinary data may leave.
    No,
    /// Soon: the congestion window has no room yet, and nothing else should fill it.
    WaitForCwnd,
    /// Soon: the same for the peer's window.
    WaitForWindow,
    /// Yes: one segment of this many bytes.
    Probe(u32),
}

/// The size at which a search begins, and to which a black hole first reduces segments.
fn base(config: &MtuConfig, floor: u16) -> u16 {
    config.base_mss.max(floor)
}

impl PathMtu {
    /// Nothing is known beyond the handshake. `floor` is the segment that every path of this address family
    /// carries.
    pub(crate) const fn new(agreed: u16, floor: u16) -> Self {
        Self { agreed, link: u16::MAX, floor, reported: None, search: None }
    }

    /// Payload of ordinary segments.
    pub(crate) fn mss(&self) -> u16 {
        let reported = self.reported.map_or(u16::MAX, |(mss, _)| mss);
        let low = self.search.map_or(u16::MAX, |search| search.low);
        self.agreed.min(self.link).min(reported).min(low)
    }

    /// A router reported that no more than `mss` fits. Returns whether that makes segments smaller.
    pub(crate) fn on_report(&mut self, now: Instant, mss: u16, expires: Duration) -> bool {
        if mss >= self.mss() {
            return false;
        }
        self.reported = Some((mss, now + expires));
        if let Some(search) = &mut self.search {
            search.high = search.high.min(mss);
            search.low = search.low.min(mss);
            search.probing = 0;
        }
        true
    }

    /// The link carries segments of `mss` bytes from now on.
    pub(crate) fn on_link(&mut self, mss: u16) {
        self.link = mss;
        let most = self.ceiling();
        if let Some(search) = &mut self.search {
            search.high = search.high.min(most);
            search.low = search.low.min(most);
            search.probing = 0;
        }
    }

    /// Forgets a router's report once it has expired. Returns whether segments may now grow.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        if self.reported.is_none_or(|(_, until)| now < until) {
            return false;
        }
        let before = self.mss();
        self.reported = None;
        self.mss() > before
    }

    /// Begins to search, from the base up: `tcp_mtu_probing` = 2.
    pub(crate) fn search(&mut self, now: Instant, config: &MtuConfig) {
        if self.search.is_none() {
            let high = self.mss();
            let low = base(config, self.floor).min(high);
            self.search = Some(Search { low, high, probing: 0, fresh: true, began: now });
        }
    }

    /// A segment of `segment` bytes timed out again and again. Returns whether ordinary segments become
    /// smaller.
    pub(crate) fn on_black_hole(&mut self, now: Instant, segment: u32, config: &MtuConfig) -> bool {
        let before = self.mss();
        let floor = self.floor.max(config.probe_floor).max(MSS_MIN);
        let low = match self.search {
            None => base(config, self.floor),
            Some(search) => (search.low / 2).min(base(config, self.floor)).max(floor),
        };
        // A segment that is already this small does not hang because of its size.
        if segment <= u32::from(low) || low >= before {
            return false;
        }
        self.search(now, config);
        if let Some(search) = &mut self.search {
            search.low = low;
            search.probing = 0;
            search.fresh = true;
        }
        true
    }

    /// Whether a probe leaves now.
    pub(crate) fn decide(&self, now: Instant, view: &View, config: &MtuConfig) -> Decision {
        let Some(search) = self.search.filter(|_| config.probing != MtuProbing::Off) else {
            return Decision::No;
        };
        // A probe cannot be compared with segments that are temporarily smaller (SACK blocks, a small
        // window).
        if search.probing != 0 || !view.open || view.cwnd < CWND_MIN || view.mss != u32::from(self.mss()) {
            return Decision::No;
        }
        let Some(size) = self.next_size(now, &search, config) else { return Decision::No };
        let size = u32::from(size);
        let needed = size + FOLLOWERS * view.mss;
        if view.unsent < u64::from(needed) || view.window < needed {
            return Decision::No;
        }
        if view.window_room < needed {
            return Decision::WaitForWindow;
        }
        if view.in_flight + 2 > view.cwnd {
            return if view.in_flight == 0 { Decision::No } else { Decision::WaitForCwnd };
        }
        Decision::Probe(size)
    }

    /// The size to try next; `None` while the search is over.
    fn next_size(&self, now: Instant, search: &Search, config: &MtuConfig) -> Option<u16> {
        let ceiling = self.ceiling();
        let (low, high, fresh) = if now.since(search.began) >= config.probe_interval {
            // The path may have changed: search again up to the ceiling.
            (search.low, ceiling, true)
        } else {
            (search.low, search.high.min(ceiling), search.fresh)
        };
        if high.saturating_sub(low) < config.probe_threshold.max(1) {
            return None;
        }
        Some(if fresh { high } else { low + (high - low).div_ceil(2) })
    }

    /// No probe is larger.
    fn ceiling(&self) -> u16 {
        self.agreed.min(self.link).min(self.reported.map_or(u16::MAX, |(mss, _)| mss))
    }

    /// A probe of [`Decision::Probe`]'s size left.
    pub(crate) fn on_sent(&mut self, now: Instant, size: u32, config: &MtuConfig) {
        let ceiling = self.ceiling();
        let Some(search) = &mut self.search else { return };
        if now.since(search.began) >= config.probe_interval {
            search.began = now;
            search.high = ceiling;
            search.fresh = true;
        }
        search.probing = u16::try_from(size).unwrap_or(u16::MAX);
    }

    /// The fate of the probe is known. Returns whether ordinary segments become larger.
    pub(crate) fn on_probe_fate(&mut self, fate: MtuProbeFate) -> bool {
        let before = self.mss();
        let Some(search) = &mut self.search else { return false };
        let size = core::mem::take(&mut search.probing);
        match fate {
            // A router's report, or a black hole, has overtaken it.
            _ if size <= search.low => {}
            MtuProbeFate::Arrived => {
                search.low = size;
                search.fresh = false;
            }
            MtuProbeFate::Lost => {
                search.high = size - 1;
                search.fresh = false;
            }
            MtuProbeFate::Unknown => {}
        }
        self.mss() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const S: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// A connection in the middle of a transfer.
    fn view(path: &PathMtu) -> View {
        View {
            mss: path.mss().into(),
            open: true,
            cwnd: 20,
            in_flight: 10,
            unsent: 100_000,
            window_room: 100_000,
            window: 100_000,
        }
    }

    /// Searches to the end on a path that carries `truth`; returns every size tried.
    fn search(path: &mut PathMtu, now: Instant, truth: u32, config: &MtuConfig) -> Vec<u32> {
        let mut tried = Vec::new();
        while let Decision::Probe(size) = path.decide(now, &view(path), config) {
            tried.push(size);
            path.on_sent(now, size, config);
            assert_eq!(path.decide(now, &view(path), config), Decision::No, "one at a time");
            path.on_probe_fate(if size <= truth { MtuProbeFate::Arrived } else { MtuProbeFate::Lost });
            assert!(tried.len() < 100, "{tried:?}");
        }
        tried
    }

    #[test]
    fn what_a_router_says_holds_for_a_while() {
        let mut path = PathMtu::new(1_448, 500);
        assert!(path.on_report(at(0), 1_200, S * 600));
        assert!(!path.on_report(at(1), 1_300, S * 600), "a report never makes segments larger");
        assert_eq!(path.mss(), 1_200);
        assert!(!path.expire(at(599)));
        assert!(path.expire(at(600)));
        assert_eq!(path.mss(), 1_448);
    }

    #[test]
    fn the_search_ends_within_the_threshold_of_the_truth() {
        let config = MtuConfig::default();
        for truth in [1_024, 1_030, 1_100, 1_248, 1_400, 1_440, 1_447, 1_448] {
            let mut path = PathMtu::new(1_448, 500);
            path.search(at(0), &config);
            assert_eq!(path.mss(), 1_024, "tcp_base_mss");
            let tried = search(&mut path, at(0), truth, &config);
            assert_eq!(tried.first(), Some(&1_448), "the largest first");
            let found = u32::from(path.mss());
            assert!(found <= truth && truth - found < 8, "{found} of {truth}: {tried:?}");
            assert!(tried.len() <= 8, "{tried:?}");
            // Ten minutes later it searches again, and finds a path that carries more.
            assert_eq!(path.decide(at(599), &view(&path), &config), Decision::No);
            let mut grown = path;
            search(&mut grown, at(600), 1_448, &config);
            assert_eq!(grown.mss(), if found > 1_440 { found as u16 } else { 1_448 });
            // Or it finds nothing new, and does not search again for another ten minutes.
            let again = search(&mut path, at(600), truth, &config);
            assert!(again.len() <= 8 && u32::from(path.mss()) <= truth, "{again:?}");
            assert_eq!(path.decide(at(1_199), &view(&path), &config), Decision::No);
        }
    }

    #[test]
    fn a_threshold_of_one_finds_the_very_byte() {
        let config = MtuConfig { probe_threshold: 1, ..MtuConfig::default() };
        for truth in [1_024, 1_025, 1_300, 1_446, 1_447, 1_448] {
            let mut path = PathMtu::new(1_448, 500);
            path.search(at(0), &config);
            search(&mut path, at(0), truth, &config);
            assert_eq!(u32::from(path.mss()), truth);
        }
    }

    #[test]
    fn a_black_hole_leads_to_the_base_and_then_to_halves() {
        let config = MtuConfig::default();
        let mut path = PathMtu::new(1_448, 48);
        assert!(!path.on_black_hole(at(0), 900, &config), "a small segment hangs for another reason");
        for mss in [1_024, 512, 256, 128, 64, 48] {
            assert!(path.on_black_hole(at(0), u32::from(path.mss()), &config));
            assert_eq!(path.mss(), mss);
        }
        assert!(!path.on_black_hole(at(0), 48, &config), "tcp_mtu_probe_floor");
        // Every path carries 1280 bytes of IPv6: 1208 of payload.
        let mut path = PathMtu::new(1_428, 1_208);
        assert!(path.on_black_hole(at(0), 1_428, &config));
        assert_eq!(path.mss(), 1_208);
        assert!(!path.on_black_hole(at(0), 1_208, &config));
    }

    #[test]
    fn a_probe_needs_company_and_room() {
        let config = MtuConfig::default();
        let mut path = PathMtu::new(1_448, 500);
        path.search(at(0), &config);
        let (no, full) = (Decision::No, view(&path));
        // 1448 + 4 · 1024.
        let needed = 5_544;
        for (view, expected) in [
            (View { unsent: needed, window_room: 5_544, window: 5_544, ..full }, Decision::Probe(1_448)),
            (View { unsent: needed - 1, ..full }, no),
            (View { window: 5_543, ..full }, no),
            (View { window_room: 5_543, ..full }, Decision::WaitForWindow),
            (View { open: false, ..full }, no),
            (View { cwnd: 10, in_flight: 0, ..full }, no),
            (View { cwnd: 11, in_flight: 9, ..full }, Decision::Probe(1_448)),
            (View { cwnd: 11, in_flight: 10, ..full }, Decision::WaitForCwnd),
            (View { mss: 1_012, ..full }, no),
        ] {
            assert_eq!(path.decide(at(0), &view, &config), expected, "{view:?}");
        }
        let off = MtuConfig { probing: MtuProbing::Off, ..config };
        assert_eq!(path.decide(at(0), &full, &off), no);
    }

    #[test]
    fn a_router_ends_a_probe_and_bounds_the_search() {
        let config = MtuConfig::default();
        let mut path = PathMtu::new(1_448, 500);
        path.search(at(0), &config);
        path.on_sent(at(0), 1_448, &config);
        assert!(path.on_report(at(0), 1_000, S * 600));
        assert!(!path.on_probe_fate(MtuProbeFate::Arrived), "of nothing");
        assert_eq!(path.decide(at(0), &view(&path), &config), Decision::No);
        assert!(!path.expire(at(600)), "no probe of that size was ever answered");
        assert_eq!(path.mss(), 1_000);
        // Unknown: the same size is tried again.
        let mut path = PathMtu::new(1_448, 500);
        path.search(at(0), &config);
        path.on_sent(at(0), 1_448, &config);
        path.on_probe_fate(MtuProbeFate::Unknown);
        assert_eq!(path.decide(at(0), &view(&path), &config), Decision::Probe(1_448));
    }

    /// Ten minutes later the path may carry anything again: until the fate of a probe is known, of the
    /// largest size.
    #[test]
    fn a_new_search_goes_up_to_the_ceiling() {
        let config = MtuConfig::default();
        let mut path = PathMtu::new(1_448, 500);
        path.search(at(0), &config);
        search(&mut path, at(0), 1_200, &config);
        for fate in [MtuProbeFate::Unknown, MtuProbeFate::Unknown, MtuProbeFate::Arrived] {
            assert_eq!(path.decide(at(600), &view(&path), &config), Decision::Probe(1_448));
            path.on_sent(at(600), 1_448, &config);
            path.on_probe_fate(fate);
        }
        assert_eq!(path.mss(), 1_448);
    }
}
