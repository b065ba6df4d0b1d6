//! Every pool against a plain map, under a limit, over the RAM it really holds, and its waste.

extern crate std;
use crate::testing::{Counted, CountedHeap, MIB, Owner, content, heap_len, random};
use crate::{
    Buckets, Buffers, Cells, Handle, Heap, OBJECT_BYTES_MAX, Pool, SizeClasses, SpaceSource,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::boxed::Box;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::vec::Vec;
use std::{println, vec};
use zpager_seed::Random;

/// A pool with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    SizeClasses,
    Buckets(usize),
    Buffers,
    Cells(usize),
}

const KINDS: [Kind; 7] = [
    Kind::SizeClasses,
    Kind::Buckets(64),
    Kind::Buckets(256),
    Kind::Buffers,
    Kind::Cells(1),
    Kind::Cells(2),
    Kind::Cells(4),
];

impl Kind {
    fn reserve<Source: SpaceSource>(
        self,
        source: &Source,
        space_bytes: usize,
    ) -> Box<dyn Inspected<Source::Space>>
    where
        Source::Space: 'static,
    {
        match self {
            Kind::SizeClasses => Box::new(SizeClasses::reserve(source, space_bytes).unwrap()),
            Kind::Buckets(bytes) => Box::new(Buckets::reserve(source, space_bytes, bytes).unwrap()),
            Kind::Buffers => Box::new(Buffers::reserve(source, space_bytes).unwrap()),
            Kind::Cells(pages) => Box::new(Cells::reserve(source, space_bytes, pages).unwrap()),
        }
    }

    /// RAM that an empty pool may hold: the size classes keep some for what comes next.
    fn kept_bytes_max(self) -> usize {
        if self == Kind::SizeClasses { 64 << 10 } else { 0 }
    }
}

/// Most tables that a pool has.
const TABLES_MAX: usize = 8;

/// A pool whose object space the tests look at.
trait Inspected<S>: Pool {
    fn space(&self) -> &S;
}

macro_rules! inspected {
    ($($pool:ident),*) => {$(
        impl<S: crate::Space> Inspected<S> for $pool<S> {
            fn space(&self) -> &S {
                self.objects()
            }
        }
    )*};
}

inspected!(SizeClasses, Buckets, Buffers, Cells);

/// What the model test does next.
#[derive(Debug, Clone)]
enum Step {
    Insert(usize),
    Remove(prop::sample::Index),
    /// An object makes way for another of its page, of another length.
    Overwrite(prop::sample::Index, usize),
    /// A compaction that offers every so many objects.
    Compact(usize),
    /// A compaction that is begun, and stays so until another is.
    BeginCompaction,
    /// The next object is offered to the compaction, if there is one.
    Relocate(prop::sample::Index),
    Limit(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![1usize..=4096, 300usize..=400, Just(4096usize), 1usize..=64];
    let step = prop_oneof![
        12 => len().prop_map(Step::Insert),
        8 => any::<prop::sample::Index>().prop_map(Step::Remove),
        3 => (any::<prop::sample::Index>(), len()).prop_map(|(at, len)| Step::Overwrite(at, len)),
        2 => (1usize..=3).prop_map(Step::Compact),
        1 => Just(Step::BeginCompaction),
        4 => any::<prop::sample::Index>().prop_map(Step::Relocate),
        1 => (0usize..300_000).prop_map(Step::Limit),
    ];
    proptest::collection::vec(step, 1..500)
}

/// A pool beside the plain map that says what it must answer.
struct Model {
    kind: Kind,
    pool: Box<dyn Inspected<Counted>>,
    map: BTreeMap<u64, (Handle, Vec<u8>)>,
    limit_bytes: usize,
    /// Whether a compaction moves some objects and not yet others.
    compacting: bool,
}

impl Model {
    fn new(kind: Kind) -> Self {
        let pool = kind.reserve(&CountedHeap::default(), 256 << 10);
        Self { kind, pool, map: BTreeMap::new(), limit_bytes: usize::MAX, compacting: false }
    }

