//! A server for `iperf3 -u`, over any stack: its clients send datagrams, or receive them (`-R`), and hear
//! what was lost.
//!
//! ```text
//!   client                      server
//!   cookie, 37 bytes      ──▶               a connection of TCP, for all that follows
//!                         ◀──   9           parameters, please
//!   length, JSON          ──▶
//!                         ◀──   10          make the streams
//!   4 bytes               ──▶               a datagram from the port of each stream
//!                         ◀──   4 bytes     the same in reverse order
//!                         ◀──   1, 2        it begins, it runs
//!   datagrams             ──▶ or ◀──        seconds, microseconds, number (32 or 64 bits), padding
//!   4                     ──▶               the end
//!                         ◀──   13          results, please
//!   length, JSON          ──▶ and ◀──
//!                         ◀──   14          show them
//!   16                    ──▶               done
//! ```
//!
//! One test at a time, as iperf3's own server has it. Called by `taut udp`.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::json;
use taut::{DatagramOption, DatagramOptions, SendMeta, Stack, TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::shared::clock::{Stopwatch, wall};

const COOKIE_BYTES: usize = 37;
/// The most that a client's JSON may have.
const JSON_MAX_BYTES: u32 = 1 << 20;
/// How long a client may take for its next step, beside the test itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most streams of a test, as iperf3's own.
const STREAMS_MAX: usize = 128;
/// The least bytes of a datagram: time and number.
const HEADER_BYTES: usize = 16;
const DATAGRAM_MAX_BYTES: usize = 65_507;
/// `SO_RCVBUF`.
const BUFFER_BYTES: u32 = 4 << 20;
/// IP and UDP, which the rate of a socket counts, and iperf3's does not.
const HEADERS: u64 = 28;

const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
const IPERF_DONE: u8 = 16;

/// The test that a client asks for.
#[derive(Clone, Debug, Deserialize)]
struct Parameters {
    #[serde(default)]
    udp: bool,
    #[serde(default)]
    reverse: bool,
    #[serde(default)]
    bidirectional: bool,
    #[serde(default)]
    time: u64,
    #[serde(default = "one")]
    parallel: usize,
    /// Payload of a datagram.
    #[serde(default)]
    len: usize,
    /// Bits of payload per second of each stream; no limit if 0.
    #[serde(default)]
    bandwidth: u64,
    #[serde(default)]
    udp_counters_64bit: u8,
}

const fn one() -> usize {
    1
}

/// The numbers of a client's streams.
#[derive(Debug, Deserialize)]
struct Results {
    streams: Vec<StreamId>,
}

#[derive(Debug, Deserialize)]
struct StreamId {
    id: u64,
}

/// One stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// Bytes of payload, and datagrams, that came or were sent.
    pub bytes: u64,
    /// Datagrams.
    pub packets: u64,
    /// The highest number that came.
    highest: u64,
    jitter: f64,
    transit: Option<f64>,
}

impl Stream {
    /// Those that did not come.
    #[must_use]
    pub(crate) const fn lost(&self) -> u64 {
        self.highest.saturating_sub(self.packets)
    }

    /// Notes a datagram that was sent at `sent` and came at `now`, in seconds.
    fn note(&mut self, bytes: usize, number: u64, sent: f64, now: f64) {
        self.bytes += bytes as u64;
        self.packets += 1;
        self.highest = self.highest.max(number);
        // RFC 3550 §6.4.1.
        let transit = now - sent;
        if let Some(before) = self.transit.replace(transit) {
            self.jitter += ((transit - before).abs() - self.jitter) / 16.0;
        }
    }
}

/// A finished test.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The client.
    pub peer: SocketAddr,
    /// Whether the server sent.
    pub reverse: bool,
    /// Its streams.
    pub streams: Vec<Stream>,
    /// How long it took.
    pub took: Duration,
}

