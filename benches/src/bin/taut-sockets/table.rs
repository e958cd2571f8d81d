//! The measured figures beside their aims, as tables or JSON.

use serde::Serialize;
use taut_bench::report::{median, number, range};

use crate::job::Form;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtMost,
    AtLeast,
}

/// The aim for a figure: a number, or a share of another stack's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aim {
    pub bound: Bound,
    pub value: f64,
    /// The stack whose median is 1.
    pub of: Option<String>,
}

impl Aim {
    pub fn at_most(value: f64) -> Self {
        Self { bound: Bound::AtMost, value, of: None }
    }

    pub fn at_least(value: f64) -> Self {
        Self { bound: Bound::AtLeast, value, of: None }
    }

    /// Of another stack's figure.
    pub fn times(self, stack: &str) -> Self {
        Self { of: Some(stack.to_owned()), ..self }
    }

    /// By how much `value` misses the aim, as a share of the aim, or as it is if the aim is 0; `None` if it
    /// does not.
    fn missed_by(&self, value: f64) -> Option<f64> {
        let beyond = match self.bound {
            Bound::AtMost => value - self.value,
            Bound::AtLeast => self.value - value,
        };
        (beyond > 0.0).then(|| if self.value == 0.0 { beyond } else { beyond / self.value })
    }

    fn text(&self) -> String {
        let sign = if self.bound == Bound::AtMost { '≤' } else { '≥' };
        let value = if self.value >= 100.0 { number(self.value) } else { self.value.to_string() };
        match &self.of {
            Some(stack) => format!("{sign} {value} × {stack}"),
            None => format!("{sign} {value}"),
        }
    }
}

/// One stack's samples of one figure.
#[derive(Debug)]
struct Series {
    row: &'static str,
    figure: String,
    unit: &'static str,
    stack: String,
    samples: Vec<f64>,
    /// Cores that other processes used during each.
    disturbances: Vec<f64>,
    /// The stack to which it is compared.
    beside: Option<String>,
    aim: Option<Aim>,
}

/// A series with what follows from it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    row: &'a str,
    figure: &'a str,
    unit: &'a str,
    stack: &'a str,
    median: f64,
    least: f64,
    most: f64,
    samples: &'a [f64],
    disturbances: &'a [f64],
    beside: Option<&'a str>,
    /// Of the medians.
    ratio: Option<f64>,
    /// To packets made by hand.
    to_least: Option<f64>,
    aim: Option<&'a Aim>,
    /// The value that is compared with the aim: the median, or its ratio to another's.
    judged: Option<f64>,
    met: Option<bool>,
    missed_by: Option<f64>,
}

/// The limit of every stack over a TUN.
const LEAST: &str = Form::Least.name();

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Table {
    series: Vec<Series>,
    /// Errors; the run goes on with the next measurement.
    pub errors: Vec<String>,
}

/// Where a sample belongs.
pub struct Place<'a> {
    pub row: &'static str,
    pub figure: String,
    pub unit: &'static str,
    pub stack: &'a str,
    pub beside: Option<&'a str>,
    pub aim: Option<Aim>,
}

impl Table {
    pub fn add(&mut self, place: Place<'_>, sample: f64, disturbance: f64) {
        let Place { row, figure, unit, stack, beside, aim } = place;
        let known = self.series.iter_mut().find(|series| series.figure == figure && series.stack == stack);
        match known {
            Some(series) => {
                series.samples.push(sample);
                series.disturbances.push(disturbance);
            }
            None => self.series.push(Series {
                row,
                figure,
                unit,
                stack: stack.to_owned(),
                samples: vec![sample],
                disturbances: vec![disturbance],
                beside: beside.map(str::to_owned),
                aim,
            }),
        }
    }

    fn ratio(&self, series: &Series, to: &str) -> Option<f64> {
        let same = |other: &&Series| other.figure == series.figure && other.stack == to;
        let other = self.series.iter().find(same)?;
        let ratio = median(&series.samples) / median(&other.samples);
        ratio.is_finite().then_some(ratio)
    }

