//! The commands by which a device is made, started, stopped and deleted, over /dev/ublk-control.
//!
//! Source: Linux, Documentation/block/ublk.rst and include/uapi/linux/ublk_cmd.h, whose names these are.
//! Each is an io_uring command of 80 bytes; the kernel may wait in it, and so does the caller.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

const PLACE: &str = "/dev/ublk-control";

/// The commands, with what `_IOR('u', ...)` and `_IOWR('u', ...)` make of them.
const ADD_DEV: u32 = both_ways(0x04, COMMAND_BYTES);
const DEL_DEV: u32 = both_ways(0x05, COMMAND_BYTES);
const START_DEV: u32 = both_ways(0x06, COMMAND_BYTES);
const STOP_DEV: u32 = both_ways(0x07, COMMAND_BYTES);
const SET_PARAMS: u32 = both_ways(0x08, COMMAND_BYTES);
const GET_FEATURES: u32 = 2 << 30 | COMMAND_BYTES << 16 | (b'u' as u32) << 8 | 0x13;

const COMMAND_BYTES: u32 = 32;
const NO_QUEUE: u16 = u16::MAX;
/// Any number that is free.
const ANY: u32 = u32::MAX;

const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
const F_USER_COPY: u64 = 1 << 7;
const FEATURES: u64 = F_CMD_IOCTL_ENCODE | F_USER_COPY;

const PARAM_TYPE_BASIC: u32 = 1 << 0;
const PARAM_TYPE_DISCARD: u32 = 1 << 1;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const ATTR_FUA: u32 = 1 << 3;

const SECTOR_SHIFT: u32 = 9;
const BLOCK_SHIFT: u8 = 12;
/// The longest trim, in sectors: 4 GiB.
const DISCARD_SECTORS_MAX: u32 = 1 << 23;

/// A command that both gives and takes, of that number and with so long an argument.
pub(super) const fn both_ways(number: u32, bytes: u32) -> u32 {
    3 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// What is wanted of a device, and what it became.
#[repr(C)]
#[derive(Debug, Default)]
struct DevInfo {
    nr_hw_queues: u16,
    queue_depth: u16,
    state: u16,
    pad: u16,
    max_io_buf_bytes: u32,
    dev_id: u32,
    ublksrv_pid: i32,
    pad1: u32,
    flags: u64,
    ublksrv_flags: u64,
    owner_uid: u32,
    owner_gid: u32,
    reserved: [u64; 2],
}

/// The first of `struct ublk_params`, of which the rest is not wanted.
#[repr(C)]
#[derive(Debug, Default)]
struct Params {
    len: u32,
    types: u32,
    attrs: u32,
    logical_bs_shift: u8,
    physical_bs_shift: u8,
    io_opt_shift: u8,
    io_min_shift: u8,
    max_sectors: u32,
    chunk_sectors: u32,
    dev_sectors: u64,
    virt_boundary_mask: u64,
    discard_alignment: u32,
    discard_granularity: u32,
    max_discard_sectors: u32,
    max_write_zeroes_sectors: u32,
    max_discard_segments: u16,
    reserved: u16,
    /// Of the next part.
    end: u32,
}

/// How a device is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Its number; `None`: any.
    pub(super) number: Option<u32>,
    pub(super) queues: u16,
    /// Requests of each queue.
    pub(super) depth: u16,
    /// The longest request.
    pub(super) request_bytes: u32,
    pub(super) size_bytes: u64,
    /// Whether a flush has anything to do.
    pub(super) has_cache: bool,
}

/// The driver.
pub(crate) struct Control {
    file: File,
    ring: IoUring<Entry128, cqueue::Entry>,
}

