//! A TCP segment as bytes and as values: what a script injects, and what the stack sends. Unlike the stack's
//! own parser and emitter (`taut-wire`), this keeps options as they stand, with their order and padding,
//! because scripts compare them. Numbers are those of the wire here; `flow.rs` translates. Called by the
//! runner.

use std::net::SocketAddr;

use taut_wire::{Ecn, Flags, IpHeader, TcpHeader, protocol, tcp};

use crate::script::{ACCECN0, ACCECN1, Opt};

/// The hop limit of injected packets, unless the script says another.
const HOP_LIMIT: u8 = 64;
/// The number that marks Fast Open among experimental options (RFC 7413 appendix B).
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];
const EXPERIMENTAL: u8 = 254;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) ecn: Ecn,
    pub(crate) hop_limit: Option<u8>,
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) win: u16,
    pub(crate) urg: u16,
    pub(crate) options: Vec<Opt>,
    /// Bytes of payload; all are zero.
    pub(crate) len: usize,
}

impl Segment {
    /// The packet from its IP header on, with checksums.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, String> {
        let options = encode(&self.options)?;
        let tcp_len = tcp::HEADER_LEN + options.len();
        let ip = IpHeader {
            src: self.src.ip(),
            dst: self.dst.ip(),
            protocol: protocol::TCP,
            hop_limit: self.hop_limit.unwrap_or(HOP_LIMIT),
            ecn: self.ecn,
            header_len: 0,
            payload_len: tcp_len + self.len,
        };
        let ip_len = ip.emitted_len();
        let total = ip_len + ip.payload_len;
        if total - if ip.src.is_ipv4() { 0 } else { ip_len } > usize::from(u16::MAX) {
            return Err(format!("a packet of {total} bytes is too long for its header"));
        }
        let mut packet = vec![0; total];
        ip.emit(&mut packet, 0);
        let header = TcpHeader {
            src_port: self.src.port(),
            dst_port: self.dst.port(),
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.win,
            urgent: self.urg,
            ..TcpHeader::default()
        };
        let segment = &mut packet[ip_len..];
        header.emit(segment);
        segment[tcp::HEADER_LEN..tcp_len].copy_from_slice(&options);
        // The data offset, in words; at most 15.
        segment[12] = (tcp_len as u8 / 4) << 4 | (segment[12] & 0x0f);
        let checksum = tcp::full_checksum(ip.src, ip.dst, segment, &[]);
        tcp::set_checksum(segment, checksum);
        Ok(packet)
    }

    /// A packet that the stack sent.
    pub(crate) fn read(packet: &[u8]) -> Result<Self, String> {
        let ip =
            IpHeader::parse(packet).map_err(|error| format!("the stack sent no IP packet: {error:?}"))?;
        if ip.protocol != protocol::TCP {
            return Err(format!("the stack sent a packet of protocol {}", ip.protocol));
        }
        let bytes = packet.get(ip.header_len..ip.header_len + ip.payload_len).unwrap_or_default();
        let (header, header_len) =
            TcpHeader::parse(bytes).map_err(|error| format!("the stack sent no TCP segment: {error:?}"))?;
        Ok(Self {
            src: SocketAddr::new(ip.src, header.src_port),
            dst: SocketAddr::new(ip.dst, header.dst_port),
            ecn: ip.ecn,
            hop_limit: Some(ip.hop_limit),
            flags: header.flags,
            seq: header.seq,
            ack: header.ack,
            win: header.window,
            urg: header.urgent,
            options: decode(bytes.get(tcp::HEADER_LEN..header_len).unwrap_or_default()),
            len: ip.payload_len - header_len,
        })
    }

    pub(crate) const fn has(&self, flag: Flags) -> bool {
        self.flags.contains(flag)
    }
}

