//! A run of any length in a few hundred bins that keep its extremes, and several such runs as one band.

use serde::Serialize;

/// The most bins of a figure that is about 800 pixels wide.
pub const DEFAULT_BINS: usize = 400;

/// A run's values in bins of neighbouring steps. Its size depends on the number of bins alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Binned {
    steps: u64,
    bins: Vec<Bin>,
    beyond: u64,
}

/// What is known of the steps from `from` up to but without `to`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bin {
    /// The first step.
    pub from: u64,
    /// The first step of the next bin.
    pub to: u64,
    /// The finite values.
    pub count: u64,
    /// The values that were missing or not finite.
    pub missing: u64,
    /// Where the finite values lie; nothing where there are none.
    pub extent: Option<Extent>,
}

/// Where some finite values lie.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Extent {
    pub mean: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Extent {
    /// Takes in a finite value, the `count`-th.
    fn with(self, value: f64, count: u64) -> Extent {
        let (lowest, highest) = (self.lowest.min(value), self.highest.max(value));
        // Divided first, because the difference of two huge numbers is infinite; never outside the extremes by rounding.
        let count = count as f64;
        let mean = self.mean + (value / count - self.mean / count);
        Extent { mean: mean.max(lowest).min(highest), lowest, highest }
    }

    fn of(value: f64) -> Extent {
        Extent { mean: value, lowest: value, highest: value }
    }
}

impl Binned {
    /// For the steps from 0 up to but without `steps`, in at most `most` bins of equal length, give or take a step. Where
    /// there are no more steps than that, each is its own bin.
    pub fn new(steps: u64, most: usize) -> Binned {
        let count = steps.min(most as u64);
        // Bin `b` begins at the first step with step · count / steps ≥ b.
        let begin = |bin: u64| (u128::from(bin) * u128::from(steps)).div_ceil(u128::from(count)) as u64;
        let bin = |bin| Bin { from: begin(bin), to: begin(bin + 1), count: 0, missing: 0, extent: None };
        Binned { steps, bins: (0..count).map(bin).collect(), beyond: 0 }
    }

    /// Adds the value at a step; values come in any order.
    pub fn add(&mut self, step: u64, value: Option<f64>) {
        let Some(bin) = self.bin_of(step) else {
            self.beyond += 1;
            return;
        };
        let bin = &mut self.bins[bin];
        match value.filter(|value| value.is_finite()) {
            None => bin.missing += 1,
            Some(value) => {
                bin.count += 1;
                bin.extent = Some(bin.extent.map_or(Extent::of(value), |e| e.with(value, bin.count)));
            }
        }
    }

    fn bin_of(&self, step: u64) -> Option<usize> {
        let inside = step < self.steps && !self.bins.is_empty();
        inside.then(|| (u128::from(step) * self.bins.len() as u128 / u128::from(self.steps)) as usize)
    }

    /// The number of steps that it is made for.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The bins, in order.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// The values that have no bin, because their step is not below [`Binned::steps`].
    pub fn beyond(&self) -> u64 {
        self.beyond
    }
}

/// The same run made with several seeds.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Band {
    /// The seeds.
    pub seeds: usize,
    /// The steps of each.
    pub steps: u64,
    /// The bins, in order.
    pub bins: Vec<BandBin>,
}

/// What the seeds have in the steps from `from` up to but without `to`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct BandBin {
    /// The first step.
    pub from: u64,
    /// The first step of the next bin.
    pub to: u64,
    /// The seeds with a finite value here. Where they are fewer than [`Band::seeds`], the others have a gap.
    pub seeds: usize,
    /// The values of all seeds that were missing or not finite.
    pub missing: u64,
    /// The means of the seeds: their mean, the lowest and the highest. Every seed counts once, however many values it has.
    pub means: Option<Extent>,
    /// The lowest of all values.
    pub lowest: Option<f64>,
    /// The highest of all values.
    pub highest: Option<f64>,
}

/// Runs in different bins have no band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a run of {other} steps in {other_bins} bins cannot be averaged with one of {first} steps in {first_bins}; \
     give both the same number of steps and bins"
)]
pub struct UnlikeRuns {
    /// The steps of the first run.
    pub first: u64,
    /// Its bins.
    pub first_bins: usize,
    /// The steps of the run that differs.
    pub other: u64,
    /// Its bins.
    pub other_bins: usize,
}

impl Band {
    /// The band of some seeds, one run for each; without any it has no bins.
    ///
    /// # Errors
    /// As [`Band::add`].
    pub fn of(runs: &[Binned]) -> Result<Band, UnlikeRuns> {
        let mut band = Band::default();
        runs.iter().try_for_each(|run| band.add(run))?;
        Ok(band)
    }

