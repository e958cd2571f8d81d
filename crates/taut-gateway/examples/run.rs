//! A command in a namespace of its own, whose traffic goes on through this host's own sockets. Without root.
//!
//! ```console
//! $ cargo run -p taut-gateway --example run -- curl https://example.com/
//! ```

use std::io;
use std::process::Command;
use std::sync::Arc;

use taut::Stack;
use taut_gateway::inside::{Enter, MAX_MTU, Plan, inside};
use taut_gateway::{HostSockets, Namespace, Resolver, Server, Settings};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        // The child: it becomes the command.
        [first, rest @ ..] if first == "--inside" => {
            let end = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
            let command = rest.get(end + 1..).unwrap_or_default();
            inside(&Plan::from_arguments(&rest[..end])?, command).map(drop)
        }
        [] => Err(io::Error::other("usage: run COMMAND [ARGUMENT]...")),
        command => std::process::exit(run(command)?),
    }
}

fn run(command: &[String]) -> io::Result<i32> {
    let plan = Plan {
        enter: Enter::New,
        interface: "taut0".to_owned(),
        mtu: MAX_MTU,
        guest: vec!["10.0.2.15/24".parse().map_err(io::Error::other)?],
        name_server: Some([10, 0, 2, 2].into()),
        notsent_lowat: 16_384,
        search: Vec::new(),
        loopback: false,
        isolate: false,
        keep_user: false,
        user: None,
    };
    let mut program = Command::new("/proc/self/exe");
    program.arg("--inside").args(plan.arguments()).arg("--").args(command);
    let namespace = Namespace::open(program, &plan)?;
    namespace.warnings().iter().for_each(|warning| eprintln!("{warning}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stack = namespace.stack(Stack::builder().address("10.0.2.2/24"), &[], None)?;
        let settings = Settings { own: vec![[10, 0, 2, 2].into()], ..Settings::default() };
        let server = Server::new(settings, Resolver::default(), Box::new(|event| eprintln!("{event:?}")));
        let serving = server.serve(&stack, Arc::new(HostSockets::default()))?;
        let guest = namespace.start()?;
        let ended = tokio::task::spawn_blocking(move || guest.wait());
        tokio::select! {
            error = serving => Err(error),
            status = ended => Ok(status.map_err(io::Error::other)??.code().unwrap_or(1)),
        }
    })
}
