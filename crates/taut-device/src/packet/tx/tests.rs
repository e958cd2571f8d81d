use super::*;
use taut_core::Gather;
use taut_wire::{Flags, TcpHeader};

/// The names of a super-packet with this sequence number, so many bytes, and segments of `mss`.
fn names(seq: u32, len: usize, mss: u16) -> Vec<u32> {
    let mut header = [0; 60];
    TcpHeader { seq, flags: Flags::ACK, ..TcpHeader::default() }.emit(&mut header[20..]);
    let payload = vec![0; len];
    let offload = Offload::Segment { mss, start: 20, offset: 16, ipv6: false };
    let packet =
        TxPacket { header: &header, payload: Gather::from(&payload[..]), offload, departure: Instant::ZERO };
    Names::default().of(&packet).collect()
}

#[test]
fn a_super_packet_is_named_after_its_last_segment() {
    // Segments begin at 1000, 2448 and 3896; the last ends at 4096.
    let all = names(1_000, 3_096, 1_448);
    assert_eq!((all.len(), all[0]), (16, 4_095));
    assert!(all.iter().all(|name| (3_896..4_096).contains(name)));
    // Whole segments; a last one of three bytes; around zero.
    assert!(names(0, 2_896, 1_448).iter().all(|name| (1_448..2_896).contains(name)));
    assert_eq!(names(10, 1_451, 1_448), [1_460, 1_459, 1_458]);
    assert_eq!(names(u32::MAX, 1_449, 1_448), [1_447]);
}

#[test]
fn other_packets_have_a_number_each() {
    let mut all = Names::default();
    let first: Vec<_> = (0..3).map(|_| all.of(&TxPacket::whole(&[0x45; 40])).next().unwrap()).collect();
    assert_eq!(first.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>(), [1, 1]);
}
