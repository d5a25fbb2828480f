//! The tokenizer, and the documents' ids cut into chunks.

use super::{Special, T5Error};
use crate::data::c4::{Documents, Position};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A tokenizer from Hugging Face's `tokenizer.json`.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special: Special,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, which must know `</s>` and `<extra_id_0>`.
    pub fn read(path: &Path) -> Result<Self, T5Error> {
        let failed = |reason: String| T5Error::Tokenizer { path: path.into(), reason };
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let mut json = serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
        let added = hide_special(&mut json).map_err(failed)?;
        let inner = serde_json::from_value(json).map_err(|error| failed(error.to_string()))?;
        let id = |token| added.get(token).copied().ok_or(T5Error::NoToken { path: path.into(), token });
        let (end, first_sentinel) = (id("</s>")?, id("<extra_id_0>")?);
        let sentinels = (0..=first_sentinel)
            .take_while(|&k| added.get(&format!("<extra_id_{k}>")) == Some(&(first_sentinel - k)))
            .count() as u32;
        Ok(Self { inner, special: Special { end, first_sentinel, sentinels } })
    }

    /// The ids of `</s>` and the sentinels.
    pub fn special(&self) -> Special {
        self.special
    }

    /// The number of ids, sentinels included (32,100 for T5, whose model has 32,128 rows).
    pub fn len(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// True where it knows no token; never, after [`read`](Self::read).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ids of a document, with `</s>` at the end.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, T5Error> {
        let encoding = self.inner.encode_fast(text, false).map_err(|error| T5Error::Encode {
            bytes: text.len(),
            start: text.chars().take(40).collect(),
            reason: error.to_string(),
        })?;
        let mut ids = encoding.get_ids().to_vec();
        ids.push(self.special.end);
        Ok(ids)
    }

    /// The text of ids, with sentinels and `</s>` spelled out after a blank.
    pub fn decode(&self, ids: &[u32]) -> Result<String, T5Error> {
        self.inner.decode(ids, false).map_err(|error| T5Error::Encode {
            bytes: 4 * ids.len(),
            start: format!("{:?}", &ids[..ids.len().min(8)]),
            reason: error.to_string(),
        })
    }
}

/// The ids of the added tokens, which are taken out of a `tokenizer.json`, with whatever else would change a document's ids.
///
/// A document that says "<extra_id_0>" or "</s>" is to be spelled, as SentencePiece does, so that no text can forge a sentinel. The
/// model's own tokens of that name would match it; with a blank before the name, which is `▁` in all text, they match nothing.
fn hide_special(json: &mut Value) -> Result<HashMap<String, u32>, String> {
    let mut added = Vec::new();
    for token in json["added_tokens"].as_array().ok_or("it has no list added_tokens")? {
        match (token["id"].as_u64(), token["content"].as_str()) {
            (Some(id), Some(content)) => added.push((id, content.to_owned())),
            _ => return Err(format!("an added token is {token}")),
        }
    }
    added.sort();
    let tokens = json.pointer_mut("/model/vocab").and_then(Value::as_array_mut);
    let tokens = tokens.ok_or("its model has no list of tokens, as a Unigram model has")?;
    for (id, content) in &added {
        let (hidden, count) = (Value::from(format!(" {content}")), tokens.len() as u64);
        match tokens.get_mut(*id as usize) {
            Some(Value::Array(token)) if token.first().is_some_and(|name| *name == content[..]) => {
                token[0] = hidden;
            }
            None if *id == count => tokens.push(Value::from(vec![hidden, Value::from(0.0)])),
            _ => return Err(format!("the id {id} of {content} belongs to another token")),
        }
    }
    json["added_tokens"] = Value::Array(Vec::new());
    for part in ["post_processor", "truncation", "padding"] {
        json[part] = Value::Null;
    }
    // No overflow: there are as many tokens in memory.
    Ok(added.into_iter().map(|(id, content)| (content, id as u32)).collect())
}

/// Where a stream of chunks stands: enough to read on from there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunksState {
    /// The next document.
    pub position: Position,
    /// The ids that have been read and not yet handed out.
    pub rest: Vec<u32>,
}

/// The ids of all documents, one after the other, cut into chunks of equal length; a last shorter chunk is left out.
#[derive(Debug)]
pub struct Chunks {
    documents: Documents,
    tokenizer: Arc<Tokenizer>,
    length: usize,
    rest: VecDeque<u32>,
}

impl Chunks {
    /// Chunks of `length` ids (at least 1) of the shards' documents, from a state on; the default state is the beginning.
    pub fn new(shards: Vec<PathBuf>, tokenizer: Arc<Tokenizer>, length: usize, state: ChunksState) -> Self {
        let documents = Documents::resume(shards, state.position);
        Self { documents, tokenizer, length: length.max(1), rest: state.rest.into() }
    }

    /// Where the next chunk begins.
    pub fn state(&self) -> ChunksState {
        ChunksState { position: self.documents.position(), rest: self.rest.iter().copied().collect() }
    }
}

