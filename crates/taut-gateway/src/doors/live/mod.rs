//! Lists and changes of a gateway that runs. Its doors are thin: the control socket (`control.rs`), and in
//! the command the APIs of gvproxy and slirp4netns.
//!
//! ```text
//!   taut gateway ctl ─ control.rs ─┐
//!   --api, an API of slirp4netns ──┴▶ Live ─┬─▶ logic/live: rules, names, flows
//!   the options -t and -u ────────────▶     └─▶ forwards.rs: ports, each with a task while there is a guest
//! ```
//!
//! A forwarded port is open while there is a guest: a virtual machine goes and comes back, and its ports with
//! it. The process that serves opens it, in its sandbox, and so with the rights that it has kept there.

pub(crate) mod callers;
mod control;
mod forwards;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use taut::device::Leased;
use taut::device::frames::LeaseTable;
use taut::{FlowKind, Stack};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::doors::client_address::ClientAddress;
use crate::doors::forward::Forward;
use crate::doors::live::forwards::Forwards;
use crate::doors::loopback::ForwardTarget;
use crate::logic::event::Event;
use crate::logic::live::zones::{Zone, ZoneError};
use crate::run::server::Server;

/// Why ports below 1024 are refused.
const NO_RIGHT: &str = "a port below 1024 needs root or CAP_NET_BIND_SERVICE, and one in -t or -u when the \
                        gateway starts: it gives this right up otherwise";

/// A running gateway, to list and to change. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Live(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: Server,
    guest: IpAddr,
    client: ClientAddress,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    forwards: Forwards<JoinHandle<()>>,
    here: Option<Here>,
}

/// The guest that is there.
#[derive(Debug)]
struct Here {
    stack: Stack,
    target: ForwardTarget,
    leases: Option<LeaseTable>,
}

/// A port cannot be forwarded, or is not.
#[derive(Debug, thiserror::Error)]
pub enum ForwardsError {
    /// It is.
    #[error("cannot forward {0}: it is forwarded already")]
    Already(SocketAddr),
    /// There is none.
    #[error("{0} is not forwarded")]
    Missing(SocketAddr),
    /// All places are taken.
    #[error("no further port can be forwarded: remove one first")]
    Full,
    /// The port is in use, or not this user's.
    #[error(transparent)]
    Port(#[from] io::Error),
}

impl Live {
    /// This server, whose forwarded ports lead to a guest with this address, and show it clients in this way.
    /// Must be called in a tokio runtime, whose tasks serve the ports.
    #[must_use]
    pub fn new(server: &Server, guest: IpAddr, client: ClientAddress) -> Self {
        let (server, state) = (server.clone(), Mutex::default());
        Self(Arc::new(Inner { server, guest, client, runtime: Handle::current(), state }))
    }

    /// The gateway.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.0.server
    }

    /// The guest's address.
    #[must_use]
    pub fn guest(&self) -> IpAddr {
        self.0.guest
    }

    /// Whether another machine than the first may have this address.
    #[must_use]
    pub fn may_be_guest(&self, address: IpAddr) -> bool {
        self.0.server.has_machines()
            && self.0.server.look(|gateway| {
                let settings = gateway.settings();
                !settings.own.contains(&address) && settings.sources.iter().any(|of| of.contains(address))
            })
    }

    /// The guest is there: opens its ports, until [`close`](Self::close).
    ///
    /// # Errors
    /// The first port that cannot be opened; none is open then.
    pub fn open(&self, stack: &Stack, target: ForwardTarget, leases: Option<LeaseTable>) -> io::Result<()> {
        let mut state = self.0.lock();
        let here = Here { stack: stack.clone(), target, leases };
        let mut opened = Ok(());
        for entry in state.forwards.iter_mut().filter(|entry| entry.open.is_none()) {
            match self.0.serve(&here, entry.forward) {
                Ok(task) => entry.open = Some(task),
                Err(error) => {
                    opened = Err(error);
                    break;
                }
            }
        }
        if opened.is_ok() {
            state.here = Some(here);
        } else {
            let open = state.forwards.iter_mut().filter_map(|entry| entry.open.take());
            open.for_each(|task| task.abort());
        }
        opened
    }

