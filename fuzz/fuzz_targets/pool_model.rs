//! A pool, chosen by the first byte, against a plain map: objects of all lengths, removed, replaced, moved by
//! compactions, under a limit that changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zpager_pool::{Buckets, Buffers, Cells, Handle, Heap, OBJECT_BYTES_MAX, Pool, SizeClasses};

const SPACE_BYTES: usize = 256 << 10;
const STEPS_MAX: usize = 2000;

/// What the map knows of an object.
struct Object {
    handle: Handle,
    len: usize,
    fill: u8,
}

/// A pool and what it must answer.
struct Model {
    pool: Box<dyn Pool>,
    objects: Vec<Object>,
    payload_bytes: usize,
    gathered: [u8; OBJECT_BYTES_MAX],
}

impl Model {
    fn new(choice: u8) -> Self {
        let pool: Option<Box<dyn Pool>> = match choice % 6 {
            0 => SizeClasses::reserve(&Heap, SPACE_BYTES).map(|pool| Box::new(pool) as _),
            1 => Buckets::reserve(&Heap, SPACE_BYTES, 256).map(|pool| Box::new(pool) as _),
            2 => Buffers::reserve(&Heap, SPACE_BYTES).map(|pool| Box::new(pool) as _),
            shift => {
                Cells::reserve(&Heap, SPACE_BYTES, 1 << (shift - 3)).map(|pool| Box::new(pool) as _)
            }
        };
        let pool = pool.expect("heap");
        Self { pool, objects: vec![], payload_bytes: 0, gathered: [0; OBJECT_BYTES_MAX] }
    }

    fn insert(&mut self, len: usize, fill: u8) -> bool {
        let Some(handle) = self.pool.insert(&[fill; OBJECT_BYTES_MAX][..len]) else { return false };
        self.objects.push(Object { handle: Handle::from_raw(handle.raw()), len, fill });
        self.payload_bytes += len;
        true
    }

    fn remove(&mut self, index: usize) {
        let object = self.objects.swap_remove(index);
        self.check(&object);
        self.pool.remove(object.handle, object.len);
        self.payload_bytes -= object.len;
    }

    fn check(&mut self, object: &Object) {
        let bytes = self.pool.read(object.handle, object.len, &mut self.gathered);
        assert!(bytes.len() == object.len && bytes.iter().all(|byte| *byte == object.fill));
    }

    fn check_all(&mut self) {
        let objects = std::mem::take(&mut self.objects);
        objects.iter().for_each(|object| self.check(object));
        self.objects = objects;
    }

    /// Offers every so many objects: the others stay where they are.
    fn compact(&mut self, stride: usize) {
        self.pool.begin_compaction();
        for object in self.objects.iter_mut().step_by(stride) {
            let moved = self.pool.relocate(object.handle, object.len);
            object.handle = moved.unwrap_or(object.handle);
        }
        self.pool.end_compaction();
        assert!(stride > 1 || !self.pool.should_compact(), "a compaction that asks for another");
        self.check_all();
    }

    fn check_sums(&self) {
        let waste_bytes = self.pool.fragmentation().waste_bytes();
        assert_eq!(self.pool.payload_bytes(), self.payload_bytes);
        assert_eq!(self.pool.held_bytes(), self.payload_bytes + waste_bytes);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let mut model = Model::new(choice);
    let (steps, _) = data.as_chunks::<4>();
    for (number, &[choice, low, high, count]) in (0..).zip(steps.iter().take(STEPS_MAX)) {
        let argument = usize::from(u16::from_le_bytes([low, high]));
        let (len, fill) = (1 + argument % OBJECT_BYTES_MAX, number as u8);
        match choice % 16 {
            0..8 => {
                for _ in 0..=count % 16 {
                    if !model.insert(len, fill) {
                        break;
                    }
                }
            }
            8..13 => {
                for _ in 0..(count % 16).min(model.objects.len() as u8) {
                    model.remove(argument % model.objects.len());
                }
            }
            13 if !model.objects.is_empty() => {
                model.remove(usize::from(count) % model.objects.len());
                model.insert(len, fill);
            }
            13 | 14 => model.compact(1 + usize::from(count % 3)),
            _ => model.pool.set_limit_bytes(argument * 8),
        }
        model.check_sums();
    }
    while !model.objects.is_empty() {
        model.remove(0);
    }
    model.check_sums();
});
