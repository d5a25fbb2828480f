//! One look and one name for every method, in all figures. A method needs no entry here to be shown.

use super::Style;

/// Methods with a name of their own in legends, in the order of their styles: the key, which is the name in a spec, and the name
/// in a legend.
const METHODS: &[(&str, &str)] = &[
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

/// The style of a method. Those of the table come first, then the catalog's others in its order: each has its own style. Any
/// other key has one of the styles after those, by its hash.
///
/// ```
/// use untuned_lab::figure::{Style, method_style};
/// assert_eq!(method_style("inexact-polyak"), Style::nth(0));
/// assert_eq!(method_style("mine"), method_style("mine"));
/// ```
pub fn method_style(key: &str) -> Style {
    let known = known(&catalog_names());
    // FNV-1a: a few lines, and the same on every machine and in every version of Rust.
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let position = known.iter().position(|name| *name == key);
    Style::nth(position.unwrap_or(known.len() + (hash % known.len() as u64) as usize))
}

/// The position of a method among those of the table and the catalog; any other key comes after them.
pub fn method_order(key: &str) -> usize {
    let known = known(&catalog_names());
    known.iter().position(|name| *name == key).unwrap_or(known.len())
}

/// The names of all methods that the library has.
fn catalog_names() -> Vec<&'static str> {
    untuned::catalog().iter().map(|info| info.name).collect()
}

/// All methods in the order of their styles: those of the table, then the catalog's others.
fn known<'a>(catalog: &[&'a str]) -> Vec<&'a str> {
    let others = catalog.iter().copied().filter(|name| METHODS.iter().all(|m| m.0 != *name));
    METHODS.iter().map(|m| m.0).chain(others).collect()
}

/// The name of a method in legends and tables: that of the table, or else its key.
pub fn method_name(key: &str) -> &str {
    METHODS.iter().find(|m| m.0 == key).map_or(key, |m| m.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn known_methods_look_different_and_others_take_none_of_their_styles() {
        let known = known(&catalog_names());
        let styles: HashSet<Style> = known.iter().map(|key| method_style(key)).collect();
        assert_eq!(styles.len(), known.len());
        for other in ["mine", "clipped-gd-theorem-2", ""] {
            assert!(!styles.contains(&method_style(other)), "{other}");
        }
    }

    #[test]
    fn the_table_names_methods_of_the_catalog() {
        let catalog = catalog_names();
        for (key, name) in METHODS {
            assert!(catalog.contains(key), "{key}");
            assert_eq!(method_name(key), *name);
        }
        assert_eq!(method_name("mine"), "mine");
    }

    /// A new method of the library has the next style, and its key for a name.
    #[test]
    fn a_method_outside_of_the_table_comes_after_it() {
        let methods = known(&["new", "dog", "newer"]);
        assert_eq!(methods.len(), METHODS.len() + 2);
        assert_eq!(methods[METHODS.len()..], ["new", "newer"]);
    }
}
