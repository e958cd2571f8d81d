//! Options of TCP and of IP: RFC 9293 §3.1, §3.2 and §3.9.2.1, RFC 7323 §2.2, §3.2 and §5.4.

use taut_core::{ListenOptions, SetOption};

use crate::support::trace::{Offer, Seg, Trace};

#[test]
fn options_are_read_in_any_segment() {
    // MUST-5, and a segment size behind the handshake says nothing: data is taken, and segments stay as long.
    let mut t = Trace::accepted(Offer::ALL);
    let mss = t.info().snd_mss;
    t.wait_ms(10);
    inject!(t, "P.", seq(1), ack(1), len(10), mss(100));
    let ack = expect!(t, ".", ack(11));
    assert_eq!(ack.options.timestamps.map(|ts| ts.echo), Some(t.peer_clock()), "the timestamp was read");
    assert_eq!(t.info().snd_mss, mss);
    // SACK blocks in a segment with data count, too.
    t.write(3 * mss as usize);
    t.poll();
    t.out.clear();
    t.wait_ms(10);
    inject!(t, "P.", seq(11), ack(1), len(10), sack(&[(1 + mss, 1 + 2 * mss)]));
    assert_eq!(t.info().sacked, 1);
    // RFC 7323 §2.2: a window shift does not; this window is scaled by the 7 of the handshake.
    inject!(t, "P.", seq(21), ack(1), len(10), wscale(1), win(500));
    assert_eq!(t.info().snd_wnd, 500 << 7);
}

#[test]
fn the_segment_size_stands_in_syns_only() {
    // MUST-65.
    let mut t = Trace::accepted(Offer::ALL);
    t.write(3_000);
    t.poll();
    inject!(t, "P.", seq(1), ack(3_001), len(10));
    t.wait_s(2);
    inject!(t, ".", seq(90_000_000), ack(3_001));
    t.shutdown();
    t.poll();
    let now = t.now;
    t.conn().abort(now);
    t.poll();
    assert!(t.out.len() >= 6, "{:?}", t.out);
    for got in &t.out {
        assert_eq!(
            (got.options.mss, got.options.window_scale, got.options.sack_permitted),
            (None, None, false)
        );
    }
}

#[test]
fn options_of_ip_are_skipped() {
    // MUST-50: a timestamp of IP (RFC 791), which TCP does not know, in front of a segment with data.
    let mut t = Trace::accepted(Offer::EASY);
    let plain = t.build(&Seg::new("P.").seq(1).ack(1).len(10));
    let mut packet = plain[..20].to_vec();
    packet.extend([68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend(&plain[20..]);
    packet[0] = 0x48;
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[10..12].fill(0);
    let sum = taut_wire::Sum::ZERO.add_bytes(&packet[..32]).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    t.inject_bytes(&packet, 0);
    expect!(t, ".", ack(11));
    t.read(10);
}

#[test]
fn the_hop_limit_is_set() {
    // MUST-49: of data, of handshakes, and of answers that belong to no connection.
    for (mut t, at) in [(Trace::new(), 8), (Trace::v6(), 7)] {
        let hops = |t: &mut Trace| t.out.drain(..).map(|got| got.bytes[at]).collect::<Vec<_>>();
        inject!(t, ".", seq(1), ack(1));
        assert_eq!(hops(&mut t), [64]);
        t.stack.set_sysctl("net.ipv4.ip_default_ttl", "7").unwrap();
        inject!(t, ".", seq(1), ack(1));
        assert_eq!(hops(&mut t), [7]);
        t.connect();
        assert_eq!(hops(&mut t), [7]);
        t.syn_ack(Offer::EASY);
        let now = t.now;
        t.conn().set_option(now, SetOption::Tos(0x20)).unwrap();
        t.write(10);
        t.poll();
        assert_eq!(hops(&mut t), [7, 7]);
        assert!(t.stack.set_sysctl("net.ipv4.ip_default_ttl", "0").is_err());
    }
    // Of SYN-ACKs, too.
    for (mut t, at) in [(Trace::new(), 8), (Trace::v6(), 7)] {
        t.stack.set_sysctl("net.ipv4.ip_default_ttl", "7").unwrap();
        t.listen_with(ListenOptions::default());
        t.syn(Offer::EASY);
        assert_eq!(t.out.drain(..).map(|got| got.bytes[at]).collect::<Vec<_>>(), [7]);
    }
}

#[test]
fn timestamps_stand_in_every_segment_and_count_milliseconds() {
    // RFC 7323 §3.2: in data, ACKs, retransmissions, probes, FIN, and in RST, too; §5.4: the clock ticks once
    // in 1 ms to 1 s.
    let mut t = Trace::accepted(Offer::ALL);
    let first = t.last_tsval;
    let start = t.now;
    t.write(3_000);
    t.wait_s(3);
    inject!(t, "P.", seq(1), ack(3_001), len(10), win(0));
    t.write(10);
    t.wait_s(2);
    inject!(t, ".", seq(90_000_000), ack(3_001));
    inject!(t, ".", seq(11), ack(3_001), win(1_000));
    t.shutdown();
    t.wait_s(1);
    let now = t.now;
    t.conn().abort(now);
    t.poll();
    assert!(t.out.iter().any(|got| got.has("F")) && t.out.back().unwrap().has("R"));
    for got in &t.out {
        let value = got.options.timestamps.expect("every segment has them").value;
        assert_eq!(u64::from(value.wrapping_sub(first)), got.at.since(start).as_millis(), "{got:?}");
    }
}

#[test]
fn a_segment_without_the_timestamps_that_were_agreed_on_ends_nothing() {
    // RFC 7323 §3.2: the connection is not aborted. The segment counts, as in Linux.
    let mut t = Trace::accepted(Offer::ALL);
    inject!(t, "P.", seq(1), ack(1), len(10), nots());
    expect!(t, ".", ack(11));
    t.read(10);
}

#[test]
fn timestamps_of_two_hosts_are_unrelated() {
    // RFC 7323 §5.4: an offset that others cannot compute; connections between the same two hosts share it.
    let mut t = Trace::new();
    let mut value = |to: &str| {
        t.stack.connect(t.now, to.parse().unwrap(), &taut_core::ConnOptions::default()).unwrap();
        t.poll();
        t.out.pop_back().unwrap().options.timestamps.unwrap().value
    };
    let values: Vec<u32> =
        ["198.51.100.1:80", "198.51.100.1:81", "198.51.100.2:80"].iter().map(|to| value(to)).collect();
    assert_eq!(values[0], values[1]);
    assert!(values[0].wrapping_sub(values[2]) > 1_000 && values[2].wrapping_sub(values[0]) > 1_000);
}
