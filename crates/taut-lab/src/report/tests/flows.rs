//! Pictures with a line for each flow, and those around losses.

use roxmltree::Document;

use super::*;

fn tips(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    marks(&document, "tip").into_iter().map(title_of).collect()
}

#[test]
fn lab_22_goodput_has_a_line_for_each_flow_and_its_values_on_hover() {
    let mut set = set(&["before", "after"]);
    let svg = named(&set, "goodput").svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let lines: Vec<String> = marks(&document, "line").into_iter().map(title_of).collect();
    assert_eq!(lines, ["bulk", "other", "bulk", "other"]);
    let expected = "at 600 ms\nbulk 1 Mbit/s\nother 2 Mbit/s\ntogether 3 Mbit/s";
    assert!(tips(&svg).iter().any(|tip| tip == expected), "{:?}", tips(&svg));
    // Flows of two groups: what each group gets, too. Those beside are of none.
    for run in &mut set.runs {
        run.flows[1].group = 1;
        run.flows.push(Flow { id: 2, name: "bulk 2".into(), beside: true, ..Flow::default() });
        run.shares.lines.push(ShareLine { flow: 2, goodput_bps: vec![Some(7e6); 20] });
    }
    let svg = named(&set, "goodput").svg(&set, Theme::Light);
    let expected = "at 600 ms\nbulk 1 Mbit/s\nother 2 Mbit/s\nbulk 2 (beside) 7 Mbit/s\nflows.0 together 1 Mbit/s\n\
                    flows.1 together 2 Mbit/s\ntogether 3 Mbit/s";
    assert!(tips(&svg).iter().any(|tip| tip == expected), "{:?}", tips(&svg));
}

/// Two thousand flows: ten get 5 Mbit/s or nothing, the others between 1 and 2 Mbit/s.
#[test]
fn lab_22_of_many_flows_the_ten_that_differ_most_have_lines_and_the_others_a_band() {
    let mut set = set(&["only"]);
    let run = &mut set.runs[0];
    let odd: Vec<u32> = (0..10).map(|at| 3 + at * 177).collect();
    let rate = |id: u32| match odd.iter().position(|other| *other == id) {
        Some(at) if at % 2 == 0 => 5e6,
        Some(_) => 0.0,
        None => 1e6 + f64::from(id % 11) * 1e5,
    };
    let flow = |id: u32| Flow { id, name: format!("bulk 0.{id}"), goodput_bps: rate(id), ..Flow::default() };
    run.flows = (0..2_000).map(flow).collect();
    run.shares.lines =
        (0..2_000).map(|flow| ShareLine { flow, goodput_bps: vec![Some(rate(flow)); 20] }).collect();
    let figure = named(&set, "goodput");
    let svg = figure.svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let lines: Vec<String> = marks(&document, "line").into_iter().map(title_of).collect();
    assert_eq!(lines, odd.iter().map(|id| format!("bulk 0.{id}")).collect::<Vec<_>>());
    let band: Vec<String> = marks(&document, "edge").into_iter().map(title_of).collect();
    assert_eq!(band, ["the other 1,990 flows, least to greatest"]);
    let axis = named(&set, "goodput").panels[0].y.clone();
    let area = points(marks(&document, "edge")[0]);
    let plot = marks(&document, "edge")[0].parent().unwrap();
    let heights: Vec<f64> =
        [2e6, 1e6].map(|bps| (1.0 - axis.place(bps).unwrap()) * number(plot, "height")).into_iter().collect();
    for (_, y) in &area {
        assert!(heights.iter().any(|height| (y - height).abs() < 0.11), "{y}, not of {heights:?}");
    }
    assert!(figure.caption().contains("the 10 flows whose goodput"), "{}", figure.caption());
    let tip = tips(&svg).pop().unwrap();
    assert!(tip.ends_with("\nthe others 1 Mbit/s to 2 Mbit/s"), "{tip}");
    assert_eq!(tip.lines().count(), 1 + 10 + 1 + 1, "{tip}");
}

#[test]
fn lab_22_fairness_has_a_line_for_each_variant_and_a_panel_for_each_group() {
    let mut set = set(&["before", "after"]);
    set.runs[1].shares.points.iter_mut().for_each(|point| point.fairness = Some(0.5));
    let figure = named(&set, "fairness");
    assert_eq!(figure.panels.len(), 1, "one group");
    let svg = figure.svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let lines = marks(&document, "line");
    assert_eq!(lines.len(), 2);
    // The axis goes from 0 to 1.02.
    for (line, index) in lines.into_iter().zip([0.9, 0.5]) {
        let height = number(line.parent().unwrap(), "height");
        assert!((points(line)[0].1 - height * (1.0 - index / 1.02)).abs() < 0.11);
    }
    assert!(tips(&svg).iter().any(|tip| tip == "at 600 ms\nbefore 0.9\nafter 0.5"), "{:?}", tips(&svg));
    // A group of one flow shares with nobody.
    for run in &mut set.runs {
        run.flows.push(Flow { id: 2, group: 1, ..Flow::default() });
        run.shares.points.iter_mut().for_each(|point| point.fairness_of[0] = Some(0.25));
    }
    let titles: Vec<String> =
        named(&set, "fairness").panels.iter().map(|panel| panel.title.clone()).collect();
    assert_eq!(titles, ["all flows", "flows.0"]);
    // With one flow there is nothing to share.
    set.runs.iter_mut().for_each(|run| run.shares.points.iter_mut().for_each(|point| point.flows = 1));
    assert!(figures(&set).iter().all(|figure| figure.name() != "fairness"));
}

