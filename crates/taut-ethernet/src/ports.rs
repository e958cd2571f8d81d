//! A link of several machines, each at a port: joins the switch to the frames and to the leases. Part of
//! [`Ethernet`]; `switch.rs` decides.

use core::net::IpAddr;

use taut_core::Instant;
use taut_wire::Mac;

use crate::ethernet::Ethernet;
use crate::switch::{Own, PortId, Way};

impl<P> Ethernet<P> {
    /// A machine is at this port from now on; returns whether there is room for it: for 16.
    pub fn plug(&mut self, port: PortId) -> bool {
        self.switch.plug(port)
    }

    /// It is gone: its leases are over, and remembered for their stations.
    pub fn unplug(&mut self, now: Instant, port: PortId) {
        for station in self.switch.unplug(port) {
            if let Some(serving) = self.serving.as_deref_mut() {
                serving.forget(now, station);
            }
        }
    }

    /// For whom a frame is that has come at this port. One for this host must still be
    /// [handled](Ethernet::handle_frame).
    pub fn switch_frame(&mut self, now: Instant, port: PortId, frame: &[u8]) -> Way {
        let own = Own { station: self.config.mac, networks: &self.config.networks };
        let mut over = None;
        let serving = self.serving.as_deref();
        let holder = |address| serving.and_then(|serving| serving.holder(now, address));
        let way = self.switch.judge(&own, port, frame, holder, |station| over = Some(station));
        if let (Some(station), Some(serving)) = (over, self.serving.as_deref_mut()) {
            serving.forget(now, station);
        }
        if matches!(way, Way::Refused(_)) {
            self.stats.ignored += 1;
        }
        way
    }

    /// The port at which a station was seen.
    #[must_use]
    pub fn port_of(&self, station: Mac) -> Option<PortId> {
        self.switch.port_of(station)
    }

    /// The port that has an address.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<PortId> {
        self.switch.owner(address)
    }
}
