//! Runs a script: each event at its time, in virtual time.
//!
//! - What the script does to the stack (a packet `<`, a call, a command) happens at exactly its time. Timers
//!   that are due until then fire before.
//! - A packet `>` is awaited, and its time compared within the tolerance. Packets that the stack sends and
//!   the script does not mention wait to be compared with the next `>`; what is left at the end is not looked
//!   at.
//! - A relative time counts from the time that the script gave the event before; after a range or `*`, from
//!   the time at which that event really happened.
//! - A blocking call (`+0...0.2 read(…)`) begins at its first time and must end at its second. Until it has
//!   ended, no other call begins.
//!
//! `run/expect.rs` compares packets, `run/calls.rs` makes calls, with the arguments that `run/args.rs` reads.
//! Called by the command and by tests.

mod args;
mod calls;
mod expect;
mod waiting;

use std::fmt::Write as _;
use std::net::SocketAddr;

use taut_core::{Duration, Instant, StackConfig};
use taut_wire::icmp;
use taut_wire::{Flags, IpHeader, protocol};

use crate::code::{self, Vars};
use crate::commands::{Asked, Commands};
use crate::config::Config;
use crate::failure::Failure;
use crate::flow::Flow;
use crate::host::{Host, START};
use crate::info::View;
use crate::script::{Event, IcmpSpec, Packet, Script, TcpSpec, What, When};
use crate::segment::Segment;
use crate::sockets::Sockets;
use waiting::Pending;

/// The port of the peer that connects first; the next one has the next.
const FIRST_REMOTE_PORT: u16 = 50_000;
/// How much longer than its time a packet is awaited, so that a late one is shown rather than none.
const PATIENCE: Duration = Duration::from_secs(5);

/// A script that passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Virtual time that passed, from the first event to the last.
    pub elapsed: Duration,
    /// What the code printed, and with `verbose` a line for each event.
    pub output: String,
}

/// Runs a script.
///
/// # Errors
/// The first event that does not happen as the script says.
pub fn run(script: &Script, config: &Config) -> Result<Passed, Failure> {
    let mut config = config.clone();
    let fails = |(line, what), output| Failure { file: script.file.clone(), line, what, output };
    for (line, name, value) in &script.options {
        config.set(name, value).map_err(|what| fails((*line, what), String::new()))?;
    }
    let mut runner = Runner::new(script, config);
    let result =
        script.events.iter().try_for_each(|event| runner.event(event)).and_then(|()| runner.finish());
    let elapsed = runner.elapsed();
    match result {
        Ok(()) => Ok(Passed { elapsed, output: runner.output }),
        Err(wrong) => Err(fails(wrong, runner.output)),
    }
}

/// A line, and what is wrong there.
type Wrong = (u32, String);

struct Runner {
    config: Config,
    sockets: Sockets,
    commands: Commands,
    flows: Vec<Flow>,
    /// The flow of packets whose ports are not written.
    flow: Option<usize>,
    /// The descriptor of the connection that code looks at.
    subject: Option<i32>,
    next_remote_port: u16,
    /// What relative times count from.
    base: Instant,
    pending: Option<Pending>,
    vars: Vars,
    output: String,
}

impl Runner {
    fn new(script: &Script, config: Config) -> Self {
        let stack = StackConfig::default().with(|stack| stack.addresses = vec![config.local()]);
        let host = Host::new(stack, config.link(), START);
        Self {
            config,
            sockets: Sockets::new(host),
            commands: Commands::of(&script.file),
            flows: Vec::new(),
            flow: None,
            subject: None,
            next_remote_port: FIRST_REMOTE_PORT,
            base: START,
            pending: None,
            vars: Vars::new(),
            output: String::new(),
        }
    }

    fn now(&self) -> Instant {
        self.sockets.host.now()
    }

    fn elapsed(&self) -> Duration {
        self.now().since(START)
    }

