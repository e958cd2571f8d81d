//! `--tun`, `--device`, `--address`, `--peer-address`: the link of a command's stack. `auto.rs` has what
//! it learns.
//!
//! Called by `send`, `recv`, `serve` and `get`.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use taut::device::Device;
use taut_device::packet::Mac;
use taut_device::{Cidr, FramesOptions, Interface, Packet, PacketOptions, Tun, TunOptions, Xdp, XdpOptions};
use taut_wireguard::WireGuard;

use crate::args::auto::{self, AutoArgs};
use crate::args::congestion::CongestionArgs;
use crate::args::control::ControlArgs;
use crate::args::device::DeviceArg;
use crate::args::frame_source::FrameSource;
use crate::args::priority::PriorityArgs;
use crate::args::record::RecordArgs;
use crate::args::shards::{queues, shard_count};
use crate::args::tunnel::Tunnel;

/// The device node of TUN.
const TUN_NODE: &str = "/dev/net/tun";

/// RFC 8200 §5.
const IPV6_MTU_MIN: u16 = 1280;

/// An open device.
#[derive(Debug)]
pub(crate) enum Opened {
    /// A TUN, with a queue for each shard.
    Tun(Vec<Tun>),
    /// An Ethernet interface, with a queue for each shard.
    Packet(Vec<Packet>),
    /// A device with one queue, and its name.
    Other(Device, String),
    /// A tunnel.
    WireGuard(WireGuard, Tunnel),
}

/// The link of a stack on an interface of this machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Link")]
pub(crate) struct LinkArgs {
    /// tun, packet:IF, xdp:IF, tap:IF, stream:PATH, dgram:PATH, fd:N or wireguard:FILE
    #[arg(long, alias = "out", default_value = "tun", value_name = "DEVICE")]
    pub device: DeviceArg,
    /// Router for other networks, once per family (Ethernet)
    #[arg(long = "gateway", value_name = "ADDRESS")]
    pub gateways: Vec<IpAddr>,
    /// The stack's Ethernet address [default: the interface's]
    #[arg(long, value_name = "MAC")]
    pub mac: Option<Mac>,
    /// TUN interface, created and configured if missing
    #[arg(long, default_value = "taut0", value_name = "NAME")]
    pub tun: String,
    /// Address of the stack, once per family
    #[arg(long = "address", default_value = "10.9.0.2/24", value_name = "ADDR/PREFIX", value_parser = prefixed,
        default_value_ifs = [("dhcp", "true", None), ("slaac", "true", None)])]
    pub addresses: Vec<Cidr>,
    /// Addresses from the link.
    #[command(flatten)]
    pub auto: AutoArgs,
    /// The kernel's address on the link [default: the first other one]
    #[arg(long = "peer-address", value_name = "ADDRESS")]
    pub peer_addresses: Vec<IpAddr>,
    /// Largest IP packet [default: the interface's, else 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..=65_521))]
    pub mtu: Option<u16>,
    /// Exchange packets of at most the MTU, not super-packets of 64 KB
    #[arg(long)]
    pub no_offload: bool,
    /// Shards, each with a queue and a thread; 0: one per processor
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub shards: u16,
    /// Its threads' priority.
    #[command(flatten)]
    pub priority: PriorityArgs,
    /// The recording of its inputs.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Its congestion control.
    #[command(flatten)]
    pub congestion: CongestionArgs,
    /// Its control socket.
    #[command(flatten)]
    pub control: ControlArgs,
}

/// A [`Cidr`] that includes its prefix length.
fn prefixed(text: &str) -> Result<Cidr, String> {
    let cidr = text.parse::<Cidr>().map_err(|error| error.to_string())?;
    if text.contains('/') {
        Ok(cidr)
    } else {
        Err(format!("the prefix length is missing; write it after a slash, such as {text}/24"))
    }
}

