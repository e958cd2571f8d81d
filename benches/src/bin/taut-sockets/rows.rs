//! The rows of the table: who does what, which figures follow, and what is aimed at.

use std::time::Duration;

use clap::ValueEnum;

use crate::job::{Form, Job, Outcome, Work};
use crate::table::{Aim, Place, Table, jain, slowest_to_fastest};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Row {
    /// One connection, writing and reading as fast as possible: CPU per byte
    Bulk,
    /// 8 and 64 connections writing or reading, with one and two shards: CPU per byte, fairness
    Many,
    /// Writes of 64, 100 and 1448 bytes as fast as possible with TCP_NODELAY: bytes a packet
    Small,
    /// A write of 64 bytes each millisecond: the time until the peer has it
    Held,
    /// A write of the peer each millisecond to readers that pause: the time until the reader has it
    Heard,
    /// Writes of 256 KB as fast as possible: packets below one MSS
    Tails,
    /// Bytes of an idle connection
    Memory,
    /// Request and response of one byte, 1 to 9,000 connections
    Exchange,
    /// Request and response of one byte beside a connection in bulk: the time, and that below TCP
    Beside,
    /// Connections per second, opened and accepted by 1 to 8 threads or tasks
    Connections,
}

impl Row {
    pub const ALL: [Self; 10] = [
        Self::Bulk,
        Self::Many,
        Self::Small,
        Self::Held,
        Self::Heard,
        Self::Tails,
        Self::Memory,
        Self::Exchange,
        Self::Beside,
        Self::Connections,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Many => "many",
            Self::Small => "small",
            Self::Held => "held",
            Self::Heard => "heard",
            Self::Tails => "tails",
            Self::Memory => "memory",
            Self::Exchange => "exchange",
            Self::Beside => "beside",
            Self::Connections => "connections",
        }
    }
}

/// Bytes of a write in bulk.
const CHUNK: usize = taut_bench::peer::CHUNK;
const AUTOCORK_OFF: &str = ", autocork off";

/// A stack in one form with one job.
#[derive(Clone, Debug)]
pub struct Variant {
    pub label: String,
    pub form: Form,
    pub job: Job,
}

/// Several variants that do the same work, one after the other in each round.
#[derive(Clone, Debug)]
pub struct Contest {
    pub row: Row,
    pub title: String,
    pub variants: Vec<Variant>,
}

fn contest(row: Row, title: impl Into<String>, variants: Vec<Variant>) -> Contest {
    Contest { row, title: title.into(), variants }
}

fn plain(forms: &[Form], job: Job) -> Vec<Variant> {
    forms.iter().map(|&form| Variant { label: form.name().to_owned(), form, job }).collect()
}

/// With autocorking and without it.
fn both_autocorks(job: Job) -> Vec<Variant> {
    let forms = [Form::Kernel, Form::Loop, Form::Blocking, Form::Tokio];
    let mut all = Vec::new();
    for form in forms {
        for (autocorking, suffix) in [(true, ""), (false, AUTOCORK_OFF)] {
            let job = Job { autocorking, ..job };
            all.push(Variant { label: format!("{}{suffix}", form.name()), form, job });
        }
    }
    all
}

/// The same job by taut's sockets with busy polling, longer than an answer takes.
fn busy_polling(job: Job) -> impl Iterator<Item = Variant> {
    let job = Job { busy_poll: Duration::from_micros(100), ..job };
    let label = |form: Form| format!("{}, busy polling", form.name());
    [Form::Blocking, Form::Tokio].into_iter().map(move |form| Variant { label: label(form), form, job })
}

