//! The few requests of rtnetlink (RFC 3549, `rtnetlink(7)`) that set up an interface and look at it: one
//! request, one answer, or a list.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::cidr::Cidr;

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const NLMSG_DONE: u16 = 3;

const NLM_F_REQUEST: u16 = 0x01;
const NLM_F_ACK: u16 = 0x04;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
/// `NLM_F_ROOT | NLM_F_MATCH`: all that there are.
const NLM_F_DUMP: u16 = 0x300;

/// The parent of a root queue discipline, and the one of what is not in the way of packets that leave.
const TC_H_ROOT: u32 = u32::MAX;
const TC_H_INGRESS: u32 = 0xffff_fff1;
const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
/// struct gnet_stats_queue: packets, bytes, …
const TCA_STATS_QUEUE: u16 = 3;

const IFLA_ADDRESS: u16 = 1;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_QDISC: u16 = 6;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;
const IFF_LOWER_UP: u32 = 0x1_0000;
/// What drops every packet: the queue discipline of an interface that is not in use yet.
const NOOP_QDISC: &[u8] = b"noop\0";

/// struct nlmsghdr
const HEADER_LEN: usize = 16;
/// struct ifinfomsg
const LINK_HEADER_LEN: usize = 16;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// The address is usable immediately, without duplicate address detection: the link has two ends and we hold
/// one.
const IFA_F_NODAD: u8 = 0x02;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;

/// A socket to the routing tables of the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink(File);

/// What an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) is_up: bool,
    /// It is up, has a carrier, and a queue discipline that takes packets.
    pub(crate) is_running: bool,
    /// The kind of its hardware: `ARPHRD_ETHER` is 1.
    pub(crate) kind: u16,
    pub(crate) mtu: u32,
    /// Its hardware's address; empty if it has none.
    pub(crate) address: Vec<u8>,
    /// The kind of a virtual interface, such as `veth`.
    #[cfg(feature = "xdp")]
    pub(crate) driver: Option<String>,
}

/// A queue discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelQdisc {
    pub(crate) is_root: bool,
    /// Its name, such as `fq`.
    pub(crate) kind: String,
    /// Bytes that wait in it, and in those below it.
    pub(crate) backlog_bytes: u64,
}

