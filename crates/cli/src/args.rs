//! The command line: what may be written, and nothing about whether it makes sense.
//!
//! Values stay text here; [`crate::run`], [`crate::codecs`], [`crate::designs`], [`crate::device`],
//! [`crate::sim`] and [`crate::trace`] check them, so that every message about them has one form.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use zpager_bench::BenchCommand;

use crate::failure::Failure;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Action {
    /// Print this text and end: help or version.
    Show(String),
    /// Run a program.
    Run(RunArguments),
    /// Compare with the kernel's own swapping.
    Bench(BenchCommand),
    /// Compare the codecs on the user's pages.
    Codecs(CodecsArguments),
    /// List the designs and what can be set of them.
    Designs(DesignsArguments),
    /// Serve a block device, or speak with whoever serves one.
    Device(DeviceCommand),
    /// Replay a trace through designs.
    Sim(SimArguments),
    /// Record a program's page references.
    Trace(TraceArguments),
    /// Keep a run's pages on another machine: started by the command itself.
    RemoteHelper,
}

/// Compressed swap for Linux in user space.
#[derive(Debug, Parser)]
#[command(name = "zpager", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunArguments),
    Bench(BenchCommand),
    Codecs(CodecsArguments),
    Designs(DesignsArguments),
    Device(DeviceArguments),
    Sim(SimArguments),
    Trace(TraceArguments),
    #[command(hide = true)]
    RemoteHelper,
}

/// Run an unmodified program inside a fixed amount of memory.
///
/// Pages that do not fit are compressed and kept in RAM, and what does not fit
/// there goes, still compressed, to an unlinked swap file. The exit status is the
/// program's; 125 when zpager itself fails, 126 when the program cannot be run,
/// 127 when it is not found.
#[derive(Debug, Args)]
#[command(override_usage = "zpager run [OPTIONS] -- PROGRAM [ARGS]...")]
pub(crate) struct RunArguments {
    /// Physical memory for the program and all that it starts, such as 256M or 1.5G; `auto` takes
    /// the cgroup's limit or what the machine has free, less a reserve, and gives way where
    /// others take more
    #[arg(long, value_name = "SIZE|auto", default_value = "auto", allow_hyphen_values = true)]
    pub(crate) memory: String,

    /// Directories for swap files and block devices, separated by commas, each followed by
    /// `:prio=N` and `:size=SIZE` if wanted; or the address of a Redis or Valkey server that keeps
    /// the pages instead, such as redis://HOST; or `none` to keep everything in RAM
    /// [default: $ZPAGER_STORE, or the first of /var/tmp, /tmp and $XDG_CACHE_HOME that will do]
    #[arg(long, value_name = "DIR,...|ADDRESS|none")]
    pub(crate) store: Option<PathBuf>,

    /// With a server: a directory for a second copy of the pages, for when it fails
    #[arg(long, value_name = "DIR")]
    pub(crate) store_mirror: Option<PathBuf>,

    /// With a server: how many seconds a page is waited for [default: 10]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub(crate) store_timeout: Option<String>,

    /// With a server: do not encrypt what goes there
    #[arg(long)]
    pub(crate) store_plain: bool,

    /// How much each may hold that has no size [default: nine tenths of the free space, at most
    /// 1T; all of a device]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) store_size: Option<String>,

    /// Encrypt what goes to swap files and devices, as to a server it always is, with a key that is
    /// made for this run and never written
    #[arg(long)]
    pub(crate) store_encrypt: bool,

    /// What compresses pages once more that leave RAM for the store; `auto` does it where that costs
    /// less time than it saves or the store is nearly full [default: auto; none with another
    /// --design]
    #[arg(long, value_name = "NAME|auto|none")]
    pub(crate) store_codec: Option<String>,

    #[command(flatten)]
    pub(crate) design: DesignArguments,

    /// Write the run's statistics to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,

    /// Print no summary and no warnings
    #[arg(long)]
    pub(crate) quiet: bool,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// How the engine keeps pages.
#[derive(Debug, Args)]
pub(crate) struct DesignArguments {
    /// How pages are kept; `zpager designs` lists what there is
    #[arg(long = "design", value_name = "NAME", default_value = "default")]
    pub(crate) name: String,

