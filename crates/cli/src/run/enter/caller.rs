//! A stopped thread that makes system calls for the supervisor.
//!
//! It runs a `syscall` that is written over some code of its process for a moment; as all threads of
//! the process stand still nobody else comes by, and ends as an entry does. Source: ptrace(2).
//! Invariant: after [`Caller::end`] the code is what it was.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use libc::{c_long, pid_t};
use zpager_wire::ENDED;

use super::thread::{StoppedThread, Trouble};
use super::{mappings, ptrace};

const CODE_WORDS: usize = 6;

/// `syscall; mov r12, rax`, and then what an entry ends with: `mov eax, 39; syscall; mov edi, eax; mov eax, 186;
/// syscall; mov esi, eax; mov edx, 5; mov r15d, ENDED; 1: mov eax, 234; syscall; jmp 1b`.
const CALL_CODE: [u8; CODE_WORDS * 8] = {
    let ended = ENDED.to_le_bytes();
    [
        0x0f, 0x05, 0x49, 0x89, 0xc4, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x89, 0xc7, 0xb8, 186, 0, 0,
        0, 0x0f, 0x05, 0x89, 0xc6, 0xba, 5, 0, 0, 0, 0x41, 0xbf, ended[0], ended[1], ended[2],
        ended[3], 0xb8, 234, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
    ]
};

/// A thread that makes system calls for the supervisor.
pub(super) struct Caller<'a> {
    thread: &'a mut StoppedThread,
    /// Where it makes them, and what is there else.
    site: u64,
    covered: [u64; CODE_WORDS],
    memory: File,
}

impl<'a> Caller<'a> {
    /// Has `thread` of a process, of which `maps` are the mappings and all threads stand still, make calls.
    ///
    /// # Errors
    /// It has no code, or is gone.
    pub(super) fn begin(thread: &'a mut StoppedThread, maps: &str) -> Result<Self, Trouble> {
        let code = mappings(maps).find(|found| found.is_code);
        let site = code.ok_or(Trouble::Refused(libc::ENOEXEC))?.start;
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{}/mem", thread.tid()))?;
        let mut covered = [0; CODE_WORDS];
        for (word, at) in covered.iter_mut().zip(words_from(site)) {
            *word = ptrace::word(thread.tid(), at)?;
        }
        let (code, _) = CALL_CODE.as_chunks();
        write_words(thread.tid(), site, code.iter().copied().map(u64::from_le_bytes))?;
        Ok(Caller { thread, site, covered, memory })
    }

    /// Puts the code back.
    ///
    /// # Errors
    /// The process is gone.
    pub(super) fn end(self) -> Result<(), Trouble> {
        Ok(write_words(self.thread.tid(), self.site, self.covered)?)
    }

    /// A call, with as many of its arguments as matter.
    ///
    /// # Errors
    /// What it gave, or the process is gone.
    pub(super) fn call<const N: usize>(
        &mut self,
        number: c_long,
        arguments: [u64; N],
    ) -> Result<u64, Trouble> {
        const { assert!(N <= 6) };
        let mut all = [0; 6];
        all[..N].copy_from_slice(&arguments);
        self.thread.call(self.site, number, all)
    }

    /// Reads the process's memory.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn read<const N: usize>(&self, address: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    /// Writes to the process's memory.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }
}

/// Where words lie.
fn words_from(start: u64) -> impl Iterator<Item = u64> {
    (start..).step_by(size_of::<u64>())
}

fn write_words(tid: pid_t, start: u64, words: impl IntoIterator<Item = u64>) -> io::Result<()> {
    words
        .into_iter()
        .zip(words_from(start))
        .try_for_each(|(word, at)| ptrace::set_word(tid, at, word))
}
