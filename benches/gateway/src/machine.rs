//! A gateway for an emulated machine: Debian's kernel 6.12 in QEMU without KVM, with a card that the gateway
//! carries.
//!
//! ```text
//!   this program as /init ── virtio-net ── QEMU ── a Unix socket ── the gateway ── its sockets in "host" ── veth ── far: servers
//! ```
//!
//! | column | the card's other end |
//! |---|---|
//! | taut | `taut gateway --qemu` |
//! | pasta | `passt`, the same program for machines |
//! | slirp4netns | QEMU's own network, by the same library, libslirp |
//! | gvproxy | `gvproxy -listen-qemu` |
//!
//! The emulated processor is slow, and it computes all checksums, because these sockets cannot leave them
//! out. So the figures tell how the gateways compare, not what a machine with KVM would have.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use taut_testbed::{Guest, Scratch, guest};

use crate::gateways::{Kind, Programs, cpu_of_all, spawn, wait_for};
use crate::servers::{BLOCK, STAMPED, dial, now};
use crate::split;
use crate::table::Table;
use crate::work::{Killed, iperf3_server, quantile, trips};
use crate::world::{Line, SERVER, World};

/// Set in the machine.
const SECONDS: &str = "machine_seconds";
/// Set in the machine that only writes blocks.
const BLOCKS: &str = "machine_blocks";
const UP: &str = "machine_up";
const DOWN: &str = "machine_down";
/// Blocks that are written alone, by which the machine's clock is known.
const ALONE: usize = 8;
/// How long a machine may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// One machine with its gateway in a world of its own, and one more over 20 Mbit/s.
pub fn turn(programs: &Programs, kind: Kind, seconds: u32, table: &mut Table) -> Result<()> {
    let (world, said, used) = machine(programs, kind, Line::Short, seconds)?;
    drop(world);
    let number = |word: &str| -> Result<f64> {
        let line = said.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(": "));
        line.and_then(|text| text.trim().parse().ok()).with_context(|| format!("no {word} in:\n{said}"))
    };
    for row in [DHCP, UP_RATE, DOWN_RATE, P50, P99] {
        table.add(kind, &format!("machine: {row}"), number(row)?);
    }
    if let Some(used) = used {
        let bytes = f64::from(seconds) / 8.0 * (number(UP_RATE)? + number(DOWN_RATE)?) * 1e6;
        table.add(kind, "machine: CPU-s of the gateway per GB, up and down", used / (bytes / 1e9));
    }
    let (world, ..) = machine(programs, kind, Line::Slow20, seconds)?;
    let all = world.servers.arrived();
    let (alone, rest) = all.split_at_checked(ALONE).context("no block arrived")?;
    let first = rest.first().context("no block arrived")?.at;
    // The machine has a clock of its own. A block alone takes 5 ms, and its own time on the line.
    let least = alone.iter().map(|block| block.after).min().unwrap_or_default() as f64 / 1e3;
    let late = least - 5.0 - (BLOCK * 8) as f64 / 20e3;
    let name = format!("machine, {}, host's {}", world.line.name(), world.controller);
    split::report(rest, first, late, &name, kind, table)
}