    fn line<'a>(&self, series: &'a Series) -> Line<'a> {
        let (least, most) = range(&series.samples);
        let median = median(&series.samples);
        let beside = series.beside.as_deref().filter(|beside| *beside != series.stack);
        let judged = series.aim.as_ref().and_then(|aim| match &aim.of {
            Some(stack) => self.ratio(series, stack),
            None => Some(median),
        });
        let missed_by = series.aim.as_ref().zip(judged).map(|(aim, value)| aim.missed_by(value));
        Line {
            row: series.row,
            figure: &series.figure,
            unit: series.unit,
            stack: &series.stack,
            median,
            least,
            most,
            samples: &series.samples,
            disturbances: &series.disturbances,
            beside,
            ratio: beside.and_then(|beside| self.ratio(series, beside)),
            to_least: self.ratio(series, LEAST).filter(|_| series.stack != LEAST),
            aim: series.aim.as_ref(),
            judged,
            met: missed_by.map(|missed| missed.is_none()),
            missed_by: missed_by.flatten(),
        }
    }

    /// As one object.
    pub fn json(&self, notes: &[String]) -> serde_json::Value {
        let lines: Vec<Line<'_>> = self.series.iter().map(|series| self.line(series)).collect();
        serde_json::json!({ "notes": notes, "figures": lines, "errors": self.errors })
    }

    /// One table for each figure, in the order in which they were begun, and the number of aims that are met.
    pub fn text(&self, notes: &[String]) -> String {
        let mut lines = notes.to_vec();
        let (mut met, mut judged) = (0, 0);
        let mut done: Vec<&str> = Vec::new();
        for first in &self.series {
            if done.contains(&first.figure.as_str()) {
                continue;
            }
            done.push(&first.figure);
            lines.push(format!("\n{}: {} [{}]", first.row, first.figure, first.unit));
            lines.push(format!(
                "  {:<27} {:>9}   {:<21} {:>6}   {:<35} aim",
                "stack", "median", "least – most", "others", "ratio"
            ));
            for series in self.series.iter().filter(|series| series.figure == first.figure) {
                let line = self.line(series);
                judged += usize::from(line.met.is_some());
                met += usize::from(line.met == Some(true));
                lines.push(text_of(&line));
            }
        }
        if judged > 0 {
            lines.push(format!("\n{met} of {judged} aims are met"));
        }
        lines.extend(self.errors.iter().map(|error| format!("\nFAILED: {error}")));
        lines.join("\n")
    }
}

fn text_of(line: &Line<'_>) -> String {
    let to_beside = line.ratio.zip(line.beside).map(|(ratio, beside)| format!("{ratio:.2} × {beside}"));
    let to_least = line.to_least.map(|ratio| format!("{ratio:.2} × least"));
    let ratio = to_beside.into_iter().chain(to_least).collect::<Vec<_>>().join(", ");
    let aim = line.aim.map_or_else(String::new, |aim| format!("{}: {}", aim.text(), verdict(line, aim)));
    let text = format!(
        "  {:<27} {:>9}   {:<21} {:>6.2}   {ratio:<35} {aim}",
        line.stack,
        number(line.median),
        format!("{} – {}", number(line.least), number(line.most)),
        range(line.disturbances).1,
    );
    text.trim_end().to_owned()
}

