//! The stores of a run: opened and checked before the program starts, in the order in which they
//! are filled, with the map of all their clusters, and behind it the processes' references.
//!
//! Each kind of store is a module that opens one: [`mod@file`], [`device`] and [`remote`], of which a
//! file may have a second copy. [`probe`] measures the first of them while nothing is in it.

pub(crate) mod choice;
pub(crate) mod device;
mod file;
pub(crate) mod probe;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use rustix::fs::{FileType, MemfdFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use zpager_store::{BLOCK_BYTES, Clusters, References, row_bytes};
use zpager_wire::{MAX_PROCESSES, STORES_MAX, ServerSettings, StoreSettings};

use self::choice::{ServerChoice, StoreChoice, Wanted};
use super::config::MIN_STORE_BYTES;
use super::references::ClusterMap;
use super::remote::{self, RemoteStore};
use super::report::Notices;
use crate::failure::{Failure, OrFail};
use crate::file_limit;
use crate::size;

/// What failed without a map.
const NO_MAP: &str = "cannot make the map of the store's clusters";

/// A block as direct I/O takes it.
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// The stores of a run.
#[derive(Debug)]
pub(crate) struct OpenStores {
    /// Each file and device, the one that is filled first before the others.
    pub(crate) row: Vec<OpenStore>,
    /// Each server, in the same order.
    pub(crate) servers: Vec<OpenServer>,
    /// What they know of their clusters ([`Clusters`]) and of who holds them ([`References`]), shared
    /// by the agents.
    pub(crate) clusters: OwnedFd,
    /// The former of both, as this process has it.
    pub(super) map: ClusterMap,
    /// How much they may hold, in whole clusters.
    pub(crate) limit_bytes: u64,
}

/// An open store.
#[derive(Debug)]
pub(crate) struct OpenStore {
    /// The file or device.
    pub(crate) file: OwnedFd,
    /// Where the file is.
    directory: Option<PathBuf>,
    /// How much it may hold.
    pub(crate) limit_bytes: u64,
    /// Where it begins.
    pub(crate) start_bytes: u64,
    /// Whether offsets, lengths and buffers have to be multiples of 4096.
    pub(crate) direct: bool,
}

/// A server among the stores.
#[derive(Debug)]
pub(crate) struct OpenServer {
    /// Its memory.
    pub(crate) remote: RemoteStore,
    /// The file of the second copy, where one is wanted.
    pub(crate) mirror: Option<OpenStore>,
    /// How many stores of all kinds are filled before it.
    pub(crate) place: usize,
}

/// What a store is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file without a name, in a directory.
    File,
    /// A block device.
    Device,
}

impl Kind {
    /// What the user's name is the name of.
    ///
    /// # Errors
    /// Nothing that can hold pages.
    fn of(name: &Path) -> Result<Self, Failure> {
        let found = rustix::fs::stat(name).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => {
                refusal(name, "there is no such directory or device: give one, or --store none")
            }
            error => refusal(name, &format!("{error}: give a directory that can be written")),
        })?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Ok(Kind::File),
            FileType::BlockDevice => Ok(Kind::Device),
            _ => Err(refusal(
                name,
                "neither a directory nor a block device: give one of these, or --store none",
            )),
        }
    }
}

/// A line about a store that cannot be used: what is wrong, and what would be right.
fn refusal(name: &Path, why: &str) -> Failure {
    Failure::own(format!("--store {}: {why}", name.display()))
}

/// Finds out without opening it whether what `--store` says is there.
///
/// # Errors
/// One that it names is not, or it makes no sense.
pub(crate) fn check(text: &Path) -> Result<(), Failure> {
    let StoreChoice::Named(row) = choice::parse(text)? else { return Ok(()) };
    let others = row.iter().filter(|wanted| wanted.address().is_none());
    others.map(|wanted| Kind::of(&wanted.name)).try_for_each(|kind| kind.map(drop))
}

