//! Every hazard of the design, each a victim in C that checks itself, managed in every way.
//!
//! A victim is run managed from its first instruction, entered when the budget
//! comes near, and with pages lifted as on kernels without `UFFDIO_MOVE`, by
//! stretches and by guard pages; they differ in codec and store too. Outputs must equal the free run's.

use std::fs::File;

use zpager_tests::victims;
use zpager_tests::{Ending, Job, Lift, Managed, Setup, Start, Store, compare};

/// One of the ways to manage a victim.
fn check(victim: Job, setup: Setup) -> Managed {
    let managed = compare(&victim, &setup);
    assert_eq!(managed.outcome.ending, Ending::Exited(0), "{}", managed.outcome.report());
    managed
}

/// The store of the third way: none, unless the victim names one.
macro_rules! third_store {
    () => {
        Store::None
    };
    ($store:ident) => {
        Store::$store
    };
}

/// One module a victim: `NAME VICTIM MIB [ARGUMENT] [in STORE]`, with the store of the third way.
macro_rules! hazards {
    ($($name:ident $victim:literal $mib:literal $($argument:literal)? $(in $store:ident)?;)*) => {$(
        mod $name {
            use super::*;

            fn job() -> Job {
                victims::job($victim)$(.argument($argument))?
            }

            #[test]
            fn from_start() {
                let setup = Setup::of_mib($mib).start(Start::FirstInstruction).codec("lz4");
                check(job(), setup);
            }

            #[test]
            fn at_pressure() {
                check(job(), Setup::of_mib($mib).start(Start::Pressure).codec("zstd"));
            }

            #[test]
            fn lifted_by_copy() {
                let setup = Setup::of_mib($mib).start(Start::FirstInstruction).lift(Lift::Copy);
                check(job(), setup.store(third_store!($($store)?)));
            }

            #[test]
            fn lifted_by_guards() {
                let setup = Setup::of_mib($mib).start(Start::FirstInstruction);
                check(job(), setup.lift(Lift::Guards));
            }

            #[test]
            fn lifted_by_stretches() {
                let setup = Setup::of_mib($mib).start(Start::FirstInstruction);
                check(job(), setup.lift(Lift::Stretches));
            }
        }
    )*};
}

hazards! {
    readwrite "readwrite" 24;
    appends "appends" 20 in Disk;
    streams "streams" 20;
    parts "parts" 20;
    stdio "stdio" 24;
    vectors "vectors" 24;
    messages "messages" 16;
    datagrams "datagrams" 20;
    futexes "futexes" 20;
    robust "robust" 20;
    structs "structs" 16;
    pointed "pointed" 20 in Disk;
    mappings "mappings" 20 "raw";
    mappings_by_libc "mappings" 20 "libc";
    brk "brk" 16;
    heap "heap" 32;
    reservation "reservation" 20;
    small "small" 24;
    pieces "pieces" 68;
    layout "layout" 24;
    locked "locked" 20;
    hugepages "hugepages" 24;
    compaction "compaction" 64;
    guards "guards" 20;
    direct_io "direct_io" 24;
    shared "shared" 20;
    attach "attach" 20;
    statics "statics" 24;
    threads "threads" 20;
    race "race" 16;
    flights "flights" 20;
    half_done "half_done" 20;
    readers "readers" 20 in Disk;
    departures "departures" 24 in Disk;
    pointers "pointers" 20 in Disk;
    beginners "beginners" 20;
    clean "clean" 16 in Disk;
    clones "clones" 20;
    kills "kills" 20;
    heirs "heirs" 20;
    borrowers "borrowers" 24 in Disk;
    lending "lending" 20;
    // Five processes have all of it, each compressed for itself once it was read: 36 MiB with what
    // is theirs besides, which without a store would all be RAM.
    forks "forks" 24 in Disk;
    groups "groups" 24 in Disk;
    kin "kin" 24;
    pooled "pooled" 90;
    siblings "siblings" 48;
    idle "idle" 29 in Disk;
    preloaded "preloaded" 40 in Disk;
    held_up "held_up" 20;
    tree "tree" 32;
    daemon "daemon" 20;
    spawning "spawning" 24;
    executions "executions" 20;
    debugger "debugger" 20;
    signals "signals" 20;
    sigheirs "sigheirs" 20;
    sigmasks "sigmasks" 20;
    sigwaits "sigwaits" 20;
    sleepers "sleepers" 20;
    wakings "wakings" 20;
    sigstacks "sigstacks" 20;
    code "code" 16;
    segv "segv" 20;
    sigbus "sigbus" 20;
    midfault "midfault" 24;
    sigsys "sigsys" 20;
    timers "timers" 20;
    coroutines "coroutines" 16;
    limits "limits" 20;
    remote "remote" 20;
    own_memory "own_memory" 20;
    uring "uring" 20;
    aio "aio" 20;
    kept "kept" 20;
    marked "marked" 20;
    leaderless "leaderless" 20;
    lent "lent" 20;
    advice "advice" 20;
    userfault "userfault" 20;
    sandbox "sandbox" 20;
    namespaces "namespaces" 24 in Disk;
    sparse "sparse" 24;
    rlimits "rlimits" 20;
    privileges "privileges" 20;
    aligned "flags" 20 "alignment";
    timeless "flags" 20 "time";
    executable "flags" 20 "execution";
    // In the third and fourth way it is managed before it gives them up.
    privileges_given_up_early "privileges" 20 "early";
}

