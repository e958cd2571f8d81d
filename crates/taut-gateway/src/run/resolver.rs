//! The name service: questions of guests and of a proxy's clients, sent to the host's name servers.
//!
//! The servers are those of `resolv.conf` at that moment (`host_files.rs`). Which of them get the question,
//! and when, is the logic's (`logic/questions.rs`). If none has a better answer, the guest gets the last that
//! says that a server cannot or will not serve it.
//!
//! Each question has a socket of its own at each server, whose port the kernel chooses at random (RFC 5452
//! §9.2), and the answer must come from the server that got the question. How many may wait is limited by the
//! gateway (`limits.rs`). Questions over TCP are sent over TCP.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use taut::{IncomingFlow, Stack, TcpStream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::logic::dns::{self, PATIENCE};
use crate::logic::flow::{Failure, NextStep, Side};
use crate::logic::questions::{Question, QuestionId, Tries};
use crate::logic::rules::any_port;
use crate::out::host_sockets::HostSockets;
use crate::run::host_files::{Hosts, ResolvConf, Watched};
use crate::run::server::{Handle, Server};
use crate::sandbox::Caller;
use crate::sandbox::outside::Known;

/// How long a server may take between two messages of a zone transfer.
const BETWEEN_MESSAGES: Duration = Duration::from_secs(10);
/// A question is a name and a few options; a longer one is no question.
const LONGEST_QUESTION: usize = 4_096;
const LARGEST: usize = 65_535;

/// Where names are looked up.
#[derive(Clone, Debug)]
pub struct Resolver {
    /// The name servers; without any, those in `resolv_conf`.
    pub servers: Vec<SocketAddr>,
    /// A `resolv.conf(5)`. A host that moves to another network has others there, so changes are noticed.
    pub resolv_conf: PathBuf,
    /// A `hosts(5)`, for the clients of a proxy.
    pub hosts: PathBuf,
    /// In a sandbox, the process outside opens the host's own two files.
    pub outside: Option<Arc<Caller>>,
    /// The stack by which the servers are reached; without one, the host's sockets. Of a zone transfer, it
    /// carries the first message.
    pub over: Option<Stack>,
    /// How the host reaches them.
    pub by: HostSockets,
}

impl Default for Resolver {
    fn default() -> Self {
        let (resolv_conf, hosts) = ("/etc/resolv.conf".into(), "/etc/hosts".into());
        let by = HostSockets::default();
        Self { servers: Vec::new(), resolv_conf, hosts, outside: None, over: None, by }
    }
}

/// A running [`Resolver`].
pub(crate) struct NameService {
    servers: Vec<SocketAddr>,
    over: Option<Stack>,
    by: HostSockets,
    // Of a sandbox, there is one each: the process outside opens a file once.
    resolv_conf: Arc<Watched<ResolvConf>>,
    hosts: Arc<Watched<Hosts>>,
}

impl NameService {
    pub(crate) fn new(resolver: Resolver) -> Self {
        let Resolver { servers, resolv_conf, hosts, outside, over, by } = resolver;
        if let Some(caller) = outside {
            let hosts = Watched::outside(Arc::clone(&caller), Known::Hosts, Hosts::read);
            let resolv_conf = Watched::outside(caller, Known::ResolvConf, ResolvConf::read);
            return Self { servers, over, by, resolv_conf: resolv_conf.into(), hosts: hosts.into() };
        }
        let resolv_conf = Watched::new(resolv_conf, ResolvConf::read).into();
        Self { servers, over, by, resolv_conf, hosts: Watched::new(hosts, Hosts::read).into() }
    }

    /// The host's own servers, by its own sockets, with the same files.
    pub(crate) fn of_host(&self) -> Self {
        let (resolv_conf, hosts) = (Arc::clone(&self.resolv_conf), Arc::clone(&self.hosts));
        Self { servers: Vec::new(), over: None, by: HostSockets::default(), resolv_conf, hosts }
    }

