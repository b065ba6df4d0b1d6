//! The server: sockets, a thread for each client, and the way to its end.
//!
//! Before it serves it asks of the kernel what a server of a swap device needs: that none of its
//! memory is swapped out (to itself), the memory of its pool, that what it still allocates does not
//! wait for swap (`PR_SET_IO_FLUSHER`) and may take of the reserve that the kernel keeps from all
//! others (real-time scheduling), and that it is not what the kernel kills when memory is short. What
//! is not permitted is told once.

use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use zpager_cache::Store;
use zpager_pool::{Space, SpaceSource};
use zpager_store::{Cipher, Clusters, Seal, Stores, row_bytes};
use zpager_sys::process::value_bytes;

use crate::activation::{Passed, tell_ready};
use crate::clean::CleanCache;
use crate::connections::Connections;
use crate::control::{Command, Reply, answer_client};
use crate::device::{Device, Setup};
use crate::disk::DiskFile;
use crate::holes::Holes;
use crate::nbd::{Export, serve_client};
use crate::rehearsal::{Rehearsal, rehearse};
use crate::sockets::{Directory, Listener, control_path};
use crate::space::Arena;
use crate::starting;
use crate::swap_file::{StoreParts, SwapFile};
use crate::target::Target;
use crate::ublk::{Control, Ublk, is_in_use};

/// How often handshakes are looked after.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Pause when no more descriptors are to be had.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long connections may take to end with the server.
const END_MAX: Duration = Duration::from_secs(5);
/// The lowest real-time priority, which comes before all that is not real-time.
const LEAST_PRIORITY: i32 = 1;
/// Stack of a connection's thread.
const STACK_BYTES: usize = 256 << 10;

/// Where clients connect.
#[derive(Debug)]
pub enum Listen {
    /// At the Unix socket.
    Socket,
    /// At this address, which is a loopback one.
    Address(SocketAddr),
    /// At a socket that somebody else made.
    Passed(Passed),
    /// Nowhere: it is a block device of the kernel's ublk driver, of this number or any.
    Ublk(Option<u32>),
}

/// What lies behind a device.
#[derive(Debug)]
pub enum Behind {
    /// Stores for what does not fit memory, if there are any.
    Stores {
        /// The one that is filled first before the others.
        row: Vec<StoreParts>,
        /// What encrypts all that goes there; nothing does where there is none.
        cipher: Option<Box<Cipher>>,
    },
    /// A disk, of which the device is a cache.
    Disk(DiskFile),
}

/// What is to be served where.
#[derive(Debug)]
pub struct Configuration {
    /// What the device is made of.
    pub setup: Setup,
    /// What lies behind it.
    pub behind: Behind,
    /// Where clients connect.
    pub listen: Listen,
    /// The Unix socket; the control socket is beside it in any case.
    pub socket: PathBuf,
    /// The name by which clients may ask for it.
    pub export: String,
}

/// Where the user is told what is not as it should be.
pub type Warnings<'a> = &'a mut dyn FnMut(&str);

type Swap = Device<Arena, Stores<'static, SwapFile>>;
type Served = Arc<dyn Target + Send + Sync>;

const NO_SPACE: &str = "no address space for the device's tables: allow more (ulimit -v)";

/// A client's connection.
enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Where clients come from.
enum Door {
    Unix(Listener),
    Tcp(TcpListener),
}

/// How the device is reached, before there is one.
enum Way {
    /// At the Unix socket, which is made once there is.
    Socket,
    Door(Door),
    Ublk(Box<Control>, Option<u32>),
}

/// The same once there is one.
enum Front {
    Door(Door),
    Ublk(Ublk),
}

/// What all threads have.
struct Server {
    device: Served,
    export: Export,
    connections: Connections,
    /// The kernel's device, if it is one.
    block_device: OnceLock<PathBuf>,
    /// Readable once the server is to end.
    end: OwnedFd,
}

