//! Lines between two ends: a slow uplink, a router with a smaller MTU, marks.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use taut::blocking::{TcpListener, TcpStream};
use taut_testbed::{Kernel, Raise, Subnet, live};
use taut_wireguard::WireGuard;

use crate::support::{ADDRESSES, ALLOWED, End, Fate, Host, Relay, pair, same, transfer, until};

/// Two ends, each in a namespace; the first has the address of the second.
fn ends(here: &Kernel, there: &Kernel, at: &str) -> [Host; 2] {
    let mut ends = [0, 1].map(|at| End::new(ADDRESSES[at]));
    let keys = [ends[0].key.clone(), ends[1].key.clone()];
    ends[1].trusts(&keys[0], ALLOWED[0]);
    ends[1].own += "\nListenPort = 51820";
    ends[0].trusts(&keys[1], &format!("{}\nEndpoint = {at}:51820", ALLOWED[1]));
    let open = |kernel: &Kernel, end: &End| kernel.enter(|| WireGuard::open(&end.config())).unwrap().unwrap();
    [Host::of(open(here, &ends[0])), Host::of(open(there, &ends[1]))]
}

/// Above 20 Mbit/s with room for 250 kB, which a sender without small queues fills: 100 ms.
#[test]
fn wg_26_the_queue_below_the_tunnel_is_small() {
    if !live::ready(&["tc"]) {
        return;
    }
    let (here, there) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    here.veth(&there, Subnet(71), 1500).unwrap();
    here.limit_rate("veth0", 20_000_000, 10_000, 250_000).unwrap();
    let [one, two] = ends(&here, &there, &Subnet(71).far_v4().to_string());
    let listener = TcpListener::bind(&two.stack, "10.77.0.2:80").unwrap();
    let mut stream = TcpStream::connect(&one.stack, "10.77.0.2:80").unwrap();
    let mut far = listener.accept().unwrap().0;
    let observed = stream.try_clone().unwrap();
    let is_over = AtomicBool::new(false);
    let mut samples = Vec::new();
    thread::scope(|scope| {
        let over = Raise(&is_over);
        scope.spawn(|| _ = std::io::copy(&mut far, &mut std::io::sink()));
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                stream.write_all(&[7; 64 << 10]).unwrap();
            }
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        thread::sleep(Duration::from_secs(2));
        for _ in 0..40 {
            samples.push(here.backlog_bytes("veth0").unwrap());
            thread::sleep(Duration::from_millis(25));
        }
        drop(over);
        let info = observed.info().unwrap();
        assert_eq!(info.tsq_rule, "measured");
        assert!(info.bytes_acked > 4_000_000, "{} bytes in 3 s", info.bytes_acked);
    });
    samples.sort_unstable();
    let (median, most) = (samples[samples.len() / 2], samples[samples.len() - 1]);
    // Two packets and a millisecond of the rate are 5.4 kB; completions are looked at each millisecond.
    assert!(median < 25_000 && most < 60_000, "median {median}, most {most} bytes");
    until("tickets", || observed.info().unwrap().wmem_alloc == 0);
}

/// A router in the middle, to a link of 1400 bytes.
#[test]
fn wg_27_a_smaller_path_makes_inner_packets_smaller() {
    let [here, router, there] = [(); 3].map(|()| Kernel::new().unwrap());
    if !live::ready(&["ip"]) {
        return;
    }
    here.veth(&router, Subnet(72), 1500).unwrap();
    for line in
        ["ip link set veth0 name up0", "ip link set up0 up", "ip address replace 10.72.0.1/24 dev up0"]
    {
        // A name may change while the interface is down only.
        _ = router.run("ip link set veth0 down");
        router.run(line).unwrap();
    }
    router.veth(&there, Subnet(73), 1400).unwrap();
    router.set_sysctl("ip_forward", "1").unwrap();
    here.run("ip route add default via 10.72.0.1").unwrap();
    there.run("ip route add default via 10.73.0.2").unwrap();
    let [one, two] = ends(&here, &there, &Subnet(73).far_v4().to_string());
    transfer(&one.stack, &two.stack, "10.77.0.2:80", 1_000_000);
    // 1400 without 20 + 8 + 32.
    assert_eq!(one.monitor.status().peers[0].mtu, 1_340);
    transfer(&two.stack, &one.stack, "10.77.0.1:80", 1_000_000);
    transfer(&one.stack, &two.stack, "[fd77::2]:80", 100_000);
    assert_eq!(two.monitor.status().peers[0].mtu, 1_340);
}

/// A router marks the outer headers of data.
#[test]
fn wg_28_marks_reach_the_inner_sender() {
    let mut relay = None;
    let [one, two] = pair(["", ""], |at: SocketAddr| {
        let large: Fate = Box::new(|datagram| vec![datagram.to_vec()]);
        let new = Relay::marking(at, [large, same()], 1_000);
        let at = new.at;
        relay = Some(new);
        at
    });
    for host in [&one, &two] {
        host.stack.set_sysctl("net.ipv4.tcp_ecn", "1").unwrap();
    }
    let listener = TcpListener::bind(&two.stack, "10.77.0.2:80").unwrap();
    let stream = TcpStream::connect(&one.stack, "10.77.0.2:80").unwrap();
    let mut far = listener.accept().unwrap().0;
    let mut writer = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&vec![7; 200_000]).unwrap());
        far.read_exact(&mut vec![0; 200_000]).unwrap();
    });
    until("acknowledged", || stream.info().unwrap().bytes_acked == 200_000);
    let info = stream.info().unwrap();
    assert!(info.delivered_ce > 0, "marks came back");
    assert_eq!(two.monitor.status().drops.congestion, 0);
    // Without ECN, a mark is a loss: the inner packet takes none.
    one.stack.set_sysctl("net.ipv4.tcp_ecn", "0").unwrap();
    let mut plain = TcpStream::connect(&one.stack, "10.77.0.2:80").unwrap();
    _ = listener.accept().unwrap();
    plain.write_all(&[7; 5_000]).unwrap();
    until("dropped", || two.monitor.status().drops.congestion > 0);
    plain.abort();
    drop(relay);
}

/// Nothing ticks: after a transfer, the threads of two tunnels wake up for deadlines only.
#[test]
#[ignore = "a minute: make wireguard"]
fn wg_29_an_idle_tunnel_does_not_wake_up() {
    let [one, two] = pair(["", ""], |at| at);
    transfer(&one.stack, &two.stack, "10.77.0.2:80", 1_000_000);
    // TIME-WAIT is over, and the keepalive that follows the last data.
    thread::sleep(Duration::from_secs(75));
    let before = switches();
    thread::sleep(Duration::from_secs(30));
    let count = switches() - before;
    assert!(count <= 6, "{count} in 30 s of two tunnels: at most one in 10 s each");
}

/// How often the threads of stacks have gone to sleep.
fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |task: std::fs::DirEntry| -> u64 {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        if name.starts_with("taut") {
            count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
        } else {
            0
        }
    };
    tasks.map(|task| of(task.unwrap())).sum()
}
