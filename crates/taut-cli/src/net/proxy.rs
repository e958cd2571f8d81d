//! `taut proxy`: clients ask for connections by SOCKS or HTTP, and taut is the sender on one side of
//! them: a proxy that makes a long or lossy link faster for programs that know nothing of it
//! (`taut-gateway`'s `proxy.rs`).
//!
//! This file reads arguments, opens the stack and the listeners, and prints.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use futures_util::future::Either;
use taut::{ConnOptions, ListenOptions, Stack, StackBuilder};
use taut_core::congestion::Registry;
use taut_gateway::sandbox::{CapabilitySet, Needs, Orders, Tasks};
use taut_gateway::{HostSockets, Link, Login, NOTSENT_LOWAT, Resolver, Rules, Server, Settings, Transparent};
use taut_link::Rate;
use taut_wireguard::Monitor;
use tokio::task::JoinSet;

use crate::args::control::ControlArgs;
use crate::args::device::DeviceArg;
use crate::args::frame_source::FrameSource;
use crate::args::link::LinkArgs;
use crate::args::record;
use crate::net::confined::{self, Inside};
use crate::net::gateway_addresses::name_servers;
use crate::net::gateway_log;
use crate::net::gateway_out::resolve_by;
use crate::shared::advice::cannot_listen;
use crate::shared::config_file::ConfigArgs;
use crate::shared::log::{self, Level, LogArgs};
use crate::shared::{interrupt, output};
use crate::stack;

/// A SOCKS5 and HTTP proxy that sends over long or lossy links
#[derive(Args, Debug)]
#[command(after_help = "Examples (as root):\n  \
    taut proxy --congestion bbr &\n  \
    curl --socks5-hostname 127.0.0.1:1080 http://example.com/\n  \
    curl --proxytunnel -x 127.0.0.1:1080 http://example.com/\n  \
    taut proxy --from-link 1080 --congestion bbr   # the far end\n\n\
    Without --config, options are read from $XDG_CONFIG_HOME/taut/proxy.toml, else\n\
    /etc/taut/proxy.toml. The stack needs a link that leads to the network: docs/guide/proxy.md")]
pub(crate) struct ProxyArgs {
    /// SOCKS and HTTP; repeatable [default: 127.0.0.1:1080]
    #[arg(help_heading = "Clients", long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Connections redirected by netfilter's TPROXY; repeatable
    #[arg(help_heading = "Clients", long, value_name = "ADDRESS:PORT")]
    transparent: Vec<SocketAddr>,
    /// Run as the far end: accept from the link, connect by the host
    #[arg(help_heading = "Clients", long, value_name = "PORT", conflicts_with_all = ["listen", "transparent"], value_parser = clap::value_parser!(u16).range(1..))]
    from_link: Option<u16>,
    /// Where clients may go, as in `taut gateway`; repeatable
    #[arg(help_heading = "Clients", long = "rule", value_name = "RULE")]
    rules: Vec<String>,
    /// File with the NAME:PASSWORD that clients must give
    #[arg(help_heading = "Clients", long, value_name = "FILE")]
    login: Option<PathBuf>,
    /// Most that a connection over the link sends, such as 20mbit
    #[arg(help_heading = "Connections", long, value_name = "RATE")]
    pacing_rate: Option<Rate>,
    /// Unsent bytes of a connection beyond which its sender waits
    #[arg(help_heading = "Connections", long, value_name = "BYTES", default_value_t = NOTSENT_LOWAT)]
    notsent_lowat: u32,
    /// Name server [default: those of /etc/resolv.conf]
    #[arg(help_heading = "Clients", long, value_name = "ADDRESS")]
    dns: Vec<String>,
    #[command(flatten)]
    _file: ConfigArgs,
    #[command(flatten)]
    log: LogArgs,
    /// Run without the sandbox
    #[arg(help_heading = "Operation", long)]
    no_sandbox: bool,
    /// Print the counters as JSON at the end
    #[arg(help_heading = "Operation", long)]
    json: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// The NAME:PASSWORD with which a file begins.
///
/// # Errors
/// It cannot be read, or does not begin so.
pub(crate) fn read_login(path: &Path) -> anyhow::Result<Login> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = text.lines().next().and_then(|line| line.split_once(':'));
    match line {
        // RFC 1929: a byte has the length of each.
        Some((name, password)) if (1..256).contains(&name.len()) && password.len() < 256 => {
            Ok(Login { name: name.to_owned(), password: password.to_owned() })
        }
        _ => bail!("{} does not begin with NAME:PASSWORD, of at most 255 bytes each", path.display()),
    }
}

