//! Other people's test suites under `zpager run`, in budgets that press.
//!
//! What fails without zpager is not held against it: the sets of failing tests
//! are compared. `make test` runs what is short and does not depend on how fast
//! the machine is; `make test-long` runs the rest, which is marked as ignored.

use std::collections::BTreeSet;

use zpager_tests::packages::{program, python};
use zpager_tests::{Ending, Job, Lift, Setup, Start, Store};

/// A stress-ng stressor with its own verification, managed in `mib` MiB.
fn stress(words: &str, seconds: u64, setup: Setup) {
    let Some(stress) = program("stress-ng", "stress-ng") else { return };
    let job = Job::new(stress)
        .arguments(words.split(' '))
        .arguments(["--verify", "--no-rand-seed", "--oomable", "--temp-path", "."])
        .arguments(["-t", &seconds.to_string()])
        .limit_seconds(seconds * 5 + 120);
    let managed = job.managed(&setup);
    let outcome = &managed.outcome;
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    let complaint = outcome.stderr.lines().find(|line| line.contains("fail:"));
    assert_eq!(complaint, None, "{}", outcome.report());
    managed.expect_pressed();
}

/// One test a stressor: `[#[ignore = "WHY"]] NAME "words" seconds MiB`.
macro_rules! stressors {
    ($($(#[$note:meta])* $name:ident $words:literal $seconds:literal $mib:literal;)*) => {$(
        #[test]
        $(#[$note])*
        fn $name() {
            let setup = Setup::of_mib($mib).start(Start::FirstInstruction);
            stress($words, $seconds, setup);
        }
    )*};
}

stressors! {
    stress_vm "--vm 2 --vm-bytes 96m --vm-method all" 8 48;
    stress_vm_kept "--vm 1 --vm-bytes 96m --vm-method all --vm-keep" 5 32;
    // Maps page by page before it touches much: on a busy machine that takes all of its time.
    #[ignore = "long: make test-long"]
    stress_mmap "--mmap 1 --mmap-bytes 96m" 20 32;
    stress_mremap "--mremap 1 --mremap-bytes 48m" 5 24;
    stress_malloc "--malloc 1 --malloc-bytes 64m --malloc-touch --malloc-pthreads 2" 5 32;
    stress_vm_rw "--vm-rw 1 --vm-rw-bytes 48m" 5 32;
    stress_bigheap "--bigheap 1 --bigheap-growth 1m --bigheap-ops 96" 5 32;
    stress_fork "--vm 1 --vm-bytes 48m --fork 1 --fork-vm" 5 40;
    stress_pthread "--vm 1 --vm-bytes 48m --pthread 1 --pthread-max 64" 5 40;
    stress_clone "--vm 1 --vm-bytes 48m --clone 1 --clone-max 16" 5 48;
    // Thousands of processes wait for each other's vfork, and each has a signal stack of its own.
    stress_vfork "--vm 1 --vm-bytes 192m --vforkmany 1 --vfork 1" 5 160;
}

/// Everything of the above for longer, entered at pressure too and with every way of lifting.
#[test]
#[ignore = "long: make test-long"]
fn stress_long() {
    let memory = "--vm 2 --vm-bytes 256m --vm-method all";
    let table = [
        memory,
        "--mmap 1 --mmap-bytes 256m",
        "--mremap 1 --mremap-bytes 64m",
        "--malloc 1 --malloc-touch --malloc-bytes 256m --malloc-pthreads 4",
        "--pagemove 1 --mmapfork 1 --memfd 1",
        "--vm 1 --vm-bytes 128m --vm-segv 1 --vm-addr 1 --remap 1",
        "--sparsematrix 1 --vm-rw 1 --mincore 1",
    ];
    for words in table {
        stress(words, 30, Setup::of_mib(96).start(Start::Pressure));
        stress(words, 15, Setup::of_mib(96).start(Start::FirstInstruction).lift(Lift::Copy));
        stress(words, 15, Setup::of_mib(192).store(Store::None));
    }
}

/// CPython's own tests: no test fails managed that passes free.
fn cpython(tests: &[&str], setup: &Setup) {
    let Some(python) = python("test.test_mmap", "libpython3-testsuite") else { return };
    let job = Job::new(python)
        .arguments(["-m", "test", "--junit-xml=results.xml", "--tempdir=.", "--timeout=240"])
        .arguments(tests)
        .limit_seconds(600);
    let free = Results::of(&job.free().file("results.xml"));
    let managed = job.managed(setup);
    let found = Results::of(&managed.outcome.file("results.xml"));
    let worse: Vec<_> = found.failed.difference(&free.failed).collect();
    assert!(worse.is_empty(), "fail only when managed: {worse:#?}\n{}", managed.outcome.report());
    assert_eq!(found.ran, free.ran, "other tests were run");
    managed.expect_pressed();
}

/// Names of the tests in a JUnit report.
struct Results {
    ran: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl Results {
    /// Reads the report as far as this needs: elements `testcase` that hold `failure` or `error`.
    fn of(report: &[u8]) -> Self {
        let text = String::from_utf8_lossy(report);
        let mut results = Results { ran: BTreeSet::new(), failed: BTreeSet::new() };
        for case in text.split("<testcase ").skip(1) {
            let name = case.split('"').nth(1).unwrap_or_default().to_owned();
            if case.contains("<failure") || case.contains("<error") {
                results.failed.insert(name.clone());
            }
            results.ran.insert(name);
        }
        results
    }
}

/// Those that take seconds.
const SHORT_TESTS: [&str; 5] = ["test_mmap", "test_zlib", "test_array", "test_bytes", "test_dict"];
const LONG_TESTS: [&str; 6] =
    ["test_mmap", "test_threading", "test_subprocess", "test_io", "test_zlib", "test_json"];

#[test]
fn cpython_from_start() {
    cpython(&SHORT_TESTS, &Setup::of_mib(20).start(Start::FirstInstruction));
}

#[test]
fn cpython_entered_at_pressure() {
    cpython(&SHORT_TESTS, &Setup::of_mib(20).start(Start::Pressure));
}

#[test]
#[ignore = "long: make test-long"]
fn cpython_in_half() {
    cpython(&LONG_TESTS, &Setup::of_mib(40).start(Start::FirstInstruction));
}

#[test]
#[ignore = "long: make test-long"]
fn cpython_long() {
    cpython(&LONG_TESTS, &Setup::of_mib(40).start(Start::Pressure));
    let more = [
        "test_array",
        "test_bytes",
        "test_memoryview",
        "test_set",
        "test_signal",
        "test_socket",
        "test_select",
        "test_asyncio",
        "test_os",
        "test_posix",
        "test_multiprocessing_fork",
    ];
    cpython(&more, &Setup::of_mib(48).start(Start::FirstInstruction));
}
