use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::task::Waker;

use taut_core::{BUFFER_BYTES, TxPacket, TxTicket};
use taut_driver::{News, Received, Sent};

use super::line::ROOM;
use super::*;

/// The device's halves over one end of a socket pair, for IP packets, and the other end.
fn stream(mtu: u16) -> (Device, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let options = FramesOptions { mtu, ethernet: false, ..FramesOptions::default() };
    (Frames::stream(near, &[], &options).unwrap().into(), far)
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
}

fn send(device: &mut Device, packet: &[u8]) -> Sent {
    device.tx.send(&TxPacket::whole(packet), TxTicket::blank())
}

fn received(device: &mut Device) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let got = device.rx.recv(&mut buffer)?;
    Ok(got.map(|Received { range, .. }| buffer[range].to_vec()))
}

#[test]
fn a_length_is_in_front_of_each_frame() {
    let (mut device, mut far) = stream(1500);
    assert!(matches!(send(&mut device, b"a packet"), Sent::Kept | Sent::Left(_)));
    let mut bytes = [0; 12];
    far.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\0\0\x08a packet");
}

/// However the bytes of a stream come, the frames are the same.
#[test]
fn dev_15_frames_that_come_in_pieces_are_put_together() {
    let short = (0..40).map(|n| n * 37 % 1500);
    let mixed = [65_520, 60, 0, 30_000, 1_500, 16_384, 65_520, 20].repeat(5).into_iter().enumerate();
    let mixed = mixed.map(|(n, len): (usize, usize)| len.saturating_sub(n / 8));
    let lengths: [Vec<usize>; 3] = [short.collect(), mixed.collect(), vec![65_520; 6]];
    for (lengths, has_batches) in lengths.iter().flat_map(|lengths| [(lengths, false), (lengths, true)]) {
        let frames: Vec<Vec<u8>> = (0u8..).zip(lengths).map(|(n, &len)| vec![n; len]).collect();
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
        for piece in [1, 2, 3, 5, 7, 1000, 32_762, 65_000, 65_524, 65_600, 150_000, 205_000] {
            if bytes.len() / piece > 60_000 {
                continue;
            }
            let (mut device, mut far) = stream(65_520);
            let mut got = Vec::new();
            for piece in bytes.chunks(piece) {
                far.write_all(piece).unwrap();
                if has_batches {
                    device.rx.begin_batch();
                }
                while let Some(frame) = received(&mut device).unwrap() {
                    got.push(frame);
                }
            }
            assert!(got == frames, "pieces of {piece}, batches: {has_batches}");
        }
    }
}

/// A read that brought less than there was room for has taken everything: no other is made in this batch.
#[test]
fn dev_15_no_read_after_one_that_took_everything() {
    for len in [60, 20_000] {
        let (mut device, mut far) = stream(65_520);
        let News::Fd(news) = device.rx.news(Waker::noop()).unwrap() else { panic!() };
        let is_announced = || {
            let mut polled = [rustix::event::PollFd::new(&news, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())).unwrap() == 1
        };
        let frames = [1, 2, 3, 4].map(|n| vec![n; len]);
        let mut send = |frame: &[u8]| far.write_all(&framed(frame)).unwrap();
        // A driver that says nothing of batches: each call looks.
        send(&frames[0]);
        assert_eq!(received(&mut device).unwrap().as_ref(), Some(&frames[0]));
        send(&frames[1]);
        assert_eq!(received(&mut device).unwrap().as_ref(), Some(&frames[1]));
        device.rx.begin_batch();
        send(&frames[2]);
        assert_eq!(received(&mut device).unwrap().as_ref(), Some(&frames[2]));
        assert!(!is_announced());
        send(&frames[3]);
        assert_eq!(received(&mut device).unwrap(), None, "it was read in the same batch");
        assert!(is_announced());
        device.rx.begin_batch();
        assert_eq!(received(&mut device).unwrap().as_ref(), Some(&frames[3]));
        // A batch that ended with a frame.
        send(&frames[0]);
        device.rx.begin_batch();
        assert_eq!(received(&mut device).unwrap().as_ref(), Some(&frames[0]));
    }
}

