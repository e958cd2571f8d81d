//! The applications of a random world. Each host has one, which plays its end of every conversation by a
//! script: what to write and when, how to read, how to end. What happened stands in a ledger that the judge
//! reads.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use taut_core::{
    Bytes, ConnError, ConnId, ConnOptions, Duration, Event, FlowFilter, FlowId, IncomingOptions, Instant,
    ListenOptions, ReadError, Refusal, SetOption, WriteError, WriteFlags,
};

use super::plan::Plan;
use crate::app::{App, AppCx};
use crate::pattern::Pattern;

/// The port of every server.
pub(super) const PORT: u16 = 7_000;
/// A client binds this port and the number of its conversation, by which the server knows the script.
const CLIENT_PORT: u16 = 20_000;

/// How an end reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Everything at once.
    Eager,
    /// The same, without copies.
    Chunks,
    /// Nothing before this long after the connection began.
    Late { pause: Duration },
    /// So much, so often.
    Slow { chunk: usize, every: Duration },
}

/// How an end ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// FIN behind the last byte, and close at the peer's FIN.
    Finish,
    /// Close at the peer's FIN; no FIN before.
    AfterPeer,
    /// Close behind the last byte, whatever the peer sends.
    CloseEarly,
    /// RST after so many bytes.
    Abort { after: u64 },
    /// Does nothing any more after so many bytes, until the world ends.
    Vanish { after: u64 },
    /// Close at this time, whatever is unsent or unread.
    CloseAt(Instant),
    /// Reads no more after so many bytes (`SHUT_RD`), else as [`Finish`](Self::Finish).
    Deaf { after: u64 },
}

impl Ending {
    /// Whether the other end may see an error, or lose what it wrote.
    pub(super) const fn is_rude(self) -> bool {
        !matches!(self, Self::Finish | Self::AfterPeer)
    }
}

/// The options with which an end begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opening {
    pub(super) nodelay: bool,
    pub(super) sndbuf: Option<u32>,
    pub(super) rcvbuf: Option<u32>,
    pub(super) notsent_lowat: u32,
    pub(super) max_pacing_rate: Option<u64>,
    pub(super) maxseg: Option<u16>,
    pub(super) congestion: Option<&'static str>,
}

/// What one end does.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) bytes: u64,
    /// Bytes of a write, and the pause after it.
    pub(super) write: usize,
    pub(super) gap: Duration,
    /// It writes nothing before it has read so much.
    pub(super) after: u64,
    /// Probabilities of MSG_MORE and MSG_EOR, and whether writes lend their memory.
    pub(super) more: f64,
    pub(super) eor: f64,
    pub(super) owned: bool,
    pub(super) reading: Reading,
    pub(super) ending: Ending,
    pub(super) opening: Opening,
    /// Options to set when so many bytes are written.
    pub(super) options: Vec<(u64, SetOption)>,
}

impl Script {
    /// Writes so much as fast as it can, reads everything, and finishes.
    pub(super) fn plain(bytes: u64) -> Self {
        Self {
            bytes,
            write: 65_536,
            gap: Duration::ZERO,
            after: 0,
            more: 0.0,
            eor: 0.0,
            owned: false,
            reading: Reading::Eager,
            ending: Ending::Finish,
            opening: Opening::default(),
            options: Vec::new(),
        }
    }
}

/// What became of one end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) conn: Option<ConnId>,
    pub(super) connected: bool,
    pub(super) written: u64,
    pub(super) read: u64,
    /// It has queued its FIN.
    pub(super) finished: bool,
    /// It has read the peer's FIN.
    pub(super) eof: bool,
    pub(super) error: Option<ConnError>,
    /// It has released its connection.
    pub(super) released: bool,
    /// The largest limits of its buffers that an option set.
    pub(super) rcvbuf: u32,
    pub(super) sndbuf: u32,
    /// It was still open when the world ended.
    pub(super) left: bool,
}

