//! Differences between bytes that lie some bytes apart: what numbers of a fixed width, samples and pixels leave few
//! values of, and nothing that repeats for a codec to find.
//!
//! Source: the filter Sub of PNG (RFC 2083, 6.3), which takes the width of a pixel for the distance and is told it. Here
//! it is found: by a sample of the page, as the one at which some differences are far more frequent than others. PNG
//! takes the least sum of differences (9.6), by which text would look smooth, too.
//!
//! Bad for: text, and what repeats as a whole; so it is done beside the page as it is ([`crate::zstd`]), and the shorter
//! of both is taken.

use crate::{PAGE_BYTES, Page};

/// The distances that are tried: of numbers of 8 to 64 bits, and of pixels of three of 8, 16 and 32.
const DISTANCES: [usize; 7] = [1, 2, 3, 4, 6, 8, 12];
/// The longest of them.
const DISTANCE_MAX: usize = DISTANCES[DISTANCES.len() - 1];
/// The sample: so many stretches of so many bytes, each of which begins so far within its part of the page.
const STRETCHES: usize = 8;
const STRETCH_BYTES: usize = 64;
const STRETCH_START: usize = 32;
/// Values of the sample have to be so much more alike as differences, in halves.
const ALIKE_HALVES: u32 = 3;

const _: () = assert!(DISTANCE_MAX <= STRETCH_START);

/// The distance at which the page's differences are few values, if there is one.
pub(crate) fn distance(page: &Page) -> Option<usize> {
    let plain = alike(page, |bytes, at| bytes[at]);
    let difference = |distance| {
        alike(page, move |bytes: &[u8; PAGE_BYTES], at| {
            bytes[at].wrapping_sub(bytes[at - distance])
        })
    };
    let tried = DISTANCES.map(|distance| (difference(distance), distance));
    let (best, distance) =
        tried.into_iter().fold((0, 0), |best, next| if next.0 > best.0 { next } else { best });
    (best * 2 > plain * ALIKE_HALVES).then_some(distance)
}

/// How alike the values of the sample are: for each the square of how often it occurs, together.
#[inline(always)]
fn alike(page: &Page, value: impl Fn(&[u8; PAGE_BYTES], usize) -> u8) -> u32 {
    let mut counts = [0u16; 256];
    let mut sum = 0;
    for stretch in 0..STRETCHES {
        let start = stretch * (PAGE_BYTES / STRETCHES) + STRETCH_START;
        for at in start..start + STRETCH_BYTES {
            let count = &mut counts[usize::from(value(&page.0, at))];
            // (n + 1)^2 - n^2
            sum += 2 * u32::from(*count) + 1;
            *count += 1;
        }
    }
    sum
}

/// Writes each byte less the one `distance` before it, at most [`DISTANCE_MAX`]; what is before the page counts as
/// zero.
pub(crate) fn differences(page: &Page, distance: usize, target: &mut [u8; PAGE_BYTES]) {
    target[..distance].copy_from_slice(&page.0[..distance]);
    let pairs = page.0[distance..].iter().zip(&page.0);
    for (target, (byte, before)) in target[distance..].iter_mut().zip(pairs) {
        *target = byte.wrapping_sub(*before);
    }
}

/// Makes of the [`differences`] of a page the page; false where the distance is none.
pub(crate) fn restore(page: &mut Page, distance: usize) -> bool {
    match distance {
        1 => sum_up::<1>(page),
        2 => sum_up::<2>(page),
        3 => sum_up::<3>(page),
        4 => sum_up::<4>(page),
        6 => sum_up::<6>(page),
        8 => sum_up::<8>(page),
        12 => sum_up::<12>(page),
        _ => return false,
    }
    true
}

fn sum_up<const DISTANCE: usize>(page: &mut Page) {
    // In registers: read from the page each would wait for the one before to be stored.
    let mut before = [0u8; DISTANCE];
    let (whole, rest) = page.0.as_chunks_mut::<DISTANCE>();
    for bytes in whole {
        for (byte, before) in bytes.iter_mut().zip(&mut before) {
            *before = before.wrapping_add(*byte);
            *byte = *before;
        }
    }
    for (byte, before) in rest.iter_mut().zip(before) {
        *byte = byte.wrapping_add(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a page by their place.
    fn page_of(byte: impl Fn(usize) -> u8) -> Page {
        let mut page = Page::ZERO;
        page.0.iter_mut().enumerate().for_each(|(at, target)| *target = byte(at));
        page
    }

    /// A number that looks random, for each place: the finaliser of MurmurHash3.
    fn noise(at: usize) -> usize {
        let mixed =
            |number: u32, shift: u32, factor: u32| (number ^ number >> shift).wrapping_mul(factor);
        let number = mixed(mixed(at as u32 + 1, 16, 0x85eb_ca6b), 13, 0xc2b2_ae35);
        (number ^ number >> 16) as usize
    }

    #[test]
    fn what_is_taken_apart_is_put_together() {
        let page = page_of(|at| noise(at) as u8);
        for distance in DISTANCES {
            let mut made = Page::ZERO;
            differences(&page, distance, &mut made.0);
            assert!(made.0 != page.0);
            assert!(restore(&mut made, distance));
            assert!(made.0 == page.0, "distance {distance}");
        }
        for distance in (0..=255).filter(|distance| !DISTANCES.contains(distance)) {
            let mut page = Page::ZERO;
            assert!(!restore(&mut page, distance), "distance {distance}");
        }
    }

    #[test]
    fn pixels_and_samples_are_known_by_their_width() {
        // Colours that change slowly, each in its own way.
        let pixels = page_of(|at| ((at / 3) * (at % 3 * 5 + 1) / 7 + noise(at) % 3) as u8);
        assert_eq!(distance(&pixels), Some(3));
        let numbers = page_of(|at| {
            (((at / 4) as u32 * 7919 + noise(at / 4) as u32 % 50) >> (at % 4 * 8)) as u8
        });
        assert_eq!(distance(&numbers), Some(4));
    }

    #[test]
    fn noise_and_text_have_none() {
        assert_eq!(distance(&page_of(|at| noise(at) as u8)), None);
        let text = b"It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in \
            want of a wife. However little known the feelings or views of such a man may be on his first entering a \
            neighbourhood, this truth is so well fixed in the minds of the surrounding families, that he is considered.";
        assert_eq!(distance(&page_of(|at| text[at % text.len()])), None);
    }
}
