//! Folders of runs whose numbers are known, as `untuned train` and `untuned sweep` would leave them.

#![allow(dead_code)]

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The steps of every run, but for those of another horizon.
pub const STEPS: u64 = 40;

/// A run: from the first loss it falls in a line to the last one, which is the test loss too; the validation loss is 0.01 above.
pub struct Run<'a> {
    pub model: &'a str,
    pub rule: &'a str,
    pub seed: u64,
    pub steps: u64,
    pub first: f64,
    /// Nothing for one that diverged.
    pub last: Option<f64>,
}

impl Run<'_> {
    /// Writes its folder.
    pub fn write(&self, folder: &Path) {
        let Run { model, rule, seed, steps, first, .. } = *self;
        fs::create_dir_all(folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write(
            "config.toml",
            &format!(
                "name = \"{model}\"\nscale = \"quick\"\nmodel = \"{model}\"\npreset = \"tiny\"\nrule = \"{rule}\"\nsteps = {steps}\n\
                 seed = {seed}\nbatch = 8\ndata = \"generated\"\ndevice = \"cpu\"\nevaluate_every = 10\ncheckpoint_every = 100\n\
                 max_refusals = 10\n"
            ),
        );
        write(
            "meta.json",
            &format!(
                "{{\"version\":\"0.1.0\",\"device\":\"cpu\",\"parameters\":1000,\"steps\":{steps},\
                 \"data\":{{\"what\":\"a small text\",\"best_loss\":null}}}}"
            ),
        );
        let last = self.last.unwrap_or(first + 3.0);
        let loss = |step: u64| first + (last - first) * step as f64 / steps as f64;
        let (mut trace, mut eval) = (String::new(), String::new());
        for step in 0..steps {
            let norm = 2.0 - step as f64 / steps as f64;
            let _ = write!(
                trace,
                "{{\"step\":{step},\"loss\":{0},\"objective\":{0},\"grad_norm\":{norm},\"step_size\":0.1,",
                loss(step)
            );
            if step % 2 == 0 {
                // On the line 3 + 5‖g‖, but for every other point, which lies below.
                let _ = write!(
                    trace,
                    "\"smoothness\":{},",
                    3.0 + 5.0 * norm - if step % 4 == 0 { 0.0 } else { 1.0 }
                );
            }
            let _ = writeln!(trace, "\"seconds\":{}}}", step as f64 * 0.01);
        }
        for step in (0..=steps).step_by(10) {
            let _ =
                writeln!(eval, "{{\"step\":{step},\"split\":\"validation\",\"loss\":{}}}", loss(step) + 0.01);
            let _ = writeln!(eval, "{{\"step\":{step},\"split\":\"test\",\"loss\":{}}}", loss(step));
        }
        write("trace.jsonl", &trace);
        write("eval.jsonl", &eval);
        let number = |value: Option<f64>| value.map_or("null".to_string(), |value| value.to_string());
        let (validation, test) = (number(self.last.map(|last| last + 0.01)), number(self.last));
        write(
            "summary.json",
            &format!(
                "{{\"rule\":\"{rule}\",\"steps\":{steps},\"seed\":{seed},\"final_train_loss\":{test},\
                 \"final_validation_loss\":{validation},\"final_test_loss\":{test},\"best_validation_loss\":{validation},\
                 \"best_test_loss\":{test},\"diverged\":{},\"seconds\":1.0}}",
                self.last.is_none()
            ),
        );
    }
}

/// All three networks as the paper describes them: every one of its claims on the order of methods holds.
pub fn networks(folder: &Path) {
    let methods = |dog: f64, polyak: Option<f64>, decreasing: f64| {
        vec![
            ("gd:lr=0.1", Some(2.2)),
            ("gd:lr=1", None),
            ("clipped-gd:lr=0.1,threshold=1", Some(2.3)),
            ("clipped-gd:lr=1,threshold=1", Some(2.0)),
            ("inexact-polyak", Some(2.5)),
            ("decsps", Some(decreasing)),
            ("adasps", Some(decreasing + 0.1)),
            ("dog", Some(dog)),
            ("polyak-bound", polyak),
        ]
    };
    for (model, first, methods, horizons) in [
        ("lstm", 7.0, methods(2.4, None, 2.8), &[STEPS][..]),
        ("gpt", 6.0, methods(4.5, None, 2.8), &[STEPS / 2, STEPS, STEPS * 3 / 2]),
        ("t5", 20.0, methods(3.0, Some(2.45), 5.0), &[STEPS]),
    ] {
        let mut index = 0;
        for seed in 1..=3 {
            for &steps in horizons {
                for (rule, last) in &methods {
                    let last = last.map(|last| last + 0.01 * (seed as f64 - 2.0));
                    let run = Run { model, rule, seed, steps, first, last };
                    run.write(&folder.join(model).join(format!("trials/{index:04}")));
                    index += 1;
                }
            }
        }
    }
}
