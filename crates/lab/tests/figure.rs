//! Figures from the outside: what comes out of awkward data is valid, honest and of the promised size.

use resvg::usvg::roxmltree::{Document, Node};
use untuned_lab::figure::{Axis, Cell, Figure, HeatMap, Legend, Marks, Panel, Series, Style, font_face_css};

fn series(nth: usize, ys: &[f64]) -> Series {
    let points: Vec<(f64, f64)> = ys.iter().enumerate().map(|(i, &y)| (i as f64, y)).collect();
    Series::new(format!("s{nth}"), Style::nth(nth), points)
}

fn log_panel() -> Panel {
    Panel::new(Axis::linear("t"), Axis::log("f(x) − f*"))
}

fn with_class<'a>(doc: &'a Document, class: &str) -> Vec<Node<'a, 'a>> {
    doc.descendants().filter(|n| n.attribute("class") == Some(class)).collect()
}

#[test]
fn awkward_values_give_numbers_only() {
    let awkward =
        [1e5, 0.0, -3.0, f64::INFINITY, 2.0, f64::NAN, 1.0, f64::NEG_INFINITY, 1e308, 5e-324, f64::MIN];
    let band: Vec<(f64, f64)> = awkward.iter().map(|&y| (y - 1.0, y * 2.0)).collect();
    let xs = [f64::NAN, 0.0, -1.0, f64::INFINITY, 1.0, 1e-320, 3.0, 2.0, f64::MAX, f64::NEG_INFINITY, 7.0];
    let crossed: Vec<(f64, f64)> = xs.iter().copied().zip(awkward).collect();
    let mut panels = Vec::new();
    for x in [
        Axis::linear("x"),
        Axis::log("x"),
        Axis::log("x").range(0.0, f64::NAN),
        Axis::linear("x").range(2.0, 5.0),
    ] {
        for y in [
            Axis::linear("y"),
            Axis::log("y"),
            Axis::log("y").range(1e-3, 1e3),
            Axis::linear("").range(-1e300, 1e300),
        ] {
            panels.push(
                Panel::new(x.clone(), y)
                    .series(series(0, &awkward).band(band.clone()))
                    .series(Series::new("crossed", Style::nth(1), crossed.clone()).marks(Marks::Every(1)))
                    .series(series(2, &[f64::NAN; 3]))
                    .series(series(3, &[]).band([(1.0, 2.0)])),
            );
        }
    }
    panels.push(log_panel());
    panels.push(log_panel().series(series(0, &[f64::INFINITY; 4])));
    panels.push(log_panel().series(series(0, &[0.0; 4])));
    for legend in [Legend::Bottom, Legend::Inside, Legend::None] {
        let figure = Figure::new(panels.clone()).legend(legend);
        for svg in [figure.svg(), figure.svg_outlined().unwrap()] {
            let lower = svg.to_lowercase();
            assert!(!lower.contains("nan") && !lower.contains("inf"), "{legend:?}");
            Document::parse(&svg).unwrap();
        }
        figure.png(0.5).unwrap();
    }
}

#[test]
fn zero_and_divergence_are_marked_and_explained() {
    let zero = log_panel().series(series(0, &[10.0, 1.0, 0.0, 0.0, 0.0]));
    let svg = Figure::new([zero]).svg();
    let doc = Document::parse(&svg).unwrap();
    assert_eq!(with_class(&doc, "below").len(), 2, "one in the plot and one in the legend");
    assert_eq!(with_class(&doc, "leaves").len(), 0);
    assert!(svg.contains("0 or less, which a log axis cannot show"));
    let data = with_class(&doc, "series")[0].attribute("data-points").unwrap();
    assert_eq!(data, "0,10 1,1 2,0 3,0 4,0");

    let diverging =
        log_panel().series(series(0, &[10.0, 9.0, 8.0])).series(series(1, &[10.0, 1e99, f64::INFINITY]));
    let svg = Figure::new([diverging]).svg();
    let doc = Document::parse(&svg).unwrap();
    assert_eq!((with_class(&doc, "below").len(), with_class(&doc, "leaves").len()), (0, 2));

    let calm = Figure::new([log_panel().series(series(0, &[10.0, 1.0]))]).svg();
    assert_eq!(with_class(&Document::parse(&calm).unwrap(), "signs").len(), 0);
}

