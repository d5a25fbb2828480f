//! The loaders against what the upstream preparation scripts write, where the data is present: in the folder that
//! `UNTUNED_DATA` names, or in `../shared/data` beside the checkout. Tests without their files say so and pass.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use untuned_net::data::{c4, files, t5, text::Text, words::Words};

/// A file or folder of the data folder.
fn data(name: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("UNTUNED_DATA").map_or_else(beside, PathBuf::from).join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not here; set UNTUNED_DATA to the data folder", path.display());
    None
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The SHA-256 of ids as little-endian numbers of `width` bytes.
fn sha256<'a>(ids: impl IntoIterator<Item = &'a u32>, width: usize) -> String {
    let mut hash = Sha256::new();
    for id in ids {
        hash.update(&id.to_le_bytes()[..width]);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn shakespeares_characters() {
    let (Some(golden), Some(path)) = (data("golden_ids.json"), data("tinyshakespeare/input.txt")) else {
        return;
    };
    let golden = json(golden);
    let Text { vocabulary, splits } = Text::read(&path, 256).unwrap();
    let characters: String = vocabulary.characters().iter().collect();
    assert_eq!(golden["shakespeare_char/vocab"], characters[..]);
    let train = &golden["shakespeare_char/train.bin"];
    assert_eq!(splits.train.len(), train["len"]);
    assert_eq!(splits.train[..16], ids(&train["first16"]));
    assert_eq!(train["sha256_u16le"], sha256(&*splits.train, 2)[..]);
    // Upstream has no test split: its validation file is our two halves.
    let rest = &golden["shakespeare_char/val.bin"];
    assert_eq!(splits.validation.len() + splits.test.len(), rest["len"]);
    assert_eq!(splits.validation[..16], ids(&rest["first16"]));
    assert_eq!(rest["sha256_u16le"], sha256(splits.validation.iter().chain(&*splits.test), 2)[..]);
}

#[test]
fn the_penn_treebanks_words() {
    let (Some(golden), Some(folder)) = (data("golden_ids.json"), data("ptb")) else { return };
    let golden = &json(golden)["awd-lstm/penn"];
    let Words { vocabulary, splits } = Words::read_folder(&folder).unwrap();
    assert_eq!(vocabulary.len(), golden["vocab_size"]);
    assert_eq!(
        vocabulary.words()[..10],
        serde_json::from_value::<Vec<String>>(golden["first10words"].clone()).unwrap()
    );
    assert_eq!(vocabulary.id("<eos>").unwrap(), golden["id_eos"]);
    assert_eq!(vocabulary.id("<unk>").unwrap(), golden["id_unk"]);
    for (name, split) in [("train", splits.train), ("valid", splits.validation), ("test", splits.test)] {
        let golden = &golden[name];
        assert_eq!(split.len(), golden["len"], "{name}");
        assert_eq!(split[..30], ids(&golden["first30"]), "{name}");
        assert_eq!(golden["sha256_u32le"], sha256(&*split, 4)[..], "{name}");
    }
}

#[test]
fn known_files() {
    for file in files::KNOWN {
        if let Some(path) = data(file.path) {
            assert_eq!(files::check(file.name, &path).unwrap().size, file.size);
        }
    }
}

#[test]
fn t5s_tokenizer() {
    let (Some(golden), Some(path)) =
        (data("t5-tokenizer/golden_encodings.json"), data("t5-tokenizer/tokenizer.json"))
    else {
        return;
    };
    let ours = t5::Tokenizer::read(&path).unwrap();
    assert_eq!(ours.special(), t5::Special { end: 1, first_sentinel: 32_099, sentinels: 100 });
    assert_eq!(ours.len(), 32_100);
    // `fast_ids` reads sentinels in the text, SentencePiece spells them; we do as SentencePiece.
    let fast = tokenizers::Tokenizer::from_file(&path).unwrap();
    for case in json(golden).as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(ours.encode(text).unwrap(), ids(&case["spm_ids_plus_eos"]), "{text:?}");
        assert_eq!(fast.encode(text, true).unwrap().get_ids(), ids(&case["fast_ids"]), "{text:?}");
    }
    assert_eq!(ours.decode(&ours.encode("Hello, world!").unwrap()).unwrap(), "Hello, world! </s>");
}

/// Real C4: every document reads, and every chunk of it is restored from its input and target.
#[test]
fn real_c4() {
    let (Some(folder), Some(tokenizer)) = (data("c4"), data("t5-tokenizer/tokenizer.json")) else { return };
    let count = |name: &str| {
        let documents = c4::Documents::new(c4::shards(&folder.join(name)).unwrap());
        documents.inspect(|document| assert!(document.is_ok(), "{document:?}")).count()
    };
    assert_eq!(count("c4-en-sample.train.json.gz"), 1000);
    assert_eq!(count("c4-en-sample.heldout.json.gz"), 444);
    assert_eq!(count("c4-en-sample.textonly.json.gz"), 499);
    assert_eq!(count("c4-passages.textonly.json.gz"), 1480);

    let tokenizer = Arc::new(t5::Tokenizer::read(&tokenizer).unwrap());
    let corruption = t5::Corruption::new(568, t5::DENSITY, t5::MEAN_SPAN, tokenizer.special()).unwrap();
    let shards = c4::shards(&folder).unwrap();
    let start = || t5::Chunks::new(shards.clone(), tokenizer.clone(), 568, t5::ChunksState::default());
    let mut chunks = start();
    let first: Vec<Vec<u32>> = chunks.by_ref().take(300).map(Result::unwrap).collect();
    // Reading on from a saved state gives what reading on without saving gives.
    let state = serde_json::from_str(&serde_json::to_string(&chunks.state()).unwrap()).unwrap();
    let resumed = t5::Chunks::new(shards.clone(), tokenizer.clone(), 568, state);
    assert!(resumed.take(50).map(Result::unwrap).eq(chunks.take(50).map(Result::unwrap)));
    // The chunks are the documents one after the other.
    let joined: Vec<u32> = c4::Documents::new(shards.clone())
        .flat_map(|document| tokenizer.encode(&document.unwrap()).unwrap())
        .take(300 * 568)
        .collect();
    assert_eq!(first.concat(), joined);
    assert!(joined.iter().all(|&id| id < 32_000), "no text makes a sentinel");
    for (example, chunk) in first.iter().enumerate() {
        let (mut inputs, mut targets) = (vec![], vec![]);
        corruption.corrupt(chunk, 1, example as u64, &mut inputs, &mut targets).unwrap();
        assert_eq!((inputs.len(), targets.len()), (512, 114));
        let mut spans = targets[..113].split(|&id| id >= 32_000).skip(1);
        let mut restored = Vec::new();
        for &id in &inputs[..511] {
            if id >= 32_000 { restored.extend_from_slice(spans.next().unwrap()) } else { restored.push(id) }
        }
        assert_eq!((&restored, spans.next()), (chunk, None));
    }
}
