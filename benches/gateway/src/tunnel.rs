//! Programs that carry connections through a WireGuard tunnel without root.
//!
//! ```text
//!   client ── 127.0.0.1 ── the program ── its UDP socket in "host" ── veth, or an emulated line
//!     ── far: boringtun-cli ── a TUN ── servers
//! ```
//!
//! | column | TCP in the tunnel | clients connect by |
//! |---|---|---|
//! | taut, cubic or bbr | `taut proxy --out wireguard:FILE --congestion` | SOCKS |
//! | kernel, cubic | the kernel's, with boringtun-cli and a TUN, which need root | themselves |
//! | netstack | gVisor's, with its defaults: `netstack/main.go` | a forwarded port for each server |
//! | onetun | smoltcp's, which has no congestion control | the same |
//!
//! The far end is the same for all: boringtun-cli with two threads, and the kernel's TCP with cubic.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use taut_testbed::{Kernel, Scratch};

use crate::gateways::{Guest, Kind, Programs, cpu_of_all, spawn, wait_for};
use crate::servers::{self, ECHO, HOLD, ONCE, Reach, SINK, SOURCE, STAMPED, dial, now};
use crate::split::{COUNTED_AFTER, report, write_blocks};
use crate::table::Table;
use crate::work::{self, Killed, LIMIT, quantile, trips};
use crate::world::{Line, NET, SERVER, World};

