//! The line in the middle of a scenario: rates, delay, faults, and their mistakes. Called by `scenario.rs`.

use std::sync::Arc;

use serde::Deserialize;
use taut_core::Duration;
use taut_link::{PolicerSpec, Rate, Trace};

use super::value::{self, Bytes, Text};

/// A line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Link {
    /// Its rate.
    pub rate: Text<Rate>,
    /// Its rate on the way back, if that is another.
    pub back_rate: Option<Text<Rate>>,
    /// One-way delay.
    pub delay: Option<Text<Duration>>,
    /// Other rates, each from a time on, in the order of these times; also on the way back, unless that has
    /// its own.
    #[serde(default)]
    pub steps: Vec<RateStep>,
    /// Replaces the rate: a file with what a line could carry, in a format of `recorded/trace.rs`.
    pub trace: Option<String>,
    /// The same on the way back.
    pub back_trace: Option<String>,
    /// What the files say.
    #[serde(skip)]
    pub recorded: Option<Arc<Trace>>,
    /// The same on the way back.
    #[serde(skip)]
    pub back_recorded: Option<Arc<Trace>>,
    /// Drops what exceeds a lower rate, on the way from sender to receiver, in front of the queue.
    pub policer: Option<PolicerText>,
    /// Faults on the way from sender to receiver.
    #[serde(default)]
    pub faults: FaultSpec,
    /// Faults on the way back.
    #[serde(default)]
    pub back_faults: FaultSpec,
}

/// A change of a line's rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// When, from the beginning of the run.
    pub at: Text<Duration>,
    /// The rate from then on.
    pub rate: Text<Rate>,
}

/// A policer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicerText {
    /// The rate that it lets through.
    pub rate: Text<Rate>,
    /// Bytes that pass at once after a pause.
    pub burst: Text<Bytes>,
}

/// Faults of a line, as shares of 1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FaultSpec {
    /// Packets lost.
    #[serde(default, deserialize_with = "value::share")]
    pub loss: f64,
    /// Packets lost in bursts, beside those.
    pub bursts: Option<BurstSpec>,
    /// Packets delivered twice.
    #[serde(default, deserialize_with = "value::share")]
    pub duplicate: f64,
    /// Packets with one bit flipped.
    #[serde(default, deserialize_with = "value::share")]
    pub corrupt: f64,
    /// Packets delayed by `reorder-delay`.
    #[serde(default, deserialize_with = "value::share")]
    pub reorder: f64,
    /// Delay of reordered packets.
    pub reorder_delay: Option<Text<Duration>>,
    /// Each packet is delayed by up to this.
    pub jitter: Option<Text<Duration>>,
    /// No packet overtakes another: it arrives together with the one before it instead.
    #[serde(default)]
    pub in_order: bool,
}

/// Losses by the model of Gilbert and Elliott, as shares of 1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstSpec {
    /// Packets at which a burst begins, of those outside a burst.
    #[serde(deserialize_with = "value::share")]
    pub p: f64,
    /// Packets at which it ends: its mean length is 1 / r.
    #[serde(deserialize_with = "value::share")]
    pub r: f64,
    /// Packets lost in a burst.
    #[serde(default = "all", deserialize_with = "value::share")]
    pub bad: f64,
    /// Packets lost outside.
    #[serde(default, deserialize_with = "value::share")]
    pub good: f64,
}

const fn all() -> f64 {
    1.0
}

impl Link {
    /// One-way delay.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay.as_ref().map_or(Duration::ZERO, |delay| delay.value)
    }

    /// The rate on the way back.
    #[must_use]
    pub fn back_rate(&self) -> Rate {
        self.back_rate.as_ref().unwrap_or(&self.rate).value
    }

    /// The other rates, there and back.
    #[must_use]
    pub fn steps(&self) -> [Vec<(Duration, Rate)>; 2] {
        let steps: Vec<_> = self.steps.iter().map(|step| (step.at.value, step.rate.value)).collect();
        let back = if self.back_rate.is_some() { Vec::new() } else { steps.clone() };
        [steps, back]
    }

    /// The policer, as the layers below the stack take it.
    #[must_use]
    pub fn policer(&self) -> Option<PolicerSpec> {
        self.policer.as_ref().map(|text| PolicerSpec {
            rate: text.rate.value,
            burst_bytes: u32::try_from(text.burst.value.0).unwrap_or(u32::MAX),
        })
    }

    /// Mistakes that a single value does not show: returns the path of the wrong key, and the reason.
    pub(super) fn mistake(&self, is_pair: bool) -> Option<(String, String)> {
        let wrong = |path: &str, why: &str| Some((format!("link.{path}"), why.to_owned()));
        let keys = [
            ("steps", !self.steps.is_empty()),
            ("back-rate", self.back_rate.is_some()),
            ("policer", self.policer.is_some()),
            ("trace", self.trace.is_some()),
            ("back-trace", self.back_trace.is_some()),
        ];
        if let Some((key, _)) = keys.into_iter().find(|(_, given)| is_pair && *given) {
            return wrong(key, "does not apply to kind = \"pair\" or \"direct\"");
        }
        if !self.steps.is_empty() && self.trace.is_some() {
            return wrong("steps", "cannot be given together with a trace");
        }
        if self.steps.windows(2).any(|pair| pair[0].at.value >= pair[1].at.value) {
            return wrong("steps", "must be in the order of their times");
        }
        None
    }
}
