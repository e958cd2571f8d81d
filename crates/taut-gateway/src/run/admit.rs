//! Takes the flows of a stack and starts a task for each that the gateway admits.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use taut::{
    DatagramFlowOptions, FlowFilter, FlowKind, IncomingFlow, IncomingFlows, IncomingOptions, Refusal, Stack,
};

use crate::logic::admission::Admission;
use crate::logic::gateway::Settings;
use crate::out::way_out::WayOut;
use crate::run::datagrams::{pings, udp};
use crate::run::resolver;
use crate::run::rooms::near;
use crate::run::server::Server;
use crate::run::tcp::tcp;

impl Server {
    /// Serves every flow of a stack by this way out. From the return of this call on, flows come in; what it
    /// returns must be polled, and ends with the stack, with the reason.
    ///
    /// # Errors
    /// Those of [`IncomingFlows::open`].
    pub fn serve<W: WayOut>(
        &self,
        stack: &Stack,
        way: Arc<W>,
    ) -> io::Result<impl Future<Output = io::Error> + Send + use<W>> {
        let filter = FlowFilter::any().kinds([FlowKind::Tcp, FlowKind::Udp, FlowKind::Echo]);
        let flows = IncomingFlows::open_with(
            stack,
            filter,
            self.look(|gateway| incoming_options(gateway.settings())),
        )?;
        let server = self.clone();
        Ok(async move {
            tokio::select! {
                end = server.take(&flows, way) => end,
                never = server.watch_time() => match never {},
            }
        })
    }

    async fn take<W: WayOut>(&self, flows: &IncomingFlows, way: Arc<W>) -> io::Error {
        loop {
            match flows.accept().await {
                Ok(flow) => self.admit(flow, &way),
                Err(end) => return end,
            }
        }
    }

    fn admit<W: WayOut>(&self, incoming: IncomingFlow, way: &Arc<W>) {
        let (kind, from, to) = (incoming.kind(), incoming.peer_addr(), incoming.local_addr());
        if let Some((decided, take)) = (kind == FlowKind::Tcp).then(|| self.caller(from, to)).flatten() {
            match decided {
                Admission::Dial(id, _) => take(incoming, self.handle(id)),
                _ => incoming.refuse(Refusal::Prohibited),
            }
            return;
        }
        match self.admission(kind, from, to) {
            Admission::Refuse(how) => incoming.refuse(how),
            Admission::Silent => drop(incoming),
            Admission::Questions(id) => {
                let (flow, server) = (self.handle(id), self.clone());
                tokio::spawn(async move {
                    match kind {
                        FlowKind::Tcp => resolver::tcp(incoming, from.ip(), &server, flow).await,
                        _ => resolver::udp(incoming, from.ip(), &server, flow).await,
                    }
                });
            }
            Admission::Dial(id, to) => {
                let (flow, way) = (self.handle(id), Arc::clone(way));
                match kind {
                    FlowKind::Tcp => drop(tokio::spawn(tcp(incoming, to, way, flow))),
                    FlowKind::Udp => drop(tokio::spawn(async move { udp(incoming, to, &*way, flow).await })),
                    FlowKind::Echo => {
                        drop(tokio::spawn(async move { pings(incoming, to, &*way, flow).await }));
                    }
                }
            }
        }
    }
}

/// How a stack takes in the flows of a gateway: its own limits stay out of the way, those of the gateway come
/// first.
#[must_use]
pub fn incoming_options(settings: &Settings) -> IncomingOptions {
    let (limits, times) = (settings.limits, settings.timeouts);
    let pending = limits.all.half_open.saturating_add(1_024);
    let flows = limits.all.datagram_flows.saturating_add(1_024);
    let later = |time: Duration| time.saturating_add(Duration::from_secs(5)).into();
    let datagrams = DatagramFlowOptions {
        max_flows: flows,
        max_flows_per_peer: flows,
        queued_bytes_per_peer: u32::MAX,
        idle_timeout: later(times.datagrams.max(times.ping)),
        ..DatagramFlowOptions::default()
    };
    IncomingOptions {
        max_pending: pending,
        max_pending_per_peer: pending,
        timeout: later(times.half_open),
        conn: near(None),
        datagrams,
        ..IncomingOptions::default()
    }
}
