//! `taut plot`: draws a run of `taut lab`, as SVG, PNG or one HTML page.
//!
//! `taut_lab::report` decides what is drawn; files, names and errors are handled here. PNG needs the feature
//! `png`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::shared::output;
use taut_lab::data::RunSet;
use taut_lab::report::{self, Figure, Theme, figures, page};
use taut_lab::scenario::slug;

/// Draws the pictures of a run.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    taut lab run tsq\n  taut plot lab-results/tsq\n  taut plot lab-results/tsq --figure queues -o queues.svg\n\n\
    Figures: queues (where bytes wait), sequence (time and sequence numbers), window (window and rate), rtt and \
    latency (shares below a time), bursts (burst sizes, and gaps between packets), blocked (what held the sender \
    back). A run has the figures that it has values for; if the scenario has cases, each case has its own.")]
pub(crate) struct PlotArgs {
    /// Directory of a run of the lab
    #[arg(value_name = "RUN_DIR")]
    run: PathBuf,
    /// File to write: .svg or .png for one figure, or .html for all [default: RUN_DIR/figures/NAME.svg for
    /// each; with cases, RUN_DIR/figures/CASE/NAME.svg]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw this figure only; may be repeated
    #[arg(long, value_name = "NAME")]
    figure: Vec<String>,
    /// Draw this case only; may be repeated
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Draw this variant only; may be repeated
    #[arg(long, value_name = "NAME")]
    variant: Vec<String>,
    /// Background of SVG and PNG; auto is dark in viewers that prefer dark, and light in PNG
    #[arg(long, value_enum, default_value_t = Ground::Auto)]
    theme: Ground,
    /// Print the names of the written files as JSON
    #[arg(long)]
    json: bool,
}

/// [`Theme`], as a command-line argument.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ground {
    Auto,
    Light,
    Dark,
}

impl From<Ground> for Theme {
    fn from(ground: Ground) -> Self {
        match ground {
            Ground::Auto => Self::Auto,
            Ground::Light => Self::Light,
            Ground::Dark => Self::Dark,
        }
    }
}

/// File formats, by file name extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
    Html,
}

/// A file that was written.
#[derive(Debug, Serialize)]
struct Written {
    /// The figure in it; `None` for a page with all figures.
    figure: Option<&'static str>,
    /// The case that it shows; `None` for a page, and without cases.
    case: Option<String>,
    path: PathBuf,
    bytes: usize,
}

#[derive(Debug, Serialize)]
struct Plotted<'a> {
    run: &'a Path,
    files: Vec<Written>,
}

/// Runs `taut plot`.
///
/// # Errors
/// When the directory is not a run's, the run does not have a requested name, or a file cannot be written.
pub(crate) fn run(args: &PlotArgs) -> anyhow::Result<()> {
    // Mistakes in the arguments alone are reported before a large file is read.
    let output = match &args.output {
        Some(path) => Some((path, format(path)?)),
        None => None,
    };
    let set = chosen_variants(chosen_cases(report::read(&args.run)?, &args.case)?, &args.variant)?;
    let files = match output {
        Some((path, Format::Html)) => {
            if !args.figure.is_empty() {
                anyhow::bail!("an HTML page shows all figures: leave out --figure, or write .svg or .png");
            }
            vec![write(path, page(&set).as_bytes(), None)?]
        }
        Some((path, format)) => {
            let figures = chosen_figures(&set, &args.figure)?;
            let cases = cases(&figures);
            if cases.len() > 1 {
                anyhow::bail!("one file shows one case; choose it with --case: {}", listed(&cases));
            }
            let [figure] = figures.as_slice() else {
                anyhow::bail!("one file shows one figure; choose it with --figure: {}", names(&figures));
            };
            vec![write(path, &drawn(figure, &set, format, args.theme.into())?, Some(figure))?]
        }
        None => {
            let write_one = |figure: &Figure| {
                let path = place(&args.run, figure)?;
                write(&path, &drawn(figure, &set, Format::Svg, args.theme.into())?, Some(figure))
            };
            chosen_figures(&set, &args.figure)?.iter().map(write_one).collect::<anyhow::Result<_>>()?
        }
    };
    if args.json {
        return output::print_json(&Plotted { run: &args.run, files });
    }
    let line = |file: &Written| format!("wrote {}\n", file.path.display());
    output::print(&files.iter().map(line).collect::<String>())
}

