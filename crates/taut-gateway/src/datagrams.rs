//! One flow of UDP, or one program that pings: datagrams both ways until the flow is idle. What the host
//! hears of the upstream, the guest hears.
//!
//! A datagram for which the next socket has no room is dropped, as a router drops it. All flows of a thread
//! receive into one buffer, so an idle flow holds none.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;

use taut::{IncomingFlow, Refusal, UdpSocket};

use crate::flow::{Side, Then};
use crate::serve::Handle;
use crate::way_out::{Datagrams, Pings, WayOut, failure, refusal};

const LARGEST: usize = 65_536;
/// Datagrams of one way before the other has its turn.
const TURN: usize = 64;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LARGEST]);
}

pub(crate) async fn udp<W: WayOut>(incoming: IncomingFlow, to: SocketAddr, way: &W, flow: Handle) {
    let upstream = match way.datagrams(to) {
        Ok(upstream) => upstream,
        Err(error) => return refuse(incoming, &error, &flow),
    };
    if flow.reached() != Then::Accept {
        return;
    }
    let Ok(guest) = incoming.accept_udp() else { return };
    loop {
        let passed = tokio::select! {
            ready = guest.readable() => match ready {
                Ok(()) => pass_up(&guest, &upstream, &flow),
                Err(_) => return,
            },
            // An error is found by receiving.
            _ = upstream.readable() => pass_down(&guest, &upstream, &flow),
            () = flow.stopped() => return,
        };
        if passed.is_err() {
            return;
        }
    }
}

fn refuse(incoming: IncomingFlow, error: &io::Error, flow: &Handle) {
    if let Then::Refuse(how) = flow.failed(failure(error)) {
        incoming.refuse(how);
    }
}

/// Passes what waits. An error is one of the guest's socket: the flow is over.
fn pass_up(guest: &UdpSocket, upstream: &impl Datagrams, flow: &Handle) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        for _ in 0..TURN {
            let len = match guest.try_recv(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                received => received?,
            };
            // The first attempt may report what became of an earlier datagram.
            for _ in 0..2 {
                match upstream.try_send(&buffer[..len]) {
                    Ok(_) => {
                        flow.passed(Side::Guest, len, 0);
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => hear(&error, |tell| upstream.hear(tell), |how| guest.refuse(how)),
                }
            }
        }
        Ok(())
    })
}

fn pass_down(guest: &UdpSocket, upstream: &impl Datagrams, flow: &Handle) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        for _ in 0..TURN {
            let len = match upstream.try_recv(buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    hear(&error, |tell| upstream.hear(tell), |how| guest.refuse(how));
                    continue;
                }
            };
            match guest.try_send(&buffer[..len]) {
                Ok(_) => flow.passed(Side::Upstream, len, 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}

/// Tells the guest what ICMP reported; if the way out cannot say, what the error of its call means. There is a limit on
/// such errors.
fn hear(
    error: &io::Error,
    reports: impl FnOnce(&mut dyn FnMut(Refusal)) -> bool,
    refuse: impl Fn(Refusal) -> io::Result<bool>,
) {
    let is_told = reports(&mut |how| _ = refuse(how));
    if let Some(how) = refusal(error).filter(|_| !is_told) {
        _ = refuse(how);
    }
}

pub(crate) async fn pings<W: WayOut>(incoming: IncomingFlow, to: SocketAddr, way: &W, flow: Handle) {
    let upstream = match way.pings(to.ip()) {
        Ok(upstream) => upstream,
        Err(error) => return refuse(incoming, &error, &flow),
    };
    if flow.reached() != Then::Accept {
        return;
    }
    let Ok(guest) = incoming.accept_echo() else { return };
    let (mut request, mut reply) = (vec![0; LARGEST], vec![0; LARGEST]);
    loop {
        tokio::select! {
            received = guest.recv(&mut request) => {
                let Ok(received) = received else { return };
                let data = &request[..received.len];
                match upstream.send(received.seq, data).await {
                    Ok(()) => flow.passed(Side::Guest, data.len(), 0),
                    Err(error) => hear(&error, |tell| upstream.hear(tell), |how| guest.refuse(how)),
                }
            }
            received = upstream.recv(&mut reply) => match received {
                Ok((seq, len)) => {
                    if guest.send(seq, &reply[..len]).await.is_err() {
                        return;
                    }
                    flow.passed(Side::Upstream, len, 0);
                }
                Err(error) => hear(&error, |tell| upstream.hear(tell), |how| guest.refuse(how)),
            },
            () = flow.stopped() => return,
        }
    }
}
