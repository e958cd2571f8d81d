//! A server that reads everything and compares it with the pattern that was written.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use taut_core::{ConnId, Duration, Event, Instant, ListenOptions};

use super::{App, AppCx};
use crate::pattern::Pattern;

/// Results of a [`Sink`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SinkStats {
    /// Bytes of all connections.
    pub bytes: u64,
    /// Bytes of each connection, in the order in which they were accepted, with the peer.
    pub flows: Vec<(SocketAddr, u64)>,
    /// Connections accepted.
    pub accepted: u64,
    /// Streams read to their end.
    pub ended: u64,
    /// When the last byte was read.
    pub last: Instant,
}

struct Flow {
    id: ConnId,
    pattern: Pattern,
    index: usize,
}

/// Reads and checks.
pub struct Sink {
    port: u16,
    options: ListenOptions,
    /// Least time between reads, if given: a slow application.
    every: Option<Duration>,
    check: bool,
    flows: Vec<Option<Flow>>,
    stats: Rc<RefCell<SinkStats>>,
}

impl Sink {
    /// A sink that listens at a port of every address, IPv4 and IPv6.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self {
            port,
            options: ListenOptions::default(),
            every: None,
            check: true,
            flows: Vec::new(),
            stats: Rc::default(),
        }
    }

    /// Options of the connections that it accepts.
    #[must_use]
    pub fn options(mut self, options: ListenOptions) -> Self {
        self.options = options;
        self
    }

    /// Reads only once in each interval of this length.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// Does not compare the bytes.
    #[must_use]
    pub fn trusting(mut self) -> Self {
        self.check = false;
        self
    }

    /// The results, to be read later.
    #[must_use]
    pub fn stats(&self) -> Rc<RefCell<SinkStats>> {
        Rc::clone(&self.stats)
    }

    fn read(&mut self, cx: &mut AppCx<'_>, id: ConnId) {
        let Some(Some(flow)) =
            self.flows.get_mut(id.slot()).map(|flow| flow.as_mut().filter(|flow| flow.id == id))
        else {
            return;
        };
        let (bytes, ended) = if self.check { cx.check_pattern(id, &mut flow.pattern) } else { drain(cx, id) };
        let mut stats = self.stats.borrow_mut();
        stats.bytes += bytes;
        if let Some(entry) = stats.flows.get_mut(flow.index) {
            entry.1 += bytes;
        }
        if bytes > 0 {
            stats.last = cx.now();
        }
        if ended {
            stats.ended += 1;
            self.flows[id.slot()] = None;
            cx.close(id);
        }
    }
}

/// Reads everything without comparing it.
fn drain(cx: &mut AppCx<'_>, id: ConnId) -> (u64, bool) {
    let mut total = 0;
    loop {
        match cx.read(id, 1 << 20, |_| {}) {
            Ok(Some(count)) => total += count as u64,
            Ok(None) => return (total, true),
            Err(taut_core::ReadError::WouldBlock) => return (total, false),
            Err(_) => return (total, true),
        }
    }
}

impl App for Sink {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        let at = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.port);
        if let Err(error) = cx.listen(at, self.options.clone()) {
            cx.fail(format!("sink at port {}: {error}", self.port));
        }
        if let Some(every) = self.every {
            cx.timer(cx.now() + every, 0);
        }
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event) {
        match event {
            Event::Incoming(listener) => {
                while let Some((id, peer)) = cx.accept(listener) {
                    let pattern = cx.pattern(id, false);
                    let mut stats = self.stats.borrow_mut();
                    stats.accepted += 1;
                    stats.flows.push((peer, 0));
                    let index = stats.flows.len() - 1;
                    drop(stats);
                    if self.flows.len() <= id.slot() {
                        self.flows.resize_with(id.slot() + 1, || None);
                    }
                    self.flows[id.slot()] = Some(Flow { id, pattern, index });
                    if self.every.is_none() {
                        self.read(cx, id);
                    }
                }
            }
            Event::Readable(id) | Event::Failed(id, _) | Event::Closed(id) if self.every.is_none() => {
                self.read(cx, id);
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AppCx<'_>, _token: u64) {
        let ids: Vec<ConnId> = self.flows.iter().flatten().map(|flow| flow.id).collect();
        for id in ids {
            self.read(cx, id);
        }
        if let Some(every) = self.every {
            cx.timer(cx.now() + every, 0);
        }
    }
}
