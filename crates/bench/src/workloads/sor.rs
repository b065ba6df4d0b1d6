//! Successive over-relaxation of Laplace's equation (Young, 1954): hp's and
//! castro's scientific workload. The grid starts as mostly zero pages, which fill
//! as the sweeps carry heat from the edges; each sweep visits every page in order,
//! which is the worst case for first-in first-out and least recently used alike.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use fastrand::Rng;
use xxhash_rust::xxh3::Xxh3;

use super::{Job, Preparation, Workload, plain_job, program};

/// Side of the grid at scale 1.
const SIDE: u64 = 5120;
/// Sweeps over the grid.
const SWEEPS: u64 = 10;
/// Over-relaxation: between 1, which is Gauss and Seidel's method, and 2, where it diverges.
const OMEGA: f64 = 1.5;
/// Points held at a fixed heat, one for so many points of the grid.
const POINTS_PER_SOURCE: u64 = 32_768;

pub(super) struct Sor;

impl Workload for Sor {
    fn name(&self) -> &str {
        "sor"
    }

    fn about(&self) -> &str {
        "successive over-relaxation, 10 sweeps over a 5120 x 5120 grid, 200 MiB"
    }

    fn missing(&self) -> Option<String> {
        None
    }

    fn prepare(&self, preparation: &Preparation) -> Result<Job> {
        let side = preparation.scaled_side(SIDE).to_string();
        let (sweeps, seed) = (SWEEPS.to_string(), preparation.seed.to_string());
        let command = std::env::current_exe()?.into_os_string();
        let argv = ["bench", "sor", "--side", &side, "--sweeps", &sweeps, "--seed", &seed];
        let program = program([command].into_iter().chain(argv.map(Into::into)));
        Ok(plain_job(program, Vec::new()))
    }
}

/// The program itself.
#[derive(Debug, Clone, Args)]
pub struct SorOptions {
    /// Points along one side of the grid
    #[arg(long)]
    side: usize,
    /// Sweeps over the grid
    #[arg(long)]
    sweeps: u32,
    /// Where the sources of heat are
    #[arg(long)]
    seed: u64,
}

/// Relaxes a grid and prints a digest of it.
///
/// # Errors
/// When the digest cannot be printed.
pub(crate) fn relax(options: &SorOptions) -> Result<()> {
    let side = options.side.max(3);
    // Written, not only reserved: pages that were never written take no memory.
    let mut grid = Vec::with_capacity(side * side);
    grid.resize(side * side, 0.0_f64);
    let mut random = Rng::with_seed(options.seed);
    grid[..side].fill(1.0);
    for _ in 0..(side * side) as u64 / POINTS_PER_SOURCE {
        grid[random.usize(..side * side)] = 1.0 + random.f64() * 100.0;
    }
    for _ in 0..options.sweeps {
        sweep(&mut grid, side);
    }
    let mut hasher = Xxh3::new();
    let mut bytes = Vec::with_capacity(side * 8);
    for row in grid.chunks_exact(side) {
        bytes.clear();
        bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
        hasher.update(&bytes);
    }
    writeln!(std::io::stdout(), "{:032x}", hasher.digest128())?;
    Ok(())
}

/// One sweep in the order of the memory; the edge stays as it is.
fn sweep(grid: &mut [f64], side: usize) {
    for row in 1..side - 1 {
        let (above, rest) = grid[(row - 1) * side..(row + 2) * side].split_at_mut(side);
        let (here, below) = rest.split_at_mut(side);
        for column in 1..side - 1 {
            let around = above[column] + below[column] + here[column - 1] + here[column + 1];
            let change = OMEGA * (around / 4.0 - here[column]);
            // Heat too small to matter stays out, so that the front of zero pages
            // moves with the sweeps instead of at once.
            if change.abs() > 1e-3 {
                here[column] += change;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_spreads_and_comes_to_rest() {
        let side = 16;
        let mut grid = vec![0.0; side * side];
        grid[..side].fill(1.0);
        sweep(&mut grid, side);
        assert!(grid[side + 5] > 0.0);
        for _ in 0..1000 {
            sweep(&mut grid, side);
        }
        let before = grid.clone();
        sweep(&mut grid, side);
        assert_eq!(grid, before);
        assert!(grid.iter().all(|heat| (0.0..=1.0).contains(heat)));
    }
}
