//! How each gateway is started for a guest, and what its processes use.
//!
//! | gateway | the guest's namespace | the gateway |
//! |---|---|---|
//! | taut | `taut gateway --run -- sleep` makes it | that process |
//! | pasta | `unshare -r -n sleep` | `pasta --config-net PID` |
//! | slirp4netns | the same | `slirp4netns --configure PID tap0` |
//! | gvproxy | the same, with a TAP whose frames `gvforwarder` carries to a socket, as in a virtual machine | both processes |
//! | tun2proxy | `tun2proxy --unshare --proxy none` makes it: straight to the network | both its processes |
//!
//! Each has the largest MTU that it takes on the guest's side.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::count::under_callgrind;
use crate::servers::{self, ECHO, Reach, dial};
use crate::world::{NET, OUT_HOST, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// No gateway: the guest is in the host's namespace.
    Kernel,
    /// No gateway, and the guest's programs connect by `taut proxy`, with BBR.
    Proxy,
    Taut,
    Pasta,
    Slirp4netns,
    Gvproxy,
    Tun2proxy,
    /// `taut proxy --out wireguard:FILE` by each controller.
    TunnelCubic,
    TunnelBbr,
    /// The kernel's TCP with cubic, and boringtun-cli with a TUN: what taut does without root.
    TunnelKernel,
    /// gVisor's TCP, as wireguard-go's `tun/netstack` brings it.
    Netstack,
    /// smoltcp's.
    Onetun,
}

impl Kind {
    pub const TUNNELS: [Self; 5] =
        [Self::TunnelCubic, Self::TunnelBbr, Self::TunnelKernel, Self::Netstack, Self::Onetun];

    pub const ALL: [Self; 7] = [
        Self::Kernel,
        Self::Proxy,
        Self::Taut,
        Self::Pasta,
        Self::Slirp4netns,
        Self::Gvproxy,
        Self::Tun2proxy,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "no gateway",
            Self::Proxy => "taut proxy",
            Self::Taut => "taut",
            Self::Pasta => "pasta",
            Self::Slirp4netns => "slirp4netns",
            Self::Gvproxy => "gvproxy",
            Self::Tun2proxy => "tun2proxy",
            Self::TunnelCubic => "taut, cubic",
            Self::TunnelBbr => "taut, bbr",
            Self::TunnelKernel => "kernel, cubic",
            Self::Netstack => "netstack",
            Self::Onetun => "onetun",
        }
    }

    /// The controller of taut's end of a tunnel.
    pub const fn controller(self) -> Option<&'static str> {
        match self {
            Self::TunnelCubic => Some("cubic"),
            Self::TunnelBbr => Some("bbr"),
            _ => None,
        }
    }
}

pub struct Programs {
    pub taut: PathBuf,
    pub pasta: PathBuf,
    pub passt: PathBuf,
    pub slirp4netns: PathBuf,
    pub gvproxy: PathBuf,
    pub gvforwarder: PathBuf,
    pub tun2proxy: PathBuf,
    pub netstack: PathBuf,
    pub onetun: PathBuf,
    pub boringtun: PathBuf,
    /// If it is set, taut runs under callgrind, which writes its counts there.
    pub callgrind: Option<PathBuf>,
}

/// A running gateway and its guest. Both end when this is dropped.
pub struct Guest {
    pub kind: Kind,
    /// How taut's own link sends, if it is the way out.
    pub link: Option<&'static str>,
    /// The address in the host's network that stands for [`FORWARDED`] of the guest.
    pub forwarded: Option<SocketAddr>,
    /// From the gateway's start to the first connection.
    pub began_after: Duration,
    /// A process in the guest's namespace.
    pub process: u32,
    gateway: Vec<Child>,
    sleeper: Option<Child>,
    directory: Option<PathBuf>,
}