async fn read_json<T: for<'a> Deserialize<'a>>(control: &mut TcpStream) -> anyhow::Result<T> {
    let len = control.read_u32().await?;
    if len > JSON_MAX_BYTES {
        bail!("{len} bytes of JSON");
    }
    let mut text = vec![0; len as usize];
    control.read_exact(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}

async fn write_json(control: &mut TcpStream, value: &serde_json::Value) -> anyhow::Result<()> {
    let text = value.to_string();
    control.write_u32(u32::try_from(text.len())?).await?;
    control.write_all(text.as_bytes()).await?;
    Ok(())
}

async fn soon<T>(what: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    timeout(PATIENCE, work).await.with_context(|| format!("the client does not go on: {what}"))?
}

/// Serves one client, whose connection was accepted.
///
/// # Errors
/// The client breaks the protocol, or the stack has ended.
pub(crate) async fn serve(stack: &Stack, mut control: TcpStream) -> anyhow::Result<Outcome> {
    let peer = control.peer_addr()?;
    let parameters = soon("its parameters", async {
        control.read_exact(&mut [0; COOKIE_BYTES]).await?;
        control.write_u8(PARAM_EXCHANGE).await?;
        read_json::<Parameters>(&mut control).await
    });
    let parameters = parameters.await?;
    let Parameters { udp, bidirectional, parallel, len, .. } = parameters;
    if !udp || bidirectional {
        bail!("only -u is served, one way at a time");
    }
    if !(1..=STREAMS_MAX).contains(&parallel) || !(HEADER_BYTES..=DATAGRAM_MAX_BYTES).contains(&len) {
        bail!("{parallel} streams of {len} bytes are not served");
    }
    let options = DatagramOptions { rcvbuf: Some(BUFFER_BYTES), ..DatagramOptions::default() };
    let socket = UdpSocket::bind_with(stack, control.local_addr()?, &options)?;
    control.write_u8(CREATE_STREAMS).await?;
    let peers = soon("its streams", greet(&socket, parallel)).await?;
    control.write_all(&[TEST_START, TEST_RUNNING]).await?;
    let watch = Stopwatch::start();
    let mut streams = vec![Stream::default(); parallel];
    let longest = Duration::from_secs(parameters.time.min(86_400)) + PATIENCE;
    let end = timeout(longest, async {
        tokio::select! {
            end = control.read_u8() => end.map_err(anyhow::Error::from),
            failed = send_or_receive(&socket, &parameters, &peers, &mut streams) => Err(failed),
        }
    });
    let end = end.await.context("the client does not end the test")??;
    if end != TEST_END {
        bail!("the client ended the test by {end}");
    }
    let took = watch.elapsed();
    control.write_u8(EXCHANGE_RESULTS).await?;
    soon("its results", async {
        let theirs: Results = read_json(&mut control).await?;
        let ids = theirs.streams.iter().map(|stream| stream.id);
        let streams: Vec<_> =
            streams.iter().zip(ids).map(|(stream, id)| result_of(stream, id, took)).collect();
        let results = json!({
            "cpu_util_total": 0.0, "cpu_util_user": 0.0, "cpu_util_system": 0.0, "sender_has_retransmits": 0,
            "streams": streams,
        });
        write_json(&mut control, &results).await?;
        control.write_u8(DISPLAY_RESULTS).await?;
        match control.read_u8().await? {
            IPERF_DONE => Ok(()),
            other => bail!("the client went on by {other}"),
        }
    })
    .await?;
    Ok(Outcome { peer, reverse: parameters.reverse, streams, took })
}

fn result_of(stream: &Stream, id: u64, took: Duration) -> serde_json::Value {
    json!({
        "id": id, "bytes": stream.bytes, "retransmits": -1, "jitter": stream.jitter, "errors": stream.lost(),
        "packets": stream.packets + stream.lost(), "omitted_errors": 0, "omitted_packets": 0,
        "start_time": 0.0, "end_time": took.as_secs_f64(),
    })
}

/// Answers the first datagram of each stream.
async fn greet(socket: &UdpSocket, streams: usize) -> anyhow::Result<Vec<SocketAddr>> {
    let mut peers = Vec::new();
    while peers.len() < streams {
        let mut greeting = [0; 4];
        let (len, peer) = socket.recv_from(&mut greeting).await?;
        if len == greeting.len() && !peers.contains(&peer) {
            greeting.reverse();
            socket.send_with(&greeting, Some(peer), &SendMeta::default()).await?;
            peers.push(peer);
        }
    }
    Ok(peers)
}

/// Until it is dropped; returns only an error.
async fn send_or_receive(
    socket: &UdpSocket,
    parameters: &Parameters,
    peers: &[SocketAddr],
    streams: &mut [Stream],
) -> anyhow::Error {
    let done = if parameters.reverse {
        send(socket, parameters, peers, streams).await
    } else {
        receive(socket, parameters, peers, streams).await
    };
    match done {
        Ok(never) => match never {},
        Err(error) => error.into(),
    }
}

async fn receive(
    socket: &UdpSocket,
    parameters: &Parameters,
    peers: &[SocketAddr],
    streams: &mut [Stream],
) -> io::Result<std::convert::Infallible> {
    let places: BTreeMap<SocketAddr, usize> =
        peers.iter().enumerate().map(|(at, peer)| (*peer, at)).collect();
    let mut datagram = vec![0; DATAGRAM_MAX_BYTES];
    loop {
        let (len, peer) = socket.recv_from(&mut datagram).await?;
        let word = |at: usize| datagram[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let Some(&place) = places.get(&peer).filter(|_| len >= HEADER_BYTES) else { continue };
        let sent = f64::from(word(0)) + f64::from(word(4)) * 1e-6;
        let number = if parameters.udp_counters_64bit == 0 {
            u64::from(word(8))
        } else {
            u64::from(word(8)) << 32 | u64::from(word(12))
        };
        streams[place].note(len, number, sent, wall());
    }
}

async fn send(
    socket: &UdpSocket,
    parameters: &Parameters,
    peers: &[SocketAddr],
    streams: &mut [Stream],
) -> io::Result<std::convert::Infallible> {
    let len = parameters.len as u64;
    if parameters.bandwidth > 0 {
        // Of all streams, which take turns.
        let payload = parameters.bandwidth as f64 / 8.0 * peers.len() as f64;
        let rate = payload * (len + HEADERS) as f64 / len as f64;
        socket.set_option(DatagramOption::MaxPacingRate(Some(rate as u64)))?;
    }
    let mut datagram = vec![0; parameters.len];
    loop {
        for (peer, stream) in peers.iter().zip(&mut *streams) {
            let now = wall();
            let number = stream.packets + 1;
            datagram[..4].copy_from_slice(&(now as u32).to_be_bytes());
            datagram[4..8].copy_from_slice(&((now.fract() * 1e6) as u32).to_be_bytes());
            if parameters.udp_counters_64bit == 0 {
                datagram[8..12].copy_from_slice(&(number as u32).to_be_bytes());
            } else {
                datagram[8..16].copy_from_slice(&number.to_be_bytes());
            }
            socket.send_with(&datagram, Some(*peer), &SendMeta::default()).await?;
            stream.packets = number;
            stream.bytes += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_jitter() {
        let mut stream = Stream::default();
        // Numbers 1, 2, 5 and, late, 4; each 10 ms on its way, the third 26 ms.
        for (number, transit) in [(1, 0.010), (2, 0.010), (5, 0.026), (4, 0.026)] {
            stream.note(1_000, number, 100.0, 100.0 + transit);
        }
        assert_eq!((stream.bytes, stream.packets, stream.lost()), (4_000, 4, 1));
        // RFC 3550: |16 ms| / 16 = 1 ms, then 15/16 of it.
        assert!((stream.jitter - 0.001 * 15.0 / 16.0).abs() < 1e-9, "{}", stream.jitter);
    }

    #[test]
    fn parameters_as_iperf3_sends_them() {
        let text = r#"{"udp":true,"omit":0,"time":2,"num":0,"blockcount":0,"parallel":3,"reverse":true,"len":1200,
            "bandwidth":100000000,"pacing_timer":1000,"client_version":"3.18"}"#;
        let parameters: Parameters = serde_json::from_str(text).unwrap();
        assert!(parameters.udp && parameters.reverse && !parameters.bidirectional);
        assert_eq!((parameters.parallel, parameters.len, parameters.bandwidth), (3, 1_200, 100_000_000));
        assert_eq!((parameters.udp_counters_64bit, parameters.time), (0, 2));
    }
}
