//! How many bytes of a connection may wait before its far side, and where: by the rule of the gateway's other
//! runner (`taut-gateway`, `run/rooms.rs`).

use std::time::Duration;

use taut_core::{ConnId, SetOption};
use taut_gateway::Path;

use super::Connection;
use crate::core::Core;

impl Connection {
    /// The far side has made the guest wait: its rate decides how much may wait, and where.
    pub(super) fn look_at_rooms(&mut self, core: &mut Core, id: ConnId) {
        let paths = || {
            let info = core.stack.conn(id)?.info(core.now);
            let min_rtt = info.min_rtt.map_or(Duration::ZERO, Into::into);
            let near =
                Path { rate: info.delivery_rate, snd_mss: info.snd_mss, rcv_mss: info.rcv_mss, min_rtt };
            self.far.path().zip(Some(near))
        };
        let Some((room, window)) = self.rooms.waited(core.time(), paths) else { return };
        self.far.hold_unsent(room);
        if let Some(mut conn) = core.stack.conn_mut(id) {
            // The stack doubles it, and offers all of that.
            _ = conn.set_option(core.now, SetOption::Rcvbuf(window / 2));
        }
    }
}
