//! Datagrams of UDP: one socket of the host's for each port of the guest, whatever it sends to (RFC 4787
//! §4.1, REQ-1), as in the gateway's other runner. ICMP errors from beyond are forwarded to the guest.
//!
//! A datagram for which the next queue has no room is dropped, as a router drops it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use socket2::Socket;
use taut_core::{DatagramError, DatagramId, FlowInfo, SendMeta};
use taut_gateway::{Failure, FlowId, NextStep, Side, sockets};

use crate::core::{Core, Key, Waited, any_port, interest, waits};

/// Datagrams of one way before the other has its turn.
const TURN: usize = 64;

/// A flow of a port.
#[derive(Clone, Copy)]
struct Flow {
    id: DatagramId,
    flow: FlowId,
    has_sent: bool,
}

/// One port of the guest.
struct Port {
    socket: Socket,
    /// By destination.
    flows: BTreeMap<SocketAddr, Flow>,
}

/// All ports.
#[derive(Default)]
pub(crate) struct Ports {
    all: BTreeMap<SocketAddr, Port>,
    of_datagram: BTreeMap<DatagramId, (SocketAddr, SocketAddr)>,
    of_flow: BTreeMap<FlowId, (SocketAddr, SocketAddr)>,
}

impl Ports {
    /// A flow that may go to `to`.
    pub(crate) fn admit(&mut self, core: &mut Core, info: &FlowInfo, flow: FlowId, to: SocketAddr) {
        if let Err(error) = self.open(core, info.peer, to) {
            return refuse(core, info, flow, taut_gateway::failure(&error));
        }
        if core.gateway.reached(core.time(), flow) != NextStep::Accept {
            return core.closed(flow);
        }
        let Ok(id) = core.stack.accept_datagram_flow(core.now, info.id, None) else {
            return core.closed(flow);
        };
        self.enter(core, (info.peer, to), Flow { id, flow, has_sent: true });
        self.up(core, id);
    }

    /// The port's socket. One of the other address family, or to the host's loopback, is as good as any.
    fn open(&mut self, core: &mut Core, guest: SocketAddr, to: SocketAddr) -> io::Result<()> {
        if let Entry::Vacant(place) = self.all.entry(guest) {
            let at = core.outbound(to).map_or_else(|| any_port(to), |from| SocketAddr::new(from.ip(), 0));
            let socket = sockets::datagrams(at)?;
            place.insert(Port { socket, flows: BTreeMap::new() });
            core.is_changed = true;
        }
        Ok(())
    }

    fn enter(&mut self, core: &mut Core, ends: (SocketAddr, SocketAddr), flow: Flow) {
        if let Some(before) = self.all.get_mut(&ends.0).and_then(|port| port.flows.insert(ends.1, flow)) {
            self.of_datagram.remove(&before.id);
            self.of_flow.remove(&before.flow);
            core.stack.close_datagram(before.id);
            core.closed(before.flow);
        }
        self.of_datagram.insert(flow.id, ends);
        self.of_flow.insert(flow.flow, ends);
    }

    /// From the guest. Returns whether it is a socket of these.
    pub(crate) fn up(&mut self, core: &mut Core, id: DatagramId) -> bool {
        let Some(&(guest, to)) = self.of_datagram.get(&id) else { return false };
        let Some(port) = self.all.get_mut(&guest) else { return false };
        for _ in 0..TURN {
            match core.stack.recv_datagram(id, &mut core.scratch, false) {
                Ok(received) => {
                    let Some(flow) = port.flows.get_mut(&to) else { return true };
                    flow.has_sent = true;
                    let sent = port.send(core, received.len, to, received.tos);
                    if sent {
                        let (flow, time) = (port.flows[&to].flow, core.time());
                        core.gateway.datagrams_passed(time, flow, Side::Guest, 1, received.len);
                    }
                }
                Err(DatagramError::WouldBlock) => return true,
                Err(DatagramError::TimedOut | DatagramError::Closed) => {
                    if let Some(flow) = port.flows.get(&to).map(|flow| flow.flow) {
                        self.expire(core, flow);
                    }
                    return true;
                }
                // An ICMP error of the guest's.
                Err(_) => {}
            }
        }
        true
    }

