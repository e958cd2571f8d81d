//! Random worlds whose seed and features the fuzzer chooses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_sim::worlds::{Feature, Plan, Without, run};

fuzz_target!(|data: [u8; 12]| {
    let [seed @ .., a, b, c, d] = data;
    let out = u32::from_le_bytes([a, b, c, d]);
    let without = Feature::ALL.iter().enumerate().filter(|(n, _)| out >> n & 1 != 0).map(|(_, &feature)| feature);
    let plan = Plan::new(u64::from_le_bytes(seed), &Without(without.collect()));
    if let Some(failure) = run(&plan).failure {
        panic!("{failure}\n  repeat it: {}", plan.command());
    }
});
