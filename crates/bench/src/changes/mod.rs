//! Every change that the bench makes to a machine goes through [`Changes`], and
//! is in a journal before it is made: `/run/zpager-bench.journal`, a stack of
//! [`Change`]s, one JSON object a line. (A new zram device alone is written down
//! right after, because the kernel chooses its number.)
//!
//! There is one way back, [`Changes::take_back_to`], and three who go it: the
//! bench after each run and at its end; the [guardian](guardian), when the bench
//! ended in any other way; and the next bench, when the guardian was killed too.
//! `/run` is emptied when a machine starts, as are all kernel switches, so a
//! journal never speaks of an earlier boot.
//!
//! Invariants: the journal is locked while its bench or guardian lives, so two
//! benches cannot undo each other; a change whose taking back failed stays in
//! the journal.

pub(crate) mod guardian;
mod undo;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::machine::Machine;
pub(crate) use undo::{Change, OWN_PREFIX, run_tool, tool_output};

/// Where the journal lies.
const JOURNAL: &str = "/run/zpager-bench.journal";

/// How long a new bench waits for the lock of another.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// Priority of the bench's swap area: the highest, so that no other area of the machine is used.
const SWAP_PRIORITY: &str = "32767";

/// The changes made so far, and the means to make and undo them.
#[derive(Debug)]
pub(crate) struct Changes {
    machine: Machine,
    journal: Flock<File>,
    made: Vec<Change>,
}

/// A point in the stack of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(usize);

impl Changes {
    /// Opens the journal, which may hold what an earlier bench left behind:
    /// see [`Changes::take_back_to`] and [`Mark::default`].
    ///
    /// # Errors
    /// When another bench is running, or the journal cannot be opened or read.
    pub(crate) fn open(machine: Machine) -> Result<Self> {
        let path = machine.path(JOURNAL);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let journal = lock(file)?;
        let made = read_journal(&journal)?;
        Ok(Changes { machine, journal, made })
    }

    /// The machine that is changed.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The journal's file, to keep its lock beyond this process.
    fn shared_lock(&self) -> Result<File> {
        Ok(self.journal.try_clone()?)
    }

