//! Flags and environment become a configuration of which everything is known to make sense.
//!
//! Checks that need no file come first, so that a slip of the pen is told at once.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zpager_codec::CodecId;
use zpager_policy::{Design, DesignId, Settings, StoreCodec};
use zpager_remote::Server;
use zpager_wire::{Lifting, Watching};

use super::program::Program;
use super::stores::choice::{self, ServerChoice, StoreChoice};
use crate::args::{DesignArguments, RunArguments};
use crate::designs::choice as design_choice;
use crate::failure::Failure;
use crate::result_file;
use crate::size;

/// The smallest budget: the agent's own tables, stacks and buffers, and enough pages to make progress.
pub(crate) const MIN_BUDGET_BYTES: u64 = 8 << 20;

/// The most of a budget that may belong to a pool of fixed size.
const POOL_PERCENT_MAX: u64 = 90;

/// The smallest store that is worth one.
pub(crate) const MIN_STORE_BYTES: u64 = 1 << 20;

/// The environment that `zpager run` looks at.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// `PATH`, to find the program.
    pub(crate) path: Option<OsString>,
    /// `ZPAGER_STORE`: the directory of the swap file when no flag names one.
    pub(crate) store: Option<OsString>,
    /// `XDG_CACHE_HOME`, or `.cache` in `HOME`: where a swap file goes when `/var/tmp` will not do.
    pub(crate) cache: Option<PathBuf>,
    /// `ZPAGER_FROM_START`: 1 manages programs from their first instruction, 0 does not even
    /// where the budget is small.
    pub(crate) from_start: Option<bool>,
    /// `ZPAGER_LIFT`: how to lift pages.
    pub(crate) lifting: Lifting,
    /// `ZPAGER_WATCH`: by what the kernel tells of absent pages, where the user decides it.
    pub(crate) watching: Option<Watching>,
    /// `ZPAGER_RING`: words of the ring of a run that is recorded.
    pub(crate) ring_words: Option<u64>,
}

impl Environment {
    /// What this process was started with.
    pub(crate) fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = || variable("HOME").map(|home| Path::new(&home).join(".cache"));
        Environment {
            path: std::env::var_os("PATH"),
            store: variable("ZPAGER_STORE"),
            cache: variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home),
            from_start: variable("ZPAGER_FROM_START").map(|value| value != "0"),
            lifting: match variable("ZPAGER_LIFT") {
                Some(value) if value == "copy" => Lifting::ByCopy,
                Some(value) if value == "stretches" => Lifting::ByStretches,
                _ => Lifting::AsFound,
            },
            watching: variable("ZPAGER_WATCH")
                .filter(|value| value == "guards")
                .map(|_| Watching::Guards),
            ring_words: variable("ZPAGER_RING").and_then(|value| value.to_str()?.parse().ok()),
        }
    }
}

/// How much memory the user grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// This many bytes.
    Bytes(u64),
    /// What the cgroup or the machine has.
    Auto,
}

/// Bounds of the time that a page is waited for.
const PATIENCE_SECONDS: RangeInclusive<f64> = 0.1..=3600.0;
const PATIENCE_DEFAULT: &str = "10";

/// A run of which everything was checked that can be checked without starting anything.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// The budget as asked for.
    pub(crate) memory: Memory,
    /// Where spilled pages go.
    pub(crate) store: StoreChoice,
    /// Whether a flag says so.
    pub(crate) store_has_flag: bool,
    /// How much a store may hold about which nothing else is said; `None` leaves it to the file
    /// system or device.
    pub(crate) store_limit_bytes: Option<u64>,
    /// What compresses pages once more that leave for it.
    pub(crate) store_codec: StoreCodec,
    /// Whether what goes there is encrypted.
    pub(crate) store_encrypt: bool,
    /// The design and its parameters.
    pub(crate) design: Settings,
    /// The file of statistics.
    pub(crate) stats: Option<PathBuf>,
    /// No summary and no warnings.
    pub(crate) quiet: bool,
    /// Whether to manage programs from their first instruction, where the user decides it.
    pub(crate) from_start: Option<bool>,
    /// How to lift pages.
    pub(crate) lifting: Lifting,
    /// By what the kernel tells of absent pages, where the user decides it.
    pub(crate) watching: Option<Watching>,
    /// The program.
    pub(crate) program: Program,
}

