//! Which of two ways of the same work is faster at present.
//!
//! Both are used: the faster one mostly, the other one in a while, and the faster one is measured right before
//! that, so that as much is known of both, and of the same times. What a piece of work took counts for less the
//! more there was of it since.
//!
//! Source: ours. Bad for: work whose pieces differ much; the other way is then judged by a few of them.

/// One in so many times the way is tried that is not the faster one.
const TRY_EVERY: u32 = 32;
/// A mean takes in this part of every new value.
const MEAN_PART: u64 = 8;
/// A value counts as at most so many times the mean: who measures may have been off the processor.
const OUTLIER_TIMES: u64 = 4;
/// Fractions of a tick that means are kept in.
const FRACTIONS: u64 = 16;

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alternative {
    /// The one that is taken to be faster as long as nothing is known.
    Plain,
    /// The other one.
    Other,
}

/// What both took.
#[derive(Debug, Clone, Copy)]
pub struct Faster {
    /// The other way takes at most so many eighths of what the plain one does, to be gone.
    eighths_max: u64,
    /// Means of what a piece took, in fractions of a tick; zero before the first.
    plain: u64,
    other: u64,
    since_trial: u32,
}

impl Faster {
    /// Of ways of which neither costs anything but its time.
    pub const ALIKE: Faster = Faster::with(8);

    /// Of ways of which the other one costs something besides, and has to be faster by an eighth.
    pub const OTHER_COSTS_MORE: Faster = Faster::with(7);

    const fn with(eighths_max: u64) -> Self {
        Faster { eighths_max, plain: 0, other: 0, since_trial: 0 }
    }

    /// The way to go this time.
    pub fn choose(&mut self) -> Alternative {
        let is_other_best = self.other != 0 && self.other * 8 < self.plain * self.eighths_max;
        let (best, worse) = if is_other_best {
            (Alternative::Other, Alternative::Plain)
        } else {
            (Alternative::Plain, Alternative::Other)
        };
        self.since_trial += 1;
        if self.since_trial < TRY_EVERY {
            return best;
        }
        self.since_trial = 0;
        worse
    }

    /// Notes that so many pieces of work took so many ticks one way, which was the last to be chosen.
    pub fn note(&mut self, way: Alternative, pieces: usize, ticks: u64) {
        if ![0, TRY_EVERY - 1].contains(&self.since_trial) {
            return;
        }
        let mean = match way {
            Alternative::Plain => &mut self.plain,
            Alternative::Other => &mut self.other,
        };
        let Some(value) = (ticks * FRACTIONS).checked_div(pieces as u64) else { return };
        *mean = match *mean {
            0 => value,
            _ => (*mean * (MEAN_PART - 1) + value.min(*mean * OUTLIER_TIMES)).div_ceil(MEAN_PART),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes so many times the way that is chosen, at so many ticks a piece; gives how often the other one.
    fn go(faster: &mut Faster, times: u32, plain: u64, other: u64) -> u32 {
        let mut count = 0;
        for _ in 0..times {
            let way = faster.choose();
            let ticks = if way == Alternative::Plain { plain } else { other };
            faster.note(way, 32, ticks * 32);
            count += u32::from(way == Alternative::Other);
        }
        count
    }

    #[test]
    fn the_faster_way_is_gone_and_the_other_one_tried() {
        let mut faster = Faster::ALIKE;
        assert_eq!(go(&mut faster, 320, 1000, 2000), 10);
        // What was slow becomes fast, and slow again.
        let turned = go(&mut faster, 3200, 3000, 1000);
        assert!((2900..3200).contains(&turned), "{turned}");
        let back = go(&mut faster, 3200, 3000, 6000);
        assert!((100..300).contains(&back), "{back}");
    }

    #[test]
    fn what_costs_more_has_to_be_faster_by_an_eighth() {
        let mut faster = Faster::OTHER_COSTS_MORE;
        assert_eq!(go(&mut faster, 320, 1000, 900), 10);
        let mut alike = Faster::ALIKE;
        assert_eq!(go(&mut alike, 320, 1000, 900), 320 - 31 - 9);
        let turned = go(&mut faster, 3200, 1000, 800);
        assert!((2600..3200).contains(&turned), "{turned}");
    }

    #[test]
    fn time_off_the_processor_does_not_decide() {
        let mut faster = Faster::ALIKE;
        go(&mut faster, 320, 1000, 1500);
        faster.note(Alternative::Plain, 32, 1 << 40);
        let others = go(&mut faster, 32, 1000, 1500);
        assert!(others <= 8, "{others}");
        faster.note(Alternative::Plain, 0, 5);
        faster.note(Alternative::Other, 32, 0);
        go(&mut faster, 64, 1000, 1500);
    }
}
