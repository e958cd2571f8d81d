//! `taut gateway`: a rootless network for a command, a container or whatever is routed to a TUN
//! (`taut-gateway`).
//!
//! This file reads arguments, starts the guest, and passes signals and the exit code on.

use std::convert::Infallible;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, bail};
use clap::Args;
use rustix::process::Pid;
use taut::device::{CaptureFile, Cidr, TunOptions};
use taut::network::IpPrefix;
use taut::{FlowKind, Stack, StackBuilder};
use taut_gateway::inside::{Enter, MAX_MTU, Plan};
use taut_gateway::{
    ClientAddress, Forward, ForwardTarget, GuestProcess, HostSockets, Listening, Live, Login, Namespace,
    Opening, Resolver, Server, Settings, Socks5,
    sandbox::{Caller, CapabilitySet, Needs, Order, Orders, Tasks},
};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::control::ControlArgs;
use crate::net::confined::{self, Inside};
use crate::net::drop_in::manner::Manner;
use crate::net::gateway_addresses::{self, name_servers, own_names};
use crate::net::gateway_capture::CaptureArgs;
use crate::net::gateway_config::Config;
use crate::net::gateway_end::{command_ended, ended_by_signal};
use crate::net::gateway_guest::{MachineArgs, Plugged, RunArgs, shown};
use crate::net::gateway_log::{look_for_pings, say, write};
use crate::net::gateway_out::{Opened as Leaving, Out, Way, link, observed, resolve_by};
use crate::net::gateway_rules::RuleArgs;
use crate::net::live::{Doors, LiveArgs};
use crate::net::proxy::read_login;
use crate::shared::config_file::ConfigArgs;
use crate::shared::log::{self, Level, LogArgs};

/// Gives a command, container or VM network access without root
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  \
    taut gateway --run -t 8080:80 --rule 'deny 10.0.0.0/8' -- sh\n  \
    taut gateway ctl flows; taut gateway rules-from log   # each has a --help\n\
    A rule: allow|deny|drop [tcp|udp|ping] any|NETWORK|NAME|*.NAME [port PORTS]",
    override_usage = "taut gateway [OPTIONS] [-- <COMMAND>...]",
    mut_arg("config", |arg| arg.help("Options in TOML [~/.config/taut/gateway.toml, /etc/taut/gateway.toml]"))
)]
pub(crate) struct GatewayArgs {
    /// Run COMMAND in a new user and network namespace
    #[arg(help_heading = "Guest", long, group = "way-in", requires = "command")]
    run: bool,
    #[command(flatten)]
    own: RunArgs,
    /// Serve the network namespace of a process or of a file
    #[arg(help_heading = "Guest", long, value_name = "PID|PATH", group = "way-in")]
    netns: Option<String>,
    /// Serve traffic routed to this TUN interface (created if missing)
    #[arg(help_heading = "Guest", long, value_name = "NAME", group = "way-in")]
    tun: Option<String>,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    rules: RuleArgs,
    /// Forward [ADDR:]PORT[:PORT],…,~PORT or all; auto: where it listens
    #[arg(help_heading = "Network", short = 't', long = "tcp", value_name = "PORTS")]
    tcp: Vec<String>,
    /// The same for UDP; auto: ports that guest programs have bound
    #[arg(help_heading = "Network", short = 'u', long = "udp", value_name = "PORTS")]
    udp: Vec<String>,
    /// Clients' addresses: keep, hide or proxy-protocol [default: keep]
    #[arg(help_heading = "Network", long, value_name = "HOW", default_value = "keep", value_parser = shown())]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    client_address: ClientAddress,
    /// Guest's address and network [default: 10.0.2.15/24 and IPv6]
    #[arg(help_heading = "Network", long, value_name = "ADDR/PREFIX")]
    guest: Vec<Cidr>,
    /// Gateway's address and name server [default: the network's second]
    #[arg(help_heading = "Network", long, value_name = "ADDRESS")]
    gateway: Vec<IpAddr>,
    /// MTU of the guest's interface [default: 65520; 1500 with --vfkit]
    #[arg(help_heading = "Network", long, value_parser = clap::value_parser!(u16).range(1280..=i64::from(MAX_MTU)))]
    mtu: Option<u16>,
    /// Unsent bytes of a guest's socket; 0: any number
    #[arg(help_heading = "Guest", long, value_name = "BYTES", default_value_t = 16_384)]
    notsent_lowat: u32,
    /// Name of the guest's interface
    #[arg(help_heading = "Network", long, value_name = "NAME", default_value = "taut0")]
    interface: String,
    /// Send flows by socks5://HOST:PORT, http://HOST:PORT or tun:NAME
    #[arg(help_heading = "Network", long, value_name = "WAY")]
    out: Option<Out>,
    /// File with the SOCKS5 proxy's NAME:PASSWORD
    #[arg(help_heading = "Network", long, value_name = "FILE", requires = "out", value_parser = login_file)]
    out_login: Option<Login>,
    /// Address of the other stack
    #[arg(help_heading = "Network", long, value_name = "ADDR/PREFIX", default_value = "10.0.3.2/24")]
    out_address: Vec<Cidr>,
    /// Congestion control of the other stack
    #[arg(help_heading = "Network", long, value_name = "NAME", default_value = "bbr")]
    congestion: String,
    /// Name server [default: those of /etc/resolv.conf]
    #[arg(help_heading = "Network", long, value_name = "ADDRESS")]
    dns: Vec<String>,
    /// Threads that carry flows
    #[arg(help_heading = "Operation", long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Print help
    #[arg(help_heading = "Operation", long, short, action = clap::ArgAction::Help, hide = true)]
    help: Option<bool>,
    /// Write a line to this descriptor when the guest can connect
    #[arg(help_heading = "Operation", long, value_name = "FD", value_parser = clap::value_parser!(i32).range(0..))]
    ready_fd: Option<i32>,
    /// Run without the sandbox
    #[arg(help_heading = "Operation", long)]
    no_sandbox: bool,
    #[command(flatten)]
    capture: CaptureArgs,
    #[command(flatten)]
    file: ConfigArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[arg(skip)]
    manner: OnceLock<Manner>,
    /// The command, and its arguments
    #[arg(help_heading = "Guest", last = true, value_name = "COMMAND", hide = true)]
    command: Vec<String>,
}

