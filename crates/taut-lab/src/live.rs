//! Runs a scenario on this machine: taut or the kernel as the sender, the kernel as the receiver, and between
//! them the scenario's link, emulated by the queues of `taut-link`. `taut-testbed` provides the kernels,
//! their namespaces and sockets.
//!
//! ```text
//!   taut ── its own queue ── in-process link ┐
//!                                            ├─ Emulator: router's queue, delay, faults ── TUN ── kernel: Peer
//!   kernel ── tbf ── TUN ────────────────────┘
//!    apps.rs: the same applications over taut_end.rs or kernel_end.rs; beside.rs: and the kernel beside either
//! ```
//!
//! With [`LiveDevice::Packet`] the sender, whichever it is, has an Ethernet interface whose queue is the
//! kernel's: `ethernet.rs`. `link.rs` builds the parts that a scenario needs, `results.rs` makes metrics from
//! the counts. In a pair the queue belongs to the sender, like a NIC's queue, so that small queues see it:
//! taut's is in front of its device, the kernel's is a `tbf` that `tc` puts on the TUN. In a dumbbell the
//! queue is in the network and belongs to the emulator. Called by the runner.

mod apps;
mod backlog;
mod beside;
mod carried;
mod ethernet;
mod kernel_end;
mod link;
mod path;
mod results;
mod taut_end;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use taut_device::sys::become_realtime;
use taut_testbed::{Kernel, Service};

use crate::data::{Engine, RunData};
use crate::job::{Job, LiveDevice, Outcome, RunError};
use crate::scenario::value::{Bytes, Text};
use crate::scenario::{AppKind, Kind, Scenario};
use apps::{FlowPlan, Sender};
use backlog::Backlog;
use beside::Senders;
use kernel_end::KernelSender;
use link::{Link, NET, context};
use path::Path;
use taut_end::Taut;

/// Ports of the sink, and of the first responder.
const SINK: u16 = 5001;
const RESPONDER: u16 = 6001;

/// Called with the share of work done; returns whether to continue.
type Progress<'a> = &'a (dyn Fn(f64) -> bool + Sync);

/// Runs the job. `progress` is called with the share of work done and returns whether to continue.
///
/// # Errors
/// When the scenario is not for live runs, when no namespace or TUN can be created, or when the caller stops
/// it.
pub fn run(job: &Job, progress: Progress<'_>) -> Result<Outcome, RunError> {
    let scenario = &job.variation.scenario;
    let impossible = |why: &str| Err(RunError::Impossible(why.to_owned()));
    if !scenario.live {
        return impossible("this scenario is for simulation only: it does not have live = true");
    }
    if scenario.flows.iter().any(|flow| flow.app == AppKind::Web || flow.on.is_some()) {
        return impossible("web pages and pauses are simulated only");
    }
    if scenario.topology.kind == Kind::ParkingLot {
        return impossible("a parking lot is simulated only");
    }
    if scenario.link.trace.is_some() || scenario.link.back_trace.is_some() {
        return impossible("a recorded line is simulated only");
    }
    let run = match job.engine {
        Engine::Live => taut_sends,
        Engine::Linux => kernel_sends,
        Engine::Sim => return impossible("a simulated run is not a live one"),
    };
    // The run has a separate thread, which ends with it; the run's other threads inherit its priority.
    let data = thread::scope(|scope| {
        let run = scope.spawn(|| {
            let scheduling = if job.real_time && become_realtime().is_ok() { "fifo" } else { "other" };
            run(job, progress).map(|mut data| {
                data.meta.versions.insert("scheduling".into(), scheduling.into());
                data
            })
        });
        run.join().unwrap_or_else(|_| Err(RunError::Impossible("a live run's thread ended".into())))
    });
    data.map(|data| Outcome { data, ..Outcome::default() })
}

fn size(text: &Option<Text<Bytes>>) -> usize {
    text.as_ref().map_or(1, |text| text.value.0.max(1) as usize)
}

/// The flows, and the services of their peers.
fn plans(scenario: &Scenario) -> (Vec<FlowPlan>, Vec<(u16, Service)>) {
    let (mut plans, mut services) = (Vec::new(), vec![(SINK, Service::Sink)]);
    for (index, spec) in scenario.flows.iter().enumerate() {
        let port = if spec.app == AppKind::Rr { RESPONDER + index as u16 } else { SINK };
        if spec.app == AppKind::Rr {
            let (request, response) = (size(&spec.request), size(&spec.response));
            services.push((port, Service::Respond { request, response }));
        }
        let time = |text: &Option<Text<taut_core::Duration>>| {
            text.as_ref().map_or(Duration::ZERO, |text| text.value.into())
        };
        for copy in 0..spec.count {
            let number = if spec.count > 1 { format!("{index}.{copy}") } else { index.to_string() };
            let name = format!("{} {number}", spec.app.name());
            let start = time(&spec.start) + time(&spec.stagger) * copy;
            let to = (NET.far_v4(), port).into();
            plans.push(FlowPlan { name, group: index, spec: spec.clone(), to, start });
        }
    }
    (plans, services)
}

