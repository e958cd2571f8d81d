//! The links of the comparison: one with taut at one end, and one with the kernel at both ends.
//!
//! ```text
//!   this process    │ namespace "peer"        namespace "left"  │  namespace "right"
//!   taut ──────── TUN ── kernel               kernel ────────── veth ─────── kernel
//!   10.9.0.2, fd09::2    10.9.0.1, fd09::1    10.8.0.2, fd08::2      10.8.0.1, fd08::1
//! ```
//!
//! Without a TUN, taut is at both ends of an in-process link; without namespaces, the kernel talks to itself
//! over its loopback interface. The links are those of `taut-testbed`. Called by `mod.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use taut::observe::RecordHandle;
use taut_core::{LinkCaps, StackConfig};
use taut_device::{Cidr, TunOptions};
use taut_testbed::{Subnet, allow_namespaces};

use crate::args::control::ControlArgs;
use crate::args::priority::PriorityArgs;
use crate::args::record::RecordArgs;
use crate::args::shards::queues;
use crate::compare::transport::{Kernel, Taut};
use crate::stack;

/// The link with taut.
const MEASURED: Subnet = Subnet(9);
/// The link to compare with.
const BASELINE: Subnet = Subnet(8);
/// The port of every peer in a namespace of its own.
const PORT: u16 = 7000;
/// Both links have Ethernet's MTU.
const MTU: u16 = 1500;
/// The most bytes that the in-process link holds.
const PIPE_LIMIT_BYTES: usize = 1 << 20;

/// Two ends of a link, each with one address of each family.
#[derive(Debug)]
pub(crate) struct Pair<A, B> {
    /// The end that is measured.
    pub near: A,
    /// Its peer.
    pub far: B,
    /// Addresses of [`Pair::near`]: IPv4, then IPv6 if it is supported.
    pub near_addresses: Vec<IpAddr>,
    /// Addresses of [`Pair::far`], in the same order.
    pub far_addresses: Vec<IpAddr>,
    /// The port of both ends' peers; 0 for any free port.
    pub port: u16,
    /// A description of the link.
    pub name: &'static str,
}

/// The link with taut.
pub(crate) enum Measured {
    /// To the kernel's TCP, over a TUN.
    Tun(Pair<Taut, Kernel>),
    /// To itself.
    InProcess(Pair<Taut, Taut>),
}

/// Both links, and a list of what this machine lacks.
pub(crate) struct Arena {
    /// The link with taut.
    pub measured: Measured,
    /// The link to compare with.
    pub baseline: Pair<Kernel, Kernel>,
    /// What is missing, for the user.
    pub missing: Vec<String>,
}

impl Arena {
    /// Sets up the best links that this machine allows. Call it before the process has a second thread.
    /// The kernel's sockets have the congestion control `theirs`.
    ///
    /// # Errors
    /// When the kernel has no such congestion control, or when not even the in-process link can be made.
    pub(crate) fn new(
        in_process: bool,
        shards: u16,
        config: &StackConfig,
        theirs: &str,
        priority: PriorityArgs,
        (record, control): (&RecordArgs, &ControlArgs),
    ) -> anyhow::Result<Self> {
        let mut missing = Vec::new();
        let namespaces = allow_namespaces();
        // Asked in a namespace if there are any, as root of it may have more than its user.
        let trial = namespaces.is_ok().then(taut_testbed::Kernel::new).transpose()?;
        Kernel::new(trial, theirs).map_err(|error| refused(theirs, &error))?;
        if !Subnet::has_ipv6() {
            missing.push("the kernel does not support IPv6, so only IPv4 is measured".to_owned());
        }
        let tun = match &namespaces {
            _ if in_process => Err(None),
            Err(error) => Err(Some(format!("no private network namespace: {error:#}"))),
            Ok(()) => over_tun(shards, config, theirs, priority, (record, control))
                .map_err(|error| Some(format!("no TUN: {error:#}"))),
        };
        let measured = match tun {
            Ok(pair) => Measured::Tun(pair),
            Err(why) => {
                missing.extend(why.map(|why| {
                    format!(
                        "{why}; so taut runs against itself over an in-process link, not against the kernel"
                    )
                }));
                let pair = over_pipe(config, priority, (record, control));
                Measured::InProcess(pair.context("cannot make an in-process link")?)
            }
        };
        let baseline = match namespaces.and_then(|()| over_veth(theirs)) {
            Ok(pair) => pair,
            Err(error) => {
                missing.push(format!("no veth: {error:#}; so the kernel is measured over its loopback"));
                loopback(theirs)?
            }
        };
        Ok(Self { measured, baseline, missing })
    }
}

