//! What is the buckets' own: the length of chains, where they lie, and which pages come back.

extern crate std;
use super::*;
use crate::Heap;
use crate::testing::{MIB, content};
use std::vec::Vec;

const BUCKET_BYTES: usize = 256;
const PAGE_BUCKETS: usize = PAGE_BYTES / BUCKET_BYTES;

#[test]
fn an_object_takes_as_many_buckets_as_its_length_needs() {
    for (len, buckets) in [(1, 1), (256, 1), (257, 2), (3840, 15), (3841, 16), (4096, 16)] {
        let mut pool = Buckets::reserve(&Heap, MIB, BUCKET_BYTES).unwrap();
        pool.insert(&[7; OBJECT_BYTES_MAX][..len]).unwrap();
        assert_eq!(pool.held_bytes(), PAGE_BYTES);
        let lost = pool.fragmentation();
        assert_eq!(lost.internal_bytes, buckets * BUCKET_BYTES - len);
        assert_eq!(lost.external_bytes, (PAGE_BUCKETS - buckets) * BUCKET_BYTES);
    }
}

#[test]
fn an_object_lies_in_whatever_buckets_are_free() {
    let mut pool = Buckets::reserve(&Heap, MIB, BUCKET_BYTES).unwrap();
    let small: Vec<_> = (0..64).map(|_| pool.insert(&[1; BUCKET_BYTES]).unwrap()).collect();
    for handle in small.iter().step_by(4) {
        pool.remove(*handle, BUCKET_BYTES);
    }
    let held_bytes = pool.held_bytes();
    let bytes = content(1, OBJECT_BYTES_MAX);
    let handle = pool.insert(&bytes).unwrap();
    assert_eq!(pool.held_bytes(), held_bytes);
    assert_eq!(pool.fragmentation().external_bytes, 0);
    assert_eq!(pool.read(handle, bytes.len(), &mut [0; OBJECT_BYTES_MAX]), bytes);
}

#[test]
fn a_page_comes_back_with_its_last_bucket() {
    let mut pool = Buckets::reserve(&Heap, MIB, BUCKET_BYTES).unwrap();
    let handles: Vec<_> = (0..8).map(|_| pool.insert(&[1; 1024]).unwrap()).collect();
    assert_eq!(pool.held_bytes(), 2 * PAGE_BYTES);
    for handle in &handles[..3] {
        pool.remove(*handle, 1024);
    }
    assert_eq!(pool.held_bytes(), 2 * PAGE_BYTES);
    pool.remove(handles[3], 1024);
    assert_eq!(pool.held_bytes(), PAGE_BYTES);
    assert_eq!(pool.fragmentation(), Fragmentation::default());
}

#[test]
fn nothing_is_ever_worth_a_compaction() {
    let mut pool = Buckets::reserve(&Heap, MIB, BUCKET_BYTES).unwrap();
    let handles: Vec<_> = (0..256).map(|_| pool.insert(&[1; 4000]).unwrap()).collect();
    for handle in handles.iter().skip(1) {
        pool.remove(*handle, 4000);
    }
    assert!(!pool.should_compact() && !pool.begin_compaction());
    assert_eq!(pool.relocate(handles[0], 4000), None);
}

#[test]
fn buckets_have_the_length_that_was_asked_for() {
    let bytes = content(1, 1000);
    for bucket_bytes in [64, 128, 512, 1024, 2048] {
        let mut pool = Buckets::reserve(&Heap, MIB, bucket_bytes).unwrap();
        let handles: Vec<_> = (0..40).map(|_| pool.insert(&bytes).unwrap()).collect();
        for handle in &handles {
            assert_eq!(pool.read(*handle, 1000, &mut [0; OBJECT_BYTES_MAX]), bytes);
        }
        let lost = pool.fragmentation();
        assert_eq!(lost.internal_bytes, 40 * (1000usize.next_multiple_of(bucket_bytes) - 1000));
        handles.iter().for_each(|handle| pool.remove(*handle, 1000));
        assert_eq!(pool.held_bytes(), 0);
    }
    for bucket_bytes in [0, 32, 96, 4096] {
        assert!(Buckets::reserve(&Heap, MIB, bucket_bytes).is_none());
    }
}
