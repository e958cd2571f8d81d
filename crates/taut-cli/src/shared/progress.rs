//! Progress on standard error if that is a terminal; otherwise silent.
//!
//! Called by every command that takes longer than a moment.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(100);

fn style(template: &str) -> ProgressStyle {
    // A template that cannot be parsed only changes how the bar looks.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Bytes of a stream: of `total` when that is known.
pub(crate) fn bytes(total: Option<u64>) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total).with_style(style(
            "{bar:30} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} ETA {eta}",
        )),
        None => ProgressBar::no_length()
            .with_style(style("{spinner} {decimal_bytes} {decimal_bytes_per_sec} {elapsed}")),
    };
    bar.enable_steady_tick(TICK);
    bar
}

/// Parts of unknown length: the prefix and the message name what runs.
pub(crate) fn parts() -> ProgressBar {
    let bar = ProgressBar::no_length().with_style(style("{spinner} {elapsed} {prefix} {msg}"));
    bar.enable_steady_tick(TICK);
    bar
}

/// A known number of steps, each with its name.
pub(crate) fn steps(count: u64) -> ProgressBar {
    let bar = ProgressBar::new(count).with_style(style("{bar:30} {pos}/{len} {elapsed} {msg}"));
    bar.enable_steady_tick(TICK);
    bar
}
