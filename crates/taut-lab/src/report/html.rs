//! The report of a run set: one page that can be read without network, fonts or scripts.
//!
//! Called by `taut lab` and by `taut plot -o x.html`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::figures::{Case, Figure, MOST_VARIANTS, cases};
use super::picture::Key;
use super::pictures::of_case;
use super::scale::{Quantity, grouped};
use super::svg::escape;
use super::theme::page_sheet;
use crate::data::{Cell, Column, Meta, Row, RunData, RunSet, Table};

const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Width of panels in a page, two in a row.
const HALF: f64 = 510.0;
/// Three in a row.
const THIRD: f64 = 338.0;
/// One in a row.
const WHOLE: f64 = 760.0;

/// The report of a run set as a page of HTML, which is also well-formed XML.
#[must_use]
pub fn page(set: &RunSet) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}: {}</title>\n\
         <style>\n{}\n{CSS}</style>\n</head>\n<body>\n",
        escape(&set.scenario),
        escape(&set.title),
        page_sheet()
    );
    head(&mut out, set);
    table(&mut out, &set.table, set.source.as_deref());
    tools(&mut out, set);
    for (number, case) in cases(set).iter().enumerate() {
        if !case.name.is_empty() {
            _ = writeln!(out, "<h2 class=\"case\">{}</h2>", escape(case.name));
        }
        for figure in of_case(case) {
            draw(&mut out, &figure, number);
        }
    }
    details(&mut out, set);
    // The page is also XML: the script could not contain `<` otherwise.
    _ = write!(out, "<script>//<![CDATA[\n{SCRIPT}//]]></script>\n</body>\n</html>\n");
    out
}

fn head(out: &mut String, set: &RunSet) {
    let title = if set.title.is_empty() { &set.scenario } else { &set.title };
    _ = writeln!(out, "<header>\n<h1>{}</h1>", escape(title));
    for paragraph in set.about.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        _ = writeln!(out, "<p>{}</p>", escape(paragraph));
    }
    let Some(meta) = set.runs.first().map(|run| &run.meta) else {
        out.push_str("<p>There are no runs.</p>\n</header>\n");
        return;
    };
    if !meta.command.is_empty() {
        _ = writeln!(out, "<pre><code>{}</code></pre>", escape(&meta.command));
    }
    out.push_str("<dl>\n");
    let mut entry = |name: &str, text: &str| {
        if !text.is_empty() {
            _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escape(text));
        }
    };
    entry("scenario", &set.scenario);
    let seeds: BTreeSet<u64> = set.runs.iter().map(|run| run.meta.seed).collect();
    let said: Vec<_> = seeds.iter().map(u64::to_string).collect();
    entry(if seeds.len() == 1 { "seed" } else { "seeds" }, &said.join(", "));
    let versions: BTreeMap<&String, &String> = set.runs.iter().flat_map(|run| &run.meta.versions).collect();
    let versions: Vec<_> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    entry("versions", &versions.join(", "));
    // Cases may have different lengths.
    if set.runs.iter().all(|run| length(&run.meta) == length(meta)) {
        entry("length", &length(meta));
    }
    entry("published", set.source.as_deref().unwrap_or_default());
    entry("begun", meta.began.as_deref().unwrap_or_default());
    out.push_str("</dl>\n</header>\n");
}

fn length(meta: &Meta) -> String {
    let say = |seconds: f64| Quantity::Time.say(seconds);
    let mut text = say(meta.duration_s);
    if meta.warm_up_s > 0.0 {
        text += &format!(", of which the first {} are warm-up", say(meta.warm_up_s));
    }
    text
}

