//! The store against a plain map, with and without faults, and its clusters under many threads.

extern crate std;
use crate::clusters::HEAD_WORDS;
use crate::*;
use core::cell::Cell;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::vec::Vec;
use std::{println, vec};

/// A buffer aligned to blocks.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0xee; len + BLOCK_BYTES];
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES);
        Self { bytes, start, len }
    }

    pub(crate) fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

pub(crate) fn words(clusters: usize) -> Vec<AtomicU64> {
    let words = Clusters::words_for((clusters * CLUSTER_BYTES) as u64);
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// Checksums, or encryption.
fn seal(encrypts: bool) -> Seal<'static> {
    static CIPHER: LazyLock<Cipher> = LazyLock::new(|| Cipher::new(&[0x5a; KEY_BYTES], 3));
    if encrypts { Seal::Cipher(&CIPHER) } else { Seal::Checksum }
}

/// A batch with all that it needs.
pub(crate) struct Writer<'a> {
    clusters: Clusters<'a>,
    buffer: &'a mut [u8],
    batch: Batch,
}

impl<'a> Writer<'a> {
    pub(crate) fn begin(clusters: Clusters<'a>, buffer: &'a mut [u8]) -> Option<Self> {
        Some(Self { clusters, buffer, batch: Batch::begin(clusters)? })
    }

    pub(crate) fn push(&mut self, data: &[u8]) -> Option<Place> {
        self.batch.push(self.clusters, self.buffer, data)
    }

    /// Writes what was pushed; after an error its references are gone.
    pub(crate) fn finish(self, blocks: &impl Blocks) -> Result<usize, Errno> {
        let mut behind = Behind::NONE;
        let Self { clusters, buffer, batch } = self;
        // SAFETY: settled before the buffer is used again.
        let written = unsafe { batch.finish(blocks, clusters, buffer, &mut behind) };
        match written.and_then(|bytes| behind.settle(blocks, clusters, buffer).map(|()| bytes)) {
            Ok(bytes) => Ok(bytes),
            Err(errno) => {
                Self { clusters, buffer, batch }.abandon(blocks);
                Err(errno)
            }
        }
    }

    /// Drops all references of the batch.
    pub(crate) fn abandon(self, blocks: &impl Blocks) {
        let cluster = self.batch.cluster();
        for _ in 0..self.clusters.references(cluster) {
            self.clusters.drop_reference(cluster, blocks);
        }
    }
}

/// A record's data, different for every number.
fn content(number: u64, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut data: Vec<u8> = (0..len.div_ceil(8)).flat_map(step).collect();
    data.truncate(len);
    data
}

#[test]
fn places_pack() {
    let offset_bytes = Place::STORE_BYTES_MAX - 8;
    for len in [1, 2, 4095, 4096] {
        let place = Place::new(offset_bytes, len);
        assert!(place.raw() >> Place::BITS == 0);
        assert_eq!(Place::from_raw(place.raw()), place);
        assert_eq!((place.offset_bytes(), place.len()), (offset_bytes, len));
    }
    assert_eq!(Place::new(3 * CLUSTER_BYTES as u64 + 8, 1).cluster(), 3);
}

#[test]
fn a_batch_is_one_write_of_little_more_than_its_data() {
    let (words, memory, mut buffer) = (words(1), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words);
    let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
    let mut data_bytes = 0;
    while let Some(place) = batch.push(&content(data_bytes as u64, 1200)) {
        data_bytes += place.len();
    }
    let records = clusters.references(0) - 1;
    let written_bytes = batch.finish(&memory).unwrap();
    assert_eq!(written_bytes, CLUSTER_BYTES);
    assert!(written_bytes * 100 <= data_bytes * 102, "{written_bytes} for {data_bytes}");
    assert_eq!(clusters.references(0), records);
}

#[test]
fn a_batch_of_which_nothing_is_alive_gives_its_cluster_back() {
    let (words, memory, mut buffer) = (words(1), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words);
    let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
    let place = batch.push(b"dropped before it was written").unwrap();
    assert_eq!(clusters.claim(), None);
    assert!(!clusters.drop_reference(place.cluster(), &memory));
    assert_eq!(batch.finish(&memory), Ok(0));
    let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
    batch.push(b"still in the buffer").unwrap();
    assert!(batch.finish(&Full).is_err());
    assert_eq!(Writer::begin(clusters, buffer.get()).unwrap().finish(&memory), Ok(0));
    assert_eq!(clusters.used_clusters(), 0);
}

/// A disk without space.
struct Full;

impl Blocks for Full {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno(28))
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno(5))
    }
    fn punch(&self, _: u64, _: u64) {}
}

/// A store that may refuse every write, and gives space back all the same.
struct Refusing<'a>(&'a Memory, bool);

impl Blocks for Refusing<'_> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        if self.1 { Err(Errno(28)) } else { self.0.write_at(offset_bytes, data) }
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.0.read_at(offset_bytes, data)
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.0.punch(offset_bytes, bytes);
    }
}