/// The command that keeps the guest's namespace.
const SLEEP: [&str; 2] = ["sleep", "100000"];
/// It takes the station of the host's interface for its own, which a TUN has not.
const PASTA: [&str; 10] =
    ["--quiet", "--config-net", "--mac-addr", "9a:55:9a:55:9a:55", "-u", "none", "-T", "none", "-U", "none"];
/// A port of the guest, reached by the same port of the host.
pub const FORWARDED: u16 = 7020;
const READY_WITHIN: Duration = Duration::from_secs(20);

impl Programs {
    pub fn path(&self, kind: Kind) -> &Path {
        match kind {
            Kind::Kernel | Kind::Proxy | Kind::Taut | Kind::TunnelCubic | Kind::TunnelBbr => &self.taut,
            Kind::Pasta => &self.pasta,
            Kind::Slirp4netns => &self.slirp4netns,
            Kind::Gvproxy => &self.gvproxy,
            Kind::Tun2proxy => &self.tun2proxy,
            Kind::TunnelKernel => &self.boringtun,
            Kind::Netstack => &self.netstack,
            Kind::Onetun => &self.onetun,
        }
    }

    /// The first line that it says of itself.
    pub fn version(&self, kind: Kind) -> Result<String> {
        if kind == Kind::Kernel {
            return Ok(std::fs::read_to_string("/proc/version")?.trim().to_owned());
        }
        let path = self.path(kind);
        let flag = match kind {
            // Its versions are in netstack/go.mod.
            Kind::Netstack => return Ok("wireguard-go's tun/netstack".to_owned()),
            Kind::Gvproxy => "-version",
            _ => "--version",
        };
        let output = Command::new(path).arg(flag).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{} is missing: {}", kind.name(), path.display()))?;
        let text = [output.stdout, output.stderr].concat();
        let line = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned();
        Ok(line)
    }

