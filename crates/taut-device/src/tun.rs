//! TUN: an interface of the kernel whose other end is this process. `tuntap.rst`, virtio 1.2 §5.1.6.
//!
//! With `IFF_VNET_HDR` both sides exchange super-packets of up to 64 KB: the kernel cuts ours into segments
//! later, and passes its own on uncut. That is worth a factor of ten. A packet leaves with one `writev` of
//! its pieces, without a copy; only the smallest packets are copied into one piece first. A packet is
//! complete when that call returns.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use taut_core::GATHER_MAX;
use taut_core::{LinkCaps, RxChecksum, TxPacket, TxTicket};
use taut_driver::{Device, News, Received, RxDevice, Sent, TxDevice};
use taut_wire::{VnetHeader, pcapng};

use crate::capture::CaptureFile;
use crate::interface::Interface;
use crate::sys::tun_ioctl;
use crate::vnet;

const DEVICE_NODE: &str = "/dev/net/tun";

// linux/if_tun.h
pub(crate) const IFF_TUN: u16 = 0x0001;
pub(crate) const IFF_NO_PI: u16 = 0x1000;
pub(crate) const IFF_VNET_HDR: u16 = 0x4000;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO4: u32 = 0x02;
const TUN_F_TSO6: u32 = 0x04;
const TUN_F_TSO_ECN: u32 = 0x08;
const TUN_F_USO4: u32 = 0x20;
const TUN_F_USO6: u32 = 0x40;

/// Packets up to this length are copied into one piece, which costs less than passing three pieces to the
/// kernel.
const SMALL: usize = 256;

/// How long opening waits for the carrier: it takes less than a millisecond, and on a busy machine a few.
pub(crate) const CARRIER_WAIT: Duration = Duration::from_millis(500);

/// How to open a [`Tun`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunOptions {
    /// Largest IP packet in bytes, 68..=65,521, and at least 1280 where IPv6 is used; 1500 by default.
    pub mtu: u16,
    /// The number of packets that may wait for this process to read them; the kernel drops further ones. The
    /// kernel's own default of 500 is too few for a sender with a large window; 10,000 here.
    pub txqueuelen: u32,
    /// Whether [`Tun::open_queue`] may add queues.
    pub multi_queue: bool,
    /// Whether to exchange super-packets if the kernel supports them; true by default.
    pub offload: bool,
    /// Whether to set MTU and queue length and to bring the interface up; true by default. With false, an
    /// ordinary user can open an interface that an administrator has prepared for that user.
    pub configure: bool,
    /// Gets its packets; none by default.
    pub capture: Option<CaptureFile>,
}

impl Default for TunOptions {
    fn default() -> Self {
        Self {
            mtu: 1500,
            txqueuelen: 10_000,
            multi_queue: false,
            offload: true,
            configure: true,
            capture: None,
        }
    }
}

/// One queue of a TUN interface. The interface is removed with its last queue.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    caps: LinkCaps,
    vnet_header: bool,
    options: TunOptions,
}

impl Tun {
    /// Creates the interface `name` in the network namespace of this thread, or opens it if it exists and is
    /// free. In a name such as `taut%d`, `%d` is replaced by the first free number.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN` or without access to `/dev/net/tun`,
    /// [`io::ErrorKind::NotFound`] without TUN in the kernel, [`io::ErrorKind::InvalidInput`] for an
    /// impossible name or MTU, [`io::ErrorKind::ResourceBusy`] when another process has it.
    pub fn open(name: &str, options: &TunOptions) -> io::Result<Self> {
        let wanted = if options.offload { IFF_VNET_HDR } else { 0 };
        let mut tun = match Self::attach(name, options, wanted) {
            Err(error) if wanted != 0 && error.kind() == io::ErrorKind::InvalidInput => {
                // A kernel older than 2.6.27 has no virtio-net header.
                Self::attach(name, options, 0)?
            }
            other => other?,
        };
        tun.negotiate();
        if options.configure {
            let interface = Interface::open(&tun.name)?;
            interface.set_mtu(u32::from(options.mtu))?;
            interface.set_txqueuelen(options.txqueuelen)?;
            interface.set_up()?;
            interface.wait_until_running(CARRIER_WAIT)?;
        }
        Ok(tun)
    }

    /// Opens one more queue of the same interface. The kernel keeps a flow on the queue that last sent a
    /// packet of it, until the flow is idle for three seconds or the kernel has to remember more than 4096
    /// flows. The first packets of a flow may arrive on any queue, including the answer to a packet that was
    /// just sent.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), or [`io::ErrorKind::InvalidInput`] without
    /// [`TunOptions::multi_queue`].
    pub fn open_queue(&self) -> io::Result<Self> {
        let mut tun =
            Self::attach(&self.name, &self.options, if self.vnet_header { IFF_VNET_HDR } else { 0 })?;
        tun.negotiate();
        Ok(tun)
    }

