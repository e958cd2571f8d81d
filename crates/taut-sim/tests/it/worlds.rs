//! The short batch of random worlds, and that a world is what it should be.

use taut_sim::worlds::{Feature, Outcome, Plan, Without, run, shrink};

/// The batch of CI; `make soak` runs more.
const SEEDS: u64 = 1_500;
const THREADS: u64 = 2;

#[test]
fn worlds_of_the_short_batch() {
    let threads = (0..THREADS).map(|part| {
        std::thread::spawn(move || {
            for seed in (part..SEEDS).step_by(THREADS as usize) {
                let plan = Plan::new(seed, &Without::default());
                if let Some(failure) = run(&plan).failure {
                    let least = shrink(&plan, |_| {});
                    panic!("{failure}\n  repeat it: {}\n  smaller:   {}", plan.command(), least.command());
                }
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn outcome(seed: u64, without: &[Feature]) -> Outcome {
    run(&Plan::new(seed, &Without(without.to_vec())))
}

#[test]
fn a_seed_is_a_world_bit_for_bit() {
    for seed in 0..20 {
        let [a, b] = [0, 1].map(|_| outcome(seed, &[]));
        assert_eq!((a.digest, a.events, a.bytes), (b.digest, b.events, b.bytes));
    }
}

/// LAB-30: every packet of a world is the same when nobody stores its payload, whatever the network does to
/// it, and everything that is read is still checked.
#[test]
fn lab_30_worlds_are_the_same_without_payload() {
    for seed in 0..100 {
        let mut plan = Plan::new(seed, &Without::default());
        let with = run(&plan);
        plan.lengths_only = true;
        let without = run(&plan);
        assert_eq!(without.failure, None, "{seed}");
        assert_eq!(
            (with.digest, with.events, with.bytes),
            (without.digest, without.events, without.bytes),
            "{seed}"
        );
    }
}

/// What is left out is not there, and what remains is as it was.
#[test]
fn a_feature_can_be_left_out() {
    let all: Vec<Feature> = Feature::ALL.to_vec();
    for seed in 0..50 {
        let plain = outcome(seed, &all);
        assert_eq!(plain.failure, None);
        // A plan that has none of the features but V6 differs from that at most in its addresses.
        let but_v6: Vec<Feature> = all.iter().copied().filter(|&feature| feature != Feature::V6).collect();
        let v6 = outcome(seed, &but_v6);
        assert_eq!((v6.failure, v6.bytes), (None, plain.bytes), "{seed}");
    }
}

#[test]
fn features_have_names_and_a_command_repeats_them() {
    for &feature in Feature::ALL {
        assert_eq!(feature.name().parse(), Ok(feature));
    }
    let error = "rain".parse::<Feature>().unwrap_err().to_string();
    assert!(error.starts_with("no feature is called rain; choose from lies, blind, "), "{error}");
    let plan = Plan::new(7, &Without(vec![Feature::Loss, Feature::MidRun]));
    assert_eq!(plan.command(), "taut lab worlds --seed 7 --without loss,mid-run");
}
