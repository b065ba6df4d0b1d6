//! Links the agent without libc and without anybody's start-up code. Its ELF header names
//! where the supervisor enters it, as that of a program names where it begins.

fn main() {
    for argument in [
        "-nostdlib",
        "-nostartfiles",
        "-Wl,-z,now",
        "-Wl,-z,relro",
        "-Wl,--strip-debug",
        "-Wl,--entry=zpager_enter",
    ] {
        println!("cargo::rustc-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
