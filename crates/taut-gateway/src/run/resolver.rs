//! Questions of guests, asked of the host's name servers: those in `/etc/resolv.conf` at that moment, one
//! after the other.
//!
//! Each question has a socket of its own, whose port the kernel chooses at random (RFC 5452 §9.2), and the
//! answer must come from the server that was asked. How many may wait, and for how long in all, is the
//! gateway's affair (`limits.rs`). Questions over TCP are asked over TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use taut::{IncomingFlow, TcpStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;

use crate::logic::dns::{self, Refused};
use crate::logic::flow::{NextStep, Side};
use crate::logic::gateway::{Question, QuestionId};
use crate::logic::rules::any_port;
use crate::run::server::{Handle, Server};

/// How long a server may take before the next one is asked.
const PATIENCE: Duration = Duration::from_secs(3);
/// As the C library: further ones are not asked.
const MAX_SERVERS: usize = 3;
/// A question is a name and a few options; a longer one is no question.
const LONGEST_QUESTION: usize = 4_096;
const LARGEST: usize = 65_535;

/// The name servers of this host.
#[derive(Clone, Debug)]
pub enum Resolver {
    /// Those in this file, which is read for each question: a host that moves to another network has others
    /// there.
    File(PathBuf),
    /// These.
    Servers(Vec<SocketAddr>),
}

impl Default for Resolver {
    fn default() -> Self {
        Self::File("/etc/resolv.conf".into())
    }
}

impl Resolver {
    fn servers(&self) -> Vec<SocketAddr> {
        match self {
            Self::Servers(servers) => servers.clone(),
            Self::File(path) => servers(&std::fs::read_to_string(path).unwrap_or_default()),
        }
    }
}

/// The servers in a `resolv.conf`; this host if there is none (`resolv.conf(5)`).
fn servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        let address: IpAddr = words.next().filter(|_| is_server)?.parse().ok()?;
        Some(SocketAddr::new(address, 53))
    };
    let mut servers: Vec<_> = text.lines().filter_map(server).take(MAX_SERVERS).collect();
    if servers.is_empty() {
        servers.push((Ipv4Addr::LOCALHOST, 53).into());
    }
    servers
}

/// The answer to one question.
pub(crate) async fn answer(
    server: &Server,
    from: IpAddr,
    question: &[u8],
    over_tcp: bool,
) -> Option<Vec<u8>> {
    let id = match server.question(from, question) {
        Question::Answer(answer) => return Some(answer),
        Question::Ignore => return None,
        Question::Forward(id) => id,
    };
    for address in server.resolver().servers() {
        let asked = async {
            if over_tcp {
                over_stream(server, id, address, question).await
            } else {
                over_datagrams(server, id, address, question).await
            }
        };
        if let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, asked).await {
            return Some(answer);
        }
    }
    server.give_up(id);
    Some(dns::refusal(question, Refused::Failure))
}

/// Answers to other questions are ignored.
async fn over_datagrams(
    server: &Server,
    id: QuestionId,
    address: SocketAddr,
    question: &[u8],
) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind(any_port(address)).await?;
    socket.connect(address).await?;
    socket.send(question).await?;
    let mut answer = vec![0; LARGEST];
    loop {
        let len = socket.recv(&mut answer).await?;
        if server.reply(id, &answer[..len]) {
            answer.truncate(len);
            return Ok(answer);
        }
    }
}

async fn over_stream(
    server: &Server,
    id: QuestionId,
    address: SocketAddr,
    question: &[u8],
) -> io::Result<Vec<u8>> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(&framed(question)).await?;
    let len = stream.read_u16().await?;
    let mut answer = vec![0; len.into()];
    stream.read_exact(&mut answer).await?;
    if server.reply(id, &answer) { Ok(answer) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// RFC 1035 §4.2.2: over TCP, two bytes with its length are in front of a message.
fn framed(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes()[..], message].concat()
}

/// Questions in datagrams.
pub(crate) async fn udp(incoming: IncomingFlow, from: IpAddr, server: &Server, flow: Handle) {
    if flow.reached() != NextStep::Accept {
        return;
    }
    let Ok(guest) = incoming.accept_udp() else { return };
    let (guest, mut message) = (Arc::new(guest), vec![0; LONGEST_QUESTION]);
    loop {
        let len = tokio::select! {
            len = guest.recv(&mut message) => len,
            () = flow.stopped() => return,
        };
        let Ok(len) = len else { return };
        flow.passed(Side::Guest, len, 0);
        let (guest, question, server) = (Arc::clone(&guest), message[..len].to_vec(), server.clone());
        // The gateway bounds how many wait.
        tokio::spawn(async move {
            if let Some(answer) = answer(&server, from, &question, false).await {
                // Without room the answer is lost, as any datagram, and the guest asks again.
                _ = guest.try_send(&answer);
            }
        });
    }
}

/// Questions on a connection, one after the other.
pub(crate) async fn tcp(incoming: IncomingFlow, from: IpAddr, server: &Server, flow: Handle) {
    if flow.reached() != NextStep::Accept {
        return;
    }
    let Ok(mut guest) = incoming.accept().await else { return };
    flow.answered();
    tokio::select! {
        _ = questions(&mut guest, from, server, &flow) => {}
        () = flow.stopped() => guest.abort(),
    }
}

async fn questions(guest: &mut TcpStream, from: IpAddr, server: &Server, flow: &Handle) -> io::Result<()> {
    loop {
        let len = usize::from(guest.read_u16().await?);
        if len > LONGEST_QUESTION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut question = vec![0; len];
        guest.read_exact(&mut question).await?;
        flow.passed(Side::Guest, len, 0);
        if let Some(answer) = answer(server, from, &question, true).await {
            guest.write_all(&framed(&answer)).await?;
            flow.passed(Side::Upstream, answer.len(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_25_name_servers_of_resolv_conf() {
        let of = |text: &str| servers(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            of("# no\nsearch a b\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 # x\n"),
            ["192.0.2.1:53", "[2001:db8::1]:53"]
        );
        assert_eq!(of("nameserver\nnameserver x\n;nameserver 192.0.2.1\n"), ["127.0.0.1:53"]);
        assert_eq!(of(&"nameserver 192.0.2.1\n".repeat(5)).len(), 3);
    }
}