impl LinkArgs {
    /// Opens the device.
    ///
    /// # Errors
    /// The reason, with advice.
    pub(crate) fn open(&self) -> anyhow::Result<Opened> {
        self.check()?;
        match &self.device {
            DeviceArg::Tun => self.open_tun().map(Opened::Tun),
            DeviceArg::Packet(name) => self.open_packet(name).map(Opened::Packet),
            DeviceArg::Xdp(name) => Ok(Opened::Other(self.open_xdp(name)?.into(), name.clone())),
            DeviceArg::Frames(source) => self.open_frames(source),
            DeviceArg::WireGuard(tunnel) => self.open_tunnel(tunnel),
        }
    }

    /// The addresses that the stack is given: those of a tunnel are in its file.
    pub(crate) fn given(&self) -> &[Cidr] {
        match &self.device {
            DeviceArg::WireGuard(tunnel) => &tunnel.config.addresses,
            _ => &self.addresses,
        }
    }

    /// The addresses that the stack was given, and those that it has learnt by now.
    pub(crate) fn own_addresses(&self, stack: &taut::Stack) -> Vec<IpAddr> {
        let mut all: Vec<_> = self.given().iter().map(|own| own.address()).collect();
        let more = auto::learnt(stack).into_iter().filter(|own| !all.contains(own)).collect::<Vec<_>>();
        all.extend(more);
        all
    }

    /// Refuses what an Ethernet interface has already, which is the kernel's to configure.
    fn check_interface(&self, name: &str) -> anyhow::Result<()> {
        if let Some(mtu) = self.mtu {
            bail!("--mtu {mtu}: the MTU is that of {name}; change it with: ip link set dev {name} mtu {mtu}");
        }
        if let Some(peer) = self.peer_addresses.first() {
            bail!("--peer-address {peer} is for a TUN: the kernel needs no address on {name}; leave it out");
        }
        Ok(())
    }

    /// Opens the Ethernet interface, by `AF_XDP`.
    fn open_xdp(&self, name: &str) -> anyhow::Result<Xdp> {
        self.check_interface(name)?;
        if shard_count(self.shards) > 1 {
            bail!("--shards {}: an XDP device has one queue; use one shard", self.shards);
        }
        let options = XdpOptions {
            mac: self.mac,
            gateways: self.gateways.clone(),
            slaac: self.auto.slaac,
            dhcp: self.auto.dhcp,
            ..XdpOptions::default()
        };
        Ok(Xdp::open(name, &self.addresses, &options)?)
    }

    /// Opens the Ethernet interface, by packet sockets.
    fn open_packet(&self, name: &str) -> anyhow::Result<Vec<Packet>> {
        self.check_interface(name)?;
        let options = PacketOptions {
            mac: self.mac,
            gateways: self.gateways.clone(),
            offload: !self.no_offload,
            slaac: self.auto.slaac,
            dhcp: self.auto.dhcp,
            ..PacketOptions::default()
        };
        Ok(Packet::open_queues(name, &self.addresses, &options, shard_count(self.shards).into())?)
    }

    /// Opens a tunnel.
    fn open_tunnel(&self, tunnel: &Tunnel) -> anyhow::Result<Opened> {
        self.auto.refuse("a tunnel")?;
        if shard_count(self.shards) > 1 {
            bail!("--shards {}: a tunnel has one queue; use one shard", self.shards);
        }
        Ok(Opened::WireGuard(tunnel.open(self.mtu)?, tunnel.clone()))
    }

