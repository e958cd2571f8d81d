//! `taut serve`: the file server of `serve.rs` on a stack.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use futures_util::FutureExt as _;
use taut_core::congestion::Registry;
use tokio::sync::Notify;

use crate::args::link::LinkArgs;
use crate::args::record;
use crate::shared::interrupt;
use crate::shared::log::{self, Level, LogArgs};
use crate::shared::output::ReaderGone;
use crate::stack;
use crate::talk::serve::{Requests, serve};

/// Serves the files of a directory over HTTP/1.1.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a client on the same machine (as root):\n  \
    taut serve . &\n  curl http://10.9.0.2/README.md\n  taut serve . --congestion bbr\n\n\
    Range and conditional requests are supported. For a directory, its index.html is served. Symbolic links are \
    followed.")]
pub(crate) struct ServeArgs {
    /// Directory to serve
    dir: PathBuf,
    /// Port on every address of the stack
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Print requests as JSON lines on standard output, not in the log
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    link: LinkArgs,
}

/// Runs `taut serve` until Ctrl-C.
///
/// # Errors
/// When the directory or the link cannot be used, or the link disappears.
pub(crate) fn run(args: &ServeArgs, controllers: &Registry) -> anyhow::Result<()> {
    let dir = args.dir.canonicalize().with_context(|| format!("cannot serve {}", args.dir.display()))?;
    if !dir.is_dir() {
        bail!("{} is not a directory; give the directory that has the file", args.dir.display());
    }
    std::fs::read_dir(&dir).with_context(|| format!("cannot serve {}", args.dir.display()))?;
    args.log.start();
    let gone = Arc::new(Notify::new());
    let requests = if args.json { Requests::Json(Arc::clone(&gone)) } else { Requests::Log };
    let mut records = Vec::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let stack = stack::stack(&args.link, controllers)?;
        records = stack.recording_handles();
        let (stop, stopped) = tokio::sync::watch::channel(());
        stack::while_up(&stack, args.link.auto.wait(&stack)).await?;
        let asked = interrupt::asked_to_end()?;
        let mut servers = tokio::task::JoinSet::new();
        for own in args.link.own_addresses(&stack) {
            let at = std::net::SocketAddr::new(own, args.port);
            let listener = stack::listen(&stack, at).with_context(|| format!("cannot listen on {at}"))?;
            let (files, requests, mut stopped) = (dir.clone(), requests.clone(), stopped.clone());
            let stop = async move { _ = stopped.changed().await };
            servers.spawn(async move { serve(listener, &files, requests, stop).await });
            let port = if args.port == 80 { String::new() } else { format!(":{}", args.port) };
            let host = if at.is_ipv6() { format!("[{}]", at.ip()) } else { at.ip().to_string() };
            let text = format!("serving {} at http://{host}{port}/ (Ctrl-C stops)", dir.display());
            log::notice(Level::Info, "serving", &text);
        }
        let no_reader = async { Err(gone.notified().map(|()| ReaderGone).await.into()) };
        let end = async {
            tokio::select! { end = asked.map(Ok) => end, end = no_reader => end }
        };
        let ended = stack::while_up(&stack, end).await;
        drop(stop);
        while servers.join_next().await.is_some() {}
        if ended.is_ok() {
            log::notice(Level::Info, "stopped", "stopped");
        }
        ended
    });
    // Its tasks have the stack, whose recording is whole when the last of them is gone.
    runtime.shutdown_timeout(record::LONGEST_END);
    result.and_then(|()| record::check(&records))
}