/// What could not be written before a fork is in the buffers of both relatives. One of them writes it
/// then, and what the other one is refused takes nothing of it away.
#[test]
fn a_relative_s_refused_write_leaves_what_is_written() {
    let (words, memory) = (words(1), Memory::default());
    let clusters = Clusters::new(&words);
    let mut buffers = [Buffer::new(CLUSTER_BYTES), Buffer::new(CLUSTER_BYTES)];
    let data = content(1, 3000);
    let mut batch = Batch::begin(clusters).unwrap();
    let place = batch.push(clusters, buffers[0].get(), &data).unwrap();
    let finish = |batch: &Batch, buffer: &mut Buffer, refuses: bool| {
        let mut behind = Behind::NONE;
        // SAFETY: this store writes at once, and nothing goes on behind.
        unsafe { batch.finish(&Refusing(&memory, refuses), clusters, buffer.get(), &mut behind) }
    };
    assert!(finish(&batch, &mut buffers[0], true).is_err());
    let copy = buffers[0].get().to_vec();
    buffers[1].get().copy_from_slice(&copy);
    batch.share();
    (0..clusters.references(0)).for_each(|_| clusters.add_reference(0));
    assert!(finish(&batch, &mut buffers[0], false).is_ok());
    assert!(finish(&batch, &mut buffers[1], true).is_err());
    let mut blocks = Buffer::new(READ_BYTES_MIN);
    let found = read(&memory, clusters, place, blocks.get());
    assert_eq!(found.map(|(found, _)| found), Ok(&data[..]));
    assert!(finish(&batch, &mut buffers[1], false).is_ok());
    assert_eq!(clusters.references(0), 2);
}

#[test]
fn a_record_of_the_cluster_s_earlier_life_is_noticed() {
    let (words, memory, mut buffer) = (words(1), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words);
    let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
    let old = batch.push(b"old").unwrap();
    batch.finish(&memory).unwrap();
    // The hole is not punched, and the second write is lost.
    assert!(clusters.drop_reference(old.cluster(), &Full));
    let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
    let new = batch.push(b"new").unwrap();
    batch.finish(&Memory::default()).unwrap();
    assert_eq!(old, new);
    assert_eq!(read(&memory, clusters, new, buffer.get()), Err(ReadError::Corrupt));
}

#[test]
fn a_place_that_no_batch_gave_out_is_corrupt() {
    let (words, mut buffer) = (words(1), Buffer::new(READ_BYTES_MIN));
    for raw in [0, 4095, 1 << 40, u64::MAX] {
        let place = Place::from_raw(raw);
        let result = read(&Memory::default(), Clusters::new(&words), place, buffer.get());
        assert_eq!(result, Err(ReadError::Corrupt));
    }
}

#[test]
fn an_encrypted_page_may_lie_in_three_blocks() {
    let (words, memory, mut buffer) = (words(1), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words).with_seal(seal(true));
    let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
    let before = batch.push(&content(1, 4072)).unwrap();
    let place = batch.push(&content(2, 4096)).unwrap();
    batch.finish(&memory).unwrap();
    assert_eq!(place.offset_bytes() - before.offset_bytes(), 4088);
    let mut blocks = Buffer::new(READ_BYTES_MIN);
    let found = read(&memory, clusters, place, blocks.get());
    assert_eq!(found, Ok((&content(2, 4096)[..], 3 * BLOCK_BYTES)));
    let mut run = Vec::new();
    read_run(&memory, clusters, &[place], blocks.get(), |_, data| {
        run.push(data.map(<[u8]>::to_vec))
    });
    assert_eq!(run, [Ok(content(2, 4096))]);
}

#[test]
fn a_read_takes_the_blocks_of_the_record_and_no_more() {
    let (words, memory, mut buffer) = (words(1), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words);
    let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
    let places: Vec<_> =
        [1000, 3072, 4096, 4096, 10].map(|len| batch.push(&content(1, len)).unwrap()).into();
    batch.finish(&memory).unwrap();
    let read_bytes = |place: &Place| {
        let mut buffer = Buffer::new(READ_BYTES_MIN);
        read(&memory, clusters, *place, buffer.get()).unwrap().1 / BLOCK_BYTES
    };
    assert_eq!(places.iter().map(read_bytes).collect::<Vec<_>>(), [1, 1, 2, 2, 1]);
    let transfer = read_run(&memory, clusters, &places, buffer.get(), |_, data| {
        data.unwrap();
    });
    assert_eq!(transfer, Transfer { reads: 1, bytes: 4 * BLOCK_BYTES });
}

/// Two copies, the first of which is read unless another one is asked for.
struct Twice([Memory; 2]);

impl Blocks for Twice {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.0.iter().try_for_each(|memory| memory.write_at(offset_bytes, data))
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.0[0].read_at(offset_bytes, data)
    }
    fn read_copy_at(&self, copy: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.0[1 - copy as usize].read_at(offset_bytes, data)
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.0.iter().for_each(|memory| memory.punch(offset_bytes, bytes));
    }
}

