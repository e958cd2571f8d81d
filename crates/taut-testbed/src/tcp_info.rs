//! The state of a connection of the kernel's: `struct tcp_info` (linux/tcp.h) and `SO_MEMINFO` (linux/sock_diag.h),
//! by the places of their members. Called by live runs, and by tests that compare what both ends know.

use std::io;
use std::os::fd::AsFd;

use taut_device::sys;

/// `struct tcp_info`, in the kernel's units. What this kernel does not know of is zero.
#[derive(Clone, Debug)]
pub struct TcpInfo(Vec<u8>);

/// Accessors of members by their place.
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
    /// `TCPI_OPT_…`: what both ends agreed on.
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
    /// Bytes a second; all ones for no limit.
    pacing_rate: u64 = 104;
    /// Acknowledged, the SYN included.
    bytes_acked: u64 = 120;
    /// Written and not sent.
    notsent_bytes: u32 = 144;
    /// Least round-trip time; all ones before the first.
    min_rtt_us: u32 = 148;
    /// Bytes a second.
    delivery_rate: u64 = 160;
    /// Segments that arrived with a congestion mark.
    delivered_ce: u32 = 196;
    /// Retransmitted.
    bytes_retrans: u64 = 208;
    /// The peer's window.
    snd_wnd: u32 = 228;
}

/// Counts of a connection with accurate ECN (Linux 6.18 and later). Bytes are of ECT(1), ECT(0) and
/// CE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccurateEcn {
    /// Packets received with a mark.
    pub received_ce: u32,
    /// Payload that arrived at the peer.
    pub delivered_bytes: [u32; 3],
    /// Payload that came from the peer.
    pub received_bytes: [u32; 3],
}

impl TcpInfo {
    /// Asks for it.
    ///
    /// # Errors
    /// When it is no TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        sys::tcp_info(socket).map(Self)
    }

    /// `None` where the kernel's structure ends before.
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
    /// Below TCP: in the queue of the device. One byte is always there.
    pub wmem_alloc: u32,
    /// The limit.
    pub sndbuf: u32,
    /// Unsent or unacknowledged.
    pub wmem_queued: u32,
}

impl SocketMemory {
    /// Asks for it.
    ///
    /// # Errors
    /// Those of [`sys::memory_info`].
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let bytes = sys::memory_info(socket)?;
        // Place of a word: SK_MEMINFO_WMEM_ALLOC and so on.
        let word = |index: usize| {
            let word = bytes.get(index * 4..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
        };
        Ok(Self { wmem_alloc: word(2), sndbuf: word(3), wmem_queued: word(5) })
    }
}
