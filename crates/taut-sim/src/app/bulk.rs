//! A client that writes as much as it can, like netperf's `TCP_STREAM`, or that pauses between bursts.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use taut_core::{ConnId, ConnOptions, Duration, Event, Instant, WriteError};

use super::{App, AppCx};
use crate::pattern::Pattern;

/// Results of a [`Bulk`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BulkStats {
    /// Its connection.
    pub conn: Option<ConnId>,
    /// When the connection was established.
    pub connected: Option<Instant>,
    /// Bytes written.
    pub written: u64,
    /// Writes that found no room.
    pub blocked: u64,
    /// When the last byte was written.
    pub last_write: Option<Instant>,
    /// When the other end had acknowledged everything and the connection was closed.
    pub closed: Option<Instant>,
    /// Why the connection ended, if it failed.
    pub failed: Option<taut_core::ConnError>,
}

/// On/off traffic: writes for a while, then pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Mean time of writing; exponentially distributed.
    pub on: Duration,
    /// Mean time of silence; exponentially distributed.
    pub off: Duration,
}

/// Connects and writes.
pub struct Bulk {
    to: SocketAddr,
    options: ConnOptions,
    /// Bytes to write in all.
    total: u64,
    /// Bytes per write.
    write: usize,
    /// Time between writes; as much as there is room for if not given.
    every: Option<Duration>,
    pause: Option<Pause>,
    is_on: bool,
    conn: Option<(ConnId, Pattern)>,
    stats: Rc<RefCell<BulkStats>>,
}

/// Tokens of the timers.
const WRITE: u64 = 0;
const TURN: u64 = 1;

impl Bulk {
    /// An application that writes to `to` without end, 64 KiB at a time.
    #[must_use]
    pub fn new(to: SocketAddr) -> Self {
        Self {
            to,
            options: ConnOptions::default(),
            total: u64::MAX,
            write: crate::pattern::RUN,
            every: None,
            pause: None,
            is_on: true,
            conn: None,
            stats: Rc::default(),
        }
    }

    /// Options of its connection.
    #[must_use]
    pub fn options(mut self, options: ConnOptions) -> Self {
        self.options = options;
        self
    }

    /// Ends after this many bytes.
    #[must_use]
    pub fn total(mut self, bytes: u64) -> Self {
        self.total = bytes;
        self
    }

    /// Bytes per write, which is one blocking call of the stack: bytes that find no room are written as soon
    /// as there is some.
    #[must_use]
    pub fn write_size(mut self, bytes: usize) -> Self {
        self.write = bytes.max(1);
        self
    }

    /// Writes once in each interval of this length.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// Alternates between writing and silence.
    #[must_use]
    pub fn pause(mut self, pause: Pause) -> Self {
        self.pause = Some(pause);
        self
    }

    /// The results, to be read later.
    #[must_use]
    pub fn stats(&self) -> Rc<RefCell<BulkStats>> {
        Rc::clone(&self.stats)
    }

    /// Writes until there is no room, or, with `once`, one write.
    fn fill(&mut self, cx: &mut AppCx<'_>, once: bool) {
        let Some((id, pattern)) = &mut self.conn else { return };
        if !self.is_on {
            return;
        }
        loop {
            let left = self.total - pattern.passed();
            if left == 0 {
                cx.finish(*id);
                self.conn = None;
                return;
            }
            let len = left.min(self.write as u64) as usize;
            let result = if len <= crate::pattern::RUN {
                cx.write_pattern(*id, pattern, len)
            } else {
                write_long(cx, *id, pattern, len)
            };
            let mut stats = self.stats.borrow_mut();
            match result {
                Ok(count) => {
                    stats.written += count as u64;
                    stats.last_write = Some(cx.now());
                    // A partial write does not cause an event; the next attempt, which fails, does.
                    if once && count == len && self.total > pattern.passed() {
                        return;
                    }
                }
                Err(WriteError::WouldBlock) => {
                    stats.blocked += 1;
                    return;
                }
                Err(_) => return,
            }
        }
    }
}

/// Writes more bytes than the pattern has in one piece, as one call.
fn write_long(
    cx: &mut AppCx<'_>,
    id: ConnId,
    pattern: &mut Pattern,
    len: usize,
) -> Result<usize, WriteError> {
    let mut copy = Vec::with_capacity(len);
    let mut ahead = *pattern;
    while copy.len() < len {
        let piece = ahead.bytes(len - copy.len());
        copy.extend_from_slice(piece);
        ahead.pass(piece.len());
    }
    let count = cx.write(id, &copy)?;
    pattern.pass(count);
    Ok(count)
}

impl App for Bulk {
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
                let pattern = cx.pattern(id, true);
                self.conn = Some((id, pattern));
                if let Some(every) = self.every {
                    cx.timer(cx.now() + every, WRITE);
                }
                if let Some(pause) = self.pause {
                    let until = cx.now() + cx.rng().exponential(pause.on);
                    cx.timer(until, TURN);
                }
                self.fill(cx, self.every.is_some());
            }
            Event::Writable(_) if self.every.is_none() => self.fill(cx, false),
            Event::Failed(id, error) => {
                self.stats.borrow_mut().failed = Some(error);
                self.conn = None;
                cx.close(id);
            }
            Event::Closed(id) => {
                self.stats.borrow_mut().closed = Some(cx.now());
                self.conn = None;
                cx.close(id);
            }
            // The other end sends no data; its end of stream is read when ours has ended.
            Event::Readable(id) => {
                if let Ok(None) = cx.read(id, 1, |_| {})
                    && self.conn.is_none()
                {
                    self.stats.borrow_mut().closed = Some(cx.now());
                    cx.close(id);
                }
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AppCx<'_>, token: u64) {
        match (token, self.every, self.pause) {
            (WRITE, Some(every), _) => {
                self.fill(cx, true);
                if self.conn.is_some() {
                    cx.timer(cx.now() + every, WRITE);
                }
            }
            (TURN, _, Some(pause)) => {
                self.is_on = !self.is_on;
                let mean = if self.is_on { pause.on } else { pause.off };
                let until = cx.now() + cx.rng().exponential(mean);
                cx.timer(until, TURN);
                self.fill(cx, false);
            }
            _ => {}
        }
    }
}