/// A driver may end its batch with any of them.
#[test]
fn dev_20_frames_that_were_read_are_announced() {
    let (mut device, mut far) = stream(65_520);
    let News::Fd(news) = device.rx.news(Waker::noop()).unwrap() else { panic!() };
    let is_announced = || {
        let mut polled = [rustix::event::PollFd::new(&news, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())).unwrap() == 1
    };
    let frames = [1, 2, 3].map(|n| vec![n; 60]);
    // Three, and a part of a fourth.
    far.write_all(&[framed(&frames[0]), framed(&frames[1]), framed(&frames[2]), vec![0]].concat()).unwrap();
    device.rx.begin_batch();
    for (frame, is_last) in frames.iter().zip([false, false, true]) {
        assert_eq!(received(&mut device).unwrap().as_ref(), Some(frame));
        assert_eq!(is_announced(), !is_last);
    }
    assert_eq!(received(&mut device).unwrap(), None);
    assert!(!is_announced());
}

/// Frames that the peer reads wake nobody while there is room; when there was none, room does.
#[test]
fn dev_16_room_is_announced_after_there_was_none() {
    let (near, mut far) = UnixStream::pair().unwrap();
    far.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    let options = FramesOptions { ethernet: false, ..FramesOptions::default() };
    let frames = Frames::stream(near, &[], &options).unwrap();
    let shared = Arc::clone(&frames.shared);
    let mut device = Device::from(frames);
    let has_room = |wait_ms| {
        let wait = std::time::Duration::from_millis(wait_ms);
        shared.news.wait(Some(wait)).unwrap().contains(ROOM)
    };
    // By the receiving half's set alone.
    assert!(matches!(device.tx.news(Waker::noop()).unwrap(), News::Waker));
    assert!(matches!(send(&mut device, &[1; 1000]), Sent::Kept | Sent::Left(_)));
    assert!(!has_room(0));
    while !matches!(send(&mut device, &[1; 1000]), Sent::Full(_)) {}
    assert!(!has_room(0));
    let mut bytes = [0; 1 << 16];
    while far.read(&mut bytes).is_ok() {}
    assert!(has_room(30_000));
    // The driver has come, and sends again.
    assert_eq!(received(&mut device).unwrap(), None);
    assert!(!has_room(0));
    assert!(matches!(send(&mut device, &[1; 1000]), Sent::Kept | Sent::Left(_)));
}

/// 15 pages of 4,096 bytes and 52 of headers fit into 65,520.
#[test]
fn dev_17_long_segments_are_whole_pages() {
    let mtu_of = |mtu, vnet_header| {
        let (near, _far) = UnixStream::pair().unwrap();
        let options = FramesOptions { mtu, vnet_header, ..FramesOptions::default() };
        Frames::stream(near, &[], &options).unwrap().caps().mtu
    };
    assert_eq!(mtu_of(65_520, None), 61_492);
    assert_eq!(mtu_of(65_535, None), 61_492);
    assert_eq!(mtu_of(61_492, None), 61_492);
    assert_eq!(mtu_of(61_491, None), 57_396);
    assert_eq!(mtu_of(32_768, None), 28_724);
    assert_eq!(mtu_of(65_520, Some(true)), 65_520, "super-packets");
    for short in [1_500, 9_000, 32_767] {
        assert_eq!(mtu_of(short, None), short);
    }
}