    /// Set a parameter of the design, such as hp.share=90%; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// What compresses the pages [default: the design's]
    #[arg(long, value_name = "NAME")]
    pub(crate) codec: Option<String>,

    /// When pages leave for the store before they have to, such as 50%: so much of the room for
    /// compressed pages may hold what the store has not [default: they leave when they have to]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub(crate) store_threshold: Option<String>,
}

/// Compare the codecs on your own data: ratio and times, page by page.
///
/// The pages are those of a file, of a running process, or of a program that is started for it
/// and sampled while it is at its largest. The exit status is 0 when the codecs were compared,
/// 2 when the arguments are wrong or the pages cannot be read, 125 when zpager itself fails, 126
/// when the program cannot be run, 127 when it is not found.
#[derive(Debug, Args)]
#[command(override_usage = "zpager codecs [OPTIONS] FILE\n       \
    zpager codecs [OPTIONS] --pid PID\n       \
    zpager codecs [OPTIONS] -- PROGRAM [ARGS]...")]
pub(crate) struct CodecsArguments {
    /// A file of raw pages; what is left behind its last whole page is left out
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Take the private anonymous memory of this process, which goes on running
    #[arg(long, value_name = "PID", allow_hyphen_values = true)]
    pub(crate) pid: Option<String>,

    /// The codecs to compare [default: all]
    #[arg(long, value_name = "NAME,...")]
    pub(crate) codec: Option<String>,

    /// How many pages to take at most, drawn at random
    #[arg(long, value_name = "N", default_value = "10000", allow_hyphen_values = true)]
    pub(crate) pages: String,

    /// Where the drawing starts: the same pages are drawn from the same file with the same seed
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub(crate) seed: String,

    /// Draw the histograms into this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,

    /// Write a row for each codec to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// List the designs, what they are made of, and what can be set of them.
///
/// A design is a named set of choices; all but `default` reproduce a published system. What is
/// listed with a default and a range is set by `--set NAME=VALUE`. The exit status is 2 when the
/// arguments are wrong, 125 when what is listed cannot be written.
#[derive(Debug, Args)]
pub(crate) struct DesignsArguments {
    /// Only this design, with what its parts are
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Write what is listed to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// A compressed block device for the whole machine to swap to.
///
/// Its server speaks the NBD protocol: nbd-client attaches it to the kernel, QEMU and others open it
/// as it is. The exit status is 0 when it was stopped or what was asked for was done, 125 when not.
#[derive(Debug, Args)]
pub(crate) struct DeviceArguments {
    #[command(subcommand)]
    pub(crate) command: DeviceCommand,
}

/// What is wanted of a device.
#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    Serve(Box<ServeArguments>),
    Status(StatusArguments),
    Set(SetArguments),
    Stop(StopArguments),
}

/// What `--store-threshold` is here, where nothing is resident.
const SERVE_THRESHOLD: &str = "How full the memory gets before blocks leave it for the store, such \
    as 50% [default: 100%]";

/// Serve a device until it is stopped.
///
/// Blocks are compressed and kept in RAM, and what does not fit there goes, still compressed, to an
/// unlinked swap file. Nothing outlives the server: it is a device to swap to, and is all zeros when
/// it is started again. A write for which there is no room fails with ENOSPC. With --clean-cache it
/// is a cache in front of a disk instead.
#[derive(Debug, Args)]
#[command(mut_arg("store_threshold", |argument| argument.help(SERVE_THRESHOLD)))]
pub(crate) struct ServeArguments {
    /// Size of the device, a multiple of 4096, such as 16G; more than memory and store hold is fine
    /// as far as the data shrink
    #[arg(
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        required_unless_present = "clean_cache"
    )]
    pub(crate) size: Option<String>,

