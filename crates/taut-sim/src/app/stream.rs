//! A client that works like an event loop: it waits in `epoll_wait` until its connection is writable, writes
//! until it is not, and sleeps again. With `TCP_NOTSENT_LOWAT` this needs only a few bytes in the kernel.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use taut_core::{ConnId, ConnOptions, Event, Instant, WriteError};

use super::{App, AppCx};
use crate::pattern::Pattern;

/// Results of a [`Stream`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StreamStats {
    /// Its connection.
    pub conn: Option<ConnId>,
    /// Times that it was woken because it could write.
    pub wakeups: u64,
    /// Bytes written.
    pub written: u64,
    /// Writes that were accepted at least in part.
    pub writes: u64,
    /// When the connection was established.
    pub connected: Option<Instant>,
}

/// Writes while writable.
pub struct Stream {
    to: SocketAddr,
    options: ConnOptions,
    write: usize,
    pattern: Option<Pattern>,
    stats: Rc<RefCell<StreamStats>>,
}

impl Stream {
    /// An application that writes to `to` without end, at most 16 KiB at a time, as long as the connection is
    /// writable.
    #[must_use]
    pub fn new(to: SocketAddr) -> Self {
        Self { to, options: ConnOptions::default(), write: 16_384, pattern: None, stats: Rc::default() }
    }

    /// Options of its connection.
    #[must_use]
    pub fn options(mut self, options: ConnOptions) -> Self {
        self.options = options;
        self
    }

    /// Bytes per write.
    #[must_use]
    pub fn write_size(mut self, bytes: usize) -> Self {
        self.write = bytes.clamp(1, crate::pattern::RUN);
        self
    }

    /// The results, to be read later.
    #[must_use]
    pub fn stats(&self) -> Rc<RefCell<StreamStats>> {
        Rc::clone(&self.stats)
    }

    fn fill(&mut self, cx: &mut AppCx<'_>, id: ConnId) {
        let Some(pattern) = &mut self.pattern else { return };
        loop {
            match cx.write_pattern(id, pattern, self.write) {
                Ok(count) => {
                    let mut stats = self.stats.borrow_mut();
                    stats.written += count as u64;
                    stats.writes += 1;
                }
                Err(WriteError::WouldBlock) => return,
                Err(_) => {
                    self.pattern = None;
                    return;
                }
            }
        }
    }
}

impl App for Stream {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        match cx.connect(self.to, &self.options) {
            Ok(id) => self.stats.borrow_mut().conn = Some(id),
            Err(error) => cx.fail(format!("connect to {}: {error}", self.to)),
        }
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event) {
        match event {
            Event::Connected(id) => {
                self.stats.borrow_mut().connected = Some(cx.now());
                self.pattern = Some(cx.pattern(id, true));
                self.fill(cx, id);
            }
            Event::Writable(id) => {
                self.stats.borrow_mut().wakeups += 1;
                self.fill(cx, id);
            }
            Event::Failed(id, _) | Event::Closed(id) => {
                self.pattern = None;
                cx.close(id);
            }
            _ => {}
        }
    }
}
