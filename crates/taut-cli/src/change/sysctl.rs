//! `taut sysctl`: the settings of a running stack, read and changed as `sysctl` does the kernel's.

use anyhow::{anyhow, bail};
use clap::Args;
use taut_control::Client;
use taut_control::protocol::Setting;

use crate::args::control::{SocketArgs, asked};
use crate::shared::output;

/// Shows or changes settings of a running stack, as sysctl does
#[derive(Args, Debug)]
#[command(after_help = "Example, with a stack that runs, as `taut serve .`:\n  \
    taut sysctl -a\n  taut sysctl net.ipv4.tcp_notsent_lowat\n  taut sysctl -w net.ipv4.tcp_autocorking=0\n\n\
    A change applies to this stack until it ends; buffer sizes and options of the handshake apply to later connections \
    only. Names, units and ranges are Linux's; those that begin with taut. are taut's own. net.ipv4. may be left out.")]
pub(crate) struct SysctlArgs {
    /// Show every setting
    #[arg(short, long)]
    all: bool,
    /// Show values without names
    #[arg(short = 'n', long)]
    values: bool,
    /// Change settings: all arguments are NAME=VALUE
    #[arg(short, long)]
    write: bool,
    /// A setting; a prefix of names, such as net.core; or a change
    #[arg(value_name = "NAME[=VALUE]", required_unless_present = "all")]
    names: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Runs `taut sysctl`: handles all valid arguments, then reports the failed ones.
///
/// # Errors
/// When no stack is running or answers, or a setting is unknown or does not allow the value.
pub(crate) fn run(args: &SysctlArgs) -> anyhow::Result<()> {
    if let Some(name) = args.names.iter().find(|name| args.write && !name.contains('=')) {
        bail!("-w takes NAME=VALUE, not {name}");
    }
    let mut client = args.socket.open()?;
    let mut settings = if args.all { asked(client.sysctls())? } else { Vec::new() };
    let mut failed = Vec::new();
    for name in &args.names {
        match one(&mut client, name) {
            Ok(found) => settings.extend(found),
            Err(error) => failed.push(error),
        }
    }
    if args.json {
        let map: serde_json::Map<_, _> =
            settings.into_iter().map(|setting| (setting.name, setting.value.into())).collect();
        output::print_json(&map)?;
    } else {
        output::print(&settings.iter().map(|setting| line(setting, args.values)).collect::<String>())?;
    }
    let messages: Vec<_> = failed.iter().map(|error| format!("{error:#}")).collect();
    if messages.is_empty() { Ok(()) } else { Err(anyhow!(messages.join("\ntaut: "))) }
}

/// Handles one argument: a change, a setting, or all settings below a name.
fn one(client: &mut Client, argument: &str) -> anyhow::Result<Vec<Setting>> {
    if let Some((name, value)) = argument.split_once('=') {
        return Ok(vec![asked(client.set_sysctl(&dotted(name), value.trim()))?]);
    }
    let name = dotted(argument);
    match client.sysctl(&name) {
        Ok(setting) => Ok(vec![setting]),
        Err(error) => {
            let below = format!("{}.", name.trim_end_matches('.'));
            let mut all = asked(client.sysctls())?;
            all.retain(|setting| setting.name.starts_with(&below));
            if all.is_empty() {
                bail!("{error}; `taut sysctl -a` lists all settings");
            }
            Ok(all)
        }
    }
}

/// Like sysctl, also accepts paths: `net/ipv4/tcp_sack`.
fn dotted(name: &str) -> String {
    name.trim().replace('/', ".")
}

fn line(setting: &Setting, only_value: bool) -> String {
    if only_value {
        format!("{}\n", setting.value)
    } else {
        format!("{} = {}\n", setting.name, setting.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_sysctls() {
        let setting = Setting { name: "net.ipv4.tcp_sack".to_owned(), value: "1".to_owned() };
        assert_eq!(line(&setting, false), "net.ipv4.tcp_sack = 1\n");
        assert_eq!(line(&setting, true), "1\n");
        assert_eq!(dotted(" net/ipv4/tcp_sack"), "net.ipv4.tcp_sack");
    }
}
