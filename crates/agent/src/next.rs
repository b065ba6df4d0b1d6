//! Finding what a name would stand for without this object: its first definition in an object behind it.
//!
//! It is what dlsym(3) does with `RTLD_NEXT`, which up to glibc 2.33 is in a library that not every program
//! has. Objects are gone through in the order in which the loader looks names up.
//!
//! Sources: dl_iterate_phdr(3); ELF, "Dynamic Section", "Symbol Table" and "Hash Table"; the GNU hash table,
//! symbol versions and indirect functions as the binutils write them (`DT_GNU_HASH`, `DT_VERSYM`,
//! `STT_GNU_IFUNC`).
//!
//! Invariant: nothing is read but what the loader has mapped of an object.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
/// In the low bits of a symbol's kind: a name without one as assembly leaves it, a function, and one that
/// gives the function's address.
const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
/// The version of an old program's alone.
const VERSYM_HIDDEN: u16 = 0x8000;
/// Longest chain of a bucket that is gone through.
const CHAIN_MAX: usize = 1 << 16;

/// As <link.h> has it, as far as it is wanted.
#[repr(C)]
struct ObjectInfo {
    base: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    header_count: u16,
}

#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: usize,
    physical_address: u64,
    file_bytes: u64,
    memory_bytes: usize,
    alignment: u64,
}

#[repr(C)]
struct Dynamic {
    tag: u64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    kind: u8,
    visibility: u8,
    section: u16,
    value: usize,
    bytes: u64,
}

type Callback = unsafe extern "C" fn(*const ObjectInfo, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;

/// What is looked for, and where it was found.
struct Search<'a, F> {
    /// An address of the object behind which to look.
    own: usize,
    is_behind: bool,
    names: &'a [&'a CStr],
    found: F,
}

/// Calls `found` with the place of each of `names` and the address that it has behind the object in which
/// `own` lies, where it has one.
///
/// # Safety
/// The caller holds no lock of the loader's.
pub(crate) unsafe fn find<F: FnMut(usize, usize)>(own: usize, names: &[&CStr], found: F) {
    let Some(iterate) = loaders_iterate() else { return };
    let mut search = Search { own, is_behind: false, names, found };
    // SAFETY: the function is the C library's, and gives back what it is given.
    unsafe { iterate(look_into::<F>, (&raw mut search).cast()) };
}

/// dl_iterate_phdr(3), where there is a loader.
fn loaders_iterate() -> Option<Iterate> {
    /// Its address, or 0.
    #[unsafe(naked)]
    extern "C" fn address() -> usize {
        naked_asm!(".weak dl_iterate_phdr", "mov rax, [rip + dl_iterate_phdr@GOTPCREL]", "ret")
    }
    // SAFETY: an address that is not 0 is that of the function.
    unsafe { core::mem::transmute::<usize, Option<Iterate>>(address()) }
}

unsafe extern "C" fn look_into<F: FnMut(usize, usize)>(
    info: *const ObjectInfo,
    _bytes: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: `find` gives the one, and the loader the other.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_, F>>()) };
    // SAFETY: the loader's, for the object.
    let headers = unsafe { core::slice::from_raw_parts(info.headers, info.header_count.into()) };
    if !search.is_behind {
        search.is_behind = headers.iter().any(|header| {
            header.kind == PT_LOAD
                && search.own.wrapping_sub(info.base + header.address) < header.memory_bytes
        });
        return 0;
    }
    let Some(dynamic) = headers.iter().find(|header| header.kind == PT_DYNAMIC) else { return 0 };
    // SAFETY: the loader has mapped the object whose headers these are.
    let Some(object) = (unsafe { Object::at(info.base, info.base + dynamic.address) }) else {
        return 0;
    };
    for (place, name) in search.names.iter().enumerate() {
        // SAFETY: as above.
        if let Some(address) = unsafe { object.address_of(name) } {
            (search.found)(place, address);
        }
    }
    0
}

/// The tables by which names are looked up in an object.
struct Object {
    base: usize,
    symbols: *const Symbol,
    strings: *const u8,
    /// The GNU table, and that of ELF itself; an object has one of them or both.
    gnu_hash: *const u32,
    hash: *const u32,
    versions: *const u16,
}

