//! `pasta` by name: its command line in the words of `taut gateway`. Each option of pasta(1) is a row of the
//! table; one that is not there has no equivalent, and is refused by name. docs/guide/coming-from.md has the
//! same table in words. Called by `mod.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use super::manner::host_address;
use super::words::{Row, To, Translated, help, translate};

const USAGE: &str = "Usage: pasta [OPTION]... [-- COMMAND [ARG]...]\n       pasta [OPTION]... PID\n       \
                     pasta [OPTION]... --netns PATH|NAME\n\nThe options of pasta(1) that taut has. It also reads the \
                     configuration file of taut gateway,\nwhich may have rules.\n\n\
                     Example: pasta --tcp-ports 127.0.0.1/8080:80 -- sh";

pub(super) const fn row(short: char, long: &'static str, to: To, help: &'static str) -> Row {
    Row { short: if short == ' ' { None } else { Some(short) }, long, to, help }
}

/// Options of both pasta and passt.
pub(super) const COMMON: &[Row] = &[
    row('q', "quiet", To::Flag(|to| to.quiet = true), "log errors only"),
    row('d', "debug", To::Nothing, "nothing"),
    row(' ', "trace", To::Nothing, "nothing"),
    row('e', "stderr", To::Nothing, "nothing: the log is on standard error"),
    row('f', "foreground", To::Flag(|to| to.foreground = true), "stay in the foreground"),
    row('l', "log-file", To::Value(log_file), "log to this file only"),
    row('p', "pcap", To::Option("--capture"), "record the guest's packets in this file (pcapng)"),
    row(' ', "log-size", To::NothingWithValue, "nothing: the log is bounded in time"),
    row('P', "pid", To::Value(pid), "write the number of the process to this file"),
    row('m', "mtu", To::Option("--mtu"), "MTU of the guest's interface"),
    row('a', "address", To::Value(address), "the guest's address, once per family"),
    row('n', "netmask", To::Value(netmask), "its mask, in bits or with dots"),
    row('g', "gateway", To::Option("--gateway"), "the gateway's address"),
    row('D', "dns", To::Value(none), "none only: guests have the name server of --dns-forward"),
    row(' ', "dns-forward", To::Value(dns_forward), "answer queries at this address, too"),
    row(' ', "dns-host", To::Option("--dns"), "name server of the host"),
    row(' ', "no-tcp", To::Words(&["--rule", "deny tcp any"]), "the rule \"deny tcp any\""),
    row(' ', "no-udp", To::Words(&["--rule", "deny udp any"]), "the rule \"deny udp any\""),
    row(' ', "no-icmp", To::Words(&["--rule", "deny ping any"]), "the rule \"deny ping any\""),
    row(' ', "no-map-gw", To::Flag(|to| to.no_host_loopback = true), "close the host's loopback"),
    row(' ', "map-host-loopback", To::Value(map_host_loopback), "the host's loopback at this address"),
    row(' ', "map-guest-addr", To::Value(map_guest_addr), "this host at this address"),
    row('o', "outbound", To::Value(outbound), "address of this host that flows leave from"),
    row(' ', "outbound-if4", To::Value(|to, name| interface(to, 0, name)), "interface that IPv4 leaves by"),
    row(' ', "outbound-if6", To::Value(|to, name| interface(to, 1, name)), "interface that IPv6 leaves by"),
    row('4', "ipv4-only", To::Flag(|to| to.only_v4 = true), "IPv4 only"),
    row('6', "ipv6-only", To::Flag(|to| to.only_v6 = true), "IPv6 only"),
    row('t', "tcp-ports", To::Value(|to, spec| ports(to, "-t", spec)), "ports of the host to the guest"),
    row('u', "udp-ports", To::Value(|to, spec| ports(to, "-u", spec)), "the same for UDP"),
];

