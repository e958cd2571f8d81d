//! `taut gateway` beside pasta, slirp4netns, gvproxy and tun2proxy: the same guest's kernel, the same
//! programs in it, the same host and the same server, in turns.
//!
//! ```text
//!   guest: namespace ── TUN, TAP ── the gateway ── its sockets in "host" ── veth, or an emulated line ── far: servers
//! ```
//!
//! | file | has |
//! |---|---|
//! | `world.rs` | the namespaces "host" and "far", and the line between them |
//! | `gateways.rs` | how each gateway is started, and what its processes use |
//! | `servers.rs` | who answers at the far end |
//! | `start.rs` | how long a start takes |
//! | `work.rs` | what a guest does, and its measure |
//! | `libraries.rs` | slirp4netns on several libraries, with `--libslirp` |
//! | `split.rs` | what it does that shows where bytes wait between two connections |
//! | `tunnel.rs` | programs that carry connections through a WireGuard tunnel, with `--tunnels` |
//! | `machine.rs` | the same for an emulated machine, with `--machines` |
//! | `count.rs` | instructions and system calls of taut for a request, by callgrind |
//! | `table.rs` | samples in, a table out |
//! | `together.rs` | nothing that was started outlives the benchmark |
//!
//! In a round each gateway gets a new world, so that nothing is left of the one before. The controller of
//! the host's sockets is that of the host's route, for all gateways the same; what the kernel says of a
//! running connection is printed. `benches/gateway.sh` gets the gateways.

mod count;
mod gateways;
mod libraries;
mod machine;
mod servers;
mod split;
mod start;
mod table;
mod together;
mod tunnel;
mod work;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;

use gateways::{Kind, Programs};
use table::Table;
use work::Row;
use world::{Line, World};

#[derive(Parser, Debug)]
struct Args {
    /// How often each gateway has its turn
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each bulk transfer
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Only these gateways, with commas between them
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Only these rows, with commas between them
    #[arg(long, value_delimiter = ',')]
    rows: Vec<Row>,
    /// Print all samples as JSON, too
    #[arg(long)]
    json: bool,
    /// Measure in an emulated machine (QEMU without KVM) whose card is plugged into taut, passt, QEMU's own
    /// libslirp, or gvproxy, instead of in namespaces
    #[arg(long, conflicts_with = "rows")]
    machines: bool,
    /// Measure slirp4netns alone: a column for each program, which differ in their library. May be repeated
    #[arg(long, value_name = "NAME=PROGRAM", conflicts_with_all = ["machines", "only"])]
    libslirp: Vec<libraries::Library>,
    /// Measure programs that carry connections through a WireGuard tunnel instead: taut proxy with cubic and
    /// with bbr, gVisor's TCP by wireguard-go's netstack, onetun. The far end: boringtun-cli, the kernel's
    /// cubic
    #[arg(long, conflicts_with_all = ["rows", "machines", "libslirp"])]
    tunnels: bool,
    /// With --tunnels: only these lines, with commas between them
    #[arg(long, value_delimiter = ',', default_value = "short,lossy,slow20", requires = "tunnels")]
    lines: Vec<Line>,
    /// Measure nothing; count taut's instructions and system calls for a request and its response, and
    /// compare them with the bounds in this file. Needs valgrind, and taut built with the profile `profiling`
    #[arg(long, value_name = "FILE")]
    count: Option<PathBuf>,
    /// The command taut
    #[arg(long)]
    taut: PathBuf,
    #[arg(long, default_value = "pasta")]
    pasta: PathBuf,
    #[arg(long, default_value = "passt")]
    passt: PathBuf,
    #[arg(long, default_value = "slirp4netns")]
    slirp4netns: PathBuf,
    #[arg(long, default_value = "gvproxy")]
    gvproxy: PathBuf,
    #[arg(long, default_value = "gvforwarder")]
    gvforwarder: PathBuf,
    #[arg(long, default_value = "tun2proxy-bin")]
    tun2proxy: PathBuf,
    #[arg(long, default_value = "netstack")]
    netstack: PathBuf,
    #[arg(long, default_value = "onetun")]
    onetun: PathBuf,
    #[arg(long, default_value = "boringtun-cli")]
    boringtun: PathBuf,
}

