//! The structure of pictures: the number of marks and their positions, not the exact bytes.

use std::collections::BTreeMap;

mod flows;
mod pages;

use roxmltree::{Document, Node};

use super::{Figure, NAMES, Theme, figures, page};
use crate::data::*;

const THOUSAND_BYTES: u64 = 1_000;

/// Sample `at` of a series with interval `step`: every queue holds bytes, and all values are known.
fn sample(at: u32, step: f64) -> Interval {
    let wave = u64::from(at % 7) * THOUSAND_BYTES;
    Interval {
        t_s: f64::from(at) * step,
        unsent_bytes: 4_000 + wave,
        below_tcp_bytes: Some(3_000),
        qdisc_bytes: 2_000,
        ring_bytes: 1_000,
        device_bytes: 3_000 + wave,
        bottleneck_bytes: Some(2_000),
        in_flight_bytes: 20_000 + 2 * wave,
        cwnd_bytes: 30_000 + wave,
        ssthresh_bytes: Some(25_000),
        peer_window_bytes: 28_000,
        pacing_bps: Some(2e6),
        delivery_bps: 1e6 + f64::from(at % 5) * 1e4,
        goodput_bps: 1e6,
        srtt_s: Some(0.02),
        blocked_s: vec![0.0; GATES.len()],
    }
}

fn packet(t_s: f64, seq: u64, len: u32, kind: PointKind) -> PacketPoint {
    PacketPoint { t_s, flow: 0, seq, len, kind }
}

fn histogram(name: &str, unit: &str, counts: &[u64]) -> Histogram {
    let bucket = |(at, count): (usize, &u64)| Bucket {
        from: libm::exp2(at as f64),
        to: libm::exp2((at + 1) as f64),
        count: *count,
    };
    Histogram {
        name: name.into(),
        unit: unit.into(),
        buckets: counts.iter().enumerate().map(bucket).collect(),
        count: counts.iter().sum(),
        mean: 3.0,
        stddev: 1.0,
        min: 1.0,
        max: libm::exp2(counts.len() as f64),
        p50: 3.0,
        p99: 7.0,
    }
}

/// Two flows, of which the second gets twice as much as the first: Jain's index is 9 / (2 · 5).
fn shares() -> Shares {
    let point = |at: u32| SharePoint {
        t_s: f64::from(at) * 0.1,
        flows: 2,
        goodput_bps: 3e6,
        fairness: Some(0.9),
        ..SharePoint::default()
    };
    let line = |flow: u32| ShareLine { flow, goodput_bps: vec![Some(f64::from(flow + 1) * 1e6); 20] };
    Shares { points: (1..=20).map(point).collect(), lines: vec![line(0), line(1)] }
}

/// A run of 20 samples, 12 segments of which one is lost, and a distribution of each kind.
fn run(variant: &str) -> RunData {
    let mut packets = Vec::new();
    for at in 0..12_u32 {
        let (t_s, seq) = (0.1 + f64::from(at) * 0.15, u64::from(at) * 1_448);
        packets.push(packet(t_s, seq, 1_448, PointKind::Data));
        packets.push(packet(t_s + 0.02, seq, 0, PointKind::Ack));
        packets.push(packet(t_s + 0.02, seq + 18_000, 0, PointKind::Window));
    }
    packets.push(packet(0.6, 4_344, 1_448, PointKind::Drop));
    packets.push(packet(0.8, 5_792, 1_448, PointKind::Sack));
    packets.push(packet(0.95, 5_792, 2_896, PointKind::Sack));
    packets.push(packet(1.0, 4_344, 1_448, PointKind::Retransmit));
    RunData {
        meta: Meta {
            schema: SCHEMA,
            scenario: "test".into(),
            variant: variant.into(),
            command: "taut lab run test".into(),
            versions: BTreeMap::from([("taut".into(), "0.1.0".into())]),
            parameters: BTreeMap::from([("link.rate".into(), "1mbit".into())]),
            duration_s: 2.0,
            interval_s: 0.1,
            ..Meta::default()
        },
        flows: vec![
            Flow {
                name: "bulk".into(),
                from: "client".into(),
                srtt_s: Some(0.02),
                goodput_bps: 1e6,
                blocked: vec![
                    Share { name: "cwnd".into(), seconds: 1.5 },
                    Share { name: "small-queue".into(), seconds: 0.5 },
                ],
                ..Flow::default()
            },
            // Only its shares are known.
            Flow { id: 1, name: "other".into(), from: "client".into(), goodput_bps: 2e6, ..Flow::default() },
        ],
        series: vec![Series { flow: 0, points: (1..=20).map(|at| sample(at, 0.1)).collect() }],
        shares: shares(),
        traced: Traced {
            losses: 2,
            windows: vec![LossWindow { flow: 0, t_s: 0.6, from_s: 0.5, to_s: 1.2, losses: 2 }],
            ..Traced::default()
        },
        packets,
        histograms: vec![
            histogram("rtt", "us", &[1, 5, 4]),
            histogram("latency", "us", &[2, 0, 0, 2]),
            histogram("burst", "segments", &[3, 0, 7]),
            histogram("gap", "us", &[1, 2, 3, 4]),
        ],
        ..RunData::default()
    }
}

