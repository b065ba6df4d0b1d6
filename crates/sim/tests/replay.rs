//! Replays of small traces: counts by hand, every page comes back, the bound is a bound.
//!
//! The seed of the random tests is taken from ZPAGER_SEED.

use std::collections::HashMap;

use zpager_codec::CodecId;
use zpager_policy::{DesignId, Key, Settings, Variant};
use zpager_seed::{Random, random};
use zpager_sim::cost::{DISKS, Disk, codec_costs};
use zpager_sim::trace::{Contents, Header, Reader, Reference, Writer};
use zpager_sim::*;

const PAGE_BYTES: u64 = 4096;
const MIB: u64 = 1 << 20;
const SSD: Disk = DISKS[1];

/// What a program does.
#[derive(Debug, Clone, Copy)]
enum Access {
    Read(u64),
    /// What the page shrinks to is given; 0 is same-filled.
    Write(u64, u16),
    Release(u64, u64),
}

use Access::{Read, Release, Write};

fn trace(accesses: impl IntoIterator<Item = Access>) -> Vec<u8> {
    let header = Header {
        page_bytes: 4096,
        window_pages: 1,
        origin: "a test".into(),
        command: Vec::new(),
        codecs: vec!["word".into(), "lz4".into()],
    };
    let mut writer = Writer::new(Vec::new(), &header).expect("a header");
    for access in accesses {
        let reference =
            |page, is_written, contents| Reference { page, is_fresh: false, is_written, contents };
        match access {
            Read(page) => writer.reference(&reference(page, false, Contents::Unchanged)),
            Write(page, 0) => writer.reference(&reference(page, true, Contents::SameFilled)),
            Write(page, size) => {
                let sizes = [4096, size];
                writer.reference(&reference(page, true, Contents::Sizes(&sizes)))
            }
            Release(first, pages) => writer.release(first, pages),
        }
        .expect("sound");
    }
    writer.finish().expect("written")
}

fn reader(bytes: &[u8]) -> Reader<&[u8]> {
    Reader::new(bytes).expect("a trace")
}

fn survey_of(bytes: &[u8]) -> Survey {
    survey(reader(bytes)).expect("sound")
}

/// Replays and checks what holds of every outcome.
fn outcome(bytes: &[u8], survey: &Survey, mut memory: impl Memory) -> Outcome {
    replay(reader(bytes), &survey.layout, &mut memory).expect("every page comes back");
    let outcome = memory.outcome();
    let served = outcome.resident_hits + outcome.compressed_hits + outcome.spilled_faults;
    assert_eq!(served + outcome.fresh_faults, outcome.references);
    assert_eq!(outcome.references, survey.references);
    outcome
}

fn none(bytes: &[u8], budget_bytes: u64) -> Outcome {
    let survey = survey_of(bytes);
    outcome(bytes, &survey, Uncompressed::new(&survey.layout, budget_bytes, SSD))
}

/// The default design with LZ4.
fn compressed(bytes: &[u8], budget_bytes: u64) -> Outcome {
    design(DesignId::Default, bytes, budget_bytes)
}

/// A design with LZ4.
fn design(id: DesignId, bytes: &[u8], budget_bytes: u64) -> Outcome {
    with(Settings::of(id), bytes, budget_bytes)
}

/// A design as it was set, with LZ4.
fn with(settings: Settings, bytes: &[u8], budget_bytes: u64) -> Outcome {
    on_disk(SSD, settings, bytes, budget_bytes)
}

/// The same on a disk.
fn on_disk(disk: Disk, mut settings: Settings, bytes: &[u8], budget_bytes: u64) -> Outcome {
    let survey = survey_of(bytes);
    settings.set(settings.design().codec_key(), CodecId::Lz4 as u64).expect("a codec");
    let setup =
        Setup { budget_bytes, settings, column: 1, dense_column: None, repeats_column: None, disk };
    outcome(bytes, &survey, Compressed::new(&survey.layout, &setup).expect("memory"))
}

fn belady(bytes: &[u8], bound: Bound) -> Outcome {
    let survey = survey_of(bytes);
    let future = Future::read(reader(bytes), &survey).expect("short");
    outcome(bytes, &survey, Belady::new(&survey.layout, &future, bound))
}