    /// Where the stack stands now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.made.len())
    }

    /// Takes back every change made since `mark`, the last one first. One that
    /// fails does not keep the others from being taken back.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn take_back_to(&mut self, mark: Mark) -> Result<()> {
        let mut failed = Vec::new();
        let mut first_error = None;
        for change in self.made.split_off(mark.0.min(self.made.len())).into_iter().rev() {
            if let Err(error) = change.take_back(&self.machine) {
                first_error.get_or_insert(error);
                failed.push(change);
            }
        }
        self.made.extend(failed.into_iter().rev());
        self.rewrite()?;
        first_error.map_or(Ok(()), Err)
    }

    /// Notes a change that is about to be made.
    fn note(&mut self, change: Change) -> Result<()> {
        let mut line = serde_json::to_vec(&change)?;
        line.push(b'\n');
        self.journal.write_all(&line).context("cannot write the journal of changes")?;
        self.made.push(change);
        Ok(())
    }

    /// Makes the file say what `made` says.
    fn rewrite(&mut self) -> Result<()> {
        let mut text = Vec::new();
        for change in &self.made {
            serde_json::to_writer(&mut text, change)?;
            text.push(b'\n');
        }
        self.journal.set_len(0)?;
        self.journal.seek(SeekFrom::Start(0))?;
        self.journal.write_all(&text)?;
        Ok(())
    }

    /// Writes a kernel switch, unless it says so already. One switch may be
    /// written several times: the oldest note restores it last.
    ///
    /// # Errors
    /// When the switch is missing or refuses the value.
    pub(crate) fn set_switch(&mut self, path: &str, value: &str) -> Result<()> {
        let old = self.machine.read(path).with_context(|| format!("cannot read {path}"))?;
        if old == value {
            return Ok(());
        }
        self.note(Change::Switch { path: path.into(), old })?;
        self.machine.write(path, value).with_context(|| format!("cannot write {value} to {path}"))
    }

    /// Makes a directory that only this user may enter.
    ///
    /// # Errors
    /// When it cannot be made, or exists.
    pub(crate) fn make_directory(&mut self, path: &Path) -> Result<()> {
        self.note(Change::Made { path: path.into() })?;
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new()
            .mode(0o700)
            .create(path)
            .with_context(|| format!("cannot make the directory {}", path.display()))
    }

    /// Makes a swap file in `directory` and swaps to it.
    ///
    /// # Errors
    /// When the disk is too full, or the file system takes no swap files.
    pub(crate) fn add_swap_file(&mut self, directory: &Path, size_bytes: u64) -> Result<()> {
        let path = directory.join(format!("{OWN_PREFIX}-{}.swap", std::process::id()));
        self.make_allocated(&path, size_bytes)?;
        self.swap_on(&path)
    }

    /// Makes a file of allocated blocks without holes, as the kernel demands of a swap file.
    fn make_allocated(&mut self, path: &Path, size_bytes: u64) -> Result<()> {
        self.note(Change::Made { path: path.into() })?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        let length = i64::try_from(size_bytes)?;
        nix::fcntl::fallocate(&file, nix::fcntl::FallocateFlags::empty(), 0, length)
            .with_context(|| format!("cannot allocate {size_bytes} bytes for {}", path.display()))
    }

    /// Writes a swap header and swaps to `path`.
    ///
    /// # Errors
    /// As `mkswap` and `swapon`.
    pub(crate) fn swap_on(&mut self, path: &Path) -> Result<()> {
        run_tool("mkswap", &[path.as_os_str()])?;
        self.note(Change::SwapArea { path: path.into() })?;
        run_tool("swapon", &[OsStr::new("-p"), OsStr::new(SWAP_PRIORITY), path.as_os_str()])
    }

    /// Adds a zram device and gives its number.
    ///
    /// # Errors
    /// When the kernel has no zram.
    pub(crate) fn add_zram(&mut self) -> Result<u32> {
        if !self.machine.has("/sys/class/zram-control") {
            self.load_module("zram")?;
        }
        let answer = self
            .machine
            .read("/sys/class/zram-control/hot_add")
            .context("the kernel cannot add a zram device")?;
        let number = answer.parse().with_context(|| format!("zram device number '{answer}'"))?;
        self.note(Change::ZramDevice { number })?;
        Ok(number)
    }

    /// Loads a kernel module.
    fn load_module(&mut self, name: &str) -> Result<()> {
        self.note(Change::Module { name: name.into() })?;
        run_tool("modprobe", &[name.as_ref()])
    }

    /// Mounts a controller of cgroup version 1 on a new directory.
    ///
    /// # Errors
    /// When the kernel refuses the mount.
    pub(crate) fn mount_controller(&mut self, controller: &str) -> Result<PathBuf> {
        let name = format!("{OWN_PREFIX}-{}-{controller}", std::process::id());
        let path = std::env::temp_dir().join(name);
        self.make_directory(&path)?;
        self.note(Change::Mount { path: path.clone() })?;
        nix::mount::mount(
            Some("cgroup"),
            &path,
            Some("cgroup"),
            nix::mount::MsFlags::empty(),
            Some(controller),
        )
        .with_context(|| format!("cannot mount the {controller} controller"))?;
        Ok(path)
    }

    /// Gives a controller to the groups below the root of cgroup version 2, mounted on `mount`.
    ///
    /// # Errors
    /// When the kernel refuses, as it does in a container.
    pub(crate) fn enable_controller(&mut self, mount: &Path, controller: &str) -> Result<()> {
        let path = mount.join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&path)?;
        if enabled.split_whitespace().any(|name| name == controller) {
            return Ok(());
        }
        self.note(Change::Controller { path: path.clone(), name: controller.into() })?;
        fs::write(&path, format!("+{controller}"))
            .with_context(|| format!("cannot enable the {controller} controller"))
    }

    /// Makes the file `path` into a disk, with a file system that is mounted on the new directory
    /// `mount`, and gives its number, such as `7:0`. What is written there goes by the file's cache.
    ///
    /// # Errors
    /// Without loop devices or the tools for ext4, or when the file's own disk is too full or
    /// takes no direct I/O.
    pub(crate) fn add_disk(
        &mut self,
        path: &Path,
        mount: &Path,
        size_bytes: u64,
    ) -> Result<String> {
        self.make_allocated(path, size_bytes)?;
        self.note(Change::LoopDevice { image: path.into() })?;
        let attach = ["--find", "--show", "--direct-io=on"].map(OsStr::new);
        let device = tool_output("losetup", &[&attach[..], &[path.as_os_str()]].concat())?;
        let device = Path::new(device.trim());
        // Without a journal nothing but the swap file or the store is written later on.
        let plain = ["-q", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"];
        run_tool("mkfs.ext4", &[&plain.map(OsStr::new)[..], &[device.as_os_str()]].concat())?;
        self.make_directory(mount)?;
        self.note(Change::Mount { path: mount.into() })?;
        let no_flags = nix::mount::MsFlags::MS_NOATIME;
        nix::mount::mount(Some(device), mount, Some("ext4"), no_flags, None::<&str>)
            .with_context(|| format!("cannot mount {}", device.display()))?;
        let number = fs::metadata(mount)?.dev();
        Ok(format!("{}:{}", nix::sys::stat::major(number), nix::sys::stat::minor(number)))
    }

    /// Writes a limit for the device of this number into a file of the blkio controller's root.
    ///
    /// # Errors
    /// When the kernel cannot limit devices.
    pub(crate) fn limit_device(&mut self, path: &Path, device: &str, value: u32) -> Result<()> {
        let limits = fs::read_to_string(path)
            .context("the kernel cannot limit disks (CONFIG_BLK_DEV_THROTTLING)")?;
        let old = limits.lines().find_map(|line| line.strip_prefix(device)?.trim().parse().ok());
        let change =
            Change::DeviceLimit { path: path.into(), device: device.into(), old: old.unwrap_or(0) };
        self.note(change)?;
        fs::write(path, format!("{device} {value}"))
            .with_context(|| format!("cannot limit device {device}"))
    }

    /// Makes a cgroup's directory.
    ///
    /// # Errors
    /// When the cgroup file system refuses it.
    pub(crate) fn make_group(&mut self, path: &Path) -> Result<()> {
        self.note(Change::Group { path: path.into() })?;
        fs::create_dir(path).with_context(|| format!("cannot make the cgroup {}", path.display()))
    }
}

