//! The HTTP API of gvproxy (github.com/containers/gvisor-tap-vsock, README.md), for programs that have one:
//! its paths, its JSON, its status codes and errors.
//!
//! | path | |
//! |---|---|
//! | POST `/services/forwarder/expose`, `unexpose`; `/services/forwarder/all` | forwarded ports |
//! | POST `/services/dns/add`; `/services/dns/all` | zones, whose names the gateway answers itself |
//! | `/leases`, `/services/dhcp/leases` | addresses of a virtual machine |
//! | `/stats` | bytes both ways, and the gateway's counters |
//!
//! `/cam`, `/connect` and `/tunnel` are not there. `http_loop.rs` bounds clients and their time, and a body
//! has 64 KiB at most. A Unix socket with mode 0600 is of this user alone, and no page in a browser reaches
//! it, so requests of other sites need no check. Called by `mod.rs`.
//!
//! **Guests** have it with `--guest-api`, at port 80 of the gateway's own address: podman in a machine
//! exposes ports of containers there. A guest exposes its own ports, 64 at most, and takes back those that it
//! has exposed. Nothing else is there for it. A browser in the guest could be led there by a page, so a
//! request must name the gateway as its host, and must not come from a page of another one.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use taut::FlowKind;
use taut_gateway::{Caller, Callers, ClientAddress, Forward, ForwardsError, Live, Zone, ZoneError};

use crate::net::gateway_log::say;
use crate::shared::http_loop::{self, Peer};
use crate::shared::log::Level;

/// The longest body. A zone with a thousand records has less.
const BODY_MAX: usize = 64 << 10;
/// How long a client may take for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ports that a guest may expose.
const OF_GUEST_MAX: usize = 64;
/// The domain of gvproxy's names, and these.
const DOMAIN: &str = "containers.internal";
const NAMES: [&str; 2] = ["gateway", "host"];

/// Guests as clients; `None`, and an error in the log, if their names cannot be added.
pub(super) fn callers(live: &Live) -> Option<Callers> {
    let own = live.server().look(|gateway| gateway.settings().own.clone());
    let records = NAMES.iter().flat_map(|name| own.iter().map(|own| ((*name).to_owned(), *own)));
    let zone = Zone { name: DOMAIN.to_owned(), records: records.collect(), default: None };
    if let Err(error) = live.add_zone(zone) {
        say(Level::Error, "no-guest-api", &format!("--guest-api: {error}"));
        return None;
    }
    live.callers()
}

impl http_loop::Listener for Callers {
    type Stream = Caller;

    async fn next(&self) -> std::io::Result<Caller> {
        Ok(self.next().await)
    }

    fn peer(caller: &Caller) -> Option<Peer> {
        Some(Peer { address: caller.address(), guest: caller.guest() })
    }
}

/// Serves the API, if there is a socket for it.
pub(super) async fn serve<L: http_loop::Listener>(socket: Option<L>, live: Live) -> Infallible {
    let Some(socket) = socket else { return std::future::pending().await };
    let api = Arc::new(Api { live, texts: Mutex::default() });
    let service = service_fn(move |request| {
        let api = Arc::clone(&api);
        async move { Ok::<_, Infallible>(api.respond(request).await) }
    });
    http_loop::serve(&socket, service).await
}

/// The API of one gateway.
struct Api {
    live: Live,
    /// The words in which clients have named the ports, by the numbers of these.
    texts: Mutex<BTreeMap<u64, Words>>,
}

/// The two ends of a forwarded port, and the guest that has exposed it.
#[derive(Clone, Debug)]
struct Words {
    local: String,
    remote: String,
    by: Option<IpAddr>,
}

/// A port to expose, or not to.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Exposed {
    local: String,
    remote: String,
    protocol: String,
}

/// A zone. Go's names of fields, in small letters ([`lowered`]).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GivenZone {
    name: String,
    records: Option<Vec<GivenRecord>>,
    defaultip: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GivenRecord {
    name: String,
    ip: Option<String>,
    regexp: Value,
}

/// An error as gvproxy gives it: a status and a line of text.
#[derive(Debug)]
struct Refusal(StatusCode, String);

type Answer = Result<Option<Value>, Refusal>;