proptest! {
    /// By way of all that can lie between the one who reads and the blocks.
    #[test]
    fn a_record_that_one_copy_has_comes_back(
        lens in proptest::collection::vec(1usize..=4096, 1..50),
        turned in prop::array::uniform2(proptest::collection::vec(any::<prop::sample::Index>(), 0..9)),
        buffer_blocks in READ_BYTES_MIN / BLOCK_BYTES..=64,
        encrypts: bool,
        reads_around: bool,
    ) {
        let (words, mut buffer) = (words(1), Buffer::new(CLUSTER_BYTES));
        let clusters = Clusters::new(&words).with_seal(seal(encrypts));
        let twice = Twice([Memory::default(), Memory::default()]);
        let stores = Stores::new(clusters, [(CLUSTER_BYTES as u64, twice)]);
        let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
        let places: Vec<_> = (0..).zip(&lens).map(|(at, &len)| batch.push(&content(at, len)).unwrap()).collect();
        let end_bytes = batch.finish(&stores).unwrap();
        let mut lost = [BTreeSet::new(), BTreeSet::new()];
        let Twice(memories) = stores.blocks().next().unwrap();
        for ((memory, turned), lost) in memories.iter().zip(&turned).zip(&mut lost) {
            let whole = &mut buffer.get()[..end_bytes];
            memory.read_at(0, whole).unwrap();
            for index in turned {
                let record = index.index(places.len());
                if lost.insert(record) {
                    whole[places[record].offset_bytes() as usize] ^= 1;
                }
            }
            memory.write_at(0, whole).unwrap();
        }
        let (mut window, mut state) = (Buffer::new(CLUSTER_BYTES), Around::NEW);
        let around = ReadAround::new(&stores, clusters, end_bytes as u64, window.get(), &mut state);
        let mut buffer = Buffer::new(buffer_blocks * BLOCK_BYTES);
        let mut came = 0;
        let each = |at: usize, found: Result<&[u8], ReadError>| {
            let right = content(at as u64, lens[at]);
            let is_lost = lost.iter().all(|lost| lost.contains(&at));
            assert_eq!(found, if is_lost { Err(ReadError::Corrupt) } else { Ok(&right[..]) });
            assert_eq!(at, came);
            came += 1;
        };
        if reads_around {
            read_run(&ReadBehind::new(&around, [None, None]), clusters, &places, buffer.get(), each);
        } else {
            read_run(&stores, clusters, &places, buffer.get(), each);
        }
        prop_assert_eq!(came, lens.len());
        for (at, &place) in places.iter().enumerate() {
            let is_lost = lost.iter().all(|lost| lost.contains(&at));
            prop_assert_eq!(read(&stores, clusters, place, buffer.get()).is_err(), is_lost);
        }
    }
}

/// What a test does next.
#[derive(Debug, Clone)]
enum Step {
    /// Spills records of these lengths in one batch.
    Spill(Vec<usize>),
    Abandon,
    Read(prop::sample::Index),
    /// Reads all records of one's cluster with a buffer of so many blocks.
    ReadRun(prop::sample::Index, usize),
    Drop(prop::sample::Index),
    /// Another process comes to share the record.
    Fork(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![1usize..=4096, 300usize..=1500, Just(4096usize)];
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        4 => proptest::collection::vec(len, 1..70).prop_map(Step::Spill),
        1 => Just(Step::Abandon),
        6 => index().prop_map(Step::Read),
        2 => (index(), READ_BYTES_MIN / BLOCK_BYTES..=64).prop_map(|(index, blocks)| Step::ReadRun(index, blocks)),
        12 => index().prop_map(Step::Drop),
        3 => index().prop_map(Step::Fork),
    ];
    proptest::collection::vec(step, 1..50)
}

/// What is known of a record: its data and how many refer to it.
type Model = BTreeMap<Place, (Vec<u8>, u32)>;

fn picked(model: &Model, index: &prop::sample::Index) -> Option<Place> {
    (!model.is_empty()).then(|| *model.keys().nth(index.index(model.len())).unwrap())
}

/// Right or an error; an error only where something may have gone wrong.
fn check(result: Result<&[u8], ReadError>, data: &[u8], faulty: bool) {
    match result {
        Ok(bytes) => assert_eq!(bytes, data),
        Err(error) => assert!(faulty, "{error:?} without a fault"),
    }
}

fn run(steps: Vec<Step>, blocks: &Faulting<Memory>, encrypts: bool) {
    let words = words(6);
    let clusters = Clusters::new(&words).with_seal(seal(encrypts));
    let mut buffer = Buffer::new(CLUSTER_BYTES);
    let mut model = Model::new();
    for (number, step) in (0u64..).zip(steps) {
        match step {
            Step::Spill(lens) => {
                let Some(mut batch) = Writer::begin(clusters, buffer.get()) else {
                    assert_eq!(clusters.used_clusters(), clusters.total_clusters());
                    continue;
                };
                let spilled: Vec<_> = (0..)
                    .zip(lens)
                    .map_while(|(index, len)| {
                        let data = content(number * 1000 + index, len);
                        Some((batch.push(&data)?, (data, 1)))
                    })
                    .collect();
                match batch.finish(blocks) {
                    Ok(_) => model.extend(spilled),
                    Err(_) => assert!(blocks.faults() > 0),
                }
            }
            Step::Abandon => {
                if let Some(mut batch) = Writer::begin(clusters, buffer.get()) {
                    batch.push(&[1; 99]).unwrap();
                    batch.abandon(blocks);
                }
            }
            Step::Read(index) => {
                if let Some(place) = picked(&model, &index) {
                    let result = read(blocks, clusters, place, buffer.get());
                    let result = result.map(|(data, _)| data);
                    check(result, &model[&place].0, blocks.faults() > 0);
                }
            }
            Step::ReadRun(index, buffer_blocks) => {
                if let Some(place) = picked(&model, &index) {
                    let in_cluster = |other: &&Place| other.cluster() == place.cluster();
                    let places: Vec<_> = model.keys().filter(in_cluster).copied().collect();
                    let mut seen = 0;
                    let buffer = &mut buffer.get()[..buffer_blocks * BLOCK_BYTES];
                    let transfer = read_run(blocks, clusters, &places, buffer, |index, data| {
                        assert_eq!(index, seen);
                        seen += 1;
                        check(data, &model[&places[index]].0, blocks.faults() > 0);
                    });
                    assert_eq!(seen, places.len());
                    assert!(transfer.bytes >= BLOCK_BYTES && transfer.reads >= 1);
                }
            }
            Step::Drop(index) => {
                if let Some(place) = picked(&model, &index) {
                    let references = &mut model.get_mut(&place).unwrap().1;
                    *references -= 1;
                    if *references == 0 {
                        model.remove(&place);
                    }
                    let alive = model.keys().any(|other| other.cluster() == place.cluster());
                    assert_eq!(clusters.drop_reference(place.cluster(), blocks), !alive);
                }
            }
            Step::Fork(index) => {
                if let Some(place) = picked(&model, &index) {
                    clusters.add_reference(place.cluster());
                    model.get_mut(&place).unwrap().1 += 1;
                }
            }
        }
        for cluster in 0..clusters.total_clusters() as u32 {
            let in_cluster = model.iter().filter(|(place, _)| place.cluster() == cluster);
            let references: u32 = in_cluster.map(|(_, (_, references))| references).sum();
            assert_eq!(clusters.references(cluster), references);
        }
    }
    for (place, (_, references)) in model {
        for _ in 0..references {
            clusters.drop_reference(place.cluster(), blocks);
        }
    }
    assert_eq!(clusters.used_clusters(), 0);
    if blocks.faults() == 0 {
        let kept_blocks = Clusters::KEPT_MAX * CLUSTER_BYTES / BLOCK_BYTES;
        assert!(blocks.inner().held_blocks() <= kept_blocks, "space that was not given back");
    }
}

