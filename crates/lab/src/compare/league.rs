//! All methods on several networks in one table: how far each ends above the best.

use std::collections::BTreeMap;

use super::{Comparison, Drawn, Method};
use crate::figure::{Axis, Cell, Content, Figure, HeatMap, Panel, method_name};

fn value(cell: Cell) -> Option<f64> {
    if let Content::Value(value) = cell.content { Some(value) } else { None }
}

/// A method's place: its name, and its final test loss on each network relative to the lowest of all methods.
struct Row {
    name: String,
    cells: Vec<Cell>,
}

impl Row {
    fn values(&self) -> Vec<f64> {
        self.cells.iter().filter_map(|cell| value(*cell)).collect()
    }

    /// The geometric mean: none where a network was not run, and beyond any number where one diverged.
    fn mean(&self) -> Cell {
        let any = |content: Content| self.cells.iter().any(|cell| cell.content == content);
        if any(Content::NotRun) {
            return Cell::not_run();
        }
        if any(Content::Diverged) {
            return Cell::diverged();
        }
        let values = self.values();
        let logs: f64 = values.iter().map(|value| value.ln()).sum();
        Cell::value((logs / values.len() as f64).exp())
    }
}

/// For every scale at which several networks were trained, the methods that two of them have in common.
pub fn leagues(comparisons: &[Comparison]) -> Vec<Drawn> {
    let mut scales: BTreeMap<&str, Vec<&Comparison>> = BTreeMap::new();
    for comparison in comparisons {
        scales.entry(&comparison.scale).or_default().push(comparison);
    }
    scales.into_iter().filter_map(|(scale, comparisons)| league(scale, &comparisons)).collect()
}

/// The final test loss of a method that did not diverge.
fn loss(method: &Method<'_>) -> Option<f64> {
    method.test().map(|test| test.mean).filter(|mean| *mean > 0.0 && !method.diverged())
}

fn league(scale: &str, comparisons: &[&Comparison]) -> Option<Drawn> {
    // Of a network on which nothing has come out yet nothing can be said.
    let mut columns = Vec::new();
    for comparison in comparisons {
        let methods = comparison.main_horizon().map_or(Vec::new(), |horizon| comparison.methods(horizon));
        if let Some(lowest) = methods.iter().filter_map(loss).reduce(f64::min) {
            columns.push((*comparison, methods, lowest));
        }
    }
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (column, (_, methods, lowest)) in columns.iter().enumerate() {
        for method in methods {
            let name = method_name(&method.key).to_string();
            let tuned = if method.is_tuned() && !name.contains("tuned") { ", tuned" } else { "" };
            let cells = vec![Cell::not_run(); columns.len()];
            let row = Row { name: format!("{name}{tuned}"), cells };
            let row = rows.entry(method.key.clone()).or_insert(row);
            row.cells[column] = match loss(method) {
                Some(loss) => Cell::value(loss / lowest),
                None if method.diverged() => Cell::diverged(),
                None => Cell::not_run(),
            };
        }
    }
    let ran = |row: &Row| row.cells.iter().filter(|cell| cell.content != Content::NotRun).count();
    let mut rows: Vec<Row> = rows.into_values().filter(|row| ran(row) > 1).collect();
    if rows.len() < 3 {
        return None;
    }
    // Those with a mean first, by it; of the others those with more values.
    let place = |row: &Row| (value(row.mean()).unwrap_or(f64::INFINITY), row.values().len());
    rows.sort_by(|a, b| {
        let ((a_mean, a_count), (b_mean, b_count)) = (place(a), place(b));
        a_mean.total_cmp(&b_mean).then(b_count.cmp(&a_count))
    });
    let mut titles: Vec<String> = columns.iter().map(|(comparison, ..)| comparison.title().into()).collect();
    titles.push("mean".into());
    let cells = rows.iter().flat_map(|row| row.cells.iter().copied().chain([row.mean()]).collect::<Vec<_>>());
    let axis = Axis::log("final test loss, relative to the lowest").range(1.0, 2.0);
    let (cells, names) = (cells.collect(), rows.iter().map(|row| row.name.clone()).collect());
    let map = HeatMap { rows: names, columns: titles, cells, value: axis };
    let horizons: Vec<String> = columns
        .iter()
        .filter_map(|(c, ..)| Some(format!("{} T = {} ({})", c.title(), c.main_horizon()?, c.data)))
        .collect();
    Some(Drawn {
        file: format!("methods-{scale}"),
        caption: format!(
            "Every method on every network, scale {scale}: the final test loss (the mean over the seeds) relative to the lowest of the \
             column, and the geometric mean of the columns. {}. ✗: diverged; ▲: above the scale.",
            horizons.join("; ")
        ),
        figure: Figure::new([Panel::heat("network", "method", map)]),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use crate::compare::compare;
    use crate::train::Model;

    fn on(model: Model, rule: &str, loss: Option<f64>) -> crate::runs::Run {
        let mut run = run(rule, 1, loss.map(|loss| (loss, loss)));
        run.config.model = model;
        run
    }

    /// 1 and 2 on one network, 3 and 3 on the other: ratios 1, 2 and 1, 1; the mean of the second is √2. One diverges.
    #[test]
    fn relative_to_the_lowest() {
        let runs = vec![
            on(Model::Gpt, "dog", Some(2.0)),
            on(Model::Gpt, "adamw", Some(1.0)),
            on(Model::Gpt, "prodigy", Some(1.5)),
            on(Model::Gpt, "cocob", Some(1.5)),
            on(Model::Lstm, "dog", Some(3.0)),
            on(Model::Lstm, "adamw", Some(3.0)),
            on(Model::Lstm, "prodigy", None),
            // A network on which nothing came out does not count.
            on(Model::T5, "dog", None),
            on(Model::T5, "adamw", None),
        ];
        let drawn = leagues(&compare(runs));
        assert_eq!(drawn.len(), 1);
        let map = drawn[0].figure.panels[0].cells.as_ref().unwrap();
        assert_eq!(map.rows, ["AdamW", "DoG", "Prodigy"]);
        assert_eq!(map.columns, ["LSTM", "Nano-GPT", "mean"]);
        let value = |row: usize, column: usize| map.cells[3 * row + column].content;
        assert_eq!(
            [value(0, 0), value(0, 1), value(1, 0), value(1, 1)],
            [1.0, 1.0, 1.0, 2.0].map(Content::Value)
        );
        let Content::Value(mean) = value(1, 2) else { panic!("a mean") };
        assert!((mean - 2f64.sqrt()).abs() < 1e-15);
        assert_eq!((value(2, 0), value(2, 2)), (Content::Diverged, Content::Diverged));
    }

    #[test]
    fn a_mean_is_of_all_networks() {
        let networks = [Model::Gpt, Model::Lstm, Model::T5];
        let mut runs = Vec::new();
        for rule in ["dog", "adamw", "prodigy"] {
            runs.extend(networks.map(|model| on(model, rule, Some(2.0))));
        }
        runs.extend([on(Model::Gpt, "cocob", Some(2.0)), on(Model::Lstm, "cocob", Some(2.0))]);
        let drawn = leagues(&compare(runs));
        let map = drawn[0].figure.panels[0].cells.as_ref().unwrap();
        let row = map.rows.iter().position(|name| name == "COCOB").unwrap();
        assert_eq!(map.cells[4 * row + 3].content, Content::NotRun);
        assert_eq!(map.cells[3].content, Content::Value(1.0));
    }
}