/// Serves until it is told to stop. `ready` is given the device's address, as clients write it, once
/// they can connect.
///
/// # Errors
/// What kept it from serving, in one line; nothing was touched.
pub fn serve(
    configuration: Configuration,
    warn: Warnings<'_>,
    ready: impl FnOnce(&str),
) -> Result<(), String> {
    let signals = block_signals().map_err(|error| format!("signals: {error}"))?;
    let Configuration { setup, behind, listen, socket, export } = configuration;
    let control = control_path(&socket);
    let directory = Directory::lock(&socket)?;
    directory.check(&control)?;
    let way = match listen {
        Listen::Socket => {
            directory.check(&socket)?;
            Way::Socket
        }
        Listen::Address(address) => Way::Door(Door::Tcp(
            TcpListener::bind(address).map_err(|error| format!("--listen {address}: {error}"))?,
        )),
        Listen::Passed(Passed::Unix(listener, _)) => {
            Way::Door(Door::Unix(Listener::of_another(listener)))
        }
        Listen::Passed(Passed::Tcp(listener, _)) => Way::Door(Door::Tcp(listener)),
        Listen::Ublk(number) => Way::Ublk(Box::new(Control::open()?), number),
    };
    let rehearsal = Rehearsal::of(&setup, &behind);
    let has_cache = matches!(behind, Behind::Disk(_));
    let (device, holes) = make_served(&setup, behind)?;
    prepare(warn);
    let keeper = Arc::clone(&device);
    start_beside(move || {
        // Should the kernel have none for it all the same, it goes on trying, and those who can make
        // some have to have their turns.
        let _ = schedule(libc::SCHED_OTHER, 0);
        keeper.keep_ahead();
    })?;
    if let Some(holes) = holes {
        // It may take of the reserve, as those who serve: they wait for it while it has a file for itself.
        start_beside(move || holes.go_on_punching())?;
    }
    let control = directory.listen(&control)?;
    let export = Export { name: export, size_bytes: setup.size_bytes };
    let end = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| format!("eventfd: {error}"))?;
    let (connections, block_device) = (Connections::default(), OnceLock::new());
    let server = Arc::new(Server { device, export, connections, block_device, end });
    let front = match way {
        Way::Socket => Front::Door(Door::Unix(directory.listen(&socket)?)),
        Way::Door(door) => Front::Door(door),
        Way::Ublk(control, number) => Front::Ublk(start_ublk(&server, control, number, has_cache)?),
    };
    drop(directory);
    let (door, address) = match &front {
        Front::Door(door) => (Some(door), door.address(&socket)),
        Front::Ublk(ublk) => (None, ublk.path().display().to_string()),
    };
    starting::settle(|| rehearse_as(&rehearsal));
    lock_memory(&server.device, &setup, warn);
    ready(&address);
    // Whoever is answered can know the address.
    start_control(&server, &control.listener).map_err(|error| format!("a thread: {error}"))?;
    tell_ready();
    accept_clients(&server, door, &signals, warn);
    if let Front::Ublk(ublk) = front {
        ublk.end();
    }
    server.connections.end_all(END_MAX);
    Ok(())
}

/// Has the kernel make a block device; the server ends with it.
fn start_ublk(
    server: &Arc<Server>,
    control: Box<Control>,
    number: Option<u32>,
    has_cache: bool,
) -> Result<Ublk, String> {
    let its_server = Arc::clone(server);
    let ublk = Ublk::start(control, number, &server.device, has_cache, move || its_server.stop())?;
    // Nobody else sets it.
    let _ = server.block_device.set(ublk.path());
    Ok(ublk)
}

/// Has all code be wanted that will be. Where there is no room for that it is read later.
fn rehearse_as(rehearsal: &Rehearsal) {
    if let Some((setup, behind)) = rehearsal.parts()
        && let Ok((device, _)) = make_served(&setup, behind)
    {
        rehearse(&*device);
    }
}

/// What is served, and who gives back what is free in its stores, if there are any.
///
/// Not a part of who calls it: a device of a tenth of a megabyte passes over this function's stack, which
/// is given back before that is locked.
#[inline(never)]
pub(crate) fn make_served(
    setup: &Setup,
    behind: Behind,
) -> Result<(Served, Option<Holes>), String> {
    match behind {
        Behind::Stores { row, cipher } => {
            let (device, holes) = make_device(setup, row, cipher)?;
            Ok((Arc::new(device), holes))
        }
        Behind::Disk(disk) => {
            Ok((Arc::new(CleanCache::new(Arena, setup, disk).ok_or(NO_SPACE)?), None))
        }
    }
}

/// The device, and who gives back what is free in its stores, if there are any.
fn make_device(
    setup: &Setup,
    parts: Vec<StoreParts>,
    cipher: Option<Box<Cipher>>,
) -> Result<(Swap, Option<Holes>), String> {
    let (store, holes) = match parts.is_empty() {
        true => (None, None),
        false => make_store(parts, cipher).map(|(store, holes)| (Some(store), Some(holes)))?,
    };
    let device = Device::new(Arena, setup, store).ok_or(NO_SPACE)?;
    Ok((device, holes))
}

