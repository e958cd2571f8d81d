//! The terms that both ends agreed on in their SYNs, and the segment size that the path has carried since.
//! RFC 9293 §3.7.1, RFC 7323 §2.3 and §3.2, RFC 2018 §2. Filled in by the handshake; read by all code that
//! needs the segment size or the window scale.

use taut_wire::{SackBlocks, TcpOptions, Timestamps as WireTimestamps};

use crate::ingress::{SCALE_MAX, scale_for};
use crate::words::{Duration, Instant};

/// Segment size of a peer that does not announce one (RFC 9293 §3.7.1, RFC 8200 §8.3).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1_220;
/// The smallest segment size, whatever a peer offers: a smaller one could make us send millions of segments.
/// Linux: `TCP_MIN_SND_MSS`.
const MIN_SND_MSS: u16 = 48;
/// No window scaling.
const UNSCALED: u8 = u8::MAX;
/// Bytes of timestamps in every segment.
const TIMESTAMPS_LEN: u16 = WireTimestamps::LEN as u16;

/// Departures lie less than this far ahead. After hours of silence the 24 bits known of the last timestamp
/// may look like one that does; then the next one is ahead by as much, and later than the last nevertheless.
const AHEAD_MAX_MS: u32 = 65_535;

/// RFC 7323 timestamps, this side's view.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timestamps {
    pub(crate) on: bool,
    /// The lower 24 bits, lowest first, of the last timestamp sent if that was later than its time; else 0.
    /// That is what fits beside `on`.
    ahead: [u8; 3],
    /// TS.Recent.
    pub(crate) recent: u32,
    /// When that was received, in seconds, to see whether it is older than 24 days.
    pub(crate) recent_at_s: u32,
    /// Added to our millisecond clock, so that timestamps do not reveal which connections share a host (RFC
    /// 7323 §5.4).
    pub(crate) offset: u32,
}

impl Timestamps {
    /// TS.Recent is `value` from now on.
    pub(crate) const fn remember(&mut self, now: Instant, value: u32) {
        self.recent = value;
        self.recent_at_s = (now.as_millis() / 1_000) as u32;
    }

    /// When TS.Recent was received, to the second.
    pub(crate) fn recent_at(&self) -> Instant {
        Instant::ZERO + Duration::from_secs(self.recent_at_s.into())
    }

    /// Our offer.
    pub(super) fn new(on: bool, offset: u32) -> Self {
        Self { on, offset, ..Self::default() }
    }

    /// The option of a segment that is handed to the device at `now` and leaves at `leaves`, if timestamps
    /// are in use.
    ///
    /// No timestamp is earlier than one that was handed to the device before. A link that was told to hold a
    /// packet until its departure may send it at once, as when a queue discipline is replaced, and the peer's
    /// PAWS would drop what follows with the present time.
    #[inline]
    pub(super) fn option(&mut self, now: Instant, leaves: Instant) -> Option<WireTimestamps> {
        let mut value = self.value(leaves);
        if leaves > now || self.ahead != [0; 3] {
            value = self.not_before_the_last(value, leaves > now);
        }
        self.on.then_some(WireTimestamps { value, echo: self.recent })
    }

    /// `value`, or the last timestamp if that was later.
    fn not_before_the_last(&mut self, value: u32, is_ahead: bool) -> u32 {
        let [low, middle, high] = self.ahead;
        let by = u32::from_le_bytes([low, middle, high, 0]).wrapping_sub(value) & 0x00ff_ffff;
        let is_later = self.ahead != [0; 3] && by <= AHEAD_MAX_MS;
        let value = if is_later { value.wrapping_add(by) } else { value };
        let [low, middle, high, _] = value.to_le_bytes();
        self.ahead = if is_later || is_ahead { [low.max(1), middle, high] } else { [0; 3] };
        value
    }

    /// The timestamp of a segment that leaves at `now`.
    pub(crate) const fn value(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.offset)
    }
}

/// Our offer until the peer's SYN arrives; from then on, the settings that both ends use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// The most payload bytes of a segment now, timestamps already deducted.
    mss: u16,
    /// The segment size that we announce.
    announced_mss: u16,
    /// Our window shift, or [`UNSCALED`].
    scale: u8,
    /// The peer's window shift (RFC 7323 §2).
    peer_scale: u8,
    sack: bool,
    ipv4: bool,
    pub(super) timestamps: Timestamps,
}

/// Our offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) ipv4: bool,
    /// Largest packet of the link.
    pub(super) mtu: u16,
    /// TCP_MAXSEG.
    pub(super) maxseg: Option<u16>,
    /// The largest window that this side will ever offer, if windows are scaled.
    pub(super) scaled_for: Option<u32>,
    pub(super) sack: bool,
    pub(super) timestamps: Timestamps,
}

/// Bytes of IP and TCP headers without options.
const fn headers_len(ipv4: bool) -> u16 {
    if ipv4 { 40 } else { 60 }
}

