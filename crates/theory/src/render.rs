//! An [`Explanation`] as text of at most 100 columns.

use std::fmt::Write;

use crate::bounds::{Origin, Quantity, Speaks};
use crate::explain::{Explanation, Judged, Judgement, Tally};

/// A number in at most nine characters and about four digits.
fn short(v: f64) -> String {
    let size = v.abs();
    if v == 0.0 || !v.is_finite() {
        format!("{v}")
    } else if !(1e-3..1e5).contains(&size) {
        let text = format!("{v:.3e}");
        match text.split_once('e') {
            Some((digits, exponent)) if digits.contains('.') => {
                format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => text,
        }
    } else {
        let decimals = (3 - size.log10().floor() as i32).max(0) as usize;
        let text = format!("{v:.decimals$}");
        if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_string() }
    }
}

fn or_not_known(v: Option<f64>) -> String {
    v.map_or("not known".to_string(), short)
}

/// A table under construction; writing to a string does not fail.
struct Page(String);

impl Page {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.0, "{}", text.trim_end());
    }

    /// A sentence, indented and wrapped.
    fn note(&mut self, text: &str) {
        let mut line = String::from("     ");
        for word in text.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > 100 {
                self.line(&line);
                line = String::from("       ");
            }
            line.push(' ');
            line.push_str(word);
        }
        self.line(&line);
    }

    fn pair(&mut self, name: &str, value: &str) {
        self.line(&format!("  {name:<22}{value}"));
    }
}

impl Explanation {
    /// The explanation as aligned tables of plain text, at most 100 columns wide.
    pub fn text(&self) -> String {
        let mut page = Page(String::new());
        self.constants_to(&mut page);
        self.inequalities_to(&mut page);
        self.bounds_to(&mut page);
        self.smoothness_to(&mut page);
        page.0
    }

    fn constants_to(&self, page: &mut Page) {
        let c = &self.constants;
        page.line(&format!("The theory of {}", self.rule));
        page.line(&format!("{} of {} steps, {}", self.made, self.steps, self.outcome));
        page.line("");
        let l = match (c.l, self.l_radius) {
            (Some(l), Some(radius)) => format!("{}, where ‖x − x*‖ ≤ {}", short(l), short(radius)),
            (Some(l), None) => format!("{}, everywhere", short(l)),
            (None, _) => "not known".to_string(),
        };
        page.pair("L", &l);
        if let (Some(_), Some(step)) = (c.l, self.left_ball) {
            page.pair(
                "",
                &format!("the run left that ball at step {step}; what needs L is checked inside only"),
            );
        }
        page.pair(
            "L0, L1",
            &match (c.l0, c.l1) {
                (Some(l0), Some(l1)) => format!("{}, {}", short(l0), short(l1)),
                _ => "not known".to_string(),
            },
        );
        page.pair("D = ‖x_0 − x*‖", &or_not_known(c.distance));
        page.pair(
            "D_T = max ‖x_t − x*‖",
            &match (self.d_t, c.distance) {
                (Some(d_t), Some(d)) if d > 0.0 => format!("{}, {} times D", short(d_t), short(d_t / d)),
                (d_t, _) => or_not_known(d_t),
            },
        );
        page.pair("σ² = f* − l", &or_not_known(c.sigma_sq));
        match &self.step_sizes {
            None => page.pair("step sizes", "none above 0"),
            Some(s) => {
                let range = format!("{} to {}", short(s.smallest), short(s.largest));
                page.pair("step sizes", &format!("{range}, the first {}", short(s.first)));
                let increased = |step| format!("increased {} times, first at step {step}", s.increases);
                page.pair("", &s.increased_at.map_or("never increased".to_string(), increased));
            }
        }
        page.line("");
    }

    fn inequalities_to(&self, page: &mut Page) {
        page.line(&format!(
            "{:<53}{:>8}{:>9}{:>9}{:>10}",
            "Inequalities at the iterates", "checked", "rounding", "violated", "tightest"
        ));
        for tally in &self.inequalities {
            page.line(&tally.line());
            if let Some(step) = tally.violated_at {
                page.line(&format!("{:15}violated first at step {step}", ""));
            }
        }
        page.line(
            "  rounding: equal up to rounding; tightest: the largest left/right, at most 1 where it holds",
        );
        page.line("");
    }

    fn bounds_to(&self, page: &mut Page) {
        if self.bounds.is_empty() {
            page.line("Bounds");
            page.line("  No theorem of the paper speaks of this rule.");
        } else {
            page.line(&format!(
                "{:<22}{:<24}{:<14}{:>10}{:>11}  {}",
                "Bounds", "of", "constants", "measured", "bound", "verdict"
            ));
        }
        for judged in &self.bounds {
            judged.lines(page);
        }
        page.line("");
    }

