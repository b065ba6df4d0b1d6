//! The cache against a plain map whatever the store does, and its bounds on RAM.
//!
//! The seed of the random tests that are not proptest's own is taken from ZPAGER_SEED.

mod model;

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use model::{Content, Setting, Step};
use proptest::prelude::*;
use zpager_cache::{
    Cache, Cleaned, Entry, PageNumber, Placed, Reads, Seen, SpillError, State, Store,
};
use zpager_codec::{CodecId, Page};
use zpager_policy::{DesignId, StoreCodec, StoreLayout};
use zpager_pool::Heap;
use zpager_seed::random;
use zpager_store::{Blocks, CLUSTER_BYTES, Clusters, Errno, Faulting, Memory};

const MIB: usize = 1 << 20;

/// What may compress pages once more that leave for the store.
const STORE_CODECS: [StoreCodec; 4] = [
    StoreCodec::None,
    StoreCodec::Auto,
    StoreCodec::Always(CodecId::Zstd),
    StoreCodec::Always(CodecId::ZstdDictionary),
];

fn settings() -> impl Strategy<Value = Setting> {
    let codec = prop::sample::select(CodecId::ALL.to_vec());
    let pool_bytes_max = prop::sample::select(vec![64usize << 10, 1 << 20]);
    let one_in = prop_oneof![Just(0), 2u64..20];
    let design = prop::sample::select(DesignId::ALL.to_vec());
    let store_codec = prop::sample::select(STORE_CODECS.to_vec());
    let ways = (any::<[bool; 2]>(), store_codec);
    (design, codec, pool_bytes_max, any::<u64>(), one_in, ways).prop_map(
        |(design, codec, pool_bytes_max, seed, one_in, ([behind, encrypts], store_codec))| {
            Setting { design, codec, pool_bytes_max, seed, one_in, behind, encrypts, store_codec }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]
    #[test]
    fn as_a_plain_map(
        setting in settings(),
        steps in prop::collection::vec(any::<[u8; 4]>().prop_map(Step::from_bytes), 1..120),
    ) {
        model::run(setting, steps);
    }
}

fn clusters(count: usize) -> Clusters<'static> {
    let words = Clusters::words_for((count * CLUSTER_BYTES) as u64);
    Clusters::new(Box::leak((0..words).map(|_| AtomicU64::new(0)).collect()))
}

fn cache(codec: CodecId, pool_bytes_max: usize, count: usize) -> Cache<Heap, Memory> {
    cache_in(clusters(count), codec, pool_bytes_max)
}

fn cache_in(
    clusters: Clusters<'static>,
    codec: CodecId,
    pool_bytes_max: usize,
) -> Cache<Heap, Memory> {
    let store = Store { blocks: Memory::default(), clusters };
    let design = model::design(DesignId::Default, codec);
    Cache::new(Heap, &design, pool_bytes_max, Some(store)).expect("heap")
}

fn swap_out<B: Blocks>(cache: &mut Cache<Heap, B>, number: PageNumber, page: &Page) -> Placed {
    assert!(cache.index.set(number, Entry::new(State::Resident { turn: 0, frame: 0 })));
    cache.swap_out(number, page)
}

fn swap_in(cache: &mut Cache<Heap, Memory>, number: PageNumber) -> Page {
    let mut page = [Page::ZERO];
    assert_eq!(cache.swap_in(number, &mut page, false).expect("in the cache").pages, 1);
    let [page] = page;
    page
}

/// What page `number` is; it stays where it is.
fn look(cache: &mut Cache<Heap, Memory>, number: PageNumber) -> Page {
    let (mut bytes, mut page) = ([0; 4096], Page::ZERO);
    match cache.look(number, &mut bytes, &mut Reads::default()).expect("in the cache") {
        Seen::Absent => {}
        Seen::Filled(word) => page.words_mut().fill(word),
        Seen::Coded(codec, len) => {
            assert_eq!(codec, CodecId::Copy, "nothing was compressed");
            page.0[..len].copy_from_slice(&bytes[..len]);
        }
    }
    page
}

/// Pages that stay are there however often they are looked at, in the pool and in the store; one
/// that has no room is what it was.
#[test]
fn pages_that_stay_are_replaced_or_what_they_were() {
    const PAGES: u64 = 3000;
    let mut cache = cache(CodecId::Lz4, MIB, 16);
    let mut random = random(19_990);
    let mut model = std::collections::BTreeMap::<PageNumber, Page>::new();
    let (mut refused, mut looked) = (0, 0);
    for step in 0..40_000 {
        let number = random.u64(..PAGES);
        match random.u64(..8) {
            0 => {
                cache.forget(number);
                model.remove(&number);
            }
            1..4 => {
                let expected = model.get(&number).unwrap_or(&Page::ZERO);
                assert!(look(&mut cache, number).0 == expected.0, "page {number}");
                looked +=
                    u64::from(matches!(cache.index.get(number).state(), State::Spilled { .. }));
            }
            4 => {
                let word = 1 + random.u64(..3);
                if cache.replace(number, zpager_cache::Content::Filled(word)) == Placed::SameFilled
                {
                    model.entry(number).or_insert(Page::ZERO).words_mut().fill(word);
                }
            }
            _ => {
                let page = Page([step as u8 ^ number as u8; 4096]);
                match cache.replace(number, zpager_cache::Content::Coded(CodecId::Copy, &page.0)) {
                    Placed::NoRoom => refused += 1,
                    _ => drop(model.insert(number, page)),
                }
            }
        }
        if step % 64 == 0 {
            // Nothing is worth a write, or the store is full.
            let _ = cache.spill();
        }
    }
    assert!(refused > 0 && looked > 0, "{refused} refused, {looked} read");
    for number in 0..PAGES {
        let expected = model.get(&number).unwrap_or(&Page::ZERO);
        assert!(look(&mut cache, number).0 == expected.0, "page {number}");
        cache.forget(number);
    }
    assert_eq!((cache.spilled_pages(), cache.payload_bytes(), cache.pooled_pages()), (0, 0, 0));
}