/// Opens the stores that `choice` asks for; `None` when there is none to be had or wanted.
///
/// # Errors
/// One that the user named cannot be used.
pub(crate) fn open(
    choice: &StoreChoice,
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Result<Option<OpenStores>, Failure> {
    let row = match choice {
        StoreChoice::None => Vec::new(),
        StoreChoice::Named(wanted) => return open_row(wanted, limit_bytes, notices).map(Some),
        StoreChoice::FirstOf(directories) => {
            file::open_first(directories, limit_bytes, notices).into_iter().collect()
        }
    };
    if row.is_empty() {
        return Ok(None);
    }
    OpenStores::of(row, Vec::new()).map(Some)
}

/// Opens what the user named.
fn open_row(
    all: &[Wanted],
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Result<OpenStores, Failure> {
    let (mut row, mut servers) = (Vec::new(), Vec::new());
    for (place, wanted) in all.iter().enumerate() {
        let limit_bytes = wanted.limit_bytes.or(limit_bytes);
        match &wanted.server {
            Some(choice) => servers.push(open_server(choice, place, limit_bytes, notices)?),
            None => row.push(open_one(wanted, limit_bytes, notices)?),
        }
    }
    OpenStores::of(row, servers)
}

/// Makes what leads to a server, and the file of the second copy.
fn open_server(
    choice: &ServerChoice,
    place: usize,
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Result<OpenServer, Failure> {
    let offer = remote::ask(choice, limit_bytes, file::MAX_DEFAULT_BYTES, notices)?;
    let remote = RemoteStore::new(offer)?;
    let open_mirror = |directory| file::open_mirror(directory, remote.limit_bytes(), notices);
    let mirror = choice.mirror.as_deref().map(open_mirror).transpose()?;
    Ok(OpenServer { remote, mirror, place })
}

fn open_one(
    wanted: &Wanted,
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Result<OpenStore, Failure> {
    let store = match Kind::of(&wanted.name)? {
        Kind::File => file::open(&wanted.name, limit_bytes, notices)?,
        Kind::Device => device::open(&wanted.name, limit_bytes)?,
    };
    if store.limit_bytes >= MIN_STORE_BYTES {
        return Ok(store);
    }
    let (there, least) = (size::display(store.limit_bytes), size::display(MIN_STORE_BYTES));
    let why = format!("room for {there} is too little: give one with {least}, or --store none");
    Err(refusal(&wanted.name, &why))
}

impl OpenStores {
    /// The server that is filled before all other stores, if one is.
    fn first_server(&self) -> Option<&OpenServer> {
        self.servers.first().filter(|server| server.place == 0)
    }

    fn of(row: Vec<OpenStore>, servers: Vec<OpenServer>) -> Result<Self, Failure> {
        let servers_bytes = servers.iter().map(|server| server.remote.limit_bytes());
        let limits_bytes = row.iter().map(|store| store.limit_bytes).chain(servers_bytes);
        let limit_bytes = row_bytes(limits_bytes);
        let clusters = rustix::fs::memfd_create("zpager-clusters", MemfdFlags::CLOEXEC);
        let clusters = clusters.or_fail(NO_MAP)?;
        let bytes = map_bytes(limit_bytes);
        file_limit::beyond(NO_MAP, || rustix::fs::ftruncate(&clusters, bytes))?;
        let map = ClusterMap::begin(&clusters, limit_bytes, !servers.is_empty()).or_fail(NO_MAP)?;
        Ok(OpenStores { row, servers, clusters, map, limit_bytes })
    }

    /// What the agents have to know of each server.
    pub(crate) fn server_settings(&self) -> [ServerSettings; STORES_MAX] {
        let mut settings = [ServerSettings::NONE; STORES_MAX];
        for (settings, server) in settings.iter_mut().zip(&self.servers) {
            *settings = ServerSettings {
                mirror: server.mirror.as_ref().map_or(StoreSettings::NONE, OpenStore::settings),
                fd: server.remote.as_raw_fd(),
                place: server.place as u32,
            };
        }
        settings
    }

    /// What the agents have to know of each file and device.
    pub(crate) fn settings(&self) -> [StoreSettings; STORES_MAX] {
        let mut settings = [StoreSettings::NONE; STORES_MAX];
        for (settings, store) in settings.iter_mut().zip(&self.row) {
            *settings = store.settings();
        }
        settings
    }
}

impl OpenStore {
    /// What the agents have to know of it.
    fn settings(&self) -> StoreSettings {
        StoreSettings {
            limit_bytes: self.limit_bytes,
            start_bytes: self.start_bytes,
            fd: self.file.as_raw_fd(),
            direct: self.direct.into(),
        }
    }
}

/// Length of the map. Where files may not be as long as all tables of references, there are none.
fn map_bytes(limit_bytes: u64) -> u64 {
    let (all_bytes, _) = References::place(limit_bytes, MAX_PROCESSES);
    match rustix::process::getrlimit(Resource::Fsize).current {
        Some(most_bytes) if most_bytes < all_bytes => {
            (Clusters::words_for(limit_bytes) * size_of::<AtomicU64>()) as u64
        }
        _ => all_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_store::CLUSTER_BYTES;

    #[test]
    fn the_cluster_map_covers_all_stores() {
        let cluster_bytes = CLUSTER_BYTES as u64;
        let wanted = [("/var/tmp", 10 * cluster_bytes), ("/tmp", 7 * cluster_bytes + 4096)];
        let wanted = wanted.map(|(name, limit_bytes)| Wanted {
            limit_bytes: Some(limit_bytes),
            ..Wanted::plain(name)
        });
        let choice = StoreChoice::Named(wanted.to_vec());
        let stores = open(&choice, None, &mut Notices::new(true)).expect("stores").expect("stores");
        assert_eq!(stores.limit_bytes, 17 * cluster_bytes);
        let map_bytes = rustix::fs::fstat(&stores.clusters).expect("stat").st_size;
        let (offset, bytes) = References::place(stores.limit_bytes, MAX_PROCESSES - 1);
        assert_eq!(map_bytes as u64, offset + bytes as u64);
        let settings = stores.settings();
        assert_eq!(settings[1].limit_bytes, 7 * cluster_bytes + 4096);
        assert!(settings[0].fd >= 0 && settings[1].fd >= 0 && settings[2].fd == -1);
        for store in &stores.row {
            let file = rustix::fs::fstat(&store.file).expect("stat");
            assert_eq!((file.st_size, file.st_blocks), (store.limit_bytes as i64, 0));
        }
    }

    #[test]
    fn what_can_hold_no_pages_is_refused_in_one_line() {
        for (name, said) in [
            ("/nowhere/at/all", "no such directory"),
            ("/etc/passwd/below", "no such directory"),
            ("/etc/passwd", "neither"),
            ("/dev/null", "neither"),
            ("/proc", "/var/tmp"),
            ("/sys", "/var/tmp"),
        ] {
            let choice = StoreChoice::Named(vec![Wanted::plain(name)]);
            let failure = open(&choice, None, &mut Notices::new(true)).expect_err(name);
            assert!(failure.message.contains(said), "{name}: {failure:?}");
            assert_eq!((failure.status, failure.message.lines().count()), (125, 1));
        }
    }
}