fn login_file(path: &str) -> Result<Login, String> {
    read_login(Path::new(path)).map_err(|error| format!("{error:#}"))
}

impl GatewayArgs {
    /// The way out, and the name servers: a tunnel has its own, which are reached through it.
    fn way(&self, out: Option<Leaving>, resolver: Resolver) -> anyhow::Result<(Way, Resolver)> {
        let opened = || out.context("the way out is not open");
        let by = self.manner().by.clone();
        let way = match &self.out {
            None => {
                by.check().context("this host does not have what flows shall leave by")?;
                return Ok((Way::Host(by.clone()), Resolver { by, ..resolver }));
            }
            Some(_) if by != HostSockets::default() => {
                bail!(
                    "flows leave by an address of this host or by `out` of the configuration file: give one of them"
                )
            }
            Some(Out::Socks5(proxy)) => {
                let login = self.out_login.clone().map(|login| (login.name, login.password));
                Way::Socks5(Socks5 { login, ..proxy.clone() })
            }
            Some(Out::Http(way)) => Way::Http(way.clone()),
            Some(Out::Tun(name)) => {
                let link = link(opened()?.builder, &self.congestion);
                Way::Link(link.with_context(|| format!("--out tun:{name}"))?, None)
            }
            Some(Out::WireGuard(file)) => {
                let Leaving { builder, tunnel } = opened()?;
                let link = link(builder, &self.congestion)?;
                let servers =
                    if resolver.servers.is_empty() { file.name_servers()? } else { resolver.servers };
                let resolver = Resolver { servers, over: Some(link.stack.clone()), ..resolver };
                return Ok((Way::Link(link, tunnel), resolver));
            }
        };
        Ok((way, resolver))
    }

    fn mtu(&self) -> u16 {
        self.mtu.unwrap_or_else(|| self.machine.default_mtu())
    }

