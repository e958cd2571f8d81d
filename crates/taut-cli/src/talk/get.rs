//! `taut get`: one HTTP/1.1 GET over the stack.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use taut_core::congestion::Registry;
use taut_testbed::Meter;

use crate::args::link::LinkArgs;
use crate::args::target::Target;
use crate::shared::clock::Stopwatch;
use crate::shared::{interrupt, output, progress};
use crate::stack;
use crate::talk::dial::dial;
use crate::talk::summary::Summary;

/// Fetches a URL over the stack.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a web server on the same machine (as root):\n  \
    taut get http://10.9.0.1/file -o file\n  \
    taut get -L --connect-timeout 5 --max-time 60 http://10.9.0.1/file\n\n\
    The summary goes to standard error; with --json, to standard output when -o names a file.")]
pub(crate) struct GetArgs {
    /// http://HOST[:PORT]/PATH
    #[arg(value_parser = url)]
    url: Uri,
    /// Write the body to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Follow redirects, ten at most, to http:// only
    #[arg(short = 'L', long)]
    location: bool,
    /// Give up a connection after this time [default: the stack's]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    connect_timeout: Option<Duration>,
    /// Give up after this time in all [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_time: Option<Duration>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// curl's limit is 50.
const REDIRECTS_MAX: u32 = 10;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("not a number of seconds from 0.001 to 1000000".to_owned()),
    }
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
    // Before anything is opened.
    target(args, &args.url)?;
    let stack = stack::stack(&args.link, controllers)?;
    let work = stack::while_up(&stack, async {
        args.link.auto.wait(&stack).await?;
        follow(&stack, args).await
    });
    let summary = match args.max_time {
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            bail!("{}: not complete within {} s (--max-time)", args.url, limit.as_secs_f64())
        }),
        None => work.await,
    }?;
    stack::finish(stack)?;
    Ok(summary)
}

/// Where the server of a URL is.
fn target(args: &GetArgs, url: &Uri) -> anyhow::Result<Target> {
    let authority = url.authority().context("the URL has no host")?;
    args.link.target(&format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80)))
}

/// Fetches the URL, or with `-L` the one that it redirects to.
async fn follow(stack: &taut::Stack, args: &GetArgs) -> anyhow::Result<Summary> {
    let mut at = args.url.clone();
    for _ in 0..=REDIRECTS_MAX {
        match fetch_over(stack, &at, args).await? {
            Got::Body(summary) => return Ok(summary),
            Got::Redirect(status, to) if !args.location => {
                bail!("{at} answered {status}: it is at {to}; -L follows redirects")
            }
            Got::Redirect(_, to) => {
                let next = redirected(&at, &to);
                at = next.map_err(|why| anyhow!("{at} redirects to {to}: {why}"))?;
            }
        }
    }
    bail!("{}: more than {REDIRECTS_MAX} redirects, the last to {at}", args.url)
}

/// The address in a `Location` (RFC 9110 §10.2.2, RFC 3986 §5.2).
fn redirected(base: &Uri, location: &str) -> Result<Uri, String> {
    let location = location.split('#').next().unwrap_or_default();
    let authority = base.authority().map_or("", http::uri::Authority::as_str);
    let (path, query) =
        location.split_once('?').map_or((location, None), |(path, query)| (path, Some(query)));
    let has_scheme = path.split('/').next().is_some_and(|first| first.contains(':'));
    if has_scheme || path.starts_with("//") {
        return url(&format!("{}{location}", if has_scheme { "" } else { "http:" }));
    }
    let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
    let whole = match path {
        "" => base.path().to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("{directory}/{path}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/').skip(1) {
        match part {
            "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    if whole.ends_with("/.") || whole.ends_with("/..") {
        parts.push("");
    }
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    url(&format!("http://{authority}/{}{query}", parts.join("/")))
}

/// An answer.
enum Got {
    Body(Summary),
    Redirect(StatusCode, String),
}

async fn fetch_over(stack: &taut::Stack, url: &Uri, args: &GetArgs) -> anyhow::Result<Got> {
    let authority = url.authority().context("the URL has no host")?;
    let to = target(args, url)?.address(&args.link, stack).await?;
    let stream = dial(stack, to, args.connect_timeout).await?;
    let watch = Stopwatch::start();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let path = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request = Request::get(path)
        .header(header::HOST, authority.as_str())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let response = sender
        .send_request(request)
        .await
        .with_context(|| format!("{authority} gave no answer; is a web server at this port?"))?;
    let status = response.status();
    let location = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
    if let (301 | 302 | 303 | 307 | 308, Some(location)) = (status.as_u16(), location) {
        return Ok(Got::Redirect(status, location.to_owned()));
    }
    if !status.is_success() {
        bail!("{url} answered {status}");
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
        let frame = frame.context("the body ended early; try again")?;
        if let Some(data) = frame.data_ref() {
            written(args, out.write_all(data))?;
            meter.update(data);
            bar.set_position(meter.bytes());
        }
    }
    written(args, out.flush())?;
    let time = watch.elapsed();
    bar.finish_and_clear();
    drop(sender);
    _ = connection.await;
    let summary = Summary { verb: "received", peer: to, bytes: meter.bytes(), time, sha256: meter.finish() };
    Ok(Got::Body(summary))
}

fn written(args: &GetArgs, result: io::Result<()>) -> anyhow::Result<()> {
    match &args.output {
        Some(path) => result.with_context(|| format!("cannot write {}", path.display())),
        None => output::written(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_relative_to_its_url() {
        let base: Uri = "http://10.9.0.1:8080/a/b?c".parse().unwrap();
        for (location, expected) in [
            ("http://10.9.0.3/x", "http://10.9.0.3/x"),
            ("//10.9.0.3/x#y", "http://10.9.0.3/x"),
            ("/x/./y?to=http://z", "http://10.9.0.1:8080/x/y?to=http://z"),
            ("x", "http://10.9.0.1:8080/a/x"),
            ("../x/", "http://10.9.0.1:8080/x/"),
            ("../../../x", "http://10.9.0.1:8080/x"),
            ("..", "http://10.9.0.1:8080/"),
            ("?d", "http://10.9.0.1:8080/a/b?d"),
        ] {
            assert_eq!(redirected(&base, location).unwrap().to_string(), expected, "{location}");
        }
        assert!(redirected(&base, "https://10.9.0.3/").unwrap_err().contains("TLS"));
        assert!(redirected(&base, "file:///etc/passwd").is_err());
        assert!(redirected(&base, "http://").is_err());
    }

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