/// A page that goes out and comes back lies where it lay before, so that its old entry in the
/// order looks good; it must leave once all the same.
#[test]
fn a_page_at_its_old_place_leaves_once() {
    let out = Step::SwapOut { from: 0, count: 40, kind: 3 };
    let back = Step::SwapIn { from: 0, count: 40, keep: false };
    let (design, codec) = (DesignId::Default, CodecId::Lz4);
    let (behind, encrypts) = (false, false);
    let store_codec = StoreCodec::None;
    let (pool_bytes_max, seed, one_in) = (MIB, 0, 0);
    let setting =
        Setting { design, codec, pool_bytes_max, seed, one_in, behind, encrypts, store_codec };
    model::run(setting, [out, back, out, back, out, Step::Spill]);
    let there = Step::Rename { from: 0, to: 100, count: 40 };
    let and_back = Step::Rename { from: 100, to: 0, count: 40 };
    model::run(setting, [out, there, and_back, there, and_back, Step::Spill]);
}

/// A cluster of which all records are freed while it is on its way is room again once it is there, for
/// a store that was full.
#[test]
fn an_emptied_cluster_is_room_once_it_is_written() {
    let out = |from, count| Step::SwapOut { from, count, kind: 0 };
    let setting = Setting {
        design: DesignId::Hp,
        codec: CodecId::Copy,
        pool_bytes_max: 65536,
        seed: 10452894886144675458,
        one_in: 8,
        behind: true,
        encrypts: false,
        store_codec: StoreCodec::None,
    };
    let steps = [
        [out(98, 1), out(112, 27), out(140, 37), Step::Spill, Step::Spill],
        [out(0, 12), out(288, 63), out(232, 50), Step::Spill, Step::Spill],
        [
            Step::SwapIn { from: 177, count: 1, keep: false },
            out(418, 1),
            Step::Spill,
            out(0, 13),
            Step::Spill,
        ],
        [Step::Spill, Step::Forget { from: 418, count: 61 }, Step::Flush, Step::Spill, Step::Flush],
    ];
    model::run(setting, steps.concat());
}

/// What is alive in two clusters with holes is gathered into one: by one process, by one whose
/// relative has records there, by one whose relative is gone, and in a store that fails.
#[test]
fn what_is_gathered_is_what_it_was() {
    let (noise, mixed) = (3, 7);
    let fill = |kind| {
        let out = |from| Step::SwapOut { from, count: 64, kind };
        [out(0), Step::Spill, out(64), Step::Spill, out(128), Step::Spill]
    };
    let holes = [2, 66, 130].map(|from| Step::Forget { from, count: 50 });
    let more = [
        Step::SwapOut { from: 300, count: 64, kind: noise },
        Step::Spill,
        Step::SwapOut { from: 400, count: 64, kind: noise },
        Step::Spill,
        Step::SwapIn { from: 0, count: 3, keep: false },
    ];
    let (design, codec) = (DesignId::Default, CodecId::Lz4);
    for seed in 0..10 {
        let (behind, encrypts) = (seed % 2 == 1, seed % 3 == 2);
        let (pool_bytes_max, store_codec) = (MIB, STORE_CODECS[seed as usize % STORE_CODECS.len()]);
        for (kind, one_in) in [(noise, 0), (mixed, 0), (noise, 3), (mixed, 6)] {
            let setting = Setting {
                design,
                codec,
                pool_bytes_max,
                seed,
                one_in,
                behind,
                encrypts,
                store_codec,
            };
            let steps =
                |between: &[Step]| [&fill(kind)[..], &holes[..], between, &more[..]].concat();
            model::run(setting, steps(&[]));
            model::run(setting, steps(&[Step::Fork]));
            model::run(setting, steps(&[Step::Fork, Step::Exit]));
            // The store is full, and what is alive comes back to the pool.
            let fills: Vec<Step> = (0..6)
                .flat_map(|at| [Step::SwapOut { from: at * 64, count: 64, kind }, Step::Spill])
                .collect();
            let all_holes: Vec<Step> =
                (0..5).map(|at| Step::Forget { from: at * 64 + 2, count: 20 }).collect();
            model::run(setting, [&fills[..], &all_holes, &more].concat());
            let between = [Step::Fork, Step::Switch];
            model::run(setting, [&fills[..], &between, &all_holes, &more, &more].concat());
            let forked_before = [&fill(kind)[..], &[Step::Fork], &holes[..], &more[..]].concat();
            model::run(setting, forked_before);
        }
        if seed == 0 {
            assert!(model::cleanings() > 0, "nothing was gathered");
        }
    }
}

