//! `taut gateway ctl`: lists and changes a running gateway by its control socket (`taut_control::gateway`).
//! Called by `lib.rs`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Parser, Subcommand};
use taut_control::gateway::{GatewayItem, GatewayPorts, GatewayVerb};
use taut_control::place::{self, Running};
use taut_control::{Client, ClientError};

use crate::shared::{output, text};

/// Shows and changes a running gateway
#[derive(Parser, Debug)]
#[command(
    name = "taut gateway ctl",
    bin_name = "taut gateway ctl",
    after_help = "Examples:\n  \
    taut gateway ctl flows\n  \
    taut gateway ctl forward add tcp 8080:80\n  \
    taut gateway ctl 4711 rule add 'deny 10.0.0.0/8'\n\
    A changed rule holds for flows that begin after it; those that run stay."
)]
pub(crate) struct CtlArgs {
    /// Interface, process or control socket [default: the only gateway]
    #[arg(value_name = "NAME|PID")]
    gateway: Option<String>,
    #[command(subcommand)]
    command: CtlCommand,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// List flows: ends, name, bytes from and to the guest, age, rule
    Flows,
    /// List forwarded ports
    Forwards,
    /// Forward a port of this host, or forward it no more
    #[command(subcommand)]
    Forward(ForwardCommand),
    /// List rules by their numbers
    Rules,
    /// Add or remove a rule
    #[command(subcommand)]
    Rule(RuleCommand),
    /// List the addresses that a virtual machine has leased
    Leases,
    /// List what guests have in use
    Guests,
}

#[derive(Debug, Subcommand)]
enum ForwardCommand {
    /// Forward ports
    #[command(after_help = "Example:\n  taut gateway ctl forward add tcp 8080:80")]
    Add(PortArgs),
    /// Close forwarded ports; connected clients stay
    #[command(after_help = "Example:\n  taut gateway ctl forward remove tcp 8080")]
    Remove(PortArgs),
}

#[derive(Args, Debug)]
struct PortArgs {
    /// tcp or udp
    #[arg(value_parser = ["tcp", "udp"], hide_possible_values = true)]
    kind: String,
    /// [ADDR:]PORT[:PORT], as for -t
    ports: String,
}

#[derive(Debug, Subcommand)]
enum RuleCommand {
    /// Add a rule
    #[command(after_help = "Example:\n  taut gateway ctl rule add 'deny 10.0.0.0/8' --at 2")]
    Add {
        /// Such as 'deny 10.0.0.0/8'
        #[arg(required = true)]
        rule: Vec<String>,
        /// In front of the rule with this number
        #[arg(long, value_name = "N", default_value_t = 1)]
        at: usize,
    },
    /// Remove a rule
    #[command(after_help = "Example:\n  taut gateway ctl rule remove 2")]
    Remove {
        /// Its number in `rules`
        #[arg(value_name = "N")]
        at: usize,
    },
}

/// Runs `taut gateway ctl`.
///
/// # Errors
/// No gateway is running, several are, or the one refuses.
pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let verb = verb(&args.command);
    let mut client = open(args.gateway.as_deref())?;
    let items = client.gateway(&verb).map_err(|error| match error {
        ClientError::Refused { message, .. } => anyhow!(message),
        other => anyhow::Error::new(other).context("the gateway did not answer"),
    })?;
    if args.json {
        return output::print_json(&items.iter().map(plain).collect::<Result<Vec<_>, _>>()?);
    }
    let mut rows: Vec<_> = items.iter().map(row).collect();
    // A guest says names, and must not write to a terminal what this takes for a command.
    rows.iter_mut().flatten().for_each(|cell| cell.retain(|letter| !letter.is_control()));
    output::print(&text::table(usize::MAX, &rows))
}

fn verb(command: &CtlCommand) -> GatewayVerb {
    let ports = |args: &PortArgs| GatewayPorts { kind: args.kind.clone(), ports: args.ports.clone() };
    match command {
        CtlCommand::Flows => GatewayVerb::Flows,
        CtlCommand::Forwards => GatewayVerb::Forwards,
        CtlCommand::Forward(ForwardCommand::Add(args)) => GatewayVerb::AddForward(ports(args)),
        CtlCommand::Forward(ForwardCommand::Remove(args)) => GatewayVerb::RemoveForward(ports(args)),
        CtlCommand::Rules => GatewayVerb::Rules,
        CtlCommand::Rule(RuleCommand::Add { rule, at }) => {
            GatewayVerb::AddRule { rule: rule.join(" "), at: *at }
        }
        CtlCommand::Rule(RuleCommand::Remove { at }) => GatewayVerb::RemoveRule { at: *at },
        CtlCommand::Leases => GatewayVerb::Leases,
        CtlCommand::Guests => GatewayVerb::Guests,
    }
}

