//! A plan: everything that a seed decides about a world. Called by the runner, and by the shrinker with
//! features left out.

mod parts;

use std::fmt;
use std::str::FromStr;

use taut_core::{Duration, Instant};
use taut_link::Rate;

use super::talk::Script;
use crate::event::BEGIN;
use crate::parts::fault::{Faults, Lies};
use crate::parts::host::HostSpec;
use crate::rng::Rng;
use parts::{changes, faults, hosts, port_queue, set, talks};

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A part of a world that can be left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Feature {
            $($(#[$doc])* $name,)*
        }

        impl Feature {
            /// All, in the order in which the shrinker leaves them out.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name on a command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

features! {
    /// Hosts that send mutated segments.
    Lies = "lies",
    /// An attacker elsewhere that guesses numbers.
    Blind = "blind",
    /// Tickets that never come back.
    Never = "never",
    /// Tickets that come back late and in any order.
    Late = "late",
    /// Devices that have no room at times.
    Refuse = "refuse",
    /// Settings changed while the stacks run.
    MidRun = "mid-run",
    /// Settings from the beginning.
    Sysctls = "sysctls",
    /// Options of connections, from the beginning and later.
    Options = "options",
    /// Sizes of buffers.
    Buffers = "buffers",
    /// Links that go down and up.
    Dark = "dark",
    /// The path's MTU changes.
    Mtu = "mtu",
    /// Losses in bursts.
    Bursts = "bursts",
    /// Single losses.
    Loss = "loss",
    /// Reordering.
    Reorder = "reorder",
    /// Duplicates.
    Duplicate = "duplicate",
    /// Flipped bits.
    Corrupt = "corrupt",
    /// Delays that vary.
    Jitter = "jitter",
    /// Queue disciplines and queue lengths.
    Queues = "queues",
    /// NICs without TSO or GRO, with short rings, late interrupts.
    Nics = "nics",
    /// Work that takes time, threads that wake up late.
    Cpu = "cpu",
    /// IPv6.
    V6 = "v6",
    /// Routers and more than two hosts.
    Routers = "routers",
    /// Endings that are not polite: abort, early close, an end that does nothing any more.
    Rude = "rude",
    /// Applications that read late, slowly, or not at all until the end.
    Slow = "slow",
    /// Writes of few bytes, pauses, MSG_MORE, MSG_EOR, writes without a copy.
    Writes = "writes",
    /// More than one conversation.
    Crowd = "crowd",
    /// Devices that do not say when packets left, and devices whose completions come in bursts.
    Completions = "completions",
}

impl Feature {
    fn names() -> String {
        Self::ALL.iter().map(|feature| feature.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no feature of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no feature is called {0}; choose from {all}", all = Feature::names())]
pub struct UnknownFeature(String);

impl FromStr for Feature {
    type Err = UnknownFeature;

    fn from_str(text: &str) -> Result<Self, UnknownFeature> {
        Self::ALL.iter().copied().find(|f| f.name() == text).ok_or_else(|| UnknownFeature(text.to_owned()))
    }
}

/// The features that are left out of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Without(pub Vec<Feature>);

/// A change of a setting while the world runs.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) at: Instant,
    pub(super) host: usize,
    pub(super) name: &'static str,
    pub(super) value: &'static str,
}

/// How the hosts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Two hosts and a cable.
    Pair,
    /// Hosts on both sides of one line.
    Dumbbell { pairs: usize },
    /// Routers in a row with a host at each.
    ParkingLot { hops: usize },
}

/// One conversation.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub(super) client: usize,
    pub(super) server: usize,
    pub(super) start: Instant,
    pub(super) scripts: [Script; 2],
}

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What is left out.
    pub without: Without,
    /// Whether payload is [lengths only](crate::World::lengths_only).
    pub lengths_only: bool,
    pub(super) shape: Shape,
    pub(super) rate: Rate,
    pub(super) access: Rate,
    pub(super) delay: Duration,
    pub(super) queue: String,
    pub(super) hosts: Vec<HostSpec>,
    /// Of the line in the middle, in both directions.
    pub(super) faults: [Faults; 2],
    /// Hosts that lie, and how.
    pub(super) liar: Option<(usize, Lies)>,
    /// When the faults end.
    pub(super) calm: Instant,
    pub(super) changes: Vec<Change>,
    /// When a blind attacker sends, and how many packets each time.
    pub(super) blind: Vec<(Instant, u32)>,
    pub(super) talks: Vec<Conversation>,
}

/// Draws for one feature: a stream of its own, and whether the world has it.
struct Draw<'a> {
    seed: u64,
    without: &'a Without,
}

impl Draw<'_> {
    /// A stream for this feature, if it is not left out and chance gives it to this world.
    fn of(&self, feature: Feature, probability: f64) -> Option<Rng> {
        let mut rng = Rng::new(self.seed ^ (feature as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95));
        let has = rng.chance(probability);
        (has && !self.without.0.contains(&feature)).then_some(rng)
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// Between two numbers, each order of magnitude equally likely.
fn spread(rng: &mut Rng, low: u64, high: u64) -> u64 {
    let (low, high) = (libm::log(low.max(1) as f64), libm::log(high.max(1) as f64));
    libm::exp(low + (high - low) * rng.unit()) as u64
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

impl Plan {
    /// The plan of a seed, without some features.
    #[must_use]
    pub fn new(seed: u64, without: &Without) -> Self {
        let draw = Draw { seed, without };
        let mut rng = Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed);
        let shape = draw.of(Feature::Routers, 0.6).map_or(Shape::Pair, |mut rng| {
            if rng.chance(0.6) {
                Shape::Dumbbell { pairs: 1 + rng.below(4) as usize }
            } else {
                Shape::ParkingLot { hops: 2 + rng.below(2) as usize }
            }
        });
        let host_count = match shape {
            Shape::Pair => 2,
            Shape::Dumbbell { pairs } => 2 * pairs,
            Shape::ParkingLot { hops } => hops + 1,
        };
        let bits = spread(&mut rng, 1_000_000, 10_000_000_000);
        let rate = rate_of(bits);
        let access = rate_of(bits.saturating_mul(1 + rng.below(10)));
        let delay = us(spread(&mut rng, 5, 100_000));
        let calm = BEGIN + ms(1_000 + rng.below(5_000));
        let queue = draw
            .of(Feature::Queues, 0.7)
            .map_or("pfifo limit 1000".to_owned(), |mut rng| port_queue(&mut rng, bits));
        let hosts = hosts(&draw, host_count, access);
        let talks = talks(&draw, &mut rng, host_count, shape, bits);
        let liar = draw.of(Feature::Lies, 0.2).map(|mut rng| {
            let lies = Lies { change: rng.unit() * 0.2, add: rng.unit() * 0.4 };
            (rng.below(host_count as u64) as usize, lies)
        });
        let mut plan = Self {
            seed,
            without: without.clone(),
            lengths_only: false,
            shape,
            rate,
            access,
            delay,
            queue,
            hosts,
            faults: [faults(&draw, 0, calm), faults(&draw, 1, calm)],
            liar,
            calm,
            changes: changes(&draw, host_count, calm),
            blind: draw.of(Feature::Blind, 0.2).map_or_else(Vec::new, |mut rng| {
                let mut at: Vec<_> = (0..=rng.below(20))
                    .map(|_| (BEGIN + rng.below_time(ms(6_000)), 1 + rng.below(50) as u32))
                    .collect();
                at.sort_unstable();
                at
            }),
            talks,
        };
        plan.never(&draw);
        plan.probe_for_black_holes();
        plan
    }

    fn never(&mut self, draw: &Draw<'_>) {
        if let Some(mut rng) = draw.of(Feature::Never, 0.06) {
            let host = rng.below(self.hosts.len() as u64) as usize;
            self.hosts[host].returns.never = 0.001 + 0.05 * rng.unit();
        }
    }

    /// A path that swallows large packets without a word is found by probing, which is off by default, as in
    /// Linux.
    fn probe_for_black_holes(&mut self) {
        if self.faults.iter().any(|faults| faults.mtu_silent) {
            for host in &mut self.hosts {
                set(&mut host.config, "tcp_mtu_probing", "1");
            }
        }
    }

    /// When every polite conversation must be over: long after the faults have ended, because buffers of 2 KB
    /// over 200 ms, or a zero window whose probes are two minutes apart, take their time.
    pub(super) fn end(&self) -> Instant {
        self.calm + Duration::from_secs(1_800)
    }

    /// Whether an end of a conversation lies, so that bytes need not be those that were written.
    pub(super) fn lies(&self, talk: &Conversation) -> bool {
        self.liar.is_some_and(|(liar, _)| liar == talk.client || liar == talk.server)
    }

    /// Whether a conversation may fail without anybody being at fault: an end lies, is not polite, or has a
    /// device that loses tickets.
    pub(super) fn may_fail(&self, talk: &Conversation) -> bool {
        let loses = |host: usize| self.hosts[host].returns.never > 0.0;
        let is_rude = talk.scripts.iter().any(|script| script.ending.is_rude());
        is_rude || self.lies(talk) || loses(talk.client) || loses(talk.server)
    }

    /// The command that repeats this world.
    #[must_use]
    pub fn command(&self) -> String {
        let mut text = format!("taut lab worlds --seed {}", self.seed);
        if !self.without.0.is_empty() {
            let names: Vec<&str> = self.without.0.iter().map(|feature| feature.name()).collect();
            text += &format!(" --without {}", names.join(","));
        }
        text
    }

    /// One line on what is in the world.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{:?}, {} Mbit/s, {:?}, {}, {} conversations",
            self.shape,
            self.rate.bits_per_second() / 1_000_000,
            self.delay,
            self.queue,
            self.talks.len()
        )
    }
}

fn rate_of(bits: u64) -> Rate {
    Rate::from_bits_per_second(bits).unwrap_or_else(|| panic!("{bits} bit/s is a rate"))
}
