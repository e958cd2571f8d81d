//! Guests of `taut gateway`: `--qemu`, `--vfkit`, `--passt`, a network for virtual machines at a Unix socket;
//! and further namespaces of the command of `--run`. Called by `gateway.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use taut::StackBuilder;
use taut::device::packet::Mac;
use taut::device::sys::inherited;
use taut::device::{CaptureFile, Cidr, FixedLease, Refused, SearchDomains};
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
    /// Serve VMs at this socket: QEMU -netdev stream,addr.type=unix
    #[arg(long, value_name = "SOCKET", group = "way-in")]
    qemu: Option<PathBuf>,
    /// Serve a VM at this datagram socket: vfkit, krunkit, QEMU dgram
    #[arg(long, value_name = "SOCKET", group = "way-in")]
    vfkit: Option<PathBuf>,
    /// As --qemu, for clients of passt: libkrun, libvirt; or fd:N
    #[arg(long, value_name = "SOCKET", group = "way-in")]
    passt: Option<PathBuf>,
    /// Address, and name, that DHCP gives the VM with this MAC
    #[arg(long, value_name = "MAC=ADDRESS[,NAME]", value_parser = fixed_lease)]
    lease: Vec<FixedLease>,
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
        is_one_off: bool,
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
            if !self.lease.is_empty() {
                bail!("--lease is for --qemu, --vfkit and --passt");
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
        let fixed = self.fixed(addresses)?;
        let network = MachineNetwork { addresses: addresses.to_vec(), mtu, search, fixed, capture: None };
        let number = self.passt.as_ref().and_then(|place| place.to_str()?.strip_prefix("fd:"));
        let machines = match number {
            Some(number) => connected(number).with_context(|| format!("--passt fd:{number}"))?,
            None if is_one_off => Machines::listen_once(path)?,
            None => Machines::listen(plug, path)?,
        };
        let text = format!("waiting for virtual machines at {}", path.display());
        log::notice(Level::Info, "waiting", &text);
        Ok(Some(Plugged { machines, network }))
    }
}

impl MachineArgs {
    /// The leases that are given by station, within the network of `--guest`.
    fn fixed(&self, addresses: &[(Cidr, Cidr)]) -> anyhow::Result<Vec<FixedLease>> {
        for (number, lease) in self.lease.iter().enumerate() {
            let FixedLease { station, address, name } = lease;
            let v4 = addresses.iter().find(|(guest, _)| guest.address().is_ipv4());
            let (guest, own) = v4.context("--lease gives an address of IPv4: add one by --guest")?;
            let is_inside = Cidr::new((*address).into(), guest.prefix()).is_some_and(|lease| {
                lease.network() == guest.network() && lease.address() != lease.network().address()
            });
            if !is_inside || own.address() == *address {
                bail!("--lease {station}={address}: choose another address of {}", guest.network());
            }
            let is_same = |other: &FixedLease| {
                other.station == *station
                    || other.address == *address
                    || name.is_some() && other.name.as_ref() == name.as_ref()
            };
            if self.lease[..number].iter().any(is_same) {
                bail!("--lease {station}={address}: its MAC, address or name is in another --lease");
            }
        }
        Ok(self.lease.clone())
    }
}

/// `MAC=ADDRESS`, `MAC=ADDRESS,NAME`.
fn fixed_lease(text: &str) -> Result<FixedLease, String> {
    let example = "52:54:00:12:34:57=10.0.2.20,web";
    let (station, rest) = text.split_once('=').ok_or_else(|| format!("write {example}"))?;
    let (address, name) = rest.split_once(',').map_or((rest, None), |(address, name)| (address, Some(name)));
    let lease = FixedLease {
        station: station.parse::<Mac>().map_err(|error| format!("{station}: {error}"))?,
        address: address.parse().map_err(|_| format!("{address} is no address; write {example}"))?,
        name: name.map(str::to_ascii_lowercase),
    };
    if !lease.station.is_station() {
        return Err(format!("{station} is not the MAC of one machine"));
    }
    let is_name = |name: &String| FixedLease::is_name(name);
    if !lease.name.as_ref().is_none_or(is_name) {
        return Err(format!("{rest}: a name has letters, digits and hyphens, such as web"));
    }
    Ok(lease)
}

/// A machine at a stream that this program has inherited.
fn connected(number: &str) -> anyhow::Result<Machines> {
    let number =
        number.parse().ok().filter(|number| *number >= 0).context("it is not a descriptor's number")?;
    Ok(Machines::connected(inherited(number)?)?)
}

impl Plugged {
    /// Records what passes between machines and the gateway.
    pub(crate) fn record(&mut self, capture: Option<CaptureFile>) {
        self.network.capture = capture;
    }

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
            say(Level::Info, "machine-gone", &format!("a virtual machine is gone ({why})"));
        }
        MachineEvent::Ended(why) => {
            say(Level::Info, "machine-gone", &format!("the virtual machine is gone ({why})"));
        }
        MachineEvent::TurnedAway => say(
            Level::Warn,
            "machine-refused",
            "another virtual machine was turned away: 16 are there; start another gateway for it",
        ),
        MachineEvent::Refused(what) => {
            let sentence = match what {
                Refused::Station(station) => format!(
                    "two virtual machines have the MAC {station}, and the second one is not served: give it its \
                     own, with QEMU -device virtio-net-pci,netdev=n,mac=52:54:00:12:34:57"
                ),
                Refused::Address(address) => format!(
                    "a virtual machine has sent from {address}, which is another one's or the gateway's: let it \
                     use DHCP"
                ),
                Refused::Other => return,
            };
            say(Level::Warn, "machine-conflict", &sentence);
        }
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