    fn settings(&self, pairs: &[(Cidr, Cidr)]) -> anyhow::Result<Settings> {
        let read = |path| Config::read(path, &Self::options());
        let config = self.file.config.as_deref().map(read).transpose()?.unwrap_or_default();
        let own = pairs.iter().map(|(_, own)| own.address()).collect();
        let guests = if self.guest.is_empty() {
            pairs.iter().map(|(guest, _)| *guest).collect()
        } else {
            self.guest.clone()
        };
        let sources =
            guests.iter().filter_map(|guest| IpPrefix::new(guest.address(), guest.prefix())).collect();
        let Manner { dns_at, mapped, .. } = self.manner();
        let (dns_at, mapped, decisions) = (dns_at.clone(), mapped.clone(), self.log.will_be_json());
        let by_stack = matches!(self.out, Some(Out::Tun(_) | Out::WireGuard(_)));
        let settings = Settings { own, sources, dns_at, mapped, decisions, by_stack, ..Settings::default() };
        self.rules.settings(&config, settings)
    }

    /// Begins and ends in this manner, when it runs.
    pub(crate) fn stand_in(&self, manner: Manner) {
        self.manner.get_or_init(|| manner);
    }

    fn manner(&self) -> &Manner {
        self.manner.get_or_init(Manner::default)
    }

    fn options() -> clap::Command {
        Self::augment_args(clap::Command::new("gateway"))
    }

    /// Reads the file again, each time that this process gets HUP.
    async fn reload(&self, server: &Server) -> anyhow::Result<Infallible> {
        let mut hangup = signal(SignalKind::hangup())?;
        loop {
            hangup.recv().await;
            let read = self.file.config.as_deref().map(|path| Config::read(path, &Self::options()));
            self.read_again(server, read.unwrap_or_else(|| Ok(Config::default())));
        }
    }

    /// The same by the process outside, which has opened it.
    fn settings_of(&self, file: std::io::Result<File>) -> anyhow::Result<Config> {
        let path = self.file.config.as_deref().unwrap_or(Path::new(""));
        Config::of(path, file, &Self::options())
    }

    /// A mistake in the file changes nothing.
    fn read_again(&self, server: &Server, config: anyhow::Result<Config>) {
        let before = server.look(|gateway| gateway.settings().clone());
        match config.and_then(|config| self.rules.settings(&config, before)) {
            Ok(settings) => {
                server.set(settings);
                say(Level::Info, "rules-read", "the rules are as in the file now");
            }
            Err(error) => {
                say(Level::Error, "rules-refused", &format!("the rules stay as they were: {error:#}"));
            }
        }
    }

    fn forwards(&self) -> anyhow::Result<Vec<Forward>> {
        let mut all = Vec::new();
        for (kind, texts) in [(FlowKind::Tcp, &self.tcp), (FlowKind::Udp, &self.udp)] {
            for text in texts.iter().filter(|text| automatic(text).is_none()) {
                let parsed = Forward::parse(kind, text)?;
                all.extend(parsed.into_iter().map(|one| Forward { client: self.client_address, ..one }));
            }
        }
        Ok(all)
    }

    /// The rights that are needed after the sandbox is closed: to open ports below 1024.
    fn kept_capabilities(&self, forwards: &[Forward]) -> CapabilitySet {
        let mut keep = CapabilitySet::empty();
        let is_automatic = self.tcp.iter().chain(&self.udp).any(|text| automatic(text).is_some());
        if is_automatic || forwards.iter().any(|forward| forward.at.port() < 1_024) {
            keep |= CapabilitySet::NET_BIND_SERVICE;
        }
        keep
    }

    fn enter(&self) -> Option<Enter> {
        if self.run {
            return Some(Enter::New);
        }
        let place = self.netns.as_ref()?;
        Some(place.parse().map_or_else(|_| Enter::Path(place.clone()), Enter::Process))
    }

    /// The way out and the server of its flows, inside the runtime.
    fn begun(
        &self,
        out: Option<Leaving>,
        settings: Settings,
        resolver: Resolver,
    ) -> anyhow::Result<(Way, Server)> {
        self.capture.survive_limit()?;
        let is_confined = resolver.outside.is_some();
        let (way, resolver) = self.way(out, resolver)?;
        let server = Server::new(settings, resolver, Box::new(write));
        if let (Some(tunnel), true) = (way.tunnel(), is_confined) {
            resolve_by(&server, &tunnel.monitor);
        }
        Ok((way, server))
    }
}