    fn servers(&self) -> Vec<SocketAddr> {
        if self.servers.is_empty() { self.resolv_conf.get().servers() } else { self.servers.clone() }
    }
}

/// A server's answer, and the connection on which more of it may follow.
type Reply = (Vec<u8>, Option<tokio::net::TcpStream>);

/// The answer to one question of a guest.
async fn answer(server: &Server, from: IpAddr, question: &[u8], over_tcp: bool) -> Option<Reply> {
    match server.question(from, question) {
        Question::Answer(answer) => Some((answer, None)),
        Question::Ignore => None,
        Question::Forward(id) => Some(forward(server, id, question, over_tcp).await),
    }
}

/// The addresses of one type that a name has, for a client of a proxy: those in the host's own file, or what
/// a name server answers.
pub(crate) async fn addresses(
    server: Server,
    from: IpAddr,
    name: Arc<str>,
    kind: u16,
) -> Result<Vec<IpAddr>, Failure> {
    let random = RandomState::new().hash_one(&name) as u16;
    let question = dns::ask(random, &name, kind).ok_or(Failure::HostUnreachable)?;
    let id = match server.question(from, &question) {
        Question::Forward(id) => id,
        Question::Answer(answer) if dns::is_refused(&answer) => return Err(Failure::Prohibited),
        Question::Answer(answer) => return Ok(dns::addresses(&answer, &question)),
        Question::Ignore => return Err(Failure::HostUnreachable),
    };
    if let Some(own) = server.names().hosts.get().of(&name) {
        let answer = dns::own(&question, own);
        server.reply(id, &answer);
        return Ok(dns::addresses(&answer, &question));
    }
    let (answer, _) = forward(&server, id, &question, false).await;
    let found = dns::addresses(&answer, &question);
    // RFC 7766 §5. What was cut off is better than nothing.
    if dns::is_truncated(&answer)
        && let Question::Forward(id) = server.question(from, &question)
    {
        let (whole, _) = forward(&server, id, &question, true).await;
        let all = dns::addresses(&whole, &question);
        return Ok(if all.is_empty() { found } else { all });
    }
    Ok(found)
}

/// Sends a question to the servers.
async fn forward(server: &Server, id: QuestionId, question: &[u8], over_tcp: bool) -> Reply {
    let mut tries = Tries::new(server.names().servers(), Instant::now());
    if let Some(good) = first_good(server, id, question, over_tcp, &mut tries).await {
        return good;
    }
    server.give_up(id);
    (tries.last_answer(question), None)
}

/// The first good answer.
async fn first_good(
    server: &Server,
    id: QuestionId,
    question: &[u8],
    over_tcp: bool,
    tries: &mut Tries<Instant>,
) -> Option<Reply> {
    let question: Arc<[u8]> = question.into();
    let mut asked = JoinSet::new();
    loop {
        while let Some(address) = tries.poll_server(Instant::now()) {
            let (server, question) = (server.clone(), Arc::clone(&question));
            asked.spawn(async move {
                match (server.names().over.clone(), over_tcp) {
                    (None, true) => over_stream(&server, id, address, &question).await,
                    (None, false) => over_datagrams(&server, id, address, &question).await,
                    (Some(stack), true) => link_stream(&stack, &server, id, address, &question).await,
                    (Some(stack), false) => link_datagrams(&stack, &server, id, address, &question).await,
                }
            });
        }
        if tries.is_over(Instant::now()) {
            return None;
        }
        tokio::select! {
            Some(ended) = asked.join_next() => match ended {
                Ok(Ok((answer, rest))) => {
                    if let Some(good) = tries.answered(Instant::now(), answer) {
                        return Some((good, rest));
                    }
                }
                Ok(Err(_)) | Err(_) => tries.failed(Instant::now()),
            },
            () = sleep_until(tries.deadline()) => {}
        }
    }
}