fn verdict(line: &Line<'_>, aim: &Aim) -> String {
    let Some(judged) = line.judged else { return "not judged".to_owned() };
    // The number is in the line already, unless it is a ratio to another stack than the one beside.
    let shown = if aim.of.is_some() && aim.of.as_deref() != line.beside {
        format!(" ({judged:.2})")
    } else {
        String::new()
    };
    match line.missed_by {
        None => format!("met{shown}"),
        Some(by) if aim.value == 0.0 => format!("missed by {}{shown}", number(by)),
        Some(by) => format!("missed by {:.1} %{shown}", by * 100.0),
    }
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one of n has everything; 0 if nobody has anything.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| share as f64 * share as f64).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// The least share of the greatest; 0 if nobody has anything.
pub fn slowest_to_fastest(shares: &[u64]) -> f64 {
    match (shares.iter().min(), shares.iter().max()) {
        (Some(&least), Some(&most)) if most > 0 => least as f64 / most as f64,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_falls_to_one_nth() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        // (1 + 3)² / (2 · (1 + 9))
        assert_eq!(jain(&[1, 3]), 0.8);
        assert_eq!(jain(&[0, 0]), 0.0);
        assert_eq!(jain(&[]), 0.0);
    }

    #[test]
    fn slowest_to_fastest_is_a_share() {
        assert_eq!(slowest_to_fastest(&[2, 8, 4]), 0.25);
        assert_eq!(slowest_to_fastest(&[0, 0]), 0.0);
        assert_eq!(slowest_to_fastest(&[]), 0.0);
    }

    fn add(table: &mut Table, stack: &str, aim: Option<Aim>, sample: f64) {
        let place =
            Place { row: "row", figure: "cost".into(), unit: "s", stack, beside: Some("kernel"), aim };
        table.add(place, sample, 0.0);
    }

    /// Verdicts of all stacks after the kernel's 2.0.
    fn verdicts(others: &[(&str, Aim, f64)]) -> Vec<String> {
        let mut table = Table::default();
        add(&mut table, "kernel", None, 2.0);
        for (stack, aim, sample) in others {
            add(&mut table, stack, Some(aim.clone()), *sample);
        }
        let all = table.series.iter().filter_map(|series| {
            let line = table.line(series);
            line.aim.map(|aim| verdict(&line, aim))
        });
        all.collect()
    }

    #[test]
    fn an_aim_is_met_up_to_its_bound() {
        let most = || Aim::at_most(1.5).times("kernel");
        assert_eq!(verdicts(&[("taut", most(), 3.0)]), ["met"]);
        assert_eq!(verdicts(&[("taut", most(), 4.5)]), ["missed by 50.0 %"]);
        let least = || Aim::at_least(1.0).times("kernel");
        assert_eq!(verdicts(&[("taut", least(), 2.0)]), ["met"]);
        assert_eq!(verdicts(&[("taut", least(), 1.5)]), ["missed by 25.0 %"]);
        assert_eq!(verdicts(&[("taut", Aim::at_most(600.0), 660.0)]), ["missed by 10.0 %"]);
        assert_eq!(verdicts(&[("taut", Aim::at_most(0.0), 0.0)]), ["met"]);
        assert_eq!(verdicts(&[("taut", Aim::at_most(0.0), 0.5)]), ["missed by 0.500"]);
    }

    #[test]
    fn an_aim_may_be_a_share_of_another_stack_than_the_kernel() {
        let of_loop = Aim::at_most(1.2).times("loop");
        let all = verdicts(&[("loop", Aim::at_most(1.1).times("kernel"), 2.1), ("taut", of_loop, 3.15)]);
        assert_eq!(all, ["met", "missed by 25.0 % (1.50)"]);
        assert_eq!(verdicts(&[("taut", Aim::at_most(1.2).times("absent"), 1.0)]), ["not judged"]);
    }

    #[test]
    fn a_line_has_median_range_and_the_largest_disturbance() {
        let mut table = Table::default();
        for (sample, disturbance) in [(3.0, 0.1), (1.0, 0.4), (2.0, 0.2)] {
            let aim = Some(Aim::at_most(2.0));
            let place =
                Place { row: "row", figure: "cost".into(), unit: "s", stack: "taut", beside: None, aim };
            table.add(place, sample, disturbance);
        }
        let line = table.line(&table.series[0]);
        assert_eq!((line.median, line.least, line.most, line.ratio), (2.0, 1.0, 3.0, None));
        let text = table.text(&["note".into()]);
        assert!(text.starts_with("note\n\nrow: cost [s]\n"), "{text}");
        assert!(text.contains("1.00 – 3.00             0.40"), "{text}");
        assert!(text.ends_with("≤ 2: met\n\n1 of 1 aims are met"), "{text}");
        let json = table.json(&[]);
        assert_eq!(json["figures"][0]["met"], true);
        assert_eq!(json["figures"][0]["aim"]["bound"], "at-most");
    }
}
