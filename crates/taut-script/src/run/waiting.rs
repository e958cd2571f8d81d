//! The call that blocks: at most one, made again whenever something has happened, until it returns or its
//! time is over.

use taut_core::Instant;

use super::Runner;
use super::calls::Attempt;
use crate::script::Call;

/// A call that has begun and not returned.
pub(super) struct Pending {
    pub(super) line: u32,
    pub(super) call: Call,
    /// When it should return.
    end: Instant,
    pub(super) attempt: Attempt,
}

impl Pending {
    pub(super) const fn new(line: u32, call: Call, end: Instant, attempt: Attempt) -> Self {
        Self { line, call, end, attempt }
    }
}

impl Runner {
    /// Makes the call again. If it returns, result and time are compared.
    pub(super) fn retry_pending(&mut self) -> Result<(), String> {
        let Some(mut pending) = self.pending.take() else { return Ok(()) };
        if !self.attempt(&pending.call, &mut pending.attempt)? {
            self.pending = Some(pending);
            return Ok(());
        }
        let now = self.now();
        let off = now.since(pending.end).max(pending.end.since(now));
        if off > self.config.tolerance {
            let at = |at: Instant| at.since(crate::host::START).as_nanos() as f64 / 1e9;
            return Err(format!(
                "line {}: {} was to return at {:.6}, and returned at {:.6}",
                pending.line,
                pending.call.name,
                at(pending.end),
                at(now)
            ));
        }
        Ok(())
    }

    /// Waits for the call that blocks.
    pub(super) fn await_pending(&mut self) -> Result<(), String> {
        while let Some(pending) = &self.pending {
            let limit = pending.end.max(pending.attempt.timeout()) + self.config.tolerance;
            let limit = limit.max(self.now());
            let (line, name) = (pending.line, pending.call.name.clone());
            let wake = self.sockets.host.next_wake().into_iter().chain(pending.attempt.wakes_at()).min();
            if let Some(at) = wake.filter(|&at| at <= limit) {
                self.sockets.host.step(at)?;
                self.progress()?;
                continue;
            }
            self.sockets.host.step(limit)?;
            self.progress()?;
            if self.pending.is_some() {
                return Err(format!("{name} of line {line} has not returned by then"));
            }
        }
        Ok(())
    }
}
