//! What the user says about stores, taken apart: `NAME[:prio=N][:size=SIZE]`, several by commas.
//!
//! Source: swapon(8), whose areas have priorities.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zpager_remote::is_address;
use zpager_wire::STORES_MAX;

use crate::failure::Failure;
use crate::run::config::MIN_STORE_BYTES;
use crate::size;

/// Where spilled pages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreChoice {
    /// Nowhere.
    None,
    /// To these, the first of which is filled before the others.
    Named(Vec<Wanted>),
    /// To the first of these directories that is on a disk and can be written.
    FirstOf(Vec<PathBuf>),
}

/// A store that the user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// A directory for a swap file, or a block device; or the address of a server.
    pub(crate) name: PathBuf,
    /// Those with a higher one are filled first.
    pub(crate) priority: i32,
    /// How much it may hold; without one the limit for all.
    pub(crate) limit_bytes: Option<u64>,
    /// What is known of a server, where it is one that may be used.
    pub(crate) server: Option<ServerChoice>,
}

/// A server that spilled pages go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerChoice {
    /// Its address, one that can be read.
    pub(crate) address: String,
    /// The directory of a second copy.
    pub(crate) mirror: Option<PathBuf>,
    /// How long a page is waited for.
    pub(crate) patience: Duration,
}

impl Wanted {
    /// A store without words about it.
    pub(crate) fn plain(name: impl Into<PathBuf>) -> Self {
        Wanted { name: name.into(), priority: 0, limit_bytes: None, server: None }
    }

    /// The address, where it is a server's.
    pub(crate) fn address(&self) -> Option<&str> {
        self.name.to_str().filter(|name| is_address(name))
    }
}

/// Takes apart what `--store` says. A name that exists is one store, whatever is in it, and so is an
/// address without a comma.
///
/// # Errors
/// One line about the first that makes no sense.
pub(crate) fn parse(text: &Path) -> Result<StoreChoice, Failure> {
    if text.as_os_str() == "none" {
        return Ok(StoreChoice::None);
    }
    let alone = Wanted::plain(text);
    let is_one_address = alone.address().is_some_and(|address| !address.contains(','));
    if is_one_address || text.exists() {
        return Ok(StoreChoice::Named(vec![alone]));
    }
    let items = text.as_os_str().as_bytes().split(|byte| *byte == b',');
    let mut wanted = items.map(parse_one).collect::<Result<Vec<_>, _>>()?;
    if wanted.len() > STORES_MAX {
        return Err(Failure::own(format!(
            "--store: {} stores are too many: give at most {STORES_MAX}",
            wanted.len()
        )));
    }
    for (index, store) in wanted.iter().enumerate() {
        if store.name.as_os_str() == "none" {
            return Err(Failure::own("--store none: give it alone, or leave it out".to_owned()));
        }
        if wanted[..index].iter().any(|other| other.name == store.name) {
            let shown = shown(store.name.as_os_str().as_bytes());
            return Err(Failure::own(format!("--store {shown}: named twice: give it once")));
        }
    }
    wanted.sort_by_key(|store| std::cmp::Reverse(store.priority));
    Ok(StoreChoice::Named(wanted))
}

/// Says of a failure of a store, where no flag names any, that it is the variable's.
pub(crate) fn name_source(failure: Failure, has_flag: bool) -> Failure {
    match failure.message.strip_prefix("--store") {
        Some(rest) if !has_flag && rest.starts_with([' ', ':']) => {
            Failure { message: format!("ZPAGER_STORE{rest}"), ..failure }
        }
        _ => failure,
    }
}

fn parse_one(item: &[u8]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted::plain("");
    let mut name = item;
    while let Some(colon) = name.iter().rposition(|byte| *byte == b':') {
        let (rest, word) = (&name[..colon], String::from_utf8_lossy(&name[colon + 1..]));
        match word.split_once('=') {
            Some(("prio", value)) => wanted.priority = parse_priority(item, value)?,
            Some(("size", value)) => wanted.limit_bytes = Some(parse_limit(item, value)?),
            // A colon of the name's own.
            _ => break,
        }
        name = rest;
    }
    if name.is_empty() {
        return Err(Failure::own(format!(
            "--store {}: a store without a name: give a directory or a block device",
            shown(item)
        )));
    }
    wanted.name = PathBuf::from(OsStr::from_bytes(name));
    Ok(wanted)
}

fn parse_priority(item: &[u8], text: &str) -> Result<i32, Failure> {
    let found = text.parse().ok().filter(|priority| (-32768..=32767).contains(priority));
    found.ok_or_else(|| {
        Failure::own(format!(
            "--store {}: {text} is not a priority: give a number from -32768 to 32767",
            shown(item)
        ))
    })
}

