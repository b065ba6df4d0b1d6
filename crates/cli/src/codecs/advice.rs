//! Which codec to take, by a rule that anybody can follow in the table.
//!
//! What does not fit stays compressed in RAM: bytes saved count as long as they are many, and then
//! time does, because every fault waits for it. So: of the codecs that save at least
//! [`SAVED_SHARE`] of what the best one saves, the one with the shortest time to compress a page and
//! restore it. Much goes to disk: each page that still fits RAM spares a read of about
//! [`DISK_READ_NS`], beside which a codec's time is small. So: of the codecs that take less than
//! that, the one that leaves the fewest bytes.

use super::row::Row;
use super::table::time;

/// How much of the best codec's saving is enough.
const SAVED_SHARE: f64 = 0.75;

/// What a random read of a block takes on a solid-state disk, about.
const DISK_READ_NS: f64 = 100_000.0;

/// Below this saving no codec is worth its time: 5 % of the bytes.
const SAVED_MIN: f64 = 0.05;

/// The codecs for the two cases; `None` where nothing saves enough.
fn choose(rows: &[Row]) -> Option<(&Row, &Row)> {
    let best = rows.iter().max_by(|a, b| a.saved().total_cmp(&b.saved()))?;
    if best.saved() < SAVED_MIN {
        return None;
    }
    let enough = rows.iter().filter(|row| row.saved() >= SAVED_SHARE * best.saved());
    let in_ram = enough.min_by(|a, b| a.round_trip_ns().total_cmp(&b.round_trip_ns()))?;
    let quick = rows.iter().filter(|row| row.round_trip_ns() < DISK_READ_NS);
    let on_disk = quick.min_by_key(|row| row.compressed_bytes).unwrap_or(in_ram);
    Some((in_ram, on_disk))
}

/// The recommendation, as one sentence with a line's end.
pub(super) fn sentence(rows: &[Row]) -> String {
    if rows.iter().all(|row| row.pages == 0) {
        return "Any codec will do, since every page is same-filled and none reaches it.\n".into();
    }
    let Some((in_ram, on_disk)) = choose(rows) else {
        return format!(
            "Take none of these: no codec saves {:.0} % of the bytes, so compression gains nothing here.\n",
            SAVED_MIN * 100.0
        );
    };
    let reason = format!(
        "the quickest ({} to compress a page and restore it) of those that save at least {:.0} % of what the best one saves",
        time(in_ram.round_trip_ns()),
        SAVED_SHARE * 100.0
    );
    let limit = time(DISK_READ_NS);
    match in_ram.codec == on_disk.codec {
        true => format!(
            "Take {}: it is {reason}, and leaves the fewest bytes of those under {limit}, so it is right \
             for RAM and for disk.\n",
            in_ram.codec
        ),
        false => format!(
            "Take {} where what does not fit stays in RAM: it is {reason}; take {} where much goes to \
             disk: it leaves the fewest bytes (ratio {:.2}) of those under {limit}, a read from disk.\n",
            in_ram.codec,
            on_disk.codec,
            on_disk.ratio()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codecs::row::Times;

    fn row(codec: &'static str, compressed_bytes: usize, compress_us: f64) -> Row {
        Row {
            codec,
            pages: 10,
            same_filled_pages: 0,
            incompressible_pages: 0,
            original_bytes: 40960,
            compressed_bytes,
            times: Times { compress_ns_mean: Some(compress_us * 1000.0), ..Times::default() },
        }
    }

    fn chosen(rows: &[Row]) -> Option<(&'static str, &'static str)> {
        choose(rows).map(|(in_ram, on_disk)| (in_ram.codec, on_disk.codec))
    }

    #[test]
    fn time_counts_among_those_that_save_enough() {
        // The best saves 30960 bytes; three quarters of that are 23220, so 17740 are left.
        let rows =
            [row("small", 10_000, 20.0), row("quick", 17_740, 2.0), row("copy", 40_960, 0.1)];
        assert_eq!(chosen(&rows), Some(("quick", "small")));
        let rows = [row("small", 10_000, 20.0), row("quick", 17_760, 2.0)];
        assert_eq!(chosen(&rows), Some(("small", "small")));
    }

    #[test]
    fn on_disk_bytes_count_among_those_quicker_than_it() {
        let rows =
            [row("slow", 9_000, 100.1), row("small", 10_000, 99.0), row("quick", 12_000, 2.0)];
        assert_eq!(chosen(&rows), Some(("quick", "small")));
        assert_eq!(chosen(&rows[..1]), Some(("slow", "slow")));
    }

    #[test]
    fn where_nothing_shrinks_none_is_taken() {
        let rows = [row("a", 39_000, 2.0), row("copy", 40_960, 0.1)];
        assert_eq!(chosen(&rows), None);
        assert!(sentence(&rows).contains("no codec saves 5 %"));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn the_advice_is_one_sentence() {
        let two = [row("small", 10_000, 20.0), row("quick", 17_000, 2.0)];
        let none = [Row { pages: 0, ..row("a", 0, 0.0) }];
        for (rows, said) in [
            (&two[..], "Take quick where"),
            (&two[..1], "Take small: it is the quickest (20.0 us to compress"),
            (&none[..], "same-filled"),
        ] {
            let text = sentence(rows);
            assert!(text.contains(said) && text.ends_with(".\n"), "{text}");
            assert_eq!((text.lines().count(), text.matches(". ").count()), (1, 0), "{text}");
        }
    }
}