/// A machine with its gateway: what it said, and the CPU-seconds of the gateway.
fn machine(
    programs: &Programs,
    kind: Kind,
    line: Line,
    seconds: u32,
) -> Result<(World, String, Option<f64>)> {
    let machine = Guest::new(&["iperf3"]).and_then(Guest::busybox);
    let mut machine = machine.context("QEMU, its kernel (scripts/guest-kernel) or iperf3 is missing")?;
    let world = World::new(line, "cubic")?;
    if line != Line::Short {
        machine = machine.set(BLOCKS, "1");
    }
    let folder = Scratch::new("gateway-machine");
    let socket = folder.join("net");
    let url = format!("unix://{}", socket.display());
    let mut command = match kind {
        Kind::Taut => {
            let mut command = Command::new(&programs.taut);
            command.args(["gateway", "--quiet", "--control", "none", "--qemu"]).arg(&socket);
            Some(command)
        }
        Kind::Pasta => {
            let mut command = Command::new(&programs.passt);
            command.args(["--foreground", "--quiet", "--mac-addr", "9a:55:9a:55:9a:55"]);
            command.args(["-t", "none", "-u", "none", "--socket"]).arg(&socket);
            Some(command)
        }
        Kind::Gvproxy => {
            let mut command = Command::new(&programs.gvproxy);
            command.args(["-mtu", "65520", "-ssh-port", "-1", "-listen-qemu", &url]);
            Some(command)
        }
        _ => None,
    };
    let gateway = command.as_mut().map(|command| spawn(&world, command)).transpose()?.map(Killed);
    machine = if gateway.is_some() {
        wait_for(|| socket.exists().then_some(()), "the gateway's socket")?;
        machine.plug(&socket)
    } else {
        machine.user_network()
    };
    let (_up, up) = iperf3_server(&world)?;
    let (_down, down) = iperf3_server(&world)?;
    for (name, value) in [(SECONDS, seconds), (UP, up.into()), (DOWN, down.into())] {
        machine = machine.set(name, &value.to_string());
    }
    let said = world.host.enter(|| machine.run("machine", PATIENCE))?;
    let used = gateway.and_then(|gateway| cpu_of_all(gateway.0.id()));
    Ok((world, said, used))
}

const DHCP: &str = "an address by DHCP after [ms]";
const UP_RATE: &str = "up, 1 flow [Mbit/s]";
const DOWN_RATE: &str = "down, 1 flow [Mbit/s]";
const P50: &str = "request/response, p50 [µs]";
const P99: &str = "request/response, p99 [µs]";

/// A network from what the link tells.
const NETWORK: &str = r#"
export PATH=/bin
busybox --install -s /bin
cat >/tmp/dhcp <<'END'
#!/bin/sh
[ "$1" = bound ] || exit 0
[ -z "$mtu" ] || ip link set dev $interface mtu $mtu
ip addr add $ip/${mask:-24} dev $interface
ip route add default via $router
END
chmod 755 /tmp/dhcp
ip link set lo up
ip link set eth0 up
udhcpc -i eth0 -n -q -f -t 20 -T 1 -O mtu -s /tmp/dhcp >&2
"#;

/// Whether this program is the first process of a machine.
pub fn is_inside() -> bool {
    std::env::var_os(SECONDS).is_some()
}

/// The work inside the machine, which is turned off at the end.
pub fn inside() {
    guest::inside::run(|| {
        if let Err(error) = measure() {
            panic!("{error:#}");
        }
    });
}

fn measure() -> Result<()> {
    let begun = Instant::now();
    anyhow::ensure!(Command::new("/bin/busybox").args(["sh", "-c", NETWORK]).status()?.success());
    println!("{DHCP}: {}", begun.elapsed().as_millis());
    if std::env::var_os(BLOCKS).is_some() {
        let mut stream = dial(STAMPED, PATIENCE)?;
        let mut block = [0; BLOCK];
        for _ in 0..ALONE {
            std::thread::sleep(Duration::from_millis(300));
            block[..8].copy_from_slice(&now().to_ne_bytes());
            stream.write_all(&block)?;
        }
        std::thread::sleep(Duration::from_millis(300));
        return split::write_blocks(stream);
    }
    for (row, port, options) in [(UP_RATE, UP, &[][..]), (DOWN_RATE, DOWN, &["-R"])] {
        println!("{row}: {}", rate(&std::env::var(port)?, options)? / 1e6);
    }
    let all = trips(Duration::from_secs(2))?;
    println!("{P50}: {}", quantile(&all, 0.5));
    println!("{P99}: {}", quantile(&all, 0.99));
    Ok(())
}

/// Bits a second that the receiver had.
fn rate(port: &str, options: &[&str]) -> Result<f64> {
    let (server, seconds) = (Ipv4Addr::from(SERVER).to_string(), std::env::var(SECONDS)?);
    let mut client = Command::new("/bin/iperf3");
    client.args(["-c", &server, "-p", port, "-t", &seconds, "-J"]).args(options);
    let output = client.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let result: serde_json::Value = serde_json::from_str(&text).context(text.clone().into_owned())?;
    result["end"]["sum_received"]["bits_per_second"].as_f64().with_context(|| text.into_owned())
}
