//! What is the cells' own: best fit, compaction within and between cells, and what comes back.

extern crate std;
use super::*;
use crate::testing::{MIB, Owner, content, random};
use crate::{Heap, HeapSpace};
use proptest::prelude::*;
use std::boxed::Box;
use std::println;
use std::vec::Vec;

type Heaped = Cells<HeapSpace>;

fn pool(cell_pages: usize) -> Heaped {
    Cells::reserve(&Heap, 4 * MIB, cell_pages).unwrap()
}

fn insert(pool: &mut Heaped, len: usize) -> Handle {
    pool.insert(&content(len as u64, len)).unwrap()
}

/// Where an object lies in the space, in bytes.
fn offset_bytes(pool: &Heaped, handle: Handle) -> usize {
    let (cell, slot) = pool.slot_of(handle);
    pool.offset_bytes(cell, pool.slots.get(cell, slot).unwrap().start)
}

fn check_content(pool: &Heaped, handle: Handle, len: usize) {
    assert_eq!(pool.read(handle, len, &mut [0; OBJECT_BYTES_MAX]), content(len as u64, len));
}

/// The cells that hold objects.
fn held_cells(pool: &Heaped) -> impl Iterator<Item = (usize, Cell)> {
    let cells = (0..pool.frames.touched()).map(|cell| (cell, pool.cell(cell)));
    cells.filter(|(_, known)| known.objects > 0)
}

/// What is known of each cell is what its slots say, and it stands where it should.
fn check_cells(pool: &Heaped) {
    let (mut taken, mut touched_pages) = (0, 0);
    for (cell, known) in held_cells(pool) {
        let mut places: Vec<_> = pool.slots.places(cell).map(|(_, place)| place).collect();
        places.sort_unstable_by_key(|place| place.start);
        assert!(places.windows(2).all(|pair| pair[0].end() <= pair[1].start));
        assert_eq!(places.last().unwrap().end(), known.filled);
        assert!(known.filled <= pool.cell_grains(), "an object is split over cells");
        assert_eq!(places.iter().map(|place| place.grains).sum::<usize>(), known.taken);
        assert_eq!(places.len(), known.objects);
        assert!(known.filled.div_ceil(PAGE_GRAINS) <= known.touched_pages);
        taken += known.taken;
        touched_pages += known.touched_pages;
    }
    assert_eq!(taken * GRAIN_BYTES, pool.taken_bytes);
    assert_eq!(touched_pages * PAGE_BYTES, pool.held_bytes());
}

/// What an insert of so many grains must do: the final free space that it uses, or the free space
/// that it makes final, or a new cell.
fn expected_fit(pool: &Heaped, grains: usize) -> (Option<usize>, Option<usize>) {
    let offered = || held_cells(pool).map(|(_, known)| pool.offered(known));
    let least = |rooms: &mut dyn Iterator<Item = usize>| rooms.filter(|&room| room >= grains).min();
    (least(&mut offered().map(|(last, _)| last)), least(&mut offered().map(|(_, free)| free)))
}

