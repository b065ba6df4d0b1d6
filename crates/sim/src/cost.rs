//! What things cost in modelled time.
//!
//! Every figure is a constant with its source, so that a result depends on nothing but the trace
//! and the flags. They were measured on one machine; what counts are ratios.

use std::fmt;

use zpager_codec::CodecId;

/// What the pager's own steps cost, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// A fault served in the faulting thread, without what it brings in.
    pub fault_ns: u64,
    /// A call that places pages in the program, and each page of it.
    pub place_call_ns: u64,
    /// See `place_call_ns`.
    pub place_page_ns: u64,
    /// A call that lifts neighbouring pages out of the program, and each page of it.
    pub lift_call_ns: u64,
    /// See `lift_call_ns`.
    pub lift_page_ns: u64,
    /// A call that lets a page be written of which the store has a copy; it comes with a fault.
    pub protect_call_ns: u64,
}

/// Measured with the experiments' `primitives.c` on Linux 6.18: a fault with the copy of its page 2.6 us;
/// UFFDIO_COPY 1.05 us alone and 0.83 us a page in a batch; UFFDIO_MOVE 1.1 us alone and 0.21 us a
/// page in runs of 16, longer than which they seldom are; UFFDIO_WRITEPROTECT 0.9 us.
pub const COSTS: Costs = Costs {
    fault_ns: 1550,
    place_call_ns: 220,
    place_page_ns: 830,
    lift_call_ns: 950,
    lift_page_ns: 150,
    protect_call_ns: 900,
};

/// Whether a program that holds so much is managed from now on: as in a run, it is left alone, and costs
/// nothing, until it comes near its budget.
pub(crate) fn is_near(held_bytes: u64, budget_bytes: u64) -> bool {
    held_bytes >= budget_bytes / 4 * 3
}

/// What a codec takes for a page, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodecCosts {
    /// To compress one, also in vain.
    pub compress_ns: u64,
    /// To restore one.
    pub decompress_ns: u64,
}

/// Geometric means over the seven programs of the tables in `docs/codecs.md`, with AVX-512.
pub const fn codec_costs(codec: CodecId) -> CodecCosts {
    let (compress_ns, decompress_ns) = match codec {
        CodecId::Copy => (548, 119),
        CodecId::Lz4 => (5258, 1584),
        CodecId::Zstd => (13918, 5194),
        CodecId::Word => (1526, 504),
        CodecId::Wkdm => (1254, 1188),
        CodecId::Wk4x4 => (2961, 1479),
        CodecId::Lzo => (6083, 5365),
        CodecId::Lzw => (28783, 16743),
        CodecId::Deflate => (20695, 6203),
        CodecId::Zstd3 => (16194, 4974),
        CodecId::Zstd6 => (44983, 4604),
        CodecId::ZstdDictionary => (14049, 4405),
    };
    CodecCosts { compress_ns, decompress_ns }
}

/// A disk behind the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// The name by which a user chooses it.
    pub name: &'static str,
    /// Until a read begins to transfer.
    pub read_ns: u64,
    /// The same of a write.
    pub write_ns: u64,
    /// The same of an access that begins near to where the last one ended.
    pub next_ns: u64,
    /// How fast it transfers.
    pub bytes_per_second: u64,
}

/// The disks: a magnetic one of 7200 turns a minute (seek 8.5 and 9.5 ms and half a turn), a
/// solid-state one on SATA (11,000 reads and 43,000 writes a second one at a time) and one on
/// NVMe (15,000 and 50,000), as their makers' data sheets have them.
pub const DISKS: [Disk; 3] = [
    Disk {
        name: "hdd",
        read_ns: 12_700_000,
        write_ns: 13_700_000,
        next_ns: 100_000,
        bytes_per_second: 180_000_000,
    },
    Disk {
        name: "ssd",
        read_ns: 91_000,
        write_ns: 23_000,
        next_ns: 23_000,
        bytes_per_second: 530_000_000,
    },
    Disk {
        name: "nvme",
        read_ns: 67_000,
        write_ns: 20_000,
        next_ns: 20_000,
        bytes_per_second: 3_000_000_000,
    },
];

impl Disk {
    /// The disk of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        DISKS.into_iter().find(|disk| disk.name == name)
    }

    /// What moving so many bytes takes once it has begun.
    pub(crate) fn transfer_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second)) as u64
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1000.0;
        write!(
            f,
            "{}: {} us before a read, {} before a write, {} near to where the last access ended; {} MB/s",
            self.name,
            us(self.read_ns),
            us(self.write_ns),
            us(self.next_ns),
            self.bytes_per_second / 1_000_000
        )
    }
}

/// Modelled time, by what it went to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Faults, and pages placed in and lifted out of the program.
    pub moving_ns: u64,
    /// Compressing and restoring.
    pub coding_ns: u64,
    /// Reading from the store and writing to it.
    pub store_ns: u64,
}

impl Ledger {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.moving_ns + self.coding_ns + self.store_ns
    }

    /// A fault that brings in `pages` pages.
    pub(crate) fn fault(&mut self, pages: u64) {
        self.moving_ns += COSTS.fault_ns + COSTS.place_call_ns + pages * COSTS.place_page_ns;
    }

    /// A fault of a page that is there, by which it is told that it is written.
    pub(crate) fn write_fault(&mut self) {
        self.moving_ns += COSTS.fault_ns + COSTS.protect_call_ns;
    }

    /// Pages, in ascending order, that are lifted out with a call for each run of them.
    pub(crate) fn lift(&mut self, pages: &[u64]) {
        let calls = pages.chunk_by(|page, next| page + 1 == *next).count() as u64;
        self.moving_ns += calls * COSTS.lift_call_ns + pages.len() as u64 * COSTS.lift_page_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up() {
        let mut ledger = Ledger::default();
        ledger.fault(2);
        ledger.lift(&[4, 5, 9]);
        assert_eq!(ledger.total_ns(), 1550 + 220 + 2 * 830 + 2 * 950 + 3 * 150);
        let disk = Disk::from_name("ssd").expect("a disk");
        assert_eq!(disk.transfer_ns(530), 1000);
        assert_eq!(Disk::from_name("tape"), None);
    }
}
