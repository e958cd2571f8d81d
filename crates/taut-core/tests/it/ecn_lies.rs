//! A peer that lies about congestion marks: ATK-24 and ATK-25 of docs/spec/reliability.md.
//!
//! A count that says too much makes its own connection slow, and no more than that: it never stops it, and
//! costs nobody else. A count that says too little is no lie that a sender could see; it gets what a peer
//! without ECN gets, and its queues drop.

use crate::support;

use support::trace::{Offer, Seg, Trace};
use support::{Rng, pattern};
use taut_core::{Duration, StackConfig, State};
use taut_wire::AccEcn;

const MSS: u32 = 1_000;
const ALGORITHMS: [&str; 5] = ["reno", "cubic", "bbr", "dctcp", "prague"];

/// How the peer answers a round of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Honest: nothing was marked.
    None,
    /// ECE in every ACK.
    EceWithoutEnd,
    /// Every ACK's count is seven packets further.
    Jumps,
    /// So is its option, by half of the space of its counters less one.
    JumpsWithOption,
    /// Random counts in the field and in the option.
    Random,
}

impl Lie {
    /// What the SYN offers.
    fn syn(self) -> Seg {
        match self {
            Self::EceWithoutEnd => Seg::new("SEW"),
            _ => Seg::new("SAEW"),
        }
    }

    /// The `n`-th ACK.
    fn ack(self, n: u32, rng: &mut Rng) -> Seg {
        let field = |count: u32| match count % 8 {
            0 => ".",
            1 => ".E",
            2 => ".W",
            3 => ".WE",
            4 => ".A",
            5 => ".AE",
            6 => ".AW",
            _ => ".AWE",
        };
        let option =
            |bytes: u32| AccEcn { ee0b: Some(1), eceb: Some(bytes % AccEcn::MODULUS), ee1b: Some(1) };
        match self {
            // RFC 9768 §3.2.1: counts begin at five. The option shows that they have not gone once around.
            Self::None => Seg::new(".AE").accecn(option(0)),
            Self::EceWithoutEnd => Seg::new(".E"),
            Self::Jumps => Seg::new(field(5 + 7 * n)),
            Self::JumpsWithOption => {
                Seg::new(field(5 + 7 * n)).accecn(option(n.wrapping_mul(AccEcn::MODULUS / 2 - 1)))
            }
            Self::Random => Seg::new(field(rng.next() as u32)).accecn(option(rng.next() as u32)),
        }
    }
}

fn open(algorithm: &str, lie: Lie) -> Trace {
    let config = StackConfig::default().with(|c| {
        c.set_sysctl("tcp_congestion_control", algorithm).unwrap();
        c.set_sysctl("tcp_ecn", "3").unwrap();
    });
    let mut t = Trace::with(config);
    let listener = t.listen();
    t.inject(&lie.syn().seq(0).mss(MSS as u16).wscale(10).sackok().win(65_535));
    t.poll();
    t.out.clear();
    // The answer to a SYN-ACK that arrived unmarked (RFC 9768 table 4).
    let last = if lie == Lie::EceWithoutEnd { Seg::new(".") } else { Seg::new(".W") };
    t.inject(&last.seq(1).ack(1).win(200));
    t.id = Some(t.stack.accept(listener).expect("the handshake is complete").0);
    t.out.clear();
    t
}

/// Windows and bytes of 200 rounds of 10 ms, each acknowledged at its end, twice.
fn rounds(algorithm: &str, lie: Lie) -> (Vec<u32>, u64) {
    let mut t = open(algorithm, lie);
    let mut rng = Rng::new(3);
    let data: Vec<u8> = (0..100_000).map(pattern).collect();
    let (mut windows, mut acks, mut una) = (Vec::new(), 0, 1);
    for _ in 0..200 {
        let now = t.now;
        while t.conn().write(now, &data).is_ok() {}
        let end = t.now + Duration::from_millis(10);
        while t.step(end) {}
        t.now = end;
        let mut nxt = una;
        while let Some(got) = t.out.pop_front() {
            nxt = nxt.max(got.seq + got.payload.len() as u32);
        }
        // The round in two ACKs, so that delayed ACKs play no part.
        let half = una + (nxt - una) / MSS / 2 * MSS;
        for ack in [half, nxt].into_iter().filter(|&ack| ack > una) {
            acks += 1;
            t.inject(&lie.ack(acks, &mut rng).seq(1).ack(ack).win(200));
        }
        una = nxt;
        windows.push(t.info().snd_cwnd);
    }
    let info = t.info();
    assert_eq!(t.state(), State::Established);
    // RFC 9768 §3.2.2.5: an ACK stands for at most the packets that it delivers, or for the seven that its
    // field can tell.
    assert!(
        u64::from(info.delivered_ce) <= info.delivered + 7 * u64::from(acks),
        "{algorithm} {lie:?} {info:?}"
    );
    assert_eq!(t.stack.counters().tcp_timeouts, 0, "{algorithm} {lie:?}");
    (windows, info.bytes_acked)
}

#[test]
fn atk_24_lies_about_marks_slow_down_the_liar_and_do_not_stop_it() {
    for algorithm in ALGORITHMS {
        let (honest, most) = rounds(algorithm, Lie::None);
        for lie in [Lie::EceWithoutEnd, Lie::Jumps, Lie::JumpsWithOption, Lie::Random] {
            let (windows, bytes) = rounds(algorithm, lie);
            // RFC 5681 §3.1: never less than two segments after a reduction; RFC 3168 §6.1.2: at least one in
            // any case.
            let least = windows.iter().min().unwrap();
            println!(
                "{algorithm:7} {lie:?}: cwnd {least} to {}, {bytes} bytes of {most}",
                windows.iter().max().unwrap()
            );
            assert!(*least >= 2, "{algorithm} {lie:?}: {windows:?}");
            // Two segments a round trip, less the one in which the window is reduced.
            assert!(bytes >= 200 * u64::from(MSS), "{algorithm} {lie:?}: {bytes}");
            assert!(
                windows.iter().max() <= honest.iter().max(),
                "{algorithm} {lie:?}: faster than an honest peer"
            );
            assert!(bytes <= most, "{algorithm} {lie:?}");
        }
    }
}

/// RFC 9768 appendix A.1: an ACK that acknowledges nothing new says nothing about marks, however its counts
/// jump.
#[test]
fn atk_25_counts_without_data_say_nothing() {
    for algorithm in ALGORITHMS {
        let mut t = open(algorithm, Lie::Random);
        t.write(20_000);
        t.poll();
        let before = t.info();
        let mut rng = Rng::new(5);
        for n in 0..10_000 {
            // Another window each time: these are no duplicates, which would be signs of a loss.
            t.inject(&Lie::Random.ack(n, &mut rng).seq(1).ack(1).win(900 + (n % 2) as u16));
        }
        let info = t.info();
        assert_eq!(
            (info.delivered_ce, info.snd_cwnd, info.snd_ssthresh),
            (0, before.snd_cwnd, before.snd_ssthresh)
        );
        assert_eq!(info.ca_state, "open", "{algorithm}");
    }
    // Nor does any flag on a connection without ECN.
    let mut t = Trace::accepted(Offer::EASY);
    t.write(5_000);
    t.poll();
    let before = t.info().snd_cwnd;
    inject!(t, ".AWE", seq(1), ack(3_001));
    assert!(t.info().snd_cwnd >= before && t.info().ca_state == "open");
}
