//! Out-of-order data compared with a map of bytes, and the SACK blocks that must report it.

extern crate std;
use super::*;
use crate::words::Frame;
use crate::words::seq::FIRST;
use crate::words::take_steps;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// The stream's byte at a position: any value that distinguishes positions.
fn byte(offset: u64) -> u8 {
    (offset % 251) as u8
}

fn stream(range: Range<u64>) -> Vec<u8> {
    range.map(byte).collect()
}

struct Receiver {
    pool: BufferPool,
    queue: ReadQueue,
    reassembly: Reassembly,
    nxt: u64,
    /// The memory that it may take.
    room: usize,
}

impl Receiver {
    fn new() -> Self {
        Self {
            pool: BufferPool::new(),
            queue: ReadQueue::new(FIRST),
            reassembly: Reassembly::new(),
            nxt: FIRST,
            room: usize::MAX,
        }
    }

    fn insert(&mut self, range: Range<u64>) -> Inserted {
        let data = stream(range.clone());
        let payload = Payload::new(Frame::Slice(&data), 0, data.len());
        self.reassembly.insert(FIRST + range.start, payload, self.nxt, self.room, &mut self.pool)
    }

    fn take(&mut self) -> u64 {
        self.nxt = self.reassembly.take_in_order(self.nxt, &mut self.queue, &mut self.pool);
        self.nxt - FIRST
    }

    fn blocks(&self) -> Vec<(u64, u64)> {
        let blocks = self.reassembly.sack_blocks(SACK_BLOCKS_MAX);
        blocks.as_slice().iter().map(|&(start, end)| (start - FIRST, end - FIRST)).collect()
    }

    fn check(&self) {
        let Some(held) = &self.reassembly.held else { return };
        assert!(!held.ranges.is_empty());
        let mut last = 0;
        for (&start, &end) in &held.ranges {
            assert!(last < start && start < end, "ranges touch or are empty");
            last = end;
        }
        let mut chunks = held.chunks.values().peekable();
        for (&start, &end) in &held.ranges {
            let mut at = start;
            while at < end {
                let chunk = chunks.next().unwrap();
                assert_eq!(chunk.base(), at);
                at = chunk.end();
            }
            assert_eq!(at, end);
        }
        assert!(chunks.next().is_none());
        assert_eq!(held.len, held.ranges.iter().map(|(start, end)| (end - start) as usize).sum::<usize>());
        assert_eq!(held.memory, held.chunks.values().map(Chunk::cost).sum::<usize>());
        assert!(held.memory <= self.room);
    }
}

/// RFC 2018 §7, case 2: the first of eight segments of 500 bytes, from 5000 on, is lost.
#[test]
fn rfc_2018_the_first_segment_is_dropped() {
    let mut rx = Receiver::new();
    for n in 1..8 {
        let start = 500 * n;
        rx.insert(start..start + 500);
        assert_eq!(rx.blocks(), [(500, start + 500)]);
    }
    rx.insert(0..500);
    assert_eq!(rx.take(), 4000);
    assert!(rx.reassembly.is_empty() && rx.blocks().is_empty());
}

/// RFC 2018 §7, case 3: the 2nd, 4th, 6th and 8th are lost, then the 4th and the 2nd arrive late.
#[test]
fn rfc_2018_every_other_segment_is_dropped() {
    let mut rx = Receiver::new();
    rx.insert(0..500);
    assert_eq!(rx.take(), 500);
    rx.insert(1000..1500);
    assert_eq!(rx.blocks(), [(1000, 1500)]);
    rx.insert(2000..2500);
    assert_eq!(rx.blocks(), [(2000, 2500), (1000, 1500)]);
    rx.insert(3000..3500);
    assert_eq!(rx.blocks(), [(3000, 3500), (2000, 2500), (1000, 1500)]);
    rx.insert(1500..2000);
    assert_eq!(rx.blocks(), [(1000, 2500), (3000, 3500)]);
    rx.insert(500..1000);
    assert_eq!(rx.take(), 2500);
    assert_eq!(rx.blocks(), [(3000, 3500)]);
}

