//! Web pages: a client opens a connection, sends a request, reads a page of random size, closes, and pauses.
//! These are short flows in slow start, which suffer most from a queue of bulk data in front of them.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use taut_core::{ConnId, ConnOptions, Duration, Event, Instant, ListenOptions, WriteError};

use super::{App, AppCx};
use crate::pattern::Pattern;

/// Results of a [`Web`] client.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WebStats {
    /// Bytes of each page, and how long it took from `connect` to its last byte.
    pub pages: Vec<(u64, Duration)>,
    /// Pages that failed.
    pub failed: u64,
}

/// Fetches pages.
pub struct Web {
    to: SocketAddr,
    options: ConnOptions,
    /// Least and most bytes of a page; the logarithm of the size is uniformly distributed between them.
    sizes: (u64, u64),
    /// Mean time between pages.
    think: Duration,
    began: Instant,
    /// Bytes of the current page still to be read.
    page: u64,
    got: u64,
    pattern: Pattern,
    stats: Rc<RefCell<WebStats>>,
}

impl Web {
    /// A client of pages from 2 KB to 2 MB, one second apart on average.
    #[must_use]
    pub fn new(to: SocketAddr) -> Self {
        Self {
            to,
            options: ConnOptions::default(),
            sizes: (2_000, 2_000_000),
            think: Duration::from_secs(1),
            began: Instant::ZERO,
            page: 0,
            got: 0,
            pattern: Pattern::new(0),
            stats: Rc::default(),
        }
    }

    /// Least and most bytes of a page.
    #[must_use]
    pub fn sizes(mut self, least: u64, most: u64) -> Self {
        self.sizes = (least.max(1), most.max(least).max(1));
        self
    }

    /// Mean time between pages.
    #[must_use]
    pub fn think(mut self, think: Duration) -> Self {
        self.think = think;
        self
    }

    /// The results, to be read later.
    #[must_use]
    pub fn stats(&self) -> Rc<RefCell<WebStats>> {
        Rc::clone(&self.stats)
    }

    fn fetch(&mut self, cx: &mut AppCx<'_>) {
        let (least, most) = (self.sizes.0 as f64, self.sizes.1 as f64);
        self.page = (least * libm::pow(most / least, cx.rng().unit())) as u64;
        self.got = 0;
        self.began = cx.now();
        if cx.connect(self.to, &self.options).is_err() {
            self.stats.borrow_mut().failed += 1;
            self.rest(cx);
        }
    }

    fn rest(&mut self, cx: &mut AppCx<'_>) {
        let think = cx.rng().exponential(self.think);
        cx.timer(cx.now() + think, 0);
    }
}

impl App for Web {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        self.fetch(cx);
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event) {
        match event {
            Event::Connected(id) => {
                self.pattern = cx.pattern(id, true);
                // The request is the size of the page.
                if cx.write(id, &self.page.to_be_bytes()) != Ok(8) {
                    cx.fail("a request of 8 bytes does not fit".to_owned());
                }
            }
            Event::Readable(id) => {
                let (count, ended) = cx.check_pattern(id, &mut self.pattern);
                self.got += count;
                if !ended {
                    return;
                }
                if self.got == self.page {
                    self.stats.borrow_mut().pages.push((self.page, cx.now().since(self.began)));
                } else {
                    self.stats.borrow_mut().failed += 1;
                }
                cx.close(id);
                self.rest(cx);
            }
            Event::Failed(id, _) => {
                self.stats.borrow_mut().failed += 1;
                cx.close(id);
                self.rest(cx);
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AppCx<'_>, _token: u64) {
        self.fetch(cx);
    }
}

struct Page {
    id: ConnId,
    request: Vec<u8>,
    left: u64,
    pattern: Pattern,
}

/// Serves pages of any requested size.
pub struct WebServer {
    port: u16,
    pages: Vec<Option<Page>>,
}

impl WebServer {
    /// A server at a port of every address.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self { port, pages: Vec::new() }
    }

    fn read(&mut self, cx: &mut AppCx<'_>, id: ConnId) {
        let Some(Some(page)) = self.pages.get_mut(id.slot()) else { return };
        if page.id != id {
            return;
        }
        let request = &mut page.request;
        if let Ok(None) = cx.read(id, 64, |piece| request.extend_from_slice(piece)) {
            self.pages[id.slot()] = None;
            return cx.close(id);
        }
        if let Some(size) = page.request.first_chunk::<8>()
            && page.left == u64::MAX
        {
            page.left = u64::from_be_bytes(*size);
            self.send(cx, id);
        }
    }

    fn send(&mut self, cx: &mut AppCx<'_>, id: ConnId) {
        let Some(Some(page)) = self.pages.get_mut(id.slot()) else { return };
        if page.id != id || page.left == u64::MAX {
            return;
        }
        while page.left > 0 {
            let len = page.left.min(crate::pattern::RUN as u64) as usize;
            match cx.write_pattern(id, &mut page.pattern, len) {
                Ok(count) => page.left -= count as u64,
                Err(WriteError::WouldBlock) => return,
                Err(_) => break,
            }
        }
        cx.finish(id);
    }
}

impl App for WebServer {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        let at = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.port);
        if let Err(error) = cx.listen(at, ListenOptions::default()) {
            cx.fail(format!("web server at port {}: {error}", self.port));
        }
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event) {
        match event {
            Event::Incoming(listener) => {
                while let Some((id, _)) = cx.accept(listener) {
                    let pattern = cx.pattern(id, false);
                    if self.pages.len() <= id.slot() {
                        self.pages.resize_with(id.slot() + 1, || None);
                    }
                    self.pages[id.slot()] = Some(Page { id, request: Vec::new(), left: u64::MAX, pattern });
                    self.read(cx, id);
                }
            }
            Event::Readable(id) => self.read(cx, id),
            Event::Writable(id) => self.send(cx, id),
            Event::Failed(id, _) | Event::Closed(id) => {
                if let Some(page) = self.pages.get_mut(id.slot()) {
                    *page = None;
                }
                cx.close(id);
            }
            _ => {}
        }
    }
}
