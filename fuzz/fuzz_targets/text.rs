//! Any bytes as a text by characters, with any context: an error that names the file, or splits that read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use untuned_net::data::text::Text;

mod shared;

fuzz_target!(|input: (usize, &[u8])| {
    let (context, bytes) = input;
    let path = shared::file(bytes);
    for context in [0, context % 64, context, usize::MAX] {
        match Text::read(&path, context) {
            Ok(text) => {
                let splits = text.splits.named();
                assert!(splits.iter().all(|(_, ids)| ids.len() > context));
                let ids: Vec<u32> = splits.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
                let decoded = text.vocabulary.decode(&ids).expect("its own ids");
                assert_eq!(decoded.as_bytes(), bytes);
                assert_eq!(text.vocabulary.encode(&decoded).expect("its own characters"), ids);
            }
            Err(error) => assert!(error.to_string().contains("untuned-fuzz")),
        }
    }
});
