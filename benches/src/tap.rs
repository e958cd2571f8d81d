//! Counts packets that arrive in a namespace, as the stack below IP sees them: a super-packet is one.
//!
//! A packet socket with a filter in the kernel (`packet(7)`, `bpf(2)`'s classic form). Nobody reads the
//! socket: the kernel counts the packets that pass the filter, also those that it then has no room for, and a
//! reader would take a core from what is measured.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use taut_testbed::Kernel;

/// Which of the TCP packets over IPv4 are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those with payload.
    Data,
    /// Those with less payload than this, and some.
    LessThan(u32),
    /// Those whose payload does not divide by this: cut into segments, the last one is smaller than the
    /// others.
    NotWhole(u32),
}

/// Counts packets of one kind.
#[derive(Debug)]
pub struct Tap(OwnedFd);

const fn op(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// The next instruction, or the one after it, depending on the condition.
const fn skip_if(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | code | libc::BPF_K) as u16, jt: 1, jf: 0, k }
}

const fn skip_unless(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { jt: 0, jf: 1, ..skip_if(code, k) }
}

/// A classic BPF program over a packet that begins with its IPv4 header: it returns the number of bytes to
/// keep, 0 for a packet that is not counted.
fn program(which: Which) -> Vec<libc::sock_filter> {
    use libc::*;
    let ignore = op(BPF_RET | BPF_K, 0);
    let mut all = vec![
        // The protocol, which must be TCP.
        op(BPF_LD | BPF_B | BPF_ABS, 9),
        skip_if(BPF_JEQ, IPPROTO_TCP as u32),
        ignore,
        // M[0]: the packet's length, from the header.
        op(BPF_LD | BPF_H | BPF_ABS, 2),
        op(BPF_ST, 0),
        // X: the length of the IP header; A: that of TCP's, in units of four bytes in the upper half of the
        // byte.
        op(BPF_LDX | BPF_B | BPF_MSH, 0),
        op(BPF_LD | BPF_B | BPF_IND, 12),
        op(BPF_ALU | BPF_AND | BPF_K, 0xf0),
        op(BPF_ALU | BPF_RSH | BPF_K, 2),
        op(BPF_ALU | BPF_ADD | BPF_X, 0),
        op(BPF_MISC | BPF_TAX, 0),
        // A: the payload.
        op(BPF_LD | BPF_W | BPF_MEM, 0),
        op(BPF_ALU | BPF_SUB | BPF_X, 0),
        skip_unless(BPF_JEQ, 0),
        ignore,
    ];
    match which {
        Which::Data => {}
        Which::LessThan(bytes) => all.extend([skip_unless(BPF_JGE, bytes), ignore]),
        Which::NotWhole(bytes) => {
            all.extend([op(BPF_ALU | BPF_MOD | BPF_K, bytes), skip_unless(BPF_JEQ, 0), ignore]);
        }
    }
    all.push(op(BPF_RET | BPF_K, 1));
    all
}

impl Tap {
    /// Begins to count what arrives in the kernel's namespace.
    pub fn open(kernel: &Kernel, which: Which) -> Result<Self> {
        kernel.enter(|| Self::open_here(which))?.context("a packet socket")
    }

    fn open_here(which: Which) -> io::Result<Self> {
        let arriving = i32::from((libc::ETH_P_IP as u16).to_be());
        // SAFETY: plain numbers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, arriving) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let tap = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut instructions = program(which);
        let program = libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
        // SAFETY: the kernel copies the program, whose length is given.
        let attached = unsafe {
            libc::setsockopt(
                tap.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of_val(&program) as u32,
            )
        };
        if attached != 0 {
            return Err(io::Error::last_os_error());
        }
        // What arrived before the filter was there counts for nothing.
        tap.take()?;
        Ok(tap)
    }

