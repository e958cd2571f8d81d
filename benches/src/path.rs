//! A path with a rate, a delay and a queue, from taut or from the kernel to the kernel: emulated, in namespaces of its own, or
//! the shortest that this machine has.
//!
//! ```text
//!   taut ── in-process link ─┐
//!                            ├─ emulator: queue, rate, delay ── TUN ── kernel, namespace `far`
//!   kernel `near` ── TUN ────┘
//!   taut ── TUN ── kernel, or kernel ── veth ── kernel            (no rate: tens of microseconds)
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use taut::{Stack, StackBuilder};
use taut_core::LinkCaps;
use taut_device::TunOptions;
use taut_link::QdiscSpec;
use taut_testbed::{Emulator, Kernel, Port, Subnet, Watcher, Ways};

use crate::net::MTU;

/// Addresses of both ends.
pub const NET: Subnet = Subnet(9);
/// Bytes of the in-process link, which the emulator empties at once.
const PIPE_BYTES: usize = 4 << 20;
/// Ethernet's bytes around a packet; they take time on a wire.
const ETHERNET_BYTES: u64 = 38;

/// How much waits at a bottleneck before it drops.
#[derive(Clone, Copy, Debug)]
pub enum Queue {
    /// So many bandwidth-delay products.
    Bdp(f64),
    /// So many bytes.
    Bytes(u32),
}

/// A path.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The bottleneck, in Mbit/s, and its queue; `None` is the shortest path of the machine.
    pub bottleneck: Option<(u64, Queue)>,
    /// Round-trip time of the emulated path when nothing waits.
    pub rtt: Duration,
}

/// The path from taut.
pub struct FromTaut {
    pub stack: Stack,
    pub far: Kernel,
    _emulator: Option<Emulator>,
}

/// The path from the kernel.
pub struct FromKernel {
    pub near: Kernel,
    pub far: Kernel,
    _emulator: Option<Emulator>,
}

impl Path {
    /// The queues of both directions.
    fn ways(&self, mbit: u64, queue: Queue) -> Result<Ways> {
        let bytes_per_second = mbit * 125_000;
        let queue = match queue {
            Queue::Bytes(bytes) => format!("bfifo limit {bytes}"),
            Queue::Bdp(share) => {
                let packets = share * self.rtt.as_secs_f64() * bytes_per_second as f64
                    / (u64::from(MTU) + ETHERNET_BYTES) as f64;
                format!("pfifo limit {}", packets.round().max(2.0))
            }
        };
        let delay = self.rtt.as_nanos() / 2;
        let parse = |text: String| text.parse::<QdiscSpec>().with_context(|| text.clone());
        let line = || parse(format!("tbf rate {mbit}mbit burst 1 | {queue}"));
        let wire = || parse(format!("netem limit 1000000 delay {delay}ns"));
        Ok(Ways {
            there: vec![line()?, wire()?],
            back: vec![line()?, wire()?],
            is_network: true,
            seed: 1,
            ..Ways::default()
        })
    }

    fn watchers() -> [Watcher; 2] {
        [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))]
    }

    /// Builds it with taut at its near end, at [`Subnet::near_v4`].
    pub fn from_taut(&self, configure: impl FnOnce(StackBuilder) -> StackBuilder + Send) -> Result<FromTaut> {
        let far = Kernel::new()?;
        let tun = far.tun(&NET.far(), &TunOptions { mtu: MTU, ..TunOptions::default() })?;
        let (device, emulator): (taut_driver::Device, _) = match self.bottleneck {
            None => (tun.into(), None),
            Some((mbit, queue)) => {
                let (near, end) = taut_device::pipe(LinkCaps::offloading(MTU), PIPE_BYTES)?;
                let ways = self.ways(mbit, queue)?;
                let emulator = Emulator::start(Port::Pipe(end), Port::Tun(tun), ways, Self::watchers())?;
                (near.into(), Some(emulator))
            }
        };
        let mut builder = configure(Stack::builder().device(device));
        for address in NET.near() {
            builder = builder.address(&address.to_string());
        }
        Ok(FromTaut { stack: builder.build()?, far, _emulator: emulator })
    }

    /// Builds it with the kernel at its near end, at [`Subnet::near_v4`].
    pub fn from_kernel(&self) -> Result<FromKernel> {
        let (near, far) = (Kernel::new()?, Kernel::new()?);
        let Some((mbit, queue)) = self.bottleneck else {
            near.veth(&far, NET, MTU)?;
            return Ok(FromKernel { near, far, _emulator: None });
        };
        let tun = |kernel: &Kernel, addresses: &[_]| {
            kernel.tun(addresses, &TunOptions { mtu: MTU, ..TunOptions::default() }).map(Port::Tun)
        };
        let (a, b) = (tun(&near, &NET.near())?, tun(&far, &NET.far())?);
        let emulator = Emulator::start(a, b, self.ways(mbit, queue)?, Self::watchers())?;
        Ok(FromKernel { near, far, _emulator: Some(emulator) })
    }
}

/// Keeps all processors busy until the process ends, at the priority of everything else.
pub fn keep_busy() -> Result<()> {
    for _ in 0..std::thread::available_parallelism()?.get() {
        std::thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
    }
    Ok(())
}
