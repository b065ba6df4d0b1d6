//! Arbitrary bytes as a trace, and as the records of a trace whose checksums are right: an error or
//! records that make sense, no panic, and no more memory than a chunk takes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zpager_sim::trace::{Contents, Event, Header, PAGE_END, Reader, SIZE_MAX, Writer};

/// The end of a trace without references: a chunk of one byte.
const END_BYTES: usize = 25;

fuzz_target!(|data: &[u8]| {
    read(data);
    if let Some((&[codecs, records], payload)) = data.split_first_chunk()
        && payload.len() <= 1 << 16
    {
        read(&framed(codecs % 4, records, payload));
    }
});

/// A trace of one chunk with this payload, as `docs/traces.md` has it.
fn framed(codecs: u8, records: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        page_bytes: 4096,
        window_pages: 0,
        origin: String::new(),
        command: Vec::new(),
        codecs: (0..codecs).map(|codec| codec.to_string()).collect(),
    };
    let empty = Writer::new(Vec::new(), &header).expect("a header").finish().expect("written");
    let mut bytes = empty[..empty.len() - END_BYTES].to_vec();
    let (head, checksum) = bytes.split_at(bytes.len() - 8);
    let seed = xxh3_64_with_seed(head, 0);
    assert_eq!(checksum, seed.to_le_bytes());
    let begins = bytes.len();
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&u32::from(records).to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(payload);
    let checksum = xxh3_64_with_seed(&bytes[begins..], seed);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let codecs = reader.header().codecs.len();
    while let Ok(Some(event)) = reader.next_event() {
        match event {
            Event::Release { first, pages } => assert!(pages > 0 && first + pages <= PAGE_END),
            Event::Reference(reference) => {
                assert!(reference.page < PAGE_END);
                if let Contents::Sizes(sizes) = reference.contents {
                    assert_eq!(sizes.len(), codecs);
                    assert!(sizes.iter().all(|size| (1..=SIZE_MAX).contains(size)));
                }
            }
        }
    }
    assert!(reader.totals().records <= bytes.len() as u64);
}
