//! Random numbers from a seed: the same seed gives the same run. Called by `netem.rs`.
//!
//! xoshiro256++ (Blackman and Vigna, 2018): 32 bytes of state, a nanosecond per number, and no correlation
//! that could affect a queue. Not suitable for secrets.

use alloc::format;
use core::fmt;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A probability, or a share, in units of 2⁻³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u64);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(1 << 32);

    /// Converts a share of 1, clamped to 0 and 1.
    #[must_use]
    pub fn from_share(share: f64) -> Self {
        Self((share.clamp(0.0, 1.0) * Self::ALWAYS.0 as f64 + 0.5) as u64)
    }

    /// The probability as a share of 1.
    #[must_use]
    pub fn share(self) -> f64 {
        self.0 as f64 / Self::ALWAYS.0 as f64
    }

    /// One minus this.
    #[must_use]
    pub const fn complement(self) -> Self {
        Self(Self::ALWAYS.0 - self.0)
    }

    /// Whether this is 0.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Chance {
    /// Writes a percentage, with enough digits to distinguish it from other values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.share() * 100.0;
        let text = (0..9)
            .map(|digits| format!("{percent:.digits$}"))
            .find(|text| text.parse().is_ok_and(|percent: f64| Self::from_share(percent / 100.0) == *self))
            .unwrap_or_else(|| format!("{percent}"));
        write!(f, "{text}%")
    }
}

/// Random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn bits(&mut self) -> u32 {
        // The higher half has better randomness.
        (self.0.next_u64() >> 32) as u32
    }

    pub(crate) fn happens(&mut self, chance: Chance) -> bool {
        // Certain outcomes draw no number, so that an option that is not given does not change the others.
        !chance.is_never() && u64::from(self.bits()) < chance.0
    }

    /// From 0 up to, but not including, 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Random numbers, each correlated with the previous one by ρ: `x = ρ·x' + (1 − ρ)·random`, as in `netem`.
/// The mixing pulls values towards the middle, so rare events become rarer still (Salsano et al., 2012).
#[derive(Clone, Debug)]
pub(crate) struct Correlated {
    rho: Chance,
    last: u32,
}

impl Correlated {
    /// Begins with a random value.
    pub(crate) fn new(rho: Chance, random: &mut Random) -> Self {
        let last = if rho.is_never() { 0 } else { random.bits() };
        Self { rho, last }
    }

    pub(crate) fn bits(&mut self, random: &mut Random) -> u32 {
        let fresh = random.bits();
        if self.rho.is_never() {
            return fresh;
        }
        let mixed = u64::from(fresh) * (Chance::ALWAYS.0 - self.rho.0) + u64::from(self.last) * self.rho.0;
        self.last = (mixed >> 32) as u32;
        self.last
    }

    pub(crate) fn happens(&mut self, chance: Chance, random: &mut Random) -> bool {
        !chance.is_never() && u64::from(self.bits(random)) < chance.0
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_seed_is_a_run() {
        let run = |seed| {
            (0..20)
                .map({
                    let mut random = Random::new(seed);
                    move |_| random.bits()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn chances_are_met() {
        let mut random = Random::new(7);
        let mut count = |share| (0..100_000).filter(|_| random.happens(Chance::from_share(share))).count();
        assert_eq!((count(0.0), count(1.0)), (0, 100_000));
        // Three standard deviations of 100,000 draws at 25 % are 411.
        assert!(count(0.25).abs_diff(25_000) < 411);
    }

    #[test]
    fn correlated_numbers_resemble_each_other_by_that_much() {
        let mut random = Random::new(7);
        let mut numbers = Correlated::new(Chance::from_share(0.75), &mut random);
        let x: Vec<f64> =
            (0..100_000).map(|_| f64::from(numbers.bits(&mut random)) / 4_294_967_296.0).collect();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
        let covariance =
            x.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / x.len() as f64;
        let rho = covariance / variance;
        assert!((0.74..0.76).contains(&rho), "{rho}");
        assert!((0.49..0.51).contains(&mean), "{mean}");
    }
}
