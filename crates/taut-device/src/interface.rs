//! A network interface of the kernel: up, MTU, queue length, addresses, routes.

use std::io;
use std::net::IpAddr;

use crate::cidr::Cidr;
use crate::netlink::{LinkChange, Netlink};

/// An interface in the network namespace where it was opened, from whatever thread it is used afterwards.
#[derive(Debug)]
pub struct Interface {
    netlink: Netlink,
    name: String,
    index: u32,
}

impl Interface {
    /// The interface of that name in the namespace of this thread.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn open(name: &str) -> io::Result<Self> {
        let netlink = Netlink::open()?;
        let index = netlink.index_of(name).map_err(|error| with_context(name, "look up", &error))?;
        Ok(Self { netlink, name: name.to_owned(), index })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Brings it up.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`.
    pub fn set_up(&self) -> io::Result<()> {
        self.change("bring up", LinkChange::Up)
    }

    /// Takes it down.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`.
    pub fn set_down(&self) -> io::Result<()> {
        self.change("take down", LinkChange::Down)
    }

    /// Sets the largest IP packet, in bytes.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or when the interface cannot have that MTU.
    pub fn set_mtu(&self, bytes: u32) -> io::Result<()> {
        self.change(&format!("set an MTU of {bytes} bytes on"), LinkChange::Mtu(bytes))
    }

    /// Sets how many packets may wait to be transmitted; for TUN, to be read by the process.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`.
    pub fn set_txqueuelen(&self, packets: u32) -> io::Result<()> {
        self.change("set the queue length of", LinkChange::TxQueueLen(packets))
    }

    /// Gives the kernel an address on it, usable without duplicate address detection; the prefix becomes reachable
    /// through it. An address it has already stays. A packet to an IPv6 address can be lost in its first millisecond,
    /// since the kernel adds the address's route on a work queue.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or without the address's family in the kernel.
    pub fn add_address(&self, address: Cidr) -> io::Result<()> {
        self.netlink
            .add_address(self.index, address)
            .map_err(|error| with_context(&self.name, &format!("give {address} to"), &error))
    }

    /// Routes packets for `to` through it, by the gateway `via` if there is one. The interface must be up.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or when the gateway is not reachable.
    pub fn add_route(&self, to: Cidr, via: Option<IpAddr>) -> io::Result<()> {
        self.netlink
            .add_route(self.index, to, via)
            .map_err(|error| with_context(&self.name, &format!("route {to} through"), &error))
    }

    /// Deletes the interface, and the other end of a pair with it.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or for an interface that cannot be deleted.
    pub fn delete(self) -> io::Result<()> {
        self.netlink.delete_link(self.index).map_err(|error| with_context(&self.name, "delete", &error))
    }

    fn change(&self, what: &str, change: LinkChange) -> io::Result<()> {
        self.netlink.change_link(self.index, change).map_err(|error| with_context(&self.name, what, &error))
    }
}

fn with_context(name: &str, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} interface {name}: {error}"))
}
