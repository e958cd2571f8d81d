//! A device of your own: a VPN in miniature. One stack sends through a worker thread that encrypts 100 Mbit/s, a second
//! stack receives. The device is safe Rust over what `taut` re-exports. No root needed:
//!
//! ```console
//! $ cargo run -p taut --example custom_device             # 20 MB in packets and in super-packets, by each of three rules
//! $ cargo run -p taut --example custom_device 500         # longer: run `taut explain --watch` in another terminal
//! ```
//!
//! The worker takes all packets that wait for it as one batch, and gives their tickets back when the batch is done, the
//! newest first: late and out of order. The bytes whose tickets are out are below TCP. The device says that its tickets come
//! back when packets have left (`completes_on_departure`), so the stack measures how long that takes, and keeps
//! as much below TCP as lasts until the next tickets, and a millisecond. So the queue in front of the worker
//! stays short, however much the application has written. By the constant of a millisecond, and two packets in
//! any case, two super-packets wait there: ten milliseconds. Both are shown, and a run without small queues.

#![allow(clippy::disallowed_methods, reason = "the worker and the measurement need a clock")]

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use taut::Stack;
use taut::blocking::{TcpListener, TcpStream};
use taut::device::{Device, KeptPacket, LinkCaps, TxPacket, TxTicket};
use taut::device::{News, Pipe, Received, RxDevice, Sent, TxDevice};
use taut::observe::Report;

/// Bits per second that the worker encrypts.
pub(crate) const WORKER_BPS: f64 = 100e6;
/// Packets that may wait for the worker, of all connections together.
const WAITING_MAX: usize = 1_000;

/// Rules for how much a connection may have below TCP.
const RULES: [(&str, &str); 3] =
    [("off", "no small queue"), ("delivered", "a constant of a millisecond"), ("auto", "measured")];

/// Slow start, which leaves the worker idle, is over by then.
const START: Duration = Duration::from_millis(500);

/// A packet for the worker, with its number.
type Job = (u64, KeptPacket, TxTicket);

/// The half that sends hands packets to the worker.
struct TunnelTx {
    jobs: SyncSender<Job>,
    done: Receiver<(u64, TxTicket)>,
    waker: Arc<OnceLock<Waker>>,
    tickets: Arc<Tickets>,
    newest: u64,
}

/// Tickets that went to the worker, that came back, and that came back after a newer one.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    pub(crate) out: AtomicU64,
    pub(crate) back: AtomicU64,
    pub(crate) overtaken: AtomicU64,
    /// Bytes that the largest of them charges.
    pub(crate) largest: AtomicU64,
}

impl TxDevice for TunnelTx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.waker.get_or_init(|| waker.clone());
        Ok(News::Waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        self.tickets.largest.fetch_max(ticket.truesize().into(), Relaxed);
        match self.jobs.try_send((self.tickets.out.load(Relaxed), packet.keep(), ticket)) {
            Ok(()) => {
                self.tickets.out.fetch_add(1, Relaxed);
                Sent::Kept
            }
            // The worker calls the waker after every batch, and the queue has room then, or after the next one.
            Err(TrySendError::Full((.., ticket))) => Sent::Full(ticket),
            Err(TrySendError::Disconnected((.., ticket))) => {
                Sent::Never(ticket, io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        let (number, ticket) = self.done.try_recv().ok()?;
        self.tickets.back.fetch_add(1, Relaxed);
        self.tickets.overtaken.fetch_add(u64::from(number < self.newest), Relaxed);
        self.newest = self.newest.max(number);
        Some(ticket)
    }
}

/// The half that receives takes packets off the line.
struct TunnelRx(Arc<Pipe>);

impl RxDevice for TunnelRx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.news(waker)
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        Ok(self.0.recv(buffer))
    }
}

/// The worker. It ends with the device.
fn encrypt(jobs: &Receiver<Job>, done: &Sender<(u64, TxTicket)>, waker: &OnceLock<Waker>, line: &Pipe) {
    let mut busy_until = Instant::now();
    while let Ok(first) = jobs.recv() {
        let batch: Vec<Job> = std::iter::once(first).chain(jobs.try_iter()).collect();
        for (_, packet, _) in &batch {
            // Where a cipher would work, this sleeps. Sleeps end late; the worker catches up on 10 ms at most.
            busy_until = busy_until.max(Instant::now() - Duration::from_millis(10));
            busy_until += Duration::from_secs_f64(packet.packet().len() as f64 * 8.0 / WORKER_BPS);
            thread::sleep(busy_until.saturating_duration_since(Instant::now()));
            // A packet that finds the line full is lost, as on any other.
            let _ = line.put(&packet.packet());
        }
        for (number, _, ticket) in batch.into_iter().rev() {
            // Without a device, no stack waits for tickets.
            let _ = done.send((number, ticket));
        }
        waker.get().into_iter().for_each(Waker::wake_by_ref);
    }
}

