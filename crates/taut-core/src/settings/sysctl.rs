//! Settings by name, changed while the stack runs, as `sysctl` does for a kernel.
//! Names, units and ranges are those of Linux's `net.ipv4` and `net.core`; taut's own settings, such as the
//! historical forms of the mechanisms, begin with `taut.`. Called by [`Stack::sysctl`](crate::Stack::sysctl)
//! and [`Stack::set_sysctl`](crate::Stack::set_sysctl).
//!
//! One row of [`TABLE`] is one setting: how it is read, and how a text becomes its value. Most settings are
//! read whenever they matter, so that a change applies immediately to every connection; settings that a
//! connection copies when it begins (buffer sizes, options of the SYN, the congestion control) apply to later
//! connections.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Display;
use core::str::FromStr;

use thiserror::Error;

use super::config::StackConfig;
use super::config::{EcnOptionUse, EcnPolicy, MtuProbing, RecoveryConfig, SynCookies};
use crate::buffers::{BufferTuning, MemoryLimits};
use crate::congestion::{Algorithm, CongestionConfig};
use crate::egress::{AutocorkMode, AutosizeMode, LowatMode, PacingMode, SNDBUF_MIN, TsqMode};
use crate::words::{BufferSizes, Duration};

/// Why a setting was not read or changed. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SysctlError {
    /// There is no setting of that name.
    #[error("no such setting: {0}")]
    Unknown(String),
    /// The setting cannot be changed.
    #[error("{0} can only be read")]
    ReadOnly(&'static str),
    /// The value is not of the right kind, or out of its range.
    #[error("{name} = {value}: {expected}")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// The value that was rejected.
        value: String,
        /// The values that are allowed.
        expected: String,
    },
}

/// One setting.
struct Setting {
    name: &'static str,
    get: fn(&StackConfig) -> String,
    /// Sets it, or returns the allowed values if the text is none of them. `None`: the setting can only be
    /// read.
    set: Option<Change>,
}

type Change = fn(&mut StackConfig, &str) -> Result<(), String>;

/// A number within a range.
fn number<T: FromStr + PartialOrd + Display + Copy>(text: &str, low: T, high: T) -> Result<T, String> {
    match text.trim().parse() {
        Ok(value) if low <= value && value <= high => Ok(value),
        _ => Err(format!("must be a whole number from {low} to {high}")),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    number(text, 0, 1).map(|value: u8| value == 1)
}

/// Why a word is none of those that are allowed: that, or the feature that it needs.
fn refusal(text: &str, has_history: bool, expected: &str) -> String {
    let is_older =
        text.starts_with("fixed:") || ["fixed", "at-write", "may-hold-head", "wake-at-mark"].contains(&text);
    if is_older && !has_history {
        return "an older rule of Linux's, which needs the feature `history` of taut-core".to_string();
    }
    expected.to_string()
}

/// One of a few words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(name, _)| *name == text.trim());
    found.map(|&(_, value)| value).ok_or_else(|| {
        let names = words.iter().map(|&(name, _)| name).collect::<Vec<_>>();
        refusal(text.trim(), cfg!(feature = "history"), &format!("must be one of {}", names.join(", ")))
    })
}

