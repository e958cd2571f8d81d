//! The host's namespace, where the gateways have their sockets, the far one, where the servers are, and the
//! line between them. Each gateway makes the guest's namespace itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use taut_device::TunOptions;
use taut_link::QdiscSpec;
use taut_testbed::{Emulator, Kernel, Port, Subnet, Watcher, Ways};

use crate::servers::Servers;

/// The network between host and far; the host is its near end.
pub const NET: Subnet = Subnet(9);
/// The servers' address, which is on no link.
pub const SERVER: [u8; 4] = [198, 51, 100, 1];
/// Nobody answers there.
pub const SILENT: [u8; 4] = [198, 51, 101, 1];
/// The network of taut's own link to the network, where taut is the sender.
pub const OUT_HOST: &str = "10.0.3.1/24";
const OUT_NET: &str = "10.0.3.0/24";
const MTU: u16 = 1500;

/// The line between the host and the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Line {
    /// A veth pair.
    Short,
    /// 100 Mbit/s, 50 ms, 0.5 % loss on the way up, and a FIFO of 1 MB.
    Lossy,
    /// The same without loss.
    Fifo,
    /// An uplink of 2, 20 or 200 Mbit/s, 10 ms there and back, with a FIFO of 250 kB.
    Slow2,
    Slow20,
    Slow200,
}

impl Line {
    pub const ALL: [Self; 6] =
        [Self::Short, Self::Lossy, Self::Fifo, Self::Slow2, Self::Slow20, Self::Slow200];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Lossy => "lossy",
            Self::Fifo => "long",
            Self::Slow2 => "2 Mbit/s",
            Self::Slow20 => "20 Mbit/s",
            Self::Slow200 => "200 Mbit/s",
        }
    }

    /// Rate, bytes of the FIFO in front of it, milliseconds each way, and what is lost on the way up.
    const fn emulated(self) -> Option<(&'static str, u32, u32, &'static str)> {
        match self {
            Self::Short => None,
            Self::Lossy => Some(("100mbit", 1_000_000, 25, " loss 0.5%")),
            Self::Fifo => Some(("100mbit", 1_000_000, 25, "")),
            Self::Slow2 => Some(("2mbit", 250_000, 5, "")),
            Self::Slow20 => Some(("20mbit", 250_000, 5, "")),
            Self::Slow200 => Some(("200mbit", 250_000, 5, "")),
        }
    }

    /// The controllers of the host's sockets with which it is measured.
    pub const fn controllers(self) -> &'static [&'static str] {
        match self {
            Self::Short | Self::Fifo => &["cubic"],
            Self::Lossy | Self::Slow2 | Self::Slow20 | Self::Slow200 => &["cubic", "bbr"],
        }
    }
}

pub struct World {
    pub host: Kernel,
    pub far: Kernel,
    pub servers: Servers,
    pub controller: &'static str,
    pub line: Line,
    /// The controllers that `ss` listed while something ran.
    seen: Arc<Mutex<String>>,
    watching: Arc<AtomicBool>,
    _emulator: Option<Emulator>,
}

impl World {
    pub fn new(line: Line, controller: &'static str) -> Result<Self> {
        let (host, far) = (Kernel::new()?, Kernel::new()?);
        let mut emulator = None;
        let device = if let Some((rate, fifo, delay, loss)) = line.emulated() {
            let options = TunOptions { mtu: MTU, ..TunOptions::default() };
            let (near, end) = (host.tun(&NET.near(), &options)?, far.tun(&NET.far(), &options)?);
            let parse = |text: &str| text.parse::<QdiscSpec>().with_context(|| text.to_owned());
            let queue = format!("tbf rate {rate} burst 1 | bfifo limit {fifo}");
            let netem = format!("netem limit 1000000 delay {delay}ms");
            let ways = Ways {
                there: vec![parse(&queue)?, parse(&format!("{netem}{loss}"))?],
                back: vec![parse(&queue)?, parse(&netem)?],
                is_network: true,
                seed: 1,
                ..Ways::default()
            };
            let nobody = || -> Watcher { Arc::new(Mutex::new(())) };
            emulator = Some(Emulator::start(Port::Tun(near), Port::Tun(end), ways, [nobody(), nobody()])?);
            "taut0"
        } else {
            host.veth(&far, NET, MTU)?;
            "veth0"
        };
        let far_address = NET.far_v4();
        let host_address = NET.near_v4();
        let server = std::net::Ipv4Addr::from(SERVER);
        let silent = std::net::Ipv4Addr::from(SILENT);
        // The route's controller holds where the setting of a namespace does not.
        host.run(&format!("ip route add default via {far_address} dev {device} congctl {controller}"))?;
        // For clients of forwarded ports, which are at the far end's own address.
        let near =
            format!("ip route change 10.9.0.0/24 dev {device} src {host_address} congctl {controller}");
        host.run(&near)?;
        far.run(&format!("ip address add {server}/32 dev lo"))?;
        far.run(&format!("ip route add {silent}/32 dev lo"))?;
        far.run(&format!("ip route add {OUT_NET} via {host_address} dev {device} congctl cubic"))?;
        far.run(&format!("ip route change 10.9.0.0/24 dev {device} src {far_address} congctl cubic"))?;
        host.set_sysctl("ip_forward", "1")?;
        for kernel in [&host, &far] {
            kernel.set_sysctl("ping_group_range", "0 2147483647")?;
            kernel.set_sysctl("ip_local_port_range", "1024 65535")?;
        }
        let servers = Servers::start(&far)?;
        let (seen, watching) = (Arc::default(), Arc::default());
        Ok(Self { host, far, servers, controller, line, seen, watching, _emulator: emulator })
    }

    /// Looks, while `run` runs, which controller the host's connections have.
    pub fn watched<R>(&self, run: impl FnOnce() -> R) -> R {
        self.watching.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(700));
                if self.watching.load(Ordering::Relaxed)
                    && let Ok(text) = self.host.run("ss -Htin state established")
                {
                    let known = ["cubic", "bbr", "reno"];
                    let words = text.split_whitespace();
                    let found: std::collections::BTreeSet<_> =
                        words.filter(|word| known.contains(word)).collect();
                    if let (Ok(mut seen), false) = (self.seen.lock(), found.is_empty()) {
                        *seen = found.into_iter().collect::<Vec<_>>().join(" and ");
                    }
                }
            });
            let result = run();
            self.watching.store(false, Ordering::Relaxed);
            result
        })
    }

    pub fn seen(&self) -> String {
        let seen = self.seen.lock().map(|seen| seen.clone()).unwrap_or_default();
        if seen.is_empty() { format!("{} by the route; none was seen", self.controller) } else { seen }
    }
}
