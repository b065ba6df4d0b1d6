//! The sockets' places: where only the user can reach them, and nobody else serves.
//!
//! A socket is of mode 0600 in a directory that belongs to the user and is closed to others. One that
//! a dead server left is taken over; one at which somebody answers, and what is no socket, is left
//! alone. The directory is locked between the look and the new socket, so that of two servers one
//! comes first.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{geteuid, umask};

/// How long another server may hold the directory while it starts.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(40);

/// Where the device's socket is when nobody says so: in `/run/zpager`, or for ordinary users in
/// `zpager` of their `runtime` directory (`XDG_RUNTIME_DIR`), if they have one.
pub fn default_socket(runtime: Option<&Path>) -> Option<PathBuf> {
    let base = if geteuid().is_root() { Some(Path::new("/run")) } else { runtime };
    base.map(|base| base.join("zpager/device.sock"))
}

/// The control socket beside the device's.
pub fn control_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".control");
    path.into()
}

/// A directory of sockets, locked.
pub(crate) struct Directory {
    _lock: File,
}

impl Directory {
    /// The directory of `socket`, which is made where it is missing.
    ///
    /// # Errors
    /// Others can reach it, or what the system refused.
    pub(crate) fn lock(socket: &Path) -> Result<Directory, String> {
        let directory = match socket.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let shown = directory.display();
        let refused = |error: io::Error| format!("--socket {}: {shown}: {error}", socket.display());
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(error)),
            _ => {}
        }
        let lock = File::open(directory).map_err(refused)?;
        let found = lock.metadata().map_err(refused)?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(format!(
                "--socket {}: others can reach {shown}: give a path in a directory of your own of \
                 mode 0700",
                socket.display()
            ));
        }
        for _ in 0..LOCK_TRIES {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Directory { _lock: lock }),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
                Err(error) => return Err(refused(error.into())),
            }
        }
        Err(format!("--socket {}: another server is starting there", socket.display()))
    }

    /// Finds out whether a socket can be made at `path`.
    ///
    /// # Errors
    /// Why not; nothing was touched.
    pub(crate) fn check(&self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("--socket {shown}: {error}")),
            Ok(found) if !found.file_type().is_socket() => {
                Err(format!("--socket {shown}: it is there and no socket: give another path"))
            }
            Ok(_) => match has_listener(path) {
                Ok(false) => Ok(()),
                Ok(true) => Err(format!(
                    "--socket {shown}: a server is there: stop it or give another path"
                )),
                Err(error) => Err(format!("--socket {shown}: {error}")),
            },
        }
    }

    /// Makes a socket where [`Self::check`] found that this can be done.
    ///
    /// # Errors
    /// What the system refused.
    pub(crate) fn listen(&self, path: &Path) -> Result<Listener, String> {
        let refused = |error: io::Error| format!("--socket {}: {error}", path.display());
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(refused(error)),
            _ => {}
        }
        let before = umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        umask(before);
        let listener = listener.map_err(refused)?;
        let number = path.symlink_metadata().map_err(refused)?.ino();
        Ok(Listener { listener, file: Some((path.to_owned(), number)) })
    }
}

/// Whether somebody listens at a socket.
fn has_listener(path: &Path) -> Result<bool, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A socket that is gone with the value, if this server made it.
pub(crate) struct Listener {
    pub(crate) listener: UnixListener,
    /// Its place and its number there, if this server made it.
    file: Option<(PathBuf, u64)>,
}

impl Listener {
    /// One that somebody else made, which stays.
    pub(crate) fn of_another(listener: UnixListener) -> Listener {
        Listener { listener, file: None }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some((path, number)) = &self.file else { return };
        // Somebody may have put another in its place.
        if path.symlink_metadata().is_ok_and(|found| found.ino() == *number) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    fn directory(mode: u32) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        set_permissions(directory.path(), Permissions::from_mode(mode)).expect("its mode");
        directory
    }

    #[test]
    fn a_dead_servers_socket_is_taken_over_and_a_live_ones_is_not() {
        let directory = directory(0o700);
        let path = directory.path().join("socket");
        let locked = Directory::lock(&path).expect("its own");
        assert_eq!(locked.check(&path), Ok(()));
        let live = locked.listen(&path).expect("free");
        assert_eq!(path.symlink_metadata().expect("made").mode() & 0o777, 0o600);
        assert!(locked.check(&path).expect_err("live").contains("a server is there"));
        // Dropping the listener alone leaves what a killed server leaves.
        let dead = live.listener.try_clone().expect("a descriptor");
        std::mem::forget(live);
        drop(dead);
        std::fs::remove_file(&path).expect("there");
        drop(UnixListener::bind(&path).expect("free"));
        assert_eq!(locked.check(&path), Ok(()));
        drop(locked.listen(&path).expect("taken over"));
        assert!(!path.exists(), "left behind");
        std::fs::write(&path, "a file").expect("written");
        assert!(locked.check(&path).expect_err("a file").contains("no socket"));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "a file");
    }

    #[test]
    fn a_directory_that_others_can_reach_is_refused() {
        let directory = directory(0o755);
        let refused = Directory::lock(&directory.path().join("socket")).err().expect("refused");
        assert!(refused.contains("0700"), "{refused}");
        let inner = directory.path().join("inner/socket");
        drop(Directory::lock(&inner).expect("made"));
        let mode = inner.parent().expect("one").metadata().expect("made").mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
