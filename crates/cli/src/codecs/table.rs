//! The results for a terminal of 80 columns: a table, then a line of bars for each codec and each of
//! the three quantities (hp, figures 5 to 7).
//!
//! The bars of a line are relative to its highest, and the lines of a quantity share one
//! logarithmic scale.

use std::fmt::Write;

use super::histogram::Scale;
use super::measure::Measured;
use super::row::Row;

/// Columns of the codec's name and of the space behind it.
const NAME_COLUMNS: usize = 10;

/// Buckets of a histogram, a column each.
const BUCKETS: usize = 80 - NAME_COLUMNS;

/// Bars of one to eight eighths.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The table and the histograms; nothing where no page reached a codec.
pub(super) fn render(rows: &[Row], results: &[Measured]) -> String {
    let mut text = String::new();
    if rows.iter().all(|row| row.pages == 0) {
        return text;
    }
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\n{:<NAME_COLUMNS$}{:>6}{:>15}{:>15}{:>9}{:>16}{:>9}",
        "codec", "ratio", "incompressible", "compress mean", "p99", "decompress mean", "p99"
    );
    rows.iter().for_each(|row| line(&mut text, row));
    let ratio = |value: f64| format!("{value}");
    histograms(&mut text, "ratio: original by compressed bytes", results, ratio, |result| {
        Box::new(result.ratios())
    });
    histograms(&mut text, "time to compress a page", results, round_time, |result| {
        Box::new(result.compress_ns.iter().map(|ns| *ns as f64))
    });
    histograms(&mut text, "time to decompress a page", results, round_time, |result| {
        Box::new(result.decompress_ns.iter().map(|ns| *ns as f64))
    });
    text.push('\n');
    text
}

fn line(text: &mut String, row: &Row) {
    let incompressible = 100.0 * row.incompressible_pages as f64 / row.pages as f64;
    let mean = |ns: Option<f64>| ns.map(time).unwrap_or_default();
    let p99 = |ns: Option<u64>| mean(ns.map(|ns| ns as f64));
    let times = &row.times;
    let _ = writeln!(
        text,
        "{:<NAME_COLUMNS$}{:>6.2}{:>13.1} %{:>15}{:>9}{:>16}{:>9}",
        row.codec,
        row.ratio(),
        incompressible,
        mean(times.compress_ns_mean),
        p99(times.compress_ns_p99),
        mean(times.decompress_ns_mean),
        p99(times.decompress_ns_p99),
    );
}

/// One line of bars for each codec, and the scale below.
fn histograms(
    text: &mut String,
    title: &str,
    results: &[Measured],
    label: impl Fn(f64) -> String,
    values: impl Fn(&Measured) -> Box<dyn Iterator<Item = f64> + '_>,
) {
    let Some(scale) =
        Scale::spanning(results.iter().map(|result| values(result).collect()), BUCKETS)
    else {
        return;
    };
    let _ = writeln!(text, "\n{title}");
    for result in results {
        let bars = bars(&scale.count(values(result)));
        let _ = writeln!(text, "{:<NAME_COLUMNS$}{}", result.codec.name(), bars.trim_end());
    }
    let _ = writeln!(text, "{:NAME_COLUMNS$}{}", "", axis(&scale, label));
}

/// A column a count, as high as it is beside the highest; every count above zero is seen.
fn bars(counts: &[u32]) -> String {
    let highest = counts.iter().copied().max().unwrap_or(0).max(1) as usize;
    let bar = |count: &u32| match *count as usize {
        0 => ' ',
        count => BARS[(count * BARS.len()).div_ceil(highest) - 1],
    };
    counts.iter().map(bar).collect()
}

/// Round numbers below the columns in which they lie, as far as there is room.
fn axis(scale: &Scale, label: impl Fn(f64) -> String) -> String {
    let mut line = String::new();
    for number in scale.round_numbers() {
        let label = format!("|{}", label(number));
        let column = scale.bucket(number);
        let is_first = line.is_empty();
        if (is_first || column > line.len()) && column + label.len() <= BUCKETS {
            let _ = write!(line, "{:1$}{label}", "", column - line.len());
        }
    }
    line
}

/// A time for people: `85 ns`, `1.25 us`, `12.5 us`, `125 us`.
pub(super) fn time(ns: f64) -> String {
    match ns {
        _ if ns < 999.5 => format!("{ns:.0} ns"),
        _ if ns < 9_995.0 => format!("{:.2} us", ns / 1000.0),
        _ if ns < 99_950.0 => format!("{:.1} us", ns / 1000.0),
        _ => format!("{:.0} us", ns / 1000.0),
    }
}

/// A round time, for the numbers of a scale: `500 ns`, `2 us`, `1 ms`.
pub(super) fn round_time(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns} ns"),
        _ if ns < 1e6 => format!("{} us", ns / 1e3),
        _ => format!("{} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codecs::sample::Sample;
    use zpager_codec::CodecId;

    fn results() -> Vec<Measured> {
        let spread = |from: u64| (0..500).map(|at| from + at * at).collect::<Vec<_>>();
        let result = |codec| Measured {
            codec,
            stored_bytes: (0..500).map(|at| 40 + at * 8).collect(),
            compress_ns: spread(1500),
            decompress_ns: spread(80),
        };
        CodecId::ALL.map(result).into()
    }

    #[test]
    fn everything_fits_80_columns() {
        let results = results();
        let sample = Sample::default();
        let rows: Vec<Row> = results.iter().map(|result| Row::of(result, &sample)).collect();
        let text = render(&rows, &results);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for id in CodecId::ALL {
            let lines = text.lines().filter(|line| line.split(' ').next() == Some(id.name()));
            assert_eq!(lines.count(), 4, "{text}");
        }
        assert!(text.contains("|100 ns") && text.contains("|5"), "{text}");
    }

    #[test]
    fn bars_are_relative_to_the_highest() {
        assert_eq!(bars(&[0, 1, 50, 100]), " ▁▄█");
        assert_eq!(bars(&[0, 0]), "  ");
        assert_eq!(bars(&[1_000_000_000]), "█");
    }

    #[test]
    fn times_read_well() {
        assert_eq!([85.4, 999.4, 999.6].map(time), ["85 ns", "999 ns", "1.00 us"]);
        assert_eq!([9_994.0, 12_345.0, 100_000.0].map(time), ["9.99 us", "12.3 us", "100 us"]);
        assert_eq!([50.0, 2e3, 5e5, 1e6].map(round_time), ["50 ns", "2 us", "500 us", "1 ms"]);
    }
}
