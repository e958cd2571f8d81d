//! One flow of UDP, or one program that pings: datagrams both ways until the flow is idle. What the host
//! hears of the upstream, the guest hears. Flows from one port of a guest share a socket (`ports.rs`).
//!
//! Datagrams of one length that wait together leave by one call, and the host's kernel cuts them: on a busy
//! machine a queue that has grown meanwhile is sent with less work for each.
//!
//! A datagram for which the next socket has no room is dropped, as a router drops it. All flows of a thread
//! receive into one buffer, so an idle flow holds none.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use taut::{EchoSocket, IncomingFlow, Received, SendMeta};

use crate::logic::flow::{Failure, NextStep, Side};
use crate::out::way_out::{Arrived, Datagrams, Pings, WayOut, failure, refusal};
use crate::run::ports::{Port, PortFlow, Ports};
use crate::run::server::Handle;

const LARGEST: usize = 65_536;
/// Datagrams of one way before the other has its turn.
const TURN: usize = 64;
/// Flows that give up their places when this host has no descriptor for one more: some have none of their
/// own.
const PLACES: usize = 4;
/// How many datagrams leave by one call, and how long they are together. A kernel of Linux cuts 64 pieces at
/// most (before 5.5: `UDP_MAX_SEGMENTS`), and a message of UDP has 65,507 bytes at most.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 65_000;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BATCH_BYTES + LARGEST]);
}

pub(crate) async fn udp<W: WayOut>(incoming: IncomingFlow, to: SocketAddr, way: &W, flow: Handle) {
    let port = match open(&flow, incoming.peer_addr(), || way.datagrams(to)).await {
        Ok(port) => port,
        Err(error) => return refuse(incoming, &error, &flow),
    };
    if flow.reached() != NextStep::Accept {
        return;
    }
    let Ok(guest) = incoming.accept_udp() else { return };
    let flow = PortFlow::new(guest, flow, true);
    port.enter(to, &flow);
    pass(port, to, flow).await;
}

/// The guest's port. If this host has no descriptor left, another flow of the guest's gives up its own.
async fn open<D: Datagrams>(
    flow: &Handle,
    guest: SocketAddr,
    socket: impl Fn() -> io::Result<D>,
) -> io::Result<Arc<Port<D>>> {
    for _ in 0..PLACES {
        match Ports::of(flow.server(), guest, &socket) {
            Err(error) if failure(&error) == Failure::NoResources => {
                if !flow.make_room(guest.ip()) {
                    return Err(error);
                }
                // Its task ends now.
                tokio::task::yield_now().await;
            }
            opened => return opened,
        }
    }
    Ports::of(flow.server(), guest, socket)
}

async fn pass<D: Datagrams>(port: Arc<Port<D>>, to: SocketAddr, flow: Arc<PortFlow>) {
    let mut receives = false;
    loop {
        tokio::select! {
            ready = flow.guest.readable() => if ready.is_err() || pass_up(&port, to, &flow).is_err() {
                break;
            },
            // An error is found by receiving.
            () = readable(&port, &mut receives) => pass_down(&port),
            () = flow.flow.stopped() => break,
        }
    }
    port.leave(to, &flow, receives);
}

