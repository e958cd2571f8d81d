//! At which UDP ports programs of a namespace serve, by the kernel's list of its sockets: sock_diag(7),
//! `linux/inet_diag.h`; and whether any socket serves an address. Called by `listening.rs` and `loopback.rs`;
//! `inside.rs` opens the sockets.
//!
//! A server's UDP socket differs from a client's in who chose its port. A server's program did, by
//! bind(2). A client's port was chosen by the kernel, when it sent or connected or bound to port 0; or it has
//! a peer. The kernel knows both (`ss` asks it as `autobound`), and leaves out the clients itself. The table
//! `/proc/PID/net/udp` has no such column, and the time that it takes grows with the square of the number of
//! sockets.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use taut::FlowKind;

/// More ports than that are not opened: each takes a descriptor here.
pub(crate) const MOST: usize = 1_024;

/// The addresses of the guest's own to which ports may lead, in this order (`loopback.rs`).
pub(crate) const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// DHCP's clients wait there, and are no servers: RFC 2131 §4.1, RFC 8415 §7.2.
const OF_CLIENTS: [u16; 2] = [68, 546];

/// The most bytes of one read: the kernel fills as many.
const PIECE: usize = 32_768;
/// So much is read without a pause, about 1,200 sockets.
const AT_ONCE: usize = 4;
/// A guest may have very many sockets, all of them servers; then the list is read more slowly.
const PAUSE: Duration = Duration::from_millis(500);

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 0x01;
/// `NLM_F_ROOT | NLM_F_MATCH`: all that there are.
const NLM_F_DUMP: u16 = 0x300;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
/// A UDP socket without a peer is in TCP's state "closed".
const WITHOUT_PEER: u32 = 1 << 7;
const INET_DIAG_REQ_BYTECODE: u16 = 1;
const INET_DIAG_BC_JMP: u8 = 1;
const INET_DIAG_BC_AUTO: u8 = 6;

/// struct nlmsghdr
const HEADER: usize = 16;
/// struct `inet_diag_req_v2`
const REQUEST: usize = 56;
/// struct `inet_diag_sockid`, its end
const SOCKET: usize = 48;

/// A socket at which the kernel is asked. It tells of the namespace in which this is called, wherever it is
/// used.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?)
}

