//! How much one bulk sender has below TCP, and a ping beside it, by each rule of the small queue: taut over
//! packet sockets and an Ethernet interface behind `tbf`, with such a queue of its own in front of a TUN,
//! over a TUN whose kernel forwards through `tbf`, or over a stream socket that another program reads at the
//! line's rate; and the kernel's TCP on the first path, with the same congestion control.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "the measurement needs a clock")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener as KernelListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;
use taut::Stack;
use taut::blocking::TcpStream;
use taut::device::{Frames, FramesOptions, TunOptions};
use taut_testbed::{Kernel, PATIENCE, Subnet, connect, eventually, listen};

use crate::net;

const NET: Subnet = Subnet(9);
const WARM_UP: Duration = Duration::from_secs(1);
const PING_EVERY: Duration = Duration::from_millis(5);
/// `tc`, which is asked, takes some milliseconds of a processor.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A `tbf`.
#[derive(Clone, Copy)]
struct Line {
    bits_per_second: u64,
    burst: u64,
    offload: bool,
}

const SLOW: Line = Line { bits_per_second: 100_000_000, burst: 16_000, offload: true };

/// Results of a run: backlog and ping in milliseconds, goodput in Mbit/s, processor seconds for each GB.
#[derive(Debug)]
struct Found {
    backlog_mean: f64,
    backlog_most: f64,
    ping_p50: f64,
    ping_p99: f64,
    goodput: f64,
    processor: f64,
}

/// A program that uses a processor and never waits, until this is dropped.
struct Loop(Child);

impl Loop {
    fn new() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// How the bulk sender writes.
#[derive(Clone, Copy)]
struct Writes {
    bytes: usize,
    nodelay: bool,
    time: Duration,
}

/// A sink and an echo.
struct Far {
    sink: SocketAddr,
    echo: SocketAddr,
    arrived: Arc<AtomicU64>,
}

/// Two kernels and a cable, with `tbf` at the near end.
struct Cable {
    near: Kernel,
    far: Kernel,
    at: Far,
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
        let at = Far::new(&far, "10.9.0.1:0");
        Self { near, far, at }
    }

    fn backlog(&self) -> u64 {
        self.near.backlog_bytes("veth0").unwrap()
    }
}

/// A stream socket with the stack at one end and, at the other, a program that takes a packet when the line
/// has carried the one before, and puts it into a kernel.
struct SlowReader {
    _far: Kernel,
    at: Far,
    unread: Socket,
}

impl SlowReader {
    fn new(line: Line) -> (UnixStream, Self) {
        let (stack, reader) = UnixStream::pair().unwrap();
        let far = Kernel::new().expect("a network namespace, which needs root");
        let tun = far.tun(&NET.far(), &TunOptions { offload: false, ..Default::default() }).unwrap();
        let descriptor = || Socket::from(tun.as_fd().try_clone_to_owned().unwrap());
        descriptor().set_nonblocking(false).unwrap();
        let [taken, given] = [descriptor(), descriptor()].map(|fd| File::from(OwnedFd::from(fd)));
        let back = reader.try_clone().unwrap();
        let unread = Socket::from(OwnedFd::from(reader.try_clone().unwrap()));
        // They end with the socket and with the namespace.
        thread::spawn(move || carry(line, reader, given));
        thread::spawn(move || carry_back(taken, back));
        let at = Far::new(&far, "10.9.0.1:0");
        (stack, Self { _far: far, at, unread })
    }

    /// Bytes before the reader.
    fn backlog(&self) -> u64 {
        const PEEK_NOW: i32 = 0x2 | 0x40;
        self.unread.recv_with_flags(&mut vec![MaybeUninit::uninit(); 1 << 22], PEEK_NOW).unwrap_or(0) as u64
    }
}

/// A packet behind its length in four bytes.
fn carry(line: Line, mut from: UnixStream, mut to: File) -> io::Result<()> {
    let (mut free_at, mut length, mut packet) = (Instant::now(), [0; 4], vec![0; 1 << 16]);
    let burst = Duration::from_secs_f64(line.burst as f64 * 8.0 / line.bits_per_second as f64);
    loop {
        from.read_exact(&mut length)?;
        let packet = &mut packet[..u32::from_be_bytes(length) as usize];
        from.read_exact(packet)?;
        // As in `tbf`: what an idle or late line may make good is its burst.
        let bits = packet.len() as f64 * 8.0;
        free_at = free_at.max(Instant::now().checked_sub(burst).unwrap());
        free_at += Duration::from_secs_f64(bits / line.bits_per_second as f64);
        thread::sleep(free_at.saturating_duration_since(Instant::now()));
        to.write_all(packet)?;
    }
}