/// RFC 2883 §4.1.3: the duplicate comes first, the range that holds it next, once.
#[test]
fn rfc_2883_a_duplicate_of_held_data() {
    let mut rx = Receiver::new();
    rx.insert(500..1500);
    assert_eq!(
        rx.insert(500..1000),
        Inserted { duplicate: Some(FIRST + 500..FIRST + 1000), ..Inserted::default() }
    );
    assert_eq!(rx.blocks(), [(500, 1000), (500, 1500)]);
    rx.reassembly.on_sack_sent(SACK_BLOCKS_MAX);
    assert_eq!(rx.blocks(), [(500, 1500)]);
}

/// RFC 2883 §4.2.1: only a part of the segment was received before.
#[test]
fn rfc_2883_a_partial_duplicate() {
    let mut rx = Receiver::new();
    rx.insert(0..1000);
    rx.take();
    let inserted = rx.insert(500..1500);
    assert_eq!((inserted.new, inserted.duplicate), (500, Some(FIRST + 500..FIRST + 1000)));
    assert_eq!(rx.take(), 1500);
    assert_eq!(rx.blocks(), [(500, 1000)]);
}

#[test]
fn data_that_came_in_order_meanwhile_is_dropped() {
    let mut rx = Receiver::new();
    rx.insert(1000..2000);
    rx.insert(3000..3100);
    let data = stream(0..1400);
    rx.queue.push(Payload::new(Frame::Slice(&data), 0, 1400), &mut rx.pool);
    rx.nxt += 1400;
    assert_eq!(rx.take(), 2000);
    assert_eq!(rx.blocks(), [(1000, 1400), (3000, 3100)]);
    let mut all = vec![0; 2000];
    rx.queue.read(&mut all, &mut rx.pool);
    assert_eq!(all, stream(0..2000));
}

#[test]
fn atk_12_a_hostile_peer_costs_bounded_memory() {
    // Every other byte.
    let mut rx = Receiver::new();
    let held: usize = (1..5_000).map(|n| rx.insert(2 * n..2 * n + 1).new).sum();
    assert_eq!(held, RANGES_MAX);
    rx.check();
    // A chunk of 512 bytes for each, and 192 that go with it.
    assert!(rx.reassembly.memory() <= RANGES_MAX * 704);
    // Bytes that extend a range are still accepted.
    assert_eq!(rx.insert(2..1025).new, 1023 - RANGES_MAX);
    rx.check();
    // In reverse order.
    let mut rx = Receiver::new();
    for n in (1..20_000).rev() {
        rx.insert(n..n + 1);
    }
    rx.check();
    assert!(rx.reassembly.memory() <= RANGES_MAX * 704);
    rx.reassembly.discard_all(&mut rx.pool);
    assert_eq!((rx.reassembly.memory(), rx.reassembly.len()), (0, 0));
}

#[test]
fn a_lent_buffer_is_kept() {
    let mut rx = Receiver::new();
    let mut buffer = stream(0..50_000);
    let address = buffer.as_ptr();
    let payload = Payload::new(Frame::Lend { buffer: &mut buffer, range: 0..50_000 }, 100, 49_900);
    rx.reassembly.insert(FIRST + 100, payload, rx.nxt, rx.room, &mut rx.pool);
    assert!(buffer.is_empty());
    rx.check();
    rx.insert(0..100);
    assert_eq!(rx.take(), 50_000);
    // The first hundred bytes alone would waste a chunk, so they are copied; the lent buffer itself follows.
    rx.queue.consume(100, &mut rx.pool);
    assert_eq!(rx.queue.chunk().as_ptr(), address.wrapping_add(100));
}

#[test]
fn a_batch_of_more_holes_than_fit_is_reported_in_two_acks() {
    // (changed ranges, in the first ACK, whether a second one is needed, in that)
    for (changed, first, is_more, second) in [
        (3, [300, 200, 100], false, [300, 200, 100]),
        (4, [300, 200, 100], true, [400, 300, 200]),
        (5, [300, 200, 100], true, [500, 400, 300]),
        (6, [300, 200, 100], true, [600, 500, 400]),
    ] {
        let mut rx = Receiver::new();
        for n in 1..=changed {
            rx.insert(100 * n..100 * n + 10);
        }
        let blocks = |rx: &Receiver| -> Vec<u64> {
            rx.reassembly.sack_blocks(3).as_slice().iter().map(|block| block.0 - FIRST).collect()
        };
        assert_eq!(blocks(&rx), first, "{changed}");
        assert_eq!(rx.reassembly.on_sack_sent(3), is_more, "{changed}");
        assert_eq!(blocks(&rx), second, "{changed}");
        assert!(!rx.reassembly.on_sack_sent(3), "{changed}");
        assert_eq!(blocks(&rx), second, "{changed}");
    }
}

