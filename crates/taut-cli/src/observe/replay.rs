//! `taut replay`: runs a recorded stack again, checks that it does the same, and shows it at any point.
//!
//! What it shows is made by the files of `ss`, `nstat` and `explain`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;
use taut_control::whole::StackSnapshot;
use taut_core::congestion::Registry;
use taut_core::{Duration, Instant};
use taut_lab::pcapng;
use taut_link::parse_time;
use taut_replay::{Difference, Played, Player, RecordEnd, Seen};

use crate::observe::rooms::Relayed;
use crate::observe::{explain, nstat, ss};
use crate::shared::{output, progress};

/// Replays a recording, compares every packet, and shows the stack
#[derive(Args, Debug)]
#[command(after_help = "Example, with a recording of a stack:\n  \
    taut send 10.9.0.1:7000 --record run < file\n  taut replay run\n  \
    taut replay run --to 2.5s explain\n  taut replay run --to 1000 --capture run.pcapng ss\n\n\
    The exit code is 1 if the replay differs from the recorded run. A recording holds for the version of taut that made it.")]
pub(crate) struct ReplayArgs {
    /// The recording, as made with --record
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Views printed where the replay ends [default: with --to, all of them]
    #[arg(value_name = "VIEW")]
    view: Option<View>,
    /// Stop after this time since the first input, such as 2.5s or 300ms, or after this many inputs
    #[arg(long, value_name = "TIME|N", value_parser = stop)]
    to: Option<Stop>,
    /// Write the packets received and sent to a capture for tshark: of sent ones, the headers
    #[arg(long, value_name = "OUT.pcapng")]
    capture: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A part of what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum View {
    /// The gates that held each connection back, as `taut explain`
    Explain,
    /// The connections, as `taut ss -ati`
    Ss,
    /// The counters since the stack began, as `taut nstat -a`
    Nstat,
}

/// Where to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    After(Duration),
    Input(u64),
}

fn stop(text: &str) -> Result<Stop, String> {
    if let Ok(number) = text.parse() {
        return Ok(Stop::Input(number));
    }
    let span = parse_time(text);
    span.map(Stop::After).map_err(|_| "neither a time, such as 2.5s, nor the number of an input".to_owned())
}

/// The result of a replay, as text and as JSON.
#[derive(Debug, Serialize)]
struct Outcome {
    /// The version that recorded.
    version: String,
    shard: u16,
    shards: u16,
    inputs: u64,
    packets_received: u64,
    packets_sent: u64,
    /// From the first input to the last.
    time_ns: u64,
    /// How the recording ends: `whole`, `too-slow` or `cut`; null if the replay stopped before.
    end: Option<&'static str>,
    difference: Option<DifferenceLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<StackSnapshot>,
}

#[derive(Debug, Serialize)]
struct DifferenceLine {
    input: u64,
    kind: String,
    time_ns: u64,
    recorded: String,
    replayed: String,
}

/// A capture that is being written.
struct Capture {
    file: BufWriter<File>,
    block: Vec<u8>,
}

impl Capture {
    fn new(path: &Path) -> std::io::Result<Self> {
        let mut options = File::options();
        // It contains payload.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = BufWriter::new(options.write(true).create(true).truncate(true).open(path)?);
        let mut block = Vec::new();
        pcapng::begin(&mut block);
        pcapng::interface(&mut block, pcapng::LINKTYPE_RAW, "replay");
        file.write_all(&block)?;
        Ok(Self { file, block })
    }

    fn packet(&mut self, seen: &Seen<'_>, begin: Instant) -> std::io::Result<()> {
        self.block.clear();
        let ns = seen.at.since(begin).as_nanos();
        let rest = seen.len.saturating_sub(seen.bytes.len()) as u32;
        let way = if seen.is_sent { "sent" } else { "received" };
        pcapng::packet(&mut self.block, 0, ns, std::iter::once(seen.bytes), rest, Some(way));
        self.file.write_all(&self.block)
    }
}

/// Runs `taut replay`.
///
/// # Errors
/// The recording cannot be read, or the replay differs from it.
pub(crate) fn run(args: &ReplayArgs, controllers: &Registry) -> anyhow::Result<()> {
    let name = || args.file.display().to_string();
    let mut player = Player::open(&args.file, controllers).with_context(name)?;
    let bar = progress::bytes(std::fs::metadata(&args.file).ok().map(|file| file.len()));
    let played = play(&mut player, args, &bar);
    bar.finish_and_clear();
    let mut outcome = played.with_context(name)?;
    if args.to.is_some() || args.view.is_some() {
        outcome.stack = Some(StackSnapshot::of(1, |_, copy| copy(player.stack(), player.now())));
    }
    if args.json {
        output::print_json(&outcome)?;
    } else {
        output::print(&text(&outcome, args.view))?;
    }
    match &outcome.difference {
        // Its text was printed.
        Some(difference) => {
            let (file, at) = (name(), difference.input);
            bail!(
                "{file}: the replay differs from the recorded run at input {at}; `taut replay {file} --to {at}` shows \
                 the stack there"
            )
        }
        None => Ok(()),
    }
}

