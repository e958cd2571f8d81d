use super::*;

/// A segment from 10.9.0.1 to 10.9.0.2, or between the same hosts of fd09::/64, with this checksum.
fn segment(is_v6: bool, protocol: u8, checksum: u16) -> Vec<u8> {
    let mut packet = vec![0; if is_v6 { 40 } else { 20 } + 32];
    if is_v6 {
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&32u16.to_be_bytes());
        packet[6] = protocol;
        packet[8..10].copy_from_slice(&[0xfd, 9]);
        packet[23] = 1;
        packet[24..26].copy_from_slice(&[0xfd, 9]);
        packet[39] = 2;
    } else {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&52u16.to_be_bytes());
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&[10, 9, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 9, 0, 2]);
        // RFC 791: the complement of the sum of its own words.
        let sum: u32 =
            packet[..20].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        packet[10..12].copy_from_slice(&(!(((sum >> 16) + (sum & 0xffff)) as u16)).to_be_bytes());
    }
    let at = packet.len() - 32 + if protocol == 6 { 16 } else { 6 };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// RFC 9293 §3.1 and RFC 8200 §8.1: addresses, protocol, length 32.
#[test]
fn dev_08_a_checksum_that_the_other_end_left_to_hardware_is_known() {
    let v4 = 0x0a09 + 0x0001 + 0x0a09 + 0x0002 + 32;
    let v6: u32 = 0xfd09 + 1 + 0xfd09 + 2 + 32;
    let v6 = |protocol: u32| (((v6 + protocol) >> 16) + ((v6 + protocol) & 0xffff)) as u16;
    for (is_v6, protocol, sum) in
        [(false, 6, v4 + 6), (false, 17, v4 + 17), (true, 6, v6(6)), (true, 17, v6(17))]
    {
        assert!(is_left_to_hardware(&segment(is_v6, protocol, sum)), "{is_v6} {protocol}");
        for other in [sum + 1, !sum, 0] {
            assert!(!is_left_to_hardware(&segment(is_v6, protocol, other)), "{is_v6} {protocol} {other:x}");
        }
    }
    assert!(!is_left_to_hardware(&segment(false, 1, v4 + 1)), "ICMP has no such sum");
    let whole = segment(false, 6, v4 + 6);
    for len in 0..whole.len() {
        assert!(!is_left_to_hardware(&whole[..len]), "{len} bytes");
    }
}
