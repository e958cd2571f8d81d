//! The work of a guest, and how it is measured.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::Value;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::gateways::{Guest, Kind, Programs};
use crate::servers::{AFTER, AFTER_END, CLOSED, ECHO, HOLD, ONCE, at, dial};
use crate::split;
use crate::start;
use crate::table::Table;
use crate::world::{Line, SERVER, SILENT, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Row {
    StartUp,
    Memory,
    Refused,
    HalfClose,
    BlackHoles,
    RoundTrip,
    Connections,
    Up1,
    Up8,
    Up64,
    Down1,
    Down8,
    Down64,
    Udp,
    Lossy,
    Fifo,
    /// Head and body of a request, in two writes.
    Bodies,
    /// Round trips after 64 flows.
    AfterBulk,
    UdpTrips,
    UdpNew,
    /// How long a block takes from its write to its read, over 2, 20 and 200 Mbit/s.
    Blocks2,
    Blocks20,
    Blocks200,
    /// The same over 20 Mbit/s, written by a service of the guest's to a client beyond a port of the host.
    Forwarded,
}

/// Idle flows by which memory is divided.
const IDLE: usize = 1_000;
/// Threads that connect.
const CLIENTS: usize = 16;
/// How long a guest waits for a connection or an answer.
pub const LIMIT: Duration = Duration::from_secs(5);

impl Row {
    /// Memory before bulk, which leaves much that is free, and after what its 2,000 flows would slow in a
    /// gateway that polls all its former flows. New ports of UDP come after that, because libslirp keeps
    /// polling them; black holes last, because one gateway lets nobody through for two minutes after them.
    pub const ALL: &[Self] = &[
        Self::StartUp,
        Self::Refused,
        Self::HalfClose,
        Self::RoundTrip,
        Self::Bodies,
        Self::Connections,
        Self::Memory,
        Self::Up1,
        Self::Up8,
        Self::Up64,
        Self::Down1,
        Self::Down8,
        Self::Down64,
        Self::AfterBulk,
        Self::Udp,
        Self::UdpTrips,
        Self::UdpNew,
        Self::BlackHoles,
        Self::Lossy,
        Self::Fifo,
        Self::Blocks2,
        Self::Blocks20,
        Self::Blocks200,
        Self::Forwarded,
    ];

    pub const fn line(self) -> Line {
        match self {
            Self::Lossy => Line::Lossy,
            Self::Fifo => Line::Fifo,
            Self::Blocks2 => Line::Slow2,
            Self::Blocks20 | Self::Forwarded => Line::Slow20,
            Self::Blocks200 => Line::Slow200,
            _ => Line::Short,
        }
    }

    /// Whether this is work for this one: a proxy has not all of it.
    pub fn is_of(self, kind: Kind) -> bool {
        let of_proxies = [Self::RoundTrip, Self::Bodies, Self::Blocks2, Self::Blocks20, Self::Blocks200];
        match kind {
            Kind::Proxy => of_proxies.contains(&self),
            Kind::Slirp4netns | Kind::Gvproxy | Kind::Tun2proxy => self != Self::Forwarded,
            _ => true,
        }
    }

    pub fn measure(
        self,
        programs: &Programs,
        world: &World,
        guest: &Guest,
        seconds: u32,
        table: &mut Table,
    ) -> Result<()> {
        match self {
            Self::StartUp => start::measure(programs, world, guest, table),
            Self::Memory => memory(world, guest, table),
            Self::Refused => refused(guest, table),
            Self::HalfClose => half_close(guest, table),
            Self::BlackHoles => black_holes(guest, table),
            Self::RoundTrip => round_trip(guest, table),
            Self::Connections => connections(guest, table),
            Self::Up1 => bulk(world, guest, 1, false, seconds, table),
            Self::Up8 => bulk(world, guest, 8, false, seconds, table),
            Self::Up64 => bulk(world, guest, 64, false, seconds, table),
            Self::Down1 => bulk(world, guest, 1, true, seconds, table),
            Self::Down8 => bulk(world, guest, 8, true, seconds, table),
            Self::Down64 => bulk(world, guest, 64, true, seconds, table),
            Self::Udp => udp(world, guest, seconds, table),
            Self::Lossy => lossy(world, guest, table),
            Self::Fifo => beside_an_upload(world, guest, table),
            Self::Bodies => split::bodies(guest, table),
            Self::AfterBulk => split::after_bulk(guest, table),
            Self::UdpTrips => split::udp_trips(guest, table),
            Self::UdpNew => split::udp_new(guest, table),
            Self::Blocks2 | Self::Blocks20 | Self::Blocks200 => split::blocks(world, guest, table),
            Self::Forwarded => split::forwarded(world, guest, table),
        }
    }
}

/// A server iperf3 for one client, and its port.
pub fn iperf3_server(world: &World) -> Result<(Killed, u16)> {
    static PORT: AtomicU16 = AtomicU16::new(5_300);
    let port = PORT.fetch_add(1, Relaxed);
    let address = std::net::Ipv4Addr::from(SERVER).to_string();
    let mut server = Command::new("iperf3");
    server.args(["-s", "-1", "-B", &address, "-p", &port.to_string()]);
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let server = Killed(world.far.namespace.spawn(&mut server)?);
    let listens = format!("{port:04X}");
    let begun = Instant::now();
    // Connecting would be taken for a client.
    while !world.far.run("cat /proc/net/tcp")?.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (own, state) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        own.ends_with(&listens) && state == "0A"
    }) {
        ensure!(begun.elapsed() < LIMIT, "iperf3 does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((server, port))
}

/// One program iperf3 each for server and client.
fn iperf3(world: &World, guest: &Guest, seconds: u32, options: &[&str]) -> Result<Value> {
    let (server, port) = iperf3_server(world)?;
    let (address, port) = (std::net::Ipv4Addr::from(SERVER).to_string(), port.to_string());
    let mut client = guest.command("timeout");
    client.args(["--kill-after=1", &(seconds + 10).to_string(), "iperf3", "-c", &address, "-p", &port, "-J"]);
    client.args(["-t", &seconds.to_string()]).args(options);
    let output = world.watched(|| client.output())?;
    drop(server);
    let text = String::from_utf8_lossy(&output.stdout);
    let result: Value = serde_json::from_str(&text)
        .with_context(|| format!("iperf3 {options:?}: {} {}", output.status, text.trim()))?;
    if let Some(error) = result.get("error") {
        anyhow::bail!("iperf3 {options:?}: {error}");
    }
    Ok(result)
}

/// A program that ends with this.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn bulk(world: &World, guest: &Guest, flows: u32, down: bool, seconds: u32, table: &mut Table) -> Result<()> {
    let count = flows.to_string();
    let mut options = vec!["-P", &count];
    if down {
        options.push("-R");
    }
    let before = guest.cpu();
    let result = iperf3(world, guest, seconds, &options)?;
    let used = guest.cpu() - before;
    let sum = &result["end"]["sum_received"];
    let bits = sum["bits_per_second"].as_f64().context("iperf3 gives no rate")?;
    let bytes = sum["bytes"].as_f64().context("iperf3 gives no bytes")?;
    let way = if down { "down" } else { "up" };
    let plural = if flows == 1 { "flow" } else { "flows" };
    table.add(guest.kind, &format!("{way}, {flows} {plural} [Gbit/s]"), bits / 1e9);
    if flows == 1 || flows == 8 {
        table.add(guest.kind, &format!("CPU-s per GB, {way}, {flows} {plural}"), used / (bytes / 1e9));
    }
    Ok(())
}

