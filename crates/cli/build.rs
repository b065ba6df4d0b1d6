//! Builds the agent, the shared object that `src/run/image.rs` puts inside the command.
//!
//! The agent is always a release build: it is what runs inside other people's
//! programs, whatever profile the command itself is built with. It gets a target
//! directory of its own, because the outer cargo holds the lock of the common one.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that the agent is made of, by folder.
const AGENT_PARTS: [&str; 9] =
    ["agent", "cache", "codec", "pager", "policy", "pool", "store", "sys", "wire"];

/// What the outer cargo and clippy set for their own compilation and must not reach the inner one.
const OUTER_VARIABLES: [&str; 6] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "TARGET",
];

fn main() {
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = folder.ancestors().nth(2).expect("the workspace is two folders up").to_owned();
    watch();
    let target = PathBuf::from(variable("OUT_DIR")).join("agent");
    build(&workspace, &target);
    let object = target.join("release/libzpager_agent.so");
    assert!(object.is_file(), "the agent's build left no {}", object.display());
    println!("cargo::rustc-env=ZPAGER_AGENT_OBJECT={}", object.display());
}

/// Has cargo run this script again when any part of the agent changes. The paths are relative to this
/// package: with a target directory that two checkouts share, each is watched where it is.
fn watch() {
    for part in AGENT_PARTS {
        println!("cargo::rerun-if-changed=../{part}");
    }
    println!("cargo::rerun-if-changed=../../Cargo.toml");
    println!("cargo::rerun-if-changed=build.rs");
}

/// Runs the inner cargo.
fn build(workspace: &Path, target: &Path) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(workspace);
    cargo.args(["rustc", "--release", "--package", "zpager-agent", "--lib"]);
    cargo.args(["--crate-type", "cdylib", "--target-dir"]).arg(target);
    if workspace.join("Cargo.lock").is_file() {
        cargo.arg("--locked");
    }
    for name in OUTER_VARIABLES {
        cargo.env_remove(name);
    }
    // Each run copies the object into memory; debuggers cannot read it from there.
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "the agent does not build: {status}");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
