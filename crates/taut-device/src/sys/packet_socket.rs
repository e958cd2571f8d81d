//! Packet sockets: the options, the messages with ancillary data, and the error queue, for which no library
//! has a safe form. `packet(7)`, `socket(7)`, Documentation/networking/timestamping.rst. Called by `packet`.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd};

#[cfg(feature = "xdp")]
use taut_wire::protocol;
use taut_wire::{Mac, ether_type};

pub(crate) use super::bytes_below;
use super::check;

/// linux/if_packet.h
const PACKET_VNET_HDR: i32 = 15;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const PACKET_TX_TIMESTAMP: i32 = 16;
/// asm-generic/socket.h; 6.13 and later.
const SCM_TS_OPT_ID: i32 = 81;
const SCM_TXTIME: i32 = libc::SO_TXTIME;
/// linux/net_tstamp.h
const TX_SOFTWARE: u32 = 1 << 1;
const REPORT_SOFTWARE: u32 = 1 << 4;
const OPT_ID: u32 = 1 << 7;
const OPT_TSONLY: u32 = 1 << 11;
/// The kinds of addresses that an interface accepts, besides its own: linux/if_packet.h.
const MR_MULTICAST: u16 = 0;
const MR_UNICAST: u16 = 3;

/// Which packets a socket gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gets {
    /// None: it only sends.
    Nothing,
    /// All that arrive at the interface and have no VLAN tag.
    All,
    /// Of these, messages between neighbours, and of servers and routers to hosts: ARP, neighbour discovery,
    /// DHCP.
    #[cfg(feature = "xdp")]
    Neighbours,
}

impl Gets {
    /// The protocol that the socket is bound to.
    const fn protocol(self) -> u16 {
        match self {
            Self::Nothing => 0,
            Self::All => libc::ETH_P_ALL as u16,
            #[cfg(feature = "xdp")]
            Self::Neighbours => libc::ETH_P_ALL as u16,
        }
    }
}

/// A packet socket on the interface with this index, with a virtio-net header in front of each packet.
pub(crate) fn open(index: u32, gets: Gets) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the call has no pointers, and what it returns belongs to nobody else.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_PACKET, kind, 0);
        check(fd)?;
        OwnedFd::from_raw_fd(fd)
    };
    set(&socket, libc::SOL_PACKET, PACKET_VNET_HDR, &1i32.to_ne_bytes())?;
    if gets != Gets::Nothing {
        // Before it is bound: from then on packets come.
        set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32.to_ne_bytes())?;
        match gets {
            #[cfg(feature = "xdp")]
            Gets::Neighbours => attach_filter(&socket, &mut filter_of_neighbours())?,
            _ => attach_filter(&socket, &mut filter_of_all())?,
        }
    }
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: gets.protocol().to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel reads one address of the length given, which outlives the call.
    check(unsafe {
        let len = size_of_val(&address) as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len)
    })?;
    Ok(socket)
}

/// Instructions of classic BPF. linux/filter.h.
mod op {
    pub(super) const LOAD_BYTE: u16 = 0x30;
    pub(super) const LOAD_HALF: u16 = 0x28;
    pub(super) const JUMP_IF_EQUAL: u16 = 0x15;
    #[cfg(feature = "xdp")]
    pub(super) const JUMP_ABOVE: u16 = 0x25;
    #[cfg(feature = "xdp")]
    pub(super) const JUMP_FROM: u16 = 0x35;
    pub(super) const RETURN: u16 = 0x06;
    /// The offset that stands for "has a VLAN tag".
    pub(super) const VLAN_TAG_PRESENT: u32 = (-0x1000i32 + 48) as u32;
}

