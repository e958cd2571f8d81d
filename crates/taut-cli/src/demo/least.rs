//! The least that a process can do over a TUN: TCP packets made by hand, without a stack.
//!
//! It answers each packet by the packet alone, and its only timer ends a standstill. So it is no TCP for any
//! other link, and the limit of every TCP on this one. Called by `cost.rs`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_core::{Gather, Instant, Offload, TxPacket};
use taut_device::Tun;
use taut_device::sys::monotonic_ns;
use taut_testbed::Digest;
use taut_wire::tcp::{CHECKSUM_OFFSET, Flags, TcpHeader, partial_checksum, set_checksum};
use taut_wire::{Ecn, IpHeader, TcpOptions, protocol};

use crate::compare::workload::{Bulk, Payload, ask};
use crate::shared::clock::{Stopwatch, processor_time};

const MSS: usize = 1_460;
/// The payload of a super-packet: the most segments that fit in 64 KiB.
const SUPER_PACKET: usize = 44 * MSS;
/// The window for the peer is 1 GiB, so that it is no limit.
const WINDOW_SCALE: u8 = 14;
/// After this long without an answer, bytes go again.
const STANDSTILL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// So many times in a row mean that the peer is gone.
const STANDSTILLS: u32 = 100;
/// Connections that are opened at the same time, as by the other senders' threads.
const AT_ONCE: u16 = 4;

/// One end of a TUN, and the kernel's address at the other.
pub(super) struct Least {
    pub(super) tun: Tun,
    pub(super) near: IpAddr,
    pub(super) far: SocketAddr,
}

/// A connection: the next bytes in each direction, and the peer's window.
struct Conn {
    port: u16,
    next: u32,
    acked: u32,
    window: u32,
    scale: u8,
    expected: u32,
    /// Bytes that came while others were sent.
    inbox: Vec<u8>,
}

/// A packet from the peer.
struct Segment {
    header: TcpHeader,
    /// Its payload in the buffer.
    payload: std::ops::Range<usize>,
}

impl Least {
    fn put(&self, header: &TcpHeader, payload: &[u8]) -> io::Result<()> {
        let (src, dst) = (self.near, self.far.ip());
        let mut bytes = [0; 80];
        let tcp_len = header.header_len() + payload.len();
        let ip = IpHeader {
            src,
            dst,
            protocol: protocol::TCP,
            hop_limit: 64,
            ecn: Ecn::NotEct,
            header_len: 0,
            payload_len: tcp_len,
        };
        let start = ip.emit(&mut bytes, 0);
        let end = start + header.emit(&mut bytes[start..]);
        set_checksum(&mut bytes[start..], partial_checksum(src, dst, tcp_len as u32));
        let (start, offset) = (start as u16, CHECKSUM_OFFSET as u16);
        let offload = match payload.len() > MSS {
            true => Offload::Segment { mss: MSS as u16, start, offset, ipv6: dst.is_ipv6() },
            false => Offload::Checksum { start, offset },
        };
        let payload = Gather::from(payload);
        self.tun.put(&TxPacket { header: &bytes[..end], payload, offload, departure: Instant::ZERO })
    }

    fn segment(&self, port: u16, flags: Flags, seq: u32, ack: u32, payload: &[u8]) -> io::Result<()> {
        let options = match flags.contains(Flags::SYN) {
            true => {
                TcpOptions { mss: Some(MSS as u16), window_scale: Some(WINDOW_SCALE), ..TcpOptions::NONE }
            }
            false => TcpOptions::NONE,
        };
        let (dst_port, window) = (self.far.port(), u16::MAX);
        let header = TcpHeader { src_port: port, dst_port, seq, ack, flags, window, urgent: 0, options };
        self.put(&header, payload)
    }

    /// The next segment from the peer, if one is there.
    fn take(&self, buffer: &mut [u8]) -> io::Result<Option<Segment>> {
        let received = match self.tun.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        let packet = &buffer[received.range.clone()];
        let Ok(ip) = IpHeader::parse(packet) else { return self.take(buffer) };
        if ip.protocol != protocol::TCP {
            return self.take(buffer);
        }
        let begin = received.range.start + ip.header_len;
        let Ok((header, len)) = TcpHeader::parse(&buffer[begin..received.range.end]) else {
            return self.take(buffer);
        };
        Ok(Some(Segment {
            header,
            payload: begin + len..received.range.start + ip.header_len + ip.payload_len,
        }))
    }

    /// Whether a packet came before the time was over.
    fn wait(&self) -> io::Result<bool> {
        Ok(poll(&mut [PollFd::new(&self.tun, PollFlags::IN)], Some(&STANDSTILL))? > 0)
    }

