//! The program's end is its own: status and signal are what they would be without zpager.

use zpager_tests::victims;
use zpager_tests::{Setup, Start, compare};

/// One module a way to end: `NAME "argument of the victim"`.
macro_rules! endings {
    ($($name:ident $way:literal;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn from_start() {
                let setup = Setup::of_mib(20).start(Start::FirstInstruction);
                compare(&victims::job("exits").argument($way), &setup);
            }

            #[test]
            fn at_pressure() {
                compare(&victims::job("exits").argument($way), &Setup::of_mib(20).start(Start::Pressure));
            }
        }
    )*};
}

endings! {
    returns "return";
    exits_in_a_thread "thread";
    main_thread_leaves_first "main-thread";
    exits_while_others_fault "faulting";
    leaves_by_bare_exit "_exit";
    leaves_by_exit_group "exit_group";
    leaves_by_quick_exit "quick";
    aborts "abort";
    writes_through_null "null";
    reads_protected_memory "protected";
    overflows_its_stack "overflow";
    undefined_instruction "trap";
    divides_by_zero "divide";
    sigterm "SIGTERM";
    sigkill "SIGKILL";
    sigsys "SIGSYS";
    sigbus "SIGBUS";
    sighup "SIGHUP";
    sigpipe "SIGPIPE";
    sigxcpu "SIGXCPU";
    real_time_signal "SIGRT";
}
