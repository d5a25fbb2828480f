//! Any shape of span corruption: refused with words, or inputs and targets of the lengths that it says, with every id once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use untuned_net::data::t5::{Corruption, Examples, Pairs, Special};

/// The piece, density and mean span, the special ids, seed and example.
type Shape = ((usize, f64, f64), (u32, u32, u32), (u64, u64));

fuzz_target!(|shape: Shape| {
    let ((raw, density, mean_span), (end, first_sentinel, sentinels), (seed, example)) = shape;
    let special = Special { end, first_sentinel, sentinels };
    // Large pieces are planned, small ones made.
    let _ = Corruption::new(raw, density, mean_span, special);
    let raw = raw % 4096;
    let corruption = match Corruption::new(raw, density, mean_span, special) {
        Ok(corruption) => corruption,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let piece: Vec<u32> = (0..raw as u32).collect();
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    corruption.corrupt(&piece, seed, example, &mut inputs, &mut targets).expect("the planned length");
    assert_eq!((inputs.len(), targets.len()), (corruption.input_length(), corruption.target_length()));
    let lengths: Vec<_> = corruption.lengths(seed, example).collect();
    assert_eq!(lengths.len(), corruption.spans());
    assert!(lengths.iter().all(|&(kept, noise)| kept > 0 && noise > 0));
    assert_eq!(lengths.iter().map(|(kept, noise)| kept + noise).sum::<usize>(), raw);
    if let Ok(fits) = Corruption::for_inputs(raw, density, mean_span, special) {
        assert!(fits.input_length() <= raw);
    }
    let mut pairs = Pairs::default();
    Examples::new(piece, corruption, 1, seed).expect("one piece").fill(example, &mut pairs);
    assert_eq!((pairs.inputs, pairs.targets), (inputs, targets));
});