    /// The guest is gone: closes its ports. They are free when this returns.
    pub async fn close(&self) {
        let open: Vec<JoinHandle<()>> = {
            let mut state = self.0.lock();
            state.here = None;
            state.forwards.iter_mut().filter_map(|entry| entry.open.take()).collect()
        };
        open.iter().for_each(JoinHandle::abort);
        for task in open {
            // It was aborted.
            _ = task.await;
        }
    }

    /// Forwards a port of the host from now on, and returns its number. Without a guest, it is opened when
    /// one is there; then it is only tried.
    ///
    /// # Errors
    /// See [`ForwardsError`].
    pub fn add_forward(&self, forward: Forward) -> Result<u64, ForwardsError> {
        let forward = Forward { client: self.0.client, ..forward };
        let mut state = self.0.lock();
        state.forwards.retain(|entry| !is_over(entry.open.as_ref()));
        if state.forwards.has(forward.kind, forward.at) {
            return Err(ForwardsError::Already(forward.at));
        }
        if state.forwards.is_full() {
            return Err(ForwardsError::Full);
        }
        let opened = match &state.here {
            Some(here) => self.0.serve(here, forward).map(Some),
            None => self.0.probe(&forward).map(|()| None),
        };
        Ok(state.forwards.add(forward, opened.map_err(with_advice)?))
    }

    /// Forwards it no more: clients that are connected stay. It is free when this returns.
    ///
    /// # Errors
    /// [`ForwardsError::Missing`].
    pub async fn remove_forward(&self, kind: FlowKind, at: SocketAddr) -> Result<(), ForwardsError> {
        if let Some(task) = self.take_forward(kind, at)? {
            // It was aborted.
            _ = task.await;
        }
        Ok(())
    }

    /// The same; it is free when the task has finished.
    fn take_forward(&self, kind: FlowKind, at: SocketAddr) -> Result<Option<JoinHandle<()>>, ForwardsError> {
        let removed = self.0.lock().forwards.remove(kind, at).ok_or(ForwardsError::Missing(at))?;
        removed.open.iter().for_each(JoinHandle::abort);
        Ok(removed.open)
    }

    /// All ports that are forwarded, with their numbers.
    #[must_use]
    pub fn forwards(&self) -> Vec<(u64, Forward)> {
        let state = self.0.lock();
        let all = state.forwards.iter().filter(|entry| !is_over(entry.open.as_ref()));
        all.map(|entry| (entry.id, entry.forward)).collect()
    }

    /// Answers the names of a zone from now on: `logic/live/zones.rs`.
    ///
    /// # Errors
    /// See [`ZoneError`].
    pub fn add_zone(&self, zone: Zone) -> Result<(), ZoneError> {
        self.0.server.with(|gateway, _| gateway.add_zone(zone))
    }

    /// The zones, in the order in which they were added.
    #[must_use]
    pub fn zones(&self) -> Vec<Zone> {
        self.0.server.look(|gateway| gateway.zones().iter().cloned().collect())
    }

    /// The addresses that the guest, a virtual machine, has leased.
    #[must_use]
    pub fn leases(&self) -> Vec<Leased> {
        let table = self.0.lock().here.as_ref().and_then(|here| here.leases.clone());
        table.map_or_else(Vec::new, |table| table.get())
    }
}

/// A port that could not be served any more.
fn is_over(task: Option<&JoinHandle<()>>) -> bool {
    task.is_some_and(JoinHandle::is_finished)
}

fn with_advice(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => io::Error::new(error.kind(), format!("{error}; {NO_RIGHT}")),
        _ => error,
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the port, and serves it by a task.
    fn serve(&self, here: &Here, forward: Forward) -> io::Result<JoinHandle<()>> {
        let _runtime = self.runtime.enter();
        let target = forward.guest.map_or_else(|| here.target.clone(), ForwardTarget::from);
        let serving = self.server.forward_port(&here.stack, target, forward)?;
        let server = self.server.clone();
        Ok(self.runtime.spawn(async move {
            let (at, why) = (forward.at, serving.await.to_string());
            server.with(|gateway, _| gateway.note(Event::CannotForward { at, why }));
        }))
    }

    /// Whether the port could be opened now.
    fn probe(&self, forward: &Forward) -> io::Result<()> {
        let _runtime = self.runtime.enter();
        forward.socket().map(drop)
    }
}

/// The last handle is gone: the ports are closed.
impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.forwards.iter().filter_map(|entry| entry.open.as_ref()).for_each(JoinHandle::abort);
    }
}
