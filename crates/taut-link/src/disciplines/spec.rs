//! A queue discipline in the words of `tc`: `fq`, `tbf rate 100mbit burst 32kb limit 64kb`, `netem delay 50ms
//! | fq`. Called by code that builds a discipline: a live host queue, a simulator, an experiment's file.
//!
//! Kinds, options, units and their defaults are `tc`'s (`parse.rs` reads them). Where `tc` needs a second
//! command with `parent`, here a child is written behind a bar: `tbf` takes its packets from the discipline
//! behind it, and packets that come out of `netem` go into it. Only these two have children.
//!
//! The printed form contains the options that differ from the default, in `tc`'s order, and parses to the
//! same specification.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use taut_core::Duration;

use crate::disciplines::fq::FqSpec;
use crate::disciplines::fq_codel::FqCodelSpec;
use crate::disciplines::netem::{Distribution, Loss, NetemSpec, Share};
use crate::disciplines::tree::Tree;
use crate::quantity::{QuantityError, Rate, TimeText};
use crate::random::Chance;

mod parse;

/// Packets that a fifo holds by default. Linux: `txqueuelen`.
pub(crate) const TX_QUEUE_LEN: u32 = 1_000;
/// A full packet of Ethernet with its header, as Linux computes the size of a `bfifo`.
pub(crate) const MTU_BYTES: u32 = 1_514;

/// A queue discipline and its child.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QdiscSpec {
    /// One queue, limited in packets: 1000.
    Pfifo {
        /// Packets.
        limit: u32,
    },
    /// One queue, limited in bytes: 1,514,000.
    Bfifo {
        /// Bytes.
        limit: u32,
    },
    /// Three queues by priority.
    PfifoFast,
    /// A queue for each connection, with departure times.
    Fq(FqSpec),
    /// Many queues, kept short.
    FqCodel(FqCodelSpec),
    /// A rate, and the queue that waits for it, if it is not a plain one.
    Tbf(TbfSpec, Option<Box<QdiscSpec>>),
    /// A path, and the discipline at its end.
    Netem(Box<NetemSpec>, Option<Box<QdiscSpec>>),
}

impl QdiscSpec {
    /// The name that `tc` uses.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Pfifo { .. } => "pfifo",
            Self::Bfifo { .. } => "bfifo",
            Self::PfifoFast => "pfifo_fast",
            Self::Fq(_) => "fq",
            Self::FqCodel(_) => "fq_codel",
            Self::Tbf(..) => "tbf",
            Self::Netem(..) => "netem",
        }
    }

    /// The discipline behind it.
    #[must_use]
    pub fn child(&self) -> Option<&Self> {
        match self {
            Self::Tbf(_, child) | Self::Netem(_, child) => child.as_deref(),
            _ => None,
        }
    }

    /// Whether it honours departure times, so that the stack need not: `fq`, also behind a `tbf`.
    #[must_use]
    pub fn paces(&self) -> bool {
        match self {
            Self::Fq(_) => true,
            Self::Tbf(_, Some(child)) => child.paces(),
            _ => false,
        }
    }

    /// An empty queue of this kind. All its random numbers come from the seed, unless `netem` was given its
    /// own.
    #[must_use]
    pub fn build<T: Clone>(&self, seed: u64) -> Tree<T> {
        Tree::new(self, seed)
    }
}

impl Default for QdiscSpec {
    /// `pfifo_fast`, as in Linux.
    fn default() -> Self {
        Self::PfifoFast
    }
}

/// The options of `tc-tbf(8)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TbfSpec {
    /// The rate of the line.
    pub rate: Rate,
    /// Bytes that may leave at once after a pause.
    pub burst_bytes: u32,
    /// How much may wait; `None` for as much as the child holds.
    pub limit: Option<TbfLimit>,
}

/// The limit of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TbfLimit {
    /// A number of bytes.
    Bytes(u32),
    /// The bytes that pass in this time, plus the burst.
    Latency(Duration),
}

impl TbfSpec {
    /// The limit in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        match self.limit {
            None => u64::MAX,
            Some(TbfLimit::Bytes(bytes)) => u64::from(bytes),
            Some(TbfLimit::Latency(time)) => {
                self.rate.bytes_in(time).saturating_add(u64::from(self.burst_bytes))
            }
        }
    }
}

