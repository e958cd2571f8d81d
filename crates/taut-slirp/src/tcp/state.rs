//! Connections as a state that is saved and loaded (`saved.rs`).

use std::net::SocketAddr;

use taut_core::{ConnId, State};
use taut_gateway::{FlowId, Side};

use super::{Connection, Connections, Guest};
use crate::core::Core;
use crate::saved::Saved;
use crate::service::Far;

impl Connections {
    /// Those that the guest has.
    pub(crate) fn save(&self, core: &Core) -> Vec<Saved> {
        let save = |(_, one): (usize, &Connection)| {
            let Guest::Conn(id) = one.guest else { return None };
            let of_stack = core.stack.conn(id)?;
            let conn = of_stack.resumed(core.now)?;
            let waiting = one.far.said();
            // The service has got all that the guest sent, its end too.
            let has_got_all = match of_stack.state() {
                State::Established => !of_stack.readable(),
                State::CloseWait => one.ended[Side::Guest as usize],
                _ => false,
            };
            let continues = waiting.is_some() && has_got_all && !one.ended[Side::Upstream as usize];
            let down = match waiting.filter(|_| continues) {
                Some(said) => [&of_stack.unacknowledged()[..], &one.down, &said].concat(),
                None => Vec::new(),
            };
            Some(Saved { conn, station: None, continues, down, up: Vec::new() })
        };
        self.all.iter().filter_map(save).collect()
    }

    /// One that the stack has already continues.
    pub(crate) fn resume(
        &mut self,
        core: &mut Core,
        flow: FlowId,
        id: ConnId,
        far: Far,
        ends: (SocketAddr, SocketAddr),
    ) {
        let at = self.insert(core, flow, Guest::Conn(id), far, ends);
        self.on_answered(core, at);
    }
}
