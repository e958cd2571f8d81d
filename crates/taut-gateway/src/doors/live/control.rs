//! The control socket's door: `taut gateway ctl`, in the form of `taut_control::gateway`. It runs on that
//! socket's thread.

use std::sync::Arc;
use std::time::Duration;

use taut::taut_control::gateway::{
    GatewayFlow, GatewayForward, GatewayGuest, GatewayItem, GatewayLease, GatewayPorts, GatewayRule,
    GatewayVerb,
};
use taut::{FlowKind, StackBuilder};
use tokio::task::JoinHandle;

use crate::doors::forward::Forward;
use crate::doors::live::{ForwardsError, Live};
use crate::logic::guests::Guest;
use crate::logic::limits::Amounts;
use crate::logic::live::Listed;
use crate::logic::rules::Rule;

/// Flows copied at a time under the gateway's lock.
const BATCH: usize = 256;
/// How often, and how long each time, to wait until ports that are closed are free.
const TRIES: u32 = 500;
const BETWEEN: Duration = Duration::from_millis(1);

impl Live {
    /// The control socket of the stack, whose flows are served here, lists and changes the gateway, and has
    /// the rooms of its connections ([`Server::observed`](crate::Server::observed)).
    #[must_use]
    pub fn observed(&self, builder: StackBuilder) -> StackBuilder {
        // `Live` holds the stack, so the stack holds it weakly.
        let live = Arc::downgrade(&self.0);
        self.server().observed(builder).control_gateway(move |verb| {
            let live = live.upgrade().map(Live).ok_or("the gateway has ended")?;
            live.act(verb)
        })
    }

    fn act(&self, verb: &GatewayVerb) -> Result<Vec<GatewayItem>, String> {
        match verb {
            GatewayVerb::Flows => return Ok(self.flows()),
            GatewayVerb::Guests => return Ok(self.guests()),
            GatewayVerb::Leases => return Ok(self.leases().iter().map(lease).collect()),
            GatewayVerb::Forwards | GatewayVerb::Rules => {}
            GatewayVerb::AddForward(ports) => self.add_all(&forwards(ports)?).map_err(text)?,
            GatewayVerb::RemoveForward(ports) => self.remove_all(&forwards(ports)?).map_err(text)?,
            GatewayVerb::AddRule { rule, at } => {
                let rule: Rule = rule.parse().map_err(text)?;
                self.server().with(|gateway, _| gateway.insert_rule(*at, rule)).map_err(text)?;
            }
            GatewayVerb::RemoveRule { at } => {
                self.server().with(|gateway, _| gateway.remove_rule(*at)).map_err(text)?;
            }
            _ => return Err("this gateway has no such command".to_owned()),
        }
        Ok(match verb {
            GatewayVerb::Rules | GatewayVerb::AddRule { .. } | GatewayVerb::RemoveRule { .. } => self.rules(),
            _ => self.forwards().iter().map(|(_, forward)| shown(forward)).collect(),
        })
    }

    /// All of them, or none.
    fn add_all(&self, forwards: &[Forward]) -> Result<(), ForwardsError> {
        let mut all = forwards.iter().enumerate();
        let failed = all.find_map(|(number, one)| Some((number, self.add_forward(*one).err()?)));
        let Some((number, error)) = failed else { return Ok(()) };
        self.remove_all(&forwards[..number])?;
        Err(error)
    }

    /// All of them, or none. Waits until they are free, for half a second at most: a runtime that ends waits
    /// for this thread, and closes no port meanwhile.
    fn remove_all(&self, forwards: &[Forward]) -> Result<(), ForwardsError> {
        let known = self.forwards();
        let is_known = |one: &Forward| known.iter().any(|(_, own)| (own.kind, own.at) == (one.kind, one.at));
        if let Some(missing) = forwards.iter().find(|one| !is_known(one)) {
            return Err(ForwardsError::Missing(missing.at));
        }
        let open: Result<Vec<_>, _> =
            forwards.iter().map(|one| self.take_forward(one.kind, one.at)).collect();
        let open: Vec<_> = open?.into_iter().flatten().collect();
        for _ in 0..TRIES {
            if open.iter().all(JoinHandle::is_finished) {
                break;
            }
            std::thread::sleep(BETWEEN);
        }
        Ok(())
    }

    fn flows(&self) -> Vec<GatewayItem> {
        let (mut all, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let (listed, more) = self.server().with(|gateway, now| gateway.list(now, from, BATCH));
            all.extend(listed.into_iter().map(flow));
            next = more;
        }
        all
    }

    fn guests(&self) -> Vec<GatewayItem> {
        let all = self.server().look(|gateway| gateway.guests().collect::<Vec<_>>());
        let one = |(guest, used): (Guest, Amounts)| {
            GatewayItem::Guest(GatewayGuest {
                guest: guest.address(),
                connections: used.connections,
                half_open: used.half_open,
                datagram_flows: used.datagram_flows,
                bytes: used.bytes,
                questions: used.questions,
            })
        };
        all.into_iter().map(one).collect()
    }

    fn rules(&self) -> Vec<GatewayItem> {
        self.server().look(|gateway| {
            let rules = &gateway.settings().rules;
            let one = |(at, rule): (usize, &Rule)| {
                let (rule, default) = (rule.to_string(), at >= rules.own());
                GatewayItem::Rule(GatewayRule { at: at + 1, rule, default })
            };
            rules.iter().enumerate().map(one).collect()
        })
    }
}

const TCP: &str = "tcp";
const UDP: &str = "udp";

const fn name(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::Tcp => TCP,
        FlowKind::Udp => UDP,
        FlowKind::Echo => "ping",
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

fn forwards(GatewayPorts { kind, ports }: &GatewayPorts) -> Result<Vec<Forward>, String> {
    let kind = match &**kind {
        TCP => FlowKind::Tcp,
        UDP => FlowKind::Udp,
        other => return Err(format!("{other:?} is neither {TCP} nor {UDP}")),
    };
    Forward::parse(kind, ports).map_err(text)
}

fn shown(forward: &Forward) -> GatewayItem {
    let Forward { kind, at, port, .. } = *forward;
    GatewayItem::Forward(GatewayForward { kind: name(kind).to_owned(), at, port })
}

fn flow(flow: Listed) -> GatewayItem {
    let [up, down] = flow.bytes;
    GatewayItem::Flow(GatewayFlow {
        kind: name(flow.kind).to_owned(),
        guest: flow.guest,
        peer: flow.peer,
        inward: flow.is_inward,
        name: flow.name,
        rule: flow.rule.as_deref().map(str::to_owned),
        up,
        down,
        age_ns: u64::try_from(flow.age.as_nanos()).unwrap_or(u64::MAX),
    })
}

fn lease(lease: &taut::device::Leased) -> GatewayItem {
    let (address, station) = (lease.address, lease.station.to_string());
    GatewayItem::Lease(GatewayLease { address, station, ends_in_ns: lease.ends_in.as_nanos() })
}
