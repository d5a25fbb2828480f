//! Counter-based random numbers: a function of (seed, site, step, index), the same on every device, with no state to save.
//!
//! The generator is Philox 4×32-10 (Salmon, Moraes, Dror & Shaw, *Parallel random numbers: as easy as 1, 2, 3*, 2011). The seed
//! is its key; the site (which use of randomness it is), the step and the index are its counter.

use crate::cpu::math::{Real, dispatch};
use rayon::prelude::*;

/// How many blocks of four numbers are made at a time.
const BLOCKS: usize = 64;

/// Blocks of normal numbers that a thread makes at a time.
const PART: usize = 1 << 14;

/// The ten rounds of Philox 4×32.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product = |factor: u32, value: u32| u64::from(factor) * u64::from(value);
        let (first, second) = (product(0xD251_1F53, counter[0]), product(0xCD9E_8D57, counter[2]));
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// [`philox`] for a loop over counters that is to become vector code.
///
/// The upper half of each word of the state is anything; the product of two lower halves is one instruction.
#[inline(always)]
fn philox_wide(mut counter: [u64; 4], mut key: [u32; 2]) -> [u32; 4] {
    const LOW: u64 = 0xFFFF_FFFF;
    for _ in 0..10 {
        let (first, second) = (0xD251_1F53 * (counter[0] & LOW), 0xCD9E_8D57 * (counter[2] & LOW));
        counter = [
            (second >> 32) ^ counter[1] ^ u64::from(key[0]),
            second,
            (first >> 32) ^ counter[3] ^ u64::from(key[1]),
            first,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter.map(|word| word as u32)
}

/// One use of randomness at one step: an endless row of numbers that can be read anywhere.
///
/// ```
/// use untuned_net::random::Site;
///
/// let dropout = Site { seed: 1, site: 7, step: 100 };
/// assert_eq!(dropout.bits(41), dropout.bits(41), "no state: the same index is the same number");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// The run's seed.
    pub seed: u64,
    /// Which use of randomness this is.
    pub site: u32,
    /// The step of the run.
    pub step: u32,
}

impl Site {
    /// Four numbers of 32 random bits: those with indices `4·block` to `4·block + 3`.
    #[inline]
    pub fn block(&self, block: u64) -> [u32; 4] {
        let counter = [block as u32, (block >> 32) as u32, self.step, self.site];
        philox(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }

    /// 32 random bits.
    #[inline]
    pub fn bits(&self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// A number in `[0, 1)` with 24 random bits.
    #[inline]
    pub fn uniform(&self, index: u64) -> f32 {
        unit(self.bits(index))
    }

    /// Fills with numbers in `[low, high)`.
    pub fn fill_uniform(&self, out: &mut [f32], low: f32, high: f32) {
        self.fill(
            0,
            out,
            #[inline(always)]
            move |bits| low + (high - low) * unit(bits),
        );
    }

    /// Fills with the factors of dropout: 0 where the [number](Site::uniform) with the index `first + i` is below `drop`, and
    /// 1/(1 − drop) elsewhere. Without dropout, `drop = 0`, all are 1.
    ///
    /// # Panics
    /// When `drop` is not in `[0, 1)`.
    pub fn fill_dropout<R: Real>(&self, first: u64, out: &mut [R], drop: f32) {
        assert!((0.0..1.0).contains(&drop), "the probability of dropping a number is in [0, 1), not {drop}");
        if drop == 0.0 {
            return out.fill(R::ONE);
        }
        let keep = (R::ONE - R::from_f32(drop)).recip();
        // k/2²⁴ < drop, with both sides times 2²⁴ (exact) and then 2⁸: the same comparison on the bits themselves.
        let limit = ((drop * 16_777_216.0).ceil() as u32) << 8;
        self.fill(
            first,
            out,
            #[inline(always)]
            move |bits| if bits < limit { R::ZERO } else { keep },
        );
    }

    /// `out[i] = value(self.bits(first + i))`, many at a time.
    #[inline(always)]
    fn fill<T: Copy>(&self, first: u64, out: &mut [T], value: impl Fn(u32) -> T) {
        let skipped = (first % 4) as usize;
        let (head, rest) = out.split_at_mut(if skipped == 0 { 0 } else { (4 - skipped).min(out.len()) });
        for (out, bits) in head.iter_mut().zip(self.block(first / 4).into_iter().skip(skipped)) {
            *out = value(bits);
        }
        let block = first.div_ceil(4);
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let (step, site) = (u64::from(self.step), u64::from(self.site));
        dispatch(
            #[inline(always)]
            move || {
                let mut words = [[0u32; BLOCKS]; 4];
                for (chunk, out) in rest.chunks_mut(4 * BLOCKS).enumerate() {
                    let block = block + (chunk * BLOCKS) as u64;
                    // Whole vectors; the blocks too many are not used.
                    let count = (out.len().div_ceil(4).next_multiple_of(16)).min(BLOCKS);
                    for i in 0..count {
                        let counter = block + i as u64;
                        let bits = philox_wide([counter, counter >> 32, step, site], key);
                        for (words, bits) in words.iter_mut().zip(bits) {
                            words[i] = bits;
                        }
                    }
                    let (whole, tail) = out.as_chunks_mut::<4>();
                    let [first, second, third, fourth] = &words;
                    let words_of = first.iter().zip(second).zip(third).zip(fourth);
                    for (out, (((&a, &b), &c), &d)) in whole.iter_mut().zip(words_of) {
                        *out = [value(a), value(b), value(c), value(d)];
                    }
                    for (out, words) in tail.iter_mut().zip(&words) {
                        *out = value(words[whole.len()]);
                    }
                }
            },
        );
    }

    /// Fills with normal numbers of mean 0 (Box and Muller's method, computed in f64).
    pub fn fill_normal(&self, out: &mut [f32], deviation: f64) {
        out.par_chunks_mut(4 * PART)
            .enumerate()
            .for_each(|(part, out)| self.fill_normal_from((part * PART) as u64, out, deviation));
    }

    /// The same from the `first` block of four on.
    fn fill_normal_from(&self, first: u64, out: &mut [f32], deviation: f64) {
        for (block, chunk) in (first..).zip(out.chunks_mut(4)) {
            let bits = self.block(block);
            for (pair, bits) in chunk.chunks_mut(2).zip([[bits[0], bits[1]], [bits[2], bits[3]]]) {
                // In (0, 1], so that the logarithm is finite.
                let radius = (-2.0 * ((f64::from(bits[0]) + 1.0) / 4_294_967_296.0).ln()).sqrt();
                let angle = std::f64::consts::TAU * f64::from(bits[1]) / 4_294_967_296.0;
                for (value, part) in pair.iter_mut().zip([angle.cos(), angle.sin()]) {
                    *value = (deviation * radius * part) as f32;
                }
            }
        }
    }

    /// The numbers of this site one after the other.
    pub fn draws(self) -> Draws {
        Draws { site: self, next: 0 }
    }
}

#[inline]
fn unit(bits: u32) -> f32 {
    (bits >> 8) as f32 / 16_777_216.0
}

/// The numbers of a [`Site`] one after the other, for data that is drawn and not indexed.
#[derive(Debug, Clone)]
pub struct Draws {
    site: Site,
    next: u64,
}

impl Draws {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let block = self.site.block(self.next / 2);
        let at = (self.next % 2) as usize * 2;
        self.next += 1;
        u64::from(block[at]) | u64::from(block[at + 1]) << 32
    }

    /// A number in `[0, 1)` with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// A whole number below `count`, each as likely as the others to within 2⁻⁶⁴ of one.
    ///
    /// # Panics
    /// When `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        assert!(count > 0, "a number below 0 does not exist");
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64
    }

    /// A normal number of mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors publish with their code.
    #[test]
    fn philox_gives_the_published_numbers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn any_part_of_the_address_changes_the_number() {
        let site = Site { seed: 5, site: 6, step: 7 };
        let others = [
            Site { seed: 4, ..site },
            Site { seed: 5 | 1 << 40, ..site },
            Site { site: 5, ..site },
            Site { step: 8, ..site },
        ];
        assert!(others.iter().all(|other| other.bits(9) != site.bits(9)));
        assert_ne!(site.bits(9), site.bits(10));
        assert_ne!(site.bits(9), site.bits(9 | 1 << 40));
    }

    #[test]
    fn filling_and_indexing_agree() {
        let site = Site { seed: 1, site: 2, step: 3 };
        let mut filled = [0.0; 11];
        site.fill_uniform(&mut filled, 0.0, 1.0);
        assert!((0..11).all(|i| filled[i] == site.uniform(i as u64)));
    }

    /// Any first index, length and probability: the numbers are those that are made one by one.
    #[test]
    fn dropout_is_the_same_one_by_one() {
        fn check<R: Real>(site: Site, first: u64, n: usize, drop: f32) {
            let mut filled = vec![R::ZERO; n];
            site.fill_dropout(first, &mut filled, drop);
            for (i, &factor) in filled.iter().enumerate() {
                let dropped = site.uniform(first + i as u64) < drop;
                let expected = if dropped { R::ZERO } else { R::ONE / (R::ONE - R::from_f32(drop)) };
                assert_eq!(factor, expected, "{site:?} {first}+{i} of {n}, {drop}");
            }
        }
        let sites = [Site { seed: 1, site: 2, step: 3 }, Site { seed: !0, site: !0, step: !0 }];
        let firsts = [0, 1, 2, 3, 4, 1021, (1 << 34) - 130, (1 << 34) - 3, 1 << 63 | 5];
        let drops = [0.0, f32::MIN_POSITIVE, 1e-7, 0.1, 0.25, 0.5, 0.9, 1.0 - f32::EPSILON / 2.0];
        for site in sites {
            for first in firsts {
                for n in (0..70).chain([255, 256, 257, 259, 1000]) {
                    for drop in drops {
                        check::<f32>(site, first, n, drop);
                        check::<f64>(site, first, n, drop);
                    }
                }
            }
        }
    }

    /// The numbers at the limit itself: `uniform() < drop` is strict.
    #[test]
    fn dropout_at_the_limit() {
        let site = Site { seed: 3, site: 1, step: 4 };
        for index in 0..100 {
            let drop = site.uniform(index);
            let mut factors = [0f32; 2];
            site.fill_dropout(index, &mut factors[..1], drop);
            site.fill_dropout(index, &mut factors[1..], drop.next_up());
            assert!(factors[0] > 0.0 && factors[1] == 0.0, "{index}");
        }
    }

    #[test]
    fn dropout_has_mean_1() {
        let mut factors = vec![0f64; 1_000_000];
        for drop in [0.1f32, 0.5, 0.8] {
            Site { seed: 8, site: 1, step: 0 }.fill_dropout(0, &mut factors, drop);
            let mean = factors.iter().sum::<f64>() / factors.len() as f64;
            // Five standard errors.
            let allowed = 5.0 * f64::from(drop / (1.0 - drop)).sqrt() / 1000.0;
            assert!((mean - 1.0).abs() < allowed, "{drop}: {mean}");
        }
    }

    #[test]
    #[should_panic(expected = "in [0, 1)")]
    fn dropping_everything_is_refused() {
        Site { seed: 0, site: 0, step: 0 }.fill_dropout(0, &mut [0f32; 1], 1.0);
    }

    /// 100,000 numbers: the mean and variance within five standard errors.
    #[test]
    fn moments() {
        let site = Site { seed: 11, site: 0, step: 0 };
        let moments = |v: &[f64]| {
            let n = v.len() as f64;
            let mean = v.iter().sum::<f64>() / n;
            (mean, v.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n)
        };
        let n = 100_000;
        let mut filled = vec![0.0; n];
        site.fill_normal(&mut filled, 2.0);
        let (mean, variance) = moments(&filled.iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
        assert!(
            mean.abs() < 5.0 * 2.0 / 316.0 && (variance - 4.0).abs() < 5.0 * 4.0 * 1.41 / 316.0,
            "{mean} {variance}"
        );
        let mut draws = site.draws();
        let (mean, variance) = moments(&(0..n).map(|_| draws.normal()).collect::<Vec<_>>());
        assert!(mean.abs() < 5.0 / 316.0 && (variance - 1.0).abs() < 5.0 * 1.41 / 316.0, "{mean} {variance}");
        let (mean, variance) = moments(&(0..n).map(|_| draws.uniform()).collect::<Vec<_>>());
        assert!(
            (mean - 0.5).abs() < 5.0 * 0.289 / 316.0 && (variance - 1.0 / 12.0).abs() < 5.0 * 0.0745 / 316.0,
            "{mean} {variance}"
        );
        let counts = (0..n).fold([0u32; 10], |mut counts, _| {
            counts[draws.below(10) as usize] += 1;
            counts
        });
        assert!(counts.iter().all(|&c| (f64::from(c) - 1e4).abs() < 5.0 * 95.0), "{counts:?}");
    }
}
