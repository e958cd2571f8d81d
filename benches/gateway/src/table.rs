//! Samples in, a table in Markdown out: the median, and least and greatest if they differ.

use std::collections::BTreeMap;

use crate::gateways::Kind;

#[derive(Default)]
pub struct Table {
    /// In the order in which they came.
    rows: Vec<String>,
    numbers: BTreeMap<(String, Kind), Vec<f64>>,
    words: BTreeMap<(String, Kind), Vec<String>>,
    notes: Vec<String>,
    failures: Vec<String>,
}

impl Table {
    fn row(&mut self, row: &str) {
        if !self.rows.iter().any(|known| known == row) {
            self.rows.push(row.to_owned());
        }
    }

    pub fn add(&mut self, kind: Kind, row: &str, value: f64) {
        self.row(row);
        self.numbers.entry((row.to_owned(), kind)).or_default().push(value);
    }

    /// An outcome that is no number.
    pub fn say(&mut self, kind: Kind, row: &str, word: &str) {
        self.row(row);
        self.words.entry((row.to_owned(), kind)).or_default().push(word.to_owned());
    }

    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn failed(&mut self, kind: Kind, what: &str) {
        let line = format!("FAILED: {}: {what}", kind.name());
        eprintln!("{line}");
        self.failures.push(line);
    }

    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn cell(&self, row: &str, kind: Kind) -> String {
        let key = (row.to_owned(), kind);
        let mut parts = Vec::new();
        if let Some(samples) = self.numbers.get(&key) {
            parts.push(summary(samples));
        }
        if let Some(words) = self.words.get(&key) {
            let mut different = words.clone();
            different.sort();
            different.dedup();
            parts.push(different.join(" / "));
        }
        if parts.is_empty() { "–".to_owned() } else { parts.join("; ") }
    }

    pub fn print(&self, kinds: &[Kind]) {
        let columns: Vec<_> = kinds.iter().map(|kind| (kind.name(), *kind, self)).collect();
        print_columns(&columns);
        self.print_notes();
    }

    pub fn print_notes(&self) {
        self.notes.iter().chain(&self.failures).for_each(|line| println!("{line}"));
    }

    pub fn json(&self) -> String {
        let numbers = self.numbers.iter().map(|((row, kind), samples)| {
            serde_json::json!({ "row": row, "gateway": kind.name(), "samples": samples })
        });
        let words = self.words.iter().map(|((row, kind), words)| {
            serde_json::json!({ "row": row, "gateway": kind.name(), "outcomes": words })
        });
        let all: Vec<_> = numbers.chain(words).collect();
        serde_json::json!({ "samples": all, "failures": self.failures }).to_string()
    }
}

/// One table of several: the name of each column, and where its samples are. The rows are those of the first.
pub fn print_columns(columns: &[(&str, Kind, &Table)]) {
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    println!("\n| | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(columns.len()));
    for row in columns.iter().take(1).flat_map(|(_, _, table)| &table.rows) {
        let cells: Vec<String> = columns.iter().map(|(_, kind, table)| table.cell(row, *kind)).collect();
        println!("| {row} | {} |", cells.join(" | "));
    }
    println!("\nmedian (least–greatest) of all rounds");
}

fn summary(samples: &[f64]) -> String {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    let (least, greatest) = (number(sorted[0]), number(sorted[sorted.len() - 1]));
    if least == greatest { number(median) } else { format!("{} ({least}–{greatest})", number(median)) }
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_middle_and_the_ends_of_samples() {
        assert_eq!(super::summary(&[3.0, 1.0, 2.0]), "2.00 (1.00–3.00)");
        assert_eq!(super::summary(&[4.0, 1.0]), "2.50 (1.00–4.00)");
        assert_eq!(super::summary(&[1234.4, 1234.4]), "1234");
    }
}