fn parse_limit(item: &[u8], text: &str) -> Result<u64, Failure> {
    check_limit(&format!("--store {}", shown(item)), text)
}

/// What the user said, but for an address, which may have a password in it.
fn shown(item: &[u8]) -> String {
    let text = String::from_utf8_lossy(item);
    if is_address(&text) { "SERVER".into() } else { text.into_owned() }
}

/// Checks the limit of a store.
///
/// # Errors
/// It is no size, or too small to be of use; `flag` is what the user gave.
pub(crate) fn check_limit(flag: &str, text: &str) -> Result<u64, Failure> {
    let bytes = size::parse(text)
        .ok_or_else(|| Failure::own(format!("{flag}: {text} is not a size: {}", size::EXPECTED)))?;
    if bytes >= MIN_STORE_BYTES {
        return Ok(bytes);
    }
    Err(Failure::own(format!(
        "{flag}: a store of {} is too small: give at least {}, or --store none",
        size::display(bytes),
        size::display(MIN_STORE_BYTES)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<Wanted> {
        match parse(Path::new(text)) {
            Ok(StoreChoice::Named(wanted)) => wanted,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn names_priorities_and_sizes_are_taken_apart() {
        let store = |name: &str, priority, limit_bytes| Wanted {
            priority,
            limit_bytes,
            ..Wanted::plain(name)
        };
        assert_eq!(named("/n"), [store("/n", 0, None)]);
        assert_eq!(
            named("/n/a:size=2M,/n/b:prio=5,/n/c:prio=-3:size=1G,/n/d:size=1M:prio=5"),
            [
                store("/n/b", 5, None),
                store("/n/d", 5, Some(1 << 20)),
                store("/n/a", 0, Some(2 << 20)),
                store("/n/c", -3, Some(1 << 30)),
            ]
        );
        assert_eq!(
            named("/n,redis://:p@h:7000/2:prio=1:size=1G"),
            [store("redis://:p@h:7000/2", 1, Some(1 << 30)), store("/n", 0, None)]
        );
        assert_eq!(named("redis://:p:size=9@h"), [store("redis://:p:size=9@h", 0, None)]);
        assert_eq!(named("/n:x:prio=1"), [store("/n:x", 1, None)]);
        assert_eq!(named("/n:prior=1"), [store("/n:prior=1", 0, None)]);
        assert_eq!(parse(Path::new("none")), Ok(StoreChoice::None));
    }

    #[test]
    fn a_name_that_exists_is_one_store() {
        let directory =
            std::env::temp_dir().join(format!("zpager-{},a:prio=1", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let found = parse(&directory);
        std::fs::remove_dir(&directory).expect("removed");
        assert_eq!(found, Ok(StoreChoice::Named(vec![Wanted::plain(directory)])));
    }

    #[test]
    fn the_variable_is_named_where_it_is_wrong() {
        let named = |message: &str, has_flag| name_source(Failure::own(message), has_flag).message;
        assert_eq!(named("--store /n: no", false), "ZPAGER_STORE /n: no");
        assert_eq!(named("--store: no", false), "ZPAGER_STORE: no");
        assert_eq!(named("--store /n: no", true), "--store /n: no");
        assert_eq!(named("--store-size: no", false), "--store-size: no");
    }

    #[test]
    fn what_makes_no_sense_is_told_in_one_line() {
        let nine = (0..9).map(|number| format!("/n/{number}")).collect::<Vec<_>>().join(",");
        for (text, said) in [
            ("", "directory"),
            ("/n,", "directory"),
            (":prio=1", "directory"),
            ("/n:prio=high", "32767"),
            ("/n:prio=40000", "32767"),
            ("/n:size=big", "256M"),
            ("/n:size=4K", "too small"),
            ("/n/a,none", "alone"),
            ("redis://:secret@h,/n,redis://:secret@h:prio=1", "SERVER: named twice"),
            ("/n/a,redis://:secret@h:prio=high", "32767"),
            ("redis://:secret@h:size=4K,/n", "too small"),
            ("/n/a,/n/b,/n/a:prio=3", "twice"),
            (nine.as_str(), "at most 8"),
        ] {
            let failure = parse(Path::new(text)).expect_err(text);
            assert!(failure.message.contains(said), "{text}: {failure:?}");
            assert!(!failure.message.contains("secret"), "{failure:?}");
            assert_eq!((failure.status, failure.message.lines().count()), (125, 1));
        }
    }
}
