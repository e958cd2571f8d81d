//! TCP Fast Open, statement by statement (docs/spec/fast-open.md): RFC 7413, and the numbers of Linux 6.18.

use crate::support;

use support::trace::{Got, Offer, Seg, Trace};
use support::{A, B, World, pattern};
use taut_core::config::EcnPolicy;
use taut_core::{
    Bytes, ConnError, ConnId, ConnOptions, Duration, Event, FastOpenFail, FastOpenKeys, FastOpenListen,
    Histogram, ListenOptions, ReadError, SetOption, StackConfig, State, SynCookies, WriteError,
};
use taut_wire::{Cookie, FastOpen};

const KEY: [u8; 16] = *b"0123456789abcdef";
const OTHER_KEY: [u8; 16] = *b"fedcba9876543210";

/// The empty option, which asks for a cookie.
const ASKS: FastOpen = FastOpen { cookie: None, experimental: false };

fn cookie(text: &[u8]) -> FastOpen {
    FastOpen { cookie: Cookie::new(text), experimental: false }
}

fn fast() -> ConnOptions {
    ConnOptions { fast_open: true, ..ConnOptions::default() }
}

fn without_cookie() -> ConnOptions {
    ConnOptions { fast_open_no_cookie: true, ..fast() }
}

fn with(change: impl FnOnce(&mut StackConfig)) -> Trace {
    Trace::with(StackConfig::default().with(change))
}

/// The peer's SYN-ACK, without timestamps, with segments of 1000 bytes.
fn syn_ack(ack: u32) -> Seg {
    Seg::new("S.").seq(0).ack(ack).mss(1_000).sackok().win(65_535)
}

/// Begins a connection whose SYN leaves at once, and returns that.
#[track_caller]
fn connect(t: &mut Trace) -> Got {
    t.connect_with(&fast());
    expect!(t, "S", seq(0))
}

/// Ends the connection, and forgets what was sent.
fn abort(t: &mut Trace) {
    let (id, now) = (t.id.unwrap(), t.now);
    t.stack.conn_mut(id).unwrap().abort(now);
    t.poll();
    t.out.clear();
    t.events.clear();
}

/// A client that has a cookie, `COOKIE08`, of a server that takes segments of `mss` bytes.
fn client_with(mut t: Trace, mss: u16) -> Trace {
    connect(&mut t);
    let answer = syn_ack(1).mss(mss).fast_open(cookie(b"COOKIE08"));
    t.inject(&answer);
    expect!(t, ".", seq(1), ack(1));
    abort(&mut t);
    t
}

fn client() -> Trace {
    client_with(Trace::new(), 1_000)
}

/// The first write of a connection that waits for it; returns the bytes that left with the SYN.
#[track_caller]
fn first_write(t: &mut Trace, len: usize) -> Got {
    let now = t.now;
    let data: Vec<u8> = (0..len as u64).map(pattern).collect();
    let taken = t.conn().write(now, &data).unwrap();
    let syn = t.expect(&Seg::new("S").seq(0).len(taken));
    assert_eq!(syn.payload, data[..taken]);
    t.local = syn.src;
    syn
}

#[track_caller]
fn connect_and_write(t: &mut Trace, len: usize) -> Got {
    t.connect_with(&fast());
    first_write(t, len)
}

fn listen(t: &mut Trace, fast_open: FastOpenListen) {
    t.listen_with(ListenOptions { fast_open, ..ListenOptions::default() });
}

/// A server that accepts data in SYNs, with one key.
fn server() -> Trace {
    server_with(10, |_| {})
}

fn server_with(pending_max: u32, change: impl FnOnce(&mut StackConfig)) -> Trace {
    let mut t = with(|config| {
        config.fast_open.server = true;
        config.fast_open.keys = Some(FastOpenKeys::new(KEY));
        change(config);
    });
    listen(&mut t, FastOpenListen { pending_max, ..FastOpenListen::default() });
    t
}

fn syn(len: usize, option: FastOpen) -> Seg {
    Seg::new("S").seq(0).mss(1_000).sackok().win(65_535).len(len).fast_open(option)
}

/// The cookie that the server gives to the peer.
#[track_caller]
fn ask(t: &mut Trace) -> FastOpen {
    t.inject(&syn(0, ASKS));
    let given = expect!(t, "S.", seq(0), ack(1)).fast_open().expect("a cookie");
    inject!(t, "R", seq(1));
    t.events.clear();
    given
}

/// The connection that `accept` returns.
#[track_caller]
fn accept(t: &mut Trace) -> ConnId {
    let id = t.stack.accept(t.listener.unwrap()).expect("a connection to accept").0;
    t.id = Some(id);
    id
}

fn none_to_accept(t: &mut Trace) -> bool {
    t.stack.accept(t.listener.unwrap()).is_none()
}

#[track_caller]
fn read(t: &mut Trace, len: usize) {
    let now = t.now;
    let mut buffer = vec![0; len + 1];
    assert_eq!(t.conn().read(now, &mut buffer), Ok(len));
    let data: Vec<u8> = (0..len as u64).map(pattern).collect();
    assert_eq!(buffer[..len], data);
}

// ---- the client ----

