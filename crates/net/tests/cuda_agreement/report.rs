//! What an operation gave, and how far two devices are apart.

use std::panic::{AssertUnwindSafe, catch_unwind};
use untuned_net::device::DeviceError;

/// Numbers that an operation gave.
#[derive(Debug, Clone)]
pub struct Output {
    pub name: String,
    pub values: Vec<f64>,
    /// Whether a dropout's mask shows: zeros must then stand at the same places.
    pub mask: bool,
}

/// All checks, of which none stops the others.
#[derive(Default)]
pub struct Report {
    checks: usize,
    failed: Vec<String>,
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

impl Report {
    /// The norm of the difference may be so large a part of the norm of what is exact, or of `floor` where that is larger.
    pub fn compare(&mut self, of: &str, found: &[Output], exact: &[Output], tolerance: f64, floor: f64) {
        if found.len() != exact.len() {
            self.fail(of, format!("{} outputs, expected {}", found.len(), exact.len()));
        }
        for (found, exact) in found.iter().zip(exact) {
            let name = format!("{of}: {}", exact.name);
            if found.name != exact.name || found.values.len() != exact.values.len() {
                self.fail(&name, format!("{} numbers of {}", found.values.len(), found.name));
                continue;
            }
            let size = norm(exact.values.iter().copied());
            let difference = norm(found.values.iter().zip(&exact.values).map(|(found, exact)| found - exact));
            let note = if size < floor { ", a tiny one" } else { "" };
            // Without a size, any difference counts as a whole.
            let error = match size.max(floor) {
                0.0 if difference == 0.0 => 0.0,
                0.0 => difference.max(1.0),
                size => difference / size,
            };
            self.check(&format!("{name}{note}"), error, tolerance);
            if exact.mask {
                let pairs = found.values.iter().zip(&exact.values);
                let moved = pairs.filter(|(found, exact)| (**found == 0.0) != (**exact == 0.0)).count();
                self.check(&format!("{name}: zeros at other places"), moved as f64, 0.0);
            }
        }
    }

    /// One number against what it may be.
    pub fn check(&mut self, name: &str, error: f64, tolerance: f64) {
        self.checks += 1;
        let good = error <= tolerance;
        println!("{} {error:9.2e} of {tolerance:7.1e}  {name}", if good { "good" } else { "BAD " });
        if !good {
            self.failed.push(format!("{name}: {error:.2e}, at most {tolerance:.1e}"));
        }
    }

    /// Something that went wrong altogether.
    pub fn fail(&mut self, name: &str, reason: String) {
        self.checks += 1;
        println!("BAD  {name}: {reason}");
        self.failed.push(format!("{name}: {reason}"));
    }

    /// Fails where a check did.
    pub fn finish(self, what: &str) {
        let failed = self.failed.len();
        println!("{what}: {} checks, {failed} failed", self.checks);
        assert!(failed == 0, "{what}: {failed} of {} failed:\n{}", self.checks, self.failed.join("\n"));
    }
}

/// Does some work, and says in words where it failed or panicked.
pub fn attempt<T>(work: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}
