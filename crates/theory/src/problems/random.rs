//! The generator behind the seeded problems: SplitMix64 and Box–Muller. It is our own so that the
//! data never change with a dependency's version.

use std::f64::consts::TAU;

/// A stream of random numbers that depends on the seed alone.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1]: its logarithm is finite.
    fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// `count` standard normal numbers.
    pub(super) fn normals(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.normal()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_the_published_numbers() {
        // The first outputs for seed 1234567 of Vigna's reference implementation.
        let mut random = Random::new(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn normal_numbers_have_the_moments_of_the_normal_distribution() {
        let sample = Random::new(1).normals(100_000);
        let moment = |k: i32| sample.iter().map(|v| v.powi(k)).sum::<f64>() / sample.len() as f64;
        // Four standard errors of the mean of z, z² and z⁴.
        assert!(moment(1).abs() < 4.0 * 0.0032);
        assert!((moment(2) - 1.0).abs() < 4.0 * 0.0045);
        assert!((moment(4) - 3.0).abs() < 4.0 * 0.031);
    }
}
