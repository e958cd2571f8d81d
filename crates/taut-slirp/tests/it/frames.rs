//! Frames that no honest guest sends: noise, frames that were damaged, and the kinds of input of libslirp's
//! published faults. Nothing panics, spins or grows.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use slirp::ffi::{SlirpConfig, slirp_state_version};
use taut_testbed::now;
use taut_wire::checksum::Sum;

use crate::world::{Bare, GUEST, HOST, config, text};

/// Frames of the test; `make slirp-frames FRAMES=100000000` runs more.
const FRAMES: u64 = 100_000;

pub(crate) const fn guest_mac() -> [u8; 6] {
    [0x52, 0x54, 0, 0x12, 0x34, 0x56]
}

const HOST_MAC: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];

fn ip(text: &str) -> [u8; 4] {
    text.parse::<Ipv4Addr>().unwrap().octets()
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&HOST_MAC[..], &guest_mac(), &kind.to_be_bytes(), payload].concat()
}

/// RFC 826.
pub(crate) fn arp_request(from: &str, to: &str) -> Vec<u8> {
    let message = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &guest_mac(), &ip(from), &[0; 6], &ip(to)].concat();
    ethernet(0x0806, &message)
}

/// RFC 1071.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    !Sum::ZERO.add_bytes(bytes).fold()
}

/// A packet of IPv4 with options, and flags and place of a fragment, its checksum right.
fn ipv4(protocol: u8, options: &[u8], fragment: u16, to: &str, payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let len = (header_len + payload.len()) as u16;
    let mut header = vec![0x40 | (header_len / 4) as u8, 0];
    header.extend(len.to_be_bytes());
    header.extend([0x12, 0x34]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend([ip(GUEST), ip(to)].concat());
    header.extend(options);
    let checksum = checksum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    ethernet(0x0800, &[header, payload.to_vec()].concat())
}

/// A datagram without a checksum (RFC 768).
pub(crate) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat()
}

pub(crate) fn udp_frame(to: &str, from: u16, port: u16, payload: &[u8]) -> Vec<u8> {
    ipv4(17, &[], 0, to, &udp(from, port, payload))
}

fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0][..], rest].concat();
    let checksum = checksum(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// A segment with options; its checksum is wrong.
fn tcp(port: u16, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut segment = [&[0x30, 0x39][..], &port.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    segment.extend([(((20 + options.len()) / 4) << 4) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    [segment, options.to_vec(), payload.to_vec()].concat()
}

/// A segment from one end to the other, with numbers, as an honest guest sends it.
pub(crate) fn tcp_frame(
    ((from, from_port), (to, to_port)): ((&str, u16), (&str, u16)),
    (seq, ack): (u32, u32),
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut segment = [from_port.to_be_bytes(), to_port.to_be_bytes()].concat();
    segment.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(payload);
    // RFC 9293 §3.1: with a pseudo header.
    let pseudo = [&ip(from)[..], &ip(to), &[0, 6], &(segment.len() as u16).to_be_bytes()].concat();
    let sum = checksum(&[&pseudo[..], &segment].concat());
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ipv4(6, &[], 0, to, &segment)
}

/// A client's message of DHCP (RFC 2131 §2).
fn dhcp(options: &[u8]) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0, 1, 2, 3, 4, 0, 0, 0, 0];
    message.resize(28, 0);
    message.extend(guest_mac());
    message.resize(236, 0);
    message.extend([99, 130, 83, 99]);
    message.extend(options);
    message
}

/// With files to fetch, so that TFTP is there.
fn serving() -> SlirpConfig {
    SlirpConfig { tftp_path: text("/etc"), bootfile: text("pxe.0"), ..config() }
}

/// It still answers.
fn is_alive(bare: &Bare) {
    // Earlier answers leave in turns of their own.
    let left = || {
        bare.turn(Duration::ZERO);
        bare.state.frames.take().len()
    };
    while left() > 0 {}
    let answers = bare.input(&arp_request(GUEST, HOST));
    assert!(answers.iter().any(|frame| frame[12..14] == [8, 6] && frame[20..22] == [0, 2]), "{answers:?}");
}

/// Options that overflow a header, and headers that are longer than their packets.
#[test]
fn slirp_19_options_of_ip() {
    let bare = Bare::new(&serving());
    for options in [vec![0; 40], vec![0xff; 40], vec![7, 40, 4, 0], vec![131, 255, 4, 0], vec![68, 3, 0, 0]] {
        for protocol in [1, 6, 17, 255] {
            bare.input(&ipv4(protocol, &options, 0, HOST, &udp(1, 69, b"\0\x01x\0octet\0")));
        }
    }
    for first in 0..=255 {
        let mut frame = udp_frame(HOST, 1, 69, &[0; 40]);
        frame[14] = first;
        bare.input(&frame);
    }
    is_alive(&bare);
}

/// CVE-2019-14378, CVE-2019-15890: fragments that overlap, that end before they begin, in any order; a
/// flood of them.
#[test]
fn slirp_19_fragments() {
    let bare = Bare::new(&serving());
    const MORE: u16 = 0x2000;
    for fragment in [MORE, MORE | 1, MORE | 0x1fff, 0x1fff, 1, 0, 0xffff, MORE | 2] {
        for len in [0, 1, 7, 8, 1_000, 1_480] {
            bare.input(&ipv4(17, &[], fragment, HOST, &vec![1; len]));
            bare.input(&ipv4(6, &[0; 40], fragment, HOST, &vec![2; len]));
        }
    }
    for id in 0..20_000_u32 {
        let mut frame = ipv4(17, &[], MORE | (id % 64) as u16, HOST, &[3; 1_400]);
        frame[18..20].copy_from_slice(&(id as u16).to_be_bytes());
        bare.input(&frame);
    }
    is_alive(&bare);
}

/// CVE-2021-3593, CVE-2021-3594: messages shorter than their headers, and errors about packets that are not
/// there.
#[test]
fn slirp_19_messages_that_are_too_short() {
    let bare = Bare::new(&serving());
    for len in 0..=60 {
        for protocol in [1, 2, 6, 17, 58] {
            bare.input(&ipv4(protocol, &[], 0, HOST, &vec![8; len]));
        }
        for (port, message) in
            [(67, dhcp(&[53, 1, 1, 255])), (69, b"\0\x01name\0octet\0".to_vec()), (53, vec![1; 60])]
        {
            let whole = udp(68, port, &message);
            bare.input(&ipv4(17, &[], 0, HOST, &whole[..len.min(whole.len())]));
            // A length that says more, and one that says less.
            for said in [len, len * 1_000] {
                let mut datagram = whole.clone();
                datagram[4..6].copy_from_slice(&(said as u16).to_be_bytes());
                bare.input(&ipv4(17, &[], 0, HOST, &datagram));
            }
        }
    }
    for kind in 0..=255 {
        for code in [0, 1, 4, 255] {
            for rest in [&[][..], &[0; 4], &[0; 8], &[0x45; 28], &[0xff; 1_400]] {
                bare.input(&ipv4(1, &[], 0, HOST, &icmp(kind, code, rest)));
            }
        }
    }
    is_alive(&bare);
}

/// CVE-2019-6778, CVE-2020-8608: requests of protocols that libslirp rewrites (ident, IRC, FTP).
#[test]
fn slirp_19_protocols_with_addresses_inside() {
    let bare = Bare::new(&SlirpConfig { enable_emu: true, ..config() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for port in [113, 6_667, 21, 544, port] {
        for flags in 0..=255 {
            bare.input(&ipv4(6, &[], 0, HOST, &tcp(port, flags, &[2, 4, 0, 0], &[b','; 1_400])));
        }
    }
    for options in [vec![2, 0, 0, 0], vec![5, 255, 1, 1], vec![8, 10, 0, 0], vec![0xfe; 40], vec![3, 1, 3, 3]]
    {
        bare.input(&ipv4(6, &[], 0, HOST, &tcp(port, 2, &options, &[])));
    }
    is_alive(&bare);
}

/// CVE-2021-3592, CVE-2021-3595: options of leases and names of files without an end; CVE-2020-29129,
/// CVE-2020-29130: frames that end in a header, or before it.
#[test]
fn slirp_19_names_without_an_end_and_frames_that_end_early() {
    let bare = Bare::new(&serving());
    for message in [
        &b"\0\x01"[..],
        b"\0\x01name",
        b"\0\x01name\0",
        b"\0\x01name\0octet",
        &[0; 4],
        &[0, 1, 0xff, 0, 0xff],
    ] {
        bare.input(&udp_frame(HOST, 1_000, 69, message));
    }
    bare.input(&udp_frame(HOST, 1_000, 69, &[&[0, 1][..], &vec![b'/'; 1_400]].concat()));
    for options in [&[53][..], &[53, 200], &[53, 1], &[255; 100], &[0; 300], &[53, 1, 1, 61, 255, 1]] {
        bare.input(&udp_frame("255.255.255.255", 68, 67, &dhcp(options)));
    }
    let frames = [
        arp_request(GUEST, HOST),
        udp_frame(HOST, 1, 69, b"\0\x01x\0octet\0"),
        ethernet(0x86dd, &[0x60; 60]),
    ];
    for frame in frames {
        for len in 0..frame.len() {
            bare.input(&frame[..len]);
        }
    }
    bare.input(&vec![0xff; 1 << 20]);
    is_alive(&bare);
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }
}

/// Frames that are right, to be damaged.
fn honest() -> Vec<Vec<u8>> {
    let mut frames = vec![
        arp_request(GUEST, HOST),
        udp_frame("255.255.255.255", 68, 67, &dhcp(&[53, 1, 1, 255])),
        udp_frame(HOST, 68, 67, &dhcp(&[53, 1, 3, 50, 4, 10, 0, 2, 15, 255])),
        udp_frame(HOST, 999, 69, b"\0\x01passwd\0octet\0blksize\x001400\0"),
        udp_frame(
            "10.0.2.3",
            999,
            53,
            b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07gateway\x04home\x04arpa\0\0\x01\0\x01",
        ),
        ipv4(1, &[], 0, HOST, &icmp(8, 0, &[0, 1, 0, 1, 7, 7])),
        ipv4(6, &[], 0, "10.0.2.99", &tcp(9, 2, &[2, 4, 5, 0xb4], &[])),
        ipv4(6, &[], 0, "10.0.2.99", &tcp(9, 16, &[], &[9; 100])),
        ipv4(17, &[], 0x2000, HOST, &[1; 64]),
    ];
    // IPv6: a solicitation of routers (RFC 4861 §4.1), a request for information (RFC 8415 §16.12), a
    // fragment.
    let v6 = |next: u8, payload: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 255];
        packet.extend([&[0xfe, 0x80][..], &[0; 13], &[9]].concat());
        packet.extend([&[0xff, 2][..], &[0; 13], &[2]].concat());
        [&[0x33, 0x33, 0, 0, 0, 2][..], &guest_mac(), &[0x86, 0xdd], &packet, payload].concat()
    };
    frames.extend([
        v6(58, &[133, 0, 0, 0, 0, 0, 0, 0]),
        v6(44, &[17, 0, 0, 1, 0, 0, 0, 1, 7, 7]),
        v6(0, &[6; 48]),
    ]);
    frames.push(v6(17, &udp(546, 547, &[11, 1, 2, 3, 0, 6, 0, 2, 0, 23])));
    frames
}

/// No frame leads to another host: honest ones are for this one, and the guest is restricted.
fn flood(count: u64, seed: u64) {
    let bare = Bare::new(&SlirpConfig { disable_host_loopback: true, restricted: 1, ..serving() });
    let (honest, mut random) = (honest(), Random(seed));
    let began = now();
    for number in 0..count {
        let mut frame = honest[random.below(honest.len())].clone();
        match random.below(4) {
            0 => (0..frame.len()).for_each(|at| frame[at] = random.next() as u8),
            1 => frame.truncate(random.below(frame.len())),
            2 => frame.extend((0..random.below(2_000)).map(|_| 7)),
            _ => {}
        }
        for _ in 0..random.below(8) {
            if !frame.is_empty() {
                let at = random.below(frame.len());
                frame[at] = random.next() as u8;
            }
        }
        bare.input(&frame);
        if number % 1_000 == 0 {
            // Time passes, and the loop comes by.
            bare.state.ahead_ns.set(bare.state.ahead_ns.get() + 1_000_000_000);
            bare.turn(Duration::ZERO);
        }
    }
    is_alive(&bare);
    println!("{count} frames in {:?}, seed {seed}", began.elapsed());
}

#[test]
fn slirp_19_noise_and_damaged_frames() {
    assert_eq!(unsafe { libc::getpid() } > 0, slirp_state_version() > 0);
    flood(FRAMES, 1);
}

#[test]
#[ignore = "minutes: make slirp-frames"]
fn many_frames() {
    let of = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (frames, seed): (u64, u64) = (of("FRAMES", 100_000_000), of("SEED", 1));
    for part in 0..frames.div_ceil(1_000_000) {
        flood(1_000_000.min(frames), seed + part);
    }
}
