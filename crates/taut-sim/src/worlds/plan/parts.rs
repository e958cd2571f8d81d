//! The parts of a plan: hosts, faults, changes and conversations, each drawn from its features' random
//! numbers.

use std::net::{IpAddr, Ipv6Addr};

use taut_core::{Duration, Instant, SetOption, StackConfig};
use taut_link::{BqlSpec, Rate};

use super::{Change, Conversation, Draw, Feature, Shape, ms, pick, spread, us};
use crate::event::BEGIN;
use crate::parts::cpu::{CpuModel, Wakeups};
use crate::parts::fault::{Faults, GilbertElliott};
use crate::parts::host::{HostSpec, Returns};
use crate::rng::Rng;
use crate::worlds::talk::{Ending, Opening, Reading, Script};

/// Settings with values that are allowed, and with which a polite conversation still finishes.
const SYSCTLS: &[(&str, &[&str])] = &[
    ("tcp_autocorking", &["0", "1"]),
    ("taut.autocork", &["off", "may-hold-head", "fixed", "stream"]),
    ("taut.autosizing", &["off", "at-write", "at-transmit"]),
    ("taut.tsq", &["off", "fixed", "fixed:20000", "rate-scaled", "delivered", "measured", "auto"]),
    ("taut.pacing", &["off", "internal", "delegated", "auto"]),
    ("taut.lowat", &["wake-at-mark", "wake-at-half"]),
    ("taut.buffers", &["follow-window", "follow-path"]),
    ("tcp_limit_output_bytes", &["3000", "131072", "4194304"]),
    ("tcp_notsent_lowat", &["0", "1", "16384", "4294967295"]),
    ("tcp_min_tso_segs", &["1", "2", "40"]),
    ("tcp_tso_win_divisor", &["0", "1", "3"]),
    ("tcp_congestion_control", &["reno", "cubic", "bbr", "dctcp", "prague"]),
    ("tcp_slow_start_after_idle", &["0", "1"]),
    ("tcp_sack", &["0", "1"]),
    ("tcp_timestamps", &["0", "1"]),
    ("tcp_window_scaling", &["0", "1"]),
    ("tcp_ecn", &["0", "1", "2", "3", "4", "5"]),
    ("tcp_ecn_option", &["0", "1", "2", "3"]),
    ("tcp_recovery", &["1", "3", "5", "7"]),
    ("tcp_frto", &["0", "2"]),
    ("tcp_early_retrans", &["0", "3"]),
    ("tcp_rto_min_us", &["5000", "200000", "1000000"]),
    ("tcp_comp_sack_delay_ns", &["0", "1000000", "10000000"]),
    ("tcp_comp_sack_nr", &["0", "1", "44"]),
    ("tcp_moderate_rcvbuf", &["0", "1"]),
    // Not 2: with a cookie, a segment that overtakes the ACK of the handshake resets the connection, as in
    // Linux.
    ("tcp_syncookies", &["0", "1"]),
    // Not 0: two hosts that a liar has put out of step answer each other's ACKs for ever without a limit (RFC
    // 9293 §3.10.7.4).
    ("tcp_invalid_ratelimit", &["20", "500"]),
    ("tcp_pacing_ss_ratio", &["100", "200", "400"]),
    ("tcp_pacing_ca_ratio", &["100", "120", "200"]),
];

/// By when every server listens: a thread wakes up at most 11.5 ms late (`Wakeups`).
const LISTENING: Duration = Duration::from_millis(20);

pub(super) fn port_queue(rng: &mut Rng, bits: u64) -> String {
    match rng.below(7) {
        0 => format!("pfifo limit {}", spread(rng, 3, 2_000)),
        1 => format!("bfifo limit {}", spread(rng, 6_000, 2_000_000)),
        2 => "pfifo_fast".to_owned(),
        3 => format!("fq limit {} flow_limit {}", spread(rng, 20, 10_000), spread(rng, 10, 100)),
        4 => "fq_codel".to_owned(),
        5 => format!("fq_codel limit {} ecn", spread(rng, 20, 10_000)),
        _ => format!("tbf rate {}bit burst 20kb limit 100kb", bits / 2 + 1_000_000),
    }
}