/// The address of this host at which ports are forwarded automatically: `auto`, `ADDRESS:auto`.
fn automatic(text: &str) -> Option<IpAddr> {
    let address = text.strip_suffix("auto")?;
    if address.is_empty() {
        return Some(IpAddr::from([127, 0, 0, 1]));
    }
    let address = address.strip_suffix(':')?;
    address.strip_prefix('[').and_then(|v6| v6.strip_suffix(']')).unwrap_or(address).parse().ok()
}

/// The error of a gateway without a guest.
const NO_GUEST: &str = "no guest: use one of --run -- COMMAND, --netns PID|PATH, --tun NAME, --qemu SOCKET, \
                        --vfkit SOCKET, --passt SOCKET";

/// Arguments that make no sense together.
fn check(args: &GatewayArgs, has_guest: bool) -> anyhow::Result<()> {
    if !has_guest && args.tun.is_none() {
        bail!("{NO_GUEST}");
    }
    if !args.run && !args.command.is_empty() {
        bail!("a command needs --run: taut gateway --run -- {}", args.command.join(" "));
    }
    if args.out_login.is_some() && !matches!(args.out, Some(Out::Socks5(_))) {
        bail!("--out-login is for --out socks5://HOST:PORT: give that, or leave out --out-login");
    }
    Ok(())
}

/// All that is opened before the sandbox closes; `out` is the stack that flows leave by.
struct Opened {
    opening: Option<Opening>,
    namespace: Option<Namespace>,
    listening: Vec<(Vec<IpAddr>, Listening)>,
    builder: StackBuilder,
    out: Option<Leaving>,
    capture: Option<CaptureFile>,
}

/// Before there is a second thread.
fn open(
    args: &GatewayArgs,
    enter: Option<Enter>,
    pairs: &[(Cidr, Cidr)],
    machine: Option<&mut Plugged>,
) -> anyhow::Result<Opened> {
    let mut opening = enter.map(|enter| fork(args, enter, pairs)).transpose()?;
    let mut namespace = None;
    if args.tcp.iter().chain(&args.udp).any(|text| automatic(text).is_some()) {
        // Files of the guest's process.
        namespace = opening.take().map(wait).transpose()?;
    }
    let listening = listening(args, namespace.as_mut())?;
    // The guest's processes, which have begun, do not have its descriptor.
    let capture = args.capture.begin()?;
    machine.into_iter().for_each(|machine| machine.record(capture.clone()));
    let mut builder = Stack::builder();
    for (_, own) in pairs {
        builder = builder.address(&own.to_string());
    }
    if let Some(tun) = &args.tun {
        let options = TunOptions { capture: capture.clone(), ..TunOptions::default() };
        builder = builder.tun(tun).tun_options(options).mtu(args.mtu()).open()?;
    }
    let out = args.out.as_ref().map(|out| out.open(&args.out_address)).transpose()?.flatten();
    // pasta's and slirp4netns's manners have a place already.
    args.manner().ends_with(args.netns.as_deref());
    Ok(Opened { opening, namespace, listening, builder, out, capture })
}

/// Waits for the guest's interface, and logs what does not work.
fn wait(opening: Opening) -> std::io::Result<Namespace> {
    let namespace = opening.wait()?;
    for warning in namespace.warnings() {
        say(Level::Warn, "guest", warning);
    }
    Ok(namespace)
}

