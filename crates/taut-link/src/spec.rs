//! A link in the words of `tc`: `rate 100mbit limit 64kb delay 20ms`. Called by code that builds a link.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use taut_core::Duration;

use crate::delay::Delay;
use crate::disciplines::spec::{QdiscSpec, TX_QUEUE_LEN, TbfLimit, TbfSpec};
use crate::disciplines::tree::Tree;
use crate::quantity::{QuantityError, Rate, parse_size, parse_time};

/// Smallest default burst of a line: one packet of Ethernet's length.
const BURST_MIN_BYTES: u32 = 1_514;
/// Default burst of a line, as time: how late a driver's timer may be without loss of rate.
const BURST_TIME: Duration = Duration::from_millis(1);

/// The limit of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes, headers included.
    Bytes(u32),
    /// Packets; a super-packet counts once.
    Packets(u32),
    /// The bytes that pass in this time, plus the burst. Only with a rate.
    Latency(Duration),
}

/// The link between a stack and its device. The default is none: packets pass as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkSpec {
    /// Rate at which packets leave the queue; `None` for the device's own rate.
    pub rate: Option<Rate>,
    /// Bytes that may leave at once after a pause; 1 ms of the rate when `None`.
    pub burst_bytes: Option<u32>,
    /// Limit of the queue; 1000 packets when `None`.
    pub limit: Option<Limit>,
    /// Delay of the wire behind the queue.
    pub delay: Duration,
    /// How long completions are collected before the stack is notified, as by a NIC with coalesced
    /// interrupts. `ethtool -C`: `tx-usecs`.
    pub completion_delay: Duration,
}

impl LinkSpec {
    /// A line with this rate.
    #[must_use]
    pub fn shaped(rate: Rate) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }

    /// Sets how many bytes may leave at once after a pause.
    #[must_use]
    pub const fn burst(mut self, bytes: u32) -> Self {
        self.burst_bytes = Some(bytes);
        self
    }

    /// Sets the limit of the queue.
    #[must_use]
    pub const fn limit(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets the delay of the wire.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets how long completions are collected.
    #[must_use]
    pub const fn completion_delay(mut self, delay: Duration) -> Self {
        self.completion_delay = delay;
        self
    }

    /// The burst in effect; 0 without a rate.
    #[must_use]
    pub fn effective_burst_bytes(&self) -> u32 {
        let Some(rate) = self.rate else { return 0 };
        self.burst_bytes.unwrap_or_else(|| {
            u32::try_from(rate.bytes_in(BURST_TIME)).unwrap_or(u32::MAX).max(BURST_MIN_BYTES)
        })
    }

    /// The queue described by the rate and the limit.
    #[must_use]
    pub fn qdisc(&self) -> QdiscSpec {
        let limit = self.limit.unwrap_or(Limit::Packets(TX_QUEUE_LEN));
        let Some(rate) = self.rate else {
            return match limit {
                Limit::Bytes(bytes) => QdiscSpec::Bfifo { limit: bytes },
                Limit::Packets(packets) => QdiscSpec::Pfifo { limit: packets },
                // Without a rate all packets pass at once.
                Limit::Latency(_) => QdiscSpec::Pfifo { limit: u32::MAX },
            };
        };
        let tbf = |limit| TbfSpec { rate, burst_bytes: self.effective_burst_bytes(), limit };
        match limit {
            Limit::Bytes(bytes) => QdiscSpec::Tbf(tbf(Some(TbfLimit::Bytes(bytes))), None),
            // The packet at the head waits outside the child.
            Limit::Packets(packets) => {
                let child = QdiscSpec::Pfifo { limit: packets.saturating_sub(1).max(1) };
                QdiscSpec::Tbf(tbf(None), Some(Box::new(child)))
            }
            Limit::Latency(latency) => QdiscSpec::Tbf(tbf(Some(TbfLimit::Latency(latency))), None),
        }
    }

    /// An empty queue of that kind.
    #[must_use]
    pub fn shaper<T: Clone>(&self) -> Tree<T> {
        self.qdisc().build(0)
    }

    /// The wire, if it has a delay.
    #[must_use]
    pub fn wire<T>(&self) -> Option<Delay<T>> {
        (!self.delay.is_zero()).then(|| Delay::new(self.delay))
    }
}