proptest! {
    #[test]
    fn as_a_plain_map(steps in steps(), encrypts: bool) {
        run(steps, &Faulting::new(Memory::default(), 0, 0), encrypts);
    }

    #[test]
    fn never_a_wrong_byte_whatever_goes_wrong(
        steps in steps(),
        seed in any::<u64>(),
        one_in in 1u64..20,
        encrypts: bool,
    ) {
        run(steps, &Faulting::new(Memory::default(), seed, one_in), encrypts);
    }

    #[test]
    fn any_turned_bit_of_a_record_is_corrupt(
        len in 1usize..=4096,
        bit in any::<prop::sample::Index>(),
        encrypts: bool,
    ) {
        let (words, memory, mut buffer) = (words(1), Memory::default(), Buffer::new(CLUSTER_BYTES));
        let clusters = Clusters::new(&words).with_seal(seal(encrypts));
        let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
        let place = batch.push(&content(7, len)).unwrap();
        let written_bytes = batch.finish(&memory).unwrap();
        let head_bytes = clusters.seal().record_bytes(8) - 8;
        let bit = bit.index((head_bytes + len) * 8);
        let blocks = &mut buffer.get()[..written_bytes];
        memory.read_at(0, blocks).unwrap();
        blocks[bit / 8] ^= 1 << (bit % 8);
        memory.write_at(0, blocks).unwrap();
        prop_assert_eq!(read(&memory, clusters, place, buffer.get()), Err(ReadError::Corrupt));
    }
}

#[test]
fn ten_thousand_faults() {
    let mut seed = 0;
    let mut faults = 0;
    let mut wrong = [0u64; 2];
    while faults < 10_000 {
        let blocks = Faulting::new(Memory::default(), seed, 3);
        let words = words(4);
        let clusters = Clusters::new(&words).with_seal(seal(seed % 2 == 1));
        let mut buffer = Buffer::new(CLUSTER_BYTES);
        let mut held = BTreeMap::new();
        for number in 0..200u64 {
            let Some(mut batch) = Writer::begin(clusters, buffer.get()) else { break };
            let data = content(number, 1 + number as usize * 37 % 4096);
            let places: Vec<_> = (0..4).map(|_| batch.push(&data).unwrap()).collect();
            if batch.finish(&blocks).is_err() {
                continue;
            }
            held.extend(places.into_iter().map(|place| (place, data.clone())));
            for (place, data) in &held {
                match read(&blocks, clusters, *place, buffer.get()) {
                    Ok((bytes, _)) => assert_eq!(bytes, data),
                    Err(ReadError::Io(_)) => wrong[0] += 1,
                    Err(ReadError::Corrupt) => wrong[1] += 1,
                }
            }
            let oldest = *held.keys().next().unwrap();
            held.retain(|place, _| {
                let dropped = place.cluster() == oldest.cluster();
                if dropped {
                    clusters.drop_reference(place.cluster(), &blocks);
                }
                !dropped
            });
        }
        faults += blocks.faults();
        seed += 1;
    }
    println!("{faults} faults in {seed} runs: {} reported, {} corrupt", wrong[0], wrong[1]);
    assert!(wrong[0] > 0 && wrong[1] > 0);
}

/// What was written to a store, put where something else was: at another place, or in the next life
/// of its cluster.
#[test]
fn a_record_put_elsewhere_is_noticed() {
    for encrypts in [false, true] {
        let (words, memory) = (words(2), Memory::default());
        let clusters = Clusters::new(&words).with_seal(seal(encrypts));
        let mut buffer = Buffer::new(CLUSTER_BYTES);
        let mut write = |fill: u8| {
            let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
            let places: Vec<_> = (0..4).map(|_| batch.push(&[fill; 4000]).unwrap()).collect();
            batch.finish(&memory).unwrap();
            places
        };
        let [first, second] = [write(1), write(2)];
        let read_one = |place| {
            let mut buffer = Buffer::new(READ_BYTES_MIN);
            read(&memory, clusters, place, buffer.get()).map(|(data, _)| data[0])
        };
        assert_eq!((read_one(first[3]), read_one(second[3])), (Ok(1), Ok(2)));
        let mut blocks = [(); 3].map(|()| Buffer::new(4 * BLOCK_BYTES));
        let [old, other, moved] = &mut blocks;
        let starts = [0, CLUSTER_BYTES as u64];
        memory.read_at(starts[0], old.get()).unwrap();
        memory.read_at(starts[1], other.get()).unwrap();
        // The two clusters change places.
        memory.write_at(starts[1], old.get()).unwrap();
        memory.write_at(starts[0], other.get()).unwrap();
        assert_eq!(read_one(first[3]), Err(ReadError::Corrupt));
        assert_eq!(read_one(second[3]), Err(ReadError::Corrupt));
        // A record takes the place of the one before it.
        let record_bytes = first[1].offset_bytes() as usize;
        moved.get().copy_from_slice(old.get());
        moved.get().copy_within(record_bytes..2 * record_bytes, 0);
        memory.write_at(starts[0], moved.get()).unwrap();
        assert_eq!((read_one(first[0]), read_one(first[1])), (Err(ReadError::Corrupt), Ok(1)));
        // The first cluster's next life has the same records, and is overwritten by the one before.
        first.iter().for_each(|place| {
            clusters.drop_reference(place.cluster(), &memory);
        });
        assert_eq!(write(1), first);
        assert_eq!(read_one(first[3]), Ok(1));
        memory.write_at(starts[0], old.get()).unwrap();
        assert_eq!(read_one(first[3]), Err(ReadError::Corrupt));
    }
}

