//! Every number of BBR, in one table.
//! draft-ietf-ccwg-bbr-06; its section is given with each. Read by the rest of `bbr/`.
//!
//! Gains and shares are percent, volumes segments.

use crate::words::Duration;

/// The parameters. The draft's names are those of its §2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Params {
    /// `StartupPacingGain`, 4·ln 2. §2.5.
    pub(super) startup_pacing: u32,
    /// `DrainPacingGain`. §5.3.2; 35 up to the draft's -04 and in Google's v3.
    pub(super) drain_pacing: u32,
    /// §5.3.3.1; 91 in Google's v3.
    pub(super) down_pacing: u32,
    /// Cruise, Refill and ProbeRTT. §5.6.1.
    pub(super) cruise_pacing: u32,
    /// §5.3.3.5.
    pub(super) up_pacing: u32,
    /// `DefaultCwndGain`. §2.6.
    pub(super) cwnd_gain: u32,
    /// §5.3.3.5.
    pub(super) up_cwnd_gain: u32,
    /// `ProbeRTTCwndGain`. §2.16.2.
    pub(super) probe_rtt_cwnd_gain: u32,
    /// `PacingMarginPercent`: below the bandwidth, so that queues drain. §2.5.
    pub(super) pacing_margin: u32,
    /// `LossThresh`. §2.8.
    pub(super) loss_thresh: u32,
    /// The most loss that is tolerated where it does not come from a queue; see `ambient.rs`. taut's own; 0
    /// in the draft.
    pub(super) ambient_loss_max: u32,
    /// `Beta`: the share left after a reduction. §2.8.
    pub(super) beta: u32,
    /// `Headroom`: the share left to others. §2.8.
    pub(super) headroom: u32,
    /// `MinPipeCwnd`. §2.8.
    pub(super) min_pipe_cwnd: u32,
    /// Growth of the bandwidth by less than this in a round does not count. §5.3.1.2.
    pub(super) full_bw_growth: u32,
    /// Rounds without growth that mean a full pipe. §5.3.1.2.
    pub(super) full_bw_rounds: u8,
    /// `StartupFullLossCnt`: ranges lost in a round that end Startup. §5.3.1.3.
    pub(super) startup_loss_ranges: u32,
    /// The most rounds that Drain takes. §5.3.2.
    pub(super) drain_rounds: u32,
    /// `MinRTTFilterLen`. §2.16.1.
    pub(super) min_rtt_window: Duration,
    /// `ProbeRTTInterval`. §2.16.2.
    pub(super) probe_rtt_interval: Duration,
    /// After the first ProbeRTT, an RTT that exceeds the least one by no more than this part of it (a 64th)
    /// renews it. taut's own; the draft asks for a lower RTT, and lets the queue run empty every five seconds
    /// even where it was just empty.
    pub(super) min_rtt_tolerance: u64,
    /// `ProbeRTTDuration`. §2.16.2.
    pub(super) probe_rtt_time: Duration,
    /// Half of `ExtraAckedFilterLen`: the filter has two slots, each of this many rounds. §2.12.
    pub(super) extra_acked_rounds: u32,
    /// Least time between probes for bandwidth; a random time of up to `probe_wait_random` is added.
    /// §5.3.3.8.
    pub(super) probe_wait: Duration,
    /// See `probe_wait`.
    pub(super) probe_wait_random: Duration,
    /// Most rounds between probes, for the sake of Reno and CUBIC. §5.3.3.8.
    pub(super) probe_wait_rounds: u32,
    /// The path is slower when samples stay below this share of the bandwidth. taut's own; see `change.rs`.
    pub(super) slower_share: u32,
    /// RTTs above this share of the least are those of a queue.
    pub(super) slower_rtt: u32,
    /// For this many times the least RTT.
    pub(super) slower_rtts: u64,
    /// How long a path that became slower counts as one that changes.
    pub(super) change_memory: Duration,
    /// Rounds between probes in that time. BBR version 1: 8.
    pub(super) change_wait_rounds: u32,
    /// `inflight_longterm` grows by 2ⁿ segments in the nth round of a probe, n up to this. §5.3.3.9.
    pub(super) up_growth_max: u32,
    /// Super-packets that must fit in flight: one in the queue, one being cut, one at the receiver. §5.5.8.
    pub(super) offload_quanta: u32,
    /// A super-packet holds the data of this much time at the pacing rate. §5.6.3.
    pub(super) quantum_time: Duration,
    /// Largest super-packet, bytes. §5.6.3.
    pub(super) quantum_max: u32,
}

/// The values in use.
pub(super) const PARAMS: Params = Params {
    startup_pacing: 277,
    drain_pacing: 50,
    down_pacing: 90,
    cruise_pacing: 100,
    up_pacing: 125,
    cwnd_gain: 200,
    up_cwnd_gain: 225,
    probe_rtt_cwnd_gain: 50,
    pacing_margin: 1,
    loss_thresh: 2,
    ambient_loss_max: 10,
    beta: 70,
    headroom: 15,
    min_pipe_cwnd: 4,
    full_bw_growth: 125,
    full_bw_rounds: 3,
    startup_loss_ranges: 6,
    drain_rounds: 3,
    min_rtt_window: Duration::from_secs(10),
    probe_rtt_interval: Duration::from_secs(5),
    min_rtt_tolerance: 64,
    probe_rtt_time: Duration::from_millis(200),
    extra_acked_rounds: 5,
    probe_wait: Duration::from_secs(2),
    probe_wait_random: Duration::from_secs(1),
    probe_wait_rounds: 63,
    slower_share: 70,
    slower_rtt: 150,
    slower_rtts: 4,
    change_memory: Duration::from_secs(30),
    change_wait_rounds: 8,
    up_growth_max: 30,
    offload_quanta: 3,
    quantum_time: Duration::from_millis(1),
    quantum_max: 65_536,
};