#[test]
fn a_script_can_invert_the_mapping() {
    let svg =
        Figure::new([log_panel().series(series(0, &[100.0, 10.0, 1.0, 1e-3]).marks(Marks::None))]).svg();
    let doc = Document::parse(&svg).unwrap();
    let panel = with_class(&doc, "panel")[0];
    let number = |name: &str| panel.attribute(name).unwrap().parse::<f64>().unwrap();
    assert_eq!(
        (panel.attribute("data-xscale"), panel.attribute("data-yscale")),
        (Some("linear"), Some("log10"))
    );
    let line = with_class(&doc, "line")[0].attribute("d").unwrap();
    let drawn: Vec<(f64, f64)> = line[1..]
        .split('L')
        .map(|p| p.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).unwrap())
        .collect();
    for ((px, py), (x, y)) in drawn.into_iter().zip([(0.0, 100.0), (1.0, 10.0), (2.0, 1.0), (3.0, 1e-3)]) {
        let u = (px - number("data-left")) / number("data-width");
        let v = 1.0 - (py - number("data-top")) / number("data-height");
        let (y0, y1) = (number("data-y0").log10(), number("data-y1").log10());
        assert!((number("data-x0") + u * (number("data-x1") - number("data-x0")) - x).abs() < 1e-3);
        assert!((y0 + v * (y1 - y0) - f64::log10(y)).abs() < 1e-3);
    }
}

#[test]
fn nothing_is_drawn_outside_the_plot() {
    let ys: Vec<f64> = (0..500).map(|i| f64::from(i).sin() * 10f64.powi(i % 40)).collect();
    for y in [Axis::linear("y").range(-3.0, 3.0), Axis::log("y").range(1e-3, 1e3)] {
        let svg =
            Figure::new([Panel::new(Axis::linear("x").range(10.5, 99.5), y).series(series(0, &ys))]).svg();
        let doc = Document::parse(&svg).unwrap();
        let panel = with_class(&doc, "panel")[0];
        let number = |name: &str| panel.attribute(name).unwrap().parse::<f64>().unwrap();
        let (left, top) = (number("data-left"), number("data-top"));
        let (right, bottom) = (left + number("data-width"), top + number("data-height"));
        let line = with_class(&doc, "line")[0].attribute("d").unwrap();
        for point in line.split(['M', 'L']).filter(|p| !p.is_empty()) {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!(x > left - 0.02 && x < right + 0.02 && y > top - 0.02 && y < bottom + 0.02, "{point}");
        }
    }
}

#[test]
fn a_million_points_make_a_small_file() {
    let points: Vec<(f64, f64)> =
        (0..1_000_000).map(|i| (f64::from(i), (f64::from(i) * 0.37).sin())).collect();
    let svg = Figure::new([Panel::new(Axis::linear("x"), Axis::linear("y")).series(Series::new(
        "noise",
        Style::nth(0),
        points,
    ))])
    .svg();
    assert!(svg.len() < 40_000, "{} bytes", svg.len());
}

#[test]
fn names_are_escaped() {
    let name = "a<&\"'>\u{1}b\n√";
    let panel =
        log_panel().title(name).note(name).series(Series::new(name, Style::nth(0), [(0.0, 1.0), (1.0, 2.0)]));
    let figure = Figure::new([panel]).title(name);
    let svg = figure.svg();
    let doc = Document::parse(&svg).unwrap();
    assert_eq!(with_class(&doc, "series")[0].attribute("data-name"), Some("a<&\"'>b √"));
    assert_eq!(doc.root_element().attribute("aria-label"), Some("a<&\"'>b √"));
    let texts = doc.descendants().filter(|n| n.has_tag_name("text") && n.text() == Some("a<&\"'>b √"));
    assert_eq!(texts.count(), 4, "title, panel title, note, legend");
    figure.svg_outlined().unwrap();
}

#[test]
fn outlines_replace_text() {
    let figure = Figure::new([log_panel().title("L_{1} = 1000").series(series(0, &[1.0, 0.1]))]);
    assert!(figure.svg().contains("<text") && figure.svg().contains("currentColor"));
    let outlined = figure.svg_outlined().unwrap();
    assert!(!outlined.contains("<text") && !outlined.contains("currentColor") && !outlined.contains("var("));
    assert!(outlined.len() > 5_000, "the outlines are there");
}

