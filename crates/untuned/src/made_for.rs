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
