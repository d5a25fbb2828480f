//! One look and one name for every method, in all figures.

use super::Style;

/// The known methods in the order of their styles: the key (the rule's name) and the name in a legend.
const METHODS: [(&str, &str); 27] = [
    ("inexact-polyak", "Inexact Polyak"),
    ("clipped-gd", "Clipped SGD"),
    ("gd", "SGD"),
    ("dog", "DoG"),
    ("decsps", "DecSPS"),
    ("adasps", "AdaSPS"),
    ("polyak", "Polyak (knows f*)"),
    ("polyak-bound", "Polyak (f* = 0)"),
    ("adamw", "AdamW"),
    ("anytime-polyak", "Anytime Polyak"),
    ("adaptive-polyak", "Adaptive Polyak"),
    ("level-polyak", "Level Polyak"),
    ("polyak-adam", "Polyak Adam"),
    ("prodigy", "Prodigy"),
    ("schedule-free-adamw", "Schedule-Free AdamW"),
    ("momo-adam", "MoMo-Adam"),
    ("d-adapt-adam", "D-Adapt Adam"),
    ("mechanic", "Mechanic"),
    ("cocob", "COCOB"),
    ("momo", "MoMo"),
    ("d-adapt-sgd", "D-Adapt SGD"),
    ("schedule-free-sgd", "Schedule-Free SGD"),
    ("sgd-momentum", "SGD with momentum"),
    ("adagrad", "Adagrad"),
    ("sps-max", "SPS"),
    ("ali-g", "ALI-G"),
    ("dowg", "DoWG"),
];

/// The style of a method: a known one always has its own, another one of the styles after those, by its key.
///
/// ```
/// use untuned_lab::figure::{Style, method_style};
/// assert_eq!(method_style("inexact-polyak"), Style::nth(0));
/// assert_eq!(method_style("mine"), method_style("mine"));
/// ```
pub fn method_style(key: &str) -> Style {
    let known = METHODS.iter().position(|m| m.0 == key);
    // FNV-1a: a few lines, and the same on every machine and in every version of Rust.
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    Style::nth(known.unwrap_or(METHODS.len() + (hash % METHODS.len() as u64) as usize))
}

/// The place of a method among the known ones; unknown ones stand after them.
pub fn method_order(key: &str) -> usize {
    METHODS.iter().position(|m| m.0 == key).unwrap_or(METHODS.len())
}

/// The name of a method in legends and tables; an unknown one is called by its key.
pub fn method_name(key: &str) -> &str {
    METHODS.iter().find(|m| m.0 == key).map_or(key, |m| m.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn known_methods_look_different_and_others_take_none_of_their_styles() {
        let styles: HashSet<Style> = METHODS.iter().map(|m| method_style(m.0)).collect();
        assert_eq!(styles.len(), METHODS.len());
        for other in ["mine", "clipped-gd-theorem-2", ""] {
            assert!(!styles.contains(&method_style(other)), "{other}");
        }
    }

    #[test]
    fn names_are_those_of_rules() {
        for (key, name) in METHODS {
            assert_eq!(method_name(key), name);
        }
        let known: HashSet<&str> = METHODS.iter().map(|(key, _)| *key).collect();
        let listed: HashSet<&str> = untuned::catalog().iter().map(|entry| entry.name).collect();
        assert_eq!(known, listed);
        assert_eq!(method_name("mine"), "mine");
    }
}
