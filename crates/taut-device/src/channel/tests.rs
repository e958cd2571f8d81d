use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::Wake;
use std::thread;
use std::time::Duration;

use taut_core::{ConnOptions, Gather, Instant, Offload, RxChecksum, Stack, StackConfig};

use super::*;

/// Longer than anything here takes on a machine that is not stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts how often it is called.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Calls {
    fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Both ends, and the calls of the wakers of the device's halves.
struct Ends {
    device: Device,
    far: FarEnd,
    tx_calls: Arc<Calls>,
    rx_calls: Arc<Calls>,
}

impl Ends {
    fn new(limit_bytes: usize) -> Self {
        let (mut device, far) = channel(LinkCaps::offloading(1_500), limit_bytes);
        let (tx_calls, rx_calls) = (Arc::<Calls>::default(), Arc::<Calls>::default());
        assert!(matches!(device.tx.news(&Waker::from(Arc::clone(&tx_calls))), Ok(News::Waker)));
        assert!(matches!(device.rx.news(&Waker::from(Arc::clone(&rx_calls))), Ok(News::Waker)));
        Self { device, far, tx_calls, rx_calls }
    }

    fn send(&mut self, len: usize) -> Sent {
        self.device.tx.send(&TxPacket::whole(&vec![0; len]), TxTicket::blank())
    }

    fn tickets_back(&mut self) -> usize {
        std::iter::from_fn(|| self.device.tx.poll_done()).count()
    }
}

/// Tickets that differ: of the first segments of as many connections.
fn tickets(count: u16) -> Vec<TxTicket> {
    let config = StackConfig::default().with(|config| config.addresses.push("10.0.0.1".parse().unwrap()));
    let mut stack = Stack::new(Arc::new(config), LinkCaps::plain(1_500), [7; 32]);
    let ticket = |port| {
        let to = (std::net::Ipv4Addr::new(10, 0, 0, 2), port).into();
        stack.connect(Instant::ZERO, to, &ConnOptions::default()).unwrap();
        stack.poll_transmit(Instant::ZERO).unwrap().ticket
    };
    (1..=count).map(ticket).collect()
}

#[test]
fn refuses_when_full_and_wakes_when_there_is_room() {
    let mut ends = Ends::new(2_000);
    assert!(matches!(ends.send(1_500), Sent::Kept));
    assert!(matches!(ends.send(1_500), Sent::Kept), "a packet is taken if any room is left");
    let parcel = ends.far.try_recv().unwrap();
    assert_eq!(ends.tx_calls.so_far(), 0, "nobody waits for room");
    assert!(matches!(ends.send(1_500), Sent::Kept));
    assert!(matches!(ends.send(1), Sent::Full(_)));
    assert!(matches!(ends.send(1), Sent::Full(_)));
    assert_eq!(ends.tx_calls.so_far(), 0);
    let another = ends.far.try_recv().unwrap();
    assert_eq!(ends.tx_calls.so_far(), 1);
    assert!(matches!(ends.send(1), Sent::Kept), "there is room, although the far end keeps what it took");
    let _third = ends.far.try_recv().unwrap();
    assert_eq!(ends.tx_calls.so_far(), 1, "not refused since");
    drop((parcel, another));
    assert_eq!(ends.tickets_back(), 2);
}

#[test]
fn a_parcel_gives_its_own_ticket_back_when_it_is_dropped() {
    let mut ends = Ends::new(1 << 20);
    let names: Vec<String> = tickets(5).iter().map(|ticket| format!("{ticket:?}")).collect();
    for (index, ticket) in (0_u8..).zip(tickets(5)) {
        assert!(matches!(ends.device.tx.send(&TxPacket::whole(&[index; 100]), ticket), Sent::Kept));
    }
    let mut parcels: Vec<_> = (0..5).map(|_| ends.far.try_recv()).collect();
    assert!(ends.far.try_recv().is_none());
    for (calls, index) in (1..).zip([3, 0, 4, 1, 2]) {
        assert!(ends.device.tx.poll_done().is_none(), "the far end has it still");
        let parcel = parcels[index].take().unwrap();
        assert_eq!(parcel.packet().to_vec(), [index as u8; 100], "packets come in order");
        drop(parcel);
        assert_eq!(ends.tx_calls.so_far(), calls);
        assert_eq!(format!("{:?}", ends.device.tx.poll_done().unwrap()), names[index]);
    }
    assert!(ends.device.tx.poll_done().is_none(), "each once");
}