    /// Serve this disk or image of one, which may hold a file system, with compressed copies of its
    /// blocks in memory; it has every block, and a flush is answered once they are there
    #[arg(
        long,
        value_name = "DISK",
        conflicts_with_all = ["size", "memory_ahead", "store", "store_size", "store_encrypt"]
    )]
    pub(crate) clean_cache: Option<PathBuf>,

    /// Physical memory for compressed blocks, tables and buffers together, at least 8M
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: String,

    /// Take so much of it before it is needed, and more as it fills [default: take all of it at once]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory_ahead: Option<String>,

    /// Directories for swap files and block devices, separated by commas, each followed by
    /// `:prio=N` and `:size=SIZE` if wanted; or `none` to keep everything in RAM
    /// [default: $ZPAGER_STORE, or the first of /var/tmp, /tmp and $XDG_CACHE_HOME that will do]
    #[arg(long, value_name = "DIR,...|none")]
    pub(crate) store: Option<PathBuf>,

    /// How much each may hold that has no size [default: nine tenths of the free space, at most
    /// 1T; all of a device]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) store_size: Option<String>,

    /// Encrypt what goes to swap files and devices, with a key that is made for this server and never
    /// written
    #[arg(long)]
    pub(crate) store_encrypt: bool,

    #[command(flatten)]
    pub(crate) design: DesignArguments,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// Let clients connect at this TCP address, a loopback one such as 127.0.0.1:10809, instead of
    /// the Unix socket; every user of the machine can
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,

    /// Be a block device of the kernel's ublk driver, /dev/ublkbID, instead of listening anywhere
    #[arg(
        long,
        value_name = "ID",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["listen", "export"]
    )]
    pub(crate) ublk: Option<String>,

    /// The name by which clients may ask for the device
    #[arg(long, value_name = "NAME", default_value = "zpager")]
    pub(crate) export: String,

    /// Print no warnings
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Where a device is served.
#[derive(Debug, Args)]
pub(crate) struct PlaceArguments {
    /// The Unix socket, in a directory that only its owner can reach
    /// [default: /run/zpager/device.sock, of ordinary users $XDG_RUNTIME_DIR/zpager/device.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Tell what a device holds and has done.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// As JSON
    #[arg(long, conflicts_with = "prometheus")]
    pub(crate) json: bool,

    /// In Prometheus' text format
    #[arg(long)]
    pub(crate) prometheus: bool,
}

/// Change a device that is served.
#[derive(Debug, Args)]
#[command(override_usage = "zpager device set [--socket PATH] memory=SIZE|threshold=PERCENT")]
pub(crate) struct SetArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// What to change: memory=SIZE, where what does not fit any more goes to the swap file first; or
    /// threshold=PERCENT, how full the memory gets before blocks leave for it
    #[arg(value_name = "NAME=VALUE", required = true)]
    pub(crate) change: String,
}

/// Stop the server of a device that nobody uses any more.
#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// Also while clients use it, which lose what they swapped out
    #[arg(long)]
    pub(crate) force: bool,
}

/// Replay a trace through designs, in modelled time.
///
/// Every reference of the trace goes through the code that `zpager run` uses, at each memory size
/// and for each design, with the costs of faults, codecs and disk that are printed with the
/// results. The exit status is 2 when the arguments are wrong or the trace cannot be read, 125
/// when zpager itself fails.
#[derive(Debug, Args)]
#[command(override_usage = "zpager sim [OPTIONS] --memory SIZE,... TRACE")]
pub(crate) struct SimArguments {
    /// What `zpager trace` recorded
    #[arg(value_name = "TRACE")]
    pub(crate) trace: Option<PathBuf>,

    /// The memory sizes to simulate, such as 64M,128M: resident pages, pool and zpager's own data
    #[arg(long, value_name = "SIZE,...", allow_hyphen_values = true)]
    pub(crate) memory: Option<String>,

    /// The designs, as `zpager designs` lists them; `none` compresses nothing, `belady` knows the
    /// future
    #[arg(long, value_name = "NAME,...", default_value = "default")]
    pub(crate) design: String,

    /// A parameter of one of them, as `zpager designs` lists them; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// What the store is on: hdd, ssd or nvme
    #[arg(long, value_name = "NAME", default_value = "ssd")]
    pub(crate) disk: String,

