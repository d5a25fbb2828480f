//! `untuned rules` and `untuned problems`.

use std::fmt::Write;

use serde::Serialize;
use untuned::spec::{Entry, Fallback, Parameter, number};

use crate::args::List;
use crate::end::End;
use crate::output;

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    aliases: &'static [&'static str],
    formula: &'static str,
    parameters: Vec<ListedParameter>,
    reference: &'static str,
}

#[derive(Serialize)]
struct ListedParameter {
    name: &'static str,
    /// A number, a word, or null where it must be given.
    default: Option<serde_json::Value>,
    meaning: &'static str,
}

impl From<&Parameter> for ListedParameter {
    fn from(p: &Parameter) -> ListedParameter {
        let default = match p.default {
            Fallback::Required => None,
            Fallback::Number(v) => Some(v.into()),
            Fallback::Word(w) | Fallback::Derived(w) => Some(w.into()),
        };
        ListedParameter { name: p.name, default, meaning: p.meaning }
    }
}

pub fn run(entries: &[&'static Entry], args: &List) -> Result<(), End> {
    if args.json {
        let listed: Vec<Listed> = entries
            .iter()
            .map(|e| Listed {
                name: e.name,
                aliases: e.aliases,
                formula: e.formula,
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
        let width = entry.parameters.iter().map(|p| p.name.len()).max().unwrap_or(0);
        for p in entry.parameters {
            let default = match p.default {
                Fallback::Required => "must be given".to_string(),
                Fallback::Number(v) => format!("default {}", number(v)),
                Fallback::Word(w) => format!("default {w}"),
                Fallback::Derived(how) => format!("default {how}"),
            };
            let _ = writeln!(text, "    {:width$}  {} [{default}]", p.name, p.meaning);
        }
        let _ = writeln!(text, "    {}\n", entry.reference);
    }
    output::print(text.trim_end())?;
    output::print("\n")
}