    /// The number of packets since the last call.
    pub fn take(&self) -> io::Result<u64> {
        // `struct tpacket_stats`: packets, those without room included, and those without room.
        let mut statistics = [0_u32; 2];
        let mut len = size_of_val(&statistics) as u32;
        // SAFETY: the structure has the size given.
        let got = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &mut len,
            )
        };
        if got == 0 { Ok(u64::from(statistics[0])) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program returns for a packet: an interpreter of the instructions that it has.
    fn runs(program: &[libc::sock_filter], packet: &[u8]) -> u32 {
        use libc::*;
        let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, 0_u32, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let byte = |at: u32| u32::from(packet[at as usize]);
            match u32::from(code) {
                code if code == BPF_LD | BPF_B | BPF_ABS => a = byte(k),
                code if code == BPF_LD | BPF_H | BPF_ABS => a = byte(k) << 8 | byte(k + 1),
                code if code == BPF_ST => memory = a,
                code if code == BPF_LDX | BPF_B | BPF_MSH => x = (byte(k) & 0xf) * 4,
                code if code == BPF_LD | BPF_B | BPF_IND => a = byte(x + k),
                code if code == BPF_ALU | BPF_AND | BPF_K => a &= k,
                code if code == BPF_ALU | BPF_RSH | BPF_K => a >>= k,
                code if code == BPF_ALU | BPF_ADD | BPF_X => a += x,
                code if code == BPF_ALU | BPF_SUB | BPF_X => a -= x,
                code if code == BPF_ALU | BPF_MOD | BPF_K => a %= k,
                code if code == BPF_MISC | BPF_TAX => x = a,
                code if code == BPF_LD | BPF_W | BPF_MEM => a = memory,
                code if code == BPF_JMP | BPF_JEQ | BPF_K => at += usize::from(if a == k { jt } else { jf }),
                code if code == BPF_JMP | BPF_JGE | BPF_K => at += usize::from(if a >= k { jt } else { jf }),
                code if code == BPF_RET | BPF_K => return k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    /// A packet with a TCP header of 32 bytes, as one with timestamps has.
    fn packet(protocol: u8, payload: u16) -> Vec<u8> {
        let mut bytes = vec![0; 52];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&(52 + payload).to_be_bytes());
        bytes[9] = protocol;
        bytes[32] = 8 << 4;
        bytes
    }

    #[test]
    fn the_filters_tell_packets_by_their_payload() {
        const MSS: u32 = 1_448;
        let counted = |which, payload| runs(&program(which), &packet(6, payload)) > 0;
        for (payload, data, less, not_whole) in [
            (0, false, false, false),
            (1, true, true, true),
            (1_447, true, true, true),
            (1_448, true, false, false),
            (1_449, true, false, true),
            (45 * 1_448, true, false, false),
            (45 * 1_448 + 1, true, false, true),
        ] {
            let all = [Which::Data, Which::LessThan(MSS), Which::NotWhole(MSS)];
            assert_eq!(all.map(|which| counted(which, payload)), [data, less, not_whole], "{payload} bytes");
        }
        assert_eq!(runs(&program(Which::Data), &packet(17, 100)), 0, "UDP");
    }

    #[test]
    fn packets_that_arrive_are_counted() {
        use std::io::{Read as _, Write as _};
        let Ok(kernel) = Kernel::new() else {
            println!("skipped: no namespaces");
            return;
        };
        let [data, small] =
            [Which::Data, Which::LessThan(1_000)].map(|which| Tap::open(&kernel, which).unwrap());
        kernel
            .enter(|| {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (mut far, _) = listener.accept().unwrap();
                // Each is read before the next is written, so each is a packet, and fills no socket buffer.
                for len in [100, 3_000, 999, 1_000] {
                    near.write_all(&vec![0; len]).unwrap();
                    far.read_exact(&mut vec![0; len]).unwrap();
                }
            })
            .unwrap();
        assert_eq!((data.take().unwrap(), small.take().unwrap()), (4, 2));
        assert_eq!(data.take().unwrap(), 0);
    }
}
