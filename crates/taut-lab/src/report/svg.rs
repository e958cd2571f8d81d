//! Charts as SVG: panels with axes, and marks in them.
//!
//! A panel is drawn alone, for a page that arranges panels, or with others in one picture (`picture.rs`).
//! Marks lie in an inner `<svg>`, one unit per pixel, which a page can zoom by its `viewBox`. Values that are
//! not numbers are not drawn. The figures' files fill the panels.

use std::fmt::{Display, Write as _};

use super::scale::{Axis, Tick};
use super::theme::Ink;

/// How values are drawn.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Points joined by a line, which is interrupted at values that are not numbers.
    Line {
        /// Time or another `x`, and `y`.
        points: Vec<(f64, f64)>,
        /// Whether a value holds until the next one, instead of changing linearly.
        step: bool,
        /// Whether the line is dashed.
        dashed: bool,
    },
    /// The area below points, down to the axis. Of a stack, the topmost layer comes first: the next ones
    /// cover it.
    Area(Vec<(f64, f64)>),
    /// The area between two lines: `x`, from `y`, to `y`.
    Band(Vec<(f64, f64, f64)>),
    /// Vertical strokes: `x`, from `y`, to `y`.
    Strokes {
        /// The strokes.
        strokes: Vec<(f64, f64, f64)>,
        /// Whether they are drawn large enough to be seen at a glance.
        bold: bool,
    },
    /// Dots.
    Dots(Vec<(f64, f64)>),
    /// Vertical bars, from `x` to `x`, of height `y`, each with a tooltip.
    Bars(Vec<(f64, f64, f64, String)>),
    /// Horizontal bars: row, from `x`, to `x`, and a tooltip.
    Spans(Vec<(usize, f64, f64, String)>),
}

/// A mark in a panel.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// Its name, in its tooltip.
    pub(crate) name: String,
    /// How it is drawn.
    pub(crate) shape: Shape,
    /// In which colour.
    pub(crate) ink: Ink,
    /// The variant that it belongs to, when the panel shows several.
    pub(crate) variant: Option<usize>,
}

/// A part of a panel with a tooltip.
#[derive(Clone, Debug)]
pub(crate) struct Tip {
    /// From this `x`.
    pub(crate) from: f64,
    /// To this one.
    pub(crate) to: f64,
    /// The words.
    pub(crate) text: String,
}

/// A coordinate system and its contents.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Its name; may be empty.
    pub(crate) title: String,
    /// A few words at the right of the title.
    pub(crate) note: String,
    /// The variant that it shows, when it shows one.
    pub(crate) variant: Option<usize>,
    /// Horizontal axis.
    pub(crate) x: Axis,
    /// Vertical axis; unused when there are `rows`.
    pub(crate) y: Axis,
    /// Names of rows, for [`Shape::Spans`], which then replace `y`.
    pub(crate) rows: Vec<String>,
    /// Its marks; the last is on top.
    pub(crate) layers: Vec<Layer>,
    /// Its tooltips.
    pub(crate) tips: Vec<Tip>,
    /// Height divided by width.
    pub(crate) shape: f64,
    /// Panels of the same group show the same time and are zoomed together.
    pub(crate) zooms: Option<&'static str>,
}

const TICK_LENGTH: f64 = 4.0;
const MARGIN_RIGHT: f64 = 16.0;
const ROW_HEIGHT: f64 = 34.0;

/// Escapes text for markup.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML does not allow control characters.
            letter if letter.is_control() && letter != '\n' && letter != '\t' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// Estimated width of a text at 12 px, rather too wide than too narrow: the reader's font is not known.
pub(crate) fn text_width(text: &str) -> f64 {
    let letter = |letter: char| match letter {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | 'I' | '.' | ',' | ':' | '\'' | '|' | '!' | '(' | ')' | ' ' => 4.3,
        'm' | 'w' | 'M' | 'W' | '%' | '—' => 10.8,
        'A'..='Z' | '0'..='9' => 7.8,
        _ => 7.2,
    };
    text.chars().map(letter).sum()
}

/// A text at most `width` wide at 12 px, cut with an ellipsis if necessary.
pub(crate) fn fitted(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for letter in text.chars() {
        if text_width(&out) + 18.0 > width {
            break;
        }
        out.push(letter);
    }
    out.push('…');
    out
}

