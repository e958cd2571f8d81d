//! Parses the arguments of `tc qdisc add … root`, word by word. Every error names the option.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::iter::Peekable;
use core::ops::RangeInclusive;
use core::str::{FromStr, SplitAsciiWhitespace};

use taut_core::Duration;

use super::{MTU_BYTES, QdiscSpec, QdiscSpecError as Error, TX_QUEUE_LEN, TbfLimit, TbfSpec};
use crate::disciplines::fq::FqSpec;
use crate::disciplines::fq_codel::FqCodelSpec;
use crate::disciplines::netem::{Distribution, Loss, NetemRate, NetemSlot, NetemSpec, Share};
use crate::quantity::{QuantityError, Rate, parse_size, parse_time};
use crate::random::Chance;

const FIFO_OPTIONS: &str = "limit";
const FQ_OPTIONS: &str = "limit, flow_limit, buckets, orphan_mask, [no]pacing, quantum, initial_quantum, maxrate, \
                          low_rate_threshold, refill_delay, timer_slack, horizon, horizon_drop, horizon_cap, ce_threshold";
const FQ_CODEL_OPTIONS: &str =
    "limit, flows, quantum, target, interval, ce_threshold, memory_limit, [no]ecn, drop_batch";
const TBF_OPTIONS: &str = "rate, burst, limit, latency";
const NETEM_OPTIONS: &str =
    "limit, delay, distribution, loss, ecn, duplicate, corrupt, reorder, gap, rate, slot, seed";

/// Longest pattern of losses: it is expanded to single numbers.
const PATTERN_MAX: usize = 100_000;
/// Linux: at least one byte and less than 1 MB.
const QUANTUM_BYTES: RangeInclusive<u32> = 1..=1 << 20;

impl FromStr for QdiscSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut child = None;
        // From the last discipline to the root, each taking the one behind it as its child.
        for part in text.rsplit('|') {
            let spec = one(part, child.is_some())?;
            child = Some(match (spec, child) {
                (spec, None) => spec,
                (Self::Tbf(spec, _), Some(child)) => Self::Tbf(spec, Some(Box::new(child))),
                (Self::Netem(spec, _), Some(child)) => Self::Netem(spec, Some(Box::new(child))),
                (spec, Some(_)) => return Err(Error::NoChild(spec.kind())),
            });
        }
        child.ok_or(Error::Empty)
    }
}

fn one(text: &str, has_child: bool) -> Result<QdiscSpec, Error> {
    let mut words = text.split_ascii_whitespace();
    let kind = words.next().ok_or(Error::Empty)?;
    let options = |kind, known| Options { kind, known, words: words.clone().peekable(), seen: Vec::new() };
    match kind {
        "pfifo" => Ok(QdiscSpec::Pfifo { limit: options("pfifo", FIFO_OPTIONS).pfifo()? }),
        "bfifo" => Ok(QdiscSpec::Bfifo { limit: options("bfifo", FIFO_OPTIONS).bfifo()? }),
        "pfifo_fast" => options("pfifo_fast", "none").none().map(|()| QdiscSpec::PfifoFast),
        "fq" => options("fq", FQ_OPTIONS).fq().map(QdiscSpec::Fq),
        "fq_codel" => options("fq_codel", FQ_CODEL_OPTIONS).fq_codel().map(QdiscSpec::FqCodel),
        "tbf" => options("tbf", TBF_OPTIONS).tbf(has_child).map(|spec| QdiscSpec::Tbf(spec, None)),
        "netem" => options("netem", NETEM_OPTIONS).netem().map(|spec| QdiscSpec::Netem(Box::new(spec), None)),
        _ => Err(Error::UnknownKind(kind.to_owned())),
    }
}

/// The words after a kind.
struct Options<'a> {
    kind: &'static str,
    known: &'static str,
    words: Peekable<SplitAsciiWhitespace<'a>>,
    seen: Vec<&'static str>,
}

