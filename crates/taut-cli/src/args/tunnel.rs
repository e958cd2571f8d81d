//! `wireguard:FILE`: a WireGuard tunnel by the file of `wg-quick` (`taut-wireguard`).
//!
//! Called by `device.rs`, and by the ways out of `taut gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::bail;
use taut_wireguard::{Config, WireGuard};

use crate::shared::log::{self, Level};

/// A tunnel that is not open yet.
#[derive(Clone, Debug)]
pub(crate) struct Tunnel {
    path: PathBuf,
    pub(crate) config: Config,
}

/// The keys of two files may differ in ways that are not shown.
impl PartialEq for Tunnel {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Tunnel {}

/// The port of name servers (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;

impl Tunnel {
    /// Reads the file.
    pub(crate) fn read(path: &str) -> Result<Self, String> {
        let config = Config::read(path).map_err(|error| error.to_string())?;
        if config.addresses.is_empty() {
            return Err(format!("{path}: no Address in [Interface]: a stack needs one"));
        }
        Ok(Self { path: path.into(), config })
    }

    /// Its name: that of the file, as with `wg-quick`.
    pub(crate) fn name(&self) -> String {
        self.path
            .file_stem()
            .map_or_else(|| "wireguard".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Opens it, with this MTU rather than the file's if it is given.
    ///
    /// # Errors
    /// The port is in use, or the name of an endpoint is unknown.
    pub(crate) fn open(&self, mtu: Option<u16>) -> anyhow::Result<WireGuard> {
        for (line, key) in &self.config.unused {
            let text =
                format!("{}: line {line}: {key} has no effect: there is no interface", self.path.display());
            log::notice(Level::Warn, "unused-key", &text);
        }
        let config = Config { mtu: mtu.or(self.config.mtu), ..self.config.clone() };
        Ok(WireGuard::open(&config)?)
    }

    /// Its name servers.
    ///
    /// # Errors
    /// There are none, so that names would be looked up outside.
    pub(crate) fn name_servers(&self) -> anyhow::Result<Vec<SocketAddr>> {
        if self.config.dns.is_empty() {
            bail!(
                "{} has no DNS: give --dns ADDRESS of a name server in the tunnel; the host's are outside",
                self.path.display()
            );
        }
        Ok(self.config.dns.iter().map(|server| SocketAddr::new(*server, DNS_PORT)).collect())
    }
}
