//! Costs: bulk, request and response, and connections, by the kernel's sockets, by taut's, and by
//! packets made by hand over the same kind of TUN, which is the limit there. Called by `mod.rs`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use taut_core::congestion::Registry;
use taut_device::TunOptions;
use taut_testbed::{ByHand, Subnet};

use super::part::{Bar, Bars, Part};
use super::{least, smoltcp};
use crate::args::congestion::CongestionArgs;
use crate::args::control::ControlArgs;
use crate::args::priority::PriorityArgs;
use crate::args::record::RecordArgs;
use crate::compare::arena::{Arena, Measured};
use crate::compare::report::median;
use crate::compare::spawn_peer;
use crate::compare::transport::{Kernel, Transport};
use crate::compare::workload::{self, Bulk, Payload};
use crate::shared::text;

/// Bytes of a verified transfer.
const PAYLOAD_BYTES: usize = 64 << 20;
/// Each sender, in turns.
const ROUNDS: usize = 3;
/// The link of the packets made by hand.
const BY_HAND: Subnet = Subnet(7);
const PORT: u16 = 7000;
/// The columns of [`Found`]: what, unit, whether less is better.
const ROWS: [(&str, &str, bool); 6] = [
    ("upload", "Gbit/s", false),
    ("upload, processor time of both ends", "s/GB", true),
    ("download", "Gbit/s", false),
    ("download, processor time of both ends", "s/GB", true),
    ("1-byte request and response, median", "µs", true),
    ("connections opened and closed", "per s", false),
];

/// The values of one sender, in the order of [`ROWS`].
type Found = [f64; ROWS.len()];

/// Rate, and processor time a byte.
fn of(bulk: Bulk) -> [f64; 2] {
    let used = bulk.processor.as_secs_f64() / bulk.bytes as f64 * 1e9;
    [text::bits_per_second(bulk.bytes, bulk.time) / 1e9, used]
}

/// One round of a sender with sockets.
fn sockets<T: Transport>(near: &T, to: SocketAddr, payload: &Payload, time: Duration) -> io::Result<Found> {
    let [up, up_cpu] = near.within(|| workload::upload(near, to, payload, false, time))?.map(of)?;
    let [down, down_cpu] = near.within(|| workload::download(near, to, payload, time))?.map(of)?;
    let exchange = near.within(|| workload::latency(near, to, time))??;
    let (count, took) = workload::connections(near, to, time)?;
    let p50 = exchange.value_at_quantile(0.5) as f64 / 1e3;
    Ok([up, up_cpu, down, down_cpu, p50, count as f64 / took.as_secs_f64()])
}

/// One round of packets made by hand.
fn by_hand(link: &ByHand, payload: &Payload, time: Duration) -> io::Result<Found> {
    let [up, up_cpu] = least::upload(link, payload, time).map(of)?;
    let [down, down_cpu] = least::download(link, payload, time).map(of)?;
    let p50 = least::latency(link, time)?.value_at_quantile(0.5) as f64 / 1e3;
    let (count, took) = least::connections(link, time)?;
    Ok([up, up_cpu, down, down_cpu, p50, count as f64 / took.as_secs_f64()])
}

/// Opens the TUN for packets made by hand, with a peer of the kernel behind it.
fn link(congestion: &str, payload: &Arc<Payload>) -> anyhow::Result<ByHand> {
    let kernel = taut_testbed::Kernel::new()?;
    let tun = kernel.tun(&BY_HAND.far(), &TunOptions { mtu: 1_500, ..TunOptions::default() })?;
    let peer = Kernel::new(Some(kernel), congestion)?;
    let far = spawn_peer(&peer, SocketAddr::new(BY_HAND.far()[0].address(), PORT), payload)?;
    Ok(ByHand { tun, near: BY_HAND.near()[0].address(), far })
}

/// The part; `time` is that of one measurement.
pub(super) fn cost(time: Duration, bar: &ProgressBar) -> anyhow::Result<Part> {
    let config = CongestionArgs::default().config(&Registry::default())?;
    let algorithm = config.congestion.control.name();
    let mut part = Part::new(
        "cost",
        "What it costs",
        format!(
            "The kernel over veth and taut over a TUN, both with {algorithm}, and packets made by hand over a TUN,\n\
             without a stack: the limit there. MTU 1500; client and peer are in this process. smoltcp takes\n\
             part where `make bench` has built it."
        ),
    );
    let payload = Arc::new(Payload::new(PAYLOAD_BYTES, 1));
    let control = ControlArgs { control: Some("none".into()), ..ControlArgs::default() };
    let observed = (&RecordArgs::default(), &control);
    let arena = Arena::new(false, 1, &config, algorithm, PriorityArgs::default(), observed)?;
    let Measured::Tun(taut) = arena.measured else {
        part.missing.push(format!("{}. Run it as root.", arena.missing.join("; ")));
        return Ok(part);
    };
    let kernel = arena.baseline;
    let [taut_peer, kernel_peer] =
        [(&taut.far, taut.far_addresses[0]), (&kernel.far, kernel.far_addresses[0])]
            .map(|(far, address)| spawn_peer(far, SocketAddr::new(address, PORT), &payload));
    let (taut_peer, kernel_peer) = (taut_peer?, kernel_peer?);
    let link = link(algorithm, &payload)?;
    let mut rounds: [Vec<Found>; 3] = Default::default();
    for _ in 0..ROUNDS {
        bar.set_message("kernel");
        rounds[0].push(sockets(&kernel.near, kernel_peer, &payload, time)?);
        bar.set_message("taut");
        rounds[1].push(sockets(&taut.near, taut_peer, &payload, time)?);
        bar.set_message("packets made by hand");
        rounds[2].push(by_hand(&link, &payload, time)?);
        bar.inc(1);
    }
    for (row, (what, unit, less_is_better)) in ROWS.into_iter().enumerate() {
        let value = |sender: &Vec<Found>| median(&sender.iter().map(|found| found[row]).collect::<Vec<_>>());
        let [kernel, taut, limit] = rounds.each_ref().map(value);
        let share = if less_is_better { limit / taut } else { taut / limit };
        let values = [
            ("kernel".to_owned(), kernel),
            (format!("taut, {share:.2} of limit"), taut),
            ("limit of a TUN".to_owned(), limit),
        ];
        let values = values.into_iter().map(|(who, value)| Bar { who, value }).collect();
        part.bars.push(Bars { what, unit, less_is_better, values });
    }
    if smoltcp::is_built() {
        bar.set_message("smoltcp");
        part.bars.extend(smoltcp::beside(time)?);
    }
    Ok(part)
}
