//! A stack in virtual time, with a device below it: time passes only when it is told to, and every timer
//! fires exactly when it is due. Called by the sockets and the runner.

mod link;

use std::collections::VecDeque;
use std::sync::Arc;

use taut_core::{Event, Frame, Instant, LinkCaps, RxChecksum, RxPacket, Stack, StackConfig};

use link::Link;
pub use link::Sent;

/// The time at which scripts begin; timestamps and clocks are not zero then.
pub(crate) const START: Instant = Instant::from_nanos(10_000_000_000);
/// Timers and packets of a queue that may be handled without time passing.
const TURNS_MAX: u32 = 10_000;

/// A stack, its device, and the time.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) stack: Stack,
    link: Link,
    now: Instant,
    /// Packets that have left, oldest first, until they are taken.
    pub(crate) sent: VecDeque<Sent>,
    /// News of the stack for the sockets.
    events: Vec<Event>,
    /// Turns since time last passed.
    turns: u32,
}

impl Host {
    pub(crate) fn new(config: StackConfig, caps: LinkCaps, now: Instant) -> Self {
        let stack = Stack::new(Arc::new(config), caps, [42; 32]);
        Self { stack, link: Link::default(), now, sent: VecDeque::new(), events: Vec::new(), turns: 0 }
    }

    /// The time.
    #[must_use]
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Lets the stack and its device work until both wait.
    pub(crate) fn turn(&mut self) {
        let Self { stack, link, now, sent, .. } = self;
        let mut turns = 0;
        while turns < TURNS_MAX && link.turn(stack, *now, &mut |packet| sent.push_back(packet)) {
            turns += 1;
        }
        while let Some(event) = self.stack.poll_event() {
            self.events.push(event);
        }
    }

    /// The news since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// A packet arrives.
    pub(crate) fn deliver(&mut self, packet: &[u8]) {
        let frame = Frame::Slice(packet);
        self.stack.handle_packet(self.now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
        self.turn();
    }

    /// When something happens by itself.
    #[must_use]
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let timer = self.stack.poll_timeout().map(|(at, _)| at);
        match (timer, self.link.next()) {
            (Some(timer), Some(queue)) => Some(timer.min(queue)),
            (timer, queue) => timer.or(queue),
        }
    }

    /// Goes to the next timer or queued packet, or to `limit`, whichever comes first. Returns false at the
    /// limit.
    ///
    /// # Errors
    /// Time does not pass: the stack, or the queue below it, asks to be called again and again.
    pub(crate) fn step(&mut self, limit: Instant) -> Result<bool, String> {
        let wake = self.next_wake().filter(|&at| at <= limit);
        let to = wake.unwrap_or(limit).max(self.now);
        if to > self.now {
            (self.now, self.turns) = (to, 0);
        }
        if wake.is_none() {
            return Ok(false);
        }
        self.turns += 1;
        if self.turns > TURNS_MAX {
            return Err("time stands still: timers are due again and again".to_owned());
        }
        if self.stack.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
            self.stack.handle_timeout(self.now);
        }
        self.turn();
        Ok(true)
    }

    /// Puts a queue discipline in front of the device, in `tc`'s words.
    pub(crate) fn set_qdisc(&mut self, text: &str) -> Result<(), String> {
        self.link.set_qdisc(&mut self.stack, self.now, text).map_err(|error| error.to_string())?;
        self.turn();
        Ok(())
    }

    /// Takes the queue discipline away.
    pub(crate) fn clear_qdisc(&mut self) {
        let Self { stack, link, now, sent, .. } = self;
        link.clear(stack, *now, &mut |packet| sent.push_back(packet));
        self.turn();
    }
}