/// Steps in an order drawn by chance against a store that fails, stops short, tears, loses, alters,
/// misdirects and delays: what comes back is right, or is told to be lost.
#[test]
fn ten_thousand_faults() {
    const FAULTS: u64 = 10_000;
    let mut random = random(19_990);
    let (mut faults, mut lost_pages, mut runs) = (0, 0, 0);
    while faults < FAULTS {
        let pick = |ids: &[DesignId], drawn: u64| ids[drawn as usize % ids.len()];
        let codecs = [CodecId::Lz4, CodecId::Wk4x4, CodecId::Copy];
        let setting = Setting {
            // Every other run is of the design that does most.
            design: if runs % 2 == 0 { DesignId::Default } else { pick(&DesignId::ALL, runs / 2) },
            codec: codecs[random.u64(..3) as usize],
            pool_bytes_max: (64 << 10) << random.u64(..5),
            seed: random.u64(..u64::MAX),
            one_in: 1 + random.u64(..12),
            behind: random.u64(..2) == 0,
            encrypts: random.u64(..4) == 0,
            store_codec: STORE_CODECS[random.u64(..4) as usize],
        };
        println!("run {runs}: {setting:?}");
        let steps: Vec<Step> = (0..150)
            .map(|_| Step::from_bytes(core::array::from_fn(|_| random.u64(..256) as u8)))
            .collect();
        let ended = model::run(setting, steps);
        faults += ended.faults;
        lost_pages += ended.lost_pages;
        runs += 1;
    }
    println!("{faults} faults in {runs} runs: {lost_pages} pages lost, and told so");
    assert!(lost_pages > 0, "no fault mattered");
    assert!(model::drops() > 0, "no page left by its copy");
    assert!(model::copied() > 0, "no page of the pool was in the store as well");
    assert!(model::recompressions() > 0, "no page was compressed once more");
    assert!(model::taken() > 0, "no page was taken to be decoded elsewhere");
    assert!(model::made() > 0, "of no page bytes were made elsewhere");
    assert!(model::condensed() > 0, "no page was made shorter by the denser codec");
    assert!(model::sought() > 0, "no page was made shorter by the second codec");
    assert!(model::shelved() > 0, "no page was written ahead and came back from RAM");
}

/// Relatives that fill, write and read each other's clusters on a store that refuses one write in a
/// few: what one of them cannot write another one may have written, and no page is lost.
#[test]
fn no_refused_write_loses_a_page() {
    const RUNS: usize = 40;
    let mut random = random(19_990);
    let mut faults = 0;
    for run in 0..RUNS {
        let setting = Setting {
            design: DesignId::ALL[run % DesignId::ALL.len()],
            codec: if random.u64(..2) == 0 { CodecId::Lz4 } else { CodecId::Copy },
            pool_bytes_max: (64 << 10) << random.u64(..3),
            seed: random.u64(..u64::MAX),
            one_in: 2 + random.u64(..3),
            behind: random.u64(..2) == 0,
            encrypts: random.u64(..4) == 0,
            store_codec: STORE_CODECS[random.u64(..4) as usize],
        };
        println!("run {run}: {setting:?}");
        let mut steps: Vec<Step> = (0..150)
            .map(|_| Step::from_bytes(core::array::from_fn(|_| random.u64(..256) as u8)))
            .collect();
        for _ in 0..6 {
            let at = random.u64(..steps.len() as u64) as usize;
            steps.splice(at..at, [Step::Spill, Step::Fork, Step::Spill, Step::Switch, Step::Spill]);
        }
        let blocks = Faulting::refusing(Memory::default(), setting.seed, setting.one_in);
        let ended = model::run_on(blocks, setting, steps);
        assert_eq!(ended.lost_pages, 0);
        faults += ended.faults;
    }
    println!("{faults} writes refused");
    assert!(faults > 0, "no write was refused");
}

