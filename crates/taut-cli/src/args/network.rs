//! What `taut addr`, `taut route` and `taut mtu` have in common: the stacks they show, and the one they
//! change, chosen by `dev DEV` as `ip` does.

use anyhow::bail;
use clap::Args;
use taut_control::network::{Change, NetworkSnapshot};
use taut_control::{Client, place};

use crate::args::control::{SocketArgs, asked};

/// How to print, and which stack.
#[derive(Args, Debug, Default)]
pub(crate) struct TargetArgs {
    /// Print as JSON, in ip's format
    #[arg(short, long)]
    pub json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Selection of what is shown.
#[derive(Args, Debug, Default)]
pub(crate) struct ShowArgs {
    /// dev DEV, the interface over which a stack sends [default: every running stack]
    #[arg(value_name = "dev DEV", num_args = 0..=2)]
    words: Vec<String>,
    /// How.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// A stack's network, and its device.
#[derive(Debug)]
pub(crate) struct Of {
    /// The device.
    pub device: String,
    /// The network.
    pub network: NetworkSnapshot,
}

impl ShowArgs {
    /// The networks of the stacks that were asked for.
    ///
    /// # Errors
    /// When none runs or answers, or a word is wrong.
    pub(crate) fn found(&self) -> anyhow::Result<Vec<Of>> {
        let (rest, device) = without_device(&self.words)?;
        if let [word, ..] = rest[..] {
            bail!("write dev and the interface, such as: dev taut0, instead of {word}");
        }
        if device.is_some() || self.target.socket.socket.is_some() {
            return Ok(vec![of(&mut self.target.open(device)?)?]);
        }
        let mut all = Vec::new();
        for running in place::running()? {
            // A stack may have ended just now.
            let Ok(mut client) = Client::connect(&running.path) else { continue };
            all.push(of(&mut client)?);
        }
        // Returns the error for no running stack.
        if all.is_empty() {
            SocketArgs::default().open()?;
        }
        Ok(all)
    }
}

impl TargetArgs {
    /// Makes a change, and returns the new state.
    ///
    /// # Errors
    /// When no stack runs or answers, or it refuses.
    pub(crate) fn change(&self, device: Option<&str>, change: Change) -> anyhow::Result<Of> {
        let mut client = self.open(device)?;
        let network = asked(client.change_network(change))?;
        Ok(Of { device: asked(client.identity())?.device, network })
    }

    fn open(&self, device: Option<&str>) -> anyhow::Result<Client> {
        match device {
            Some(device) => self.socket.open_device(device),
            None => self.socket.open(),
        }
    }
}

/// A line about the lease, if there is one, and about the name servers that came with it.
#[must_use]
pub(crate) fn lease_line(network: &NetworkSnapshot) -> Option<String> {
    let lease = network.lease.as_ref()?;
    let times = match (lease.renews_in_ns, lease.ends_in_ns) {
        (Some(renews), Some(ends)) => {
            format!("renewed in {} s, over in {} s", renews / 1_000_000_000, ends / 1_000_000_000)
        }
        _ => "for ever".to_owned(),
    };
    let servers: Vec<_> = network.name_servers.iter().map(ToString::to_string).collect();
    let servers =
        if servers.is_empty() { String::new() } else { format!("; name servers {}", servers.join(", ")) };
    Some(format!("Lease: {}/{} from {}, {times}{servers}\n", lease.address, lease.prefix, lease.server))
}

fn of(client: &mut Client) -> anyhow::Result<Of> {
    Ok(Of { device: asked(client.identity())?.device, network: asked(client.network())? })
}

/// The words without `dev DEV`, and the device.
///
/// # Errors
/// When the device is missing, or there twice.
pub(crate) fn without_device(words: &[String]) -> anyhow::Result<(Vec<&str>, Option<&str>)> {
    let (mut rest, mut device) = (Vec::new(), None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match (word, device) {
            ("dev", None) => match words.next() {
                Some(name) => device = Some(name),
                None => bail!("write an interface after dev, such as: dev taut0"),
            },
            ("dev", Some(_)) => bail!("dev is there twice: a stack has one interface"),
            _ => rest.push(word),
        }
    }
    Ok((rest, device))
}

/// A prefix and its length: `10.9.0.0/24`, `default` for this family, or an address alone.
///
/// # Errors
/// When it is none of these.
pub(crate) fn prefix(text: &str, default_is_v4: bool) -> anyhow::Result<(std::net::IpAddr, u8)> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    if text == "default" {
        let any =
            if default_is_v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        return Ok((any, 0));
    }
    let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
    let Ok(address) = address.parse::<IpAddr>() else {
        bail!("{text} is not an address, or a prefix such as 10.9.0.0/24")
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    match len.map_or(Ok(most), str::parse) {
        Ok(len) if len <= most => Ok((address, len)),
        _ => bail!("{text}: the length of the prefix must be a number from 0 to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_device_may_stand_anywhere_once() {
        for text in ["dev taut0 10.9.0.8/24", "10.9.0.8/24 dev taut0"] {
            let given = words(text);
            assert_eq!(without_device(&given).unwrap(), (vec!["10.9.0.8/24"], Some("taut0")));
        }
        assert!(without_device(&words("dev")).unwrap_err().to_string().contains("dev taut0"));
        assert!(without_device(&words("dev a dev b")).unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn a_lease_is_a_line() {
        let mut network = NetworkSnapshot::default();
        assert_eq!(lease_line(&network), None);
        network.lease = Some(taut_control::network::LeaseSnapshot {
            address: "10.9.0.7".parse().unwrap(),
            prefix: 24,
            server: "10.9.0.1".parse().unwrap(),
            renews_in_ns: Some(1_800_000_000_000),
            ends_in_ns: Some(3_600_000_000_000),
        });
        network.name_servers = vec!["9.9.9.9".parse().unwrap()];
        assert_eq!(
            lease_line(&network).unwrap(),
            "Lease: 10.9.0.7/24 from 10.9.0.1, renewed in 1800 s, over in 3600 s; name servers 9.9.9.9\n"
        );
    }

    #[test]
    fn prefixes() {
        let of = |text: &str| prefix(text, true).map(|(ip, len)| format!("{ip}/{len}"));
        assert_eq!(of("10.9.0.0/24").unwrap(), "10.9.0.0/24");
        assert_eq!(of("fd09::1").unwrap(), "fd09::1/128");
        assert_eq!(of("default").unwrap(), "0.0.0.0/0");
        assert_eq!(prefix("default", false).unwrap().0.to_string(), "::");
        for wrong in ["10.9.0.0/33", "fd09::/129", "10.9.0.0/x", "10.9.0.0/", "10.9.0.0/-1"] {
            assert!(of(wrong).unwrap_err().to_string().contains("length of the prefix"), "{wrong}");
        }
        assert!(of("here").unwrap_err().to_string().contains("is not an address"));
    }
}
