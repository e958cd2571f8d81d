//! `taut metrics`: the numbers of all running stacks as OpenMetrics, once or for a collector
//! (`taut_control::openmetrics`).

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use taut_control::ClientError;
use taut_control::openmetrics::{CONTENT_TYPE, Exposition};
use tokio::net::TcpListener;

use crate::dash::access;
use crate::dash::watch::Which;
use crate::shared::advice::cannot_listen;
use crate::shared::log::{self, Level, LogArgs};
use crate::shared::{http_loop, interrupt, output};

/// Prints metrics of the running stacks as OpenMetrics, or serves them
#[derive(Args, Debug)]
#[command(after_help = "Example, with a stack that runs, as `taut serve .`:\n  \
    taut metrics\n  taut metrics --listen 127.0.0.1:9117 &\n  curl http://127.0.0.1:9117/metrics")]
pub(crate) struct MetricsArgs {
    /// Serve them at this address of the host, until Ctrl-C
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = access::listen)]
    listen: Option<SocketAddr>,
}

/// Runs `taut metrics`.
///
/// # Errors
/// When the address is in use, or the directory of the control sockets cannot be read.
pub(crate) fn run(args: &MetricsArgs) -> anyhow::Result<()> {
    let Some(at) = args.listen else {
        return output::print(&text(&Which::All)?);
    };
    interrupt::or_interrupted(async {
        let listener = TcpListener::bind(at).await.map_err(|error| cannot_listen(at, "--listen", error))?;
        LogArgs::default().start();
        let text = format!("serving http://{}/metrics (Ctrl-C stops)", listener.local_addr()?);
        log::notice(Level::Info, "serving", &text);
        match http_loop::serve(&listener, service_fn(answer)).await {}
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
    match tokio::task::spawn_blocking(|| text(&Which::All)).await {
        Ok(Ok(text)) => respond(StatusCode::OK, CONTENT_TYPE, text),
        Ok(Err(error)) => respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error:#}\n")),
        Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error}\n")),
    }
}

/// The numbers of these stacks. One that ends meanwhile, or belongs to another version, is left out.
///
/// # Errors
/// When the directory of the control sockets cannot be read.
pub(crate) fn text(which: &Which) -> anyhow::Result<String> {
    let mut all = Exposition::default();
    for path in which.paths()? {
        let mut ask = || {
            let mut client = which.connect(&path)?;
            let (who, counters) = (client.identity()?, client.counters()?);
            all.add_stack(&who, &counters, &client.summary()?, &client.report()?);
            Ok::<_, ClientError>(())
        };
        if let Err(error) = ask() {
            log::notice(Level::Warn, "left-out", &format!("{} is left out: {error}", path.display()));
        }
    }
    Ok(all.text())
}