/// Relatives that leave for the store by what one of them has put there, whose clusters come to hold other pages soon.
#[test]
fn what_relatives_have_in_common_is_what_it_was() {
    const RUNS: usize = 40;
    let mut random = random(19_990);
    let mut draw = |below: u64| random.u64(..below);
    let common = model::common();
    for run in 0..RUNS {
        let setting = Setting {
            design: DesignId::ALL[run % DesignId::ALL.len()],
            codec: [CodecId::Lz4, CodecId::Word, CodecId::Copy][run % 3],
            pool_bytes_max: (64 << 10) << draw(4),
            seed: draw(u64::MAX),
            one_in: if run % 4 == 0 { 5 + draw(20) } else { 0 },
            behind: draw(2) == 0,
            encrypts: draw(4) == 0,
            store_codec: STORE_CODECS[draw(4) as usize],
        };
        println!("run {run}: {setting:?}");
        let steps: Vec<Step> = (0..300)
            .map(|_| {
                // The same runs of pages, so that relatives give what others have given.
                let (from, count) = (draw(8) * 64, 64);
                match draw(32) {
                    0..14 => Step::GiveCommon { from, count, many: draw(2) == 0 },
                    14..19 => Step::Switch,
                    19..22 => Step::Spill,
                    22..24 => Step::Flush,
                    24..27 => Step::SwapIn { from, count: 64, keep: draw(2) == 0 },
                    27 => Step::Forget { from, count },
                    28 => Step::Rename { from, to: draw(512), count: 16 },
                    29 | 30 => Step::Fork,
                    _ => Step::Exit,
                }
            })
            .collect();
        model::run(setting, steps);
    }
    let common = model::common() - common;
    println!("{common} pages left by the copies of relatives");
    assert!(common > 300, "few did");
}

/// Pages as a heap has them: pointers, small numbers, text-like noise of all lengths.
fn heap_page(seed: u64) -> Page {
    Content { kind: if seed.is_multiple_of(3) { 5 } else { 7 }, seed }.page()
}

#[test]
fn metadata_and_waste_stay_small_under_churn() {
    const PAGES: u64 = 20_000;
    let mut cache = cache(CodecId::Lz4, 64 * MIB, 200);
    let empty_bytes = cache.metadata_bytes();
    let index_bytes = PAGES.next_multiple_of(512) as usize * 8;
    let pages: Vec<Page> = (0..600).map(heap_page).collect();
    let mut random = random(19_990);
    let mut is_out = [false; PAGES as usize];
    for step in 0..200_000 {
        let number = random.u64(..PAGES);
        let out = &mut is_out[number as usize];
        if *out {
            cache.forget(number);
        } else {
            swap_out(&mut cache, number, &pages[random.u64(..600) as usize]);
        }
        *out = !*out;
        if step % 100 == 99 {
            let pooled_pages = is_out.iter().filter(|out| **out).count();
            let metadata_bytes = cache.metadata_bytes() - empty_bytes;
            // What is stale in the order costs up to 4096 words beside, and pages that do not
            // shrink are on their way to the store in two buffers.
            let allowed_bytes =
                index_bytes + pooled_pages * 16 + 4096 * 8 + 4 * 4096 + 2 * CLUSTER_BYTES;
            assert!(metadata_bytes <= allowed_bytes, "{metadata_bytes} for {pooled_pages} pages");
        }
        if step % 1000 == 999 && cache.payload_bytes() > 8 * MIB {
            let (held, payload) = (cache.pool_bytes(), cache.payload_bytes());
            assert!((held - payload) * 10 <= held, "{held} bytes hold {payload}");
        }
    }
    let (held, payload) = (cache.pool_bytes(), cache.payload_bytes());
    let pooled_pages = is_out.iter().filter(|out| **out).count();
    println!(
        "{pooled_pages} pages: {payload} bytes in {held}, {} bytes of metadata a page",
        (cache.metadata_bytes() - empty_bytes - index_bytes) as f64 / pooled_pages as f64
    );
    for number in 0..PAGES {
        cache.forget(number);
    }
    cache.index.release_absent(0, PAGES.next_multiple_of(512));
    // The pool keeps what describes its pages, 8 bytes each.
    let allowed_bytes = empty_bytes + held / 256 + 4096 * 8 + 4 * 4096 + 2 * CLUSTER_BYTES;
    assert!(cache.metadata_bytes() <= allowed_bytes);
    assert_eq!(cache.payload_bytes(), 0);
}

/// The RAM that leaves for the store is given back, so that a caller who spills down to a limit
/// spills no more than it takes.
#[test]
fn a_spilled_pool_is_as_dense_as_before() {
    let mut cache = cache(CodecId::Lz4, 64 * MIB, 200);
    let mut random = random(19_990);
    let pages: Vec<Page> = (0..600).map(heap_page).collect();
    for number in 0..20_000 {
        swap_out(&mut cache, number, &pages[random.u64(..600) as usize]);
    }
    while cache.payload_bytes() > 8 * MIB {
        cache.spill().expect("the store has room");
        let (held, payload) = (cache.pool_bytes(), cache.payload_bytes());
        assert!((held - payload) * 10 <= held, "{held} bytes hold {payload}");
    }
}

/// Pages of some ten bytes each: a write of them takes more records than any other.
#[test]
fn the_shortest_pages_leave_too() {
    for codec in CodecId::ALL.into_iter().filter(|&codec| codec != CodecId::Copy) {
        let mut cache = cache(codec, 8 * MIB, 80);
        let page = Content { kind: 2, seed: 5 }.page();
        let mut number = 0;
        while cache.payload_bytes() < 256 * 1024 {
            swap_out(&mut cache, number, &page);
            number += 1;
        }
        cache.spill().expect("enough for a write");
        assert!(cache.take_outgoing().bytes >= 128 * 1024);
        for number in 0..number {
            assert!(swap_in(&mut cache, number).0 == page.0);
        }
    }
}