    fn attach(name: &str, options: &TunOptions, vnet_header: u16) -> io::Result<Self> {
        let name = checked_name(name)?;
        let queues = if options.multi_queue { IFF_MULTI_QUEUE } else { 0 };
        let file = open_node()?;
        let flags = IFF_TUN | IFF_NO_PI | vnet_header | queues;
        let name = tun_ioctl::attach(&file, name, flags)
            .map_err(|error| options.explain_attach(&file, name, flags, &error))?;
        Ok(Self {
            file,
            name,
            caps: LinkCaps::plain(options.mtu),
            vnet_header: vnet_header != 0,
            options: options.clone(),
        })
    }

    /// Requests super-packets in both directions; if the kernel refuses, this is a plain link with a header.
    fn negotiate(&mut self) {
        if !self.vnet_header {
            return;
        }
        // A new interface has headers of 10 bytes anyway, so it does not matter if a kernel refuses this.
        let _ = tun_ioctl::set_header_len(&self.file, VnetHeader::LEN as i32);
        if let Some(caps) = take_super_packets(&self.file, self.options.mtu) {
            self.caps = caps;
        }
    }

    /// A queue that another program has opened, whose header has the length that this module uses.
    pub(crate) fn handed(file: File, name: String, vnet_header: bool, options: &TunOptions) -> Self {
        let caps = LinkCaps::plain(options.mtu);
        let mut tun = Self { file, name, caps, vnet_header, options: options.clone() };
        tun.negotiate();
        tun
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's side of the link, to give it addresses and routes. In the namespace of the calling
    /// thread.
    ///
    /// # Errors
    /// The interface is not in this namespace.
    pub fn interface(&self) -> io::Result<Interface> {
        Interface::open(&self.name)
    }

    /// The link's capabilities.
    #[must_use]
    pub const fn caps(&self) -> LinkCaps {
        self.caps
    }

    /// Takes a packet from the kernel. Any thread may call it; each packet goes to one of the callers. A
    /// packet with an invalid virtio-net header is returned as an empty one, which the stack counts as an
    /// error.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when nothing waits; another one when the interface is gone.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let len = (&self.file).read(buffer)?;
        if !self.vnet_header {
            return Ok(Received { range: 0..len, checksum: RxChecksum::Unverified, gso_size: 0 });
        }
        // The kernel's header is in front of the packet in the same buffer: reading into one piece of memory
        // is measurably faster than reading into two.
        let header = buffer.get(..len.min(VnetHeader::LEN)).unwrap_or_default();
        let Ok(header) = VnetHeader::parse(header) else {
            return Ok(Received { range: len..len, checksum: RxChecksum::Unverified, gso_size: 0 });
        };
        let (checksum, gso_size) = vnet::of_received(&header);
        Ok(Received { range: VnetHeader::LEN..len, checksum, gso_size })
    }

    /// The same in two pieces of memory: the packet's first bytes in `headers`, the rest in `payload`.
    fn recv_placed(&self, headers: &mut [u8], payload: &mut [u8]) -> io::Result<Received> {
        let mut vnet_header = [0; VnetHeader::LEN];
        let mut pieces = [&mut vnet_header[..], headers, payload].map(IoSliceMut::new);
        let len = (&self.file).read_vectored(&mut pieces)?;
        let (checksum, gso_size) = match VnetHeader::parse(&vnet_header) {
            Ok(header) => vnet::of_received(&header),
            // One that is not to be trusted.
            Err(_) => (RxChecksum::Unverified, 0),
        };
        Ok(Received { range: 0..len.saturating_sub(VnetHeader::LEN), checksum, gso_size })
    }

    /// Puts a packet on the link. Any thread may call it: the kernel does not mix packets.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the kernel has no room; any other error concerns only this packet.
    pub fn put(&self, packet: &TxPacket<'_>) -> io::Result<()> {
        let vnet_header = vnet::for_transmit(packet.header, packet.offload).emit();
        let vnet_header = if self.vnet_header { &vnet_header[..] } else { &[] };
        let len = vnet_header.len() + packet.len();
        if len <= SMALL {
            let mut whole = [0; SMALL];
            let mut end = 0;
            for piece in std::iter::once(vnet_header).chain(packet.pieces()) {
                whole[end..end + piece.len()].copy_from_slice(piece);
                end += piece.len();
            }
            return (&self.file).write(&whole[..end]).map(drop);
        }
        let mut pieces = [IoSlice::new(&[]); 2 + GATHER_MAX];
        let mut count = 0;
        let mut push = |piece| {
            pieces[count] = IoSlice::new(piece);
            count += 1;
        };
        if !vnet_header.is_empty() {
            push(vnet_header);
        }
        packet.pieces().for_each(push);
        // A TUN write is all or nothing.
        (&self.file).write_vectored(&pieces[..count]).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The kernel can take a packet from one thread while it gives a packet to another, so both halves use the
/// same queue.
impl From<Tun> for Device {
    fn from(tun: Tun) -> Self {
        let (caps, tun) = (tun.caps, Arc::new(tun));
        Self::new(caps, TunTx(Arc::clone(&tun)), TunRx(tun))
    }
}

struct TunTx(Arc<Tun>);

impl TxDevice for TunTx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Fd(self.0.as_fd().try_clone_to_owned()?))
    }

    /// A write runs the receive path of the peer, before it returns.
    fn is_slow(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let written = self.0.put(packet);
        if let (Ok(()), Some(capture)) = (&written, &self.0.options.capture) {
            capture.record(pcapng::LINKTYPE_RAW, packet.pieces());
        }
        sent(written, ticket)
    }
}

