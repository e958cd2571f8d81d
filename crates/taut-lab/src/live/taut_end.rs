//! taut as the sender of a live run. Called by `live.rs`.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use taut_core::{ConnOptions, Duration};

use super::apps::{Conn, Sender, Snapshot};
use crate::data::Interval;

/// A stack on a thread of its own.
pub(super) struct Taut(pub(super) taut::Stack);

impl Sender for Taut {
    type Conn = taut::TcpStream;

    async fn connect(
        &self,
        to: SocketAddr,
        options: &ConnOptions,
        _congestion: Option<&str>,
    ) -> io::Result<taut::TcpStream> {
        taut::TcpStream::connect_with(&self.0, to, options).await
    }

    fn counters(&self) -> io::Result<BTreeMap<String, u64>> {
        Ok(self.0.counters().iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn device_bytes(&self) -> Option<u64> {
        self.0.link_report().map(|report| report.backlog_bytes)
    }
}

impl Conn for taut::TcpStream {
    async fn writable(&self) -> io::Result<()> {
        Self::writable(self).await
    }

    async fn readable(&self) -> io::Result<()> {
        Self::readable(self).await
    }

    fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        Self::try_write(self, data)
    }

    fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, into)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown_with(std::net::Shutdown::Write)
    }

    fn snapshot(&self) -> io::Result<Snapshot> {
        let (info, report) = (self.info()?, self.report()?);
        let mss = u64::from(info.snd_mss);
        let s = |span: Duration| span.as_nanos() as f64 / 1e9;
        let rate = |bytes: u64| (bytes != u64::MAX).then_some(bytes as f64 * 8.0);
        let in_flight =
            report.queues.iter().find(|queue| queue.name == "in flight").map_or(0, |queue| queue.bytes);
        Ok(Snapshot {
            point: Interval {
                unsent_bytes: info.notsent_bytes,
                below_tcp_bytes: Some(info.wmem_alloc.into()),
                in_flight_bytes: in_flight,
                cwnd_bytes: u64::from(info.snd_cwnd) * mss,
                ssthresh_bytes: (info.snd_ssthresh < 0x7fff_ffff).then(|| u64::from(info.snd_ssthresh) * mss),
                peer_window_bytes: info.snd_wnd.into(),
                pacing_bps: rate(info.pacing_rate),
                delivery_bps: info.delivery_rate as f64 * 8.0,
                srtt_s: info.rtt.map(s),
                ..Interval::default()
            },
            acked_bytes: info.bytes_acked,
            retransmitted_bytes: info.bytes_retrans,
            min_rtt_s: info.min_rtt.map(s),
            sndbuf: Some(info.sndbuf.into()),
            memory: Some(info.wmem_queued.into()),
            shares_s: Some(report.shares.iter().map(|(_, time)| s(*time)).collect()),
            local: Some(info.local),
            peer: Some(info.peer),
        })
    }
}
