//! The API socket of slirp4netns: `add_hostfwd`, `list_hostfwd`, `remove_hostfwd`. A client sends one JSON
//! object and gets one (slirp4netns(1), "API SOCKET"). A door to `taut_gateway::Live`; called by
//! `net/live/mod.rs`.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use taut::FlowKind;
use taut_gateway::{ClientAddress, Forward, Live};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// The longest request.
const LONGEST: usize = 8 << 10;
/// How long a client may take for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The API of one gateway.
pub(crate) struct Api(Live);

#[derive(Deserialize)]
struct Request {
    execute: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Proto {
    Tcp,
    Udp,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct HostForward {
    proto: Proto,
    #[serde(default = "any", deserialize_with = "address")]
    host_addr: IpAddr,
    host_port: u16,
    #[serde(default = "any", deserialize_with = "address")]
    guest_addr: IpAddr,
    guest_port: u16,
}

const fn any() -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
}

/// Podman sends an empty text for any address.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<IpAddr, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() { Ok(any()) } else { text.parse().map_err(D::Error::custom) }
}

impl Api {
    pub(crate) const fn new(live: Live) -> Self {
        Self(live)
    }

    /// Serves clients, one after the other, if there is a socket.
    pub(crate) async fn serve(self, socket: Option<UnixListener>) -> Infallible {
        let Some(socket) = socket else { return std::future::pending().await };
        loop {
            match socket.accept().await {
                Ok((client, _)) => _ = timeout(PATIENCE, self.client(client)).await,
                // No descriptor is left: another time.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn client(&self, mut client: UnixStream) -> io::Result<()> {
        let mut text = Vec::new();
        let answer = loop {
            if client.read_buf(&mut text).await? == 0 || text.len() > LONGEST {
                break refusal("bad request: it is not a JSON object");
            }
            match serde_json::from_slice::<Request>(&text) {
                Ok(request) => break self.answer(request).await.unwrap_or_else(|error| refusal(&error)),
                Err(error) if error.is_eof() => {}
                Err(error) => break refusal(&format!("bad request: {error}")),
            }
        };
        client.write_all(answer.to_string().as_bytes()).await
    }

    async fn answer(&self, request: Request) -> Result<Value, String> {
        let wrong = |error: serde_json::Error| format!("bad request: {}: {error}", request.execute);
        match &*request.execute {
            "add_hostfwd" => {
                let forward = serde_json::from_value(request.arguments).map_err(wrong)?;
                self.add(&forward).map(|id| json!({ "return": { "id": id } }))
            }
            "list_hostfwd" => {
                let entries: Vec<Value> = self.0.forwards().iter().map(|one| self.entry(one)).collect();
                Ok(json!({ "return": { "entries": entries } }))
            }
            "remove_hostfwd" => {
                let id = request.arguments["id"].as_u64().ok_or("bad request: remove_hostfwd: no id")?;
                let all = self.0.forwards();
                let (_, one) = all
                    .iter()
                    .find(|(own, _)| *own == id)
                    .ok_or("bad request: remove_hostfwd: no such id")?;
                let removed = self.0.remove_forward(one.kind, one.at).await;
                removed.map_err(|error| format!("bad request: remove_hostfwd: {error}"))?;
                Ok(json!({ "return": {} }))
            }
            other => Err(format!("bad request: no command {other}")),
        }
    }

    fn entry(&self, (id, forward): &(u64, Forward)) -> Value {
        let mut entry = json!(HostForward {
            proto: if forward.kind == FlowKind::Tcp { Proto::Tcp } else { Proto::Udp },
            host_addr: forward.at.ip(),
            host_port: forward.at.port(),
            guest_addr: self.0.guest(),
            guest_port: forward.port,
        });
        entry["id"] = json!(id);
        entry
    }

    fn add(&self, forward: &HostForward) -> Result<u64, String> {
        let guest = self.0.guest();
        if !forward.guest_addr.is_unspecified() && forward.guest_addr != guest {
            return Err(format!(
                "bad request: add_hostfwd: guest_addr {} is not {guest}",
                forward.guest_addr
            ));
        }
        let kind = if forward.proto == Proto::Tcp { FlowKind::Tcp } else { FlowKind::Udp };
        let at = SocketAddr::new(forward.host_addr, forward.host_port);
        let client = ClientAddress::default();
        let one = Forward { kind, at, guest: None, port: forward.guest_port, is_any: false, client };
        self.0.add_forward(one).map_err(|error| format!("bad request: add_hostfwd: {error}"))
    }
}

fn refusal(why: &str) -> Value {
    json!({ "error": { "desc": why } })
}