#[derive(Debug, Clone)]
enum Step {
    Insert(usize),
    Remove(prop::sample::Index),
    Compact,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![1usize..=4096, 300usize..=1500, 1usize..=64];
    let step = prop_oneof![
        12 => len.prop_map(Step::Insert),
        9 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => Just(Step::Compact),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn an_object_goes_where_it_leaves_least(
        cell_pages in prop_oneof![Just(1usize), Just(2), Just(4)],
        steps in steps(),
    ) {
        let mut owner = Owner::new(Box::new(pool(cell_pages)));
        for step in steps {
            match step {
                Step::Insert(len) => {
                    let fit = expected_fit(&owner.pool, len.div_ceil(GRAIN_BYTES));
                    let cells = held_cells(&owner.pool).count();
                    let known = |cell| owner.pool.cell(cell);
                    let before: Vec<_> = (0..owner.pool.frames.touched()).map(known).collect();
                    let handle = owner.pool.insert(&[7; OBJECT_BYTES_MAX][..len]).unwrap();
                    owner.objects.push((handle, len));
                    let (cell, _) = owner.pool.slot_of(handle);
                    let offered = before.get(cell).map(|known| owner.pool.offered(*known));
                    let started = held_cells(&owner.pool).count() - cells;
                    match fit {
                        (Some(last), _) => prop_assert_eq!((offered.unwrap().0, started), (last, 0)),
                        (_, Some(free)) => prop_assert_eq!((offered.unwrap().1, started), (free, 0)),
                        (None, None) => prop_assert_eq!(started, 1),
                    }
                }
                Step::Remove(index) if !owner.objects.is_empty() => {
                    owner.remove(index.index(owner.objects.len()));
                }
                Step::Remove(_) => {}
                Step::Compact => owner.compact(),
            }
            check_cells(&owner.pool);
        }
    }
}

#[test]
fn the_tightest_final_free_space_is_taken() {
    let mut pool = pool(1);
    let (long, short) = (insert(&mut pool, 3000), insert(&mut pool, 2000));
    assert_eq!(offset_bytes(&pool, short), PAGE_BYTES);
    let handle = insert(&mut pool, 1000);
    assert_eq!(offset_bytes(&pool, handle), offset_bytes(&pool, long) + 3008);
    let handle = insert(&mut pool, 1100);
    assert_eq!(offset_bytes(&pool, handle), offset_bytes(&pool, short) + 2000);
}

#[test]
fn what_is_freed_before_the_final_free_space_becomes_part_of_it() {
    let mut pool = pool(1);
    let handles: Vec<_> = [1009, 1010, 1011, 1012].map(|len| insert(&mut pool, len)).into();
    for (at, len) in [(2, 1011), (1, 1010)] {
        pool.remove(handles[at], len);
        assert_eq!(pool.by_final.longest(), 0, "a gap is no final free space");
    }
    pool.remove(handles[3], 1012);
    let handle = insert(&mut pool, 3072);
    assert_eq!(offset_bytes(&pool, handle), 1024);
    assert_eq!(pool.held_bytes(), PAGE_BYTES);
    check_content(&pool, handle, 3072);
    check_content(&pool, handles[0], 1009);
}

#[test]
fn a_cell_is_compacted_before_the_pool_grows_and_handles_survive() {
    let mut pool = pool(2);
    let lens = [2033, 2034, 2035, 2036];
    let handles = lens.map(|len| insert(&mut pool, len));
    assert_eq!(pool.held_bytes(), 2 * PAGE_BYTES);
    pool.remove(handles[0], lens[0]);
    pool.remove(handles[2], lens[2]);
    assert_eq!(pool.fragmentation().largest_free_bytes, 4096);
    let handle = insert(&mut pool, 4096);
    assert_eq!(pool.held_bytes(), 2 * PAGE_BYTES);
    assert_eq!(offset_bytes(&pool, handles[1]), 0);
    for (handle, len) in [(handles[1], lens[1]), (handles[3], lens[3]), (handle, 4096)] {
        check_content(&pool, handle, len);
    }
}

#[test]
fn three_pages_that_shrink_to_two_thirds_share_a_cell_of_two() {
    // castro, 2.3.3: with cells of one page each would have its own.
    for (cell_pages, held_pages) in [(1, 3), (2, 2), (4, 2)] {
        let mut pool = pool(cell_pages);
        for _ in 0..3 {
            insert(&mut pool, 2662);
        }
        assert_eq!(pool.held_bytes(), held_pages * PAGE_BYTES, "{cell_pages}");
    }
}

#[test]
fn an_empty_cell_comes_back_at_once() {
    for cell_pages in [1, 2, 4] {
        let mut pool = pool(cell_pages);
        let handle = insert(&mut pool, 2000);
        // The cell's other pages were never touched.
        assert_eq!(pool.held_bytes(), PAGE_BYTES);
        pool.remove(handle, 2000);
        assert_eq!(pool.held_bytes(), 0);
        assert_eq!(pool.fragmentation(), Fragmentation::default());
    }
}

#[test]
fn a_cell_without_slots_offers_nothing() {
    let mut pool = pool(1);
    let handles: Vec<_> = (0..=PAGE_SLOTS).map(|_| insert(&mut pool, 16)).collect();
    assert_eq!(held_cells(&pool).count(), 2);
    pool.remove(handles[0], 16);
    insert(&mut pool, 4096 - 16 * PAGE_SLOTS);
    assert_eq!(held_cells(&pool).count(), 2);
    check_cells(&pool);
}

#[test]
fn other_lengths_of_cells_are_refused() {
    assert!([0, 3, 5, 8].iter().all(|&pages| Cells::reserve(&Heap, MIB, pages).is_none()));
}

#[test]
fn a_cell_that_is_emptied_gets_nothing_until_the_compaction_ends() {
    let mut pool = pool(1);
    let handles = [3000, 3100, 990, 400].map(|len| insert(&mut pool, len));
    pool.remove(handles[0], 3000);
    pool.remove(handles[1], 3100);
    assert!(pool.begin_compaction());
    let (emptied, _) = held_cells(&pool).find(|(_, known)| known.evacuating).unwrap();
    let handle = insert(&mut pool, 2000);
    assert_ne!(pool.slot_of(handle).0, emptied);
    pool.end_compaction();
    assert_eq!(pool.fragmentation().largest_free_bytes, 4096 - 400);
}

#[test]
fn compaction_frees_the_sparsest_cells() {
    for cell_pages in [1, 2, 4] {
        let mut owner = Owner::new(Box::new(pool(cell_pages)));
        let mut random = random();
        while owner.pool.payload_bytes() < 3 * MIB {
            owner.insert(random.usize(300..=3000));
        }
        while owner.pool.payload_bytes() > MIB {
            owner.remove(random.usize(..owner.objects.len()));
        }
        let before = owner.waste();
        assert!(owner.pool.should_compact());
        owner.compact();
        check_cells(&owner.pool);
        println!("{cell_pages} pages: {before:.3}, {:.3}, {} moved", owner.waste(), owner.moved);
        assert!(owner.waste() < 0.13, "{cell_pages} pages: {}", owner.waste());
    }
}
