//! What a million swap-outs leave behind in the order and the pool, without the codec's time.

extern crate std;

use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;
use zpager_policy::{DesignId, List, Settings};
use zpager_pool::Heap;
use zpager_seed::random;
use zpager_store::Memory;

fn cache(id: DesignId) -> Cache<Heap, Memory> {
    let design = Design::new(&Settings::of(id), 16 << 20);
    Cache::new(Heap, &design, 16 << 20, None).expect("heap")
}

/// Checks that every page has the bytes it had, one good entry in its order, and its mark.
fn check(cache: &mut Cache<Heap, Memory>, lengths: &BTreeMap<PageNumber, usize>) {
    let mut pieces = [0; 4096];
    for (&page, &length) in lengths {
        let entry = cache.index.get(page);
        let State::Compressed { len, handle, .. } = entry.state() else {
            panic!("page {page} is not in the pool")
        };
        assert_eq!(len, length);
        let bytes = cache.pool.read(handle, len, &mut pieces);
        assert!(bytes.iter().all(|byte| *byte == page as u8));
        assert_eq!(entry.mark(), cache.compressed.mark());
    }
    cache.compact();
    let payload_bytes: usize = lengths.values().sum();
    assert_eq!(cache.pool.payload_bytes(), payload_bytes);
}

/// Most pages are the same few, which come back to their old places: their old entries look good.
#[test]
fn the_order_stays_short_under_churn() {
    const PAGES: u64 = 1000;
    let (mut cache, mut random) = (cache(DesignId::Default), random(2003));
    let mut lengths = BTreeMap::new();
    for step in 0..1_000_000 {
        let page = if random.u64(..4) == 0 { random.u64(..PAGES) } else { random.u64(..3) };
        cache.forget(page);
        let length = if page < 3 { 100 } else { 30 + random.u64(..2000) as usize };
        assert!(cache.index.set(page, Entry::new(State::Resident { turn: 0, frame: 0 })));
        assert!(cache.place(page, CodecId::Lz4, &[page as u8; 4096][..length]));
        lengths.insert(page, length);
        assert!(cache.compressed.len() <= lengths.len() + 4096 + 1);
        if step % 50_000 == 0 {
            check(&mut cache, &lengths);
        }
    }
    sweep(&mut cache.compressed, &mut cache.index, |_, _| None);
    assert_eq!(cache.compressed.len(), lengths.len());
    check(&mut cache, &lengths);
}

/// Every page is counted to one list, the young ones to the expense list, as many as the pool takes
/// pages of RAM, whatever comes, goes, is renamed or moved.
#[test]
fn the_lists_are_those_of_the_pages_that_are_there() {
    const PAGES: u64 = 4000;
    let (mut cache, mut random) = (cache(DesignId::Castro), random(2003));
    let mut profits = 0;
    for step in 0..60_000 {
        let page = if random.u64(..4) == 0 { random.u64(..PAGES) } else { random.u64(..30) };
        cache.forget(page);
        if random.u64(..3) > 0 {
            assert!(cache.index.set(page, Entry::new(State::Resident { turn: 0, frame: 0 })));
            assert!(cache.place(
                page,
                CodecId::Lz4,
                &[1; 4096][..30 + random.u64(..1500) as usize]
            ));
        } else {
            let from = random.u64(..PAGES);
            assert!(!cache.index.get(page).is_absent() || cache.rename(from, page));
        }
        cache.settle_lists();
        if step % 1000 == 999 {
            cache.compact();
            (0..100).for_each(|_| cache.settle_lists());
            let lists: Vec<List> = (0..PAGES).filter_map(|page| cache.list(page)).collect();
            let expense = lists.iter().filter(|list| **list == List::Expense).count();
            assert_eq!(cache.lists.expense_pages(), expense);
            assert_eq!(expense, lists.len().min(cache.pool.held_bytes() / PAGE_BYTES));
            check_border(&cache);
            profits += lists.len() - expense;
        }
    }
    assert!(profits > 0, "all of it was expense");
}

/// No page of which the order knows one place alone is counted to the profit list behind the
/// border. Before it one may be counted to the expense list, as it has the turn of an earlier stay.
fn check_border(cache: &Cache<Heap, Memory>) {
    let order = &cache.compressed;
    let mut places = BTreeMap::<PageNumber, Vec<(usize, Entry)>>::new();
    for position in order.positions() {
        if let Some((entry, ..)) = in_pool(&cache.index, order.at(position), order.pages) {
            places.entry(order.at(position).page()).or_default().push((position, entry));
        }
    }
    for places in places.values().filter(|places| places.len() == 1) {
        let (position, entry) = places[0];
        assert!(entry.list() == List::Expense || position < order.watched, "{position}");
    }
}
