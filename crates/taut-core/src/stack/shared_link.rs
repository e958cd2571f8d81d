//! A stack that is one of several on one link: which packets and connections are its own.
//! Ours; the rule is [`Steering`]'s. Called by a driver with several shards.

use core::net::SocketAddr;

use super::{Stack, Steering};
use crate::words::Endpoint;

impl Stack {
    /// From now on this is one of several stacks on one link, and has those connections alone that are its own. To be
    /// called before there is any.
    pub fn set_steering(&mut self, steering: Steering) {
        self.steering = Some(steering);
    }

    /// Which other stack on this link a received packet is for, if it is not for this one: hand it over to that. Counts.
    pub fn owner_elsewhere(&mut self, packet: &[u8]) -> Option<usize> {
        let steering = self.steering.as_ref()?;
        let owner = steering.owner_of_packet(packet).filter(|&owner| owner != steering.index())?;
        self.counters.steered += 1;
        Some(owner)
    }

    /// A packet could not be handed over.
    pub const fn note_steered_lost(&mut self) {
        self.counters.steered_lost += 1;
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
