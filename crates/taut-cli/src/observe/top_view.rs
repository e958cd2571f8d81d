//! The picture of `taut top`, and what keys do to it. It knows no terminal: a test draws into a buffer.
//!
//! ```text
//!  taut serve (pid 71) on taut0 · 12 connections · goodput 93 Mbit/s · unsent 4.2 MB, below 84 kB, …
//!  the worst first: by wait (s changes) · filter: (/)
//!  Connection                      Bytes            Wait    Held by              cwnd   RTT     Goodput    Retr
//!  10.9.0.2:80 → 10.9.0.1:43974    ████▓▓▒▒         86 ms   receiver's window    3711   1.5 ms  30 Mbit/s  0
//! ```
//!
//! Bars have one scale. Their parts are, from the left, unsent, below TCP, in flight, and received but
//! unread; each has a colour and a pattern of its own. Called by `top.rs`.

use std::cmp::Reverse;

use clap::ValueEnum;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as Cells, Table};

use crate::dash::sampler::{Queues, Row, Sample};
use crate::shared::text;

/// Which connections are the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// Those whose oldest bytes have waited longest
    #[default]
    Wait,
    /// Those with most bytes on their way
    Bytes,
    /// Those that retransmitted most since the last sample
    Retrans,
    /// Those whose round trip is longest, compared with its minimum
    Rtt,
    /// Those that deliver most
    Goodput,
}

impl Order {
    const ALL: [Self; 5] = [Self::Wait, Self::Bytes, Self::Retrans, Self::Rtt, Self::Goodput];

    const fn words(self) -> &'static str {
        match self {
            Self::Wait => "longest wait",
            Self::Bytes => "most bytes on their way",
            Self::Retrans => "most retransmissions",
            Self::Rtt => "RTT furthest above its minimum",
            Self::Goodput => "most goodput",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|&order| order == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// What the order is by, in whole numbers.
    fn rank(self, row: &Row) -> u64 {
        match self {
            Self::Wait => row.wait_ns,
            Self::Bytes => row.queues.waiting(),
            Self::Retrans => row.retrans.unwrap_or_default(),
            Self::Rtt => match (row.rtt_ns, row.min_rtt_ns) {
                (Some(rtt), Some(least)) => rtt.saturating_sub(least),
                _ => 0,
            },
            Self::Goodput => row.goodput.unwrap_or_default() as u64,
        }
    }
}

/// The rows that contain a text, the worst first. Equals keep the sample's order.
#[must_use]
pub(crate) fn shown<'a>(rows: &'a [Row], order: Order, filter: &str) -> Vec<&'a Row> {
    let filter = filter.to_lowercase();
    let mut shown: Vec<_> = rows.iter().filter(|row| filter.is_empty() || contains(row, &filter)).collect();
    shown.sort_by_key(|row| Reverse(order.rank(row)));
    shown
}

fn contains(row: &Row, filter: &str) -> bool {
    let held = row.held.as_ref().map_or("", |held| &held.words);
    let ends = format!("{} {}", row.local, row.peer);
    [&*ends, &row.state, held, &row.congestion].iter().any(|text| text.to_lowercase().contains(filter))
}

/// A line about all stacks.
#[must_use]
pub(crate) fn title(sample: &Sample) -> String {
    let stacks: Vec<_> = sample
        .stacks
        .iter()
        .map(|stack| match &*stack.device {
            // A gateway's, whose device is in the guest's namespace.
            "" => format!("{} (pid {})", stack.program, stack.pid),
            device => format!("{} (pid {}) on {device}", stack.program, stack.pid),
        })
        .collect();
    let stacks = match sample.number {
        _ if !stacks.is_empty() => stacks.join(", "),
        0 => "looking for stacks".to_owned(),
        _ => "no stack is running".to_owned(),
    };
    let Queues { unsent, device, in_flight, unread } = sample.all.queues;
    format!(
        "{stacks} · {} connections · goodput {} · unsent {}, below TCP {}, in flight {}, unread {} · {} retransmitted",
        sample.all.connections,
        rate(sample.all.goodput),
        size(unsent),
        size(device),
        size(in_flight),
        size(unread),
        sample.all.retrans.map_or_else(|| "-".to_owned(), text::grouped),
    )
}

/// `1.2 MB`; `-` for nothing.
#[must_use]
pub(crate) fn size(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { text::bytes(bytes) }
}