fn set(variants: &[&str]) -> RunSet {
    let cell = |mean: f64| Some(Cell { mean, ci95: Some(mean / 10.0), values: vec![mean - 1.0, mean + 1.0] });
    RunSet {
        schema: SCHEMA,
        scenario: "test".into(),
        title: "A test".into(),
        about: "One paragraph.\n\nAnother.".into(),
        source: Some("Linux 3.6".into()),
        table: Table {
            columns: variants
                .iter()
                .map(|variant| Column { variant: (*variant).into(), engine: Engine::Sim, runs: 2 })
                .collect(),
            rows: vec![
                Row {
                    case: String::new(),
                    metric: "device_time".into(),
                    label: "time in the device".into(),
                    unit: "ms".into(),
                    published: BTreeMap::from([
                        ("before".into(), "50".into()),
                        ("after".into(), "< 1".into()),
                    ]),
                    cells: variants.iter().map(|_| cell(48.25)).collect(),
                },
                Row {
                    label: "nowhere".into(),
                    cells: variants.iter().map(|_| None).collect(),
                    ..Row::default()
                },
            ],
        },
        runs: variants.iter().map(|variant| run(variant)).collect(),
    }
}

/// The pictures of [`run`]: only one of its flows has a series.
fn names() -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| *name != "flows").collect()
}

fn named(set: &RunSet, name: &str) -> Figure {
    figures(set).into_iter().find(|figure| figure.name() == name).expect(name)
}

fn classes<'a>(node: Node<'a, '_>) -> Vec<&'a str> {
    node.attribute("class").unwrap_or_default().split(' ').collect()
}

/// Elements of a class within the plots of a document.
fn marks<'a>(document: &'a Document<'a>, class: &str) -> Vec<Node<'a, 'a>> {
    let is_plot = |node: &Node<'_, '_>| classes(*node).contains(&"plot");
    let is_mark = |node: &Node<'_, '_>| {
        classes(*node).contains(&class) && node.ancestors().any(|above| is_plot(&above))
    };
    document.descendants().filter(is_mark).collect()
}

fn text_of(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

fn title_of(node: Node<'_, '_>) -> String {
    node.children().find(|child| child.has_tag_name("title")).map(text_of).unwrap_or_default()
}

/// The points of a path whose commands are `M`, `L`, `H`, `V`, `h` and `Z`.
fn points(path: Node<'_, '_>) -> Vec<(f64, f64)> {
    let d = path.attribute("d").expect("a path has `d`");
    let mut points = Vec::new();
    let (mut x, mut y) = (0.0, 0.0);
    let mut rest = d;
    while let Some(command) = rest.chars().next() {
        let end = rest[1..].find(|letter: char| letter.is_ascii_alphabetic()).map_or(rest.len(), |at| at + 1);
        let numbers: Vec<f64> =
            rest[1..end].split_whitespace().map(|text| text.parse().expect("a number")).collect();
        match (command, numbers.as_slice()) {
            ('M' | 'L', [to_x, to_y]) => (x, y) = (*to_x, *to_y),
            ('H', [to_x]) => x = *to_x,
            ('V', [to_y]) => y = *to_y,
            ('h', [by]) => x += by,
            ('Z', []) => {}
            other => panic!("{other:?} in {d}"),
        }
        if command != 'Z' {
            points.push((x, y));
        }
        rest = &rest[end..];
    }
    points
}

/// Number of strokes in a path.
fn strokes(path: Node<'_, '_>) -> usize {
    path.attribute("d").unwrap_or_default().matches('M').count()
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).expect(name).parse().expect("a number")
}

#[test]
fn a_full_run_has_every_picture() {
    let figures = figures(&set(&["before", "after"]));
    assert_eq!(figures.iter().map(Figure::name).collect::<Vec<_>>(), names());
    for figure in &figures {
        assert!(figure.caption().len() > 100 && figure.caption().ends_with('.'), "{}", figure.name());
        assert!(!figure.caption().contains("  "), "{}", figure.caption());
    }
}

