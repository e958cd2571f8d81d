//! The formulas of draft-ietf-ippm-responsiveness-09, for the times and rates that `client.rs` measures.

use std::time::Duration;

use serde_json::{Value, json};

/// Intervals that an average is taken over, and averages that are compared (MAD).
const INTERVALS: usize = 4;
/// The standard deviation of these averages, as a part of the last one, below which they are stable (SDT).
const STABLE: f64 = 0.05;
/// The part of the probes that counts: the slowest are left out (TMP).
const COUNTED: f64 = 0.95;

/// Whether the last averages differ little.
fn is_stable(averages: &[f64]) -> bool {
    let (Some(last), Some(&now)) = (averages.last_chunk::<INTERVALS>(), averages.last()) else {
        return false;
    };
    let middle = mean(last);
    let deviations = last.map(|average| (average - middle) * (average - middle));
    now > 0.0 && mean(&deviations).sqrt() < STABLE * now
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of the fastest 95 %.
fn trimmed(times: &[Duration]) -> Option<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let counted = ((times.len() as f64 * COUNTED).ceil() as usize).min(times.len());
    let sum: Duration = times.get(..counted)?.iter().sum();
    (counted > 0).then(|| sum / counted as u32)
}

/// Times of probes.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    /// To connect, beside the load.
    pub(super) connect: Vec<Duration>,
    /// A request and its answer, on that connection.
    pub(super) beside: Vec<Duration>,
    /// A request and its answer on a connection of the load.
    pub(super) inside: Vec<Duration>,
}

impl Probes {
    /// Round trips a minute: the mean of what probes beside the load have and what those inside it have.
    fn rpm(&self) -> Option<f64> {
        let beside = (trimmed(&self.connect)? + trimmed(&self.beside)?) / 2;
        let inside = trimmed(&self.inside)?;
        Some((60.0 / beside.as_secs_f64() + 60.0 / inside.as_secs_f64()) / 2.0)
    }

    fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, probes| {
            sum.connect.extend(&probes.connect);
            sum.beside.extend(&probes.beside);
            sum.inside.extend(&probes.inside);
            sum
        })
    }
}

/// One interval under load.
#[derive(Clone, Debug, Default)]
pub(super) struct Interval {
    /// Bits a second.
    pub(super) rate: f64,
    pub(super) probes: Probes,
}

/// The last intervals, over which the result is taken.
fn last(intervals: &[Interval]) -> &[Interval] {
    &intervals[intervals.len().saturating_sub(INTERVALS)..]
}

/// Whether the line is full, and then round trips a minute are the same in each average.
pub(super) fn is_over(intervals: &[Interval]) -> bool {
    let rates: Vec<f64> = intervals.iter().map(|interval| interval.rate).collect();
    let averages: Vec<f64> = rates.windows(INTERVALS).map(mean).collect();
    let Some(full) = (0..=averages.len()).find(|&count| is_stable(&averages[..count])) else { return false };
    let since_full = (full + INTERVALS..=intervals.len()).map(|count| last(&intervals[..count]));
    let rpm = since_full.map(|part| Probes::sum(part.iter().map(|interval| &interval.probes)).rpm());
    is_stable(&rpm.map(|rpm| rpm.unwrap_or(0.0)).collect::<Vec<_>>())
}

/// The result of one direction.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) idle: Probes,
    pub(super) loaded: Probes,
    /// Bits a second while the line was full.
    pub(super) rate: f64,
    pub(super) connections: usize,
    /// The figures were stable before the time was over.
    pub(super) is_steady: bool,
}

impl Measured {
    pub(super) fn new(idle: Probes, intervals: &[Interval], connections: usize) -> Self {
        let last = last(intervals);
        Self {
            idle,
            loaded: Probes::sum(last.iter().map(|interval| &interval.probes)),
            rate: mean(&last.iter().map(|interval| interval.rate).collect::<Vec<_>>()),
            connections,
            is_steady: is_over(intervals),
        }
    }

    /// The time that the load adds to a round trip: in the queues that all connections share, and beyond that
    /// in a connection's own buffers.
    fn added(&self) -> Option<[Duration; 2]> {
        let (idle, beside) = (trimmed(&self.idle.beside)?, trimmed(&self.loaded.beside)?);
        Some([beside.saturating_sub(idle), trimmed(&self.loaded.inside)?.saturating_sub(beside)])
    }

