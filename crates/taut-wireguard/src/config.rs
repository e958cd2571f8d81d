//! A tunnel's configuration: the file of wg-quick(8), which has that of wg(8) in it. Read by the commands and
//! by programs that open a [`WireGuard`](crate::WireGuard).
//!
//! A key that neither program has is an error with its line. Keys of wg-quick that concern the kernel's
//! interface, such as `PostUp`, are listed in [`Config::unused`]. Secrets are never part of an error.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::str::FromStr;

use taut_device::Cidr;
use zeroize::Zeroizing;

use crate::key::{KEY_BYTES, PresharedKey, PrivateKey, PublicKey};

/// Default of the largest inner packet: an Ethernet of 1500 carries them in IPv6 (wg-quick(8)).
pub const MTU_DEFAULT: u16 = 1420;

/// Bytes of a file: as many as tens of thousands of peers need.
const FILE_MAX: u64 = 16 << 20;

/// RFC 791 §3.2: what every link carries at least.
const MTU_MIN: u16 = 68;

/// Keys by which `wg-quick` changes the kernel's interface; a stack has none.
const KERNEL_ONLY: [&str; 7] = ["fwmark", "table", "preup", "postup", "predown", "postdown", "saveconfig"];

/// A tunnel.
#[derive(Clone, Debug)]
pub struct Config {
    /// This end's identity.
    pub private_key: PrivateKey,
    /// Addresses of the stack in the tunnel.
    pub addresses: Vec<Cidr>,
    /// Name servers in the tunnel.
    pub dns: Vec<IpAddr>,
    /// Domains that are searched for short names.
    pub search: Vec<String>,
    /// Largest inner packet; [`MTU_DEFAULT`] if there is none.
    pub mtu: Option<u16>,
    /// UDP port of this end; any free one if there is none.
    pub listen_port: Option<u16>,
    /// The other ends.
    pub peers: Vec<PeerConfig>,
    /// Keys with an effect on a kernel's interface only, with their lines.
    pub unused: Vec<(usize, String)>,
}

/// A far end of a tunnel.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Its identity.
    pub public_key: PublicKey,
    /// A secret that both ends have besides.
    pub preshared_key: Option<PresharedKey>,
    /// Networks that are reached through it, and from which it may send.
    pub allowed_ips: Vec<Cidr>,
    /// Where it is, unless it is the one to begin.
    pub endpoint: Option<Endpoint>,
    /// Seconds of silence after which it is sent an empty packet, which keeps the state of a NAT.
    pub persistent_keepalive: Option<u16>,
}

/// A host, by name or address, and a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// A configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Line of the file, from 1; 0 for the file as a whole.
    pub line: usize,
    what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Endpoint {
    /// Its address now. The system's resolver may wait for seconds.
    ///
    /// # Errors
    /// The name is unknown, or no resolver answers.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| io::Error::new(error.kind(), format!("the endpoint {self}: {error}")))?;
        found.next().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("the endpoint {self} has no address"))
        })
    }

    /// Its host, a name or an address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its UDP port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is a name, whose address may change.
    #[must_use]
    pub fn is_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not HOST:PORT, such as vpn.example.org:51820 or [2001:db8::1]:51820");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok()),
            None => Some(host).filter(|host| !host.is_empty() && !host.contains(':')),
        };
        Ok(Self { host: host.ok_or_else(wrong)?.to_owned(), port })
    }
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if every user of this machine can read or change it;
    /// [`io::ErrorKind::InvalidData`] with a [`ConfigError`]; and those of reading.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = std::fs::File::open(path).map_err(named)?;
        refuse_open_to_all(&file).map_err(named)?;
        let text = read_text(file).map_err(named)?;
        text.parse().map_err(|error: ConfigError| named(io::Error::new(io::ErrorKind::InvalidData, error)))
    }
}

/// The whole of a text that is not absurdly long.
fn read_text(file: std::fs::File) -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if bytes.len() as u64 > FILE_MAX {
        return Err(wrong(format!("has more than {} MiB: it is no configuration", FILE_MAX >> 20)));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(wrong("is not text in UTF-8: save it as that".to_owned())),
    }
}

#[cfg(unix)]
fn refuse_open_to_all(file: &std::fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o007 == 0 {
        return Ok(());
    }
    let message =
        format!("has a private key and mode {mode:03o}, so that every user can use it: chmod 600 it");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

#[cfg(not(unix))]
fn refuse_open_to_all(_: &std::fs::File) -> io::Result<()> {
    Ok(())
}

/// A section whose end has not been read.
enum Section {
    None,
    Interface,
    Peer { line: usize, key: Option<PublicKey>, peer: PeerConfig },
}

/// The file so far.
struct Reader {
    section: Section,
    private_key: Option<PrivateKey>,
    config: Config,
    /// Keys of the peers so far.
    keys: BTreeSet<[u8; KEY_BYTES]>,
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        // The file's own key takes the place of this one.
        let placeholder = PrivateKey([0; 32].into());
        let config = Self {
            private_key: placeholder,
            addresses: Vec::new(),
            dns: Vec::new(),
            search: Vec::new(),
            mtu: None,
            listen_port: None,
            peers: Vec::new(),
            unused: Vec::new(),
        };
        let mut reader = Reader { section: Section::None, private_key: None, config, keys: BTreeSet::new() };
        // Editors of Windows put a mark of the byte order in front.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (line, text) in (1..).zip(text.lines()) {
            reader.line(line, text).map_err(|what| ConfigError { line, what })?;
        }
        reader.end()
    }
}

