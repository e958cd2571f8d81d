//! Options of `taut gateway` about where guests may go: rules, those of its file, and the networks that
//! `--no-private` closes. Called by `gateway.rs`.

use std::sync::OnceLock;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use taut_gateway::{Rules, Settings, UdpFilter, host_networks};

use crate::net::gateway_config::Config;
use crate::shared::output;

/// Where guests may go.
#[derive(Args, Debug)]
#[command(next_help_heading = "Rules")]
pub(crate) struct RuleArgs {
    /// Allow, deny or drop destinations; repeatable, first match decides
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<String>,
    /// Deny private networks and those that this host is in
    #[arg(long)]
    no_private: bool,
    /// Allow and log what the rules deny, but for the defaults
    #[arg(long)]
    dry_run: bool,
    /// Let the guest reach this host's loopback at the gateway's address
    #[arg(long)]
    host_loopback: bool,
    /// Print the rules in their order (with --json as JSON), and exit
    #[arg(long)]
    show_rules: bool,
    /// As JSON
    #[arg(long, hide = true, requires = "show_rules")]
    json: bool,
    /// Senders to a guest's UDP port: address (those it sent to) or any
    #[arg(long, value_name = "FILTER", value_enum, default_value_t = Filter::Address)]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    udp_filter: Filter,
    /// The rules of --no-private: a confined gateway does not see the host's networks.
    #[arg(skip)]
    closed: OnceLock<Vec<String>>,
}

/// [`UdpFilter`] by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Filter {
    Address,
    Any,
}

impl RuleArgs {
    /// The settings with these rules and those of the file.
    ///
    /// # Errors
    /// The first text that is not a rule.
    pub(crate) fn settings(&self, config: &Config, before: Settings) -> anyhow::Result<Settings> {
        let host = if self.host_loopback { &["allow 127.0.0.0/8", "allow ::1"][..] } else { &[] };
        let closed = self.closed()?.iter().map(String::as_str);
        let given = self.rules.iter().chain(&config.rules).map(String::as_str);
        let rules = Rules::parse(given.chain(host.iter().copied()).chain(closed))?;
        if let Some(rule) = rules.iter().find(|rule| before.by_stack && rule.has_class()) {
            bail!(
                "the rule \"{rule}\" has a class, which flows by --out tun or wireguard cannot have; leave \
                 the class out"
            );
        }
        Ok(Settings {
            rules,
            udp_filter: match self.udp_filter {
                Filter::Address => UdpFilter::Address,
                Filter::Any => UdpFilter::Any,
            },
            limits: config.limits(),
            timeouts: config.timeouts(),
            dry_run: self.dry_run,
            decisions: before.decisions || self.dry_run,
            ..before
        })
    }

    /// Prints the rules with `--show-rules`, which does nothing else.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn show(&self, settings: &Settings) -> anyhow::Result<bool> {
        if self.show_rules {
            let rules: Vec<String> = settings.rules.iter().map(ToString::to_string).collect();
            let text = if self.json { serde_json::to_string(&rules)? } else { rules.join("\n") };
            output::print(&format!("{text}\n"))?;
        }
        Ok(self.show_rules)
    }

    fn closed(&self) -> anyhow::Result<&[String]> {
        if !self.no_private {
            return Ok(&[]);
        }
        if let Some(closed) = self.closed.get() {
            return Ok(closed);
        }
        let own = host_networks().context("--no-private: the networks of this host")?;
        let own = own.iter().map(|own| format!("deny {}/{}", own.address(), own.prefix_len()));
        let all = Rules::NO_PRIVATE.iter().map(ToString::to_string).chain(own).collect();
        Ok(self.closed.get_or_init(|| all))
    }
}