/// Demand paging, nothing compressed.
fn plain(budget_bytes: u64) -> Bound {
    Bound { budget_bytes, share: SHARE_PARTS, codec: None, column: 0, disk: SSD, is_ahead: false }
}

/// Loops, streams and single pages of `pages` pages, read and written.
fn program(random: &mut Random, pages: u64, turns: u64) -> Vec<Access> {
    let mut accesses = Vec::new();
    for _ in 0..turns {
        let (from, count, kind) = (random.u64(..pages), 1 + random.u64(..600), random.u64(..8));
        let size = [0, 40, 700, 1900, 4096][random.u64(..5) as usize];
        let range = from..(from + count).min(pages);
        match kind {
            0..3 => accesses.extend(range.map(|page| Write(page, size))),
            3 => accesses.extend(range.map(Read)),
            4 => accesses.extend(range.rev().map(Read)),
            5 => accesses.extend((0..count).map(|_| Read(random.u64(..pages)))),
            6 => accesses.extend((0..count).map(|_| Write(random.u64(..pages), size))),
            _ => accesses.push(Release(from, 1 + random.u64(..50))),
        }
    }
    accesses
}

/// Room for `pages` pages of which `known` are known.
fn room(pages: u64, known: u64) -> u64 {
    pages * PAGE_BYTES + known * 8
}

#[test]
fn a_loop_misses_every_time_without_compression() {
    // 96 pages in turn in room for 64: the least recently used page is always the next one.
    let turns = 5;
    let accesses = (0..turns).flat_map(|turn| {
        (0..96).map(move |page| if turn == 0 { Write(page, 500) } else { Read(page) })
    });
    let found = none(&trace(accesses), room(64, 96));
    assert_eq!((found.references, found.resident_hits, found.fresh_faults), (480, 0, 96));
    assert_eq!((found.spilled_faults, found.swapped_in_pages), (384, 384));
    // 480 came, 64 are there, 32 leave at a time; each page is written once, 32 at a time.
    assert_eq!(found.swapped_out_pages, 416);
    assert_eq!((found.store_writes, found.store_written_bytes), (3, 96 * PAGE_BYTES));
    assert_eq!((found.store_reads, found.store_read_bytes), (384, 384 * PAGE_BYTES));
    assert_eq!(found.peak_bytes, room(64, 96));
    // Slots are in the order of the pages, so a read goes on where the last one ended, but for the
    // first of each turn.
    let transfer_ns = |bytes: u64| bytes * 1_000_000_000 / SSD.bytes_per_second;
    let reads_ns = 4 * SSD.read_ns + 380 * SSD.next_ns + 384 * transfer_ns(PAGE_BYTES);
    let writes_ns = found.ledger.store_ns - reads_ns;
    assert!(writes_ns > 3 * transfer_ns(32 * PAGE_BYTES) && writes_ns < 3 * 400_000, "{writes_ns}");
}

#[test]
fn what_is_written_again_is_written_to_the_store_again() {
    let accesses = (0..3).flat_map(|_| (0..96).map(|page| Write(page, 500)));
    let found = none(&trace(accesses), room(64, 96));
    assert_eq!((found.swapped_out_pages, found.store_written_bytes), (224, 224 * PAGE_BYTES));
}

#[test]
fn what_does_not_shrink_is_written_to_the_store_once_until_it_is_changed() {
    let turns = |accesses: fn(u64) -> Access| {
        let first = (0..1500).map(|page| Write(page, 4096));
        trace(first.chain((0..5).flat_map(move |_| (0..1500).map(accesses))))
    };
    let read = compressed(&turns(Read), 4 * MIB);
    assert!(read.swapped_out_pages > 4000, "{read:?}");
    assert!(read.store_written_bytes < 2 * 1500 * (PAGE_BYTES + 8), "{read:?}");
    let changed = compressed(&turns(|page| Write(page, 4096)), 4 * MIB);
    let left_bytes = changed.swapped_out_pages * PAGE_BYTES;
    assert!(changed.store_written_bytes > left_bytes / 4 * 3, "{changed:?}");
    // What shrinks goes by way of the pool each time.
    let shrunk = compressed(&turns(|page| Write(page, 3000)), 4 * MIB);
    let codec = codec_costs(CodecId::Lz4);
    assert!(shrunk.ledger.coding_ns >= shrunk.swapped_out_pages * codec.compress_ns, "{shrunk:?}");
}

