//! Two looks at all connections of all stacks in, rows out. Pure.
//!
//! ```text
//!   look at t0 ─┐
//!               ├─▶ Sample: a row for each connection, the one whose bytes wait longest first
//!   look at t1 ─┘   queues as they are at t1; rates, retransmissions and what held it back from t0 to t1
//! ```
//!
//! A stack keeps nothing for those who watch it, so differences are made here. A connection is the same in
//! both looks if its addresses and its stack are, and none of its counters went back. Of a connection that
//! is new, and of all in the first look, rates are not known.
//!
//! **The worst first.** A connection's *wait* is the sum of how long the oldest byte has waited unsent, how
//! long the oldest has been below TCP, and how long ago the oldest left that is not acknowledged: about as
//! long as a byte that is written now will take to arrive. It also grows while nothing moves, when every
//! rate is zero.
//!
//! Called by `watch.rs`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use taut_control::protocol::Identity;
use taut_control::qdisc::QdiscSnapshot;
use taut_control::sample::ConnSample;
use taut_core::Gate;

/// The most rows in a sample; the worst are in it. A page of a stack with more connections says how many
/// there are.
pub const ROWS_MAX: usize = 2_000;

/// All stacks at one time.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// By the watcher's clock.
    pub at: Duration,
    /// The stacks that answered.
    pub stacks: Vec<StackLook>,
    /// Those that did not, and why.
    pub left_out: Vec<String>,
}

/// One stack.
#[derive(Clone, Debug, Default)]
pub struct StackLook {
    /// Its process, program and device.
    pub who: Identity,
    /// Its connections.
    pub connections: Vec<ConnSample>,
    /// The queue in front of its device, the root first.
    pub qdiscs: Vec<QdiscSnapshot>,
}

/// All that the page and the terminal show at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Counts from 1 and goes up with each sample that was taken, shown or not.
    pub number: u64,
    /// Time since the look before; none for the first.
    pub span_ns: Option<u64>,
    /// The stacks.
    pub stacks: Vec<StackRow>,
    /// Stacks that did not answer, and why.
    pub left_out: Vec<String>,
    /// All connections, also those without a row.
    pub all: Totals,
    /// The connections, the worst first; [`ROWS_MAX`] at most.
    pub rows: Vec<Row>,
}

/// A stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StackRow {
    /// Its process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// Its device.
    pub device: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// How long it has run.
    pub uptime_ns: u64,
    /// Its connections, in any state but TIME-WAIT.
    pub connections: usize,
    /// The queue disciplines in front of its device, in `tc`'s words; empty without.
    pub qdisc: String,
    /// Bytes in them.
    pub qdisc_backlog: u64,
    /// Packets that they dropped, since they were installed.
    pub qdisc_drops: u64,
}

/// Sums over connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// How many they are.
    pub connections: usize,
    /// Their bytes.
    pub queues: Queues,
    /// Acknowledged bytes per second.
    pub goodput: Option<f64>,
    /// Received bytes per second.
    pub received: Option<f64>,
    /// Segments retransmitted since the look before.
    pub retrans: Option<u64>,
}

/// Payload bytes in each queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Written and not sent.
    pub unsent: u64,
    /// Below TCP: in the queue discipline or the device.
    pub device: u64,
    /// Left the host, not acknowledged.
    pub in_flight: u64,
    /// Received, and not read by the application.
    pub unread: u64,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its stack's place in [`Sample::stacks`].
    pub stack: usize,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// `ESTAB` …
    pub state: String,
    /// Its bytes.
    pub queues: Queues,
    /// Bytes below TCP, overhead included.
    pub below: u32,
    /// How long its oldest bytes have waited: the sum over the three queues of the send path.
    pub wait_ns: u64,
    /// The gate that was shut for most of the time since the look before, or since the first write of a new
    /// connection. None before its first write.
    pub held: Option<Held>,
    /// Congestion control.
    pub congestion: String,
    /// State of loss recovery.
    pub ca_state: String,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Slow-start threshold, segments; none until one was set.
    pub ssthresh: Option<u32>,
    /// Payload bytes of a segment.
    pub mss: u32,
    /// The peer's window, bytes.
    pub snd_wnd: u32,
    /// Smoothed round-trip time.
    pub rtt_ns: Option<u64>,
    /// The lowest recent one.
    pub min_rtt_ns: Option<u64>,
    /// Bytes per second; none without a limit.
    pub pacing_rate: Option<u64>,
    /// Bytes per second, by the stack's latest sample.
    pub delivery_rate: u64,
    /// Acknowledged bytes per second since the look before.
    pub goodput: Option<f64>,
    /// Received bytes per second since the look before.
    pub received: Option<f64>,
    /// Segments retransmitted since the look before.
    pub retrans: Option<u64>,
    /// Segments retransmitted ever.
    pub total_retrans: u64,
}