/// The chosen gateway; without a choice, the only one.
fn open(chosen: Option<&str>) -> anyhow::Result<Client> {
    if let Some(path) = chosen.filter(|text| text.contains('/')) {
        return Client::connect(Path::new(path)).with_context(|| format!("no gateway is at {path}"));
    }
    let mut found = Vec::new();
    for running in place::running()? {
        let Ok(mut client) = Client::connect(&running.path) else { continue };
        let Ok(who) = client.identity() else { continue };
        let is_chosen = chosen.is_none_or(|name| who.device == name || who.pid.to_string() == name);
        // Other stacks refuse.
        if is_chosen && client.gateway(&GatewayVerb::Forwards).is_ok() {
            found.push((running, who.device, client));
        }
    }
    if found.len() > 1 {
        let line = |(Running { pid, path }, device, _): &(Running, String, Client)| {
            format!("\n  {pid:<8} {device:<8} {}", path.display())
        };
        let list: String = found.iter().map(line).collect();
        bail!(
            "several gateways are running; name one by its process or its path, such as `taut gateway ctl PID \
               flows`:{list}"
        );
    }
    found.pop().map(|(_, _, client)| client).with_context(|| {
        let named = chosen.map(|name| format!(" with the interface or process {name}")).unwrap_or_default();
        format!("this user has no running gateway{named}; that of a virtual machine at a stream socket is found while \
                 the machine is there")
    })
}

/// The object without its kind.
fn plain(item: &GatewayItem) -> serde_json::Result<serde_json::Value> {
    let value = serde_json::to_value(item)?;
    Ok(match value {
        serde_json::Value::Object(fields) => {
            fields.into_iter().next().map(|(_, inner)| inner).unwrap_or_default()
        }
        other => other,
    })
}

/// A line of a table.
fn row(item: &GatewayItem) -> Vec<String> {
    match item {
        GatewayItem::Flow(flow) => {
            let arrow = if flow.inward { "<-" } else { "->" };
            vec![
                flow.kind.clone(),
                flow.guest.to_string(),
                arrow.to_owned(),
                flow.peer.to_string(),
                flow.name.clone().unwrap_or_else(|| "-".to_owned()),
                format!("up {}", text::bytes(flow.up)),
                format!("down {}", text::bytes(flow.down)),
                age(flow.age_ns),
                flow.rule.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        }
        GatewayItem::Guest(guest) => vec![
            guest.guest.to_string(),
            format!("connections {}", guest.connections),
            format!("half open {}", guest.half_open),
            format!("datagram flows {}", guest.datagram_flows),
            format!("waiting {}", text::bytes(guest.bytes)),
            format!("questions {}", guest.questions),
        ],
        GatewayItem::Lease(lease) => {
            vec![
                lease.address.to_string(),
                lease.station.clone(),
                format!("ends in {}", age(lease.ends_in_ns)),
            ]
        }
        GatewayItem::Forward(forward) => {
            vec![forward.kind.clone(), forward.at.to_string(), "->".to_owned(), forward.port.to_string()]
        }
        GatewayItem::Rule(rule) => {
            let note = if rule.default { "(default)" } else { "" };
            vec![rule.at.to_string(), rule.rule.clone(), note.to_owned()]
        }
        _ => vec!["of a later version".to_owned()],
    }
}

/// `3.2 s`, `12 min`, `5 h`.
fn age(ns: u64) -> String {
    let time = Duration::from_nanos(ns);
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn gw_242_the_words_of_ctl() {
        CtlArgs::command().debug_assert();
        let parse = |words: &str| {
            let words = std::iter::once("ctl").chain(words.split(' '));
            CtlArgs::try_parse_from(words).map(|args| (args.gateway.clone(), verb(&args.command), args.json))
        };
        let ports = |kind: &str, ports: &str| GatewayPorts { kind: kind.to_owned(), ports: ports.to_owned() };
        let rule = |rule: &str, at| GatewayVerb::AddRule { rule: rule.to_owned(), at };
        let own = |text: &str| Some(text.to_owned());
        for (words, expected) in [
            ("flows", (None, GatewayVerb::Flows, false)),
            ("flows --json", (None, GatewayVerb::Flows, true)),
            ("4711 leases", (own("4711"), GatewayVerb::Leases, false)),
            ("tun7 forwards", (own("tun7"), GatewayVerb::Forwards, false)),
            ("/run/x.sock guests", (own("/run/x.sock"), GatewayVerb::Guests, false)),
            ("forward add tcp 8080:80", (None, GatewayVerb::AddForward(ports("tcp", "8080:80")), false)),
            (
                "7 forward remove udp [::1]:53",
                (own("7"), GatewayVerb::RemoveForward(ports("udp", "[::1]:53")), false),
            ),
            ("rule add deny any", (None, rule("deny any", 1), false)),
            ("rule add --at 3 deny any", (None, rule("deny any", 3), false)),
            ("rule remove 2", (None, GatewayVerb::RemoveRule { at: 2 }, false)),
            ("rules", (None, GatewayVerb::Rules, false)),
        ] {
            assert_eq!(parse(words).unwrap(), expected, "{words}");
        }
        for wrong in ["", "4711", "forward add sctp 1", "rule add", "rule remove x", "7 8 flows"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
