//! Colours and the style sheet of pictures and pages, on light and dark backgrounds.
//!
//! The colours of lines and areas are those of Okabe and Ito's palette, which people with any kind of colour
//! blindness can tell apart, lightened for dark backgrounds, and three of Paul Tol's where those are not
//! enough. Called by `svg.rs` and `html.rs`.

use std::fmt::Write as _;

/// A colour by its number in the palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink(pub(crate) u8);

impl Ink {
    pub(crate) const BLUE: Self = Self(0);
    pub(crate) const ORANGE: Self = Self(1);
    pub(crate) const GREEN: Self = Self(2);
    pub(crate) const VERMILLION: Self = Self(3);
    pub(crate) const SKY: Self = Self(4);
    pub(crate) const PINK: Self = Self(5);
    pub(crate) const YELLOW: Self = Self(6);
    pub(crate) const WINE: Self = Self(7);
    pub(crate) const INDIGO: Self = Self(8);
    pub(crate) const OLIVE: Self = Self(9);
    pub(crate) const GREY: Self = Self(10);
    pub(crate) const PALE: Self = Self(11);

    /// Colours for things of the same kind, in the order in which they are used.
    pub(crate) const SERIES: [Self; 8] = [
        Self::VERMILLION,
        Self::BLUE,
        Self::GREEN,
        Self::ORANGE,
        Self::PINK,
        Self::SKY,
        Self::INDIGO,
        Self::GREY,
    ];

    /// Colours of lines in one panel.
    pub(crate) const LINES: [Self; 10] = [
        Self::VERMILLION,
        Self::BLUE,
        Self::GREEN,
        Self::ORANGE,
        Self::PINK,
        Self::SKY,
        Self::INDIGO,
        Self::WINE,
        Self::OLIVE,
        Self::GREY,
    ];
}

/// The palette on light and dark backgrounds, by [`Ink`].
const PALETTE: [(&str, &str); 12] = [
    ("#0072b2", "#4da6e0"),
    ("#e69f00", "#f0b83a"),
    ("#009e73", "#2cbf95"),
    ("#d55e00", "#f0803c"),
    ("#56b4e9", "#9ad2f4"),
    ("#cc79a7", "#e09cc2"),
    ("#e3d53a", "#f0e75e"),
    ("#882255", "#c4608f"),
    ("#332288", "#8f84e0"),
    ("#8a8420", "#b5ae45"),
    ("#7c828b", "#8d949e"),
    ("#c6cad1", "#4d535d"),
];

/// Whether text on a colour has the background's colour, on light and dark backgrounds; otherwise it has the
/// text colour.
const WORDS_AS_GROUND: [(bool, bool); 12] = [
    (true, true),
    (false, true),
    (true, true),
    (true, true),
    (false, true),
    (false, true),
    (false, true),
    (true, true),
    (true, true),
    (true, true),
    (true, true),
    (false, false),
];

/// Neutral colours: background, text, quieter text, grid lines.
const NEUTRALS: [(&str, &str, &str); 4] = [
    ("bg", "#ffffff", "#15181d"),
    ("fg", "#1c1f24", "#e6e8eb"),
    ("mu", "#5a616b", "#a2a9b3"),
    ("gr", "#e3e6ea", "#30353d"),
];

/// The background of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// Light, or dark for a viewer that prefers it.
    #[default]
    Auto,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// The style sheet of a single picture: plain colours, because some programs that show pictures do not
    /// support variables.
    pub(crate) fn sheet(self) -> String {
        let dark = self == Self::Dark;
        let literal = |dark: bool| {
            move |_: &str, light: &str, other: &str| {
                if dark { other.to_owned() } else { light.to_owned() }
            }
        };
        let mut css = format!("{SHAPES}{}", colours(literal(dark)));
        if self == Self::Auto {
            _ = write!(css, "@media (prefers-color-scheme:dark){{{}}}", colours(literal(true)));
        }
        css
    }
}

/// The style sheet for pictures in a page, which switches the background by variables.
pub(crate) fn page_sheet() -> String {
    let variables = |dark: bool| {
        let neutral = NEUTRALS
            .iter()
            .map(|(name, light, other)| ((*name).to_owned(), if dark { *other } else { *light }));
        let palette = PALETTE.iter().enumerate();
        let palette =
            palette.map(|(at, (light, other))| (format!("c{at}"), if dark { *other } else { *light }));
        let words = WORDS_AS_GROUND.iter().enumerate();
        let words = words.map(|(at, (light, other))| {
            (format!("o{at}"), words_on(if dark { *other } else { *light }, dark))
        });
        neutral
            .chain(palette)
            .chain(words)
            .map(|(name, value)| format!("--{name}:{value};"))
            .collect::<String>()
    };
    let (light, dark) = (variables(false), variables(true));
    format!(
        ":root{{color-scheme:light dark;{light}}}\
         @media (prefers-color-scheme:dark){{:root{{{dark}}}}}\
         :root[data-theme=light]{{color-scheme:light;{light}}}\
         :root[data-theme=dark]{{color-scheme:dark;{dark}}}\
         @media print{{:root{{{light}}}}}\n\
         {SHAPES}{}",
        colours(|name, _, _| format!("var(--{name})"))
    )
}

/// The colour of text on a colour.
fn words_on(as_ground: bool, dark: bool) -> &'static str {
    let (_, on_light, on_dark) = NEUTRALS[usize::from(!as_ground)];
    if dark { on_dark } else { on_light }
}

/// The rules that set colours. `value` gives the text for a name and its colours on light and dark
/// backgrounds.
fn colours(value: impl Fn(&str, &str, &str) -> String) -> String {
    let [bg, fg, mu, gr] = NEUTRALS.map(|(name, light, dark)| value(name, light, dark));
    let mut css = format!(
        ".ground{{fill:{bg}}}.chart text{{fill:{fg}}}.chart text.mu{{fill:{mu}}}.chart text.on{{fill:{bg}}}\
         .grid{{stroke:{gr}}}.axis{{stroke:{mu}}}.edge{{stroke:{bg}}}"
    );
    for (at, (light, dark)) in PALETTE.iter().enumerate() {
        let colour = value(&format!("c{at}"), light, dark);
        let (on_light, on_dark) = WORDS_AS_GROUND[at];
        let on = value(&format!("o{at}"), words_on(on_light, false), words_on(on_dark, true));
        _ = write!(css, ".i{at}{{fill:{colour}}}.k{at}{{stroke:{colour}}}.chart text.o{at}{{fill:{on}}}");
    }
    css
}

/// The rules that set no colours. Lines keep their width when part of the picture is zoomed.
const SHAPES: &str = ".chart text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,\
'DejaVu Sans',sans-serif;font-size:12px}.chart text.ti{font-size:13px;font-weight:600}\
.chart text.he{font-size:15px;font-weight:600}.grid,.axis{stroke-width:1;fill:none}\
.edge{stroke-width:.8;vector-effect:non-scaling-stroke}.thin{stroke-width:.4}\
.line,.bars,.dots{fill:none;vector-effect:non-scaling-stroke}.line{stroke-width:1.7;stroke-linejoin:round}\
.dash{stroke-dasharray:5 3}.bars{stroke-width:1.4}.bold{stroke-width:2.6}.dots{stroke-width:4.4;stroke-linecap:round}\
.tip{fill:none;pointer-events:all}.tip:hover{fill:#888;fill-opacity:.16}";
