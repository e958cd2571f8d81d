//! Builds the network of a plan, and runs it under the judge. Called by tests, by `taut lab worlds`, and by
//! the shrinker.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use taut_core::{Duration, Instant};
use taut_link::QdiscSpec;

use super::blind::Attacker;
use super::judge::Judge;
use super::plan::{Plan, Shape};
use super::talk::Talker;
use crate::check::Checks;
use crate::failure::{Failure, Kind};
use crate::ids::{HostId, WireId};
use crate::parts::fault::Faults;
use crate::topology::Pair;
use crate::world::{PortSpec, World};

/// Most events of a world: some hundred times what the largest one needs.
const EVENTS_MAX: u64 = 20_000_000;

/// How long after the end of a world the last connection may linger: FIN, TIME-WAIT, and retransmissions of a
/// host that nobody answers (`tcp_retries2` takes 924 s).
const LINGER: Duration = Duration::from_secs(1_200);

/// How a world went.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// What failed, if anything did.
    pub failure: Option<Failure>,
    /// Events of the world.
    pub events: u64,
    /// Segments that hosts received.
    pub segments: u64,
    /// Bytes that applications read, each of them checked.
    pub bytes: u64,
    /// See [`World::digest`].
    pub digest: u64,
}

/// The wires of a world that have a role.
struct Wires {
    /// The lines in the middle, both directions of each.
    middle: Vec<(WireId, WireId)>,
    /// From each host.
    up: Vec<WireId>,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    let plan = Rc::new(plan.clone());
    let mut world = World::new(plan.seed);
    if plan.lengths_only {
        world.lengths_only();
    }
    // Drains the count of what other worlds did in this thread.
    let _ = taut_core::steps_taken();
    let (hosts, wires) = build(&plan, &mut world);
    let addresses: Rc<Vec<IpAddr>> =
        Rc::new(hosts.iter().filter_map(|&host| world.host_ref(host).address()).collect());
    let judge = Judge::new(Rc::clone(&plan), hosts.clone());
    for (number, &host) in hosts.iter().enumerate() {
        world.app(host, Talker::new(Rc::clone(&plan), number, Rc::clone(&addresses), judge.ledger()));
    }
    world.check(Checks { every: 97 });
    let mut run = Run { plan, world, hosts, wires, judge };
    let failure = run.all_or_panic().err();
    let counts = |of: fn(&crate::Counts) -> u64| run.hosts.iter().map(|&id| of(&run.world.counts(id))).sum();
    Outcome {
        failure,
        events: run.world.events(),
        segments: counts(|counts| counts.segments_in),
        bytes: counts(|counts| counts.bytes_read),
        digest: run.world.digest(),
    }
}

struct Run {
    plan: Rc<Plan>,
    world: World,
    hosts: Vec<HostId>,
    wires: Wires,
    judge: Judge,
}

