//! T5 on files that are read as they are needed: batches are made one step ahead, and nobody can tell.

use std::fs;
use std::io::Write;
use std::path::Path;

use untuned_lab::train::{Options, Outcome, TrainError, train};

use crate::{Bench, StopAfter, T5, resumes_to_the_same_bits, rows};

/// A tokenizer that knows `a` and `b`.
const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"normalizer":null,"post_processor":null,
    "added_tokens":[{"id":8,"content":"<extra_id_0>"},{"id":7,"content":"<extra_id_1>"},{"id":2,"content":"</s>"}],
    "pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},
    "decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},
    "model":{"type":"Unigram","unk_id":1,
        "vocab":[["<pad>",0.0],["<unk>",0.0],["</s>",0.0],["▁",-2.0],["a",-3.0],["▁a",-1.0],["▁b",-1.0]]}}"#;

/// Documents of different lengths, none of which fits a batch.
fn documents(count: usize) -> String {
    (1..=count).map(|n| format!("{{\"text\":\"{}\"}}\n", "a b b a a ".repeat(n % 7 + 1))).collect()
}

fn shard(folder: &Path, name: &str, text: &str) {
    let file = fs::File::create(folder.join(name)).unwrap();
    let mut gz = flate2::write::GzEncoder::new(file, Default::default());
    gz.write_all(text.as_bytes()).unwrap();
    gz.finish().unwrap();
}

fn bench() -> (Bench, String) {
    let bench = Bench::new();
    let folder = bench.path("shards");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("tokenizer.json"), TOKENIZER).unwrap();
    shard(&folder, "train.0.json.gz", &documents(9));
    shard(&folder, "validation.0.json.gz", &documents(20));
    let data = format!("data={}", folder.display());
    (bench, data)
}

#[test]
fn a_stream_of_documents_resumes_to_the_same_bits() {
    let (bench, data) = bench();
    resumes_to_the_same_bits(&bench, T5, "stream", &[&data]);
}

#[test]
fn a_damaged_shard_ends_the_run_at_the_step_that_needs_it() {
    let (bench, data) = bench();
    fs::write(bench.path("shards/train.1.json.gz"), "junk").unwrap();
    let made = |out: &str| rows(&bench.path(out).join("trace.jsonl")).len();
    let fails = |out: &str, set: &[&str], resume: bool| {
        let opened = bench.open(T5, out, set, resume);
        let error = train(&opened, &Options::default(), &mut StopAfter::default()).unwrap_err();
        assert!(matches!(&error, TrainError::T5(_)), "{error}");
        assert!(error.to_string().contains("train.1.json.gz"), "{error}");
        made(out)
    };
    let good = fails("long", &[&data, "steps=99"], false);
    assert!(good > 1, "{good}");
    assert_eq!(fails("one-more", &[&data, &format!("steps={}", good + 1)], false), good);
    let steps = format!("steps={good}");
    let (ended, _) = bench.train(&bench.open(T5, "enough", &[&data, &steps], false), 1, None);
    assert_eq!(ended.outcome, Outcome::Finished, "the damaged part is not needed");

    // Stopped when the batch that cannot be made has been tried: the error comes when the run goes on.
    let stopped = bench.train(&bench.open(T5, "parts", &[&data, "steps=99"], false), 1, Some(good as u64)).0;
    assert_eq!(stopped.outcome, Outcome::Interrupted { step: good as u64 });
    assert_eq!(fails("parts", &[&data], true), good);
}
