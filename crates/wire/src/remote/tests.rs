//! The protocol against a helper in a thread, whose server is a map.

extern crate std;
use super::*;
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::vec;
use std::vec::Vec;

const CLUSTER_BYTES: usize = 2 * PAGE_BYTES;
const SECOND_NS: u64 = 1_000_000_000;

/// A mapping in one piece.
struct Whole(Box<[Chunk]>);

#[derive(Clone)]
#[repr(align(4096))]
struct Chunk(#[allow(dead_code)] [u8; 4096]);

impl Whole {
    fn new(clusters: u32, patience_ns: u64) -> Self {
        let remote = Remote::new(clusters, CLUSTER_BYTES as u32, patience_ns);
        let chunks = remote.mapping_bytes().div_ceil(size_of::<Chunk>());
        let mut whole = Whole(vec![Chunk([0; 4096]); chunks].into_boxed_slice());
        // SAFETY: the memory is long enough and aligned, and nobody else has it.
        unsafe { whole.0.as_mut_ptr().cast::<Remote>().write(remote) };
        for kind in [Kind::Write, Kind::Read] {
            whole.requests().set_up(kind, true);
        }
        whole
    }

    fn requests(&self) -> Requests<'_> {
        // SAFETY: written in `new`, with zeros behind it. What is not atomic is touched by way of
        // the raw pointer alone.
        unsafe { Requests::behind(&*self.0.as_ptr().cast::<Remote>()) }
    }
}

/// Splitmix64's mixing step.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn content(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| mixed(number ^ at << 32) as u8).collect()
}

/// What a helper's server holds.
type Server = Mutex<BTreeMap<u32, Vec<u8>>>;

/// Answers one request of a kind, if there is one.
fn answer_one(requests: &Requests<'_>, kind: Kind, server: &Server) -> bool {
    let mut server = server.lock().unwrap();
    let Some(taken) = requests.take(kind) else { return false };
    let outcome = match kind {
        Kind::Write => {
            requests.take_discarded(taken.cluster, |cluster| {
                server.remove(&cluster);
            });
            requests.forget_discarded(taken.cluster, || {
                server.remove(&taken.cluster);
            });
            let mut data = vec![0; taken.bytes];
            requests.copy_out(&taken, &mut data);
            server.insert(taken.cluster, data);
            Ok(())
        }
        Kind::Read if requests.is_discarded(taken.cluster) => Err(Errno(61)),
        Kind::Read => match server.get(&taken.cluster) {
            Some(held) => {
                let start = taken.start.min(held.len());
                let end = (taken.start + taken.bytes).min(held.len());
                requests.copy_in(&taken, &held[start..end]);
                Ok(())
            }
            None => Err(Errno(61)),
        },
    };
    requests.finish(taken, outcome);
    true
}

/// Runs `work` beside a helper that answers everything, after a pause where `is_slow` says so.
fn with_helper<R>(
    requests: &Requests<'_>,
    is_slow: impl Fn() -> bool + Sync,
    work: impl FnOnce() -> R,
) -> R {
    let (server, ends) = (Server::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for kind in [Kind::Write, Kind::Read] {
            let (server, ends, is_slow) = (&server, &ends, &is_slow);
            scope.spawn(move || {
                while !ends.load(Relaxed) {
                    let seen = requests.bell(kind);
                    if is_slow() {
                        process::nap(3_000_000);
                    }
                    if !answer_one(requests, kind, server) {
                        requests.sleep(kind, seen, 1_000_000);
                    }
                }
            });
        }
        let outcome = work();
        ends.store(true, Relaxed);
        outcome
    })
}

