//! How much one bulk sender has below TCP on an Ethernet interface behind `tbf`, and a ping beside it: taut over packet
//! sockets by each rule of the small queue, and the kernel's TCP on the same path, with the same congestion control.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "the measurement needs a clock")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as KernelListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use taut::Stack;
use taut::blocking::TcpStream;
use taut_testbed::{Kernel, PATIENCE, Subnet, connect, eventually, listen};

const NET: Subnet = Subnet(9);
const WARM_UP: Duration = Duration::from_secs(1);
const PING_EVERY: Duration = Duration::from_millis(5);

/// A `tbf`.
#[derive(Clone, Copy)]
struct Line {
    bits_per_second: u64,
    burst: u64,
    offload: bool,
}

const SLOW: Line = Line { bits_per_second: 100_000_000, burst: 16_000, offload: true };

/// What a run found: backlog and ping in milliseconds, goodput in Mbit/s.
#[derive(Debug)]
struct Found {
    backlog_mean: f64,
    backlog_most: f64,
    ping_p50: f64,
    ping_p99: f64,
    goodput: f64,
}

/// Two kernels and a cable, with `tbf` at the near end. At the far end are a sink and an echo.
struct Cable {
    near: Kernel,
    _far: Kernel,
    sink: SocketAddr,
    echo: SocketAddr,
    arrived: Arc<AtomicU64>,
}

impl Cable {
    /// The near kernel has addresses, or the stack will have them.
    fn new(line: Line, kernel_sends: bool) -> Self {
        let near = Kernel::new().expect("a network namespace, which needs root");
        let far = Kernel::new().unwrap();
        let (here, there) = near.namespace.connect("veth0", &far.namespace, "veth0").unwrap();
        [&here, &there].into_iter().for_each(|interface| interface.set_up().unwrap());
        there.wait_until_running(PATIENCE).unwrap();
        NET.far().into_iter().for_each(|address| there.add_address(address).unwrap());
        if kernel_sends {
            NET.near().into_iter().for_each(|address| here.add_address(address).unwrap());
            if !line.offload {
                near.run("ip link set dev veth0 gso_max_segs 1").unwrap();
            }
        }
        near.limit_rate("veth0", line.bits_per_second, line.burst, 4_000_000).unwrap();
        let listener = || -> KernelListener {
            far.enter(|| listen("10.9.0.1:0".parse().unwrap(), None)).unwrap().unwrap()
        };
        let (sink, echo) = (listener(), listener());
        let (sink_at, echo_at) = (sink.local_addr().unwrap(), echo.local_addr().unwrap());
        let arrived = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&arrived);
        thread::spawn(move || {
            let (mut stream, mut buffer) = (sink.accept().unwrap().0, vec![0; 1 << 18]);
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                count.fetch_add(len as u64, Relaxed);
            }
        });
        thread::spawn(move || {
            let (mut stream, mut byte) = (echo.accept().unwrap().0, [0]);
            stream.set_nodelay(true).unwrap();
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        });
        Self { near, _far: far, sink: sink_at, echo: echo_at, arrived }
    }

    /// Sends in bulk for so long, with a ping beside it.
    fn measure(
        &self,
        line: Line,
        mut bulk: impl Write + Send,
        mut ping: impl Read + Write + Send,
        time: Duration,
    ) -> Found {
        let ended = &AtomicBool::new(false);
        let begin = Instant::now();
        let (mut backlogs, mut from) = (Vec::new(), None);
        let mut pings = thread::scope(|scope| {
            scope.spawn(move || {
                let data = vec![7; 1 << 16];
                while !ended.load(Relaxed) && bulk.write_all(&data).is_ok() {}
            });
            let pinger = scope.spawn(move || {
                let mut pings = Vec::new();
                while !ended.load(Relaxed) {
                    thread::sleep(PING_EVERY);
                    let asked = Instant::now();
                    ping.write_all(&[1]).unwrap();
                    ping.read_exact(&mut [0]).unwrap();
                    if begin.elapsed() > WARM_UP {
                        pings.push(asked.elapsed().as_secs_f64() * 1e3);
                    }
                }
                pings
            });
            while begin.elapsed() < WARM_UP + time {
                if begin.elapsed() > WARM_UP {
                    from.get_or_insert((Instant::now(), self.arrived.load(Relaxed)));
                    let bytes = self.near.backlog_bytes("veth0").unwrap();
                    backlogs.push(bytes as f64 * 8e3 / line.bits_per_second as f64);
                }
                thread::sleep(Duration::from_millis(5));
            }
            let (since, before) = from.unwrap();
            let bits = (self.arrived.load(Relaxed) - before) as f64 * 8.0;
            from = Some((since, (bits / since.elapsed().as_secs_f64()) as u64));
            ended.store(true, Relaxed);
            pinger.join().unwrap()
        });
        pings.sort_by(f64::total_cmp);
        let quantile = |share: f64| pings[((pings.len() - 1) as f64 * share) as usize];
        Found {
            backlog_mean: backlogs.iter().sum::<f64>() / backlogs.len() as f64,
            backlog_most: backlogs.iter().copied().fold(0.0, f64::max),
            ping_p50: quantile(0.5),
            ping_p99: quantile(0.99),
            goodput: from.unwrap().1 as f64 / 1e6,
        }
    }
}