impl ProxyArgs {
    /// Of the connections over the link.
    fn options(&self) -> ConnOptions {
        ConnOptions {
            nodelay: true,
            notsent_lowat: self.notsent_lowat,
            max_pacing_rate: self.pacing_rate.map(|rate| (rate.bits_per_second() / 8).max(1)),
            ..ConnOptions::default()
        }
    }

    /// Gives up what a running proxy does not need. The device is open, and nothing runs yet.
    fn confine(&self) -> anyhow::Result<Inside> {
        let mut keep = CapabilitySet::empty();
        // To listen for others, below port 1024, and to have threads that others wait for.
        if !self.transparent.is_empty() {
            keep |= CapabilitySet::NET_ADMIN;
        }
        if self.listen.iter().chain(&self.transparent).any(|at| at.port() < 1_024) {
            keep |= CapabilitySet::NET_BIND_SERVICE;
        }
        if self.link.priority.priority.is_some() {
            keep |= CapabilitySet::SYS_NICE;
        }
        let needs = Needs {
            keep,
            may_rank: self.link.priority.priority.is_some(),
            paths: matches!(self.link.device, DeviceArg::Frames(FrameSource::DatagramsListen(_))),
        };
        confined::close(&self.link.control, Tasks::default(), needs)
    }

    /// Starts the stack, and the server that looks names up: through the tunnel, if the device is one.
    fn start(
        &self,
        control: &ControlArgs,
        (builder, monitor): (StackBuilder, Option<Monitor>),
        settings: Settings,
        resolver: Resolver,
    ) -> anyhow::Result<(Stack, Server)> {
        let DeviceArg::WireGuard(tunnel) = &self.link.device else {
            let server = Server::new(settings, resolver, Box::new(gateway_log::write));
            let stack = server.observed(control.apply(builder)?).build()?;
            return Ok((stack, server));
        };
        let servers = if resolver.servers.is_empty() { tunnel.name_servers()? } else { resolver.servers };
        let stack = control.apply(builder)?.build()?;
        let monitor = monitor.filter(|_| resolver.outside.is_some());
        let resolver = Resolver { servers, over: Some(stack.clone()), ..resolver };
        let server = Server::new(settings, resolver, Box::new(gateway_log::write));
        monitor.iter().for_each(|tunnel| resolve_by(&server, tunnel));
        Ok((stack, server))
    }

