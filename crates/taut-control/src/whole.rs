//! A whole stack in one value: what the control socket sends in parts. Called by `Stack::snapshot` of the
//! crate `taut`, and by `taut replay`.

use serde::Serialize;
use taut_core::{Instant, Report, Stack};

use crate::protocol::Counter;
use crate::snapshot::{
    self, ConnReportSnapshot, ConnSnapshot, DatagramSnapshot, FlowSnapshot, ListenerSnapshot, ReportSnapshot,
};

/// Connections copied at a time under the stack's lock: some tens of microseconds.
pub(crate) const BATCH: usize = 64;

/// Everything that `taut ss`, `nstat` and `explain` show of a stack, in their terms and units.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StackSnapshot {
    /// Sockets that listen.
    pub listeners: Vec<ListenerSnapshot>,
    /// Flows that wait for a decision; of each shard, at most [`FLOWS_MAX`](snapshot::FLOWS_MAX).
    pub flows: Vec<FlowSnapshot>,
    /// Connections, but those in TIME-WAIT.
    pub connections: Vec<ConnSnapshot>,
    /// Sockets of UDP and ping.
    pub datagrams: Vec<DatagramSnapshot>,
    /// A report on each connection, in the same order.
    pub reports: Vec<ConnReportSnapshot>,
    /// The report on all connections, past and present.
    pub report: ReportSnapshot,
    /// All counters.
    pub counters: Vec<Counter>,
}

impl StackSnapshot {
    /// The state of so many shards now. `lend` lends one of them with its time, for the length of a call. It
    /// is called for each few connections, so that a lock around the stack is never held for long.
    pub fn of(shards: usize, mut lend: impl FnMut(usize, &mut dyn FnMut(&Stack, Instant))) -> Self {
        let (mut all, mut report) = (Self::default(), Report::default());
        for shard in 0..shards {
            let mut ids = Vec::new();
            lend(shard, &mut |stack, now| {
                snapshot::add_listeners(&mut all.listeners, snapshot::listeners(stack));
                snapshot::add_counters(&mut all.counters, snapshot::counters(stack));
                all.flows.extend(snapshot::flows(stack, now));
                all.datagrams.extend(snapshot::datagrams(stack));
                report.add(&stack.report(now));
                ids.extend(stack.conn_ids());
            });
            for some in ids.chunks(BATCH) {
                let mut copied = Vec::with_capacity(BATCH);
                lend(shard, &mut |stack, now| {
                    let copy =
                        |&id| Some((snapshot::conn(stack, id, now)?, snapshot::conn_report(stack, id, now)?));
                    copied.extend(some.iter().filter_map(copy));
                });
                // Converted, which allocates, without the lock.
                all.connections.extend(copied.iter().map(|(conn, _)| ConnSnapshot::from(conn)));
                all.reports.extend(copied.iter().map(|(_, report)| ConnReportSnapshot::from(report)));
            }
        }
        all.report = (&report).into();
        all
    }
}
