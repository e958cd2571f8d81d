use proptest::prelude::*;

use super::*;

const START: Instant = Instant::from_nanos(3_000_000_000);
/// A gigabit takes 8 ns per byte; a full packet has 1500 bytes plus 38.
const FULL_NS: u64 = 1_538 * 8;

type Card = Nic<u32, u32>;

/// Times in nanoseconds after [`START`], each with a length or a token.
type Trace = Vec<(u64, u32)>;

fn ns(ns: u64) -> Instant {
    START + Duration::from_nanos(ns)
}

fn gigabit(change: impl FnOnce(&mut NicSpec)) -> Card {
    let mut spec = NicSpec { bql: None, ..NicSpec::new("1gbit".parse().unwrap()) };
    change(&mut spec);
    Nic::new(spec)
}

/// Posts a packet with segments of these lengths. Returns when each is sent.
fn post(nic: &mut Card, now: Instant, lens: &[u32], token: u32) -> Trace {
    let times: Vec<Instant> = lens.iter().map(|&len| nic.send(now, len)).collect();
    nic.post(times[times.len() - 1], token, lens.iter().sum());
    times.iter().zip(lens).map(|(at, &len)| (at.since(START).as_nanos(), len)).collect()
}

fn take(nic: &mut Card) -> Vec<u32> {
    let mut batch = Vec::new();
    nic.take_received(&mut batch);
    batch
}

/// The time at which each token comes back, and the number of interrupts.
fn drive(nic: &mut Card, until: Instant) -> (Trace, u32) {
    let (mut back, mut interrupts) = (Vec::new(), 0);
    while let Some(at) = nic.next_interrupt().filter(|&at| at <= until) {
        interrupts += 1;
        nic.complete(at, |token| back.push((at.since(START).as_nanos(), token)));
    }
    (back, interrupts)
}

#[test]
fn packets_follow_each_other_at_line_rate() {
    let mut nic = gigabit(|_| ());
    assert_eq!(post(&mut nic, START, &[1_500], 70), [(FULL_NS, 1_500)]);
    assert_eq!(post(&mut nic, START, &[1_500], 71), [(2 * FULL_NS, 1_500)]);
    // The line is still busy when the third packet comes.
    assert_eq!(post(&mut nic, ns(10_000), &[100], 72), [(2 * FULL_NS + 138 * 8, 100)]);
    let (back, interrupts) = drive(&mut nic, ns(1_000_000));
    assert_eq!(back, [(FULL_NS, 70), (2 * FULL_NS, 71), (2 * FULL_NS + 138 * 8, 72)]);
    assert_eq!(interrupts, 3);
    post(&mut nic, ns(500_000), &[1_500], 73);
    assert_eq!(nic.next_interrupt(), Some(ns(500_000 + FULL_NS)));
}

#[test]
fn a_second_of_full_packets_is_81274_of_them() {
    let mut nic = gigabit(|_| ());
    (0..90_000).for_each(|token| drop(post(&mut nic, START, &[1_500], token)));
    // 125,000,000 / 1538.
    assert_eq!(nic.sent(ns(1_000_000_000)), 81_274);
}

#[test]
fn a_super_packet_is_many_on_the_wire_and_comes_back_once() {
    let mut nic = gigabit(|_| ());
    let (first, end) = ((1_434 + 38) * 8, (4_300 + 3 * 38) * 8);
    let sent = post(&mut nic, START, &[1_434, 1_434, 1_432], 70);
    assert_eq!(sent, [(first, 1_434), (2 * first, 1_434), (end, 1_432)]);
    assert_eq!(nic.bytes(), 4_300);
    assert_eq!(drive(&mut nic, ns(1_000_000)), ([(end, 70)].into(), 1));
    assert_eq!(nic.bytes(), 0);
}

#[test]
fn completions_wait_for_time_or_number() {
    let mut nic = gigabit(|spec| spec.tx_usecs = Duration::from_micros(16));
    (70..73).for_each(|token| drop(post(&mut nic, START, &[1_500], token)));
    // 16 µs after the first packet, the second has been sent as well.
    let (back, interrupts) = drive(&mut nic, ns(1_000_000));
    assert_eq!(back, [(FULL_NS + 16_000, 70), (FULL_NS + 16_000, 71), (3 * FULL_NS + 16_000, 72)]);
    assert_eq!(interrupts, 2);

    let mut nic = gigabit(|spec| (spec.tx_usecs, spec.tx_frames) = (Duration::from_millis(1), 2));
    (0..3).for_each(|token| drop(post(&mut nic, START, &[1_500], token)));
    let (back, _) = drive(&mut nic, ns(10_000_000));
    assert_eq!(back, [(2 * FULL_NS, 0), (2 * FULL_NS, 1), (3 * FULL_NS + 1_000_000, 2)]);
}