/// The stores of a device, at least one.
fn make_store(
    parts: Vec<StoreParts>,
    cipher: Option<Box<Cipher>>,
) -> Result<(Store<Stores<'static, SwapFile>>, Holes), String> {
    let row_bytes = row_bytes(parts.iter().map(|store| store.limit_bytes));
    let words = Clusters::words_for(row_bytes);
    let space = Arena.reserve(words * size_of::<AtomicU64>()).ok_or(NO_SPACE)?;
    // SAFETY: the stretch is long enough, aligned and zero, and is never given back.
    let words = unsafe { std::slice::from_raw_parts(space.base().cast::<AtomicU64>(), words) };
    mem::forget(space);
    // As long as the process lives, as the stretch.
    let seal = cipher.map_or(Seal::Checksum, |cipher| Seal::Cipher(Box::leak(cipher)));
    let clusters = Clusters::new(words).with_seal(seal);
    let holes = Holes::new(clusters, &parts);
    let holes = holes.map_err(|error| format!("a store's file once more: {error}"))?;
    let files = parts
        .into_iter()
        .map(|store| (store.limit_bytes, SwapFile::new(store.file, store.start_bytes)));
    Ok((Store { blocks: Stores::new(clusters, files), clusters }, holes))
}

/// Asks of the kernel what the threads of a server of a swap device need.
fn prepare(warn: Warnings<'_>) {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        warn(&format!(
            "PR_SET_IO_FLUSHER: {error}: where the machine swaps to this device, its own \
             allocations may wait for it: allow CAP_SYS_RESOURCE"
        ));
    }
    // The kernel writes to swap once nothing is free but its reserve (`vm.min_free_kbytes`). What the
    // server's tables and its sockets take then has to come out of that: otherwise the server would
    // wait for memory that only itself can free.
    if !schedule(libc::SCHED_RR, LEAST_PRIORITY) {
        warn(&format!(
            "SCHED_RR: {}: where the machine swaps to this device, both may stop for good when \
             memory is short: allow CAP_SYS_NICE",
            std::io::Error::last_os_error()
        ));
    }
}

/// Has none of this process's memory be swapped out, the device's be there, and the process not be what is killed
/// where there is too little.
fn lock_memory(device: &Served, setup: &Setup, warn: Warnings<'_>) {
    // Pages are locked as they are touched: address space that is set aside costs nothing.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    match mlockall(flags) {
        Ok(()) => keep_memory(&**device, setup.memory_bytes, warn),
        Err(error) => warn(&format!(
            "mlockall: {error}: the device's memory may be swapped out itself: allow \
             CAP_IPC_LOCK, or more (ulimit -l)"
        )),
    }
    // Only root may; where the kernel kills it all the same, its clients get errors.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

/// Has a thread do something besides, for as long as the server lives.
fn start_beside(work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let working = thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    working.map(drop).map_err(|error| format!("a thread: {error}"))
}

/// Has this thread, and those that it starts, be scheduled so; whether that is permitted.
fn schedule(policy: i32, priority: i32) -> bool {
    // SAFETY: all zeros are a valid parameter; the call changes this thread's scheduling alone.
    unsafe {
        let mut parameter: libc::sched_param = mem::zeroed();
        parameter.sched_priority = priority;
        libc::sched_setscheduler(0, policy, &raw const parameter) == 0
    }
}

/// Has the device take its memory while there is some. This comes before the kernel is told not to
/// kill this process: where memory is shorter than it says, this is what asked for it.
fn keep_memory(device: &dyn Target, memory_bytes: u64, warn: Warnings<'_>) {
    let said = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available_bytes = value_bytes(&said, "MemAvailable:");
    let is_there = available_bytes.is_none_or(|available_bytes| available_bytes >= memory_bytes);
    if !is_there || !device.keep_memory() {
        warn(
            "--memory: there is not so much: where the machine swaps to this device, both may stop \
             for good when memory is short: give less",
        );
    } else if let Some(most_bytes) = swappable_bytes(&said).filter(|most| memory_bytes > most / 2) {
        let most_mib = most_bytes >> 20;
        warn(&format!(
            "--memory: more than half of the {most_mib} MiB that programs have of this machine: what \
             they need at once may not fit in the rest: give less"
        ));
    }
}

/// What the machine has for programs: what they may take without swapping, and what they have and
/// could swap out.
fn swappable_bytes(meminfo: &str) -> Option<u64> {
    Some(value_bytes(meminfo, "MemAvailable:")? + value_bytes(meminfo, "AnonPages:")?)
}

