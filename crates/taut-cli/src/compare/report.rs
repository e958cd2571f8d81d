//! The report of the comparison: a table of medians and ranges, the set-up, and the load of others. Pure.
//!
//! Called by `mod.rs`.

use serde::Serialize;

use crate::shared::text;

/// Cores of other processes above which the comparison says that the machine was busy.
const BUSY_CORES: f64 = 0.2;

/// A line of the table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    family: &'static str,
    work: &'static str,
    unit: &'static str,
    /// Median of taut's samples.
    taut: f64,
    /// Median of the kernel's.
    kernel: f64,
    /// taut's median relative to the kernel's: above 1, taut is better.
    ratio: f64,
    taut_samples: Vec<f64>,
    kernel_samples: Vec<f64>,
    /// Cores that other processes used meanwhile.
    others_cores: Option<f64>,
}

impl Row {
    /// `ascending`: whether a larger value is better.
    pub(super) fn new(
        (family, work, unit): (&'static str, &'static str, &'static str),
        ascending: bool,
        taut_samples: Vec<f64>,
        kernel_samples: Vec<f64>,
        others_cores: Option<f64>,
    ) -> Self {
        let (taut, kernel) = (median(&taut_samples), median(&kernel_samples));
        let ratio = if ascending { taut / kernel } else { kernel / taut };
        Self { family, work, unit, taut, kernel, ratio, taut_samples, kernel_samples, others_cores }
    }
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.wrapping_sub(1)), at(middle)) }
}

/// What was compared with what.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setup {
    /// taut's column.
    pub(super) taut: &'static str,
    /// The kernel's column.
    pub(super) kernel: &'static str,
    pub(super) rounds: u32,
    pub(super) congestion: Congestion,
    /// Threads of taut's stacks.
    pub(super) stack_threads: usize,
    /// Of those threads.
    pub(super) priority: Option<String>,
}

/// The congestion control of each side's sockets.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Congestion {
    pub(super) taut: String,
    pub(super) kernel: String,
}