/// A device whose packets leave by `line`, after the worker, and whose tickets come back then.
fn tunnel(line: Pipe) -> (Device, Arc<Tickets>) {
    let caps = LinkCaps { completes_on_departure: true, ..line.caps() };
    let line = Arc::new(line);
    let (jobs, waiting) = sync_channel(WAITING_MAX);
    let (completed, done) = channel();
    let (waker, tickets) = (Arc::new(OnceLock::new()), Arc::new(Tickets::default()));
    let tx = TunnelTx { jobs, done, waker: Arc::clone(&waker), tickets: Arc::clone(&tickets), newest: 0 };
    let rx = TunnelRx(Arc::clone(&line));
    thread::spawn(move || encrypt(&waiting, &completed, &waker, &line));
    (Device::new(caps, tx, rx), tickets)
}

/// The sending connection at one time.
pub(crate) struct Sample {
    /// Bytes charged below TCP: of each packet its payload and 1,024.
    pub(crate) charged: u64,
    /// The payload among them; `taut explain` prints it as the bytes in `device`.
    pub(crate) payload: u64,
    /// Bytes per second of which the limit is `rate >> 10`, if completions are not measured: the pacing rate, and at most
    /// 9/8 of the delivery rate.
    pub(crate) rate: u64,
    /// The payload that may be below TCP, where completions are measured, and the time that they take.
    pub(crate) measured: Option<(u64, Duration)>,
}

/// A transfer whose last byte has arrived.
pub(crate) struct Outcome {
    /// After [`START`], if it took longer than twice that.
    pub(crate) goodput_bps: f64,
    /// From the connection's first moment on.
    pub(crate) whole_bps: f64,
    /// One every millisecond.
    pub(crate) samples: Vec<Sample>,
    pub(crate) charged_at_end: u64,
    pub(crate) tickets: Arc<Tickets>,
    report: Report,
}

/// Sends so many bytes through the tunnel to a second stack, whose ACKs take 10 ms, by sockets with their defaults, and with
/// small queues by this rule (`taut.tsq`).
///
/// The delay matters where completions are not measured: an ACK that overtakes the ticket of its own packet leaves less
/// unacknowledged than is below TCP. With at most one packet unacknowledged, a connection hands over another one whatever is
/// below.
pub(crate) fn transfer(caps: LinkCaps, bytes: usize, rule: &str) -> io::Result<Outcome> {
    let (line, far_end) = taut::device::pipe(caps, 4 << 20)?;
    let (device, tickets) = tunnel(line);
    let near = Stack::builder().device(device).address("10.0.0.1/24");
    // For `taut explain`.
    #[cfg(target_os = "linux")]
    let near = near.device_name("tunnel").control_default();
    let far = Stack::builder().device(far_end).link_from("delay 10ms").address("10.0.0.2/24");
    let (near, far) = (near.build()?, far.build()?);
    near.set_sysctl("taut.tsq", rule).map_err(io::Error::other)?;
    let listener = TcpListener::bind(&far, "10.0.0.2:5201")?;
    let mut stream = TcpStream::connect(&near, "10.0.0.2:5201")?;
    let (mut accepted, start, observed) = (listener.accept()?.0, Instant::now(), stream.try_clone()?);
    let sample = || -> io::Result<Sample> {
        let (info, report) = (observed.info()?, observed.report()?);
        let payload = report.queues[1].bytes;
        let delivered = if info.delivery_rate > 0 { info.delivery_rate / 8 * 9 } else { u64::MAX };
        let time = info.tsq_time.map_or(Duration::ZERO, |time| Duration::from_nanos(time.as_nanos()));
        let measured = info.tsq_limit.filter(|_| info.tsq_rule == "measured").map(|limit| (limit, time));
        let rate = info.pacing_rate.min(delivered);
        Ok(Sample { charged: info.wmem_alloc.into(), payload, rate, measured })
    };
    let arrived = &AtomicU64::new(0);
    thread::scope(|scope| {
        scope
            .spawn(move || stream.write_all(&vec![7; bytes]).and_then(|()| stream.shutdown(Shutdown::Write)));
        let reader = scope.spawn(move || -> io::Result<()> {
            let mut buffer = vec![0; 64 << 10];
            loop {
                match accepted.read(&mut buffer)? {
                    0 => return Ok(()),
                    count => arrived.fetch_add(count as u64, Relaxed),
                };
            }
        });
        let (mut samples, mut from) = (Vec::new(), (Duration::ZERO, 0));
        while !reader.is_finished() {
            samples.push(sample()?);
            thread::sleep(Duration::from_millis(1));
            if from.1 == 0 && start.elapsed() >= START {
                from = (start.elapsed(), arrived.load(Relaxed));
            }
        }
        reader.join().expect("no panic")?;
        let (span, report) = (start.elapsed(), observed.report()?);
        let from = if span < 2 * START { (Duration::ZERO, 0) } else { from };
        let seconds = span.as_secs_f64();
        let whole_bps = arrived.load(Relaxed) as f64 * 8.0 / seconds;
        let goodput_bps = (arrived.load(Relaxed) - from.1) as f64 * 8.0 / (span - from.0).as_secs_f64();
        // The last tickets are on their way.
        while sample()?.charged > 0 && start.elapsed().as_secs_f64() < seconds + 5.0 {
            thread::sleep(Duration::from_millis(1));
        }
        let charged_at_end = sample()?.charged;
        Ok(Outcome { goodput_bps, whole_bps, samples, charged_at_end, tickets, report })
    })
}

