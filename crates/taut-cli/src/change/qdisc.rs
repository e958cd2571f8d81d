//! `taut qdisc`: the queue disciplines in front of a running stack's device, shown and changed as `tc qdisc`
//! does an interface's. `qdisc_format.rs` prints them.

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use taut::qdisc::QdiscSpec;
use taut_control::qdisc::QdiscSnapshot;
use taut_control::{Client, place};

use crate::args::control::{SocketArgs, asked};
use crate::change::qdisc_format::{json, text};
use crate::shared::output;

/// Shows or changes the queue in front of the device, as tc qdisc does
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct QdiscArgs {
    #[command(subcommand)]
    command: Option<QdiscCommand>,
    #[command(flatten)]
    show: ShowArgs,
}

const EXAMPLE: &str = "Example, with a running stack such as `taut serve .`:
  taut qdisc show -s
  taut qdisc replace dev taut0 root fq maxrate 100mbit
  taut qdisc replace dev taut0 root netem delay 50ms 5ms loss 1% rate 100mbit
  taut qdisc replace dev taut0 root tbf rate 100mbit burst 32kb '|' fq_codel
  taut qdisc del dev taut0 root

Kinds are pfifo, bfifo, pfifo_fast, fq, fq_codel, tbf and netem; options, units and defaults are tc's. Write a \
discipline behind tbf or netem after a bar, which must be quoted in the shell. Waiting packets are taken over, in \
order and without loss.";

#[derive(Subcommand, Debug)]
enum QdiscCommand {
    /// Show the queue disciplines, of every running stack or of one
    #[command(visible_alias = "list", after_help = EXAMPLE)]
    Show(ShowArgs),
    /// Replace the queue discipline: dev DEV root KIND [OPTION VALUE]...
    #[command(after_help = EXAMPLE)]
    Replace(ChangeArgs),
    /// Restore the original queue discipline: dev DEV root
    #[command(visible_alias = "delete", after_help = EXAMPLE)]
    Del(ChangeArgs),
}

#[derive(Args, Debug, Default)]
struct ShowArgs {
    /// Show the packets sent, dropped and waiting
    #[arg(short, long)]
    statistics: bool,
    /// dev DEV, the interface over which a stack sends
    #[arg(value_name = "dev DEV", num_args = 0..=2)]
    words: Vec<String>,
    /// Print as JSON, in tc's format
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Args, Debug)]
struct ChangeArgs {
    /// dev DEV root; for replace, then the new queue discipline
    #[arg(value_name = "dev DEV root KIND", required = true, allow_negative_numbers = true)]
    words: Vec<String>,
    /// Print the new queue disciplines as JSON, in tc's format
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Runs `taut qdisc`.
///
/// # Errors
/// When no stack is running or answers, none sends over the device, or a word is wrong.
pub(crate) fn run(args: &QdiscArgs) -> anyhow::Result<()> {
    match &args.command {
        None => show(&args.show),
        Some(QdiscCommand::Show(args)) => show(args),
        Some(QdiscCommand::Replace(args)) => {
            let (device, spec) = device_and_rest(&args.words)?;
            if spec.is_empty() {
                bail!("replace needs a queue discipline after root, such as: dev {device} root fq");
            }
            let spec = spec.join(" ");
            // Checked here, so that mistakes are found even without a stack.
            spec.parse::<QdiscSpec>()?;
            change(args, device, Some(&spec))
        }
        Some(QdiscCommand::Del(args)) => match device_and_rest(&args.words)? {
            (device, []) => change(args, device, None),
            (_, [word, ..]) => bail!("del takes nothing after root; remove {word:?}"),
        },
    }
}

fn change(args: &ChangeArgs, device: &str, spec: Option<&str>) -> anyhow::Result<()> {
    let mut client = args.socket.open_device(device)?;
    let found = asked(client.set_qdisc(spec))?;
    if args.json {
        output::print_json(&list(&[(None, found)], true))?;
    }
    Ok(())
}

/// Reads `dev DEV root …`.
fn device_and_rest(words: &[String]) -> anyhow::Result<(&str, &[String])> {
    match words {
        [dev, device, root, rest @ ..] if dev == "dev" && root == "root" => Ok((device, rest)),
        [dev, _, parent, ..] if dev == "dev" && parent == "parent" => {
            bail!("write a discipline behind another one after a bar: root tbf … '|' fq_codel")
        }
        _ => Err(anyhow!("write dev, the interface, and root, such as: dev taut0 root fq")),
    }
}

/// The disciplines of a stack, with its device; `None` if the user gave the device.
type Of = (Option<String>, Vec<QdiscSnapshot>);

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let shown: Vec<Of> = match &args.words[..] {
        [] if args.socket.socket.is_none() => all()?,
        [] => {
            let mut client = args.socket.open()?;
            vec![(Some(device(&mut client)?), asked(client.qdiscs())?)]
        }
        [dev, device] if dev == "dev" => {
            vec![(None, asked(args.socket.open_device(device)?.qdiscs())?)]
        }
        words => bail!("write dev and the interface, such as: dev taut0, instead of {}", words.join(" ")),
    };
    if args.json {
        return output::print_json(&list(&shown, args.statistics));
    }
    let lines = flat(&shown).map(|(device, qdisc)| text(qdisc, device, args.statistics));
    output::print(&lines.collect::<Result<String, _>>()?)
}