    /// The earliest and the latest time of an event.
    fn window(&self, when: When) -> (Instant, Instant) {
        match when {
            When::Unsaid | When::Any => (self.now(), self.now()),
            When::At(at) => (START + at, START + at),
            When::After(span) => (self.base + span, self.base + span),
            When::Between(first, last) => (START + first, START + last),
            When::AfterBetween(first, last) => (self.base + first, self.base + last),
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Wrong> {
        let line = event.line;
        let at_line = |what| (line, what);
        let (first, last) = self.window(event.when);
        if let What::Outbound(spec) = &event.what {
            let happened = self.expect(line, spec, event.when, (first, last))?;
            self.base = match event.when {
                When::After(_) | When::At(_) => first,
                _ => happened,
            };
            return Ok(());
        }
        if first < self.base && matches!(event.when, When::At(_) | When::Between(..)) {
            return Err((line, "time goes backwards: this event is before the one above".to_owned()));
        }
        self.advance(first).map_err(at_line)?;
        if matches!(event.what, What::Call(_)) {
            self.await_pending().map_err(at_line)?;
        }
        self.base = match event.when {
            When::After(_) | When::At(_) => first,
            _ => self.now(),
        };
        match &event.what {
            What::Inbound(packet) => {
                self.inject(packet).map_err(at_line)?;
                self.note(|| match packet {
                    Packet::Tcp(spec) => format!("< {spec}"),
                    Packet::Icmp(spec) => format!("< icmp {:?}", spec.code),
                });
            }
            What::Call(call) => {
                let end = call.end.map(|end| self.end_of(event.when, end));
                self.begin_call(line, call, end)?;
            }
            What::Shell(text) => self.shell(line, text)?,
            What::Code(text) => self.code(line, text)?,
            What::Outbound(_) => {}
        }
        self.progress().map_err(at_line)
    }

    /// When a blocking call ends. Its time counts from what the beginning counted from.
    fn end_of(&self, begin: When, end: When) -> Instant {
        match (begin, end) {
            (When::After(begun), When::After(end)) => self.base + end.saturating_sub(begun),
            (_, When::At(end) | When::After(end)) => START + end,
            _ => self.now(),
        }
    }

    /// Lets time pass until `to`; everything due by then happens.
    fn advance(&mut self, to: Instant) -> Result<(), String> {
        self.progress()?;
        loop {
            // A call that waits with a timeout returns in between.
            let timeout = self.pending.as_ref().and_then(|pending| pending.attempt.wakes_at());
            let limit = timeout.filter(|&at| self.now() < at).map_or(to, |at| at.min(to));
            let more = self.sockets.host.step(limit)?;
            self.progress()?;
            if !more && limit == to {
                return Ok(());
            }
        }
    }

    /// Something may have happened: looks at packets that have left, and at the call that blocks.
    fn progress(&mut self) -> Result<(), String> {
        self.sockets.settle();
        self.retry_pending()?;
        self.sockets.settle();
        Ok(())
    }

    fn shell(&mut self, line: u32, text: &str) -> Result<(), Wrong> {
        let mut asked = Vec::new();
        let result = self.commands.run(&mut self.sockets.host, text, &mut asked);
        result.map_err(|(within, what)| (line + within, what))?;
        for note in std::mem::take(&mut self.commands.notes) {
            self.note(|| note);
        }
        for Asked::Sleep(span) in asked {
            self.advance(self.now() + span).map_err(|what| (line, what))?;
            self.base = self.now();
        }
        Ok(())
    }

    fn code(&mut self, line: u32, text: &str) -> Result<(), Wrong> {
        let mut view = View {
            info: self.subject.and_then(|fd| self.sockets.info(fd)),
            is_listening: self.subject.is_some_and(|fd| self.sockets.listener(fd).is_some()),
            stack: &self.sockets.host.stack,
            elapsed: self.sockets.host.now().since(START),
        };
        let printed = code::run(text, &mut view, &mut self.vars);
        let printed = printed.map_err(|(within, what)| (line + within, what))?;
        self.output.push_str(&printed);
        Ok(())
    }

    /// Notes an event if that was asked for.
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.config.verbose {
            let time = self.elapsed().as_nanos() as f64 / 1e9;
            let _ = writeln!(self.output, "{time:10.6} {}", what());
        }
    }

    /// Everything has happened but the end of a call.
    fn finish(&mut self) -> Result<(), Wrong> {
        let line = self.pending.as_ref().map_or(0, |pending| pending.line);
        self.await_pending().map_err(|what| (line, what))
    }

    // ---- packets ----

    /// The flow of a packet by its ports; a new one if none has them.
    fn flow_of(&mut self, local: u16, remote: u16) -> usize {
        let known = self.flows.iter().position(|flow| flow.local == local && flow.remote == remote);
        known.unwrap_or_else(|| {
            self.flows.push(Flow::new(local, remote));
            self.flows.len() - 1
        })
    }

    /// The flow of a packet to the stack.
    fn flow_to(&mut self, ports: Option<(u16, u16)>, is_syn: bool) -> usize {
        if let Some((remote, local)) = ports {
            return self.flow_of(local, remote);
        }
        let current = self.flow.filter(|&flow| !is_syn || self.is_alive(flow));
        current.unwrap_or_else(|| {
            let remote = self.next_remote_port;
            self.next_remote_port = remote.checked_add(1).unwrap_or(FIRST_REMOTE_PORT);
            self.flow_of(self.config.bind_port, remote)
        })
    }

    /// Whether a SYN belongs to a flow that there is already: the stack has the connection, or has not heard
    /// of it.
    fn is_alive(&self, flow: usize) -> bool {
        let Some(flow) = self.flows.get(flow) else { return false };
        let stack = &self.sockets.host.stack;
        let has = |id| {
            stack.conn(id).is_some_and(|conn| {
                conn.local_addr().port() == flow.local
                    && conn.peer_addr().port() == flow.remote
                    && conn.state() != taut_core::State::Closed
            })
        };
        !flow.is_known() || stack.conn_ids().any(has)
    }

    fn inject(&mut self, packet: &Packet) -> Result<(), String> {
        let bytes = match packet {
            Packet::Tcp(spec) => self.segment(spec)?.bytes()?,
            Packet::Icmp(spec) => self.icmp(spec)?,
        };
        self.sockets.host.deliver(&bytes);
        Ok(())
    }

    fn ends(&self, flow: &Flow) -> (SocketAddr, SocketAddr) {
        let local = SocketAddr::new(self.config.local(), flow.local);
        (local, SocketAddr::new(self.config.remote(), flow.remote))
    }

    fn segment(&mut self, spec: &TcpSpec) -> Result<Segment, String> {
        let is_syn = spec.flags.contains(Flags::SYN) && !spec.flags.contains(Flags::ACK);
        if spec.options.is_none() {
            return Err("`<...>` says nothing about an inbound packet: write its options".to_owned());
        }
        let flow = self.flow_to(spec.ports, is_syn);
        self.flow = Some(flow);
        let (seq, ack, options) = self.flows[flow].inbound(spec);
        let (local, remote) = self.ends(&self.flows[flow]);
        Ok(Segment {
            src: remote,
            dst: local,
            ecn: spec.ecn.unwrap_or_default(),
            hop_limit: spec.ttl,
            flags: spec.flags,
            seq,
            ack,
            win: spec.win.unwrap_or(0),
            urg: spec.urg.unwrap_or(0),
            options,
            len: spec.len as usize,
        })
    }

    fn icmp(&mut self, spec: &IcmpSpec) -> Result<Vec<u8>, String> {
        let flow = self.flow_to(spec.ports.map(|(local, remote)| (remote, local)), false);
        let (local, remote) = self.ends(&self.flows[flow]);
        // What a router quotes: our packet.
        let quoted = Segment {
            src: local,
            dst: remote,
            ecn: taut_wire::Ecn::NotEct,
            hop_limit: None,
            flags: Flags::ACK,
            seq: self.flows[flow].our_seq(spec.seq),
            ack: 0,
            win: 0,
            urg: 0,
            options: Vec::new(),
            len: spec.len as usize,
        };
        let quoted = quoted.bytes()?;
        let mut message = vec![0; icmp::HEADER_LEN + quoted.len()];
        let len = icmp::emit_unreachable(&mut message, remote.ip(), local.ip(), spec.code, &quoted);
        let ip = IpHeader {
            src: remote.ip(),
            dst: local.ip(),
            protocol: if remote.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 },
            hop_limit: 64,
            ecn: taut_wire::Ecn::NotEct,
            header_len: 0,
            payload_len: len,
        };
        let mut packet = vec![0; ip.emitted_len() + len];
        let at = ip.emit(&mut packet, 0);
        packet[at..].copy_from_slice(&message[..len]);
        Ok(packet)
    }
}
