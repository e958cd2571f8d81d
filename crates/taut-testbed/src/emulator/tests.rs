use std::net::IpAddr;

use taut_core::LinkCaps;

use super::*;

const START: Instant = Instant::from_nanos(7_000_000_000);

fn at_us(us: u64) -> Instant {
    START + Duration::from_micros(us)
}

/// A port, and its other end.
fn port() -> (Port, Pipe) {
    let (port, end) = taut_device::pipe(LinkCaps::plain(1_500), 1 << 20).unwrap();
    (Port::Pipe(port), end)
}

/// A TCP packet of 1462 bytes between hosts of 10.9.0.0/24: 1500 on a wire.
fn packet(from: u8, to: u8) -> Vec<u8> {
    let mut bytes = vec![0; 1_462];
    bytes[0] = 0x45;
    bytes[8..10].copy_from_slice(&[64, 6]);
    bytes[12..20].copy_from_slice(&[10, 9, 0, from, 10, 9, 0, to]);
    bytes[32] = 0x50;
    raw::set_len(&mut bytes, 1_462);
    bytes
}

fn send(end: &Pipe, packet: &[u8]) {
    let (header, payload) = packet.split_at(40);
    let payload = Gather::from(payload);
    end.put(&TxPacket { header, payload, offload: Offload::None, departure: Instant::ZERO }).unwrap();
}

/// The packets that have come to this end.
fn come(end: &Pipe) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; BUFFER_BYTES];
    std::iter::from_fn(|| end.recv(&mut buffer).map(|received| buffer[received.range].to_vec())).collect()
}

/// Counts drops.
#[derive(Default)]
struct Drops(u64);

impl Watch for Drops {
    fn on_taken(&mut self, _packet: &Taken) {}
    fn on_dropped(&mut self, packets: u64) {
        self.0 += packets;
    }
}

/// A direction with a line of 100 Mbit/s, which has taken so many packets at `START`.
fn way(packets: usize, policer: Option<PolicerSpec>, steps: &[(Instant, Rate)]) -> (Way, Arc<Mutex<Drops>>) {
    let line: QdiscSpec = "tbf rate 100mbit burst 0 | pfifo limit 100".parse().unwrap();
    let watcher = Arc::<Mutex<Drops>>::default();
    let mut way = Way {
        policer: policer.map(Policer::new),
        queues: vec![line.build(1)],
        steps: steps.iter().copied().collect(),
        watcher: Arc::clone(&watcher) as Watcher,
        at: Instant::ZERO,
        is_network: true,
        held: None,
    };
    let (mut port, end) = port();
    let mut buffer = vec![0; BUFFER_BYTES];
    for _ in 0..packets {
        send(&end, &packet(2, 1));
        let received = port.recv(&mut buffer).unwrap();
        way.take(START, &buffer, &received);
    }
    (way, watcher)
}

#[test]
fn a_line_changes_its_rate_when_it_is_due() {
    // Half of the second packet is sent when the rate falls to 20 Mbit/s; the rest takes 400 ns a byte.
    let (mut way, _) = way(3, None, &[(at_us(180), "20mbit".parse().unwrap())]);
    let (out, end) = port();
    let mut left = Vec::new();
    let mut now = START;
    while let Some(next) = way.run(now, &out) {
        left.extend(come(&end).iter().map(|_| now.since(START).as_micros()));
        now = next;
    }
    left.extend(come(&end).iter().map(|_| now.since(START).as_micros()));
    assert_eq!(left, [120, 480, 1_080]);
    // A thread that comes late changes nothing but when it delivers.
    let (mut way, _) = self::way(3, None, &[(at_us(180), "20mbit".parse().unwrap())]);
    assert_eq!(way.run(at_us(1_079), &out), Some(at_us(1_080)));
    assert_eq!(come(&end).len(), 2);
}

/// As the kernel hands over what a program writes with UDP_SEGMENT.
#[test]
fn a_super_packet_of_datagrams_is_cut() {
    let (mut way, _) = way(0, None, &[]);
    let (out, end) = port();
    let mut bytes = packet(2, 1);
    bytes[9] = 17;
    bytes.truncate(28 + 1_200);
    raw::set_len(&mut bytes, 28 + 1_200);
    let received = Received { range: 0..bytes.len(), checksum: RxChecksum::Verified, gso_size: 500 };
    way.take(START, &bytes, &received);
    way.run(at_us(1_000), &out);
    let lengths: Vec<(usize, u16)> = come(&end)
        .iter()
        .map(|datagram| (datagram.len(), u16::from_be_bytes([datagram[24], datagram[25]])))
        .collect();
    assert_eq!(lengths, [(528, 508), (528, 508), (228, 208)]);
}

#[test]
fn a_policer_drops_and_delays_nothing() {
    let spec = PolicerSpec { rate: "20mbit".parse().unwrap(), burst_bytes: 3_000 };
    let (mut way, drops) = way(3, Some(spec), &[]);
    let (out, end) = port();
    way.run(at_us(240), &out);
    assert_eq!((come(&end).len(), drops.lock().unwrap().0), (2, 1));
}

#[test]
fn hosts_at_one_end_share_the_path_and_get_what_is_theirs() {
    let ((a, host_a), (b, host_b), (far, far_host)) = (port(), port(), port());
    let address = |host| vec![IpAddr::from([10, 9, 0, host])];
    let near = Switch::new(vec![(a, address(2)), (b, address(3))]).unwrap();
    let watcher = Arc::<Mutex<Drops>>::default();
    let wire: QdiscSpec = "netem delay 1us".parse().unwrap();
    let ways = Ways { there: vec![wire.clone()], back: vec![wire], ..Ways::default() };
    let watchers = [Arc::new(Mutex::new(())) as Watcher, Arc::clone(&watcher) as Watcher];
    let _emulator = Emulator::start(Port::Switch(Box::new(near)), far, ways, watchers).unwrap();
    let (from_a, from_b) = (packet(2, 1), packet(3, 1));
    send(&host_a, &from_a);
    send(&host_b, &from_b);
    let mut there = Vec::new();
    crate::eventually("both packets are there", || {
        there.extend(come(&far_host));
        there.len() == 2
    });
    assert!(there.contains(&from_a) && there.contains(&from_b));
    for to in [4, 3, 2, 3] {
        send(&far_host, &packet(1, to));
    }
    let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
    crate::eventually("the answers are there", || {
        to_a.extend(come(&host_a));
        to_b.extend(come(&host_b));
        to_a.len() + to_b.len() == 3
    });
    assert_eq!((to_a, to_b), (vec![packet(1, 2)], vec![packet(1, 3), packet(1, 3)]));
    assert_eq!(watcher.lock().unwrap().0, 1, "nobody has that address");
}
