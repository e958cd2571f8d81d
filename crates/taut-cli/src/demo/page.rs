//! The page of the demo: its parts as pictures, in one file that needs no network. Pure. Called by `mod.rs`.

use std::fmt::Write as _;

use super::part::{Part, number};

/// A page with these parts.
pub(super) fn page(parts: &[Part]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n\
         <title>taut demo</title><style>{}</style>\n<h1>What taut is for</h1>\n\
         <p>Measured on this machine by <code>taut demo</code>, taut {}.</p>\n",
        include_str!("page.css"),
        env!("CARGO_PKG_VERSION"),
    );
    for part in parts {
        // Neither a closed pipe nor a full disk: a string takes everything.
        let _ = section(&mut html, part);
    }
    html
}

fn section(html: &mut String, part: &Part) -> std::fmt::Result {
    writeln!(html, "<h2>{}</h2><p>{}</p>", text(part.title), text(&part.about))?;
    for bars in &part.bars {
        let direction = if bars.less_is_better { "less is better" } else { "more is better" };
        writeln!(html, "<h3>{} <small>{}, {direction}</small></h3>", text(bars.what), text(bars.unit))?;
        for bar in &bars.values {
            let own = if bar.who.starts_with("taut") { " own" } else { "" };
            let share = (bar.value / bars.most() * 100.0).clamp(0.0, 100.0);
            let (who, value) = (text(&bar.who), number(bar.value));
            writeln!(
                html,
                "<div class=\"row{own}\"><span>{who}</span><b>{value}</b><i style=\"width:{share:.1}%\"></i></div>"
            )?;
        }
    }
    if !part.changes.is_empty() {
        writeln!(html, "<div class=wide><table><tr><th>change<th>published<th>taut")?;
        for change in &part.changes {
            let [before, after] = change.taut.map(number);
            let [then, now] = change.published.each_ref().map(|value| text(value));
            let (mechanism, what) = (text(change.mechanism), text(change.what));
            writeln!(html, "<tr><td>{mechanism}: {what}<td>{then} → {now}<td>{before} → {after}")?;
        }
        writeln!(html, "</table></div>")?;
    }
    part.missing.iter().try_for_each(|line| writeln!(html, "<p>Not measured: {}</p>", text(line)))
}

/// A text as HTML.
fn text(plain: &str) -> String {
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::part::{Bar, Bars, Change};

    #[test]
    fn a_page_has_all_parts_and_needs_no_other_file() {
        let mut part = Part::new("x", "Five & more", "About.");
        let values =
            vec![Bar { who: "kernel".into(), value: 4.0 }, Bar { who: "taut, bbr".into(), value: 1.0 }];
        part.bars.push(Bars { what: "ping", unit: "ms", less_is_better: true, values });
        let published = ["50".to_owned(), "< 1".to_owned()];
        part.changes.push(Change { mechanism: "TSQ", what: "queue, ms", published, taut: [35.45, 1.108] });
        let page = page(&[part]);
        assert!(page.contains("<h2>Five &amp; more</h2>"), "{page}");
        assert!(
            page.contains(
                "<div class=\"row own\"><span>taut, bbr</span><b>1.00</b><i style=\"width:25.0%\">"
            )
        );
        assert!(page.contains("<td>50 → &lt; 1<td>35.5 → 1.11"), "{page}");
        assert!(!page.contains("http"), "{page}");
    }
}
