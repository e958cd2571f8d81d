//! Guests of `taut gateway`: `--qemu`, `--vfkit`, `--passt`, a network for virtual machines at a Unix socket;
//! and further namespaces of the command of `--run`. Called by `gateway.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use taut::StackBuilder;
use taut::device::{Cidr, SearchDomains};
use taut_gateway::inside::MAX_MTU;
use taut_gateway::{
    ClientAddress, Live, MachineEvent, MachineLog, MachineNetwork, Machines, VmSocket, WayOut,
};

use crate::net::gateway_log::say;
use crate::shared::log::{self, Level};

/// Namespaces of a command besides its network.
#[derive(Args, Debug)]
#[command(next_help_heading = "Guest")]
pub(crate) struct RunArgs {
    /// With --run: processes, IPC, host name, /proc, /sys of its own
    #[arg(long, requires = "run")]
    pub isolate: bool,
    /// With --run: keep your user and group, instead of root
    #[arg(long, requires = "run")]
    pub keep_user: bool,
}

/// Virtual machines as guests.
#[derive(Args, Debug)]
#[command(next_help_heading = "Guest")]
pub(crate) struct MachineArgs {
    /// Serve a VM at this socket: QEMU -netdev stream,addr.type=unix
    #[arg(long, value_name = "SOCKET", group = "way-in")]
    qemu: Option<PathBuf>,
    /// Serve a VM at this datagram socket: vfkit, krunkit, QEMU dgram
    #[arg(long, value_name = "SOCKET", group = "way-in")]
    vfkit: Option<PathBuf>,
    /// As --qemu, for clients of passt: libkrun, libvirt
    #[arg(long, value_name = "SOCKET", group = "way-in")]
    passt: Option<PathBuf>,
    /// DNS search domain; repeatable [default with --run: the host's]
    #[arg(long, value_name = "DOMAIN")]
    pub search: Vec<String>,
}

/// The MTU of a datagram socket: what vfkit's card has.
const DATAGRAM_MTU: u16 = 1_500;
/// Bits that a machine adds to a prefix of IPv6 by itself (RFC 4862, RFC 2464 §4).
const SLAAC_PREFIX: u8 = 64;

/// The socket, before a machine is there.
pub(crate) struct Plugged {
    machines: Machines,
    network: MachineNetwork,
}

impl MachineArgs {
    fn place(&self) -> Option<(VmSocket, &PathBuf)> {
        let stream = self.qemu.as_ref().or(self.passt.as_ref()).map(|path| (VmSocket::Stream, path));
        stream.or_else(|| self.vfkit.as_ref().map(|path| (VmSocket::Datagrams, path)))
    }

    /// Whether machines are at paths of their own, to which the gateway's socket connects.
    pub(crate) const fn has_paths(&self) -> bool {
        self.vfkit.is_some()
    }

    /// The MTU if none is given.
    pub(crate) fn default_mtu(&self) -> u16 {
        if self.vfkit.is_some() { DATAGRAM_MTU } else { MAX_MTU }
    }

    /// Makes the socket; `None` if the guest is not a virtual machine.
    ///
    /// # Errors
    /// The reason, with the place.
    pub(crate) fn plug(
        &self,
        addresses: &[(Cidr, Cidr)],
        mtu: u16,
        is_run: bool,
    ) -> anyhow::Result<Option<Plugged>> {
        let mut search = SearchDomains::default();
        for name in &self.search {
            search.push(name).with_context(|| format!("--search {name}"))?;
        }
        let Some((plug, path)) = self.place() else {
            if !self.search.is_empty() && !is_run {
                bail!(
                    "--search is for --run, --qemu, --vfkit and --passt; other guests have a resolv.conf of their \
                     own: add `search {}` there",
                    self.search.join(" ")
                );
            }
            return Ok(None);
        };
        for (guest, _) in addresses {
            if guest.address().is_ipv6() && guest.prefix() != SLAAC_PREFIX {
                bail!(
                    "--guest {guest}: a virtual machine makes its address of a prefix of {SLAAC_PREFIX} bits; write \
                     {}/{SLAAC_PREFIX}",
                    guest.address()
                );
            }
        }
        let network = MachineNetwork { addresses: addresses.to_vec(), mtu, search };
        let machines = Machines::listen(plug, path)?;
        let text = format!("waiting for a virtual machine at {}", path.display());
        log::notice(Level::Info, "waiting", &text);
        Ok(Some(Plugged { machines, network }))
    }
}

impl Plugged {
    /// Serves machines until the gateway ends.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub(crate) async fn serve<W: WayOut>(
        self,
        live: &Live,
        way: Arc<W>,
        builder: impl Fn() -> std::io::Result<StackBuilder>,
    ) -> anyhow::Result<()> {
        let log: MachineLog = Box::new(machine_event);
        Ok(self.machines.serve(live, way, &self.network, builder, &log).await?)
    }
}

fn machine_event(event: &MachineEvent<'_>) {
    match event {
        MachineEvent::Came => say(Level::Info, "machine-came", "a virtual machine is there"),
        MachineEvent::Gone(None) => {
            say(Level::Info, "machine-gone", "the virtual machine is gone; waiting for the next one");
        }
        MachineEvent::Gone(Some(why)) => {
            let sentence = format!("the virtual machine is gone ({why}); waiting for the next one");
            say(Level::Info, "machine-gone", &sentence);
        }
        MachineEvent::TurnedAway => say(
            Level::Warn,
            "machine-refused",
            "another virtual machine was turned away: a gateway has one guest at a time",
        ),
        MachineEvent::Failed(why) => {
            say(Level::Warn, "machine-failed", &format!("the virtual machine cannot be served: {why}"));
        }
    }
}

/// The ways to show a client to a service.
pub(crate) fn shown() -> impl TypedValueParser<Value = ClientAddress> {
    let names = ClientAddress::NAMES;
    PossibleValuesParser::new(names.map(|(name, _)| name)).map(move |given| {
        names.into_iter().find(|(name, _)| *name == given).map_or_else(ClientAddress::default, |(_, how)| how)
    })
}
