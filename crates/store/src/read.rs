//! Records on their way back: the blocks that hold them and no more, verified.
//!
//! Source: cervera (1999): what is read beside the page is forgotten, not cached. Neighbours that
//! are wanted at the same time come in one read.

use crate::{BLOCK_BYTES, Blocks, Clusters, Errno, Place};

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

/// Where the blocks of a record start and end in the store, in bytes.
fn block_range(clusters: Clusters<'_>, place: Place) -> (u64, u64) {
    let (start, block) = (place.offset_bytes(), BLOCK_BYTES as u64);
    let end = start + clusters.seal().record_bytes(place.len()) as u64;
    (start / block * block, end.next_multiple_of(block))
}

/// Reads one record by way of `buffer`, which is at least [`READ_BYTES_MIN`] long and aligned to
/// [`BLOCK_BYTES`]: its data, and how many bytes were read.
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
    debug_assert!((buffer.as_ptr() as usize).is_multiple_of(BLOCK_BYTES));
    let (start, end) = block_range(clusters, place);
    let blocks_bytes = (end - start) as usize;
    let buffer = &mut buffer[..blocks_bytes];
    blocks.read_at(start, buffer).map_err(ReadError::Io)?;
    let record = &mut buffer[(place.offset_bytes() - start) as usize..];
    let data = clusters.seal().open(record, place, clusters.generation(place.cluster()));
    Ok((data.ok_or(ReadError::Corrupt)?, blocks_bytes))
}

/// Reads several records of one cluster, `places` ascending and none twice, and hands each to `each` with its
/// index. Neighbours whose blocks fit `buffer` together come in one read; when that fails, each of
/// them is read by itself, so that a bad block costs only the records that lie in it.
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
    let usable_bytes = buffer.len() / BLOCK_BYTES * BLOCK_BYTES;
    let mut transfer = Transfer::default();
    let mut first = 0;
    while let Some(&place) = places.get(first) {
        debug_assert_eq!(place.cluster(), places[0].cluster());
        let start = block_range(clusters, place).0;
        let fits = |place: &Place| block_range(clusters, *place).1 - start <= usable_bytes as u64;
        // The first always counts, so that a buffer too short is noticed by its index.
        let neighbours = 1 + places[first + 1..].iter().take_while(|place| fits(place)).count();
        let group = &places[first..first + neighbours];
        let blocks_bytes = (block_range(clusters, group[neighbours - 1]).1 - start) as usize;
        let whole = &mut buffer[..blocks_bytes];
        transfer.reads += 1;
        transfer.bytes += blocks_bytes;
        match blocks.read_at(start, whole) {
            Ok(()) => {
                for (index, &place) in (first..).zip(group) {
                    let record = &mut whole[(place.offset_bytes() - start) as usize..];
                    let generation = clusters.generation(place.cluster());
                    let data = clusters.seal().open(record, place, generation);
                    each(index, data.ok_or(ReadError::Corrupt));
                }
            }
            Err(errno) if neighbours == 1 => each(first, Err(ReadError::Io(errno))),
            Err(_) => {
                for (index, &place) in (first..).zip(group) {
                    let (start, end) = block_range(clusters, place);
                    transfer.reads += 1;
                    transfer.bytes += (end - start) as usize;
                    each(index, read(blocks, clusters, place, buffer).map(|(data, _)| data));
                }
            }
        }
        first += neighbours;
    }
    transfer
}
