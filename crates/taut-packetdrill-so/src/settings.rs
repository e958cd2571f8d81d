//! The flags of the tool (`--so_flags`), and the sysctls of its network namespace.
//!
//! Scripts set up a kernel by `/proc/sys`, which the tool's shell commands write before a socket is made. So whenever a
//! socket is made, the settings that this stack has are read there and taken over; a value that it does not take is
//! left as it was.

use std::net::IpAddr;

use taut_script::{Config, Host};

/// The stack that the flags describe, and whether it reads sysctls.
pub(crate) fn host(flags: &str) -> Result<(Host, bool), String> {
    let mut config = Config::default();
    let (mut addresses, mut settings, mut reads) = (Vec::new(), Vec::new(), true);
    for flag in flags.split_whitespace() {
        let (name, value) = flag.split_once('=').ok_or_else(|| format!("{flag}: expected NAME=VALUE"))?;
        match name {
            "address" => {
                addresses.push(value.parse::<IpAddr>().map_err(|_| format!("{value} is no IP address"))?);
            }
            "mtu" => config.set("mtu", value)?,
            "sysctls" => reads = value != "no",
            _ => settings.push((name, value)),
        }
    }
    let mut host = Host::for_any_address(&config, &addresses);
    for (name, value) in settings {
        host.set_sysctl(name, value)?;
    }
    Ok((host, reads))
}

/// Takes over the sysctls of the namespace.
pub(crate) fn read_sysctls(host: &mut Host) {
    for name in host.sysctl_names() {
        if !name.starts_with("net.") {
            continue;
        }
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        if let Ok(value) = std::fs::read_to_string(path) {
            // A value that this stack does not take: the stack's own stays.
            let _ = host.set_sysctl(name, value.trim());
        }
    }
}
