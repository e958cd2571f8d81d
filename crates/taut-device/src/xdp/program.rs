//! The program that an interface runs for each packet: it gives those of the stack to a socket, and leaves
//! all others to the kernel. Instructions of BPF (RFC 9669). Pure; called by `xdp.rs`.
//!
//! ```text
//!   EtherType? ─ IPv4 ─ destination ─┐
//!              ├ ARP ── target ──────┼─ one of the stack's? ─ yes ─▶ to the socket of this queue, or to the kernel if there is none
//!              ├ IPv6 ─ destination ─┘                      └ no ──▶ to the kernel
//!              └ others, VLAN tags ─────────────────────────────▶ to the kernel
//! ```
//!
//! So an interface that the stack has to itself and one by which the machine is administered are used alike:
//! the kernel keeps its own addresses.

use std::net::{IpAddr, Ipv6Addr};

use taut_wire::{ether_type, ethernet, ndp};

/// Registers. The first is a call's result, the next its arguments; the sixth survives calls.
const RESULT: u8 = 0;
const ARG1: u8 = 1;
const ARG2: u8 = 2;
const ARG3: u8 = 3;
const SCRATCH: u8 = 4;
const VALUE: u8 = 5;
const CONTEXT: u8 = 6;

/// linux/bpf.h: offsets in `struct xdp_md`, a result of the program, a function of the kernel.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;
const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;
/// The source register of an instruction whose value is a map's descriptor.
const IS_MAP: u8 = 1;

/// RFC 9669 §3 to §5: classes, sizes and operations together.
mod op {
    pub(super) const LOAD_WORD: u8 = 0x61;
    pub(super) const LOAD_HALF: u8 = 0x69;
    pub(super) const LOAD_CONSTANT: u8 = 0x18;
    pub(super) const MOVE: u8 = 0xbf;
    pub(super) const MOVE_CONSTANT: u8 = 0xb7;
    pub(super) const ADD_CONSTANT: u8 = 0x07;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const JUMP_IF_GREATER: u8 = 0x2d;
    pub(super) const JUMP_IF_EQUAL: u8 = 0x16;
    pub(super) const JUMP_UNLESS_EQUAL: u8 = 0x56;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
}

const IP_AT: i16 = ethernet::HEADER_LEN as i16;
/// Where an address is in its packet, and how far the headers reach that must be there.
const V4_DST: i16 = IP_AT + 16;
const V4_END: i32 = IP_AT as i32 + 20;
const V6_DST: i16 = IP_AT + 24;
const V6_END: i32 = IP_AT as i32 + 40;
const ARP_TARGET: i16 = IP_AT + 24;
const ARP_END: i32 = IP_AT as i32 + 28;

/// A place that jumps go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    V4,
    Arp,
    V6,
    Take,
    Pass,
    /// Behind the comparison with this address.
    Not(usize),
}

/// Instructions, and the jumps in them that are not resolved yet.
#[derive(Debug, Default)]
struct Code {
    code: Vec<u64>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Code {
    fn op(&mut self, op: u8, dst: u8, src: u8, offset: i16, value: i32) {
        let registers = u64::from(dst) | u64::from(src) << 4;
        let offset = u64::from(offset.cast_unsigned());
        let value = u64::from(value.cast_unsigned());
        self.code.push(u64::from(op) | registers << 8 | offset << 16 | value << 32);
    }

    fn jump(&mut self, op: u8, dst: u8, src: u8, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.op(op, dst, src, 0, value);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    /// Goes on only if the packet has so many bytes in one piece: else the kernel refuses a program that
    /// reads them.
    fn need(&mut self, bytes: i32) {
        self.op(op::MOVE, SCRATCH, ARG2, 0, 0);
        self.op(op::ADD_CONSTANT, SCRATCH, 0, 0, bytes);
        self.jump(op::JUMP_IF_GREATER, SCRATCH, ARG3, 0, Label::Pass);
    }

    /// Takes a packet that has one of these words at this place.
    fn take_words(&mut self, at: i16, words: &[u32]) {
        self.op(op::LOAD_WORD, VALUE, ARG2, at, 0);
        for word in words {
            self.jump(op::JUMP_IF_EQUAL, VALUE, 0, word.cast_signed(), Label::Take);
        }
        self.jump(op::JUMP, 0, 0, 0, Label::Pass);
    }

    /// The packet is the kernel's.
    fn pass(&mut self) {
        self.op(op::MOVE_CONSTANT, RESULT, 0, 0, XDP_PASS);
        self.op(op::EXIT, 0, 0, 0, 0);
    }

    fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let to = self.labels.iter().find(|(other, _)| *other == label).map_or(at + 1, |(_, to)| *to);
            // Jumps go forward, and are counted from the next instruction.
            self.code[at] |= (to.saturating_sub(at + 1) as u64 & 0xffff) << 16;
        }
        self.code
    }
}

