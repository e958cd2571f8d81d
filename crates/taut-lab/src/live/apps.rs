//! The applications of a live run's sender, over any TCP: like an event loop, they write while they can and
//! wait when they cannot, and count their waits. All run on one thread, together with the code that samples
//! the connections from time to time. Called by the two senders.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use taut_device::sys::monotonic_ns;

use crate::data::{GATES, Interval, Shares};
use crate::scenario::{AppKind, FlowSpec, Scenario};
use crate::shares::{Recorder, Seen};

/// Bytes of a write.
const CHUNK_BYTES: usize = 65_536;
/// Largest number of flows that have a series.
const SERIES_MAX: usize = 8;
/// Least time between two samples: a sample costs time, and the machine has other work.
pub(super) const LEAST_INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for a connection to be established.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state of a connection, as far as its TCP reports it.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// All fields except time, goodput and queues.
    pub(super) point: Interval,
    pub(super) acked_bytes: u64,
    pub(super) retransmitted_bytes: u64,
    pub(super) min_rtt_s: Option<f64>,
    pub(super) sndbuf: Option<u64>,
    /// Memory of the send side.
    pub(super) memory: Option<u64>,
    /// Seconds for which each gate was closed, since the connection began.
    pub(super) shares_s: Option<Vec<f64>>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
}

/// A connection of any TCP.
pub(super) trait Conn: Sized {
    async fn writable(&self) -> io::Result<()>;
    async fn readable(&self) -> io::Result<()>;
    fn try_write(&self, data: &[u8]) -> io::Result<usize>;
    fn try_read(&self, into: &mut [u8]) -> io::Result<usize>;
    /// Ends writing: sends a FIN.
    fn finish(&self) -> io::Result<()>;
    fn snapshot(&self) -> io::Result<Snapshot>;
}

/// The methods of [`Conn`] that the stream itself has under the same names: tokio's, or taut's in the shape
/// of tokio's.
macro_rules! forward_to_stream {
    () => {
        async fn writable(&self) -> io::Result<()> {
            Self::writable(self).await
        }

        async fn readable(&self) -> io::Result<()> {
            Self::readable(self).await
        }

        fn try_write(&self, data: &[u8]) -> io::Result<usize> {
            Self::try_write(self, data)
        }

        fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
            Self::try_read(self, into)
        }
    };
}
pub(super) use forward_to_stream;

/// A host that opens connections, and the values that it reports.
pub(super) trait Sender {
    type Conn: Conn;
    /// Opens a flow's connection.
    async fn connect(&self, plan: &FlowPlan) -> io::Result<Self::Conn>;
    /// Counters, by Linux's names.
    fn counters(&self) -> io::Result<BTreeMap<String, u64>>;
    /// Bytes in the host's own queue, if known.
    fn device_bytes(&self) -> Option<u64>;
}

/// A flow to be run.
#[derive(Clone)]
pub(super) struct FlowPlan {
    pub(super) name: String,
    /// Which of the scenario's `[[flows]]` it is of.
    pub(super) group: usize,
    pub(super) spec: FlowSpec,
    pub(super) to: SocketAddr,
    pub(super) start: Duration,
}

/// The result of a flow.
#[derive(Debug, Default)]
pub(super) struct FlowResult {
    pub(super) name: String,
    pub(super) group: usize,
    /// Not measured: see [`FlowSpec::beside`].
    pub(super) is_beside: bool,
    pub(super) last: Option<Snapshot>,
    pub(super) acked_at_mark: u64,
    pub(super) shares_at_mark: Vec<f64>,
    pub(super) points: Vec<Interval>,
    pub(super) connected_ns: Option<u64>,
    pub(super) ended_ns: Option<u64>,
    pub(super) written: u64,
    /// Durations of requests since measuring began, in nanoseconds.
    pub(super) latencies_ns: Vec<u64>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Result {
    pub(super) flows: Vec<FlowResult>,
    pub(super) shares: Shares,
    /// One value at the end of each interval.
    pub(super) device_bytes: Vec<u64>,
    pub(super) socket_memory: Vec<u64>,
    pub(super) unsent_bytes: Vec<u64>,
    pub(super) srtt_ns: Vec<u64>,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) wakeups: u64,
    /// Writes that were accepted at least in part.
    pub(super) writes: u64,
    /// Those of the application's thread.
    pub(super) context_switches: u64,
    pub(super) measured_ns: u64,
    pub(super) errors: Vec<String>,
}

