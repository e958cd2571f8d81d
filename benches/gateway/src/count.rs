//! Instructions and system calls of taut's gateway for one request and its response, counted by callgrind:
//! nearly the same in every run and however busy the machine is, so they can be compared with a bound.
//!
//! ```text
//!   guest: a byte there, a byte back, n times ── TUN ── valgrind: taut gateway --tun ── veth ── far: echo
//! ```
//!
//! Each count is the difference between a long and a short run, divided by the difference in requests: what
//! the gateway does at its start and its end cancels out. The kernel's instructions are not in it. Under
//! valgrind a look at the clock is a system call; elsewhere it is none. The program needs names of functions,
//! so it is built with the profile `profiling`.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::gateways::{Kind, Programs};
use crate::servers::{ECHO, at};
use crate::work::LIMIT;
use crate::world::{Line, World};

const SHORT: u32 = 1_000;
const LONG: u32 = 4_000;
/// The parts that are counted by themselves, and the function that begins each.
const PARTS: [(&str, &str); 2] =
    [("the flow's task", "taut_gateway::run::tcp::tcp"), ("the stack's driver", "taut_driver::tokio::drive")];

/// What is counted in one run: all instructions, system calls, and instructions in each of [`PARTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    instructions: u64,
    calls: u64,
    parts: [u64; PARTS.len()],
}

/// `benches/instructions.toml`.
#[derive(Debug, Deserialize)]
struct Bounds {
    gateway_at_most: BTreeMap<String, f64>,
}

/// Counts, prints a table, and returns whether all bounds hold.
pub fn run(programs: &mut Programs, bounds: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(bounds).with_context(|| bounds.display().to_string())?;
    let bounds: Bounds = toml::from_str(&text)?;
    let (short, long) = (one(programs, SHORT)?, one(programs, LONG)?);
    let each = |long: u64, short: u64| (long as f64 - short as f64) / f64::from(LONG - SHORT);
    let mut rows = vec![
        ("instructions", each(long.instructions, short.instructions)),
        ("system calls and looks at the clock", each(long.calls, short.calls)),
    ];
    for (at, (name, function)) in PARTS.iter().enumerate() {
        ensure!(long.parts[at] > 0, "no function {function}: build taut with --profile profiling");
        rows.push((name, each(long.parts[at], short.parts[at])));
    }
    println!("taut gateway: a request of a byte and its response");
    println!("  {:<36} {:>10} {:>10}", "what", "count", "at most");
    let mut all_hold = true;
    for (name, count) in rows {
        let most = bounds.gateway_at_most.get(name).copied();
        let holds = most.is_none_or(|most| count <= most);
        all_hold &= holds;
        let most = most.map_or_else(|| "–".to_owned(), |most| most.to_string());
        println!("  {name:<36} {count:>10.1} {most:>10}{}", if holds { "" } else { "  TOO MANY" });
    }
    Ok(all_hold)
}

/// A gateway that carries so many requests.
fn one(programs: &mut Programs, requests: u32) -> Result<Counts> {
    let file = std::env::temp_dir().join(format!("taut-gateway-count.{}", std::process::id()));
    programs.callgrind = Some(file.clone());
    let world = World::new(Line::Short, "cubic")?;
    let guest = programs.start(Kind::Taut, &world, None)?;
    guest.enter(|| -> std::io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&at(ECHO), LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        for _ in 0..requests {
            stream.write_all(&[1])?;
            stream.read_exact(&mut [0])?;
        }
        Ok(())
    })??;
    guest.end()?;
    let profile = std::fs::read_to_string(&file).context("callgrind's output");
    if std::env::var_os("TAUT_GATEWAYS_DEBUG").is_none() {
        _ = std::fs::remove_file(&file);
    }
    counts(&profile?)
}

/// The command under callgrind, which writes its counts to `file` at its end.
pub fn under_callgrind(program: &Path, file: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--collect-systime=yes"]);
    command.arg(format!("--callgrind-out-file={}", file.display())).arg(program);
    command
}

/// Reads a profile of callgrind's. A function's name stands at its first mention, later only its number: `fn`
/// is where the lines belong, `cfn` what is called; the line after `calls` has what the call cost, with all
/// below it.
fn counts(profile: &str) -> Result<Counts> {
    let (mut names, mut events) = (BTreeMap::<&str, &str>::new(), Vec::new());
    let (mut here, mut callee, mut is_call) = ("", "", false);
    let (mut totals, mut parts) = (None, [0; PARTS.len()]);
    for line in profile.lines() {
        let (key, value) = line.split_once(['=', ':']).unwrap_or_default();
        match key {
            "events" => events = value.split_whitespace().collect(),
            "totals" => totals = Some(numbers(value)),
            "fn" => here = name(&mut names, value),
            "cfn" => callee = name(&mut names, value),
            "calls" => is_call = true,
            _ if is_call => {
                is_call = false;
                let cost = numbers(line.split_once(' ').unwrap_or_default().1);
                for (part, (_, function)) in parts.iter_mut().zip(PARTS) {
                    if callee.starts_with(function) && !here.starts_with(function) {
                        *part += cost.first().copied().unwrap_or_default();
                    }
                }
            }
            _ => {}
        }
    }
    let at = |event| events.iter().position(|name| *name == event);
    match (totals, at("Ir"), at("sysCount")) {
        (Some(totals), Some(ir), Some(calls)) if ir == 0 && calls < totals.len() => {
            Ok(Counts { instructions: totals[ir], calls: totals[calls], parts })
        }
        _ => bail!("callgrind's output is not understood"),
    }
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// `(7) name` or `(7)`.
fn name<'a>(names: &mut BTreeMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    let (number, name) = text.split_once(' ').unwrap_or((text, ""));
    if !name.is_empty() {
        names.insert(number, name);
    }
    names.get(number).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read() {
        let profile = "version: 1\nevents: Ir sysCount sysTime\n\nfn=(1) main\n16 400\ncfn=(2) taut_gateway::run::tcp::tcp::{{closure}}\n\
            calls=3 50\n+2 700 2 9\ncfn=(4) taut_driver::tokio::drive::{{closure}}\ncalls=1 9\n* 30\n\
            fn=(2)\n20 100\ncfn=(3) taut_gateway::run::tcp::tcp::inner\ncalls=1 60\n+1 50\ntotals: 1234 17 99\n";
        let read = counts(profile).unwrap();
        assert_eq!(read, Counts { instructions: 1_234, calls: 17, parts: [700, 30] });
        assert!(counts("events: Ir\ntotals: 12\n").is_err());
    }
}
