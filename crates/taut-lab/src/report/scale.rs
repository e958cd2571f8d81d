//! Axes: from a range of numbers to ticks with labels, in the unit that a reader expects.
//!
//! Called by `svg.rs`, and by `figures.rs` for numbers in captions and tooltips.

use libm::{log10, pow};

/// The quantity that an axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Seconds.
    Time,
    /// Bytes; kB is a thousand.
    Bytes,
    /// Bits per second.
    BitRate,
    /// A number of things.
    Count,
    /// A number without a unit, such as an index.
    Index,
    /// A share of one, written in per cent.
    Share,
}

impl Quantity {
    /// The units, with the size of each, from small to large.
    const fn units(self) -> &'static [(f64, &'static str)] {
        match self {
            Self::Time => &[(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")],
            Self::Bytes => &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")],
            Self::BitRate => {
                &[(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s"), (1e12, "Tbit/s")]
            }
            Self::Count | Self::Index => &[(1.0, "")],
            Self::Share => &[(0.01, "%")],
        }
    }

    /// The largest unit of which `value` has at least one, or else the smallest unit.
    pub(crate) fn unit(self, value: f64) -> (f64, &'static str) {
        let units = self.units();
        let fits = units.iter().rev().find(|(size, _)| value.abs() >= size * 0.999_999);
        fits.or(units.first()).copied().unwrap_or((1.0, ""))
    }

    /// A value with its unit, in three digits: `1.23 MB`.
    pub(crate) fn say(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        if value == 0.0 && self != Self::Share {
            return "0".to_owned();
        }
        let (size, unit) = self.unit(value);
        let digits = if self == Self::Count && value.fract() == 0.0 && value.abs() < 1e15 {
            grouped(value, 0)
        } else {
            significant(value / size)
        };
        if unit.is_empty() { digits } else { format!("{digits} {unit}") }
    }
}

/// A number with commas between thousands.
pub(crate) fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let whole = text.find('.').unwrap_or(text.len());
    let mut out = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, letter) in text.chars().enumerate() {
        if index > 0 && index < whole && (whole - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(letter);
    }
    out
}

/// Three significant digits, without trailing zeros; of larger numbers the whole part, in groups.
fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    trimmed(grouped(value, decimals))
}

fn trimmed(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Linear.
    Linear,
    /// Logarithmic, by powers of ten.
    Log,
}

/// A marked position on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Its value.
    pub(crate) value: f64,
    /// Its label; empty for a mark between labelled ones.
    pub(crate) label: String,
}

/// An axis: its quantity and range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    /// The quantity of its values.
    pub(crate) quantity: Quantity,
    /// What the values measure.
    pub(crate) label: String,
    /// Its scale.
    pub(crate) kind: Kind,
    /// The lowest value on it.
    pub(crate) low: f64,
    /// The highest value on it.
    pub(crate) high: f64,
}

impl Axis {
    /// An axis from zero, or from the least value if that is negative, with some space above.
    pub(crate) fn from_zero(quantity: Quantity, label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(values).unwrap_or((0.0, 0.0));
        let high = if high > 0.0 { high } else { quantity.units()[0].0 };
        Self { quantity, label: label.to_owned(), kind: Kind::Linear, low: low.min(0.0), high: high * 1.04 }
    }