/// The fate of a packet, by the result of the write to the interface. Linux: `tun_get_user`.
///
/// - `EAGAIN`: the interface's send buffer (`TUNSETSNDBUF`) is full. It polls writable when there is room
///   again, so the device is full.
/// - `ENOBUFS`, `ENOMEM`: the kernel had no memory for the packet. No event announces memory, and the
///   interface polls writable all the time, so a device that called itself full would be asked again
///   immediately, without end. The packet is dropped: its connection slows down, which is right on a host
///   that is short of memory, and retransmits the bytes with its next ACK, completion or timeout. Linux does
///   the same when a queue of its own drops a packet (`tcp_enter_cwr`).
/// - Any other error concerns this packet alone, or `recv` reports it too: the interface is gone.
fn sent(written: io::Result<()>, ticket: TxTicket) -> Sent {
    match written {
        Ok(()) => Sent::Left(ticket),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::WOULDBLOCK) => Sent::Full(ticket),
            Some(Errno::NOMEM | Errno::NOBUFS) => Sent::Dropped(ticket),
            _ => Sent::Never(ticket, error),
        },
    }
}

struct TunRx(Arc<Tun>);

impl RxDevice for TunRx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Fd(self.0.as_fd().try_clone_to_owned()?))
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let result = self.0.recv(buffer);
        self.record(&result, [buffer, &[]]);
        self.received(result)
    }

    fn recv_placed(
        &mut self,
        headers: &mut [u8],
        payload: &mut [u8],
    ) -> Option<io::Result<Option<Received>>> {
        self.0.vnet_header.then(|| {
            let result = self.0.recv_placed(headers, payload);
            self.record(&result, [headers, payload]);
            self.received(result)
        })
    }
}

impl TunRx {
    /// A packet at these two places goes to the capture, if there is one.
    fn record(&self, result: &io::Result<Received>, [first, rest]: [&[u8]; 2]) {
        let (Some(capture), Ok(Received { range, .. })) = (&self.0.options.capture, result) else { return };
        if !range.is_empty() {
            let first_end = range.end.min(first.len());
            let pieces = [&first[range.start..first_end], &rest[..range.end - first_end]];
            capture.record(pcapng::LINKTYPE_RAW, pieces.into_iter());
        }
    }

    fn received(&self, result: io::Result<Received>) -> io::Result<Option<Received>> {
        match result {
            Ok(received) => Ok(Some(received)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::WOULDBLOCK | Errno::INTR | Errno::NOMEM | Errno::NOBUFS) => Ok(None),
                Some(Errno::BADFD | Errno::NODEV) => {
                    let message = format!("TUN interface {} was deleted ({error})", self.0.name);
                    Err(io::Error::new(io::ErrorKind::NetworkDown, message))
                }
                _ => Err(io::Error::new(error.kind(), format!("TUN interface {}: {error}", self.0.name))),
            },
        }
    }
}

/// A descriptor that is no queue of any interface yet.
pub(crate) fn open_node() -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(DEVICE_NODE)
        .map_err(|error| explain_open(&error))
}

/// Asks the kernel for super-packets. Returns what the link can do if it gives them.
pub(crate) fn take_super_packets(file: &File, mtu: u16) -> Option<LinkCaps> {
    let flags = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    // Linux 6.2 cuts UDP, too.
    let udp_segments = tun_ioctl::set_offload(file, flags | TUN_F_USO4 | TUN_F_USO6).is_ok();
    let takes_any = udp_segments || tun_ioctl::set_offload(file, flags).is_ok();
    takes_any.then(|| LinkCaps { udp_segments, ..LinkCaps::offloading(mtu) })
}