/// State shared by the applications of a run.
struct Shared<C> {
    conns: Vec<RefCell<Option<Rc<C>>>>,
    flows: Vec<RefCell<FlowResult>>,
    wakeups: Cell<u64>,
    writes: Cell<u64>,
    measuring: Cell<bool>,
    begin_ns: u64,
    errors: RefCell<Vec<String>>,
}

/// Runs all flows of a scenario for its duration. `begin` is called when measuring begins; `tick` is called
/// with the share of work done and returns whether to continue.
pub(super) async fn run<S: Sender>(
    sender: &S,
    plans: &[FlowPlan],
    scenario: &Scenario,
    begin: impl FnOnce(),
    tick: impl Fn(f64) -> bool,
) -> io::Result<Option<Result>> {
    let flows = plans.iter().map(|plan| {
        let shares_at_mark = vec![0.0; GATES.len()];
        RefCell::new(FlowResult {
            name: plan.name.clone(),
            group: plan.group,
            is_beside: plan.spec.beside,
            shares_at_mark,
            ..FlowResult::default()
        })
    });
    let shared = Rc::new(Shared {
        conns: plans.iter().map(|_| RefCell::new(None)).collect(),
        flows: flows.collect(),
        wakeups: Cell::new(0),
        writes: Cell::new(0),
        measuring: Cell::new(false),
        begin_ns: monotonic_ns(),
        errors: RefCell::default(),
    });
    let applications = plans.iter().enumerate().map(|(number, plan)| {
        let shared = Rc::clone(&shared);
        async move {
            if let Err(error) = flow(sender, plan, number, &shared).await {
                shared.errors.borrow_mut().push(format!("{}: {error}", plan.name));
            }
        }
    });
    let groups = plans.iter().map(|plan| (!plan.spec.beside).then_some(plan.group)).collect();
    let mut looks = Looks {
        shared: &shared,
        sender,
        result: Result::default(),
        shares: Recorder::new(groups),
        last_ns: shared.begin_ns,
    };
    let applications: Vec<_> = applications.map(Box::pin).collect();
    let goes_on = tokio::select! {
        biased;
        goes_on = looks.all(scenario, begin, tick) => goes_on?,
        () = all(applications) => true,
    };
    if !goes_on {
        return Ok(None);
    }
    let mut result = looks.result;
    result.shares = looks.shares.finish();
    result.wakeups = shared.wakeups.get() - result.wakeups;
    result.writes = shared.writes.get() - result.writes;
    let shared = Rc::try_unwrap(shared).map_err(|_| io::Error::other("an application is still running"))?;
    result.flows = shared.flows.into_iter().map(RefCell::into_inner).collect();
    result.errors = shared.errors.into_inner();
    Ok(Some(result))
}

/// Polls all of them, for ever.
async fn all<F: Future<Output = ()> + Unpin>(mut futures: Vec<F>) {
    std::future::poll_fn(|cx| {
        // Every future is polled whenever one is ready: there are few.
        futures.retain_mut(|future| std::pin::Pin::new(future).poll(cx).is_pending());
        std::task::Poll::<()>::Pending
    })
    .await;
}

/// Samples the connections from time to time.
struct Looks<'a, S: Sender> {
    shared: &'a Rc<Shared<S::Conn>>,
    sender: &'a S,
    result: Result,
    shares: Recorder,
    last_ns: u64,
}

