//! The trace format: what was written comes back, and what is no trace is told with its place.

use proptest::prelude::*;
use zpager_sim::trace::*;

/// Length of the end of a trace without references.
const END_BYTES: usize = 25;

/// A record that owns its sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Record {
    Reference { page: u64, is_fresh: bool, is_written: bool, contents: Owned },
    Release { first: u64, pages: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Unchanged,
    SameFilled,
    Sizes(Vec<u16>),
}

impl Record {
    fn write(&self, writer: &mut Writer<Vec<u8>>) {
        match self {
            Record::Release { first, pages } => writer.release(*first, *pages),
            Record::Reference { page, is_fresh, is_written, contents } => {
                let contents = match contents {
                    Owned::Unchanged => Contents::Unchanged,
                    Owned::SameFilled => Contents::SameFilled,
                    Owned::Sizes(sizes) => Contents::Sizes(sizes),
                };
                let (is_fresh, is_written) = (*is_fresh, *is_written);
                writer.reference(&Reference { page: *page, is_fresh, is_written, contents })
            }
        }
        .expect("a sound record");
    }

    fn of(event: Event<'_>) -> Self {
        match event {
            Event::Release { first, pages } => Record::Release { first, pages },
            Event::Reference(Reference { page, is_fresh, is_written, contents }) => {
                let contents = match contents {
                    Contents::Unchanged => Owned::Unchanged,
                    Contents::SameFilled => Owned::SameFilled,
                    Contents::Sizes(sizes) => Owned::Sizes(sizes.to_vec()),
                };
                Record::Reference { page, is_fresh, is_written, contents }
            }
        }
    }
}

fn header(codecs: usize) -> Header {
    Header {
        page_bytes: 4096,
        window_pages: 32,
        origin: "a test".into(),
        command: vec![b"sort".to_vec(), b"\xff -n".to_vec()],
        codecs: (0..codecs).map(|codec| format!("codec-{codec}")).collect(),
    }
}

fn written(codecs: usize, records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(codecs)).expect("a header");
    records.iter().for_each(|record| record.write(&mut writer));
    writer.finish().expect("written")
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, TraceError> {
    let mut reader = Reader::new(bytes)?;
    let mut records = Vec::new();
    while let Some(event) = reader.next_event()? {
        records.push(Record::of(event));
    }
    assert_eq!(reader.totals().records, records.len() as u64);
    assert!(reader.next_event()?.is_none(), "the end stays the end");
    Ok(records)
}

fn pages() -> impl Strategy<Value = u64> {
    prop_oneof![1000u64..1010, 0..PAGE_END, Just(0), Just(PAGE_END - 1)]
}

fn records(codecs: usize) -> impl Strategy<Value = Vec<Record>> {
    let sizes = prop::collection::vec(1..=SIZE_MAX, codecs);
    let contents = prop_oneof![
        Just(Owned::Unchanged),
        Just(Owned::SameFilled),
        sizes.prop_map(|sizes| match sizes.is_empty() {
            true => Owned::SameFilled,
            false => Owned::Sizes(sizes),
        }),
    ];
    let reference = (pages(), any::<bool>(), any::<bool>(), contents).prop_map(
        |(page, is_fresh, is_written, contents)| Record::Reference {
            page,
            is_fresh,
            is_written,
            contents,
        },
    );
    let release = (pages(), 1..=PAGE_END)
        .prop_map(|(first, pages)| Record::Release { first, pages: pages.min(PAGE_END - first) });
    prop::collection::vec(prop_oneof![8 => reference, 1 => release], 0..200)
}

fn some_records() -> Vec<Record> {
    let reference = |page, contents| Record::Reference {
        page,
        is_fresh: page % 2 == 0,
        is_written: page % 3 == 0,
        contents,
    };
    vec![
        reference(5, Owned::Sizes(vec![1200, 4096])),
        reference(6, Owned::SameFilled),
        Record::Release { first: 4, pages: 2 },
        reference(1 << 35, Owned::Unchanged),
    ]
}

