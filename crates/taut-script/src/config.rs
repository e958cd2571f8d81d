//! The circumstances of a script: addresses, ports, tolerances. From the command's options, then from the
//! options at the top of the script, which have packetdrill's names. Read by the runner.

use std::collections::BTreeMap;
use std::net::IpAddr;

use taut_core::{Duration, LinkCaps};

use crate::script::Value;

/// The version of IP that a script runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

/// The circumstances of a script.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The version of IP.
    pub ip_version: IpVersion,
    /// The stack's address; by default 192.168.0.1, or fd3d:0a0b:17d6::1.
    pub local_ip: Option<IpAddr>,
    /// The peer's; by default 192.0.2.1, or fd3d:fa7b:d17d::1.
    pub remote_ip: Option<IpAddr>,
    /// The port of `bind(3, ..., ...)`.
    pub bind_port: u16,
    /// The port of `connect(3, ..., ...)`.
    pub connect_port: u16,
    /// How far the time of a packet or of the end of a call may differ. packetdrill: 4 ms.
    pub tolerance: Duration,
    /// MTU of the link; by default 1500, or 1520 for IPv6, so that segments are of the same size in both.
    pub mtu: Option<u16>,
    /// The MSS that the link allows: another way to say its MTU.
    pub mss: Option<u16>,
    /// Whether the packets of the stack must be cut as the script writes them. If not, several packets of the
    /// stack may make up one of the script, and a super-packet may make up several.
    pub strict_segments: bool,
    /// Length of a unit of TSval in the script; without it, TSvals that the stack sends are not compared.
    pub ts_tick: Option<Duration>,
    /// Names for values: `--define NAME=VALUE`.
    pub defines: BTreeMap<String, Value>,
    /// Keeps a line for each event, with its time.
    pub verbose: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ip_version: IpVersion::V4,
            local_ip: None,
            remote_ip: None,
            bind_port: 8_080,
            connect_port: 8_080,
            tolerance: Duration::from_micros(4_000),
            mtu: None,
            mss: None,
            strict_segments: false,
            ts_tick: None,
            defines: BTreeMap::new(),
            verbose: false,
        }
    }
}

/// Options that mean nothing where no interface is made.
const WITHOUT_MEANING: [&str; 3] = ["gateway_ip", "netmask_ip", "speed"];

impl Config {
    /// Another version of IP.
    #[must_use]
    pub fn over(mut self, version: IpVersion) -> Self {
        self.ip_version = version;
        self
    }

    /// Sets an option by packetdrill's name.
    ///
    /// # Errors
    /// The option is unknown, or cannot be honoured, or its value is out of range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("--{name}={value}: expected {expected}");
        let span = || value.parse().map(Duration::from_micros).map_err(|_| wrong("a number of microseconds"));
        let port = || value.parse().map_err(|_| wrong("a port"));
        let address = || value.parse::<IpAddr>().map_err(|_| wrong("an IP address"));
        match name {
            "ip_version" => {
                self.ip_version = match value {
                    "ipv4" => IpVersion::V4,
                    "ipv6" => IpVersion::V6,
                    _ => return Err(wrong("ipv4 or ipv6")),
                }
            }
            "local_ip" => self.local_ip = Some(address()?),
            "remote_ip" => self.remote_ip = Some(address()?),
            "bind_port" => self.bind_port = port()?,
            "connect_port" => self.connect_port = port()?,
            "tolerance_usecs" => self.tolerance = span()?,
            "tcp_ts_tick_usecs" => self.ts_tick = Some(span()?).filter(|tick| !tick.is_zero()),
            "mtu" => {
                let mtu = value.parse().ok().filter(|mtu| *mtu >= 68);
                self.mtu = Some(mtu.ok_or_else(|| wrong("68 to 65535"))?);
            }
            "mss" => {
                let mss = value.parse().ok().filter(|mss: &u16| (48..=65_000).contains(mss));
                self.mss = Some(mss.ok_or_else(|| wrong("48 to 65000"))?);
            }
            "strict_segments" => self.strict_segments = true,
            "verbose" | "debug" => self.verbose = true,
            "define" | "D" => self.define(value)?,
            _ if WITHOUT_MEANING.contains(&name) => {}
            _ => return Err(format!("--{name} cannot be honoured: there is no such option")),
        }
        Ok(())
    }

    /// Gives a value a name: `NAME=VALUE`.
    ///
    /// # Errors
    /// There is no `=`.
    pub fn define(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: expected NAME=VALUE"))?;
        let number =
            value.strip_prefix("0x").map_or_else(|| value.parse(), |hex| i64::from_str_radix(hex, 16));
        let value = number.map_or_else(|_| Value::Name(value.to_owned()), Value::Int);
        self.defines.insert(name.to_owned(), value);
        Ok(())
    }

    pub(crate) fn local(&self) -> IpAddr {
        self.local_ip.unwrap_or(match self.ip_version {
            IpVersion::V4 => IpAddr::from([192, 168, 0, 1]),
            IpVersion::V6 => IpAddr::from([0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1]),
        })
    }

    pub(crate) fn remote(&self) -> IpAddr {
        self.remote_ip.unwrap_or(match self.ip_version {
            IpVersion::V4 => IpAddr::from([192, 0, 2, 1]),
            IpVersion::V6 => IpAddr::from([0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1]),
        })
    }

    pub(crate) fn link(&self) -> LinkCaps {
        let (headers, mtu) = match self.ip_version {
            IpVersion::V4 => (40, 1_500),
            IpVersion::V6 => (60, 1_520),
        };
        LinkCaps::offloading(self.mss.map(|mss| mss + headers).or(self.mtu).unwrap_or(mtu))
    }

    /// What a name stands for.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        match self.defines.get(name) {
            Some(Value::Int(value)) => Some(*value),
            Some(Value::Name(other)) => crate::constants::constant(other),
            _ => crate::constants::constant(name),
        }
    }
}