#[test]
fn tfo_04_the_first_connection_asks_for_a_cookie_and_the_next_has_it() {
    let mut t = Trace::new();
    // RFC 7413 §4.1.1: kind 34, length 2.
    let first = connect(&mut t);
    assert_eq!(first.fast_open(), Some(ASKS));
    assert!(first.bytes.windows(4).any(|bytes| bytes == [34, 2, 1, 1]), "{:02x?}", first.bytes);
    assert_eq!(t.try_write(), Err(WriteError::NotConnected), "it is an ordinary connect");
    let answer = syn_ack(1).fast_open(cookie(b"COOKIE08"));
    t.inject(&answer);
    expect!(t, ".", seq(1), ack(1));
    assert_eq!(t.info().fast_open_fail, FastOpenFail::CookieUnavailable);
    abort(&mut t);

    // The next one waits for data.
    let id = t.connect_with(&fast());
    expect_nothing!(t, for_ms 5_000);
    assert_eq!(t.event(), Some(Event::Writable(id)));
    let now = t.now;
    assert!(t.conn().writable(now));
    assert_eq!(t.try_read(), Err(ReadError::WouldBlock));
    let syn = first_write(&mut t, 100);
    assert_eq!(syn.fast_open(), Some(cookie(b"COOKIE08")));
    assert!(!t.conn().writable(now), "further data waits for the handshake");
    assert_eq!(t.try_write(), Err(WriteError::WouldBlock));
    t.inject(&syn_ack(101));
    expect!(t, ".", seq(101), ack(1));
    expect_nothing!(t);
    assert_eq!(t.event(), Some(Event::Connected(id)));
    assert_eq!(t.event(), Some(Event::Writable(id)));
    t.write(10);
    expect!(t, "P.", seq(101), len(10));
}

#[test]
fn tfo_04_another_server_and_a_connection_without_the_option_are_ordinary() {
    let mut t = client();
    t.connect();
    assert_eq!(expect!(t, "S", seq(0)).fast_open(), None);
    abort(&mut t);
    t.peer = "192.0.2.3:80".parse().unwrap();
    assert_eq!(connect(&mut t).fast_open(), Some(ASKS));
    abort(&mut t);
    // Switched off for clients.
    t.peer = "192.0.2.2:80".parse().unwrap();
    t.stack.set_sysctl("tcp_fastopen", "0").unwrap();
    assert_eq!(connect(&mut t).fast_open(), None);
}

#[test]
fn tfo_05_a_syn_has_room_for_a_segment_less_40_bytes() {
    // The server's segment size, and ours (1460), less the most options there can be.
    for (mss, room) in [(1_000, 960), (1_460, 1_420), (9_000, 1_420)] {
        let mut t = client_with(Trace::new(), mss);
        assert_eq!(connect_and_write(&mut t, 3_000).payload.len(), room, "{mss}");
    }
    // One byte has room, too.
    assert_eq!(connect_and_write(&mut client_with(Trace::new(), 1_000), 1).payload.len(), 1);
    // Of a server of which nothing is known: 536 and 1220 (RFC 9293 §3.7.1).
    for (mut t, room) in [(Trace::new(), 496), (Trace::v6(), 1_180)] {
        t.connect_with(&without_cookie());
        assert_eq!(first_write(&mut t, 3_000).payload.len(), room);
    }
}

#[test]
fn tfo_06_data_that_the_syn_ack_does_not_acknowledge_leaves_again_at_once() {
    for acked in [0, 300, 600] {
        let mut t = client();
        connect_and_write(&mut t, 600);
        t.inject(&syn_ack(1 + acked));
        let rest = 600 - acked as usize;
        if rest > 0 {
            let data = expect!(t, "P.", seq(1 + acked), ack(1), len(rest));
            let expected: Vec<u8> = (u64::from(acked)..600).map(pattern).collect();
            assert_eq!(data.payload, expected);
            inject!(t, ".", seq(1), ack(601));
        } else {
            expect!(t, ".", seq(601), ack(1));
        }
        expect_nothing!(t, for_ms 2_000);
        let (info, counters) = (t.info(), *t.stack.counters());
        assert_eq!((info.bytes_acked, info.notsent_bytes, info.unacked), (600, 0, 0));
        let all = rest == 0;
        assert_eq!(info.syn_data, all);
        assert_eq!(info.fast_open_fail, if all { FastOpenFail::None } else { FastOpenFail::DataNotAcked });
        assert_eq!(counters.tcp_fast_open_active, u64::from(all));
        assert_eq!(counters.tcp_fast_open_active_fail, u64::from(!all));
        assert_eq!(info.bytes_retrans, rest as u64);
        if acked != 300 {
            // Linux: data in a SYN was sent once.
            assert_eq!(counters.tcp_orig_data_sent, 1, "{acked}");
        }
        // Linux: what leaves again is a retransmission (`tcp_rcv_fastopen_synack`), although it leaves as new
        // data here.
        assert_eq!(counters.retrans_segs, u64::from(!all), "{acked}");
    }
}

/// The report of `taut explain`: bytes in a SYN stay in the write queue.
#[test]
fn wait_07_data_in_a_syn_is_unsent_until_the_answer() {
    let ms = Duration::from_millis;
    let counts = |samples: &[Duration]| {
        let mut counts = [0; Histogram::BUCKETS];
        samples.iter().for_each(|span| counts[Histogram::bucket_of(*span)] += 1);
        counts
    };
    for (acked, in_flight) in [(0, &[ms(20)][..]), (300, &[ms(0), ms(20)]), (600, &[ms(0)])] {
        let mut t = client();
        connect_and_write(&mut t, 600);
        t.wait_ms(50);
        let queues = |t: &Trace| t.stack.conn(t.id.unwrap()).unwrap().report(t.now).queues;
        assert_eq!(queues(&t).map(|queue| queue.bytes), [600, 0, 0]);
        assert_eq!(queues(&t)[0].oldest, Some(ms(50)));
        t.inject(&syn_ack(1 + acked));
        assert_eq!(*queues(&t)[0].sojourn.counts(), counts(&[ms(50)]), "{acked}");
        assert_eq!(queues(&t)[0].bytes, 0, "the rest left at once");
        t.wait_ms(20);
        if acked < 600 {
            inject!(t, ".", seq(1), ack(601));
        }
        assert_eq!(*queues(&t)[0].sojourn.counts(), counts(&[ms(50)]), "{acked}");
        assert_eq!(*queues(&t)[2].sojourn.counts(), counts(in_flight), "{acked}");
        // Busy from the write until nothing is left to be acknowledged.
        t.wait_ms(30);
        assert_eq!(t.info().busy_time, if acked < 600 { ms(70) } else { ms(50) }, "{acked}");
    }
}

