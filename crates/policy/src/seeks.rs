//! Whether the store's disk takes long to begin: to move an arm, or until it may, where it is held to so many
//! operations a second.
//!
//! There reading a whole cluster takes hardly longer than reading a page of it, which follows from what
//! short reads and longer ones take as the program runs, and before from what the disk was asked. So what
//! lies around a page is read with it while enough of that is wanted; and who has to write to make room
//! makes more of it at once, so that the next reads are not interrupted, nor the next writes.
//!
//! Source: cervera (1999), 3: what is written together costs one seek; mm/readahead.c of Linux for reads in
//! order. Costs are measured, as in [`crate::Split`].
//!
//! Bad for: a disk that is slow at times. It is seen after a few dozen reads.

/// A short read has at most so many bytes, a long one at least so many.
const SHORT_BYTES_MAX: u64 = 32 << 10;
const LONG_BYTES_MIN: u64 = 128 << 10;
/// Reads of each kind before anything is known.
const READS_MIN: u32 = 8;
/// A mean takes in this part of every new value.
const MEAN_PART: u64 = 32;
/// The disk takes long to begin where reading a cluster takes less than this, and no more where it takes more than
/// that, in halves of what short reads take.
const FAR_HALVES: u64 = 3;
const NEAR_HALVES: u64 = 4;
/// And a short read takes longer than so many faults that the pool serves. A fast one may wait for a write,
/// and take as long as a cluster for that, but not so long.
const POOL_FAULTS: u64 = 16;
/// Room that is made at once, as a part of the memory, and most of it. Less than two clusters is made by one
/// write anyway.
const ROOM_PART: u64 = 32;
const ROOM_BYTES_MAX: u64 = 2 << 20;
const ROOM_CLUSTERS_MIN: u64 = 2;

/// What reads from the store take, in the caller's unit of time; 0 where that is not known.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadTicks {
    /// A page.
    pub page: u64,
    /// A whole cluster.
    pub cluster: u64,
}

/// Reads of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    reads: u32,
    /// The means of them, in which the past fades.
    bytes: u64,
    ticks: u64,
}

impl Kind {
    fn add(&mut self, bytes: u64, ticks: u64) {
        self.reads = self.reads.saturating_add(1);
        let part = MEAN_PART.min(u64::from(self.reads));
        for (mean, value) in [(&mut self.bytes, bytes), (&mut self.ticks, ticks)] {
            *mean = (*mean * (part - 1) + value) / part;
        }
    }
}

/// What reads of the store took.
#[derive(Debug, Clone, Copy)]
pub struct Seeks {
    cluster_bytes: u64,
    /// See [`Self::room_bytes`].
    room_bytes: usize,
    short: Kind,
    long: Kind,
    /// Before there were enough of both.
    expected: ReadTicks,
    are_dear: bool,
}

impl Seeks {
    /// Nothing is known of the disk; a whole read has `cluster_bytes`, and the process `memory_bytes`.
    pub fn new(cluster_bytes: usize, memory_bytes: u64) -> Self {
        let cluster_bytes = cluster_bytes as u64;
        let room_bytes = (memory_bytes / ROOM_PART).min(ROOM_BYTES_MAX);
        let is_enough = room_bytes >= ROOM_CLUSTERS_MIN * cluster_bytes;
        Seeks {
            cluster_bytes,
            room_bytes: if is_enough { room_bytes as usize } else { 0 },
            short: Kind::default(),
            long: Kind::default(),
            expected: ReadTicks::default(),
            are_dear: false,
        }
    }

    /// Has reads be expected to take so long until enough were measured.
    pub fn expect(&mut self, expected: ReadTicks) {
        self.expected = expected;
    }

    /// Notes some reads, of so many bytes together, and what they took, in the caller's unit of time, in
    /// which a fault that the pool serves takes `pool_fault_ticks`.
    pub fn read(&mut self, reads: u32, bytes: usize, ticks: u64, pool_fault_ticks: u64) {
        let reads = u64::from(reads.max(1));
        let (bytes, ticks) = (bytes as u64 / reads, ticks / reads);
        match bytes {
            1..=SHORT_BYTES_MAX => self.short.add(bytes, ticks),
            LONG_BYTES_MIN.. => self.long.add(bytes, ticks),
            _ => {}
        }
        let ReadTicks { page, cluster } = self.read_ticks();
        if cluster > 0 {
            let halves = if self.are_dear { NEAR_HALVES } else { FAR_HALVES };
            self.are_dear = cluster * 2 < page * halves && page > pool_fault_ticks * POOL_FAULTS;
        }
    }

    /// What reads take. Never one that was measured beside one that was only expected, as some wait for a write.
    fn read_ticks(&self) -> ReadTicks {
        match self.short.reads.min(self.long.reads) >= READS_MIN {
            true => ReadTicks { page: self.short.ticks, cluster: self.cluster_ticks() },
            false => self.expected,
        }
    }

    /// What reading a cluster takes, by what the bytes take that long reads have more than short ones.
    fn cluster_ticks(&self) -> u64 {
        let Seeks { short, long, .. } = self;
        let more_ticks = long.ticks.saturating_sub(short.ticks);
        let more_bytes = (long.bytes - short.bytes).max(1);
        let left_bytes = self.cluster_bytes.saturating_sub(long.bytes);
        long.ticks + more_ticks * left_bytes / more_bytes
    }

