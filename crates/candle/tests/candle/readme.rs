//! The table of the README has every method, and says of it what is so.

use candle_core::{DType, Device, Var};
use untuned::catalog;
use untuned_candle::{Config, Untuned};

#[test]
fn the_table_of_methods() {
    let text = include_str!("../../README.md");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let mut names = 0;
    for row in &rows {
        for name in row[1].split(", ").map(|name| name.trim_matches('`')) {
            names += 1;
            let needed = match name {
                "gd" => ":lr=0.1",
                "clipped-gd" => ":lr=0.1,threshold=1",
                "polyak" => ":f_star=0",
                _ => "",
            };
            let config = Config::new(&format!("{name}{needed}"), 10).unwrap();
            let needs = config.needs_loss();
            let var = Var::zeros(1, DType::F32, &Device::Cpu).unwrap();
            let copies = Untuned::new(vec![var], config).unwrap().kept_bytes() / 4;
            let yes = |is: bool| if is { "yes" } else { "" };
            assert_eq!(row[2..5], [yes(needs), yes(!needs), &copies.to_string()], "{name}");
        }
    }
    assert_eq!(names, catalog().len());
}