fn encode(options: &[Opt]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for option in options {
        let (kind, value) = match option {
            Opt::Nop => {
                bytes.push(1);
                continue;
            }
            Opt::End => {
                bytes.push(0);
                continue;
            }
            Opt::Mss(mss) => (2, mss.to_be_bytes().to_vec()),
            Opt::WindowScale(shift) => (3, vec![*shift]),
            Opt::SackPermitted => (4, Vec::new()),
            Opt::Sack(blocks) => (
                5,
                blocks
                    .iter()
                    .flat_map(|(left, right)| [left.to_be_bytes(), right.to_be_bytes()].concat())
                    .collect(),
            ),
            Opt::Timestamps { val, ecr } => (8, [val.to_be_bytes(), ecr.to_be_bytes()].concat()),
            Opt::Md5(digest) => (19, digest.clone()),
            Opt::FastOpen(cookie) => (34, cookie.clone()),
            Opt::FastOpenExperimental(cookie) => (EXPERIMENTAL, [&FAST_OPEN_MAGIC[..], cookie].concat()),
            Opt::AccurateEcn(kind, counters) => {
                (*kind, counters.iter().flat_map(|count| count.to_be_bytes()[1..].to_vec()).collect())
            }
            Opt::Other(kind, value) => (*kind, value.clone()),
        };
        let len =
            u8::try_from(2 + value.len()).map_err(|_| format!("<{option}> is too long for an option"))?;
        bytes.extend([kind, len]);
        bytes.extend(value);
    }
    if bytes.len() > 40 || bytes.len() % 4 != 0 {
        return Err(format!(
            "the options take {} bytes: a header has room for 40, in steps of 4; `nop` takes one byte",
            bytes.len()
        ));
    }
    Ok(bytes)
}

fn decode(mut bytes: &[u8]) -> Vec<Opt> {
    let mut options = Vec::new();
    while let [kind, rest @ ..] = bytes {
        match (kind, rest) {
            (0, _) => {
                options.push(Opt::End);
                bytes = rest;
            }
            (1, _) => {
                options.push(Opt::Nop);
                bytes = rest;
            }
            (&kind, [len, rest @ ..]) if *len >= 2 && usize::from(*len) - 2 <= rest.len() => {
                let (value, rest) = rest.split_at(usize::from(*len) - 2);
                options.push(option(kind, value));
                bytes = rest;
            }
            _ => return options,
        }
    }
    options
}

fn option(kind: u8, value: &[u8]) -> Opt {
    let words: Vec<u32> = value.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    match (kind, value) {
        (2, &[high, low]) => Opt::Mss(u16::from_be_bytes([high, low])),
        (3, &[shift]) => Opt::WindowScale(shift),
        (4, []) => Opt::SackPermitted,
        (5, _) if value.len().is_multiple_of(8) => {
            Opt::Sack(words.as_chunks::<2>().0.iter().map(|&[left, right]| (left, right)).collect())
        }
        (8, _) if value.len() == 8 => Opt::Timestamps { val: words[0], ecr: words[1] },
        (19, _) => Opt::Md5(value.to_vec()),
        (34, _) => Opt::FastOpen(value.to_vec()),
        (ACCECN0 | ACCECN1, _) if value.len().is_multiple_of(3) => Opt::AccurateEcn(
            kind,
            value.as_chunks::<3>().0.iter().map(|&[a, b, c]| u32::from_be_bytes([0, a, b, c])).collect(),
        ),
        (EXPERIMENTAL, _) if value.starts_with(&FAST_OPEN_MAGIC) => {
            Opt::FastOpenExperimental(value.get(2..).unwrap_or_default().to_vec())
        }
        _ => Opt::Other(kind, value.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkt_12_every_option_survives_both_ways() {
        let options = vec![
            Opt::Mss(1_460),
            Opt::SackPermitted,
            Opt::Timestamps { val: 1, ecr: 0xffff_ffff },
            Opt::WindowScale(14),
            Opt::Nop,
            Opt::Sack(vec![(7, 9)]),
            Opt::Nop,
            Opt::End,
        ];
        for options in [
            options,
            vec![Opt::FastOpen(vec![1, 2, 3, 4, 5, 6, 7, 8]), Opt::Nop, Opt::Nop],
            vec![Opt::FastOpenExperimental(vec![]), Opt::Other(253, vec![9, 9])],
            vec![Opt::AccurateEcn(ACCECN1, vec![1, 0xff_ffff, 3]), Opt::Nop],
            vec![Opt::Md5(vec![5; 16]), Opt::Nop, Opt::Nop],
        ] {
            let segment = Segment {
                src: "192.0.2.1:80".parse().unwrap(),
                dst: "192.168.0.1:8080".parse().unwrap(),
                ecn: Ecn::Ect1,
                hop_limit: Some(64),
                flags: Flags::ACK | Flags::AE,
                seq: 1,
                ack: 2,
                win: 3,
                urg: 4,
                options,
                len: 100,
            };
            let bytes = segment.bytes().unwrap();
            assert_eq!(Segment::read(&bytes), Ok(segment));
        }
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let expected =
            "the options take 3 bytes: a header has room for 40, in steps of 4; `nop` takes one byte";
        assert_eq!(encode(&[Opt::WindowScale(1)]), Err(expected.to_owned()));
        assert!(encode(&vec![Opt::Mss(1); 11]).is_err());
        assert!(encode(&[Opt::Other(99, vec![0; 300])]).is_err());
    }
}