/// The contests of a row; none for [`Row::Memory`], which is not measured over time.
pub fn contests(row: Row) -> Vec<Contest> {
    let one_thread_each = [Form::Kernel, Form::Loop, Form::Blocking, Form::Tokio];
    let sockets = [Form::Kernel, Form::KernelTokio, Form::Blocking, Form::Tokio];
    let pour = |chunk, nodelay| Work::Pour { chunk, nodelay };
    match row {
        Row::Bulk => {
            let forms = [Form::Kernel, Form::Loop, Form::Blocking, Form::Tokio, Form::Least];
            let of = |work| plain(&forms, Job::of(work, 1));
            let send = contest(row, "bulk send, 1 connection", of(pour(CHUNK, false)));
            vec![send, contest(row, "bulk receive, 1 connection", of(Work::Drain))]
        }
        Row::Many => [("send", pour(CHUNK, false)), ("receive", Work::Drain)]
            .into_iter()
            .flat_map(|(way, work)| {
                [8, 64].map(|count| {
                    let job = Job::of(work, count);
                    let mut variants = plain(&one_thread_each, job);
                    for form in [Form::Blocking, Form::Tokio] {
                        let label = format!("{}, 2 shards", form.name());
                        variants.push(Variant { label, form, job: Job { shards: 2, ..job } });
                    }
                    contest(row, format!("bulk {way}, {count} connections"), variants)
                })
            })
            .collect(),
        Row::Small => [64, 100, 1_448]
            .map(|bytes| {
                let job = Job { counts_packets: true, ..Job::of(pour(bytes, true), 1) };
                contest(row, format!("{bytes}-byte writes with TCP_NODELAY"), both_autocorks(job))
            })
            .into(),
        Row::Held => {
            let job = Job::of(Work::Stamp, 1);
            vec![contest(row, "a 64-byte write each ms until the peer has it", both_autocorks(job))]
        }
        Row::Heard => [2, 8]
            .map(|count| {
                let title = format!("a write of the peer each ms to {count} readers that pause");
                contest(row, title, plain(&[Form::Kernel, Form::Blocking], Job::of(Work::Hear, count)))
            })
            .into(),
        Row::Tails => [(true, "with TCP_NODELAY"), (false, "with Nagle")]
            .map(|(nodelay, name)| {
                let job = Job { counts_packets: true, ..Job::of(pour(256 << 10, nodelay), 1) };
                contest(row, format!("256 KB writes in bulk {name}"), plain(&one_thread_each, job))
            })
            .into(),
        Row::Memory => Vec::new(),
        Row::Exchange => {
            let mut all = Vec::new();
            for count in [1, 32, 256, 1_000, 9_000] {
                let forms = match count {
                    1 => &Form::ALL[..],
                    32 | 256 => &Form::STACKS,
                    // A thread for each is too many.
                    _ => &[Form::KernelTokio, Form::Loop, Form::Tokio],
                };
                for (one_core, cores) in [(true, "one core"), (false, "all cores")] {
                    let job = Job { one_core, ..Job::of(Work::Ping, count) };
                    let plural = if count == 1 { "" } else { "s" };
                    let title = format!("1 byte there and back, {count} connection{plural}, {cores}");
                    let mut variants = plain(forms, job);
                    if (count, one_core) == (1, false) {
                        variants.extend(busy_polling(job));
                    }
                    all.push(contest(row, title, variants));
                }
            }
            all
        }
        Row::Beside => {
            let mut variants = plain(&Form::STACKS, Job::of(Work::Beside, 2));
            for form in [Form::Loop, Form::Blocking, Form::Tokio] {
                let job = Job { small_queue: false, ..Job::of(Work::Beside, 2) };
                let label = format!("{}, small queue off", form.name());
                variants.push(Variant { label, form, job });
            }
            vec![contest(row, "1 byte there and back beside a bulk flow", variants)]
        }
        Row::Connections => {
            let mut all = Vec::new();
            for (work, verb) in [(Work::Open, "opened"), (Work::Accept, "accepted")] {
                for count in [1, 2, 4, 8] {
                    let by =
                        if count == 1 { "1 thread or task" } else { &format!("{count} threads or tasks") };
                    let title = format!("connections {verb} by {by}");
                    let mut variants = plain(&sockets, Job::of(work, count));
                    if work == Work::Open {
                        variants.extend(plain(&[Form::Least], Job::of(work, count)));
                    }
                    all.push(contest(row, title, variants));
                }
            }
            all
        }
    }
}

/// Adds figures of one variant's measurement to the table.
struct Adder<'a> {
    table: &'a mut Table,
    contest: &'a Contest,
    variant: &'a Variant,
    disturbance: f64,
}