/// A socket takes a part of a frame when it is nearly full: the rest goes before anything else, and nothing
/// is lost.
#[test]
fn a_frame_that_fits_in_part_is_completed_first() {
    let (mut device, mut far) = stream(60_000);
    let mut sent = Vec::new();
    let mut kept = 0;
    let mut number = 0u8;
    let mut refused = 0;
    let mut got = Vec::new();
    far.set_nonblocking(true).unwrap();
    let mut read_some = |got: &mut Vec<u8>, most: usize| {
        let mut bytes = vec![0; most];
        let len = far.read(&mut bytes).unwrap_or(0);
        got.extend_from_slice(&bytes[..len]);
        len
    };
    while refused < 20 {
        number = number.wrapping_add(1);
        let payload = vec![number; 50_000 + usize::from(number)];
        match send(&mut device, &payload) {
            Sent::Kept => kept += 1,
            Sent::Left(_) => {}
            Sent::Full(_) => {
                refused += 1;
                read_some(&mut got, 30_011);
                continue;
            }
            other => panic!("{other:?}"),
        }
        sent.extend(framed(&payload));
    }
    assert!(kept > 0);
    // The rest goes as soon as there is room, without another packet.
    let mut back = 0;
    loop {
        let read = read_some(&mut got, 1 << 20);
        while device.tx.poll_done().is_some() {
            back += 1;
        }
        if read == 0 && got.len() == sent.len() {
            break;
        }
        assert!(got.len() <= sent.len());
    }
    assert!(got == sent);
    while device.tx.poll_done().is_some() {
        back += 1;
    }
    assert_eq!(back, kept);
}

/// No ticket comes back before the peer has read its frame, and all do when it has read all. In between they
/// may be a little late, because the kernel counts memory and not bytes.
#[test]
fn a_packet_has_left_when_the_peer_has_read_it() {
    const FRAMES: usize = 20;
    let (mut device, mut far) = stream(1500);
    for _ in 0..FRAMES {
        assert!(matches!(send(&mut device, &[7; 1000]), Sent::Kept));
    }
    let (mut back, mut late) = (0, 0);
    for read in 0..=FRAMES {
        while device.tx.poll_done().is_some() {
            back += 1;
        }
        assert!(back <= read, "{back} tickets came back after {read} frames");
        late = late.max(read - back);
        if read < FRAMES {
            far.read_exact(&mut [0; 1004]).unwrap();
        }
    }
    assert_eq!(back, FRAMES);
    // The kernel takes 2,304 bytes for each of these frames, of which 1,512 are certain: a third of them may
    // be late.
    assert!(late <= FRAMES.div_ceil(3), "{late} tickets were late");
}

#[test]
fn a_peer_that_makes_no_sense_or_goes_ends_the_device() {
    let (mut device, mut far) = stream(1500);
    far.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let error = received(&mut device).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("does not put a length of four bytes in front of each"), "{error}");

    let (mut device, far) = stream(1500);
    drop(far);
    let error = received(&mut device).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
    assert_eq!(error.to_string(), "the stream socket: the peer has closed it");
}

/// A flood of frames of no use does not keep the stack from its turn, and what is staged is not forgotten.
#[test]
fn useless_frames_give_way_to_a_turn() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let mac: Mac = "02:00:00:00:00:02".parse().unwrap();
    let options = FramesOptions { mac: Some(mac), ..FramesOptions::default() };
    let addresses = ["10.9.0.2/24".parse().unwrap()];
    let mut device: Device = Frames::stream(near, &addresses, &options).unwrap().into();
    let useless = framed(&[[0x02, 0, 0, 0, 0, 9, 0x02, 0, 0, 0, 0, 1, 8, 0].as_slice(), &[0; 46]].concat());
    let useful = framed(&[[0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 8, 0].as_slice(), &[5; 46]].concat());
    far.write_all(&useless.repeat(100)).unwrap();
    far.write_all(&useful).unwrap();
    assert_eq!(received(&mut device).unwrap(), None);
    // The socket is empty: the timer announces what is staged.
    let News::Fd(news) = device.rx.news(Waker::noop()).unwrap() else { panic!() };
    let mut polled = [rustix::event::PollFd::new(&news, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut polled, Some(&limit)).unwrap(), 1);
    assert_eq!(received(&mut device).unwrap(), Some(vec![5; 46]));
    assert_eq!(received(&mut device).unwrap(), None);
}

