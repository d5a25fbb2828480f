//! Any bytes as a text by words: an error that names the file, or ids of its words and ends of lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use untuned_net::data::words::{END, Words};

mod shared;

fuzz_target!(|bytes: &[u8]| {
    let words = match Words::read_one(&shared::file(bytes)) {
        Ok(words) => words,
        Err(error) => return assert!(error.to_string().contains("untuned-fuzz")),
    };
    let text = std::str::from_utf8(bytes).expect("read as text");
    let expected: Vec<&str> = text.lines().flat_map(|line| line.split_whitespace().chain([END])).collect();
    let found: Vec<&str> = (words.splits.named().iter())
        .flat_map(|(_, ids)| ids.iter().map(|&id| words.vocabulary.words()[id as usize].as_str()))
        .collect();
    assert_eq!(found, expected);
    // Three files are one vocabulary; a prompt is words that are known, or an error.
    let three = Words::from_three(text, "", text);
    assert_eq!((&three.splits.train, &three.vocabulary), (&three.splits.test, &words.vocabulary));
    assert!(words.vocabulary.encode(text).is_ok());
    let _ = Words::from_one("a b").vocabulary.encode(text);
});
