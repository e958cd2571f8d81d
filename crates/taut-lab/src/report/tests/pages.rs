//! The structure of pages, and pictures of unusual runs.

use std::collections::BTreeSet;

use roxmltree::{Document, Node, ParsingOptions};

use super::*;

/// Runs without values, with one point, or with values that are not numbers.
fn odd_runs() -> Vec<RunData> {
    let single = |mut run: RunData| {
        run.series[0].points.truncate(1);
        run.packets.truncate(1);
        run.shares.points.truncate(1);
        run.shares.lines.iter_mut().for_each(|line| line.goodput_bps.truncate(1));
        run.histograms.iter_mut().for_each(|histogram| histogram.buckets.truncate(1));
        run.flows[0].blocked.truncate(1);
        run
    };
    let mut zeros = single(run("zeros"));
    zeros.series[0].points = vec![Interval::default(); 3];
    zeros.shares = Shares { points: vec![SharePoint::default(); 3], lines: Vec::new() };
    zeros.packets = vec![packet(0.0, 0, 0, PointKind::Data), packet(0.0, 0, 0, PointKind::Ack)];
    zeros.flows[0].blocked = vec![Share { name: "cwnd".into(), seconds: 0.0 }];
    for histogram in &mut zeros.histograms {
        histogram.buckets = vec![Bucket { from: 0.0, to: 1.0, count: 4 }];
        (histogram.min, histogram.max, histogram.p50, histogram.p99) = (0.0, 0.0, 0.0, 0.0);
    }
    let mut nothing = zeros.clone();
    nothing.meta.variant = "nothing counted".into();
    nothing.histograms.iter_mut().for_each(|histogram| histogram.buckets = vec![Bucket::default()]);
    let mut wild = run("wild");
    wild.series[0].points[3].t_s = f64::NAN;
    wild.series[0].points[4].delivery_bps = f64::INFINITY;
    wild.series[0].points[5].pacing_bps = Some(f64::NAN);
    wild.series[0].points[6].cwnd_bytes = u64::MAX;
    wild.packets[3].t_s = f64::NAN;
    wild.packets[6].seq = u64::MAX;
    wild.shares.points[3].t_s = f64::NAN;
    wild.shares.points[4].fairness = Some(f64::INFINITY);
    wild.shares.lines[0].goodput_bps[5] = Some(f64::NAN);
    wild.traced.windows[0].to_s = f64::NAN;
    wild.flows[0].goodput_bps = f64::NAN;
    wild.flows[0].blocked[0].seconds = f64::NAN;
    wild.histograms[0].max = f64::INFINITY;
    wild.histograms[2].p50 = f64::NAN;
    wild.meta.duration_s = f64::NAN;
    vec![RunData::default(), single(run("single")), zeros, nothing, wild]
}

#[test]
fn nothing_or_little_is_drawn_without_what_is_no_number() {
    let mut sets: Vec<RunSet> =
        odd_runs().into_iter().map(|run| RunSet { runs: vec![run], ..RunSet::default() }).collect();
    sets.push(RunSet { runs: odd_runs(), ..RunSet::default() });
    sets.push(RunSet::default());
    for set in &sets {
        let mut texts: Vec<String> = figures(set).iter().map(|figure| figure.svg(set, Theme::Auto)).collect();
        texts.push(page(set));
        for text in &texts {
            assert!(!text.contains("NaN"), "{text}");
            let document = parse(text);
            for attribute in document.descendants().flat_map(|node| node.attributes()) {
                let name = attribute.name();
                if ["d", "x", "y", "width", "height", "viewBox", "transform", "data-low", "data-high"]
                    .contains(&name)
                {
                    assert!(!attribute.value().contains("inf"), "{name}: {}", attribute.value());
                }
            }
        }
    }
}

fn parse(text: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).expect("well-formed")
}

