//! WIN: the peer's window (RFC 9293 §3.10.7.4), and a congestion window that is not used (RFC 2861).

use crate::recovery_spec::rig::{Rig, Setup};

#[test]
fn win_01_an_ack_of_the_same_sequence_number_shrinks_no_window() {
    // SND.WL1: a reordered ACK may be older. It may open the window, or close it altogether (Linux).
    let mut r = Rig::open(Setup::default());
    let window = |r: &mut Rig, seq: u32, win: u16| {
        r.inject(&Rig::ack_of(0, &[]).seq(seq).win(win));
        r.info().snd_wnd
    };
    assert_eq!(window(&mut r, 1, 30_000), 65_535);
    // A segment with data, and so a higher number after it.
    r.inject(&Rig::ack_of(0, &[]).seq(1).len(100).win(40_000));
    assert_eq!(window(&mut r, 101, 30_000), 30_000);
    assert_eq!(window(&mut r, 101, 20_000), 30_000);
    assert_eq!(window(&mut r, 101, 35_000), 35_000);
    assert_eq!(window(&mut r, 101, 0), 0);
    assert_eq!(window(&mut r, 101, 36_000), 36_000);
    // Nor does one that acknowledges less.
    r.send(2);
    r.inject(&Rig::ack_of(2, &[]).seq(101).win(34_000));
    assert_eq!(r.info().snd_wnd, 34_000);
    r.inject(&Rig::ack_of(1, &[]).seq(101).win(50_000));
    assert_eq!(r.info().snd_wnd, 34_000);
}

#[test]
fn win_02_retransmissions_stay_in_the_window_but_for_the_head() {
    // RFC 9293 §3.8.6: 0 and 1 are lost, and a segment with a higher number has shrunk the window.
    for (win, expected) in [(2_000, vec![0, 1]), (1_999, vec![0]), (999, vec![0]), (0, vec![0])] {
        let mut r = Rig::open(Setup::default());
        r.send(10);
        r.at(100);
        r.inject_unpolled(&Rig::ack_of(0, &[]).seq(1).len(100).win(win));
        r.inject_unpolled(&Rig::ack_of(0, &[(2, 10)]).seq(101).win(win));
        assert_eq!(r.sent(), expected, "window {win}");
    }
}

#[test]
fn win_03_a_window_that_is_not_used_falls_half_way_in_each_rto() {
    // RFC 2861 §3.1 (Linux: tcp_cwnd_application_limited). Of 40 segments five are used for an RTO of 300 ms.
    // The part that was used counts as the initial window, ten: (40 + 10)/2, (25 + 10)/2.
    let mut r = Rig::open(Setup { grows: true, ..Setup::default() });
    r.send(10);
    r.at(100);
    r.ack(10, &[]);
    r.send(20);
    r.at(200);
    r.ack(30, &[]);
    assert_eq!(r.info().snd_cwnd, 40);
    let mut cwnds = Vec::new();
    for n in 0..9 {
        r.send(5);
        cwnds.push(r.info().snd_cwnd);
        r.at(300 + n * 100);
        r.ack(35 + 5 * n as u32, &[]);
    }
    // It was the limit until 100 ms, when the twenty left. Each write is a chance to see that an RTO has
    // passed.
    assert_eq!(cwnds, [40, 40, 25, 25, 25, 17, 17, 17, 13]);
}