impl Mark {
    /// The bottom of the stack.
    pub(crate) const BOTTOM: Mark = Mark(0);
}

/// Locks the journal. A bench that was just killed may hold it for a moment yet,
/// through its guardian or through a program that it was starting.
fn lock(mut file: File) -> Result<Flock<File>> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(journal) => return Ok(journal),
            Err((_, error)) if error != Errno::EWOULDBLOCK => bail!("the bench's journal: {error}"),
            Err((given_back, _)) if Instant::now() < deadline => file = given_back,
            Err(_) => {
                bail!("another zpager bench is running: wait until it has put everything back")
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The changes in a journal. A last line without its end is a change that was never made.
fn read_journal(mut file: &File) -> Result<Vec<Change>> {
    file.seek(SeekFrom::Start(0))?;
    let mut made = Vec::new();
    let mut line = String::new();
    let mut reader = BufReader::new(file);
    while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
        made.push(serde_json::from_str(&line).context("the journal of changes is damaged")?);
        line.clear();
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENABLED: &str = "/sys/module/zswap/parameters/enabled";
    const COMPRESSOR: &str = "/sys/module/zswap/parameters/compressor";

    fn machine(root: &Path) -> Machine {
        fs::create_dir_all(root.join("run")).expect("run");
        fs::create_dir_all(root.join("sys/module/zswap/parameters")).expect("parameters");
        let machine = Machine::at(root);
        machine.write(ENABLED, "N\n").expect("a switch");
        machine.write(COMPRESSOR, "lzo\n").expect("a switch");
        machine
    }

    #[test]
    fn changes_go_back_to_a_mark_and_to_the_bottom() {
        let root = tempfile::tempdir().expect("a directory");
        let machine = machine(root.path());
        let mut changes = Changes::open(machine.clone()).expect("opened");
        changes.set_switch(COMPRESSOR, "lz4").expect("set");
        let mark = changes.mark();
        changes.set_switch(ENABLED, "Y").expect("set");
        changes.set_switch(COMPRESSOR, "zstd").expect("set");
        changes.take_back_to(mark).expect("taken back");
        assert_eq!(machine.read(ENABLED).expect("switch"), "N");
        assert_eq!(machine.read(COMPRESSOR).expect("switch"), "lz4");
        changes.take_back_to(Mark::BOTTOM).expect("taken back");
        assert_eq!(machine.read(COMPRESSOR).expect("switch"), "lzo");
        assert_eq!(machine.read(JOURNAL).expect("journal"), "");
    }

    #[test]
    fn the_next_bench_takes_back_what_a_killed_one_left() {
        let root = tempfile::tempdir().expect("a directory");
        let machine = machine(root.path());
        let mut killed = Changes::open(machine.clone()).expect("opened");
        killed.set_switch(ENABLED, "Y").expect("set");
        killed.make_directory(&root.path().join("zpager-bench-1")).expect("made");
        drop(killed);
        let mut next = Changes::open(machine.clone()).expect("opened");
        assert_eq!(next.mark(), Mark(2));
        next.take_back_to(Mark::BOTTOM).expect("taken back");
        assert_eq!(machine.read(ENABLED).expect("switch"), "N");
        assert!(!root.path().join("zpager-bench-1").exists());
    }

    #[test]
    fn two_benches_do_not_run_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        let machine = machine(root.path());
        let _first = Changes::open(machine.clone()).expect("opened");
        assert!(Changes::open(machine).is_err());
    }

    #[test]
    fn a_change_that_cannot_be_taken_back_stays_in_the_journal() {
        let root = tempfile::tempdir().expect("a directory");
        let machine = machine(root.path());
        let mut changes = Changes::open(machine.clone()).expect("opened");
        changes.set_switch(ENABLED, "Y").expect("set");
        changes.set_switch(COMPRESSOR, "lz4").expect("set");
        fs::remove_file(machine.path(ENABLED)).expect("removed");
        assert!(changes.take_back_to(Mark::BOTTOM).is_err());
        assert_eq!(machine.read(COMPRESSOR).expect("switch"), "lzo");
        drop(changes);
        assert_eq!(Changes::open(machine).expect("opened").mark(), Mark(1));
    }

    #[test]
    fn a_torn_last_line_is_not_a_change() {
        let root = tempfile::tempdir().expect("a directory");
        let machine = machine(root.path());
        machine.write(JOURNAL, "{\"ZramDevice\":{\"number\":4}}\n{\"Modu").expect("a journal");
        assert_eq!(Changes::open(machine).expect("opened").mark(), Mark(1));
    }
}