/// The peer's window stays closed for 20 ms: what its SYN-ACK did not acknowledge is unsent until then, and
/// in flight for the 30 ms after that.
#[test]
fn wait_07_data_in_a_syn_that_waits_for_the_window_is_not_in_flight() {
    let ms = Duration::from_millis;
    let counts = |samples: &[Duration]| {
        let mut counts = [0; Histogram::BUCKETS];
        samples.iter().for_each(|span| counts[Histogram::bucket_of(*span)] += 1);
        counts
    };
    for (acked, unsent, in_flight) in [(0, ms(70), &[ms(30)][..]), (300, ms(50), &[ms(0), ms(30)])] {
        let mut t = client();
        connect_and_write(&mut t, 600);
        t.wait_ms(50);
        t.inject(&syn_ack(1 + acked).win(0));
        expect!(t, ".", seq(1 + acked), ack(1));
        let queues = |t: &Trace| t.stack.conn(t.id.unwrap()).unwrap().report(t.now).queues;
        assert_eq!(queues(&t).map(|queue| queue.bytes), [u64::from(600 - acked), 0, 0], "{acked}");
        assert_eq!(queues(&t)[2].oldest, None, "{acked}: nothing is in flight");
        t.wait_ms(20);
        inject!(t, ".", seq(1), ack(1 + acked));
        expect!(t, "P.", seq(1 + acked), len(600 - acked as usize));
        t.wait_ms(30);
        inject!(t, ".", seq(1), ack(601));
        assert_eq!(*queues(&t)[0].sojourn.counts(), counts(&[unsent]), "{acked}");
        assert_eq!(*queues(&t)[2].sojourn.counts(), counts(in_flight), "{acked}");
    }
}

#[test]
fn tfo_06_an_ack_beyond_the_data_is_reset() {
    let mut t = client();
    connect_and_write(&mut t, 600);
    t.inject(&syn_ack(602));
    expect!(t, "R", seq(602));
    assert_eq!(t.state(), State::SynSent);
    t.inject(&syn_ack(601));
    expect!(t, ".", seq(601));
}

#[test]
fn tfo_23_only_a_syn_ack_of_our_syn_is_believed_about_the_server() {
    // RFC 7413 §4.2.1. Strangers may know addresses and ports, but no sequence number.
    let others = [
        ("a SYN-ACK of what was not sent", syn_ack(1_000)),
        ("a SYN-ACK of nothing", syn_ack(0)),
        ("a SYN", Seg::new("S").seq(0)),
        ("a RST", Seg::new("R").seq(0)),
        ("a RST of what was not sent", Seg::new("R.").seq(0).ack(1_000)),
        ("a RST with a SYN", Seg::new("SR").seq(0)),
        ("a RST of our SYN", Seg::new("R.").seq(0).ack(1)),
        ("a RST with a SYN-ACK", Seg::new("SR.").seq(0).ack(1)),
    ];
    for (name, segment) in others {
        let mut t = Trace::new();
        connect(&mut t);
        t.inject(&segment.clone().mss(900).fast_open(cookie(b"STRANGER")));
        abort(&mut t);
        assert_eq!(connect(&mut t).fast_open(), Some(ASKS), "{name}: neither a cookie nor a refusal of one");
        abort(&mut t);
        // RFC 9293 §3.7.1: the segment size of a server of which nothing is known, less 40 bytes.
        t.connect_with(&without_cookie());
        assert_eq!(first_write(&mut t, 3_000).payload.len(), 496, "{name}: nor a segment size");
        abort(&mut t);
        // A cookie that is known stays.
        let mut t = client();
        connect_and_write(&mut t, 100);
        t.inject(&segment.mss(900).fast_open(cookie(b"STRANGER")));
        abort(&mut t);
        assert_eq!(connect_and_write(&mut t, 100).fast_open(), Some(cookie(b"COOKIE08")), "{name}");
    }
}

#[test]
fn tfo_07_a_syn_that_times_out_is_repeated_without_data_and_option() {
    let mut t = client();
    connect_and_write(&mut t, 600);
    // RFC 6298 §2.1: one second.
    let again = expect!(t, "S", seq(0), after_ms(1_000));
    assert_eq!(again.fast_open(), None);
    t.inject(&syn_ack(1));
    expect!(t, "P.", seq(1), ack(1), len(600));
    assert_eq!(t.info().fast_open_fail, FastOpenFail::SynRetransmitted);
    assert_eq!(t.stack.counters().tcp_fast_open_active_fail, 1);
    // The cookie is kept (RFC 7413 §4.1.3).
    abort(&mut t);
    assert_eq!(connect_and_write(&mut t, 1).fast_open(), Some(cookie(b"COOKIE08")));
}

#[test]
fn tfo_13_a_server_that_ignores_the_option_is_asked_in_the_experimental_form_once() {
    let mut t = Trace::new();
    let experimental = FastOpen { experimental: true, ..ASKS };
    for asked in [ASKS, experimental, ASKS, ASKS] {
        let syn = connect(&mut t);
        assert_eq!(syn.fast_open(), Some(asked));
        if asked.experimental {
            // Draft-ietf-tcpm-fastopen-10 and RFC 6994: kind 254, 0xF989.
            assert!(syn.bytes.windows(4).any(|bytes| bytes == [254, 4, 0xf9, 0x89]));
        }
        t.inject(&syn_ack(1));
        expect!(t, ".", seq(1));
        abort(&mut t);
    }
    // A cookie in that form is sent in that form.
    let mut t = Trace::new();
    for _ in 0..2 {
        connect(&mut t);
        let given = FastOpen { experimental: true, ..cookie(b"4444") };
        let answer = syn_ack(1);
        t.inject(&if t.stack.counters().active_opens == 2 { answer.fast_open(given) } else { answer });
        expect!(t, ".", seq(1));
        abort(&mut t);
    }
    let sent = connect_and_write(&mut t, 10).fast_open();
    assert_eq!(sent, Some(FastOpen { experimental: true, ..cookie(b"4444") }));
}