impl Adder<'_> {
    /// A figure that is compared with the kernel's.
    fn add(&mut self, figure: &str, unit: &'static str, sample: f64, aim: Option<Aim>) {
        self.place(figure, unit, Some(self.beside()), sample, aim);
    }

    /// A count of events, of which the kernel may have none.
    fn count(&mut self, figure: &str, unit: &'static str, sample: f64) {
        self.place(figure, unit, None, sample, None);
    }

    fn place(
        &mut self,
        figure: &str,
        unit: &'static str,
        beside: Option<&str>,
        sample: f64,
        aim: Option<Aim>,
    ) {
        let place = Place {
            row: self.contest.row.name(),
            figure: format!("{}: {figure}", self.contest.title),
            unit,
            stack: &self.variant.label,
            beside,
            aim: aim.filter(|_| self.variant.form.is_taut()),
        };
        self.table.add(place, sample, self.disturbance);
    }

    /// The kernel in the corresponding form, if it takes part in that form.
    fn beside(&self) -> &'static str {
        let takes_part = |form: &Form| self.contest.variants.iter().any(|variant| variant.form == *form);
        let forms = [self.variant.form.beside(), Form::Kernel, Form::KernelTokio];
        forms.into_iter().find(takes_part).unwrap_or(Form::Kernel).name()
    }

    /// `bound` of the kernel beside.
    fn of_kernel(&self, bound: Aim) -> Option<Aim> {
        Some(bound.times(self.beside()))
    }
}

/// Adds what was measured of one variant of a contest.
pub fn record(table: &mut Table, contest: &Contest, variant: &Variant, outcome: &Outcome) {
    let disturbance = outcome.window.disturbance;
    let mut to = Adder { table, contest, variant, disturbance };
    match contest.row {
        Row::Bulk => {
            let aim = match variant.form {
                Form::Loop => to.of_kernel(Aim::at_most(1.1)),
                _ => Some(Aim::at_most(1.2).times(Form::Loop.name())),
            };
            bulk(&mut to, outcome, aim);
        }
        Row::Many => {
            let aim = to.of_kernel(Aim::at_most(1.5));
            bulk(&mut to, outcome, aim);
            to.add("Jain's index", "1", jain(&outcome.flows), Some(Aim::at_least(0.9)));
            to.add("slowest ÷ fastest", "1", slowest_to_fastest(&outcome.flows), None);
        }
        Row::Small => small(&mut to, outcome),
        Row::Held => {
            let p99 = (variant.job.autocorking)
                .then(|| Aim::at_most(1.05).times(&format!("{}{AUTOCORK_OFF}", variant.label)));
            times(&mut to, outcome, None, p99);
        }
        Row::Heard => {
            let aim = to.of_kernel(Aim::at_most(1.0));
            times(&mut to, outcome, aim.clone(), aim);
            to.add("CPU of both sides for each", "µs", cpu_us_each(outcome), None);
        }
        Row::Tails => {
            let share = |count: u64| 100.0 * count as f64 / outcome.packets.data.max(1) as f64;
            let packets = outcome.packets;
            to.add("packets below one MSS", "%", share(packets.below_mss), Some(Aim::at_most(0.0)));
            to.add("packets whose last segment is below one MSS", "%", share(packets.ends_below_mss), None);
            to.add("bytes a packet", "bytes", bytes_a_packet(outcome), None);
        }
        Row::Memory => {}
        Row::Exchange => {
            // The aims are for sockets.
            let aim = to.of_kernel(Aim::at_most(1.0)).filter(|_| variant.form != Form::Loop);
            times(&mut to, outcome, aim.clone(), aim.clone());
            to.add("exchanges", "1/s", outcome.window.count as f64 / outcome.window.seconds, None);
            to.add("CPU of both sides for each", "µs", cpu_us_each(outcome), aim);
        }
        Row::Beside => {
            times(&mut to, outcome, None, Some(Aim::at_most(3_000.0)));
            if let Some(below) = outcome.counters.below_p99 {
                to.count("p99 of the time in the device", "µs", below.as_secs_f64() * 1e6);
            }
            let bytes = outcome.flows.first().copied().unwrap_or_default();
            to.add("rate of the bulk flow", "Gbit/s", bytes as f64 * 8e-9 / outcome.window.seconds, None);
        }
        Row::Connections => {
            let rate = outcome.window.count as f64 / outcome.window.seconds;
            let aim = to.of_kernel(Aim::at_least(1.0));
            to.add("rate", "1/s", rate, aim);
            to.add("CPU of both sides for each", "µs", cpu_us_each(outcome), None);
        }
    }
}