    /// Opens what was asked for, in front of which clients are served.
    async fn open(
        &self,
        stack: &Stack,
        server: &Server,
        login: Option<&Login>,
    ) -> anyhow::Result<JoinSet<std::io::Error>> {
        let mut all = JoinSet::new();
        if let Some(port) = self.from_link {
            for own in self.link.own_addresses(stack) {
                let at = SocketAddr::new(own, port);
                let options = ListenOptions { conn: self.options(), ..ListenOptions::default() };
                let listener = taut::TcpListener::bind_with(stack, at, options)
                    .with_context(|| format!("cannot listen on {at}"))?;
                all.spawn(server.proxy(listener, Arc::new(HostSockets::default()), login.cloned()));
                serving(&format!("a proxy at {at}, over the link"));
            }
            return Ok(all);
        }
        let way = Arc::new(Link { stack: stack.clone(), options: self.options() });
        let usual = [SocketAddr::from(([127, 0, 0, 1], 1080))];
        let is_usual = self.listen.is_empty() && self.transparent.is_empty();
        for at in if is_usual { &usual[..] } else { &self.listen } {
            let listener = tokio::net::TcpListener::bind(at).await;
            let listener = listener.map_err(|error| cannot_listen(*at, "--listen", error))?;
            let at = listener.local_addr()?;
            all.spawn(server.proxy(listener, Arc::clone(&way), login.cloned()));
            serving(&format!("a proxy at {at}"));
        }
        for at in &self.transparent {
            let listener =
                Transparent::bind(*at).map_err(|error| cannot_listen(*at, "--transparent", error))?;
            all.spawn(server.proxy(listener, Arc::clone(&way), None));
            serving(&format!("a transparent proxy at {at}"));
        }
        Ok(all)
    }
}

fn serving(text: &str) {
    log::notice(Level::Info, "serving", &format!("{text} (Ctrl-C stops)"));
}

/// Runs `taut proxy` until Ctrl-C.
///
/// # Errors
/// When the link or a listener cannot be used, or the link disappears.
pub(crate) fn run(args: &ProxyArgs, controllers: &Registry) -> anyhow::Result<()> {
    let rules = Rules::parse(args.rules.iter().map(String::as_str))?;
    if let Some(rule) = rules.iter().find(|rule| args.from_link.is_none() && rule.has_class()) {
        bail!(
            "the rule \"{rule}\" has a class, which connections over the link cannot have; leave the class out"
        );
    }
    let (resolver, login) = (name_servers(&args.dns)?, args.login.as_deref().map(read_login).transpose()?);
    confined::raise_descriptors();
    args.log.start();
    let (builder, tunnel) = stack::opened(&args.link, controllers)?;
    let builder = builder.open()?;
    let (mut control, mut resolver, mut orders) = (args.link.control.clone(), resolver, None);
    if !args.no_sandbox {
        let inside = args.confine()?;
        resolver.outside = Some(Arc::clone(&inside.caller));
        control.outside = Some(inside.caller);
        orders = Some(inside.orders);
    }
    log::serve();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut records = Vec::new();
    let result = runtime.block_on(async {
        let settings = Settings { rules, ..Settings::default() };
        let (stack, server) = args.start(&control, (builder, tunnel), settings, resolver)?;
        records = stack.recording_handles();
        stack::while_up(&stack, args.link.auto.wait(&stack)).await?;
        let asked = match orders.map(Orders::new).transpose()? {
            Some(orders) => Either::Left(async move { drop(orders.next().await) }),
            None => Either::Right(interrupt::asked_to_end()?),
        };
        let mut all = args.open(&stack, &server, login.as_ref()).await?;
        let ended = stack::while_up(&stack, async {
            tokio::select! {
                () = asked => Ok(()),
                Some(end) = all.join_next() => Err(end.map_or_else(Into::into, anyhow::Error::from)),
            }
        });
        let ended = ended.await;
        let counters = server.look(|gateway| *gateway.counters());
        if args.json {
            let object: serde_json::Map<String, serde_json::Value> =
                counters.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            output::print(&format!("{}\n", serde_json::Value::from(object)))?;
        } else if ended.is_ok() {
            let (up, down) = (counters.bytes_up, counters.bytes_down);
            let (reached, asked) = (counters.reached, counters.connections);
            let sums =
                format!("{reached} of {asked} connections were reached; {up} bytes up, {down} bytes down");
            log::notice(Level::Info, "ended", &sums);
        }
        ended
    });
    // Its tasks have the stack, whose recording is whole when the last of them is gone.
    runtime.shutdown_timeout(record::LONGEST_END);
    result.and_then(|()| record::check(&records))
}
