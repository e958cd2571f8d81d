//! Rates, sizes and times in the notation of `tc(8)`: `100mbit`, `64kb`, `50ms`. Called where arguments are
//! parsed.
//!
//! As in `tc`: the prefixes of rates are powers of 1000 (`kibit` and `mibit`: of 1024), `bps` means *bytes*
//! per second, the prefixes of sizes are powers of 1024, and a bare number means bits per second, bytes, or
//! microseconds. Case does not matter, and fractions are allowed.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use taut_core::Duration;

/// The kind of quantity that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// As in `100mbit`.
    Rate,
    /// As in `64kb`.
    Size,
    /// As in `50ms`.
    Time,
}

/// A text that is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {}: {}", .wanted.noun(), .wanted.help())]
pub struct QuantityError {
    /// The text.
    pub text: String,
    /// The expected quantity.
    pub wanted: Quantity,
}

impl Quantity {
    const fn noun(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Size => "size",
            Self::Time => "time",
        }
    }

    const fn help(self) -> &'static str {
        match self {
            Self::Rate => {
                "write a number above 0 with bit, kbit, mbit, gbit or (bytes) bps, kbps, mbps, gbps"
            }
            Self::Size => "write a number below 4gb with b, kb, mb, gb (powers of 1024) or kbit, mbit",
            Self::Time => "write a number with s, ms, us or ns",
        }
    }

    /// Names of units in lower case, with their values in bits per second, bytes, or nanoseconds.
    const fn units(self) -> &'static [(&'static str, f64)] {
        const KI: f64 = 1024.0;
        match self {
            Self::Rate => &[
                ("", 1.0),
                ("bit", 1.0),
                ("kbit", 1e3),
                ("mbit", 1e6),
                ("gbit", 1e9),
                ("tbit", 1e12),
                ("kibit", KI),
                ("mibit", KI * KI),
                ("gibit", KI * KI * KI),
                ("tibit", KI * KI * KI * KI),
                ("bps", 8.0),
                ("kbps", 8e3),
                ("mbps", 8e6),
                ("gbps", 8e9),
                ("tbps", 8e12),
                ("kibps", 8.0 * KI),
                ("mibps", 8.0 * KI * KI),
                ("gibps", 8.0 * KI * KI * KI),
                ("tibps", 8.0 * KI * KI * KI * KI),
            ],
            Self::Size => &[
                ("", 1.0),
                ("b", 1.0),
                ("k", KI),
                ("kb", KI),
                ("m", KI * KI),
                ("mb", KI * KI),
                ("g", KI * KI * KI),
                ("gb", KI * KI * KI),
                ("kbit", KI / 8.0),
                ("mbit", KI * KI / 8.0),
                ("gbit", KI * KI * KI / 8.0),
            ],
            Self::Time => &[
                ("", 1e3),
                ("s", 1e9),
                ("sec", 1e9),
                ("secs", 1e9),
                ("ms", 1e6),
                ("msec", 1e6),
                ("msecs", 1e6),
                ("us", 1e3),
                ("usec", 1e3),
                ("usecs", 1e3),
                ("ns", 1.0),
                ("nsec", 1.0),
                ("nsecs", 1.0),
            ],
        }
    }

    /// The text's value in the base unit, from 0 to `max`.
    fn parse(self, text: &str, max: f64) -> Result<u64, QuantityError> {
        let error = || QuantityError { text: text.to_owned(), wanted: self };
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number: f64 = number.parse().map_err(|_| error())?;
        let (_, factor) =
            self.units().iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(error)?;
        let value = number * factor;
        // This also excludes infinity.
        if value <= max { Ok((value + 0.5) as u64) } else { Err(error()) }
    }
}

