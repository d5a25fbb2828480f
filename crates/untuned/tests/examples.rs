//! The examples run, and what they assert holds.

#[path = "../examples/own_loop.rs"]
mod own_loop;
#[path = "../examples/own_optimizer.rs"]
mod own_optimizer;
#[path = "../examples/own_rule.rs"]
mod own_rule;

#[test]
fn own_loop() -> Result<(), Box<dyn std::error::Error>> {
    own_loop::main()
}

#[test]
fn own_rule() -> Result<(), Box<dyn std::error::Error>> {
    own_rule::main()
}

#[test]
fn own_optimizer() -> Result<(), Box<dyn std::error::Error>> {
    own_optimizer::main()
}

/// Its walk-throughs are the examples themselves.
#[test]
fn contributing_shows_the_examples() {
    let guide = include_str!("../../../CONTRIBUTING.md");
    let examples = [include_str!("../examples/own_rule.rs"), include_str!("../examples/own_optimizer.rs")];
    for example in examples {
        let code = example.split_once("\nuse ").expect("imports").1.replace("pub(crate) fn main", "fn main");
        assert!(guide.contains(&format!("```rust\nuse {code}```")), "{code}");
    }
}