const PASTA: &[Row] = &[
    row('S', "search", To::Value(none), "none only"),
    row('I', "ns-ifname", To::Option("--interface"), "name of the guest's interface"),
    row(' ', "no-dhcp-dns", To::Nothing, "nothing: a namespace has no DHCP"),
    row(' ', "no-dhcp-search", To::Nothing, "nothing"),
    row(' ', "no-dhcp", To::Nothing, "nothing"),
    row(' ', "no-ndp", To::Nothing, "nothing: the interface has no neighbours"),
    row(' ', "no-dhcpv6", To::Nothing, "nothing"),
    row(' ', "no-ra", To::Nothing, "nothing"),
    row('T', "tcp-ns", To::Value(none), "none only: the host's loopback stays closed"),
    row('U', "udp-ns", To::Value(none), "none only"),
    row(' ', "netns", To::Value(netns), "the namespace, by path or name"),
    row(' ', "userns", To::Value(Translated::user), "enter this user namespace first, a path"),
    row(' ', "netns-only", To::Nothing, "nothing: of a path, the network namespace is entered"),
    row(' ', "no-netns-quit", To::Flag(|to| to.manner.stays = true), "outlive the namespace"),
    row(' ', "config-net", To::Nothing, "nothing: addresses and routes are always set"),
    row(' ', "no-copy-routes", To::Nothing, "nothing: none is copied"),
    row(' ', "no-copy-addrs", To::Nothing, "nothing"),
    row(' ', "no-splice", To::Nothing, "nothing"),
];

/// Translates pasta's words.
///
/// # Errors
/// The first one that has no equivalent.
pub(super) fn read(args: &[String]) -> anyhow::Result<Translated> {
    let mut to = translate("pasta", &[COMMON, PASTA], args)?;
    let pid = to.rest.first().filter(|_| to.netns.is_none() && to.rest.len() == 1);
    let pid = pid.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit())).cloned();
    addresses(&mut to)?;
    let place = to.netns.clone().or(pid);
    // In the background nothing reads standard error.
    let is_read = to.foreground || place.is_none() || to.manner.log_file.is_some();
    if to.quiet || !is_read {
        to.add(&["--quiet"]);
    }
    match place {
        Some(place) => {
            to.manner.place = Some(place.clone());
            to.manner.background = !to.foreground;
            to.add(&["--netns", &place]);
        }
        None if to.manner.user.is_some() => bail!("--userns is for a PID or --netns: give one of them"),
        None => {
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
            let command = if to.rest.is_empty() { vec![shell] } else { to.rest.clone() };
            to.add(&["--run", "--"]);
            to.words.extend(command);
        }
    }
    Ok(to)
}

/// The guest's addresses, and where the host's loopback is.
pub(super) fn addresses(to: &mut Translated) -> anyhow::Result<()> {
    let guests = guests(to)?;
    to.words.extend(guests.iter().flat_map(|guest| ["--guest".to_owned(), guest.clone()]));
    if !to.no_host_loopback || !to.loopback_at.is_empty() {
        to.add(&["--host-loopback"]);
    }
    for seen in &to.loopback_at {
        let own = if seen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        to.manner.mapped.push((*seen, own));
    }
    Ok(())
}

/// The table.
pub(super) fn usage() -> String {
    help(USAGE, &[COMMON, PASTA])
}

fn guests(to: &Translated) -> anyhow::Result<Vec<String>> {
    if to.addresses.is_empty() {
        return Ok(match (to.only_v4, to.only_v6) {
            (true, true) => bail!("-4 and -6 exclude each other"),
            (true, false) => vec!["10.0.2.15/24".to_owned()],
            (false, true) => vec!["fd74:6175:7400::15/64".to_owned()],
            (false, false) => Vec::new(),
        });
    }
    let one = |text: &String| {
        if text.contains('/') {
            return Ok(text.clone());
        }
        let address: IpAddr = text.parse().with_context(|| format!("{text} is not an address"))?;
        let usual = if address.is_ipv4() { to.prefix.unwrap_or(24) } else { 64 };
        Ok(format!("{address}/{usual}"))
    };
    to.addresses.iter().map(one).collect()
}

fn address(to: &mut Translated, text: &str) -> anyhow::Result<()> {
    to.addresses.push(text.to_owned());
    Ok(())
}

fn netmask(to: &mut Translated, text: &str) -> anyhow::Result<()> {
    let bits = match text.parse::<std::net::Ipv4Addr>() {
        Ok(mask) if mask.to_bits().leading_ones() == mask.to_bits().count_ones() => {
            mask.to_bits().count_ones() as u8
        }
        Ok(_) => bail!("{text} is not a mask"),
        Err(_) => text.parse().ok().filter(|bits| *bits <= 32).context("a mask is bits or an address")?,
    };
    to.prefix = Some(bits);
    Ok(())
}