fn write(requests: &Requests<'_>, pid: i32, cluster: u32, data: &[u8]) -> Result<(), Errno> {
    let ticket = requests.begin_write(pid, cluster, data)?;
    requests.settle(Ticket::from_raw(ticket.raw()).expect("its number"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_was_written_is_read(
        steps in prop::collection::vec((0u8..4, 0u32..70, 0usize..=2, 1usize..=2), 1..120),
    ) {
        let whole = Whole::new(70, 30 * SECOND_NS);
        let requests = whole.requests();
        let mut model = BTreeMap::new();
        with_helper(&requests, || false, || {
            for (step, &(what, cluster, start, pages)) in steps.iter().enumerate() {
                let (start, bytes) = (start * PAGE_BYTES, pages * PAGE_BYTES);
                match what {
                    0 | 1 => {
                        let data = content(step as u64, bytes);
                        prop_assert_eq!(write(&requests, 5, cluster, &data), Ok(()));
                        model.insert(cluster, data);
                    }
                    2 => {
                        let mut found = vec![0xee; bytes];
                        let outcome = requests.read(5, cluster, start, &mut found);
                        if start + bytes > CLUSTER_BYTES {
                            prop_assert_eq!(outcome, Err(EIO));
                            continue;
                        }
                        let held = model.get(&cluster);
                        prop_assert_eq!(outcome, held.map(|_| ()).ok_or(Errno(61)));
                        if let Some(held) = held {
                            let mut expected = held.clone();
                            expected.resize(CLUSTER_BYTES, 0);
                            prop_assert_eq!(&found, &expected[start..start + bytes]);
                        }
                    }
                    _ => {
                        requests.discard(cluster);
                        model.remove(&cluster);
                    }
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn nothing_written_over_the_slots_is_believed(
        words in prop::collection::vec((any::<u32>(), 0u32..2, any::<u32>(), any::<u32>(), any::<u32>()), SLOTS),
    ) {
        let whole = Whole::new(9, SECOND_NS);
        let requests = whole.requests();
        for (slot, (word, kind, cluster, start, bytes)) in requests.remote.slots.iter().zip(words) {
            slot.ticket.store(word % 2048, Relaxed);
            slot.kind.store(kind, Relaxed);
            slot.cluster.store(cluster % 12, Relaxed);
            slot.start.store(start % 16384, Relaxed);
            slot.bytes.store(bytes % 16384, Relaxed);
            slot.word.store(word & !7 | POSTED, Relaxed);
        }
        for kind in [Kind::Write, Kind::Read] {
            while let Some(taken) = requests.take(kind) {
                prop_assert!(taken.cluster < 9 && taken.bytes > 0);
                prop_assert!(taken.start + taken.bytes <= CLUSTER_BYTES);
                prop_assert!(kind == Kind::Read || taken.start == 0);
                requests.finish(taken, Ok(()));
            }
        }
        let is_over = |slot: &Slot| matches!(state(slot.word.load(Relaxed)), DONE | FREE);
        prop_assert!(requests.remote.slots.iter().all(is_over));
    }
}

/// Threads stand for processes, more of them than there are slots. The helper is sometimes slower
/// than they wait: what comes back is what was written last, or an error.
#[test]
fn many_processes_and_a_slow_helper() {
    const PROCESSES: i32 = 12;
    let seed = std::env::var("ZPAGER_SEED").map_or(1, |text| text.parse().expect("a number"));
    std::println!("ZPAGER_SEED={seed}");
    let whole = Whole::new(4 * PROCESSES as u32, 2_000_000);
    let requests = whole.requests();
    let (drawn, served, failed) = (AtomicU64::new(seed), AtomicU64::new(0), AtomicU64::new(0));
    let is_slow = || mixed(drawn.fetch_add(1, Relaxed)).is_multiple_of(60);
    let run = |pid: i32| {
        // A cluster that was given up may hold what was written last, or nothing.
        let mut model: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for step in 0..400u64 {
            let number = mixed(seed ^ (pid as u64) << 32 ^ step);
            let cluster = (pid - 1) as u32 * 4 + number as u32 % 4;
            let outcome = if number.is_multiple_of(3) {
                let data = content(number, CLUSTER_BYTES);
                let outcome = write(&requests, pid, cluster, &data);
                match outcome {
                    Ok(()) => model.insert(cluster, data),
                    Err(_) => model.remove(&cluster),
                };
                outcome
            } else {
                let mut found = vec![0; CLUSTER_BYTES];
                let outcome = requests.read(pid, cluster, 0, &mut found);
                if let (Ok(()), Some(held)) = (outcome, model.get(&cluster)) {
                    assert!(&found == held, "process {pid}, step {step}");
                }
                outcome
            };
            let count = if outcome.is_err() { &failed } else { &served };
            count.fetch_add(1, Relaxed);
        }
    };
    with_helper(&requests, is_slow, || {
        std::thread::scope(|scope| {
            (1..=PROCESSES).for_each(|pid| {
                scope.spawn(move || run(pid));
            });
        });
        // The helper frees what was given up.
        let deadline_ns = futex::now_ns() + 60 * SECOND_NS;
        let is_free = |word: &AtomicU32| word.load(Relaxed) == FREE;
        let Remote { slots, tickets, .. } = requests.remote;
        while !slots.iter().all(|slot| is_free(&slot.word))
            || !tickets.iter().all(|ticket| is_free(&ticket.word))
        {
            assert!(futex::now_ns() < deadline_ns, "a slot is not freed");
            process::nap(1_000_000);
        }
    });
    let (served, failed) = (served.into_inner(), failed.into_inner());
    std::println!("{served} served, {failed} failed");
    assert!(served > 1000);
}

#[test]
fn without_an_answer_nobody_waits_longer_than_told() {
    let whole = Whole::new(4, 20_000_000);
    let requests = whole.requests();
    let began = futex::now_ns();
    let mut out = vec![0; PAGE_BYTES];
    assert_eq!(requests.read(1, 0, 0, &mut out), Err(ETIMEDOUT));
    assert_eq!(write(&requests, 1, 0, &out), Err(ETIMEDOUT));
    assert!(futex::now_ns() - began >= 40_000_000);
    assert!(requests.take(Kind::Read).is_none() && requests.take(Kind::Write).is_none());
    let tickets: Vec<_> = (0..SLOTS).map(|_| requests.begin_write(1, 0, &out).unwrap()).collect();
    assert_eq!(requests.read(2, 0, 0, &mut out), Err(ETIMEDOUT), "no slot is free");
    requests.set_up(Kind::Write, false);
    assert_eq!(requests.begin_write(2, 0, &out), Err(EHOSTDOWN));
    requests.close();
    assert!(tickets.iter().all(|&ticket| requests.settle(ticket) == Err(EHOSTDOWN)));
    assert_eq!(requests.read(2, 0, 0, &mut out), Err(EHOSTDOWN));
    assert!(!requests.wait_until_up(u64::MAX));
}

#[test]
fn an_answer_that_comes_too_late_goes_nowhere() {
    let whole = Whole::new(4, 5_000_000);
    let requests = whole.requests();
    let mut out = vec![7; PAGE_BYTES];
    let taken = std::thread::scope(|scope| {
        let taken = scope.spawn(|| {
            loop {
                if let Some(taken) = requests.take(Kind::Read) {
                    return taken;
                }
            }
        });
        assert_eq!(requests.read(1, 3, 0, &mut out), Err(ETIMEDOUT));
        taken.join().expect("a request")
    });
    assert!(!requests.is_wanted(&taken));
    let slot = taken.slot;
    assert_eq!(state(requests.remote.slots[slot].word.load(Relaxed)), ABANDONED);
    requests.copy_in(&taken, &[9; 10]);
    requests.finish(taken, Ok(()));
    assert_eq!(requests.remote.slots[slot].word.load(Relaxed), FREE);
    assert!(out.iter().all(|&byte| byte == 7));
}

#[test]
fn what_the_dead_have_left_is_freed_and_nothing_else() {
    let whole = Whole::new(4, SECOND_NS);
    let requests = whole.requests();
    let data = vec![1; PAGE_BYTES];
    for pid in [7, 8] {
        requests.begin_write(pid, 0, &data).expect("a slot");
    }
    while let Some(taken) = requests.take(Kind::Write) {
        requests.finish(taken, Ok(()));
    }
    assert_eq!(requests.claim(7, 0, 0, PAGE_BYTES, 0, || true), Ok(0));
    requests.begin_write(7, 0, &data).expect("a slot");
    let never_posted = requests.claim_ticket(7).expect("a ticket");
    assert_eq!(requests.claim(8, 0, 0, PAGE_BYTES, 0, || true), Ok(2));
    requests.free_all_of(|pid| pid == 7);
    let words = requests.remote.slots.iter().map(|slot| slot.word.load(Relaxed));
    let mut expected = [FREE; SLOTS];
    (expected[1], expected[2]) = (word_of(7, POSTED), word_of(8, CLAIMED));
    assert_eq!(words.collect::<Vec<_>>(), expected);
    // The one of a write that the helper will end, and that of the living.
    let held: Vec<u32> = requests.remote.tickets.iter().map(|it| it.word.load(Relaxed)).collect();
    assert_eq!(held.iter().filter(|&&word| word != FREE).count(), 2);
    assert_eq!(held[never_posted as usize], FREE);
    assert!(held.contains(&word_of(7, CLAIMED)) && held.contains(&word_of(8, DONE)));
}

#[test]
fn reads_ahead_of_need_leave_slots_to_those_who_wait() {
    let whole = Whole::new(4, SECOND_NS);
    let requests = whole.requests();
    let server = Server::default();
    let data = content(5, CLUSTER_BYTES);
    server.lock().unwrap().insert(2, data.clone());
    let mut asked = Vec::new();
    while let Ok(one) = requests.begin_read(7, 2, PAGE_BYTES, 100 + asked.len()) {
        asked.push(one);
    }
    assert_eq!(asked.len(), SLOTS - WAITING_SLOTS);
    assert!(!requests.is_answered(asked[0]));
    while answer_one(&requests, Kind::Read, &server) {}
    for (at, one) in asked.into_iter().enumerate() {
        assert!(requests.is_answered(one));
        let mut out = vec![0; 100 + at];
        assert_eq!(requests.end_read(one, &mut out), Ok(()));
        assert_eq!(out, data[PAGE_BYTES..][..100 + at]);
    }
    assert!(requests.remote.slots.iter().all(|slot| slot.word.load(Relaxed) == FREE));
    assert!(requests.begin_read(7, 2, PAGE_BYTES, CLUSTER_BYTES).is_err(), "beyond the cluster");
    // Nobody waits for a server that does not answer.
    let unanswered = requests.begin_read(7, 2, 0, 10).expect("begun");
    requests.set_up(Kind::Read, false);
    assert_eq!(requests.begin_read(7, 2, 0, 10).map(|_| ()), Err(EHOSTDOWN));
    let began = futex::now_ns();
    assert_eq!(requests.end_read(unanswered, &mut [0; 10]), Err(EHOSTDOWN));
    assert!(futex::now_ns() - began < SECOND_NS);
    assert!(requests.take(Kind::Read).is_none(), "withdrawn");
}

#[test]
fn a_read_that_was_freed_is_not_waited_for() {
    let whole = Whole::new(4, 30 * SECOND_NS);
    let requests = whole.requests();
    let server = Server::new([(1, content(1, CLUSTER_BYTES))].into());
    let asked = requests.begin_read(7, 1, 0, 10).expect("begun");
    assert!(answer_one(&requests, Kind::Read, &server));
    requests.free_all_of(|pid| pid == 7);
    assert!(requests.is_answered(asked));
    let others = requests.claim(8, 1, 0, 10, 0, || true).expect("free");
    assert_eq!(others, asked.slot);
    let began = futex::now_ns();
    assert_eq!(requests.end_read(asked, &mut [0; 10]), Err(EHOSTDOWN));
    assert!(futex::now_ns() - began < SECOND_NS);
    assert_eq!(requests.remote.slots[others].word.load(Relaxed), word_of(8, CLAIMED));
}

/// The owner is gone, and the helper has freed what it left.
#[test]
fn a_ticket_that_was_freed_is_not_waited_for_and_stays_the_next_ones() {
    let whole = Whole::new(4, 30 * SECOND_NS);
    let requests = whole.requests();
    let end_all = || {
        while let Some(taken) = requests.take(Kind::Write) {
            requests.finish(taken, Ok(()));
        }
    };
    let data = vec![1; PAGE_BYTES];
    let ticket = requests.begin_write(7, 0, &data).expect("begun");
    assert!(!requests.has_ended(ticket));
    end_all();
    requests.free_all_of(|pid| pid == 7);
    assert!(requests.has_ended(ticket));
    let next = requests.begin_write(7 + MAX_PROCESSES as i32, 1, &data).expect("begun");
    assert_eq!(next.number, ticket.number);
    let began = futex::now_ns();
    assert_eq!(requests.settle(ticket), Err(EHOSTDOWN));
    assert!(futex::now_ns() - began < SECOND_NS);
    end_all();
    assert_eq!(requests.settle(next), Ok(()));
}

/// How its last write ended a process asks late, or never.
#[test]
fn writes_whose_end_nobody_asks_for_hold_no_slot() {
    const PROCESSES: i32 = 5 * SLOTS as i32;
    let whole = Whole::new(PROCESSES as u32, 30 * SECOND_NS);
    let requests = whole.requests();
    with_helper(
        &requests,
        || false,
        || {
            let data = |pid: i32| content(pid as u64, CLUSTER_BYTES);
            let tickets: Vec<_> = (0..PROCESSES)
                .map(|pid| (pid, requests.begin_write(pid, pid as u32, &data(pid)).expect("begun")))
                .collect();
            for (pid, ticket) in tickets {
                let mut found = vec![0; CLUSTER_BYTES];
                assert_eq!(requests.settle(ticket), Ok(()));
                assert_eq!(requests.read(pid, pid as u32, 0, &mut found), Ok(()));
                assert!(found == data(pid));
            }
        },
    );
    assert!(requests.remote.tickets.iter().all(|ticket| ticket.word.load(Relaxed) == FREE));
}

#[test]
fn what_is_of_no_worth_is_told_once_and_not_of_the_next_life() {
    let whole = Whole::new(200, SECOND_NS);
    let requests = whole.requests();
    for cluster in [0, 63, 64, 130, 199, 200, u32::MAX] {
        requests.discard(cluster);
    }
    for (cluster, was_said) in [(64, true), (65, false)] {
        assert_eq!(requests.is_discarded(cluster), was_said);
        let mut is_forgotten = false;
        requests.forget_discarded(cluster, || {
            assert!(requests.is_discarded(cluster), "known until it is forgotten");
            is_forgotten = true;
        });
        assert_eq!((is_forgotten, requests.is_discarded(cluster)), (was_said, false));
    }
    let taken = |end| {
        let mut found = Vec::new();
        requests.take_discarded(end, |cluster| {
            assert!(requests.is_discarded(cluster), "known until it is forgotten");
            found.push(cluster);
        });
        found
    };
    assert_eq!(taken(64), [0, 63]);
    assert_eq!(taken(u32::MAX), [130, 199]);
    assert!(taken(u32::MAX).is_empty());
}