    /// The next segment; waits for it.
    fn next(&self, buffer: &mut [u8]) -> io::Result<Segment> {
        for _ in 0..STANDSTILLS {
            if let Some(segment) = self.take(buffer)? {
                return Ok(segment);
            }
            self.wait()?;
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not answer packets made by hand"))
    }

    /// Sends a SYN. Its sequence number grows with time, so that the peer accepts a port that it has
    /// in TIME-WAIT.
    fn open(&self, port: u16) -> io::Result<()> {
        self.segment(port, Flags::SYN, (monotonic_ns() >> 8) as u32, 0, &[])
    }

    fn connect(&self, port: u16, what: u8, buffer: &mut [u8]) -> io::Result<Conn> {
        self.open(port)?;
        loop {
            let Segment { header, .. } = self.next(buffer)?;
            if header.dst_port != port || !header.flags.contains(Flags::SYN) {
                continue;
            }
            let mut conn = Conn {
                port,
                next: header.ack,
                acked: header.ack,
                window: header.window.into(),
                scale: header.options.window_scale.unwrap_or(0),
                expected: header.seq.wrapping_add(1),
                inbox: Vec::new(),
            };
            self.write(&mut conn, &[what])?;
            return Ok(conn);
        }
    }

    fn write(&self, conn: &mut Conn, payload: &[u8]) -> io::Result<()> {
        let flags = Flags::ACK.union(Flags::PSH);
        self.segment(conn.port, flags, conn.next, conn.expected, payload)?;
        conn.next = conn.next.wrapping_add(payload.len() as u32);
        Ok(())
    }

    /// Notes what a segment of the connection says, acknowledges what is in order, and returns it.
    fn note(&self, conn: &mut Conn, segment: &Segment) -> io::Result<std::ops::Range<usize>> {
        let Segment { header, payload } = segment;
        if header.dst_port != conn.port {
            return Ok(0..0);
        }
        conn.acked = header.ack;
        conn.window = u32::from(header.window) << conn.scale;
        if payload.is_empty() {
            return Ok(0..0);
        }
        let in_order = header.seq == conn.expected;
        if in_order {
            conn.expected = conn.expected.wrapping_add(payload.len() as u32);
        }
        self.segment(conn.port, Flags::ACK, conn.next, conn.expected, &[])?;
        Ok(if in_order { payload.clone() } else { 0..0 })
    }

    /// [`note`](Self::note), for what comes while bytes are sent: it is kept for the next read.
    fn keep(&self, conn: &mut Conn, segment: &Segment, buffer: &[u8]) -> io::Result<()> {
        let range = self.note(conn, segment)?;
        conn.inbox.extend_from_slice(&buffer[range]);
        Ok(())
    }

    /// Reads so many bytes; the last of them, at most 32, are returned.
    fn read(&self, conn: &mut Conn, count: usize, buffer: &mut [u8]) -> io::Result<Digest> {
        let mut last: Vec<u8> = conn.inbox.drain(..count.min(conn.inbox.len())).collect();
        let mut left = count - last.len();
        while left > 0 {
            let segment = self.next(buffer)?;
            let range = self.note(conn, &segment)?;
            let (wanted, more) = buffer[range.clone()].split_at(range.len().min(left));
            conn.inbox.extend_from_slice(more);
            left -= wanted.len();
            if left < 64 {
                last.extend_from_slice(wanted);
            }
        }
        let mut digest = Digest::default();
        let tail = &last[last.len().saturating_sub(digest.len())..];
        digest[..tail.len()].copy_from_slice(tail);
        Ok(digest)
    }

    fn reset(&self, conn: &Conn) -> io::Result<()> {
        self.segment(conn.port, Flags::RST.union(Flags::ACK), conn.next, conn.expected, &[])
    }

    /// Sends all of it, as fast as the peer's window lets.
    fn pour(&self, conn: &mut Conn, bytes: &[u8], buffer: &mut [u8]) -> io::Result<()> {
        let begin = conn.next;
        let done = |seq: u32| seq.wrapping_sub(begin) as usize;
        let mut still = 0;
        while done(conn.acked) < bytes.len() {
            let at = done(conn.next);
            let chunk = &bytes[at..bytes.len().min(at + SUPER_PACKET)];
            let in_flight = conn.next.wrapping_sub(conn.acked);
            if !chunk.is_empty() && in_flight + chunk.len() as u32 <= conn.window {
                match self.write(conn, chunk) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => written?,
                }
                while let Some(segment) = self.take(buffer)? {
                    self.keep(conn, &segment, buffer)?;
                }
                continue;
            }
            match self.take(buffer)? {
                Some(segment) => self.keep(conn, &segment, buffer)?,
                None if self.wait()? => still = 0,
                None if still == STANDSTILLS => return Err(io::ErrorKind::TimedOut.into()),
                // Lost bytes go again.
                None => (still, conn.next) = (still + 1, conn.acked),
            }
        }
        Ok(())
    }