fn log_file(to: &mut Translated, path: &str) -> anyhow::Result<()> {
    to.manner.log_file = Some(PathBuf::from(path));
    Ok(())
}

fn pid(to: &mut Translated, path: &str) -> anyhow::Result<()> {
    to.manner.pid_file = Some(PathBuf::from(path));
    Ok(())
}

fn none(_: &mut Translated, value: &str) -> anyhow::Result<()> {
    match value {
        "none" | "" => Ok(()),
        other => bail!("{other} has no equivalent in taut; leave the option out, or write none"),
    }
}

fn dns_forward(to: &mut Translated, address: &str) -> anyhow::Result<()> {
    if address != "none" {
        to.manner.dns_at.push(address.parse().with_context(|| format!("{address} is not an address"))?);
    }
    Ok(())
}

/// The last address of each family counts. Without any, it is the gateway's address, unless `none` is given.
fn map_host_loopback(to: &mut Translated, address: &str) -> anyhow::Result<()> {
    if address == "none" {
        to.no_host_loopback = true;
        to.loopback_at.clear();
        return Ok(());
    }
    let seen: IpAddr = address.parse().with_context(|| format!("{address} is not an address"))?;
    to.loopback_at.retain(|other| other.is_ipv4() != seen.is_ipv4());
    to.loopback_at.push(seen);
    Ok(())
}

fn map_guest_addr(to: &mut Translated, address: &str) -> anyhow::Result<()> {
    if address != "none" {
        let seen: IpAddr = address.parse().with_context(|| format!("{address} is not an address"))?;
        // Without a network, this host has no address to map.
        to.manner.mapped.extend(host_address(seen).map(|own| (seen, own)));
    }
    Ok(())
}

fn outbound(to: &mut Translated, address: &str) -> anyhow::Result<()> {
    to.leave_from(address.parse().with_context(|| format!("{address} is not an address"))?);
    Ok(())
}

fn interface(to: &mut Translated, family: usize, name: &str) -> anyhow::Result<()> {
    to.manner.by.interfaces[family] = Some(name.to_owned());
    Ok(())
}

fn netns(to: &mut Translated, place: &str) -> anyhow::Result<()> {
    to.netns = Some(if place.contains('/') { place.to_owned() } else { format!("/run/netns/{place}") });
    Ok(())
}

