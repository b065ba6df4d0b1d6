//! The flags of `zpager device` become a configuration of which everything is known to make sense.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use zpager_device::control::Command;
use zpager_device::{
    AHEAD_BYTES_MIN, Behind, Configuration, Listen, MEMORY_BYTES_MIN, Passed, SIZE_BYTES_MAX,
    Setup, StoreParts,
};
use zpager_store::Cipher;

use super::disk;
use crate::args::{PlaceArguments, ServeArguments};
use crate::designs::choice::percent;
use crate::failure::Failure;
use crate::run::Environment;
use crate::run::config::{check_design, check_no_store, check_pool, choose_store, parse_size};
use crate::run::report::Notices;
use crate::run::session::make_key;
use crate::run::stores::choice::{StoreChoice, check_limit, name_source};
use crate::run::stores::{self, OpenStore};
use crate::size;

/// What the device's memory may be set to at least, whatever the machine has.
const MEMORY_BYTES_MAX_LEAST: u64 = 1 << 30;
const BLOCK_BYTES: u64 = 4096;
/// How full memory gets before blocks leave.
const PERCENT: RangeInclusive<u64> = 1..=100;
/// The number of the row of stores under its key, which is for that row alone.
const STORE: u16 = 0;
/// Longest name that the protocol has room for.
const EXPORT_BYTES_MAX: usize = 4096;

/// Checks the flags, and opens the store after them.
///
/// # Errors
/// The first thing found that cannot work.
pub(super) fn check(
    arguments: ServeArguments,
    environment: &Environment,
    notices: &mut Notices,
) -> Result<Configuration, Failure> {
    let size_bytes = arguments.size.as_deref().map(check_size).transpose()?;
    let memory_bytes = check_memory("--memory", &arguments.memory, MEMORY_BYTES_MIN)?;
    let settings = check_design(&arguments.design)?;
    if arguments.clean_cache.is_some() {
        check_no_store(&[threshold_flag(&arguments)])?;
    }
    let check_ahead = |text: &str| check_memory_ahead(text, memory_bytes);
    let ahead_bytes = arguments.memory_ahead.as_deref().map(check_ahead).transpose()?;
    check_pool(&settings, memory_bytes)?;
    let check_store_size = |text: &str| check_limit("--store-size", text);
    let limit_bytes = arguments.store_size.as_deref().map(check_store_size).transpose()?;
    if !(1..=EXPORT_BYTES_MAX).contains(&arguments.export.len()) {
        return Err(Failure::own(format!(
            "--export {}: not a name: give one of 1 to {EXPORT_BYTES_MAX} bytes, or none",
            arguments.export
        )));
    }
    let (listen, socket) = match &arguments.ublk {
        Some(number) => (check_ublk(number)?, super::socket(&arguments.place)?),
        None => check_place(arguments.listen.as_deref(), &arguments.place)?,
    };
    let (behind, size_bytes) = match (&arguments.clean_cache, size_bytes) {
        (Some(name), _) => {
            let (disk, size_bytes) = disk::open(name)?;
            (Behind::Disk(disk), size_bytes)
        }
        (None, Some(size_bytes)) => {
            let behind = choose_stores(&arguments, limit_bytes, environment, notices)?;
            (behind, size_bytes)
        }
        (None, None) => return Err(Failure::own("--size: how large? give a size such as 16G")),
    };
    Ok(Configuration {
        setup: Setup {
            size_bytes,
            memory_bytes,
            memory_bytes_max: memory_bytes.max(machine_bytes()).max(MEMORY_BYTES_MAX_LEAST),
            ahead_bytes,
            settings,
        },
        behind,
        listen,
        socket,
        export: arguments.export,
    })
}

/// The flag that says when blocks leave for a store, and whether it was given.
fn threshold_flag(arguments: &ServeArguments) -> (&'static str, bool) {
    ("--store-threshold", arguments.design.store_threshold.is_some())
}

/// Opens the stores that flags or environment name.
fn choose_stores(
    arguments: &ServeArguments,
    limit_bytes: Option<u64>,
    environment: &Environment,
    notices: &mut Notices,
) -> Result<Behind, Failure> {
    let has_flag = arguments.store.is_some();
    let choice = choose_store(arguments.store.clone(), environment)?;
    if matches!(choice, StoreChoice::None) {
        check_no_store(&[
            threshold_flag(arguments),
            ("--store-size", limit_bytes.is_some()),
            ("--store-encrypt", arguments.store_encrypt),
        ])?;
    }
    check_no_server(&choice)
        .and_then(|()| open_stores(&choice, limit_bytes, arguments.store_encrypt, notices))
        .map_err(|failure| name_source(failure, has_flag))
}

/// Refuses a server, whose helper belongs to a run.
fn check_no_server(choice: &StoreChoice) -> Result<(), Failure> {
    match choice {
        StoreChoice::Named(row) if row.iter().any(|wanted| wanted.address().is_some()) => {
            Err(Failure::own(
                "--store: the address of a server is for zpager run: give directories and block \
                 devices",
            ))
        }
        _ => Ok(()),
    }
}

