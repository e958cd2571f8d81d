//! `taut route`: the routes of a running stack, shown and changed as `ip route` does the kernel's.

use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use taut_control::network::{Change, RouteSnapshot};

use crate::args::network::{Of, ShowArgs, TargetArgs, prefix, without_device};
use crate::shared::output;

const EXAMPLE: &str = "Example, with a running stack such as `taut serve . --device packet:eth0`:
  taut route
  taut route add default via 10.9.0.1
  taut route add 10.8.0.0/16 via 10.9.0.3 src 10.9.0.2 dev eth0
  taut route del 10.8.0.0/16 via 10.9.0.3

A packet goes by the route with the longest prefix. Without a route for a family, all of it is reached over the link.";

/// Shows or changes routes of a running stack, as ip route does
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct RouteArgs {
    #[command(subcommand)]
    command: Option<RouteCommand>,
    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Subcommand, Debug)]
enum RouteCommand {
    /// Show the routes, of every running stack or of one
    #[command(visible_alias = "list", after_help = EXAMPLE)]
    Show(ShowArgs),
    /// Add a route: PREFIX [via ROUTER] [src ADDRESS]
    #[command(after_help = EXAMPLE)]
    Add(ChangeArgs),
    /// Delete a route: PREFIX [via ROUTER]
    #[command(visible_alias = "delete", after_help = EXAMPLE)]
    Del(ChangeArgs),
}

#[derive(Args, Debug)]
struct ChangeArgs {
    /// The destinations, the router and the source; and dev DEV if several stacks run
    #[arg(value_name = "PREFIX [via ROUTER] [src ADDRESS] [dev DEV]", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
}

/// Runs `taut route`.
///
/// # Errors
/// When no stack is running or answers, it refuses, or a word is wrong.
pub(crate) fn run(args: &RouteArgs) -> anyhow::Result<()> {
    match &args.command {
        None => show(&args.show),
        Some(RouteCommand::Show(args)) => show(args),
        Some(RouteCommand::Add(args)) => change(args, Change::AddRoute),
        Some(RouteCommand::Del(args)) => change(args, Change::RemoveRoute),
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let found = args.found()?;
    if args.target.json {
        return output::print_json(&all(&found));
    }
    let lines = found.iter().flat_map(|of| of.network.routes.iter().map(|route| line(&of.device, route)));
    output::print(&lines.collect::<String>())
}

fn change(args: &ChangeArgs, how: impl FnOnce(RouteSnapshot) -> Change) -> anyhow::Result<()> {
    let (rest, device) = without_device(&args.words)?;
    let now = args.target.change(device, how(parse(&rest)?))?;
    if args.target.json {
        output::print_json(&all(&[now]))?;
    }
    Ok(())
}

const FORM: &str = "write PREFIX [via ROUTER] [src ADDRESS] [dev DEV]";

/// Reads `PREFIX [via ROUTER] [src ADDRESS]`.
fn parse(words: &[&str]) -> anyhow::Result<RouteSnapshot> {
    let Some((to, rest)) = words.split_first() else { bail!("write the destinations, such as default") };
    let (mut via, mut source) = (None, None);
    let (pairs, odd) = rest.as_chunks::<2>();
    for [name, value] in pairs {
        let place = match *name {
            "via" => &mut via,
            "src" => &mut source,
            other => bail!("{other} is neither via, src nor dev; {FORM}"),
        };
        let address = value
            .parse::<IpAddr>()
            .with_context(|| format!("{name} {value}: not an address, such as 10.9.0.1"))?;
        if place.replace(address).is_some() {
            bail!("{name} is there twice; {FORM}");
        }
    }
    if let [word] = odd {
        bail!("{word} has no value; {FORM}");
    }
    let default_is_v4 = via.or(source).is_none_or(|ip| ip.is_ipv4());
    let (to, prefix) = prefix(to, default_is_v4)?;
    Ok(RouteSnapshot { to, prefix, via, source })
}

fn destinations(route: &RouteSnapshot) -> String {
    match route.prefix {
        0 => "default".to_owned(),
        prefix => format!("{}/{prefix}", route.to),
    }
}

fn line(device: &str, route: &RouteSnapshot) -> String {
    let mut line = destinations(route);
    if let Some(via) = route.via {
        _ = write!(line, " via {via}");
    }
    _ = write!(line, " dev {device}");
    if route.via.is_none() {
        line.push_str(" scope link");
    }
    if let Some(source) = route.source {
        _ = write!(line, " src {source}");
    }
    line + "\n"
}

fn all(found: &[Of]) -> Vec<Value> {
    let one = |device: &str, route: &RouteSnapshot| {
        let mut value = json!({ "dst": destinations(route), "dev": device });
        if let Some(via) = route.via {
            value["gateway"] = via.to_string().into();
        }
        if let Some(source) = route.source {
            value["prefsrc"] = source.to_string().into();
        }
        value
    };
    found.iter().flat_map(|of| of.network.routes.iter().map(move |route| one(&of.device, route))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        parse(&words).map(|route| line("eth0", &route)).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn routes_are_read_and_printed_as_ip_does() {
        for (text, expected) in [
            ("default via 10.9.0.1", "default via 10.9.0.1 dev eth0\n"),
            ("default via fe80::1", "default via fe80::1 dev eth0\n"),
            ("10.8.0.0/16 src 10.9.0.2 via 10.9.0.3", "10.8.0.0/16 via 10.9.0.3 dev eth0 src 10.9.0.2\n"),
            ("fd08::/32", "fd08::/32 dev eth0 scope link\n"),
        ] {
            assert_eq!(parsed(text).unwrap(), expected);
        }
        assert_eq!(parse(&["default", "via", "fe80::1"]).unwrap().to.to_string(), "::");
        for (text, said) in [
            ("default via", "via has no value"),
            ("default via x", "via x: not an address"),
            ("default via 10.9.0.1 via 10.9.0.1", "via is there twice"),
            ("default metric 5", "metric is neither via, src nor dev"),
            ("", "write the destinations"),
        ] {
            assert!(parsed(text).unwrap_err().contains(said), "{text}");
        }
    }
}
