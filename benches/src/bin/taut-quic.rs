//! QUIC by quinn over taut's UDP and over the kernel's, in turns: a gigabyte each way, with quinn over the
//! kernel's UDP as peer. The adapter is that of taut's example `quic`.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};
use quinn::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, RecvStream, ServerConfig, TokioRuntime,
    TransportConfig,
};
use taut::{Bytes, Stack};
use taut_bench::cpu;
use taut_bench::net::{LOCAL, Link, Near, PEER, PORT};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[path = "../../../crates/taut/examples/quic/adapter.rs"]
mod adapter;

/// Not measured: slow start, and the search for the MTU.
const WARM_UP_BYTES: u64 = 50_000_000;
/// Bytes of a write.
const CHUNK: usize = 128 << 10;
/// Of the kernel's sockets; those of taut's have the same.
const BUFFER_BYTES: usize = 2 << 20;
const NAME: &str = "peer.test";

/// QUIC over taut's UDP beside QUIC over the kernel's.
#[derive(Parser)]
#[command(after_help = "Example:\n  taut-quic --rounds 5 --congestion bbr")]
struct Args {
    /// Rounds; in each, every stack runs once each way
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Bytes of each transfer, in millions
    #[arg(long, default_value_t = 1000)]
    megabytes: u64,
    /// quinn's congestion control, at both ends
    #[arg(long, value_enum, default_value = "cubic")]
    congestion: Congestion,
    /// Only these stacks
    #[arg(long, value_enum, value_delimiter = ',')]
    stacks: Vec<Which>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Congestion {
    Cubic,
    NewReno,
    Bbr,
}

/// The UDP below the quinn that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The kernel's UDP, over veth
    Kernel,
    /// taut on a thread of its own, over a TUN
    Taut,
    /// taut inside quinn's runtime, over a TUN
    Tokio,
}

impl Which {
    const ALL: [Self; 3] = [Self::Kernel, Self::Taut, Self::Tokio];

    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel, veth",
            Self::Taut => "taut, own thread",
            Self::Tokio => "taut, in the runtime",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Send,
    Receive,
}

/// One transfer.
struct Outcome {
    gbit_per_s: f64,
    /// CPU-seconds per GB of the measured side, and of both.
    cpu: f64,
    cpu_both: f64,
    /// Datagrams that the sender declared lost, of so many, in so many sends.
    lost: u64,
    datagrams: u64,
    sends: u64,
    /// Cores that other processes used.
    disturbance: f64,
}

fn transport(congestion: Congestion) -> TransportConfig {
    let mut config = TransportConfig::default();
    match congestion {
        Congestion::Cubic => config.congestion_controller_factory(Arc::new(CubicConfig::default())),
        Congestion::NewReno => config.congestion_controller_factory(Arc::new(NewRenoConfig::default())),
        Congestion::Bbr => config.congestion_controller_factory(Arc::new(BbrConfig::default())),
    };
    config
}

fn configs(congestion: Congestion) -> Result<(ServerConfig, ClientConfig)> {
    let certified = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let certificate = certified.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let mut server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
    server.transport_config(Arc::new(transport(congestion)));
    client.transport_config(Arc::new(transport(congestion)));
    Ok((server, client))
}

/// An endpoint over the kernel's UDP, with large buffers. Called in a namespace and in a runtime.
fn kernel_endpoint(at: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = UdpSocket::bind(at)?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)?;
    set_send_buffer(&socket)?;
    Ok(Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))?)
}

fn set_send_buffer(socket: &UdpSocket) -> Result<()> {
    use std::os::fd::AsRawFd as _;
    let bytes = BUFFER_BYTES as libc::c_int;
    // SAFETY: an option whose value is an integer.
    let done = unsafe {
        let value = (&raw const bytes).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, value, 4)
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

async fn drain(mut recv: RecvStream) -> Result<u64> {
    let mut came = 0;
    while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
        came += chunk.bytes.len() as u64;
    }
    Ok(came)
}

async fn pour(send: &mut quinn::SendStream, bytes: u64) -> Result<()> {
    let part = Bytes::from(vec![0x5a; CHUNK]);
    let mut left = bytes;
    while left > 0 {
        let count = left.min(CHUNK as u64);
        send.write_chunk(part.slice(..count as usize)).await?;
        left -= count;
    }
    send.finish()?;
    Ok(())
}

/// The peer: on each stream, takes all and answers with as many bytes as the first eight say, but at least
/// with one. Tells its datagrams sent, sends and datagrams lost when the connection is over.
async fn serve(endpoint: Endpoint, told: UnboundedSender<[u64; 3]>) -> Result<()> {
    let connection = endpoint.accept().await.context("no connection")?.await?;
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        let mut wanted = [0; 8];
        recv.read_exact(&mut wanted).await?;
        drain(recv).await?;
        pour(&mut send, u64::from_be_bytes(wanted).max(1)).await?;
        let _ = send.stopped().await;
        let _ = told.send(sent_by(&connection));
    }
    endpoint.wait_idle().await;
    Ok(())
}

fn sent_by(connection: &Connection) -> [u64; 3] {
    let stats = connection.stats();
    [stats.udp_tx.datagrams, stats.udp_tx.ios, stats.path.lost_packets]
}

