//! What a device holds and has done, for people.

use std::fmt::Write as _;

use zpager_device::Status;

use crate::size;

/// A line a figure: its value, its name, what it is.
pub(super) fn render(status: &Status) -> String {
    let mut text =
        format!("{:>12}  {:<24}{}\n", status.codec, "codec", "what compresses the blocks");
    for (name, _, meaning, value) in status.rows() {
        let shown = if name.ends_with("_bytes") { size::display(value) } else { value.to_string() };
        let _ = writeln!(text, "{shown:>12}  {name:<24}{meaning}");
    }
    text
}