const FORWARDED: [u16; 6] = [ECHO, ONCE, HOLD, STAMPED, SINK, SOURCE];
const OWN: &str = "10.88.0.2";
const FAR: &str = "10.88.0.1";
const PORT: u16 = 51_820;
const MTU: usize = 1_420;
/// Before bulk counts: buffers are full then, and over a slow line the first losses are past.
const WARM_UP: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Fixed, so that runs differ in nothing that matters.
fn key(seed: u8) -> (StaticSecret, PublicKey) {
    let secret = StaticSecret::from([seed; 32]);
    let public = PublicKey::from(&secret);
    (secret, public)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One program over each line.
pub fn turn(programs: &Programs, kind: Kind, lines: &[Line], seconds: u32, table: &mut Table) -> Result<()> {
    for &line in lines {
        let world = World::new(line, "cubic")?;
        let far = far(programs, &world)?;
        let folder = Scratch::new("tunnel");
        let _socket = Socket(socket(&interface("n")));
        let mut guest = start(programs, kind, &world, &folder)?;
        for (at, row) in ROWS.into_iter().filter(|row| row.is_over(line)).enumerate() {
            // It does not recover from the flow before.
            if kind == Kind::Onetun && at > 0 {
                drop(guest);
                guest = start(programs, kind, &world, &folder)?;
            }
            if let Err(error) = row.measure(&world, (&far, &guest), seconds, table) {
                table.failed(kind, &format!("{row:?}, {} line: {error:#}", line.name()));
            }
            guest.is_alive()?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Row {
    Bulk { flows: usize, down: bool },
    RoundTrip,
    Connections,
    Memory,
    PingBeside,
}

const ROWS: [Row; 8] = [
    Row::Bulk { flows: 1, down: false },
    Row::Bulk { flows: 8, down: false },
    Row::Bulk { flows: 1, down: true },
    Row::Bulk { flows: 8, down: true },
    Row::RoundTrip,
    Row::Connections,
    Row::Memory,
    Row::PingBeside,
];

impl Row {
    fn is_over(self, line: Line) -> bool {
        match self {
            Self::Bulk { .. } => true,
            Self::RoundTrip | Self::Connections | Self::Memory => line == Line::Short,
            Self::PingBeside => line == Line::Slow20,
        }
    }

    fn measure(
        self,
        world: &World,
        (far, guest): (&Far, &Guest),
        seconds: u32,
        table: &mut Table,
    ) -> Result<()> {
        match self {
            Self::Bulk { flows, down } => bulk(world, (far, guest), flows, down, seconds, table),
            Self::RoundTrip => work::round_trip(guest, table),
            Self::Connections => work::connections(guest, table),
            Self::Memory => work::memory(world, guest, table),
            Self::PingBeside => ping_beside(world, guest, table),
        }
    }
}

/// The tunnel's far end.
struct Far {
    boringtun: Killed,
    _socket: Socket,
}

/// boringtun-cli ends when its socket is gone, and leaves it when it is killed.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

fn interface(end: &str) -> String {
    format!("wg{end}{}", std::process::id())
}

fn socket(name: &str) -> PathBuf {
    format!("/var/run/wireguard/{name}.sock").into()
}

impl Far {
    /// CPU-seconds that it has used.
    fn cpu(&self) -> f64 {
        cpu_of_all(self.boringtun.0.id()).unwrap_or(0.0)
    }
}

fn far(programs: &Programs, world: &World) -> Result<Far> {
    let name = interface("b");
    let _socket = Socket(socket(&name));
    let far = Far { boringtun: Killed(boringtun(programs, &world.far, &name, (2, 1), "")?), _socket };
    world.far.run(&format!("ip address add {FAR}/24 dev {name}"))?;
    world.far.run(&format!("ip link set {name} mtu {MTU} up"))?;
    world.far.run(&format!("ip route change 10.88.0.0/24 dev {name} src {FAR} congctl cubic"))?;
    Ok(far)
}

/// boringtun-cli with the first of two keys and the second as its peer's, which has `endpoint`'s lines.
fn boringtun(
    programs: &Programs,
    kernel: &Kernel,
    name: &str,
    (own, peer): (u8, u8),
    endpoint: &str,
) -> Result<Child> {
    let mut command = Command::new(&programs.boringtun);
    command.args(["--foreground", "--disable-drop-privileges", "--threads", "2", name]);
    let child = kernel.namespace.spawn(command.stdout(Stdio::null()))?;
    let mut control = wait_for(|| UnixStream::connect(socket(name)).ok(), "boringtun-cli's socket")?;
    let (secret, peer) = (hex(&key(own).0.to_bytes()), hex(key(peer).1.as_bytes()));
    write!(control, "set=1\nprivate_key={secret}\nlisten_port={PORT}\n")?;
    write!(control, "public_key={peer}\nallowed_ip=0.0.0.0/0\n{endpoint}\n")?;
    let mut answer = [0; 64];
    let read = control.read(&mut answer)?;
    ensure!(answer[..read].starts_with(b"errno=0"), "boringtun-cli refuses its configuration");
    Ok(child)
}

fn start(programs: &Programs, kind: Kind, world: &World, folder: &Scratch) -> Result<Guest> {
    let ((secret, _), (_, far)) = (key(1), key(2));
    let endpoint = format!("{}:{PORT}", NET.far_v4());
    let server = std::net::Ipv4Addr::from(SERVER).to_string();
    let [own, peer] = [STANDARD.encode(secret.to_bytes()), STANDARD.encode(far.as_bytes())];
    world.host.run("ip link set lo up")?;
    let mut command = Command::new(programs.path(kind));
    match kind {
        Kind::TunnelKernel => {
            let (name, to) = (interface("n"), format!("endpoint={endpoint}\n"));
            let boringtun = boringtun(programs, &world.host, &name, (1, 2), &to)?;
            world.host.run(&format!("ip address add {OWN}/24 dev {name}"))?;
            world.host.run(&format!("ip link set {name} mtu {MTU} up"))?;
            world.host.run(&format!("ip route add {server}/32 dev {name} src {OWN} congctl cubic"))?;
            servers::reach(Reach::Directly);
            return Guest::beside(kind, boringtun, world);
        }
        Kind::Netstack => {
            let (secret, far) = (hex(&secret.to_bytes()), hex(far.as_bytes()));
            let keys = format!("private_key={secret}\npublic_key={far}");
            command.args([OWN, &format!("{keys}\nendpoint={endpoint}\nallowed_ip=0.0.0.0/0\n")]);
            command.arg(&server).args(FORWARDED.map(|port| port.to_string()));
        }
        Kind::Onetun => {
            command.args(FORWARDED.map(|port| format!("127.0.0.1:{port}:{server}:{port}")));
            command.args(["--endpoint-addr", &endpoint, "--endpoint-public-key", &peer]);
            command.args(["--private-key", &own, "--source-peer-ip", OWN]);
        }
        _ => {
            let file = folder.join("tunnel.conf");
            let text = format!(
                "[Interface]\nPrivateKey = {own}\nAddress = {OWN}/32\nDNS = {server}\nMTU = {MTU}\n\
                 [Peer]\nPublicKey = {peer}\nAllowedIPs = {server}/32\nEndpoint = {endpoint}\n"
            );
            write_private(&file, &text)?;
            command.args(["proxy", "--quiet", "--control", "none", "--congestion"]);
            command.args(kind.controller()).args(["--out", &format!("wireguard:{}", file.display())]);
        }
    }
    let program = spawn(world, &mut command)?;
    let mut guest = Guest::beside(kind, program, world)?;
    servers::reach(if kind.controller().is_some() { Reach::Socks } else { Reach::Forwarded });
    let begun = Instant::now();
    // A port may be taken before the tunnel is there.
    while guest.enter(answers)?.is_err() {
        guest.is_alive()?;
        ensure!(begun.elapsed() < LIMIT * 4, "{} lets no connection through", kind.name());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(guest)
}

fn write_private(file: &std::path::Path, text: &str) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn answers() -> std::io::Result<()> {
    let mut stream = dial(ECHO, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])
}

/// Every flow writes, or reads, as fast as it can: bytes that arrive, and processor time for them.
fn bulk(
    world: &World,
    (far, guest): (&Far, &Guest),
    flows: usize,
    down: bool,
    seconds: u32,
    table: &mut Table,
) -> Result<()> {
    let (ended, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let arrived = || if down { read.load(Relaxed) } else { world.servers.sunk() };
    let work = || -> Result<()> {
        let mut stream = dial(if down { SOURCE } else { SINK }, LIMIT)?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        let mut block = vec![7; 1 << 17];
        while !ended.load(Relaxed) {
            match if down { stream.read(&mut block) } else { stream.write(&block) } {
                Ok(0) => break,
                Ok(count) if down => _ = read.fetch_add(count as u64, Relaxed),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    };
    let (bits, used) = guest.enter(|| {
        std::thread::scope(|scope| {
            let flows: Vec<_> = (0..flows).map(|_| scope.spawn(work)).collect();
            std::thread::sleep(WARM_UP[usize::from(world.line != Line::Short)]);
            let (begun, bytes, cpu) = (Instant::now(), arrived(), [guest.cpu(), far.cpu()]);
            std::thread::sleep(Duration::from_secs(seconds.into()));
            let (took, bytes) = (begun.elapsed(), arrived() - bytes);
            let cpu = [guest.cpu() - cpu[0], far.cpu() - cpu[1]];
            ended.store(true, Relaxed);
            for flow in flows {
                flow.join().map_err(|_| anyhow::anyhow!("a flow panicked"))??;
            }
            ensure!(bytes > 0, "nothing arrives");
            let gigabytes = bytes as f64 / 1e9;
            anyhow::Ok((gigabytes * 8e9 / took.as_secs_f64(), cpu.map(|cpu| cpu / gigabytes)))
        })
    })??;
    let (way, plural) = (if down { "down" } else { "up" }, if flows == 1 { "" } else { "s" });
    let line = if world.line == Line::Short { String::new() } else { format!("{}: ", world.line.name()) };
    let way = format!("{line}{way}, {flows} flow{plural}");
    table.add(guest.kind, &format!("{way} [Mbit/s]"), bits / 1e6);
    for (who, used) in ["", " of the far end"].into_iter().zip(used) {
        table.add(guest.kind, &format!("{way}, CPU-s per GB{who}"), used);
    }
    Ok(())
}

/// Round trips in the tunnel beside an upload.
fn ping_beside(world: &World, guest: &Guest, table: &mut Table) -> Result<()> {
    world.servers.arrived();
    let begun = now();
    let (trips, written) = guest.enter(|| {
        std::thread::scope(|scope| {
            let upload = scope.spawn(|| write_blocks(dial(STAMPED, LIMIT)?));
            std::thread::sleep(COUNTED_AFTER);
            (trips(Duration::from_secs(5)), upload.join())
        })
    })?;
    written.map_err(|_| anyhow::anyhow!("the upload panicked"))??;
    let trips = trips?;
    report(&world.servers.arrived(), begun, 0.0, world.line.name(), guest.kind, table)?;
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let row = format!("{}: a round trip beside it, {name} [ms]", world.line.name());
        table.add(guest.kind, &row, quantile(&trips, share) / 1e3);
    }
    Ok(())
}

/// The rate at which one thread encrypts for one peer, in Gbit/s.
pub fn limit() -> Result<f64> {
    let ((near, near_public), (far, far_public)) = (key(1), key(2));
    let mut near = Tunn::new(near, far_public, None, None, 1, None);
    let mut far = Tunn::new(far, near_public, None, None, 2, None);
    let (mut buffer, mut answer) = (vec![0; 2_048], vec![0; 2_048]);
    let mut packet = vec![0; MTU];
    // An IPv4 header with its length.
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(MTU as u16).to_be_bytes());
    let TunnResult::WriteToNetwork(initiation) = near.encapsulate(&packet, &mut buffer) else {
        anyhow::bail!("no handshake begins");
    };
    let TunnResult::WriteToNetwork(response) = far.decapsulate(None, initiation, &mut answer) else {
        anyhow::bail!("no answer to a handshake");
    };
    let response = response.to_vec();
    near.decapsulate(None, &response, &mut buffer);
    let (begun, mut count) = (Instant::now(), 0_u64);
    while begun.elapsed() < Duration::from_secs(1) {
        for _ in 0..1_000 {
            let sent = near.encapsulate(&packet, &mut buffer);
            let is_sent = matches!(sent, TunnResult::WriteToNetwork(data) if data.len() > MTU);
            ensure!(is_sent, "the tunnel is not there");
            count += 1;
        }
    }
    Ok((count * MTU as u64 * 8) as f64 / begun.elapsed().as_secs_f64() / 1e9)
}
