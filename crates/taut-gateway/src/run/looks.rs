//! Looks at the rooms of connections, and the connections that have not answered yet.
//!
//! A connection's task alone has both of its ends, so it is woken and answers by itself. Between looks
//! nothing is kept of a connection, and no descriptor is used after its socket is closed. A look is over
//! when the last connection has answered or ended. Called by `server.rs`.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};

use taut::taut_control::rooms::FlowRooms;

use crate::logic::flows::FlowId;

/// The looks that are not over.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    open: Vec<Look>,
    serial: u32,
}

#[derive(Debug)]
struct Look {
    serial: u32,
    queried: BTreeSet<FlowId>,
    answers: Sender<FlowRooms>,
}

impl Looks {
    /// A look at these connections. The answers end with the last of them.
    pub(crate) fn begin(&mut self, queried: BTreeSet<FlowId>) -> (u32, Receiver<FlowRooms>) {
        let (answers, received) = channel();
        self.serial = self.serial.wrapping_add(1);
        if !queried.is_empty() {
            self.open.push(Look { serial: self.serial, queried, answers });
        }
        (self.serial, received)
    }

    /// The time of a look is over.
    pub(crate) fn give_up(&mut self, serial: u32) {
        self.open.retain(|look| look.serial != serial);
    }

    /// The looks that wait for this connection, which answers now or has ended. Without one, this does not
    /// allocate.
    pub(crate) fn answer(&mut self, id: FlowId) -> Vec<Sender<FlowRooms>> {
        let queried = |look: &mut Look| look.queried.remove(&id).then(|| look.answers.clone());
        let waiting: Vec<_> = self.open.iter_mut().filter_map(queried).collect();
        if !waiting.is_empty() {
            self.open.retain(|look| !look.queried.is_empty());
        }
        waiting
    }
}
