//! What a device holds and has done, for people and for Prometheus.

use std::fmt::Write as _;

use zpager_device::Status;

use crate::size;

/// A line a figure: its value, its name, what it is.
pub(super) fn render(status: &Status) -> String {
    let mut text = String::new();
    let mut line = |shown: &str, name, meaning| {
        let _ = writeln!(text, "{shown:>12}  {name:<24}{meaning}");
    };
    line(&status.codec, "codec", "what compresses the blocks");
    for (name, _, meaning, value) in status.rows() {
        let shown = if name.ends_with("_bytes") { size::display(value) } else { value.to_string() };
        line(&shown, name, meaning);
    }
    text
}

/// Prometheus' text format, in which a name is a label of a figure that is always 1.
pub(super) fn to_prometheus(status: &Status) -> String {
    let codec = &status.codec;
    let mut text = status.to_prometheus();
    let _ = write!(
        text,
        "# HELP zpager_device_codec_info what compresses the blocks\n\
         # TYPE zpager_device_codec_info gauge\n\
         zpager_device_codec_info{{codec=\"{codec}\"}} 1\n"
    );
    text
}