#[test]
fn queues_are_stacked_and_none_is_lost() {
    let set = set(&["before", "after"]);
    let svg = named(&set, "queues").svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let areas = marks(&document, "edge");
    assert_eq!(areas.len(), 8, "four queues of two variants");
    for areas in areas.chunks(4) {
        let tops: Vec<_> = areas.iter().map(|area| points(*area)).collect();
        for points in &tops {
            assert_eq!(points.len(), 20 + 2, "each sample, and the ends of the axis");
        }
        // The first area is the whole stack: nothing is above it, and nothing is below zero.
        for pair in tops.windows(2) {
            for (above, below) in pair[0].iter().zip(&pair[1]) {
                assert!(above.0 == below.0 && above.1 <= below.1, "{above:?} {below:?}");
            }
        }
    }
    // Sample 6: unsent 10,000, device 9,000, bottleneck 2,000, and the rest of 32,000 in flight.
    let tips: Vec<_> = marks(&document, "tip").into_iter().map(title_of).collect();
    let expected = "at 600 ms: 42 kB\n10 kB unsent in the socket\n9 kB in the sender's device queue\n\
                    2 kB at the bottleneck\n21 kB on the way: wires, receiver, ACKs";
    assert!(tips.iter().any(|tip| tip == expected), "{tips:?}");
    assert!(svg.contains("device max 9 kB"));
}

#[test]
fn flows_add_up_and_the_queue_of_their_host_counts_once() {
    let mut run = run("one");
    run.flows = (0..3)
        .map(|id| Flow { id, from: if id == 2 { "other" } else { "client" }.into(), ..Flow::default() })
        .collect();
    run.series = (0..3).map(|flow| Series { flow, points: vec![sample(1, 0.1)] }).collect();
    let stack = super::pictures::queues::Stack::of(&run);
    // On the way, bottleneck, device, unsent: two hosts, three flows, one bottleneck.
    let parts = stack.parts.map(|part| part[0] as u64);
    assert_eq!(parts, [3 * 22_000 - 2 * 4_000 - 2_000, 2_000, 2 * 4_000, 3 * 5_000]);
}

#[test]
fn a_sequence_graph_has_a_mark_for_each_packet() {
    let set = set(&["only"]);
    let svg = named(&set, "sequence").svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let plots = document.descendants().filter(|node| classes(*node).contains(&"plot"));
    let whole = plots.clone().next().unwrap();
    let count = |name: &str| {
        let of = whole.children().filter(|node| title_of(*node) == name).map(strokes);
        of.sum::<usize>()
    };
    assert_eq!(count("sent"), 12);
    assert_eq!(count("retransmitted"), 1);
    assert_eq!(count("SACK: received out of order"), 2);
    assert_eq!(count("dropped on the way"), 1);
    assert_eq!(count("acknowledged"), 1, "one line");
    assert_eq!(plots.count(), 2, "the whole run, and an excerpt");
    assert!(svg.contains("around the first loss"));
}

#[test]
fn window_and_rate_have_a_line_each() {
    let set = set(&["before", "after"]);
    let svg = named(&set, "window").svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let lines = marks(&document, "line");
    assert_eq!(lines.len(), 2 * (4 + 2));
    assert!(lines.iter().all(|line| points(*line).len() == 20));
    // Unknown values interrupt a line, and a single value is visible too.
    let mut run = run("gaps");
    for (at, point) in run.series[0].points.iter_mut().enumerate() {
        point.ssthresh_bytes = (at == 3 || at > 9).then_some(20_000);
    }
    let set = RunSet { runs: vec![run], ..RunSet::default() };
    let svg = named(&set, "window").svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let threshold =
        marks(&document, "line").into_iter().find(|line| title_of(*line) == "slow-start threshold");
    assert_eq!(strokes(threshold.unwrap()), 2);
}

#[test]
fn a_curve_climbs_from_none_to_all() {
    let set = set(&["before", "after"]);
    for (name, corners) in [("rtt", 4), ("latency", 4)] {
        let svg = named(&set, name).svg(&set, Theme::Light);
        let document = Document::parse(&svg).unwrap();
        let lines = marks(&document, "line");
        assert_eq!(lines.len(), 2);
        for line in lines {
            let points = points(line);
            assert_eq!(points.len(), corners);
            assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 >= pair[1].1));
            let plot = line.parent().unwrap();
            assert!((points[0].1 - number(plot, "height")).abs() < 0.11);
            // The axis goes to 102 %.
            assert!((points[corners - 1].1 - number(plot, "height") * (1.0 - 1.0 / 1.02)).abs() < 0.11);
        }
    }
}

