//! smoltcp 0.14 at its strongest: super-packets of up to 64 KB through a TUN with virtio-net headers, no
//! checksum computed or verified in software, one `read` or `write` each, no allocation and no copy except
//! the one between socket buffer and packet, one thread that polls.
//!
//! smoltcp's own TUN device allocates and zeroes a buffer per packet and does not support offload.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, Checksum, Device, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::socket::tcp;
use smoltcp::wire::{HardwareAddress, IpCidr, IpProtocol, Ipv4Address};
use taut_device::Tun;

use super::{Task, Tuning};
use crate::net::{self, LOCAL, MTU, PEER, PORT};
use crate::peer::{BATCH, CHUNK};
use crate::probe::{Probe, histogram};

/// Largest super-packet: the largest length that an IPv4 header can hold.
pub const GSO_MAX_BYTES: usize = 65_535;

const IPV4_HEADER_LEN: usize = 20;
/// `struct virtio_net_hdr`, which precedes each packet on a TUN with offload.
const VNET_HDR_LEN: usize = 10;
const VNET_NEEDS_CSUM: u8 = 1;
const VNET_GSO_TCPV4: u8 = 1;

/// The TUN as smoltcp's device.
struct VnetTun {
    tun: Tun,
    rx: Vec<u8>,
    tx: Vec<u8>,
}

impl VnetTun {
    fn new(tun: Tun) -> Self {
        Self { tun, rx: vec![0; VNET_HDR_LEN + 65_536], tx: vec![0; VNET_HDR_LEN + 65_536] }
    }
}

/// The capabilities of a device with these offloads; the pair in memory uses them too.
pub fn capabilities() -> DeviceCapabilities {
    let mut caps = DeviceCapabilities::default();
    caps.medium = Medium::Ip;
    caps.max_transmission_unit = usize::from(MTU);
    // The kernel verifies the header's sum but leaves TCP's to the device, in both directions.
    caps.checksum.ipv4 = Checksum::Tx;
    caps.checksum.tcp = Checksum::None;
    caps.segmentation.tcpv4 = std::num::NonZeroUsize::new(GSO_MAX_BYTES);
    caps
}

impl Device for VnetTun {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        let count = rustix::io::read(&self.tun, &mut self.rx).ok()?;
        let packet = self.rx.get(VNET_HDR_LEN..count)?;
        Some((RxToken(packet), TxToken { fd: self.tun.as_fd(), buffer: &mut self.tx, segment: 0 }))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<TxToken<'_>> {
        Some(TxToken { fd: self.tun.as_fd(), buffer: &mut self.tx, segment: 0 })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities()
    }
}

struct RxToken<'a>(&'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

struct TxToken<'a> {
    fd: BorrowedFd<'a>,
    buffer: &'a mut [u8],
    /// MSS of a super-packet, 0 for a plain one.
    segment: u16,
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let whole = &mut self.buffer[..VNET_HDR_LEN + len];
        let (header, packet) = whole.split_at_mut(VNET_HDR_LEN);
        let result = f(packet);
        header.copy_from_slice(&offload_header(packet, self.segment));
        // A full queue drops the packet, as on any link.
        let _ = rustix::io::write(self.fd, whole);
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size.map_or(0, std::num::NonZeroU16::get);
    }
}

/// Prepares a packet for a device that completes checksums: the pseudo-header's sum goes into TCP's checksum
/// field. Returns its `struct virtio_net_hdr`.
fn offload_header(packet: &mut [u8], segment: u16) -> [u8; VNET_HDR_LEN] {
    let mut header = [0; VNET_HDR_LEN];
    if packet[9] != u8::from(IpProtocol::Tcp) {
        return header;
    }
    let mut sum = u32::from(packet[9]) + (packet.len() - IPV4_HEADER_LEN) as u32;
    for pair in packet[12..IPV4_HEADER_LEN].chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    packet[IPV4_HEADER_LEN + 16..][..2].copy_from_slice(&(sum as u16).to_be_bytes());

    header[0] = VNET_NEEDS_CSUM;
    header[6..8].copy_from_slice(&(IPV4_HEADER_LEN as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&16_u16.to_ne_bytes());
    if segment != 0 {
        let tcp_header_len = u16::from(packet[IPV4_HEADER_LEN + 12] >> 4) * 4;
        header[1] = VNET_GSO_TCPV4;
        header[2..4].copy_from_slice(&(IPV4_HEADER_LEN as u16 + tcp_header_len).to_ne_bytes());
        header[4..6].copy_from_slice(&segment.to_ne_bytes());
    }
    header
}

/// One interface with its sockets, polled by the loop below.
struct Loop<'a> {
    device: VnetTun,
    iface: Interface,
    sockets: SocketSet<'static>,
    started: Instant,
    ingress_batch: usize,
    probe: &'a Probe,
}

