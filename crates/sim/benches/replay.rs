//! How fast traces are replayed: references a second of processor time, for each way of serving them.
//!
//! `cargo bench -p zpager-sim --bench replay [REFERENCES]`

use std::hint::black_box;
use std::time::Duration;

use zpager_codec::CodecId;
use zpager_policy::{DesignId, Settings};
use zpager_seed::Random;
use zpager_sim::cost::DISKS;
use zpager_sim::trace::{Contents, Header, Reader, Reference, Writer};
use zpager_sim::*;

const PAGES: u64 = 1 << 16;
/// References of each trace where the command line says nothing.
const REFERENCES: u64 = 10_000_000;

/// What a program references next: a page, and whether it writes.
type Program = fn(&mut Random, u64) -> (u64, bool);

/// A program of which half fits: hot pages (the product of two random numbers is small as a rule),
/// streams over all of it, and pages at random.
const PROGRAMS: [(&str, Program); 3] = [
    ("hot pages", |random, _| {
        let page = (random.f64() * random.f64() * random.f64() * PAGES as f64) as u64;
        (page * 7919 % PAGES, random.u8(..) < 64)
    }),
    ("streams", |random, at| (at / 3 % PAGES / 2 + at % 3 * PAGES / 4, random.u8(..) < 64)),
    ("random", |random, _| (random.u64(..PAGES), random.u8(..) < 64)),
];

fn main() {
    let references = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(REFERENCES);
    for (name, program) in PROGRAMS {
        let bytes = trace(program, references);
        let began = processor_time();
        let survey = survey(Reader::new(&bytes[..]).expect("a trace")).expect("sound");
        report(name, "survey", references, began, None);
        let budget_bytes = survey.pages * 4096 / 2;
        let disk = DISKS[1];
        let layout = &survey.layout;
        serve(name, "none", &bytes, layout, Uncompressed::new(layout, budget_bytes, disk));
        for id in DesignId::ALL {
            let setup = Setup {
                budget_bytes,
                settings: Settings::of(id),
                column: 0,
                dense_column: None,
                repeats_column: None,
                disk,
            };
            let compressed = Compressed::new(layout, &setup).expect("memory");
            serve(name, id.name(), &bytes, layout, compressed);
        }
        let began = processor_time();
        let future = Future::read(Reader::new(&bytes[..]).expect("a trace"), &survey);
        let future = future.expect("short");
        report(name, "future", references, began, None);
        let bound = Bound {
            budget_bytes,
            share: SHARES[2],
            codec: Some(CodecId::Word),
            column: 0,
            disk,
            is_ahead: true,
        };
        serve(name, "belady", &bytes, layout, Belady::new(layout, &future, bound));
    }
}

fn trace(program: Program, references: u64) -> Vec<u8> {
    let header = Header {
        page_bytes: 4096,
        window_pages: 1,
        origin: "a benchmark".into(),
        command: Vec::new(),
        codecs: vec!["word".into()],
    };
    let mut writer = Writer::new(Vec::new(), &header).expect("a header");
    let mut random = Random::with_seed(1);
    for at in 0..references {
        let (page, is_written) = program(&mut random, at);
        let sizes = [random.u16(500..2500)];
        let contents =
            if is_written || at < PAGES { Contents::Sizes(&sizes) } else { Contents::Unchanged };
        let reference = Reference { page, is_fresh: false, is_written, contents };
        writer.reference(&reference).expect("written");
    }
    writer.finish().expect("written")
}

fn serve(program: &str, name: &str, bytes: &[u8], layout: &Layout, mut memory: impl Memory) {
    let began = processor_time();
    replay(Reader::new(bytes).expect("a trace"), layout, &mut memory).expect("every page");
    let outcome = black_box(memory.outcome());
    report(program, name, outcome.references, began, Some(outcome));
}

fn report(program: &str, name: &str, references: u64, began: Duration, outcome: Option<Outcome>) {
    let seconds = (processor_time() - began).as_secs_f64();
    let rate = references as f64 / seconds / 1e6;
    print!("{program:10} {name:8} {rate:8.2} million references a second");
    match outcome {
        Some(outcome) => {
            let hits = 100.0 * outcome.resident_hits as f64 / outcome.references as f64;
            println!(
                ", {hits:.1} % resident, modelled {:.3} s",
                outcome.ledger.total_ns() as f64 / 1e9
            );
        }
        None => println!(),
    }
}

/// What this thread has had of a processor, whatever else the machine does.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("proc is mounted");
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("nanoseconds"))
}
