//! `zpager trace --lackey`: the accesses that valgrind's lackey wrote, as a trace.

use std::cell::Cell;
use std::fs::File;
use std::io::BufReader;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use zpager_codec::{CodecId, PAGE_BYTES};
use zpager_sim::trace::lackey::{ImportError, Model, import};
use zpager_sim::trace::{Header, SIZE_MAX, Writer};

use super::config::{check_output, check_window};
use super::output::Output;
use crate::args::TraceArguments;
use crate::failure::{Failure, OrFail};

/// Windows that can be asked for: with one page, accesses to a page in a row are one reference.
const WINDOW_PAGES: RangeInclusive<u32> = 1..=4096;

/// What to import, and how.
#[derive(Debug)]
struct Configuration {
    input: PathBuf,
    output: PathBuf,
    header: Header,
    model: Model,
    quiet: bool,
}

/// Imports and gives the exit status.
///
/// # Errors
/// Wrong arguments, what lackey did not write, a trace that could not be written.
pub(super) fn main(arguments: TraceArguments) -> Result<ExitCode, Failure> {
    let configuration = Configuration::check(arguments)?;
    let Configuration { input, output, header, model, quiet } = &configuration;
    let wrong = |why: String| Failure::arguments(format!("--lackey {}: {why}", input.display()));
    let text = File::open(input).map_err(|error| wrong(format!("{error}: give a file")))?;
    let what = || format!("--output {}: not written", output.display());
    let written_bytes = Rc::new(Cell::new(0));
    let file = Output::create(output, written_bytes.clone()).or_fail(what())?;
    let mut writer = Writer::new(file, header).or_fail(what())?;
    let accesses =
        import(BufReader::new(text), model, &mut writer).map_err(|error| match error {
            ImportError::Write(error) => Failure::own(format!("{}: {error}", what())),
            _ => wrong(error.to_string()),
        })?;
    let file = writer.finish().or_fail(what())?;
    file.keep().or_fail(what())?;
    if !quiet {
        let trace = crate::size::display(written_bytes.get());
        let output = output.display();
        crate::stderr::tell(format_args!("{accesses} accesses, {trace}, in {output}"));
    }
    Ok(ExitCode::SUCCESS)
}

impl Configuration {
    fn check(arguments: TraceArguments) -> Result<Self, Failure> {
        let input = arguments.lackey.unwrap_or_default();
        if !arguments.program.is_empty() {
            return Err(Failure::arguments(
                "--lackey FILE and a program: give one, the file to import or the program to record",
            ));
        }
        if arguments.codec.is_some() {
            return Err(Failure::arguments(
                "--codec: lackey has no pages to compress: give --sizes NAME=SIZE,...",
            ));
        }
        for (flag, is_given) in
            [("--memory", arguments.memory.is_some()), ("--store", arguments.store.is_some())]
        {
            if is_given {
                return Err(Failure::arguments(format!(
                    "{flag}: with --lackey nothing is run that takes memory: leave it out"
                )));
            }
        }
        let window_pages = check_window(&arguments.window, WINDOW_PAGES)?;
        let sizes = arguments.sizes.as_deref().map_or(Ok(Vec::new()), check_sizes)?;
        let output = check_output(arguments.output, input.as_os_str(), Some(&input))?;
        let header = header(&input, window_pages, &sizes, arguments.instructions);
        let model = Model {
            window_pages: window_pages as usize,
            with_instructions: arguments.instructions,
            sizes: sizes.into_iter().map(|(_, bytes)| bytes).collect(),
        };
        Ok(Configuration { input, output, header, model, quiet: arguments.quiet })
    }
}

