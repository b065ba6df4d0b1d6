//! Every codec that the command offers, under victims that leave none of its pages untouched.

use std::process::Command;

use zpager_tests::places;
use zpager_tests::victims;
use zpager_tests::{Setup, Start, compare};

/// The names that the command lists when it is asked for one that is not there.
fn names() -> Vec<String> {
    let mut command = Command::new(places::zpager());
    let output = command.args(["run", "--codec", "nonsense", "--", "true"]).output();
    let message = String::from_utf8(output.expect("the command runs").stderr).expect("text");
    let (_, list) = message.trim_end().rsplit_once("there are ").expect("a list of names");
    list.split(", ").map(str::to_owned).collect()
}

fn with_every_codec(victim: &str, arguments: &[&str], mib: u64) {
    for name in names() {
        println!("codec {name}");
        let job = victims::job(victim).arguments(arguments);
        let setup = Setup::of_mib(mib).start(Start::FirstInstruction).codec(&name);
        assert_eq!(compare(&job, &setup).stats.codec, name);
    }
}

#[test]
fn there_are_lz4_and_zstd() {
    let names = names();
    for wanted in ["lz4", "zstd"] {
        assert!(names.iter().any(|name| name == wanted), "{wanted} is not in {names:?}");
    }
}

#[test]
fn blocks_of_every_size() {
    with_every_codec("heap", &[], 32);
}

#[test]
fn pages_that_shrink() {
    with_every_codec("field", &["64", "words", "2"], 16);
}

#[test]
fn pages_that_do_not_shrink() {
    with_every_codec("field", &["48", "noise", "1"], 16);
    with_every_codec("field", &["48", "pixels", "1"], 16);
}

#[test]
fn pages_of_one_value() {
    with_every_codec("field", &["96", "zeros", "1"], 16);
}