impl Fate {
    fn note_limits(&mut self, cx: &AppCx<'_>, conn: ConnId) {
        if let Some(info) = cx.info(conn) {
            (self.rcvbuf, self.sndbuf) = (self.rcvbuf.max(info.rcvbuf), self.sndbuf.max(info.sndbuf));
        }
    }
}

/// What became of every conversation: the client's end, the server's end.
pub(super) type Ledger = Rc<RefCell<Vec<[Fate; 2]>>>;

/// An end in progress.
struct End {
    talk: usize,
    /// 0 for the client, 1 for the server.
    side: usize,
    conn: ConnId,
    out: Pattern,
    input: Pattern,
    since: Instant,
    next_write: Instant,
    next_read: Instant,
    options_set: usize,
    corked: bool,
    /// A write was cut short: the rest must carry the same flags, so the flags stay until it is done.
    more: bool,
}

/// The application of one host.
pub(super) struct Talker {
    plan: Rc<Plan>,
    host: usize,
    addresses: Rc<Vec<IpAddr>>,
    ledger: Ledger,
    ends: Vec<End>,
    /// Flows that wait for a decision, and the conversations that they claim to be.
    flows: Vec<(FlowId, usize)>,
    /// Flows that were accepted, while their handshakes are not complete.
    accepted: Vec<(ConnId, usize)>,
}

/// Tokens: start conversation n; or look at the end of conversation n.
const LOOK: u64 = 1 << 32;
/// Decides about the flows of conversation n.
const DECIDE: u64 = 1 << 36;
/// How long a server that has a filter thinks about every other flow.
const THOUGHT: Duration = Duration::from_millis(300);
/// Ends the host's part of the world.
const LEAVE: u64 = 1 << 40;

impl Talker {
    pub(super) fn new(plan: Rc<Plan>, host: usize, addresses: Rc<Vec<IpAddr>>, ledger: Ledger) -> Self {
        Self { plan, host, addresses, ledger, ends: Vec::new(), flows: Vec::new(), accepted: Vec::new() }
    }

    /// Whether this host has a filter in place of a listener: a third of the servers.
    fn decides(&self) -> bool {
        let own = self.plan.talks.iter().filter(|talk| talk.server == self.host);
        own.fold(0, |sum: u64, talk| sum.wrapping_add(talk.start.as_nanos())) % 3 == 0
    }

    /// The conversation of a flow that was accepted: its handshake is over.
    fn take_accepted(&mut self, conn: ConnId) -> Option<usize> {
        let at = self.accepted.iter().position(|&(other, _)| other == conn)?;
        Some(self.accepted.swap_remove(at).1)
    }

    fn fate(&self, talk: usize, side: usize, f: impl FnOnce(&mut Fate)) {
        f(&mut self.ledger.borrow_mut()[talk][side]);
    }

    fn begin(&mut self, cx: &mut AppCx<'_>, talk: usize, side: usize, conn: ConnId) {
        let out = cx.pattern(conn, side == 0);
        let input = out;
        let now = cx.now();
        self.fate(talk, side, |fate| {
            (fate.conn, fate.connected) = (Some(conn), true);
            fate.note_limits(cx, conn);
        });
        if let Some(old) = self.ends.iter().position(|end| end.talk == talk && end.side == side) {
            self.ends.swap_remove(old);
        }
        let (next_write, next_read) = (now, now);
        self.ends.push(End {
            talk,
            side,
            conn,
            out,
            input,
            since: now,
            next_write,
            next_read,
            options_set: 0,
            corked: false,
            more: false,
        });
        let plan = Rc::clone(&self.plan);
        let script = &plan.talks[talk].scripts[side];
        if let Ending::CloseAt(at) = script.ending {
            cx.timer(at.max(now), LOOK | talk as u64);
        }
        if let Reading::Late { pause } = script.reading {
            cx.timer(now + pause, LOOK | talk as u64);
        }
        self.work(cx, self.ends.len() - 1);
    }

