//! A stack seen from outside while it runs: settings, snapshots of connections, what held them back.
//! Linux's `sysctl`, `ss` and `nstat` in calls; made for [`taut explain`](crate::Report) and its like, so the few that
//! look at every connection say so.

use alloc::string::String;
use alloc::sync::Arc;

use super::listener::ListenerInfo;
use super::{ConnRef, Stack};
use crate::congestion::{Algorithm, AlgorithmError};
use crate::report::Report;
use crate::sysctl::SysctlError;
use crate::words::{ConnId, Instant};

impl Stack {
    /// The value of a setting, by the name that `sysctl` knows (`net.ipv4.` may be left out).
    ///
    /// # Errors
    ///
    /// [`SysctlError::Unknown`].
    pub fn sysctl(&self, name: &str) -> Result<String, SysctlError> {
        self.config.sysctl(name)
    }

    /// Changes a setting, from now on and for this stack alone. What a connection is born with holds for later ones.
    ///
    /// # Errors
    ///
    /// As [`SysctlError`] says; nothing changed then.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), SysctlError> {
        Arc::make_mut(&mut self.config).set_sysctl(name, value)?;
        self.time_wait.limit(self.config.max_tw_buckets, self.config.time_wait);
        Ok(())
    }

    /// Name and value of every setting, by name.
    pub fn sysctls(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.config.sysctls()
    }

    /// The congestion control that a text means, `bbr` or with parameters `mine:gain=2.5`: one that is built in, or of
    /// those that the configuration's [registry](crate::congestion::Registry) was given.
    ///
    /// # Errors
    ///
    /// [`AlgorithmError`] names those that there are, or the parameters.
    pub fn algorithm(&self, text: &str) -> Result<Algorithm, AlgorithmError> {
        self.config.congestion.registry.algorithm(text)
    }

    /// The link below began to honour departure times, or ceased to: [`LinkCaps::paces`](crate::LinkCaps::paces).
    pub fn set_link_paces(&mut self, paces: bool) {
        self.caps.paces = paces;
    }

    /// Every connection, in any state, those still closing included.
    pub fn conn_ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.table.ids()
    }

    /// A connection to look at, also one that the application has released.
    #[must_use]
    pub fn conn(&self, id: ConnId) -> Option<ConnRef<'_>> {
        Some(ConnRef::new(self, self.table.get(id)?))
    }

    /// The report on all connections that there ever were, with the bytes in their queues now. Looks at every connection.
    #[must_use]
    pub fn report(&self, now: Instant) -> Report {
        let mut report = Report::new();
        for ((_, share), total) in report.shares.iter_mut().zip(self.totals.shares) {
            *share = total;
        }
        for (queue, total) in report.queues.iter_mut().zip(self.totals.sojourn) {
            queue.sojourn = total;
        }
        for id in self.table.ids() {
            if let Some(conn) = self.table.get(id) {
                conn.report_to(&mut report, now, false);
            }
        }
        report
    }

    /// What listens, in no particular order.
    pub fn listeners(&self) -> impl Iterator<Item = ListenerInfo> + '_ {
        self.listeners.iter()
    }
}
