//! Invariants, checked after every event, or after every so many events. Called by the world's loop and by
//! tests.
//!
//! - Packets are conserved: the packets in queues, rings and wires are those that the pool has given out.
//! - Tickets are conserved: the truesizes of a connection's packets in its host's queues sum to its
//!   `wmem_alloc`.
//! - A queue holds no more than its limit.
//! - Nothing stalls: a connection that has something to send waits for an event that will come.
//! - Time does not go back, nor stand still for ever.
//!
//! Applications check that bytes arrive in order and as written, because they know the bytes.

use std::collections::BTreeMap;

use taut_core::{Blocked, ConnId, ConnInfo, Instant, State};
use taut_link::{BANDS, Qdisc, QdiscSpec, Tree};

use crate::failure::{Failure, Kind};
use crate::packet::Claim;
use crate::parts::host::Host;
use crate::world::World;

/// How often the invariants are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Events between two checks; 0 for never.
    pub every: u64,
}

impl Checks {
    /// After every event; this is slow.
    pub const ALWAYS: Self = Self { every: 1 };

    pub(crate) const fn due(self, events: u64) -> bool {
        self.every != 0 && events.is_multiple_of(self.every)
    }

    pub(crate) fn at_end(self, world: &World) -> Result<(), Failure> {
        if self.every == 0 { Ok(()) } else { all(world) }
    }
}

/// Checks everything once.
pub(crate) fn all(world: &World) -> Result<(), Failure> {
    packets(world)?;
    for router in &world.routers {
        for (index, port) in router.ports.iter().enumerate() {
            within(world, &port.queue, bounds(port.queue.spec()), || {
                format!("port {index} of router {}", router.id.0)
            })?;
        }
    }
    for host in &world.hosts {
        within(world, &host.root, bounds(host.root.spec()), || format!("root queue of host {}", host.id.0))?;
        tickets(world, host)?;
        if host.is_settled() && !host.is_refusing() {
            stalls(world, host)?;
        }
    }
    Ok(())
}

fn fail(world: &World, kind: Kind, why: String) -> Result<(), Failure> {
    Err(Failure::new(world.now(), kind, why))
}

fn packets(world: &World) -> Result<(), Failure> {
    let wires: usize = world.fabric.wires.iter().map(crate::parts::wire::Wire::len).sum();
    let ports = world.routers.iter().flat_map(|router| &router.ports).map(|port| &port.queue);
    let roots = world.hosts.iter().map(|host| &host.root);
    let queues: usize = ports.clone().chain(roots.clone()).map(Qdisc::backlog_packets).sum();
    let nics: usize = world.hosts.iter().map(|host| host.nic.received()).sum();
    // If a queue has duplicated a packet, the copy is made when it comes out.
    let doubled = ports.chain(roots).map(Tree::copies).sum::<u64>() - world.fabric.pool.redeemed_copies();
    let live = world.fabric.pool.live();
    if wires + queues + nics == live + doubled as usize {
        return Ok(());
    }
    fail(
        world,
        Kind::Packets,
        format!(
            "{wires} on wires + {queues} in queues + {nics} in NICs, but {live} are out, {doubled} twice"
        ),
    )
}

/// The most packets and bytes that a queue can hold.
fn bounds(spec: &QdiscSpec) -> (usize, u64) {
    let packets = |limit: u32| (limit as usize, u64::MAX);
    match spec {
        QdiscSpec::Pfifo { limit } => packets(*limit),
        QdiscSpec::Bfifo { limit } => (usize::MAX, u64::from(*limit)),
        QdiscSpec::PfifoFast => (BANDS * 1_000, u64::MAX),
        QdiscSpec::Fq(spec) => (BANDS * spec.limit as usize, u64::MAX),
        QdiscSpec::FqCodel(spec) => packets(spec.limit),
        // One packet waits outside the child.
        QdiscSpec::Tbf(spec, behind) => {
            (behind.as_deref().map_or(usize::MAX, |behind| bounds(behind).0 + 1), spec.limit_bytes())
        }
        // The last accepted packet may be duplicated.
        QdiscSpec::Netem(spec, _) => packets(spec.limit.saturating_add(1)),
        _ => (usize::MAX, u64::MAX),
    }
}

fn within(
    world: &World,
    queue: &Tree<Claim>,
    (most_packets, most_bytes): (usize, u64),
    name: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let (packets, bytes) = (queue.backlog_packets(), queue.backlog_bytes());
    if packets <= most_packets && bytes <= most_bytes {
        Ok(())
    } else {
        fail(world, Kind::QueueLimit, format!("{bytes} bytes, {packets} packets in {}", name()))
    }
}