/// The table of published values beside measured ones.
fn table(out: &mut String, table: &Table, source: Option<&str>) {
    if table.rows.is_empty() {
        return;
    }
    let mut variants: Vec<&str> = Vec::new();
    for column in &table.columns {
        let has_published =
            |row: &Row| row.published.get(&column.variant).is_some_and(|text| !text.is_empty());
        if !variants.contains(&column.variant.as_str()) && table.rows.iter().any(has_published) {
            variants.push(&column.variant);
        }
    }
    // Adjacent columns of the same engine share a heading.
    let mut groups: Vec<Vec<&Column>> = Vec::new();
    for column in &table.columns {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| last.engine == column.engine) => {
                group.push(column);
            }
            _ => groups.push(vec![column]),
        }
    }
    out.push_str("<h2>Published and measured</h2>\n<div class=\"wide\"><table>\n<thead>\n<tr><th></th>");
    if !variants.is_empty() {
        _ = write!(out, "<th class=\"of first\" colspan=\"{}\">published</th>", variants.len());
    }
    for group in &groups {
        let runs = group.first().map_or(0, |column| column.runs);
        let runs = match runs {
            _ if group.iter().any(|column| column.runs != runs) => String::new(),
            1 => ", 1 run".to_owned(),
            runs => format!(", {runs} runs"),
        };
        let engine = group.first().map_or("", |column| column.engine.label());
        _ = write!(out, "<th class=\"of first\" colspan=\"{}\">{engine}{runs}</th>", group.len());
    }
    out.push_str("</tr>\n<tr><th></th>");
    let first = |index: usize| if index == 0 { " class=\"first\"" } else { "" };
    for (index, variant) in variants.iter().enumerate() {
        _ = write!(out, "<th{}>{}</th>", first(index), escape(variant));
    }
    for group in &groups {
        for (index, column) in group.iter().enumerate() {
            _ = write!(out, "<th{}>{}</th>", first(index), escape(&column.variant));
        }
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    let none = "<span class=\"none\">–</span>";
    let columns = 1 + variants.len() + table.columns.len();
    let mut case = "";
    for row in &table.rows {
        if row.case != case {
            case = &row.case;
            _ = writeln!(out, "<tr class=\"case\"><th colspan=\"{columns}\">{}</th></tr>", escape(case));
        }
        let unit = if row.unit.is_empty() {
            String::new()
        } else {
            format!(" <small>{}</small>", escape(&row.unit.replace("us", "µs")))
        };
        _ = write!(out, "<tr><td>{}{unit}</td>", escape(&row.label));
        for (index, variant) in variants.iter().enumerate() {
            let text = row.published.get(*variant).filter(|text| !text.is_empty());
            let text = text.map_or_else(|| none.to_owned(), |text| escape(text));
            _ = write!(out, "<td{}>{text}</td>", first(index));
        }
        let mut cells = row.cells.iter();
        for group in &groups {
            for index in 0..group.len() {
                let text = cells.next().and_then(Option::as_ref).map_or_else(|| none.to_owned(), measured);
                _ = write!(out, "<td{}>{text}</td>", first(index));
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
    let mut notes = Vec::new();
    if let Some(source) = source {
        notes.push(format!("Published: {}.", escape(source)));
    }
    if table.rows.iter().flat_map(|row| &row.cells).flatten().any(|cell| cell.ci95.is_some()) {
        notes.push("Measured: mean over seeds, ± half the 95 % confidence interval.".to_owned());
    }
    if !notes.is_empty() {
        _ = writeln!(out, "<p class=\"mu\">{}</p>", notes.join(" "));
    }
}

/// A measured value with its interval; the single values are in a tooltip.
fn measured(cell: &Cell) -> String {
    let interval = cell.ci95.filter(|ci| ci.is_finite() && *ci > 0.0);
    let decimals = decimals(interval.map_or(cell.mean, |ci| ci * 10.0).abs().max(cell.mean.abs() / 1_000.0));
    let say = |value: f64| if value.is_finite() { grouped(value, decimals) } else { "–".to_owned() };
    let interval = interval.map_or_else(String::new, |ci| format!(" <small>± {}</small>", say(ci)));
    let values: Vec<_> = cell.values.iter().map(|value| say(*value)).collect();
    let title = if values.len() > 1 { format!(" title=\"{}\"", values.join(", ")) } else { String::new() };
    format!("<span{title}>{}</span>{interval}", say(cell.mean))
}

/// Number of decimals that show three digits of a value.
fn decimals(value: f64) -> usize {
    if value.is_finite() && value > 0.0 {
        (2.0 - libm::log10(value).floor()).clamp(0.0, 6.0) as usize
    } else {
        0
    }
}

/// Controls that hide variants and switch between light and dark; the script that handles them makes them
/// visible.
fn tools(out: &mut String, set: &RunSet) {
    out.push_str("<div id=\"tools\" hidden=\"hidden\"><span>show</span>");
    let labels: BTreeMap<usize, String> =
        cases(set).into_iter().flat_map(|case| case.shown).map(|shown| (shown.index, shown.label)).collect();
    for (index, label) in labels {
        _ = write!(
            out,
            "<label><input type=\"checkbox\" checked=\"checked\" value=\"{}\"/> {}</label>",
            index,
            escape(&label)
        );
    }
    out.push_str(
        "<span class=\"mu\">drag over a time to zoom, double-click to reset</span>\
         <button id=\"ground\" type=\"button\">light or dark</button></div>\n",
    );
}

fn draw(out: &mut String, figure: &Figure, case: usize) {
    let id = if case == 0 { figure.name.to_owned() } else { format!("{}-{}", figure.name, case + 1) };
    _ = writeln!(out, "<figure id=\"{id}\">\n<h3>{}</h3>", figure.title);
    if !figure.keys.is_empty() {
        let keys: String = figure.keys.iter().map(Key::html).collect();
        _ = writeln!(out, "<ul class=\"keys\">{keys}</ul>");
    }
    let (class, width) = match figure.columns {
        1 => (" one", WHOLE),
        3 => (" three", THIRD),
        _ => ("", HALF),
    };
    _ = writeln!(out, "<div class=\"panels{class}\">");
    for panel in &figure.panels {
        out.push_str(&panel.svg(width));
        out.push('\n');
    }
    _ = writeln!(out, "</div>\n<figcaption>{}</figcaption>\n</figure>", escape(&figure.caption));
}

/// Parameters, digests and counters.
fn details(out: &mut String, set: &RunSet) {
    let cases = cases(set);
    if cases.is_empty() {
        return;
    }
    out.push_str("<h2>In detail</h2>\n");
    let variants = set.table.columns.len();
    if variants > MOST_VARIANTS {
        _ = writeln!(out, "<p>The pictures show only the first {MOST_VARIANTS} of {variants} variants.</p>");
    }
    for case in &cases {
        if !case.name.is_empty() {
            _ = writeln!(out, "<h3>{}</h3>", escape(case.name));
        }
        section(out, case, "Parameters", |run| run.meta.parameters.clone());
        section(out, case, "Counters of the first sender", |run| {
            run.counters.iter().map(|(name, value)| (name.clone(), said(*value))).collect()
        });
        section(out, case, "Counts of the hosts", |run| {
            let counts = run.hosts.iter().flat_map(|host| {
                host.counts.iter().map(move |(name, count)| (format!("{} {name}", host.name), said(*count)))
            });
            counts.collect()
        });
        section(out, case, "The runs", |run| {
            let meta = &run.meta;
            let values = [
                ("digest", meta.digest.clone()),
                ("seed", Some(meta.seed.to_string())),
                ("events", meta.events.map(said)),
                ("interval of the series", Some(Quantity::Time.say(meta.interval_s))),
            ];
            let values = values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            let left_out = run.left_out.iter();
            values.chain(left_out.map(|(list, count)| (format!("left out: {list}"), said(*count)))).collect()
        });
    }
}

/// A count, its digits in groups.
fn said(count: u64) -> String {
    Quantity::Count.say(count as f64)
}

/// Values of all runs of a case side by side, in a collapsed section.
fn section(
    out: &mut String,
    case: &Case<'_>,
    title: &str,
    of: impl Fn(&RunData) -> BTreeMap<String, String>,
) {
    let all: Vec<_> = case.shown.iter().map(|shown| of(shown.run)).collect();
    let names: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    if names.is_empty() {
        return;
    }
    _ = write!(out, "<details><summary>{title}</summary><div class=\"wide\"><table><thead><tr><th></th>");
    for shown in &case.shown {
        _ = write!(out, "<th>{}</th>", escape(&shown.label));
    }
    out.push_str("</tr></thead><tbody>\n");
    for name in names {
        _ = write!(out, "<tr><td><code>{}</code></td>", escape(name));
        for values in &all {
            _ = write!(out, "<td>{}</td>", values.get(name).map_or("–".to_owned(), |value| escape(value)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></details>\n");
}