pub(super) fn hosts(draw: &Draw<'_>, count: usize, access: Rate) -> Vec<HostSpec> {
    let v6 = draw.of(Feature::V6, 0.25).is_some();
    let mut sysctls = draw.of(Feature::Sysctls, 0.7);
    let mut buffers = draw.of(Feature::Buffers, 0.3);
    let mut nics = draw.of(Feature::Nics, 0.5);
    let mut queues = draw.of(Feature::Queues, 0.7);
    let mut cpu = draw.of(Feature::Cpu, 0.3);
    let mut late = draw.of(Feature::Late, 0.25);
    let mut refuse = draw.of(Feature::Refuse, 0.2);
    let mut completions = draw.of(Feature::Completions, 0.4);
    (0..count)
        .map(|number| {
            let mut config = StackConfig::default();
            if v6 {
                let last = number as u16 + 1;
                config.addresses.push(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)));
            }
            if let Some(rng) = &mut sysctls {
                for _ in 0..rng.below(6) {
                    let (name, values) = pick(rng, SYSCTLS);
                    set(&mut config, name, pick(rng, values));
                }
            }
            if let Some(rng) = &mut buffers {
                for name in ["tcp_rmem", "tcp_wmem"] {
                    let initial = spread(rng, 4_096, 300_000);
                    let max = initial.max(spread(rng, 4_096, 4_000_000));
                    set(&mut config, name, &format!("4096 {initial} {max}"));
                }
            }
            let mut spec = HostSpec::new(access);
            spec.config = config;
            if let Some(rng) = &mut nics {
                spec.nic.tso = rng.chance(0.6);
                spec.nic.gro = rng.chance(0.6);
                spec.nic.ring = spread(rng, 5, 512) as usize;
                spec.nic.rx_ring = spread(rng, 32, 4_096) as usize;
                (spec.nic.tx_usecs, spec.nic.tx_frames) = (us(rng.below(200)), rng.below(20) as u32);
                (spec.nic.rx_usecs, spec.nic.rx_frames) = (us(rng.below(200)), rng.below(20) as u32);
                spec.nic.bql = rng.chance(0.5).then(BqlSpec::default);
                spec.mtu = pick(rng, &[1_280, 1_400, 1_500, 1_500, 1_500, 9_000]);
                spec.batched = rng.chance(0.7);
                spec.pacing_shift = 7 + rng.below(5) as u8;
            }
            if let Some(rng) = &mut completions {
                spec.tells_departures = rng.chance(0.5);
                if rng.chance(0.5) {
                    (spec.nic.tx_usecs, spec.nic.tx_frames) = (us(spread(rng, 200, 8_000)), 0);
                }
            }
            if let Some(rng) = &mut queues {
                let text = pick(
                    rng,
                    &[
                        "pfifo_fast",
                        "fq",
                        "fq_codel",
                        "pfifo limit 20",
                        "fq limit 100 flow_limit 20",
                        "pfifo limit 2",
                    ],
                );
                spec.qdisc = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
                spec.delegate_pacing = rng.chance(0.7);
            }
            if let Some(rng) = &mut cpu {
                let mut time = |below: u64| Duration::from_nanos(rng.below(below));
                spec.cpu = CpuModel {
                    interrupt: time(5_000),
                    rx_packet: time(3_000),
                    rx_segment: time(500),
                    tx_packet: time(3_000),
                    completion: time(1_000),
                    timer: time(3_000),
                    context_switch: time(5_000),
                    syscall: time(2_000),
                    jitter: 0.2,
                    ..CpuModel::default()
                };
                spec.cpu.completions_apart = rng.chance(0.3);
                spec.cpu.wakeups =
                    pick(rng, &[Wakeups::Exact, Wakeups::Quiet, Wakeups::Busy, Wakeups::Late(us(300))]);
            }
            if let Some(rng) = &mut late {
                spec.returns = Returns { late: us(spread(rng, 10, 100_000)), ..spec.returns };
            }
            if let Some(rng) = &mut refuse {
                spec.returns.refuse = rng.unit() * 0.2;
            }
            spec
        })
        .collect()
}

/// Sets a setting of the plan's own lists.
pub(super) fn set(config: &mut StackConfig, name: &str, value: &str) {
    config.set_sysctl(name, value).unwrap_or_else(|error| panic!("{error}"));
}

