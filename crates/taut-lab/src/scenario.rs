//! An experiment as a file: a link, hosts, flows, the differences between its variants, the metrics, and the
//! published figures. `load.rs` reads it and applies the changes of variants and command lines, `link.rs` has
//! the line in the middle, `value.rs` knows the units, `keys.rs` describes every key, `controllers.rs` looks
//! up the congestion controls, `builtin.rs` has the built-in scenarios. Called by the runners.

pub mod builtin;
mod controllers;
pub mod keys;
mod link;
mod load;
mod names;
pub mod value;

use std::collections::BTreeMap;

use serde::Deserialize;
use taut_core::congestion::Registry;
use taut_core::{Algorithm, ConnOptions, Duration};
use taut_link::{NicSpec, QdiscSpec, Rate};

pub use link::{BurstSpec, FaultSpec, Link, PolicerText, RateStep};
pub use load::{Change, Document, LoadError, ReadFile, Variation};
pub use names::slug;
use names::twin;
use value::{BqlText, Bytes, Sysctls, Text};

/// An experiment, with all changes applied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// One line.
    pub title: String,
    /// What it shows, and how.
    #[serde(default)]
    pub about: String,
    /// Where the published figures come from.
    pub source: Option<String>,
    /// Length of a run, in virtual time.
    pub duration: Text<Duration>,
    /// The part at the beginning that metrics leave out.
    pub warm_up: Option<Text<Duration>>,
    /// Time between two points of a series; a hundredth of the duration if not given.
    pub interval: Option<Text<Duration>>,
    /// Runs of each variant, unless the command line says otherwise.
    #[serde(default = "one")]
    pub seeds: u32,
    /// The running time that `taut lab list` prints.
    pub takes: Option<String>,
    /// Whether it can also run live.
    #[serde(default)]
    pub live: bool,
    /// Congestion control of all flows that do not choose one: `cubic`, or with parameters `mine:gain=2.5`.
    pub congestion: Option<String>,
    /// The network between the hosts.
    #[serde(default)]
    pub topology: Topology,
    /// The bottleneck, or in a pair the cable.
    pub link: Link,
    /// What simulated machines are like where `hosts` does not say it.
    #[serde(default)]
    pub host: HostKind,
    /// The machines.
    #[serde(default)]
    pub hosts: Hosts,
    /// The traffic.
    pub flows: Vec<FlowSpec>,
    /// The columns to compare.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// The conditions under which they are compared.
    #[serde(default)]
    pub cases: Vec<Case>,
    /// Metrics of the table, in its order.
    pub measure: Vec<String>,
    /// Published figures: metric, variant, text.
    #[serde(default)]
    pub published: Published,
    /// The congestion controls that may be named: the built-in ones and the user's.
    #[serde(skip)]
    pub controllers: Registry,
}

/// Published figures by metric and variant.
pub type Published = BTreeMap<String, BTreeMap<String, String>>;

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

/// The network between the hosts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Topology {
    /// Its kind.
    #[serde(default)]
    pub kind: Kind,
    /// Pairs of hosts of a dumbbell.
    pub pairs: Option<u32>,
    /// Links of a parking lot; 3 if not given.
    pub hops: Option<u32>,
    /// Rate of NICs and of routers' ports towards the hosts of a dumbbell; ten times the link's if not given.
    pub access: Option<Text<Rate>>,
    /// One-way delays of the senders' own links, assigned round robin.
    #[serde(default)]
    pub delays: Vec<Text<Duration>>,
    /// The queue in front of the line in the middle: a queue discipline in `tc`'s words; `pfifo limit 1000`
    /// if not given.
    pub queue: Option<Text<QdiscSpec>>,
    /// Instead of `queue`: a FIFO of as many whole packets as the link carries in this many round-trip times
    /// without queues, at least one.
    pub queue_bdp: Option<f64>,
}

