//! Payload that lies at its reader's memory: PLACE-1 and PLACE-2 of `docs/spec/devices.md`.

use crate::support;

use support::trace::{Offer, Seg, Trace};
use taut_core::{ConnOptions, LinkCaps, ListenOptions, StackConfig};

const BULK: Offer = Offer { mss: Some(1_460), wscale: Some(7), sackok: true, ts: true, win: 65_535 };

/// Gives the segment to the stack in two pieces. Returns what its reader has of it.
fn place(t: &mut Trace, seg: &Seg, headers_len: usize) -> Option<usize> {
    let bytes = t.build(seg);
    let (headers, payload) = bytes.split_at(headers_len);
    let (now, id) = (t.now, t.id.unwrap());
    let read = t.stack.handle_placed(now, id, headers, payload, seg.gso);
    t.poll();
    read
}

fn traces(own: &str, peer: &str) -> [Trace; 2] {
    [(); 2].map(|()| {
        let mut t = Trace::on(StackConfig::default(), LinkCaps::offloading(1_500), own, peer);
        t.accept(BULK);
        t
    })
}

#[test]
fn place_1_the_peer_sees_no_difference() {
    for (own, peer, headers) in [("192.0.2.1", "192.0.2.2", 52), ("2001:db8::1", "2001:db8::2", 72)] {
        let [mut usual, mut placed] = traces(own, peer);
        let mut seq = 1;
        // Interactive, then bulk with pauses, then less.
        for (count, len, gso, pause_ms) in [
            (5, 100, 0, 50),
            (40, 1_448, 0, 0),
            (200, 44 * 1_448, 1_448, 1),
            (3, 10, 0, 500),
            (9, 4_344, 1_448, 0),
        ] {
            for _ in 0..count {
                let seg = Seg::new(".").seq(seq).len(len).gso(gso);
                assert_eq!(placed.stack.placed_headers(placed.id.unwrap()), Some(headers));
                assert_eq!(place(&mut placed, &seg, headers), Some(len));
                usual.inject_unpolled(&seg);
                usual.read(len);
                usual.poll();
                seq += len as u32;
                usual.wait_ms(pause_ms);
                placed.wait_ms(pause_ms);
            }
        }
        usual.wait_ms(1_000);
        placed.wait_ms(1_000);
        assert!(usual.out.len() > 100, "{} answers", usual.out.len());
        assert_eq!(format!("{:?}", usual.out), format!("{:?}", placed.out));
        assert_eq!(format!("{:?}", usual.info()), format!("{:?}", placed.info()));
    }
}

#[test]
fn place_2_anything_else_is_left_alone() {
    let refused = |t: &mut Trace, seg: &Seg, headers_len: usize, why: &str| {
        let before = (*t.stack.counters(), format!("{:?}", t.info()));
        assert_eq!(place(t, seg, headers_len), None, "{why}");
        assert_eq!((*t.stack.counters(), format!("{:?}", t.info())), before, "{why}");
        assert!(t.out.is_empty(), "{why}");
    };
    let [mut t, _] = traces("192.0.2.1", "192.0.2.2");
    let data = || Seg::new(".").seq(1).len(1_448);
    for (seg, headers, why) in [
        (Seg::new("F.").seq(1).len(1_448), 52, "a FIN"),
        (Seg::new("R.").seq(1).len(1_448), 52, "a reset"),
        (Seg::new("S.").seq(1).len(1_448), 52, "a SYN"),
        (Seg::new("U.").seq(1).len(1_448), 52, "urgent data"),
        (data().sack(&[(1, 2)]), 52, "longer headers"),
        (data().nots(), 52, "shorter headers"),
        (Seg::new(".").seq(2).len(1_448), 52, "a hole"),
        (Seg::new(".").seq(0).len(1_448), 52, "a byte that is known"),
        (data().port(40_001), 52, "another connection's"),
    ] {
        refused(&mut t, &seg, headers, why);
    }
    let conn = ConnOptions { rcvbuf: Some(5_000), ..ConnOptions::default() };
    let mut narrow = Trace::new();
    narrow.accept_with(BULK, ListenOptions { conn, ..ListenOptions::default() });
    refused(&mut narrow, &Seg::new(".").seq(1).len(60_000).gso(1_448), 52, "more than the window");
    // Bytes wait to be read.
    t.inject(&data());
    t.out.clear();
    refused(&mut t, &Seg::new(".").seq(1_449).len(1_448), 52, "unread bytes");
    assert_eq!(t.stack.placed_headers(t.id.unwrap()), None);
    t.read(1_448);
    assert_eq!(t.stack.placed_headers(t.id.unwrap()), Some(52));
    // Bytes beyond a hole.
    t.inject(&Seg::new(".").seq(5_000).len(1_448));
    t.out.clear();
    refused(&mut t, &Seg::new(".").seq(1_449).len(1_448), 52, "bytes beyond a hole");
    // The end.
    let [mut t, _] = traces("192.0.2.1", "192.0.2.2");
    t.inject(&Seg::new("F.").seq(1));
    assert_eq!(t.stack.placed_headers(t.id.unwrap()), None, "after the end");
}
