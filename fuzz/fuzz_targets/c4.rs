//! Any bytes as a shard: documents, then the end or one error with words, and the same again from every position.
#![no_main]

use flate2::{Compression, write::GzEncoder};
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::path::Path;
use untuned_net::data::c4::{Documents, Position};

mod shared;

/// The documents from a position on, and where each begins.
fn read(path: &Path, from: Position) -> (Vec<(Position, String)>, Option<String>) {
    let mut documents = Documents::resume(vec![path.into()], from);
    let mut texts = Vec::new();
    loop {
        let position = documents.position();
        match documents.next() {
            Some(Ok(text)) => texts.push((position, text)),
            Some(Err(error)) => {
                assert!(documents.next().is_none(), "nothing after an error");
                return (texts, Some(error.to_string()));
            }
            None => return (texts, None),
        }
    }
}

fn check(bytes: &[u8]) {
    let path = shared::file(bytes);
    let (texts, error) = read(&path, Position::default());
    assert!(error.as_ref().is_none_or(|error| error.contains("untuned-fuzz")));
    for (n, (position, _)) in texts.iter().enumerate().take(4) {
        let (rest, again) = read(&path, *position);
        assert_eq!((&rest[..], &again), (&texts[n..], &error));
    }
    read(&path, Position { shard: 0, line: u64::MAX });
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).expect("memory takes everything");
    let packed = packed.finish().expect("memory takes everything");
    check(&packed);
    // A cut of the packed file, at a place that the input decides.
    let cut = bytes.iter().fold(0, |sum, &byte| 31 * sum % 65_521 + usize::from(byte)) % packed.len();
    check(&packed[..cut]);
});