/// Runs `taut gateway` until its guest ends.
///
/// # Errors
/// When the guest's network cannot be made, or disappears.
pub(crate) fn run(args: &GatewayArgs) -> anyhow::Result<()> {
    args.manner().begin(args.ready_fd)?;
    let pairs = gateway_addresses::pairs(&args.guest, &args.gateway, args.tun.is_some())?;
    let (settings, forwards, resolver) = (args.settings(&pairs)?, args.forwards()?, name_servers(&args.dns)?);
    if args.rules.show(&settings)? {
        return Ok(());
    }
    args.log.start();
    let enter = args.enter();
    let mut machine = args.machine.plug(&pairs, args.mtu(), args.run, args.manner().one_off)?;
    check(args, enter.is_some() || machine.is_some())?;
    let Opened { opening, mut namespace, listening, builder, out, capture } =
        open(args, enter, &pairs, machine.as_mut())?;
    let doors = args.live.open(args.manner().take_api())?;
    confined::raise_descriptors();
    let (mut control, mut resolver, mut orders) = (args.control.clone(), resolver, None);
    if !args.no_sandbox {
        let command = opening.as_ref().map(Opening::pid).or_else(|| namespace.as_ref().map(Namespace::pid));
        let inside = confine(args, &forwards, command.filter(|_| args.run))?;
        resolver.outside = Some(Arc::clone(&inside.caller));
        control.outside = Some(inside.caller);
        orders = Some(inside.orders);
    }
    log::serve();
    look_for_pings(args.out.is_none());
    let runtime = runtime(args.threads)?;
    // Its interface was opened meanwhile.
    namespace = opening.map(wait).transpose()?.or(namespace);
    let code = runtime.block_on(async {
        let orders = orders.map(Orders::new).transpose()?;
        let ways = orders.as_ref().zip(control.outside.as_deref());
        let (way, server) = args.begun(out, settings, resolver)?;
        let live = Live::new(&server, guest(&pairs)?, args.client_address);
        let forward = || forwards.iter().try_for_each(|one| live.add_forward(*one).map(|_| ()));
        if let Some(machine) = machine {
            forward()?;
            let serving = serve_machines(&control, machine, &live, (way, doors));
            return serve_until(args, &server, ways, serving).await.map(|()| None);
        }
        let builder = observed(&live, way.tunnel(), control.apply(builder)?);
        let stack = match &namespace {
            Some(namespace) => namespace.stack(builder, &args.manner().on_link(&pairs), capture)?,
            None => builder.build_tokio()?,
        };
        let mut tasks = tokio::task::JoinSet::new();
        let target = target(&pairs, namespace.as_mut())?;
        live.open(&stack, target.clone(), None)?;
        forward()?;
        for (hosts, ports) in listening {
            let (server, stack, shown) = (server.clone(), stack.clone(), args.client_address);
            let target = target.clone();
            tasks.spawn(async move {
                match server.forward_listening(&stack, &target, &hosts, (ports, shown)).await {
                    Ok(never) => match never {},
                    Err(error) => error,
                }
            });
        }
        tasks.spawn(doors.serve(live.clone()));
        tasks.spawn(way.serve(&server, &stack)?);
        let failed = async {
            let end = tasks.join_next().await.map(|end| end.map_or_else(Into::into, anyhow::Error::from));
            Err::<(), _>(end.unwrap_or_else(|| anyhow::anyhow!("the gateway ended")))
        };
        if ways.is_some() {
            // While it is there, the guest keeps its `resolv.conf`.
            let _guest = namespace.map(Namespace::start).transpose()?;
            if !args.run {
                log::notice(Level::Info, "serving", &format!("the gateway is at {}", own_names(&pairs)));
            }
            return serve_until(args, &server, ways, failed).await.map(|()| None);
        }
        let reload = args.reload(&server);
        match namespace {
            Some(namespace) if args.run => {
                tokio::select! {
                    code = command_ended(namespace, args.manner(), args.file.config.is_some()) => code.map(Some),
                    never = reload => never.map(|never| match never {}),
                    error = failed => error.map(|()| None),
                }
            }
            namespace => {
                namespace.map(Namespace::start).transpose()?.map(GuestProcess::wait).transpose()?;
                log::notice(Level::Info, "serving", &format!("the gateway is at {}", own_names(&pairs)));
                serve_until(args, &server, ways, failed).await.map(|()| None)
            }
        }
    })?;
    args.manner().stopping();
    // Flows that wait for somebody would be waited for.
    runtime.shutdown_background();
    match code {
        Some(code) if code != 0 => log::exit(code),
        _ => Ok(()),
    }
}

/// Serves until this process is asked to end, by a signal or by the process outside.
async fn serve_until(
    args: &GatewayArgs,
    server: &Server,
    outside: Option<(&Orders, &Caller)>,
    serving: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let serving = async {
        tokio::select! {
            end = serving => end,
            () = args.manner().ended() => {
                say(Level::Info, "namespace-gone", "the guest's namespace is gone");
                Ok(())
            }
        }
    };
    let Some((orders, caller)) = outside else {
        let asked = ended_by_signal(args.file.config.is_some())?;
        args.manner().ready(None);
        return tokio::select! {
            () = asked => Ok(()),
            never = args.reload(server) => never.map(|never| match never {}),
            end = serving => end,
        };
    };
    args.manner().ready(Some(caller));
    let obeyed = async {
        loop {
            match orders.next().await {
                Order::Reload(file) => args.read_again(server, args.settings_of(file)),
                Order::End | Order::CommandEnded => return,
            }
        }
    };
    tokio::select! {
        () = obeyed => Ok(()),
        end = serving => end,
    }
}