fn udp(world: &World, guest: &Guest, seconds: u32, table: &mut Table) -> Result<()> {
    let before = no_room(world)?;
    let result = iperf3(world, guest, seconds, &["-u", "-b", "1G", "-l", "1400"])?;
    let no_room = no_room(world)? - before;
    let sum = &result["end"]["sum"];
    let lost = sum["lost_packets"].as_f64().context("iperf3 gives no loss")?;
    let all = sum["packets"].as_f64().context("iperf3 gives no datagrams")?;
    table.add(guest.kind, "1 Gbit/s of UDP up, lost [%]", 100.0 * lost / all);
    let name = "of these, not in the receiver's own socket [%]";
    table.add(guest.kind, name, 100.0 * (lost - no_room).max(0.0) / all);
    Ok(())
}

/// Datagrams for which the far end's sockets had no room: `UdpRcvbufErrors`.
fn no_room(world: &World) -> Result<f64> {
    let text = world.far.run("cat /proc/net/snmp")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = pairs.find(|(name, _)| *name == "RcvbufErrors").context("no RcvbufErrors")?;
    Ok(value.parse()?)
}

/// Round trips of one byte, in microseconds.
pub fn trips(span: Duration) -> Result<Vec<f64>> {
    let mut stream = dial(ECHO, LIMIT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let (begun, mut all) = (Instant::now(), Vec::new());
    while begun.elapsed() < span {
        let sent = Instant::now();
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
        all.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted.get(((sorted.len() - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

pub fn round_trip(guest: &Guest, table: &mut Table) -> Result<()> {
    let before = guest.cpu();
    let all = guest.enter(|| trips(Duration::from_secs(1)))??;
    let used = guest.cpu() - before;
    table.add(guest.kind, "request/response, p50 [µs]", quantile(&all, 0.5));
    table.add(guest.kind, "request/response, p99 [µs]", quantile(&all, 0.99));
    table.add(guest.kind, "request/response, the gateway's CPU [µs]", used * 1e6 / all.len() as f64);
    Ok(())
}

/// Connects, has one byte answered, and resets, in several threads.
pub fn connections(guest: &Guest, table: &mut Table) -> Result<()> {
    let (stop, done, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let one = || -> std::io::Result<()> {
        let mut stream = dial(ONCE, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])
    };
    let span = Duration::from_secs(2);
    let before = guest.cpu();
    guest.enter(|| {
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        let counter = if one().is_ok() { &done } else { &failed };
                        counter.fetch_add(1, Relaxed);
                    }
                });
            }
            std::thread::sleep(span);
            stop.store(true, Relaxed);
        });
    })?;
    let (count, used) = (done.load(Relaxed) as f64, guest.cpu() - before);
    table.add(guest.kind, "connections a second, 16 at a time", count / span.as_secs_f64());
    table.add(guest.kind, "the gateway's CPU for each [µs]", used * 1e6 / count);
    let failed = failed.load(Relaxed);
    if failed > 0 {
        table.note(format!("{}: {failed} of {count} connections failed", guest.kind.name()));
    }
    Ok(())
}