impl Iterator for Chunks {
    type Item = Result<Vec<u32>, T5Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.rest.len() < self.length {
            let document = self.documents.next()?.map_err(T5Error::from);
            match document.and_then(|text| self.tokenizer.encode(&text)) {
                Ok(ids) => self.rest.extend(ids),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(self.rest.drain(..self.length).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_that_is_no_tokenizer_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        assert!(Tokenizer::read(&path).unwrap_err().to_string().contains("tokenizer.json"));
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(Tokenizer::read(&path), Err(T5Error::Tokenizer { .. })));
        for (added, reason) in [
            (r#"[{"id":2,"content":"</s>"}]"#, "no token <extra_id_0>"),
            (r#"[{"id":3,"content":"</s>"}]"#, "belongs to another token"),
            (r#"[{"id":99999999999,"content":"x"}]"#, "belongs to another token"),
            (r#"[{"id":-1,"content":"x"}]"#, "an added token is"),
            ("{}", "no list added_tokens"),
        ] {
            std::fs::write(&path, tiny(added)).unwrap();
            let error = Tokenizer::read(&path).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("tokenizer.json"), "{error}");
        }
        for junk in ["", "[]", "1", r#"{"added_tokens":[]}"#, r#"{"added_tokens":[],"model":{"vocab":{}}}"#] {
            std::fs::write(&path, junk).unwrap();
            assert!(matches!(Tokenizer::read(&path), Err(T5Error::Tokenizer { .. })), "{junk}");
        }
    }

    /// A unigram tokenizer with six tokens.
    fn tiny(added: &str) -> String {
        let vocab = r#"[["<pad>",0.0],["<unk>",0.0],["</s>",0.0],["▁",-2.0],["a",-3.0],["▁a",-1.0]]"#;
        let space = r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}"#;
        format!(
            r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":{added},"normalizer":null,
            "pre_tokenizer":{space},"post_processor":null,"decoder":{space},
            "model":{{"type":"Unigram","unk_id":1,"vocab":{vocab}}}}}"#
        )
    }

    #[test]
    fn a_tiny_tokenizer_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let added = r#"[{"id":7,"content":"<extra_id_0>"},{"id":6,"content":"<extra_id_1>"},{"id":2,"content":"</s>"}]"#;
        std::fs::write(&path, tiny(added)).unwrap();
        let tokenizer = Tokenizer::read(&path).unwrap();
        assert_eq!(tokenizer.special(), Special { end: 2, first_sentinel: 7, sentinels: 2 });
        assert_eq!((tokenizer.len(), tokenizer.is_empty()), (8, false));
        assert_eq!(tokenizer.encode("").unwrap(), [2]);
        assert_eq!(tokenizer.encode("aa a").unwrap(), [5, 4, 5, 2]);
        // Unknown characters in a row are one unknown token.
        assert_eq!(tokenizer.encode("a </s>").unwrap(), [5, 3, 1, 2]);
        assert_eq!(tokenizer.encode("<extra_id_0>").unwrap(), [3, 1, 4, 1, 2]);
        assert_eq!(tokenizer.decode(&[5, 7, 5, 2]).unwrap(), "a <extra_id_0> a </s>");

        // Documents end with </s> (2), follow one another and are cut; the rest of 2 ids is left out.
        let shard = folder.path().join("x.json.gz");
        let mut gz =
            flate2::write::GzEncoder::new(std::fs::File::create(&shard).unwrap(), Default::default());
        std::io::Write::write_all(&mut gz, b"{\"text\":\"a\"}\n{\"text\":\"\"}\n{\"text\":\"a a a a\"}\n")
            .unwrap();
        gz.finish().unwrap();
        let tokenizer = Arc::new(tokenizer);
        let start = |state| Chunks::new(vec![shard.clone()], tokenizer.clone(), 3, state);
        let all: Vec<Vec<u32>> = start(ChunksState::default()).map(Result::unwrap).collect();
        assert_eq!(all, [[5, 2, 2], [5, 5, 5]]);
        let mut chunks = start(ChunksState::default());
        chunks.next();
        let resumed: Vec<Vec<u32>> = start(chunks.state()).map(Result::unwrap).collect();
        assert_eq!(resumed, [[5, 5, 5]]);
        std::fs::write(&shard, "junk").unwrap();
        let mut chunks = start(ChunksState::default());
        assert!(matches!(chunks.next(), Some(Err(T5Error::Documents(_)))));
        assert!(chunks.next().is_none());
    }

    #[test]
    fn no_text_makes_a_special_id() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, tiny(r#"[{"id":6,"content":"<extra_id_0>"},{"id":2,"content":"</s>"}]"#))
            .unwrap();
        let tokenizer = Tokenizer::read(&path).unwrap();
        proptest!(|(parts in proptest::collection::vec(prop_oneof![any::<String>(), Just("a".into()),
            Just(" <extra_id_0>".into()), Just("▁".into()), Just("</s>".into())], 0..6))| {
            let ids = tokenizer.encode(&parts.concat()).unwrap();
            let (end, ids) = ids.split_last().unwrap();
            prop_assert!(*end == 2 && ids.iter().all(|id| [1, 3, 4, 5].contains(id)), "{:?}", ids);
        });
    }
}