/// The disciplines of every stack, each with its device.
fn all() -> anyhow::Result<Vec<Of>> {
    let mut shown = Vec::new();
    for running in place::running()? {
        // A stack may have ended just now.
        let Ok(mut client) = Client::connect(&running.path) else { continue };
        shown.push((Some(device(&mut client)?), asked(client.qdiscs())?));
    }
    // Returns the error for no running stack.
    if shown.is_empty() {
        SocketArgs::default().open()?;
    }
    Ok(shown)
}

fn device(client: &mut Client) -> anyhow::Result<String> {
    Ok(asked(client.identity())?.device)
}

/// Every discipline with its device. A stack without disciplines has one entry with `None`, which `tc` calls
/// `noqueue`.
fn flat(shown: &[Of]) -> impl Iterator<Item = (Option<&str>, Option<&QdiscSnapshot>)> {
    shown.iter().flat_map(|(device, qdiscs)| {
        let none = qdiscs.is_empty().then_some(None);
        none.into_iter().chain(qdiscs.iter().map(Some)).map(|qdisc| (device.as_deref(), qdisc))
    })
}

fn list(shown: &[Of], statistics: bool) -> Vec<impl serde::Serialize> {
    flat(shown).filter_map(|(device, qdisc)| json(qdisc, device, statistics).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_device_and_root_come_first() {
        let given = words("dev taut0 root netem delay 5ms");
        let (device, rest) = device_and_rest(&given).unwrap();
        assert_eq!((device, rest.join(" ").as_str()), ("taut0", "netem delay 5ms"));
        for wrong in ["dev", "dev taut0", "root fq", "dev taut0 handle 1: root fq", "taut0 root fq"] {
            let error = device_and_rest(&words(wrong)).unwrap_err().to_string();
            assert!(error.contains("dev taut0 root fq"), "{wrong}: {error}");
        }
        let error = device_and_rest(&words("dev taut0 parent 1: fq")).unwrap_err().to_string();
        assert!(error.contains("after a bar"), "{error}");
    }

    #[test]
    fn a_stack_without_a_queue_is_shown_too() {
        let shown = [(Some("taut0".to_owned()), Vec::new()), (None, vec![QdiscSnapshot::default(); 2])];
        let flat: Vec<_> = flat(&shown).map(|(device, qdisc)| (device, qdisc.is_some())).collect();
        assert_eq!(flat, [(Some("taut0"), false), (None, true), (None, true)]);
    }
}
