//! The flags of `zpager sim` become a configuration of which everything is known to make sense.

use std::path::PathBuf;

use zpager_policy::{DesignId, Settings};
use zpager_sim::cost::{DISKS, Disk};

use crate::args::SimArguments;
use crate::designs::choice;
use crate::failure::Failure;
use crate::result_file;
use crate::size;

/// The least memory in which a design is simulated: what `zpager run` takes at least.
const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// The most: what a process can address.
const MEMORY_BYTES_MAX: u64 = 1 << 46;

/// Who serves the references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contender {
    /// A design of the engine.
    Design(Settings),
    /// No compression.
    Uncompressed,
    /// One who knows the future, with the codec of the default design.
    Belady(Settings),
}

impl Contender {
    const UNCOMPRESSED: &'static str = "none";
    const BELADY: &'static str = "belady";

    /// The name by which a user chooses it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Contender::Design(settings) => settings.design().name(),
            Contender::Uncompressed => Self::UNCOMPRESSED,
            Contender::Belady(_) => Self::BELADY,
        }
    }

    /// What its parameters are, where it has any.
    pub(super) fn settings(&self) -> Option<&Settings> {
        match self {
            Contender::Design(settings) | Contender::Belady(settings) => Some(settings),
            Contender::Uncompressed => None,
        }
    }
}

/// What to replay where, and where the results go.
#[derive(Debug)]
pub(super) struct Configuration {
    /// The trace.
    pub(super) trace: PathBuf,
    /// The memory sizes, ascending, each once.
    pub(super) memory_bytes: Vec<u64>,
    /// Who serves it, each once.
    pub(super) contenders: Vec<Contender>,
    /// What the store is on.
    pub(super) disk: Disk,
    /// The file of rows.
    pub(super) json: Option<PathBuf>,
    /// The picture.
    pub(super) plot: Option<PathBuf>,
}

impl Configuration {
    /// Checks the flags.
    ///
    /// # Errors
    /// The first thing found that cannot work.
    pub(super) fn check(arguments: SimArguments) -> Result<Self, Failure> {
        let trace = arguments.trace.ok_or_else(|| {
            Failure::arguments("no trace: give the file that `zpager trace --output FILE` wrote")
        })?;
        let memory = arguments.memory.as_deref().ok_or_else(|| {
            Failure::arguments("no memory size: give --memory SIZE,..., such as --memory 64M,128M")
        })?;
        let memory_bytes = check_memory(memory)?;
        let contenders = check_contenders(&arguments.design, &arguments.set)?;
        let disk = check_disk(&arguments.disk)?;
        let (json, plot) = (arguments.json, arguments.plot);
        result_file::check_both(plot.as_deref(), json.as_deref(), Some(&trace))?;
        Ok(Configuration { trace, memory_bytes, contenders, disk, json, plot })
    }
}

