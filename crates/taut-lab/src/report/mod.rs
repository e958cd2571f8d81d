//! Pictures of runs: SVG by themselves, or all in one page of HTML that needs nothing else.
//!
//! ```text
//!   data.rs ─▶ queues, sequence, window, distributions, blocked ─▶ figures.rs ─▶ html.rs: the page
//!                    scale: axes   thin: fewer points                  │
//!                    svg: charts   theme: colours                      └─▶ picture.rs: a file each
//! ```
//!
//! Pictures and pages take a [`RunSet`](crate::data::RunSet) and nothing else; [`read`] makes one of the files that a
//! run left.

mod blocked;
mod distributions;
mod figures;
mod html;
mod picture;
mod queues;
mod read;
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
pub use read::{ReadError, read};
pub use theme::Theme;