fn main() -> Result<ExitCode> {
    if machine::is_inside() {
        machine::inside();
    }
    if start::is_command() {
        start::command();
        return Ok(ExitCode::SUCCESS);
    }
    let args = Args::parse();
    if let Some(code) = together::run()? {
        return Ok(code);
    }
    raise_descriptors();
    let wanted = |kind: &Kind| {
        (args.only.is_empty() || args.only.contains(kind))
            && !(args.machines && matches!(kind, Kind::Kernel | Kind::Proxy | Kind::Tun2proxy))
    };
    let all = if args.tunnels { &Kind::TUNNELS[..] } else { &Kind::ALL };
    let kinds: Vec<Kind> = all.iter().copied().filter(wanted).collect();
    let rows: Vec<Row> =
        Row::ALL.iter().copied().filter(|row| args.rows.is_empty() || args.rows.contains(row)).collect();
    let mut programs = Programs {
        taut: args.taut,
        pasta: args.pasta,
        passt: args.passt,
        slirp4netns: args.slirp4netns,
        gvproxy: args.gvproxy,
        gvforwarder: args.gvforwarder,
        tun2proxy: args.tun2proxy,
        netstack: args.netstack,
        onetun: args.onetun,
        boringtun: args.boringtun,
        callgrind: None,
    };
    if let Some(bounds) = &args.count {
        let all_hold = count::run(&mut programs, bounds)?;
        return Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if !args.libslirp.is_empty() {
        let seconds = args.seconds;
        println!("load of the machine before it begins (1, 5, 15 minutes): {}", load()?);
        libraries::run(
            &args.libslirp,
            (&rows, args.rounds, args.json),
            &mut programs,
            |programs, kind, rows, table| lines(programs, kind, rows, seconds, table),
        )?;
        println!("load of the machine at the end: {}", load()?);
        return Ok(ExitCode::SUCCESS);
    }
    for kind in &kinds {
        println!("{}: {}", kind.name(), programs.version(*kind)?);
    }
    if args.tunnels {
        println!(
            "boringtun alone encrypts {:.2} Gbit/s in one thread, 1,420 bytes a packet",
            tunnel::limit()?
        );
    }
    println!("load of the machine before it begins (1, 5, 15 minutes): {}", load()?);
    let mut table = Table::default();
    for round in 0..args.rounds {
        for &kind in &kinds {
            eprintln!("round {} of {}: {}", round + 1, args.rounds, kind.name());
            if args.machines || args.tunnels {
                let measured = if args.machines {
                    machine::turn(&programs, kind, args.seconds, &mut table)
                } else {
                    tunnel::turn(&programs, kind, &args.lines, args.seconds, &mut table)
                };
                if let Err(error) = measured {
                    table.failed(kind, &format!("{error:#}"));
                }
                continue;
            }
            lines(&programs, kind, &rows, args.seconds, &mut table);
        }
    }
    println!("load of the machine at the end: {}", load()?);
    table.print(&kinds);
    if args.json {
        println!("{}", table.json());
    }
    if table.is_empty() {
        bail!("nothing was measured");
    }
    Ok(ExitCode::SUCCESS)
}

/// One gateway over all lines.
fn lines(programs: &Programs, kind: Kind, rows: &[Row], seconds: u32, table: &mut Table) {
    for line in Line::ALL {
        for &controller in line.controllers() {
            let rows: Vec<Row> =
                rows.iter().copied().filter(|row| row.line() == line && row.is_of(kind)).collect();
            if rows.is_empty() {
                continue;
            }
            if let Err(error) = turn(programs, kind, line, controller, &rows, seconds, table) {
                table.failed(kind, &format!("{error:#}"));
            }
        }
    }
}

/// One gateway in a world of its own.
fn turn(
    programs: &Programs,
    kind: Kind,
    line: Line,
    controller: &'static str,
    rows: &[Row],
    seconds: u32,
    table: &mut Table,
) -> Result<()> {
    let world = World::new(line, controller)?;
    let guest = programs.start(kind, &world, None)?;
    for &row in rows {
        if let Err(error) = row.measure(programs, &world, &guest, seconds, table) {
            table.failed(kind, &format!("{row:?}: {error:#}"));
        }
    }
    table.note(format!(
        "{} over the {} line: sockets of the host use {}",
        kind.name(),
        line.name(),
        world.seen()
    ));
    drop(guest);
    // The same with taut as the sender towards the network.
    if kind == Kind::Taut && line != Line::Short && controller == "cubic" {
        let world = World::new(line, controller)?;
        let guest = programs.start(kind, &world, Some("bbr"))?;
        for &row in rows {
            if let Err(error) = row.measure(programs, &world, &guest, seconds, table) {
                table.failed(kind, &format!("{row:?}, by a link: {error:#}"));
            }
        }
    }
    Ok(())
}

fn load() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