#[test]
fn a_far_end_that_is_dropped_gives_every_ticket_back_and_ends_the_device() {
    let mut ends = Ends::new(10_000);
    for _ in 0..4 {
        assert!(matches!(ends.send(1_000), Sent::Kept));
    }
    let parcel = ends.far.try_recv().unwrap();
    assert!(ends.far.put(&TxPacket::whole(&[9; 60])));
    let calls = ends.rx_calls.so_far();
    let Ends { mut device, far, tx_calls, rx_calls } = ends;
    drop(far);
    assert!(tx_calls.so_far() > 0 && rx_calls.so_far() > calls, "both halves are woken");
    let back = |device: &mut Device| std::iter::from_fn(|| device.tx.poll_done()).count();
    assert_eq!(back(&mut device), 3, "those that waited");
    drop(parcel);
    assert_eq!(back(&mut device), 1, "the one in hand, when that is dropped");
    assert_eq!(back(&mut device), 0, "each once");
    let sent = device.tx.send(&TxPacket::whole(&[0; 60]), TxTicket::blank());
    assert!(matches!(sent, Sent::Never(_, why) if why.kind() == io::ErrorKind::BrokenPipe));
    let mut buffer = vec![0; BUFFER_BYTES];
    let last = device.rx.recv(&mut buffer).unwrap().unwrap();
    assert_eq!(&buffer[last.range], &[9; 60], "what came before the end is received");
    assert_eq!(device.rx.recv(&mut buffer).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn a_device_that_is_dropped_ends_the_far_end() {
    let mut ends = Ends::new(10_000);
    assert!(matches!(ends.send(1_000), Sent::Kept));
    assert!(matches!(ends.send(1_000), Sent::Kept));
    let Ends { device, far, .. } = ends;
    let parcel = far.try_recv().unwrap();
    let calls = Arc::<Calls>::default();
    let waker = Waker::from(Arc::clone(&calls));
    let (link, far) = (Arc::clone(&far.link), Arc::new(far));
    let blocked = Arc::clone(&far);
    drop(far.try_recv());
    assert!(far.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    let (report, ended) = mpsc::channel();
    thread::spawn(move || report.send(blocked.recv().is_none()));
    assert!(ended.recv_timeout(Duration::from_millis(20)).is_err(), "it waits");
    drop(device);
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(true), "a thread that waits");
    assert_eq!(calls.so_far(), 1, "a task that waits");
    assert!(matches!(far.poll_recv(&mut Context::from_waker(&waker)), Poll::Ready(None)));
    assert!(far.recv().is_none() && far.try_recv().is_none());
    assert!(!far.put(&TxPacket::whole(&[0; 60])));
    drop(parcel);
    assert_eq!(link.there().done.len(), 2, "no ticket is lost, though nobody asks for them");
}

#[test]
fn what_is_put_in_is_bounded_and_comes_out_as_it_was() {
    let mut ends = Ends::new(4_000);
    let (header, payload) = ([1; 40], [2; 2_896]);
    let offload = Offload::Segment { mss: 1_448, start: 20, offset: 16, ipv6: false };
    let departure = Instant::ZERO;
    let large = TxPacket { header: &header, payload: Gather::from(&payload[..]), offload, departure };
    assert!(ends.far.put(&large));
    assert_eq!(ends.rx_calls.so_far(), 1);
    assert!(ends.far.put(&large), "a packet is taken if any room is left");
    assert!(!ends.far.put(&TxPacket::whole(&[3; 60])));
    assert_eq!(ends.rx_calls.so_far(), 2, "nothing came");
    let mut buffer = vec![0; BUFFER_BYTES];
    let got = ends.device.rx.recv(&mut buffer).unwrap().unwrap();
    assert_eq!(got, Received { range: 0..2_936, checksum: RxChecksum::Verified, gso_size: 1_448 });
    assert_eq!((&buffer[..40], &buffer[40..2_936]), (&header[..], &payload[..]));
    assert!(ends.far.put(&TxPacket::whole(&[3; 60])), "there is room again");
    assert_eq!(ends.device.rx.recv(&mut buffer).unwrap(), Some(got));
    let got = ends.device.rx.recv(&mut buffer).unwrap().unwrap();
    assert_eq!(got, Received { range: 0..60, checksum: RxChecksum::Unverified, gso_size: 0 });
    assert_eq!(ends.device.rx.recv(&mut buffer).unwrap(), None);
    assert!(!ends.far.put(&TxPacket::whole(&vec![0; BUFFER_BYTES + 1])), "larger than a buffer");
    assert!(ends.far.put(&TxPacket::whole(&vec![0; BUFFER_BYTES])));
}

#[test]
fn a_task_that_waits_is_woken_once_the_last_to_ask() {
    let mut ends = Ends::new(10_000);
    let (first, last) = (Arc::<Calls>::default(), Arc::<Calls>::default());
    for calls in [&first, &last] {
        let waker = Waker::from(Arc::clone(calls));
        assert!(ends.far.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    }
    assert!(matches!(ends.send(70), Sent::Kept));
    assert!(matches!(ends.send(80), Sent::Kept));
    assert_eq!((first.so_far(), last.so_far()), (0, 1));
    let mut cx = Context::from_waker(Waker::noop());
    for len in [70, 80] {
        let Poll::Ready(Some(parcel)) = ends.far.poll_recv(&mut cx) else { panic!("nothing came") };
        assert_eq!(parcel.packet().len(), len);
    }
    assert!(ends.far.poll_recv(&mut cx).is_pending());
}

/// A full channel whose far end is three threads, each of which works on two packets at a time: every packet
/// is received once, every ticket comes back once, and a sender that was refused is woken.
#[test]
fn several_threads_share_the_far_end() {
    const PACKETS: usize = 30_000;
    struct Sender(thread::Thread, AtomicBool);
    impl Wake for Sender {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::SeqCst);
            self.0.unpark();
        }
    }
    let (mut device, far) = channel(LinkCaps::plain(1_500), 1_000);
    let sender = Arc::new(Sender(thread::current(), AtomicBool::new(false)));
    assert!(matches!(device.tx.news(&Waker::from(Arc::clone(&sender))), Ok(News::Waker)));
    let far = Arc::new(far);
    let workers = [(); 3].map(|()| {
        let far = Arc::clone(&far);
        thread::spawn(move || {
            let (mut seen, mut earlier) = (Vec::new(), None);
            while let Some(parcel) = far.recv() {
                let bytes = parcel.packet().to_vec();
                seen.push(u32::from_be_bytes(bytes[..4].try_into().unwrap()));
                drop(earlier.replace(parcel));
            }
            seen
        })
    });
    let (mut sent, mut back, mut refused) = (0, 0, 0);
    while sent < PACKETS {
        let mut bytes = [0; 100];
        bytes[..4].copy_from_slice(&(sent as u32).to_be_bytes());
        match device.tx.send(&TxPacket::whole(&bytes), TxTicket::blank()) {
            Sent::Kept => sent += 1,
            Sent::Full(_) => {
                refused += 1;
                let is_woken = (0..20).any(|_| {
                    thread::park_timeout(Duration::from_secs(1));
                    sender.1.swap(false, Ordering::SeqCst)
                });
                assert!(is_woken, "refused, and not woken");
            }
            other => panic!("{other:?}"),
        }
        back += std::iter::from_fn(|| device.tx.poll_done()).count();
    }
    assert!(refused > 0, "it was full now and then");
    let link = Arc::clone(&far.link);
    while !link.there().waiting.is_empty() {
        thread::yield_now();
    }
    back += std::iter::from_fn(|| device.tx.poll_done()).count();
    drop(device);
    let mut seen: Vec<u32> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..PACKETS as u32), "each packet once");
    back += link.there().done.len();
    assert_eq!(back, PACKETS, "each ticket once");
}