fn print(outcome: &Outcome) {
    let Outcome { goodput_bps, whole_bps, samples, charged_at_end, tickets, report } = outcome;
    let show = |name: &str, of: &dyn Fn(&Sample) -> u64| {
        let (sum, most) = samples.iter().map(of).fold((0, 0), |(sum, most), one| (sum + one, one.max(most)));
        let mean = sum / samples.len().max(1) as u64;
        println!("  {name:16} mean {mean:>7} bytes, most {most:>7}");
        mean
    };
    let Tickets { out, back, overtaken, largest } = &**tickets;
    let two_packets = 2 * largest.load(Relaxed);
    println!(
        "  goodput          {:.1} Mbit/s, {:.1} with the start; the worker's rate is {:.0}, headers included",
        goodput_bps / 1e6,
        whole_bps / 1e6,
        WORKER_BPS / 1e6
    );
    show("below TCP", &|sample| sample.charged);
    // A packet may join the others while they are below the limit; a measured one is of payload, the packet included.
    show("the rule's limit", &|sample| {
        sample.measured.map_or(two_packets.max(sample.rate >> 10), |(limit, _)| limit)
    });
    if let Some((_, time)) = samples.last().and_then(|sample| sample.measured) {
        println!("  completions take {:.2} ms", time.as_secs_f64() * 1e3);
    }
    let payload = show("payload below", &|sample| sample.payload);
    println!("  that is          {:.2} ms of the worker's rate", payload as f64 * 8e3 / WORKER_BPS);
    println!("  tickets          {out:?} out, {back:?} back, {overtaken:?} of them after a newer one");
    println!("  at the end       {charged_at_end} bytes charged");
    // The figures of `taut explain`.
    let all: u64 = report.shares.iter().map(|(_, time)| time.as_nanos()).sum();
    let shares = report.shares.iter().map(|(gate, time)| (time.as_nanos() * 100 / all.max(1), gate.words()));
    let shares: Vec<_> =
        shares.filter(|share| share.0 > 0).map(|(share, gate)| format!("{share} % {gate}")).collect();
    println!("  held back by     {}", shares.join(", "));
    for queue in &report.queues {
        let below = queue.sojourn.quantile_below(0.99).map_or(0, taut::config::Duration::as_micros);
        println!("  {:16} 99 % of the bytes stayed for less than {below} µs", queue.name);
    }
}

fn main() -> io::Result<()> {
    let mbytes = match std::env::args().nth(1) {
        None => 20,
        Some(text) => {
            text.parse().map_err(|_| io::Error::other(format!("{text}: not a number of megabytes")))?
        }
    };
    for (name, caps) in [("packets", LinkCaps::plain(1_500)), ("super-packets", LinkCaps::offloading(1_500))]
    {
        for (rule, what) in RULES {
            println!("{mbytes} MB in {name}, {what} (taut.tsq={rule}):");
            print(&transfer(caps, mbytes * 1_000_000, rule)?);
        }
    }
    Ok(())
}
