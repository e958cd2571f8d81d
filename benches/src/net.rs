//! The links of the benchmarks, which are the testbed's, all with the same addresses; and waiting for a
//! packet, as every loop does.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_core::LinkCaps;
use taut_device::{Tun, TunOptions};
use taut_testbed::{Kernel, Subnet};

const NET: Subnet = Subnet(7);
/// The kernel peer's address.
pub const PEER: Ipv4Addr = NET.far_v4();
/// The measured stack's address.
pub const LOCAL: Ipv4Addr = NET.near_v4();
/// The port of the side that listens.
pub const PORT: u16 = 5001;
/// The MTU of every link.
pub const MTU: u16 = 1500;

/// A link: the measured stack's end, and where the kernel peer lives.
pub struct Link {
    pub near: Near,
    pub peer: Kernel,
}

/// What a measured stack runs on.
pub enum Near {
    /// The kernel itself, at [`LOCAL`].
    Kernel(Kernel),
    /// A TUN, whose holder is [`LOCAL`].
    Tun(Tun),
}

impl Link {
    /// Two namespaces joined by a pair of Ethernet interfaces.
    pub fn veth() -> Result<Self> {
        let (near, peer) = (Kernel::new()?, Kernel::new()?);
        near.veth(&peer, NET, MTU)?;
        Ok(Self { near: Near::Kernel(near), peer })
    }

    /// A TUN with super-packets in both directions. Its queue holds more than a window of several megabytes:
    /// a drop would measure loss recovery instead of speed.
    pub fn tun() -> Result<Self> {
        let (tun, peer) = tun(1)?;
        Ok(Self { near: Near::Tun(tun), peer })
    }
}

/// Two namespaces joined by a pair of Ethernet interfaces, `veth0` in both. The near one has no address: a
/// stack has it.
pub fn ethernet() -> Result<(Kernel, Kernel)> {
    let (near, peer) = (Kernel::new()?, Kernel::new()?);
    let (here, there) = near.namespace.connect("veth0", &peer.namespace, "veth0")?;
    for interface in [&here, &there] {
        interface.set_mtu(MTU.into())?;
        interface.set_up()?;
    }
    ensure!(there.wait_until_running(Duration::from_secs(5))?, "the pair of interfaces does not come up");
    NET.far().into_iter().try_for_each(|address| there.add_address(address))?;
    Ok((near, peer))
}

fn tun(queues: u16) -> Result<(Tun, Kernel)> {
    let peer = Kernel::new()?;
    let options = TunOptions { mtu: MTU, multi_queue: queues > 1, ..TunOptions::default() };
    let tun = peer.tun(&NET.far(), &options)?;
    // Whether it also cuts UDP makes no difference here.
    let caps = LinkCaps { udp_segments: false, ..tun.caps() };
    ensure!(caps == LinkCaps::offloading(MTU), "this kernel's TUN has no offload");
    Ok((tun, peer))
}

/// The TUN of [`Link::tun`] with so many queues.
pub fn tun_queues(count: u16) -> Result<(Vec<Tun>, Kernel)> {
    let (tun, peer) = tun(count)?;
    let mut queues = vec![tun];
    for _ in 1..count {
        let queue = peer.enter(|| queues[0].open_queue())??;
        queues.push(queue);
    }
    Ok((queues, peer))
}

/// Waits until `fd` is readable or the timeout is over; `None` waits 100 ms, so that the caller notices a
/// stop.
pub fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) {
    wait(fd, PollFlags::IN, timeout.unwrap_or(Duration::MAX).min(Duration::from_millis(100)));
}

/// Waits for an event; returns whether it came.
pub fn wait(fd: impl AsFd, event: PollFlags, longest: Duration) -> bool {
    let span = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
    poll(&mut [PollFd::new(&fd, event)], Some(&span)).is_ok_and(|ready| ready > 0)
}
