use core::net::IpAddr;

use taut_wire::{IpHeader, fragment, protocol};

use super::*;

const CONFIG: FragmentConfig = FragmentConfig {
    high_thresh: 4 << 20,
    time: Duration::from_secs(30),
    time_v6: Duration::from_secs(60),
    max_dist: 64,
};
const START: Instant = Instant::from_nanos(1_000_000_000);

fn source(n: u32) -> IpAddr {
    IpAddr::from((0x0a00_0000 + n).to_be_bytes())
}

/// A fragment of a packet whose byte number `n` is `n` modulo 251.
fn fragment_of(src: IpAddr, ident: u32, ecn: Ecn, range: core::ops::Range<usize>, more: bool) -> Vec<u8> {
    let dst = if src.is_ipv4() { IpAddr::from([10, 9, 0, 1]) } else { "fd00::2".parse().unwrap() };
    let ip = IpHeader {
        src,
        dst,
        protocol: protocol::UDP,
        hop_limit: 64,
        ecn,
        header_len: 0,
        payload_len: range.len(),
    };
    let mut packet = alloc::vec![0; fragment::header_len(src.is_ipv4())];
    fragment::emit(&ip, &mut packet, ident, range.start, more);
    packet.extend(range.map(|n| (n % 251) as u8));
    packet
}

/// A stack's reassembly, fed with fragments.
#[derive(Default)]
struct Rig(Reassembly);

impl Rig {
    fn take(&mut self, now: Instant, packet: &[u8]) -> Outcome {
        self.0.take(&CONFIG, now, &Fragment::parse(packet).unwrap(), packet)
    }

    fn give(&mut self, src: IpAddr, ident: u32, range: core::ops::Range<usize>, more: bool) -> Outcome {
        self.take(START, &fragment_of(src, ident, Ecn::NotEct, range, more))
    }

    /// Nothing is held.
    fn assert_empty(&self) {
        assert_eq!((self.0.packets.len(), self.0.sources.len(), self.0.memory), (0, 0, 0));
    }
}

fn assert_whole(outcome: &Outcome, src: IpAddr, len: usize) {
    let Outcome::Complete(whole) = outcome else { panic!("{outcome:?}") };
    let ip = IpHeader::parse(whole).unwrap();
    assert_eq!((ip.src, ip.protocol, ip.payload_len), (src, protocol::UDP, len));
    assert!(whole[ip.header_len..].iter().enumerate().all(|(n, &byte)| byte == (n % 251) as u8));
}

fn both() -> [IpAddr; 2] {
    [source(1), "fd00::1".parse().unwrap()]
}

#[test]
fn frag_01_fragments_in_any_order_are_one_packet() {
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for src in both() {
        for order in ORDERS {
            let mut rig = Rig::default();
            for (n, part) in order.into_iter().enumerate() {
                let end = [800, 1_600, 2_001][part];
                let outcome = rig.give(src, 7, part * 800..end, part < 2);
                if n < 2 {
                    assert_eq!(outcome, Outcome::Waits);
                } else {
                    assert_whole(&outcome, src, 2_001);
                }
            }
            rig.assert_empty();
        }
    }
}

#[test]
fn frag_02_packets_are_told_apart() {
    let mut rig = Rig::default();
    let packets = [(source(1), 7), (source(2), 7), (source(1), 8)];
    for (src, ident) in packets {
        assert_eq!(rig.give(src, ident, 0..800, true), Outcome::Waits);
    }
    for (src, ident) in packets {
        assert_whole(&rig.give(src, ident, 800..900, false), src, 900);
    }
    rig.assert_empty();
}