#[test]
fn tfo_14_a_black_hole_pauses_fast_open_for_a_time_that_doubles() {
    let mut t =
        client_with(with(|config| config.fast_open.black_hole_timeout = Duration::from_secs(3_600)), 1_000);
    // Linux: from the third consecutive timeout on; each next pause is twice as long, up to 2^6 times.
    for pause_h in [1, 2, 4, 8, 16, 32, 64, 64] {
        connect_and_write(&mut t, 10);
        expect!(t, "S", seq(0), after_ms(1_000));
        expect!(t, "S", seq(0), after_ms(1_000));
        let before = t.stack.counters().tcp_fast_open_blackhole;
        expect!(t, "S", seq(0), after_ms(1_000));
        assert_eq!(t.stack.counters().tcp_fast_open_blackhole, before + 1);
        abort(&mut t);
        assert_eq!(connect(&mut t).fast_open(), None, "paused");
        abort(&mut t);
        t.wait_s(pause_h * 3_600 - 1);
        assert_eq!(connect(&mut t).fast_open(), None, "still paused after {pause_h} h");
        abort(&mut t);
        t.wait_s(1);
    }
    // What works ends that: the next pause is the first one again.
    connect_and_write(&mut t, 10);
    t.inject(&syn_ack(11));
    expect!(t, ".", seq(11));
    inject!(t, "P.", seq(1), ack(11), len(5));
    t.read(5);
    abort(&mut t);
    connect_and_write(&mut t, 10);
    t.wait_s(7);
    abort(&mut t);
    t.wait_s(3_600);
    connect_and_write(&mut t, 10);
}

#[test]
fn tfo_14_established_connections_find_black_holes_too() {
    let paused = |t: &mut Trace| {
        abort(t);
        let is_paused = connect(t).fast_open().is_none();
        assert_eq!(t.stack.counters().tcp_fast_open_blackhole, u64::from(is_paused));
        is_paused
    };
    let open = || {
        let timeout =
            |config: &mut StackConfig| config.fast_open.black_hole_timeout = Duration::from_secs(60);
        let mut t = client_with(with(timeout), 1_000);
        connect_and_write(&mut t, 10);
        t.inject(&syn_ack(11));
        expect!(t, ".", seq(11));
        t
    };
    // A reset out of sequence before any data.
    let mut t = open();
    inject!(t, "R", seq(50));
    assert!(paused(&mut t));
    let mut t = open();
    inject!(t, "P.", seq(1), ack(11), len(5));
    inject!(t, "R", seq(50));
    t.out.clear();
    abort(&mut t);
    connect_and_write(&mut t, 10);
    // The end of a connection whose FIN came, alone or with data, and what precedes it did not.
    for len in [0, 5] {
        let mut t = open();
        inject!(t, "F.", seq(6), ack(11), len(len));
        t.out.clear();
        assert!(paused(&mut t), "{len} bytes with the FIN");
    }
    // Not if other data is out of order, too; nor if what was missing came later.
    for missing in [None, Some(5)] {
        let mut t = open();
        inject!(t, "F.", seq(26), ack(11), len(5));
        inject!(t, "P.", seq(6), ack(11), len(if missing.is_some() { 20 } else { 5 }));
        if let Some(len) = missing {
            inject!(t, "P.", seq(1), ack(11), len(len));
            t.read(30);
        }
        t.out.clear();
        abort(&mut t);
        connect_and_write(&mut t, 10);
        assert_eq!(t.stack.counters().tcp_fast_open_blackhole, 0);
    }
    // Three timeouts of data.
    let mut t = open();
    t.write(10);
    while t.info().backoff < 3 {
        let now = t.now + Duration::from_secs(100);
        t.step(now);
    }
    t.out.clear();
    assert!(paused(&mut t));
    // Fewer, if they are the last ones: `tcp_retries2` timeouts, or the user's patience. Not while it goes
    // on.
    for (retries, patience_ms, given_up) in [(1, None, true), (15, Some(300), true), (15, None, false)] {
        let mut t = open();
        t.stack.set_sysctl("tcp_retries2", &retries.to_string()).unwrap();
        let now = t.now;
        let patience = patience_ms.map(Duration::from_millis);
        t.conn().set_option(now, SetOption::UserTimeout(patience)).unwrap();
        t.write(10);
        while t.stack.counters().tcp_timeouts < 2 && t.conn().as_ref().error().is_none() {
            let now = t.now + Duration::from_secs(100);
            t.step(now);
        }
        assert_eq!(t.conn().as_ref().error().is_some(), given_up);
        t.out.clear();
        if given_up {
            assert!(paused(&mut t));
        } else {
            abort(&mut t);
            connect_and_write(&mut t, 10);
        }
        assert_eq!(t.stack.counters().tcp_fast_open_blackhole, u64::from(given_up));
    }
    // Off, as by default: nothing is noticed.
    let mut t = client();
    connect_and_write(&mut t, 10);
    t.wait_s(20);
    abort(&mut t);
    connect_and_write(&mut t, 10);
    assert_eq!(t.stack.counters().tcp_fast_open_blackhole, 0);
}