/// The instructions for a stack with these addresses, and a map with this descriptor.
pub(super) fn program(addresses: &[IpAddr], map: i32) -> Vec<u64> {
    // As they are in memory.
    let v4: Vec<u32> = addresses.iter().filter_map(v4).map(u32::from_ne_bytes).collect();
    let v6: Vec<Ipv6Addr> =
        addresses.iter().filter_map(v6).flat_map(|own| [own, ndp::solicited_node(own)]).collect();
    let mut code = Code::default();
    if addresses.is_empty() {
        // The kernel refuses instructions that are never reached.
        code.pass();
        return code.finish();
    }
    code.op(op::MOVE, CONTEXT, ARG1, 0, 0);
    code.op(op::LOAD_WORD, ARG2, CONTEXT, DATA, 0);
    code.op(op::LOAD_WORD, ARG3, CONTEXT, DATA_END, 0);
    code.need(V4_END);
    code.op(op::LOAD_HALF, VALUE, ARG2, IP_AT - 2, 0);
    for (kind, label) in
        [(ether_type::IPV4, Label::V4), (ether_type::ARP, Label::Arp), (ether_type::IPV6, Label::V6)]
    {
        code.jump(op::JUMP_IF_EQUAL, VALUE, 0, i32::from(kind.to_be()), label);
    }
    code.jump(op::JUMP, 0, 0, 0, Label::Pass);
    code.label(Label::V4);
    code.take_words(V4_DST, &v4);
    code.label(Label::Arp);
    code.need(ARP_END);
    code.take_words(ARP_TARGET, &v4);
    code.label(Label::V6);
    code.need(V6_END);
    for (index, own) in v6.iter().enumerate() {
        for (part, octets) in own.octets().chunks_exact(4).enumerate() {
            let word = octets.first_chunk().map_or(0, |octets| u32::from_ne_bytes(*octets));
            code.op(op::LOAD_WORD, VALUE, ARG2, V6_DST + 4 * part as i16, 0);
            code.jump(op::JUMP_UNLESS_EQUAL, VALUE, 0, word.cast_signed(), Label::Not(index));
        }
        code.jump(op::JUMP, 0, 0, 0, Label::Take);
        code.label(Label::Not(index));
    }
    code.label(Label::Pass);
    code.pass();
    code.label(Label::Take);
    code.op(op::LOAD_CONSTANT, ARG1, IS_MAP, 0, map);
    code.op(0, 0, 0, 0, 0);
    code.op(op::LOAD_WORD, ARG2, CONTEXT, QUEUE, 0);
    code.op(op::MOVE_CONSTANT, ARG3, 0, 0, XDP_PASS);
    code.op(op::CALL, 0, 0, 0, REDIRECT_MAP);
    code.op(op::EXIT, 0, 0, 0, 0);
    code.finish()
}

fn v4(address: &IpAddr) -> Option<[u8; 4]> {
    match address {
        IpAddr::V4(v4) => Some(v4.octets()),
        IpAddr::V6(_) => None,
    }
}

fn v6(address: &IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(*v6),
    }
}

#[cfg(test)]
mod tests;