proptest! {
    #[test]
    fn what_was_written_comes_back(
        (codecs, records) in (0..=CODECS_MAX).prop_flat_map(|codecs| (Just(codecs), records(codecs))),
    ) {
        let bytes = written(codecs, &records);
        let reader = Reader::new(&bytes[..]).expect("a trace");
        prop_assert_eq!(reader.header(), &header(codecs));
        prop_assert_eq!(read(&bytes).expect("a trace"), records);
    }

    #[test]
    fn nothing_makes_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes);
        let sound = written(2, &some_records());
        bytes.splice(..0, sound[..sound.len().min(bytes.len())].iter().copied());
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn long_traces_come_back_in_many_chunks() {
    const RECORDS: u64 = 300_000;
    let sizes = [700u16, 800, 4096];
    let mut writer = Writer::new(Vec::new(), &header(3)).expect("a header");
    for at in 0..RECORDS {
        let page = at * 7919 % 100_003;
        let contents = if at % 2 == 0 { Contents::Sizes(&sizes) } else { Contents::Unchanged };
        let reference = Reference { page, is_fresh: false, is_written: at % 2 == 0, contents };
        writer.reference(&reference).expect("written");
    }
    let bytes = writer.finish().expect("written");
    assert!(bytes.len() > 10 << 16);
    let mut reader = Reader::new(&bytes[..]).expect("a trace");
    for at in 0..RECORDS {
        match reader.next_event().expect("sound") {
            Some(Event::Reference(reference)) => assert_eq!(reference.page, at * 7919 % 100_003),
            other => panic!("{at}: {other:?}"),
        }
    }
    assert!(reader.next_event().expect("sound").is_none());
    assert_eq!(reader.totals(), Totals { records: RECORDS, references: RECORDS });
    // Without the first chunk: what is there has the right checksums.
    let header_bytes = written(3, &[]).len() - END_BYTES;
    let chunk = &bytes[header_bytes..];
    let payload_bytes = u32::from_le_bytes(chunk[..4].try_into().expect("four bytes")) as usize;
    let mut missing = bytes.clone();
    missing.drain(header_bytes..header_bytes + payload_bytes + 24);
    let message = read(&missing).expect_err("a chunk is missing").to_string();
    let place = format!("byte {header_bytes}, after 0 records: corrupt: a chunk that is missing");
    assert!(message.starts_with(&place), "{message}");
    // A chunk of another trace in its place.
    let mut other = header(3);
    other.origin = "another".into();
    let mut other = Writer::new(Vec::new(), &other).expect("a header").finish().expect("written");
    other.truncate(other.len() - END_BYTES);
    let at = other.len();
    other.extend_from_slice(chunk);
    let message = read(&other).expect_err("another's").to_string();
    assert!(message.starts_with(&format!("byte {at}, after 0 records: corrupt")), "{message}");
}

/// The bytes that `docs/traces.md` shows.
#[test]
fn the_bytes_are_those_of_the_documentation() {
    let mut header = header(0);
    header.codecs = vec!["lz4".into()];
    header.command = vec![b"true".to_vec()];
    header.origin = "zpager".into();
    let mut writer = Writer::new(Vec::new(), &header).expect("a header");
    let sizes = [1200];
    let contents = Contents::Sizes(&sizes);
    let first = Reference { page: 3, is_fresh: true, is_written: true, contents };
    writer.reference(&first).expect("written");
    writer.release(2, 300).expect("written");
    let bytes = writer.finish().expect("written");
    let text = include_str!("../../../docs/traces.md");
    let (_, example) = text.split_once("## An example").expect("an example");
    let shown: Vec<u8> = example
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split_once('|'))
        .flat_map(|(hex, _)| hex.split_whitespace())
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
        .collect();
    assert_eq!(bytes, shown, "{bytes:02x?}");
}

#[test]
fn every_cut_is_noticed() {
    let bytes = written(2, &some_records());
    for end in 0..bytes.len() {
        let error = read(&bytes[..end]).expect_err("cut off");
        let is_right = match error.problem {
            Problem::Truncated => error.at_byte == end as u64,
            Problem::Foreign => end == 0,
            _ => false,
        };
        assert!(is_right, "{end}: {error:?}");
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = written(2, &some_records());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let error = read(&changed).expect_err("changed");
            assert!(error.at_byte <= bytes.len() as u64, "{at}: {error:?}");
        }
    }
}

#[test]
fn other_files_and_other_versions_are_named() {
    let mut bytes = written(2, &some_records());
    let table: [(&[u8], &str); 3] = [
        (b"", "byte 0, after 0 records: not a trace of zpager"),
        (b"#!/bin/sh\nexit 0\n", "byte 0, after 0 records: not a trace of zpager"),
        (b"zptr", "byte 4, after 0 records: the trace ends here"),
    ];
    for (bytes, said) in table {
        let message = read(bytes).expect_err("no trace").to_string();
        assert!(message.starts_with(said), "{message}");
    }
    bytes[8] = 2;
    let message = read(&bytes).expect_err("newer").to_string();
    assert!(message.starts_with("byte 8, after 0 records: version 2"), "{message}");
    let mut longer = written(2, &some_records());
    longer.push(0);
    let message = read(&longer).expect_err("longer").to_string();
    assert!(message.contains("behind the end record"), "{message}");
}

#[test]
fn what_no_reader_takes_is_not_written() {
    let mut writer = Writer::new(Vec::new(), &header(1)).expect("a header");
    for sizes in [&[][..], &[0], &[4097], &[1, 2]] {
        let contents = Contents::Sizes(sizes);
        let reference = Reference { page: 1, is_fresh: true, is_written: true, contents };
        assert!(writer.reference(&reference).is_err(), "{sizes:?}");
    }
    let contents = Contents::Unchanged;
    let far = Reference { page: PAGE_END, is_fresh: true, is_written: true, contents };
    assert!(writer.reference(&far).is_err());
    assert!(writer.release(0, 0).is_err() && writer.release(PAGE_END - 1, 2).is_err());
    assert_eq!(read(&writer.finish().expect("written")).expect("a trace"), []);
    assert!(Writer::new(Vec::new(), &header(CODECS_MAX + 1)).is_err());
}
