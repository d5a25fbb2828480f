//! `untuned sample`.

use untuned_lab::train::sample::{self, Request};

use crate::args::Sample;
use crate::end::End;
use crate::output;

pub fn run(args: &Sample) -> Result<(), End> {
    let Sample { run, prompt, length, temperature, seed, threads } = args;
    let request = Request { prompt: prompt.clone(), length: *length, temperature: *temperature, seed: *seed };
    let sampled = sample::sample(run, &request, threads.map(usize::from)).map_err(End::train)?;
    for note in &sampled.notes {
        output::say(&format!("note: {note}"));
    }
    output::print(&format!("{}\n", sampled.text))
}