fn tickets(world: &World, host: &Host) -> Result<(), Failure> {
    let mut held: BTreeMap<ConnId, u64> = BTreeMap::new();
    for ticket in host.tickets.iter() {
        if let Some(conn) = ticket.conn() {
            *held.entry(conn).or_default() += u64::from(ticket.truesize());
        }
    }
    for id in host.stack.conn_ids() {
        let Some(info) = host.stack.conn(id).map(|conn| conn.info(world.now())) else { continue };
        let below = held.get(&id).copied().unwrap_or(0);
        if below != u64::from(info.wmem_alloc) {
            let why = format!(
                "host {}, {} -> {}: the stack counts {} bytes below it, but there are {below}",
                host.id.0, info.local, info.peer, info.wmem_alloc
            );
            return fail(world, Kind::Tickets, why);
        }
    }
    Ok(())
}

fn stalls(world: &World, host: &Host) -> Result<(), Failure> {
    let has_timer = host.stack.poll_timeout().is_some();
    let has_tickets = host.tickets.iter().next().is_some();
    for id in host.stack.conn_ids() {
        let Some(info) = host.stack.conn(id).map(|conn| conn.info(world.now())) else { continue };
        if let Some(what) = stall(&info, has_timer, world.now(), (host.nic.room(), has_tickets)) {
            let why = format!(
                "host {}, {} -> {}: {what} ({} unsent, {} unacked, cwnd {}, window {}, {} below, blocked by {})",
                host.id.0,
                info.local,
                info.peer,
                info.notsent_bytes,
                info.unacked,
                info.snd_cwnd,
                info.snd_wnd,
                info.wmem_alloc,
                info.blocked
            );
            return fail(world, Kind::Stalled, why);
        }
    }
    Ok(())
}

