//! The link of a live run: the sender's end, the emulated path, and the kernel at the other end, all as the
//! scenario describes them. Called by `live.rs`.

use std::io;

use taut_core::LinkCaps;
use taut_device::{Cidr, TunOptions};
use taut_driver::Device;
use taut_link::{NicSpec, QdiscSpec, Rate, TbfSpec};
use taut_testbed::{Kernel, Peer, Port, Service, Subnet, Switch, Ways};

use super::path::Path;
use crate::job::RunError;
use crate::scenario::{BurstSpec, FaultSpec, HostText, Kind, Scenario};

/// The name of a TUN in its namespace.
pub(super) const TUN: &str = "taut0";
/// Addresses of both ends.
pub(super) const NET: Subnet = Subnet(9);
/// Bytes that the in-process link holds before it reports that it is full: it is emptied at once.
const PIPE_LIMIT_BYTES: usize = 4 << 20;
/// Bytes that may wait for a NIC: a thousand packets, or, where those may be super-packets, four times as
/// many bytes.
const QUEUE_BYTES: u64 = 1_514_000;
/// Limits of the kernel's receive buffers, unless the scenario sets them: enough for any window here.
const RMEM: &str = "4096 131072 67108864";

/// A link; it is removed when this is dropped.
pub(super) struct Link<Near> {
    /// The sender's end.
    pub(super) near: Near,
    /// Another host at the sender's end, if the scenario has flows for it.
    pub(super) beside: Option<Kernel>,
    /// The path to the receiver, if it is not direct.
    pub(super) way: Option<Path>,
    /// The receiver.
    pub(super) peer: Peer,
    /// The kernel between an Ethernet cable and the path.
    pub(super) router: Option<Kernel>,
}

/// Names what failed, for `map_err`.
pub(super) fn context(what: &str) -> impl Fn(io::Error) -> RunError + '_ {
    move |error| RunError::Impossible(format!("{what}: {error}"))
}

/// The link from taut to the kernel.
pub(super) fn from_taut(
    scenario: &Scenario,
    seed: u64,
    services: &[(u16, Service)],
) -> Result<Link<Device>, RunError> {
    let receiver = kernel(&scenario.hosts.receiver)?;
    let tun = receiver.tun(&NET.far(), &tun_options(scenario)).map_err(context("cannot create a TUN"))?;
    if scenario.topology.kind == Kind::Direct {
        let peer = start(&receiver, services)?;
        return Ok(Link { near: tun.into(), beside: None, way: None, peer, router: None });
    }
    let caps = if has_super_packets(scenario) { LinkCaps::offloading } else { LinkCaps::plain };
    let (near, far) = taut_device::pipe(caps(mtu(scenario)), PIPE_LIMIT_BYTES)
        .map_err(context("cannot create the in-process link"))?;
    let (port, beside) = with_beside(scenario, Port::Pipe(far))?;
    let way = emulator(scenario, seed, port, Port::Tun(tun))?;
    let peer = start(&receiver, services)?;
    Ok(Link { near: near.into(), beside, way: Some(way), peer, router: None })
}

/// The link from the kernel to itself, between two namespaces.
pub(super) fn from_kernel(
    scenario: &Scenario,
    seed: u64,
    services: &[(u16, Service)],
) -> Result<Link<Kernel>, RunError> {
    let (near, receiver) = (kernel(&scenario.hosts.sender)?, kernel(&scenario.hosts.receiver)?);
    if scenario.topology.kind == Kind::Direct {
        near.veth(&receiver, NET, mtu(scenario)).map_err(context("cannot create a veth pair"))?;
        let peer = start(&receiver, services)?;
        return Ok(Link { near, beside: None, way: None, peer, router: None });
    }
    let (port, beside) = with_beside(scenario, tun(&near, &NET.near(), scenario)?)?;
    let way = emulator(scenario, seed, port, tun(&receiver, &NET.far(), scenario)?)?;
    Ok(Link { near, beside, way: Some(way), peer: start(&receiver, services)?, router: None })
}