    fn smoothness_to(&self, page: &mut Page) {
        let r = &self.local_smoothness;
        let limit = if self.constants.l1.is_some() { "1/L1" } else { "1/L1 of the envelope" };
        page.line("Local smoothness ‖g_{t+1} − g_t‖/‖x_{t+1} − x_t‖ against ‖g_t‖");
        page.pair(
            "steps",
            &format!(
                "{} used; {} longer than {limit}, {} too short to tell",
                r.points, r.too_long, r.unclear
            ),
        );
        let Some(line) = r.envelope else {
            page.pair("envelope", "no step to fit it to");
            return;
        };
        let unsettled = if r.settled { "" } else { " (the choice of steps did not settle)" };
        page.pair("envelope", &format!("{} + {}·‖g‖{unsettled}", short(line.l0), short(line.l1)));
        page.pair(
            "regression",
            &match &r.regression {
                None => "all gradients are of one length".to_string(),
                Some(fit) => {
                    let sign = if fit.line.l1 < 0.0 { '−' } else { '+' };
                    let correlation = fit.correlation.map_or("undefined".to_string(), short);
                    format!(
                        "{} {sign} {}·‖g‖, correlation {correlation}",
                        short(fit.line.l0),
                        short(fit.line.l1.abs())
                    )
                }
            },
        );
        page.pair(
            "amounts to",
            &match self.implied_clipping {
                None => "no clipped gradient descent: L0 = 0".to_string(),
                Some(clipping) => {
                    let c = clipping.threshold.map_or("inf".to_string(), short);
                    format!("clipped-gd:lr={},threshold={c}", short(clipping.lr))
                }
            },
        );
    }
}

impl Tally {
    fn line(&self) -> String {
        let head = format!("  {:<13}{:<38}", self.name, self.statement);
        if let Some(what) = self.not_known {
            return format!("{head} {what} not known");
        }
        let tightest = self.tightest.map_or("–".to_string(), short);
        let at = self.tightest_at.filter(|_| self.tightest != Some(0.0));
        let at = at.map_or(String::new(), |step| format!(" at {step}"));
        let numbers =
            format!("{:>8}{:>9}{:>9}{tightest:>10}", self.checked, self.within_rounding, self.violated);
        format!("{head}{numbers}{at}")
    }
}

impl Judged {
    /// A measured value that rounding could have made is printed as what it proves: that it is no larger than that.
    fn measured_text(&self) -> String {
        match self.measured {
            None => "–".to_string(),
            Some(value) if value <= self.rounding => format!("≤{}", short(self.rounding)),
            Some(value) => short(value),
        }
    }

    fn lines(&self, page: &mut Page) {
        let of = match (self.bound.speaks, self.bound.quantity) {
            (Speaks::Average, _) => "average of x_0…x_{T−1}",
            (Speaks::Best, _) => "best of x_0…x_{T−1}",
            (Speaks::Last, Quantity::Gap) => "x_T",
            (Speaks::Last, Quantity::SquaredDistance) => "‖x_T − x*‖²",
        };
        let constants = match self.bound.constants {
            Origin::Paper => "the paper's",
            Origin::Derived => "derived",
            Origin::RateOnly => "rate only",
        };
        let verdict = match &self.judgement {
            Judgement::Holds => "holds".to_string(),
            Judgement::Fails => "FAILS".to_string(),
            Judgement::RateOnly(ratio) => format!("×{}", short(*ratio)),
            Judgement::NotApplying(_) => "n/a".to_string(),
            Judgement::NotKnown(_) => "not known".to_string(),
        };
        page.line(&format!(
            "  {:<20}{of:<24}{constants:<14}{:>10}{:>11}  {verdict}",
            self.bound.name,
            self.measured_text(),
            self.bound.value.map_or("–".to_string(), short)
        ));
        page.note(self.bound.formula);
        match &self.judgement {
            Judgement::NotApplying(why) => page.note(&format!("does not apply: {why}")),
            Judgement::NotKnown(what) => page.note(&format!("not known: {what}")),
            Judgement::RateOnly(_) => page.note("rate only: the verdict is measured/rate"),
            _ => {}
        }
        if let Some(from) = self.bound.dominant_from {
            page.note(&format!("the term without L is the larger one from T = {}", short(from)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (5.0, "5"),
            (0.25, "0.25"),
            (1.0 / 3.0, "0.3333"),
            (12345.6, "12346"),
            (1000.0, "1000"),
            (99999.9, "100000"),
            (4.1666e6, "4.167e6"),
            (1e-8, "1e-8"),
            (-2.5e-10, "-2.5e-10"),
            (f64::INFINITY, "inf"),
        ];
        for (v, text) in cases {
            assert_eq!(short(v), text);
        }
    }
}