/// A text that does not describe a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A word that is not a parameter.
    #[error("{0:?} is not a parameter of a link; use rate, burst, limit, packets, latency, delay, tx-usecs")]
    Unknown(String),
    /// A parameter without its value.
    #[error("{0} needs a value")]
    Missing(&'static str),
    /// A parameter given twice, or two with the same meaning.
    #[error("{0} was given twice (limit, packets and latency are one parameter)")]
    Twice(&'static str),
    /// A parameter that needs a rate.
    #[error("{0} needs a rate")]
    NeedsRate(&'static str),
    /// Not a number of packets.
    #[error("{0:?} is not a number of packets: write one from 1 to 4294967295")]
    Packets(String),
    /// An invalid value.
    #[error(transparent)]
    Value(#[from] QuantityError),
}

impl FromStr for LinkSpec {
    type Err = SpecError;

    /// Reads `rate RATE`, `burst SIZE`, one of `limit SIZE`, `packets NUMBER`, `latency TIME`, then `delay
    /// TIME` and `tx-usecs TIME`, in any order, each optional.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut words = text.split_ascii_whitespace();
        let mut spec = Self::default();
        let (mut delay, mut completion_delay) = (None, None);
        while let Some(word) = words.next() {
            let mut value = |name| words.next().ok_or(SpecError::Missing(name));
            match word {
                "rate" => once(&mut spec.rate, "rate", value("rate")?.parse()?)?,
                "burst" | "buffer" => once(&mut spec.burst_bytes, "burst", parse_size(value("burst")?)?)?,
                "limit" => once(&mut spec.limit, "limit", Limit::Bytes(parse_size(value("limit")?)?))?,
                "packets" => once(&mut spec.limit, "packets", Limit::Packets(packets(value("packets")?)?))?,
                "latency" => {
                    once(&mut spec.limit, "latency", Limit::Latency(parse_time(value("latency")?)?))?;
                }
                "delay" => once(&mut delay, "delay", parse_time(value("delay")?)?)?,
                "tx-usecs" => once(&mut completion_delay, "tx-usecs", parse_time(value("tx-usecs")?)?)?,
                _ => return Err(SpecError::Unknown(word.to_owned())),
            }
        }
        if spec.rate.is_none() {
            if spec.burst_bytes.is_some() {
                return Err(SpecError::NeedsRate("burst"));
            }
            if matches!(spec.limit, Some(Limit::Latency(_))) {
                return Err(SpecError::NeedsRate("latency"));
            }
        }
        spec.delay = delay.unwrap_or_default();
        spec.completion_delay = completion_delay.unwrap_or_default();
        Ok(spec)
    }
}

fn once<V>(place: &mut Option<V>, name: &'static str, value: V) -> Result<(), SpecError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(SpecError::Twice(name)),
    }
}

fn packets(text: &str) -> Result<u32, SpecError> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| SpecError::Packets(text.to_owned()))
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        let mut word = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn fmt::Display| {
            write!(f, "{}{name} {value}", core::mem::replace(&mut gap, " "))
        };
        if let Some(rate) = self.rate {
            word(f, "rate", &rate)?;
        }
        if let Some(bytes) = self.burst_bytes {
            word(f, "burst", &format_args!("{bytes}b"))?;
        }
        match self.limit {
            Some(Limit::Bytes(bytes)) => word(f, "limit", &format_args!("{bytes}b"))?,
            Some(Limit::Packets(packets)) => word(f, "packets", &packets)?,
            Some(Limit::Latency(time)) => word(f, "latency", &format_args!("{}ns", time.as_nanos()))?,
            None => {}
        }
        for (name, time) in [("delay", self.delay), ("tx-usecs", self.completion_delay)] {
            match time.as_nanos() {
                0 => {}
                ns if ns.is_multiple_of(1_000_000) => word(f, name, &format_args!("{}ms", time.as_millis()))?,
                ns if ns.is_multiple_of(1_000) => word(f, name, &format_args!("{}us", time.as_micros()))?,
                ns => word(f, name, &format_args!("{ns}ns"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use taut_core::Instant;

    use super::*;
    use crate::qdisc::{Qdisc as _, Verdict};
    use crate::tests::packet;

    #[test]
    fn every_word_is_read_and_printed() {
        let spec: LinkSpec = "delay 20ms rate 100mbit burst 4kb limit 64kb tx-usecs 16us".parse().unwrap();
        let expected = LinkSpec::shaped("100mbit".parse().unwrap())
            .burst(4_096)
            .limit(Limit::Bytes(65_536))
            .delay(Duration::from_millis(20))
            .completion_delay(Duration::from_micros(16));
        assert_eq!(spec, expected);
        assert_eq!(spec.to_string(), "rate 100mbit burst 4096b limit 65536b delay 20ms tx-usecs 16us");
        for text in ["", "rate 1gbit latency 50000000ns", "packets 10", "delay 1500us", "delay 7ns"] {
            assert_eq!(text.parse::<LinkSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<LinkSpec>().unwrap_err();
        assert_eq!(error("speed 1gbit"), SpecError::Unknown("speed".into()));
        assert_eq!(error("rate"), SpecError::Missing("rate"));
        assert_eq!(error("rate 1gbit rate 2gbit"), SpecError::Twice("rate"));
        assert_eq!(error("rate 1gbit limit 64kb latency 50ms"), SpecError::Twice("latency"));
        assert_eq!(error("burst 64kb"), SpecError::NeedsRate("burst"));
        assert_eq!(error("latency 1ms"), SpecError::NeedsRate("latency"));
        assert_eq!(error("packets 0"), SpecError::Packets("0".into()));
        assert!(matches!(error("rate 1parsec"), SpecError::Value(_)));
    }

    #[test]
    fn the_default_burst_is_a_millisecond_and_at_least_a_packet() {
        let burst = |text: &str| text.parse::<LinkSpec>().unwrap().effective_burst_bytes();
        assert_eq!(burst("rate 1gbit"), 125_000);
        assert_eq!(burst("rate 1mbit"), 1_514);
        assert_eq!(burst("rate 1gbit burst 3000b"), 3_000);
        assert_eq!(burst(""), 0);
    }

    #[test]
    fn limits_hold_with_and_without_a_rate() {
        let now = Instant::from_nanos(1);
        let room = |text: &str| {
            let mut queue = text.parse::<LinkSpec>().unwrap().shaper();
            (0..5_000).take_while(|&i| queue.enqueue(now, packet(i, 1_000)) == Verdict::Taken).count()
        };
        assert_eq!(room("rate 8mbit"), 1_000);
        assert_eq!(room(""), 1_000);
        assert_eq!(room("rate 8mbit packets 10"), 10);
        assert_eq!(room("packets 10"), 10);
        assert_eq!(room("rate 8mbit limit 3000b"), 3);
        // 8 Mbit/s are 1000 bytes per millisecond; the burst is added.
        assert_eq!(room("rate 8mbit burst 1000b latency 9ms"), 10);
        assert_eq!(room("limit 3500b"), 3);
    }

    #[test]
    fn a_wire_is_there_when_it_takes_time() {
        assert!("delay 0".parse::<LinkSpec>().unwrap().wire::<u32>().is_none());
        assert!("delay 1us".parse::<LinkSpec>().unwrap().wire::<u32>().is_some());
    }
}
