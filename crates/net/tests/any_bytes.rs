//! Bounded fuzzing of the loaders: any bytes are read or refused with words that name the file, never a panic.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};
use proptest::collection::vec;
use proptest::prelude::*;
use untuned_net::data::c4::{C4Error, Documents, Position};
use untuned_net::data::files;
use untuned_net::data::t5::{Corruption, Special};
use untuned_net::data::text::Text;
use untuned_net::data::words::Words;

struct Folder(tempfile::TempDir);

impl Folder {
    fn put(bytes: &[u8]) -> (Self, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("any.json.gz");
        fs::write(&path, bytes).expect("writable");
        (Self(folder), path)
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// Lines that are documents, nearly documents, not UTF-8, deep or up to a megabyte long.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let text = |text: &str| format!("{{\"text\":\"{text}\"}}").into_bytes();
    prop_oneof![
        4 => any::<String>().prop_map(|text| serde_json::json!({ "text": text }).to_string().into_bytes()),
        1 => vec(any::<u8>(), 0..100),
        1 => (0..1usize << 20, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        1 => (0..1usize << 20).prop_map(move |length| text(&"a".repeat(length))),
        1 => (0..100_000usize).prop_map(|depth| [b"{\"text\":".to_vec(), vec![b'['; depth]].concat()),
        1 => Just(b"{\"text\":\"\xff\xfe\"}".to_vec()),
        1 => Just(b"{\"text\":\"\\ud800\"}".to_vec()),
        1 => Just(b"{\"text\":null,\"text\":\"twice\"}".to_vec()),
    ]
}

/// Shards as they come, packed in one or two members, packed with rubbish behind, cut, or with a byte changed.
fn shard() -> impl Strategy<Value = Vec<u8>> {
    let lines = || vec(line(), 0..5).prop_map(|lines| lines.join(&b'\n'));
    let whole = prop_oneof![
        lines(),
        lines().prop_map(|bytes| packed(&bytes)),
        (lines(), lines()).prop_map(|(one, two)| [packed(&one), packed(&two)].concat()),
        (lines(), vec(any::<u8>(), 1..50)).prop_map(|(bytes, rest)| [packed(&bytes), rest].concat()),
        vec(any::<u8>(), 0..300).prop_map(|rest| [b"\x1f\x8b\x08".to_vec(), rest].concat()),
    ];
    (whole, any::<prop::sample::Index>(), 0..4u8, any::<u8>()).prop_map(|(mut bytes, at, damage, flip)| {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            match damage {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= flip,
                _ => {}
            }
        }
        bytes
    })
}

/// The documents from a position on, where each begins, and the error at the end.
fn read(path: &Path, from: Position) -> (Vec<(Position, String)>, Option<C4Error>) {
    let mut documents = Documents::resume(vec![path.into()], from);
    let mut texts = Vec::new();
    loop {
        let position = documents.position();
        match documents.next() {
            Some(Ok(text)) => texts.push((position, text)),
            Some(Err(error)) => {
                assert!(documents.next().is_none(), "nothing after an error");
                return (texts, Some(error));
            }
            None => return (texts, None),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_shard_is_read_or_refused(bytes in shard()) {
        let (_folder, path) = Folder::put(&bytes);
        let (texts, error) = read(&path, Position::default());
        let words = error.map(|error| error.to_string());
        prop_assert!(words.as_ref().is_none_or(|words| words.contains("any.json.gz")), "{words:?}");
        for (n, (position, _)) in texts.iter().enumerate() {
            let (rest, again) = read(&path, *position);
            prop_assert!(rest == texts[n..], "the same documents from {position:?} on");
            prop_assert_eq!(&again.map(|error| error.to_string()), &words);
        }
        let (past, _) = read(&path, Position { shard: 0, line: u64::MAX });
        prop_assert!(past.is_empty());
    }

    #[test]
    fn any_text_is_read_or_refused(bytes in prop_oneof![shard(), vec(any::<u8>(), 0..2000), any::<String>().prop_map(String::into_bytes)], context: usize) {
        let (_folder, path) = Folder::put(&bytes);
        let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.is_empty());
        for context in [0, context % 64, context, usize::MAX] {
            match Text::read(&path, context) {
                Ok(read) => {
                    let ids: Vec<u32> = read.splits.named().iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
                    prop_assert!(read.vocabulary.decode(&ids).ok().as_deref() == text);
                }
                Err(error) => prop_assert!(error.to_string().contains("any.json.gz"), "{error}"),
            }
        }
        match Words::read_one(&path) {
            Ok(read) => {
                let count: usize = read.splits.named().iter().map(|(_, ids)| ids.len()).sum();
                let expected = text.map(|text| text.split_whitespace().count() + text.lines().count());
                prop_assert_eq!(Some(count), expected);
                prop_assert!(read.splits.named().iter().all(|(_, ids)| ids.iter().all(|&id| (id as usize) < read.vocabulary.len())));
            }
            Err(error) => prop_assert!(text.is_none() && error.to_string().contains("any.json.gz"), "{error}"),
        }
        let three = Words::read_three(&path, &path, &path);
        prop_assert_eq!(three.is_ok(), text.is_some());
    }

    #[test]
    fn any_file_is_refused_by_every_name(bytes in shard()) {
        let (_folder, path) = Folder::put(&bytes);
        for file in &files::KNOWN {
            let error = files::check(file.name, &path).expect_err("another file").to_string();
            prop_assert!(error.contains("any.json.gz") && error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn any_shape_of_spans_is_made_or_refused(
        raw: usize, short in 0..2000usize, density: f64, share in 0.0..1.0f64, mean_span: f64, span in 0.0..9.0f64,
        end: u32, first in prop_oneof![any::<u32>(), 0..200u32], sentinels in prop_oneof![any::<u32>(), 0..200u32],
        seed: u64, example: u64,
    ) {
        let special = Special { end, first_sentinel: first, sentinels };
        for (density, mean_span) in [(density, mean_span), (share, span), (share, mean_span), (density, span)] {
            if let Err(error) = Corruption::new(raw, density, mean_span, special) {
                prop_assert!(error.to_string().contains("cannot be corrupted"), "{error}");
            }
            let Ok(corruption) = Corruption::new(short, density, mean_span, special) else { continue };
            let (mut inputs, mut targets) = (vec![], vec![]);
            let chunk: Vec<u32> = (0..short as u32).collect();
            prop_assert!(corruption.corrupt(&chunk, seed, example, &mut inputs, &mut targets).is_ok());
            prop_assert_eq!(inputs.len(), corruption.input_length());
            prop_assert_eq!(targets.len(), corruption.target_length());
        }
    }
}

/// One line of 70 MB, which packs into 70 kB: refused at 64 MiB, whatever it says.
#[test]
fn a_huge_line_is_refused() {
    let line = [b"{\"text\":\"".to_vec(), vec![b'a'; 70_000_000], b"\"}\n".to_vec()].concat();
    let (folder, path) = Folder::put(&packed(&line));
    let (texts, error) = read(&path, Position::default());
    assert!(texts.is_empty() && matches!(error, Some(C4Error::TooLong { line: 1, .. })), "{error:?}");
    assert_eq!(fs::read_dir(folder.0.path()).expect("a folder").count(), 1);
}
