//! What a paper claims, and what became of it when it was measured.

use serde::{Deserialize, Serialize};

/// One claim and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// From 1.
    pub number: u32,
    /// What is claimed.
    pub claim: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// The numbers that decide it, in one sentence.
    pub measured: String,
    /// The numbers behind the sentence: a header and rows.
    pub table: Vec<Vec<String>>,
    /// The recorded verdict at full scale, in words, where this one was found at a smaller scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
}

/// What decides a claim.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decided {
    /// Whether it holds.
    pub verdict: Verdict,
    /// The numbers that decide it, in one sentence.
    pub measured: String,
    /// The numbers behind the sentence: a header and rows.
    pub table: Vec<Vec<String>>,
}

impl Decided {
    /// The `index`-th claim, counted from 0, with this text.
    pub(crate) fn claim(self, index: usize, claim: &str) -> Claim {
        let Decided { verdict, measured, table } = self;
        Claim { number: index as u32 + 1, claim: claim.to_string(), verdict, measured, table, recorded: None }
    }
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As stated.
    Holds,
    /// Something of it does; the measurement says what.
    HoldsInPart,
    /// It does not.
    DoesNotHold,
    /// The differences are within the spread of the seeds, or the runs are too short to tell.
    NotDecided,
}

impl Verdict {
    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::HoldsInPart => "holds in part",
            Verdict::DoesNotHold => "does not hold",
            Verdict::NotDecided => "not decided at this scale",
        }
    }

    /// The verdict as one sign.
    pub fn mark(self) -> &'static str {
        match self {
            Verdict::Holds => "✓",
            Verdict::HoldsInPart => "~",
            Verdict::DoesNotHold => "✗",
            Verdict::NotDecided => "?",
        }
    }

    /// All of it or nothing.
    pub fn of(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::DoesNotHold }
    }

    /// All of it, some of it, or nothing.
    pub fn among(parts: &[bool]) -> Verdict {
        match parts.iter().filter(|p| **p).count() {
            0 => Verdict::DoesNotHold,
            n if n == parts.len() => Verdict::Holds,
            _ => Verdict::HoldsInPart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_a_recorded_verdict_is_written_as_before() {
        let old = r#"{"number":1,"claim":"c","verdict":"holds-in-part","measured":"m","table":[["a"]]}"#;
        let mut claim: Claim = serde_json::from_str(old).unwrap();
        assert_eq!((claim.verdict, claim.recorded.as_deref()), (Verdict::HoldsInPart, None));
        assert_eq!(serde_json::to_string(&claim).unwrap(), old);
        claim.verdict = Verdict::NotDecided;
        claim.recorded = Some("holds".into());
        let new = serde_json::to_string(&claim).unwrap();
        assert!(new.contains("\"not-decided\"") && new.ends_with("\"recorded\":\"holds\"}"), "{new}");
        assert_eq!(serde_json::from_str::<Claim>(&new).unwrap(), claim);
    }

    #[test]
    fn verdicts_of_parts() {
        assert_eq!(Verdict::among(&[true, true]), Verdict::Holds);
        assert_eq!(Verdict::among(&[true, false]), Verdict::HoldsInPart);
        assert_eq!(Verdict::among(&[false, false]), Verdict::DoesNotHold);
    }
}
