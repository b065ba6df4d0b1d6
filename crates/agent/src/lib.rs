//! The shared object that is loaded into a program: a shell over the pager.
//!
//! It depends on no other library, so it fits programs of any libc. All that it
//! exports are the functions of libc before which it stands (`interposed.rs`), each of
//! which goes on to libc's own. The loader runs `begin` before the program's `main`, and glibc's
//! before all other constructors (`build.rs`). A statically linked program has no loader: the
//! supervisor puts the image into it and enters it at `zpager_enter`.
#![no_std]

use core::arch::global_asm;

use zpager_pager::Image;
use zpager_sys::hidden_function;

mod interposed;
mod next;
mod symbols;

unsafe extern "C" {
    /// First byte of this image, by the linker.
    #[link_name = "__ehdr_start"]
    static IMAGE_START: u8;
    /// One past its last byte, by the linker.
    #[link_name = "_end"]
    static IMAGE_END: u8;
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    interposed::find_all();
    let image = Image {
        start: (&raw const IMAGE_START) as usize,
        end: ((&raw const IMAGE_END) as usize).next_multiple_of(4096),
    };
    // SAFETY: the loader calls this once, and the symbols enclose all of this code.
    unsafe { zpager_pager::load(image) }
}

global_asm!(hidden_function!("zpager_enter"), "jmp {enter}", enter = sym zpager_pager::enter);

/// A broken invariant ends the program at once: it could otherwise run on with wrong bytes.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let (file, line) = info.location().map_or(("", 0), |place| (place.file(), place.line()));
    zpager_pager::abandon(file, line)
}