/// The first write says when the SYN leaves, also if it has nothing to say.
#[test]
fn tfo_04_what_a_client_may_do_before_its_first_write_and_after() {
    let mut t = client();
    t.connect_with(&fast());
    let now = t.now;
    let ready = |t: &mut Trace| (t.conn().readable(), t.conn().writable(now));
    assert_eq!(ready(&mut t), (false, true));
    assert_eq!(t.try_read(), Err(ReadError::WouldBlock));
    assert_eq!(t.conn().write(now, &[]), Ok(0));
    let syn = expect!(t, "S", seq(0), len(0));
    assert_eq!(syn.fast_open(), Some(cookie(b"COOKIE08")));
    t.local = syn.src;
    assert_eq!(ready(&mut t), (false, false), "the next write waits for the handshake");
    assert_eq!(t.try_write(), Err(WriteError::WouldBlock));
    t.inject(&syn_ack(1));
    expect!(t, ".", seq(1), ack(1));
    assert_eq!(ready(&mut t), (false, true));
    inject!(t, "P.", seq(1), ack(1), len(5));
    assert_eq!(ready(&mut t), (true, true));
}

#[test]
fn tfo_17_a_client_without_a_cookie_sends_data_and_no_option() {
    let by_sysctl = |config: &mut StackConfig| config.fast_open.client_no_cookie = true;
    for (mut t, options) in [(Trace::new(), without_cookie()), (with(by_sysctl), fast())] {
        t.connect_with(&options);
        assert_eq!(first_write(&mut t, 100).fast_open(), None);
        t.inject(&syn_ack(101));
        expect!(t, ".", seq(101));
        assert!(t.info().syn_data);
    }
}

#[test]
fn tfo_20_data_in_a_syn_ack_is_taken_if_the_syn_had_the_option() {
    let mut t = client();
    connect_and_write(&mut t, 10);
    let answer = syn_ack(11).len(50);
    t.inject(&answer);
    expect!(t, ".", seq(11), ack(51));
    read(&mut t, 50);
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    t.inject(&syn_ack(1).len(50));
    expect!(t, ".", seq(1), ack(1));
}

#[test]
fn tfo_24_syns_that_cross_end_connected() {
    // RFC 9293 §3.5, figure 8. Then a SYN-ACK or an ACK acknowledges some of the data in our SYN.
    for (acked, flags, seq) in [(0, "S.", 0), (300, "S.", 0), (600, "S.", 0), (0, ".", 1), (600, ".", 1)] {
        for len in [0, 50] {
            let mut t = client();
            connect_and_write(&mut t, 600);
            t.events.clear();
            assert_eq!(t.try_write(), Err(WriteError::WouldBlock));
            let syn = Seg::new("S").seq(0).mss(1_000).sackok().win(65_535);
            t.inject(&syn.len(len).fast_open(cookie(b"PEERS888")));
            expect!(t, "S.", seq(0), ack(1));
            assert_eq!(t.state(), State::SynReceived);
            t.inject(&Seg::new(flags).seq(seq).ack(1 + acked));
            assert_eq!(t.state(), State::Established, "{acked} by {flags}");
            let rest = 600 - acked as usize;
            if rest > 0 {
                let data = expect!(t, "P.", seq(1 + acked), ack(1), len(rest));
                assert_eq!(data.payload, (u64::from(acked)..600).map(pattern).collect::<Vec<_>>());
                inject!(t, ".", seq(1), ack(601));
            }
            expect_nothing!(t, for_ms 2_000);
            assert_eq!(t.event(), t.id.map(Event::Connected));
            assert_eq!(t.event(), t.id.map(Event::Writable));
            let info = t.info();
            assert_eq!((info.bytes_acked, info.unacked, info.syn_data), (600, 0, rest == 0));
            // The data of its SYN, which we did not acknowledge, comes again.
            inject!(t, "P.", seq(1), ack(601), len(50));
            expect!(t, ".", seq(601), ack(51));
            read(&mut t, 50);
        }
    }
}

#[test]
fn tfo_24_the_syns_of_two_stacks_cross() {
    let mut world = World::new(1);
    let ends = [(format!("{A}:1000"), format!("{B}:2000")), (format!("{B}:2000"), format!("{A}:1000"))];
    let ids = [0, 1].map(|side| {
        let (from, to) = &ends[side];
        let options = ConnOptions { bind: Some(from.parse().unwrap()), ..without_cookie() };
        let id = world.stacks[side].connect(world.now, to.parse().unwrap(), &options).unwrap();
        assert_eq!(world.stacks[side].conn_mut(id).unwrap().write(world.now, &[7; 200]), Ok(200));
        id
    });
    world.run_for(Duration::from_secs(1));
    for (side, id) in ids.into_iter().enumerate() {
        assert_eq!(world.stacks[side].conn(id).unwrap().state(), State::Established);
        let (now, mut buffer) = (world.now, [0; 300]);
        assert_eq!(world.stacks[side].conn_mut(id).unwrap().read(now, &mut buffer), Ok(200));
        assert_eq!(world.stacks[side].counters().tcp_timeouts, 0);
    }
}

#[test]
fn tfo_19_what_is_written_before_the_handshake_is_followed_by_fin() {
    for close in [false, true] {
        let mut t = client();
        connect_and_write(&mut t, 10);
        if close {
            t.close();
        } else {
            t.shutdown();
        }
        expect_nothing!(t);
        t.inject(&syn_ack(11));
        let fin = expect!(t, "F.", seq(11), ack(1));
        assert!(fin.payload.is_empty());
        inject!(t, "F.", seq(1), ack(12));
        expect!(t, ".", seq(12), ack(2));
    }
    // The stream ends without data: the SYN waits no longer.
    let mut t = client();
    t.connect_with(&fast());
    t.shutdown();
    let syn = expect!(t, "S", seq(0));
    assert_eq!(syn.fast_open(), Some(cookie(b"COOKIE08")));
    t.local = syn.src;
    t.inject(&syn_ack(1));
    expect!(t, "F.", seq(1), ack(1));
    // Nothing was written: nothing is sent.
    let mut t = client();
    t.connect_with(&fast());
    t.close();
    expect_nothing!(t, for_ms 10_000);
    t.expect_gone();
}

