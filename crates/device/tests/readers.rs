//! Connections that read from the store, write and trim at the same time: every read gives what its blocks
//! were at some moment of it, and never what they were before an earlier one.
//!
//! The seed is taken from ZPAGER_SEED, or fixed; it is printed.

mod versions;

use std::thread;

use versions::{BLOCK_BYTES, BLOCKS, Swap, WARM_BLOCKS, device, fill, version_of};
use zpager_device::{Target, Worker};
use zpager_policy::DesignId;
use zpager_seed::{Random, random};

const CLIENTS: u64 = 4;
const STEPS: u32 = 6000;
const PIECE_BLOCKS: u64 = 16;

/// One connection. It alone changes the blocks whose number leaves its own when divided.
struct Client<'a> {
    number: u64,
    device: &'a Swap,
    worker: Worker,
    random: Random,
    /// Of its own blocks what they are; of others the last that was seen, unless that was zeros.
    versions: Vec<u32>,
}

impl Client<'_> {
    fn any_block(&mut self) -> u64 {
        let bound = if self.random.u8(..) < 128 { WARM_BLOCKS } else { BLOCKS };
        self.random.u64(..bound)
    }

    fn own_block(&mut self) -> u64 {
        self.any_block() / CLIENTS * CLIENTS + self.number
    }

    /// Versions go on from where they were, so nobody takes an old one for a new one.
    fn trim(&mut self, block: u64) {
        self.device.trim(block * BLOCK_BYTES, BLOCK_BYTES).expect("trimmed");
        let data = self.device.read(&mut self.worker, block * BLOCK_BYTES, BLOCK_BYTES as usize);
        assert!(data.expect("zeros").iter().all(|byte| *byte == 0));
        self.write(block);
    }

    fn write(&mut self, block: u64) {
        let version = self.versions[block as usize] + 1;
        let at = block * BLOCK_BYTES;
        fill(self.worker.slot(at, BLOCK_BYTES as usize), block, version);
        self.device.write(&mut self.worker, at, BLOCK_BYTES as usize).expect("room");
        self.versions[block as usize] = version;
    }

    fn read(&mut self) {
        let first = self.any_block();
        let blocks = (1 + self.random.u64(..PIECE_BLOCKS)).min(BLOCKS - first);
        let bytes = (blocks * BLOCK_BYTES) as usize;
        let data = self.device.read(&mut self.worker, first * BLOCK_BYTES, bytes).expect("there");
        for (block, data) in (first..).zip(data.chunks(BLOCK_BYTES as usize)) {
            let (version, known) = (version_of(data, block), &mut self.versions[block as usize]);
            let is_own = block % CLIENTS == self.number;
            assert!(!is_own || version == *known, "block {block}: {version}, not {known}");
            // Zeros are of the moment between a trim and the next write.
            assert!(version == 0 || version >= *known, "block {block}: {version} after {known}");
            *known = version.max(*known);
        }
    }

    fn run(mut self) -> Vec<u32> {
        for _ in 0..STEPS {
            let own = self.own_block();
            match self.random.u8(..8) {
                0 | 1 => self.write(own),
                2 => self.trim(own),
                _ => self.read(),
            }
        }
        self.device.disconnect(self.worker);
        self.versions
    }
}

fn check(id: DesignId) {
    let device = device(id);
    let mut random = random(2004);
    let mut all = vec![0; BLOCKS as usize];
    thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| {
            let mut client = Client {
                number,
                device: &device,
                worker: device.connect().expect("room"),
                random: random.fork(),
                versions: vec![0; BLOCKS as usize],
            };
            for block in (number..BLOCKS).step_by(CLIENTS as usize) {
                client.write(block);
            }
            client
        });
        let clients = clients.collect::<Vec<_>>();
        let threads = clients.into_iter().map(|client| scope.spawn(|| client.run()));
        for (number, thread) in threads.collect::<Vec<_>>().into_iter().enumerate() {
            let versions = thread.join().expect("it goes on");
            for block in (number..BLOCKS as usize).step_by(CLIENTS as usize) {
                all[block] = versions[block];
            }
        }
    });
    let counters = device.status().counters;
    assert!(counters.spilled_reads > u64::from(STEPS), "too few came from the store: {counters:?}");
    let mut worker = device.connect().expect("the first");
    for (block, version) in (0..).zip(all) {
        let data = device.read(&mut worker, block * BLOCK_BYTES, BLOCK_BYTES as usize);
        assert_eq!(version_of(data.expect("there"), block), version, "block {block}");
    }
}

#[test]
fn by_what_is_measured() {
    check(DesignId::Default);
}

#[test]
fn by_a_design_that_cleans_ahead() {
    check(DesignId::Cervera);
}
