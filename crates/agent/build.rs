//! Links the agent without libc and without anybody's start-up code.

fn main() {
    for argument in
        ["-nostdlib", "-nostartfiles", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,--strip-debug"]
    {
        println!("cargo::rustc-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
