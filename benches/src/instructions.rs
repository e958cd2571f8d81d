//! Instructions per packet, counted by callgrind: the same in every run, so a test can compare them with a
//! bound.
//!
//! Each count is the difference between a long and a short run, divided by the difference in packets: the
//! work at the start of a run cancels out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::report::number;

const ROUNDS_SHORT: u32 = 500;
const ROUNDS_LONG: u32 = 1_500;

/// What is counted, and in which functions of `taut-icount`.
const COUNTS: [(&str, &[&str], Per); 3] = [
    ("send", &["write", "packet_out", "complete"], Per::Packet),
    ("receive", &["packet_in", "read"], Per::Packet),
    ("ack", &["ack_in"], Per::Ack),
];

#[derive(Clone, Copy)]
enum Per {
    Packet,
    Ack,
}

/// One number, and the most it may be.
#[derive(Debug, Serialize)]
pub struct Count {
    pub stack: &'static str,
    pub what: &'static str,
    pub instructions: f64,
    pub at_most: Option<f64>,
}

/// `instructions.toml`.
#[derive(Debug, Deserialize)]
struct Bounds {
    at_most: BTreeMap<String, f64>,
}

/// Counts everything; `bounds` applies to taut only.
pub fn count(bounds: &Path, mut progress: impl FnMut(&str)) -> Result<Vec<Count>> {
    let text = std::fs::read_to_string(bounds).with_context(|| bounds.display().to_string())?;
    let bounds: Bounds = toml::from_str(&text)?;
    let program = std::env::current_exe()?.with_file_name("taut-icount");
    if !program.exists() {
        bail!("{} is not built; `cargo build --release` builds it", program.display());
    }
    let scratch = std::env::temp_dir().join(format!("taut-icount.{}", std::process::id()));
    let mut counts = Vec::new();
    for stack in ["taut", "smoltcp"] {
        for (what, functions, per) in COUNTS {
            progress(&format!("{stack}: {what}"));
            let names: Vec<String> = functions.iter().map(|name| format!("count_{stack}_{name}")).collect();
            let run = |rounds| callgrind(&program, &scratch, stack, &names, rounds);
            let (short, long) = (run(ROUNDS_SHORT)?, run(ROUNDS_LONG)?);
            let times = match per {
                Per::Packet => long.packets - short.packets,
                Per::Ack => long.acks - short.acks,
            };
            if times == 0 {
                bail!("{stack}: {what}: nothing was carried");
            }
            counts.push(Count {
                stack,
                what,
                instructions: (long.instructions - short.instructions) as f64 / times as f64,
                at_most: (stack == "taut").then(|| bounds.at_most.get(what).copied()).flatten(),
            });
        }
    }
    Ok(counts)
}

/// Prints the table; returns whether all bounds hold.
pub fn print(counts: &[Count]) -> bool {
    println!("instructions per super-packet of 65,160 bytes, and per pure ACK processed");
    println!("  {:<10} {:<10} {:>12} {:>12} {:>10}", "stack", "what", "count", "at most", "/ smoltcp");
    for count in counts {
        let of_smoltcp = counts.iter().find(|other| other.stack == "smoltcp" && other.what == count.what);
        let ratio = match of_smoltcp {
            Some(other) if count.stack != "smoltcp" => {
                format!("{:.2}", count.instructions / other.instructions)
            }
            _ => "–".to_owned(),
        };
        println!(
            "  {:<10} {:<10} {:>12} {:>12} {:>10}{}",
            count.stack,
            count.what,
            number(count.instructions.round()),
            count.at_most.map_or_else(|| "–".to_owned(), number),
            ratio,
            if count.holds() { "" } else { "  TOO MANY" }
        );
    }
    counts.iter().all(Count::holds)
}

impl Count {
    /// Whether the count is within its bound, if it has one.
    pub fn holds(&self) -> bool {
        self.at_most.is_none_or(|most| self.instructions <= most)
    }
}

struct Run {
    instructions: u64,
    packets: u64,
    acks: u64,
}

fn callgrind(program: &Path, scratch: &PathBuf, stack: &str, names: &[String], rounds: u32) -> Result<Run> {
    let output = Command::new("valgrind")
        // Memory is copied in the same way on every processor, so the counts are the same on all of them.
        // Without ERMS and FSRM, because callgrind counts each step of a repeated instruction as an
        // instruction.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", scratch.display()))
        .args(names.iter().map(|name| format!("--toggle-collect={name}")))
        .arg(program)
        .args([stack, &rounds.to_string()])
        .output()
        .context("cannot run valgrind; install it")?;
    if !output.status.success() {
        bail!("valgrind: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let profile = std::fs::read_to_string(scratch).context("callgrind's output");
    let _ = std::fs::remove_file(scratch);
    let carried = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut carried = carried.split_whitespace().map(str::parse::<u64>);
    match (total(&profile?), carried.next(), carried.next()) {
        (Some(instructions), Some(Ok(packets)), Some(Ok(acks))) => Ok(Run { instructions, packets, acks }),
        _ => bail!("callgrind's output is not understood"),
    }
}

/// Instructions collected, from a callgrind profile.
fn total(profile: &str) -> Option<u64> {
    let line = profile.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn total_of_a_profile() {
        assert_eq!(super::total("version: 1\nevents: Ir\nfn=(1) x\n1 2\ntotals: 1234\n"), Some(1_234));
        assert_eq!(super::total("events: Ir\n"), None);
    }
}