pub(super) fn faults(draw: &Draw<'_>, direction: u64, calm: Instant) -> Faults {
    let of = |feature, probability| {
        // Each direction has numbers of its own, but both have the feature or none.
        draw.of(feature, probability).map(|mut rng| if direction == 0 { rng } else { rng.fork() })
    };
    let mut faults = Faults::default();
    if let Some(mut rng) = of(Feature::Loss, 0.5) {
        faults.loss = spread(&mut rng, 1, 300) as f64 / 1_000.0;
    }
    if let Some(mut rng) = of(Feature::Bursts, 0.2) {
        let p = spread(&mut rng, 1, 100) as f64 / 10_000.0;
        faults.bursts =
            Some(GilbertElliott { p, r: 0.05 + 0.3 * rng.unit(), bad: 0.5 + rng.unit() / 2.0, good: 0.0 });
    }
    if let Some(mut rng) = of(Feature::Reorder, 0.3) {
        faults.reorder = rng.unit() * 0.3;
        faults.reorder_delay = us(spread(&mut rng, 10, 50_000));
    }
    if let Some(mut rng) = of(Feature::Duplicate, 0.3) {
        faults.duplicate = rng.unit() * 0.2;
    }
    if let Some(mut rng) = of(Feature::Corrupt, 0.2) {
        faults.corrupt = rng.unit() * 0.05;
    }
    if let Some(mut rng) = of(Feature::Jitter, 0.3) {
        faults.jitter = us(spread(&mut rng, 1, 20_000));
        faults.in_order = rng.chance(0.5);
    }
    if let Some(mut rng) = of(Feature::Dark, 0.25) {
        for _ in 0..=rng.below(3) {
            let from = BEGIN + rng.below_time(calm.since(BEGIN));
            faults.blackouts.push((from, (from + rng.below_time(ms(3_000))).min(calm)));
        }
    }
    if let Some(mut rng) = of(Feature::Mtu, 0.25) {
        let mut at = BEGIN;
        for _ in 0..=rng.below(4) {
            at += rng.below_time(ms(2_000));
            faults.mtu.push((at, pick(&mut rng, &[1_280, 1_300, 1_400, 1_492, 9_000])));
        }
        // In the end the path carries less than at the beginning, and still so when the faults are over.
        faults.mtu_silent = rng.chance(0.2);
    }
    faults
}

pub(super) fn changes(draw: &Draw<'_>, hosts: usize, calm: Instant) -> Vec<Change> {
    let Some(mut rng) = draw.of(Feature::MidRun, 0.4) else { return Vec::new() };
    let mut changes: Vec<Change> = (0..=rng.below(12))
        .map(|_| {
            let (name, values) = pick(&mut rng, SYSCTLS);
            let value = pick(&mut rng, values);
            let at = BEGIN + rng.below_time(calm.since(BEGIN) * 2);
            Change { at, host: rng.below(hosts as u64) as usize, name, value }
        })
        .collect();
    changes.sort_by_key(|change| change.at);
    changes
}

/// Bytes that a slow line may carry in one world: a few seconds' worth, so that a world stays short.
fn bytes_max(bits: u64) -> u64 {
    (bits / 8 * 2).clamp(100_000, 2_000_000)
}

