//! What the cache asks of a pool, whatever its design.

/// Longest object in bytes: a page kept as it is.
pub const OBJECT_BYTES_MAX: usize = 4096;

/// Which object: a number of 36 bits at most, in most pools the object's offset in the pool's
/// space in units of 16 bytes.
///
/// A handle does not know the object's length; whoever keeps it keeps the length beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

impl Handle {
    /// Width of [`Handle::raw`] in bits.
    pub const BITS: u32 = 36;
    /// Objects start at multiples of so many bytes.
    pub const GRAIN_BYTES: usize = 16;

    /// The number that an index keeps, below 2 to the power of [`Handle::BITS`].
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The handle whose number was kept. Numbers that no pool gave out make handles that the pool
    /// answers with other objects' bytes, zeros or a panic.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub(crate) const fn at(offset_bytes: usize) -> Self {
        Self((offset_bytes / Self::GRAIN_BYTES) as u64)
    }

    pub(crate) const fn offset_bytes(self) -> usize {
        self.0 as usize * Self::GRAIN_BYTES
    }
}

/// What a pool holds beyond its objects' bytes:
/// `held_bytes` = `payload_bytes` + `internal_bytes` + `external_bytes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// RAM lost inside the places of objects, which are longer than they are, in bytes.
    pub internal_bytes: usize,
    /// RAM held outside the places of objects, in bytes: free places, and rests too short for one.
    pub external_bytes: usize,
    /// Length in bytes of the longest object that there is a free place for, 0 when there is none.
    /// A longer object needs a new slab, page, buffer or cell.
    pub largest_free_bytes: usize,
}

impl Fragmentation {
    /// RAM held that is not payload, in bytes.
    pub const fn waste_bytes(self) -> usize {
        self.internal_bytes + self.external_bytes
    }
}

/// The RAM that holds compressed pages.
///
/// The caller guarantees that a handle is used only between the insert that gave it (or the
/// relocation that replaced it) and its removal, always with the length inserted. The implementer
/// guarantees that an object's bytes stay as inserted in between.
///
/// Compaction is driven by the owner of the handles, who alone knows where they are kept:
/// [`begin_compaction`](Pool::begin_compaction), then [`relocate`](Pool::relocate) for every handle
/// (other calls may come in between), then [`end_compaction`](Pool::end_compaction). A pool in which
/// nothing is ever moved has none of the four.
pub trait Pool {
    /// Keeps a copy of `bytes`, 1 to [`OBJECT_BYTES_MAX`] of them. `None`: the limit or the
    /// address space is used up, and nothing was changed.
    fn insert(&mut self, bytes: &[u8]) -> Option<Handle>;

    /// The object's bytes: as they lie, or put together in `gathered` where they lie in pieces.
    fn read<'a>(
        &'a self,
        handle: Handle,
        len: usize,
        gathered: &'a mut [u8; OBJECT_BYTES_MAX],
    ) -> &'a [u8];

    /// Asks the processor for what [`read`](Pool::read) and [`remove`](Pool::remove) of the object read, so that it
    /// comes while something else is done. Worth nothing in pools that would have to read something to know what.
    fn prefetch(&self, _handle: Handle, _len: usize) {}

    /// Forgets the object. RAM that holds nothing more goes back to the space.
    fn remove(&mut self, handle: Handle, len: usize);

    /// Refuses inserts that would make the pool hold more than `limit_bytes`. Without a call there
    /// is no limit. What is held already stays.
    fn set_limit_bytes(&mut self, limit_bytes: usize);

    /// RAM that objects and the gaps between them take, in bytes.
    fn held_bytes(&self) -> usize;

    /// Sum of the lengths of all objects.
    fn payload_bytes(&self) -> usize;

    /// RAM that the pool's own descriptions take, in bytes.
    fn metadata_bytes(&self) -> usize;

    /// Where the RAM goes that is held and not payload. May walk over a pool's classes or tables of
    /// fixed length, but not over objects.
    fn fragmentation(&self) -> Fragmentation;

    /// Whether enough RAM would come back to be worth a compaction. Cheap enough to ask at every
    /// insert.
    fn should_compact(&self) -> bool {
        false
    }

    /// Chooses what to evacuate. `false`: nothing would come back, and no compaction was begun.
    fn begin_compaction(&mut self) -> bool {
        false
    }

    /// Moves the object if it lies in what is being evacuated: its new handle, which replaces
    /// the one given. `None`: it stays where it is.
    fn relocate(&mut self, _handle: Handle, _len: usize) -> Option<Handle> {
        None
    }

    /// Ends the compaction; what could not be evacuated is used again.
    fn end_compaction(&mut self) {}
}