    fn connect(&mut self, cx: &mut AppCx<'_>, talk: usize) {
        let plan = Rc::clone(&self.plan);
        let conversation = &plan.talks[talk];
        let mut options = options(cx, &conversation.scripts[0].opening);
        options.bind = Some(SocketAddr::new(self.addresses[self.host], CLIENT_PORT + talk as u16));
        match cx.connect(SocketAddr::new(self.addresses[conversation.server], PORT), &options) {
            Ok(conn) => self.fate(talk, 0, |fate| fate.conn = Some(conn)),
            Err(error) => cx.fail(format!("conversation {talk}: connect: {error}")),
        }
    }

    /// Does what an end can do now.
    fn work(&mut self, cx: &mut AppCx<'_>, index: usize) {
        let plan = Rc::clone(&self.plan);
        let Some(end) = self.ends.get_mut(index) else { return };
        let (talk, side) = (end.talk, end.side);
        let script = &plan.talks[talk].scripts[side];
        let trusting = plan.lies(&plan.talks[talk]);
        let mut fate = self.ledger.borrow()[talk][side];
        if fate.released
            || matches!(script.ending, Ending::Vanish { after } if fate.written >= after && fate.connected)
        {
            return;
        }
        // Reading may make room for writing at the peer, and a response wait for a request: until nothing
        // moves.
        loop {
            let before = (fate.read, fate.written, fate.eof);
            end.read(cx, script, trusting, &mut fate);
            end.write(cx, script, &mut fate);
            if before == (fate.read, fate.written, fate.eof) || fate.error.is_some() {
                break;
            }
        }
        end.finish(cx, script, &mut fate);
        self.ledger.borrow_mut()[talk][side] = fate;
    }

    /// The conversation and the side that a connection of this host is an end of.
    fn place(&self, conn: ConnId) -> Option<(usize, usize)> {
        let ledger = self.ledger.borrow();
        let mut ends = ledger.iter().zip(&self.plan.talks).enumerate();
        ends.find_map(|(talk, (fates, conversation))| {
            let hosts = [conversation.client, conversation.server];
            let side = (0..2).find(|&side| hosts[side] == self.host && fates[side].conn == Some(conn))?;
            Some((talk, side))
        })
    }

    /// The world ends: what is still open is aborted.
    fn leave(&self, cx: &mut AppCx<'_>) {
        for (fates, talk) in self.ledger.borrow_mut().iter_mut().zip(&self.plan.talks) {
            for (fate, host) in fates.iter_mut().zip([talk.client, talk.server]) {
                if host == self.host
                    && !fate.released
                    && let Some(conn) = fate.conn
                {
                    cx.abort(conn);
                    fate.left = true;
                }
            }
        }
    }

    fn find(&self, conn: ConnId) -> Option<usize> {
        self.ends.iter().position(|end| end.conn == conn)
    }
}

fn options(cx: &AppCx<'_>, opening: &Opening) -> ConnOptions {
    ConnOptions {
        nodelay: opening.nodelay,
        sndbuf: opening.sndbuf,
        rcvbuf: opening.rcvbuf,
        notsent_lowat: opening.notsent_lowat,
        max_pacing_rate: opening.max_pacing_rate,
        maxseg: opening.maxseg,
        congestion: opening.congestion.and_then(|name| cx.algorithm(name)),
        ..ConnOptions::default()
    }
}

