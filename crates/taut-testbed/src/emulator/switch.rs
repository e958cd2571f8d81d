//! Several hosts at one end of a path: what any of them sends takes the same queues, and what comes back goes
//! to the host that it is addressed to. Called by `emulator.rs`.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

use taut_device::sys::{Epoll, Interest};
use taut_driver::Received;
use taut_wire::raw;

use super::Port;

/// The hosts' ports, and the addresses behind each.
pub struct Switch {
    ports: Vec<(Port, Vec<IpAddr>)>,
    /// Readable when any of the ports is.
    any: Epoll,
    /// The port to ask first, so that none is served before the others.
    next: usize,
}

impl Switch {
    /// Joins the ports.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new(ports: Vec<(Port, Vec<IpAddr>)>) -> io::Result<Self> {
        let any = Epoll::new()?;
        for (port, _) in &ports {
            any.add(port.fd(), 0, Interest::Readable)?;
        }
        Ok(Self { ports, any, next: 0 })
    }

    pub(super) fn recv(&mut self, buffer: &mut Vec<u8>) -> Option<Received> {
        let count = self.ports.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            if let Some(received) = self.ports[index].0.recv(buffer) {
                self.next = (index + 1) % count;
                return Some(received);
            }
        }
        None
    }

    /// The port of the host with the packet's destination.
    pub(super) fn port_to(&self, header: &[u8]) -> Option<&Port> {
        let to = raw::destination(header)?;
        self.ports.iter().find(|(_, addresses)| addresses.contains(&to)).map(|(port, _)| port)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.ports).finish()
    }
}
