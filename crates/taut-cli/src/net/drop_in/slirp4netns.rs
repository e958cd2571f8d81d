//! `slirp4netns` by name: its command line in the words of `taut gateway`, as `pasta.rs` has pasta's. Podman
//! looks for the names of options in the text of `--help`. Called by `mod.rs`.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use taut::device::Cidr;
use taut_gateway::interface_address;

use super::words::{Row, To, Translated, help, translate};

const USAGE: &str = "Usage: slirp4netns [OPTION]... PID|PATH [TAPNAME]\n\nThe options of slirp4netns(1) that taut has. \
                     It also reads the configuration file of\ntaut gateway, which may have rules.\n\n\
                     Example: slirp4netns --configure PID tap0";

const fn row(short: char, long: &'static str, to: To, help: &'static str) -> Row {
    Row { short: if short == ' ' { None } else { Some(short) }, long, to, help }
}

const ROWS: &[Row] = &[
    row('c', "configure", To::Nothing, "nothing: the interface is always brought up"),
    row('e', "exit-fd", To::Value(exit_fd), "end when this descriptor is closed by others"),
    row('r', "ready-fd", To::Value(ready_fd), "write \"1\" to it when the network is there"),
    row('m', "mtu", To::Value(mtu), "MTU of the guest's interface [default: 1500]"),
    row('6', "enable-ipv6", To::Flag(|to| to.only_v6 = true), "IPv6, too"),
    row('a', "api-socket", To::Value(api_socket), "add_hostfwd, list_hostfwd, remove_hostfwd"),
    row(' ', "cidr", To::Value(cidr), "the guest's network [default: 10.0.2.0/24]"),
    row(' ', "disable-host-loopback", To::Flag(|to| to.no_host_loopback = true), "close the host's loopback"),
    row(' ', "netns-type", To::Value(netns_type), "the namespace is a path or a pid"),
    row(' ', "userns-path", To::Value(Translated::user), "enter this user namespace first"),
    row(' ', "enable-sandbox", To::Nothing, "nothing: always"),
    row(' ', "enable-seccomp", To::Nothing, "nothing: always"),
    row(
        ' ',
        "outbound-addr",
        To::Value(|to, text| outbound(to, text, true)),
        "IPv4 address or interface of this host",
    ),
    row(' ', "outbound-addr6", To::Value(|to, text| outbound(to, text, false)), "the same for IPv6"),
    row(' ', "disable-dns", To::Flag(|to| to.no_dns = true), "no name server at the network's third address"),
    row(' ', "target-type", To::Value(target_type), "netns only"),
];

/// Translates slirp4netns's words.
///
/// # Errors
/// The first one that has no equivalent.
pub(super) fn read(args: &[String]) -> anyhow::Result<Translated> {
    let mut to = translate("slirp4netns", &[ROWS], args)?;
    let mut rest = to.rest.clone().into_iter();
    let (Some(place), tap, None) = (rest.next(), rest.next(), rest.next()) else {
        bail!("a namespace and perhaps the name of an interface: slirp4netns [OPTION]... PID|PATH [TAPNAME]");
    };
    let network: Cidr = to.addresses.first().map_or("10.0.2.0/24", String::as_str).parse()?;
    let [guest, gateway, dns] = [100, 2, 3].map(|host| host_of(network, host));
    to.add(&["--guest", &format!("{guest}/{}", network.prefix()), "--gateway", &gateway.to_string()]);
    if !to.no_dns {
        to.manner.dns_at.push(dns.into());
    }
    if to.only_v6 {
        to.add(&["--guest", "fd00::100/64", "--gateway", "fd00::2"]);
        if !to.no_dns {
            to.manner.dns_at.push(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 3).into());
        }
    }
    if !to.words.iter().any(|word| word == "--mtu") {
        to.add(&["--mtu", "1500"]);
    }
    if !to.no_host_loopback {
        to.add(&["--host-loopback"]);
    }
    to.add(&["--interface", tap.as_deref().unwrap_or("tap0"), "--netns", &place]);
    to.manner.place = Some(place);
    Ok(to)
}

/// The table.
pub(super) fn usage() -> String {
    help(USAGE, &[ROWS])
}

/// An address of the network by its number.
fn host_of(network: Cidr, host: u32) -> std::net::Ipv4Addr {
    match network.network().address() {
        std::net::IpAddr::V4(first) => (first.to_bits() | host).into(),
        std::net::IpAddr::V6(_) => std::net::Ipv4Addr::UNSPECIFIED,
    }
}

/// As slirp4netns has it, a network with room for the addresses: at most 25 bits.
fn cidr(to: &mut Translated, text: &str) -> anyhow::Result<()> {
    let network: Cidr = text.parse().with_context(|| format!("{text} is not a network"))?;
    if network.address().is_ipv6()
        || network.prefix() > 25
        || network.network().address() != network.address()
    {
        bail!("{text} is not an IPv4 network of at most 25 bits, such as 10.0.2.0/24");
    }
    to.addresses.push(text.to_owned());
    Ok(())
}

fn number(text: &str) -> anyhow::Result<i32> {
    text.parse().ok().filter(|number| *number >= 0).with_context(|| format!("{text} is not a descriptor"))
}

fn exit_fd(to: &mut Translated, text: &str) -> anyhow::Result<()> {
    to.manner.exit_fd = Some(number(text)?);
    Ok(())
}

fn ready_fd(to: &mut Translated, text: &str) -> anyhow::Result<()> {
    to.add(&["--ready-fd", &number(text)?.to_string()]);
    Ok(())
}

