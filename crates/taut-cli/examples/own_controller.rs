//! A lab with a user's congestion control: delay-based, after Vegas (Brakmo and Peterson, 1995).
//!
//! A crate that depends on `taut-core` and `taut-cli` needs only this file. The commands, from this
//! directory:
//!
//! ```console
//! $ alias lab='cargo run --release -q -p taut-cli --example own_controller --'
//! $ lab controllers                                               # vegas beside the built-in ones
//! $ lab run own_controller.toml                                   # Vegas, CUBIC and BBR over one path
//! $ lab run own_controller.toml --set congestion.most=30 --live   # with another parameter; also live
//! $ lab sweep own_controller_sweep.toml                           # every pair of parameters
//! $ lab run matrix --set congestion=vegas:least=4,most=8          # any other scenario
//! ```

use std::fmt;
use std::process::ExitCode;

use taut_core::Instant;
use taut_core::congestion::{AckEvent, Controller, Definition, Params, Signal, Window};

/// Keeps a few segments in the path's queue, whatever the queue's size. The round-trip time shows how many
/// there are.
#[derive(Debug)]
struct Vegas {
    /// Segments that may wait there: below `least` the window grows, above `most` it shrinks.
    least: f64,
    most: f64,
    /// A round trip ends when `una` gets here.
    round_end: u64,
    /// Segments in the queue, as of the last round trip.
    queued: f64,
}

impl Vegas {
    fn new(params: &Params) -> Self {
        Self { least: params.get("least"), most: params.get("most"), round_end: 0, queued: 0.0 }
    }
}

impl Controller for Vegas {
    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        if window.in_slow_start() {
            window.slow_start(ack.acked);
        }
        let (Some(rtt), Some(base)) = (ack.rtt, ack.min_rtt) else { return };
        if ack.una < self.round_end {
            return;
        }
        // Once per round trip: the segments in flight, less those that the path holds without a queue, are
        // queued.
        self.round_end = ack.nxt;
        let cwnd = window.cwnd();
        self.queued = f64::from(cwnd) * (1.0 - base.as_nanos() as f64 / rtt.as_nanos() as f64);
        if self.queued > self.most {
            // Halfway back, because a change shows in the queue only after a round trip.
            let excess = (self.queued - self.most) / 2.0;
            window.set_cwnd(cwnd - (excess as u32).max(1));
            window.leave_slow_start();
        } else if self.queued < self.least && !window.in_slow_start() {
            window.set_cwnd(cwnd + 1);
        }
    }

    /// Loss means that the queue is shorter than Vegas wants: the window shrinks by a quarter, less than CUBIC's.
    fn reduce(&mut self, window: &Window, _why: Signal, _now: Instant) -> u32 {
        (window.cwnd() * 3 / 4).max(2)
    }

    /// For `taut ss` and the lab's log.
    fn describe(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        write!(to, "queued:{:.1}", self.queued)
    }
}

fn main() -> ExitCode {
    let vegas = Definition::new("vegas", Vegas::new)
        .param("least", 2.0, 0.0..=1e4, "segments in the queue below which the window grows")
        .param("most", 4.0, 0.0..=1e4, "segments in the queue above which it shrinks");
    taut_cli::lab::main_with(&[vegas])
}
