//! Connecting for `send` and `get`: says when it takes long, and what to do when it fails.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;

use crate::net;

/// A peer that is there answers sooner, also by the second SYN, which leaves after one second.
const LONG: Duration = Duration::from_secs(3);

/// Connects.
///
/// # Errors
/// Why it failed, and what to do.
pub async fn dial(stack: &taut::Stack, to: SocketAddr) -> anyhow::Result<taut::TcpStream> {
    let mut connecting = std::pin::pin!(net::connect(stack, to));
    let connected = tokio::select! {
        connected = &mut connecting => connected,
        () = tokio::time::sleep(LONG) => {
            eprintln!("taut: no answer from {to} yet; Ctrl-C gives up");
            connecting.await
        }
    };
    connected.map_err(|error| explain(to, &error))
}

fn explain(to: SocketAddr, error: &io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => "\n  Nothing listens there: start the server first.",
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "\n  Is the address right? To hosts beyond this machine the kernel must forward packets \
             (sysctl net.ipv4.ip_forward=1), and they need a route back to the stack's network."
        }
        _ => "",
    };
    anyhow!("cannot connect to {to}: {error}{advice}")
}
