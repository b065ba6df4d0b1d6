//! What is the buffers' own: where pages go, when room is used again, and what is written out.

extern crate std;
use super::*;
use crate::Heap;
use crate::testing::{MIB, Owner, random};
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

fn pool() -> Buffers<crate::HeapSpace> {
    Buffers::reserve(&Heap, MIB).unwrap()
}

fn insert(pool: &mut Buffers<crate::HeapSpace>, len: usize) -> Handle {
    pool.insert(&[7; OBJECT_BYTES_MAX][..len]).unwrap()
}

fn buffer_of(handle: Handle) -> usize {
    handle.offset_bytes() / PAGE_BYTES
}

proptest! {
    #[test]
    fn a_page_goes_to_the_first_buffer_with_room_and_is_not_split(
        lens in proptest::collection::vec(1usize..=4096, 1..200),
    ) {
        let mut pool = pool();
        let mut filled = Vec::new();
        for len in lens {
            let grains = len.div_ceil(GRAIN_BYTES);
            let has_room = |filled: &usize| *filled + grains <= BUFFER_GRAINS;
            let expected = filled.iter().position(has_room).unwrap_or_else(|| {
                filled.push(0);
                filled.len() - 1
            });
            let handle = insert(&mut pool, len);
            let offset_bytes = expected * PAGE_BYTES + filled[expected] * GRAIN_BYTES;
            prop_assert_eq!(handle.offset_bytes(), offset_bytes);
            prop_assert_eq!((offset_bytes + len - 1) / PAGE_BYTES, expected);
            filled[expected] += grains;
        }
    }
}

#[test]
fn room_is_not_used_again_before_the_whole_buffer_is_free() {
    let mut pool = pool();
    let handles: Vec<_> = (0..4).map(|_| insert(&mut pool, 1024)).collect();
    assert_eq!(pool.held_bytes(), PAGE_BYTES);
    for handle in &handles[..3] {
        pool.remove(*handle, 1024);
    }
    assert_eq!(pool.fragmentation().external_bytes, 3 * 1024);
    assert_eq!(pool.fragmentation().largest_free_bytes, 0);
    let other = insert(&mut pool, 1024);
    assert_eq!(buffer_of(other), 1);
    pool.remove(handles[3], 1024);
    assert_eq!(pool.held_bytes(), PAGE_BYTES);
    // Now it is free, and the next new buffer.
    assert_eq!(buffer_of(insert(&mut pool, 4096)), 0);
}

#[test]
fn a_buffer_is_full_that_has_less_room_than_the_mean() {
    let mut pool = pool();
    assert_eq!(pool.full_buffers(), 0);
    for _ in 0..4 {
        insert(&mut pool, 1000);
    }
    insert(&mut pool, 1000);
    // 64 bytes of room in the first buffer, 3088 in the second; the mean is 1000.
    assert_eq!(pool.full_buffers(), 1);
    for _ in 0..100 {
        insert(&mut pool, 16);
    }
    // The mean is 16: nothing is left of the first buffer, and 1552 bytes of the second.
    assert_eq!(pool.full_buffers(), 1);
    insert(&mut pool, 4096);
    // The mean is 56: the third buffer is full too.
    assert_eq!(pool.full_buffers(), 2);
}

#[test]
fn a_share_of_full_buffers_asks_for_cleaning() {
    let mut pool = pool();
    pool.set_limit_bytes(10 * PAGE_BYTES);
    for buffers in 0..10 {
        assert_eq!(pool.should_clean(50), buffers >= 5, "{buffers}");
        insert(&mut pool, 4096);
    }
    assert!(pool.insert(&[1]).is_none());
    assert!(pool.should_clean(100));
    assert!(pool.begin_cleaning());
    assert!(!pool.should_clean(50), "a second cleaning beside the first");
}

#[test]
fn cleaned_buffers_get_nothing_and_come_back_whole() {
    let mut pool = pool();
    let full: Vec<_> = (0..8).map(|_| insert(&mut pool, 1000)).collect();
    let roomy = insert(&mut pool, 1000);
    assert!(pool.begin_cleaning());
    assert!(full.iter().all(|&handle| pool.is_being_cleaned(handle)));
    assert!(!pool.is_being_cleaned(roomy));
    // There is room for this in the first buffer, which is being written.
    assert_eq!(buffer_of(insert(&mut pool, 64)), buffer_of(roomy));
    for handle in &full[..4] {
        pool.remove(*handle, 1000);
    }
    assert_eq!(pool.held_bytes(), 2 * PAGE_BYTES);
    // The write of the second failed.
    pool.end_cleaning();
    assert!(!pool.is_being_cleaned(full[4]));
    assert_eq!(buffer_of(insert(&mut pool, 64)), buffer_of(full[4]));
}

#[test]
fn without_a_full_buffer_the_one_that_holds_most_is_being_cleaned() {
    let mut pool = pool();
    assert!(!pool.begin_cleaning());
    let (most, least) = (insert(&mut pool, 2300), insert(&mut pool, 2200));
    for _ in 0..100 {
        insert(&mut pool, 16);
    }
    assert_eq!(pool.full_buffers(), 0);
    assert!(pool.begin_cleaning());
    assert!(pool.is_being_cleaned(most) && !pool.is_being_cleaned(least));
}

#[test]
fn counts_of_full_buffers_follow_inserts_and_removes() {
    let mut owner = Owner::new(Box::new(pool()));
    let mut random = random();
    for round in 0..4000 {
        if owner.objects.len() < 100 || (random.usize(..2) == 0 && owner.objects.len() < 200) {
            owner.insert(random.usize(100..=2000));
        } else {
            owner.remove(random.usize(..owner.objects.len()));
        }
        if round % 16 == 0 {
            owner.pool.begin_cleaning();
        }
        let pool = &owner.pool;
        let held = (0..pool.frames.touched()).map(|frame| pool.buffer(frame));
        let is_full = |buffer: &Buffer| buffer.tail() * GRAIN_BYTES < pool.recent.mean_bytes();
        let full = held.filter(|buffer| buffer.taken > 0).filter(is_full).count();
        assert_eq!(pool.full_buffers(), full);
    }
}
