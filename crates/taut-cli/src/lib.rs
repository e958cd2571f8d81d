//! The `taut` command: parses arguments, runs the stack, and prints.
//!
//! | room | commands |
//! |---|---|
//! | `compare/` | `taut compare`: rounds of measurements, their links, the work, the table, the load of others |
//! | `demo/` | `taut demo`: an uplink, a bad line, published results, costs; the page |
//! | `talk/` | `taut send`, `recv`, `get`, `serve` |
//! | `net/` | `taut gateway`, `taut proxy`, and the sandbox around them; taut as pasta and slirp4netns; `taut wg` |
//! | `observe/` | `taut ss`, `nstat`, `metrics`, `explain`, `top`, `replay` |
//! | `change/` | `taut sysctl`, `qdisc`, `addr`, `route`, `mtu` |
//! | `dash/` | `taut dash`: sampler, feed, server, page |
//! | `lab/` | `taut lab`, `plot`, `packetdrill` |
//! | `args/` | options that several commands share |
//! | `shared/` | text, progress, the log, interrupts, exit codes, configuration files |
//! | `stack.rs` | a stack with the options of a command |
//! | `help.rs` | `taut --help`, `taut man`, `taut completions` |
//!
//! A program with its own congestion controls gets the same command by calling [`main_with`].

mod args;
mod change;
mod compare;
pub mod dash;
mod demo;
mod help;
pub mod lab;
mod net;
mod observe;
mod rpm;
mod shared;
mod stack;
mod talk;

pub use shared::{http_loop, text};
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory as _, Parser, Subcommand};
use shared::exit::{exit_code, main_by, main_of, program, with_examples};
use taut_core::congestion::{Definition, Registry};

/// A TCP stack in userspace, on a TUN interface of this machine.
#[derive(Parser, Debug)]
#[command(
    name = "taut",
    version,
    after_help = "Example:\n  taut demo\n\nEach command has an example in its --help. Commands that print results print them as JSON with --json, `metrics` as OpenMetrics."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArgs),
    Compare(compare::CompareArgs),
    Send(talk::transfer::SendArgs),
    Recv(talk::transfer::RecvArgs),
    Serve(talk::serve_command::ServeArgs),
    Get(talk::get::GetArgs),
    Rpm(Box<rpm::RpmArgs>),
    Ss(observe::ss::SsArgs),
    Nstat(observe::nstat::NstatArgs),
    Metrics(observe::metrics::MetricsArgs),
    Dash(dash::DashArgs),
    #[cfg(feature = "top")]
    Top(observe::top::TopArgs),
    Sysctl(change::sysctl::SysctlArgs),
    Qdisc(change::qdisc::QdiscArgs),
    #[command(visible_alias = "address")]
    Addr(change::addr::AddrArgs),
    Route(change::route::RouteArgs),
    Mtu(change::mtu::MtuArgs),
    Explain(observe::explain::ExplainArgs),
    Replay(observe::replay::ReplayArgs),
    Gateway(Box<net::gateway::GatewayArgs>),
    Proxy(net::proxy::ProxyArgs),
    Wg(net::wg::WgArgs),
    Packetdrill(lab::packetdrill::PacketdrillArgs),
    Lab(lab::LabArgs),
    Plot(lab::plot::PlotArgs),
    Man(help::ManArgs),
    Completions(help::CompletionsArgs),
}

/// `taut gateway` alone. To describe all commands takes 2 ms, which a command that begins many guests would
/// pay for each.
#[derive(Parser, Debug)]
#[command(name = "taut", version)]
struct GatewayCli {
    #[command(subcommand)]
    command: GatewayCommand,
}

#[derive(Subcommand, Debug)]
enum GatewayCommand {
    Gateway(Box<net::gateway::GatewayArgs>),
}

/// Runs the command given by the arguments. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
#[must_use]
pub fn main() -> ExitCode {
    main_with(&[])
}