/// Adds the bytes of an idle connection.
pub fn record_memory(table: &mut Table, form: Form, bytes: f64) {
    let aim = match form {
        Form::Kernel | Form::KernelTokio | Form::Least => None,
        Form::Loop => Some(Aim::at_most(600.0)),
        Form::Blocking | Form::Tokio => Some(Aim::at_most(750.0)),
    };
    let (row, figure) = (Row::Memory.name(), "an idle connection".to_owned());
    let beside = Some(Form::Kernel.name());
    table.add(Place { row, figure, unit: "bytes", stack: form.name(), beside, aim }, bytes, 0.0);
}

fn cpu_us_each(outcome: &Outcome) -> f64 {
    outcome.window.cpu_all * 1e6 / outcome.window.count.max(1) as f64
}

fn bytes_a_packet(outcome: &Outcome) -> f64 {
    outcome.window.count as f64 / outcome.packets.data.max(1) as f64
}

/// Rate and CPU per byte; `aim` is that of the CPU.
fn bulk(to: &mut Adder<'_>, outcome: &Outcome, aim: Option<Aim>) {
    let window = &outcome.window;
    let gb = window.count as f64 / 1e9;
    to.add("CPU of the stack's side", "s/GB", window.cpu_stack / gb, aim.clone());
    to.add("CPU of both sides", "s/GB", window.cpu_all / gb, aim);
    to.add("rate", "Gbit/s", gb * 8.0 / window.seconds, None);
}

fn small(to: &mut Adder<'_>, outcome: &Outcome) {
    let autocorks = to.variant.job.autocorking;
    let aim = autocorks.then(|| Aim::at_least(10_000.0));
    to.add("bytes a packet", "bytes", bytes_a_packet(outcome), aim);
    to.add("rate", "Gbit/s", outcome.window.count as f64 * 8e-9 / outcome.window.seconds, None);
    let per_thousand = |count: u64| count as f64 * 1e3 / outcome.packets.data_in_all.max(1) as f64;
    let counters = outcome.counters;
    to.count("TcpExtTCPAutoCorking", "per 1,000 packets", per_thousand(counters.autocorking));
    if to.variant.form.is_taut() {
        to.count("TautTsqThrottled", "per 1,000 packets", per_thousand(counters.tsq_throttled));
    }
}

fn times(to: &mut Adder<'_>, outcome: &Outcome, p50: Option<Aim>, p99: Option<Aim>) {
    let Some(taken_ns) = outcome.latencies_ns.as_ref().filter(|taken| !taken.is_empty()) else {
        let missing = format!("{}: {}: no time was measured", to.contest.title, to.variant.label);
        to.table.errors.push(missing);
        return;
    };
    let us = |quantile| taken_ns.value_at_quantile(quantile) as f64 / 1e3;
    to.add("p50", "µs", us(0.5), p50);
    to.add("p99", "µs", us(0.99), p99);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_taut_form_has_its_kernel_beside_it() {
        for row in Row::ALL {
            for contest in contests(row) {
                let mut labels: Vec<&str> =
                    contest.variants.iter().map(|variant| variant.label.as_str()).collect();
                assert!(labels.iter().any(|label| label.starts_with("kernel")), "{}", contest.title);
                let count = labels.len();
                labels.sort_unstable();
                labels.dedup();
                assert_eq!(labels.len(), count, "{}: a label comes twice", contest.title);
            }
        }
    }

    #[test]
    fn titles_differ_because_figures_are_found_by_them() {
        let all: Vec<String> = Row::ALL.into_iter().flat_map(contests).map(|contest| contest.title).collect();
        let mut titles = all.clone();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), all.len());
    }

    #[test]
    fn only_sockets_have_shards_and_are_timed_by_threads() {
        for contest in Row::ALL.into_iter().flat_map(contests) {
            for variant in &contest.variants {
                let (form, job) = (variant.form, variant.job);
                assert!(job.shards == 1 || matches!(form, Form::Blocking | Form::Tokio), "{variant:?}");
                let by_threads = matches!(job.work, Work::Open | Work::Accept);
                assert!(!(by_threads && form == Form::Loop), "{variant:?}");
            }
        }
    }
}
