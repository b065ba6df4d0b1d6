//! Every contender serves the trace at every memory size, one after the other.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use zpager_codec::{CodecId, detect_cpu};
use zpager_policy::Design;
use zpager_sim::trace::{Header, Reader};
use zpager_sim::{
    Belady, Bound, Compressed, Future, Memory, Outcome, ReplayError, SHARES, Setup, Survey,
    Uncompressed, replay, survey,
};

use super::config::{Configuration, Contender};
use super::row::Row;
use crate::failure::Failure;

/// Words of the command that a title has.
const TITLE_CHARS: usize = 60;

/// A trace of which the survey was taken.
pub(super) struct Contest<'a> {
    configuration: &'a Configuration,
    survey: Survey,
    /// References served by all contenders together.
    replayed: u64,
}

impl<'a> Contest<'a> {
    /// Reads the trace once.
    ///
    /// # Errors
    /// What is wrong with the trace, or that it has no sizes for a contender's codec.
    pub(super) fn open(configuration: &'a Configuration) -> Result<Self, Failure> {
        detect_cpu();
        let trace = &configuration.trace;
        let reader = open(trace)?;
        for contender in &configuration.contenders {
            column(trace, reader.header(), contender)?;
        }
        let survey = survey(reader).map_err(|error| wrong(trace, error))?;
        if survey.references == 0 {
            return Err(wrong(trace, "no references in it: record a program that has memory"));
        }
        Ok(Contest { configuration, survey, replayed: 0 })
    }

    /// Replays the trace for each contender at each memory size.
    ///
    /// # Errors
    /// The trace was changed meanwhile, or a mistake of the simulator's.
    pub(super) fn replay_all(&mut self) -> Result<Vec<Row>, Failure> {
        let configuration = self.configuration;
        let mut rows = Vec::new();
        for contender in &configuration.contenders {
            let future = match contender {
                Contender::Belady(_) => Some(self.future()?),
                _ => None,
            };
            for &budget_bytes in &configuration.memory_bytes {
                let outcome = match contender {
                    Contender::Uncompressed => self.uncompressed(budget_bytes)?,
                    Contender::Design(_) => self.compressed(contender, budget_bytes)?,
                    Contender::Belady(_) => {
                        self.best(contender, budget_bytes, future.as_ref().expect("was read"))?
                    }
                };
                let codec = self.codec(contender)?.map(|(codec, _)| codec);
                rows.push(Row::of(contender, codec, configuration.disk, budget_bytes, &outcome));
            }
        }
        Ok(rows)
    }

    /// References served so far, by all contenders together.
    pub(super) fn replayed_references(&self) -> u64 {
        self.replayed
    }