/// The file for a figure beside its run, in a directory that this creates.
fn place(run: &Path, figure: &Figure) -> anyhow::Result<PathBuf> {
    // Figures of different cases have the same names, so each case has a directory, named like those of
    // its runs.
    let directory = run.join("figures").join(slug(figure.case()));
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory.join(figure.name()).with_extension("svg"))
}

/// The format that a file's extension asks for.
fn format(path: &Path) -> anyhow::Result<Format> {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("svg") => Ok(Format::Svg),
        Some("html" | "htm") => Ok(Format::Html),
        Some("png") if cfg!(feature = "png") => Ok(Format::Png),
        Some("png") => anyhow::bail!(
            "this taut was built without PNG support: write .svg, or rebuild with `cargo build -p taut-cli --features png`"
        ),
        _ => anyhow::bail!("{}: the name does not end in .svg, .png or .html", path.display()),
    }
}

/// The run set with only the cases in `wanted`; with all when `wanted` is empty.
fn chosen_cases(mut set: RunSet, wanted: &[String]) -> anyhow::Result<RunSet> {
    for name in wanted {
        if !set.runs.iter().any(|run| run.meta.case == *name) {
            let known = set.runs.iter().map(|run| run.meta.case.as_str());
            let known = once(known.filter(|case| !case.is_empty()));
            if known.is_empty() {
                anyhow::bail!("the run has no case {name}; it has no cases");
            }
            anyhow::bail!("the run has no case {name}; it has: {}", listed(&known));
        }
    }
    if !wanted.is_empty() {
        set.runs.retain(|run| wanted.contains(&run.meta.case));
        set.table.rows.retain(|row| wanted.contains(&row.case));
    }
    Ok(set)
}

/// The run set with only the variants in `wanted`; with all when `wanted` is empty.
fn chosen_variants(mut set: RunSet, wanted: &[String]) -> anyhow::Result<RunSet> {
    for name in wanted {
        if !set.runs.iter().any(|run| run.meta.variant == *name) {
            let known = once(set.runs.iter().map(|run| run.meta.variant.as_str()));
            anyhow::bail!("the run has no variant {name}; it has: {}", known.join(", "));
        }
    }
    if !wanted.is_empty() {
        set.runs.retain(|run| wanted.contains(&run.meta.variant));
        let stays: Vec<bool> =
            set.table.columns.iter().map(|column| wanted.contains(&column.variant)).collect();
        let mut column = stays.iter();
        set.table.columns.retain(|_| column.next().copied().unwrap_or(true));
        for row in &mut set.table.rows {
            let mut column = stays.iter();
            row.cells.retain(|_| column.next().copied().unwrap_or(true));
        }
    }
    Ok(set)
}

/// The figures in `wanted`; all when `wanted` is empty.
fn chosen_figures(set: &RunSet, wanted: &[String]) -> anyhow::Result<Vec<Figure>> {
    let figures = figures(set);
    if figures.is_empty() {
        anyhow::bail!("the run has no values to draw");
    }
    for name in wanted {
        if !figures.iter().any(|figure| figure.name() == name) {
            anyhow::bail!("the run has no figure {name}; it has: {}", names(&figures));
        }
    }
    let is_wanted = |figure: &Figure| wanted.is_empty() || wanted.iter().any(|name| name == figure.name());
    Ok(figures.into_iter().filter(is_wanted).collect())
}

/// The names of figures, without duplicates.
fn names(figures: &[Figure]) -> String {
    once(figures.iter().map(Figure::name)).join(", ")
}

/// The cases of figures, without duplicates.
fn cases(figures: &[Figure]) -> Vec<&str> {
    once(figures.iter().map(Figure::case))
}

