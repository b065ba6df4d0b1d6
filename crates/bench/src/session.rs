//! One session of measuring: what it changed, where its files are, and one run
//! of one program under one rival.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use nix::unistd::{AccessFlags, access};

use crate::changes::guardian::Guardian;
use crate::changes::{Changes, Mark, OWN_PREFIX};
use crate::disk::{SlowDisk, Traffic};
use crate::group::{Allowance, Group, Hierarchy};
use crate::interrupt;
use crate::machine::Machine;
use crate::options::CommonOptions;
use crate::process::{self, Ending, Finished, Place};
use crate::rivals::{Account, Rival, RivalName, Surroundings, Terms, swap_size_bytes};
use crate::tell;
use crate::workloads::{Job, Output, Preparation, Workload, warm};

/// Longer than any workload takes without a limit.
const FREE_TIME_OUT: Duration = Duration::from_secs(3600);

/// A session; its end takes back all it changed.
pub(crate) struct Session {
    changes: Changes,
    guardian: Guardian,
    /// Where things are.
    pub surroundings: Surroundings,
    options: CommonOptions,
    /// What swap files and stores go to, if not to a disk of the machine's.
    pub slow_disk: Option<SlowDisk>,
}

/// A run with its accounts.
#[derive(Debug)]
pub(crate) struct Run {
    /// How it went.
    pub finished: Finished<Output>,
    /// What it took; nothing where the run did not end well.
    pub account: Account,
    /// What its cgroup was allowed.
    pub allowance: Allowance,
    /// What went to the disk and came from it, for all programs that use it; nothing where the
    /// kernel does not count that.
    pub traffic: Option<Traffic>,
    /// What is to be known of the rival here.
    pub note: String,
}

impl Run {
    /// The output of a run that ended well.
    ///
    /// # Errors
    /// Why it did not, in words for a report.
    pub(crate) fn output(&self) -> Result<&Output, String> {
        match (&self.finished.ending, &self.finished.output) {
            (Ending::Done, Ok(output)) => Ok(output),
            (Ending::Done, Err(error)) => Err(format!("{error:#}")),
            (ending, _) => Err(ending.to_string()),
        }
    }
}

/// What is noted where a program's output is no proof.
pub(crate) const UNSTEADY: &str = "its output differs from run to run, so it is not compared";

/// Finds out before the machine is changed whether what the user named is there.
fn check_places(options: &CommonOptions) -> Result<()> {
    let CommonOptions { swap_dir, zpager, c_source, .. } = options;
    ensure!(
        swap_dir.is_dir(),
        "--swap-dir {}: no directory: give one on a disk, such as /var/tmp",
        swap_dir.display()
    );
    if let Some(path) = zpager {
        ensure!(
            path.is_file() && access(path, AccessFlags::X_OK).is_ok(),
            "--zpager {}: no program that can be run: give the path of a zpager command",
            path.display()
        );
    }
    if let Some(path) = c_source {
        ensure!(path.is_file(), "--c-source {}: no file: give one in C", path.display());
    }
    if let Some(missing) = options.own().and_then(|own| own.missing()) {
        bail!(missing);
    }
    Ok(())
}