#[test]
fn descriptors_come_free_when_the_host_is_told() {
    let mut nic = gigabit(|spec| (spec.ring, spec.tx_usecs) = (8, Duration::from_micros(100)));
    (0..3).for_each(|token| drop(post(&mut nic, START, &[1_500], token)));
    assert!(nic.room(), "five are free");
    // 64 KB take four descriptors: one is free.
    post(&mut nic, START, &[1_500; 43], 3);
    assert!(!nic.room());
    // The first three packets were sent long ago.
    let told = ns(FULL_NS + 100_000);
    assert_eq!((nic.sent(told), nic.next_interrupt()), (3, Some(told)));
    assert!(!nic.room());
    let mut back = Vec::new();
    assert_eq!(nic.complete(told, |token| back.push(token)), 3);
    assert_eq!(back, [0, 1, 2]);
    assert!(!nic.room(), "four are free");
    drive(&mut nic, ns(10_000_000));
    assert!(nic.room());
}

#[test]
fn a_byte_queue_limit_keeps_the_ring_short_and_the_line_busy() {
    let collected = Duration::from_micros(100);
    let mut nic = gigabit(|spec| (spec.bql, spec.tx_usecs) = (Some(BqlSpec::default()), collected));
    let (mut now, mut most, mut sent) = (START, 0, 0);
    while now < ns(3_000_000_000) {
        while nic.room() {
            let at = nic.send(now, 1_500);
            sent += u32::from((ns(2_000_000_000)..ns(3_000_000_000)).contains(&at));
            nic.post(at, 0, 1_500);
        }
        if now >= ns(2_000_000_000) {
            most = most.max(nic.bytes());
        }
        now = nic.next_interrupt().unwrap().max(now);
        nic.complete(now, drop);
    }
    // The maximum is 81,274.
    assert!(sent > 81_190, "the line idled: {sent} packets in the last second");
    // Twice the bytes sent between two interrupts, and a packet: 27,000 bytes; 512 descriptors would be
    // 768,000.
    assert!(most < 4 * 14_000, "{most} bytes in the ring");
}

#[test]
fn arrivals_are_announced_together() {
    let mut nic = gigabit(|spec| (spec.rx_usecs, spec.rx_frames) = (Duration::from_micros(50), 4));
    assert_eq!(nic.receive(START, 0), Arrival::InterruptAt(ns(50_000)), "50 µs after the first");
    assert_eq!(nic.receive(ns(12_000), 1), Arrival::Quiet);
    assert!(nic.interrupt());
    assert_eq!(nic.receive(ns(51_000), 2), Arrival::Quiet, "the host knows already");
    assert!(!nic.interrupt(), "once is enough");
    assert_eq!(take(&mut nic), [0, 1, 2]);
    // The fourth of the next four packets interrupts at once.
    assert_eq!(nic.receive(ns(60_000), 3), Arrival::InterruptAt(ns(110_000)));
    assert_eq!(nic.receive(ns(61_000), 4), Arrival::Quiet);
    assert_eq!(nic.receive(ns(62_000), 5), Arrival::Quiet);
    assert_eq!(nic.receive(ns(63_000), 6), Arrival::Interrupt);
    assert_eq!(nic.received(), 4);
    assert_eq!(take(&mut nic).len(), 4);
    assert!(!nic.interrupt(), "no packets are left at that time");
}

#[test]
fn arrivals_that_are_not_collected_interrupt_each() {
    let mut nic = gigabit(|_| ());
    for packet in 0..3 {
        assert_eq!(nic.receive(START, packet), Arrival::Interrupt);
        assert_eq!(take(&mut nic), [packet]);
    }
}

#[test]
fn a_full_receive_ring_drops() {
    let mut nic = gigabit(|spec| spec.rx_ring = 2);
    assert_eq!(
        [0, 1, 2].map(|packet| nic.receive(START, packet)),
        [Arrival::Interrupt, Arrival::Quiet, Arrival::Dropped(2)]
    );
}

/// The same card, stepped from segment to segment and from interrupt to interrupt, to check the times that
/// the real one computes in advance.
struct Stepped {
    spec: NicSpec,
    bql: Option<Bql>,
    /// Remaining segments of each packet, its token, and when it was posted.
    jobs: VecDeque<(u16, u32, Instant)>,
    /// When the current segment will be sent, and how many bytes were sent since when without a pause.
    sending: Option<Instant>,
    busy_since: Instant,
    busy_bytes: u64,
    idle_at: Instant,
    /// Sent packets with their sizes, and when the host is notified of them.
    done: Vec<(u32, u32)>,
    tell_at: Option<Instant>,
    used_descriptors: usize,
}

impl Stepped {
    fn new(spec: NicSpec) -> Self {
        let bql = spec.bql.map(Bql::new);
        let (busy_since, busy_bytes, idle_at) = (Instant::ZERO, 0, Instant::ZERO);
        let (jobs, done) = (VecDeque::new(), Vec::new());
        let (sending, tell_at, used_descriptors) = (None, None, 0);
        Self { spec, bql, jobs, sending, busy_since, busy_bytes, idle_at, done, tell_at, used_descriptors }
    }

    fn room(&self) -> bool {
        self.spec.ring - self.used_descriptors >= 5 && self.bql.as_ref().is_none_or(Bql::has_room)
    }

