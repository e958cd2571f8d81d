//! `taut rpm`: round trips a minute while the line is full (draft-ietf-ippm-responsiveness), and where the
//! time goes.
//!
//! | file | has |
//! |---|---|
//! | `result.rs` | the formulas of the draft: when it is over, what of the probes counts; no clock, no I/O |
//! | `client.rs` | connections that fill the line, and probes beside and inside them |
//! | `server.rs` | the other end: an endless answer, and a sink |
//!
//! There is no TLS, which the draft allows: HTTP/2 in the clear, between two programs of taut. Each probe
//! waits for the one before, so that a slow line has fewer.

mod client;
mod result;
mod server;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::json;
use taut_core::congestion::Registry;

use crate::args::link::LinkArgs;
use crate::rpm::client::{Dialler, Direction};
use crate::rpm::result::Measured;
use crate::shared::log::LogArgs;
use crate::shared::{interrupt, output, progress};
use crate::stack;

/// Measures round trips a minute while the line is full
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    taut rpm --serve 7010                   # at the far end\n  \
    taut rpm server.example:7010\n  \
    taut gateway --run -- taut rpm server.example:7010\n  \
    taut rpm 10.9.0.1:7010 --stack --congestion bbr   # by a stack (as root)\n\n\
    Method: draft-ietf-ippm-responsiveness, without TLS. At 600, a round trip takes 100 ms.")]
pub(crate) struct RpmArgs {
    /// HOST:PORT of `taut rpm --serve`
    #[arg(required_unless_present = "serve")]
    server: Option<String>,
    /// Be the server, at this port of this host
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with_all = ["server", "stack", "json"])]
    serve: Option<String>,
    /// Measure this direction only
    #[arg(long, value_enum)]
    only: Option<Direction>,
    /// The most seconds for each direction
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=600))]
    max_time: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Send by a stack of taut's, not by this host's sockets
    #[arg(long)]
    stack: bool,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    link: LinkArgs,
}

/// Runs `taut rpm`.
///
/// # Errors
/// No server, or it is lost; for `--serve`, the port is in use.
pub(crate) fn run(args: &RpmArgs, controllers: &Registry) -> anyhow::Result<()> {
    if let Some(at) = &args.serve {
        args.log.start();
        let at = if at.contains(':') { at.clone() } else { format!("[::]:{at}") };
        let at = first(&at, "--serve")?;
        return interrupt::or_interrupted(server::serve(at));
    }
    let measured = interrupt::or_interrupted(measure(args, controllers))?;
    if args.json {
        let each = |(direction, found): &(Direction, Measured)| (direction.name().to_owned(), found.json());
        return output::print(&format!(
            "{}\n",
            json!(measured.iter().map(each).collect::<serde_json::Map<_, _>>())
        ));
    }
    let text: String = measured.iter().map(|(direction, found)| found.text(direction.name())).collect();
    output::print(&text)
}

fn first(text: &str, what: &str) -> anyhow::Result<SocketAddr> {
    let found = text.to_socket_addrs().with_context(|| format!("{what} {text}: write HOST:PORT"))?.next();
    found.with_context(|| format!("{what} {text} has no address"))
}

async fn measure(args: &RpmArgs, controllers: &Registry) -> anyhow::Result<Vec<(Direction, Measured)>> {
    let name = args.server.as_deref().unwrap_or_default();
    if !args.stack {
        return each(args, Dialler { to: first(name, "the server")?, stack: None }).await;
    }
    let target = args.link.target(name)?;
    let stack = stack::stack(&args.link, controllers)?;
    stack::while_up(&stack, async {
        args.link.auto.wait(&stack).await?;
        let to = target.address(&args.link, &stack).await?;
        each(args, Dialler { to, stack: Some(stack.clone()) }).await
    })
    .await
}

async fn each(args: &RpmArgs, dialler: Dialler) -> anyhow::Result<Vec<(Direction, Measured)>> {
    let mut all = Vec::new();
    for direction in [Direction::Down, Direction::Up] {
        if args.only.is_some_and(|only| only != direction) {
            continue;
        }
        let bar = progress::parts();
        bar.set_prefix(direction.name());
        let found = client::measure(&dialler, direction, Duration::from_secs(args.max_time), &bar).await;
        bar.finish_and_clear();
        all.push((direction, found?));
    }
    Ok(all)
}

/// The error for a server that is another program's.
fn not_one(to: SocketAddr) -> anyhow::Error {
    anyhow!("{to} is no server of `taut rpm`: start one there with `taut rpm --serve {}`", to.port())
}