impl End {
    fn read(&mut self, cx: &mut AppCx<'_>, script: &Script, trusting: bool, fate: &mut Fate) {
        let now = cx.now();
        let look = LOOK | self.talk as u64;
        let most = match script.reading {
            Reading::Late { pause } if now < self.since + pause => return,
            Reading::Slow { chunk, every } => {
                if now < self.next_read {
                    return;
                }
                self.next_read = now + every;
                cx.timer(self.next_read, look);
                chunk
            }
            _ => usize::MAX,
        };
        if fate.eof || fate.error.is_some() {
            return;
        }
        if let Ending::Deaf { after } = script.ending
            && fate.read >= after
        {
            cx.finish_reading(self.conn);
            fate.eof = true;
            return;
        }
        let mut taken = 0;
        while taken < most {
            let mut right = true;
            let got = if script.reading == Reading::Chunks {
                cx.read_chunk(self.conn, 1 << 20).map(|bytes| {
                    right = self.input.check(&bytes);
                    (!bytes.is_empty()).then_some(bytes.len())
                })
            } else {
                let input = &mut self.input;
                cx.read(self.conn, (most - taken).min(1 << 20), |piece| right &= input.check(piece))
            };
            if !right && !trusting {
                let at = self.input.passed();
                cx.fail(format!("conversation {}, end {}: a wrong byte after {at}", self.talk, self.side));
                fate.error = Some(ConnError::Aborted);
                return;
            }
            match got {
                Ok(Some(count)) => {
                    taken += count;
                    fate.read += count as u64;
                }
                Ok(None) => {
                    fate.eof = true;
                    return;
                }
                Err(ReadError::Conn(error)) => {
                    fate.error = Some(error);
                    return;
                }
                Err(_) => return,
            }
        }
    }

    fn write(&mut self, cx: &mut AppCx<'_>, script: &Script, fate: &mut Fate) {
        let now = cx.now();
        while fate.written < script.bytes
            && fate.read >= script.after
            && !fate.finished
            && fate.error.is_none()
        {
            if now < self.next_write {
                return;
            }
            match script.ending {
                Ending::Abort { after } | Ending::Vanish { after } if fate.written >= after => return,
                _ => {}
            }
            while let Some((at, option)) = script.options.get(self.options_set)
                && *at <= fate.written
            {
                if let SetOption::Cork(on) = option {
                    self.corked = *on;
                }
                fate.note_limits(cx, self.conn);
                cx.set_option(self.conn, option.clone());
                self.options_set += 1;
                fate.note_limits(cx, self.conn);
            }
            let rest = script.bytes - fate.written;
            let len = script.write.min(rest as usize);
            let last = len as u64 == rest;
            // The last write must not wait for more.
            self.more = !last && cx.rng().chance(script.more);
            let flags = WriteFlags { more: self.more, eor: cx.rng().chance(script.eor) };
            let data = self.out.bytes(len);
            let written = if script.owned {
                cx.write_bytes(self.conn, &mut Bytes::from_static(data), flags)
            } else {
                cx.write_with(self.conn, data, flags)
            };
            match written {
                Ok(count) => {
                    self.out.pass(count);
                    fate.written += count as u64;
                    if !script.gap.is_zero() {
                        self.next_write = now + script.gap;
                        cx.timer(self.next_write, LOOK | self.talk as u64);
                    }
                }
                Err(WriteError::Conn(error)) => fate.error = Some(error),
                Err(_) => return,
            }
        }
    }

    fn finish(&mut self, cx: &mut AppCx<'_>, script: &Script, fate: &mut Fate) {
        let wrote_all = fate.written == script.bytes && fate.read >= script.after;
        if wrote_all && self.corked {
            self.corked = false;
            cx.set_option(self.conn, SetOption::Cork(false));
        }
        let close = match script.ending {
            _ if fate.error.is_some() => true,
            Ending::Abort { after } if fate.written >= after => {
                fate.released = true;
                return cx.abort(self.conn);
            }
            Ending::CloseEarly => wrote_all,
            Ending::CloseAt(at) => cx.now() >= at || (wrote_all && fate.eof),
            Ending::AfterPeer => wrote_all && fate.eof,
            Ending::Finish | Ending::Deaf { .. } => {
                if wrote_all && !fate.finished {
                    fate.finished = true;
                    cx.finish(self.conn);
                }
                fate.finished && fate.eof
            }
            Ending::Abort { .. } | Ending::Vanish { .. } => false,
        };
        if close {
            fate.finished |= wrote_all;
            fate.released = true;
            cx.close(self.conn);
        }
    }
}