/// Has the signals that end the server be read from a descriptor, in all threads to come. A file that
/// may not grow is an error of the write, and no signal.
fn block_signals() -> std::io::Result<OwnedFd> {
    // SAFETY: the sets are this function's own and initialised by `sigemptyset`; the calls change
    // the calling thread's mask alone, and make a descriptor that nobody else knows.
    unsafe {
        let mut ending: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut ending);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut ending, signal);
        }
        let mut blocked = ending;
        libc::sigaddset(&raw mut blocked, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
        let descriptor = libc::signalfd(-1, &raw const ending, libc::SFD_CLOEXEC);
        match descriptor {
            -1 => Err(std::io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

impl Door {
    /// As clients write it.
    fn address(&self, socket: &Path) -> String {
        match self {
            Door::Unix(_) => format!("nbd+unix:///?socket={}", socket.display()),
            Door::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("nbd://{address}"),
                Err(_) => "nbd".to_owned(),
            },
        }
    }

    fn descriptor(&self) -> rustix::fd::BorrowedFd<'_> {
        match self {
            Door::Unix(listener) => listener.listener.as_fd(),
            Door::Tcp(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> std::io::Result<Client> {
        match self {
            Door::Unix(listener) => Ok(Client::Unix(listener.listener.accept()?.0)),
            Door::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Client::Tcp(stream))
            }
        }
    }
}

impl Client {
    fn second_descriptor(&self) -> std::io::Result<OwnedFd> {
        match self {
            Client::Unix(stream) => stream.as_fd().try_clone_to_owned(),
            Client::Tcp(stream) => stream.as_fd().try_clone_to_owned(),
        }
    }
}

/// Lets clients in until the server is to end, and tells meanwhile when space runs short.
fn accept_clients(
    server: &Arc<Server>,
    door: Option<&Door>,
    signals: &OwnedFd,
    warn: Warnings<'_>,
) {
    let mut told = 0;
    for number in 0.. {
        // Without a door there are no clients, and the signals' descriptor is looked at twice.
        let door_or_signals = door.map_or(signals.as_fd(), Door::descriptor);
        let descriptors = [door_or_signals, signals.as_fd(), server.end.as_fd()];
        let mut ready = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // An interrupted poll finds nothing, and is made again.
        let _ = poll(&mut ready, Some(&TICK));
        let [is_client, is_signal, is_end] = ready.map(|fd| !fd.revents().is_empty());
        if is_signal || is_end {
            return;
        }
        server.connections.end_slow();
        let shortages = server.device.shortages();
        if mem::replace(&mut told, shortages) < shortages {
            warn(
                "space runs short: less than an eighth of memory and store is left, and writes are \
                 delayed: free something or give it more (zpager device set memory=SIZE)",
            );
        }
        let Some(door) = door.filter(|_| is_client) else { continue };
        match door.accept() {
            Ok(client) => start_client(server, client, number),
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Has a thread of its own serve a client, or closes its connection where there is no room for it.
fn start_client(server: &Arc<Server>, client: Client, number: u64) {
    let Ok(second) = client.second_descriptor() else { return };
    if !server.connections.enter(number, second) {
        return;
    }
    let its_server = Arc::clone(server);
    let serving = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        its_server.serve(&client, number);
        drop(client);
        its_server.connections.leave(number);
    });
    if serving.is_err() {
        server.connections.leave(number);
    }
}

impl Server {
    fn serve(&self, client: &Client, number: u64) {
        let Some(mut worker) = self.device.connect() else { return };
        worker.touch();
        let agreed = || self.connections.agreed(number);
        match client {
            Client::Unix(stream) => {
                serve_client(stream, &*self.device, &mut worker, &self.export, agreed)
            }
            Client::Tcp(stream) => {
                serve_client(stream, &*self.device, &mut worker, &self.export, agreed)
            }
        };
        self.device.disconnect(worker);
    }

    /// Has the thread that lets clients in end the server.
    fn stop(&self) {
        // It fails only where it has been done over and over.
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
    }

    /// What a command comes to, but for the end of the server.
    fn control(&self, command: Command) -> Reply {
        match command {
            Command::Status => Reply::Status(Box::new(self.device.status())),
            Command::Set { memory_bytes, threshold_percent } => {
                let memory = memory_bytes.map_or(Ok(()), |bytes| self.device.set_memory(bytes));
                let threshold = |()| {
                    threshold_percent.map_or(Ok(()), |percent| self.device.set_threshold(percent))
                };
                match memory.and_then(threshold) {
                    Ok(()) => Reply::Done,
                    Err(why) => Reply::Error(why),
                }
            }
            Command::Stop { force } => match self.connections.users() {
                users if users > 0 && !force => Reply::Error(format!(
                    "{users} clients use the device: have them leave (swapoff, nbd-client -d), or \
                     give --force"
                )),
                _ if !force && self.block_device.get().is_some_and(|device| is_in_use(device)) => {
                    Reply::Error(
                        "the device is in use: have it left (swapoff, umount), or give --force"
                            .to_owned(),
                    )
                }
                _ => Reply::Done,
            },
        }
    }
}

/// Has a thread answer at the control socket, one client after the other.
fn start_control(server: &Arc<Server>, listener: &UnixListener) -> std::io::Result<()> {
    let (server, listener) = (Arc::clone(server), listener.try_clone()?);
    let answering = move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if answer_client(&stream, |command| server.control(command)) {
                        server.stop();
                    }
                }
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(answering).map(|_| ())
}