/// Programs that no dynamic loader prepares: the supervisor puts the agent into them, right after they
/// have begun or when the budget comes near, and all that they start is managed as ever.
mod whole {
    use super::*;
    use zpager_tests::victims::Whole;

    fn check_whole(victim: &str, argument: Option<&str>, whole: Whole, mib: u64) {
        let Some(job) = victims::whole_job(victim, whole) else { return };
        let job = argument.into_iter().fold(job, Job::argument);
        let free = job.free();
        assert_eq!(free.ending, Ending::Exited(0), "free: {}", free.report());
        for start in [Start::FirstInstruction, Start::Pressure] {
            let managed = job.managed(&Setup::of_mib(mib).start(start));
            managed.expect_like(&free);
            assert!(managed.stats.is_pressed(), "{}{:?}", managed.outcome.report(), managed.stats);
            // A static program that is executed fills memory until it is entered, and so does one that
            // forks meanwhile: too late for so small a budget.
            let may_be_late =
                ["forks", "spawning", "sigheirs"].contains(&victim) || start == Start::Pressure;
            assert!(managed.stats.is_within_budget() || may_be_late, "{:?}", managed.stats);
        }
    }

    /// One test a victim: `NAME VICTIM MIB [ARGUMENT], LINKING...`.
    macro_rules! whole {
        ($($name:ident $victim:literal $mib:literal $($argument:literal)?, $($whole:ident)*;)*) => {$(
            #[test]
            fn $name() {
                let argument = None$(.or(Some($argument)))?;
                for whole in [$(Whole::$whole),*] {
                    check_whole($victim, argument, whole, $mib);
                }
            }
        )*};
    }

    whole! {
        threads "threads" 20, Static StaticPie Musl;
        leaderless "leaderless" 20, Static Musl;
        forks "forks" 24, Static StaticPie Musl;
        spawning "spawning" 24, Static StaticPie;
        executions "executions" 20, Static;
        signals "signals" 20, Static StaticPie Musl;
        sigheirs "sigheirs" 20, Static Musl;
        half_done "half_done" 20, Static;
        sigstacks "sigstacks" 20, Static;
        mappings "mappings" 20 "raw", Static StaticPie;
        reservation "reservation" 20, Static StaticPie Musl;
        brk "brk" 16, Static StaticPie;
        heap "heap" 32, Static Musl;
        statics "statics" 24, Static StaticPie;
        readwrite "readwrite" 24, Static Musl;
        robust "robust" 20, Static Musl;
        clones "clones" 20, Static;
        coroutines "coroutines" 16, Static;
        limits "limits" 20, Static;
        rlimits "rlimits" 20, Static;
    }
}

/// Where the loader is the C library, threads are in its code all the time, also those that only wait.
#[test]
fn with_musl() {
    for victim in ["threads", "forks", "executions", "signals"] {
        let Some(job) = victims::musl_job(victim) else { return };
        for start in [Start::FirstInstruction, Start::Pressure] {
            check(job.clone(), Setup::of_mib(24).start(start));
        }
    }
}

