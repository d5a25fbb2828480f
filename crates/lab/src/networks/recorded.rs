//! What became of the claims at the paper's scale: found once, in hours on a GPU, and kept with the traces that decide it.
//!
//! Nobody writes the verdicts by hand: `untuned report docs/runs --record docs/runs/claims.json` makes the file from the archived runs
//! beside it, and a test makes it again.

use serde::{Deserialize, Serialize};

use super::Claims;
use crate::claims::{Claim, Verdict};
use crate::train::folder::pretty;

/// The scales whose verdicts are kept: the paper's networks, with all of its grid and steps, or with what fits an H200's hour.
pub const FULL_SCALES: [&str; 2] = ["paper", "h200"];

/// Whether runs at this scale have the paper's networks.
pub fn is_full(scale: &str) -> bool {
    FULL_SCALES.contains(&scale)
}

/// The verdicts that are kept; none before the runs were made.
const RECORDED: &str = include_str!("../../../../docs/runs/claims.json");

/// A verdict at full scale.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The claim's number.
    pub number: u32,
    /// Its words.
    pub claim: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// The numbers that decide it.
    pub measured: String,
}

/// The file of verdicts that these claims make; nothing where their runs are not of full scale.
pub fn record(claims: &Claims) -> Option<Vec<u8>> {
    let recorded = |claim: &Claim| {
        let Claim { number, claim, verdict, measured, .. } = claim.clone();
        Recorded { number, claim, verdict, measured }
    };
    let full = claims.scale.as_deref().is_some_and(is_full) && !claims.claims.is_empty();
    full.then(|| pretty(&claims.claims.iter().map(recorded).collect::<Vec<_>>()))
}

/// Puts the kept verdicts beside those that were found at a smaller scale.
pub fn with_recorded(claims: Claims) -> Claims {
    // Cannot fail: a test reads the file.
    let recorded: Vec<Recorded> = serde_json::from_str(RECORDED).unwrap_or_default();
    beside(claims, &recorded)
}

fn beside(mut claims: Claims, recorded: &[Recorded]) -> Claims {
    if !claims.scale.as_deref().is_some_and(is_full) {
        for claim in &mut claims.claims {
            // A verdict on other words would be another claim's.
            let of_claim = recorded.iter().find(|r| (r.number, &r.claim) == (claim.number, &claim.claim));
            claim.recorded = of_claim.map(|recorded| match recorded.verdict {
                Verdict::NotDecided => "not decided".to_string(),
                verdict => verdict.words().to_string(),
            });
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::claims;

    #[test]
    fn the_kept_verdicts_are_about_these_claims() {
        let recorded: Vec<Recorded> = serde_json::from_str(RECORDED).unwrap();
        let claims = claims(&[]).claims;
        assert!(recorded.is_empty() || recorded.len() == claims.len());
        for (recorded, claim) in recorded.iter().zip(&claims) {
            assert_eq!((recorded.number, &recorded.claim), (claim.number, &claim.claim));
        }
    }

    #[test]
    fn verdicts_stand_beside_those_of_a_smaller_scale() {
        let of_scale = |scale: &str| Claims { scale: Some(scale.into()), ..claims(&[]) };
        assert_eq!(record(&claims(&[])), None, "of no runs");
        assert_eq!(record(&of_scale("quick")), None);
        let bytes = record(&of_scale(FULL_SCALES[0])).unwrap();
        let mut kept: Vec<Recorded> = serde_json::from_slice(&bytes).unwrap();
        kept[0].verdict = Verdict::HoldsInPart;
        kept[2].claim.push('x');
        let shown: Vec<Option<String>> =
            beside(of_scale("quick"), &kept).claims.into_iter().map(|claim| claim.recorded).collect();
        let words = |words: &str| Some(words.to_string());
        assert_eq!(shown[..3], [words("holds in part"), words("not decided"), None]);
        assert!(beside(of_scale(FULL_SCALES[0]), &kept).claims.iter().all(|claim| claim.recorded.is_none()));
    }
}
