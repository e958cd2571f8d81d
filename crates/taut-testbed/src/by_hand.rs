//! TCP packets made by hand over a TUN, without a stack: the least that a process can do there, and so the
//! limit of every TCP on it. Called by `taut demo` and
//! by the benchmarks.
//!
//! Each packet is answered by itself, and the only timer ends a standstill: this is no TCP for other links.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_core::{Gather, Instant, Offload, TxPacket};
use taut_device::Tun;
use taut_device::sys::monotonic_ns;
use taut_wire::tcp::{CHECKSUM_OFFSET, Flags, TcpHeader, partial_checksum, set_checksum};
use taut_wire::{Ecn, IpHeader, TcpOptions, protocol};

const MSS: usize = 1_460;
/// The payload of a super-packet: the most segments that fit in 64 KiB.
const SUPER_PACKET: usize = 44 * MSS;
/// The window for the peer is 1 GiB, so that it is no limit.
const WINDOW_SCALE: u8 = 14;
/// Bytes of a read: a super-packet with its headers.
const BUFFER_BYTES: usize = 1 << 17;
/// After this long without an answer, bytes are sent again.
const STANDSTILL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// So many times in a row mean that the peer is gone.
const STANDSTILLS: u32 = 100;
/// The last bytes of a read that are returned, at most.
const TAIL: usize = 64;
/// Ports of short connections: the peer forgets the first before they are used up.
const PORTS: Range<u16> = 30_000..60_000;

/// One end of a TUN, and the kernel's address at the other.
#[derive(Debug)]
pub struct ByHand {
    /// The TUN.
    pub tun: Tun,
    /// The source of all packets.
    pub near: IpAddr,
    /// The peer's listener.
    pub far: SocketAddr,
}

/// A connection: the next bytes in each direction, and the peer's window.
#[derive(Debug)]
pub struct HandConn<'a> {
    link: &'a ByHand,
    buffer: Vec<u8>,
    port: u16,
    next: u32,
    acked: u32,
    window: u32,
    scale: u8,
    expected: u32,
    /// Bytes that came while others were sent.
    inbox: Vec<u8>,
}

/// A packet from the peer, with the place of its payload.
struct Segment {
    header: TcpHeader,
    payload: Range<usize>,
}

