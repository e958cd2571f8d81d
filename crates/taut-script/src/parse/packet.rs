//! Packets: `[ect0] 8080 > 5000 P. 1:1001(1000) ack 1 win 257 <nop,nop,TS val 1 ecr 2>`, and ICMP errors with
//! the segment that they quote: `icmp unreachable frag_needed mtu 1200 [1:1461(1460)]`.

use taut_wire::{Ecn, Flags, Unreachable};

use super::Wrong;
use super::scan::Scan;
use crate::script::{ACCECN0, ACCECN1, IcmpSpec, LETTERS, Opt, Packet, TcpSpec};

pub(super) fn inbound(scan: &mut Scan<'_>) -> Result<Packet, Wrong> {
    let mut spec = TcpSpec::default();
    prefix(scan, &mut spec)?;
    if scan.takes_word("icmp") || scan.takes_word("icmpv6") {
        return icmp(scan, spec.ports).map(Packet::Icmp);
    }
    segment(scan, &mut spec)?;
    Ok(Packet::Tcp(spec))
}

pub(super) fn outbound(scan: &mut Scan<'_>) -> Result<TcpSpec, Wrong> {
    let mut spec = TcpSpec::default();
    prefix(scan, &mut spec)?;
    if scan.takes_word("icmp") || scan.takes_word("icmpv6") {
        return Err((scan.line(), "ICMP is only read on its way in: the stack sends no ICMP errors".into()));
    }
    segment(scan, &mut spec)?;
    Ok(spec)
}

/// What stands before the flags: `[…]` for the IP header, and ports.
fn prefix(scan: &mut Scan<'_>, spec: &mut TcpSpec) -> Result<(), Wrong> {
    while scan.takes("[") {
        loop {
            scan.skip();
            match scan.name() {
                "ect0" => spec.ecn = Some(Ecn::Ect0),
                "ect1" => spec.ecn = Some(Ecn::Ect1),
                "ce" => spec.ecn = Some(Ecn::Ce),
                "noecn" => spec.ecn = Some(Ecn::NotEct),
                "ttl" => spec.ttl = Some(scan.int()?),
                "tos" => {
                    let tos: u8 = scan.int()?;
                    if tos > 3 {
                        return Err((
                            scan.line(),
                            "of the TOS byte, only the two bits of ECN are had".into(),
                        ));
                    }
                    spec.ecn = Some(Ecn::from_bits(tos));
                }
                _ => return Err(scan.wrong("noecn, ect0, ect1, ce, tos or ttl")),
            }
            if !scan.takes(",") {
                break;
            }
        }
        scan.needs("]")?;
    }
    scan.skip();
    // A digit alone is a flag: the counter of accurate ECN.
    if scan.sees_number() && scan.ahead(|c| c.is_ascii_digit() || c == ' ') == Some('>') {
        let from = scan.int()?;
        scan.needs(">")?;
        spec.ports = Some((from, scan.int()?));
    }
    if scan.takes_word("udp") {
        return Err((scan.line(), "there is no UDP in this stack".into()));
    }
    Ok(())
}

fn segment(scan: &mut Scan<'_>, spec: &mut TcpSpec) -> Result<(), Wrong> {
    scan.skip();
    let wrong = scan.wrong("flags: any of S F R P . U E W A, a digit for ACE, or -");
    let letters = scan.until(char::is_whitespace);
    if letters.is_empty() {
        return Err(wrong);
    }
    for letter in letters.chars() {
        let known = LETTERS.iter().find(|&&(_, is)| is == letter).map(|&(flag, _)| flag);
        spec.flags |= match (known, letter.to_digit(8), letter) {
            (Some(flag), ..) => flag,
            (None, Some(ace), _) => ace_flags(ace as u8),
            (None, None, 'C') => Flags::CWR,
            (None, None, '-') => Flags::NONE,
            _ => return Err(wrong),
        };
    }
    spec.seq = scan.int()?;
    scan.needs(":")?;
    let end: u32 = scan.int()?;
    scan.needs("(")?;
    spec.len = scan.int()?;
    scan.needs(")")?;
    if spec.seq.wrapping_add(spec.len) != end {
        return Err((scan.line(), format!("{}:{end} is not {} bytes", spec.seq, spec.len)));
    }
    if scan.takes_word("ack") {
        spec.ack = Some(scan.int()?);
    }
    if spec.ack.is_some() != spec.flags.contains(Flags::ACK) {
        return Err((scan.line(), "`ack N` and the flag `.` belong together".into()));
    }
    if scan.takes_word("win") {
        spec.win = Some(scan.int()?);
    }
    if scan.takes_word("urg") {
        spec.urg = Some(scan.int()?);
    }
    spec.options = Some(Vec::new());
    if scan.takes("<") {
        spec.options = options(scan)?;
    }
    Ok(())
}