const fn op(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Lets through untagged IPv4, IPv6 and ARP. The kernel takes the tag of a VLAN out of the packet, so without
/// this, packets of other networks would look like those of this one.
const fn filter_of_all() -> [libc::sock_filter; 8] {
    [
        op(op::LOAD_BYTE, op::VLAN_TAG_PRESENT, 0, 0),
        op(op::JUMP_IF_EQUAL, 0, 0, 5),
        op(op::LOAD_HALF, 12, 0, 0),
        op(op::JUMP_IF_EQUAL, ether_type::IPV4 as u32, 2, 0),
        op(op::JUMP_IF_EQUAL, ether_type::IPV6 as u32, 1, 0),
        op(op::JUMP_IF_EQUAL, ether_type::ARP as u32, 0, 1),
        op(op::RETURN, u32::MAX, 0, 0),
        op(op::RETURN, 0, 0, 0),
    ]
}

/// Of these: ARP; UDP of IPv4 to a client of DHCP, in headers without options; advertisements of routers,
/// solicitations and advertisements of neighbours.
#[cfg(feature = "xdp")]
const fn filter_of_neighbours() -> [libc::sock_filter; 17] {
    const CLIENT: u32 = 68;
    /// RFC 4861 §4.2, §4.4; a solicitation of a neighbour is between them.
    const ROUTER_ADVERTISEMENT: u32 = 134;
    const NEIGHBOUR_ADVERTISEMENT: u32 = 136;
    [
        op(op::LOAD_BYTE, op::VLAN_TAG_PRESENT, 0, 0),
        op(op::JUMP_IF_EQUAL, 0, 0, 14),
        op(op::LOAD_HALF, 12, 0, 0),
        op(op::JUMP_IF_EQUAL, ether_type::ARP as u32, 11, 0),
        op(op::JUMP_IF_EQUAL, ether_type::IPV6 as u32, 5, 0),
        op(op::JUMP_IF_EQUAL, ether_type::IPV4 as u32, 0, 10),
        op(op::LOAD_BYTE, 14 + 9, 0, 0),
        op(op::JUMP_IF_EQUAL, protocol::UDP as u32, 0, 8),
        op(op::LOAD_HALF, 14 + 20 + 2, 0, 0),
        op(op::JUMP_IF_EQUAL, CLIENT, 5, 6),
        op(op::LOAD_BYTE, 14 + 6, 0, 0),
        op(op::JUMP_IF_EQUAL, protocol::ICMPV6 as u32, 0, 4),
        op(op::LOAD_BYTE, 14 + 40, 0, 0),
        op(op::JUMP_FROM, ROUTER_ADVERTISEMENT, 0, 2),
        op(op::JUMP_ABOVE, NEIGHBOUR_ADVERTISEMENT, 1, 0),
        op(op::RETURN, u32::MAX, 0, 0),
        op(op::RETURN, 0, 0, 0),
    ]
}

fn attach_filter(socket: &OwnedFd, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel reads the program, which has the length given, and checks it.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    })
}

/// Makes the interface accept packets for this station or group, as long as the socket lives.
pub(crate) fn accept(socket: &OwnedFd, index: u32, mac: Mac) -> io::Result<()> {
    let kind = if mac.is_group() { MR_MULTICAST } else { MR_UNICAST };
    add_membership(socket, index, kind, mac)
}

/// Makes the interface accept packets for every group, as long as the socket lives.
pub(crate) fn accept_groups(socket: &OwnedFd, index: u32) -> io::Result<()> {
    const MR_ALLMULTI: u16 = 2;
    add_membership(socket, index, MR_ALLMULTI, Mac::default())
}

fn add_membership(socket: &OwnedFd, index: u32, kind: u16, mac: Mac) -> io::Result<()> {
    const PACKET_ADD_MEMBERSHIP: i32 = 1;
    // struct packet_mreq
    let mut request = [0; 16];
    request[..4].copy_from_slice(&(index as i32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(mac.0.len() as u16).to_ne_bytes());
    request[8..14].copy_from_slice(&mac.0);
    set(socket, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request)
}

/// Sets the room for packets that are below, and for packets that wait to be received; without privileges, as
/// much of it as the system allows.
pub(crate) fn set_buffers(socket: &OwnedFd, send: u32, receive: u32) {
    for (bytes, force, ask) in
        [(send, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), (receive, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)]
    {
        let value = bytes.to_ne_bytes();
        if set(socket, libc::SOL_SOCKET, force, &value).is_err() {
            // It never fails: it cuts the value to the limit.
            let _ = set(socket, libc::SOL_SOCKET, ask, &value);
        }
    }
}

/// A group of sockets, of which each flow's packets reach one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(u32);

/// Makes a socket, which gets packets, a member of a group: of a new one, or of this one. linux/if_packet.h
pub(crate) fn join(socket: &OwnedFd, group: Option<Group>) -> io::Result<Group> {
    const PACKET_FANOUT: i32 = 18;
    /// By the hash of a flow, the same in both directions: `PACKET_FANOUT_HASH`.
    const BY_FLOW: u32 = 0;
    /// A number that no other group has.
    const NEW: u32 = 0x2000 << 16;
    /// What a member had asked for by itself does not hold for the group.
    const IGNORE_OUTGOING: u32 = 0x4000 << 16;
    let asked = group.map_or(NEW, |Group(number)| number) | BY_FLOW << 16 | IGNORE_OUTGOING;
    set(socket, libc::SOL_PACKET, PACKET_FANOUT, &asked.to_ne_bytes())?;
    let mut number = 0u32;
    let mut len = size_of_val(&number) as libc::socklen_t;
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel writes one number at most, as the length says.
    check(unsafe {
        let into = (&raw mut number).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, PACKET_FANOUT, into, &raw mut len)
    })?;
    Ok(Group(number & 0xffff))
}

