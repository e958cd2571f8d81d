//! The formulas of draft-ietf-ippm-responsiveness (version 07), on what `client.rs` has measured.

use std::time::Duration;

use serde_json::{Value, json};

/// Intervals whose averages are compared (MAD).
pub(super) const INTERVALS: usize = 4;
/// The standard deviation of these averages, as a part of their mean, below which the line is full (SDT).
const STEADY: f64 = 0.05;
/// The part of the probes that counts: the slowest are left out (TMP).
const COUNTED: f64 = 0.95;

/// Whether the last intervals' rates say that more connections bring no more: the moving averages of the last
/// [`INTERVALS`] differ little.
pub(super) fn is_steady(rates: &[f64]) -> bool {
    if rates.len() < 2 * INTERVALS - 1 {
        return false;
    }
    let averages: Vec<f64> = rates.windows(INTERVALS).map(mean).collect();
    let last = &averages[averages.len() - INTERVALS..];
    let middle = mean(last);
    let variance =
        mean(&last.iter().map(|average| (average - middle) * (average - middle)).collect::<Vec<_>>());
    middle > 0.0 && variance.sqrt() < STEADY * middle
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

/// The result of one direction.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) idle: Probes,
    pub(super) loaded: Probes,
    /// Bits a second while the line was full.
    pub(super) rate: f64,
    pub(super) connections: usize,
    /// The line was full before the time was over.
    pub(super) is_steady: bool,
}

impl Measured {
    /// Round trips a minute: half of the weight for probes beside the load, half for those inside it.
    pub(super) fn rpm(&self) -> Option<f64> {
        let beside = (trimmed(&self.loaded.connect)? + trimmed(&self.loaded.beside)?) / 2;
        let inside = trimmed(&self.loaded.inside)?;
        Some(60.0 / (beside.as_secs_f64() / 2.0 + inside.as_secs_f64() / 2.0))
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
        let ms = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
        let [shared, own] = self.added().map_or([None; 2], |added| added.map(Some));
        format!(
            "{direction}: {:.0} round trips a minute, {:.1} Mbit/s by {} connections{}\n  \
             idle {:.1} ms; load adds {:.1} ms beside it, {:.1} ms more inside it\n  {}\n",
            self.rpm().unwrap_or(f64::NAN),
            self.rate / 1e6,
            self.connections,
            if self.is_steady { "" } else { " (the rate was not steady)" },
            ms(trimmed(&self.idle.beside)),
            ms(shared),
            ms(own),
            self.fault().unwrap_or("too few answers to say more"),
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
            "rpm": self.rpm(),
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

    #[test]
    fn rpm_1_a_line_is_full_when_four_moving_averages_differ_by_less_than_a_twentieth() {
        assert!(!is_steady(&[100.0; 6]), "four averages of four need seven intervals");
        assert!(is_steady(&[100.0; 7]));
        assert!(!is_steady(&[0.0; 7]));
        assert!(!is_steady(&[10.0, 20.0, 40.0, 60.0, 80.0, 90.0, 95.0]));
        // A tenth up and down, which the averages even out; and what was long ago counts no more.
        assert!(is_steady(&[1.0, 1.0, 90.0, 110.0, 90.0, 110.0, 90.0, 110.0, 90.0]));
    }

    #[test]
    fn rpm_2_half_of_the_weight_is_beside_the_load_and_half_inside() {
        let loaded = Probes { connect: ms(&[10]), beside: ms(&[30]), inside: ms(&[180]) };
        let idle = Probes { connect: ms(&[10]), beside: ms(&[10]), inside: Vec::new() };
        let mut found = Measured { idle, loaded, rate: 2e7, connections: 4, is_steady: true };
        // ((10 + 30) / 2) / 2 + 180 / 2 = 100 ms.
        assert_eq!(found.rpm(), Some(600.0));
        assert!(found.fault().unwrap().contains("each connection"), "20 ms are shared, 150 are not");
        found.loaded.beside = ms(&[150]);
        assert!(found.fault().unwrap().contains("share"));
        found.loaded = Probes { connect: ms(&[10]), beside: ms(&[11]), inside: ms(&[12]) };
        assert_eq!(found.fault(), Some("no queue is long"));
        // Of 20 the slowest does not count.
        found.loaded.inside = ms(&[[10; 19].as_slice(), &[9_999]].concat());
        assert_eq!(trimmed(&found.loaded.inside), Some(Duration::from_millis(10)));
        found.loaded.inside.clear();
        assert_eq!((found.rpm(), found.fault()), (None, None));
        assert!(found.text("up").contains("too few answers"));
    }
}