fn check_memory(list: &str) -> Result<Vec<u64>, Failure> {
    let mut sizes = list.split(',').map(check_size).collect::<Result<Vec<_>, _>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn check_size(text: &str) -> Result<u64, Failure> {
    let bytes = size::parse(text).ok_or_else(|| {
        Failure::arguments(format!("--memory {text}: not a size: {}", size::EXPECTED))
    })?;
    match (MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&bytes) {
        true => Ok(bytes),
        false => Err(Failure::arguments(format!(
            "--memory {text}: out of range: give from {} to {}",
            size::display(MEMORY_BYTES_MIN),
            size::display(MEMORY_BYTES_MAX)
        ))),
    }
}

fn check_contenders(list: &str, set: &[String]) -> Result<Vec<Contender>, Failure> {
    let mut contenders: Vec<Contender> = Vec::new();
    for name in list.split(',') {
        let contender = check_contender(name, set)?;
        if !contenders.contains(&contender) {
            contenders.push(contender);
        }
    }
    let belongs = |word: &&String| {
        let settings = contenders.iter().filter_map(Contender::settings);
        settings.into_iter().any(|settings| is_of(word, settings.design()))
    };
    match set.iter().find(|word| !belongs(word)) {
        None => Ok(contenders),
        // Tells an unknown name, or a design that is not simulated.
        Some(word) => {
            let first = contenders.iter().find_map(Contender::settings);
            let id = first.map_or(DesignId::Default, Settings::design);
            let wrong = choice::settings(id, std::slice::from_ref(word), None);
            let why = wrong.err().unwrap_or_else(|| {
                format!("--set {word}: `none` has no parameters: give --design {}", id.name())
            });
            Err(Failure::arguments(why))
        }
    }
}

/// Whether `--set word` is about a design.
fn is_of(word: &str, id: DesignId) -> bool {
    word.split_once('.').is_some_and(|(design, _)| design == id.name())
}

fn check_contender(name: &str, set: &[String]) -> Result<Contender, Failure> {
    let settings = |id: DesignId| {
        let own: Vec<String> = set.iter().filter(|word| is_of(word, id)).cloned().collect();
        choice::settings(id, &own, None).map_err(Failure::arguments)
    };
    match name {
        Contender::UNCOMPRESSED => Ok(Contender::Uncompressed),
        Contender::BELADY => settings(DesignId::Default).map(Contender::Belady),
        _ => match DesignId::from_name(name) {
            Some(id) => settings(id).map(Contender::Design),
            None => Err(Failure::arguments(format!(
                "--design {name}: not a design: there are {}, {} and {}",
                DesignId::ALL.map(DesignId::name).join(", "),
                Contender::UNCOMPRESSED,
                Contender::BELADY
            ))),
        },
    }
}

fn check_disk(name: &str) -> Result<Disk, Failure> {
    Disk::from_name(name).ok_or_else(|| {
        let known = DISKS.map(|disk| disk.name).join(", ");
        Failure::arguments(format!("--disk {name}: not a disk: there are {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Action, parse_line};
    use crate::failure::expect_refused;

    fn check(line: &str) -> Result<Configuration, Failure> {
        match parse_line(line)? {
            Action::Sim(arguments) => Configuration::check(arguments),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn bad_input_is_told_in_one_line() {
        let table = [
            ("zpager sim", "zpager trace"),
            ("zpager sim t", "--memory"),
            ("zpager sim t u --memory 64M", "u"),
            ("zpager sim t --memory lots", "256M"),
            ("zpager sim t --memory 64M,", "not a size"),
            ("zpager sim t --memory 1M", "8.0 MiB"),
            ("zpager sim t --memory 131072T", "64.0 TiB"),
            ("zpager sim t --memory 64M --design lru", "castro, zswap, default, none and belady"),
            ("zpager sim t --memory 64M --design default,,none", "not a design"),
            ("zpager sim t --memory 64M --set castro.cell=2", "--design castro"),
            ("zpager sim t --memory 64M --design castro --set castro.cell=3", "1, 2 or 4"),
            ("zpager sim t --memory 64M --set cell=3", "zpager designs"),
            ("zpager sim t --memory 64M --design none --set default.split=50%", "no parameters"),
            ("zpager sim t --memory 64M --disk tape", "hdd, ssd, nvme"),
            ("zpager sim t --memory 64M --json /nowhere/at/all", "/nowhere/at/all"),
            ("zpager sim t --memory 64M --plot /", "directory"),
            ("zpager sim t --memory 64M --plot same --json same", "one file"),
        ];
        for (line, said) in table {
            expect_refused(line, check(line), 2, said);
        }
    }

    #[test]
    fn a_sound_line_is_taken() {
        let found = check(
            "zpager sim t --memory 128M,64M,64M --design none,default,belady,none --disk hdd \
             --set default.codec=lz4",
        );
        let found = found.expect("sound");
        assert_eq!(found.memory_bytes, [64 << 20, 128 << 20]);
        let names: Vec<&str> = found.contenders.iter().map(Contender::name).collect();
        assert_eq!(names, ["none", "default", "belady"]);
        let codecs = found.contenders.iter().filter_map(Contender::settings);
        assert!(codecs.into_iter().all(|settings| settings.codec().name() == "lz4"));
        assert_eq!(found.disk.name, "hdd");
        let found = check("zpager sim t --memory 64M").expect("sound");
        assert_eq!((found.contenders[0].name(), found.disk.name), ("default", "ssd"));
    }
}
