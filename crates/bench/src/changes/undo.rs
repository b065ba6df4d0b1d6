//! What the bench changes on a machine, and how each change is taken back.
//!
//! Invariant: taking back is idempotent. Each kind first looks whether there is
//! anything left to take back, so it does not matter whether the change was ever
//! made, or was taken back before.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::group;
use crate::machine::Machine;

/// Every file and directory that the bench makes has a name that starts so, and
/// nothing else is ever deleted.
pub(crate) const OWN_PREFIX: &str = "zpager-bench";

/// One change of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// The kernel switch `path` was written; it held `old`.
    Switch {
        /// The switch.
        path: String,
        /// What it held.
        old: String,
    },
    /// A swap area was switched on.
    SwapArea {
        /// The file or device.
        path: PathBuf,
    },
    /// A zram device was added.
    ZramDevice {
        /// The number in its name.
        number: u32,
    },
    /// A file, or a directory with all that is in it, was made.
    Made {
        /// The file or directory.
        path: PathBuf,
    },
    /// A cgroup was made; processes in it are killed.
    Group {
        /// Its directory.
        path: PathBuf,
    },
    /// A cgroup hierarchy was mounted.
    Mount {
        /// The directory it was mounted on.
        path: PathBuf,
    },
    /// A controller was given to the groups below the root of cgroup version 2.
    Controller {
        /// The root's `cgroup.subtree_control`.
        path: PathBuf,
        /// Its name.
        name: String,
    },
    /// A file was made into a disk.
    LoopDevice {
        /// The file.
        image: PathBuf,
    },
    /// What a device does a second was limited for the root of the blkio controller.
    DeviceLimit {
        /// The root's file of limits.
        path: PathBuf,
        /// The device's number.
        device: String,
        /// Its limit before, 0 for none.
        old: u64,
    },
    /// A kernel module was loaded.
    Module {
        /// Its name.
        name: String,
    },
}

impl Change {
    /// Takes the change back.
    ///
    /// # Errors
    /// When the machine refuses; the change may then be tried again.
    pub(crate) fn take_back(&self, machine: &Machine) -> Result<()> {
        match self {
            Change::Switch { path, old } => restore_switch(machine, path, old),
            Change::SwapArea { path } => swap_off(machine, path),
            Change::ZramDevice { number } => remove_zram(machine, *number),
            Change::Made { path } => delete_own(path),
            Change::Group { path } => group::remove(path),
            Change::Mount { path } => unmount(machine, path),
            Change::Controller { path, name } => disable_controller(path, name),
            Change::LoopDevice { image } => detach(image),
            Change::DeviceLimit { path, device, old } => {
                Ok(fs::write(path, format!("{device} {old}"))?)
            }
            Change::Module { name } => unload(machine, name),
        }
        .with_context(|| format!("cannot take back: {self}"))
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::Switch { path, old } => write!(f, "{path} was {old}"),
            Change::SwapArea { path } => write!(f, "swap area {}", path.display()),
            Change::ZramDevice { number } => write!(f, "device zram{number}"),
            Change::Made { path } => write!(f, "{}", path.display()),
            Change::Group { path } => write!(f, "cgroup {}", path.display()),
            Change::Mount { path } => write!(f, "cgroup mount {}", path.display()),
            Change::Controller { path, name } => {
                write!(f, "{name} controller in {}", path.display())
            }
            Change::LoopDevice { image } => write!(f, "loop device over {}", image.display()),
            Change::DeviceLimit { path, device, old } => {
                write!(f, "limit {old} of device {device} in {}", path.display())
            }
            Change::Module { name } => write!(f, "kernel module {name}"),
        }
    }
}

fn restore_switch(machine: &Machine, path: &str, old: &str) -> Result<()> {
    if machine.read(path)? != old {
        machine.write(path, old)?;
    }
    Ok(())
}

/// Whether `path` is an active swap area. `/proc/swaps` writes a space in a name as `\040`.
fn is_swapping(machine: &Machine, path: &Path) -> bool {
    let name = path.to_string_lossy().replace(' ', "\\040");
    let swaps = machine.read("/proc/swaps").unwrap_or_default();
    swaps.lines().any(|line| line.split_whitespace().next() == Some(name.as_str()))
}

fn swap_off(machine: &Machine, path: &Path) -> Result<()> {
    if is_swapping(machine, path) { run_tool("swapoff", &[path.as_os_str()]) } else { Ok(()) }
}

fn remove_zram(machine: &Machine, number: u32) -> Result<()> {
    if machine.has(&format!("/sys/block/zram{number}")) {
        machine.write("/sys/class/zram-control/hot_remove", &number.to_string())?;
    }
    Ok(())
}

