//! The link of a live run whose sender has an Ethernet interface: a cable to a router, behind which the
//! emulated path begins. Called by `live.rs`.
//!
//! ```text
//!   taut ── packet sockets ┐
//!                          ├─ tbf or fq ─ veth0 ═══ veth0 ─ router ─ taut0 ── Emulator ── taut0: kernel: Peer
//!   kernel ────────────────┘      near                    (kernel)
//! ```
//!
//! The kernel can delay packets only where it has `netem`; the emulator can everywhere, and it counts what it
//! carries. The router hands super-packets on as they are. It answers ARP for the receiver, so that sender
//! and receiver are in one network, as over a TUN. With `kind = "direct"` the cable ends at the receiver.

use std::io;

use taut_device::{Cidr, Interface, Packet, PacketOptions};
use taut_testbed::{Kernel, Port, Service};

use super::link::{self, Link, NET, OwnQueue, context};
use crate::job::RunError;
use crate::scenario::{Kind, Scenario, Variation};

/// The name of each end of the cable.
pub(super) const INTERFACE: &str = "veth0";
/// Of Ethernet's bytes around a packet, those that the kernel's queues count.
pub(super) const HEADER_BYTES: u64 = 14;

/// The link, with the sender's queue in place. The near kernel has no address yet.
pub(super) fn link(
    variation: &Variation,
    seed: u64,
    services: &[(u16, Service)],
) -> Result<Link<Kernel>, RunError> {
    let scenario = &variation.scenario;
    let (near, receiver) = (link::kernel(&scenario.hosts.sender)?, link::kernel(&scenario.hosts.receiver)?);
    let mut link = if scenario.topology.kind == Kind::Direct {
        cable(&near, &receiver, scenario).map_err(context("cannot create a veth pair"))?;
        let addressed = add_addresses(&receiver, &NET.far());
        addressed.map_err(context("cannot give the receiver its address"))?;
        Link { near, beside: None, way: None, peer: link::start(&receiver, services)?, router: None }
    } else {
        let router = Kernel::new().map_err(context("cannot create a network namespace"))?;
        cable(&near, &router, scenario).map_err(context("cannot create a veth pair"))?;
        let port = route(&router, scenario).map_err(context("cannot set up the router"))?;
        let (port, beside) = link::with_beside(scenario, port)?;
        let far = link::tun(&receiver, &NET.far(), scenario)?;
        let way = link::emulator(scenario, seed, port, far)?;
        Link { near, beside, way: Some(way), peer: link::start(&receiver, services)?, router: Some(router) }
    };
    put_queue(&mut link, variation).map_err(context("the sender's queue"))?;
    Ok(link)
}

/// Opens taut's device at the near end.
pub(super) fn device(near: &Kernel, scenario: &Scenario) -> io::Result<Packet> {
    let host = &scenario.hosts.sender;
    let options = PacketOptions {
        offload: host.nic.tso.unwrap_or(true),
        delegate_pacing: host.delegate_pacing.unwrap_or(true),
        ..PacketOptions::default()
    };
    near.enter(|| Packet::open(INTERFACE, &NET.near(), &options))?
}

/// Gives the near kernel its addresses, so that it can send.
pub(super) fn add_addresses(kernel: &Kernel, addresses: &[Cidr]) -> io::Result<()> {
    let interface = kernel.enter(|| Interface::open(INTERFACE))??;
    addresses.iter().try_for_each(|&address| interface.add_address(address))
}

/// Joins two kernels by a pair of interfaces, both up, without addresses.
fn cable(near: &Kernel, far: &Kernel, scenario: &Scenario) -> io::Result<()> {
    let (here, there) = near.namespace.connect(INTERFACE, &far.namespace, INTERFACE)?;
    for interface in [&here, &there] {
        interface.set_mtu(u32::from(link::mtu(scenario)))?;
        interface.set_up()?;
    }
    there.wait_until_running(std::time::Duration::from_secs(5))?;
    if !link::has_super_packets(scenario) {
        near.run(&format!("ip link set dev {INTERFACE} gso_max_segs 1"))?;
    }
    Ok(())
}

/// Makes a kernel pass packets from the cable to a TUN, and back. Returns the TUN.
fn route(router: &Kernel, scenario: &Scenario) -> io::Result<Port> {
    let host = |address: std::net::Ipv4Addr| Cidr::new(address.into(), 32).ok_or(io::ErrorKind::InvalidInput);
    let tun = router.tun(&[], &link::tun_options(scenario))?;
    let open = |name: &str| router.enter(|| Interface::open(name))?;
    let (cable, path) = (open(INTERFACE)?, open(link::TUN)?);
    cable.add_address(host(NET.router_v4())?)?;
    cable.add_route(host(NET.near_v4())?, None)?;
    path.add_route(host(NET.far_v4())?, None)?;
    for (name, value) in [
        ("net.ipv4.ip_forward".to_owned(), "1"),
        (format!("net.ipv4.conf.{INTERFACE}.proxy_arp"), "1"),
        // At once, and not after up to 0.8 s.
        (format!("net.ipv4.neigh.{INTERFACE}.proxy_delay"), "0"),
    ] {
        router.set_sysctl(&name, value)?;
    }
    Ok(Port::Tun(tun))
}

/// Gives the sender's interface its queue: a `tbf` with the link's rate in a pair, so that small queues see
/// it; or the scenario's own queue discipline, with the rate behind it, in the router.
fn put_queue(link: &mut Link<Kernel>, variation: &Variation) -> io::Result<()> {
    let scenario = &variation.scenario;
    let own = link::own_queue(scenario, HEADER_BYTES);
    let limit = |kernel: &Kernel, interface: &str, queue: &OwnQueue| {
        kernel.limit_rate(interface, queue.bits_per_second, queue.burst_bytes, queue.limit_bytes)
    };
    if variation.live {
        return own.map_or(Ok(()), |queue| limit(&link.near, INTERFACE, &queue));
    }
    if let (Some(router), Some(queue)) = (&link.router, link::own_queue(scenario, 0)) {
        limit(router, link::TUN, &queue)?;
    }
    let qdisc =
        scenario.hosts.sender.qdisc.as_ref().map_or("pfifo_fast".to_owned(), |qdisc| qdisc.text.clone());
    link.near.run(&format!("tc qdisc replace dev {INTERFACE} root {qdisc}")).map(drop)
}