/// No sixteen bytes of what is encrypted come twice, though the pages are equal.
#[test]
fn equal_pages_do_not_look_alike() {
    let (words, memory, mut buffer) = (words(2), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words).with_seal(seal(true));
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
        let places: Vec<_> = (0..60).map(|_| batch.push(&[7; 4096]).unwrap()).collect();
        batch.finish(&memory).unwrap();
        for place in places {
            let start = place.offset_bytes() as usize;
            let record = &buffer.get()[start..start + 16 + 4096];
            for chunk in record.as_chunks::<16>().0 {
                assert!(seen.insert(*chunk), "the same bytes twice");
            }
            clusters.drop_reference(place.cluster(), &memory);
        }
    }
}

/// Claims are counted as far as the count goes, and no number comes twice.
#[test]
fn a_cluster_has_an_end() {
    let words = words(2);
    let clusters = Clusters::new(&words);
    let first = clusters.claim().unwrap();
    clusters.release(first);
    words[HEAD_WORDS].store(u64::from(u32::MAX - 1) << 32, Ordering::Relaxed);
    assert_eq!(clusters.claim(), Some(0));
    assert_eq!(clusters.generation(0), u32::MAX);
    clusters.release(0);
    assert_eq!((clusters.claim(), clusters.claim()), (Some(1), None));
}

#[test]
fn low_clusters_come_first() {
    let words = words(8);
    let clusters = Clusters::new(&words);
    assert_eq!(
        (0..8).map_while(|_| clusters.claim()).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    assert_eq!(clusters.claim(), None);
    for cluster in [5, 2, 7] {
        clusters.release(cluster);
    }
    assert_eq!((0..3).map_while(|_| clusters.claim()).collect::<Vec<_>>(), [2, 5, 7]);
    // A hint that is too high, as a race may leave it, hides nothing.
    clusters.release(1);
    words[0].store(6, Ordering::Relaxed);
    assert_eq!(clusters.claim(), Some(1));
}

/// Threads stand for processes: they share nothing but the words.
#[test]
fn many_claim_share_and_drop_at_once() {
    const THREADS: u64 = 4;
    const CLUSTERS: usize = 8;
    let words = words(CLUSTERS);
    // Who owns a cluster now, to see that nobody else does.
    let owners: Vec<AtomicU32> = (0..CLUSTERS).map(|_| AtomicU32::new(0)).collect();
    let claims = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (words, owners, claims) = (&words, &owners, &claims);
            scope.spawn(move || {
                let clusters = Clusters::new(words);
                let mut mine: Vec<u32> = vec![];
                for step in 0..40_000u64 {
                    let drawn =
                        u64::from_le_bytes(content(step * THREADS + thread, 8).try_into().unwrap());
                    if drawn.is_multiple_of(3) && mine.len() < 5 {
                        let Some(cluster) = clusters.claim() else { continue };
                        let owner = &owners[cluster as usize];
                        assert_eq!(owner.swap(thread as u32, Ordering::Relaxed), 0);
                        claims.fetch_add(1, Ordering::Relaxed);
                        if drawn.is_multiple_of(2) {
                            clusters.publish(cluster, 2);
                            clusters.add_reference(cluster);
                            mine.extend([cluster; 3]);
                        } else {
                            owner.store(0, Ordering::Relaxed);
                            clusters.release(cluster);
                        }
                    } else if !mine.is_empty() {
                        let cluster = mine.swap_remove(drawn as usize % mine.len());
                        let last = !mine.contains(&cluster);
                        if last {
                            let owner = owners[cluster as usize].swap(0, Ordering::Relaxed);
                            assert_eq!(u64::from(owner), thread);
                        }
                        assert_eq!(clusters.drop_reference(cluster, &Full), last);
                    }
                }
                for cluster in mine {
                    owners[cluster as usize].store(0, Ordering::Relaxed);
                    clusters.drop_reference(cluster, &Full);
                }
            });
        }
    });
    assert_eq!(Clusters::new(&words).used_clusters(), 0);
    assert!(claims.into_inner() > 1000);
}

