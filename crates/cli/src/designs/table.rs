//! The designs and their parameters for a terminal of at most 100 columns.

use std::fmt::Write;

use zpager_codec::CodecId;
use zpager_policy::{DesignId, PARAMETERS, Parameter};

use super::{unset, value};

/// Columns of a parameter's name, its default and the space behind them.
const NAME_COLUMNS: usize = 31;
const DEFAULT_COLUMNS: usize = 11;

/// All designs and all parameters.
pub(super) fn all() -> String {
    let mut text = String::new();
    line(&mut text, parts(DesignId::Default).map(|(part, ..)| part));
    for id in DesignId::ALL {
        line(&mut text, parts(id).map(|(_, name, _)| name));
    }
    text.push('\n');
    parameters(&mut text, PARAMETERS.iter());
    // Writing to a string does not fail.
    let _ = writeln!(text, "`zpager designs NAME` says what the parts of a design are.");
    text
}

/// One design, with what its parts are, and its parameters.
pub(super) fn one(id: DesignId) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {}", id.name(), id.source());
    for (part, name, meaning) in parts(id).into_iter().skip(1) {
        let separator = if meaning.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "  {part:11}{name}{separator}{meaning}");
    }
    text.push('\n');
    parameters(&mut text, Parameter::of(id));
    text
}

/// The design and its parts: which part, in a word, in a few.
pub(super) fn parts(id: DesignId) -> [(&'static str, &'static str, &'static str); 9] {
    let design = unset(id);
    let codec = match PARAMETERS[id.codec_key() as usize].may_be_auto {
        true => "auto",
        false => design.codec.name(),
    };
    [
        ("design", id.name(), ""),
        ("codec", codec, ""),
        ("pool", design.pool.name(), design.pool.meaning()),
        ("size", design.size.name(), design.size.meaning()),
        ("residents", design.residents.name(), design.residents.meaning()),
        ("leaving", design.leaving.name(), design.leaving.meaning()),
        ("store", design.layout.name(), design.layout.meaning()),
        ("reads", design.read_path.name(), design.read_path.meaning()),
        ("clean", design.clean_pages.name(), design.clean_pages.meaning()),
    ]
}

/// A row of the designs' table.
fn line(text: &mut String, words: [&str; 9]) {
    let [design, codec, pool, size, residents, leaving, store, reads, clean] = words;
    let _ = writeln!(
        text,
        "{design:9}{codec:7}{pool:14}{size:10}{residents:11}{leaving:14}{store:8}{reads:7}{clean}"
    );
}

fn parameters<'a>(text: &mut String, rows: impl Iterator<Item = &'a Parameter>) {
    let _ = writeln!(text, "{:NAME_COLUMNS$}{:DEFAULT_COLUMNS$}range", "parameter", "default");
    for row in rows {
        let default = value::display(row, row.default);
        let range = value::range(row);
        let _ = writeln!(text, "{:NAME_COLUMNS$}{default:DEFAULT_COLUMNS$}{range}", row.name);
        let _ = writeln!(text, "    {}", row.meaning);
        let _ = writeln!(text, "    {}", row.source);
    }
    let codecs = CodecId::ALL.map(CodecId::name).join(", ");
    let _ = writeln!(text, "\nCodecs are {codecs}.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_fits_a_terminal() {
        for text in DesignId::ALL.map(one).into_iter().chain([all()]) {
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }

    #[test]
    fn nothing_is_left_out() {
        let text = all();
        for parameter in &PARAMETERS {
            assert!(text.contains(parameter.name) && text.contains(parameter.source));
            assert!(one(parameter.design()).contains(parameter.name), "{}", parameter.name);
        }
    }
}