/// A future that is polled by hand, as an executor does it.
#[test]
fn dev_19_a_task_waits_and_batches_wake_once() {
    let mut ends = Ends::new(2_000);
    let woken = Arc::<Calls>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    {
        let Ends { device, far, .. } = &mut ends;
        let mut waits = std::pin::pin!(far.recv_async());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        let sent = device.tx.send(&TxPacket::whole(&[7; 100]), TxTicket::blank());
        assert!(matches!(sent, Sent::Kept) && woken.so_far() == 1);
        let Poll::Ready(Some(parcel)) = waits.as_mut().poll(&mut cx) else { panic!("it has come") };
        let mut bytes = [0; 128];
        assert_eq!((parcel.copy_to(&mut bytes), &bytes[..100]), (Some(100), &[7; 100][..]));
        assert_eq!(parcel.copy_to(&mut bytes[..99]), None);
    }
    for _ in 0..2 {
        assert!(matches!(ends.send(1_000), Sent::Kept));
    }
    assert!(matches!(ends.send(1), Sent::Full(_)));
    let (mut parcels, before) = (Vec::new(), ends.tx_calls.so_far());
    assert_eq!(
        (ends.far.try_recv_many(&mut parcels, 1), ends.tx_calls.so_far()),
        (1, before + 1),
        "there is room"
    );
    assert_eq!((ends.far.try_recv_many(&mut parcels, 9), parcels.len()), (1, 2));
    assert_eq!(ends.far.try_recv_many(&mut parcels, 9), 0);
    // 2,000 bytes wait for the stack after two of them.
    let packet = [9; 1_000];
    assert_eq!(ends.far.put_many((0..3).map(|_| TxPacket::whole(&packet))), 2);
    assert_eq!(ends.rx_calls.so_far(), 1);
    assert_eq!(ends.far.put_many([]), 0);
    assert_eq!(ends.rx_calls.so_far(), 1, "nothing came");
}
