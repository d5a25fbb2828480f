//! Spec strings: `clipped-gd:lr=0.1,threshold=10`, the one notation for methods and problems everywhere.
//!
//! An [`Info`] says which parameters exist, what they may be and what they are by default. [`Spec::parse`] checks
//! a text against a catalog of them; printing a spec gives a text that parses to the same spec.

use std::fmt;

use thiserror::Error;

/// A method or a problem as the user sees it: its name, formula, parameters and source.
#[derive(Debug)]
pub struct Info {
    /// The name in a spec string.
    pub name: &'static str,
    /// Other names that mean the same and print as `name`.
    pub aliases: &'static [&'static str],
    /// The formula, in one line of plain text.
    pub formula: &'static str,
    /// What may stand after the colon.
    pub parameters: &'static [Parameter],
    /// Where it was published.
    pub reference: &'static str,
    /// The weight decay that belongs to a method on networks.
    pub weight_decay: f64,
}

impl Info {
    /// Whether there is a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|p| p.name == name)
    }
}

/// One `key=value` that an [`Info`] accepts.
#[derive(Debug)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// What a value may be.
    pub kind: Kind,
    /// What holds when the key is not given.
    pub default: DefaultValue,
    /// One line for the user.
    pub meaning: &'static str,
}

/// What the value of a [`Parameter`] may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A finite number.
    Finite,
    /// A finite number, zero or more.
    NonNegative,
    /// A finite number above zero.
    Positive,
    /// A number above zero, or `inf`.
    PositiveOrInfinite,
    /// A number from zero on, below one.
    Fraction,
    /// A whole number within these limits.
    Whole(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Kind {
    /// Whether a number is of this kind.
    fn allows(self, v: f64) -> bool {
        match self {
            Kind::Finite => v.is_finite(),
            Kind::NonNegative => v.is_finite() && v >= 0.0,
            Kind::Positive => v.is_finite() && v > 0.0,
            Kind::PositiveOrInfinite => v > 0.0,
            Kind::Fraction => (0.0..1.0).contains(&v),
            Kind::Whole(low, high) => v.fract() == 0.0 && v >= low as f64 && v <= high as f64,
            Kind::Word(_) => false,
        }
    }

    /// Refuses a number of another kind.
    pub(crate) fn check(self, owner: &'static str, name: &'static str, v: f64) -> Result<(), SpecError> {
        let refused = || SpecError::BadValue { owner, name, given: number(v), must: self.must() };
        if self.allows(v) { Ok(()) } else { Err(refused()) }
    }

    /// What a value must be, in words.
    fn must(self) -> String {
        match self {
            Kind::Finite => "a finite number".to_string(),
            Kind::NonNegative => "a finite number, 0 or more".to_string(),
            Kind::Positive => "a finite number above 0".to_string(),
            Kind::PositiveOrInfinite => "a number above 0, or inf".to_string(),
            Kind::Fraction => "a number from 0 on, below 1".to_string(),
            Kind::Whole(low, high) => format!("a whole number from {low} to {high}"),
            Kind::Word(words) => format!("one of {}", words.join(", ")),
        }
    }
}

/// What a [`Parameter`] is when it is not given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DefaultValue {
    /// There is no default: it must be given.
    Required,
    /// This number.
    Number(f64),
    /// This word.
    Word(&'static str),
    /// It follows from something else; the text says from what.
    Derived(&'static str),
}

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A number; whole numbers too.
    Number(f64),
    /// One of the words that the parameter allows.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(v) => f.write_str(&number(*v)),
            Value::Word(w) => f.write_str(w),
        }
    }
}

/// The shortest text that reads back as exactly `v`: `0.1`, `10`, `1e-8`, `inf`.
pub fn number(v: f64) -> String {
    let size = v.abs();
    if v != 0.0 && v.is_finite() && !(1e-4..1e7).contains(&size) { format!("{v:e}") } else { format!("{v}") }
}

/// A loss for people: four digits after the point, or a power of ten where there would be many before it.
///
/// ```
/// assert_eq!([5.0, 4.88e157].map(untuned::spec::loss), ["5.0000", "4.880e157"]);
/// ```
pub fn loss(v: f64) -> String {
    if v.abs() < 1e6 || !v.is_finite() { format!("{v:.4}") } else { format!("{v:.3e}") }
}

/// A spec string that was checked against a catalog, and the parameters that were given.
#[derive(Debug, Clone)]
pub struct Spec {
    info: &'static Info,
    /// As many as there are parameters, in their order.
    given: Vec<Option<Value>>,
}

