//! The beginning of a connection that a rule allows by a name: the guest's bytes wait until the gateway's
//! logic has found an allowed name in them (`taut-gateway`, `logic/first_bytes/`), and the server's pass
//! meanwhile.

use taut_core::ReadError;
use taut_gateway::{FirstBytes, Further, LEAST_GRANT, NextStep, Passage, Side};

use super::{Connections, Guest, Stage};
use crate::core::{Core, waits};

/// See the top of the file.
pub(super) struct Beginning {
    first: FirstBytes,
    /// These may pass, and the far side has not taken them.
    passing: Vec<u8>,
    /// All that follows them may pass.
    is_over: bool,
}

impl Beginning {
    pub(super) const fn new(first: FirstBytes) -> Self {
        Self { first, passing: Vec::new(), is_over: false }
    }
}

impl Connections {
    /// Passes the guest's first bytes. Returns whether those that follow need no check.
    pub(super) fn begin(&mut self, core: &mut Core, at: usize) -> bool {
        loop {
            let Some(one) = self.all.get_mut(at) else { return false };
            let (Guest::Conn(id), Stage::Open) = (one.guest, one.stage) else { return false };
            let Some(beginning) = &mut one.beginning else { return true };
            if !beginning.passing.is_empty() {
                match one.far.send(&beginning.passing, &mut core.calls) {
                    Ok(count) => {
                        beginning.passing.drain(..count);
                        core.gateway.passed(core.time(), one.flow, Side::Guest, count, 0);
                    }
                    Err(error) if waits(&error) => {
                        core.is_changed |= !std::mem::replace(&mut one.is_full, true);
                        return false;
                    }
                    Err(_) => {
                        self.reset(core, at, Side::Upstream);
                        return false;
                    }
                }
                continue;
            }
            one.is_full = false;
            if beginning.is_over {
                one.beginning = None;
                return true;
            }
            let time = core.time();
            let Some(mut conn) = core.stack.conn_mut(id) else { return false };
            let passage = match conn.chunk() {
                Ok([]) if beginning.first.guest_ended() == Further::Free => Passage::Free(Vec::new()),
                Ok([]) => Passage::Refuse,
                Ok(bytes) => {
                    let count = bytes.len().min(LEAST_GRANT);
                    let (flow, bytes) = ((one.flow, one.from), &bytes[..count]);
                    let passage = core.gateway.first_bytes(time, flow, &mut beginning.first, bytes);
                    conn.consume(core.now, count);
                    passage
                }
                Err(ReadError::WouldBlock) => return false,
                Err(_) => {
                    self.reset(core, at, Side::Guest);
                    return false;
                }
            };
            match passage {
                Passage::Watch(bytes) => beginning.passing = bytes,
                Passage::Free(bytes) => (beginning.passing, beginning.is_over) = (bytes, true),
                Passage::Refuse => {
                    self.end(core, at, NextStep::ResetBoth);
                    return false;
                }
            }
        }
    }

    /// The far side has sent something, or ended its half. Returns whether the connection continues.
    pub(super) fn server_said(&mut self, core: &mut Core, at: usize, is_end: bool) -> bool {
        let Some(one) = self.all.get_mut(at) else { return false };
        let Some(beginning) = one.beginning.as_mut().filter(|beginning| !beginning.is_over) else {
            return true;
        };
        let flow = (one.flow, one.from);
        match core.gateway.server_said(core.time(), flow, &beginning.first, is_end) {
            Further::Watch => true,
            Further::Free => {
                beginning.is_over = true;
                true
            }
            Further::Refuse => {
                self.end(core, at, NextStep::ResetBoth);
                false
            }
        }
    }
}
