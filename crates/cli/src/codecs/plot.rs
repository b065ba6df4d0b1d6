//! The histograms as a picture: ratio, compression time and decompression time one below the other, a
//! line for each codec (hp, figures 5 to 7), as SVG.
//!
//! Counts are drawn as shares of the codec's pages. A codec that does nothing has nearly all its pages
//! in one bucket; what is above [`HIGHEST_SHARE_MAX`] is cut off, so that it does not press the others
//! flat.

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, IntoLogRange};
use plotters::prelude::*;

use super::histogram::Scale;
use super::measure::Measured;
use super::table::round_time;
use crate::failure::{Failure, OrFail};
use crate::picture::COLOURS;

/// Size of the picture, in pixels of the viewer's choosing.
const SIZE: (u32, u32) = (900, 1080);

/// Height of the title above the legend.
const TITLE_HEIGHT: u32 = 40;

/// Height and width of an entry of the legend, and how many fit a row.
const ENTRY_SIZE: (i32, i32) = (105, 24);
const ENTRIES_A_ROW: usize = 8;

/// Where the title, the legend and the panels begin on the left.
const MARGIN: i32 = 30;

/// Buckets of a histogram (hp, section 4).
const BUCKETS: usize = 100;

/// Longest title; the viewer's font decides how wide it is.
const TITLE_CHARS: usize = 100;

/// The share of the pages, in percent, at which a panel ends if a bucket has more.
const HIGHEST_SHARE_MAX: f64 = 30.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type Drawn = Result<(), Box<dyn Error>>;

/// Draws all histograms below `title`.
///
/// # Errors
/// The drawing library refuses.
pub(super) fn draw(title: &str, results: &[Measured]) -> Result<String, Failure> {
    let mut svg = String::new();
    draw_into(&mut svg, title, results).or_fail("drawing the histograms")?;
    Ok(svg)
}

fn draw_into(svg: &mut String, title: &str, results: &[Measured]) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let legend_rows = results.len().div_ceil(ENTRIES_A_ROW) as i32;
    let (head, body) = root.split_vertically(TITLE_HEIGHT as i32 + legend_rows * ENTRY_SIZE.1);
    let shown: String = title.chars().take(TITLE_CHARS).collect();
    head.draw(&Text::new(shown, (MARGIN, 14), ("sans-serif", 16)))?;
    results.iter().enumerate().try_for_each(|(number, result)| entry(&head, number, result))?;
    let panels = body.split_evenly((3, 1));
    let ratio = |value: &f64| format!("{value}");
    panel(&panels[0], "ratio: original by compressed bytes", results, &ratio, |result| {
        Box::new(result.ratios())
    })?;
    let time = |ns: &f64| round_time(*ns);
    panel(&panels[1], "time to compress a page", results, &time, |result| {
        Box::new(result.compress_ns.iter().map(|ns| *ns as f64))
    })?;
    panel(&panels[2], "time to decompress a page", results, &time, |result| {
        Box::new(result.decompress_ns.iter().map(|ns| *ns as f64))
    })?;
    root.present()?;
    Ok(())
}

/// The line of the codec with this number: where the colours are used up, thin ones begin again.
fn style(number: usize) -> ShapeStyle {
    let width = if number < COLOURS.len() { 2 } else { 1 };
    COLOURS[number % COLOURS.len()].stroke_width(width)
}

/// One codec's line and name.
fn entry(head: &Area<'_>, number: usize, result: &Measured) -> Drawn {
    let (column, row) = (number % ENTRIES_A_ROW, number / ENTRIES_A_ROW);
    let x = MARGIN + column as i32 * ENTRY_SIZE.0;
    let y = TITLE_HEIGHT as i32 + row as i32 * ENTRY_SIZE.1;
    head.draw(&PathElement::new([(x, y + 7), (x + 24, y + 7)], style(number)))?;
    head.draw(&Text::new(result.codec.name(), (x + 30, y), ("sans-serif", 14)))?;
    Ok(())
}

/// The histograms of one quantity; an empty panel where no page reached a codec.
fn panel(
    area: &Area<'_>,
    title: &str,
    results: &[Measured],
    label: &dyn Fn(&f64) -> String,
    values: impl Fn(&Measured) -> Box<dyn Iterator<Item = f64> + '_>,
) -> Drawn {
    let sets = results.iter().map(|result| values(result).collect());
    let Some(scale) = Scale::spanning(sets, BUCKETS) else {
        return Ok(());
    };
    let lines: Vec<Vec<f64>> =
        results.iter().map(|result| shares(&scale.count(values(result)))).collect();
    let highest = lines.iter().flatten().copied().fold(1.0, f64::max).min(HIGHEST_SHARE_MAX);
    let (low, high) = scale.ends();
    let across = (low..high).log_scale().with_key_points(scale.round_numbers());
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(MARGIN)
        .x_label_area_size(50)
        .y_label_area_size(65)
        .build_cartesian_2d(across, 0.0..highest)?;
    chart
        .configure_mesh()
        .x_desc(title)
        .y_desc("share of the pages")
        .x_label_formatter(label)
        .y_label_formatter(&|share| format!("{share} %"))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 15))
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (number, line) in lines.iter().enumerate() {
        let points = line.iter().enumerate();
        let points = points.map(|(bucket, share)| (scale.middle(bucket), share.min(highest)));
        chart.draw_series(LineSeries::new(points, style(number)))?;
    }
    Ok(())
}

/// The share of each bucket, in percent.
fn shares(counts: &[u32]) -> Vec<f64> {
    let pages: u32 = counts.iter().sum();
    counts.iter().map(|count| 100.0 * f64::from(*count) / f64::from(pages.max(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_codec::CodecId;

    fn results(pages: u64) -> Vec<Measured> {
        let result = |codec| Measured {
            codec,
            stored_bytes: (1..=pages).map(|at| 100 * at as usize).collect(),
            compress_ns: (1..=pages).map(|at| 1000 * at).collect(),
            decompress_ns: (1..=pages).map(|at| 100 * at).collect(),
        };
        CodecId::ALL.map(result).into()
    }

    #[test]
    fn a_picture_has_a_line_and_a_name_for_each_codec() {
        let svg = draw("a <file> & more", &results(40)).expect("drawn");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for id in CodecId::ALL {
            assert!(svg.contains(id.name()), "{id:?}");
        }
        // Besides the lines of the axes and of the legend.
        assert!(svg.matches("<polyline").count() >= 3 * CodecId::ALL.len());
        assert!(svg.contains("a &lt;file&gt; &amp; more") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_drawn_as_such() {
        for pages in [0, 1] {
            let svg = draw("few", &results(pages)).expect("drawn");
            assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn shares_are_of_all_pages() {
        assert_eq!(shares(&[3, 0, 1]), [75.0, 0.0, 25.0]);
        assert_eq!(shares(&[0, 0]), [0.0, 0.0]);
    }
}