/// A text that does not describe a queue discipline. Each variant names the kind and the option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QdiscSpecError {
    /// There is no kind.
    #[error("no queue discipline given: write one of {KINDS}, as in \"fq\" or \"netem delay 50ms | fq\"")]
    Empty,
    /// A word that is not a kind.
    #[error("{0:?} is not a queue discipline; use one of {KINDS}")]
    UnknownKind(String),
    /// A word that is not an option of the kind.
    #[error("{kind} has no option {option:?}; its options are {known}")]
    UnknownOption {
        /// The kind.
        kind: &'static str,
        /// The word.
        option: String,
        /// The kind's options.
        known: &'static str,
    },
    /// An option of `tc` that is not supported here.
    #[error("{kind}: {option} is a Linux option that is not supported here")]
    Unsupported {
        /// The kind.
        kind: &'static str,
        /// The option.
        option: String,
    },
    /// An option without its value.
    #[error("{kind}: {option} needs a value: {what}")]
    Missing {
        /// The kind.
        kind: &'static str,
        /// The option.
        option: &'static str,
        /// A description of the value.
        what: &'static str,
    },
    /// An option given twice, or two options with the same meaning.
    #[error("{kind}: {option} was given twice")]
    Twice {
        /// The kind.
        kind: &'static str,
        /// The option.
        option: &'static str,
    },
    /// A value that the option does not accept.
    #[error("{kind}: {option} {text:?} is not {what}")]
    Value {
        /// The kind.
        kind: &'static str,
        /// The option.
        option: &'static str,
        /// The value.
        text: String,
        /// A description of a valid value.
        what: &'static str,
    },
    /// An invalid rate, size or time.
    #[error("{kind}: {option}: {error}")]
    Quantity {
        /// The kind.
        kind: &'static str,
        /// The option.
        option: &'static str,
        /// The error.
        error: QuantityError,
    },
    /// A required option is missing.
    #[error("{kind} needs {option}")]
    Required {
        /// The kind.
        kind: &'static str,
        /// The option.
        option: &'static str,
    },
    /// A bar behind a kind that has no child.
    #[error("{0} cannot have a discipline behind it: only tbf and netem can")]
    NoChild(&'static str),
}

/// Every kind, for error messages.
const KINDS: &str = "pfifo, bfifo, pfifo_fast, fq, fq_codel, tbf, netem";

impl fmt::Display for QdiscSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Pfifo { limit } => write!(f, " limit {limit}")?,
            Self::Bfifo { limit } => write!(f, " limit {limit}b")?,
            Self::PfifoFast => {}
            Self::Fq(spec) => spec.print(f)?,
            Self::FqCodel(spec) => spec.print(f)?,
            Self::Tbf(spec, _) => spec.print(f)?,
            Self::Netem(spec, _) => spec.print(f)?,
        }
        match self.child() {
            Some(child) => write!(f, " | {child}"),
            None => Ok(()),
        }
    }
}

/// Writes the options that differ from their defaults.
struct Options<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
}

impl Options<'_, '_> {
    fn put<V: Copy + PartialEq>(
        &mut self,
        name: &str,
        value: V,
        default: V,
        print: impl FnOnce(V, &mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        if value == default {
            return Ok(());
        }
        write!(self.f, " {name}")?;
        print(value, self.f)
    }

    fn number(&mut self, name: &str, value: u32, default: u32) -> fmt::Result {
        self.put(name, value, default, |value, f| write!(f, " {value}"))
    }

    fn size(&mut self, name: &str, value: u32, default: u32) -> fmt::Result {
        self.put(name, value, default, |value, f| write!(f, " {value}b"))
    }

    fn time(&mut self, name: &str, value: Duration, default: Duration) -> fmt::Result {
        self.put(name, value, default, |value, f| write!(f, " {}", TimeText(value)))
    }

    fn threshold(&mut self, value: Option<Duration>) -> fmt::Result {
        self.time("ce_threshold", value.unwrap_or(Duration::MAX), Duration::MAX)
    }

    fn flag(&mut self, name: &str, is_set: bool) -> fmt::Result {
        self.put(name, is_set, false, |_, _| Ok(()))
    }

    fn share(&mut self, name: &str, share: Share) -> fmt::Result {
        self.put(name, share, Share::default(), print_share)
    }
}

fn print_share(share: Share, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " {}", share.chance)?;
    if share.correlation == Chance::NEVER { Ok(()) } else { write!(f, " {}", share.correlation) }
}