/// The memory that each idle flow adds to the gateway. The first ones fill what is free since the start,
/// which depends on as little as the program's name.
pub fn memory(world: &World, guest: &Guest, table: &mut Table) -> Result<()> {
    let first = idle(world, guest, IDLE)?;
    let before = guest.memory();
    let more = idle(world, guest, IDLE)?;
    table.add(guest.kind, "memory for an idle flow [KB]", (guest.memory() - before) / IDLE as f64 / 1e3);
    drop((first, more));
    world.servers.release();
    settle();
    Ok(())
}

/// So many more connections that the server keeps.
fn idle(world: &World, guest: &Guest, count: usize) -> Result<Vec<TcpStream>> {
    let wanted = world.servers.held() + count;
    let streams = guest
        .enter(|| -> std::io::Result<Vec<TcpStream>> { (0..count).map(|_| dial(HOLD, LIMIT)).collect() })??;
    let begun = Instant::now();
    while world.servers.held() < wanted && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(10));
    }
    ensure!(world.servers.held() == wanted, "only {} flows reached the server", world.servers.held());
    settle();
    Ok(streams)
}

fn settle() {
    std::thread::sleep(Duration::from_millis(300));
}

fn refused(guest: &Guest, table: &mut Table) -> Result<()> {
    let outcome = guest.enter(|| {
        let mut stream = match TcpStream::connect_timeout(&at(CLOSED), Duration::from_secs(2)) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return "refused",
            Err(error) if error.kind() == ErrorKind::TimedOut => return "pending",
            Err(_) => return "another error",
        };
        _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
        match stream.read(&mut [0]) {
            Ok(0) => "connected, then the end",
            Err(error) if error.kind() == ErrorKind::ConnectionReset => "connected, then a reset",
            _ => "connected",
        }
    })?;
    table.say(guest.kind, "a refused port", outcome);
    Ok(())
}

