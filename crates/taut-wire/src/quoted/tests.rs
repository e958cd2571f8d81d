use super::*;
use crate::testing::{bytes, mutate, mutations};
use proptest::prelude::*;
use std::vec::Vec;

/// Ports 49152 and 80, sequence number 01020304.
const TCP_START: [u8; 8] = [0xc0, 0x00, 0x00, 0x50, 1, 2, 3, 4];

/// A packet of 1500 bytes, cut after the 8 that RFC 792 promises, with a stale checksum.
fn v4_quote() -> Vec<u8> {
    let mut quote =
        std::vec![0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 9, 6, 0xde, 0xad, 192, 0, 2, 1, 192, 0, 2, 2];
    quote.extend(TCP_START);
    quote
}

fn v6_quote(next: u8, extension: &[u8]) -> Vec<u8> {
    let mut quote = std::vec![0x60, 0, 0, 0, 0x05, 0xb4, next, 9];
    quote.extend("2001:db8::1".parse::<core::net::Ipv6Addr>().unwrap().octets());
    quote.extend("2001:db8::2".parse::<core::net::Ipv6Addr>().unwrap().octets());
    quote.extend(extension);
    quote.extend(TCP_START);
    quote
}

fn v6_expected() -> Quoted {
    Quoted {
        src: "[2001:db8::1]:49152".parse().unwrap(),
        dst: "[2001:db8::2]:80".parse().unwrap(),
        protocol: 6,
        seq: 0x0102_0304,
    }
}

#[test]
fn v4_cut_short() {
    let expected = Quoted {
        src: "192.0.2.1:49152".parse().unwrap(),
        dst: "192.0.2.2:80".parse().unwrap(),
        protocol: 6,
        seq: 0x0102_0304,
    };
    assert_eq!(Quoted::parse(&v4_quote()), Ok(expected));
}

#[test]
fn v4_options_are_skipped() {
    let mut quote = v4_quote();
    quote[0] = 0x46;
    quote.splice(20..20, [1, 1, 1, 0]);
    assert_eq!(Quoted::parse(&quote).unwrap().seq, 0x0102_0304);
}

#[test]
fn v4_first_fragment_has_ports_and_later_ones_have_not() {
    let mut quote = v4_quote();
    quote[6] = 0x20;
    assert!(Quoted::parse(&quote).is_ok());
    quote[7] = 0x01;
    assert_eq!(Quoted::parse(&quote), Err(ParseError::Fragment));
}

#[test]
fn v6_cut_short() {
    assert_eq!(Quoted::parse(&v6_quote(6, &[])), Ok(v6_expected()));
}

#[test]
fn v6_extensions_are_skipped() {
    let destination = [44, 0, 1, 4, 0, 0, 0, 0];
    let first_fragment = [6, 0, 0, 1, 0, 0, 0, 9];
    let extensions = [destination, first_fragment].concat();
    assert_eq!(Quoted::parse(&v6_quote(60, &extensions)), Ok(v6_expected()));
    // On its way the packet still had segments to visit.
    assert_eq!(Quoted::parse(&v6_quote(43, &[6, 0, 3, 1, 0, 0, 0, 0])), Ok(v6_expected()));
}

#[test]
fn every_cut_is_truncated() {
    for quote in [v4_quote(), v6_quote(6, &[]), v6_quote(60, &[6, 0, 1, 4, 0, 0, 0, 0])] {
        for len in 0..quote.len() {
            assert_eq!(Quoted::parse(&quote[..len]), Err(ParseError::Truncated), "{len}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(quote in bytes(120), changes in mutations()) {
        let _ = Quoted::parse(&quote);
        for mut quote in [v4_quote(), v6_quote(60, &[6, 0, 1, 4, 0, 0, 0, 0])] {
            mutate(&mut quote, &changes);
            let _ = Quoted::parse(&quote);
        }
    }
}
