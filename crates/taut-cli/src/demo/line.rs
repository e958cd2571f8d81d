//! A bad line: what curl uploads over 100 Mbit/s, 90 ms and half a percent of loss, by the kernel and by
//! `taut proxy`.
//!
//! ```text
//!   curl ─────────────────────────┐             the server, which hashes what it takes
//!   curl ── taut proxy ── taut0 ──┴── line0 ════ line0
//!   namespace "near"                 emulator    namespace "far"
//! ```
//!
//! Called by `mod.rs`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::ProgressBar;
use taut_device::TunOptions;
use taut_link::QdiscSpec;
use taut_testbed::{
    Emulator, Kernel, Meter, Noise, Port, Scratch, Subnet, Watcher, Ways, available_congestion, sha256,
};

use super::part::{Bar, Bars, Part};
use crate::shared::clock::Stopwatch;
use crate::shared::interrupt::Interrupted;

const RATE: &str = "100mbit";
const ONE_WAY_MS: u32 = 45;
/// A round trip of the rate.
const QUEUE_BYTES: u32 = 1_125_000;
const SERVER: &str = "198.51.100.1";
/// The queue and a round trip, until the line is empty.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a program may take to begin.
const PATIENCE: Duration = Duration::from_secs(15);

/// Who sends: the route's congestion control, and whether by the proxy.
const SENDERS: [(&str, &str, bool); 3] =
    [("kernel, cubic", "cubic", false), ("kernel, bbr", "bbr", false), ("taut proxy, bbr", "cubic", true)];

/// A program that ends with its value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The line, between two namespaces.
struct Line {
    near: Kernel,
    far: Kernel,
    _emulator: Emulator,
}

impl Line {
    fn new() -> anyhow::Result<Self> {
        let (near, far, net) = (Kernel::new()?, Kernel::new()?, Subnet(8));
        let open = |kernel: &Kernel, own: Vec<taut_device::Cidr>| {
            kernel.enter(|| {
                let tun = taut_device::Tun::open("line0", &TunOptions::default())?;
                let interface = tun.interface()?;
                own.into_iter().try_for_each(|own| interface.add_address(own))?;
                std::io::Result::Ok(tun)
            })?
        };
        let (here, there) = (open(&near, net.near())?, open(&far, net.far())?);
        far.run(&format!("ip address add {SERVER}/32 dev lo"))?;
        far.run("ip route add 10.9.0.0/24 via 10.8.0.2 dev line0")?;
        near.set_sysctl("ip_forward", "1")?;
        let queue: QdiscSpec = format!("tbf rate {RATE} burst 1 | bfifo limit {QUEUE_BYTES}").parse()?;
        let wire =
            |loss: &str| format!("netem limit 1000000 delay {ONE_WAY_MS}ms{loss}").parse::<QdiscSpec>();
        let ways = Ways {
            there: vec![queue.clone(), wire(" loss 0.5%")?],
            back: vec![queue, wire("")?],
            is_network: true,
            seed: 1,
            ..Ways::default()
        };
        let unwatched = || -> Watcher { Arc::new(Mutex::new(())) };
        let watchers = [unwatched(), unwatched()];
        let emulator = Emulator::start(Port::Tun(here), Port::Tun(there), ways, watchers)?;
        Ok(Self { near, far, _emulator: emulator })
    }

    fn congestion(&self, name: &str) -> std::io::Result<String> {
        self.near.run(&format!("ip route replace {SERVER} via 10.8.0.1 dev line0 congctl {name}"))
    }

    fn start(&self, command: &mut Command) -> anyhow::Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = self.near.namespace.spawn(command.stdin(Stdio::null()).stdout(Stdio::null()));
        Ok(Running(child.with_context(|| format!("cannot run {name}"))?))
    }

    /// `taut proxy` with BBR, ready for clients. As root of a namespace, not of the machine, it must not
    /// make root's folder for control sockets.
    fn proxy(&self, folder: &Scratch) -> anyhow::Result<Running> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["proxy", "--no-config", "--congestion", "bbr", "--control", "none"]);
        command.env("TAUT_CONTROL_DIR", &folder.0).stderr(Stdio::piped());
        let mut running = self.start(&mut command)?;
        let (said, says) = channel();
        let out = running.0.stderr.take().context("taut proxy has no output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                _ = said.send(line);
            }
        });
        let mut said = Vec::new();
        while let Ok(line) = says.recv_timeout(PATIENCE) {
            if line.contains("a proxy at") {
                return Ok(running);
            }
            said.push(line);
        }
        bail!("taut proxy did not begin to serve: {}", said.join("; "))
    }
}

