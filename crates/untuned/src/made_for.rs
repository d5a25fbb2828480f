//! What a saved run and the one that goes on from it must have in common.

use serde::{Deserialize, Serialize};

use crate::average::Average;
use crate::optimizer::{Optimizer, StepOptions};

/// How a run began. An adapter saves it beside the session's numbers, the method as it is or in another form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeFor<M> {
    /// The method's name.
    #[serde(default)]
    pub name: String,
    /// The method before its first step.
    pub method: M,
    /// Its spec and the number of steps, where they are known.
    pub text: Option<(String, u64)>,
    /// The average of the points.
    pub average: Option<Average>,
}

impl<M> MadeFor<M> {
    /// A run of this method, without an average.
    pub fn new(method: M) -> MadeFor<M>
    where
        M: Optimizer,
    {
        MadeFor { name: method.name().to_string(), method, text: None, average: None }
    }

    /// What is different here, in words; nothing where a state may be loaded. One method may have several specs. `written` is the text
    /// of a method with its numbers.
    pub fn difference(&self, here: &MadeFor<M>, written: impl Fn(&M) -> String) -> Option<String>
    where
        M: PartialEq,
    {
        let steps = |made: &MadeFor<M>| made.text.as_ref().map(|&(_, steps)| steps);
        let same_steps = steps(self).zip(steps(here)).is_none_or(|(there, here)| there == here);
        // A record of an earlier version has no name.
        let same_name = self.name.is_empty() || self.name == here.name;
        if same_steps && same_name && self.method == here.method && self.average == here.average {
            return None;
        }
        // Where a spec is missing, the numbers tell two methods apart.
        let ambiguous = self.text.is_none() || here.text.is_none();
        let words = |made: &MadeFor<M>| {
            let mut words = match &made.text {
                Some((spec, steps)) => format!("`{spec}` for {steps} steps"),
                None => format!("`{}`", made.name),
            };
            if let Some(average) = made.average {
                words += &format!(", averaged ({average:?})");
            }
            if ambiguous {
                words += &format!(" that began as {}", written(&made.method));
            }
            words
        };
        Some(format!("it is the state of {}, and this is {}", words(self), words(here)))
    }
}

impl StepOptions {
    /// Another weight decay or clipping here, in words; nothing where a state may be loaded. The factor of the rate changes in a run, and
    /// is part of its state.
    pub fn difference(&self, here: &StepOptions) -> Option<String> {
        let clip = |options: &StepOptions| options.clip.map_or("none".to_string(), |norm| norm.to_string());
        let (what, there, here) = if self.weight_decay != here.weight_decay {
            ("weight decay", self.weight_decay.to_string(), here.weight_decay.to_string())
        } else if self.clip != here.clip {
            ("clipping norm", clip(self), clip(here))
        } else {
            return None;
        };
        Some(format!("its {what} is {there}, and here it is {here}; set the same before loading"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str, steps: Option<u64>) -> MadeFor<u8> {
        let text = steps.map(|steps| ("dog".to_string(), steps));
        MadeFor { name: name.to_string(), method: 1, text, average: None }
    }

    #[test]
    fn what_is_different_is_said() {
        let says = |there: &MadeFor<u8>, here: &MadeFor<u8>| there.difference(here, u8::to_string);
        let (typed, read) = (made("dog", None), made("dog", Some(20)));
        for (there, here) in [(&typed, &typed), (&read, &read), (&typed, &read), (&made("", None), &read)] {
            assert_eq!(says(there, here), None);
        }
        let words = |there: &MadeFor<u8>, here: &MadeFor<u8>| says(there, here).expect("they differ");
        assert_eq!(
            words(&typed, &made("cat", None)),
            "it is the state of `dog` that began as 1, and this is `cat` that began as 1"
        );
        let longer = made("dog", Some(30));
        assert_eq!(
            words(&read, &longer),
            "it is the state of `dog` for 20 steps, and this is `dog` for 30 steps"
        );
        let other = MadeFor { method: 2, ..read.clone() };
        assert!(says(&read, &other).is_some());
        let averaged = MadeFor { average: Some(Average::Uniform), ..read.clone() };
        assert!(words(&read, &averaged).ends_with("this is `dog` for 20 steps, averaged (Uniform)"));
    }

    #[test]
    fn other_options_are_said_and_the_rate_is_not_one() {
        let options = StepOptions { rate: 0.5, clip: Some(2.0), weight_decay: 0.1 };
        assert_eq!(options.difference(&StepOptions { rate: 1.0, ..options }), None);
        let decay = options.difference(&StepOptions { weight_decay: 0.0, ..options });
        assert_eq!(decay.unwrap(), "its weight decay is 0.1, and here it is 0; set the same before loading");
        let clip = options.difference(&StepOptions { clip: None, ..options });
        assert_eq!(clip.unwrap(), "its clipping norm is 2, and here it is none; set the same before loading");
    }
}