    /// Write a row for each design and size to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Draw time against memory into this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// Record the page references of an unmodified program, for `zpager sim`.
///
/// The program runs in a small window of resident pages; each page that comes into it is a
/// reference, and how it was when it left is recorded with it. The exit status is the program's;
/// 2 when the arguments are wrong, 125 when zpager itself fails or the trace cannot be written, 126
/// when the program cannot be run, 127 when it is not found.
#[derive(Debug, Args)]
#[command(override_usage = "zpager trace [OPTIONS] -- PROGRAM [ARGS]...\n       \
    zpager trace [OPTIONS] --lackey FILE")]
pub(crate) struct TraceArguments {
    /// The file of the trace [default: PROGRAM.trace in the current directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// How many pages are resident at a time
    #[arg(long, value_name = "PAGES", default_value = "32", allow_hyphen_values = true)]
    pub(crate) window: String,

    /// The codecs whose sizes are recorded [default: word,lz4,lzo,wkdm,wk4x4,zstd]
    #[arg(long, value_name = "NAME,...")]
    pub(crate) codec: Option<String>,

    /// Physical memory for the pages that have left the window, as for `zpager run` [default: auto]
    #[arg(long, value_name = "SIZE|auto", allow_hyphen_values = true)]
    pub(crate) memory: Option<String>,

    /// Directory of a swap file for what does not fit there, or `none` [default: none]
    #[arg(long, value_name = "DIR|none")]
    pub(crate) store: Option<PathBuf>,

    /// Import what `valgrind --tool=lackey --trace-mem=yes` wrote, instead of recording
    #[arg(long, value_name = "FILE")]
    pub(crate) lackey: Option<PathBuf>,

    /// With --lackey: what every written page shrinks to, such as word=30%,lz4=1400 [default: the
    /// trace has no sizes]
    #[arg(long, value_name = "NAME=SIZE,...")]
    pub(crate) sizes: Option<String>,

    /// With --lackey: count instruction fetches too
    #[arg(long)]
    pub(crate) instructions: bool,

    /// Print no progress, no summary and no warnings
    #[arg(long)]
    pub(crate) quiet: bool,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Commands that have commands of their own, and one of these.
const WITH_COMMANDS: [(&str, &str); 2] =
    [("bench", "zpager bench run"), ("device", "zpager device serve --size SIZE --memory SIZE")];
/// Commands whose wrong arguments end with status 2.
const WITH_STATUS_2: [&str; 4] = ["codecs", "designs", "sim", "trace"];

/// Reads the command line.
///
/// # Errors
/// One line with what is not understood, and status 125, or 2 for those of [`WITH_STATUS_2`].
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Action, Failure> {
    let words: Vec<OsString> = words.into_iter().collect();
    match Arguments::try_parse_from(&words) {
        Ok(Arguments { command: Command::Run(arguments) }) => Ok(Action::Run(arguments)),
        Ok(Arguments { command: Command::Bench(command) }) => Ok(Action::Bench(command)),
        Ok(Arguments { command: Command::Codecs(arguments) }) => Ok(Action::Codecs(arguments)),
        Ok(Arguments { command: Command::Designs(arguments) }) => Ok(Action::Designs(arguments)),
        Ok(Arguments { command: Command::Device(arguments) }) => {
            Ok(Action::Device(arguments.command))
        }
        Ok(Arguments { command: Command::Sim(arguments) }) => Ok(Action::Sim(arguments)),
        Ok(Arguments { command: Command::Trace(arguments) }) => Ok(Action::Trace(arguments)),
        Ok(Arguments { command: Command::RemoteHelper }) => Ok(Action::RemoteHelper),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Action::Show(error.render().to_string()))
            }
            _ => Err(failure_of(&error, &words)),
        },
    }
}

/// Makes one line of the parser's several.
fn failure_of(error: &clap::Error, words: &[OsString]) -> Failure {
    let command = words.get(1).and_then(|word| word.to_str());
    let with_commands = WITH_COMMANDS.iter().find(|(name, _)| command == Some(name));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::own(match with_commands {
            Some((name, one)) => {
                format!("no command: one is `{one}`; see `zpager {name} --help`")
            }
            None => {
                "no command: one is `zpager run -- PROGRAM ARGS...`; see `zpager --help`".into()
            }
        });
    }
    let text = error.render().to_string();
    // What is missing stands on lines of its own.
    let lines: Vec<&str> =
        text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let joined = lines.join(" ");
    let what = joined.strip_prefix("error: ").unwrap_or(&joined);
    let what = what.replace("invalid digit found in string", "give a whole number");
    let message = format!("{what}; see `{} --help`", command_of(words));
    match command.is_some_and(|command| WITH_STATUS_2.contains(&command)) {
        true => Failure::arguments(message),
        false => Failure::own(message),
    }
}

