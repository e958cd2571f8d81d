//! Pictures of runs: single SVG files, or all in one self-contained HTML page.
//!
//! ```text
//!   data.rs ─▶ pictures/: a file each, and their list ─▶ html.rs: the page
//!                lines: a line for each flow              └─▶ picture.rs: one file each
//!                scale: axes   thin: fewer points   svg: charts   theme: colours
//! ```
//!
//! Pictures and pages are made from a [`RunSet`](crate::data::RunSet) alone; [`read`] makes one from the
//! files of a run.

mod figures;
mod html;
mod lines;
mod picture;
mod pictures;
mod read;
mod scale;
mod svg;
mod theme;
mod thin;

#[cfg(test)]
mod tests;

pub use figures::Figure;
pub use html::page;
pub use pictures::{NAMES, figures};
pub use read::{ReadError, read};
pub use theme::Theme;