/// Pages of which neither the raw nor the others are enough for a write, once the store has room
/// again that refused the raw ones.
#[test]
fn raw_and_compressed_pages_leave_together() {
    const FILL: u64 = 128 + (CLUSTER_BYTES / 4104) as u64;
    let mut cache = cache(CodecId::Lz4, MIB, 1);
    for number in 0..FILL + 30 {
        swap_out(&mut cache, number, &Content { kind: 3, seed: number }.page());
    }
    for number in FILL + 30..FILL + 60 {
        swap_out(&mut cache, number, &heap_page(number));
    }
    assert_eq!(cache.take_outgoing().refused, Some(SpillError::Full));
    assert!(cache.raw_bytes() >= 158 * 4096);
    assert!(cache.payload_bytes() >= 128 * 1024);
    (0..FILL).for_each(|number| cache.forget(number));
    assert!(cache.spill().expect("enough for a write") > 30);
}

/// What does not shrink leaves at once, and comes back from wherever its cluster is by then.
#[test]
fn many_pages_that_do_not_shrink_take_no_pool() {
    let mut cache = cache(CodecId::Lz4, MIB, 4);
    let content = |seed| Content { kind: 3, seed }.page();
    for number in 0..328 {
        assert_eq!(swap_out(&mut cache, number, &content(number)), Placed::Incompressible);
    }
    assert_eq!((cache.pool_bytes(), cache.unwritten_clusters().count()), (MIB / 2, 1));
    let written = cache.take_outgoing();
    assert_eq!((written.pages, written.writes, written.refused), (200, 3, None));
    for number in (0..328).rev() {
        assert!(swap_in(&mut cache, number).0 == content(number).0);
    }
    cache.flush().expect("nothing is left to write");
    assert_eq!(cache.take_outgoing().writes, 0);
}

/// Room that the program makes is used at once.
#[test]
fn a_full_store_that_is_emptied_takes_more() {
    let mut cache = cache(CodecId::Copy, 4 * MIB, 2);
    let fill = |cache: &mut Cache<Heap, Memory>| {
        for number in 0..400 {
            swap_out(cache, number, &Content { kind: 3, seed: number }.page());
        }
        cache.take_outgoing()
    };
    assert_eq!(fill(&mut cache).refused, Some(SpillError::Full));
    cache.spill().expect_err("full");
    (0..400).for_each(|number| cache.forget(number));
    assert!(fill(&mut cache).pages > 100);
}

/// Swaps pages out that do not shrink; those that the pool has no mind to keep leave for the store.
fn swap_out_noise<B: Blocks>(cache: &mut Cache<Heap, B>, numbers: core::ops::Range<PageNumber>) {
    for number in numbers {
        let placed = swap_out(cache, number, &Content { kind: 3, seed: number }.page());
        assert_eq!(placed, Placed::Incompressible);
    }
}

/// Brings spilled pages back, which are clean then.
fn bring_in_clean(cache: &mut Cache<Heap, Memory>, numbers: core::ops::Range<PageNumber>) {
    bring_in_clean_of(3, cache, numbers);
}

/// The same of pages of such content.
fn bring_in_clean_of(
    kind: u8,
    cache: &mut Cache<Heap, Memory>,
    numbers: core::ops::Range<PageNumber>,
) {
    for number in numbers {
        let mut page = [Page::ZERO];
        cache.swap_in(number, &mut page, true).expect("in the cache");
        assert!(page[0].0 == Content { kind, seed: number }.page().0, "page {number}");
        if !cache.index.get(number).is_absent() {
            cache.keep_copy(number, 0, 0);
        }
    }
}

#[test]
fn a_clean_page_leaves_without_a_write() {
    let mut cache = cache(CodecId::Copy, 4 * MIB, 16);
    swap_out_noise(&mut cache, 0..500);
    cache.flush().expect("room");
    cache.take_outgoing();
    for _ in 0..3 {
        bring_in_clean(&mut cache, 0..500);
        // The first pages were in the pool.
        assert!(cache.clean_pages() > 350);
        let clean: Vec<PageNumber> = (0..500).filter(|&page| cache.drop_clean(page)).collect();
        assert_eq!(cache.clean_pages(), 0);
        swap_out_noise(&mut cache, 0..500 - clean.len() as u64);
        cache.flush().expect("room");
        assert_eq!(cache.take_outgoing().bytes, 0);
    }
    // A page that was written leaves as any other.
    bring_in_clean(&mut cache, 400..401);
    assert!(cache.written(400) && !cache.drop_clean(400));
    assert_eq!(swap_out(&mut cache, 400, &Page([7; 4096])), Placed::SameFilled);
    assert_eq!(swap_in(&mut cache, 400).0, [7; 4096]);
}

/// Swaps pages out that shrink, as they are: what is clean stays that.
fn swap_out_heap(cache: &mut Cache<Heap, Memory>, numbers: core::ops::Range<PageNumber>) {
    for number in numbers {
        let placed = cache.swap_out(number, &Content { kind: 5, seed: number }.page());
        assert!(matches!(placed, Placed::Compressed(..)), "{placed:?}");
    }
}