fn open_stores(
    choice: &StoreChoice,
    limit_bytes: Option<u64>,
    encrypts: bool,
    notices: &mut Notices,
) -> Result<Behind, Failure> {
    let row = stores::open(choice, limit_bytes, notices)?.map_or_else(Vec::new, |open| open.row);
    let parts = |OpenStore { file, limit_bytes, start_bytes, .. }| StoreParts {
        file,
        limit_bytes,
        start_bytes,
    };
    let cipher = match encrypts {
        true => Some(Box::new(Cipher::new(&make_key()?.0, STORE))),
        false => None,
    };
    Ok(Behind::Stores { row: row.into_iter().map(parts).collect(), cipher })
}

fn check_size(text: &str) -> Result<u64, Failure> {
    let bytes = parse_size("--size", text)?;
    let wrong = if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        "not a multiple of 4096".to_owned()
    } else if bytes > SIZE_BYTES_MAX {
        format!("more than {}, which is the most", size::display(SIZE_BYTES_MAX))
    } else {
        return Ok(bytes);
    };
    Err(Failure::own(format!("--size {text}: {wrong}: give a size such as 16G")))
}

/// The bytes of an amount of memory, which the server needs at least so many of.
fn check_memory(flag: &str, text: &str, least_bytes: u64) -> Result<u64, Failure> {
    let bytes = parse_size(flag, text)?;
    if bytes >= least_bytes {
        return Ok(bytes);
    }
    Err(Failure::own(format!(
        "{flag} {text}: less than the server needs: give at least {}",
        size::display(least_bytes)
    )))
}

/// The bytes of what is taken ahead, which is a part of the memory.
fn check_memory_ahead(text: &str, memory_bytes: u64) -> Result<u64, Failure> {
    let bytes = check_memory("--memory-ahead", text, AHEAD_BYTES_MIN)?;
    match bytes <= memory_bytes {
        true => Ok(bytes),
        false => Err(Failure::own(format!(
            "--memory-ahead {text}: more than --memory, of which it is a part: give at most {}",
            size::exact(memory_bytes)
        ))),
    }
}

/// Where clients connect, and where the Unix socket is: a socket that was handed over, or one that
/// the server makes.
fn check_place(listen: Option<&str>, place: &PlaceArguments) -> Result<(Listen, PathBuf), Failure> {
    let refused =
        |flag: &str| Failure::own(format!("{flag}: a socket was handed over: leave it out"));
    match (Passed::find().map_err(Failure::own)?, listen) {
        (None, None) => Ok((Listen::Socket, super::socket(place)?)),
        (None, Some(text)) => Ok((check_listen(text)?, super::socket(place)?)),
        (Some(_), Some(_)) => Err(refused("--listen")),
        (Some(Passed::Unix(_, path)), None)
            if place.socket.as_ref().is_some_and(|at| *at != path) =>
        {
            Err(refused("--socket"))
        }
        (Some(Passed::Unix(listener, path)), None) => {
            Ok((Listen::Passed(Passed::Unix(listener, path.clone())), path))
        }
        (Some(passed @ Passed::Tcp(..)), None) => {
            Ok((Listen::Passed(passed), super::socket(place)?))
        }
    }
}

fn check_ublk(text: &str) -> Result<Listen, Failure> {
    let number = match text {
        "" => None,
        text => Some(text.parse::<u16>().map_err(|_| {
            Failure::own(format!("--ublk {text}: not the number of a device: give 0, say, or none"))
        })?),
    };
    Ok(Listen::Ublk(number.map(u32::from)))
}

fn check_listen(text: &str) -> Result<Listen, Failure> {
    let wrong = |why| Failure::own(format!("--listen {text}: {why}, such as 127.0.0.1:10809"));
    let address: SocketAddr =
        text.parse().map_err(|_| wrong("not an address: give a loopback address and a port"))?;
    match address.ip().is_loopback() {
        true => Ok(Listen::Address(address)),
        false => Err(wrong("others could reach it: give a loopback address and a port")),
    }
}

/// What of a device is to become what: its memory, or when blocks leave for its store.
///
/// # Errors
/// It is nothing that can be changed, or not to that.
pub(super) fn check_change(text: &str) -> Result<Command, Failure> {
    let (mut memory_bytes, mut threshold_percent) = (None, None);
    match text.split_once('=') {
        Some(("memory", value)) => {
            memory_bytes = Some(check_memory("memory", value, MEMORY_BYTES_MIN)?)
        }
        Some(("threshold", value)) => {
            let number = percent(value).filter(|number| PERCENT.contains(number));
            threshold_percent = Some(number.ok_or_else(|| {
                Failure::own(format!("threshold {value}: not a threshold: give 1% to 100%"))
            })?);
        }
        _ => {
            return Err(Failure::own(format!(
                "set {text}: not a change: give memory=SIZE or threshold=PERCENT"
            )));
        }
    }
    Ok(Command::Set { memory_bytes, threshold_percent })
}