/// The names without duplicates, in order of first occurrence.
fn once<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known = Vec::new();
    for name in names {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

/// The names in quotes: names of cases contain blanks and commas.
fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn drawn(figure: &Figure, set: &RunSet, format: Format, theme: Theme) -> anyhow::Result<Vec<u8>> {
    if format == Format::Png {
        // A renderer has no light or dark preference.
        let theme = if theme == Theme::Auto { Theme::Light } else { theme };
        return png(&figure.svg(set, theme));
    }
    Ok(figure.svg(set, theme).into_bytes())
}

/// Renders a picture as PNG, at two pixels for each of SVG's.
#[cfg(feature = "png")]
fn png(svg: &str) -> anyhow::Result<Vec<u8>> {
    use resvg::{tiny_skia, usvg};

    const SCALE: f32 = 2.0;
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    let family = ["Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"].into_iter().find(|family| {
        fonts
            .query(&usvg::fontdb::Query {
                families: &[usvg::fontdb::Family::Name(family)],
                ..Default::default()
            })
            .is_some()
    });
    let first = fonts.faces().next().and_then(|face| Some(face.families.first()?.0.clone()));
    let Some(family) = family.map(str::to_owned).or(first) else {
        anyhow::bail!("a PNG needs a font for its text, and this machine has none: write .svg instead");
    };
    fonts.set_sans_serif_family(family);
    let tree = usvg::Tree::from_str(svg, &options).context("the picture cannot be rendered")?;
    let size = tree.size().to_int_size().scale_by(SCALE).context("the picture has no size")?;
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("the picture is too large")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().context("the picture cannot be written as PNG")
}

#[cfg(not(feature = "png"))]
fn png(_svg: &str) -> anyhow::Result<Vec<u8>> {
    anyhow::bail!("this taut was built without PNG support")
}

fn write(path: &Path, content: &[u8], figure: Option<&Figure>) -> anyhow::Result<Written> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    let case = figure.map(Figure::case).filter(|case| !case.is_empty()).map(str::to_owned);
    Ok(Written { figure: figure.map(Figure::name), case, path: path.to_owned(), bytes: content.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use taut_testbed::Scratch;

    /// The file that marks a scenario's directory.
    const VALUES: &str = "summary.json";

    /// A directory with the example run in it.
    fn with_run(name: &str) -> Scratch {
        let scratch = Scratch::new(&format!("plot-{name}"));
        let example = include_str!("../../../taut-lab/tests/example.json");
        fs::write(scratch.0.join(VALUES), example).unwrap();
        scratch
    }

    fn args(scratch: &Scratch) -> PlotArgs {
        PlotArgs {
            run: scratch.0.clone(),
            output: None,
            figure: Vec::new(),
            case: Vec::new(),
            variant: Vec::new(),
            theme: Ground::Auto,
            json: false,
        }
    }

    fn output(scratch: &Scratch, name: &str) -> PlotArgs {
        PlotArgs { output: Some(scratch.0.join(name)), ..args(scratch) }
    }

    fn error(args: &PlotArgs) -> String {
        format!("{:#}", run(args).unwrap_err())
    }

    #[test]
    fn all_figures_are_written_beside_the_run() {
        let scratch = with_run("all");
        run(&args(&scratch)).unwrap();
        let mut names: Vec<_> = fs::read_dir(scratch.0.join("figures"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        // The example has no requests, and one flow: no latency, no fairness, and no flows side by side.
        assert_eq!(
            names,
            [
                "blocked.svg",
                "bursts.svg",
                "goodput.svg",
                "losses.svg",
                "queues.svg",
                "rtt.svg",
                "sequence.svg",
                "window.svg"
            ]
        );
        let text = fs::read_to_string(scratch.0.join("figures/queues.svg")).unwrap();
        assert!(text.starts_with("<svg") && text.contains("before") && text.contains("after"));
    }

    #[test]
    fn each_case_has_its_own_figures() {
        let scratch = with_run("cases");
        let example: RunSet =
            serde_json::from_str(include_str!("../../../taut-lab/tests/example.json")).unwrap();
        let mut set = RunSet { runs: Vec::new(), ..example.clone() };
        for case in ["1 Gbit/s, TSO", "100 Mbit/s"] {
            set.runs.extend(example.runs.iter().cloned().map(|mut run| {
                run.meta.case = case.to_owned();
                run
            }));
        }
        fs::write(scratch.0.join(VALUES), serde_json::to_string(&set).unwrap()).unwrap();
        run(&args(&scratch)).unwrap();
        for (directory, case, other) in
            [("1-gbit-s-tso", "1 Gbit/s, TSO", "100 Mbit/s"), ("100-mbit-s", "100 Mbit/s", "1 Gbit/s, TSO")]
        {
            let directory = scratch.0.join("figures").join(directory);
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 8);
            let text = fs::read_to_string(directory.join("queues.svg")).unwrap();
            assert!(text.contains(case) && !text.contains(other), "{case}");
        }
        // There is nothing beside the directories of the cases.
        assert_eq!(fs::read_dir(scratch.0.join("figures")).unwrap().count(), 2);

        let one = PlotArgs { figure: vec!["queues".into()], ..output(&scratch, "x.svg") };
        assert_eq!(
            error(&one),
            "one file shows one case; choose it with --case: \"1 Gbit/s, TSO\", \"100 Mbit/s\""
        );
        run(&PlotArgs { case: vec!["100 Mbit/s".into()], ..one }).unwrap();
        let text = fs::read_to_string(scratch.0.join("x.svg")).unwrap();
        assert!(text.contains("100 Mbit/s") && !text.contains("1 Gbit/s, TSO"));
        let unknown = PlotArgs { case: vec!["x".into()], ..args(&scratch) };
        assert_eq!(error(&unknown), "the run has no case x; it has: \"1 Gbit/s, TSO\", \"100 Mbit/s\"");
        let unknown = PlotArgs { variant: vec!["x".into()], ..args(&scratch) };
        assert_eq!(error(&unknown), "the run has no variant x; it has: before, after");
    }

    #[test]
    fn one_figure_of_one_variant_goes_to_a_file() {
        let scratch = with_run("one");
        let figure = vec!["queues".to_owned()];
        run(&PlotArgs { figure, variant: vec!["after".into()], ..output(&scratch, "x.svg") }).unwrap();
        let text = fs::read_to_string(scratch.0.join("x.svg")).unwrap();
        assert!(text.contains(">after<") && !text.contains(">before<"));
    }

    #[test]
    fn a_page_has_the_table_of_the_variants_that_are_drawn() {
        let scratch = with_run("page");
        run(&PlotArgs { variant: vec!["after".into()], ..output(&scratch, "x.html") }).unwrap();
        let text = fs::read_to_string(scratch.0.join("x.html")).unwrap();
        assert!(text.starts_with("<!DOCTYPE html>"));
        assert!(
            text.contains("<td class=\"first\">&lt; 1</td>") && !text.contains(">50</td>"),
            "the published figure"
        );
        assert!(text.contains(">0.900<") && !text.contains("48.3"), "the measured figure");
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let scratch = with_run("errors");
        let none = Scratch::new("plot-none");
        assert!(error(&args(&none)).contains("is not a run's directory: it has neither summary.json"));
        let missing = PlotArgs { run: none.0.join("missing"), ..args(&none) };
        assert!(error(&missing).contains("is not a run's directory"));
        let file = PlotArgs { run: scratch.0.join(VALUES), ..args(&scratch) };
        assert!(error(&file).contains("is not a run's directory"));
        assert!(error(&output(&scratch, "x.svg")).contains("--figure: goodput, queues, sequence"));
        assert!(error(&output(&scratch, "x.gif")).contains(".svg, .png or .html"));
        let nothing = PlotArgs { figure: vec!["latency".into()], ..args(&scratch) };
        assert!(error(&nothing).contains("no figure latency; it has: goodput, queues, "));
        let case = PlotArgs { case: vec!["x".into()], ..args(&scratch) };
        assert_eq!(error(&case), "the run has no case x; it has no cases");
        let variant = PlotArgs { variant: vec!["x".into()], ..args(&scratch) };
        assert_eq!(error(&variant), "the run has no variant x; it has: before, after");
        let page = PlotArgs { figure: vec!["queues".into()], ..output(&scratch, "x.html") };
        assert!(error(&page).contains("shows all figures"));
        fs::write(none.0.join(VALUES), r#"{"schema":999}"#).unwrap();
        assert!(error(&args(&none)).contains("has format version 999"));
        fs::write(none.0.join(VALUES), "{").unwrap();
        assert!(error(&args(&none)).contains("is damaged"));
    }

    #[cfg(not(feature = "png"))]
    #[test]
    fn without_png_it_says_how_to_have_it() {
        let scratch = with_run("nopng");
        let args = PlotArgs { figure: vec!["queues".into()], ..output(&scratch, "x.png") };
        assert!(error(&args).contains("--features png"));
    }

    #[cfg(feature = "png")]
    #[test]
    fn png_is_twice_as_large() {
        let scratch = with_run("png");
        run(&PlotArgs { figure: vec!["queues".into()], ..output(&scratch, "x.png") }).unwrap();
        let bytes = fs::read(scratch.0.join("x.png")).unwrap();
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
        // The width is in the first chunk.
        assert_eq!(bytes[16..20], 1_600_u32.to_be_bytes());
    }
}
