//! One client of the server: a request in, a reply out, and no further request before the client has taken
//! the reply.
//!
//! A list of connections is made a batch at a time, each after the client has taken the one before. So a slow
//! client costs one batch and the list of names, and the stack's lock is held for one batch at a time. Called
//! by `server.rs`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::vec;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use taut_core::{ConnId, Duration, Instant, Report, Stack, SysctlError};
use taut_replay::Taped;

use crate::gateway::GatewayItem;
use crate::network;
use crate::protocol::{Fault, Identity, REQUEST_MAX_BYTES, Reply, ReplyLine, Request, Summary};
use crate::rooms::FlowRooms;
use crate::server::Source;
use crate::whole::BATCH;
use crate::{sample, snapshot};

/// The time from the first byte of a request to its last, and from the making of a line until the client has
/// taken it.
const LINE_TIME: Duration = Duration::from_secs(5);
/// The time between requests.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// Names of connections, each with its shard, grouped by shard.
type Ids = vec::IntoIter<(usize, ConnId)>;

/// The rest of a list.
enum Rest {
    Connections(Ids),
    Reports(Ids),
    Samples(Ids),
    Rooms(vec::IntoIter<FlowRooms>),
    Gateway(vec::IntoIter<GatewayItem>),
}

/// A connected client.
pub(crate) struct Session {
    socket: OwnedFd,
    /// Read, and not yet answered.
    input: Vec<u8>,
    /// To be written, from `written` on.
    output: Vec<u8>,
    written: usize,
    rest: Option<Rest>,
    deadline: Instant,
    /// Nothing more is read; the session ends when the client has taken the output.
    is_closing: bool,
    is_over: bool,
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Session {
    pub(crate) fn new(socket: OwnedFd, now: Instant) -> Self {
        Self {
            socket,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            rest: None,
            deadline: now + IDLE_TIME,
            is_closing: false,
            is_over: false,
        }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.is_over || now >= self.deadline
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether there is something to send: nothing is read meanwhile.
    pub(crate) fn wants_to_write(&self) -> bool {
        let has_request = || self.input.contains(&b'\n') || self.input.len() > REQUEST_MAX_BYTES;
        self.is_sending() || self.is_closing || self.rest.is_some() || has_request()
    }

    fn is_sending(&self) -> bool {
        self.written < self.output.len()
    }

    /// The socket is ready: does one step.
    pub(crate) fn serve(&mut self, source: &impl Source, identity: &Identity) {
        if !self.wants_to_write() {
            self.receive(source);
        }
        if !self.is_sending() && self.wants_to_write() && !self.is_over {
            self.make_line(source, identity);
        }
        self.send(source);
    }

    /// Reads the available bytes.
    fn receive(&mut self, source: &impl Source) {
        let mut chunk = [0; REQUEST_MAX_BYTES];
        match rustix::net::recv(&self.socket, &mut chunk, RecvFlags::empty()) {
            Ok((0, _)) => self.is_over = true,
            Ok((count, _)) => {
                if self.input.is_empty() {
                    self.deadline = source.now() + LINE_TIME;
                }
                self.input.extend_from_slice(&chunk[..count]);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.is_over = true,
        }
    }

    /// Makes the next line of output.
    fn make_line(&mut self, source: &impl Source, identity: &Identity) {
        if self.is_closing {
            self.is_over = true;
            return;
        }
        let line = match self.rest.take() {
            Some(rest) => self.next_batch(rest, source),
            None => match self.next_request() {
                Some(Ok(request)) => self.answer(&request, source, identity),
                Some(Err(refusal)) => ReplyLine::last(refusal),
                None => return,
            },
        };
        self.output = line.to_bytes();
        self.written = 0;
        self.deadline = source.now() + LINE_TIME;
    }

    /// The next whole line of input.
    fn next_request(&mut self) -> Option<Result<Request, Reply>> {
        let end = self.input.iter().position(|&byte| byte == b'\n');
        if end.unwrap_or(self.input.len()) > REQUEST_MAX_BYTES {
            // It is not known where the next line begins, so the session ends.
            self.is_closing = true;
            let message = format!("the request is longer than {REQUEST_MAX_BYTES} bytes");
            return Some(Err(Reply::Error { fault: Fault::Request, message }));
        }
        let request = Request::from_line(&self.input[..end?]);
        self.input.drain(..=end?);
        Some(request)
    }

    fn send(&mut self, source: &impl Source) {
        while self.is_sending() && !self.is_over {
            match rustix::net::send(&self.socket, &self.output[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.is_over = true,
            }
            if !self.is_sending() {
                let patience = if self.input.is_empty() { IDLE_TIME } else { LINE_TIME };
                self.deadline = source.now() + patience;
            }
        }
    }

    /// The answer, or the first part of one.
    fn answer(&mut self, request: &Request, source: &impl Source, identity: &Identity) -> ReplyLine {
        let rest = match request {
            Request::Connections => gather(source).map(Rest::Connections),
            Request::Reports => gather(source).map(Rest::Reports),
            Request::Samples => gather(source).map(Rest::Samples),
            Request::Rooms => Some(Rest::Rooms(source.rooms().into_iter())),
            Request::Gateway { verb } => match source.gateway(verb) {
                Ok(items) => Some(Rest::Gateway(items.into_iter())),
                Err(message) => return ReplyLine::last(Reply::Error { fault: Fault::Setting, message }),
            },
            _ => None,
        };
        if let Some(rest) = rest {
            return self.next_batch(rest, source);
        }
        if *request == Request::Device {
            return ReplyLine::last(Reply::Device(source.device()));
        }
        if let Some(reply) = answer_of_queue(request, source).or_else(|| refusal_of_change(request, source)) {
            return ReplyLine::last(reply);
        }
        let now = source.now();
        let mut reply = None;
        let mut report: Option<Report> = None;
        for shard in 0..source.shards() {
            let is_there = source.with_shard(shard, &mut |stack, now| {
                if *request == Request::Report {
                    let more = stack.report(now);
                    report.get_or_insert_default().add(&more);
                    return;
                }
                let more = answer(request, stack, now, identity);
                reply = match (reply.take(), more) {
                    (Some(reply), Some(more)) => Some(together(reply, more)),
                    (_, more) => more,
                };
            });
            if !is_there {
                (reply, report) = (None, None);
                break;
            }
            if matches!(reply, Some(Reply::Error { .. })) {
                break;
            }
        }
        if let Some(report) = &report {
            reply = Some(Reply::Report(Box::new(report.into())));
        }
        if let (Request::Identity, Some(Reply::Identity(found))) = (request, &mut reply) {
            let uptime_ns = now.as_nanos().saturating_sub(identity.started_ns);
            let device_error = source.device_error();
            let addresses = std::mem::take(&mut found.addresses);
            **found = Identity { uptime_ns, device_error, addresses, ..identity.clone() };
        }
        ReplyLine::last(reply.unwrap_or_else(|| {
            self.is_closing = true;
            stopped()
        }))
    }

    /// The next part of a list; keeps the rest of it.
    fn next_batch(&mut self, mut rest: Rest, source: &impl Source) -> ReplyLine {
        let reply = match &mut rest {
            Rest::Connections(ids) => batch(source, ids, snapshot::conn).map(Reply::Connections),
            Rest::Reports(ids) => batch(source, ids, snapshot::conn_report).map(Reply::Reports),
            Rest::Samples(ids) => batch(source, ids, sample::copy).map(Reply::Samples),
            Rest::Rooms(rooms) => Some(Reply::Rooms(rooms.by_ref().take(BATCH).collect())),
            Rest::Gateway(items) => Some(Reply::Gateway(items.by_ref().take(BATCH).collect())),
        };
        let Some(reply) = reply else {
            self.is_closing = true;
            return ReplyLine::last(stopped());
        };
        let more = match &rest {
            Rest::Connections(ids) | Rest::Reports(ids) | Rest::Samples(ids) => ids.len() > 0,
            Rest::Rooms(rooms) => rooms.len() > 0,
            Rest::Gateway(items) => items.len() > 0,
        };
        self.rest = more.then_some(rest);
        ReplyLine { more, ..ReplyLine::last(reply) }
    }
}

fn stopped() -> Reply {
    Reply::Error { fault: Fault::Stopped, message: "the stack has ended".to_owned() }
}

/// The names of all connections, under one lock.
fn gather(source: &impl Source) -> Option<Ids> {
    let mut ids = Vec::new();
    let all_there = (0..source.shards()).all(|shard| {
        source.with_shard(shard, &mut |stack, _| ids.extend(stack.conn_ids().map(|id| (shard, id))))
    });
    all_there.then(|| ids.into_iter())
}

/// Copies the next few under one lock. Connections that have ended meanwhile are left out; `None` if the
/// stack has ended.
fn batch<I, T>(
    source: &impl Source,
    ids: &mut Ids,
    copy: impl Fn(&Stack, ConnId, Instant) -> Option<I>,
) -> Option<Vec<T>>
where
    T: for<'a> From<&'a I>,
{
    let mut copied = Vec::with_capacity(BATCH);
    let Some(&(shard, _)) = ids.as_slice().first() else {
        return source.with_stack(&mut |_, _| {}).then(Vec::new);
    };
    let count = ids.as_slice().iter().take(BATCH).take_while(|(other, _)| *other == shard).count();
    let is_there = source.with_shard(shard, &mut |stack, now| {
        copied.extend(ids.by_ref().take(count).filter_map(|(_, id)| copy(stack, id, now)));
    });
    // Converted, which allocates, without the lock.
    is_there.then(|| copied.iter().map(T::from).collect())
}

/// Answers the requests about queue disciplines, which concern the program rather than the stack.
fn answer_of_queue(request: &Request, source: &impl Source) -> Option<Reply> {
    let changed = match request {
        Request::QdiscShow => Ok(()),
        Request::QdiscReplace { spec } => source.set_qdisc(Some(spec)),
        Request::QdiscDelete => source.set_qdisc(None),
        _ => return None,
    };
    Some(match changed {
        Ok(()) => Reply::Qdiscs(source.qdiscs()),
        Err(message) => Reply::Error { fault: Fault::Setting, message },
    })
}

/// Makes a change of the network, which concerns the device, too. Returns the error, if it is refused; the
/// stack answers the rest.
fn refusal_of_change(request: &Request, source: &impl Source) -> Option<Reply> {
    let Request::ChangeNetwork { change } = request else { return None };
    let refused = |message| Reply::Error { fault: Fault::Setting, message };
    source.change_network((*change).into()).err().map(refused)
}

/// Combines the answers of two shards.
fn together(mut reply: Reply, more: Reply) -> Reply {
    match (&mut reply, more) {
        (Reply::Summary(all), Reply::Summary(more)) => {
            all.connections += more.connections;
            all.time_waits += more.time_waits;
        }
        (Reply::Flows(all), Reply::Flows(more)) => all.extend(more),
        (Reply::Listeners(all), Reply::Listeners(more)) => snapshot::add_listeners(all, more),
        (Reply::Datagrams(all), Reply::Datagrams(more)) => all.extend(more),
        (Reply::Counters(all), Reply::Counters(more)) => snapshot::add_counters(all, more),
        // Settings are the same in all shards; an error of a later shard, which should not occur, is
        // reported.
        (_, more @ Reply::Error { .. }) => return more,
        _ => {}
    }
    reply
}

/// Answers a request that one shard can answer at once. The caller completes [`Request::Identity`] and
/// answers [`Request::Report`].
fn answer(request: &Request, stack: &mut Taped, now: Instant, identity: &Identity) -> Option<Reply> {
    let network = |stack: &Taped| network::snapshot(stack, now, &identity.addresses);
    let refused = |error: &SysctlError| Reply::Error { fault: Fault::Setting, message: error.to_string() };
    let reply = match request {
        Request::Identity => {
            let addresses = network::texts(&network(stack));
            Reply::Identity(Box::new(Identity { addresses, ..Identity::default() }))
        }
        Request::Network | Request::ChangeNetwork { .. } => Reply::Network(Box::new(network(stack))),
        Request::Summary => Reply::Summary(Summary {
            connections: stack.connections() as u64,
            time_waits: stack.time_waits() as u64,
        }),
        Request::Listeners => Reply::Listeners(snapshot::listeners(stack)),
        Request::Flows => Reply::Flows(snapshot::flows(stack, now)),
        Request::Datagrams => Reply::Datagrams(snapshot::datagrams(stack)),
        Request::Counters => Reply::Counters(snapshot::counters(stack)),
        Request::Sysctls => Reply::Sysctls(snapshot::settings(stack)),
        Request::Sysctl { name } => {
            snapshot::setting(stack, name).map_or_else(|error| refused(&error), Reply::Sysctl)
        }
        Request::SetSysctl { name, value } => stack
            .set_sysctl(name, value)
            .and_then(|()| snapshot::setting(stack, name))
            .map_or_else(|error| refused(&error), Reply::Sysctl),
        Request::Report
        | Request::Connections
        | Request::Reports
        | Request::Samples
        | Request::Rooms
        | Request::Gateway { .. }
        | Request::Device
        | Request::QdiscShow
        | Request::QdiscReplace { .. }
        | Request::QdiscDelete => return None,
    };
    Some(reply)
}
