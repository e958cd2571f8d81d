//! Runs a scenario in the simulator: builds its world, runs it interval by interval, and fills a
//! [`RunData`](crate::data::RunData). `plan.rs` builds the world, of hosts as in `machine.rs`; `collect.rs`
//! watches it, `points.rs` keeps packets; `finish.rs` makes the results; `frame.rs` says where all bytes are
//! at one moment. Called by the runner, and by programs that show a run while it goes on.

mod collect;
mod finish;
mod frame;
mod machine;
mod plan;
mod points;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use taut_core::{ConnId, ConnInfo, Duration, Instant, Report};
use taut_sim::{BEGIN, Counts, HostId, World};

use crate::data::{GATES, Interval};
use crate::job::{Job, Outcome, RunError};
use crate::shares::{Recorder, Seen};
use crate::stats::Tally;
use crate::view;
use collect::{Collector, FLOWS_MAX, seconds};
#[cfg(feature = "live")]
pub(crate) use finish::histograms;
use finish::{AtEnd, finish};
pub use frame::Frame;
use plan::Net;

/// Runs the job. `progress` is called with the share of work done and returns whether to continue.
///
/// # Errors
/// When an invariant of the simulator fails, when bytes arrive that were not sent, or when the caller stops
/// it.
pub fn run(job: &Job, progress: &dyn Fn(f64) -> bool) -> Result<Outcome, RunError> {
    let mut run = Simulation::new(job)?;
    run.advance(run.duration(), progress)?;
    run.finish()
}

/// A run that goes on as far as its caller asks. However it is cut into steps, it is the same run.
pub struct Simulation {
    job: Job,
    net: Net,
    collector: Rc<RefCell<Collector>>,
    world: World,
    flows: Vec<Watched>,
    shares: Recorder,
    socket_memory: Tally,
    unsent_bytes: Tally,
    /// The end of the last interval.
    at: Instant,
    /// When measuring begins.
    from: Instant,
    end: Instant,
    start: Option<Mark>,
    /// Requests of each flow that a [`Frame`] has reported.
    reported: Vec<usize>,
}

impl Simulation {
    /// The world of the job, before its first event.
    ///
    /// # Errors
    /// When the scenario asks for something that the simulator does not have.
    pub fn new(job: &Job) -> Result<Self, RunError> {
        let scenario = &job.variation.scenario;
        let mut world = World::new(job.seed);
        world.lengths_only();
        let net = Net::new(&mut world, scenario, job.seed).map_err(RunError::Impossible)?;
        let from = BEGIN + scenario.warm_up();
        let collector = Collector::new(from, net.lines(), net.names(), &net.traffic, job.keep);
        let collector = Rc::new(RefCell::new(collector));
        world.probe(Rc::clone(&collector));
        Ok(Self {
            job: job.clone(),
            flows: net.traffic.iter().map(|_| Watched::new()).collect(),
            reported: vec![0; net.traffic.len()],
            shares: Recorder::new(
                net.traffic.iter().map(|flow| (!flow.is_beside).then_some(flow.group)).collect(),
            ),
            net,
            collector,
            world,
            socket_memory: Tally::default(),
            unsent_bytes: Tally::default(),
            at: BEGIN,
            from,
            end: BEGIN + scenario.duration.value,
            start: None,
        })
    }

    /// Virtual time from the beginning to the end.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.end.since(BEGIN)
    }

    /// Virtual time that has passed.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.world.elapsed()
    }

    /// Runs until this much virtual time has passed, or to the end if that comes first. `progress` is as for
    /// [`run`].
    ///
    /// # Errors
    /// As [`run`].
    pub fn advance(&mut self, until: Duration, progress: &dyn Fn(f64) -> bool) -> Result<(), RunError> {
        let until = (BEGIN + until).min(self.end);
        let whole_s = view::seconds(self.duration());
        let done = |now: Instant| view::seconds(now.since(BEGIN)) / whole_s;
        while self.world.now() < until {
            if self.at == self.from && self.start.is_none() {
                self.start = Some(self.mark());
            }
            // The end of the warm-up is also a stop.
            let interval = self.at + self.job.variation.scenario.interval();
            let next = if self.at < self.from { interval.min(self.from) } else { interval }.min(self.end);
            let stop = next.min(until);
            let mut goes_on = true;
            self.world.run_with(stop, |now| {
                goes_on = progress(done(now.now));
                goes_on
            })?;
            if !goes_on || !progress(done(stop)) {
                return Err(RunError::Interrupted);
            }
            if stop == next {
                self.look();
            }
        }
        Ok(())
    }

    /// Runs what is left, and returns the results.
    ///
    /// # Errors
    /// As [`run`].
    pub fn finish(mut self) -> Result<Outcome, RunError> {
        self.advance(self.duration(), &|_| true)?;
        self.collector.borrow_mut().finish(self.end);
        let at_end = AtEnd::new(&self.world, &self.net);
        let Self { job, net, collector, world, flows, shares, socket_memory, unsent_bytes, start, .. } = self;
        let sums = Sums { start: start.unwrap_or_default(), socket_memory, unsent_bytes, shares };
        // The world holds the other reference to the collector.
        drop(world);
        let collector = Rc::try_unwrap(collector)
            .map_err(|_| RunError::Impossible("the collector is still in use".into()))?;
        Ok(finish(&job, &net, flows, sums, &at_end, collector.into_inner()))
    }
}