    /// The queue that holds most.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let [shared, own] = self.added()?;
        let idle = trimmed(&self.idle.beside)?;
        if shared.max(own) < idle.max(Duration::from_millis(5)) {
            return Some("no queue is long");
        }
        Some(if shared >= own {
            "the queue that all connections share: in the network, or in this host's device"
        } else {
            "the buffers of each connection: of the sender's socket, or of a relay between the two"
        })
    }

    pub(super) fn text(&self, direction: &str) -> String {
        let load = format!(
            "{:.1} Mbit/s by {} connections{}",
            self.rate / 1e6,
            self.connections,
            if self.is_steady { "" } else { " (not stable when the time was over)" },
        );
        let (Some(rpm), Some(idle), Some([shared, own]), Some(fault)) =
            (self.loaded.rpm(), trimmed(&self.idle.beside), self.added(), self.fault())
        else {
            return format!("{direction}: too few answers, {load}\n");
        };
        let [idle, shared, own] = [idle, shared, own].map(|time| time.as_secs_f64() * 1e3);
        format!(
            "{direction}: {rpm:.0} round trips a minute, {load}\n  \
             idle {idle:.1} ms; load adds {shared:.1} ms beside it, {own:.1} ms more inside it\n  {fault}\n"
        )
    }

    pub(super) fn json(&self) -> Value {
        let seconds = |times: &[Duration]| trimmed(times).map(|time| time.as_secs_f64());
        let probes = |probes: &Probes| {
            json!({
                "connect": seconds(&probes.connect),
                "beside": seconds(&probes.beside),
                "inside": seconds(&probes.inside),
                "count": probes.beside.len() + probes.inside.len(),
            })
        };
        json!({
            "rpm": self.loaded.rpm(),
            "bits_per_second": self.rate,
            "connections": self.connections,
            "is_steady": self.is_steady,
            "idle": probes(&self.idle),
            "loaded": probes(&self.loaded),
            "fault": self.fault(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(times: &[u64]) -> Vec<Duration> {
        times.iter().copied().map(Duration::from_millis).collect()
    }

    /// Intervals with these rates, in each a probe of each kind that takes as many milliseconds.
    fn intervals(of: &[(f64, u64)]) -> Vec<Interval> {
        let probes = |time| Probes { connect: ms(&[time]), beside: ms(&[time]), inside: ms(&[time]) };
        of.iter().map(|&(rate, time)| Interval { rate, probes: probes(time) }).collect()
    }

    #[test]
    fn rpm_1_it_is_over_when_four_averages_of_the_rate_and_then_of_the_times_differ_little() {
        assert!(!is_stable(&[100.0; 3]) && is_stable(&[100.0; 4]) && !is_stable(&[0.0; 4]));
        // A deviation of 5 is a twentieth of 100, and less than that of 102.
        assert!(!is_stable(&[90.0, 100.0, 90.0, 100.0]) && is_stable(&[92.0, 102.0, 92.0, 102.0]));

        // Four averages of four intervals take seven, and four averages of times as many more.
        assert!(!is_over(&intervals(&[(100.0, 10); 10])));
        assert!(is_over(&intervals(&[(100.0, 10); 11])));
        // A tenth up and down, which the averages even out.
        let waves: Vec<_> = (0..11).map(|at| (if at % 2 == 0 { 90.0 } else { 110.0 }, 10)).collect();
        assert!(is_over(&intervals(&waves)));
        // The rate keeps growing; the rate is stable, and the times grow.
        let growing: Vec<_> = (0..20).map(|at| (f64::from(1 << at), 10)).collect();
        assert!(!is_over(&intervals(&growing)));
        let slower: Vec<_> = (0..20).map(|at| (100.0, 1 << at)).collect();
        assert!(!is_over(&intervals(&slower)));
    }

    #[test]
    fn rpm_2_half_of_the_weight_is_beside_the_load_and_half_inside() {
        let loaded = Probes { connect: ms(&[10]), beside: ms(&[30]), inside: ms(&[180]) };
        let idle = Probes { connect: ms(&[10]), beside: ms(&[10]), inside: Vec::new() };
        // 60 / 0.020 is 3,000; 60 / 0.180 is 333.3.
        assert_eq!(loaded.rpm().map(f64::round), Some(1667.0));
        let mut found = Measured { idle, loaded, rate: 2e7, connections: 4, is_steady: true };
        assert!(found.fault().unwrap().contains("each connection"), "20 ms are shared, 150 are not");
        found.loaded.beside = ms(&[150]);
        assert!(found.fault().unwrap().contains("share"));
        found.loaded = Probes { connect: ms(&[10]), beside: ms(&[11]), inside: ms(&[12]) };
        assert_eq!(found.fault(), Some("no queue is long"));
        // Of 20 the slowest does not count.
        found.loaded.inside = ms(&[[10; 19].as_slice(), &[9_999]].concat());
        assert_eq!(trimmed(&found.loaded.inside), Some(Duration::from_millis(10)));
        found.loaded.inside.clear();
        assert_eq!((found.loaded.rpm(), found.fault()), (None, None));
        assert!(found.text("up").contains("too few answers"));
    }
}
