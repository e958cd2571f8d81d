//! `taut get`: one HTTP/1.1 GET over the stack.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use taut_core::congestion::Registry;
use taut_testbed::Meter;

use crate::args::link::LinkArgs;
use crate::shared::clock::Stopwatch;
use crate::shared::{interrupt, output, progress, stack};
use crate::talk::dial::dial;
use crate::talk::summary::Summary;

/// Fetches a URL over the stack.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a web server on the same machine (as root):\n  \
    taut get http://10.9.0.1/file -o file\n\n\
    The summary goes to standard error; with --json, to standard output when -o names a file.")]
pub(crate) struct GetArgs {
    /// http://HOST[:PORT]/PATH
    #[arg(value_parser = url)]
    url: Uri,
    /// Write the body to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    link: LinkArgs,
}

fn url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) => Ok(uri),
        (Some("https"), _) => Err("TLS is not supported; use http://".to_owned()),
        _ => Err("not of the form http://HOST[:PORT]/PATH".to_owned()),
    }
}

/// Runs `taut get`.
///
/// # Errors
/// When the link, the connection or the output fails, or the server does not answer with success.
pub(crate) fn get(args: &GetArgs, controllers: &Registry) -> anyhow::Result<()> {
    let summary = interrupt::or_interrupted(fetch(args, controllers))?;
    if args.json && args.output.is_some() {
        output::print(&summary.text(true))?;
    } else {
        io::stderr().write_all(summary.text(args.json).as_bytes())?;
    }
    Ok(())
}

async fn fetch(args: &GetArgs, controllers: &Registry) -> anyhow::Result<Summary> {
    let authority = args.url.authority().context("the URL has no host")?;
    let to = args.link.resolve(&format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80)))?;
    let stack = stack::stack(&args.link, controllers)?;
    stack::while_up(&stack, args.link.auto.wait(&stack)).await?;
    stack::while_up(&stack, fetch_over(&stack, to, args)).await
}

async fn fetch_over(stack: &taut::Stack, to: SocketAddr, args: &GetArgs) -> anyhow::Result<Summary> {
    let authority = args.url.authority().context("the URL has no host")?;
    let stream = dial(stack, to).await?;
    let watch = Stopwatch::start();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let path = args.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request = Request::get(path)
        .header(header::HOST, authority.as_str())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await.context("no answer")?;
    if !response.status().is_success() {
        bail!("{} answered {}", authority, response.status());
    }
    let mut out: Box<dyn Write + Send> = match &args.output {
        Some(path) => {
            Box::new(File::create(path).with_context(|| format!("cannot create {}", path.display()))?)
        }
        None => Box::new(io::stdout()),
    };
    let mut body = response.into_body();
    let bar = progress::bytes(http_body::Body::size_hint(&body).exact());
    let mut meter = Meter::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the body ended early")?;
        if let Some(data) = frame.data_ref() {
            out.write_all(data).context("writing the output failed")?;
            meter.update(data);
            bar.set_position(meter.bytes());
        }
    }
    out.flush().context("writing the output failed")?;
    let time = watch.elapsed();
    bar.finish_and_clear();
    drop(sender);
    _ = connection.await;
    stack::finish(stack);
    Ok(Summary { verb: "received", peer: to, bytes: meter.bytes(), time, sha256: meter.finish() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_with_a_host() {
        assert!(url("http://10.9.0.1/a?b").is_ok());
        assert!(url("http://[fd09::1]:8080/").is_ok());
        assert!(url("https://10.9.0.1/").unwrap_err().contains("TLS"));
        for wrong in ["10.9.0.1", "/a", "ftp://x/", ""] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }
}
