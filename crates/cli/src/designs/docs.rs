//! The tables of `docs/designs.md` are those of the policy crate.

use zpager_policy::{DesignId, PARAMETERS};

use super::{table, value};

const DOCUMENT: &str = include_str!("../../../../docs/designs.md");

/// A row of a table in Markdown.
fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The designs in columns and their parts in rows.
fn designs() -> String {
    let names = DesignId::ALL.map(DesignId::name);
    let mut text = row(&[&["part"], &names[..]].concat());
    text += &row(&["---"; 1 + DesignId::ALL.len()]);
    let columns = DesignId::ALL.map(table::parts);
    for (at, (part, ..)) in columns[0].into_iter().enumerate().skip(1) {
        let cells = columns.map(|parts| parts[at].1);
        text += &row(&[&[part], &cells[..]].concat());
    }
    text
}

/// What the names of the parts mean, each once.
fn meanings() -> String {
    let mut text = row(&["part", "name", "what it is"]) + &row(&["---"; 3]);
    let mut told = Vec::new();
    let columns = DesignId::ALL.map(table::parts);
    for at in 2..columns[0].len() {
        for (part, name, meaning) in columns.map(|parts| parts[at]) {
            if !told.contains(&(part, name)) {
                told.push((part, name));
                text += &row(&[part, name, meaning]);
            }
        }
    }
    text
}

fn parameters() -> String {
    let mut text = row(&["parameter", "default", "range", "what it is", "source"]);
    text += &row(&["---"; 5]);
    for parameter in &PARAMETERS {
        let name = format!("`{}`", parameter.name);
        let default = value::display(parameter, parameter.default);
        let range = value::range(parameter);
        text += &row(&[&name, &default, &range, parameter.meaning, parameter.source]);
    }
    text
}

#[test]
fn the_documentation_has_the_tables_of_the_command() {
    for table in [designs(), meanings(), parameters()] {
        assert!(DOCUMENT.contains(&table), "docs/designs.md has to contain this:\n{table}");
    }
}