#[test]
fn what_cannot_carry_frames_is_refused() {
    let pair = || UnixStream::pair().unwrap().0;
    let v6 = ["fd09::2/64".parse().unwrap()];
    let said = |error: io::Error| {
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    let small = FramesOptions { mtu: 1279, ..FramesOptions::default() };
    assert!(said(Frames::stream(pair(), &v6, &small).unwrap_err()).contains("at least 1280"));
    let group = FramesOptions { mac: Some(Mac([1, 0, 0, 0, 0, 1])), ..FramesOptions::default() };
    assert!(
        said(Frames::stream(pair(), &v6, &group).unwrap_err()).contains("not the address of one station")
    );
    let plain = FramesOptions {
        ethernet: false,
        gateways: vec!["10.9.0.1".parse().unwrap()],
        ..FramesOptions::default()
    };
    assert!(
        said(Frames::stream(pair(), &[], &plain).unwrap_err())
            .contains("no stations, no gateways, no SLAAC and no DHCP")
    );
    assert!(
        said(Frames::seqpacket(pair().into(), &[], &FramesOptions::default()).unwrap_err())
            .contains("not of type SOCK_SEQPACKET")
    );
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = from_descriptor(file.into(), &[], &FramesOptions::default()).unwrap_err();
    assert!(said(error).contains("no socket and no queue of a TUN or TAP"));
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = from_descriptor(tcp.into(), &[], &FramesOptions::default()).unwrap_err();
    assert!(said(error).contains("not a Unix socket"));
}

/// A packet of TCP or UDP between these ends whose checksum the card was to complete, and the same completed.
fn left_to_card(src: &str, dst: &str, protocol: u8, len: usize) -> [Vec<u8>; 2] {
    let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
    let header_len = if src.is_ipv4() { 20 } else { 40 };
    let ecn = taut_wire::Ecn::NotEct;
    let ip = taut_wire::IpHeader { src, dst, protocol, hop_limit: 64, ecn, header_len, payload_len: len };
    let mut bytes = vec![7; header_len + len];
    ip.emit(&mut bytes, 0);
    let at = header_len + if protocol == 6 { 16 } else { 6 };
    let sum = taut_wire::checksum::pseudo_header(src, dst, protocol, len as u32);
    bytes[at..at + 2].copy_from_slice(&sum.fold().to_be_bytes());
    let mut whole = bytes.clone();
    // As a card does: the sum of all from the transport's header on, where the field counts as it is.
    let sum = taut_wire::checksum::Sum::ZERO.add_bytes(&bytes[header_len..]).finish();
    whole[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    [bytes, whole]
}

#[test]
fn gw_152_a_checksum_that_a_guest_left_to_its_card_need_not_be_right() {
    use taut_core::RxChecksum::{Unverified, Verified};
    let (mut device, mut far) = stream(1_500);
    let mut checked = |packet: &[u8]| {
        far.write_all(&framed(packet)).unwrap();
        let mut buffer = vec![0; BUFFER_BYTES];
        let Received { range, checksum, gso_size } = device.rx.recv(&mut buffer).unwrap().unwrap();
        assert!(buffer[range] == *packet);
        assert_eq!(gso_size, 0);
        checksum
    };
    for (src, dst) in [("10.0.2.15", "198.51.100.2"), ("fd00::15", "2001:db8:2::2")] {
        for protocol in [6, 17] {
            // Super-packets, and behind the packet what pads a short frame.
            let most = if src.contains(':') { 65_535 } else { 65_515 };
            for len in [20, 29, 1_480, 20_020, most] {
                let [left, whole] = left_to_card(src, dst, protocol, len);
                assert_eq!(
                    [checked(&left), checked(&whole)],
                    [Verified, Unverified],
                    "{src} {protocol} {len}"
                );
                let mut wrong = left.clone();
                wrong[if src.contains(':') { 39 } else { 19 }] ^= 1;
                assert_eq!(checked(&wrong), Unverified);
            }
            let [left, _] = left_to_card(src, dst, protocol, 20);
            assert_eq!(checked(&[&left[..], &[0xaa; 6]].concat()), Verified);
        }
        // ICMP is nothing for a card; and what is no packet.
        assert_eq!(checked(&left_to_card(src, dst, 1, 20)[0]), Unverified);
    }
    assert_eq!([checked(&[]), checked(&[0x45]), checked(&[0x60; 40])], [Unverified; 3]);
}

/// A machine at a port of a switch, whose stack has 10.0.0.1; its station and address end in `last`.
fn plugged(ports: &Ports, device: &mut Device, last: u8) -> (taut_ethernet::PortId, UnixStream) {
    let (near, mut far) = UnixStream::pair().unwrap();
    let id = ports.plug(near).unwrap().unwrap();
    // RFC 826: it looks for the stack's station.
    let (station, address) = ([2, 0, 0, 0, 0, last], [10, 0, 0, last]);
    let head = [&[0xff; 6][..], &station, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &station, &address].concat();
    far.write_all(&framed(&[&head[..], &[0; 6], &[10, 0, 0, 1]].concat())).unwrap();
    assert_eq!(received(device).unwrap(), None);
    far.set_nonblocking(true).unwrap();
    (id, far)
}

/// Bytes that a machine finds.
fn read_all(far: &mut UnixStream, device: &mut Device) -> usize {
    let (mut all, mut buffer) = (0, vec![0; 1 << 20]);
    for _ in 0..100 {
        while let Ok(len @ 1..) = far.read(&mut buffer) {
            all += len;
        }
        assert_eq!(received(device).unwrap(), None);
    }
    all
}

/// How many packets for 10.0.0.2, of 1,400 bytes, the device keeps and drops.
fn flood(device: &mut Device, count: usize) -> (usize, usize) {
    let mut packet = vec![0x45; 1_400];
    packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
    let (mut kept, mut dropped) = (0, 0);
    for _ in 0..count {
        match send(device, &packet) {
            Sent::Kept => kept += 1,
            Sent::Dropped(_) => dropped += 1,
            Sent::Left(_) => {}
            other => panic!("{other:?}"),
        }
    }
    (kept, dropped)
}

#[test]
fn gw_266_the_queue_of_a_machine_that_does_not_read_is_bounded() {
    let mac = Some(Mac([2, 0, 0, 0, 0, 1]));
    let options = FramesOptions { mac, ..FramesOptions::default() };
    let switch = Switch::new(&["10.0.0.1/24".parse().unwrap()], &options, Box::new(|_| ())).unwrap();
    let ports = switch.ports();
    let mut device = Device::from(switch);
    drop(device.rx.news(Waker::noop()).unwrap());
    let (id, mut far) = plugged(&ports, &mut device, 2);
    let (_, mut other) = plugged(&ports, &mut device, 3);
    for _ in 0..2 {
        // The socket has room for a part.
        let (kept, dropped) = flood(&mut device, 2_000);
        assert!(kept >= 256 && dropped > 1_000, "{kept} kept, {dropped} dropped");
        // It reads them all: each ticket comes back once, and there is room again.
        let mut back = 0;
        while back < kept {
            read_all(&mut far, &mut device);
            back += std::iter::from_fn(|| device.tx.poll_done()).count();
        }
        assert_eq!((back, device.tx.poll_done().is_none()), (kept, true));
    }
    // Frames of the other machine for it.
    let mut frame = vec![0x45; 1_414];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 3, 8, 0]);
    let header = [0x45, 0, 5, 0x78, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 3, 10, 0, 0, 2];
    frame[14..34].copy_from_slice(&header);
    let sum: u32 = header.as_chunks::<2>().0.iter().map(|two| u32::from(u16::from_be_bytes(*two))).sum();
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    for _ in 0..2_000 {
        other.write_all(&framed(&frame)).unwrap();
        assert_eq!(received(&mut device).unwrap(), None);
    }
    let passed = read_all(&mut far, &mut device);
    assert!((200_000..1_000_000).contains(&passed), "{passed} bytes");
    // The machine goes: the tickets of what it has not read come back.
    let (kept, _) = flood(&mut device, 500);
    ports.unplug(id);
    assert_eq!(std::iter::from_fn(|| device.tx.poll_done()).count(), kept);
    assert_eq!(flood(&mut device, 10), (0, 0));
}