impl Configuration {
    /// Checks the flags.
    ///
    /// # Errors
    /// The first thing found that cannot work.
    pub(crate) fn check(
        arguments: RunArguments,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let memory = check_memory(&arguments.memory)?;
        let design = check_design(&arguments.design)?;
        let has_flag = arguments.store.is_some();
        let mut store = choose_store(arguments.store.clone(), environment)?;
        let has_server = check_row(&mut store, &arguments)
            .map_err(|failure| choice::name_source(failure, has_flag))?;
        if matches!(store, StoreChoice::None) {
            let codec = arguments.store_codec.as_deref().filter(|codec| *codec != "none");
            check_no_store(&[
                ("--store-threshold", arguments.design.store_threshold.is_some()),
                ("--store-size", arguments.store_size.is_some()),
                ("--store-encrypt", arguments.store_encrypt),
                ("--store-codec", codec.is_some()),
            ])?;
        }
        let check_store_size = |text: &str| choice::check_limit("--store-size", text);
        let store_limit_bytes =
            arguments.store_size.as_deref().map(check_store_size).transpose()?;
        let store_codec = check_store_codec(arguments.store_codec.as_deref(), design.design())?;
        arguments.stats.as_deref().map(check_stats).transpose()?;
        let program = Program::find(arguments.program, environment.path.as_deref())?;
        Ok(Configuration {
            memory,
            store,
            store_has_flag: has_flag,
            store_limit_bytes,
            store_codec,
            store_encrypt: arguments.store_encrypt || has_server && !arguments.store_plain,
            design,
            stats: arguments.stats,
            quiet: arguments.quiet,
            from_start: environment.from_start,
            lifting: environment.lifting,
            watching: environment.watching,
            program,
        })
    }
}

/// How much memory `--memory` grants.
///
/// # Errors
/// It is no size, or too little.
pub(crate) fn check_memory(text: &str) -> Result<Memory, Failure> {
    if text == "auto" {
        return Ok(Memory::Auto);
    }
    let bytes = parse_size("--memory", text)?;
    check_budget(bytes)?;
    Ok(Memory::Bytes(bytes))
}

/// Refuses a budget in which the agent cannot work.
///
/// # Errors
/// The budget is below [`MIN_BUDGET_BYTES`].
pub(crate) fn check_budget(bytes: u64) -> Result<(), Failure> {
    if bytes >= MIN_BUDGET_BYTES {
        return Ok(());
    }
    let (given, least) = size::display_apart(bytes, MIN_BUDGET_BYTES);
    Err(Failure::own(format!(
        "a budget of {given} is below what the agent needs: give --memory at least {least}"
    )))
}

/// The bytes of a size that `flag` was given.
///
/// # Errors
/// It is no size.
pub(crate) fn parse_size(flag: &str, text: &str) -> Result<u64, Failure> {
    size::parse(text)
        .ok_or_else(|| Failure::own(format!("{flag} {text}: not a size: {}", size::EXPECTED)))
}

/// The settings of the design that was chosen.
///
/// # Errors
/// There is no such design, parameter or value.
pub(crate) fn check_design(arguments: &DesignArguments) -> Result<Settings, Failure> {
    let id = design_choice::design("--design", &arguments.name).map_err(Failure::own)?;
    let settings = design_choice::settings(id, &arguments.set, arguments.codec.as_deref());
    let mut settings = settings.map_err(Failure::own)?;
    if let Some(text) = &arguments.store_threshold {
        design_choice::set_threshold(&mut settings, &arguments.set, text).map_err(Failure::own)?;
    }
    Ok(settings)
}

/// Refuses what says something about a store where there is none: of these flags each that is given.
///
/// # Errors
/// One is.
pub(crate) fn check_no_store(flags: &[(&str, bool)]) -> Result<(), Failure> {
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Failure::own(format!(
            "{flag}: there is no store: leave it out, or give --store DIR"
        ))),
        None => Ok(()),
    }
}

/// What compresses pages once more that leave for the store. A published design has nothing of the
/// kind, unless that is asked for.
fn check_store_codec(text: Option<&str>, design: DesignId) -> Result<StoreCodec, Failure> {
    match text {
        None if design == DesignId::Default => Ok(StoreCodec::Auto),
        None | Some("none") => Ok(StoreCodec::None),
        Some("auto") => Ok(StoreCodec::Auto),
        Some(name) => {
            let codec = CodecId::from_name(name).filter(|codec| *codec != CodecId::Copy);
            codec.map(StoreCodec::Always).ok_or_else(|| {
                let known = CodecId::ALL[1..].iter().map(|codec| codec.name());
                let known = known.collect::<Vec<_>>().join(", ");
                Failure::own(format!(
                    "--store-codec {name}: not a codec: there are {known}, auto and none"
                ))
            })
        }
    }
}