/// Two streams in turns, each of a few pages of every cluster that they come to.
#[test]
fn a_disk_with_an_arm_is_read_in_clusters() {
    const PAGES: u64 = 24 << 10;
    const STRIDE: u64 = 20;
    let stream = |from: u64, turn: u64| (from + turn..from + PAGES / 2).step_by(STRIDE as usize);
    let both =
        |turn| stream(0, turn).zip(stream(PAGES / 2, turn)).flat_map(|(one, two)| [one, two]);
    let turns = (0..STRIDE).flat_map(both);
    let bytes = trace((0..PAGES).chain(turns).map(|page| Write(page, 4096)));
    let [hdd, ssd] = [DISKS[0], SSD].map(|disk| {
        let found = on_disk(disk, Settings::of(DesignId::Default), &bytes, 64 * MIB);
        println!("on {}: {found:?}", disk.name);
        found
    });
    let read_bytes = |found: &Outcome| found.store_read_bytes / found.store_reads;
    assert!(read_bytes(&hdd) > 2 * read_bytes(&ssd));
    assert!(hdd.store_reads * 3 < ssd.store_reads * 2);
}

#[test]
fn what_fits_costs_its_first_faults_alone() {
    let accesses: Vec<Access> =
        (0..10).flat_map(|_| (0..300).map(|page| Write(page, 500))).collect();
    let bytes = trace(accesses);
    for found in [none(&bytes, 4 * MIB), compressed(&bytes, 4 * MIB)] {
        assert_eq!((found.swapped_out_pages, found.store_writes, found.store_reads), (0, 0, 0));
        assert_eq!((found.compressed_hits, found.spilled_faults), (0, 0));
        assert_eq!(found.ledger.coding_ns, 0);
    }
}

#[test]
fn what_fits_compressed_never_meets_the_store() {
    // 8 MiB that shrink to an eighth, in 4 MiB.
    let accesses = (0..4).flat_map(|_| (0..2048).map(|page| Write(page, 512)));
    let found = compressed(&trace(accesses), 4 * MIB);
    assert_eq!((found.store_writes, found.store_reads, found.spilled_faults), (0, 0, 0));
    assert!(found.compressed_hits > 0 && found.peak_bytes <= 4 * MIB + MIB / 4, "{found:?}");
    // All that came back was compressed before, and each costs what the codec costs.
    let codec = codec_costs(CodecId::Lz4);
    let coding_ns =
        found.swapped_out_pages * codec.compress_ns + found.swapped_in_pages * codec.decompress_ns;
    assert_eq!(found.ledger.coding_ns, coding_ns);
}

#[test]
fn same_filled_pages_take_no_room() {
    let accesses = (0..3).flat_map(|_| (0..20_000).map(|page| Write(page, 0)));
    let found = compressed(&trace(accesses), 4 * MIB);
    assert_eq!((found.store_writes, found.ledger.coding_ns), (0, 0));
    assert_eq!(found.same_filled_pages, found.swapped_out_pages);
}

/// Faults of demand paging that evicts what is wanted last, found by looking.
fn belady_by_looking(pages: &[u64], room: usize) -> u64 {
    let mut resident: Vec<u64> = Vec::new();
    let mut faults = 0;
    for (now, page) in pages.iter().enumerate() {
        if resident.contains(page) {
            continue;
        }
        faults += 1;
        if resident.len() == room {
            let wanted = |page: &u64| {
                let later = pages[now..].iter().position(|next| next == page);
                later.map_or((true, *page), |after| (false, after as u64))
            };
            let last = (0..room).max_by_key(|&at| wanted(&resident[at])).expect("not empty");
            resident.swap_remove(last);
        }
        resident.push(*page);
    }
    faults
}

