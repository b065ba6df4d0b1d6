//! A pool of the kind that was chosen when it was made.
//!
//! Each call asks once which kind it is, a branch that always goes the same way. No allocator is
//! needed, and the pool's own code is called directly.

use crate::{
    Buckets, Buffers, Cells, Fragmentation, Handle, OBJECT_BYTES_MAX, Pool, SizeClasses, Space,
};

/// One of the pools.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, and no allocator for a box")]
pub enum AnyPool<S> {
    /// See [`SizeClasses`].
    SizeClasses(SizeClasses<S>),
    /// See [`Buckets`].
    Buckets(Buckets<S>),
    /// See [`Buffers`].
    Buffers(Buffers<S>),
    /// See [`Cells`].
    Cells(Cells<S>),
}

/// Calls a method of the pool that there is.
macro_rules! each {
    ($any:expr, $pool:ident => $call:expr) => {
        match $any {
            AnyPool::SizeClasses($pool) => $call,
            AnyPool::Buckets($pool) => $call,
            AnyPool::Buffers($pool) => $call,
            AnyPool::Cells($pool) => $call,
        }
    };
}

impl<S: Space> AnyPool<S> {
    /// Where the objects lie.
    pub fn objects(&self) -> &S {
        each!(self, pool => pool.objects())
    }

    /// The pool, if its objects lie in buffers.
    pub fn buffers(&self) -> Option<&Buffers<S>> {
        match self {
            AnyPool::Buffers(buffers) => Some(buffers),
            _ => None,
        }
    }

    /// See [`Self::buffers`].
    pub fn buffers_mut(&mut self) -> Option<&mut Buffers<S>> {
        match self {
            AnyPool::Buffers(buffers) => Some(buffers),
            _ => None,
        }
    }
}

impl<S: Space> Pool for AnyPool<S> {
    #[inline]
    fn insert(&mut self, bytes: &[u8]) -> Option<Handle> {
        each!(self, pool => pool.insert(bytes))
    }

    #[inline]
    fn read<'a>(
        &'a self,
        handle: Handle,
        len: usize,
        gathered: &'a mut [u8; OBJECT_BYTES_MAX],
    ) -> &'a [u8] {
        each!(self, pool => pool.read(handle, len, gathered))
    }

    #[inline]
    fn prefetch(&self, handle: Handle, len: usize) {
        each!(self, pool => pool.prefetch(handle, len));
    }

    #[inline]
    fn remove(&mut self, handle: Handle, len: usize) {
        each!(self, pool => pool.remove(handle, len));
    }

    fn set_limit_bytes(&mut self, limit_bytes: usize) {
        each!(self, pool => pool.set_limit_bytes(limit_bytes));
    }

    #[inline]
    fn held_bytes(&self) -> usize {
        each!(self, pool => pool.held_bytes())
    }

    #[inline]
    fn payload_bytes(&self) -> usize {
        each!(self, pool => pool.payload_bytes())
    }

    #[inline]
    fn metadata_bytes(&self) -> usize {
        each!(self, pool => pool.metadata_bytes())
    }

    fn fragmentation(&self) -> Fragmentation {
        each!(self, pool => pool.fragmentation())
    }

    #[inline]
    fn should_compact(&self) -> bool {
        each!(self, pool => pool.should_compact())
    }

    fn begin_compaction(&mut self) -> bool {
        each!(self, pool => pool.begin_compaction())
    }

    fn relocate(&mut self, handle: Handle, len: usize) -> Option<Handle> {
        each!(self, pool => pool.relocate(handle, len))
    }

    fn end_compaction(&mut self) {
        each!(self, pool => pool.end_compaction());
    }
}
