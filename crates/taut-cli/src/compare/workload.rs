//! The work that the comparison measures: bulk both ways, one-byte request/response, and connections opened
//! and closed.
//!
//! One peer ([`serve`]) answers all kinds of work; the other functions are the clients, which measure the
//! time. All are generic over [`Transport`], so kernel and taut run the same code. Called by `mod.rs`.
//!
//! # How bulk is verified
//!
//! A transfer moves a buffer of pseudo-random bytes whose digest is known before the clock starts; the
//! receiver reads into memory that it has touched before. The clock stops when the last byte has been read
//! (for an upload, when the receiver's one-byte confirmation has arrived). Then the receiver hashes the
//! received bytes, and the two digests are compared. So every byte that is timed is also verified, and
//! hashing is not part of the measured time.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use taut_testbed::{Digest, Noise, sha256};

use crate::compare::transport::{Listen, Stream, Transport};
use crate::shared::clock::{Stopwatch, processor_time};

/// Size of one read or write call: large enough that calls do not matter, small enough to stay in cache.
const CHUNK_BYTES: usize = 256 * 1024;
/// No single step takes longer on a working link; after this time the comparison reports a failure instead of
/// hanging.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// Hashing a payload takes at most this many times as long as the first time, even on a busy machine.
const HASHING_TIMES: u32 = 10;
/// Connections that are open at the same time in [`connections`].
const CONNECTING_THREADS: usize = 4;
/// Rounds of request and response before the clock starts.
const WARM_UP_ROUNDS: u32 = 500;
/// Latencies above this are recorded as this.
const LATENCY_MAX_NS: u64 = 10_000_000_000;

/// The first byte that a client sends: its request to the peer.
pub(crate) mod ask {
    /// Receive the buffer repeatedly, until the stream ends.
    pub(crate) const SINK: u8 = b'U';
    /// Send the buffer for each received byte.
    pub(crate) const SOURCE: u8 = b'D';
    /// Send each byte back.
    pub(crate) const ECHO: u8 = b'P';
    /// Send one byte and close.
    pub(crate) const GREET: u8 = b'C';
    /// Stop listening.
    pub(crate) const QUIT: u8 = b'Q';
}

/// Pseudo-random bytes with their digest.
#[derive(Debug)]
pub(crate) struct Payload {
    /// The bytes.
    pub bytes: Bytes,
    /// Their SHA-256.
    pub digest: Digest,
    /// The time that hashing took.
    hashing: Duration,
}

impl Payload {
    /// `len` bytes.
    pub(crate) fn new(len: usize, seed: u64) -> Self {
        let bytes = Bytes::from(Noise::new(seed).bytes(len));
        let watch = Stopwatch::start();
        let digest = sha256(&bytes);
        Self { bytes, digest, hashing: watch.elapsed() }
    }

    /// How long to wait for the other end of a transfer, which hashes the received bytes before it answers.
    fn patience(&self) -> Duration {
        STEP_TIMEOUT + self.hashing * HASHING_TIMES
    }
}

/// The result of a bulk transfer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bulk {
    /// Bytes, all of them verified.
    pub bytes: u64,
    /// The time of the transfer, without hashing.
    pub time: Duration,
    /// Processor time of this process meanwhile.
    pub processor: Duration,
}

/// Answers clients, one at a time, until one sends [`quit`].
///
/// # Errors
/// When the listener fails. If a connection fails, the client reports that.
pub(crate) fn serve<L: Listen>(listener: &L, payload: &Payload) -> io::Result<()> {
    loop {
        let mut stream = listener.accept()?;
        match answer(&mut stream, payload) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // The client at the other end sees the same failure and reports it.
            Err(_) => {}
        }
    }
}