#[test]
fn tfo_21_a_refused_connection_fails_reads_and_writes() {
    let mut t = client();
    let id = t.connect_with(&fast());
    first_write(&mut t, 10);
    t.events.clear();
    inject!(t, "R.", seq(0), ack(11));
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::Refused)));
    assert_eq!(t.try_write(), Err(WriteError::Conn(ConnError::Refused)));
    // An answer to a SYN that has not left is forged, even if its number is right: that of the same
    // connection above.
    let (local, iss) = (t.local, t.iss);
    let mut t = client();
    t.connect_with(&fast());
    assert_eq!(t.conn().as_ref().local_addr(), local);
    (t.local, t.iss) = (local, iss);
    t.inject(&syn_ack(1));
    inject!(t, "R.", seq(0), ack(1));
    expect_nothing!(t);
    assert_eq!(t.state(), State::SynSent);
    first_write(&mut t, 10);
    assert_eq!(t.iss, iss);
}

#[test]
fn lent_bytes_leave_with_the_syn_and_a_refused_syn_leaves_again_whole() {
    let mut t = client();
    t.connect_with(&fast());
    let now = t.now;
    let mut data = Bytes::from(vec![7; 10_000]);
    assert_eq!(t.conn().write_bytes(now, &mut data), Ok(Some(0)));
    assert_eq!(data.len(), 10_000 - 960);
    assert_eq!(t.refuse(), 960);
    let syn = expect!(t, "S", seq(0), len(960));
    assert_eq!(syn.fast_open(), Some(cookie(b"COOKIE08")));
    t.local = syn.src;
    t.inject(&syn_ack(961));
    expect!(t, ".", seq(961));
    assert_eq!(t.conn().write_bytes(now, &mut data), Ok(Some(1)));
}

// ---- the server ----

#[test]
fn tfo_08_data_without_a_valid_cookie_is_ignored_and_the_answer_has_a_cookie() {
    let mut t = server();
    let given = ask(&mut t);
    assert_eq!(t.stack.counters().tcp_fast_open_cookie_reqd, 1);
    assert_eq!(given.cookie.unwrap().as_slice().len(), 8);
    for (wrong, reqd) in [(cookie(b"12345678"), 1), (cookie(b"1234"), 1), (ASKS, 2)] {
        t.inject(&syn(100, wrong));
        let answer = expect!(t, "S.", seq(0), ack(1));
        assert_eq!(answer.fast_open(), Some(given), "of {wrong:?}");
        assert!(none_to_accept(&mut t));
        assert_eq!(t.stack.counters().tcp_fast_open_cookie_reqd, reqd);
        inject!(t, "R", seq(1));
    }
    assert_eq!(t.stack.counters().tcp_fast_open_passive_fail, 2);
    assert_eq!(t.stack.counters().tcp_fast_open_passive, 0);
    // Another host's cookie.
    t.peer = "192.0.2.9:40000".parse().unwrap();
    t.inject(&syn(100, given));
    let answer = expect!(t, "S.", seq(0), ack(1)).fast_open().unwrap();
    assert_ne!(answer, given);
    // In the form in which it was asked.
    t.peer = "192.0.2.2:40001".parse().unwrap();
    t.inject(&syn(0, FastOpen { experimental: true, ..ASKS }));
    assert_eq!(expect!(t, "S.").fast_open(), Some(FastOpen { experimental: true, ..given }));
    // The handshake is an ordinary one.
    inject!(t, ".", seq(1), ack(1));
    accept(&mut t);
    assert!(!t.info().syn_data);
}

#[test]
fn tfo_09_a_valid_cookie_opens_the_connection_before_the_handshake_is_complete() {
    let mut t = with(|config| config.fast_open.server = true);
    let fast_open = FastOpenListen { pending_max: 1, ..FastOpenListen::default() };
    let conn = ConnOptions { sndbuf: Some(100_000), ..ConnOptions::default() };
    t.listen_with(ListenOptions { fast_open, conn, ..ListenOptions::default() });
    let given = ask(&mut t);
    t.inject(&syn(100, given));
    let answer = expect!(t, "S.", seq(0), ack(101));
    assert_eq!(answer.fast_open(), None, "the client has the cookie");
    expect_nothing!(t);
    assert_eq!(t.event(), Some(Event::Incoming(t.listener.unwrap())));
    accept(&mut t);
    assert_eq!(t.state(), State::SynReceived);
    read(&mut t, 100);
    assert_eq!(t.try_read(), Err(ReadError::WouldBlock));
    // RFC 7413 §4.2.2: it may answer, as far as the first window of ten segments goes (RFC 6928).
    t.write(20_000);
    t.poll();
    assert_eq!(t.out.drain(..).map(|segment| segment.payload.len()).sum::<usize>(), 10_000);
    assert_eq!(t.state(), State::SynReceived);
    inject!(t, ".", seq(101), ack(10_001));
    assert_eq!(t.state(), State::Established);
    expect!(t, ".", seq(10_001), len(1_000));
    let (info, counters) = (t.info(), t.stack.counters());
    assert!(info.syn_data && info.fast_open_child);
    assert_eq!((info.bytes_received, info.bytes_acked), (100, 10_000));
    assert_eq!((counters.tcp_fast_open_passive, counters.passive_opens), (1, 1));
}