/// The name, if an interface can have it.
pub(crate) fn checked_name(name: &str) -> io::Result<&str> {
    // Linux: `dev_valid_name`.
    let fits = (1..tun_ioctl::IFNAMSIZ).contains(&name.len()) && ![".", ".."].contains(&name);
    if !fits || name.bytes().any(|byte| b"\0/:".contains(&byte) || byte.is_ascii_whitespace()) {
        let message =
            format!("{name:?} is not an interface name: use 1 to 15 bytes without space, slash or colon");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(name)
}

fn explain_open(error: &io::Error) -> io::Error {
    let kind = error.kind();
    let advice = match kind {
        io::ErrorKind::NotFound => "; the kernel has no TUN (modprobe tun), or the container hides it",
        io::ErrorKind::PermissionDenied => "; it must be open to this user, as udev makes it (mode 0666)",
        _ => "",
    };
    io::Error::new(kind, format!("cannot open {DEVICE_NODE}: {error}{advice}"))
}

impl TunOptions {
    /// Explains a failure of TUNSETIFF, for which the kernel returns EINVAL in more than one case.
    fn explain_attach(&self, file: &File, name: &str, flags: u16, error: &io::Error) -> io::Error {
        let (kind, why) = match Errno::from_io_error(error) {
            Some(Errno::PERM) => (
                io::ErrorKind::PermissionDenied,
                format!(
                    "cannot open the TUN interface {name}: {error}; run as root, or use an interface made for this user"
                ),
            ),
            Some(Errno::BUSY) => {
                (io::ErrorKind::ResourceBusy, format!("the TUN interface {name} is already in use"))
            }
            Some(Errno::INVAL) => {
                let as_other = tun_ioctl::attach(file, name, flags ^ IFF_MULTI_QUEUE);
                let is_invalid =
                    as_other.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::INVAL));
                let why = match (is_invalid, self.multi_queue) {
                    (true, _) => {
                        format!(
                            "{name} is not a TUN interface: choose a TUN interface, or a new name to create one"
                        )
                    }
                    (_, true) => format!(
                        "the TUN interface {name} was made for one queue: use one shard, or create it with multi_queue"
                    ),
                    (_, false) => {
                        format!(
                            "the TUN interface {name} was made for several queues: use two shards or more"
                        )
                    }
                };
                (io::ErrorKind::InvalidInput, why)
            }
            _ => (error.kind(), format!("cannot open the TUN interface {name}: {error}")),
        };
        io::Error::new(kind, why)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn gw_277_a_packet_in_two_places_is_recorded_whole() {
        let path = std::env::temp_dir().join(format!("taut-placed-{}", std::process::id()));
        let capture = CaptureFile::begin(File::create(&path).unwrap(), |_| ()).unwrap();
        let options = TunOptions { capture: Some(capture), ..TunOptions::default() };
        let (kernel, own) = UnixDatagram::pair().unwrap();
        let (file, caps) = (OwnedFd::from(own).into(), LinkCaps::plain(1500));
        let mut rx = TunRx(Arc::new(Tun { file, name: String::new(), caps, vnet_header: true, options }));
        let packets = [1, 101].map(|first| (first..first + 100).collect::<Vec<u8>>());
        for packet in &packets {
            kernel.send(&[&[0; VnetHeader::LEN][..], packet].concat()).unwrap();
        }
        let (mut headers, mut payload) = ([0; 40], [0; 100]);
        let placed = rx.recv_placed(&mut headers, &mut payload).unwrap().unwrap().unwrap();
        assert_eq!(placed.range, 0..100);
        assert!(rx.recv(&mut vec![0; 1_000]).unwrap().is_some());
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(packets.iter().all(|packet| file.windows(100).any(|part| part == packet)));
    }

    /// A device is full only if it can announce room, so that a kernel without memory never leaves the driver
    /// waiting for nothing, or asking without end.
    #[test]
    fn errors_of_a_write_and_their_fates() {
        let fate =
            |written: Result<(), Errno>| match sent(written.map_err(io::Error::from), TxTicket::blank()) {
                Sent::Left(_) => "left".to_owned(),
                Sent::Kept => "kept".to_owned(),
                Sent::Full(_) => "full".to_owned(),
                Sent::Dropped(_) => "dropped".to_owned(),
                Sent::Never(_, why) => format!("never: {}", why.raw_os_error().unwrap()),
            };
        assert_eq!(fate(Ok(())), "left");
        assert_eq!(fate(Err(Errno::AGAIN)), "full");
        assert_eq!(fate(Err(Errno::NOBUFS)), "dropped");
        assert_eq!(fate(Err(Errno::NOMEM)), "dropped");
        // The interface is down; a header that makes no sense; the interface was deleted.
        for why in [Errno::IO, Errno::INVAL, Errno::BADFD] {
            assert_eq!(fate(Err(why)), format!("never: {}", why.raw_os_error()));
        }
    }
}