/// A mistake of the client's.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn bad(why: impl ToString) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, why.to_string())
}

/// A request that cannot be fulfilled.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(why: impl ToString) -> Refusal {
    Refusal(StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
}

impl Api {
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, kind, text) = match self.answer(request).await {
            Ok(Some(value)) => (StatusCode::OK, "application/json", format!("{value}\n")),
            Ok(None) => (StatusCode::OK, "text/plain", String::new()),
            Err(Refusal(status, why)) => (status, "text/plain; charset=utf-8", format!("{why}\n")),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
        response
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let is_post = head.method == Method::POST;
        let post = || if is_post { Ok(body) } else { Err(bad("post only")) };
        let guest = head.extensions.get().copied();
        let path = head.uri.path();
        if guest.is_some() {
            self.check_caller(&head)?;
        }
        match path {
            "/services/forwarder/expose" => self.expose(guest, read(post()?).await?).map(|()| None),
            "/services/forwarder/unexpose" => self.unexpose(guest, read(post()?).await?).await.map(|()| None),
            _ if guest.is_some() => Err(Refusal(StatusCode::NOT_FOUND, "404 page not found".to_owned())),
            "/services/forwarder/all" => Ok(Some(self.exposed())),
            "/services/dns/all" => Ok(Some(self.zones())),
            "/services/dns/add" => self.add_zone(read(post()?).await?).map(|()| None),
            "/leases" | "/services/dhcp/leases" => Ok(Some(self.leases())),
            "/stats" => Ok(Some(self.stats())),
            _ => Err(Refusal(StatusCode::NOT_FOUND, "404 page not found".to_owned())),
        }
    }

    /// A page in a guest's browser must not send requests in the guest's name: neither by a name of its own
    /// for the gateway's address, nor from another site.
    fn check_caller(&self, head: &Parts) -> Result<(), Refusal> {
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let name = host.strip_suffix(":80").unwrap_or(host).to_ascii_lowercase();
        let is_own = |own: &IpAddr| name.trim_matches(['[', ']']).parse() == Ok(*own);
        let is_name =
            |known: &&str| name.strip_prefix(*known).and_then(|rest| rest.strip_prefix('.')) == Some(DOMAIN);
        let is_for_us = NAMES.iter().any(is_name)
            || self.live.server().look(|gateway| gateway.settings().own.iter().any(is_own));
        if !is_for_us || head.headers.contains_key(ORIGIN) {
            return Err(Refusal(StatusCode::FORBIDDEN, "for programs, at the gateway's own name".to_owned()));
        }
        Ok(())
    }

    /// For a guest, one of its own ports.
    fn expose(&self, caller: Option<Peer>, asked: Exposed) -> Result<(), Refusal> {
        let (kind, at) = place(&asked)?;
        let (host, port) = asked
            .remote
            .rsplit_once(':')
            .ok_or_else(|| bad(format!("address {}: missing port in address", asked.remote)))?;
        let port = port.parse().map_err(|_| bad(format!("address {}: invalid port", asked.remote)))?;
        let by = caller.map(|peer| peer.guest);
        let caller = caller.map(|peer| peer.address);
        let guest = caller.unwrap_or_else(|| self.live.guest());
        let other = match host.trim_matches(['[', ']']) {
            "" => None,
            text => {
                let may_be =
                    |other: &IpAddr| *other == guest || caller.is_none() && self.live.may_be_guest(*other);
                let address = text.parse().ok().filter(may_be);
                let unknown = || failed(format!("{host} is not the guest's address, which is {guest}"));
                Some(address.ok_or_else(unknown)?).filter(|address| *address != guest)
            }
        };
        let client = ClientAddress::default();
        let forward = Forward { kind, at, guest: caller.or(other), port, is_any: false, client };
        let mut texts = self.texts();
        if by.is_some() && texts.values().filter(|words| words.by == by).count() >= OF_GUEST_MAX {
            return Err(failed(format!("a guest may expose {OF_GUEST_MAX} ports")));
        }
        let id = self.live.add_forward(forward).map_err(|error| match error {
            ForwardsError::Already(_) => {
                failed(format!("proxy already running for {} on {}", name(kind), asked.local))
            }
            error => failed(error),
        })?;
        texts.insert(id, Words { local: asked.local, remote: asked.remote, by });
        Ok(())
    }

    /// The words for the ports that are still forwarded.
    fn texts(&self) -> MutexGuard<'_, BTreeMap<u64, Words>> {
        let all: BTreeSet<u64> = self.live.forwards().into_iter().map(|(id, _)| id).collect();
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.retain(|id, _| all.contains(id));
        texts
    }

    /// For a guest, one that it has exposed.
    async fn unexpose(&self, caller: Option<Peer>, asked: Exposed) -> Result<(), Refusal> {
        let (kind, at) = place(&asked)?;
        if let Some(peer) = caller {
            let is_at = |(_, own): &(u64, Forward)| (own.kind, own.at) == (kind, at);
            let id = self.live.forwards().into_iter().find(is_at).map(|(id, _)| id);
            let by = id.and_then(|id| self.texts().get(&id)?.by);
            if by != Some(peer.guest) {
                return Err(failed("proxy not found"));
            }
        }
        self.live.remove_forward(kind, at).await.map_err(|error| match error {
            ForwardsError::Missing(_) => failed("proxy not found"),
            error => failed(error),
        })
    }

    /// All ports, those of other doors, too, in gvproxy's order.
    fn exposed(&self) -> Value {
        let all: BTreeMap<u64, Forward> = self.live.forwards().into_iter().collect();
        let texts = self.texts();
        let entry = |(id, forward): (u64, Forward)| {
            let guest = forward.guest.unwrap_or_else(|| self.live.guest());
            let guest = SocketAddr::new(guest, forward.port).to_string();
            let own = Words { local: forward.at.to_string(), remote: guest, by: None };
            let words = texts.get(&id).cloned().unwrap_or(own);
            (words.local, name(forward.kind), words.remote)
        };
        let mut entries: Vec<_> = all.into_iter().map(entry).collect();
        entries.sort();
        let entry =
            |(local, protocol, remote)| json!({ "local": local, "remote": remote, "protocol": protocol });
        Value::Array(entries.into_iter().map(entry).collect())
    }

    fn add_zone(&self, given: GivenZone) -> Result<(), Refusal> {
        let record = |GivenRecord { name, ip, regexp }| {
            if !regexp.is_null() {
                return Err(bad("a record with a Regexp is not supported: give each name"));
            }
            Ok((name, address(&ip.unwrap_or_default())?))
        };
        let records = given.records.unwrap_or_default().into_iter().map(record);
        let default = given.defaultip.filter(|text| !text.is_empty());
        let zone = Zone {
            name: given.name,
            records: records.collect::<Result<_, _>>()?,
            default: default.map(|text| address(&text)).transpose()?,
        };
        self.live.add_zone(zone).map_err(|error| match error {
            ZoneError::Name(_) => bad(error),
            ZoneError::Full => failed(error),
        })
    }

    fn zones(&self) -> Value {
        let text = |address: Option<IpAddr>| address.map(|own| own.to_string()).unwrap_or_default();
        let record = |(name, ip): &(String, IpAddr)| json!({ "Name": name, "IP": ip.to_string() });
        let zone = |zone: Zone| {
            let records: Vec<Value> = zone.records.iter().map(record).collect();
            json!({ "Name": format!("{}.", zone.name), "Records": records, "DefaultIP": text(zone.default) })
        };
        Value::Array(self.live.zones().into_iter().map(zone).collect())
    }

    fn leases(&self) -> Value {
        let one =
            |lease: &taut::device::Leased| (lease.address.to_string(), lease.station.to_string().into());
        Value::Object(self.live.leases().iter().map(one).collect())
    }

    /// As gvproxy counts: bytes sent are those for the guest. The others are the gateway's own counters.
    fn stats(&self) -> Value {
        let counters = self.live.server().look(|gateway| *gateway.counters());
        let mut all: Map<String, Value> =
            counters.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        all.insert("BytesSent".to_owned(), counters.bytes_down.into());
        all.insert("BytesReceived".to_owned(), counters.bytes_up.into());
        Value::Object(all)
    }
}

