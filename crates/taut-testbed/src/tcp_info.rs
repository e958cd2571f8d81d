//! The state of one of the kernel's connections: `struct tcp_info` (linux/tcp.h) and `SO_MEMINFO`
//! (linux/sock_diag.h), by the offsets of their members. Called by live runs, and by tests that compare both
//! ends.

use std::io;
use std::os::fd::AsFd;

use taut_device::sys;

/// `struct tcp_info`, in the kernel's units. Members that this kernel lacks are zero.
#[derive(Clone, Debug)]
pub struct TcpInfo(Vec<u8>);

/// Accessors of members by their offset.
macro_rules! members {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $at:literal;)*) => {
        impl TcpInfo {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(&self) -> $type {
                self.0.get($at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| <$type>::from_ne_bytes(*bytes))
            })*
        }
    };
}

members! {
    /// State of loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    ca_state: u8 = 1;
    /// `TCPI_OPT_…`: the options that both ends agreed on.
    options: u8 = 5;
    /// Payload bytes of a segment.
    snd_mss: u32 = 16;
    /// Segments in flight.
    unacked: u32 = 24;
    /// Smoothed round-trip time; 0 before the first.
    rtt_us: u32 = 68;
    /// Slow-start threshold in segments; 2³¹ − 1 for none.
    snd_ssthresh: u32 = 76;
    /// Congestion window in segments.
    snd_cwnd: u32 = 80;
    /// Bytes per second; all ones for no limit.
    pacing_rate: u64 = 104;
    /// The limit of it that the application set, likewise.
    max_pacing_rate: u64 = 112;
    /// Bytes acknowledged, the SYN included.
    bytes_acked: u64 = 120;
    /// Payload bytes received in order.
    bytes_received: u64 = 128;
    /// Bytes written and not sent.
    notsent_bytes: u32 = 144;
    /// Least round-trip time; all ones before the first.
    min_rtt_us: u32 = 148;
    /// Bytes per second.
    delivery_rate: u64 = 160;
    /// Segments that arrived with a congestion mark.
    delivered_ce: u32 = 196;
    /// Bytes retransmitted.
    bytes_retrans: u64 = 208;
    /// The peer's window.
    snd_wnd: u32 = 228;
}

/// Counts of a connection with accurate ECN (Linux 6.18 and later). Byte counts are for ECT(1), ECT(0) and
/// CE, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccurateEcn {
    /// Packets received with a congestion mark.
    pub received_ce: u32,
    /// Payload bytes that arrived at the peer.
    pub delivered_bytes: [u32; 3],
    /// Payload bytes that came from the peer.
    pub received_bytes: [u32; 3],
}

impl TcpInfo {
    /// Reads it from the kernel.
    ///
    /// # Errors
    /// When the socket is not a TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        sys::tcp_info(socket).map(Self)
    }

    /// The counts of accurate ECN; `None` if this kernel's structure lacks them.
    #[must_use]
    pub fn accurate_ecn(&self) -> Option<AccurateEcn> {
        const AT: usize = 248;
        let word = |index: usize| {
            let bytes = self.0.get(AT + index * 4..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        Some(AccurateEcn {
            received_ce: word(0)?,
            delivered_bytes: [word(1)?, word(2)?, word(3)?],
            received_bytes: [word(4)?, word(5)?, word(6)?],
        })
    }
}

/// Memory of a socket's send side, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMemory {
    /// Memory of received data that was not read, out of order or not.
    pub rmem_alloc: u32,
    /// The limit.
    pub rcvbuf: u32,
    /// Bytes below TCP, in the queue of the device. Never less than one.
    pub wmem_alloc: u32,
    /// The limit.
    pub sndbuf: u32,
    /// Bytes unsent or unacknowledged.
    pub wmem_queued: u32,
}

impl SocketMemory {
    /// Reads it from the kernel.
    ///
    /// # Errors
    /// Those of [`sys::memory_info`].
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let bytes = sys::memory_info(socket)?;
        // Index of a word: SK_MEMINFO_WMEM_ALLOC and so on.
        let word = |index: usize| {
            let word = bytes.get(index * 4..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
        };
        Ok(Self {
            rmem_alloc: word(0),
            rcvbuf: word(1),
            wmem_alloc: word(2),
            sndbuf: word(3),
            wmem_queued: word(5),
        })
    }
}
