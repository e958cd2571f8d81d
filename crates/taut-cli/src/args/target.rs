//! HOST:PORT of a command: the address of a family that the stack has. A name is looked up by the system;
//! behind a tunnel, by the name servers of its file, through it.
//!
//! Called by `send`, `get` and `rpm`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use anyhow::{Context as _, bail};
use taut::Stack;

use crate::args::device::DeviceArg;
use crate::args::link::LinkArgs;

/// A destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Its address.
    Address(SocketAddr),
    /// A name with a port, to be looked up through the tunnel.
    Inside(String),
}

impl Target {
    /// Its address; looks a name up through the tunnel of `stack`.
    ///
    /// # Errors
    /// There is no such name, or no name server answers.
    pub(crate) async fn address(&self, link: &LinkArgs, stack: &Stack) -> anyhow::Result<SocketAddr> {
        let name = match self {
            Self::Address(address) => return Ok(*address),
            Self::Inside(name) => name,
        };
        let (asked, stack) = (name.clone(), stack.clone());
        let found = tokio::task::spawn_blocking(move || stack.look_up(asked)).await?;
        let found = found.with_context(|| {
            format!(
                "cannot find the address of {name} through the tunnel; check the name, or give an address"
            )
        })?;
        link.own_family(name, &found)
    }
}

impl LinkArgs {
    /// Reads `host:port`. Resolves it to an address of a family that the stack has, unless that is for a
    /// tunnel.
    ///
    /// # Errors
    /// When the text has no port, the name is unknown, it is the stack itself, or the families differ.
    pub(crate) fn target(&self, host_port: &str) -> anyhow::Result<Target> {
        if host_port.parse::<Ipv6Addr>().is_ok() {
            bail!("{host_port:?} has no port; write an IPv6 address with a port as [{host_port}]:7000");
        }
        let Some((host, port)) = host_port.rsplit_once(':') else {
            bail!("{host_port:?} has no port; write HOST:PORT, such as {host_port}:7000");
        };
        if !port.parse::<u16>().is_ok_and(|port| port != 0) {
            bail!("{host_port:?}: {port:?} is not a port; use a number from 1 to 65535");
        }
        if let DeviceArg::WireGuard(tunnel) = &self.device
            && host.trim_matches(['[', ']']).parse::<IpAddr>().is_err()
        {
            if tunnel.config.dns.is_empty() {
                bail!(
                    "{host:?} is a name, and {} has no DNS: add DNS = ADDRESS of a name server in the tunnel to its \
                     [Interface], or give an address; this host's are outside the tunnel",
                    tunnel.path.display()
                );
            }
            return Ok(Target::Inside(host_port.to_owned()));
        }
        let found = host_port.to_socket_addrs().with_context(|| {
            format!("cannot find the address of {host:?}; check the name, or give an address")
        })?;
        self.own_family(host_port, &found.collect::<Vec<_>>()).map(Target::Address)
    }

    /// The first address of a family that the stack has, unless it is the stack's.
    fn own_family(&self, host_port: &str, found: &[SocketAddr]) -> anyhow::Result<SocketAddr> {
        let Some(&first) = found.first() else { bail!("{host_port:?} has no address") };
        let has_family = |to: &&SocketAddr| {
            let learns = if to.is_ipv4() { self.auto.dhcp } else { self.auto.slaac };
            learns || self.given().iter().any(|own| own.address().is_ipv4() == to.is_ipv4())
        };
        let to = *found.iter().find(has_family).with_context(|| {
            let (family, example) =
                if first.is_ipv4() { ("IPv4", "10.9.0.2/24") } else { ("IPv6", "fd09::2/64") };
            format!("{first} is {family}, but no --address is; add one, such as --address {example}")
        })?;
        if self.given().iter().any(|own| own.address() == to.ip()) {
            if !self.device.has_kernel_side() {
                bail!("{} is the stack's own address; give the address of another host on the link", to.ip());
            }
            let peers: Vec<_> = self.peers()?.iter().map(|peer| peer.address().to_string()).collect();
            bail!("{} is the stack's own address; the kernel's side has {}", to.ip(), peers.join(" and "));
        }
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::link::tests::args;

    #[test]
    fn a_destination_needs_a_port_and_a_family_in_common() {
        let args = args(&["10.9.0.2/24"], &[]);
        assert_eq!(args.target("10.9.0.1:80").unwrap(), Target::Address("10.9.0.1:80".parse().unwrap()));
        for (to, said) in [
            ("10.9.0.1", "has no port; write HOST:PORT, such as 10.9.0.1:7000"),
            ("fd00::1", "as [fd00::1]:7000"),
            ("10.9.0.1:0", "\"0\" is not a port"),
            ("10.9.0.1:65536", "\"65536\" is not a port"),
            ("[fd00::1]:80", "is IPv6, but no --address is; add one, such as --address fd09::2/64"),
            ("10.9.0.2:80", "is the stack's own address; the kernel's side has 10.9.0.1"),
        ] {
            let error = args.target(to).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }

    #[test]
    fn only_a_device_of_the_kernel_has_a_kernels_side() {
        let own = |device: &str| {
            let link = LinkArgs { device: device.parse().unwrap(), ..args(&["10.9.0.2/24"], &[]) };
            link.target("10.9.0.2:80").unwrap_err().to_string()
        };
        for device in ["tun", "tap:tap0"] {
            assert!(own(device).ends_with("the kernel's side has 10.9.0.1"), "{device}: {}", own(device));
        }
        for device in [
            "packet:eth0",
            "xdp:eth0",
            "stream:/s",
            "stream-listen:/s",
            "dgram:/s",
            "dgram-listen:/s",
            "fd:3",
        ] {
            assert!(
                own(device).ends_with("give the address of another host on the link"),
                "{device}: {}",
                own(device)
            );
        }
    }
}