#[test]
fn lab_22_windows_and_round_trips_have_a_line_for_each_flow() {
    let mut set = set(&["before", "after"]);
    for run in &mut set.runs {
        // The other flow begins later.
        run.series.push(Series { flow: 1, points: (11..=20).map(|at| sample(at, 0.1)).collect() });
        run.series[1].points.iter_mut().for_each(|point| point.cwnd_bytes = 50_000);
    }
    let figure = named(&set, "flows");
    let svg = figure.svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    // Window, bytes in flight and round-trip time of two variants.
    assert_eq!(figure.panels.len(), 3 * 2);
    let lines = marks(&document, "line");
    assert_eq!(lines.len(), 3 * 2 * 2);
    let counts: Vec<usize> = lines.iter().map(|line| points(*line).len()).collect();
    assert_eq!(counts[..2], [20, 10]);
    // Sample 6: 30,000 + 6 · 1,000; the other flow has none yet. Sample 16: 30,000 + 2 · 1,000.
    for expected in ["at 600 ms\nbulk 36 kB", "at 1.6 s\nbulk 32 kB\nother 50 kB"] {
        assert!(tips(&svg).iter().any(|tip| tip == expected), "{expected}: {:?}", tips(&svg));
    }
}

/// A distribution of each flow, with all values in one bucket.
fn own(name: &str, bucket: usize) -> Histogram {
    let mut counts = vec![0; bucket + 1];
    counts[bucket] = 8;
    histogram(name, "us", &counts)
}

#[test]
fn lab_22_distributions_have_a_line_for_each_flow() {
    let mut set = set(&["before", "after"]);
    let plain: Vec<usize> =
        ["rtt", "latency", "bursts"].iter().map(|name| named(&set, name).panels.len()).collect();
    for run in &mut set.runs {
        // Both flows have round trips and gaps, and only one has requests.
        run.flows[0].distributions = vec![own("rtt", 2), own("flow_gap", 1), own("latency", 3)];
        run.flows[1].distributions = vec![own("rtt", 4), own("flow_gap", 5)];
    }
    let counts: Vec<usize> =
        ["rtt", "latency", "bursts"].iter().map(|name| named(&set, name).panels.len()).collect();
    assert_eq!((plain, counts), (vec![1, 1, 4], vec![1 + 2, 1, 4 + 2]));
    // From 4 to 8 µs, and from 16 to 32: the curves do not overlap. The least value of all is 1 µs.
    for (name, first) in [("rtt", 2), ("bursts", 0)] {
        let figure = named(&set, name);
        let svg = figure.svg(&set, Theme::Light);
        let document = Document::parse(&svg).unwrap();
        let lines = marks(&document, "line");
        assert_eq!(lines.len(), first + 2 * 2, "{name}");
        for (line, who) in lines[first..].iter().zip(["bulk", "other", "bulk", "other"]) {
            assert!(title_of(*line).starts_with(&format!("{who}: median ")), "{name}: {}", title_of(*line));
        }
        let [bulk, other] = [points(lines[first]), points(lines[first + 1])];
        assert!(bulk.last().unwrap().0 < other[1].0, "{name}: {bulk:?} {other:?}");
        // A legend in which two things have the same colour says nothing.
        let inks: Vec<_> = figure.keys.iter().map(|key| key.ink.0).collect();
        assert!(inks.iter().enumerate().all(|(at, ink)| !inks[..at].contains(ink)), "{name}: {inks:?}");
        let names: Vec<&str> = figure.keys.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(&names[names.len() - 2..], ["bulk", "other"]);
    }
}

#[test]
fn lab_22_queues_have_a_line_for_each_flow() {
    let mut set = set(&["before", "after"]);
    for run in &mut set.runs {
        run.series.push(Series { flow: 1, points: (11..=20).map(|at| sample(at, 0.1)).collect() });
        run.series[1].points.iter_mut().for_each(|point| point.unsent_bytes = 100_000);
    }
    let figure = named(&set, "queues");
    assert_eq!(figure.panels.len(), 2 * 2);
    let svg = figure.svg(&set, Theme::Light);
    // Sample 6: 4,000 + 6,000 unsent and 20,000 + 12,000 in flight; the other flow has none yet. Sample 16:
    // 4,000 + 2,000 and 20,000 + 4,000, and 100,000 and 24,000.
    for expected in ["at 600 ms\nbulk 42 kB", "at 1.6 s\nbulk 30 kB\nother 124 kB"] {
        assert!(tips(&svg).iter().any(|tip| tip == expected), "{expected}: {:?}", tips(&svg));
    }
    let inks: Vec<_> = figure.keys.iter().map(|key| key.ink.0).collect();
    assert!(inks.iter().enumerate().all(|(at, ink)| !inks[..at].contains(ink)), "{inks:?}");
}

