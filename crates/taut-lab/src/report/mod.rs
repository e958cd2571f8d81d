//! Pictures of runs: SVG by themselves, or all in one page of HTML that needs nothing else.
//!
//! ```text
//!   data.rs ─▶ queues, sequence, window, distributions, blocked ─▶ figures.rs ─▶ html.rs: the page
//!                    scale: axes   thin: fewer points                  │
//!                    svg: charts   theme: colours                      └─▶ Figure::svg: a file each
//! ```
//!
//! Reads a [`RunSet`](crate::data::RunSet) and nothing else: no files, no clock.

mod blocked;
mod distributions;
mod figures;
mod html;
mod queues;
mod scale;
mod sequence;
mod svg;
mod theme;
mod thin;
mod window;

#[cfg(test)]
mod tests;

pub use figures::{Figure, NAMES, figures};
pub use html::page;
pub use theme::Theme;
