//! The limits of a process's address space and data (`RLIMIT_AS`,
//! `RLIMIT_DATA`), which zpager's own mappings would count against, and of its
//! descriptors (`RLIMIT_NOFILE`), which must not keep zpager from opening its own.
//!
//! The program sees and sets limits that are only noted here; the kernel has each
//! of them larger by what is zpager's own, so that it refuses the program what
//! it would have refused it alone. Whatever runs next in the process gets the
//! program's limits themselves. The kernel's hard limits stay as they were: zpager
//! opens its descriptors above the program's soft limit, with that raised for a moment.
//!
//! Bad case: a hard limit that the process may not raise. The kernel's limit
//! cannot be larger then, and zpager's own, made small, is taken from the program's.

use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::syscall::{Errno, checked, nr};

/// A soft and a hard limit, in bytes.
pub type Limit = [u64; 2];

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;
const RESOURCES: [usize; 3] =
    [nr::RLIMIT_AS as usize, nr::RLIMIT_DATA as usize, nr::RLIMIT_NOFILE as usize];
/// Those that zpager's own mappings count against.
const SPACES: [usize; 2] = [RESOURCES[0], RESOURCES[1]];
/// Descriptors that zpager needs at the same time, in a limit of their own.
const DESCRIPTORS: u64 = 64;
/// A descriptor above would cost a table of as many words.
const DESCRIPTOR_MAX: u64 = 1 << 16;
const EINVAL: Errno = Errno(22);
const EPERM: Errno = Errno(1);

/// What the program believes its limits to be.
static SHOWN: [[AtomicU64; 2]; 3] = [const { [const { AtomicU64::new(UNLIMITED) }; 2] }; 3];
/// Bytes of zpager's own.
static OWN_BYTES: AtomicU64 = AtomicU64::new(0);
/// Whether the program's limits are noted here.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Where a resource stands in the tables, if it is one of them.
fn place(resource: usize) -> Option<usize> {
    RESOURCES.iter().position(|&each| each == resource)
}

/// Asks or sets the kernel's limit.
fn kernel(resource: usize, new: Option<Limit>) -> Result<Limit, Errno> {
    let mut old = [UNLIMITED; 2];
    let new = new.as_ref().map_or(0, |limit| limit.as_ptr() as usize);
    // SAFETY: the kernel reads and writes two words each.
    unsafe { checked(nr::__NR_prlimit64, [0, resource, new, old.as_mut_ptr() as usize]) }?;
    Ok(old)
}

/// Notes the limits that the process has, and makes room for `own_bytes` that are zpager's already.
pub fn take_over(own_bytes: usize) {
    OWN_BYTES.fetch_add(own_bytes as u64, Relaxed);
    for (at, resource) in RESOURCES.into_iter().enumerate() {
        let Ok([soft, hard]) = kernel(resource, None) else { return };
        SHOWN[at][0].store(soft, Relaxed);
        SHOWN[at][1].store(hard, Relaxed);
    }
    IS_TAKEN.store(true, Release);
    apply();
}

/// The least hard limit that the process may not raise.
pub fn hard_bytes() -> Option<u64> {
    let hard = SPACES.iter().filter_map(|&resource| kernel(resource, None).ok());
    hard.map(|[_, hard]| hard).min().filter(|&hard| hard != UNLIMITED)
}

/// How long the process's files may become by what it writes (`RLIMIT_FSIZE`).
pub fn file_bytes() -> u64 {
    kernel(nr::RLIMIT_FSIZE as usize, None).map_or(UNLIMITED, |[soft, _]| soft)
}

/// Counts `bytes` that zpager is about to map, or has given up, as its own.
pub(crate) fn own_changes(bytes: i64) {
    OWN_BYTES.fetch_add(bytes as u64, Relaxed);
    if bytes > 0 && IS_TAKEN.load(Acquire) {
        apply();
    }
}

