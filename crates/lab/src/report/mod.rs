//! `report.html`: one file with claims, figures and tables, that needs no network.

use std::fmt::Write;

use crate::figure;

pub mod html;
pub mod networks;
mod results;
pub mod synthetic;

pub use results::{COMMAND, ReportError, Results, SYNTHETIC};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// A page of sections.
///
/// The script makes figures answer to the pointer, and a bar of switches, one for each method on the page. A program that
/// replaces the content of `<main>` (by [`Page::main`]) calls `window.untunedRefresh()` after it; what was switched off stays
/// off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Plain text.
    pub title: String,
    /// HTML below the title.
    pub lead: String,
    /// In their order.
    pub sections: Vec<Section>,
}

/// One section of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// What links name it by: letters, digits and dashes.
    pub id: String,
    /// Plain text.
    pub title: String,
    /// Its content, as the functions of [`html`] make it.
    pub html: String,
}

impl Section {
    /// A section.
    pub fn new(id: impl Into<String>, title: impl Into<String>, html: impl Into<String>) -> Section {
        Section { id: id.into(), title: title.into(), html: html.into() }
    }
}

impl Page {
    /// The whole file.
    pub fn html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\
             <title>{}</title>\
             <style>{}\n{STYLE}</style></head>\n<body><main>{}</main><script>{SCRIPT}</script></body></html>\n",
            html::escape(&self.title),
            figure::font_face_css(),
            self.main()
        )
    }

    /// The content of `<main>`: header, links to the sections, sections.
    pub fn main(&self) -> String {
        let title = html::escape(&self.title);
        let mut out = format!("<header><h1>{title}</h1><div class=lead>{}</div></header>", self.lead);
        out.push_str("<nav class=contents aria-label=Sections>");
        for section in &self.sections {
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "<a href=\"#{}\">{}</a> ",
                html::escape(&section.id),
                html::escape(&section.title)
            );
        }
        out.push_str("</nav>");
        for section in &self.sections {
            let _ = writeln!(
                out,
                "<section id=\"{}\"><h2>{}</h2>{}</section>",
                html::escape(&section.id),
                html::escape(&section.title),
                section.html
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_links_to_its_sections_and_escapes_its_titles() {
        let sections = vec![Section::new("one", "a < b", "<p>first</p>"), Section::new("two", "c", "")];
        let page = Page { title: "x & y".into(), lead: "<p>lead</p>".into(), sections };
        let html = page.html();
        assert!(html.contains("<title>x &amp; y</title>") && html.contains("<h1>x &amp; y</h1>"));
        assert!(html.contains("<a href=\"#one\">a &lt; b</a>") && html.contains("<section id=\"two\">"));
        let at = |part: &str| html.find(part).unwrap();
        assert!(at("<p>lead</p>") < at("#two") && at("#two") < at("<p>first</p>"));
        assert!(html.contains(&page.main()));
    }
}