fn delete_own(path: &Path) -> Result<()> {
    let is_own =
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OWN_PREFIX));
    if !is_own {
        bail!("it was not made by the bench");
    }
    let deleted = match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match deleted {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn unmount(machine: &Machine, path: &Path) -> Result<()> {
    let name = path.to_string_lossy();
    let mounts = machine.read("/proc/self/mounts")?;
    if mounts.lines().any(|line| line.split(' ').nth(1) == Some(&*name)) {
        nix::mount::umount(path)?;
    }
    Ok(())
}

/// Where another program has come to use the controller meanwhile, it stays.
fn disable_controller(path: &Path, name: &str) -> Result<()> {
    match fs::write(path, format!("-{name}")) {
        Err(error) if error.kind() != io::ErrorKind::ResourceBusy => Err(error.into()),
        _ => Ok(()),
    }
}

/// Takes a file away from all devices that lie over it.
fn detach(image: &Path) -> Result<()> {
    if !image.exists() {
        return Ok(());
    }
    let ask = ["--noheadings", "--output", "NAME", "--associated"].map(OsStr::new);
    let devices = tool_output("losetup", &[&ask[..], &[image.as_os_str()]].concat())?;
    devices.lines().try_for_each(|device| {
        run_tool("losetup", &[OsStr::new("--detach"), OsStr::new(device.trim())])
    })
}

fn unload(machine: &Machine, name: &str) -> Result<()> {
    if machine.has(&format!("/sys/module/{name}")) {
        run_tool("modprobe", &["-r".as_ref(), name.as_ref()])?;
    }
    Ok(())
}

/// Runs a system tool; what it says on its standard error becomes the error.
pub(crate) fn run_tool(tool: &str, arguments: &[&OsStr]) -> Result<()> {
    tool_output(tool, arguments).map(|_| ())
}

/// Runs a system tool and gives its standard output; what it says on its standard error becomes
/// the error.
pub(crate) fn tool_output(tool: &str, arguments: &[&OsStr]) -> Result<String> {
    // The tools of administrators are not on every user's path, not even on root's under sudo.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(tool)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .output()
        .with_context(|| format!("cannot run {tool}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{tool} failed: {}", said.lines().last().unwrap_or("it does not say why"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text).expect("a file");
        }
        let machine = Machine::at(root.path());
        (root, machine)
    }

    #[test]
    fn a_switch_goes_back_to_what_it_held_any_number_of_times() {
        let path = "/sys/module/zswap/parameters/enabled";
        let (_root, machine) = fake(&[(path, "Y\n")]);
        let change = Change::Switch { path: path.into(), old: "N".into() };
        for _ in 0..3 {
            change.take_back(&machine).expect("taken back");
            assert_eq!(machine.read(path).expect("switch"), "N");
        }
    }

    #[test]
    fn what_is_gone_already_is_not_touched() {
        let (_root, machine) = fake(&[
            ("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n"),
            ("/proc/self/mounts", "proc /proc proc rw 0 0\n"),
            ("/sys/class/zram-control/hot_remove", "untouched"),
        ]);
        for change in [
            Change::SwapArea { path: "/var/tmp/zpager-bench.swap".into() },
            Change::ZramDevice { number: 7 },
            Change::Made { path: "/nonexistent/zpager-bench-x".into() },
            Change::Group { path: "/nonexistent/zpager-bench".into() },
            Change::Mount { path: "/nonexistent/zpager-bench-cgroup".into() },
            Change::Module { name: "zram".into() },
            Change::LoopDevice { image: "/nonexistent/zpager-bench-disk".into() },
        ] {
            change.take_back(&machine).expect("nothing to do");
        }
        let written = machine.read("/sys/class/zram-control/hot_remove").expect("file");
        assert_eq!(written, "untouched");
    }

    #[test]
    fn a_device_that_is_there_is_removed() {
        let (_root, machine) =
            fake(&[("/sys/block/zram3/disksize", "0"), ("/sys/class/zram-control/hot_remove", "")]);
        Change::ZramDevice { number: 3 }.take_back(&machine).expect("removed");
        assert_eq!(machine.read("/sys/class/zram-control/hot_remove").expect("file"), "3");
    }

    #[test]
    fn only_own_files_are_deleted() {
        let root = tempfile::tempdir().expect("a directory");
        let machine = Machine::at(root.path());
        let foreign = root.path().join("precious");
        fs::write(&foreign, "x").expect("a file");
        assert!(Change::Made { path: foreign.clone() }.take_back(&machine).is_err());
        assert!(foreign.exists());
        let own = root.path().join("zpager-bench-work");
        fs::create_dir(&own).expect("a directory");
        fs::write(own.join("input"), "x").expect("a file");
        Change::Made { path: own.clone() }.take_back(&machine).expect("deleted");
        assert!(!own.exists());
    }
}
