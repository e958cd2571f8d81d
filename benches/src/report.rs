//! Samples in, tables or JSON out: median, least and greatest of all rounds, and ratios of medians to each
//! peer.

use serde::Serialize;

/// What one stack did in one measurement.
#[derive(Debug, Serialize)]
pub struct Series {
    pub measurement: &'static str,
    pub unit: &'static str,
    pub stack: String,
    pub samples: Vec<f64>,
}

/// All that was measured in a run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub series: Vec<Series>,
    /// Errors; the run goes on with the next measurement.
    pub errors: Vec<String>,
    /// Settings that were found by trying, and facts about the machine.
    pub notes: Vec<String>,
}

impl Report {
    pub fn add(&mut self, measurement: &'static str, unit: &'static str, stack: &str, sample: f64) {
        let found =
            self.series.iter_mut().find(|series| series.measurement == measurement && series.stack == stack);
        match found {
            Some(series) => series.samples.push(sample),
            None => {
                self.series.push(Series { measurement, unit, stack: stack.into(), samples: vec![sample] });
            }
        }
    }

    fn median_of(&self, measurement: &str, stack: &str) -> Option<f64> {
        self.series
            .iter()
            .find(|series| series.measurement == measurement && series.stack.starts_with(stack))
            .map(Series::median)
    }

    /// One table per measurement, in the order in which they were begun.
    pub fn print(&self) {
        let mut printed: Vec<&str> = Vec::new();
        for first in &self.series {
            if printed.contains(&first.measurement) {
                continue;
            }
            printed.push(first.measurement);
            println!("\n{} [{}]", first.measurement, first.unit);
            println!(
                "  {:<26} {:>12} {:>23} {:>9} {:>10}",
                "stack", "median", "min – max", "/ kernel", "/ smoltcp"
            );
            for series in self.series.iter().filter(|series| series.measurement == first.measurement) {
                let median = series.median();
                let ratio = |peer: &str| {
                    self.median_of(series.measurement, peer)
                        .filter(|_| !series.stack.starts_with(peer))
                        .map_or_else(|| "–".to_owned(), |of_peer| format!("{:.2}", median / of_peer))
                };
                let (least, greatest) = series.range();
                println!(
                    "  {:<26} {:>12} {:>23} {:>9} {:>10}",
                    series.stack,
                    number(median),
                    format!("{} – {}", number(least), number(greatest)),
                    ratio("kernel"),
                    ratio("smoltcp")
                );
            }
        }
        for note in &self.notes {
            println!("\n{note}");
        }
        for error in &self.errors {
            println!("\nFAILED: {error}");
        }
    }
}

impl Series {
    pub fn median(&self) -> f64 {
        median(&self.samples)
    }

    pub fn range(&self) -> (f64, f64) {
        range(&self.samples)
    }
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The one in the middle, or the mean of the two there. There must be a sample.
pub fn median(samples: &[f64]) -> f64 {
    let sorted = sorted(samples);
    let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
    (sorted[low] + sorted[high]) / 2.0
}

/// Least and greatest. There must be a sample.
pub fn range(samples: &[f64]) -> (f64, f64) {
    let sorted = sorted(samples);
    (sorted[0], sorted[sorted.len() - 1])
}

/// Three significant digits; large numbers as whole numbers.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_and_odd_counts() {
        let series = |samples: &[f64]| Series {
            measurement: "m",
            unit: "u",
            stack: "s".into(),
            samples: samples.to_vec(),
        };
        assert_eq!(series(&[3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(series(&[4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert_eq!(series(&[4.0, 1.0]).range(), (1.0, 4.0));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(999.4), "999");
        assert_eq!(number(0.1234), "0.123");
    }
}
