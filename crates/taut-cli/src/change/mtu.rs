//! `taut mtu`: the MTU of a running stack, shown and changed as `ip link set mtu` does an interface's.

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::json;
use taut_control::network::Change;

use crate::args::network::{Of, ShowArgs, TargetArgs, without_device};
use crate::shared::output;

const EXAMPLE: &str = "Example, with a running stack such as `taut serve .`:
  taut mtu
  taut mtu set 1400 dev taut0

Connections send packets of the new size at once. The MTU of the interface itself is the kernel's, and is not changed.";

/// Shows or changes the MTU of a running stack, as ip link does
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct MtuArgs {
    #[command(subcommand)]
    command: Option<MtuCommand>,
    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Subcommand, Debug)]
enum MtuCommand {
    /// Show the MTU, of every running stack or of one
    #[command(visible_alias = "list", after_help = EXAMPLE)]
    Show(ShowArgs),
    /// Set the MTU: BYTES
    #[command(after_help = EXAMPLE)]
    Set(ChangeArgs),
}

#[derive(Args, Debug)]
struct ChangeArgs {
    /// The largest IP packet in bytes, and dev DEV if several stacks run
    #[arg(value_name = "BYTES [dev DEV]", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
}

/// Runs `taut mtu`.
///
/// # Errors
/// When no stack is running or answers, it refuses, or a word is wrong.
pub(crate) fn run(args: &MtuArgs) -> anyhow::Result<()> {
    match &args.command {
        None => show(&args.show),
        Some(MtuCommand::Show(args)) => show(args),
        Some(MtuCommand::Set(args)) => {
            let (rest, device) = without_device(&args.words)?;
            let mtu = match rest[..] {
                [text] => text.parse::<u16>().ok(),
                _ => None,
            };
            let Some(mtu) = mtu else {
                bail!("write a number of bytes, from 68 to 65535, not {}", rest.join(" "))
            };
            let now = args.target.change(device, Change::SetMtu { mtu })?;
            if args.target.json {
                output::print_json(&list(&[now]))?;
            }
            Ok(())
        }
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let found = args.found()?;
    if args.target.json {
        return output::print_json(&list(&found));
    }
    let lines = found.iter().map(|of| format!("{}: mtu {}\n", of.device, of.network.mtu));
    output::print(&lines.collect::<String>())
}

fn list(found: &[Of]) -> Vec<serde_json::Value> {
    found.iter().map(|of| json!({ "ifname": of.device, "mtu": of.network.mtu })).collect()
}
