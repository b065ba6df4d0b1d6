//! The flags of `zpager trace` become a configuration of which everything is known to make sense.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use zpager_codec::CodecId;
use zpager_policy::DesignId;

use crate::args::{DesignArguments, RunArguments, TraceArguments};
use crate::codecs::check_codecs;
use crate::failure::Failure;
use crate::result_file;
use crate::run;

/// Windows that can be asked for: what instructions and calls need at a time, and what is
/// still small.
const WINDOW_PAGES: RangeInclusive<u32> = 8..=4096;

/// What the published designs and zpager compress with by themselves.
const CODECS: [CodecId; 6] =
    [CodecId::Word, CodecId::Lz4, CodecId::Lzo, CodecId::Wkdm, CodecId::Wk4x4, CodecId::Zstd];

/// Words of the ring where nothing else is asked for, 2 MiB, and the most.
const RING_WORDS: u64 = 1 << 18;
const RING_WORDS_MAX: u64 = 1 << 26;

/// What to record, and of what.
#[derive(Debug)]
pub(super) struct Configuration {
    /// The file of the trace.
    pub(super) output: PathBuf,
    /// Pages that are resident at a time.
    pub(super) window_pages: u32,
    /// The codecs whose sizes are recorded, each once.
    pub(super) codecs: Vec<CodecId>,
    /// Words of the ring.
    pub(super) ring_words: u64,
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
    /// The run in which it is recorded.
    pub(super) run: run::Configuration,
}

impl Configuration {
    /// Checks the flags.
    ///
    /// # Errors
    /// The first thing found that cannot work.
    pub(super) fn check(
        arguments: TraceArguments,
        environment: &run::Environment,
    ) -> Result<Self, Failure> {
        if arguments.sizes.is_some() || arguments.instructions {
            return Err(Failure::arguments(
                "--sizes and --instructions go with --lackey FILE: a program's own pages have sizes",
            ));
        }
        let window_pages = check_window(&arguments.window, WINDOW_PAGES)?;
        let codecs = arguments.codec.as_deref().map_or(Ok(CODECS.to_vec()), check_codecs)?;
        let command = arguments.program;
        if command.is_empty() {
            return Err(Failure::arguments(
                "no program to record: name one after `--`, as in `zpager trace -- sort FILE`",
            ));
        }
        let output = check_output(arguments.output, &command[0], None)?;
        let memory = arguments.memory.unwrap_or_else(|| "auto".to_owned());
        run::config::check_memory(&memory).map_err(as_arguments)?;
        let store = arguments.store.unwrap_or_else(|| "none".into());
        run::stores::check(&store).map_err(as_arguments)?;
        let run = RunArguments {
            memory,
            store: Some(store),
            store_mirror: None,
            store_timeout: None,
            store_plain: false,
            store_size: None,
            store_codec: None,
            store_encrypt: false,
            design: DesignArguments {
                name: DesignId::Default.name().to_owned(),
                set: Vec::new(),
                codec: None,
                store_threshold: None,
            },
            stats: None,
            quiet: arguments.quiet,
            program: command.clone(),
        };
        let mut run = run::Configuration::check(run, environment)?;
        run.from_start = Some(true);
        let ring_words = environment.ring_words.unwrap_or(RING_WORDS).min(RING_WORDS_MAX);
        Ok(Configuration { output, window_pages, codecs, ring_words, command, run })
    }
}

/// What is a failure of a run's own is one of the arguments here.
fn as_arguments(failure: Failure) -> Failure {
    Failure::arguments(failure.message)
}

/// A number of pages of this range.
///
/// # Errors
/// It is none.
pub(super) fn check_window(text: &str, range: RangeInclusive<u32>) -> Result<u32, Failure> {
    let pages = text.parse().ok().filter(|pages| range.contains(pages));
    pages.ok_or_else(|| {
        Failure::arguments(format!(
            "--window {text}: not a number of pages: give one from {} to {}",
            range.start(),
            range.end()
        ))
    })
}

/// The file of a trace of what `name` names, made of what `read` names.
///
/// # Errors
/// It cannot be written, or is that.
pub(super) fn check_output(
    flag: Option<PathBuf>,
    name: &OsStr,
    read: Option<&Path>,
) -> Result<PathBuf, Failure> {
    let output = flag.map_or_else(|| default_output(name), Ok)?;
    result_file::check_beside("--output", &output, read)?;
    Ok(output)
}

/// PROGRAM.trace in the current directory.
fn default_output(program: &OsStr) -> Result<PathBuf, Failure> {
    let name = Path::new(program).file_name().ok_or_else(|| {
        let program = program.display();
        Failure::arguments(format!("{program}: not a name for a trace: give --output FILE"))
    })?;
    let mut name = name.to_owned();
    name.push(".trace");
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Action, parse_line};
    use crate::failure::expect_refused;

    fn check(line: &str) -> Result<Configuration, Failure> {
        let path = Some(OsString::from("/usr/bin:/bin"));
        let environment = run::Environment { path, ..run::Environment::default() };
        match parse_line(line)? {
            Action::Trace(arguments) => Configuration::check(arguments, &environment),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn bad_input_is_told_in_one_line() {
        let table = [
            ("zpager trace", 2, "program"),
            ("zpager trace --", 2, "program"),
            ("zpager trace --windows 8 true", 2, "--windows"),
            ("zpager trace --window 7 true", 2, "from 8 to 4096"),
            ("zpager trace --window 4097 true", 2, "4097"),
            ("zpager trace --window -8 true", 2, "--window -8"),
            ("zpager trace --window x true", 2, "--window x"),
            ("zpager trace --codec lzma true", 2, "lz4"),
            ("zpager trace --codec lz4,,word true", 2, "not a codec"),
            ("zpager trace --output /nowhere/at/all true", 2, "/nowhere/at/all"),
            ("zpager trace --output / true", 2, "directory"),
            ("zpager trace ..", 2, "--output"),
            ("zpager trace --memory lots true", 2, "256M"),
            ("zpager trace --memory 1M true", 2, "8.0 MiB"),
            ("zpager trace --store /nowhere/at/all true", 2, "no such directory"),
            ("zpager trace --store /dev/null true", 2, "neither"),
            ("zpager trace --store /tmp,/tmp true", 2, "twice"),
            ("zpager trace --output /tmp/t /nowhere/program", 127, "/nowhere/program"),
            ("zpager trace --output /tmp/t /etc/passwd", 126, "/etc/passwd"),
        ];
        for (line, status, said) in table {
            expect_refused(line, check(line), status, said);
        }
    }

    #[test]
    fn a_sound_line_is_taken() {
        let found = check("zpager trace -- /bin/true --output x").expect("sound");
        assert_eq!(found.output, Path::new("true.trace"));
        assert_eq!((found.window_pages, found.codecs), (32, CODECS.to_vec()));
        assert_eq!(found.run.from_start, Some(true));
        assert_eq!(found.run.program.arguments, ["--output", "x"]);
        assert_eq!(found.command, ["/bin/true", "--output", "x"]);
        let line = "zpager trace --output /tmp/t --window 8 --codec lz4,zstd,lz4 --store /tmp true";
        let found = check(line).expect("sound");
        assert_eq!(found.output, Path::new("/tmp/t"));
        assert_eq!((found.window_pages, found.codecs), (8, vec![CodecId::Lz4, CodecId::Zstd]));
    }
}
