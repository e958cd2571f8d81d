//! Random numbers from a seed. SplitMix64 (Steele, Lea, Flood 2014): a simulator needs them to be repeatable
//! and fast, not secret.

use taut_core::Duration;

/// A generator of one stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A separate stream, for a part whose draws must not affect others.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Any number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if the bound is 0. The bias is below 2⁻³² for bounds below 2³², which does
    /// not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability, 0 to 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A time below `bound`.
    pub fn below_time(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.below(bound.as_nanos()))
    }

    /// An exponentially distributed time with this mean: the gap between independent events.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // Never zero, so the logarithm is finite.
        let unit = 1.0 - self.unit();
        Duration::from_nanos((-libm::log(unit) * mean.as_nanos() as f64) as u64)
    }

    /// A seed for a stack.
    pub(crate) fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_published_generator() {
        // The first numbers of SplitMix64 with seed 1234567, from its authors' test vectors.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(
            [rng.next(), rng.next(), rng.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn spreads_as_asked() {
        let mut rng = Rng::new(1);
        let hits = (0..100_000).filter(|_| rng.chance(0.01)).count();
        // Five standard deviations of √(100,000 · 0.01 · 0.99) = 31.
        assert!((843..1_157).contains(&hits), "{hits}");
        assert!((0..10_000).all(|_| rng.below(7) < 7));
        let mean =
            (0..100_000).map(|_| rng.exponential(Duration::from_micros(1_000)).as_nanos()).sum::<u64>()
                / 100_000;
        assert!((980_000..1_020_000).contains(&mean), "{mean}");
        assert!(!rng.chance(0.0) && rng.below(0) == 0);
    }
}