/// The word for a value, if it has one.
fn name_of<T: PartialEq>(value: &T, words: &[(&'static str, T)]) -> &'static str {
    words.iter().find(|(_, other)| other == value).map_or("", |&(name, _)| name)
}

/// The largest `int`.
const INT_MAX: u32 = i32::MAX as u32;

/// `min initial max`, ascending.
fn sizes(text: &str) -> Result<BufferSizes, String> {
    let expected = || format!("must be three ascending sizes in bytes, up to {INT_MAX}");
    let mut parts = text.split_whitespace().map(|part| number(part, 1, INT_MAX));
    let mut next = || parts.next().and_then(Result::ok).ok_or_else(expected);
    let sizes = BufferSizes { min: next()?, initial: next()?, max: next()? };
    if parts.next().is_some() || sizes.min > sizes.initial || sizes.initial > sizes.max {
        return Err(expected());
    }
    Ok(sizes)
}

fn sizes_text(sizes: BufferSizes) -> String {
    format!("{} {} {}", sizes.min, sizes.initial, sizes.max)
}

/// `low pressure high`, ascending.
fn limits(text: &str) -> Result<MemoryLimits, String> {
    let sizes = sizes(text)
        .map_err(|_| format!("must be three ascending numbers of pages of 4096 bytes, up to {INT_MAX}"))?;
    Ok(MemoryLimits { low: sizes.min, pressure: sizes.initial, high: sizes.max })
}

/// A span, in a unit of `unit_ns` nanoseconds.
fn span(text: &str, low: u64, high: u64, unit_ns: u64) -> Result<Duration, String> {
    number(text, low, high).map(|value| Duration::from_nanos(value * unit_ns))
}

const NS: u64 = 1;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

// Linux's numbers for values that are words here.
const ECN: [(&str, EcnPolicy); 6] = [
    ("0", EcnPolicy::Off),
    ("1", EcnPolicy::Ask),
    ("2", EcnPolicy::Accept),
    ("3", EcnPolicy::AskAccurate),
    ("4", EcnPolicy::AcceptAccurateAskClassic),
    ("5", EcnPolicy::AcceptAccurate),
];
const ECN_OPTION: [(&str, EcnOptionUse); 4] = [
    ("0", EcnOptionUse::Never),
    ("1", EcnOptionUse::Sparing),
    ("2", EcnOptionUse::Usual),
    ("3", EcnOptionUse::Persistent),
];
const MTU_PROBING: [(&str, MtuProbing); 3] =
    [("0", MtuProbing::Off), ("1", MtuProbing::AfterBlackHole), ("2", MtuProbing::Always)];

const SYN_COOKIES: [(&str, SynCookies); 3] =
    [("0", SynCookies::Off), ("1", SynCookies::WhenFull), ("2", SynCookies::Always)];

const AUTOSIZE: &[(&str, AutosizeMode)] = &[
    ("off", AutosizeMode::Off),
    #[cfg(feature = "history")]
    ("at-write", AutosizeMode::AtWrite),
    ("at-transmit", AutosizeMode::AtTransmit),
];
const AUTOCORK: &[(&str, AutocorkMode)] = &[
    ("off", AutocorkMode::Off),
    #[cfg(feature = "history")]
    ("may-hold-head", AutocorkMode::MayHoldHead),
    ("fixed", AutocorkMode::Fixed),
    ("stream", AutocorkMode::Stream),
];
const BUFFERS: [(&str, BufferTuning); 2] =
    [("follow-window", BufferTuning::FollowWindow), ("follow-path", BufferTuning::FollowPath)];
const LOWAT: &[(&str, LowatMode)] = &[
    #[cfg(feature = "history")]
    ("wake-at-mark", LowatMode::WakeAtMark),
    ("wake-at-half", LowatMode::WakeAtHalf),
];
const PACING: [(&str, PacingMode); 4] = [
    ("off", PacingMode::Off),
    ("internal", PacingMode::Internal),
    ("delegated", PacingMode::Delegated),
    ("auto", PacingMode::Auto),
];

fn tsq(text: &str) -> Result<TsqMode, String> {
    let text = text.trim();
    match text {
        "off" => return Ok(TsqMode::Off),
        "rate-scaled" => return Ok(TsqMode::RateScaled),
        "delivered" => return Ok(TsqMode::Delivered),
        "measured" => return Ok(TsqMode::Measured),
        "auto" => return Ok(TsqMode::Auto),
        #[cfg(feature = "history")]
        "fixed" => return Ok(TsqMode::Fixed { cap_bytes: TsqMode::CAP_2012 }),
        _ => {}
    }
    #[cfg(feature = "history")]
    if let Some(cap_bytes) = text.strip_prefix("fixed:").and_then(|cap| number(cap, 1, INT_MAX).ok()) {
        return Ok(TsqMode::Fixed { cap_bytes });
    }
    const ALLOWED: &str = if cfg!(feature = "history") {
        "must be off, fixed, fixed:BYTES, rate-scaled, delivered, measured or auto"
    } else {
        "must be off, rate-scaled, delivered, measured or auto"
    };
    Err(refusal(text, cfg!(feature = "history"), ALLOWED))
}

fn tsq_text(mode: TsqMode) -> String {
    match mode {
        TsqMode::Off => "off".to_string(),
        #[cfg(feature = "history")]
        TsqMode::Fixed { cap_bytes } => format!("fixed:{cap_bytes}"),
        TsqMode::RateScaled => "rate-scaled".to_string(),
        TsqMode::Delivered => "delivered".to_string(),
        TsqMode::Measured => "measured".to_string(),
        TsqMode::Auto => "auto".to_string(),
    }
}

fn set_congestion(config: &mut CongestionConfig, text: &str) -> Result<(), String> {
    config.control = config.registry.algorithm(text).map_err(|error| error.to_string())?;
    Ok(())
}

fn available(config: &CongestionConfig) -> String {
    config.registry.iter().map(Algorithm::name).collect::<Vec<_>>().join(" ")
}

/// `tcp_early_retrans`: to Linux, 3 and 4 mean the same.
fn early_retrans(text: &str) -> Result<bool, String> {
    match text.trim() {
        "0" => Ok(false),
        "3" | "4" => Ok(true),
        _ => Err("must be 0 (no tail loss probes), 3 or 4".to_string()),
    }
}

/// `tcp_frto`: to Linux, all values but 0 mean the same.
fn frto(text: &str) -> Result<bool, String> {
    number(text, 0, u8::MAX).map(|value| value != 0)
}

/// `tcp_recovery`: bit 0 is RACK, the only loss detection there is.
const RACK: u8 = 1;
const FIXED_REORDER_WINDOW: u8 = 2;
const IGNORE_DUP_THRESH: u8 = 4;

fn set_recovery(config: &mut RecoveryConfig, text: &str) -> Result<(), String> {
    let bits = number(text, 0_u8, 7).ok().filter(|bits| bits & RACK != 0).ok_or_else(|| {
        "must be 1 (RACK), plus 2 for a fixed reordering window, plus 4 to ignore the duplicate threshold"
            .to_string()
    })?;
    config.fixed_reorder_window = bits & FIXED_REORDER_WINDOW != 0;
    config.ignore_dup_thresh = bits & IGNORE_DUP_THRESH != 0;
    Ok(())
}

fn recovery_text(config: &RecoveryConfig) -> String {
    let fixed = u8::from(config.fixed_reorder_window) * FIXED_REORDER_WINDOW;
    (RACK + fixed + u8::from(config.ignore_dup_thresh) * IGNORE_DUP_THRESH).to_string()
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let expected = || "must be two ports from 1 to 65535, the first not above the second".to_string();
    let mut parts = text.split_whitespace().map(|part| number(part, 1, u16::MAX));
    let mut next = || parts.next().and_then(Result::ok).ok_or_else(expected);
    let range = (next()?, next()?);
    if parts.next().is_some() || range.0 > range.1 { Err(expected()) } else { Ok(range) }
}

/// A row for a field that is a switch, a number, a span of time, three sizes, or a word of a list.
macro_rules! setting {
    ($name:literal, $($field:ident).+: switch) => {
        Setting {
            name: $name,
            get: |config| u8::from(config.$($field).+).to_string(),
            set: Some(|config, text| switch(text).map(|value| config.$($field).+ = value)),
        }
    };
    ($name:literal, $($field:ident).+: $low:expr => $high:expr) => {
        Setting {
            name: $name,
            get: |config| config.$($field).+.to_string(),
            set: Some(|config, text| number(text, $low, $high).map(|value| config.$($field).+ = value)),
        }
    };
    ($name:literal, $($field:ident).+: $low:expr => $high:expr; $unit:ident) => {
        Setting {
            name: $name,
            get: |config| (config.$($field).+.as_nanos() / $unit).to_string(),
            set: Some(|config, text| span(text, $low, $high, $unit).map(|value| config.$($field).+ = value)),
        }
    };
    ($name:literal, $($field:ident).+: sizes) => {
        Setting {
            name: $name,
            get: |config| sizes_text(config.$($field).+),
            set: Some(|config, text| sizes(text).map(|value| config.$($field).+ = value)),
        }
    };
    ($name:literal, $($field:ident).+: $words:ident) => {
        Setting {
            name: $name,
            get: |config| name_of(&config.$($field).+, &$words[..]).to_string(),
            set: Some(|config, text| word(text, &$words[..]).map(|value| config.$($field).+ = value)),
        }
    };
    ($name:literal, $($field:ident).+: $parse:ident, $print:expr) => {
        Setting {
            name: $name,
            get: |config| $print(config.$($field).+),
            set: Some(|config, text| $parse(text).map(|value| config.$($field).+ = value)),
        }
    };
}

/// Every setting, by name.
static TABLE: [Setting; 75] = [
    setting!("net.core.rmem_max", receive.rmem_max: SNDBUF_MIN => INT_MAX),
    setting!("net.core.wmem_max", send.wmem_max: SNDBUF_MIN => INT_MAX),
    setting!("net.ipv4.icmp_msgs_burst", icmp.msgs_burst: 0 => INT_MAX),
    setting!("net.ipv4.icmp_msgs_per_sec", icmp.msgs_per_sec: 1 => INT_MAX),
    setting!("net.ipv4.icmp_ratelimit", icmp.ratelimit: 0 => u64::from(INT_MAX); MS),
    setting!("net.ipv4.ip_default_ttl", ip_default_ttl: 1 => u8::MAX),
    setting!("net.ipv4.ip_local_port_range", ip_local_port_range: port_range, |(first, last)| format!("{first}\t{last}")),
    setting!("net.ipv4.ipfrag_high_thresh", fragments.high_thresh: 0 => INT_MAX),
    setting!("net.ipv4.ipfrag_max_dist", fragments.max_dist: 0 => INT_MAX),
    setting!("net.ipv4.ipfrag_time", fragments.time: 0 => 3_600; S),
    setting!("net.ipv4.route.min_pmtu", mtu.min_pmtu: 68 => u16::MAX),
    setting!("net.ipv4.route.mtu_expires", mtu.expires: 1 => u64::from(INT_MAX); S),
    setting!("net.ipv4.tcp_autocorking", send.autocorking: switch),
    Setting {
        name: "net.ipv4.tcp_available_congestion_control",
        get: |config| available(&config.congestion),
        set: None,
    },
    setting!("net.ipv4.tcp_base_mss", mtu.base_mss: 48 => u16::MAX),
    setting!("net.ipv4.tcp_comp_sack_delay_ns", receive.comp_sack_delay: 0 => u64::from(u32::MAX); NS),
    setting!("net.ipv4.tcp_comp_sack_nr", receive.comp_sack_nr: 0 => u8::MAX),
    setting!("net.ipv4.tcp_comp_sack_rtt_percent", receive.comp_sack_rtt_percent: 1 => 1_000),
    Setting {
        name: "net.ipv4.tcp_congestion_control",
        get: |config| config.congestion.control.to_string(),
        set: Some(|config, text| set_congestion(&mut config.congestion, text)),
    },
    setting!("net.ipv4.tcp_early_retrans", recovery.tail_loss_probes: early_retrans, |on: bool| if on { "3" } else { "0" }.to_string()),
    setting!("net.ipv4.tcp_ecn", ecn.policy: ECN),
    setting!("net.ipv4.tcp_ecn_fallback", ecn.fallback: switch),
    setting!("net.ipv4.tcp_ecn_option", ecn.option: ECN_OPTION),
    setting!("net.ipv4.tcp_ecn_option_beacon", ecn.option_beacon: 0 => 3),
    Setting {
        name: "net.ipv4.tcp_fastopen",
        get: |config| config.fast_open.bits().to_string(),
        set: Some(|config, text| config.fast_open.set_bits(text)),
    },
    setting!("net.ipv4.tcp_fastopen_blackhole_timeout_sec", fast_open.black_hole_timeout: 0 => u64::from(INT_MAX); S),
    Setting {
        name: "net.ipv4.tcp_fastopen_key",
        get: |config| config.fast_open.keys_text(),
        set: Some(|config, text| config.fast_open.set_keys(text)),
    },
    setting!("net.ipv4.tcp_fin_timeout", tcp.fin_timeout: 0 => 1 << 20; S),
    setting!("net.ipv4.tcp_frto", recovery.frto: frto, |on: bool| if on { "2" } else { "0" }.to_string()),
    setting!("net.ipv4.tcp_invalid_ratelimit", tcp.invalid_ratelimit: 0 => u64::from(INT_MAX); MS),
    setting!("net.ipv4.tcp_keepalive_intvl", tcp.keepalive_intvl: 1 => 32_767; S),
    setting!("net.ipv4.tcp_keepalive_probes", tcp.keepalive_probes: 1 => 127),
    setting!("net.ipv4.tcp_keepalive_time", tcp.keepalive_time: 1 => 32_767; S),
    setting!("net.ipv4.tcp_limit_output_bytes", send.limit_output_bytes: 0 => INT_MAX),
    setting!("net.ipv4.tcp_max_orphans", max_orphans: 0 => INT_MAX),
    setting!("net.ipv4.tcp_max_tw_buckets", max_tw_buckets: 0 => INT_MAX),
    setting!("net.ipv4.tcp_mem", mem: limits, |mem: MemoryLimits| format!("{} {} {}", mem.low, mem.pressure, mem.high)),
    setting!("net.ipv4.tcp_min_tso_segs", send.min_tso_segs: 1 => u8::MAX),
    setting!("net.ipv4.tcp_moderate_rcvbuf", receive.moderate_rcvbuf: switch),
    setting!("net.ipv4.tcp_mtu_probe_floor", mtu.probe_floor: 48 => u16::MAX),
    setting!("net.ipv4.tcp_mtu_probing", mtu.probing: MTU_PROBING),
    setting!("net.ipv4.tcp_notsent_lowat", send.notsent_lowat: 0 => u32::MAX),
    setting!("net.ipv4.tcp_orphan_retries", tcp.orphan_retries: 0 => u8::MAX),
    setting!("net.ipv4.tcp_pacing_ca_ratio", congestion.pacing_ca_ratio: 0 => 1_000),
    setting!("net.ipv4.tcp_pacing_ss_ratio", congestion.pacing_ss_ratio: 0 => 1_000),
    setting!("net.ipv4.tcp_probe_interval", mtu.probe_interval: 1 => u64::from(INT_MAX); S),
    setting!("net.ipv4.tcp_probe_threshold", mtu.probe_threshold: 0 => u16::MAX),
    Setting {
        name: "net.ipv4.tcp_recovery",
        get: |config| recovery_text(&config.recovery),
        set: Some(|config, text| set_recovery(&mut config.recovery, text)),
    },
    setting!("net.ipv4.tcp_retries1", tcp.retries1: 0 => u8::MAX),
    setting!("net.ipv4.tcp_retries2", tcp.retries2: 0 => u8::MAX),
    setting!("net.ipv4.tcp_rmem", receive.rmem: sizes),
    setting!("net.ipv4.tcp_rto_max_ms", recovery.rto_max: 1_000 => 120_000; MS),
    setting!("net.ipv4.tcp_rto_min_us", recovery.rto_min: 1 => 120_000_000; US),
    setting!("net.ipv4.tcp_sack", tcp.sack: switch),
    setting!("net.ipv4.tcp_slow_start_after_idle", congestion.slow_start_after_idle: switch),
    setting!("net.ipv4.tcp_syn_linear_timeouts", tcp.syn_linear_timeouts: 0 => 127),
    setting!("net.ipv4.tcp_syn_retries", tcp.syn_retries: 1 => 127),
    setting!("net.ipv4.tcp_synack_retries", tcp.synack_retries: 0 => u8::MAX),
    setting!("net.ipv4.tcp_syncookies", tcp.syncookies: SYN_COOKIES),
    setting!("net.ipv4.tcp_timestamps", tcp.timestamps: switch),
    setting!("net.ipv4.tcp_tso_rtt_log", send.tso_rtt_log: 0 => 31),
    setting!("net.ipv4.tcp_tso_win_divisor", send.tso_win_divisor: 0 => u8::MAX),
    setting!("net.ipv4.tcp_window_scaling", tcp.window_scaling: switch),
    setting!("net.ipv4.tcp_wmem", send.wmem: sizes),
    setting!("net.ipv6.ip6frag_time", fragments.time_v6: 0 => 3_600; S),
    setting!("taut.any_address", any_address: switch),
    setting!("taut.autocork", send.autocork: AUTOCORK),
    setting!("taut.autosizing", send.autosizing: AUTOSIZE),
    setting!("taut.buffers", tcp.buffers: BUFFERS),
    setting!("taut.icmp_echo", icmp_echo: switch),
    setting!("taut.lowat", send.lowat: LOWAT),
    setting!("taut.max_connections", max_connections: 0 => u32::MAX),
    setting!("taut.pacing", send.pacing: PACING),
    setting!("taut.time_wait", time_wait: 0 => 3_600; S),
    setting!("taut.tsq", send.tsq: tsq, tsq_text),
];

/// The setting of that name; `net.ipv4.` may be left out.
fn find(name: &str) -> Result<&'static Setting, SysctlError> {
    let short = |full: &str| full.strip_prefix("net.ipv4.") == Some(name);
    let found = TABLE.iter().find(|setting| setting.name == name || short(setting.name));
    found.ok_or_else(|| SysctlError::Unknown(name.to_string()))
}

impl StackConfig {
    /// The value of a setting, as text.
    ///
    /// # Errors
    ///
    /// [`SysctlError::Unknown`].
    pub fn sysctl(&self, name: &str) -> Result<String, SysctlError> {
        find(name).map(|setting| (setting.get)(self))
    }

    /// Changes a setting.
    ///
    /// # Errors
    ///
    /// As [`SysctlError`] says; nothing has changed then.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), SysctlError> {
        let setting = find(name)?;
        let set = setting.set.ok_or(SysctlError::ReadOnly(setting.name))?;
        set(self, value).map_err(|expected| SysctlError::Invalid {
            name: setting.name,
            value: value.to_string(),
            expected,
        })
    }

    /// Name and value of every setting, by name.
    pub fn sysctls(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        TABLE.iter().map(|setting| (setting.name, (setting.get)(self)))
    }
}

#[cfg(test)]
mod tests;
