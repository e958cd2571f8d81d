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

/// The kernel's counter, on an interface that reports at once.
#[test]
fn dev_03_the_counter_is_followed_and_begins_anew_after_a_packet_of_unknown_fate() {
    use crate::Namespace;
    use crate::sys::packet_socket::Gets;
    let (near, far) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let (here, there) = near.connect("veth0", &far, "veth0").unwrap();
    [&here, &there].iter().for_each(|interface| interface.set_up().unwrap());
    here.wait_until_running(std::time::Duration::from_secs(5)).unwrap();
    let socket = near.enter(|| packet_socket::open(here.index(), Gets::Nothing)).unwrap().unwrap();
    packet_socket::enable_timestamps(&socket).unwrap();
    let frame = [0xff; 60];
    let send = |len| {
        let pieces = [IoSlice::new(&[0; taut_wire::VnetHeader::LEN]), IoSlice::new(&frame[..len])];
        packet_socket::send(&socket, &pieces, Along { report: Report::Counted, departure_ns: None })
    };
    let mut counter = Counter::default();
    for expected in 0..3 {
        assert_eq!(counter.next(&socket, false), Some(expected));
        let sent = send(60);
        counter.note(&sent);
        sent.unwrap();
        assert_eq!(packet_socket::next_report(&socket), Some(expected));
    }
    // Room was missing: the kernel has not counted it.
    counter.note(&Err(io::ErrorKind::WouldBlock.into()));
    assert_eq!(counter.next(&socket, false), Some(3));
    // It may have counted this one. A report of an old number is not one of the new numbers.
    counter.note(&Err(Errno::NOBUFS.into()));
    send(60).unwrap();
    assert_eq!(counter.next(&socket, false), None, "while packets are below");
    assert_eq!(counter.next(&socket, true), Some(0));
    assert_eq!(packet_socket::next_report(&socket), None);
    send(60).unwrap();
    assert_eq!(packet_socket::next_report(&socket), Some(0));
}