/// [`main`] with congestion controls of your own in addition to the built-in ones. They are available
/// everywhere by name, with parameters: in `--congestion`, `taut sysctl` and the scenarios of `taut lab`.
///
/// ```no_run
/// # use taut_core::congestion::{AckEvent, Controller, Signal, Window};
/// use taut_core::congestion::Definition;
/// # #[derive(Debug)]
/// # struct Mine { gain: f64 }
/// # impl Controller for Mine {
/// #     fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {}
/// #     fn reduce(&mut self, window: &Window, _: Signal, _: taut_core::Instant) -> u32 { window.cwnd() / 2 }
/// # }
///
/// fn main() -> std::process::ExitCode {
///     let mine = Definition::new("mine", |params| Mine { gain: params.get("gain") })
///         .param("gain", 2.0, 1.0..=4.0, "how much faster than delivered to send");
///     taut_cli::main_with(&[mine])
/// }
/// ```
///
/// Use it as `my-taut send 10.9.0.1:7000 --congestion mine:gain=2.5 < file`. Call it before your program
/// starts threads: `gateway --run` and `--netns` make their guest by `fork(2)`, and refuse if there are any.
#[must_use]
pub fn main_with(definitions: &[Definition]) -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    if let Some(found) = net::drop_in::find(&given) {
        return match found {
            Ok(Some(found)) => drop_in(definitions, found),
            Ok(None) => ExitCode::SUCCESS,
            Err(error) => exit_code(Err(error)),
        };
    }
    if given.get(1..3).is_some_and(|words| words == ["gateway", "rules-from"]) {
        let (given, command) = (given[2..].to_vec(), net::rules_from::RulesFromArgs::command());
        return main_by(given, definitions, command, renamed, |args, _| net::rules_from::run(args));
    }
    if given.get(1..3).is_some_and(|words| words == ["gateway", "ctl"]) {
        let (given, command) = (given[2..].to_vec(), net::live::ctl::CtlArgs::command());
        return main_by(given, definitions, command, renamed, |args, _| net::live::ctl::run(args));
    }
    let first = given.into_iter().nth(1).unwrap_or_default();
    if first == "gateway" {
        return main_of(definitions, GatewayCli::command(), renamed, |cli: &GatewayCli, _| {
            let GatewayCommand::Gateway(args) = &cli.command;
            net::gateway::run(args)
        });
    }
    let whole = help::grouped(Cli::command());
    main_of(definitions, whole, renamed, |cli: &Cli, controllers| run(&cli.command, controllers))
}

/// `taut gateway` in the place of another program.
fn drop_in(definitions: &[Definition], found: net::drop_in::DropIn) -> ExitCode {
    let net::drop_in::DropIn { arguments, manner } = found;
    main_by(arguments, definitions, GatewayCli::command(), renamed, |cli: &GatewayCli, _| {
        let GatewayCommand::Gateway(args) = &cli.command;
        args.stand_in(manner);
        net::gateway::run(args)
    })
}

fn run(command: &Command, controllers: &Registry) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Compare(args) => compare::run(args, controllers),
        Command::Send(args) => talk::transfer::send(args, controllers),
        Command::Recv(args) => talk::transfer::recv(args, controllers),
        Command::Serve(args) => talk::serve_command::run(args, controllers),
        Command::Get(args) => talk::get::get(args, controllers),
        Command::Rpm(args) => rpm::run(args, controllers),
        Command::Ss(args) => observe::ss::run(args),
        Command::Nstat(args) => observe::nstat::run(args),
        Command::Metrics(args) => observe::metrics::run(args),
        Command::Dash(args) => dash::run(args),
        #[cfg(feature = "top")]
        Command::Top(args) => observe::top::run(args),
        Command::Sysctl(args) => change::sysctl::run(args),
        Command::Qdisc(args) => change::qdisc::run(args),
        Command::Addr(args) => change::addr::run(args),
        Command::Route(args) => change::route::run(args),
        Command::Mtu(args) => change::mtu::run(args),
        Command::Explain(args) => observe::explain::run(args),
        Command::Replay(args) => observe::replay::run(args, controllers),
        Command::Gateway(args) => net::gateway::run(args),
        Command::Proxy(args) => net::proxy::run(args, controllers),
        Command::Wg(args) => net::wg::run(args),
        Command::Packetdrill(args) => lab::packetdrill::run(args),
        Command::Lab(args) => lab::run(args, controllers),
        Command::Plot(args) => lab::plot::run(args),
        Command::Man(args) => help::man(args, whole()),
        Command::Completions(args) => help::completions(args, whole()),
    }
}

/// The description of the whole command, in this program's name.
fn whole() -> clap::Command {
    let name = program();
    with_examples(help::grouped(Cli::command()), &|help| renamed(help, &name))
}

