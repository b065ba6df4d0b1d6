//! A file system that the kernel mounts on `zpager device serve --clean-cache`, and has after the
//! server was killed amid its work.
//!
//! The kernel reaches the server by nbdfuse and a loop device, so neither its nbd driver nor ublk is
//! needed: a write becomes an NBD write, a barrier of the file system's journal an NBD flush.
//! What fsync(2) had promised before the kill has to be there, and what became of the rest has to be a
//! file system without errors.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use zpager_seed::{Random, random};
use zpager_tests::job::until;
use zpager_tests::nbd::{Server, private};
use zpager_tests::packages::program;
use zpager_tests::places;

const DISK_BYTES: u64 = 48 << 20;
const DIRECTORIES: u64 = 4;
/// In each directory, at most.
const FILES: u64 = 10;
const FILE_BYTES_MAX: usize = 256 << 10;
const WRITE_BYTES_MAX: u64 = 64 << 10;
const KILLS: u64 = 8;
/// The latest time of a kill, since the work began.
const KILL_MS_MAX: u64 = 600;
const MOUNT_MAX: Duration = Duration::from_secs(20);

struct Tools {
    mkfs: PathBuf,
    fsck: PathBuf,
    mount: PathBuf,
    umount: PathBuf,
    nbdfuse: PathBuf,
}

impl Tools {
    /// Says what is missing where something is.
    fn find() -> Option<Tools> {
        let devices = ["/dev/fuse", "/dev/loop-control"];
        if !devices.iter().all(|device| File::open(device).is_ok()) {
            println!("skipped: FUSE and loop devices take root, and a kernel that has them");
            return None;
        }
        Some(Tools {
            mkfs: program("mkfs.ext4", "e2fsprogs")?,
            fsck: program("e2fsck", "e2fsprogs")?,
            mount: program("mount", "mount")?,
            umount: program("umount", "mount")?,
            nbdfuse: program("nbdfuse", "libnbd-bin")?,
        })
    }

    fn make_file_system(&self, disk: &Path) {
        File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
        run(Command::new(&self.mkfs).args(["-q", "-F"]).arg(disk));
    }

    /// Nothing that fsck would mend.
    fn check(&self, disk: &Path) {
        run(Command::new(&self.fsck).arg("-fn").arg(disk));
    }
}

/// Runs a tool to its success.
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("a tool");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// The file system of a server, mounted while this lives.
struct Mounted<'a> {
    tools: &'a Tools,
    nbdfuse: Child,
    directory: TempDir,
}

impl<'a> Mounted<'a> {
    fn new(tools: &'a Tools, server: &Server) -> Self {
        let directory = places::scratch();
        let (exported, files) = (directory.path().join("nbd"), directory.path().join("files"));
        fs::create_dir(&exported).and_then(|()| fs::create_dir(&files)).expect("directories");
        let disk = exported.join("disk");
        let mut command = Command::new(&tools.nbdfuse);
        // It fails an assertion of its own where the server ends.
        let command = command.arg(&disk).arg(server.uri()).stderr(Stdio::null());
        let nbdfuse = command.spawn().expect("nbdfuse");
        let mounted = Mounted { tools, nbdfuse, directory };
        until(MOUNT_MAX, "nbdfuse has not begun", || disk.exists());
        run(Command::new(&tools.mount).args(["-o", "loop"]).args([disk, files]));
        mounted
    }

    fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        for name in ["files", "nbd"] {
            let umount =
                Command::new(&self.tools.umount).arg(self.directory.path().join(name)).output();
            if !std::thread::panicking() {
                let output = umount.expect("umount");
                assert!(output.status.success(), "{name}: {output:?}");
            }
        }
        if std::thread::panicking() {
            // Where unmounting failed it would serve on.
            let _ = self.nbdfuse.kill();
        }
        self.nbdfuse.wait().expect("a child");
    }
}

/// What is in the files, by their names.
type Content = BTreeMap<String, Vec<u8>>;

/// A program that works with files, and what it may rely on.
struct Work<'a> {
    root: PathBuf,
    random: Random,
    /// From then on what seems to be flushed does not count.
    is_killed: &'a AtomicBool,
    /// As it wrote them.
    written: Content,
    /// Those of them that the file system has promised to keep so.
    flushed: Content,
}

