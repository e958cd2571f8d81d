//! A path between a stack and the kernel that marks packets and counts them: a TUN interface, held by the
//! stack, that changes passing packets. And the kernel's facts about its own sockets.
#![allow(unreachable_pub, reason = "one test uses it")]

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use taut::device::{Device, News, Offload, Received, RxDevice, Sent, Tun, TxDevice, TxPacket, TxTicket};
use taut_testbed::TcpInfo;
use taut_wire::{AccEcn, Ecn, Flags, IpHeader, TcpHeader, tcp};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Kernel,
    Stack,
}

/// Packets of one direction, by what they carried when they came out at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub packets: u32,
    pub bytes: u32,
}

/// The packets of one direction.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// One in this many ECN-capable data packets is marked; 0 for none.
    pub mark_each: u32,
    capable: u32,
    /// The end of the data that has passed.
    end: Option<u32>,
    pub ect0: Count,
    pub ect1: Count,
    pub ce: Count,
    /// Bytes of ECN-capable retransmissions, which are in none of the three.
    pub again: u32,
    /// Data segments.
    pub data: u32,
    /// Segments with the AccECN option, SYNs aside, and those without.
    pub with_option: u32,
    pub without_option: u32,
    /// Segments with CWR, SYNs aside.
    pub cwr: u32,
    /// Packets acknowledged by ACKs for eight or more, in eights: for these, the three bits may have wrapped
    /// unnoticed.
    pub ambiguous: u32,
    /// The ends of the data segments that have passed and were not yet acknowledged.
    unacked: VecDeque<u32>,
    /// The first segments, as they came out.
    pub first: Vec<Seen>,
}

/// A segment as it left the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub flags: Flags,
    pub mark: Ecn,
    pub option: Option<AccEcn>,
    pub len: usize,
}

/// A change to a segment that a router on the path makes.
pub type Tamper = fn(To, &mut TcpHeader, &mut Ecn);

/// The settings of the path, and the packets that it has seen.
#[derive(Debug, Default)]
pub struct Path {
    pub to_kernel: Direction,
    pub to_stack: Direction,
    pub tamper: Option<Tamper>,
}

const FIRST: usize = 8;

impl Path {
    /// Takes a whole packet on its way, possibly marks it, and counts it.
    fn pass(&mut self, to: To, packet: &mut Vec<u8>) {
        let Ok(mut ip) = IpHeader::parse(packet) else { return };
        let start = ip.emitted_len();
        let Ok((mut header, tcp_len)) = TcpHeader::parse(&packet[start..]) else { return };
        let payload = packet[start + tcp_len..].to_vec();
        let before = (ip.ecn, header);
        let tamper = self.tamper;
        let direction = match to {
            To::Kernel => &mut self.to_kernel,
            To::Stack => &mut self.to_stack,
        };
        // Retransmissions are neither changed nor counted: nothing is lost on this path, so a retransmission
        // is not acceptable at its destination, which should not count it, either (RFC 9768 §1.3). Linux
        // marks retransmissions as ECN-capable, and counts the bytes of one that ends where the received
        // data ends, as a tail loss probe does.
        let end = header.seq.wrapping_add(payload.len() as u32);
        let is_new =
            !payload.is_empty() && direction.end.is_none_or(|last| end.wrapping_sub(last) as i32 > 0);
        if is_new {
            direction.end = Some(end);
            direction.unacked.push_back(end);
        }
        if ip.ecn != Ecn::NotEct && is_new && direction.mark_each > 0 {
            direction.capable += 1;
            if direction.capable % direction.mark_each == 0 {
                ip.ecn = Ecn::Ce;
            }
        }
        if let Some(tamper) = tamper {
            tamper(to, &mut header, &mut ip.ecn);
        }
        if !is_new && ip.ecn != Ecn::NotEct {
            direction.again += payload.len() as u32;
        }
        if is_new || payload.is_empty() {
            direction.count(&header, ip.ecn, payload.len());
            let newly = match to {
                To::Kernel => self.to_stack.acknowledge(&header),
                To::Stack => self.to_kernel.acknowledge(&header),
            };
            let direction = match to {
                To::Kernel => &mut self.to_kernel,
                To::Stack => &mut self.to_stack,
            };
            direction.ambiguous += newly / 8 * 8;
        }
        if (ip.ecn, header) == before {
            return;
        }
        let mut tcp_bytes = [0; 60];
        let tcp_len = header.emit(&mut tcp_bytes);
        tcp::set_checksum(&mut tcp_bytes, 0);
        let sum = tcp::full_checksum(ip.src, ip.dst, &tcp_bytes[..tcp_len], &[&payload]);
        tcp::set_checksum(&mut tcp_bytes, sum);
        ip.payload_len = tcp_len + payload.len();
        packet.resize(start + tcp_len + payload.len(), 0);
        let id = u16::from_be_bytes([packet[4], packet[5]]);
        ip.emit(packet, id);
        packet[start..start + tcp_len].copy_from_slice(&tcp_bytes[..tcp_len]);
        packet[start + tcp_len..].copy_from_slice(&payload);
    }
}

