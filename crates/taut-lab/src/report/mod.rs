//! Pictures of runs: single SVG files, or all in one self-contained HTML page.
//!
//! ```text
//!   data.rs ─▶ goodput, queues, sequence, losses, window, flows, distributions, blocked ─▶ list.rs ─▶ html.rs: the page
//!                    lines: a line for each flow   scale: axes   thin: fewer points            │
//!                    svg: charts   theme: colours                                              └─▶ picture.rs: one file each
//! ```
//!
//! Pictures and pages are made from a [`RunSet`](crate::data::RunSet) alone; [`read`] makes one from the
//! files of a run.

mod blocked;
mod distributions;
mod figures;
mod flows;
mod goodput;
mod html;
mod lines;
mod list;
mod losses;
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

pub use figures::Figure;
pub use html::page;
pub use list::{NAMES, figures};
pub use read::{ReadError, read};
pub use theme::Theme;
