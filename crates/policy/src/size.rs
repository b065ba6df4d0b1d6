//! How large the pool is, by the rule that was chosen.

use crate::adaptive::Adaptive;
use crate::cleaning::Cleaning;
use crate::fixed::Fixed;
use crate::limit::Limit;
use crate::shares::{Shares, Step};
use crate::split::Split;

/// A rule and what it remembers.
#[derive(Debug, Clone, Copy)]
pub enum Size {
    /// See [`Split`].
    Split(Split),
    /// See [`Cleaning`].
    Cleaning(Cleaning),
    /// See [`Fixed`].
    Fixed(Fixed),
    /// See [`Adaptive`].
    Adaptive(Adaptive),
    /// See [`Limit`].
    Limit(Limit),
}

impl Size {
    /// The next step of a process that holds `shares` and has to give. `should_clean` tells whether
    /// so many percent of the pool's buffers are full; only [`Cleaning`] asks.
    pub fn next_step(&mut self, shares: &Shares, should_clean: impl FnOnce(usize) -> bool) -> Step {
        match self {
            Self::Split(split) => split.next_step(shares),
            Self::Cleaning(cleaning) => cleaning.next_step(shares, should_clean),
            Self::Fixed(fixed) => fixed.next_step(shares),
            Self::Adaptive(adaptive) => adaptive.next_step(shares),
            Self::Limit(limit) => limit.next_step(shares),
        }
    }

    /// What the pool may hold now, where there is a limit of its own.
    pub fn limit_bytes(&self) -> Option<usize> {
        match self {
            Self::Split(_) | Self::Adaptive(_) => None,
            Self::Cleaning(cleaning) => Some(cleaning.size.size_bytes()),
            Self::Fixed(fixed) => Some(fixed.size_bytes()),
            Self::Limit(limit) => Some(limit.max_bytes()),
        }
    }

    /// What the pool may grow to of what a process holds, in bytes, where pages can be written before
    /// it does.
    pub fn pool_share_bytes(&self, shares: &Shares) -> Option<usize> {
        match self {
            Self::Split(split) => Some(split.pool_share_bytes(shares)),
            Self::Cleaning(_) | Self::Fixed(_) | Self::Adaptive(_) | Self::Limit(_) => None,
        }
    }

    /// Whether it goes by what was measured, and nobody set it.
    pub fn is_measured(&self) -> bool {
        matches!(self, Self::Split(split) if !split.is_set())
    }

    /// What nobody but a pool that holds `pool_bytes` may use, and it does not use either.
    pub fn unused_bytes(&self, pool_bytes: usize) -> usize {
        match self {
            Self::Cleaning(cleaning) => cleaning.size.unused_bytes(pool_bytes),
            Self::Fixed(fixed) => fixed.unused_bytes(pool_bytes),
            Self::Split(_) | Self::Adaptive(_) | Self::Limit(_) => 0,
        }
    }

    /// Notes that the pool had no room for a page: [`next_step`](Self::next_step) is to write.
    pub fn refused(&mut self) {
        match self {
            Self::Split(_) => {}
            Self::Cleaning(cleaning) => cleaning.size.refused(),
            Self::Fixed(fixed) => fixed.refused(),
            Self::Adaptive(adaptive) => adaptive.refused(),
            Self::Limit(limit) => limit.refused(),
        }
    }

    /// Notes that pages of so many compressed bytes left the pool for the store, which holds
    /// `pool_bytes` now.
    pub fn spilled(&mut self, released_bytes: usize, pool_bytes: usize) {
        match self {
            Self::Split(_) => {}
            Self::Cleaning(cleaning) => cleaning.size.spilled(),
            Self::Fixed(fixed) => fixed.spilled(),
            Self::Adaptive(adaptive) => adaptive.spilled(released_bytes, pool_bytes),
            Self::Limit(limit) => limit.spilled(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variant;

    const MIB: usize = 1 << 20;

    /// What every rule owes its caller: a process that can give is told what.
    #[test]
    fn there_is_a_step_while_there_is_something_to_give() {
        let rules = [
            Size::Split(Split::default()),
            Size::Cleaning(Cleaning::new(MIB, 50)),
            Size::Fixed(Fixed::of_share(25, 64 * MIB)),
            Size::Adaptive(Adaptive::new(Variant::Reference, MIB / 4)),
            Size::Limit(Limit::new(20, 90, 64 * MIB)),
        ];
        for mut rule in rules {
            for pool_bytes in [0, 4096, MIB, 16 * MIB, 63 * MIB] {
                for has_store in [false, true] {
                    let resident_bytes = 64 * MIB - pool_bytes;
                    let shares = Shares { resident_bytes, pool_bytes, raw_bytes: 0, has_store };
                    for is_full in [false, true] {
                        if is_full {
                            rule.refused();
                        }
                        let step = rule.next_step(&shares, |_| is_full);
                        let can_give = has_store && pool_bytes > 0 || resident_bytes > 4 * MIB;
                        assert_eq!(step != Step::Nothing, can_give, "{rule:?}: {shares:?}");
                        let may_spill = has_store && pool_bytes > 0;
                        assert!(step != Step::Spill || may_spill, "{rule:?}: {shares:?}");
                        rule.spilled(MIB, pool_bytes.saturating_sub(MIB));
                    }
                }
            }
        }
    }

    #[test]
    fn only_pools_of_fixed_size_keep_what_they_do_not_use() {
        assert_eq!(Size::Cleaning(Cleaning::new(MIB, 50)).unused_bytes(0), MIB);
        assert_eq!(Size::Fixed(Fixed::of_bytes(MIB)).unused_bytes(4096), MIB - 4096);
        assert_eq!(Size::Limit(Limit::new(20, 90, 64 * MIB)).unused_bytes(0), 0);
        assert_eq!(Size::Limit(Limit::new(25, 90, 64 * MIB)).limit_bytes(), Some(16 * MIB));
        assert_eq!(Size::Split(Split::default()).limit_bytes(), None);
    }
}