fn half_close(guest: &Guest, table: &mut Table) -> Result<()> {
    let got = guest.enter(|| -> std::io::Result<usize> {
        let mut stream = TcpStream::connect_timeout(&at(AFTER), LIMIT)?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        stream.write_all(b"question")?;
        stream.shutdown(Shutdown::Write)?;
        let mut bytes = Vec::new();
        // Bytes that came before an error count.
        _ = stream.read_to_end(&mut bytes);
        Ok(bytes.len())
    })??;
    let outcome = match got {
        AFTER_END => "all".to_owned(),
        0 => "nothing".to_owned(),
        _ => format!("stalls after {} KiB", got >> 10),
    };
    table.say(guest.kind, "1 MiB back after the guest's FIN", &outcome);
    Ok(())
}

/// A good connection beside twenty to a host that does not answer.
fn black_holes(guest: &Guest, table: &mut Table) -> Result<()> {
    let taken = guest.enter(|| -> std::io::Result<Duration> {
        let mut silent = Vec::new();
        for _ in 0..20 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_nonblocking(true)?;
            _ = socket.connect(&SocketAddr::from((SILENT, 80)).into());
            silent.push(socket);
        }
        std::thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        TcpStream::connect_timeout(&at(ECHO), Duration::from_secs(3))?;
        Ok(begun.elapsed())
    })?;
    match taken {
        Ok(taken) => {
            table.add(guest.kind, "a connection beside 20 to black holes [ms]", taken.as_secs_f64() * 1e3);
        }
        Err(_) => table.say(guest.kind, "a connection beside 20 to black holes [ms]", "none in 3 s"),
    }
    Ok(())
}

/// The sender towards the network.
pub fn sender(world: &World, guest: &Guest) -> String {
    guest.link.map_or_else(|| format!("host's {}", world.controller), |own| format!("taut's {own} by --out"))
}

fn lossy(world: &World, guest: &Guest, table: &mut Table) -> Result<()> {
    let result = iperf3(world, guest, 10, &["-P", "1"])?;
    let bits = result["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 gives no rate")?;
    let row = format!("100 Mbit/s, 50 ms, 0.5 % loss: up, 1 flow, {} [Mbit/s]", sender(world, guest));
    table.add(guest.kind, &row, bits / 1e6);
    Ok(())
}

/// How long a byte and its answer take beside an upload, through a FIFO of 1 MB.
fn beside_an_upload(world: &World, guest: &Guest, table: &mut Table) -> Result<()> {
    let empty = quantile(&guest.enter(|| trips(Duration::from_secs(1)))??, 0.5);
    let (full, upload) = std::thread::scope(|scope| {
        let upload = scope.spawn(|| iperf3(world, guest, 10, &["-P", "1"]));
        std::thread::sleep(Duration::from_secs(4));
        let full = guest.enter(|| trips(Duration::from_secs(5)));
        (full, upload.join())
    });
    let upload = upload.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    let bits = upload["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 gives no rate")?;
    let who = sender(world, guest);
    let more = (quantile(&full??, 0.5) - empty) / 1e3;
    table.add(guest.kind, &format!("without loss, FIFO of 1 MB: up, {who} [Mbit/s]"), bits / 1e6);
    table.add(guest.kind, &format!("  a round trip beside it is longer by, {who} [ms]"), more);
    Ok(())
}