/// Refuses a pool of fixed size that leaves the program too little of the budget.
///
/// # Errors
/// It belongs to the pool by nine tenths and more.
pub(crate) fn check_pool(settings: &Settings, budget_bytes: u64) -> Result<(), Failure> {
    let design = Design::new(settings, budget_bytes as usize);
    let pool_bytes = design.size.unused_bytes(0) as u64;
    if pool_bytes.saturating_mul(100) <= budget_bytes.saturating_mul(POOL_PERCENT_MAX) {
        return Ok(());
    }
    Err(Failure::own(format!(
        "--design {}: a pool of {} leaves too little of a budget of {}: give it {POOL_PERCENT_MAX}% \
         at most",
        design.id.name(),
        size::display(pool_bytes),
        size::display(budget_bytes),
    )))
}

fn check_server(address: &str, arguments: &RunArguments) -> Result<ServerChoice, Failure> {
    Server::at(address).map_err(|reason| Failure::own(format!("--store: {reason}")))?;
    if arguments.store_plain && arguments.store_encrypt {
        return Err(Failure::own("--store-plain and --store-encrypt: give one of them"));
    }
    let text = arguments.store_timeout.as_deref().unwrap_or(PATIENCE_DEFAULT);
    let seconds = text.parse().ok().filter(|seconds| PATIENCE_SECONDS.contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        let (least, most) = (PATIENCE_SECONDS.start(), PATIENCE_SECONDS.end());
        Failure::own(format!("--store-timeout {text}: give seconds from {least} to {most}"))
    })?;
    Ok(ServerChoice {
        address: address.to_owned(),
        mirror: arguments.store_mirror.clone(),
        patience: Duration::from_secs_f64(seconds),
    })
}

/// Finds the servers among the stores, and takes them in; whether there are any.
///
/// # Errors
/// One is none, or something is said of it that makes no sense.
fn check_row(store: &mut StoreChoice, arguments: &RunArguments) -> Result<bool, Failure> {
    let row = if let StoreChoice::Named(row) = store { &mut row[..] } else { &mut [] };
    let mut has_server = false;
    for wanted in row {
        let Some(address) = wanted.address() else { continue };
        wanted.server = Some(check_server(address, arguments)?);
        has_server = true;
    }
    match has_server {
        true => Ok(true),
        false => check_no_server(arguments).map(|()| false),
    }
}

/// Refuses what says something about a server where there is none.
fn check_no_server(arguments: &RunArguments) -> Result<(), Failure> {
    let why = if arguments.store_mirror.is_some() {
        "--store-mirror is a second copy of what a server keeps"
    } else if arguments.store_timeout.is_some() {
        "--store-timeout is how long a page of a server is waited for"
    } else if arguments.store_plain {
        "--store-plain is about what a server keeps; elsewhere nothing is encrypted without \
         --store-encrypt"
    } else {
        return Ok(());
    };
    Err(Failure::own(format!("{why}: give --store redis://HOST, or leave it out")))
}

/// Where spilled pages go by the flag, or else by the environment.
///
/// # Errors
/// What they say makes no sense.
pub(crate) fn choose_store(
    flag: Option<PathBuf>,
    environment: &Environment,
) -> Result<StoreChoice, Failure> {
    let has_flag = flag.is_some();
    let named = flag.or_else(|| environment.store.as_ref().map(PathBuf::from));
    match named {
        Some(text) => {
            choice::parse(&text).map_err(|failure| choice::name_source(failure, has_flag))
        }
        None => {
            let fixed = ["/var/tmp", "/tmp"].map(PathBuf::from);
            let directories = fixed.into_iter().chain(environment.cache.clone()).collect();
            Ok(StoreChoice::FirstOf(directories))
        }
    }
}

