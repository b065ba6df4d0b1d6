//! `zpager designs`: what designs there are, what they are made of, and what can be set of them.
//!
//! Everything comes from the table of the policy crate ([`zpager_policy::PARAMETERS`]). Text and
//! values are turned into each other here ([`value`]), flags into settings ([`choice`]), and both
//! into a [`table`], [`json`] and the documentation.

pub(crate) mod choice;
#[cfg(test)]
mod docs;
mod json;
mod table;
mod value;

use std::path::Path;
use std::process::ExitCode;

use zpager_policy::{Design, DesignId, Settings};

use crate::args::DesignsArguments;
use crate::failure::Failure;
use crate::result_file;

/// Lists the designs and gives the exit status.
///
/// # Errors
/// There is no such design, or the file cannot be written.
pub(crate) fn main(arguments: DesignsArguments) -> Result<ExitCode, Failure> {
    let named = arguments.name.as_deref().map(|name| choice::design("designs", name));
    let named = named.transpose().map_err(Failure::arguments)?;
    arguments.json.as_deref().map_or(Ok(()), check_json)?;
    let shown: Vec<DesignId> = named.map_or(DesignId::ALL.to_vec(), |id| vec![id]);
    if let Some(file) = &arguments.json {
        result_file::write("--json", file, &json::render(&shown))?;
    }
    crate::print(&match named {
        Some(id) => table::one(id),
        None => table::all(),
    })
}

fn check_json(file: &Path) -> Result<(), Failure> {
    result_file::check("--json", file).map_err(Failure::arguments)
}

/// A design as it is where nothing was set. No part of it says how large the budget is.
fn unset(id: DesignId) -> Design {
    Design::new(&Settings::of(id), 0)
}