/// Kinds of topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Two hosts and a cable: the link is that of their NICs.
    #[default]
    Pair,
    /// The same in the simulator. Live, nothing emulates the link: taut is on the TUN, the kernel sends over
    /// a pair of Ethernet interfaces, both as fast as the machine allows.
    Direct,
    /// Pairs of hosts around a link between two routers.
    Dumbbell,
    /// Routers in a row, with equal links between them: pair 0 is at the ends, pair 1 around the first link,
    /// pair 2 around the second.
    ParkingLot,
}

impl Kind {
    /// Whether there are two hosts with nothing between them.
    pub(crate) const fn is_pair(self) -> bool {
        matches!(self, Self::Pair | Self::Direct)
    }
}

/// What simulated machines are like: `sim/machine.rs` has the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum HostKind {
    /// Their work takes no time, and nothing is late.
    #[serde(rename = "ideal")]
    Ideal,
    /// As measured at the ends of live runs under this kernel: taut's thread as the sender, the kernel as the
    /// receiver.
    #[default]
    #[serde(rename = "linux-6.18")]
    Linux618,
}

/// The machines at both ends; in a dumbbell, all on one side are equal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Hosts {
    /// Machines that open the flows.
    #[serde(default)]
    pub sender: HostText,
    /// Machines that accept them.
    #[serde(default)]
    pub receiver: HostText,
}

/// A machine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostText {
    /// Settings of its stack.
    #[serde(default)]
    pub sysctls: Sysctls,
    /// Its NIC.
    #[serde(default)]
    pub nic: NicText,
    /// Its root queue discipline, in `tc`'s words; `pfifo_fast` if not given.
    pub qdisc: Option<Text<QdiscSpec>>,
    /// Whether the stack leaves pacing to a queue discipline that can pace.
    pub delegate_pacing: Option<bool>,
    /// `sk_pacing_shift`.
    pub pacing_shift: Option<u8>,
    /// Largest IP packet.
    pub mtu: Option<u16>,
    /// Whether packets that arrive together are answered together, as taut's driver does, rather than one by
    /// one.
    pub batched: Option<bool>,
    /// How long its work takes; no time if not given.
    #[serde(default)]
    pub cpu: CpuText,
}

/// A NIC, in `ethtool`'s names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NicText {
    /// `-K tso`.
    pub tso: Option<bool>,
    /// `-K gro`.
    pub gro: Option<bool>,
    /// `-G tx`: descriptors.
    pub tx: Option<u32>,
    /// `-G rx`.
    pub rx: Option<u32>,
    /// `-C tx-usecs`.
    pub tx_usecs: Option<u32>,
    /// Each completion comes back up to this many microseconds later, and so in any order: a tunnel's worker.
    pub tx_late: Option<u32>,
    /// `-C tx-frames`.
    pub tx_frames: Option<u32>,
    /// `-C rx-usecs`.
    pub rx_usecs: Option<u32>,
    /// `-C rx-frames`.
    pub rx_frames: Option<u32>,
    /// `on`, `off`, or a fixed limit.
    pub bql: Option<Text<BqlText>>,
}

/// How long work takes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CpuText {
    /// Taking an interrupt.
    pub interrupt: Option<Text<Duration>>,
    /// A packet's way up through the stack; a merged packet counts once.
    pub rx_packet: Option<Text<Duration>>,
    /// Each segment of that packet.
    pub rx_segment: Option<Text<Duration>>,
    /// A packet's way down through the stack.
    pub tx_packet: Option<Text<Duration>>,
    /// Taking back a sent packet.
    pub completion: Option<Text<Duration>>,
    /// Handling a timer.
    pub timer: Option<Text<Duration>>,
    /// Switching from one thread to another.
    pub context_switch: Option<Text<Duration>>,
    /// A call from an application.
    pub syscall: Option<Text<Duration>>,
    /// All work takes up to this share longer.
    pub jitter: Option<f64>,
    /// Whether another core takes the interrupts for sent packets.
    pub completions_apart: Option<bool>,
    /// Time between the sender's look at the bytes below it and its request to be notified; a completion in
    /// this time wakes no sender.
    pub lost_wakeup: Option<Text<Duration>>,
    /// How late the host's thread wakes up.
    pub wakeups: Option<WakeupsText>,
}