#[test]
fn bars_are_the_buckets_that_counted_something() {
    let set = set(&["before", "after", "third"]);
    let svg = named(&set, "bursts").svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    assert_eq!(marks(&document, "edge").len(), 3 * (2 + 4));
    let titles: Vec<_> = marks(&document, "edge").into_iter().map(title_of).collect();
    assert!(titles.contains(&"4 to 8: 70 % (7)".to_owned()), "{titles:?}");
    assert!(titles.contains(&"8 µs to 16 µs: 40 % (4)".to_owned()), "{titles:?}");
}

/// Each bar of half an octave combines the finer buckets in it; the next panel's bars are as wide.
#[test]
fn fine_buckets_are_one_bar() {
    let mut set = set(&["only"]);
    let bucket = |from: f64, count| Bucket { from, to: from * 1.05, count };
    set.runs[0].histograms[3].buckets =
        vec![bucket(16.0, 1), bucket(17.0, 2), bucket(23.0, 4), bucket(40.0, 1)];
    let svg = named(&set, "bursts").svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let bars: Vec<_> =
        marks(&document, "edge").into_iter().filter(|bar| title_of(*bar).contains("µs")).collect();
    let titles: Vec<_> = bars.iter().map(|bar| title_of(*bar)).collect();
    assert_eq!(
        titles,
        ["16 µs to 22.6 µs: 37.5 % (3)", "22.6 µs to 32 µs: 50 % (4)", "32 µs to 45.3 µs: 12.5 % (1)"]
    );
    let widths: Vec<_> = bars.iter().map(|bar| number(*bar, "width")).collect();
    assert!(widths.iter().all(|width| (width - widths[0]).abs() < 0.21), "{widths:?}");
}

#[test]
fn shares_fill_their_row() {
    let set = set(&["before", "after"]);
    let svg = named(&set, "blocked").svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let spans = marks(&document, "edge");
    assert_eq!(spans.len(), 4);
    for row in spans.chunks(2) {
        let all = number(row[0].parent().unwrap(), "width");
        let widths: Vec<_> = row.iter().map(|span| number(*span, "width")).collect();
        assert!((widths[0] - all * 0.75).abs() < 0.11 && (widths[1] - all * 0.25).abs() < 0.11);
        assert_eq!(title_of(row[1]).split_once(": ").unwrap().1, "small queue 25 %");
    }
}

/// Every mark lies within its plot, except for lines that are cut off on purpose.
#[test]
fn axes_cover_what_is_drawn() {
    let set = set(&["before", "after"]);
    for figure in figures(&set).iter().filter(|figure| !["sequence", "losses"].contains(&figure.name())) {
        let svg = figure.svg(&set, Theme::Light);
        let document = Document::parse(&svg).unwrap();
        let mut seen = 0;
        for node in document
            .descendants()
            .filter(|node| node.parent().is_some_and(|plot| classes(plot).contains(&"plot")))
        {
            let plot = node.parent().unwrap();
            let (width, height) = (number(plot, "width") + 0.11, number(plot, "height") + 0.11);
            let corners = match node.tag_name().name() {
                "path" => points(node),
                "rect" => {
                    let (x, y) = (number(node, "x"), number(node, "y"));
                    vec![(x, y), (x + number(node, "width"), y + number(node, "height"))]
                }
                _ => continue,
            };
            for (x, y) in corners {
                assert!(
                    (-0.11..=width).contains(&x) && (-0.11..=height).contains(&y),
                    "{}: {x} {y}",
                    figure.name()
                );
                seen += 1;
            }
        }
        assert!(seen > 4, "{}", figure.name());
    }
}

#[test]
fn a_picture_by_itself_has_plain_colours() {
    let set = set(&["before"]);
    for figure in figures(&set) {
        let [auto, light, dark] =
            [Theme::Auto, Theme::Light, Theme::Dark].map(|theme| figure.svg(&set, theme));
        for svg in [&auto, &light, &dark] {
            assert!(!svg.contains("var("), "{}", figure.name());
        }
        assert!(
            auto.contains("prefers-color-scheme:dark")
                && !light.contains("prefers")
                && !dark.contains("prefers")
        );
        let body = |svg: &str| svg.split_once("</style>").unwrap().1.to_owned();
        assert!(body(&auto) == body(&light) && body(&auto) == body(&dark) && light != dark);
    }
}