/// A duplicate takes a block of its own (RFC 2883 §4), so one range less fits beside it.
#[test]
fn what_a_duplicate_displaces_is_in_the_next_ack() {
    for (changed, is_more) in [(2, false), (3, true)] {
        let mut rx = Receiver::new();
        for n in 1..=changed {
            rx.insert(100 * n..100 * n + 10);
        }
        rx.reassembly.note_duplicate(FIRST..FIRST + 10);
        assert_eq!(rx.reassembly.on_sack_sent(3), is_more, "{changed}");
        assert!(!rx.reassembly.on_sack_sent(3), "{changed}");
    }
}

#[test]
fn an_ack_is_full_with_as_many_changes_as_blocks_fit() {
    let mut rx = Receiver::new();
    for (start, full) in [(100, false), (110, false), (200, false), (300, true)] {
        rx.insert(start..start + 10);
        assert_eq!(rx.reassembly.is_full(3), full, "{start}");
    }
    rx.reassembly.on_sack_sent(3);
    assert!(!rx.reassembly.is_full(3));
    // A duplicate takes a block of its own (RFC 2883 §4).
    rx.insert(400..410);
    assert!(!rx.reassembly.is_full(3));
    rx.insert(500..510);
    assert!(!rx.reassembly.is_full(3));
    rx.insert(500..510);
    assert!(rx.reassembly.is_full(3));
}

/// RFC 2018 §4: the first block, after a duplicate's own (RFC 2883 §4), is the range that the segment belongs
/// to.
#[test]
fn a_duplicate_makes_its_range_the_latest() {
    let mut rx = Receiver::new();
    rx.insert(500..1000);
    rx.insert(2000..2500);
    assert_eq!(rx.blocks(), [(2000, 2500), (500, 1000)]);
    rx.insert(500..600);
    assert_eq!(rx.blocks(), [(500, 600), (500, 1000), (2000, 2500)]);
}

/// Twice as many changed ranges as fit: two ACKs report them all, the first changed ones first.
#[test]
fn eight_changes_are_reported_in_two_acks() {
    let mut rx = Receiver::new();
    for n in 1..=8 {
        rx.insert(100 * n..100 * n + 10);
    }
    let starts = |rx: &Receiver| -> Vec<u64> { rx.blocks().iter().map(|block| block.0 / 100).collect() };
    assert_eq!(starts(&rx), [4, 3, 2, 1]);
    assert!(rx.reassembly.on_sack_sent(4));
    assert_eq!(starts(&rx), [8, 7, 6, 5]);
    assert!(!rx.reassembly.on_sack_sent(4));
}

#[test]
fn with_all_ranges_taken_bytes_at_either_end_of_one_are_kept() {
    let mut rx = Receiver::new();
    for n in 1..=RANGES_MAX as u64 {
        rx.insert(4 * n..4 * n + 1);
    }
    assert_eq!(rx.insert(6..7).refused, 1, "a range more");
    assert_eq!(rx.insert(5..6).new, 1, "behind the first range");
    assert_eq!(rx.insert(7..8).new, 1, "before the second range");
    rx.check();
}

/// The buffer and the 192 bytes that go with it are exactly what may be taken.
#[test]
fn a_lent_buffer_that_just_fits_is_kept() {
    for (room, new) in [(50_192, 49_900), (50_191, 0)] {
        let mut rx = Receiver::new();
        let mut buffer = stream(0..50_000);
        let payload = Payload::new(Frame::Lend { buffer: &mut buffer, range: 0..50_000 }, 100, 49_900);
        let inserted = rx.reassembly.insert(FIRST + 100, payload, rx.nxt, room, &mut rx.pool);
        assert_eq!((inserted.new, inserted.refused), (new, 49_900 - new));
    }
}

/// A chunk of 512 bytes, and 192 that go with it. Of the first chunk, 101 bytes are used.
#[test]
fn bytes_that_fit_behind_those_before_them_share_their_memory() {
    for (len, memory) in [(1, 704), (411, 704), (412, 2 * 704)] {
        let mut rx = Receiver::new();
        rx.insert(201..201 + len);
        rx.insert(100..200);
        rx.insert(200..201);
        rx.check();
        assert_eq!((rx.blocks(), rx.reassembly.memory()), (vec![(100, 201 + len)], memory), "{len}");
    }
}

