//! ECN with the kernel's TCP, classic and accurate, over a path that marks and counts packets: the kind of
//! ECN that is agreed on, and that both ends count every mark. RFC 3168, RFC 9768.
//!
//! Linux 6.18 implements RFC 9768, but it cannot be switched on: `tcp_ecn` ends at 2 there. But the kernel
//! enters it by itself in two ways: as a client when the SYN-ACK says so, whatever it had requested; and as a
//! server with SYN cookies, when the ACK of the handshake says so. If `tcp_ecn` cannot be 3, the path brings
//! this about by changing the ECN flags of SYNs ([`interpreter`]); everything after that is the kernel's own
//! behaviour.

use crate::marker;
use crate::net;

use std::io::{Read, Write};
use std::net::{TcpListener as KernelListener, TcpStream as KernelStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use marker::{Count, Direction, KernelInfo, Path, To, lock, marker};
use net::{digest_of, send_noise};
use taut::blocking::{TcpListener, TcpStream};

use taut::Stack;
use taut::device::TunOptions;
use taut::observe::ConnInfo;
use taut_testbed::{Kernel, Subnet, live};
use taut_wire::{AccEcn, Ecn, Flags, TcpHeader};

const BYTES: usize = 4 << 20;
/// The initial counters of both ends (RFC 9768 §3.2.1).
const FIRST: AccEcn = AccEcn { ee0b: Some(1), eceb: Some(0), ee1b: Some(1) };

/// A stack and a kernel with a marking path between them.
struct Net {
    stack: Stack,
    kernel: Kernel,
    path: Arc<Mutex<Path>>,
}

impl Net {
    /// `None` if this machine's kernel is too old, which is no reason to fail.
    fn new(tcp_ecn: u8, algorithm: &str) -> Option<Self> {
        if !live::ready(&[]) {
            return None;
        }
        if !std::fs::exists("/proc/sys/net/ipv4/tcp_ecn_option").unwrap() {
            _ = writeln!(std::io::stderr(), "\nskipped: this kernel does not support accurate ECN");
            return None;
        }
        let kernel = Kernel::new().unwrap();
        let path = Arc::new(Mutex::new(Path::default()));
        let tun =
            kernel.tun(&Subnet(7).far(), &TunOptions { offload: false, ..TunOptions::default() }).unwrap();
        let stack = Stack::builder()
            .device(marker(tun, &path))
            .address("10.7.0.2/24")
            .set_sysctl("tcp_ecn", &tcp_ecn.to_string())
            .set_sysctl("tcp_congestion_control", algorithm)
            .build()
            .unwrap();
        Some(Self { stack, kernel, path })
    }

    /// A kernel that supports accurate ECN, by itself or with the help of [`interpreter`].
    fn accurate(algorithm: &str) -> Option<Self> {
        let net = Self::new(3, algorithm)?;
        if net.kernel.set_sysctl("tcp_ecn", "3").is_err() {
            net.kernel.set_sysctl("tcp_ecn", "1").unwrap();
            net.kernel.set_sysctl("tcp_syncookies", "2").unwrap();
            lock(&net.path).tamper = Some(interpreter);
        }
        Some(net)
    }

    /// Marks one of this many data packets, in each direction.
    fn mark(&self, to_kernel: u32, to_stack: u32) {
        let mut path = lock(&self.path);
        path.to_kernel.mark_each = to_kernel;
        path.to_stack.mark_each = to_stack;
    }

    fn connect(&self, stack_connects: bool) -> (TcpStream, KernelStream) {
        if stack_connects {
            let listener = self.kernel.enter(|| KernelListener::bind("10.7.0.1:0").unwrap()).unwrap();
            let ours = TcpStream::connect(&self.stack, listener.local_addr().unwrap()).unwrap();
            (ours, listener.accept().unwrap().0)
        } else {
            let listener = TcpListener::bind(&self.stack, "10.7.0.2:0").unwrap();
            let at = listener.local_addr().unwrap();
            let kernels = self.kernel.enter(|| KernelStream::connect(at).unwrap()).unwrap();
            (listener.accept().unwrap().0, kernels)
        }
    }

    fn run(&self, stack_connects: bool, bytes: usize) -> Outcome {
        let (ours, kernels) = self.connect(stack_connects);
        exchange(&ours, &kernels, 1);
        exchange(&ours, &kernels, bytes);
        let (info, kernel) = settled(&ours, &kernels);
        let mut path = lock(&self.path);
        let taken = std::mem::take(&mut *path);
        path.tamper = taken.tamper;
        Outcome { info, kernel, to_kernel: taken.to_kernel, to_stack: taken.to_stack }
    }
}

/// The final state of an exchange, when everything has been acknowledged.
struct Outcome {
    info: ConnInfo,
    kernel: KernelInfo,
    to_kernel: Direction,
    to_stack: Direction,
}

/// Sends noise in both directions, one after the other, and compares it.
fn exchange(ours: &TcpStream, kernels: &KernelStream, bytes: usize) {
    one_way(ours, kernels, bytes);
    one_way(kernels, ours, bytes);
}

fn one_way(from: impl Write, to: impl Read + Send, bytes: usize) {
    let (sent, got) = thread::scope(|scope| {
        let reader = scope.spawn(move || digest_of(to.take(bytes as u64)));
        (send_noise(from, bytes, bytes as u64), reader.join().unwrap())
    });
    assert_eq!(got, (bytes, sent));
}

/// Waits until nothing is in flight.
fn settled(ours: &TcpStream, kernels: &KernelStream) -> (ConnInfo, KernelInfo) {
    for _ in 0..6_000 {
        let (info, kernel) = (ours.info().unwrap(), KernelInfo::of(kernels).unwrap());
        if info.unacked == 0 && kernel.unacked == 0 {
            return (info, kernel);
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("something is never acknowledged");
}

/// Makes a kernel request accurate ECN and agree to it, although its settings do not allow that. See the top
/// of this file.
fn interpreter(to: To, header: &mut TcpHeader, _: &mut Ecn) {
    let flags = header.flags;
    if to == To::Kernel || !flags.contains(Flags::SYN) {
        return;
    }
    let agrees = flags.contains(Flags::ACK | Flags::ECE) && !flags.contains(Flags::CWR);
    let asks = flags.contains(Flags::ECE | Flags::CWR) && !flags.contains(Flags::ACK);
    if agrees {
        // "Agreed, and your SYN came as not capable": table 2.
        header.flags = flags.without(Flags::ECE) | Flags::CWR;
    } else if asks {
        header.flags = flags | Flags::AE;
    }
}

#[test]
fn both_ends_count_every_mark() {
    for (algorithm, stack_connects) in
        ["cubic", "dctcp", "prague"].into_iter().flat_map(|name| [(name, true), (name, false)])
    {
        let Some(net) = Net::accurate(algorithm) else { return };
        net.mark(37, 23);
        let Outcome { info, kernel, to_kernel, to_stack } = net.run(stack_connects, BYTES);
        let what = format!("{algorithm}, stack connects: {stack_connects}, {info:?}, {kernel:?}");
        assert!(info.ecn && info.ecn_seen && kernel.ecn && kernel.ecn_seen, "{what}");
        // 4 MiB in segments of 1,448 bytes, or 1,436 beside the option: 2,897 to 2,921.
        assert!((78..=79).contains(&to_kernel.ce.packets), "{:?}", to_kernel.ce);
        assert!((125..=128).contains(&to_stack.ce.packets), "{:?}", to_stack.ce);
        // The packets that we sent: as the path marked them, as the kernel received them, as we count them.
        assert_eq!(kernel.received_ce, to_kernel.ce.packets, "{what}");
        counts_bytes(kernel.received_bytes, &to_kernel);
        assert_eq!(info.delivered_ce, to_kernel.ce.packets, "{what}");
        // And those that the kernel sent.
        assert_eq!(net.stack.counters().in_ce_pkts, u64::from(to_stack.ce.packets), "{what}");
        assert_eq!(kernel.delivered_bytes, bytes(&to_stack), "{what}");
        assert_eq!(kernel.delivered_ce, to_stack.ce.packets, "{what}");
        // RFC 9331 §4.1: a sender that accepts early marks sends ECT(1).
        let (said, unsaid) = if algorithm == "prague" {
            (to_kernel.ect1, to_kernel.ect0)
        } else {
            (to_kernel.ect0, to_kernel.ect1)
        };
        assert!(said.packets > 2_700 && unsaid == Count::default(), "{said:?}, {unsaid:?}");
    }
}

/// The kernel has counted the bytes of every new packet by its mark, and beside them at most those of
/// retransmissions: see `Path::pass`.
fn counts_bytes(counted: [u32; 3], sent: &Direction) {
    let new = bytes(sent);
    let more: u32 = counted.iter().zip(new).map(|(counted, new)| counted.saturating_sub(new)).sum();
    let all = counted.iter().zip(new).all(|(counted, new)| *counted >= new);
    assert!(all && more <= sent.again && counted[2] == sent.ce.bytes, "{counted:?}, {sent:?}");
}

fn bytes(direction: &Direction) -> [u32; 3] {
    [direction.ect1.bytes, direction.ect0.bytes, direction.ce.bytes]
}

#[test]
fn the_handshake_on_the_wire() {
    for stack_connects in [true, false] {
        let Some(net) = Net::accurate("cubic") else { return };
        // A kernel that agrees by itself sends the option; with SYN cookies it does not.
        let own = lock(&net.path).tamper.is_none();
        let (ours, kernels) = net.connect(stack_connects);
        exchange(&ours, &kernels, 1_000);
        settled(&ours, &kernels);
        let path = lock(&net.path);
        let (asking, agreeing) = if stack_connects {
            (&path.to_kernel, &path.to_stack)
        } else {
            (&path.to_stack, &path.to_kernel)
        };
        let (ask, agree, ack) = (&asking.first[0], &agreeing.first[0], &asking.first[1]);
        assert_eq!(ask.flags, Flags::SYN | Flags::AE | Flags::CWR | Flags::ECE);
        assert_eq!((ask.option, ask.mark), (None, Ecn::NotEct), "{ask:?}");
        // Table 2: 010, the SYN was not capable; §3.2.3.2.1: with the option.
        assert_eq!(agree.flags, Flags::SYN | Flags::ACK | Flags::CWR);
        assert_eq!(agree.option, (own || !stack_connects).then_some(FIRST), "{agree:?}");
        // Table 3: 010, the SYN-ACK was not, either.
        assert_eq!((ack.flags, ack.option, ack.len), (Flags::ACK | Flags::CWR, Some(FIRST), 0), "{ack:?}");
        // From then on both count from 5.
        for direction in [&path.to_kernel, &path.to_stack] {
            let data = direction.first.iter().find(|seen| seen.len > 0).unwrap();
            let ace = data.flags & (Flags::AE | Flags::CWR | Flags::ECE);
            assert_eq!((ace, data.mark), (Flags::AE | Flags::ECE, Ecn::Ect0), "{data:?}");
        }
    }
}

/// The interpreter, on a path that marks the SYN-ACK.
fn marks_the_syn_ack(to: To, header: &mut TcpHeader, mark: &mut Ecn) {
    interpreter(to, header, mark);
    if header.flags.contains(Flags::SYN | Flags::ACK) {
        *mark = Ecn::Ce;
    }
}

/// The interpreter, on a path that marks the SYN.
fn marks_the_syn(to: To, header: &mut TcpHeader, mark: &mut Ecn) {
    interpreter(to, header, mark);
    if header.flags.contains(Flags::SYN) && !header.flags.contains(Flags::ACK) {
        *mark = Ecn::Ce;
    }
}

#[test]
fn marks_on_the_handshake() {
    // RFC 9768 §3.2.2.2: a marked SYN-ACK is reported by its ACK and counted by both ends, from 5 to 6.
    for stack_connects in [true, false] {
        let Some(net) = Net::accurate("cubic") else { return };
        lock(&net.path).tamper = Some(marks_the_syn_ack);
        net.mark(37, 23);
        let Outcome { info, kernel, to_kernel, to_stack } = net.run(stack_connects, BYTES);
        let ack = if stack_connects { &to_kernel.first[1] } else { &to_stack.first[1] };
        assert_eq!(ack.flags, Flags::ACK | Flags::AE | Flags::CWR, "{ack:?}");
        assert_eq!(kernel.received_ce, to_kernel.ce.packets, "{kernel:?}");
        let told = info.delivered_ce;
        if stack_connects {
            // Linux 6.18 then takes the path for broken and sends no options; without them, the counts are
            // known only modulo eight.
            assert!(told >= to_kernel.ce.packets && (told - to_kernel.ce.packets) % 8 == 0, "{info:?}");
        } else {
            // §3.2.2.3: it was not ECN-capable when it left, and from now on no packet is.
            assert_eq!((told, to_kernel.ce.packets, to_kernel.ect0.packets), (1, 1, 0), "{to_kernel:?}");
            assert_eq!(kernel.delivered_ce, to_stack.ce.packets, "{kernel:?}");
        }
    }
    // A marked SYN is reported by the SYN-ACK, and not counted.
    let Some(net) = Net::accurate("cubic") else { return };
    lock(&net.path).tamper = Some(marks_the_syn);
    net.mark(37, 23);
    let Outcome { info, kernel, to_kernel, to_stack } = net.run(false, BYTES);
    let agree = &to_kernel.first[0];
    assert_eq!(agree.flags, Flags::SYN | Flags::ACK | Flags::AE | Flags::CWR, "{agree:?}");
    assert_eq!(net.stack.counters().in_ce_pkts, u64::from(to_stack.ce.packets));
    assert_eq!(kernel.delivered_ce, to_stack.ce.packets - 1, "{kernel:?}");
    assert_eq!(info.delivered_ce, to_kernel.ce.packets, "{info:?}");
}

#[test]
fn few_options_or_none() {
    // 0 never, 1 where RFC 9768 needs it most; for both ends.
    for (option, beacon) in [("0", "3"), ("1", "0"), ("1", "3"), ("2", "3"), ("3", "3")] {
        let Some(net) = Net::accurate("cubic") else { return };
        net.stack.set_sysctl("tcp_ecn_option", option).unwrap();
        net.stack.set_sysctl("tcp_ecn_option_beacon", beacon).unwrap();
        // Linux 6.18 has no 3.
        _ = net.kernel.set_sysctl("tcp_ecn_option", option);
        net.kernel.set_sysctl("tcp_ecn_option_beacon", beacon).unwrap();
        net.mark(150, 150);
        let Outcome { info, kernel, to_kernel, to_stack } = net.run(true, BYTES);
        assert_eq!((to_stack.with_option == 0, to_kernel.with_option == 0), (option == "0", option == "0"));
        // While an application has the kernel's socket, ACKs that arrive are merged: more packets for one ACK
        // than the path has seen.
        let merged = net.kernel.counters().unwrap()["TcpExtTCPBacklogCoalesce"];
        for (sent, back, told, merged) in [
            (&to_kernel, &to_stack, info.delivered_ce, 0),
            (&to_stack, &to_kernel, kernel.delivered_ce, merged),
        ] {
            let marked = sent.ce.packets;
            // §3.2.2.5.2: if the three bits may have wrapped, the sender assumes that they did.
            let most = match merged {
                _ if option >= "2" => marked,
                0 => marked + back.ambiguous,
                _ => sent.data,
            };
            assert!(
                (marked..=most).contains(&told) && (told - marked) % 8 == 0,
                "option {option}: {told}, {marked} to {most}"
            );
        }
        // §3.2.3: the counters are correct, however rarely they are sent.
        counts_bytes(kernel.received_bytes, &to_kernel);
        let [_, ect0, ce] = kernel.delivered_bytes;
        assert!(ect0 <= to_stack.ect0.bytes && ce <= to_stack.ce.bytes, "{kernel:?}");
    }
}

#[test]
fn every_pair_of_settings() {
    for (ours, kernels) in (0..=5_u8).flat_map(|ours| (0..=2_u8).map(move |kernels| (ours, kernels))) {
        let Some(net) = Net::new(ours, "cubic") else { return };
        net.kernel.set_sysctl("tcp_ecn", &kernels.to_string()).unwrap();
        for stack_connects in [true, false] {
            net.mark(10, 10);
            let Outcome { info, kernel, to_kernel, to_stack } = net.run(stack_connects, 256 << 10);
            let (asks, accepts) = if stack_connects {
                ([1, 3, 4].contains(&ours), kernels != 0)
            } else {
                (kernels == 1, ours != 0)
            };
            // A host that does not know accurate ECN takes its SYN for one of RFC 3168 (RFC 9768 table 2).
            let on = asks && accepts;
            let what = format!("{ours}, {kernels}, stack connects: {stack_connects}, {info:?}, {kernel:?}");
            assert_eq!((info.ecn, kernel.ecn), (on, on), "{what}");
            assert_eq!(to_kernel.ce.packets > 10, on, "{what}");
            assert_eq!(to_stack.ce.packets > 10, on, "{what}");
            assert_eq!(kernel.received_ce, to_kernel.ce.packets, "{what}");
            // RFC 3168 §6.1.2: a sender that learns of a mark answers with CWR, and the echo ends.
            assert_eq!((to_kernel.cwr > 0, to_stack.cwr > 0), (on, on), "{what}");
            assert_eq!((to_kernel.with_option, to_stack.with_option), (0, 0), "{what}");
        }
    }
}