impl Direction {
    /// The number of data segments that this ACK, from the other direction, acknowledges for the first time.
    fn acknowledge(&mut self, header: &TcpHeader) -> u32 {
        let before = self.unacked.len();
        while self.unacked.front().is_some_and(|end| header.ack.wrapping_sub(*end) as i32 >= 0) {
            self.unacked.pop_front();
        }
        (before - self.unacked.len()) as u32
    }

    fn count(&mut self, header: &TcpHeader, mark: Ecn, len: usize) {
        let count = match mark {
            Ecn::NotEct => None,
            Ecn::Ect0 => Some(&mut self.ect0),
            Ecn::Ect1 => Some(&mut self.ect1),
            Ecn::Ce => Some(&mut self.ce),
        };
        if let Some(count) = count {
            count.packets += 1;
            count.bytes += len as u32;
        }
        self.data += u32::from(len > 0);
        if !header.flags.contains(Flags::SYN) {
            match header.options.accecn {
                Some(_) => self.with_option += 1,
                None => self.without_option += 1,
            }
        }
        if !header.flags.contains(Flags::SYN) {
            self.cwr += u32::from(header.flags.contains(Flags::CWR));
        }
        if self.first.len() < FIRST {
            self.first.push(Seen { flags: header.flags, mark, option: header.options.accecn, len });
        }
    }
}

/// The stack's end of it: `tun`, which must be without offloads, so that a packet is a packet.
pub fn marker(tun: Tun, path: &Arc<Mutex<Path>>) -> Device {
    let (caps, tun) = (tun.caps(), Arc::new(tun));
    let half = || Marker { tun: Arc::clone(&tun), path: Arc::clone(path), packet: Vec::new() };
    Device::new(caps, half(), half())
}

/// A half of it.
struct Marker {
    tun: Arc<Tun>,
    path: Arc<Mutex<Path>>,
    packet: Vec<u8>,
}

pub fn lock(path: &Mutex<Path>) -> MutexGuard<'_, Path> {
    path.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RxDevice for Marker {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Fd(self.tun.as_fd().try_clone_to_owned()?))
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let received = match self.tun.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        self.packet.clear();
        self.packet.extend_from_slice(&buffer[received.range.clone()]);
        lock(&self.path).pass(To::Stack, &mut self.packet);
        buffer[..self.packet.len()].copy_from_slice(&self.packet);
        Ok(Some(Received { range: 0..self.packet.len(), ..received }))
    }
}

impl TxDevice for Marker {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Fd(self.tun.as_fd().try_clone_to_owned()?))
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        assert_eq!(packet.offload, Offload::None, "the path takes whole packets");
        self.packet.clear();
        packet.pieces().for_each(|piece| self.packet.extend_from_slice(piece));
        lock(&self.path).pass(To::Kernel, &mut self.packet);
        // It has been counted: a full queue may not bring it back.
        while let Err(error) = self.tun.put(&TxPacket::whole(&self.packet)) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
            std::thread::yield_now();
        }
        Sent::Left(ticket)
    }
}

/// The fields of Linux's `struct tcp_info` about ECN. Those of accurate ECN exist since 6.18.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// `TCPI_OPT_ECN` and `TCPI_OPT_ECN_SEEN`.
    pub ecn: bool,
    pub ecn_seen: bool,
    pub unacked: u32,
    pub delivered_ce: u32,
    pub received_ce: u32,
    /// Payload bytes of ECT(1), ECT(0) and CE.
    pub delivered_bytes: [u32; 3],
    pub received_bytes: [u32; 3],
}

impl KernelInfo {
    /// Reads it from the kernel. `None` if the kernel's structure lacks these fields.
    pub fn of(socket: &TcpStream) -> Option<Self> {
        const ECN: u8 = 8;
        const ECN_SEEN: u8 = 16;
        let info = TcpInfo::of(socket).unwrap();
        let ecn = info.accurate_ecn()?;
        Some(Self {
            ecn: info.options() & ECN != 0,
            ecn_seen: info.options() & ECN_SEEN != 0,
            unacked: info.unacked(),
            delivered_ce: info.delivered_ce(),
            received_ce: ecn.received_ce,
            delivered_bytes: ecn.delivered_bytes,
            received_bytes: ecn.received_bytes,
        })
    }
}