/// A gate that held a connection back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// The gate that was shut: `pacing`, `cwnd` …
    pub reason: String,
    /// The same for people.
    pub words: String,
    /// For which part of the time, 0 to 1.
    pub share: f64,
}

/// A process, the time at which its stack began, and the two ends.
type Name = (u32, u64, SocketAddr, SocketAddr);

/// Keeps the look before.
#[derive(Debug, Default)]
pub struct Sampler {
    number: u64,
    at: Option<Duration>,
    before: BTreeMap<Name, ConnSample>,
}

impl Sampler {
    /// Forgets the look before: the next sample is a first one. For when nobody watched for so long that
    /// the difference would be an average of the past.
    pub fn forget(&mut self) {
        self.at = None;
        self.before.clear();
    }

    /// Makes the sample.
    pub fn sample(&mut self, look: Look) -> Sample {
        self.number += 1;
        let span = self.at.map(|before| look.at.saturating_sub(before)).filter(|span| !span.is_zero());
        self.at = Some(look.at);
        let mut before = std::mem::take(&mut self.before);
        let mut sample = Sample {
            number: self.number,
            span_ns: span.map(|span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
            left_out: look.left_out,
            ..Sample::default()
        };
        for (stack, StackLook { who, connections, qdiscs }) in look.stacks.into_iter().enumerate() {
            let (pid, started_ns) = (who.pid, who.started_ns);
            sample.stacks.push(stack_row(who, connections.len(), &qdiscs));
            for conn in connections {
                let name = (pid, started_ns, conn.local, conn.peer);
                let earlier = before.remove(&name).filter(|earlier| is_same(earlier, &conn));
                let row = row(stack, &conn, earlier.as_ref(), span);
                sample.all.add(&row);
                sample.rows.push(row);
                self.before.insert(name, conn);
            }
        }
        if span.is_none() {
            (sample.all.goodput, sample.all.received, sample.all.retrans) = (None, None, None);
        }
        sample.rows.sort_by_key(|row| {
            (Reverse(row.wait_ns), Reverse(row.queues.waiting()), row.stack, row.local, row.peer)
        });
        sample.rows.truncate(ROWS_MAX);
        sample
    }
}

impl Queues {
    /// Bytes on their way to the peer.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.unsent + self.device + self.in_flight
    }
}

impl Totals {
    fn add(&mut self, row: &Row) {
        self.connections += 1;
        self.queues.unsent += row.queues.unsent;
        self.queues.device += row.queues.device;
        self.queues.in_flight += row.queues.in_flight;
        self.queues.unread += row.queues.unread;
        *self.goodput.get_or_insert_default() += row.goodput.unwrap_or_default();
        *self.received.get_or_insert_default() += row.received.unwrap_or_default();
        *self.retrans.get_or_insert_default() += row.retrans.unwrap_or_default();
    }
}

/// Another connection between the same ends begins to count from 0.
fn is_same(earlier: &ConnSample, later: &ConnSample) -> bool {
    earlier.bytes_acked <= later.bytes_acked
        && earlier.bytes_received <= later.bytes_received
        && earlier.total_retrans <= later.total_retrans
}

fn stack_row(who: Identity, connections: usize, qdiscs: &[QdiscSnapshot]) -> StackRow {
    StackRow {
        pid: who.pid,
        program: who.program,
        device: who.device,
        addresses: who.addresses,
        uptime_ns: who.uptime_ns,
        connections,
        qdisc: qdiscs.first().map(|root| root.spec.clone()).unwrap_or_default(),
        // A packet is in one of them; the root's backlog has those of its children only in some kinds.
        qdisc_backlog: qdiscs.iter().map(|qdisc| qdisc.backlog).max().unwrap_or_default(),
        qdisc_drops: qdiscs.iter().map(|qdisc| qdisc.drops).sum(),
    }
}