    fn step(&mut self, number: u64, step: &Step) {
        match step {
            Step::Insert(len) => self.insert(number, *len),
            Step::Remove(index) => self.remove(*index),
            Step::Overwrite(index, len) => {
                self.remove(*index);
                self.insert(number, *len);
            }
            Step::Compact(stride) => self.compact(*stride),
            Step::BeginCompaction => self.compacting = self.pool.begin_compaction(),
            Step::Relocate(index) => self.relocate(*index),
            Step::Limit(limit_bytes) => {
                self.pool.set_limit_bytes(*limit_bytes);
                self.limit_bytes = *limit_bytes;
            }
        }
    }

    fn insert(&mut self, number: u64, len: usize) {
        let bytes = content(number, len);
        let before = (self.pool.held_bytes(), self.pool.fragmentation());
        match self.pool.insert(&bytes) {
            Some(handle) => {
                assert_eq!(handle.raw() >> Handle::BITS, 0);
                let held_bytes = self.pool.held_bytes();
                assert!(held_bytes <= self.limit_bytes.max(before.0), "beyond the limit");
                self.map.insert(number, (Handle::from_raw(handle.raw()), bytes));
            }
            None if self.kind != Kind::SizeClasses => {
                assert_eq!((self.pool.held_bytes(), self.pool.fragmentation()), before);
            }
            // What it kept empty may have gone.
            None => assert!(self.pool.held_bytes() <= before.0),
        }
    }

    fn number_at(&self, index: prop::sample::Index) -> Option<u64> {
        (!self.map.is_empty()).then(|| *self.map.keys().nth(index.index(self.map.len())).unwrap())
    }

    fn remove(&mut self, index: prop::sample::Index) {
        let Some(number) = self.number_at(index) else { return };
        let (handle, bytes) = self.map.remove(&number).unwrap();
        self.pool.remove(handle, bytes.len());
    }

    fn compact(&mut self, stride: usize) {
        let held_bytes = self.pool.held_bytes();
        let begun = self.pool.begin_compaction();
        for (handle, bytes) in self.map.values_mut().step_by(stride) {
            if let Some(new) = self.pool.relocate(*handle, bytes.len()) {
                assert!(begun);
                *handle = new;
            }
        }
        self.pool.end_compaction();
        self.compacting = false;
        if stride == 1 {
            assert!(!self.pool.should_compact(), "a compaction that asks for another");
        }
        if stride == 1 && self.kind == Kind::SizeClasses {
            // Emptied runs may be kept while their objects touch other pages.
            assert!(self.pool.held_bytes() <= held_bytes + self.kind.kept_bytes_max());
            assert!(!self.pool.begin_compaction(), "a compaction left a surplus");
        }
    }

    fn relocate(&mut self, index: prop::sample::Index) {
        let Some(number) = self.number_at(index) else { return };
        let (handle, bytes) = self.map.get_mut(&number).unwrap();
        if let Some(new) = self.pool.relocate(*handle, bytes.len()) {
            assert!(self.compacting);
            *handle = new;
        }
    }

    fn check(&self) {
        let mut gathered = [0; OBJECT_BYTES_MAX];
        for (handle, bytes) in self.map.values() {
            self.pool.prefetch(*handle, bytes.len());
            assert_eq!(self.pool.read(*handle, bytes.len(), &mut gathered), &bytes[..]);
        }
        let payload_bytes: usize = self.map.values().map(|(_, bytes)| bytes.len()).sum();
        let fragmentation = self.pool.fragmentation();
        assert_eq!(self.pool.payload_bytes(), payload_bytes);
        assert_eq!(self.pool.held_bytes(), payload_bytes + fragmentation.waste_bytes());
        assert!(fragmentation.largest_free_bytes <= OBJECT_BYTES_MAX);
        assert!(self.pool.space().touched_bytes() <= self.pool.held_bytes());
    }

    /// A free place that is reported is one.
    fn check_largest_free(&mut self) {
        self.pool.end_compaction();
        self.pool.set_limit_bytes(usize::MAX);
        while self.pool.insert(&[1; OBJECT_BYTES_MAX]).is_some() {}
        let len = self.pool.fragmentation().largest_free_bytes;
        assert!(len == 0 || self.pool.insert(&[1; OBJECT_BYTES_MAX][..len]).is_some());
    }

