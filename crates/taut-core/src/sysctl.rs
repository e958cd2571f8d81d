//! Settings by name, changed while the stack runs: what `sysctl` does for a kernel.
//! Names, units and ranges as in Linux's `net.ipv4` and `net.core`; ours, the histories of the mechanisms, begin with
//! `taut.`. Called by [`Stack::sysctl`](crate::Stack::sysctl) and [`Stack::set_sysctl`](crate::Stack::set_sysctl).
//!
//! One row of [`TABLE`] is one setting: how it is read, and how a text becomes its value. Most are looked at whenever
//! they matter, so that a change holds at once for every connection; those that a connection is born with (buffer
//! sizes, options of the SYN, the congestion control) hold for those that come later.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Display;
use core::str::FromStr;

use thiserror::Error;

use crate::config::{BufferSizes, StackConfig};
use crate::congestion::Algorithm;
use crate::egress::{AutocorkMode, AutosizeMode, LowatMode, PacingMode, TsqMode};
use crate::words::Duration;

/// Why a setting was not read or changed. Nothing changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SysctlError {
    /// There is no setting of that name.
    #[error("no such setting: {0}")]
    Unknown(String),
    /// The value is not of the right kind, or out of its range.
    #[error("{name} = {value}: {expected}")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// What was to be its value.
        value: String,
        /// What it may be.
        expected: String,
    },
}

/// One setting.
struct Setting {
    name: &'static str,
    get: fn(&StackConfig) -> String,
    /// What it may be, if the text says nothing of the kind.
    set: fn(&mut StackConfig, &str) -> Result<(), String>,
}

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

/// One of a few words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(name, _)| *name == text.trim());
    found.map(|&(_, value)| value).ok_or_else(|| {
        let names = words.iter().map(|&(name, _)| name).collect::<alloc::vec::Vec<_>>();
        format!("must be one of {}", names.join(", "))
    })
}

