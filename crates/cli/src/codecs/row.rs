//! The figures of one codec: a row of the table and of `--json`.

use serde::Serialize;
use zpager_codec::PAGE_BYTES;

use super::measure::{Measured, WORTH_BYTES};
use super::sample::Sample;

/// What a codec did to all pages; `docs/codecs-command.md` documents every key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    /// The codec's name.
    pub(super) codec: &'static str,
    /// Pages that it got.
    pub(super) pages: usize,
    /// Pages that were same-filled, which it did not get.
    pub(super) same_filled_pages: usize,
    /// Pages that did not shrink enough.
    pub(super) incompressible_pages: usize,
    /// Bytes of the pages.
    pub(super) original_bytes: usize,
    /// Bytes that are left of them, incompressible pages counted whole.
    pub(super) compressed_bytes: usize,
    /// Times a page; `None` without pages.
    #[serde(flatten)]
    pub(super) times: Times,
}

/// Nanoseconds a page: the mean, and what 99 of 100 pages do not exceed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Times {
    /// Mean time to compress.
    pub(super) compress_ns_mean: Option<f64>,
    /// The 99th percentile.
    pub(super) compress_ns_p99: Option<u64>,
    /// Mean time to restore.
    pub(super) decompress_ns_mean: Option<f64>,
    /// The 99th percentile.
    pub(super) decompress_ns_p99: Option<u64>,
}

impl Row {
    /// Sums up what was measured.
    pub(super) fn of(measured: &Measured, sample: &Sample) -> Self {
        let stored_bytes = &measured.stored_bytes;
        Row {
            codec: measured.codec.name(),
            pages: stored_bytes.len(),
            same_filled_pages: sample.same_filled_pages,
            incompressible_pages: stored_bytes.iter().filter(|bytes| **bytes > WORTH_BYTES).count(),
            original_bytes: stored_bytes.len() * PAGE_BYTES,
            compressed_bytes: stored_bytes.iter().sum(),
            times: Times {
                compress_ns_mean: mean(&measured.compress_ns),
                compress_ns_p99: percentile_99(&measured.compress_ns),
                decompress_ns_mean: mean(&measured.decompress_ns),
                decompress_ns_p99: percentile_99(&measured.decompress_ns),
            },
        }
    }

    /// Original bytes by compressed bytes; 1 without pages.
    pub(super) fn ratio(&self) -> f64 {
        self.original_bytes.max(1) as f64 / self.compressed_bytes.max(1) as f64
    }

    /// The share of the original bytes that is gone.
    pub(super) fn saved(&self) -> f64 {
        1.0 - 1.0 / self.ratio()
    }

    /// Mean time to compress a page and restore it.
    pub(super) fn round_trip_ns(&self) -> f64 {
        self.times.compress_ns_mean.unwrap_or(0.0) + self.times.decompress_ns_mean.unwrap_or(0.0)
    }
}

/// The mean to a tenth, which is finer than any clock.
fn mean(values_ns: &[u64]) -> Option<f64> {
    let sum = values_ns.iter().sum::<u64>() as f64;
    (!values_ns.is_empty()).then(|| (sum / values_ns.len() as f64 * 10.0).round() / 10.0)
}

/// The value that 99 of 100 do not exceed (nearest rank).
fn percentile_99(values_ns: &[u64]) -> Option<u64> {
    let mut sorted = values_ns.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * 99).div_ceil(100);
    rank.checked_sub(1).map(|index| sorted[index])
}

/// All rows as a JSON array.
pub(super) fn to_json(rows: &[Row]) -> String {
    let mut text = serde_json::to_string_pretty(rows).expect("rows are numbers and names");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_codec::CodecId;

    fn measured() -> Measured {
        Measured {
            codec: CodecId::Lz4,
            stored_bytes: vec![1024, PAGE_BYTES],
            compress_ns: vec![100, 301],
            decompress_ns: vec![50, 51],
        }
    }

    #[test]
    fn figures_are_sums_means_and_percentiles() {
        let row = Row::of(&measured(), &Sample { same_filled_pages: 5, ..Sample::default() });
        assert_eq!((row.pages, row.same_filled_pages, row.incompressible_pages), (2, 5, 1));
        assert_eq!((row.original_bytes, row.compressed_bytes), (8192, 5120));
        assert_eq!(row.ratio(), 1.6);
        assert_eq!(row.times.compress_ns_mean, Some(200.5));
        assert_eq!(row.times.compress_ns_p99, Some(301));
        assert_eq!(row.round_trip_ns(), 251.0);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let to = |last: u64| percentile_99(&(1..=last).rev().collect::<Vec<_>>());
        assert_eq!(
            (to(1), to(99), to(100), to(101), to(1000)),
            (Some(1), Some(99), Some(99), Some(100), Some(990))
        );
        assert_eq!(percentile_99(&[]), None);
    }

    #[test]
    fn the_keys_are_those_that_are_promised() {
        let rows = [Row::of(&measured(), &Sample::default())];
        let json: serde_json::Value = serde_json::from_str(&to_json(&rows)).expect("JSON");
        let row = json[0].as_object().expect("an object");
        let mut keys: Vec<&str> = row.keys().map(String::as_str).collect();
        keys.sort_unstable();
        let promised = [
            "codec",
            "compress_ns_mean",
            "compress_ns_p99",
            "compressed_bytes",
            "decompress_ns_mean",
            "decompress_ns_p99",
            "incompressible_pages",
            "original_bytes",
            "pages",
            "same_filled_pages",
        ];
        assert_eq!(keys, promised);
        assert!(
            row["codec"] == "lz4"
                && row.iter().all(|(key, value)| key == "codec" || value.is_number())
        );
    }

    #[test]
    fn without_pages_there_are_no_times() {
        let nothing = Measured {
            codec: CodecId::Lz4,
            stored_bytes: vec![],
            compress_ns: vec![],
            decompress_ns: vec![],
        };
        let row = Row::of(&nothing, &Sample::default());
        assert_eq!(
            (row.pages, row.ratio(), row.saved(), row.times),
            (0, 1.0, 0.0, Times::default())
        );
        assert!(to_json(&[row]).contains("\"compress_ns_p99\": null"));
    }
}