impl ByHand {
    /// Connects from this port, and sends the first bytes with the handshake's last packet.
    ///
    /// # Errors
    /// When the peer does not answer, or those of the TUN.
    pub fn connect(&self, port: u16, first: &[u8]) -> io::Result<HandConn<'_>> {
        let mut buffer = vec![0; BUFFER_BYTES];
        self.open(port)?;
        loop {
            let Segment { header, .. } = self.next(&mut buffer)?;
            if header.dst_port != port || !header.flags.contains(Flags::SYN) {
                continue;
            }
            let mut conn = HandConn {
                link: self,
                buffer,
                port,
                next: header.ack,
                acked: header.ack,
                window: header.window.into(),
                scale: header.options.window_scale.unwrap_or(0),
                expected: header.seq.wrapping_add(1),
                inbox: Vec::new(),
            };
            conn.write(first)?;
            return Ok(conn);
        }
    }

    /// Opens connections, sends this greeting on each, and closes it when the peer has; `at_once` at the same
    /// time, until `goes_on` is false, which gets the number of those that are closed. Returns that number.
    ///
    /// # Errors
    /// Those of the TUN.
    pub fn short_connections(
        &self,
        greeting: &[u8],
        at_once: u16,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> io::Result<u64> {
        let (mut buffer, mut count, mut ports) = (vec![0; BUFFER_BYTES], 0, PORTS.cycle());
        let mut open = || ports.next().map_or(Ok(()), |port| self.open(port));
        (0..at_once).try_for_each(|_| open())?;
        while goes_on(count) {
            let Some(Segment { header, payload }) = self.take(&mut buffer)? else {
                // Lost packets are not sent again: another connection takes the place.
                if !self.wait()? {
                    open()?;
                }
                continue;
            };
            let is_syn = header.flags.contains(Flags::SYN);
            if !is_syn && !header.flags.contains(Flags::FIN) {
                continue;
            }
            let ack = header.seq.wrapping_add(payload.len() as u32 + 1);
            let (flags, payload) = match is_syn {
                true => (Flags::ACK.union(Flags::PSH), greeting),
                false => (Flags::ACK.union(Flags::FIN), &[][..]),
            };
            self.segment(header.dst_port, flags, header.ack, ack, payload)?;
            if !is_syn {
                count += 1;
                open()?;
            }
        }
        Ok(count)
    }

    /// Sends a SYN. Its sequence number grows with time, so that the peer accepts a port that it has in
    /// TIME-WAIT.
    fn open(&self, port: u16) -> io::Result<()> {
        self.segment(port, Flags::SYN, (monotonic_ns() >> 8) as u32, 0, &[])
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

    fn put(&self, header: &TcpHeader, payload: &[u8]) -> io::Result<()> {
        let (src, dst) = (self.near, self.far.ip());
        let mut bytes = [0; 80];
        let payload_len = header.header_len() + payload.len();
        let (hop_limit, ecn, header_len) = (64, Ecn::NotEct, 0);
        let ip = IpHeader { src, dst, protocol: protocol::TCP, hop_limit, ecn, header_len, payload_len };
        let start = ip.emit(&mut bytes, 0);
        let end = start + header.emit(&mut bytes[start..]);
        set_checksum(&mut bytes[start..], partial_checksum(src, dst, payload_len as u32));
        let (start, offset) = (start as u16, CHECKSUM_OFFSET as u16);
        let offload = match payload.len() > MSS {
            true => Offload::Segment { mss: MSS as u16, start, offset, ipv6: dst.is_ipv6() },
            false => Offload::Checksum { start, offset },
        };
        let payload = Gather::from(payload);
        self.tun.put(&TxPacket { header: &bytes[..end], payload, offload, departure: Instant::ZERO })
    }

    /// The next segment of TCP, if one is there.
    fn take(&self, buffer: &mut [u8]) -> io::Result<Option<Segment>> {
        loop {
            let range = match self.tun.recv(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                received => received?.range,
            };
            let Ok(ip) = IpHeader::parse(&buffer[range.clone()]) else { continue };
            let (begin, end) = (range.start + ip.header_len, range.start + ip.header_len + ip.payload_len);
            if ip.protocol == protocol::TCP
                && let Ok((header, len)) = TcpHeader::parse(&buffer[begin..end])
            {
                return Ok(Some(Segment { header, payload: begin + len..end }));
            }
        }
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
}

impl HandConn<'_> {
    /// Sends these bytes as one packet, or super-packet.
    ///
    /// # Errors
    /// Those of the TUN.
    pub fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let flags = Flags::ACK.union(Flags::PSH);
        self.link.segment(self.port, flags, self.next, self.expected, payload)?;
        self.next = self.next.wrapping_add(payload.len() as u32);
        Ok(())
    }

    /// Sends all of it, as fast as the peer's window allows, until it is acknowledged.
    ///
    /// # Errors
    /// When the peer does not answer, or those of the TUN.
    pub fn pour(&mut self, bytes: &[u8]) -> io::Result<()> {
        let begin = self.next;
        let done = |seq: u32| seq.wrapping_sub(begin) as usize;
        let mut still = 0;
        while done(self.acked) < bytes.len() {
            let at = done(self.next);
            let chunk = &bytes[at..bytes.len().min(at + SUPER_PACKET)];
            let in_flight = self.next.wrapping_sub(self.acked);
            if !chunk.is_empty() && in_flight + chunk.len() as u32 <= self.window {
                match self.write(chunk) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => written?,
                }
                while self.keep()? {}
            } else if !self.keep()? {
                match self.link.wait()? {
                    true => still = 0,
                    false if still == STANDSTILLS => return Err(io::ErrorKind::TimedOut.into()),
                    // Lost bytes are sent again.
                    false => (still, self.next) = (still + 1, self.acked),
                }
            }
        }
        Ok(())
    }

    /// Reads so many bytes, and acknowledges each packet. Returns the last of them, at most 64.
    ///
    /// # Errors
    /// When the peer does not answer, or those of the TUN.
    pub fn read(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut last: Vec<u8> = self.inbox.drain(..count.min(self.inbox.len())).collect();
        let mut left = count - last.len();
        while left > 0 {
            let segment = self.link.next(&mut self.buffer)?;
            let range = self.note(&segment)?;
            // Nothing, of a segment that came again.
            let bytes = &self.buffer[range];
            let (wanted, more) = bytes.split_at(bytes.len().min(left));
            self.inbox.extend_from_slice(more);
            left -= wanted.len();
            if left < TAIL {
                last.extend_from_slice(wanted);
            }
        }
        Ok(last.split_off(last.len().saturating_sub(TAIL)))
    }

    /// Sends a byte and waits for the answer, which the next one acknowledges.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn exchange(&mut self) -> io::Result<()> {
        self.write(&[1])?;
        loop {
            let Segment { header, payload } = self.link.next(&mut self.buffer)?;
            if header.dst_port == self.port && !payload.is_empty() {
                self.expected = header.seq.wrapping_add(payload.len() as u32);
                return Ok(());
            }
        }
    }

    /// Ends the connection at once.
    ///
    /// # Errors
    /// Those of the TUN.
    pub fn reset(self) -> io::Result<()> {
        self.link.segment(self.port, Flags::RST.union(Flags::ACK), self.next, self.expected, &[])
    }

    /// Takes a packet while bytes are sent, and keeps its payload for the next read; false if none is there.
    fn keep(&mut self) -> io::Result<bool> {
        let Some(segment) = self.link.take(&mut self.buffer)? else { return Ok(false) };
        let range = self.note(&segment)?;
        self.inbox.extend_from_slice(&self.buffer[range]);
        Ok(true)
    }

    /// Notes a segment of the connection, and acknowledges its payload, which is returned if it is in order.
    fn note(&mut self, Segment { header, payload }: &Segment) -> io::Result<Range<usize>> {
        if header.dst_port != self.port {
            return Ok(0..0);
        }
        if header.flags.contains(Flags::RST) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.acked = header.ack;
        self.window = u32::from(header.window) << self.scale;
        if payload.is_empty() {
            let ended = header.flags.contains(Flags::FIN);
            return if ended { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(0..0) };
        }
        let in_order = header.seq == self.expected;
        if in_order {
            self.expected = self.expected.wrapping_add(payload.len() as u32);
        }
        self.link.segment(self.port, Flags::ACK, self.next, self.expected, &[])?;
        Ok(if in_order { payload.clone() } else { 0..0 })
    }
}