/// Has the pool leave, all of which does so without a write, but for less than would be written; gives how many
/// pages did.
fn spill_copied(cache: &mut Cache<Heap, Memory>) -> usize {
    while cache.spill().is_ok() {}
    let outgoing = cache.take_outgoing();
    assert_eq!((outgoing.bytes, outgoing.pages), (0, 0), "nothing is written");
    outgoing.copied_pages
}

#[test]
fn a_clean_page_leaves_the_pool_without_a_write() {
    const PAGES: PageNumber = 2000;
    let mut cache = cache(CodecId::Word, 4 * MIB, 16);
    for number in 0..PAGES {
        let page = Content { kind: 5, seed: number }.page();
        assert!(matches!(swap_out(&mut cache, number, &page), Placed::Compressed(..)));
    }
    while cache.spill().is_ok() {}
    cache.flush().expect("room");
    cache.take_outgoing();
    let is_spilled = |cache: &Cache<Heap, Memory>, page: &PageNumber| {
        matches!(cache.index.get(*page).state(), State::Spilled { .. })
    };
    let spilled = (0..PAGES).take_while(|page| is_spilled(&cache, page)).count() as PageNumber;
    assert!(spilled > 500);
    (spilled..PAGES).for_each(|page| cache.forget(page));
    bring_in_clean_of(5, &mut cache, 0..spilled);
    // It is still clean when it comes back from the pool.
    for _ in 0..2 {
        swap_out_heap(&mut cache, 0..spilled);
        assert_eq!((cache.copied_pages(), cache.clean_pages()), (spilled as usize, 0));
        bring_in_clean_of(5, &mut cache, 0..spilled);
        assert_eq!((cache.copied_pages(), cache.clean_pages()), (0, spilled as usize));
    }
    // One that was written, came back as what may be, or moved on is as any other.
    assert!(cache.written(7));
    swap_out_heap(&mut cache, 0..spilled);
    assert!(!cache.index.get(7).has_note() && cache.index.get(8).has_note());
    assert!(swap_in(&mut cache, 8).0 == Content { kind: 5, seed: 8 }.page().0);
    assert!(cache.rename(9, 9_000_000) && cache.index.get(9_000_000).has_note());
    assert!(cache.pooled_copy(9).is_none() && cache.pooled_copy(8).is_none());
    cache.forget(10);
    let copied = cache.copied_pages();
    assert_eq!(copied, spilled as usize - 3);
    assert_eq!(cache.spilled_pages(), copied);
    assert!(swap_in(&mut cache, 9_000_000).0 == Content { kind: 5, seed: 9 }.page().0);
    cache.forget(7);
    let copied = copied - 1;
    let left = spill_copied(&mut cache);
    assert!(left > 500 && left + cache.copied_pages() == copied);
    bring_in_clean_of(5, &mut cache, 11..spilled);
    (0..11).for_each(|page| cache.forget(page));
    // A full store has them given up.
    swap_out_heap(&mut cache, 11..spilled);
    assert!(cache.give_up_copies() && cache.copied_pages() == 0 && cache.spilled_pages() == 0);
    (11..spilled).for_each(|page| assert!(!cache.index.get(page).has_note()));
    bring_in_clean_of(5, &mut cache, 11..spilled);
}

#[test]
fn a_store_full_of_copies_has_room() {
    let clusters = clusters(4);
    let mut first = cache_in(clusters, CodecId::Copy, 4 * MIB);
    swap_out_noise(&mut first, 0..128 + 250);
    bring_in_clean(&mut first, 0..128 + 250);
    assert!(first.clean_pages() >= 250 && clusters.used_clusters() == 4);
    // One cluster is not free: the batch that was open.
    swap_out_noise(&mut first, 1000..1128 + 180);
    assert_eq!((first.take_outgoing().refused, first.clean_pages()), (None, 0));

    // It keeps none for a while, but later on, and gives them up as well when a relative needs room.
    (1000..1308).for_each(|page| first.forget(page));
    for _ in 0..50 {
        (0..300).for_each(|page| first.forget(page));
        swap_out_noise(&mut first, 0..300);
        bring_in_clean(&mut first, 0..300);
    }
    assert!(first.clean_pages() > 0);
    let mut second = cache_in(clusters, CodecId::Copy, 4 * MIB);
    swap_out_noise(&mut second, 0..128 + 200);
    assert_eq!(second.take_outgoing().refused, Some(SpillError::Full));
    first.heed_relatives();
    assert_eq!(first.clean_pages(), 0);
}

/// Cleans the store, if it is time to.
fn clean<B: Blocks>(cache: &mut Cache<Heap, B>) -> Cleaned {
    let mut cleaned = Cleaned::default();
    let outcome = cache.clean(&mut cleaned);
    assert!(outcome == Err(SpillError::Nothing) || cleaned.pages > 0, "{outcome:?}");
    cleaned
}

