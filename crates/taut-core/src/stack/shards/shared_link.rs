//! A stack that is one of several on one link: which packets and connections are its own.
//! taut's own; [`Steering`] has the rule. Called by a driver with several shards.

use core::net::SocketAddr;

use crate::buffers::MemoryUse;
use crate::stack::{Stack, Steering};
use crate::words::Endpoint;

impl Stack {
    /// From now on this is one of several stacks on one link, and has only those connections that `steering`
    /// assigns to it. Call it before the first connection begins.
    pub fn set_steering(&mut self, steering: Steering) {
        self.steering = Some(steering);
    }

    /// If a received packet belongs to another stack on this link: the index of that stack. Hand the packet
    /// over to it. The packet is counted.
    pub fn owner_elsewhere(&mut self, packet: &[u8]) -> Option<usize> {
        let steering = self.steering.as_ref()?;
        let owner = steering.owner_of_packet(packet).filter(|&owner| owner != steering.index())?;
        self.counters.steered += 1;
        Some(owner)
    }

    /// What the connections of the other stacks hold, whose user sees all of them as one: `tcp_mem` is for
    /// the sum.
    pub fn set_memory_elsewhere(&mut self, elsewhere: MemoryUse) {
        self.pool.budget.set_elsewhere(elsewhere);
        self.counters.tcp_memory_pressures = self.pool.budget.pressures();
    }

    /// A packet could not be handed over.
    pub const fn note_steered_lost(&mut self) {
        self.counters.steered_lost += 1;
    }

    /// Counts packets that the device dropped or will never take. Their connections learn of them by
    /// [`handle_tx`](Self::handle_tx).
    pub const fn note_device_losses(&mut self, drops: u64, errors: u64) {
        self.counters.device_drops += drops;
        self.counters.device_errors += errors;
    }

    /// Which stack has the datagram sockets at a port, if there are several.
    #[must_use]
    pub fn owner_of_port(&self, port: u16) -> Option<usize> {
        self.steering.as_ref().map(|steering| steering.owner_of_port(port))
    }

    /// Counts completions that came late; of these, those out of order, and those without a report of the
    /// device. For counters only: no packet and no result depends on it.
    pub const fn note_completions(&mut self, late: u64, out_of_order: u64, unreported: u64) {
        self.counters.device_late += late;
        self.counters.device_out_of_order += out_of_order;
        self.counters.device_unreported += unreported;
    }

    /// Which stack must begin a connection: the port's owner if a port was requested, else any (`None`).
    #[must_use]
    pub fn owner_of_connect(&self, to: SocketAddr, bind: Option<SocketAddr>) -> Option<usize> {
        let steering = self.steering.as_ref()?;
        let peer = to.ip().to_canonical();
        let (local, port) = self.local_for(peer, bind).ok().filter(|&(_, port)| port != 0)?;
        Some(steering.owner_of(Endpoint::new(local, port), Endpoint::new(peer, to.port())))
    }
}