/// A change to an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkChange {
    Up,
    Down,
    Mtu(u32),
    TxQueueLen(u32),
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        // `None` is NETLINK_ROUTE, the first of the protocols.
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self(File::from(fd)))
    }

    /// The index of the interface `name`.
    pub(crate) fn index_of(&self, name: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.0, name)?)
    }

    pub(crate) fn change_link(&self, index: u32, change: LinkChange) -> io::Result<()> {
        let flags = if matches!(change, LinkChange::Up) { IFF_UP } else { 0 };
        let mask = if matches!(change, LinkChange::Up | LinkChange::Down) { IFF_UP } else { 0 };
        let mut request = Request::new(RTM_NEWLINK, 0);
        request.link_header(index, flags, mask);
        match change {
            LinkChange::Up | LinkChange::Down => {}
            LinkChange::Mtu(bytes) => request.attribute(IFLA_MTU, &bytes.to_ne_bytes()),
            LinkChange::TxQueueLen(packets) => request.attribute(IFLA_TXQLEN, &packets.to_ne_bytes()),
        }
        self.ask(request)
    }

    /// What an interface is.
    pub(crate) fn link(&self, index: u32) -> io::Result<Link> {
        let mut request = Request::question(RTM_GETLINK);
        request.link_header(index, 0, 0);
        (&self.0).write_all(&request.finish())?;
        let mut answer = vec![0; 32_768];
        let len = (&self.0).read(&mut answer)?;
        let answer = answer.get(..len).unwrap_or_default();
        if kind_of(answer) != Some(RTM_NEWLINK) {
            acknowledged(answer)?;
            return Err(malformed());
        }
        let flags = word_at(answer, HEADER_LEN + 8).ok_or_else(malformed)?;
        let kind = answer.get(HEADER_LEN + 2..).and_then(|kind| kind.first_chunk()).ok_or_else(malformed)?;
        let attributes = answer.get(HEADER_LEN + LINK_HEADER_LEN..).unwrap_or_default();
        let drops_all = attribute(attributes, IFLA_QDISC).is_none_or(|name| name == NOOP_QDISC);
        Ok(Link {
            is_up: flags & IFF_UP != 0,
            is_running: flags & IFF_RUNNING != 0 && flags & IFF_LOWER_UP != 0 && !drops_all,
            kind: u16::from_ne_bytes(*kind),
            mtu: attribute(attributes, IFLA_MTU).and_then(|mtu| word_at(mtu, 0)).ok_or_else(malformed)?,
            address: attribute(attributes, IFLA_ADDRESS).unwrap_or_default().to_vec(),
            #[cfg(feature = "xdp")]
            driver: attribute(attributes, IFLA_LINKINFO)
                .and_then(|info| attribute(info, IFLA_INFO_KIND))
                .map(|kind| String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned()),
        })
    }

    /// The queue disciplines that packets may pass on their way out of an interface.
    pub(crate) fn qdiscs(&self, index: u32) -> io::Result<Vec<KernelQdisc>> {
        let mut request = Request::with_flags(RTM_GETQDISC, NLM_F_DUMP);
        // struct tcmsg: family, index, handle, parent, info
        request.bytes(&[0; 4]);
        request.bytes(&index.to_ne_bytes());
        request.bytes(&[0; 12]);
        (&self.0).write_all(&request.finish())?;
        let (mut answer, mut found) = (vec![0; 65_536], Vec::new());
        loop {
            let len = (&self.0).read(&mut answer)?;
            let mut rest = answer.get(..len).unwrap_or_default();
            if rest.is_empty() {
                return Err(malformed());
            }
            while !rest.is_empty() {
                let len = word_at(rest, 0).and_then(|len| usize::try_from(len).ok()).ok_or_else(malformed)?;
                let message =
                    rest.get(..len).filter(|message| message.len() >= HEADER_LEN).ok_or_else(malformed)?;
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
                match kind_of(message) {
                    Some(NLMSG_DONE) => return Ok(found),
                    Some(RTM_NEWQDISC) => found.extend(qdisc_of(message, index)),
                    _ => acknowledged(message)?,
                }
            }
        }
    }

    pub(crate) fn delete_link(&self, index: u32) -> io::Result<()> {
        let mut request = Request::new(RTM_DELLINK, 0);
        request.link_header(index, 0, 0);
        self.ask(request)
    }

    /// A pair of Ethernet interfaces, the second in the namespace `peer_namespace`.
    pub(crate) fn create_veth(
        &self,
        name: &str,
        peer_name: &str,
        peer_namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
        request.link_header(0, 0, 0);
        request.attribute(IFLA_IFNAME, &terminated(name));
        request.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    peer.link_header(0, 0, 0);
                    peer.attribute(IFLA_IFNAME, &terminated(peer_name));
                    peer.attribute(IFLA_NET_NS_FD, &peer_namespace.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.ask(request)
    }

    pub(crate) fn add_address(&self, index: u32, address: Cidr) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE);
        request.bytes(&[family(address.address()), address.prefix(), IFA_F_NODAD, RT_SCOPE_UNIVERSE]);
        request.bytes(&index.to_ne_bytes());
        let octets = octets(address.address());
        request.attribute(IFA_LOCAL, &octets);
        request.attribute(IFA_ADDRESS, &octets);
        self.ask(request)
    }

    pub(crate) fn add_route(&self, index: u32, to: Cidr, via: Option<IpAddr>) -> io::Result<()> {
        let to = to.network();
        let scope = if via.is_some() { RT_SCOPE_UNIVERSE } else { RT_SCOPE_LINK };
        let scope = if to.address().is_ipv6() { RT_SCOPE_UNIVERSE } else { scope };
        let mut request = Request::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
        request.bytes(&[family(to.address()), to.prefix(), 0, 0]);
        request.bytes(&[RT_TABLE_MAIN, RTPROT_STATIC, scope, RTN_UNICAST]);
        request.bytes(&[0; 4]);
        if to.prefix() > 0 {
            request.attribute(RTA_DST, &octets(to.address()));
        }
        request.attribute(RTA_OIF, &index.to_ne_bytes());
        if let Some(via) = via {
            request.attribute(RTA_GATEWAY, &octets(via));
        }
        self.ask(request)
    }

    /// Whether packets to this address of the interface end in this kernel.
    pub(crate) fn is_local(&self, index: u32, address: IpAddr) -> io::Result<bool> {
        // struct rtmsg: family, prefix; all else is 0. Its type is in the answer.
        const TYPE: usize = HEADER_LEN + 7;
        let octets = octets(address);
        let mut request = Request::question(RTM_GETROUTE);
        request.bytes(&[family(address), octets.len() as u8 * 8, 0, 0]);
        request.bytes(&[0; 8]);
        request.attribute(RTA_DST, &octets);
        request.attribute(RTA_OIF, &index.to_ne_bytes());
        (&self.0).write_all(&request.finish())?;
        let mut answer = [0; 4096];
        let len = (&self.0).read(&mut answer)?;
        // An error is that of the address: it has no route yet.
        Ok(kind_of(&answer[..len]) == Some(RTM_NEWROUTE) && answer[TYPE] == RTN_LOCAL)
    }

    /// Sends a request and waits for its acknowledgement.
    fn ask(&self, request: Request) -> io::Result<()> {
        (&self.0).write_all(&request.finish())?;
        let mut answer = [0; 4096];
        let len = (&self.0).read(&mut answer)?;
        acknowledged(&answer[..len])
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// The queue discipline that a message describes, if it is in the way out of this interface.
fn qdisc_of(message: &[u8], index: u32) -> Option<KernelQdisc> {
    const TC_HEADER_LEN: usize = 20;
    let parent = word_at(message, HEADER_LEN + 12)?;
    if word_at(message, HEADER_LEN + 4)? != index || parent == TC_H_INGRESS {
        return None;
    }
    let attributes = message.get(HEADER_LEN + TC_HEADER_LEN..)?;
    let kind = String::from_utf8_lossy(attribute(attributes, TCA_KIND)?).trim_end_matches('\0').to_owned();
    let queue =
        attribute(attributes, TCA_STATS2).and_then(|statistics| attribute(statistics, TCA_STATS_QUEUE));
    let backlog_bytes = queue.and_then(|queue| word_at(queue, 4)).unwrap_or(0).into();
    Some(KernelQdisc { is_root: parent == TC_H_ROOT, kind, backlog_bytes })
}

fn kind_of(answer: &[u8]) -> Option<u16> {
    answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]))
}