/// `[ADDRESS[%INTERFACE]/]PORTS`, where PORTS are those of `taut gateway`. Without an address pasta listens
/// at each of the host's.
fn ports(to: &mut Translated, option: &str, spec: &str) -> anyhow::Result<()> {
    if spec == "none" {
        return Ok(());
    }
    let (address, ports) = spec.rsplit_once('/').unwrap_or(("0.0.0.0", spec));
    if address.contains('%') {
        bail!("{spec}: taut does not bind to an interface; give its address");
    }
    let address: IpAddr = address.parse().with_context(|| format!("{spec}: {address} is not an address"))?;
    let text = if address.is_ipv6() { format!("[{address}]:{ports}") } else { format!("{address}:{ports}") };
    to.add(&[option, &text]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::words::split;
    use super::*;

    fn words(line: &str) -> anyhow::Result<Translated> {
        read(&split(line))
    }

    #[test]
    fn gw_190_the_line_of_podman() {
        let to = words(
            "--config-net -t 127.0.0.1/8080-8081:80-81 -t 9000-9000:90-90 -u ::1/53:53 --dns-forward 169.254.1.1 \
             -t none -u none -T none -U none --no-map-gw --quiet --netns /run/user/0/netns/netns-1 \
             --map-guest-addr 169.254.1.2",
        );
        let to = to.unwrap();
        assert_eq!(
            to.words.join(" "),
            "-t 127.0.0.1:8080-8081:80-81 -t 0.0.0.0:9000-9000:90-90 -u [::1]:53:53 --quiet --netns \
             /run/user/0/netns/netns-1"
        );
        assert!(to.manner.background && !to.manner.stays);
        assert_eq!(to.manner.dns_at, ["169.254.1.1".parse::<IpAddr>().unwrap()]);
        assert!(to.manner.mapped.iter().all(|(seen, _)| seen.to_string() == "169.254.1.2"));
    }

    #[test]
    fn gw_190_other_lines() {
        for (line, expected) in [
            ("-f --no-map-gw 4711", "--netns 4711"),
            (
                "-f -m 1500 -a 10.1.0.5 -n 255.255.0.0 -g 10.1.0.1 -I tap0 4711",
                "--mtu 1500 --gateway 10.1.0.1 --interface tap0 --guest 10.1.0.5/16 --host-loopback --netns 4711",
            ),
            ("-4 --no-map-gw -- ip addr", "--guest 10.0.2.15/24 --run -- ip addr"),
            ("-fq4 --no-map-gw --netns=blue", "--guest 10.0.2.15/24 --quiet --netns /run/netns/blue"),
            ("--no-udp --no-map-gw -t auto -f 1", "--rule deny udp any -t 0.0.0.0:auto --netns 1"),
            ("--no-map-gw --dns-host 192.0.2.53 -f 1", "--dns 192.0.2.53 --netns 1"),
        ] {
            assert_eq!(words(line).unwrap().words.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn gw_251_a_user_namespace_and_the_loopback_at_an_address() {
        let to = words("-f --userns /proc/7/ns/user --no-map-gw --netns /run/netns/x").unwrap();
        assert_eq!(to.words.join(" "), "--netns /run/netns/x");
        assert_eq!(to.manner.user.as_deref(), Some("/proc/7/ns/user"));
        let mapped = |line: &str| {
            let to = words(&format!("-f {line} 1")).unwrap();
            let is_open = to.words.contains(&"--host-loopback".to_owned());
            let all = to.manner.mapped.iter().map(|(seen, own)| format!("{seen}={own}")).collect::<Vec<_>>();
            (is_open, all.join(" "))
        };
        for (line, is_open, all) in [
            ("", true, ""),
            ("--map-host-loopback none", false, ""),
            ("--map-host-loopback 169.254.1.3", true, "169.254.1.3=127.0.0.1"),
            ("--no-map-gw --map-host-loopback 169.254.1.3", true, "169.254.1.3=127.0.0.1"),
            // The last one of each family.
            (
                "--map-host-loopback 192.0.2.1 --map-host-loopback 2001:db8::1 --map-host-loopback 192.0.2.2",
                true,
                "2001:db8::1=::1 192.0.2.2=127.0.0.1",
            ),
            ("--map-host-loopback 192.0.2.1 --map-host-loopback none", false, ""),
        ] {
            assert_eq!(mapped(line), (is_open, all.to_owned()), "{line}");
        }
        for (line, why) in [("--map-host-loopback x 1", "not an address"), ("--userns /x -- sh", "--netns")] {
            let error = format!("{:#}", words(line).unwrap_err());
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn gw_222_where_flows_leave_from() {
        let by =
            words("-f -o 192.0.2.1 -o 2001:db8::1 -o 192.0.2.2 --outbound-if4 eth0 --outbound-if6=eth1 1");
        let by = by.unwrap().manner.by;
        assert_eq!(by.addresses, ["2001:db8::1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap()));
        assert_eq!(by.interfaces, ["eth0", "eth1"].map(|name| Some(name.to_owned())));
        let error = format!("{:#}", words("-o eth0 1").unwrap_err());
        assert!(error.contains("--outbound: eth0 is not an address"), "{error}");
    }

    #[test]
    fn gw_190_what_is_not_mapped_is_named() {
        for (line, named) in [
            ("--vhost-user 1", "--vhost-user"),
            ("-Z 1", "-Z"),
            ("-T auto 1", "--tcp-ns: auto has no equivalent"),
            ("-F 3 1", "-F has no equivalent"),
            ("-t 10.0.0.1%eth0/80 1", "does not bind to an interface"),
            ("-n 255.0.255.0 1", "is not a mask"),
            ("--mtu", "--mtu needs a value"),
            ("--quiet=1 1", "takes no value"),
        ] {
            let error = format!("{:#}", words(line).unwrap_err());
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
