//! `taut wg`: keys, and the state of tunnels, in the words and formats of `wg` (wg(8); `taut-wireguard`).
//! `args/tunnel.rs` has the JSON.

use std::io::Read as _;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::Map;
use taut_control::{Client, place};
use taut_wireguard::PrivateKey;
use zeroize::Zeroizing;

use crate::args::control::{SocketArgs, asked};
use crate::shared::output;

/// Makes WireGuard keys, and shows tunnels, in the formats of wg
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    (umask 077; taut wg genkey > key)\n  taut wg pubkey < key\n  taut wg show")]
pub(crate) struct WgArgs {
    #[command(subcommand)]
    command: WgCommand,
}

#[derive(Debug, Subcommand)]
enum WgCommand {
    /// Prints a new private key
    #[command(after_help = "Example:\n  (umask 077; taut wg genkey > key)")]
    Genkey,
    /// Reads a private key from standard input, and prints its public key
    #[command(after_help = "Example:\n  taut wg pubkey < key")]
    Pubkey,
    /// Prints the tunnels of the running stacks, gateways and proxies
    #[command(after_help = "Examples:\n  taut wg show\n  taut wg show --json | jq '.wg0.peers'")]
    Show(ShowArgs),
}

#[derive(Args, Debug)]
struct ShowArgs {
    /// Print JSON, with the names of wg-json (wireguard-tools)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// The most that is read of a key, spaces around it included.
const KEY_MAX: u64 = 1_024;

/// Runs `taut wg`.
///
/// # Errors
/// The input is not a key; no stack with a tunnel is running.
pub(crate) fn run(args: &WgArgs) -> anyhow::Result<()> {
    match &args.command {
        WgCommand::Genkey => {
            let key = PrivateKey::generate()?.to_text();
            output::print(&Zeroizing::new(format!("{}\n", key.as_str())))
        }
        WgCommand::Pubkey => {
            let mut text = Zeroizing::new(String::new());
            std::io::stdin().take(KEY_MAX).read_to_string(&mut text).context("cannot read standard input")?;
            let key: PrivateKey = text.trim().parse().context("standard input")?;
            output::print(&format!("{}\n", key.public()))
        }
        WgCommand::Show(args) => show(args),
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let mut clients = Vec::new();
    if args.socket.socket.is_some() {
        clients.push(args.socket.open()?);
    } else {
        clients.extend(place::running()?.iter().filter_map(|running| Client::connect(&running.path).ok()));
    }
    let (mut shown, mut all) = (String::new(), Map::new());
    for client in &mut clients {
        let who = asked(client.identity())?;
        // A stack of an earlier version has none.
        let state = client.device().unwrap_or_default();
        if !state.text.is_empty() {
            let between = if shown.is_empty() { "" } else { "\n" };
            shown += &format!("{between}interface: {}\n{}", state.name, state.text);
            // Two processes may have tunnels by the same file.
            let is_new = !all.contains_key(&state.name);
            let name = if is_new { state.name } else { format!("{}@{}", state.name, who.pid) };
            all.insert(name, state.json);
        }
    }
    if shown.is_empty() {
        bail!(
            "no stack with a tunnel is running: start one with --device wireguard:FILE, or a gateway with --out \
             wireguard:FILE"
        );
    }
    if args.json { output::print_json(&all) } else { output::print(&shown) }
}
