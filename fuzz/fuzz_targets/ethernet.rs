//! A host on an Ethernet that hears any frames, and any time passes between them: it configures itself,
//! checks addresses, and resolves neighbours. Nothing panics or spins, everything is bounded, and each packet
//! that waited comes back once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_ethernet::{Ethernet, EthernetConfig, FRAME_MAX, Hop, Network, Resolved};
use taut_core::{Duration, Instant, NetworkChange};
use taut_wire::{Mac, Sum};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Makes the checksum of a message of ICMPv6 right, so that the parsers behind it are reached.
fn with_checksum(frame: &mut [u8]) {
    if frame.len() < 58 || frame[12..14] != [0x86, 0xdd] || frame[20] != 58 {
        return;
    }
    let len = (frame.len() - 54).min(u16::MAX.into());
    frame[18..20].copy_from_slice(&(len as u16).to_be_bytes());
    frame[56..58].fill(0);
    let sum = Sum::ZERO.add_bytes(&frame[22..54]).add_bytes(&(len as u32).to_be_bytes()).add_bytes(&[0, 0, 0, 58]);
    let checksum = sum.add_bytes(&frame[54..54 + len]).finish();
    frame[56..58].copy_from_slice(&checksum.to_be_bytes());
}

fuzz_target!(|data: &[u8]| {
    let networks = vec![Network { address: [10, 9, 0, 2].into(), prefix: 24 }];
    let config = EthernetConfig { mac: MAC, networks, slaac: true, groups: true, mtu: 1_500, ..EthernetConfig::default() };
    let mut link = Ethernet::<u32>::new(config, [7; 16]);
    let (mut now, mut given, mut back) = (Instant::from_nanos(1), 0_u32, 0);
    let mut rest = data;
    while let Some((&[verb, len], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(behind.len().min(len.into()));
        rest = behind;
        match verb % 4 {
            0 => {
                let mut frame = bytes.to_vec();
                with_checksum(&mut frame);
                link.handle_frame(now, &frame);
            }
            1 => {
                now = now + Duration::from_millis(u64::from(len) * 100);
                let mut steps = 0;
                while link.poll_timeout() <= now {
                    link.handle_timeout(now);
                    steps += 1;
                    assert!(steps < 1_000, "it spins");
                }
            }
            2 => {
                if let Hop::Wait(neighbour) = link.next_hop(now, bytes) {
                    given += 1;
                    back += u32::from(link.wait(neighbour, given).is_some());
                }
            }
            _ => {
                let address = bytes.first_chunk::<16>().map_or([10, 9, 0, len].into(), |octets| (*octets).into());
                let change = match len % 4 {
                    0 => NetworkChange::JoinGroup(address),
                    1 => NetworkChange::LeaveGroup(address),
                    _ => NetworkChange::AddAddress(Network { address, prefix: 24 }),
                };
                link.change_network(now, change);
            }
        }
        let mut buf = [0; FRAME_MAX];
        while link.poll_frame(&mut buf).is_some() {}
        while let Some(Resolved::Ready(..) | Resolved::Lost(_)) = link.poll_resolved() {
            back += 1;
        }
        assert!(std::iter::from_fn(|| link.poll_change()).count() < 512);
        assert!(link.neighbours() <= 512 && link.waiting() <= 256);
    }
    for _ in 0..10 {
        now = now + Duration::from_secs(1);
        link.handle_timeout(now);
    }
    while link.poll_resolved().is_some() {
        back += 1;
    }
    assert_eq!(given, back);
});
