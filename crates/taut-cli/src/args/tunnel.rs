//! `wireguard:FILE`: a WireGuard tunnel by the file of `wg-quick` (`taut-wireguard`).
//!
//! Called by `device.rs`, and by the ways out of `taut gateway`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use serde_json::{Map, Value, json};
use taut::StackBuilder;
use taut::dns::Resolver;
use taut_control::protocol::DeviceReport;
use taut_wireguard::status::{PeerStatus, Status};
use taut_wireguard::{Config, Monitor, WireGuard};

use crate::shared::clock;
use crate::shared::log::{self, Level};

/// A tunnel that is not open yet.
#[derive(Clone, Debug)]
pub(crate) struct Tunnel {
    pub(crate) path: PathBuf,
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
        WireGuard::open(&config).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => {
                anyhow!(
                    "{error}\n  Next: choose another ListenPort in {}, or leave it out",
                    self.path.display()
                )
            }
            _ => anyhow!(
                "{error}\n  Next: check each Endpoint in {}, and this machine's name servers",
                self.path.display()
            ),
        })
    }

    /// The open tunnel, for `taut wg show`.
    pub(crate) fn shown(&self, device: &WireGuard) -> Shown {
        Shown { name: self.name(), monitor: device.monitor() }
    }

    /// Where its stack looks names up: by its name servers, else nowhere. The host's are outside.
    pub(crate) fn resolver(&self) -> Resolver {
        match self.name_servers() {
            Ok(servers) => Resolver::Servers(servers),
            Err(_) => Resolver::Nowhere,
        }
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

/// A tunnel whose state the control socket of a stack has.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    name: String,
    pub(crate) monitor: Monitor,
}

impl Shown {
    /// Gives it to a stack, which need not be the one that uses the tunnel.
    pub(crate) fn on(self, builder: StackBuilder) -> StackBuilder {
        builder.control_device(move || {
            let status = self.monitor.status();
            let (text, json) = (status.to_string(), json(&status, clock::wall()));
            DeviceReport { name: self.name.clone(), text, json }
        })
    }
}

/// The names of `wg-json`, which leaves out what is not there, and `mtu` and `drops`; `now` is in seconds
/// since 1970.
fn json(Status { public_key, port, peers, drops }: &Status, now: f64) -> Value {
    let peer = |peer: &PeerStatus| {
        let handshake = peer.since_handshake.map(|since| (now - since.as_secs_f64()) as u64);
        let allowed: Vec<_> = peer.allowed_ips.iter().map(|cidr| cidr.network().to_string()).collect();
        let mut fields = Map::new();
        let known = [
            ("endpoint", peer.endpoint.map(|at| json!(at.to_string()))),
            ("latestHandshake", handshake.map(Value::from)),
            ("transferRx", Some(peer.rx_bytes).filter(|bytes| *bytes > 0).map(Value::from)),
            ("transferTx", Some(peer.tx_bytes).filter(|bytes| *bytes > 0).map(Value::from)),
            ("persistentKeepalive", peer.persistent_keepalive.map(|every| every.as_secs().into())),
            ("allowedIps", Some(json!(allowed))),
            ("mtu", Some(peer.mtu.into())),
        ];
        fields.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        (peer.public_key.to_string(), Value::from(fields))
    };
    json!({
        "publicKey": public_key.to_string(),
        "listenPort": port,
        "peers": peers.iter().map(peer).collect::<Map<_, _>>(),
        "drops": {
            "invalid": drops.invalid, "replayed": drops.replayed, "stranger": drops.stranger,
            "source": drops.source, "congestion": drops.congestion, "cookies": drops.cookies,
            "tooBig": drops.too_big, "unsent": drops.unsent,
        },
    })
}