/// Lets each message ask for a timestamp when the driver of the interface has the packet, by a number: the
/// one that the message gives, or the next one of a counter, which begins at zero.
pub(crate) fn enable_timestamps(socket: &OwnedFd) -> io::Result<()> {
    // The counter begins when numbers are switched on.
    for flags in [REPORT_SOFTWARE | OPT_TSONLY, REPORT_SOFTWARE | OPT_TSONLY | OPT_ID] {
        set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags.to_ne_bytes())?;
    }
    Ok(())
}

/// Lets each message have a departure time, by `CLOCK_MONOTONIC`.
pub(crate) fn enable_departures(socket: &OwnedFd) -> io::Result<()> {
    // struct sock_txtime: clock, flags
    let mut value = [0; 8];
    value[..4].copy_from_slice(&libc::CLOCK_MONOTONIC.to_ne_bytes());
    set(socket, libc::SOL_SOCKET, libc::SO_TXTIME, &value)
}

fn set(socket: &OwnedFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel reads the bytes given, which outlive the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })
}

/// Clears and returns the pending error of a socket, such as that its interface went down.
pub(crate) fn take_error(socket: impl AsFd) -> Option<io::Error> {
    rustix::net::sockopt::socket_error(socket).ok()?.err().map(io::Error::from)
}

/// Whether a packet is reported when the driver of the interface has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Report {
    #[default]
    No,
    /// By this number.
    By(u32),
    /// By the next number of the socket's counter.
    Counted,
}

/// What goes along with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Along {
    /// Whether to ask for a timestamp, and by which number.
    pub(crate) report: Report,
    /// When the packet may leave, in nanoseconds.
    pub(crate) departure_ns: Option<u64>,
}

/// Room for ancillary data, aligned as the kernel wants it.
#[repr(align(8))]
struct Control([u8; 96]);

/// Bytes of `struct cmsghdr`: a length as long as a pointer, level, type.
const CMSG_HEADER: usize = size_of::<usize>() + 8;