/// An upload at the server.
#[derive(Default)]
struct Upload {
    taken: Mutex<Meter>,
    /// The server resets the connection at the next byte, so that no rest of it is in the way of the next.
    is_over: AtomicBool,
}

impl Upload {
    fn taken(&self) -> MutexGuard<'_, Meter> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, stream: TcpStream, begun: impl FnOnce()) {
        let mut stream = BufReader::with_capacity(1 << 18, stream);
        // The head of the request ends with an empty line.
        let is_head = |line: &String| line != "\r\n" && !line.is_empty();
        let mut line = || {
            let mut line = String::new();
            stream.read_line(&mut line).map(|_| line).unwrap_or_default()
        };
        while is_head(&line()) {}
        let (mut bytes, mut begun) = (vec![0; 1 << 18], Some(begun));
        while let Ok(len @ 1..) = stream.read(&mut bytes) {
            self.taken().update(&bytes[..len]);
            if let Some(begun) = begun.take() {
                begun();
            }
            if self.is_over.load(Ordering::Relaxed) {
                // Closed with unread bytes or before more come: a reset (RFC 2525 §2.17).
                return;
            }
        }
    }
}

/// Serves uploads; each is there from its first byte on.
fn serve(listener: TcpListener) -> Receiver<Arc<Upload>> {
    let (begun, uploads) = channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (upload, begun) = (Arc::<Upload>::default(), begun.clone());
            std::thread::spawn(move || upload.read(stream, || _ = begun.send(Arc::clone(&upload))));
        }
    });
    uploads
}

/// The part; each upload takes `span` from its first byte on.
pub(super) fn line(span: Duration, bar: &ProgressBar, ended: &AtomicBool) -> anyhow::Result<Part> {
    let mut part = Part::new(
        "line",
        "Your bad line",
        "curl uploads over 100 Mbit/s and 90 ms that lose 0.5 %, directly and by a proxy on its host.",
    );
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        part.missing.push("curl is not installed: apt install curl.".into());
        return Ok(part);
    }
    let folder = Scratch::make("demo").context("no directory for the file; set TMPDIR to one")?;
    // Twice as much as the line carries in that time.
    let file = Noise::new(1).bytes((span.as_secs_f64() * 2.0 * 12.5e6) as usize);
    fs::write(folder.0.join("file"), &file)?;
    let line = Line::new()?;
    let listener = line.far.enter(|| TcpListener::bind((SERVER, 0)))??;
    let url = format!("http://{SERVER}:{}/", listener.local_addr()?.port());
    let uploads = serve(listener);
    let known = available_congestion()?;
    let mut values = Vec::new();
    for (who, congestion, by_proxy) in SENDERS {
        bar.set_message(who);
        if !known.iter().any(|name| name == congestion) {
            part.missing.push(format!("{who}: this kernel has only {}.", known.join(", ")));
            continue;
        }
        line.congestion(congestion)?;
        let proxy = by_proxy.then(|| line.proxy(&folder)).transpose()?;
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-H", "Expect:", "--noproxy", "", "-T"])
            .arg(folder.0.join("file"));
        if by_proxy {
            curl.args(["--socks5", "127.0.0.1:1080"]);
        }
        let curl = line.start(curl.arg(&url).stderr(Stdio::null()))?;
        let upload = uploads.recv_timeout(PATIENCE).with_context(|| format!("{who}: nothing arrived"))?;
        let (watch, first) = (Stopwatch::start(), upload.taken().bytes());
        while watch.elapsed() < span {
            std::thread::sleep(Duration::from_millis(20));
            if ended.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
        }
        let value = (upload.taken().bytes() - first) as f64 * 8.0 / watch.elapsed().as_secs_f64() / 1e6;
        upload.is_over.store(true, Ordering::Relaxed);
        drop((curl, proxy));
        std::thread::sleep(DRAIN);
        let taken = std::mem::take(&mut *upload.taken());
        let len = usize::try_from(taken.bytes()).unwrap_or(usize::MAX).min(file.len());
        if taken.finish() != sha256(&file[..len]) {
            bail!("{who}: the server has other bytes than the file");
        }
        values.push(Bar { who: who.into(), value });
        bar.inc(1);
    }
    part.bars.push(Bars { what: "upload", unit: "Mbit/s", less_is_better: false, values });
    Ok(part)
}
