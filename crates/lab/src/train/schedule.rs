//! Warm-up and schedule: what multiplies the step size at each step of a run.

use std::f64::consts::PI;

use super::config::{Optimizer, Schedule};

/// What multiplies the step size at `step` of `steps`, as in nanoGPT: `(t + 1)/(warmup + 1)` while the run warms up, and from
/// there on 1, or half a cosine from 1 at `t = warmup` to `final_rate` at `t = T`.
pub(super) fn rate(optimizer: &Optimizer, step: u64, steps: u64) -> f64 {
    let Optimizer { warmup, schedule, final_rate, .. } = *optimizer;
    if step < warmup {
        return (step + 1) as f64 / (warmup + 1) as f64;
    }
    match schedule {
        Schedule::Constant => 1.0,
        Schedule::Cosine if step >= steps => final_rate,
        Schedule::Cosine => {
            let done = (step - warmup) as f64 / (steps - warmup) as f64;
            final_rate + 0.5 * (1.0 + (PI * done).cos()) * (1.0 - final_rate)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_multiplies_by_one() {
        assert!([0, 5, 100].iter().all(|&step| rate(&Optimizer::default(), step, 100) == 1.0));
    }

    #[test]
    fn a_run_of_ten_steps_by_hand() {
        let optimizer =
            Optimizer { warmup: 2, schedule: Schedule::Cosine, final_rate: 0.2, ..Optimizer::default() };
        let rates: Vec<f64> = (0..=10).map(|step| rate(&optimizer, step, 10)).collect();
        assert_eq!((rates[0], rates[1], rates[2]), (1.0 / 3.0, 2.0 / 3.0, 1.0));
        // A quarter, a half and three quarters of the way: the cosine is √½, 0 and −√½.
        let root = 0.5f64.sqrt();
        let wanted = [(4, 0.6 + 0.4 * root), (6, 0.6), (8, 0.6 - 0.4 * root), (10, 0.2)];
        for (step, wanted) in wanted {
            assert!((rates[step] - wanted).abs() < 1e-15, "{step}: {} {wanted}", rates[step]);
        }
        assert!(rates[2..].windows(2).all(|pair| pair[1] < pair[0]), "{rates:?}");
    }

    #[test]
    fn a_warm_up_longer_than_the_run_never_ends() {
        let optimizer = Optimizer { warmup: 20, schedule: Schedule::Cosine, ..Optimizer::default() };
        assert_eq!(rate(&optimizer, 9, 10), 10.0 / 21.0);
        assert_eq!(rate(&Optimizer { warmup: 10, ..optimizer }, 10, 10), 0.1);
    }
}
