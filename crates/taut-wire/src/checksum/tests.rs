use super::*;
use crate::testing::{address_pair, bytes, naive_sum};
use proptest::prelude::*;
use std::vec::Vec;

/// RFC 1071 §3.
const EXAMPLE: [u8; 8] = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 167 + 13) as u8).collect()
}

#[test]
fn rfc_1071_example() {
    let sum = Sum::ZERO.add_bytes(&EXAMPLE);
    assert_eq!(sum.fold(), 0xddf2);
    assert_eq!(sum.finish(), 0x220d);
}

#[test]
fn rfc_1071_example_as_integers() {
    assert_eq!(Sum::ZERO.add_u16(0x0001).add_u16(0xf203).add_u16(0xf4f5).add_u16(0xf6f7).fold(), 0xddf2);
    assert_eq!(Sum::ZERO.add_u32(0x0001_f203).add_u32(0xf4f5_f6f7).fold(), 0xddf2);
}

#[test]
fn nothing_and_zeros_sum_to_zero() {
    assert_eq!(Sum::ZERO.fold(), 0);
    assert_eq!(Sum::ZERO.finish(), 0xffff);
    assert_eq!(Sum::ZERO.add_bytes(&[0; 1500]).fold(), 0);
}

#[test]
fn ones_stay_ones() {
    // Minus zero, however often it is added, never becomes plus zero.
    for len in [2, 40, 42, 64, 1500, 65_536] {
        assert_eq!(Sum::ZERO.add_bytes(&std::vec![0xff; len]).fold(), 0xffff, "{len}");
    }
}

#[test]
fn an_odd_byte_is_the_high_half_of_its_word() {
    assert_eq!(Sum::ZERO.add_bytes(&[0xab]).fold(), 0xab00);
    assert_eq!(Sum::ZERO.add_bytes(&[0xab]).add_bytes(&[0xcd]).fold(), 0xabcd);
    assert_eq!(Sum::ZERO.add_bytes(&[0xab]).add_bytes(&[]).add_u16(0xcd01).fold(), 0xabcd + 0x0100);
}

#[test]
fn every_length_agrees_with_the_naive_sum() {
    let message = pattern(if cfg!(miri) { 40 } else { 600 });
    for start in 0..8 {
        for end in start..message.len() {
            let piece = &message[start..end];
            assert_eq!(Sum::ZERO.add_bytes(piece).fold(), naive_sum(piece), "{start}..{end}");
        }
    }
}

#[test]
fn every_split_in_two_agrees() {
    let lens = [1, 2, 39, 40, 41, 63, 64, 65, 127, 300, 1461];
    for &len in &lens[..if cfg!(miri) { 5 } else { lens.len() }] {
        let message = pattern(len);
        for at in 0..=len {
            let (a, b) = message.split_at(at);
            assert_eq!(Sum::ZERO.add_bytes(a).add_bytes(b).fold(), naive_sum(&message), "{len} at {at}");
        }
    }
}

#[test]
fn every_split_in_three_agrees() {
    let message = pattern(if cfg!(miri) { 20 } else { 150 });
    for i in 0..=message.len() {
        for j in i..=message.len() {
            let sum = Sum::ZERO.add_bytes(&message[..i]).add_bytes(&message[i..j]).add_bytes(&message[j..]);
            assert_eq!(sum.fold(), naive_sum(&message), "{i} {j}");
        }
    }
}

#[test]
fn a_message_with_its_checksum_finishes_at_zero() {
    let mut message = EXAMPLE.to_vec();
    message.extend(0x220d_u16.to_be_bytes());
    assert_eq!(Sum::ZERO.add_bytes(&message).finish(), 0);
}

#[test]
fn pseudo_header_v4_by_hand() {
    // c000 + 0201 + c000 + 0202 + 0006 + 0014 = 1841d, folded 841e.
    let sum = pseudo_header("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap(), 6, 20);
    assert_eq!(sum.fold(), 0x841e);
}

#[test]
fn pseudo_header_v6_by_hand() {
    // 2001 + 0db8 + 0001 twice with 0002 for the second, then 0000 0020 and 003a:
    // 2001 + 0db8 + 0001 + 2001 + 0db8 + 0002 + 0020 + 003a = 5bcf.
    let sum = pseudo_header("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap(), 58, 32);
    assert_eq!(sum.fold(), 0x5bcf);
}

/// More bytes than a packet can have, except under miri, which interprets.
const LONG: usize = if cfg!(miri) { 300 } else { 70_000 };

proptest! {
    #[test]
    fn any_pieces_agree(message in bytes(LONG), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(message.len() + 1)).collect();
        cuts.push(message.len());
        cuts.sort_unstable();
        let mut sum = Sum::ZERO;
        let mut at = 0;
        for cut in cuts {
            sum = sum.add_bytes(&message[at..cut]);
            at = cut;
        }
        prop_assert_eq!(sum.fold(), naive_sum(&message));
    }

    #[test]
    fn integers_are_their_bytes_wherever_they_stand(before in bytes(3), short: u16, long: u32) {
        let whole = [&before[..], &short.to_be_bytes(), &long.to_be_bytes()].concat();
        let sum = Sum::ZERO.add_bytes(&before).add_u16(short).add_u32(long);
        prop_assert_eq!(sum.fold(), naive_sum(&whole));
    }

    #[test]
    fn pseudo_header_is_its_layout((src, dst) in address_pair(), protocol: u8, len in 0..=65_535_u32) {
        let mut layout = Vec::new();
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                // RFC 9293 §3.1, figure 2.
                layout.extend(src.octets());
                layout.extend(dst.octets());
                layout.extend([0, protocol]);
                layout.extend((len as u16).to_be_bytes());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                // RFC 8200 §8.1.
                layout.extend(src.octets());
                layout.extend(dst.octets());
                layout.extend(len.to_be_bytes());
                layout.extend([0, 0, 0, protocol]);
            }
            _ => unreachable!(),
        }
        prop_assert_eq!(pseudo_header(src, dst, protocol, len).fold(), naive_sum(&layout));
    }
}
