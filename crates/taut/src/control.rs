//! The control socket of a stack: its requested place, and the server's access to the shards.
//!
//! Called by `builder.rs`, which describes and opens it; kept by `stack.rs`.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use taut_control::gateway::{GatewayItem, GatewayVerb};
use taut_control::place::Bound;
use taut_control::protocol::{Counter, DeviceReport};
use taut_control::qdisc::QdiscSnapshot;
use taut_control::rooms::FlowRooms;
use taut_control::{About, Server, Source};
use taut_core::{Instant, NetworkChange};
use taut_device::Cidr;
use taut_driver::{QdiscEntry, Shard};
use taut_link::{QdiscReport, QdiscSpecError};
use taut_replay::Taped;

/// The builder's settings.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) place: SocketPlace,
    /// The name of the device.
    pub(crate) device_name: Option<String>,
    /// With their prefixes, where the builder knows them.
    addresses: Vec<String>,
    pub(crate) relayed: Relayed,
    pub(crate) gateway: Verbs,
    pub(crate) state: DeviceState,
}

/// Acts at a request to a gateway.
type Act = dyn Fn(&GatewayVerb) -> Result<Vec<GatewayItem>, String> + Send + Sync;

/// Lists and changes of a gateway.
#[derive(Clone, Default)]
pub(crate) struct Verbs(pub(crate) Option<Arc<Act>>);

impl std::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Verbs").field(&self.0.is_some()).finish()
    }
}

/// The state of the device.
#[derive(Clone, Default)]
pub(crate) struct DeviceState(pub(crate) Option<Arc<dyn Fn() -> DeviceReport + Send + Sync>>);

impl std::fmt::Debug for DeviceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeviceState").field(&self.0.is_some()).finish()
    }
}

/// Measures the rooms of relayed connections.
#[derive(Clone, Default)]
pub(crate) struct Relayed(pub(crate) Option<Arc<dyn Fn() -> Vec<FlowRooms> + Send + Sync>>);

impl std::fmt::Debug for Relayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Relayed").field(&self.0.is_some()).finish()
    }
}

/// The requested place of the socket.
#[derive(Debug, Default)]
pub(crate) enum SocketPlace {
    #[default]
    Nowhere,
    Default,
    Path(PathBuf),
    /// It listens already.
    Bound(Bound),
}

impl Control {
    /// The same with the stack's addresses: those with a prefix, and those that are only in the
    /// configuration.
    pub(crate) fn with_addresses(self, prefixed: &[Cidr], bare: &[IpAddr]) -> Self {
        let prefixed = prefixed.iter().map(ToString::to_string);
        let addresses = prefixed.chain(bare.iter().map(ToString::to_string)).collect();
        Self { addresses, ..self }
    }

    /// Opens the socket, if one was requested.
    pub(crate) fn open(self, shards: &Arc<[Arc<Shard>]>, tun: Option<&str>) -> io::Result<Option<Server>> {
        let Self { place, device_name, addresses, relayed, gateway, state } = self;
        let device = device_name.or_else(|| tun.map(str::to_owned)).unwrap_or_default();
        let about = About { device, addresses };
        let source = Reach { shards: Arc::clone(shards), relayed, gateway, state };
        match place {
            SocketPlace::Nowhere => Ok(None),
            SocketPlace::Default => Server::at_default(about, source).map(Some),
            SocketPlace::Path(path) => Server::at(&path, about, source).map(Some),
            SocketPlace::Bound(bound) => Server::start(bound, about, source).map(Some),
        }
    }
}

/// The server's access to the stack.
struct Reach {
    shards: Arc<[Arc<Shard>]>,
    relayed: Relayed,
    gateway: Verbs,
    state: DeviceState,
}

impl Source for Reach {
    fn now(&self) -> Instant {
        self.shards[0].clock().now()
    }

    fn with_stack(&self, use_stack: &mut dyn FnMut(&mut Taped, Instant)) -> bool {
        self.with_shard(0, use_stack)
    }

    fn shards(&self) -> usize {
        self.shards.len()
    }

    fn with_shard(&self, shard: usize, use_stack: &mut dyn FnMut(&mut Taped, Instant)) -> bool {
        let Some(shard) = self.shards.get(shard).filter(|shard| !shard.is_closed()) else { return false };
        shard.access(|access| use_stack(access.stack, access.now));
        true
    }

    fn device_error(&self) -> Option<String> {
        self.shards.iter().find_map(|shard| shard.last_device_error()).map(|error| error.to_string())
    }

    fn rooms(&self) -> Vec<FlowRooms> {
        self.relayed.0.as_ref().map_or_else(Vec::new, |rooms| rooms())
    }

    fn gateway(&self, verb: &GatewayVerb) -> Result<Vec<GatewayItem>, String> {
        self.gateway.0.as_ref().map_or_else(|| Err("this program is no gateway".to_owned()), |act| act(verb))
    }

    fn device(&self) -> DeviceReport {
        self.state.0.as_ref().map_or_else(DeviceReport::default, |state| state())
    }

    fn qdiscs(&self) -> Vec<QdiscSnapshot> {
        self.shards.iter().flat_map(|shard| shard.qdiscs()).map(|entry| snapshot(&entry)).collect()
    }

    fn set_qdisc(&self, spec: Option<&str>) -> Result<(), String> {
        let spec = spec.map(str::parse).transpose().map_err(|error: QdiscSpecError| error.to_string())?;
        for shard in &*self.shards {
            shard.set_qdisc(spec.as_ref());
        }
        Ok(())
    }

    fn change_network(&self, change: NetworkChange) -> Result<(), String> {
        let change = |shard: &Arc<Shard>| shard.change_network(change).map_err(|error| error.to_string());
        self.shards.iter().try_for_each(change)
    }
}

fn snapshot(entry: &QdiscEntry) -> QdiscSnapshot {
    let QdiscReport { spec, backlog_bytes, backlog_packets, stats, details, .. } = &entry.report;
    QdiscSnapshot {
        kind: spec.kind().to_owned(),
        handle: entry.handle.0,
        parent: entry.parent.map(|parent| parent.0),
        spec: spec.to_string(),
        bytes: stats.sent_bytes,
        packets: stats.sent_packets,
        drops: stats.dropped,
        overlimits: stats.overlimits,
        requeues: stats.requeues,
        backlog: *backlog_bytes,
        qlen: *backlog_packets as u64,
        details: details
            .counters()
            .into_iter()
            .map(|(name, value)| Counter { name: name.to_owned(), value })
            .collect(),
    }
}