/// The word for a value, where it has one.
fn name_of<T: PartialEq>(value: &T, words: &[(&'static str, T)]) -> &'static str {
    words.iter().find(|(_, other)| other == value).map_or("", |&(name, _)| name)
}

/// Linux's `SOCK_MIN_SNDBUF`.
const BUFFER_MIN: u32 = 4_608;
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

/// A span in a unit of so many nanoseconds.
fn span(text: &str, low: u64, high: u64, unit_ns: u64) -> Result<Duration, String> {
    number(text, low, high).map(|value| Duration::from_nanos(value * unit_ns))
}

const NS: u64 = 1;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

const AUTOSIZE: [(&str, AutosizeMode); 3] = [
    ("off", AutosizeMode::Off),
    ("at-write", AutosizeMode::AtWrite),
    ("at-transmit", AutosizeMode::AtTransmit),
];
const AUTOCORK: [(&str, AutocorkMode); 3] = [
    ("off", AutocorkMode::Off),
    ("may-hold-head", AutocorkMode::MayHoldHead),
    ("fixed", AutocorkMode::Fixed),
];
const LOWAT: [(&str, LowatMode); 2] =
    [("wake-at-mark", LowatMode::WakeAtMark), ("wake-at-half", LowatMode::WakeAtHalf)];
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
        "fixed" => return Ok(TsqMode::Fixed { cap_bytes: TsqMode::CAP_2012 }),
        _ => {}
    }
    let cap = text.strip_prefix("fixed:").and_then(|cap| number(cap, 1, INT_MAX).ok());
    cap.map(|cap_bytes| TsqMode::Fixed { cap_bytes })
        .ok_or_else(|| "must be off, fixed, fixed:BYTES or rate-scaled".to_string())
}

fn tsq_text(mode: TsqMode) -> String {
    match mode {
        TsqMode::Off => "off".to_string(),
        TsqMode::Fixed { cap_bytes } => format!("fixed:{cap_bytes}"),
        TsqMode::RateScaled => "rate-scaled".to_string(),
    }
}

fn congestion(config: &StackConfig, text: &str) -> Result<Algorithm, String> {
    config.algorithm(text.trim()).ok_or_else(|| {
        let names: alloc::vec::Vec<_> = config.algorithms().map(Algorithm::name).collect();
        format!("must be one of {}", names.join(", "))
    })
}

/// TCP_EARLY_RETRANS knows 3 and 4 as "on".
fn early_retrans(text: &str) -> Result<u8, String> {
    match text.trim() {
        "0" => Ok(0),
        "3" => Ok(3),
        "4" => Ok(4),
        _ => Err("must be 0 (no tail loss probes), 3 or 4".to_string()),
    }
}

/// RACK is the only loss detection there is.
fn recovery(text: &str) -> Result<u8, String> {
    match number(text, 0_u8, 7) {
        Ok(bits) if bits & 1 == 1 => Ok(bits),
        _ => {
            Err("must be 1 (RACK), and 2 more for a fixed window, 4 more for no duplicate threshold"
                .to_string())
        }
    }
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
    ($name:literal, $field:ident: switch) => {
        Setting {
            name: $name,
            get: |config| u8::from(config.$field).to_string(),
            set: |config, text| switch(text).map(|value| config.$field = value),
        }
    };
    ($name:literal, $field:ident: $low:expr => $high:expr) => {
        Setting {
            name: $name,
            get: |config| config.$field.to_string(),
            set: |config, text| number(text, $low, $high).map(|value| config.$field = value),
        }
    };
    ($name:literal, $field:ident: $low:expr => $high:expr; $unit:ident) => {
        Setting {
            name: $name,
            get: |config| (config.$field.as_nanos() / $unit).to_string(),
            set: |config, text| span(text, $low, $high, $unit).map(|value| config.$field = value),
        }
    };
    ($name:literal, $field:ident: sizes) => {
        Setting {
            name: $name,
            get: |config| sizes_text(config.$field),
            set: |config, text| sizes(text).map(|value| config.$field = value),
        }
    };
    ($name:literal, $field:ident: $words:ident) => {
        Setting {
            name: $name,
            get: |config| name_of(&config.$field, &$words).to_string(),
            set: |config, text| word(text, &$words).map(|value| config.$field = value),
        }
    };
    ($name:literal, $field:ident: $parse:ident, $print:expr) => {
        Setting {
            name: $name,
            get: |config| $print(config.$field),
            set: |config, text| $parse(text).map(|value| config.$field = value),
        }
    };
}

/// Every setting, by name.
static TABLE: [Setting; 55] = [
    setting!("net.core.rmem_max", rmem_max: BUFFER_MIN => INT_MAX),
    setting!("net.core.wmem_max", wmem_max: BUFFER_MIN => INT_MAX),
    setting!("net.ipv4.ip_local_port_range", ip_local_port_range: port_range, |(first, last)| format!("{first}\t{last}")),
    setting!("net.ipv4.route.min_pmtu", min_pmtu: 68 => u16::MAX),
    setting!("net.ipv4.route.mtu_expires", mtu_expires: 1 => u64::from(INT_MAX); S),
    setting!("net.ipv4.tcp_autocorking", tcp_autocorking: switch),
    setting!("net.ipv4.tcp_base_mss", tcp_base_mss: 48 => u16::MAX),
    setting!("net.ipv4.tcp_comp_sack_delay_ns", tcp_comp_sack_delay: 0 => u64::from(u32::MAX); NS),
    setting!("net.ipv4.tcp_comp_sack_nr", tcp_comp_sack_nr: 0 => u8::MAX),
    Setting {
        name: "net.ipv4.tcp_congestion_control",
        get: |config| config.tcp_congestion_control.name().to_string(),
        set: |config, text| congestion(config, text).map(|value| config.tcp_congestion_control = value),
    },
    setting!("net.ipv4.tcp_early_retrans", tcp_early_retrans: early_retrans, |value: u8| value.to_string()),
    setting!("net.ipv4.tcp_ecn", tcp_ecn: 0 => 5),
    setting!("net.ipv4.tcp_ecn_fallback", tcp_ecn_fallback: switch),
    setting!("net.ipv4.tcp_ecn_option", tcp_ecn_option: 0 => 3),
    setting!("net.ipv4.tcp_ecn_option_beacon", tcp_ecn_option_beacon: 0 => 3),
    setting!("net.ipv4.tcp_fin_timeout", tcp_fin_timeout: 0 => 1 << 20; S),
    setting!("net.ipv4.tcp_frto", tcp_frto: 0 => u8::MAX),
    setting!("net.ipv4.tcp_invalid_ratelimit", tcp_invalid_ratelimit: 0 => u64::from(INT_MAX); MS),
    setting!("net.ipv4.tcp_keepalive_intvl", tcp_keepalive_intvl: 1 => 32_767; S),
    setting!("net.ipv4.tcp_keepalive_probes", tcp_keepalive_probes: 1 => 127),
    setting!("net.ipv4.tcp_keepalive_time", tcp_keepalive_time: 1 => 32_767; S),
    setting!("net.ipv4.tcp_limit_output_bytes", tcp_limit_output_bytes: 0 => INT_MAX),
    setting!("net.ipv4.tcp_max_tw_buckets", tcp_max_tw_buckets: 0 => INT_MAX),
    setting!("net.ipv4.tcp_min_tso_segs", tcp_min_tso_segs: 1 => u8::MAX),
    setting!("net.ipv4.tcp_moderate_rcvbuf", tcp_moderate_rcvbuf: switch),
    setting!("net.ipv4.tcp_mtu_probe_floor", tcp_mtu_probe_floor: 48 => u16::MAX),
    setting!("net.ipv4.tcp_mtu_probing", tcp_mtu_probing: 0 => 2),
    setting!("net.ipv4.tcp_notsent_lowat", tcp_notsent_lowat: 0 => u32::MAX),
    setting!("net.ipv4.tcp_pacing_ca_ratio", tcp_pacing_ca_ratio: 0 => 1_000),
    setting!("net.ipv4.tcp_pacing_ss_ratio", tcp_pacing_ss_ratio: 0 => 1_000),
    setting!("net.ipv4.tcp_probe_interval", tcp_probe_interval: 1 => u64::from(INT_MAX); S),
    setting!("net.ipv4.tcp_probe_threshold", tcp_probe_threshold: 0 => u16::MAX),
    setting!("net.ipv4.tcp_recovery", tcp_recovery: recovery, |bits: u8| bits.to_string()),
    setting!("net.ipv4.tcp_retries1", tcp_retries1: 0 => u8::MAX),
    setting!("net.ipv4.tcp_retries2", tcp_retries2: 0 => u8::MAX),
    setting!("net.ipv4.tcp_rmem", tcp_rmem: sizes),
    setting!("net.ipv4.tcp_rto_min_us", tcp_rto_min: 1 => 120_000_000; US),
    setting!("net.ipv4.tcp_sack", tcp_sack: switch),
    setting!("net.ipv4.tcp_slow_start_after_idle", tcp_slow_start_after_idle: switch),
    setting!("net.ipv4.tcp_syn_retries", tcp_syn_retries: 1 => 127),
    setting!("net.ipv4.tcp_synack_retries", tcp_synack_retries: 0 => u8::MAX),
    setting!("net.ipv4.tcp_timestamps", tcp_timestamps: switch),
    setting!("net.ipv4.tcp_tso_rtt_log", tcp_tso_rtt_log: 0 => 31),
    setting!("net.ipv4.tcp_tso_win_divisor", tcp_tso_win_divisor: 0 => u8::MAX),
    setting!("net.ipv4.tcp_window_scaling", tcp_window_scaling: switch),
    setting!("net.ipv4.tcp_wmem", tcp_wmem: sizes),
    setting!("taut.any_address", any_address: switch),
    setting!("taut.autocork", autocork: AUTOCORK),
    setting!("taut.autosizing", autosizing: AUTOSIZE),
    setting!("taut.icmp_echo", icmp_echo: switch),
    setting!("taut.lowat", lowat: LOWAT),
    setting!("taut.max_connections", max_connections: 0 => u32::MAX),
    setting!("taut.pacing", pacing: PACING),
    setting!("taut.time_wait", time_wait: 0 => 3_600; S),
    setting!("taut.tsq", tsq: tsq, tsq_text),
];

/// The setting of that name; `net.ipv4.` may be left out.
fn find(name: &str) -> Result<&'static Setting, SysctlError> {
    let short = |full: &str| full.strip_prefix("net.ipv4.") == Some(name);
    let found = TABLE.iter().find(|setting| setting.name == name || short(setting.name));
    found.ok_or_else(|| SysctlError::Unknown(name.to_string()))
}

