//! `untuned sample`.

use untuned_lab::train::DeviceChoice;
use untuned_lab::train::sample::{self, Request};

use crate::args::Sample;
use crate::end::End;
use crate::output;

pub fn run(args: &Sample) -> Result<(), End> {
    let Sample { run, prompt, length, temperature, seed, best, threads, device, precision } = args;
    let (length, temperature, seed, best) = (*length, *temperature, *seed, *best);
    let request = Request { prompt: prompt.clone(), length, temperature, seed, best };
    let choice = DeviceChoice::of(device, precision).map_err(End::request)?;
    let sampled = sample::sample(run, &request, choice, threads.map(usize::from)).map_err(End::train)?;
    for note in &sampled.notes {
        output::say(&format!("note: {note}"));
    }
    output::print(&format!("{}\n", sampled.text))
}