fn row(stack: usize, conn: &ConnSample, earlier: Option<&ConnSample>, span: Option<Duration>) -> Row {
    let compared = earlier.zip(span);
    let rate = |count: fn(&ConnSample) -> u64| {
        compared.map(|(earlier, span)| (count(conn) - count(earlier)) as f64 / span.as_secs_f64())
    };
    let ages = [conn.unsent_ns, conn.device_ns, conn.in_flight_ns];
    Row {
        stack,
        local: conn.local,
        peer: conn.peer,
        state: conn.state.clone(),
        queues: Queues {
            unsent: conn.unsent,
            device: conn.device,
            in_flight: conn.in_flight,
            unread: conn.unread,
        },
        below: conn.below,
        wait_ns: ages.into_iter().flatten().fold(0, u64::saturating_add),
        held: held(conn, earlier),
        congestion: conn.congestion.clone(),
        ca_state: conn.ca_state.clone(),
        cwnd: conn.cwnd,
        ssthresh: conn.ssthresh,
        mss: conn.mss,
        snd_wnd: conn.snd_wnd,
        rtt_ns: conn.rtt_ns,
        min_rtt_ns: conn.min_rtt_ns,
        pacing_rate: conn.pacing_rate,
        delivery_rate: conn.delivery_rate,
        goodput: rate(|conn| conn.bytes_acked),
        received: rate(|conn| conn.bytes_received),
        retrans: compared.map(|(earlier, _)| conn.total_retrans - earlier.total_retrans),
        total_retrans: conn.total_retrans,
    }
}

/// The gate that was shut longest since the earlier look.
fn held(conn: &ConnSample, earlier: Option<&ConnSample>) -> Option<Held> {
    let before = |reason: &str| {
        let share = earlier.and_then(|earlier| earlier.shares.iter().find(|share| share.reason == reason));
        share.map_or(0, |share| share.time_ns)
    };
    let added = conn.shares.iter().map(|share| (share, share.time_ns.saturating_sub(before(&share.reason))));
    let all: u64 = added.clone().map(|(_, time)| time).sum();
    // The first of equals, in the order in which gates are asked.
    let (share, most) = added.rev().max_by_key(|&(_, time)| time)?;
    let reason = share.reason.clone();
    // A gate of a newer stack keeps the name that the stack gave.
    let words = Gate::by_name(&reason).map_or_else(|| reason.clone(), |gate| gate.words().to_owned());
    (all > 0).then(|| Held { reason, words, share: most as f64 / all as f64 })
}

#[cfg(test)]
mod tests {
    use taut_control::snapshot::Share;

    use super::*;

    fn conn(port: u16) -> ConnSample {
        ConnSample {
            local: SocketAddr::from(([10, 9, 0, 2], 80)),
            peer: SocketAddr::from(([10, 9, 0, 1], port)),
            state: "ESTAB".to_owned(),
            congestion: "cubic".to_owned(),
            ca_state: "open".to_owned(),
            blocked: "cwnd".to_owned(),
            shares: Vec::new(),
            unsent: 0,
            unsent_ns: None,
            device: 0,
            device_ns: None,
            in_flight: 0,
            in_flight_ns: None,
            unread: 0,
            below: 0,
            cwnd: 10,
            ssthresh: None,
            mss: 1448,
            snd_wnd: 65_536,
            rtt_ns: None,
            min_rtt_ns: None,
            pacing_rate: None,
            delivery_rate: 0,
            bytes_acked: 0,
            bytes_received: 0,
            total_retrans: 0,
        }
    }

    fn look(at_ms: u64, connections: Vec<ConnSample>) -> Look {
        let stack = StackLook {
            connections,
            who: Identity { pid: 7, ..Identity::default() },
            ..StackLook::default()
        };
        Look { at: Duration::from_millis(at_ms), stacks: vec![stack], left_out: Vec::new() }
    }

    fn shares(of: &[(&str, u64)]) -> Vec<Share> {
        of.iter().map(|&(reason, time_ns)| Share { reason: reason.to_owned(), time_ns }).collect()
    }

    #[test]
    fn dash_01_rates_are_differences_over_the_time_between_two_looks() {
        let mut sampler = Sampler::default();
        let early = ConnSample { bytes_acked: 1_000, bytes_received: 50, total_retrans: 2, ..conn(1) };
        let late = ConnSample { bytes_acked: 501_000, bytes_received: 250, total_retrans: 5, ..conn(1) };
        let first = sampler.sample(look(1_000, vec![early.clone()]));
        assert_eq!((first.number, first.span_ns), (1, None));
        assert_eq!(
            (first.rows[0].goodput, first.rows[0].received, first.rows[0].retrans),
            (None, None, None)
        );
        assert_eq!(first.all.goodput, None);

        // 500,000 bytes, 200 bytes and 3 segments in 250 ms; a second connection is new.
        let second =
            sampler.sample(look(1_250, vec![late.clone(), ConnSample { bytes_acked: 9, ..conn(2) }]));
        assert_eq!((second.number, second.span_ns), (2, Some(250_000_000)));
        let row = |port: u16| second.rows.iter().find(|row| row.peer.port() == port).unwrap();
        assert_eq!((row(1).goodput, row(1).received, row(1).retrans), (Some(2e6), Some(800.0), Some(3)));
        assert_eq!((row(2).goodput, row(2).received, row(2).retrans), (None, None, None));
        assert_eq!((second.all.goodput, second.all.retrans), (Some(2e6), Some(3)));
        assert_eq!(second.all.connections, 2);

        // Between the same ends, a connection that counts from 0 is another one; so is one of another
        // process.
        let third = sampler.sample(look(1_500, vec![early.clone()]));
        assert_eq!(third.rows[0].goodput, None);
        let mut other = look(1_750, vec![late.clone()]);
        other.stacks[0].who.pid = 8;
        assert_eq!(sampler.sample(other).rows[0].goodput, None);

        // After a pause, the difference would be an average of the past.
        sampler.forget();
        assert_eq!(sampler.sample(look(9_000, vec![late])).span_ns, None);
    }

