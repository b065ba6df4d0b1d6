//! The designs and their parameters for programs; `docs/designs.md` documents every key.

use serde::Serialize;
use zpager_policy::{DesignId, Parameter};

use super::{table, value};

/// What `--json` writes.
#[derive(Debug, Serialize)]
struct Listing {
    designs: Vec<DesignRow>,
    parameters: Vec<ParameterRow>,
}

/// A design and the names of its parts.
#[derive(Debug, Serialize)]
struct DesignRow {
    design: &'static str,
    codec: &'static str,
    pool: &'static str,
    size: &'static str,
    residents: &'static str,
    leaving: &'static str,
    store: &'static str,
    reads: &'static str,
    clean: &'static str,
    source: &'static str,
}

/// A parameter; values are as `--set` takes them.
#[derive(Debug, Serialize)]
struct ParameterRow {
    name: &'static str,
    design: &'static str,
    default: String,
    range: String,
    /// All values where they are few.
    choices: Vec<String>,
    meaning: &'static str,
    source: &'static str,
}

/// These designs and their parameters.
pub(super) fn render(ids: &[DesignId]) -> String {
    let listing = Listing {
        designs: ids.iter().map(|id| design(*id)).collect(),
        parameters: ids.iter().flat_map(|id| Parameter::of(*id)).map(parameter).collect(),
    };
    let text = serde_json::to_string_pretty(&listing).expect("plain values");
    text + "\n"
}

fn design(id: DesignId) -> DesignRow {
    let [design, codec, pool, size, residents, leaving, store, reads, clean] =
        table::parts(id).map(|(_, name, _)| name);
    let source = id.source();
    DesignRow { design, codec, pool, size, residents, leaving, store, reads, clean, source }
}

fn parameter(row: &Parameter) -> ParameterRow {
    ParameterRow {
        name: row.name,
        design: row.design().name(),
        default: value::display(row, row.default),
        range: value::range(row),
        choices: value::choices(row),
        meaning: row.meaning,
        source: row.source,
    }
}
