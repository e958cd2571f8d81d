//! Readable numbers, and tables. Pure.
//!
//! Called by every command that prints text; `--json` prints the plain numbers instead.

use std::time::Duration;

/// `1234567` as `1.23 MB`.
pub fn bytes(count: u64) -> String {
    scaled(count as f64, 1000.0, &["B", "kB", "MB", "GB", "TB"])
}

/// Bits per second, from a number of bytes and the time that they took.
pub fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / time.as_secs_f64() }
}

/// `12.3 Gbit/s`.
pub fn rate(bytes: u64, time: Duration) -> String {
    scaled(bits_per_second(bytes, time), 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Three significant digits: `0.123`, `1.23`, `12.3`, `123`, and integers above.
pub fn significant(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 {
        format!("{value:.0} {}", units[0])
    } else {
        format!("{} {}", significant(value), units[unit])
    }
}

/// Rows in columns. The first `left` columns are aligned to the left, the others to the right.
pub fn table(left: usize, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let gap = if column == 0 { "" } else { "  " };
            line += &if column < left { format!("{gap}{cell}{pad}") } else { format!("{gap}{pad}{cell}") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000_000_000), "1.00 GB");
        assert_eq!(rate(125_000_000, Duration::from_secs(1)), "1.00 Gbit/s");
        assert_eq!(rate(1, Duration::ZERO), "0 bit/s");
        assert_eq!(significant(9.996), "10.0");
        assert_eq!(significant(99.96), "100");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }

    #[test]
    fn a_table_aligns_its_columns() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["bcd".into(), "234".into()]];
        assert_eq!(table(1, &rows), "a      1\nbcd  234\n");
    }
}
