//! Packets from anybody: whole IP packets, made by a test, that arrive at the stack from inside the kernel's
//! namespace.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use taut_wire::{Ecn, IpHeader, TcpHeader, protocol, tcp};

use super::{Net, STACK};

pub struct Stranger {
    socket: Socket,
    to: SockAddr,
}

impl Stranger {
    pub fn new(net: &Net) -> Self {
        let open = || {
            // IPPROTO_RAW: the packets come with their headers.
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap();
            socket.set_header_included_v4(true).unwrap();
            socket
        };
        let to: SocketAddr = format!("{}:0", STACK[0]).parse().unwrap();
        Self { socket: net.kernel.enter(open).unwrap(), to: to.into() }
    }

    /// The kernel refuses to send some nonsense; the result says whether it took the packet.
    pub fn send(&self, packet: &[u8]) -> bool {
        self.socket.send_to(packet, &self.to).is_ok()
    }
}

/// A TCP segment from this address to the stack, with correct lengths and checksums.
pub fn packet(src: Ipv4Addr, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
    let (src, dst): (IpAddr, IpAddr) = (src.into(), STACK[0].parse().unwrap());
    let payload_len = header.header_len() + payload.len();
    let hop_limit = 64;
    let ip = IpHeader {
        src,
        dst,
        protocol: protocol::TCP,
        hop_limit,
        ecn: Ecn::NotEct,
        header_len: 20,
        payload_len,
    };
    let mut bytes = vec![0; 20 + payload_len];
    ip.emit(&mut bytes, 0);
    let at = 20 + header.emit(&mut bytes[20..]);
    bytes[at..].copy_from_slice(payload);
    let checksum = tcp::full_checksum(src, dst, &bytes[20..], &[]);
    tcp::set_checksum(&mut bytes[20..], checksum);
    bytes
}