#[test]
fn the_bound_evicts_what_is_wanted_last() {
    let mut random = random(1966);
    for case in 0..60 {
        let (known, room_pages) = (2 + random.u64(..60), 1 + random.u64(..20));
        let pages: Vec<u64> = (0..400)
            .map(|at| match case % 2 {
                0 => random.u64(..known),
                _ => at % known,
            })
            .collect();
        let bytes = trace(pages.iter().map(|&page| Read(page)));
        let found = belady(&bytes, plain(room(room_pages, 120)));
        let faults = found.fresh_faults + found.spilled_faults;
        assert_eq!(faults, belady_by_looking(&pages, room_pages as usize), "case {case}");
    }
}

#[test]
fn no_replacement_has_fewer_faults_than_the_bound() {
    let mut random = random(1966);
    for _ in 0..40 {
        let budget_bytes = room(33 + random.u64(..300), 512);
        let bytes = trace(program(&mut random, 512, 30));
        let bound = belady(&bytes, plain(budget_bytes));
        let found = none(&bytes, budget_bytes);
        assert_eq!(bound.fresh_faults, found.fresh_faults);
        assert!(bound.spilled_faults <= found.spilled_faults, "{bound:?} {found:?}");
    }
}

#[test]
fn every_page_comes_back_in_every_memory_and_the_same_way_each_time() {
    let mut random = random(1966);
    for _ in 0..4 {
        let bytes = trace(program(&mut random, 4096, 60));
        let budget_bytes = 2 * MIB + random.u64(..4) * MIB;
        for id in DesignId::ALL {
            let found = design(id, &bytes, budget_bytes);
            // Buffers and tables that grow while pages come are not known of beforehand.
            assert!(found.peak_bytes <= budget_bytes + MIB / 4, "{id:?} {found:?}");
            assert_eq!(design(id, &bytes, budget_bytes), found, "{id:?}");
        }
        assert_eq!(none(&bytes, budget_bytes), none(&bytes, budget_bytes));
        for share in SHARES {
            let bound = Bound {
                share,
                codec: Some(CodecId::Lz4),
                column: 1,
                is_ahead: true,
                ..plain(budget_bytes)
            };
            let found = belady(&bytes, bound);
            assert!(found.peak_bytes <= budget_bytes, "{found:?}");
        }
    }
}

/// castro 4.4: a pool that is locked for a moment, or made smaller, writes as little as the paper's.
#[test]
fn the_less_evidence_an_adaptive_pool_wants_the_more_it_writes() {
    let mut random = random(1966);
    let first = (0..2000).map(|page| Write(page, 2000));
    let bytes = trace(first.chain((0..40_000).map(|_| Read(random.u64(..2000)))));
    let written = [Variant::Sluggish, Variant::Reference, Variant::Aggressive].map(|variant| {
        let number = Variant::ALL.iter().position(|one| *one == variant).expect("one of all");
        let mut settings = Settings::of(DesignId::Castro);
        settings.set(Key::CastroVariant, number as u64).expect("a variant");
        with(settings, &bytes, 6 * MIB).store_written_bytes
    });
    println!("{written:?}");
    assert!(written[0] < written[1] && written[1] < written[2], "{written:?}");
}

#[test]
fn a_page_given_back_comes_as_zeros() {
    let mut accesses: Vec<Access> = (0..2000).map(|page| Write(page, 3000)).collect();
    accesses.push(Release(0, 2000));
    accesses.extend((0..2000).map(Read));
    let bytes = trace(accesses);
    for found in [none(&bytes, 2 * MIB), compressed(&bytes, 2 * MIB)] {
        assert_eq!(
            (found.compressed_hits, found.spilled_faults, found.swapped_in_pages),
            (0, 0, 0)
        );
    }
}

/// What the survey says is what is there.
#[test]
fn a_survey_counts_references_and_pages() {
    let mut random = random(1966);
    let accesses = program(&mut random, 5000, 50);
    let mut seen: HashMap<u64, u64> = HashMap::new();
    for access in &accesses {
        if let Read(page) | Write(page, _) = access {
            *seen.entry(*page).or_default() += 1;
        }
    }
    let survey = survey_of(&trace(accesses));
    assert_eq!((survey.pages, survey.references), (seen.len() as u64, seen.values().sum()));
    assert_eq!(survey.header.codecs, ["word", "lz4"]);
}