impl FqSpec {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (default, mut options) = (Self::default(), Options { f });
        let rate = |rate: Option<Rate>, f: &mut fmt::Formatter<'_>| match rate {
            Some(rate) => write!(f, " {rate}"),
            None => f.write_str(" 0bit"),
        };
        options.number("limit", self.limit, default.limit)?;
        options.number("flow_limit", self.flow_limit, default.flow_limit)?;
        options.number("buckets", self.buckets, default.buckets)?;
        options.number("orphan_mask", self.orphan_mask, default.orphan_mask)?;
        options.flag("nopacing", !self.pacing)?;
        options.size("quantum", self.quantum_bytes, default.quantum_bytes)?;
        options.size("initial_quantum", self.initial_quantum_bytes, default.initial_quantum_bytes)?;
        options.put("maxrate", self.maxrate, default.maxrate, rate)?;
        options.put("low_rate_threshold", self.low_rate_threshold, default.low_rate_threshold, rate)?;
        options.time("refill_delay", self.refill_delay, default.refill_delay)?;
        options.time("timer_slack", self.timer_slack, default.timer_slack)?;
        options.time("horizon", self.horizon, default.horizon)?;
        options.flag("horizon_cap", self.horizon_cap)?;
        options.threshold(self.ce_threshold)
    }
}

impl FqCodelSpec {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (default, mut options) = (Self::default(), Options { f });
        options.number("limit", self.limit, default.limit)?;
        options.number("flows", self.flows, default.flows)?;
        options.size("quantum", self.quantum_bytes, default.quantum_bytes)?;
        options.time("target", self.target, default.target)?;
        options.threshold(self.ce_threshold)?;
        options.time("interval", self.interval, default.interval)?;
        options.size("memory_limit", self.memory_limit_bytes, default.memory_limit_bytes)?;
        options.flag("noecn", !self.ecn)?;
        options.number("drop_batch", self.drop_batch, default.drop_batch)
    }
}

impl TbfSpec {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " rate {} burst {}b", self.rate, self.burst_bytes)?;
        match self.limit {
            None => Ok(()),
            Some(TbfLimit::Bytes(bytes)) => write!(f, " limit {bytes}b"),
            Some(TbfLimit::Latency(time)) => write!(f, " latency {}", TimeText(time)),
        }
    }
}

impl NetemSpec {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (default, mut options) = (Self::default(), Options { f });
        options.number("limit", self.limit, default.limit)?;
        if !self.delay.is_zero() || !self.jitter.is_zero() {
            write!(options.f, " delay {}", TimeText(self.delay))?;
            if !self.jitter.is_zero() {
                write!(options.f, " {}", TimeText(self.jitter))?;
                if self.delay_correlation != Chance::NEVER {
                    write!(options.f, " {}", self.delay_correlation)?;
                }
                options.put("distribution", self.distribution, default.distribution, |law, f| {
                    write!(f, " {}", law.name())
                })?;
            }
        }
        self.loss.print(options.f)?;
        options.flag("ecn", self.ecn)?;
        options.share("duplicate", self.duplicate)?;
        options.share("reorder", self.reorder)?;
        if self.gap > 1 {
            write!(options.f, " gap {}", self.gap)?;
        }
        options.share("corrupt", self.corrupt)?;
        if let Some(rate) = &self.rate {
            write!(options.f, " rate {}", rate.rate)?;
            // Trailing words that have no effect are left out.
            let words =
                [i64::from(rate.packet_overhead), i64::from(rate.cell_bytes), i64::from(rate.cell_overhead)];
            let count = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            words[..count].iter().try_for_each(|word| write!(options.f, " {word}"))?;
        }
        if let Some(slot) = &self.slot {
            write!(options.f, " slot {} {}", TimeText(slot.min_delay), TimeText(slot.max_delay))?;
            options.number("packets", slot.packets, 0)?;
            options.number("bytes", slot.bytes, 0)?;
        }
        match self.seed {
            Some(seed) => write!(options.f, " seed {seed}"),
            None => Ok(()),
        }
    }
}

impl Loss {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Random(share) => {
                f.write_str(" loss")?;
                print_share(*share, f)
            }
            Self::Gemodel { p, r, bad, good } => write!(f, " loss gemodel {p} {r} {bad} {good}"),
            Self::State { p13, p31, p32, p23, p14 } => {
                write!(f, " loss state {p13} {p31} {p32} {p23} {p14}")
            }
            Self::Pattern(numbers) => {
                f.write_str(" loss pattern ")?;
                let mut comma = "";
                for run in numbers.chunk_by(|a, b| a + 1 == *b) {
                    write!(f, "{comma}{}", run[0])?;
                    if run.len() > 1 {
                        write!(f, "-{}", run[run.len() - 1])?;
                    }
                    comma = ",";
                }
                Ok(())
            }
        }
    }
}

impl Distribution {
    /// The name that `tc` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Pareto => "pareto",
            Self::ParetoNormal => "paretonormal",
        }
    }
}

#[cfg(test)]
mod tests;