impl<'a> Options<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.words.next()
    }

    /// Notes an option, and refuses it if it was given before.
    fn once(&mut self, option: &'static str) -> Result<(), Error> {
        if self.seen.contains(&option) {
            return Err(Error::Twice { kind: self.kind, option });
        }
        self.seen.push(option);
        Ok(())
    }

    fn unknown<T>(&self, option: &str, unsupported: &[&str]) -> Result<T, Error> {
        let (kind, option) = (self.kind, option.to_owned());
        if unsupported.contains(&option.as_str()) {
            return Err(Error::Unsupported { kind, option });
        }
        Err(Error::UnknownOption { kind, option, known: self.known })
    }

    fn wrong<T>(&self, option: &'static str, text: &str, what: &'static str) -> Result<T, Error> {
        Err(Error::Value { kind: self.kind, option, text: text.to_owned(), what })
    }

    /// The word after an option that was not given before.
    fn value(&mut self, option: &'static str, what: &'static str) -> Result<&'a str, Error> {
        self.once(option)?;
        self.next().ok_or(Error::Missing { kind: self.kind, option, what })
    }

    /// The next word, if it looks like a number. No option name does.
    fn more(&mut self) -> Option<&'a str> {
        self.words
            .next_if(|word| word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
    }

    fn quantity<T>(&self, option: &'static str, result: Result<T, QuantityError>) -> Result<T, Error> {
        result.map_err(|error| Error::Quantity { kind: self.kind, option, error })
    }

    fn within(
        &self,
        option: &'static str,
        text: &str,
        value: u32,
        range: &RangeInclusive<u32>,
        what: &'static str,
    ) -> Result<u32, Error> {
        if range.contains(&value) { Ok(value) } else { self.wrong(option, text, what) }
    }

    fn number(
        &mut self,
        option: &'static str,
        range: RangeInclusive<u32>,
        what: &'static str,
    ) -> Result<u32, Error> {
        let text = self.value(option, what)?;
        let Ok(value) = text.parse() else { return self.wrong(option, text, what) };
        self.within(option, text, value, &range, what)
    }

    fn packets(&mut self, option: &'static str) -> Result<u32, Error> {
        self.number(option, 1..=u32::MAX, "a number of packets from 1 to 4294967295")
    }

    fn size(&mut self, option: &'static str) -> Result<u32, Error> {
        let text = self.value(option, "a size, as in 64kb")?;
        self.quantity(option, parse_size(text))
    }

    fn size_within(
        &mut self,
        option: &'static str,
        range: RangeInclusive<u32>,
        what: &'static str,
    ) -> Result<u32, Error> {
        let text = self.value(option, "a size, as in 64kb")?;
        let value = self.quantity(option, parse_size(text))?;
        self.within(option, text, value, &range, what)
    }

    fn time(&mut self, option: &'static str) -> Result<Duration, Error> {
        let text = self.value(option, "a time, as in 50ms")?;
        self.quantity(option, parse_time(text))
    }

    fn rate(&mut self, option: &'static str) -> Result<Rate, Error> {
        let text = self.value(option, "a rate, as in 100mbit")?;
        self.quantity(option, text.parse())
    }

    fn percent_of(&self, option: &'static str, text: &str) -> Result<Chance, Error> {
        let number = text.strip_suffix('%').unwrap_or(text);
        let is_number = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        match number.parse::<f64>() {
            Ok(percent) if is_number && percent <= 100.0 => Ok(Chance::from_share(percent / 100.0)),
            _ => self.wrong(option, text, "a percentage from 0% to 100%"),
        }
    }

    fn more_percent(&mut self, option: &'static str) -> Result<Option<Chance>, Error> {
        let word = self.more();
        word.map(|text| self.percent_of(option, text)).transpose()
    }

    /// `PERCENT [CORRELATION]`.
    fn share(&mut self, option: &'static str) -> Result<Share, Error> {
        let text = self.value(option, "a percentage, as in 1%")?;
        let chance = self.percent_of(option, text)?;
        let correlation = self.more_percent(option)?.unwrap_or_default();
        Ok(Share { chance, correlation })
    }

    fn none(mut self) -> Result<(), Error> {
        self.next().map_or(Ok(()), |word| self.unknown(word, &[]))
    }

    fn pfifo(mut self) -> Result<u32, Error> {
        let mut limit = TX_QUEUE_LEN;
        while let Some(word) = self.next() {
            match word {
                "limit" => limit = self.packets("limit")?,
                _ => return self.unknown(word, &[]),
            }
        }
        Ok(limit)
    }

    fn bfifo(mut self) -> Result<u32, Error> {
        let mut limit = TX_QUEUE_LEN * MTU_BYTES;
        while let Some(word) = self.next() {
            match word {
                "limit" => limit = self.size("limit")?,
                _ => return self.unknown(word, &[]),
            }
        }
        Ok(limit)
    }

    fn fq(mut self) -> Result<FqSpec, Error> {
        const QUANTUM: &str = "a size from 1b to 1mb";
        let mut spec = FqSpec::default();
        while let Some(word) = self.next() {
            match word {
                "limit" => spec.limit = self.packets("limit")?,
                "flow_limit" => spec.flow_limit = self.packets("flow_limit")?,
                "buckets" => {
                    spec.buckets = self.number("buckets", 1..=1 << 18, "a number from 1 to 262144")?;
                }
                "orphan_mask" => spec.orphan_mask = self.number("orphan_mask", 0..=u32::MAX, "a number")?,
                "pacing" | "nopacing" => {
                    self.once("pacing")?;
                    spec.pacing = word == "pacing";
                }
                "quantum" => spec.quantum_bytes = self.size_within("quantum", QUANTUM_BYTES, QUANTUM)?,
                "initial_quantum" => {
                    spec.initial_quantum_bytes =
                        self.size_within("initial_quantum", 0..=1 << 30, "a size up to 1gb")?;
                }
                "maxrate" => spec.maxrate = Some(self.rate("maxrate")?),
                "low_rate_threshold" => spec.low_rate_threshold = self.low_rate_threshold()?,
                "refill_delay" => spec.refill_delay = self.time("refill_delay")?,
                "timer_slack" => spec.timer_slack = self.time("timer_slack")?,
                "horizon" => spec.horizon = self.time("horizon")?,
                "horizon_drop" | "horizon_cap" => {
                    self.once("horizon_drop or horizon_cap")?;
                    spec.horizon_cap = word == "horizon_cap";
                }
                "ce_threshold" => spec.ce_threshold = Some(self.time("ce_threshold")?),
                _ => return self.unknown(word, &["defrate", "priomap", "weights", "offload_horizon"]),
            }
        }
        Ok(spec)
    }

    /// Zero is allowed here: then no rate is below the threshold.
    fn low_rate_threshold(&mut self) -> Result<Option<Rate>, Error> {
        let text = self.value("low_rate_threshold", "a rate, as in 550kbit")?;
        if matches!(text, "0" | "0bit") {
            return Ok(None);
        }
        self.quantity("low_rate_threshold", text.parse()).map(Some)
    }

    fn fq_codel(mut self) -> Result<FqCodelSpec, Error> {
        let mut spec = FqCodelSpec::default();
        while let Some(word) = self.next() {
            match word {
                "limit" => spec.limit = self.packets("limit")?,
                "flows" => spec.flows = self.number("flows", 1..=65_536, "a number from 1 to 65536")?,
                "quantum" => {
                    spec.quantum_bytes =
                        self.size_within("quantum", QUANTUM_BYTES, "a size from 1b to 1mb")?;
                }
                "target" => spec.target = self.time("target")?,
                "interval" => spec.interval = self.time("interval")?,
                "ce_threshold" => spec.ce_threshold = Some(self.time("ce_threshold")?),
                "memory_limit" => spec.memory_limit_bytes = self.size("memory_limit")?,
                "ecn" | "noecn" => {
                    self.once("ecn")?;
                    spec.ecn = word == "ecn";
                }
                "drop_batch" => spec.drop_batch = self.packets("drop_batch")?,
                _ => return self.unknown(word, &["ce_threshold_selector"]),
            }
        }
        Ok(spec)
    }

    fn tbf(mut self, has_child: bool) -> Result<TbfSpec, Error> {
        let (mut rate, mut burst, mut limit) = (None, None, None);
        while let Some(word) = self.next() {
            match word {
                "rate" => rate = Some(self.rate("rate")?),
                "burst" | "buffer" | "maxburst" => burst = Some(self.size("burst")?),
                "limit" => {
                    self.once("limit or latency")?;
                    limit = Some(TbfLimit::Bytes(self.size("limit")?));
                }
                "latency" => {
                    self.once("limit or latency")?;
                    limit = Some(TbfLimit::Latency(self.time("latency")?));
                }
                _ => {
                    return self
                        .unknown(word, &["mtu", "minburst", "mpu", "peakrate", "overhead", "linklayer"]);
                }
            }
        }
        let required = |option| Error::Required { kind: self.kind, option };
        if limit.is_none() && !has_child {
            return Err(required("limit or latency, or a discipline behind it"));
        }
        let (rate, burst_bytes) = (rate.ok_or(required("rate"))?, burst.ok_or(required("burst"))?);
        Ok(TbfSpec { rate, burst_bytes, limit })
    }

    fn netem(mut self) -> Result<NetemSpec, Error> {
        let mut spec = NetemSpec::default();
        while let Some(word) = self.next() {
            match word {
                "limit" => spec.limit = self.packets("limit")?,
                "delay" | "latency" => {
                    spec.delay = self.time("delay")?;
                    if let Some(text) = self.more() {
                        spec.jitter = self.quantity("delay", parse_time(text))?;
                        let correlation = self.more_percent("delay")?.unwrap_or_default();
                        // Of no jitter, it means nothing, and is not printed.
                        let has_jitter = !spec.jitter.is_zero();
                        spec.delay_correlation = if has_jitter { correlation } else { Chance::NEVER };
                    }
                }
                "distribution" => spec.distribution = self.distribution()?,
                "loss" | "drop" => spec.loss = self.loss()?,
                "ecn" => {
                    self.once("ecn")?;
                    spec.ecn = true;
                }
                "duplicate" => spec.duplicate = self.share("duplicate")?,
                "corrupt" => spec.corrupt = self.share("corrupt")?,
                "reorder" => spec.reorder = self.share("reorder")?,
                "gap" => spec.gap = self.number("gap", 1..=u32::MAX, "a number from 1")?,
                "rate" => spec.rate = Some(self.netem_rate()?),
                "slot" => spec.slot = Some(self.slot()?),
                "seed" => {
                    let text = self.value("seed", "a number")?;
                    spec.seed = match text.parse() {
                        Ok(seed) => Some(seed),
                        Err(_) => return self.wrong("seed", text, "a number below 2^64"),
                    };
                }
                _ => return self.unknown(word, &[]),
            }
        }
        let required = |option| Err(Error::Required { kind: self.kind, option });
        if self.seen.contains(&"distribution") && spec.jitter.is_zero() {
            return required("a delay with jitter for its distribution");
        }
        if !spec.reorder.chance.is_never() {
            if spec.delay.is_zero() {
                return required("a delay that reordered packets can skip");
            }
            spec.gap = spec.gap.max(1);
        } else if spec.gap != 0 {
            return required("reorder for a gap");
        }
        if spec.ecn && spec.loss == Loss::None {
            return required("loss for ecn");
        }
        Ok(spec)
    }

    fn distribution(&mut self) -> Result<Distribution, Error> {
        const KNOWN: [Distribution; 4] =
            [Distribution::Uniform, Distribution::Normal, Distribution::Pareto, Distribution::ParetoNormal];
        const WHAT: &str = "one of uniform, normal, pareto, paretonormal";
        let text = self.value("distribution", WHAT)?;
        match KNOWN.into_iter().find(|law| law.name() == text) {
            Some(law) => Ok(law),
            None => self.wrong("distribution", text, WHAT),
        }
    }

    fn loss(&mut self) -> Result<Loss, Error> {
        const WHAT: &str = "a percentage, or random, gemodel, state or pattern";
        let text = self.value("loss", WHAT)?;
        let missing = Error::Missing { kind: self.kind, option: "loss", what: "a percentage, as in 1%" };
        match text {
            "gemodel" => {
                let p = self.more_percent("loss")?.ok_or(missing)?;
                let r = self.more_percent("loss")?.unwrap_or(p.complement());
                let bad = self.more_percent("loss")?.unwrap_or(Chance::ALWAYS);
                let good = self.more_percent("loss")?.unwrap_or(Chance::NEVER);
                Ok(Loss::Gemodel { p, r, bad, good })
            }
            "state" => {
                let p13 = self.more_percent("loss")?.ok_or(missing)?;
                let p31 = self.more_percent("loss")?.unwrap_or(p13.complement());
                let p32 = self.more_percent("loss")?.unwrap_or(Chance::NEVER);
                let p23 = self.more_percent("loss")?.unwrap_or(Chance::ALWAYS);
                let p14 = self.more_percent("loss")?.unwrap_or(Chance::NEVER);
                Ok(Loss::State { p13, p31, p32, p23, p14 })
            }
            "pattern" => self.pattern(),
            "random" => {
                let chance = self.more_percent("loss")?.ok_or(missing)?;
                let correlation = self.more_percent("loss")?.unwrap_or_default();
                Ok(Loss::Random(Share { chance, correlation }))
            }
            _ if text.starts_with(|c: char| c.is_ascii_alphabetic()) => self.wrong("loss", text, WHAT),
            _ => {
                let chance = self.percent_of("loss", text)?;
                let correlation = self.more_percent("loss")?.unwrap_or_default();
                Ok(Loss::Random(Share { chance, correlation }))
            }
        }
    }

    /// A list such as `1,4-6`.
    fn pattern(&mut self) -> Result<Loss, Error> {
        const WHAT: &str = "a list of packet numbers from 1 on, in ascending order, as in 1,4-6";
        let text = self.next().ok_or(Error::Missing { kind: self.kind, option: "loss", what: WHAT })?;
        let mut numbers: Vec<u64> = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
                return self.wrong("loss", text, WHAT);
            };
            let ascends = first > numbers.last().copied().unwrap_or(0) && last >= first;
            if !ascends || last - first >= (PATTERN_MAX - numbers.len()) as u64 {
                return self.wrong("loss", text, WHAT);
            }
            numbers.extend(first..=last);
        }
        Ok(Loss::Pattern(numbers))
    }

    /// `RATE [PACKETOVERHEAD [CELLSIZE [CELLOVERHEAD]]]`.
    fn netem_rate(&mut self) -> Result<NetemRate, Error> {
        let rate = self.rate("rate")?;
        let mut spec = NetemRate { rate, packet_overhead: 0, cell_bytes: 0, cell_overhead: 0 };
        let bytes = |this: &mut Self| match this.more().map(|text| (text, text.parse::<i32>())) {
            Some((_, Ok(bytes))) if bytes.unsigned_abs() < 1 << 20 => Ok(Some(bytes)),
            Some((text, _)) => this.wrong("rate", text, "a number of bytes"),
            None => Ok(None),
        };
        if let Some(overhead) = bytes(self)? {
            spec.packet_overhead = overhead;
            if let Some(cell) = bytes(self)? {
                spec.cell_bytes = match u32::try_from(cell) {
                    Ok(cell) => cell,
                    Err(_) => return self.wrong("rate", "cell size", "a number of bytes from 0"),
                };
                spec.cell_overhead = bytes(self)?.unwrap_or_default();
            }
        }
        Ok(spec)
    }

    /// `MIN [MAX] [packets N] [bytes N]`.
    fn slot(&mut self) -> Result<NetemSlot, Error> {
        const WHAT: &str = "a time, as in 800us";
        let text = self.value("slot", WHAT)?;
        if text == "distribution" {
            return Err(Error::Unsupported { kind: self.kind, option: "slot distribution".to_owned() });
        }
        let min_delay = self.quantity("slot", parse_time(text))?;
        let max_delay = match self.more() {
            Some(text) => {
                let max = self.quantity("slot", parse_time(text))?;
                if max < min_delay {
                    return self.wrong("slot", text, "a time no shorter than the least delay");
                }
                max
            }
            None => min_delay,
        };
        let mut spec = NetemSlot { min_delay, max_delay, packets: 0, bytes: 0 };
        while let Some(word) = self.words.next_if(|word| matches!(*word, "packets" | "bytes")) {
            if word == "packets" {
                spec.packets = self.packets("packets")?;
            } else {
                spec.bytes = self.size("bytes")?;
            }
        }
        Ok(spec)
    }
}