/// How late a thread wakes up: by distributions that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeupsText {
    /// Not at all.
    Exact,
    /// As on a machine that has nothing else to do.
    Quiet,
    /// As on a machine whose cores other programs keep busy.
    Busy,
}

/// Applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppKind {
    /// Writes as much as it can; with `every`, one write at each interval; with `on` and `off`, writes and
    /// pauses in alternation.
    Bulk,
    /// Writes while the socket is writable, like an event loop.
    Stream,
    /// Requests and responses, one after the other.
    Rr,
    /// Web pages, with a connection for each.
    Web,
}

impl AppKind {
    /// Its name in the file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Stream => "stream",
            Self::Rr => "rr",
            Self::Web => "web",
        }
    }
}

/// One kind of traffic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowSpec {
    /// The application.
    pub app: AppKind,
    /// How many of them.
    #[serde(default = "one")]
    pub count: u32,
    /// The pair that it uses, from 0; round robin over all pairs if not given.
    pub pair: Option<u32>,
    /// Part of the conditions: metrics leave it out, and live the kernel always sends it, from another host
    /// at the sender's end.
    #[serde(default)]
    pub beside: bool,
    /// When the first starts.
    pub start: Option<Text<Duration>>,
    /// Delay between the starts of consecutive ones.
    pub stagger: Option<Text<Duration>>,
    /// Each starts up to this much later, by the seed.
    pub phase: Option<Text<Duration>>,
    /// Bytes in all (`bulk`).
    pub total: Option<Text<Bytes>>,
    /// Bytes a write (`bulk`, `stream`).
    pub write: Option<Text<Bytes>>,
    /// Time between writes (`bulk`).
    pub every: Option<Text<Duration>>,
    /// Mean time of writing (`bulk`).
    pub on: Option<Text<Duration>>,
    /// Mean time of silence (`bulk`).
    pub off: Option<Text<Duration>>,
    /// Bytes of a request (`rr`).
    pub request: Option<Text<Bytes>>,
    /// Bytes of a response (`rr`).
    pub response: Option<Text<Bytes>>,
    /// Requests in all (`rr`).
    pub transactions: Option<u64>,
    /// Time between requests (`rr`: exactly) or pages (`web`: on average).
    pub think: Option<Text<Duration>>,
    /// Smallest page (`web`).
    pub least: Option<Text<Bytes>>,
    /// Largest page (`web`).
    pub most: Option<Text<Bytes>>,
    /// Socket options of the sender.
    #[serde(default)]
    pub options: OptionText,
}

impl FlowSpec {
    /// A key that is given but does not apply to the application.
    fn odd_key(&self) -> Option<&'static str> {
        use AppKind::{Bulk, Rr, Stream, Web};
        let keys: [(&str, bool, &[AppKind]); 10] = [
            ("total", self.total.is_some(), &[Bulk]),
            ("write", self.write.is_some(), &[Bulk, Stream]),
            ("every", self.every.is_some(), &[Bulk]),
            ("on", self.on.is_some(), &[Bulk]),
            ("off", self.off.is_some(), &[Bulk]),
            ("request", self.request.is_some(), &[Rr]),
            ("response", self.response.is_some(), &[Rr]),
            ("transactions", self.transactions.is_some(), &[Rr]),
            ("least", self.least.is_some(), &[Web]),
            ("most", self.most.is_some(), &[Web]),
        ];
        let odd = keys.into_iter().find(|(_, given, apps)| *given && !apps.contains(&self.app));
        let think = self.think.is_some() && !matches!(self.app, Rr | Web);
        odd.map(|(key, ..)| key).or(think.then_some("think"))
    }
}

