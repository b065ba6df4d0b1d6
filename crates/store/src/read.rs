//! Records on their way back: the blocks that hold them and no more, verified.
//!
//! Source: cervera (1999): what is read beside the page is forgotten, not cached. Neighbours that
//! are wanted at the same time come in one read.

use core::ops::Range;

use crate::{BLOCK_BYTES, Blocks, COPIES_MAX, Clusters, Errno, Place};

/// Shortest buffer for reading: blocks that the longest record lies in, an encrypted page with its tag.
pub const READ_BYTES_MIN: usize = 3 * BLOCK_BYTES;

/// Why a record did not come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// The read failed.
    Io(Errno),
    /// What was read is not what was written.
    Corrupt,
}

/// What a run of reads cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Reads made, failed ones included.
    pub reads: u32,
    /// Bytes asked for by them.
    pub bytes: usize,
}

impl Transfer {
    fn add(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes += bytes;
    }
}

/// Where the blocks of a record start and end in the store, in bytes.
fn block_range(clusters: Clusters<'_>, place: Place) -> (u64, u64) {
    let (start, block) = (place.offset_bytes(), BLOCK_BYTES as u64);
    let end = start + clusters.seal().record_bytes(place.len()) as u64;
    (start / block * block, end.next_multiple_of(block))
}

/// Where the data of a record are in `read`, which was read from `start` on, if they are what was
/// written.
fn opened(
    clusters: Clusters<'_>,
    place: Place,
    start: u64,
    read: &mut [u8],
) -> Option<Range<usize>> {
    let within = (place.offset_bytes() - start) as usize;
    let (seal, generation) = (clusters.seal(), clusters.generation(place.cluster()));
    let data = seal.open(read.get_mut(within..)?, place, generation)?;
    let first = within + seal.bytes();
    Some(first..first + data.len())
}

/// Reads one record by way of `buffer`, which is at least [`READ_BYTES_MIN`] long and aligned to
/// [`BLOCK_BYTES`]: its data, and how many bytes were read. What is not what was written is read from
/// other copies, if there are any.
///
/// # Errors
/// [`ReadError::Io`] when the read failed, [`ReadError::Corrupt`] when the record is not the one
/// that was written at this place in the cluster's present life.
pub fn read<'b>(
    blocks: &impl Blocks,
    clusters: Clusters<'_>,
    place: Place,
    buffer: &'b mut [u8],
) -> Result<(&'b [u8], usize), ReadError> {
    let mut transfer = Transfer::default();
    read_one(blocks, clusters, place, buffer, &mut transfer).map(|data| (data, transfer.bytes))
}

fn read_one<'b>(
    blocks: &impl Blocks,
    clusters: Clusters<'_>,
    place: Place,
    buffer: &'b mut [u8],
    transfer: &mut Transfer,
) -> Result<&'b [u8], ReadError> {
    debug_assert!((buffer.as_ptr() as usize).is_multiple_of(BLOCK_BYTES));
    let (start, end) = block_range(clusters, place);
    let buffer = &mut buffer[..(end - start) as usize];
    transfer.add(buffer.len());
    blocks.read_at(start, buffer).map_err(ReadError::Io)?;
    let mut data = opened(clusters, place, start, buffer);
    for copy in 0..COPIES_MAX {
        if data.is_none() && blocks.read_copy_at(copy, start, buffer).is_ok() {
            transfer.add(buffer.len());
            data = opened(clusters, place, start, buffer);
        }
    }
    data.map(|data| &buffer[data]).ok_or(ReadError::Corrupt)
}

/// How many of `places`, from the first on, have blocks that fit a buffer of `buffer_bytes` together, and
/// where those start and end in the store, in bytes. The first always counts, so that a buffer too short
/// is noticed by its index.
pub(crate) fn run_range(
    clusters: Clusters<'_>,
    places: &[Place],
    buffer_bytes: usize,
) -> (usize, Range<u64>) {
    let (start, mut end) = block_range(clusters, places[0]);
    let usable_bytes = (buffer_bytes / BLOCK_BYTES * BLOCK_BYTES) as u64;
    let mut count = 1;
    for place in &places[1..] {
        let place_end = block_range(clusters, *place).1;
        if place_end - start > usable_bytes {
            break;
        }
        (end, count) = (place_end, count + 1);
    }
    (count, start..end)
}

/// Reads several records of one cluster, `places` ascending and none twice, and hands each to `each` with its
/// index. Neighbours whose blocks fit `buffer` together come in one read; when that fails, or one of
/// them is not what was written, each of those that are left is read by itself, so that a bad block
/// costs only the records that lie in it.
///
/// `buffer` is as for [`read()`]; the longer it is, the fewer the reads.
pub fn read_run(
    blocks: &impl Blocks,
    clusters: Clusters<'_>,
    places: &[Place],
    buffer: &mut [u8],
    mut each: impl FnMut(usize, Result<&[u8], ReadError>),
) -> Transfer {
    debug_assert!(places.is_sorted_by(|one, next| one < next) && buffer.len() >= READ_BYTES_MIN);
    debug_assert!((buffer.as_ptr() as usize).is_multiple_of(BLOCK_BYTES));
    let mut transfer = Transfer::default();
    let mut first = 0;
    while first < places.len() {
        debug_assert_eq!(places[first].cluster(), places[0].cluster());
        let (neighbours, Range { start, end: end_bytes }) =
            run_range(clusters, &places[first..], buffer.len());
        let end = first + neighbours;
        let whole = &mut buffer[..(end_bytes - start) as usize];
        transfer.add(whole.len());
        match blocks.read_at(start, whole) {
            Ok(()) => {
                while first < end
                    && let Some(data) = opened(clusters, places[first], start, whole)
                {
                    each(first, Ok(&whole[data]));
                    first += 1;
                }
            }
            Err(errno) if neighbours == 1 => {
                each(first, Err(ReadError::Io(errno)));
                first = end;
            }
            Err(_) => {}
        }
        for (index, &place) in (first..end).zip(&places[first..end]) {
            each(index, read_one(blocks, clusters, place, buffer, &mut transfer));
        }
        first = end;
    }
    transfer
}
