//! Recorded runs of two stacks in virtual time, replayed whole, cut, and changed.

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use taut_core::congestion::{AckEvent, Controller, Definition, Params, Registry, Signal, Window};
use taut_core::{ConnId, Duration, Instant, LinkCaps, SetOption, StackConfig};

use crate::frame::{self, CONTENT_MAX, FrameKind, HEAD_BYTES, PREFACE_BYTES, VERSION};
use crate::input::Kind;
use crate::{Played, Player, RecordEnd, RecordingError, Seen, Taped};
use world::{Run, run};

/// A file that is removed when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("taut-replay-{name}-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// A run, and the recording of its client.
fn recorded(name: &str, seed: u64, kilobytes: usize) -> (Run, Vec<u8>) {
    let file = Scratch::new(&format!("{name}-{seed}"));
    let run = run(&file.0, seed, kilobytes << 10);
    (run, std::fs::read(&file.0).unwrap())
}

/// Replays to the end, or to the first difference or error.
fn replay(bytes: &[u8]) -> Result<(u64, Vec<Played>, Option<RecordEnd>), RecordingError> {
    let mut player = Player::new(bytes, &Registry::default())?;
    let mut others = Vec::new();
    while let Some(played) = player.step(Instant::NEVER, &mut |_| {})? {
        if played != Played::Same {
            let is_over = matches!(played, Played::Different(_));
            others.push(played);
            if is_over {
                break;
            }
        }
    }
    Ok((player.inputs(), others, player.end()))
}

/// The same recording with some bytes of its inputs changed, and the checksums of its frames right.
fn forged(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (mut preface, mut stream) = (bytes[..PREFACE_BYTES].to_vec(), Vec::new());
    let mut at = PREFACE_BYTES;
    while at < bytes.len() {
        let head = frame::Head::get(bytes[at..at + HEAD_BYTES].try_into().unwrap()).unwrap();
        let content = &bytes[at + HEAD_BYTES..at + HEAD_BYTES + head.len];
        match head.check(content).unwrap() {
            FrameKind::Header => preface.extend(&bytes[at..at + HEAD_BYTES + head.len]),
            FrameKind::Inputs => stream.extend_from_slice(content),
            FrameKind::End => {}
        }
        at += HEAD_BYTES + head.len;
    }
    change(&mut stream);
    for content in stream.chunks(CONTENT_MAX) {
        preface.extend(frame::head(FrameKind::Inputs, content));
        preface.extend(content);
    }
    preface
}

#[test]
fn replay_01_a_run_is_replayed_bit_for_bit() {
    let mut lost = 0;
    for seed in 0..12 {
        let (run, bytes) = recorded("whole", seed, 2_000);
        let (inputs, others, end) = replay(&bytes).unwrap();
        assert_eq!((others, end), (vec![], Some(RecordEnd::Whole)), "seed {seed}");
        assert!(inputs > 500, "{inputs} inputs");
        lost += run.lost;
        let report = run.handle.report();
        assert_eq!((report.inputs, report.missed, report.ended), (inputs, 0, None));
    }
    assert!(lost > 50, "{lost} packets were lost");
}

/// Which packets were still held when the application wrote is known to nobody but the recording.
#[test]
fn replay_08_memory_that_others_held_is_held_again() {
    let (run, bytes) = recorded("held", 3, 600);
    assert!(run.kept > 100, "{} packets were kept", run.kept);
    let mut player = Player::new(&*bytes, &Registry::default()).unwrap();
    let mut held = 0;
    loop {
        // What the next input was answered.
        let before = player.inputs();
        let Some(played) = player.step(Instant::NEVER, &mut |_| {}).unwrap() else { break };
        assert_eq!((played, player.inputs()), (Played::Same, before + 1));
        held += player.held();
    }
    assert!(held > 10, "{held} questions were answered with yes");
}