/// Programs whose loader does not bring the agent: they may not open it, or nothing tells of it. The
/// supervisor gives it to them, and what it holds to those that may not open that either.
mod agentless {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// What it begins executes, forks and executes on, as it is.
    const SCRIPT: &str = r#"cd "$0" && "./$1" "$2" && exec "./$1" "$2""#;

    const VICTIMS: [&str; 6] = ["messages", "threads", "forks", "signals", "layout", "leaderless"];

    fn check_all(how: &str) {
        check_these(how, &VICTIMS);
    }

    fn check_these(how: &str, victims: &[&str]) {
        if how != "env -i" && !rustix::process::geteuid().is_root() {
            println!("skipped: only root can begin a program as another user");
            return;
        }
        // Those of the build and of the job are nobody else's.
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("its mode");
        for victim in victims {
            let program = victims::build(victim, &[]);
            fs::copy(program, folder.path().join(victim)).expect("copied");
            let mut words = how.split_whitespace();
            let job = Job::new(words.next().expect("a program")).arguments(words);
            let job = job.arguments(["sh", "-c", SCRIPT]).argument(folder.path());
            let job = job.arguments([*victim, &victims::seed()]);
            let free = job.free();
            assert_eq!(free.ending, Ending::Exited(0), "free: {}", free.report());
            for start in [Start::FirstInstruction, Start::Pressure] {
                let managed = job.managed(&Setup::of_mib(24).start(start));
                managed.expect_like(&free);
                let is_managed = !managed.outcome.stderr.contains("not managed");
                // Who is managed says nothing of the agent to one that may not open it, where that shows
                // before it is begun.
                let is_quiet = start == Start::Pressure
                    || how.contains("bounding-set")
                    || !managed.outcome.stderr.contains("cannot be preloaded");
                let report = managed.outcome.report();
                assert!(managed.stats.is_pressed(), "{report}{:?}", managed.stats);
                assert!(is_managed && is_quiet, "{report}");
            }
        }
    }

    #[test]
    fn without_variables() {
        check_all("env -i");
    }

    #[test]
    fn without_capabilities() {
        check_all("setpriv --bounding-set=-all --inh-caps=-all --no-new-privs");
    }

    #[test]
    fn of_another_user() {
        check_all("setpriv --reuid=65534 --regid=65534 --clear-groups");
    }

    #[test]
    fn in_a_user_namespace() {
        check_all("unshare --user --map-root-user");
    }

    #[test]
    fn in_a_pid_namespace() {
        check_all("unshare --pid --fork --mount-proc");
    }

    /// Ids that they know each other by are others than those by which the supervisor does.
    #[test]
    fn relatives_in_a_pid_namespace() {
        let victims = ["remote", "heirs", "kin", "idle", "borrowers", "kills"];
        check_these("unshare --pid --fork --mount-proc", &victims);
    }

    /// In `/proc` others have the ids that they know, too.
    #[test]
    fn relatives_with_the_proc_of_others() {
        check_these("unshare --pid --fork", &["remote", "heirs", "kin", "idle", "borrowers"]);
    }
}

/// Without userfaultfd a process that may not open its own memory leaves management before it has threads, and is told.
#[test]
fn a_thread_of_one_that_may_not_open_its_memory() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give up its user");
        return;
    }
    let job = || victims::job("dropped");
    let managed = check(job(), Setup::of_mib(20).lift(Lift::Guards));
    assert!(managed.outcome.stderr.contains("/proc/self/mem"), "{}", managed.outcome.report());
    let managed = check(job(), Setup::of_mib(20));
    assert!(!managed.outcome.stderr.contains("warning"), "{}", managed.outcome.report());
}

/// A process is killed while the pager works in it, and others have its memory. Who kills it is one of them, and
/// they go on. Or somebody else does, and nobody knows what is whole then: they are ended and the user is told,
/// or it was not in the middle of anything.
mod struck {
    use super::*;

    const RUNS: u64 = 4;

    /// Gives how often others were ended.
    fn check_all(who: &str) -> u64 {
        let mut ended = 0;
        for run in 0..RUNS {
            let seed = victims::seed().parse::<u64>().expect("a seed") + run;
            let victim =
                Job::new(victims::build("struck", &[])).arguments([&seed.to_string(), who]);
            let setup = Setup::of_mib(20).start(Start::FirstInstruction);
            let (free, managed) = (victim.free(), victim.managed(&setup).outcome);
            let messages = &managed.stderr;
            let is_told = messages.contains("shared its memory was killed");
            assert_eq!(managed.ending, Ending::Exited(0), "{}", managed.report());
            assert_eq!(managed.stdout, free.stdout, "{}", managed.report());
            ended += u64::from(is_told);
        }
        ended
    }

