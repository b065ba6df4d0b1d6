//! What the pools' tests share: chance, contents, a heap that counts, and an owner of handles.

extern crate std;
use crate::{Handle, Heap, HeapSpace, OBJECT_BYTES_MAX, Pool, Space, SpaceSource};
use std::boxed::Box;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;
use zpager_seed::Random;

pub(crate) const MIB: usize = 1 << 20;

/// An object's bytes, different for every number and hardly ever zero.
pub(crate) fn content(number: u64, len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    Random::with_seed(number).fill(&mut content);
    content
}

/// A length as those of a heap: nearly empty pages, pointers, text, and a share kept as it is.
pub(crate) fn heap_len(random: &mut Random) -> usize {
    match random.u8(..16) {
        0 => random.usize(60..=300),
        1..=7 => random.usize(500..=900) + random.usize(..500),
        8..=13 => random.usize(1200..=1600) + random.usize(..900),
        14 => random.usize(2200..=3000),
        _ => OBJECT_BYTES_MAX,
    }
}

/// What draws in the pools' tests.
pub(crate) fn random() -> Random {
    zpager_seed::random(20_011)
}

/// A pool and its owner, who knows every handle.
pub(crate) struct Owner<P: ?Sized> {
    pub(crate) pool: Box<P>,
    pub(crate) objects: Vec<(Handle, usize)>,
    pub(crate) moved: usize,
    pub(crate) compactions: usize,
}

impl<P: Pool + ?Sized> Owner<P> {
    pub(crate) fn new(pool: Box<P>) -> Self {
        Self { pool, objects: vec![], moved: 0, compactions: 0 }
    }

    pub(crate) fn insert(&mut self, len: usize) {
        let bytes = [0x5a; OBJECT_BYTES_MAX];
        let handle = self.pool.insert(&bytes[..len]).unwrap();
        self.objects.push((handle, len));
        if self.pool.should_compact() {
            self.compact();
        }
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let (handle, len) = self.objects.swap_remove(index);
        self.pool.remove(handle, len);
    }

    pub(crate) fn compact(&mut self) {
        if self.pool.begin_compaction() {
            for (handle, len) in &mut self.objects {
                if let Some(new) = self.pool.relocate(*handle, *len) {
                    *handle = new;
                    self.moved += 1;
                }
            }
            self.pool.end_compaction();
        }
        self.compactions += 1;
        assert!(!self.pool.should_compact(), "a compaction that asks for another");
    }

    /// Part of the RAM held that is not payload.
    pub(crate) fn waste(&self) -> f64 {
        self.pool.fragmentation().waste_bytes() as f64 / self.pool.held_bytes() as f64
    }
}

/// Heap memory that counts the pages that were written, as the kernel would.
#[derive(Debug)]
pub(crate) struct Counted {
    inner: HeapSpace,
    released_bytes: Rc<RefCell<usize>>,
}

impl Counted {
    /// RAM of pages with any byte set: the tests write no zeros.
    pub(crate) fn touched_bytes(&self) -> usize {
        // SAFETY: readable and initialised, as a space is, and no pool uses it during the call.
        unsafe { touched_bytes(self.inner.base(), self.inner.bytes()) }
    }
}

/// RAM of the pages with any byte set.
///
/// # Safety
/// `bytes` from `base` on are readable and initialised, and not written during the call.
unsafe fn touched_bytes(base: *const u8, bytes: usize) -> usize {
    // SAFETY: the caller's promise.
    let all = unsafe { core::slice::from_raw_parts(base, bytes) };
    all.chunks(4096).filter(|page| **page != [0; 4096]).count() * 4096
}

// SAFETY: all of it is the heap space's.
unsafe impl Space for Counted {
    fn base(&self) -> *mut u8 {
        self.inner.base()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
    fn release(&self, offset: usize, bytes: usize) {
        *self.released_bytes.borrow_mut() += bytes;
        self.inner.release(offset, bytes);
    }
}

/// Makes [`Counted`] for one pool, and knows its tables and what it released.
#[derive(Default)]
pub(crate) struct CountedHeap {
    released_bytes: Rc<RefCell<usize>>,
    /// Start and length of what is not for objects.
    tables: RefCell<Vec<(*const u8, usize)>>,
}

impl CountedHeap {
    pub(crate) fn released_bytes(&self) -> usize {
        *self.released_bytes.borrow()
    }

    /// RAM of the tables of a pool that is still there.
    pub(crate) fn touched_table_bytes(&self) -> usize {
        let touched = |&(base, bytes): &(*const u8, usize)| {
            // SAFETY: the table is there as long as the pool, whose method does not run now.
            unsafe { touched_bytes(base, bytes) }
        };
        self.tables.borrow().iter().map(touched).sum()
    }
}

impl SpaceSource for CountedHeap {
    type Space = Counted;

    fn reserve(&self, bytes: usize) -> Option<Counted> {
        let table = self.reserve_objects(bytes)?;
        self.tables.borrow_mut().push((table.base(), table.bytes()));
        Some(table)
    }

    fn reserve_objects(&self, bytes: usize) -> Option<Counted> {
        let released_bytes = self.released_bytes.clone();
        Some(Counted { inner: Heap.reserve(bytes)?, released_bytes })
    }
}
