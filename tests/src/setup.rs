//! How `zpager run` is asked to manage a program.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// Below this budget a program that is entered at pressure may have outgrown it by then.
const LEAST_WATCHED_BYTES: u64 = 64 * MIB;

/// Bytes in the unit of budgets.
pub const MIB: u64 = 1 << 20;

/// Where spilled pages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Nowhere: everything stays in RAM.
    None,
    /// A swap file in the test's scratch directory.
    Disk,
}

/// When a program becomes managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// From its first instruction.
    FirstInstruction,
    /// When the budget comes near: the supervisor enters the running program.
    Pressure,
    /// As zpager chooses by the size of the budget.
    Default,
}

/// How pages are lifted out of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lift {
    /// `UFFDIO_MOVE`.
    Move,
    /// Write-protect, copy and drop: the way of kernels before 6.8.
    Copy,
    /// By guard pages, as where userfaultfd is forbidden.
    Guards,
    /// By stretches with gaps, as in processes of several threads that run at the same time.
    Stretches,
}

/// One way to run a program under zpager.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The budget.
    pub budget_bytes: u64,
    /// Where spilled pages go.
    pub store: Store,
    /// When the program becomes managed.
    pub start: Start,
    /// How pages leave.
    pub lift: Lift,
    /// The codec's name; `None` leaves the choice to zpager.
    pub codec: Option<String>,
    /// The design's name.
    pub design: String,
    /// Whether what goes to the store is encrypted.
    pub encrypts: bool,
    /// What compresses pages once more that leave for it; `None` leaves the choice to zpager.
    pub store_codec: Option<String>,
    /// Parameters of the design that are set, as `NAME=VALUE`.
    pub set: Vec<String>,
}

impl Setup {
    /// A budget, a store on disk, and zpager's own choice of everything else.
    pub fn of_mib(mib: u64) -> Self {
        Setup {
            budget_bytes: mib * MIB,
            store: Store::Disk,
            start: Start::Default,
            lift: Lift::Move,
            codec: None,
            design: "default".to_owned(),
            encrypts: false,
            store_codec: None,
            set: Vec::new(),
        }
    }

    /// The same with another start.
    pub fn start(self, start: Start) -> Self {
        Setup { start, ..self }
    }

    /// The same with another store.
    pub fn store(self, store: Store) -> Self {
        Setup { store, ..self }
    }

    /// The same with another way of lifting.
    pub fn lift(self, lift: Lift) -> Self {
        Setup { lift, ..self }
    }

    /// The same with this codec.
    pub fn codec(self, name: &str) -> Self {
        Setup { codec: Some(name.to_owned()), ..self }
    }

    /// The same with this design.
    pub fn design(self, name: &str) -> Self {
        Setup { design: name.to_owned(), ..self }
    }

    /// The same with an encrypted store.
    pub fn encrypted(self) -> Self {
        Setup { encrypts: true, ..self }
    }

    /// The same with this codec for what leaves for the store.
    pub fn store_codec(self, name: &str) -> Self {
        Setup { store_codec: Some(name.to_owned()), ..self }
    }

    /// The same with a parameter of the design set, as `NAME=VALUE`.
    pub fn set(mut self, word: &str) -> Self {
        self.set.push(word.to_owned());
        self
    }

    /// Whether the peak has to stay within the budget: not where zpager was told to only watch a
    /// program that can outgrow a small budget between two looks.
    pub fn holds_budget(&self) -> bool {
        self.start != Start::Pressure || self.budget_bytes >= LEAST_WATCHED_BYTES
    }

    /// The words after `zpager` and before the program, without `--stats`.
    pub fn flags(&self, store_directory: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            vec!["run".into(), "--memory".into(), self.budget_bytes.to_string().into()];
        words.push("--store".into());
        words.push(match self.store {
            Store::None => "none".into(),
            Store::Disk => store_directory.into(),
        });
        if let Some(name) = &self.codec {
            words.push("--codec".into());
            words.push(name.into());
        }
        words.extend(["--design".into(), self.design.as_str().into()]);
        if self.encrypts {
            words.push("--store-encrypt".into());
        }
        if let Some(codec) = &self.store_codec {
            words.push("--store-codec".into());
            words.push(codec.into());
        }
        for word in &self.set {
            words.push("--set".into());
            words.push(word.into());
        }
        words
    }

    /// The environment that goes with the flags: what to set.
    pub fn environment(&self) -> Vec<(&'static str, &'static str)> {
        let mut pairs = Vec::new();
        match self.start {
            Start::FirstInstruction => pairs.push(("ZPAGER_FROM_START", "1")),
            Start::Pressure => pairs.push(("ZPAGER_FROM_START", "0")),
            Start::Default => {}
        }
        match self.lift {
            Lift::Move => {}
            Lift::Copy => pairs.push(("ZPAGER_LIFT", "copy")),
            Lift::Guards => pairs.push(("ZPAGER_WATCH", "guards")),
            Lift::Stretches => pairs.push(("ZPAGER_LIFT", "stretches")),
        }
        pairs
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.environment() {
            write!(f, "{name}={value} ")?;
        }
        write!(f, "zpager")?;
        for word in self.flags(Path::new(".")) {
            write!(f, " {}", word.to_string_lossy())?;
        }
        Ok(())
    }
}