impl Setup {
    /// What runs where.
    fn sentences(&self) -> String {
        let Self { taut, kernel, rounds, congestion, stack_threads, priority } = self;
        let threads = counted(*stack_threads, "thread");
        let rounds = counted(*rounds as usize, "round");
        let priority = match priority {
            Some(priority) => format!("with priority {priority}"),
            None => "without a priority".to_owned(),
        };
        format!(
            "Columns: {taut}, and {kernel}: median and range of {rounds}, taut and kernel in turn.\n\
             Both run in this process: blocking sockets, the same client and peer threads, a peer in accept at each end.\n\
             taut's stack adds {threads}, {priority}. Without a copy: `write_bytes`, and the kernel as above.\n\
             Congestion control: {} in taut, {} in all of the kernel's sockets.\n",
            congestion.taut, congestion.kernel,
        )
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// All that the comparison found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) setup: Setup,
    pub(super) rows: Vec<Row>,
    /// Cores that other processes used from the first measurement to the last.
    pub(super) others_cores: Option<f64>,
    pub(super) verified_bytes: u64,
    /// Of one transfer.
    pub(super) transfer_bytes: usize,
    /// Of its bytes.
    pub(super) sha256: String,
    pub(super) failures: Vec<String>,
    /// From the start of the command.
    pub(super) seconds: f64,
}

impl Report {
    pub(super) fn text(&self) -> String {
        format!(
            "{}\n{}{}{} verified: SHA-256 computed at both ends of every transfer, {}… each time.\n\
             Ratio of the medians: above 1, taut is better. {:.0} s in all.\n",
            table(&self.setup, &self.rows),
            self.setup.sentences(),
            load(self.others_cores, &self.rows),
            text::bytes(self.verified_bytes),
            &self.sha256[..16],
            self.seconds,
        )
    }
}

/// The cores that other processes used; and a hint when they were many.
fn load(average: Option<f64>, rows: &[Row]) -> String {
    let Some(average) = average else {
        return "Load of others: unknown, as /proc/stat cannot be read.\n".to_owned();
    };
    let most = rows.iter().filter_map(|row| row.others_cores.map(|cores| (cores, row)));
    let most = most.max_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut text = format!("Load of others: {average:.2} cores on average");
    if let Some((cores, row)) = most {
        text += &format!(", at most {cores:.2} ({} {})", row.family, row.work);
    }
    text += ".\n";
    if average.max(most.map_or(0.0, |(cores, _)| cores)) > BUSY_CORES {
        text += "The machine was busy: other processes took processor time from the measurements, so rows may be \
                 wrong.\nRun it again when they rest.\n";
    }
    text
}

fn table(setup: &Setup, rows: &[Row]) -> String {
    // Each column is named after the TCP at its near end.
    let short = |name: &str| name.split(' ').next().unwrap_or(name).to_owned();
    let range = || "range".to_owned();
    let head = vec![
        String::new(),
        String::new(),
        short(setup.taut),
        range(),
        short(setup.kernel),
        range(),
        String::new(),
        "ratio".to_owned(),
    ];
    let lines = rows.iter().map(|row| {
        vec![
            row.family.to_owned(),
            row.work.to_owned(),
            number(row.taut),
            span(&row.taut_samples),
            number(row.kernel),
            span(&row.kernel_samples),
            row.unit.to_owned(),
            format!("{:.2}", row.ratio),
        ]
    });
    text::table(2, &std::iter::once(head).chain(lines).collect::<Vec<_>>())
}

/// The least and the greatest.
fn span(samples: &[f64]) -> String {
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{}–{}", number(least), number(greatest))
}

fn number(value: f64) -> String {
    if value >= 1000.0 { text::grouped(value as u64) } else { text::significant(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ascending: bool, taut: &[f64], kernel: &[f64], others: Option<f64>) -> Row {
        Row::new(("IPv4", "upload", "Gbit/s"), ascending, taut.to_vec(), kernel.to_vec(), others)
    }

    fn setup() -> Setup {
        Setup {
            taut: "taut to kernel over TUN",
            kernel: "kernel to kernel over veth",
            rounds: 3,
            congestion: Congestion { taut: "aimd:share=0.7".to_owned(), kernel: "cubic".to_owned() },
            stack_threads: 1,
            priority: None,
        }
    }

    #[test]
    fn a_row_has_medians_and_their_ratio() {
        let rate = row(true, &[9.0, 1.0, 2.0], &[4.0, 3.0, 100.0], None);
        assert_eq!((rate.taut, rate.kernel, rate.ratio), (2.0, 4.0, 0.5));
        let latency = row(false, &[10.0, 30.0], &[10.0, 70.0], None);
        assert_eq!((latency.taut, latency.kernel, latency.ratio), (20.0, 40.0, 2.0));
    }

    #[test]
    fn the_table_shows_medians_ranges_and_ratios() {
        let rows = [row(true, &[9.0, 1.0, 2.0], &[4000.0, 3000.0, 5000.0], None)];
        let expected = "              taut      range  kernel        range          ratio\n\
                        IPv4  upload  2.00  1.00–9.00   4,000  3,000–5,000  Gbit/s   0.00\n";
        assert_eq!(table(&setup(), &rows), expected);
    }

    #[test]
    fn it_says_what_runs_where() {
        let text = setup().sentences();
        for said in [
            "taut to kernel over TUN, and kernel to kernel over veth: median and range of 3 rounds,",
            "taut's stack adds 1 thread, without a priority.",
            "Congestion control: aimd:share=0.7 in taut, cubic in all of the kernel's sockets.",
        ] {
            assert!(text.contains(said), "{text}");
        }
        let other = Setup { stack_threads: 4, rounds: 1, priority: Some("realtime:1".to_owned()), ..setup() }
            .sentences();
        assert!(other.contains("of 1 round,"), "{other}");
        assert!(other.contains("adds 4 threads, with priority realtime:1."), "{other}");
        assert!(text.lines().chain(other.lines()).all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn a_busy_machine_is_reported() {
        let quiet = [row(true, &[1.0], &[1.0], Some(0.2)), row(true, &[1.0], &[1.0], Some(0.1))];
        let line = "Load of others: 0.10 cores on average, at most 0.20 (IPv4 upload).\n";
        assert_eq!(load(Some(0.1), &quiet), line);
        // One row is enough, as is the average.
        let busy = [row(true, &[1.0], &[1.0], Some(0.21))];
        assert!(load(Some(0.1), &busy).contains("\nThe machine was busy: "));
        assert!(load(Some(0.3), &quiet).contains("\nThe machine was busy: "));
        assert!(load(None, &[]).starts_with("Load of others: unknown"));
    }
}