/// A coordinate to a tenth of a pixel, as short as possible.
pub(crate) fn number(value: f64) -> impl Display {
    // Coordinates far outside are invisible, and some programs cannot draw them.
    let tenths = (value.clamp(-9_999.0, 99_999.0) * 10.0).round() as i64;
    let (sign, tenths) = (if tenths < 0 { "-" } else { "" }, tenths.unsigned_abs());
    match tenths % 10 {
        0 => format!("{sign}{}", tenths / 10),
        tenth => format!("{sign}{}.{tenth}", tenths / 10),
    }
}

/// Positions of a panel's parts.
struct PlotArea {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Panel {
    /// Height that suits a width.
    pub(crate) fn height_for(&self, width: f64) -> f64 {
        if self.rows.is_empty() {
            (width * self.shape).clamp(200.0, 420.0)
        } else {
            self.rows.len() as f64 * ROW_HEIGHT + 48.0 + self.head()
        }
    }

    /// Height of the part above the area.
    fn head(&self) -> f64 {
        let title = if self.title.is_empty() && self.note.is_empty() { 0.0 } else { 20.0 };
        title + if self.rows.is_empty() { 22.0 } else { 6.0 }
    }

    /// The panel as an element of a page.
    pub(crate) fn svg(&self, width: f64) -> String {
        let height = self.height_for(width);
        let variant = class_of(self.variant);
        format!(
            "<svg class=\"chart{variant}\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" \
             width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"{2}\">{3}</svg>",
            number(width),
            number(height),
            escape(&self.title),
            self.draw(width, height)
        )
    }

    /// The contents of an `<svg>` or a `<g>` of that size.
    pub(crate) fn draw(&self, width: f64, height: f64) -> String {
        let y_ticks = if self.rows.is_empty() { self.y.ticks(6) } else { Vec::new() };
        let words =
            y_ticks.iter().map(|tick| tick.label.as_str()).chain(self.rows.iter().map(String::as_str));
        let widest = words.map(text_width).fold(24.0, f64::max).min(width * 0.3);
        let left = widest + TICK_LENGTH + 6.0;
        let top = self.head();
        let plot = PlotArea { left, top, width: width - left - MARGIN_RIGHT, height: height - top - 40.0 };
        let mut out = String::new();
        self.draw_head(&mut out, width, &plot);
        self.draw_y(&mut out, &y_ticks, &plot);
        self.draw_x(&mut out, &plot);
        self.draw_marks(&mut out, &plot);
        let bottom = number(plot.top + plot.height);
        _ = write!(
            out,
            "<path class=\"axis\" d=\"M{} {}V{bottom}H{}\"/>",
            number(plot.left),
            number(plot.top),
            number(plot.left + plot.width)
        );
        out
    }

    fn draw_head(&self, out: &mut String, width: f64, plot: &PlotArea) {
        let note_width = text_width(&self.note);
        if !self.title.is_empty() {
            // Bold letters are wider.
            let title = fitted(&self.title, (width - note_width - 32.0) / 1.28);
            _ = write!(out, "<text class=\"ti\" x=\"0\" y=\"14\">{}", escape(&title));
            if title != self.title {
                _ = write!(out, "<title>{}</title>", escape(&self.title));
            }
            out.push_str("</text>");
        }
        if !self.note.is_empty() {
            let x = number(width - MARGIN_RIGHT);
            _ = write!(
                out,
                "<text class=\"mu\" x=\"{x}\" y=\"14\" text-anchor=\"end\">{}</text>",
                escape(&self.note)
            );
        }
        if self.rows.is_empty() {
            let y = number(plot.top - 9.0);
            _ = write!(out, "<text class=\"mu\" x=\"0\" y=\"{y}\">{}</text>", escape(&self.y.title()));
        }
    }

    fn draw_y(&self, out: &mut String, ticks: &[Tick], plot: &PlotArea) {
        let (left, right) = (number(plot.left), number(plot.left + plot.width));
        let label_x = number(plot.left - TICK_LENGTH - 2.0);
        let mut last = f64::INFINITY;
        for tick in ticks {
            let Some(place) = self.y.place(tick.value) else { continue };
            let y = plot.top + plot.height * (1.0 - place);
            if tick.label.is_empty() || last - y < 14.0 {
                continue;
            }
            last = y;
            _ = write!(
                out,
                "<path class=\"grid\" d=\"M{left} {0}H{right}\"/>\
                 <text class=\"mu\" x=\"{label_x}\" y=\"{1}\" text-anchor=\"end\">{2}</text>",
                number(y),
                number(y + 4.0),
                escape(&tick.label)
            );
        }
        for (row, name) in self.rows.iter().enumerate() {
            let y = number(plot.top + row_middle(row) + 4.0);
            let shown = fitted(name, plot.left - TICK_LENGTH);
            _ = write!(
                out,
                "<text x=\"{label_x}\" y=\"{y}\" text-anchor=\"end\">{}<title>{}</title></text>",
                escape(&shown),
                escape(name)
            );
        }
    }