/// An answer that is an error, or says that there was none: a negative number, or 0.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    match answer.get(HEADER_LEN..HEADER_LEN + 4) {
        Some(&[a, b, c, d]) if kind_of(answer) == Some(NLMSG_ERROR) => {
            match i32::from_ne_bytes([a, b, c, d]) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            }
        }
        _ => Err(malformed()),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed answer from netlink")
}

/// The value of the first attribute of a kind. Each begins at a multiple of four bytes.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(&[a, b, c, d]) = attributes.first_chunk() {
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let value = attributes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    family.as_raw() as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn terminated(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// A message under construction. Everything in it begins at a multiple of four bytes.
struct Request(Vec<u8>);

impl Request {
    /// A request that changes something: its answer says whether it was done.
    fn new(kind: u16, flags: u16) -> Self {
        Self::with_flags(kind, NLM_F_ACK | flags)
    }

    /// A request whose answer is what it asks for.
    fn question(kind: u16) -> Self {
        Self::with_flags(kind, 0)
    }

    fn with_flags(kind: u16, flags: u16) -> Self {
        let mut request = Self(vec![0; 4]); // the length, filled in by `finish`
        request.bytes(&kind.to_ne_bytes());
        request.bytes(&(NLM_F_REQUEST | flags).to_ne_bytes());
        request.bytes(&[0; 8]); // sequence number and port: one request at a time needs neither
        request
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// struct ifinfomsg
    fn link_header(&mut self, index: u32, flags: u32, mask: u32) {
        self.bytes(&[0; 4]);
        self.bytes(&index.to_ne_bytes());
        self.bytes(&flags.to_ne_bytes());
        self.bytes(&mask.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |request| request.bytes(value));
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.bytes(&[0; 2]);
        self.bytes(&kind.to_ne_bytes());
        fill(self);
        let len = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}
