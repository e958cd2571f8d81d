//! `taut metrics`: the numbers of all running stacks as OpenMetrics, once or for a collector
//! (`taut_control::openmetrics`).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use taut_control::openmetrics::{CONTENT_TYPE, Exposition};
use taut_control::{Client, ClientError, place};
use tokio::net::TcpListener;

use crate::interrupt;

/// Prints the numbers of this user's running stacks as OpenMetrics, or serves them at /metrics for Prometheus.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a stack that runs, as `taut serve .`:\n  \
    taut metrics\n  taut metrics --listen 127.0.0.1:9117 &\n  curl http://127.0.0.1:9117/metrics")]
pub struct MetricsArgs {
    /// Serve them at this address of the host, until Ctrl-C
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
}

/// How many collectors are served at the same time.
const MAX_COLLECTORS: usize = 16;
/// How long a collector may take to ask.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `taut metrics`.
///
/// # Errors
/// When the address is in use, or the directory of the control sockets cannot be read.
pub fn run(args: &MetricsArgs) -> anyhow::Result<()> {
    let Some(at) = args.listen else {
        print!("{}", text()?);
        return Ok(());
    };
    interrupt::or_interrupted(async {
        let listener = TcpListener::bind(at).await.with_context(|| format!("cannot listen on {at}"))?;
        eprintln!("serving http://{}/metrics", listener.local_addr()?);
        let places = std::sync::Arc::new(tokio::sync::Semaphore::new(MAX_COLLECTORS));
        loop {
            let place = std::sync::Arc::clone(&places).acquire_owned().await?;
            let (stream, _) = listener.accept().await?;
            tokio::spawn(async move {
                let mut server = hyper::server::conn::http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
                // A collector that hangs up asks again.
                _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                drop(place);
            });
        }
    })
}

async fn answer(request: Request<hyper::body::Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let respond = |status: StatusCode, kind: &'static str, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        Ok(response)
    };
    if request.uri().path() != "/metrics" {
        return respond(StatusCode::NOT_FOUND, "text/plain", "look at /metrics\n".to_owned());
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return respond(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use GET\n".to_owned());
    }
    match tokio::task::spawn_blocking(text).await {
        Ok(Ok(text)) => respond(StatusCode::OK, CONTENT_TYPE, text),
        Ok(Err(error)) => respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error:#}\n")),
        Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error}\n")),
    }
}

/// All stacks. One that ends meanwhile, or belongs to another version, is left out.
fn text() -> anyhow::Result<String> {
    let mut all = Exposition::default();
    for stack in place::running()? {
        let mut ask = || {
            let mut client = Client::connect(&stack.path)?;
            let (who, counters) = (client.identity()?, client.counters()?);
            all.add_stack(&who, &counters, &client.summary()?, &client.report()?);
            Ok::<_, ClientError>(())
        };
        if let Err(error) = ask() {
            eprintln!("taut: {} is left out: {error}", stack.path.display());
        }
    }
    Ok(all.text())
}