/// Serves virtual machines.
async fn serve_machines(
    control: &ControlArgs,
    machine: Plugged,
    live: &Live,
    (way, doors): (Way, Doors),
) -> anyhow::Result<()> {
    control.show_page()?;
    let tunnel = way.tunnel().cloned();
    let seen = |builder| observed(live, tunnel.as_ref(), builder);
    let builder = || control.open_socket(Stack::builder()).map(seen);
    let served = async {
        match way {
            Way::Host(way) => machine.serve(live, Arc::new(way), builder).await,
            Way::Socks5(way) => machine.serve(live, Arc::new(way), builder).await,
            Way::Http(way) => machine.serve(live, Arc::new(way), builder).await,
            Way::Link(way, _) => machine.serve(live, Arc::new(way), builder).await,
        }
    };
    tokio::select! { end = served => end, error = doors.serve(live.clone()) => Err(error.into()) }
}

fn runtime(threads: u16) -> std::io::Result<Runtime> {
    match threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        more => tokio::runtime::Builder::new_multi_thread().worker_threads(more.into()).enable_all().build(),
    }
}

fn fork(args: &GatewayArgs, enter: Enter, pairs: &[(Cidr, Cidr)]) -> anyhow::Result<Opening> {
    let plan = Plan {
        enter,
        interface: args.interface.clone(),
        mtu: args.mtu(),
        guest: pairs.iter().map(|(guest, _)| *guest).collect(),
        name_server: pairs.first().map(|(_, own)| own.address()),
        notsent_lowat: args.notsent_lowat,
        search: args.machine.search.clone(),
        loopback: !(args.tcp.is_empty() && args.udp.is_empty()),
        isolate: args.own.isolate,
        keep_user: args.own.keep_user,
        user: args.manner().user.clone(),
    };
    Ok(Namespace::fork(&plan, &args.command)?)
}

/// The guest to which ports are forwarded.
fn guest(pairs: &[(Cidr, Cidr)]) -> anyhow::Result<IpAddr> {
    pairs.first().map(|(guest, _)| guest.address()).context("no guest")
}

fn target(pairs: &[(Cidr, Cidr)], namespace: Option<&mut Namespace>) -> anyhow::Result<ForwardTarget> {
    let loopback = namespace.map(Namespace::loopback).transpose()?.flatten();
    Ok(ForwardTarget { address: guest(pairs)?, loopback })
}

/// For each kind that is forwarded automatically, where the host listens, and what the guest's ports are read
/// from.
fn listening(
    args: &GatewayArgs,
    mut namespace: Option<&mut Namespace>,
) -> anyhow::Result<Vec<(Vec<IpAddr>, Listening)>> {
    let mut all = Vec::new();
    for (kind, option, texts) in [(FlowKind::Tcp, "-t", &args.tcp), (FlowKind::Udp, "-u", &args.udp)] {
        let hosts: Vec<IpAddr> = texts.iter().filter_map(|text| automatic(text)).collect();
        if hosts.is_empty() {
            continue;
        }
        let Some(namespace) = namespace.as_deref_mut() else {
            bail!(
                "{option} auto is for --run and --netns: a TUN's guests have no namespace to look into; \
                   give the ports, such as {option} 8080:80"
            );
        };
        all.push((hosts, namespace.listening(kind).with_context(|| format!("{option} auto"))?));
    }
    Ok(all)
}

/// Before the runtime has threads, and after the guest's process has begun.
fn confine(args: &GatewayArgs, forwards: &[Forward], command: Option<Pid>) -> anyhow::Result<Inside> {
    let (config, notify) = (args.file.config.clone(), args.manner().take_notify());
    let tasks = Tasks { command, config, notify, ..Tasks::default() };
    let needs =
        Needs { keep: args.kept_capabilities(forwards), paths: args.machine.has_paths(), ..Needs::default() };
    confined::close(&args.control, tasks, needs)
}
