//! Counting values in buckets that are evenly spaced between the logarithms of the smallest and the
//! largest (hp, section 4), but for one of a thousand values at either end of each set, which would
//! leave most of the scale empty and are counted in the buckets at the ends.

/// By how much the scale is opened to both sides where all values are equal.
const SINGLE_VALUE_MARGIN: f64 = 1.05;

/// One of so many values is an outlier, at either end.
const OUTLIERS_OF: usize = 1000;

/// Buckets of equal width on a logarithmic scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    buckets: usize,
}

impl Scale {
    /// Buckets for sets of positive values; `None` of nothing.
    pub(super) fn spanning(sets: impl Iterator<Item = Vec<f64>>, buckets: usize) -> Option<Self> {
        let ends = sets.filter_map(ends_of);
        let (low, high) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let margin = if low < high { 1.0 } else { SINGLE_VALUE_MARGIN };
        Some(Scale { low: low / margin, high: high * margin, buckets })
    }

    /// The two ends.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The bucket of a value; one outside belongs to the first or the last.
    pub(super) fn bucket(&self, value: f64) -> usize {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        ((share * self.buckets as f64) as usize).min(self.buckets - 1)
    }

    /// The lower end of a bucket; that of the one behind the last is the scale's end.
    fn edge(&self, bucket: usize) -> f64 {
        self.low * (self.high / self.low).powf(bucket as f64 / self.buckets as f64)
    }

    /// How many values are in each bucket.
    pub(super) fn count(&self, values: impl Iterator<Item = f64>) -> Vec<u32> {
        let mut counts = vec![0; self.buckets];
        values.for_each(|value| counts[self.bucket(value)] += 1);
        counts
    }

    /// The middle of a bucket.
    pub(super) fn middle(&self, bucket: usize) -> f64 {
        (self.edge(bucket) * self.edge(bucket + 1)).sqrt()
    }

    /// Round numbers within the scale: 1, 2 and 5 by powers of ten.
    pub(super) fn round_numbers(&self) -> Vec<f64> {
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let numbers =
            powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
        numbers.filter(|number| (self.low..=self.high).contains(number)).collect()
    }
}

/// The ends of a set without its outliers.
fn ends_of(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let outliers = values.len() / OUTLIERS_OF;
    Some((*values.get(outliers)?, *values.iter().rev().nth(outliers)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64], buckets: usize) -> Scale {
        Scale::spanning([values.to_vec()].into_iter(), buckets).expect("values")
    }

    #[test]
    fn buckets_are_even_in_logarithms() {
        let scale = scale(&[1000.0, 1.0, 30.0], 3);
        assert_eq!(scale.ends(), (1.0, 1000.0));
        let buckets = [1.0, 9.9, 10.1, 99.0, 101.0, 1000.0].map(|value| scale.bucket(value));
        assert_eq!(buckets, [0, 0, 1, 1, 2, 2]);
        assert!((scale.edge(1) - 10.0).abs() < 1e-9 && (scale.edge(3) - 1000.0).abs() < 1e-9);
        assert_eq!((scale.bucket(0.1), scale.bucket(9e9)), (0, 2));
    }

    #[test]
    fn every_value_is_counted_once() {
        let values = [1.0, 1.5, 2.0, 64.0, 64.0];
        let counts = scale(&values, 10).count(values.into_iter());
        assert_eq!((counts.len(), counts.iter().sum::<u32>()), (10, 5));
        assert_eq!((counts[0], counts[9]), (2, 2));
    }

    #[test]
    fn one_value_has_a_scale_too() {
        let scale = scale(&[7.0, 7.0], 4);
        assert_eq!(scale.count([7.0, 7.0].into_iter()).iter().sum::<u32>(), 2);
        assert!(scale.edge(0) < 7.0 && scale.edge(4) > 7.0);
        assert_eq!(Scale::spanning([vec![]].into_iter(), 4), None);
    }

    #[test]
    fn the_scale_is_that_of_all_sets_without_outliers() {
        let mut many = vec![5.0; 998];
        many.extend([0.001, 900.0]);
        let sets = [many, vec![2.0, 7.0]];
        let scale = Scale::spanning(sets.clone().into_iter(), 4).expect("values");
        assert_eq!(scale.ends(), (2.0, 7.0));
        assert_eq!(scale.count(sets[0].iter().copied()), [1, 0, 998, 1]);
    }

    #[test]
    fn round_numbers_lie_inside() {
        assert_eq!(scale(&[0.9, 12.0], 4).round_numbers(), [1.0, 2.0, 5.0, 10.0]);
        assert!(scale(&[30.0, 40.0], 4).round_numbers().is_empty());
    }
}
