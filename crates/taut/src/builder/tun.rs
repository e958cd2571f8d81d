//! What only Linux has: TUN interfaces, packet sockets on Ethernet interfaces, and priorities of threads.

use std::io;

use taut_device::{Cidr, Packet, PacketOptions, Priority, Tun, TunOptions};
#[cfg(feature = "xdp")]
use taut_device::{Xdp, XdpOptions};
use taut_driver::Device;

use super::StackBuilder;

/// The interface that a stack opens which is given no device.
#[derive(Debug, Default)]
pub(super) struct Tunnel {
    name: Option<String>,
    options: TunOptions,
    host_addresses: Vec<Cidr>,
    /// An Ethernet interface to use in place of a TUN.
    packet: Option<String>,
    packet_options: PacketOptions,
    /// The same, by `AF_XDP`.
    #[cfg(feature = "xdp")]
    xdp: Option<String>,
    #[cfg(feature = "xdp")]
    xdp_options: XdpOptions,
}

/// Only on Linux: elsewhere a program that calls these does not compile, as it cannot run.
impl StackBuilder {
    /// Creates a TUN interface with that name, in the network namespace of the thread that calls `build`, and
    /// sends and receives over it. `taut%d` takes the first free number; this is the default.
    #[must_use]
    pub fn tun(mut self, name: &str) -> Self {
        self.tun.name = Some(name.to_owned());
        self
    }

    /// How to open the TUN interface.
    #[must_use]
    pub fn tun_options(mut self, options: TunOptions) -> Self {
        self.tun.options = options;
        self
    }

    /// Gives the kernel an address on the TUN interface. Without one, the stack's networks are routed to the
    /// interface, and the kernel uses one of its addresses on other interfaces.
    #[must_use]
    pub fn host_address(mut self, address: &str) -> Self {
        let parsed = self.parsed::<Cidr>(address);
        self.tun.host_addresses.extend(parsed);
        self
    }

    /// Sets the MTU of the TUN interface, in bytes; 1500 by default.
    #[must_use]
    pub fn mtu(mut self, bytes: u16) -> Self {
        self.tun.options.mtu = bytes;
        self
    }

    /// Sends and receives over packet sockets on this Ethernet interface, in the network namespace of the
    /// thread that calls `build`, in place of a TUN. The interface must be up, and the kernel must not have
    /// the stack's addresses: see [`taut_device::packet`].
    #[must_use]
    pub fn packet(mut self, interface: &str) -> Self {
        self.tun.packet = Some(interface.to_owned());
        self
    }

    /// How to use the Ethernet interface: the stack's station and gateways, and what is left to the kernel.
    #[must_use]
    pub fn packet_options(mut self, options: PacketOptions) -> Self {
        self.tun.packet_options = options;
        self
    }

    /// Learns addresses of IPv6, routers and the MTU from the routers of the Ethernet interface (RFC 4862),
    /// beside addresses that it is given. [`Stack::wait_for_address`](crate::Stack::wait_for_address) waits
    /// for the first one. For [`packet`](Self::packet) and `xdp`; a device that is given to the builder has
    /// an option of its own.
    #[must_use]
    pub fn slaac(mut self) -> Self {
        self.tun.packet_options.slaac = true;
        #[cfg(feature = "xdp")]
        {
            self.tun.xdp_options.slaac = true;
        }
        self
    }

    /// Asks the servers of the Ethernet interface for an address of IPv4, routers, the MTU and name servers
    /// (RFC 2131), beside addresses that it is given.
    /// [`Stack::wait_for_address`](crate::Stack::wait_for_address) waits for the first one, which takes 4 to
    /// 8 s because it is checked. For [`packet`](Self::packet) and `xdp`; a device that is given to the
    /// builder has an option of its own.
    #[must_use]
    pub fn dhcp(mut self) -> Self {
        self.tun.packet_options.dhcp = true;
        #[cfg(feature = "xdp")]
        {
            self.tun.xdp_options.dhcp = true;
        }
        self
    }

    /// Sends and receives over an `AF_XDP` socket on this Ethernet interface, in the network namespace of the
    /// thread that calls `build`, in place of a TUN. The interface must be up: see [`taut_device::xdp`]. With
    /// one shard only.
    #[cfg(feature = "xdp")]
    #[must_use]
    pub fn xdp(mut self, interface: &str) -> Self {
        self.tun.xdp = Some(interface.to_owned());
        self
    }

    /// How to use the Ethernet interface by `AF_XDP`: the stack's station and gateways, its queue, and
    /// memory.
    #[cfg(feature = "xdp")]
    #[must_use]
    pub fn xdp_options(mut self, options: XdpOptions) -> Self {
        self.tun.xdp_options = options;
        self
    }

    /// Gives the stack's threads a priority, so that they wake up in time on a busy machine: paced packets
    /// leave when they are due, and ACKs are answered. Off by default. Other threads keep theirs, and a
    /// thread that blocks in a read no longer does the work of the stack's thread meanwhile.
    ///
    /// A real-time priority comes before that of all ordinary threads: a stack that is never idle keeps a
    /// core to itself, up to the kernel's limit (`kernel.sched_rt_runtime_us`).
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Opens the interface, with so many queues. Returns its name, too.
    pub(super) fn open_interface(&mut self, queues: usize) -> io::Result<(Vec<Device>, Option<String>)> {
        if let Some(name) = &self.tun.packet {
            let packets = Packet::open_queues(name, &self.addresses, &self.tun.packet_options, queues)?;
            return Ok((packets.into_iter().map(Device::from).collect(), Some(name.clone())));
        }
        #[cfg(feature = "xdp")]
        if let Some(name) = &self.tun.xdp {
            if queues > 1 {
                let message = format!("{queues} shards on {name}: an XDP device has one queue");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            let xdp = Xdp::open(name, &self.addresses, &self.tun.xdp_options)?;
            return Ok((vec![xdp.into()], Some(name.clone())));
        }
        self.tun.options.multi_queue |= queues > 1;
        let tun = self.open_first()?;
        let name = tun.name().to_owned();
        let more: Vec<_> = (1..queues).map(|_| tun.open_queue()).collect::<io::Result<_>>()?;
        Ok((std::iter::once(tun).chain(more).map(Device::from).collect(), Some(name)))
    }

    fn open_first(&self) -> io::Result<Tun> {
        let tun = Tun::open(self.tun.name.as_deref().unwrap_or("taut%d"), &self.tun.options)?;
        if !self.tun.options.configure {
            return Ok(tun);
        }
        let interface = tun.interface()?;
        for &address in &self.tun.host_addresses {
            interface.add_address(address)?;
        }
        for address in &self.addresses {
            // The kernel adds routes to its own networks by itself.
            let routed = self.tun.host_addresses.iter().any(|host| host.network() == address.network());
            if !routed {
                interface.add_route(*address, None)?;
            }
        }
        Ok(tun)
    }
}
