//! `taut addr`: the addresses of a running stack, shown and changed as `ip address` does an interface's.

use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use taut_control::network::{AddressSnapshot, Change, LeaseSnapshot, NetworkSnapshot};

use crate::args::network::{Of, ShowArgs, TargetArgs, prefix, without_device};
use crate::shared::output;

const EXAMPLE: &str = "Example, with a running stack such as `taut serve .`:
  taut addr
  taut addr add 10.9.0.8/24 dev taut0
  taut addr add fd09::8/64
  taut addr del 10.9.0.8/24

On Ethernet, an address is checked before the stack has it, which takes four to eight seconds, for IPv6 one to two; if another \
station has it, it never does. Connections of an address that is deleted end. An address that a DHCP server leased is \
dynamic; to delete it gives it back.";

/// Shows or changes addresses of a running stack, as ip address does
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct AddrArgs {
    #[command(subcommand)]
    command: Option<AddrCommand>,
    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Subcommand, Debug)]
enum AddrCommand {
    /// Show the addresses, of every running stack or of one
    #[command(visible_alias = "list", after_help = EXAMPLE)]
    Show(ShowArgs),
    /// Give the stack an address: ADDRESS/PREFIX
    #[command(after_help = EXAMPLE)]
    Add(ChangeArgs),
    /// Take an address away: ADDRESS
    #[command(visible_alias = "delete", after_help = EXAMPLE)]
    Del(ChangeArgs),
}

#[derive(Args, Debug)]
struct ChangeArgs {
    /// The address with the length of its prefix, and dev DEV if several stacks run
    #[arg(value_name = "ADDRESS/PREFIX [dev DEV]", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
}

/// Runs `taut addr`.
///
/// # Errors
/// When no stack is running or answers, it refuses, or a word is wrong.
pub(crate) fn run(args: &AddrArgs) -> anyhow::Result<()> {
    match &args.command {
        None => show(&args.show),
        Some(AddrCommand::Show(args)) => show(args),
        Some(AddrCommand::Add(args)) => change(args, |text| {
            if !text.contains('/') {
                bail!(
                    "{text}: the length of the prefix is missing; write it after a slash, such as {text}/24"
                );
            }
            let (address, prefix) = prefix(text, true)?;
            Ok(Change::AddAddress { address, prefix })
        }),
        Some(AddrCommand::Del(args)) => {
            change(args, |text| Ok(Change::RemoveAddress { address: prefix(text, true)?.0 }))
        }
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let found = args.found()?;
    if args.target.json {
        return output::print_json(&found.iter().map(of_json).collect::<Vec<_>>());
    }
    output::print(&found.iter().map(text).collect::<String>())
}

fn change(args: &ChangeArgs, meant: impl FnOnce(&str) -> anyhow::Result<Change>) -> anyhow::Result<()> {
    let (rest, device) = without_device(&args.words)?;
    let [address] = rest[..] else { bail!("write one address, not {}", rest.join(" ")) };
    if address == "default" {
        bail!("default is a route, not an address: use `taut route`");
    }
    let now = args.target.change(device, meant(address)?)?;
    if args.target.json {
        output::print_json(&[of_json(&now)])?;
    }
    Ok(())
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "inet" } else { "inet6" }
}

/// The lease that an address is from.
fn lease_of(network: &NetworkSnapshot, own: AddressSnapshot) -> Option<&LeaseSnapshot> {
    network.lease.as_ref().filter(|lease| lease.address == own.address)
}

const fn seconds(ns: u64) -> u64 {
    ns / 1_000_000_000
}

fn text(Of { device, network }: &Of) -> String {
    let mut text = format!("{device}: mtu {}\n", network.mtu);
    for own in &network.addresses {
        _ = write!(text, "    {} {}/{}", family(own.address), own.address, own.prefix);
        if own.deprecated {
            text.push_str(" deprecated");
        }
        if let Some(lease) = lease_of(network, *own) {
            let valid = lease.ends_in_ns.map_or("forever".to_owned(), |ns| format!("{}sec", seconds(ns)));
            _ = write!(text, " dynamic valid_lft {valid} server {}", lease.server);
        }
        text.push('\n');
    }
    for server in &network.name_servers {
        _ = writeln!(text, "    nameserver {server}");
    }
    text
}

fn of_json(Of { device, network }: &Of) -> Value {
    let one = |own: &AddressSnapshot| {
        let mut value =
            json!({ "family": family(own.address), "local": own.address, "prefixlen": own.prefix });
        if own.deprecated {
            value["deprecated"] = true.into();
        }
        if let Some(lease) = lease_of(network, *own) {
            value["dynamic"] = true.into();
            // As `ip` prints what lasts for ever.
            value["valid_life_time"] = lease.ends_in_ns.map_or(u64::from(u32::MAX), seconds).into();
        }
        value
    };
    let addresses: Vec<_> = network.addresses.iter().map(one).collect();
    json!({
        "ifname": device, "mtu": network.mtu, "addr_info": addresses, "name_servers": network.name_servers,
        "lease": network.lease,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_lease_is_dynamic() {
        let address = "10.9.0.7".parse().unwrap();
        let lease = LeaseSnapshot {
            address,
            prefix: 24,
            server: "10.9.0.1".parse().unwrap(),
            renews_in_ns: Some(1),
            ends_in_ns: Some(3_599_900_000_000),
        };
        let network = NetworkSnapshot {
            mtu: 1_400,
            addresses: vec![
                AddressSnapshot { address, prefix: 24, deprecated: false },
                AddressSnapshot { address: "fd09::2".parse().unwrap(), prefix: 64, deprecated: true },
            ],
            routes: Vec::new(),
            name_servers: vec!["9.9.9.9".parse().unwrap()],
            lease: Some(lease),
        };
        let of = Of { device: "eth0".to_owned(), network };
        assert_eq!(
            text(&of),
            "eth0: mtu 1400\n    inet 10.9.0.7/24 dynamic valid_lft 3599sec server 10.9.0.1\n    \
             inet6 fd09::2/64 deprecated\n    nameserver 9.9.9.9\n"
        );
        let json = of_json(&of);
        assert_eq!(json["addr_info"][0]["valid_life_time"], 3_599);
        assert_eq!((&json["addr_info"][1]["family"], &json["mtu"]), (&"inet6".into(), &1_400.into()));
    }
}