impl Control {
    fn push(&mut self, len: &mut usize, kind: i32, value: &[u8]) {
        let whole = CMSG_HEADER + value.len();
        let place = &mut self.0[*len..*len + whole];
        place[..size_of::<usize>()].copy_from_slice(&whole.to_ne_bytes());
        place[size_of::<usize>()..][..4].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
        place[size_of::<usize>() + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
        place[CMSG_HEADER..].copy_from_slice(value);
        *len += whole.next_multiple_of(size_of::<usize>());
    }
}

/// Sends the pieces as one packet.
pub(crate) fn send(socket: &OwnedFd, pieces: &[IoSlice<'_>], along: Along) -> io::Result<()> {
    let (mut control, mut len) = (Control([0; 96]), 0);
    if along.report != Report::No {
        control.push(&mut len, libc::SO_TIMESTAMPING, &TX_SOFTWARE.to_ne_bytes());
    }
    if let Report::By(id) = along.report {
        control.push(&mut len, SCM_TS_OPT_ID, &id.to_ne_bytes());
    }
    if let Some(at) = along.departure_ns {
        control.push(&mut len, SCM_TXTIME, &at.to_ne_bytes());
    }
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: all zero is a message without anything. `IoSlice` has the layout of iovec; the pieces and the
    // control data outlive the call, which only reads them.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = pieces.as_ptr().cast_mut().cast();
        message.msg_iovlen = pieces.len() as _;
        if len > 0 {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = len as _;
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives each packet that arrives the kernel's time of its arrival, by the wall clock.
pub(crate) fn enable_arrivals(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32.to_ne_bytes())
}

/// Receives one packet into the pieces. Returns its length, also of what they had no room for, and its time
/// in nanoseconds.
pub(crate) fn receive_with_time(socket: &OwnedFd, pieces: &mut [IoSliceMut<'_>]) -> io::Result<(usize, i64)> {
    let mut control = Control([0; 96]);
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: all zero is a message without anything. `IoSliceMut` has the layout of iovec. The kernel writes
    // at most as much as the pieces and the control data hold.
    let (received, len) = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = pieces.as_mut_ptr().cast();
        message.msg_iovlen = pieces.len() as _;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        (libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags), message.msg_controllen as usize)
    };
    let bytes = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let time = find(control.0.get(..len).unwrap_or_default(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
    // struct timespec
    let half = |at: usize| time?.get(at..)?.first_chunk().map(|octets| i64::from_ne_bytes(*octets));
    let nanoseconds = half(0).zip(half(8)).map(|(seconds, rest)| seconds * 1_000_000_000 + rest);
    nanoseconds.map(|at| (bytes, at)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Packets that the socket had no room for, since the last call: `PACKET_STATISTICS`.
pub(crate) fn take_lost(socket: &OwnedFd) -> io::Result<u32> {
    const PACKET_STATISTICS: i32 = 6;
    // struct tpacket_stats: packets, drops
    let mut counts = [0u32; 2];
    let mut len = size_of_val(&counts) as libc::socklen_t;
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel writes two numbers at most, as the length says.
    check(unsafe {
        let into = counts.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, PACKET_STATISTICS, into, &raw mut len)
    })?;
    Ok(counts[1])
}

/// The number of the next packet that the driver of the interface has got; `None` if no report waits.
pub(crate) fn next_report(socket: &OwnedFd) -> Option<u32> {
    loop {
        let mut control = Control([0; 96]);
        #[expect(unsafe_code, reason = "system call")]
        // SAFETY: all zero is a message without anything. The kernel writes at most `msg_controllen` bytes of
        // control data.
        let (received, len) = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = control.0.len() as _;
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            (libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags), message.msg_controllen as usize)
        };
        if received < 0 {
            return None;
        }
        if let Some(id) = report(control.0.get(..len).unwrap_or_default()) {
            return Some(id);
        }
    }
}

/// The number in the ancillary data of a report. linux/errqueue.h: `struct sock_extended_err`.
fn report(control: &[u8]) -> Option<u32> {
    word(find(control, libc::SOL_PACKET, PACKET_TX_TIMESTAMP)?, 12)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// The value of this kind in ancillary data.
fn find(mut control: &[u8], level: i32, kind: i32) -> Option<&[u8]> {
    while let Some(len) = control.first_chunk().map(|len| usize::from_ne_bytes(*len)) {
        let one = control.get(..len).filter(|one| one.len() >= CMSG_HEADER)?;
        let of = (word(one, size_of::<usize>())?, word(one, size_of::<usize>() + 4)?);
        if of == (level as u32, kind as u32) {
            return one.get(CMSG_HEADER..);
        }
        control = control.get(len.next_multiple_of(size_of::<usize>())..)?;
    }
    None
}

/// Whether the kernel lets a message give the number, as Linux does since 6.13. Asked with a packet that no
/// interface takes: an older kernel refuses its ancillary data first (`EINVAL`), this one its length
/// (`EMSGSIZE`).
pub(crate) fn can_name(socket: &OwnedFd) -> bool {
    let too_long = vec![0; 70_000];
    let along = Along { report: Report::By(0), departure_ns: None };
    let refused = send(socket, &[IoSlice::new(&too_long)], along);
    refused.is_err_and(|error| error.raw_os_error() == Some(libc::EMSGSIZE))
}

#[cfg(all(test, feature = "xdp"))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// A frame of this type, with these bytes behind the Ethernet header, by their offset.
    fn frame(kind: u16, bytes: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0x5a; 80];
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        for (at, byte) in bytes {
            frame[14 + at] = *byte;
        }
        frame
    }

    /// The kernel runs the filter, on a socket of another kind. Offsets and numbers: RFC 791, RFC 768, RFC
    /// 8200, RFC 4861 §4.
    #[test]
    fn dhcp_20_the_filter_lets_through_what_neighbours_and_servers_say() {
        let (near, far) = UnixDatagram::pair().unwrap();
        attach_filter(&near.try_clone().unwrap().into(), &mut filter_of_neighbours()).unwrap();
        near.set_nonblocking(true).unwrap();
        let is_heard = |frame: &[u8]| {
            far.send(frame).unwrap();
            near.recv(&mut [0; 128]).is_ok()
        };
        let udp = |port: u8| frame(0x0800, &[(9, 17), (22, 0), (23, port)]);
        let icmp = |kind| frame(0x86dd, &[(6, 58), (40, kind)]);
        assert!(is_heard(&frame(0x0806, &[])), "ARP");
        assert!(is_heard(&udp(68)), "a server of DHCP");
        assert_eq!([134, 135, 136].map(|kind| is_heard(&icmp(kind))), [true; 3], "neighbours and routers");
        assert_eq!([133, 137, 128].map(|kind| is_heard(&icmp(kind))), [false; 3], "other ICMPv6");
        for (what, other) in [
            ("a client of DHCP", udp(67)),
            ("TCP to the same port", frame(0x0800, &[(9, 6), (22, 0), (23, 68)])),
            ("UDP of IPv6", frame(0x86dd, &[(6, 17), (40, 135)])),
            ("another protocol", frame(0x88cc, &[])),
            ("a short frame", frame(0x0800, &[(9, 17)])[..30].to_vec()),
        ] {
            assert!(!is_heard(&other), "{what}");
        }
    }
}