    #[test]
    fn a_child() {
        assert_eq!(check_all("child"), 0, "who was struck had the lock");
    }

    #[test]
    fn who_made_it() {
        assert!(check_all("parent") > 0, "nobody was killed in the pager");
    }
}

/// What a design does to pages differs, and the hazards do not: fork, calls into absent memory, threads that
/// read the store beside each other.
mod designs {
    use super::*;

    fn check_all(design: &str) {
        for victim in ["shared", "readwrite", "readers"] {
            let setup = Setup::of_mib(24).start(Start::FirstInstruction).design(design);
            // They fork, and each process has a pool of that size: two of a quarter of the budget come
            // to what is allowed, and over it now and then.
            let setup = match (design, victim) {
                ("hp", "readers" | "shared") => setup.set("hp.share=10%"),
                _ => setup,
            };
            check(victims::job(victim), setup);
        }
    }

    #[test]
    fn cervera() {
        check_all("cervera");
    }

    #[test]
    fn hp() {
        check_all("hp");
    }

    #[test]
    fn castro() {
        check_all("castro");
    }

    #[test]
    fn zswap() {
        check_all("zswap");
    }
}

/// A library that is called before the agent begins threads, and takes its time. Nobody is told that the program
/// cannot be managed, as it is in the end.
#[test]
fn what_begins_before_the_agent_is_waited_for() {
    let library = ["-shared", "-fPIC", "-DLIBRARY", "-Wl,-z,initfirst"];
    let library = victims::build("beginners", &library);
    let library = library.to_str().expect("a path of letters");
    let program = victims::build("beginners", &["-DOF_LIBRARY", "-Wl,--no-as-needed", library]);
    let job = Job::new(program).argument(victims::seed());
    let setup = Setup::of_mib(20).start(Start::FirstInstruction);
    for setup in [setup.clone(), setup.clone().lift(Lift::Copy), setup.lift(Lift::Stretches)] {
        let managed = check(job.clone(), setup);
        let report = managed.outcome.report();
        assert!(!managed.outcome.stderr.contains("not managed"), "{report}");
    }
}

/// What is written before its RAM is needed is spilled while a process is forked, and its child counts it:
/// the first of a namespace, to whom its relatives seem to be gone, must bury none.
#[test]
fn written_ahead() {
    for victim in ["namespaces", "forks"] {
        let setup = Setup::of_mib(24).start(Start::FirstInstruction);
        check(victims::job(victim), setup.set("default.threshold=1%"));
    }
}

/// What was held for the child of a process that is killed in its fork is not counted until the end of the run.
#[test]
fn killed_in_their_forks() {
    let setup = Setup::of_mib(40).start(Start::FirstInstruction);
    let job = victims::job("unborn");
    let managed = job.managed(&setup);
    managed.expect_like(&job.free());
    assert!(managed.stats.swapped_in_pages < 1000, "{:?}", managed.stats);
}

/// Children that are killed before they have begun leave nothing behind: in the end there would be no slot for
/// another one, and no room.
#[test]
fn killed_before_they_begin() {
    let setup = Setup::of_mib(24).start(Start::FirstInstruction);
    let job = victims::job("stillborn");
    let managed = job.managed(&setup);
    managed.expect_like(&job.free());
    let report = managed.outcome.report();
    assert!(!report.contains("not managed"), "{report}");
    assert!(managed.stats.swapped_in_pages < 1000, "{:?}", managed.stats);
}

/// A sandbox that the kernel does not let a program into, as libraries ask for one to see whether there are
/// any: the program stays managed.
#[test]
fn a_sandbox_that_is_refused() {
    let job = Job::new(victims::build("sandbox", &[])).argument("refused");
    for start in [Start::FirstInstruction, Start::Pressure] {
        let managed = compare(&job, &Setup::of_mib(20).start(start)).outcome;
        assert!(!managed.stderr.contains("not managed"), "{}", managed.report());
    }
}

