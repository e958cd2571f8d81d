use super::*;

/// The result of a program.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The packet is the kernel's.
    Pass,
    /// It goes to the socket of this queue in the map with this descriptor.
    Redirect { map: i32, queue: u64, otherwise: u64 },
}

const MAP: i32 = 7;
const AT: u64 = 0x1000;

/// Runs instructions as RFC 9669 says, with the context of `struct xdp_md`, on a packet from queue 3. Reads
/// outside of what the program has compared with the packet's end are the kernel's to refuse; here they are
/// outside of the packet.
fn run(code: &[u64], packet: &[u8]) -> Outcome {
    let mut registers = [0u64; 11];
    registers[1] = u64::MAX; // the context
    let (mut at, mut steps) = (0, 0);
    loop {
        steps += 1;
        assert!(steps <= code.len(), "it goes forward only");
        let word = code[at];
        at += 1;
        let (op, dst, src) = (word as u8, (word >> 8 & 15) as usize, (word >> 12 & 15) as usize);
        let (offset, value) = ((word >> 16) as u16 as i16, (word >> 32) as u32 as i32);
        let jump = match op {
            0x61 | 0x69 if registers[src] == u64::MAX => {
                registers[dst] = match offset {
                    0 => AT,
                    4 => AT + packet.len() as u64,
                    16 => 3,
                    other => panic!("context at {other}"),
                };
                false
            }
            0x61 | 0x69 => {
                let from = (registers[src] - AT) as usize + offset as usize;
                let bytes = &packet[from..from + if op == 0x61 { 4 } else { 2 }];
                registers[dst] = bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                false
            }
            0x18 => {
                assert_eq!((src, code[at]), (1, 0), "a map, in two instructions");
                registers[dst] = value as u64;
                at += 1;
                false
            }
            0xbf => {
                registers[dst] = registers[src];
                false
            }
            0xb7 => {
                registers[dst] = value as i64 as u64;
                false
            }
            0x07 => {
                registers[dst] = registers[dst].wrapping_add(value as i64 as u64);
                false
            }
            0x05 => true,
            0x2d => registers[dst] > registers[src],
            0x16 => registers[dst] as u32 == value as u32,
            0x56 => registers[dst] as u32 != value as u32,
            0x85 => {
                assert_eq!(value, 51, "bpf_redirect_map");
                let (map, queue, otherwise) = (registers[1] as i32, registers[2], registers[3]);
                assert_eq!(code[at] as u8, 0x95, "its result is the program's");
                return Outcome::Redirect { map, queue, otherwise };
            }
            0x95 => {
                assert_eq!(registers[0], 2, "XDP_PASS");
                return Outcome::Pass;
            }
            other => panic!("instruction {other:#x}"),
        };
        if jump {
            at += offset as usize;
        }
    }
}

fn frame(kind: u16, len: usize, at: usize, address: &str) -> Vec<u8> {
    let mut frame = vec![0x5a; len];
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    let octets = match address.parse().unwrap() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    frame[at..at + octets.len()].copy_from_slice(&octets);
    frame
}

/// The offsets are those of RFC 791, RFC 826 and RFC 8200, behind the 14 bytes of Ethernet.
#[test]
fn dev_07_only_packets_for_the_stacks_addresses_are_taken() {
    let addresses: Vec<IpAddr> =
        ["10.9.0.2", "200.1.2.3", "fd09::2", "fd09::a1:b2c3"].map(|text| text.parse().unwrap()).to_vec();
    let code = program(&addresses, MAP);
    let v4 = |to: &str| frame(0x0800, 60, 30, to);
    let arp = |target: &str| frame(0x0806, 42, 38, target);
    let v6 = |to: &str| frame(0x86dd, 74, 38, to);
    let taken = Outcome::Redirect { map: MAP, queue: 3, otherwise: 2 };
    for (what, packet) in [
        ("IPv4", v4("10.9.0.2")),
        ("IPv4, a high bit", v4("200.1.2.3")),
        ("ARP", arp("10.9.0.2")),
        ("ARP", arp("200.1.2.3")),
        ("IPv6", v6("fd09::2")),
        ("IPv6", v6("fd09::a1:b2c3")),
        ("a solicitation's group, RFC 4291 §2.7.1", v6("ff02::1:ff00:2")),
        ("the other's", v6("ff02::1:ffa1:b2c3")),
    ] {
        assert_eq!(run(&code, &packet), taken, "{what}");
    }
    for (what, packet) in [
        ("another's", v4("10.9.0.1")),
        ("another's", arp("10.9.0.1")),
        ("another's", v6("fd09::1")),
        ("half of one and half of the next", v6("fd09::b2c3")),
        ("all nodes", v6("ff02::1")),
        ("a VLAN", frame(0x8100, 60, 30, "10.9.0.2")),
        ("IPv4 without an address", v4("10.9.0.2")[..33].to_vec()),
        ("ARP without a target", arp("10.9.0.2")[..41].to_vec()),
        ("IPv6 without an address", v6("fd09::2")[..53].to_vec()),
        ("nothing", Vec::new()),
    ] {
        assert_eq!(run(&code, &packet), Outcome::Pass, "{what}");
    }
}

#[test]
fn a_stack_of_one_family_leaves_the_other_to_the_kernel() {
    let code = program(&["10.9.0.2".parse().unwrap()], MAP);
    assert_eq!(run(&code, &frame(0x86dd, 74, 38, "fd09::2")), Outcome::Pass);
    let code = program(&["fd09::2".parse().unwrap()], MAP);
    assert_eq!(run(&code, &frame(0x0800, 60, 30, "10.9.0.2")), Outcome::Pass);
    assert_eq!(run(&code, &frame(0x0806, 42, 38, "10.9.0.2")), Outcome::Pass);
    let code = program(&[], MAP);
    assert_eq!(
        (run(&code, &frame(0x0800, 60, 30, "10.9.0.2")), code.len()),
        (Outcome::Pass, 2),
        "none is unreachable"
    );
}