impl<S: Sender> Looks<'_, S> {
    async fn all(
        &mut self,
        scenario: &Scenario,
        begin: impl FnOnce(),
        tick: impl Fn(f64) -> bool,
    ) -> io::Result<bool> {
        let (duration, warm_up) = (scenario.duration.value.as_nanos(), scenario.warm_up().as_nanos());
        let interval = Duration::from(scenario.interval()).max(LEAST_INTERVAL).as_nanos() as u64;
        let mut begin = Some(begin);
        let mut switches = 0;
        let mut next = 0;
        loop {
            if next >= warm_up
                && let Some(begin) = begin.take()
            {
                begin();
                self.result.counters = self.sender.counters()?;
                self.result.wakeups = self.shared.wakeups.get();
                self.result.writes = self.shared.writes.get();
                switches = context_switches();
                self.shared.measuring.set(true);
                for flow in &self.shared.flows {
                    let mut flow = flow.borrow_mut();
                    if let Some((acked, shares)) =
                        flow.last.as_ref().map(|last| (last.acked_bytes, last.shares_s.clone()))
                    {
                        flow.acked_at_mark = acked;
                        flow.shares_at_mark = shares.unwrap_or_default();
                    }
                }
                self.result.measured_ns = monotonic_ns();
            }
            if next >= duration {
                break;
            }
            next = (next + interval).min(duration);
            if begin.is_some() {
                next = next.min(warm_up.max(1));
            }
            let passed = monotonic_ns() - self.shared.begin_ns;
            tokio::time::sleep(Duration::from_nanos(next.saturating_sub(passed))).await;
            self.look()?;
            if !tick(next as f64 / duration as f64) {
                return Ok(false);
            }
        }
        let before = std::mem::take(&mut self.result.counters);
        let since = |(name, value): (String, u64)| {
            let then = before.get(&name).copied().unwrap_or(0);
            (name, value.saturating_sub(then))
        };
        self.result.counters = self.sender.counters()?.into_iter().map(since).collect();
        self.result.context_switches = context_switches().saturating_sub(switches);
        self.result.measured_ns = monotonic_ns() - self.result.measured_ns;
        Ok(true)
    }

    fn look(&mut self) -> io::Result<()> {
        let now = monotonic_ns();
        let span_s = (now - self.last_ns) as f64 / 1e9;
        let t_s = (now - self.shared.begin_ns) as f64 / 1e9;
        self.last_ns = now;
        let device = self.sender.device_bytes();
        let measuring = self.shared.measuring.get();
        let (mut memory, mut unsent) = (0, 0);
        for (number, (conn, flow)) in self.shared.conns.iter().zip(&self.shared.flows).enumerate() {
            let Some(conn) = conn.borrow().clone() else { continue };
            // A closed connection has nothing more to report.
            let Ok(snapshot) = conn.snapshot() else { continue };
            let mut flow = flow.borrow_mut();
            let before = flow.last.take();
            let acked_before = before.as_ref().map_or(0, |before| before.acked_bytes);
            if !flow.is_beside {
                memory += snapshot.memory.unwrap_or(0);
                unsent += snapshot.point.unsent_bytes;
                if measuring && let Some(srtt) = snapshot.point.srtt_s {
                    self.result.srtt_ns.push((srtt * 1e9) as u64);
                }
            }
            if number < SERIES_MAX {
                let shares = snapshot.shares_s.as_ref().map(|shares| {
                    let zero = vec![0.0; shares.len()];
                    let then = before.as_ref().and_then(|before| before.shares_s.as_ref()).unwrap_or(&zero);
                    shares.iter().zip(then).map(|(now, then)| (now - then).max(0.0)).collect()
                });
                flow.points.push(Interval {
                    t_s,
                    qdisc_bytes: device.unwrap_or(0),
                    device_bytes: device.unwrap_or(0),
                    goodput_bps: snapshot.acked_bytes.saturating_sub(acked_before) as f64 * 8.0 / span_s,
                    blocked_s: shares.unwrap_or_default(),
                    ..snapshot.point.clone()
                });
            }
            flow.last = Some(snapshot);
        }
        let seen = self.shared.conns.iter().zip(&self.shared.flows).map(|(conn, flow)| Seen {
            acked: flow.borrow().last.as_ref().map_or(0, |last| last.acked_bytes),
            is_open: conn.borrow().is_some(),
        });
        self.shares.take(t_s, seen);
        if measuring {
            self.result.device_bytes.extend(device);
            self.result.socket_memory.push(memory);
            self.result.unsent_bytes.push(unsent);
        }
        Ok(())
    }
}

/// Voluntary context switches of this thread; 0 where the kernel does not report them.
fn context_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