impl Object {
    /// # Safety
    /// `dynamic` is the dynamic section of an object that the loader has mapped at `base`.
    unsafe fn at(base: usize, dynamic: usize) -> Option<Object> {
        let mut object = Object {
            base,
            symbols: ptr::null(),
            strings: ptr::null(),
            gnu_hash: ptr::null(),
            hash: ptr::null(),
            versions: ptr::null(),
        };
        // Some loaders put the addresses themselves there, others leave them as they are in the file.
        let address = |value: usize| if value < base { base + value } else { value };
        let mut entry = dynamic as *const Dynamic;
        loop {
            // SAFETY: the section ends with `DT_NULL`.
            let Dynamic { tag, value } = unsafe { entry.read() };
            match tag {
                DT_NULL => break,
                DT_SYMTAB => object.symbols = address(value) as *const Symbol,
                DT_STRTAB => object.strings = address(value) as *const u8,
                DT_GNU_HASH => object.gnu_hash = address(value) as *const u32,
                DT_HASH => object.hash = address(value) as *const u32,
                DT_VERSYM => object.versions = address(value) as *const u16,
                _ => {}
            }
            // SAFETY: as above.
            entry = unsafe { entry.add(1) };
        }
        let has_table = !object.gnu_hash.is_null() || !object.hash.is_null();
        let is_whole = has_table && !object.symbols.is_null() && !object.strings.is_null();
        is_whole.then_some(object)
    }

    /// The address of the function with this name that the object defines.
    ///
    /// # Safety
    /// The object is still mapped, and the loader has prepared it.
    unsafe fn address_of(&self, name: &CStr) -> Option<usize> {
        // SAFETY: the caller's promise.
        let symbol = unsafe {
            let at = match self.gnu_hash.is_null() {
                true => self.place_by_hash(name),
                false => self.place_by_gnu_hash(name),
            };
            &*self.symbols.add(at?)
        };
        let address = self.base + symbol.value;
        if symbol.kind & 15 != STT_GNU_IFUNC {
            return Some(address);
        }
        // SAFETY: what such a symbol names is a function that takes nothing and gives an address.
        let address = unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(address)() };
        (address != 0).then_some(address)
    }

    /// Where among the symbols it is, by the GNU table.
    ///
    /// # Safety
    /// The object is still mapped, and has one.
    unsafe fn place_by_gnu_hash(&self, name: &CStr) -> Option<usize> {
        let wanted = gnu_hash(name.to_bytes());
        // SAFETY: the table's layout, of which the linker made the counts: four numbers, the words of a
        // filter, the buckets, and a word for each symbol from `first` on, of which the last of a bucket is odd.
        unsafe {
            let [buckets, first, filter_words] = [0, 1, 2].map(|at| self.gnu_hash.add(at).read());
            if buckets == 0 {
                return None;
            }
            let bucket_row = self.gnu_hash.add(4 + 2 * filter_words as usize);
            let chains = bucket_row.add(buckets as usize);
            let start = bucket_row.add((wanted % buckets) as usize).read();
            if start < first {
                return None;
            }
            for at in start as usize..start as usize + CHAIN_MAX {
                let hash = chains.add(at - first as usize).read();
                if hash | 1 == wanted | 1 && self.defines(at, name) {
                    return Some(at);
                }
                if hash & 1 != 0 {
                    break;
                }
            }
        }
        None
    }

    /// Where among the symbols it is, by the table of ELF.
    ///
    /// # Safety
    /// The object is still mapped, and has one.
    unsafe fn place_by_hash(&self, name: &CStr) -> Option<usize> {
        let wanted = elf_hash(name.to_bytes());
        // SAFETY: the table's layout, of which the linker made the counts: those of buckets and symbols, the
        // buckets, and for each symbol the next of its bucket, or 0.
        unsafe {
            let buckets = self.hash.read();
            if buckets == 0 {
                return None;
            }
            let bucket_row = self.hash.add(2);
            let chains = bucket_row.add(buckets as usize);
            let mut at = bucket_row.add((wanted % buckets) as usize).read() as usize;
            for _ in 0..CHAIN_MAX {
                if at == 0 {
                    break;
                }
                if self.defines(at, name) {
                    return Some(at);
                }
                at = chains.add(at).read() as usize;
            }
        }
        None
    }

    /// Whether a symbol is the function with this name, in the version that programs of today get.
    ///
    /// # Safety
    /// The object is still mapped, and there is such a symbol.
    unsafe fn defines(&self, at: usize, name: &CStr) -> bool {
        // SAFETY: the caller's promise; there are as many versions as symbols, where there are any.
        unsafe {
            let symbol = &*self.symbols.add(at);
            let is_hidden =
                !self.versions.is_null() && self.versions.add(at).read() & VERSYM_HIDDEN != 0;
            let spelt = self.strings.add(symbol.name as usize);
            let mut bytes = name.to_bytes_with_nul().iter().enumerate();
            symbol.section != 0
                && matches!(symbol.kind & 15, STT_NOTYPE | STT_FUNC | STT_GNU_IFUNC)
                && !is_hidden
                // What is read ends where the shorter one does.
                && bytes.all(|(at, &byte)| spelt.add(at).read() == byte)
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

fn elf_hash(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, &byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}