/// Adapts an example in a help text to a program with another name. It is asked for each help text, so the
/// commands are listed once, and for `taut` itself not at all: of the 8 ms that `taut --version` took, 6
/// went there.
fn renamed(help: &str, name: &str) -> String {
    static PARTS: LazyLock<Vec<String>> =
        LazyLock::new(|| Cli::command().get_subcommands().map(|part| part.get_name().to_owned()).collect());
    if name == "taut" {
        return help.to_owned();
    }
    PARTS
        .iter()
        .fold(help.to_owned(), |help, part| help.replace(&format!("taut {part}"), &format!("{name} {part}")))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use taut_control::Client;
    use taut_core::Instant;
    use taut_core::congestion::{AckEvent, Controller, Signal, Window};
    use taut_testbed::{Kernel, Scratch, live};

    use super::*;

    /// Always the same window.
    #[derive(Debug)]
    struct Fixed(u32);

    impl Controller for Fixed {
        fn on_ack(&mut self, window: &mut Window, _ack: &AckEvent<'_>) {
            window.set_cwnd(self.0);
        }

        fn reduce(&mut self, window: &Window, _why: Signal, _now: Instant) -> u32 {
            window.cwnd()
        }

        fn owns_cwnd(&self) -> bool {
            true
        }
    }

    /// `taut` in a program with `Fixed`.
    fn with_fixed(args: &[&str]) -> anyhow::Result<()> {
        let fixed = Definition::new("fixed", |params| Fixed(params.get("cwnd") as u32));
        let mut controllers = Registry::default();
        controllers.add(fixed.param("cwnd", 20.0, 2.0..=1e4, "segments in flight"))?;
        run(&Cli::try_parse_from(args)?.command, &controllers)
    }

    #[test]
    fn a_users_own_controller_is_had_by_name_and_reported() {
        if !live::ready(&[]) {
            return;
        }
        let kernel = match Kernel::new() {
            Ok(kernel) => kernel,
            Err(error) => return live::skip(&error.to_string()),
        };
        let dir = Scratch::new("own-controller");
        let [control, page] = ["control", "page"].map(|name| dir.0.join(name));
        // The kernel's address comes with the interface: the listener takes any.
        let listener = kernel.enter(|| TcpListener::bind("0.0.0.0:80")).unwrap().unwrap();
        let paths = [&control, &page].map(|path| path.to_str().unwrap().to_owned());
        let got = kernel.thread("get", move || {
            let [control, page] = paths.each_ref().map(String::as_str);
            let args = ["taut", "get", "http://10.9.0.1/", "--congestion", "fixed:cwnd=30"];
            with_fixed(&[&args[..], &["--control", control, "-o", page]].concat())
        });

        let (mut server, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let bytes = server.read(&mut request).unwrap();
        assert!(request[..bytes].starts_with(b"GET / HTTP/1.1\r\n"));
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").unwrap();
        let mut client = Client::connect(&control).unwrap();
        let connections = client.connections().unwrap();
        assert_eq!(connections.len(), 1);
        assert_eq!(connections[0].congestion, "fixed:cwnd=30");
        let available = client.sysctl("net.ipv4.tcp_available_congestion_control").unwrap();
        assert!(available.value.ends_with(" fixed"), "{}", available.value);
        server.write_all(b"hello").unwrap();
        got.unwrap().join().unwrap().unwrap();
        assert_eq!(std::fs::read(page).unwrap(), b"hello");
    }

    #[test]
    fn a_controller_that_is_none_is_refused_before_anything_is_opened() {
        let refused = |args: &[&str], text: &str| {
            let args = [&["taut"], args, &["--congestion", text]].concat();
            format!("{:#}", with_fixed(&args).unwrap_err())
        };
        for args in [
            &["send", "10.9.0.1:80"][..],
            &["recv", "--listen", "80"],
            &["serve", "."],
            &["get", "http://10.9.0.1/"],
            &["compare"],
        ] {
            assert_eq!(
                refused(args, "vegas"),
                "--congestion vegas: unknown congestion control vegas; choose one of reno, cubic, bbr, dctcp, prague, \
                 fixed"
            );
            assert_eq!(
                refused(args, "fixed:cwnd=1"),
                "--congestion fixed:cwnd=1: fixed: cwnd = 1: must be a number from 2 to 10000"
            );
        }
    }

    #[test]
    fn a_program_of_another_name_has_examples_of_its_own() {
        let help = "Example:\n  sudo taut compare\n  taut lab run tsq\n\nSays what taut does on taut0.";
        let own = "Example:\n  sudo mine compare\n  mine lab run tsq\n\nSays what taut does on taut0.";
        assert_eq!(renamed(help, "mine"), own);
        assert_eq!(renamed(help, "taut"), help);
    }

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_gateways_arguments_are_read_alike_either_way() {
        for args in [
            &["gateway", "--help"][..],
            &["gateway", "--run"],
            &["gateway", "--mtu", "1"],
            &["gateway", "-x"],
        ] {
            let args = [&["taut"], args].concat();
            let [whole, alone] =
                [Cli::try_parse_from(&args).unwrap_err(), GatewayCli::try_parse_from(&args).unwrap_err()];
            assert_eq!(alone.to_string(), whole.to_string());
        }
        let args = ["taut", "gateway", "--run", "--", "sh", "-c", "x"];
        let read = |text: &str| text.split_once('{').unwrap().1.to_owned();
        let whole = read(&format!("{:?}", Cli::try_parse_from(args).unwrap()));
        assert_eq!(read(&format!("{:?}", GatewayCli::try_parse_from(args).unwrap())), whole);
    }

    /// Calls `check` for each command that users see, with its whole name.
    fn each_command(check: impl Fn(&clap::Command, &str)) {
        fn walk(command: &clap::Command, above: &str, check: &dyn Fn(&clap::Command, &str)) {
            let path = format!("{above} {}", command.get_name());
            check(command, &path);
            command.get_subcommands().for_each(|command| walk(command, &path, check));
        }
        let command = Cli::command();
        command.get_subcommands().for_each(|command| walk(command, "taut", &check));
    }

    #[test]
    fn every_command_has_an_example_and_json() {
        each_command(|command, path| {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{path}");
            // These print a format of their own.
            let own = ["taut metrics", "taut man", "taut completions", "taut wg"];
            let has_format = own.iter().any(|command| path.starts_with(command));
            assert!(help.contains("--json") || has_format, "{path}");
        });
    }

    #[test]
    fn a_help_text_fits_a_screen() {
        let faults = std::cell::RefCell::new(Vec::new());
        each_command(|command, path| {
            let fault = |what: String| faults.borrow_mut().push(format!("{path}: {what}"));
            let words = path.split(' ').chain(["--help"]);
            let help = Cli::command().term_width(100).try_get_matches_from(words).unwrap_err().to_string();
            let lines: Vec<&str> = help.lines().collect();
            if lines.len() > 60 {
                fault(format!("{} lines:\n{help}", lines.len()));
            }
            if lines[0].chars().count() > 70 {
                fault(format!("the first line is too long: {}", lines[0]));
            }
            let options = command.get_arguments().filter(|argument| !argument.is_positional());
            let ungrouped = options.filter(|option| option.get_help_heading().is_none()).count();
            if ungrouped > 16 {
                fault(format!("{ungrouped} options in one group"));
            }
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines().filter(|line| line.starts_with("  ") && line.chars().count() > 80) {
                fault(format!("an example of over 80 columns: {line}"));
            }
        });
        assert!(faults.borrow().is_empty(), "{}", faults.borrow().join("\n"));
    }

    #[test]
    fn the_address_of_a_page_has_one_grammar() {
        for (text, is_one) in [
            ("9119", true),
            ("127.0.0.1:9119", true),
            ("[::1]:9119", true),
            ("70000", false),
            ("127.0.0.1", false),
            ("localhost:9119", false),
            ("", false),
        ] {
            for args in [&["dash", text][..], &["serve", ".", "--dash", text], &["metrics", "--listen", text]]
            {
                let parsed = Cli::try_parse_from([&["taut"], args].concat());
                assert_eq!(parsed.is_ok(), is_one, "{args:?}: {parsed:?}");
            }
        }
    }

    #[test]
    fn a_proxys_login_comes_from_a_file() {
        let dir = Scratch::new("out-login");
        let file = dir.0.join("login");
        let parse = |out: &str| {
            let path = file.to_str().unwrap();
            Cli::try_parse_from(["taut", "gateway", "--out", out, "--out-login", path, "--run", "--", "sh"])
        };
        std::fs::write(&file, "name:word\n").unwrap();
        assert!(parse("socks5://127.0.0.1:1080").is_ok());
        let refused = parse("socks5://name:word@127.0.0.1:1080").unwrap_err().to_string();
        assert!(refused.contains("name it with --out-login"), "{refused}");
        std::fs::write(&file, "no login").unwrap();
        let refused = parse("socks5://127.0.0.1:1080").unwrap_err().to_string();
        assert!(refused.contains("does not begin with NAME:PASSWORD"), "{refused}");
    }

    /// Every user of the machine can read the command lines of all processes.
    #[test]
    fn no_option_takes_a_secret() {
        each_command(|command, path| {
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                let words = ["token", "password", "passwd", "secret", "key"];
                let is_secret = words.iter().any(|word| option.contains(word));
                assert!(!is_secret || option.ends_with("-file"), "{path} --{option}");
            }
        });
    }
}

#[cfg(doctest)]
#[doc = include_str!("../../../CONTRIBUTING.md")]
#[doc = include_str!("../../../docs/guide/lab.md")]
struct Documents;