/// An end of the emulated path: a TUN of this kernel's.
pub(super) fn tun(kernel: &Kernel, addresses: &[Cidr], scenario: &Scenario) -> Result<Port, RunError> {
    kernel.tun(addresses, &tun_options(scenario)).map(Port::Tun).map_err(context("cannot create a TUN"))
}

/// The sender's port, joined with that of the kernel beside it if the scenario has flows for that.
pub(super) fn with_beside(scenario: &Scenario, own: Port) -> Result<(Port, Option<Kernel>), RunError> {
    if !scenario.flows.iter().any(|flow| flow.beside) {
        return Ok((own, None));
    }
    let beside = kernel(&scenario.hosts.sender)?;
    let tun =
        beside.tun(&NET.beside(), &tun_options(scenario)).map_err(context("cannot create a TUN beside"))?;
    let bare = |cidrs: Vec<Cidr>| cidrs.into_iter().map(Cidr::address).collect();
    let ports = vec![(own, bare(NET.near())), (Port::Tun(tun), bare(NET.beside()))];
    let switch = Switch::new(ports).map_err(context("cannot join the senders"))?;
    Ok((Port::Switch(Box::new(switch)), Some(beside)))
}

pub(super) fn start(receiver: &Kernel, services: &[(u16, Service)]) -> Result<Peer, RunError> {
    Peer::start(receiver, services).map_err(context("the receiver cannot listen"))
}

/// A kernel with the settings that it supports.
pub(super) fn kernel(host: &HostText) -> Result<Kernel, RunError> {
    let kernel = Kernel::new().map_err(context("cannot create a network namespace"))?;
    kernel.set_sysctl("tcp_rmem", RMEM).map_err(context("tcp_rmem"))?;
    for (name, value) in &host.sysctls.0 {
        if !name.contains('.') || name.starts_with("net.ipv4.") {
            // Settings that only taut has are skipped.
            let _ = kernel.set_sysctl(name, value);
        }
    }
    Ok(kernel)
}

pub(super) fn tun_options(scenario: &Scenario) -> TunOptions {
    TunOptions { mtu: mtu(scenario), offload: has_super_packets(scenario), ..TunOptions::default() }
}

/// Whether hosts hand down super-packets: they do where their NIC takes them.
pub(super) fn has_super_packets(scenario: &Scenario) -> bool {
    scenario.hosts.sender.nic.tso.unwrap_or(true)
}

pub(super) fn mtu(scenario: &Scenario) -> u16 {
    scenario.hosts.sender.mtu.unwrap_or(1_500)
}

/// A sender's own queue.
pub(super) struct OwnQueue {
    /// The rate, of what the queue counts: a host's does not count all of Ethernet's overhead.
    pub(super) bits_per_second: u64,
    /// Room for at least one super-packet, and for the packets of one clock tick.
    pub(super) burst_bytes: u64,
    /// Bytes that may wait.
    pub(super) limit_bytes: u64,
}

/// The sender's queue in a pair, whose link belongs to the sender. It counts so many bytes of Ethernet's with
/// each packet.
pub(super) fn own_queue(scenario: &Scenario, header_bytes: u64) -> Option<OwnQueue> {
    if scenario.topology.kind != Kind::Pair {
        return None;
    }
    let rate = scenario.link.rate.value;
    let mtu = u128::from(mtu(scenario));
    let counted = mtu + u128::from(header_bytes);
    let counted_rate =
        u128::from(rate.bits_per_second()) * counted / (mtu + u128::from(NicSpec::ETHERNET_BYTES));
    let (packet_bytes, limit_bytes) =
        if has_super_packets(scenario) { (70_000, 4 * QUEUE_BYTES) } else { (3_000, QUEUE_BYTES) };
    Some(OwnQueue {
        bits_per_second: u64::try_from(counted_rate).unwrap_or(u64::MAX),
        burst_bytes: packet_bytes.max(rate.bytes_per_second() / 1_000),
        limit_bytes,
    })
}