fn taut_sends(line: Line, control: &str, rule: &str, time: Duration) -> Found {
    let cable = Cable::new(line, false);
    let options = taut::device::PacketOptions { offload: line.offload, ..Default::default() };
    let build = || Stack::builder().packet("veth0").packet_options(options).address("10.9.0.2/24").build();
    let stack = cable.near.enter(build).unwrap().expect("a stack on a packet socket");
    stack.set_sysctl("taut.tsq", rule).unwrap();
    stack.set_sysctl("tcp_congestion_control", control).unwrap();
    let streams = [cable.sink, cable.echo].map(|to| TcpStream::connect(&stack, to).unwrap());
    let [bulk, ping] = streams;
    ping.set_nodelay(true).unwrap();
    cable.measure(line, bulk, ping, time)
}

fn kernel_sends(line: Line, control: &str, time: Duration) -> Found {
    let cable = Cable::new(line, true);
    let stream = |to| cable.near.enter(|| connect(to, &Default::default(), Some(control))).unwrap().unwrap();
    let (bulk, ping) = (stream(cable.sink), stream(cable.echo));
    ping.set_nodelay(true).unwrap();
    cable.measure(line, bulk, ping, time)
}

/// DEV-12. What is counted here is the rule and its input; how much is below TCP by it, `make bench-live` measures.
#[test]
fn dev_12_a_packet_socket_measures_by_default() {
    let cable = Cable::new(SLOW, false);
    let build = || Stack::builder().packet("veth0").address("10.9.0.2/24").build();
    let stack = cable.near.enter(build).unwrap().expect("a stack on a packet socket");
    assert_eq!(stack.sysctl("taut.tsq").unwrap(), "auto");
    let mut bulk = TcpStream::connect(&stack, cable.sink).unwrap();
    let info = bulk.info().unwrap();
    assert_eq!((info.tsq_rule, info.tsq_time), ("measured", None), "nothing was sent yet");
    // As much as TCP has, the queue of `tbf` holds: only the small queue bounds it.
    eventually("the line is full, and its time measured", || {
        bulk.write_all(&[7; 1 << 16]).unwrap();
        bulk.info().unwrap().tsq_time.is_some() && stack.counters().tsq_turns_awaited > 0
    });
    assert!(stack.counters().device_late > 0, "the kernel reports departures");
    assert!(bulk.info().unwrap().tsq_limit.is_some());
    drop(bulk);
    assert!(stack.drain(PATIENCE), "{} connections left", stack.connections());
    assert_eq!(stack.counters().device_unreported, 0, "every ticket comes back");
}

/// All rules beside the kernel: `make bench-live`; RUNS=3 starts of each, CONTROL=cubic,
/// RULES=off,rate-scaled,delivered,measured,kernel. The kernel's bbr may be another version than taut's.
#[test]
#[ignore = "measures, and prints a table: make bench-live"]
fn make_table() {
    let runs: usize = std::env::var("RUNS").map_or(3, |text| text.parse().unwrap());
    let control = std::env::var("CONTROL").unwrap_or_else(|_| "cubic".to_owned());
    let rules = std::env::var("RULES");
    let rules = rules.unwrap_or_else(|_| "off,rate-scaled,delivered,measured,kernel".to_owned());
    let lines = [
        ("100 Mbit/s, offload", SLOW),
        ("100 Mbit/s", Line { offload: false, ..SLOW }),
        ("1 Gbit/s, offload", Line { bits_per_second: 1_000_000_000, burst: 64_000, offload: true }),
    ];
    println!("| line | sender | backlog ms, mean | most | ping ms, median | p99 | goodput Mbit/s |");
    println!("|---|---|---|---|---|---|---|");
    for (name, line) in lines {
        for rule in rules.split(',') {
            let time = Duration::from_secs(3);
            let found: Vec<Found> = (0..runs)
                .map(|_| {
                    if rule == "kernel" {
                        kernel_sends(line, &control, time)
                    } else {
                        taut_sends(line, &control, rule, time)
                    }
                })
                .collect();
            let show = |of: &dyn Fn(&Found) -> f64| {
                let mut values: Vec<f64> = found.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                format!("{:.2} ({:.2}–{:.2})", values[runs / 2], values[0], values[runs - 1])
            };
            println!(
                "| {name} | {rule} | {} | {} | {} | {} | {} |",
                show(&|found| found.backlog_mean),
                show(&|found| found.backlog_most),
                show(&|found| found.ping_p50),
                show(&|found| found.ping_p99),
                show(&|found| found.goodput)
            );
        }
    }
}