impl Control {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel has no such thing, or not to this user, in one line.
    pub(crate) fn open() -> Result<Control, String> {
        let file = OpenOptions::new().read(true).write(true).open(PLACE);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                format!(
                    "--ublk: no {PLACE}: load the kernel's module ublk_drv (Linux 6.5 or newer)"
                )
            }
            _ => format!("--ublk: {PLACE}: {error}"),
        })?;
        let ring =
            IoUring::builder().build(2).map_err(|error| format!("--ublk: io_uring: {error}"))?;
        let mut control = Control { file, ring };
        match control.features() {
            Ok(features) if features & FEATURES == FEATURES => Ok(control),
            _ => {
                Err("--ublk: the kernel's ublk driver is too old: take Linux 6.5 or newer"
                    .to_owned())
            }
        }
    }

    fn features(&mut self) -> io::Result<u64> {
        let mut features = 0u64;
        // SAFETY: the argument lives until the command has ended.
        unsafe {
            self.command(GET_FEATURES, 0, &raw mut features as u64, size_of::<u64>(), 0)?;
        }
        Ok(features)
    }

    /// Makes a device; gives its number.
    pub(super) fn add(&mut self, shape: &Shape) -> io::Result<u32> {
        let dev_id = shape.number.unwrap_or(ANY);
        let mut info = DevInfo {
            nr_hw_queues: shape.queues,
            queue_depth: shape.depth,
            max_io_buf_bytes: shape.request_bytes,
            dev_id,
            flags: FEATURES,
            ..DevInfo::default()
        };
        // SAFETY: as in `features`.
        unsafe {
            self.command(ADD_DEV, dev_id, &raw mut info as u64, size_of::<DevInfo>(), 0)?;
        }
        let added = self.set_params(info.dev_id, shape);
        if added.is_err() || info.nr_hw_queues != shape.queues || info.queue_depth != shape.depth {
            self.delete(info.dev_id)?;
            added?;
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(info.dev_id)
    }

    fn set_params(&mut self, number: u32, shape: &Shape) -> io::Result<()> {
        let mut params = Params {
            len: size_of::<Params>() as u32,
            types: PARAM_TYPE_BASIC | PARAM_TYPE_DISCARD,
            attrs: if shape.has_cache { ATTR_VOLATILE_CACHE | ATTR_FUA } else { 0 },
            logical_bs_shift: BLOCK_SHIFT,
            physical_bs_shift: BLOCK_SHIFT,
            io_opt_shift: BLOCK_SHIFT,
            io_min_shift: BLOCK_SHIFT,
            max_sectors: shape.request_bytes >> SECTOR_SHIFT,
            dev_sectors: shape.size_bytes >> SECTOR_SHIFT,
            discard_granularity: 1 << BLOCK_SHIFT,
            max_discard_sectors: DISCARD_SECTORS_MAX,
            max_write_zeroes_sectors: DISCARD_SECTORS_MAX,
            max_discard_segments: 1,
            ..Params::default()
        };
        // SAFETY: as in `features`.
        unsafe { self.command(SET_PARAMS, number, &raw mut params as u64, size_of::<Params>(), 0) }
    }

    /// Has programs see a device, each of whose requests somebody waits for.
    pub(super) fn start(&mut self, number: u32) -> io::Result<()> {
        // SAFETY: no argument.
        unsafe { self.command(START_DEV, number, 0, 0, u64::from(std::process::id())) }
    }

    /// Takes it from them, once what goes on has ended; nobody waits for requests any more then.
    pub(super) fn stop(&mut self, number: u32) -> io::Result<()> {
        // SAFETY: no argument.
        unsafe { self.command(STOP_DEV, number, 0, 0, 0) }
    }

    /// Deletes a device that nobody has open.
    pub(super) fn delete(&mut self, number: u32) -> io::Result<()> {
        // SAFETY: no argument.
        unsafe { self.command(DEL_DEV, number, 0, 0, 0) }
    }

    /// Does a command and waits for its end.
    ///
    /// # Safety
    /// At `address` are `bytes` bytes of what the command wants, until it has ended.
    unsafe fn command(
        &mut self,
        code: u32,
        number: u32,
        address: u64,
        bytes: usize,
        data: u64,
    ) -> io::Result<()> {
        // The fields of `struct ublksrv_ctrl_cmd`.
        let mut command = [0; 80];
        command[..4].copy_from_slice(&number.to_ne_bytes());
        command[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
        command[6..8].copy_from_slice(&(bytes as u16).to_ne_bytes());
        command[8..16].copy_from_slice(&address.to_ne_bytes());
        command[16..24].copy_from_slice(&data.to_ne_bytes());
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, code).cmd(command).build();
        // SAFETY: the ring is empty between commands, and the caller keeps the argument.
        let is_pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(is_pushed.is_ok());
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let Some(done) = self.ring.completion().next() else { continue };
            return match done.result() {
                0.. => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_takes_is_as_long_as_it_says() {
        assert_eq!((size_of::<DevInfo>(), size_of::<Params>()), (64, 64));
        assert_eq!(std::mem::offset_of!(DevInfo, flags), 24);
        assert_eq!(std::mem::offset_of!(Params, dev_sectors), 24);
        assert_eq!(std::mem::offset_of!(Params, max_discard_segments), 56);
        assert_eq!((ADD_DEV, GET_FEATURES), (0xc020_7504, 0x8020_7513));
    }

    #[test]
    fn without_the_driver_it_is_told_in_a_line() {
        if std::path::Path::new(PLACE).exists() {
            return println!("skipped: there is {PLACE}");
        }
        let why = Control::open().err().expect("nothing to open");
        assert!(why.contains("ublk_drv") && !why.contains('\n'), "{why}");
    }
}