pub(super) fn talks(
    draw: &Draw<'_>,
    rng: &mut Rng,
    hosts: usize,
    shape: Shape,
    bits: u64,
) -> Vec<Conversation> {
    let crowd = draw.of(Feature::Crowd, 0.6);
    let count = crowd.map_or(1, |mut rng| 1 + spread(&mut rng, 1, 12));
    let mut slow = draw.of(Feature::Slow, 0.4);
    let mut writes = draw.of(Feature::Writes, 0.6);
    let mut rude = draw.of(Feature::Rude, 0.35);
    let mut options = draw.of(Feature::Options, 0.6);
    let most = bytes_max(bits) / count;
    (0..count)
        .map(|_| {
            let client = rng.below(hosts as u64) as usize;
            // Across the line in the middle, in most shapes.
            let server = match shape {
                Shape::Dumbbell { pairs } => (client + pairs) % hosts,
                _ => (client + 1 + rng.below(hosts as u64 - 1) as usize) % hosts,
            };
            // Not before the server listens, whose thread may wake up late.
            let start = (BEGIN + rng.below_time(ms(2_000))).max(BEGIN + LISTENING);
            let bytes = [0, 1].map(|_| match rng.below(8) {
                0 => 0,
                1..4 => spread(rng, 1, most),
                _ => spread(rng, most / 10, most),
            });
            let answers = rng.chance(0.3);
            let mut scripts = bytes.map(Script::plain);
            // A response waits for the request, or for a part of it.
            scripts[1].after = if answers { bytes[0].min(1 + rng.below(bytes[0] + 1)) } else { 0 };
            // At most one end waits for the other's FIN before its own, or both would wait for ever.
            let waits = rng.below(3);
            if let Some(script) = scripts.get_mut(waits as usize) {
                script.ending = Ending::AfterPeer;
            }
            for script in &mut scripts {
                if let Some(rng) = &mut writes {
                    script.write = spread(rng, 1, 65_536).max(script.bytes / 2_000) as usize;
                    script.gap = if rng.chance(0.3) && script.bytes / script.write as u64 <= 200 {
                        us(spread(rng, 1, 20_000))
                    } else {
                        Duration::ZERO
                    };
                    (script.more, script.eor, script.owned) =
                        (rng.unit() * 0.3, rng.unit() * 0.2, rng.chance(0.3));
                }
                if let Some(rng) = &mut slow {
                    script.reading = reading(rng, most);
                }
                if let Some(rng) = &mut options {
                    script.opening = opening(rng);
                    for _ in 0..rng.below(4) {
                        let at = rng.below(script.bytes + 1);
                        script.options.push((at, option(rng)));
                    }
                    script.options.sort_by_key(|(at, _)| *at);
                }
                if let Some(rng) = &mut rude
                    && rng.chance(0.4)
                {
                    script.ending = match rng.below(5) {
                        0 => Ending::CloseEarly,
                        1 => Ending::Abort { after: rng.below(script.bytes + 1) },
                        2 => Ending::Vanish { after: rng.below(script.bytes + 1) },
                        3 => Ending::CloseAt(start + rng.below_time(ms(5_000))),
                        _ => Ending::Deaf { after: rng.below(most) },
                    };
                }
            }
            Conversation { client, server, start, scripts }
        })
        .collect()
}

fn reading(rng: &mut Rng, most: u64) -> Reading {
    match rng.below(4) {
        0 => Reading::Eager,
        1 => Reading::Chunks,
        2 => Reading::Late { pause: ms(spread(rng, 1, 20_000)) },
        // Some seconds for everything.
        _ => Reading::Slow { chunk: (most / 100).max(1) as usize, every: ms(1 + rng.below(100)) },
    }
}

/// The options with which an end begins.
fn opening(rng: &mut Rng) -> Opening {
    Opening {
        nodelay: rng.chance(0.3),
        sndbuf: rng.chance(0.2).then(|| spread(rng, 1, 1_000_000) as u32),
        rcvbuf: rng.chance(0.2).then(|| spread(rng, 1, 1_000_000) as u32),
        notsent_lowat: if rng.chance(0.3) { spread(rng, 1, 200_000) as u32 } else { 0 },
        // Not below what carries the bytes in some seconds.
        max_pacing_rate: rng.chance(0.1).then(|| spread(rng, 200_000, 1_000_000_000)),
        maxseg: rng.chance(0.15).then(|| spread(rng, 88, 1_460) as u16),
        congestion: rng.chance(0.3).then(|| pick(rng, &["reno", "cubic", "bbr", "dctcp", "prague"])),
    }
}

fn option(rng: &mut Rng) -> SetOption {
    match rng.below(7) {
        0 => SetOption::Nodelay(rng.chance(0.5)),
        // Uncorked again when its end has written everything: see `talk.rs`.
        1 => SetOption::Cork(rng.chance(0.5)),
        2 => SetOption::Quickack(rng.chance(0.5)),
        3 => SetOption::NotsentLowat(spread(rng, 1, 200_000) as u32),
        4 => SetOption::Sndbuf(spread(rng, 1, 1_000_000) as u32),
        5 => SetOption::Rcvbuf(spread(rng, 1, 1_000_000) as u32),
        _ => SetOption::MaxPacingRate(spread(rng, 200_000, 1_000_000_000)),
    }
}