/// Reads a body as JSON, also if its type is another one, as gvproxy does.
async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, Refusal> {
    let whole = tokio::time::timeout(PATIENCE, Limited::new(body, BODY_MAX).collect()).await;
    let whole =
        whole.map_err(|_| Refusal(StatusCode::REQUEST_TIMEOUT, "the body does not end".to_owned()))?;
    let whole = whole.map_err(|error| match error.is::<LengthLimitError>() {
        true => Refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {BODY_MAX} bytes")),
        false => bad(error),
    })?;
    let value: Value = serde_json::from_slice(&whole.to_bytes()).map_err(bad)?;
    serde_json::from_value(lowered(value)).map_err(bad)
}

/// Go's decoder takes the names of fields in letters of any case.
fn lowered(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (String, Value)| (name.to_ascii_lowercase(), lowered(value));
            Value::Object(fields.into_iter().map(field).collect())
        }
        Value::Array(all) => Value::Array(all.into_iter().map(lowered).collect()),
        other => other,
    }
}

const fn name(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::Udp => "udp",
        _ => "tcp",
    }
}

/// The port of the host: `:PORT`, `HOST:PORT`.
fn place(asked: &Exposed) -> Result<(FlowKind, SocketAddr), Refusal> {
    let kind = match &*asked.protocol {
        "" | "tcp" => FlowKind::Tcp,
        "udp" => FlowKind::Udp,
        other => return Err(failed(format!("unknown protocol {other}"))),
    };
    let text = match asked.local.split_once(':') {
        Some(("", port)) => format!("{}:{port}", Ipv4Addr::UNSPECIFIED),
        Some(("localhost", port)) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        _ => asked.local.clone(),
    };
    let at: SocketAddr = text.parse().map_err(|_| {
        failed(format!("{} is not an address of this host and a port, such as :6443", asked.local))
    })?;
    if at.port() == 0 {
        return Err(failed(format!("{}: a port is a number from 1 to 65535", asked.local)));
    }
    Ok((kind, at))
}

