//! A host that asks for an address, and a server that answers with any options, any address, at any time: the
//! parser, what an answer may say, and the client. Nothing panics or spins, what waits is bounded, and what
//! the stack is told can be: it takes every address and route.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use taut_ethernet::{Ethernet, EthernetConfig, FRAME_MAX};
use taut_core::{Duration, Instant, LinkCaps, NetworkError, Stack, StackConfig};
use taut_wire::{DhcpReply, Ecn, EthernetHeader, IpHeader, Mac, UdpHeader, ether_type, protocol};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// A server's message of this exchange, without a checksum of UDP.
fn reply(xid: [u8; 4], kind: u8, address: [u8; 4], options: &[u8]) -> Vec<u8> {
    let mut message = vec![2, 1, 6, 0];
    message.extend(xid);
    message.resize(16, 0);
    message.extend(address);
    message.resize(28, 0);
    message.extend(MAC.0);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, kind]);
    message.extend(options);
    let (server, all) = (IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), IpAddr::V4(Ipv4Addr::BROADCAST));
    let payload_len = 8 + message.len();
    let ip = IpHeader { src: server, dst: all, protocol: protocol::UDP, hop_limit: 64, ecn: Ecn::NotEct, header_len: 20, payload_len };
    let mut packet = vec![0; 28];
    ip.emit(&mut packet, 0);
    UdpHeader { src_port: 67, dst_port: 68, len: payload_len as u16 }.emit(&mut packet[20..]);
    let header = EthernetHeader { dst: MAC, src: Mac([2, 0, 0, 0, 0, 1]), ether_type: ether_type::IPV4 };
    [&header.emit()[..], &packet, &message].concat()
}

fuzz_target!(|data: &[u8]| {
    _ = DhcpReply::parse(data);
    let config = EthernetConfig { mac: MAC, dhcp: true, mtu: 1_500, ..EthernetConfig::default() };
    let mut link = Ethernet::<u32>::new(config, [7; 16]);
    let mut stack = Stack::new(Arc::new(StackConfig::default()), LinkCaps::plain(1_500), [7; 32]);
    let (mut now, mut xid, mut rest) = (Instant::from_nanos(1), [0; 4], data);
    while let Some((&[verb, len], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(behind.len().min(len.into()));
        rest = behind;
        match (verb % 4, bytes.split_first_chunk::<4>()) {
            // Of a lease that an ordinary server gives, with other options in front.
            (0 | 1, Some((address, options))) => {
                let usual = [54, 4, 10, 9, 0, 1, 51, 4, 0, 0, 14, 16, 1, 4, 255, 255, 0, 0, 255];
                let kind = [2, 5, 6, verb][usize::from(verb / 4 % 4)];
                let options = [options, if verb % 4 == 0 { &usual[..] } else { &[] }].concat();
                link.handle_frame(now, &reply(xid, kind, *address, &options));
            }
            (2, _) => _ = link.handle_frame(now, bytes),
            _ => {
                now = now + Duration::from_millis(u64::from(len) * 1_000);
                let mut steps = 0;
                while link.poll_timeout() <= now {
                    link.handle_timeout(now);
                    steps += 1;
                    assert!(steps < 1_000, "it spins");
                }
            }
        }
        let mut frame = [0; FRAME_MAX];
        while let Some(len) = link.poll_frame(&mut frame) {
            if len == FRAME_MAX {
                xid.copy_from_slice(&frame[46..50]);
            }
        }
        let mut told = 0;
        while let Some(change) = link.poll_change() {
            told += 1;
            assert!(told < 512);
            match stack.change_network(now, change) {
                Ok(()) | Err(NetworkError::TooMany) => {}
                Err(error) => panic!("{change:?}: {error}"),
            }
        }
        assert!(stack.networks().count() <= 1, "one lease, one address");
        let has_lease = stack.lease(now).is_some();
        assert!(has_lease == (stack.networks().count() == 1), "the address is that of the lease");
        assert!(has_lease || (stack.routes().count() == 0 && stack.name_servers().is_empty()));
    }
});
