//! What a device holds and has done, for people and for Prometheus.

use std::fmt::Write as _;

use zpager_device::Status;

use crate::size;

/// A line a figure: its value, its name, what it is.
pub(super) fn render(status: &Status) -> String {
    let has_store = if status.has_store { "yes" } else { "no" };
    let words = [
        (status.codec.as_str(), "codec", "what compresses the blocks"),
        (has_store, "has_store", "blocks leave for a store when the memory is full"),
    ];
    let mut text = String::new();
    for (shown, name, meaning) in words {
        let _ = writeln!(text, "{shown:>12}  {name:<24}{meaning}");
    }
    for (name, _, meaning, value) in status.rows() {
        let shown = if name.ends_with("_bytes") { size::display(value) } else { value.to_string() };
        let _ = writeln!(text, "{shown:>12}  {name:<24}{meaning}");
    }
    text
}

/// Prometheus' text format, in which a name is a label of a figure that is always 1.
pub(super) fn to_prometheus(status: &Status) -> String {
    let (codec, has_store) = (&status.codec, u64::from(status.has_store));
    let mut text = status.to_prometheus();
    let _ = write!(
        text,
        "# HELP zpager_device_codec_info what compresses the blocks\n\
         # TYPE zpager_device_codec_info gauge\n\
         zpager_device_codec_info{{codec=\"{codec}\"}} 1\n\
         # HELP zpager_device_has_store blocks leave for a store when the memory is full\n\
         # TYPE zpager_device_has_store gauge\n\
         zpager_device_has_store {has_store}\n"
    );
    text
}