/// Pages that come and go at random leave holes in every cluster: the store does not grow for them.
#[test]
fn a_store_with_holes_is_used_again() {
    const PAGES: u64 = 2000;
    let mut cache = cache(CodecId::Copy, 4 * MIB, 400);
    let mut random = random(19_990);
    let mut contents: Vec<Option<u64>> = vec![None; PAGES as usize];
    let (mut end_bytes, mut cleaned_pages) = (0, 0);
    for step in 0..40_000 {
        let number = random.u64(..PAGES);
        let content = &mut contents[number as usize];
        if let Some(seed) = content.take() {
            let page = swap_in(&mut cache, number);
            assert!(page.0 == Content { kind: 3, seed }.page().0, "page {number}");
        } else {
            swap_out(&mut cache, number, &Content { kind: 3, seed: step }.page());
            *content = Some(step);
        }
        let written = cache.take_outgoing();
        end_bytes = written.end_bytes;
        if written.writes > 0 {
            cleaned_pages += clean(&mut cache).pages;
        }
    }
    // About half of the pages are out.
    let live_bytes = PAGES * 4104 / 2;
    assert!(
        cleaned_pages > 0 && end_bytes < live_bytes * 7 / 2,
        "{end_bytes} bytes for {live_bytes}"
    );
    for (number, content) in (0..).zip(contents) {
        if let Some(seed) = content {
            assert!(swap_in(&mut cache, number).0 == Content { kind: 3, seed }.page().0);
        }
    }
}

/// A store that can grow no further takes pages as long as what is alive leaves room in it.
#[test]
fn a_full_store_with_holes_takes_more() {
    const PAGES: u64 = 1000;
    const CLUSTERS: usize = 14;
    let mut cache = cache(CodecId::Copy, 4 * MIB, CLUSTERS);
    let mut random = random(19_990);
    let mut contents: Vec<Option<u64>> = vec![None; PAGES as usize];
    let mut restored = 0;
    for step in 0..30_000 {
        let number = random.u64(..PAGES);
        let content = &mut contents[number as usize];
        if let Some(seed) = content.take() {
            assert!(swap_in(&mut cache, number).0 == Content { kind: 3, seed }.page().0);
        } else {
            swap_out(&mut cache, number, &Content { kind: 3, seed: step }.page());
            *content = Some(step);
        }
        // About half of the pages are out, two MiB; the store has room for three and a half.
        for _ in 0..300 {
            if cache.payload_bytes() <= MIB / 2 {
                break;
            }
            restored += clean(&mut cache).pages;
            let _ = cache.spill();
        }
        assert!(cache.payload_bytes() <= MIB / 2, "step {step}: nothing leaves");
    }
    assert!(restored > 0, "the store was never full");
}

/// Of a store in which each cluster lacks less than a page nothing is left, however its records lie. Nothing
/// is read from it to make room, unless records share blocks of which it is not known how full they are.
#[test]
fn a_store_that_is_full_is_not_helped() {
    const CLUSTERS: usize = 6;
    for (id, kind) in DesignId::ALL.into_iter().flat_map(|id| [(id, 3), (id, 5), (id, 7)]) {
        let store = Store { blocks: Memory::default(), clusters: clusters(CLUSTERS) };
        let design = model::design(id, CodecId::Lz4);
        let mut cache = Cache::new(Heap, &design, 8 * MIB, Some(store)).expect("heap");
        assert_eq!(cache.store_left_bytes(), (CLUSTERS * CLUSTER_BYTES) as u64);
        let mut number = 0;
        let (mut spilled, mut left_bytes) = (Ok(0), u64::MAX);
        while spilled != Err(SpillError::Full) {
            assert!(cache.store_left_bytes() <= left_bytes, "{id:?}, kind {kind}");
            left_bytes = cache.store_left_bytes();
            swap_out(&mut cache, number, &Content { kind, seed: 7 }.page());
            number += 1;
            if cache.payload_bytes() > MIB {
                spilled = cache.spill();
            }
        }
        let left_bytes = cache.store_left_bytes();
        assert!(left_bytes < (CLUSTERS * 4200) as u64, "{id:?}, kind {kind}: {left_bytes}");
        let cleaned = clean(&mut cache);
        let is_known = design.layout != StoreLayout::Blocks;
        assert!(!is_known || cleaned == Cleaned::default(), "{id:?}, kind {kind}: {cleaned:?}");
    }
}

/// A store that may fail to read from some moment on.
#[derive(Default)]
struct Unreadable {
    memory: Memory,
    fails: Cell<bool>,
}

impl Blocks for Unreadable {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.memory.write_at(offset_bytes, data)
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        if self.fails.get() { Err(Errno(5)) } else { self.memory.read_at(offset_bytes, data) }
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.memory.punch(offset_bytes, bytes);
    }
}

/// Where nothing can be gathered or taken back, what was read for it counts all the same.
#[test]
fn reads_in_vain_are_counted() {
    for count in [4, 400] {
        let store = Store { blocks: Unreadable::default(), clusters: clusters(count) };
        let design = model::design(DesignId::Default, CodecId::Copy);
        let mut cache = Cache::new(Heap, &design, 4 * MIB, Some(store)).expect("heap");
        swap_out_noise(&mut cache, 0..500);
        assert_eq!(cache.take_outgoing().refused.is_some(), count == 4);
        (0..500).filter(|page| page % 4 > 0).for_each(|page| cache.forget(page));
        cache.store_blocks().expect("there is one").fails.set(true);
        let mut cleaned = Cleaned::default();
        assert_eq!(cache.clean(&mut cleaned), Err(SpillError::Nothing));
        let Cleaned { pages, reads, read_bytes } = cleaned;
        assert!(pages == 0 && reads > 0 && read_bytes >= 4096 * reads as usize, "{cleaned:?}");
    }
}