#[test]
fn replay_02_a_change_is_named_with_its_input_and_time() {
    let (_, bytes) = recorded("tampered", 5, 60);
    // Any bit of a run matters: of packets, of data that is written, of times, and of what calls returned.
    let mut named = 0;
    let len = {
        let mut len = 0;
        forged(&bytes, |stream| len = stream.len());
        len
    };
    for at in (0..len).step_by(len / 150 + 1) {
        match replay(&forged(&bytes, |stream| stream[at] ^= 1)) {
            Ok((inputs, others, _)) => {
                let Some(Played::Different(difference)) = others.first() else { continue };
                assert_eq!((difference.input, others.len()), (inputs, 1));
                assert!(difference.at > Instant::ZERO && !difference.replayed.is_empty());
                named += 1;
            }
            Err(RecordingError::Damaged { what, .. }) => assert!(!what.is_empty()),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(named > 100, "{named} differences");
}

/// The first byte that the application wrote.
#[test]
fn replay_02_a_changed_byte_of_data_differs_at_the_packet_that_carries_it() {
    let (_, bytes) = recorded("byte", 1, 60);
    let needle = world::first_bytes(1);
    let changed = forged(&bytes, |stream| {
        let at = stream.windows(needle.len()).position(|window| window == needle).unwrap();
        stream[at + 7] ^= 0x40;
    });
    let (inputs, others, _) = replay(&changed).unwrap();
    let Some(Played::Different(difference)) = others.first() else {
        panic!("no difference in {inputs} inputs")
    };
    assert_eq!(difference.kind, Kind::Transmit);
    assert!(difference.replayed.starts_with("a packet of "), "{}", difference.replayed);
}

#[test]
fn replay_03_a_file_that_was_cut_is_replayed_up_to_the_cut() {
    let (_, bytes) = recorded("cut", 2, 40);
    let whole = replay(&bytes).unwrap().0;
    let mut last = 0;
    for end in (0..bytes.len()).step_by(bytes.len() / 300 + 1) {
        match replay(&bytes[..end]) {
            Ok((inputs, others, ended)) => {
                assert_eq!((others, ended), (vec![], Some(RecordEnd::Cut)), "cut at {end}");
                assert!((last..=whole).contains(&inputs));
                last = inputs;
            }
            Err(RecordingError::NotOurs) => assert!(end < 8, "{end}"),
            Err(RecordingError::NoHeader) => assert!((8..4_000).contains(&end), "{end}"),
            Err(error) => panic!("cut at {end}: {error}"),
        }
    }
    // One byte is missing of the last frame, which has no inputs.
    let (inputs, others, end) = replay(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!((inputs, others, end), (whole, vec![], Some(RecordEnd::Cut)));
}

#[test]
fn replay_04_a_flipped_bit_is_an_error_that_names_the_place() {
    let (_, bytes) = recorded("flipped", 4, 40);
    for at in (0..bytes.len()).step_by(bytes.len() / 400 + 1).chain(0..PREFACE_BYTES + HEAD_BYTES + 50) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        match replay(&flipped) {
            Err(RecordingError::NotOurs) => assert!(at < 8),
            Err(RecordingError::Version { found }) => assert!((8..12).contains(&at) && found != VERSION),
            Err(RecordingError::Damaged { offset, .. }) => assert!((12..=at as u64).contains(&offset)),
            // A length that was made larger runs beyond the end of the file.
            Err(RecordingError::NoHeader) => assert!((13..17).contains(&at), "{at}"),
            Ok((_, others, end)) => assert_eq!((others, end), (vec![], Some(RecordEnd::Cut)), "{at}"),
            Err(error) => panic!("{at}: {error}"),
        }
    }
}

/// Frames that are right around inputs that are not: whatever they say, it ends, without a panic.
#[test]
fn replay_04_nonsense_in_right_frames_ends_in_an_error_or_a_difference() {
    let (_, bytes) = recorded("nonsense", 6, 8);
    let mut random = world::Random(9);
    for _ in 0..300 {
        let nonsense = forged(&bytes, |stream| {
            for _ in 0..1 + random.below(4) {
                let at = random.below(stream.len());
                stream[at] = random.below(256) as u8;
            }
        });
        // Only that it returns: some bytes, such as the payload of a packet that was a duplicate, do not
        // matter.
        _ = replay(&nonsense);
    }
}

#[test]
fn replay_09_at_any_point_the_stack_shows_what_it_showed_then() {
    let (run, bytes) = recorded("looks", 6, 2_000);
    assert!(run.looks.len() > 10);
    let mut player = Player::new(&*bytes, &Registry::default()).unwrap();
    for (inputs, look) in &run.looks {
        while player.inputs() < *inputs {
            assert_eq!(player.step(Instant::NEVER, &mut |_| {}).unwrap(), Some(Played::Same));
        }
        assert_eq!(&world::look(player.stack(), player.now()), look, "after {inputs} inputs");
    }
}

#[test]
fn replay_09_a_replay_stops_at_a_time() {
    let (run, bytes) = recorded("until", 7, 2_000);
    let mut player = Player::new(&*bytes, &Registry::default()).unwrap();
    let middle = world::BEGIN + taut_core::Duration::from_millis(2);
    let (mut sent, mut received) = (0, 0);
    let mut watch = |seen: Seen<'_>| if seen.is_sent { sent += 1 } else { received += 1 };
    while player.step(middle, &mut watch).unwrap().is_some() {}
    assert!(player.now() <= middle && player.begin() >= world::BEGIN && player.inputs() > 10);
    assert!(player.inputs() < run.handle.report().inputs / 2, "the run goes on for long");
    assert_eq!(player.stack().counters().in_receives, received);
    assert_eq!(player.stack().counters().out_requests, sent);
}

#[test]
fn replay_10_what_is_no_recording_of_this_version_is_refused_with_the_reason() {
    assert!(matches!(replay(b""), Err(RecordingError::NotOurs)));
    assert!(matches!(replay(b"\x0a\x0d\x0d\x0a a capture"), Err(RecordingError::NotOurs)));
    let (_, mut bytes) = recorded("version", 0, 1);
    bytes[8] = 9;
    let error = replay(&bytes).unwrap_err().to_string();
    assert!(error.contains("has version 9 of the format, and this program reads version 2"), "{error}");
}

#[test]
fn a_congestion_control_that_the_replaying_program_lacks_is_named() {
    #[derive(Debug)]
    struct Mine;

    impl Controller for Mine {
        fn on_ack(&mut self, _: &mut Window, _: &AckEvent<'_>) {}

        fn reduce(&mut self, window: &Window, _: Signal, _: Instant) -> u32 {
            window.cwnd()
        }
    }

    let file = Scratch::new("mine");
    let mut config = StackConfig::default();
    config.congestion.control = config.congestion.registry.add(Definition::new("mine", |_| Mine)).unwrap();
    let registry = config.congestion.registry.clone();
    drop(crate::record(&file.0, Arc::new(config), LinkCaps::plain(1_500), [1; 32], (0, 1)).unwrap());
    assert!(Player::open(&file.0, &registry).is_ok());
    let error = Player::open(&file.0, &Registry::default()).unwrap_err().to_string();
    assert!(error.contains("mine"), "{error}");
}

/// A congestion control that panics in any of its methods as long as the switch is on.
fn bomb(config: &mut StackConfig) -> Arc<AtomicBool> {
    #[derive(Debug)]
    struct Bomb(Arc<AtomicBool>);

    impl Bomb {
        fn tick(&self) {
            assert!(!self.0.load(Relaxed), "the bomb");
        }
    }

    impl Controller for Bomb {
        fn on_ack(&mut self, _: &mut Window, _: &AckEvent<'_>) {
            self.tick();
        }

        fn reduce(&mut self, window: &Window, _: Signal, _: Instant) -> u32 {
            window.cwnd()
        }

        fn pacing_rate(&self) -> Option<u64> {
            self.tick();
            None
        }

        fn on_idle_end(&mut self, _: &mut Window, _: Instant, _: Duration) {
            self.tick();
        }
    }

    let armed = Arc::new(AtomicBool::new(false));
    let make = {
        let armed = Arc::clone(&armed);
        move |_: &Params| {
            let bomb = Bomb(Arc::clone(&armed));
            bomb.tick();
            bomb
        }
    };
    config.congestion.registry.add(Definition::new("spare", make.clone())).unwrap();
    config.congestion.control = config.congestion.registry.add(Definition::new("bomb", make)).unwrap();
    armed
}

/// The program panicked in a call: the input is in the file, its outcome is not. A write is not in the file.
#[test]
fn replay_11_a_call_that_did_not_return_is_replayed() {
    type Call = fn(&mut Taped, Instant, ConnId, &[u8]);
    let now = world::BEGIN;
    let calls: [(Call, u64); 3] = [
        (
            |taped, now, conn, _| {
                let spare = taped.config().congestion.registry.algorithm("spare").unwrap();
                _ = taped.conn_mut(conn).unwrap().set_option(now, SetOption::Congestion(spare));
            },
            1,
        ),
        (|taped, now, _, ack| taped.handle_packet(now, world::arriving(ack)), 1),
        (
            |taped, now, conn, _| {
                _ = taped.conn_mut(conn).unwrap().write(now + Duration::from_secs(10), &[1; 100]);
            },
            0,
        ),
    ];
    for (number, (call, lost)) in calls.into_iter().enumerate() {
        let file = Scratch::new(&format!("panicked-{number}"));
        let mut config = StackConfig::default().with(|c| c.addresses.push("10.0.0.1".parse().unwrap()));
        let armed = bomb(&mut config);
        let registry = config.congestion.registry.clone();
        let caps = LinkCaps::plain(1_500);
        let (mut taped, handle) = crate::record(&file.0, Arc::new(config), caps, [1; 32], (0, 1)).unwrap();
        let (conn, ack) = world::established(&mut taped, now);
        if lost == 0 {
            // A write after some idle time asks the congestion control.
            taped.handle_packet(now, world::arriving(&ack));
        }
        let before = handle.report().inputs;
        armed.store(true, Relaxed);
        let result = catch_unwind(AssertUnwindSafe(|| call(&mut taped, now, conn, &ack)));
        assert!(result.is_err(), "call {number} returned");
        armed.store(false, Relaxed);
        // Whoever goes on with the stack is recorded, too.
        let more = number % 2;
        if more == 1 {
            taped.set_link_paces(true);
        }
        drop(taped);
        let inputs = before + lost + more as u64;
        assert_eq!(handle.report().inputs, inputs);
        let mut player = Player::open(&file.0, &registry).unwrap();
        let mut others = Vec::new();
        while let Some(played) = player.step(Instant::NEVER, &mut |_| {}).unwrap() {
            if played != Played::Same {
                others.push(played);
            }
        }
        let expected: Vec<_> = (0..lost).map(|_| Played::Lost(before + 1)).collect();
        assert_eq!((player.inputs(), others, player.end()), (inputs, expected, Some(RecordEnd::Whole)));
    }
}