fn play(player: &mut Player, args: &ReplayArgs, bar: &ProgressBar) -> anyhow::Result<Outcome> {
    const BAR_EVERY: u64 = 1 << 12;
    let mut capture = match &args.capture {
        Some(path) => Some(Capture::new(path).with_context(|| format!("cannot write {}", path.display()))?),
        None => None,
    };
    let (mut received, mut sent) = (0, 0);
    let mut written = Ok(());
    let mut difference = None;
    loop {
        let until = match args.to {
            Some(Stop::Input(last)) if player.inputs() >= last => break,
            Some(Stop::After(span)) if player.begin() > Instant::ZERO => player.begin() + span,
            _ => Instant::NEVER,
        };
        let begin = player.begin();
        let played = player.step(until, &mut |seen| {
            *(if seen.is_sent { &mut sent } else { &mut received }) += 1;
            if let (Some(capture), Ok(())) = (&mut capture, &written) {
                written = capture.packet(&seen, begin);
            }
        });
        match played? {
            None => break,
            Some(Played::Same) => {}
            Some(Played::Lost(input)) => {
                eprintln!(
                    "taut: the recorded call of input {input} did not return: the program panicked in it"
                );
            }
            Some(Played::Different(found)) => {
                difference = Some(line(&found, player.begin()));
                break;
            }
        }
        if player.inputs().is_multiple_of(BAR_EVERY) {
            bar.set_position(player.bytes());
        }
    }
    if let Some(mut capture) = capture {
        written = written.and_then(|()| capture.file.flush());
    }
    written.context("cannot write the capture")?;
    let (shard, shards) = player.shard();
    let end = player.end().map(|end| match end {
        RecordEnd::Whole => "whole",
        RecordEnd::TooSlow => "too-slow",
        _ => "cut",
    });
    Ok(Outcome {
        version: player.program().to_owned(),
        shard,
        shards,
        inputs: player.inputs(),
        packets_received: received,
        packets_sent: sent,
        time_ns: player.now().since(player.begin()).as_nanos(),
        end,
        difference,
        stack: None,
    })
}

fn line(difference: &Difference, begin: Instant) -> DifferenceLine {
    DifferenceLine {
        input: difference.input,
        kind: format!("{:?}", difference.kind),
        time_ns: difference.at.since(begin).as_nanos(),
        recorded: match difference.recorded {
            0 => "nothing".to_owned(),
            number => format!("{number:x}"),
        },
        replayed: difference.replayed.clone(),
    }
}

fn seconds(ns: u64) -> String {
    format!("{:.6} s", ns as f64 / 1e9)
}

/// The outcome for people.
fn text(outcome: &Outcome, view: Option<View>) -> String {
    let Outcome { inputs, packets_received, packets_sent, time_ns, shard, shards, version, .. } = outcome;
    let mut out = format!(
        "recorded by taut {version}, shard {shard} of {shards}: {inputs} inputs in {}, {packets_received} packets \
         received, {packets_sent} sent\n",
        seconds(*time_ns)
    );
    match &outcome.difference {
        Some(DifferenceLine { input, kind, time_ns, recorded, replayed }) => {
            out += &format!(
                "DIFFERENT at input {input} ({kind}), {}: the recording has {recorded}, the replay {replayed}\n",
                seconds(*time_ns)
            );
        }
        None => out += "every packet, event and result is the same\n",
    }
    match outcome.end {
        Some("too-slow") => {
            out += "the recording ends here because the disk was too slow; the stack went on\n";
        }
        Some("cut") => {
            out += "the recording ends here without a mark: its program was killed, or the disk was full\n";
        }
        _ => {}
    }
    let Some(stack) = &outcome.stack else { return out };
    let shows = |asked| view.is_none_or(|view| view == asked);
    if shows(View::Ss) {
        out += "\n";
        out += &ss::detailed(&stack.listeners, &stack.flows, &stack.connections);
    }
    if shows(View::Nstat) {
        out += "\n";
        out += &nstat::since_the_beginning(&stack.counters);
    }
    if shows(View::Explain) {
        out += "\n";
        out += &explain::of_stack(&stack.reports, &stack.report, &Relayed::default());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_a_time_or_the_number_of_an_input() {
        assert_eq!(stop("2.5s"), Ok(Stop::After(Duration::from_millis(2_500))));
        assert_eq!(stop("300ms"), Ok(Stop::After(Duration::from_millis(300))));
        assert_eq!(stop("1000"), Ok(Stop::Input(1_000)));
        assert!(stop("soon").is_err() && stop("-1").is_err() && stop("").is_err());
    }

    #[test]
    fn a_difference_is_named_with_time_and_number() {
        let outcome = Outcome {
            version: "0.1.0".to_owned(),
            shard: 0,
            shards: 1,
            inputs: 7,
            packets_received: 2,
            packets_sent: 3,
            time_ns: 1_500_000_000,
            end: Some("cut"),
            difference: Some(DifferenceLine {
                input: 7,
                kind: "Transmit".to_owned(),
                time_ns: 1_250_000_000,
                recorded: "nothing".to_owned(),
                replayed: "a packet of 40 bytes".to_owned(),
            }),
            stack: None,
        };
        assert_eq!(
            text(&outcome, None),
            "recorded by taut 0.1.0, shard 0 of 1: 7 inputs in 1.500000 s, 2 packets received, 3 sent\n\
             DIFFERENT at input 7 (Transmit), 1.250000 s: the recording has nothing, the replay a packet of 40 bytes\n\
             the recording ends here without a mark: its program was killed, or the disk was full\n"
        );
    }
}