    fn draw_x(&self, out: &mut String, plot: &PlotArea) {
        let wanted = (plot.width / 56.0) as usize;
        let bottom = plot.top + plot.height;
        // A page redraws these when it zooms.
        out.push_str("<g class=\"x\">");
        let mut free_from = f64::NEG_INFINITY;
        for tick in self.x.ticks(wanted) {
            let Some(place) = self.x.place(tick.value) else { continue };
            let x = plot.left + plot.width * place;
            let half = text_width(&tick.label) / 2.0;
            let has_words = !tick.label.is_empty() && x - half > free_from;
            let length = if has_words { TICK_LENGTH } else { TICK_LENGTH / 2.0 };
            _ = write!(
                out,
                "<path class=\"axis\" d=\"M{} {}v{}\"/>",
                number(x),
                number(bottom),
                number(length)
            );
            if has_words {
                // To the right there is only the margin.
                let x = x.min(plot.left + plot.width + MARGIN_RIGHT - half);
                free_from = x + half + 6.0;
                _ = write!(
                    out,
                    "<text class=\"mu\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    number(x),
                    number(bottom + 17.0),
                    escape(&tick.label)
                );
            }
        }
        _ = write!(
            out,
            "</g><text class=\"mu\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            number(plot.left + plot.width / 2.0),
            number(bottom + 34.0),
            escape(&self.x.title())
        );
    }

    fn draw_marks(&self, out: &mut String, plot: &PlotArea) {
        let (width, height) = (number(plot.width), number(plot.height));
        _ = write!(
            out,
            "<svg class=\"plot\" x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             preserveAspectRatio=\"none\"",
            number(plot.left),
            number(plot.top)
        );
        if let Some(group) = self.zooms {
            let (unit, _) = self.x.tick_unit();
            _ = write!(
                out,
                " data-zoom=\"{group}\" data-low=\"{}\" data-high=\"{}\" data-unit=\"{unit}\"",
                self.x.low, self.x.high
            );
        }
        out.push('>');
        for layer in &self.layers {
            self.draw_layer(out, layer, plot);
        }
        for tip in &self.tips {
            let place = |x: f64| self.x.place(x).map(|place| place.clamp(0.0, 1.0) * plot.width);
            let (Some(from), Some(to)) = (place(tip.from), place(tip.to)) else { continue };
            _ = write!(
                out,
                "<rect class=\"tip\" x=\"{}\" y=\"0\" width=\"{}\" height=\"{height}\"><title>{}</title></rect>",
                number(from),
                number((to - from).max(0.0)),
                escape(&tip.text)
            );
        }
        out.push_str("</svg>");
    }

