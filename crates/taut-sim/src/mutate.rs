//! Packets that no stack sends: an honest one with some fields changed, and checksums that are right, so that
//! it gets past the first test of the receiver. Called by a wire whose sender lies ([`Lies`](crate::Lies)).
//!
//! A change is aimed at what a receiver believes: numbers near the window and far from it, flags in any
//! combination, SACK blocks and timestamps of anything, windows that vanish, options cut short, and ICMP
//! errors about the receiver's packets.

use taut_wire::{
    AccEcn, Flags, IpHeader, SackBlocks, TcpHeader, Timestamps, Unreachable, icmp, protocol, raw,
};

use crate::rng::Rng;

/// Near `base`, or anywhere.
fn near(rng: &mut Rng, base: u32) -> u32 {
    match rng.below(8) {
        0 | 1 => base,
        2 => base.wrapping_add(1 + rng.below(3) as u32),
        3 => base.wrapping_sub(1 + rng.below(3) as u32),
        4 => base.wrapping_add(rng.below(100_000) as u32),
        5 => base.wrapping_sub(rng.below(100_000) as u32),
        6 => base.wrapping_add(1 << 31),
        _ => rng.next() as u32,
    }
}

/// A changed copy of a whole packet. What is not TCP gets one wrong byte.
pub(crate) fn mutate(packet: &[u8], rng: &mut Rng) -> Vec<u8> {
    let parsed = IpHeader::parse(packet).ok().filter(|ip| ip.protocol == protocol::TCP).and_then(|ip| {
        let end = (ip.header_len + ip.payload_len).min(packet.len());
        let segment = packet.get(ip.header_len..end)?;
        let (tcp, len) = TcpHeader::parse(segment).ok()?;
        Some((ip, tcp, segment.get(len..)?))
    });
    let Some((ip, tcp, payload)) = parsed else {
        let mut bytes = packet.to_vec();
        let at = rng.below(bytes.len() as u64) as usize;
        if let Some(byte) = bytes.get_mut(at) {
            *byte = rng.next() as u8;
        }
        return bytes;
    };
    match rng.below(16) {
        0 => icmp_lie(&ip, &tcp, rng),
        1 => bytes_changed(&ip, &tcp, payload, rng),
        _ => fields_changed(&ip, tcp, payload, rng),
    }
}

/// The packet with this header and payload.
pub(crate) fn emit(ip: &IpHeader, tcp: &TcpHeader, payload: &[u8]) -> Vec<u8> {
    let len = tcp.header_len() + payload.len();
    let ip = IpHeader { payload_len: len, ..*ip };
    let at = ip.emitted_len();
    let mut bytes = vec![0; at + len];
    ip.emit(&mut bytes, 0);
    let header = tcp.emit(&mut bytes[at..]);
    bytes[at + header..].copy_from_slice(payload);
    raw::complete(&mut bytes);
    bytes
}

fn fields_changed(ip: &IpHeader, mut tcp: TcpHeader, payload: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut payload = payload.to_vec();
    for _ in 0..=rng.below(3) {
        match rng.below(12) {
            0 | 1 => tcp.seq = near(rng, tcp.seq),
            2 | 3 => tcp.ack = near(rng, tcp.ack),
            4 => tcp.flags = Flags::from_bits(rng.next() as u16 & 0x1ff),
            5 => tcp.flags |= Flags::from_bits(1 << rng.below(9)),
            6 => tcp.window = [0, 1, 65_535, rng.next() as u16][rng.below(4) as usize],
            7 => {
                let base = tcp.ack;
                let mut sack = SackBlocks::default();
                for _ in 0..=rng.below(3) {
                    let left = near(rng, base);
                    sack.push(left, near(rng, left));
                }
                tcp.options.sack = sack;
            }
            8 => {
                let old = tcp.options.timestamps.unwrap_or(Timestamps { value: 0, echo: 0 });
                let (value, echo) = (near(rng, old.value), near(rng, old.echo));
                tcp.options.timestamps = rng.chance(0.8).then_some(Timestamps { value, echo });
            }
            9 => {
                let any = |rng: &mut Rng| rng.chance(0.5).then(|| rng.next() as u32 & 0xff_ffff);
                tcp.options.accecn =
                    rng.chance(0.7).then(|| AccEcn { ee0b: any(rng), eceb: any(rng), ee1b: any(rng) });
            }
            10 => {
                tcp.options.mss = rng.chance(0.5).then(|| [0, 1, 48, 536, 65_535][rng.below(5) as usize]);
                tcp.options.window_scale = rng.chance(0.5).then(|| rng.next() as u8);
                tcp.urgent = rng.next() as u16;
            }
            _ => payload.resize(rng.below(3_000) as usize, 0x55),
        }
    }
    emit(ip, &tcp, &payload)
}

/// Random bytes where the options are, and a random data offset.
fn bytes_changed(ip: &IpHeader, tcp: &TcpHeader, payload: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = emit(ip, tcp, payload);
    let at = ip.emitted_len();
    if rng.chance(0.3) {
        bytes[at + 12] = rng.next() as u8;
    }
    for byte in bytes.iter_mut().skip(at + 20).take(40) {
        if rng.chance(0.3) {
            *byte = rng.next() as u8;
        }
    }
    raw::complete(&mut bytes);
    bytes
}

/// An error about a packet that the receiver may have sent.
fn icmp_lie(ip: &IpHeader, tcp: &TcpHeader, rng: &mut Rng) -> Vec<u8> {
    let quoted_ip = IpHeader { src: ip.dst, dst: ip.src, ..*ip };
    let quoted = TcpHeader {
        src_port: tcp.dst_port,
        dst_port: tcp.src_port,
        seq: near(rng, tcp.ack),
        ack: near(rng, tcp.seq),
        flags: Flags::ACK,
        ..TcpHeader::default()
    };
    let quoted = emit(&quoted_ip, &quoted, &[0; 40]);
    let code = match rng.below(5) {
        0 => Unreachable::Host,
        1 => Unreachable::Network,
        2 => Unreachable::Port,
        _ => Unreachable::FragmentationNeeded {
            mtu: [0, 68, 552, 1_280, 1_400, 65_535][rng.below(6) as usize],
        },
    };
    let mut message = [0; 576];
    let len = icmp::emit_unreachable(&mut message, ip.src, ip.dst, code, &quoted);
    let protocol = if ip.src.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
    let header = IpHeader { protocol, payload_len: len, ..*ip };
    let at = header.emitted_len();
    let mut bytes = vec![0; at + len];
    header.emit(&mut bytes, 0);
    bytes[at..].copy_from_slice(&message[..len]);
    bytes
}
