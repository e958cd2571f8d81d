//! Packets that the stack sends, compared with those that the script expects: time, flags, numbers, window,
//! options, marks. What the script does not write is not compared, except options: none written means none
//! expected.
//!
//! Unless the segments are strict, packets that follow each other make up one of the script, and a
//! super-packet is cut where its device would cut it, at a multiple of its segment size.

use taut_core::{Duration, Instant};
use taut_wire::Flags;

use super::{PATIENCE, Runner, Wrong};
use crate::host::Sent;
use crate::script::{Opt, TcpSpec, When};
use crate::segment::Segment;

/// Packets that are joined to one of the script's.
const JOINED_MAX: u32 = 10_000;

impl Runner {
    /// Awaits a packet and compares it; returns when it left.
    pub(super) fn expect(
        &mut self,
        line: u32,
        spec: &TcpSpec,
        when: When,
        (first, last): (Instant, Instant),
    ) -> Result<Instant, Wrong> {
        let at_line = |what| (line, what);
        let any_time = matches!(when, When::Any);
        let tolerance = self.config.tolerance;
        let deadline = if any_time { Instant::NEVER } else { last + tolerance };
        let sent = self.await_packet(deadline).map_err(at_line)?;
        let Some(sent) = sent else {
            let expected = format!("expected: > {spec}  {}", time(first.since(crate::host::START)));
            let what = "the stack sent no packet";
            return Err((line, format!("{what}\n  {expected}\n  actual:   none{}", self.held_by())));
        };
        let mut segment = Segment::read(&sent.bytes).map_err(at_line)?;
        self.shape(spec, &sent, &mut segment, deadline).map_err(at_line)?;
        let actual = self.translate(spec, &segment);
        let early = first.since(sent.at) > tolerance;
        let late = sent.at.since(last) > tolerance;
        let differs = differences(spec, &actual);
        let mut wrong: Vec<String> = differs.into_iter().map(str::to_owned).collect();
        if let Some(what) = self.stamp_differs(spec, &segment) {
            wrong.push(what);
        }
        if !any_time && (early || late) {
            wrong.insert(0, "time".to_owned());
        }
        if wrong.is_empty() {
            self.learn_stamp(spec, &segment);
            self.note(|| format!("> {}", written(spec, &actual)));
            return Ok(sent.at);
        }
        let at = |at: Instant| time(at.since(crate::host::START));
        let times = if any_time {
            "at any time".to_owned()
        } else if first == last {
            at(first)
        } else {
            format!("{}~{}", at(first), at(last))
        };
        let expected = format!("expected: > {spec}  {times}");
        let actual = format!("actual:   > {}  {}", written(spec, &actual), at(sent.at));
        Err((line, format!("the packet differs in {}\n  {expected}\n  {actual}", wrong.join(", "))))
    }

    /// Why the connection sends nothing, as it says itself.
    fn held_by(&self) -> String {
        let info = self.subject.and_then(|fd| self.sockets.info(fd));
        info.map_or_else(String::new, |info| {
            format!("; the connection is {}, blocked: {}", info.state, info.blocked.name())
        })
    }

    /// The next packet that leaves. One that comes after the deadline is awaited a little longer, to show it.
    fn await_packet(&mut self, deadline: Instant) -> Result<Option<Sent>, String> {
        let limit = if deadline == Instant::NEVER {
            self.now() + Duration::from_secs(100_000)
        } else {
            deadline + PATIENCE
        };
        self.progress()?;
        while self.sockets.host.sent.is_empty() {
            // Without a timer, nothing will ever leave.
            if self.sockets.host.next_wake().is_none_or(|at| at > limit) {
                return Ok(None);
            }
            self.sockets.host.step(limit)?;
            self.progress()?;
        }
        Ok(self.sockets.host.sent.pop_front())
    }

    /// Cuts the packet, or joins those that follow it, so that it is as long as the script's.
    fn shape(
        &mut self,
        spec: &TcpSpec,
        sent: &Sent,
        segment: &mut Segment,
        deadline: Instant,
    ) -> Result<(), String> {
        let wanted = spec.len as usize;
        if self.config.strict_segments || wanted == 0 || segment.len == 0 {
            return Ok(());
        }
        let mss = usize::from(sent.gso);
        if wanted < segment.len && mss > 0 && wanted.is_multiple_of(mss) {
            // The rest waits for the script's next packet; only the last piece has PSH and FIN.
            let mut rest = segment.clone();
            rest.seq = rest.seq.wrapping_add(wanted as u32);
            rest.len -= wanted;
            let gso = if rest.len > mss { sent.gso } else { 0 };
            let bytes = rest.bytes()?;
            self.sockets.host.sent.push_front(Sent { at: sent.at, bytes, gso });
            segment.len = wanted;
            segment.flags = segment.flags.without(Flags::PSH | Flags::FIN);
            return Ok(());
        }
        let mut joined = 0;
        while segment.len < wanted && joined < JOINED_MAX && !segment.has(Flags::FIN) {
            let Some(next) = self.await_joinable(deadline)? else { return Ok(()) };
            let Ok(more) = Segment::read(&next.bytes) else { return Ok(()) };
            let follows = more.len > 0
                && more.seq == segment.seq.wrapping_add(segment.len as u32)
                && (more.ack, more.src, more.dst) == (segment.ack, segment.src, segment.dst)
                && segment.len + more.len <= wanted;
            if !follows {
                return Ok(());
            }
            self.sockets.host.sent.pop_front();
            segment.len += more.len;
            segment.flags |= more.flags;
            joined += 1;
        }
        Ok(())
    }