/// `8.2 ms`.
#[must_use]
pub(crate) fn time(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns @ 0..1_000_000) => format!("{} µs", text::significant(ns as f64 / 1e3)),
        Some(ns @ 1_000_000..1_000_000_000) => format!("{} ms", text::significant(ns as f64 / 1e6)),
        Some(ns) => format!("{} s", text::significant(ns as f64 / 1e9)),
    }
}

/// `12 Mbit/s`, from bytes per second.
#[must_use]
pub(crate) fn rate(bytes_per_second: Option<f64>) -> String {
    let second = std::time::Duration::from_secs(1);
    bytes_per_second.map_or_else(|| "-".to_owned(), |rate| text::rate(rate.round() as u64, second))
}

/// `receiver's window 97 %`.
#[must_use]
pub(crate) fn held(row: &Row) -> String {
    let words = |held: &crate::dash::sampler::Held| format!("{} {:.0} %", held.words, held.share * 100.0);
    row.held.as_ref().map_or_else(|| "-".to_owned(), words)
}

/// The parts of a bar: colours of the lab's pictures (Okabe and Ito), and patterns.
const PARTS: [(&str, &str, Color); 4] = [
    ("unsent", "█", Color::Rgb(213, 94, 0)),
    ("below TCP", "▓", Color::Rgb(230, 159, 0)),
    ("in flight", "▒", Color::Rgb(0, 114, 178)),
    ("unread", "░", Color::Rgb(0, 158, 115)),
];

fn parts(queues: &Queues) -> [u64; 4] {
    [queues.unsent, queues.device, queues.in_flight, queues.unread]
}

/// A bar of `width` characters for `full` bytes. What is not nothing has a character at least, as long as
/// there is room.
fn bar(queues: &Queues, full: u64, width: u16) -> Line<'static> {
    let mut room = usize::from(width);
    let mut spans = Vec::new();
    for (bytes, (_, pattern, colour)) in parts(queues).into_iter().zip(PARTS) {
        let exact = bytes as f64 * f64::from(width) / full.max(1) as f64;
        let cells = (exact.round() as usize).max(usize::from(bytes > 0)).min(room);
        room -= cells;
        spans.push(Span::styled(pattern.repeat(cells), Style::new().fg(colour)));
    }
    Line::from(spans)
}

/// The selection shown.
#[derive(Debug, Default)]
pub(crate) struct View {
    sample: Sample,
    order: Order,
    filter: String,
    /// The filter is being written.
    is_writing: bool,
    is_stopped: bool,
    /// The first row.
    from: usize,
    /// How many rows fit.
    page: usize,
}

/// The longest filter.
const FILTER_MAX_CHARS: usize = 100;

impl View {
    /// An empty one.
    #[must_use]
    pub(crate) fn new(order: Order, filter: &str) -> Self {
        Self { order, filter: filter.to_owned(), ..Self::default() }
    }

    /// Shows this sample from now on, unless it is stopped.
    pub(crate) fn take(&mut self, sample: Sample) {
        if !self.is_stopped {
            self.sample = sample;
        }
    }