    fn draw_layer(&self, out: &mut String, layer: &Layer, plot: &PlotArea) {
        let ink = layer.ink.0;
        let at_x = |x: f64| self.x.place(x).map(|place| place * plot.width);
        let at_y = |y: f64| self.y.place(y).map(|place| (1.0 - place) * plot.height);
        let at = |&(x, y): &(f64, f64)| Some((at_x(x)?, at_y(y)?));
        let variant = class_of(layer.variant);
        let mut path = |class: String, d: String| {
            if !d.is_empty() {
                let name = escape(&layer.name);
                _ = write!(out, "<path class=\"{class}{variant}\" d=\"{d}\"><title>{name}</title></path>");
            }
        };
        match &layer.shape {
            Shape::Line { points, step, dashed } => {
                let dash = if *dashed { " dash" } else { "" };
                path(format!("line k{ink}{dash}"), line(points.iter().map(at), *step));
            }
            Shape::Area(points) => {
                let d = area(points.iter().map(at), plot.height);
                path(format!("edge thin i{ink}"), d);
            }
            Shape::Band(points) => {
                let upper = points.iter().filter_map(|&(x, _, to)| at(&(x, to)));
                let lower = points.iter().rev().filter_map(|&(x, from, _)| at(&(x, from)));
                let mut d = String::new();
                for (x, y) in upper.chain(lower) {
                    let command = if d.is_empty() { 'M' } else { 'L' };
                    _ = write!(d, "{command}{} {}", number(x), number(y));
                }
                if !d.is_empty() {
                    d.push('Z');
                }
                path(format!("edge thin i{ink}"), d);
            }
            Shape::Strokes { strokes, bold } => {
                let bold = if *bold { " bold" } else { "" };
                let mut d = String::new();
                for (x, from, to) in strokes {
                    let (Some(x), Some(from), Some(to)) = (at_x(*x), at_y(*from), at_y(*to)) else {
                        continue;
                    };
                    // Less than a pixel would be invisible, and bold strokes must be visible.
                    let least = if bold.is_empty() { 1.4 } else { 4.0 };
                    let (middle, half) = ((from + to) / 2.0, ((from - to).abs().max(least)) / 2.0);
                    let (from, to) = (middle + half, middle - half);
                    _ = write!(d, "M{} {}V{}", number(x), number(from), number(to));
                }
                path(format!("bars k{ink}{bold}"), d);
            }
            Shape::Dots(points) => {
                let mut d = String::new();
                for (x, y) in points.iter().filter_map(at) {
                    // Some programs draw no round ends on a line of zero length.
                    _ = write!(d, "M{} {}h.01", number(x), number(y));
                }
                path(format!("dots k{ink}"), d);
            }
            Shape::Bars(bars) => {
                for (from, to, value, tip) in bars {
                    let (Some(from), Some(to), Some(y)) = (at_x(*from), at_x(*to), at_y(*value)) else {
                        continue;
                    };
                    _ = write!(
                        out,
                        "<rect class=\"edge i{ink}{variant}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">\
                         <title>{}</title></rect>",
                        number(from),
                        number(y),
                        number((to - from).max(0.5)),
                        number((plot.height - y).max(0.0)),
                        escape(tip)
                    );
                }
            }
            Shape::Spans(spans) => {
                for (row, from, to, tip) in spans {
                    let (Some(from), Some(to)) = (at_x(*from), at_x(*to)) else { continue };
                    self.draw_span(out, (ink, &variant), row_middle(*row), (from, to), tip, plot);
                }
            }
        }
    }

    /// One span of a row: its bar, and how long it is where that text fits.
    fn draw_span(
        &self,
        out: &mut String,
        (ink, variant): (u8, &str),
        middle: f64,
        (from, to): (f64, f64),
        tip: &str,
        plot: &PlotArea,
    ) {
        _ = write!(
            out,
            "<rect class=\"edge i{ink}{variant}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"24\">\
             <title>{}</title></rect>",
            number(from),
            number(middle - 12.0),
            number((to - from).max(0.0)),
            escape(tip)
        );
        let length = self.x.low + (to - from) / plot.width * (self.x.high - self.x.low);
        let said = self.x.quantity.say(length);
        if text_width(&said) + 8.0 < to - from {
            _ = write!(
                out,
                "<text class=\"o{ink}{variant}\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{said}</text>",
                number((from + to) / 2.0),
                number(middle + 4.0)
            );
        }
    }
}

/// Middle of a row below the top of its area.
fn row_middle(row: usize) -> f64 {
    row as f64 * ROW_HEIGHT + ROW_HEIGHT / 2.0
}

fn class_of(variant: Option<usize>) -> String {
    variant.map_or_else(String::new, |variant| format!(" v{variant}"))
}

/// The path of a line through points; it starts again after each point that cannot be drawn.
fn line(points: impl Iterator<Item = Option<(f64, f64)>>, step: bool) -> String {
    let mut d = String::new();
    let mut last = None;
    let mut points = points.peekable();
    while let Some(point) = points.next() {
        let Some((x, y)) = point else {
            last = None;
            continue;
        };
        match last {
            // A single point becomes a dot.
            None if !matches!(points.peek(), Some(Some(_))) => {
                _ = write!(d, "M{} {}h1", number(x), number(y));
            }
            None => {
                _ = write!(d, "M{} {}", number(x), number(y));
            }
            Some(last_y) if step && last_y == y => {
                _ = write!(d, "H{}", number(x));
            }
            Some(_) if step => {
                _ = write!(d, "H{}V{}", number(x), number(y));
            }
            Some(_) => {
                _ = write!(d, "L{} {}", number(x), number(y));
            }
        }
        last = Some(y);
    }
    d
}

/// The path around the area below points. Points that cannot be drawn are left out.
fn area(points: impl Iterator<Item = Option<(f64, f64)>>, bottom: f64) -> String {
    let bottom = number(bottom).to_string();
    let mut d = String::new();
    let mut last_x = None;
    for (x, y) in points.flatten() {
        if last_x.is_none() {
            _ = write!(d, "M{} {bottom}", number(x));
        }
        _ = write!(d, "L{} {}", number(x), number(y));
        last_x = Some(x);
    }
    if let Some(x) = last_x {
        _ = write!(d, "L{} {bottom}Z", number(x));
    }
    d
}