/// Answers one client; returns false when it sent quit.
fn answer<S: Stream>(stream: &mut S, payload: &Payload) -> io::Result<bool> {
    stream.set_timeout(STEP_TIMEOUT)?;
    let mut byte = [0; 1];
    stream.read_exact(&mut byte)?;
    match byte[0] {
        ask::GREET => stream.write_all(&byte)?,
        ask::ECHO => {
            stream.set_nodelay()?;
            while stream.read(&mut byte)? == 1 {
                stream.write_all(&byte)?;
            }
        }
        ask::SINK => {
            stream.set_nodelay()?;
            stream.set_timeout(payload.patience())?;
            // The memory is touched once, so that the first transfer has no page faults; then the client may
            // begin.
            let mut inbox = vec![1; payload.bytes.len()];
            stream.write_all(&byte)?;
            while fill(stream, &mut inbox)? {
                stream.write_all(&byte)?;
                stream.write_all(&sha256(&inbox))?;
            }
        }
        ask::SOURCE => {
            stream.set_nodelay()?;
            stream.set_timeout(payload.patience())?;
            while stream.read(&mut byte)? == 1 {
                pour(stream, &payload.bytes)?;
                stream.write_all(&payload.digest)?;
            }
        }
        ask::QUIT => return Ok(false),
        _ => {}
    }
    Ok(true)
}

/// Reads a whole buffer; returns false when the stream ends before its first byte.
fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        let end = buffer.len().min(filled + CHUNK_BYTES);
        match stream.read(&mut buffer[filled..end]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn pour(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    bytes.chunks(CHUNK_BYTES).try_for_each(|chunk| stream.write_all(chunk))
}

fn open<T: Transport>(transport: &T, to: SocketAddr, what: u8) -> io::Result<T::Stream> {
    let mut stream = transport.connect(to)?;
    stream.set_timeout(STEP_TIMEOUT)?;
    stream.set_nodelay()?;
    stream.write_all(&[what])?;
    Ok(stream)
}

fn mismatch(sent: &Digest, received: &Digest) -> io::Error {
    let (sent, received) = (crate::shared::text::hex(sent), crate::shared::text::hex(received));
    io::Error::new(io::ErrorKind::InvalidData, format!("SHA-256 differs: sent {sent}, received {received}"))
}

/// [`pour`] from memory that the stack may keep.
fn lend(stream: &mut impl Stream, bytes: &Bytes) -> io::Result<()> {
    let mut starts = (0..bytes.len()).step_by(CHUNK_BYTES);
    starts.try_for_each(|start| stream.lend(bytes.slice(start..bytes.len().min(start + CHUNK_BYTES))))
}

/// Sends the payload over one connection until `at_least` of transfer time has passed; lent, or as ordinary
/// writes.
///
/// # Errors
/// When the connection fails, or the receiver got bytes other than those sent.
pub(crate) fn upload<T: Transport>(
    transport: &T,
    to: SocketAddr,
    payload: &Payload,
    lent: bool,
    at_least: Duration,
) -> io::Result<Bulk> {
    let mut stream = open(transport, to, ask::SINK)?;
    stream.set_timeout(payload.patience())?;
    let mut bulk = Bulk::default();
    let (mut word, mut received) = ([0; 1], [0; 32]);
    stream.read_exact(&mut word)?;
    while bulk.bytes == 0 || bulk.time < at_least {
        let (watch, used) = (Stopwatch::start(), processor_time());
        match lent {
            true => lend(&mut stream, &payload.bytes)?,
            false => pour(&mut stream, &payload.bytes)?,
        }
        stream.read_exact(&mut word)?;
        bulk.time += watch.elapsed();
        bulk.processor += processor_time() - used;
        bulk.bytes += payload.bytes.len() as u64;
        stream.read_exact(&mut received)?;
        if received != payload.digest {
            return Err(mismatch(&payload.digest, &received));
        }
    }
    Ok(bulk)
}

/// Receives the peer's payload over one connection until `at_least` of transfer time has passed.
///
/// # Errors
/// When the connection fails, or the bytes differ from those that the peer sent.
pub(crate) fn download<T: Transport>(
    transport: &T,
    from: SocketAddr,
    payload: &Payload,
    at_least: Duration,
) -> io::Result<Bulk> {
    let mut inbox = vec![1; payload.bytes.len()];
    let mut stream = open(transport, from, ask::SOURCE)?;
    stream.set_timeout(payload.patience())?;
    let mut bulk = Bulk::default();
    let mut sent = [0; 32];
    while bulk.bytes == 0 || bulk.time < at_least {
        let (watch, used) = (Stopwatch::start(), processor_time());
        stream.write_all(&[1])?;
        if !fill(&mut stream, &mut inbox)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bulk.time += watch.elapsed();
        bulk.processor += processor_time() - used;
        bulk.bytes += inbox.len() as u64;
        stream.read_exact(&mut sent)?;
        let received = sha256(&inbox);
        if received != sent {
            return Err(mismatch(&sent, &received));
        }
    }
    Ok(bulk)
}

/// Repeatedly sends one byte and waits for its echo. Latencies are in nanoseconds.
///
/// # Errors
/// When the connection fails.
pub(crate) fn latency<T: Transport>(
    transport: &T,
    to: SocketAddr,
    time: Duration,
) -> io::Result<Histogram<u64>> {
    let mut stream = open(transport, to, ask::ECHO)?;
    let mut byte = [1; 1];
    histogram(time, || {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)
    })
}

