//! The pool against a plain map: objects of all lengths, removed, moved by compactions, under a limit that changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zpager_pool::{Handle, Heap, OBJECT_BYTES_MAX, Pool, SizeClasses};

const SPACE_BYTES: usize = 256 << 10;
const STEPS_MAX: usize = 2000;

/// What the map knows of an object.
struct Object {
    handle: Handle,
    len: usize,
    fill: u8,
}

impl Object {
    fn check(&self, pool: &impl Pool) {
        let bytes = pool.get(self.handle, self.len);
        assert!(bytes.len() == self.len && bytes.iter().all(|byte| *byte == self.fill));
    }
}

fuzz_target!(|data: &[u8]| {
    let mut pool = SizeClasses::reserve(&Heap, SPACE_BYTES).expect("heap");
    let mut objects: Vec<Object> = vec![];
    let mut payload_bytes = 0;
    let (steps, _) = data.as_chunks::<4>();
    for (number, &[choice, low, high, count]) in (0..).zip(steps.iter().take(STEPS_MAX)) {
        let argument = usize::from(u16::from_le_bytes([low, high]));
        match choice % 16 {
            0..8 => {
                let (len, fill) = (1 + argument % OBJECT_BYTES_MAX, number as u8);
                for _ in 0..=count % 16 {
                    let Some(handle) = pool.insert(&[fill; OBJECT_BYTES_MAX][..len]) else { break };
                    objects.push(Object { handle: Handle::from_raw(handle.raw()), len, fill });
                    payload_bytes += len;
                }
            }
            8..14 => {
                for _ in 0..(count % 16).min(objects.len() as u8) {
                    let object = objects.swap_remove(argument % objects.len());
                    object.check(&pool);
                    pool.remove(object.handle, object.len);
                    payload_bytes -= object.len;
                }
            }
            14 => {
                // Some of the objects are not offered: they stay where they are.
                let stride = 1 + usize::from(count % 3);
                pool.begin_compaction();
                for object in objects.iter_mut().step_by(stride) {
                    let moved = pool.relocate(object.handle, object.len);
                    object.handle = moved.unwrap_or(object.handle);
                }
                pool.end_compaction();
                assert!(stride > 1 || !pool.should_compact(), "a compaction left a surplus");
                objects.iter().for_each(|object| object.check(&pool));
            }
            _ => pool.set_limit_bytes(argument * 8),
        }
        assert_eq!(pool.payload_bytes(), payload_bytes);
        assert!(pool.held_bytes() >= payload_bytes);
    }
    for object in objects {
        object.check(&pool);
        pool.remove(object.handle, object.len);
    }
    assert_eq!(pool.payload_bytes(), 0);
});