    fn empty(&mut self) {
        for (handle, bytes) in core::mem::take(&mut self.map).into_values() {
            self.pool.remove(handle, bytes.len());
        }
        assert_eq!(self.pool.payload_bytes(), 0);
        assert_eq!(self.pool.fragmentation().internal_bytes, 0);
        assert!(self.pool.held_bytes() <= self.kind.kept_bytes_max(), "RAM held for nothing");
    }
}

/// Runs a property on random steps; the seed is ZPAGER_SEED or random, and printed.
fn for_random_steps(cases: u32, property: impl Fn(Vec<Step>)) {
    let seed = zpager_seed::seed(RandomState::new().hash_one(0));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new_with_rng(config, rng).run(&steps(), |steps| {
        property(steps);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("ZPAGER_SEED={seed}: {error}");
    }
}

#[test]
fn every_pool_is_as_a_plain_map() {
    for kind in KINDS {
        println!("{kind:?}");
        for_random_steps(96, |steps| {
            let mut model = Model::new(kind);
            for (number, step) in (0u64..).zip(&steps) {
                model.step(number, step);
                model.check();
            }
            model.empty();
        });
    }
}

#[test]
fn every_pool_has_the_free_place_that_it_reports() {
    for kind in KINDS {
        println!("{kind:?}");
        for_random_steps(48, |steps| {
            let mut model = Model::new(kind);
            for (number, step) in (0u64..).zip(&steps) {
                model.step(number, step);
            }
            model.check_largest_free();
        });
    }
}

#[test]
fn every_pool_takes_every_length() {
    for kind in KINDS {
        let mut pool = kind.reserve(&Heap, 64 * MIB);
        let mut gathered = [0; OBJECT_BYTES_MAX];
        let handles: Vec<_> = (1..=OBJECT_BYTES_MAX)
            .map(|len| pool.insert(&content(len as u64, len)).unwrap())
            .collect();
        for (handle, len) in handles.into_iter().zip(1..) {
            assert_eq!(pool.read(handle, len, &mut gathered), content(len as u64, len), "{kind:?}");
            pool.remove(handle, len);
        }
        assert!(pool.held_bytes() <= kind.kept_bytes_max());
    }
}

#[test]
fn every_pool_fills_its_address_space_and_refuses_then() {
    for kind in KINDS {
        let mut pool = kind.reserve(&Heap, MIB);
        let mut handles = vec![];
        while let Some(handle) = pool.insert(&[7; OBJECT_BYTES_MAX]) {
            handles.push(handle);
        }
        // A raw page is a slab of its own in any pool, and no pool loses address space on it.
        assert_eq!(pool.payload_bytes(), MIB, "{kind:?}");
        assert_eq!(pool.held_bytes(), MIB);
        assert_eq!(pool.insert(&[7]), None);
        pool.remove(handles.pop().unwrap(), OBJECT_BYTES_MAX);
        assert!(pool.insert(&[7; OBJECT_BYTES_MAX]).is_some());
    }
}

#[test]
fn every_pool_keeps_to_its_limit() {
    for kind in KINDS {
        let mut pool = kind.reserve(&Heap, 4 * MIB);
        pool.set_limit_bytes(MIB);
        let mut random = random();
        let mut objects = vec![];
        let (mut refused, mut fullest_bytes) = (0, 0);
        for _ in 0..10_000 {
            let len = random.usize(300..=3000);
            match pool.insert(&[1; OBJECT_BYTES_MAX][..len]) {
                Some(handle) => objects.push((handle, len)),
                None => {
                    refused += 1;
                    for _ in 0..random.usize(..40).min(objects.len()) {
                        let (handle, len) = objects.swap_remove(random.usize(..objects.len()));
                        pool.remove(handle, len);
                    }
                }
            }
            assert!(pool.held_bytes() <= MIB);
            fullest_bytes = fullest_bytes.max(pool.held_bytes());
        }
        assert!(refused > 0 && fullest_bytes > MIB - 8 * 4096, "{kind:?}: {fullest_bytes}");
        // A lower limit frees nothing, and what is held may be used.
        let held_bytes = pool.held_bytes();
        pool.set_limit_bytes(0);
        let (handle, len) = objects.pop().unwrap();
        while pool.insert(&[2; OBJECT_BYTES_MAX][..len]).is_some() {}
        assert!(pool.held_bytes() <= held_bytes);
        pool.remove(handle, len);
        if pool.held_bytes() == held_bytes && kind != Kind::Buffers {
            assert!(pool.insert(&[2; OBJECT_BYTES_MAX][..len]).is_some(), "{kind:?}");
        }
    }
}

#[test]
fn what_every_pool_holds_is_what_was_touched_and_not_released() {
    for kind in KINDS {
        let source = CountedHeap::default();
        let mut owner = Owner::new(kind.reserve(&source, 64 * MIB));
        let mut random = random();
        for round in 0..20_000 {
            // Swings between filling and emptying.
            if owner.objects.is_empty()
                || random.usize(..10) < if round / 4000 % 2 == 0 { 7 } else { 4 }
            {
                owner.insert(random.usize(100..=3500));
            } else {
                owner.remove(random.usize(..owner.objects.len()));
            }
            if round % 2000 == 0 {
                assert_eq!(owner.pool.space().touched_bytes(), owner.pool.held_bytes(), "{kind:?}");
            }
        }
        while !owner.objects.is_empty() {
            owner.remove(0);
        }
        assert!(source.released_bytes() > 0);
        assert!(owner.pool.held_bytes() <= kind.kept_bytes_max(), "{kind:?}");
        assert_eq!(owner.pool.space().touched_bytes(), owner.pool.held_bytes());
    }
}

#[test]
fn metadata_of_every_pool_is_the_tables_that_were_touched() {
    for kind in KINDS {
        let source = CountedHeap::default();
        let mut owner = Owner::new(kind.reserve(&source, 64 * MIB));
        let mut random = random();
        for payload_bytes in [0, 1, 5 * MIB, 8 * MIB] {
            while owner.pool.payload_bytes() < payload_bytes {
                owner.insert(heap_len(&mut random));
            }
            let metadata_bytes = owner.pool.metadata_bytes();
            let touched_bytes = source.touched_table_bytes();
            // The end of a table may describe what was not used yet.
            let most_bytes = touched_bytes + TABLES_MAX * 4096;
            assert!((touched_bytes..=most_bytes).contains(&metadata_bytes), "{kind:?}");
        }
        // Four bytes a bucket.
        let part = if kind == Kind::Buckets(64) { 12 } else { 40 };
        assert!(owner.pool.metadata_bytes() * part < owner.pool.held_bytes(), "{kind:?}");
    }
}

/// Fills to 8 MiB of payload, churns twice over, and prints what is lost; the waste at the end.
fn churn(kind: Kind, name: &str, mut next_len: impl FnMut(&mut Random) -> usize) -> f64 {
    let mut random = random();
    let mut owner = Owner::new(kind.reserve(&Heap, 64 * MIB));
    while owner.pool.payload_bytes() < 8 * MIB {
        owner.insert(next_len(&mut random));
    }
    let filled = owner.waste();
    for _ in 0..2 * owner.objects.len() {
        owner.remove(random.usize(..owner.objects.len()));
        owner.insert(next_len(&mut random));
    }
    let (held_bytes, lost) = (owner.pool.held_bytes() as f64, owner.pool.fragmentation());
    println!(
        "{name}, {kind:?}: waste {:.3} filled, {:.3} churned (internal {:.3}, external {:.3}, \
         largest free {} bytes), metadata {:.2} bytes an object, {} compactions moved {} of {}",
        filled,
        owner.waste(),
        lost.internal_bytes as f64 / held_bytes,
        lost.external_bytes as f64 / held_bytes,
        lost.largest_free_bytes,
        owner.pool.metadata_bytes() as f64 / owner.objects.len() as f64,
        owner.compactions,
        owner.moved,
        owner.objects.len(),
    );
    owner.waste()
}

#[test]
fn waste_of_every_pool_is_below_what_its_design_allows() {
    for kind in KINDS {
        let waste = [
            churn(kind, "as of a heap", heap_len),
            churn(kind, "even", |random| random.usize(300..=3000)),
        ];
        let allowed = match kind {
            Kind::SizeClasses => 0.1,
            // Half a bucket of each object of 1500 bytes.
            Kind::Buckets(_) => 0.1,
            // Nothing is used again before a whole buffer is free.
            Kind::Buffers => 0.5,
            Kind::Cells(1) => 0.13,
            Kind::Cells(_) => 0.08,
        };
        assert!(waste.iter().all(|waste| *waste <= allowed), "{kind:?}: {waste:?}");
    }
}