#[test]
fn tfo_09_a_cookie_without_data_opens_it_too() {
    let mut t = server();
    let given = ask(&mut t);
    t.inject(&syn(0, given));
    expect!(t, "S.", seq(0), ack(1));
    accept(&mut t);
    t.write(10);
    expect!(t, "P.", seq(1), ack(1), len(10));
    // The ACK of the SYN-ACK alone completes the handshake.
    inject!(t, ".", seq(1), ack(1));
    assert_eq!(t.state(), State::Established);
    assert!(!t.info().syn_data);
}

#[test]
fn tfo_10_a_cookie_of_the_backup_key_is_accepted_and_replaced() {
    let mut t = server();
    let given = ask(&mut t);
    let key = |primary, backup| FastOpenKeys::new(primary).with_backup(backup).to_string();
    t.stack.set_sysctl("tcp_fastopen_key", &key(OTHER_KEY, KEY)).unwrap();
    t.inject(&syn(100, given));
    let new = expect!(t, "S.", seq(0), ack(101)).fast_open().expect("a new cookie");
    assert_ne!(new, given);
    accept(&mut t);
    inject!(t, "R", seq(101));
    t.inject(&syn(100, new));
    assert_eq!(expect!(t, "S.", ack(101)).fast_open(), None);
    inject!(t, "R", seq(101));
    let counters = t.stack.counters();
    assert_eq!((counters.tcp_fast_open_passive, counters.tcp_fast_open_passive_alt_key), (2, 1));
    // Without the backup, the old cookie is nothing.
    t.stack.set_sysctl("tcp_fastopen_key", &FastOpenKeys::new(OTHER_KEY).to_string()).unwrap();
    t.inject(&syn(100, given));
    assert_eq!(expect!(t, "S.", ack(1)).fast_open(), Some(new));
    // A listener's own key goes before the stack's.
    let mut t = with(|config| config.fast_open.server = true);
    let keys = Some(FastOpenKeys::new(KEY));
    listen(&mut t, FastOpenListen { pending_max: 1, keys, ..FastOpenListen::default() });
    assert_eq!(ask(&mut t), given);
}

#[test]
fn tfo_11_beyond_the_limit_data_is_ignored_and_a_reset_counts_for_a_minute() {
    let mut t = server_with(2, |_| {});
    let given = ask(&mut t);
    let open = |t: &mut Trace, port: u16| {
        t.peer.set_port(port);
        t.inject(&syn(10, given));
        expect!(t, "S.", seq(0)).ack == 11
    };
    assert!(open(&mut t, 1) && open(&mut t, 2));
    let overflows = |t: &Trace| t.stack.counters().tcp_fast_open_listen_overflow;
    assert_eq!(overflows(&t), 0);
    assert!(!open(&mut t, 3));
    assert_eq!(overflows(&t), 1);
    let mut t = server_with(1, |_| {});
    assert_eq!(ask(&mut t), given);
    assert!(open(&mut t, 1));
    inject!(t, ".", seq(11), ack(1));
    assert!(open(&mut t, 2), "the handshake of the first is complete");
    // RFC 7413 §5.1, Linux: a reset frees the place after 60 s.
    inject!(t, "R", seq(11));
    t.wait_s(60);
    assert!(!open(&mut t, 3));
    inject!(t, "R", seq(1));
    t.wait_ms(1);
    assert!(open(&mut t, 4));
}

#[test]
fn tfo_15_the_syn_ack_is_retransmitted_once_more_than_usual_and_without_the_option() {
    let mut t = server();
    let given = ask(&mut t);
    let key = FastOpenKeys::new(OTHER_KEY).with_backup(KEY).to_string();
    t.stack.set_sysctl("tcp_fastopen_key", &key).unwrap();
    t.inject(&syn(100, given));
    assert!(expect!(t, "S.", ack(101)).fast_open().is_some());
    let id = accept(&mut t);
    read(&mut t, 100);
    // The client did not get it, and retransmits its SYN without the data.
    inject!(t, "S", seq(0), mss(1_000), sackok(), win(65_535));
    assert_eq!(expect!(t, "S.", seq(0), ack(101)).fast_open(), None);
    assert_eq!(t.try_read(), Err(ReadError::WouldBlock), "the data is read once");
    // tcp_synack_retries is 5.
    for ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000] {
        assert_eq!(expect!(t, "S.", seq(0), ack(101), after_ms(ms)).fast_open(), None);
    }
    t.events.clear();
    t.wait_s(64);
    expect_nothing!(t);
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::TimedOut)));
}

/// RFC 9768 §3.1.5: a SYN that requests another kind of ECN than the first, with the same number, is of
/// another connection.
#[test]
fn half_10_a_repeated_syn_with_another_request_ends_an_early_connection_too() {
    let mut t = server_with(10, |config| config.ecn.policy = EcnPolicy::AcceptAccurate);
    let given = ask(&mut t);
    let syn = |flags| Seg::new(flags).seq(0).mss(1_000).sackok().win(65_535).len(10).fast_open(given);
    t.inject(&syn("SAEW"));
    let answer = t.out.pop_front().unwrap();
    assert!(answer.has("S.") && answer.ack == 11);
    let id = accept(&mut t);
    t.inject(&syn("SAEW"));
    assert_eq!(
        t.out.pop_front().map(|again| (again.has("S."), again.ack)),
        Some((true, 11)),
        "the same again"
    );
    let fails = t.stack.counters().attempt_fails;
    t.inject(&syn("SEW"));
    let answer = t.out.pop_front().unwrap();
    assert!(answer.has("R.") && answer.seq == 1, "{answer:?}");
    expect_nothing!(t);
    assert_eq!(t.stack.counters().attempt_fails, fails + 1);
    assert_eq!(t.state(), State::Closed);
    let ended = std::iter::from_fn(|| t.event()).any(|event| event == Event::Failed(id, ConnError::Aborted));
    assert!(ended, "the application is told");
}