/// One range in chunks of 512 and 1024 bytes, each with 192 more.
#[test]
fn pruning_shortens_the_last_range_and_gives_its_memory_back() {
    let mut rx = Receiver::new();
    rx.insert(1_000..1_512);
    rx.insert(1_512..1_600);
    assert_eq!(rx.pool.budget.usage().bytes, 704 + 1_216);
    assert_eq!(rx.reassembly.prune(FIRST, 1, &mut rx.pool), 1_216);
    assert_eq!(rx.pool.budget.usage().bytes, 704);
    assert_eq!(rx.blocks(), [(1_000, 1_512)], "what was dropped is no longer reported");
    rx.check();
    assert_eq!(rx.reassembly.prune(FIRST, usize::MAX, &mut rx.pool), 704);
    assert_eq!(rx.pool.budget.usage().bytes, 0);
    assert!(rx.reassembly.is_empty(), "no hole is left");
}

#[test]
fn a_fast_path_that_loses_much_is_no_attack() {
    // 16 MB in flight, with every twentieth segment missing.
    let mut rx = Receiver::new();
    for segment in (0..11_000).filter(|segment| segment % 20 > 0) {
        assert_eq!(rx.insert(segment * 1_448..(segment + 1) * 1_448).refused, 0, "segment {segment}");
    }
}

proptest! {
    /// Random segments with overlaps, in any order, compared with a map of bytes.
    #[test]
    fn behaves_like_a_map_of_bytes(
        segments in prop::collection::vec((0_u64..6_000, prop_oneof![1_u64..40, 1_u64..1_500]), 1..120),
        taken in any::<bool>(),
    ) {
        let mut rx = Receiver::new();
        let mut model = vec![false; 8_000];
        let mut nxt = 0;
        for (start, len) in segments {
            let range = start as usize..(start + len) as usize;
            let fresh = model[range.clone()].iter().filter(|&&held| !held).count();
            let mut twice = range.clone().filter(|&at| model[at]);
            let duplicate = twice.next().map(|first| {
                let mut end = first + 1;
                while twice.next() == Some(end) {
                    end += 1;
                }
                FIRST + first as u64..FIRST + end as u64
            });
            let inserted = rx.insert(start..start + len);
            prop_assert_eq!(&inserted, &Inserted { new: fresh, refused: 0, duplicate: duplicate.clone() });
            model[range.clone()].fill(true);
            rx.check();

            // SACK blocks: the duplicate once, then ranges beyond RCV.NXT, the newest first.
            let mut blocks = rx.blocks();
            if let Some(duplicate) = duplicate {
                prop_assert_eq!(blocks.remove(0), (duplicate.start - FIRST, duplicate.end - FIRST));
            }
            rx.reassembly.on_sack_sent(SACK_BLOCKS_MAX);
            if let Some(&(from, to)) = blocks.first().filter(|_| start >= nxt && fresh > 0) {
                prop_assert!(from < start + len && start < to, "the newest comes first");
            }
            let ranges = rx.reassembly.held.as_ref().map_or(0, |held| held.ranges.len());
            prop_assert!(blocks.len() == ranges.min(4) || blocks.len() == 3);
            for (n, &(from, to)) in blocks.iter().enumerate() {
                prop_assert!(from >= nxt && from < to && !blocks[..n].contains(&(from, to)));
                prop_assert!(model[from as usize..to as usize].iter().all(|&held| held));
                prop_assert!(!model[to as usize] && (from == nxt || !model[from as usize - 1]));
            }

            if taken || start % 3 == 0 {
                nxt = rx.take();
                rx.check();
                prop_assert_eq!(nxt as usize, model.iter().position(|&held| !held).unwrap());
                prop_assert!(rx.blocks().is_empty() || rx.blocks()[0].0 > nxt);
            }
            let held = model[nxt as usize..].iter().filter(|&&held| held).count();
            prop_assert_eq!(rx.reassembly.len(), held as u64);
        }
        let nxt = rx.take();
        let mut all = vec![0; rx.queue.len() as usize];
        rx.queue.read(&mut all, &mut rx.pool);
        prop_assert_eq!(all, stream(0..nxt));
    }
}