/// The event that a connection waits for, if it will not come.
fn stall(
    info: &ConnInfo,
    has_timer: bool,
    now: Instant,
    (nic_has_room, has_tickets): (bool, bool),
) -> Option<&'static str> {
    let is_open = matches!(
        info.state,
        State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck
    );
    if !is_open {
        return None;
    }
    if info.unacked > 0 && !has_timer {
        return Some("data in flight and no timer");
    }
    if info.notsent_bytes == 0 {
        return None;
    }
    let in_flight = info.unacked > 0;
    let below = info.wmem_alloc > 0;
    match info.blocked {
        Blocked::NoData => Some("data unsent, but none to send"),
        // Half a millisecond of tolerance: a core may be busy.
        Blocked::Pacing { until } if now > until + taut_core::Duration::from_micros(500) => {
            Some("the departure time has passed")
        }
        Blocked::Pacing { .. } if !has_timer => Some("paced without a timer"),
        Blocked::Cwnd if !in_flight => Some("a full congestion window with nothing in flight"),
        Blocked::PeerWindow if !in_flight && !has_timer => Some("a closed window and no probe"),
        Blocked::Nagle | Blocked::TsoDefer if !in_flight => Some("waits for an ACK of nothing"),
        Blocked::Cork if !in_flight && !has_timer => Some("corked without an end"),
        // Where completions are measured, it may wait for those of other connections. What the host dropped,
        // and what waits for tickets that were lost, goes again when the timer of a connection with nothing
        // in flight ends.
        Blocked::Autocork | Blocked::SmallQueue
            if !(below || info.tsq_rule == "measured" && has_tickets || !in_flight && has_timer) =>
        {
            Some("waits for a completion of nothing")
        }
        // What a queue of the host dropped goes again with the next ACK or timeout.
        Blocked::Device if nic_has_room && !below && !in_flight && !has_timer => Some("the device has room"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Every check is broken on purpose once, to show that it can fail.

    use taut_core::{ConnOptions, Duration, Event, Instant};

    use super::*;
    use crate::app::{App, AppCx, Bulk, Sink};
    use crate::{HostSpec, Pair, World};

    /// A pair in the middle of a transfer.
    fn busy() -> (World, Pair) {
        let mut world = World::new(1);
        let mut host = HostSpec::new("100mbit".parse().unwrap());
        // One packet at a time, so that a second one waits above.
        host.nic.ring = 1;
        let pair = Pair::new(&mut world, host.clone(), host, Duration::from_millis(5));
        world.app(pair.b, Sink::new(1));
        let to = (world.host_ref(pair.b).address().unwrap(), 1).into();
        world.app(pair.a, Bulk::new(to));
        world.check(Checks::ALWAYS);
        world.run_for(Duration::from_millis(100)).unwrap();
        (world, pair)
    }

    fn kind(result: Result<(), Failure>) -> Option<Kind> {
        result.err().map(|failure| failure.kind)
    }

    #[test]
    fn nothing_is_wrong_when_nothing_is_broken() {
        let (mut world, _) = busy();
        assert_eq!(world.check_now(), Ok(()));
        assert_eq!(world.run_for(Duration::from_millis(50)), Ok(()));
    }

    #[test]
    fn a_packet_that_is_forgotten_is_missed() {
        let (mut world, pair) = busy();
        let wire = &mut world.fabric.wires[pair.ab.0 as usize];
        let forgotten = wire.poll(Instant::from_nanos(u64::MAX));
        assert!(forgotten.is_some());
        assert_eq!(kind(world.check_now()), Some(Kind::Packets));
    }

    #[test]
    fn a_ticket_that_is_forgotten_is_missed() {
        let (mut world, pair) = busy();
        let host = &mut world.hosts[pair.a.index()];
        let slot = (0..host.tickets.slots()).find(|&slot| host.tickets.get(slot).is_some()).unwrap();
        assert!(host.tickets.take(slot).is_some());
        assert_eq!(kind(world.check_now()), Some(Kind::Tickets));
    }

    #[test]
    fn a_queue_beyond_its_limit_is_seen() {
        let (world, pair) = busy();
        let root = &world.hosts[pair.a.index()].root;
        let (packets, bytes) = (root.backlog_packets(), root.backlog_bytes());
        assert!(packets > 0, "small queues keep two packets here");
        let within = |bounds| kind(within(&world, root, bounds, String::new));
        assert_eq!(within((packets, bytes)), None);
        assert_eq!(within((packets - 1, u64::MAX)), Some(Kind::QueueLimit));
        assert_eq!(within((usize::MAX, bytes - 1)), Some(Kind::QueueLimit));
    }

    #[test]
    fn limits_are_those_of_the_words() {
        let any = usize::MAX;
        for (text, most) in [
            ("pfifo limit 7", (7, u64::MAX)),
            ("bfifo limit 9kb", (any, 9_216)),
            ("pfifo_fast", (3_000, u64::MAX)),
            ("fq limit 5", (15, u64::MAX)),
            ("fq_codel limit 6", (6, u64::MAX)),
            ("tbf rate 8mbit burst 1kb limit 3kb", (any, 3_072)),
            ("tbf rate 8mbit burst 1kb latency 5ms", (any, 5_000 + 1_024)),
            ("tbf rate 8mbit burst 1kb limit 3kb | pfifo limit 4", (5, 3_072)),
            ("netem limit 11 duplicate 5%", (12, u64::MAX)),
        ] {
            assert_eq!(bounds(&text.parse().unwrap()), most, "{text}");
        }
    }

    #[test]
    fn a_connection_that_waits_for_nothing_is_a_stall() {
        let (world, pair) = busy();
        let host = &world.hosts[pair.a.index()];
        let id = host.stack.conn_ids().next().unwrap();
        let mut info = host.stack.conn(id).map(|conn| conn.info(world.now())).unwrap();
        info.notsent_bytes = 1;
        info.wmem_alloc = 0;
        info.blocked = Blocked::SmallQueue;
        assert!(stall(&info, true, world.now(), (true, false)).is_some());
        info.wmem_alloc = 1;
        assert_eq!(stall(&info, true, world.now(), (true, false)), None);
        // No timer for data in flight.
        info.unacked = 1;
        assert!(stall(&info, false, world.now(), (true, false)).is_some());
        (info.unacked, info.blocked) = (0, Blocked::Cwnd);
        assert!(stall(&info, true, world.now(), (true, false)).is_some());
        info.blocked = Blocked::Pacing { until: world.now() };
        assert!(stall(&info, false, world.now(), (true, false)).is_some());
        let late = world.now() + Duration::from_millis(1);
        assert!(stall(&info, true, late, (true, false)).is_some());
        info.blocked = Blocked::NoData;
        assert!(stall(&info, true, world.now(), (true, false)).is_some());
    }

    struct Liar;

    impl App for Liar {
        fn start(&mut self, cx: &mut AppCx<'_>) {
            let _ = cx.connect("10.0.0.2:1".parse().unwrap(), &ConnOptions::default());
        }

        fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event) {
            if let Event::Connected(id) = event {
                cx.write(id, b"not what the pattern says").unwrap();
            }
        }
    }

    #[test]
    fn bytes_that_were_not_written_so_end_the_run() {
        let mut world = World::new(1);
        let host = HostSpec::new("100mbit".parse().unwrap());
        let pair = Pair::new(&mut world, host.clone(), host, Duration::from_millis(5));
        world.app(pair.b, Sink::new(1));
        world.app(pair.a, Liar);
        assert_eq!(kind(world.run_for(Duration::from_secs(1))), Some(Kind::WrongBytes));
    }

    #[test]
    fn time_neither_goes_back_nor_stands_still() {
        let (mut world, pair) = busy();
        let wire = world.fabric.wires[pair.ab.0 as usize].alarm;
        world.fabric.agenda.set(wire, Some(Instant::from_nanos(5)));
        assert_eq!(kind(world.run_for(Duration::from_millis(1))), Some(Kind::TimeWentBack));

        /// Sets a timer for the current time, each time.
        struct Spinner;
        impl App for Spinner {
            fn start(&mut self, cx: &mut AppCx<'_>) {
                cx.timer(cx.now(), 0);
            }
            fn on_event(&mut self, _: &mut AppCx<'_>, _: Event) {}
            fn on_timer(&mut self, cx: &mut AppCx<'_>, _: u64) {
                cx.timer(cx.now(), 0);
            }
        }
        let mut world = World::new(1);
        let host = world.host(HostSpec::new("100mbit".parse().unwrap()));
        world.app(host, Spinner);
        assert_eq!(kind(world.run_for(Duration::from_millis(1))), Some(Kind::NoProgress));
    }
}