/// Finds out before the run whether its statistics can be written after it.
fn check_stats(file: &Path) -> Result<(), Failure> {
    result_file::check("--stats", file).map_err(Failure::own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Action, parse_line};
    use crate::failure::expect_refused;
    use crate::run::stores::choice::Wanted;

    fn check(line: &str) -> Result<Configuration, Failure> {
        let Action::Run(arguments) = parse_line(line)? else { panic!("{line}") };
        let path = Some(OsString::from("/usr/bin:/bin"));
        Configuration::check(arguments, &Environment { path, ..Environment::default() })
    }

    #[test]
    fn bad_input_is_told_in_one_line() {
        let table = [
            ("zpager run --codec lzma true", 125, "lz4"),
            ("zpager run --store-codec lzma true", 125, "zstd-dict, auto and none"),
            ("zpager run --store-codec copy true", 125, "zstd-dict, auto and none"),
            ("zpager run --store-codec= true", 125, "zstd-dict, auto and none"),
            ("zpager run --store-threshold 0 true", 125, "1% to 100%"),
            ("zpager run --store-threshold -1% true", 125, "1% to 100%"),
            ("zpager run --store-threshold 50% --store none true", 125, "there is no store"),
            ("zpager run --store-threshold 50% --design hp true", 125, "--design default"),
            ("zpager run --store-threshold 5 --set default.threshold=5 true", 125, "give one"),
            ("zpager run --design lru true", 125, "zswap"),
            ("zpager run --design castro --set castro.cell=3 true", 125, "1, 2 or 4"),
            ("zpager run --set castro.cell=2 true", 125, "--design castro"),
            ("zpager run --set default.split=6% true", 125, "7% to 93%"),
            ("zpager run --set default.split true", 125, "NAME=VALUE"),
            ("zpager run --set default.codec=lz4 --codec lz4 true", 125, "give one"),
            ("zpager run --memory lots true", 125, "256M"),
            ("zpager run --memory -1 true", 125, "--memory"),
            ("zpager run --memory 0 true", 125, "8.0 MiB"),
            ("zpager run --memory 7.9M true", 125, "8.0 MiB"),
            ("zpager run --memory 8388607 true", 125, "a budget of 8388607 bytes"),
            ("zpager run --store-size 1Q true", 125, "1.5G"),
            ("zpager run --store-size 4K true", 125, "--store none"),
            ("zpager run --stats /nowhere/at/all.json true", 125, "/nowhere/at/all.json"),
            ("zpager run --stats / true", 125, "directory"),
            ("zpager run --store redis:// true", 125, "redis://HOST"),
            ("zpager run --store redis://:secret@h/x true", 125, "redis://HOST"),
            ("zpager run --store redis://h --store-timeout 0 true", 125, "0.1 to 3600"),
            ("zpager run --store redis://h --store-timeout soon true", 125, "0.1 to 3600"),
            ("zpager run --store /tmp --store-mirror /tmp true", 125, "redis://HOST"),
            ("zpager run --store /tmp --store-plain true", 125, "redis://HOST"),
            ("zpager run --store redis://h --store-plain --store-encrypt true", 125, "one of them"),
            ("zpager run --store none --store-mirror /m true", 125, "redis://HOST"),
            ("zpager run --store /tmp --store-timeout 3 true", 125, "redis://HOST"),
            (
                "zpager run --store none --store-size 1G true",
                125,
                "--store-size: there is no store",
            ),
            ("zpager run --store none --store-encrypt true", 125, "--store-encrypt: there is no"),
            ("zpager run --store none --store-codec auto true", 125, "--store-codec: there is no"),
            ("zpager run --store /tmp,/var/tmp --store-mirror /m true", 125, "redis://HOST"),
            ("zpager run --store /tmp,valkey://h/x:prio=2 true", 125, "redis://HOST"),
            ("zpager run --store redis://h,/tmp,redis://h:prio=1 true", 125, "twice"),
            ("zpager run --store redis://h,redis://:secret@h/x true", 125, "redis://HOST"),
            ("zpager run --store redis://h,/tmp --store-timeout 0 true", 125, "0.1 to 3600"),
            ("zpager run --memory 64M", 125, "program"),
            ("zpager run /nowhere/program", 127, "/nowhere/program"),
            ("zpager run no-such-program-anywhere", 127, "PATH"),
            ("zpager run /etc/passwd", 126, "/etc/passwd"),
            ("zpager run /usr/bin", 126, "directory"),
        ];
        for (line, status, said) in table {
            expect_refused(line, check(line), status, said);
        }
    }

    #[test]
    fn a_pool_may_not_take_all() {
        let words = "zpager run --memory 64M --design cervera --set cervera.cache=";
        let checked = |cache: &str| {
            let found = check(&format!("{words}{cache} true")).expect("sound by itself");
            check_pool(&found.design, 64 << 20)
        };
        assert!(checked("57M").is_ok());
        let failure = checked("58M").expect_err("too large");
        assert!(failure.message.contains("90%") && failure.message.contains("64"), "{failure:?}");
    }

    #[test]
    fn a_sound_line_is_taken() {
        let found =
            check("zpager run --memory 1.5G --store none --codec zstd -- true x").expect("sound");
        assert_eq!(found.memory, Memory::Bytes(3 << 29));
        assert_eq!(found.store, StoreChoice::None);
        assert_eq!(found.design.codec(), CodecId::Zstd);
        assert_eq!(found.program.arguments, ["x"]);
    }

    #[test]
    fn only_the_default_design_compresses_once_more_by_itself() {
        let chosen =
            |flags: &str| check(&format!("zpager run {flags} true")).expect("sound").store_codec;
        assert_eq!(chosen(""), StoreCodec::Auto);
        assert_eq!(chosen("--store-codec none"), StoreCodec::None);
        assert_eq!(chosen("--store-codec zstd-3"), StoreCodec::Always(CodecId::Zstd3));
        for id in DesignId::ALL.into_iter().filter(|id| *id != DesignId::Default) {
            let design = format!("--design {}", id.name());
            assert_eq!(chosen(&design), StoreCodec::None);
            assert_eq!(chosen(&format!("{design} --store-codec auto")), StoreCodec::Auto);
        }
    }

    #[test]
    fn the_flag_wins_over_the_environment() {
        let environment = Environment { store: Some("/b".into()), ..Environment::default() };
        let directory = |name: &str| Ok(StoreChoice::Named(vec![Wanted::plain(name)]));
        assert_eq!(choose_store(Some("/a".into()), &environment), directory("/a"));
        assert_eq!(choose_store(None, &environment), directory("/b"));
        assert_eq!(choose_store(Some("none".into()), &environment), Ok(StoreChoice::None));
        let first = StoreChoice::FirstOf(vec!["/var/tmp".into(), "/tmp".into()]);
        assert_eq!(choose_store(None, &Environment::default()), Ok(first));
    }

    #[test]
    fn what_goes_to_a_server_is_encrypted_unless_that_is_refused() {
        let chosen = |flags: &str, variable: &str| {
            let words = format!("zpager run {flags} true");
            let Ok(Action::Run(arguments)) = parse_line(&words) else { panic!("{flags}") };
            let path = Some(OsString::from("/usr/bin:/bin"));
            let store = Some(variable.into());
            let environment = Environment { store, path, ..Environment::default() };
            let found = Configuration::check(arguments, &environment).expect("sound");
            (found.store, found.store_encrypt)
        };
        let server = |priority, mirror: Option<&str>, patience_ms| {
            let choice = ServerChoice {
                address: "redis://h/2".into(),
                mirror: mirror.map(PathBuf::from),
                patience: Duration::from_millis(patience_ms),
            };
            Wanted { priority, server: Some(choice), ..Wanted::plain("redis://h/2") }
        };
        let alone = |mirror, patience_ms| StoreChoice::Named(vec![server(0, mirror, patience_ms)]);
        assert_eq!(chosen("", "redis://h/2"), (alone(None, 10_000), true));
        assert_eq!(
            chosen("--store redis://h/2 --store-encrypt", "/b"),
            (alone(None, 10_000), true)
        );
        let flags = "--store-mirror /m --store-timeout 0.5 --store-plain";
        assert_eq!(chosen(flags, "redis://h/2"), (alone(Some("/m"), 500), false));
        let directory = StoreChoice::Named(vec![Wanted::plain("/b")]);
        let both = |mirror| StoreChoice::Named(vec![server(1, mirror, 500), Wanted::plain("/b")]);
        let line = "/b,redis://h/2:prio=1";
        assert_eq!(chosen("--store-timeout 0.5", line), (both(None), true));
        assert_eq!(chosen(flags, line), (both(Some("/m")), false));
        assert_eq!(chosen("", "/b"), (directory.clone(), false));
        assert_eq!(chosen("--store-encrypt", "/b"), (directory, true));
    }
}