    /// Opens what carries frames over a descriptor.
    fn open_frames(&self, source: &FrameSource) -> anyhow::Result<Opened> {
        if let (Some(peer), false) = (self.peer_addresses.first(), source.is_interface()) {
            bail!(
                "--peer-address {peer} is for an interface: the peer at this socket has its own; leave it out"
            );
        }
        if shard_count(self.shards) > 1 {
            bail!("--shards {}: this device has one queue; use one shard", self.shards);
        }
        let options = FramesOptions {
            mtu: self.mtu.unwrap_or(FramesOptions::default().mtu),
            mac: self.mac,
            gateways: self.gateways.clone(),
            slaac: self.auto.slaac,
            dhcp: self.auto.dhcp,
            vnet_header: (self.no_offload && source.is_interface()).then_some(false),
            ..FramesOptions::default()
        };
        let (device, name) = source.open(&self.addresses, &options)?;
        if let FrameSource::Tap(name) = source {
            let interface = Interface::open(name)?;
            for peer in self.peers()? {
                interface.add_address(peer)?;
            }
        }
        Ok(Opened::Other(device, name))
    }

    /// Opens the TUN, with a queue for each shard; configures it unless it already existed.
    fn open_tun(&self) -> anyhow::Result<Vec<Tun>> {
        let shards = shard_count(self.shards);
        self.auto.refuse("a TUN")?;
        if let Some(gateway) = self.gateways.first() {
            bail!(
                "--gateway {gateway} is for an Ethernet device: a TUN has one neighbour, the kernel; leave it \
                   out, or choose a --device"
            );
        }
        if let Some(mac) = self.mac {
            bail!(
                "--mac {mac} is for an Ethernet device: a TUN has no Ethernet addresses; leave it out, or choose \
                   a --device"
            );
        }
        let peers = self.peers()?;
        let existed = Interface::open(&self.tun).is_ok();
        let mtu = match self.mtu {
            Some(mtu) => Some(mtu),
            None if existed => mtu_of(&self.tun),
            None => Some(TunOptions::default().mtu),
        };
        let options = TunOptions {
            mtu: mtu.unwrap_or(TunOptions::default().mtu),
            multi_queue: shards > 1,
            offload: !self.no_offload,
            configure: !existed,
            ..TunOptions::default()
        };
        let advise = |error| self.advise(error, existed, &peers);
        let tun = Tun::open(&self.tun, &options).map_err(advise)?;
        if mtu.is_none() {
            bail!("cannot read the MTU of {}; give it with --mtu BYTES", self.tun);
        }
        if !existed || !self.peer_addresses.is_empty() {
            let interface = tun.interface()?;
            peers.iter().try_for_each(|&peer| interface.add_address(peer)).map_err(advise)?;
        }
        queues(tun, shards).map_err(advise)
    }

    /// Refuses options that would only fail later, or fail silently.
    fn check(&self) -> anyhow::Result<()> {
        if self.tun.contains('%') {
            bail!("--tun {} is a pattern: give the name of one interface", self.tun);
        }
        for (index, &own) in self.addresses.iter().enumerate() {
            let address = own.address();
            if address.is_loopback() || address.is_multicast() || address.is_unspecified() {
                bail!(
                    "--address {own} is not a host address; use one of a private network, such as 10.9.0.2/24"
                );
            }
            if is_of_the_network(own) {
                bail!("--address {own} is the network or broadcast address; use another one in this network");
            }
            let before = &self.addresses[..index];
            if let Some(other) = before.iter().find(|other| other.address().is_ipv4() == address.is_ipv4()) {
                bail!(
                    "--address {other} and {own} are of the same family; give one for IPv4 and one for IPv6"
                );
            }
        }
        for (index, peer) in self.peer_addresses.iter().enumerate() {
            let before = &self.peer_addresses[..index];
            if let Some(other) = before.iter().find(|other| other.is_ipv4() == peer.is_ipv4()) {
                bail!(
                    "--peer-address {other} and {peer} are of the same family; give one for each --address"
                );
            }
        }
        let v6 = self.addresses.iter().find(|own| own.address().is_ipv6());
        if let (Some(mtu @ ..IPV6_MTU_MIN), Some(own)) = (self.mtu, v6) {
            bail!("--mtu {mtu} is too small for --address {own}: IPv6 requires at least {IPV6_MTU_MIN}");
        }
        Ok(())
    }