/// Says what was assumed.
fn header(
    input: &Path,
    window_pages: u32,
    sizes: &[(CodecId, u16)],
    with_instructions: bool,
) -> Header {
    let assumed: Vec<String> =
        sizes.iter().map(|(codec, bytes)| format!("{} {bytes}", codec.name())).collect();
    let assumed = match assumed.is_empty() {
        true => "no sizes".to_owned(),
        false => format!("every written page assumed to have {} bytes", assumed.join(", ")),
    };
    let instructions = if with_instructions { "with" } else { "without" };
    Header {
        page_bytes: PAGE_BYTES as u32,
        window_pages,
        origin: format!(
            "zpager {} trace: output of valgrind's lackey in {}, {instructions} instructions, {assumed}",
            env!("CARGO_PKG_VERSION"),
            input.display()
        ),
        command: Vec::new(),
        codecs: sizes.iter().map(|(codec, _)| codec.name().to_owned()).collect(),
    }
}

/// Reads `word=30%,lz4=1400`.
fn check_sizes(list: &str) -> Result<Vec<(CodecId, u16)>, Failure> {
    let mut sizes: Vec<(CodecId, u16)> = Vec::new();
    for word in list.split(',') {
        let (codec, bytes) = size(word).ok_or_else(|| {
            let known = CodecId::ALL.map(CodecId::name).join(", ");
            Failure::arguments(format!(
                "--sizes {word}: not a size: give NAME=BYTES from 1 to {SIZE_MAX} or NAME=PERCENT% \
                 of a page, where NAME is one of {known}"
            ))
        })?;
        if sizes.iter().any(|(other, _)| *other == codec) {
            return Err(Failure::arguments(format!(
                "--sizes {list}: {} twice: give each codec one size",
                codec.name()
            )));
        }
        sizes.push((codec, bytes));
    }
    Ok(sizes)
}

fn size(word: &str) -> Option<(CodecId, u16)> {
    let (name, text) = word.split_once('=')?;
    let codec = CodecId::from_name(name)?;
    let bytes = match text.strip_suffix('%') {
        Some(percent) => {
            let percent: u32 =
                percent.parse().ok().filter(|percent| (1..=100).contains(percent))?;
            (u32::from(SIZE_MAX) * percent / 100) as u16
        }
        None => text.parse().ok()?,
    };
    (1..=SIZE_MAX).contains(&bytes).then_some((codec, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Action, parse_line};
    use crate::failure::expect_refused;

    fn check(line: &str) -> Result<Configuration, Failure> {
        match parse_line(line)? {
            Action::Trace(arguments) => Configuration::check(arguments),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn bad_input_is_told_in_one_line() {
        let table = [
            ("zpager trace --lackey l true", "give one"),
            ("zpager trace --lackey l --codec lz4", "--sizes"),
            ("zpager trace --lackey l --memory 64M", "--memory: with --lackey"),
            ("zpager trace --lackey l --store none", "--store: with --lackey"),
            ("zpager trace --lackey l --window 0", "from 1 to 4096"),
            ("zpager trace --lackey l --sizes lz4", "NAME=BYTES"),
            ("zpager trace --lackey l --sizes lzma=4", "wk4x4"),
            ("zpager trace --lackey l --sizes lz4=0", "from 1 to 4096"),
            ("zpager trace --lackey l --sizes lz4=4097", "from 1 to 4096"),
            ("zpager trace --lackey l --sizes lz4=101%", "NAME=PERCENT%"),
            ("zpager trace --lackey l --sizes lz4=1,lz4=2", "twice"),
            ("zpager trace --lackey l --output /nowhere/t", "/nowhere/t"),
        ];
        for (line, said) in table {
            expect_refused(line, check(line), 2, said);
        }
    }

    #[test]
    fn what_is_assumed_stands_in_the_header() {
        let found = check("zpager trace --lackey l --sizes word=25%,lz4=1400 --window 1");
        let Configuration { output, header, model, .. } = found.expect("sound");
        assert_eq!((output, model.window_pages), ("l.trace".into(), 1));
        assert_eq!(
            (header.codecs, model.sizes),
            (vec!["word".into(), "lz4".into()], vec![1024, 1400])
        );
        let assumed = "every written page assumed to have word 1024, lz4 1400 bytes";
        assert!(header.origin.contains(assumed), "{}", header.origin);
    }
}
