//! The results of a part of the demo, and how a terminal shows them: bars, or before and after. Pure.
//!
//! Called by each part, by `mod.rs` and by `page.rs`.

use std::fmt::Write as _;

use serde::Serialize;

/// Characters of the longest bar.
const BAR_WIDTH: f64 = 36.0;

/// One part of the demo.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    /// A word for its key in JSON.
    pub(super) key: &'static str,
    /// Its heading.
    pub(super) title: &'static str,
    /// A sentence on the measurement and the path.
    pub(super) about: String,
    /// Values of several senders.
    pub(super) bars: Vec<Bars>,
    /// Published and own values of one change.
    pub(super) changes: Vec<Change>,
    /// Measurements that were not possible, and how they become so.
    pub(super) missing: Vec<String>,
}

/// One quantity of several senders.
#[derive(Debug, Serialize)]
pub(super) struct Bars {
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    /// Whether less is better.
    pub(super) less_is_better: bool,
    pub(super) values: Vec<Bar>,
}

/// The value of one sender.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    pub(super) who: String,
    pub(super) value: f64,
}

/// A change of one mechanism: what was published, and what taut has.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    pub(super) mechanism: &'static str,
    pub(super) what: &'static str,
    pub(super) published: [String; 2],
    pub(super) taut: [f64; 2],
}

impl Bars {
    /// The largest value; at least a little, so that it can divide.
    pub(super) fn most(&self) -> f64 {
        self.values.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max)
    }
}

impl Part {
    pub(super) fn new(key: &'static str, title: &'static str, about: impl Into<String>) -> Self {
        let (bars, changes, missing) = (Vec::new(), Vec::new(), Vec::new());
        Self { key, title, about: about.into(), bars, changes, missing }
    }

    /// The part for a terminal.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.title, self.about);
        for bars in &self.bars {
            let direction = if bars.less_is_better { "less" } else { "more" };
            let _ = writeln!(text, "\n  {}, {} ({direction} is better)", bars.what, bars.unit);
            for bar in &bars.values {
                let length = (bar.value / bars.most() * BAR_WIDTH).round().max(1.0) as usize;
                let _ =
                    writeln!(text, "    {:<26} {:>9}  {}", bar.who, number(bar.value), "█".repeat(length));
            }
        }
        if !self.changes.is_empty() {
            let _ = writeln!(text, "\n  {:<46} {:>19}   {:>16}", "", "published", "taut");
        }
        for change in &self.changes {
            let [before, after] = change.taut.map(number);
            let what = format!("{}: {}", change.mechanism, change.what);
            let published = format!("{} → {}", change.published[0], change.published[1]);
            let taut = format!("{before} → {after}");
            let _ = writeln!(text, "  {what:<46} {published:>19}   {taut:>16}");
        }
        for line in &self.missing {
            let _ = writeln!(text, "  Not measured: {line}");
        }
        text
    }
}

/// A value with three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        1_000.0.. => {
            let whole = format!("{value:.0}");
            let (head, tail) = whole.split_at(whole.len() - 3);
            format!("{head},{tail}")
        }
        100.0..1_000.0 => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        1.0..10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_value() {
        let mut part = Part::new("x", "Title", "About.");
        let bar = |who: &str, value| Bar { who: who.into(), value };
        let values = vec![bar("long", 200.0), bar("half", 100.0), bar("nothing", 0.0)];
        part.bars.push(Bars { what: "ping", unit: "ms", less_is_better: true, values });
        part.missing.push("curl is not here".into());
        let text = part.text();
        let blocks: Vec<usize> =
            text.lines().map(|line| line.matches('█').count()).filter(|&count| count > 0).collect();
        assert_eq!(blocks, [36, 18, 1]);
        assert!(text.starts_with("Title\nAbout.\n\n  ping, ms (less is better)\n"), "{text}");
        assert!(text.ends_with("  Not measured: curl is not here\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0312, 1.075, 29.37, 166.2, 1_385.0, 207_182.0].map(number);
        assert_eq!(shown, ["0.031", "1.07", "29.4", "166", "1,385", "207,182"]);
    }
}
