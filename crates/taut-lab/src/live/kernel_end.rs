//! The kernel's TCP as the sender of a live run: sockets in its namespace, and the values that the kernel
//! reports about them. Called by `live.rs`.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use taut_core::Algorithm;
use taut_testbed::{Kernel, SocketMemory, TcpInfo, socket};

use super::apps::{Conn, FlowPlan, Sender, Snapshot, forward_to_stream};
use super::backlog::Backlog;
use super::ethernet;
use super::link::{NET, OwnQueue, TUN};
use crate::data::Interval;
use crate::view;

/// The kernel in a namespace.
pub(super) struct KernelSender {
    kernel: Kernel,
    /// Congestion control of sockets that do not ask for one.
    congestion: String,
    /// The queue of its interface, if that is watched.
    pub(super) backlog: Option<Arc<Backlog>>,
}

impl KernelSender {
    pub(super) const fn new(kernel: Kernel, congestion: String) -> Self {
        Self { kernel, congestion, backlog: None }
    }

    /// Gives its TUN a queue with a rate.
    pub(super) fn limit_rate(&self, queue: &OwnQueue) -> io::Result<()> {
        self.kernel.limit_rate(TUN, queue.bits_per_second, queue.burst_bytes, queue.limit_bytes)
    }

    /// Gives its Ethernet interface its addresses.
    pub(super) fn add_addresses(&self) -> io::Result<()> {
        ethernet::add_addresses(&self.kernel, &NET.near())
    }

    /// The queue of one of its interfaces.
    pub(super) fn backlog_of(&self, interface: &str) -> io::Result<Arc<Backlog>> {
        Backlog::new(&self.kernel, interface).map(Arc::new)
    }
}

impl Sender for KernelSender {
    type Conn = tokio::net::TcpStream;

    async fn connect(&self, plan: &FlowPlan) -> io::Result<tokio::net::TcpStream> {
        let (to, options) = (plan.to, plan.spec.options.options());
        // A name: the kernel's need not have taut's parameters.
        let congestion = options.congestion.as_ref().map_or(&*self.congestion, Algorithm::name);
        let socket = self.kernel.enter(|| socket(to, &options, Some(congestion)))??;
        // What is unsent when the run ends is thrown away. Else the kernel keeps it for minutes, up to 64 MB
        // a flow, and the runs that follow meet a kernel that is short of memory: its receivers offer four
        // segments.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_nonblocking(true)?;
        tokio::net::TcpSocket::from_std_stream(socket.into()).connect(to).await
    }

    fn counters(&self) -> io::Result<BTreeMap<String, u64>> {
        self.kernel.counters()
    }

    fn device_bytes(&self) -> Option<u64> {
        self.backlog.as_ref().and_then(|backlog| backlog.bytes())
    }
}

impl Conn for tokio::net::TcpStream {
    forward_to_stream!();

    fn finish(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Write)
    }

    fn snapshot(&self) -> io::Result<Snapshot> {
        let (info, memory) = (TcpInfo::of(self)?, SocketMemory::of(self)?);
        let mss = u64::from(info.snd_mss());
        let s = |us: u32| (us > 0 && us != u32::MAX).then_some(f64::from(us) / 1e6);
        Ok(Snapshot {
            point: Interval {
                unsent_bytes: info.notsent_bytes().into(),
                below_tcp_bytes: Some(memory.wmem_alloc.saturating_sub(1).into()),
                in_flight_bytes: u64::from(info.unacked()) * mss,
                cwnd_bytes: u64::from(info.snd_cwnd()) * mss,
                ssthresh_bytes: view::ssthresh_bytes(info.snd_ssthresh(), mss),
                peer_window_bytes: info.snd_wnd().into(),
                pacing_bps: view::pacing_bps(info.pacing_rate()),
                delivery_bps: info.delivery_rate() as f64 * 8.0,
                srtt_s: s(info.rtt_us()),
                ..Interval::default()
            },
            acked_bytes: info.bytes_acked().saturating_sub(1),
            retransmitted_bytes: info.bytes_retrans(),
            min_rtt_s: s(info.min_rtt_us()),
            sndbuf: Some(memory.sndbuf.into()),
            memory: Some(memory.wmem_queued.into()),
            shares_s: None,
            local: self.local_addr().ok(),
            peer: self.peer_addr().ok(),
        })
    }
}