std::thread_local! {
    /// Modelled time, in ns.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// The modelled time. From one look at it to the next 2 us pass.
fn now() -> u64 {
    NOW.set(NOW.get() + 2000);
    NOW.get()
}

/// A store that is waited for.
struct Disk {
    memory: Memory,
    byte_ns: u64,
}

impl Blocks for Disk {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        NOW.set(NOW.get() + data.len() as u64 * self.byte_ns);
        self.memory.write_at(offset_bytes, data)
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        NOW.set(NOW.get() + data.len() as u64 * self.byte_ns);
        self.memory.read_at(offset_bytes, data)
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.memory.punch(offset_bytes, bytes);
    }
}

/// Of four thousand pages that went to such a store and back, those that were compressed once more,
/// and the RAM that this took.
fn recompressed(byte_ns: u64, store_codec: StoreCodec, pool_bytes_max: usize) -> (usize, usize) {
    const PAGES: u64 = 4000;
    let store =
        Store { blocks: Disk { memory: Memory::default(), byte_ns }, clusters: clusters(400) };
    let design = model::design(DesignId::Default, CodecId::Lz4);
    let mut cache = Cache::<_, _>::new(Heap, &design, 64 * MIB, Some(store)).expect("heap");
    cache.recompress(Heap, store_codec, pool_bytes_max, now).expect("heap");
    let content = |seed| Content { kind: 5, seed }.page();
    let (mut pages, mut metadata_bytes) = (0, 0);
    for number in 0..PAGES {
        assert!(cache.index.set(number, Entry::new(State::Resident { turn: 0, frame: 0 })));
        assert!(matches!(cache.swap_out(number, &content(number)), Placed::Compressed(..)));
        if number % 256 == 255 {
            while cache.spill().is_ok() {}
            pages += cache.take_outgoing().recompressed_pages;
            metadata_bytes = cache.metadata_bytes();
        }
    }
    for number in 0..PAGES {
        let mut page = [Page::ZERO];
        assert_eq!(cache.swap_in(number, &mut page, false).expect("in the cache").pages, 1);
        assert!(page[0].0 == content(number).0, "page {number}");
    }
    (pages, metadata_bytes)
}

/// What a page takes once more is 2 us by the test's clock.
#[test]
fn pages_are_compressed_once_more_where_it_pays() {
    let auto = |byte_ns| recompressed(byte_ns, StoreCodec::Auto, 64 * MIB);
    let (samples, held_bytes) = auto(0);
    assert!((1..80).contains(&samples), "{samples}");
    let (most, _) = auto(100);
    assert!(most > 2000, "{most}");
    let always = StoreCodec::Always(CodecId::Zstd3);
    assert!(recompressed(0, always, MIB).0 > 3600);
    let (none, plain_bytes) = recompressed(100, StoreCodec::None, 64 * MIB);
    assert_eq!(none, 0);
    // A pool of which the scratch would be too large a part: nothing, and no RAM.
    assert_eq!(recompressed(100, StoreCodec::Auto, 16 * MIB), (0, plain_bytes));
    let scratch_bytes = zpager_codec::scratch_bytes(StoreCodec::AUTO);
    assert!((1..=scratch_bytes + 8192).contains(&(held_bytes - plain_bytes)), "{held_bytes}");
}

/// cervera's store looks as large as was set, and takes no more pages then (3.2, 3.6).
#[test]
fn a_virtual_store_has_an_end() {
    let clusters = clusters(6);
    let store = Store { blocks: Memory::default(), clusters };
    let mut design = model::design(DesignId::Cervera, CodecId::Lz4);
    design.virtual_percent = Some(50);
    let mut cache = Cache::<_, _>::new(Heap, &design, 4 * MIB, Some(store)).expect("heap");
    // Six clusters of 64 blocks each, of which more than a hundred pages fit one.
    let mut spilled_pages = 0;
    for number in 0..1000 {
        let page = Content { kind: 2, seed: number }.page();
        assert!(cache.index.set(number, Entry::new(State::Resident { turn: 0, frame: 0 })));
        assert!(matches!(cache.swap_out(number, &page), Placed::Compressed(_, ..400)));
        if number % 96 == 95 {
            spilled_pages += cache.spill().unwrap_or(0);
        }
    }
    assert!((192..192 + 96).contains(&spilled_pages), "{spilled_pages}");
    assert_eq!(clusters.used_clusters(), 3);
    for number in 0..1000 {
        let page = Content { kind: 2, seed: number }.page();
        let mut came = [Page::ZERO];
        cache.swap_in(number, &mut came, false).expect("in the cache");
        assert!(came[0].0 == page.0, "page {number}");
    }
}
