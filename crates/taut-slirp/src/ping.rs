//! Programs of the guest that ping: by a socket of the host's for each, where the host allows that. The
//! host's own addresses on the link answer by themselves.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use slab::Slab;
use socket2::Socket;
use taut_core::{DatagramError, DatagramId, FlowInfo, SendMeta};
use taut_gateway::sockets::{self, ECHO_HEADER};
use taut_gateway::{FlowId, NextStep, Side};
use taut_wire::icmp;

use crate::core::{Core, Key, Waited, interest, waits};
use crate::udp::refuse;

const TURN: usize = 64;

struct Ping {
    id: DatagramId,
    flow: FlowId,
    guest: SocketAddr,
    to: SocketAddr,
    /// Without one, this host is pinged.
    socket: Option<Socket>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Pings {
    all: Slab<Ping>,
    of_datagram: BTreeMap<DatagramId, usize>,
    of_flow: BTreeMap<FlowId, usize>,
}

impl Pings {
    /// A flow of echo requests that may go to `to`.
    pub(crate) fn admit(&mut self, core: &mut Core, info: &FlowInfo, flow: FlowId, to: SocketAddr) {
        let socket = match to.ip().is_loopback() {
            true => Ok(None),
            false => sockets::pings(to.ip()).map(Some),
        };
        match socket {
            Ok(socket) => self.accept(core, info, flow, socket),
            Err(error) => refuse(core, info, flow, taut_gateway::failure(&error)),
        }
    }

    fn accept(&mut self, core: &mut Core, info: &FlowInfo, flow: FlowId, socket: Option<Socket>) {
        if core.gateway.reached(core.time(), flow) != NextStep::Accept {
            return core.closed(flow);
        }
        let Ok(id) = core.stack.accept_datagram_flow(core.now, info.id, None) else {
            return core.closed(flow);
        };
        let at = self.all.insert(Ping { id, flow, guest: info.peer, to: info.local, socket });
        self.of_datagram.insert(id, at);
        self.of_flow.insert(flow, at);
        core.is_changed = true;
        self.up(core, id);
    }

    /// From the guest. Returns whether it is a socket of these.
    pub(crate) fn up(&mut self, core: &mut Core, id: DatagramId) -> bool {
        let Some(&at) = self.of_datagram.get(&id) else { return false };
        for _ in 0..TURN {
            let Some(one) = self.all.get(at) else { return true };
            let received = match core.stack.recv_datagram(id, &mut core.scratch, false) {
                Ok(received) => received,
                Err(DatagramError::WouldBlock) => return true,
                Err(DatagramError::TimedOut | DatagramError::Closed) => {
                    let flow = one.flow;
                    self.expire(core, flow);
                    return true;
                }
                Err(_) => continue,
            };
            let Some((header, data)) = core.scratch[..received.len].split_at_checked(ECHO_HEADER) else {
                continue;
            };
            let seq = u16::from_be_bytes([header[6], header[7]]);
            let is_v4 = one.guest.is_ipv4();
            let (flow, len) = (one.flow, data.len());
            match &one.socket {
                None => {
                    let reply = [&icmp::echo_request(is_v4, seq)[..], data].concat();
                    _ = core.stack.send_datagram(core.now, id, None, &reply, &SendMeta::default());
                }
                Some(socket) => {
                    let request = sockets::echo_request(is_v4, seq, data);
                    if let Err(error) = socket.send(&request)
                        && !waits(&error)
                    {
                        one.hear(core, &error);
                    }
                }
            }
            core.gateway.datagrams_passed(core.time(), flow, Side::Guest, 1, len);
        }
        true
    }

    /// The caller's loop has seen something at a socket.
    pub(crate) fn on_ready(&mut self, core: &mut Core, at: usize) {
        for _ in 0..TURN {
            let Some(one) = self.all.get(at) else { return };
            let Some(socket) = &one.socket else { return };
            let len = match sockets::receive(socket, &mut core.scratch) {
                Ok(arrived) => arrived.len,
                Err(error) if waits(&error) => return,
                Err(error) => {
                    one.hear(core, &error);
                    continue;
                }
            };
            let Some((header, data)) = core.scratch[..len].split_at_checked(ECHO_HEADER) else { continue };
            let seq = u16::from_be_bytes([header[6], header[7]]);
            let reply = [&icmp::echo_request(one.guest.is_ipv4(), seq)[..], data].concat();
            if core.stack.send_datagram(core.now, one.id, None, &reply, &SendMeta::default()).is_ok() {
                core.gateway.datagrams_passed(core.time(), one.flow, Side::Upstream, 1, len - ECHO_HEADER);
            }
        }
    }

    /// The time of a flow is over, if it is one of these. Returns whether it is.
    pub(crate) fn expire(&mut self, core: &mut Core, flow: FlowId) -> bool {
        let Some(at) = self.of_flow.remove(&flow) else { return false };
        if let Some(gone) = self.all.try_remove(at) {
            self.of_datagram.remove(&gone.id);
            core.stack.close_datagram(gone.id);
        }
        core.closed(flow);
        true
    }

    pub(crate) fn end_all(&mut self, core: &mut Core) {
        let all: Vec<FlowId> = self.of_flow.keys().copied().collect();
        all.into_iter().for_each(|flow| _ = self.expire(core, flow));
    }

    pub(crate) fn wait(&self, all: &mut Vec<Waited>) {
        all.extend(self.all.iter().filter_map(|(at, one)| {
            let fd = one.socket.as_ref()?.as_raw_fd();
            Some(Waited { fd, interest: interest::IN, key: Key::Ping(at) })
        }));
    }

    /// File and ends of each, for the table.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (i32, SocketAddr, SocketAddr)> + '_ {
        let fd = |one: &Ping| one.socket.as_ref().map_or(-1, std::os::fd::AsRawFd::as_raw_fd);
        self.all.iter().map(move |(_, one)| (fd(one), one.guest, one.to))
    }
}

impl Ping {
    fn hear(&self, core: &mut Core, error: &io::Error) {
        let socket = self.socket.as_ref();
        let is_told = socket.is_some_and(|socket| {
            sockets::hear(socket, &mut |_, how| _ = core.stack.refuse_datagrams(core.now, self.id, how))
        });
        if let Some(how) = sockets::refusal(error).filter(|_| !is_told) {
            _ = core.stack.refuse_datagrams(core.now, self.id, how);
        }
    }
}
