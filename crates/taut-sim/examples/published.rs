//! Runs the five published experiments and prints what came out.
//!
//! `cargo run --release -p taut-sim --example published -- [1] [2] [3] [4] [5]`

use std::env;
use std::error::Error;

use taut_core::{AutocorkMode, AutosizeMode, LowatMode, TsqMode};
use taut_sim::published::{
    AutocorkCase, AutosizeCase, LowatCase, PacingCase, Spacer, TsqCase, autocork, autosize, lowat, pacing,
    tsq,
};

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<String> = env::args().skip(1).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    if wanted("1") {
        for rate in ["1gbit", "100mbit"] {
            for tso in [true, false] {
                for mode in [TsqMode::Off, TsqMode::Fixed { cap_bytes: TsqMode::CAP_2012 }] {
                    println!(
                        "1 {rate} tso {tso} {mode:?}: {:.3?}",
                        tsq(TsqCase::of_2012(rate.parse()?, tso, mode))?
                    );
                }
            }
            let today = TsqCase {
                autosizing: AutosizeMode::AtTransmit,
                ..TsqCase::of_2012(rate.parse()?, true, TsqMode::RateScaled)
            };
            println!("1 {rate} today: {:.3?}", tsq(today)?);
        }
    }
    if wanted("2") {
        for mode in [AutosizeMode::AtWrite, AutosizeMode::AtTransmit] {
            println!("2 {mode:?}: {:?}", autosize(AutosizeCase { rate: "10gbit".parse()?, mode, seed: 1 })?);
        }
    }
    if wanted("3") {
        for seed in 1..=3 {
            for mode in [AutocorkMode::MayHoldHead, AutocorkMode::Fixed] {
                let case = AutocorkCase::published("10gbit".parse()?, mode, seed);
                println!("3 seed {seed} {mode:?}: {:.2?}", autocork(case)?);
                if mode == AutocorkMode::MayHoldHead {
                    let case = AutocorkCase { race: None, ..case };
                    println!("3 seed {seed} {mode:?} without the race: {:.2?}", autocork(case)?);
                }
            }
        }
    }
    if wanted("4") {
        for (name, mark, mode) in [
            ("unset", None, LowatMode::WakeAtHalf),
            ("wake at mark", Some(2_097_152), LowatMode::WakeAtMark),
            ("wake at half", Some(2_097_152), LowatMode::WakeAtHalf),
        ] {
            println!("4 {name}: {:.0?}", lowat(LowatCase::published("40gbit".parse()?, mark, mode))?);
        }
    }
    if wanted("5") {
        for spacer in [Spacer::Internal, Spacer::Stamped, Spacer::Fq] {
            let case = PacingCase::published("40gbit".parse()?, "45mbit".parse()?, spacer);
            println!("5 {spacer:?}: {:.3?}", pacing(case)?);
        }
    }
    Ok(())
}