/// A flow while it runs.
struct Watched {
    conn: Option<ConnId>,
    /// Its state when last looked at.
    info: Option<ConnInfo>,
    report: Option<Report>,
    acked_at_mark: u64,
    shares_at_mark: Vec<Duration>,
    points: Vec<Interval>,
}

impl Watched {
    fn new() -> Self {
        Self {
            conn: None,
            info: None,
            report: None,
            acked_at_mark: 0,
            shares_at_mark: vec![Duration::ZERO; GATES.len()],
            points: Vec::new(),
        }
    }

    fn shares(&self) -> Vec<Duration> {
        let known = self.report.as_ref().map(|report| report.shares.iter().map(|(_, time)| *time).collect());
        known.unwrap_or_else(|| vec![Duration::ZERO; GATES.len()])
    }

    fn acked(&self) -> u64 {
        self.info.as_ref().map_or(0, |info| info.bytes_acked)
    }
}

/// Counts at the moment when measuring began.
#[derive(Default)]
struct Mark {
    counts: BTreeMap<HostId, Counts>,
    counters: BTreeMap<HostId, Vec<(&'static str, u64)>>,
    latencies: Vec<usize>,
}

/// Sums over the run.
struct Sums {
    start: Mark,
    socket_memory: Tally,
    unsent_bytes: Tally,
    shares: Recorder,
}

impl Simulation {
    fn mark(&mut self) -> Mark {
        let mut mark = Mark::default();
        for id in self.net.all_hosts() {
            mark.counts.insert(id, self.world.counts(id));
            mark.counters.insert(id, self.world.host_ref(id).stack().counters().iter().collect());
        }
        mark.latencies = self.net.traffic.iter().map(|traffic| traffic.source.latencies().0.len()).collect();
        for flow in &mut self.flows {
            flow.acked_at_mark = flow.acked();
            flow.shares_at_mark = flow.shares();
        }
        mark
    }

    /// Records the end of an interval.
    fn look(&mut self) {
        let (world, now) = (&self.world, self.world.now());
        let span = now.since(self.at);
        let seconds_passed = view::seconds(span);
        let peaks: BTreeMap<HostId, u64> =
            self.net.senders.iter().map(|&id| (id, self.collector.borrow_mut().take_max(id, now))).collect();
        let bottleneck = self.net.bottleneck_bytes(world);
        let (mut memory, mut unsent) = (0, 0);
        for (number, (flow, traffic)) in self.flows.iter_mut().zip(&self.net.traffic).enumerate() {
            flow.conn = flow.conn.or_else(|| traffic.source.conn());
            let Some(conn) = flow.conn else { continue };
            let host = world.host_ref(traffic.from);
            let (before, shares_before) = (flow.acked(), flow.shares());
            if let Some(info) = host.stack().conn(conn).map(|conn| conn.info(now)) {
                if !traffic.is_beside {
                    memory += u64::from(info.wmem_queued);
                    unsent += info.notsent_bytes;
                }
                flow.info = Some(info);
                flow.report = host.stack().conn(conn).map(|conn| conn.report(now));
            } else if let Some(info) = &mut flow.info {
                // The connection is gone: if it ended well, everything arrived.
                info.bytes_acked = info.bytes_acked.max(traffic.source.finished_bytes().unwrap_or(0));
                (info.notsent_bytes, info.unacked, info.wmem_alloc) = (0, 0, 0);
                flow.report = None;
            }
            let Some(info) = flow.info.as_ref().filter(|_| number < FLOWS_MAX) else { continue };
            let shares = flow.shares();
            let (qdisc_bytes, ring_bytes) = host.below();
            let blocked =
                |(after, before): (&Duration, &Duration)| view::seconds(after.saturating_sub(*before));
            flow.points.push(Interval {
                t_s: seconds(now),
                qdisc_bytes,
                ring_bytes,
                device_bytes: peaks.get(&traffic.from).copied().unwrap_or(0),
                bottleneck_bytes: bottleneck,
                in_flight_bytes: flow.report.as_ref().map_or(0, view::in_flight_bytes),
                goodput_bps: (info.bytes_acked - before) as f64 * 8.0 / seconds_passed,
                blocked_s: shares.iter().zip(&shares_before).map(blocked).collect(),
                ..view::point(info)
            });
        }
        let seen = self.flows.iter().zip(&self.net.traffic).map(|(flow, traffic)| Seen {
            acked: flow.acked(),
            is_open: flow.report.is_some() && traffic.source.ended().is_none(),
        });
        self.shares.take(seconds(now), seen);
        if now > self.from {
            self.socket_memory.add_times(memory, span.as_nanos());
            self.unsent_bytes.add_times(unsent, span.as_nanos());
        }
        self.at = now;
    }
}