/// One more than the most that a TUN may have here is what podman gives.
fn mtu(to: &mut Translated, text: &str) -> anyhow::Result<()> {
    let mtu: u32 = text.parse().with_context(|| format!("{text} is not a number of bytes"))?;
    to.add(&["--mtu", &mtu.min(65_520).to_string()]);
    Ok(())
}

fn api_socket(to: &mut Translated, path: &str) -> anyhow::Result<()> {
    to.manner.api = Some(PathBuf::from(path));
    Ok(())
}

/// Flows leave from this address, or from the first one of this interface.
fn outbound(to: &mut Translated, text: &str, is_v4: bool) -> anyhow::Result<()> {
    let kind = if is_v4 { "IPv4" } else { "IPv6" };
    let address = match text.parse() {
        Ok(address) => Some(address),
        Err(_) => interface_address(text, is_v4)?,
    };
    let address = address.filter(|address: &IpAddr| address.is_ipv4() == is_v4);
    to.leave_from(address.with_context(|| {
        format!("{text} is neither an {kind} address nor an interface of this host that has one")
    })?);
    Ok(())
}

fn netns_type(_: &mut Translated, kind: &str) -> anyhow::Result<()> {
    // A path has a slash, so each is known by itself.
    if ["path", "pid"].contains(&kind) { Ok(()) } else { bail!("{kind} is neither path nor pid") }
}

fn target_type(_: &mut Translated, kind: &str) -> anyhow::Result<()> {
    if kind == "netns" { Ok(()) } else { bail!("{kind} has no equivalent in taut: see taut gateway --qemu") }
}

#[cfg(test)]
mod tests {
    use super::super::words::split;
    use super::*;

    fn words(line: &str) -> anyhow::Result<Translated> {
        read(&split(line))
    }

    #[test]
    fn gw_193_the_line_of_podman() {
        let to = words(
            "--disable-host-loopback --mtu=65520 --enable-sandbox --enable-seccomp --enable-ipv6 -c -e 3 -r 4 \
             --netns-type=path /run/user/0/netns/netns-1 tap0",
        );
        let to = to.unwrap();
        assert_eq!(
            to.words.join(" "),
            "--mtu 65520 --ready-fd 4 --guest 10.0.2.100/24 --gateway 10.0.2.2 --guest fd00::100/64 --gateway fd00::2 \
             --interface tap0 --netns /run/user/0/netns/netns-1"
        );
        assert_eq!(to.manner.exit_fd, Some(3));
        assert_eq!(
            to.manner.dns_at.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.2.3", "fd00::3"]
        );
        assert!(!to.manner.background);
    }

    #[test]
    fn gw_251_the_line_of_rootlesskit_with_a_detached_namespace() {
        let to = words(
            "--mtu 65520 -r 3 --disable-host-loopback --enable-seccomp --userns-path=/proc/74812/ns/user \
             --netns-type=path /proc/74812/root/run/user/1000/containerd-rootless/netns tap0",
        );
        let to = to.unwrap();
        assert_eq!(
            to.words.join(" "),
            "--mtu 65520 --ready-fd 3 --guest 10.0.2.100/24 --gateway 10.0.2.2 --interface tap0 --netns \
             /proc/74812/root/run/user/1000/containerd-rootless/netns"
        );
        assert_eq!(to.manner.user.as_deref(), Some("/proc/74812/ns/user"));
    }

    #[test]
    fn gw_222_where_flows_leave_from() {
        let by = |line: &str| words(line).map(|to| to.manner.by.addresses);
        let all = by("--outbound-addr6=2001:db8::1 --outbound-addr 192.0.2.1 --outbound-addr=lo 1").unwrap();
        assert_eq!(all, ["2001:db8::1", "127.0.0.1"].map(|text| text.parse::<IpAddr>().unwrap()));
        for line in
            ["--outbound-addr=2001:db8::1 1", "--outbound-addr6 192.0.2.1 1", "--outbound-addr=nowhere0 1"]
        {
            let error = format!("{:#}", by(line).unwrap_err());
            assert!(error.contains("is neither an IPv"), "{line}: {error}");
        }
    }

    #[test]
    fn gw_193_other_lines() {
        let to = words("--cidr 10.9.0.0/16 -a /tmp/api --disable-dns 4711").unwrap();
        let expected = "--guest 10.9.0.100/16 --gateway 10.9.0.2 --mtu 1500 --host-loopback --interface tap0 --netns 4711";
        assert_eq!(to.words.join(" "), expected);
        assert!(to.manner.dns_at.is_empty() && to.manner.api == Some(PathBuf::from("/tmp/api")));
        for (line, named) in [
            ("", "a namespace"),
            ("1 tap0 more", "a namespace"),
            ("--macaddress=02:00:00:00:00:01 1", "--macaddress has no equivalent"),
            ("--target-type=bess /x", "--target-type: bess has no equivalent"),
            ("--cidr 10.0.2.0/26 1", "at most 25 bits"),
            ("--cidr 10.0.2.5/24 1", "at most 25 bits"),
            ("-e x 1", "is not a descriptor"),
        ] {
            let error = format!("{:#}", words(line).unwrap_err());
            assert!(error.contains(named), "{line}: {error}");
        }
        for option in [
            "--disable-host-loopback",
            "--mtu",
            "--enable-ipv6",
            "--enable-seccomp",
            "--enable-sandbox",
            "--netns-type",
            "--cidr",
            "--api-socket",
        ] {
            assert!(usage().contains(option), "{option}");
        }
    }
}