    /// A key; returns whether to end.
    pub(crate) fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if self.is_writing && !is_control_c {
            match key.code {
                KeyCode::Enter => self.is_writing = false,
                KeyCode::Esc => (self.is_writing, self.filter) = (false, String::new()),
                KeyCode::Backspace => _ = self.filter.pop(),
                KeyCode::Char(c) if self.filter.chars().count() < FILTER_MAX_CHARS => self.filter.push(c),
                _ => {}
            }
            self.from = 0;
            return false;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if is_control_c => return true,
            KeyCode::Char('s') => (self.order, self.from) = (self.order.next(), 0),
            KeyCode::Char('/') => self.is_writing = true,
            KeyCode::Char(' ') => self.is_stopped = !self.is_stopped,
            KeyCode::Down => self.from += 1,
            KeyCode::Up => self.from = self.from.saturating_sub(1),
            KeyCode::PageDown => self.from += self.page,
            KeyCode::PageUp => self.from = self.from.saturating_sub(self.page),
            KeyCode::Home => self.from = 0,
            _ => {}
        }
        false
    }

    /// Draws everything.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, key, table, bottom] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let rows = shown(&self.sample.rows, self.order, &self.filter);
        let quiet = Style::new().add_modifier(Modifier::DIM);
        let bold = Style::new().add_modifier(Modifier::BOLD);

        frame.render_widget(
            Paragraph::new(title(&self.sample)).style(bold).wrap(ratatui::widgets::Wrap { trim: true }),
            top,
        );
        let mut legend: Vec<_> = PARTS
            .iter()
            .flat_map(|&(name, pattern, colour)| {
                [Span::styled(pattern.repeat(2), Style::new().fg(colour)), Span::raw(format!(" {name}  "))]
            })
            .collect();
        legend.push(Span::styled(format!("first: {}", self.order.words()), quiet));
        frame.render_widget(Line::from(legend), key);

        self.page = usize::from(table.height.saturating_sub(1)).max(1);
        self.from = self.from.min(rows.len().saturating_sub(self.page));
        let wide = table.width >= 110;
        let bar_width = if wide { 24 } else { 10 };
        let full = rows.iter().map(|row| parts(&row.queues).iter().sum()).max().unwrap_or_default();
        let of = |row: &&Row| {
            let mut cells = vec![
                Cell::from(format!("{} → {}", row.local, row.peer)),
                Cell::from(bar(&row.queues, full, bar_width)),
                Cell::from(time(Some(row.wait_ns).filter(|&wait| wait > 0))),
                Cell::from(held(row)),
                Cell::from(rate(row.goodput)),
            ];
            if wide {
                let retrans = row.retrans.map_or_else(|| "-".to_owned(), |retrans| retrans.to_string());
                cells.extend([row.cwnd.to_string(), time(row.rtt_ns), retrans].map(Cell::from));
            }
            Cells::new(cells)
        };
        let mut head = vec!["Connection", "Bytes", "Wait", "Held by", "Goodput"];
        let mut widths = vec![
            Constraint::Fill(3),
            Constraint::Length(bar_width),
            Constraint::Length(8),
            Constraint::Fill(2),
            Constraint::Length(11),
        ];
        if wide {
            head.extend(["cwnd", "RTT", "Retr"]);
            widths.extend([6, 8, 5].map(Constraint::Length));
        }
        let page = rows.iter().skip(self.from).take(self.page).map(of);
        frame.render_widget(Table::new(page, widths).header(Cells::new(head).style(bold)), table);

        let place = match rows.len() {
            0 => "no connection".to_owned(),
            all => format!("{}–{} of {all}", self.from + 1, (self.from + self.page).min(all)),
        };
        let filter = match (self.is_writing, self.filter.is_empty()) {
            (true, _) => format!(" · filter: {}_", self.filter),
            (false, true) => String::new(),
            (false, false) => format!(" · filter: {}", self.filter),
        };
        let stopped = if self.is_stopped { " · STOPPED" } else { "" };
        let left_out =
            self.sample.left_out.first().map_or_else(String::new, |why| format!(" · left out: {why}"));
        let line =
            format!("{place}{filter}{stopped}{left_out} · q quit  s order  / filter  space stop  ↑↓ scroll");
        frame.render_widget(Line::styled(line, quiet), bottom);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::dash::sampler::{Held, StackRow, Totals};

    fn row(port: u16, queues: Queues, wait_ns: u64) -> Row {
        Row {
            stack: 0,
            local: "10.9.0.2:80".parse().unwrap(),
            peer: format!("10.9.0.1:{port}").parse().unwrap(),
            state: "ESTAB".to_owned(),
            queues,
            below: 0,
            wait_ns,
            held: Some(Held {
                reason: "cwnd".to_owned(),
                words: "congestion window".to_owned(),
                share: 0.97,
            }),
            congestion: "cubic".to_owned(),
            ca_state: "open".to_owned(),
            cwnd: 33,
            ssthresh: None,
            mss: 1448,
            snd_wnd: 0,
            rtt_ns: Some(20_100_000),
            min_rtt_ns: Some(20_000_000),
            pacing_rate: None,
            delivery_rate: 0,
            goodput: Some(1e6 * f64::from(port)),
            received: Some(0.0),
            retrans: Some(u64::from(port) % 4),
            total_retrans: 9,
        }
    }

    fn sample() -> Sample {
        let rows = vec![
            row(
                1,
                Queues { unsent: 6_000_000, device: 1_500_000, in_flight: 3_000_000, unread: 1_500_000 },
                86_000_000,
            ),
            row(2, Queues { unsent: 0, device: 0, in_flight: 6_000_000, unread: 0 }, 7_000_000),
            row(3, Queues { unsent: 0, device: 0, in_flight: 1, unread: 0 }, 30_000),
            row(4, Queues::default(), 0),
        ];
        let stack = StackRow {
            pid: 71,
            program: "taut".to_owned(),
            device: "taut0".to_owned(),
            ..StackRow::default()
        };
        let all = Totals { connections: 4, goodput: Some(1e7), ..Totals::default() };
        Sample { rows, all, stacks: vec![stack], ..Sample::default() }
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    fn ports(view: &mut View) -> Vec<u16> {
        let port = |line: String| line.split("10.9.0.1:").nth(1)?.split(' ').next()?.parse().ok();
        drawn(view, 140, 12).into_iter().filter_map(port).collect()
    }

    fn press(view: &mut View, keys: &[KeyCode]) -> bool {
        keys.iter().any(|&key| view.press(KeyEvent::new(key, KeyModifiers::NONE)))
    }

    #[test]
    fn dash_15_bars_have_one_scale_and_a_pattern_for_each_queue() {
        let mut view = View::new(Order::Wait, "");
        view.take(sample());
        let lines = drawn(&mut view, 140, 12);
        // 12 MB are 24 characters.
        for (port, bar) in [
            (1, format!("{}{}{}{}", "█".repeat(12), "▓".repeat(3), "▒".repeat(6), "░".repeat(3))),
            (2, "▒".repeat(12)),
            // One byte is seen.
            (3, "▒".to_owned()),
            (4, String::new()),
        ] {
            let line = lines.iter().find(|line| line.contains(&format!("10.9.0.1:{port} "))).unwrap();
            let blocks: String = line.chars().filter(|c| "█▓▒░".contains(*c)).collect();
            assert_eq!(blocks, bar, "{line}");
        }
        assert!(
            lines[0].starts_with("taut (pid 71) on taut0 · 4 connections · goodput 80.0 Mbit/s"),
            "{}",
            lines[0]
        );
        let mut without = sample();
        without.stacks[0].device.clear();
        assert!(title(&without).starts_with("taut (pid 71) · 4 connections"), "{}", title(&without));
        for text in ["86.0 ms", "congestion window 97 %", "8.00 Mbit/s", "33", "20.1 ms"] {
            assert!(lines[4].contains(text), "{text}: {}", lines[4]);
        }
        // A small terminal has what matters most, and an empty one does no harm.
        assert!(drawn(&mut view, 70, 8).iter().any(|line| line.contains("86.0 ms")));
        for (width, height) in [(1, 1), (10, 3), (200, 60)] {
            drawn(&mut view, width, height);
            drawn(&mut View::new(Order::Rtt, ""), width, height);
        }
    }

    #[test]
    fn dash_15_keys_change_order_filter_and_place() {
        let mut view = View::new(Order::Wait, "");
        view.take(sample());
        assert_eq!(ports(&mut view), [1, 2, 3, 4]);
        let mut orders = Vec::new();
        for _ in Order::ALL {
            press(&mut view, &[KeyCode::Char('s')]);
            orders.push(ports(&mut view));
        }
        // Bytes, retransmissions (1, 2, 3, 0), RTT (all equal), goodput, and wait again.
        assert_eq!(orders, [[1, 2, 3, 4], [3, 2, 1, 4], [1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 4]]);

        press(&mut view, &[KeyCode::Char('/'), KeyCode::Char(':'), KeyCode::Char('3'), KeyCode::Char('q')]);
        assert!(ports(&mut view).is_empty());
        press(&mut view, &[KeyCode::Backspace]);
        assert_eq!(ports(&mut view), [3]);
        assert!(!press(&mut view, &[KeyCode::Enter]));
        assert_eq!(ports(&mut view), [3]);
        press(&mut view, &[KeyCode::Char('/'), KeyCode::Esc]);
        assert_eq!(ports(&mut view), [1, 2, 3, 4]);

        // Stopped, it keeps what it has.
        press(&mut view, &[KeyCode::Char(' ')]);
        view.take(Sample::default());
        assert_eq!(ports(&mut view), [1, 2, 3, 4]);
        press(&mut view, &[KeyCode::Char(' ')]);
        view.take(Sample { rows: (0..50).map(|port| row(port, Queues::default(), 0)).collect(), ..sample() });
        assert_eq!(ports(&mut view).len(), 7);
        press(&mut view, &[KeyCode::PageDown, KeyCode::Down, KeyCode::Up]);
        assert_eq!(ports(&mut view), [7, 8, 9, 10, 11, 12, 13]);
        press(&mut view, &[KeyCode::PageDown; 20]);
        assert_eq!(ports(&mut view).last(), Some(&49));
        press(&mut view, &[KeyCode::Home]);
        assert_eq!(ports(&mut view)[0], 0);
        assert!(press(&mut view, &[KeyCode::Char('q')]));
        assert!(view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}