impl Agreed {
    /// Our offer, before anything is agreed on.
    pub(super) fn offer(offer: Offer) -> Self {
        let Offer { ipv4, mtu, maxseg, scaled_for, sack, timestamps } = offer;
        let mss = mtu.saturating_sub(headers_len(ipv4)).max(MIN_SND_MSS);
        let announced_mss = maxseg.map_or(mss, |most| mss.min(most.max(88)));
        Self {
            mss: default_mss(ipv4).min(announced_mss),
            announced_mss,
            scale: scaled_for.map_or(UNSCALED, scale_for),
            peer_scale: 0,
            sack,
            ipv4,
            timestamps,
        }
    }

    /// The peer's SYN arrived with these options. From now on, an option is on if both sides offered it, else
    /// off.
    pub(super) fn agree(&mut self, now: Instant, options: &TcpOptions) {
        match options.timestamps {
            Some(peer) if self.timestamps.on => self.timestamps.remember(now, peer.value),
            _ => self.timestamps.on = false,
        }
        let theirs = options.mss.filter(|&mss| mss != 0).unwrap_or(default_mss(self.ipv4)).max(MIN_SND_MSS);
        let mss = theirs.min(self.announced_mss).saturating_sub(self.timestamps_len());
        self.mss = mss.max(MIN_SND_MSS - TIMESTAMPS_LEN);
        match options.window_scale {
            Some(shift) if self.scale != UNSCALED => self.peer_scale = shift.min(SCALE_MAX),
            _ => self.scale = UNSCALED,
        }
        self.sack &= options.sack_permitted;
    }

    /// The offer that led to a connection of another stack.
    pub(super) fn offer_again(&mut self, scale: Option<u8>, sack: bool, timestamps: bool) {
        self.scale = scale.map_or(UNSCALED, |scale| scale.min(SCALE_MAX));
        (self.sack, self.timestamps.on) = (sack, timestamps);
    }

    /// The segment size that the peer takes, as it announced it.
    pub(super) const fn peer_mss(&self) -> u16 {
        self.mss + self.timestamps_len()
    }

    /// The options of our SYN or SYN-ACK.
    pub(super) fn syn_options(&mut self, now: Instant) -> TcpOptions {
        TcpOptions {
            mss: Some(self.announced_mss),
            window_scale: self.own_wscale(),
            sack_permitted: self.sack,
            timestamps: self.timestamps.option(now, now),
            ..TcpOptions::default()
        }
    }

    /// The path carries segments of this size, as a router reported or a probe showed.
    pub(super) const fn set_mss(&mut self, mss: u16) {
        self.mss = mss;
    }

    /// The most payload bytes of a segment over a link with this MTU.
    pub(super) fn mss_within(&self, mtu: u16) -> u16 {
        let mss = mtu.saturating_sub(headers_len(self.ipv4)).max(MIN_SND_MSS);
        mss - self.timestamps_len()
    }

    /// The link's MTU has become smaller before the handshake is over: we announce less, and send less.
    pub(super) fn limit(&mut self, mtu: u16) {
        let most = mtu.saturating_sub(headers_len(self.ipv4)).max(MIN_SND_MSS);
        self.announced_mss = self.announced_mss.min(most);
        self.mss = self.mss.min(self.mss_within(mtu));
    }

    /// The most payload bytes of a segment now, timestamps already deducted.
    pub(super) const fn mss(&self) -> u16 {
        self.mss
    }

    /// The segment size of a peer that has not announced one.
    pub(super) const fn default_mss(&self) -> u16 {
        default_mss(self.ipv4)
    }

    /// The segment size that we announce.
    pub(super) const fn announced_mss(&self) -> u16 {
        self.announced_mss
    }

    /// The most payload bytes of a segment from the peer.
    pub(super) fn advmss(&self) -> u32 {
        self.announced_mss.saturating_sub(self.timestamps_len()).into()
    }

    /// Bytes of every header: IP, TCP and timestamps.
    pub(super) fn headers_len(&self) -> u32 {
        (headers_len(self.ipv4) + self.timestamps_len()).into()
    }

    const fn timestamps_len(&self) -> u16 {
        if self.timestamps.on { TIMESTAMPS_LEN } else { 0 }
    }

    /// Whether both sides use SACK.
    pub(super) const fn sack(&self) -> bool {
        self.sack
    }

    /// SACK blocks that a header has room for (RFC 2018 §3).
    pub(super) const fn sack_blocks_max(&self) -> u8 {
        match (self.sack, self.timestamps.on) {
            (false, _) => 0,
            (true, false) => SackBlocks::MAX as u8,
            (true, true) => SackBlocks::MAX as u8 - 1,
        }
    }

    /// The peer's window shift, if windows are scaled.
    pub(super) fn peer_wscale(&self) -> Option<u8> {
        (self.scale != UNSCALED).then_some(self.peer_scale)
    }

    /// Our window shift, if windows are scaled.
    pub(super) fn own_wscale(&self) -> Option<u8> {
        (self.scale != UNSCALED).then_some(self.scale)
    }

    /// The window in bytes, from a header's field.
    pub(super) fn window(&self, field: u16) -> u32 {
        u32::from(field) << self.peer_scale
    }
}

const fn default_mss(ipv4: bool) -> u16 {
    if ipv4 { DEFAULT_MSS_V4 } else { DEFAULT_MSS_V6 }
}
