//! Requests and responses, one after the other on one connection, like netperf's `TCP_RR`; both sides.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use taut_core::{ConnId, ConnOptions, Duration, Event, Instant, ListenOptions};

use super::{App, AppCx};

/// Results of a [`Request`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RrStats {
    /// Its connection.
    pub conn: Option<ConnId>,
    /// Time from each request to its complete response.
    pub latencies: Vec<Duration>,
}

/// Sends requests.
pub struct Request {
    to: SocketAddr,
    options: ConnOptions,
    request: usize,
    response: usize,
    /// Number of requests.
    count: u64,
    /// Time between a response and the next request.
    think: Duration,
    sent_at: Instant,
    missing: usize,
    conn: Option<ConnId>,
    stats: Rc<RefCell<RrStats>>,
}

impl Request {
    /// An application that sends one byte for one byte, without end.
    #[must_use]
    pub fn new(to: SocketAddr) -> Self {
        Self {
            to,
            options: ConnOptions::default(),
            request: 1,
            response: 1,
            count: u64::MAX,
            think: Duration::ZERO,
            sent_at: Instant::ZERO,
            missing: 0,
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

    /// Bytes of a request and of a response. The responder must have the same sizes.
    #[must_use]
    pub fn sizes(mut self, request: usize, response: usize) -> Self {
        (self.request, self.response) = (request.max(1), response.max(1));
        self
    }

    /// Ends after this many requests.
    #[must_use]
    pub fn count(mut self, count: u64) -> Self {
        self.count = count;
        self
    }

    /// Waits after each response.
    #[must_use]
    pub fn think(mut self, think: Duration) -> Self {
        self.think = think;
        self
    }

    /// The results, to be read later.
    #[must_use]
    pub fn stats(&self) -> Rc<RefCell<RrStats>> {
        Rc::clone(&self.stats)
    }

    fn ask(&mut self, cx: &mut AppCx<'_>) {
        let Some(conn) = self.conn else { return };
        self.sent_at = cx.now();
        self.missing = self.response;
        let request = vec![b'?'; self.request];
        if cx.write(conn, &request) != Ok(request.len()) {
            cx.fail("a request does not fit the send buffer".to_owned());
        }
    }
}

impl App for Request {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        match cx.connect(self.to, &self.options) {
            Ok(id) => self.stats.borrow_mut().conn = Some(id),
            Err(error) => cx.fail(format!("connect to {}: {error}", self.to)),
        }
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event) {
        match event {
            Event::Connected(id) => {
                self.conn = Some(id);
                self.ask(cx);
            }
            Event::Readable(id) => {
                let mut wrong = false;
                let count =
                    cx.read(id, self.missing.max(1), |piece| wrong |= piece.iter().any(|&byte| byte != b'!'));
                let Ok(Some(count)) = count else { return };
                if wrong || count > self.missing {
                    cx.fail("a response differs from the bytes that were sent".to_owned());
                }
                self.missing = self.missing.saturating_sub(count);
                if self.missing > 0 {
                    return;
                }
                let mut stats = self.stats.borrow_mut();
                stats.latencies.push(cx.now().since(self.sent_at));
                let done = stats.latencies.len() as u64 >= self.count;
                drop(stats);
                if done {
                    self.conn = None;
                    cx.close(id);
                } else if self.think.is_zero() {
                    self.ask(cx);
                } else {
                    cx.timer(cx.now() + self.think, 0);
                }
            }
            Event::Failed(id, _) | Event::Closed(id) => {
                self.conn = None;
                cx.close(id);
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AppCx<'_>, _token: u64) {
        self.ask(cx);
    }
}

/// Answers requests.
pub struct Responder {
    port: u16,
    options: ListenOptions,
    request: usize,
    response: usize,
    /// Bytes received of the current request, by slot of the connection.
    got: Vec<usize>,
}

impl Responder {
    /// A responder that answers one byte with one byte.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self { port, options: ListenOptions::default(), request: 1, response: 1, got: Vec::new() }
    }

    /// Bytes of a request and of a response.
    #[must_use]
    pub fn sizes(mut self, request: usize, response: usize) -> Self {
        (self.request, self.response) = (request.max(1), response.max(1));
        self
    }

    /// Options of the connections that it accepts.
    #[must_use]
    pub fn options(mut self, options: ListenOptions) -> Self {
        self.options = options;
        self
    }

    fn answer(&mut self, cx: &mut AppCx<'_>, id: ConnId) {
        loop {
            match cx.read(id, 1 << 16, |_| {}) {
                Ok(Some(count)) => self.got[id.slot()] += count,
                Ok(None) => return cx.close(id),
                Err(_) => return,
            }
            while self.got[id.slot()] >= self.request {
                self.got[id.slot()] -= self.request;
                let response = vec![b'!'; self.response];
                if cx.write(id, &response) != Ok(response.len()) {
                    cx.fail("a response does not fit the send buffer".to_owned());
                }
            }
        }
    }
}

impl App for Responder {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        let at = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.port);
        if let Err(error) = cx.listen(at, self.options.clone()) {
            cx.fail(format!("responder at port {}: {error}", self.port));
        }
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event) {
        match event {
            Event::Incoming(listener) => {
                while let Some((id, _)) = cx.accept(listener) {
                    if self.got.len() <= id.slot() {
                        self.got.resize(id.slot() + 1, 0);
                    }
                    self.got[id.slot()] = 0;
                    self.answer(cx, id);
                }
            }
            Event::Readable(id) => self.answer(cx, id),
            Event::Failed(id, _) | Event::Closed(id) => cx.close(id),
            _ => {}
        }
    }
}