    /// An axis over exactly the range of the values.
    pub(crate) fn spanning(quantity: Quantity, label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, mut high) = range(values).unwrap_or((0.0, 0.0));
        if high <= low {
            // A single value needs a width as well: one of its unit.
            high = low + quantity.unit(low).0;
        }
        Self { quantity, label: label.to_owned(), kind: Kind::Linear, low, high }
    }

    /// A logarithmic axis that covers the values above zero.
    pub(crate) fn log(quantity: Quantity, label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|value| *value > 0.0);
        let (low, high) = range(positive).unwrap_or((1e-3, 1.0));
        // One step of 1, 2, 5 beyond the range on both sides.
        let (low, mut high) = (step_down(low), step_up(high));
        if high <= low * 1.000_001 {
            high = low * 10.0;
        }
        Self { quantity, label: label.to_owned(), kind: Kind::Log, low, high }
    }

    /// The position of a value between 0 and 1, or outside them if the value is outside the axis. `None` for
    /// values that are not numbers, and on a logarithmic axis for those not above zero.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log => (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low)),
        };
        place.is_finite().then_some(place)
    }

    /// The label with the unit of the ticks, such as `unsent (MB)`; on a logarithmic axis each tick has its
    /// own unit.
    pub(crate) fn title(&self) -> String {
        let (_, unit) = self.tick_unit();
        if unit.is_empty() || self.kind == Kind::Log {
            self.label.clone()
        } else {
            format!("{} ({unit})", self.label)
        }
    }

    /// Size and name of the unit of a linear axis's ticks.
    pub(crate) fn tick_unit(&self) -> (f64, &'static str) {
        self.quantity.unit(self.high.abs().max(self.low.abs()) / 1.5)
    }

    /// About `wanted` marks at round values.
    pub(crate) fn ticks(&self, wanted: usize) -> Vec<Tick> {
        match self.kind {
            Kind::Linear => self.linear_ticks(wanted.max(2)),
            Kind::Log => self.log_ticks(wanted.max(2)),
        }
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<Tick> {
        let (size, _) = self.tick_unit();
        let mut step = step_up((self.high - self.low) / size / wanted as f64);
        if self.quantity == Quantity::Count {
            step = step.max(1.0);
        }
        let decimals = (-log10(step).floor()).max(0.0) as usize;
        let first = (self.low / size / step - 1e-9).ceil();
        let last = (self.high / size / step + 1e-9).floor();
        let number = (last - first).clamp(0.0, 100.0) as usize;
        let tick = |index: usize| {
            // `+ 0.0` turns minus zero into zero.
            let units = (first + index as f64) * step + 0.0;
            let label = match decimals {
                0 if units.abs() >= 10_000.0 => grouped(units, 0),
                _ => format!("{units:.decimals$}"),
            };
            Tick { value: units * size, label }
        };
        (0..=number).map(tick).collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<Tick> {
        let (from, to) = (log10(self.low).floor() as i32, log10(self.high).ceil() as i32);
        let decades = log10(self.high / self.low);
        // With few decades, 1, 2 and 5 are labelled; with very many, only every second or third decade.
        let every = (decades / wanted as f64).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        for exponent in from..=to {
            for digit in 1..10 {
                let value = f64::from(digit) * pow(10.0, f64::from(exponent));
                if value < self.low * 0.999_999 || value > self.high * 1.000_001 {
                    continue;
                }
                let has_words = match digit {
                    1 => exponent.rem_euclid(every) == 0,
                    2 | 5 => decades * 3.0 <= wanted as f64,
                    _ => false,
                };
                let label = if has_words { self.quantity.say(value) } else { String::new() };
                ticks.push(Tick { value, label });
            }
        }
        ticks
    }
}

/// Least and largest of the values that are numbers.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

/// The smallest number of 1, 2, 5 times a power of ten that is not less than `value`.
fn step_up(value: f64) -> f64 {
    round_step(value, |step, value| step >= value * 0.999_999)
}

/// The largest number of 1, 2, 5 times a power of ten that is not more than `value`.
fn step_down(value: f64) -> f64 {
    let power = pow(10.0, log10(value).floor());
    let steps = [5.0, 2.0, 1.0, 0.5].map(|digit| digit * power);
    steps.into_iter().find(|step| *step <= value * 1.000_001).unwrap_or(power)
}

fn round_step(value: f64, fits: impl Fn(f64, f64) -> bool) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let power = pow(10.0, log10(value).floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| fits(*step, value)).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn numbers_are_said_with_their_unit() {
        for (quantity, value, said) in [
            (Quantity::Time, 0.0, "0"),
            (Quantity::Time, 0.05, "50 ms"),
            (Quantity::Time, 0.000_016, "16 µs"),
            (Quantity::Time, 2.5, "2.5 s"),
            (Quantity::Time, 12_345.6, "12,346 s"),
            (Quantity::Index, 0.857_142, "0.857"),
            (Quantity::Bytes, 131_072.0, "131 kB"),
            (Quantity::Bytes, 4_194_304.0, "4.19 MB"),
            (Quantity::BitRate, 44.27e6, "44.3 Mbit/s"),
            (Quantity::Count, 1_364_904.0, "1,364,904"),
            (Quantity::Share, 0.125, "12.5 %"),
            (Quantity::Bytes, f64::NAN, "-"),
        ] {
            assert_eq!(quantity.say(value), said);
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let axis = Axis::from_zero(Quantity::Bytes, "queued", [0.0, 4.2e6]);
        let ticks = axis.ticks(5);
        assert_eq!(labels(&ticks), ["0", "1", "2", "3", "4"]);
        assert_eq!(axis.title(), "queued (MB)");
        assert!(ticks.iter().all(|tick| (axis.low..=axis.high).contains(&tick.value)));
        let time = Axis::spanning(Quantity::Time, "time", [0.0, 0.36]);
        assert_eq!(labels(&time.ticks(5)), ["0", "100", "200", "300"]);
        assert_eq!(time.title(), "time (ms)");
    }

    #[test]
    fn a_logarithmic_axis_has_a_unit_at_each_word() {
        let axis = Axis::log(Quantity::Time, "rtt", [18e-6, 0.041]);
        assert!((axis.low - 10e-6).abs() < 1e-12 && (axis.high - 0.05).abs() < 1e-9);
        assert_eq!(labels(&axis.ticks(6)), ["10 µs", "100 µs", "1 ms", "10 ms"]);
        let narrow = Axis::log(Quantity::Time, "rtt", [0.04, 0.09]);
        assert_eq!(labels(&narrow.ticks(6)), ["20 ms", "50 ms", "100 ms"]);
    }

    #[test]
    fn nothing_and_a_single_value_have_an_axis_too() {
        for values in [vec![], vec![0.0], vec![7.0], vec![f64::NAN], vec![f64::INFINITY, -1.0]] {
            for axis in [
                Axis::from_zero(Quantity::Bytes, "", values.clone()),
                Axis::spanning(Quantity::Time, "", values.clone()),
                Axis::log(Quantity::Count, "", values.clone()),
            ] {
                assert!(axis.low < axis.high && axis.low.is_finite() && axis.high.is_finite(), "{axis:?}");
                let ticks = axis.ticks(5);
                assert!(!ticks.is_empty() && ticks.len() < 60, "{axis:?} {ticks:?}");
                assert!(axis.place(axis.low) == Some(0.0) && axis.place(axis.high) == Some(1.0));
            }
        }
        assert_eq!(Axis::log(Quantity::Count, "", [1.0]).place(0.0), None);
    }
}