    /// Takes in one more seed, which then can be forgotten: a band takes the same memory for any number of seeds.
    ///
    /// # Errors
    /// When it has not the same number of steps and bins as the seeds before.
    pub fn add(&mut self, run: &Binned) -> Result<(), UnlikeRuns> {
        if self.seeds == 0 {
            let empty = |bin: &Bin| BandBin { from: bin.from, to: bin.to, ..BandBin::default() };
            (self.steps, self.bins) = (run.steps, run.bins.iter().map(empty).collect());
        }
        let (ours, theirs) = ((self.steps, self.bins.len()), (run.steps, run.bins.len()));
        if ours != theirs {
            let ((first, first_bins), (other, other_bins)) = (ours, theirs);
            return Err(UnlikeRuns { first, first_bins, other, other_bins });
        }
        self.seeds += 1;
        self.bins.iter_mut().zip(&run.bins).for_each(|(band, bin)| band.add(bin));
        Ok(())
    }
}

impl BandBin {
    /// Takes in the same bin of one more seed.
    fn add(&mut self, bin: &Bin) {
        self.missing += bin.missing;
        let Some(here) = bin.extent else { return };
        self.seeds += 1;
        let count = self.seeds as u64;
        self.means = Some(self.means.map_or(Extent::of(here.mean), |e| e.with(here.mean, count)));
        self.lowest = Some(self.lowest.map_or(here.lowest, |lowest| lowest.min(here.lowest)));
        self.highest = Some(self.highest.map_or(here.highest, |highest| highest.max(here.highest)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A run with the given values at steps 0, 1, ….
    fn run(values: &[Option<f64>], most: usize) -> Binned {
        let mut run = Binned::new(values.len() as u64, most);
        for (step, value) in values.iter().enumerate() {
            run.add(step as u64, *value);
        }
        run
    }

    fn finite(values: &[Option<f64>]) -> Vec<f64> {
        values.iter().flatten().copied().filter(|value| value.is_finite()).collect()
    }

    /// The plain way: divided before they are added, so that no sum is infinite.
    fn naive(values: &[f64]) -> Option<Extent> {
        let count = values.len() as f64;
        let extreme = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of);
        Some(Extent {
            // Thirds of the largest number may add up to more than it.
            mean: values.iter().map(|value| value / count).sum::<f64>().clamp(-f64::MAX, f64::MAX),
            lowest: extreme(f64::min)?,
            highest: extreme(f64::max)?,
        })
    }

    fn close(one: Option<Extent>, other: Option<Extent>) -> bool {
        let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
        let size = one.lowest.abs().max(one.highest.abs());
        let near = (one.mean / 2.0 - other.mean / 2.0).abs() <= 1e-12 * size + f64::MIN_POSITIVE;
        near && (one.lowest, one.highest) == (other.lowest, other.highest)
    }

    fn value() -> impl Strategy<Value = Option<f64>> {
        prop_oneof![
            4 => (-10.0..10.0f64).prop_map(Some),
            2 => any::<f64>().prop_map(Some),
            1 => Just(None),
            1 => proptest::sample::select(vec![f64::MAX, f64::MIN, f64::INFINITY, f64::NAN, 0.0, 5e-324])
                .prop_map(Some),
        ]
    }

    #[test]
    fn a_short_run_is_kept_exactly() {
        let values = [Some(0.1), None, Some(-0.0), Some(f64::MAX), Some(5e-324)];
        for most in [5, 6, DEFAULT_BINS] {
            let run = run(&values, most);
            let means: Vec<Option<f64>> = run.bins().iter().map(|bin| bin.extent.map(|e| e.mean)).collect();
            assert_eq!(means, values);
            assert!(run.bins().iter().zip(0..).all(|(bin, step)| (bin.from, bin.to) == (step, step + 1)));
        }
    }

    #[test]
    fn two_seeds_by_hand() {
        let one = run(&[Some(1.0), Some(3.0), Some(7.0), None], 2);
        let other = run(&[Some(4.0), Some(6.0), None, Some(f64::NAN)], 2);
        let band = Band::of(&[one, other]).unwrap();
        let (first, second) = (band.bins[0], band.bins[1]);
        assert_eq!((band.seeds, first.from, first.to, second.from, second.to), (2, 0, 2, 2, 4));
        // The means are 2 and 5; the values lie between 1 and 6.
        assert_eq!(first.means, Some(Extent { mean: 3.5, lowest: 2.0, highest: 5.0 }));
        assert_eq!((first.seeds, first.missing, first.lowest, first.highest), (2, 0, Some(1.0), Some(6.0)));
        // The other seed has a gap.
        assert_eq!(second.means, Some(Extent::of(7.0)));
        assert_eq!(
            (second.seeds, second.missing, second.lowest, second.highest),
            (1, 3, Some(7.0), Some(7.0))
        );
    }

    #[test]
    fn a_seed_with_few_values_counts_as_much_as_one_with_many() {
        let one = run(&[Some(1.0); 4], 1);
        let other = run(&[None, None, None, Some(3.0)], 1);
        assert_eq!(Band::of(&[one, other]).unwrap().bins[0].means.unwrap().mean, 2.0);
    }

    #[test]
    fn what_has_no_bin_is_counted() {
        for mut run in [Binned::new(3, 2), Binned::new(0, 2), Binned::new(3, 0)] {
            let before = run.bins().to_vec();
            run.add(3, Some(1.0));
            run.add(u64::MAX, None);
            assert_eq!((run.beyond(), run.bins()), (2, before.as_slice()));
        }
    }

    #[test]
    fn unlike_runs_and_no_runs() {
        let unlike = Band::of(&[Binned::new(100, 10), Binned::new(100, 10), Binned::new(200, 10)]);
        let message = unlike.unwrap_err().to_string();
        assert!(message.contains("200 steps in 10 bins") && message.contains("100 steps"), "{message}");
        assert!(Band::of(&[Binned::new(100, 10), Binned::new(100, 9)]).is_err());
        assert_eq!(Band::of(&[]).unwrap(), Band::default());
    }

    proptest! {
        #[test]
        fn bins_cover_all_steps_evenly(
            steps in prop_oneof![0..2000u64, any::<u64>()],
            most in 0..600usize,
            parts in vec(0.0..1.0f64, 8),
        ) {
            let mut run = Binned::new(steps, most);
            prop_assert_eq!(run.bins().len() as u64, steps.min(most as u64));
            let ends: Vec<(u64, u64)> = run.bins().iter().map(|bin| (bin.from, bin.to)).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0));
            if let (Some(first), Some(last)) = (ends.first(), ends.last()) {
                prop_assert_eq!((first.0, last.1), (0, steps));
                let lengths = ends.iter().map(|(from, to)| to - from);
                let (short, long) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
                prop_assert!(short >= 1 && long - short <= 1);
            }
            for part in parts {
                run.add((steps as f64 * part) as u64, Some(part));
            }
            prop_assert_eq!(run.bins().iter().map(|bin| bin.count).sum::<u64>() + run.beyond(), 8);
        }

        #[test]
        fn every_bin_has_the_mean_and_extremes_of_its_steps(values in vec(value(), 0..300), most in 1..80usize) {
            for bin in run(&values, most).bins() {
                let inside = &values[bin.from as usize..bin.to as usize];
                let finite = finite(inside);
                prop_assert_eq!(bin.count, finite.len() as u64);
                prop_assert_eq!(bin.missing, (inside.len() - finite.len()) as u64);
                prop_assert!(close(bin.extent, naive(&finite)), "{:?} {:?}", bin, inside);
                if let Some(e) = bin.extent {
                    prop_assert!(e.lowest <= e.mean && e.mean <= e.highest);
                }
            }
        }

        #[test]
        fn a_band_has_the_means_and_extremes_of_its_seeds(
            seeds in vec(vec(value(), 60), 0..6), most in 1..80usize
        ) {
            let runs: Vec<Binned> = seeds.iter().map(|values| run(values, most)).collect();
            let band = Band::of(&runs).unwrap();
            prop_assert_eq!(band.seeds, seeds.len());
            for bin in band.bins {
                let inside = || seeds.iter().map(|values| finite(&values[bin.from as usize..bin.to as usize]));
                let means: Vec<f64> = inside().filter_map(|values| Some(naive(&values)?.mean)).collect();
                let all: Vec<f64> = inside().flatten().collect();
                prop_assert_eq!(bin.seeds, means.len());
                prop_assert_eq!(bin.missing + all.len() as u64, (bin.to - bin.from) * seeds.len() as u64);
                let (found, wanted) = (bin.means, naive(&means));
                let size = all.iter().fold(0.0, |size: f64, value| size.max(value.abs()));
                let near = |pick: fn(Extent) -> f64| match (found.map(pick), wanted.map(pick)) {
                    (Some(a), Some(b)) => (a / 2.0 - b / 2.0).abs() <= 1e-12 * size + f64::MIN_POSITIVE,
                    (a, b) => a == b,
                };
                prop_assert!(near(|e| e.mean) && near(|e| e.lowest) && near(|e| e.highest));
                let extremes = naive(&all);
                prop_assert_eq!(bin.lowest, extremes.map(|e| e.lowest));
                prop_assert_eq!(bin.highest, extremes.map(|e| e.highest));
            }
        }
    }
}