/// The three bits of accurate ECN's counter (RFC 9768 §3.2.2).
pub(crate) fn ace_flags(ace: u8) -> Flags {
    [(4, Flags::AE), (2, Flags::CWR), (1, Flags::ECE)]
        .into_iter()
        .filter(|(bit, _)| ace & bit != 0)
        .fold(Flags::NONE, |flags, (_, flag)| flags | flag)
}

/// The options up to `>`; `None` for `...`.
fn options(scan: &mut Scan<'_>) -> Result<Option<Vec<Opt>>, Wrong> {
    if scan.takes("...") {
        scan.needs(">")?;
        return Ok(None);
    }
    let mut list = Vec::new();
    if scan.takes(">") {
        return Ok(Some(list));
    }
    loop {
        list.push(option(scan)?);
        if scan.takes(">") {
            return Ok(Some(list));
        }
        scan.needs(",")?;
    }
}

fn option(scan: &mut Scan<'_>) -> Result<Opt, Wrong> {
    scan.skip();
    let wrong =
        scan.wrong("a TCP option: mss, wscale, sackOK, sack, TS, nop, eol, FO, FOEXP, ECN, md5 or kind");
    Ok(match scan.name() {
        "nop" => Opt::Nop,
        "eol" => Opt::End,
        "mss" => Opt::Mss(scan.int()?),
        "wscale" => Opt::WindowScale(scan.int()?),
        "sackOK" => Opt::SackPermitted,
        "sack" => {
            let mut blocks = Vec::new();
            scan.skip();
            while scan.sees_number() {
                let left = scan.int()?;
                scan.needs(":")?;
                blocks.push((left, scan.int()?));
                scan.skip();
            }
            Opt::Sack(blocks)
        }
        "TS" => {
            scan.needs("val")?;
            let val = scan.int()?;
            scan.needs("ecr")?;
            Opt::Timestamps { val, ecr: scan.int()? }
        }
        "FO" => Opt::FastOpen(scan.hex()?),
        "FOEXP" => Opt::FastOpenExperimental(scan.hex()?),
        "md5" => Opt::Md5(scan.hex()?),
        "ECN" => accurate_ecn(scan)?,
        "kind" => Opt::Other(scan.int()?, scan.hex()?),
        _ => return Err(wrong),
    })
}

/// `ECN e1b 1 ceb 0 e0b 1`: the first counter says which of the two orders it is.
fn accurate_ecn(scan: &mut Scan<'_>) -> Result<Opt, Wrong> {
    let (kind, names) = if scan.takes_word("e1b") {
        (ACCECN1, ["ceb", "e0b"])
    } else if scan.takes_word("e0b") {
        (ACCECN0, ["ceb", "e1b"])
    } else {
        return Ok(Opt::AccurateEcn(ACCECN0, Vec::new()));
    };
    let mut counters = vec![scan.int()?];
    for name in names {
        if !scan.takes_word(name) {
            break;
        }
        counters.push(scan.int()?);
    }
    Ok(Opt::AccurateEcn(kind, counters))
}

fn icmp(scan: &mut Scan<'_>, ports: Option<(u16, u16)>) -> Result<IcmpSpec, Wrong> {
    scan.skip();
    let wrong = scan.wrong("unreachable or packet_too_big");
    let code = match scan.name() {
        "unreachable" => unreachable(scan)?,
        "packet_too_big" => Unreachable::FragmentationNeeded { mtu: mtu(scan)? },
        _ => return Err(wrong),
    };
    scan.needs("[")?;
    let seq: u32 = scan.int()?;
    scan.needs(":")?;
    let end: u32 = scan.int()?;
    scan.needs("(")?;
    let len: u32 = scan.int()?;
    scan.needs(")")?;
    scan.needs("]")?;
    if seq.wrapping_add(len) != end {
        return Err((scan.line(), format!("{seq}:{end} is not {len} bytes")));
    }
    Ok(IcmpSpec { ports, code, seq, len })
}

fn mtu(scan: &mut Scan<'_>) -> Result<u32, Wrong> {
    scan.needs("mtu")?;
    scan.int()
}

fn unreachable(scan: &mut Scan<'_>) -> Result<Unreachable, Wrong> {
    scan.skip();
    let wrong = scan.wrong(
        "the kind of unreachable, such as host_unreachable, port_unreachable, frag_needed mtu N or a number",
    );
    if scan.sees_number() {
        return scan.int().map(Unreachable::Other);
    }
    Ok(match scan.name() {
        "net_unreachable" | "no_route" => Unreachable::Network,
        "host_unreachable" | "addr_unreachable" => Unreachable::Host,
        "protocol_unreachable" => Unreachable::Protocol,
        "port_unreachable" => Unreachable::Port,
        "admin_prohibited" | "pkt_filtered" => Unreachable::Prohibited,
        "frag_needed" => Unreachable::FragmentationNeeded { mtu: mtu(scan)? },
        "source_route_failed" => Unreachable::Other(5),
        _ => return Err(wrong),
    })
}
