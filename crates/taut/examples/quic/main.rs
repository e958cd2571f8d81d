//! QUIC by quinn over taut's UDP: a client sends some megabytes, and the server sends them back at the same time.
//!
//! ```console
//! $ cargo run --release -p taut --example quic                     # two stacks in this program: no root, no TUN
//! $ cargo build --release -p taut --example quic
//! $ sudo target/release/examples/quic taut0                        # to quinn over the kernel's UDP, over the TUN taut0
//! ```
//!
//! What joins the two is [`adapter`]: copy it into your program.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Endpoint, ServerConfig};
use taut::Stack;
use taut::device::{LinkCaps, pipe};
use tokio::time::Instant;

pub mod adapter;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes each way.
const BYTES: usize = 100_000_000;

/// A server of this name, and a client that trusts it.
pub fn configs(name: &str) -> Result<(ServerConfig, ClientConfig)> {
    let certified = rcgen::generate_simple_self_signed([name.to_owned()])?;
    let certificate = certified.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    Ok((server, ClientConfig::with_root_certificates(Arc::new(roots))?))
}

/// Sends back what comes, on every stream of every connection.
pub async fn serve(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await?;
            while let Ok((mut send, mut recv)) = connection.accept_bi().await {
                tokio::spawn(async move {
                    tokio::io::copy(&mut recv, &mut send).await?;
                    send.finish()?;
                    Result::Ok(())
                });
            }
            Result::Ok(())
        });
    }
}

/// Sends `bytes` and reads them back meanwhile. Returns how many came.
async fn transfer(client: &Endpoint, server: SocketAddr, name: &str, bytes: usize) -> Result<usize> {
    let connection = client.connect(server, name)?.await?;
    let (mut send, mut recv) = connection.open_bi().await?;
    let sender = tokio::spawn(async move {
        let part = vec![7; 1 << 16];
        for at in (0..bytes).step_by(part.len()) {
            send.write_all(&part[..part.len().min(bytes - at)]).await?;
        }
        send.finish()?;
        Result::Ok(())
    });
    let (mut part, mut came) = (vec![0; 1 << 16], 0);
    while let Some(count) = recv.read(&mut part).await? {
        came += count;
    }
    sender.await??;
    let stats = connection.stats();
    println!(
        "{} datagrams in {} sends, {} lost, an MTU of {}",
        stats.udp_tx.datagrams, stats.udp_tx.ios, stats.path.lost_packets, stats.path.current_mtu
    );
    connection.close(0_u32.into(), b"done");
    client.wait_idle().await;
    Ok(came)
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (at, from): (SocketAddr, SocketAddr) = ("10.9.0.1:4433".parse()?, "10.9.0.2:0".parse()?);
    let (for_server, for_client) = configs("taut.test")?;
    let (near, server) = match &arguments[..] {
        [] => {
            // A link in memory that cuts UDP, as a TUN does.
            let caps = LinkCaps { udp_segments: true, ..LinkCaps::offloading(1_500) };
            let (near, far) = pipe(caps, 1 << 22)?;
            let far = Stack::builder().device(far).address("10.9.0.1/24").build()?;
            let near = Stack::builder().device(near).address("10.9.0.2/24").build()?;
            (near, adapter::endpoint(&far, at, Some(for_server))?)
        }
        [tun] => {
            let near =
                Stack::builder().tun(tun).address("10.9.0.2/24").host_address("10.9.0.1/24").build()?;
            (near, Endpoint::server(for_server, at)?)
        }
        _ => return Err("give a TUN, or nothing".into()),
    };
    tokio::spawn(serve(server));
    let mut client = adapter::endpoint(&near, from, None)?;
    client.set_default_client_config(for_client);
    let begin = Instant::now();
    let came = transfer(&client, at, "taut.test", BYTES).await?;
    let rate = came as f64 * 8e-6 / begin.elapsed().as_secs_f64();
    println!("{} MB there and back, {rate:.0} Mbit/s each way", came / 1_000_000);
    Ok(())
}
