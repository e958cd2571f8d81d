//! Every parser of bytes from the network or the device: none panics, and what is written is read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_wire::{DhcpReply, Fragment, GroupQuery, Icmp, IpHeader, Quoted, TcpHeader, TcpOptions, UdpHeader, VnetHeader, raw};

fuzz_target!(|data: &[u8]| {
    if let Ok(ip) = IpHeader::parse(data) {
        assert!(ip.header_len + ip.payload_len <= data.len());
        let rest = &data[ip.header_len..][..ip.payload_len];
        let _ = (TcpHeader::parse(rest), Icmp::parse_v4(rest));
    }
    if let Ok(udp) = UdpHeader::parse(data, data.len()) {
        assert!((8..=data.len()).contains(&usize::from(udp.len)));
    }
    if let Ok(fragment) = Fragment::parse(data) {
        assert!(fragment.header_len <= fragment.data.start && fragment.data.end <= data.len());
        let mut whole = vec![0; fragment.header_len];
        fragment.emit_whole(data, &mut whole, 8, fragment.ecn);
    }
    if let Ok((tcp, len)) = TcpHeader::parse(data) {
        assert!(len <= data.len());
        let mut bytes = [0; 60];
        let written = tcp.emit(&mut bytes);
        let (again, _) = TcpHeader::parse(&bytes[..written]).expect("what is written is read");
        assert_eq!((again.seq, again.ack, again.flags, again.window), (tcp.seq, tcp.ack, tcp.flags, tcp.window));
    }
    if let Ok(options) = TcpOptions::parse(data) {
        let mut bytes = [0; TcpOptions::MAX_LEN];
        let len = options.emit(&mut bytes);
        assert_eq!(len, options.emitted_len());
        let again = TcpOptions::parse(&bytes[..len]).expect("what is written is read");
        assert_eq!((again.mss, again.timestamps), (options.mss, options.timestamps));
        assert_eq!(again.sack.len(), options.sack_blocks_that_fit());
    }
    let _ = (Icmp::parse_v4(data), Quoted::parse(data), raw::headers_len(data), raw::destination(data));
    let _ = (raw::flow(data), raw::ecn(data), raw::ports(data), raw::tcp_flags(data), raw::is_open(data));
    let mut copy = data.to_vec();
    raw::complete(&mut copy);
    raw::set_ce(&mut copy);
    raw::set_len(&mut copy, data.len());
    if let Ok(header) = VnetHeader::parse(data) {
        assert_eq!(VnetHeader::parse(&header.emit()), Ok(header));
    }
    let (a, b) = data.split_at(data.len() / 2);
    let _ = raw::continues(a, b, b.len());
    let _ = (GroupQuery::parse(data), DhcpReply::parse(data));
});
