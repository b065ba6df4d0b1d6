//! A stopped thread that makes system calls for the supervisor.
//!
//! It runs a `syscall` that is written over some code of its process for a moment; as all threads of
//! the process stand still nobody else comes by. Source: ptrace(2). Invariant: after [`Caller::end`]
//! the code is what it was.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use libc::{c_long, pid_t};

use super::thread::{StoppedThread, Trouble};
use super::{mappings, ptrace};

/// `syscall; int3`, and nothing else in the word that is written over.
const CALL_CODE: [u8; 8] = [0x0f, 0x05, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];

/// A thread that makes system calls for the supervisor.
pub(super) struct Caller<'a> {
    thread: &'a mut StoppedThread,
    /// Where it makes them, and what is there else.
    site: u64,
    covered: u64,
    memory: File,
}

impl<'a> Caller<'a> {
    /// Has `thread` of process `pid`, of which `maps` are the mappings and all threads stand still,
    /// make calls.
    ///
    /// # Errors
    /// It has no code, or is gone.
    pub(super) fn begin(
        pid: pid_t,
        thread: &'a mut StoppedThread,
        maps: &str,
    ) -> Result<Self, Trouble> {
        let code = mappings(maps).find(|found| found.is_code);
        let site = code.ok_or(Trouble::Refused(libc::ENOEXEC))?.start;
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let covered = ptrace::word(thread.tid(), site)?;
        ptrace::set_word(thread.tid(), site, u64::from_le_bytes(CALL_CODE))?;
        Ok(Caller { thread, site, covered, memory })
    }

    /// Puts the code back.
    ///
    /// # Errors
    /// The process is gone.
    pub(super) fn end(self) -> Result<(), Trouble> {
        Ok(ptrace::set_word(self.thread.tid(), self.site, self.covered)?)
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
