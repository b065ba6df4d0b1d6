//! The pool against a plain map, its waste on several distributions, and its hold on RAM.

extern crate std;
use crate::{Handle, Heap, HeapSpace, Pool, SizeClasses, Space, SpaceSource};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::vec::Vec;
use std::{println, vec};

const MIB: usize = 1 << 20;
const KEPT_BYTES_MAX: usize = super::kept::PAGES_MAX * 4096;

/// An object's bytes, different for every number.
fn content(number: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..len).map(|_| rng.next() as u8).collect()
}

/// xorshift64*: enough for choosing sizes and victims.
struct Rng(u64);

impl Rng {
    /// Seeded by ZPAGER_SEED, or fixed; prints what it uses.
    fn from_environment() -> Self {
        let seed = std::env::var("ZPAGER_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = seed.unwrap_or(20_011);
        println!("ZPAGER_SEED={seed}");
        Self(seed.wrapping_mul(2) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }
}

/// A pool and its owner, who knows every handle.
struct Owner<S: Space> {
    pool: SizeClasses<S>,
    objects: Vec<(Handle, usize)>,
    moved: usize,
    compactions: usize,
}

impl<S: Space> Owner<S> {
    fn new<Source: SpaceSource<Space = S>>(source: &Source, space_bytes: usize) -> Self {
        let pool = SizeClasses::reserve(source, space_bytes).unwrap();
        Self { pool, objects: vec![], moved: 0, compactions: 0 }
    }

    fn insert(&mut self, len: usize) {
        let bytes = [0x5a; 4096];
        let handle = self.pool.insert(&bytes[..len]).unwrap();
        self.objects.push((handle, len));
        if self.pool.should_compact() {
            self.compact();
        }
    }

    fn remove(&mut self, index: usize) {
        let (handle, len) = self.objects.swap_remove(index);
        self.pool.remove(handle, len);
    }

    fn compact(&mut self) {
        assert!(self.pool.begin_compaction());
        for (handle, len) in &mut self.objects {
            if let Some(new) = self.pool.relocate(*handle, *len) {
                *handle = new;
                self.moved += 1;
            }
        }
        self.pool.end_compaction();
        self.compactions += 1;
        assert!(!self.pool.should_compact(), "a compaction that asks for another");
    }

    /// Part of the RAM held that is not payload.
    fn waste(&self) -> f64 {
        let (held, payload) = (self.pool.held_bytes(), self.pool.payload_bytes());
        (held - payload) as f64 / held as f64
    }
}

/// What a test does next.
#[derive(Debug, Clone)]
enum Step {
    Insert(usize),
    Remove(prop::sample::Index),
    Compact,
    /// A compaction that offers only every second object.
    CompactHalf,
    Limit(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![1usize..=4096, 300usize..=400, Just(4096usize), 1usize..=64];
    let step = prop_oneof![
        12 => len.prop_map(Step::Insert),
        9 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => Just(Step::Compact),
        1 => Just(Step::CompactHalf),
        1 => (0usize..300_000).prop_map(Step::Limit),
    ];
    proptest::collection::vec(step, 1..800)
}

proptest! {
    #[test]
    fn as_a_plain_map(steps in steps()) {
        let mut pool = SizeClasses::reserve(&Heap, 256 << 10).unwrap();
        let mut model: BTreeMap<u64, (Handle, Vec<u8>)> = BTreeMap::new();
        for (number, step) in (0u64..).zip(steps) {
            match step {
                Step::Insert(len) => {
                    let bytes = content(number, len);
                    if let Some(handle) = pool.insert(&bytes) {
                        prop_assert!(handle.raw() >> Handle::BITS == 0);
                        model.insert(number, (Handle::from_raw(handle.raw()), bytes));
                    }
                }
                Step::Remove(index) if !model.is_empty() => {
                    let number = *model.keys().nth(index.index(model.len())).unwrap();
                    let (handle, bytes) = model.remove(&number).unwrap();
                    pool.remove(handle, bytes.len());
                }
                Step::Compact | Step::CompactHalf => {
                    let held_bytes = pool.held_bytes();
                    let stride = if matches!(step, Step::Compact) { 1 } else { 2 };
                    let begun = pool.begin_compaction();
                    for (handle, bytes) in model.values_mut().step_by(stride) {
                        if let Some(new) = pool.relocate(*handle, bytes.len()) {
                            prop_assert!(begun);
                            *handle = new;
                        }
                    }
                    pool.end_compaction();
                    if stride == 1 {
                        // Emptied runs may be kept while their objects touch other pages.
                        prop_assert!(pool.held_bytes() <= held_bytes + KEPT_BYTES_MAX);
                        prop_assert!(!pool.begin_compaction(), "a compaction left a surplus");
                    }
                }
                Step::Limit(limit_bytes) => pool.set_limit_bytes(limit_bytes),
                Step::Remove(_) => {}
            }
            for (handle, bytes) in model.values() {
                prop_assert_eq!(pool.get(*handle, bytes.len()), &bytes[..]);
            }
            let payload_bytes: usize = model.values().map(|(_, bytes)| bytes.len()).sum();
            prop_assert_eq!(pool.payload_bytes(), payload_bytes);
            prop_assert!(pool.held_bytes() >= payload_bytes);
        }
        for (handle, bytes) in model.into_values() {
            pool.remove(handle, bytes.len());
        }
        prop_assert_eq!(pool.payload_bytes(), 0);
        prop_assert!(pool.held_bytes() <= KEPT_BYTES_MAX, "more than the kept runs is held for nothing");
    }
}

#[test]
fn the_limit_holds() {
    let mut pool = SizeClasses::reserve(&Heap, 4 * MIB).unwrap();
    pool.set_limit_bytes(MIB);
    let mut rng = Rng::from_environment();
    let mut objects = vec![];
    let (mut refused, mut fullest_bytes) = (0, 0);
    for _ in 0..20_000 {
        let len = rng.between(300, 3000);
        match pool.insert(&[1; 4096][..len]) {
            Some(handle) => objects.push((handle, len)),
            None => {
                refused += 1;
                for _ in 0..rng.below(40).min(objects.len()) {
                    let (handle, len) = objects.swap_remove(rng.below(objects.len()));
                    pool.remove(handle, len);
                }
            }
        }
        assert!(pool.held_bytes() <= MIB);
        fullest_bytes = fullest_bytes.max(pool.held_bytes());
    }
    assert!(refused > 0 && fullest_bytes > MIB - 8 * 4096);
    // A lower limit frees nothing, and what is held may be used.
    pool.set_limit_bytes(0);
    assert!(pool.insert(&[1; 4096]).is_none());
    let (handle, len) = objects.pop().unwrap();
    pool.remove(handle, len);
    assert!(pool.insert(&[2; 4096][..len]).is_some());
}

#[test]
fn neighbours_in_time_lie_together() {
    let mut pool = SizeClasses::reserve(&Heap, MIB).unwrap();
    let handles: Vec<_> = (0..8).map(|_| pool.insert(&[7; 1000]).unwrap()).collect();
    for pair in handles.windows(2) {
        assert_eq!(pair[1].raw() - pair[0].raw(), 1024 / Handle::GRAIN_BYTES as u64);
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_second_removal_is_noticed() {
    // A panic ends the process where panics abort, so the second removal runs in a child.
    const NAME: &str = "ZPAGER_POOL_REMOVES_TWICE";
    if std::env::var_os(NAME).is_some() {
        let mut pool = SizeClasses::reserve(&Heap, MIB).unwrap();
        let handle = pool.insert(&[7; 1000]).unwrap();
        pool.insert(&[7; 1000]).unwrap();
        pool.remove(handle, 1000);
        pool.remove(handle, 1000);
        return;
    }
    let test = std::env::current_exe().unwrap();
    let output = std::process::Command::new(test)
        .args(["--exact", "size_classes::tests::a_second_removal_is_noticed"])
        .env(NAME, "1")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = [output.stdout, output.stderr].concat();
    let said = std::string::String::from_utf8_lossy(&said);
    assert!(said.contains("the object was removed before"), "{said}");
}

/// Fills to about 8 MiB of payload and churns four times over; the worst waste on the way.
fn churn(mut next_len: impl FnMut(&mut Rng) -> usize) -> f64 {
    let mut rng = Rng::from_environment();
    let mut owner = Owner::new(&Heap, 64 * MIB);
    while owner.pool.payload_bytes() < 8 * MIB {
        let len = next_len(&mut rng);
        owner.insert(len);
    }
    let objects = owner.objects.len();
    let (mut worst, mut sum, mut samples) = (owner.waste(), 0.0, 0);
    for round in 0..4 * objects {
        let index = rng.below(owner.objects.len());
        owner.remove(index);
        let len = next_len(&mut rng);
        owner.insert(len);
        if round % 64 == 0 {
            worst = worst.max(owner.waste());
            sum += owner.waste();
            samples += 1;
        }
    }
    println!(
        "{objects} objects: waste {:.4} at worst, {:.4} on average; {} compactions moved {}; \
         metadata {:.2} bytes an object; space used up to {:.2} of the RAM held",
        worst,
        sum / samples as f64,
        owner.compactions,
        owner.moved,
        owner.pool.metadata_bytes() as f64 / objects as f64,
        (owner.pool.runs.touched_pages() * 4096) as f64 / owner.pool.held_bytes() as f64,
    );
    worst
}

#[test]
fn waste_is_at_most_a_tenth_on_even_lengths() {
    assert!(churn(|rng| rng.between(300, 3000)) <= 0.1);
}

#[test]
fn waste_is_at_most_a_tenth_on_lengths_as_of_a_heap() {
    // Four humps: nearly empty pages, pointers, text, and a share kept as it is.
    assert!(
        churn(|rng| match rng.below(16) {
            0 => rng.between(60, 300),
            1..=7 => rng.between(500, 900) + rng.below(500),
            8..=13 => rng.between(1200, 1600) + rng.below(900),
            14 => rng.between(2200, 3000),
            _ => 4096,
        }) <= 0.1
    );
}

#[test]
fn waste_is_at_most_a_tenth_when_all_lengths_are_equal() {
    for len in [256, 300, 337, 450, 513, 700, 817, 1025, 1105, 1361, 1537, 2049, 2177, 2721, 3072] {
        assert!(churn(|_| len) <= 0.1, "{len}");
    }
}

#[test]
fn waste_is_at_most_a_tenth_when_lengths_drift() {
    let mut step = 0;
    assert!(
        churn(|rng| {
            step += 1;
            let base = 300 + step / 16 % 2400;
            base + rng.below(300)
        }) <= 0.1
    );
}

#[test]
fn waste_is_at_most_a_tenth_after_a_class_shift() {
    let mut rng = Rng::from_environment();
    for (first, second) in [(1000, 1500), (2900, 400), (310, 2800), (600, 600), (2048, 1024)] {
        let mut owner = Owner::new(&Heap, 64 * MIB);
        while owner.pool.payload_bytes() < 16 * MIB {
            owner.insert(first);
        }
        for _ in 0..owner.objects.len() * 9 / 10 {
            let index = rng.below(owner.objects.len());
            owner.remove(index);
        }
        while owner.pool.payload_bytes() < 16 * MIB {
            owner.insert(second);
        }
        println!("{first} then {second}: waste {:.4}, {} moved", owner.waste(), owner.moved);
        assert!(owner.waste() <= 0.1);
    }
}

/// Heap memory that counts the pages that were written, as the kernel would.
struct Counted {
    inner: HeapSpace,
    released: Rc<RefCell<usize>>,
}

impl Counted {
    /// Pages with any byte set: the tests write no zeros.
    fn touched_pages(&self) -> usize {
        // SAFETY: initialised, and no pool is using the space during the call.
        let all = unsafe { core::slice::from_raw_parts(self.inner.base(), self.inner.bytes()) };
        all.chunks(4096).filter(|page| page.iter().any(|byte| *byte != 0)).count()
    }
}

// SAFETY: all of it is the heap space's.
unsafe impl Space for Counted {
    fn base(&self) -> *mut u8 {
        self.inner.base()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
    fn release(&self, offset: usize, bytes: usize) {
        *self.released.borrow_mut() += bytes;
        self.inner.release(offset, bytes);
    }
}

#[derive(Default)]
struct CountedHeap(Rc<RefCell<usize>>);

impl SpaceSource for CountedHeap {
    type Space = Counted;
    fn reserve(&self, bytes: usize) -> Option<Counted> {
        Some(Counted { inner: Heap.reserve(bytes)?, released: self.0.clone() })
    }
}

#[test]
fn what_is_held_is_what_was_touched_and_not_released() {
    let source = CountedHeap::default();
    let mut owner = Owner::new(&source, 64 * MIB);
    let mut rng = Rng::from_environment();
    for round in 0..40_000 {
        // Swings between filling and emptying.
        if owner.objects.is_empty() || rng.below(10) < if round / 8000 % 2 == 0 { 7 } else { 4 } {
            let len = rng.between(100, 3500);
            owner.insert(len);
        } else {
            let index = rng.below(owner.objects.len());
            owner.remove(index);
        }
        if round % 4000 == 0 {
            assert_eq!(owner.pool.objects.touched_pages() * 4096, owner.pool.held_bytes());
        }
    }
    while !owner.objects.is_empty() {
        owner.remove(0);
    }
    assert!(*source.0.borrow() > 0);
    assert!(owner.pool.held_bytes() <= KEPT_BYTES_MAX);
    assert_eq!(owner.pool.objects.touched_pages() * 4096, owner.pool.held_bytes());
}