#[test]
fn lab_23_each_loss_has_a_picture() {
    let mut set = set(&["only"]);
    // A loss of another flow, long after the first packets.
    let run = &mut set.runs[0];
    run.traced.whole_until_s = Some(1.9);
    run.traced.windows.push(LossWindow { flow: 1, t_s: 60.0, from_s: 59.9, to_s: 60.3, losses: 1 });
    run.traced.losses = 3;
    let late = |t_s: f64, seq: u64, kind| PacketPoint { flow: 1, ..packet(t_s, seq, 1_448, kind) };
    run.packets.extend([
        late(59.95, 800_000, PointKind::Data),
        late(60.0, 801_448, PointKind::Data),
        late(60.0, 801_448, PointKind::Drop),
        late(60.1, 801_448, PointKind::Retransmit),
    ]);
    let figure = named(&set, "losses");
    let titles: Vec<(&str, &str)> =
        figure.panels.iter().map(|panel| (panel.title.as_str(), panel.note.as_str())).collect();
    assert_eq!(titles, [("bulk, only", "at 600 ms"), ("other, only", "at 60 s")]);
    let svg = figure.svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let plots: Vec<_> = document.descendants().filter(|node| classes(*node).contains(&"plot")).collect();
    let count = |plot: usize, name: &str| -> usize {
        plots[plot].children().filter(|node| title_of(*node) == name).map(strokes).sum()
    };
    assert_eq!((count(0, "dropped on the way"), count(0, "retransmitted")), (1, 1));
    assert_eq!((count(1, "sent"), count(1, "dropped on the way"), count(1, "retransmitted")), (2, 1, 1));
    assert!(figure.caption().contains("contain 3 of 3 such packets"), "{}", figure.caption());
}

#[test]
fn lab_24_the_report_says_how_many_losses_have_no_picture() {
    let mut set = set(&["before", "after"]);
    for run in &mut set.runs {
        let window = |at: u32| LossWindow {
            t_s: f64::from(at),
            from_s: f64::from(at) - 0.1,
            to_s: f64::from(at) + 0.3,
            losses: 1,
            ..LossWindow::default()
        };
        run.traced.windows = (1..=64).map(window).collect();
        // As many again have no window.
        run.traced.losses = 5_000;
    }
    let figure = named(&set, "losses");
    // 48 in all, 24 of each, from the first to the last.
    let notes: Vec<&str> = figure.panels.iter().map(|panel| panel.note.as_str()).collect();
    assert_eq!(notes.len(), 48);
    assert_eq!((notes[0], notes[23], notes[24]), ("at 1 s", "at 64 s", "at 1 s"));
    assert!(figure.caption().contains("contain 48 of 10,000 such packets"), "{}", figure.caption());
    assert!(figure.caption().contains("spread evenly over the run"), "{}", figure.caption());
}

#[test]
fn lab_22_a_sequence_graph_has_a_line_for_each_other_flow() {
    let mut set = set(&["only"]);
    let ack = |t_s: f64, seq: u64| PacketPoint { flow: 1, ..packet(t_s, seq, 0, PointKind::Ack) };
    // Further than the first flow: the axis has room for it.
    set.runs[0].packets.extend([ack(0.2, 10_000), ack(1.2, 400_000)]);
    let figure = named(&set, "sequence");
    let svg = figure.svg(&set, Theme::Light);
    let document = Document::parse(&svg).unwrap();
    let line = marks(&document, "line").into_iter().find(|line| title_of(*line) == "acknowledged, other");
    let height = number(line.unwrap().parent().unwrap(), "height");
    assert!(points(line.unwrap()).iter().all(|(_, y)| (0.0..=height).contains(y)));
    assert!(figure.keys.iter().any(|key| key.name == "acknowledged, the other flows"));
}

/// Between the first packets and the next loss nothing is known: no line leads over it.
#[test]
fn lab_23_no_line_leads_over_what_was_not_kept() {
    let mut set = set(&["only"]);
    let ack = |t_s: f64, seq: u64| packet(t_s, seq, 0, PointKind::Ack);
    let run = &mut set.runs[0];
    run.traced.whole_until_s = Some(1.0);
    run.traced.windows =
        vec![LossWindow { from_s: 5.0, to_s: 6.0, t_s: 5.2, losses: 1, ..LossWindow::default() }];
    run.packets = vec![ack(0.5, 1_000), ack(0.9, 2_000), ack(5.1, 9_000), ack(5.9, 10_000)];
    let pieces = |set: &RunSet| {
        let svg = named(set, "sequence").svg(set, Theme::Light);
        let document = Document::parse(&svg).unwrap();
        let line = marks(&document, "line").into_iter().find(|line| title_of(*line) == "acknowledged");
        strokes(line.unwrap())
    };
    assert_eq!(pieces(&set), 2);
    set.runs[0].traced.whole_until_s = None;
    assert_eq!(pieces(&set), 1);
}