    /// Adds advice to the error of an interface that cannot be opened.
    fn advise(&self, error: io::Error, existed: bool, peers: &[Cidr]) -> anyhow::Error {
        match error.kind() {
            io::ErrorKind::PermissionDenied if existed && is_of_another_kind(&self.tun) => anyhow!(
                "{} is not a TUN interface: choose a TUN interface, or a new name to create one",
                self.tun
            ),
            io::ErrorKind::PermissionDenied => {
                let commands = self.preparation(existed, peers).join("\n    ");
                anyhow!(
                    "{error}\n  Run taut as root, or prepare the interface for yourself once:\n    {commands}"
                )
            }
            io::ErrorKind::ResourceBusy => anyhow!(
                "{error}\n  Give this stack its own interface and network: --tun taut1 --address 10.10.0.2/24"
            ),
            _ => error.into(),
        }
    }

    /// The commands by which root lets an ordinary user run a stack on the interface.
    fn preparation(&self, existed: bool, peers: &[Cidr]) -> Vec<String> {
        let tun = &self.tun;
        let is_denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let node = std::fs::OpenOptions::new().read(true).write(true).open(TUN_NODE);
        let mut commands = Vec::new();
        if node.is_err_and(is_denied) {
            commands.push(format!("sudo chmod 666 {TUN_NODE}"));
        }
        if existed {
            commands.push(format!("sudo ip tuntap del dev {tun} mode tun"));
        }
        let queues = if shard_count(self.shards) > 1 { " multi_queue" } else { "" };
        commands.push(format!("sudo ip tuntap add dev {tun} mode tun user $USER{queues}"));
        for peer in peers {
            let at_once = if peer.address().is_ipv6() { " nodad" } else { "" };
            commands.push(format!("sudo ip addr add {peer} dev {tun}{at_once}"));
        }
        let mtu = self.mtu.map_or_else(String::new, |mtu| format!(" mtu {mtu}"));
        let queue = TunOptions::default().txqueuelen;
        commands.push(format!("sudo ip link set dev {tun}{mtu} txqueuelen {queue} up"));
        commands
    }

    /// The kernel's addresses on the link.
    pub(crate) fn peers(&self) -> anyhow::Result<Vec<Cidr>> {
        if let Some(stray) = self.peer_addresses.iter().find(|&&peer| self.network_of(peer).is_none()) {
            bail!(
                "--peer-address {stray} is not in the network of any --address; leave it out, or add one of its network"
            );
        }
        self.addresses
            .iter()
            .map(|&own| {
                let given =
                    self.peer_addresses.iter().find(|&&peer| self.network_of(peer) == Some(own.network()));
                let peer = match given {
                    Some(&peer) => Some(peer),
                    None => first_other(own),
                };
                let Some(peer) = peer else {
                    bail!("--address {own} leaves no address for the kernel's side; use a shorter prefix, such as {}/24", own.address())
                };
                if peer == own.address() {
                    bail!("--peer-address {peer} is the stack's own address; choose another one in its network");
                }
                Cidr::new(peer, own.prefix()).context("the prefix is too long")
            })
            .collect()
    }

    fn network_of(&self, address: IpAddr) -> Option<Cidr> {
        let networks = self.addresses.iter().map(|own| (own.network(), own.prefix()));
        let mut networks = networks.filter(|(network, _)| network.address().is_ipv4() == address.is_ipv4());
        networks
            .find(|&(network, prefix)| {
                Cidr::new(address, prefix).is_some_and(|cidr| cidr.network() == network)
            })
            .map(|(network, _)| network)
    }
}

/// Whether this is the first or last address of an IPv4 network, which belong to no host, except in networks
/// of only two addresses (RFC 3021).
fn is_of_the_network(own: Cidr) -> bool {
    let IpAddr::V4(v4) = own.address() else { return false };
    let hosts = u32::MAX.checked_shr(own.prefix().into()).unwrap_or(0);
    hosts > 1 && [0, hosts].contains(&(v4.to_bits() & hosts))
}

