//! `--tun`, `--address`, `--peer-address`: the link that a command's stack stands on.
//!
//! Called by `send`, `recv`, `serve` and `get`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use anyhow::{Context as _, bail};
use clap::Args;
use taut_device::{Cidr, Interface, Tun, TunOptions};

use crate::control_args::ControlArgs;

/// The link of a stack that runs on a TUN device of this machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Link")]
pub struct LinkArgs {
    /// TUN interface; created, and configured on the kernel's side, when there is none of that name
    #[arg(long, default_value = "taut0", value_name = "NAME")]
    pub tun: String,
    /// Address of the stack with the length of the link's prefix; may be given once for IPv4 and once for IPv6
    #[arg(long = "address", default_value = "10.9.0.2/24", value_name = "ADDRESS/PREFIX", value_parser = prefixed)]
    pub addresses: Vec<Cidr>,
    /// Address of the kernel's side of the link [default: the first other address of each --address's network]
    #[arg(long = "peer-address", value_name = "ADDRESS")]
    pub peer_addresses: Vec<IpAddr>,
    /// Largest IP packet in bytes [default: that of the interface when it exists, otherwise 1500]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u16>,
    /// Exchange packets of at most the MTU with the kernel instead of super-packets of up to 64 KB
    #[arg(long)]
    pub no_offload: bool,
    /// Divide the stack into so many shards, each with a queue of the interface and a thread of its own; 0 is one for each
    /// processor
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub shards: u16,
    /// How to look into it.
    #[command(flatten)]
    pub control: ControlArgs,
}

/// As many shards as there are processors, for 0.
pub fn shard_count(asked: u16) -> u16 {
    match asked {
        0 => std::thread::available_parallelism()
            .map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(1).min(256)),
        count => count,
    }
}

/// All queues of an interface that was opened for `shards` of them.
///
/// # Errors
/// Those of [`Tun::open_queue`].
pub fn queues(tun: Tun, shards: u16) -> std::io::Result<Vec<Tun>> {
    let more: Vec<Tun> = (1..shards).map(|_| tun.open_queue()).collect::<Result<_, _>>()?;
    Ok(std::iter::once(tun).chain(more).collect())
}

/// A [`Cidr`] that says the length of its prefix.
fn prefixed(text: &str) -> Result<Cidr, String> {
    let cidr = text.parse::<Cidr>().map_err(|error| error.to_string())?;
    if text.contains('/') { Ok(cidr) } else { Err(format!("the prefix length is missing, as in {text}/24")) }
}

impl LinkArgs {
    /// Opens the TUN, with a queue for each shard; configures it unless it was there already.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    pub fn open(&self) -> anyhow::Result<Vec<Tun>> {
        let shards = shard_count(self.shards);
        let peers = self.peers()?;
        let existed = Interface::open(&self.tun).is_ok();
        let mtu = match self.mtu {
            Some(mtu) => mtu,
            None if existed => mtu_of(&self.tun)?,
            None => TunOptions::default().mtu,
        };
        let options = TunOptions {
            mtu,
            multi_queue: shards > 1,
            offload: !self.no_offload,
            configure: !existed,
            ..TunOptions::default()
        };
        let tun = Tun::open(&self.tun, &options).with_context(|| {
            format!(
                "cannot open the TUN interface {}\n  As root it is made for you. Otherwise an administrator can \
                 prepare one for you:\n  sudo ip tuntap add {} mode tun user $USER && sudo ip link set {} up",
                self.tun, self.tun, self.tun
            )
        })?;
        if !existed || !self.peer_addresses.is_empty() {
            let interface = tun.interface()?;
            for peer in peers {
                interface.add_address(peer)?;
            }
        }
        Ok(queues(tun, shards)?)
    }

    /// The kernel's addresses on the link.
    fn peers(&self) -> anyhow::Result<Vec<Cidr>> {
        if let Some(stray) = self.peer_addresses.iter().find(|&&peer| self.network_of(peer).is_none()) {
            bail!("--peer-address {stray} is in the network of no --address");
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
                    bail!("--address {own} leaves no address for the kernel's side")
                };
                if peer == own.address() {
                    bail!("--peer-address {peer} is the stack's own address");
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

    /// Resolves `host:port` to an address of a family that the stack has.
    ///
    /// # Errors
    /// When the text has no port, the name is unknown, or the families differ.
    pub fn resolve(&self, host_port: &str) -> anyhow::Result<SocketAddr> {
        let mut found = host_port
            .to_socket_addrs()
            .with_context(|| format!("{host_port:?} is not HOST:PORT, or the host is unknown"))?
            .peekable();
        let Some(&first) = found.peek() else { bail!("{host_port:?} has no address") };
        let has_family =
            |to: &SocketAddr| self.addresses.iter().any(|own| own.address().is_ipv4() == to.is_ipv4());
        found.find(has_family).with_context(|| {
            let family = if first.is_ipv4() { "IPv4" } else { "IPv6" };
            format!("{first} is {family}, and no --address is")
        })
    }
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

/// MTU of an interface in this process's network namespace.
fn mtu_of(interface: &str) -> anyhow::Result<u16> {
    // /proc/sys/net shows the namespace that one is in, /sys the one in which it was mounted; the former has the MTU
    // only where there is IPv6.
    let paths =
        [format!("/proc/sys/net/ipv6/conf/{interface}/mtu"), format!("/sys/class/net/{interface}/mtu")];
    let text = paths.iter().find_map(|path| std::fs::read_to_string(path).ok());
    let mtu = text.and_then(|text| text.trim().parse().ok());
    mtu.with_context(|| format!("cannot find out the MTU of {interface}; give --mtu"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(addresses: &[&str], peers: &[&str]) -> LinkArgs {
        LinkArgs {
            tun: "taut0".into(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            peer_addresses: peers.iter().map(|text| text.parse().unwrap()).collect(),
            mtu: None,
            no_offload: false,
            shards: 1,
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
        assert!(peers(&["10.9.0.2/24"], &["10.8.0.1"]).unwrap_err().contains("network of no --address"));
        assert!(peers(&["10.9.0.2/24"], &["fd00::1"]).unwrap_err().contains("network of no --address"));
        assert!(peers(&["10.9.0.2/24"], &["10.9.0.2"]).unwrap_err().contains("own address"));
        assert!(prefixed("10.9.0.2").unwrap_err().contains("prefix"));
        assert!(prefixed("10.9.0.2/33").is_err());
    }

    #[test]
    fn a_destination_needs_a_port_and_a_family_in_common() {
        let args = args(&["10.9.0.2/24"], &[]);
        assert_eq!(args.resolve("10.9.0.1:80").unwrap().to_string(), "10.9.0.1:80");
        assert!(args.resolve("10.9.0.1").unwrap_err().to_string().contains("HOST:PORT"));
        assert!(args.resolve("[fd00::1]:80").unwrap_err().to_string().contains("IPv6"));
    }
}