#[test]
fn who_has_no_reference_gets_one_only_to_what_is_there() {
    let (words, memory, mut buffer) = (words(1), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words);
    for behind in [false, true] {
        let generation = clusters.generation(0) + 1;
        assert!(!clusters.hold(0, generation - 1), "it is free");
        let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
        let place = batch.push(b"a page that others have too").unwrap();
        assert!(!clusters.hold(0, generation), "it is not written");
        if behind {
            let mut behind = Behind::NONE;
            behind.begin(batch.batch, BLOCK_BYTES);
            let Writer { batch, buffer, .. } = batch;
            memory.write_at(batch.start_bytes(), buffer).unwrap();
            assert!(!clusters.hold(0, generation), "it is being written");
            behind.settle(&memory, clusters, buffer).unwrap();
        } else {
            batch.finish(&memory).unwrap();
        }
        assert!(clusters.hold(0, generation));
        assert!(!clusters.hold(0, generation + 1) && !clusters.hold(7, generation));
        assert_eq!(clusters.references(0), 2);
        assert!(!clusters.drop_reference(place.cluster(), &memory));
        assert!(clusters.drop_reference(place.cluster(), &memory));
        assert!(!clusters.hold(0, generation), "its life is over");
    }
}

/// A few free clusters keep their blocks and are claimed again; the holes of the others are punched.
#[test]
fn most_free_clusters_give_their_blocks_back() {
    const CLUSTERS: usize = 3 * Clusters::KEPT_MAX;
    let (words, memory, mut buffer) =
        (words(CLUSTERS), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words);
    for _ in 0..3 {
        let mut places = vec![];
        for _ in 0..CLUSTERS {
            let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
            places.push(batch.push(&content(1, 4000)).unwrap());
            batch.finish(&memory).unwrap();
        }
        assert!(Writer::begin(clusters, buffer.get()).is_none());
        places.iter().for_each(|place| assert!(clusters.drop_reference(place.cluster(), &memory)));
        let kept = memory.held_blocks();
        assert!((1..CLUSTERS / 2).contains(&kept), "{kept}");
    }
}

/// Blocks that note each hole.
#[derive(Debug, Default)]
struct Holes(std::sync::Mutex<Vec<(u64, u64)>>);

impl Holes {
    /// Where they are and how long, in clusters, and none from now on.
    fn take(&self) -> Vec<(u64, u64)> {
        let clusters = |bytes: u64| bytes / CLUSTER_BYTES as u64;
        let holes = std::mem::take(&mut *self.0.lock().unwrap());
        holes.iter().map(|&(at, bytes)| (clusters(at), clusters(bytes))).collect()
    }
}

impl Blocks for &Holes {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno(5))
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.0.lock().unwrap().push((offset_bytes, bytes));
    }
}

/// Claims and drops all clusters but one in `every`, which stays in use.
fn use_once(clusters: Clusters<'_>, every: u32, blocks: &impl Blocks) {
    let claimed: Vec<_> = std::iter::from_fn(|| clusters.claim()).collect();
    claimed.iter().for_each(|&cluster| clusters.publish(cluster, 1));
    for cluster in claimed.into_iter().filter(|cluster| cluster % every != 0) {
        clusters.drop_reference(cluster, blocks);
    }
}

#[test]
fn holes_that_are_punched_later_are_of_neighbours_and_the_highest() {
    const KEPT: usize = Clusters::KEPT_MAX;
    let (words, holes) = (words(2 * KEPT + 7), Holes::default());
    let clusters = Clusters::new(&words);
    clusters.punch_later();
    use_once(clusters, u32::MAX, &&holes);
    assert_eq!(holes.take(), [], "while a program waits");
    assert!(clusters.punch_free(&&holes, || false), "some are left");
    assert!(!clusters.punch_free(&&holes, || true));
    let kept = KEPT as u64 + 1; // The first is in use.
    let holes_found = holes.take();
    assert_eq!(holes_found.iter().map(|(_, length)| length).sum::<u64>(), KEPT as u64 + 6);
    assert_eq!(holes_found.last().map(|&(at, _)| at), Some(kept));
    assert_eq!(holes_found.len(), (KEPT + 6).div_ceil(64), "{holes_found:?}");
    assert_eq!(clusters.used_clusters(), 1);
    // Those that kept their blocks come first and do not count any more.
    assert_eq!(clusters.claim(), Some(1));
    clusters.release(1);
    use_once(clusters, 2, &&holes);
    assert!(!clusters.punch_free(&&holes, || true));
    let highest = 2 * KEPT as u64 + 5;
    assert_eq!(holes.take(), [(highest, 1), (highest - 2, 1), (highest - 4, 1)]);
}

#[test]
fn holes_end_where_a_cluster_is_in_use_or_another_store_begins() {
    const KEPT: u32 = Clusters::KEPT_MAX as u32;
    let (words, holes) = (words(KEPT as usize + 21), [Holes::default(), Holes::default()]);
    let clusters = Clusters::new(&words);
    clusters.punch_later();
    let bytes = |clusters: u32| u64::from(clusters) * CLUSTER_BYTES as u64;
    let limits_bytes = [bytes(KEPT + 11), bytes(10)];
    let stores = Stores::new(clusters, limits_bytes.into_iter().zip(&holes));
    let claimed: Vec<_> = std::iter::from_fn(|| clusters.claim()).collect();
    claimed.iter().for_each(|&cluster| clusters.publish(cluster, 1));
    for cluster in claimed.into_iter().filter(|&cluster| cluster != KEPT + 15) {
        clusters.drop_reference(cluster, &stores);
    }
    assert!(!clusters.punch_free(&stores, || true));
    let kept = u64::from(KEPT);
    assert_eq!(holes[1].take(), [(5, 5), (0, 4)]);
    assert_eq!(holes[0].take(), [(kept, 11)]);
}