    #[test]
    fn dash_02_what_held_it_back_is_the_gate_shut_longest_since_the_look_before() {
        let mut sampler = Sampler::default();
        let early = ConnSample { shares: shares(&[("no-data", 900), ("pacing", 100)]), ..conn(1) };
        let late = ConnSample {
            shares: shares(&[("no-data", 900), ("pacing", 350), ("peer-window", 850)]),
            ..conn(1)
        };
        let first = sampler.sample(look(0, vec![early]));
        let expected = Held { reason: "no-data".to_owned(), words: "application".to_owned(), share: 0.9 };
        assert_eq!(first.rows[0].held.as_ref(), Some(&expected));
        // Of 1100 ns, 850 with the window shut, and none for the application.
        let second = sampler.sample(look(1, vec![late.clone()]));
        let held = second.rows[0].held.clone().unwrap();
        assert_eq!((held.reason.as_str(), held.words.as_str()), ("peer-window", "receiver's window"));
        assert!((held.share - 850.0 / 1100.0).abs() < 1e-12, "{}", held.share);
        // Nothing was added, or never written.
        assert_eq!(sampler.sample(look(2, vec![late])).rows[0].held, None);
        assert_eq!(sampler.sample(look(3, vec![conn(1)])).rows[0].held, None);
        let unknown = ConnSample { shares: shares(&[("moon-phase", 5)]), ..conn(3) };
        assert_eq!(sampler.sample(look(4, vec![unknown])).rows[0].held.as_ref().unwrap().words, "moon-phase");
    }

    #[test]
    fn dash_03_the_connection_whose_bytes_wait_longest_comes_first() {
        let mut sampler = Sampler::default();
        let waits = |port, unsent_ns, device_ns, in_flight_ns| ConnSample {
            unsent_ns,
            device_ns,
            in_flight_ns,
            ..conn(port)
        };
        let all = vec![
            conn(1),
            waits(2, Some(5), Some(6), Some(7)),
            waits(3, None, None, Some(19)),
            ConnSample { unsent: 10, ..waits(4, Some(18), None, None) },
            ConnSample { in_flight: 11, ..waits(5, None, None, Some(18)) },
        ];
        let sample = sampler.sample(look(0, all));
        let order: Vec<_> = sample.rows.iter().map(|row| (row.peer.port(), row.wait_ns)).collect();
        assert_eq!(order, [(3, 19), (5, 18), (4, 18), (2, 18), (1, 0)]);

        // Of too many, the worst have a row, and all are counted.
        let many = ROWS_MAX as u16 + 1;
        let all =
            (1..=many).map(|port| ConnSample { unsent: 1, ..waits(port, Some(port.into()), None, None) });
        let sample = sampler.sample(look(1, all.collect()));
        assert_eq!((sample.rows.len(), sample.all.connections), (ROWS_MAX, ROWS_MAX + 1));
        assert_eq!(sample.all.queues.unsent, ROWS_MAX as u64 + 1);
        assert_eq!(sample.rows[0].peer.port(), many);
        assert!(sample.rows.iter().all(|row| row.peer.port() != 1));
    }

    #[test]
    fn dash_04_every_byte_is_in_one_queue() {
        let mut sampler = Sampler::default();
        let one = ConnSample { unsent: 1, device: 20, in_flight: 300, unread: 4_000, below: 77, ..conn(1) };
        let sample = sampler.sample(look(0, vec![one.clone(), ConnSample { peer: conn(2).peer, ..one }]));
        let expected = Queues { unsent: 1, device: 20, in_flight: 300, unread: 4_000 };
        assert_eq!((sample.rows[0].queues, sample.rows[0].queues.waiting()), (expected, 321));
        let twice = Queues { unsent: 2, device: 40, in_flight: 600, unread: 8_000 };
        assert_eq!(sample.all.queues, twice);
    }
}