/// The value of a setting, as text.
///
/// # Errors
///
/// [`SysctlError::Unknown`].
pub(crate) fn get(config: &StackConfig, name: &str) -> Result<String, SysctlError> {
    find(name).map(|setting| (setting.get)(config))
}

/// Changes a setting.
///
/// # Errors
///
/// As [`SysctlError`] says; nothing changed then.
pub(crate) fn set(config: &mut StackConfig, name: &str, value: &str) -> Result<(), SysctlError> {
    let setting = find(name)?;
    (setting.set)(config, value).map_err(|expected| SysctlError::Invalid {
        name: setting.name,
        value: value.to_string(),
        expected,
    })
}

/// Name and value of every setting, by name.
pub(crate) fn all(config: &StackConfig) -> impl Iterator<Item = (&'static str, String)> + '_ {
    TABLE.iter().map(|setting| (setting.name, (setting.get)(config)))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn names_ascend_and_every_value_can_be_set_to_itself() {
        let mut config = StackConfig::default();
        let before: Vec<_> = all(&config).collect();
        assert!(before.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (name, value) in &before {
            set(&mut config, name, value).unwrap();
        }
        assert_eq!(all(&config).collect::<Vec<_>>(), before);
    }

    #[test]
    fn defaults_are_those_of_linux() {
        let config = StackConfig::default();
        for (name, value) in [
            ("net.ipv4.tcp_limit_output_bytes", "4194304"),
            ("net.ipv4.tcp_autocorking", "1"),
            ("net.ipv4.tcp_notsent_lowat", "4294967295"),
            ("net.ipv4.tcp_min_tso_segs", "2"),
            ("net.ipv4.tcp_tso_rtt_log", "9"),
            ("net.ipv4.tcp_tso_win_divisor", "3"),
            ("net.ipv4.tcp_pacing_ss_ratio", "200"),
            ("net.ipv4.tcp_pacing_ca_ratio", "120"),
            // The maximum is ours: 128 MiB, not 4.
            ("net.ipv4.tcp_wmem", "4096 16384 134217728"),
            ("net.core.wmem_max", "212992"),
            ("net.ipv4.tcp_slow_start_after_idle", "1"),
            ("net.ipv4.tcp_early_retrans", "3"),
            ("net.ipv4.tcp_retries1", "3"),
            ("net.ipv4.tcp_base_mss", "1024"),
            ("net.ipv4.tcp_mtu_probe_floor", "48"),
            ("net.ipv4.tcp_probe_interval", "600"),
            ("net.ipv4.tcp_probe_threshold", "8"),
            ("net.ipv4.route.min_pmtu", "552"),
            ("net.ipv4.route.mtu_expires", "600"),
            ("net.ipv4.tcp_recovery", "1"),
            ("net.ipv4.tcp_frto", "2"),
            ("net.ipv4.tcp_ecn", "2"),
            ("net.ipv4.tcp_ecn_fallback", "1"),
            ("net.ipv4.tcp_ecn_option", "2"),
            ("net.ipv4.tcp_ecn_option_beacon", "3"),
            ("net.ipv4.tcp_rto_min_us", "200000"),
            ("net.ipv4.tcp_comp_sack_delay_ns", "1000000"),
            ("net.ipv4.tcp_comp_sack_nr", "44"),
            ("net.ipv4.tcp_fin_timeout", "60"),
            ("taut.tsq", "rate-scaled"),
            ("taut.pacing", "auto"),
        ] {
            assert_eq!(get(&config, name).as_deref(), Ok(value), "{name}");
        }
    }

    #[test]
    fn ranges_are_kept_and_errors_say_what_is_allowed() {
        let mut config = StackConfig::default();
        for (name, value) in [
            ("net.ipv4.tcp_autocorking", "2"),
            ("net.ipv4.tcp_min_tso_segs", "0"),
            ("net.ipv4.tcp_min_tso_segs", "256"),
            ("net.ipv4.tcp_tso_rtt_log", "32"),
            ("net.ipv4.tcp_pacing_ss_ratio", "1001"),
            ("net.ipv4.tcp_limit_output_bytes", "2147483648"),
            ("net.ipv4.tcp_limit_output_bytes", "-1"),
            ("net.ipv4.tcp_limit_output_bytes", "lots"),
            ("net.ipv4.tcp_wmem", "4096 16384"),
            ("net.ipv4.tcp_wmem", "4096 16384 1 1"),
            ("net.ipv4.tcp_wmem", "4096 100 4000"),
            ("net.ipv4.tcp_recovery", "2"),
            ("net.ipv4.tcp_early_retrans", "1"),
            ("net.ipv4.ip_local_port_range", "5 4"),
            ("net.ipv4.tcp_congestion_control", "vegas"),
            ("taut.tsq", "fixed:0"),
            ("taut.pacing", "on"),
        ] {
            let before = get(&config, name).unwrap();
            let error = set(&mut config, name, value).unwrap_err();
            assert!(
                matches!(&error, SysctlError::Invalid { expected, .. } if !expected.is_empty()),
                "{name}"
            );
            assert_eq!(get(&config, name), Ok(before));
        }
        assert_eq!(get(&config, "net.ipv4.nonsense"), Err(SysctlError::Unknown("net.ipv4.nonsense".into())));
        let error = set(&mut config, "tcp_min_tso_segs", "0").unwrap_err();
        assert_eq!(error.to_string(), "net.ipv4.tcp_min_tso_segs = 0: must be a whole number from 1 to 255");
    }

    #[test]
    fn histories_by_name() {
        let mut config = StackConfig::default();
        set(&mut config, "taut.tsq", "fixed").unwrap();
        assert_eq!(config.tsq, TsqMode::Fixed { cap_bytes: 131_072 });
        set(&mut config, "taut.tsq", "fixed:40000").unwrap();
        assert_eq!(get(&config, "taut.tsq").unwrap(), "fixed:40000");
        set(&mut config, "taut.autosizing", "at-write").unwrap();
        assert_eq!(config.autosizing, AutosizeMode::AtWrite);
        set(&mut config, "taut.lowat", "wake-at-mark").unwrap();
        assert_eq!(config.lowat, LowatMode::WakeAtMark);
    }
}
