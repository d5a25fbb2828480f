//! `untuned rules` and `untuned problems`.

use std::fmt::Write;

use serde::Serialize;
use untuned::spec::{DefaultValue, Info, Parameter, number};
use untuned_theory::ProblemSpec;

use crate::args::List;
use crate::end::End;
use crate::output;

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    aliases: &'static [&'static str],
    formula: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<Vec<&'static str>>,
    parameters: Vec<ListedParameter>,
    reference: &'static str,
}

#[derive(Serialize)]
struct ListedParameter {
    name: &'static str,
    /// A number or a word; null where it must be given or follows from something else.
    default: Option<serde_json::Value>,
    required: bool,
    /// What it follows from, where it is neither given nor a number or word.
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<&'static str>,
    meaning: &'static str,
}

impl From<&Parameter> for ListedParameter {
    fn from(p: &Parameter) -> ListedParameter {
        let (default, derived) = match p.default {
            DefaultValue::Required => (None, None),
            DefaultValue::Number(v) => (Some(v.into()), None),
            DefaultValue::Word(w) => (Some(w.into()), None),
            DefaultValue::Derived(how) => (None, Some(how)),
        };
        let required = p.default == DefaultValue::Required;
        ListedParameter { name: p.name, default, required, derived, meaning: p.meaning }
    }
}

/// `untuned rules`.
pub fn rules(args: &List) -> Result<(), End> {
    list(&untuned::catalog(), |_| None, args)
}

/// `untuned problems`.
pub fn problems(args: &List) -> Result<(), End> {
    list(&untuned_theory::problems::catalog(), |entry| known(entry.name), args)
}

/// What is known of a problem with its default parameters.
fn known(name: &str) -> Option<Vec<&'static str>> {
    let problem = name.parse::<ProblemSpec>().ok()?.build().ok()?;
    let known = problem.known();
    let facts = [
        (known.convex, "convex"),
        (!known.convex, "not convex"),
        (known.f_star.is_some(), "f*"),
        (known.minimizer.is_some(), "minimizer"),
        (known.l.is_some(), "L"),
        (known.l0_l1.is_some(), "L0 and L1"),
        (known.lipschitz.is_some(), "Lipschitz constant"),
        (known.strong_convexity.is_some(), "strong convexity"),
    ];
    Some(facts.into_iter().filter_map(|(holds, fact)| holds.then_some(fact)).collect())
}

fn list(
    entries: &[&'static Info],
    known: impl Fn(&Info) -> Option<Vec<&'static str>>,
    args: &List,
) -> Result<(), End> {
    if args.json {
        let listed: Vec<Listed> = entries
            .iter()
            .map(|e| Listed {
                name: e.name,
                aliases: e.aliases,
                formula: e.formula,
                known: known(e),
                parameters: e.parameters.iter().map(ListedParameter::from).collect(),
                reference: e.reference,
            })
            .collect();
        return output::print_json(&listed);
    }
    let mut text = String::new();
    for entry in entries {
        let aliases = if entry.aliases.is_empty() {
            String::new()
        } else {
            format!(" (also {})", entry.aliases.join(", "))
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}{aliases}\n    {}", entry.name, entry.formula);
        if let Some(facts) = known(entry) {
            let _ = writeln!(text, "    known: {}", facts.join(", "));
        }
        let width = entry.parameters.iter().map(|p| p.name.len()).max().unwrap_or(0);
        for p in entry.parameters {
            let default = match p.default {
                DefaultValue::Required => "must be given".to_string(),
                DefaultValue::Number(v) => format!("default {}", number(v)),
                DefaultValue::Word(w) => format!("default {w}"),
                DefaultValue::Derived(how) => format!("default {how}"),
            };
            let _ = writeln!(text, "    {:width$}  {} [{default}]", p.name, p.meaning);
        }
        let _ = writeln!(text, "    {}\n", entry.reference);
    }
    output::print(text.trim_end())?;
    output::print("\n")
}