impl Work<'_> {
    fn name(&mut self) -> String {
        format!("d{}/f{}", self.random.u64(..DIRECTORIES), self.random.u64(..FILES))
    }

    /// Changes one file or flushes it.
    fn step(&mut self) -> io::Result<()> {
        let name = self.name();
        match self.random.u64(..10) {
            0..5 => self.write(&name),
            5 => self.truncate(&name),
            6 => self.rename(&name),
            7 => self.remove(&name),
            _ => self.flush(&name),
        }
    }

    fn write(&mut self, name: &str) -> io::Result<()> {
        let bytes = 1 + self.random.u64(..WRITE_BYTES_MAX) as usize;
        // Some of it shrinks.
        let mask = if self.random.bool() { 0xff } else { 0x11 };
        let data: Vec<u8> = (0..bytes).map(|_| self.random.u8(..) & mask).collect();
        let content = self.written.get(name).map_or(0, Vec::len);
        let at = self.random.u64(..=content.min(FILE_BYTES_MAX - bytes) as u64) as usize;
        self.flushed.remove(name);
        let content = self.written.entry(name.to_owned()).or_default();
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(self.root.join(name))?;
        file.write_all_at(&data, at as u64)?;
        content.resize(content.len().max(at + bytes), 0);
        content[at..at + bytes].copy_from_slice(&data);
        if self.random.bool() { self.flush(name) } else { Ok(()) }
    }

    fn truncate(&mut self, name: &str) -> io::Result<()> {
        let Some(content) = self.written.get_mut(name) else { return Ok(()) };
        self.flushed.remove(name);
        content.truncate(content.len() / 2);
        OpenOptions::new().write(true).open(self.root.join(name))?.set_len(content.len() as u64)
    }

    fn rename(&mut self, name: &str) -> io::Result<()> {
        let other = self.name();
        if other == name || !self.written.contains_key(name) {
            return Ok(());
        }
        self.flushed.remove(name);
        self.flushed.remove(&other);
        fs::rename(self.root.join(name), self.root.join(&other))?;
        let content = self.written.remove(name).expect("there");
        self.written.insert(other.clone(), content);
        if self.random.bool() { self.flush(&other) } else { Ok(()) }
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.flushed.remove(name);
        match self.written.remove(name) {
            Some(_) => fs::remove_file(self.root.join(name)),
            None => Ok(()),
        }
    }

    /// The file, and its name in the directory.
    fn flush(&mut self, name: &str) -> io::Result<()> {
        let Some(content) = self.written.get(name) else { return Ok(()) };
        let path = self.root.join(name);
        File::open(&path)?.sync_all()?;
        File::open(path.parent().expect("a directory"))?.sync_all()?;
        if !self.is_killed.load(Ordering::SeqCst) {
            self.flushed.insert(name.to_owned(), content.clone());
        }
        Ok(())
    }

    /// Works until the server is killed; gives the steps.
    fn work(&mut self) -> u64 {
        let mut steps = 0;
        loop {
            let outcome = self.step();
            if self.is_killed.load(Ordering::SeqCst) {
                return steps;
            }
            outcome.expect("no error before the kill");
            steps += 1;
        }
    }
}

fn make_directories(root: &Path) {
    for directory in 0..DIRECTORIES {
        fs::create_dir(root.join(format!("d{directory}"))).expect("a directory");
    }
}

/// The files below `root`.
fn content(root: &Path) -> Content {
    let mut content = Content::new();
    for directory in 0..DIRECTORIES {
        for entry in fs::read_dir(root.join(format!("d{directory}"))).expect("a directory") {
            let path = entry.expect("an entry").path();
            let data = fs::read(&path).expect("readable");
            let name = path.strip_prefix(root).expect("below it").to_str().expect("UTF-8");
            content.insert(name.to_owned(), data);
        }
    }
    content
}

#[test]
fn what_was_flushed_outlives_a_killed_server() {
    let Some(tools) = Tools::find() else { return };
    let (mut random, mut directory) = (random(1), private());
    let disk = directory.path().join("disk");
    tools.make_file_system(&disk);
    let flags = format!("--clean-cache {} --memory 8M", disk.display());
    let (mut flushed, mut steps, mut kept) = (Content::new(), 0, 0);
    for kill in 0..=KILLS {
        let server = Server::start_in(directory, &flags);
        // The journal is replayed through the cache.
        let mounted = Mounted::new(&tools, &server);
        if kill == 0 {
            make_directories(&mounted.files());
        }
        let found = content(&mounted.files());
        for (name, data) in &flushed {
            assert!(found.get(name) == Some(data), "{name} is lost by kill {kill}");
        }
        drop(mounted);
        tools.check(&disk);
        if kill == KILLS {
            break;
        }
        let mounted = Mounted::new(&tools, &server);
        assert!(content(&mounted.files()) == found, "read again it is something else");
        let (is_killed, millis) = (AtomicBool::new(false), random.u64(..KILL_MS_MAX));
        let mut work = Work {
            root: mounted.files(),
            random: random.fork(),
            is_killed: &is_killed,
            written: found.clone(),
            flushed: found,
        };
        directory = std::thread::scope(|scope| {
            scope.spawn(|| steps += work.work());
            std::thread::sleep(Duration::from_millis(millis));
            is_killed.store(true, Ordering::SeqCst);
            server.kill()
        });
        flushed = work.flushed;
        kept += flushed.len();
    }
    println!("{steps} steps, {kept} files as they were when flushed");
    assert!(steps > 100 && kept > 50, "too little was done: {steps} steps, {kept} files");
}
