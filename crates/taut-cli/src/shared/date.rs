//! Wall-clock time as text, for the results of an experiment and the log. Called by the lab and `log.rs`.

use std::time::{SystemTime, UNIX_EPOCH};

/// The current time in RFC 3339 format: `2026-01-31T23:59:59Z`.
#[must_use]
pub(crate) fn rfc3339_now() -> String {
    #[expect(clippy::disallowed_methods, reason = "results of an experiment say when they were measured")]
    let now = SystemTime::now();
    rfc3339(now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// A time of day, in seconds since 1970, with its milliseconds: `2026-01-31T23:59:59.123Z`.
pub(crate) fn rfc3339_ms(at: f64) -> String {
    let ms = (at.max(0.0) * 1e3) as u64;
    format!("{}.{:03}Z", rfc3339(ms / 1_000).trim_end_matches('Z'), ms % 1_000)
}

/// Converts seconds since 1970 to a date. The year begins in March here, so that a leap day is the last of
/// its year.
fn rfc3339(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As `date -u -d @SECONDS +%FT%TZ` prints them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