/// A socket tuned for speed: no Nagle, no delayed ACK beyond what a turn coalesces.
pub fn socket(rx_bytes: usize, tx_bytes: usize) -> tcp::Socket<'static> {
    let mut socket = tcp::Socket::new(
        tcp::SocketBuffer::new(vec![0; rx_bytes]),
        tcp::SocketBuffer::new(vec![0; tx_bytes]),
    );
    socket.set_nagle_enabled(false);
    socket.set_ack_delay(None);
    socket
}

/// An interface with one address.
pub fn interface(device: &mut impl Device, address: Ipv4Address, seed: u64) -> Interface {
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = seed;
    let mut iface = Interface::new(config, device, smoltcp::time::Instant::ZERO);
    iface.update_ip_addrs(|addresses| {
        addresses.push(IpCidr::new(address.into(), 24)).expect("an interface holds two addresses");
    });
    iface
}

impl<'a> Loop<'a> {
    fn new(tun: Tun, tuning: &Tuning, probe: &'a Probe) -> Self {
        let mut device = VnetTun::new(tun);
        let iface = interface(&mut device, LOCAL, u64::from(std::process::id()));
        Self {
            device,
            iface,
            sockets: SocketSet::new(Vec::new()),
            started: Instant::now(),
            ingress_batch: tuning.smoltcp_ingress_batch,
            probe,
        }
    }

    fn now(&self) -> smoltcp::time::Instant {
        smoltcp::time::Instant::from_micros(self.started.elapsed().as_micros() as i64)
    }

