//! `taut send` and `taut recv`: standard input to a connection, a connection to standard output.
//!
//! The transfer runs on a thread of its own with blocking sockets, and the main thread waits for it or for Ctrl-C. On
//! Ctrl-C the connection is aborted (the peer sees a reset, not an end of data that looks complete).

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use anyhow::Context as _;
use clap::Args;
use indicatif::ProgressBar;

use crate::clock::Stopwatch;
use crate::digest::Meter;
use crate::link_args::LinkArgs;
use crate::net::Taut;
use crate::summary::Summary;
use crate::transport::Transport as _;
use crate::{interrupt, net, progress};

const CHUNK_BYTES: usize = 256 * 1024;

/// Sends standard input over one TCP connection.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a kernel peer on the same machine:\n  \
    nc -l -p 7000 > copy &\n  taut send 10.9.0.1:7000 < file\n\n\
    The summary goes to standard error; with --json, one object goes to standard output.")]
pub struct SendArgs {
    /// Where to: a name or an address, and a port; [ADDRESS]:PORT for IPv6
    #[arg(value_name = "HOST:PORT")]
    to: String,
    #[command(flatten)]
    link: LinkArgs,
    /// Print the summary as JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Receives one TCP connection to standard output.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a kernel peer on the same machine:\n  \
    taut recv --listen 7000 > copy &\n  nc -N 10.9.0.2 7000 < file\n\n\
    Standard output carries the data, so the summary goes to standard error, with --json too.")]
pub struct RecvArgs {
    /// Port to listen on, on every address of the stack, or ADDRESS:PORT
    #[arg(long, value_name = "PORT", value_parser = listen_address)]
    listen: Listen,
    #[command(flatten)]
    link: LinkArgs,
    /// Print the summary as JSON, on standard error
    #[arg(long)]
    json: bool,
}

/// A port, and on which address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Listen {
    address: Option<IpAddr>,
    port: u16,
}

/// Reads `PORT` or `ADDRESS:PORT`.
pub(crate) fn listen_address(text: &str) -> Result<Listen, String> {
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
    /// The sockets to bind: the one address, or each of the stack's.
    pub(crate) fn addresses(self, link: &LinkArgs) -> Vec<SocketAddr> {
        match self.address {
            Some(address) => vec![SocketAddr::new(address, self.port)],
            None => link.addresses.iter().map(|own| SocketAddr::new(own.address(), self.port)).collect(),
        }
    }
}

/// Runs `taut send`.
///
/// # Errors
/// When the link, the connection or standard input fails.
pub fn send(args: &SendArgs) -> anyhow::Result<()> {
    let to = args.link.resolve(&args.to)?;
    let total =
        std::fs::metadata("/dev/stdin").ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    let stack = net::stack(&args.link)?;
    let transport = Taut(stack.clone());
    let summary = interrupt::or_interrupt(move || {
        let mut stream = transport.connect(to).with_context(|| format!("cannot connect to {to}"))?;
        let watch = Stopwatch::start();
        let bar = progress::bytes(total);
        let meter = copy(&mut io::stdin().lock(), &mut stream, &bar, &format!("the connection to {to}"))?;
        stream.shutdown(std::net::Shutdown::Write)?;
        // The peer's end of data says that it has taken ours.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).with_context(|| format!("the connection to {to} failed"))? > 0 {}
        let time = watch.elapsed();
        bar.finish_and_clear();
        Ok(Summary { verb: "sent", peer: to, bytes: meter.bytes(), time, sha256: meter.finish() })
    })?;
    drop(stack);
    if args.json {
        summary.write(&mut io::stdout(), true)?
    } else {
        summary.write(&mut io::stderr(), false)?
    }
    Ok(())
}

/// Runs `taut recv`.
///
/// # Errors
/// When the link, the connection or standard output fails.
pub fn recv(args: &RecvArgs) -> anyhow::Result<()> {
    let stack = net::stack(&args.link)?;
    let at = args.listen.addresses(&args.link);
    let transport = Taut(stack.clone());
    let summary = interrupt::or_interrupt(move || {
        let (mut stream, peer) = accept_one(&transport, &at)?;
        let watch = Stopwatch::start();
        let bar = progress::bytes(None);
        let meter = copy(&mut stream, &mut io::stdout().lock(), &bar, "standard output")
            .with_context(|| format!("receiving from {peer}"))?;
        let time = watch.elapsed();
        bar.finish_and_clear();
        stream.shutdown(std::net::Shutdown::Write)?;
        Ok(Summary { verb: "received", peer, bytes: meter.bytes(), time, sha256: meter.finish() })
    })?;
    drop(stack);
    summary.write(&mut io::stderr(), args.json)?;
    Ok(())
}

/// The first connection to any of the addresses.
fn accept_one(
    transport: &Taut,
    at: &[SocketAddr],
) -> anyhow::Result<(taut::blocking::TcpStream, SocketAddr)> {
    let (winner, first) = std::sync::mpsc::channel();
    for &at in at {
        let listener = transport.listen(at).with_context(|| format!("cannot listen on {at}"))?;
        eprintln!("taut: listening on {at}");
        let winner = winner.clone();
        std::thread::Builder::new().name("accept".into()).spawn(move || winner.send(listener.accept()))?;
    }
    Ok(first.recv().context("no address to listen on")??)
}

/// Copies to the end, counting and hashing.
fn copy(from: &mut impl Read, to: &mut impl Write, bar: &ProgressBar, target: &str) -> anyhow::Result<Meter> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut meter = Meter::default();
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("reading failed"),
        };
        to.write_all(&chunk[..count]).with_context(|| format!("writing to {target} failed"))?;
        meter.update(&chunk[..count]);
        bar.set_position(meter.bytes());
    }
    to.flush().with_context(|| format!("writing to {target} failed"))?;
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