/// The parts of a list.
fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn number(value: &str) -> Result<u16, String> {
    value.parse().map_err(|_| format!("{value:?} is not a number from 0 to 65535"))
}

fn cidrs(value: &str) -> Result<Vec<Cidr>, String> {
    list(value).map(|part| part.parse::<Cidr>().map_err(|error| error.to_string())).collect()
}

impl Reader {
    fn line(&mut self, line: usize, text: &str) -> Result<(), String> {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            return Ok(());
        }
        if text.starts_with('[') {
            self.end_section()?;
            self.section = match text.to_ascii_lowercase().as_str() {
                "[interface]" => Section::Interface,
                "[peer]" => {
                    let peer = PeerConfig {
                        public_key: PublicKey([0; 32].into()),
                        preshared_key: None,
                        allowed_ips: Vec::new(),
                        endpoint: None,
                        persistent_keepalive: None,
                    };
                    Section::Peer { line, key: None, peer }
                }
                _ => return Err(format!("unknown section {text}: expected [Interface] or [Peer]")),
            };
            return Ok(());
        }
        let Some((key, value)) = text.split_once('=') else {
            // It may be half a secret.
            return Err("expected KEY = VALUE, or a section such as [Peer]".to_owned());
        };
        let (key, value) = (key.trim(), value.trim());
        match &mut self.section {
            Section::None => Err(format!("{key} stands before [Interface]")),
            Section::Interface => self.interface(line, key, value),
            Section::Peer { key: own, peer, .. } => peer_key(own, peer, key, value),
        }
    }

    fn interface(&mut self, line: usize, key: &str, value: &str) -> Result<(), String> {
        let config = &mut self.config;
        match key.to_ascii_lowercase().as_str() {
            "privatekey" => {
                self.private_key = Some(value.parse().map_err(|error| format!("{key}: {error}"))?);
            }
            "address" => config.addresses.extend(cidrs(value)?),
            "dns" => {
                for part in list(value) {
                    match part.parse() {
                        Ok(server) => config.dns.push(server),
                        Err(_) => config.search.push(part.to_owned()),
                    }
                }
            }
            "mtu" => {
                let mtu = number(value)?;
                if mtu < MTU_MIN {
                    return Err(format!("MTU {mtu} is too small: IP needs {MTU_MIN}"));
                }
                config.mtu = Some(mtu);
            }
            "listenport" => config.listen_port = Some(number(value)?),
            other if KERNEL_ONLY.contains(&other) => config.unused.push((line, key.to_owned())),
            _ => return Err(format!("unknown key {key} in [Interface]")),
        }
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), String> {
        let Section::Peer { line, key, mut peer } = std::mem::replace(&mut self.section, Section::None)
        else {
            return Ok(());
        };
        let Some(public_key) = key else { return Err(format!("the [Peer] of line {line} has no PublicKey")) };
        if !self.keys.insert(public_key.to_bytes()) {
            return Err(format!("the [Peer] of line {line} has the PublicKey of another one"));
        }
        peer.public_key = public_key;
        self.config.peers.push(peer);
        Ok(())
    }

    fn end(mut self) -> Result<Config, ConfigError> {
        let whole = |what| ConfigError { line: 0, what };
        self.end_section().map_err(whole)?;
        let Some(private_key) = self.private_key else {
            return Err(whole("there is no PrivateKey in [Interface]".to_owned()));
        };
        Ok(Config { private_key, ..self.config })
    }
}

fn peer_key(
    own: &mut Option<PublicKey>,
    peer: &mut PeerConfig,
    key: &str,
    value: &str,
) -> Result<(), String> {
    match key.to_ascii_lowercase().as_str() {
        "publickey" => *own = Some(value.parse().map_err(|error| format!("{key}: {error}"))?),
        "presharedkey" => {
            peer.preshared_key = Some(value.parse().map_err(|error| format!("{key}: {error}"))?);
        }
        "allowedips" => peer.allowed_ips.extend(cidrs(value)?),
        "endpoint" => peer.endpoint = Some(value.parse()?),
        "persistentkeepalive" => {
            let off = value.eq_ignore_ascii_case("off");
            peer.persistent_keepalive = if off { None } else { Some(number(value)?).filter(|&s| s > 0) };
        }
        _ => return Err(format!("unknown key {key} in [Peer]")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