/// Why the kernel's sockets cannot have a congestion control, and which they can.
fn refused(name: &str, error: &io::Error) -> anyhow::Error {
    let has = taut_testbed::available_congestion().unwrap_or_default().join(", ");
    let why = match error.kind() {
        io::ErrorKind::NotFound => String::new(),
        _ => format!(": {error}"),
    };
    anyhow::anyhow!(
        "the kernel's sockets cannot use the congestion control {name}{why}; the kernel has {has}. Choose one of these \
         for both sides with --congestion, or for the kernel's side alone with --kernel-congestion"
    )
}

impl Measured {
    /// Stacks of taut.
    pub(crate) fn stacks(&self) -> usize {
        match self {
            Self::Tun(_) => 1,
            Self::InProcess(_) => 2,
        }
    }

    /// A description of the link.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Tun(pair) => pair.name,
            Self::InProcess(pair) => pair.name,
        }
    }

    /// The recordings of the near stack.
    pub(crate) fn recordings(&self) -> Vec<RecordHandle> {
        let (Self::Tun(Pair { near, .. }) | Self::InProcess(Pair { near, .. })) = self;
        near.0.recording_handles()
    }

    /// The files of the stacks' control sockets.
    pub(crate) fn control_sockets(&self) -> Vec<PathBuf> {
        let stacks = match self {
            Self::Tun(pair) => vec![&pair.near.0],
            Self::InProcess(pair) => vec![&pair.near.0, &pair.far.0],
        };
        stacks.into_iter().filter_map(|stack| stack.control_path()).map(Path::to_owned).collect()
    }
}

fn bare(cidrs: &[Cidr]) -> Vec<IpAddr> {
    cidrs.iter().map(|cidr| cidr.address()).collect()
}

/// A pair whose ends have the addresses of a subnet.
fn pair<A, B>(near: A, far: B, subnet: Subnet, name: &'static str) -> Pair<A, B> {
    let (near_addresses, far_addresses) = (bare(&subnet.near()), bare(&subnet.far()));
    Pair { near, far, near_addresses, far_addresses, port: PORT, name }
}

fn over_tun(
    shards: u16,
    config: &StackConfig,
    theirs: &str,
    priority: PriorityArgs,
    (record, control): (&RecordArgs, &ControlArgs),
) -> anyhow::Result<Pair<Taut, Kernel>> {
    let peer = taut_testbed::Kernel::new()?;
    let options = TunOptions { mtu: MTU, multi_queue: shards > 1, ..TunOptions::default() };
    let tun = peer.tun(&MEASURED.far(), &options)?;
    let queues = peer.enter(|| queues(tun, shards))??;
    let stack = stack::on_tun(queues, config.clone(), &MEASURED.near(), priority, record, control)?;
    Ok(pair(Taut(stack), Kernel::new(Some(peer), theirs)?, MEASURED, "taut to kernel over TUN"))
}

fn over_pipe(
    config: &StackConfig,
    priority: PriorityArgs,
    (record, control): (&RecordArgs, &ControlArgs),
) -> io::Result<Pair<Taut, Taut>> {
    let (here, there) = taut_device::pipe(LinkCaps::offloading(MTU), PIPE_LIMIT_BYTES)?;
    let near = Taut(stack::on_pipe(here, config.clone(), &MEASURED.near(), priority, record, control)?);
    // The recording is of the near one.
    let (none, control) = (RecordArgs::default(), control.for_another());
    let far = Taut(stack::on_pipe(there, config.clone(), &MEASURED.far(), priority, &none, &control)?);
    Ok(pair(near, far, MEASURED, "taut to taut, in-process"))
}

fn over_veth(theirs: &str) -> io::Result<Pair<Kernel, Kernel>> {
    let (near, far) = (taut_testbed::Kernel::new()?, taut_testbed::Kernel::new()?);
    near.veth(&far, BASELINE, MTU)?;
    let (near, far) = (Kernel::new(Some(near), theirs)?, Kernel::new(Some(far), theirs)?);
    Ok(pair(near, far, BASELINE, "kernel to kernel over veth"))
}

fn loopback(theirs: &str) -> io::Result<Pair<Kernel, Kernel>> {
    let both = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    let both: Vec<IpAddr> = both.into_iter().take(if Subnet::has_ipv6() { 2 } else { 1 }).collect();
    Ok(Pair {
        near: Kernel::new(None, theirs)?,
        far: Kernel::new(None, theirs)?,
        near_addresses: both.clone(),
        far_addresses: both,
        port: 0,
        name: "kernel to itself over loopback",
    })
}
