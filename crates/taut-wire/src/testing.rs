//! Helpers that several tests share: address and byte strategies, and a checksum too simple to be wrong.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::vec::Vec;

pub(crate) fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(Ipv4Addr::from)
}

pub(crate) fn v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 16]>().prop_map(Ipv6Addr::from)
}

/// Two addresses of one family.
pub(crate) fn address_pair() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        (v4(), v4()).prop_map(|(a, b)| (IpAddr::V4(a), IpAddr::V4(b))),
        (v6(), v6()).prop_map(|(a, b)| (IpAddr::V6(a), IpAddr::V6(b))),
    ]
}

pub(crate) fn bytes(max_len: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..=max_len)
}

/// Single bytes to overwrite, by position modulo the length, and a length to cut to.
pub(crate) fn mutations() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((any::<usize>(), any::<u8>()), 1..6)
}

pub(crate) fn mutate(packet: &mut [u8], mutations: &[(usize, u8)]) {
    for &(at, value) in mutations {
        let at = at % packet.len();
        packet[at] = value;
    }
}

/// RFC 1071 §1, word by word: not complemented.
pub(crate) fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Puts a correct checksum at `at`, over the whole of `bytes` and nothing else.
pub(crate) fn fix_checksum(bytes: &mut [u8], at: usize) {
    bytes[at..at + 2].fill(0);
    let checksum = !naive_sum(bytes);
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}
