//! The client: fills the line, with one connection more each second, and sends probes meanwhile: beside the
//! load on connections of their own, and inside it on the same ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::ValueEnum;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Either, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use indicatif::ProgressBar;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::not_one;
use super::result::{Interval, Measured, Probes, is_over};
use super::server::{Endless, NAME};
use crate::shared::clock::Stopwatch;
use crate::talk::dial::dial;

/// An interval (ID), after which one connection is added (INC). The draft has 5 s since its version 09; with
/// them one direction would take a minute.
const INTERVAL: Duration = Duration::from_secs(1);
/// Probes of an idle line.
const IDLE: usize = 10;
/// Between two rounds of probes.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// The most connections of the load (MNP).
const CONNECTIONS: usize = 16;
/// How long a probe may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The window of HTTP/2 for a stream and for a connection: more than any line.
const WINDOW: u32 = 1 << 28;

/// Which way the load goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    Down,
    Up,
}

impl Direction {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// The body of a request.
type Sent = Either<Empty<Bytes>, Endless>;
type Sender = SendRequest<Sent>;

/// Where the server is, and by what connections are made.
pub(super) struct Dialler {
    pub(super) to: SocketAddr,
    pub(super) stack: Option<taut::Stack>,
}

impl Dialler {
    /// A connection, and how long it took to connect.
    async fn connect(&self) -> anyhow::Result<(Sender, Duration)> {
        let watch = Stopwatch::start();
        if let Some(stack) = &self.stack {
            let stream = dial(stack, self.to, None).await?;
            _ = stream.set_nodelay(true);
            return Ok((self.begin(stream).await?, watch.elapsed()));
        }
        let stream = tokio::net::TcpStream::connect(self.to).await;
        let stream =
            stream.with_context(|| format!("cannot connect to {}: is `taut rpm --serve` there?", self.to))?;
        let took = watch.elapsed();
        _ = stream.set_nodelay(true);
        Ok((self.begin(stream).await?, took))
    }

    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> anyhow::Result<Sender> {
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        // It ends with the last sender; why, the requests say.
        tokio::spawn(async move { _ = connection.await });
        Ok(sender)
    }

    async fn ask(
        &self,
        sender: &mut Sender,
        method: Method,
        path: &str,
        body: Sent,
    ) -> anyhow::Result<Response<Incoming>> {
        let request =
            Request::builder().method(method).uri(format!("http://{}{path}", self.to)).body(body)?;
        let lost = || format!("{} gave no answer", self.to);
        let response = sender.send_request(request).await.with_context(lost)?;
        if response.headers().get(http::header::SERVER).is_none_or(|name| name != NAME) {
            return Err(not_one(self.to));
        }
        Ok(response)
    }

    /// How long a request and its answer take.
    async fn probe(&self, sender: &mut Sender) -> anyhow::Result<Duration> {
        let watch = Stopwatch::start();
        let asked = async {
            let response = self.ask(sender, Method::GET, "/small", Either::Left(Empty::new())).await?;
            response.into_body().collect().await.context("the answer has no end")
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answered) => answered.map(|_| watch.elapsed()),
            Err(_) => bail!("{} gave no answer within {} s", self.to, PATIENCE.as_secs()),
        }
    }

    /// A probe on a connection of its own.
    async fn probe_beside(&self, into: &mut Probes) -> anyhow::Result<()> {
        let (mut sender, took) = self.connect().await?;
        into.beside.push(self.probe(&mut sender).await?);
        into.connect.push(took);
        Ok(())
    }

    /// A connection that is full in this direction until its task ends.
    async fn load(
        &self,
        direction: Direction,
        bytes: &Arc<AtomicU64>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Sender> {
        let (mut sender, _) = self.connect().await?;
        let (kept, count) = (sender.clone(), Arc::clone(bytes));
        match direction {
            Direction::Down => {
                let response =
                    self.ask(&mut sender, Method::GET, "/large", Either::Left(Empty::new())).await?;
                let mut body = response.into_body();
                tasks.spawn(async move {
                    while let Some(Ok(frame)) = body.frame().await {
                        count.fetch_add(frame.data_ref().map_or(0, Bytes::len) as u64, Relaxed);
                    }
                });
            }
            Direction::Up => {
                let body = Either::Right(Endless { left: None, count: Some(count) });
                let request = Request::post(format!("http://{}/upload", self.to)).body(body)?;
                tasks.spawn(async move { _ = sender.send_request(request).await });
            }
        }
        Ok(kept)
    }
}

/// Measures one direction.
pub(super) async fn measure(
    dialler: &Dialler,
    direction: Direction,
    most: Duration,
    bar: &ProgressBar,
) -> anyhow::Result<Measured> {
    let mut idle = Probes::default();
    bar.set_message("idle");
    for _ in 0..IDLE {
        dialler.probe_beside(&mut idle).await?;
    }
    let (bytes, mut tasks, mut load) = (Arc::new(AtomicU64::new(0)), JoinSet::new(), Vec::new());
    let (watch, mut intervals) = (Stopwatch::start(), Vec::new());
    while watch.elapsed() < most && !is_over(&intervals) {
        if load.len() < CONNECTIONS {
            load.push(dialler.load(direction, &bytes, &mut tasks).await?);
        }
        let (interval, before, mut probes) = (Stopwatch::start(), bytes.load(Relaxed), Probes::default());
        let mut turn = 0;
        while interval.elapsed() < INTERVAL {
            dialler.probe_beside(&mut probes).await?;
            let at = turn % load.len();
            probes.inside.push(dialler.probe(&mut load[at]).await?);
            turn += 1;
            tokio::time::sleep(PROBE_EVERY).await;
        }
        let rate = (bytes.load(Relaxed) - before) as f64 * 8.0 / interval.elapsed().as_secs_f64();
        bar.set_message(format!("{} connections, {:.1} Mbit/s", load.len(), rate / 1e6));
        intervals.push(Interval { rate, probes });
    }
    Ok(Measured::new(idle, &intervals, load.len()))
}