impl PartialEq for Spec {
    fn eq(&self, other: &Spec) -> bool {
        self.info.name == other.info.name && self.given == other.given
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info.name)?;
        let mut separator = ':';
        for (parameter, value) in self.info.parameters.iter().zip(&self.given) {
            if let Some(value) = value {
                write!(f, "{separator}{}={value}", parameter.name)?;
                separator = ',';
            }
        }
        Ok(())
    }
}

impl Spec {
    /// Reads `name` or `name:key=value,…` against a catalog of `what` ("method", "problem").
    ///
    /// # Errors
    /// Says which part of the text is wrong and what would be right.
    pub fn parse(text: &str, what: &'static str, catalog: &[&'static Info]) -> Result<Spec, SpecError> {
        let (name, arguments) = match text.split_once(':') {
            Some((name, arguments)) => (name.trim(), Some(arguments)),
            None => (text.trim(), None),
        };
        let info = catalog.iter().find(|e| e.name == name || e.aliases.contains(&name)).ok_or_else(|| {
            let names = || catalog.iter().flat_map(|e| std::iter::once(&e.name).chain(e.aliases)).copied();
            SpecError::UnknownName {
                what,
                given: excerpt(name),
                hint: hint(name, names()),
                known: catalog.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
            }
        })?;
        let mut spec = Spec { info, given: vec![None; info.parameters.len()] };
        for pair in arguments.into_iter().flat_map(|a| a.split(',')) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(SpecError::NotAPair {
                    owner: info.name,
                    given: excerpt(pair.trim()),
                    example: spec.example(),
                });
            };
            spec.set(key.trim(), value.trim())?;
        }
        for (parameter, given) in info.parameters.iter().zip(&spec.given) {
            if parameter.default == DefaultValue::Required && given.is_none() {
                return Err(SpecError::Missing {
                    owner: info.name,
                    name: parameter.name,
                    meaning: parameter.meaning,
                    example: spec.example(),
                });
            }
        }
        Ok(spec)
    }

    /// A spec whose parameters have these values. Only values that differ from the default are printed.
    pub(crate) fn of(info: &'static Info, values: Vec<Option<Value>>) -> Spec {
        let differs = |(parameter, value): (&Parameter, Option<Value>)| {
            value.filter(|value| match (parameter.default, value) {
                (DefaultValue::Number(default), Value::Number(v)) => default.to_bits() != v.to_bits(),
                (DefaultValue::Word(default), Value::Word(word)) => default != *word,
                _ => true,
            })
        };
        Spec { info, given: info.parameters.iter().zip(values).map(differs).collect() }
    }

    fn set(&mut self, key: &str, text: &str) -> Result<(), SpecError> {
        let owner = self.info.name;
        let parameters = self.info.parameters;
        let Some(at) = parameters.iter().position(|p| p.name == key) else {
            let known = if parameters.is_empty() {
                format!("`{owner}` takes no parameters")
            } else {
                let names: Vec<_> = parameters.iter().map(|p| p.name).collect();
                format!("`{owner}` takes {}", names.join(", "))
            };
            let hint = hint(key, parameters.iter().map(|p| p.name));
            return Err(SpecError::UnknownParameter { owner, given: excerpt(key), hint, known });
        };
        let parameter = &parameters[at];
        if self.given[at].is_some() {
            return Err(SpecError::Twice { owner, name: parameter.name });
        }
        self.given[at] = Some(parameter.read(owner, text)?);
        Ok(())
    }

    /// The name of the method or problem.
    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// What the catalog has of it.
    pub fn info(&self) -> &'static Info {
        self.info
    }

    /// The parameter's value as given in the text, or its default; `None` where the default is derived.
    ///
    /// # Panics
    /// When there is no parameter of that name, which is a mistake in the program.
    pub fn value(&self, name: &str) -> Option<Value> {
        let at = self.info.parameters.iter().position(|p| p.name == name);
        let at = at.unwrap_or_else(|| panic!("`{}` has no parameter `{name}`", self.info.name));
        self.given[at].or(match self.info.parameters[at].default {
            DefaultValue::Number(v) => Some(Value::Number(v)),
            DefaultValue::Word(w) => Some(Value::Word(w)),
            DefaultValue::Required | DefaultValue::Derived(_) => None,
        })
    }

    /// Whether the text gave this parameter.
    pub fn is_given(&self, name: &str) -> bool {
        self.info.parameters.iter().zip(&self.given).any(|(p, v)| p.name == name && v.is_some())
    }

    /// Like [`Spec::value`], for a parameter that is a number with a derived default.
    pub fn optional(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Number(v)) => Some(v),
            _ => None,
        }
    }

    /// Like [`Spec::value`], for a parameter that is a number and always has a value.
    ///
    /// # Panics
    /// When the parameter is a word or its default is derived, which is a mistake in the program.
    pub fn number(&self, name: &str) -> f64 {
        self.optional(name).unwrap_or_else(|| panic!("`{}`: `{name}` is not a number", self.info.name))
    }

    /// Like [`Spec::value`], for a parameter that is a word.
    ///
    /// # Panics
    /// When the parameter is a number, which is a mistake in the program.
    pub fn word(&self, name: &str) -> &'static str {
        match self.value(name) {
            Some(Value::Word(w)) => w,
            _ => panic!("`{}`: `{name}` is not a word", self.info.name),
        }
    }

    /// A spec string that shows how parameters are written.
    fn example(&self) -> String {
        let wanted = |p: &&Parameter| p.default == DefaultValue::Required;
        let shown: Vec<&Parameter> = match self.info.parameters.iter().filter(wanted).collect::<Vec<_>>() {
            required if required.is_empty() => self.info.parameters.iter().take(1).collect(),
            required => required,
        };
        let pairs: Vec<_> = shown.iter().map(|p| format!("{}={}", p.name, p.example())).collect();
        if pairs.is_empty() {
            self.info.name.to_string()
        } else {
            format!("{}:{}", self.info.name, pairs.join(","))
        }
    }
}

