//! What is the buckets' own: the length of chains, where they lie, and which pages come back.

extern crate std;
use super::*;
use crate::Heap;
use crate::testing::{MIB, content};
use std::vec::Vec;

#[test]
fn an_object_takes_as_many_buckets_as_its_length_needs() {
    for (len, buckets) in [(1, 1), (256, 1), (257, 2), (3840, 15), (3841, 16), (4096, 16)] {
        let mut pool = Buckets::reserve(&Heap, MIB).unwrap();
        pool.insert(&[7; OBJECT_BYTES_MAX][..len]).unwrap();
        assert_eq!(pool.held_bytes(), PAGE_BYTES);
        let lost = pool.fragmentation();
        assert_eq!(lost.internal_bytes, buckets * BUCKET_BYTES - len);
        assert_eq!(lost.external_bytes, (PAGE_BUCKETS - buckets) * BUCKET_BYTES);
    }
}

#[test]
fn an_object_lies_in_whatever_buckets_are_free() {
    let mut pool = Buckets::reserve(&Heap, MIB).unwrap();
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
    let mut pool = Buckets::reserve(&Heap, MIB).unwrap();
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
    let mut pool = Buckets::reserve(&Heap, MIB).unwrap();
    let handles: Vec<_> = (0..256).map(|_| pool.insert(&[1; 4000]).unwrap()).collect();
    for handle in handles.iter().skip(1) {
        pool.remove(*handle, 4000);
    }
    assert!(!pool.should_compact() && !pool.begin_compaction());
    assert_eq!(pool.relocate(handles[0], 4000), None);
}