/// Socket options.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OptionText {
    /// `TCP_NODELAY`.
    #[serde(default)]
    pub nodelay: bool,
    /// `TCP_NOTSENT_LOWAT`.
    pub notsent_lowat: Option<Text<Bytes>>,
    /// `SO_SNDBUF`; doubled, as in Linux.
    pub sndbuf: Option<Text<Bytes>>,
    /// `SO_RCVBUF`; doubled.
    pub rcvbuf: Option<Text<Bytes>>,
    /// `SO_MAX_PACING_RATE`.
    pub max_pacing_rate: Option<Text<Rate>>,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
    /// The congestion control that `congestion` names, or else the one of all flows.
    #[serde(skip)]
    pub algorithm: Option<Algorithm>,
    /// `TCP_MAXSEG`.
    pub maxseg: Option<u16>,
}

impl OptionText {
    /// The options as the stack takes them.
    #[must_use]
    pub fn options(&self) -> ConnOptions {
        let size = |bytes: &Option<Text<Bytes>>| {
            bytes.as_ref().map(|text| u32::try_from(text.value.0).unwrap_or(u32::MAX))
        };
        ConnOptions {
            nodelay: self.nodelay,
            notsent_lowat: size(&self.notsent_lowat).unwrap_or(0),
            sndbuf: size(&self.sndbuf),
            rcvbuf: size(&self.rcvbuf),
            max_pacing_rate: self.max_pacing_rate.as_ref().map(|rate| rate.value.bytes_per_second()),
            congestion: self.algorithm.clone(),
            maxseg: self.maxseg,
            ..ConnOptions::default()
        }
    }
}

/// A variant: one of the things that are compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    /// Heading of its column.
    pub name: String,
    /// Changes that it makes: values by path.
    #[serde(default)]
    pub set: toml::Table,
    /// Whether today's kernel behaves like this, so that a column for the kernel belongs here.
    #[serde(default)]
    pub linux: bool,
    /// Whether it can run live. In a live scenario, a variant can unless it says otherwise.
    #[serde(default = "yes")]
    pub live: bool,
    /// Whether it can run live over an Ethernet interface, with the sender's queue discipline in the kernel.
    #[serde(default)]
    pub packet: bool,
}

/// A case: a condition under which the variants are compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    /// Heading of its part of the table.
    pub name: String,
    /// Changes that it makes.
    #[serde(default)]
    pub set: toml::Table,
    /// Figures published for it.
    #[serde(default)]
    pub published: Published,
}