    /// Starts a gateway in the world's host, and waits until its guest can connect. With `link`, taut sends
    /// by a stack of its own with this controller.
    pub fn start(&self, kind: Kind, world: &World, link: Option<&'static str>) -> Result<Guest> {
        let is_counted = kind == Kind::Taut && self.callgrind.is_some();
        let makes_namespace =
            matches!(kind, Kind::Kernel | Kind::Proxy | Kind::Taut | Kind::Tun2proxy) && !is_counted;
        let sleeper = if makes_namespace { None } else { Some(sleeper(world)?) };
        let process = sleeper.as_ref().map_or(0, Child::id);
        let mut guest = Guest {
            kind,
            link,
            forwarded: None,
            began_after: Duration::ZERO,
            process,
            gateway: Vec::new(),
            sleeper,
            directory: None,
        };
        servers::reach(if kind == Kind::Proxy { Reach::Socks } else { Reach::Directly });
        let begun = Instant::now();
        match kind {
            Kind::Kernel | Kind::Proxy => {
                if kind == Kind::Proxy {
                    let mut command = Command::new(&self.taut);
                    command.args(["proxy", "--quiet", "--control", "none", "--congestion", "bbr"]);
                    command.args(["--tun", "out0", "--address", "10.0.3.2/24"]);
                    guest.gateway.push(spawn(world, &mut command)?);
                }
                let process = spawn(world, Command::new(SLEEP[0]).args(&SLEEP[1..]))?;
                guest.process = process.id();
                guest.sleeper = Some(process);
            }
            Kind::Taut if is_counted => self.start_counted(world, &mut guest)?,
            Kind::Taut => {
                let mut command = Command::new(&self.taut);
                command.args(["gateway", "--run", "--quiet", "--control", "none"]);
                command.args(["-t", &format!("0.0.0.0:{FORWARDED}:{FORWARDED}")]);
                if let Some(controller) = link {
                    command.args(["--out", "tun:out0", "--out-address", "10.0.3.2/24"]);
                    command.args(["--congestion", controller]);
                }
                let gateway = spawn(world, command.arg("--").args(SLEEP))?;
                guest.process = wait_for(|| child_named(gateway.id(), SLEEP[0]), "taut's guest")?;
                guest.gateway.push(gateway);
                if link.is_some() {
                    world.host.run(&format!("ip address add {OUT_HOST} dev out0"))?;
                }
            }
            Kind::Pasta | Kind::Slirp4netns => {
                let port = FORWARDED.to_string();
                let mut command = self.for_process(kind, process, &port).context("it enters no namespace")?;
                guest.gateway.push(spawn(world, &mut command)?);
            }
            Kind::Gvproxy => self.start_gvproxy(world, &mut guest)?,
            Kind::Tun2proxy => {
                let file = std::env::temp_dir().join(format!("taut-t2p-{}", std::process::id()));
                _ = std::fs::remove_file(&file);
                let mut command = Command::new(&self.tun2proxy);
                // At its strongest: room for all flows, and the segment size that it would not announce by
                // itself.
                command.args(["--proxy", "none", "--max-sessions", "20000", "--tcp-mss", "1460"]);
                command.args(["--verbosity", "off", "--unshare", "--tun", "tun0", "--unshare-pidfile"]);
                guest.gateway.push(spawn(world, command.arg(&file))?);
                let process = || std::fs::read_to_string(&file).ok()?.trim().parse().ok();
                guest.process = wait_for(process, "tun2proxy's process")?;
                _ = std::fs::remove_file(&file);
                wait_for(|| guest.run("ip link set tun0 mtu 1500 up").ok(), "tun2proxy's interface")?;
                guest.run("ip address add 10.0.2.15/24 dev tun0")?;
                guest.run("ip route add default dev tun0")?;
            }
            Kind::TunnelCubic | Kind::TunnelBbr | Kind::TunnelKernel | Kind::Netstack | Kind::Onetun => {
                bail!("{} is measured with --tunnels", kind.name())
            }
        }
        guest.enter(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535"))??;
        let (mut last, mut is_set) = (None, false);
        while begun.elapsed() < READY_WITHIN {
            // The guest's kernel sends towards the gateway with cubic, too; the setting of a namespace would
            // be refused.
            if !is_set
                && !matches!(kind, Kind::Kernel | Kind::Proxy)
                && let Some(route) = guest.run("ip -4 route show default")?.lines().next()
            {
                // `linkdown` is no part of a route's description: nobody has opened the TAP yet.
                let route = route.replace("linkdown", "");
                guest.run(&format!("ip route replace {route} congctl cubic"))?;
                is_set = true;
            }
            match guest.enter(|| dial(ECHO, Duration::from_millis(500)))? {
                Ok(_) => {
                    guest.began_after = begun.elapsed();
                    if matches!(kind, Kind::Kernel | Kind::Taut | Kind::Pasta) && link.is_none() {
                        guest.forwarded = Some(SocketAddr::from((NET.near_v4(), FORWARDED)));
                    }
                    return Ok(guest);
                }
                Err(error) => last = Some(error),
            }
            guest.is_alive()?;
            std::thread::sleep(Duration::from_millis(2));
        }
        bail!("{} lets no connection through: {last:?}", kind.name())
    }

    /// The gateway that enters the namespace of this process, if it can, with pasta's ports that lead there.
    pub fn for_process(&self, kind: Kind, process: u32, ports: &str) -> Option<Command> {
        let process = process.to_string();
        let mut command = Command::new(self.path(kind));
        match kind {
            Kind::Taut => command.args(["gateway", "--quiet", "--control", "none", "--netns"]).arg(process),
            Kind::Pasta => {
                command.args(["--foreground", "--runas", "0"]).args(PASTA).args(["-t", ports]).arg(process)
            }
            Kind::Slirp4netns => command
                .args(["--configure", "--mtu=65520", "--disable-host-loopback"])
                .arg(process)
                .arg("tap0"),
            _ => return None,
        };
        Some(command)
    }

    /// The gateway with the options by which it runs a command in a namespace of its own, if it can. The
    /// caller adds the command.
    pub fn for_command(&self, kind: Kind) -> Option<Command> {
        let mut command = Command::new(self.path(kind));
        match kind {
            Kind::Taut => command.args(["gateway", "--run", "--quiet", "--control", "none", "--"]),
            Kind::Pasta => command.args(PASTA).args(["-t", "none", "--"]),
            _ => return None,
        };
        Some(command)
    }

    /// taut under callgrind, which cannot run the program that `--run` starts: the guest gets a TUN of the
    /// host's.
    fn start_counted(&self, world: &World, guest: &mut Guest) -> Result<()> {
        let file = self.callgrind.as_deref().context("not counted")?;
        let mut command = under_callgrind(&self.taut, file);
        // It writes a file at its end.
        command.args(["gateway", "--tun", "taut0", "--quiet", "--control", "none", "--no-sandbox"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut gateway = world.host.namespace.spawn(&mut command).context("valgrind does not start")?;
        let said = BufReader::new(gateway.stderr.take().context("no standard error")?);
        guest.gateway.push(gateway);
        let mut lines = said.lines().map_while(Result::ok);
        let serves = lines.by_ref().any(|line| line.contains("the gateway is at"));
        ensure!(serves, "taut ended under valgrind");
        // A full pipe would make it wait.
        std::thread::spawn(move || lines.for_each(drop));
        world.host.run(&format!("ip link set taut0 netns {}", guest.process))?;
        for line in ["link set taut0 up", "address add 10.0.2.15/24 dev taut0", "route add default dev taut0"]
        {
            guest.run(&format!("ip {line}"))?;
        }
        Ok(())
    }

    fn start_gvproxy(&self, world: &World, guest: &mut Guest) -> Result<()> {
        let directory =
            std::env::temp_dir().join(format!("taut-gv-{}-{}", std::process::id(), guest.process));
        std::fs::create_dir_all(&directory)?;
        guest.directory = Some(directory.clone());
        let socket = directory.join("socket");
        let mut command = Command::new(&self.gvproxy);
        command.args(["-mtu", "65520", "-ssh-port", "-1", "-listen"]);
        guest.gateway.push(spawn(world, command.arg(format!("unix://{}", socket.display())))?);
        wait_for(|| socket.exists().then_some(()), "gvproxy's socket")?;
        guest.run("ip tuntap add dev tap0 mode tap")?;
        guest.run("ip link set tap0 address 5a:94:ef:e4:0c:ee mtu 65520 txqueuelen 10000 up")?;
        guest.run(&format!("ip address add {}/24 dev tap0", Ipv4Addr::new(192, 168, 127, 2)))?;
        guest.run("ip route add default via 192.168.127.1")?;
        let mut forwarder = Command::new("nsenter");
        forwarder.arg(format!("--net=/proc/{}/ns/net", guest.process)).arg(&self.gvforwarder);
        forwarder.args(["-preexisting", "-iface", "tap0", "-mtu", "65535", "-url"]);
        guest.gateway.push(spawn(world, forwarder.arg(format!("unix://{}", socket.display())))?);
        Ok(())
    }
}

pub fn spawn(world: &World, command: &mut Command) -> Result<Child> {
    let debug = std::env::var_os("TAUT_GATEWAYS_DEBUG").is_some();
    let (out, err) =
        if debug { (Stdio::inherit(), Stdio::inherit()) } else { (Stdio::null(), Stdio::null()) };
    let command = command.stdin(Stdio::null()).stdout(out).stderr(err);
    world.host.namespace.spawn(command).with_context(|| format!("{command:?}"))
}

/// A process in new user and network namespaces.
pub fn sleeper(world: &World) -> Result<Child> {
    let child = spawn(world, Command::new("unshare").args(["-r", "-n"]).args(SLEEP))?;
    let name = format!("/proc/{}/comm", child.id());
    wait_for(
        || std::fs::read_to_string(&name).is_ok_and(|name| name.trim() == SLEEP[0]).then_some(()),
        "the guest's namespace",
    )?;
    Ok(child)
}

pub fn wait_for<R>(mut look: impl FnMut() -> Option<R>, what: &str) -> Result<R> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        ensure!(begun.elapsed() < READY_WITHIN, "{what} does not appear");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// CPU-seconds that a process has used.
fn cpu(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    // USER_HZ is 100 on every Linux that has this file.
    Some(ticks.sum::<f64>() / 100.0)
}

/// The same of a process and all that it has started.
pub fn cpu_of_all(process: u32) -> Option<f64> {
    Some(cpu(process)? + children(process).into_iter().filter_map(cpu_of_all).sum::<f64>())
}

fn children(process: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let of =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let text: String = tasks.flatten().map(of).collect();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn child_named(process: u32, name: &str) -> Option<u32> {
    let is = |child: &u32| {
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    children(process).into_iter().find(is)
}

/// Runs a closure in the network of a process.
pub fn enter<R: Send>(process: u32, run: impl FnOnce() -> R + Send) -> Result<R> {
    let network = std::fs::File::open(format!("/proc/{process}/ns/net"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(run())
        });
        thread.join().map_err(|_| anyhow::anyhow!("a thread of the guest panicked"))?
    })
}

impl Guest {
    /// A program of the host's that carries connections, and clients beside it.
    pub fn beside(kind: Kind, program: Child, world: &World) -> Result<Self> {
        let sleeper = spawn(world, Command::new(SLEEP[0]).args(&SLEEP[1..]))?;
        Ok(Self {
            kind,
            link: kind.controller(),
            forwarded: None,
            began_after: Duration::ZERO,
            process: sleeper.id(),
            gateway: vec![program],
            sleeper: Some(sleeper),
            directory: None,
        })
    }

    /// Runs a closure in the guest's network.
    pub fn enter<R: Send>(&self, run: impl FnOnce() -> R + Send) -> Result<R> {
        enter(self.process, run)
    }

    /// A program in the guest's network.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.process)).arg(program);
        command
    }

    pub fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let output = self.command(words.next().unwrap_or_default()).args(words).output()?;
        ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Fails if a process of the gateway has ended.
    pub fn is_alive(&mut self) -> Result<()> {
        for child in &mut self.gateway {
            if let Some(status) = child.try_wait()? {
                bail!("{} ended: {status}", self.kind.name());
            }
        }
        Ok(())
    }

    /// Asks the gateway to end, and waits until it has.
    pub fn end(mut self) -> Result<()> {
        for child in &mut self.gateway {
            rustix::process::kill_process(
                rustix::process::Pid::from_child(child),
                rustix::process::Signal::TERM,
            )?;
            child.wait()?;
        }
        Ok(())
    }

    /// The gateway's processes, and their children but for the guest.
    fn processes(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.gateway.iter().map(Child::id).collect();
        let mut at = 0;
        while let Some(process) = all.get(at).copied() {
            all.extend(
                children(process)
                    .into_iter()
                    .filter(|child| self.kind != Kind::Taut || *child != self.process),
            );
            at += 1;
        }
        all
    }

    /// CPU-seconds that the gateway has used.
    pub fn cpu(&self) -> f64 {
        self.processes().into_iter().filter_map(cpu).sum()
    }

    /// Bytes of memory that the gateway's processes have written to themselves. Pages of programs do not
    /// count: how many of these are mapped at a first touch depends on how their file lies in memory.
    pub fn memory(&self) -> f64 {
        let of = |process: u32| -> Option<f64> {
            let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
            let lines = text.lines().filter_map(|line| line.strip_prefix("Private_Dirty"));
            let kib = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
            Some(kib.sum::<f64>() * 1024.0)
        };
        self.processes().into_iter().filter_map(of).sum()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        for child in self.gateway.iter_mut().chain(&mut self.sleeper) {
            _ = child.kill();
            _ = child.wait();
        }
        if let Some(directory) = &self.directory {
            _ = std::fs::remove_dir_all(directory);
        }
    }
}