fn address(text: &str) -> Result<IpAddr, Refusal> {
    text.parse().map_err(|_| bad(format!("invalid IP address: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(protocol: &str, local: &str) -> Result<String, String> {
        let asked = Exposed { local: local.to_owned(), protocol: protocol.to_owned(), ..Exposed::default() };
        let found = place(&asked).map(|(kind, at)| format!("{} {at}", name(kind)));
        found.map_err(|Refusal(status, why)| format!("{} {why}", status.as_u16()))
    }

    #[test]
    fn gw_241_places_in_gvproxys_words() {
        for (protocol, local, expected) in [
            ("", ":6443", "tcp 0.0.0.0:6443"),
            ("tcp", "127.0.0.1:80", "tcp 127.0.0.1:80"),
            ("udp", "localhost:53", "udp 127.0.0.1:53"),
            ("tcp", "[::1]:80", "tcp [::1]:80"),
            ("tcp", "[::]:80", "tcp [::]:80"),
        ] {
            assert_eq!(at(protocol, local).as_deref(), Ok(expected));
        }
        assert_eq!(at("sctp", ":1").unwrap_err(), "500 unknown protocol sctp");
        assert_eq!(at("unix", "/tmp/x").unwrap_err(), "500 unknown protocol unix");
        for wrong in ["", ":", ":0", ":65536", "6443", "host:80", "127.0.0.1", "::1:80"] {
            assert!(at("tcp", wrong).unwrap_err().starts_with("500 "), "{wrong}");
        }
    }

    #[test]
    fn gw_241_names_of_fields_are_in_letters_of_any_case() {
        let text = r#"{"NAME":"a.","Records":[{"Name":"x","IP":"192.0.2.1"}],"defaultIP":"192.0.2.2","more":{"A":1}}"#;
        let zone: GivenZone = serde_json::from_value(lowered(serde_json::from_str(text).unwrap())).unwrap();
        let records = zone.records.unwrap();
        assert_eq!((&*zone.name, &*records[0].name), ("a.", "x"));
        assert_eq!(
            (records[0].ip.as_deref(), zone.defaultip.as_deref()),
            (Some("192.0.2.1"), Some("192.0.2.2"))
        );
    }
}
