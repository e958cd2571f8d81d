//! Connecting for `send` and `get`: reports when it takes long, and gives advice when it fails.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;

use crate::stack;

/// A running peer answers sooner than this, even if only to the second SYN, which leaves after one second.
const LONG: Duration = Duration::from_secs(3);

/// Connects, within this time if there is a limit.
///
/// # Errors
/// The reason for the failure, with advice.
pub(crate) async fn dial(
    stack: &taut::Stack,
    to: SocketAddr,
    within: Option<Duration>,
) -> anyhow::Result<taut::TcpStream> {
    let mut connecting = std::pin::pin!(stack::connect(stack, to));
    let connect = async {
        tokio::select! {
            connected = &mut connecting => connected,
            () = tokio::time::sleep(LONG) => {
                eprintln!("taut: no answer from {to} yet; Ctrl-C gives up");
                connecting.await
            }
        }
    };
    let connected = match within {
        Some(limit) => tokio::time::timeout(limit, connect).await.unwrap_or_else(|_| {
            let why = format!("no answer within {} s (--connect-timeout)", limit.as_secs_f64());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }),
        None => connect.await,
    };
    connected.map_err(|error| explain(to, &error))
}

fn explain(to: SocketAddr, error: &io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => "\n  Nothing listens there: start the server first.",
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "\n  Check the address. Through a tunnel, it must be in the AllowedIPs of a peer that answers \
             (`taut wg show`). Over a TUN, to reach other hosts, the kernel must forward packets \
             (sysctl net.ipv4.ip_forward=1), and these hosts need a route back to the stack's network."
        }
        _ => "",
    };
    anyhow!("cannot connect to {to}: {error}{advice}")
}