/// The RAM of this machine.
fn machine_bytes() -> u64 {
    let found = rustix::system::sysinfo();
    (found.totalram as u64).saturating_mul(u64::from(found.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Action, DeviceCommand, parse_line};
    use crate::failure::expect_refused;

    fn checked(line: &str) -> Result<Configuration, Failure> {
        match parse_line(line)? {
            Action::Device(DeviceCommand::Serve(arguments)) => {
                check(*arguments, &Environment::default(), &mut Notices::new(true))
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn bad_input_is_told_in_one_line() {
        let table = [
            ("", "serve"),
            ("sarve", "zpager device --help"),
            ("serve", "--size"),
            ("serve --size 1G", "--memory"),
            ("serve --size much --memory 64M", "1.5G"),
            ("serve --size 0 --memory 64M", "4096"),
            ("serve --size 4097 --memory 64M", "multiple of 4096"),
            ("serve --size 2T --memory 64M", "1.0 TiB"),
            ("serve --size 1G --memory 8191K", "8.0 MiB"),
            ("serve --size 1G --memory -1", "not a size"),
            ("serve --size 1G --memory 64M --memory-ahead 4K", "1.0 MiB"),
            ("serve --clean-cache /d --memory 64M --memory-ahead 4M", "--memory-ahead"),
            ("serve --size 1G --memory 64M --memory-ahead 65M", "at most 64M"),
            ("serve --size 1G --memory 64M --export=", "not a name"),
            ("serve --size 1G --memory 64M --store none --store-size 1G", "there is no store"),
            ("serve --size 1G --memory 64M --store none --store-encrypt", "there is no store"),
            ("serve --size 1G --memory 64M --design lru", "zswap"),
            ("serve --size 1G --memory 64M --codec lzma", "lz4"),
            ("serve --size 1G --memory 64M --set hp.share=1%", "--design hp"),
            ("serve --size 1G --memory 64M --store-size 1", "--store none"),
            ("serve --size 1G --memory 64M --store /nowhere/at/all --socket /s", "/nowhere/at/all"),
            ("serve --size 1G --memory 64M --listen 10809", "127.0.0.1:10809"),
            ("serve --size 1G --memory 64M --listen 0.0.0.0:10809", "loopback"),
            ("serve --size 1G --memory 64M --listen [::]:10809", "loopback"),
            ("serve --size 1G --memory 64M --ublk b --store none --socket /s", "--ublk b"),
            ("serve --size 1G --memory 64M --ublk --listen 127.0.0.1:0", "--listen"),
            ("serve --size 1G --memory 64M --store none", "--socket PATH"),
            ("serve --clean-cache /nowhere/at/all --memory 64M --socket /s", "/nowhere/at/all"),
            ("serve --clean-cache /tmp --memory 64M --socket /s", "neither"),
            ("serve --clean-cache /dev/null --memory 64M --socket /s", "neither"),
            ("serve --clean-cache /d --size 1G --memory 64M", "--size"),
            ("serve --clean-cache /d --store none --memory 64M", "--store"),
            ("serve --clean-cache /d --store-encrypt --memory 64M", "--store-encrypt"),
        ];
        for (line, said) in table {
            let found = checked(&format!("zpager device {line}"));
            // Root has a directory for the socket.
            if said == "--socket PATH" && found.is_ok() {
                continue;
            }
            expect_refused(line, found, 125, said);
        }
    }

    #[test]
    fn a_sound_line_is_taken() {
        let found = checked(
            "zpager device serve --size 16G --memory 1.5G --store /tmp --socket /d/s --listen \
             [::1]:0 --export swap --design hp --set hp.share=90% --store-encrypt",
        );
        let found = found.expect("sound");
        assert_eq!((found.setup.size_bytes, found.setup.memory_bytes), (16 << 30, 3 << 29));
        assert!(found.setup.memory_bytes_max >= 3 << 29);
        let Listen::Address(address) = found.listen else { panic!("no address") };
        assert_eq!(address, "[::1]:0".parse().expect("an address"));
        assert!(found.export == "swap");
        let Behind::Stores { row, cipher } = found.behind else { panic!("a disk") };
        assert!(row.len() == 1 && cipher.is_some());
    }

    #[test]
    fn changes_have_a_name_and_a_value() {
        let set =
            |memory_bytes, threshold_percent| Command::Set { memory_bytes, threshold_percent };
        assert_eq!(check_change("memory=64M").expect("sound"), set(Some(64 << 20), None));
        assert_eq!(check_change("threshold=40%").expect("sound"), set(None, Some(40)));
        let wrong = ["memory", "memory=", "memory=1M", "size=1G", "=1G"];
        for text in wrong.into_iter().chain(["threshold=", "threshold=0", "threshold=101"]) {
            let failure = check_change(text).expect_err(text);
            assert_eq!(failure.status, 125, "{failure:?}");
        }
    }
}
