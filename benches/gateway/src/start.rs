//! How long it takes until a guest's first connection is there, with the same duty for each gateway.
//!
//! | row | taut | pasta | slirp4netns |
//! |---|---|---|---|
//! | in a namespace that is there | `taut gateway --netns PID` | `pasta PID` | `slirp4netns PID tap0` |
//! | a command in a network of its own | `taut gateway --run -- PROGRAM` | `pasta -- PROGRAM` | `unshare -r -n PROGRAM`, and slirp4netns when that is in its namespace |
//!
//! Commands run as an ordinary user, who must be able to run this program.
//! gvproxy needs a TAP that somebody makes in the namespace, and tun2proxy one that somebody configures in a
//! namespace of its own: that work (`gateways.rs`, by `ip`) is in their figures.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};

use crate::gateways::{Guest, Kind, Programs, enter, sleeper, spawn, wait_for};
use crate::servers::{ECHO, at};
use crate::table::Table;
use crate::work::{Killed, LIMIT};
use crate::world::World;

/// Starts of each kind in a round.
const STARTS: usize = 5;
/// The argument by which this program is the command whose network is waited for.
const FIRST: &str = "--first-connection";
const IN_NAMESPACE: &str = "start-up in a namespace that is there [ms]";
const OF_COMMAND: &str = "start-up of a command in a network of its own [ms]";
/// How often is tried.
const PAUSE: Duration = Duration::from_micros(200);

/// Whether this is the command.
pub fn is_command() -> bool {
    std::env::args().nth(1).is_some_and(|first| first == FIRST)
}

/// Says when the first connection was there, in nanoseconds since 1970.
pub fn command() {
    if let Ok(when) = first_connection() {
        println!("{}", nanoseconds(when));
    }
}

fn nanoseconds(when: SystemTime) -> u128 {
    when.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

fn first_connection() -> Result<SystemTime> {
    let begun = Instant::now();
    let server: SocketAddr = at(ECHO);
    while TcpStream::connect_timeout(&server, LIMIT).is_err() {
        ensure!(begun.elapsed() < LIMIT, "no connection to {server}");
        std::thread::sleep(PAUSE);
    }
    Ok(SystemTime::now())
}

pub fn measure(programs: &Programs, world: &World, guest: &Guest, table: &mut Table) -> Result<()> {
    let began_after = guest.began_after.as_secs_f64() * 1e3;
    match guest.kind {
        Kind::Gvproxy => table.add(guest.kind, IN_NAMESPACE, began_after),
        Kind::Tun2proxy => table.add(guest.kind, OF_COMMAND, began_after),
        kind => {
            for _ in 0..STARTS {
                table.add(kind, IN_NAMESPACE, in_namespace(programs, kind, world)?);
                table.add(kind, OF_COMMAND, of_command(programs, kind, world)?);
            }
        }
    }
    Ok(())
}

fn in_namespace(programs: &Programs, kind: Kind, world: &World) -> Result<f64> {
    let guest = Killed(sleeper(world)?);
    let process = guest.0.id();
    let waits = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            enter(process, || {
                waits.store(true, Ordering::Relaxed);
                first_connection()
            })
        });
        wait_for(|| waits.load(Ordering::Relaxed).then_some(()), "the client")?;
        let begun = SystemTime::now();
        let mut gateway = programs.for_process(kind, process, "none").context("it enters no namespace")?;
        let _gateway = Killed(spawn(world, &mut gateway)?);
        let end = client.join().map_err(|_| anyhow::anyhow!("the client panicked"))???;
        Ok(end.duration_since(begun)?.as_secs_f64() * 1e3)
    })
}

fn of_command(programs: &Programs, kind: Kind, world: &World) -> Result<f64> {
    let program = std::env::current_exe()?;
    let runs = programs.for_command(kind).unwrap_or_else(|| {
        let mut command = Command::new("unshare");
        command.args(["-r", "-n"]);
        command
    });
    // As an ordinary user: started by root, the newest pasta ends without its network.
    let mut whole = Command::new("setpriv");
    whole.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
    whole.arg(runs.get_program()).args(runs.get_args());
    whole.arg(&program).arg(FIRST).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let begun = SystemTime::now();
    let mut first = Killed(world.host.namespace.spawn(&mut whole)?);
    let mut beside = None;
    if kind == Kind::Slirp4netns {
        let process = first.0.id();
        while !is_program(process) {
            ensure!(begun.elapsed()? < LIMIT, "the namespace does not appear");
            std::thread::sleep(PAUSE / 2);
        }
        let mut gateway = programs.for_process(kind, process, "none").context("it enters no namespace")?;
        beside = Some(Killed(spawn(world, &mut gateway)?));
    }
    let mut said = String::new();
    first.0.stdout.take().context("no output")?.read_to_string(&mut said)?;
    first.0.wait()?;
    drop(beside);
    let end: u128 = said.trim().parse().with_context(|| format!("it said {said:?}"))?;
    Ok(end.saturating_sub(nanoseconds(begun)) as f64 / 1e6)
}

/// Whether `unshare` has become the command: it is in its namespace then, and its user is mapped.
fn is_program(process: u32) -> bool {
    std::fs::read(format!("/proc/{process}/cmdline"))
        .is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(FIRST.as_bytes()))
}
