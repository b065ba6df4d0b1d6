//! What pictures share.

use plotters::style::RGBColor;

/// Colours of which the first eight differ also for the colour-blind (after Okabe and Ito 2008).
pub(crate) const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(140, 86, 75),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
    RGBColor(110, 60, 190),
    RGBColor(190, 0, 60),
    RGBColor(120, 130, 0),
];