impl Scenario {
    /// The part at the beginning that metrics leave out.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        self.warm_up.as_ref().map_or(Duration::ZERO, |text| text.value)
    }

    /// Time between two points of a series.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let hundredth = Duration::from_nanos((self.duration.value.as_nanos() / 100).max(1));
        self.interval.as_ref().map_or(hundredth, |text| text.value)
    }

    /// The queue in the middle of a dumbbell.
    #[must_use]
    pub fn bottleneck_queue(&self) -> QdiscSpec {
        let Some(share) = self.topology.queue_bdp else {
            let queue = self.topology.queue.as_ref();
            return queue.map_or(QdiscSpec::Pfifo { limit: 1_000 }, |text| text.value.clone());
        };
        let own = self.topology.delays.first().map_or(Duration::ZERO, |delay| delay.value);
        let rtt_s = 2.0 * (self.link.delay() + own).as_nanos() as f64 / 1e9;
        let mtu = u32::from(self.hosts.sender.mtu.unwrap_or(1_500));
        let packet_bytes = f64::from(mtu + NicSpec::ETHERNET_BYTES);
        let packets = share * rtt_s * self.link.rate.value.bytes_per_second() as f64 / packet_bytes;
        QdiscSpec::Pfifo { limit: packets.round().clamp(1.0, 1e9) as u32 }
    }

    /// Mistakes that a single value does not show, whose range `keys.rs` has: returns the path of the wrong
    /// key, and the reason.
    fn mistake(&self) -> Option<(String, String)> {
        let wrong = |path: &str, why: String| Some((path.to_owned(), why));
        if self.duration.value.is_zero() {
            return wrong("duration", "must be greater than 0".into());
        }
        if self.warm_up() >= self.duration.value {
            return wrong("warm-up", "must be shorter than the duration".into());
        }
        if self.interval().is_zero() || self.duration.value.as_nanos() / self.interval().as_nanos() > 100_000
        {
            return wrong("interval", "too short: a run has at most 100,000 intervals".into());
        }
        if self.flows.is_empty() {
            return wrong("flows", "there are none: add at least one [[flows]]".into());
        }
        let cases: Vec<&str> = self.cases.iter().map(|case| &*case.name).collect();
        let variants: Vec<&str> = self.variants.iter().map(|variant| &*variant.name).collect();
        for (list, names) in [("cases", cases), ("variants", variants)] {
            if let Some((index, why)) = twin(&names) {
                return wrong(&format!("{list}.{index}.name"), why);
            }
        }
        for (index, flow) in self.flows.iter().enumerate() {
            if let Some(key) = flow.odd_key() {
                return wrong(
                    &format!("flows.{index}.{key}"),
                    format!("does not apply to app = \"{}\"", flow.app.name()),
                );
            }
            if flow.on.is_some() != flow.off.is_some() {
                return wrong(&format!("flows.{index}"), "on and off must be given together".into());
            }
            if flow.pair.is_some_and(|pair| pair >= self.pairs()) {
                return wrong(
                    &format!("flows.{index}.pair"),
                    format!("must be less than {}, the number of pairs", self.pairs()),
                );
            }
        }
        for (name, faults) in [("faults", &self.link.faults), ("back-faults", &self.link.back_faults)] {
            if faults.reorder > 0.0 && faults.reorder_delay.is_none() {
                return wrong(&format!("link.{name}.reorder"), "needs reorder-delay".into());
            }
        }
        if self.topology.kind.is_pair() {
            let t = &self.topology;
            let keys = [
                ("pairs", t.pairs.is_some()),
                ("hops", t.hops.is_some()),
                ("access", t.access.is_some()),
                ("delays", !t.delays.is_empty()),
                ("queue", t.queue.is_some()),
                ("queue-bdp", t.queue_bdp.is_some()),
            ];
            if let Some((key, _)) = keys.into_iter().find(|(_, given)| *given) {
                return wrong(
                    &format!("topology.{key}"),
                    "does not apply to kind = \"pair\" or \"direct\"".into(),
                );
            }
        } else if self.topology.kind == Kind::Dumbbell && self.topology.hops.is_some() {
            return wrong("topology.hops", "applies only to kind = \"parking-lot\"".into());
        } else if self.topology.kind == Kind::ParkingLot && self.topology.pairs.is_some() {
            return wrong(
                "topology.pairs",
                "not for a parking lot, which has one pair more than hops".into(),
            );
        } else if self.topology.queue.is_some() && self.topology.queue_bdp.is_some() {
            return wrong("topology.queue-bdp", "cannot be given together with topology.queue".into());
        }
        if let Some(index) = self.beside_among_others() {
            let why = "a flow beside the others needs kind = \"dumbbell\" and a pair that they do not use";
            return wrong(&format!("flows.{index}.beside"), why.into());
        }
        self.link.mistake(self.topology.kind.is_pair())
    }

    /// A flow beside the others that is not apart from them: metrics of hosts could not leave it out.
    fn beside_among_others(&self) -> Option<usize> {
        let pairs_of = |flow: &FlowSpec| -> Vec<u32> {
            (0..flow.count).map(|copy| flow.pair.unwrap_or(copy) % self.pairs()).collect()
        };
        let others: Vec<u32> = self.flows.iter().filter(|flow| !flow.beside).flat_map(pairs_of).collect();
        self.flows.iter().position(|flow| {
            let is_apart = !pairs_of(flow).iter().any(|pair| others.contains(pair));
            flow.beside && !(self.topology.kind == Kind::Dumbbell && is_apart)
        })
    }

    /// Pairs of hosts.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        match self.topology.kind {
            Kind::Pair | Kind::Direct => 1,
            Kind::Dumbbell => self.topology.pairs.unwrap_or(1),
            Kind::ParkingLot => self.topology.hops.unwrap_or(3).saturating_add(1),
        }
    }
}