    /// Input, then the application, then output, until told to stop; sleeps when nothing happened.
    /// The application returns whether it did something.
    fn turn_until_stopped(
        &mut self,
        mut application: impl FnMut(&mut Interface, &mut SocketSet<'static>) -> Result<bool>,
    ) -> Result<()> {
        while !self.probe.stopped() {
            let now = self.now();
            let mut moved = false;
            for _ in 0..self.ingress_batch {
                match self.iface.poll_ingress_single(now, &mut self.device, &mut self.sockets) {
                    PollIngressSingleResult::None => break,
                    _ => moved = true,
                }
            }
            moved |= application(&mut self.iface, &mut self.sockets)?;
            while self.iface.poll_egress(now, &mut self.device, &mut self.sockets)
                == PollResult::SocketStateChanged
            {
                moved = true;
            }
            if !moved {
                let until = self.iface.poll_delay(now, &self.sockets).map(Duration::from);
                net::wait_readable(&self.device.tun, until);
            }
        }
        Ok(())
    }

    /// Adds a socket that connects from `port` to the peer.
    fn connect(&mut self, mut socket: tcp::Socket<'static>, port: u16) -> Result<SocketHandle> {
        socket
            .connect(self.iface.context(), (PEER, PORT), port)
            .map_err(io::Error::other)
            .context("connect")?;
        Ok(self.sockets.add(socket))
    }
}

pub fn run(task: Task, tun: Tun, tuning: &Tuning, probe: &Probe) -> Result<()> {
    let mut turning = Loop::new(tun, tuning, probe);
    let bytes = tuning.smoltcp_buffer_bytes;
    match task {
        Task::Send => send(&mut turning, bytes),
        Task::Receive => receive(&mut turning, bytes),
        Task::Ping => ping(&mut turning),
        Task::Dial => dial(&mut turning),
        Task::Serve => serve(&mut turning),
        Task::Hold => hold(&mut turning),
    }
}

fn send(turning: &mut Loop<'_>, bytes: usize) -> Result<()> {
    let handle = turning.connect(socket(64 << 10, bytes), 40_000)?;
    let data = vec![0x5a; CHUNK];
    turning.turn_until_stopped(|_, sockets| {
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        let mut wrote = false;
        while socket.can_send() {
            wrote |= socket.send_slice(&data).map_err(io::Error::other)? > 0;
        }
        Ok(wrote)
    })
}

fn receive(turning: &mut Loop<'_>, bytes: usize) -> Result<()> {
    let handle = turning.connect(socket(bytes, 64 << 10), 40_000)?;
    let mut data = vec![0; CHUNK];
    let probe = turning.probe;
    turning.turn_until_stopped(|_, sockets| {
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        let mut read = false;
        while socket.can_recv() {
            let count = socket.recv_slice(&mut data).map_err(io::Error::other)?;
            probe.add(count as u64);
            read |= count > 0;
        }
        Ok(read)
    })
}

fn ping(turning: &mut Loop<'_>) -> Result<()> {
    let handle = turning.connect(socket(4 << 10, 4 << 10), 40_000)?;
    let probe = turning.probe;
    let mut taken_ns = histogram();
    let mut asked: Option<Instant> = None;
    let mut byte = [0];
    turning.turn_until_stopped(|_, sockets| {
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        if let Some(at) = asked {
            if !socket.can_recv() {
                return Ok(false);
            }
            socket.recv_slice(&mut byte).map_err(io::Error::other)?;
            if probe.measuring() {
                taken_ns.saturating_record(at.elapsed().as_nanos() as u64);
            }
            probe.add(1);
        }
        if !socket.can_send() {
            return Ok(false);
        }
        asked = Some(Instant::now());
        socket.send_slice(&byte).map_err(io::Error::other)?;
        Ok(true)
    })?;
    probe.keep_latencies(taken_ns);
    Ok(())
}

/// Each of [`BATCH`] sockets makes its rounds independently, so that none waits for the slowest.
fn dial(turning: &mut Loop<'_>) -> Result<()> {
    let handles: Vec<_> = (0..BATCH).map(|_| turning.sockets.add(socket(2 << 10, 2 << 10))).collect();
    let mut asked = [false; BATCH];
    let mut port = 1_024_u16;
    let mut byte = [0];
    let probe = turning.probe;
    turning.turn_until_stopped(|iface, sockets| {
        let mut moved = false;
        for (handle, asked) in handles.iter().zip(&mut asked) {
            let socket = sockets.get_mut::<tcp::Socket>(*handle);
            // The socket keeps its four-tuple until the RST is sent.
            if !socket.is_open() && socket.remote_endpoint().is_none() {
                port = if port == u16::MAX { 1_024 } else { port + 1 };
                socket.connect(iface.context(), (PEER, PORT), port).map_err(io::Error::other)?;
                *asked = false;
                moved = true;
            } else if !*asked && socket.can_send() {
                socket.send_slice(&byte).map_err(io::Error::other)?;
                *asked = true;
                moved = true;
            } else if *asked && socket.can_recv() {
                socket.recv_slice(&mut byte).map_err(io::Error::other)?;
                socket.abort();
                probe.add(1);
                moved = true;
            }
        }
        Ok(moved)
    })
}

fn serve(turning: &mut Loop<'_>) -> Result<()> {
    // Two batches: the next one's SYNs may come while the last one is being torn down.
    let handles: Vec<_> = (0..2 * BATCH).map(|_| turning.sockets.add(socket(2 << 10, 2 << 10))).collect();
    let mut byte = [0];
    turning.turn_until_stopped(|_, sockets| {
        let mut moved = false;
        for handle in &handles {
            let socket = sockets.get_mut::<tcp::Socket>(*handle);
            if !socket.is_open() {
                socket.listen(PORT).map_err(io::Error::other)?;
            } else if socket.can_recv() {
                let count = socket.recv_slice(&mut byte).map_err(io::Error::other)?;
                socket.send_slice(&byte[..count]).map_err(io::Error::other)?;
                socket.close();
                moved = true;
            }
        }
        Ok(moved)
    })
}

/// Buffers of 2 KiB each way: the least that still takes a segment.
fn hold(turning: &mut Loop<'_>) -> Result<()> {
    let mut listening: Vec<SocketHandle> = Vec::with_capacity(2 * BATCH);
    turning.turn_until_stopped(|_, sockets| {
        listening.retain(|handle| !sockets.get::<tcp::Socket>(*handle).is_active());
        let spare = 2 * BATCH - listening.len();
        for _ in 0..spare {
            let mut socket = socket(2 << 10, 2 << 10);
            socket.listen(PORT).map_err(io::Error::other)?;
            listening.push(sockets.add(socket));
        }
        Ok(spare > 0)
    })
}
