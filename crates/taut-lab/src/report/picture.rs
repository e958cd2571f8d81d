//! Legends, and pictures that consist of several panels, each in its own file.
//!
//! Called by `list.rs`, and by `html.rs` for legends.

use std::fmt::Write as _;

use super::svg::{Panel, escape, fitted, number, text_width};
use super::theme::{Ink, Theme};

/// How a legend shows a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swatch {
    /// A filled box.
    Box,
    /// A line.
    Line,
    /// A dashed line.
    Dash,
    /// A dot.
    Dot,
}

/// An entry of a legend.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Its label.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) ink: Ink,
    /// How it is drawn.
    pub(crate) swatch: Swatch,
}

impl Key {
    /// The sample beside the label, 18 by 12 pixels.
    fn sign(&self, x: f64, y: f64) -> String {
        let (ink, x, middle) = (self.ink.0, number(x), number(y + 6.0));
        match self.swatch {
            Swatch::Box => {
                format!(
                    "<rect class=\"i{ink}\" x=\"{x}\" y=\"{}\" width=\"14\" height=\"11\"/>",
                    number(y + 0.5)
                )
            }
            Swatch::Line => format!("<path class=\"line k{ink}\" d=\"M{x} {middle}h16\"/>"),
            Swatch::Dash => format!("<path class=\"line dash k{ink}\" d=\"M{x} {middle}h16\"/>"),
            Swatch::Dot => format!("<path class=\"dots k{ink}\" d=\"M{x} {middle}m7 0h.01\"/>"),
        }
    }

    /// The entry as an item of a list in a page.
    pub(crate) fn html(&self) -> String {
        format!(
            "<li><svg class=\"chart\" width=\"18\" height=\"12\" aria-hidden=\"true\">{}</svg>{}</li>",
            self.sign(1.0, 0.0),
            escape(&self.name)
        )
    }
}

/// Panels that form one picture.
pub(crate) struct Picture<'a> {
    /// Its heading.
    pub(crate) title: &'a str,
    /// Where it comes from; printed below it.
    pub(crate) source: &'a str,
    /// The legend.
    pub(crate) keys: &'a [Key],
    /// Row by row.
    pub(crate) panels: Vec<&'a Panel>,
    /// Panels in a row.
    pub(crate) columns: usize,
}

impl Picture<'_> {
    /// The picture as an SVG file, `width` pixels wide.
    pub(crate) fn svg(&self, width: f64, theme: Theme) -> String {
        const MARGIN: f64 = 16.0;
        const GAP: f64 = 14.0;
        let inner = width - 2.0 * MARGIN;
        let mut body = String::new();
        let mut y = MARGIN + 14.0;
        let title = fitted(self.title, inner / 1.4);
        _ = write!(body, "<text class=\"he\" x=\"{MARGIN}\" y=\"{}\">{}</text>", number(y), escape(&title));
        y += 14.0;
        let mut x = MARGIN;
        for key in self.keys {
            let name = fitted(&key.name, inner - 22.0);
            let entry = 22.0 + text_width(&name);
            if x > MARGIN && x + entry > MARGIN + inner {
                (x, y) = (MARGIN, y + 18.0);
            }
            _ = write!(
                body,
                "{}<text x=\"{}\" y=\"{}\">{}</text>",
                key.sign(x, y),
                number(x + 20.0),
                number(y + 10.5),
                escape(&name)
            );
            x += entry + 14.0;
        }
        y += if self.keys.is_empty() { 0.0 } else { 26.0 };
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let panel_width = (inner - GAP * (columns - 1) as f64) / columns as f64;
        for row in self.panels.chunks(columns) {
            let height = row.iter().map(|panel| panel.height_for(panel_width)).fold(0.0, f64::max);
            for (column, panel) in row.iter().enumerate() {
                let x = MARGIN + column as f64 * (panel_width + GAP);
                _ = write!(
                    body,
                    "<g transform=\"translate({} {})\">{}</g>",
                    number(x),
                    number(y),
                    panel.draw(panel_width, height)
                );
            }
            y += height + GAP;
        }
        if !self.source.is_empty() {
            let source = fitted(self.source, inner);
            y += 4.0;
            _ = write!(
                body,
                "<text class=\"mu\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
                number(y),
                escape(&source)
            );
        }
        let (width, height) = (number(width), number(y + 12.0));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\"><style>{}</style>\
             <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>{body}</svg>\n",
            theme.sheet()
        )
    }
}