#[test]
fn png_has_the_size_of_the_svg() {
    let figure = Figure::new([log_panel().series(series(0, &[1.0, 0.1]))]).width(300.0);
    let svg = figure.svg();
    let doc = Document::parse(&svg).unwrap();
    let side = |name| doc.root_element().attribute(name).unwrap().parse::<f64>().unwrap();
    let png = figure.png(2.0).unwrap();
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    let at = |i: usize| f64::from(u32::from_be_bytes(png[i..i + 4].try_into().unwrap()));
    assert_eq!((at(16), at(20)), (2.0 * side("width"), 2.0 * side("height")));
    assert_eq!(side("width"), 300.0);
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e9, 1e-9] {
        assert!(figure.png(scale).is_err(), "{scale}");
    }
}

#[test]
fn a_shared_legend_names_a_method_once() {
    let panel = || log_panel().series(series(0, &[1.0, 0.1])).series(series(1, &[1.0, 0.5]));
    let entries = |legend| {
        let svg = Figure::new([panel(), panel(), panel()]).legend(legend).svg();
        with_class(&Document::parse(&svg).unwrap(), "legend-entry").len()
    };
    assert_eq!([Legend::Bottom, Legend::Inside, Legend::None].map(entries), [2, 6, 0]);
}

#[test]
fn figures_without_panels_or_room_are_still_figures() {
    for figure in [
        Figure::new([]),
        Figure::new([]).title("nothing"),
        Figure::new([log_panel()]).width(0.0).columns(0),
        Figure::new([log_panel(), log_panel()]).width(f64::NAN).columns(99),
    ] {
        figure.png(1.0).unwrap();
    }
}

#[test]
fn the_page_gets_both_weights() {
    let css = font_face_css();
    assert_eq!(css.matches("@font-face").count(), 2);
    assert!(css.contains("font-weight:600") && css.len() < 135_000, "{}", css.len());
}

fn cloud(count: u32) -> Series {
    let points: Vec<(f64, f64)> =
        (0..count).map(|i| ((f64::from(i) * 0.7).sin(), (f64::from(i) * 0.31).cos())).collect();
    Series::new("cloud", Style::nth(0), points).scatter()
}

#[test]
fn a_scatter_has_points_and_no_line() {
    let axes = || Panel::new(Axis::linear("x"), Axis::linear("y"));
    let svg = Figure::new([axes().series(cloud(100_000))]).svg();
    let doc = Document::parse(&svg).unwrap();
    assert!(with_class(&doc, "line").is_empty());
    let circles = doc.descendants().filter(|n| n.has_tag_name("circle")).count();
    assert!((300..1100).contains(&circles), "{circles}");
    assert!(svg.len() < 90_000, "{} bytes", svg.len());
    assert!(svg.contains("one point for all that share its place"));

    let few = Figure::new([axes().series(cloud(5))]).svg();
    assert!(!few.contains("one point for all"));
    let doc = Document::parse(&few).unwrap();
    assert!(with_class(&doc, "line").is_empty() && with_class(&doc, "dots").is_empty());
    assert_eq!(with_class(&doc, "marks").len(), 2, "in the plot and in the legend");

    let cut = Panel::new(Axis::linear("x"), Axis::linear("y").range(-0.5, 2.0)).series(cloud(100));
    assert!(Figure::new([cut]).svg().contains("leaves the plot"), "points outside the range are said");
}

#[test]
fn a_level_spans_the_panel_and_does_not_move_its_range() {
    let panel = Panel::new(Axis::log("lr"), Axis::linear("loss"))
        .series(Series::new("s", Style::nth(0), [(1e-3, 3.0), (1.0, 2.0)]))
        .series(Series::level("constant", Style::nth(1), 2.5).band([(2.4, 2.6)]));
    let svg = Figure::new([panel]).svg();
    let doc = Document::parse(&svg).unwrap();
    let level = with_class(&doc, "series")[1];
    assert_eq!((level.attribute("data-shape"), level.attribute("data-hidden")), (Some("level"), None));
    let attribute =
        |name: &str| with_class(&doc, "panel")[0].attribute(name).unwrap().parse::<f64>().unwrap();
    assert!(attribute("data-x0") > 5e-4 && attribute("data-x1") < 2.0);
    let line =
        level.children().find(|n| n.attribute("class") == Some("line")).unwrap().attribute("d").unwrap();
    let xs: Vec<f64> = line.split(['M', 'L']).filter_map(|p| p.split(',').next()?.parse().ok()).collect();
    assert!((xs[0] - attribute("data-left")).abs() < 0.02);
    assert!((xs[xs.len() - 1] - attribute("data-left") - attribute("data-width")).abs() < 0.02);
    assert!(level.children().any(|n| n.attribute("class") == Some("band")));
}

