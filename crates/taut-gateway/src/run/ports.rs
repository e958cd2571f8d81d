//! One socket of the way out for each port of a guest, whatever it sends to: RFC 4787 §4.1, REQ-1. So all
//! servers of a guest's port see one port, and a peer can use the port that another one has seen.
//!
//! A flow has a task, which sends. The task of one of them receives for all, and when that flow ends, another
//! one's takes over: so a port with one flow, as most have, costs no more than the flow. An entry stands for
//! a port while it has flows.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use taut::UdpSocket;

use crate::logic::flow::Side;
use crate::run::server::{Handle, Server};

/// The ports of all guests.
#[derive(Default)]
pub(crate) struct Ports(Mutex<BTreeMap<SocketAddr, Weak<dyn Any + Send + Sync>>>);

/// One port of a guest, by one way out.
pub(crate) struct Port<D> {
    guest: SocketAddr,
    pub(crate) upstream: D,
    flows: Mutex<Flows>,
    server: Server,
}

#[derive(Default)]
struct Flows {
    /// By destination.
    all: Vec<(SocketAddr, Arc<PortFlow>)>,
    /// One of them receives.
    is_read: bool,
}

/// A flow of a port.
pub(crate) struct PortFlow {
    pub(crate) guest: UdpSocket,
    pub(crate) flow: Handle,
    /// Whether the guest has sent to it.
    pub(crate) has_sent: AtomicBool,
    /// A rule bounds its rate.
    pub(crate) is_paced: bool,
}

impl PortFlow {
    /// A flow that is open now.
    pub(crate) fn new(guest: UdpSocket, flow: Handle, has_sent: bool) -> Arc<Self> {
        Arc::new(Self { is_paced: flow.is_paced(), guest, flow, has_sent: has_sent.into() })
    }

    /// Whether a datagram of this length may pass from this side.
    pub(crate) fn may_pass(&self, from: Side, len: usize) -> bool {
        !self.is_paced || self.flow.may_pass(from, len)
    }
}

/// A panic of another flow's task leaves a table that is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ports {
    /// The guest's port, whose socket is opened if there is none.
    pub(crate) fn of<D: Send + Sync + 'static>(
        server: &Server,
        guest: SocketAddr,
        open: impl FnOnce() -> io::Result<D>,
    ) -> io::Result<Arc<Port<D>>> {
        // One of another way out, which must not be dropped under the lock.
        let _other;
        let mut all = lock(&server.ports().0);
        match all.get(&guest).and_then(Weak::upgrade).map(Arc::downcast::<Port<D>>) {
            Some(Ok(port)) => return Ok(port),
            Some(Err(other)) => _other = other,
            None => {}
        }
        let (upstream, server) = (open()?, server.clone());
        let port = Arc::new(Port { guest, upstream, flows: Mutex::default(), server });
        let entry: Arc<dyn Any + Send + Sync> = Arc::<Port<D>>::clone(&port);
        all.insert(guest, Arc::downgrade(&entry));
        Ok(port)
    }
}

impl<D> Port<D> {
    pub(crate) const fn guest(&self) -> SocketAddr {
        self.guest
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// A flow is there from now on. One between the same ends is over: its task has not noticed yet.
    pub(crate) fn enter(&self, to: SocketAddr, flow: &Arc<PortFlow>) {
        let mut flows = lock(&self.flows);
        let before = match flows.all.binary_search_by_key(&to, |(to, _)| *to) {
            Ok(at) => Some(std::mem::replace(&mut flows.all[at].1, Arc::clone(flow))),
            Err(at) => {
                // Most ports have one.
                let more = flows.all.len();
                flows.all.reserve_exact(more.max(1));
                flows.all.insert(at, (to, Arc::clone(flow)));
                None
            }
        };
        drop(flows);
        drop(before);
    }

    /// The flow is over. If it received for the others, another one does from now on.
    pub(crate) fn leave(&self, to: SocketAddr, flow: &Arc<PortFlow>, receives: bool) {
        let mut flows = lock(&self.flows);
        flows.is_read &= !receives;
        let own = flows.all.binary_search_by_key(&to, |(to, _)| *to).ok();
        let own = own.filter(|at| Arc::ptr_eq(&flows.all[*at].1, flow));
        let own = own.map(|at| flows.all.remove(at));
        let next = (!flows.is_read).then(|| flows.all.first().map(|(_, next)| Arc::clone(next)));
        drop(flows);
        drop(own);
        if let Some(Some(next)) = next {
            next.flow.look();
        }
    }

    /// Whether the calling flow receives for all from now on.
    pub(crate) fn take_receiving(&self) -> bool {
        let mut flows = lock(&self.flows);
        !std::mem::replace(&mut flows.is_read, true)
    }

    /// The flow to this destination.
    pub(crate) fn to(&self, to: SocketAddr) -> Option<Arc<PortFlow>> {
        let flows = lock(&self.flows);
        let at = flows.all.binary_search_by_key(&to, |(to, _)| *to).ok()?;
        Some(Arc::clone(&flows.all[at].1))
    }

    /// Any flow, and whether the guest has sent to this address.
    pub(crate) fn any(&self, ip: IpAddr) -> Option<(Arc<PortFlow>, bool)> {
        let flows = lock(&self.flows);
        let first = flows.all.partition_point(|(to, _)| *to < SocketAddr::new(ip, 0));
        let mut known = flows.all[first..].iter().take_while(|(to, _)| to.ip() == ip);
        let is_known = known.any(|(_, flow)| flow.has_sent.load(Relaxed));
        flows.all.first().map(|(_, flow)| (Arc::clone(flow), is_known))
    }
}

impl<D> Drop for Port<D> {
    fn drop(&mut self) {
        let mut all = lock(&self.server.ports().0);
        if all.get(&self.guest).is_some_and(|port| port.strong_count() == 0) {
            all.remove(&self.guest);
        }
    }
}