impl Session {
    /// Opens a session, after taking back what a killed one may have left; with `disk_iops` on a
    /// slow disk.
    ///
    /// # Errors
    /// Without root, with another bench at work, without a memory controller, or where disks cannot
    /// be limited.
    pub(crate) fn open(options: &CommonOptions, disk_iops: Option<u32>) -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "bench needs root, for a cgroup and for swap");
        check_places(options)?;
        interrupt::listen()?;
        let mut changes = Changes::open(Machine::real())?;
        if changes.mark() != Mark::BOTTOM {
            tell("zpager: taking back what a killed bench left");
            changes.take_back_to(Mark::BOTTOM)?;
        }
        let guardian = Guardian::start(&changes)?;
        match Self::surroundings(&mut changes, options, disk_iops) {
            Ok((surroundings, slow_disk)) => {
                let options = options.clone();
                Ok(Session { changes, guardian, surroundings, options, slow_disk })
            }
            Err(error) => {
                changes.take_back_to(Mark::BOTTOM)?;
                guardian.dismiss();
                Err(error)
            }
        }
    }

    fn surroundings(
        changes: &mut Changes,
        options: &CommonOptions,
        disk_iops: Option<u32>,
    ) -> Result<(Surroundings, Option<SlowDisk>)> {
        let name = format!("{OWN_PREFIX}-{}", std::process::id());
        let work_directory = options.swap_dir.join(name);
        changes.make_directory(&work_directory)?;
        let zpager = match &options.zpager {
            Some(path) => std::fs::canonicalize(path)?,
            None => std::env::current_exe()?,
        };
        let hierarchy = Hierarchy::find(changes)?;
        let work_directory = std::fs::canonicalize(work_directory)?;
        let slow_disk = disk_iops
            .map(|iops| SlowDisk::find(changes, &hierarchy, &work_directory, iops))
            .transpose()?;
        let swap_directory = match &slow_disk {
            Some(disk) => disk.directory().to_owned(),
            None => std::fs::canonicalize(&options.swap_dir)?,
        };
        Ok((Surroundings { swap_directory, zpager, hierarchy, work_directory }, slow_disk))
    }

    /// Puts everything back as it was.
    ///
    /// # Errors
    /// What could not be put back; it stays in the journal for the next session.
    pub(crate) fn close(mut self) -> Result<()> {
        let taken_back = self.changes.take_back_to(Mark::BOTTOM);
        self.guardian.dismiss();
        taken_back
    }

    /// Makes the input of a workload.
    ///
    /// # Errors
    /// As the workload.
    pub(crate) fn prepare(&self, workload: &dyn Workload) -> Result<Job> {
        let directory = self.input_directory(workload);
        std::fs::create_dir_all(&directory)?;
        let options = &self.options;
        let preparation = Preparation {
            directory,
            scale: options.scale,
            seed: options.seed,
            c_source: options.c_source.clone(),
        };
        workload
            .prepare(&preparation)
            .with_context(|| format!("cannot prepare {}", workload.name()))
    }

    /// Deletes the input of a workload.
    ///
    /// # Errors
    /// As deleting files.
    pub(crate) fn forget(&self, workload: &dyn Workload) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.input_directory(workload))?)
    }

    fn input_directory(&self, workload: &dyn Workload) -> PathBuf {
        self.surroundings.work_directory.join(workload.name())
    }

    /// Runs `job` once under `rival`, and takes back what that changed.
    ///
    /// # Errors
    /// When the bench itself fails or is interrupted. A rival that cannot run here
    /// is `Ok(Err(reason))`; a program that fails is a [`Run`] without output.
    pub(crate) fn run(
        &mut self,
        job: &Job,
        rival: &dyn Rival,
        terms: Terms,
        time_out: Duration,
    ) -> Result<Result<Run, String>> {
        interrupt::check()?;
        for input in &job.inputs {
            warm(input)?;
        }
        let mark = self.changes.mark();
        let run = self.run_changed(job, rival, terms, time_out);
        self.changes.take_back_to(mark)?;
        run
    }

    /// Runs `job` twice without a limit: the first run brings the program's own files into the page cache.
    /// Gives the second one, and the digest that the output of every other is to have: of these two, if both put
    /// out the same.
    ///
    /// # Errors
    /// When the bench itself fails or is interrupted, or the program cannot be run here.
    pub(crate) fn run_free(&mut self, job: &Job) -> Result<(Run, Option<u128>)> {
        let terms = Terms { total_bytes: 0, given_bytes: 0, need_bytes: 0, is_search: true };
        let mut once = || {
            let run = self.run(job, RivalName::None.rival(), terms, FREE_TIME_OUT)?;
            run.map_err(Error::msg)
        };
        let (first, second) = (once()?, once()?);
        let [before, digest] =
            [&first, &second].map(|run| run.output().ok().map(|output| output.digest));
        Ok((second, digest.filter(|_| before == digest)))
    }

    fn run_changed(
        &mut self,
        job: &Job,
        rival: &dyn Rival,
        terms: Terms,
        time_out: Duration,
    ) -> Result<Result<Run, String>> {
        let device = match &self.slow_disk {
            Some(disk) => Some(disk.insert(&mut self.changes, swap_size_bytes(terms))?),
            None => None,
        };
        let set_up = match rival.set_up(&mut self.changes, &self.surroundings, terms) {
            Ok(set_up) => set_up,
            Err(error) => return Ok(Err(format!("cannot run here: {error:#}"))),
        };
        let arrangement = rival.arrange(&job.program, &self.surroundings, terms);
        let allowance = arrangement.allowance;
        let mut group = Group::make(&mut self.changes, &self.surroundings.hierarchy, allowance)?;
        if let (Some(disk), Some(device)) = (&self.slow_disk, &device) {
            disk.limit(&mut self.changes, &mut group, device)?;
        }
        let machine = self.changes.machine();
        let traffic = || Traffic::so_far(machine, &self.surroundings.swap_directory);
        let before = traffic();
        let place =
            Place { directory: &self.surroundings.work_directory, group: Some(&group), time_out };
        let finished = process::run(
            &arrangement.program,
            &place,
            |running| (job.drive)(running),
            || set_up.pool.sample_bytes(machine),
        )?;
        let traffic = traffic().zip(before).map(|(now, before)| now.since(before));
        let account = match finished.ending {
            Ending::Done => rival.account(&finished, &self.surroundings)?,
            _ => Account::default(),
        };
        Ok(Ok(Run { finished, account, allowance, traffic, note: set_up.note }))
    }
}