/// A ring from before: the kernel would find nothing where pages are away, and a thread of its own cannot be
/// entered.
#[test]
fn a_ring_that_was_there_before() {
    let setup = Setup::of_mib(20).start(Start::Pressure);
    for argument in ["idle", "later"] {
        compare(&victims::job("uring").argument(argument), &setup);
    }
    let job = victims::job("uring").argument("early");
    let (free, managed) = (job.free(), job.managed(&setup));
    managed.expect_like(&free);
    assert_eq!(managed.stats.managed_bytes, 0, "{}", managed.outcome.report());
}

/// A virtual machine from before: the kernel uses its memory, and has a thread in its process that makes no step
/// of the program's.
#[test]
fn a_machine_that_was_there_before() {
    let job = victims::job("machine");
    let (free, managed) = (job.free(), job.managed(&Setup::of_mib(20).start(Start::Pressure)));
    managed.expect_like(&free);
    if File::options().read(true).write(true).open("/dev/kvm").is_ok() {
        assert_eq!(managed.stats.managed_bytes, 0, "{}", managed.outcome.report());
    }
}

/// One that has locked all memory to come: the pager's own would be filled, and none of the program's leaves.
#[test]
fn what_comes_is_locked() {
    let job = victims::job("marked").argument("all");
    let free = job.free();
    let managed = job.managed(&Setup::of_mib(20).start(Start::Pressure));
    managed.expect_like(&free);
    // Where the program may not lock that much it is managed.
    if free.stdout.starts_with(b"locked") {
        assert_eq!(managed.stats.managed_bytes, 0, "{}", managed.outcome.report());
    }
}

/// Mutexes in pages that have a copy in the store, which are protected against writes: the kernel marks
/// them when their owner ends.
#[test]
fn robust_in_clean_pages() {
    let setup = Setup::of_mib(20).start(Start::FirstInstruction);
    check(victims::job("robust"), setup.set("default.split=84%"));
}

/// Who goes through eight MiB 60 times in so many MiB gets what the others of the victim `idle` have.
fn idle_pages_make_way(job: &Job, mib: u64) {
    for start in [Start::FirstInstruction, Start::Pressure] {
        let setup = Setup::of_mib(mib).store(Store::Disk).start(start);
        let stats = compare(job, &setup).stats;
        assert!(stats.swapped_in_pages < 60 * 2048 / 2, "{setup}: {stats:?}");
    }
}

/// One that goes through eight MiB again and again gets them from one that waits: before, it had the three
/// that were left, and each page was missed in each of its 60 rounds.
#[test]
fn who_waits_gives_to_who_works() {
    idle_pages_make_way(&victims::job("idle"), 29);
}

/// The same where both have the 26 MiB since a fork.
#[test]
fn what_both_have_and_nobody_wants_makes_way() {
    idle_pages_make_way(&victims::job("idle").arguments(["fork"]), 29);
}

/// The same where fourteen have it: one copy in the store serves all of them, where none would be given if each
/// wrote its own.
#[test]
fn what_many_have_and_nobody_wants_makes_way() {
    idle_pages_make_way(&victims::job("idle").arguments(["many"]), 30);
}

/// What processes have in common that were forked before the budget came near is counted once: each for
/// itself, they would have three times the budget.
#[test]
fn forked_before_the_budget_came_near() {
    for lift in [Lift::Move, Lift::Copy, Lift::Stretches] {
        let setup = Setup::of_mib(48).start(Start::Pressure).lift(lift);
        let stats = compare(&victims::job("siblings"), &setup).stats;
        assert!(stats.is_within_budget(), "{setup}: {stats:?}");
    }
}

/// Many processes that begin at once, forked or run, and fill together more than twice the budget in less than a
/// tenth of a second, which is less than the supervisor may have to wait for a processor.
#[test]
fn a_burst_of_processes() {
    const MIB: u64 = 1 << 20;
    for how in [None, Some("execute")] {
        let job = victims::job("burst").arguments(how);
        let managed = job.managed(&Setup::of_mib(100).start(Start::Pressure));
        managed.expect_like(&job.free());
        let stats = &managed.stats;
        assert!(stats.is_pressed() && stats.peak_bytes <= 150 * MIB, "{how:?}: {stats:?}");
    }
}