/// Waits until the port has something to receive, if this flow's task receives for all.
async fn readable<D: Datagrams>(port: &Port<D>, receives: &mut bool) {
    poll_fn(|_| {
        *receives = *receives || port.take_receiving();
        if *receives { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    if port.upstream.readable().await.is_err() {
        // The way out is gone: what is sent fails, and the guest's flows end in time.
        std::future::pending::<()>().await;
    }
}

fn refuse(incoming: IncomingFlow, error: &io::Error, flow: &Handle) {
    if let NextStep::Refuse(how) = flow.failed(failure(error)) {
        incoming.refuse(how);
    }
}

/// Passes what waits. An error is one of the guest's socket: the flow is over.
fn pass_up<D: Datagrams>(port: &Port<D>, to: SocketAddr, flow: &PortFlow) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut batch = Batch::default();
        for _ in 0..TURN {
            let Received { len, tos, .. } = match flow.guest.try_recv_with(&mut buffer[batch.bytes..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                received => received?,
            };
            if !flow.may_pass(Side::Guest, len) {
                continue;
            }
            if !batch.takes(len, tos) {
                send(&buffer[..batch.bytes], &batch, port, to, flow);
                buffer.copy_within(batch.bytes..batch.bytes + len, 0);
                batch = Batch::default();
            }
            batch.add(len, tos);
        }
        if batch.count > 0 {
            send(&buffer[..batch.bytes], &batch, port, to, flow);
        }
        Ok(())
    })
}

/// Datagrams one behind the other that a kernel takes by one call, and cuts: all have one TOS and one length,
/// but for the last one, which may be shorter. Linux: `UDP_SEGMENT`.
#[derive(Clone, Copy, Default)]
struct Batch {
    /// Of all.
    bytes: usize,
    /// Of one.
    segment: usize,
    count: usize,
    /// Of each.
    tos: u8,
    /// The last one is shorter, or empty.
    is_complete: bool,
}

impl Batch {
    const fn takes(&self, len: usize, tos: u8) -> bool {
        let has_room = self.count < BATCH && self.bytes + len <= BATCH_BYTES;
        let is_alike = len > 0 && len <= self.segment && tos == self.tos;
        self.count == 0 || !self.is_complete && is_alike && has_room
    }

    const fn add(&mut self, len: usize, tos: u8) {
        if self.count == 0 {
            (self.segment, self.tos) = (len, tos);
        }
        self.is_complete = len < self.segment || len == 0;
        self.count += 1;
        self.bytes += len;
    }
}

fn send<D: Datagrams>(message: &[u8], batch: &Batch, port: &Port<D>, to: SocketAddr, flow: &PortFlow) {
    flow.has_sent.store(true, Relaxed);
    if batch.count > 1 {
        match port.upstream.try_send(message, u16::try_from(batch.segment).ok(), to, batch.tos) {
            Ok(sent) => return flow.flow.datagrams_passed(Side::Guest, batch.count, sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // The error is about an earlier datagram, or the path or the device takes no such call.
            Err(_) => _ = hear(port),
        }
    }
    let mut rest = message;
    loop {
        let (one, more) = rest.split_at(batch.segment.min(rest.len()));
        // The first attempt may report what became of an earlier datagram, of any flow of the port.
        for is_first in [true, false] {
            match port.upstream.try_send(one, None, to, batch.tos) {
                Ok(_) => {
                    flow.flow.datagrams_passed(Side::Guest, 1, one.len());
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    let is_told = hear(port);
                    if let Some(how) = refusal(&error).filter(|_| !is_first && !is_told) {
                        _ = flow.guest.refuse(how);
                    }
                }
            }
        }
        if more.is_empty() {
            return;
        }
        rest = more;
    }
}

fn pass_down<D: Datagrams>(port: &Arc<Port<D>>) {
    BUFFER.with_borrow_mut(|buffer| {
        for _ in 0..TURN {
            let Arrived { len, from, tos } = match port.upstream.try_recv(buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    hear(port);
                    continue;
                }
            };
            // One whose socket takes it no more is over, which its own task notices.
            if let Some(flow) = port.to(from).or_else(|| let_in(port, from))
                && flow.may_pass(Side::Upstream, len)
                && flow
                    .guest
                    .try_send_with(&buffer[..len], None, &SendMeta { tos: Some(tos), ..SendMeta::default() })
                    .is_ok()
            {
                flow.flow.datagrams_passed(Side::Upstream, 1, len);
            }
        }
    });
}

/// A flow that a host outside begins at a port of the guest's, if the filter and the rules let it in.
fn let_in<D: Datagrams>(port: &Arc<Port<D>>, from: SocketAddr) -> Option<Arc<PortFlow>> {
    let (any, is_known) = port.any(from.ip())?;
    let server = port.server();
    let (id, seen) = server.with(|gateway, now| gateway.from_outside(now, port.guest(), from, is_known))?;
    let flow = server.handle(id);
    let guest = any.guest.flow_from(seen).ok()?;
    flow.reached();
    let flow = PortFlow::new(guest, flow, false);
    port.enter(from, &flow);
    tokio::spawn(pass(Arc::clone(port), from, Arc::clone(&flow)));
    Some(flow)
}

/// Tells the guest what ICMP reported, each about the flow whose datagram it was. There is a limit on such
/// errors.
fn hear<D: Datagrams>(port: &Port<D>) -> bool {
    port.upstream.hear(&mut |to, how| {
        if let Some(flow) = port.to(to) {
            _ = flow.guest.refuse(how);
        }
    })
}

/// The same of pings; if the way out cannot say, what the error of its call means.
fn hear_pings(error: &io::Error, upstream: &impl Pings, guest: &EchoSocket) {
    let is_told = upstream.hear(&mut |how| _ = guest.refuse(how));
    if let Some(how) = refusal(error).filter(|_| !is_told) {
        _ = guest.refuse(how);
    }
}

pub(crate) async fn pings<W: WayOut>(incoming: IncomingFlow, to: SocketAddr, way: &W, flow: Handle) {
    let upstream = match way.pings(to.ip()) {
        Ok(upstream) => upstream,
        Err(error) => return refuse(incoming, &error, &flow),
    };
    if flow.reached() != NextStep::Accept {
        return;
    }
    let Ok(guest) = incoming.accept_echo() else { return };
    let (mut request, mut reply) = (vec![0; LARGEST], vec![0; LARGEST]);
    loop {
        tokio::select! {
            received = guest.recv(&mut request) => {
                let Ok(received) = received else { return };
                let data = &request[..received.len];
                if !flow.may_pass(Side::Guest, data.len()) {
                    continue;
                }
                match upstream.send(received.seq, data).await {
                    Ok(()) => flow.passed(Side::Guest, data.len(), 0),
                    Err(error) => hear_pings(&error, &upstream, &guest),
                }
            }
            received = upstream.recv(&mut reply) => match received {
                Ok((_, len)) if !flow.may_pass(Side::Upstream, len) => {}
                Ok((seq, len)) => {
                    if guest.send(seq, &reply[..len]).await.is_err() {
                        return;
                    }
                    flow.passed(Side::Upstream, len, 0);
                }
                Err(error) => hear_pings(&error, &upstream, &guest),
            },
            () = flow.stopped() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many datagrams leave by each call, when those of these lengths wait.
    fn calls(lens: &[usize]) -> Vec<usize> {
        let (mut calls, mut batch) = (Vec::new(), Batch::default());
        for &len in lens {
            if !batch.takes(len, 0) {
                calls.push(batch.count);
                batch = Batch::default();
            }
            batch.add(len, 0);
            assert!(batch.count == 1 || batch.bytes <= BATCH_BYTES);
        }
        calls.push(batch.count);
        calls
    }

    #[test]
    fn gw_85_datagrams_of_one_length_leave_together_and_a_shorter_one_behind_them() {
        // udp(7), UDP_SEGMENT: the last one may be shorter.
        assert_eq!(calls(&[1_400; 10]), [10]);
        assert_eq!(calls(&[1_400, 1_400, 700, 1_400, 700, 700]), [3, 2, 1]);
        assert_eq!(calls(&[700, 1_400, 1_400]), [1, 2]);
        // An empty one is none of several.
        assert_eq!(calls(&[0, 0, 5, 0, 5, 5]), [1, 1, 1, 1, 2]);
        // 64 at most, and what a message of UDP may have.
        assert_eq!(calls(&[10; 130]), [64, 64, 2]);
        assert_eq!(calls(&[1_400; 47]), [46, 1]);
        assert_eq!(calls(&[65_507, 65_507]), [1, 1]);
        assert_eq!(calls(&[32_500, 32_500, 1]), [2, 1]);
        // One call has one TOS.
        let mut batch = Batch::default();
        batch.add(10, 2);
        assert_eq!([2, 3, 0].map(|tos| batch.takes(10, tos)), [true, false, false]);
    }
}