/// The command that the words begin with, with those that it is one of.
fn command_of(words: &[OsString]) -> String {
    let mut command = &Arguments::command();
    let mut names = command.get_name().to_owned();
    for word in words.iter().skip(1) {
        let Some(found) = command.find_subcommand(word) else { break };
        names = format!("{names} {}", found.get_name());
        command = found;
    }
    names
}

/// [`parse`], of words between spaces.
#[cfg(test)]
pub(crate) fn parse_line(line: &str) -> Result<Action, Failure> {
    parse(line.split_whitespace().map(OsString::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn run(line: &str) -> RunArguments {
        match parse(words(line)) {
            Ok(Action::Run(arguments)) => arguments,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_program_keeps_its_own_flags() {
        for line in [
            "zpager run --memory 1G -- sort -k 2 --quiet -- x",
            "zpager run --memory 1G sort -k 2 --quiet -- x",
        ] {
            let arguments = run(line);
            assert_eq!(arguments.program, words("sort -k 2 --quiet -- x"), "{line}");
            assert_eq!(arguments.memory, "1G");
            assert!(!arguments.quiet);
        }
    }

    #[test]
    fn defaults() {
        let arguments = run("zpager run true");
        assert_eq!(arguments.memory, "auto");
        assert_eq!((arguments.design.codec, arguments.store_size), (None, None));
        assert_eq!((arguments.design.name.as_str(), arguments.design.set.len()), ("default", 0));
        assert_eq!((arguments.store, arguments.stats), (None, None));
    }

    #[test]
    fn what_is_not_understood_is_one_line() {
        for line in ["zpager", "zpager ran", "zpager run --memori 1G true", "zpager run --memory"] {
            let failure = parse(words(line)).expect_err(line);
            assert_eq!(failure.status, 125, "{line}");
            assert!(!failure.message.contains('\n') && !failure.message.is_empty(), "{failure:?}");
        }
    }

    #[test]
    fn wrong_words_after_some_commands_have_a_status_of_their_own() {
        for line in [
            "zpager codecs --pages",
            "zpager codecs --wrong f",
            "zpager codecs f g",
            "zpager designs hp castro",
            "zpager designs --json",
            "zpager sim --memory",
            "zpager trace --window",
        ] {
            let failure = parse(words(line)).expect_err(line);
            assert_eq!(failure.status, 2, "{line}: {failure:?}");
            assert!(!failure.message.contains('\n'), "{failure:?}");
        }
    }

    #[test]
    fn the_help_of_the_command_is_named() {
        for (line, help) in [
            ("zpager", "`zpager --help`"),
            ("zpager run --wrong x", "`zpager run --help`"),
            ("zpager bench", "`zpager bench --help`"),
            ("zpager bench run --rivals x", "`zpager bench run --help`"),
            ("zpager bench run --runs abc", "give a whole number; see `zpager bench run --help`"),
            ("zpager device", "`zpager device --help`"),
            ("zpager device sarve", "`zpager device --help`"),
            ("zpager device serve --size", "`zpager device serve --help`"),
            ("zpager device set", "`zpager device set --help`"),
            ("zpager bogus", "see `zpager --help`"),
            ("zpager sim --wrong", "`zpager sim --help`"),
        ] {
            let failure = parse(words(line)).expect_err(line);
            assert!(failure.message.ends_with(help), "{line}: {failure:?}");
        }
    }

    #[test]
    fn help_is_shown() {
        for line in
            ["zpager --help", "zpager run --help", "zpager designs --help", "zpager --version"]
        {
            assert!(matches!(parse(words(line)), Ok(Action::Show(_))), "{line}");
        }
    }
}
