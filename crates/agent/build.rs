//! Links the agent without libc and without anybody's start-up code. Its ELF header names
//! where the supervisor enters it, as that of a program names where it begins. glibc calls it before
//! all other constructors (`DF_1_INITFIRST`, `_dl_init` in elf/dl-init.c), which may fill memory.

fn main() {
    for argument in [
        "-nostdlib",
        "-nostartfiles",
        "-Wl,-z,now",
        "-Wl,-z,relro",
        "-Wl,-z,initfirst",
        "-Wl,--strip-debug",
        "-Wl,--entry=zpager_enter",
    ] {
        println!("cargo::rustc-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
