use super::*;

/// A small generator of numbers (Knuth's MMIX), so that a failure repeats.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn all_gone(below: &mut Below<u32>, bytes: u64) -> Vec<u32> {
    std::iter::from_fn(|| below.gone(bytes)).map(|gone| gone.ticket).collect()
}

#[test]
fn a_name_brings_back_its_own_ticket_in_any_order() {
    let mut below = Below::new();
    for packet in 0..4 {
        below.put(packet, 1_514, Some(100 + packet));
    }
    assert_eq!(below.left(102), Some(2));
    assert_eq!(below.left(102), None, "once");
    assert_eq!(below.left(7), None, "a name that nobody has");
    assert_eq!(below.left(100), Some(0));
    assert_eq!(below.left(101), Some(1));
    assert!(!below.is_empty());
    assert_eq!(below.left(103), Some(3));
    assert!(below.is_empty());
}

#[test]
fn names_are_unique_among_the_packets_below() {
    let mut below = Below::new();
    below.put(0, 100, below.free_name([9, 8]));
    assert_eq!(below.free_name([9, 8]), Some(8));
    below.put(1, 100, Some(8));
    assert_eq!(below.free_name([9, 8]), None);
    below.left(9);
    assert_eq!(below.free_name([9, 8]), Some(9));
}

#[test]
fn bytes_bring_back_the_oldest() {
    // Measured: the kernel takes 2,304 bytes for a frame of 1,514.
    const KERNEL: u64 = 2_304;
    let mut below = Below::new();
    for packet in 0..3 {
        below.put(packet, 1_514, None);
    }
    assert_eq!(all_gone(&mut below, 3 * KERNEL), [], "all are below");
    assert_eq!(all_gone(&mut below, 2 * KERNEL), [0]);
    assert_eq!(all_gone(&mut below, KERNEL), [1]);
    assert_eq!(all_gone(&mut below, 0), [2]);
}

#[test]
fn what_is_dropped_comes_back_when_the_rest_has_left() {
    let mut below = Below::new();
    for packet in 0..3 {
        below.put(packet, 1_514, Some(packet));
    }
    // The second was dropped in a queue. The last has been named, and the kernel holds nothing.
    assert_eq!((below.left(0), below.left(2)), (Some(0), Some(2)));
    assert_eq!(all_gone(&mut below, 2_304), [], "one packet is there for all that bytes tell");
    assert_eq!(below.gone(0), Some(Gone { ticket: 1, was_named: true }), "it was never reported");
    assert_eq!(below.left(1), None);
}

/// A million packets below a queue that sends them in any order, drops some, names some, and reports late:
/// every ticket comes back once, and all are back when nothing is below.
#[test]
fn dev_04_a_million_random_orders_bring_every_ticket_back_once() {
    const PACKETS: u32 = 1_000_000;
    let mut rng = Rng(1);
    let mut below = Below::new();
    // What the kernel holds: ticket, name, bytes.
    let mut kernel: Vec<(u32, Option<u32>, u64)> = Vec::new();
    let mut reports: Vec<u32> = Vec::new();
    let mut back = vec![0u8; PACKETS as usize];
    let mut sent = 0;
    let mut longest = 0;
    while sent < PACKETS || !kernel.is_empty() || !below.is_empty() {
        match rng.below(8) {
            0..=2 if sent < PACKETS => {
                let bytes = 66 + rng.below(65_000) as usize;
                let name = below.free_name([rng.below(1 << 20) as u32]).filter(|_| rng.below(10) > 0);
                below.put(sent, bytes, name);
                kernel.push((sent, name, bytes as u64 + 600 + rng.below(4_000)));
                sent += 1;
            }
            // One leaves, seldom by being dropped: then nobody names it.
            3..=5 if !kernel.is_empty() => {
                let at = rng.below(kernel.len() as u64) as usize;
                let (_, name, _) = kernel.swap_remove(at);
                reports.extend(name.filter(|_| rng.below(50) > 0));
            }
            // Bytes are read before names, as `tx.rs` does.
            _ => {
                let held = kernel.iter().map(|(_, _, bytes)| bytes).sum();
                for name in reports.drain(..) {
                    if let Some(ticket) = below.left(name) {
                        back[ticket as usize] += 1;
                    }
                }
                while let Some(gone) = below.gone(held) {
                    back[gone.ticket as usize] += 1;
                }
                longest = longest.max(below.packets.len());
                // A queue in the kernel has a limit, too.
                while kernel.len() > 200 {
                    let (_, name, _) = kernel.swap_remove(0);
                    reports.extend(name);
                }
            }
        }
    }
    assert!(back.iter().all(|&times| times == 1));
    assert!((below.charged, below.named.len()) == (0, 0));
    assert!(longest < 1_000, "{longest} packets were remembered at a time");
}