#[test]
fn a_heat_map_prints_its_values_and_explains_only_the_signs_that_occur() {
    let map = |cells: Vec<Cell>| HeatMap {
        rows: vec!["0.1".into(), "0.01".into()],
        columns: vec!["1".into(), "∞".into()],
        cells,
        value: Axis::linear("test loss").range(1.0, 5.0),
    };
    let figure = |cells| Figure::new([Panel::heat("threshold", "learning rate", map(cells)).title("LSTM")]);
    let all = figure(vec![Cell::value(1.5).selected(true), Cell::value(7.0), Cell::diverged().paper(true)]);
    let svg = all.svg();
    let doc = Document::parse(&svg).unwrap();
    let cells: Vec<_> = with_class(&doc, "cell")
        .iter()
        .map(|c| ["data-row", "data-column", "data-value"].map(|name| c.attribute(name).unwrap()))
        .collect();
    let wanted = [
        ["0.1", "1", "1.5000"],
        ["0.1", "∞", "7.0000, above the scale"],
        ["0.01", "1", "diverged"],
        ["0.01", "∞", "not run"],
    ];
    assert_eq!(cells, wanted);
    let texts: Vec<&str> = with_class(&doc, "cell")
        .iter()
        .filter_map(|c| c.descendants().find_map(|n| if n.has_tag_name("text") { n.text() } else { None }))
        .collect();
    assert_eq!(texts, ["1.50", "▲7.00", "✗", "–"]);
    for word in
        ["above the scale", "diverged", "not run", "selected", "the paper's choice", "test loss, low to high"]
    {
        assert!(svg.contains(&format!(">{word}<")), "{word}");
    }
    let calm = figure(vec![Cell::value(2.0); 4]).svg();
    for word in ["above the scale", "diverged", "not run", "selected", "the paper's choice"] {
        assert!(!calm.contains(word), "{word}");
    }
    // The lower value is the darker one, in the file too.
    let fill = |cell: &Node| {
        cell.descendants().find(|n| n.has_tag_name("rect")).unwrap().attribute("fill").unwrap()[1..3]
            .to_string()
    };
    let cells = with_class(&doc, "cell");
    assert!(fill(&cells[0]) < fill(&cells[1]));
    assert!(all.svg_outlined().unwrap().contains(&format!("#{}", fill(&cells[0]))));
    all.png(1.0).unwrap();
    for empty in [map(Vec::new()), HeatMap { rows: Vec::new(), columns: Vec::new(), ..map(Vec::new()) }] {
        Figure::new([Panel::heat("", "", empty)]).png(1.0).unwrap();
    }
}

#[test]
fn heat_maps_get_the_room_that_their_numbers_need() {
    let panel = |columns: usize| {
        let names = (0..columns).map(|c| c.to_string()).collect();
        let map =
            HeatMap { rows: vec!["r".into()], columns: names, cells: Vec::new(), value: Axis::linear("") };
        Panel::heat("c", "r", map)
    };
    let rows = |columns: usize| Figure::new((0..3).map(|_| panel(columns))).columns;
    assert_eq!([3, 8, 11, 40].map(rows), [3, 2, 1, 1]);
}

#[test]
fn labelled_points_have_their_names_beside_them() {
    let panel = Panel::new(Axis::linear("cost"), Axis::linear("loss"))
        .series(Series::method("gd", [(1.0, 3.0)]).scatter().labelled())
        .series(Series::method("dog", [(1.0, 3.1)]).scatter().labelled());
    let svg = Figure::new([panel]).legend(Legend::None).svg();
    let doc = Document::parse(&svg).unwrap();
    for (series, name) in with_class(&doc, "series").iter().zip(["SGD", "DoG"]) {
        let label = series.children().find(|n| n.has_tag_name("text")).unwrap();
        assert_eq!((label.text(), series.attribute("data-method")), (Some(name), Some(name)));
    }
}

#[test]
fn the_other_scale_needs_positive_values() {
    let of = |ys: &[f64]| Figure::new([log_panel().series(series(0, ys))]).other_scale();
    let other = of(&[3.0, f64::INFINITY, 1.0]).unwrap();
    assert_eq!(other.panels[0].y, Axis::linear("f(x) − f*"));
    assert_eq!(other.other_scale().unwrap().panels[0].y, Axis::log("f(x) − f*"));
    assert!(of(&[3.0, f64::NAN, 1.0]).is_some());
    assert_eq!(of(&[3.0, 0.0]), None);
    assert_eq!(of(&[]), None);
}