#[test]
fn frag_03_an_overlap_makes_the_whole_packet_void() {
    // In front, behind, around, and inside two others with a gap.
    for overlap in [792..808, 1_592..1_608, 792..1_608, 400..1_200] {
        for src in both() {
            let mut rig = Rig::default();
            rig.give(src, 7, 800..1_600, true);
            assert_eq!(
                rig.give(src, 7, overlap.clone(), true),
                Outcome::Dropped { whole: true },
                "{overlap:?}"
            );
            rig.assert_empty();
            // What would have completed it does not.
            rig.give(src, 7, 0..800, true);
            assert_eq!(rig.give(src, 7, 1_600..1_700, false), Outcome::Waits);
        }
    }
    let mut rig = Rig::default();
    rig.give(source(1), 7, 0..800, true);
    rig.give(source(1), 7, 1_600..2_400, true);
    assert_eq!(rig.give(source(1), 7, 0..2_400, true), Outcome::Dropped { whole: true }, "with a gap inside");
}

#[test]
fn frag_04_what_is_already_there_is_ignored() {
    for duplicate in [0..800, 80..160, 0..1_600, 400..1_200] {
        let mut rig = Rig::default();
        rig.give(source(1), 7, 0..800, true);
        rig.give(source(1), 7, 800..1_600, true);
        let memory = rig.0.memory();
        assert_eq!(rig.give(source(1), 7, duplicate.clone(), true), Outcome::Waits, "{duplicate:?}");
        assert_eq!(rig.0.memory(), memory);
        assert_whole(&rig.give(source(1), 7, 1_600..1_700, false), source(1), 1_700);
    }
}

#[test]
fn frag_05_ends_that_contradict_each_other() {
    // Two ends; data behind the end, before it is known and after.
    let cases: [&[(core::ops::Range<usize>, bool)]; 4] = [
        &[(800..900, false), (800..908, false)],
        &[(800..900, false), (1_600..1_608, true)],
        &[(1_600..1_608, true), (800..900, false)],
        &[(800..900, false), (800..892, false)],
    ];
    for case in cases {
        let mut rig = Rig::default();
        for (n, (range, more)) in case.iter().enumerate() {
            let expected = if n == 0 { Outcome::Waits } else { Outcome::Dropped { whole: true } };
            assert_eq!(rig.give(source(1), 7, range.clone(), *more), expected, "{case:?}");
        }
        rig.assert_empty();
    }
}

#[test]
fn frag_06_fragments_that_make_no_sense() {
    let mut rig = Rig::default();
    let dropped = Outcome::Dropped { whole: false };
    assert_eq!(rig.give(source(1), 7, 800..800, false), dropped, "no data");
    assert_eq!(rig.give(source(1), 7, 0..801, true), dropped, "not a multiple of eight");
    // 65,515 = 65,535 - 20 are the most for IPv4.
    assert_eq!(rig.give(source(1), 7, 65_504..65_516, false), dropped, "longer than a packet");
    assert_eq!(rig.give("fd00::1".parse().unwrap(), 7, 65_528..65_536, false), dropped);
    rig.assert_empty();
    assert_eq!(rig.give(source(1), 7, 65_504..65_515, false), Outcome::Waits);
}

#[test]
fn frag_07_a_packet_has_30_s_or_60_s_from_its_first_fragment_on() {
    for (src, seconds) in both().into_iter().zip([30, 60]) {
        for has_first in [true, false] {
            let mut rig = Rig::default();
            let first = fragment_of(src, 7, Ecn::NotEct, 0..800, true);
            if has_first {
                rig.take(START, &first);
            }
            let later = START + Duration::from_secs(u64::from(!has_first));
            rig.take(later, &fragment_of(src, 7, Ecn::NotEct, 800..1_600, true));
            let began = if has_first { START } else { later };
            let end = began + Duration::from_secs(seconds);
            assert_eq!(rig.0.next_deadline(&CONFIG), Some(end));
            assert_eq!(rig.0.expire(&CONFIG, end.saturating_sub(Duration::from_nanos(1))), None);
            // With its first fragment, which the error quotes.
            assert_eq!(rig.0.expire(&CONFIG, end), Some(Expired { first: has_first.then_some(first) }));
            assert_eq!((rig.0.expire(&CONFIG, end), rig.0.next_deadline(&CONFIG)), (None, None));
            rig.assert_empty();
        }
    }
}