/// The first host address of the network that is not `own`.
fn first_other(own: Cidr) -> Option<IpAddr> {
    let network = own.network();
    // In networks of one and two addresses (RFC 3021, RFC 6164) the first address is a host like any other.
    let first = match network.address() {
        IpAddr::V4(_) if own.prefix() < 31 => 1,
        IpAddr::V6(_) if own.prefix() < 127 => 1,
        _ => 0,
    };
    (first..first + 2)
        .map(|host| match network.address() {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits().wrapping_add(host)).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits().wrapping_add(u128::from(host))).into()),
        })
        .filter(|&other| Cidr::new(other, own.prefix()).is_some_and(|cidr| cidr.network() == network))
        .find(|&other| other != own.address())
}

/// Whether /sys shows that the interface is not a TUN. It may show another network namespace, and then has no
/// such entry.
fn is_of_another_kind(interface: &str) -> bool {
    let directory = Path::new("/sys/class/net").join(interface);
    directory.exists() && !directory.join("tun_flags").exists()
}

/// MTU of an interface in this process's network namespace.
fn mtu_of(interface: &str) -> Option<u16> {
    // /proc/sys/net shows the current namespace, /sys the one in which it was mounted; but /proc/sys/net has
    // the MTU only if IPv6 is supported.
    let paths =
        [format!("/proc/sys/net/ipv6/conf/{interface}/mtu"), format!("/sys/class/net/{interface}/mtu")];
    let text = paths.iter().find_map(|path| std::fs::read_to_string(path).ok());
    text.and_then(|text| text.trim().parse().ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn args(addresses: &[&str], peers: &[&str]) -> LinkArgs {
        LinkArgs {
            device: DeviceArg::Tun,
            gateways: Vec::new(),
            mac: None,
            tun: "taut0".into(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            auto: AutoArgs::default(),
            peer_addresses: peers.iter().map(|text| text.parse().unwrap()).collect(),
            mtu: None,
            no_offload: false,
            shards: 1,
            priority: PriorityArgs::default(),
            record: RecordArgs::default(),
            congestion: CongestionArgs::default(),
            control: ControlArgs::default(),
        }
    }

    fn peers(addresses: &[&str], given: &[&str]) -> Result<Vec<String>, String> {
        let peers = args(addresses, given).peers().map_err(|error| error.to_string())?;
        Ok(peers.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_kernel_gets_the_first_other_address() {
        assert_eq!(peers(&["10.9.0.2/24"], &[]).unwrap(), ["10.9.0.1/24"]);
        assert_eq!(peers(&["10.9.0.1/24"], &[]).unwrap(), ["10.9.0.2/24"]);
        assert_eq!(peers(&["10.9.0.2/24", "fd09::2/64"], &[]).unwrap(), ["10.9.0.1/24", "fd09::1/64"]);
        assert_eq!(peers(&["10.9.0.4/31"], &[]).unwrap(), ["10.9.0.5/31"]);
        assert_eq!(peers(&["10.9.0.2/24"], &["10.9.0.77"]).unwrap(), ["10.9.0.77/24"]);
    }

    #[test]
    fn addresses_that_cannot_work_are_refused() {
        assert!(peers(&["10.9.0.2/32"], &[]).unwrap_err().contains("leaves no address"));
        assert!(peers(&["10.9.0.2/24"], &["10.8.0.1"]).unwrap_err().contains("not in the network of any"));
        assert!(peers(&["10.9.0.2/24"], &["fd00::1"]).unwrap_err().contains("not in the network of any"));
        assert!(peers(&["10.9.0.2/24"], &["10.9.0.2"]).unwrap_err().contains("own address"));
        assert!(prefixed("10.9.0.2").unwrap_err().contains("prefix"));
        assert!(prefixed("10.9.0.2/33").is_err());
    }

    #[test]
    fn a_stack_has_at_most_one_address_of_a_family_and_a_hosts() {
        let refused =
            |addresses: &[&str], peers: &[&str]| args(addresses, peers).check().unwrap_err().to_string();
        let twice = refused(&["10.9.0.2/24", "fd09::2/64", "10.10.0.2/24"], &[]);
        assert_eq!(
            twice,
            "--address 10.9.0.2/24 and 10.10.0.2/24 are of the same family; give one for IPv4 and one for IPv6"
        );
        assert!(
            refused(&["10.9.0.2/24"], &["10.9.0.1", "10.9.0.3"])
                .contains("10.9.0.1 and 10.9.0.3 are of the same")
        );
        for wrong in ["127.0.0.2/8", "224.0.0.2/24", "0.0.0.0/24", "::1/64", "ff02::1/64"] {
            assert!(refused(&[wrong], &[]).contains("is not a host address"), "{wrong}");
        }
        for wrong in ["10.9.0.0/24", "10.9.0.255/24", "10.9.0.3/30"] {
            assert!(refused(&[wrong], &[]).contains("is the network or broadcast address"), "{wrong}");
        }
        // RFC 3021: both addresses of a /31 are hosts'.
        for right in [&["10.9.0.0/31"][..], &["10.9.0.1/31", "fd09::/64"], &["10.9.0.254/24"]] {
            args(right, &[]).check().unwrap();
        }
        let small = LinkArgs { mtu: Some(1279), ..args(&["10.9.0.2/24", "fd09::2/64"], &[]) };
        assert!(
            small
                .check()
                .unwrap_err()
                .to_string()
                .contains("--mtu 1279 is too small for --address fd09::2/64")
        );
        LinkArgs { mtu: Some(1280), ..small }.check().unwrap();
    }

    #[test]
    fn devices_and_what_belongs_to_each() {
        assert_eq!("tun".parse(), Ok(DeviceArg::Tun));
        assert_eq!("packet:eth0".parse(), Ok(DeviceArg::Packet("eth0".into())));
        assert_eq!("xdp:eth0".parse(), Ok(DeviceArg::Xdp("eth0".into())));
        assert_eq!("tap:tap0".parse(), Ok(DeviceArg::Frames(FrameSource::Tap("tap0".into()))));
        assert_eq!("fd:3".parse(), Ok(DeviceArg::Frames(FrameSource::Descriptor(3))));
        for wrong in ["packet", "packet:", "eth0", "xdp:", "tun:taut0", "tap:", "fd:x", "fd:-1", ""] {
            assert!(wrong.parse::<DeviceArg>().unwrap_err().contains("packet:INTERFACE"), "{wrong}");
        }
        let packet = || LinkArgs { device: DeviceArg::Packet("eth0".into()), ..args(&["10.9.0.2/24"], &[]) };
        let refused = |args: LinkArgs| args.open().unwrap_err().to_string();
        assert!(refused(LinkArgs { mtu: Some(1400), ..packet() }).contains("ip link set dev eth0 mtu 1400"));
        let peer_addresses = vec!["10.9.0.1".parse().unwrap()];
        assert!(refused(LinkArgs { peer_addresses, ..packet() }).contains("is for a TUN"));
        let xdp = || LinkArgs { device: DeviceArg::Xdp("eth0".into()), ..args(&["10.9.0.2/24"], &[]) };
        assert!(refused(LinkArgs { mtu: Some(1400), ..xdp() }).contains("ip link set dev eth0 mtu 1400"));
        assert!(refused(LinkArgs { shards: 2, ..xdp() }).contains("one queue"));
        let gateways = vec!["10.9.0.1".parse().unwrap()];
        assert!(
            refused(LinkArgs { gateways, ..args(&["10.9.0.2/24"], &[]) })
                .contains("is for an Ethernet device")
        );
        let mac = Some("02:00:00:00:00:01".parse().unwrap());
        assert!(
            refused(LinkArgs { mac, ..args(&["10.9.0.2/24"], &[]) }).contains("is for an Ethernet device")
        );
    }
}
