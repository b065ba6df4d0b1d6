//! Links the library that `libdeflate-sys` has built.
//!
//! Its Rust side needs `std`, which nothing here may; so it stays out of the program, and with it the instruction to link
//! the library, which is therefore repeated here.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Set by cargo-fuzz.
    let root =
        env::var_os("DEP_LIBDEFLATE_ROOT").expect("libdeflate-sys says where its library is");
    let folder = PathBuf::from(root).join("lib");
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::rustc-link-lib=static=deflate");
}