/// Nobody's cluster is punched while it is claimed.
#[test]
fn holes_are_punched_beside_those_who_claim() {
    const CLUSTERS: usize = Clusters::KEPT_MAX + 64;
    let (words, memory) = (words(CLUSTERS), Memory::default());
    let done = std::sync::atomic::AtomicBool::new(false);
    Clusters::new(&words).punch_later();
    std::thread::scope(|scope| {
        let (words, memory, done) = (&words, &memory, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                Clusters::new(words).punch_free(memory, || true);
            }
        });
        let writers = (0..2).map(|_| {
            scope.spawn(move || {
                let (clusters, mut buffer) = (Clusters::new(words), Buffer::new(CLUSTER_BYTES));
                for round in 0..8u64 {
                    let mut places = vec![];
                    while let Some(mut batch) = Writer::begin(clusters, buffer.get()) {
                        places.push(batch.push(&content(round, 4000)).unwrap());
                        batch.finish(memory).unwrap();
                    }
                    for place in places {
                        let mut block = Buffer::new(2 * BLOCK_BYTES);
                        memory.read_at(place.offset_bytes() / 4096 * 4096, block.get()).unwrap();
                        assert!(block.get().iter().any(|byte| *byte != 0), "punched while in use");
                        clusters.drop_reference(place.cluster(), memory);
                    }
                }
            })
        });
        writers.collect::<Vec<_>>().into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let clusters = Clusters::new(&words);
    clusters.punch_free(&memory, || true);
    assert_eq!(clusters.used_clusters(), 0);
    assert!(memory.held_blocks() <= Clusters::KEPT_MAX);
}

#[test]
fn where_none_keeps_its_blocks_all_are_given_back() {
    let (words, memory, mut buffer) = (words(4), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words);
    clusters.keep_none();
    for _ in 0..3 {
        let mut batch = Writer::begin(clusters, buffer.get()).unwrap();
        let place = batch.push(&content(1, 4000)).unwrap();
        batch.finish(&memory).unwrap();
        assert!(memory.held_blocks() > 0);
        assert!(clusters.drop_reference(place.cluster(), &memory));
        assert_eq!(memory.held_blocks(), 0);
    }
}

/// References held by several at once are all counted.
#[test]
fn the_last_of_several_holders_frees() {
    let words = words(1);
    let freed = AtomicU32::new(0);
    for _ in 0..2000 {
        let clusters = Clusters::new(&words);
        let cluster = clusters.claim().unwrap();
        clusters.publish(cluster, 1);
        clusters.add_reference(cluster);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let was_last = Clusters::new(&words).drop_reference(cluster, &Full);
                    freed.fetch_add(u32::from(was_last), Ordering::Relaxed);
                });
            }
        });
    }
    assert_eq!(freed.into_inner(), 2000);
}

/// A process that is killed while it writes costs its own cluster and nobody else's.
#[test]
fn a_killed_writer_costs_one_cluster() {
    let (words, memory, mut buffer) = (words(3), Memory::default(), Buffer::new(CLUSTER_BYTES));
    let clusters = Clusters::new(&words);
    let _killed = Writer::begin(clusters, buffer.get()).unwrap().batch;
    let mut spilled = vec![];
    while let Some(mut batch) = Writer::begin(clusters, buffer.get()) {
        spilled.push(batch.push(b"alive").unwrap());
        batch.finish(&memory).unwrap();
    }
    assert_eq!(spilled.len(), 2);
    for place in &spilled {
        assert_eq!(read(&memory, clusters, *place, buffer.get()).unwrap().0, b"alive");
        assert!(clusters.drop_reference(place.cluster(), &memory));
    }
    assert_eq!(clusters.used_clusters(), 1);
}

/// Three stores of three clusters each, of which those in a set fail every write.
struct Row {
    memories: [Memory; 3],
    failing: Cell<[bool; 3]>,
    words: Vec<AtomicU64>,
}

const ROW_CLUSTERS: usize = 3;

/// One store of a row.
struct Failing<'a>(&'a Row, usize);

impl Blocks for Failing<'_> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        assert!(offset_bytes + data.len() as u64 <= (ROW_CLUSTERS * CLUSTER_BYTES) as u64);
        if self.0.failing.get()[self.1] {
            return Err(Errno(5));
        }
        self.0.memories[self.1].write_at(offset_bytes, data)
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.0.memories[self.1].read_at(offset_bytes, data)
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.0.memories[self.1].punch(offset_bytes, bytes);
    }
}

impl Row {
    fn new() -> Self {
        let memories = [(); 3].map(|()| Memory::default());
        let words = words(3 * ROW_CLUSTERS);
        Row { memories, failing: Cell::new([false; 3]), words }
    }

    fn stores(&self) -> Stores<'_, Failing<'_>> {
        // Half a cluster more than there is room for.
        let limit_bytes = ((2 * ROW_CLUSTERS + 1) * CLUSTER_BYTES / 2) as u64;
        let limits = [limit_bytes; 3];
        assert_eq!(Clusters::words_for(row_bytes(limits)), self.words.len());
        let stores = (0..).zip(limits).map(|(store, limit)| (limit, Failing(self, store)));
        Stores::new(Clusters::new(&self.words), stores)
    }

    /// In which stores anything is held.
    fn held(&self) -> [bool; 3] {
        self.memories.each_ref().map(|memory| memory.held_blocks() > 0)
    }
}

/// Writes a cluster of one record and gives its place.
fn spill(stores: &Stores<'_, Failing<'_>>, number: u64) -> Result<Place, Errno> {
    let mut buffer = Buffer::new(CLUSTER_BYTES);
    let mut batch = Writer::begin(stores.clusters(), buffer.get()).ok_or(Errno(28))?;
    let place = batch.push(&content(number, 3000)).unwrap();
    batch.finish(stores).map(|_| place)
}