    /// As [`workload::upload`](crate::compare::workload::upload): verified by the peer's digest.
    pub(super) fn upload(&self, payload: &Payload, time: Duration) -> io::Result<Bulk> {
        let mut buffer = vec![0; 1 << 17];
        let mut conn = self.connect(20_000, ask::SINK, &mut buffer)?;
        self.read(&mut conn, 1, &mut buffer)?;
        let mut bulk = Bulk::default();
        while bulk.bytes == 0 || bulk.time < time {
            let (watch, used) = (Stopwatch::start(), processor_time());
            self.pour(&mut conn, &payload.bytes, &mut buffer)?;
            self.read(&mut conn, 1, &mut buffer)?;
            bulk.time += watch.elapsed();
            bulk.processor += processor_time() - used;
            bulk.bytes += payload.bytes.len() as u64;
            if self.read(&mut conn, payload.digest.len(), &mut buffer)? != payload.digest {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "SHA-256 differs"));
            }
        }
        self.reset(&conn)?;
        Ok(bulk)
    }

    /// As [`workload::download`](crate::compare::workload::download), but what arrives is not looked at.
    pub(super) fn download(&self, payload: &Payload, time: Duration) -> io::Result<Bulk> {
        let mut buffer = vec![0; 1 << 17];
        let mut conn = self.connect(20_001, ask::SOURCE, &mut buffer)?;
        let mut bulk = Bulk::default();
        while bulk.bytes == 0 || bulk.time < time {
            let (watch, used) = (Stopwatch::start(), processor_time());
            self.write(&mut conn, &[1])?;
            self.read(&mut conn, payload.bytes.len() + payload.digest.len(), &mut buffer)?;
            bulk.time += watch.elapsed();
            bulk.processor += processor_time() - used;
            bulk.bytes += payload.bytes.len() as u64;
        }
        self.reset(&conn)?;
        Ok(bulk)
    }

    /// As [`workload::latency`](crate::compare::workload::latency).
    pub(super) fn latency(&self, time: Duration) -> io::Result<Histogram<u64>> {
        let mut buffer = vec![0; 1 << 17];
        let mut conn = self.connect(20_002, ask::ECHO, &mut buffer)?;
        let mut histogram = Histogram::new_with_bounds(1, 10_000_000_000, 3).map_err(io::Error::other)?;
        let all = Stopwatch::start();
        while all.elapsed() < time {
            let one = Stopwatch::start();
            self.write(&mut conn, &[1])?;
            // The reply is acknowledged by the next request.
            loop {
                let Segment { header, payload } = self.next(&mut buffer)?;
                if header.dst_port == conn.port && !payload.is_empty() {
                    conn.expected = header.seq.wrapping_add(payload.len() as u32);
                    break;
                }
            }
            histogram.saturating_record(one.elapsed().as_nanos() as u64);
        }
        self.reset(&conn)?;
        Ok(histogram)
    }

    /// As [`workload::connections`](crate::compare::workload::connections): open, a byte each way, close.
    pub(super) fn connections(&self, time: Duration) -> io::Result<(u64, Duration)> {
        let mut buffer = vec![0; 1 << 17];
        let (mut count, mut port, watch) = (0, 30_000, Stopwatch::start());
        let mut open = || {
            // Ports come round when the peer has forgotten the first.
            port = if port == 60_000 { 30_000 } else { port + 1 };
            self.open(port)
        };
        (0..AT_ONCE).try_for_each(|_| open())?;
        while watch.elapsed() < time {
            let Some(Segment { header, payload }) = self.take(&mut buffer)? else {
                // A packet that the peer did not take is not sent again: another connection takes the place.
                if !self.wait()? {
                    open()?;
                }
                continue;
            };
            let Some(after) = answer(&header, payload.len()) else { continue };
            let (flags, greeting): (_, &[u8]) = match after.opens {
                true => (Flags::ACK.union(Flags::PSH), &[ask::GREET]),
                false => (Flags::ACK.union(Flags::FIN), &[]),
            };
            self.segment(header.dst_port, flags, header.ack, after.ack, greeting)?;
            if !after.opens {
                count += 1;
                open()?;
            }
        }
        Ok((count, watch.elapsed()))
    }
}

/// The answer to a segment of a short connection.
struct Answer {
    /// It was the peer's SYN; otherwise its FIN.
    opens: bool,
    ack: u32,
}

fn answer(header: &TcpHeader, len: usize) -> Option<Answer> {
    let opens = header.flags.contains(Flags::SYN);
    let ends = opens || header.flags.contains(Flags::FIN);
    ends.then(|| Answer { opens, ack: header.seq.wrapping_add(len as u32 + 1) })
}