    /// A packet that may be a part of the one before. It is not awaited beyond the time of the whole.
    fn await_joinable(&mut self, deadline: Instant) -> Result<Option<Sent>, String> {
        let deadline = deadline.min(self.now() + self.config.tolerance);
        while self.sockets.host.sent.is_empty() {
            if self.sockets.host.next_wake().is_none_or(|at| at > deadline) {
                return Ok(None);
            }
            self.sockets.host.step(deadline)?;
            self.progress()?;
        }
        Ok(self.sockets.host.sent.front().cloned())
    }

    /// The packet in the script's numbers; its flow is now the one that the script talks about.
    fn translate(&mut self, spec: &TcpSpec, segment: &Segment) -> TcpSpec {
        let flow = self.flow_of(segment.src.port(), segment.dst.port());
        self.flow = Some(flow);
        self.flows[flow].note_sent(segment);
        let mut actual = self.flows[flow].outbound(segment);
        // The first TSval is what the script says it is, and without a tick every other one, too.
        if let (Some(wanted), Some(Opt::Timestamps { val, .. })) = (
            stamp_of(spec),
            actual.options.iter_mut().flatten().find(|option| matches!(option, Opt::Timestamps { .. })),
        ) {
            *val = wanted;
        }
        actual.ports = spec.ports.map(|_| (segment.src.port(), segment.dst.port()));
        actual
    }

    fn learn_stamp(&mut self, spec: &TcpSpec, segment: &Segment) {
        if let (Some(flow), Some(script), Some(live)) = (self.flow, stamp_of(spec), live_stamp(segment)) {
            self.flows[flow].note_stamp(script, live);
        }
    }

    /// With a tick, TSvals must have advanced as the script's have.
    fn stamp_differs(&self, spec: &TcpSpec, segment: &Segment) -> Option<String> {
        let tick = self.config.ts_tick?;
        let (script, live) = (stamp_of(spec)?, live_stamp(segment)?);
        let (script, live) = self.flows.get(self.flow?)?.since_first_stamp(script, live)?;
        // TSvals of the stack are milliseconds.
        let wanted_us = i128::from(script) * i128::from(tick.as_micros());
        let actual_us = i128::from(live) * 1_000;
        let allowed = i128::from(self.config.tolerance.as_micros() + tick.as_micros().max(1_000));
        let differs = (wanted_us - actual_us).abs() > allowed;
        differs.then(|| format!("TSval (expected {wanted_us} µs after the first, was {actual_us} µs)"))
    }
}

fn stamp_of(spec: &TcpSpec) -> Option<u32> {
    spec.options.iter().flatten().find_map(|option| match option {
        Opt::Timestamps { val, .. } => Some(*val),
        _ => None,
    })
}

fn live_stamp(segment: &Segment) -> Option<u32> {
    segment.options.iter().find_map(|option| match option {
        Opt::Timestamps { val, .. } => Some(*val),
        _ => None,
    })
}

fn time(since: Duration) -> String {
    format!("at {:.6}", since.as_nanos() as f64 / 1e9)
}

/// What the script says, and the packet does not.
fn differences(spec: &TcpSpec, actual: &TcpSpec) -> Vec<&'static str> {
    let said = [
        (spec.ecn.is_some() && spec.ecn != actual.ecn, "ECN"),
        (spec.ttl.is_some() && spec.ttl != actual.ttl, "TTL"),
        (spec.ports != actual.ports, "ports"),
        (spec.flags != actual.flags, "flags"),
        (spec.seq != actual.seq, "sequence number"),
        (spec.len != actual.len, "length"),
        (spec.ack != actual.ack, "ack"),
        (spec.win.is_some() && spec.win != actual.win, "window"),
        (spec.urg.is_some() && spec.urg != actual.urg, "urgent pointer"),
        (spec.options.is_some() && spec.options != actual.options, "options"),
    ];
    said.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect()
}

/// The packet with those parts that the script writes.
fn written(spec: &TcpSpec, actual: &TcpSpec) -> TcpSpec {
    TcpSpec {
        ecn: spec.ecn.and(actual.ecn),
        ttl: spec.ttl.and(actual.ttl),
        win: spec.win.and(actual.win),
        urg: spec.urg.and(actual.urg),
        ..actual.clone()
    }
}
