use super::*;

/// A small generator of numbers (Knuth's MMIX), so that a failure repeats.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn a_ticket_comes_back_with_the_last_chunk_of_its_packet_in_any_order() {
    let mut slots = Slots::new(4);
    let mut chunks = Vec::new();
    slots.put(3, "large", |chunk| chunks.push(chunk)).unwrap();
    assert_eq!(slots.put(2, "no room", |_| panic!("nothing is taken")), Err("no room"));
    assert_eq!(slots.put(0, "empty", |_| panic!("nothing is taken")), Err("empty"));
    assert_eq!(slots.complete(chunks[1]), None);
    assert_eq!(slots.complete(chunks[1]), None, "a chunk that the kernel names twice is none of the others");
    assert_eq!(slots.complete(99), None, "one that there is not");
    // A chunk is used again while others of its packet are out.
    slots.put(2, "small", |_| {}).unwrap();
    assert_eq!(slots.complete(chunks[2]), None);
    assert_eq!(slots.complete(chunks[0]), Some("large"));
    assert_eq!(slots.take_all(), ["small"]);
    assert!(slots.is_empty());
    assert_eq!(slots.complete(chunks[1]), None, "what comes after the end");
}

/// A kernel that completes chunks in any order, and says nonsense now and then.
#[test]
fn dev_06_a_million_packets_in_chunks_bring_every_ticket_back_once() {
    const PACKETS: u32 = 1_000_000;
    const CHUNKS: u32 = 64;
    let mut rng = Rng(1);
    let mut slots = Slots::new(CHUNKS);
    let (mut kernel, mut back, mut sent, mut full) = (Vec::new(), vec![0u8; PACKETS as usize], 0, 0);
    while sent < PACKETS {
        // From one piece to as many as the longest packet has.
        let count = 1 + rng.below(17) as usize;
        let before = (slots.free(), kernel.len());
        match slots.put(count, sent, |chunk| kernel.push(chunk)) {
            Ok(()) => {
                assert_eq!((before.0 - count, before.1 + count), (slots.free(), kernel.len()));
                sent += 1;
            }
            Err(ticket) => {
                assert!(ticket == sent && before.0 < count && before == (slots.free(), kernel.len()));
                full += 1;
                // Some come back.
                for _ in 0..=rng.below(kernel.len() as u64) {
                    let chunk = kernel.swap_remove(rng.below(kernel.len() as u64) as usize);
                    slots.complete(chunk).into_iter().for_each(|ticket| back[ticket as usize] += 1);
                    assert_eq!(slots.complete(chunk), None, "twice");
                }
                assert_eq!(slots.complete(CHUNKS + rng.below(1 << 31) as u32), None);
            }
        }
        assert_eq!(slots.free() + kernel.len(), CHUNKS as usize, "each chunk has one owner");
    }
    // The interface goes away with some in the middle.
    slots.take_all().into_iter().for_each(|ticket| back[ticket as usize] += 1);
    assert!(slots.is_empty());
    assert!(kernel.drain(..).all(|chunk| slots.complete(chunk).is_none()));
    assert!(full > PACKETS / 10, "{full} times full");
    assert!(back.iter().all(|&times| times == 1));
}
