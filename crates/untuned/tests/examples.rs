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