/// Has the kernel's limits be the program's and zpager's own together.
pub fn apply() {
    for (at, resource) in RESOURCES.into_iter().enumerate() {
        let [soft, hard] = [&SHOWN[at][0], &SHOWN[at][1]].map(|limit| limit.load(Relaxed));
        if soft == UNLIMITED && hard == UNLIMITED {
            continue;
        }
        let is_space = SPACES.contains(&resource);
        let soft = match soft {
            soft if soft == UNLIMITED || !is_space => soft,
            soft => soft.saturating_add(OWN_BYTES.load(Relaxed)),
        };
        // A process with the privilege may have any; another one keeps the hard limit that it has.
        let is_raised = is_space && kernel(resource, Some([soft, UNLIMITED])).is_ok();
        if !is_raised && let Ok([_, kept]) = kernel(resource, None) {
            let _ = kernel(resource, Some([soft.min(kept), kept]));
        }
    }
}

/// Opens descriptors of zpager's own: `open` is given the least number that they should have,
/// which the program, as far as possible, does not reach.
pub fn with_descriptors<R>(open: impl FnOnce(usize) -> R) -> R {
    let resource = nr::RLIMIT_NOFILE as usize;
    let [soft, hard] = kernel(resource, None).unwrap_or([0, 0]);
    let raised = soft.saturating_add(DESCRIPTORS).min(hard);
    if soft > DESCRIPTOR_MAX || raised == soft || kernel(resource, Some([raised, hard])).is_err() {
        return open(soft.min(DESCRIPTOR_MAX).saturating_sub(DESCRIPTORS) as usize);
    }
    let opened = open(soft as usize);
    let _ = kernel(resource, Some([soft, hard]));
    opened
}

/// Has the kernel's limits be the program's, for what runs next in the process.
pub fn give_back() {
    for (at, resource) in RESOURCES.into_iter().enumerate() {
        let shown = [&SHOWN[at][0], &SHOWN[at][1]].map(|limit| limit.load(Relaxed));
        if IS_TAKEN.load(Acquire) && kernel(resource, None).is_ok_and(|now| now != shown) {
            let _ = kernel(resource, Some(shown));
        }
    }
}

/// What the program believes of a resource, if it is one of those noted.
pub fn shown(resource: usize) -> Option<Limit> {
    let at = place(resource)?;
    Some([&SHOWN[at][0], &SHOWN[at][1]].map(|limit| limit.load(Relaxed)))
}

/// Sets what the program asks for of one of the resources noted.
///
/// # Errors
/// `EINVAL` for a soft limit above the hard one, `EPERM` for a hard one above the present.
pub fn set(resource: usize, [soft, hard]: Limit) -> Result<(), Errno> {
    let at = place(resource).ok_or(EINVAL)?;
    if soft > hard {
        return Err(EINVAL);
    }
    if hard > SHOWN[at][1].load(Relaxed) && !may_raise() {
        return Err(EPERM);
    }
    let is_lifted = soft == UNLIMITED && hard == UNLIMITED;
    if is_lifted || kernel(resource, None).is_ok_and(|[_, kept]| hard > kept) {
        kernel(resource, Some([soft, hard]))?;
    }
    SHOWN[at][0].store(soft, Relaxed);
    SHOWN[at][1].store(hard, Relaxed);
    apply();
    Ok(())
}

/// Whether the process has `CAP_SYS_RESOURCE`.
fn may_raise() -> bool {
    const VERSION: u32 = 0x2008_0522;
    const RESOURCE_BIT: u32 = 24;
    let header = [VERSION, 0];
    let mut sets = [0u32; 6];
    let arguments = [header.as_ptr() as usize, sets.as_mut_ptr() as usize];
    // SAFETY: the kernel reads the header and writes two sets of three words.
    let asked = unsafe { checked(nr::__NR_capget, arguments) };
    asked.is_ok() && sets[0] & (1 << RESOURCE_BIT) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_limit_is_not_above_the_hard_one() {
        assert!(shown(nr::RLIMIT_AS as usize).is_some());
        assert!(shown(nr::RLIMIT_CORE as usize).is_none());
        assert_eq!(set(nr::RLIMIT_DATA as usize, [2, 1]), Err(EINVAL));
    }

    #[test]
    fn descriptors_are_opened_above_the_soft_limit() {
        let resource = nr::RLIMIT_NOFILE as usize;
        let before = kernel(resource, None).expect("asks");
        let [soft, hard] = before;
        let least = with_descriptors(|least| {
            let during = kernel(resource, None).expect("asks");
            assert!(during[0] >= soft && during[1] == hard);
            least as u64
        });
        assert!(least <= soft && least + DESCRIPTORS <= hard);
        assert_eq!(kernel(resource, None), Ok(before));
    }
}