fn carry_back(mut from: File, mut to: UnixStream) -> io::Result<()> {
    let mut packet = vec![0; 1 << 16];
    loop {
        let len = from.read(&mut packet)?;
        to.write_all(&(len as u32).to_be_bytes())?;
        to.write_all(&packet[..len])?;
    }
}

impl Far {
    fn new(kernel: &Kernel, address: &str) -> Self {
        let listener = || -> KernelListener {
            kernel.enter(|| listen(address.parse().unwrap(), None)).unwrap().unwrap()
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
        Self { sink: sink_at, echo: echo_at, arrived }
    }

    /// Sends in bulk for so long, with a ping beside it.
    fn measure(
        &self,
        line: Line,
        backlog: impl Fn() -> u64,
        mut bulk: impl Write + Send,
        mut ping: impl Read + Write + Send,
        writes: Writes,
    ) -> Found {
        let ended = &AtomicBool::new(false);
        let begin = Instant::now();
        let (mut backlogs, mut from, mut processor) = (Vec::new(), None, 0.0);
        let mut pings = thread::scope(|scope| {
            scope.spawn(move || {
                let data = vec![7; writes.bytes];
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
            while begin.elapsed() < WARM_UP + writes.time {
                if begin.elapsed() > WARM_UP {
                    from.get_or_insert_with(|| {
                        (Instant::now(), self.arrived.load(Relaxed), processor_seconds())
                    });
                    backlogs.push(backlog() as f64 * 8e3 / line.bits_per_second as f64);
                }
                thread::sleep(LOOK_EVERY);
            }
            let (since, before, used) = from.unwrap();
            let bytes = (self.arrived.load(Relaxed) - before) as f64;
            processor = (processor_seconds() - used) / bytes * 1e9;
            from = Some((since, (bytes * 8.0 / since.elapsed().as_secs_f64()) as u64, 0.0));
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
            processor,
        }
    }
}

/// Of all threads of this process, so far.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // The 14th and the 15th of all, in hundredths.
    fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn taut_sends(line: Line, device: &str, control: &str, rule: &str, writes: Writes) -> Found {
    let set = |stack: &Stack| {
        stack.set_sysctl("taut.tsq", rule).unwrap();
        stack.set_sysctl("tcp_congestion_control", control).unwrap();
    };
    let streams = |stack: &Stack, far: &Far| {
        let [bulk, ping] = [far.sink, far.echo].map(|to| TcpStream::connect(stack, to).unwrap());
        bulk.set_nodelay(writes.nodelay).unwrap();
        ping.set_nodelay(true).unwrap();
        (bulk, ping)
    };
    if device == "front" {
        let Line { bits_per_second, burst, .. } = line;
        let link = format!("rate {bits_per_second}bit burst {burst} limit 4mb").parse().unwrap();
        let tun = TunOptions { offload: line.offload, ..Default::default() };
        let net = net::Net::with(|builder| builder.tun_options(tun).link(link).build());
        set(&net.stack);
        let far = Far::new(&net.kernel, "10.7.0.1:0");
        let (bulk, ping) = streams(&net.stack, &far);
        let backlog = || net.stack.link_report().unwrap().backlog_bytes;
        return far.measure(line, backlog, bulk, ping, writes);
    }
    if device == "tun" {
        let cable = Cable::new(line, true);
        let tun = TunOptions { offload: line.offload, ..Default::default() };
        let build = || net::builder().tun_options(tun).build();
        let stack = cable.near.enter(build).unwrap().expect("a stack on a TUN");
        cable.near.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
        cable.far.run("ip route add 10.7.0.0/24 via 10.9.0.2").unwrap();
        set(&stack);
        let (bulk, ping) = streams(&stack, &cable.at);
        return cable.at.measure(line, || cable.backlog(), bulk, ping, writes);
    }
    if device == "frames" {
        let (end, reader) = SlowReader::new(line);
        let options = FramesOptions { ethernet: false, ..Default::default() };
        let frames = Frames::stream(end, &[], &options).unwrap();
        let stack = Stack::builder().device(frames).address("10.9.0.2/24").build().unwrap();
        set(&stack);
        let (bulk, ping) = streams(&stack, &reader.at);
        return reader.at.measure(line, || reader.backlog(), bulk, ping, writes);
    }
    let cable = Cable::new(line, false);
    let options = taut::device::PacketOptions { offload: line.offload, ..Default::default() };
    let build = || Stack::builder().packet("veth0").packet_options(options).address("10.9.0.2/24").build();
    let stack = cable.near.enter(build).unwrap().expect("a stack on a packet socket");
    set(&stack);
    let (bulk, ping) = streams(&stack, &cable.at);
    cable.at.measure(line, || cable.backlog(), bulk, ping, writes)
}

fn kernel_sends(line: Line, control: &str, writes: Writes) -> Found {
    let cable = Cable::new(line, true);
    let stream = |to| cable.near.enter(|| connect(to, &Default::default(), Some(control))).unwrap().unwrap();
    let (bulk, ping) = (stream(cable.at.sink), stream(cable.at.echo));
    bulk.set_nodelay(writes.nodelay).unwrap();
    ping.set_nodelay(true).unwrap();
    cable.at.measure(line, || cable.backlog(), bulk, ping, writes)
}

/// DEV-12. What is counted here is the rule and its input; how much is below TCP, `make bench-live` measures.
#[test]
fn dev_12_a_packet_socket_measures_by_default() {
    let cable = Cable::new(SLOW, false);
    let build = || Stack::builder().packet("veth0").address("10.9.0.2/24").build();
    let stack = cable.near.enter(build).unwrap().expect("a stack on a packet socket");
    assert_eq!(stack.sysctl("taut.tsq").unwrap(), "auto");
    let mut bulk = TcpStream::connect(&stack, cable.at.sink).unwrap();
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

/// All rules beside the kernel: `make bench-live`. RUNS=3 starts of each, CONTROL=cubic, DEVICE=packet,
/// front, tun or frames, LINES="100mbit;1gbit" for some lines,
/// RULES=off,rate-scaled,delivered,measured,kernel, WRITE=65536 bytes at once, NODELAY=1, BUSY=2 other
/// programs that never wait. The kernel's bbr may be of another version.
#[test]
#[ignore = "measures, and prints a table: make bench-live"]
fn make_table() {
    let set = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let runs: usize = set("RUNS", "3").parse().unwrap();
    let (control, device) = (set("CONTROL", "cubic"), set("DEVICE", "packet"));
    let (rules, wanted) = (set("RULES", "off,rate-scaled,delivered,measured,kernel"), set("LINES", ""));
    let (bytes, nodelay) = (set("WRITE", "65536").parse().unwrap(), set("NODELAY", "0") == "1");
    let writes = Writes { bytes, nodelay, time: Duration::from_secs(3) };
    let busy: usize = set("BUSY", "0").parse().unwrap();
    let _load: Vec<Loop> = (0..busy).map(|_| Loop::new()).collect();
    let line = |bits_per_second, burst, offload| Line { bits_per_second, burst, offload };
    let lines = [
        ("10mbit, offload", line(10_000_000, 16_000, true)),
        ("100mbit, offload", SLOW),
        ("100mbit", Line { offload: false, ..SLOW }),
        ("1gbit, offload", line(1_000_000_000, 64_000, true)),
        ("1gbit", line(1_000_000_000, 64_000, false)),
        ("10gbit, offload", line(10_000_000_000, 1_000_000, true)),
    ];
    let wanted = |name: &&(&str, Line)| wanted.is_empty() || wanted.split(';').any(|wanted| wanted == name.0);
    println!(
        "{device}, {control}, writes of {bytes} bytes{}, {busy} busy programs:",
        if nodelay { ", TCP_NODELAY" } else { "" }
    );
    println!(
        "| line | sender | backlog ms, mean | most | ping ms, median | p99 | goodput Mbit/s | CPU s/GB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, line) in lines.iter().filter(wanted) {
        // In turns: what else the machine does falls on all of them.
        let mut found: Vec<Vec<Found>> = rules.split(',').map(|_| Vec::new()).collect();
        for _ in 0..runs {
            for (rule, found) in rules.split(',').zip(&mut found) {
                found.push(if rule == "kernel" {
                    kernel_sends(*line, &control, writes)
                } else {
                    taut_sends(*line, &device, &control, rule, writes)
                });
            }
        }
        for (rule, found) in rules.split(',').zip(&found) {
            let show = |of: &dyn Fn(&Found) -> f64| {
                let mut values: Vec<f64> = found.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                format!("{:.2} ({:.2}–{:.2})", values[runs / 2], values[0], values[runs - 1])
            };
            println!(
                "| {name} | {rule} | {} | {} | {} | {} | {} | {} |",
                show(&|found| found.backlog_mean),
                show(&|found| found.backlog_most),
                show(&|found| found.ping_p50),
                show(&|found| found.ping_p99),
                show(&|found| found.goodput),
                show(&|found| found.processor)
            );
        }
    }
}