/// Repeats an exchange for a time, after some that do not count. Latencies are in nanoseconds.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn histogram(
    time: Duration,
    mut exchange: impl FnMut() -> io::Result<()>,
) -> io::Result<Histogram<u64>> {
    let mut histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).map_err(io::Error::other)?;
    (0..WARM_UP_ROUNDS).try_for_each(|_| exchange())?;
    let all = Stopwatch::start();
    while all.elapsed() < time {
        let one = Stopwatch::start();
        exchange()?;
        histogram.saturating_record(u64::try_from(one.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(histogram)
}

/// Opens connections, moves one byte each way on each, and closes them. Returns their number, and the time.
///
/// The peer closes first, so TIME-WAIT stays with the peer and the client's ports are free immediately.
///
/// # Errors
/// When a connection fails.
pub(crate) fn connections<T: Transport>(
    transport: &T,
    to: SocketAddr,
    time: Duration,
) -> io::Result<(u64, Duration)> {
    let watch = Stopwatch::start();
    let done = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let work = || {
            let result = transport.within(|| {
                let mut count = 0u64;
                while !done.load(Ordering::Relaxed) && watch.elapsed() < time {
                    greet(transport, to)?;
                    count += 1;
                }
                Ok(count)
            });
            // One failure ends the others too.
            result.and_then(|inner| inner).inspect_err(|_: &io::Error| done.store(true, Ordering::Relaxed))
        };
        let threads: Vec<_> = (0..CONNECTING_THREADS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a client thread panicked"))))
            .sum::<io::Result<u64>>()
    })?;
    Ok((count, watch.elapsed()))
}

fn greet<T: Transport>(transport: &T, to: SocketAddr) -> io::Result<()> {
    let mut stream = open(transport, to, ask::GREET)?;
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes[..1])?;
    match stream.read(&mut bytes)? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the peer sent more than was requested")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends the peer's [`serve`].
    fn quit<T: Transport>(transport: &T, to: SocketAddr) -> io::Result<()> {
        let mut stream = open(transport, to, ask::QUIT)?;
        // The peer closes when it has read the request.
        stream.read(&mut [0]).map(drop)
    }
    use crate::compare::transport::Kernel;

    fn here() -> Kernel {
        Kernel::new(None, &taut_testbed::default_congestion().unwrap()).unwrap()
    }

    #[test]
    fn every_workload_runs_over_the_kernels_loopback() {
        let here = here();
        let payload = Payload::new(1 << 20, 1);
        let listener = here.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let time = Duration::from_millis(20);
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| serve(&listener, &payload));
            let up = upload(&here, at, &payload, false, time).unwrap();
            assert!(up.bytes >= 1 << 20 && up.time >= time);
            let lent = upload(&here, at, &payload, true, time).unwrap();
            assert!(lent.bytes >= 1 << 20 && lent.time >= time);
            let down = download(&here, at, &payload, time).unwrap();
            assert!(down.bytes >= 1 << 20 && down.time >= time);
            assert!(!latency(&here, at, time).unwrap().is_empty());
            assert!(connections(&here, at, time).unwrap().0 > 0);
            quit(&here, at).unwrap();
            peer.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_digest_that_differs_is_an_error() {
        let here = here();
        let (sent, other) = (Payload::new(1 << 16, 1), Payload::new(1 << 16, 2));
        let lying = Payload { digest: sent.digest, ..other };
        let listener = here.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &lying));
            let error = download(&here, at, &lying, Duration::ZERO).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            let error = upload(&here, at, &lying, false, Duration::ZERO).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            quit(&here, at).unwrap();
        });
    }
}