impl Run {
    /// A panic is a failure of this world, and no reason not to run others.
    fn all_or_panic(&mut self) -> Result<(), Failure> {
        catch_unwind(AssertUnwindSafe(|| self.all())).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(Failure::new(self.world.now(), Kind::Panicked, text.to_owned()))
        })
    }

    fn all(&mut self) -> Result<(), Failure> {
        let plan = Rc::clone(&self.plan);
        self.set_faults(true);
        // Packets are watched only where there is an attacker.
        let mut attacker = (!plan.blind.is_empty()).then(|| Attacker::new(plan.seed, &mut self.world));
        let (mut changes, mut blind) = (plan.changes.iter().peekable(), plan.blind.iter().peekable());
        // Looks often while much happens, and ever more rarely then.
        let mut pause = Duration::from_millis(20);
        let mut is_calm = false;
        while self.world.now() < plan.end() {
            let now = self.world.now();
            if !is_calm && now >= plan.calm {
                self.set_faults(false);
                is_calm = true;
            }
            while let Some(change) = changes.next_if(|change| change.at <= now) {
                let stack = self.world.stack_mut(self.hosts[change.host]);
                if let Err(error) = stack.set_sysctl(change.name, change.value) {
                    return Err(Failure::new(now, Kind::Lost, format!("sysctl: {error}")));
                }
                self.world.poke(self.hosts[change.host]);
            }
            while let Some((_, packets)) = blind.next_if(|(at, _)| *at <= now)
                && let Some(attacker) = &mut attacker
            {
                attacker.shoot(&mut self.world, &self.hosts, *packets);
            }
            let next = changes.peek().map(|change| change.at).into_iter();
            let next = next.chain(blind.peek().map(|(at, _)| *at)).chain((!is_calm).then_some(plan.calm));
            if is_calm {
                pause += pause / 8;
            }
            self.to(next.chain([now + pause, plan.end()]).min().unwrap_or(now))?;
        }
        self.judge.at_end(&self.world)?;
        // Nobody lies any more: what is left must go.
        self.set_faults(false);
        if let Some((liar, _)) = plan.liar {
            self.world.set_faults(self.wires.up[liar], Faults::default());
        }
        self.to(plan.end() + LINGER)?;
        self.judge.nothing_left(&self.world)
    }

    fn to(&mut self, until: Instant) -> Result<(), Failure> {
        let mut is_endless = false;
        self.world.run_with(until, |progress| {
            is_endless = progress.events > EVENTS_MAX;
            !is_endless
        })?;
        if is_endless {
            return Err(Failure::new(self.world.now(), Kind::NoProgress, format!("{EVENTS_MAX} events")));
        }
        self.judge.during(&self.world)
    }

    /// The faults of the lines in the middle, or no more than a small MTU; and the liar's.
    fn set_faults(&mut self, on: bool) {
        let plan = Rc::clone(&self.plan);
        let of = |faults: &Faults| {
            if on {
                return faults.clone();
            }
            Faults { mtu: faults.mtu.clone(), mtu_silent: faults.mtu_silent, ..Faults::default() }
        };
        for (hop, &(there, back)) in self.wires.middle.iter().enumerate() {
            for (wire, faults) in [(there, &plan.faults[0]), (back, &plan.faults[1])] {
                let mut faults = of(faults);
                if hop > 0 {
                    // Two flipped bits of one packet can cancel each other in its checksum.
                    faults.corrupt = 0.0;
                }
                self.world.set_faults(wire, faults);
            }
        }
        if let Some((liar, lies)) = plan.liar {
            let middle = self.wires.middle.iter().find_map(|(there, back)| {
                let up = self.wires.up[liar];
                (up == *there).then_some(&plan.faults[0]).or_else(|| (up == *back).then_some(&plan.faults[1]))
            });
            let faults = middle.map_or_else(Faults::default, of);
            self.world.set_faults(self.wires.up[liar], Faults { lies, ..faults });
        }
    }
}

fn build(plan: &Plan, world: &mut World) -> (Vec<HostId>, Wires) {
    let qdisc: QdiscSpec = plan.queue.parse().unwrap_or_else(|error| panic!("{}: {error}", plan.queue));
    let line = PortSpec { rate: Some(plan.rate), qdisc, ..PortSpec::fifo(plan.rate, 1) };
    let access = PortSpec::fifo(plan.access, 1_000);
    if plan.shape == Shape::Pair {
        let [a, b] = [0, 1].map(|n: usize| plan.hosts[n].clone());
        let pair = Pair::new(world, a, b, plan.delay);
        let wires = Wires { middle: vec![(pair.ab, pair.ba)], up: vec![pair.ab, pair.ba] };
        return (vec![pair.a, pair.b], wires);
    }
    let hosts: Vec<HostId> = plan.hosts.iter().map(|spec| world.host(spec.clone())).collect();
    let (routers, at): (usize, Vec<usize>) = match plan.shape {
        Shape::Dumbbell { pairs } => (2, (0..2 * pairs).map(|n| n / pairs).collect()),
        Shape::ParkingLot { hops } => (hops + 1, (0..=hops).collect()),
        Shape::Pair => (0, Vec::new()),
    };
    let routers: Vec<_> = (0..routers).map(|_| world.router()).collect();
    let middle =
        routers.windows(2).map(|ends| world.join(ends[0], ends[1], &line, &line, plan.delay)).collect();
    let attach =
        |(&host, at): (&HostId, usize)| world.attach(host, routers[at], &access, Duration::from_micros(5)).0;
    let up = hosts.iter().zip(at).map(attach).collect();
    (hosts, Wires { middle, up })
}