async fn flow<S: Sender>(
    sender: &S,
    plan: &FlowPlan,
    number: usize,
    shared: &Shared<S::Conn>,
) -> io::Result<()> {
    tokio::time::sleep(plan.start).await;
    let conn =
        tokio::time::timeout(PATIENCE, sender.connect(plan)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let conn = Rc::new(conn);
    let since = || monotonic_ns() - shared.begin_ns;
    shared.flows[number].borrow_mut().connected_ns = Some(since());
    *shared.conns[number].borrow_mut() = Some(Rc::clone(&conn));
    match plan.spec.app {
        AppKind::Bulk | AppKind::Stream => {
            let total = plan.spec.total.as_ref().map_or(u64::MAX, |total| total.value.0);
            bulk(&*conn, plan, total, number, shared).await?;
            conn.finish()?;
            // The other end closes once it has received everything.
            let mut byte = [0];
            while read(&*conn, &mut byte, shared).await? > 0 {}
            let mut flow = shared.flows[number].borrow_mut();
            flow.ended_ns = Some(since());
            if let Ok(snapshot) = conn.snapshot() {
                flow.last = Some(snapshot);
            }
            *shared.conns[number].borrow_mut() = None;
        }
        AppKind::Rr => requests(&*conn, plan, number, shared).await?,
        AppKind::Web => {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "web pages are simulated only"));
        }
    }
    Ok(())
}

async fn bulk<C: Conn>(
    conn: &C,
    plan: &FlowPlan,
    total: u64,
    number: usize,
    shared: &Shared<C>,
) -> io::Result<()> {
    let size = plan.spec.write.as_ref().map_or(CHUNK_BYTES, |write| write.value.0 as usize);
    let chunk = vec![0x5a; size.max(1)];
    let (mut written, mut due) = (0, monotonic_ns());
    while written < total {
        let len = (total - written).min(chunk.len() as u64) as usize;
        let count = write(conn, &chunk[..len], shared).await?;
        written += count as u64;
        shared.flows[number].borrow_mut().written = written;
        match &plan.spec.every {
            Some(every) => {
                due += every.value.as_nanos();
                until(due).await;
            }
            // Let the other writers on this thread run.
            None => tokio::task::yield_now().await,
        }
    }
    Ok(())
}

/// Sleeps for as long as the runtime's clock is exact enough, then spins for the rest; other tasks run at
/// least once meanwhile.
async fn until(due_ns: u64) {
    const COARSE: Duration = Duration::from_millis(2);
    tokio::task::yield_now().await;
    loop {
        match Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())) {
            Duration::ZERO => return,
            left if left > COARSE => tokio::time::sleep(left - COARSE).await,
            _ => tokio::task::yield_now().await,
        }
    }
}

async fn write<C: Conn>(conn: &C, data: &[u8], shared: &Shared<C>) -> io::Result<usize> {
    loop {
        match conn.try_write(data) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                conn.writable().await?;
                shared.wakeups.set(shared.wakeups.get() + 1);
            }
            other => {
                shared.writes.set(shared.writes.get() + u64::from(other.is_ok()));
                return other;
            }
        }
    }
}

async fn read<C: Conn>(conn: &C, into: &mut [u8], shared: &Shared<C>) -> io::Result<usize> {
    loop {
        match conn.try_read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                conn.readable().await?;
                shared.wakeups.set(shared.wakeups.get() + 1);
            }
            other => return other,
        }
    }
}

async fn requests<C: Conn>(conn: &C, plan: &FlowPlan, number: usize, shared: &Shared<C>) -> io::Result<()> {
    let size = |text: &Option<crate::scenario::value::Text<crate::scenario::value::Bytes>>| {
        text.as_ref().map_or(1, |text| text.value.0.max(1) as usize)
    };
    let request = vec![b'?'; size(&plan.spec.request)];
    let response = size(&plan.spec.response);
    let mut buffer = vec![0; response];
    for _ in 0..plan.spec.transactions.unwrap_or(u64::MAX) {
        let began = monotonic_ns();
        let mut sent = 0;
        while sent < request.len() {
            sent += write(conn, &request[sent..], shared).await?;
        }
        let mut got = 0;
        while got < response {
            match read(conn, &mut buffer[got..], shared).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => got += count,
            }
        }
        if shared.measuring.get() {
            shared.flows[number].borrow_mut().latencies_ns.push(monotonic_ns() - began);
        }
        match &plan.spec.think {
            Some(think) => tokio::time::sleep(think.value.into()).await,
            None => tokio::task::yield_now().await,
        }
    }
    Ok(())
}
