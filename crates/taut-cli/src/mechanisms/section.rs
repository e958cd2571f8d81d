//! What a mechanism's runs give: rows of a table for people, objects for programs. Pure.

use serde_json::{Map, Value};

use crate::text;

/// A column: its key in JSON, and its heading.
pub(super) struct Column {
    pub(super) key: &'static str,
    pub(super) heading: &'static str,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// A name.
    Text(String),
    /// A measured value; `None` where it means nothing.
    Number(Option<f64>),
    /// A count.
    Count(u64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Number(Some(value))
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        Self::Number(value)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// What one run gave, a cell for each column.
pub(super) type Row = Vec<Cell>;

/// One table.
pub(super) struct Section {
    /// As the user names the mechanism.
    pub(super) name: &'static str,
    /// What the runs do.
    pub(super) setup: String,
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
    /// What was published, and how that was measured.
    pub(super) published: &'static str,
    /// How many columns, from the left, are names.
    pub(super) names: usize,
}

impl Section {
    pub(super) fn json(&self) -> Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let pairs = self.columns.iter().zip(row).map(|(column, cell)| {
                    let value = match cell {
                        Cell::Text(text) => Value::from(text.as_str()),
                        Cell::Number(value) => Value::from(*value),
                        Cell::Count(count) => Value::from(*count),
                    };
                    (column.key.to_owned(), value)
                });
                Value::Object(pairs.collect::<Map<_, _>>())
            })
            .collect();
        serde_json::json!({
            "mechanism": self.name, "setup": self.setup, "published": self.published, "rows": rows,
        })
    }

    pub(super) fn text(&self) -> String {
        let head = self.columns.iter().map(|column| column.heading.to_owned()).collect();
        let lines = self.rows.iter().map(|row| {
            row.iter()
                .map(|cell| match cell {
                    Cell::Text(text) => text.clone(),
                    Cell::Number(Some(value)) if *value >= 10_000.0 => text::grouped(*value as u64),
                    Cell::Number(Some(value)) => text::significant(*value),
                    Cell::Number(None) => "–".to_owned(),
                    Cell::Count(count) => text::grouped(*count),
                })
                .collect()
        });
        let rows: Vec<_> = std::iter::once(head).chain(lines).collect();
        format!(
            "{}: {}\n\n{}\n  Published: {}\n",
            self.name,
            self.setup,
            text::table(self.names, &rows),
            self.published
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_a_table_and_an_object() {
        let section = Section {
            name: "tsq",
            setup: "a test".to_owned(),
            columns: &[Column { key: "mode", heading: "mode" }, Column { key: "ms", heading: "ms" }],
            rows: vec![vec!["off".into(), 12.34.into()], vec!["on".into(), None.into()]],
            published: "nothing",
            names: 1,
        };
        assert_eq!(
            section.text(),
            "tsq: a test\n\nmode    ms\noff   12.3\non       –\n\n  Published: nothing\n"
        );
        let json = section.json();
        assert_eq!(json["rows"][0]["ms"], 12.34);
        assert!(json["rows"][1]["ms"].is_null());
        assert_eq!(json["mechanism"], "tsq");
    }
}