impl App for Talker {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        let plan = Rc::clone(&self.plan);
        // The listener has the options of one of its conversations: a server chooses before it knows its
        // client.
        let opening =
            plan.talks.iter().find(|talk| talk.server == self.host).map(|talk| talk.scripts[1].opening);
        let options = ListenOptions {
            conn: opening.map_or_else(ConnOptions::default, |opening| options(cx, &opening)),
            ..ListenOptions::default()
        };
        let server = if self.decides() {
            let filter = FlowFilter::any().ports(PORT..=PORT);
            cx.incoming(filter, IncomingOptions { conn: options.conn, ..IncomingOptions::default() })
        } else {
            cx.listen(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT), options)
        };
        if let Err(error) = server {
            cx.fail(format!("listen: {error}"));
        }
        cx.timer(plan.end(), LEAVE);
        for (number, talk) in plan.talks.iter().enumerate().filter(|(_, talk)| talk.client == self.host) {
            cx.timer(talk.start, number as u64);
        }
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event) {
        match event {
            Event::Incoming(filter) if self.decides() => {
                while let Some(flow) = cx.next_flow(filter) {
                    let talk = usize::from(flow.peer.port().wrapping_sub(CLIENT_PORT));
                    if self.plan.talks.get(talk).is_none_or(|talk| talk.server != self.host) {
                        cx.refuse_flow(flow.id, Refusal::Reset);
                        continue;
                    }
                    self.flows.push((flow.id, talk));
                    let thought = if talk % 2 == 0 { Duration::ZERO } else { THOUGHT };
                    cx.timer(cx.now() + thought, DECIDE | talk as u64);
                }
            }
            Event::Incoming(listener) => {
                while let Some((conn, peer)) = cx.accept(listener) {
                    let talk = usize::from(peer.port().wrapping_sub(CLIENT_PORT));
                    let known = self.plan.talks.get(talk).is_some_and(|talk| talk.server == self.host);
                    if known && self.ledger.borrow()[talk][1].conn.is_none() {
                        self.begin(cx, talk, 1, conn);
                    } else {
                        // A liar's, or a second one from the same port.
                        cx.abort(conn);
                    }
                }
            }
            Event::Connected(conn) => {
                if let Some(talk) = self.take_accepted(conn) {
                    if self.ledger.borrow()[talk][1].conn.is_none() {
                        self.begin(cx, talk, 1, conn);
                    } else {
                        cx.abort(conn);
                    }
                } else if let Some((talk, 0)) = self.place(conn) {
                    self.begin(cx, talk, 0, conn);
                }
            }
            Event::Readable(conn) | Event::Writable(conn) | Event::Closed(conn) => {
                if let Some(index) = self.find(conn) {
                    self.work(cx, index);
                }
            }
            Event::Failed(conn, _) if self.take_accepted(conn).is_some() => cx.close(conn),
            Event::Failed(conn, error) => {
                // Received data stays readable.
                if let Some(index) = self.find(conn) {
                    self.work(cx, index);
                }
                let Some((talk, side)) = self.place(conn) else { return };
                let released = std::mem::replace(&mut self.ledger.borrow_mut()[talk][side].released, true);
                if !released {
                    self.fate(talk, side, |fate| fate.error = fate.error.or(Some(error)));
                    cx.close(conn);
                }
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AppCx<'_>, token: u64) {
        if token == LEAVE {
            self.ends.clear();
            for (flow, _) in self.flows.drain(..) {
                cx.refuse_flow(flow, Refusal::Reset);
            }
            for (conn, _) in self.accepted.drain(..) {
                cx.abort(conn);
            }
            self.leave(cx);
        } else if token >= DECIDE {
            let talk = (token & (LOOK - 1)) as usize;
            while let Some(at) = self.flows.iter().position(|&(_, other)| other == talk) {
                let (flow, _) = self.flows.swap_remove(at);
                // It may be gone: a liar has reset it, or its client.
                if let Ok(conn) = cx.accept_flow(flow) {
                    self.accepted.push((conn, talk));
                }
            }
        } else if token >= LOOK {
            let talk = (token & (LOOK - 1)) as usize;
            for index in 0..self.ends.len() {
                if self.ends[index].talk == talk {
                    self.work(cx, index);
                }
            }
        } else {
            self.connect(cx, token as usize);
        }
    }
}
