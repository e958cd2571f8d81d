//! taut as the sender of a live run. Called by `live.rs`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::apps::{Conn, FlowPlan, Sender, Snapshot, forward_to_stream};
use super::backlog::Backlog;
use crate::data::Interval;
use crate::view;

/// A stack with its own thread.
pub(super) struct Taut {
    pub(super) stack: taut::Stack,
    /// The kernel's queue in front of its device, if there is one.
    pub(super) backlog: Option<Arc<Backlog>>,
}

impl Sender for Taut {
    type Conn = taut::TcpStream;

    async fn connect(&self, plan: &FlowPlan) -> io::Result<taut::TcpStream> {
        taut::TcpStream::connect_with(&self.stack, plan.to, &plan.spec.options.options()).await
    }

    fn counters(&self) -> io::Result<BTreeMap<String, u64>> {
        Ok(self.stack.counters().iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn device_bytes(&self) -> Option<u64> {
        match &self.backlog {
            Some(backlog) => backlog.bytes(),
            None => self.stack.link_report().map(|report| report.backlog_bytes),
        }
    }
}

impl Conn for taut::TcpStream {
    forward_to_stream!();

    fn finish(&self) -> io::Result<()> {
        self.shutdown_with(std::net::Shutdown::Write)
    }

    fn snapshot(&self) -> io::Result<Snapshot> {
        let (info, report) = (self.info()?, self.report()?);
        Ok(Snapshot {
            point: Interval { in_flight_bytes: view::in_flight_bytes(&report), ..view::point(&info) },
            acked_bytes: info.bytes_acked,
            retransmitted_bytes: info.bytes_retrans,
            min_rtt_s: info.min_rtt.map(view::seconds),
            sndbuf: Some(info.sndbuf.into()),
            memory: Some(info.wmem_queued.into()),
            shares_s: Some(report.shares.iter().map(|(_, time)| view::seconds(*time)).collect()),
            local: Some(info.local),
            peer: Some(info.peer),
        })
    }
}