fn taut_sends(job: &Job, progress: Progress<'_>) -> Result<RunData, RunError> {
    let scenario = &job.variation.scenario;
    let (plans, services) = plans(scenario);
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&job.seed.to_le_bytes());
    let mut builder = taut::Stack::builder().config(scenario.stack_config()).seed(seed);
    for address in NET.near() {
        builder = builder.address(&address.to_string());
    }
    if job.device == LiveDevice::Packet {
        let Link { near, beside, way, peer: _peer, router: _router } =
            ethernet::link(&job.variation, job.seed, &services)?;
        let device = ethernet::device(&near, scenario).map_err(context("cannot open the interface"))?;
        let backlog = Backlog::new(&near, ethernet::INTERFACE).map_err(context("the sender's queue"))?;
        let backlog = Arc::new(backlog);
        let own =
            Taut { stack: start(builder.device(device), scenario)?, backlog: Some(Arc::clone(&backlog)) };
        let senders = Senders { own, beside: beside.map(|kernel| kernel_sender(kernel, scenario)) };
        return backlog.watch(interval(scenario), || measure(job, &senders, &plans, way.as_ref(), progress));
    }
    let Link { near, beside, way, peer: _peer, .. } = link::from_taut(scenario, job.seed, &services)?;
    builder = builder.device(near);
    if let Some(queue) = link::own_queue(scenario, 0) {
        let (rate, burst, limit) = (queue.bits_per_second, queue.burst_bytes, queue.limit_bytes);
        let usecs =
            scenario.hosts.sender.nic.tx_usecs.map_or_else(String::new, |us| format!("tx-usecs {us}us"));
        builder = builder.link_from(&format!("rate {rate}bit burst {burst}b limit {limit}b {usecs}"));
    }
    let own = Taut { stack: start(builder, scenario)?, backlog: None };
    let beside = beside.map(|kernel| kernel_sender(kernel, scenario));
    measure(job, &Senders { own, beside }, &plans, way.as_ref(), progress)
}

/// Starts the stack with the scenario's settings.
fn start(builder: taut::StackBuilder, scenario: &Scenario) -> Result<taut::Stack, RunError> {
    let stack = builder.build().map_err(context("cannot start the stack"))?;
    for (name, value) in &scenario.hosts.sender.sysctls.0 {
        stack.set_sysctl(name, value).map_err(|error| RunError::Impossible(error.to_string()))?;
    }
    Ok(stack)
}

/// The machine's default congestion control may differ from taut's, and a namespace cannot be given another.
fn kernel_sender(kernel: Kernel, scenario: &Scenario) -> KernelSender {
    KernelSender::new(kernel, scenario.default_congestion())
}

/// Time between two looks at a queue.
fn interval(scenario: &Scenario) -> Duration {
    Duration::from(scenario.interval()).max(apps::LEAST_INTERVAL)
}

fn kernel_sends(job: &Job, progress: Progress<'_>) -> Result<RunData, RunError> {
    let scenario = &job.variation.scenario;
    let (plans, services) = plans(scenario);
    let (link, queue) = match job.device {
        LiveDevice::Packet => {
            (ethernet::link(&job.variation, job.seed, &services)?, Some(ethernet::INTERFACE))
        }
        LiveDevice::Tun => {
            let link = link::from_kernel(scenario, job.seed, &services)?;
            (link, link::own_queue(scenario, 0).map(|_| link::TUN))
        }
    };
    let Link { near, beside, way, peer: _peer, router: _router } = link;
    let mut own = kernel_sender(near, scenario);
    match (job.device, link::own_queue(scenario, 0)) {
        (LiveDevice::Packet, _) => {
            own.add_addresses().map_err(context("cannot give the sender its address"))?;
        }
        (LiveDevice::Tun, Some(queue)) => own.limit_rate(&queue).map_err(context("the sender's queue"))?,
        (LiveDevice::Tun, None) => {}
    }
    if let Some(interface) = queue {
        own.backlog = Some(own.backlog_of(interface).map_err(context("the sender's queue"))?);
    }
    let backlog = own.backlog.clone();
    let senders = Senders { own, beside: beside.map(|kernel| kernel_sender(kernel, scenario)) };
    let run = || measure(job, &senders, &plans, way.as_ref(), progress);
    match backlog {
        Some(backlog) => backlog.watch(interval(scenario), run),
        None => run(),
    }
}

/// Runs the applications over a sender, and returns the results.
fn measure(
    job: &Job,
    sender: &impl Sender,
    plans: &[FlowPlan],
    way: Option<&Path>,
    progress: Progress<'_>,
) -> Result<RunData, RunError> {
    let begin = || way.iter().for_each(|way| way.begin());
    way.iter().for_each(|way| way.run_steps());
    let work = apps::run(sender, plans, &job.variation.scenario, begin, progress);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.and_then(|runtime| runtime.block_on(work)).map_err(context("the run failed"))?;
    let mut data = results::of(job, result.ok_or(RunError::Interrupted)?, way.map(Path::carried))?;
    if job.device == LiveDevice::Packet {
        data.meta.versions.insert("device".into(), "packet".into());
    }
    if let Some(way) = way {
        let scheduling = if way.is_realtime() { "fifo" } else { "other" };
        data.meta.versions.insert("path_scheduling".into(), scheduling.into());
    }
    Ok(data)
}