/// A rate above zero, kept in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// `None` for 0, at which no packet ever leaves.
    #[must_use]
    pub fn from_bytes_per_second(bytes: u64) -> Option<Self> {
        NonZeroU64::new(bytes).map(Self)
    }

    /// Rounded down to bytes; `None` for less than one byte per second.
    #[must_use]
    pub fn from_bits_per_second(bits: u64) -> Option<Self> {
        Self::from_bytes_per_second(bits / 8)
    }

    /// Bytes per second.
    #[must_use]
    pub const fn bytes_per_second(self) -> u64 {
        self.0.get()
    }

    /// Bits per second.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.0.get().saturating_mul(8)
    }

    /// The time that this many bytes take, rounded up.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Duration {
        let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.0.get()));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The bytes that pass in this time, rounded down.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0.get()) * u128::from(time.as_nanos()) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        // 8 Ebit/s: above it a double no longer counts single bits, and no line is that fast.
        Quantity::Rate
            .parse(text, 8e18)
            .ok()
            .and_then(Self::from_bits_per_second)
            .ok_or_else(|| QuantityError { text: text.to_owned(), wanted: Quantity::Rate })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_second();
        let (unit, name) = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")]
            .into_iter()
            .find(|(unit, _)| bits.is_multiple_of(*unit))
            .unwrap_or((1, "bit"));
        f.pad(&format!("{}{name}", bits / unit))
    }
}

/// A length of time in `tc`'s notation, without rounding: `50ms`, `1500us`, `7ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeText(pub Duration);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        let (unit, name) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
            .into_iter()
            .find(|(unit, _)| ns != 0 && ns.is_multiple_of(*unit))
            .unwrap_or((1, "ns"));
        write!(f, "{}{name}", ns / unit)
    }
}

/// Reads a size in bytes.
///
/// # Errors
/// When the text is not a size, or is 4 GiB or more.
pub fn parse_size(text: &str) -> Result<u32, QuantityError> {
    Quantity::Size.parse(text, f64::from(u32::MAX)).map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Reads a length of time.
///
/// # Errors
/// When the text is not a time.
pub fn parse_time(text: &str) -> Result<Duration, QuantityError> {
    // 292 years.
    Quantity::Time.parse(text, 9.2e18).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn bits(text: &str) -> u64 {
        text.parse::<Rate>().unwrap().bits_per_second()
    }

    #[test]
    fn rates_are_tcs() {
        assert_eq!(bits("8"), 8);
        assert_eq!(bits("100mbit"), 100_000_000);
        assert_eq!(bits("1Gbit"), 1_000_000_000);
        assert_eq!(bits("1.5mbit"), 1_500_000);
        assert_eq!(bits("64kibit"), 65_536);
        assert_eq!(bits("1kbps"), 8_000);
        assert_eq!(bits("12.5mbps"), 100_000_000);
        for wrong in [
            "",
            "mbit",
            "0",
            "0mbit",
            "7",
            "-1mbit",
            "1 mbit",
            "1mb",
            "1e3mbit",
            "1..5mbit",
            "9999999tbps",
            "inf",
        ] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_times_are_tcs() {
        assert_eq!(parse_size("64kb"), Ok(65_536));
        assert_eq!(parse_size("1500"), Ok(1_500));
        assert_eq!(parse_size("1.5K"), Ok(1_536));
        assert_eq!(parse_size("1mbit"), Ok(131_072));
        assert_eq!(parse_time("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse_time("16us"), Ok(Duration::from_micros(16)));
        assert_eq!(parse_time("16"), Ok(Duration::from_micros(16)));
        assert_eq!(parse_time("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("7nsecs"), Ok(Duration::from_nanos(7)));
        for wrong in ["4gb", "50ms", "x", "-1"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["50mb", "1h", "", "999999999999s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_says_what_to_write() {
        let error = "100mb".parse::<Rate>().unwrap_err().to_string();
        assert!(
            error.starts_with("\"100mb\" is not a rate: write a number above 0 with bit, kbit"),
            "{error}"
        );
    }

    #[test]
    fn a_rate_prints_as_it_is_read() {
        for text in ["1gbit", "100mbit", "1500kbit", "8bit", "1000008bit"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bytes_and_time_convert() {
        let rate: Rate = "100mbit".parse().unwrap();
        assert_eq!(rate.time_for(1_500), Duration::from_micros(120));
        assert_eq!(rate.bytes_in(Duration::from_micros(120)), 1_500);
        let odd = Rate::from_bytes_per_second(3).unwrap();
        assert_eq!(odd.time_for(1), Duration::from_nanos(333_333_334));
        assert_eq!(odd.bytes_in(Duration::from_nanos(333_333_333)), 0);
        assert_eq!(odd.time_for(u64::MAX), Duration::MAX);
    }
}
