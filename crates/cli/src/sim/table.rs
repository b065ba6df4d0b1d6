//! The results for a terminal of 100 columns: the cost model, then a row for each contender and size.

use std::fmt::Write;

use zpager_sim::cost::COSTS;

use super::config::Configuration;
use super::row::Row;
use crate::size;

/// The trace in a line, the model and the table.
pub(super) fn render(summary: &str, configuration: &Configuration, rows: &[Row]) -> String {
    let mut text = format!("{summary}\n");
    model(&mut text, configuration, rows);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\n{:<9} {:>10} {:>9} {:>11} {:>9} {:>9} {:>7} {:>7} {:>9} {:>10}",
        "design",
        "memory",
        "resident",
        "compressed",
        "spilled",
        "out",
        "reads",
        "writes",
        "time",
        "of none"
    );
    for row in rows {
        line(&mut text, row, rows);
    }
    text
}

/// What things cost.
fn model(text: &mut String, configuration: &Configuration, rows: &[Row]) {
    let us = |ns: u64| ns as f64 / 1000.0;
    let _ = writeln!(
        text,
        "model, in us: fault {}; placing pages {} and {} a page; lifting them {} and {} a page; \
         letting one be written {}",
        us(COSTS.fault_ns),
        us(COSTS.place_call_ns),
        us(COSTS.place_page_ns),
        us(COSTS.lift_call_ns),
        us(COSTS.lift_page_ns),
        us(COSTS.protect_call_ns)
    );
    let mut told = Vec::new();
    for row in rows {
        let model = &row.model;
        if let (Some(codec), Some(compress_ns), Some(decompress_ns)) =
            (model.codec, model.compress_ns, model.decompress_ns)
            && !told.contains(&codec)
        {
            told.push(codec);
            let (compress, decompress) = (us(compress_ns), us(decompress_ns));
            let _ = writeln!(
                text,
                "{codec}: {compress} to compress a page, {decompress} to restore it"
            );
        }
    }
    let _ = writeln!(text, "{}", configuration.disk);
}

fn line(text: &mut String, row: &Row, rows: &[Row]) {
    let percent = |count: u64| 100.0 * count as f64 / row.references.max(1) as f64;
    let none =
        rows.iter().find(|other| other.design == "none" && other.memory_bytes == row.memory_bytes);
    let of_none = none.filter(|none| none.modelled_seconds > 0.0).map_or(String::new(), |none| {
        format!("{:.3}", row.modelled_seconds / none.modelled_seconds)
    });
    let _ = writeln!(
        text,
        "{:<9} {:>10} {:>7.2} % {:>11} {:>9} {:>9} {:>7} {:>7} {:>9} {:>10}",
        row.design,
        size::display(row.memory_bytes),
        percent(row.resident_hits),
        row.compressed_hits,
        row.spilled_faults,
        row.swapped_out_pages,
        row.store_reads,
        row.store_writes,
        time(row.modelled_seconds),
        of_none
    );
}

/// Seconds for a column, in ms as long as there is room.
fn time(seconds: f64) -> String {
    const WHOLE_FROM_SECONDS: f64 = 1000.0;
    let digits = if seconds < WHOLE_FROM_SECONDS { 3 } else { 0 };
    format!("{seconds:.digits$} s")
}