/// Joins two ports by the scenario's link. In a network, packets are single segments.
pub(super) fn emulator(scenario: &Scenario, seed: u64, near: Port, far: Port) -> Result<Path, RunError> {
    let is_dumbbell = scenario.topology.kind == Kind::Dumbbell;
    let link = &scenario.link;
    let queues = |rate: Rate, faults| -> Result<Vec<QdiscSpec>, RunError> {
        let mut queues = Vec::new();
        if is_dumbbell {
            // The line carries one whole packet at a time, with no burst.
            let line = TbfSpec { rate, burst_bytes: 0, limit: None };
            queues.push(QdiscSpec::Tbf(line, Some(Box::new(scenario.bottleneck_queue()))));
        }
        for text in wire(faults, delay_ns(scenario)) {
            let failed = |error| RunError::Impossible(format!("{text}: {error}"));
            queues.push(text.parse().map_err(failed)?);
        }
        Ok(queues)
    };
    let ways = Ways {
        there: queues(link.rate.value, &link.faults)?,
        back: queues(link.back_rate(), &link.back_faults)?,
        policer: link.policer(),
        steps: link.steps(),
        is_network: is_dumbbell && has_super_packets(scenario),
        seed,
    };
    Path::start(near, far, ways).map_err(context("cannot start the emulator"))
}

/// One-way delay of the whole path.
fn delay_ns(scenario: &Scenario) -> u64 {
    let own = scenario.topology.delays.first().map_or(0, |delay| delay.value.as_nanos());
    scenario.link.delay().as_nanos() + own
}

/// One direction of a wire, as disciplines one behind the other.
fn wire(faults: &FaultSpec, delay_ns: u64) -> Vec<String> {
    const LIMIT: &str = "netem limit 1000000";
    // A scenario's jitter delays by up to its value; netem's goes both ways.
    let half_ns = faults.jitter.as_ref().map_or(0, |jitter| jitter.value.as_nanos() / 2);
    let mut wire = format!("{LIMIT} delay {}ns", delay_ns + half_ns);
    if half_ns > 0 {
        wire.push_str(&format!(" {half_ns}ns"));
    }
    for (word, share) in [("loss", faults.loss), ("duplicate", faults.duplicate), ("corrupt", faults.corrupt)]
    {
        if share > 0.0 {
            wire.push_str(&format!(" {word} {}%", share * 100.0));
        }
    }
    if faults.in_order {
        // With a rate, no packet overtakes another; at this one, a packet takes 12 ns.
        wire.push_str(" rate 1tbit");
    }
    // netem has one model of losses.
    let bursts = faults.bursts.map(|BurstSpec { p, r, bad, good }| {
        let [p, r, bad, good] = [p, r, bad, good].map(|share| share * 100.0);
        format!("{LIMIT} loss gemodel {p}% {r}% {bad}% {good}%")
    });
    // Packets that are not late skip the delay of the last netem.
    let late = faults.reorder_delay.as_ref().filter(|_| faults.reorder > 0.0);
    let late = late.map(|by| {
        format!("{LIMIT} delay {}ns reorder {}%", by.value.as_nanos(), (1.0 - faults.reorder) * 100.0)
    });
    bursts.into_iter().chain([wire]).chain(late).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_in_netems_words() {
        let wire = |text: &str| wire(&toml::from_str(text).unwrap(), 5_000_000);
        assert_eq!(wire(""), ["netem limit 1000000 delay 5000000ns"]);
        assert_eq!(
            wire("loss = 0.25\njitter = \"4ms\"\nin-order = true"),
            ["netem limit 1000000 delay 7000000ns 2000000ns loss 25% rate 1tbit"]
        );
        assert_eq!(
            wire("reorder = 0.25\nreorder-delay = \"5ms\""),
            ["netem limit 1000000 delay 5000000ns", "netem limit 1000000 delay 5000000ns reorder 75%"]
        );
        assert_eq!(
            wire("bursts = { p = 0.125, r = 0.5 }\nduplicate = 0.5"),
            [
                "netem limit 1000000 loss gemodel 12.5% 50% 100% 0%",
                "netem limit 1000000 delay 5000000ns duplicate 50%"
            ]
        );
        for text in wire("bursts = { p = 0.0001, r = 0.1 }\nin-order = true") {
            assert!(text.parse::<QdiscSpec>().is_ok(), "{text}");
        }
    }
}
