//! `taut send` and `taut recv`: standard input to a connection, a connection to standard output.
//!
//! A transfer that fails or is interrupted by Ctrl-C resets its connection, so that the peer does not mistake
//! the received part for the whole.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::ProgressBar;
use taut_core::congestion::Registry;
use taut_testbed::Meter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::args::link::LinkArgs;
use crate::shared::clock::Stopwatch;
use crate::shared::log::{self, Level};
use crate::shared::{interrupt, output, progress};
use crate::stack;
use crate::talk::dial::dial;
use crate::talk::summary::Summary;

const CHUNK_BYTES: usize = 256 * 1024;
/// SO_LINGER of zero: dropping the connection resets it.
const ABORT: Option<Duration> = Some(Duration::ZERO);

/// Sends standard input over one TCP connection.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a kernel peer on the same machine (as root):\n  \
    nc -l -p 7000 > copy &\n  taut send 10.9.0.1:7000 < file\n  taut send 10.9.0.1:7000 --congestion bbr < file\n\
    \x20 taut send 10.9.0.1:7000 --priority realtime:1 < file\n\n\
    The summary goes to standard error; with --json, it is one object on standard output.")]
pub(crate) struct SendArgs {
    /// Destination; [ADDRESS]:PORT for IPv6
    #[arg(value_name = "HOST:PORT")]
    to: String,
    /// Print the summary as JSON on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// Receives one TCP connection to standard output.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a kernel peer on the same machine (as root):\n  \
    taut recv --listen 7000 > copy &\n  nc -N 10.9.0.2 7000 < file\n\n\
    Standard output carries the data, so the summary goes to standard error, even with --json.")]
pub(crate) struct RecvArgs {
    /// Port on every address of the stack, or ADDRESS:PORT
    #[arg(long, value_name = "PORT", value_parser = listen_address)]
    listen: Listen,
    /// Print the summary as JSON on standard error
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// A port, and the address to listen on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Listen {
    address: Option<IpAddr>,
    port: u16,
}

/// Reads `PORT` or `ADDRESS:PORT`.
fn listen_address(text: &str) -> Result<Listen, String> {
    let parsed = match (text.parse::<u16>(), text.parse::<SocketAddr>()) {
        (Ok(port), _) => Some(Listen { address: None, port }),
        (_, Ok(at)) => Some(Listen { address: Some(at.ip()), port: at.port() }),
        _ => None,
    };
    match parsed {
        Some(listen) if listen.port != 0 => Ok(listen),
        _ => Err("not a port (1 to 65535) or ADDRESS:PORT".to_owned()),
    }
}

impl Listen {
    /// The sockets to bind: at the given address, or at each of the stack's.
    fn addresses(self, own: &[IpAddr]) -> anyhow::Result<Vec<SocketAddr>> {
        let all = own.iter().copied();
        let chosen: Vec<IpAddr> = match self.address {
            Some(address) => all.filter(|own| *own == address).collect(),
            None => all.collect(),
        };
        if let (Some(address), []) = (self.address, &chosen[..]) {
            bail!("--listen {address}:{}: the stack has no such address; add it with --address", self.port);
        }
        Ok(chosen.into_iter().map(|address| SocketAddr::new(address, self.port)).collect())
    }
}

/// Runs `taut send`.
///
/// # Errors
/// When the link, the connection or standard input fails.
pub(crate) fn send(args: &SendArgs, controllers: &Registry) -> anyhow::Result<()> {
    let target = args.link.target(&args.to)?;
    let total =
        std::fs::metadata("/dev/stdin").ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    let stack = stack::stack(&args.link, controllers)?;
    let work = async {
        args.link.auto.wait(&stack).await?;
        let to = target.address(&args.link, &stack).await?;
        let mut stream = dial(&stack, to, None).await?;
        stream.set_linger(ABORT)?;
        let watch = Stopwatch::start();
        let bar = progress::bytes(total);
        let failed =
            |written: io::Result<()>| written.with_context(|| format!("the connection to {to} failed"));
        let meter = copy(&mut tokio::io::stdin(), &mut stream, &bar, failed).await?;
        stream.shutdown().await?;
        // The end of the peer's stream means that it has received ours.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await.with_context(|| format!("the connection to {to} failed"))? > 0 {}
        stream.set_linger(None)?;
        let time = watch.elapsed();
        bar.finish_and_clear();
        Ok(Summary { verb: "sent", peer: to, bytes: meter.bytes(), time, sha256: meter.finish() })
    };
    let summary = interrupt::or_interrupted(stack::while_up(&stack, work))?;
    stack::finish(stack)?;
    if args.json {
        output::print(&summary.text(true))?;
    } else {
        io::stderr().write_all(summary.text(false).as_bytes())?;
    }
    Ok(())
}

/// Runs `taut recv`.
///
/// # Errors
/// When the link, the connection or standard output fails.
pub(crate) fn recv(args: &RecvArgs, controllers: &Registry) -> anyhow::Result<()> {
    let given: Vec<_> = args.link.given().iter().map(|own| own.address()).collect();
    if !args.link.auto.is_on() {
        // Before anything is opened.
        args.listen.addresses(&given)?;
    }
    let stack = stack::stack(&args.link, controllers)?;
    let work = async {
        args.link.auto.wait(&stack).await?;
        let at = args.listen.addresses(&args.link.own_addresses(&stack))?;
        let (mut stream, peer) = accept_one(&stack, &at).await?;
        stream.set_linger(ABORT)?;
        let watch = Stopwatch::start();
        let bar = progress::bytes(None);
        let meter = copy(&mut stream, &mut tokio::io::stdout(), &bar, output::written)
            .await
            .with_context(|| format!("receiving from {peer}"))?;
        let time = watch.elapsed();
        bar.finish_and_clear();
        stream.set_linger(None)?;
        Ok(Summary { verb: "received", peer, bytes: meter.bytes(), time, sha256: meter.finish() })
    };
    let summary = interrupt::or_interrupted(stack::while_up(&stack, work))?;
    stack::finish(stack)?;
    io::stderr().write_all(summary.text(args.json).as_bytes())?;
    Ok(())
}

/// The first connection to any of the addresses.
async fn accept_one(stack: &taut::Stack, at: &[SocketAddr]) -> anyhow::Result<(taut::TcpStream, SocketAddr)> {
    let mut accepting = tokio::task::JoinSet::new();
    for &at in at {
        let listener = stack::listen(stack, at).with_context(|| format!("cannot listen on {at}"))?;
        log::notice(Level::Info, "listening", &format!("listening on {at}"));
        accepting.spawn(async move { listener.accept().await });
    }
    Ok(accepting.join_next().await.context("no address to listen on")???)
}

/// Copies to the end, counting and hashing. `written` makes an error of the command of one of `to`.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    bar: &ProgressBar,
    written: impl Fn(io::Result<()>) -> anyhow::Result<()>,
) -> anyhow::Result<Meter> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut meter = Meter::default();
    loop {
        let count = from.read(&mut chunk).await.context("reading failed")?;
        if count == 0 {
            break;
        }
        let write = async {
            to.write_all(&chunk[..count]).await?;
            // Flushed, because standard output would otherwise keep the data until the end of a line.
            to.flush().await
        };
        written(write.await)?;
        meter.update(&chunk[..count]);
        bar.set_position(meter.bytes());
    }
    Ok(meter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_is_a_port_or_has_one() {
        assert_eq!(listen_address("80"), Ok(Listen { address: None, port: 80 }));
        assert_eq!(listen_address("[fd00::1]:80").unwrap().port, 80);
        for wrong in ["0", "65536", "x", "10.0.0.1", "10.0.0.1:0", ""] {
            assert!(listen_address(wrong).is_err(), "{wrong}");
        }
    }
}
