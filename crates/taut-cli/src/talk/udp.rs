//! `taut udp`: a sink and source for `iperf3 -u` (`iperf.rs`), and an echo.

use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use taut::{SendMeta, Stack, UdpSocket};
use taut_core::congestion::Registry;
use tokio::task::JoinSet;

use crate::args::link::LinkArgs;
use crate::shared::{interrupt, output, stack, text};
use crate::talk::iperf;

/// Serves iperf3's UDP clients, and echoes datagrams.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a client on the same machine (as root):\n  \
    taut udp &\n  iperf3 -c 10.9.0.2 -u -b 100M\n  iperf3 -c 10.9.0.2 -u -b 100M -R\n\n\
    A test prints a line when it is over; with --json, a line of JSON on standard output. The echo is at UDP port 7.")]
pub(crate) struct UdpArgs {
    /// Port of iperf3, on every address of the stack
    #[arg(long, default_value_t = 5201, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Port of the echo
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    echo_port: u16,
    /// Print results as JSON lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// Runs `taut udp` until Ctrl-C.
///
/// # Errors
/// When the link cannot be used, or disappears.
pub(crate) fn run(args: &UdpArgs, controllers: &Registry) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let stack = stack::stack(&args.link, controllers)?;
        let mut servers = JoinSet::new();
        for own in &args.link.addresses {
            let at = SocketAddr::new(own.address(), args.port);
            let echo = SocketAddr::new(own.address(), args.echo_port);
            let listener = stack::listen(&stack, at).with_context(|| format!("cannot listen on {at}"))?;
            let socket = UdpSocket::bind_with(&stack, echo, &taut::DatagramOptions::default())
                .with_context(|| format!("cannot open UDP port {echo}"))?;
            servers.spawn(serve_echo(socket));
            servers.spawn(serve_iperf(stack.clone(), listener, args.json));
            eprintln!("taut: iperf3 -u at {at}, an echo at {echo} (Ctrl-C stops)");
        }
        let asked = async { interrupt::asked_to_end().await.map_err(anyhow::Error::from) };
        let ended = stack::while_up(&stack, asked).await;
        servers.abort_all();
        crate::args::record::warn(&stack);
        ended
    });
    runtime.shutdown_background();
    result
}

/// Sends back what comes, to where it came from.
async fn serve_echo(socket: UdpSocket) {
    let mut datagram = vec![0; usize::from(u16::MAX)];
    loop {
        let received = match socket.recv_with(&mut datagram).await {
            Ok(received) => received,
            // What ICMP says of one answer is nothing to the others.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(_) => return,
        };
        let meta = SendMeta { src: Some(received.to), ..SendMeta::default() };
        // One that cannot be answered is not.
        _ = socket.send_with(&datagram[..received.len], Some(received.from), &meta).await;
    }
}

/// One test after the other.
async fn serve_iperf(stack: Stack, listener: taut::TcpListener, as_json: bool) {
    while let Ok((control, peer)) = listener.accept().await {
        match iperf::serve(&stack, control).await {
            Ok(outcome) => report(&outcome, as_json),
            Err(error) => eprintln!("{peer} {error:#}"),
        }
    }
}

fn report(outcome: &iperf::Outcome, as_json: bool) {
    let iperf::Outcome { peer, reverse, streams, took } = outcome;
    let bytes: u64 = streams.iter().map(|stream| stream.bytes).sum();
    let packets: u64 = streams.iter().map(|stream| stream.packets).sum();
    let lost: u64 = streams.iter().map(iperf::Stream::lost).sum();
    if as_json {
        let line = json!({
            "peer": peer.to_string(), "sent": reverse, "streams": streams.len(), "bytes": bytes, "datagrams": packets,
            "lost": if *reverse { None } else { Some(lost) }, "seconds": took.as_secs_f64(),
        });
        _ = output::print(&format!("{line}\n"));
        return;
    }
    let rate = text::rate(bytes, *took);
    let grouped = text::grouped(packets);
    if *reverse {
        eprintln!("{peer} got {grouped} datagrams, {rate}");
    } else {
        let lost = text::grouped(lost);
        eprintln!("{peer} sent {grouped} datagrams that came and {lost} that did not, {rate}");
    }
}