/// Sends a question by a connected socket, of the host or of a stack, which have the same methods. Answers to
/// other questions are ignored.
macro_rules! exchange {
    ($socket:ident, $server:ident, $id:ident, $question:ident) => {{
        $socket.send($question).await?;
        loop {
            tokio::select! {
                ready = $socket.readable() => ready?,
                () = sleep(PATIENCE.again) => {
                    $socket.send($question).await?;
                    continue;
                }
            }
            let mut answer = vec![0; LARGEST];
            let len = match $socket.try_recv(&mut answer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                len => len?,
            };
            if $server.reply($id, &answer[..len]) {
                answer.truncate(len);
                answer.shrink_to_fit();
                return Ok((answer, None));
            }
        }
    }};
}

async fn over_datagrams(
    server: &Server,
    id: QuestionId,
    address: SocketAddr,
    question: &[u8],
) -> io::Result<Reply> {
    let socket = server.names().by.question(address)?;
    socket.connect(address).await?;
    exchange!(socket, server, id, question)
}

async fn link_datagrams(
    stack: &Stack,
    server: &Server,
    id: QuestionId,
    address: SocketAddr,
    question: &[u8],
) -> io::Result<Reply> {
    let socket = taut::UdpSocket::bind(stack, any_port(address)).await?;
    socket.connect(address).await?;
    exchange!(socket, server, id, question)
}

async fn link_stream(
    stack: &Stack,
    server: &Server,
    id: QuestionId,
    address: SocketAddr,
    question: &[u8],
) -> io::Result<Reply> {
    let mut stream = stack.connect(address).await?;
    stream.write_all(&framed(question)).await?;
    let answer = message(&mut stream).await?;
    if server.reply(id, &answer) { Ok((answer, None)) } else { Err(io::ErrorKind::InvalidData.into()) }
}

async fn over_stream(
    server: &Server,
    id: QuestionId,
    address: SocketAddr,
    question: &[u8],
) -> io::Result<Reply> {
    let mut stream = server.names().by.stream(address)?.connect(address).await?;
    stream.write_all(&framed(question)).await?;
    let answer = message(&mut stream).await?;
    if server.reply(id, &answer) {
        Ok((answer, Some(stream)))
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// RFC 1035 §4.2.2: over TCP, two bytes with its length are in front of a message.
fn framed(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes()[..], message].concat()
}

async fn message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut message = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut message).await?;
    Ok(message)
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
            if let Some((answer, _)) = answer(&server, from, &question, false).await {
                // Without room the answer is lost, as any datagram, and the guest repeats its question.
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
        let Some((answer, rest)) = answer(server, from, &question, true).await else { continue };
        guest.write_all(&framed(&answer)).await?;
        flow.passed(Side::Upstream, answer.len(), 0);
        if let Some(stream) = rest.filter(|_| dns::is_transfer(&question)) {
            transfer(guest, stream, flow).await?;
        }
    }
}

/// The rest of a zone transfer, which is any number of messages (RFC 5936 §2.2). It is over if the server
/// ends or is silent after the guest has sent something else or ended its half; else its end is the guest's,
/// too.
async fn transfer(guest: &mut TcpStream, mut stream: tokio::net::TcpStream, flow: &Handle) -> io::Result<()> {
    let (mut is_over, mut first, mut one) = (false, [0], [0]);
    loop {
        let quiet = if is_over { PATIENCE.next } else { BETWEEN_MESSAGES };
        tokio::select! {
            ready = timeout(quiet, stream.peek(&mut first)) => match ready {
                Err(_) if is_over => return Ok(()),
                ready => _ = ready??,
            },
            more = guest.peek(&mut one), if !is_over => {
                more?;
                is_over = true;
                continue;
            }
        }
        let message = match timeout(BETWEEN_MESSAGES, message(&mut stream)).await? {
            Err(_) if is_over => return Ok(()),
            message => message?,
        };
        guest.write_all(&framed(&message)).await?;
        flow.passed(Side::Upstream, message.len(), 0);
    }
}