#[test]
fn tfo_16_a_listener_accepts_data_only_if_it_and_the_setting_allow_that() {
    let given = ask(&mut server());
    let bits = |t: &mut Trace, bits: &str| t.stack.set_sysctl("tcp_fastopen", bits).unwrap();
    for (setting, pending_max, accepts) in
        [("3", 1, true), ("1", 1, false), ("3", 0, false), ("0x402", 0, true), ("0x400", 1, false)]
    {
        let mut t = server_with(pending_max, |_| {});
        bits(&mut t, setting);
        t.inject(&syn(10, given));
        let answer = expect!(t, "S.", seq(0), ack(if accepts { 11 } else { 1 }));
        assert_eq!(answer.fast_open(), None, "tcp_fastopen = {setting}, limit {pending_max}");
        assert_eq!(none_to_accept(&mut t), !accepts);
    }
}

#[test]
fn tfo_17_a_listener_without_cookies_takes_the_data_of_any_syn() {
    let by_option = FastOpenListen { pending_max: 1, no_cookie: true, keys: None };
    let by_setting = FastOpenListen { no_cookie: false, ..by_option };
    for (setting, options) in [("2", by_option), ("0x202", by_setting)] {
        let mut t = Trace::new();
        t.stack.set_sysctl("tcp_fastopen", setting).unwrap();
        listen(&mut t, options);
        inject!(t, "S", seq(0), mss(1_000), win(65_535), len(10));
        assert_eq!(expect!(t, "S.", ack(11)).fast_open(), None);
        accept(&mut t);
        read(&mut t, 10);
        // A SYN without data and option is an ordinary one.
        t.peer.set_port(5);
        inject!(t, "S", seq(0), mss(1_000), win(65_535));
        expect!(t, "S.", ack(1));
        assert!(none_to_accept(&mut t));
    }
}

#[test]
fn tfo_18_a_listener_that_answers_by_syn_cookies_ignores_data() {
    let given = ask(&mut server());
    let mut t = server_with(10, |config| config.tcp.syncookies = SynCookies::Always);
    t.inject(&syn(10, given));
    assert_eq!(expect!(t, "S.", seq(0), ack(1)).fast_open(), None);
    assert_eq!(t.stack.counters().tcp_fast_open_passive, 0);
    inject!(t, "P.", seq(1), ack(1), len(10));
    accept(&mut t);
    read(&mut t, 10);
}

#[test]
fn tfo_19_a_server_that_closes_before_the_handshake_is_complete() {
    let mut t = server();
    let given = ask(&mut t);
    t.inject(&syn(10, given));
    expect!(t, "S.", ack(11));
    accept(&mut t);
    read(&mut t, 10);
    t.write(20);
    expect!(t, "P.", seq(1), ack(11), len(20));
    t.close();
    expect!(t, "F.", seq(21), ack(11));
    // All at once: the handshake, the data and the FIN.
    inject!(t, "F.", seq(11), ack(22));
    expect!(t, ".", seq(22), ack(12));
    t.wait_s(61);
    t.expect_gone();
    // Without having read: a reset (RFC 2525 §2.17).
    t.inject(&syn(10, given));
    expect!(t, "S.", ack(11));
    accept(&mut t);
    t.close();
    expect!(t, "R.", ack(11));
    t.expect_gone();
}

#[test]
fn tfo_21_the_end_of_a_pending_connection_is_reported() {
    let mut t = server();
    let given = ask(&mut t);
    t.inject(&syn(10, given));
    expect!(t, "S.", ack(11));
    let id = accept(&mut t);
    inject!(t, "R", seq(11));
    t.events.retain(|event| matches!(event, Event::Failed(..)));
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::Reset)));
    read(&mut t, 10);
    assert_eq!(t.try_read(), Err(ReadError::Conn(ConnError::Reset)));
    t.close();
    // The listener goes, and with it what nobody accepted.
    t.inject(&syn(10, given));
    expect!(t, "S.", ack(11));
    let (now, listener) = (t.now, t.listener.unwrap());
    t.stack.close_listener(now, listener);
    expect!(t, "R.", ack(11));
    t.expect_gone();
}

#[test]
fn an_accepted_connection_outlives_its_listener() {
    let mut t = server();
    let given = ask(&mut t);
    t.inject(&syn(10, given));
    expect!(t, "S.", ack(11));
    accept(&mut t);
    let (now, listener) = (t.now, t.listener.unwrap());
    t.stack.close_listener(now, listener);
    inject!(t, ".", seq(11), ack(1));
    assert_eq!(t.state(), State::Established);
    expect_nothing!(t);
}

/// RFC 9768 §3.2.3: its counters have the room that is left. 20 bytes of options and 12 of this one leave 8:
/// two counters.
#[test]
fn tfo_22_the_counters_of_accurate_ecn_give_way() {
    let mut t = server_with(10, |config| config.ecn.policy = taut_core::config::EcnPolicy::AcceptAccurate);
    let ask = Seg::new("SEWA").seq(0).mss(1_000).wscale(7).sackok().ts(5, 0).fast_open(ASKS);
    t.ts = true;
    t.inject(&ask);
    let answer = t.out.pop_front().unwrap();
    assert!(answer.fast_open().is_some_and(|option| option.cookie.is_some()));
    let counters = answer.options.accecn.expect("its first counters are there");
    assert_eq!(
        [counters.ee0b, counters.eceb, counters.ee1b].map(|field| field.is_some()),
        [true, true, false]
    );
    assert_eq!(answer.options.timestamps.map(|timestamps| timestamps.echo), Some(5));
}

#[test]
fn offers_are_unchanged_without_fast_open() {
    let mut t = server();
    t.syn(Offer::ALL);
    let answer = expect!(t, "S.", ack(1));
    assert_eq!(answer.fast_open(), None);
}