    /// The program that was traced.
    pub(super) fn title(&self) -> String {
        let words = self.survey.header.command.iter();
        let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word)).collect();
        let title = match words.is_empty() {
            true => self.configuration.trace.display().to_string(),
            false => words.join(" "),
        };
        title.chars().filter(|letter| !letter.is_control()).take(TITLE_CHARS).collect()
    }

    /// What the trace is, in a line.
    pub(super) fn summary(&self) -> String {
        let Survey { references, pages, .. } = self.survey;
        let memory = crate::size::display(pages * 4096);
        format!("{}: {references} references to {pages} pages, {memory}", self.title())
    }

    fn codec(&self, contender: &Contender) -> Result<Option<(CodecId, usize)>, Failure> {
        column(&self.configuration.trace, &self.survey.header, contender)
    }

    fn future(&self) -> Result<Future, Failure> {
        let trace = &self.configuration.trace;
        Future::read(open(trace)?, &self.survey).map_err(|error| failure(trace, error))
    }

    fn uncompressed(&mut self, budget_bytes: u64) -> Result<Outcome, Failure> {
        let memory = Uncompressed::new(&self.survey.layout, budget_bytes, self.configuration.disk);
        let outcome = self.serve(memory);
        self.count(outcome)
    }

    fn compressed(&mut self, contender: &Contender, budget_bytes: u64) -> Result<Outcome, Failure> {
        let (_, column) = self.codec(contender)?.expect("a design has a codec");
        let settings = *contender.settings().expect("a design has settings");
        let disk = self.configuration.disk;
        let design = Design::new(&settings, budget_bytes as usize);
        let column_of = |codec: Option<_>| column_of(&self.survey.header, codec?);
        let setup = Setup {
            budget_bytes,
            settings,
            column,
            dense_column: column_of(design.dense_codec),
            repeats_column: column_of(design.repeats_codec),
            disk,
        };
        let memory = Compressed::new(&self.survey.layout, &setup).ok_or_else(|| {
            Failure::own("not enough memory to simulate: give a smaller --memory")
        })?;
        let outcome = self.serve(memory);
        self.count(outcome)
    }

    /// Belady's choice with the share of resident memory that takes the least time.
    fn best(
        &mut self,
        contender: &Contender,
        budget_bytes: u64,
        future: &Future,
    ) -> Result<Outcome, Failure> {
        let codec = self.codec(contender)?;
        let mut best: Option<Outcome> = None;
        for share in SHARES {
            let bound = Bound {
                budget_bytes,
                share,
                codec: codec.map(|(codec, _)| codec),
                column: codec.map_or(0, |(_, column)| column),
                disk: self.configuration.disk,
                is_ahead: true,
            };
            let outcome = self.serve(Belady::new(&self.survey.layout, future, bound));
            let outcome = self.count(outcome)?;
            let is_better =
                best.is_none_or(|best| outcome.ledger.total_ns() < best.ledger.total_ns());
            best = if is_better { Some(outcome) } else { best };
            // Nothing was spilled: no other share does anything else.
            if outcome.store_writes == 0 {
                break;
            }
        }
        Ok(best.expect("there are shares"))
    }

    fn serve(&self, mut memory: impl Memory) -> Result<Outcome, Failure> {
        let trace = &self.configuration.trace;
        replay(open(trace)?, &self.survey.layout, &mut memory)
            .map_err(|error| failure(trace, error))?;
        Ok(memory.outcome())
    }

    fn count(&mut self, outcome: Result<Outcome, Failure>) -> Result<Outcome, Failure> {
        self.replayed += outcome.as_ref().map_or(0, |outcome| outcome.references);
        outcome
    }
}

/// Where a codec stands in the trace.
fn column_of(header: &Header, codec: CodecId) -> Option<usize> {
    header.codecs.iter().position(|name| name == codec.name())
}

/// A contender's codec and where it stands in the trace; `None` where there is none to choose.
///
/// # Errors
/// The trace has no sizes for it.
fn column(
    trace: &Path,
    header: &Header,
    contender: &Contender,
) -> Result<Option<(CodecId, usize)>, Failure> {
    let Some(settings) = contender.settings() else { return Ok(None) };
    let codec = settings.codec();
    match column_of(header, codec) {
        Some(column) => Ok(Some((codec, column))),
        // Without sizes there is still the oldest of bounds: nothing is compressed.
        None if header.codecs.is_empty() && matches!(contender, Contender::Belady(_)) => Ok(None),
        None if header.codecs.is_empty() => Err(wrong(
            trace,
            "no sizes in it: record it with codecs, or import it with an assumption about sizes",
        )),
        None => Err(wrong(
            trace,
            format_args!(
                "no sizes for {} of {}: it has {}: record it with --codec {}, or set {}.codec",
                codec.name(),
                contender.name(),
                header.codecs.join(", "),
                codec.name(),
                settings.design().name(),
            ),
        )),
    }
}

fn open(trace: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let unreadable = |error| wrong(trace, format_args!("{error}: give a file of `zpager trace`"));
    let kind = trace.metadata().map_err(unreadable)?;
    // It is read several times, and opening a pipe waits for its writer.
    if !kind.is_file() {
        return Err(wrong(trace, "no plain file: give a file of `zpager trace`"));
    }
    let file = File::open(trace).map_err(unreadable)?;
    Reader::new(BufReader::new(file)).map_err(|error| wrong(trace, error))
}

fn wrong(trace: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::arguments(format!("{}: {why}", trace.display()))
}

fn failure(trace: &Path, error: ReplayError) -> Failure {
    match error {
        ReplayError::Lost(_) => Failure::own(format!("{}: {error}", trace.display())),
        _ => wrong(trace, error),
    }
}
