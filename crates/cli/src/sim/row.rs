//! What one contender came to at one memory size: a row of the table and of `--json`.

use serde::Serialize;
use zpager_codec::CodecId;
use zpager_sim::Outcome;
use zpager_sim::cost::{COSTS, Disk, codec_costs};

use super::config::Contender;

/// A row; `docs/simulator.md` documents every key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    /// The contender.
    pub(super) design: &'static str,
    /// Resident pages, pool and metadata together.
    pub(super) memory_bytes: u64,
    /// References in the trace.
    pub(super) references: u64,
    /// See [`Outcome`].
    pub(super) resident_hits: u64,
    pub(super) compressed_hits: u64,
    pub(super) spilled_faults: u64,
    pub(super) fresh_faults: u64,
    pub(super) store_reads: u64,
    pub(super) store_read_bytes: u64,
    pub(super) store_writes: u64,
    pub(super) store_written_bytes: u64,
    pub(super) swapped_out_pages: u64,
    pub(super) swapped_in_pages: u64,
    pub(super) same_filled_pages: u64,
    pub(super) incompressible_pages: u64,
    pub(super) peak_bytes: u64,
    /// Modelled time, and what it went to.
    pub(super) modelled_seconds: f64,
    pub(super) moving_seconds: f64,
    pub(super) coding_seconds: f64,
    pub(super) store_seconds: f64,
    /// What things cost.
    pub(super) model: Model,
}

/// The cost model of a row, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Model {
    pub(super) codec: Option<&'static str>,
    pub(super) compress_ns: Option<u64>,
    pub(super) decompress_ns: Option<u64>,
    pub(super) fault_ns: u64,
    pub(super) place_call_ns: u64,
    pub(super) place_page_ns: u64,
    pub(super) lift_call_ns: u64,
    pub(super) lift_page_ns: u64,
    pub(super) protect_call_ns: u64,
    pub(super) disk: &'static str,
    pub(super) disk_read_ns: u64,
    pub(super) disk_write_ns: u64,
    pub(super) disk_next_ns: u64,
    pub(super) disk_bytes_per_second: u64,
}

impl Row {
    /// Puts an outcome into words and units.
    pub(super) fn of(
        contender: &Contender,
        codec: Option<CodecId>,
        disk: Disk,
        memory_bytes: u64,
        outcome: &Outcome,
    ) -> Self {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let ledger = outcome.ledger;
        Row {
            design: contender.name(),
            memory_bytes,
            references: outcome.references,
            resident_hits: outcome.resident_hits,
            compressed_hits: outcome.compressed_hits,
            spilled_faults: outcome.spilled_faults,
            fresh_faults: outcome.fresh_faults,
            store_reads: outcome.store_reads,
            store_read_bytes: outcome.store_read_bytes,
            store_writes: outcome.store_writes,
            store_written_bytes: outcome.store_written_bytes,
            swapped_out_pages: outcome.swapped_out_pages,
            swapped_in_pages: outcome.swapped_in_pages,
            same_filled_pages: outcome.same_filled_pages,
            incompressible_pages: outcome.incompressible_pages,
            peak_bytes: outcome.peak_bytes,
            modelled_seconds: seconds(ledger.total_ns()),
            moving_seconds: seconds(ledger.moving_ns),
            coding_seconds: seconds(ledger.coding_ns),
            store_seconds: seconds(ledger.store_ns),
            model: Model::of(codec, disk),
        }
    }
}

impl Model {
    fn of(codec: Option<CodecId>, disk: Disk) -> Self {
        let costs = codec.map(codec_costs);
        Model {
            codec: codec.map(CodecId::name),
            compress_ns: costs.map(|costs| costs.compress_ns),
            decompress_ns: costs.map(|costs| costs.decompress_ns),
            fault_ns: COSTS.fault_ns,
            place_call_ns: COSTS.place_call_ns,
            place_page_ns: COSTS.place_page_ns,
            lift_call_ns: COSTS.lift_call_ns,
            lift_page_ns: COSTS.lift_page_ns,
            protect_call_ns: COSTS.protect_call_ns,
            disk: disk.name,
            disk_read_ns: disk.read_ns,
            disk_write_ns: disk.write_ns,
            disk_next_ns: disk.next_ns,
            disk_bytes_per_second: disk.bytes_per_second,
        }
    }
}

/// All rows as a JSON array.
pub(super) fn to_json(rows: &[Row]) -> String {
    let mut text = serde_json::to_string_pretty(rows).expect("rows are numbers and names");
    text.push('\n');
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use zpager_sim::cost::{DISKS, Ledger};

    /// A row whose store took `store_ns`.
    pub(in super::super) fn row(contender: &Contender, memory_bytes: u64, store_ns: u64) -> Row {
        let outcome = Outcome {
            references: 1000,
            resident_hits: 800,
            ledger: Ledger { moving_ns: 1_000_000, coding_ns: 500_000, store_ns },
            ..Outcome::default()
        };
        Row::of(contender, Some(CodecId::Lz4), DISKS[0], memory_bytes, &outcome)
    }

    #[test]
    fn the_keys_are_those_that_are_promised() {
        let rows = [row(&Contender::Uncompressed, 1 << 26, 2_500_000)];
        let json: serde_json::Value = serde_json::from_str(&to_json(&rows)).expect("JSON");
        let row = json[0].as_object().expect("an object");
        for key in [
            "memory_bytes",
            "references",
            "resident_hits",
            "compressed_hits",
            "store_reads",
            "store_writes",
            "swapped_out_pages",
            "swapped_in_pages",
            "modelled_seconds",
        ] {
            assert!(row[key].is_number(), "{key}");
        }
        assert_eq!(row["design"], "none");
        assert_eq!(row["modelled_seconds"], 0.004);
        assert_eq!((&row["model"]["codec"], &row["model"]["disk"]), (&"lz4".into(), &"hdd".into()));
    }
}
