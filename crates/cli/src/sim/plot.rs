//! Modelled time against memory as a picture, a line for each contender, as SVG.
//!
//! Both axes are logarithmic: sizes are usually doubled, and times differ by orders of magnitude.

use std::error::Error;

use plotters::coord::combinators::{BindKeyPoints, IntoLogRange};
use plotters::prelude::*;

use super::row::Row;
use crate::failure::{Failure, OrFail};
use crate::picture::COLOURS;
use crate::size;

/// Size of the picture, in pixels of the viewer's choosing.
const SIZE: (u32, u32) = (900, 560);

/// Longest title; the viewer's font decides how wide it is.
const TITLE_CHARS: usize = 100;

/// Shortest time that is told from none.
const SECONDS_MIN: f64 = 1e-6;

/// Draws a line for each contender.
///
/// # Errors
/// The drawing library refuses.
pub(super) fn draw(title: &str, rows: &[Row]) -> Result<String, Failure> {
    let mut svg = String::new();
    draw_into(&mut svg, title, rows).or_fail("drawing the plot")?;
    Ok(svg)
}

fn draw_into(svg: &mut String, title: &str, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut sizes: Vec<u64> = rows.iter().map(|row| row.memory_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (least, most) = (sizes[0] as f64, sizes[sizes.len() - 1] as f64);
    let times = || rows.iter().map(|row| row.modelled_seconds.max(SECONDS_MIN));
    let (low, high) = (times().fold(f64::MAX, f64::min), times().fold(SECONDS_MIN, f64::max));
    let ticks: Vec<f64> = sizes.iter().map(|bytes| *bytes as f64).collect();
    let title: String = title.chars().take(TITLE_CHARS).collect();
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .margin_right(30)
        .x_label_area_size(50)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (least / 1.1..most * 1.1).log_scale().with_key_points(ticks),
            (low / 1.5..high * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("memory")
        .y_desc("modelled time")
        .x_label_formatter(&|bytes| size::display(*bytes as u64))
        .y_label_formatter(&|seconds| time(*seconds))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 15))
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let lines = rows.chunk_by(|row, next| row.design == next.design);
    for (line, colour) in lines.zip(COLOURS.iter().cycle()) {
        let points = || {
            line.iter().map(|row| (row.memory_bytes as f64, row.modelled_seconds.max(SECONDS_MIN)))
        };
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points(), style))?
            .label(line[0].design)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 14))
        .draw()?;
    root.present()?;
    Ok(())
}

/// A time in the unit that suits it.
fn time(seconds: f64) -> String {
    match seconds {
        1.0.. => format!("{seconds} s"),
        1e-3..1.0 => format!("{} ms", round(seconds * 1e3)),
        _ => format!("{} us", round(seconds * 1e6)),
    }
}

/// Without the digits that a division leaves.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::super::config::Contender;
    use super::super::row::tests::row;
    use super::*;
    use zpager_policy::{DesignId, Settings};

    #[test]
    fn a_picture_has_a_line_and_a_name_for_each_contender() {
        let ours = Contender::Design(Settings::of(DesignId::Default));
        let rows: Vec<Row> = [Contender::Uncompressed, ours]
            .iter()
            .flat_map(|contender| {
                [64u64, 128, 256].map(|mib| row(contender, mib << 20, (1 << 40) / mib))
            })
            .collect();
        let svg = draw("sort & <more>", &rows).expect("drawn");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(
            svg.contains("none") && svg.contains("default") && svg.contains("128.0 MiB"),
            "{svg}"
        );
        assert!(svg.contains("sort &amp; &lt;more&gt;") && !svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 6);
    }

    #[test]
    fn a_single_point_is_drawn() {
        let svg = draw("one", &[row(&Contender::Uncompressed, 1 << 26, 0)]).expect("drawn");
        assert!(svg.matches("<circle").count() == 1 && !svg.contains("NaN"), "{svg}");
    }
}
