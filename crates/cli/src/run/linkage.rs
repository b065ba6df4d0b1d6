//! How a program is linked, which decides how the agent gets into it.
//!
//! Sources: ELF, "Program Header" (`PT_INTERP` names the dynamic loader); ld.so(8),
//! `LD_PRELOAD`; the `DF_1_PIE` flag by which linkers mark a program among the
//! position-independent objects. A loader that is executed as a program has no
//! interpreter either, and is no statically linked program: it loads the agent.
//!
//! Everything here may be a stranger's file: what cannot be read is [`Linkage::Foreign`].

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::LittleEndian;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, Dyn64, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_DYNAMIC, PT_INTERP,
    ProgramHeader64,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// How much of a file decides: ELF's program headers, which every linker puts at the start.
const HEAD_BYTES: usize = 8192;

/// Most of a dynamic section that is looked at.
const DYNAMIC_BYTES_MAX: u64 = 64 << 10;

/// The class of 64-bit files in `e_ident`, and where that is.
const CLASS_64: u8 = 2;
const CLASS_AT: usize = 4;

/// How an ELF program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// The dynamic loader prepares it, and loads the agent.
    Dynamic,
    /// It is whole as it is.
    Static,
    /// A shared object, such as a dynamic loader.
    Library,
    /// Not a 64-bit program for x86-64.
    Foreign,
}

impl Linkage {
    /// Looks at a file.
    pub(crate) fn of(file: &File) -> Self {
        Self::read(|offset, bytes| {
            let mut read = vec![0; bytes];
            let length = file.read_at(&mut read, offset).unwrap_or(0);
            read.truncate(length);
            read
        })
    }

    /// The same with what gives bytes at an offset of it, as many as there are.
    fn read(read_at: impl Fn(u64, usize) -> Vec<u8>) -> Self {
        let head = read_at(0, HEAD_BYTES);
        let Ok(header) = FileHeader64::<LittleEndian>::parse(&head[..]) else {
            return Linkage::Foreign;
        };
        let is_64 = head.get(CLASS_AT) == Some(&CLASS_64);
        let Ok(endian) = header.endian() else { return Linkage::Foreign };
        if !is_64 || header.e_machine(endian) != EM_X86_64 {
            return Linkage::Foreign;
        }
        let segments = header.program_headers(endian, &head[..]).unwrap_or_default();
        if segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP) {
            return Linkage::Dynamic;
        }
        match header.e_type(endian) {
            ET_EXEC => Linkage::Static,
            ET_DYN if is_marked_as_program(endian, segments, read_at) => Linkage::Static,
            ET_DYN => Linkage::Library,
            _ => Linkage::Foreign,
        }
    }
}

/// Whether the dynamic section says that this is a program.
fn is_marked_as_program(
    endian: LittleEndian,
    segments: &[ProgramHeader64<LittleEndian>],
    read_at: impl Fn(u64, usize) -> Vec<u8>,
) -> bool {
    let dynamic = segments.iter().find(|segment| segment.p_type(endian) == PT_DYNAMIC);
    let Some(dynamic) = dynamic else { return false };
    let bytes = dynamic.p_filesz(endian).min(DYNAMIC_BYTES_MAX);
    let section = read_at(dynamic.p_offset(endian), bytes as usize);
    let count = section.len() / size_of::<Dyn64<LittleEndian>>();
    let Ok((entries, _)) =
        object::pod::slice_from_bytes::<Dyn64<LittleEndian>>(&section[..], count)
    else {
        return false;
    };
    let flags = entries.iter().find(|entry| entry.d_tag(endian) == DT_FLAGS_1);
    flags.is_some_and(|flags| flags.d_val(endian) & DF_1_PIE.0 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_bytes(file: &[u8]) -> Linkage {
        Linkage::read(|offset, bytes| {
            let rest = file.get(offset as usize..).unwrap_or_default();
            rest[..rest.len().min(bytes)].to_vec()
        })
    }

    #[test]
    fn kinds_of_programs() {
        let own = std::fs::read("/proc/self/exe").expect("this test");
        assert_eq!(of_bytes(&own), Linkage::Dynamic);
        assert_eq!(
            Linkage::of(&File::open("/proc/self/exe").expect("this test")),
            Linkage::Dynamic
        );
        let changed = |at: usize, bytes: &[u8]| {
            let mut file = own.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            file
        };
        let e_machine = changed(18, &[183]);
        assert_eq!(of_bytes(&e_machine), Linkage::Foreign);
        let ei_class = changed(CLASS_AT, &[1]);
        assert_eq!(of_bytes(&ei_class), Linkage::Foreign);
        // Without a program header there is neither an interpreter nor a dynamic section.
        let mut bare = changed(56, &[0, 0]);
        assert_eq!(of_bytes(&bare), Linkage::Library);
        bare[16] = 2; // e_type: ET_EXEC
        assert_eq!(of_bytes(&bare), Linkage::Static);
        bare[16] = 1; // e_type: ET_REL
        assert_eq!(of_bytes(&bare), Linkage::Foreign);
        for length in [0, 4, 40, 64] {
            assert_ne!(of_bytes(&own[..length]), Linkage::Dynamic);
        }
    }

    #[test]
    fn a_program_without_its_interpreter_is_static_and_a_loader_is_not() {
        let mut own = std::fs::read("/proc/self/exe").expect("this test");
        let interpreter = PT_INTERP.0.to_le_bytes();
        let header = (64..1024).step_by(56).find(|&at| own[at..at + 4] == interpreter);
        let header = header.expect("a program header that names the loader");
        own[header..header + 4].fill(0);
        assert_eq!(of_bytes(&own), Linkage::Static);
        let loader = std::fs::read("/lib64/ld-linux-x86-64.so.2").expect("a loader");
        assert_eq!(of_bytes(&loader), Linkage::Library);
        let section = own.iter().copied().map(|byte| byte ^ 0x5a).collect::<Vec<u8>>();
        assert_eq!(of_bytes(&section), Linkage::Foreign);
    }
}