async fn transfer(connection: &Connection, way: Way, bytes: u64) -> Result<()> {
    let (mut send, recv) = connection.open_bi().await?;
    let (out, back) = if way == Way::Send { (bytes, 1) } else { (0, bytes) };
    send.write_all(&back.to_be_bytes()).await?;
    pour(&mut send, out).await?;
    let came = drain(recv).await?;
    if came != back {
        bail!("{came} bytes instead of {back}");
    }
    Ok(())
}

fn measure(which: Which, way: Way, args: &Args) -> Result<Outcome> {
    let (for_server, for_client) = configs(args.congestion)?;
    let link = if which == Which::Kernel { Link::veth()? } else { Link::tun()? };
    let Link { near, peer } = link;
    let (told, mut hear) = unbounded_channel();
    let (say_ready, ready) = mpsc::channel();
    let far = peer.thread("peer", move || -> Result<()> {
        runtime()?.block_on(async {
            let endpoint = kernel_endpoint((PEER, PORT).into(), Some(for_server))?;
            say_ready.send(cpu::tid())?;
            serve(endpoint, told).await
        })
    })?;
    let others = BTreeSet::from([ready.recv().context("the peer did not begin")?]);
    let runtime = runtime()?;
    let from = SocketAddr::from((LOCAL, 0));
    let _inside = runtime.enter();
    let _near_end;
    let (endpoint, _stack) = match near {
        Near::Kernel(kernel) => {
            let handle = runtime.handle().clone();
            let endpoint = kernel.enter(|| {
                let _inside = handle.enter();
                kernel_endpoint(from, None)
            })??;
            _near_end = kernel;
            (endpoint, None)
        }
        Near::Tun(tun) => {
            let builder = Stack::builder().device(tun).address(&format!("{LOCAL}/24"));
            let stack = if which == Which::Tokio { builder.build_tokio()? } else { builder.build()? };
            (adapter::endpoint(&stack, from, None)?, Some(stack))
        }
    };
    let mut endpoint = endpoint;
    endpoint.set_default_client_config(for_client);
    let bytes = args.megabytes * 1_000_000;
    let outcome = runtime.block_on(async {
        let connection = endpoint.connect((PEER, PORT).into(), NAME)?.await?;
        transfer(&connection, way, WARM_UP_BYTES).await?;
        let warm = hear.recv().await.context("the peer has ended")?;
        let before = if way == Way::Send { sent_by(&connection) } else { warm };
        let (own, all, machine) = (cpu::of_threads_except(&others)?, cpu::of_process(), cpu::of_machine()?);
        let begin = Instant::now();
        transfer(&connection, way, bytes).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let own = (cpu::of_threads_except(&others)? - own).as_secs_f64();
        let all = (cpu::of_process() - all).as_secs_f64();
        let machine = cpu::of_machine()? - machine;
        let theirs = hear.recv().await.context("the peer has ended")?;
        let after = if way == Way::Send { sent_by(&connection) } else { theirs };
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        let gb = bytes as f64 / 1e9;
        let [datagrams, sends, lost] = [0, 1, 2].map(|at| after[at] - before[at]);
        anyhow::Ok(Outcome {
            gbit_per_s: gb * 8.0 / seconds,
            cpu: own / gb,
            cpu_both: all / gb,
            lost,
            datagrams,
            sends,
            disturbance: ((machine - all) / seconds).max(0.0),
        })
    })?;
    far.join().map_err(|_| anyhow::anyhow!("the peer panicked"))??;
    Ok(outcome)
}

/// Median, least and greatest.
fn summary(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (least, greatest, middle) = (values[0], values[values.len() - 1], values.len() / 2);
    let median =
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
    format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.rounds == 0 || args.megabytes == 0 {
        bail!("--rounds and --megabytes must be at least 1");
    }
    let stacks = if args.stacks.is_empty() { Which::ALL.to_vec() } else { args.stacks.clone() };
    let mut rows: Vec<(Which, Way, Outcome)> = Vec::new();
    for round in 0..args.rounds {
        for at in 0..stacks.len() {
            // Each begins a round in its turn.
            let which = stacks[(at + round) % stacks.len()];
            for way in [Way::Send, Way::Receive] {
                rows.push((which, way, measure(which, way, &args).context(which.name())?));
            }
        }
    }
    println!(
        "{} rounds, {} MB each way, quinn with {:?} at both ends; median (least to greatest)\n",
        args.rounds, args.megabytes, args.congestion
    );
    println!("| | below quinn | Gbit/s | CPU-s/GB | both sides | lost | datagrams a send |");
    println!("|---|---|---|---|---|---|---|");
    for way in [Way::Send, Way::Receive] {
        for &which in &stacks {
            let of = |value: fn(&Outcome) -> f64, digits| {
                let own = rows.iter().filter(|row| (row.0, row.1) == (which, way));
                summary(own.map(|row| value(&row.2)).collect(), digits)
            };
            println!(
                "| {} | {} | {} | {} | {} | {} | {} |",
                if way == Way::Send { "send" } else { "receive" },
                which.name(),
                of(|outcome| outcome.gbit_per_s, 2),
                of(|outcome| outcome.cpu, 2),
                of(|outcome| outcome.cpu_both, 2),
                of(|outcome| outcome.lost as f64, 0),
                of(|outcome| outcome.datagrams as f64 / outcome.sends.max(1) as f64, 1),
            );
        }
    }
    let disturbed = rows.iter().map(|row| row.2.disturbance).fold(0.0, f64::max);
    println!("\nat most {disturbed:.2} cores busy with other things");
    Ok(())
}