    /// Whether the disk is known to take long to begin.
    pub fn are_dear(&self) -> bool {
        self.are_dear
    }

    /// What is made room for besides what is wanted, once something has to be written for it.
    pub fn room_bytes(&self) -> usize {
        if self.are_dear { self.room_bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER_BYTES: usize = 256 << 10;
    const MEMORY_BYTES: u64 = 64 << 20;

    /// Reads of 8 and 256 KiB in turns that take so long.
    fn read(seeks: &mut Seeks, times: u32, short_ticks: u64, long_ticks: u64) {
        for _ in 0..times {
            seeks.read(1, 8 << 10, short_ticks, 3);
            seeks.read(1, 256 << 10, long_ticks, 3);
        }
    }

    #[test]
    fn a_disk_is_known_by_what_long_reads_take_longer() {
        for (memory_bytes, room_bytes) in
            [(32 << 20, 1 << 20), (15 << 20, 0), (1 << 30, ROOM_BYTES_MAX as usize)]
        {
            let mut seeks = Seeks::new(CLUSTER_BYTES, memory_bytes);
            read(&mut seeks, READS_MIN - 1, 12_700, 14_100);
            assert!(!seeks.are_dear(), "too little is known");
            assert_eq!(seeks.room_bytes(), 0);
            read(&mut seeks, 1, 12_700, 14_100);
            assert!(seeks.are_dear());
            assert_eq!(seeks.room_bytes(), room_bytes);
        }
        let mut seeks = Seeks::new(CLUSTER_BYTES, MEMORY_BYTES);
        read(&mut seeks, 100, 106, 518);
        assert!(!seeks.are_dear());
    }

    #[test]
    fn what_a_cluster_takes_follows_from_shorter_reads() {
        for (long_ticks, are_dear) in [(13_600, true), (400, false)] {
            let mut seeks = Seeks::new(CLUSTER_BYTES, MEMORY_BYTES);
            for _ in 0..READS_MIN {
                seeks.read(1, 16 << 10, if are_dear { 12_700 } else { 121 }, 3);
                // Two for one fault.
                seeks.read(2, 320 << 10, 2 * long_ticks, 3);
                // Pages that were in RAM, and what is neither short nor long, say nothing.
                seeks.read(0, 0, 1, 3);
                seeks.read(1, 48 << 10, 1, 3);
            }
            assert_eq!(seeks.are_dear(), are_dear, "{seeks:?}");
        }
    }

    #[test]
    fn a_fast_disk_whose_short_reads_wait_for_writes_is_none() {
        let mut seeks = Seeks::new(CLUSTER_BYTES, MEMORY_BYTES);
        for _ in 0..100 {
            seeks.read(1, 8 << 10, 600, 40);
            seeks.read(1, 256 << 10, 518, 40);
        }
        assert!(!seeks.are_dear());
        seeks.read(1, 8 << 10, 600, 30);
        assert!(seeks.are_dear());
    }

    #[test]
    fn a_disk_is_known_by_what_it_was_asked_until_enough_is_measured() {
        for (cluster, are_dear) in [(14_100, true), (26_000, false), (0, false)] {
            let mut seeks = Seeks::new(CLUSTER_BYTES, MEMORY_BYTES);
            seeks.expect(ReadTicks { page: 12_700, cluster });
            assert!(!seeks.are_dear(), "nothing was read");
            // Neither short nor long; then short ones that begin where the last one ended.
            seeks.read(1, 48 << 10, 12_900, 3);
            assert_eq!(seeks.are_dear(), are_dear, "{cluster}");
            for _ in 0..2 * READS_MIN {
                seeks.read(1, 8 << 10, 100, 3);
            }
            assert_eq!(seeks.are_dear(), are_dear, "{cluster}");
        }
        let mut seeks = Seeks::new(CLUSTER_BYTES, MEMORY_BYTES);
        seeks.expect(ReadTicks { page: 12_700, cluster: 14_100 });
        seeks.read(1, 8 << 10, 106, 1000);
        assert!(!seeks.are_dear(), "no dearer than some faults that the pool serves");
        seeks.read(1, 8 << 10, 106, 3);
        assert!(seeks.are_dear());
        read(&mut seeks, READS_MIN, 106, 518);
        assert!(!seeks.are_dear(), "it was another disk that was asked");
    }

    #[test]
    fn a_disk_that_becomes_another_is_known_anew() {
        let mut seeks = Seeks::new(CLUSTER_BYTES, MEMORY_BYTES);
        read(&mut seeks, 100, 106, 518);
        read(&mut seeks, 100, 6_600, 6_700);
        assert!(seeks.are_dear());
        // Between the two it stays what it was.
        read(&mut seeks, 200, 6_600, 12_000);
        assert!(seeks.are_dear());
        read(&mut seeks, 200, 106, 518);
        assert!(!seeks.are_dear());
        read(&mut seeks, 200, 6_600, 12_000);
        assert!(!seeks.are_dear());
    }
}
