//! The flags of `zpager codecs` become a configuration of which everything is known to make sense.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use libc::pid_t;
use zpager_codec::CodecId;

use super::sample::Drawing;
use crate::args::CodecsArguments;
use crate::failure::Failure;
use crate::result_file;

/// The most pages drawn: 1 GiB of them, and up to twice that for what they are compressed to.
const PAGES_MAX: usize = 1 << 18;

/// Where the pages come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A file of raw pages.
    File(PathBuf),
    /// A running process.
    Process(pid_t),
    /// A program to start, with its arguments; there is at least one word.
    Program(Vec<OsString>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(file) => write!(f, "{}", file.display()),
            Source::Process(pid) => write!(f, "process {pid}"),
            Source::Program(words) => write!(f, "{}", words[0].display()),
        }
    }
}

/// What to compare, on what, and where the results go.
#[derive(Debug)]
pub(super) struct Configuration {
    /// Where the pages come from.
    pub(super) source: Source,
    /// Which of them are taken.
    pub(super) drawing: Drawing,
    /// The codecs, each once.
    pub(super) codecs: Vec<CodecId>,
    /// The file of histograms.
    pub(super) plot: Option<PathBuf>,
    /// The file of rows.
    pub(super) json: Option<PathBuf>,
}

impl Configuration {
    /// Checks the flags.
    ///
    /// # Errors
    /// The first thing found that cannot work.
    pub(super) fn check(arguments: CodecsArguments) -> Result<Self, Failure> {
        let codecs = arguments.codec.as_deref().map_or(Ok(CodecId::ALL.to_vec()), check_codecs)?;
        let drawing = Drawing {
            pages_max: check_pages(&arguments.pages)?,
            seed: check_seed(&arguments.seed)?,
        };
        let (plot, json) = (arguments.plot, arguments.json);
        result_file::check_both(plot.as_deref(), json.as_deref(), arguments.file.as_deref())?;
        let source = check_source(arguments.file, arguments.pid.as_deref(), arguments.program)?;
        Ok(Configuration { source, drawing, codecs, plot, json })
    }
}

fn check_source(
    file: Option<PathBuf>,
    pid: Option<&str>,
    program: Vec<OsString>,
) -> Result<Source, Failure> {
    match (file, pid, program.is_empty()) {
        (Some(file), None, true) => Ok(Source::File(file)),
        (None, Some(pid), true) => check_pid(pid),
        (None, None, false) => Ok(Source::Program(program)),
        (None, None, true) => Err(Failure::arguments(
            "no pages to compare on: give a FILE of raw pages, --pid PID, or -- PROGRAM ARGS...",
        )),
        _ => Err(Failure::arguments(
            "pages from several places: give one of FILE, --pid PID and -- PROGRAM ARGS...",
        )),
    }
}

fn check_pid(text: &str) -> Result<Source, Failure> {
    match text.parse::<pid_t>() {
        Ok(pid) if pid > 0 => Ok(Source::Process(pid)),
        _ => Err(Failure::arguments(format!(
            "--pid {text}: not a process id: give the number that `ps` shows"
        ))),
    }
}

/// The codecs of a list of names, each once.
///
/// # Errors
/// The first that is not one.
pub(crate) fn check_codecs(list: &str) -> Result<Vec<CodecId>, Failure> {
    let mut codecs = Vec::new();
    for name in list.split(',') {
        let codec = CodecId::from_name(name).ok_or_else(|| unknown_codec(name))?;
        if !codecs.contains(&codec) {
            codecs.push(codec);
        }
    }
    Ok(codecs)
}

fn unknown_codec(name: &str) -> Failure {
    let known: Vec<&str> = CodecId::ALL.iter().map(|id| id.name()).collect();
    Failure::arguments(format!("--codec {name}: not a codec: there are {}", known.join(", ")))
}

fn check_pages(text: &str) -> Result<usize, Failure> {
    let pages = text.parse().ok().filter(|pages| (1..=PAGES_MAX).contains(pages));
    pages.ok_or_else(|| {
        Failure::arguments(format!(
            "--pages {text}: not a number of pages: give one from 1 to {PAGES_MAX}"
        ))
    })
}

fn check_seed(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| {
        Failure::arguments(format!("--seed {text}: not a seed: give a whole number from 0 on"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Action, parse_line};
    use crate::failure::expect_refused;

    fn check(line: &str) -> Result<Configuration, Failure> {
        match parse_line(line)? {
            Action::Codecs(arguments) => Configuration::check(arguments),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn bad_input_is_told_in_one_line() {
        let table = [
            ("zpager codecs", "FILE"),
            ("zpager codecs --", "FILE"),
            ("zpager codecs f --pid 1", "one of"),
            ("zpager codecs f -- true", "one of"),
            ("zpager codecs --pid 1 -- true", "one of"),
            ("zpager codecs --pid 0", "--pid 0"),
            ("zpager codecs --pid -4", "--pid -4"),
            ("zpager codecs --pid init", "--pid init"),
            ("zpager codecs --pid 99999999999", "99999999999"),
            ("zpager codecs --codec lzma f", "lz4"),
            ("zpager codecs --codec lz4,,word f", "not a codec"),
            ("zpager codecs --codec= f", "codec"),
            ("zpager codecs --pages 0 f", "--pages 0"),
            ("zpager codecs --pages -1 f", "--pages -1"),
            ("zpager codecs --pages 1.5 f", "--pages 1.5"),
            ("zpager codecs --pages 262145 f", "262144"),
            ("zpager codecs --seed x f", "--seed x"),
            ("zpager codecs --json /nowhere/at/all f", "/nowhere/at/all"),
            ("zpager codecs --plot / f", "directory"),
            ("zpager codecs --plot same --json same f", "one file"),
        ];
        for (line, said) in table {
            expect_refused(line, check(line), 2, said);
        }
    }

    #[test]
    fn a_sound_line_is_taken() {
        let found =
            check("zpager codecs --codec lz4,word,lz4 --pages 5 --seed 7 f").expect("sound");
        assert_eq!(found.source, Source::File("f".into()));
        assert_eq!(found.codecs, [CodecId::Lz4, CodecId::Word]);
        assert_eq!(found.drawing, Drawing { pages_max: 5, seed: 7 });
        let found = check("zpager codecs --pid 12").expect("sound");
        assert_eq!(found.source, Source::Process(12));
        assert_eq!(found.codecs, CodecId::ALL);
        let found = check("zpager codecs -- sort --pid 3").expect("sound");
        assert_eq!(found.source, Source::Program(["sort", "--pid", "3"].map(Into::into).to_vec()));
    }
}
