//! The half of a switch that receives, from one port after the other. Called by the driver.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use taut_core::NetworkChange;
use taut_driver::{News, Received, RxDevice};
use taut_ethernet::{Arrival, PortId, Way};
use taut_wire::ethernet;

use super::super::line::now;
use super::super::rx::{USELESS_MAX, of_plain};
use super::super::stage::{Stage, Staged};
use super::{Hub, Port, PortNews};

/// Frames of a port before the next one has its turn.
const TURN: usize = 8;

#[derive(Debug)]
pub(super) struct SwitchRx {
    hub: Arc<Hub>,
    /// All ports, as of this change.
    changes: u32,
    inlets: Vec<(Arc<Port>, Stage)>,
    /// The port that is read now, and the frames read from it.
    turn: (usize, usize),
    /// Staged frames are announced.
    announces: bool,
}

impl SwitchRx {
    pub(super) const fn new(hub: Arc<Hub>) -> Self {
        Self { hub, changes: 0, inlets: Vec::new(), turn: (0, 0), announces: false }
    }

    /// Takes note of ports that have come or gone.
    fn refresh(&mut self) {
        let changes = self.hub.changes.load(Ordering::Acquire);
        if changes == self.changes {
            return;
        }
        self.changes = changes;
        let line = self.hub.line();
        self.inlets.retain(|(own, _)| line.ports.iter().any(|port| port.id == own.id));
        for port in &line.ports {
            if !self.inlets.iter().any(|(own, _)| own.id == port.id) {
                self.inlets.push((Arc::clone(port), Stage::default()));
            }
        }
    }

    /// The next frame, in the buffer, and its port.
    fn frame(&mut self, buffer: &mut [u8]) -> Option<(Arc<Port>, Range<usize>)> {
        self.refresh();
        let mut looked = 0;
        while looked < self.inlets.len() {
            let (at, had) = self.turn;
            if had >= TURN || at >= self.inlets.len() {
                self.turn = if at + 1 < self.inlets.len() { (at + 1, 0) } else { (0, 0) };
                continue;
            }
            let (port, stage) = &mut self.inlets[at];
            let why = match stage.next(&port.carrier, buffer) {
                Ok(Staged::Frame(frame)) => {
                    self.turn.1 += 1;
                    return Some((Arc::clone(port), frame));
                }
                Ok(Staged::Nothing) => {
                    (self.turn.1, looked) = (TURN, looked + 1);
                    continue;
                }
                Ok(Staged::End) => io::Error::new(io::ErrorKind::UnexpectedEof, "it has closed its socket"),
                Err(error) => error,
            };
            let id = port.id;
            if self.hub.unplug(id) {
                (self.hub.log)(PortNews::Gone(id, why));
            }
            self.refresh();
        }
        None
    }

    /// Passes a frame on to other machines; returns whether it is for this host, too.
    fn switch(&self, port: &Port, frame: &[u8]) -> bool {
        let mut line = self.hub.line();
        let way = line.ethernet.switch_frame(now(), port.id, frame);
        let pass = |is_for: &dyn Fn(PortId) -> bool| {
            let others = line.ports.iter().filter(|other| other.id != port.id && is_for(other.id));
            others.for_each(|other| other.pass(&self.hub.news, frame));
        };
        match way {
            Way::Host => return true,
            Way::Everybody => pass(&|_| true),
            Way::Port(id) => pass(&|other| other == id),
            Way::Refused(why) => {
                drop(line);
                if port.is_news(why) {
                    (self.hub.log)(PortNews::Refused(port.id, why));
                }
            }
        }
        way == Way::Everybody
    }

    /// Nothing has come: sends what has waited for room, and handles what is due.
    fn rest(&mut self) {
        self.inlets.iter().for_each(|(port, _)| port.flush(&self.hub.news));
        self.announces = false;
        self.hub.handle_timeout();
    }

    /// Staged frames are not announced by the sockets, and the driver may end its batch at any packet.
    fn announce(&mut self) {
        let has_more = self.inlets.iter().any(|(_, stage)| stage.has_frame());
        if has_more != self.announces {
            self.announces = has_more;
            let mut line = self.hub.line();
            line.has_more = has_more;
            self.hub.settle(&mut line);
        }
    }
}

impl RxDevice for SwitchRx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        // The router begins.
        self.hub.settle(&mut self.hub.line());
        Ok(News::Fd(self.hub.news()?))
    }

    fn poll_change(&mut self) -> Option<NetworkChange> {
        self.hub.line().ethernet.poll_change()
    }

    fn change_network(&mut self, change: NetworkChange) -> bool {
        let mut line = self.hub.line();
        let is_now = line.ethernet.change_network(now(), change);
        self.hub.settle(&mut line);
        is_now
    }

    fn begin_batch(&mut self) {
        self.inlets.iter_mut().for_each(|(_, stage)| stage.begin_batch());
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        for _ in 0..USELESS_MAX {
            let Some((port, Range { start, end })) = self.frame(buffer) else {
                self.rest();
                return Ok(None);
            };
            let Some(frame) = buffer.get(start..end) else { continue };
            self.hub.record(std::iter::once(frame));
            if !self.switch(&port, frame) {
                continue;
            }
            let mut line = self.hub.line();
            match line.ethernet.handle_frame(now(), frame) {
                Arrival::Packet => {}
                Arrival::Taken => {
                    self.hub.settle(&mut line);
                    continue;
                }
                Arrival::Ignored => continue,
            }
            drop(line);
            let ip_at = start + ethernet::HEADER_LEN;
            let checksum = of_plain(buffer.get(ip_at..end).unwrap_or_default());
            self.announce();
            return Ok(Some(Received { range: ip_at..end.max(ip_at), checksum, gso_size: 0 }));
        }
        self.rest();
        self.announce();
        Ok(None)
    }
}