impl Parameter {
    fn read(&self, owner: &'static str, text: &str) -> Result<Value, SpecError> {
        let wrong = |must: String| SpecError::BadValue { owner, name: self.name, given: excerpt(text), must };
        if let Kind::Word(words) = self.kind {
            let word = words.iter().find(|w| **w == text);
            return word.map(|w| Value::Word(w)).ok_or_else(|| wrong(self.kind.must()));
        }
        let v: f64 = text.parse().map_err(|_| wrong(format!("a number, for example {}", self.example())))?;
        if v.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
            return Err(wrong("a number that a 64-bit float can hold".to_string()));
        }
        if self.kind.allows(v) { Ok(Value::Number(v)) } else { Err(wrong(self.kind.must())) }
    }

    /// Refuses a value that did not come from a text.
    pub(crate) fn check(&self, owner: &'static str, value: Option<Value>) -> Result<(), SpecError> {
        match value {
            Some(Value::Number(v)) if v.is_nan() && self.default == DefaultValue::Required => {
                let example = format!("{owner}:{}={}", self.name, self.example());
                Err(SpecError::Missing { owner, name: self.name, meaning: self.meaning, example })
            }
            Some(Value::Number(v)) => self.kind.check(owner, self.name, v),
            _ => Ok(()),
        }
    }

    fn example(&self) -> String {
        match (self.default, self.kind) {
            (DefaultValue::Number(v), _) => number(v),
            (DefaultValue::Word(w), _) => w.to_string(),
            (_, Kind::Word(words)) => words.first().copied().unwrap_or("word").to_string(),
            (_, Kind::Whole(low, _)) => low.to_string(),
            _ => "0.1".to_string(),
        }
    }
}

/// The text as an error message shows it: whole, unless it is very long.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// ``: did you mean `x`?`` when a known name is near, else nothing.
fn hint<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> String {
    if given.len() > 80 {
        return String::new();
    }
    let given = given.to_lowercase();
    let near = known.map(|k| (strsim::damerau_levenshtein(&given, k), k)).min();
    match near {
        // Of a name as short as `gd` at least something must be right.
        Some((distance, name)) if distance < name.len() && distance <= 2.max(name.len() / 3) => {
            format!(", did you mean `{name}`?")
        }
        _ => String::new(),
    }
}

/// What is wrong with a spec string. An `owner` is a method or a problem.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum SpecError {
    /// No method or problem has this name.
    #[error("unknown {what} `{given}`{hint} (known: {known})")]
    UnknownName { what: &'static str, given: String, hint: String, known: String },
    /// The method or problem has no such parameter.
    #[error("`{owner}` has no parameter `{given}`{hint} ({known})")]
    UnknownParameter { owner: &'static str, given: String, hint: String, known: String },
    /// Something after the colon is not `key=value`.
    #[error("`{owner}`: `{given}` is not key=value; write it like `{example}`")]
    NotAPair { owner: &'static str, given: String, example: String },
    /// A parameter stands twice.
    #[error("`{owner}`: `{name}` is given twice; keep one of them")]
    Twice { owner: &'static str, name: &'static str },
    /// A value is not a number or word of the kind wanted.
    #[error("`{owner}`: {name}={given} does not work, {name} must be {must}")]
    BadValue { owner: &'static str, name: &'static str, given: String, must: String },
    /// A parameter without a default was not given.
    #[error("`{owner}` needs `{name}` ({meaning}); write it like `{example}`")]
    Missing { owner: &'static str, name: &'static str, meaning: &'static str, example: String },
    /// Parameters that exclude each other, or do not fit the run.
    #[error("`{owner}`: {why}")]
    Unfit { owner: &'static str, why: String },
}