/// Whether the record at `place` is that of this number.
fn is_there(stores: &Stores<'_, Failing<'_>>, place: Place, number: u64) -> bool {
    let mut buffer = Buffer::new(READ_BYTES_MIN);
    let found = read(stores, stores.clusters(), place, buffer.get());
    found.is_ok_and(|(data, _)| data == content(number, 3000))
}

#[test]
fn the_next_store_is_used_when_one_is_full() {
    let row = Row::new();
    let stores = row.stores();
    let mut places = vec![];
    for number in 0..9 {
        places.push(spill(&stores, number).unwrap());
        assert_eq!(row.held(), [true, number >= 3, number >= 6]);
    }
    assert_eq!(spill(&stores, 9), Err(Errno(28)));
    assert!((0..).zip(&places).all(|(number, place)| is_there(&stores, *place, number)));
    stores.clusters().drop_reference(places[1].cluster(), &stores);
    assert_eq!(spill(&stores, 9).unwrap().cluster(), 1);
    assert_eq!(stores.take_failure(), None);
}

#[test]
fn the_next_store_takes_over_when_one_fails() {
    let row = Row::new();
    let stores = row.stores();
    let first = spill(&stores, 1).unwrap();
    row.failing.set([true, false, false]);
    let second = spill(&stores, 2).unwrap();
    assert_eq!((stores.take_failure(), stores.take_failure()), (Some((0, Errno(5))), None));
    assert_eq!(row.held(), [true, true, false]);
    row.failing.set([true, true, false]);
    let third = spill(&stores, 3).unwrap();
    assert_eq!(stores.take_failure(), Some((1, Errno(5))));
    assert_eq!(row.held(), [true, true, true]);
    // What was written before is read where it lies, by others too.
    for user in [&stores, &row.stores()] {
        assert!(is_there(user, first, 1) && is_there(user, second, 2) && is_there(user, third, 3));
    }
    // The last store has its own room and no more.
    let more: Vec<_> = (4..6).map(|number| spill(&stores, number).unwrap()).collect();
    assert!((4..).zip(&more).all(|(number, place)| is_there(&stores, *place, number)));
    assert_eq!(spill(&stores, 6), Err(Errno(28)));
    for place in [first, second, third].into_iter().chain(more) {
        assert!(stores.clusters().drop_reference(place.cluster(), &row.stores()));
    }
    assert_eq!(stores.clusters().used_clusters(), 0, "spare clusters are free too");
}

#[test]
fn a_store_that_failed_is_tried_again_as_the_last_resort() {
    let row = Row::new();
    let stores = row.stores();
    row.failing.set([true; 3]);
    assert_eq!(spill(&stores, 1), Err(Errno(5)));
    row.failing.set([false, true, true]);
    let place = spill(&stores, 2).unwrap();
    assert_eq!(row.held(), [true, false, false]);
    assert!(is_there(&stores, place, 2));
    // Nothing took over, so there is nothing to tell.
    assert_eq!(stores.take_failure(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stores fail and come to themselves, a record that was taken is there, and what was
    /// dropped leaves nothing behind.
    #[test]
    fn no_failing_store_loses_a_record(
        steps in proptest::collection::vec((any::<[bool; 3]>(), any::<bool>(), 0usize..9), 1..80),
    ) {
        let row = Row::new();
        let stores = row.stores();
        let mut alive: Vec<(u64, Place)> = vec![];
        let mut has_failed = false;
        for (number, (failing, is_drop, index)) in (0..).zip(steps) {
            row.failing.set(failing);
            has_failed |= failing.contains(&true);
            if is_drop && !alive.is_empty() {
                let (_, place) = alive.swap_remove(index % alive.len());
                prop_assert!(stores.clusters().drop_reference(place.cluster(), &stores));
            } else if let Ok(place) = spill(&stores, number) {
                alive.push((number, place));
            } else {
                prop_assert!(has_failed || alive.len() == 9);
            }
            for &(number, place) in &alive {
                prop_assert!(is_there(&stores, place, number));
            }
        }
        for (_, place) in alive {
            stores.clusters().drop_reference(place.cluster(), &stores);
        }
        prop_assert_eq!(stores.clusters().used_clusters(), 0);
    }
}

/// Two relatives with the same unwritten records since a fork, each of which meets failing stores:
/// what one has written the other finds, wherever it is.
#[test]
fn relatives_that_move_the_same_cluster_find_it() {
    let row = Row::new();
    let (one, other) = (row.stores(), row.stores());
    let clusters = one.clusters();
    let mut buffer = Buffer::new(CLUSTER_BYTES);
    let mut batch = Batch::begin(clusters).unwrap();
    let place = batch.push(clusters, buffer.get(), &content(1, 3000)).unwrap();
    let (start_bytes, data) = (batch.start_bytes(), &buffer.get()[..BLOCK_BYTES]);
    row.failing.set([true, false, false]);
    one.write_at(start_bytes, data).unwrap();
    // The other one knows of no failure, and finds the cluster where it went.
    assert_eq!(other.write_at(start_bytes, data), Ok(()));
    assert_eq!((row.held(), other.take_failure()), ([false, true, false], None));
    // Where that fails too, it goes on, and the first finds it as well.
    row.failing.set([true, true, false]);
    other.write_at(start_bytes, data).unwrap();
    assert_eq!((row.held(), other.take_failure()), ([false, true, true], Some((1, Errno(5)))));
    assert!(is_there(&one, place, 1) && is_there(&other, place, 1));
    clusters.drop_references(place.cluster(), 2, &one);
    assert_eq!(clusters.used_clusters(), 0, "both spare clusters are free");
}