    fn post(&mut self, now: Instant, segs: u16, token: u32) {
        let bytes = 1_500 * u32::from(segs);
        self.used_descriptors += bytes.div_ceil(16_384) as usize;
        if let Some(bql) = &mut self.bql {
            bql.on_queued(bytes.into());
        }
        self.jobs.push_back((segs, token, now));
        self.start();
    }

    fn start(&mut self) {
        let Some((_, _, posted)) = self.jobs.front().filter(|_| self.sending.is_none()) else { return };
        if *posted > self.idle_at {
            (self.busy_since, self.busy_bytes) = (*posted, 0);
        }
        self.busy_bytes += u64::from(1_500 + self.spec.overhead_bytes);
        self.idle_at = self.busy_since + self.spec.rate.time_for(self.busy_bytes);
        self.sending = Some(self.idle_at);
    }

    fn next(&self) -> Option<Instant> {
        [self.sending, self.tell_at].into_iter().flatten().min()
    }

    /// Handles everything that happens at `now`, given the whole sizes of packets by token.
    fn step(&mut self, now: Instant, sizes: &[u16], sent: &mut Trace, back: &mut Trace) {
        let at = now.since(START).as_nanos();
        while let Some(time) = self.sending.take_if(|time| *time <= now) {
            sent.push((at, 1_500));
            let (left, token, _) = &mut self.jobs[0];
            *left -= 1;
            if *left == 0 {
                self.done.push((*token, 1_500 * u32::from(sizes[*token as usize])));
                self.jobs.pop_front();
                let tell_at = *self.tell_at.get_or_insert(time + self.spec.tx_usecs);
                if self.spec.tx_frames != 0 && self.done.len() >= self.spec.tx_frames as usize {
                    self.tell_at = Some(tell_at.min(time));
                }
            }
            self.start();
        }
        if self.tell_at.take_if(|time| *time <= now).is_some() {
            let bytes: u32 = self.done.iter().map(|(_, bytes)| bytes).sum();
            for (token, bytes) in self.done.drain(..) {
                self.used_descriptors -= bytes.div_ceil(16_384) as usize;
                back.push((at, token));
            }
            if let Some(bql) = &mut self.bql {
                bql.on_completed(now, bytes.into());
            }
        }
    }
}

/// A host that posts packets of `sizes` segments of 1500 bytes, at least `gap` apart, when there is room.
fn stepped(spec: NicSpec, sizes: &[u16], gap: Duration) -> (Trace, Trace) {
    let mut nic = Stepped::new(spec);
    let (mut sent, mut back, mut now, mut due) = (Vec::new(), Vec::new(), START, START);
    let mut waiting = sizes.iter().zip(0_u32..).peekable();
    loop {
        nic.step(now, sizes, &mut sent, &mut back);
        while now >= due && nic.room() {
            let Some((&segs, token)) = waiting.next() else { break };
            nic.post(now, segs, token);
            due = now + gap;
        }
        let post = waiting.peek().filter(|_| nic.room()).map(|_| due);
        let Some(next) = [nic.next(), post].into_iter().flatten().min() else { return (sent, back) };
        now = now.max(next);
    }
}

/// The same with the card that computes in advance.
fn ahead(spec: NicSpec, sizes: &[u16], gap: Duration) -> (Trace, Trace) {
    let mut nic = Card::new(spec);
    let (mut sent, mut back, mut now, mut due) = (Vec::new(), Vec::new(), START, START);
    let mut waiting = sizes.iter().zip(0_u32..).peekable();
    loop {
        if nic.next_interrupt().is_some_and(|at| at <= now) {
            nic.complete(now, |token| back.push((now.since(START).as_nanos(), token)));
        }
        while now >= due && nic.room() {
            let Some((&segs, token)) = waiting.next() else { break };
            sent.extend(post(&mut nic, now, &[1_500; 44][..segs.into()], token));
            due = now + gap;
        }
        let post = waiting.peek().filter(|_| nic.room()).map(|_| due);
        let Some(next) = [nic.next_interrupt(), post].into_iter().flatten().min() else {
            return (sent, back);
        };
        now = now.max(next);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_host_cannot_tell_it_from_a_card_that_is_stepped(
        sizes in proptest::collection::vec(1..44_u16, 1..60),
        bits in 1_000_000..40_000_000_000_u64,
        gap_us in 0..300_u64,
        usecs in prop_oneof![Just(0), 1..200_u64],
        frames in 0..5_u32,
        ring in 5..40_usize,
        bql in any::<bool>(),
    ) {
        let mut spec = NicSpec::new(Rate::from_bits_per_second(bits).unwrap());
        (spec.tx_usecs, spec.tx_frames, spec.ring) = (Duration::from_micros(usecs), frames, ring);
        spec.bql = bql.then(BqlSpec::default);
        let gap = Duration::from_micros(gap_us);
        prop_assert_eq!(stepped(spec, &sizes, gap), ahead(spec, &sizes, gap));
    }
}
