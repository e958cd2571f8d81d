//! Observing a running stack: settings, snapshots of connections, the reasons why they waited. Linux's
//! `sysctl`, `ss` and `nstat` as calls, for commands such as [`taut explain`](crate::Report). The few calls
//! that visit every connection say so.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use super::opening::listener::ListenerInfo;
use super::{ConnRef, Stack};
use crate::buffers::MemoryUse;
use crate::congestion::{Algorithm, AlgorithmError};
use crate::conn::report::Report;
use crate::settings::sysctl::SysctlError;
use crate::words::{ConnId, Instant, Known, Witness};

impl Stack {
    /// The value of a setting, by its `sysctl` name (`net.ipv4.` may be left out).
    ///
    /// # Errors
    ///
    /// [`SysctlError::Unknown`].
    pub fn sysctl(&self, name: &str) -> Result<String, SysctlError> {
        self.config.sysctl(name)
    }

    /// Changes a setting, from now on and for this stack alone. Settings that a connection copies when it
    /// begins apply to later connections only.
    ///
    /// # Errors
    ///
    /// See [`SysctlError`]; after an error nothing has changed.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), SysctlError> {
        Arc::make_mut(&mut self.config).set_sysctl(name, value)?;
        self.end_line_unless_measured();
        self.tables.time_wait.limit(self.config.max_tw_buckets, self.config.time_wait);
        self.pool.budget.limit(self.config.mem, self.config.max_orphans);
        self.update_side_deadline();
        Ok(())
    }

    /// Name and value of every setting, in the order of their names.
    pub fn sysctls(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.config.sysctls()
    }

    /// The congestion control that a text names, such as `bbr`, or with parameters `mine:gain=2.5`: a
    /// built-in one, or one from the configuration's [registry](crate::congestion::Registry).
    ///
    /// # Errors
    ///
    /// [`AlgorithmError`] lists the known algorithms, or the algorithm's parameters.
    pub fn algorithm(&self, text: &str) -> Result<Algorithm, AlgorithmError> {
        self.config.congestion.registry.algorithm(text)
    }

    /// The link below has begun to honour departure times, or has stopped:
    /// [`LinkCaps::paces`](crate::LinkCaps::paces).
    pub fn set_link_paces(&mut self, paces: bool) {
        self.caps.paces = paces;
        self.end_line_unless_measured();
    }

    /// Tickets come back from now on when packets have left, or do so no more:
    /// [`LinkCaps::completes_on_departure`](crate::LinkCaps::completes_on_departure).
    pub fn set_link_completes_on_departure(&mut self, completes: bool) {
        self.caps.completes_on_departure = completes;
        self.end_line_unless_measured();
    }

    /// Every connection, in any state, including those that are still closing, then those that are half-open
    /// at a listener. When the handshake of one of these is complete, the connection has another name.
    pub fn conn_ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.tables.conns.ids().chain(self.tables.half_open.ids())
    }

    /// A read-only view of a connection, which the application may already have released.
    #[must_use]
    pub fn conn(&self, id: ConnId) -> Option<ConnRef<'_>> {
        match self.tables.conns.get(id) {
            Some(conn) => Some(ConnRef::new(self, conn)),
            None => Some(ConnRef::of_half_open(self, self.view_half_open(id)?)),
        }
    }

    /// The report on all connections, past and present, with the bytes in their queues now. Visits every
    /// connection.
    #[must_use]
    pub fn report(&self, now: Instant) -> Report {
        let mut report = Report::new();
        for ((_, share), total) in report.shares.iter_mut().zip(self.shared.totals.shares) {
            *share = total;
        }
        for (queue, total) in report.queues.iter_mut().zip(self.shared.totals.sojourn) {
            queue.sojourn = total;
        }
        report.lateness = self.shared.totals.lateness;
        for id in self.tables.conns.ids() {
            if let Some(conn) = self.tables.conns.get(id) {
                conn.report_to(&mut report, now, false);
            }
        }
        report
    }

    /// From now on, `witness` hears, and may answer, what a stack cannot know from its calls: whether memory
    /// that it shared still has another holder. For recording a run and replaying it.
    pub fn set_witness(&mut self, witness: Box<dyn Witness>) {
        self.pool.holders.set_witness(witness);
    }

    /// From now on, pieces of this table that are written or received take no memory, and are not copied: for
    /// simulators. Nothing else differs, limits and counts included.
    pub const fn know(&mut self, bytes: Known) {
        self.pool.known = Some(bytes);
    }

    /// What the connections of this stack hold.
    #[must_use]
    pub const fn memory_use(&self) -> MemoryUse {
        self.pool.budget.usage()
    }

    /// The listeners, in no particular order.
    pub fn listeners(&self) -> impl Iterator<Item = ListenerInfo> + '_ {
        self.listeners.iter()
    }
}