#[test]
fn names_are_text() {
    let odd = "a<b>&amp;\"c'\u{7}";
    let shown = odd.replace('\u{7}', "\u{fffd}");
    let mut set = set(&[odd, "after"]);
    (set.scenario, set.title, set.about) = (odd.into(), odd.into(), odd.into());
    set.table.rows[0].label = odd.into();
    set.table.rows[0].published.insert(odd.into(), odd.into());
    set.runs[0].meta.command = odd.into();
    set.runs[0].meta.parameters.insert(odd.into(), odd.into());
    set.runs[0].flows[0].name = odd.into();
    set.runs[0].flows[0].blocked[0].name = odd.into();
    for figure in figures(&set) {
        let svg = figure.svg(&set, Theme::Auto);
        let document = parse(&svg);
        assert!(document.descendants().any(|node| text_of(node).contains(&shown)), "{}", figure.name());
    }
    let page = page(&set);
    let document = parse(&page);
    for tag in ["h1", "code", "th", "td", "p", "dd", "label"] {
        let mut all =
            document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", tag)));
        assert!(all.any(|node| text_of(node).contains(&shown)), "{tag}");
    }
}

#[test]
fn a_page_is_whole_and_needs_nothing_else() {
    let set = set(&["before", "after"]);
    let page = page(&set);
    let document = parse(&page);
    for node in document.descendants() {
        for attribute in node.attributes() {
            assert!(!["src", "href", "data", "action"].contains(&attribute.name()), "{attribute:?}");
        }
    }
    for outside in ["url(", "@import", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/").count());
    let ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    for name in names() {
        assert!(ids.contains(&name), "{name}");
    }
    for said in ["taut lab run test", "taut 0.1.0", "Linux 3.6", "published", "taut sim, 2 runs", "link.rate"]
    {
        assert!(page.contains(said), "{said}");
    }
}

#[test]
fn the_table_has_published_beside_measured() {
    let page = page(&set(&["before", "after"]));
    let document = parse(&page);
    let row = document.descendants().find(|node| {
        node.has_tag_name(("http://www.w3.org/1999/xhtml", "tr"))
            && text_of(*node).contains("time in the device")
    });
    let cells: Vec<_> = row.unwrap().children().filter(Node::is_element).map(text_of).collect();
    assert_eq!(cells, ["time in the device ms", "50", "< 1", "48.2 ± 4.8", "48.2 ± 4.8"]);
}

/// The first run of a variant is drawn, and beside it that of another engine.
#[test]
fn engines_are_told_apart() {
    let mut set = set(&["before", "before", "before"]);
    set.runs[1].meta.seed = 2;
    set.runs[2].meta.engine = Engine::Linux;
    let [case] = super::figures::cases(&set).try_into().unwrap();
    let labels: Vec<_> = case.shown.into_iter().map(|shown| shown.label).collect();
    assert_eq!(labels, ["before, taut sim", "before, Linux live"]);
}

/// Cases have their own pictures and rows; a variant has the same colour in all of them.
#[test]
fn cases_stand_below_each_other() {
    let mut both = set(&["before", "after"]);
    let other = set(&["after", "third"]);
    for run in &mut both.runs {
        run.meta.case = "slow".into();
    }
    both.runs.extend(other.runs.into_iter().map(|mut run| {
        run.meta.case = "fast".into();
        run
    }));
    both.table.rows[0].case = "slow".into();
    both.table.rows[1].case = "fast".into();
    let cases = super::figures::cases(&both);
    let indices: Vec<Vec<usize>> =
        cases.iter().map(|case| case.shown.iter().map(|shown| shown.index).collect()).collect();
    assert_eq!(indices, [[0, 1], [1, 2]]);
    let figures = figures(&both);
    assert_eq!(figures.len(), 2 * names().len());
    assert_eq!((figures[0].case(), figures[names().len()].case()), ("slow", "fast"));
    assert!(figures[0].svg(&both, Theme::Light).contains("test, slow, seed 0"));
    let page = page(&both);
    let document = parse(&page);
    for id in ["queues", "queues-2"] {
        assert!(document.descendants().any(|node| node.attribute("id") == Some(id)), "{id}");
    }
    let rows: Vec<_> = document
        .descendants()
        .filter(|node| {
            node.has_tag_name(("http://www.w3.org/1999/xhtml", "tr")) && classes(*node) == ["case"]
        })
        .map(text_of)
        .collect();
    assert_eq!(rows, ["slow", "fast"]);
}

/// A request flow waits for its application now and then; the bulk flow beside it does not.
#[test]
fn few_flows_have_rows_of_their_own_and_many_share_that_of_their_group() {
    let mut set = set(&["only"]);
    let flow = |name: &str, gate: &str| Flow {
        name: name.into(),
        blocked: vec![Share { name: gate.into(), seconds: 1.0 }],
        ..Flow::default()
    };
    set.runs[0].flows = vec![flow("bulk 0.0", "cwnd"), flow("bulk 0.1", "pacing"), flow("rr 1", "no-data")];
    let titles = |set: &RunSet| -> Vec<String> {
        let svg = named(set, "blocked").svg(set, Theme::Light);
        let document = Document::parse(&svg).unwrap();
        marks(&document, "edge").into_iter().map(title_of).collect()
    };
    assert_eq!(named(&set, "blocked").panels[0].rows, ["only: bulk 0.0", "only: bulk 0.1", "only: rr 1"]);
    assert_eq!(
        titles(&set),
        [
            "only: bulk 0.0: congestion window 100 %",
            "only: bulk 0.1: pacing 100 %",
            "only: rr 1: application 100 %"
        ]
    );
    // Thirteen flows: ten more of the first group.
    let gate = |at: u32| if at < 5 { "cwnd" } else { "pacing" };
    set.runs[0].flows.extend((0..10).map(|at| flow(&format!("bulk 0.{}", at + 2), gate(at))));
    assert_eq!(named(&set, "blocked").panels[0].rows, ["only: bulk 0", "only: rr 1"]);
    assert_eq!(
        titles(&set),
        [
            "only: bulk 0: pacing 50 %",
            "only: bulk 0: congestion window 50 %",
            "only: rr 1: application 100 %"
        ]
    );
}

/// A minute at one sample per millisecond, with its ACKs and packets, twice.
#[test]
fn a_long_run_stays_small() {
    let mut set = set(&["before", "after"]);
    for run in &mut set.runs {
        run.series[0].points = (1..=60_000).map(|at| sample(at * 7 + at / 3, 0.001 / 7.34)).collect();
        let ack = |at: u32| AckRow {
            t_s: f64::from(at) * 0.001,
            cwnd_bytes: 30_000 + u64::from(at * 37 % 1_000),
            in_flight_bytes: 20_000 + u64::from(at * 53 % 1_000),
            pacing_bps: Some(1e6 + f64::from(at * 71 % 1_000)),
            delivery_bps: 1e6 + f64::from(at * 91 % 1_000),
            ..AckRow::default()
        };
        run.acks = (0..60_000).map(ack).collect();
        // As many values as a run keeps, of a hundred flows, and a picture around as many losses.
        run.flows =
            (0..100).map(|id| Flow { id, goodput_bps: f64::from(id), ..run.flows[0].clone() }).collect();
        run.shares.points = (1..=1_000)
            .map(|at| SharePoint { t_s: f64::from(at) * 0.06, ..run.shares.points[0].clone() })
            .collect();
        let rates =
            |flow: u32| (0..1_000_u32).map(|at| Some(f64::from(at * (flow + 37) % 1_000) * 1e4)).collect();
        run.shares.lines = (0..100).map(|flow| ShareLine { flow, goodput_bps: rates(flow) }).collect();
        run.traced.windows = (0..64)
            .map(|at| LossWindow {
                from_s: f64::from(at),
                to_s: f64::from(at) + 0.4,
                ..run.traced.windows[0]
            })
            .collect();
        run.packets.clear();
        for at in 0..100_000_u32 {
            let (t_s, seq) = (f64::from(at) * 0.0006, u64::from(at) * 1_448);
            run.packets.push(packet(t_s, seq, 1_448, PointKind::Data));
            run.packets.push(packet(t_s + 0.02, seq, 0, PointKind::Ack));
            run.packets.push(packet(t_s + 0.02, seq + 65_535, 0, PointKind::Window));
            if at % 3 == 0 {
                run.packets.push(packet(t_s + 0.03, seq, 1_448, PointKind::Retransmit));
            }
        }
    }
    let page = page(&set);
    assert!(page.len() < 2_500_000, "{}", page.len());
    assert!(page.contains("Long series are thinned"));
}
