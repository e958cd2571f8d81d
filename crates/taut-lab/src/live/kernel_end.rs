//! The kernel's TCP as the sender of a live run: sockets of a namespace, and what `TCP_INFO` and `/proc/net` tell of them.
//! Called by `live.rs`, in the namespace.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use taut_core::ConnOptions;

use super::apps::{Conn, Sender, Snapshot, forward_to_stream};
use crate::data::Interval;
use crate::view;

/// What the queue of the device holds, when nobody has looked yet or can.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// The kernel, seen from a thread in the namespace.
pub(super) struct Kernel {
    /// As last seen by whoever looks.
    pub(super) backlog: Arc<AtomicU64>,
    /// Congestion control of sockets that do not ask for one.
    pub(super) congestion: String,
}

impl Sender for Kernel {
    type Conn = tokio::net::TcpStream;

    async fn connect(
        &self,
        to: SocketAddr,
        options: &ConnOptions,
        congestion: Option<&str>,
    ) -> io::Result<tokio::net::TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        apply(&socket, options)?;
        let congestion = congestion.unwrap_or(&self.congestion);
        set(&socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, congestion.as_bytes())?;
        let socket = tokio::net::TcpSocket::from_std_stream(socket.into());
        socket.connect(to).await
    }

    fn counters(&self) -> io::Result<BTreeMap<String, u64>> {
        let mut all = BTreeMap::new();
        for file in ["snmp", "netstat"] {
            parse_counters(&fs::read_to_string(format!("/proc/thread-self/net/{file}"))?, &mut all);
        }
        Ok(all)
    }

    fn device_bytes(&self) -> Option<u64> {
        Some(self.backlog.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNKNOWN)
    }
}

/// A line of names and a line of values, by turns; names as `nstat` has them.
fn parse_counters(text: &str, into: &mut BTreeMap<String, u64>) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let (Some((table, names)), Some((_, values))) = (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            if let Ok(value) = value.parse() {
                into.insert(format!("{table}{name}"), value);
            }
        }
    }
}

fn apply(socket: &Socket, options: &ConnOptions) -> io::Result<()> {
    socket.set_tcp_nodelay(options.nodelay)?;
    if options.notsent_lowat > 0 {
        set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &options.notsent_lowat.to_ne_bytes())?;
    }
    // The namespace's root may go beyond the limits of the machine.
    if let Some(bytes) = options.sndbuf {
        set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes.to_ne_bytes())
            .or_else(|_| socket.set_send_buffer_size(bytes as usize))?;
    }
    if let Some(bytes) = options.rcvbuf {
        set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes.to_ne_bytes())
            .or_else(|_| socket.set_recv_buffer_size(bytes as usize))?;
    }
    if let Some(rate) = options.max_pacing_rate {
        set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate.to_ne_bytes())?;
    }
    if let Some(mss) = options.maxseg {
        set(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, &i32::from(mss).to_ne_bytes())?;
    }
    Ok(())
}

fn set(socket: &Socket, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    #[expect(unsafe_code, reason = "options that no library has")]
    // SAFETY: the value is valid for its length, which the kernel copies from.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option; what the kernel does not know of stays zero.
fn get<const N: usize>(
    stream: &tokio::net::TcpStream,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<[u8; N]> {
    let mut value = [0; N];
    let mut len = N as libc::socklen_t;
    #[expect(unsafe_code, reason = "options that no library has")]
    // SAFETY: the value has room for `len` bytes, and both outlive the call.
    let result =
        unsafe { libc::getsockopt(stream.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// `struct tcp_info`, by the places of its members (include/uapi/linux/tcp.h).
struct TcpInfo([u8; 256]);

impl TcpInfo {
    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    fn u64(&self, at: usize) -> u64 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

/// Places in [`TcpInfo`].
mod at {
    pub(super) const SND_MSS: usize = 16;
    pub(super) const UNACKED: usize = 24;
    pub(super) const RTT: usize = 68;
    pub(super) const SND_SSTHRESH: usize = 76;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const PACING_RATE: usize = 104;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DELIVERY_RATE: usize = 160;
    pub(super) const BYTES_RETRANS: usize = 208;
    pub(super) const SND_WND: usize = 228;
}

/// Places in what `SO_MEMINFO` gives: `sk_wmem_alloc`, `sk_sndbuf`, `sk_wmem_queued` (linux/sock_diag.h).
const MEMINFO_WMEM_ALLOC: usize = 2;
const MEMINFO_SNDBUF: usize = 3;
const MEMINFO_WMEM_QUEUED: usize = 5;

impl Conn for tokio::net::TcpStream {
    forward_to_stream!();

    fn finish(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Write)
    }

    fn snapshot(&self) -> io::Result<Snapshot> {
        let info = TcpInfo(get(self, libc::IPPROTO_TCP, libc::TCP_INFO)?);
        let memory: [u8; 36] = get(self, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
        let memory = |index: usize| {
            let word = memory.get(index * 4..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |bytes| u64::from(u32::from_ne_bytes(*bytes)))
        };
        let mss = u64::from(info.u32(at::SND_MSS));
        let s = |us: u32| (us > 0 && us != u32::MAX).then_some(f64::from(us) / 1e6);
        Ok(Snapshot {
            point: Interval {
                unsent_bytes: info.u32(at::NOTSENT_BYTES).into(),
                // One is always there.
                below_tcp_bytes: Some(memory(MEMINFO_WMEM_ALLOC).saturating_sub(1)),
                in_flight_bytes: u64::from(info.u32(at::UNACKED)) * mss,
                cwnd_bytes: u64::from(info.u32(at::SND_CWND)) * mss,
                ssthresh_bytes: view::ssthresh_bytes(info.u32(at::SND_SSTHRESH), mss),
                peer_window_bytes: info.u32(at::SND_WND).into(),
                pacing_bps: view::pacing_bps(info.u64(at::PACING_RATE)),
                delivery_bps: info.u64(at::DELIVERY_RATE) as f64 * 8.0,
                srtt_s: s(info.u32(at::RTT)),
                ..Interval::default()
            },
            acked_bytes: info.u64(at::BYTES_ACKED).saturating_sub(1),
            retransmitted_bytes: info.u64(at::BYTES_RETRANS),
            min_rtt_s: s(info.u32(at::MIN_RTT)),
            sndbuf: Some(memory(MEMINFO_SNDBUF)),
            memory: Some(memory(MEMINFO_WMEM_QUEUED)),
            shares_s: None,
            local: self.local_addr().ok(),
            peer: self.peer_addr().ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_nstats_names() {
        let text = "Ip: Forwarding InReceives\nIp: 1 25\nTcpExt: TCPTimeouts X\nTcpExt: 3 -1\n";
        let mut all = BTreeMap::new();
        parse_counters(text, &mut all);
        assert_eq!(all["IpInReceives"], 25);
        assert_eq!(all["TcpExtTCPTimeouts"], 3);
        assert!(!all.contains_key("TcpExtX"));
    }
}