    /// The caller's loop has seen something at a port's socket.
    pub(crate) fn on_ready(&mut self, core: &mut Core, guest: SocketAddr) {
        for _ in 0..TURN {
            let Some(port) = self.all.get(&guest) else { return };
            let arrived = match sockets::receive(&port.socket, &mut core.scratch) {
                Ok(arrived) => arrived,
                Err(error) if waits(&error) => return,
                Err(_) => {
                    port.hear(core);
                    continue;
                }
            };
            let known = port.flows.get(&arrived.from).copied();
            let Some(flow) = known.or_else(|| self.let_in(core, guest, arrived.from)) else { continue };
            let meta = SendMeta { tos: Some(arrived.tos), ..SendMeta::default() };
            let message = &core.scratch[..arrived.len];
            if core.stack.send_datagram(core.now, flow.id, None, message, &meta).is_ok() {
                let time = core.time();
                core.gateway.datagrams_passed(time, flow.flow, Side::Upstream, 1, arrived.len);
            }
        }
    }

    /// A flow that a host outside begins, if the filter and the rules let it in.
    fn let_in(&mut self, core: &mut Core, guest: SocketAddr, from: SocketAddr) -> Option<Flow> {
        let port = self.all.get(&guest)?;
        let any = port.flows.values().next()?.id;
        let is_known = port.flows.iter().any(|(to, flow)| to.ip() == from.ip() && flow.has_sent);
        let (flow, seen) = core.gateway.from_outside(core.time(), guest, from, is_known)?;
        let Ok(id) = core.stack.begin_flow_from(core.now, any, seen) else {
            core.closed(flow);
            return None;
        };
        core.gateway.reached(core.time(), flow);
        let flow = Flow { id, flow, has_sent: false };
        self.enter(core, (guest, from), flow);
        Some(flow)
    }

    /// The time of a flow is over, if it is one of these. Returns whether it is.
    pub(crate) fn expire(&mut self, core: &mut Core, flow: FlowId) -> bool {
        let Some((guest, to)) = self.of_flow.remove(&flow) else { return false };
        if let Some(port) = self.all.get_mut(&guest) {
            if let Some(gone) = port.flows.remove(&to) {
                self.of_datagram.remove(&gone.id);
                core.stack.close_datagram(gone.id);
            }
            if port.flows.is_empty() {
                self.all.remove(&guest);
            }
        }
        core.closed(flow);
        true
    }

    pub(crate) fn end_all(&mut self, core: &mut Core) {
        let all: Vec<FlowId> = self.of_flow.keys().copied().collect();
        all.into_iter().for_each(|flow| _ = self.expire(core, flow));
    }

    pub(crate) fn wait(&self, all: &mut Vec<Waited>) {
        let of = |(guest, port): (&SocketAddr, &Port)| Waited {
            fd: port.socket.as_raw_fd(),
            interest: interest::IN,
            key: Key::Port(*guest),
        };
        all.extend(self.all.iter().map(of));
    }

    /// File and ends of each flow, for the table.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (i32, SocketAddr, SocketAddr)> + '_ {
        self.all.iter().flat_map(|(guest, port)| {
            let fd = port.socket.as_raw_fd();
            port.flows.keys().map(move |to| (fd, *guest, *to))
        })
    }
}

impl Port {
    /// Sends the first bytes of the scratch memory.
    fn send(&self, core: &mut Core, len: usize, to: SocketAddr, tos: u8) -> bool {
        // The first attempt may report what became of an earlier datagram, of any flow of the port.
        for is_first in [true, false] {
            match sockets::send(&self.socket, &core.scratch[..len], None, to, tos) {
                Ok(_) => return true,
                Err(error) if waits(&error) => return false,
                Err(error) => {
                    let is_told = self.hear(core);
                    if let Some(how) = sockets::refusal(&error).filter(|_| !is_first && !is_told)
                        && let Some(flow) = self.flows.get(&to)
                    {
                        _ = core.stack.refuse_datagrams(core.now, flow.id, how);
                    }
                }
            }
        }
        false
    }

    /// Forwards ICMP errors that wait. Returns whether there were any.
    fn hear(&self, core: &mut Core) -> bool {
        sockets::hear(&self.socket, &mut |to, how| {
            if let Some(flow) = self.flows.get(&to) {
                _ = core.stack.refuse_datagrams(core.now, flow.id, how);
            }
        })
    }
}

/// The guest's flow is refused, or dropped.
pub(crate) fn refuse(core: &mut Core, info: &FlowInfo, flow: FlowId, why: Failure) {
    match core.gateway.failed(core.time(), flow, why) {
        NextStep::Refuse(how) => _ = core.stack.refuse_flow(core.now, info.id, how),
        _ => _ = core.stack.drop_flow(core.now, info.id),
    }
    core.closed(flow);
}