/// One that forks again and again until it stands still, to be taken over: what its children have in common with it
/// is not counted once more.
#[test]
fn forked_while_it_is_taken_over() {
    const MIB: u64 = 1 << 20;
    let job = victims::job("burst").arguments(["common"]);
    let managed = job.managed(&Setup::of_mib(100).start(Start::Pressure));
    managed.expect_like(&job.free());
    let stats = &managed.stats;
    assert!(stats.managed_bytes > 0 && stats.peak_bytes <= 110 * MIB, "{stats:?}");
}

/// Processes that fill memory at once stand still until the last of them is taken over: those that go on
/// before would use up the rest of the budget meanwhile.
#[test]
fn several_that_fill_at_once() {
    const SCRIPT: &str = r#"
pids=
for each in 1 2 3 4 5 6 7 8; do
    "$0" "$1" 60 words 1 > output.$each &
    pids="$pids $!"
done
for pid in $pids; do
    wait "$pid" || exit 1
done
cat output.*
"#;
    let victim = victims::build("field", &[]);
    let job = Job::new("/bin/sh").arguments(["-c", SCRIPT]).argument(victim);
    check(job.argument(victims::seed()), Setup::of_mib(400).start(Start::Pressure));
}

/// One call that fills more than the budget, of a program that is far from it: the program is managed before
/// that begins.
mod large_calls {
    use super::*;

    const READING: [&str; 4] = ["read", "pread", "fread", "fread_unlocked"];
    const MAPPING: [&str; 2] = ["mmap", "madvise"];
    /// Of glibc alone.
    const MORE_READING: [&str; 6] = [
        "pread64",
        "__read_chk",
        "__pread_chk",
        "__pread64_chk",
        "__fread_chk",
        "__fread_unlocked_chk",
    ];

    fn watched() -> Setup {
        Setup::of_mib(70).start(Start::Pressure)
    }

    fn check_all<'a>(job: &Job, ways: impl IntoIterator<Item = &'a str>) {
        for way in ways {
            check(job.clone().argument(way), watched());
        }
    }

    #[test]
    fn that_read() {
        let job = victims::job("large_calls");
        check_all(&job, READING.into_iter().chain(MORE_READING));
    }

    #[test]
    fn that_map() {
        check_all(&victims::job("large_calls"), MAPPING);
    }

    #[test]
    fn that_read_zeros() {
        let job = victims::job("large_calls");
        check_all(&job, ["/dev/zero"]);
        check(job.argument("/dev/full"), Setup::of_mib(70).start(Start::FirstInstruction));
    }

    #[test]
    fn of_threads_and_children() {
        check_all(&victims::job("large_calls"), ["threads", "child"]);
    }

    #[test]
    fn with_musl() {
        let Some(job) = victims::musl_job("large_calls") else { return };
        check_all(&job, READING.into_iter().chain(MAPPING).chain(["threads"]));
    }

    /// The one that is let go on first may not be missed when the others use up the rest.
    #[test]
    fn of_many_at_once() {
        const SCRIPT: &str = r#"
for each in 1 2 3 4 5 6 7 8 9 10 11 12; do
    "$0" "$1" read 30 > output.$each &
done
wait
cat output.*
"#;
        let job = Job::new("/bin/sh").arguments(["-c", SCRIPT]);
        let job = job.argument(victims::build("large_calls", &[])).argument(victims::seed());
        for _ in 0..4 {
            check(job.clone(), Setup::of_mib(100).start(Start::Pressure));
        }
    }

    /// A library of the program's stands before libc itself, and is found by either kind of table.
    #[test]
    fn that_another_library_sees() {
        for kind in ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv", "-DINDIRECT"] {
            let library = victims::build("standing", &["-shared", "-fPIC", "-DLIBRARY", kind]);
            let library = library.to_str().expect("a path of letters");
            let program = victims::build("standing", &["-Wl,--no-as-needed", library]);
            check(Job::new(program).argument(victims::seed()), watched());
        }
    }

    /// What is in RAM already, or is not there to be read, is nothing that is filled.
    #[test]
    fn that_fit() {
        let job = victims::job("large_calls").argument("fits");
        let managed = job.managed(&watched());
        managed.expect_like(&job.free());
        assert_eq!(managed.stats.managed_bytes, 0, "{}", managed.outcome.report());
    }
}