#[test]
fn frag_08_floods_are_bounded_and_others_still_get_through() {
    // One source, endless packets: a quarter of the memory.
    let mut rig = Rig::default();
    for ident in 0..50_000 {
        rig.give(source(1), ident, 0..1_480, true);
    }
    let fragment = 1_480 + 1_500 + OVERHEAD_BYTES;
    assert!(rig.0.memory() <= (1 << 20) + fragment, "{}", rig.0.memory());
    // Somebody else is not disturbed.
    rig.give(source(2), 1, 0..800, true);
    assert_whole(&rig.give(source(2), 1, 800..900, false), source(2), 900);
    // As many sources as there are addresses: 4 MiB.
    for n in 0..50_000 {
        rig.give(source(n), 9, 0..1_480, true);
    }
    assert!(rig.0.memory() <= (4 << 20) + fragment, "{}", rig.0.memory());
    assert_eq!(rig.give(source(99_999), 1, 0..800, true), Outcome::Dropped { whole: false });
    // Their time ends, and with it the flood.
    let later = START + Duration::from_secs(30);
    while rig.0.expire(&CONFIG, later).is_some() {}
    rig.assert_empty();
    assert!(rig.0.by_age.iter().all(VecDeque::is_empty));
    assert_eq!(rig.take(later, &fragment_of(source(99_999), 1, Ecn::NotEct, 0..800, true)), Outcome::Waits);
}

#[test]
fn frag_09_tiny_fragments_are_bounded_too() {
    let mut rig = Rig::default();
    // A whole packet of 8,000 pieces: each counts 264 bytes, so a source's quarter of the memory ends it.
    let mut taken = 0;
    for n in 1..8_000 {
        taken += usize::from(rig.give(source(1), 7, n * 8..n * 8 + 8, true) == Outcome::Waits);
    }
    assert_eq!(taken, (1 << 20) / (8 + OVERHEAD_BYTES) + 1);
    // A queue of packets that ended does not grow either.
    let mut rig = Rig::default();
    for ident in 0..100_000 {
        rig.give(source(1), ident, 800..1_600, true);
        rig.give(source(1), ident, 808..1_608, true);
    }
    rig.assert_empty();
    assert!(rig.0.by_age[0].len() <= 64);
}

#[test]
fn frag_10_an_identification_that_is_used_again() {
    // 63 others of its source may come between two fragments of a packet, 64 may not.
    for (others, is_whole) in [(63, true), (64, false)] {
        let mut rig = Rig::default();
        rig.give(source(1), 7, 0..800, true);
        for ident in 0..others {
            rig.give(source(1), 1_000 + ident, 0..800, true);
        }
        let outcome = rig.give(source(1), 7, 800..900, false);
        assert_eq!(matches!(outcome, Outcome::Complete(_)), is_whole, "{others}");
    }
    // Those of another source do not count.
    let mut rig = Rig::default();
    rig.give(source(1), 7, 0..800, true);
    (0..1_000).for_each(|ident| drop(rig.give(source(2), ident, 0..800, true)));
    assert_whole(&rig.give(source(1), 7, 800..900, false), source(1), 900);
}

#[test]
fn frag_11_marks_of_fragments() {
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    let cases = [
        ([NotEct, NotEct], Some(NotEct)),
        ([Ect0, Ect0], Some(Ect0)),
        ([Ect0, Ce], Some(Ce)),
        ([Ce, Ect1], Some(Ce)),
        ([Ect1, Ect0], Some(Ect1)),
        ([NotEct, Ce], None),
        ([Ect0, NotEct], None),
    ];
    for src in both() {
        for (marks, expected) in cases {
            let mut rig = Rig::default();
            rig.take(START, &fragment_of(src, 7, marks[0], 0..800, true));
            let outcome = rig.take(START, &fragment_of(src, 7, marks[1], 800..900, false));
            let found = match &outcome {
                Outcome::Complete(whole) => Some(IpHeader::parse(whole).unwrap().ecn),
                _ => None,
            };
            assert_eq!(found, expected, "{marks:?}");
        }
    }
}