/// Steps of inserting every second byte of `count`, in an order without locality, with a report for each, and
/// then of segments of 1,000 bytes over all of it.
fn steps_of_single_bytes(count: u64) -> (f64, f64) {
    let mut receiver = Receiver::new();
    take_steps();
    for n in 0..count / 2 {
        let at = 2 + 2 * (n * 7_919 % (count / 2));
        receiver.insert(at..at + 1);
        receiver.blocks();
    }
    let single = take_steps() as f64 / (count / 2) as f64;
    let mut segments = 0;
    for start in (2..count).step_by(1_000) {
        receiver.insert(start..start + 1_000);
        receiver.blocks();
        segments += 1;
    }
    receiver.insert(0..2);
    assert_eq!(receiver.take(), count / 1_000 * 1_000 + 2);
    (single, take_steps() as f64 / f64::from(segments))
}

#[test]
fn work_09_single_bytes_out_of_order() {
    let (few, many) = (steps_of_single_bytes(20_000), steps_of_single_bytes(80_000));
    std::eprintln!("steps for a single byte and for a segment: {few:?} {many:?}");
    // A report looks at four blocks, twice that many in the list of recent ones.
    assert!(few.0 <= 20.0 && many.0 <= 20.0 && many.0 <= few.0 + 1.0, "a byte");
    // A segment of 1,000 bytes has at most 500 bytes that are held, and 500 holes; and what it joined is
    // taken once.
    assert!(many.1 <= 1_020.0 && many.1 <= few.1 + 10.0, "a segment");
}

/// 100 bytes take 512 and the 192 that go with a chunk.
#[test]
fn pruning_frees_as_much_as_is_asked_for_and_no_more() {
    for (goal, freed, left) in
        [(1, 704, vec![(100, 200)]), (704, 704, vec![(100, 200)]), (705, 1_408, vec![])]
    {
        let mut r = Receiver::new();
        r.insert(100..200);
        r.insert(300..400);
        assert_eq!(r.reassembly.prune(FIRST, goal, &mut r.pool), freed, "{goal}");
        assert_eq!(r.blocks(), left, "{goal}");
    }
}

/// The bytes before `from` are needed first.
#[test]
fn pruning_drops_nothing_before_a_position() {
    for (from, freed, left) in
        [(300, 704, vec![(100, 200)]), (301, 0, vec![(300, 400), (100, 200)]), (100, 2 * 704, vec![])]
    {
        let mut r = Receiver::new();
        r.insert(100..200);
        r.insert(300..400);
        assert_eq!(r.reassembly.prune(FIRST + from, usize::MAX, &mut r.pool), freed, "{from}");
        assert_eq!(r.blocks(), left, "{from}");
    }
}

#[test]
fn when_all_is_discarded_there_is_nothing_to_report() {
    let mut r = Receiver::new();
    r.insert(100..200);
    r.insert(100..200);
    assert!(r.reassembly.has_news());
    r.reassembly.discard_all(&mut r.pool);
    assert!(!r.reassembly.has_news() && r.blocks().is_empty());
}

/// A segment that is refused for lack of room leaves nothing behind. While no segment is held, no ACK is
/// urgent.
#[test]
fn what_is_refused_leaves_nothing() {
    let mut r = Receiver::new();
    r.room = 0;
    assert_eq!(r.insert(100..200).refused, 100);
    assert!(r.reassembly.is_empty() && !r.reassembly.has_news());
    r.reassembly.note_duplicate(FIRST..FIRST + 10);
    assert!(!r.reassembly.is_full(1) && !r.reassembly.is_full(2));
}

/// The read queue has got the same bytes in another way: they are a duplicate, and their memory is given
/// back.
#[test]
fn what_is_read_already_is_given_back() {
    let mut r = Receiver::new();
    r.insert(100..200);
    let data = stream(0..300);
    r.queue.push(Payload::new(Frame::Slice(&data), 0, data.len()), &mut r.pool);
    r.nxt = FIRST + 300;
    assert_eq!(r.take(), 300);
    assert_eq!(r.blocks(), [(100, 200)]);
    r.queue.discard_all(&mut r.pool);
    assert_eq!(r.pool.budget.usage().bytes, 0);
}
