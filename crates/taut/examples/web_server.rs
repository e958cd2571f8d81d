//! A web server: axum over TLS (rustls) over taut's sockets for tokio. It makes itself a certificate.
//!
//! ```console
//! $ cargo run -p taut --example web_server                 # with a client in this program: no root, no TUN
//! $ cargo build -p taut --example web_server
//! $ sudo target/debug/examples/web_server taut0 &          # on the TUN taut0, until it is killed
//! $ curl --insecure https://10.9.0.2/
//! ```

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use axum::serve::Listener;
use taut::device::{LinkCaps, pipe};
use taut::{Stack, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, server::TlsStream};

/// The address of the server.
const AT: &str = "10.9.0.2:443";
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Connections that wait for axum to take them.
const WAITING_MAX: usize = 64;

/// What axum takes connections from: those whose handshake is over.
struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    local: SocketAddr,
}

impl TlsListener {
    /// Accepts connections in a task. Each has a task for its handshake, so that a slow one delays no other.
    fn new(tcp: TcpListener, tls: TlsAcceptor) -> io::Result<Self> {
        let (done, ready) = mpsc::channel(WAITING_MAX);
        let local = tcp.local_addr()?;
        tokio::spawn(async move {
            while let Ok((stream, from)) = tcp.accept().await {
                let (tls, done) = (tls.clone(), done.clone());
                tokio::spawn(async move {
                    match timeout(HANDSHAKE_MAX, tls.accept(stream)).await {
                        Ok(Ok(stream)) => drop(done.send((stream, from)).await),
                        Ok(Err(error)) => println!("{from}: no TLS: {error}"),
                        Err(_) => println!("{from}: no TLS within {HANDSHAKE_MAX:?}"),
                    }
                });
            }
        });
        Ok(Self { ready, local })
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The stack has ended, and `serve` returns.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

async fn serve(stack: &Stack, listener: TcpListener, tls: TlsAcceptor) -> io::Result<()> {
    let listener = TlsListener::new(listener, tls)?;
    let square = |Path(number): Path<u32>| async move { format!("{}\n", u64::from(number).pow(2)) };
    let app = Router::new().route("/", get(|| async { "Hello.\n" })).route("/square/{number}", get(square));
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served,
        why = stack.until_closed() => Err(why),
    }
}

/// Fetches a page as a client that trusts this certificate alone.
async fn fetch(
    stack: &Stack,
    certificate: CertificateDer<'static>,
    path: &str,
) -> Result<String, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(stack, AT).await?;
    let name = ServerName::try_from("10.9.0.2")?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: 10.9.0.2\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(["10.9.0.2".to_owned()])?;
    let (certificate, key) =
        (made.cert.der().clone(), PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()));
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.clone()], key)?;
    let tls = TlsAcceptor::from(Arc::new(config));
    let server = Stack::builder().address("10.9.0.2/24");
    if let Some(tun) = std::env::args().nth(1) {
        let stack = server.tun(&tun).host_address("10.9.0.1/24").build()?;
        let listener = TcpListener::bind(&stack, AT).await?;
        println!("listening at https://10.9.0.2/ on {tun}");
        return Ok(serve(&stack, listener, tls).await?);
    }
    // Two stacks joined by a pipe.
    let (near, far) = pipe(LinkCaps::offloading(1_500), 1 << 20)?;
    let (server, client) =
        (server.device(near).build()?, Stack::builder().device(far).address("10.9.0.1/24").build()?);
    let listener = TcpListener::bind(&server, AT).await?;
    tokio::spawn(async move { serve(&server, listener, tls).await });
    for path in ["/", "/square/12"] {
        println!("{}", fetch(&client, certificate.clone(), path).await?);
    }
    Ok(())
}
