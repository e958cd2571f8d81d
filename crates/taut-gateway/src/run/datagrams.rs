//! One flow of UDP, or one program that pings: datagrams both ways until the flow is idle. What the host
//! hears of the upstream, the guest hears.
//!
//! Datagrams of one length that wait together leave by one call, and the host's kernel cuts them: on a busy
//! machine a queue that has grown meanwhile is sent with less work for each.
//!
//! A datagram for which the next socket has no room is dropped, as a router drops it. All flows of a thread
//! receive into one buffer, so an idle flow holds none.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;

use taut::{IncomingFlow, Refusal, UdpSocket};

use crate::logic::flow::{NextStep, Side};
use crate::out::way_out::{Datagrams, Pings, WayOut, failure, refusal};
use crate::run::server::Handle;

const LARGEST: usize = 65_536;
/// Datagrams of one way before the other has its turn.
const TURN: usize = 64;
/// How many datagrams leave by one call, and how long they are together. A kernel of Linux cuts 64 pieces at
/// most (before 5.5: `UDP_MAX_SEGMENTS`), and a message of UDP has 65,507 bytes at most.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 65_000;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BATCH_BYTES + LARGEST]);
}

pub(crate) async fn udp<W: WayOut>(incoming: IncomingFlow, to: SocketAddr, way: &W, flow: Handle) {
    let upstream = match way.datagrams(to) {
        Ok(upstream) => upstream,
        Err(error) => return refuse(incoming, &error, &flow),
    };
    if flow.reached() != NextStep::Accept {
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
    if let NextStep::Refuse(how) = flow.failed(failure(error)) {
        incoming.refuse(how);
    }
}

/// Passes what waits. An error is one of the guest's socket: the flow is over.
fn pass_up(guest: &UdpSocket, upstream: &impl Datagrams, flow: &Handle) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut batch = Batch::default();
        for _ in 0..TURN {
            let len = match guest.try_recv(&mut buffer[batch.bytes..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                received => received?,
            };
            if !batch.takes(len) {
                send(&buffer[..batch.bytes], batch.segment, guest, upstream, flow);
                buffer.copy_within(batch.bytes..batch.bytes + len, 0);
                batch = Batch::default();
            }
            batch.add(len);
        }
        if batch.count > 0 {
            send(&buffer[..batch.bytes], batch.segment, guest, upstream, flow);
        }
        Ok(())
    })
}

/// Datagrams one behind the other that a kernel takes by one call, and cuts: all have one length, but for the
/// last one, which may be shorter. Linux: `UDP_SEGMENT`.
#[derive(Clone, Copy, Default)]
struct Batch {
    /// Of all.
    bytes: usize,
    /// Of one.
    segment: usize,
    count: usize,
    /// The last one is shorter, or empty.
    is_complete: bool,
}

impl Batch {
    const fn takes(&self, len: usize) -> bool {
        let has_room = self.count < BATCH && self.bytes + len <= BATCH_BYTES;
        self.count == 0 || !self.is_complete && len > 0 && len <= self.segment && has_room
    }

    const fn add(&mut self, len: usize) {
        if self.count == 0 {
            self.segment = len;
        }
        self.is_complete = len < self.segment || len == 0;
        self.count += 1;
        self.bytes += len;
    }
}

fn send(message: &[u8], segment: usize, guest: &UdpSocket, upstream: &impl Datagrams, flow: &Handle) {
    if message.len() > segment {
        match upstream.try_send_segments(message, segment) {
            Ok(sent) => return flow.passed(Side::Guest, sent, 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // The error is about an earlier datagram, or the path or the device takes no such call.
            Err(_) => _ = upstream.hear(&mut |how| _ = guest.refuse(how)),
        }
    }
    let mut rest = message;
    loop {
        let (one, more) = rest.split_at(segment.min(rest.len()));
        // The first attempt may report what became of an earlier datagram.
        for _ in 0..2 {
            match upstream.try_send(one) {
                Ok(_) => {
                    flow.passed(Side::Guest, one.len(), 0);
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => hear(&error, |tell| upstream.hear(tell), |how| guest.refuse(how)),
            }
        }
        if more.is_empty() {
            return;
        }
        rest = more;
    }
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

/// Tells the guest what ICMP reported; if the way out cannot say, what the error of its call means. There is
/// a limit on such errors.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How many datagrams leave by each call, when those of these lengths wait.
    fn calls(lens: &[usize]) -> Vec<usize> {
        let (mut calls, mut batch) = (Vec::new(), Batch::default());
        for &len in lens {
            if !batch.takes(len) {
                calls.push(batch.count);
                batch = Batch::default();
            }
            batch.add(len);
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
    }
}