/// The ports of the namespace's UDP servers that can be reached from outside or, `by_loopback`, by the
/// loopback addresses of the namespace. One caller at a time.
pub(crate) async fn ports(socket: &OwnedFd, by_loopback: bool) -> io::Result<BTreeSet<u16>> {
    let (mut found, mut pieces) = (BTreeSet::new(), 0);
    let mut answer = vec![0; PIECE];
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        send(socket, &request(family), SendFlags::empty())?;
        // The kernel answers before it returns, piece by piece.
        loop {
            let (len, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
            if take(&answer[..len], by_loopback, &mut found)? {
                break;
            }
            pieces += 1;
            if pieces % AT_ONCE == 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Ok(found)
}

/// Asks for the sockets without a peer whose port a program chose.
fn request(family: AddressFamily) -> Vec<u8> {
    // Two instructions: (code, bytes to the next if so, bytes to the next if not). Behind the last one is
    // "yes", beyond is "no".
    let program = [(INET_DIAG_BC_AUTO, 4, 8), (INET_DIAG_BC_JMP, 4, 8_u16)];
    let mut code = Vec::new();
    for (kind, yes, no) in program {
        code.extend([kind, yes]);
        code.extend(no.to_ne_bytes());
    }
    let mut attribute = ((4 + code.len()) as u16).to_ne_bytes().to_vec();
    attribute.extend(INET_DIAG_REQ_BYTECODE.to_ne_bytes());
    attribute.extend(code);
    message(NLM_F_REQUEST | NLM_F_DUMP, (family, IPPROTO_UDP, WITHOUT_PEER), &[0; SOCKET], &attribute)
}

/// Whether a socket of the namespace receives what is sent to this address. The kernel looks it up as for a
/// packet, so it takes as long whatever the guest has.
pub(crate) fn is_served(socket: &OwnedFd, kind: FlowKind, at: SocketAddr) -> io::Result<bool> {
    let protocol = if kind == FlowKind::Tcp { IPPROTO_TCP } else { IPPROTO_UDP };
    let (family, ip) = match at.ip() {
        IpAddr::V4(v4) => (AddressFamily::INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AddressFamily::INET6, v6.octets().to_vec()),
    };
    // TCP's lookup takes the first as the socket's own, UDP's the second; no packet is from the socket
    // itself.
    let mut ends = at.port().to_be_bytes().repeat(2);
    for end in [20, 36] {
        ends.extend(&ip);
        ends.resize(end, 0);
    }
    // No interface; any socket's cookie.
    ends.extend([0; 4]);
    ends.extend([0xff; 8]);
    send(socket, &message(NLM_F_REQUEST, (family, protocol, u32::MAX), &ends, &[]), SendFlags::empty())?;
    let mut answer = [0; 1_024];
    let (len, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    match take(&answer[..len], false, &mut BTreeSet::new()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        answer => answer.map(|_| true),
    }
}

/// A request: struct nlmsghdr, struct `inet_diag_req_v2`, and its attribute.
fn message(
    flags: u16,
    (family, protocol, states): (AddressFamily, u8, u32),
    socket: &[u8],
    attribute: &[u8],
) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(((HEADER + REQUEST + attribute.len()) as u32).to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Number and sender of the message: of no use here.
    message.resize(HEADER, 0);
    message.extend([family.as_raw() as u8, protocol, 0, 0]);
    message.extend(states.to_ne_bytes());
    message.extend(socket);
    message.extend(attribute);
    message
}

/// Takes the messages of one read; returns whether they were the last ones.
fn take(mut messages: &[u8], by_loopback: bool, found: &mut BTreeSet<u16>) -> io::Result<bool> {
    while let Some(&[a, b, c, d, e, f]) = messages.first_chunk() {
        let (len, kind) = (u32::from_ne_bytes([a, b, c, d]) as usize, u16::from_ne_bytes([e, f]));
        let Some(body) = messages.get(HEADER..len) else { break };
        match kind {
            NLMSG_ERROR | NLMSG_DONE => {
                return match body.first_chunk().map_or(0, |errno| i32::from_ne_bytes(*errno)) {
                    0.. => Ok(true),
                    errno => {
                        let error = io::Error::from_raw_os_error(errno.wrapping_neg());
                        let text = format!("the kernel does not list sockets (udp_diag, tcp_diag): {error}");
                        Err(io::Error::new(error.kind(), text))
                    }
                };
            }
            SOCK_DIAG_BY_FAMILY if found.len() < MOST => found.extend(port(body, by_loopback)),
            _ => {}
        }
        messages = messages.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The port of a struct `inet_diag_msg`, if others can reach the socket: family, three bytes, port, peer's
/// port, address.
fn port(socket: &[u8], by_loopback: bool) -> Option<u16> {
    let [family, _, _, _, high, low, _, _, own @ ..] = socket else { return None };
    let own = match AddressFamily::from_raw((*family).into()) {
        AddressFamily::INET => IpAddr::from(*own.first_chunk::<4>()?),
        _ => IpAddr::from(*own.first_chunk::<16>()?),
    };
    let port = u16::from_be_bytes([*high, *low]);
    (is_reached(own, by_loopback) && !OF_CLIENTS.contains(&port)).then_some(port)
}

/// Whether a port of the host can lead to a socket that is bound to this address.
pub(crate) fn is_reached(own: IpAddr, by_loopback: bool) -> bool {
    let own = own.to_canonical();
    is_for_others(own) || by_loopback && LOOPBACK.contains(&own)
}

/// Whether what is sent to the guest from outside reaches a socket that is bound to this address.
fn is_for_others(own: IpAddr) -> bool {
    !own.is_loopback() && !own.is_multicast() && own != Ipv4Addr::BROADCAST
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use socket2::{Domain, Socket, Type};
    use taut_testbed::{Kernel, live};

    use super::*;

    /// A socket whose port is chosen here, as a server's is: one that was free just now.
    fn named(address: &str) -> UdpSocket {
        let address: IpAddr = address.parse().unwrap();
        let try_once = |_| {
            let port = UdpSocket::bind((address, 0)).unwrap().local_addr().unwrap().port();
            UdpSocket::bind((address, port)).ok()
        };
        (0..100).find_map(try_once).expect("a free port")
    }

    fn number(socket: &UdpSocket) -> u16 {
        socket.local_addr().unwrap().port()
    }

    /// This process's own namespace, as it is: with the sockets of others.
    #[tokio::test]
    async fn gw_90_a_port_is_a_servers_if_a_program_chose_it() {
        let kernel = open().unwrap();
        let has_v6 = UdpSocket::bind("[::1]:0").is_ok();
        let servers: Vec<UdpSocket> =
            ["0.0.0.0", "::"][..if has_v6 { 2 } else { 1 }].iter().map(|own| named(own)).collect();
        let inner: Vec<UdpSocket> =
            ["127.0.0.1", "224.0.0.251", "255.255.255.255", "::1", "::ffff:127.0.0.1"]
                [..if has_v6 { 5 } else { 3 }]
                .iter()
                .map(|own| named(own))
                .collect();
        // Clients: bound to any port, and sent from. A connected one here would be on the loopback: GW-91 has
        // it.
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (any, sent) = (UdpSocket::bind("0.0.0.0:0").unwrap(), udp("127.0.0.1:9"));
        sent.send_to(b"x", &peer.local_addr().unwrap().into()).unwrap();
        let clients = [any, sent.into()];
        let found = ports(&kernel, false).await.unwrap();
        for server in &servers {
            assert!(found.contains(&number(server)), "{server:?} {found:?}");
        }
        for other in inner.iter().chain(&clients) {
            assert!(!found.contains(&number(other)), "{other:?} {found:?}");
        }
        // Later, at the same socket.
        let gone: Vec<u16> = servers.iter().map(number).collect();
        drop(servers);
        let twin = |at: Option<SocketAddr>| {
            let socket = udp("127.0.0.1:9");
            socket.set_reuse_port(true).unwrap();
            socket.bind(&at.unwrap_or_else(|| "0.0.0.0:0".parse().unwrap()).into()).unwrap();
            UdpSocket::from(socket)
        };
        let first = twin(None);
        let twins = [twin(first.local_addr().ok()), twin(first.local_addr().ok())];
        let found = ports(&kernel, false).await.unwrap();
        assert!(found.contains(&number(&twins[0])) && gone.iter().all(|port| !found.contains(port)));
    }

    fn udp(to: &str) -> Socket {
        Socket::new(Domain::for_address(to.parse().unwrap()), Type::DGRAM, None).unwrap()
    }

    /// 127.0.0.5 is the outer address here.
    #[test]
    fn gw_160_who_receives_what_is_sent_to_an_address() {
        if live::ready(&[]) {
            Kernel::new().unwrap().enter(looked_up).unwrap();
        }
    }

    fn looked_up() {
        let (kernel, port) = (open().unwrap(), 7_001);
        let served = |kind| {
            ["127.0.0.5", "127.0.0.1", "::1"]
                .map(|own| is_served(&kernel, kind, SocketAddr::new(own.parse().unwrap(), port)).unwrap())
        };
        for (own, only_v6, expected) in [
            ("127.0.0.5", false, [true, false, false]),
            ("127.0.0.1", false, [false, true, false]),
            ("0.0.0.0", false, [true, true, false]),
            ("::ffff:127.0.0.1", false, [false, true, false]),
            ("::1", false, [false, false, true]),
            ("::", true, [false, false, true]),
            ("::", false, [true, true, true]),
        ] {
            let at = SocketAddr::new(own.parse().unwrap(), port);
            for (kind, socket) in [(FlowKind::Tcp, Type::STREAM), (FlowKind::Udp, Type::DGRAM)] {
                let socket = Socket::new(Domain::for_address(at), socket, None).unwrap();
                if at.is_ipv6() {
                    socket.set_only_v6(only_v6).unwrap();
                }
                assert_eq!(served(kind), [false; 3], "{own} {kind:?}");
                socket.bind(&at.into()).unwrap();
                if kind == FlowKind::Tcp {
                    // A port that is bound is not served yet.
                    assert_eq!(served(kind), [false; 3], "{own}");
                    socket.listen(1).unwrap();
                }
                assert_eq!(served(kind), expected, "{own} {kind:?}");
            }
        }
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.resize(HEADER, 0);
        message.extend(body);
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }

    #[test]
    fn gw_90_what_the_kernel_says_of_its_sockets() {
        let socket = |family: u8, port: u16, own: &[u8]| {
            let [high, low] = port.to_be_bytes();
            let mut body = vec![family, 7, 0, 0, high, low, 0, 0];
            body.extend(own);
            body.resize(72, 0);
            message(SOCK_DIAG_BY_FAMILY, &body)
        };
        let mut all = Vec::new();
        // Servers; DHCP's clients; loopback; one that is too short.
        for port in [53, 68, 546, 5_353, 60_999] {
            all.extend(socket(2, port, &[]));
            all.extend(socket(10, port, &[]));
        }
        all.extend(socket(2, 80, &[127, 0, 0, 1]));
        all.extend(message(SOCK_DIAG_BY_FAMILY, &[2, 7, 0, 0, 0, 81, 0, 0, 10]));
        let mut found = BTreeSet::new();
        assert!(!take(&all, false, &mut found).unwrap());
        assert_eq!(found, BTreeSet::from([53, 5_353, 60_999]));
        // The end, with messages before it; cut off anywhere it is not there.
        all.extend(message(NLMSG_DONE, &0_i32.to_ne_bytes()));
        assert!(take(&all, false, &mut found).unwrap());
        assert!((0..all.len()).all(|len| !take(&all[..len], false, &mut found).unwrap()));
        let error =
            take(&message(NLMSG_ERROR, &(-libc::ENOENT).to_ne_bytes()), false, &mut found).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // Not more than the gateway opens.
        let many: Vec<u8> = (1..3_000).flat_map(|port| socket(2, port, &[])).collect();
        assert!(!take(&many, false, &mut found).unwrap());
        assert_eq!(found.len(), MOST);
        // A length that makes no sense ends it.
        assert!(!take(&[3, 0, 0, 0, 20, 0, 0, 0], false, &mut found).unwrap());
        assert!(!take(&[0; 100], false, &mut found).unwrap());
    }

    /// 3,000 sockets of some 100 bytes are about 10 reads: two pauses at least.
    #[tokio::test]
    async fn gw_90_a_guest_with_very_many_servers_is_looked_at_slowly() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        if limit.maximum.is_some_and(|most| most < 4_000) {
            eprintln!("skipped: too few descriptors");
            return;
        }
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let first = udp("127.0.0.1:9");
        first.set_reuse_port(true).unwrap();
        first.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        let twins: Vec<Socket> = (0..3_000)
            .map(|_| {
                let twin = udp("127.0.0.1:9");
                twin.set_reuse_port(true).unwrap();
                twin.bind(&first.local_addr().unwrap()).unwrap();
                twin
            })
            .collect();
        let kernel = open().unwrap();
        let began = taut_testbed::now();
        ports(&kernel, false).await.unwrap();
        assert!(began.elapsed() >= 2 * PAUSE, "{:?}", began.elapsed());
        drop(twins);
    }
}
